"""Chapter 23: the arithmetic of errors, counted in real loops; the checked round; and the plot."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import (
    AgentLoop,
    CallModel,
    Interrupt,
    Journal,
    Limits,
    LoopError,
    Message,
    Result,
    StopReason,
    Toolbox,
    World,
    drive,
    worst_case_steps,
)
from chapters import ch23_error_accumulation as ch23
from chapters.ch07_drivers import drive_async, drive_on_bus
from chapters.ch15_goal_detection import refused_too_often
from chapters.ch23_error_accumulation import (
    HIGH,
    LOW,
    TOTALS,
    Setting,
    calls_until,
    chance_of_an_error,
    checked,
    clerk,
    interval,
    note,
    second_look,
    slipping_model,
    tally,
    wrong_so_far,
)
from chapters.telling import plot
from fake_llm import FakeClock, get_attraction, get_weather, random_model
from paradigms.react import react
from tests import check_checked, check_plot
from tests.loop_strategies import answers

PROMISES: dict[str, Any] = {"checked": check_checked.PROMISES, "plot": check_plot.PROMISES}
SETTINGS = {setting.name: setting for setting in ch23.settings(HIGH)}
SEEDS = range(1, 201)


@cache
def runs(setting: Setting) -> tuple[Result, ...]:
    """A run for each seed."""
    return tuple(setting.run(seed) for seed in SEEDS)


def all_went_well(result: Result) -> bool:
    return all(seen.ok for turn in result.turns for seen in turn.observations)


# --- The promises -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", check_checked.PROMISES)
def test_checked_keeps(name: str) -> None:
    check_checked.PROMISES[name](checked)


@pytest.mark.parametrize("name", check_plot.PROMISES)
def test_plot_keeps(name: str) -> None:
    check_plot.PROMISES[name](plot)


# --- The arithmetic ---------------------------------------------------------------------------


def test_EB10_ten_rounds_at_5_to_15_percent_are_40_to_80_percent() -> None:
    assert round(chance_of_an_error(0.05, 10), 3) == 0.401
    assert round(chance_of_an_error(0.15, 10), 3) == 0.803


def test_EB10_near_100_percent_takes_90_calls_or_29_or_37_percent_each() -> None:
    assert (calls_until(0.99, 0.05), calls_until(0.99, 0.15)) == (90, 29)
    assert calls_until(0.99, 0.37) == 10 and calls_until(0.99, 0.36) == 11


@given(st.floats(0.01, 0.99), st.floats(0.001, 0.999))
def test_calls_until_is_the_first_number_of_calls_that_is_enough(chance: float, p: float) -> None:
    calls = calls_until(chance, p)
    assert chance_of_an_error(p, calls) >= chance
    assert calls == 1 or chance_of_an_error(p, calls - 1) < chance


@pytest.mark.parametrize(
    ("chance", "p"), [(0, 0.5), (1, 0.5), (0.5, 0), (0.5, 1), (0.5, math.nan), (-1, 0.5)]
)
def test_calls_until_refuses_what_is_no_chance(chance: float, p: float) -> None:
    with pytest.raises(ValueError, match="must be above 0 and below 1"):
        calls_until(chance, p)


def test_interval_is_wilsons() -> None:
    low, high = interval(81, 263)
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)  # Newcombe, 1998, table I
    assert interval(0, 10)[0] == 0.0 and interval(10, 10)[1] == 1.0


@given(st.integers(1, 500), st.data())
def test_interval_holds_the_share_and_narrows(runs: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, runs))
    low, high = interval(hits, runs)
    assert 0 <= low <= hits / runs <= high <= 1
    wider = interval(hits * 9, runs * 9)
    assert wider[1] - wider[0] <= high - low


@pytest.mark.parametrize(("hits", "runs"), [(1, 0), (0, 0), (-1, 3), (4, 3)])
def test_interval_refuses_what_was_not_counted(hits: int, runs: int) -> None:
    with pytest.raises(ValueError, match="hits are from 0 to runs"):
        interval(hits, runs)


# --- Counted in real loops --------------------------------------------------------------------


@pytest.mark.parametrize("name", SETTINGS)
def test_runs_agree_with_the_formula(name: str) -> None:
    setting = SETTINGS[name]
    counted = tally(runs(setting))
    share, due = counted.wrong / counted.runs, setting.formula(10)
    four_standard_deviations = 4 * math.sqrt(due * (1 - due) / counted.runs)
    assert abs(share - due) <= four_standard_deviations


@pytest.mark.parametrize("p", [LOW, HIGH])
def test_B55_in_each_round_up_to_the_tenth_runs_agree_with_the_formula(p: float) -> None:
    bare = ch23.settings(p)[0]
    for rounds, share in enumerate(wrong_so_far(runs(bare)), 1):
        due = chance_of_an_error(p, rounds)
        assert abs(share - due) <= 4 * math.sqrt(due * (1 - due) / len(SEEDS))


def test_B57_a_check_and_votes_make_fewer_errors_at_their_price() -> None:
    bare, look, votes = (
        tally(runs(SETTINGS[name])) for name in ("the call alone", "a second look", "three votes")
    )
    assert look.wrong < votes.wrong < bare.wrong
    assert bare.model_calls == 10 * len(SEEDS) < look.model_calls < votes.model_calls == 30 * len(SEEDS)


def test_votes_of_a_stubborn_model_buy_nothing_at_all() -> None:
    votes = SETTINGS["three votes, stubborn"]
    for three, one in zip(runs(votes), runs(votes._replace(guard=ch23.alone)), strict=True):
        assert three.answer == one.answer
        assert three.control.model_calls == 3 * one.control.model_calls


def test_a_look_at_a_stubborn_model_ends_the_run_where_it_would_have_been_wrong() -> None:
    look = SETTINGS["a second look, stubborn"]
    for looked, alone in zip(runs(look), runs(look._replace(guard=ch23.alone)), strict=True):
        assert (looked.answer == TOTALS[-1]) == (alone.answer == TOTALS[-1])
        assert looked.stop in (StopReason.FINAL_ANSWER, StopReason.TOO_MANY_FAILURES)


def test_what_slips_through_is_what_no_look_found_in_any_repeat() -> None:
    for p in (LOW, HIGH, 0.5):
        in_each_try = (p * (1 - ch23.DETECTION) * (p * ch23.DETECTION) ** tries for tries in range(200))
        assert math.isclose(ch23.slips_through(p), sum(in_each_try))


def test_a_model_that_never_slips_is_right_under_everything() -> None:
    for setting in ch23.settings(HIGH):
        result = setting._replace(p=0.0).run(1)
        assert result.answer == TOTALS[-1] == 290


def test_the_same_seed_is_the_same_run() -> None:
    for setting in SETTINGS.values():
        assert setting.run(7) == setting.run(7)


def test_a_model_that_fails_is_a_round_lost_and_not_a_wrong_sum() -> None:
    steady, asked = slipping_model(1, 0.0), []

    def shaky(request: Any) -> str:
        asked.append(request)
        if len(asked) % 3 == 0:
            raise ConnectionError("503")
        return steady(request)

    tools = Toolbox([note])
    loop = AgentLoop(checked(clerk, second_look), limits=ch23.LIMITS)
    result = drive(loop.run("add"), World(shaky, tools, inline=True))
    assert result.answer == TOTALS[-1] and not all_went_well(result)


# --- The guard --------------------------------------------------------------------------------


def test_an_objection_that_is_no_text_is_a_bug_and_says_so() -> None:
    loop = AgentLoop(checked(clerk, lambda context, decision: False))
    with pytest.raises(LoopError, match="a check returns an objection in words, or None, not False"):
        drive(loop.run("add"), World(slipping_model(1, 0.0), Toolbox([note]), inline=True))


def test_what_cannot_be_called_is_refused_at_once() -> None:
    pairs: tuple[tuple[Any, Any], ...] = ((None, second_look), (clerk, None))
    for wrong in pairs:
        with pytest.raises(TypeError, match="must be a function"):
            checked(*wrong)


def test_calls_that_a_check_held_back_are_no_refused_answers() -> None:
    def objecting(context: Any, decision: Any) -> str | None:
        return "no" if len(context.turns) < 3 else None

    loop = AgentLoop(checked(clerk, objecting), stops=(refused_too_often(0),), limits=ch23.LIMITS)
    result = drive(loop.run("add"), World(slipping_model(1, 0.0), Toolbox([note]), inline=True))
    assert result.answer == TOTALS[-1] and len(result.turns) > len(TOTALS)


def test_checks_nest_and_the_inner_one_is_asked_first() -> None:
    asked: list[str] = []

    def saying(name: str, objection: str | None) -> Callable[..., str | None]:
        def check(context: Any, decision: Any) -> str | None:
            asked.append(name)
            return objection

        return check

    reason = checked(checked(clerk, saying("inner", "no")), saying("outer", None))
    loop = AgentLoop(reason, limits=Limits(rounds=1))
    result = drive(loop.run("add"), World(slipping_model(1, 0.0), Toolbox([note]), inline=True))
    assert asked == ["inner"] and result.turns[0].observations[0].text == "no"


@settings(max_examples=60)
@given(st.integers(), st.lists(answers, min_size=1, max_size=3), st.none() | st.integers(0, 6), st.booleans())
def test_in_any_world_a_checked_loop_ends_in_time_and_says_why(
    seed: int, script: list[Any], interrupted_at: int | None, outside: bool
) -> None:
    limits, steps = Limits(rounds=5, model_calls=9, effects=20), 0
    interrupt, model, asked = Interrupt(), random_model(seed, script), 0

    def person(request: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == interrupted_at:
            interrupt.set()
        return model(request)

    def count(step: Any) -> None:
        nonlocal steps
        steps += 1

    tools = Toolbox([get_weather, get_attraction])
    voted = ch23.voted(react(tools))
    reason = ch23.looked_at(voted) if outside else ch23.voted(ch23.looked_at(react(tools)))
    loop = AgentLoop(reason, limits=limits, watch=count)
    world = World(person, tools, clock=FakeClock().now, inline=True)
    result = drive(loop.run("北京天气？"), world, interrupt=interrupt)
    assert steps <= worst_case_steps(limits)
    assert (result.answer is not None) == (result.stop is StopReason.FINAL_ANSWER)
    assert all(len(turn.calls) == len(turn.observations) for turn in result.turns)


def unlucky(asked: int = 0) -> tuple[Any, World]:
    """A run that has to repeat rounds, and its world, whose model was asked so often already."""
    model = slipping_model(3, 0.4)
    for _ in range(asked):
        model(CallModel((Message("user", "1 + 1 = ?"),)))
    loop = AgentLoop(checked(clerk, second_look), limits=ch23.LIMITS)
    return loop.run("add"), World(model, Toolbox([note]), clock=FakeClock().now, inline=True)


@pytest.mark.parametrize("driver", [drive_async, drive_on_bus], ids=["drive_async", "drive_on_bus"])
def test_every_driver_comes_to_the_same(driver: Callable[..., Any]) -> None:
    due = drive(*unlucky())
    assert due.answer is not None and not all_went_well(due)
    assert asyncio.run(driver(*unlucky())) == due


def test_broken_off_anywhere_and_resumed_it_comes_to_the_same() -> None:
    journal = Journal()
    due = drive(*unlucky(), journal)
    for count in range(len(journal.outcomes) + 1):
        asked = sum(wish.startswith("CallModel") for _, wish, _ in journal.outcomes[:count])
        assert drive(*unlucky(asked), journal.rewound(count)) == due


# --- The plot ---------------------------------------------------------------------------------


def test_a_plot_is_what_it_looks_like() -> None:
    lines = plot({"tokens": [100, 200, 300, 400], "limit": [250] * 4}, width=10, height=5)
    assert lines == [
        "400 |         .",
        "    |      .",
        "200 |o  o  o  o",
        "    |.",
        "  0 |",
        "    +----------",
        "     1  round 4",
        "     . tokens",
        "     o limit",
    ]


def test_a_plot_has_as_many_marks_as_it_has_and_a_size() -> None:
    for wrong in ({"width": 1}, {"height": 1}):
        with pytest.raises(ValueError, match="at least 2 x 2"):
            plot({"a": [1]}, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="up to 8 curves"):
        plot({f"curve {number}": [1] for number in range(9)})
