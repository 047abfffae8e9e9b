"""What a breaker's guard promises: plain functions of anything with the signature of ``breaker``.

``guard(act, breakers)`` wraps an ``act``; the breakers under it are ours. ``check_breaker_guard(guard)``
raises ``BrokenPromise`` with a short story. ``PROMISES`` holds the same promises one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentloop import (
    AgentState,
    CallTool,
    Control,
    Do,
    EffectFailed,
    Interrupted,
    Journal,
    Kind,
    LimitReached,
    Observation,
    Outcome,
    StopReason,
    Toolbox,
    ToolCall,
    World,
    call_tool,
    drive,
)
from chapters.ch21_circuit_breaker import (
    CLOSED,
    FAILED,
    HALF_OPEN,
    OPEN,
    RELEASED,
    SUCCEEDED,
    BreakerState,
    CircuitBreakers,
    Happening,
    Settings,
)
from fake_llm import FakeClock, get_weather, hanging_tool
from tests.check_toolbox import expect

Guard = Callable[..., Callable[[ToolCall], Any]]

CALL = ToolCall("get_weather", {"city": "北京"}, "call_1_1_1")
SUNNY = Observation("Sunny")

#: What each kind of failed observation says about the tool, as the chapter's table has it.
FAILURES = {
    Kind.RESULT: FAILED,  # a failure told by value (EA54)
    Kind.TOOL_ERROR: FAILED,
    Kind.TIMEOUT: FAILED,
    Kind.UNCERTAIN: FAILED,
    Kind.UNAVAILABLE: FAILED,
    Kind.MODEL_ERROR: FAILED,
    Kind.EMPTY_REPLY: FAILED,
    Kind.UNKNOWN_TOOL: RELEASED,
    Kind.BAD_ARGUMENTS: RELEASED,
    Kind.MALFORMED: RELEASED,
    Kind.NOT_RUN: RELEASED,
    Kind.REFUSED: RELEASED,
    Kind.NO_HUMAN: RELEASED,
}

#: Where a breaker stands after one such outcome, with a threshold of 1: closed before, or probing.
AFTER: dict[Happening, tuple[BreakerState, BreakerState]] = {
    SUCCEEDED: (CLOSED, CLOSED),
    FAILED: (OPEN, OPEN),
    RELEASED: (CLOSED, HALF_OPEN),
}


class Told(CircuitBreakers):
    """Breakers that write down what they are asked and told."""

    def __init__(self, threshold: int = 1) -> None:
        self.time = FakeClock(1000.0)
        super().__init__(Settings(threshold, 60.0), clock=self.time.now)
        self.heard: list[str] = []

    def admit(self, name: str) -> str | float:
        self.heard.append("admit")
        return super().admit(name)

    def report(self, permit: str, outcome: Happening) -> None:
        self.heard.append(outcome.name)
        super().report(permit, Happening[outcome.name])  # a reader's copy of the chapter has its own

    @property
    def state(self) -> BreakerState:
        return self.states().get(CALL.name, CLOSED)

    def fail(self) -> None:
        self.report(str(self.admit(CALL.name)), FAILED)


def due() -> Told:
    """Breakers of which one has opened, and whose recovery time is over."""
    breakers = Told()
    breakers.fail()
    breakers.time.advance(60)
    return breakers


def world(tool: Callable[..., Any] = get_weather, **more: Any) -> World:
    return World(tools=Toolbox({"get_weather": tool}), inline=True, **more)


def run(guarded: Callable[[ToolCall], Any], call: ToolCall = CALL, journal: Journal | None = None) -> Any:
    return drive(guarded(call), world(), journal)


def begun(program: Any) -> CallTool:
    """Step a guarded call as a driver does, until it waits for its tool."""
    effect = next(program)
    while not isinstance(effect, CallTool):
        expect(isinstance(effect, Do), f"before its call it wanted {effect!r}")
        effect = program.send(Outcome(effect.function(), 0.0))
    return effect


def limit_reached() -> LimitReached:
    return LimitReached(Control(AgentState.TERMINATED, stop=StopReason.EFFECTS))


# --- Letting through, and refusing ------------------------------------------------------------


def what_came_is_handed_on(guard: Guard) -> None:
    """What the wrapped act observed is what comes back, be it a function or a program."""
    for act in (lambda call: SUNNY, _program):
        try:
            seen = run(guard(act, Told()))
        except Exception as error:
            seen = error
        expect(seen == SUNNY, f"the act saw {SUNNY}, and {seen!r} came back")


def _program(call: ToolCall) -> Any:
    yield CallTool(call)
    return SUNNY


def an_open_breaker_keeps_the_call_back(guard: Guard) -> None:
    """Open, the act is not reached: UNAVAILABLE, with the seconds that are left."""
    breakers = Told()
    reached: list[ToolCall] = []

    def act(call: ToolCall) -> Observation:
        reached.append(call)
        return SUNNY

    breakers.fail()
    breakers.time.advance(18)
    seen = run(guard(act, breakers))
    expect(not reached, "the breaker is open, and the act was reached")
    right = (seen.ok, seen.kind, seen.retry_after) == (False, Kind.UNAVAILABLE, 42.0)
    expect(right, f"it is open for another 42 s, and the observation was {seen}")
    expect(CALL.name in seen.text, f"the model is not told which tool it is: {seen.text!r}")


def loops_share_what_they_learn(guard: Guard) -> None:
    """What comes of one guard's calls holds back another's, on the same breakers (EA50, EA56)."""
    breakers = Told(threshold=2)
    for _ in range(2):
        run(guard(lambda call: Observation("503", False, Kind.TOOL_ERROR), breakers))
    seen = run(guard(lambda call: SUNNY, breakers))
    expect(not seen.ok, "two loops saw it fail, and the threshold is 2: a third loop's call went through")


def each_call_asks_for_its_own_tool(guard: Guard) -> None:
    """A call is asked for and counted under its own name, exactly (EA47)."""
    breakers = Told()
    breakers.fail()
    seen = run(guard(lambda call: SUNNY, breakers), CALL._replace(name="get_weather_v2"))
    expect(seen.ok, "get_weather is open, and a call of get_weather_v2 was refused")


# --- Counting ---------------------------------------------------------------------------------


def each_kind_counts_for_what_it_says(guard: Guard) -> None:
    """What fails outside is a failure, and a caller's mistake is nothing at all (C04, EA44, EA51, EA54)."""
    told = {Observation("", False, kind): happened for kind, happened in FAILURES.items()}
    told |= {Observation("", True, kind): SUCCEEDED for kind in (Kind.RESULT, Kind.UNCERTAIN)}
    expect(set(FAILURES) == set(Kind), "this promise knows every kind")
    for observation, happened in told.items():
        for breakers, right in zip((Told(), due()), AFTER[happened], strict=True):
            before = breakers.state
            run(guard(lambda call: observation, breakers))  # noqa: B023 - called before the next turn
            what = f"{before.name}, told {observation.kind.name} with ok={observation.ok}"
            expect(breakers.state is right, f"{what}: it is {breakers.state.name}, not {right.name}")


def a_timeout_counts_once(guard: Guard) -> None:
    """With a threshold of 3, the third call that is left behind opens it: not the second (C04, EA44)."""
    breakers = Told(threshold=3)
    hanging = hanging_tool(get_weather, lambda: breakers.time.advance(31))
    for number in (1, 2, 3):
        expect(breakers.state is CLOSED, f"the breaker is {breakers.state.name} before timeout {number} of 3")
        limited = CallTool(CALL, allowed=30.0)
        guarded = guard(lambda call: _limited(limited), breakers)  # noqa: B023
        seen = drive(guarded(CALL), world(hanging, clock=breakers.time.now))
        expect(seen.kind is Kind.TIMEOUT, f"a call that hangs came back as {seen}")
    expect(breakers.state is OPEN, f"after three timeouts of three it is {breakers.state.name}")


def _limited(effect: CallTool) -> Any:
    return (yield effect).value


# --- Ending early -----------------------------------------------------------------------------


def a_probe_that_is_broken_off_gives_its_slot_back(guard: Guard) -> None:
    """A limit, a person, a bug, Ctrl-C, a closed program: each passes through, and frees the slot (C02)."""
    endings = (limit_reached(), Interrupted(1.0), RuntimeError("a bug"), KeyboardInterrupt(), GeneratorExit())
    for ending in endings:
        name, breakers = type(ending).__name__, due()
        program = guard(call_tool, breakers)(CALL)
        begun(program)
        expect(breakers.state is HALF_OPEN, "the probe is under way")
        try:
            program.throw(ending)
            expect(False, f"{name} was thrown into the call, and swallowed")
        except type(ending) as passed_on:
            expect(passed_on is ending, f"{name} was thrown in, and another came out")
        except StopIteration:
            expect(False, f"{name} was thrown into the call, and swallowed")
        admitted = breakers.admit(CALL.name)
        expect(
            isinstance(admitted, str),
            f"{name} broke off the probe, and its slot is not free",
        )


def a_program_can_be_closed_while_the_lock_is_held(guard: Guard) -> None:
    """The garbage collector closes programs at any time: even then nobody waits for the breaker's lock."""
    breakers = due()
    program = guard(call_tool, breakers)(CALL)
    begun(program)
    lock = breakers.store.lock
    with lock:
        breakers.store.lock = _Held()  # type: ignore[assignment]
        program.close()
        breakers.store.lock = lock
    expect(isinstance(breakers.admit(CALL.name), str), "a program was closed, and its slot is not free")


class _Held:
    """A lock that somebody holds: whoever waits for it waits for ever."""

    def acquire(self, *given: object) -> None:
        expect(False, "a program that was closed waits for the breaker's lock, which may never come")

    __enter__ = acquire

    def __exit__(self, *given: object) -> None:
        pass


def what_was_observed_is_kept_at_the_end(guard: Guard) -> None:
    """Where the run ends before the outcome could be told, it is kept, and counted all the same."""
    for ending in (limit_reached(), Interrupted(1.0), EffectFailed("Not begun: the run's time was up.", 1.0)):
        breakers = Told()
        program = guard(call_tool, breakers)(CALL)
        begun(program)
        program.send(Outcome(Observation("503", False, Kind.TOOL_ERROR), 0.0))
        try:
            program.throw(ending)
        except StopIteration as finished:
            seen = finished.value
        except Exception as error:
            seen = error
        expect(isinstance(seen, Observation), f"503 was observed, and came back as {type(seen).__name__}")
        expect(breakers.state is OPEN, f"a failure of a threshold of 1 was lost to {type(ending).__name__}")


def breakers_that_break_are_no_bug_of_the_loop(guard: Guard) -> None:
    """Where the breakers cannot be asked, the call is not made, and the model is told."""
    program = guard(call_tool, Told())(CALL)
    next(program)
    try:
        effect = program.throw(EffectFailed("the store is gone", 1.0))
        expect(False, f"the breakers could not be asked, and it wanted {effect!r}")
    except EffectFailed:
        expect(False, "the breakers could not be asked, and that became a bug of the loop")
    except StopIteration as finished:
        seen = finished.value
    expect((seen.ok, seen.kind) == (False, Kind.UNAVAILABLE), f"the breakers failed, and {seen} came back")


# --- Journals, and what it costs --------------------------------------------------------------


def a_replay_leaves_the_breaker_alone(guard: Guard) -> None:
    """Asking and telling are in the journal: run again on it, a call asks and tells nobody."""
    for act in (lambda call: SUNNY, lambda call: Observation("503", False, Kind.TOOL_ERROR)):
        journal, breakers = Journal(), due()
        first = run(guard(act, breakers), journal=journal)
        again = Told()
        second = run(guard(act, again), journal=journal.rewound(len(journal.outcomes)))
        expect(second == first, f"the first time {first} came, and on its journal {second}")
        expect(not again.heard, f"a replay told the breaker: {', '.join(again.heard)}")


def it_costs_two_effects_and_one_where_it_refuses(guard: Guard) -> None:
    """Asking is one effect, telling another; a refused call costs one."""
    for breakers, effects in ((Told(), 3), (due(), 3)):
        journal = Journal()
        run(guard(call_tool, breakers), journal=journal)
        found = len(journal.outcomes)
        expect(found == effects, f"one call through a breaker took {found} effects, not {effects}")
    refusing, journal = Told(), Journal()
    refusing.fail()
    run(guard(call_tool, refusing), journal=journal)
    expect(len(journal.outcomes) == 1, f"a refused call took {len(journal.outcomes)} effects, not 1")


PROMISES: dict[str, Callable[[Guard], None]] = {
    promise.__name__: promise
    for promise in (
        what_came_is_handed_on,
        an_open_breaker_keeps_the_call_back,
        loops_share_what_they_learn,
        each_call_asks_for_its_own_tool,
        each_kind_counts_for_what_it_says,
        a_timeout_counts_once,
        a_probe_that_is_broken_off_gives_its_slot_back,
        a_program_can_be_closed_while_the_lock_is_held,
        what_was_observed_is_kept_at_the_end,
        breakers_that_break_are_no_bug_of_the_loop,
        a_replay_leaves_the_breaker_alone,
        it_costs_two_effects_and_one_where_it_refuses,
    )
}


def check_breaker_guard(guard: Guard) -> None:
    """Raise ``BrokenPromise`` for the first promise that is broken."""
    for promise in PROMISES.values():
        promise(guard)
