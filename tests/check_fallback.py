"""What a fallback promises: plain functions of one ``fallback(act, alternatives, *, only_reads, kinds)``.

``alternatives`` give for a tool's name another name, or a function that writes the other call;
``only_reads(name)`` says of a tool whether it changes nothing. ``check_fallback(fallback)`` raises
``BrokenPromise`` with the story of the first promise that is broken; ``PROMISES`` holds them one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentloop import (
    Act,
    AgentLoop,
    Kind,
    Limits,
    Observation,
    Result,
    StopReason,
    Toolbox,
    ToolCall,
    World,
    call_tool,
    drive,
    settle,
)
from tests.check_machine import BrokenPromise
from tests.check_retry import GOOD, IN_DOUBT, PASSING, failed, shown
from tests.check_toolbox import expect

Fallback = Callable[..., Callable[[ToolCall], Any]]
Alternatives = Mapping[str, Any]

CALL = ToolCall("first", {"city": "北京"}, "call_1_1_1")
CHAIN: Alternatives = {"first": "second", "second": "third"}
#: After these nobody asks another tool: a person or the model has decided, or there is nothing to ask for.
FINAL = tuple(kind for kind in Kind if kind not in (*PASSING, *IN_DOUBT, Kind.TOOL_ERROR))
NAMES = ("first", "second", "third")


class Tools:
    """Three tools that answer as they are told, and note who was asked, with what, under which id."""

    def __init__(self, **answers: Observation) -> None:
        self.answers = answers
        self.asked: list[tuple[str, dict[str, Any], str]] = []
        self.interrupted_at = math.inf  # in which call a person stops the run

    def tool(self, name: str) -> Callable[..., Observation]:
        def ask(call_id: str, **arguments: Any) -> Observation:
            self.asked.append((name, arguments, call_id))
            if len(self.asked) == self.interrupted_at:
                raise KeyboardInterrupt
            return self.answers[name]

        return ask

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.asked]

    @property
    def world(self) -> World:
        return World(tools=Toolbox({name: self.tool(name) for name in self.answers}), inline=True)


class Played(NamedTuple):
    """What a guarded call came to, and what the tools saw of it."""

    seen: Observation
    asked: list[tuple[str, dict[str, Any], str]]

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.asked]


def played(
    make: Fallback,
    first: Observation,
    second: Observation = GOOD,
    third: Observation = GOOD,
    alternatives: Alternatives = CHAIN,
    reads: tuple[str, ...] = (),
    **options: Any,
) -> Played:
    """One call of the first tool under the guard."""
    tools = Tools(first=first, second=second, third=third)
    act = make(call_tool, alternatives, only_reads=lambda name: name in reads, **options)
    return Played(drive(settle(act(CALL)), tools.world), tools.asked)


def looped(make: Fallback, tools: Tools, limits: Limits) -> Result:
    """A loop that calls the first tool in each round, under the guard."""
    act = make(call_tool, CHAIN, only_reads=lambda name: False)
    return drive(AgentLoop(lambda context: Act((CALL,)), act, limits=limits).run("ask"), tools.world)


# --- The promises -----------------------------------------------------------------------------


def what_works_is_not_replaced(make: Fallback) -> None:
    """Where the first tool succeeds, nobody else is asked, and its words are passed on."""
    tried = played(make, GOOD)
    expect(tried.names == ["first"], f"the first tool succeeded, and {tried.names} were asked")
    expect(tried.seen == GOOD, f"it said {shown(GOOD)}, and what was passed on is {shown(tried.seen)}")
    alone = played(make, failed(Kind.UNAVAILABLE), alternatives={})
    expect(
        alone.seen == failed(Kind.UNAVAILABLE),
        f"there is no other tool, and its failure became {shown(alone.seen)}",
    )


def another_is_asked_when_the_first_is_down(make: Fallback) -> None:
    """After UNAVAILABLE the next tool is asked, and the one after it, each once, until one succeeds."""
    down = failed(Kind.UNAVAILABLE)
    for answers, asked in (((down, GOOD), 2), ((down, down, GOOD), 3)):
        tried = played(make, *answers)
        expect(tried.names == list(NAMES[:asked]), f"{asked - 1} were down, and {tried.names} were asked")
        expect(tried.seen.ok, f"{NAMES[asked - 1]} succeeded, and it came to {shown(tried.seen)}")


def it_says_who_was_asked(make: Fallback) -> None:
    """What another tool found is told with that tool's name, and with who failed before it, and how."""
    seen = played(make, failed(Kind.UNAVAILABLE)).seen
    for word in (GOOD.text, "second", "first", "UNAVAILABLE"):
        expect(word in seen.text, f"second answered for first, which failed; {word} is not in: {seen.text}")


def a_result_quotes_nothing_that_failed(make: Fallback) -> None:
    """In a result stands neither what was asked nor what a failure said: the model may have made it up."""
    seen = played(make, failed(Kind.UNAVAILABLE)).seen
    for word in (CALL.arguments["city"], "<UNAVAILABLE>"):
        expect(
            word not in seen.text, f"second found only {GOOD.text}, and the result says {word}: {seen.text}"
        )


def all_failures_are_told(make: Fallback) -> None:
    """When all of them fail, the model reads every failure, with the tool that it came from."""
    seen = played(make, failed(Kind.UNAVAILABLE), failed(Kind.UNAVAILABLE), failed(Kind.TOOL_ERROR)).seen
    expect(not seen.ok, f"all three tools failed, and it is called a success: {shown(seen)}")
    for word in (*NAMES, "<UNAVAILABLE>", "<TOOL_ERROR>"):
        expect(word in seen.text, f"all three tools failed, and {word} is not in: {seen.text}")


def nobody_goes_round_a_decision(make: Fallback) -> None:
    """After a refusal, where no person is there, and after a mistake of the model, nobody else is asked."""
    for kind in FINAL:
        tried = played(make, failed(kind), reads=NAMES)
        expect(
            tried.names == ["first"], f"first ended with {kind.name}, and then {tried.names[1:]} was asked"
        )
        expect(tried.seen == failed(kind), f"{shown(failed(kind))} was passed on as {shown(tried.seen)}")
        then = played(make, failed(Kind.UNAVAILABLE), failed(kind), reads=NAMES)
        expect("third" not in then.names, f"second ended with {kind.name}, and then third was asked")


def what_may_have_happened_is_not_done_elsewhere(make: Fallback) -> None:
    """After an unknown outcome another tool is asked only in place of one that merely reads."""
    for kind in IN_DOUBT:
        tried = played(make, failed(kind))
        expect(
            tried.names == ["first"],
            f"first may have taken effect ({kind.name}), and {tried.names} were asked",
        )
        expect(tried.seen == failed(kind), f"{shown(failed(kind))} was passed on as {shown(tried.seen)}")
        reading = played(make, failed(kind), reads=("first",))
        expect(
            reading.names == ["first", "second"],
            f"{kind.name} of a tool that reads: {reading.names} were asked",
        )
        then = played(make, failed(Kind.UNAVAILABLE), failed(kind), reads=("first",))
        expect("third" not in then.names, f"second may have taken effect ({kind.name}), and third was asked")
        expect(
            then.seen.kind is kind,
            f"second may have taken effect ({kind.name}), and it says {shown(then.seen)}",
        )


def kinds_are_chosen_among_the_possible(make: Fallback) -> None:
    """The kinds can be chosen; one after which nobody may fall back is refused with ``ValueError``."""
    kinds = (Kind.UNAVAILABLE, Kind.TOOL_ERROR)
    for reads, due in ((("first",), ["first", "second"]), ((), ["first"])):
        tried = played(make, failed(Kind.TOOL_ERROR), reads=reads, kinds=kinds)
        expect(
            tried.names == due,
            f"TOOL_ERROR may be followed, {reads or None} only read: {tried.names} were asked, not {due}",
        )
    left_out = played(make, failed(Kind.UNAVAILABLE), kinds=(Kind.TOOL_ERROR,))
    expect(left_out.names == ["first"], "UNAVAILABLE is not among the kinds, and another tool was asked")
    usual = played(make, failed(Kind.TOOL_ERROR), reads=NAMES)
    expect(
        usual.names == ["first"], f"a TOOL_ERROR is not among the usual kinds, and {usual.names} were asked"
    )
    for kind in FINAL:
        try:
            make(call_tool, CHAIN, kinds=(Kind.UNAVAILABLE, kind))
        except ValueError as error:
            expect(
                kind.name in str(error), f"kinds with {kind.name} were refused without a word of it: {error}"
            )
        else:
            raise BrokenPromise(f"kinds with {kind.name} were accepted")


def the_other_call_is_written_as_wished(make: Fallback) -> None:
    """A name asks with the same arguments, a function with its own; both under the id of the call."""
    named = played(make, failed(Kind.UNAVAILABLE))
    due: tuple[str, dict[str, Any], str] = ("second", {"city": "北京"}, CALL.id)
    expect(
        named.asked[1:] == [due], f"the alternative is 'second', and asked was {named.asked[1:]}, not {due}"
    )

    def adapted(call: ToolCall) -> ToolCall:
        return ToolCall("third", {"place": call.arguments["city"]})

    written = played(make, failed(Kind.UNAVAILABLE), alternatives={"first": adapted})
    due = ("third", {"place": "北京"}, CALL.id)
    expect(
        written.asked[1:] == [due],
        f"a function writes the other call {due}, and asked was {written.asked[1:]}",
    )


def nobody_goes_in_circles(make: Fallback) -> None:
    """Alternatives that lead back to a tool already asked end there."""
    for circle in ({"first": "second", "second": "first"}, {"first": "first"}):
        names = played(make, failed(Kind.UNAVAILABLE), failed(Kind.UNAVAILABLE), alternatives=circle).names
        expect(names == list(circle), f"each tool of {circle} is asked once, not {names}")


def a_nonsensical_alternative_is_told(make: Fallback) -> None:
    """An alternative that gives no call raises ``TypeError``, which is a bug and no failure of a tool."""
    try:
        played(make, failed(Kind.UNAVAILABLE), alternatives={"first": lambda call: None})
    except TypeError as error:
        expect("first" in str(error), f"whose alternative is wrong is not told: {error}")
    else:
        raise BrokenPromise("the alternative gave None in place of a call, and nobody noticed")


def what_is_in_hand_is_kept_at_the_end_of_the_run(make: Fallback) -> None:
    """Where the run ends during another tool's call, the first failure is kept, and the doubt is told."""
    down = failed(Kind.UNAVAILABLE)
    for limits, interrupted_at in ((Limits(tool_calls=1), math.inf), (Limits(), 2), (Limits(), 3)):
        tools = Tools(first=down, second=down, third=down)
        tools.interrupted_at = interrupted_at
        result = looped(make, tools, limits)
        seen = result.turns[0].observations[0]
        due = StopReason.TOOL_CALLS if interrupted_at == math.inf else StopReason.HUMAN
        expect(result.stop is due, f"it ended with {result.stop}, not {due}")
        expect("<UNAVAILABLE>" in seen.text, f"that first was down is lost: {seen.text}")
        expect(
            not seen.ok and seen.kind is Kind.UNCERTAIN, f"the last call may have taken effect: {shown(seen)}"
        )
        asked = len(tools.asked)
        expect(
            asked == min(interrupted_at, 1 if due is StopReason.TOOL_CALLS else 9),
            f"{asked} tools were asked",
        )


observations = st.builds(Observation, st.sampled_from(["<a>", "<b>"]), st.booleans(), st.sampled_from(Kind))
ways = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(NAMES), max_size=3)


def whatever_comes_it_ends_and_tells_the_truth(make: Fallback) -> None:
    """Any answers and any alternatives: each tool is asked once at most, and success is success."""

    @settings(deadline=None, database=None, max_examples=150)
    @given(observations, observations, observations, ways, st.sets(st.sampled_from(NAMES)))
    @example(GOOD._replace(kind=Kind.UNAVAILABLE), GOOD, GOOD, CHAIN, set())
    def check(
        first: Observation, second: Observation, third: Observation, ways: Alternatives, reads: set[str]
    ) -> None:
        tried = played(make, first, second, third, ways, tuple(reads))
        answers = dict(zip(NAMES, (first, second, third), strict=True))
        expect(len(set(tried.names)) == len(tried.names), f"with {ways}, {tried.names} were asked")
        last = answers[tried.names[-1]]
        expect(
            tried.seen.ok == last.ok,
            f"the last one asked said {shown(last)}, and it came to {shown(tried.seen)}",
        )
        for name in tried.names[:-1]:
            settled = answers[name].kind in PASSING or name in reads
            expect(
                settled and not answers[name].ok,
                f"{name} said {shown(answers[name])}, and another one was asked",
            )

    check()


PROMISES: dict[str, Callable[[Fallback], None]] = {
    promise.__name__: promise
    for promise in (
        what_works_is_not_replaced,
        another_is_asked_when_the_first_is_down,
        it_says_who_was_asked,
        a_result_quotes_nothing_that_failed,
        all_failures_are_told,
        nobody_goes_round_a_decision,
        what_may_have_happened_is_not_done_elsewhere,
        kinds_are_chosen_among_the_possible,
        the_other_call_is_written_as_wished,
        nobody_goes_in_circles,
        a_nonsensical_alternative_is_told,
        what_is_in_hand_is_kept_at_the_end_of_the_run,
        whatever_comes_it_ends_and_tells_the_truth,
    )
}


def check_fallback(make: Fallback) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(make)
