"""Tree of thoughts: several ways on, a judge, and the way back (思维树; Yao et al., 2023; article A, 内循环).

The paper takes a problem apart into four questions, and each is a part here: what a thought is (one
line), how thoughts are generated (``proposals``), how states are evaluated (``verdicts``), and how the
tree is searched. ``tree_of_thoughts`` is the paper's breadth-first search: at each level, keep the best
``width``. ``tree_depth_first`` is its other one: follow the best as long as it passes a threshold, else
go back (回溯). What the judge answers is read strictly: ``not sure`` is not ``sure``, it is unknown.

The article puts the inner loop "inside a single LLM call" (EA60), where no tree fits: proposing and
judging take many. Inner means that nothing outside is touched. Every call here is an effect like any
other, paid from the account of the loop that thinks. The paper asks its judge three times a state and
adds up; here it is asked once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from agentloop import Act, Finish, LimitReached, LoopContext, Program, settle
from paradigms.arguments import require, require_share
from paradigms.chain_of_thought import Step, cut_short, decided, forget, show
from paradigms.prompt import think
from paradigms.text_protocol import render

PROPOSE = """Propose what the next step could be: several different ones, one on each line, the most
promising first. Each is one step from where the thoughts so far have come to. Do not solve the rest."""

JUDGE = """Judge whether the thoughts so far can still lead to a solution of the task. You may reason first.
The last line is your verdict, one word: sure, likely or impossible."""

VERDICTS = {"sure": 1.0, "likely": 0.5, "impossible": 0.0, "肯定": 1.0, "可能": 0.5, "不可能": 0.0}

#: The name in working memory under which the model finds the branch that it is asked about.
BRANCH = "thoughts so far (思维树)"

Path = tuple[str, ...]
#: From the thoughts so far to the next ones that are possible, the most promising first.
Propose = Callable[[LoopContext, Path], Any]
#: From thoughts to their value, 0 (impossible) to 1 (sure), or ``None`` where nobody can tell.
Evaluate = Callable[[LoopContext, Path], Any]


class Branch(NamedTuple):
    """Thoughts in a row, and what they were judged to be worth, from 0 to 1; ``None`` is unknown."""

    path: Path = ()
    value: float | None = None

    @property
    def rank(self) -> float:
        """Where it stands among others: what is unknown comes after all that is known."""
        return -1.0 if self.value is None else self.value


Grow = Callable[[Branch], Program[list[Branch]]]
Search = Callable[[Grow], Program[Branch]]
Reason = Callable[[LoopContext], Program[Act | Finish]]


# --- The two searches --------------------------------------------------------------------------


def tree_of_thoughts(
    step: Step, propose: Propose, evaluate: Evaluate, depth: int = 3, width: int = 5, branches: int = 8
) -> Reason:
    """Make a ``reason`` hook that searches breadth-first, then lets ``step`` decide on the best branch.

    Proposes ``1 + width * (depth - 1)`` times a round at most, and judges ``branches`` thoughts each
    time at most. Raises ``ValueError`` for a number below 1.
    """
    _at_least_one(depth=depth, width=width, branches=branches)

    def breadth_first(grow: Grow) -> Program[Branch]:
        kept = [Branch()]
        for _ in range(depth):
            level: list[Branch] = []
            for branch in kept:
                level += yield from grow(branch)
            if not level:
                break
            kept = best_first(level)[:width]
        return kept[0]

    return _search(step, propose, evaluate, branches, breadth_first)


def tree_depth_first(
    step: Step,
    propose: Propose,
    evaluate: Evaluate,
    depth: int = 3,
    threshold: float = 0.5,
    branches: int = 8,
    visits: int = 30,
) -> Reason:
    """Make a ``reason`` hook that searches depth-first, then lets ``step`` decide on what was found.

    Only a branch that is known to be worth ``threshold`` is followed; the first that reaches ``depth``
    is taken. Where none does, the longest that was followed is. Proposes ``visits`` times a round at
    most: without that cap, depth-first takes the whole tree. Raises ``ValueError`` for a number below 1,
    and for a threshold that is not above 0 and up to 1.
    """
    _at_least_one(depth=depth, branches=branches, visits=visits)
    require_share("threshold", threshold)

    def depth_first(grow: Grow) -> Program[Branch]:
        longest, open_branches = Branch(), [Branch()]
        for _ in range(visits):
            if not open_branches or len(longest.path) == depth:
                break
            children = yield from grow(open_branches.pop())
            passed = [child for child in children if child.value is not None and child.value >= threshold]
            open_branches += reversed(passed)  # the best is on top; what lies below is the way back
            longest = max([longest, *passed], key=lambda branch: len(branch.path))
        return longest

    return _search(step, propose, evaluate, branches, depth_first)


def best_first(branches: Sequence[Branch]) -> list[Branch]:
    """Sort by rank; among equals the one that was proposed first stays first."""
    return sorted(branches, key=lambda branch: branch.rank, reverse=True)


def _search(step: Step, propose: Propose, evaluate: Evaluate, branches: int, search: Search) -> Reason:
    def reason(context: LoopContext) -> Program[Act | Finish]:
        seen: list[Branch] = []
        chosen: Branch | None = None

        def grow(branch: Branch) -> Program[list[Branch]]:
            """The thoughts that may follow, each judged, the best first."""
            proposed = yield from settle(propose(context, branch.path))
            paths = [(*branch.path, thought) for thought in list(dict.fromkeys(proposed))[:branches]]
            for path in paths:
                value = yield from settle(evaluate(context, path))
                seen.append(Branch(path, value if value is not None and 0 <= value <= 1 else None))
            return best_first(seen[len(seen) - len(paths) :])

        try:
            chosen = yield from search(grow)
            return (yield from decided(context, step, BRANCH, chosen.path))
        except LimitReached as ended:
            in_hand = chosen or max(seen, key=lambda branch: branch.rank, default=Branch())
            return cut_short(ended, in_hand.path)
        finally:
            forget(context, BRANCH)

    return reason


def _at_least_one(**numbers: int) -> None:
    for name, number in numbers.items():
        require(name, number, 1)


# --- Proposing and judging by a model ----------------------------------------------------------


def proposals(system: str = PROPOSE) -> Propose:
    """Make a ``propose`` of one model call; a model that fails or says nothing proposes nothing."""
    ask = _asking(system)

    def propose(context: LoopContext, path: Path) -> Program[list[str]]:
        return read_proposals((yield from ask(context, path)))

    return propose


def verdicts(system: str = JUDGE) -> Evaluate:
    """Make an ``evaluate`` of one model call; a model that fails or babbles leaves the value unknown."""
    ask = _asking(system)

    def evaluate(context: LoopContext, path: Path) -> Program[float | None]:
        return read_verdict((yield from ask(context, path)))

    return evaluate


def _asking(system: str) -> Callable[[LoopContext, Path], Program[str]]:
    request = think(system, lambda reply: Finish(reply.text), render)

    def ask(context: LoopContext, path: Path) -> Program[str]:
        show(context, BRANCH, path)
        said = yield from request(context)
        return said.answer if isinstance(said, Finish) else ""

    return ask


_BULLET = re.compile(r"\A\s*+(?:[-*•]\s++|[0-9]{1,3}(?:[.)]\s++|、))")


def read_proposals(text: str) -> list[str]:
    """Read one thought from each line that says something, without its bullet or number."""
    lines = [_BULLET.sub("", line, count=1).strip() for line in text.splitlines()]
    return [line for line in lines if any(character.isalnum() for character in line)]


def read_verdict(text: str) -> float | None:
    """Read the value off the last line: one of the words of ``VERDICTS`` and nothing else, or ``None``."""
    lines = text.strip().splitlines() or [""]
    return VERDICTS.get(lines[-1].strip(" \t*`'\".。!！").casefold())
