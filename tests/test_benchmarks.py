"""The benchmarks run and measure what they say; how long anything takes is not tested."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks.figures import Figure

TINY = 0.01


@pytest.mark.parametrize("rounds", [0, 1, 20])
def test_both_sides_of_a_round_do_the_same_work(rounds: int) -> None:
    tools = benchmarks.Toolbox([benchmarks.add])
    view = benchmarks.last_turns(benchmarks.SHOWN)
    native = benchmarks.function_calling(tools, "You add numbers.", view)
    written = benchmarks.react(tools, view)
    for inline in (True, False):
        answers = {
            benchmarks.bare_function_calling(rounds),
            benchmarks.bare_react(rounds),
            benchmarks.guarded(native, benchmarks.NATIVE, rounds, tools, inline),
            benchmarks.guarded(written, benchmarks.WRITTEN, rounds, tools, inline),
        }
        assert answers == {"3"}


#: What starts whole processes takes too long for a test.
SLOW = ("import_figure", "demos_figure", "kinds_figures")


@pytest.mark.parametrize(
    "figures",
    [each for each in benchmarks.FIGURES if each.__name__ not in SLOW],
    ids=lambda each: each.__name__,
)
def test_each_figure_has_a_goal_and_is_measured(figures: Callable[[float], Iterable[Figure]]) -> None:
    found = list(figures(TINY))
    assert found
    assert all(figure.value > 0 and figure.goal > 0 for figure in found)


def test_the_parts_of_a_round_make_up_the_whole() -> None:
    shares = [share for _, share in benchmarks.where_it_goes(TINY)]
    assert sum(shares) == pytest.approx(1.0)
