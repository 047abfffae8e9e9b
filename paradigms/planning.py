"""Planning: ask for a plan until it can be read, reach for one goal at a time, see whether it was reached.

The outer loop (``outer_loop.py``) puts the steps of a plan on its goal stack, Plan-and-Solve
(``plan_and_solve.py``) carries them out in order, an orchestrator (``orchestrator.py``) has a team work on
them; what they need stands here once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TypeVar

from agentloop import (
    AgentLoop,
    CallModel,
    EffectFailed,
    LimitReached,
    Message,
    Observation,
    Program,
    Result,
    StopReason,
    Toolbox,
    cut,
    settle,
)
from paradigms.arguments import require
from paradigms.evaluators import Evaluate, judgement_of
from paradigms.plan import Plan, UnreadablePlan, read_plan
from paradigms.prompt import block

T = TypeVar("T")


class GaveUp(Enum):
    """Why a program of plans ended without an answer, where no limit ended it."""

    NO_PLAN = "no plan could be read"
    NOT_REACHED = "what was planned was not reached, and no replan is left"


# --- Asking for a plan ------------------------------------------------------------------------

#: Makes a plan for a task, or asks the world for it: ``planner(task, known)``. Raises ``UnreadablePlan``.
Planner = Callable[[str, Mapping[str, str]], Plan | Program[Plan]]

PLANNING = """\
You make plans; others carry them out, one step at a time, with these tools:

{tools}

Write the plan for the task as a numbered list of at most {longest} steps, each on a line of its own. Say
in each step what is to be reached. A step needs the one before it; where it needs others, or none, say
so at its end: (needs 1, 2) or (needs nothing). The last step reaches the whole task."""
AGAIN = "This plan cannot be followed. {problem} Write the plan as it was asked for."


def model_planner(tools: Toolbox | None = None, asks: int = 3, longest: int = 12) -> Planner:
    """Make the planner that asks a model, at most ``asks`` times for one plan of at most ``longest`` steps.

    After a reply that cannot be read it is told why. Raises ``ValueError`` for numbers below 1.
    """
    for name, number in (("asks", asks), ("longest", longest)):
        require(name, number, 1)
    system = PLANNING.format(tools=tools.describe() if tools else "(none)", longest=longest)

    def plan(task: str, known: Mapping[str, str]) -> Program[Plan]:
        situation = [f"{name}: {text}" for name, text in known.items()]
        messages = (Message("system", system), Message("user", "\n\n".join([f"Task: {task}", *situation])))
        return asked_until(lambda text: read_plan(text, longest), UnreadablePlan, messages, asks, AGAIN)

    return plan


def asked_until(
    read: Callable[[str], T], unreadable: type[Exception], opening: tuple[Message, ...], asks: int, again: str
) -> Program[T]:
    """Ask a model until its reply can be read, at most ``asks`` times, and return what was read.

    ``read(text)`` raises ``unreadable``, which says why, and so does this in the end. After such a reply the
    model is shown it, and is told ``again``, in which ``{problem}`` stands for the why.
    """
    messages, problem = opening, ""
    for _ in range(asks):
        asked = block(*messages)
        reply = (yield CallModel(asked.messages, tokens=asked.tokens)).value
        if isinstance(reply, Observation):  # the model failed: it is asked the same again
            problem = reply.text
            continue
        text = reply.text or ""
        try:
            return read(text)
        except unreadable as error:
            problem = str(error)
        said = (Message("assistant", cut(text, 2000)),) if text.strip() else ()
        messages = (*opening, *said, Message("user", again.format(problem=problem)))
    raise unreadable(f"after {asks} requests: {problem}")


def made(planner: Planner, task: str, known: Mapping[str, str]) -> Program[Plan]:
    """Let a planner make a plan. Raises ``UnreadablePlan``, also for one without steps."""
    try:
        plan = yield from settle(planner(task, known))
    except EffectFailed as failure:
        raise UnreadablePlan(str(failure)) from failure
    if not plan:
        raise UnreadablePlan("the planner made a plan without steps")
    return plan


# --- Reaching for one goal --------------------------------------------------------------------

#: How a loop says that it cannot reach its goal; any other answer claims that it did.
FAILED = re.compile(r"\W*(?:failed|失败)\s*[:：]\s*", re.IGNORECASE)
ADMIT = 'answer with "FAILED:" and the reason'
UNJUDGED = "whether it was reached is not known: the run ended before it was judged"
CHARACTERS = 500  # of one result, as others are shown it


def attempt(loop: AgentLoop, goal: str, known: Mapping[str, str]) -> Program[Result]:
    """Run ``loop`` on one goal; what is ``known`` stands in its working memory, which its prompt shows.

    Raises ``LimitReached`` where the enclosing account refused before the first round.
    """

    result = yield from loop.knowing({**known, "if this cannot be done": ADMIT}).run(goal)
    if result.account_closed and not result.control.rounds:
        raise LimitReached(result.control)
    return result


def deviation(goal: str, result: Result, evaluate: Evaluate | None, threshold: float) -> Program[str]:
    """What keeps a goal from being reached (偏离), in words; empty where it was reached.

    It was not reached without an answer, by an answer that admits it or rests on failed calls alone,
    or where ``evaluate`` gives less than ``threshold`` or does not know. Raises ``LimitReached`` where
    a person stopped the run, or it was the enclosing account that ended.
    """
    if result.stop is StopReason.HUMAN or result.account_closed:
        raise LimitReached(result.control)  # no other goal will do better
    if result.answer is None:
        return result.summary.partition("\n")[0]
    admitted = FAILED.match(str(result.answer))
    if admitted:
        return cut(str(result.answer)[admitted.end() :], CHARACTERS) or "it failed, and no reason was given"
    seen = [observation for turn in result.turns for observation in turn.observations]
    if seen and not any(observation.ok for observation in seen):
        return f"it answered, but each of its calls had failed: {cut(seen[-1].text, CHARACTERS)}"
    if evaluate is None:
        return ""
    judgement = yield from judgement_of(evaluate, goal, result)
    if judgement.score is not None and judgement.score >= threshold:
        return ""
    reasons = cut(judgement.reasons, CHARACTERS) or "no reason was given"
    return reasons if judgement.score is not None else f"whether it was reached is not known: {reasons}"
