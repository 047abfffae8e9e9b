"""What a rule against stagnation promises: for ``make(value, patience=n, least_gain=g)``, which makes one.

``check_stagnation(make)`` raises ``BrokenPromise`` with the story of the first promise that is broken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import Do, LoopContext, Program, StopReason
from tests.check_toolbox import expect
from tests.stop_rule_worlds import Action, Rule, doing, run

Make = Callable[..., Rule]

examples = settings(deadline=None, database=None, max_examples=60)
numbers = st.integers(-3, 3) | st.sampled_from([0.5, 1e9, -1e9])
UNKNOWN: tuple[Any, ...] = (None, math.nan, math.inf, -math.inf, "0.9", True, [], 10**400)
FAILS = "the judge fails"


def judged(values: Sequence[Any], asked: list[int]) -> Callable[[LoopContext], Any]:
    """A value for each round, as a judge gives it who is asked through the world."""

    def give(number: int) -> Any:
        asked.append(number)
        if values[number - 1] == FAILS:
            raise ConnectionError("503")
        return values[number - 1]

    def value(context: LoopContext) -> Program[Any]:
        number = len(context.turns)
        return (yield Do("judge", lambda: give(number))).value

    return value


def due(values: Sequence[Any], patience: int, least_gain: float) -> int | None:
    """After which round it stagnates, the long way round."""
    best, idle = None, 0
    for number, value in enumerate(values, 1):
        known = type(value) in (int, float) and abs(value) < 1e300
        gained = known and (best is None or (value > best and value - best >= least_gain))
        best, idle = (value, 0) if gained else (best, idle + 1)
        if idle == patience:
            return number
    return None


def _judge(make: Make, values: Sequence[Any], patience: int, least_gain: float, plain: bool) -> None:
    asked: list[int] = []
    judge = judged(values, asked)
    value = (lambda context: values[len(context.turns) - 1]) if plain else judge
    rule = make(value, patience=patience, least_gain=least_gain)
    end = run(rule, [doing(Action("work", {"step": number}, f"{number}")) for number in range(len(values))])
    after = due(values, patience, least_gain)
    given_so = f"with patience={patience}, least_gain={least_gain} and the values {list(values)}"
    expect(
        end.after == after, f"{given_so} it was to stop after round {after}, and stopped after {end.after}"
    )
    named = f"{given_so} it stopped with {end.reason.name}, and not with STAGNATED"
    expect(after is None or end.reason is StopReason.STAGNATED, named)
    once = list(range(1, (after or len(values)) + 1))
    expect(
        plain or asked == once, f"{given_so} the judge was asked in rounds {asked}: once a round is enough"
    )


# --- The promises -----------------------------------------------------------------------------


def it_stops_when_its_patience_is_used_up(make: Make) -> None:
    """It stops after that many rounds in a row without an improvement on the best so far, and not before."""

    @examples
    @given(st.lists(numbers, max_size=12), st.integers(1, 4), st.booleans())
    def compare(values: list[Any], patience: int, plain: bool) -> None:
        _judge(make, values, patience, 0.0, plain)

    compare()
    _judge(make, [1, 2, 3, 4, 5, 6, 7, 8], 1, 0.0, True)
    _judge(make, [1, 1, 1, 1, 1], 3, 0.0, True)
    _judge(make, [5, 1, 2, 3, 4, 5], 3, 0.0, True)


def what_is_no_number_is_no_improvement(make: Make) -> None:
    """NaN, an infinity, a text, ``True``, a judge that fails: none is an improvement, and none breaks it."""

    @examples
    @given(st.lists(numbers | st.sampled_from(UNKNOWN), max_size=8), st.integers(1, 3))
    def compare(values: list[Any], patience: int) -> None:
        _judge(make, values, patience, 0.0, True)

    compare()
    for unknown in (*UNKNOWN, FAILS):
        _judge(make, [1, unknown, 2, unknown, unknown, 3], 3, 0.0, unknown is None)
        _judge(make, [unknown] * 4, 3, 0.0, False)


def too_small_a_gain_is_none_and_small_gains_add_up(make: Make) -> None:
    """A gain below the smallest that counts is none; several that come to it together are one."""
    _judge(make, [1.0, 1.25, 1.5, 1.75], 3, 2.0, True)
    _judge(make, [1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0], 3, 0.5, True)
    _judge(make, [0, 1, 2, 3, 4, 5, 6], 2, 1.0, True)
    _judge(make, [0, 1, 2, 3, 4, 5, 6], 2, 2.0, True)


def runs_share_nothing(make: Make) -> None:
    """The best of one run is nothing to the next."""
    values = iter([9, 9.5, 1, 2, 3, 4])
    rule = make(lambda context: next(values), patience=2)
    for rounds in (2, 4):
        end = run(rule, [doing(Action("work", {"step": number}, f"{number}")) for number in range(rounds)])
        expect(
            end.after is None, f"after a run worth 9.5, one worth 1, 2, 3, 4 was stopped in round {end.after}"
        )


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        it_stops_when_its_patience_is_used_up,
        what_is_no_number_is_no_improvement,
        too_small_a_gain_is_none_and_small_gains_add_up,
        runs_share_nothing,
    )
}


def check_stagnation(make: Make) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(make)
