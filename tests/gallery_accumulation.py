"""Wrong versions of the checked round and of the plot: ours with one planted fault each."""

from __future__ import annotations

from functools import partial

from tests.gallery import Fault

CheckedFault = partial(
    Fault, check="checked", of="checked", function="checked", module="chapters.ch23_error_accumulation"
)
PlotFault = partial(Fault, check="plot", of="plot", module="chapters.telling")

CHECKED_FAULTS: tuple[Fault, ...] = (
    CheckedFault(
        "what is objected to is done all the same",
        old="        if objection is None:\n",
        new="        if True:\n",
        caught_by="what_passes_is_done_and_what_does_not_is_not",
        passes=("a_decision_that_passes_stays_as_it_is",),
    ),
    CheckedFault(
        "an answer passes unchecked",
        old="if isinstance(decision, Act) and all(",
        new="if isinstance(decision, Finish) or all(",
        caught_by="an_answer_is_checked_too",
        passes=("what_passes_is_done_and_what_does_not_is_not",),
    ),
    CheckedFault(
        "the model is not told why nothing was done",
        old="Observation(objection, False, Kind.REFUSED)",
        new='Observation("no", False, Kind.REFUSED)',
        caught_by="the_objection_is_told_if_nothing_better_comes",
        passes=("what_passes_is_done_and_what_does_not_is_not",),
    ),
    CheckedFault(
        "an objection counts as a success, so nobody counts it",
        old="Observation(objection, False, Kind.REFUSED)",
        new="Observation(objection)",
        caught_by="the_objection_is_told_if_nothing_better_comes",
        passes=("what_passes_is_done_and_what_does_not_is_not",),
    ),
    CheckedFault(
        "a refused call cannot be told from a refused answer",
        old="not_taken(decision, Observation(objection, False, Kind.REFUSED))",
        new="report(Observation(objection, False, Kind.REFUSED), decision.thought)",
        caught_by="what_is_refused_is_told_under_its_name",
        passes=("the_objection_is_told_if_nothing_better_comes", "an_answer_is_checked_too"),
    ),
    CheckedFault(
        "reports are checked too",
        old="all(call.problem for call in decision.calls)",
        new="False",
        caught_by="a_report_is_passed_on_unchecked",
        passes=("what_passes_is_done_and_what_does_not_is_not",),
    ),
    CheckedFault(
        "a check that fails has passed",
        old='objection = f"This could not be checked, so it is not done: {failed}"',
        new="objection = None",
        caught_by="a_check_that_fails_has_not_passed",
        passes=("what_passes_is_done_and_what_does_not_is_not",),
    ),
    CheckedFault(
        "a check that fails brings the run down",
        old="except EffectFailed as failed:",
        new="except KeyError as failed:",
        caught_by="a_check_that_fails_has_not_passed",
    ),
    CheckedFault(
        "the thought in hand is lost when the allowance ends",
        old="return cut_short(ended, [decision.thought])",
        new="raise ended",
        caught_by="nothing_is_done_when_the_allowance_ends_in_the_check",
        passes=("the_objection_is_told_if_nothing_better_comes",),
    ),
    CheckedFault(
        "a check that is a program is not run",
        old="yield from settle(check(context, decision))",
        new="check(context, decision)",
        caught_by="what_passes_is_done_and_what_does_not_is_not",
    ),
    CheckedFault(
        "what was thought is lost where the check has passed",
        old="        if objection is None:\n            return decision\n",
        new='        if objection is None:\n            return decision._replace(thought="")\n',
        caught_by="a_decision_that_passes_stays_as_it_is",
        passes=("what_passes_is_done_and_what_does_not_is_not", "an_answer_is_checked_too"),
    ),
)

PLOT_FAULTS: tuple[Fault, ...] = (
    PlotFault(
        "upside down",
        "_line_of",
        old="(high - value)",
        new="(value - low)",
        caught_by="a_curve_is_where_its_values_are",
        passes=("any_finite_numbers_are_drawn_in_bounds",),
    ),
    PlotFault(
        "the scale begins at the lowest value",
        "plot",
        old="min(0, *values), max(0, *values)",
        new="min(values), max(values)",
        caught_by="zero_is_on_the_scale",
    ),
    PlotFault(
        "a curve of zeros divides by zero",
        "plot",
        old="    high += low == high",
        new="    high += 0",
        caught_by="any_finite_numbers_are_drawn_in_bounds",
        passes=("a_curve_is_where_its_values_are",),
    ),
    PlotFault(
        "what cannot be drawn is an empty drawing",
        "plot",
        old='raise ValueError("plot draws finite numbers, and at least one of them")',
        new="return []",
        caught_by="what_has_no_place_is_refused",
    ),
    PlotFault(
        "points that are close lie on each other",
        "plot",
        old="round(place / max(1, longest - 1) * (width - 1))",
        new="round(place / max(1, longest - 1) * (width - 1)) // 2",
        caught_by="a_curve_is_where_its_values_are",
        passes=("any_finite_numbers_are_drawn_in_bounds",),
    ),
    PlotFault(
        "the last curve is not named",
        "plot",
        old="for mark, name in zip(MARKS, curves, strict=False)",
        new="for mark, name in zip(MARKS, list(curves)[: max(1, len(curves) - 1)], strict=False)",
        caught_by="any_finite_numbers_are_drawn_in_bounds",
        passes=("a_curve_is_where_its_values_are",),
    ),
)
