"""What a circuit breaker costs: a closed one around a call, and its guard in a loop's ``act``."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Iterable
from typing import Any

from agentloop import (
    Limits,
    Observation,
    Program,
    Toolbox,
    ToolCall,
    World,
    bounded,
    call_tool,
    drive,
    settle,
)
from benchmarks.figures import Figure, add, ratios, spread
from chapters.ch21_circuit_breaker import FAILED, CircuitBreakers, breaker, meaning

CALL = ToolCall("add", {"a": 1, "b": 2}, "call_1_1_1")
SIDE_BY_SIDE = 4  # threads


def bare(call: ToolCall) -> Observation:
    """The call alone: the tool, and what it brought in words."""
    return Observation(str(add(**call.arguments)))


def breaker_figures(scale: float) -> Iterable[Figure]:
    """A closed breaker over a bare call, calls running side by side; and the guard over an unguarded act."""
    count, pairs = max(int(5000 * scale), 50), max(int(15 * scale), 3)
    breakers = CircuitBreakers()

    def guarded(call: ToolCall) -> Observation:
        permit = breakers.admit(call.name)
        assert isinstance(permit, str), "it is closed"
        observation = bare(call)
        breakers.report(permit, meaning(observation))
        return observation

    measured = ratios(lambda: side_by_side(guarded, count), lambda: side_by_side(bare, count), pairs)
    probes = probes_let_through()
    assert probes == 1, f"one probe at a time, not {probes}"
    middle = statistics.median(measured)
    yield Figure("a call through a closed breaker", middle, 20.0, "x a bare call", spread(measured))

    guard = breaker(call_tool, breakers)
    measured = ratios(lambda: driven(guard, count), lambda: driven(call_tool, count), pairs)
    middle = statistics.median(measured)
    yield Figure("an act with a breaker around it", middle, 5.0, "x call_tool", spread(measured))


def side_by_side(call: Callable[[ToolCall], Observation], count: int) -> list[str]:
    """So many calls on each of a few threads; what the last ones brought."""
    last = [""] * SIDE_BY_SIDE

    def work(place: int) -> None:
        for _ in range(count):
            last[place] = call(CALL).text

    threads = [threading.Thread(target=work, args=(place,)) for place in range(SIDE_BY_SIDE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return last


def probes_let_through() -> int:
    """How many of a crowd of threads are let through at once when a breaker is due for its probe."""
    now = [0.0]
    breakers = CircuitBreakers(clock=lambda: now[0])
    for _ in range(breakers.settings.threshold):
        breakers.report(str(breakers.admit("add")), FAILED)
    now[0] = breakers.settings.recovery
    admitted: list[str | float] = []
    crowd = [threading.Thread(target=lambda: admitted.append(breakers.admit("add"))) for _ in range(32)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    return sum(isinstance(each, str) for each in admitted)


def driven(act: Callable[[ToolCall], Any], count: int) -> str:
    """So many acts in one program, on an account, under the blocking driver."""

    def acts() -> Program[str]:
        text = ""
        for _ in range(count):
            text = (yield from settle(act(CALL))).text
        return text

    limits = Limits(tool_calls=count + 1, effects=4 * count + 10, seconds=1e6)
    return drive(bounded(acts(), limits), World(tools=Toolbox([add]), inline=True))


FIGURES = (breaker_figures,)
