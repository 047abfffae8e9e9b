"""How a figure is measured: both sides of a ratio in turn, in one run, and the middle of what came out."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from agentloop import Limits, Reply, Usage
from fake_llm import ScriptedModel

TASK = "add one and two, again and again"
USAGE = Usage(tokens=10)


class Figure(NamedTuple):
    """One line of the report. ``goal`` is the largest value that is still good."""

    name: str
    value: float
    goal: float
    unit: str
    detail: str


def ratios(ours: Callable[[], Any], bare: Callable[[], Any], pairs: int) -> list[float]:
    """Time both sides in turn, ``pairs`` times, and return ours over bare for each pair."""
    assert ours() == bare(), "both sides must do the same work"
    return [seconds(ours) / seconds(bare) for _ in range(pairs)]


def seconds(side: Callable[[], Any]) -> float:
    began = time.perf_counter()
    side()
    return time.perf_counter() - began


def quickest(side: Callable[[], Any]) -> float:
    """Seconds of the least disturbed of a few runs."""
    return min(seconds(side) for _ in range(5))


def spread(measured: list[float]) -> str:
    return f"{min(measured):.2f} to {max(measured):.2f} in {len(measured)} pairs"


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def scripted(reply: Reply, last: Reply, rounds: int) -> ScriptedModel:
    """A model that says the same until its last reply."""
    return ScriptedModel([reply] * rounds + [last])


def wide(rounds: int) -> Limits:
    """Limits that a run of so many rounds stays within."""
    calls_in_all = 2 * rounds + 10
    return Limits(
        rounds=calls_in_all,
        model_calls=calls_in_all,
        tool_calls=calls_in_all,
        effects=2 * calls_in_all,
        tokens=10_000 * calls_in_all,
        cost=1e9,
        seconds=1e6,
    )
