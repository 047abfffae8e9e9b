"""Chapter 11: ReAct. The articles' three rounds, and what article A's listing gets wrong."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    QUESTION_ANSWERING,
    Act,
    AgentLoop,
    AgentState,
    Control,
    EventKind,
    Finish,
    Kind,
    Limits,
    Result,
    Step,
    StopReason,
    Toolbox,
    World,
    drive,
    row_taken,
)
from chapters.ch11_react import (
    ANSWER,
    NATIVE_REPLIES,
    REPLIES,
    TASK,
    answer_first,
    forgetful_model,
    steps,
)
from fake_llm import FakeModel, ScriptedModel, broken_tool, get_attraction, get_weather, stubborn_model
from paradigms.function_calling import function_calling
from paradigms.react import react
from paradigms.text_protocol import contract, parse
from tests.check_parser import PROMISES

TOOLS = Toolbox([get_weather, get_attraction])
ASK = 'Thought: 查天气。\nAction: get_weather(city="北京")'
FINISH = "Thought: 够了。\nAction: Finish[晴]"
NEITHER = "Thought: 我再想想。"


def run(
    model: FakeModel, limits: Limits = QUESTION_ANSWERING, tools: Toolbox = TOOLS
) -> tuple[Result, list[Step]]:
    """Run a ReAct loop, and return its result and every step it took."""
    taken: list[Step] = []
    loop = AgentLoop(react(tools), limits=limits, watch=taken.append)
    return drive(loop.run(TASK), World(model, tools, inline=True)), taken


def way(taken: list[Step]) -> list[int]:
    """The rows of the table that a run took."""
    return [row.row for step in taken if (row := row_taken(step.before, step.after))]


# --- The three rounds -------------------------------------------------------------------------


def test_EA61_EB17_B58_the_articles_three_rounds_end_to_end() -> None:
    result, taken = run(ScriptedModel(REPLIES))
    assert steps(result) == [
        ("get_weather(city='北京')", "北京当前天气：Sunny，气温 26 摄氏度"),
        ("get_attraction(city='北京', weather='Sunny')", "颐和园（湖景 + 古建筑）、长城"),
    ]
    assert (result.answer, result.stop, result.control.rounds) == (ANSWER, StopReason.FINAL_ANSWER, 3)
    assert way(taken) == [1, 2, 3, 5, 6, 3, 5, 6, 4]


def test_native_calls_give_the_same_turns() -> None:
    loop = AgentLoop(function_calling(TOOLS))
    native = drive(loop.run(TASK), World(ScriptedModel(NATIVE_REPLIES), TOOLS, inline=True))
    lived, _ = run(ScriptedModel(REPLIES))
    assert steps(native) == steps(lived) and native.answer == lived.answer
    assert native.control[:6] == lived.control[:6], "the same rounds, calls and effects"


def test_A73_each_observation_is_in_the_very_next_prompt() -> None:
    model = ScriptedModel(REPLIES)
    run(model)
    assert [request.messages[-1].content for request in model.requests] == [
        TASK,
        "Observation: 北京当前天气：Sunny，气温 26 摄氏度",
        "Observation: 颐和园（湖景 + 古建筑）、长城",
    ]


# --- The listing of article A, erratum by erratum ---------------------------------------------


def test_EA20_an_answer_an_action_and_neither_each_have_a_way() -> None:
    for replies, rows in (
        ([FINISH], [1, 2, 4]),
        ([ASK, FINISH], [1, 2, 3, 5, 6, 4]),
        ([NEITHER, FINISH], [1, 2, 3, 5, 6, 4]),
    ):
        result, taken = run(ScriptedModel(replies))
        assert (result.answer, way(taken)) == ("晴", rows)


def test_EA21_the_last_thought_is_kept_and_the_answer_taken_from_it() -> None:
    result, _ = run(ScriptedModel([ASK, FINISH]))
    assert result.turns[-1].thought == FINISH
    assert result.answer == "晴"


@given(st.lists(st.sampled_from([ASK, NEITHER, "", 'Action: get_wether(city="北京")']), max_size=4))
def test_EA22_reasoning_is_entered_once_a_round_and_from_nowhere_else(replies: list[str]) -> None:
    result, taken = run(ScriptedModel([*replies, FINISH]))
    entered = [
        step.before.state
        for step in taken
        if step.after.state is AgentState.REASONING and step.before.state is not AgentState.REASONING
    ]
    assert entered == [AgentState.PERCEIVING] + [AgentState.WAITING_FOR_OBSERVATION] * len(replies)
    assert len(entered) == result.control.rounds == len(result.turns)


def test_EA23_without_an_action_the_next_round_follows_and_is_told_why() -> None:
    model = ScriptedModel([NEITHER, ASK, FINISH])
    result, _ = run(model)
    assert result.turns[0].observations[0].kind is Kind.MALFORMED
    assert "Observation: 未能解析到 Action 字段" in model.prompts[1]
    assert (result.answer, result.control.tool_calls) == ("晴", 1)


def test_EA24_a_second_run_starts_fresh() -> None:
    loop = AgentLoop(react(TOOLS), limits=Limits(rounds=2))
    model = ScriptedModel([ASK, FINISH, ASK, FINISH])
    world = World(model, TOOLS, inline=True)
    first, second = drive(loop.run(TASK), world), drive(loop.run(TASK), world)
    assert first.answer == second.answer == "晴", "the first run has used up nothing of the second"
    assert model.prompts[2] == model.prompts[0]


def test_EA24_a_state_changes_only_by_a_row_of_the_table() -> None:
    _, taken = run(ScriptedModel(REPLIES))
    control = Control()
    for step in taken:
        assert step.before == control, "nobody has touched it in between"
        moved = step.before.state is not step.after.state
        assert (row_taken(step.before, step.after) is not None) == moved
        control = step.after


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_EA25_at_the_limit_a_run_is_terminated_with_its_reason_and_a_summary(rounds: int) -> None:
    model = stubborn_model(ASK)
    result, taken = run(model, Limits(rounds=rounds))
    assert len(model.requests) == rounds
    assert (result.answer, result.stop) == (None, StopReason.MAX_ITERATIONS)
    assert taken[-1].after.state is AgentState.TERMINATED
    assert "北京当前天气：Sunny" in result.summary and "Thought" not in result.summary


def test_EA30_an_invented_observation_is_neither_believed_nor_kept() -> None:
    assert isinstance(answer_first(REPLIES[0], TOOLS), Finish), "believed, the model dreams"
    model = ScriptedModel(REPLIES)
    result, _ = run(model)
    assert result.control.tool_calls == 2
    assert not any("Snowy" in prompt or "下雪" in prompt for prompt in model.prompts)
    assert "Snowy" not in str(result.turns)


@given(st.text(max_size=60), st.sampled_from(["Observation: ", "观察：", "**Observation:** "]))
def test_EA30_whatever_is_invented_after_an_action_changes_nothing(invented: str, label: str) -> None:
    honest = parse(ASK, TOOLS)
    assert parse(f"{ASK}\n{label}{invented}\n{FINISH}", TOOLS) == honest


def test_EA30_a_provider_is_asked_to_stop_there_too() -> None:
    model = ScriptedModel(REPLIES)
    run(model)
    assert all(request.stop == ("\nObservation:",) for request in model.requests)


def test_EA31_EA18_the_prompt_names_its_tools_and_its_examples_are_grounded_and_readable() -> None:
    prompt = contract(TOOLS)
    assert all(name in prompt for name in TOOLS.names)
    examples = re.findall(r"(?m)^Thought: .*\nAction: .*$", prompt)
    first, last = (parse(example, TOOLS) for example in examples)
    assert isinstance(first, Act) and first.calls[0].problem is None and first.calls[0].name == "get_weather"
    assert isinstance(last, Finish) and "Args" not in last.answer
    assert "Observation: " not in prompt, "no example shows a weather that nobody looked up"


def test_EA32_EA10_a_failing_tool_is_an_observation_and_the_run_goes_on() -> None:
    broken = Toolbox([broken_tool(get_weather, ConnectionError("503"))])
    result, _ = run(ScriptedModel([ASK, "Action: Finish[查不到天气]"]), tools=broken)
    seen = result.turns[0].observations[0]
    assert (seen.ok, seen.kind) == (False, Kind.UNCERTAIN) and "ConnectionError: 503" in seen.text
    assert result.answer == "查不到天气"


# --- What it cannot do ------------------------------------------------------------------------


def test_A80_nothing_of_one_run_is_known_in_the_next() -> None:
    model = forgetful_model()
    first, second = run(model)[0], run(model)[0]
    assert [turn.observations for turn in first.turns] == [turn.observations for turn in second.turns]
    assert not first.turns[0].observations[0].ok, "and so the same mistake is made again"
    assert model.prompts[3] == model.prompts[0]


# --- Planted fault ----------------------------------------------------------------------------


def test_the_promises_reject_a_parser_that_looks_for_the_answer_first() -> None:
    with pytest.raises(AssertionError):
        PROMISES["the_cases_come_out_right"](answer_first)


def test_the_dream_ends_in_its_first_round() -> None:
    """What the chapter shows first: one event says that it is over, and no tool was asked."""
    taken: list[Step] = []
    loop = AgentLoop(lambda context: answer_first(REPLIES[0], TOOLS), watch=taken.append)
    result = drive(loop.run(TASK), World(inline=True))
    assert [step.event.kind for step in taken] == [
        EventKind.TASK_ARRIVED,
        EventKind.PERCEIVED,
        EventKind.ANSWER_GIVEN,
    ]
    assert "下雪" in result.answer and result.control.tool_calls == 0
