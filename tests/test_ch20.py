"""Chapter 20: a failure is seen like a result; another tool is asked, or the model chooses one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import (
    Act,
    AgentLoop,
    Finish,
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
    Unavailable,
    World,
    call_tool,
    drive,
)
from chapters.ch07_drivers import drive_async, drive_on_bus
from chapters.ch19_retry_with_backoff import GIVEN_UP, Patience, retry
from chapters.ch20_fallback_and_errors_as_observations import (
    DOWN,
    TASK,
    after_any_failure,
    as_forecast,
    asker,
    fallback,
    get_forecast,
    pay_elsewhere,
    raised_through,
    rounds_to_change_course,
)
from chapters.ch21_circuit_breaker import CircuitBreakers, Settings, breaker
from chapters.ch22_hallucination import consistent
from fake_llm import FakeClock, ScriptedModel, broken_tool, flaky_tool, get_weather
from paradigms.react import react
from tests.check_fallback import CALL, CHAIN, PROMISES, Tools, check_fallback
from tests.check_machine import BrokenPromise
from tests.check_retry import GOOD, IN_DOUBT, failed

DRIVERS = (drive, drive_async, drive_on_bus)
PATIENCE = Patience(draw=lambda: 1.0)
STATION = ToolCall("get_weather", {"city": "北京"}, "call_1_1_1")


def driven(driver: Callable[..., Any], program: Program[Any], *more: Any) -> Any:
    ended = driver(program, *more)
    return asyncio.run(ended) if asyncio.iscoroutine(ended) else ended


# --- The promises -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROMISES)
def test_fallback_keeps(name: str) -> None:
    PROMISES[name](fallback)


def test_falling_back_after_any_failure_breaks_the_promises() -> None:
    with pytest.raises(BrokenPromise):
        check_fallback(after_any_failure)


def test_a_payment_that_may_have_been_made_is_not_made_elsewhere() -> None:
    assert [len(pay_elsewhere(guard)[1]) for guard in (after_any_failure, fallback)] == [2, 1]


# --- Wrapped in a retry, and round one ----------------------------------------------------------


def world_of(tools: Tools) -> tuple[World, FakeClock]:
    clock = FakeClock()
    toolbox = Toolbox({name: tools.tool(name) for name in tools.answers})
    return World(None, toolbox, None, clock.sleep, clock.now, True), clock


def test_inside_out_each_tool_gets_its_patience_first() -> None:
    tools = Tools(first=failed(Kind.UNAVAILABLE), second=failed(Kind.UNAVAILABLE), third=GOOD)
    seen = drive(fallback(retry(patience=PATIENCE), CHAIN)(CALL), world_of(tools)[0])
    assert tools.names == ["first"] * 4 + ["second"] * 4 + ["third"]
    assert seen.ok and seen.text.endswith("first failed: UNAVAILABLE, second failed: UNAVAILABLE)")


def test_outside_in_the_whole_chain_is_tried_again() -> None:
    tools = Tools(first=failed(Kind.UNAVAILABLE), second=failed(Kind.UNAVAILABLE))
    act = retry(fallback(call_tool, {"first": "second"}), patience=PATIENCE)
    seen = drive(act(CALL), world_of(tools)[0])
    assert tools.names == ["first", "second"] * 4
    assert (seen.ok, seen.kind) == (False, Kind.UNAVAILABLE), "the tool that the model wanted may come back"


@pytest.mark.parametrize("kind", [Kind.TOOL_ERROR, Kind.REFUSED, Kind.BAD_ARGUMENTS])
def test_C09_a_retry_outside_does_not_repeat_what_another_tool_would_fail_at_again(kind: Kind) -> None:
    tools = Tools(first=failed(Kind.UNAVAILABLE), second=failed(kind))
    act = retry(fallback(call_tool, {"first": "second"}), patience=PATIENCE)
    seen = drive(act(CALL), world_of(tools)[0])
    assert (tools.names, seen.kind) == (["first", "second"], kind)
    assert "<UNAVAILABLE>" in seen.text and f"<{kind.name}>" in seen.text


def test_where_all_gave_up_nobody_begins_again() -> None:
    tools = Tools(first=failed(Kind.UNAVAILABLE), second=failed(Kind.UNAVAILABLE))
    act = retry(fallback(retry(patience=PATIENCE), {"first": "second"}), patience=PATIENCE)
    drive(act(CALL), world_of(tools)[0])
    assert tools.names == ["first"] * 4 + ["second"] * 4


@pytest.mark.parametrize("kind", IN_DOUBT)
def test_a_retry_outside_does_not_repeat_what_another_tool_may_have_done(kind: Kind) -> None:
    tools = Tools(first=failed(Kind.UNAVAILABLE), second=failed(kind))
    inner = fallback(call_tool, {"first": "second"}, only_reads=lambda name: name == "first")
    act = retry(inner, idempotent=lambda name: name == "first", patience=PATIENCE)
    seen = drive(act(CALL), world_of(tools)[0])
    assert tools.names == ["first", "second"]
    assert (seen.kind, seen.retry_after) == (kind, GIVEN_UP)


class Bank:
    """Two banks; the first takes the same payment only once, so it may be asked again; it has troubles."""

    def __init__(self, *troubles: str) -> None:
        self.troubles, self.clock, self.paid = list(troubles), FakeClock(), set[str]()

    def pay(self, amount: float, call_id: str) -> str:
        trouble = self.troubles.pop(0) if len(self.troubles) > 1 else self.troubles[0]
        if trouble == "closed":
            raise Unavailable("closed")
        self.paid.add("pay")
        if trouble == "cut off":
            raise ConnectionResetError("cut off")
        self.clock.advance(60.0)
        return "paid, too late"

    def pay_by_card(self, amount: float, call_id: str) -> str:
        self.paid.add("pay_by_card")
        return "paid"


@pytest.mark.parametrize("guard", ["none", "retry", "retry(breaker)", "consistent", "retry(consistent)"])
@pytest.mark.parametrize(
    "troubles", [("late", "closed"), ("closed", "late"), ("cut off", "closed"), ("cut off",)]
)
def test_C09_what_one_attempt_may_have_done_is_not_done_elsewhere_whatever_stands_between(
    guard: str, troubles: tuple[str, ...]
) -> None:
    """The bank is idempotent, and that is not enough: the other bank knows nothing of it."""
    bank = Bank(*troubles)
    tools = Toolbox([bank.pay, bank.pay_by_card], idempotent=["pay"])
    act: Callable[[ToolCall], Any] = call_tool
    if "breaker" in guard:
        act = breaker(act, CircuitBreakers(Settings(threshold=1, recovery=600.0), clock=bank.clock.now))
    if "consistent" in guard:
        act = consistent(act, idempotent=tools.is_idempotent, times=2)
    if "retry" in guard:
        act = retry(act, idempotent=tools.is_idempotent, patience=PATIENCE)
    loop = AgentLoop(
        lambda context: Finish("done") if context.turns else Act((ToolCall("pay", {"amount": 9}),)),
        fallback(act, {"pay": "pay_by_card"}),
    )
    world = World(None, tools, None, bank.clock.sleep, bank.clock.now, True)
    drive(loop.run("pay"), world)
    assert len(bank.paid) == 1, bank.paid


def test_the_servers_word_about_the_first_tool_is_kept() -> None:
    down = failed(Kind.UNAVAILABLE, 7)
    tools = Tools(first=down, second=failed(Kind.UNAVAILABLE))
    seen = drive(fallback(call_tool, {"first": "second"})(CALL), world_of(tools)[0])
    assert seen.retry_after == 7


stacks = st.lists(st.sampled_from(["retry", "fallback"]), min_size=1, max_size=4)
answers = st.builds(failed, st.sampled_from([Kind.UNAVAILABLE, *Kind]), st.sampled_from([None, 1, 3600]))
scripts = st.lists(st.one_of(st.just(GOOD), answers), min_size=1, max_size=4)


@settings(deadline=None, max_examples=200)
@given(stacks, st.fixed_dictionaries(dict.fromkeys(("first", "second", "third"), scripts)))
def test_in_any_stack_only_what_may_pass_is_followed_by_another_call(
    stack: list[str], script: dict[str, list[Observation]]
) -> None:
    told: list[Observation] = []

    def said(name: str) -> Callable[..., Observation]:
        def ask(**arguments: Any) -> Observation:
            told.append(script[name].pop(0) if len(script[name]) > 1 else script[name][0])
            return told[-1]

        return ask

    act: Callable[[ToolCall], Any] = call_tool
    for layer in stack:
        act = retry(act, patience=PATIENCE) if layer == "retry" else fallback(act, CHAIN)
    clock = FakeClock()
    tools = Toolbox({name: said(name) for name in script})
    seen = drive(act(CALL), World(None, tools, None, clock.sleep, clock.now, True))
    assert all(each.kind is Kind.UNAVAILABLE for each in told[:-1])
    assert seen.ok == told[-1].ok
    if told[-1].kind in IN_DOUBT:
        assert seen.kind is told[-1].kind


# --- An error is an observation ---------------------------------------------------------------


def station(error: Exception = DOWN) -> Toolbox:
    return Toolbox([broken_tool(get_weather, error), get_forecast])


def test_EA10_raised_through_one_failure_ends_the_run_and_observed_the_model_takes_another_way() -> None:
    model = asker(knows_another_way=True)
    with pytest.raises(LoopError) as caught:
        drive(AgentLoop(react(station()), raised_through()).run(TASK), World(model, station(), inline=True))
    assert (caught.value.result.answer, caught.value.result.stop) == (None, StopReason.ERROR)
    result = drive(AgentLoop(react(station())).run(TASK), World(model, station(), inline=True))
    assert (result.answer, result.stop) == ("今天北京晴，26 摄氏度。", StopReason.FINAL_ANSWER)
    assert [turn.calls[0].name for turn in result.turns[:-1]] == ["get_weather", "get_forecast"]
    assert str(DOWN) in model.prompts[-1], "the model was told why"


@pytest.mark.parametrize(
    "error", [ValueError("x"), KeyError("x"), StopIteration(), SystemExit(1), RecursionError()]
)
def test_EA10_whatever_a_tool_raises_is_seen_by_the_model(error: BaseException) -> None:
    def broken(city: str) -> str:
        raise error

    model = ScriptedModel(
        ['Thought: 查。\nAction: broken(city="北京")', "Thought: 算了。\nAction: Finish[查不到]"]
    )
    tools = Toolbox([broken])
    result = drive(AgentLoop(react(tools)).run(TASK), World(model, tools, inline=True))
    assert result.answer == "查不到" and type(error).__name__ in model.prompts[-1]


@pytest.mark.parametrize(
    "reply",
    [
        "Action: get_weather",
        "Action: get_wether(city=1)",
        'Action: get_weather(town="北京")',
        "好的，请稍等。",
        "",
    ],
)
def test_EB07_a_malformed_action_is_seen_by_the_model_and_no_other_tool_is_asked_for_it(reply: str) -> None:
    asked = []

    def get_elsewhere(city: str) -> str:
        asked.append(city)
        return "晴"

    tools = Toolbox([get_weather, get_elsewhere])
    ways = {"get_weather": "get_elsewhere", "get_wether": "get_elsewhere", "": "get_elsewhere"}
    act = fallback(call_tool, ways, only_reads=lambda name: True)
    model = ScriptedModel([reply, "Thought: 算了。\nAction: Finish[查不到]"])
    result = drive(AgentLoop(react(tools), act).run(TASK), World(model, tools, inline=True))
    assert result.answer == "查不到" and asked == []
    assert not result.turns[0].observations[0].ok


def test_a_bug_in_an_alternative_is_a_bug() -> None:
    act = fallback(call_tool, {"get_weather": lambda call: ToolCall("get_forecast", {"place": 1 / 0})})
    loop = AgentLoop(react(station()), act)
    with pytest.raises(LoopError, match="ZeroDivisionError"):
        drive(loop.run(TASK), World(asker(False), station(), inline=True))


def test_an_alternative_that_does_not_fit_is_told_to_the_model() -> None:
    act = fallback(call_tool, {"get_weather": "get_forecast"})  # it takes a place, not a city
    seen = drive(act(STATION), World(tools=station(), inline=True))
    assert not seen.ok and "BAD_ARGUMENTS" in seen.text and str(DOWN) in seen.text


# --- The threshold (B-37) -----------------------------------------------------------------------


def rounds(fortunes: list[bool], limits: Limits) -> Result:
    """A run in which each round's only call succeeds or fails as told, and then an answer."""
    tools = Toolbox([flaky_tool(get_weather, 0)])

    def reason(context: LoopContext) -> Act | Finish:
        number = len(context.turns)
        return Act((STATION,)) if number < len(fortunes) else Finish("晴")

    answers = iter(fortunes)
    act = lambda call: GOOD if next(answers) else failed(Kind.TOOL_ERROR)  # noqa: E731
    return drive(AgentLoop(reason, act, limits=limits).run(TASK), World(tools=tools, inline=True))


@settings(deadline=None)
@given(st.lists(st.booleans(), max_size=12), st.integers(1, 5))
def test_so_many_failures_in_a_row_end_the_run_and_one_success_begins_anew(
    fortunes: list[bool], threshold: int
) -> None:
    result = rounds(fortunes, Limits(rounds=20, failures=threshold))
    told = "".join("+" if fortune else "-" for fortune in fortunes)
    end = told.find("-" * threshold)
    if end < 0:
        assert (result.answer, len(result.turns)) == ("晴", len(fortunes) + 1)
    else:
        assert (result.answer, result.stop) == (None, StopReason.TOO_MANY_FAILURES)
        assert len(result.turns) == end + threshold
        assert result.control.failures == threshold


@pytest.mark.parametrize(
    ("failures", "threshold", "attempts", "left"),
    [(5, 5, 1, 0), (7, 5, 1, 2), (3, 5, 1, -2), (5, 5, 4, 3), (5, 5, 5, 4), (5, 5, 9, 4), (2, 1, 1, 1)],
)
def test_EA50_rounds_left_to_the_model_when_a_breaker_has_opened(
    failures: int, threshold: int, attempts: int, left: int
) -> None:
    assert rounds_to_change_course(failures, threshold, attempts) == left


@pytest.mark.parametrize(
    "make",
    [
        lambda: fallback(call_tool, {"x": ["y"]}),  # type: ignore[dict-item]
        lambda: fallback(call_tool, ["get_forecast"]),  # type: ignore[arg-type]
        lambda: fallback(call_tool, {"x": "y"}, only_reads=["x"]),  # type: ignore[arg-type]
        lambda: fallback({"x": "y"}, {"x": "y"}),  # type: ignore[arg-type]
    ],
)
def test_a_fallback_made_wrongly_says_what_would_be_right(make: Callable[[], Any]) -> None:
    with pytest.raises(TypeError, match=r"such as \{'get_weather': 'get_forecast'\}; not|must be a function"):
        make()


@pytest.mark.parametrize("numbers", [(0, 5, 1), (5, 0, 1), (5, 5, 0)])
def test_numbers_that_make_no_sense_are_refused(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be a whole number of at least 1"):
        rounds_to_change_course(*numbers)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 6))
def test_EA50_the_rounds_left_are_those_of_a_run(failures: int, threshold: int, attempts: int) -> None:
    made = 0
    opened_in = None
    for number in range(1, failures + 1):
        made += attempts
        if opened_in is None and made >= threshold:
            opened_in = number
    left = rounds_to_change_course(failures, threshold, attempts)
    assert left == failures - opened_in if opened_in is not None else left < 0


# --- The same under each driver, and on a replayed journal --------------------------------------


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.__name__)
def test_the_same_under_each_driver_and_from_its_journal(driver: Callable[..., Any]) -> None:
    journal = Journal()
    act = fallback(retry(patience=PATIENCE), {"get_weather": as_forecast})
    loop = AgentLoop(react(station()), act)
    clock = FakeClock()
    world = World(asker(False), station(Unavailable("503")), None, clock.sleep, clock.now, True)
    first: Result = driven(driver, loop.run(TASK), world, journal)
    assert (first.answer, first.control.rounds, first.control.tool_calls) == ("今天北京晴，26 摄氏度。", 2, 5)
    nobody = World(ScriptedModel([]), station(), clock=FakeClock().now, inline=True)
    assert drive(loop.run(TASK), nobody, Journal(journal.outcomes)) == first


def test_what_was_asked_under_one_id_is_told_as_one_call() -> None:
    act = fallback(call_tool, {"get_weather": as_forecast})
    result = drive(AgentLoop(react(station()), act).run(TASK), World(asker(False), station(), inline=True))
    (call,), (seen,) = result.turns[0].calls, result.turns[0].observations
    assert call.name == "get_weather" and isinstance(seen, Observation)
    assert "From get_forecast, since get_weather failed: UNAVAILABLE" in seen.text
