"""Runs for what is asked of an answer: a model that answers, looks or fails, as it is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from agentloop import (
    Act,
    AgentLoop,
    Finish,
    Journal,
    Kind,
    Limits,
    LoopContext,
    Observation,
    Result,
    Toolbox,
    ToolCall,
    Turn,
    World,
    drive,
    report,
    settle,
)
from fake_llm import FakeClock
from tests.check_machine import BrokenPromise

TASK = "今天去北京哪里玩？"
WIDE = Limits(rounds=20, failures=21)


def look(city: str) -> str:
    """Look at a city."""
    return f"{city}：晴"


def ask(city: str) -> str:
    """Ask about a city."""
    return f"{city}很美"


def fail(city: str) -> str:
    """Look at a city that cannot be seen."""
    raise ValueError("no such city")


TOOLS = Toolbox([look, ask, fail])


def _call(tool: str) -> ToolCall:
    return ToolCall(tool, {"city": "北京"})


#: What a model may do in a round.
MOVES: dict[str, Act | Finish] = {
    "answer": Finish("长城"),
    "look": Act((_call("look"),)),
    "ask": Act((_call("ask"),)),
    "fail": Act((_call("fail"),)),
    "look twice": Act((_call("look"), _call("look"))),
    "fail and look": Act((_call("fail"), _call("look"))),
    "invent a tool": Act((_call("lok"),)),
    "be held back": Act((_call("look")._replace(problem=Observation("not sure", False, Kind.REFUSED)),)),
    "mumble": report(Observation("no action", False, Kind.MALFORMED)),
}
moves = st.lists(st.sampled_from(list(MOVES)), max_size=8)


def played(
    moves: Sequence[str],
    *,
    accept: Any = None,
    stops: tuple[Any, ...] = (),
    limits: Limits = WIDE,
    world: World | None = None,
    journal: Journal | None = None,
) -> Result:
    """Run a model that makes these moves, one a round, and the last of them over and over."""

    def reason(context: LoopContext) -> Act | Finish:
        return MOVES[moves[min(len(context.turns), len(moves) - 1)]]

    loop = AgentLoop(reason, accept=accept, stops=stops, limits=limits)
    clock = FakeClock()
    return drive(loop.run(TASK), world or World(tools=TOOLS, clock=clock.now, inline=True), journal)


def after(moves: Sequence[str]) -> LoopContext:
    """The context after these moves; an answer among them was refused."""
    context = LoopContext(TASK)
    for move in moves:
        decision = MOVES[move]
        if isinstance(decision, Finish):
            decision = report(Observation("not yet", False, Kind.REFUSED))
        seen = tuple(call.problem or TOOLS.execute(call) for call in decision.calls)
        context.turns.append(Turn("", decision.calls, seen))
    return context


def objection(check: Callable[..., Any], answer: Any = "长城", moves: Sequence[str] = ()) -> Any:
    """What a check says of an answer after these moves."""
    try:
        return drive(_settled(check, after(moves), answer), World(inline=True))
    except Exception as error:
        raise BrokenPromise(
            f"asked about {answer!r}, the check raises {error!r}, and objects to nothing"
        ) from error


def _settled(check: Callable[..., Any], context: LoopContext, answer: Any) -> Any:
    return (yield from settle(check(context, answer)))
