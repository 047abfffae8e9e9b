"""Native function calling: every provider's shape, every broken one, and how a turn is sent back."""

from __future__ import annotations

import pytest

from agentloop import Act, Finish, Kind, Message, Observation, Reply, ToolCall, Turn
from paradigms.function_calling import read, render
from tests.check_function_calling import CASES, PROMISES, Case, check_case, one
from tests.check_parser import TOOLS


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    check_case(read, case)


@pytest.mark.parametrize("promise", [name for name in PROMISES if name != "the_cases_come_out_right"])
def test_promise(promise: str) -> None:
    PROMISES[promise](read)


def problem(reply: Reply) -> Observation:
    decision = read(reply, TOOLS)
    assert isinstance(decision, Act)
    seen = decision.calls[0].problem
    assert seen is not None and not seen.ok
    return seen


def test_an_answer_is_kept_as_what_was_said() -> None:
    assert read(Reply(" It is sunny.\n"), TOOLS) == Finish("It is sunny.", "It is sunny.")


def test_ids_are_left_for_the_loop_to_give() -> None:
    decision = read(one(id="c1", name="clock", arguments="{}"), TOOLS)
    assert isinstance(decision, Act) and decision.calls == (ToolCall("clock", {}),)


def test_a_call_that_is_one_already_is_taken_as_it_is() -> None:
    call = ToolCall("lookup", {"topic": "tea"})
    assert read(Reply("", (call,)), TOOLS) == Act((call,))


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (one(name="lookup", arguments='{"topic"'), "not valid JSON"),
        (one(name="lookup", arguments="[]"), "of type list, not an object"),
        (one(name="lookup", arguments='{"topic": "a", "topic": "b"}'), "'topic' is given twice"),
        (one(name="lookup", arguments='{"topic": "tea"} and more'), "this is left: ' and more'"),
        (one(name="pay", arguments='{"amount": 1' + "0" * 5000 + "}"), "A number is too long"),
        (one(name="lookup", params={}), "its keys are 'name', 'params'"),
        (one(foo="bar"), "names no tool; its keys are 'foo'"),
        (Reply("", (7,)), "must be an object, not int"),
        (Reply(""), "give the final answer as plain text"),
    ],
)
def test_a_problem_says_what_was_wrong(reply: Reply, said: str) -> None:
    assert said in problem(reply).text


def test_a_broken_call_keeps_its_name_and_is_never_run() -> None:
    decision = read(one(name="pay", arguments='{"amount": 9'), TOOLS)
    assert isinstance(decision, Act)
    seen = TOOLS.execute(decision.calls[0])
    assert decision.calls[0].name == "pay" and seen.kind is Kind.MALFORMED and not seen.ok


# --- Sending a turn back ----------------------------------------------------------------------


def test_a_turn_is_the_calls_and_a_tool_message_for_each() -> None:
    calls = (ToolCall("lookup", {"topic": "a"}, "1"), ToolCall("clock", {}, "2"))
    turn = Turn("I look.", calls, (Observation("A"), Observation("noon")), ("change direction",))
    assert render(turn) == (
        Message("assistant", "I look.", calls),
        Message("tool", "A", call_id="1"),
        Message("tool", "noon", call_id="2"),
        Message("user", "Warning: change direction"),
    )


def test_calls_without_text_are_still_shown() -> None:
    call = ToolCall("clock", {}, "1")
    assert render(Turn("", (call,), (Observation("noon"),)))[0] == Message("assistant", "", (call,))


def test_a_report_is_shown_in_words() -> None:
    seen = (Observation("The reply was empty", False),)
    assert render(Turn("", (ToolCall("", {}, "1"),), seen)) == (
        Message("user", "Observation: The reply was empty"),
    )
    assert render(Turn("42", (ToolCall("", {}, "1"),), seen))[0] == Message("assistant", "42")


def test_a_call_without_a_name_is_not_sent_back_as_one() -> None:
    good, nameless = ToolCall("clock", {}, "1"), ToolCall("", {}, "2")
    turn = Turn("", (nameless, good), (Observation("names no tool", False), Observation("noon")))
    assert render(turn) == (
        Message("assistant", "", (good,)),
        Message("tool", "noon", call_id="1"),
        Message("user", "Observation: names no tool"),
    )
