"""How a chapter tells its story: lines that any console can show, and the trace of a running loop.

A demo is given a ``Telling`` and prints through it alone. ``tell("text")`` prints lines;
``tell.watch("name", limits)`` makes a watcher for ``AgentLoop(watch=...)``, which shows each round in
the three words of the loop: what the model says, what the loop does, what it sees (Thought, Action,
Observation; 思考、行动、观察). The same steps go to the ``listeners``: ``--trace`` and ``--step`` are two.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import TextIO

from agentloop import (
    QUESTION_ANSWERING,
    Control,
    EventKind,
    Limits,
    Observation,
    Result,
    Step,
    ToolCall,
    Turn,
    call_text,
    on_one_line,
    row_taken,
)
from fake_llm.recording import as_data

#: Hears every step of every watched loop: the loop's name, the limits it is held to, the step.
Listener = Callable[[str, Limits, Step], object]

WIDTH = 100  # of a line of the trace, in characters; what is longer is cut
LINES = 8  # of one reply of the model

BOLD, DIM, RED, GREEN, CYAN = "1", "2", "31", "32", "36"


class Telling:
    """What a demo prints with. ``out`` is where lines go; ``colour`` is only for a terminal."""

    def __init__(self, out: TextIO, listeners: Sequence[Listener] = (), colour: bool = False) -> None:
        self._out = out
        self._listeners = listeners
        self._colour = colour

    def __call__(self, text: str = "", style: str = "") -> None:
        """Print ``text``, which may have several lines, or an empty line."""
        self._out.write(f"\x1b[{style}m{text}\x1b[0m\n" if style and self._colour else f"{text}\n")

    def heading(self, text: str) -> None:
        """Print the title of a part of the story, with room above it."""
        self(f"\n{text}\n{'-' * _width(text)}", BOLD)

    def table(self, rows: Iterable[Sequence[object]]) -> None:
        """Print rows as aligned columns; Chinese characters count as two wide."""
        for line in columns(rows):
            self(line)

    def result(self, result: Result) -> None:
        """Print how a run ended: its answer, or the honest summary of what there is instead."""
        self(f"answer: {result.answer}" if result.answer is not None else result.summary, BOLD)

    def watch(self, name: str, limits: Limits = QUESTION_ANSWERING) -> Callable[[Step], None]:
        """Make a watcher for ``AgentLoop(limits=limits, watch=...)``; ``name`` begins its lines."""

        def watcher(step: Step) -> None:
            for style, line in trace(name, step):
                self(line, style)
            for listener in self._listeners:
                listener(name, limits, step)

        return watcher


# --- The trace --------------------------------------------------------------------------------

_WAY_HERE = {
    EventKind.PERCEIVED: "IDLE -> PERCEIVING -> REASONING",
    EventKind.OBSERVED: "REASONING -> ACTING -> WAITING_FOR_OBSERVATION",
}


def trace(name: str, step: Step) -> list[tuple[str, str]]:
    """The lines that tell of one step, each with its style; most steps say nothing until a round ends.

    A pure function of the step, so that loops side by side can share one telling.
    """
    before, event, after, turn = step
    lines = []
    if event.kind is EventKind.PERCEIVED and after.stop is None:
        lines.append((DIM, f"[{name}] {_WAY_HERE[event.kind]}"))
    elif turn is not None or after.stop is not None:
        number = f"round {before.rounds}: " if before.rounds else ""
        way = _WAY_HERE.get(event.kind, before.state.name)
        lines.append((DIM, f"[{name}] {number}{way} -> {after.state.name}"))
    if turn is not None:
        lines += _turn(turn)
    if after.stop is not None:
        lines.append((BOLD, f"[{name}] {ending(after)}"))
    return lines


def ending(control: Control) -> str:
    """The end of a run in one line: the reason, and what was counted until then."""
    if control.stop is None:
        raise ValueError(f"the run has not ended, it is in {control.state.name}")
    counts = ", ".join(
        f"{number} {noun}{'' if number == 1 else 's'}"
        for number, noun in (
            (control.rounds, "round"),
            (control.model_calls, "model call"),
            (control.tool_calls, "tool call"),
        )
    )
    return f"{control.stop.name}: {control.stop.value} ({counts})"


def _turn(turn: Turn) -> list[tuple[str, str]]:
    lines = _labelled("says", turn.thought, "")
    for call, observation in zip(turn.calls, turn.observations, strict=True):
        lines += _call(call, observation)
    for warning in turn.warnings:
        lines += _labelled("told", warning, RED)
    return lines


def _call(call: ToolCall, observation: Observation) -> list[tuple[str, str]]:
    done = [] if call.problem else _labelled("does", call_text(call), CYAN)
    if observation.ok:
        return done + _labelled("sees", observation.text, GREEN)
    return done + _labelled("sees", f"{observation.kind.name}: {observation.text}", RED)


def _labelled(label: str, text: str, style: str) -> list[tuple[str, str]]:
    lines = [on_one_line(line, WIDTH) for line in text.splitlines() if line.strip()]
    if len(lines) > LINES:
        lines[LINES:] = [f"... and {len(lines) - LINES} more lines"]
    labels = [label] + [""] * len(lines)
    return [(style, f"    {label:4}  {line}") for label, line in zip(labels, lines, strict=False)]


def columns(rows: Iterable[Sequence[object]]) -> list[str]:
    """Rows of cells as lines in which each column starts at the same place."""
    table = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(_width, column)) for column in zip(*table, strict=True)]
    return ["  ".join(map(_padded, row, widths)).rstrip() for row in table]


def _padded(cell: str, width: int) -> str:
    return cell + " " * (width - _width(cell))


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


# --- Listeners --------------------------------------------------------------------------------


def steps_written_to(file: TextIO, chapter: str) -> Listener:
    """Write each step as one line of JSON (JSON Lines), with the row of the table that it took.

    ``advance(before, event, limits)`` gives ``after`` again, so a trace can be checked by anyone.
    """

    def write(name: str, limits: Limits, step: Step) -> None:
        row = row_taken(step.before, step.after)
        line = {"chapter": chapter, "loop": name, "row": row.row if row else None}
        line |= as_data(step) | {"limits": as_data(limits)}
        file.write(json.dumps(line, ensure_ascii=False) + "\n")

    return write


def enter_waited_for(keys: TextIO | None, tell: Callable[[str], object]) -> Listener:
    """Stop at each transition until Enter is pressed; when ``keys`` has ended, go on without waiting."""
    waiting = True

    def wait(name: str, limits: Limits, step: Step) -> None:
        nonlocal waiting
        before, event, after, _ = step
        if not waiting or before.state is after.state:
            return
        row = row_taken(before, after)
        move = f"{before.state.name} -> {after.state.name}, {event.kind.value}"
        tell(f"    row {row.row if row else '?'}: {move} [Enter]")
        if keys is None or not keys.readline():
            tell("    (nobody is at the keyboard: going on without waiting)")
            waiting = False

    return wait
