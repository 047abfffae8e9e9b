"""What a retry promises: plain functions of one ``retry(act, *, idempotent, patience)``, ours or a reader's.

``idempotent(name)`` says of a tool whether it may be called again, and ``patience`` is the ``Patience`` of
chapter 19. ``check_retry(retry)`` raises ``BrokenPromise`` with the story of the first promise that is
broken; ``PROMISES`` holds the same promises one by one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from itertools import product
from typing import Any, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentloop import (
    Act,
    AgentLoop,
    Journal,
    Kind,
    Limits,
    Observation,
    Program,
    ProgramChanged,
    Result,
    StopReason,
    Together,
    Toolbox,
    ToolCall,
    Unavailable,
    World,
    call_tool,
    drive,
    on_one_line,
    settle,
)
from chapters.ch19_retry_with_backoff import Patience
from fake_llm import FakeClock
from tests.check_machine import BrokenPromise
from tests.check_toolbox import expect

Retry = Callable[..., Callable[[ToolCall], Any]]

PASSING = (Kind.UNAVAILABLE,)
IN_DOUBT = (Kind.TIMEOUT, Kind.UNCERTAIN)
LASTING = tuple(kind for kind in Kind if kind not in PASSING + IN_DOUBT)
GOOD = Observation("<sunny>")
DOWN = Observation("<503>", False, Kind.UNAVAILABLE)
NOW = datetime(1994, 11, 6, 8, 49, 30, tzinfo=UTC)
CALL = ToolCall("ask", {}, "call_1_1_1")
#: No jitter is as hard to bear as all of it: waits are as long as they can be.
PATIENCE = Patience(4, 1.0, 20.0, 60.0, lambda: 1.0, lambda: NOW.timestamp())


class Attempts:
    """A tool that says what a script says, its last line for ever, and notes each time it is asked."""

    def __init__(self, script: Sequence[Observation], seconds: float = 0.0) -> None:
        self.script, self.seconds, self.clock = script, seconds, FakeClock()
        self.at: list[float] = []
        self.ids: list[str] = []
        self.interrupted_at = math.inf  # in which attempt a person stops the run

    def ask(self, call_id: str) -> Observation:
        """Ask."""
        self.at.append(self.clock.now())
        self.ids.append(call_id)
        self.clock.advance(self.seconds)
        if len(self.at) == self.interrupted_at:
            raise KeyboardInterrupt  # it comes in the middle of the call, and its outcome is lost
        return self.said(len(self.at))

    def said(self, number: int) -> Observation:
        """What the attempt of that number brought, counted from 1."""
        return self.script[min(number, len(self.script)) - 1]

    @property
    def world(self) -> World:
        clock = self.clock
        return World(tools=Toolbox([self.ask]), clock=clock.now, sleep=clock.sleep, inline=True)


class Played(NamedTuple):
    """What a guarded call came to; when it was attempted, and under which ids; the waits; the effects."""

    seen: Observation
    at: list[float]
    ids: list[str]
    waits: list[float]
    effects: list[str]


def played(
    make: Retry,
    script: Sequence[Observation],
    patience: Patience = PATIENCE,
    idempotent: bool = False,
    seconds: float = 0.0,
    wrap: int = 1,
) -> Played:
    """One call under the guard, ``wrap`` times around itself."""
    tool, journal = Attempts(script, seconds), Journal()
    act: Callable[[ToolCall], Any] = call_tool
    for _ in range(wrap):
        act = make(act, idempotent=lambda name: idempotent, patience=patience)
    seen = drive(settle(act(CALL)), tool.world, journal)
    effects = [asked.partition(" ")[0] for _, asked, _ in journal.outcomes]
    return Played(seen, tool.at, tool.ids, tool.clock.slept, effects)


def looped(make: Retry, tool: Attempts, limits: Limits, idempotent: bool = False) -> Result:
    """A loop that calls the tool in each round, under the guard."""
    act = make(call_tool, idempotent=lambda name: idempotent, patience=PATIENCE)
    loop = AgentLoop(lambda context: Act((CALL,)), act, limits=limits)
    return drive(loop.run("ask"), tool.world)


def shown(seen: Observation) -> str:
    """An observation in a few words."""
    return f"{'a success' if seen.ok else 'a failure'} ({seen.kind.name}) {on_one_line(seen.text)!r}"


def failed(kind: Kind, retry_after: float | str | None = None) -> Observation:
    return Observation(f"<{kind.name}>", False, kind, retry_after)


examples = settings(deadline=None, database=None, max_examples=60)


# --- The promises -----------------------------------------------------------------------------


def a_success_is_passed_on_as_it_is(make: Retry) -> None:
    """A success is passed on word for word, and one that comes at once costs not a single effect more."""
    once = played(make, [GOOD])
    expect(once.seen == GOOD, f"the tool said {shown(GOOD)}, and the guard made of it {shown(once.seen)}")
    expect(once.effects == ["CallTool"], f"a success at once took the effects {once.effects}")
    later = played(make, [DOWN, GOOD])
    expect(
        later.seen == GOOD,
        f"the tool failed, then said {shown(GOOD)}; the guard made of it {shown(later.seen)}",
    )


def what_may_pass_is_tried_again(make: Retry) -> None:
    """After UNAVAILABLE it is tried again, up to the attempts that patience allows, and not once more."""
    for failures in range(6):
        for attempts in (1, 2, 4):
            tried = played(make, [DOWN] * failures + [GOOD], replace(PATIENCE, attempts=attempts))
            due = min(failures + 1, attempts)
            expect(
                len(tried.at) == due,
                f"{failures} failures, {attempts} attempts allowed, {len(tried.at)} made",
            )
            expect(
                tried.seen.ok == (failures < attempts),
                f"it came to {shown(tried.seen)} after {failures} failures",
            )


def what_would_fail_again_is_tried_once(make: Retry) -> None:
    """A lasting failure (denied, wrong arguments, refused) is tried once and passed on as it came (C09)."""
    for kind in LASTING:
        tried = played(make, [failed(kind), GOOD], idempotent=True)
        times = f"and it was tried {len(tried.at)} times, not once"
        expect(len(tried.at) == 1, f"the tool brought {shown(failed(kind))}, which does not pass, {times}")
        expect(tried.seen == failed(kind), f"{shown(failed(kind))} was passed on as {shown(tried.seen)}")
        tried = played(make, [DOWN, failed(kind), GOOD], idempotent=True)
        times = f"and it was tried {len(tried.at)} times, not twice"
        expect(len(tried.at) == 2, f"the tool was down, then brought {shown(failed(kind))}, {times}")
        expect(
            tried.seen.kind is kind,
            f"it ended with {kind.name}, and the observation says {shown(tried.seen)}",
        )


def what_may_have_happened_is_not_repeated(make: Retry) -> None:
    """After an unknown outcome only what is idempotent is called again; else that is said (C09)."""
    for kind in IN_DOUBT:
        tried = played(make, [failed(kind), GOOD])
        told = tried.seen.text.replace(f"<{kind.name}>", "")
        expect(
            len(tried.at) == 1, f"{kind.name}, not idempotent: called {len(tried.at)} times, paid as often"
        )
        expect(
            tried.seen.kind is kind, f"nobody knows whether it took effect, and it says {shown(tried.seen)}"
        )
        expect(
            told not in ("", tried.seen.text), f"that it was not repeated is not said: {shown(tried.seen)}"
        )
        again = played(make, [failed(kind), GOOD], idempotent=True)
        expect(again.seen == GOOD, f"{kind.name}, idempotent: it was not called again: {shown(again.seen)}")


def a_failure_says_how_often_it_was_tried(make: Retry) -> None:
    """When patience ends, the failure keeps its words and its kind, and tells how often it was tried."""
    for attempts in (2, 3, 7):
        for down in map(failed, PASSING + IN_DOUBT):
            patience = replace(PATIENCE, attempts=attempts, allowance=1000.0)
            seen, at, *_ = played(make, [down] * 9 + [GOOD], patience, idempotent=True)
            text = seen.text.replace(down.text, "")
            expect(
                len(at) == attempts,
                f"{attempts} attempts are allowed, and {len(at)} were made: {shown(down)}",
            )
            expect(down.text in seen.text, f"the failure's own words are gone: {seen.text}")
            expect(str(attempts) in text, f"tried {attempts} times, and it says: {seen.text}")
            expect((seen.ok, seen.kind) == (False, down.kind), f"{shown(down)} became {shown(seen)}")


def waits_double_up_to_the_longest(make: Retry) -> None:
    """The nth wait is drawn from 0 to ``first * 2 ** (n - 1)``, and never more than ``longest``."""
    for draw in (1.0, 0.5, 0.0):
        patience = Patience(8, 0.5, 6.0, 1000.0, lambda: draw)  # noqa: B023 - called before the next turn
        waits = played(make, [DOWN], patience).waits
        due = [draw * most for most in (0.5, 1.0, 2.0, 4.0, 6.0, 6.0, 6.0)]
        expect(len(waits) == len(due), f"8 attempts have 7 waits between them, not {waits}")
        close = all(abs(wait - each) < 1e-9 for wait, each in zip(waits, due, strict=True))
        expect(close, f"the draw is {draw}, and the waits are {waits}, not {due}")


def the_allowance_is_kept(make: Retry) -> None:
    """No wait is begun that would end after the allowance, which is counted from the first failure."""

    @examples
    @given(
        st.builds(
            Patience,
            attempts=st.integers(1, 6),
            first=st.floats(0.1, 50),
            longest=st.floats(0.1, 50),
            allowance=st.floats(0.1, 100),
            draw=st.floats(0, 1).map(lambda drawn: lambda: drawn),
        ),
        st.floats(0, 20),
    )
    def check(patience: Patience, seconds: float) -> None:
        tried = played(make, [DOWN], patience, seconds=seconds)
        ends = tried.at[0] + seconds + patience.allowance
        for attempt in tried.at[1:]:
            expect(
                attempt <= ends + 1e-6,
                f"an attempt began at {attempt:g} s; the first failure was at {tried.at[0] + seconds:g} s, "
                f"and the allowance is {patience.allowance:g} s",
            )
        waits, attempts = len(tried.waits), len(tried.at)
        expect(waits < attempts, f"{waits} waits for {attempts} attempts: somebody waited, and then gave up")

    check()


def the_servers_word_is_honoured(make: Retry) -> None:
    """It is not tried before the server said, in seconds or as an HTTP date, and not long after it."""
    date = format_datetime(NOW + timedelta(seconds=7), usegmt=True)
    for word, seconds in ((7, 7.0), (7.5, 7.5), ("7", 7.0), (date, 7.0)):
        tried = played(make, [failed(Kind.UNAVAILABLE, word), GOOD])
        waited = sum(tried.waits)
        story = f"the server said {word!r} and the next attempt came after {waited:g} s"
        expect(len(tried.at) == 2 and seconds <= waited <= seconds + PATIENCE.longest, story)


def what_a_server_cannot_mean_is_overheard(make: Retry) -> None:
    """Nonsense, NaN, the past and a negative number are taken as if the server had said nothing."""
    past = format_datetime(NOW - timedelta(days=400), usegmt=True)
    for word in ("soon", "", "nan", math.nan, -5, "-5", past, "Foo, 99 Bar 1994 99:99:99 GMT", "\ud800"):
        tried = played(make, [failed(Kind.UNAVAILABLE, word), GOOD])
        expect(tried.waits == [1.0], f"the server said {word!r}, and the waits were {tried.waits}, not 1 s")


def what_patience_does_not_cover_is_not_waited_for(make: Retry) -> None:
    """A server that is back long after the allowance is not waited for, and the observation says why."""
    far = format_datetime(NOW + timedelta(days=300), usegmt=True)
    for word in (61, 3600, 10**400, math.inf, "1e999", far):
        tried = played(make, [failed(Kind.UNAVAILABLE, word), GOOD])
        none = tried.waits == [] and len(tried.at) == 1
        story = f"{len(tried.at)} attempts were made, and the waits were {tried.waits}"
        expect(none, f"the server said {on_one_line(str(word)[:40])}; {story}")
        said = tried.seen.kind is Kind.UNAVAILABLE and len(tried.seen.text) > len("<UNAVAILABLE>")
        expect(said, f"why it is not tried again is not told: {shown(tried.seen)}")


def every_attempt_is_the_same_call(make: Retry) -> None:
    """All attempts carry the call's id, so that a tool can refuse to act twice."""
    tried = played(make, [DOWN, DOWN, GOOD])
    expect(tried.ids == [CALL.id] * 3, f"the attempts of call {CALL.id} came as {tried.ids}")


def patience_does_not_multiply(make: Retry) -> None:
    """A retry around a retry makes no more attempts than one alone, and tells the same once."""
    for script in ([DOWN], [failed(Kind.UNAVAILABLE, 3600)], [failed(Kind.TIMEOUT)], [DOWN, DOWN, GOOD]):
        one, two, three = (played(make, script, wrap=times) for times in (1, 2, 3))
        for times, more in ((2, two), (3, three)):
            expect(
                len(more.at) == len(one.at),
                f"{shown(script[0])}: {len(one.at)} attempts, and wrapped {times} times {len(more.at)}",
            )
            expect(
                more.seen == one.seen,
                f"wrapped {times} times it says {shown(more.seen)}, and once {shown(one.seen)}",
            )


def what_is_in_hand_is_kept_at_the_end_of_the_run(make: Retry) -> None:
    """Where a limit ends the run between two attempts, the failure that is known is what the turn keeps."""
    for effects in range(1, 10):
        tool = Attempts([DOWN])
        result = looped(make, tool, Limits(rounds=1, effects=effects))
        seen = result.turns[-1].observations[0]
        expect(result.stop is StopReason.EFFECTS, f"of {effects} effects none is left: {result.stop}")
        expect(
            not seen.ok and DOWN.text in seen.text,
            f"{len(tool.at)} attempts failed with <503>: {shown(seen)}",
        )


def no_wait_outlasts_the_run(make: Retry) -> None:
    """A wait for which the run has no time left is not begun, and what failed is kept."""
    tool = Attempts([failed(Kind.UNAVAILABLE, 30)])
    result = looped(make, tool, Limits(seconds=20.0))
    seen = result.turns[-1].observations[0]
    expect(tool.clock.slept == [], f"the run had 20 s, and {tool.clock.slept} was slept")
    expect("<UNAVAILABLE>" in seen.text and not seen.ok, f"the failure in hand is lost: {shown(seen)}")


def an_interrupted_attempt_is_in_doubt(make: Retry) -> None:
    """A person stops the run during an attempt: no further one is made, and it may have taken effect."""
    for number, idempotent in product((1, 2, 3), (True, False)):
        tool = Attempts([DOWN])
        tool.interrupted_at = number
        result = looped(make, tool, Limits(), idempotent)
        seen = result.turns[-1].observations[0]
        expect(result.stop is StopReason.HUMAN, f"a person stopped the run, and it ended with {result.stop}")
        expect(len(tool.at) == number, f"stopped in attempt {number}, and {len(tool.at)} were made")
        story = f"stopped in the middle of attempt {number}, which may have taken effect: {shown(seen)}"
        expect(not seen.ok and seen.kind is Kind.UNCERTAIN, story)


def a_doubt_is_not_taken_back(make: Retry) -> None:
    """An attempt may have taken effect, and a later one fails otherwise: it is in doubt, not undone (C09)."""
    for doubt in map(failed, IN_DOUBT):
        for then in (DOWN, failed(Kind.UNAVAILABLE, 3600), failed(Kind.TOOL_ERROR)):
            for script in ([doubt, then], [doubt, then, DOWN], [DOWN, doubt, then]):
                for wrap in (1, 2):
                    seen = played(make, script, idempotent=True, wrap=wrap).seen
                    story = f"{', then '.join(map(shown, script))} came to {shown(seen)}"
                    expect(not seen.ok and seen.kind in IN_DOUBT, story)
        refused = played(make, [doubt, failed(Kind.REFUSED)], idempotent=True).seen
        expect(
            refused.kind is Kind.REFUSED, f"a person said no, which stays a no, and it is {shown(refused)}"
        )
        for script in ([doubt, GOOD], [doubt, DOWN, GOOD]):
            seen = played(make, script, idempotent=True).seen
            expect(seen == GOOD, f"it succeeded in the end, and it came to {shown(seen)}")


def _fails_next(script: list[Exception]) -> str:
    raise script.pop(0) if len(script) > 1 else script[0]


def after_a_doubt_no_other_tool_is_asked(make: Retry) -> None:
    """What an attempt may have done, a later one does not let a guard inside ask of another tool (C09)."""
    for first, due in ((TimeoutError("no answer"), []), (Unavailable("closed"), ["elsewhere"])):
        script, asked, clock = [first, Unavailable("closed")], list[str](), FakeClock()

        def falling_back(call: ToolCall) -> Program[Observation]:
            seen: Observation = yield from settle(call_tool(call))
            if seen.kind is not Kind.UNAVAILABLE:
                return seen
            return (yield from settle(call_tool(call._replace(name="elsewhere"))))

        elsewhere = partial(asked.append, "elsewhere")
        tools = Toolbox({"pay": partial(_fails_next, script), "elsewhere": elsewhere})
        act = make(falling_back, idempotent=lambda name: name == "pay", patience=PATIENCE)
        world = World(tools=tools, clock=clock.now, sleep=clock.sleep, inline=True)
        seen = drive(settle(act(ToolCall("pay", {}, "call_1_1_1"))), world)
        story = f"an attempt failed with {first!r}, and then it was down: {shown(seen)}"
        expect(asked == due, f"{story}, and the other tool was asked {len(asked)} time(s)")


def a_replay_waits_for_nobody(make: Retry) -> None:
    """Draws and waits are in the journal: a replay comes to the same, asks no tool and sleeps not at all."""
    patience = replace(PATIENCE, draw=random.Random(1).random)
    act = make(call_tool, idempotent=lambda name: False, patience=patience)
    tool, journal, nobody = Attempts([DOWN, DOWN, GOOD], 0.5), Journal(), Attempts([GOOD])
    first = drive(settle(act(CALL)), tool.world, journal)
    try:
        again = drive(settle(act(CALL)), nobody.world, Journal(journal.outcomes))
    except ProgramChanged as changed:
        raise BrokenPromise(f"replayed, it goes another way: {changed}") from None
    expect(again == first, f"the run came to {shown(first)}, and its replay to {again}")
    expect(not nobody.at and not nobody.clock.slept, "the replay touched the world")


def calls_share_nothing(make: Retry) -> None:
    """One guard serves many calls at once, and each has all of its patience."""
    tool = Attempts([DOWN])
    act = make(call_tool, idempotent=lambda name: False, patience=replace(PATIENCE, draw=lambda: 0.0))

    def two() -> Any:
        calls = (CALL, CALL._replace(id="call_2_1_1"))
        return (yield Together(tuple(settle(act(call)) for call in calls))).value

    first, second = drive(two(), tool.world)
    for _ in range(2):
        drive(settle(act(CALL)), tool.world)
    due = 4 * PATIENCE.attempts
    expect(len(tool.at) == due, f"four calls with {PATIENCE.attempts} attempts each made {len(tool.at)}")
    expect(first == second, f"two calls that fared alike came to {shown(first)} and {second}")


#: What a server may say, and what it had better not.
words = st.one_of(
    st.none(),
    st.floats(),
    st.integers(-(10**400), 10**400),
    st.text(max_size=30),
    st.text(alphabet="SunMoNvJ,: 0123456789GMT+-", max_size=35),
    st.datetimes(timezones=st.just(UTC)).map(lambda when: format_datetime(when, usegmt=True)),
    st.sampled_from([True, [], object()]),
)
kinds = st.sampled_from([*Kind, *(PASSING + IN_DOUBT) * 3])
observations = st.builds(Observation, st.text(max_size=9), st.booleans(), kinds, st.one_of(st.none(), words))


def whatever_comes_it_ends_and_tells_the_truth(make: Retry) -> None:
    """Any observations, words of servers, limits and interrupts: it ends in time, and success is success."""

    @settings(deadline=None, database=None, max_examples=150)
    @given(
        st.lists(observations, min_size=1, max_size=6),
        st.booleans(),
        st.integers(1, 30),
        st.sampled_from([0.5, 5.0, 20.0, 300.0]),
        st.floats(0, 3),
        st.sampled_from([1, 2, 3, math.inf, math.inf]),
    )
    @example([DOWN, GOOD._replace(kind=Kind.UNAVAILABLE)], False, 30, 300.0, 0.0, math.inf)
    def check(
        script: list[Observation],
        idempotent: bool,
        effects: int,
        run_seconds: float,
        seconds: float,
        interrupted_at: float,
    ) -> None:
        tool = Attempts(script, seconds)
        tool.interrupted_at = interrupted_at
        result = looped(make, tool, Limits(rounds=1, effects=effects, seconds=run_seconds), idempotent)
        expect(len(tool.at) <= PATIENCE.attempts, f"{len(tool.at)} attempts for {script}")
        seen = result.turns[-1].observations[0]
        *before, last = [tool.said(number) for number in range(1, max(len(tool.at), 1) + 1)]
        again = [each for each in before if each.ok or each.kind not in PASSING + IN_DOUBT]
        expect(not again, f"it was tried again after {', '.join(map(shown, again))}")
        expect(
            not seen.ok or seen == last,
            f"the last attempt said {shown(last)}, and what was kept is {shown(seen)}",
        )
        over = sum(tool.clock.slept) + len(tool.at) * seconds
        expect(over <= run_seconds + seconds + 1e-6, f"{over:g} s for a run of {run_seconds:g} s")

    check()


PROMISES: dict[str, Callable[[Retry], None]] = {
    promise.__name__: promise
    for promise in (
        a_success_is_passed_on_as_it_is,
        what_may_pass_is_tried_again,
        what_would_fail_again_is_tried_once,
        what_may_have_happened_is_not_repeated,
        a_failure_says_how_often_it_was_tried,
        waits_double_up_to_the_longest,
        the_allowance_is_kept,
        the_servers_word_is_honoured,
        what_a_server_cannot_mean_is_overheard,
        what_patience_does_not_cover_is_not_waited_for,
        every_attempt_is_the_same_call,
        patience_does_not_multiply,
        what_is_in_hand_is_kept_at_the_end_of_the_run,
        no_wait_outlasts_the_run,
        an_interrupted_attempt_is_in_doubt,
        a_doubt_is_not_taken_back,
        after_a_doubt_no_other_tool_is_asked,
        a_replay_waits_for_nobody,
        calls_share_nothing,
        whatever_comes_it_ends_and_tells_the_truth,
    )
}


def check_retry(make: Retry) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(make)
