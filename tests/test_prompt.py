"""paradigms/prompt.py: what is put together, what a view may choose, and what it must not lose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    AgentLoop,
    CallModel,
    Finish,
    Limits,
    LoopContext,
    Message,
    Observation,
    Program,
    Reply,
    StopReason,
    Toolbox,
    ToolCall,
    Turn,
    World,
    drive,
    estimate_tokens,
)
from fake_llm import FakeModel, ScriptedModel, calls, get_weather, readable
from paradigms import function_calling, text_protocol
from paradigms.prompt import Block, Prompt, block, last_turns, think, whole_history
from paradigms.react import react
from tests import check_think, check_view

VIEWS = {"whole_history": whole_history, "last_turns(1)": last_turns(1), "last_turns(3)": last_turns(3)}
THOUGHT = 'Thought: 先查天气。\nAction: get_weather(city="北京")'
ANSWER = "Thought: 够了。\nAction: Finish[晴]"

# --- Ours keeps every promise; tests/gallery_prompt.py holds wrong versions ---------------------


@pytest.mark.parametrize("promise", check_think.PROMISES)
def test_think_keeps_its_promises(promise: str) -> None:
    check_think.PROMISES[promise](think)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("promise", check_view.PROMISES)
def test_our_views_keep_their_promises(promise: str, view: str) -> None:
    """The task stays, and whole turns are left out (EB16)."""
    check_view.PROMISES[promise](VIEWS[view])


# --- Any text ---------------------------------------------------------------------------------

#: Any text at all, with halves of emoji, zeros, braces and labels in it.
hostile = st.sampled_from(["\ud800", "\x00", "{task}", "Observation:"])
anything = st.text(st.characters(exclude_categories=())) | hostile


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    count = draw(st.integers(1, 3))
    made = [ToolCall(draw(anything), {"city": draw(anything)}, f"call_{place}") for place in range(count)]
    observations = [Observation(draw(anything), draw(st.booleans())) for _ in made]
    return Turn(draw(anything), tuple(made), tuple(observations), tuple(draw(st.lists(anything, max_size=2))))


@given(
    system=anything,
    task=anything,
    history=st.lists(turns(), max_size=4),
    memory=st.dictionaries(anything, anything | st.none() | st.integers(), max_size=3),
    render=st.sampled_from([text_protocol.render, function_calling.render]),
    kept=st.sampled_from([1, 2, 100]),
)
def test_any_text_is_sent_as_it_is_and_counted(
    system: str,
    task: str,
    history: list[Turn],
    memory: dict[str, Any],
    render: Callable[[Turn], tuple[Message, ...]],
    kept: int,
) -> None:
    reason = think(system, lambda reply: Finish(reply.text), render, last_turns(kept))
    context = LoopContext(task)
    context.turns += history
    context.working_memory.update(memory)
    request, _ = check_think.ask(reason, context)
    system_prompt, opening, *rest = request.messages
    assert (system_prompt, opening) == (Message("system", system), Message("user", task))
    if memory:
        shown = rest.pop(0).content
        assert all(f"{name}: {value}" in shown for name, value in memory.items())
    assert rest == [message for each in history[-kept:] for message in render(each)]
    assert request.tokens == check_think.tokens_of(request.messages)


@given(st.lists(anything, max_size=5))
def test_a_block_is_as_large_as_its_messages(texts: list[str]) -> None:
    messages = [Message("user", text) for text in texts]
    assert block(*messages).tokens == sum(map(estimate_tokens, texts))


@pytest.mark.parametrize("count", [0, -1, 2.5, True, None])
def test_a_window_of_no_turns_is_refused(count: Any) -> None:
    with pytest.raises(ValueError, match="count must be a whole number of at least 1"):
        last_turns(count)


@given(st.integers(1, 5), st.integers(0, 8))
def test_last_turns_shows_so_many_as_there_are(count: int, length: int) -> None:
    prompt = Prompt(LoopContext("task"), "system")
    prompt.turns += [block(Message("user", str(number))) for number in range(length)]
    assert list(last_turns(count)(prompt)) == prompt.turns[max(length - count, 0) :]


# --- In a running loop ------------------------------------------------------------------------


def test_a_view_may_ask_the_world_first() -> None:
    """A view that summarises asks the model, on the same account as everything else."""

    def summarised(prompt: Prompt) -> Program[list[Block]]:
        if len(prompt.turns) < 2:
            return list(prompt.turns)
        asked = CallModel((Message("user", "Summarise."),), tokens=3)
        summary = (yield asked).value
        return [block(Message("user", summary.text)), prompt.turns[-1]]

    model = ScriptedModel([THOUGHT, THOUGHT, "The weather was asked for.", ANSWER])
    tools = Toolbox([get_weather])
    result = drive(AgentLoop(react(tools, summarised)).run("北京天气"), World(model, tools, inline=True))
    assert result.stop is StopReason.FINAL_ANSWER
    assert result.control.model_calls == 4
    assert "The weather was asked for." in model.prompts[-1]
    assert model.prompts[-1].count("Observation: 北京") == 1
    assert len(result.turns) == 3, "the summary stands in for turns, it does not replace them"


def test_a_warning_reaches_the_next_prompt_once() -> None:
    model = ScriptedModel([THOUGHT, THOUGHT, ANSWER])
    tools = Toolbox([get_weather])
    rule = lambda control, context: "change direction" if control.rounds == 1 else None  # noqa: E731
    drive(AgentLoop(react(tools), stops=(rule,)).run("北京天气"), World(model, tools, inline=True))
    assert [prompt.count("change direction") for prompt in model.prompts] == [0, 1, 1]


def test_what_a_thought_leaves_in_working_memory_the_next_is_shown() -> None:
    """Working memory is where inner and outer loop meet (A-68)."""
    tools = Toolbox([get_weather])
    inner = react(tools)

    def reason(context: LoopContext) -> Program[Any]:
        decision = yield from inner(context)
        context.working_memory["thoughts so far"] = len(context.turns) + 1
        return decision

    model = ScriptedModel([THOUGHT, THOUGHT, ANSWER])
    drive(AgentLoop(reason).run("北京天气"), World(model, tools, inline=True))
    shown = [prompt.partition("thoughts so far: ")[2][:1] for prompt in model.prompts]
    assert shown == ["", "1", "2"]


def test_EB12_a_prompt_that_exceeds_what_is_left_is_not_sent() -> None:
    tools = Toolbox([get_weather])
    model = ScriptedModel([THOUGHT])
    loop = AgentLoop(react(tools, whole_history), limits=Limits(tokens=estimate_tokens("晴" * 100)))
    result = drive(loop.run("北京天气"), World(model, tools, inline=True))
    assert result.stop is StopReason.TOKEN_BUDGET
    assert model.requests == []


def test_EB11_tool_definitions_alone_can_exceed_the_budget() -> None:
    """Under function calling they are no message, and are sent with every request all the same."""
    tools = Toolbox([get_weather])
    reason = think("", lambda reply: function_calling.read(reply, tools), function_calling.render,
                   tools=tools.schemas())  # fmt: skip
    model = ScriptedModel([calls(("get_weather", {"city": "北京"}))])
    result = drive(AgentLoop(reason, limits=Limits(tokens=20)).run("天气"), World(model, tools, inline=True))
    assert result.stop is StopReason.TOKEN_BUDGET
    assert model.requests == []


def test_EA58_the_model_is_asked_in_one_way() -> None:
    """Text protocol or native calls: the model is given a ``CallModel`` and nothing else."""
    seen: list[Any] = []

    def model(request: CallModel) -> Reply:
        seen.append(request)
        return Reply("Action: Finish[晴]")

    tools = Toolbox([get_weather])
    native = think("", lambda reply: function_calling.read(reply, tools), function_calling.render)
    for reason in (react(tools), native):
        drive(AgentLoop(reason).run("天气"), World(model, tools, inline=True))
    assert [type(request) for request in seen] == [CallModel, CallModel]


def test_two_hooks_in_one_run_keep_prompts_of_their_own() -> None:
    """A judge beside the reasoner: same context, other system prompt."""
    tools = Toolbox([get_weather])
    main, judge = react(tools), think("You judge.", lambda reply: Finish(reply.text), text_protocol.render)

    def both(context: LoopContext) -> Program[Any]:
        yield from judge(context)
        decision = yield from main(context)
        return decision

    model = FakeModel(lambda request: ANSWER)
    drive(AgentLoop(both).run("天气"), World(model, tools, inline=True))
    assert [request.messages[0].content == "You judge." for request in model.requests] == [True, False]
    assert "You judge." not in readable(model.requests[1].messages)
