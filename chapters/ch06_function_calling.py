"""With function calling an action is data from the start: nothing is guessed from text, all is still checked.

Article B, 实现要点 (更可靠的做法是 Function Calling), 正常收敛, and what it says on 幻觉工具调用.
Covers B-23, B-27, B-45.

Unlike chapter 05, where an action was dug out of text, here it arrives beside the text: the tools go out
as JSON schemas, and a reply brings calls, each with a name and arguments. That ends the parsing, not
the mistakes: arguments still come as JSON text that can be cut off, a name can be half remembered, a
parameter can be another tool's, ids can repeat. The mechanism is ``paradigms/function_calling.py``:
``read`` turns each call into a ``ToolCall`` or into a description of what is wrong with it; the toolbox
checks name and arguments before the tool is entered; and each error goes back as the result of the
very call that caused it (返回结构化错误而不是抛异常), so that the model can mend it in the next round.
Without it, a call that shares its id with another is lost and nobody notices, and the first broken
piece of JSON ends the run, with all that was found so far.

A reply of plain text and no call is the normal exit here (正常收敛), while chapter 05 called the same
words a mistake. Both are right: it is the protocol that decides, not the loop (EB14).

Departures: a broken call never raises, nor does an unknown tool or an argument that does not fit (EB07);
arguments are never made up, and never replaced by ``{}`` (EA27).

Exercises
---------
1. Write a ``read`` of your own. Start from ``first_attempt`` of this file and see what it loses:
   ``python -m pytest --impl reader=my_reader.py:read``
2. Your provider has yet another shape: add it to ``SHAPES``, teach your ``read`` to see it, and use the
   same command to make sure that the other shapes are still read.
3. Write a toolbox that forgives: it runs the nearest tool where the name is unknown. Put it under
   ``python -m pytest --impl toolbox=my_toolbox.py:Toolbox`` and read which promise it breaks. Then
   think of ``pay`` and ``pay_back``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agentloop import Act, AgentLoop, Finish, LoopError, Reply, Toolbox, ToolCall, World, call_text, drive
from chapters.telling import DIM, RED, Telling
from fake_llm import RuleModel, get_attraction, get_weather, readable
from paradigms.function_calling import SYSTEM, function_calling, read, render
from paradigms.prompt import think
from paradigms.text_protocol import parse

TASK = "比较北京和上海今天的天气，给北京推荐一个旅游景点"

#: One call, as it is written by those who serve models.
SHAPES: Mapping[str, dict[str, Any]] = {
    "OpenAI": {
        "id": "call_0",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city": "北京"}'},
    },
    "Anthropic": {"type": "tool_use", "id": "toolu_0", "name": "get_weather", "input": {"city": "北京"}},
    "Amazon Bedrock": {"toolUse": {"toolUseId": "0", "name": "get_weather", "input": {"city": "北京"}}},
    "Ollama": {"function": {"name": "get_weather", "arguments": {"city": "北京"}}},
}


def first_attempt(reply: Reply, tools: Toolbox) -> Act | Finish:
    """Read a reply as the first page of a provider's documentation does, and no more."""
    if not reply.tool_calls:
        return Finish(reply.text, reply.text)
    by_id = {raw["id"]: raw["function"] for raw in reply.tool_calls}
    calls = (ToolCall(each["name"], json.loads(each["arguments"])) for each in by_id.values())
    return Act(tuple(calls), reply.text)


# --- A model that half remembers --------------------------------------------------------------


def wanted(*calls: tuple[str, str], text: str = "") -> Reply:
    """A reply in the shape of OpenAI, from a server that gives every call the same id."""
    return Reply(
        text,
        tuple(
            {"id": "call_0", "type": "function", "function": {"name": name, "arguments": arguments}}
            for name, arguments in calls
        ),
    )


FIRST_REPLY = wanted(
    ("get_weather", '{"city": "北京"}'), ("get_weather", '{"city": "上海"}'), text="两个城市可以一起查。"
)


def half_remembering_model() -> RuleModel:
    """A model that gets one thing wrong at a time, and mends what it is told of."""
    return RuleModel(
        [
            ("上海当前天气", wanted(("get_attraction", '{"city": "北京", "weather": "Sun'))),
            ("not valid JSON", wanted(("get_atraction", '{"city": "北京", "weather": "Sunny"}'))),
            ("no tool named", wanted(("get_attraction", '{"town": "北京", "weather": "Sunny"}'))),
            ("unexpected argument", wanted(("get_attraction", '{"city": "北京", "weather": "Sunny"}'))),
            ("颐和园", Reply("北京晴，26 度；上海多云，22 度。北京推荐颐和园。")),
        ],
        otherwise=FIRST_REPLY,
    )


def in_words(decision: Act | Finish) -> list[str]:
    """What a reply came to: its answer, or each call, or what was wrong with it."""
    if isinstance(decision, Finish):
        return [f"the answer {decision.answer}"]
    return [call.problem.kind.value if call.problem else call_text(call) for call in decision.calls]


def demo(tell: Telling) -> None:
    """A reader that trusts what comes, one that answers every mistake, and the shapes of a call."""
    tools = Toolbox([get_weather, get_attraction])
    tell.heading("A first attempt: json.loads, and a dictionary of the calls by id")
    hook = think(SYSTEM, lambda reply: first_attempt(reply, tools), render, tools=tools.schemas())
    naive = AgentLoop(hook, watch=tell.watch("first try"))
    try:
        tell.result(drive(naive.run(TASK), World(half_remembering_model(), tools, inline=True)))
    except LoopError as error:
        tell(f"{type(error.__cause__).__name__}: {error.__cause__}", RED)
        asked, ran = in_words(read(FIRST_REPLY, tools)), map(call_text, error.result.turns[0].calls)
        lost = " and ".join(sorted({*asked} - {*ran}))
        tell(f"And {lost} was asked for and never ran: the next call had the same id.", RED)

    tell.heading("The same model, tools and task: every mistake is answered (让模型能自纠)")
    model = half_remembering_model()
    loop = AgentLoop(function_calling(tools), watch=tell.watch("native"))
    tell.result(drive(loop.run(TASK), World(model, tools, inline=True)))

    tell.heading("How the first round was sent back: one result for each call, under ids of our own")
    tell(readable(model.requests[1].messages[2:]), DIM)

    tell.heading("What went out beside the prompt: a schema for each tool, read off its signature")
    tell(json.dumps(tools.schemas()[0], ensure_ascii=False, indent=2))

    tell.heading("What comes back: the same call, as four providers write it")
    for provider, raw in SHAPES.items():
        tell(f"{provider}:\n    {json.dumps(raw, ensure_ascii=False)}", DIM)
    understood = {text for raw in SHAPES.values() for text in in_words(read(Reply("", (raw,)), tools))}
    tell(f"All are read as: {' or '.join(sorted(understood))}")

    tell.heading("The same plain text under two protocols (EB14)")
    text = "北京今天晴，26 度。"
    tell(f"text protocol: {in_words(parse(text, tools))[0]}")
    tell(f"native calls:  {in_words(read(Reply(text), tools))[0]}")
