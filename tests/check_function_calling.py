"""What a reader of native calls promises: plain functions of one ``read(reply, tools)``.

``check_reader(read)`` raises ``AssertionError`` with a story in plain words. ``PROMISES`` holds the same
promises one by one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from agentloop import Act, Finish, Reply, Toolbox
from tests.check_parser import (
    ARGUMENTS,
    EMPTY,
    QUICK,
    TEA,
    TOOLS,
    UNREADABLE,
    Answer,
    Call,
    Problem,
    same,
    told,
)

Read = Callable[[Reply, Toolbox], Act | Finish]
Expected = tuple[Call | Problem, ...] | Answer | Problem


class Case(NamedTuple):
    """One reply, and what it comes to: one entry for each call, an answer, or a report."""

    name: str
    reply: Reply
    expected: Expected


def calls(*raw: Any, text: str = "") -> Reply:
    return Reply(text, raw)


def one(**raw: Any) -> Reply:
    return calls(raw)


CLOCK = Call("clock", {})
LYON = Call("weather", {"city": "Lyon"})
OPENAI = {"id": "c1", "type": "function", "function": {"name": "lookup", "arguments": '{"topic": "tea"}'}}

PAY = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": '{"amount": 9}'}}

def nested(depth: int) -> list[Any]:
    """A list in a list in a list."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


CASES = (
    Case("two calls of one id", calls(OPENAI, PAY), (TEA, Call("pay", {"amount": 9}))),
    Case("text as JSON", one(id="c1", name="lookup", arguments='{"topic": "tea"}'), (TEA,)),
    Case("text as an object", one(id="c1", name="lookup", arguments={"topic": "tea"}), (TEA,)),
    Case("an object nested without end", one(name="lookup", arguments={"topic": nested(100)}), (UNREADABLE,)),
    Case("a number without end", one(name="lookup", arguments={"topic": 10**5000}), (UNREADABLE,)),
    Case("OpenAI's shape", calls(OPENAI), (TEA,)),
    Case("T01 empty text", one(id="c1", name="clock", arguments=""), (CLOCK,)),
    Case("T01 blank text", one(id="c1", name="clock", arguments="  "), (CLOCK,)),
    Case("T01 nothing", one(id="c1", name="clock", arguments=None), (CLOCK,)),
    Case("T01 an empty object", one(id="c1", name="clock", arguments="{}"), (CLOCK,)),
    Case("T01 JSON's null", one(id="c1", name="clock", arguments="null"), (CLOCK,)),
    Case("T02 encoded twice", one(name="weather", arguments='"{\\"city\\": \\"Lyon\\"}"'), (LYON,)),
    Case(
        "T02 a value that looks like JSON",
        one(name="run_code", arguments={"code": '{"looks": "like json"}'}),
        (Call("run_code", {"code": '{"looks": "like json"}'}),),
    ),
    Case(
        "T02 encoded three times",
        one(name="clock", arguments=json.dumps(json.dumps(json.dumps({})))),
        (UNREADABLE,),
    ),
    Case(
        "T04 ids that repeat or are missing",
        calls(
            {"id": "c1", "name": "lookup", "arguments": {"topic": "a"}},
            {"id": "c1", "name": "lookup", "arguments": {"topic": "b"}},
            {"id": "", "name": "clock", "arguments": {}},
        ),
        (Call("lookup", {"topic": "a"}), Call("lookup", {"topic": "b"}), CLOCK),
    ),
    Case("T07 input", one(toolUseId="u1", name="lookup", input={"topic": "tea"}), (TEA,)),
    Case(
        "T07 toolUse", one(toolUse={"toolUseId": "u1", "name": "lookup", "input": {"topic": "tea"}}), (TEA,)
    ),
    Case("T07 args", one(name="lookup", args={"topic": "tea"}), (TEA,)),
    Case("T07 none of the shapes", one(foo="bar"), (UNREADABLE,)),
    Case("T07 a name and no arguments", one(name="lookup"), (UNREADABLE,)),
    Case("T07 a name and no arguments, none needed", one(name="clock"), (CLOCK,)),
    Case("not an object", calls("lookup"), (UNREADABLE,)),
    Case("no object at all", calls(None), (UNREADABLE,)),
    Case(
        "broken JSON among good calls",
        calls(OPENAI, {"name": "pay", "arguments": '{"amount": 9'}, OPENAI),
        (TEA, UNREADABLE, TEA),
    ),
    Case("a list for arguments", one(name="lookup", arguments='["tea"]'), (UNREADABLE,)),
    Case("a number for arguments", one(name="lookup", arguments=7), (UNREADABLE,)),
    Case("a key twice", one(name="weather", arguments='{"city": "Lyon", "city": "Paris"}'), (UNREADABLE,)),
    Case(
        "a key twice, further in",
        one(name="run_code", arguments='{"code": [{"a": 1, "a": 1}]}'),
        (UNREADABLE,),
    ),
    Case("an object and more", one(name="lookup", arguments='{"topic": "tea"} and more'), (UNREADABLE,)),
    Case(
        "nested very deep",
        one(name="lookup", arguments='{"topic": ' + "[" * 400 + "]" * 400 + "}"),
        (UNREADABLE,),
    ),
    Case("nested past all bounds", one(name="lookup", arguments='{"topic": ' + "[" * 100_000), (UNREADABLE,)),
    Case("an unknown tool is named as it is", one(name="look_up", arguments="{}"), (Call("look_up", {}),)),
    Case("text beside the calls", calls(OPENAI, text="I look it up."), (TEA,)),
    Case("plain text", Reply("It is sunny."), Answer("It is sunny.")),
    Case("plain text in the other protocol's labels", Reply("Action: pay(9)"), Answer("Action: pay(9)")),
    Case("L07 nothing", Reply(""), EMPTY),
    Case("L07 blank", Reply(" \n "), EMPTY),
)


def outcome(read: Read, reply: Reply) -> Expected:
    """What a reply came to. Raises with a story for anything else."""
    try:
        decision = read(reply, TOOLS)
    except Exception as error:
        raise AssertionError(f"for {shown(reply)}: expected a decision, got {told(error)}") from error
    if isinstance(decision, Finish):
        return Answer(decision.answer)
    came = tuple(
        Call(call.name, dict(call.arguments)) if call.problem is None else Problem(call.problem.kind)
        for call in decision.calls
    )
    if not reply.tool_calls and len(came) == 1 and isinstance(came[0], Problem):
        return came[0]
    assert decision.thought == reply.text, f"for {shown(reply)}: the text beside the calls was not kept"
    return came


def shown(reply: Reply) -> str:
    return f"text {reply.text!r} and calls {str(reply.tool_calls)[:300]}"


def check_case(read: Read, case: Case) -> None:
    """The reply comes to what its provider meant; what is broken is described and nothing is made up."""
    got = outcome(read, case.reply)
    assert same(got, case.expected), (
        f"{case.name}: for {shown(case.reply)}\nexpected {listed(case.expected)}\ngot      {listed(got)}"
    )


def listed(expected: Expected) -> str:
    return ", ".join(map(told, expected)) if type(expected) is tuple else told(expected)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from(("name", "function", "toolUse", "arguments", "input", "args", "id"))
RAW = JSON | st.dictionaries(KEYS, JSON | st.dictionaries(KEYS, JSON, max_size=3), max_size=4)


def it_never_breaks_down(read: Read) -> None:
    """Whatever a provider sends, one decision comes of it, with one entry for each call, in order."""

    @QUICK
    @given(st.text(), st.lists(RAW, max_size=3))
    def prove(text: str, raw: list[Any]) -> None:
        got = outcome(read, Reply(text, tuple(raw)))
        entries = len(got) if type(got) is tuple else 0
        assert entries == len(raw), f"{len(raw)} calls became {entries}"

    prove()


def arguments_are_kept(read: Read) -> None:
    """Arguments arrive as they were sent: as an object, as JSON text, and as text encoded twice."""

    @QUICK
    @given(ARGUMENTS)
    def prove(arguments: dict[str, Any]) -> None:
        once = json.dumps(arguments)
        for sent in (arguments, once, json.dumps(arguments, ensure_ascii=False, indent=1), json.dumps(once)):
            got = outcome(read, one(name="lookup", arguments=sent))
            assert same(got, (Call("lookup", arguments),)), f"sent {sent!r}, got {listed(got)}"

    prove()


def the_cases_come_out_right(read: Read) -> None:
    """Every reply of the table comes to what its provider meant."""
    for case in CASES:
        check_case(read, case)


PROMISES: dict[str, Callable[[Read], None]] = {
    promise.__name__: promise
    for promise in (the_cases_come_out_right, it_never_breaks_down, arguments_are_kept)
}


def check_reader(read: Read) -> None:
    """Put a reader of calls under every promise. Raises ``AssertionError`` with the first broken one."""
    for promise in PROMISES.values():
        promise(read)
