"""Texts under names, in an SQLite file: what outlives the window, the run and the process (chapter 28)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from agentloop import on_one_line
from paradigms.arguments import require

APPLICATION, VERSION = 0x4C6F6F70, 1  # what SQLite keeps in a file's header for its program: "Loop"
WAIT = 10.0  # seconds, for another thread or process that is writing


class BrokenStore(Exception):
    """A file that cannot serve as a store; the text names it, and says what it is instead."""


class Store:
    """Texts under names, on shelves, in one SQLite file: of each shelf the newest ``capacity``.

    A connection for each call makes it safe for threads and processes. Any text comes back as it was, lone
    surrogates too. Raises ``BrokenStore`` for a file that is torn, foreign, of another version or out of
    reach, which is then left as it is.
    """

    def __init__(self, path: str | Path, capacity: int = 1000) -> None:
        require("capacity", capacity, 1)
        self._path, self._capacity = Path(path), capacity
        with self._opened() as database:
            [first, *_] = database.execute("PRAGMA quick_check").fetchall()
            if first != ("ok",):
                raise BrokenStore(f"{path} is torn: {on_one_line(first[0])}")

    def put(self, shelf: str, name: str, text: str, instead: bool = False) -> None:
        """Keep a text under a name, as the newest; ``instead`` of all others of this name."""
        with self._opened() as database:
            if instead:
                database.execute("DELETE FROM kept WHERE shelf = ? AND name = ?", (shelf, as_bytes(name)))
            entry = (shelf, as_bytes(name), as_bytes(text))
            database.execute("INSERT OR REPLACE INTO kept (shelf, name, text) VALUES (?, ?, ?)", entry)
            newest = "SELECT rowid FROM kept WHERE shelf = ? ORDER BY rowid DESC LIMIT ?"
            forget = f"DELETE FROM kept WHERE shelf = ? AND rowid NOT IN ({newest})"
            database.execute(forget, (shelf, shelf, self._capacity))

    def kept(self, shelf: str) -> list[tuple[str, str]]:
        """All that stands on a shelf, as (name, text), the oldest first."""
        with self._opened("BEGIN") as database:
            found = database.execute("SELECT name, text FROM kept WHERE shelf = ? ORDER BY rowid", (shelf,))
            return [(as_text(name), as_text(text)) for name, text in found]

    @contextmanager
    def _opened(self, begin: str = "BEGIN IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """One transaction, which nobody else's comes between; those that only read need not wait for it."""
        try:
            with closing(sqlite3.connect(self._path, timeout=WAIT, isolation_level=None)) as database:
                database.execute(begin)
                _recognise(database, self._path)
                yield database
                database.execute("COMMIT")
        except sqlite3.Error as error:
            raise BrokenStore(f"{self._path} cannot be used as a store: {error}") from error


def _recognise(database: sqlite3.Connection, path: Path) -> None:
    """Make an empty file ours. Raises ``BrokenStore`` for one that is somebody else's."""
    [(application,)] = database.execute("PRAGMA application_id")
    [(version,)] = database.execute("PRAGMA user_version")
    if (application, version) == (0, 0) and not path.stat().st_size:
        columns = "shelf TEXT, name BLOB, text BLOB, UNIQUE (shelf, name, text)"
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
