"""What limits from measured runs promise: plain functions of one ``sized``, used on ours and on a reader's.

``make(runs)`` or ``make(runs, otherwise)`` makes ``Limits`` from the controls of ended runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from agentloop import TERMINATED, Control, Limits, StopReason
from chapters.ch16_hard_limits import session
from tests.check_machine import BrokenPromise
from tests.check_toolbox import expect

Make = Callable[..., Any]

COUNTED = ("rounds", "model_calls", "tool_calls", "effects")  # may be used up to the limit
MEASURED = ("tokens", "cost", "seconds")  # end the run at their limit

DONE = (StopReason.FINAL_ANSWER, StopReason.EXTERNALLY_DONE)
USUAL = Control(TERMINATED, 3, 3, 2, 6, tokens=5000, cost=0.02, seconds=8.0, stop=StopReason.FINAL_ANSWER)

#: What successful runs can have used: usual ones, and now and then one that is much harder.
amounts = st.one_of(st.integers(1, 50), st.integers(1, 1000))
successes = st.builds(
    lambda rounds, calls, effects, tokens, cost, seconds, stop: Control(
        TERMINATED, rounds, calls, calls, 2 * calls + effects, 0, 0, tokens, cost, seconds, stop
    ),
    amounts,
    amounts,
    amounts,
    st.integers(1, 10**6),
    st.floats(0.001, 50),
    st.floats(0.01, 5000),
    st.sampled_from(DONE),
)
failures = st.builds(
    lambda run, stop, worse: run._replace(
        stop=stop, rounds=run.rounds * worse, tokens=run.tokens * worse, seconds=run.seconds * worse
    ),
    successes,
    st.sampled_from([stop for stop in StopReason if stop not in DONE] + [None]),
    st.integers(1, 100),
)
logs = st.lists(successes, min_size=1, max_size=8)


def made(make: Make, runs: Sequence[Control], *otherwise: Limits) -> Limits:
    """The limits that are made where there is something to make them of."""
    try:
        limits: Limits = make(runs, *otherwise)
    except ValueError as error:
        raise BrokenPromise(f"of runs of which one or more succeeded no limits were made: {error}") from error
    return limits


def expect_near(name: str, value: float, least: float, most: float, story: str) -> None:
    expect(least <= value <= most, f"{story}: {name} is due from {least:g} to {most:g}, and is {value:g}")


def the_articles_figures_come_out(make: Make) -> None:
    """The hardest task took 15 rounds: 25. The mean is 5k tokens: 50k. The p95 is 20 s: 40 to 60 s."""
    log = [USUAL._replace(rounds=rounds, seconds=20.0) for rounds in range(6, 16)] * 2
    limits = make(log)
    expect_near("rounds", limits.rounds, 25, 25, "the hardest task took 15 rounds")
    expect_near("tokens", limits.tokens, 50_000, 50_000, "a run uses 5,000 tokens")
    expect_near("seconds", limits.seconds, 40, 60, "each run takes 20 s")
    expect_near("cost", limits.cost, 0.199, 0.201, "a run costs 0.02")


def one_slow_run_in_twenty_moves_little(make: Make) -> None:
    """It is the 95th percentile that counts for seconds, not the slowest of many, nor the middle one."""
    log = [USUAL._replace(seconds=seconds) for seconds in [10.0] * 15 + [20.0] * 4 + [22.0]]
    expect_near("seconds", make(log).seconds, 40, 60, "of 20 runs, the 19th took 20 s and the slowest 22 s")


def failed_runs_are_left_out(make: Make) -> None:
    """What a runaway used says nothing about what is needed; nor does a run that has not ended."""
    log = [USUAL] * 20
    bad = USUAL._replace(rounds=500, tokens=10**7, seconds=9000.0, cost=90.0, tool_calls=500)
    for stop in [stop for stop in StopReason if stop not in DONE] + [None]:
        for spoiled in ([*log, bad._replace(stop=stop)], [USUAL._replace(stop=stop, tokens=1)] * 20 + log):
            expect(
                make(spoiled) == make(log),
                f"beside 20 runs as usual others ended with {stop and stop.name}, and the limits change",
            )
    outside = [run._replace(stop=StopReason.EXTERNALLY_DONE) for run in log]
    expect(
        made(make, outside) == make(log), "runs that an outside check ended were successes, and are left out"
    )


def what_succeeded_fits_again(make: Make) -> None:
    """No run like one that was measured is ever stopped, however much harder it was than the others."""

    @given(logs)
    @example([USUAL] * 19 + [USUAL._replace(tokens=500_000)])
    @example([USUAL] * 19 + [USUAL._replace(cost=5.0)])
    @example([USUAL] * 99 + [USUAL._replace(seconds=500.0)])
    def fit(log: list[Control]) -> None:
        limits = make(log)
        for name in (*COUNTED, *MEASURED):
            used, allowed = max(getattr(run, name) for run in log), getattr(limits, name)
            fits = used <= allowed if name in COUNTED else used < allowed
            expect(
                fits, f"a run succeeded with {used:g} {name}, and would be stopped: {allowed:g} are allowed"
            )

    fit()


def no_limit_is_wider_than_it_says(make: Make) -> None:
    """Wide enough is no reason for wider: twice the hardest, or the article's multiples, are the most."""

    @given(logs)
    def tight(log: list[Control]) -> None:
        limits, count = make(log), len(log)
        for name in COUNTED:
            hardest = max(getattr(run, name) for run in log)
            expect_near(name, getattr(limits, name), hardest, 2 * hardest, f"the most used was {hardest}")
        for name in MEASURED:
            used = [getattr(run, name) for run in log]
            most = max(
                2 * max(used), 3 * max(used) if name == "seconds" else 10 * math.fsum(used) / count + 1
            )
            expect_near(name, getattr(limits, name), max(used), most, f"the runs used {used}")

    tight()


def what_was_not_measured_stays(make: Make) -> None:
    """What no run tells or uses is as in ``otherwise``, and never zero or without a limit."""
    otherwise = Limits(tool_calls=7, failures=2, cost=3.0, seconds=99.0, call_seconds=5.0)
    limits = made(make, [USUAL._replace(tool_calls=0, cost=0.0, seconds=0.0)], otherwise)
    for name in ("tool_calls", "failures", "cost", "seconds", "call_seconds"):
        due, value = getattr(otherwise, name), getattr(limits, name)
        expect(value == due, f"nothing was measured of {name}: due is {due:g}, and it is {value:g}")
    expect(limits.rounds == 5, f"3 rounds were measured: due is 5, and it is {limits.rounds}")


def nothing_is_made_of_nothing(make: Make) -> None:
    """Where no run succeeded there is nothing to go by: it raises ValueError, and guesses nothing."""
    for log in ([], [USUAL._replace(stop=StopReason.MAX_ITERATIONS)] * 3):
        try:
            limits = make(log)
        except ValueError as error:
            expect(bool(str(error)), "it raises ValueError, and does not say why")
        else:
            expect(False, f"none of {len(log)} runs succeeded, and it says {limits}")


def any_order_and_any_iterable_will_do(make: Make) -> None:
    """The log is read once, in any order."""

    @given(st.lists(st.one_of(successes, failures), max_size=6), successes, st.randoms(use_true_random=False))
    def same(log: list[Control], one: Control, random: Any) -> None:
        shuffled: Sequence[Control] = random.sample([*log, one], len(log) + 1)
        first, second = make([*log, one]), make(iter(shuffled))
        alike = all(
            math.isclose(getattr(first, name), getattr(second, name)) for name in first.__dataclass_fields__
        )
        expect(alike, f"the same runs in another order: {first}, then {second}")

    same()


def a_measured_loop_runs_again(make: Make) -> None:
    """A loop whose sessions were measured ends as before under them; ten times as many rounds do not."""
    log = [session(rounds).control for rounds in (2, 3, 3, 2, 3)]
    limits = make(log)
    for rounds in (2, 3):
        stop = session(rounds, limits).stop
        expect(
            stop is StopReason.FINAL_ANSWER, f"{rounds} rounds were measured, and now end with {stop.name}"
        )
    runaway = session(30, limits)
    expect(runaway.answer is None, "3 rounds were measured, and 30 are let through")
    expect(
        runaway.control.tokens <= 10 * max(run.tokens for run in log),
        f"3 rounds were measured, and 30 may use {runaway.control.tokens} tokens",
    )


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        the_articles_figures_come_out,
        one_slow_run_in_twenty_moves_little,
        failed_runs_are_left_out,
        what_succeeded_fits_again,
        no_limit_is_wider_than_it_says,
        what_was_not_measured_stays,
        nothing_is_made_of_nothing,
        any_order_and_any_iterable_will_do,
        a_measured_loop_runs_again,
    )
}
