"""What a pool of connections promises: plain functions of a class ``make(connect, size, patience=...)``.

It has ``lent``, for a ``with`` statement, and ``close``. ``check_pool(make)`` raises ``BrokenPromise`` with
a short story; ``PROMISES`` holds the same promises one by one.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import Unavailable
from tests.check_machine import BrokenPromise
from tests.check_run_many import PATIENCE
from tests.check_toolbox import expect

Make = Callable[..., Any]
SHORT = 0.01  # seconds: how long a borrower waits in vain


class Connection:
    """A pretend connection: it notices who uses it, and whether it is still open."""

    def __init__(self) -> None:
        self.is_open, self.is_used = True, False
        self.ended: list[str] = []

    def use(self) -> None:
        expect(self.is_open, "a connection that is closed was lent")
        expect(not self.is_used, "a connection was lent to two at once")
        self.is_used = True

    def commit(self) -> None:
        expect(self.is_open, "a connection that is closed cannot commit")
        self.ended.append("commit")

    def rollback(self) -> None:
        expect(self.is_open, "a connection that is closed cannot roll back")
        self.ended.append("rollback")

    def close(self) -> None:
        self.is_open = False
        self.ended.append("close")


class Opened:
    """Opens connections, and knows them all."""

    def __init__(self) -> None:
        self.all: list[Connection] = []

    def __call__(self) -> Connection:
        self.all.append(Connection())
        return self.all[-1]


class Oops(Exception):
    """What goes wrong inside a block."""


def borrow(pool: Any, fails: bool = False) -> Connection:
    """Borrow a connection for a moment, and let the block fail if asked to."""
    connection: Connection | None = None
    try:
        with pool.lent() as connection:
            connection.use()
            connection.is_used = False
            if fails:
                raise Oops
    except Oops:
        expect(fails, "a block that did not fail was told that it did")
    except Unavailable as error:
        raise BrokenPromise(f"nothing is lent, and a borrower is told: {error}") from error
    else:
        expect(not fails, "what was raised inside a block was swallowed")
    assert connection is not None
    return connection


def it_opens_one_when_it_is_needed(make: Make) -> None:
    """A connection is opened when it is first needed, and used again by the next."""
    opened = Opened()
    pool = make(opened, 3)
    expect(not opened.all, f"{len(opened.all)} connections are open before anybody wants one")
    first = borrow(pool)
    expect(borrow(pool) is first, "the second borrower, after the first, has another connection")


def each_is_lent_to_one_at_a_time(make: Make) -> None:
    """However many threads borrow, each connection has one borrower, and no more are open than the size."""

    @settings(max_examples=10)
    @given(st.integers(1, 3), st.lists(st.booleans(), min_size=2, max_size=6))
    def prove(size: int, fails: list[bool]) -> None:
        opened, stories = Opened(), list[BaseException]()
        pool = make(opened, size, patience=PATIENCE)
        begin = threading.Barrier(len(fails))

        def work(failing: bool) -> None:
            try:
                begin.wait(PATIENCE)
                for _ in range(10):
                    borrow(pool, failing)
            except BaseException as error:
                stories.append(error)

        threads = [threading.Thread(target=work, args=(failing,), daemon=True) for failing in fails]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * PATIENCE)
        for error in stories:
            raise error
        alive = sum(each.is_open for each in opened.all)
        expect(alive <= size, f"{alive} connections are open, of at most {size}")

    prove()


def no_more_than_the_size_are_lent(make: Make) -> None:
    """While all are lent, a borrower waits, and is told ``Unavailable`` after its patience."""
    for size in (1, 2, 3):
        pool = make(Opened(), size, patience=SHORT)
        lent = [pool.lent() for _ in range(size)]
        held = [each.__enter__() for each in lent]
        expect(len(set(map(id, held))) == size, f"{size} borrowers at once share a connection")
        try:
            with pool.lent():
                raise BrokenPromise(f"of {size} connections, {size + 1} are lent")
        except Unavailable:
            pass
        for each in lent:
            each.__exit__(None, None, None)
        borrow(pool)


def it_is_taken_back_after_a_failure(make: Make) -> None:
    """A block that fails gives back what it borrowed, as often as it happens."""
    pool = make(Opened(), 1, patience=SHORT)
    for _ in range(3):
        borrow(pool, fails=True)
    borrow(pool)


def a_failed_connect_takes_no_place(make: Make) -> None:
    """A connection that could not be opened leaves its place free for the next attempt."""
    attempts: list[int] = []

    def connect() -> Connection:
        attempts.append(1)
        if len(attempts) < 4:
            raise ConnectionRefusedError("no database yet")
        return Connection()

    pool = make(connect, 1, patience=SHORT)
    for _ in range(3):
        try:
            with pool.lent():
                raise BrokenPromise("connect raised, and a connection was lent")
        except ConnectionRefusedError:
            pass
        except Unavailable as error:
            raise BrokenPromise("a connect that failed took its place with it") from error
    borrow(pool)


def a_broken_one_is_not_lent_again(make: Make) -> None:
    """A connection that was closed or broke in somebody's hands is not handed to the next."""
    pool = make(Opened(), 1, patience=SHORT)
    for fails in (False, True):
        try:
            with pool.lent() as connection:
                connection.close()
                if fails:
                    raise Oops
        except (Oops, BrokenPromise):
            pass
        borrow(pool)


def what_was_done_is_kept_and_what_failed_is_undone(make: Make) -> None:
    """In SQLite: what a block did is there for others at its end; where it raised, nothing of it is."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "town.db")
        pool = make(lambda: sqlite3.connect(path, check_same_thread=False), 2, patience=PATIENCE)
        with pool.lent() as connection:
            connection.execute("CREATE TABLE places (city TEXT)")
            connection.execute("INSERT INTO places VALUES ('北京')")
        try:
            with pool.lent() as connection:
                connection.execute("INSERT INTO places VALUES ('上海')")
                raise Oops
        except Oops:
            pass
        with pool.lent() as one, pool.lent() as other:
            for connection in (one, other):
                found = connection.execute("SELECT city FROM places").fetchall()
                expect(found == [("北京",)], f"上海 failed, and what is there is {found}")
        pool.close()


def closing_waits_for_borrowers_and_closes_all(make: Make) -> None:
    """``close`` waits for what is lent, and closes every connection."""
    opened = Opened()
    pool = make(opened, 2, patience=PATIENCE)
    borrowed, closing = threading.Event(), threading.Event()

    def work() -> None:
        with pool.lent() as connection:
            borrowed.set()
            closing.wait(PATIENCE)
            connection.use()

    borrower = threading.Thread(target=work, daemon=True)
    borrower.start()
    borrowed.wait(PATIENCE)
    with pool.lent():
        pass
    closer = threading.Thread(target=pool.close, daemon=True)
    closer.start()
    closer.join(SHORT)
    expect(closer.is_alive(), "a connection is still lent, and ``close`` has come back")
    closing.set()
    borrower.join(PATIENCE)
    closer.join(PATIENCE)
    left = sum(each.is_open for each in opened.all)
    expect(left == 0, f"the pool is closed, and {left} of {len(opened.all)} connections are open")
    used = [each.ended for each in opened.all]
    expect(all(each[-1] == "close" for each in used), f"after it was closed, one was used: {used}")


def a_closed_pool_says_so_at_once(make: Make) -> None:
    """Who comes to a closed pool is told at once, and not that it may pass; closing twice is no fault."""
    for size in (1, 2):
        opened = Opened()
        pool = make(opened, size, patience=SHORT)
        borrow(pool)
        for _ in range(2):
            try:
                pool.close()
            except Exception as error:
                raise BrokenPromise(f"nothing is lent, and close says {error!r}") from error
            try:
                with pool.lent():
                    raise BrokenPromise("the pool is closed, and a connection was lent")
            except Unavailable as error:
                story = f"the pool is closed for good, and who waits for it is told that it may pass: {error}"
                raise BrokenPromise(story) from error
            except RuntimeError as told:
                expect("closed" in str(told), f"the pool is closed, and a borrower is told: {told}")
        expect(len(opened.all) == 1, f"one connection was needed, and {len(opened.all)} were opened")


def what_comes_back_late_is_closed(make: Make) -> None:
    """Who keeps a connection for longer than ``close`` waits: it is closed when it comes back."""
    for fails in (False, True):
        opened = Opened()
        pool = make(opened, 3, patience=SHORT)
        try:
            with pool.lent(), pool.lent() as late:
                try:
                    pool.close()
                except Unavailable:
                    pass
                expect(late.is_open, "a connection was closed in its borrower's hands")
                if fails:
                    raise Oops
        except Oops:
            pass
        left = sum(each.is_open for each in opened.all)
        expect(left == 0, f"the pool was closed, all came back, and {left} connections are open")


def a_size_below_one_is_refused(make: Make) -> None:
    """A pool without a single connection is refused when it is made."""
    for size in (0, -1):
        try:
            make(Opened(), size)
        except ValueError:
            continue
        raise BrokenPromise(f"a pool of {size} connections was made")


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        it_opens_one_when_it_is_needed,
        each_is_lent_to_one_at_a_time,
        no_more_than_the_size_are_lent,
        it_is_taken_back_after_a_failure,
        a_failed_connect_takes_no_place,
        a_broken_one_is_not_lent_again,
        what_was_done_is_kept_and_what_failed_is_undone,
        closing_waits_for_borrowers_and_closes_all,
        a_closed_pool_says_so_at_once,
        what_comes_back_late_is_closed,
        a_size_below_one_is_refused,
    )
}


def check_pool(make: Make) -> None:
    """Raise ``BrokenPromise`` for the first promise that it does not keep."""
    for promise in PROMISES.values():
        promise(make)
