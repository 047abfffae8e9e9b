"""What a machine promises: plain functions of one ``advance``, used on ours, on wrong ones and on a reader's.

``check_machine(advance)`` raises ``BrokenPromise`` with the shortest story that breaks a promise, told
event by event. ``PROMISES`` holds the same promises one by one, under the names the gallery uses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import asdict
from functools import lru_cache, partial
from itertools import tee
from typing import Any, NamedTuple

from agentloop import (
    REASONING,
    TERMINATED,
    Control,
    Event,
    EventKind,
    IllegalTransition,
    Limits,
    StopReason,
    rank,
)
from chapters.ch03_it_must_stop import (
    ENTERS_A_ROUND,
    LIMIT_REASONS,
    SPENT,
    Machine,
    Try,
    failures_in_a_row,
    limits_reached,
    reason_due,
    tries,
)


class BrokenPromise(AssertionError):
    """A promise is broken; the message is the story, in plain words."""


Promise = Callable[[Try, Limits], str | None]


# --- The promises: what is wrong with one try, or None ----------------------------------------


def it_answers_or_refuses(tried: Try, limits: Limits) -> str | None:
    """Every event is answered with a Control or refused with IllegalTransition."""
    if isinstance(tried.after, Control | IllegalTransition):
        return None
    return f"the machine broke down with {type(tried.after).__name__}: {tried.after}"


def no_illegal_move(tried: Try, limits: Limits) -> str | None:
    """What the table does not allow is refused."""
    before, event, after, allowed = tried
    if not isinstance(after, Control) or after.state in allowed:
        return None
    if not allowed:
        when = "after the run had ended" if before.state is TERMINATED else f"in {before.state.name}"
        return f"{event.kind.name} accepted {when}"
    names = " or ".join(sorted(state.name for state in allowed))
    return f"{event.kind.name} in {before.state.name} may lead to {names}, and led to {after.state.name}"


def no_legal_move_refused(tried: Try, limits: Limits) -> str | None:
    """What the table allows is accepted, and a report of what was spent is never refused."""
    if isinstance(tried.after, Control) or not tried.allowed:
        return None
    return f"{tried.event.kind.name} in {tried.before.state.name} refused, and the table allows it"


def rank_falls(tried: Try, limits: Limits) -> str | None:
    """Every accepted event brings the end nearer, so every run ends."""
    before, event, after, _ = tried
    if not isinstance(after, Control) or 0 <= rank(after, limits) < rank(before, limits):
        return None
    left = f"{rank(before, limits)} steps were left before {event.kind.name}, {rank(after, limits)} after it"
    return f"{left}: a run may go on for ever"


def termination_absorbs(tried: Try, limits: Limits) -> str | None:
    """Nothing follows an end."""
    if tried.before.state is not TERMINATED or not isinstance(tried.after, Control):
        return None
    return f"{tried.event.kind.name} accepted after the run had ended"


def limit_is_exact(tried: Try, limits: Limits) -> str | None:
    """A run ends for a limit when a limit is reached: not one step later, not one step sooner."""
    before, event, after, _ = tried
    if not tried.allowed or not isinstance(after, Control) or _overrules(event):
        return None
    reached = limits_reached(before, event, limits)
    if reached and after.stop not in LIMIT_REASONS:
        return f"{_names(reached)} is reached, and the run did not end for it"
    if after.stop in LIMIT_REASONS and after.stop not in reached:
        return f"the run ended for {_name(after.stop)}, and that limit is not reached"
    return None


def first_reason_in_order(tried: Try, limits: Limits) -> str | None:
    """Of several limits reached at once, the first in the order of StopReason is named."""
    before, event, after, _ = tried
    if not tried.allowed or not isinstance(after, Control) or _overrules(event):
        return None
    reached = limits_reached(before, event, limits)
    if after.stop not in reached or after.stop is reached[0]:
        return None
    return f"{_names(reached)} are reached at once, and {_name(after.stop)} was named, not the first"


def ending_has_its_reason(tried: Try, limits: Limits) -> str | None:
    """A run has a reason exactly when it has ended, and it is the reason that ended it."""
    before, event, after, _ = tried
    if not isinstance(after, Control) or before.state is TERMINATED:
        return None
    if (after.state is TERMINATED) is not (after.stop is not None):
        return f"the run stands in {after.state.name} with {_name(after.stop)}"
    if after.stop is None or after.stop in LIMIT_REASONS and not _overrules(event):
        return None
    due = reason_due(before, event, limits)
    return None if after.stop is due else f"the run ended for {_name(after.stop)}, and {_name(due)} was due"


def answer_wins(tried: Try, limits: Limits) -> str | None:
    """A final answer in hand wins against every limit."""
    if tried.event.kind is not EventKind.ANSWER_GIVEN or not tried.allowed:
        return None
    return _ended_for(StopReason.FINAL_ANSWER, tried)


def a_person_can_always_stop(tried: Try, limits: Limits) -> str | None:
    """From every live state a person can stop the run."""
    if tried.event.kind is not EventKind.INTERRUPTED or not tried.allowed:
        return None
    return _ended_for(StopReason.HUMAN, tried)


def an_error_always_ends(tried: Try, limits: Limits) -> str | None:
    """From every live state an error ends the run; no guard can refuse it."""
    if tried.event.kind is not EventKind.HOOK_FAILED or not tried.allowed:
        return None
    return _ended_for(StopReason.ERROR, tried)


def nobody_else_names_a_limit(tried: Try, limits: Limits) -> str | None:
    """A stop rule names its own reasons; limits, errors and final answers are the machine's to name."""
    event, after = tried.event, tried.after
    if event.stop is None or not isinstance(after, Control) or tried.allowed:
        return None
    return f"{event.kind.name} was let through with the verdict {event.stop.name}"


def spent_is_booked(tried: Try, limits: Limits) -> str | None:
    """What was spent is added, whatever comes next."""
    before, event, after, _ = tried
    if not tried.allowed or not isinstance(after, Control):
        return None
    for field, due, found in (
        ("tokens", before.tokens + event.tokens, after.tokens),
        ("cost", before.cost + event.cost, after.cost),
    ):
        if found != due and due == due:
            return f"{field} are {found}, and {due} were spent"
    return None


def counters_count(tried: Try, limits: Limits) -> str | None:
    """A round is one visit to REASONING, each effect is counted once, and what a limit refused is not."""
    before, event, after, _ = tried
    if not tried.allowed or not isinstance(after, Control):
        return None
    spent = SPENT.get(event.kind) if after.stop is None else None
    entered = after.state is REASONING and event.kind in ENTERS_A_ROUND
    for field, more in (
        ("rounds", int(entered)),
        ("model_calls", spent.model_calls if spent else 0),
        ("tool_calls", spent.tool_calls if spent else 0),
        ("effects", spent.effects if spent else 0),
    ):
        due, found = getattr(before, field) + more, getattr(after, field)
        if found != due:
            return f"{field} went from {getattr(before, field)} to {found}, and should be {due}"
    return None


def failures_are_counted_in_a_row(tried: Try, limits: Limits) -> str | None:
    """A round in which nothing succeeded is one failure more; a success begins again at none."""
    due = failures_in_a_row(tried.before, tried.event)
    if not tried.allowed or not isinstance(tried.after, Control) or tried.after.failures == due:
        return None
    return f"there were {tried.before.failures} failures in a row, now {tried.after.failures}; due are {due}"


def each_call_is_awaited(tried: Try, limits: Limits) -> str | None:
    """As many calls are pending as were chosen, until they are observed."""
    before, event, after, _ = tried
    if not tried.allowed or not isinstance(after, Control):
        return None
    due = {EventKind.ACTION_CHOSEN: event.calls, EventKind.OBSERVED: 0}.get(event.kind, before.pending)
    return None if after.pending == due else f"{after.pending} calls are pending, and should be {due}"


def time_never_goes_back(tried: Try, limits: Limits) -> str | None:
    """The run's time is the latest that was told."""
    before, event, after, _ = tried
    if not tried.allowed or not isinstance(after, Control):
        return None
    due = event.at if event.at > before.seconds else before.seconds
    return None if after.seconds == due else f"the run's time is {after.seconds} s, and should be {due} s"


def no_strange_number_gets_through(tried: Try, limits: Limits) -> str | None:
    """Nothing can be spent backwards, and a NaN in what was spent ends the run, as infinity does."""
    event, after = tried.event, tried.after
    if not isinstance(after, Control) or after.stop is not None:
        return None
    if event.tokens < 0 or event.cost < 0:
        return "a negative amount was accepted: a budget can be refilled"
    if not math.isfinite(after.tokens) or not math.isfinite(after.cost):
        return f"the run goes on with {after.tokens} tokens and a cost of {after.cost}"
    return None


def _overrules(event: Event) -> bool:
    """Whether the event brings a reason that no limit overrules."""
    return event.stop is StopReason.HUMAN or event.kind in (
        EventKind.ANSWER_GIVEN,
        EventKind.INTERRUPTED,
        EventKind.HOOK_FAILED,
        EventKind.ACCOUNT_CLOSED,
    )


def _ended_for(reason: StopReason, tried: Try) -> str | None:
    after = tried.after
    if not isinstance(after, Control):
        return f"{tried.event.kind.name} in {tried.before.state.name} was refused"
    if after.state is TERMINATED and after.stop is reason:
        return None
    return f"{tried.event.kind.name} led to {after.state.name}, {_name(after.stop)}; due was {reason.name}"


def _name(reason: StopReason | None) -> str:
    return reason.name if reason else "no reason"


def _names(reasons: Iterable[StopReason]) -> str:
    return ", ".join(reason.name for reason in reasons)


#: Of one try each, in the order in which a story is best told.
OF_ONE_TRY: tuple[Promise, ...] = (
    it_answers_or_refuses,
    termination_absorbs,
    nobody_else_names_a_limit,
    no_strange_number_gets_through,
    a_person_can_always_stop,
    an_error_always_ends,
    answer_wins,
    no_illegal_move,
    no_legal_move_refused,
    ending_has_its_reason,
    limit_is_exact,
    first_reason_in_order,
    rank_falls,
    spent_is_booked,
    counters_count,
    failures_are_counted_in_a_row,
    each_call_is_awaited,
    time_never_goes_back,
)

# --- Checking ---------------------------------------------------------------------------------

#: Small enough to go everywhere; each has room below, or for more of, another of its limits.
SMALL = (
    Limits(rounds=3, model_calls=1, tool_calls=1, effects=1, failures=2, tokens=1, cost=1.0, seconds=1.0),
    Limits(rounds=1, model_calls=2, tool_calls=2, effects=3, failures=1, tokens=1, cost=1.0, seconds=1.0),
    Limits(rounds=1, model_calls=1, tool_calls=1, effects=2, failures=2, tokens=1, cost=1.0, seconds=1.0),
    Limits(rounds=1, model_calls=2, tool_calls=2, effects=1, failures=1, tokens=2, cost=1.0, seconds=1.0),
    Limits(rounds=1, model_calls=1, tool_calls=1, effects=1, failures=1, tokens=1, cost=2.0, seconds=1.0),
    Limits(rounds=1, model_calls=1, tool_calls=1, effects=1, failures=1, tokens=1, cost=1.0, seconds=2.0),
)

#: Amounts that no honest report holds.
STRANGE: tuple[Any, ...] = (math.nan, math.inf, -1, -math.inf)


def strange_events() -> list[Event]:
    """Reports of such amounts."""
    plain = Event(EventKind.OTHER_EFFECT)
    fields = ("tokens", "cost", "at", "needs_tokens", "needs_seconds")
    return [plain._replace(**{field: amount}) for field in fields for amount in STRANGE]


class Break(NamedTuple):
    """How a promise was broken: under which limits, by which events, and what is wrong with the last."""

    promise: Promise
    limits: Limits
    way: tuple[Try, ...]
    wrong: str

    def __str__(self) -> str:
        lines = [f"  event {number}: {told(tried)}" for number, tried in enumerate(self.way, 1)]
        limits = ", ".join(f"{name}={value}" for name, value in asdict(self.limits).items())
        return "\n".join(
            [
                f"Broken promise: {self.promise.__doc__}",
                f"({limits})",
                *lines,
                f"event {len(lines)}: {self.wrong}",
            ]
        )


def shortest_breaks(advance: Machine, promises: Iterable[Promise]) -> dict[Promise, Break]:
    """For each promise that is broken under any small limits, the shortest story of it."""
    shortest: dict[Promise, Break] = {}
    for limits in SMALL:
        _look_for_shorter(advance, limits, tuple(promises), shortest)
    return shortest


def _look_for_shorter(
    advance: Machine, limits: Limits, promises: tuple[Promise, ...], shortest: dict[Promise, Break]
) -> None:
    """Note in ``shortest`` each break with fewer events than the one it holds; fewer events come first."""

    def length(promise: Promise) -> float:
        return len(shortest[promise].way) if promise in shortest else math.inf

    came_by: dict[Control, Try] = {}
    before: Control | None = None
    way: list[Try] = []
    for tried in copy(_telling_tries(advance, limits)):
        if tried.before is not before:
            before, way = tried.before, _way_to(tried.before, came_by)
            promises = tuple(promise for promise in promises if length(promise) > len(way) + 1)
        if not promises:
            return
        if isinstance(tried.after, Control) and tried.after != Control():
            came_by.setdefault(tried.after, tried)
        for promise in promises:
            wrong = promise(tried, limits)
            if wrong and length(promise) > len(way) + 1:
                shortest[promise] = Break(promise, limits, (*way, tried), wrong)


@lru_cache(maxsize=len(SMALL))
def _telling_tries(advance: Machine, limits: Limits) -> Iterator[Try]:
    """The tries that could break a promise: what is rightly refused keeps them all.

    Copies of what is returned start at the beginning, and remember together how far the walk has come,
    so that the promises of one machine, asked one by one, cost one walk.
    """
    tried = tries(limits, advance, also=strange_events())
    return tee((one for one in tried if one.allowed or not isinstance(one.after, IllegalTransition)), 1)[0]


def _way_to(control: Control, came_by: Mapping[Control, Try]) -> list[Try]:
    way: list[Try] = []
    while control in came_by:
        way.append(came_by[control])
        control = way[-1].before
    return way[::-1]


def told(tried: Try) -> str:
    """One accepted event: ``OBSERVED (calls=1): WAITING_FOR_OBSERVATION -> REASONING``."""
    before, event, after, _ = tried
    if not isinstance(after, Control):
        return f"{told_event(event)}: refused in {before.state.name}"
    reason = f" ({after.stop.name})" if after.stop else ""
    return f"{told_event(event)}: {before.state.name} -> {after.state.name}{reason}"


def told_event(event: Event) -> str:
    """The kind of an event, and what it brings beyond nothing."""
    brings = [
        f"{name}={getattr(value, 'name', value)}"
        for name, value, nothing in zip(event._fields[1:], event[1:], Event(event.kind)[1:], strict=True)
        if value != nothing and name != "closed"
    ]
    if event.closed is not None:
        brings.append(f"closed={_name(event.closed.stop)}")
    return f"{event.kind.name} ({', '.join(brings)})" if brings else event.kind.name


def check_machine(advance: Machine) -> None:
    """Raise ``BrokenPromise`` with the shortest story that breaks any promise of the machine."""
    check_promises(advance, OF_ONE_TRY)


def check_promises(advance: Machine, promises: Iterable[Promise]) -> None:
    """Raise ``BrokenPromise`` with the shortest story that breaks any of these promises."""
    breaks = shortest_breaks(advance, promises)
    if breaks:
        raise BrokenPromise(str(min(breaks.values(), key=_preference)))


def _preference(found: Break) -> tuple[int, int]:
    return len(found.way), OF_ONE_TRY.index(found.promise)


#: The same promises one by one, each a check of a whole machine.
PROMISES: dict[str, Callable[[Machine], None]] = {
    promise.__name__: partial(check_promises, promises=(promise,)) for promise in OF_ONE_TRY
}
