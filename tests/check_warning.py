"""What a warning before the end promises: for ``make(rule, times=n)``, which makes a rule of a rule.

``check_warning(make)`` raises ``BrokenPromise`` with the story of the first promise that is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import Control, Do, LoopContext, Program, StopReason
from tests.check_toolbox import expect
from tests.stop_rule_worlds import Action, Rule, doing, run

Make = Callable[..., Rule]

examples = settings(deadline=None, database=None, max_examples=60)
REASONS = (StopReason.REPEATED_ACTION, StopReason.CONVERGED, StopReason.STAGNATED)
OWN_WORDS = "the rule's own words"
verdicts = st.lists(st.sampled_from([None, None, OWN_WORDS, *REASONS]), max_size=10)


def saying(said: Sequence[Any], asks: bool) -> Rule:
    """A rule that says these, one after each round; it may ask the world first."""

    def rule(control: Control, context: LoopContext) -> Any:
        return said[len(context.turns) - 1]

    def program(control: Control, context: LoopContext) -> Program[Any]:
        return (yield Do("judge", lambda: rule(control, context))).value

    return program if asks else rule


def due(said: Sequence[Any], times: int) -> tuple[list[bool], StopReason | None]:
    """After which rounds the model is to be told something, and how the run is to end."""
    told: list[bool] = []
    row = 0
    for each in said:
        row = row + 1 if isinstance(each, StopReason) else 0
        if row > times:
            return [*told, False], each
        told.append(each is not None)
    return told, None


def _compare(rule: Rule, said: Sequence[Any], times: int) -> None:
    names = [each.name if isinstance(each, StopReason) else each for each in said]
    end = run(rule, [doing(Action("work", {"step": number}, f"{number}")) for number in range(len(said))])
    told, reason = due(said, times)
    story = f"with times={times}, where the rule says {names}"
    stopped = end.reason if end.after else None
    expect(stopped is reason, f"{story}: the run was to end with {reason}, and ended with {stopped}")
    came = [bool(turn.warnings) for turn in end.result.turns if turn.calls]
    expect(
        came == told,
        f"{story}: the model was to be told after {_rounds(told)}, and was after {_rounds(came)}",
    )
    words = [warning for turn in end.result.turns for warning in turn.warnings]
    kept = words.count(OWN_WORDS) == sum(each == OWN_WORDS for each in said[: len(told)])
    expect(kept, f"{story}: the words of the rule itself did not all reach the model; it was told {words}")


def _rounds(told: Sequence[bool]) -> str:
    return ", ".join(str(number) for number, each in enumerate(told, 1) if each) or "none"


# --- The promises -----------------------------------------------------------------------------


def it_warns_first_and_then_stops(make: Make) -> None:
    """So many warnings in a row, then the rule's own reason; nothing where the rule says nothing."""
    for reason in REASONS:
        for times in (1, 2, 3):
            _compare(make(saying([reason] * 5, False), times=times), [reason] * 5, times)
            _compare(make(saying([None] * 5, False), times=times), [None] * 5, times)


def a_change_is_forgiven(make: Make) -> None:
    """Once the rule is silent the behaviour has changed: the next time is a first time again."""
    hit = StopReason.REPEATED_ACTION
    for said in ([hit, None, hit, None, hit], [hit, hit, None, hit, hit, None], [None, hit, OWN_WORDS, hit]):
        for times in (1, 2):
            _compare(make(saying(said, False), times=times), said, times)


def any_rule_may_be_wrapped(make: Make) -> None:
    """Whatever the rule says, and whether it is a function or a program that asks the world first."""

    @examples
    @given(verdicts, st.integers(1, 3), st.booleans())
    def compare(said: list[Any], times: int, asks: bool) -> None:
        _compare(make(saying(said, asks), times=times), said, times)

    compare()


def runs_share_nothing(make: Make) -> None:
    """A run is warned first, however often another was warned before."""
    said = [None, StopReason.CONVERGED, StopReason.CONVERGED]
    rule = make(saying(said, False), times=1)
    for _ in range(3):
        _compare(rule, said, 1)
        _compare(rule, said[:2], 1)


def the_warning_says_why(make: Make) -> None:
    """What the model is told says in words what the rule has seen."""
    for reason in REASONS:
        end = run(make(saying([reason], False), times=1), [doing(Action())])
        [warning] = end.result.turns[0].warnings
        expect(
            reason.value in warning,
            f"for {reason.name} the model was told {warning!r}, which does not say why",
        )


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        it_warns_first_and_then_stops,
        a_change_is_forgiven,
        any_rule_may_be_wrapped,
        runs_share_nothing,
        the_warning_says_why,
    )
}


def check_warning(make: Make) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(make)
