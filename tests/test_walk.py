"""The walk of chapter 03: through every control that can be reached, by every kind of event."""

from __future__ import annotations

from itertools import product

import pytest

from agentloop import LIVE, Control, Event, EventKind, Limits, StopReason, advance, worst_case_steps
from chapters.ch03_it_must_stop import SMALL, bills, forgetful, forms, longest_path, tries, walk


def small(**changes: int) -> Limits:
    counted = {"rounds": 1, "model_calls": 1, "tool_calls": 1, "effects": 1, "failures": 1} | changes
    return Limits(**counted, tokens=1, cost=1.0, seconds=1.0)


def test_every_run_ends_and_the_counts_are_these() -> None:
    found = walk(SMALL)
    assert found.faults == ()
    assert found.verdict == "KEPT: every run ends, within 12 events, and says why"
    assert (found.states, found.transitions, found.refusals) == (3509, 17070, 74758)
    assert found.longest == worst_case_steps(SMALL) == 12


@pytest.mark.parametrize(("rounds", "effects", "failures"), [*product((1, 2), (1, 2), (1, 2))], ids=str)
def test_the_longest_run_is_the_worst_case(rounds: int, effects: int, failures: int) -> None:
    limits = small(rounds=rounds, effects=effects, failures=failures)
    assert longest_of(limits) == worst_case_steps(limits) == 2 + 3 * rounds + effects


def longest_of(limits: Limits) -> int:
    """The longest run under these limits, walked with the smallest choice of events that shows it."""
    graph: dict[Control, set[Control]] = {Control(): set()}
    waiting = [Control()]
    while waiting:
        before = waiting.pop()
        for kind in EventKind:
            for event in forms(kind):
                if event.calls > 1:
                    continue
                try:
                    after = advance(before, event, limits)
                except Exception:
                    continue
                graph[before].add(after)
                if after not in graph:
                    graph[after] = set()
                    waiting.append(after)
    return longest_path(graph)


@pytest.mark.parametrize("kind", EventKind, ids=lambda kind: kind.name)
def test_a_kind_of_event_that_is_left_out_is_missed(kind: EventKind) -> None:
    kinds = [other for other in EventKind if other is not kind]
    assert f"{kind.name} was accepted nowhere" in walk(small(), kinds=kinds).faults


def test_each_kind_is_offered_in_each_live_state() -> None:
    offered = {(tried.before.state, tried.event.kind) for tried in tries(small())}
    assert offered >= set(product(LIVE, EventKind))


def test_amounts_are_nothing_at_the_limit_and_beyond() -> None:
    limits = Limits(tokens=5)
    brought = [bill.get("tokens", 0) for bill in bills(limits)]
    assert set(brought) == {0, 4, 5, 6}


def test_each_reason_is_reached() -> None:
    reached = {tried.after.stop for tried in tries(SMALL) if isinstance(tried.after, Control)}
    assert reached == {None, *StopReason}


def test_a_circle_is_found() -> None:
    found = walk(SMALL, forgetful)
    assert found.longest == 0
    assert found.verdict == (
        "BROKEN: there is a circle: REASONING -> ACTING -> WAITING_FOR_OBSERVATION -> REASONING"
    )


def test_a_machine_that_ends_too_soon_is_found() -> None:
    def impatient(control: Control, event: Event, limits: Limits) -> Control:
        return advance(control, event, small())

    assert any("due was no reason" in fault for fault in walk(small(rounds=2), impatient).faults)


@pytest.mark.thorough
def test_a_larger_walk() -> None:
    limits = Limits(
        rounds=3, model_calls=2, tool_calls=2, effects=3, failures=2, tokens=2, cost=1.0, seconds=1.0
    )
    found = walk(limits)
    assert found.faults == ()
    assert found.longest == worst_case_steps(limits) == 14
