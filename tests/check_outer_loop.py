"""What an outer loop promises: plain functions of a class that is made like ``OuterLoop``.

``check_outer_loop(make)`` raises ``BrokenPromise`` with the story of the first promise that is broken;
``PROMISES`` holds the same promises one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import EffectFailed, Limits, StopReason
from paradigms.evaluators import judged_by_model
from paradigms.outer_loop import LongTermMemory, Pursuit
from paradigms.planning import GaveUp, model_planner
from tests.check_machine import BrokenPromise
from tests.check_toolbox import expect
from tests.plan_worlds import (
    PLANS,
    TASK,
    THOUGHTS,
    TOOLS,
    Luck,
    Played,
    hold_an_honest_ending,
    hold_the_same_again,
    inner_limits,
    loop,
    lucks,
    outer_limits,
    play,
)

Make = Callable[..., Any]
ASKS, LONGEST = 2, 4
DONE, ADMIT, LOOK, BREAK = THOUGHTS[:4]
TWO = PLANS[2]  # 看天气, 订票


def run(make: Make, luck: Luck, inner: Limits = Limits(rounds=3), **options: Any) -> Played:  # noqa: B008
    """One run of the thing under test in the world of that luck."""
    return play(make(loop(inner), model_planner(TOOLS, ASKS, LONGEST), **options).run(TASK), luck)


def bound(inner: Limits, outer: Limits, replans: int) -> int:
    """How many effects there can be: the account's, or what the caps leave room for."""
    attempt = 1 + inner.effects + 1 + 1 + 1  # its start, its loop, whether all is over, judge, lesson
    attempts = 1 + replans * (LONGEST + 1)
    return 1 + min(outer.effects, 1 + replans * ASKS + attempts * attempt)


hostile = given(lucks, inner_limits, outer_limits, st.integers(0, 2), st.integers(2, 3), st.booleans())
examples = settings(deadline=None, database=None)


def told(pursuit: Pursuit) -> str:
    """The attempts in short: ``1- 2+ 2+ 1+`` for a task missed, two sub-goals reached, the task reached."""
    return " ".join(f"{goal.depth}{'-' if missed else '+'}" for goal, _, missed in pursuit.attempts)


class BrokenMemory:
    """A memory whose disk is full."""

    def recall(self, task: str) -> list[str]:
        """Raises ``OSError``."""
        raise OSError("disk")

    def keep(self, task: str, lesson: str) -> None:
        """Raises ``OSError``."""
        raise OSError("disk")


# --- The promises -----------------------------------------------------------------------------


def it_ends_within_its_bound(make: Make) -> None:
    """Whatever the model says, goals, plans and judgements stay within the limits and the caps."""

    @examples
    @hostile
    def check(luck: Luck, inner: Limits, outer: Limits, replans: int, depth: int, judge: bool) -> None:
        options: dict[str, Any] = {"evaluate": judged_by_model()} if judge else {}
        memory = LongTermMemory()
        caps = {"limits": outer, "replans": replans, "depth": depth}
        played = run(make, luck, inner, memory=memory, **caps, **options)
        most, attempts = bound(inner, outer, replans), played.value.attempts
        expect(played.effects <= most, f"{played.effects} effects, and {most} were possible: {luck}")
        expect(
            len(attempts) <= 1 + replans * (LONGEST + 1),
            f"{len(attempts)} attempts, {replans} replans: {luck}",
        )
        deepest = max((attempt.goal.depth for attempt in attempts), default=1)
        expect(
            deepest <= depth, f"a goal lies at depth {deepest}, and {depth} is the deepest allowed: {luck}"
        )

    check()


def its_ending_is_honest(make: Make) -> None:
    """An answer means that the task itself was reached last, and that no goal is left on the stack."""

    @examples
    @hostile
    def check(luck: Luck, inner: Limits, outer: Limits, replans: int, depth: int, judge: bool) -> None:
        options: dict[str, Any] = {"evaluate": judged_by_model()} if judge else {}
        caps = {"limits": outer, "replans": replans, "depth": depth}
        pursuit: Pursuit = run(make, luck, inner, **caps, **options).value
        hold_an_honest_ending(pursuit)
        reached = bool(pursuit.attempts) and pursuit.attempts[-1].deviation == ""
        if pursuit.answer is not None:
            last = pursuit.attempts[-1]
            expect(
                reached and last.goal.text == TASK,
                f"there is an answer, and {last.goal.text} came last: {luck}",
            )
            expect(last.result.answer == pursuit.answer, f"the answer is not that of the task: {luck}")
        expect(
            (pursuit.answer is None) == bool(pursuit.open), f"the goals {pursuit.open} are still open: {luck}"
        )

    check()


def what_was_missed_gets_sub_goals(make: Make) -> None:
    """A goal that was missed is tried again after its sub-goals, and these go in the order of the plan."""
    for thoughts, due in (
        ((DONE,), "1+"),
        ((ADMIT, DONE, DONE, DONE), "1- 2+ 2+ 1+"),
        ((ADMIT, ADMIT, DONE, DONE, DONE, DONE, DONE), "1- 2- 3+ 3+ 2+ 2+ 1+"),
    ):
        pursuit = run(make, Luck((TWO,), thoughts)).value
        found, goals = told(pursuit), [attempt.goal.text for attempt in pursuit.attempts]
        expect(found == due, f"the attempts should have gone {due}, and went {found}")
        for depth in (2, 3):
            subs = [goal.text for goal, _, missed in pursuit.attempts if goal.depth == depth and not missed]
            expect(subs in ([], ["看天气", "订票"]), f"the plan is 看天气, 订票, and the goals went {goals}")


def what_lies_too_deep_is_handed_up(make: Make) -> None:
    """At the deepest level a failure ends the plan that it belongs to, and the goal below is planned anew."""
    luck = Luck((TWO,), (ADMIT, ADMIT, DONE, DONE, DONE))
    found = told(run(make, luck, depth=2).value)
    expect(found == "1- 2- 2+ 2+ 1+", f"with a depth of 2 the attempts went {found}, not 1- 2- 2+ 2+ 1+")


def replans_are_capped(make: Make) -> None:
    """Where nothing is ever reached, sub-goals are asked for as often as is allowed, and then it says so."""
    for replans in range(4):
        played = run(make, Luck((TWO,), (ADMIT,)), replans=replans)
        pursuit, asked = played.value, len(played.requests) - len(played.value.attempts)
        expect(asked == replans, f"with {replans} replans, the planner was asked {asked} times")
        expect(
            pursuit.stop is GaveUp.NOT_REACHED, f"nothing was reached, and it ended with {pursuit.stop.name}"
        )
        expect("没有票" in pursuit.problem, f"it does not say why: {pursuit.problem}")


def no_plan_is_no_success(make: Make) -> None:
    """Sub-goals that cannot be read are asked for again, a bounded number of times, and then told of."""
    pursuit = run(make, Luck(("I will think about it.",), (ADMIT,))).value
    expect(pursuit.stop is GaveUp.NO_PLAN, f"there was no plan, and it ended with {pursuit.stop.name}")
    expect(len(pursuit.attempts) == 1, f"there was no plan, and it made {len(pursuit.attempts)} attempts")


def failed_calls_reach_nothing(make: Make) -> None:
    """A goal whose calls have all failed was not reached, whatever the model says of it."""
    pursuit = run(make, Luck(thoughts=(BREAK, DONE)), replans=0).value
    expect(pursuit.answer is None, f"every call failed, and it is believed: {pursuit.answer!r}")


def unclear_is_not_reached(make: Make) -> None:
    """A judge that talks nonsense has not said yes."""
    for said in ("false", "not 9/10", "", "yes!", "Score: 11/10", TimeoutError()):
        luck = Luck(judgements=(said,))
        pursuit = run(make, luck, evaluate=judged_by_model(), replans=0).value
        expect(pursuit.answer is None, f"the judge said {said!r}, and that was taken for a yes")
    pursuit = run(make, Luck(judgements=("Score: 1",)), evaluate=judged_by_model(), replans=0).value
    expect(pursuit.answer == "好了", f"the judge said 1, and it ended with {pursuit.problem}")


def working_memory_reaches_the_prompt(make: Make) -> None:
    """Each attempt is shown the stack, what was reached, what is remembered, and what went wrong (EA16)."""
    memory = LongTermMemory()
    memory.keep(TASK, "星期一闭馆")
    played = run(make, Luck((TWO,), (ADMIT, DONE, DONE, DONE)), memory=memory)
    prompts = ["\n".join(message.content for message in request.messages) for request in played.requests]
    for number, prompt in enumerate(prompts, 1):
        expect("星期一闭馆" in prompt, f"request {number} does not say what is remembered")
    expect(
        "没有票" in prompts[2] and f"{TASK} > 看天气" in prompts[2],
        "the stack and the deviation are not shown",
    )
    expect("看天气: 好了" in prompts[3], "what the first sub-goal reached is not shown to the second")


def what_was_learned_outlives_the_run(make: Make) -> None:
    """Lessons are kept after each attempt, also where the run is cut short; the next recalls them (EA16)."""
    memory = LongTermMemory()
    first = run(make, Luck((TWO,), (ADMIT, DONE)), memory=memory, limits=Limits(model_calls=2)).value
    expect(first.stop is StopReason.MODEL_CALLS, f"two model calls, and it ended with {first.stop.name}")
    kept = [lesson for _, lesson in memory.lessons]
    expect(
        any("没有票" in lesson for lesson in kept), f"the run was cut short, and what it learned is {kept}"
    )
    expect(list(first.learned) == kept, f"it says that it learned {first.learned}, and kept {kept}")
    second = run(make, Luck(), memory=memory).value
    expect(set(second.recalled) == set(kept), f"the next run recalls {second.recalled}, not {kept}")


def a_broken_memory_loses_nothing(make: Make) -> None:
    """A memory that fails is one that knows nothing, and nothing is said to be learned."""
    try:
        pursuit = run(make, Luck(), memory=BrokenMemory()).value
    except EffectFailed as failure:
        raise BrokenPromise(f"the memory failed, and the run with it: {failure}") from failure
    expect(pursuit.answer == "好了", f"the memory failed, and with it the run: {pursuit.problem}")
    expect(pursuit.learned == (), f"nothing was kept, and it says it learned {pursuit.learned}")


def nothing_in_hand_is_lost(make: Make) -> None:
    """Where the allowance ends, the attempts until then and the open goals are returned, with the reason."""
    for calls, attempts in ((1, "1-"), (2, "1- 2-"), (3, "1- 2+ 2-"), (4, "1- 2+ 2+ 1-")):
        pursuit = run(make, Luck((TWO,), (ADMIT, DONE, DONE, DONE)), limits=Limits(model_calls=calls)).value
        found = told(pursuit)
        expect(found == attempts, f"after {calls} model calls the attempts are {found}, not {attempts}")
        expect(pursuit.stop is StopReason.MODEL_CALLS, f"after {calls} model calls: {pursuit.stop.name}")
        expect(bool(pursuit.open), "the goals that are left are not told")


def it_does_the_same_again(make: Make) -> None:
    """Two runs share nothing, the same luck gives the same run, and a journal gives it without the world."""

    def compare(luck: Luck, inner: Limits) -> None:
        thing = make(loop(inner), model_planner(TOOLS, ASKS, LONGEST))
        hold_the_same_again(lambda: thing.run(TASK), luck)

    compare(Luck(), Limits(rounds=3))
    examples(given(lucks, inner_limits)(compare))()


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        what_was_missed_gets_sub_goals,
        what_lies_too_deep_is_handed_up,
        replans_are_capped,
        no_plan_is_no_success,
        failed_calls_reach_nothing,
        unclear_is_not_reached,
        working_memory_reaches_the_prompt,
        what_was_learned_outlives_the_run,
        a_broken_memory_loses_nothing,
        nothing_in_hand_is_lost,
        its_ending_is_honest,
        it_ends_within_its_bound,
        it_does_the_same_again,
    )
}


def check_outer_loop(make: Make) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(make)
