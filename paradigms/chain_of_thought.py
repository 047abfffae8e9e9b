"""Chain of thought: one thought after another, before anything is done (思维链; article A, 内循环).

In the paper (Wei et al., 2022) the whole chain stands in one completion. Here each thought is a
model call of its own, as the article's 思考→思考→...→结论 has it: so a chain can be counted, paid
for and ended. It ends where the article says (A-61): at a depth, at an executable action, or at a
confidence. After a depth or a confidence the model is asked once more, and now to decide; asking
for the reasoning first and for the answer then is how Kojima et al. (2022) do it.

Thinking touches nothing but the model and working memory (工作记忆): there each thought is put, and
from there it reaches the next prompt. A finished chain moves into its turn, as the turn's thought.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from agentloop import (
    Act,
    Finish,
    Kind,
    LimitReached,
    LoopContext,
    Observation,
    Program,
    Toolbox,
    report,
    settle,
)
from paradigms.arguments import require, require_share
from paradigms.text_protocol import parse

#: The names in working memory under which the model finds what it thought, and what to write now.
THOUGHTS = "thoughts so far (思维链)"
NOW = "what to write now"

THINK = (
    "One Thought that takes one step, and no Action yet; then a line such as 'Confidence: 0.4', how sure "
    "you are from 0 to 1 that you can act on it. If you can act already: a Thought and its Action."
)
DECIDE = "You have thought enough: one Thought and its Action."

Step = Callable[[LoopContext], Any]


def chain_of_thought(
    step: Step, depth: int = 5, enough: float = 0.9
) -> Callable[[LoopContext], Program[Act | Finish]]:
    """Make a ``reason`` hook that may think before it decides: ``chain_of_thought(react(tools))``.

    ``step`` is itself a ``reason`` hook, one that speaks the text protocol; it is asked ``depth``
    times for a thought at most, until one holds an instruction or is confident ``enough`` (above 0,
    up to 1), and then for the decision: ``depth + 1`` times a round in all. A depth of 0 leaves
    ``step`` as it is. Raises ``ValueError`` for a depth or confidence that is none.
    """
    require("depth", depth, 0)
    require_share("enough", enough)

    def reason(context: LoopContext) -> Program[Act | Finish]:
        thoughts: list[str] = []
        try:
            while len(thoughts) < depth:
                show(context, THOUGHTS, thoughts, THINK)
                decision: Act | Finish = yield from settle(step(context))
                if not is_thought(decision):
                    return with_thoughts(decision, thoughts)
                thoughts.append(decision.thought)
                if is_confident(decision.thought, enough):
                    break
            return (yield from decided(context, step, THOUGHTS, thoughts))
        except LimitReached as ended:
            return cut_short(ended, thoughts)
        finally:
            forget(context, THOUGHTS)

    return reason


def is_thought(decision: Act | Finish) -> bool:
    """Whether a reply held words and no instruction: for a chain that is a thought, not a mistake.

    A call that was begun and cannot be read is a mistake here too, and so are silence and a model
    that failed.
    """
    bare = parse("Thought: I have to think on.", Toolbox(()))
    return decision == bare._replace(thought=decision.thought)


_CONFIDENCE = re.compile(r"^[ \t>#*-]*+(?:confidence|置信度)[ \t*]*+[:：](.*)$", re.IGNORECASE | re.MULTILINE)
_NUMBER = re.compile(r"([0-9]++(?:\.[0-9]++)?) ?(%|/ ?100?|)")
_SCALES = {"": 1.0, "%": 100.0, "/10": 10.0, "/100": 100.0}


def read_confidence(text: str) -> float | None:
    """Read the one line that says it: ``Confidence: 0.9``, ``置信度：90%`` or ``Confidence: 9/10``.

    ``None`` where nobody can tell: no such line, two of them, words, or a number that is none
    between 0 and 1.
    """
    lines = _CONFIDENCE.findall(text)
    number = _NUMBER.fullmatch(lines[0].strip(" \t\r*`.。")) if len(lines) == 1 else None
    if number is None:
        return None
    confidence = float(number[1]) / _SCALES[number[2].replace(" ", "")]
    return confidence if confidence <= 1 else None


def is_confident(text: str, enough: float) -> bool:
    """Whether a thought says that it is sure enough. One that says nothing readable is not."""
    confidence = read_confidence(text)
    return confidence is not None and confidence >= enough


# --- What every inner loop does with its thoughts ----------------------------------------------


def show(context: LoopContext, name: str, thoughts: Sequence[str], now: str = "") -> None:
    """Put the thoughts, and what to write now, into working memory: the next prompt says both.

    ``name`` is what the thoughts stand under: its own for each kind of inner loop, so that they nest.
    """
    forget(context, name)
    if thoughts:
        lines = [f"{number}. {thought}" for number, thought in enumerate(thoughts, 1)]
        context.working_memory[name] = "\n".join(["", *lines])
    if now:
        context.working_memory[NOW] = now


def forget(context: LoopContext, name: str) -> None:
    """Take out of working memory what ``show`` put in."""
    context.working_memory.pop(name, None)
    context.working_memory.pop(NOW, None)


def decided(context: LoopContext, step: Step, name: str, thoughts: Sequence[str]) -> Program[Act | Finish]:
    """Ask ``step`` for the decision that follows from the thoughts. Without any it is asked as ever."""
    show(context, name, thoughts, DECIDE if thoughts else "")
    decision: Act | Finish = yield from settle(step(context))
    return with_thoughts(decision, thoughts)


def with_thoughts(decision: Act | Finish, thoughts: Sequence[str]) -> Act | Finish:
    """The decision with the thoughts that led to it, so that its turn keeps them."""
    return decision._replace(thought="\n".join([*thoughts, decision.thought])) if thoughts else decision


def cut_short(ended: LimitReached, thoughts: Sequence[str]) -> Act:
    """What is left when the allowance ends in the middle of thinking: a turn that keeps the thoughts.

    Raises ``ended`` again where there are none.
    """
    if not thoughts:
        raise ended
    problem = Observation(f"The thinking was cut short: {ended}", False, Kind.NOT_RUN)
    return report(problem, "\n".join(thoughts))
