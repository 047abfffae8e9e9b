"""The outer loop: which goal is worked on, whether it was reached, and what is kept (article A, 外循环).

The article nests two loops as control theory nests controllers (级联控制): the inner one thinks, the
outer one meets the world. Its round, think, act, observe, is a round of ``AgentLoop`` here, and what
thinks in it is the ``reason`` hook (chapters 08 and 09). ``OuterLoop`` is the rest of its description,
around whole loops: the four duties (核心职责) that no single loop has a place for.

目标追踪    a stack of goals, the task at its bottom; the loop works on the topmost alone
计划修正    a goal that was not reached gets sub-goals on top of it, and is tried again when they are done
记忆更新    after each attempt, what it taught goes to a long-term memory that outlives the run
上下文压缩  ``compressed``, a view for the loop: one line for each turn that the window has no room for

Working memory is where the two meet (双循环的协同机制): each attempt is shown the stack, what was found,
and what is remembered; its answer is what the outer loop decides on. Four duties in one file make it long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from agentloop import (
    RESEARCH,
    AgentLoop,
    Do,
    EffectFailed,
    LimitReached,
    Limits,
    Program,
    Result,
    StopReason,
    bounded,
    cut,
)
from paradigms.arguments import require
from paradigms.evaluators import Evaluate
from paradigms.plan import UnreadablePlan
from paradigms.planning import CHARACTERS, UNJUDGED, GaveUp, Planner, attempt, deviation, made
from paradigms.prompt import View
from paradigms.views import one_line_each, summarise


class Goal(NamedTuple):
    """What is to be reached, and how deep it lies in the hierarchy: the task at 1, its sub-goals at 2."""

    text: str
    depth: int = 1


class Attempt(NamedTuple):
    """One loop run on one goal, and what kept it from being reached: empty where it was reached."""

    goal: Goal
    result: Result
    deviation: str


class Pursuit(NamedTuple):
    """How it ended: every attempt in order, the goals still open (the topmost last), what was remembered.

    ``answer`` is that of the task itself, and not ``None`` exactly when ``stop`` is FINAL_ANSWER.
    Otherwise ``stop`` is the reason of the account that ended, or ``GaveUp``, and ``problem`` says more.
    ``recalled`` came from long-term memory and ``learned`` went into it.
    """

    answer: Any
    stop: StopReason | GaveUp
    problem: str
    attempts: tuple[Attempt, ...] = ()
    open: tuple[Goal, ...] = ()
    recalled: tuple[str, ...] = ()
    learned: tuple[str, ...] = ()


class Memory(Protocol):
    """A long-term memory (长时记忆). Its owner keeps it from run to run; the loop reaches it by ``Do``."""

    def recall(self, task: str) -> Iterable[str]:
        """What is known that bears on the task."""

    def keep(self, task: str, lesson: str) -> object:
        """Keep what a run on this task taught."""


def lesson(attempt: Attempt) -> str:
    """What an attempt taught, in words: how the goal was reached, or what kept it from being reached."""
    came_to = f"没有达成：{attempt.deviation}" if attempt.deviation else f"达成：{attempt.result.answer}"
    return cut(f"{attempt.goal.text}: {came_to}", CHARACTERS)


@dataclass
class _State:
    """What one run holds in its hands."""

    stack: list[Goal]
    attempts: list[Attempt] = field(default_factory=list)
    recalled: tuple[str, ...] = ()
    learned: list[str] = field(default_factory=list)

    def known(self) -> dict[str, str]:
        """What goes into working memory."""
        found = [f"{goal.text}: {result.answer}" for goal, result, missed in self.attempts if not missed]
        deviated = self.attempts[-1].deviation if self.attempts else ""
        # Goals of equal depth wait for each other: the topmost one's way down holds one of each depth.
        way = {goal.depth: goal.text for goal in self.stack}
        told = {
            "goals (目标栈)": " > ".join(way.values()),
            "after this": ", ".join(
                goal.text for goal in reversed(self.stack) if goal.text not in way.values()
            ),
            "remembered (长时记忆)": "\n".join(self.recalled),
            "reached (已达成)": "\n".join(cut(each, CHARACTERS) for each in found),
            "deviation (偏离)": deviated,
        }
        return {name: text for name, text in told.items() if text}

    def ended(self, answer: Any, stop: StopReason | GaveUp, problem: str = "") -> Pursuit:
        attempts, still_open = tuple(self.attempts), tuple(self.stack)
        return Pursuit(answer, stop, problem, attempts, still_open, self.recalled, tuple(self.learned))


@dataclass(frozen=True)
class OuterLoop:
    """A stack of goals around one loop. Frozen configuration; all that a run holds lives in its program.

    ``evaluate(goal, result)`` judges each attempt, which has deviated below ``threshold``. ``depth`` is
    how deep goals may lie in the hierarchy, ``replans`` how often sub-goals are asked for in a run.
    ``limits`` hold all of it to one account. Raises ``ValueError`` for numbers that make no sense.
    """

    inner: AgentLoop
    planner: Planner
    evaluate: Evaluate | None = None
    memory: Memory | None = None
    learn: Callable[[Attempt], str] = lesson
    limits: Limits = RESEARCH
    replans: int = 3
    depth: int = 3
    threshold: float = 0.8

    def __post_init__(self) -> None:
        require("replans", self.replans, 0)
        require("depth", self.depth, 2)

    def run(self, task: Any) -> Program[Pursuit]:
        """The program of one run. Raises what a hook raises; every other ending is in the ``Pursuit``."""
        if not isinstance(task, str) or not task.strip():
            return Pursuit(None, StopReason.INVALID_TASK, "a task is a text that says something")
        state = _State([Goal(task)])  # outside of the account, so that nothing is lost when it ends
        try:
            return (yield from bounded(self._pursued(state), self.limits, task))
        except LimitReached as refused:
            assert refused.reason is not None, "an account that refuses has ended"
            return state.ended(None, refused.reason, refused.reason.value)

    def _pursued(self, state: _State) -> Program[Pursuit]:
        task = state.stack[0].text
        state.recalled = yield from self._recalled(task)
        replans = 0
        while True:
            made_it = yield from self._attempted(state)
            yield from self._remembered(task, state)
            if made_it:
                state.stack.pop()
                if not state.stack:
                    return state.ended(state.attempts[-1].result.answer, StopReason.FINAL_ANSWER)
            elif replans == self.replans:
                return state.ended(None, GaveUp.NOT_REACHED, state.attempts[-1].deviation)
            else:
                replans += 1
                try:
                    yield from self._replanned(state)
                except UnreadablePlan as unreadable:
                    return state.ended(None, GaveUp.NO_PLAN, str(unreadable))

    def _attempted(self, state: _State) -> Program[bool]:
        """Let the loop work on the topmost goal, and say whether it was reached (检测目标达成或偏离)."""
        goal = state.stack[-1]
        result = yield from attempt(self.inner, goal.text, state.known())
        # Kept before it is judged, and not reached until then: a run that ends here loses nothing.
        state.attempts.append(Attempt(goal, result, UNJUDGED))
        missed = yield from deviation(goal.text, result, self.evaluate, self.threshold)
        state.attempts[-1] = Attempt(goal, result, missed)
        return not missed

    def _replanned(self, state: _State) -> Program[None]:
        """Put sub-goals on the goal that was missed (Replanning).

        Where it lies too deep for that, the plan that it belongs to is what failed: the goal below is
        the one to plan for anew, and the rest of that plan leaves the stack.
        """
        while state.stack[-1].depth == self.depth:
            state.stack.pop()
        goal = state.stack[-1]
        plan = yield from made(self.planner, goal.text, state.known())
        state.stack += [Goal(step.goal, goal.depth + 1) for step in reversed(plan)]

    def _recalled(self, task: str) -> Program[tuple[str, ...]]:
        """What long-term memory says to the task. A memory that fails is one that knows nothing."""
        memory = self.memory
        if memory is None:
            return ()
        try:
            recall = Do("recall", lambda: tuple(memory.recall(task)), repeatable=True)
            recalled: tuple[str, ...] = (yield recall).value
        except EffectFailed:
            return ()
        return recalled

    def _remembered(self, task: str, state: _State) -> Program[None]:
        """Write down what the attempt taught, at once: also a run that is cut short has learned (EA16)."""
        memory, taught = self.memory, self.learn(state.attempts[-1])
        if memory is None or not taught:
            return
        try:
            yield Do("keep a lesson", lambda: memory.keep(task, taught))
        except EffectFailed:
            return  # what was not kept is not told as learned
        state.learned.append(taught)


# --- A long-term memory -----------------------------------------------------------------------


class LongTermMemory:
    """Lessons and the tasks that taught them: the newest ``capacity`` of them, none twice.

    ``recall`` gives those of the tasks most like the one at hand, at most ``most`` of them: tasks are
    alike as far as they share pairs of neighbouring characters, and must share at least half of them.
    """

    def __init__(self, capacity: int = 100, most: int = 5) -> None:
        require("capacity", capacity, 1)
        require("most", most, 1)
        self._capacity, self._most = capacity, most
        self.lessons: list[tuple[str, str]] = []  # (task, lesson), the newest last

    def keep(self, task: str, lesson: str) -> None:
        """Keep a lesson; one that is known already becomes the newest."""
        others = [known for known in self.lessons if known != (task, lesson)]
        self.lessons = [*others, (task, lesson)][-self._capacity :]

    def recall(self, task: str) -> list[str]:
        """The lessons of the tasks most like this one, the best first, and of equals the newest."""
        ranked = [(_likeness(task, taught_by), lesson) for taught_by, lesson in reversed(self.lessons)]
        ranked.sort(key=lambda pair: -pair[0])
        return [lesson for likeness, lesson in ranked if likeness >= 0.5][: self._most]


def _likeness(one: str, other: str) -> float:
    """From 0 to 1: how many of the pairs of neighbouring characters two texts share."""
    pairs, others = ({text[place : place + 2] for place in range(len(text))} for text in (one, other))
    return len(pairs & others) / max(len(pairs | others), 1)


# --- Compression ------------------------------------------------------------------------------


def compressed(window: int) -> View:
    """Make the view that shows every turn while the request fits into ``window`` tokens (上下文压缩).

    Beyond that one line stands for each of the old turns, in half of the room there is, the oldest left out
    first: a summary that no model has to write. Raises ``ValueError`` for a window below 1.
    """
    return summarise(window, longest=window, by=one_line_each)
