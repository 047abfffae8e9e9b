"""What all guards together cost: a round of the robust loop, over a round of the plain one."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from agentloop import AgentLoop, Reply, Toolbox, World, drive
from benchmarks.figures import TASK, USAGE, Figure, add, ratios, spread, wide
from chapters.ch15_goal_detection import verified
from chapters.ch21_circuit_breaker import CircuitBreakers
from chapters.ch22_hallucination import numbers_in
from chapters.ch24_five_failure_modes import Situation, robust_loop
from fake_llm import ScriptedModel
from paradigms.react import react


def robust_figures(scale: float) -> Iterable[Figure]:
    """A round in which nothing fails, under all guards, over the same round of a loop that has none."""
    rounds, pairs = max(int(50 * scale), 5), max(int(40 * scale), 3)
    tools = Toolbox([add], idempotent=["add"])
    plain = AgentLoop(react(tools), limits=wide(rounds))
    for name, times, goal in (("each call made once", 1, 3.0), ("each call made 3 times", 3, 6.0)):
        robust = robust_loop(calm(tools, times, rounds))
        measured = ratios(lambda: run(robust, rounds, tools), lambda: run(plain, rounds, tools), pairs)  # noqa: B023
        middle = statistics.median(measured)
        yield Figure(f"all guards, {name}", middle, goal, "x the plain loop", spread(measured))


def calm(tools: Toolbox, times: int, rounds: int) -> Situation:
    """A situation in which every guard is on its post, and none has anything to do."""
    return Situation(
        tools,
        CircuitBreakers(),
        goal=verified("add"),
        facts=numbers_in,
        dangerous=lambda call: None,
        alternatives={},
        only_reads=tools.is_idempotent,
        times=times,
        limits=wide(10 * rounds),
        window=1_000_000,
    )


def run(loop: AgentLoop, rounds: int, tools: Toolbox) -> str:
    """So many rounds, each with another sum, and an answer."""
    sums = [f"Thought: go on.\nConfidence: 0.9\nAction: add(a={number}, b=2)" for number in range(rounds)]
    replies = [Reply(text, usage=USAGE) for text in (*sums, "Confidence: 0.9\nAction: Finish[2]")]
    answer: str = drive(loop.run(TASK), World(ScriptedModel(replies), tools, inline=True)).answer
    return answer


FIGURES = (robust_figures,)
