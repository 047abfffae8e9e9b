"""What a parser of the text protocol promises: plain functions of one ``parse(text, tools)``.

``check_parser(parse)`` raises ``AssertionError`` with a story in plain words: the reply, what it
should have come to, what it came to. It runs on ours, on wrong versions, and on a reader's own.
``PROMISES`` holds the same promises one by one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from textwrap import indent
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentloop import Act, Finish, Kind, Toolbox

Parse = Callable[[str, Toolbox], Act | Finish]


#: Never run here: a parser needs only their names and parameters.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "lookup": lambda topic: "",
    "weather": lambda city, days=1, note="": "",
    "run_code": lambda code: "",
    "length": lambda text: "",
    "clock": lambda: "",
    "poll": lambda job: "",
    "pay": lambda amount: "",
    "kv.get-item": lambda key: "",
    "查询": lambda topic: "",
}
TOOLS = Toolbox(FUNCTIONS)


class Call(NamedTuple):
    """The reply is one call of a tool."""

    name: str
    arguments: dict[str, Any]


class Answer(NamedTuple):
    """The reply is a final answer."""

    text: str


class Problem(NamedTuple):
    """The reply cannot be read, and the model is told why."""

    kind: Kind = Kind.MALFORMED


class Case(NamedTuple):
    """One reply and what a careful reader makes of it. ``thought`` is what is kept, where it matters."""

    name: str
    reply: str
    expected: Call | Answer | Problem
    thought: str | None = None


TEA = Call("lookup", {"topic": "tea"})
LYON = Call("weather", {"city": "Lyon"})
BEIJING = Call("weather", {"city": "北京"})
UNREADABLE = Problem()
EMPTY = Problem(Kind.EMPTY_REPLY)

#: The public faults of real agent loops, by their ids.
FAULTS = (
    Case(
        "P01 an invented observation and answer",
        'Thought: need the price\nAction: lookup\nAction Input: {"topic": "tea"}\n'
        "Observation: tea costs 4\nThought: done\nFinal Answer: 4",
        TEA,
        'Thought: need the price\nAction: lookup\nAction Input: {"topic": "tea"}',
    ),
    Case(
        "P02 several pairs in one reply",
        'Thought: a\nAction: lookup\nAction Input: {"topic": "tea"}\n\n'
        'Thought: b\nAction: pay\nAction Input: {"amount": 9}',
        TEA,
        'Thought: a\nAction: lookup\nAction Input: {"topic": "tea"}',
    ),
    Case(
        "P03 an answer, then what looks like an action",
        "Final Answer: Scene card\n\nAction: the hero lifts the gate\nAction Input: none",
        Answer("Scene card"),
    ),
    Case(
        "P04 no tool is needed",
        "Thought: no tool can do this\nAction: None (answer directly)\nAction Input: none",
        UNREADABLE,
    ),
    Case("P04 N/A", "Thought: x\nAction: N/A", UNREADABLE),
    Case("P05 bold labels", "**Thought:** x\n**Action:** lookup[tea]", TEA),
    Case("P05 bold before the colon", "**Thought**: x\n**Action**: lookup[tea]", TEA),
    Case(
        "P05 all in a fence", '```text\nThought: x\nAction: lookup\nAction Input: {"topic": "tea"}\n```', TEA
    ),
    Case("P05 all in a fence, plain value", "```\nThought: x\nAction: lookup\nAction Input: tea\n```", TEA),
    Case("P05 backticks around the call", "Thought: x\nAction: `lookup[tea]`", TEA),
    Case("P05 backticks around name and value", "Action: `lookup`\nAction Input: `tea`", TEA),
    Case(
        "P07 braces inside a string",
        'Thought: t\nAction: run_code\nAction Input: {"code": "d = {1: {2: 3}}; s = \'}\'"}',
        Call("run_code", {"code": "d = {1: {2: 3}}; s = '}'"}),
    ),
    Case(
        "P08 a Python dict and prose after it",
        "Thought: t\nAction: lookup\n"
        "Action Input: {'topic': \"what's new\", 'fresh': True, 'limit': None,}, roughly.",
        Call("lookup", {"topic": "what's new", "fresh": True, "limit": None}),
    ),
    Case(
        "P10 brackets, commas and escaped quotes inside strings",
        'Action: weather(city="Lyon (old)", days=3, metric=True, note="say \\"hi\\", ok")',
        Call("weather", {"city": "Lyon (old)", "days": 3, "metric": True, "note": 'say "hi", ok'}),
    ),
    Case("P10 a positional value", 'Action: lookup("tea")', TEA),
    Case("P10 no arguments", "Action: clock()", Call("clock", {})),
    Case(
        "P11 an answer with brackets, over two lines",
        "Action: Finish[Line one [1]\nLine two]",
        Answer("Line one [1]\nLine two"),
    ),
    Case("P11 a space before the bracket", "Action: Finish [ok]", Answer("ok")),
    Case("P11 finish as a call", 'Action: finish(answer="ok")', Answer("ok")),
    Case(
        "P13 an action that was thought of and dropped",
        '<think>maybe\nAction: pay\nAction Input: {"amount": 9}\n</think>\n'
        'Thought: safe\nAction: lookup\nAction Input: {"topic": "tea"}',
        TEA,
        'Thought: safe\nAction: lookup\nAction Input: {"topic": "tea"}',
    ),
    Case("P13 thinking never ended", "<think>still thinking, Action: pay", EMPTY),
    Case("P13 thinking never ended, on a line", "<think>still\nAction: pay(amount=9)", EMPTY),
    Case("P13 nested", "<think>a<think>b</think>\nAction: pay(9)\n</think>\nAction: lookup[tea]", TEA),
    Case("P13 opened in the prompt", "maybe\nAction: pay(9)\n</think>\nAction: lookup[tea]", TEA),
    Case("P13 the whole reply is one block", "<think>x\nAction: lookup[tea]\n</think>", TEA),
    Case(
        "P13 the whole reply is one block, of two minds",
        "<think>x\nAction: pay(9)\nNo.\nAction: lookup[tea]\n</think>",
        EMPTY,
    ),
    Case(
        "P14 half a stop word",
        "Thought: t\nAction: length\nAction Input: 'abc'\nObserv",
        Call("length", {"text": "abc"}),
    ),
    Case(
        "P14 half a stop word, plain value",
        "Action: length\nAction Input: abc\nObserv",
        Call("length", {"text": "abc"}),
    ),
    Case("P14 a leaked token", 'Action: lookup\nAction Input: {"topic": "tea"}<|tool_call_end|>', TEA),
    Case(
        "P14 a leaked token, plain value",
        "Action: lookup\nAction Input: tea<|im_end|>\n<|im_start|>user\nhi",
        TEA,
    ),
    Case(
        "P14 a table is no token",
        'Action: lookup\nAction Input: {"topic": "| a | b |"}',
        Call("lookup", {"topic": "| a | b |"}),
    ),
    Case(
        "P16 labels without colons",
        'Thought\nneed it\nAction\nlookup\nAction Input:\n{"topic": "tea"}',
        UNREADABLE,
    ),
    Case(
        "P16 bare JSON", '{"tool_call": {"action": "lookup", "action_input": {"topic": "tea"}}}', UNREADABLE
    ),
    Case("P16 plain text", "The answer is 42.", UNREADABLE),
    Case("L07 nothing", "", EMPTY),
    Case("L07 blank", " \n\t ", EMPTY),
)

#: The faults of the articles' own parsers, each in its right form.
ERRATA = (
    Case("EA12 the marker, then the answer", "done\n[FINAL_ANSWER] 42", Answer("42")),
    Case("EA12 a closing marker", "[FINAL_ANSWER]\n42\n[/FINAL_ANSWER]", Answer("42")),
    Case("EA12 nothing after the marker", "The answer is 42\n[TASK_COMPLETE]", UNREADABLE),
    Case("EA12 the other marker", "[TASK_COMPLETE] 42", Answer("42")),
    Case("EA13 the marker is only mentioned", "Not [FINAL_ANSWER] yet.\nAction: lookup[tea]", TEA),
    Case("EA14 arguments over lines", 'Action: lookup Args: {\n  "topic": "tea"\n}', TEA),
    Case(
        "EA15 dots and hyphens", 'Action: kv.get-item Args: {"key": "k"}', Call("kv.get-item", {"key": "k"})
    ),
    Case("EA15 a Chinese name", '行动：查询(topic="茶")', Call("查询", {"topic": "茶"})),
    Case("EA15 brackets from the prompt", "Action: [lookup] Args: [tea]", TEA),
    Case("EA15 a full-width colon", "Action：lookup Args：tea", TEA),
    Case("EA26 code is not run", 'Action: run_code(code=__import__("os").getcwd())', UNREADABLE),
    Case(
        "EA27 JSON's own words", 'Action: x Args: {"a": true, "b": null}', Call("x", {"a": True, "b": None})
    ),
    Case("EA27 a set is no object", "Action: lookup Args: {1, 2}", UNREADABLE),
    Case("EA27 half an object", 'Action: lookup Args: {"topic": "tea"', UNREADABLE),
    Case(
        "EA28 nested objects", 'Action: x Args: {"a": {"b": {}}, "c": 1}', Call("x", {"a": {"b": {}}, "c": 1})
    ),
    Case("EA29 a bare value", "Action: weather Args: 北京", BEIJING),
    Case("EA29 a quoted bare value", 'Action: weather Args: "北京"', BEIJING),
    Case(
        "EA31 the second example",
        "Action: [FINAL_ANSWER] Args: 建议带伞，可能有雨。",
        Answer("建议带伞，可能有雨。"),
    ),
    Case("EB02 a thought that mentions a label", 'Thought: my Action: is next\nAction: lookup("tea")', TEA),
    Case(
        "EB02 an observation on the same line",
        'Action: lookup("tea") Observation: 4',
        TEA,
        'Action: lookup("tea")',
    ),
    Case("EB03 the article's example", 'Thought: 查天气。\nAction: weather("北京")', BEIJING),
    Case(
        "EB04 values of each kind",
        "Action: x(a=-1.5, b=False, c=null, d='q')",
        Call("x", {"a": -1.5, "b": False, "c": None, "d": "q"}),
    ),
    Case(
        "EB04 full-width signs",
        "Action: weather（city ＝ “北京”，days＝3）",
        Call("weather", {"city": "北京", "days": 3}),
    ),
    Case(
        "EB04 an argument inside a value",
        "Action: lookup(topic=\"a, city='b'\")",
        Call("lookup", {"topic": "a, city='b'"}),
    ),
    Case("EB04 a hyphenated key", 'Action: x(item-key="a")', UNREADABLE),
    Case("EB04 text without quotes", "Action: weather(city=北京)", UNREADABLE),
    Case("EB05 a space before the bracket", 'Action: kv.get-item ("k")', Call("kv.get-item", {"key": "k"})),
    Case("EB06 two calls on a line", 'Action: lookup("tea") Action: pay(9)', TEA, 'Action: lookup("tea")'),
    Case("EB06 a remark in brackets", 'Action: lookup("tea") (see there)', TEA),
    Case("EB06 text over lines", 'Action: run_code(code="a\nb")', Call("run_code", {"code": "a\nb"})),
    Case("EB07 half a call", 'Action: lookup("tea"', UNREADABLE),
    Case("EB08 an answer that mentions a tool", "Action: Finish[use pay(9)]", Answer("use pay(9)")),
    Case("EB08 never closed", "Action: Finish[It is sunny", UNREADABLE),
)

#: Replies of the kinds that a small model really writes to the articles' prompt.
HABITS = (
    Case(
        "a whole run in one reply",
        'Thought: a\nAction: weather(city="Lyon")\nObservation: hot\nThought: b\nAction: Finish[hot]',
        LYON,
    ),
    Case(
        "a conversation with itself",
        'Action: weather(city="Lyon")<|im_end|>\n<|im_start|>user\nObservation: hot',
        LYON,
    ),
    Case(
        "an arrow and a result",
        'Action: weather(city="Lyon") => Lyon weather\nAction: weather(city="Paris") => x',
        LYON,
    ),
    Case("a greeting first", 'Yes.\n\nThought: a\nAction: weather("Lyon")\n\nYou can just add it.', LYON),
    Case("the label twice", "Action: Action: Finish[hot]", Answer("hot")),
    Case("the call on the next line", 'Action: \nweather("Lyon")', LYON),
    Case("a wrong tool is named as it is", 'Action: Weather(city="Lyon")', Call("Weather", {"city": "Lyon"})),
    Case("a parameter twice", 'Action: weather(city="Lyon", city="Paris")', UNREADABLE),
    Case("a key twice", 'Action: weather Args: {"city": "Lyon", "city": "Paris"}', UNREADABLE),
    Case("too many values", 'Action: lookup("tea", "coffee")', UNREADABLE),
    Case("a value twice", 'Action: lookup("tea", topic="coffee")', UNREADABLE),
    Case("only an observation", "Observation: hot\nAction: pay(amount=9)", EMPTY),
    Case("calls in a list", '- weather(city="Lyon")\n- weather(city="Paris")', UNREADABLE),
    Case("another's turn", "Sure.<|im_end|>\n<|im_start|>user\nAction: pay(9)", UNREADABLE, "Sure."),
    Case("nothing but tokens", "<|im_end|>\n<|im_start|>user\n<|im_end|>", EMPTY),
    Case("its own turn's header", "<|im_start|>assistant\nAction: lookup[tea]<|im_end|>", TEA),
    Case("prose for an action", "Action: I need to look up tea", UNREADABLE),
    Case("the prompt's placeholder", "Action: Finish[your final answer]", UNREADABLE),
    Case("the prompt's placeholder in Chinese", "Action: Finish[最终答案]", UNREADABLE),
    Case("an empty answer", "Action: Finish[ ]", UNREADABLE),
    Case("an empty answer after its label", "Final Answer:", UNREADABLE),
    Case(
        "Chinese labels",
        "思考：查天气\n行动：weather(city=“北京”)\n观察：晴",
        BEIJING,
        "思考：查天气\n行动：weather(city=“北京”)",
    ),
    Case("a Chinese answer", "思考：好了\n最终答案：晴", Answer("晴")),
    Case("labels in small letters", 'thought: x\naction: lookup\naction input: {"topic": "tea"}', TEA),
    Case("numbered labels, as in the paper", "Thought 1: x\nAction 1: lookup[tea]\nObservation 1: 4", TEA),
    Case("JSON in a fence", 'Action: lookup\nAction Input:\n```json\n{"topic": "tea"}\n```', TEA),
    Case(
        "code in a fence",
        "Action: run_code\nAction Input:\n```python\na = 1\nb = 2\n```",
        Call("run_code", {"code": "a = 1\nb = 2"}),
    ),
    Case(
        "code over lines",
        "Action: run_code\nAction Input: a = 1\nb = 2\nThought: x",
        Call("run_code", {"code": "a = 1\nb = 2"}),
    ),
    Case("an object for all arguments", 'Action: lookup({"topic": "tea"})', TEA),
    Case("an object right after the name", 'Action: lookup {"topic": "tea"}', TEA),
    Case("empty brackets, then the input", 'Action: weather()\nAction Input: {"city": "Lyon"}', LYON),
    Case("a colon for an equals sign", 'Action: weather(city: "Lyon")', LYON),
    Case("a named value in square brackets", 'Action: lookup[topic="tea"]', TEA),
    Case("an object in square brackets", 'Action: lookup[{"topic": "tea"}]', TEA),
    Case("an object and more in square brackets", 'Action: lookup[{"topic": "tea"} and more]', UNREADABLE),
    Case("a named value and more", 'Action: lookup[topic="tea") and (more]', UNREADABLE),
    Case(
        "a value that only begins with a quote",
        'Action: length Args: "a" and "b"',
        Call("length", {"text": '"a" and "b"'}),
    ),
    Case("a tool without parameters, named alone", "Action: clock\n", Call("clock", {})),
    Case("a tool without parameters, input None", "Action: clock\nAction Input: None", Call("clock", {})),
    Case("a tool without parameters, with an input", "Action: clock\nAction Input: now", UNREADABLE),
    Case("the arguments are missing", "Action: lookup", UNREADABLE),
    Case("Final Answer as an action", "Action: Final Answer\nAction Input: 42", Answer("42")),
    Case("a bold answer's label", "**Final Answer:** 42", Answer("42")),
    Case("a bold answer", "Final Answer: **42**", Answer("**42**")),
    Case("an answer and a new question", "Final Answer: 42\nThought: next\nAction: pay(9)", Answer("42")),
    Case("Finish without a label", "Thought: done\nFinish[42]", Answer("42")),
    Case(
        "brackets around the middle of a value",
        "Action: length[a) and (b]",
        Call("length", {"text": "a) and (b"}),
    ),
    Case(
        "quotes around the ends of a value",
        'Action: length Args: "a") and ("b"',
        Call("length", {"text": '"a") and ("b"'}),
    ),
    Case("a named value without quotes", "Action: lookup Args: topic=tea", UNREADABLE),
    Case("a name without a value", "Action: lookup(topic=)", UNREADABLE),
    Case("the wrong closing bracket", 'Action: lookup("tea"]', UNREADABLE),
    Case("quotes by three, never closed", 'Action: lookup("""tea")', UNREADABLE),
    Case("quotes by three", 'Action: lookup("""a "b" c""")', Call("lookup", {"topic": 'a "b" c'})),
    Case(
        "JSON with text over lines",
        'Action: run_code Args: {"code": "a\nb"}',
        Call("run_code", {"code": "a\nb"}),
    ),
    Case("a number that begins with 0", "Action: pay(amount=007)", UNREADABLE),
    Case("an observation after an odd space", "\u2028Observation: 4\nAction: pay(9)", EMPTY),
    Case("a date without quotes", "Action: lookup(topic=2024-11-12)", UNREADABLE),
    Case(
        "an unknown escape is a backslash", r'Action: lookup(topic="\d+")', Call("lookup", {"topic": r"\d+"})
    ),
    Case("half an emoji twice", r'Action: lookup(topic="\ud83d\ude00")', Call("lookup", {"topic": "😀"})),
    Case(
        "thinking inside a value", 'Action: lookup("a <think> b")', Call("lookup", {"topic": "a <think> b"})
    ),
)


def story(reply: str, expected: object, got: object) -> str:
    return f"for the reply\n\n{shown(reply)}\n\nexpected {told(expected)}\ngot      {told(got)}"


def shown(reply: str) -> str:
    """A reply as a part of a story: set in, cut where it is long, and written out where it is odd."""
    short = reply if len(reply) <= 500 else f"{reply[:200]} [{len(reply):,} characters] {reply[-50:]}"
    plain = short.strip() and all(line.isprintable() for line in short.split("\n"))
    return indent(short if plain else repr(short), "    ")


def told(decision: object) -> str:
    """Say in plain words what a decision, or an expectation, is."""
    match decision:
        case Call(name, arguments):
            return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
        case Answer(text):
            return f"the answer {text!r}"
        case Problem(kind):
            return f"a report that {kind.value}"
        case BaseException():
            return f"an exception, {type(decision).__name__}: {str(decision)[:200]}".removesuffix(": ")
        case str():
            return decision
    return repr(decision)[:300]


def outcome(parse: Parse, reply: str) -> tuple[Call | Answer | Problem, str]:
    """What a reply came to, and the thought that is kept. Raises with a story for anything else."""
    try:
        decision = parse(reply, TOOLS)
    except Exception as error:
        raise AssertionError(story(reply, "a decision", error)) from error
    match decision:
        case Finish(str(answer), str(thought)):
            return Answer(answer), thought
        case Act((call,), str(thought)) if call.problem is None and call.name:
            return Call(call.name, dict(call.arguments)), thought
        case Act((call,), str(thought)) if (
            call.problem is not None and call.problem.text and not call.problem.ok
        ):
            return Problem(call.problem.kind), thought
    raise AssertionError(story(reply, "an Act of one call or one problem, or a Finish with a text", decision))


def same(got: object, expected: object) -> bool:
    """Equal, and of the same types all the way down: 1 is neither True nor 1.0."""
    return got == expected and repr(got) == repr(expected)


def check_case(parse: Parse, case: Case) -> None:
    """The reply comes to what a careful reader makes of it, and no more of it is kept than should be."""
    got, thought = outcome(parse, case.reply)
    order = dict(sorted(got.arguments.items())) if isinstance(got, Call) else None
    wanted = dict(sorted(case.expected.arguments.items())) if isinstance(case.expected, Call) else None
    assert type(got) is type(case.expected) and got == case.expected and same(order, wanted), (
        f"{case.name}: {story(case.reply, case.expected, got)}"
    )
    for label in ("\nObservation", "\n观察", "<|im_"):
        assert label not in "\n" + thought, f"{case.name}: kept what the model invented\n\n{shown(thought)}"
    if case.thought is not None:
        assert thought == case.thought, (
            f"{case.name}: of the reply\n\n{shown(case.reply)}\n\nthis should be kept\n\n"
            f"{shown(case.thought)}\n\nand this was\n\n{shown(thought)}"
        )


# --- Properties -------------------------------------------------------------------------------

QUICK = settings(deadline=None, suppress_health_check=list(HealthCheck), database=None)

PIECES = (
    *(
        "Thought:",
        "Action:",
        "Action Input:",
        "Args:",
        "Observation:",
        "Final Answer:",
        "[FINAL_ANSWER]",
        "Finish[",
    ),
    *(
        "lookup",
        "clock",
        "pay",
        "topic=",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        '"',
        "'",
        "“",
        "”",
        "\\",
        ",",
        ":",
        "：",
        "-",
    ),
    *(
        "<think>",
        "</think>",
        "```",
        "**",
        "`",
        "\n",
        " ",
        "\t",
        "tea",
        "北京",
        "1",
        "-1e9",
        "true",
        "None",
        "#",
        "\x00",
    ),
    *(
        "<|im_end|>",
        "<|im_start|>",
        "\ud800",
        "\u2028",
        "行动：",
        "Observ",
        '\\"',
        '"""',
        "N/A",
        "\r\n",
        "*" * 9,
    ),
)
REPLIES = st.one_of(
    st.text(alphabet=st.characters(exclude_categories=[])),
    st.lists(st.sampled_from(PIECES), max_size=30).map("".join),
    st.lists(st.sampled_from(PIECES), max_size=20).map(lambda pieces: "Action: lookup" + "".join(pieces)),
)
#: Texts that look like something else, and texts of any kind.
TEXTS = st.sampled_from(("3", "1.10", "true", "null", '{"looks": "like json"}')) | st.text(
    alphabet=st.one_of(st.sampled_from("()[]{}\"'\\,=:：“”\n\t #`*<|>北京"), st.characters(codec="utf-8"))
)
VALUES = st.recursive(
    st.one_of(
        TEXTS,
        st.integers(-(10**12), 10**12),
        st.floats(allow_nan=False, allow_infinity=False),
        st.booleans(),
        st.none(),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(
    st.sampled_from(("topic", "city", "days", "主题", "_x1")), VALUES, min_size=1, max_size=3
)


def _python_call(arguments: dict[str, Any]) -> str:
    return f"({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"


def _json_call(arguments: dict[str, Any]) -> str:
    written = (f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())
    return f"({', '.join(written)})"


#: Each way to write a call: what stands between the name and the end of the instruction.
SPELLINGS: dict[str, Callable[[dict[str, Any]], str]] = {
    "a call in Python": _python_call,
    "a call with JSON values": _json_call,
    "Args: and JSON": lambda arguments: f" Args: {json.dumps(arguments)}",
    "Action Input: and JSON over lines": lambda a: (
        f"\nAction Input: {json.dumps(a, indent=2, ensure_ascii=False)}"
    ),
    "Action Input: and a Python dict": lambda arguments: f"\nAction Input: {arguments!r}",
    "an object as the only value": lambda arguments: f" {json.dumps(arguments)}",
}
NAMES = ("lookup", "weather", "kv.get-item", "查询", "no_such_tool")
BEFORE = (
    "",
    "Thought: x\n",
    "Thought: about Action: pay(9)\n",
    "<think>Action: pay(9)\nhm</think>\n",
    "<think>\nAction: pay(9)\n</think>\n",
    "好的。\n",
)
AFTER = (
    "",
    "\nObservation: 4\nThought: done\nFinal Answer: 4",
    "\nThought: b\nAction: pay(amount=9)",
    "\nFinal Answer: 9",
    "\nAction: pay[9]\n]})\"'",
    "<|im_end|>\n<|im_start|>user\nAction: pay(9)",
)


def it_never_breaks_down(parse: Parse) -> None:
    """Any text is answered with one decision; no exception escapes, however odd the text."""

    @QUICK
    @given(REPLIES)
    def prove(reply: str) -> None:
        _, thought = outcome(parse, reply)
        assert "\nObservation:" not in "\n" + thought, f"kept what the model invented\n\n{shown(thought)}"

    prove()
    deep = "[" * 400 + "]" * 400
    for reply in (f'Action: x Args: {{"a": {deep}}}', f"Action: x(a={deep})", f"Action: x(a={'-' * 9999}1)"):
        got, _ = outcome(parse, reply)
        assert isinstance(got, Problem), (
            f"values nested 400 deep break whoever copies or writes them: {reply[:40]}..."
        )


def what_is_written_is_read(parse: Parse) -> None:
    """A call comes back as it was written, in every spelling, with its values and their types."""

    @QUICK
    @given(st.sampled_from(sorted(SPELLINGS)), st.sampled_from(NAMES), ARGUMENTS)
    def prove(spelling: str, name: str, arguments: dict[str, Any]) -> None:
        reply = f"Thought: x\nAction: {name}{SPELLINGS[spelling](arguments)}"
        got, _ = outcome(parse, reply)
        right = isinstance(got, Call) and same(got, Call(name, arguments))
        assert right, f"{spelling}: {story(reply, Call(name, arguments), got)}"

    prove()

    words = (
        st.text(alphabet="ab北 .,()'\"\n1*", min_size=1)
        .map(str.strip)
        .filter(lambda text: text.strip("() \"'*."))
    )

    @QUICK
    @given(words, words)
    def prove_answers(text: str, more: str) -> None:
        for answer in (text, f"{text} [{more}]"):
            reply = f"Thought: x\nAction: Finish[{answer}]"
            got, _ = outcome(parse, reply)
            assert got == Answer(answer), story(reply, Answer(answer), got)

    prove_answers()


def the_first_instruction_wins(parse: Parse) -> None:
    """Nothing after the first complete instruction, and nothing inside ``<think>``, is done or kept."""

    @QUICK
    @given(st.sampled_from(BEFORE), st.sampled_from(sorted(SPELLINGS)), ARGUMENTS, st.sampled_from(AFTER))
    def prove(before: str, spelling: str, arguments: dict[str, Any], after: str) -> None:
        instruction = f"Action: lookup{SPELLINGS[spelling](arguments)}"
        reply = before + instruction + after
        got, thought = outcome(parse, reply)
        assert got == Call("lookup", arguments), story(reply, Call("lookup", arguments), got)
        assert thought.endswith(instruction), (
            f"of the reply\n\n{shown(reply)}\n\nthis was kept\n\n{shown(thought)}"
        )

    prove()
    for answer in ("Action: Finish[ok]", "Final Answer: ok", "[FINAL_ANSWER] ok", "最终答案：ok"):
        for before in BEFORE:
            for after in AFTER:
                got, thought = outcome(parse, before + answer + after)
                assert got == Answer("ok"), story(before + answer + after, Answer("ok"), got)
                assert thought.endswith(answer), f"kept more than the answer's line\n\n{shown(thought)}"


def no_part_of_a_call_is_run(parse: Parse) -> None:
    """A call that was cut off anywhere is reported; it is never made with the arguments so far."""
    written = (
        "weather(city=\"Lyon\", days=3, note='a')",
        'weather Args: {"city": "Lyon", "days": 3, "note": ["a"]}',
        "weather\nAction Input: {'city': 'Lyon', 'days': 3, 'note': True}",
        "weather（city＝“Lyon”，days＝3）",
    )
    for call in written:
        for end in range(len("weather") + 1, len(call)):
            reply = f"Action: {call[:end]}"
            got, _ = outcome(parse, reply)
            assert isinstance(got, Problem), story(reply, UNREADABLE, got)


STARTS = (
    "",
    "Action: lookup",
    "Action: lookup(",
    'Action: lookup("',
    "Action: lookup Args: ",
    "Action: Finish[",
    "<think>",
    "Final Answer: ",
)
#: Texts that, said over and over, make a parser go back to what it has already read.
REPEATED = (
    *("(", "[", "{", '"', "'", '\\"', '"""\\"', "1,", "a=", "-", " ", "\n", " \n", "*", "`", "```", "“"),
    *("<|", "<|begin", "<|im_start|>", "<think>", "</think>", "\n</think>", "<think></think>"),
    *("Action:", "Action: ", "Action:\n", "Action ", "Action: x(", "Thought: ", "Observ", "Final Answer\n"),
    *("[FINAL_ANSWER] ", "finish ", "Finish[", "# ", '{"a":', "a b\n", "N/A "),
)


def long_replies_are_read(parse: Parse) -> None:
    """A reply of 20,000 characters is answered with one decision, whatever is said over and over in it.

    No time is taken here. A parser that goes back over what it has read needs minutes, hours or years.
    """
    for start in STARTS:
        for piece in REPEATED:
            outcome(parse, start + piece * (20_000 // len(piece)))


def the_cases_come_out_right(parse: Parse) -> None:
    """Every reply of the tables comes to what a careful reader makes of it."""
    for case in (*FAULTS, *ERRATA, *HABITS):
        check_case(parse, case)


PROMISES: dict[str, Callable[[Parse], None]] = {
    promise.__name__: promise
    for promise in (
        the_cases_come_out_right,
        it_never_breaks_down,
        what_is_written_is_read,
        the_first_instruction_wins,
        no_part_of_a_call_is_run,
        long_replies_are_read,
    )
}


def check_parser(parse: Parse) -> None:
    """Put a parser under every promise. Raises ``AssertionError`` with the first story that breaks one."""
    for promise in PROMISES.values():
        promise(parse)
