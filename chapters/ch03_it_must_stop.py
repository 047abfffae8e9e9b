"""A loop that must stop is not tested on some runs: it is walked through all of them.

Article A, 状态转换条件与守卫 (Transitions and guards) and the claim that closes 状态机核心实现: explicit
states, guard checks, exception-safe transitions (显式状态定义、守卫条件检查、异常安全转换).
Covers A-26, A-34, A-56.

Unlike chapter 02, which showed one run, this one goes everywhere: from the first ``Control``, it tells
the machine every kind of event, legal or not, with amounts of nothing, at each limit and beyond it,
and goes on from each new ``Control`` that comes of it. A ``Control`` holds no text, so with small
limits there are few enough to visit them all. If no path leads back to where it has been, and each
accepted event makes ``rank`` smaller, then every run ends, within ``worst_case_steps``.
Without it, a machine that looks right on every run one thought of may still go round for ever: the
demo shows one, two lines away from ours, which no happy run can tell from ours. (The walk takes no word of
``advance`` for granted: it works out from the tables what is due, and that second opinion makes this
chapter longer than others.)

Departures: a stop that a guard can refuse is no stop, so the end at a limit is legal from every live
state (EA02), and so is the end after an error (EA04); a round is counted once, where REASONING is
entered (EA03); no state or counter is set past the machine (EA24).

What the walk does not promise: a hook that computes for ever without yielding cannot be stopped from
within, and whether a stop rule's reason is deserved is that rule's promise.

Exercises
---------
1. Make ``forgetful`` of this file forget something else: the effects, or the failures. Say first what
   the walk will find, then ask: ``python -m pytest --impl machine=my_machine.py:forgetful``
2. Write an ``advance`` of your own, limit checks and all, with the types of ``agentloop``, and put it
   under every promise of this chapter: ``python -m pytest --impl machine=my_machine.py:advance``
3. Take from your machine the line that ends a run when no round is left. Before running the same
   command, write down the shortest story that shows it; compare it with the one that is found.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

from agentloop import (
    LIVE,
    REASONING,
    RULE_REASONS,
    SPENDING,
    TERMINATED,
    TRANSITIONS,
    WORKING,
    AgentState,
    Control,
    Event,
    EventKind,
    IllegalTransition,
    Limits,
    StopReason,
    advance,
    rank,
    worst_case_steps,
)
from chapters.telling import GREEN, RED, Telling

Machine = Callable[[Control, Event, Limits], Control]

# --- What the tables say, read without ``advance`` --------------------------------------------

ROWS = {
    (state, kind): tuple(row for row in TRANSITIONS if state in row.sources and kind in row.events)
    for state in AgentState
    for kind in EventKind
}
SPENT = {spending.event: spending for spending in SPENDING}
ENTERS_A_ROUND = {kind for row in TRANSITIONS if row.target is REASONING for kind in row.events}
#: What may bring a stop rule's verdict.
RULED = (EventKind.STOP_RULED, EventKind.OBSERVED)
#: Endings that no limit overrules.
DECIDED = {
    EventKind.ANSWER_GIVEN: StopReason.FINAL_ANSWER,
    EventKind.INTERRUPTED: StopReason.HUMAN,
    EventKind.HOOK_FAILED: StopReason.ERROR,
}


def targets(before: Control, event: Event) -> set[AgentState]:
    """The states that the event may lead to; none, and it must be refused."""
    if event.tokens < 0 or event.cost < 0:
        return set()
    if event.stop is not None and (event.kind not in RULED or event.stop not in RULE_REASONS):
        return set()
    led = {row.target for row in ROWS[before.state, event.kind] if row.holds(before, event)}
    if event.kind in SPENT and before.state in WORKING:
        led.add(before.state)
    return led | {TERMINATED} if led else led


def limits_reached(before: Control, event: Event, limits: Limits) -> tuple[StopReason, ...]:
    """The limits that an allowed event reaches, in the order of ``StopReason``.

    What is counted may be used up to its limit, and not once more. What is measured stops at its
    limit, or where the need that the event announces would cross it.
    """
    spent = SPENT.get(event.kind)
    tokens, cost = before.tokens + event.tokens, before.cost + event.cost
    seconds = max(before.seconds, event.at)
    reached = (
        failures_in_a_row(before, event) >= limits.failures,
        before.rounds + (event.kind in ENTERS_A_ROUND) > limits.rounds,
        spent is not None and before.model_calls + spent.model_calls > limits.model_calls,
        spent is not None and before.tool_calls + spent.tool_calls > limits.tool_calls,
        spent is not None and before.effects + spent.effects > limits.effects,
        not tokens < limits.tokens or not tokens + event.needs_tokens <= limits.tokens,
        not cost < limits.cost,
        not seconds < limits.seconds or not seconds + event.needs_seconds <= limits.seconds,
    )
    return tuple(reason for reason, is_reached in zip(LIMIT_REASONS, reached, strict=True) if is_reached)


LIMIT_REASONS = (
    StopReason.TOO_MANY_FAILURES,
    StopReason.MAX_ITERATIONS,
    StopReason.MODEL_CALLS,
    StopReason.TOOL_CALLS,
    StopReason.EFFECTS,
    StopReason.TOKEN_BUDGET,
    StopReason.COST_BUDGET,
    StopReason.WALL_CLOCK,
)


def failures_in_a_row(before: Control, event: Event) -> int:
    """How many rounds in a row have brought nothing, once the event is counted."""
    if event.kind is not EventKind.OBSERVED:
        return before.failures
    return 0 if event.ok else before.failures + 1


def reason_due(before: Control, event: Event, limits: Limits) -> StopReason | None:
    """The reason that an allowed event must end the run with, or ``None`` if the run goes on."""
    if event.kind in DECIDED:
        return DECIDED[event.kind]
    if event.kind is EventKind.ACCOUNT_CLOSED and event.closed is not None:
        return event.closed.stop
    reasons = (*limits_reached(before, event, limits), *([event.stop] if event.stop else []))
    return min(reasons, key=list(StopReason).index, default=None)


# --- What a machine is told -------------------------------------------------------------------


def bills(limits: Limits) -> Iterator[dict[str, Any]]:
    """What an event can bring: nothing, and of each measure just less than its limit, it, and more."""
    yield {}
    for field, limit in (
        ("tokens", limits.tokens),
        ("cost", limits.cost),
        ("at", limits.seconds),
        ("needs_tokens", limits.tokens),
        ("needs_seconds", limits.seconds),
    ):
        yield from ({field: amount} for amount in (limit - 1, limit, limit + 1) if amount > 0)
    yield {"cost": limits.cost, "at": limits.seconds}
    yield {"tokens": limits.tokens, "cost": limits.cost, "at": limits.seconds}


def forms(kind: EventKind) -> list[Event]:
    """An event of this kind in each form that guards tell apart; the most welcome form comes first."""
    stop = StopReason.CONVERGED if kind is EventKind.STOP_RULED else None
    closed = CLOSED[0] if kind is EventKind.ACCOUNT_CLOSED else None
    counts = (1, 0, 2) if kind in COUNTED else (0,)
    return [Event(kind, ok, calls, stop=stop, closed=closed) for ok in (True, False) for calls in counts]


#: The events that say how many calls they are about.
COUNTED = (EventKind.ACTION_CHOSEN, EventKind.SUBMITTED, EventKind.OBSERVED)
#: An enclosing account as it can have ended, and as it cannot.
CLOSED = tuple(Control(TERMINATED, stop=reason) for reason in (StopReason.HUMAN, *StopReason))


def offers(state: AgentState, limits: Limits, kinds: Collection[EventKind] = tuple(EventKind)) -> list[Event]:
    """All that the walk tells a machine in this state: every kind, in every form where a row might hold."""
    events: list[Event] = []
    for kind in kinds:
        if state is TERMINATED:
            events += forms(kind)[:1]
        elif not (ROWS[state, kind] or kind in SPENT and state in WORKING):
            events += [forms(kind)[0]._replace(**bill) for bill in bills(limits)]
        else:
            plain = forms(kind) if kind in RULED else [event for event in forms(kind) if event.ok]
            events += forms(kind)
            events += [event._replace(closed=CLOSED[0]) for event in plain]
            events += [event._replace(**bill) for event in plain for bill in bills(limits)]
            events += [event._replace(stop=reason) for event in plain for reason in (None, *StopReason)]
    if EventKind.ACCOUNT_CLOSED in kinds and state in LIVE:
        events += [Event(EventKind.ACCOUNT_CLOSED, closed=control) for control in (*CLOSED, Control(), None)]
    return list(dict.fromkeys(events))


# --- The walk ---------------------------------------------------------------------------------


class Try(NamedTuple):
    """A machine was told one event.

    ``after`` is the control that came of it, or the refusal; ``allowed`` what the tables allow.
    """

    before: Control
    event: Event
    after: Control | Exception
    allowed: set[AgentState]


def tell_machine(machine: Machine, before: Control, event: Event, limits: Limits) -> Try:
    """Tell the machine one event. What is neither a control nor an exception comes back as an exception."""
    after: Control | Exception
    try:
        after = machine(before, event, limits)
    except Exception as refusal:
        after = refusal
    if not isinstance(after, Control | Exception):
        after = TypeError(f"it returned {after!r}, and a machine returns a Control")
    return Try(before, event, after, targets(before, event))


def tries(
    limits: Limits,
    machine: Machine = advance,
    kinds: Collection[EventKind] = tuple(EventKind),
    also: Collection[Event] = (),
) -> Iterator[Try]:
    """Every try, those after the fewest events first.

    A wrong move is told and not followed: only where the end comes nearer, and where our machine goes,
    too. So the walk ends, whatever the machine, and any difference from ours is met on the way. Live
    machines are told the events of ``also``, too; where these lead is not followed.
    """
    told = {state: offers(state, limits, kinds) for state in AgentState}
    seen = {Control()}
    waiting = deque(seen)
    while waiting:
        before = waiting.popleft()
        for event in told[before.state]:
            tried = tell_machine(machine, before, event, limits)
            yield tried
            after = tried.after
            if not isinstance(after, Control) or after in seen:
                continue
            nearer = rank(after, limits) < rank(before, limits)
            if nearer and after == tell_machine(advance, before, event, limits).after:
                seen.add(after)
                waiting.append(after)
        if before.state in LIVE:
            yield from (tell_machine(machine, before, event, limits) for event in also)


def fault(tried: Try, limits: Limits) -> str | None:
    """What is wrong with one move, in words; ``None`` if it is as the tables say."""
    before, event, after, allowed = tried
    told = f"{event.kind.name} in {before.state.name}"
    if isinstance(after, Exception):
        right = not allowed and isinstance(after, IllegalTransition)
        return None if right else f"{told} came to {type(after).__name__}: {after}"
    if after.state not in allowed:
        return f"{told} was accepted, and the table does not allow it"
    if not 0 <= rank(after, limits) < rank(before, limits):
        return f"{told} brings the end no nearer: {rank(before, limits)} -> {rank(after, limits)} steps left"
    due = reason_due(before, event, limits)
    if after.stop is not due or (after.state is TERMINATED) is not (due is not None):
        return f"{told} went to {after.state.name} for {_name(after.stop)}; due was {_name(due)}"
    return None


def _name(reason: StopReason | None) -> str:
    return reason.name if reason else "no reason"


class Walk(NamedTuple):
    """What was found on a walk through every reachable control."""

    limits: Limits
    states: int
    transitions: int
    refusals: int
    longest: int  # in events; 0 where there is a cycle
    faults: tuple[str, ...]

    @property
    def verdict(self) -> str:
        if self.faults:
            return f"BROKEN: {self.faults[0]}"
        return f"KEPT: every run ends, within {self.longest} events, and says why"


def walk(limits: Limits, machine: Machine = advance, kinds: Collection[EventKind] = tuple(EventKind)) -> Walk:
    """Walk through every control the machine can reach under these limits, and judge each move."""
    graph: dict[Control, set[Control]] = {Control(): set()}
    faults: dict[str, None] = {}  # in the order found, each once
    told: set[EventKind] = set()
    transitions = refusals = 0
    for tried in tries(limits, machine, kinds):
        if wrong := fault(tried, limits):
            faults[wrong] = None
        if not isinstance(tried.after, Control):
            refusals += 1
            continue
        transitions += 1
        told.add(tried.event.kind)
        graph[tried.before].add(tried.after)
        graph.setdefault(tried.after, set())
    never = [kind for kind in EventKind if kind not in told]
    missing = set(StopReason) - {control.stop for control in graph}
    faults |= dict.fromkeys(f"{kind.name} was accepted nowhere" for kind in never)
    faults |= dict.fromkeys(f"{reason.name} was never reached" for reason in StopReason if reason in missing)
    faults |= dict.fromkeys(
        f"a person cannot stop the run from {control.state.name}"
        for control, reached in graph.items()
        if control.state in LIVE and not any(after.stop is StopReason.HUMAN for after in reached)
    )
    try:
        longest = longest_path(graph)
    except CycleError as found:
        longest, way_back = 0, [control.state.name for control in reversed(found.args[1])]
        faults = {f"there is a circle: {' -> '.join(way_back)}": None} | faults
    if longest and longest != worst_case_steps(limits):
        faults[f"the longest run has {longest} events, and {worst_case_steps(limits)} were promised"] = None
    return Walk(limits, len(graph), transitions, refusals, longest, tuple(faults))


def longest_path(graph: dict[Control, set[Control]]) -> int:
    """The longest way from ``Control()``, in steps. Raises ``CycleError`` where one can go in a circle."""
    steps: dict[Control, int] = {}
    for control in TopologicalSorter(graph).static_order():  # what follows a control comes before it
        steps[control] = max((1 + steps[after] for after in graph[control]), default=0)
    return steps[Control()]


# --- The story --------------------------------------------------------------------------------


def forgetful(control: Control, event: Event, limits: Limits) -> Control:
    """Our machine, but history is compacted after each round, and the counters with it."""
    after = advance(control, event, limits)
    return after._replace(rounds=1) if event.kind is EventKind.OBSERVED and not after.stop else after


ROUND = (
    Event(EventKind.MODEL_CALL),
    Event(EventKind.ACTION_CHOSEN, calls=1),
    Event(EventKind.SUBMITTED, calls=1),
    Event(EventKind.TOOL_CALL),
    Event(EventKind.OBSERVED, calls=1),
)
#: 北京: the weather, an attraction, the answer.
THREE_ROUNDS = (
    Event(EventKind.TASK_ARRIVED),
    Event(EventKind.PERCEIVED),
    *ROUND,
    *ROUND,
    Event(EventKind.MODEL_CALL),
    Event(EventKind.ANSWER_GIVEN),
)
SMALL = Limits(rounds=3, model_calls=1, tool_calls=1, effects=1, failures=2, tokens=1, cost=1.0, seconds=1.0)


def one_run(machine: Machine) -> Control:
    """Tell the machine the run of three rounds, and return where it ended."""
    control = Control()
    for event in THREE_ROUNDS:
        control = machine(control, event, Limits())
    return control


def demo(tell: Telling) -> None:
    """Two machines that one happy run cannot tell apart, and the walk that can."""
    machines: dict[str, Machine] = {"a machine that forgets": forgetful, "our machine": advance}
    tell.heading("A test of one run: 北京, three rounds")
    for name, machine in machines.items():
        tell(f"{name}: {len(THREE_ROUNDS)} events, then {_name(one_run(machine).stop)}")
    tell("Both pass.")
    for name, machine in machines.items():
        tell.heading(f"A walk through every run: {name}")
        found = walk(SMALL, machine)
        tell.table(_rows(found))
        tell(found.verdict, RED if found.faults else GREEN)


def _rows(found: Walk) -> list[tuple[str, object]]:
    limits = found.limits
    return [
        ("limits", f"rounds {limits.rounds}, effects {limits.effects}, failures in a row {limits.failures}"),
        ("controls reached", found.states),
        ("events accepted", found.transitions),
        ("events refused", found.refusals),
        ("longest run", f"{found.longest} events" if found.longest else "has no end"),
        ("worst case promised", f"2 + 3 * rounds + effects = {worst_case_steps(limits)} events"),
    ]
