"""A model's reply is text until a parser has read it, and what cannot be read is an observation too.

Article B, 交互协议：Thought-Action-Observation and its 实现要点; article A, the listings _parse_action
and _parse_action_from_thought. Covers B-11..B-22, B-24, A-52, A-54, A-55, A-79.

Unlike chapter 04, which decided what the model reads, this one decides how the model is read. The
prompt is a contract (协议靠 prompt 约束): the tools with their signatures, one Thought and one Action,
``Finish[...]`` at the end (B-15..B-18). The parser (解析器, B-13) finds the first instruction, a call or
an answer, and cuts off what the model wrote after it (B-19). What came of the call goes back in
words, as ``Observation: ...`` (感知封装, B-14). The mechanism is a file of its own, read it next:
``paradigms/text_protocol.py``, with ``contract``, ``parse`` and ``render``.
(The articles' own lines and nine replies, word for word, make this chapter longer than others.)
Without it, four regular expressions read the reply, and each gets something wrong in silence: an
argument is lost, another city is asked for, a tool runs that an answer only mentions, an invented
Observation is believed; and the first reply that holds no action ends the run with a traceback.

Prompt, regular expression, dictionary of tools: this was the core of the early LangChain and
LlamaIndex (B-22). Chapter 06 replaces the middle one by calls that are data from the start (B-23).

Where the articles' listings went:

- the truncation regex (B-19): ``parse`` ends the reply at the first Observation, and the turn keeps
  the text up to the end of the first instruction
- ``_parse_action``, ``_parse_action_from_thought``, ``(\\w+)\\(`` and its sisters (A-52, A-79, B-20):
  ``parse``, one grammar for both articles (EX02)
- ``available_tools[tool_name](**kwargs)`` (B-21): ``Toolbox.execute``
- ``_extract_final_answer`` (A-54): ``parse`` returns a ``Finish`` with the answer alone
- the roles thought and observation (A-55): ``render`` says both with assistant and user, which
  every provider knows

Departures: the parser is anchored at the start of a line and matches whole names (EA13, EA15, EB02,
EB05); it reads values as data, without eval, and all of them or none (EA14, EA26..EA29, EB03, EB04,
EB06); it needs no flag to see two lines (EB01); a reply that cannot be read never raises (EB07);
``Finish`` is read before any tool is looked for, and an answer holds no label (EA12, EA31, EB08); what
the model observed by itself is cut (EA30); plain text is a mistake here and an exit in chapter 06,
since the protocol decides, not the loop (EB14).

Exercises
---------
1. Mend ``article_b`` of this file until it is a ``parse``, one reply of this demo after the other. Then
   meet the replies that you did not think of: ``python -m pytest --impl parser=my_parser.py:parse``
2. Let your ``parse`` prefer the last instruction of a reply to the first. Which promise of the same
   command breaks, and what would have happened to 哈尔滨 in this demo?
3. Invent a protocol of your own (XML tags, say) and give ``think`` a contract, a reader and a
   ``render`` for it. The same command, with your ``parse`` taught your own labels as well, tells you
   whether it still reads everybody else's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TypeVar

from agentloop import (
    Act,
    AgentLoop,
    Finish,
    LoopError,
    Reply,
    Toolbox,
    ToolCall,
    World,
    call_text,
    drive,
    on_one_line,
)
from chapters.telling import DIM, GREEN, RED, Telling
from fake_llm import RuleModel, get_attraction, get_weather
from fake_llm.tools import WEATHER
from paradigms.prompt import think
from paradigms.react import react
from paradigms.text_protocol import contract, parse, render


def get_forecast(city: str, days: int = 1) -> str:
    """Tell the weather of a city for some days."""
    sky, degrees = WEATHER[city]
    return f"{city}未来 {days} 天：{sky}，约 {degrees} 摄氏度"


TOOLS: dict[str, Callable[..., str]] = {
    "get_weather": get_weather,
    "get_attraction": get_attraction,
    "get_forecast": get_forecast,
}

# --- The articles' own lines, word for word ---------------------------------------------------
# The type checker sees each crash coming: it has to be told to look away.

T = TypeVar("T")
Named = tuple[tuple[str, T], ...]
Decision = ToolCall | Finish | None
Reader = Callable[[str], Decision]


def article_a_base(reply: str) -> Decision:
    """Article A, lines 231 to 252: the arguments are the rest of the line, as text."""
    if "[FINAL_ANSWER]" in reply:
        return Finish(reply.split("[FINAL_ANSWER]")[-1].strip())
    match = re.search(r"Action:\s*(\w+)\s*Args:\s*(.+)", reply)
    return ToolCall(match.group(1), match.group(2)) if match else None  # type: ignore[arg-type]


def article_a_react(reply: str) -> Decision:
    """Article A, lines 324 and 383 to 397, with JSON where the article runs what it reads (EA26)."""
    if "[FINAL_ANSWER]" in reply:
        return Finish(reply.split("[FINAL_ANSWER]")[-1].strip())
    match = re.search(r"Action:\s*(\w+)\s*Args:\s*(\{.*?\}|[^\n]+)", reply, re.DOTALL)
    if not match:
        return None
    args_str = match.group(2)
    try:
        args = json.loads(args_str) if args_str.startswith("{") else {"query": args_str}
    except ValueError:
        args = {"raw": args_str}
    return ToolCall(match.group(1), args)


def article_b(reply: str) -> ToolCall:
    """Article B, lines 47 to 51: keep the first pair, then three more regular expressions."""
    pair = re.search(r"(Thought:.*?Action:.*?)(?=\n\s*(?:Thought:|Action:|Observation:)|\Z)", reply)
    action_str = (pair.group(1) if pair else reply).partition("Action:")[2]
    tool_name = re.search(r"(\w+)\(", action_str).group(1)  # type: ignore[union-attr]
    args_str = re.search(r"\((.*)\)", action_str).group(1)  # type: ignore[union-attr]
    kwargs = dict(re.findall(r'(\w+)="([^"]*)"', args_str))
    return ToolCall(tool_name, kwargs)


REGEXES_A = (("article A, line 235", article_a_base), ("article A, line 387", article_a_react))
REGEXES_B = (("article B, line 47", article_b),)

# --- Replies such as small models write -------------------------------------------------------

PLAIN_TEXT = "好的，我来帮您查一下北京的天气，请稍等。"
IN_ARTICLE_A = (
    ("it speaks of the marker", """\
Thought: 还没有查到天气，不能输出 [FINAL_ANSWER]。
Action: get_weather Args: {"city": "北京"}"""),
    ("it invents the observation, and an answer", """\
Thought: 先查天气。
Action: get_weather Args: {"city": "哈尔滨"}
Observation: 哈尔滨今日晴，30°C。
Action: [FINAL_ANSWER] Args: 哈尔滨今天 30°C，适合游泳。"""),
    ("a bracket inside a text", """\
Thought: 下雪了，找室内景点。
Action: get_attraction Args: {"city": "北京", "weather": "Snowy {大雪}"}"""),
    ("a value without a name", """\
Thought: 先查天气。
Action: get_weather Args: 北京"""),
)  # fmt: skip
IN_ARTICLE_B = (
    ("the article's own example", """\
Thought: 用户想知道北京的天气。我需要调用天气查询工具。
Action: get_weather("北京")"""),
    ("a number", """\
Thought: 查未来三天。
Action: get_forecast(city="上海", days=3)"""),
    ("two calls on one line", """\
Thought: 两个城市都要查。
Action: get_weather(city="北京"), get_weather(city="上海")"""),
    ("an answer that mentions a tool", """\
Thought: 信息够了。
Action: Finish[北京今天晴。想去别处，可以问我 get_weather(city="广州")。]"""),
    ("no action at all", PLAIN_TEXT),
)  # fmt: skip


def by_regex(read: Reader, reply: str) -> str:
    """What comes of a reply where a regex reads it and a dictionary dispatches it (字典分发)."""
    try:
        decision = read(reply)
        if decision is None:
            return "no action seen"
        if isinstance(decision, Finish):
            return f"ENDS with: {decision.answer}"
        return f"{call_text(decision)} -> {TOOLS[decision.name](**decision.arguments)}"
    except Exception as error:
        return f"CRASH {type(error).__name__}: {error}"


def by_protocol(reply: str, tools: Toolbox) -> str:
    """What comes of the same reply where ``parse`` reads it and a toolbox checks it."""
    decision = parse(reply, tools)
    if isinstance(decision, Finish):
        return f"ENDS with: {decision.answer}"
    [call] = decision.calls
    seen = tools.execute(call)
    return f"{call_text(call)} -> {seen.text}" if seen.ok else f"{seen.kind.name} for the model: {seen.text}"


def compare(samples: Named[str], regexes: Named[Reader], tools: Toolbox, tell: Telling) -> None:
    """Show each reply, what each regex makes of it, and what ``parse`` does."""
    for kind, reply in samples:
        tell(f"\n{kind}")
        tell("\n".join(f"    {line}" for line in reply.splitlines()), DIM)
        rows = [(name, on_one_line(by_regex(read, reply), 90)) for name, read in regexes]
        tell.table([*rows, ("parse", on_one_line(by_protocol(reply, tools), 90))])


# --- A model that reacts to what it is told ---------------------------------------------------

TASK = "北京今明两天天气怎么样？"


def forgetful_model() -> RuleModel:
    """A model that forgets the format, then a quotation mark, and mends what it is told of."""
    return RuleModel(
        [
            ("未能解析到 Action 字段", "Thought: 我忘了格式。\nAction: get_forecast(city=北京, days=2)"),
            ("must stand in quotes", 'Thought: 文字要加引号。\nAction: get_forecast(city="北京", days=2)'),
            ("北京未来 2 天", "Thought: 信息够了。\nAction: Finish[北京今明两天晴，约 26 摄氏度。]"),
        ],
        otherwise=PLAIN_TEXT,
    )


def act_by_regex(reply: Reply) -> Act:
    """Read a reply as article B does, for a loop."""
    return Act((article_b(reply.text),), reply.text)


def demo(tell: Telling) -> None:
    """What regular expressions make of replies, a model that corrects itself, and its contract."""
    tools = Toolbox(TOOLS)
    number = len(IN_ARTICLE_A + IN_ARTICLE_B)
    tell.heading(f"{number} replies: what the articles' expressions make of them, and what parse does")
    compare(IN_ARTICLE_A, REGEXES_A, tools, tell)
    compare(IN_ARTICLE_B, REGEXES_B, tools, tell)

    tell.heading("A loop that reads with regular expressions")
    world = World(forgetful_model(), tools, inline=True)
    naive = AgentLoop(think(contract(tools), act_by_regex, render), watch=tell.watch("regex"))
    try:
        tell.result(drive(naive.run(TASK), world))
    except LoopError as error:
        tell(f"{type(error.__cause__).__name__}: {error.__cause__}", RED)

    tell.heading("The same model, tools and task: what cannot be read becomes an observation")
    loop = AgentLoop(react(tools), watch=tell.watch("protocol"))
    tell.result(drive(loop.run(TASK), World(forgetful_model(), tools, inline=True)))
    tell("The error message was the input of the next round (错误信息本身也是循环的输入).", GREEN)

    tell.heading("The contract: what the model was told in both runs (协议靠 prompt 约束)")
    tell(contract(tools))
