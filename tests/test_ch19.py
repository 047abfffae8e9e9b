"""Chapter 19: what may pass is tried again, later each time; what may have happened is not."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import (
    Act,
    AgentLoop,
    CallModel,
    Do,
    Finish,
    Journal,
    Kind,
    Limits,
    LoopContext,
    Message,
    Observation,
    Program,
    Reply,
    Result,
    StopReason,
    Toolbox,
    ToolCall,
    Unavailable,
    World,
    call_tool,
    drive,
    report,
    settle,
)
from chapters.ch07_drivers import drive_async, drive_on_bus
from chapters.ch19_retry_with_backoff import (
    GIVEN_UP,
    NOW,
    Patience,
    asked_for,
    crowd,
    patient,
    pause,
    pay,
    retry,
    retry_everything,
    seconds_asked,
    seeded,
)
from fake_llm import Cashier, FakeClock, FakeModel, SpoiledTool, broken_tool, flaky_tool, get_weather
from paradigms.function_calling import function_calling
from paradigms.react import react
from tests.check_machine import BrokenPromise
from tests.check_retry import PATIENCE, PROMISES, check_retry, words

CALL = ToolCall("get_weather", {"city": "北京"}, "call_1_1_1")
DRIVERS = (drive, drive_async, drive_on_bus)


def driven(driver: Callable[..., Any], program: Program[Any], *more: Any) -> Any:
    ended = driver(program, *more)
    return asyncio.run(ended) if asyncio.iscoroutine(ended) else ended


def once(tool: Callable[..., Any], call: ToolCall = CALL, **options: Any) -> tuple[Observation, FakeClock]:
    """One call of a tool under the guard, and the clock that tells what was slept."""
    clock, tools = FakeClock(), Toolbox([tool], idempotent=options.pop("idempotent", ()))
    act = retry(idempotent=tools.is_idempotent, patience=PATIENCE, **options)
    world = World(tools=tools, clock=clock.now, sleep=clock.sleep, inline=True)
    return drive(act(call), world), clock


# --- The promises -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROMISES)
def test_retry_keeps(name: str) -> None:
    PROMISES[name](retry)


def test_the_tutorials_retry_breaks_the_promises() -> None:
    with pytest.raises(BrokenPromise):
        check_retry(retry_everything)


# --- Case C09 ---------------------------------------------------------------------------------


def test_C09_a_payment_whose_answer_is_lost_is_made_once_and_its_outcome_is_called_unknown() -> None:
    seen, ledger = pay(retry)
    assert ledger == [9.0]
    assert seen.kind is Kind.UNCERTAIN
    assert "whether it took effect is not known" in seen.text and "not again" in seen.text
    assert len(pay(retry_everything)[1]) == Patience().attempts, "and the naive one pays each time"


@pytest.mark.parametrize(
    "error", [ValueError("no such city"), PermissionError("denied"), OSError("disk full")]
)
def test_C09_a_permanent_error_is_tried_once(error: Exception) -> None:
    tool = broken_tool(get_weather, error)
    seen, clock = once(tool, idempotent=["get_weather"])
    assert (seen.kind, len(tool.calls), clock.slept) == (Kind.TOOL_ERROR, 1, [])
    assert seen.text == f"get_weather failed with {type(error).__name__}: {error}"


def test_C09_only_what_is_marked_transient_is_tried_again() -> None:
    for error, idempotent, attempts in (
        (Unavailable("503"), (), 3),
        (ConnectionError("reset"), ("get_weather",), 3),
        (ConnectionRefusedError("closed"), (), 3),
        (ConnectionError("reset"), (), 1),
        (TimeoutError("late"), (), 1),
    ):
        tool = flaky_tool(get_weather, 2, error)
        seen, _ = once(tool, idempotent=idempotent)
        assert (len(tool.calls), seen.ok) == (attempts, attempts > 1), error


def test_C09_an_authentication_error_of_the_model_is_not_tried_again() -> None:
    model = FakeModel(lambda request: PermissionError("401: wrong key"))
    loop = AgentLoop(patient(react(Toolbox([]))), limits=Limits(rounds=1))
    result = drive(loop.run("?"), World(model, inline=True))
    assert len(model.requests) == 1
    assert result.turns[0].observations[0].kind is Kind.MODEL_ERROR


@pytest.mark.parametrize("name", ["get_wether", "get_weather"])
def test_the_models_own_mistakes_are_not_repeated(name: str) -> None:
    seen, clock = once(get_weather, ToolCall(name, {"town": 7}, "call_1_1_1"), idempotent=["get_weather"])
    assert seen.kind in (Kind.UNKNOWN_TOOL, Kind.BAD_ARGUMENTS) and clock.slept == []


# --- What a retry costs, and where it stands ----------------------------------------------------


def test_a_call_that_hangs_is_left_behind_and_tried_again_where_that_does_no_harm() -> None:
    clock = FakeClock()

    def hangs_once(number: int, run: Callable[[], Any]) -> Any:
        clock.advance(60 if number == 1 else 0)
        return run()

    for idempotent in ((), ("get_weather",)):
        tools = Toolbox([SpoiledTool(get_weather, hangs_once)], idempotent=idempotent)
        act = retry(idempotent=tools.is_idempotent, patience=PATIENCE)
        loop = AgentLoop(lambda context: Act((CALL,)), act, limits=Limits(rounds=1))  # noqa: B023
        world = World(tools=tools, clock=clock.now, sleep=clock.sleep, inline=True)
        seen = drive(loop.run("?"), world).turns[0].observations[0]
        assert (seen.kind, seen.ok) == ((Kind.RESULT, True) if idempotent else (Kind.TIMEOUT, False))


def test_each_attempt_is_charged_to_the_account() -> None:
    tools = Toolbox([flaky_tool(get_weather, 2, Unavailable("503"))])
    loop = AgentLoop(lambda context: Act((CALL,)), retry(patience=PATIENCE), limits=Limits(rounds=1))
    clock = FakeClock()
    control = drive(loop.run("?"), World(None, tools, None, clock.sleep, clock.now, True)).control
    assert (control.tool_calls, control.effects, control.seconds) == (3, 3 + 2 * 2, 3.0)


def test_an_account_that_runs_dry_in_an_attempt_keeps_what_failed_before() -> None:
    tools = Toolbox([flaky_tool(get_weather, 9, Unavailable("503 <busy>"))], idempotent=["get_weather"])
    limits = Limits(tool_calls=2)
    clock = FakeClock()
    for idempotent in (tools.is_idempotent, lambda name: False):
        act = retry(idempotent=idempotent, patience=PATIENCE)
        loop = AgentLoop(lambda context: Act((CALL,)), act, limits=limits)
        result = drive(loop.run("?"), World(None, tools, None, clock.sleep, clock.now, True))
        seen = result.turns[-1].observations[0]
        assert (result.stop, seen.kind) == (StopReason.TOOL_CALLS, Kind.UNCERTAIN)
        assert "503 <busy>" in seen.text and "tried 2 times" in seen.text and "attempt 3" in seen.text
        assert "503 <busy>" in result.summary


def test_a_wait_that_fails_keeps_what_failed_before() -> None:
    def no_sleep(seconds: float) -> None:
        raise OSError("the timer is broken")

    tools = Toolbox([broken_tool(get_weather, Unavailable("503"))])
    seen = drive(retry(patience=PATIENCE)(CALL), World(None, tools, None, no_sleep, inline=True))
    assert seen.kind is Kind.UNAVAILABLE and "the timer is broken" in seen.text and "tried once" in seen.text


def test_a_draw_that_fails_keeps_what_failed_before() -> None:
    tools = Toolbox([broken_tool(get_weather, Unavailable("503"))])
    act = retry(patience=replace(PATIENCE, draw=lambda: 1 / 0))
    seen = drive(act(CALL), World(tools=tools, inline=True))
    assert seen.kind is Kind.UNAVAILABLE and "ZeroDivisionError" in seen.text


def test_a_guard_inside_is_passed_at_every_attempt() -> None:
    passed = []

    def counting(act: Callable[[ToolCall], Any]) -> Callable[[ToolCall], Program[Observation]]:
        def guarded(call: ToolCall) -> Program[Observation]:
            passed.append((yield Do("count", lambda: call.id)).value)
            seen: Observation = yield from settle(act(call))
            return seen

        return guarded

    tools, clock = Toolbox([flaky_tool(get_weather, 2, Unavailable("503"))]), FakeClock()
    act = retry(counting(call_tool), patience=PATIENCE)
    drive(act(CALL), World(None, tools, None, clock.sleep, clock.now, True))
    assert passed == [CALL.id] * 3


def test_a_plain_function_can_be_guarded() -> None:
    answers = iter([Observation("<503>", False, Kind.UNAVAILABLE), Observation("<sunny>")])
    clock = FakeClock()
    act = retry(lambda call: next(answers), patience=PATIENCE)
    assert drive(act(CALL), World(sleep=clock.sleep, clock=clock.now, inline=True)).text == "<sunny>"


def test_who_gave_up_says_so_and_keeps_the_kind() -> None:
    seen, _ = once(broken_tool(get_weather, Unavailable("503", retry_after=2)))
    assert (seen.kind, seen.retry_after) == (Kind.UNAVAILABLE, GIVEN_UP)
    assert math.isfinite(GIVEN_UP), "so that JSON has a word for it"


def test_a_more_patient_retry_outside_changes_nothing() -> None:
    tool, clock = broken_tool(get_weather, Unavailable("503")), FakeClock()
    inner = retry(patience=replace(PATIENCE, attempts=2))
    outer = retry(inner, patience=replace(PATIENCE, attempts=50, allowance=9999.0))
    seen = drive(outer(CALL), World(None, Toolbox([tool]), None, clock.sleep, clock.now, True))
    assert len(tool.calls) == 2 and seen.text.count("tried") == 1


# --- The same under each driver, and on a replayed journal --------------------------------------


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.__name__)
def test_the_same_under_each_driver_and_from_any_point_of_its_journal(driver: Callable[..., Any]) -> None:
    def world() -> World:
        clock = FakeClock()
        tools = Toolbox([flaky_tool(get_weather, 3, Unavailable("503"))])
        return World(None, tools, None, clock.sleep, clock.now, True)

    patience = replace(PATIENCE, draw=random.Random(4).random)
    loop = AgentLoop(lambda context: Act((CALL,)), retry(patience=patience), limits=Limits(rounds=2))
    journal = Journal()
    first: Result = driven(driver, loop.run("?"), world(), journal)
    assert [turn.observations[0].ok for turn in first.turns] == [True, True]
    nobody = World(tools=Toolbox([]), clock=FakeClock().now, inline=True)
    assert drive(loop.run("?"), nobody, Journal(journal.outcomes)) == first
    for count in range(len(journal.outcomes)):
        tools = Toolbox([get_weather])  # it works by now
        clock = FakeClock()
        later = World(None, tools, None, clock.sleep, clock.now, True)
        again: Result = driven(driver, loop.run("?"), later, journal.rewound(count))
        assert [turn.observations for turn in again.turns] == [turn.observations for turn in first.turns]


# --- The waits --------------------------------------------------------------------------------


@given(st.integers(1, 5000), st.floats(0.01, 1e6), st.floats(0.01, 1e6), st.floats(0, 1))
def test_a_pause_is_never_longer_than_the_longest(
    tried: int, first: float, longest: float, draw: float
) -> None:
    seconds = pause(Patience(4, first, longest, draw=lambda: draw), tried)
    assert 0 <= seconds <= longest


@given(words)
@settings(max_examples=300, deadline=None)
def test_whatever_a_server_says_is_a_number_of_seconds_from_0_up(word: Any) -> None:
    assert seconds_asked(word, lambda: 784_111_770.0) >= 0


@pytest.mark.parametrize(
    ("word", "seconds"),
    [
        (None, 0),
        (7, 7),
        ("7", 7),
        (" 7 ", 7),
        ("7.5", 7.5),
        (-7, 0),
        ("-7", 0),
        (math.nan, 0),
        ("soon", 0),
        ("", 0),
        (math.inf, math.inf),
        (10**400, math.inf),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 7),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 7),
        ("Sun Nov  6 08:49:37 1994", 7),
        ("Sun, 06 Nov 1994 08:49:37", 7),
        ("Sun, 06 Nov 1994 09:49:37 +0100", 7),
        ("Sun, 06 Nov 1994 08:49:23 GMT", 0),
        ("Sun, 31 Feb 1994 08:49:37 GMT", 0),
        (datetime(1994, 11, 6, tzinfo=UTC), 0),
        ([], 0),
    ],
)
def test_what_a_server_asks_for(word: Any, seconds: float) -> None:
    assert seconds_asked(word, lambda: 784_111_770.0) == seconds


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the zone cannot be changed here")
def test_a_date_in_a_zone_that_is_not_named_is_no_local_one(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        with monkeypatch.context() as elsewhere:
            elsewhere.setenv("TZ", "Asia/Shanghai")
            time.tzset()
            assert seconds_asked("Sun Nov  6 08:49:37 1994", lambda: 784_111_770.0) == 7
    finally:
        time.tzset()


def test_the_wall_clock_is_only_read_for_a_date() -> None:
    def no_clock() -> float:
        raise AssertionError("there is no date to read")

    assert pause(replace(PATIENCE, wall_clock=no_clock), 1, 7) == 8.0


def test_the_waits_of_a_crowd_are_spread() -> None:
    spread, together = crowd(seeded()), crowd(replace(seeded(), draw=lambda: 1.0))
    assert sum(spread.values()) == sum(together.values()) == 60 * 3
    assert max(together.values()) == 60 and max(spread.values()) < 30


def test_the_table_of_the_demo() -> None:
    date = format_datetime(datetime.fromtimestamp(784_111_770.0, UTC) + timedelta(seconds=7), usegmt=True)
    assert NOW.endswith("08:49:30 GMT")
    (jitter,), _ = asked_for(None)
    assert [asked_for(word)[0] for word in (5, date, "soon")] == [[5 + jitter], [7 + jitter], [jitter]]
    assert asked_for(3600)[0] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 0},
        {"attempts": 2.0},
        {"attempts": True},
        {"first": 0},
        {"first": "1"},
        {"longest": -1.0},
        {"longest": math.nan},
        {"allowance": math.inf},
        {"allowance": None},
    ],
)
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"Patience.{next(iter(wrong))} must be"):
        Patience(**wrong)


def wrong(value: object) -> Any:
    """What no type checker would let pass."""
    return value


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: retry(wrong(Patience())), "act must be a function"),
        (lambda: retry(wrong(3)), "act must be a function, not 3"),
        (
            lambda: retry(patience=wrong(3)),
            r"patience must be a Patience, such as Patience\(attempts=3\), not 3",
        ),
        (lambda: retry(patience=wrong(Patience)), "patience must be a Patience"),
        (lambda: retry(idempotent=wrong(["look"])), r"such as tools.is_idempotent\) must be a function"),
        (lambda: patient(wrong(Patience())), "reason must be a function"),
        (lambda: patient(print, patience=wrong(3)), "patience must be a Patience"),
        (lambda: Patience(draw=wrong(0.5)), "Patience.draw must be a function"),
        (lambda: Patience(wall_clock=wrong(0.5)), "Patience.wall_clock must be a function"),
    ],
)
def test_a_guard_made_wrongly_says_what_would_be_right(make: Callable[[], Any], told: str) -> None:
    with pytest.raises(TypeError, match=told):
        make()


# --- A patient thought ------------------------------------------------------------------------


class Provider:
    """A model that fails as a script says, and then answers; ``clock`` tells what was slept."""

    def __init__(self, *failures: Exception, then: str = "26 度") -> None:
        script: list[Any] = [*failures, *[then] * 9]
        self.clock, self.model = FakeClock(), FakeModel(lambda request: script.pop(0))

    def run(
        self, guard: Callable[..., Any] = patient, limits: Limits | None = None, **options: Any
    ) -> Result:
        tools = Toolbox([get_weather])
        patience = options.pop("patience", PATIENCE)
        loop = AgentLoop(guard(function_calling(tools), patience=patience), limits=limits or Limits())
        world = World(self.model, tools, None, self.clock.sleep, self.clock.now, True)
        return drive(loop.run("天气？"), world, **options)


def test_a_model_that_is_back_in_time_costs_no_round() -> None:
    provider = Provider(ConnectionError("503"), Unavailable("429", retry_after=5), TimeoutError("late"))
    result = provider.run()
    assert (result.answer, result.control.rounds, result.control.model_calls) == ("26 度", 1, 4)
    assert provider.clock.slept == [1.0, 5.0 + 2.0, 4.0]


def test_a_request_that_is_left_behind_is_sent_again() -> None:
    clock = FakeClock()

    def slow_at_first(request: CallModel) -> str:
        clock.advance(60 if not clock.slept else 0)
        return "26 度"

    loop = AgentLoop(patient(function_calling(Toolbox([])), patience=PATIENCE))
    result = drive(loop.run("?"), World(slow_at_first, Toolbox([]), None, clock.sleep, clock.now, True))
    assert (result.answer, result.control.rounds, clock.slept) == ("26 度", 1, [1.0])


def test_a_model_that_stays_down_is_reported_once_and_its_thought_is_kept() -> None:
    def reason(context: LoopContext) -> Act:
        return report(Observation("<503>", False, Kind.UNAVAILABLE), "what was thought until then")

    clock = FakeClock()
    loop = AgentLoop(patient(reason, patience=PATIENCE), limits=Limits(rounds=1))
    (turn,) = drive(loop.run("?"), World(sleep=clock.sleep, clock=clock.now, inline=True)).turns
    assert turn.thought == "what was thought until then"
    assert turn.observations[0].text == "<503> (tried 4 times, and given up)"
    assert turn.observations[0].retry_after == GIVEN_UP


def test_patience_with_a_model_does_not_multiply_either() -> None:
    provider = Provider(*[ConnectionError("503")] * 9)
    provider.run(lambda reason, **options: patient(patient(reason, **options), **options), Limits(rounds=1))
    assert len(provider.model.requests) == PATIENCE.attempts


@pytest.mark.parametrize(
    "decision",
    [
        Finish("26 度"),
        Act((ToolCall("get_weather", {"city": "北京"}),)),
        report(Observation("no label", False, Kind.MALFORMED)),
        report(Observation("nothing", False, Kind.EMPTY_REPLY)),
        report(Observation("401", False, Kind.MODEL_ERROR)),
        Act((*report(Observation("<503>", False, Kind.UNAVAILABLE)).calls, ToolCall("get_weather", {}))),
    ],
)
def test_any_other_decision_is_passed_on_as_it_is(decision: Any) -> None:
    thoughts = []
    reason = patient(lambda context: thoughts.append(context) or decision)  # type: ignore[func-returns-value]
    decided = drive(reason(LoopContext("?")), World(inline=True))
    assert decided is decision and len(thoughts) == 1


@pytest.mark.parametrize("calls", range(1, 4))
def test_a_limit_in_the_middle_keeps_what_the_model_failed_with(calls: int) -> None:
    result = Provider(*[ConnectionError("503")] * 9).run(limits=Limits(model_calls=calls))
    assert result.stop is StopReason.MODEL_CALLS
    assert "503" in result.summary and f"attempt {calls + 1}" in result.summary


def test_no_wait_for_a_model_outlasts_the_run() -> None:
    provider = Provider(Unavailable("429", retry_after=50))
    result = provider.run(limits=Limits(seconds=20.0))
    assert (result.stop, provider.clock.slept) == (StopReason.WALL_CLOCK, [])
    assert "429" in result.summary


def test_thinking_again_may_end_in_another_failure() -> None:
    result = Provider(ConnectionError("503"), PermissionError("401")).run(limits=Limits(rounds=1))
    assert result.turns[0].observations[0].kind is Kind.MODEL_ERROR
    assert result.control.model_calls == 2


def test_a_thought_of_several_requests_is_thought_again_as_a_whole() -> None:
    answers: Iterator[Any] = iter(["draft", ConnectionError("503"), "draft", "26 度"])

    def reason(context: LoopContext) -> Program[Act | Finish]:
        for _ in range(2):
            reply = (yield CallModel((Message("user", "?"),))).value
            if isinstance(reply, Observation):
                return report(reply)
        assert isinstance(reply, Reply)
        return Finish(reply.text)

    clock, model = FakeClock(), FakeModel(lambda request: next(answers))
    loop = AgentLoop(patient(reason, patience=PATIENCE))
    result = drive(loop.run("?"), World(model, None, None, clock.sleep, clock.now, True))
    assert (result.answer, result.control.rounds, result.control.model_calls) == ("26 度", 1, 4)


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.__name__)
def test_a_patient_thought_is_the_same_under_each_driver_and_replayed(driver: Callable[..., Any]) -> None:
    provider, journal = Provider(ConnectionError("503"), ConnectionError("503")), Journal()
    loop = AgentLoop(patient(function_calling(Toolbox([])), patience=PATIENCE))
    world = World(provider.model, Toolbox([]), None, provider.clock.sleep, provider.clock.now, True)
    first = driven(driver, loop.run("天气？"), world, journal)
    assert (first.answer, first.control.rounds) == ("26 度", 1)
    nobody = World(tools=Toolbox([]), clock=FakeClock().now, inline=True)
    assert drive(loop.run("天气？"), nobody, Journal(journal.outcomes)) == first


# --- A whole loop -------------------------------------------------------------------------------


def test_a_payment_is_made_once_although_its_first_attempts_found_the_bank_closed() -> None:
    cashier, clock = Cashier(), FakeClock()

    def opens_later(number: int, run: Callable[[], Any]) -> Any:
        if number < 3:
            raise Unavailable("the bank is closed", retry_after=2)
        return run()

    tools = Toolbox([SpoiledTool(cashier.pay, opens_later)])
    act = retry(idempotent=tools.is_idempotent, patience=PATIENCE)
    call = ToolCall("pay", {"amount": 9})
    loop = AgentLoop(lambda context: Finish("paid") if context.turns else Act((call,)), act)
    result = drive(loop.run("pay"), World(None, tools, None, clock.sleep, clock.now, True))
    assert (result.answer, cashier.ledger, clock.slept) == ("paid", [9], [3.0, 4.0])
