"""What a store on disk promises: plain functions of a class ``store(path, capacity=..., wait=...)``.

It has ``put`` and ``kept``, as chapter 28's ``Store`` has. ``PROMISES`` holds the promises by name.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentloop import Unavailable
from paradigms.store import VERSION, BrokenStore
from tests.check_machine import BrokenPromise
from tests.check_toolbox import expect

MakeStore = Callable[..., Any]
#: Any text at all: Chinese, emoji, NUL, and halves of surrogate pairs.
texts = st.text("a\0 '\"京膝\U0001f600\ud800\udfff", max_size=8)


@contextmanager
def a_path() -> Iterator[Path]:
    """Where there is no file yet."""
    with TemporaryDirectory() as folder:
        yield Path(folder) / "kept.sqlite"


def any_text_comes_back_as_it_was(store: MakeStore) -> None:
    """Shelf, name and text may be anything that Python holds, lone surrogates too, and are not changed."""
    with a_path() as path:
        kept = store(path)

        @settings(database=None, max_examples=40)
        @example("任务\ud800", "name", "text")
        @given(texts, texts, texts)
        def prove(shelf: str, name: str, text: str) -> None:
            try:
                kept.put(shelf, name, text)
                came = kept.kept(shelf)[-1:]
            except UnicodeError as error:
                raise BrokenPromise(f"{(shelf, name, text)!r} could not be kept: {error}") from error
            expect(came == [(name, text)], f"kept {(name, text)!r} on {shelf!r}, and what came is {came!r}")

        prove()


def a_later_run_finds_it(store: MakeStore) -> None:
    """What one object kept another finds on the same path: that is what a disk is for."""
    with a_path() as path:
        store(path).put("notes", "客户", "不爬山")
        found = store(path).kept("notes")
        expect(found == [("客户", "不爬山")], f"kept a text; a new store on the same file has {found}")


def the_newest_stands_last_and_nothing_twice(store: MakeStore) -> None:
    """Texts are kept in their order; one that is kept again becomes the newest, and stands once."""
    with a_path() as path:
        kept = store(path)
        for text in ("one", "two", "one"):
            kept.put("shelf", "name", text)
        found = kept.kept("shelf")
        due = [("name", "two"), ("name", "one")]
        expect(found == due, f"kept one, two, one under a name: {due} was due, and it has {found}")


def instead_takes_the_place_of_the_name_alone(store: MakeStore) -> None:
    """A text put ``instead`` replaces all of its name, and nothing else."""
    with a_path() as path:
        kept = store(path)
        for shelf, name, text in (("a", "n", "1"), ("a", "n", "2"), ("a", "m", "3"), ("b", "n", "4")):
            kept.put(shelf, name, text)
        kept.put("a", "n", "5", instead=True)
        found = {shelf: kept.kept(shelf) for shelf in ("a", "b")}
        due = {"a": [("m", "3"), ("n", "5")], "b": [("n", "4")]}
        expect(found == due, f"after a text instead of all others of its name: {due} was due, not {found}")


def what_stands_under_one_name_can_be_asked_for(store: MakeStore) -> None:
    """Who asks for one name is given its texts, and no others of the shelf."""
    with a_path() as path:
        kept = store(path)
        for shelf, name, text in (("a", "n", "1"), ("a", "m", "2"), ("a", "n", "3"), ("b", "n", "4")):
            kept.put(shelf, name, text)
        for name, due in (("n", [("n", "1"), ("n", "3")]), ("m", [("m", "2")]), ("", []), ("x", [])):
            found = kept.kept("a", name)
            expect(found == due, f"asked for the name {name!r}: {due} was due, and it has {found}")


def each_shelf_is_bounded(store: MakeStore) -> None:
    """A shelf holds its newest ``capacity`` texts, whatever stands on the others."""
    with a_path() as path:
        kept = store(path, capacity=3)
        kept.put("other", "name", "stays")
        for number in range(8):
            kept.put("shelf", f"{number}", "text")
        names = [name for name, _ in kept.kept("shelf")]
        expect(names == ["5", "6", "7"], f"of 8 texts on a shelf for 3 it keeps {names}")
        expect(kept.kept("other") == [("name", "stays")], "a full shelf has pushed a text off another one")


def many_at_once_lose_nothing(store: MakeStore) -> None:
    """Loops in several threads keep texts at the same time, and each of them is there."""
    with a_path() as path:
        shared, errors = store(path), list[BaseException]()
        opened = [shared, store(path)] * 3
        starting = threading.Barrier(len(opened))

        def keep(number: int) -> None:
            kept = opened[number]
            starting.wait()
            try:
                for each in range(5):
                    kept.put("shelf", f"{number}.{each}", "text")
                    kept.put("one", "name", f"{number}.{each}", instead=True)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=keep, args=(number,), daemon=True) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expect(not errors, f"six threads kept texts at once, and one of them was told {errors[:1]}")
        there, last = len(shared.kept("shelf")), shared.kept("one")
        expect(there == 30, f"six threads kept five texts each, and {there} of the 30 are there")
        expect(len(last) == 1, f"each put a text instead of the others of its name, and there are {last}")


def busy_is_not_broken(store: MakeStore) -> None:
    """A file that others are writing to can be read, and who would write is told that nothing was done."""
    with a_path() as path:
        kept = store(path, wait=0.01)
        kept.put("shelf", "name", "before")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            expect(kept.kept("shelf") == [("name", "before")], "another writes, and it cannot be read")
            try:
                kept.put("shelf", "name", "in between")
            except Unavailable as error:
                expect(str(path) in str(error), f"another writes, and the error does not say where: {error}")
            except Exception as error:
                raise BrokenPromise(
                    f"another writes, and it raised {type(error).__name__}: {error}"
                ) from error
            else:
                expect(False, "another writes, and it wrote in between")
        kept.put("shelf", "name", "after")
        there = kept.kept("shelf")
        expect(there == [("name", "before"), ("name", "after")], f"nobody writes any more: it has {there}")


def what_is_no_store_is_refused_and_left_alone(store: MakeStore) -> None:
    """A torn or foreign file, or one of another version, is named and refused; not a byte of it changes."""
    with a_path() as path:
        kept = store(path)
        for number in range(40):
            kept.put("shelf", f"{number}", "北京" * 100)
        whole = path.read_bytes()
    for what, content in (
        ("a text file", "notes.txt: 不爬山\n".encode() * 50),
        ("a short text file", b"x"),
        ("the first half of a store", whole[: len(whole) // 2]),
        ("a store whose middle is overwritten", whole[:6000] + b"\x00" * 4000 + whole[10000:]),
        ("the database of another program", _database("CREATE TABLE cookies (name)")),
        (
            "one that is at the same version",
            _database("CREATE TABLE cookies (name)", f"PRAGMA user_version = {VERSION}"),
        ),
        ("a store of version 99", _database("PRAGMA user_version = 99", start=whole)),
    ):
        with a_path() as path:
            path.write_bytes(content)
            _is_refused(store, path, what)
            expect(path.read_bytes() == content, f"{what} was refused, and has changed all the same")


def where_no_file_can_be_it_says_so(store: MakeStore) -> None:
    """A path into a folder that does not exist, or to a folder, is refused when the store is opened."""
    with a_path() as path:
        _is_refused(store, path / "nowhere" / "kept.sqlite", "a path into nowhere")
        _is_refused(store, path.parent, "a path to a folder")


def _is_refused(store: MakeStore, path: Path, what: str) -> None:
    try:
        store(path)
    except BrokenStore as error:
        expect(str(path) in str(error), f"{what}: the error does not name the file: {error}")
        return
    except Exception as error:
        expect(False, f"{what}: BrokenStore was due, and it raised {type(error).__name__}: {error}")
    expect(False, f"{what} was opened as if it were a store")


def _database(*statements: str, start: bytes = b"") -> bytes:
    with a_path() as path:
        path.write_bytes(start)
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            for statement in statements:
                database.execute(statement)
        return path.read_bytes()


PROMISES: dict[str, Callable[[MakeStore], None]] = {
    promise.__name__: promise
    for promise in (
        a_later_run_finds_it,
        any_text_comes_back_as_it_was,
        the_newest_stands_last_and_nothing_twice,
        instead_takes_the_place_of_the_name_alone,
        what_stands_under_one_name_can_be_asked_for,
        each_shelf_is_bounded,
        many_at_once_lose_nothing,
        busy_is_not_broken,
        what_is_no_store_is_refused_and_left_alone,
        where_no_file_can_be_it_says_so,
    )
}
