"""What an orchestrator promises: plain functions of a class that is made like chapter 34's ``Orchestrator``.

``PROMISES`` holds the promises by name; the worlds are those of ``office_worlds.py``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import Limits, StopReason
from paradigms.planning import model_planner
from tests.check_machine import BrokenPromise
from tests.check_toolbox import expect
from tests.office_worlds import (
    DONE,
    DOUBLE,
    TASK,
    TWO,
    UNREADABLE,
    Played,
    Script,
    a_person_stops,
    crew,
    ledger,
    play,
    scripts,
)
from tests.plan_worlds import PLANS, THOUGHTS, TOOLS, hold_an_honest_ending, inner_limits, outer_limits

Make = Callable[..., Any]
ASKS = 2
ANSWER, GIVE_UP, LOOK = THOUGHTS[:3]
examples = settings(deadline=None, database=None)


def run(make: Make, script: Script, workers: Limits = Limits(rounds=2), **options: Any) -> Played:  # noqa: B008
    """One run of the thing under test in the world of that script."""
    options = {"asks": ASKS, **options}
    program = make(crew(workers), model_planner(TOOLS, 2), **options).run(TASK)
    try:
        return play(program, script)
    except Exception as error:
        raise BrokenPromise(f"it raised {type(error).__name__}: {error}\n  with {script}") from error


def handed(played: Played) -> list[tuple[str, str]]:
    """Which worker was given which task, in order."""
    rounds = played.value.rounds
    return [(each.assignment.worker, each.assignment.task) for work in rounds for each in work.reports]


# --- The promises -----------------------------------------------------------------------------


def a_task_is_split_done_and_answered(make: Make) -> None:
    """Ledgers hand out work, reports are shown when the next one is due, and the last has the answer."""
    for written in (TWO, f"```json\n{TWO}\n```", f"```json {TWO} ```", f"Here it is:\n{TWO}\nDone."):
        played = run(make, Script((written, DONE), (ANSWER,)))
        value = played.value
        expect(value.answer == "好了", f"told {written!r}, then done: {value.stop.name}, {value.problem}")
        due = [("Scout", "看天气"), ("Clerk", "订票")]
        expect(handed(played) == due, f"told {written!r}, it handed out {handed(played)}")
        last = played.asked("direct")[-1].messages[1].content
        expect("看天气" in last and "好了" in last, f"the last ledger is not made from the reports: {last}")


def a_ledger_that_cannot_be_used_is_asked_for_again(make: Make) -> None:
    """Whatever is wrong with a ledger: nobody acts on it, and the model is told why and asked again (M06)."""
    for wrong in (*UNREADABLE, ConnectionError("503")):
        script = Script((ledger(), wrong, DONE), (ANSWER,))
        played = run(make, script, max_stalls=1, max_replans=0)
        value = played.value
        expect(value.answer == "好了", f"{wrong!r}, then a good one: {value.stop.name}, {value.problem}")
        expect(len(handed(played)) == 1, f"{wrong!r} was acted on: {handed(played)}")
        asked = played.asked("direct")
        expect(len(asked) == 3, f"{wrong!r}, then a good one: a ledger was asked for {len(asked)} times")
        told = asked[-1].messages[-1].content
        blamed = isinstance(wrong, Exception) or told != asked[-2].messages[-1].content
        expect(blamed, f"{wrong!r} cannot be used, and the model is told nothing: {told}")


def an_unknown_name_is_answered_with_the_known_ones(make: Make) -> None:
    """The model is told exactly the names that would be accepted; itself is not among them (M03)."""
    for name in ("Wizard", "orchestrator"):
        played = run(make, Script((ledger(name), ledger(), DONE), (ANSWER,)))
        told = played.asked("direct")[1].messages[-1].content
        right = "'Scout'" in told and "'Clerk'" in told and told.count("'orchestrator'") == (name != "Wizard")
        expect(right, f"work for {name}: the model is told {told}")
        expect(played.value.answer == "好了", f"after that it ended with {played.value.problem}")


def doubles_are_refused_before_any_work(make: Make) -> None:
    """A round in which two sub-tasks share an id is not begun (M04)."""
    played = run(make, Script((DOUBLE,), (LOOK,)), max_stalls=1, max_replans=0)
    begun = played.asked("work")
    expect(not begun and not handed(played), f"two share an id, and there was work: {handed(played)}")


def a_stall_is_seen_planned_anew_and_then_reported(make: Make) -> None:
    """Never any progress: exactly so many rounds a plan and so many plans, and then STALLED (M06)."""
    for stalls, replans in itertools.product((1, 2, 3), (0, 1, 2)):
        tasks = tuple(ledger(task=f"第{number}步", progress="false") for number in range(50))
        played = run(make, Script(tasks, (ANSWER,)), max_stalls=stalls, max_replans=replans)
        value, story = played.value, f"never any progress, {stalls} stalls and {replans} replans allowed: "
        expect(value.stop.name == "STALLED", f"{story}it ended with {value.stop.name}")
        expect(value.answer is None, f"{story}and there is the answer {value.answer!r}")
        plans = len(value.plans)
        expect(plans == replans + 1, f"{story}{plans} plans were made")
        # The first round of a plan cannot have stalled yet.
        due = stalls * (replans + 1)
        expect(len(value.rounds) == due, f"{story}there were {len(value.rounds)} rounds, not {due}")
        asked = len(played.asked("direct"))
        expect(asked == due + plans, f"{story}{asked} ledgers were asked for, not {due + plans}")


def progress_clears_the_count(make: Make) -> None:
    """Stalls are counted in a row: a team that gets on now and then is not stopped."""
    words = ("true", "false") * 3
    turns = tuple(ledger(task=f"第{number}步", progress=word) for number, word in enumerate(words))
    played = run(make, Script((*turns, DONE), (ANSWER,)), max_stalls=2, max_replans=0)
    value = played.value
    expect(value.answer == "好了", f"progress in every other round, and it ended with {value.stop.name}")


def the_models_word_alone_is_no_progress(make: Make) -> None:
    """A model that sees progress while the same work brings the same reports has stalled all the same."""
    played = run(make, Script((ledger(), ledger("Clerk")), (GIVE_UP,)), max_stalls=2, max_replans=1)
    value, rounds = played.value, len(played.value.rounds)
    expect(value.stop.name == "STALLED", f"the same reports again and again: {value.stop.name}")
    expect(rounds <= 8, f"the same reports again and again, and there were {rounds} rounds")
    played = run(make, Script((*[ledger()] * 5, DONE), (ANSWER, LOOK, ANSWER)), max_stalls=1, max_replans=0)
    expect(len(played.value.rounds) >= 1, "the first round of a plan cannot have stalled yet")


def a_ledger_that_is_never_readable_is_a_stall(make: Make) -> None:
    """Requests for one ledger are bounded, and so is how often that may happen (M06)."""
    for wrong in (*UNREADABLE, ConnectionError("503")):
        played = run(make, Script((wrong,), (ANSWER,)), max_stalls=2, max_replans=1)
        asked, stop = len(played.asked("direct")), played.value.stop.name
        expect(stop == "STALLED", f"never anything but {wrong!r}, and it ended with {stop}")
        expect(asked == ASKS * 2 * 2, f"never anything but {wrong!r}: {asked} requests, not {ASKS * 2 * 2}")


def nothing_is_answered_before_anything_was_brought(make: Make) -> None:
    """An answer rests on a report: one that the model gives at once, or after failures alone, is refused."""
    for script in (Script((DONE,)), Script((ledger(), DONE), (GIVE_UP,))):
        value = run(make, script, max_stalls=2, max_replans=0).value
        expect(value.answer is None, f"no worker has brought anything, and it answers {value.answer!r}")
        expect(value.stop.name == "STALLED", f"no worker has brought anything: {value.stop.name}")


def no_plan_is_told(make: Make) -> None:
    """A plan that cannot be read is a problem that is told, and no work begins."""
    for plan in ("I will think about it.", ""):
        played = run(make, Script(plans=(plan,)))
        stop = played.value.stop.name
        expect(stop == "NO_PLAN" and not handed(played), f"the plan is {plan!r}: {stop}, {handed(played)}")


def a_new_plan_is_told_what_is_known(make: Make) -> None:
    """The planner is shown the team, what was reported until then, and why a new plan is needed."""
    stuck = Script((ledger(progress="false"),), (GIVE_UP,), PLANS[:2])
    played = run(make, stuck, max_stalls=1, max_replans=1)
    first, second = (request.messages[1].content for request in played.asked("plan"))
    for due, shown in (("Scout", first), ("Scout", second), ("没有票", second), ("no progress", second)):
        expect(due in shown, f"the planner is not told {due!r}: {shown}")


def nothing_in_hand_is_lost(make: Make) -> None:
    """Where the common allowance ends, what was reported until then is returned, with the reason."""
    script = Script((ledger(), TWO, DONE), (ANSWER,))
    whole = run(make, script).value
    calls = len(run(make, script).requests)
    for allowed in range(1, calls):
        value = run(make, script, limits=Limits(model_calls=allowed)).value
        expect(value.stop is StopReason.MODEL_CALLS, f"after {allowed} model calls: {value.stop.name}")
        brought = sum(report.status.name == "OK" for each in value.rounds for report in each.reports)
        due = max(0, min(allowed - 2, 1) + min(max(allowed - 4, 0), 2))
        expect(brought == due, f"after {allowed} model calls {brought} answers are kept, not {due}")
    expect(whole.answer == "好了", f"with enough allowance it ended with {whole.problem}")


def all_of_it_is_on_one_account(make: Make) -> None:
    """Whatever the model says, planning, ledgers and workers stay within the common limits, and it ends."""

    def check(script: Script, inner: Limits, outer: Limits, stalls: int, replans: int) -> None:
        played = run(make, script, inner, limits=outer, max_stalls=stalls, max_replans=replans)
        effects, calls = len(played.journal.outcomes), len(played.requests)
        expect(effects <= 1 + outer.effects, f"{effects} effects, {outer.effects} were allowed: {script}")
        expect(calls <= outer.model_calls, f"{calls} calls, {outer.model_calls} were allowed: {script}")
        expect(len(played.value.plans) <= replans + 1, f"{len(played.value.plans)} plans, {replans} replans")

    check(Script(), Limits(rounds=2), Limits(effects=3), 2, 2)
    examples(given(scripts, inner_limits, outer_limits, st.integers(1, 3), st.integers(0, 2))(check))()


def its_ending_is_honest(make: Make) -> None:
    """An answer exactly at FINAL_ANSWER, resting on a report; each round has a report for each sub-task."""

    def check(script: Script, inner: Limits, outer: Limits) -> None:
        value = run(make, script, inner, limits=outer).value
        hold_an_honest_ending(value)
        reports = [report for each in value.rounds for report in each.reports]
        rests = any(report.status.name == "OK" for report in reports)
        expect(value.answer is None or rests, f"the answer rests on nothing: {script}")
        for each in value.rounds:
            told = tuple(report.assignment for report in each.reports)
            expect(told == each.ledger.next, f"handed out {each.ledger.next}, and reported {told}")

    check(Script(UNREADABLE), Limits(rounds=2), Limits())
    examples(given(scripts, inner_limits, outer_limits)(check))()


def a_person_who_stops_one_stops_the_work(make: Make) -> None:
    """Where a person ends a worker's run, nothing more is handed out and nothing is planned anew."""
    program = make(crew(stops=(a_person_stops,)), model_planner(TOOLS)).run(TASK)
    played = play(program, Script((TWO,), (LOOK,)))
    stop, asked = played.value.stop, len(played.asked("direct"))
    expect(stop is StopReason.HUMAN, f"a person stopped a worker, and it ended with {stop.name}")
    expect(asked == 1 and len(played.value.rounds) == 1, f"after that a ledger was asked for: {asked} in all")


def it_does_the_same_again(make: Make) -> None:
    """Two runs share nothing, one script gives one run, and a journal gives it again without the world."""

    def check(script: Script, inner: Limits) -> None:
        thing = make(crew(inner), model_planner(TOOLS, 2))
        first, second = play(thing.run(TASK), script), play(thing.run(TASK), script)
        expect(first.value == second.value, f"the second run differs from the first: {script}")
        expect(first.requests == second.requests, f"the second run asked for something else: {script}")
        replayed = play(thing.run(TASK), Script((), (), ()), first.journal)
        expect(replayed.value == first.value and not replayed.requests, f"replayed it differs: {script}")

    check(Script(), Limits(rounds=2))
    examples(given(scripts, inner_limits)(check))()


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        a_task_is_split_done_and_answered,
        a_ledger_that_cannot_be_used_is_asked_for_again,
        an_unknown_name_is_answered_with_the_known_ones,
        doubles_are_refused_before_any_work,
        a_stall_is_seen_planned_anew_and_then_reported,
        progress_clears_the_count,
        the_models_word_alone_is_no_progress,
        a_ledger_that_is_never_readable_is_a_stall,
        nothing_is_answered_before_anything_was_brought,
        no_plan_is_told,
        a_new_plan_is_told_what_is_known,
        nothing_in_hand_is_lost,
        a_person_who_stops_one_stops_the_work,
        its_ending_is_honest,
        all_of_it_is_on_one_account,
        it_does_the_same_again,
    )
}
