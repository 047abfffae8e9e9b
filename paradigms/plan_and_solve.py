"""Plan-and-Solve: first the whole plan, then its steps (Wang et al., 2023; article A, 先规划后执行).

In the paper it is a zero-shot prompt: one sentence (``TRIGGER``) in place of "Let's think step by step"
lets a model write a plan and carry it out in the same reply, so that it skips fewer steps. ``zero_shot``
is that. The paper has neither tools nor a second model call but the one that extracts the answer.

The article's form, a planner apart from an executor, is a later reading, known as plan-and-execute,
and ``PlanAndSolve`` is that: a planner hook makes the plan (规划阶段), a whole
``AgentLoop`` carries out each step (执行阶段), and a new plan is made when a step fails or the world
changes (重规划触发), a limited number of times. Both forms stand here, so it is longer than most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from agentloop import (
    RESEARCH,
    AgentLoop,
    CallModel,
    Do,
    EffectFailed,
    Finish,
    LimitReached,
    Limits,
    LoopContext,
    Message,
    Observation,
    Program,
    Result,
    StopReason,
    bounded,
    cut,
    report,
)
from paradigms.arguments import require
from paradigms.evaluators import Evaluate
from paradigms.plan import PlanStep, UnreadablePlan
from paradigms.planning import CHARACTERS, UNJUDGED, GaveUp, Planner, attempt, deviation, made
from paradigms.prompt import block

# --- The paper: one prompt --------------------------------------------------------------------

TRIGGER = (
    "Let's first understand the problem and devise a plan to solve the problem. "
    "Then, let's carry out the plan and solve the problem step by step."
)


def zero_shot(context: LoopContext) -> Program[Any]:
    """The ``reason`` hook of the paper: the task, the trigger, and the whole reply is the answer."""
    asked = block(Message("user", f"Q: {context.task}\nA: {TRIGGER}"))
    reply = (yield CallModel(asked.messages, tokens=asked.tokens)).value
    return report(reply) if isinstance(reply, Observation) else Finish(reply.text, reply.text or "")


# --- The article: planner and executor --------------------------------------------------------


class Status(Enum):
    """What became of a step."""

    NOT_RUN = "not run: the plan was given up, or the run ended, before its turn"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "not run: a step that it needs has failed"


class StepReport(NamedTuple):
    """One step of the plan of that number (1, 2, ...), and what became of it.

    ``problem`` says what went wrong. ``failed`` is the number of the failed step, in the same plan,
    because of which a step was skipped.
    """

    plan: int
    step: PlanStep
    status: Status = Status.NOT_RUN
    result: Result | None = None
    problem: str = ""
    failed: int | None = None


class Solution(NamedTuple):
    """How it ended: every step of every plan that was made, in order.

    ``answer`` is that of the last step, and not ``None`` exactly when ``stop`` is FINAL_ANSWER: then each
    step of the last plan is done. Otherwise ``stop`` is the reason of the account that ended, or
    ``GaveUp``, and ``problem`` says more.
    """

    answer: Any
    stop: StopReason | GaveUp
    problem: str
    steps: tuple[StepReport, ...]


@dataclass(frozen=True)
class PlanAndSolve:
    """A planner, and a loop that carries out each step of its plan. Frozen configuration.

    ``evaluate(goal, result)`` judges each step, which has failed below ``threshold``. ``changed()``
    says in words what is new in the world, or ``None``; it is asked before each step but a plan's first.
    ``limits`` hold planning, steps and judging to one account; ``replans`` is how many plans may be
    made after the first. Raises ``ValueError`` for a negative number of them.
    """

    executor: AgentLoop
    planner: Planner
    evaluate: Evaluate | None = None
    changed: Callable[[], str | None] | None = None
    limits: Limits = RESEARCH
    replans: int = 2
    threshold: float = 0.8

    def __post_init__(self) -> None:
        require("replans", self.replans, 0)

    def run(self, task: Any) -> Program[Solution]:
        """The program of one run. Raises what a hook raises; every other ending is in the ``Solution``."""
        if not isinstance(task, str) or not task.strip():
            return Solution(None, StopReason.INVALID_TASK, "a task is a text that says something", ())
        steps: list[StepReport] = []  # outside of the account, so that nothing is lost when it ends
        try:
            return (yield from bounded(self._plans(task, steps), self.limits, task))
        except LimitReached as refused:
            assert refused.reason is not None, "an account that refuses has ended"
            return Solution(None, refused.reason, refused.reason.value, tuple(steps))

    def _plans(self, task: str, steps: list[StepReport]) -> Program[Solution]:
        """Make plan after plan until one is carried out to its end."""
        known: dict[str, str] = {}
        heard: list[str] = []
        for number in range(1, self.replans + 2):
            try:
                plan = yield from made(self.planner, task, known)
            except UnreadablePlan as unreadable:
                return Solution(None, GaveUp.NO_PLAN, str(unreadable), tuple(steps))
            first = len(steps)
            steps += [StepReport(number, step) for step in plan]
            trouble = yield from self._carried_out(task, steps, first, heard)
            if not trouble:
                result = steps[-1].result
                assert result is not None, "a plan that is carried out has steps, each with its result"
                return Solution(result.answer, StopReason.FINAL_ANSWER, "", tuple(steps))
            known = {"what was done": written(steps), "why a new plan is needed": trouble}
        return Solution(None, GaveUp.NOT_REACHED, trouble, tuple(steps))

    def _carried_out(self, task: str, steps: list[StepReport], first: int, heard: list[str]) -> Program[str]:
        """Run the steps of one plan, from ``steps[first]`` on. Says why another is needed, or nothing."""
        for place in range(first, len(steps)):
            news = (yield from self._news()) if place > first else None
            if news and news not in heard:
                heard.append(news)
                return f"the world has changed: {news}"
            failed = _failed_need(steps[place].step, steps[first:place])
            if failed is not None:
                problem = f"step {failed} has failed"
                steps[place] = steps[place]._replace(status=Status.SKIPPED, problem=problem, failed=failed)
                continue
            known = {"the whole task": task, "steps so far": written(steps)}
            result = yield from attempt(self.executor, steps[place].step.goal, known)
            # Kept before it is judged, and failed until then: a run that ends here loses nothing.
            steps[place] = steps[place]._replace(status=Status.FAILED, result=result, problem=UNJUDGED)
            problem = yield from deviation(steps[place].step.goal, result, self.evaluate, self.threshold)
            status = Status.FAILED if problem else Status.DONE
            steps[place] = steps[place]._replace(status=status, problem=problem)
        failures = [each for each in steps[first:] if each.status is Status.FAILED]
        return "; ".join(f"step {each.step.number} failed: {each.problem}" for each in failures)

    def _news(self) -> Program[str]:
        """What is new in the world; where that cannot be seen, this is the news."""
        if self.changed is None:
            return ""
        try:
            return str((yield Do("has the world changed", self.changed, repeatable=True)).value or "")
        except EffectFailed as failure:
            return f"whether it has is not known, {failure}"


def _failed_need(step: PlanStep, before: list[StepReport]) -> int | None:
    """The failed step because of which this one cannot be run: one that it needs, or that its needs need."""
    for needed in before:
        if needed.step.number in step.needs and needed.status is not Status.DONE:
            return needed.step.number if needed.failed is None else needed.failed
    return None


def written(steps: list[StepReport]) -> str:
    """The steps with what became of them, as a prompt shows them: ``2.1`` is the first step of plan 2."""
    lines = [f"{each.plan}.{each.step.number} {each.step.goal} {_came_to(each)}" for each in steps]
    return "\n".join(["", *lines])


def _came_to(step: StepReport) -> str:
    if step.status is Status.DONE and step.result is not None:
        return f"[done] {cut(str(step.result.answer), CHARACTERS)}"
    return f"[{step.status.name.lower().replace('_', ' ')}] {step.problem}".rstrip()
