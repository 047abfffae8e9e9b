"""Chapter 10: a stack of goals, what came out otherwise, what is kept, and a window that is too small."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    AgentLoop,
    Do,
    Interrupt,
    Journal,
    Limits,
    LoopContext,
    LoopError,
    Observation,
    Program,
    StopReason,
    Toolbox,
    ToolCall,
    Turn,
    World,
    bounded,
    drive,
)
from chapters.ch07_drivers import drive_async, drive_on_bus
from chapters.ch10_outer_loop import TASK, WINDOW, Monday, reader, traveller
from fake_llm import FakeClock, FakeModel
from paradigms.evaluators import Judgement
from paradigms.outer_loop import LongTermMemory, OuterLoop, Pursuit, compressed
from paradigms.planning import model_planner
from paradigms.prompt import Prompt, whole_history
from paradigms.react import react
from paradigms.text_protocol import render
from tests.check_outer_loop import PROMISES, told
from tests.check_view import check_view

# --- The promises, ours and wrong ones --------------------------------------------------------


@pytest.mark.parametrize("name", PROMISES)
def test_the_outer_loop_keeps(name: str) -> None:
    PROMISES[name](OuterLoop)


# --- The chapter's story ----------------------------------------------------------------------


def test_the_inner_loop_alone_says_that_it_is_done_and_has_no_ticket() -> None:
    day = Monday()
    assert drive(day.inner.run(TASK), day.world).stop is StopReason.FINAL_ANSWER
    assert day.office.tickets == []


def test_A64_A65_the_goal_is_held_against_the_world_and_planned_for_anew() -> None:
    day = Monday()
    pursuit = day.pursue(None)
    assert told(pursuit) == "1- 2+ 2+ 1+"
    assert pursuit.attempts[0].deviation == "没有出票：故宫博物院星期一闭馆"
    assert (day.office.tickets, pursuit.answer) == (["颐和园"], "今天去颐和园，门票已订好。")


def test_A66_EA16_what_was_learned_is_in_the_prompt_of_the_next_run() -> None:
    memory = LongTermMemory()
    first = Monday().pursue(memory)
    day = Monday()
    second = day.pursue(memory)
    assert (told(first), told(second)) == ("1- 2+ 2+ 1+", "1+")
    assert "故宫博物院星期一闭馆" in day.model.prompts[0] and day.office.tickets == ["颐和园"]
    assert told(Monday().pursue(None)) == told(first), "without it, the same again"


def test_A68_what_the_first_sub_goal_found_is_shown_to_the_second() -> None:
    day = Monday()
    day.pursue(None)
    prompt = next(text for text in day.model.prompts if "user: 在开放的景点里选一个" in text)
    assert f"goals (目标栈): {TASK} > 在开放的景点里选一个，订好门票" in prompt
    assert "查今天开放的景点: 今天开放：颐和园、长城" in prompt


# --- Long-term memory -------------------------------------------------------------------------


def test_a_memory_is_bounded_and_holds_nothing_twice() -> None:
    memory = LongTermMemory(capacity=2)
    for lesson in ("a", "b", "a", "c"):
        memory.keep(TASK, lesson)
    assert [lesson for _, lesson in memory.lessons] == ["a", "c"]
    assert memory.recall(TASK) == ["c", "a"]


def test_a_memory_is_scoped_to_its_task() -> None:
    memory = LongTermMemory()
    memory.keep("订一张北京的门票", "故宫星期一闭馆")
    memory.keep("给函数写单元测试", "先写断言")
    assert memory.recall("订两张北京的门票") == ["故宫星期一闭馆"]
    assert memory.recall("写一首诗") == []


@given(st.lists(st.tuples(st.text(max_size=6), st.text(max_size=3)), max_size=20), st.text(max_size=6))
def test_any_text_can_be_kept_and_recalled(pairs: list[tuple[str, str]], task: str) -> None:
    memory = LongTermMemory(capacity=5, most=2)
    for taught_by, lesson in pairs:
        memory.keep(taught_by, lesson)
    assert len(memory.lessons) <= 5 and len(memory.recall(task)) <= 2


# --- Compression ------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [200, 500, 5_000, 10**6])
def test_A67_the_compressed_view_keeps_the_promises_of_all_views(window: int) -> None:
    check_view(compressed(window))


def prompt_of(lengths: list[int]) -> Prompt:
    """A prompt whose history has turns with observations of these lengths, in characters."""
    context = LoopContext(TASK)
    for number, length in enumerate(lengths, 1):
        call = ToolCall("look", {"number": number})
        context.turns.append(Turn(f"Thought {number}", (call,), (Observation("晴" * length),)))
    prompt = Prompt(context, "system")
    prompt.refresh(render)
    return prompt


@given(st.lists(st.integers(0, 300), max_size=12), st.integers(100, 1500))
def test_A67_what_is_shown_fits_the_window_and_the_latest_is_among_it(
    lengths: list[int], window: int
) -> None:
    prompt = prompt_of(lengths)
    with pytest.raises(StopIteration) as chosen:  # it asks nobody
        next(compressed(window)(prompt))  # type: ignore[arg-type]
    shown = list(chosen.value.value)
    if prompt.taken + sum(each.tokens for each in prompt.turns) <= window:
        assert shown == prompt.turns, "nothing is lost while there is room"
    else:
        assert f"Thought {len(lengths)}" in shown[-1].messages[0].content
        assert prompt.taken + sum(each.tokens for each in shown) <= window


def test_A67_a_window_that_the_history_outgrows_is_the_end_of_a_run_and_compressed_it_is_not() -> None:
    guide = Toolbox([Monday().office.read_guide])
    for view, answer in ((whole_history, None), (compressed(700), "看了4个景点的介绍。")):
        model = FakeModel(reader)
        loop = AgentLoop(react(guide, view), limits=Limits(failures=1))
        result = drive(loop.run("读完四个景点的介绍"), World(model, guide, inline=True))
        assert result.answer == answer
        assert (max(request.tokens for request in model.requests) <= WINDOW) == (answer is not None)
        assert len(result.turns) == 5, "history itself is never shortened"


# --- Accounts, people, bugs -------------------------------------------------------------------


def pursuing(office: Any, **options: Any) -> OuterLoop:
    tools = Toolbox([office.book_ticket, office.list_open])
    return OuterLoop(AgentLoop(react(tools)), model_planner(tools), office.judge, **options)


def test_goals_plans_and_lessons_pay_from_one_account() -> None:
    for limits, stop in (
        (Limits(model_calls=3), StopReason.MODEL_CALLS),
        (Limits(tool_calls=1), StopReason.TOOL_CALLS),
        (Limits(effects=8), StopReason.EFFECTS),
    ):
        day = Monday()
        pursuit = drive(pursuing(day.office, limits=limits).run(TASK), day.world)
        assert (pursuit.answer, pursuit.stop) == (None, stop)
        assert pursuit.attempts and pursuit.open[0].text == TASK


def test_inside_a_program_whose_account_is_dry_it_says_so() -> None:
    day = Monday()

    def outer() -> Program[Any]:
        yield Do("the last effect", lambda: None)
        return (yield from pursuing(day.office).run(TASK))

    pursuit = drive(bounded(outer(), Limits(effects=1)), day.world)
    assert (pursuit.answer, pursuit.stop, pursuit.attempts) == (None, StopReason.EFFECTS, ())


def test_a_person_stops_all_of_it() -> None:
    day, interrupt, asked = Monday(), Interrupt(), FakeModel(traveller)

    def model(request: Any) -> Any:
        if len(asked.requests) == 3:
            interrupt.set()
        return asked(request)

    world = World(model, day.tools, inline=True)
    pursuit = drive(pursuing(day.office).run(TASK), world, interrupt=interrupt)
    assert pursuit.stop is StopReason.HUMAN and len(asked.requests) == 4


def test_a_bug_in_a_hook_reaches_the_caller() -> None:
    day = Monday()
    broken = OuterLoop(AgentLoop(lambda context: 1 / 0), model_planner())  # type: ignore[arg-type, return-value]
    with pytest.raises(LoopError):
        drive(broken.run(TASK), day.world)
    unjudged = OuterLoop(day.inner, model_planner(), lambda goal, result: Judgement(7.0))
    with pytest.raises(TypeError, match="a score from 0 to 1"):
        drive(unjudged.run(TASK), day.world)


@pytest.mark.parametrize("task", ["", " \n", None, 7])
def test_what_is_no_task_is_not_pursued(task: Any) -> None:
    pursuit = drive(pursuing(Monday().office).run(task), World(inline=True))
    assert pursuit == Pursuit(None, StopReason.INVALID_TASK, "a task is a text that says something")


def test_caps_that_make_no_sense_are_refused() -> None:
    for wrong in ({"depth": 1}, {"replans": -1}, {"depth": 2.5}):
        with pytest.raises(ValueError, match="must be a whole number of at least"):
            pursuing(Monday().office, **wrong)
    with pytest.raises(ValueError, match="window must be a whole number of at least 1"):
        compressed(0)


# --- Every driver, and any break --------------------------------------------------------------


def monday_world(day: Monday) -> World:
    return World(FakeModel(traveller), day.tools, clock=FakeClock().now, inline=True)


@pytest.mark.parametrize("driver", [drive_async, drive_on_bus], ids=["drive_async", "drive_on_bus"])
def test_every_driver_comes_to_the_same(driver: Callable[..., Any]) -> None:
    day, other = Monday(), Monday()
    due = drive(pursuing(day.office, memory=LongTermMemory()).run(TASK), monday_world(day))
    program = pursuing(other.office, memory=LongTermMemory()).run(TASK)
    assert due.answer and asyncio.run(driver(program, monday_world(other))) == due


def test_broken_off_anywhere_and_resumed_it_comes_to_the_same() -> None:
    day, memory, journal = Monday(), LongTermMemory(), Journal()
    due = drive(pursuing(day.office, memory=memory).run(TASK), monday_world(day), journal)
    for count in range(len(journal.outcomes) + 1):
        again, remembering = Monday(), LongTermMemory()
        program = pursuing(again.office, memory=remembering).run(TASK)
        # What was done before the break was done in that world: this one begins where it stood.
        done = journal.rewound(count)
        sold = [outcome.value.text for _, asked, outcome in done.outcomes if "book_ticket" in asked]
        again.office.tickets += [text.removeprefix("已出票：") for text in sold if text.startswith("已出票")]
        assert drive(program, monday_world(again), done) == due
