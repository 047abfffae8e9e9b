"""What circuit breakers promise: plain functions of anything made and used like ``CircuitBreakers``.

``make(Settings(...), clock=now)`` returns breakers with ``admit``, ``report`` and ``states``; it may be given
the ``store`` of others. ``check_breaker(make)`` raises ``BrokenPromise`` with a short story.
``PROMISES`` holds the same promises one by one.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from chapters.ch21_circuit_breaker import (
    ASKED,
    CLOSED,
    FAILED,
    HALF_OPEN,
    OPEN,
    RELEASED,
    SUCCEEDED,
    Breaker,
    BreakerState,
    Event,
    Happening,
    Settings,
    seconds_left,
    step,
)
from fake_llm import FakeClock
from tests.check_machine import BrokenPromise
from tests.check_toolbox import expect

Make = Callable[..., Any]

NAME = "get_weather"
OUTCOMES = (SUCCEEDED, FAILED, RELEASED)
PATIENCE = 2.0  # seconds for a thread that only a broken version lets run out


def own(make: Make, ours: Any) -> Any:
    """A type of ours; or a reader's, whose file is a copy of the chapter and has types of its own."""
    return getattr(sys.modules.get(make.__module__), ours.__name__, ours)


class Bench:
    """Breakers under test, with a clock that only moves by hand, and words for what is done to them."""

    def __init__(self, make: Make, threshold: int = 3, recovery: float = 10.0) -> None:
        self.clock = FakeClock(1000.0)
        self.settings = own(make, Settings)(threshold, recovery)
        self.breakers = make(self.settings, clock=self.clock.now)
        self.outcomes = own(make, Happening)

    def ask(self, name: str = NAME) -> str:
        """The permit of a call that must be let through."""
        admitted = self.breakers.admit(name)
        if not isinstance(admitted, str):
            raise BrokenPromise(f"{name} is {self.state(name).name}, and a call was refused")
        return admitted

    def refused(self, name: str = NAME) -> float:
        """The seconds left, where a call must be refused."""
        admitted = self.breakers.admit(name)
        if isinstance(admitted, str):
            raise BrokenPromise(f"{name} is {self.state(name).name}, and let a call through")
        return float(admitted)

    def call(self, outcome: Happening, name: str = NAME) -> None:
        self.report(self.ask(name), outcome)

    def report(self, permit: str, outcome: Happening) -> None:
        self.breakers.report(permit, self.outcomes[outcome.name])

    def calls(self, outcome: Happening, count: int, name: str = NAME) -> None:
        for _ in range(count):
            self.call(outcome, name)

    def trip(self, name: str = NAME) -> None:
        self.calls(FAILED, self.settings.threshold, name)

    def state(self, name: str = NAME) -> BreakerState:
        return BreakerState[self.breakers.states().get(name, CLOSED).name]

    def stands(self, state: BreakerState, when: str, name: str = NAME) -> None:
        expect(self.state(name) is state, f"{when}, {name} is {self.state(name).name}, not {state.name}")


def due(make: Make, threshold: int = 3) -> Bench:
    """Breakers of which one has opened, and whose recovery time is over."""
    bench = Bench(make, threshold)
    bench.trip()
    bench.clock.advance(bench.settings.recovery)
    return bench


# --- Opening ----------------------------------------------------------------------------------


def it_opens_at_the_threshold(make: Make) -> None:
    """It opens at the failure that makes as many in a row as the threshold: not sooner, not later (EA48)."""
    for threshold in (1, 2, 5):
        bench = Bench(make, threshold)
        for number in range(1, threshold + 1):
            bench.stands(CLOSED, f"before failure {number} of {threshold}")
            bench.call(FAILED)
        bench.stands(OPEN, f"after {threshold} failures in a row")


def a_success_clears_the_count(make: Make) -> None:
    """Failures are counted in a row: a success clears them (成功重置)."""
    bench = Bench(make, 3)
    for outcome in (FAILED, FAILED, SUCCEEDED, FAILED, FAILED):
        bench.call(outcome)
    bench.stands(CLOSED, "after two failures, a success and two failures, with a threshold of 3")
    bench.call(FAILED)
    bench.stands(OPEN, "after the third failure in a row")


def what_says_nothing_counts_as_nothing(make: Make) -> None:
    """Ten calls that say nothing about the tool leave it closed, and do not clear its failures (C04)."""
    bench = Bench(make, 3)
    bench.calls(RELEASED, 10)
    bench.stands(CLOSED, "after ten mistakes of the caller")
    for outcome in (FAILED, FAILED, RELEASED, FAILED):
        bench.call(outcome)
    bench.stands(OPEN, "after three failures with a caller's mistake among them")


def it_refuses_at_once_and_says_how_long(make: Make) -> None:
    """An open breaker refuses, with the seconds that are left by the clock it was given (EA49)."""
    bench = Bench(make)
    bench.trip()
    for passed in range(10):
        left = bench.refused()
        expect(left == 10 - passed, f"{passed} s of 10 are over, and it says that {left:g} s are left")
        bench.clock.advance(1)
    bench.ask()


def each_outcome_counts_once(make: Make) -> None:
    """An outcome that is reported twice, in whatever words, counts once (C04)."""
    for again in OUTCOMES:
        bench = Bench(make, 3)
        bench.call(FAILED)
        permit = bench.ask()
        bench.report(permit, FAILED)
        bench.report(permit, again)
        bench.stands(CLOSED, f"after two failures, one of them told again as {again.name}")
        bench.call(FAILED)
        bench.stands(OPEN, f"after three failures, one of them told again as {again.name}")


# --- Probing ----------------------------------------------------------------------------------


def one_probe_at_a_time(make: Make) -> None:
    """When the recovery time is over, one call is let through and all others are refused (C01, EA45)."""
    bench = due(make)
    admitted = [bench.breakers.admit(NAME) for _ in range(8)]
    through = sum(isinstance(each, str) for each in admitted)
    expect(through == 1, f"eight calls asked, and {through} were let through")
    bench.stands(HALF_OPEN, "while the probe is under way")
    bench.clock.advance(5)
    bench.refused()


def a_failed_probe_opens_again(make: Make) -> None:
    """One failed probe opens again, for a whole recovery time from then on (C01, EA46)."""
    bench = due(make)
    for _ in range(3):
        permit = bench.ask()
        bench.clock.advance(4)
        bench.report(permit, FAILED)
        bench.stands(OPEN, "after a failed probe")
        left = bench.refused()
        expect(left == 10, f"just after a failed probe {left:g} s are left of 10")
        bench.clock.advance(10)


def a_good_probe_closes(make: Make) -> None:
    """A probe that succeeds closes, and the count begins anew."""
    bench = due(make)
    bench.call(SUCCEEDED)
    bench.stands(CLOSED, "after a good probe")
    bench.call(FAILED)
    bench.call(FAILED)
    bench.stands(CLOSED, "after a good probe and two failures, with a threshold of 3")
    bench.call(FAILED)
    bench.stands(OPEN, "after a good probe and three failures")


def a_probe_that_says_nothing_frees_the_slot(make: Make) -> None:
    """A cancelled probe is no success and no failure, and the next call may probe at once (C02)."""
    bench = due(make)
    bench.call(RELEASED)
    bench.stands(HALF_OPEN, "after a cancelled probe")
    permit = bench.ask()
    bench.refused()
    bench.report(permit, SUCCEEDED)
    bench.stands(CLOSED, "after a second probe that succeeded")


def a_lost_probe_blocks_nobody_for_ever(make: Make) -> None:
    """A probe that is never heard of again holds its slot for a recovery time, and no longer (C02)."""
    bench = due(make)
    lost = bench.ask()
    bench.clock.advance(10)
    permit = bench.ask()
    bench.report(lost, FAILED)
    bench.stands(HALF_OPEN, "after the outcome of a probe that was given up, with another under way")
    bench.report(permit, SUCCEEDED)
    bench.stands(CLOSED, "after the second probe succeeded")


def a_late_outcome_changes_nothing(make: Make) -> None:
    """What comes of a call that was begun before the breaker opened changes nothing any more."""
    for late in OUTCOMES:
        bench = Bench(make)
        permits = [bench.ask() for _ in range(3)]
        bench.trip()
        bench.clock.advance(4)
        bench.report(permits[0], late)
        bench.stands(OPEN, f"open, told a late {late.name}")
        left = bench.refused()
        expect(left == 6, f"a late {late.name} came 4 s after it opened, and {left:g} s are left of 10")
        bench.clock.advance(6)
        probe = bench.ask()
        bench.report(permits[1], late)
        bench.stands(HALF_OPEN, f"probing, told a late {late.name}")
        bench.refused()
        bench.report(probe, SUCCEEDED)
        bench.call(FAILED)
        bench.report(permits[2], late)
        bench.call(FAILED)
        bench.stands(CLOSED, f"closed again, with two failures and a late {late.name}")
        bench.call(FAILED)
        bench.stands(OPEN, f"closed again, with three failures and a late {late.name}")


# --- Whose it is ------------------------------------------------------------------------------


def names_are_exact(make: Make) -> None:
    """Tools whose names begin alike share nothing, and each is listed (C07, EA47)."""
    for tripped, other in itertools.permutations(("search", "search:v2", "search_web", "Search", "sear"), 2):
        bench = Bench(make, 2)
        bench.call(FAILED, other)
        bench.trip(tripped)
        bench.stands(CLOSED, f"after one failure, and two of {tripped}", other)
        bench.call(FAILED, other)
        bench.stands(OPEN, f"after two failures, and two of {tripped}", other)
        bench.clock.advance(10)
        bench.call(SUCCEEDED, other)
        bench.stands(OPEN, f"two failures, and a success of {other}", tripped)
        listed = set(bench.breakers.states())
        expect(listed == {tripped, other}, f"{tripped} and {other} were used, and listed are {listed}")


def a_name_that_is_no_tool_leaves_no_trace(make: Make) -> None:
    """A model that makes up names fills no memory: a name that never succeeded or failed is not kept."""
    bench = Bench(make)
    for number in range(50):
        bench.call(RELEASED, f"made_up_{number}")
    listed = len(bench.breakers.states())
    expect(listed == 0, f"50 names that are no tools were tried, and {listed} are listed")


def a_store_is_shared(make: Make) -> None:
    """Breakers made anew on the same store go on where they stood, and hear each other's outcomes (C07)."""
    bench = Bench(make, 2)
    bench.call(FAILED)
    permit = bench.ask()
    others = make(bench.settings, clock=bench.clock.now, store=bench.breakers.store)
    others.report(permit, bench.outcomes.FAILED)
    bench.stands(OPEN, "after two failures, one told to other breakers on the same store")
    expect(not isinstance(others.admit(NAME), str), "it is open, and others on its store let a call through")


def a_strange_permit_changes_nothing(make: Make) -> None:
    """A permit counts only for whom it was issued by: not after a restart, not elsewhere."""
    for outcome in OUTCOMES:
        before, after = due(make), due(make)
        strange, probe = before.ask(), after.ask()
        after.report(strange, outcome)
        after.report("", outcome)
        after.stands(HALF_OPEN, f"probing, told {outcome.name} of a call that somebody else let through")
        after.refused()
        after.report(probe, SUCCEEDED)
        after.stands(CLOSED, "after its own probe succeeded")


# --- Threads ----------------------------------------------------------------------------------


def give_way(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
    """Let other threads go on before each line under test, as may happen: what is not locked comes apart."""
    if frame.f_code.co_filename == __file__:
        return give_way
    time.sleep(0)
    return give_way


def together(count: int, work: Callable[[], object], trace: Any = None) -> None:
    """Do the same on so many threads, begun at the same time. What one of them raises breaks the promise."""
    start = threading.Barrier(count)
    failures: list[BaseException] = []

    def labour() -> None:
        try:
            start.wait(PATIENCE)
            sys.settrace(trace)
            work()
        except BaseException as error:
            failures.append(error)
        finally:
            sys.settrace(None)

    threads = [threading.Thread(target=labour, daemon=True) for _ in range(count)]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # seconds: threads take turns as often as can be
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    finally:
        sys.setswitchinterval(usual)
    for error in failures:
        raise BrokenPromise(f"on one of {count} threads: {type(error).__name__}: {error}") from error
    expect(not any(thread.is_alive() for thread in threads), f"{count} threads at once: one never came back")


#: How many calls on each thread, and whether they give way to each other before each line.
ROUNDS = ((5, give_way),) * 3


def no_failure_is_lost(make: Make) -> None:
    """A thousand failures on many threads are a thousand: with a threshold of 1001 the next opens (C06)."""
    for count, trace in (*ROUNDS, (125, None)):
        bench = Bench(make, 8 * count + 1)
        together(8, lambda: bench.calls(FAILED, count), trace)  # noqa: B023 - over before the next turn
        bench.stands(CLOSED, f"after {8 * count} failures, with a threshold of {8 * count + 1}")
        bench.call(FAILED)
        bench.stands(OPEN, f"after {8 * count + 1} failures on many threads")


def one_probe_whichever_thread_asks(make: Make) -> None:
    """Of many threads that ask at the same time one is let through (C01)."""
    for _ in range(3):
        bench = due(make, 1)
        through: list[str] = []

        def ask(bench: Bench = bench, through: list[str] = through) -> None:
            admitted = bench.breakers.admit(NAME)
            if isinstance(admitted, str):
                through.append(admitted)

        together(8, ask, give_way)
        expect(len(through) == 1, f"eight threads asked, and {len(through)} were let through")


def nobody_waits_during_a_call(make: Make) -> None:
    """While one call is under way another begins and ends: no lock is held (C06)."""
    bench = Bench(make)
    permit = bench.ask()

    def work() -> None:
        admitted = bench.breakers.admit(NAME)
        bench.breakers.states()
        bench.report(str(admitted), SUCCEEDED)

    another = threading.Thread(target=work, daemon=True)
    another.start()
    another.join(PATIENCE)
    expect(not another.is_alive(), "a call is under way, and another waits for it to end")
    bench.report(permit, SUCCEEDED)


# --- All of it, against the rows --------------------------------------------------------------

#: What can be done to breakers with a threshold of 1 and a recovery of 2 s.
DEEDS = ("ask", "SUCCEEDED", "FAILED", "RELEASED", "the first call FAILED", "a second passes")


def it_follows_the_rows(make: Make) -> None:
    """Whatever is done, in any order, it does what the rows say: all stories of up to six deeds."""
    for length in range(1, 7):
        for deeds in itertools.product(DEEDS, repeat=length):
            _follow(make, deeds)


def _follow(make: Make, deeds: tuple[str, ...]) -> None:
    bench, settings, model = Bench(make, 1, 2.0), Settings(1, 2.0), Breaker()
    breakers, clock = bench.breakers, bench.clock
    permits: list[tuple[str, int]] = []  # those that are out, with the era in which the rows gave them
    for number, deed in enumerate(deeds, 1):
        story = f"{', '.join(deeds[:number])}: "
        if deed == "ask":
            admitted, left = breakers.admit(NAME), seconds_left(model, clock.now())
            model = step(model, Event(ASKED, clock.now()), settings)
            expect(isinstance(admitted, str) or admitted == left, f"{story}{admitted} s are left, not {left}")
            expect(isinstance(admitted, str) == (left == 0), f"{story}{'' if left else 'not '}let through")
            permits += [(str(admitted), model.era)] * (left == 0)
        elif deed == "a second passes":
            clock.advance(1)
        elif permits:
            permit, era = permits.pop(0 if deed.startswith("the first") else -1)
            outcome = Happening[deed.rpartition(" ")[2]]
            bench.report(permit, outcome)
            model = step(model, Event(outcome, clock.now(), era), settings)
    stands = bench.state()
    expect(stands is model.state, f"{', '.join(deeds)}: it is {stands.name}, not {model.state.name}")


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        it_opens_at_the_threshold,
        a_success_clears_the_count,
        what_says_nothing_counts_as_nothing,
        it_refuses_at_once_and_says_how_long,
        each_outcome_counts_once,
        one_probe_at_a_time,
        a_failed_probe_opens_again,
        a_good_probe_closes,
        a_probe_that_says_nothing_frees_the_slot,
        a_lost_probe_blocks_nobody_for_ever,
        a_late_outcome_changes_nothing,
        names_are_exact,
        a_name_that_is_no_tool_leaves_no_trace,
        a_store_is_shared,
        a_strange_permit_changes_nothing,
        no_failure_is_lost,
        one_probe_whichever_thread_asks,
        nobody_waits_during_a_call,
        it_follows_the_rows,
    )
}


def check_breaker(make: Make) -> None:
    """Raise ``BrokenPromise`` for the first promise that is broken."""
    for promise in PROMISES.values():
        promise(make)
