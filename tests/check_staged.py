"""What a staged view promises: plain functions of a factory ``staged(plan, last)``; ``plan`` names a tool.

Its views keep the promises of all views besides (``check_view.py``). ``PROMISES`` holds the promises by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import LoopContext, Observation, ToolCall, Turn
from paradigms.function_calling import render
from paradigms.prompt import Block, Prompt, View
from tests import check_view
from tests.check_toolbox import expect

Staged = Callable[..., View]
WORK, PLAN, FAILED, TALK = "work", "plan", "a plan that failed", "talk of write_plan"


def turn(number: int, kind: str) -> Turn:
    """A turn of some size; only a PLAN makes a plan."""
    name = "write_plan" if kind in (PLAN, FAILED) else "look"
    thought = f"<{number}> I should write_plan" if kind == TALK else f"<{number}>"
    call = ToolCall(name, {"text": "晴" * 50}, f"call_1_{number}_1")
    return Turn(thought, (call,), (Observation("晴" * 50, kind != FAILED),))


def rounds(view: View, kinds: Iterable[str]) -> Any:
    """What the view shows after each turn of a run: the numbers of the turns, and the blocks."""
    context = LoopContext("task")
    prompt = Prompt(context, "system")
    for number, kind in enumerate(kinds, 1):
        context.turns.append(turn(number, kind))
        prompt.refresh(render)
        chosen: Any = view(prompt)
        blocks: list[Block] = list(chosen)
        yield numbers(blocks), blocks


def numbers(blocks: Iterable[Block]) -> list[int]:
    messages = [message for each in blocks for message in each.messages]
    return [int(call.id.split("_")[2]) for message in messages for call in message.calls]


def due(kinds: list[str], last: int) -> list[int]:
    """The turns that are to be shown after these: all, or the latest plan and the last ones after it."""
    plans = [number for number, kind in enumerate(kinds, 1) if kind == PLAN]
    if not plans:
        return list(range(1, len(kinds) + 1))
    return [plans[-1], *range(max(plans[-1] + 1, len(kinds) - last + 1), len(kinds) + 1)]


def _expect_due(staged: Staged, kinds: list[str], last: int) -> None:
    for length, (shown, _) in enumerate(rounds(staged("write_plan", last), kinds), 1):
        right = due(kinds[:length], last)
        story = f"after {kinds[:length]}, with the last {last} turns: {right} are due, and it shows {shown}"
        expect(shown == right, story)


def planning_sees_everything(staged: Staged) -> None:
    """Until there is a plan, every turn is shown: a plan must know all that was said."""
    _expect_due(staged, [WORK] * 12, 2)


def executing_sees_the_plan_and_the_last_turns(staged: Staged) -> None:
    """From then on the plan is shown, and the last turns: with one, two or many of them."""
    for last in (1, 2, 5):
        _expect_due(staged, [*[WORK] * 6, PLAN, *[WORK] * 9], last)
    _expect_due(staged, [PLAN, *[WORK] * 4], 2)


def the_latest_plan_is_the_plan(staged: Staged) -> None:
    """A new plan takes the place of the old one, which is not shown any more."""
    _expect_due(staged, [WORK, PLAN, WORK, WORK, WORK, PLAN, WORK, WORK, WORK], 2)
    _expect_due(staged, [PLAN, PLAN, PLAN], 1)


def a_plan_that_failed_is_none(staged: Staged) -> None:
    """A plan that was refused, or one that is only talked of, ends no planning."""
    _expect_due(staged, [WORK, TALK, FAILED, WORK, WORK, WORK], 2)
    _expect_due(staged, [WORK, PLAN, WORK, WORK, FAILED, WORK, TALK, WORK], 2)


def any_run_is_shown_as_it_stands(staged: Staged) -> None:
    """Whatever is planned, refused and planned anew: the right turns, in order, round by round."""

    @settings(database=None)
    @given(st.lists(st.sampled_from([WORK, WORK, PLAN, FAILED, TALK]), max_size=12), st.integers(1, 4))
    def prove(kinds: list[str], last: int) -> None:
        _expect_due(staged, kinds, last)

    prove()


def what_is_left_out_is_marked(staged: Staged) -> None:
    """Where turns are missing, the model is told which: it must not take two turns for neighbours."""
    kinds = [*[WORK] * 4, PLAN, *[WORK] * 6]
    for length, (shown, blocks) in enumerate(rounds(staged("write_plan", 2), kinds), 1):
        text = "\n".join(message.content for each in blocks for message in each.messages)
        marked: set[int] = set()
        for first, last in re.findall(r"Turns (\d+) to (\d+)", text):
            marked |= set(range(int(first), int(last) + 1))
        missing = set(range(1, length + 1)) - set(shown)
        expect(marked == missing, f"after {length} turns {missing} are not shown, and {marked} are marked so")


def a_step_costs_the_same_however_long_the_run(staged: Staged) -> None:
    """The prompt of a step does not grow with the turns before it, be they of planning or of other steps."""
    kinds = [*[WORK] * 30, PLAN, *[WORK] * 200]
    sizes = [sum(each.tokens for each in blocks) for _, blocks in rounds(staged("write_plan", 2), kinds)]
    early, late = sizes[34], sizes[-1]
    expect(late <= early + 5, f"the 4th step is shown {early} tokens of history, and the 200th {late}")


def one_view_serves_many_runs(staged: Staged) -> None:
    """A plan of one run is no plan of another, though both are shown by the same view."""
    view = staged("write_plan", 2)
    planned, other = rounds(view, [PLAN, WORK, WORK]), rounds(view, [WORK] * 4)
    next(planned)
    for length, (shown, _) in enumerate(other, 1):
        whole = list(range(1, length + 1))
        expect(shown == whole, f"a run without a plan, beside one that has a plan, is shown {shown}")
    shown, _ = next(planned)
    expect(shown == [1, 2], f"between two rounds of a run another one went on, and it now shows {shown}")


def its_views_are_views(staged: Staged) -> None:
    """In either stage it keeps what every view promises: calls and results paired, the latest turn shown."""
    for plan in ("get_weather", "no tool of this name"):
        check_view.check_view(staged(plan, 2))


PROMISES: dict[str, Callable[[Staged], None]] = {
    promise.__name__: promise
    for promise in (
        planning_sees_everything,
        executing_sees_the_plan_and_the_last_turns,
        the_latest_plan_is_the_plan,
        a_plan_that_failed_is_none,
        any_run_is_shown_as_it_stands,
        what_is_left_out_is_marked,
        a_step_costs_the_same_however_long_the_run,
        one_view_serves_many_runs,
        its_views_are_views,
    )
}
