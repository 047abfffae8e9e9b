"""The text protocol: every case of the tables, every promise, and the prompt's own examples."""

from __future__ import annotations

import re
import warnings

import pytest

from agentloop import Act, Kind, Message, Observation, Reply, Toolbox, ToolCall, Turn
from paradigms.function_calling import read
from paradigms.literals import DEEPEST
from paradigms.text_protocol import contract, parse, render
from tests.check_parser import ERRATA, FAULTS, HABITS, PROMISES, TOOLS, Case, check_case, outcome, told


@pytest.mark.parametrize("case", [*FAULTS, *ERRATA, *HABITS], ids=lambda case: case.name)
def test_case(case: Case) -> None:
    check_case(parse, case)


@pytest.mark.parametrize("promise", [name for name in PROMISES if name != "the_cases_come_out_right"])
def test_promise(promise: str) -> None:
    PROMISES[promise](parse)


def test_a_story_is_told_in_plain_words() -> None:
    def last_action(text: str, tools: Toolbox) -> Act:
        return Act((ToolCall("pay", {"amount": 9}),), text)

    with pytest.raises(AssertionError) as told_of:
        check_case(last_action, FAULTS[1])
    assert "expected lookup(topic='tea')\ngot      pay(amount=9)" in str(told_of.value)


def test_the_same_reply_is_read_the_same_way_and_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        replies = [case.reply for case in (*FAULTS, *ERRATA, *HABITS)]
        assert [parse(reply, TOOLS) for reply in replies] == [parse(reply, TOOLS) for reply in replies]


def observation(reply: str) -> Observation:
    decision = parse(reply, TOOLS)
    assert isinstance(decision, Act)
    problem = decision.calls[0].problem
    assert problem is not None
    return problem


# --- What a model is told ---------------------------------------------------------------------


def test_without_an_action_the_article_is_quoted() -> None:
    text = observation("The answer is 42.").text
    assert text.startswith("未能解析到 Action 字段，请确保回复严格遵循 Thought: ... Action: ... 格式")
    assert "Finish[...]" in text


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("Action: None", "give the final answer"),
        ("Action: lookup(tea)", "'tea' is not a value: text must stand in quotes"),
        ('Action: weather(city="a", city="b")', "'city' is given twice"),
        ('Action: lookup("a", "b")', "2 values are given for the parameters (topic)"),
        ("Action: lookup", "The arguments are missing: topic"),
        ("Action: Finish[It is sunny", "never closed"),
        ("Action: Finish[]", "empty"),
        ("Action: Finish[your final answer]", "placeholder"),
        ("Action: do the thing", "After the name 'do' its arguments were expected"),
        ('Action: lookup(topic="tea" + "x")', "cannot be read at"),
        ('Action: lookup[{"topic": "tea"} and more]', "this is left: ' and more'"),
        (f"Action: pay(amount=1{'0' * 5000})", "A number is too long"),
        ("", "empty"),
    ],
)
def test_a_problem_says_what_was_wrong_and_what_is_right(reply: str, said: str) -> None:
    problem = observation(reply)
    assert said in problem.text
    assert "Action: tool_name(" in problem.text and "Action: Finish[...]" in problem.text
    assert not problem.ok and problem.kind in (Kind.MALFORMED, Kind.EMPTY_REPLY)


def test_what_is_kept_of_an_unreadable_reply_ends_before_the_invention() -> None:
    decision = parse("Thought: a\nAction: lookup(tea)\nObservation: 4\nFinal Answer: 4", TOOLS)
    assert decision.thought == "Thought: a\nAction: lookup(tea)"


# --- Prompts ----------------------------------------------------------------------------------


def examples(prompt: str) -> list[str]:
    return re.findall(r"^Thought: .*\nAction: .*$", prompt, re.MULTILINE)


def test_every_example_of_the_prompt_reads_as_one_instruction() -> None:
    def search(query: str, pages: int, exact: bool, sites: list[str], unit: str | None = None) -> str:
        return ""

    for tools in (TOOLS, Toolbox([search]), Toolbox([])):
        prompt = contract(tools)
        read = [parse(example, tools) for example in examples(prompt)]
        assert len(read) == (2 if tools.names else 1)
        for decision, example in zip(read, examples(prompt), strict=True):
            assert decision.thought == example
            for call in decision.calls if isinstance(decision, Act) else ():
                assert call.problem is None and call.name in tools.names
                assert not isinstance(tools.prepare(call), Observation), "the example fits its own tool"
    assert 'search(query="...", pages=1, exact=true, sites=[])' in contract(Toolbox([search]))


def test_the_prompt_lists_every_tool_and_the_rules() -> None:
    prompt = contract(TOOLS)
    assert all(name in prompt for name in TOOLS.names) and TOOLS.describe() in prompt
    assert "exactly one pair" in prompt and "Finish[" in prompt and "one line" in prompt


def test_without_tools_the_prompt_speaks_of_none() -> None:
    prompt = contract(Toolbox([]))
    assert "There are no tools." in prompt and "Action: Finish[" in prompt
    assert "These are" not in prompt and "call" not in prompt and "\n\n\n" not in prompt


@pytest.mark.parametrize("brackets", [DEEPEST - 1, DEEPEST])
def test_both_protocols_read_equally_deep(brackets: int) -> None:
    value = "[" * brackets + "]" * brackets
    arguments = f'{{"topic": {value}}}'
    native = read(Reply("", ({"name": "lookup", "arguments": arguments},)), TOOLS)
    texts = (f"Action: lookup {arguments}", f"Action: lookup({value})")
    for decision in (native, *(parse(text, TOOLS) for text in texts)):
        assert isinstance(decision, Act)
        problem = decision.calls[0].problem
        assert (problem is None) is (brackets < DEEPEST)
        assert problem is None or f"more than {DEEPEST} deep" in problem.text


def test_a_turn_is_shown_as_what_was_said_and_what_was_seen() -> None:
    turn = Turn(
        "Thought: a\nAction: lookup[tea]",
        (ToolCall("lookup", {}), ToolCall("lookup", {})),
        (Observation("4"), Observation("failed", False)),
        ("change direction",),
    )
    assert render(turn) == (
        Message("assistant", "Thought: a\nAction: lookup[tea]"),
        Message("user", "Observation: 4\nObservation: failed\nWarning: change direction"),
    )


def test_nothing_said_is_not_shown_as_a_message() -> None:
    turn = Turn("", (ToolCall("", {}),), (Observation("The reply was empty", False),))
    assert render(turn) == (Message("user", "Observation: The reply was empty"),)


def test_the_article_s_three_rounds_can_be_read() -> None:
    """EB17: the rounds of article B's example, with the answer that its third round leaves out."""
    rounds = (
        'Thought: 先查天气。\nAction: get_weather(city="北京")',
        'Thought: 再找景点。\nAction: get_attraction(city="北京", weather="Sunny")',
        "Thought: 可以回答了。\nAction: Finish[北京今天晴，推荐颐和园。]",
    )
    assert [told(outcome(parse, reply)[0]) for reply in rounds] == [
        "get_weather(city='北京')",
        "get_attraction(city='北京', weather='Sunny')",
        "the answer '北京今天晴，推荐颐和园。'",
    ]
