"""What the guard of a critical tool promises: plain functions of a factory ``critical(act, tools)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    AgentLoop,
    AskHuman,
    Interrupt,
    Kind,
    Limits,
    LoopError,
    Observation,
    Program,
    StopReason,
    ToolCall,
    World,
    call_tool,
    drive,
    settle,
)
from tests.check_approval import (
    DELETE,
    LOOK,
    PAY,
    Hook,
    Office,
    examples,
    nested,
    reason,
    repeating,
    run,
    seen,
)
from tests.check_toolbox import expect

Make = Callable[..., Hook]
TOOLS = ("pay",)
DECISIONS = ("retry", "stop", "停止")


def what_succeeds_disturbs_nobody(make: Make) -> None:
    """A critical call that succeeds, and one that is not critical and fails, are nobody's decision."""
    ran = run(make(call_tool, TOOLS), Office(), PAY)
    expect(ran.office.questions == [] and seen(ran)[0].ok, f"it succeeded: {ran.office.questions}")
    ran = run(make(call_tool, TOOLS), Office(fails=1), LOOK)
    expect(ran.office.questions == [], f"look is not critical, and it asks {ran.office.questions}")
    expect(seen(ran)[0].kind is Kind.UNAVAILABLE, f"look failed, and the model is told {seen(ran)[0]}")


def retry_is_once(make: Make) -> None:
    """``retry``: the call is made once more, and that is its result; nobody is asked again (EA53)."""
    for fails, deeds in ((1, [("pay", 9)]), (2, []), (9, [])):
        ran = run(make(call_tool, TOOLS), Office(["retry"], fails), PAY)
        expect(ran.office.deeds == deeds, f"it fails {fails} times, and {ran.office.deeds} was done")
        asked, tries = len(ran.office.questions), ran.result.control.tool_calls
        expect(asked == 1, f"it fails {fails} times, and a person was asked {asked} times")
        expect(tries == 2, f"it fails {fails} times, and was called {tries} times: retry is once")
        expect(seen(ran)[0].ok == bool(deeds), f"the result is {seen(ran)[0]}")


def the_failure_is_shown(make: Make) -> None:
    """Who decides sees the call, and what went wrong."""
    ran = run(make(call_tool, TOOLS), Office(["skip"], fails=1), PAY)
    for due in ("pay", "9", "UNAVAILABLE", "closed for a minute"):
        expect(due in ran.office.questions[0], f"the question does not say {due}: {ran.office.questions[0]}")


def anything_else_skips_it(make: Make) -> None:
    """Not a clear ``retry``: it is left, the model hears why, and no guard outside repeats it."""

    @examples
    @given(st.text().filter(lambda text: text.strip(" \t\r\n.!。！").casefold() not in DECISIONS))
    def check(answer: str) -> None:
        office = Office([answer], fails=1)
        ran = run(repeating(3)(make(call_tool, TOOLS)), office, PAY, LOOK)
        expect(office.deeds == [("look", "茶")], f"the answer was {answer!r}, and {office.deeds} was done")
        story = f"the answer was {answer!r}, and the model is told {seen(ran)[0]}"
        expect(seen(ran)[0].kind is Kind.REFUSED and answer.strip() in seen(ran)[0].text, story)
        expect("closed for a minute" in seen(ran)[0].text, story)
        expect(ran.result.stop is StopReason.FINAL_ANSWER, f"skipped, and it ended: {ran.result.stop.name}")

    check()


def a_mistake_of_the_model_is_nobodys_decision(make: Make) -> None:
    """What the model can mend by itself, or a person has refused already, is not put to a person."""
    for call in (ToolCall("pay", {"sum": 9}), ToolCall("pay", {"amount": "nine"})):
        ran = run(make(call_tool, TOOLS), Office(["retry"]), call)
        expect(ran.office.questions == [], f"the arguments are wrong, and a person is asked: {call}")


def nobody_there_ends_the_run(make: Make) -> None:
    """Where nobody can decide, the run ends with an error that tells what failed (A-124)."""
    office = Office(fails=1)
    world = World(None, office.world.tools, None, inline=True)
    try:
        result = drive(AgentLoop(reason([PAY]), make(call_tool, TOOLS)).run("pay"), world)
    except LoopError as error:
        expect(
            "closed for a minute" in str(error.__cause__), f"the error does not say why: {error.__cause__}"
        )
        expect(error.result.stop is StopReason.ERROR, f"it ended with {error.result.stop.name}")
    else:
        expect(False, f"nobody was there, and the run went on to {result.stop.name}")


def it_stays_within_its_account(make: Make) -> None:
    """Whatever ends the run at the question, the failure in hand is kept."""
    for effects in range(1, 6):
        ran = run(make(call_tool, TOOLS), Office(["retry"], fails=1), PAY, limits=Limits(effects=effects))
        stop = StopReason.EFFECTS if effects < 3 else StopReason.FINAL_ANSWER
        expect(ran.result.stop is stop, f"with {effects} effects it ended with {ran.result.stop.name}")
        if effects == 1:
            expect(
                seen(ran)[0].kind is Kind.UNAVAILABLE, f"the failure was known, and it says {seen(ran)[0]}"
            )
    for limits in (Limits(tool_calls=1), Limits(effects=3)):
        ran = run(make(call_tool, TOOLS), Office(["retry"], fails=1), PAY, limits=limits)
        if ran.result.stop is not StopReason.FINAL_ANSWER:
            story = (
                f"the first failure was known, and where the second try was refused it says {seen(ran)[0]}"
            )
            expect("closed for a minute" in seen(ran)[0].text, story)
    for said in (KeyboardInterrupt(), "stop", "Stop.", "停止"):
        ran = run(make(call_tool, TOOLS), Office([said], fails=1), PAY, interrupt=Interrupt())
        story = f"the person answered {said!r}, and it ended with {ran.result.stop.name}, {seen(ran)[0]}"
        expect(ran.result.stop is StopReason.HUMAN and seen(ran)[0].kind is Kind.UNAVAILABLE, story)


def an_answer_that_is_no_text_is_told(make: Make) -> None:
    """A human that returns no text is a mistake that the caller reads, and no decision."""
    for answer in (None, True):
        office = Office([answer], fails=1)
        try:
            ran = run(make(call_tool, TOOLS), office, PAY)
        except LoopError as error:
            told = f"a human returned {answer!r}, and the caller is told {error.__cause__!r}"
            expect(isinstance(error.__cause__, TypeError) and repr(answer) in str(error.__cause__), told)
        else:
            expect(False, f"a human returned {answer!r}, and the model is told {seen(ran)[0]}")


def it_asks_once_however_it_is_wrapped(make: Make) -> None:
    """Beside guards that repeat, one failure of one call is decided once."""

    @examples
    @given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 9))
    def check(inside: int, outside: int, fails: int) -> None:
        office = Office(["retry"], fails)
        act = nested(call_tool, [repeating(inside), lambda act: make(act, TOOLS), repeating(outside)])
        ran = run(act, office, PAY, DELETE)
        asked = len([question for question in office.questions if "pay" in question])
        expect(asked == (1 if fails >= inside else 0), f"it fails {fails} times, and asks {asked} times")
        expect(ran.result.stop is StopReason.FINAL_ANSWER, ran.result.stop.name)

    check()


def an_answer_is_used_once(make: Make) -> None:
    """Wrapped in its like, it is decided once: what the inner one was told, the outer one does not repeat."""
    for copies in (1, 2, 3):
        ran = run(nested(call_tool, [lambda act: make(act, TOOLS)] * copies), Office(["retry"], 9), PAY)
        asked, tries = len(ran.office.questions), ran.result.control.tool_calls
        story = f"{copies} of these guards, retry was said {asked} times, and it was called {tries} times"
        expect((asked, tries) == (1, 2), story)
        expect(seen(ran)[0].kind is Kind.UNAVAILABLE, f"it failed twice, and the result is {seen(ran)[0]}")
    approving = nested(call_tool, [asking, lambda act: make(act, TOOLS)])
    ran = run(approving, Office(["yes", "retry", "yes"], 1), PAY)
    expect(
        ran.office.deeds == [("pay", 9)], f"another guard asked as well, and this one: {ran.office.questions}"
    )


def asking(act: Hook) -> Hook:
    """Another guard, which asks about the same call whether it may be made."""

    def guarded(call: ToolCall) -> Program[Any]:
        yield AskHuman("May it be done?", call.id)
        return (yield from settle(act(call)))

    return guarded


def a_doubt_is_not_taken_back(make: Make) -> None:
    """The first try may have taken effect, and the second fails otherwise: it is UNCERTAIN, not undone."""
    for doubt in (Kind.TIMEOUT, Kind.UNCERTAIN):
        for then in (Kind.UNAVAILABLE, Kind.TOOL_ERROR, Kind.REFUSED):
            came = iter([Observation("<no answer>", False, doubt), Observation("<closed>", False, then)])
            ran = run(make(lambda call: next(came), TOOLS), Office(["retry"]), PAY)  # noqa: B023
            due = then if then is Kind.REFUSED else Kind.UNCERTAIN
            story = f"{doubt.name}, and tried again {then.name}: it is told as {seen(ran)[0]}"
            expect(seen(ran)[0].kind is due and "<closed>" in seen(ran)[0].text, story)


PROMISES: dict[str, Callable[[Any], None]] = {
    promise.__name__: promise
    for promise in (
        what_succeeds_disturbs_nobody,
        retry_is_once,
        the_failure_is_shown,
        anything_else_skips_it,
        a_mistake_of_the_model_is_nobodys_decision,
        nobody_there_ends_the_run,
        an_answer_that_is_no_text_is_told,
        it_stays_within_its_account,
        it_asks_once_however_it_is_wrapped,
        an_answer_is_used_once,
        a_doubt_is_not_taken_back,
    )
}
