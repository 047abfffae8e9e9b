"""What a checkpoint costs: bytes a step as a run grows, and time a step over one bare insert and commit."""

from __future__ import annotations

import sqlite3
import statistics
import tempfile
from collections.abc import Iterable
from pathlib import Path

from agentloop import AgentLoop, Reply, Toolbox, World, drive
from benchmarks.figures import TASK, Figure, scripted, seconds, spread, wide
from chapters.ch31_checkpoints import Checkpoints
from paradigms.prompt import last_turns
from paradigms.react import react

CHARACTERS = 200  # of each of the two messages of a round: what the model says, and what the tool does
SHOWN = 4  # turns in the prompt
ACTION = "\nAction: report(day=1)"
SAID = Reply("Thought: ".ljust(CHARACTERS - len(ACTION), ".") + ACTION)
LAST = Reply("Thought: done.\nAction: Finish[3]")


def report(day: int) -> str:
    """Report what there was on a day."""
    return "sunny ".ljust(CHARACTERS, ".")


def kept(path: Path, rounds: int, synced: bool = True) -> int:
    """Run so many rounds with every step on disk, and return the number of steps: effects with an outcome."""
    tools = Toolbox([report])
    with Checkpoints(path) as checkpoints:
        if not synced:  # where only the size is of interest
            checkpoints.database.execute("PRAGMA synchronous = OFF")
        loop = AgentLoop(react(tools, last_turns(SHOWN)), limits=wide(rounds), watch=checkpoints.watch())
        drive(loop.run(TASK), World(scripted(SAID, LAST, rounds), tools, inline=True), checkpoints)
        return len(checkpoints.outcomes)


def bare(path: Path, rows: int) -> None:
    """Insert so many messages, each with a commit of its own."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("CREATE TABLE messages (number INTEGER PRIMARY KEY, text TEXT)")
    for number in range(rows):
        database.execute("INSERT INTO messages VALUES (?, ?)", (number, SAID.text))
    database.close()


def bytes_figures(scale: float) -> Iterable[Figure]:
    """Bytes of the file for each step, in a short run and in one ten times as long."""
    sizes = []
    for rounds in (100, max(int(1000 * scale), 200)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "run.db")
            steps = kept(path, rounds, synced=False)
            sizes.append(path.stat().st_size / steps)
            detail = f"{steps} steps, {path.stat().st_size / rounds:.0f} bytes a round of two messages"
            yield Figure(f"a checkpoint, {rounds} rounds", sizes[-1], 700.0, "bytes a step", detail)
    yield Figure("   of it in the long run, over the short", sizes[1] / sizes[0], 1.1, "x", "1 is flat")


def commit_figures(scale: float) -> Iterable[Figure]:
    """Seconds of a step, its loop included, over those of one bare insert and commit on the same disk."""
    rounds, pairs = max(int(200 * scale), 5), max(int(9 * scale), 3)
    measured = []
    with tempfile.TemporaryDirectory() as folder:
        for pair in range(pairs):
            steps: list[int] = []
            ours = seconds(lambda: steps.append(kept(Path(folder, f"{pair}.run"), rounds)))  # noqa: B023
            inserts = seconds(lambda: bare(Path(folder, f"{pair}.bare"), steps[0]))  # noqa: B023
            measured.append(ours / inserts)
    yield Figure(
        "a step with its checkpoint", statistics.median(measured), 3.0, "x a commit", spread(measured)
    )


FIGURES = (bytes_figures, commit_figures)
