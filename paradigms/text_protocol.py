"""The text protocol: a model writes its next step as text, and one pure function reads it.

``contract`` tells the model the format, ``parse`` reads what it answers, ``render`` shows it what
came of that. The format is article B's (交互协议：Thought-Action-Observation), after ReAct
(Yao et al., 2022); article A's ``Args: {...}`` and ``[FINAL_ANSWER]``, LangChain's
``Action Input:`` and the paper's ``lookup[tea]`` are read as well.

How ``parse`` works, in four steps:

1. Clean the reply: drop ``<think>`` blocks; end it at the first Observation that the model wrote
   itself, and at a control token that leaked (``<|im_end|>``). Only the runtime observes.
2. Find the first label at the start of a line: ``Action:``, ``Final Answer:`` or another spelling.
3. Read one instruction there. What follows the name says how: ``(``, ``[``, ``{`` or ``Args:``.
4. Keep the reply up to the end of that instruction as the thought. What comes later is not read.

Where an instruction cannot be read, the decision is a report that tells the model what was wrong
and what would have been right (解析失败要变成观察，而不是崩溃). Nothing is guessed: a call is taken
with all of its arguments or not at all (``paradigms/literals.py``). One parser reads the spellings of
both articles and of the wider world, which makes this the largest paradigm by far.
"""

from __future__ import annotations

import re
from typing import Any

from agentloop import Act, Finish, Kind, Message, Observation, Toolbox, ToolCall, Turn, report
from paradigms.literals import Arguments, Unreadable, must_end, read_items, read_object

# --- The grammar, as data ---------------------------------------------------------------------
# A possessive quantifier (``*+``) never gives back what it took. With it, no pattern here can take
# more than linear time, whatever the text.

_CONTROL = r"<[|｜][^|｜<>\n]{1,40}[|｜]>"  # <|im_end|>, <｜tool▁call▁end｜>; a table's | a | is none
_LINE = rf"^(?:[^\S\n]|[>#`*-]|{_CONTROL})*+"  # a line's start, and what may decorate it
_COLON = r"[ \t\d*]*+[:：]\**+"  # "Action:", "**Action**:", the paper's "Action 1:", "行动："
_THOUGHT = rf"(?:thought|思考){_COLON}"
_OBSERVATION = rf"(?:observation|观察(?:结果)?){_COLON}"
_ACTION = rf"(?:action|行动|动作){_COLON}"
_INPUT = rf"(?:action[ _]input|input|arg(?:ument)?s?|行动输入|动作输入|输入|参数){_COLON}"
_MARKER = r"\[(?:FINAL_ANSWER|TASK_COMPLETE)\]"
_FINAL = rf"(?:final[ _]answer|最终答案|最终回答)(?:{_COLON}|\s*+{_INPUT})"
_ANSWER = rf"(?:{_ACTION}\s*+)*+(?:{_FINAL}|{_MARKER}(?:\s*+{_INPUT})?[:：]?)"

_FLAGS = re.IGNORECASE | re.MULTILINE
_THINK = re.compile(r"<(?P<close>/?)think(?:ing)?>", _FLAGS)
_TURN_HEADER = re.compile(r"\A(?:\s*+<[|｜]\w{0,20}?(?:start|begin)\w{0,20}[|｜]>(?:assistant)?)++", _FLAGS)
_REPLY_END = re.compile(rf"{_LINE}{_OBSERVATION}|(?!<.[^|｜<>]{{0,20}}begin){_CONTROL}", _FLAGS)
_FIELD = re.compile(
    rf"{_LINE}(?:(?P<answer>{_ANSWER})|(?:{_ACTION}\s*+)++|(?=finish[ \t]*+[\[［【(（]))", _FLAGS
)
#: Where text without quotes or brackets ends: at the next label, or a closing marker.
_TEXT_END = re.compile(
    rf"{_LINE}(?:{_THOUGHT}|{_ACTION}|{_FINAL}|{_MARKER})|\[/?(?:FINAL_ANSWER|TASK_COMPLETE)\]\s*+\Z"
    r"|(?<=\s)(?-i:Thought|Action|Observation|观察)[:：]",
    _FLAGS,
)
_NAME = re.compile(r"(?:\s*+```\w*[ \t]*\n)?[\s`*]*+\[?([^\s\[\]［］【】(){}（）,，:：`*\"'“”‘’]+)\]?[`*]*+")
#: What follows a tool's name, and thereby how its arguments are written.
_OPENING = re.compile(
    rf"(?P<label>(?:\(\s*\))?[\s,，*]*+{_INPUT})"
    r"|(?P<call>[ \t]*+(?=[(（]))|(?P<bracket>[ \t]*+(?=[\[［【]))|(?P<object>\s*+(?=\{))"
    r"|(?P<nothing>(?=[ \t]*+$))",
    _FLAGS,
)
_FENCE = re.compile(r"\s*(`{1,3})(?:(?<=```)\w*[ \t]*\n)?")

_BRACKET = re.compile(r"[\[\]［］【】]")
_NAMED = re.compile(r"(\w++)\s*+[=＝:：]")
Parameters = tuple[str, ...]

_FINISHING = ("finish", "final_answer", "task_complete")
_FINISH_PARAMETERS = ("answer",)
_UNKNOWN_PARAMETERS = tuple(f"argument_{number}" for number in range(1, 10))
_NO_TOOL = ("none", "n/a", "na", "null", "nothing", "无", "-")
_NO_ARGUMENTS = ("", "none", "n/a", "null", "无")
#: A prompt's own words, handed back instead of an answer.
_PLACEHOLDERS = frozenset(
    {
        *("your final answer", "final answer", "the final answer", "answer", "your answer", "...", "…"),
        *("最终答案", "你的最终答案", "答案"),
    }
)

_MISSING = (
    "未能解析到 Action 字段，请确保回复严格遵循 Thought: ... Action: ... 格式. No Action field was found."
)
_EMPTY = "The reply was empty (thinking, and an Observation of your own, do not count)."
_RIGHT = (
    'Write one Thought line and one Action line, then stop: Action: tool_name(parameter="value") '
    "calls a tool, Action: Finish[...] with the answer in the brackets ends the task. "
    "Never write an Observation yourself."
)


# --- Reading a reply --------------------------------------------------------------------------


def parse(text: str, tools: Toolbox) -> Act | Finish:
    """Read a reply: one action, a final answer, or a report of what could not be read.

    Never raises, and takes time linear in the length of the text. A call is returned as it was
    named; whether there is such a tool, and whether the arguments fit, is for the toolbox to say.
    """
    reply = _clean(text)
    if not reply:
        return report(Observation(f"{_EMPTY} {_RIGHT}", False, Kind.EMPTY_REPLY))
    try:
        decision, end = _instruction(reply, tools)
    except Unreadable as problem:
        return report(Observation(f"{problem} {_RIGHT}", False, Kind.MALFORMED), reply)
    return decision._replace(thought=reply[:end])


def _clean(text: str) -> str:
    """Return what the model said to us, before anything that it said in the runtime's name."""
    reply = _TURN_HEADER.sub("", _without_thinking(text)).strip()
    end = _REPLY_END.search(reply)
    reply = reply[: end.start()].rstrip() if end else reply
    before, newline, last = reply.rpartition("\n")
    half_a_stop_word = newline and len(last) > 2 and "Observation".startswith(last)
    return before.rstrip() if half_a_stop_word else reply


def _without_thinking(text: str) -> str:
    """Drop the ``<think>`` blocks that stand before the first instruction.

    Later ones are left alone: they may be part of a value. A reply that is one closed block and
    nothing else is used if it holds exactly one instruction; of several, all but one were dropped.
    """
    first = _THINK.search(text)
    if first is None:
        return text
    # A template may have opened the block in the prompt; the reply then only closes it.
    line = text[: first.start()].rpartition("\n")[2]
    depth = 1 if first["close"] and not line.strip() else 0
    kept: list[str] = []
    start = 0
    for tag in _THINK.finditer(text):
        if depth == 0:
            kept.append(text[start : tag.start()])
            if _FIELD.search(kept[-1]):
                return "\n".join(kept) + text[tag.start() :]
        depth = max(depth - 1, 0) if tag["close"] else depth + 1
        start = tag.end()
    if depth == 0:
        kept.append(text[start:])
    outside, everything = "\n".join(kept).strip(), _THINK.sub("\n", text)
    if not outside and depth == 0 and len(_FIELD.findall(everything)) == 1:
        return everything
    return outside


def _instruction(reply: str, tools: Toolbox) -> tuple[Act | Finish, int]:
    """Read the first instruction: the decision, and where it ends."""
    field = _FIELD.search(reply)
    if field is None:
        raise Unreadable(_MISSING)
    if field["answer"]:
        answer, end = _plain_text(reply, field.end())
        return _finish(answer), end
    named = _NAME.match(reply, field.end())
    name = named[1].rstrip(".。") if named else ""
    if named is None or (name.casefold() in _NO_TOOL and name not in tools.names):
        raise Unreadable("The Action names no tool. If none is needed, give the final answer.")
    opening = _OPENING.match(reply, named.end())
    if opening is None:
        raise Unreadable(f"After the name {name[:40]!r} its arguments were expected.")
    finishing = name.casefold() in _FINISHING
    known = tools.parameters(name) if name in tools.names else _UNKNOWN_PARAMETERS
    read = _READERS[str(opening.lastgroup)]
    arguments, end = read(reply, opening.end(), _FINISH_PARAMETERS if finishing else known)
    if not finishing:
        return Act((ToolCall(name, arguments),)), end
    if list(arguments) != ["answer"]:
        raise Unreadable("Finish takes one answer.")
    return _finish(arguments["answer"]), end


def _finish(answer: Any) -> Finish:
    text = "" if answer is None else str(answer).strip()
    if not text:
        raise Unreadable("The final answer is empty: it belongs after the label or in the brackets.")
    if text.strip("<>[]() ").casefold() in _PLACEHOLDERS:
        raise Unreadable(f"{text!r} is the prompt's placeholder, not an answer.")
    return Finish(text)


# --- Reading the arguments of one call --------------------------------------------------------
# Each reader takes the reply, the position where it should begin and the tool's parameters, and
# returns the arguments and the position where they end.


def _call(reply: str, position: int, parameters: Parameters) -> tuple[Arguments, int]:
    """Read ``(city="北京", days=3)``."""
    values, named, end = read_items(reply, position)
    return _bind(values, named, parameters), end


def _object(reply: str, position: int, parameters: Parameters) -> tuple[Arguments, int]:
    """Read ``{"city": "北京"}``: as JSON, or else as a Python dict. What follows it is not its part."""
    return read_object(reply, position)


def _bracket(reply: str, position: int, parameters: Parameters) -> tuple[Arguments, int]:
    """Read ``[tea]``, up to the bracket that closes the first one."""
    depth = 0
    for bracket in _BRACKET.finditer(reply, position):
        depth += 1 if bracket[0] in "[［【" else -1
        if depth == 0:
            return _bare(reply[position + 1 : bracket.start()], parameters), bracket.end()
    raise Unreadable("The bracket [ is never closed by a ].")


def _label(reply: str, position: int, parameters: Parameters) -> tuple[Arguments, int]:
    """Read what stands after ``Args:`` or ``Action Input:``: an object, a value, or plain text."""
    fence = _FENCE.match(reply, position)
    start = fence.end() if fence else position
    while reply[start : start + 1].isspace():
        start += 1
    if reply.startswith("{", start):
        return _object(reply, start, parameters)
    text, end = _plain_text(reply, start)
    if fence:
        text = text.partition(fence[1])[0]
    return _bare(text, parameters), end


def _nothing(reply: str, position: int, parameters: Parameters) -> tuple[Arguments, int]:
    return _bare("", parameters), position


_READERS = {"call": _call, "object": _object, "bracket": _bracket, "label": _label, "nothing": _nothing}


def _plain_text(reply: str, start: int) -> tuple[str, int]:
    """Read text without quotes or brackets: up to the next label, or to the reply's end."""
    stop = _TEXT_END.search(reply, start)
    text = reply[start : stop.start() if stop else len(reply)].rstrip()
    for mark in ("```", "**"):  # what a fence or bold around the whole reply leaves behind
        if text.count(mark) % 2:
            text = text.removesuffix(mark).rstrip()
    return text.lstrip(), start + len(text)


def _bare(text: str, parameters: Parameters) -> Arguments:
    """Read a value that has no name: a literal, or else the text itself, for the first parameter."""
    text = text.strip()
    if parameters is _FINISH_PARAMETERS:  # an answer is text, whatever it looks like
        return {"answer": text}
    if text.casefold() in _NO_ARGUMENTS:
        if parameters and parameters is not _UNKNOWN_PARAMETERS:
            raise Unreadable(f"The arguments are missing: {', '.join(parameters)}.")
        return {}
    if text[0] == "{":
        arguments, end = read_object(text, 0)
        must_end(text, end)
        return arguments
    name = _NAMED.match(text)
    if name and name[1] in parameters:
        return _whole(f"({text})", parameters)
    if text[0] in "\"'“‘[":
        try:
            return _whole(f"({text})", parameters)
        except Unreadable:
            pass  # text that only begins like a value
    if text[0] == "[" and text[-1] == "]":
        text = text[1:-1]
    return _bind([text], {}, parameters)


def _whole(text: str, parameters: Parameters) -> Arguments:
    """Read ``(city="北京", days=3)``, after which the text must end."""
    arguments, end = _call(text, 0, parameters)
    must_end(text, end)
    return arguments


def _bind(values: list[Any], named: Arguments, parameters: Parameters) -> Arguments:
    """Give positional values the names of the tool's parameters, in order."""
    alone = values[0] if len(values) == 1 and not named else None
    if isinstance(alone, dict) and alone and alone.keys() <= set(parameters):
        return alone  # lookup({"topic": "tea"})
    if len(values) > len(parameters):
        raise Unreadable(f"{len(values)} values are given for the parameters ({', '.join(parameters)}).")
    bound = dict(zip(parameters, values, strict=False))
    if twice := bound.keys() & named.keys():
        raise Unreadable(f"The argument {min(twice)!r} is given twice.")
    return bound | named


# --- Writing prompts --------------------------------------------------------------------------

_SAMPLES = {
    "string": '"..."',
    "integer": "1",
    "number": "1.5",
    "boolean": "true",
    "array": "[]",
    "object": "{}",
}


def contract(tools: Toolbox) -> str:
    """Return the system prompt: the tools and their signatures, and the format of a reply."""
    if not tools.names:
        return f"""{_TASK} There are no tools.

Reply with one Thought and one Action, then stop. The Action is Finish, with the whole answer in its brackets.
{_EXAMPLE}"""
    return f"""{_TASK} These are the tools:

{tools.describe()}

Reply with exactly one pair of Thought and Action, then stop:

Thought: what you know by now, and what you need to find out
Action: {_sample(tools.schemas()[0])}

The Action is one call of one tool, on one line, with every text in double quotes.
You are then shown its Observation. Never write an Observation yourself.

When you know enough, or no tool can help, end with Finish and the whole answer in its brackets.
{_EXAMPLE}"""


_TASK = "You solve a task step by step."
_EXAMPLE = """Asked what 2 and 2 make, you would reply:

Thought: I know the sum, so I can answer.
Action: Finish[2 and 2 make 4.]"""


def _sample(schema: dict[str, Any]) -> str:
    """Write a call of a tool with each argument it requires."""
    properties = schema["parameters"]["properties"]
    arguments = [
        f"{name}={_SAMPLES.get(properties[name].get('type'), _SAMPLES['string'])}"
        for name in schema["parameters"]["required"]
    ]
    return f"{schema['name']}({', '.join(arguments)})"


def render(turn: Turn) -> tuple[Message, ...]:
    """Show a turn to the model: what it said, then what was observed and what it is warned of."""
    lines = [f"Observation: {observation.text}" for observation in turn.observations]
    lines += [f"Warning: {warning}" for warning in turn.warnings]
    messages = (Message("assistant", turn.thought), Message("user", "\n".join(lines)))
    return tuple(message for message in messages if message.content)
