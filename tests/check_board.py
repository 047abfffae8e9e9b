"""What a shared board promises: plain functions of anything made and used like ``Board``.

``make(rules)`` returns a board with ``read`` and ``write``. ``check_board(make)`` raises ``BrokenPromise``
with a short story. ``PROMISES`` holds the same promises one by one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from chapters.ch33_shared_state import APPEND, MAXIMUM, REPLACE, TOTAL, UNION, Rule
from tests.check_machine import BrokenPromise
from tests.check_toolbox import expect

Make = Callable[[Mapping[str, Rule]], Any]

RULES = {
    "goal": REPLACE,
    "budget": REPLACE,
    "notes": APPEND,
    "cities": UNION,
    "best": MAXIMUM,
    "spent": TOTAL,
}
PATIENCE = 0.2  # seconds that one thread waits for another, where ours waits for the lock


def contents(board: Any) -> dict[str, tuple[Any, int, str]]:
    """All that a board holds: of each key its value, its version and its writer."""
    entries = board.read().entries
    return {key: (entry.value, entry.version, entry.writer) for key, entry in entries.items()}


def put(board: Any, writer: str, changes: Mapping[str, Any], seen: int | None = None) -> int:
    """A write that must succeed, on the latest version where none is named."""
    written = board.write(writer, changes, board.read().version if seen is None else seen)
    expect(isinstance(written, int), f"{writer} wrote {changes}, nobody came between, and it was {written}")
    return int(written)


def clash(board: Any, writer: str, changes: Mapping[str, Any], seen: int) -> Any:
    """A write that must not succeed."""
    written = board.write(writer, changes, seen)
    story = f"{writer} saw version {seen} and wrote {changes}, over what is newer, and was told {written!r}"
    expect(not isinstance(written, int), story)
    return written


# --- The promises -----------------------------------------------------------------------------


def what_is_written_is_read(make: Make) -> None:
    """A key begins as its rule says, and then holds what was written last, by whom, in which version."""
    board = make(RULES)
    due: dict[str, tuple[Any, int, str]] = {key: (rule.start, 0, "") for key, rule in RULES.items()}
    expect(contents(board) == due, f"a new board holds {contents(board)}, and its rules say {due}")
    for version, (writer, key, value) in enumerate(
        [("甲", "goal", "去北京"), ("乙", "budget", 100), ("甲", "budget", 80)], 1
    ):
        told = put(board, writer, {key: value})
        due[key] = value, version, writer
        expect(told == version, f"the write of number {version} was told version {told}")
        expect(contents(board) == due, f"after {writer} wrote {key} = {value!r} it holds {contents(board)}")
        expect(board.read().version == version, f"after {version} writes it is at {board.read().version}")


def what_is_newer_is_not_overwritten(make: Make) -> None:
    """Who has not seen the latest version of a key does not replace it: no update is lost."""
    board = make(RULES)
    put(board, "家里", {"budget": 100})
    put(board, "甲", {"budget": 40}, seen=1)
    before = contents(board)
    clash(board, "乙", {"budget": 70}, seen=1)
    expect(contents(board) == before, f"a refused write left {contents(board)} of {before}")
    put(board, "乙", {"budget": 10}, seen=2)


def a_conflict_is_named(make: Make) -> None:
    """A conflict tells who wrote what in which version, which version was seen, and which is the latest."""
    board = make(RULES)
    put(board, "甲", {"budget": 40, "notes": ["故宫"]})
    put(board, "丙", {"goal": "省钱"})
    found = clash(board, "乙", {"budget": 70, "goal": "玩"}, seen=0)
    told = (found.writer, found.seen, found.version)
    expect(told == ("乙", 0, 2), f"乙 had seen version 0 of 2, and the conflict tells of {told}")
    newer = {key: tuple(entry) for key, entry in found.clashes.items()}
    due = {"budget": (40, 1, "甲"), "goal": ("省钱", 2, "丙")}
    expect(newer == due, f"it clashed with {due}, and the conflict names {newer}")
    for word in ("甲", "丙", "40", "省钱", "budget"):
        expect(word in str(found), f"in words the conflict does not say {word}: {found}")


def different_keys_do_not_clash(make: Make) -> None:
    """Writers of different keys do not get into each other's way."""
    board = make(RULES)
    put(board, "甲", {"budget": 40}, seen=0)
    put(board, "乙", {"goal": "省钱"}, seen=0)
    due = {"budget": (40, 1, "甲"), "goal": ("省钱", 2, "乙")}
    held = contents(board)
    expect({key: held[key] for key in due} == due, f"it holds {held}, and two keys were written: {due}")


def what_can_be_joined_never_clashes(make: Make) -> None:
    """A key with a merge rule takes each write, whatever its writer had seen, and loses none."""
    board = make(RULES)
    for writer in ("甲", "乙"):
        changes = {"notes": [writer], "cities": ["北京", writer], "best": len(writer), "spent": 30}
        put(board, writer, changes, seen=0)
    values = {key: entry[0] for key, entry in contents(board).items()}
    due = {"notes": ["甲", "乙"], "cities": sorted(["北京", "甲", "乙"]), "best": 1, "spent": 60}
    expect({key: values[key] for key in due} == due, f"two writers came to {values}, and it should be {due}")


def a_write_is_whole_or_nothing(make: Make) -> None:
    """Where one key of a write clashes or cannot be joined, none of its keys is written."""
    board = make(RULES)
    put(board, "甲", {"budget": 40})
    before = contents(board)
    clash(board, "乙", {"goal": "玩", "notes": ["长城"], "budget": 70}, seen=0)
    expect(contents(board) == before, f"one key of three clashed, and the board holds {contents(board)}")
    try:
        board.write("乙", {"goal": "玩", "budget": 10, "notes": "no list"}, 1)
    except TypeError:
        pass
    else:
        raise BrokenPromise("a text was appended to a list, and no TypeError was raised")
    expect(contents(board) == before, f"one key could not be joined, and the board holds {contents(board)}")


class Write(NamedTuple):
    """One write of a random program: who writes what, and how many versions its writer is behind."""

    writer: str
    changes: dict[str, Any]
    behind: int


texts = st.sampled_from(["北京", "上海", "故宫"])
VALUES = {
    "goal": texts,
    "budget": st.integers(0, 9),
    "notes": st.lists(texts, max_size=2),
    "cities": st.lists(texts, max_size=2),
    "best": st.integers(-3, 3),
    "spent": st.integers(-3, 3),
}
changes = st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3, unique=True).flatmap(
    lambda keys: st.fixed_dictionaries({key: VALUES[key] for key in keys})
)
programs = st.lists(st.builds(Write, st.sampled_from("甲乙丙"), changes, st.integers(0, 3)), max_size=12)


def any_writers_come_to_what_one_after_another_would(make: Make) -> None:
    """Whatever is written by whom on which version, the board is what the accepted writes make in turn."""

    @settings(max_examples=60, deadline=None, database=None)
    @given(programs)
    @example([Write("甲", {"goal": "北京"}, 0), Write("乙", {"goal": "上海"}, 1)])
    def same(writes: list[Write]) -> None:
        board = make(RULES)
        model: dict[str, tuple[Any, int, str]] = {key: (rule.start, 0, "") for key, rule in RULES.items()}
        version = 0
        for write in writes:
            seen = max(0, version - write.behind)
            newer = [key for key in write.changes if RULES[key].merge is None and model[key][1] > seen]
            written = board.write(write.writer, write.changes, seen)
            told = f"at version {version}, {write.writer} had seen {seen} and wrote {write.changes}"
            if newer:
                expect(not isinstance(written, int), f"{told}: {newer} are newer, and it was {written!r}")
                expect(sorted(written.clashes) == sorted(newer), f"{told}: {newer} are newer, not {written}")
            else:
                version += 1
                expect(written == version, f"{told}: version {version} was due, and it was {written!r}")
                for key, value in write.changes.items():
                    merge = RULES[key].merge
                    model[key] = merge(model[key][0], value) if merge else value, version, write.writer
            expect(contents(board) == model, f"{told}: it holds {contents(board)}, and {model} was due")

    same()


def a_snapshot_stays_as_it_was(make: Make) -> None:
    """What was read, written or joined and is changed by its owner later is not changed on the board."""

    def careless(stands: list[str], comes: list[str]) -> list[str]:
        stands.extend(comes)
        return stands

    board = make({"plan": REPLACE, "notes": Rule([], careless)})
    plan = {"day": ["故宫"]}
    put(board, "甲", {"plan": plan, "notes": ["晴"]})
    early = board.read()
    plan["day"].append("changed by its writer")
    board.read().entries["plan"].value["day"].append("changed by a reader")
    put(board, "乙", {"notes": ["热"]})
    day, notes = board.read().entries["plan"].value["day"], board.read().entries["notes"].value
    expect(day == ["故宫"], f"故宫 was written, nobody wrote again, and the board holds {day}")
    expect(notes == ["晴", "热"], f"晴 and then 热 were written, and the board holds {notes}")
    then = early.entries["notes"].value
    expect(then == ["晴"], f"a snapshot taken at version 1 was changed by the next write: {then}")


class Meanwhile:
    """A merge rule in the middle of which something else is done on another thread."""

    def __init__(self, deed: Callable[[], object]) -> None:
        self._deed = deed
        self._thread: threading.Thread | None = None

    def merge(self, stands: int, comes: int) -> int:
        """Add, but let the other thread go first, if it does not have to wait for us."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._deed, daemon=True)
            self._thread.start()
            self._thread.join(PATIENCE)
        return stands + comes

    def join(self) -> None:
        assert self._thread is not None
        self._thread.join(10 * PATIENCE)
        expect(not self._thread.is_alive(), "two threads use one board, and wait for each other for ever")


def nobody_sees_half_a_write(make: Make) -> None:
    """Who reads while another thread writes sees all of the write, or nothing of it."""
    seen: list[Any] = []
    meanwhile = Meanwhile(lambda: seen.append(board.read()))
    board = make({"from": TOTAL, "to": Rule(0, meanwhile.merge)})
    put(board, "甲", {"from": -30, "to": 30})
    meanwhile.join()
    [snapshot] = seen
    read = (snapshot.version, snapshot.entries["from"].value, snapshot.entries["to"].value)
    expect(read in ((0, 0, 0), (1, -30, 30)), f"30 yuan moved in one write, and a reader saw {read}")


def threads_lose_no_update(make: Make) -> None:
    """Two threads that write at the same moment come to what one after the other would."""
    meanwhile = Meanwhile(lambda: board.write("乙", {"spent": 30}, 0))
    board = make({"spent": Rule(0, meanwhile.merge)})
    put(board, "甲", {"spent": 60}, seen=0)
    meanwhile.join()
    value, version, _ = contents(board)["spent"]
    told = f"two threads wrote 60 and 30 at once, and the board holds {value} in version {version}"
    expect((value, version) == (90, 2), told)


def what_makes_no_sense_is_refused(make: Make) -> None:
    """A key that there is not, a version that is still to come, and no change at all: ``ValueError``."""
    board = make({"budget": REPLACE, "spent": TOTAL})
    for changes, seen, wrong in (
        ({"bugdet": 1}, 0, "a key that there is not"),
        ({"budget": 1}, 1, "a version that is still to come"),
        ({"spent": 1}, 7, "a version that is still to come"),
        ({"budget": 1}, -1, "a version below 0"),
        ({}, 0, "no change at all"),
    ):
        try:
            board.write("甲", changes, seen)
        except ValueError as error:
            story = f"{wrong} is refused, but the keys are not told: {error}"
            expect(seen != 0 or "budget, spent" in str(error), story)
        else:
            raise BrokenPromise(f"{wrong} was written: {changes}, having seen version {seen}")
    expect(board.read().version == 0, f"only nonsense was written, and it is at {board.read().version}")


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        what_is_written_is_read,
        what_is_newer_is_not_overwritten,
        a_conflict_is_named,
        different_keys_do_not_clash,
        what_can_be_joined_never_clashes,
        a_write_is_whole_or_nothing,
        any_writers_come_to_what_one_after_another_would,
        a_snapshot_stays_as_it_was,
        nobody_sees_half_a_write,
        threads_lose_no_update,
        what_makes_no_sense_is_refused,
    )
}


def check_board(make: Make) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(make)
