"""Who keeps calling a sick service makes it sicker: after five failures, say so at once, and probe later.

Article A, 异常处理：工具失败、幻觉传播与熔断机制, 熔断机制 (Circuit breaking). Covers A-116..A-122.

The pattern is Nygard's (Release It!, 2007). Unlike retry and fallback (chapters 19 and 20), which know one
call, a breaker knows what came of everybody's: it belongs to the tool, so loops share it and it outlives
their runs. It is a machine of its own, as pure as the loop's (A-116): ``step`` reads ``ROWS``, and what the
rows do not name cannot happen. It opens at the fifth failure in a row (A-117), lets a probe through 60
seconds later (A-118), and a success closes it and clears the count (A-122).
Without it, each loop waits 30 seconds (A-119: ``Limits.call_seconds``) to learn what the last one learned.

The guard asks and reports by ``Do``, so a journal has both, and a replay leaves the breaker alone. One
thing it does by itself. Where the run ends first (a limit, a person, a crash, a program that is closed) it
cannot yield any more, and reports to the breaker itself. A report takes no lock: a forgotten program is
closed by the garbage collector, in the middle of anything, even of code that holds this very lock.
Wrap a call once, with one breaker: two around each other would see two calls, and block their own probe.

What the article returns or raises (A-120, A-121), and what stands for it here:

==========================  =================================================================
no_action                   MALFORMED, which never comes as far as ``act`` (chapter 05)
circuit_open                UNAVAILABLE, with ``retry_after``: the seconds until a probe is due
timeout, ToolTimeoutError   TIMEOUT, where the driver left the call behind
error, ToolExecutionError   TOOL_ERROR, UNAVAILABLE or UNCERTAIN: what the tool raised
HallucinationDetectedError  chapter 22
CriticalToolFailureError    chapter 18
==========================  =================================================================

Departures: no failure is without a name (EA42) or goes past the breaker (EA51), timeouts count (EA44),
whether the driver's or the tool's own (EA55), and so does a failure told by value (EA54); the model's
mistakes do not. One probe at a time (EA45), and one that fails or times out opens again (EA46). Names are
exact (EA47); the clock is monotonic and given (EA49); the guard wraps any loop's ``act`` (EA56). That it
opens at the fifth and closes at a success was right (EA48). The article's run is over after three tool calls
(EA50), and ours at its fifth failed round: a breaker is of use to the next run, and to the one beside it.

Exercises
---------
1. Let a row of ``ROWS`` go missing, or lead elsewhere, in a copy of this file, and ask what that breaks:
   ``python -m pytest --impl breaker=my_breaker.py:CircuitBreakers``
2. Open at ``threshold`` failures among the last ``2 * threshold`` outcomes instead of so many in a row. What
   must ``Breaker`` know? Which promise has to go, and which may not? The same command tells.
3. Take the ``finally`` out of a copy of ``breaker``. In which ways can a call end without an outcome? The
   promises know five: ``python -m pytest --impl breaker_guard=my_guard.py:breaker``
"""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

from agentloop import (
    AgentLoop,
    Do,
    EffectFailed,
    Interrupted,
    Kind,
    LimitReached,
    Observation,
    Program,
    Result,
    Together,
    Toolbox,
    ToolCall,
    World,
    call_tool,
    drive,
    settle,
)
from chapters.telling import GREEN, RED, Telling
from fake_llm import FakeClock, RuleModel, broken_tool, get_weather, hanging_tool
from paradigms.arguments import require, require_function, require_seconds
from paradigms.react import react

# --- The machine: one breaker as a value, and the rows by which it changes ----------------------


class BreakerState(Enum):
    """Whether calls go through (熔断器状态)."""

    CLOSED = "calls go through"
    OPEN = "calls are refused at once"
    HALF_OPEN = "one call, the probe, finds out whether the tool works again"


class Happening(Enum):
    """What a breaker is told."""

    ASKED = "a call asks to go through"
    SUCCEEDED = "a call succeeded"
    FAILED = "a call failed"
    RELEASED = "a call ended, and says nothing about the tool"


CLOSED, OPEN, HALF_OPEN = BreakerState
ASKED, SUCCEEDED, FAILED, RELEASED = Happening


class Breaker(NamedTuple):
    """One tool's breaker at one moment. Only ``step`` makes one, starting from ``Breaker()``."""

    state: BreakerState = CLOSED
    failures: int = 0  # in a row
    era: int = 0  # an outcome counts only in the era in which its call was let through
    until: float = 0.0  # when the next probe is due, unless CLOSED


class Event(NamedTuple):
    """One thing that happened, ``at`` so many seconds of a monotonic clock, to a call of that ``era``."""

    kind: Happening
    at: float
    era: int = 0


@dataclass(frozen=True)
class Settings:
    """When a breaker opens, in failures in a row, and when it probes, in seconds. Raises ``ValueError``."""

    threshold: int = 5
    recovery: float = 60.0

    def __post_init__(self) -> None:
        require("threshold", self.threshold, 1)
        require_seconds("recovery", self.recovery)


THE_ARTICLES = Settings()


def _always(before: Breaker, event: Event, settings: Settings) -> bool:
    return True


def _too_early(before: Breaker, event: Event, settings: Settings) -> bool:
    return event.at < before.until


def _due(before: Breaker, event: Event, settings: Settings) -> bool:
    return not event.at < before.until


def _one_too_many(before: Breaker, event: Event, settings: Settings) -> bool:
    return before.failures + 1 >= settings.threshold


def _bearable(before: Breaker, event: Event, settings: Settings) -> bool:
    return before.failures + 1 < settings.threshold


#: What a row makes of a breaker: its failures, its era, its ``until``.
Becoming = Callable[[Breaker, Event, Settings], tuple[int, int, float]]


def _stays(before: Breaker, event: Event, settings: Settings) -> tuple[int, int, float]:
    return before.failures, before.era, before.until


def _counts(before: Breaker, event: Event, settings: Settings) -> tuple[int, int, float]:
    return before.failures + 1, before.era, before.until


def _forgets(before: Breaker, event: Event, settings: Settings) -> tuple[int, int, float]:
    return 0, before.era, before.until


def _begins_to_wait(before: Breaker, event: Event, settings: Settings) -> tuple[int, int, float]:
    """It opens, or lends the probe's slot: in both cases the next probe is due a recovery time later."""
    return settings.threshold, before.era + 1, event.at + settings.recovery


def _takes_back(before: Breaker, event: Event, settings: Settings) -> tuple[int, int, float]:
    return before.failures, before.era + 1, event.at


def _begins_anew(before: Breaker, event: Event, settings: Settings) -> tuple[int, int, float]:
    return 0, before.era + 1, 0.0


class Row(NamedTuple):
    """One row of the table: where, on what, under which guard, to where, and what becomes of the rest."""

    source: BreakerState
    event: Happening
    guard: str
    holds: Callable[[Breaker, Event, Settings], bool]
    target: BreakerState
    becomes: Becoming


ROWS = (
    Row(CLOSED, ASKED, "always: it is let through", _always, CLOSED, _stays),
    Row(CLOSED, SUCCEEDED, "always: the count is cleared", _always, CLOSED, _forgets),
    Row(CLOSED, FAILED, "fewer in a row than the threshold", _bearable, CLOSED, _counts),
    Row(CLOSED, FAILED, "as many in a row as the threshold", _one_too_many, OPEN, _begins_to_wait),
    Row(CLOSED, RELEASED, "always: nothing is counted", _always, CLOSED, _stays),
    Row(OPEN, ASKED, "too early: it is refused", _too_early, OPEN, _stays),
    Row(OPEN, ASKED, "the recovery time is over: it is the probe", _due, HALF_OPEN, _begins_to_wait),
    Row(HALF_OPEN, ASKED, "the slot is lent: it is refused", _too_early, HALF_OPEN, _stays),
    Row(HALF_OPEN, ASKED, "the slot is free: it is the probe", _due, HALF_OPEN, _begins_to_wait),
    Row(HALF_OPEN, SUCCEEDED, "always: the tool works", _always, CLOSED, _begins_anew),
    Row(HALF_OPEN, FAILED, "always: it does not work yet", _always, OPEN, _begins_to_wait),
    Row(HALF_OPEN, RELEASED, "always: the slot is free again", _always, HALF_OPEN, _takes_back),
)

_ROWS_OF = {
    (state, kind): tuple(row for row in ROWS if (row.source, row.event) == (state, kind))
    for state in BreakerState
    for kind in Happening
}


def step(before: Breaker, event: Event, settings: Settings) -> Breaker:
    """Return the breaker after ``event``; an outcome of an earlier era changes nothing.

    Raises ``ValueError`` for the outcome of a call that was never let through.
    """
    state, _, era, _ = before
    if event.kind is not ASKED and event.era < era:
        return before
    for _, _, _, holds, target, becomes in _ROWS_OF[state, event.kind]:
        if holds(before, event, settings):
            return before if becomes is _stays else Breaker(target, *becomes(before, event, settings))
    raise ValueError(f"{event.kind.name} in {state.name}: no call of era {event.era} was let through")


def seconds_left(breaker: Breaker, at: float) -> float:
    """Seconds until it makes sense to ask; 0.0 where a call that asks now is let through."""
    return 0.0 if breaker.state is CLOSED or not at < breaker.until else breaker.until - at


def mermaid(rows: Sequence[Row] = ROWS) -> str:
    """The machine as a Mermaid state diagram."""
    edges = [f"    {r.source.name} --> {r.target.name}: {r.event.name}, {_in_short(r.guard)}" for r in rows]
    return "\n".join(["stateDiagram-v2", f"    [*] --> {Breaker().state.name}", *edges])


def _in_short(guard: str) -> str:
    return guard.removeprefix("always: ").replace(": ", ", ")


# --- The registry: breakers by name, shared by loops and threads --------------------------------
# One thread at a time holds the lock, to look and to write, and never during a call. To be let through
# is to get a permit, and each outcome is reported with its permit: once, and only to those who issued it.
# When the breaker changes, its era ends, and what comes of a call of an earlier era comes too late to
# mean anything. The only permit in HALF_OPEN is the probe's. It is good for as long as a recovery takes,
# so that a probe whose process died blocks nobody for ever; a probe that is cancelled gives its slot back.


class Store:
    """Where breakers stand: one record for each exact name, and the permits that are out.

    Whoever is given the same store shares its breakers. A permit begins with what no other store has,
    in this process or another, and is text, so that a journal can keep it.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()  # held to look and to write
        self.records: dict[str, Breaker] = {}
        self.permits: dict[str, tuple[str, int]] = {}  # the name and era of each
        self.notes: deque[tuple[str, Happening, float]] = deque()  # outcomes that nobody has read yet
        self.numbers = itertools.count(1)
        self.issuer = uuid.uuid4().hex


class CircuitBreakers:
    """The breakers of all tools, each made when it is first needed (熔断器, by exact name).

    ``clock`` is in seconds and monotonic. Those who share a ``store`` have the same settings and clock.
    Raises ``TypeError`` for what is none of these.
    """

    def __init__(
        self,
        settings: Settings = THE_ARTICLES,
        *,
        clock: Callable[[], float] = time.monotonic,
        store: Store | None = None,
    ) -> None:
        if isinstance(settings, type) or not hasattr(settings, "threshold"):
            raise TypeError(f"settings are Settings, such as Settings(threshold=5), not {settings!r}")
        require_function("clock", clock)
        if store is not None and not hasattr(store, "permits"):
            raise TypeError(f"store is a Store() that others share, or None, not {store!r}")
        self.settings, self.clock = settings, clock
        self.store = store or Store()

    def admit(self, name: str) -> str | float:
        """Let a call through with a permit, or say how many seconds later to ask again."""
        store = self.store
        with store.lock:
            self._read_notes()
            at, before = self.clock(), store.records.get(name, _NEW)
            after = step(before, Event(ASKED, at), self.settings)
            if left := seconds_left(before, at):
                return left
            if after is not before:
                store.records[name] = after
            permit = f"{store.issuer}-{next(store.numbers)}"
            store.permits[permit] = name, after.era
        return permit

    def report(self, permit: str, outcome: Happening) -> None:
        """Say what came of a call. Only the first outcome of a permit counts, and of ours alone.

        It takes no lock, and waits for nobody: it leaves a note, and whoever looks next reads it first.
        """
        if outcome is ASKED:
            raise ValueError("an outcome is SUCCEEDED, FAILED or RELEASED, not ASKED")
        self.store.notes.append((permit, outcome, self.clock()))

    def states(self) -> dict[str, BreakerState]:
        """The state of each tool that has succeeded or failed so far; a name that is no tool does neither."""
        with self.store.lock:
            self._read_notes()
            return {name: breaker.state for name, breaker in self.store.records.items()}

    def _read_notes(self) -> None:
        store = self.store
        while store.notes:
            permit, outcome, at = store.notes.popleft()
            if permit not in store.permits:
                continue  # told before, or lent by somebody else
            name, era = store.permits.pop(permit)
            before = store.records.get(name, _NEW)
            after = step(before, Event(outcome, at, era), self.settings)
            if after is not before:
                store.records[name] = after


_NEW = Breaker()

# --- The guard ----------------------------------------------------------------------------------

#: The mistakes of whoever called, and what was never tried: they say nothing about the tool.
NOT_THE_TOOLS_FAULT = (
    Kind.BAD_ARGUMENTS,
    Kind.UNKNOWN_TOOL,
    Kind.MALFORMED,
    Kind.REFUSED,
    Kind.NOT_RUN,
    Kind.NO_HUMAN,
)


def meaning(observation: Observation) -> Happening:
    """What an observation says about its tool. A failure told by value is a failure (``ok`` is false)."""
    if observation.ok:
        return SUCCEEDED
    return RELEASED if observation.kind in NOT_THE_TOOLS_FAULT else FAILED


def breaker(act: Callable[[ToolCall], Any], breakers: CircuitBreakers) -> Callable[[ToolCall], Any]:
    """Wrap ``act`` so that no call reaches a tool whose breaker is open: UNAVAILABLE, at once.

    A call that is left behind is a failure, also where the end of the run's own time cut it short: a run
    shares its breakers with others, so its ``seconds`` should leave each call its ``call_seconds``.
    Raises ``TypeError`` for breakers that are none.
    """
    require_function("act", act)
    if isinstance(breakers, type) or not callable(getattr(breakers, "admit", None)):
        raise TypeError(f"breaker(act, breakers) takes breakers, such as CircuitBreakers(), not {breakers!r}")

    def guarded(call: ToolCall) -> Program[Observation]:
        held: list[str] = []  # a permit that was lent to this very program: never one from a journal
        outcome = RELEASED

        def ask() -> str | float:
            admitted = breakers.admit(call.name)
            if isinstance(admitted, str):
                held.append(admitted)
            return admitted

        try:
            try:
                admitted = (yield Do(f"ask the breaker of {call.name}", ask, repeatable=True)).value
            except EffectFailed as failed:
                return Observation(f"{call.name} was not called: {failed}", False, Kind.UNAVAILABLE)
            if not isinstance(admitted, str):
                return _refused(call.name, admitted)
            observation: Observation = yield from settle(act(call))
            outcome = meaning(observation)
            tell = partial(breakers.report, admitted, outcome)
            try:
                yield Do(f"tell the breaker of {call.name}: {outcome.name}", tell, repeatable=True)
            except (LimitReached, Interrupted, EffectFailed):
                pass  # the run is over, and what was observed is in hand: the loop keeps it, and ends
            return observation
        finally:
            for permit in held:
                breakers.report(permit, outcome)

    return guarded


def _refused(name: str, seconds: float) -> Observation:
    text = f"工具 {name} 当前不可用（熔断中）: not called, it kept failing. Try again in {seconds:.0f} s."
    return Observation(text, False, Kind.UNAVAILABLE, seconds)


# --- The story ----------------------------------------------------------------------------------

TASK = "北京今天天气怎么样？"
HOW_MANY = 40  # visitors
OUTAGE, HANGS, PAUSE = 600.0, 31.0, 10.0  # seconds: it is down; a call hangs; until the next visitor comes


class Visit(NamedTuple):
    """What one visitor met: when, what the tool call brought, how long that took, and the breaker's state."""

    began: float
    saw: str
    waited: float
    state: str


def visitor() -> RuleModel:
    """A model that looks once, and then answers with what it has."""
    rules = [
        ("当前天气", "Thought: 可以作答。\nAction: Finish[北京今天晴，26 度。]"),
        ("Observation", "Thought: 查不到。\nAction: Finish[暂时查不到天气，请稍后再试。]"),
    ]
    return RuleModel(rules, otherwise='Thought: 先查天气。\nAction: get_weather(city="北京")')


def open_day(act: Callable[[ToolCall], Any], clock: FakeClock, states: Callable[[], Any]) -> list[Visit]:
    """Visitors one after another, a loop for each, at a weather service that is down for ten minutes."""
    sick = hanging_tool(get_weather, lambda: clock.advance(HANGS if clock.now() < OUTAGE else 1.0))
    world = World(visitor(), Toolbox([sick]), clock=clock.now, inline=True)
    loop = AgentLoop(react(Toolbox([sick])), act)
    visits: list[Visit] = []
    while len(visits) < HOW_MANY:
        began = clock.now()
        saw = seen(drive(loop.run(TASK), world))
        visits.append(Visit(began, saw, clock.now() - began, states().get("get_weather", CLOSED).name))
        clock.advance(PAUSE)
    return visits


def seen(result: Result) -> str:
    """What came of a run's one tool call."""
    return result.turns[0].observations[0].kind.name


def tell_visits(tell: Telling, visits: Sequence[Visit], columns: int) -> None:
    """Those who met the same in one line; and what the sick service cost in all."""
    rows: list[Sequence[object]] = [("at", "visitors", "saw", "waited, each", "breaker then")[:columns]]
    for (saw, state), together in itertools.groupby(visits, lambda visit: (visit.saw, visit.state)):
        group = list(together)
        waited = f"{group[0].waited:.0f} s"
        rows.append((f"{group[0].began:.0f} s", len(group), saw, waited, state)[:columns])
    tell.table(rows)
    lost = [visit.waited for visit in visits if visit.saw == Kind.TIMEOUT.name]
    tell(f"calls that hung in the sick service: {len(lost)}, for {sum(lost):.0f} s in all", RED)


def demo(tell: Telling) -> None:
    """A service that is down for ten minutes, without and with a breaker; eight at once; the machine."""
    tell(f"{HOW_MANY} visitors ask: {TASK}")
    tell.heading(f"Without a breaker: for {OUTAGE:.0f} s each visitor waits until the call is left behind")
    tell_visits(tell, open_day(call_tool, FakeClock(), dict), columns=4)

    tell.heading("With one: the fifth failure opens it, and one probe a minute asks how things are")
    clock = FakeClock()
    breakers = CircuitBreakers(clock=clock.now)
    tell_visits(tell, open_day(breaker(call_tool, breakers), clock, breakers.states), columns=5)

    threshold, recovery = breakers.settings.threshold, breakers.settings.recovery
    tell.heading(f"{threshold} more calls fail: the next loop is not kept waiting, and its model is told why")
    tools = Toolbox([get_weather])
    loop = AgentLoop(react(tools), breaker(call_tool, breakers))
    broken = Toolbox([broken_tool(get_weather, ConnectionError("503"))])
    drive(side_by_side(loop, threshold), World(visitor(), broken, clock=clock.now, inline=True))
    clock.advance(18)
    world = World(visitor(), tools, clock=clock.now, inline=True)
    tell.result(drive(replace(loop, watch=tell.watch("loop")).run(TASK), world))

    tell.heading("The recovery time is over, and eight loops ask at once: one is the probe")
    clock.advance(recovery)
    met = Counter(seen(result) for result in drive(side_by_side(loop, 8), world))
    tell(", ".join(f"{kind}: {count}" for kind, count in met.items()))
    tell(f"get_weather is {breakers.states()['get_weather'].name}: the probe brought an answer", GREEN)

    tell.heading("The machine, drawn from its rows")
    tell(mermaid())


def side_by_side(loop: AgentLoop, count: int) -> Program[list[Result]]:
    """So many runs of one loop at the same time."""
    results: list[Result] = (yield Together(tuple(loop.run(TASK) for _ in range(count)))).value
    return results
