"""Look at several ways before you take one, and know how to come back from the wrong one.

Article A, 三、Perception-Action循环的两种范式, 内循环. Covers A-60, A-61, A-62; EA60.

A chain of thought (chapter 08) goes down one way, and its first wrong step decides the end. A tree of
thoughts (思维树, A-60; Yao et al., 2023) proposes several next steps, lets a judge say what each is worth
(评估函数选择最优分支), and goes on from the best. ``paradigms/tree_of_thoughts.py`` has the paper's two
searches: breadth-first keeps the best ``width`` of each level, depth-first follows the best and goes back.
Both are one ``reason`` hook, made of three: who proposes, who judges, who decides on the branch chosen.

The task is the paper's: the game of 24, make 24 from four numbers, each used once. Whether an answer is
right is worked out here from the answer itself, by ``value_of``, as the loop's ``accept`` hook; neither
the model nor the tree is asked. The model is simulated and the same throughout. It moves by rule from the
numbers that it is shown, and its judgment is rough: it sees what two numbers can make, and of three it
only says whether two of them divide 24. It knows nothing of who is asking.

A search ends at its depth, when nothing is proposed any more, or at the first branch that is deep enough
and good enough (A-61). Width and threshold are dials as depth was (A-62). EA60: a tree cannot live "inside
a single LLM call"; its calls are many, and all of them are charged to the account of the loop that thinks.
Where that account ends first, the run ends and says so, and its last turn keeps the best branch so far.

Exercises
---------
1. Write a search that always grows the most promising branch there is, wherever it stands in the tree
   (best-first), with the parameters of ``tree_of_thoughts``; ``width`` may bound how often it grows:
   ``python -m pytest --impl tree=my_tree.py:best_first_tree``; with the parameters of
   ``tree_depth_first``, whose bound is on visits: ``--impl depth_first=my_tree.py:best_first_tree``
2. The paper asks its judge three times a state. Wrap ``verdicts`` so that two of three must agree, and
   give ``tree_of_thoughts`` your ``evaluate``. What does the table say of the cost? How does the same
   command judge a tree that has it built in?
3. Find four numbers of 1 to 13 that the wide tree misses. Whose fault is it, the search's or the judge's?
   Mend it where it is; if that is the search, the command of the first exercise says what must not suffer.
"""

from __future__ import annotations

import ast
import operator
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

from agentloop import (
    AgentLoop,
    CallModel,
    Limits,
    LoopContext,
    Program,
    Result,
    Toolbox,
    World,
    drive,
    on_one_line,
)
from chapters.telling import GREEN, WIDTH, Telling
from fake_llm import FakeModel, readable
from paradigms.chain_of_thought import THINK, chain_of_thought
from paradigms.react import react
from paradigms.tree_of_thoughts import (
    JUDGE,
    PROPOSE,
    Branch,
    Evaluate,
    Path,
    Reason,
    best_first,
    proposals,
    tree_depth_first,
    tree_of_thoughts,
    verdicts,
)

PUZZLES = ("4 9 10 13", "4 4 6 8", "2 9 10 12", "1 4 8 8", "5 5 5 9", "2 8 8 14")
LIMITS = Limits(rounds=1, model_calls=300, effects=400, tokens=200_000)


def task(puzzle: str) -> str:
    """The task in words."""
    return f"用 {puzzle} 各一次，加减乘除，算出 24。"


# --- The arithmetic that checks an answer ------------------------------------------------------

SIGNS = {"-": operator.sub, "*": operator.mul, "+": operator.add, "/": operator.truediv}
_WRITTEN: dict[type, str] = {ast.Sub: "-", ast.Mult: "*", ast.Add: "+", ast.Div: "/"}


def value_of(node: ast.AST) -> Fraction:
    """Work out an expression of whole numbers and + - * /, exactly. Raises ``ValueError`` for any other."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Fraction(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in _WRITTEN:
        value: Fraction = SIGNS[_WRITTEN[type(node.op)]](value_of(node.left), value_of(node.right))
        return value
    raise ValueError("only whole numbers and + - * / can be worked out")


def objection(context: LoopContext, answer: str) -> str | None:
    """The ``accept`` hook: what is wrong with an answer, or ``None`` where it makes 24 as it should."""
    try:
        tree = ast.parse(answer.strip(), mode="eval").body
        value = value_of(tree)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError) as error:
        return f"{on_one_line(answer, WIDTH)} cannot be worked out: {error}"
    used = Counter(node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    if used != Counter(map(int, re.findall(r"\d+", context.task.partition("各")[0]))):
        return f"{answer} does not use each of the numbers once"
    return None if value == 24 else f"{answer} makes {value}, not 24"


# --- The model: it plays by rule, from what it is shown ----------------------------------------


def player(request: CallModel) -> str:
    """Propose, judge, think or answer, whichever the prompt asks for, from the numbers that it shows."""
    shown, asked = readable(request.messages), request.messages[0].content
    puzzle = re.findall(r"\d+", request.messages[1].content.partition("各")[0])
    steps = re.findall(r"(\d+) ([-+*/]) (\d+) = (\d+) \(left: ([\d ]+)\)", shown)
    left = steps[-1][4].split() if steps else puzzle
    moves = possible_moves(left)
    if asked == PROPOSE:
        return "\n".join(f"- {move}" for move in moves)
    if asked == JUDGE:
        return f"Left: {' '.join(left)}\n{judged(left)}"
    if THINK in shown and moves:
        return f"Thought: {moves[0]}"
    return f"Thought: 就这样。\nAction: Finish[{expression(puzzle, steps)}]"


def possible_moves(left: list[str]) -> list[str]:
    """Every move with two of the numbers left: differences first, then products, sums, quotients."""
    numbers = sorted(map(int, left))
    moves = []
    for sign, apply in SIGNS.items():
        for small, big in combinations(numbers, 2):
            if small and (sign != "/" or big % small == 0):  # it reckons in whole numbers only
                made = int(apply(big, small))
                rest = sorted((Counter(numbers) - Counter([small, big]) + Counter([made])).elements())
                moves.append(f"{big} {sign} {small} = {made} (left: {' '.join(map(str, rest))})")
    return list(dict.fromkeys(moves))


def judged(left: list[str]) -> str:
    """A rough judgment: exact of two numbers, a guess of three."""
    if len(left) == 1:
        return "sure" if left == ["24"] else "impossible"
    if len(left) == 2:
        return "sure" if any("left: 24)" in move for move in possible_moves(left)) else "impossible"
    return "likely" if sum(number != "0" and 24 % int(number) == 0 for number in left) > 1 else "impossible"


def expression(puzzle: list[str], steps: list[tuple[str, str, str, str, str]]) -> str:
    """Write the steps as one expression, each number in it replaced by what it was made from."""
    written = [(number, number) for number in puzzle]
    for first, sign, second, made, _ in steps:
        parts = []
        for number in (first, second):
            found = next(pair for pair in written if pair[0] == number)
            written.remove(found)
            parts.append(found[1])
        written.append((made, f"({parts[0]} {sign} {parts[1]})"))
    return " + ".join(text for _, text in written)


# --- The story ---------------------------------------------------------------------------------


def babbling_judge(request: CallModel) -> str:
    """The same player, but whoever asks it for a judgment hears something like one, and none."""
    return "I am not sure. 9/10?" if request.messages[0].content == JUDGE else player(request)


def noting(evaluate: Evaluate, notes: list[Branch]) -> Evaluate:
    """Keep a note of each branch and what it was judged to be worth."""

    def noted(context: LoopContext, path: Path) -> Program[float | None]:
        value: float | None = yield from evaluate(context, path)
        notes.append(Branch(path, value))
        return value

    return noted


def play(
    reason: Reason, puzzle: str, think: Callable[[CallModel], str] = player, limits: Limits = LIMITS
) -> Result:
    """One puzzle, one round of thinking; the answer is worked out before it is accepted."""
    loop = AgentLoop(reason, limits=limits, accept=objection)
    return drive(loop.run(task(puzzle)), World(FakeModel(think), inline=True))


def row(name: str, reason: Reason, think: Callable[[CallModel], str] = player) -> tuple[object, ...]:
    """All the puzzles: how many were solved, and what that took."""
    results = [play(reason, puzzle, think) for puzzle in PUZZLES]
    solved = sum(result.answer is not None for result in results)
    calls = sum(result.control.model_calls for result in results)
    return name, f"{solved} of {len(PUZZLES)}", calls, sum(result.control.tokens for result in results)


def demo(tell: Telling) -> None:
    """A chain follows its first idea and ends at 8; a tree judges, keeps five ways open and finds 24."""
    step, propose, judge = react(Toolbox(())), proposals(), verdicts()
    world = World(FakeModel(player), inline=True)
    tell(f"task: {task(PUZZLES[0])}")

    tell.heading("A chain of thought: the first idea, and the first idea after it")
    chain = chain_of_thought(step, depth=3)
    loop = AgentLoop(chain, limits=LIMITS, accept=objection, watch=tell.watch("chain", LIMITS))
    tell.result(drive(loop.run(task(PUZZLES[0])), world))

    tell.heading("A tree of thoughts: propose, judge, keep the best five")
    notes: list[Branch] = []
    tree = tree_of_thoughts(step, propose, noting(judge, notes), width=5)
    loop = AgentLoop(tree, limits=LIMITS, accept=objection, watch=tell.watch("tree", LIMITS))
    tell.result(drive(loop.run(task(PUZZLES[0])), world))
    tell("\nWhat it judged at each level, the first ones:")
    for level in (1, 2, 3):
        judged_here = [branch for branch in notes if len(branch.path) == level]
        worth = Counter(branch.value for branch in judged_here)
        tell(f"level {level}: {worth[1.0]} sure, {worth[0.5]} likely, {worth[0.0]} impossible")
        tell.table((f"    {branch.value:.1f}", branch.path[-1]) for branch in best_first(judged_here)[:5])

    tell.heading("One account pays (EA60): the same tree, allowed 30 model calls")
    result = play(tree_of_thoughts(step, propose, judge), PUZZLES[0], limits=replace(LIMITS, model_calls=30))
    tell(result.summary)
    tell(f"best branch in hand: {result.turns[-1].thought!r}", GREEN)

    tell.heading("The dials: width and threshold against cost (弹性深度), over six puzzles")
    rows: list[tuple[object, ...]] = [("search", "solved", "calls", "tokens")]
    rows += [row("none, in one breath", step), row("chain", chain)]
    for width in (1, 2, 3, 5):
        rows.append(row(f"tree, width {width}", tree_of_thoughts(step, propose, judge, width=width)))
    rows.append(row("depth-first, likely or better", tree_depth_first(step, propose, judge)))
    rows.append(row("depth-first, sure alone", tree_depth_first(step, propose, judge, threshold=1.0)))
    tree = tree_of_thoughts(step, propose, judge, width=5)
    rows.append(row("tree, width 5, judge babbling", tree, babbling_judge))
    tell.table(rows)
    tell(
        "\nIn one breath it adds up all four, which is right once, by luck, and a chain talks it out of that."
    )
    tell("The judge is rough, and a narrow tree has staked all on its word; a wide one can forgive it.")
    tell("A judge that says nothing usable is not taken for one that says yes: nothing is left of the tree.")
