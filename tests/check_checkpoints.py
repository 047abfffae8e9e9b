"""What checkpoints promise: plain functions of a class ``make(path)`` such as ``Checkpoints``.

It has what a journal on disk has (``check_disk_journal.py``), ``watch``, ``transitions``, ``moment`` and
``branch``; its file is of SQLite, and its table ``run`` holds the ``version``.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    Act,
    AgentLoop,
    CallModel,
    Finish,
    Journal,
    Kind,
    Limits,
    LoopContext,
    Message,
    Observation,
    Outcome,
    Program,
    ProgramChanged,
    Result,
    Step,
    StopReason,
    Together,
    Toolbox,
    ToolCall,
    Turn,
    Unavailable,
    World,
    call_tool,
    drive,
    row_taken,
)
from chapters.ch18_human_in_the_loop import approval
from chapters.ch31_checkpoints import VERSION, AlreadyRunning, IncompatibleCheckpoint, Transition, Watch
from fake_llm import FakeClock
from tests.check_approval import DELETE, LOOK, PAY, dangerous, repeating
from tests.check_disk_journal import PowerFails, examples, folder
from tests.check_machine import BrokenPromise
from tests.check_toolbox import expect

Make = Callable[[Path], Any]
Watching = Callable[[str], Watch]

# --- A program of loops, and a world on disk ----------------------------------------------------


def asking(*calls: ToolCall) -> Callable[[LoopContext], Program[Any]]:
    """Ask the model, then make these calls in the first round, and answer in the second."""

    def reason(context: LoopContext) -> Program[Any]:
        said = (yield CallModel((Message("user", f"{context.task} {len(context.turns)}"),))).value.text
        return Finish(f"{context.task}: done", said) if context.turns else Act(calls, said)

    return reason


def guarded() -> Callable[[ToolCall], Any]:
    """Retries round an approval round retries."""
    return repeating(2)(approval(repeating(2)(call_tool), dangerous))


def trip(watch: Watching) -> Program[list[Result]]:
    """One loop after another, and then two side by side: retries, approvals and payments in each."""
    buy = AgentLoop(asking(LOOK, PAY), guarded(), watch=watch("buy"))
    results = [(yield from buy.run("buy tea"))]
    tidy = AgentLoop(asking(DELETE), guarded(), watch=watch("tidy"))
    look = AgentLoop(asking(LOOK), guarded(), watch=watch("look"))
    results += (yield Together((tidy.run("tidy up"), look.run("look round")))).value
    return results


def alone(watch: Watching, rounds: int = 3) -> Program[Result]:
    """One loop that never wants to end."""

    def reason(context: LoopContext) -> Act:
        return Act((LOOK, PAY))

    return AgentLoop(reason, guarded(), limits=Limits(rounds=rounds), watch=watch("alone")).run("go on")


class Town:
    """A world whose ``deeds`` are lines in a file of its own, so that whoever does them may be killed."""

    def __init__(self, file: Path, until: int | None = None, answer: str = "yes") -> None:
        self.file, self.until, self.answer = file, until, answer

    @property
    def deeds(self) -> list[str]:
        return self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else []

    @property
    def world(self) -> World:
        tools = Toolbox([self.look, self.pay, self.delete], idempotent=["look"])
        return World(self.model, tools, self.human, clock=FakeClock().now, inline=True)

    def do(self, deed: str) -> None:
        with open(self.file, "a", encoding="utf-8") as file:
            file.write(f"{deed}\n")
        if self.until is not None and len(self.deeds) > self.until:
            raise PowerFails

    def model(self, request: CallModel) -> str:
        self.do("model")
        return f"thought on {request.messages[0].content}"

    def human(self, question: str) -> str:
        self.do(f"asked about {question.splitlines()[1]}")
        return self.answer

    def look(self, at: str, call_id: str) -> str:
        """Look; the first time that a call does, it finds the door closed."""
        self.do(f"look {call_id}")
        if self.deeds.count(f"look {call_id}") == 1:
            raise Unavailable("closed for a minute")
        return f"{at} is there"

    def pay(self, amount: float, call_id: str) -> str:
        self.do(f"pay {call_id}")
        return f"paid {amount:g}"

    def delete(self, name: str, call_id: str) -> str:
        self.do(f"delete {call_id}")
        return f"{name} deleted"


def unwatched(name: str) -> Watch:
    """Watch nothing."""
    return lambda step: None


class Lived(NamedTuple):
    """What came of a run, what was done, and each transition with the history that it was taken in."""

    value: Any
    deeds: list[str]
    moments: list[tuple[str, Any, tuple[Turn, ...]]]


def live(here: Path, program: Callable[[Watching], Program[Any]], answer: str = "yes") -> Lived:
    """Run a program from beginning to end without any checkpoint, and watch it."""
    moments: list[tuple[str, Any, tuple[Turn, ...]]] = []
    town = Town(here / "deeds", answer=answer)
    value = drive(program(partial(_noting, moments)), town.world)
    return Lived(value, town.deeds, moments)


def _noting(moments: list[Any], name: str) -> Watch:
    turns: list[Turn] = []

    def watch(step: Step) -> None:
        turns.extend([] if step.turn is None else [step.turn])
        if row_taken(step.before, step.after):
            moments.append((name, step.after, tuple(turns)))

    return watch


def controls(transitions: list[Transition]) -> list[tuple[str, Any]]:
    return [(each.loop, each.control) for each in transitions]


def hold_nothing_twice(town: Town, whole: list[str], results: Any, story: str) -> None:
    """Nothing is lost, and nothing done twice but what may be; what is in doubt is said to be UNCERTAIN."""
    for deed in set(whole) | set(town.deeds):
        number = town.deeds.count(deed)
        kind = deed.split()[0]
        if kind in ("pay", "delete"):
            expect(number <= 1, f"{story}: {deed} was done {number} times")
        elif kind == "asked":
            expect(1 <= number <= whole.count(deed) + 1, f"{story}: {deed} {number} times")
    kinds = {"pay": _of(results, "pay"), "delete": _of(results, "delete")}
    for name, seen in kinds.items():
        done = any(deed.startswith(name) for deed in town.deeds)
        uncertain = seen.kind is Kind.UNCERTAIN
        expect(seen.ok or uncertain, f"{story}: of {name} the model is told {seen}")
        expect(done or uncertain, f"{story}: {name} was reported done, and it was not")
    for result in results:
        expect(result.stop is StopReason.FINAL_ANSWER, f"{story}: it ended with {result.stop.name}")


def _of(results: list[Result], name: str) -> Observation:
    [seen] = [
        observation
        for result in results
        for turn in result.turns
        for call, observation in zip(turn.calls, turn.observations, strict=True)
        if call.name == name
    ]
    return seen


# --- The promises -------------------------------------------------------------------------------


def transitions_are_kept_as_they_were_taken(make: Make) -> None:
    """Every transition is in the file, in order, with the machine as it stood; a replay writes nothing."""
    with folder() as here:
        whole = live(here, trip)
        path, town = here / "run.db", Town(here / "other deeds")
        with make(path) as kept:
            value = drive(trip(kept.watch), town.world, kept)
        expect(value == whole.value, f"with checkpoints it came to {value}, not {whole.value}")
        due = [(name, control) for name, control, _ in whole.moments]
        with make(path) as kept:
            expect(controls(kept.transitions) == due, f"kept was {kept.transitions}, and taken was {due}")
        before = path.read_bytes()
        with make(path) as kept:
            again = drive(trip(kept.watch), World(inline=True), kept)
            expect(again == value, f"replayed without a world it came to {again}")
        expect(path.read_bytes() == before, "a replay of what had ended changed the file")


def broken_off_anywhere_it_goes_on(make: Make) -> None:
    """After a sudden end at any deed, and another one: nothing is lost, and nothing is done twice (K01)."""
    with folder() as here:
        whole = live(here, trip)
        for until in range(len(whole.deeds)):
            path, file = here / f"{until}.db", here / f"deeds {until}"
            for town in (Town(file, until), Town(file, until + 2), Town(file)):
                try:
                    with make(path) as kept:
                        results = drive(trip(kept.watch), town.world, kept)
                    break
                except PowerFails:
                    continue
            hold_nothing_twice(town, whole.deeds, results, f"the power failed after {until} deeds")
            with make(path) as kept:
                names = [name for name, _ in controls(kept.transitions)]
            taken = live_transitions(results, path, make)
            expect(names == taken, f"after {until} deeds kept are those of {names}, and taken {taken}")


def live_transitions(results: Any, path: Path, make: Make) -> list[str]:
    """Whose transitions a plain replay of the file takes, and that it comes to these results."""
    moments: list[Any] = []
    with make(path) as kept:
        again = drive(trip(partial(_noting, moments)), World(inline=True), Journal(list(kept.outcomes)))
    expect(again == results, f"a replay came to {again}, not {results}")
    return [name for name, _, _ in moments]


def each_moment_can_be_seen_again(make: Make) -> None:
    """At each transition, machine and history are shown as they stood, and the world is not touched."""
    with folder() as here:
        whole = live(here, trip)
        with make(here / "run.db") as kept:
            drive(trip(kept.watch), Town(here / "other deeds").world, kept)
        with make(here / "run.db") as kept:
            for number, due in enumerate(whole.moments, 1):
                seen = tuple(kept.moment(number, trip))
                expect(seen == due, f"transition {number} is shown as {seen}, and it was {due}")
            for number in (0, -1, len(whole.moments) + 1):
                try:
                    kept.moment(number, trip)
                except IndexError:
                    continue
                expect(False, f"there is no transition {number}, and it is shown")


def a_branch_goes_its_own_way(make: Make) -> None:
    """A branch from any transition knows what was known then, and what it does is not seen in the parent."""
    with folder() as here:
        whole = live(here, trip)
        parent = here / "run.db"
        with make(parent) as kept:
            drive(trip(kept.watch), Town(here / "other deeds").world, kept)
        before = parent.read_bytes()
        for number in range(1, len(whole.moments) + 1):
            with make(parent) as kept:
                outcomes = kept.transitions[number - 1].outcomes
                kept.branch(number, here / f"{number}.db")
            story = f"branched at transition {number}"
            with make(here / f"{number}.db") as branch:
                expect(len(branch.outcomes) == outcomes, f"{story} it holds {len(branch.outcomes)} outcomes")
                due = [(name, control) for name, control, _ in whole.moments[:number]]
                expect(controls(branch.transitions) == due, f"{story} it holds {branch.transitions}")
                town = Town(here / f"deeds {number}", answer="no")
                town.file.write_bytes((here / "deeds").read_bytes())  # so that no door is closed any more
                value = drive(trip(branch.watch), town.world, branch)
                asked = [deed for deed in town.deeds[len(whole.deeds) :] if deed.startswith("asked")]
                refused = str(value).count("a person refused it")
                expect(refused == len(asked), f"{story}, {len(asked)} questions were answered no: {value}")
        expect(parent.read_bytes() == before, "what branches did is seen in the parent's file")
        with make(parent) as kept:
            expect(
                controls(kept.transitions) == [each[:2] for each in whole.moments], "the parent has changed"
            )
            try:
                kept.branch(1, here / "1.db")
            except FileExistsError:
                return
        expect(False, "a branch was written over another run")


def opened_at_once(count: int, opened: Callable[[str], Any]) -> list[str]:
    """So many open one run in the same instant, each under a name of its own; what they come to, sorted."""
    ready, done = threading.Barrier(count), threading.Barrier(count)
    came: list[str] = []

    def open_it(name: str) -> None:
        ready.wait(10)
        run = None
        try:
            run = opened(name)
            came.append("held")
        except AlreadyRunning:
            came.append("told")
        except Exception as error:
            came.append(repr(error))
        done.wait(10)
        if run is not None:
            run.close()

    threads = [threading.Thread(target=open_it, args=(str(number),)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return sorted(came)


def one_of_two_resumers_goes_on(make: Make) -> None:
    """Of many who open a run one holds it, and the others are told at once; closed, it is free (K06)."""
    with folder() as here:
        with make(here / "held.db") as kept:
            drive(alone(kept.watch), Town(here / "deeds").world, kept)
            try:
                make(here / "held.db").close()
            except AlreadyRunning:
                pass
            except Exception as error:
                raise BrokenPromise(f"who comes second is told {error!r}") from error
            else:
                expect(False, "a run that somebody holds was opened once more")
        for turn in ("a new run", "the same run again"):
            came = opened_at_once(8, lambda name: make(here / "run.db"))
            expect(came == ["held"] + ["told"] * 7, f"eight open {turn}, and they come to {came}")


def what_is_no_checkpoint_is_refused_unchanged(make: Make) -> None:
    """Newer, unversioned, foreign, torn: IncompatibleCheckpoint, and the file stays as it was (K09)."""
    with folder() as here:
        good = here / "good.db"
        with make(good) as kept:
            drive(trip(kept.watch), Town(here / "deeds").world, kept)
        whole = good.read_bytes()
        change = partial(_changed, here, whole)
        files: dict[str, bytes] = {
            "of version 99": change("UPDATE run SET version = 99"),
            "of version 0": change("UPDATE run SET version = 0"),
            "of a version that is a text": change("UPDATE run SET version = 'new'"),
            "of no version": change("DROP TABLE run"),
            "of an empty version": change("DELETE FROM run"),
            "foreign": _changed(here, b"", "CREATE TABLE notes (text TEXT)"),
            "an empty database": _changed(here, b"", "CREATE TABLE notes (text TEXT)", "DROP TABLE notes"),
            "a text": b"not a database at all\n" * 100,
            "a short text": b"x",
            "of values that nobody wrote": change("UPDATE effects SET value = '{'"),
            "of types that nobody knows": _changed(here, whole, """UPDATE effects SET value = '{"x":[]}'"""),
            "of states that do not exist": _changed(here, whole, "UPDATE transitions SET state = 'LOST'"),
        }
        files |= {
            f"torn after {end} bytes": whole[:end] for end in (1, 50, 100, 2000, 5000, len(whole) - 4096)
        }
        for what, content in files.items():
            path = here / "other.db"
            path.write_bytes(content)
            try:
                make(path).close()
            except IncompatibleCheckpoint as error:
                told = str(error)
            except Exception as error:
                raise BrokenPromise(f"a file {what} was refused with {error!r}") from error
            else:
                raise BrokenPromise(f"a file {what} was opened as if nothing were wrong")
            expect(path.read_bytes() == content, f"a file {what} was refused, and changed")
            if what == "of version 99":
                expect("99" in told and str(VERSION) in told, f"not both versions are named: {told}")
        with make(good) as kept:
            expect(bool(kept.outcomes), "the good file cannot be read any more")


def _changed(here: Path, content: bytes, *changes: str) -> bytes:
    """The content of a database after these changes."""
    path = here / "changed.db"
    path.write_bytes(content)
    database = sqlite3.connect(path)
    with database:
        for change in changes:
            database.execute(change)
    database.close()
    return path.read_bytes()


#: What makes a file of version 1 from one of version 2.
OLDER = (
    "CREATE TABLE older (version INTEGER NOT NULL)",
    "INSERT INTO older SELECT 1 FROM run",
    "DROP TABLE run",
    "ALTER TABLE older RENAME TO run",
)


def an_older_file_is_brought_up_to_date(make: Make) -> None:
    """A file of version 1, which knew no branches: it goes on as a run that has no parent (K09)."""
    with folder() as here:
        path = here / "run.db"
        with make(path) as kept:
            value = drive(trip(kept.watch), Town(here / "deeds").world, kept)
        path.write_bytes(_changed(here, path.read_bytes(), *OLDER))
        for _ in range(2):
            try:
                with make(path) as kept:
                    expect((kept.parent, kept.branched) == ("", None), f"its parent is {kept.parent!r}")
                    again = drive(trip(kept.watch), World(inline=True), kept)
                    expect(again == value, f"brought up to date it came to {again}")
            except IncompatibleCheckpoint as error:
                raise BrokenPromise(f"a file of version 1 was refused: {error}") from error
        database = sqlite3.connect(path)
        [(version,)] = database.execute("SELECT version FROM run")
        database.close()
        expect(version == VERSION, f"it was opened, and is still of version {version}")


def older_and_torn_it_stays_as_it_was(make: Make) -> None:
    """An older file that cannot be read to its end is refused as it is, and not brought half up to date."""
    with folder() as here:
        path = here / "run.db"
        with make(path) as kept:
            drive(trip(kept.watch), Town(here / "deeds").world, kept)
        torn = "UPDATE effects SET value = '{'"
        path.write_bytes(_changed(here, path.read_bytes(), *OLDER, torn))
        before = path.read_bytes()
        try:
            make(path).close()
        except IncompatibleCheckpoint:
            expect(path.read_bytes() == before, "an older file that is torn was refused, and changed")
        else:
            expect(False, "a torn file was opened as if nothing were wrong")


def another_program_is_refused_and_changes_nothing(make: Make) -> None:
    """A program that asks for something other than what was recorded is refused, and the file stays."""

    def other(watch: Watching) -> Program[Result]:
        return AgentLoop(lambda context: Act((PAY,)), watch=watch("alone")).run("go on")

    with folder() as here:
        path = here / "run.db"
        with make(path) as kept:
            drive(alone(kept.watch), Town(here / "deeds").world, kept)
        before = path.read_bytes()
        for ask in (
            lambda kept: drive(other(kept.watch), World(inline=True), kept),
            lambda kept: kept.moment(len(kept.transitions), other),
            lambda kept: kept.moment(len(kept.transitions), partial(alone, rounds=9)),
        ):
            with make(path) as kept:
                try:
                    ask(kept)
                except ProgramChanged:
                    continue
            expect(False, "another program was run on the same file, and it was not refused")
        expect(path.read_bytes() == before, "another program was refused, and it changed the file")


def with_other_limits_it_goes_on(make: Make) -> None:
    """A run that ended at a limit goes on under a higher one; the end that was not one is not kept."""
    with folder() as here:
        for rounds in (2, 4):
            (here / str(rounds)).mkdir()
            whole = live(here / str(rounds), partial(alone, rounds=rounds))
            with make(here / "run.db") as kept:
                value = drive(alone(kept.watch, rounds), Town(here / "deeds").world, kept)
                expect(value == whole.value, f"with {rounds} rounds it came to {value}, not {whole.value}")
            with make(here / "run.db") as kept:
                due = [(name, control) for name, control, _ in whole.moments]
                expect(
                    controls(kept.transitions) == due, f"with {rounds} rounds, kept was {kept.transitions}"
                )


def only_what_is_new_is_written(make: Make) -> None:
    """Each outcome adds its own size, whatever came before it: the file grows in a straight line."""
    sizes = []
    with folder() as here:
        for number in (100, 200, 300):
            with make(here / f"{number}.db") as kept:
                for place in range(1, number + 1):
                    kept.intend((place,), f"CallModel {place}")
                    kept.record((place,), f"CallModel {place}", Outcome("x" * 200, float(place)))
            sizes.append((here / f"{number}.db").stat().st_size)
    first, second = sizes[1] - sizes[0], sizes[2] - sizes[1]
    expect(second <= 1.2 * first, f"100 outcomes more cost {first} bytes, and the next 100 cost {second}")
    expect(first <= 100 * 700, f"an outcome of 200 characters costs {first / 100:g} bytes")


def broken_off_by_limits_and_answers_of_any_kind(make: Make) -> None:
    """Whatever a person answers, and wherever it breaks off, file and replay agree."""

    @examples
    @given(st.sampled_from(["yes", "no", '{"amount": 1}', '{"name": "b"}', "stop"]), st.integers(0, 20))
    def check(answer: str, until: int) -> None:
        with folder() as here:
            for number in count():
                town = Town(here / "deeds", until if number == 0 else None, answer)
                try:
                    with make(here / "run.db") as kept:
                        value = drive(trip(kept.watch), town.world, kept)
                    break
                except PowerFails:
                    continue
            payments = [deed for deed in town.deeds if deed.startswith(("pay", "delete"))]
            expect(len(payments) == len(set(payments)), f"answered {answer!r}, done was {payments}")
            with make(here / "run.db") as kept:
                again = drive(trip(kept.watch), World(inline=True), kept)
            expect(again == value, f"answered {answer!r}, broken off after {until}: {again}, not {value}")

    check()


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        transitions_are_kept_as_they_were_taken,
        only_what_is_new_is_written,
        broken_off_anywhere_it_goes_on,
        each_moment_can_be_seen_again,
        a_branch_goes_its_own_way,
        one_of_two_resumers_goes_on,
        what_is_no_checkpoint_is_refused_unchanged,
        an_older_file_is_brought_up_to_date,
        older_and_torn_it_stays_as_it_was,
        another_program_is_refused_and_changes_nothing,
        with_other_limits_it_goes_on,
        broken_off_by_limits_and_answers_of_any_kind,
    )
}
