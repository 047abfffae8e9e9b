"""Chapter 31: checkpoints. A real process is killed at every point; cases K01, K02, K04, K06, K09; EC01."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from agentloop import (
    AgentLoop,
    AgentState,
    Away,
    Do,
    Interrupt,
    Limits,
    Outcome,
    Program,
    StopReason,
    World,
    drive,
)
from benchmarks import journal as benchmark
from chapters.ch07_drivers import drive_async, drive_on_bus
from chapters.ch18_human_in_the_loop import Unwritable
from chapters.ch31_checkpoints import (
    AlreadyRunning,
    Bank,
    Checkpoints,
    IncompatibleCheckpoint,
    PowerFails,
    Snapshots,
    ticket,
    traveller,
    unwatched,
)
from fake_llm import FakeClock, ScriptedModel
from paradigms.evaluators import Judgement, judged_by_tests
from paradigms.function_calling import function_calling
from paradigms.reflexion import Reflexion, reflect_in_words
from tests import check_checkpoints, check_disk_journal
from tests.check_approval import Office
from tests.check_checkpoints import Town, alone, hold_nothing_twice, live, trip
from tests.check_disk_journal import folder

ROOT = Path(__file__).parent.parent

# --- The promises -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", check_checkpoints.PROMISES)
def test_checkpoints_keep(name: str) -> None:
    check_checkpoints.PROMISES[name](Checkpoints)


@pytest.mark.parametrize("name", check_disk_journal.PROMISES)
def test_checkpoints_are_a_journal_on_disk(name: str) -> None:
    check_disk_journal.PROMISES[name](Checkpoints)


@pytest.mark.parametrize(
    ("promise", "told"),
    [
        ("an_intent_is_on_disk_before_it_is_begun", "a call was begun"),
        ("a_run_goes_on_wherever_its_power_failed", "'pay 9', 'pay 9'"),
        ("what_cannot_be_written_is_named", "recorded all the same"),
    ],
)
def test_the_naive_checkpoint_breaks(promise: str, told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        check_disk_journal.PROMISES[promise](Snapshots)


# --- kill -9 ----------------------------------------------------------------------------------


class Killed(Checkpoints):
    """Checkpoints in whose writing the process is killed: after an intent, before an outcome, or after it."""

    def __init__(self, path: Path, point: int) -> None:
        super().__init__(path)
        # What was handed to the system outlives a process; only a power cut would need it to be synced.
        self.database.execute("PRAGMA synchronous = OFF")
        self.points_left = point

    def _pass(self) -> None:
        if self.points_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.points_left -= 1

    def intend(self, address: tuple[int, ...], asked: str) -> None:
        super().intend(address, asked)
        self._pass()

    def record(self, address: tuple[int, ...], asked: str, outcome: Outcome) -> None:
        self._pass()
        super().record(address, asked, outcome)
        self._pass()


def live_until_killed(folder: Path) -> None:
    """A process for each point, until one comes to the end alive. Runs in a process without threads."""
    point = 0
    while True:
        here = folder / str(point)
        here.mkdir()
        child = os.fork()
        if child == 0:
            try:
                with Killed(here / "run.db", point) as kept:
                    drive(trip(kept.watch), Town(here / "deeds").world, kept)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            return
        point += 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system knows no fork and no SIGKILL")
def test_K01_killed_between_every_intent_and_outcome_it_goes_on() -> None:
    """Retries, approvals and a payment, in a program of loops that is killed at each of its points."""
    with folder() as here:
        (here / "runs").mkdir()
        script = "import sys, pathlib, tests.test_ch31 as t; t.live_until_killed(pathlib.Path(sys.argv[1]))"
        command = [sys.executable, "-B", "-c", script, str(here / "runs")]
        subprocess.run(command, cwd=ROOT, check=True)
        hold_after_each_kill(here)


def hold_after_each_kill(parent: Path) -> None:
    whole = live(parent, trip)
    folders = sorted((parent / "runs").iterdir(), key=lambda each: int(each.name))
    points = 3 * len(whole_outcomes(parent))
    assert len(folders) == points + 1, "a process was killed at each point, and the last one lived"
    doubted = 0
    for here in folders:
        town = Town(here / "deeds")
        with Checkpoints(here / "run.db") as kept:
            in_doubt = [asked for asked in kept.intents.values() if asked.startswith("CallTool")]
            results = drive(trip(kept.watch), town.world, kept)
        hold_nothing_twice(town, whole.deeds, results, f"killed at point {here.name}")
        unsafe = [asked for asked in in_doubt if " look(" not in asked]
        assert str(results).count("whether it took effect is not known") == len(unsafe)
        doubted += len(unsafe)
        if not unsafe:
            assert [result.answer for result in results] == [result.answer for result in whole.value]
    assert doubted == 4, "after the intent and before the outcome, of a payment and of a deletion"


def whole_outcomes(folder: Path) -> list[Any]:
    with Checkpoints(folder / "whole.db") as kept:
        drive(trip(kept.watch), Town(folder / "whole deeds").world, kept)
        return list(kept.outcomes)


HOLDER = """
import sys, time
from chapters.ch31_checkpoints import Checkpoints
kept = Checkpoints(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system knows no SIGKILL")
def test_K06_a_run_held_by_another_process_is_refused_and_a_dead_holder_is_taken_over(tmp_path: Path) -> None:
    command = [sys.executable, "-B", "-c", HOLDER, str(tmp_path / "run.db")]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(AlreadyRunning, match="somebody else"):
            Checkpoints(tmp_path / "run.db")
        holder.kill()
        holder.wait()
    with Checkpoints(tmp_path / "run.db") as kept:
        assert drive(trip(kept.watch), Town(tmp_path / "deeds").world, kept)[0].answer == "buy tea: done"


# --- Cases ------------------------------------------------------------------------------------


def test_K02_left_at_each_question_nothing_is_done_twice(tmp_path: Path) -> None:
    whole, path = live(tmp_path, trip), tmp_path / "run.db"
    town, away = Town(tmp_path / "other deeds"), [True]

    def human(question: str) -> str:
        away.reverse()
        away[0] = not away[0]
        if not away[0]:
            raise Away(question)
        return town.human(question)

    world = World(town.model, town.world.tools, human, inline=True)
    for _ in range(9):
        try:
            with Checkpoints(path) as kept:
                results = drive(trip(kept.watch), world, kept)
            break
        except Away:
            continue
    assert sorted(town.deeds) == sorted(whole.deeds)
    assert [result.turns for result in results] == [result.turns for result in whole.value]


def test_K04_what_cannot_be_written_leaves_the_last_good_checkpoint(tmp_path: Path) -> None:
    def program() -> Program[Any]:
        yield Do("good", lambda: {"tea": 1}, repeatable=True)
        return (yield Do("bad", lambda: {"tools": [{"lock": Lock()}]}, repeatable=True)).value

    path = tmp_path / "run.db"
    with pytest.raises(Unwritable, match=r"tools\[0\]\.lock"), Checkpoints(path) as kept:
        drive(program(), World(inline=True), kept)
    with Checkpoints(path) as kept:
        assert [outcome.value for _, _, outcome in kept.outcomes] == [{"tea": 1}]
        assert list(kept.intents.values()) == ["Do bad"]


def test_K09_both_versions_are_named(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    Checkpoints(path).close()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE run SET version = 99")
    database.close()
    with pytest.raises(IncompatibleCheckpoint, match="is of version 99, and 2 is read here"):
        Checkpoints(path)


def test_EC01_a_process_that_died_while_it_made_the_file_left_nothing_to_refuse(tmp_path: Path) -> None:
    (tmp_path / "run.db").touch()
    with Checkpoints(tmp_path / "run.db") as kept:
        assert kept.outcomes == [] and kept.transitions == [] and kept.parent == ""


def test_a_folder_and_a_place_that_is_not_there_are_no_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(IncompatibleCheckpoint, match="this is a folder"):
        Checkpoints(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no folder .*nowhere"):
        Checkpoints(tmp_path / "nowhere" / "run.db")


# --- Under every driver, and with every kind of program ---------------------------------------


@pytest.mark.parametrize("driver", [drive, drive_async, drive_on_bus], ids=lambda each: each.__name__)
@pytest.mark.parametrize("inline", [True, False])
def test_every_driver_keeps_the_same_run(driver: Callable[..., Any], inline: bool, tmp_path: Path) -> None:
    whole, town = live(tmp_path, partial(alone)), Town(tmp_path / "other deeds")
    world = World(town.model, town.world.tools, town.human, inline=inline)
    with Checkpoints(tmp_path / "run.db") as kept:
        came = driver(alone(kept.watch), world, kept)
        result = asyncio.run(came) if asyncio.iscoroutine(came) else came
    assert result.turns == whole.value.turns and result.stop is StopReason.MAX_ITERATIONS
    with Checkpoints(tmp_path / "run.db") as kept:
        assert [each.control.state for each in kept.transitions] == [each[1].state for each in whole.moments]
        assert drive(alone(kept.watch), World(inline=True), kept) == result


@pytest.mark.parametrize("driver", [drive, drive_async, drive_on_bus], ids=lambda each: each.__name__)
@pytest.mark.parametrize("inline", [True, False])
def test_loops_side_by_side_are_brought_back_in_the_order_in_which_they_went(
    driver: Callable[..., Any], inline: bool, tmp_path: Path
) -> None:
    town = Town(tmp_path / "deeds")
    with Checkpoints(tmp_path / "run.db") as kept:
        came = driver(trip(kept.watch), replace(town.world, inline=inline), kept)
        results = asyncio.run(came) if asyncio.iscoroutine(came) else came
    before = (tmp_path / "run.db").read_bytes()
    with Checkpoints(tmp_path / "run.db") as kept:
        assert drive(trip(kept.watch), World(inline=True), kept) == results
        ends = [each.control for each in kept.transitions if each.control.stop]
        assert sorted(ends, key=str) == sorted([result.control for result in results], key=str)
    assert (tmp_path / "run.db").read_bytes() == before, "each transition was known already"


def test_an_interrupted_run_stays_interrupted(tmp_path: Path) -> None:
    interrupt = Interrupt()
    interrupt.set()
    with Checkpoints(tmp_path / "run.db") as kept:
        result = drive(alone(kept.watch), Town(tmp_path / "deeds").world, kept, interrupt)
    with Checkpoints(tmp_path / "run.db") as kept:
        assert drive(alone(kept.watch), World(inline=True), kept) == result
        assert result.stop is StopReason.HUMAN and kept.transitions[-1].control == result.control


def test_a_paradigm_is_resumed_in_the_middle_of_its_trials(tmp_path: Path) -> None:
    """Reflexion's judgements are outcomes of its own type, and are written when it is named."""
    replies = ["first", "I should try harder.", "second"]

    def trials(watch: Callable[[str], Any]) -> Program[Any]:
        actor = AgentLoop(function_calling(Office().world.tools or pytest.fail()), watch=watch("trial"))
        judge = judged_by_tests(lambda answer: Judgement(float(answer == "second"), "not yet"))
        return Reflexion(actor, judge, reflect_in_words).run("try")

    due = drive(trials(unwatched), World(ScriptedModel(replies), clock=FakeClock().now, inline=True))
    said = iter(replies)
    for number in range(3):
        budget = [1]

        def model(request: Any, budget: list[int] = budget) -> str:
            if not budget:
                raise PowerFails
            budget.pop()
            return next(said)

        try:
            with Checkpoints(tmp_path / "run.db", [Judgement]) as kept:
                came = drive(trials(kept.watch), World(model, clock=FakeClock().now, inline=True), kept)
        except PowerFails:
            assert number < 2
    assert came == due and came.answer == "second"


def test_limits_raised_after_the_fact_are_told_apart(tmp_path: Path) -> None:
    """B-35: the reason says which limit it was, so that it can be raised, and the run goes on."""
    path, town = tmp_path / "run.db", Town(tmp_path / "deeds")
    for rounds, payments in ((1, 1), (3, 3)):
        with Checkpoints(path) as kept:
            result = drive(alone(kept.watch, rounds), town.world, kept)
        assert result.stop is StopReason.MAX_ITERATIONS and result.limits == Limits(rounds=rounds)
        assert len([deed for deed in town.deeds if deed.startswith("pay")]) == payments


# --- The story, and what it costs -------------------------------------------------------------


def test_after_a_resume_only_what_is_new_is_written(tmp_path: Path) -> None:
    path, town = tmp_path / "run.db", Town(tmp_path / "deeds")
    with Checkpoints(path) as kept:
        kept.database.execute("PRAGMA synchronous = OFF")
        drive(alone(kept.watch, 10), town.world, kept)
    with Checkpoints(path) as kept:
        kept.database.execute("PRAGMA synchronous = OFF")
        known = len(kept.outcomes)
        drive(alone(kept.watch, 11), town.world, kept)
        effects, rows = len(kept.outcomes) - known, kept.database.total_changes
    assert rows <= 2 * effects + 6 < len(kept.transitions), (
        "twice an effect, and the transitions of one round"
    )


@pytest.fixture
def story(tmp_path: Path) -> Iterator[tuple[Bank, Path]]:
    bank, path = Bank(), tmp_path / "run.db"
    with pytest.raises(PowerFails), Checkpoints(path) as kept:
        drive(ticket(bank, unwatched)(kept.watch), World(traveller, bank.tools, inline=True), kept)
    yield bank, path


def test_the_ticket_is_paid_once(story: tuple[Bank, Path]) -> None:
    bank, path = story
    with Checkpoints(path) as kept:
        result = drive(ticket(bank, unwatched)(kept.watch), World(traveller, bank.tools, inline=True), kept)
    assert result.answer == "门票买好了，付了 60 元。" and bank.cashier.ledger == [60]


def test_the_file_is_plain_enough_for_the_sqlite3_shell(story: tuple[Bank, Path]) -> None:
    _, path = story
    database = sqlite3.connect(path)
    rows = list(database.execute('SELECT number, loop, "row", state, rounds FROM transitions'))
    [begun] = database.execute("SELECT asked FROM effects WHERE arrived IS NULL")
    database.close()
    assert rows[:3] == [
        (1, "agent", 1, "PERCEIVING", 0),
        (2, "agent", 2, "REASONING", 1),
        (3, "agent", 3, "ACTING", 1),
    ]
    assert "pay(amount=60)" in begun[0]


def test_a_moment_is_a_control_that_the_machine_made(story: tuple[Bank, Path]) -> None:
    bank, path = story
    with Checkpoints(path) as kept:
        moment = kept.moment(5, ticket(bank, unwatched))
        assert (moment.loop, moment.control.state, len(moment.turns)) == ("agent", AgentState.REASONING, 1)
        assert bank.cashier.ledger == [60] and moment.turns[0].calls[0].name == "get_weather"


def test_figures_are_measured() -> None:
    figures = [figure for each in benchmark.FIGURES for figure in each(0.02)]
    sizes = [figure for figure in figures if figure.unit == "bytes a step"]
    assert len(sizes) == 2 and all(0 < figure.value <= figure.goal for figure in sizes)
    assert len(figures) == 4 and all(figure.value > 0 for figure in figures)
