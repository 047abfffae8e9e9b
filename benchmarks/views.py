"""What it costs to choose the turns of a request: at turn 100,000 as at turn 100, and all rounds together."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import Any

from agentloop import LoopContext, Observation, Outcome, Reply, ToolCall, Turn
from benchmarks.figures import Figure, seconds, spread
from paradigms.function_calling import render
from paradigms.prompt import Prompt, View
from paradigms.views import keep_head_and_tail, keep_last, summarise

WINDOW = 2_000  # tokens
VIEWS: dict[str, Callable[[], View]] = {
    "keep_last": lambda: keep_last(WINDOW),
    "keep_head_and_tail": lambda: keep_head_and_tail(3, 6, WINDOW),
    "summarise": lambda: summarise(WINDOW),
}
TURN = Turn("", (ToolCall("look", {}, "call_1_1_1"),), (Observation("晴" * 190),))


def grown_to(turns: int) -> Prompt:
    """A prompt with so many finished turns, each of about 200 tokens."""
    context = LoopContext("task")
    context.turns += [TURN] * turns
    prompt = Prompt(context, "system")
    prompt.refresh(render)
    return prompt


def shown(view: View, prompt: Prompt) -> int:
    """Let the view choose; a summary that it asks for is there at once. How many blocks it chose."""
    chosen: Any = view(prompt)
    try:
        while hasattr(chosen, "send"):
            next(chosen)
            chosen.send(Outcome(Reply("a summary"), 0.0))
    except StopIteration as ended:
        chosen = ended.value
    return len(chosen)


def views_figures(scale: float) -> Iterable[Figure]:
    """For each view: a round of a long history over one of a short, and ten times the rounds."""
    short, long = grown_to(100), grown_to(max(int(100_000 * scale), 200))
    rounds, pairs = max(int(2_000 * scale), 20), max(int(9 * scale), 3)
    for name, make in VIEWS.items():
        view = make()
        assert shown(view, short) == shown(view, long), "both are shown as much"
        measured = [
            seconds(lambda: _again(view, long, rounds)) / seconds(lambda: _again(view, short, rounds))  # noqa: B023
            for _ in range(pairs)
        ]
        middle = statistics.median(measured)
        yield Figure(f"{name} at turn {len(long.turns):,}, over 100", middle, 1.2, "x", spread(measured))
        growth = [_growing(make(), 10 * rounds) / _growing(make(), rounds) / 10 for _ in range(pairs)]
        middle = statistics.median(growth)
        yield Figure(f"   all of {10 * rounds:,} rounds, over a tenth", middle, 1.5, "x each", spread(growth))


def _again(view: View, prompt: Prompt, times: int) -> None:
    for _ in range(times):
        shown(view, prompt)


def _growing(view: View, rounds: int) -> float:
    """Seconds of so many rounds, each with one turn more: the turn taken in, and the choice."""
    prompt = grown_to(0)

    def conversation() -> None:
        for _ in range(rounds):
            prompt.context.turns.append(TURN)
            prompt.refresh(render)
            shown(view, prompt)

    return seconds(conversation)


FIGURES = (views_figures,)
