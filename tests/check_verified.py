"""What the guard against leaving early promises: plain functions of one ``verified``, ours and a reader's.

``make(*tools, least=1)`` makes a check ``(context, answer)``: an objection in words, or ``None``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from agentloop import StopReason
from tests.check_toolbox import expect
from tests.goal_worlds import moves, objection, played

Make = Callable[..., Any]

#: Which tools bring a result in each move.
RESULTS = {
    "look": ("look",),
    "ask": ("ask",),
    "look twice": ("look", "look"),
    "fail and look": ("look",),
}


def expect_right(make: Make, tools: Sequence[str], least: int, made: Sequence[str]) -> None:
    """Hold one objection against what is due after these moves."""
    looks = sum(any(not tools or tool in tools for tool in RESULTS.get(move, ())) for move in made)
    said = objection(make(*tools, least=least), moves=made)
    given = ", ".join([*map(repr, tools), f"least={least}"])
    story = f"verified({given}) after {', '.join(made) or 'nothing'}: rounds that brought a result: {looks}, "
    if looks >= least:
        expect(said is None, f"{story}and it objects: {said!r}")
    else:
        expect(
            isinstance(said, str) and bool(said),
            f"{story}and it said {said!r}",
        )


def no_answer_before_a_result(make: Make) -> None:
    """An answer is refused until a call has brought a result: a refusal, a failure, a mumble are none."""
    for made in ((), ("answer",), ("fail",), ("mumble",), ("invent a tool",), ("answer", "fail", "answer")):
        expect_right(make, (), 1, made)
        expect_right(make, ("look",), 1, made)


def a_result_is_enough(make: Make) -> None:
    """Once a call has brought a result, the answer passes, whatever came before it or after."""
    for made in (
        ("look",),
        ("answer", "look"),
        ("look", "fail"),
        ("fail and look",),
        ("look", "answer", "mumble"),
    ):
        expect_right(make, (), 1, made)
        expect_right(make, ("look",), 1, made)


def only_the_named_tools_count(make: Make) -> None:
    """Where tools are named, a result of another is none; a result of any of them will do."""
    for tools in (("look",), ("ask", "look"), ("pay",)):
        for made in (("ask",), ("ask", "look"), ("ask", "ask", "fail and look")):
            expect_right(make, tools, 1, made)


def one_batch_is_one_look(make: Make) -> None:
    """Two calls of one batch cannot verify each other."""
    expect_right(make, (), 2, ("look twice",))
    expect_right(make, (), 2, ("look twice", "look"))


def it_says_which_tool_is_missing(make: Make) -> None:
    """The objection names the tools, so that the model can call one."""
    said = objection(make("opening_hours"))
    expect(
        "opening_hours" in str(said),
        f"verified('opening_hours') objects, and does not name the tool: {said!r}",
    )


def it_counts_as_it_says(make: Make) -> None:
    """Whatever was done, and whichever tools are wanted how often, the count is right."""

    @given(
        moves, st.lists(st.sampled_from(["look", "ask", "fail"]), max_size=2, unique=True), st.integers(1, 3)
    )
    @example(["look", "answer", "look"], [], 2)
    @example(["look", "ask", "fail", "look"], [], 3)
    def count(made: list[str], tools: list[str], least: int) -> None:
        expect_right(make, tools, least, made)

    count()


def a_claim_without_a_call_is_no_success(make: Make) -> None:
    """In a whole loop, an answer that rests on no call of the tool never becomes the run's answer (L08)."""
    for made in (("answer",), ("fail", "answer"), ("ask", "answer")):
        result = played(made, accept=make("look"))
        expect(
            result.answer is None and result.stop is not StopReason.FINAL_ANSWER,
            f"after {', '.join(made)} nobody has called 'look', and the answer {result.answer!r} is believed",
        )
    result = played(("answer", "look", "answer"), accept=make("look"))
    expect(result.answer == "长城", f"after a look the answer is due, and it ended with {result.stop.name}")


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        no_answer_before_a_result,
        a_result_is_enough,
        only_the_named_tools_count,
        one_batch_is_one_look,
        it_says_which_tool_is_missing,
        it_counts_as_it_says,
        a_claim_without_a_call_is_no_success,
    )
}
