"""What a journal on disk promises: plain functions of a class ``make(path)``.

It has what ``Journal`` has, ``close``, and can be used in a ``with`` statement.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentloop import (
    Address,
    AskHuman,
    Away,
    CallModel,
    CallTool,
    Do,
    Failure,
    Journal,
    Kind,
    Message,
    Observation,
    Outcome,
    Program,
    Reply,
    Sleep,
    Together,
    Toolbox,
    ToolCall,
    Usage,
    World,
    drive,
)
from fake_llm import FakeClock
from tests.check_machine import BrokenPromise
from tests.check_toolbox import expect

Make = Callable[[Path], Any]

# --- What outcomes hold -------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=()), max_size=8)
numbers = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)
data = st.recursive(
    texts | numbers,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(texts | st.integers(), inner, max_size=3)
    ),
    max_leaves=6,
)
values = st.one_of(
    data,
    st.builds(Reply, texts, st.lists(data, max_size=2).map(tuple), st.none() | st.just(Usage(3, 0.5))),
    st.builds(Observation, texts, st.booleans(), st.sampled_from(Kind), st.none() | st.just(1.5) | texts),
    st.builds(Failure, texts, st.booleans()),
    st.builds(ToolCall, texts, st.dictionaries(texts, data, max_size=2), texts),
)
addresses: st.SearchStrategy[Address] = st.lists(st.integers(0, 20), min_size=1, max_size=4).map(tuple)
rows = st.lists(
    st.tuples(addresses, texts, values, st.floats(0, 1e9)), max_size=4, unique_by=lambda row: row[0]
)
examples = settings(deadline=None, database=None, max_examples=40)


MEMORY = Path("/dev/shm")


@contextmanager
def folder() -> Iterator[Path]:
    """A folder for one story; in memory, where the system has such a place, since disks are slow to sync."""
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        yield Path(name)


def copied(here: Path, name: str) -> Path:
    """The journal in a copy of its folder: what a process finds there that comes after a sudden end."""
    files = [file for file in here.iterdir() if file.is_file()]
    (here / name).mkdir()
    for file in files:
        (here / name / file.name).write_bytes(file.read_bytes())
    return here / name / "journal"


# --- A program with everything in it ------------------------------------------------------------


class PowerFails(BaseException):
    """What ends a process from outside."""


class Shop:
    """A world that counts what was done in it, and can lose its power just after a deed."""

    def __init__(self, until: float = math.inf, at_home: bool = True) -> None:
        self.until, self.at_home = until, at_home
        self.deeds: list[str] = []
        self.lock = Lock()

    def world(self, inline: bool = True) -> World:
        tools = Toolbox([self.look, self.pay], idempotent=["look"])
        clock = FakeClock()
        return World(self.model, tools, self.human, clock.sleep, clock.now, inline)

    def do(self, deed: str) -> str:
        with self.lock:
            self.deeds.append(deed)
            if len(self.deeds) > self.until:
                raise PowerFails
        return f"{deed}: done"

    def model(self, request: CallModel) -> Reply:
        return Reply(self.do("model"), ({"name": "pay", "arguments": '{"amount": 1}'},))

    def human(self, question: str) -> str:
        if not self.at_home:
            raise Away(question)
        return self.do("human")

    def look(self, at: str) -> str:
        return self.do(f"look {at}")

    def pay(self, amount: int) -> str:
        return self.do(f"pay {amount}")


def look(at: str) -> Program[Any]:
    return (yield CallTool(ToolCall("look", {"at": at}, f"call_{at}"))).value


def everything(do: Callable[[str], str] | None = None) -> Program[list[Any]]:
    """Ask the model, look at two things side by side, ask a person, pay, wait and note it down."""
    came = [(yield CallModel((Message("user", "茶多少钱？"),))).value]
    came += (yield Together((look("茶"), look("水")))).value
    came.append((yield AskHuman("付吗？", "call_pay")).value)
    came.append((yield CallTool(ToolCall("pay", {"amount": 9}, "call_pay"))).value)
    yield Sleep(5.0)
    came.append((yield Do("note", lambda: {"paid": (9, "元")}, repeatable=True)).value)
    return came


# --- The promises -------------------------------------------------------------------------------


def what_was_recorded_is_read_again(make: Make) -> None:
    """Outcomes come back equal, of the same types, and in the order in which they arrived."""

    @examples
    @given(rows)
    @example(
        [((2,), "\ud800", {"\udfff": "\ud83d\ude00"}, 0.5), ((1, 0, 1), "", (1, True, 1.0, [None]), 1.0)]
    )
    def check(given_rows: list[tuple[Address, str, Any, float]]) -> None:
        due = [(address, asked, Outcome(value, at)) for address, asked, value, at in given_rows]
        with folder() as here:
            try:
                with make(here / "journal") as journal:
                    for address, asked, outcome in due:
                        journal.intend(address, asked)
                        journal.record(address, asked, outcome)
                with make(here / "journal") as journal:
                    read = list(journal.outcomes)
            except Exception as error:
                raise BrokenPromise(f"recorded was {due}, and it broke down with {error!r}") from error
        expect(repr(read) == repr(due), f"recorded was {due}, and read was {read}")

    check()


def an_intent_is_on_disk_before_it_is_begun(make: Make) -> None:
    """Without being closed, the file holds what was begun, and then what came of it."""
    with folder() as here, make(here / "journal") as journal:
        journal.intend((1,), "CallTool 付 \ud800")
        with make(copied(here, "begun")) as other:
            expect(other.intents == {(1,): "CallTool 付 \ud800"}, f"a call was begun: {other.intents}")
        journal.record((1,), "CallTool 付 \ud800", Outcome(Observation("付了"), 1.0))
        with make(copied(here, "ended")) as other:
            expect(other.intents == {}, f"the call has ended, and still there is {other.intents}")
            expect(len(other.outcomes) == 1, f"the call has ended, and there is {other.outcomes}")


def a_run_goes_on_wherever_its_power_failed(make: Make) -> None:
    """Broken off after any deed: the rest is done, nothing twice but what may be, and doubt is told."""
    whole_shop = Shop()
    whole = drive(everything(), whole_shop.world(), Journal())
    for until in range(len(whole_shop.deeds) + 1):
        with folder() as here:
            shops = [Shop(until), Shop()]
            for shop in shops:
                try:
                    with make(here / "journal") as journal:
                        came = drive(everything(), shop.world(), journal)
                except PowerFails:
                    pass
            done = shops[0].deeds + shops[1].deeds
            story = f"the power failed after {until} deeds; done was {done}"
            expect(done.count("pay 9") == 1, story)
            again = len(done) - len(whole_shop.deeds)
            expect(again <= 1, f"{story}: {again} deeds were done again")
            doubts = [each for each in came if isinstance(each, Observation) and not each.ok]
            in_doubt = shops[0].deeds[-1] == "pay 9" and until < len(whole_shop.deeds)
            kinds = [each.kind for each in doubts]
            expect(kinds == [Kind.UNCERTAIN] * in_doubt, f"{story}; in doubt is {kinds}")
            expect(in_doubt or came == whole, f"{story}: it came to {came}, not {whole}")


def a_run_that_was_left_goes_on(make: Make) -> None:
    """A person is away, and the process ends; another one is answered, and does the rest alone."""
    whole = drive(everything(), Shop().world())
    for inline in (True, False):
        with folder() as here:
            first, second = Shop(at_home=False), Shop()
            try:
                with make(here / "journal") as journal:
                    drive(everything(), first.world(inline), journal)
            except Away:
                pass
            with make(here / "journal") as journal:
                waiting = list(journal.intents.values())
                expect("付吗？" in str(waiting), f"a question waits, and the journal says {waiting}")
                came = drive(everything(), second.world(inline), journal)
            expect(came == whole, f"left and answered it came to {came}, not {whole}")
            done = sorted(first.deeds + second.deeds)
            expect(done == sorted(["model", "look 茶", "look 水", "human", "pay 9"]), f"done was {done}")


def what_cannot_be_written_is_named(make: Make) -> None:
    """An outcome that is no data: an error that names the path to it, and nothing before it is lost (K04)."""
    state = {"tools": [{"lock": Lock()}]}
    bottomless: list[Any] = []
    bottomless.append(bottomless)
    for value, path in (
        (state, "tools[0].lock"),
        ([1, {2, 3}], "[1]"),
        (object(), "outcome"),
        ({"answer": bottomless}, "answer[0][0]"),
        (Reply("", ({"tokens": 10**5000},)), "tool_calls[0].tokens"),
    ):
        with folder() as here:
            with make(here / "journal") as journal:
                journal.intend((1,), "Do one")
                journal.record((1,), "Do one", Outcome("good", 0.0))
                journal.intend((2,), "Do two")
                try:
                    journal.record((2,), "Do two", Outcome(value, 0.0))
                except Exception as error:
                    expect(path in str(error), f"{path} cannot be written, and the error says {error!r}")
                else:
                    expect(False, f"{path} was recorded, and cannot come back")
                expect(len(journal.outcomes) == 1, "what could not be written was recorded all the same")
            with make(here / "journal") as journal:
                expect(journal.outcomes == [((1,), "Do one", Outcome("good", 0.0))], f"{journal.outcomes}")
                expect(journal.intents == {(2,): "Do two"}, f"what was begun is {journal.intents}")


def another_file_is_left_as_it_is(make: Make) -> None:
    """A file with other tables, or that is no run at all, is refused, and stays byte for byte as it was."""
    with folder() as here:
        database = sqlite3.connect(here / "users")
        database.execute("CREATE TABLE users (name TEXT)")
        database.commit()
        database.close()
        (here / "letter").write_text("no database " * 100, encoding="utf-8")
        for name in ("users", "letter"):
            before = (here / name).read_bytes()
            try:
                make(here / name).close()
            except Exception as error:
                expect(bool(str(error)), f"{name} is no run, and the error says nothing: {error!r}")
            else:
                expect(False, f"{name} is no run, and it was opened as one")
            expect((here / name).read_bytes() == before, f"{name} is no run, and it was written into")


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        what_was_recorded_is_read_again,
        an_intent_is_on_disk_before_it_is_begun,
        a_run_goes_on_wherever_its_power_failed,
        a_run_that_was_left_goes_on,
        what_cannot_be_written_is_named,
        another_file_is_left_as_it_is,
    )
}
