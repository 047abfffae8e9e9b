"""Chapter 34: an orchestrator with ledgers, and workers whose failures are reports."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    AgentLoop,
    CallModel,
    Do,
    Interrupt,
    Journal,
    Limits,
    Program,
    StopReason,
    Toolbox,
    World,
    bounded,
    drive,
)
from chapters.ch07_drivers import drive_async, drive_on_bus
from chapters.ch34_orchestrator_and_workers import (
    FIVE,
    HOPEFUL,
    LEDGERS,
    TASK,
    Office,
    closed,
    one_after_another,
)
from fake_llm import FakeClock, FakeModel
from paradigms.orchestrator import (
    Assignment,
    Ledger,
    Orchestrator,
    Status,
    Team,
    Teamwork,
    Unfinished,
    UnreadableLedger,
    Worker,
    handed_out,
    read_ledger,
)
from paradigms.planning import model_planner
from tests import check_handed_out, check_orchestrator, check_team
from tests.check_machine import BrokenPromise
from tests.office_worlds import (
    DONE,
    DOUBLE,
    UNREADABLE,
    Crew,
    Script,
    answers,
    assignments,
    crew,
    ledger,
    part_of,
    play,
    statuses,
)
from tests.plan_worlds import THOUGHTS, TOOLS


@pytest.mark.parametrize("name", check_team.PROMISES)
def test_our_team_keeps(name: str) -> None:
    check_team.PROMISES[name](Team)


@pytest.mark.parametrize("name", check_handed_out.PROMISES)
def test_handing_out_keeps(name: str) -> None:
    check_handed_out.PROMISES[name](handed_out)


@pytest.mark.parametrize("name", check_orchestrator.PROMISES)
def test_our_orchestrator_keeps(name: str) -> None:
    check_orchestrator.PROMISES[name](Orchestrator)


def test_a_first_attempt_breaks_the_promises() -> None:
    with pytest.raises(BrokenPromise, match="brought no reports, but LoopError"):
        check_handed_out.five_reports_in_the_order_of_the_sub_tasks(one_after_another)


# --- The cases --------------------------------------------------------------------------------


@pytest.mark.parametrize("written", check_team.WRITTEN)
def test_M03_each_writing_reaches_the_same_worker(written: Any) -> None:
    assert check_team.team(Team).find(written) == "Senior Researcher"


def test_M03_an_unknown_worker_is_answered_with_exactly_the_names_and_the_orchestrator_continues() -> None:
    played = play(
        Orchestrator(crew(), model_planner(TOOLS)).run(TASK),
        Script((ledger("'Wizard'"), ledger("'Scout '"), DONE)),
    )
    told = played.asked("direct")[1].messages[-1].content
    assert "There is no worker \"'Wizard'\": the workers are 'Scout', 'Clerk'." in told
    assert played.value.answer == "好了"
    assert [each.assignment.worker for work in played.value.rounds for each in work.reports] == ["Scout"]


def test_M04_five_records_in_order_three_ok_one_error_one_timeout() -> None:
    crew = Crew()
    reports = crew.drive(handed_out(assignments("good", "buggy", "hanging", "good", "good"), crew.team, {}))
    assert statuses(reports) == ["OK", "ERROR", "TIMEOUT", "OK", "OK"]
    assert [report.assignment.id for report in reports] == ["1", "2", "3", "4", "5"]


def test_M04_two_that_share_an_id_are_refused_before_any_work() -> None:
    crew = Crew()
    with pytest.raises(ValueError, match="Several sub-tasks have the id '1'"):
        crew.drive(handed_out([*assignments("restless"), Assignment("1", "good", "再来")], crew.team, {}))
    assert crew.looked == 0


def test_M04_stopping_the_parent_stops_all_of_them_in_threads_too() -> None:
    interrupt, never = Interrupt(), threading.Event()

    def look(place: str) -> str:
        interrupt.set()
        never.wait()
        return place

    script = Script((LEDGERS[0].replace("weather desk", "Scout").replace("Weather Desk", "Clerk"),))
    model = FakeModel(lambda request: _line(request, script))
    world = World(model, Toolbox([look]))
    work = drive(Orchestrator(crew(), model_planner(TOOLS)).run(TASK), world, interrupt=interrupt)
    never.set()
    assert work.stop is StopReason.HUMAN and work.answer is None
    assert statuses(work.rounds[0].reports) == ["STOPPED"] * 3


def _line(request: Any, script: Script) -> Any:
    return {"plan": "1. 看天气", "direct": script.ledgers[0], "work": THOUGHTS[2]}[part_of(request)]


@pytest.mark.parametrize("wrong", UNREADABLE)
def test_M06_what_is_wrong_with_a_ledger_is_a_problem_with_words(wrong: str) -> None:
    with pytest.raises(UnreadableLedger) as caught:
        read_ledger(wrong, crew())
    assert str(caught.value).endswith(".") and len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("text", "due"),
    [
        (DONE, Ledger(True, True, answer="好了")),
        (f"```json {DONE} ```", Ledger(True, True, answer="好了")),
        (f"```json\n{DONE}\n```\nThat is all.", Ledger(True, True, answer="好了")),
        (f"<think>{{ledger}} or {DOUBLE}?</think>{DONE}", Ledger(True, True, answer="好了")),
        ("{'done': True, 'progress': False, 'answer': '好了',}", Ledger(True, False, answer="好了")),
        (ledger("['CLERK']"), Ledger(False, True, (Assignment("1", "Clerk", "看天气"),))),
        (ledger().replace('"1"', "1"), Ledger(False, True, (Assignment("1", "Scout", "看天气"),))),
    ],
)
def test_M06_a_ledger_is_read_in_a_fence_after_thinking_and_as_python(text: str, due: Ledger) -> None:
    assert read_ledger(text, crew()) == due


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["Scout"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["done", "progress", "next", "answer", "id", "worker", "task"]), inner
        )
    ),
    max_leaves=12,
)


@given(_json.map(lambda value: json.dumps(value)) | st.text("{}[]\"':,\\n truefalsnx<>/`") | st.text())
def test_M06_whatever_is_written_is_a_ledger_or_a_problem(text: str) -> None:
    try:
        found = read_ledger(text, crew())
    except UnreadableLedger:
        return
    assert found.answer.strip() if found.done else found.next
    assert all(each.worker in ("Scout", "Clerk") and each.task.strip() for each in found.next)


def test_M06_a_ledger_that_is_nested_too_deep_is_a_problem_too() -> None:
    for text in ("{" * 5000, '{"done":' * 5000, "[" * 5000):
        with pytest.raises(UnreadableLedger):
            read_ledger(text, crew())


def test_M06_never_any_progress_is_a_typed_result_after_a_bounded_number_of_replans() -> None:
    team = Orchestrator(crew(), model_planner(TOOLS), max_stalls=2, max_replans=1)
    played = play(team.run(TASK), Script((ledger(progress="false"),)))
    work = played.value
    assert (work.answer, work.stop, len(work.plans)) == (None, Unfinished.STALLED, 2)
    assert work.problem == "no progress in round 4"


# --- The chapter's story ----------------------------------------------------------------------


def test_the_five_of_the_demo() -> None:
    office = Office(LEDGERS.__getitem__)
    reports = office.drive(handed_out(FIVE, office.team, {}))
    assert statuses(reports) == ["OK", "ERROR", "OK", "TIMEOUT", "OK"]
    assert "60 of 20 seconds" in reports[3].text and "'years'" in reports[1].text


def test_the_whole_task_of_the_demo() -> None:
    office = Office(LEDGERS.__getitem__)
    work = office.drive(Orchestrator(office.team, model_planner(office.tools)).run(TASK))
    assert work.answer == "广州最暖和（30 摄氏度），推荐陈家祠。"
    assert [len(each.reports) for each in work.rounds] == [3, 1] and len(work.plans) == 1


def test_without_the_count_of_stalls_it_goes_on_until_the_calls_are_gone() -> None:
    office = Office(lambda asked: HOPEFUL, attractions=closed)
    team = Orchestrator(office.team, model_planner(office.tools), max_stalls=10**6)
    work = office.drive(team.run(TASK))
    assert work.stop is StopReason.MODEL_CALLS and len(office.model.requests) == team.limits.model_calls


def test_the_director_does_no_work_and_the_workers_never_see_the_ledgers() -> None:
    office = Office(LEDGERS.__getitem__)
    work = office.drive(Orchestrator(office.team, model_planner(office.tools)).run(TASK))
    assert work.answer
    for request in office.model.requests:
        shown = str(request.messages)
        assert ("You direct a team" in shown) + ("get_weather(city: str)" in shown) == 1


# --- Accounts, people, bad arguments ------------------------------------------------------------


def orchestrated(limits: Limits = Limits()) -> tuple[Office, Program[Teamwork]]:  # noqa: B008
    office = Office(LEDGERS.__getitem__)
    return office, Orchestrator(office.team, model_planner(office.tools), limits).run(TASK)


@pytest.mark.parametrize(
    ("limits", "stop"),
    [
        (Limits(model_calls=6), StopReason.MODEL_CALLS),
        (Limits(tool_calls=2), StopReason.TOOL_CALLS),
        (Limits(effects=12), StopReason.EFFECTS),
        (Limits(tokens=1900), StopReason.TOKEN_BUDGET),
    ],
    ids=lambda value: value.name if isinstance(value, StopReason) else "",
)
def test_all_pay_from_one_account(limits: Limits, stop: StopReason) -> None:
    office, program = orchestrated(limits)
    work = office.drive(program)
    assert (work.answer, work.stop) == (None, stop)
    assert len(work.plans) == 1 and Status.STOPPED in [each.status for each in work.rounds[0].reports]


def test_inside_a_program_whose_account_is_dry_it_says_so() -> None:
    office, program = orchestrated()

    def outer() -> Program[Any]:
        yield Do("the last effect", lambda: None)
        return (yield from program)

    work = office.drive(bounded(outer(), Limits(effects=1)))
    assert (work.answer, work.stop, work.rounds) == (None, StopReason.EFFECTS, ())


@pytest.mark.parametrize("task", ["", " \n", None, 7])
def test_what_is_no_task_is_not_planned_for(task: Any) -> None:
    work = drive(Orchestrator(crew(), model_planner()).run(task), World(inline=True))
    assert (work.answer, work.stop, work.plans) == (None, StopReason.INVALID_TASK, ())


@pytest.mark.parametrize(
    "wrong", [{"max_stalls": 0}, {"max_stalls": True}, {"max_replans": -1}, {"asks": 0}, {"asks": 1.0}]
)
def test_caps_are_whole_numbers(wrong: Any) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be a whole number of at least"):
        Orchestrator(crew(), model_planner(), **wrong)


def test_a_worker_may_do_several_things_at_once_since_a_loop_keeps_no_state() -> None:
    team = Team({"one": Worker(AgentLoop(answers), "all")})
    reports = drive(handed_out(assignments(*["one"] * 20), team, {}), World(inline=True))
    assert [report.text for report in reports] == [f"好了：任务{number}" for number in range(1, 21)]


# --- Every driver, and any break --------------------------------------------------------------


@pytest.mark.parametrize("driver", [drive_async, drive_on_bus], ids=["drive_async", "drive_on_bus"])
def test_every_driver_comes_to_the_same(driver: Callable[..., Any]) -> None:
    def world(office: Office) -> World:
        return World(office.model, office.tools, clock=office.clock.now, inline=True)

    office, program = orchestrated()
    due = drive(program, world(office))
    office, program = orchestrated()
    assert due.answer and asyncio.run(driver(program, world(office))) == due


def test_broken_off_anywhere_and_resumed_it_comes_to_the_same() -> None:
    def respond(request: CallModel) -> Any:
        shown = str(request.messages)
        directs = ledger("Clerk") if "nothing yet" in shown else DONE
        works = THOUGHTS[0] if "Observation:" in shown else THOUGHTS[2]
        return {"plan": "1. 看天气", "direct": directs, "work": works}[part_of(request)]

    team, journal = Orchestrator(crew(), model_planner(TOOLS)), Journal()
    due = drive(team.run(TASK), World(FakeModel(respond), TOOLS, inline=True), journal)
    assert due.answer == "好了" and len(journal.outcomes) >= 8
    for count in range(len(journal.outcomes) + 1):
        world = World(FakeModel(respond), TOOLS, clock=FakeClock().now, inline=True)
        again = drive(team.run(TASK), world, journal.rewound(count))
        assert (again.answer, again.plans) == (due.answer, due.plans)
        assert [each[:2] for each in again.rounds] == [each[:2] for each in due.rounds]
