"""What a plot promises: for ``plot(curves, width=.., height=..)``, which returns its lines.

``check_plot(plot)`` raises ``BrokenPromise`` with the story of the first promise that is broken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.check_machine import BrokenPromise
from tests.check_toolbox import expect, shown

Plot = Callable[..., list[str]]
Point = tuple[int, int]  # column and row, from the left and from the top

examples = settings(deadline=None, database=None, max_examples=80)
numbers = st.integers(-1000, 1000) | st.floats(-1e299, 1e299) | st.sampled_from([0, 5e-324, -0.0, 1e-300])
few = st.lists(st.integers(0, 50), min_size=1, max_size=20).filter(any)
curves = st.lists(st.lists(numbers, max_size=70), min_size=1, max_size=4).filter(any)


def drawing(plot: Plot, curves: Mapping[str, Sequence[float]], width: int, height: int) -> list[str]:
    """The lines of a drawing. Raises the story where there is none."""
    try:
        return plot(curves, width=width, height=height)
    except Exception as error:
        story = f"{dict(curves)} in {width} x {height} was not drawn, but raised {shown(error)}"
        raise BrokenPromise(story) from error


def drawn(plot: Plot, values: Sequence[float], width: int, height: int) -> list[Point]:
    """The points of one curve, read off its drawing; its mark is what the legend says."""
    lines = drawing(plot, {"it": values}, width, height)
    mark = lines[-1].split()[0]
    area = [line.partition("|")[2] for line in lines if "|" in line]
    found = [(column, row) for row, line in enumerate(area) for column, at in enumerate(line) if at == mark]
    told = f"{list(values)} in {width} x {height} was drawn in {len(area)} rows\n" + "\n".join(lines)
    expect(len(area) == height, told)
    expect(all(column < width for column, _ in found), told)
    return sorted(found)


# --- The promises -----------------------------------------------------------------------------


def a_curve_is_where_its_values_are(make: Plot) -> None:
    """Each value has its point: later ones further right, higher ones higher, the highest at the top."""

    @examples
    @example(list(range(1, 21)), 20, 10)
    @given(few, st.integers(20, 70), st.integers(2, 15))
    def compare(values: list[int], width: int, height: int) -> None:
        points = drawn(make, values, width, height)
        story = f"{values} in {width} x {height} became the points {points}"
        expect(len(points) == len(values), f"{story}: one for each value was due")
        rows = [row for _, row in points]
        top = max(values)
        for value, row in zip(values, rows, strict=True):
            exact = (top - value) / top * (height - 1)
            expect(abs(row - exact) <= 0.51, f"{story}: {value} was due in row {exact:.1f} from the top")
        for (before, _), (after, _) in zip(points, points[1:], strict=False):
            expect(before < after, f"{story}: each was due to the right of the one before")

    compare()


def zero_is_on_the_scale(make: Plot) -> None:
    """A high curve does not look steep because its foot is cut off: 0 is at the bottom, or inside."""
    high = drawn(make, [90, 91, 92], 30, 11)
    expect({row for _, row in high} == {0}, f"90, 91 and 92 lie in the rows {high}, and all are near the top")
    below = drawn(make, [-5, 0, 5], 30, 11)
    expect([row for _, row in below] == [10, 5, 0], f"-5, 0 and 5 lie at {below}, in 11 rows")


def any_finite_numbers_are_drawn_in_bounds(make: Plot) -> None:
    """Whatever the numbers, there is a drawing: in plain ASCII, no wider than it may be, each curve named."""

    @examples
    @example([[0, 0, 0], [-5]], 10, 4)
    @example([[0]], 2, 2)
    @given(curves, st.integers(2, 80), st.integers(2, 20))
    def compare(given: list[list[float]], width: int, height: int) -> None:
        named = {f"curve {number}": values for number, values in enumerate(given)}
        lines = drawing(make, named, width, height)
        story = f"{named} in {width} x {height} became\n" + "\n".join(lines)
        expect(all(line.isascii() and line.isprintable() for line in lines), story)
        area = [line.partition("|") for line in lines if "|" in line]
        expect(len(area) == height and all(len(each[2]) <= width for each in area), story)
        legend = "\n".join(lines[-len(named) :])
        expect(all(name in legend for name in named), f"the legend does not name each curve: {story}")

    compare()


def what_has_no_place_is_refused(make: Plot) -> None:
    """No values, NaN and infinities are refused with ValueError, not drawn somewhere."""
    nothing: list[dict[str, Any]] = [{}, {"it": []}]
    for wrong in (*nothing, *({"it": [1, value, 2]} for value in (math.nan, math.inf, -math.inf))):
        try:
            lines = make(wrong)
        except ValueError:
            continue
        expect(False, f"{wrong} has no place on a scale, and became\n" + "\n".join(lines))


PROMISES: dict[str, Callable[[Plot], None]] = {
    promise.__name__: promise
    for promise in (
        a_curve_is_where_its_values_are,
        zero_is_on_the_scale,
        any_finite_numbers_are_drawn_in_bounds,
        what_has_no_place_is_refused,
    )
}


def check_plot(plot: Plot) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(plot)
