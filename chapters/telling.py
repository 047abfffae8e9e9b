"""How a chapter tells its story: lines that any console can show, and the trace of a running loop.

A demo is given a ``Telling`` and prints through it alone. ``tell("text")`` prints lines;
``tell.watch("name", limits)`` makes a watcher for ``AgentLoop(watch=...)``, which shows each round in
the three words of the loop: what the model says, what the loop does, what it sees (Thought, Action,
Observation; 思考、行动、观察), and the tokens spent by then; or it shows row by row, at a reader's own pace
(``--step``). The same steps go to the ``listeners``; one of them writes them to a file (``--trace``).
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TextIO

from agentloop import (
    LARGEST,
    QUESTION_ANSWERING,
    AgentState,
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

#: Lines to print, each with its style.
Lines = list[tuple[str, str]]

WIDTH = 100  # of a line of the trace, in characters; what is longer is cut
LINES = 8  # of one reply of the model

BOLD, DIM, RED, GREEN, CYAN = "1", "2", "31", "32", "36"


class Telling:
    """What a demo prints with. ``out`` is where lines go; ``colour`` is only for a terminal.

    With a ``pace`` each row of the table is shown by itself, for as long as somebody is at the keyboard.
    """

    def __init__(
        self,
        out: TextIO,
        listeners: Sequence[Listener] = (),
        colour: bool = False,
        pace: Pace | None = None,
    ) -> None:
        self._out = out
        self._listeners = listeners
        self._colour = colour
        self._pace = pace
        self.has_watched = False  # whether any loop has taken a step under a watcher of ours

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

    def plot(
        self, curves: Mapping[str, Sequence[float]], form: Callable[[float], str] = "{:g}".format
    ) -> None:
        """Print curves by name over the rounds; ``form`` writes the numbers of the scale."""
        for line in plot(curves, form=form):
            self(line)

    def result(self, result: Result) -> None:
        """Print how a run ended: its answer, or the honest summary of what there is instead."""
        self(f"answer: {result.answer}" if result.answer is not None else result.summary, BOLD)

    def watch(self, name: str, limits: Limits = QUESTION_ANSWERING) -> Callable[[Step], None]:
        """Make a watcher for ``AgentLoop(limits=limits, watch=...)``; ``name`` begins its lines."""

        def watcher(step: Step) -> None:
            self.has_watched = True
            if self._pace is not None and self._pace.somebody_is_there:
                self._pace.show(name, step, self)
            else:
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


def trace(name: str, step: Step) -> Lines:
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
        size = f" ({after.tokens:,} tokens so far)" if after.tokens else ""
        lines.append((DIM, f"[{name}] {number}{way} -> {after.state.name}{size}"))
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


def _turn(turn: Turn) -> Lines:
    lines = _said(turn)
    for call, observation in zip(turn.calls, turn.observations, strict=True):
        lines += _done(call) + _seen(observation)
    return lines + _told(turn)


def _said(turn: Turn) -> Lines:
    return _labelled("says", turn.thought, "")


def _done(call: ToolCall) -> Lines:
    return [] if call.problem else _labelled("does", call_text(call), CYAN)


def _seen(observation: Observation) -> Lines:
    if observation.ok:
        return _labelled("sees", observation.text, GREEN)
    return _labelled("sees", f"{observation.kind.name}: {observation.text}", RED)


def _told(turn: Turn) -> Lines:
    return [line for warning in turn.warnings for line in _labelled("told", warning, RED)]


def _labelled(label: str, text: str, style: str) -> Lines:
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


# --- A plot -----------------------------------------------------------------------------------

MARKS = ".ox*+#%@"


def plot(
    curves: Mapping[str, Sequence[float]],
    *,
    unit: str = "round",
    width: int = 60,
    height: int = 12,
    form: Callable[[float], str] = "{:g}".format,
) -> list[str]:
    """Draw curves as lines of text, in plain ASCII, for any console.

    The values of a curve stand at 1, 2, 3, ... of ``unit``; the scale goes from the lowest value to the
    highest and has 0 on it, and ``form`` writes its numbers. Where curves meet, the last one is seen.
    The legend is at the end. Raises ``ValueError`` where there is nothing to draw, or no scale for it.
    """
    values = [value for curve in curves.values() for value in curve]
    if not values or not all(abs(value) < LARGEST for value in values):
        raise ValueError("plot draws finite numbers, and at least one of them")
    if len(curves) > len(MARKS) or width < 2 or height < 2:
        raise ValueError(f"plot draws up to {len(MARKS)} curves on at least 2 x 2 characters")
    low, high, longest = min(0, *values), max(0, *values), max(map(len, curves.values()))
    high += low == high  # all values are 0
    canvas = [[" "] * width for _ in range(height)]
    for mark, curve in zip(MARKS, curves.values(), strict=False):
        for place, value in enumerate(curve):
            column = round(place / max(1, longest - 1) * (width - 1))
            canvas[_line_of(value, low, high, height)][column] = mark
    scale = {_line_of(value, low, high, height): form(value) for value in (low, (low + high) / 2, high)}
    margin = max(map(len, scale.values()))
    lines = [f"{scale.get(row, ''):>{margin}} |{''.join(canvas[row])}".rstrip() for row in range(height)]
    return [
        *lines,
        f"{'':{margin}} +{'-' * width}",
        f"{'':{margin}}  1{f'{unit} {longest}':>{width - 1}}",
        *(f"{'':{margin}}  {mark} {name}" for mark, name in zip(MARKS, curves, strict=False)),
    ]


def _line_of(value: float, low: float, high: float, height: int) -> int:
    return round((high - value) / (high - low) * (height - 1))


# --- A listener -------------------------------------------------------------------------------


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


# --- Step by step -----------------------------------------------------------------------------


class Pace:
    """Shows a loop one row of the table at a time, and goes on when Enter is pressed.

    Whoever watches is told the words of a round when it ends, so its first rows are held back until then:
    each row is shown with what belongs to it, and the tools of that round have been called by then. When
    ``keys`` has ended, nobody is there any more, and nothing is waited for.
    """

    def __init__(self, keys: TextIO) -> None:
        self.somebody_is_there = True
        self._keys = keys
        self._held: dict[str, list[Step]] = {}  # by the loop's name: rows of a round that has not ended

    def show(self, name: str, step: Step, tell: Callable[[str, str], object]) -> None:
        """Show the rows that can be told by now, each before its [Enter]."""
        if step.before.state is AgentState.IDLE:
            self._held[name] = []  # an earlier run of this name may have been left in the middle of a round
        self._held.setdefault(name, []).append(step)
        if step.after.state in (AgentState.ACTING, AgentState.WAITING_FOR_OBSERVATION):
            return
        for each in self._held.pop(name):
            row = row_taken(each.before, each.after)
            if row is None:
                continue  # only spending was booked
            for style, line in _of_this_row(name, each, step.turn):
                tell(line, style)
            if self.somebody_is_there:
                move = f"{each.before.state.name} -> {each.after.state.name}"
                tell(f"[{name}] row {row.row}: {move}, {row.guard} [Enter]", DIM)
                self._wait(tell)

    def _wait(self, tell: Callable[[str, str], object]) -> None:
        if not self._keys.readline():
            self.somebody_is_there = False
            tell("    (nobody is at the keyboard: going on without waiting)", DIM)


def _of_this_row(name: str, step: Step, turn: Turn | None) -> Lines:
    """What a step brought: thought and calls with the decision, observations with their arrival."""
    lines: Lines = []
    if turn is not None and step.event.kind in (EventKind.ACTION_CHOSEN, EventKind.ANSWER_GIVEN):
        lines += _said(turn) + [line for call in turn.calls for line in _done(call)]
    if turn is not None and step.event.kind is EventKind.OBSERVED:
        lines += [line for observation in turn.observations for line in _seen(observation)] + _told(turn)
    if step.after.stop is not None:
        lines.append((BOLD, f"[{name}] {ending(step.after)}"))
    return lines
