"""What ``consistent(act, idempotent=..., times=..., others=...)`` promises: plain functions of such a guard.

``PROMISES`` holds them one by one. Three stations tell the weather, each as it is told to; ``Stations``
counts what was asked of whom.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import (
    Act,
    AgentLoop,
    Finish,
    Kind,
    Limits,
    LoopContext,
    LoopError,
    Observation,
    Result,
    Toolbox,
    ToolCall,
    World,
    call_tool,
    drive,
    worst_case_steps,
)
from fake_llm import Cashier
from tests.check_toolbox import expect

Make = Callable[..., Any]
Said = str | Exception

NAMES = ("near", "far", "air")
SUN, RAIN, SNOW = "晴，26 度", "雨，19 度", "雪，-8 度"
DOWN, LOST = ConnectionError("503"), TimeoutError("no answer")


class Stations:
    """Stations that say what they are told to, in turn, the last again and again; ``asked`` are the calls."""

    def __init__(self, *said: Said | Sequence[Said]) -> None:
        self.asked: list[ToolCall] = []
        each = [[one] if isinstance(one, str | Exception) else list(one) for one in said]
        self.said = dict(zip(NAMES, each, strict=False))

    def act(self, call: ToolCall) -> Observation:
        """Answer one call, as a plain ``act``."""
        self.asked.append(call)
        script = self.said[call.name]
        said = script.pop(0) if len(script) > 1 else script[0]
        if isinstance(said, Exception):
            kind = Kind.UNCERTAIN if isinstance(said, TimeoutError) else Kind.UNAVAILABLE
            return Observation(f"{call.name}: {said}", False, kind)
        return Observation(said)

    def run(self, make: Make, limits: Limits = Limits(), **options: Any) -> Result:  # noqa: B008
        """A loop that asks the first station once, under the guard, and then answers."""

        def act(call: ToolCall) -> Any:
            yield from call_tool(call)  # so that it costs something
            return self.act(call)

        guarded = make(act, idempotent=lambda name: name in NAMES, **options)
        loop = AgentLoop(asking_once, guarded, limits=limits)
        return drive(loop.run("天气"), World(tools=Toolbox({name: _nothing for name in NAMES}), inline=True))


def _nothing(city: str) -> str:
    """Tell the weather."""
    return ""


def asking_once(context: LoopContext) -> Any:
    """Ask the first station, and then answer."""
    return Finish("done") if context.turns else Act((ToolCall("near", {"city": "北京"}),))


def seen_of(make: Make, *said: Said | Sequence[Said], **options: Any) -> Observation:
    """What the loop saw, when the stations said this."""
    others = {"near": NAMES[1 : len(said)]}
    return Stations(*said).run(make, **({"others": others} | options)).turns[0].observations[0]


def majority(said: Sequence[Said]) -> str | None:
    """What most of those say that say anything, if most of them do."""
    results = [each for each in said if isinstance(each, str)]
    return next((each for each in results if results.count(each) * 2 > len(results)), None)


# --- The promises -----------------------------------------------------------------------------


def the_odd_one_out_is_outvoted(make: Make) -> None:
    """What most results say is passed on, whoever says otherwise; and that is not quoted beside it."""
    for said in ((SNOW, SUN, SUN), (SUN, SNOW, SUN)):
        seen = seen_of(make, *said)
        expect(
            seen.ok and seen.text.startswith(SUN), f"the stations say {said}, and the model is shown {seen}"
        )
        expect(SNOW not in seen.text, f"the odd one out is quoted in a result that succeeded: {seen.text!r}")
        odd = NAMES[said.index(SNOW)]
        expect(odd in seen.text, f"{odd} says otherwise, and the model is not told: {seen.text!r}")


def no_majority_is_no_result(make: Make) -> None:
    """Where no answer has most of them behind it, the model is told all, and none as a result."""
    for said in ((SNOW, SUN), (SNOW, SUN, RAIN)):
        seen = seen_of(make, *said)
        expect(not seen.ok, f"the stations say {said}, and one is passed on as the result: {seen}")
        expect(seen.kind is Kind.REFUSED, f"it is a guard that says no, and the kind is {seen.kind.name}")
        for text in said:
            expect(text in seen.text, f"{text} is not told of in {seen.text!r}")


def what_all_say_comes_as_it_is(make: Make) -> None:
    """Where all agree, the result is what one of them said, and nothing is added."""
    for said in ((SUN, SUN), (SUN, SUN, SUN)):
        seen = seen_of(make, *said)
        expect(seen == Observation(SUN), f"the stations say {said}, and the model is shown {seen}")


def a_failure_has_no_vote(make: Make) -> None:
    """Who fails says nothing; where all fail, the failure comes as it is, for the guards around to read."""
    for said in ((DOWN, SUN, SUN), (DOWN, DOWN, SUN), (SUN, DOWN)):
        seen = seen_of(make, *said)
        expect(
            seen.ok and seen.text.startswith(SUN), f"the stations say {said}, and the model is shown {seen}"
        )
    seen = seen_of(make, DOWN, DOWN)
    due = Observation("near: 503", False, Kind.UNAVAILABLE)
    expect(seen == due, f"both stations are down, the first failure is {due}, and the model is shown {seen}")


def a_doubt_about_one_is_not_lost(make: Make) -> None:
    """All fail, and one may have taken effect: that is the failure that the guards around have to see."""
    for said in ((DOWN, LOST), (LOST, DOWN), (DOWN, LOST, DOWN)):
        seen = seen_of(make, *said)
        expect(seen.kind is Kind.UNCERTAIN, f"the stations came to {said}, and the model is shown {seen}")
    seen = seen_of(make, [DOWN, LOST], times=2)
    expect(seen.kind is Kind.UNCERTAIN, f"of two calls one was lost, and the model is shown {seen}")


def several_times_is_several_sources(make: Make) -> None:
    """The same tool may be asked several times: one reading that slipped is outvoted."""
    seen = seen_of(make, [SUN, SNOW, SUN], times=3)
    expect(seen.ok and seen.text.startswith(SUN), f"of three readings one slipped, and it is {seen}")


def what_is_not_idempotent_is_done_once(make: Make) -> None:
    """A call that acts is made once, whatever is asked for; and no such tool can be one of the others."""
    cashier = Cashier()
    tools = Toolbox([cashier.pay])
    act = make(call_tool, idempotent=tools.is_idempotent, times=3)

    def reason(context: LoopContext) -> Any:
        return Finish("paid") if context.turns else Act((ToolCall("pay", {"amount": 9}),))

    result = drive(AgentLoop(reason, act).run("pay"), World(tools=tools, inline=True))
    expect(cashier.ledger == [9], f"one payment was asked for, and {cashier.ledger} was paid")
    seen = result.turns[0].observations[0]
    expect(seen == Observation("已支付 9 元"), f"the payment came back as {seen}")
    try:
        make(call_tool, idempotent=lambda name: name == "near", others={"near": ["pay"]})
    except ValueError:
        return
    expect(False, "pay, which is not idempotent, may be called to compare near with")


def it_agrees_as_it_is_told(make: Make) -> None:
    """``agree(one, other)`` decides what counts as the same; by itself, only gaps and capitals differ."""
    seen = seen_of(make, "26", "27", agree=lambda one, other: abs(int(one) - int(other)) <= 1)
    expect(seen.ok, f"a degree more or less was to count as the same, and 26 and 27 came to {seen}")
    expect(seen_of(make, "Sunny", " sunny ").ok, "'Sunny' and ' sunny ' were told apart")
    expect(not seen_of(make, "26", "27").ok, "26 and 27 were taken for the same")


def every_call_keeps_its_name(make: Make) -> None:
    """All calls made for one call carry its id and its arguments: to a tool they are that call again."""
    stations = Stations(SUN, SUN)
    stations.run(make, times=2, others={"near": ["far"]})
    found = {(call.id, str(call.arguments)) for call in stations.asked}
    expect(found == {("call_1_1_1", "{'city': '北京'}")}, f"for call_1_1_1 these calls were made: {found}")


def what_is_in_hand_counts(make: Make) -> None:
    """Where the allowance ends in the middle, the results that came are kept."""
    for allowed in (1, 2):
        result = Stations([SUN]).run(make, Limits(tool_calls=allowed), times=3)
        seen = result.turns[0].observations[0]
        story = f"three readings, and {allowed} allowed: it ended with {result.stop.name} and {seen}"
        expect(seen.text.startswith(SUN), story)


def a_bug_reaches_the_caller(make: Make) -> None:
    """An exception inside the guarded ``act`` is a bug, not a source that failed."""

    def broken(call: ToolCall) -> Any:
        yield from call_tool(call)
        raise ZeroDivisionError("a bug")

    loop = AgentLoop(asking_once, make(broken, idempotent=lambda name: True, times=2))
    try:
        result = drive(loop.run("天气"), World(tools=Toolbox({"near": _nothing}), inline=True))
    except LoopError as error:
        expect(isinstance(error.__cause__, ZeroDivisionError), f"a bug arrived as {error.__cause__!r}")
        return
    expect(False, f"act has a bug, and the run ended with {result.stop.name}")


def a_number_that_is_none_is_refused(make: Make) -> None:
    """``times`` is a whole number of at least 1."""
    for wrong in (0, -1, 1.5, None, True, "2"):
        try:
            make(call_tool, idempotent=lambda name: True, times=wrong)
        except ValueError:
            continue
        expect(False, f"times={wrong!r} was taken")


def whatever_they_say_most_of_them_said_it(make: Make) -> None:
    """Whatever the stations say: a result has a majority behind it, costs are bounded, and the run ends."""
    said = st.sampled_from([SUN, RAIN, SNOW, DOWN])

    @settings(deadline=None, database=None, max_examples=60)
    @given(st.lists(said, min_size=3, max_size=3), st.integers(1, 3), st.integers(1, 6))
    def check(each: list[Said], times: int, allowed: int) -> None:
        stations = Stations(*each)
        limits = Limits(tool_calls=allowed)
        result = stations.run(make, limits, times=times, others={"near": NAMES[1:]})
        seen = result.turns[0].observations[0]
        votes = [each[0]] * times + each[1:]
        story = f"{votes} was said, {allowed} calls were allowed, and it is {seen}"
        expect(len(stations.asked) <= min(len(votes), allowed), f"{len(stations.asked)} were asked: {story}")
        steps = 3 * result.control.rounds + 2 + result.control.effects
        expect(steps <= worst_case_steps(limits), f"it took {steps} steps: {story}")
        if allowed >= len(votes):
            due = majority(votes)
            expect(seen.ok == (due is not None), f"most say {due}: {story}")
            expect(due is None or seen.text.startswith(due), f"most say {due}: {story}")

    check()


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        what_all_say_comes_as_it_is,
        the_odd_one_out_is_outvoted,
        no_majority_is_no_result,
        a_failure_has_no_vote,
        a_doubt_about_one_is_not_lost,
        several_times_is_several_sources,
        what_is_not_idempotent_is_done_once,
        it_agrees_as_it_is_told,
        every_call_keeps_its_name,
        what_is_in_hand_counts,
        a_bug_reaches_the_caller,
        a_number_that_is_none_is_refused,
        whatever_they_say_most_of_them_said_it,
    )
}
