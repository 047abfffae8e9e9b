"""Chapter 06: an action is data from the start, and every mistake is answered."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    Act,
    AgentLoop,
    Finish,
    Kind,
    LoopError,
    Message,
    Reply,
    Result,
    StopReason,
    Toolbox,
    World,
    call_text,
    drive,
)
from chapters.ch06_function_calling import (
    FIRST_REPLY,
    SHAPES,
    TASK,
    first_attempt,
    half_remembering_model,
    in_words,
)
from fake_llm import FakeModel, ScriptedModel, calls, get_attraction, get_weather
from paradigms.function_calling import SYSTEM, function_calling, read, render
from paradigms.prompt import last_turns, think
from paradigms.text_protocol import parse
from tests.check_function_calling import check_reader

TOOLS = Toolbox([get_weather, get_attraction])


def run(model: FakeModel, tools: Toolbox = TOOLS) -> Result:
    return drive(AgentLoop(function_calling(tools)).run(TASK), World(model, tools, inline=True))


def kinds(result: Result) -> list[Kind]:
    return [seen.kind for turn in result.turns for seen in turn.observations]


# --- The story --------------------------------------------------------------------------------


def test_the_first_attempt_loses_a_call_and_ends_with_a_bug() -> None:
    loop = AgentLoop(think(SYSTEM, lambda reply: first_attempt(reply, TOOLS), render, tools=TOOLS.schemas()))
    with pytest.raises(LoopError) as ended:
        drive(loop.run(TASK), World(half_remembering_model(), TOOLS, inline=True))
    assert isinstance(ended.value.__cause__, json.JSONDecodeError)
    assert len(FIRST_REPLY.tool_calls) == 2
    assert [call_text(call) for call in ended.value.result.turns[0].calls] == ["get_weather(city='上海')"]


def test_B45_each_mistake_is_answered_and_mended() -> None:
    result = run(half_remembering_model())
    assert kinds(result) == [
        Kind.RESULT,
        Kind.RESULT,
        Kind.MALFORMED,
        Kind.UNKNOWN_TOOL,
        Kind.BAD_ARGUMENTS,
        Kind.RESULT,
    ]
    assert result.stop is StopReason.FINAL_ANSWER and "颐和园" in result.answer


def test_an_error_says_what_would_have_been_right() -> None:
    texts = [seen.text for turn in run(half_remembering_model()).turns for seen in turn.observations]
    assert "one JSON object" in texts[2]
    assert "did you mean get_attraction?" in texts[3]
    assert "unexpected argument 'town'" in texts[4] and "get_attraction(city: str, weather: str)" in texts[4]


@pytest.mark.parametrize("provider", SHAPES)
def test_every_provider_s_shape_is_the_same_call(provider: str) -> None:
    assert in_words(read(Reply("", (SHAPES[provider],)), TOOLS)) == ["get_weather(city='北京')"]


# --- A batch of calls -------------------------------------------------------------------------


CITIES_AND_IDS = st.tuples(st.sampled_from(["北京", "上海", "广州", "火星"]), st.text(max_size=2))


@given(st.lists(CITIES_AND_IDS, min_size=1, max_size=6))
def test_T04_a_batch_brings_one_result_a_call_in_order_whatever_the_ids(batch: list[tuple[str, str]]) -> None:
    raw = tuple({"id": id, "name": "get_weather", "arguments": {"city": city}} for city, id in batch)
    model = ScriptedModel([Reply("", raw), "好"])
    turn = run(model).turns[0]
    assert [call.arguments["city"] for call in turn.calls] == [city for city, _ in batch]
    assert all(city in seen.text for (city, _), seen in zip(batch, turn.observations, strict=True))
    ids = [call.id for call in turn.calls]
    assert all(ids) and len({*ids}) == len(batch)
    asked, *answers = model.requests[1].messages[2:]
    assert [call.id for call in asked.calls] == [answer.call_id for answer in answers] == ids
    assert [answer.content for answer in answers] == [seen.text for seen in turn.observations]


def test_a_broken_call_does_not_keep_the_others_from_running() -> None:
    good = ("get_weather", {"city": "北京"})
    batch = calls(good, ("get_weather", '{"city'), good)
    result = run(ScriptedModel([batch, "好"]))
    assert kinds(result) == [Kind.RESULT, Kind.MALFORMED, Kind.RESULT]
    assert result.control.tool_calls == 2, "what cannot be read is not run, and costs no tool call"


@pytest.mark.parametrize("count", [1, 2])
def test_a_view_never_parts_a_call_from_its_result(count: int) -> None:
    batch = calls(("get_weather", {"city": "北京"}), ("get_weather", {"city": "上海"}))
    model = ScriptedModel([batch, batch, batch, "好"])
    loop = AgentLoop(function_calling(TOOLS, view=last_turns(count)))
    drive(loop.run(TASK), World(model, TOOLS, inline=True))
    for request in model.requests:
        shown = [call.id for message in request.messages for call in message.calls]
        assert shown == [message.call_id for message in request.messages if message.role == "tool"]
        assert request.messages[0].role == "system" and request.messages[1].content == TASK


# --- What goes out ----------------------------------------------------------------------------


def test_the_tools_go_out_as_schemas_with_every_request() -> None:
    model = half_remembering_model()
    run(model)
    assert all(request.tools == TOOLS.schemas() for request in model.requests)
    assert all(request.messages[0] == Message("system", SYSTEM) for request in model.requests)


# --- The exit ---------------------------------------------------------------------------------


def test_B27_plain_text_without_a_call_is_the_answer() -> None:
    result = run(ScriptedModel(["北京今天晴。"]))
    assert (result.answer, result.stop) == ("北京今天晴。", StopReason.FINAL_ANSWER)


def test_text_beside_a_call_is_a_thought_and_no_answer() -> None:
    result = run(ScriptedModel([calls(("get_weather", {"city": "北京"}), text="北京今天晴。"), "好"]))
    assert (result.answer, result.turns[0].thought) == ("好", "北京今天晴。")


def test_EB14_the_protocol_decides_and_the_loop_does_not() -> None:
    text = "北京今天晴。"
    assert read(Reply(text), TOOLS) == Finish(text, text)
    decision = parse(text, TOOLS)
    assert isinstance(decision, Act) and decision.calls[0].problem is not None


# --- Errata and cases -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [
        ("get_wether", '{"city": "北京"}', Kind.UNKNOWN_TOOL),
        ("get_weather", "{}", Kind.BAD_ARGUMENTS),
        ("get_weather", '{"city": ["北京"]}', Kind.BAD_ARGUMENTS),
        ("get_weather", "city=北京", Kind.MALFORMED),
        ("get_weather", "[]", Kind.MALFORMED),
        ("get_weather", '{"city": "火星"}', Kind.TOOL_ERROR),
    ],
)
def test_EB07_T06_nothing_a_model_gets_wrong_raises(name: str, arguments: str, kind: Kind) -> None:
    result = run(ScriptedModel([calls((name, arguments)), "好"]))
    assert kinds(result) == [kind] and result.answer == "好"


@pytest.mark.parametrize("arguments", ['{"city": "北京', "None", "北京", '["北京"]', '"北京"'])
def test_EA27_arguments_are_never_made_up(arguments: str) -> None:
    entered: list[Any] = []

    def get_weather(city: str = "上海") -> str:
        entered.append(city)
        return city

    result = run(ScriptedModel([calls(("get_weather", arguments)), "好"]), Toolbox([get_weather]))
    assert kinds(result) == [Kind.MALFORMED]
    assert entered == [], "not even the default is taken for what could not be read"


@pytest.mark.parametrize("nothing", ["", "  ", None, "{}", "null"])
def test_T01_no_arguments_in_every_spelling(nothing: Any) -> None:
    def clock() -> str:
        return "正午"

    raw = {"id": "c1", "name": "clock", "arguments": nothing}
    model = ScriptedModel([Reply("", (raw,)), "好"])
    assert kinds(run(model, Toolbox([clock]))) == [Kind.RESULT]
    assert model.requests[1].messages[2].calls[0].arguments == {}, "what is sent back can be sent again"


def test_L07_an_empty_reply_costs_a_round_and_is_told() -> None:
    result = run(ScriptedModel(["", None, "好"]))
    assert kinds(result) == [Kind.EMPTY_REPLY, Kind.EMPTY_REPLY] and result.answer == "好"


def test_the_promises_reject_the_first_attempt() -> None:
    with pytest.raises(AssertionError):
        check_reader(first_attempt)
