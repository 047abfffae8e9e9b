"""The articles' errata and the public faults that concern the loop, each as a test named by its id."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import agentloop
from agentloop import (
    QUESTION_ANSWERING,
    TERMINATED,
    WAITING_FOR_OBSERVATION,
    Act,
    AgentLoop,
    AgentState,
    CallModel,
    EventKind,
    Finish,
    Interrupt,
    Kind,
    Limits,
    LoopContext,
    LoopError,
    Reply,
    Result,
    Step,
    StopReason,
    Toolbox,
    ToolCall,
    Usage,
    World,
    drive,
    row_taken,
)
from fake_llm import (
    FakeClock,
    ScriptedModel,
    babbling_model,
    broken_tool,
    calls,
    empty_model,
    get_attraction,
    get_weather,
    hanging_model,
    hanging_tool,
    stubborn_model,
)
from paradigms.function_calling import function_calling
from paradigms.react import react

TASK = "今天北京适合去哪里玩？"
TOOLS = Toolbox([get_weather, get_attraction])
WEATHER = 'Thought: 先查天气。\nAction: get_weather(city="北京")'
ATTRACTION = 'Thought: 晴天。\nAction: get_attraction(city="北京", weather="Sunny")'
ANSWER = "Thought: 信息够了。\nAction: Finish[颐和园]"
AMPLE = Limits(
    rounds=50, model_calls=50, tool_calls=50, effects=200, failures=50, tokens=10**6, cost=1e6, seconds=1e6
)


def run(model: Any, tools: Toolbox = TOOLS, limits: Limits = AMPLE, **hooks: Any) -> Result:
    """One run of a ReAct loop in an inline world."""
    loop = AgentLoop(react(tools), limits=limits, **hooks)
    return drive(loop.run(TASK), World(model=model, tools=tools, inline=True))


def states(steps: list[Step]) -> list[AgentState]:
    """The states that a run went through: where each row of the table led it."""
    moves = [step.after.state for step in steps if row_taken(step.before, step.after)]
    return [AgentState.IDLE, *moves]


# --- Article A, the state machine core --------------------------------------------------------


@pytest.mark.parametrize("reply", [ANSWER, "够了。\n[FINAL_ANSWER] 颐和园", "Final Answer: 颐和园"])
def test_EA01_the_final_answer_is_seen(reply: str) -> None:
    result = run(ScriptedModel([WEATHER, reply]))
    assert (result.stop, result.answer) == (StopReason.FINAL_ANSWER, "颐和园")


@pytest.mark.parametrize("rounds", range(1, 13))
def test_EA02_the_stop_at_the_limit_is_never_refused(rounds: int) -> None:
    result = run(stubborn_model(), limits=replace(AMPLE, rounds=rounds))
    assert (result.control.state, result.stop) == (TERMINATED, StopReason.MAX_ITERATIONS)


def test_EA03_ten_iterations_are_ten_rounds() -> None:
    model = stubborn_model()
    result = run(model, limits=QUESTION_ANSWERING)
    assert len(model.requests) == result.control.rounds == len(result.turns) == 10


@pytest.mark.parametrize("hook", ["reason", "act", "stops", "perceive", "accept"])
def test_EA04_an_error_ends_the_run_from_any_state_and_is_its_cause(hook: str) -> None:
    def raising(*_: Any) -> Any:
        raise OSError("the original error")

    def reason(context: LoopContext) -> Act | Finish:
        return Finish("好") if hook == "accept" else Act((ToolCall("get_weather", {"city": "北京"}),))

    hooks: dict[str, Any] = {"reason": reason, hook: (raising,) if hook == "stops" else raising}
    steps: list[Step] = []
    with pytest.raises(LoopError) as caught:
        drive(AgentLoop(**hooks, watch=steps.append).run(TASK), World(tools=TOOLS, inline=True))
    assert str(caught.value.__cause__) == "the original error"
    assert (steps[-1].after.state, steps[-1].after.stop) == (TERMINATED, StopReason.ERROR)


def test_EA05_EA24_a_second_run_starts_afresh_and_leaves_the_first_alone() -> None:
    model = ScriptedModel([WEATHER, ANSWER, ATTRACTION, WEATHER, ANSWER])
    loop = AgentLoop(react(TOOLS), limits=replace(AMPLE, rounds=3))
    world = World(model=model, tools=TOOLS, inline=True)
    first = drive(loop.run(TASK), world)
    kept = first.turns
    second = drive(loop.run("那上海呢？"), world)
    assert first.turns is kept and len(kept) == 2
    assert second.control.rounds == 3, "a second run is not starved by the first"
    assert TASK not in model.prompts[2] and "先查天气" not in model.prompts[2]


def test_EA05_a_run_can_be_begun_while_another_is_under_way() -> None:
    loop = AgentLoop(react(TOOLS))
    half_way = loop.run(TASK)
    next(half_way)
    result = drive(loop.run(TASK), World(model=ScriptedModel([ANSWER]), tools=TOOLS, inline=True))
    assert result.answer == "颐和园"
    half_way.close()


@pytest.mark.parametrize("at", range(5))
def test_EA07_a_person_can_stop_the_run_at_any_time_and_twice(at: int) -> None:
    interrupt = Interrupt()
    steps: list[Step] = []

    def watch(step: Step) -> None:
        steps.append(step)
        if len(steps) > at:
            interrupt.set()
            interrupt.set()

    loop = AgentLoop(react(TOOLS), watch=watch)
    result = drive(
        loop.run(TASK), World(model=stubborn_model(), tools=TOOLS, inline=True), interrupt=interrupt
    )
    assert (result.stop, result.control.state, result.answer) == (StopReason.HUMAN, TERMINATED, None)


def test_EA08_the_tool_runs_while_the_loop_waits_and_a_slow_one_is_left_behind() -> None:
    clock = FakeClock()
    tools = Toolbox([hanging_tool(get_weather, lambda: clock.advance(60))])
    steps: list[Step] = []
    loop = AgentLoop(react(tools), watch=steps.append)
    model = ScriptedModel([WEATHER, ANSWER])
    result = drive(loop.run(TASK), World(model=model, tools=tools, clock=clock.now, inline=True))
    asked = next(step for step in steps if step.event.kind is EventKind.TOOL_CALL)
    assert asked.before.state is WAITING_FOR_OBSERVATION
    assert result.turns[0].observations[0].kind is Kind.TIMEOUT
    assert result.answer == "颐和园", "the loop goes on"


def test_EA09_a_reply_without_an_action_costs_one_round_and_is_told_the_format() -> None:
    model = ScriptedModel(["我想想。", ANSWER])
    result = run(model)
    assert result.control.rounds == 2
    assert result.control.tool_calls == 0
    assert "Action: tool_name(parameter=" in model.prompts[1]


def test_EA10_a_tool_that_raises_is_an_observation() -> None:
    tools = Toolbox([broken_tool(get_weather, ConnectionError("503"))])
    model = ScriptedModel([WEATHER, ANSWER])
    result = run(model, tools)
    assert result.answer == "颐和园"
    seen = result.turns[0].observations[0]
    assert (seen.ok, seen.kind) == (False, Kind.UNCERTAIN)
    assert "ConnectionError: 503" in model.prompts[1]


@pytest.mark.parametrize(
    ("limits", "stop"),
    [
        (replace(AMPLE, rounds=2), StopReason.MAX_ITERATIONS),
        (replace(AMPLE, model_calls=2), StopReason.MODEL_CALLS),
        (replace(AMPLE, tool_calls=2), StopReason.TOOL_CALLS),
    ],
)
def test_EA11_L04_a_forced_stop_says_why_and_gives_no_answer(limits: Limits, stop: StopReason) -> None:
    result = run(stubborn_model(), limits=limits)
    assert (result.stop, result.answer) == (stop, None)
    assert result.summary.startswith(stop.name)
    assert "(2 of 2 " in result.summary
    assert "Action:" not in result.summary
    done = [seen for turn in result.turns for seen in turn.observations if seen.ok]
    assert len(done) == 2, "the completed observations are kept"


def test_EA12_every_exit_reads_the_answer_the_same_way() -> None:
    for reply, answer in (
        ("想好了。\n[FINAL_ANSWER] 颐和园", "颐和园"),
        ("[FINAL_ANSWER] 颐和园 [/FINAL_ANSWER]", "颐和园"),
        ("[TASK_COMPLETE] 颐和园", "颐和园"),
    ):
        result = run(ScriptedModel([reply]))
        assert (result.stop, result.answer) == (StopReason.FINAL_ANSWER, answer)
    refused = run(ScriptedModel(["[FINAL_ANSWER]", ANSWER]))
    assert (refused.answer, refused.control.rounds) == ("颐和园", 2), "an empty answer is no answer"


def test_EA16_what_perception_recalled_reaches_the_prompt_and_outlives_the_run() -> None:
    memory = ["去年去过长城"]
    model = ScriptedModel([WEATHER, ANSWER, ANSWER])
    loop = AgentLoop(react(TOOLS), perceive=lambda task: {"retrieved_memories": list(memory)})
    world = World(model=model, tools=TOOLS, inline=True)
    drive(loop.run(TASK), world)
    drive(loop.run(TASK), world)
    assert all("去年去过长城" in prompt for prompt in model.prompts)
    assert memory == ["去年去过长城"]


def test_EA20_answer_action_and_neither_each_work_end_to_end() -> None:
    assert run(ScriptedModel([ANSWER])).control.rounds == 1
    assert run(ScriptedModel([WEATHER, ANSWER])).turns[0].observations[0].ok
    assert run(ScriptedModel(["……", ANSWER])).turns[0].observations[0].kind is Kind.MALFORMED


def test_EA21_the_final_thought_is_recorded() -> None:
    result = run(ScriptedModel([WEATHER, ANSWER]))
    assert result.turns[-1].thought == ANSWER
    assert result.turns[-1].calls == ()


def test_EA22_EA61_the_three_round_example_enters_REASONING_once_a_round() -> None:
    steps: list[Step] = []
    result = run(ScriptedModel([WEATHER, ATTRACTION, ANSWER]), watch=steps.append)
    assert result.answer == "颐和园"
    assert result.control.rounds == 3
    one_round = [AgentState.REASONING, AgentState.ACTING, AgentState.WAITING_FOR_OBSERVATION]
    assert states(steps) == [
        AgentState.IDLE,
        AgentState.PERCEIVING,
        *one_round,
        *one_round,
        AgentState.REASONING,
        AgentState.TERMINATED,
    ]


def test_EA23_no_clear_action_goes_on_by_the_same_edges() -> None:
    steps: list[Step] = []
    result = run(ScriptedModel(["我还没有想好。", WEATHER, ANSWER]), watch=steps.append)
    assert result.answer == "颐和园"
    rows = [row.row for step in steps if (row := row_taken(step.before, step.after))]
    assert rows == [1, 2, 3, 5, 6, 3, 5, 6, 4]


def test_EA24_only_the_machine_writes_a_state() -> None:
    source = inspect.getsource(agentloop)
    makers = [line for line in source.splitlines() if "Control(" in line and "class" not in line]
    assert all("Control()" in line for line in makers), "nobody but advance makes one that has moved"


def test_EA25_at_the_limit_the_run_is_TERMINATED_and_has_its_summary() -> None:
    result = run(stubborn_model(), limits=replace(AMPLE, rounds=1))
    assert (result.control.state, result.stop) == (TERMINATED, StopReason.MAX_ITERATIONS)
    assert "- get_weather(city='北京'): " in result.summary


def test_EA57_a_context_declares_what_it_holds_and_shares_nothing() -> None:
    one, other = LoopContext("一"), LoopContext("二")
    for name in ("turns", "working_memory", "private"):
        assert getattr(one, name) is not getattr(other, name)
    with pytest.raises(AttributeError):
        one.retrieved_memories = []  # type: ignore[attr-defined]


def test_EA57_the_core_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    run(stubborn_model(), limits=replace(AMPLE, rounds=3))
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("paradigm", [react, function_calling])
def test_EA58_every_model_is_asked_in_one_way(paradigm: Callable[[Toolbox], Any]) -> None:
    asked: list[Any] = []

    def model(*request: Any) -> str:
        asked.append(request)
        return "Final Answer: 好"

    drive(AgentLoop(paradigm(TOOLS)).run(TASK), World(model=model, tools=TOOLS, inline=True))
    ((request,),) = asked
    assert isinstance(request, CallModel)
    assert [message.role for message in request.messages] == ["system", "user"]


def test_EA59_time_that_runs_out_while_waiting_is_told_as_such() -> None:
    clock = FakeClock()
    tools = Toolbox([hanging_tool(get_weather, lambda: clock.advance(400))])
    steps: list[Step] = []
    loop = AgentLoop(react(tools), limits=Limits(seconds=300), watch=steps.append)
    model = ScriptedModel([WEATHER])
    result = drive(loop.run(TASK), World(model=model, tools=tools, clock=clock.now, inline=True))
    row = row_taken(steps[-1].before, steps[-1].after)
    assert result.stop is StopReason.WALL_CLOCK
    assert row is not None and row.row == 7, "the edge of the table for it, and no exception"
    assert result.turns[0].observations[0].kind is Kind.TIMEOUT


# --- Article B, hard limits -------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [1, 2, 10])
def test_EB09_the_limit_is_exact_and_which_one_it_was_is_told(rounds: int) -> None:
    model = stubborn_model()
    result = run(model, limits=replace(AMPLE, rounds=rounds))
    assert len(model.requests) == rounds
    assert result.summary.splitlines()[0].endswith(f"({rounds} of {rounds} rounds used)")


def test_EB12_the_request_that_would_cross_the_budget_is_not_sent() -> None:
    """A tool reads a large file; the next prompt alone exceeds what is left, and nobody pays for it."""
    size = 50_000
    tools = Toolbox({"read_file": lambda: "x" * 4 * size}, max_characters=10**6)
    model = ScriptedModel(["Thought: 读\nAction: read_file()"])
    result = run(model, tools, limits=replace(AMPLE, tokens=size))
    assert (result.stop, len(model.requests)) == (StopReason.TOKEN_BUDGET, 1)
    assert result.control.tokens < size


def test_EB13_every_call_has_a_time_limit_of_its_own() -> None:
    clock = FakeClock()
    model = hanging_model(lambda: clock.advance(100))
    loop = AgentLoop(react(TOOLS), limits=Limits(call_seconds=70, seconds=110))
    result = drive(loop.run(TASK), World(model=model, tools=TOOLS, clock=clock.now, inline=True))
    assert [request.allowed for request in model.requests] == [70, 10], "its own, then what is left"
    assert "Timed out after 70 s" in result.turns[0].observations[0].text
    assert result.stop is StopReason.WALL_CLOCK


# --- Real faults of agent loops ---------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 3])
def test_L05_n_means_n_calls_and_nothing_is_carried_between_runs(limit: int) -> None:
    model = stubborn_model()
    loop = AgentLoop(react(TOOLS), limits=replace(AMPLE, rounds=limit))
    world = World(model=model, tools=TOOLS, inline=True)
    first = drive(loop.run(TASK), world)
    assert len(model.requests) == limit
    second = drive(loop.run("那上海呢？"), world)
    assert len(model.requests) == 2 * limit
    assert first.turns == second.turns
    assert TASK not in model.prompts[limit]


@pytest.mark.parametrize("limit", [0, -1, None])
def test_L05_a_limit_that_would_mean_none_or_unlimited_is_refused(limit: Any) -> None:
    with pytest.raises(ValueError, match="every loop is bounded"):
        Limits(rounds=limit)


@pytest.mark.parametrize("paradigm", [react, function_calling])
def test_L07_empty_replies_end_the_run_after_a_few(paradigm: Callable[[Toolbox], Any]) -> None:
    model = empty_model()
    loop = AgentLoop(paradigm(TOOLS), limits=replace(AMPLE, failures=5))
    result = drive(loop.run(TASK), World(model=model, tools=TOOLS, inline=True))
    assert (result.stop, len(model.requests)) == (StopReason.TOO_MANY_FAILURES, 5)
    assert {seen.kind for turn in result.turns for seen in turn.observations} == {Kind.EMPTY_REPLY}


@pytest.mark.parametrize("paradigm", [react, function_calling])
def test_L07_a_good_answer_after_two_empty_ones_is_accepted(paradigm: Callable[[Toolbox], Any]) -> None:
    good = "Final Answer: 颐和园" if paradigm is react else "颐和园"
    loop = AgentLoop(paradigm(TOOLS), limits=replace(AMPLE, failures=3))
    model = ScriptedModel([None, "   ", good])
    assert drive(loop.run(TASK), World(model=model, tools=TOOLS, inline=True)).answer == "颐和园"


def test_L07_a_reply_in_between_resets_the_count() -> None:
    model = ScriptedModel([None, "", WEATHER, None, "", ANSWER])
    assert run(model, limits=replace(AMPLE, failures=3)).answer == "颐和园"


@pytest.mark.parametrize("text", ["", None])
def test_L07_empty_text_beside_calls_is_normal(text: Any) -> None:
    model = ScriptedModel([Reply(text, calls(("get_weather", {"city": "北京"})).tool_calls, Usage(9)), "晴"])
    loop = AgentLoop(function_calling(TOOLS))
    result = drive(loop.run(TASK), World(model=model, tools=TOOLS, inline=True))
    assert result.answer == "晴"
    assert result.turns[0].observations[0].ok


def test_L08_that_no_tool_ran_is_there_to_see() -> None:
    result = run(ScriptedModel(["Thought: done\nFinal Answer: I ran pay and the receipt is #77"]))
    assert result.control.tool_calls == 0
    assert [call for turn in result.turns for call in turn.calls] == []


def test_L08_an_answer_without_grounds_can_be_refused_and_never_ends_well() -> None:
    model = ScriptedModel(["Final Answer: I ran pay and the receipt is #77"] * 2)
    result = run(model, accept=grounded, limits=replace(AMPLE, failures=2))
    assert (result.stop, result.answer) == (StopReason.TOO_MANY_FAILURES, None)
    assert "No tool has run" in model.prompts[1]


def grounded(context: LoopContext, answer: Any) -> str | None:
    """An answer check: at least one tool must have brought something."""
    if any(seen.kind is Kind.RESULT for turn in context.turns for seen in turn.observations):
        return None
    return "No tool has run. Call one, and answer from what it returns."


def test_P16_what_does_not_parse_is_never_a_success() -> None:
    for reply in (
        'Thought\nneed it\nAction\nget_weather\nAction Input:\n{"city": "北京"}',
        '{"tool_call": {"action": "get_weather", "action_input": {"city": "北京"}}}',
        "The answer is 42.",
    ):
        model = ScriptedModel([reply, ANSWER])
        result = run(model)
        assert (result.answer, result.control.rounds) == ("颐和园", 2)
        assert reply not in str(result.answer)


def test_P16_a_model_that_only_babbles_ends_without_an_answer() -> None:
    result = run(babbling_model(), limits=replace(AMPLE, failures=4))
    assert (result.stop, result.answer, result.control.rounds) == (StopReason.TOO_MANY_FAILURES, None, 4)


@pytest.mark.parametrize("arguments", ["", "  ", None, "{}"])
def test_T01_a_call_without_arguments_runs_once_and_can_be_sent_again(arguments: Any) -> None:
    ran: list[str] = []

    def clock() -> str:
        ran.append("clock")
        return "12:00"

    tools = Toolbox([clock])
    wish = {"id": "c1", "name": "clock", "arguments": arguments}
    model = ScriptedModel([Reply("", (wish,), Usage(5)), "12:00"])
    result = drive(
        AgentLoop(function_calling(tools)).run("几点了？"), World(model=model, tools=tools, inline=True)
    )
    assert (ran, result.answer) == (["clock"], "12:00")
    sent_again = [call for message in model.requests[1].messages for call in message.calls]
    assert [call.arguments for call in sent_again] == [{}]


def test_T04_duplicate_and_empty_ids_still_give_each_call_its_result() -> None:
    ran: list[str] = []

    def lookup(topic: str) -> str:
        ran.append(topic)
        return f"about {topic}"

    def clock() -> str:
        ran.append("clock")
        return "12:00"

    tools = Toolbox([lookup, clock])
    wishes = (
        {"id": "c1", "name": "lookup", "arguments": {"topic": "a"}},
        {"id": "c1", "name": "lookup", "arguments": {"topic": "b"}},
        {"id": "", "name": "clock", "arguments": {}},
    )
    model = ScriptedModel([Reply("", wishes, Usage(5)), "done"])
    drive(AgentLoop(function_calling(tools)).run("查"), World(model=model, tools=tools, inline=True))
    assert ran == ["a", "b", "clock"]
    messages = model.requests[1].messages
    sent = [call.id for message in messages for call in message.calls]
    answered = {message.call_id: message.content for message in messages if message.role == "tool"}
    assert all(sent) and len(set(sent)) == 3
    assert [answered[call] for call in sent] == ["about a", "about b", "12:00"]
