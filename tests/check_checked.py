"""What a checked round promises: for ``make(reason, check)``, which makes a ``reason`` of both.

``check_checked(make)`` raises ``BrokenPromise`` with the story of the first promise that is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import (
    Act,
    AgentLoop,
    Do,
    Finish,
    Kind,
    Limits,
    LoopContext,
    LoopError,
    Observation,
    Program,
    Result,
    StopReason,
    ToolCall,
    World,
    drive,
    report,
    worst_case_steps,
)
from tests.check_machine import BrokenPromise
from tests.check_toolbox import expect

Reason = Callable[[LoopContext], Any]
Make = Callable[[Reason, Callable[[LoopContext, Any], Any]], Reason]

OBJECTION = "this does not add up"
PROBLEM = Observation("the reply could not be read", False, Kind.MALFORMED)
LIMITS = Limits(rounds=40, failures=40, effects=200)
examples = settings(deadline=None, database=None, max_examples=60)

#: What a reason hook decides, one after the other: ``good`` and ``bad`` calls, a ``report``, and an answer.
decisions = st.lists(st.sampled_from(["good", "bad", "bad", "report"]), max_size=8)


class Came(NamedTuple):
    """What came of a run: the calls that were made, and the decisions that the check was shown."""

    result: Result
    made: list[str]
    shown: list[Any]


def play(
    make: Make,
    script: Sequence[str],
    *,
    asks: bool = False,
    fails: bool = False,
    limits: Limits = LIMITS,
) -> Came:
    """Let a loop decide by the script, then answer; the check objects to what is ``bad``.

    ``asks`` lets both hooks ask the world first; ``fails`` lets the check fail where it would object.
    """
    left = list(script)
    made: list[str] = []
    shown: list[Any] = []

    def reason(context: LoopContext) -> Act | Finish:
        name = left.pop(0) if left else "answer"
        if name == "report":
            return report(PROBLEM, "thinking of nothing")
        if name.endswith("answer"):
            return Finish(name, f"thinking of {name}")
        return Act((ToolCall(name, {}),), f"thinking of {name}")

    def check(context: LoopContext, decision: Any) -> str | None:
        shown.append(decision)
        name = decision.answer if isinstance(decision, Finish) else decision.calls[0].name
        if name.startswith("bad") and fails:
            raise ConnectionError("503")
        return OBJECTION if name.startswith("bad") else None

    def act(call: ToolCall) -> Observation:
        made.append(call.name)
        return Observation("done")

    def asking(function: Callable[..., Any]) -> Callable[..., Any]:
        def hook(*arguments: Any) -> Program[Any]:
            return (yield Do(function.__name__, lambda: function(*arguments))).value

        return hook

    guarded = make(asking(reason) if asks else reason, asking(check) if asks or fails else check)
    try:
        result = drive(AgentLoop(guarded, act, limits=limits).run("a task"), World(inline=True))
    except LoopError as error:
        raise BrokenPromise(f"where it decides {list(script)}, it broke down: {error}") from error.__cause__
    return Came(result, made, shown)


# --- The promises -----------------------------------------------------------------------------


def what_passes_is_done_and_what_does_not_is_not(make: Make) -> None:
    """Good decisions are acted on once each and in order, bad ones never, whatever kind of hooks they are."""

    @examples
    @given(decisions, st.booleans())
    def compare(script: list[str], asks: bool) -> None:
        came = play(make, script, asks=asks)
        good = [name for name in script if name == "good"]
        told = f"where it decides {script}, and the check objects to bad, the calls made were {came.made}"
        expect(came.made == good, told)
        told = f"where it decides {script} and then answers, it ended with {came.result.stop.name}"
        expect(came.result.answer == "answer", told)

    compare()


def a_decision_that_passes_stays_as_it_is(make: Make) -> None:
    """What the check has nothing against is passed on word for word."""
    turns = play(make, ["good", "good"]).result.turns
    thoughts = [turn.thought for turn in turns]
    due = ["thinking of good", "thinking of good", "thinking of answer"]
    expect(thoughts == due, f"the turns were to hold the thoughts {due}, and hold {thoughts}")


def an_answer_is_checked_too(make: Make) -> None:
    """An answer that the check objects to is not given."""
    came = play(make, ["bad answer"])
    expect(came.result.answer == "answer", f"it was to give the next answer, and gave {came.result.answer!r}")


def the_objection_is_told_if_nothing_better_comes(make: Make) -> None:
    """Where all decisions are bad, nothing is done, the model is told why, and the loop's limits end it."""
    for limits in (Limits(rounds=4, failures=9), Limits(rounds=9, failures=3), Limits(effects=12)):
        came = play(make, ["bad"] * 500, asks=True, limits=limits)
        story = f"with {limits} and nothing but bad decisions"
        expect(came.made == [], f"{story} the calls made were {came.made}")
        expect(came.result.answer is None, f"{story} it answered {came.result.answer!r}")
        control = came.result.control
        expect(control.effects <= worst_case_steps(limits), f"{story} it wanted {control.effects} effects")
        if came.result.stop is not StopReason.EFFECTS:  # else it may have ended inside its first round
            first = came.result.turns[0].observations[0]
            kept = OBJECTION in first.text and not first.ok and first.kind is Kind.REFUSED
            expect(kept, f"{story} the model was told {first}, not the objection, as REFUSED")


def a_report_is_passed_on_unchecked(make: Make) -> None:
    """A reply that could not be read does nothing: it is not shown to the check, and stays what it is."""
    came = play(make, ["report"])
    expect(len(came.shown) == 1, f"one report and one answer, and the check was shown {came.shown}")
    seen = came.result.turns[0].observations[0]
    expect(seen == PROBLEM, f"the model was to be told {PROBLEM.text!r}, and was told {seen.text!r}")


def what_is_refused_is_told_under_its_name(make: Make) -> None:
    """A refused call stands in the turns as it was meant: it is no report, and no refused answer."""
    turns = play(make, ["bad"]).result.turns
    [call] = turns[0].calls
    expect(call.name == "bad", f"the call of bad was refused, and the turn holds a call of {call.name!r}")
    expect(call.problem == turns[0].observations[0], f"its problem is {call.problem}, not what was told")


def a_check_that_fails_has_not_passed(make: Make) -> None:
    """Where the check cannot be made, nothing is done, the run goes on, and the model is told."""
    came = play(make, ["bad", "good"], fails=True)
    expect(came.made == ["good"], f"the check of bad failed, and the calls made were {came.made}")


def nothing_is_done_when_the_allowance_ends_in_the_check(make: Make) -> None:
    """Where the account runs dry inside a check, the run ends for that reason and keeps the thought."""
    came = play(make, ["good"], asks=True, limits=Limits(effects=1))
    stop, thoughts = came.result.stop, [turn.thought for turn in came.result.turns]
    expect(stop is StopReason.EFFECTS and came.made == [], f"it ended with {stop.name} and made {came.made}")
    expect(thoughts == ["thinking of good"], f"the thought was in hand, and the turns kept {thoughts}")


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        what_passes_is_done_and_what_does_not_is_not,
        a_decision_that_passes_stays_as_it_is,
        an_answer_is_checked_too,
        the_objection_is_told_if_nothing_better_comes,
        a_report_is_passed_on_unchecked,
        what_is_refused_is_told_under_its_name,
        a_check_that_fails_has_not_passed,
        nothing_is_done_when_the_allowance_ends_in_the_check,
    )
}


def check_checked(make: Make) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(make)
