"""Evaluators: how good is what a loop brought? A score from 0 to 1, or an honest "unknown" (Evaluator).

An evaluator is a hook ``evaluate(task, result)`` that returns a ``Judgement``, or a program that asks the
world first. Three kinds of Reflexion (Shinn et al., 2023) and of article A: tests that run something on
the answer, a model that judges it, and rules of thumb. What cannot be read is unknown, never a pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from agentloop import (
    CallModel,
    Do,
    EffectFailed,
    LimitReached,
    Message,
    Program,
    Reply,
    Result,
    Sleep,
    cut,
    settle,
)
from paradigms.prompt import block

ANSWER_CHARACTERS = 4000  # of an answer, as a judge or a reflector is shown it


class Judgement(NamedTuple):
    """What an evaluator found: a score from 0 to 1, or ``None`` where it is unknown, and its reasons."""

    score: float | None
    reasons: str = ""


Evaluate = Callable[[Any, Result], Judgement | Program[Judgement]]


#: Asked for where something has run dry: refused if it was the common account, harmless if a part's own.
STILL_OPEN = Sleep(0)


def judgement_of(evaluate: Evaluate, task: Any, result: Result) -> Program[Judgement]:
    """Let an evaluator judge. One that failed, or whose own allowance ended, does not know.

    Raises ``TypeError`` for what is no judgement.
    """
    try:
        judgement = yield from settle(evaluate(task, result))
    except (EffectFailed, LimitReached) as failed:
        yield STILL_OPEN
        return Judgement(None, str(failed))
    if not isinstance(judgement, Judgement) or not _is_score(judgement.score):
        raise TypeError(
            f"evaluate must return a Judgement with a score from 0 to 1 or None, not {judgement!r}"
        )
    return judgement


def _is_score(score: object) -> bool:
    """Whether it is a number from 0 to 1, or ``None``; ``True`` is no number."""
    return score is None or (type(score) in (int, float) and 0 <= score <= 1)  # type: ignore[operator]


def judged_by_tests(run_tests: Callable[[Any], Judgement]) -> Evaluate:
    """Make the evaluator that runs something on the answer. It is a ``Do``: what fails in it is unknown."""

    def evaluate(task: Any, result: Result) -> Program[Judgement]:
        if result.answer is None:
            return Judgement(0.0, result.summary)
        tests = Do("tests of the answer", lambda: run_tests(result.answer), repeatable=True)
        judgement: Judgement = (yield tests).value
        return judgement

    return evaluate


def judged_by_model(criteria: str = "The answer is correct and does all that the task asks.") -> Evaluate:
    """Make the evaluator that asks a model for a score; a reply without one is unknown, never a pass."""

    def evaluate(task: Any, result: Result) -> Program[Judgement]:
        if result.answer is None:
            return Judgement(0.0, result.summary)
        answer = cut(str(result.answer), ANSWER_CHARACTERS)
        text = yield from ask(
            f"You judge an answer. What it must fulfil: {criteria}\n"
            "Give your reasons, then on a line of its own: Score: a number from 0 (useless) to 1 (perfect)",
            f"Task: {task}\n\nAnswer:\n{answer}",
        )
        return Judgement(read_score(text), text)

    return evaluate


def judged_by_rules(task: Any, result: Result) -> Judgement:
    """Article A's formula (A-90): an evaluator that looks at everything but the answer (EA35).

    Failures are counted from observations, not by the word ``Error:`` in a text (EA36).
    """
    failed = sum(not observation.ok for turn in result.turns for observation in turn.observations)
    rounds = result.control.rounds
    score = 1.0 - 0.3 * failed - 0.05 * rounds - (0.5 if result.answer is None else 0.0)
    return Judgement(max(0.0, score), f"{failed} failed observations, {rounds} rounds")


_SCORE = re.compile(
    r"[\s*_`]*+(?P<label>(?:score|得分|评分|分数)[\s*_`]*+[:：=][\s*_`]*+)?"
    r"(?P<number>\d++(?:\.\d++)?)\s*+(?:/\s*+(?P<of>\d++)|(?P<percent>%))?[\s*_`.。]*+",
    re.IGNORECASE,
)


def read_score(text: str) -> float | None:
    """Read the one score that a judge gave: ``Score: 0.8``, ``得分：8/10``, ``80%``. All else is unknown.

    It stands on a line of its own, so 'false', 'not 9/10', two different scores or 11/10 are none.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    found = [match for line in lines if (match := _SCORE.fullmatch(line))]
    scores = {_value(match) for match in found if match["label"] or len(lines) == 1}
    score = scores.pop() if len(scores) == 1 else None
    return score if score is not None and 0 <= score <= 1 else None


def _value(match: re.Match[str]) -> float | None:
    whole = float(match["of"] or 1) * (100 if match["percent"] else 1)
    return float(match["number"]) / whole if whole else None


def ask(system: str, question: str) -> Program[str]:
    """Ask the model once. Returns what it says, and empty text where it fails."""
    asked = block(Message("system", system), Message("user", question))
    reply = (yield CallModel(asked.messages, tokens=asked.tokens)).value
    return reply.text if isinstance(reply, Reply) and isinstance(reply.text, str) else ""
