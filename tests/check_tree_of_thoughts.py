"""What a tree of thoughts promises: plain functions of anything with its signature, ours or a reader's.

``tree(step, propose, evaluate, depth=, width=, branches=)`` makes a ``reason`` hook. Whatever the search
is, it proposes ``1 + width * (depth - 1)`` times a round at most. ``check_tree(tree)`` raises
``BrokenPromise`` with a story that breaks a promise; ``PROMISES`` holds the same promises one by one.

Here a tree is data: ``Wood`` says what grows where and what it is worth, and notes what it is asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from agentloop import (
    AgentLoop,
    CallModel,
    Limits,
    LoopContext,
    Message,
    Program,
    Result,
    StopReason,
    World,
    drive,
)
from fake_llm import FakeClock, FakeModel, readable
from paradigms.react import react
from tests.check_chain_of_thought import FINISH, TOOLS
from tests.check_machine import BrokenPromise

Tree = Callable[..., Callable[..., Any]]
Path = tuple[str, ...]

TASK = "北京一日游怎么安排？"
LIMITS = Limits(rounds=1, model_calls=500, effects=1000, tokens=500_000)


class Wood:
    """Proposes and judges as ``grows`` and ``values`` say, at the price of a model call each."""

    def __init__(
        self,
        grows: Callable[[Path], Sequence[str]],
        values: Callable[[Path], Any],
    ) -> None:
        self._grows, self._values = grows, values
        self.proposed: list[Path] = []
        self.judged: list[Path] = []

    def propose(self, context: LoopContext, path: Path) -> Program[Sequence[str]]:
        """What may follow these thoughts."""
        self.proposed.append(path)
        yield CallModel((Message("user", f"propose after {path}"),))
        return self._grows(path)

    def evaluate(self, context: LoopContext, path: Path) -> Program[Any]:
        """What these thoughts are worth."""
        yield CallModel((Message("user", f"judge {path}"),))
        self.judged.append(path)
        return self._values(path)


class Run(NamedTuple):
    """What came of one round of searching: the result, the requests, and the prompt of the decision."""

    result: Result
    requests: list[CallModel]
    wood: Wood

    @property
    def decision(self) -> str:
        return readable(self.requests[-1].messages)

    @property
    def thought(self) -> str:
        return self.result.turns[-1].thought if self.result.turns else ""

    @property
    def story(self) -> str:
        return f"proposed after {self.wood.proposed}, judged {self.wood.judged}, decided on {self.thought!r}"


def search(
    tree: Tree,
    grows: Callable[[Path], Sequence[str]],
    values: Callable[[Path], Any],
    limits: Limits = LIMITS,
    **caps: int,
) -> Run:
    """One round of a loop that searches such a wood, and then finishes."""
    wood, model = Wood(grows, values), FakeModel(lambda request: FINISH)
    caps = {"depth": 2, "width": 2, "branches": 3, **caps}
    loop = AgentLoop(tree(react(TOOLS), wood.propose, wood.evaluate, **caps), limits=limits)
    return Run(drive(loop.run(TASK), World(model, TOOLS, inline=True)), model.requests, wood)


def two_deep(values: Mapping[str, Any]) -> Callable[[Tree], Run]:
    """A wood of two levels: <a>, <b>, <c>, and on each <x>, <y>. Keys such as "b" and "bx" give values."""

    def value(path: Path) -> Any:
        return values.get("".join(thought.strip("<>") for thought in path), 0.0)

    return lambda tree: search(tree, lambda path: ["<x>", "<y>"] if path else ["<a>", "<b>", "<c>"], value)


def _hold(kept: bool, made: Run, story: str) -> None:
    if not kept:
        raise BrokenPromise(f"{story} ({made.story})")


def _decides_on(made: Run, *thoughts: str) -> None:
    """The branch stands in the prompt of the decision and in its turn, and no other does."""
    for text in ("<a>", "<b>", "<c>", "<x>", "<y>"):
        due = int(text in thoughts)
        for where, shown in (("the prompt of the decision", made.decision), ("its turn", made.thought)):
            said = shown.count(text)
            _hold(said == due, made, f"{' '.join(thoughts)} is best, and {where} says {text} {said} times")


# --- The promises -----------------------------------------------------------------------------


def it_decides_on_the_best_branch(tree: Tree) -> None:
    """The thoughts that are worth most are those that the decision is made on."""
    _decides_on(two_deep({"a": 0.5, "b": 0.9, "c": 0.6, "bx": 0.5, "by": 1.0, "ax": 0.5})(tree), "<b>", "<y>")
    _decides_on(two_deep({"a": 0.9, "ax": 0.5, "ay": 0.9, "b": 0.5})(tree), "<a>", "<y>")


def it_comes_back_from_a_wrong_way(tree: Tree) -> None:
    """The best first thought leads nowhere; what stood second is not forgotten."""
    _decides_on(two_deep({"a": 0.9, "b": 0.8, "by": 1.0})(tree), "<b>", "<y>")


def unknown_is_not_a_pass(tree: Tree) -> None:
    """A value that is none, too large, negative or no number comes after all that is known."""
    for nonsense in (None, math.nan, math.inf, 2.0, -1.0):
        values = {"a": nonsense, "b": 0.6, "c": nonsense, "bx": nonsense, "by": 0.5, "ax": nonsense}
        _decides_on(two_deep(values)(tree), "<b>", "<y>")
        values = {"a": 0.6, "ax": nonsense, "ay": nonsense, "b": 0.5, "bx": nonsense, "by": 0.8}
        _decides_on(two_deep(values)(tree), "<b>", "<y>")


def among_equals_the_first_proposed_is_taken(tree: Tree) -> None:
    """The same values give the same branch, the first that was proposed."""
    _decides_on(two_deep(dict.fromkeys(("a", "b", "c", "ax", "ay", "bx", "by"), 0.5))(tree), "<a>", "<x>")


def _values(depth: int) -> Iterator[Callable[[Path], Any]]:
    """Judges of every temper: yes, nothing usable, no, less and less, and no at the very end."""
    yield lambda path: 1.0
    yield lambda path: None
    yield lambda path: 0.0
    yield lambda path: 1.0 - len(path) / 10
    yield lambda path: float(len(path) < depth)


def its_caps_hold(tree: Tree) -> None:
    """However much grows and whatever it is worth, depth, width and branches bound what is asked for."""
    many = [f"<{number}>" for number in range(50)]
    for depth, width, branches in ((1, 1, 1), (1, 3, 2), (2, 1, 3), (3, 2, 2), (4, 3, 1), (3, 2, 9)):
        for values in _values(depth):
            made = search(tree, lambda path: many, values, depth=depth, width=width, branches=branches)
            proposed, judged = made.wood.proposed, made.wood.judged
            caps = f"depth {depth}, width {width}, branches {branches}"
            most = 1 + width * (depth - 1)
            _hold(
                len(proposed) <= most, made, f"{caps}: it proposed {len(proposed)} times, not {most} at most"
            )
            most = branches * len(proposed)
            _hold(len(judged) <= most, made, f"{caps}: it judged {len(judged)} thoughts, not {most} at most")
            longest = max(map(len, judged))
            _hold(longest <= depth, made, f"{caps}: it judged a branch of {longest} thoughts")
            asked = len(made.requests)
            due = len(proposed) + len(judged) + 1
            _hold(asked == due, made, f"{caps}: the model was asked {asked} times, and {due} would do")


def it_goes_as_deep_as_it_may(tree: Tree) -> None:
    """Where each thought can be followed by a good one, the branch chosen is ``depth`` long."""
    for depth in (1, 2, 3):
        made = search(tree, lambda path: [f"<{len(path)}>"], lambda path: 0.8, depth=depth)
        thoughts = [f"<{number}>" for number in range(depth)]
        shown = all(text in made.decision for text in thoughts)
        _hold(shown, made, f"with depth {depth} it may think {thoughts}, and decides on {made.thought!r}")


def the_same_thought_is_judged_once(tree: Tree) -> None:
    """A thought that is proposed twice is one thought, and the cap counts it once."""
    made = search(tree, lambda path: ["<a>", "<a>", "<a>", "<b>"], lambda path: 0.5, depth=1, branches=2)
    _hold(made.wood.judged == [("<a>",), ("<b>",)], made, "of <a> <a> <a> <b> it judged something else")


def without_a_proposal_the_step_decides_alone(tree: Tree) -> None:
    """Where nothing is proposed there is no branch, and the step is asked as if there were no tree."""
    made = search(tree, lambda path: [], lambda path: 1.0)
    plain = FakeModel(lambda request: FINISH)
    drive(AgentLoop(react(TOOLS)).run(TASK), World(plain, TOOLS, inline=True))
    same = made.requests[-1].messages == plain.requests[0].messages
    _hold(same, made, f"there is nothing to decide on, and the step is shown {made.decision!r}")
    _hold(len(made.requests) == 2, made, f"the model was asked {len(made.requests)} times, not twice")


def a_branch_may_end_early(tree: Tree) -> None:
    """A branch on which nothing more grows is still a branch."""
    made = search(tree, lambda path: [] if path else ["<a>"], lambda path: 0.7, depth=3)
    _hold("<a>" in made.decision, made, "<a> is all there is, and the decision is not made on it")


def every_call_is_paid_for_and_the_best_is_kept(tree: Tree) -> None:
    """Where the account ends in the middle of the search, the turn keeps the best branch judged so far."""
    values = {"<a>": 0.5, "<b>": 0.9, "<c>": 0.6}
    for allowed in (3, 4, 5):
        made = search(
            tree,
            lambda path: list(values) if not path else ["<x>"],
            lambda path: values[path[0]] if len(path) == 1 else 0.0,
            limits=replace(LIMITS, model_calls=allowed),
        )
        asked, stop = len(made.requests), made.result.stop
        _hold(asked == allowed, made, f"{allowed} calls were allowed, and {asked} were made")
        honest = stop is StopReason.MODEL_CALLS and made.result.answer is None
        _hold(honest, made, f"it ran out of model calls, and says {stop.name}, {made.result.answer!r}")
        best = "<b>" in made.thought
        _hold(
            best, made, f"after {allowed} calls <b> was the best in hand, and the turn keeps {made.thought!r}"
        )


def nothing_outside_is_touched(tree: Tree) -> None:
    """The inner loop thinks: what it asks the world for is model calls and nothing else (EA60)."""
    wood = Wood(lambda path: ["<a>", "<b>"], lambda path: 0.5)
    reason = tree(react(TOOLS), wood.propose, wood.evaluate, depth=2, width=2, branches=2)
    program, asked = AgentLoop(reason, limits=LIMITS).run(TASK), list[str]()
    drive(_listed(program, asked), World(FakeModel(lambda request: FINISH), TOOLS, inline=True))
    if set(asked[1:]) != {"CallModel"}:
        raise BrokenPromise(
            f"thinking asked the world for {sorted(set(asked[1:]))}, not for model calls alone"
        )


def _listed(program: Program[Result], asked: list[str]) -> Program[Result]:
    outcome: Any = None
    while True:
        try:
            effect = program.send(outcome)
        except StopIteration as ended:
            result: Result = ended.value
            return result
        asked.append(type(effect).__name__)
        outcome = yield effect


def runs_share_nothing(tree: Tree) -> None:
    """One hook serves many runs, and the second asks what the first asked."""
    wood = Wood(lambda path: ["<a>", "<b>"], lambda path: 0.5 + 0.1 * path.count("<b>"))
    reason = tree(react(TOOLS), wood.propose, wood.evaluate, depth=2, width=2, branches=2)
    model = FakeModel(lambda request: FINISH)
    world = World(model, TOOLS, clock=FakeClock().now, inline=True)
    first, second = (drive(AgentLoop(reason, limits=LIMITS).run(TASK), world) for _ in range(2))
    half = len(model.requests) // 2
    same = model.requests[:half] == model.requests[half:] and first == second
    if not same:
        raise BrokenPromise(f"the second run came to {second}, the first to {first}")


PROMISES: dict[str, Callable[[Tree], None]] = {
    promise.__name__: promise
    for promise in (
        it_decides_on_the_best_branch,
        it_comes_back_from_a_wrong_way,
        unknown_is_not_a_pass,
        among_equals_the_first_proposed_is_taken,
        its_caps_hold,
        it_goes_as_deep_as_it_may,
        the_same_thought_is_judged_once,
        without_a_proposal_the_step_decides_alone,
        a_branch_may_end_early,
        every_call_is_paid_for_and_the_best_is_kept,
        nothing_outside_is_touched,
        runs_share_nothing,
    )
}


def check_tree(tree: Tree) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(tree)
