"""Chapter 09: tree of thoughts. Its promises, its planted faults, and searching under any model and judge."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import AgentLoop, Journal, Limits, LoopContext, Result, StopReason, World, bounded, drive
from chapters.ch07_drivers import drive_async, drive_on_bus
from chapters.ch09_tree_of_thoughts import (
    LIMITS,
    PUZZLES,
    babbling_judge,
    noting,
    objection,
    play,
    player,
    row,
    task,
)
from fake_llm import FakeClock, FakeModel, typical_replies
from paradigms.chain_of_thought import chain_of_thought
from paradigms.react import react
from paradigms.tree_of_thoughts import (
    JUDGE,
    PROPOSE,
    VERDICTS,
    Branch,
    proposals,
    read_proposals,
    read_verdict,
    tree_depth_first,
    tree_of_thoughts,
    verdicts,
)
from tests.check_chain_of_thought import FINISH, TOOLS
from tests.check_depth_first import as_breadth
from tests.check_tree_of_thoughts import PROMISES, TASK, search, two_deep

STEP = react(TOOLS)


TREES = {"breadth-first": tree_of_thoughts, "depth-first": as_breadth(tree_depth_first)}
each_tree = pytest.mark.parametrize("tree", TREES.values(), ids=TREES)


# --- The promises -----------------------------------------------------------------------------


@each_tree
@pytest.mark.parametrize("promise", PROMISES)
def test_a_tree_keeps(tree: Any, promise: str) -> None:
    PROMISES[promise](tree)


@pytest.mark.parametrize("name", ["depth", "width", "branches"])
@pytest.mark.parametrize("number", [0, -1, 1.5, float("inf"), None])
def test_a_cap_that_is_none_is_refused(name: str, number: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a whole number of at least 1"):
        tree_of_thoughts(STEP, proposals(), verdicts(), **{name: number})
    other = "visits" if name == "width" else name
    with pytest.raises(ValueError, match=f"{other} must be a whole number of at least 1"):
        tree_depth_first(STEP, proposals(), verdicts(), **{other: number})


@pytest.mark.parametrize("threshold", [0, -1, 1.1, float("nan")])
def test_a_threshold_that_lets_everything_or_nothing_pass_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match="threshold must be a number above 0 and up to 1"):
        tree_depth_first(STEP, proposals(), verdicts(), threshold=threshold)


# --- Reading -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("sure", 1.0),
        ("6 * 4 = 24\n**Sure**.", 1.0),
        ("likely\n", 0.5),
        ("sure at first, but no\nimpossible", 0.0),
        ("肯定", 1.0),
        ("可能。", 0.5),
        ("不可能", 0.0),
        ("not sure", None),
        ("sure?", None),
        ("unlikely", None),
        ("sure\nor so", None),
        ("surely", None),
        ("sure / likely / impossible", None),
        ("不肯定", None),
        ("true", None),
        ("false", None),
        ("not 9/10", None),
        ("1.0", None),
        ("", None),
        ("\n \n", None),
    ],
)
def test_a_verdict_is_one_word_on_the_last_line_or_unknown(text: str, value: float | None) -> None:
    assert read_verdict(text) == value


@pytest.mark.parametrize(
    ("text", "thoughts"),
    [
        ("13 - 9 = 4\n10 - 4 = 6", ["13 - 9 = 4", "10 - 4 = 6"]),
        ("1. find\n2) sum\n3、去看", ["find", "sum", "去看"]),
        ("- a\n* b\n• c\n\n", ["a", "b", "c"]),
        ("```\na\n```\n---", ["a"]),
        ("-9 + 33 = 24", ["-9 + 33 = 24"]),
        ("10 - 4 = 6", ["10 - 4 = 6"]),
        ("", []),
    ],
)
def test_proposals_are_lines(text: str, thoughts: list[str]) -> None:
    assert read_proposals(text) == thoughts


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    assert read_verdict(text) in {None, *VERDICTS.values()}
    assert all(thought.strip() == thought != "" for thought in read_proposals(text))


# --- The two searches --------------------------------------------------------------------------


@given(
    st.integers(1, 4),
    st.lists(st.floats(0, 1), min_size=9, max_size=9),
)
def test_breadth_first_grows_exactly_the_best_width_of_each_level(width: int, values: list[float]) -> None:
    worth = {f"<{number}>": value for number, value in enumerate(values)}
    made = search(
        tree_of_thoughts, lambda path: list(worth), lambda path: worth[path[-1]], width=width, branches=9
    )
    best = sorted(worth, key=lambda thought: worth[thought], reverse=True)[:width]
    assert made.wood.proposed == [(), *((thought,) for thought in best)]


def test_depth_first_follows_nothing_below_its_threshold_and_stops_at_the_first_that_is_deep_enough() -> None:
    tree = TREES["depth-first"]
    made = two_deep({"a": 0.4, "b": 0.5, "c": 0.9, "cx": 0.4, "bx": 0.5})(
        lambda *hooks, **caps: tree(*hooks, **caps)
    )
    assert made.wood.proposed == [(), ("<c>",), ("<b>",)]
    assert made.thought.startswith("<b>\n<x>")


def test_where_nothing_passes_the_threshold_the_step_decides_alone() -> None:
    made = two_deep({"a": 0.4})(TREES["depth-first"])
    assert made.wood.proposed == [()]
    assert (made.thought, made.result.answer) == (FINISH, "适合")


@pytest.mark.parametrize("failing", [PROPOSE, JUDGE])
@each_tree
def test_a_model_that_fails_proposes_nothing_and_leaves_a_value_unknown(tree: Any, failing: str) -> None:
    def model(request: Any) -> Any:
        asked = request.messages[0].content
        if asked == failing:
            return ConnectionError("503")
        return "- a\n- b" if asked == PROPOSE else "sure" if asked == JUDGE else FINISH

    notes: list[Branch] = []
    reason = tree(STEP, proposals(), noting(verdicts(), notes), depth=1, width=2, branches=2)
    result = drive(AgentLoop(reason).run(TASK), World(FakeModel(model), TOOLS, inline=True))
    assert result.answer == "适合"
    assert [branch.value for branch in notes] == ([] if failing == PROPOSE else [None, None])


def test_a_chain_may_think_on_from_the_branch_that_a_tree_chose() -> None:
    model = FakeModel(
        lambda request: (
            {PROPOSE: "<a>", JUDGE: "sure"}.get(request.messages[0].content)
            or ("Thought: <on>" if "<on>" not in request.messages[2].content else FINISH)
        )
    )
    reason = tree_of_thoughts(chain_of_thought(STEP), proposals(), verdicts(), depth=1)
    result = drive(AgentLoop(reason).run(TASK), World(model, TOOLS, inline=True))
    assert result.turns[0].thought == f"<a>\nThought: <on>\n{FINISH}"
    assert all("<a>" in prompt for prompt in model.prompts[1:])


# --- Any model, any judge ----------------------------------------------------------------------

lines = st.sampled_from(["<a>", "<b>", "<c>", "- <d>", "sure", "likely", "impossible", "not sure", FINISH])
texts = st.lists(lines, max_size=5).map("\n".join) | st.text(max_size=20) | st.sampled_from(typical_replies())


@given(
    st.sampled_from(sorted(TREES)),
    st.lists(texts, max_size=40),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 40),
)
def test_EA60_whatever_is_proposed_and_judged_calls_are_bounded_and_the_ending_is_honest(
    name: str, said: list[Any], depth: int, width: int, branches: int, allowed: int
) -> None:
    def once() -> tuple[Result, int]:
        script = iter(said)
        model = FakeModel(lambda request: next(script, "<x>\nsure"))
        reason = TREES[name](STEP, proposals(), verdicts(), depth=depth, width=width, branches=branches)
        limits = Limits(rounds=2, model_calls=allowed, tokens=10**6)
        world = World(model, TOOLS, clock=FakeClock().now, inline=True)
        return drive(AgentLoop(reason, limits=limits).run(TASK), world), len(model.requests)

    result, asked = once()
    a_round = (1 + width * (depth - 1)) * (1 + branches) + 1
    assert asked == result.control.model_calls <= min(allowed, 2 * a_round)
    assert result.control.effects == result.control.model_calls + result.control.tool_calls
    assert (result.answer is not None) == (result.stop is StopReason.FINAL_ANSWER)
    assert len(result.turns) <= result.control.rounds <= 2
    assert once() == (result, asked), "the same script gives the same run"


@each_tree
def test_three_drivers_and_a_replay_come_to_the_same(tree: Any) -> None:
    reason = tree(STEP, proposals(), verdicts(), depth=3, width=5, branches=8)
    loop = AgentLoop(reason, limits=LIMITS, accept=objection)
    program = loop.run

    def ending(result: Result) -> tuple[Any, ...]:
        return result.answer, result.turns, result.control._replace(seconds=0.0)

    def world() -> World:
        return World(FakeModel(player), inline=True)

    text, journal = task(PUZZLES[0]), Journal()
    result = ending(drive(program(text), world(), journal))
    assert ending(asyncio.run(drive_async(program(text), world()))) == result
    assert ending(asyncio.run(drive_on_bus(program(text), world()))) == result
    for count in range(0, len(journal.outcomes) + 1, 7):
        assert ending(drive(program(text), world(), journal.rewound(count))) == result


def test_EA60_every_call_of_a_tree_is_charged_to_the_account_around_the_loop() -> None:
    reason = tree_of_thoughts(STEP, proposals(), verdicts())
    model = FakeModel(player)
    loop = AgentLoop(reason, limits=LIMITS)
    result = drive(
        bounded(loop.run(task(PUZZLES[0])), replace(LIMITS, model_calls=30)), World(model, inline=True)
    )
    assert (result.answer, result.stop, len(model.requests)) == (None, StopReason.MODEL_CALLS, 30)
    assert "(left: 4 6)" in result.turns[-1].thought, "the best branch judged until then is in hand"


# --- The game ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("(13 - 9) * (10 - 4)", None),
        (" (10-4)*(13-9) ", None),
        ("13 - 9 + 10 + 4", "13 - 9 + 10 + 4 makes 18, not 24"),
        ("4 * 6", "4 * 6 does not use each of the numbers once"),
        ("24", "24 does not use each of the numbers once"),
        ("(13 - 9) * (10 - 4) * 9 / 9", "does not use each"),
        ("4 / (9 - 9) + 10 + 13", "cannot be worked out"),
        ("13 ** 9", "cannot be worked out: only whole numbers"),
        ("__import__('os').getcwd()", "cannot be worked out: only whole numbers"),
        ("True + 23", "cannot be worked out"),
        ("((", "cannot be worked out"),
        ("(" * 10_000, "cannot be worked out"),
        ("\x00\ud800", "cannot be worked out"),
    ],
)
def test_an_answer_is_checked_by_arithmetic(answer: str, told: str | None) -> None:
    found = objection(LoopContext(task("4 9 10 13")), answer)
    assert found is None if told is None else found is not None and told in found


@pytest.mark.parametrize("answer", ["8 / (3 - 8 / 3)", "8/(3-8/3)"])
def test_fractions_are_worked_out_exactly(answer: str) -> None:
    assert "does not use" in str(objection(LoopContext(task("3 3 8 9")), answer))
    assert objection(LoopContext(task("3 3 8 8")), answer) is None


@given(st.text(alphabet="0123456789+-*/() e._", max_size=20))
@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
def test_any_answer_can_be_checked(answer: str) -> None:
    found = objection(LoopContext(task("4 9 10 13")), answer)
    assert found is None or isinstance(found, str)


def test_A60_a_chain_fails_where_a_tree_finds_the_way() -> None:
    chain = play(chain_of_thought(STEP, depth=3), PUZZLES[0])
    tree = play(tree_of_thoughts(STEP, proposals(), verdicts()), PUZZLES[0])
    assert (chain.answer, chain.stop) == (None, StopReason.MAX_ITERATIONS)
    assert "makes 8, not 24" in chain.turns[-1].observations[0].text
    assert tree.answer == "((10 - 4) * (13 - 9))"


def test_A62_a_wider_tree_solves_more_and_costs_more() -> None:
    rows = [
        row("tree", tree_of_thoughts(STEP, proposals(), verdicts(), width=width)) for width in (1, 2, 3, 5)
    ]
    assert [solved for _, solved, _, _ in rows] == ["1 of 6", "4 of 6", "5 of 6", "6 of 6"]
    calls = [int(str(calls)) for _, _, calls, _ in rows]
    assert calls == sorted(calls)


def test_a_judge_that_babbles_passes_nothing() -> None:
    """Breadth-first is left with its first ideas, depth-first with none: neither is taken for a yes."""
    alone, first_ideas = row("alone", STEP), row("chain", chain_of_thought(STEP, depth=3))
    broad = row("tree", tree_of_thoughts(STEP, proposals(), verdicts()), babbling_judge)
    deep = row("tree", tree_depth_first(STEP, proposals(), verdicts()), babbling_judge)
    assert (broad[1], deep[1]) == (first_ideas[1], alone[1]) == ("0 of 6", "1 of 6")


def test_depth_first_solves_as_many_for_less() -> None:
    broad = row("tree", tree_of_thoughts(STEP, proposals(), verdicts()))
    deep = row("tree", tree_depth_first(STEP, proposals(), verdicts()))
    assert broad[1] == deep[1] == "6 of 6" and int(str(deep[2])) < int(str(broad[2])) / 2
