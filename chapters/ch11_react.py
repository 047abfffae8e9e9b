"""Reasoning that must wait for the world cannot make it up: Thought, Action, Observation, and again.

Article A, 四、关键变体深度解析 and ReAct Loop：推理与行动; article B, 一个完整的三轮执行. Covers A-70..A-80,
B-58, B-59.

ReAct (Yao et al., 2023) is the first of the article's three paradigms (A-70): chapter 12 adds reflection,
13 a plan, and 14 chooses. The paper compares three agents: one that only reasons makes up facts, one
that only acts does not know what to do with them, and one that does both in turn can ask, look, and
think about what it saw. Unlike chapters 08 and 09, whose thinking never left the model's head, each
thought here ends in an action, and the next one begins with what the world answered (即时反馈, A-73).
The mechanism is one hook, ``paradigms/react.py``: the contract of chapter 05, one request, and a parser
that cuts the reply where the model starts to observe by itself; the loop around it already is the cycle.
Without the cut, the model writes the whole dialogue in one breath, weather and all, and is believed.

The three rounds show the four things that article B names (B-59): one task becomes two questions
(任务分解), each a call (工具调用); the second one uses what the first brought (上下文理解); the answer
puts both together (结果合成). No plan was made beforehand (A-74), and each Thought can be read (A-72).

Where the article's listing went:

- ``run_react_cycle`` (A-75): ``AgentLoop(react(tools))``; nothing here is a loop of its own
- 无明确动作，继续思考 (A-76): a reply without an action costs a round and is told what it lacks
- ``Error: ...`` (A-77): the toolbox, which says in its kind whose fault it was
- ``_build_react_prompt`` (A-78): ``contract`` and ``render``; there are no phases, one reply holds both
- ``_parse_action_from_thought`` (A-79): ``parse``

Departures: each kind of reply has a way that works (EA20); the last thought is kept too (EA21); REASONING
is entered once a round (EA22); without an action the next round follows (EA23); each run starts fresh and
nobody sets a state (EA24); at the limit a run is TERMINATED, with its reason and a summary (EA25); no
invented observation survives (EA30); the prompt's examples are in the grammar that is read and invent no
weather (EA31), and it lists the tools (EA18). A failing tool as an observation was right (EA32), and so was
the whole (EA61). The answer of round three is spelled out, and checking it first is chapter 15 (EB17).

Exercises
---------
1. ``answer_first`` of this file has the signature of a parser. Ask which promises it breaks:
   ``python -m pytest --impl parser=chapters/ch11_react.py:answer_first``
   Then mend it, and ask again.
2. Write the ReAct cycle as one plain ``while`` of your own, and see what a loop has to promise:
   ``python -m pytest --impl loop=my_react.py:make_loop``
3. Many providers end a reply at the texts of ``request.stop``. Let the model of this demo do so as well,
   and the dream ends too. Which of the two cuts would you rely on? The command of the first exercise,
   with a ``parse`` of yours that leaves the cutting to the provider, has an opinion.
"""

from __future__ import annotations

import re

from agentloop import Act, AgentLoop, Finish, Result, Toolbox, World, call_text, drive
from chapters.telling import GREEN, RED, Telling
from fake_llm import RuleModel, ScriptedModel, calls, get_attraction, get_weather
from paradigms.function_calling import function_calling
from paradigms.prompt import think
from paradigms.react import react
from paradigms.text_protocol import contract, parse, render

TASK = "查询今天北京的天气，然后根据天气推荐一个旅游景点"
ANSWER = "今天北京晴，气温 26 摄氏度，适合出门：推荐颐和园（湖景 + 古建筑），也可以去长城。"

#: What the model says in each round. Its first reply does not wait for the weather: it invents it.
REPLIES = (
    """\
Thought: 先拿到天气，再据此推荐景点。
Action: get_weather(city="北京")
Observation: 北京当前天气：Snowy，气温 -8 摄氏度
Thought: 下雪了，室内更合适。
Action: Finish[今天北京下雪，零下 8 度，推荐去国家博物馆。]""",
    """\
Thought: 已知晴天且温度适中，据此筛选景点。
Action: get_attraction(city="北京", weather="Sunny")""",
    f"""\
Thought: 信息够了，可以作答。
Action: Finish[{ANSWER}]""",
)

#: The same three decisions of a model that calls natively.
NATIVE_REPLIES = (
    calls(("get_weather", {"city": "北京"}), text="先拿到天气，再据此推荐景点。"),
    calls(
        ("get_attraction", {"city": "北京", "weather": "Sunny"}),
        text="已知晴天且温度适中，据此筛选景点。",
    ),
    ANSWER,
)


def answer_first(text: str, tools: Toolbox) -> Act | Finish:
    """Read a reply in article A's order (lines 323 to 334): an answer anywhere in it ends the run."""
    answer = re.search(r"Finish\[(.*)\]", text, re.DOTALL)
    return Finish(answer.group(1), text) if answer else parse(text, tools)


def steps(result: Result) -> list[tuple[str, str]]:
    """What a run did and saw: each call, and its observation."""
    return [
        (call_text(call), observation.text)
        for turn in result.turns
        for call, observation in zip(turn.calls, turn.observations, strict=True)
    ]


def forgetful_model() -> RuleModel:
    """A model that writes the city in English, and mends it when it is told."""
    return RuleModel(
        [
            ("nothing is known about", 'Thought: 要用中文名。\nAction: get_weather(city="北京")'),
            ("北京当前天气", "Thought: 可以作答。\nAction: Finish[今天北京晴。]"),
        ],
        otherwise='Thought: 先查天气。\nAction: get_weather(city="Beijing")',
    )


def demo(tell: Telling) -> None:
    """Three rounds of 北京: dreamed, then lived; the same under native calls; and what is forgotten."""
    tools = Toolbox([get_weather, get_attraction])
    tell(f"task: {TASK}")

    tell.heading("Reasoning without waiting: the first reply is believed to its end")
    hook = think(contract(tools), lambda reply: answer_first(reply.text, tools), render)
    loop = AgentLoop(hook, watch=tell.watch("dream"))
    tell.result(drive(loop.run(TASK), World(ScriptedModel(REPLIES), tools, inline=True)))
    tell(f"No tool was asked. It would have said: {get_weather('北京')}", RED)

    tell.heading("ReAct: the same replies, cut where the world has to answer")
    loop = AgentLoop(react(tools), watch=tell.watch("react"))
    lived = drive(loop.run(TASK), World(ScriptedModel(REPLIES), tools, inline=True))
    tell.result(lived)

    tell.heading("The same run under native function calling")
    loop = AgentLoop(function_calling(tools), watch=tell.watch("native"))
    native = drive(loop.run(TASK), World(ScriptedModel(NATIVE_REPLIES), tools, inline=True))
    same = (steps(native), native.answer) == (steps(lived), lived.answer)
    tell(f"calls, observations and answer: {'the same as above' if same else 'NOT the same'}", GREEN)

    tell.heading("What ReAct cannot do: learn from its last run (相同错误可能重复发生)")
    model, loop = forgetful_model(), AgentLoop(react(tools))
    for number in (1, 2):
        result = drive(loop.run("今天北京天气怎么样？"), World(model, tools, inline=True))
        failed = [turn.calls[0] for turn in result.turns for seen in turn.observations if not seen.ok]
        tell(f"run {number}: failed at {', '.join(map(call_text, failed))}, then answered {result.answer}")
    tell("A run begins with nothing but its task. Chapter 12 lets it keep the lesson.")
