"""Chapter 17: who goes round in one place is warned or stopped, and who gets on is left alone."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left
from collections.abc import Callable
from difflib import SequenceMatcher
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import (
    AgentLoop,
    CallModel,
    Control,
    Do,
    Interrupt,
    Journal,
    Limits,
    LoopContext,
    Message,
    Program,
    Reply,
    Step,
    StopReason,
    Toolbox,
    ToolCall,
    World,
    drive,
    settle,
    worst_case_steps,
)
from chapters import ch17_repetition_and_convergence as ch17
from chapters.ch07_drivers import drive_async, drive_on_bus
from chapters.ch17_repetition_and_convergence import (
    BEHAVIOURS,
    canonical,
    converged,
    different_results,
    fingerprints,
    repeated_action,
    repeated_call,
    repeated_cycle,
    rules,
    run,
    stagnated,
    stopped_after,
    stuck_model,
    text_ratio,
    warn_first,
)
from fake_llm import FakeClock, JobQueue, get_attraction, get_weather, random_model, stubborn_model
from paradigms.evaluators import read_score
from paradigms.react import react
from tests import (
    check_cycle,
    check_repetition,
    check_similarity,
    check_stagnation,
    check_stop_rule,
    check_warning,
    stop_rule_worlds,
)
from tests.check_machine import BrokenPromise
from tests.loop_strategies import answers
from tests.stop_rule_worlds import Action, Round, doing, ended, polled

PROMISES: dict[str, Any] = {
    "repetition": check_repetition.PROMISES,
    "cycle": check_cycle.PROMISES,
    "similarity": check_similarity.PROMISES,
    "stagnation": check_stagnation.PROMISES,
    "warning": check_warning.PROMISES,
}
OURS: list[tuple[str, Any]] = [
    ("repetition", repeated_action),
    ("cycle", repeated_cycle),
    ("similarity", text_ratio),
    ("similarity", fingerprints),
    ("stagnation", stagnated),
    ("warning", warn_first),
]
READY: dict[str, Callable[[], Any]] = {
    "repeated_call": repeated_call,
    "text_ratio": lambda: converged(text_ratio()),
    "fingerprints": lambda: converged(fingerprints()),
    "stagnated": lambda: stagnated(different_results),
    "warn_first": lambda: warn_first(repeated_action()),
}


# --- The promises -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "ours", "name"),
    [(check, ours, name) for check, ours in OURS for name in PROMISES[check]],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_ours_keeps(check: str, ours: Any, name: str) -> None:
    PROMISES[check][name](ours)


@pytest.mark.parametrize("make_rule", READY.values(), ids=READY)
@pytest.mark.parametrize("name", check_stop_rule.PROMISES)
def test_any_rule_keeps(name: str, make_rule: Callable[[], Any]) -> None:
    check_stop_rule.PROMISES[name](make_rule)


# --- Cases and errata -------------------------------------------------------------------------


def test_L01_arguments_in_another_order_are_the_same_arguments() -> None:
    first = doing(Action("lookup", {"topic": "tea", "limit": 1}))
    second = doing(Action("lookup", {"limit": 1, "topic": "tea"}))
    end = stop_rule_worlds.run(repeated_action(times=3), [first, second] * 3)
    assert (end.after, end.reason) == (3, StopReason.REPEATED_ACTION)
    assert stop_rule_worlds.run(repeated_action(times=3), [first, second]).after is None


def test_L01_three_identical_calls_inside_one_message_and_a_warning_in_place_of_the_end() -> None:
    batch = doing(*[Action("lookup", {"topic": "tea"})] * 3)
    assert stop_rule_worlds.run(repeated_action(times=3), [batch]).after == 1
    end = stop_rule_worlds.run(warn_first(repeated_action(times=3)), [batch])
    assert (end.after, end.warned) == (None, (1,))


def test_L03_five_polls_with_five_results_are_no_loop_and_five_with_the_same_are() -> None:
    tools = Toolbox([JobQueue().poll])
    alive = [tools.execute(ToolCall("poll", {"job": "j"})).text for _ in range(5)]
    assert alive == ["10%", "40%", "70%", "95%", "done"]
    for rule in (
        repeated_action(times=3),
        repeated_cycle(),
        converged(text_ratio()),
        converged(fingerprints()),
    ):
        assert stop_rule_worlds.run(rule, polled(alive)).after is None
    assert stop_rule_worlds.run(repeated_action(times=5), polled(["40%"] * 5)).after == 5


def test_EB15_each_detector_is_a_rule_of_its_own_and_sees_what_it_sees() -> None:
    seen = {
        name: [rule for rule, each in rules().items() if stopped_after(each, rounds)]
        for name, rounds in BEHAVIOURS.items()
    }
    assert seen["polling, it gets on"] == ["repeated_call"]
    assert seen["honest work"] == []
    assert seen["the same, reworded"] == ["text_ratio", "fingerprints", "stagnated"]
    assert stopped_after(repeated_cycle(), BEHAVIOURS["A-B-A-B"]) == 4
    assert stopped_after(repeated_action(times=4), BEHAVIOURS["A-B-A-B"]) is None
    for rule in ("repeated_action", "repeated_call", "text_ratio", "fingerprints", "stagnated"):
        for name in ("the same call", "arguments turned round", "three at once", "polling, it hangs"):
            assert rule in seen[name]


def test_B38_warned_the_model_changes_direction_and_finishes() -> None:
    assert run(stuck_model()).stop is StopReason.MAX_ITERATIONS
    assert run(stuck_model(), stops=(repeated_action(),)).stop is StopReason.REPEATED_ACTION
    warned = run(stuck_model(), stops=(warn_first(repeated_action()),))
    assert warned.answer == "今天北京晴，约 26 摄氏度。"
    assert [bool(turn.warnings) for turn in warned.turns] == [False, False, True, False, False]
    deaf = run(stubborn_model(), stops=(warn_first(repeated_action(), times=2),))
    assert (deaf.stop, deaf.control.rounds) == (StopReason.REPEATED_ACTION, 5)


def test_two_warnings_around_one_rule_add_up() -> None:
    deaf = run(stubborn_model(), stops=(warn_first(warn_first(repeated_action())),))
    assert (deaf.stop, deaf.control.rounds) == (StopReason.REPEATED_ACTION, 5)


def test_advice_of_ones_own_with_braces_in_it_is_told_as_it_is() -> None:
    rule = warn_first(repeated_action(), advice="{x} {reason} {0}")
    [told] = run(stubborn_model(), stops=(rule,)).turns[2].warnings
    assert told == f"{{x}} {StopReason.REPEATED_ACTION.value} {{0}}"


# --- What is said (A-107) ---------------------------------------------------------------------


def searching(*words: str) -> list[Round]:
    return [doing(Action("search", {"words": each}), said=f"再找一次：{each}") for each in words]


@pytest.mark.parametrize("alike", [text_ratio(), fingerprints(0.6)], ids=["text_ratio", "fingerprints"])
def test_A107_replies_that_only_change_a_word_and_find_nothing_have_converged(alike: Any) -> None:
    words = [f"北京今天天气怎么样，哪里可以看到预报 {number}" for number in range(5)]
    end = stop_rule_worlds.run(converged(alike), searching(*words))
    assert (end.after, end.reason) == (3, StopReason.CONVERGED)
    found = [doing(each.actions[0]._replace(result=f"{n} found"), said=each.said) for n, each in
             enumerate(searching(*words))]  # fmt: skip
    assert stop_rule_worlds.run(converged(alike), found).after is None


def test_A107_slow_change_is_change() -> None:
    texts = ["a" * (40 - 2 * step) + "b" * 2 * step for step in range(20)]
    behaviour = [doing(Action("note", {}), said=text) for text in texts]
    assert text_ratio(0.9)(texts[0], texts[1]) and not text_ratio(0.9)(texts[0], texts[4])
    assert stop_rule_worlds.run(converged(text_ratio(0.9), rounds=5), behaviour).after is None


def test_an_answer_that_is_refused_again_and_again_has_converged() -> None:
    loop = AgentLoop(
        react(Toolbox([get_weather])),
        accept=lambda context, answer: "Check it first.",
        stops=(converged(text_ratio()), repeated_action(times=2)),
    )
    model = stubborn_model("Thought: 够了。\nAction: Finish[晴]")
    result = drive(loop.run("北京天气？"), World(model, inline=True))
    assert (result.stop, result.control.rounds) == (StopReason.CONVERGED, 3)


def test_what_the_rules_cannot_know_a_tool_that_says_done_whatever_was_done() -> None:
    folders = [doing(Action("mkdir", {"path": f"/notes/{letter}"}, "done")) for letter in "abcd"]
    assert stop_rule_worlds.run(converged(text_ratio()), folders).after == 3
    assert stop_rule_worlds.run(converged(text_ratio(least=0.98)), folders).after is None
    assert stop_rule_worlds.run(repeated_action(), folders).after is None


def test_a_fingerprint_estimates_the_share_of_pieces_in_common() -> None:
    draw, errors = random.Random(1), []
    for kept in range(1200, 1500, 15):
        text, other = ("".join(draw.choices("abcdefghijklmnop", k=1500)) for _ in range(2))
        changed = text[:kept] + other[kept:]
        one, two = ({each[at : at + 3] for at in range(1498)} for each in (text, changed))
        shares = [step / 50 for step in range(25, 51)]
        above = bisect_left(shares, True, key=lambda share: not fingerprints(share)(text, changed))  # noqa: B023
        estimate = shares[above - 1]
        errors.append(estimate - len(one & two) / len(one | two))
    assert max(map(abs, errors)) < 0.2 and abs(sum(errors) / len(errors)) < 0.03


# --- What is gained (A-108) -------------------------------------------------------------------


def test_A108_a_model_may_judge_and_one_that_cannot_be_read_says_nothing_is_gained() -> None:
    def value(context: LoopContext) -> Program[float | None]:
        reply = (yield CallModel((Message("user", "How good is it?"),))).value
        return read_score(reply.text) if isinstance(reply, Reply) else None

    scores = iter(["Score: 0.2", "Score: 0.6", "hard to say", ConnectionError("503"), "Score: 0.6"])

    def judge(request: CallModel) -> Any:
        score = next(scores)
        if isinstance(score, Exception):
            raise score
        return score

    work = [doing(Action("work", {"step": step}, str(step))) for step in range(9)]
    program = stop_rule_worlds.program(stagnated(value, patience=3), work)
    end = ended(drive(program, World(judge, inline=True)))
    assert (end.after, end.reason) == (5, StopReason.STAGNATED)
    assert end.result.control.model_calls == 5, "the judge is on the loop's account"


def test_a_judge_that_runs_dry_ends_the_run_for_that_reason_with_its_turns() -> None:
    def value(context: LoopContext) -> Program[Any]:
        return (yield Do("look", lambda: len(context.turns))).value

    work = [doing(Action("work", {"step": step}, str(step))) for step in range(9)]
    program = stop_rule_worlds.program(stagnated(value), work, Limits(rounds=50, effects=4))
    result = drive(program, World(inline=True))
    assert (result.stop, len(result.turns)) == (StopReason.EFFECTS, 5)


# --- Arguments and calls ----------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [1, 0, -1, 2.0, True, None, "3"])
def test_a_number_that_makes_no_sense_is_refused_with_what_would_be_right(wrong: Any) -> None:
    for make in (repeated_action, repeated_call, repeated_cycle):
        with pytest.raises(ValueError, match="times must be a whole number of at least 2"):
            make(times=wrong)
    with pytest.raises(ValueError, match="rounds must be a whole number of at least 2"):
        converged(text_ratio(), rounds=wrong)
    with pytest.raises(ValueError, match="must be a whole number of at least 1"):
        warn_first(repeated_action(), times=0 if wrong == 1 else wrong)
    with pytest.raises(ValueError, match="a period must be a whole number of at least 2"):
        repeated_cycle(periods=(wrong,))


def test_other_numbers_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="periods must name at least one"):
        repeated_cycle(periods=())
    for least in (0, 1.1, float("nan"), "0.9", True, None):
        for make in (text_ratio, fingerprints):
            with pytest.raises(ValueError, match="above 0 and up to 1"):
                make(least)  # type: ignore[arg-type]
    for gain in (-0.1, float("nan"), float("inf"), None, True):
        with pytest.raises(ValueError, match="least_gain must be a finite number of at least 0"):
            stagnated(different_results, least_gain=gain)  # type: ignore[arg-type]
    for make_rule in (repeated_action, repeated_call):
        for times, window in ((3, 0), (3, 2), (11, 10), (3, True)):
            due = f"window, in which something is to come {times} times, must be .* at least {times}"
            with pytest.raises(ValueError, match=due):
                make_rule(times=times, window=window)


def test_what_cannot_be_called_is_refused_at_once() -> None:
    makes: tuple[Callable[[Any], Any], ...] = (converged, stagnated, warn_first)
    for make in makes:
        for wrong in (None, 5, "words"):
            with pytest.raises(TypeError, match="must be a function"):
                make(wrong)


def test_a_round_of_the_longest_replies_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    class Noted(SequenceMatcher[str]):
        def __init__(self, isjunk: Any, a: str, b: str, autojunk: bool) -> None:
            compared.extend((len(a), len(b)))
            super().__init__(isjunk, a, b, autojunk)

    monkeypatch.setattr(ch17, "SequenceMatcher", Noted)
    assert not text_ratio()("ab" * 50_000, "a" * 50_000 + "b" * 50_000)
    # In the worst case, which this is, the time grows with the cube of the length.
    assert compared and max(compared) ** 3 < 5e7


@given(check_repetition.some_arguments)
def test_the_order_of_entries_does_not_show_in_a_calls_text(arguments: dict[str, Any]) -> None:
    turned = check_repetition.turned_round(arguments)
    assert canonical(ToolCall("lookup", arguments)) == canonical(ToolCall("lookup", turned))


def test_what_cannot_be_written_is_like_no_other_call() -> None:
    for arguments in check_stop_rule.odd_arguments():
        assert isinstance(canonical(ToolCall("odd", arguments, "call_1_1_1")), str)
    assert canonical(ToolCall("odd", {"it": check_stop_rule.Unwritable()}, "call_1_2_1")) == "call_1_2_1"


def test_a_rule_asked_twice_after_a_round_says_the_same() -> None:
    turns = run(stubborn_model()).turns
    for rule in rules().values():
        context, once = LoopContext("task"), LoopContext("task")
        for turn in turns:
            said = stop_rule_worlds.asked(rule, context, turn)
            assert drive(settle(rule(Control(), context)), World(inline=True)) == said
            assert stop_rule_worlds.asked(rule, once, turn) == said


# --- Hostile worlds, every driver, any break --------------------------------------------------


def all_rules(warned: bool) -> tuple[Any, ...]:
    made = (*rules().values(), stagnated(lambda context: float("nan"), patience=4))
    return tuple(warn_first(each) for each in made) if warned else made


@settings(max_examples=60)
@given(st.integers(), st.lists(answers, min_size=1, max_size=3), st.booleans(), st.none() | st.integers(0, 6))
def test_in_any_world_a_loop_under_all_rules_ends_in_time_and_says_why(
    seed: int, script: list[Any], warned: bool, interrupted_at: int | None
) -> None:
    limits = Limits(rounds=6, model_calls=9, effects=20)
    steps: list[Step] = []
    interrupt, asked = Interrupt(), 0
    model = random_model(seed, script)

    def person(request: CallModel) -> Any:
        nonlocal asked
        asked += 1
        if asked == interrupted_at:
            interrupt.set()
        return model(request)

    tools = Toolbox([get_weather, get_attraction])
    loop = AgentLoop(react(tools), limits=limits, stops=all_rules(warned), watch=steps.append)
    world = World(person, tools, clock=FakeClock().now, inline=True)
    result = drive(loop.run("北京天气？"), world, interrupt=interrupt)
    assert len(steps) <= worst_case_steps(limits)
    assert (result.answer is not None) == (result.stop is StopReason.FINAL_ANSWER)
    assert all(len(turn.calls) == len(turn.observations) for turn in result.turns)


@pytest.mark.parametrize("driver", [drive_async, drive_on_bus], ids=["drive_async", "drive_on_bus"])
def test_every_driver_comes_to_the_same(driver: Callable[..., Any]) -> None:
    tools = Toolbox([get_weather])

    def program() -> Program[Any]:
        stops = (warn_first(repeated_action()), stagnated(lambda context: 1, patience=6))
        return AgentLoop(react(tools), stops=stops).run("北京天气？")

    world = World(stubborn_model(), tools, clock=FakeClock().now, inline=True)
    due = drive(program(), world)
    assert due.stop is StopReason.REPEATED_ACTION
    assert asyncio.run(driver(program(), world)) == due


def test_broken_off_anywhere_and_resumed_it_comes_to_the_same() -> None:
    tools = Toolbox([get_weather])
    loop = AgentLoop(react(tools), stops=(warn_first(repeated_action(times=2), times=2), repeated_cycle()))
    world, journal = World(stubborn_model(), tools, clock=FakeClock().now, inline=True), Journal()
    due = drive(loop.run("北京天气？"), world, journal)
    assert (due.stop, due.control.rounds) == (StopReason.REPEATED_ACTION, 4)
    for count in range(len(journal.outcomes) + 1):
        assert drive(loop.run("北京天气？"), world, journal.rewound(count)) == due


def test_the_stories_are_short() -> None:
    with pytest.raises(BrokenPromise) as caught:
        check_repetition.polling_whose_results_change_is_left_alone(repeated_call)
    assert len(str(caught.value).splitlines()) <= 12
