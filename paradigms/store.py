"""Texts under names, in an SQLite file: what outlives the window, the run and the process (chapter 28)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from agentloop import Unavailable, on_one_line
from paradigms.arguments import require, require_seconds

APPLICATION, VERSION = 0x4C6F6F70, 2  # what SQLite keeps in a file's header for its program: "Loop"
WAIT = 60.0  # seconds, for other threads and processes that are writing


class BrokenStore(Exception):
    """A file that cannot serve as a store; the text names it, and says what it is instead."""


class Store:
    """Texts under names, on shelves, in one SQLite file: of each shelf the newest ``capacity``.

    A connection for each call makes it safe for threads and processes. Any text comes back as it was, lone
    surrogates too. Raises ``BrokenStore`` for a file that is torn, foreign, of another version or out of
    reach, which is then left as it is; and ``Unavailable`` where others were writing for ``wait`` seconds.
    """

    def __init__(self, path: str | Path, capacity: int = 1000, wait: float = WAIT) -> None:
        require("capacity", capacity, 1)
        require_seconds("wait", wait)
        self._path, self._capacity, self._wait = Path(path), capacity, wait
        with self._opened() as database:
            [first, *_] = database.execute("PRAGMA quick_check").fetchall()
            if first != ("ok",):
                raise BrokenStore(f"{path} is torn: {on_one_line(first[0])}")

    def put(self, shelf: str, name: str, text: str, instead: bool = False) -> None:
        """Keep a text under a name, as the newest; ``instead`` of all others of this name."""
        on, named, said = map(as_bytes, (shelf, name, text))
        with self._opened() as database:
            if instead:
                database.execute("DELETE FROM kept WHERE shelf = ? AND name = ?", (on, named))
            entry = (on, named, said)
            database.execute("INSERT OR REPLACE INTO kept (shelf, name, text) VALUES (?, ?, ?)", entry)
            newest = "SELECT rowid FROM kept WHERE shelf = ? ORDER BY rowid DESC LIMIT ?"
            forget = f"DELETE FROM kept WHERE shelf = ? AND rowid NOT IN ({newest})"
            database.execute(forget, (on, on, self._capacity))

    def kept(self, shelf: str, name: str | None = None) -> list[tuple[str, str]]:
        """All that stands on a shelf, or on it under one name, as (name, text), the oldest first."""
        named = [] if name is None else [as_bytes(name)]
        where, place = "shelf = ? AND name = ?" if named else "shelf = ?", (as_bytes(shelf), *named)
        with self._opened("BEGIN") as database:
            found = database.execute(f"SELECT name, text FROM kept WHERE {where} ORDER BY rowid", place)
            return [(as_text(each), as_text(text)) for each, text in found]

    @contextmanager
    def _opened(self, begin: str = "BEGIN IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """One transaction, which nobody else's comes between; those that only read need not wait for it."""
        try:
            with closing(sqlite3.connect(self._path, timeout=self._wait, isolation_level=None)) as database:
                database.execute(begin)
                _recognise(database, self._path)
                yield database
                database.execute("COMMIT")
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:  # nothing was written
                busy = f"{self._path} is busy: others were writing for {self._wait:g} s"
                raise Unavailable(busy) from error
            raise BrokenStore(f"{self._path} cannot be used as a store: {error}") from error


def _recognise(database: sqlite3.Connection, path: Path) -> None:
    """Make an empty file ours. Raises ``BrokenStore`` for one that is somebody else's."""
    [(application,)] = database.execute("PRAGMA application_id")
    [(version,)] = database.execute("PRAGMA user_version")
    if (application, version) == (0, 0) and not path.stat().st_size:
        columns = "shelf BLOB, name BLOB, text BLOB, UNIQUE (shelf, name, text)"
        database.execute(f"CREATE TABLE kept ({columns})")
        database.execute(f"PRAGMA application_id = {APPLICATION}")
        database.execute(f"PRAGMA user_version = {VERSION}")
    elif application != APPLICATION:
        raise BrokenStore(f"{path} is a file of another program: give the store a path of its own")
    elif version != VERSION:
        raise BrokenStore(f"{path} is a store of version {version}, and this code reads version {VERSION}")


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def as_text(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogatepass")
