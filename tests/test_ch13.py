"""Chapter 13: a plan first, then its steps; and nothing runs on a step that failed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from agentloop import (
    AgentLoop,
    Do,
    Interrupt,
    Journal,
    Limits,
    LoopError,
    Observation,
    Program,
    Result,
    StopReason,
    Toolbox,
    World,
    bounded,
    drive,
)
from chapters.ch07_drivers import drive_async, drive_on_bus
from chapters.ch13_plan_and_solve import (
    PLAN,
    TASK,
    TOOLS,
    clerk,
    only_numbers,
    solve,
    station_down,
)
from fake_llm import FakeClock, FakeModel, ScriptedModel, get_attraction, get_weather
from paradigms.evaluators import Judgement
from paradigms.plan import PlanStep, UnreadablePlan, read_plan
from paradigms.plan_and_solve import TRIGGER, PlanAndSolve, Solution, Status, zero_shot
from paradigms.planning import GaveUp, model_planner
from paradigms.react import react
from tests import check_plan, check_plan_and_solve
from tests.check_machine import BrokenPromise

PROMISES: dict[str, Any] = {
    "plan": check_plan.PROMISES,
    "plan_and_solve": check_plan_and_solve.PROMISES,
}


# --- The promises, ours and wrong ones --------------------------------------------------------


@pytest.mark.parametrize("name", check_plan.PROMISES)
def test_our_reader_keeps(name: str) -> None:
    check_plan.PROMISES[name](read_plan)


@pytest.mark.parametrize("name", check_plan_and_solve.PROMISES)
def test_plan_and_solve_keeps(name: str) -> None:
    check_plan_and_solve.PROMISES[name](PlanAndSolve)


def test_the_tutorials_reader_breaks_the_promises() -> None:
    with pytest.raises(BrokenPromise, match="is the steps"):
        check_plan.check_plan(only_numbers)


# --- Cases R01 and R02 ------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "goals"), check_plan.R01)
def test_R01(text: str, goals: tuple[str, ...]) -> None:
    for written in (text, text.replace("\n", "\\n")):
        if goals:
            assert tuple(step.goal for step in read_plan(written)) == goals
        else:
            with pytest.raises(UnreadablePlan):
                read_plan(written)


def test_R01_a_model_that_never_plans_is_asked_again_and_told_why_and_then_it_is_over() -> None:
    model = FakeModel(lambda request: "I will think about it.")
    loop = PlanAndSolve(AgentLoop(react(Toolbox([]))), model_planner(asks=3))
    solution = drive(loop.run("find, then sum"), World(model, inline=True))
    assert (solution.answer, solution.stop, solution.steps) == (None, GaveUp.NO_PLAN, ())
    assert len(model.requests) == 3
    assert "There are no steps in it." in model.prompts[1] and "I will think" in model.prompts[1]


def test_R01_a_planner_of_ones_own_that_returns_nothing_has_made_no_plan() -> None:
    loop = PlanAndSolve(AgentLoop(react(Toolbox([]))), lambda task, known: ())
    assert drive(loop.run("find"), World(inline=True)).stop is GaveUp.NO_PLAN


def test_a_planner_that_fails_outside_has_made_no_plan_either() -> None:
    def planner(task: str, known: Any) -> Program[Any]:
        return (yield Do("ask the head office", lambda: 1 / 0)).value

    solution = drive(PlanAndSolve(AgentLoop(react(Toolbox([]))), planner).run("find"), World(inline=True))
    assert solution.stop is GaveUp.NO_PLAN and "ZeroDivisionError" in solution.problem


def careful(goal: str, result: Result) -> Judgement:
    """Know what this search returns for a page that is not there, although the tool calls it a success."""
    texts = [observation.text for turn in result.turns for observation in turn.observations]
    return Judgement(0.0, "the page is not there") if "Error: 404" in texts else Judgement(1.0)


@pytest.mark.parametrize("called_a_success", [True, False])
def test_R02_read_and_mail_run_zero_times_and_name_the_failed_step(called_a_success: bool) -> None:
    sent: list[str] = []

    def search(topic: str) -> Observation:
        return Observation("Error: 404", ok=called_a_success)

    def mail(text: str) -> str:
        sent.append(text)
        return "sent"

    tools = Toolbox([search, mail])
    plan = "1. search for tea\n2. read what was found\n3. mail(summary)"
    model = ScriptedModel([plan, 'Action: search(topic="tea")', "Action: Finish[Tea is a plant.]"])
    evaluate = careful if called_a_success else None
    loop = PlanAndSolve(AgentLoop(react(tools)), model_planner(tools), evaluate, replans=0)
    solution = drive(loop.run("find out about tea, and mail me"), World(model, tools, inline=True))
    assert [(step.status, step.failed) for step in solution.steps] == [
        (Status.FAILED, None),
        (Status.SKIPPED, 1),
        (Status.SKIPPED, 1),
    ]
    assert sent == [] and model.remaining == ()
    assert (solution.answer, solution.stop) == (None, GaveUp.NOT_REACHED)


# --- The chapter's story ----------------------------------------------------------------------


def test_the_plain_loop_forgets_a_city_and_the_plan_does_not() -> None:
    tools = Toolbox(TOOLS)
    plain = drive(AgentLoop(react(tools)).run(TASK), World(FakeModel(clerk), tools, inline=True))
    assert plain.answer is not None and plain.answer.startswith("北京")
    planned, _ = solve(tools)
    assert planned.answer == "广州最暖和，推荐陈家祠"


def test_the_papers_prompt_is_one_request_with_its_sentence_and_no_tools() -> None:
    model = FakeModel(clerk)
    result = drive(AgentLoop(zero_shot).run(TASK), World(model, inline=True))
    assert [request.messages[0].content for request in model.requests] == [f"Q: {TASK}\nA: {TRIGGER}"]
    assert TRIGGER.startswith("Let's first understand the problem and devise a plan")
    assert result.control.tool_calls == 0 and "上海最暖和" in result.answer


def test_a_model_that_fails_at_the_papers_prompt_is_an_observation_like_any_other() -> None:
    model = ScriptedModel([ConnectionError("503"), "42"])
    assert drive(AgentLoop(zero_shot).run("6 x 7?"), World(model, inline=True)).answer == "42"


def test_A97_a_failed_step_is_planned_around() -> None:
    down = Toolbox({**TOOLS, "get_weather": station_down})
    solution, _ = solve(down)
    assert solution.answer is None and [step.failed for step in solution.steps] == [None, None, None, 3, 3]
    solution, model = solve(down, replans=1)
    assert solution.answer == "广州最暖和，推荐陈家祠"
    assert [step.status for step in solution.steps if step.plan == 2] == [Status.DONE] * 3


def test_A96_a_step_is_a_small_react_loop_that_meets_its_own_surprises() -> None:
    replies = [
        "1. 查天气",
        'Action: get_weather(city="Beijing")',
        'Action: get_weather(city="北京")',
        "Action: Finish[晴]",
    ]
    tools = Toolbox([get_weather, get_attraction])
    loop = PlanAndSolve(AgentLoop(react(tools)), model_planner(tools))
    solution = drive(loop.run("今天北京天气怎么样？"), World(ScriptedModel(replies), tools, inline=True))
    result = solution.steps[0].result
    assert solution.answer == "晴" and result is not None
    assert [seen.ok for turn in result.turns for seen in turn.observations] == [False, True]


def test_a_step_is_shown_the_whole_task_what_was_done_and_what_its_loop_perceives_itself() -> None:
    tools, model = Toolbox(TOOLS), FakeModel(clerk)
    executor = AgentLoop(react(tools), perceive=lambda goal: {"season": f"秋天，{goal}"})
    solution = drive(PlanAndSolve(executor, model_planner(tools)).run(TASK), World(model, tools, inline=True))
    last = model.prompts[-1]
    assert solution.answer == "广州最暖和，推荐陈家祠"
    for due in (
        f"the whole task: {TASK}",
        "1.3 查广州今天的天气 [done] 广州当前天气",
        "season: 秋天，给最暖和",
    ):
        assert due in last


def test_a_step_that_its_own_perception_refuses_has_failed() -> None:
    tools = Toolbox(TOOLS)
    executor = AgentLoop(react(tools), perceive=lambda goal: StopReason.INVALID_TASK)
    solution = drive(PlanAndSolve(executor, model_planner(tools), replans=0).run(TASK), world())
    assert solution.stop is GaveUp.NOT_REACHED and "INVALID_TASK" in solution.steps[0].problem


def test_a_judge_whose_own_allowance_ends_does_not_know_and_the_run_goes_on() -> None:
    def evaluate(goal: str, result: Result) -> Program[Any]:
        def asking() -> Program[Any]:
            yield Do("look", lambda: None)
            yield Do("look again", lambda: None)

        return bounded(asking(), Limits(effects=1))

    solution = drive(planned(evaluate=evaluate, replans=0).run(TASK), world())
    assert solution.stop is GaveUp.NOT_REACHED
    assert [step.status for step in solution.steps[:3]] == [Status.FAILED] * 3
    assert solution.steps[0].problem.startswith("whether it was reached is not known")


def test_a_sensor_that_fails_is_news_too_and_only_once() -> None:
    def broken() -> str:
        raise OSError("no sensor")

    solution, _ = solve(Toolbox(TOOLS), replans=2, changed=broken)
    assert solution.answer is not None
    assert {step.plan for step in solution.steps} == {1, 2}


# --- Accounts, people, bugs -------------------------------------------------------------------


def planned(limits: Limits = Limits(), **options: Any) -> PlanAndSolve:  # noqa: B008
    tools = Toolbox(TOOLS)
    return PlanAndSolve(AgentLoop(react(tools)), model_planner(tools), limits=limits, **options)


def world() -> World:
    return World(FakeModel(clerk), Toolbox(TOOLS), clock=FakeClock().now, inline=True)


@pytest.mark.parametrize(
    ("limits", "stop"),
    [
        (Limits(model_calls=4), StopReason.MODEL_CALLS),
        (Limits(tool_calls=2), StopReason.TOOL_CALLS),
        (Limits(effects=9), StopReason.EFFECTS),
        (Limits(tokens=2000), StopReason.TOKEN_BUDGET),
    ],
    ids=lambda value: value.name if isinstance(value, StopReason) else "",
)
def test_planner_and_steps_pay_from_one_account(limits: Limits, stop: StopReason) -> None:
    solution = drive(planned(limits).run(TASK), world())
    assert (solution.answer, solution.stop) == (None, stop)
    assert len(solution.steps) == 5 and solution.steps[0].status is Status.DONE


def test_inside_a_program_whose_account_is_dry_it_says_so() -> None:
    def outer() -> Program[Any]:
        yield Do("the last effect", lambda: None)
        return (yield from planned().run(TASK))

    solution = drive(bounded(outer(), Limits(effects=1)), world())
    assert (solution.answer, solution.stop, solution.steps) == (None, StopReason.EFFECTS, ())


def test_a_person_stops_all_of_it() -> None:
    interrupt, asked = Interrupt(), FakeModel(clerk)

    def model(request: Any) -> Any:
        if len(asked.requests) == 3:
            interrupt.set()
        return asked(request)

    solution = drive(planned().run(TASK), World(model, Toolbox(TOOLS), inline=True), interrupt=interrupt)
    assert solution.stop is StopReason.HUMAN and len(asked.requests) == 4
    interrupt.set()
    assert drive(planned().run(TASK), world(), interrupt=interrupt).stop is StopReason.HUMAN


def test_a_persons_stop_inside_a_step_is_no_reason_to_plan_again() -> None:
    tools = Toolbox(TOOLS)
    executor = AgentLoop(react(tools), stops=(lambda control, context: StopReason.HUMAN,))
    loop = PlanAndSolve(executor, model_planner(tools), replans=2)
    solution = drive(loop.run(TASK), world())
    assert solution.stop is StopReason.HUMAN and {step.plan for step in solution.steps} == {1}


def test_a_bug_in_a_hook_reaches_the_caller() -> None:
    broken = PlanAndSolve(AgentLoop(lambda context: 1 / 0), model_planner())  # type: ignore[arg-type, return-value]
    with pytest.raises(LoopError):
        drive(broken.run(TASK), world())
    with pytest.raises(TypeError, match="must return a Judgement"):
        drive(planned(evaluate=lambda goal, result: True).run(TASK), world())


@pytest.mark.parametrize("task", ["", " \n", None, 7])
def test_what_is_no_task_is_not_planned_for(task: Any) -> None:
    assert drive(planned().run(task), World(inline=True)) == Solution(
        None, StopReason.INVALID_TASK, "a task is a text that says something", ()
    )


@pytest.mark.parametrize("wrong", [-1, 1.0, True, None])
def test_caps_are_whole_numbers(wrong: Any) -> None:
    with pytest.raises(ValueError, match="replans must be a whole number of at least 0"):
        planned(replans=wrong)
    with pytest.raises(ValueError, match="asks must be a whole number of at least 1"):
        model_planner(asks=wrong if wrong is not True else 0)


# --- Every driver, and any break --------------------------------------------------------------


@pytest.mark.parametrize("driver", [drive_async, drive_on_bus], ids=["drive_async", "drive_on_bus"])
def test_every_driver_comes_to_the_same(driver: Callable[..., Any]) -> None:
    due = drive(planned(Limits()).run(TASK), world())
    assert due.answer and asyncio.run(driver(planned(Limits()).run(TASK), world())) == due


def test_broken_off_anywhere_and_resumed_it_comes_to_the_same() -> None:
    journal = Journal()
    due = drive(planned().run(TASK), world(), journal)
    for count in range(len(journal.outcomes) + 1):
        assert drive(planned().run(TASK), world(), journal.rewound(count)) == due


def test_the_plan_of_the_demo_says_what_each_step_needs() -> None:
    assert [step.needs for step in read_plan(PLAN)] == [(), (), (), (1, 2, 3), (4,)]
    assert read_plan(PLAN)[0] == PlanStep(1, "查北京今天的天气")
