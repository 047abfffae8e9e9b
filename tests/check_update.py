"""What a read-modify-write promises: plain functions of anything called like ``update``.

``update(board, writer, change, tries=10)`` is a program on a ``Board`` of ours. ``check_update(update)``
raises ``BrokenPromise`` with a short story. ``PROMISES`` holds the same promises one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentloop import Journal, LimitReached, Limits, Program, Sleep, Together, World, bounded, drive
from chapters.ch33_shared_state import REPLACE, Board, Snapshot
from fake_llm import FakeClock
from tests.check_machine import BrokenPromise
from tests.check_toolbox import expect

Update = Callable[..., Program[Any]]

#: Room for as many effects as any promise here needs, and not for ever.
ENOUGH = Limits(effects=2000, seconds=1e6)


def board() -> Board:
    return Board({"count": REPLACE, "log": REPLACE})


def one_more(snapshot: Snapshot) -> dict[str, Any]:
    return {"count": (snapshot.value("count") or 0) + 1}


def driven(program: Program[Any], journal: Journal | None = None, limits: Limits = ENOUGH) -> Any:
    clock = FakeClock()
    world = World(clock=clock.now, sleep=clock.sleep, inline=True)
    return drive(bounded(program, limits), world, journal)


# --- The promises -----------------------------------------------------------------------------


def many_at_once_are_all_counted(update: Update) -> None:
    """Loops that add to one number side by side, in whatever step, lose none of what they added."""

    @settings(max_examples=30, deadline=None, database=None)
    @given(st.lists(st.integers(0, 3), min_size=1, max_size=5))
    @example([0, 0])
    def counted(late: list[int]) -> None:
        shared = board()

        def adding(name: str, waits: int) -> Program[list[Any]]:
            for _ in range(waits):
                yield Sleep(1)
            came = []
            for _ in range(2):
                came.append((yield from update(shared, name, one_more, tries=50)))
            return came

        programs = tuple(adding(f"loop {number}", waits) for number, waits in enumerate(late))

        def all_of_them() -> Program[Any]:
            return (yield Together(programs)).value

        versions = [written for came in driven(all_of_them()) for written in came]
        count, due = shared.read().value("count"), 2 * len(late)
        story = (
            f"{len(late)} loops added 1 twice each, all of them told it was written, and the sum is {count}"
        )
        expect(count == due, story)
        expect(sorted(versions) == list(range(1, due + 1)), f"versions told: {versions}")

    counted()


def after_a_conflict_it_looks_again(update: Update) -> None:
    """What is written after a conflict follows from what the board holds by then."""
    shared = board()
    seen: list[int] = []

    def slow(snapshot: Snapshot) -> dict[str, Any]:
        seen.append(snapshot.version)
        if len(seen) == 1:
            shared.write("another", {"count": 40}, snapshot.version)
        return one_more(snapshot)

    came = driven(update(shared, "甲", slow))
    held = shared.read().value("count")
    expect((came, held) == (2, 41), f"40 came between, and it wrote {held}, and says {came!r}")
    expect(seen == [0, 1], f"what to write was worked out from versions {seen}, and 0 and then 1 were there")


def it_gives_up_and_says_what_stood_in_its_way(update: Update) -> None:
    """After so many tries it ends, and its value is the last conflict."""
    for tries in (1, 3):
        shared, asked = board(), [0]

        def always_late(
            snapshot: Snapshot, shared: Board = shared, asked: list[int] = asked
        ) -> dict[str, Any]:
            asked[0] += 1
            shared.write("another", {"count": -asked[0]}, snapshot.version)
            return one_more(snapshot)

        try:
            came = driven(update(shared, "甲", always_late, tries=tries))
        except LimitReached:
            raise BrokenPromise("somebody was always faster, and it tried again without end") from None
        expect(asked[0] == tries, f"it tried {asked[0]} times, and was allowed {tries}")
        standing = None if isinstance(came, int) else came.clashes["count"].value
        expect(standing == -tries, f"-{tries} stood in its way when it gave up, and its value is {came!r}")


def a_replay_does_not_write_again(update: Update) -> None:
    """Driven again on its journal it comes to the same, and touches the board no more."""
    shared, journal = board(), Journal()
    came = driven(update(shared, "甲", one_more), journal)
    again = driven(update(shared, "甲", one_more), journal)
    version = shared.read().version
    expect((again, version) == (came, 1), f"it came to {came}, then {again}, and the board is at {version}")


def tries_are_at_least_one(update: Update) -> None:
    """No tries at all, and what is no number of tries, is a ``ValueError`` that says so."""
    for tries in (0, -1, True, 1.0):
        try:
            driven(update(board(), "甲", one_more, tries=tries))
        except ValueError as error:
            expect("at least 1" in str(error), f"tries={tries!r} is refused with {error}")
        else:
            raise BrokenPromise(f"tries={tries!r} was taken for a number of tries")


PROMISES: dict[str, Callable[[Update], None]] = {
    promise.__name__: promise
    for promise in (
        after_a_conflict_it_looks_again,
        many_at_once_are_all_counted,
        it_gives_up_and_says_what_stood_in_its_way,
        a_replay_does_not_write_again,
        tries_are_at_least_one,
    )
}


def check_update(update: Update) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(update)
