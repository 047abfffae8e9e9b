"""What the promises of stop rules have in common: a model's behaviour, and a real loop that acts it out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from agentloop import (
    Act,
    AgentLoop,
    Control,
    Finish,
    Kind,
    Limits,
    LoopContext,
    LoopError,
    Observation,
    Result,
    StopReason,
    ToolCall,
    Turn,
    World,
    drive,
    settle,
)
from tests.check_machine import BrokenPromise
from tests.check_toolbox import expect, shown

Rule = Callable[[Control, LoopContext], Any]

WIDE = Limits(rounds=200, failures=200, effects=2000)


class Action(NamedTuple):
    """One call, and what comes of it; without a name it is a reply that cannot be read."""

    name: str = "get_weather"
    arguments: Mapping[str, Any] = {"city": "北京"}  # noqa: RUF012
    result: str = "nothing found"
    ok: bool = True

    @property
    def observation(self) -> Observation:
        return Observation(self.result, self.ok, Kind.RESULT if self.ok else Kind.TOOL_ERROR)


class Round(NamedTuple):
    """One round: what is said, and done."""

    actions: tuple[Action, ...]
    said: str = ""

    def __str__(self) -> str:
        said = f"says {shown(self.said)}, " if self.said else ""
        return said + "; ".join(map(_told, self.actions))


def _told(action: Action) -> str:
    if not action.name:
        return f"and nobody can read it: {shown(action.result)}"
    return f"does {action.name}({shown(action.arguments)}) -> {shown(action.result)}"


def doing(*actions: Action, said: str = "") -> Round:
    """A round of these actions."""
    return Round(actions, said)


def polled(results: Iterable[str]) -> list[Round]:
    """Polling: the same call each round, with these results."""
    return [doing(Action("poll", {"job": "j"}, each)) for each in results]


class Ending(NamedTuple):
    """How a run ended: after which round a rule stopped it (``None``: it got to its answer) and why."""

    after: int | None
    reason: StopReason
    warned: tuple[int, ...]  # the rounds after which the model was told something
    result: Result


def program(rule: Rule, behaviour: Sequence[Round], limits: Limits = WIDE) -> Any:
    """The loop's program for this behaviour, with the answer at its end."""
    rounds = iter(behaviour)
    results: list[Observation] = []

    def reason(context: LoopContext) -> Act | Finish:
        now = next(rounds, None)
        if now is None:
            return Finish("done")
        results[:] = [each.observation for each in now.actions if each.name]
        return Act(tuple(map(_call, now.actions)), now.said)

    return AgentLoop(reason, lambda call: results.pop(0), stops=(rule,), limits=limits).run("a task")


def _call(action: Action) -> ToolCall:
    problem = None if action.name else Observation(action.result, False, Kind.MALFORMED)
    return ToolCall(action.name, action.arguments, problem=problem)


def asked(rule: Rule, context: LoopContext, turn: Turn) -> Any:
    """What the rule says of one more turn."""
    context.turns.append(turn)
    return drive(settle(rule(Control(rounds=len(context.turns)), context)), World(inline=True))


def ended(result: Result) -> Ending:
    """What the promises look at in a result."""
    warned = tuple(number for number, turn in enumerate(result.turns, 1) if turn.warnings)
    after = None if result.stop is StopReason.FINAL_ANSWER else result.control.rounds
    return Ending(after, result.stop, warned, result)


def run(rule: Rule, behaviour: Sequence[Round]) -> Ending:
    """Let a loop behave so, with this one rule."""
    try:
        return ended(drive(program(rule, behaviour), World(inline=True)))
    except LoopError as error:
        rounds = len(error.result.turns)
        raise BrokenPromise(
            _story(behaviour[:rounds], f"made the rule break down: {error}")
        ) from error.__cause__


def is_left_alone(rule: Rule, behaviour: Sequence[Round], why: str) -> None:
    """Raise the story where a rule stops or warns this behaviour."""
    end = run(rule, behaviour)
    expect(end.after is None, _story(behaviour[: end.after], f"was stopped with {end.reason.name}: {why}"))
    expect(not end.warned, _story(behaviour, f"was warned after round {end.warned}: {why}"))


def is_stopped(rule: Rule, behaviour: Sequence[Round], after: int, reason: StopReason, why: str) -> None:
    """Raise the story where a rule does not stop this behaviour just after that round, for that reason."""
    end = run(rule, behaviour)
    told = "went on to its end" if end.after is None else f"was stopped after round {end.after}"
    due = f"and round {after} was due: {why}"
    expect(end.after == after, _story(behaviour[: max(after, end.after or 0)], f"{told}, {due}"))
    named = f"was stopped with {end.reason.name}, and not with {reason.name}"
    expect(end.reason is reason, _story(behaviour[:after], named))


def _story(behaviour: Sequence[Round], what: str) -> str:
    lines = [f"  round {number} {each}" for number, each in enumerate(behaviour, 1)]
    if len(lines) > 8:
        lines[4:-2] = [f"  ... and {len(lines) - 6} more like these ..."]
    return "\n".join(["a model that", *lines, what])
