"""Chapter 16: hard limits. Sizes, the three runaways, EB09, EB11, EB12 and EB13, cases L04, L05 and L06."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentloop import (
    CODING,
    QUESTION_ANSWERING,
    RESEARCH,
    AgentLoop,
    CallModel,
    CallTool,
    Control,
    Effect,
    EventKind,
    Kind,
    Limits,
    Program,
    Result,
    Sleep,
    Step,
    StopReason,
    Together,
    Toolbox,
    ToolCall,
    World,
    bounded,
    call_tool,
    drive,
    worst_case_steps,
)
from chapters.ch16_hard_limits import (
    PAPERS,
    ROUNDS,
    RUNAWAYS,
    SEARCH,
    SECONDS,
    SYSTEM_TOKENS,
    TOKENS,
    TURN_TOKENS,
    WIDE,
    bare_loop,
    drive_in_pretend_time,
    find_paper,
    let_run,
    percentile_95,
    session,
    sized,
    taking,
)
from fake_llm import (
    FakeClock,
    FakeModel,
    ScriptedModel,
    get_attraction,
    get_weather,
    random_model,
    stubborn_model,
)
from paradigms.react import react
from tests.check_sized import PROMISES, USUAL
from tests.plan_worlds import TOOLS as PLACES
from tests.plan_worlds import Luck, lucks, outer_limits, play

TOOLS = Toolbox([get_weather, get_attraction])
FILES, WINDOW, HISTORY, HANG = RUNAWAYS
ALONE = {
    "rounds": replace(WIDE, rounds=ROUNDS),
    "tokens": replace(WIDE, tokens=TOKENS),
    "seconds": replace(WIDE, seconds=SECONDS),
}
MISSED = StopReason.FINAL_ANSWER


# --- Sizes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROMISES)
def test_ours_keeps(name: str) -> None:
    PROMISES[name](sized)


def test_results_in_place_of_controls_are_a_clear_mistake() -> None:
    with pytest.raises(TypeError, match=r"sized takes controls, such as \[result.control for"):
        sized([session(2)])  # type: ignore[list-item]


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=120))
@example([1.0] * 19 + [100.0])
def test_the_95th_percentile_is_the_smallest_value_that_95_of_100_do_not_exceed(values: list[float]) -> None:
    found = percentile_95(values)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= 95 * len(values)
    assert sum(value < found for value in values) * 100 < 95 * len(values)


@pytest.mark.parametrize(("rounds", "due"), [(1, 2), (3, 5), (6, 10), (15, 25), (60, 100)])
def test_five_thirds_of_the_hardest_give_all_the_articles_limits(rounds: int, due: int) -> None:
    assert sized([USUAL._replace(rounds=rounds)]).rounds == due


def test_the_presets_are_the_articles() -> None:
    assert [preset.rounds for preset in (QUESTION_ANSWERING, RESEARCH, CODING)] == [10, 25, 100]
    assert QUESTION_ANSWERING.tokens == 50_000


# --- Which limit catches what (B-31) ----------------------------------------------------------

CAUGHT = {
    (FILES.name, "rounds"): MISSED,
    (FILES.name, "tokens"): StopReason.TOKEN_BUDGET,
    (FILES.name, "seconds"): MISSED,
    (WINDOW.name, "rounds"): StopReason.MAX_ITERATIONS,
    (WINDOW.name, "tokens"): MISSED,
    (WINDOW.name, "seconds"): MISSED,
    (HANG.name, "rounds"): MISSED,
    (HANG.name, "tokens"): MISSED,
    (HANG.name, "seconds"): StopReason.WALL_CLOCK,
}


@pytest.mark.parametrize("runaway", [FILES, WINDOW, HANG], ids=lambda runaway: runaway.name)
@pytest.mark.parametrize("limit", ALONE)
def test_each_limit_alone_catches_one_runaway_and_misses_two(runaway: Any, limit: str) -> None:
    assert let_run(runaway, ALONE[limit]).stop is CAUGHT[runaway.name, limit]


@pytest.mark.parametrize("runaway", RUNAWAYS, ids=lambda runaway: runaway.name)
def test_together_they_catch_every_one_and_early(runaway: Any) -> None:
    unlimited = let_run(runaway, WIDE)
    result = let_run(runaway, replace(WIDE, rounds=ROUNDS, tokens=TOKENS, seconds=SECONDS))
    assert unlimited.stop is MISSED and result.answer is None
    assert result.control.rounds <= ROUNDS
    assert result.control.tokens <= TOKENS and result.control.seconds <= SECONDS


# --- EB09, EB11, EB12, EB13 -------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [1, 2, 5, 10, 25])
def test_EB09_L05_n_rounds_are_n_and_the_limit_is_named_with_what_was_used_and_allowed(rounds: int) -> None:
    model, limits = stubborn_model(), replace(WIDE, rounds=rounds)
    loop = AgentLoop(react(TOOLS), limits=limits)
    first = drive(loop.run("天气？"), World(model, TOOLS, inline=True))
    assert len(model.requests) == first.control.rounds == len(first.turns) == rounds
    assert first.summary.startswith(f"MAX_ITERATIONS: no round is left ({rounds} of {rounds} rounds used)")
    asked = len(model.requests)
    second = drive(loop.run("那上海呢？"), World(model, TOOLS, inline=True))
    assert second.control.rounds == rounds, "the second run begins at nothing"
    assert "天气？" not in model.prompts[asked]


def test_L05_no_limit_can_be_nothing() -> None:
    with pytest.raises(ValueError, match="Limits.rounds must be a whole number of at least 1, not 0"):
        Limits(rounds=0)


def test_EB11_small_calls_reach_the_budget_where_the_whole_history_is_sent_again() -> None:
    result = let_run(HISTORY, ALONE["tokens"])
    assert result.stop is StopReason.TOKEN_BUDGET and result.control.rounds < HISTORY.times
    assert let_run(WINDOW, WIDE).control.tokens < TOKENS < let_run(HISTORY, WIDE).control.tokens


def test_EB11_thirty_rounds_cost_32_times_what_three_cost() -> None:
    three, thirty = session(3).control, session(30).control
    assert 31.5 <= thirty.tokens / three.tokens <= 32.5
    assert thirty.cost / three.cost == pytest.approx(thirty.tokens / three.tokens)

    def formula(rounds: int) -> float:
        asked = rounds * SYSTEM_TOKENS + TURN_TOKENS * rounds * (rounds - 1) / 2
        return asked + rounds * TURN_TOKENS / 5  # and what the model wrote

    assert thirty.tokens == pytest.approx(formula(30), rel=0.05)


@pytest.mark.parametrize("limit", ["tokens", "cost"])
def test_B44_a_budget_stops_at_ten_times_where_the_rounds_of_a_preset_do_not(limit: str) -> None:
    limits = sized([session(3).control])
    result = session(30, replace(WIDE, **{limit: getattr(limits, limit)}))
    times = result.control.tokens / session(3).control.tokens
    assert result.stop in (StopReason.TOKEN_BUDGET, StopReason.COST_BUDGET) and times < 11
    assert session(30, replace(WIDE, rounds=RESEARCH.rounds)).control.tokens / session(3).control.tokens > 20


def test_EB12_the_request_that_would_cross_the_budget_is_sized_and_not_sent() -> None:
    steps: list[Step] = []
    result = let_run(FILES, ALONE["tokens"], watch=steps.append)
    refused = steps[-1].event
    assert refused.kind is EventKind.MODEL_CALL and refused.needs_tokens > TOKENS
    assert (result.control.model_calls, result.control.rounds) == (1, 2)
    assert result.control.tokens < TOKENS // 100, "nothing of it was paid"


def test_EB13_a_deadline_between_rounds_waits_for_the_call_and_one_from_outside_does_not() -> None:
    between = let_run(HANG, ALONE["seconds"], cuts=False)
    outside = let_run(HANG, ALONE["seconds"])
    assert (between.stop, outside.stop) == (StopReason.WALL_CLOCK,) * 2
    assert between.control.seconds > HANG.seconds
    assert outside.control.seconds == SECONDS


def test_EB13_L06_a_call_has_a_limit_of_its_own_and_the_loop_goes_on() -> None:
    result = let_run(HANG, replace(ALONE["seconds"], call_seconds=30.0))
    seen = result.turns[0].observations[0]
    assert (seen.ok, seen.kind) == (False, Kind.TIMEOUT)
    assert result.stop is StopReason.FINAL_ANSWER
    assert 30 < result.control.seconds < 31


# --- L04, B-33 and B-35: what is left ---------------------------------------------------------


@pytest.mark.parametrize("rounds", range(1, 10))
def test_L04_seven_of_ten_papers_are_returned_with_the_name_of_the_limit(rounds: int) -> None:
    tools = Toolbox([find_paper])
    loop = AgentLoop(react(tools), limits=Limits(rounds=rounds, failures=9))
    result = drive(loop.run("找 10 篇论文"), World(ScriptedModel(SEARCH), tools, inline=True))
    assert (result.answer, result.stop) == (None, StopReason.MAX_ITERATIONS)
    head, *found = result.summary.splitlines()
    assert f"{rounds} of {rounds} rounds used" in head
    assert [paper for paper in PAPERS if any(paper in line for line in found)] == list(PAPERS[:rounds])
    assert "Action:" not in result.summary


@pytest.mark.parametrize("limit", ["rounds", "model_calls", "tool_calls", "effects", "tokens", "seconds"])
def test_B35_whichever_limit_it_is_the_summary_says_which_and_how_much(limit: str) -> None:
    allowed: dict[str, Any] = {
        "rounds": 4,
        "model_calls": 4,
        "tool_calls": 4,
        "effects": 9,
        "tokens": 1500,
        "seconds": 2.0,
    }
    limits = replace(WIDE, **{limit: allowed[limit]})
    tools = Toolbox([find_paper])
    program = AgentLoop(react(tools), limits=limits).run("找 10 篇论文")
    world = World(ScriptedModel(SEARCH), tools)
    result = drive_in_pretend_time(program, world, FakeClock(), taking(model=0.3, tool=0.1))
    assert f"of {allowed[limit]:g} {limit} used)" in result.summary
    assert PAPERS[0] in result.summary


def test_the_bare_loop_loses_what_it_had_found() -> None:
    tools = Toolbox([find_paper])
    with pytest.raises(RuntimeError) as caught:
        drive(bare_loop("找 10 篇论文", tools, 7), World(ScriptedModel(SEARCH), tools, inline=True))
    assert not any(paper in str(caught.value) for paper in PAPERS)
    model = ScriptedModel(SEARCH)
    with pytest.raises(RuntimeError):
        drive(bare_loop("找 10 篇论文", tools, 7), World(model, tools, inline=True))
    assert len(model.requests) == 7
    model = ScriptedModel([*SEARCH[:2], "Action: Finish[两篇]"])
    assert drive(bare_loop("找 2 篇论文", tools, 7), World(model, tools, inline=True)) == "两篇"


# --- The driver on a pretended clock ----------------------------------------------------------


def ended(result: Result) -> Any:
    return result.answer, result.stop, result.turns, result.control._replace(seconds=0.0)


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 25))
def test_where_nothing_takes_time_it_does_what_drive_does(seed: int, rounds: int, effects: int) -> None:
    loop = AgentLoop(react(TOOLS), limits=Limits(rounds=rounds, effects=effects))
    due = drive(loop.run("天气？"), World(random_model(seed), TOOLS, clock=FakeClock().now, inline=True))
    world = World(random_model(seed), TOOLS)
    assert drive_in_pretend_time(loop.run("天气？"), world, FakeClock(), taking(0.0, 0.0)) == due


@given(
    st.integers(0, 10**6),
    st.floats(0, 100),
    st.floats(0, 100),
    st.builds(Limits, seconds=st.floats(0.1, 300), call_seconds=st.floats(0.1, 50), failures=st.just(9)),
)
@example(0, 100.0, 100.0, Limits(seconds=0.1))
def test_no_run_takes_longer_than_it_may(seed: int, model: float, tool: float, limits: Limits) -> None:
    clock = FakeClock()
    program = AgentLoop(react(TOOLS), limits=limits).run("天气？")
    result = drive_in_pretend_time(program, World(random_model(seed), TOOLS), clock, taking(model, tool))
    assert clock.now() <= limits.seconds * (1 + 1e-9)
    assert (result.answer is not None) == (result.stop is StopReason.FINAL_ANSWER)
    cut = [seen for turn in result.turns for seen in turn.observations if seen.kind is Kind.TIMEOUT]
    assert not cut or max(model, tool) > min(limits.call_seconds, limits.seconds - result.control.seconds) * (
        1 - 1e-9
    )


def test_it_hands_on_what_the_program_raises() -> None:
    def program() -> Any:
        yield CallModel(())
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        drive_in_pretend_time(program(), World(FakeModel(lambda request: "")), FakeClock(), taking(0.0, 0.0))


def test_a_call_that_takes_just_as_long_as_it_may_is_not_cut_off() -> None:
    result = let_run(HANG, replace(WIDE, call_seconds=HANG.seconds))
    assert result.turns[0].observations[0].ok
    result = let_run(HANG, replace(WIDE, call_seconds=HANG.seconds - 1))
    assert result.turns[0].observations[0].kind is Kind.TIMEOUT


def test_what_is_due_after_the_end_of_the_run_is_not_begun() -> None:
    calls = [ToolCall("get_weather", {"city": city}) for city in ("北京", "上海")]
    program = bounded(both(*calls), Limits(seconds=10.0))
    first, second = drive_in_pretend_time(program, World(tools=TOOLS), FakeClock(), taking(0.0, 60.0))
    assert (first.kind, second.kind) == (Kind.TIMEOUT, Kind.NOT_RUN)


def both(*calls: ToolCall) -> Program[Any]:
    return (yield Together(tuple(call_tool(call) for call in calls))).value


def test_a_sleep_moves_the_clock_and_nobody_sleeps() -> None:
    clock, awake = FakeClock(), World(sleep=lambda seconds: pytest.fail("it slept"))

    def program() -> Any:
        return (yield Sleep(3600.0)).at

    assert drive_in_pretend_time(program(), awake, clock, taking(0.0, 0.0)) == clock.now() == 3600.0


def test_what_is_not_begun_takes_no_time_and_is_not_asked_how_long() -> None:
    asked: list[Effect] = []

    def takes(effect: Effect) -> float:
        asked.append(effect)
        return 100.0

    def program() -> Any:
        yield CallTool(ToolCall("get_weather", {"city": "北京"}))
        late = yield CallTool(ToolCall("get_weather", {"city": "上海"}), deadline=50.0)
        return late.value.kind, late.at

    came = drive_in_pretend_time(program(), World(tools=TOOLS), FakeClock(), takes)
    assert came == (Kind.NOT_RUN, 100.0) and len(asked) == 1


def test_what_takes_how_long() -> None:
    takes = taking(model=2.0, tool=0.5)
    assert takes(CallModel(())) == 2.0
    assert takes(CallTool(ToolCall("get_weather", {"city": "北京"}))) == 0.5
    assert takes(Sleep(9.0)) == 0.0


# --- Whatever the limits are ------------------------------------------------------------------


@given(lucks, outer_limits)
def test_a_run_never_uses_more_than_it_may_and_says_which_limit_it_was(luck: Luck, limits: Limits) -> None:
    played = play(AgentLoop(react(PLACES), limits=limits).run("去哪里？"), luck)
    result: Result = played.value
    assert played.effects <= worst_case_steps(limits)
    for name in ("rounds", "model_calls", "tool_calls", "effects"):
        assert getattr(result.control, name) <= getattr(limits, name)
    assert all(request.tokens <= limits.tokens for request in played.requests)
    if result.answer is None:
        assert result.summary.startswith(result.stop.name)


def test_a_control_is_a_record_that_limits_are_made_from() -> None:
    assert isinstance(session(2).control, Control)
    assert sized(iter([session(2).control])).rounds == 4
