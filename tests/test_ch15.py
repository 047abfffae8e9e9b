"""Chapter 15: when an answer may be believed. Promises, wrong versions, EA13, EB17, L08, and hostile runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    Act,
    AgentLoop,
    Away,
    Control,
    Do,
    Finish,
    Interrupt,
    Journal,
    Kind,
    Limits,
    LoopContext,
    LoopError,
    Observation,
    Program,
    Result,
    StopReason,
    Toolbox,
    ToolCall,
    World,
    bounded,
    drive,
    report,
    worst_case_steps,
)
from chapters.ch01_one_shot_vs_loop import TASK as FEED_THE_CAT
from chapters.ch01_one_shot_vs_loop import robot
from chapters.ch07_drivers import drive_async, drive_on_bus
from chapters.ch15_goal_detection import (
    MENTIONED,
    REPLIES,
    TASK,
    Outing,
    all_of,
    as_it_would_end,
    believes_any_marker,
    by_a_person,
    compared_with_the_thermometer,
    doubtful,
    ends_when,
    has_form,
    is_yes,
    judged,
    not_taken,
    opening_hours,
    outside,
    read_form,
    refused_too_often,
    verified,
)
from fake_llm import CatHouse, FakeClock, FakeModel, ScriptedModel, get_attraction, get_weather, random_model
from paradigms.evaluators import Judgement, judged_by_model, judged_by_rules, judged_by_tests
from paradigms.react import react
from paradigms.text_protocol import parse
from tests import check_all_of, check_ends_when, check_form, check_refusals, check_verified
from tests.goal_worlds import TOOLS, WIDE, after, moves, objection, played

PROMISES: dict[str, Any] = {
    "form": (has_form, check_form.PROMISES),
    "verified": (verified, check_verified.PROMISES),
    "refusals": (refused_too_often, check_refusals.PROMISES),
    "all_of": (all_of, check_all_of.PROMISES),
    "ends_when": (ends_when, check_ends_when.PROMISES),
}
ALL = [(check, name) for check, (_, promises) in PROMISES.items() for name in promises]
GUIDE = Toolbox([get_weather, get_attraction, opening_hours])


# --- The promises -----------------------------------------------------------------------------


@pytest.mark.parametrize(("check", "name"), ALL, ids=lambda value: value)
def test_ours_keeps(check: str, name: str) -> None:
    ours, promises = PROMISES[check]
    promises[name](ours)


# --- Errata and cases -------------------------------------------------------------------------


def test_EA13_a_marker_in_a_sentence_ends_nothing_and_the_action_beside_it_is_taken() -> None:
    believed = believes_any_marker(MENTIONED[0], GUIDE)
    assert isinstance(believed, Finish) and "Action:" in believed.answer, "the article's fault is shown"
    result = drive(AgentLoop(react(GUIDE)).run("天气？"), World(ScriptedModel(MENTIONED), GUIDE, inline=True))
    assert (result.answer, result.control.tool_calls) == ("北京今天晴，26 度。", 1)


@pytest.mark.parametrize(
    "text",
    [
        'Thought: I must not output [FINAL_ANSWER] yet\nAction: get_weather(city="北京")',
        'Thought: 标记是 [TASK_COMPLETE]，现在还早。\nAction: get_weather(city="北京")',
        'Thought: Finish[...] comes last.\nAction: get_weather(city="北京")',
    ],
)
def test_EA13_no_mention_of_any_marker_drops_the_action(text: str) -> None:
    assert not isinstance(parse(text, GUIDE), Finish)


def test_EB17_the_articles_three_rounds_answer_and_the_guard_wants_one_more_call() -> None:
    rounds = (
        'Thought: 先拿天气。\nAction: get_weather(city="北京")',
        'Thought: 据此筛选。\nAction: get_attraction(city="北京", weather="Sunny")',
        "Thought: 信息够了。\nAction: Finish[颐和园（湖景 + 古建筑）、长城]",
    )
    plain = drive(AgentLoop(react(GUIDE)).run(TASK), World(ScriptedModel(rounds), GUIDE, inline=True))
    assert plain.answer is not None and plain.control.rounds == 3, "the guard may be left out"
    check = 'Thought: 验证一下。\nAction: opening_hours(attraction="长城")'
    model = ScriptedModel((*rounds, check, "Thought: 开门。\nAction: Finish[长城]"))
    loop = AgentLoop(react(GUIDE), accept=verified(least=3))
    guarded = drive(loop.run(TASK), World(model, GUIDE, inline=True))
    assert (guarded.answer, guarded.control.rounds) == ("长城", 5)
    assert "回答前必须再用一次工具调用验证" in model.prompts[3]


def test_L08_a_claim_of_a_call_that_was_never_made_is_refused_once_and_then_it_is_over() -> None:
    def pay(amount: float) -> str:
        """Pay an amount, in yuan."""
        return "receipt #77"

    tools = Toolbox([pay])
    claim = "Thought: done\nFinal Answer: I ran pay and the receipt is #77"
    believed = drive(AgentLoop(react(tools)).run("pay"), World(ScriptedModel([claim]), tools, inline=True))
    assert [call for turn in believed.turns for call in turn.calls] == [], "that nothing ran is exposed"
    loop = AgentLoop(react(tools), accept=verified("pay"), stops=(refused_too_often(1),))
    result = drive(loop.run("pay"), World(ScriptedModel([claim, claim]), tools, inline=True))
    assert (result.stop, result.answer, result.control.tool_calls) == (StopReason.STAGNATED, None, 0)
    assert [turn.observations[0].kind for turn in result.turns] == [Kind.REFUSED] * 2
    honest = ["Action: pay(amount=77)", claim]
    result = drive(loop.run("pay"), World(ScriptedModel([claim, *honest]), tools, inline=True))
    assert result.answer == "I ran pay and the receipt is #77"


# --- The form ---------------------------------------------------------------------------------


def test_the_reader_of_an_accepted_answer_is_given_data() -> None:
    answer = '{"city": "北京", "degrees": "26", "attraction": "长城"}'
    assert objection(has_form(Outing), answer) is None
    assert read_form(Outing, answer) == Outing("北京", 26, "长城")
    assert read_form(Outing, json.loads(answer)) == Outing("北京", 26, "长城"), "data may come as data"
    with pytest.raises(ValueError, match="missing argument 'degrees'"):
        read_form(Outing, '{"city": "北京", "attraction": "长城"}')


@pytest.mark.parametrize("form", [lambda city: None, lambda city, /: None, lambda *cities: None])
def test_a_form_that_no_answer_can_have_is_refused_at_once(form: Any) -> None:
    with pytest.raises(ValueError):
        has_form(form)


# --- Outside ----------------------------------------------------------------------------------


def test_what_is_missing_outside_is_the_objection() -> None:
    assert objection(outside(lambda: "2 tests fail")) == "2 tests fail"
    assert objection(outside(lambda: None)) is None


def test_a_look_that_fails_is_no_yes_and_no_bug() -> None:
    def broken() -> str:
        raise OSError("no test runner")

    said = objection(outside(broken))
    assert said.startswith("Whether the goal is met could not be found out") and "no test runner" in said
    result = played(("look", "answer"), stops=(ends_when(outside(broken)),))
    assert result.answer == "长城"


def test_a_look_that_the_run_broke_off_in_is_taken_again() -> None:
    journal = Journal()
    due = played(("answer",), accept=outside(lambda: None), journal=journal)
    place, (address, asked, _) = next(
        each for each in enumerate(journal.outcomes) if each[1][1].startswith("Do look")
    )
    broken_off = journal.rewound(place)
    broken_off.intend(address, asked)
    assert played(("answer",), accept=outside(lambda: None), journal=broken_off) == due


@pytest.mark.parametrize("odd", [True, False, 3, ["missing"]])
def test_a_look_that_says_something_odd_is_a_mistake_of_its_author(odd: Any) -> None:
    with pytest.raises(LoopError) as caught:
        played(("answer",), accept=outside(lambda: odd))
    assert "look must say what is missing, or None" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("score", "due"),
    [
        (1.0, None),
        (0.8, None),
        (0.79, "reasons"),
        (0, "reasons"),
        (None, "Whether the answer is right could not be found out: reasons"),
    ],
)
def test_an_evaluator_passes_at_its_threshold_and_unknown_is_no_pass(
    score: float | None, due: str | None
) -> None:
    assert objection(judged(lambda task, result: Judgement(score, "reasons"))) == due


def test_a_judge_without_reasons_still_says_something() -> None:
    said = objection(judged(lambda task, result: Judgement(0.25)))
    assert said == "The answer was judged at 0.25 of 1: it is not right yet."


@pytest.mark.parametrize("odd", [True, 1.0, Judgement(float("nan")), Judgement(2.0), Judgement(True)])
def test_a_judgement_that_is_none_is_a_mistake_of_its_author(odd: Any) -> None:
    with pytest.raises(LoopError) as caught:
        played(("answer",), accept=judged(lambda task, result: odd))
    assert "must return a Judgement" in str(caught.value.__cause__)


@pytest.mark.parametrize("threshold", [0, -1, 1.1, True, float("nan"), None])
def test_a_threshold_that_nothing_or_everything_passes_is_refused(threshold: Any) -> None:
    with pytest.raises(ValueError, match="threshold must be a number above 0"):
        judged(judged_by_rules, threshold)


def test_tests_that_break_down_do_not_know() -> None:
    said = objection(judged(judged_by_tests(compared_with_the_thermometer)), "北京今天晴")
    assert said.startswith("Whether the answer is right could not be found out")


def test_a_judge_whose_own_allowance_ends_does_not_know_and_the_run_goes_on() -> None:
    def looking() -> Program[Judgement]:
        yield Do("look", lambda: None)
        yield Do("look again", lambda: None)
        return Judgement(1.0)

    def evaluate(task: Any, result: Result) -> Program[Judgement]:
        return bounded(looking(), Limits(effects=1))

    result = played(("answer",), accept=judged(evaluate), stops=(refused_too_often(2),))
    assert (result.stop, result.control.rounds) == (StopReason.STAGNATED, 3)
    result = played(("answer",), accept=judged(lambda task, result: looking()), limits=Limits(effects=1))
    assert (result.stop, result.answer) == (StopReason.EFFECTS, None), "the run's own end is not swallowed"
    assert [turn.calls for turn in result.turns] == [()], "nobody refused the answer"


def test_a_model_that_judges_is_paid_from_the_runs_account() -> None:
    model = ScriptedModel(
        ["Action: Finish[长城]", "It is closed.\nScore: 0.1", "Action: Finish[颐和园]", "Score: 1"]
    )
    loop = AgentLoop(react(GUIDE), accept=judged(judged_by_model()))
    result = drive(loop.run(TASK), World(model, GUIDE, inline=True))
    assert (result.answer, result.control.model_calls, result.control.rounds) == ("颐和园", 4, 2)


def test_an_evaluator_is_shown_the_run_as_it_would_end() -> None:
    shown: list[Result] = []

    def evaluate(task: Any, result: Result) -> Judgement:
        shown.append(result)
        return Judgement(1.0)

    ended = played(("look twice", "look", "fail", "answer"), accept=judged(evaluate))
    assert shown[0].answer == ended.answer == "长城"
    assert shown[0].turns == ended.turns[:-1]
    assert shown[0].control == ended.control._replace(effects=0, tool_calls=0)
    assert judged_by_rules(TASK, shown[0]) == judged_by_rules(TASK, ended)


@given(moves)
def test_as_it_would_end_is_what_the_machine_says_of_any_run(made: list[str]) -> None:
    result = as_it_would_end(after(made), "长城")
    assert (result.stop, result.control.rounds) == (StopReason.FINAL_ANSWER, len(made) + 1)


# --- A person ---------------------------------------------------------------------------------


@pytest.mark.parametrize("said", ["yes", " Yes. ", "OK!", "是的。", "好", True])
def test_a_clear_yes_passes(said: Any) -> None:
    assert is_yes(said)
    assert played(
        ("answer",), accept=by_a_person, world=World(human=lambda question: said, inline=True)
    ).answer


@pytest.mark.parametrize(
    "said", ["", "no", "yes, but 颐和园 is closed", "不是", None, False, 1, "maybe", object()]
)
def test_anything_else_is_the_objection(said: Any) -> None:
    assert not is_yes(said)
    result = played(
        ("answer",),
        accept=by_a_person,
        stops=(refused_too_often(0),),
        world=World(human=lambda question: said, inline=True),
    )
    assert (result.stop, result.answer) == (StopReason.STAGNATED, None)
    assert str(said) in result.turns[0].observations[0].text


def test_where_nobody_is_there_nobody_has_said_yes() -> None:
    result = played(("answer",), accept=by_a_person, stops=(refused_too_often(0),), world=World(inline=True))
    assert result.answer is None
    assert "Nobody is there" in result.turns[0].observations[0].text


def mended_by_work(questions: list[str]) -> Callable[[str], str]:
    """A person who wants work to be done between the first question and the next."""

    def human(question: str) -> str:
        questions.append(question)
        return "yes" if len(questions) > 1 else "look first"

    return human


def test_a_person_is_shown_task_and_answer_and_asked_anew_when_the_same_answer_comes_after_work() -> None:
    questions: list[str] = []
    result = played(
        ("answer", "look", "answer"),
        accept=by_a_person,
        world=World(human=mended_by_work(questions), tools=TOOLS, inline=True),
    )
    assert (result.answer, result.control.rounds) == ("长城", 3)
    assert len(questions) == 2 and "今天去北京哪里玩" in questions[0] and "长城" in questions[0]


def test_a_person_who_ends_a_run_is_asked_after_each_round() -> None:
    questions: list[str] = []
    world = World(human=mended_by_work(questions), tools=TOOLS, inline=True)
    result = played(("look",), stops=(ends_when(by_a_person),), world=world)
    assert (result.stop, result.control.rounds) == (StopReason.EXTERNALLY_DONE, 2)


def test_a_person_who_is_away_answers_later_from_the_journal() -> None:
    def away(question: str) -> str:
        raise Away

    journal = Journal()
    with pytest.raises(Away):
        played(
            ("look", "answer"),
            accept=by_a_person,
            world=World(human=away, tools=TOOLS, inline=True),
            journal=journal,
        )
    nobody_works = World(human=lambda question: "yes", inline=True)
    result = played(("look", "answer"), accept=by_a_person, world=nobody_works, journal=journal)
    assert (result.answer, result.control.tool_calls) == ("长城", 1)


def test_a_person_can_stop_the_run_in_the_middle_of_a_check() -> None:
    interrupt = Interrupt()

    def look() -> None:
        interrupt.set()

    loop = AgentLoop(lambda context: Finish("长城"), accept=all_of(outside(look), by_a_person))
    result = drive(loop.run(TASK), World(human=lambda question: "yes", inline=True), interrupt=interrupt)
    assert (result.stop, result.answer) == (StopReason.HUMAN, None)


# --- Bad arguments ----------------------------------------------------------------------------


@pytest.mark.parametrize("least", [0, -1, 1.0, True, None])
def test_a_least_that_is_no_count_is_refused(least: Any) -> None:
    with pytest.raises(ValueError, match="least must be a whole number of at least 1"):
        verified(least=least)


def test_tools_are_given_by_name() -> None:
    with pytest.raises(TypeError, match="names of tools"):
        verified(get_weather)  # type: ignore[arg-type]


@pytest.mark.parametrize("most", [-1, 1.5, True, None])
def test_a_most_that_is_no_count_is_refused(most: Any) -> None:
    with pytest.raises(ValueError, match="most must be a whole number of at least 0"):
        refused_too_often(most)


@pytest.mark.parametrize("make", [has_form, outside, judged, ends_when])
def test_what_cannot_be_called_is_refused_at_once(make: Any) -> None:
    for wrong in (None, 5, "words"):
        with pytest.raises(TypeError, match="must be a function"):
            make(wrong)


def test_checks_are_functions_and_there_is_at_least_one() -> None:
    for wrong in ((), (None,), ("words",)):
        with pytest.raises(TypeError, match="all_of takes checks"):
            all_of(*wrong)


# --- The chapter's story ----------------------------------------------------------------------


def guide(limits: Limits = Limits()) -> AgentLoop:  # noqa: B008
    """The demo's loop with all its layers."""
    layers = all_of(
        verified("opening_hours"),
        has_form(Outing),
        judged(judged_by_tests(compared_with_the_thermometer)),
        by_a_person,
    )
    return AgentLoop(react(GUIDE), accept=layers, stops=(refused_too_often(5),), limits=limits)


def guides_world() -> World:
    return World(
        ScriptedModel(REPLIES), GUIDE, human=lambda question: "是的。", clock=FakeClock().now, inline=True
    )


def test_the_layers_let_the_last_answer_through_and_no_other() -> None:
    result = drive(guide().run(TASK), guides_world())
    assert read_form(Outing, result.answer) == Outing("北京", 26, "长城")
    refused = [turn for turn in result.turns for seen in turn.observations if seen.kind is Kind.REFUSED]
    assert len(refused) == 5


@pytest.mark.parametrize("driver", [drive_async, drive_on_bus], ids=["drive_async", "drive_on_bus"])
def test_every_driver_comes_to_the_same(driver: Callable[..., Any]) -> None:
    assert asyncio.run(driver(guide().run(TASK), guides_world())) == drive(guide().run(TASK), guides_world())


def test_broken_off_anywhere_and_resumed_it_comes_to_the_same() -> None:
    journal = Journal()
    due = drive(guide().run(TASK), guides_world(), journal)
    replies = [place for place, (_, asked, _) in enumerate(journal.outcomes) if asked.startswith("CallModel")]
    for count in range(len(journal.outcomes) + 1):
        world, used = guides_world(), sum(place < count for place in replies)
        rest = World(ScriptedModel(REPLIES[used:]), world.tools, world.human, clock=world.clock, inline=True)
        assert drive(guide().run(TASK), rest, journal.rewound(count)) == due


@pytest.mark.parametrize("seed", range(20))
def test_whichever_house_it_is_the_rule_ends_the_run_when_the_cat_has_eaten(seed: int) -> None:
    house = CatHouse(seed)
    fed = outside(lambda: None if house.goal_met else "the cat is hungry")
    loop = replace(robot(1, Limits(rounds=30)), stops=(ends_when(fed),))
    result = drive(loop.run(FEED_THE_CAT), World(FakeModel(doubtful), Toolbox(house.tools), inline=True))
    assert result.stop is StopReason.EXTERNALLY_DONE and house.goal_met
    assert "purrs" in result.turns[-1].observations[-1].text


def test_a_check_that_cannot_be_paid_for_has_not_passed() -> None:
    both = all_of(outside(lambda: None), outside(lambda: None))
    result = played(("answer",), accept=both, limits=Limits(effects=1))
    assert (result.answer, result.stop) == (None, StopReason.EFFECTS)
    assert len(result.turns) == 1, "the answer's turn is not lost"


# --- Hostile runs -----------------------------------------------------------------------------

SCORES = st.sampled_from(["Score: 1", "Score: 0.2", "yes!", "", "Score: 11/10"])


@given(st.integers(0, 10**6), SCORES, st.integers(1, 30), st.integers(0, 3), st.permutations(range(4)))
def test_whatever_the_model_does_no_answer_escapes_its_checks(
    seed: int, score: str, effects: int, most: int, order: list[int]
) -> None:
    checks = (verified("get_weather"), judged(judged_by_model()), by_a_person, outside(lambda: None))
    passed: list[Any] = []

    def noted(context: LoopContext, answer: Any) -> None:
        passed.append(answer)

    limits = Limits(rounds=8, effects=effects)
    accept = all_of(*(checks[place] for place in order), noted)
    loop = AgentLoop(react(GUIDE), accept=accept, stops=(refused_too_often(most),), limits=limits)
    model = random_model(seed)

    def answering(request: Any) -> Any:
        return score if request.messages[0].content.startswith("You judge") else model(request)

    journal = Journal()
    human = {0: "yes", 1: "no", 2: None, 3: True}[seed % 4]
    world = World(answering, GUIDE, human=lambda question: human, clock=FakeClock().now, inline=True)
    result = drive(loop.run(TASK), world, journal)
    assert (result.answer is not None) == (result.stop is StopReason.FINAL_ANSWER)
    if result.answer is not None:
        assert passed == [result.answer]
        assert any(call.name == "get_weather" for turn in result.turns for call in turn.calls)
        assert (score, seed % 4 in (0, 3)) == ("Score: 1", True)
    refused = [seen for turn in result.turns for seen in turn.observations if seen.kind is Kind.REFUSED]
    assert len(refused) <= most + 1 and (result.stop is StopReason.STAGNATED) <= (len(refused) == most + 1)
    assert len(journal.outcomes) <= worst_case_steps(limits)
    assert drive(loop.run(TASK), World(inline=True), Journal(journal.outcomes)) == result


def test_a_decision_that_is_not_taken_keeps_its_calls_and_an_answer_is_reported() -> None:
    no, unread = Observation("no", False, Kind.REFUSED), Observation("?", False, Kind.BAD_ARGUMENTS)
    calls = ToolCall("look", {"city": "北京"}), ToolCall("ask", {}, problem=unread)
    due = Act((calls[0]._replace(problem=no), calls[1]), "a thought")
    assert not_taken(Act(calls, "a thought"), no) == due
    assert not_taken(Finish("长城", "a thought"), no) == report(no, "a thought")


def test_a_rule_is_asked_with_the_control_and_needs_none_of_it() -> None:
    context = after(("answer",) * 3)
    assert refused_too_often(2)(Control(), context) is StopReason.STAGNATED
    assert refused_too_often(3)(Control(), context) is None
    assert WIDE.failures > WIDE.rounds
