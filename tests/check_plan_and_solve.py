"""What Plan-and-Solve promises: plain functions of a class that is made like ``PlanAndSolve``.

``check_plan_and_solve(make)`` raises ``BrokenPromise`` with the story of the first promise that is broken;
``PROMISES`` holds the same promises one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import Limits, StopReason
from paradigms.evaluators import judged_by_model
from paradigms.plan_and_solve import Solution, Status
from paradigms.planning import GaveUp, model_planner
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
    news_of,
    outer_limits,
    play,
)

Make = Callable[..., Any]
ASKS, LONGEST = 2, 4
DONE, FAILED, ADMIT, LOOK, BREAK = THOUGHTS[0], THOUGHTS[3], THOUGHTS[1], THOUGHTS[2], THOUGHTS[3]


def run(make: Make, luck: Luck, inner: Limits = Limits(rounds=3), **options: Any) -> Played:  # noqa: B008
    """One run of the thing under test in the world of that luck."""
    planner = model_planner(TOOLS, ASKS, LONGEST)
    return play(make(loop(inner), planner, changed=news_of(luck), **options).run(TASK), luck)


def bound(inner: Limits, outer: Limits, replans: int) -> int:
    """How many effects there can be: the account's, or what the caps leave room for."""
    step = 1 + inner.effects + 1 + 1 + 1  # its start, its loop, the question whether all is over, judge, look
    return 1 + min(outer.effects, (1 + replans) * (ASKS + LONGEST * step))


hostile = given(lucks, inner_limits, outer_limits, st.integers(0, 2), st.booleans())
examples = settings(deadline=None, database=None)


# --- The promises -----------------------------------------------------------------------------


def it_ends_within_its_bound(make: Make) -> None:
    """Whatever the model says, plans, steps and judgements stay within the limits and the caps."""

    @examples
    @hostile
    def check(luck: Luck, inner: Limits, outer: Limits, replans: int, judge: bool) -> None:
        evaluate = judged_by_model() if judge else None
        played = run(make, luck, inner, limits=outer, replans=replans, evaluate=evaluate)
        most = bound(inner, outer, replans)
        expect(played.effects <= most, f"{played.effects} effects, and {most} were possible: {luck}")
        calls = len(played.requests)
        expect(
            calls <= outer.model_calls, f"{calls} model calls, and {outer.model_calls} were allowed: {luck}"
        )
        plans = {report.plan for report in played.value.steps}
        expect(len(plans) <= replans + 1, f"{len(plans)} plans were made with {replans} replans: {luck}")

    check()


def its_ending_is_honest(make: Make) -> None:
    """An answer means that every step of the last plan is done; each step says what became of it."""

    @examples
    @hostile
    def check(luck: Luck, inner: Limits, outer: Limits, replans: int, judge: bool) -> None:
        evaluate = judged_by_model() if judge else None
        solution: Solution = run(make, luck, inner, limits=outer, replans=replans, evaluate=evaluate).value
        hold_an_honest_ending(solution)
        if solution.answer is not None:
            last = [report for report in solution.steps if report.plan == solution.steps[-1].plan]
            undone = [report.step.number for report in last if report.status is not Status.DONE]
            expect(bool(last) and not undone, f"it has an answer, and steps {undone} are not done: {luck}")
        for report in solution.steps:
            ran = report.result is not None
            expect(
                ran == (report.status in (Status.DONE, Status.FAILED)), f"{report.status.name} and ran: {ran}"
            )
            expect(
                (report.failed is not None) == (report.status is Status.SKIPPED), f"because of whom? {report}"
            )
            expect(
                report.status is not Status.DONE or report.result.answer is not None,
                f"done, no answer: {report}",
            )

    check()


def no_step_runs_on_a_failed_one(make: Make) -> None:
    """Steps that need a failed one are not run, and name it; others are run all the same (R02)."""
    for plan, statuses, culprits in (
        (PLANS[0], "FAILED SKIPPED SKIPPED", [None, 1, 1]),
        (PLANS[1], "FAILED DONE SKIPPED", [None, None, 1]),
    ):
        for failing in (ADMIT, "not finished"):
            luck = Luck((plan,), (failing, DONE, DONE))
            solution = run(make, luck, Limits(rounds=1), replans=0).value
            story = f"the first step of {plan!r} fails, and the steps end as"
            found = " ".join(report.status.name for report in solution.steps)
            expect(found == statuses, f"{story} {found}, not {statuses}")
            because = [report.failed for report in solution.steps]
            expect(because == culprits, f"{story} skipped because of {because}, not {culprits}")
            expect(
                solution.answer is None, f"{story} {found}, and yet there is the answer {solution.answer!r}"
            )


def an_answer_rests_on_something(make: Make) -> None:
    """A step whose calls have all failed has failed, whatever the model says of it."""
    solution = run(make, Luck((PLANS[3],), (BREAK, DONE)), replans=0).value
    expect(solution.answer is None, f"every call of the step failed, and it is believed: {solution.answer!r}")
    solution = run(make, Luck((PLANS[3],), (BREAK, LOOK, DONE)), replans=0).value
    expect(
        solution.answer == "好了",
        f"the second call succeeded, and the step is not believed: {solution.problem}",
    )


def no_plan_is_no_success(make: Make) -> None:
    """A plan that cannot be read is asked for again, a bounded number of times, and then told of (R01)."""
    for plan in ("I will think about it.", "", "[]"):
        played = run(make, Luck((plan,)))
        solution = played.value
        expect(
            solution.stop is GaveUp.NO_PLAN, f"the plan is {plan!r}, and it ended with {solution.stop.name}"
        )
        expect(solution.steps == (), f"the plan is {plan!r}, and it ran the steps {solution.steps}")
        asked = len(played.requests)
        expect(asked == ASKS, f"the plan is {plan!r}, and {asked} requests were made: {ASKS} are allowed")
    played = run(make, Luck(("I will think about it.", PLANS[3])))
    expect(
        played.value.answer == "好了", f"the second reply is a plan, and it ended with {played.value.problem}"
    )


def replans_are_capped(make: Make) -> None:
    """Where every plan fails, there are exactly as many more as are allowed."""
    for replans in range(3):
        solution = run(make, Luck((PLANS[0],), (ADMIT,)), replans=replans).value
        plans = Counter(report.plan for report in solution.steps)
        expect(len(plans) == replans + 1, f"with {replans} replans there were {len(plans)} plans")
        expect(
            solution.stop is GaveUp.NOT_REACHED, f"no plan is left, and it ended with {solution.stop.name}"
        )


def a_new_plan_is_told_why(make: Make) -> None:
    """The planner is shown what was done, and what failed; the next plan goes on from there."""
    played = run(make, Luck((PLANS[1], PLANS[3]), (DONE, ADMIT, DONE)), replans=1)
    asked = [
        request.messages[1].content for request in played.requests if "make plans" in str(request.messages)
    ]
    expect(
        len(asked) == 2, f"a step failed and one replan is allowed: the planner was asked {len(asked)} times"
    )
    for due in ("没有票", "看天气", "好了"):
        expect(due in asked[1], f"the planner is not told {due!r}: {asked[1]}")
    expect(
        played.value.answer == "好了", f"the second plan is done, and it ended with {played.value.problem}"
    )


def a_changed_world_is_planned_for(make: Make) -> None:
    """News makes a new plan, once; steps not yet run are left, and say so."""
    luck = Luck((PLANS[0], PLANS[3]), news=(None, "闭馆了", "闭馆了", "闭馆了"))
    played = run(make, luck, replans=2)
    statuses = " ".join(f"{report.plan}:{report.status.name}" for report in played.value.steps)
    expect(
        statuses == "1:DONE 1:DONE 1:NOT_RUN 2:DONE", f"news came before step 3, and the steps are {statuses}"
    )
    told = any("闭馆了" in message.content for request in played.requests for message in request.messages)
    expect(told, "the planner was not told what has changed")
    played = run(make, Luck((PLANS[0],), news=("下雨了",) * 9), replans=2)
    plans = {report.plan for report in played.value.steps}
    expect(plans == {1, 2}, f"the same news came again and again, and there were {len(plans)} plans")


def nothing_in_hand_is_lost(make: Make) -> None:
    """Where the allowance ends, what was done until then is returned, with the reason."""
    whole = run(make, Luck((PLANS[0],))).value
    for calls in range(1, 4):
        solution = run(make, Luck((PLANS[0],)), limits=Limits(model_calls=calls)).value
        done = [report for report in solution.steps if report.status is Status.DONE]
        expect(solution.stop is StopReason.MODEL_CALLS, f"after {calls} model calls: {solution.stop.name}")
        expect(
            len(done) == calls - 1, f"after {calls} model calls, {len(done)} steps are done, not {calls - 1}"
        )
        expect(len(solution.steps) == len(whole.steps), f"after {calls} model calls, steps are missing")


def its_own_limit_fails_a_step_alone(make: Make) -> None:
    """A step that used up its own allowance has failed; the run goes on, and plans again."""
    luck = Luck((PLANS[3],), (LOOK, DONE))
    solution = run(make, luck, Limits(model_calls=1), replans=1).value
    expect(solution.answer == "好了", f"a step ran out of calls, the next plan would do: {solution.problem}")


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
        no_plan_is_no_success,
        no_step_runs_on_a_failed_one,
        an_answer_rests_on_something,
        replans_are_capped,
        a_new_plan_is_told_why,
        a_changed_world_is_planned_for,
        nothing_in_hand_is_lost,
        its_own_limit_fails_a_step_alone,
        its_ending_is_honest,
        it_ends_within_its_bound,
        it_does_the_same_again,
    )
}


def check_plan_and_solve(make: Make) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(make)
