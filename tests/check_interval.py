"""What ``interval(differences, seed, resamples)`` promises: plain functions of anything that judges so.

``PROMISES`` holds them one by one. Differences are drawn from known distributions, so that it is known
whether there is anything to find.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from statistics import fmean
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.check_toolbox import expect

Judge = Callable[..., Any]

numbers = st.floats(-1e6, 1e6)


def noise(mean: float, count: int, seed: int) -> list[float]:
    """So many differences with that mean, and a spread of 1."""
    draw = random.Random(seed)
    return [draw.gauss(mean, 1.0) for _ in range(count)]


def found(judge: Judge, mean: float, count: int = 30, samples: int = 150) -> float:
    """In what share of samples a difference is announced."""
    judged = [judge(noise(mean, count, seed), seed, 200) for seed in range(samples)]
    return sum(bool(each.significant) for each in judged) / samples


# --- The promises -----------------------------------------------------------------------------


def the_mean_lies_inside(judge: Judge) -> None:
    """The mean is that of the differences, and lies between the bounds."""

    @settings(deadline=None, database=None, max_examples=40)
    @given(st.lists(numbers, min_size=2, max_size=20))
    def check(differences: list[float]) -> None:
        mean, low, high = judge(differences, 1, 100)
        due = fmean(differences)
        expect(math.isclose(mean, due, abs_tol=1e-6), f"the mean of {differences} is {due}, not {mean}")
        nearly = 1e-6 * max(1.0, *map(abs, differences))
        least, most = min(differences) - nearly, max(differences) + nearly
        expect(least <= low <= high <= most, f"the bounds of {differences} are {low} and {high}")

    check()


def nothing_is_seldom_something(judge: Judge) -> None:
    """Where there is no difference, one is announced in about 5 of 100 samples, and not in 15."""
    share = found(judge, 0.0)
    expect(share < 0.15, f"there is nothing to find, and in {share:.0%} of the samples it is announced")


def something_is_found(judge: Judge) -> None:
    """A difference as large as the spread is announced nearly always, in whichever direction."""
    for mean in (1.0, -1.0):
        share = found(judge, mean, samples=40)
        expect(share > 0.9, f"the difference is {mean}, and in {share:.0%} of the samples it is announced")


def equal_is_not_different(judge: Judge) -> None:
    """Two that always come to the same do not differ."""
    said = judge([0.0] * 20, 1)
    expect(not said.significant, f"no difference at all is called significant: {said}")


def more_is_surer(judge: Judge) -> None:
    """With sixteen times the pairs, the interval is much narrower."""
    widths = [judge(noise(0.0, count, 3), 3)[1:] for count in (20, 320)]
    few, many = (high - low for low, high in widths)
    expect(0 < many < few / 2, f"20 pairs leave a width of {few:.2f}, and 320 of {many:.2f}")


def one_is_refused(judge: Judge) -> None:
    """A single difference says nothing of how much they vary."""
    for differences in ([], [0.4]):
        try:
            said = judge(differences, 1)
        except ValueError:
            continue
        expect(False, f"{differences} was judged: {said}")


def the_seed_decides(judge: Judge) -> None:
    """The same differences and seed are judged alike."""
    sample = noise(0.3, 12, 1)
    expect(judge(sample, 4) == judge(sample, 4), "the same seed judged twice, and differently")


PROMISES: dict[str, Callable[[Judge], None]] = {
    promise.__name__: promise
    for promise in (
        the_mean_lies_inside,
        nothing_is_seldom_something,
        something_is_found,
        equal_is_not_different,
        more_is_surer,
        one_is_refused,
        the_seed_decides,
    )
}
