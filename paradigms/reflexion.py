"""Reflexion: try, judge, say what went wrong, try again (Shinn et al., 2023; article A, Reflexion Loop).

Nothing is learned in a model's weights. What a failed trial taught is written down in the first person
and stands in the prompt of the next one: verbal reinforcement learning (言语强化学习). The four parts of
the paper and of the article:

Actor             any ``AgentLoop``: each trial (试验) is one run of it, with a fresh machine and history
Evaluator         a hook ``evaluate(task, result)``: a ``Judgement`` of the answer, by tests or by a model
Self-Reflector    a hook ``reflect(task, trial, lessons)``: what to do otherwise next time, in words
Episodic Memory   the last few lessons of this one task (``remember``), shown in the working memory

In the paper trials end when one passes, and the last is the result; the score with its threshold of 0.8
and the best trial are the article's. The paper keeps 1 to 3 lessons (its Omega), as ``capacity`` does. The
article gives the lessons as a system message; here they are working memory, like all that is recalled.
Four parts, and a result that keeps the best trial wherever an account gives out between them, make this
file longer than other paradigms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from agentloop import (
    RESEARCH,
    AgentLoop,
    EffectFailed,
    LimitReached,
    Limits,
    LoopError,
    Program,
    Result,
    StopReason,
    bounded,
    cut,
    settle,
)
from paradigms.arguments import require, require_share
from paradigms.evaluators import ANSWER_CHARACTERS, STILL_OPEN, Evaluate, Judgement, ask, judgement_of


class Lesson(NamedTuple):
    """What the trial of that number taught, in words."""

    trial: int
    text: str


class Trial(NamedTuple):
    """One run of the actor, and as far as it came to that: how it was judged, and the lesson drawn."""

    number: int
    result: Result
    judgement: Judgement | None = None
    lesson: str | None = None

    @property
    def score(self) -> float | None:
        return self.judgement.score if self.judgement else None


class Reflected(NamedTuple):
    """How it ended: every trial that was made, and why there were no more.

    ``stop`` is FINAL_ANSWER for an answer that passed, MAX_ITERATIONS when no trial was left, ERROR
    where a hook raised ``error``, or what ended the account. ``answer`` is that of the best trial,
    also where it did not pass, and ``None`` where no trial had one: failure is no text (EA39).
    """

    answer: Any
    stop: StopReason
    best: Trial | None
    trials: tuple[Trial, ...]
    error: Exception | None = None

    @property
    def summary(self) -> str:
        """The ending in a sentence, made without another model call."""
        count = len(self.trials)
        ending = f"{self.stop.name} after {count} trial{'' if count == 1 else 's'}"
        if self.best is None or self.answer is None:
            return f"{ending}, without an answer"
        score = "an unknown score" if self.best.score is None else f"a score of {self.best.score:.2f}"
        return f"{ending}; the best is trial {self.best.number} with {score}"


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """The trial to keep: an answer before none, a score before an unknown one, the earlier on ties (EA34)."""

    def worth(trial: Trial) -> tuple[bool, float]:
        return trial.result.answer is not None, -1.0 if trial.score is None else trial.score

    return max(trials, key=worth, default=None)


def _reflected(trials: Sequence[Trial], stop: StopReason, error: Exception | None = None) -> Reflected:
    best = best_of(trials)
    return Reflected(best.result.answer if best else None, stop, best, tuple(trials), error)


Reflect = Callable[[Any, Trial, tuple[Lesson, ...]], str | None | Program[str | None]]

#: Endings of a trial that no lesson mends: nothing is tried after them.
FUTILE = (StopReason.HUMAN, StopReason.INVALID_TASK)


@dataclass(frozen=True)
class Reflexion:
    """Trials of one actor, each with the lessons of those before it. Frozen configuration, like its actor.

    ``reflect=None`` draws no lessons: the same trials, none the wiser. ``limits`` hold the trials, the
    judging and the reflecting to one account. Raises ``ValueError`` for numbers that make no sense.
    """

    actor: AgentLoop
    evaluate: Evaluate
    reflect: Reflect | None
    limits: Limits = RESEARCH
    trials: int = 3
    threshold: float = 0.8
    capacity: int = 3

    def __post_init__(self) -> None:
        for name in ("trials", "capacity"):
            require(name, getattr(self, name), 1)
        require_share("threshold", self.threshold)

    def run(self, task: Any) -> Program[Reflected]:
        """The program of all trials.

        What a hook raises goes on to the caller where no trial has an answer; else it is in the result.
        """
        return bounded(self._program(task), self.limits, task)

    def _program(self, task: Any) -> Program[Reflected]:
        trials: list[Trial] = []
        try:
            stop = yield from self._trials(task, trials)
        except LimitReached as limit:
            return _reflected(trials, limit.reason)
        except Exception as error:
            reflected = _reflected(trials, StopReason.ERROR, error)
            if reflected.answer is None:
                raise
            return reflected
        return _reflected(trials, stop)

    def _trials(self, task: Any, trials: list[Trial]) -> Program[StopReason]:
        """Add trial after trial, each before it is judged (EA40), and return why there are no more."""
        lessons: tuple[Lesson, ...] = ()
        for number in range(1, self.trials + 1):
            try:
                result = yield from informed(self.actor, lessons).run(task)
            except LoopError as crash:
                trials.append(Trial(number, crash.result))
                raise
            trials.append(Trial(number, result))
            if result.stop in FUTILE:
                return result.stop
            if result.account_closed:
                return result.stop
            judgement = yield from judgement_of(self.evaluate, task, result)
            trials[-1] = trials[-1]._replace(judgement=judgement)
            if self._passes(trials[-1]):
                return StopReason.FINAL_ANSWER
            if number < self.trials:
                lesson = yield from self._lesson(task, trials[-1], lessons)
                trials[-1] = trials[-1]._replace(lesson=lesson)
                lessons = remember(lessons, Lesson(number, lesson), self.capacity) if lesson else lessons
        return StopReason.MAX_ITERATIONS

    def _passes(self, trial: Trial) -> bool:
        return trial.result.answer is not None and trial.score is not None and trial.score >= self.threshold

    def _lesson(self, task: Any, trial: Trial, lessons: tuple[Lesson, ...]) -> Program[str | None]:
        """The lesson of a trial; one that could not be written is no lesson, and loses nothing (EA40)."""
        if self.reflect is None:
            return None
        try:
            text = yield from settle(self.reflect(task, trial, lessons))
        except (EffectFailed, LimitReached):
            yield STILL_OPEN
            return None
        if not isinstance(text, str | None):
            raise TypeError(f"reflect must return the lesson in words, or None, not {text!r}")
        return cut((text or "").strip(), LESSON_CHARACTERS) or None


# --- Episodic memory --------------------------------------------------------------------------

LESSON_CHARACTERS = 1000
LESSONS = "基于之前失败的反思 (lessons of earlier trials)"


def remember(lessons: tuple[Lesson, ...], lesson: Lesson, capacity: int) -> tuple[Lesson, ...]:
    """The last ``capacity`` lessons, the newest at the end; said again, a lesson is kept once (EA38)."""
    others = [known for known in lessons if _words(known.text) != _words(lesson.text)]
    return (*others, lesson)[-capacity:]


def _words(text: str) -> list[str]:
    return text.casefold().split()


def informed(actor: AgentLoop, lessons: tuple[Lesson, ...]) -> AgentLoop:
    """The actor with the lessons in its working memory, which every prompt of its trial shows (EA33)."""
    if not lessons:
        return actor
    told = [f"尝试 {lesson.trial} 的教训: {lesson.text}" for lesson in lessons]
    memory = "\n".join(["", *told, "请避免重复这些错误。(Do not repeat these mistakes.)"])
    return actor.knowing({LESSONS: memory})


# --- The self-reflector -----------------------------------------------------------------------

THOUGHT_CHARACTERS = 200  # of each thought and observation (article A); the answer is shown whole


def reflect_in_words(task: Any, trial: Trial, lessons: tuple[Lesson, ...]) -> Program[str | None]:
    """Ask the model what went wrong, in the first person (第一人称总结教训).

    It is shown all that the lesson is to be drawn from: task, steps, answer, score and reasons (EA37).
    """
    judgement = trial.judgement or Judgement(None)
    score = "unknown" if judgement.score is None else f"{judgement.score:.2f}"
    answer = "(none)" if trial.result.answer is None else cut(str(trial.result.answer), ANSWER_CHARACTERS)
    text = yield from ask(
        "You look back at a failed attempt of yours at a task. Say in the first person, in one or two "
        'sentences, what went wrong and what to do next time ("我意识到...", "我应该..."). '
        "Do not solve the task here, and do not repeat a lesson that you know.",
        "\n\n".join(
            [
                f"Task: {task}",
                *(f"Known lesson: {lesson.text}" for lesson in lessons),
                f"Steps:\n{trajectory(trial.result)}",
                f"Answer:\n{answer}",
                f"Score: {score}\nReasons: {cut(judgement.reasons, ANSWER_CHARACTERS)}",
            ]
        ),
    )
    return text or None


def trajectory(result: Result) -> str:
    """What a trial thought and saw, the last thought too, each cut at 200 characters."""
    lines = []
    for turn in result.turns:
        lines.append(cut(turn.thought, THOUGHT_CHARACTERS))
        lines += [f"Observation: {cut(seen.text, THOUGHT_CHARACTERS)}" for seen in turn.observations]
    return "\n".join(lines)
