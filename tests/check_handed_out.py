"""What handing out work promises: plain functions of a program like chapter 34's ``handed_out``.

``PROMISES`` holds the promises by name. A worker here has a temper of its own (``office_worlds.py``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import (
    Act,
    AgentLoop,
    Finish,
    Interrupt,
    Journal,
    Limits,
    ProgramChanged,
    Toolbox,
    ToolCall,
    World,
    drive,
)
from paradigms.orchestrator import Assignment, Team, Worker
from tests.check_machine import BrokenPromise
from tests.check_toolbox import expect
from tests.office_worlds import TEMPERS, Crew, assignments, statuses

HandedOut = Callable[..., Any]
FIVE = ("good", "buggy", "good", "hanging", "good")


def reports_of(handed_out: HandedOut, *names: str) -> list[Any]:
    """What is reported of a sub-task for each of these workers."""
    crew = Crew()
    try:
        return list(crew.drive(handed_out(assignments(*names), crew.team, {})))
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        raise BrokenPromise(f"work for {', '.join(names)} brought no reports, but {told}") from error


def five_reports_in_the_order_of_the_sub_tasks(handed_out: HandedOut) -> None:
    """One worker has a bug, one hangs, three answer: five reports, and three of them hold an answer (M04)."""
    found = reports_of(handed_out, *FIVE)
    due = ["OK", "ERROR", "OK", "TIMEOUT", "OK"]
    expect(statuses(found) == due, f"of {FIVE} the reports are {statuses(found)}, not {due}")
    ids = [report.assignment.id for report in found]
    expect(ids == ["1", "2", "3", "4", "5"], f"handed out as 1 to 5, and reported as {ids}")
    told = [report.text for report in found if report.status.name == "OK"]
    expect(told == ["好了：任务1", "好了：任务3", "好了：任务5"], f"the answers are {told}")
    bug, late = found[1], found[3]
    expect("ZeroDivisionError" in bug.text, f"the bug is not told: {bug.text!r}")
    expect(late.result is not None and late.result.answer is None, f"it was late, and yet: {late}")


def whatever_workers_do_there_is_a_report_for_each(handed_out: HandedOut) -> None:
    """Any mixture of tempers, any number of them: a report for each, and each says what became of it."""

    @settings(deadline=None, database=None)
    @given(st.lists(st.sampled_from(sorted(TEMPERS)), max_size=6))
    def check(names: list[str]) -> None:
        found = statuses(reports_of(handed_out, *names))
        due = [TEMPERS[name][1] for name in names]
        expect(found == due, f"of {names} the reports are {found}, not {due}")

    check()


def what_cannot_be_handed_out_is_refused_before_any_work(handed_out: HandedOut) -> None:
    """Two sub-tasks with one id, or one for nobody: a ``ValueError``, and no worker has started (M04)."""
    double = [*assignments("restless", "good"), Assignment("1", "good", "再来")]
    nobody = [*assignments("restless"), Assignment("2", "wizard", "变")]
    for wrong, why in ((double, "two share the id 1"), (nobody, "there is no wizard")):
        crew, journal = Crew(), Journal()
        try:
            found = crew.drive(handed_out(wrong, crew.team, {}), journal)
        except ValueError:
            started = len(journal.outcomes) + crew.looked
            expect(not started, f"{why}, and it was refused after {started} effects")
        except Exception as error:
            raise BrokenPromise(f"{why}, and it raised {type(error).__name__}: {error}") from error
        else:
            raise BrokenPromise(f"{why}, and it was handed out: {statuses(found)}")


# --- With threads -----------------------------------------------------------------------------


def one_call(name: str) -> Callable[[Any], Any]:
    """A hook that makes one call of a tool and answers with what came of it."""

    def reason(context: Any) -> Any:
        if context.turns:
            seen = context.turns[-1].observations[-1]
            return Finish(seen.text if seen.ok else f"FAILED: {seen.text}")
        return Act((ToolCall(name, {}),))

    return reason


def staff(*tools: str) -> Team:
    limits = Limits(seconds=5, call_seconds=5)
    return Team({name: Worker(AgentLoop(one_call(name), limits=limits), name) for name in tools})


def they_work_side_by_side(handed_out: HandedOut) -> None:
    """Three workers that wait for each other all get done."""
    met = threading.Barrier(3)

    def meet() -> str:
        met.wait(1)
        return "met"

    tools: dict[str, Callable[..., Any]] = {name: meet for name in ("one", "two", "three")}
    found = drive(handed_out(assignments(*tools), staff(*tools), {}), World(None, Toolbox(tools)))
    met.abort()
    told = [report.text for report in found]
    expect(told == ["met"] * 3, f"three that wait for each other came to {told}")


def a_hang_holds_up_nobody(handed_out: HandedOut) -> None:
    """A call that never returns is left behind within its worker's limits; the others have their answers."""
    never = threading.Event()
    tools: dict[str, Callable[..., Any]] = {"quick": lambda: "quick", "stuck": never.wait}
    brief = Limits(seconds=0.1, call_seconds=0.1)
    team = Team(
        {
            "quick": Worker(AgentLoop(one_call("quick")), "answers"),
            "stuck": Worker(AgentLoop(one_call("stuck"), limits=brief), "hangs"),
        }
    )
    found = drive(handed_out(assignments("quick", "stuck", "quick"), team, {}), World(None, Toolbox(tools)))
    never.set()
    due = ["OK", "TIMEOUT", "OK"]
    expect(statuses(found) == due, f"the second hangs, and the reports are {statuses(found)}, not {due}")


def a_person_stops_all_of_them(handed_out: HandedOut) -> None:
    """An interrupt ends every worker, also one that hangs, and nobody begins anything more (M04)."""
    interrupt, never, begun = Interrupt(), threading.Event(), []

    def stop() -> bool:
        begun.append("stop")
        interrupt.set()
        return never.wait()

    def again() -> bool:
        begun.append("again")
        return never.wait()

    team = staff("stuck", "stop", "again")
    tools = Toolbox({"stuck": never.wait, "stop": stop, "again": again})
    work = handed_out(assignments("stuck", "stop", "again"), team, {})
    found = drive(work, World(None, tools), interrupt=interrupt)
    never.set()
    told = statuses(found)
    expect(told == ["STOPPED"] * 3, f"a person stopped the run, and the reports are {told}")
    expect(begun.count("again") <= 1, f"after the stop there was still begun: {begun}")


def what_is_known_reaches_each_worker(handed_out: HandedOut) -> None:
    """Every worker has what is known in its working memory, and its own sub-task as its task."""
    shown = []

    def reason(context: Any) -> Finish:
        shown.append((context.task, context.working_memory.get("the whole task")))
        return Finish("好了")

    crew, team = Crew(), Team({"one": Worker(AgentLoop(reason), ""), "two": Worker(AgentLoop(reason), "")})
    crew.drive(handed_out(assignments("one", "two", "one"), team, {"the whole task": "订票"}))
    due = [(f"任务{number}", "订票") for number in (1, 2, 3)]
    expect(sorted(shown) == due, f"the workers were shown {shown}")


def it_does_the_same_again(handed_out: HandedOut) -> None:
    """On a journal the same reports come without the world, from wherever the run broke off."""
    crew, journal = Crew(), Journal()
    first = crew.drive(handed_out(assignments(*FIVE), crew.team, {}), journal)
    for count in range(len(journal.outcomes) + 1):
        again = Crew()
        work = handed_out(assignments(*FIVE), again.team, {})
        try:
            found = again.drive(work, journal.rewound(count))
        except ProgramChanged as changed:
            raise BrokenPromise(
                f"broken off after {count} effects, it is another program: {changed}"
            ) from changed
        due, had = [str(each[:3]) for each in first], [str(each[:3]) for each in found]
        story = f"broken off after {count} effects, the reports are {had}, not {due}"
        expect(had == due, story)


PROMISES: dict[str, Callable[[HandedOut], None]] = {
    promise.__name__: promise
    for promise in (
        five_reports_in_the_order_of_the_sub_tasks,
        what_cannot_be_handed_out_is_refused_before_any_work,
        they_work_side_by_side,
        a_hang_holds_up_nobody,
        a_person_stops_all_of_them,
        what_is_known_reaches_each_worker,
        it_does_the_same_again,
        whatever_workers_do_there_is_a_report_for_each,
    )
}
