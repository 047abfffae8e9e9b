"""What a rule against going round in cycles promises: for ``make()``, which makes one for periods 2 and 3.

It is due as soon as a cycle of two or three different rounds has been run through twice.
``check_cycle(make)`` raises ``BrokenPromise`` with the story of the first promise that is broken.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentloop import StopReason
from tests import check_stop_rule
from tests.stop_rule_worlds import Action, Round, Rule, doing, is_left_alone, is_stopped

Make = Callable[..., Rule]

REPEATED = StopReason.REPEATED_ACTION
examples = settings(deadline=None, database=None, max_examples=60)


def going(letters: str) -> list[Round]:
    """A round for each letter; the same letter, the same round."""
    return [doing(Action("look", {"at": letter}, f"only {letter}")) for letter in letters]


def due(letters: str) -> int | None:
    """After which round a cycle of two or three different rounds has come twice; the long way round."""
    for end in range(1, len(letters) + 1):
        for period in (2, 3):
            last = letters[max(0, end - 2 * period) : end]
            if len(last) == 2 * period and last[:period] == last[period:] and len(set(last)) > 1:
                return end
    return None


# --- The promises -----------------------------------------------------------------------------


def a_cycle_that_comes_twice_is_stopped(make: Make) -> None:
    """A-B-A-B and A-B-C-A-B-C are stopped at their end, whatever came before, and nothing shorter is."""
    for letters in ("ABAB", "ABCABC", "AABAAB", "XYZABAB", "AAABAB", "XABCABC"):
        is_stopped(make(), going(letters + "AB"), len(letters), REPEATED, f"{letters} goes round")
    for letters in ("ABA", "ABCAB", "ABCA", "ABCBA", "ABCDABCD"):
        is_left_alone(make(), going(letters), f"{letters} has not gone round twice, in two or three")


def any_behaviour_is_judged_by_its_last_rounds(make: Make) -> None:
    """Over any sequence of rounds, it stops where a cycle is complete, and nowhere else."""

    @examples
    @example("AAAAAA")
    @given(st.text("ABC", max_size=12))
    def compare(letters: str) -> None:
        after = due(letters)
        if after is None:
            is_left_alone(make(), going(letters), f"in {letters} nothing goes round")
        else:
            is_stopped(make(), going(letters), after, REPEATED, f"{letters[:after]} goes round")

    compare()


def a_cycle_whose_results_change_is_left_alone(make: Make) -> None:
    """To ask two jobs in turn is no cycle while they get on."""
    rounds = [doing(Action("poll", {"job": "ab"[turn % 2]}, f"{turn}0%")) for turn in range(10)]
    is_left_alone(make(), rounds, "each job got on each time")


def a_round_is_all_that_was_done_in_it(make: Make) -> None:
    """Two rounds with the same batch are one round twice, not a cycle of its calls."""
    one, other = (Action("look", {"at": letter}, "nothing") for letter in "AB")
    third = doing(Action("look", {"at": "C"}, "a cat"))
    is_left_alone(make(), [doing(one, other), doing(one, other), third], "it came twice")
    is_stopped(make(), [doing(one, other), third] * 3, 4, REPEATED, "two rounds, in turn")


def what_is_no_action_is_passed_over(make: Make) -> None:
    """A cycle is one too where replies that could not be read stand between its rounds."""
    unread = doing(Action("", {}, "no action was found"), said="Let me see.")
    one, other = going("AB")
    is_stopped(make(), [one, unread, other, one, unread, other, one], 6, REPEATED, "A and B came twice")
    is_left_alone(make(), [one, unread] * 3, "only one thing was done, over and over")


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        a_cycle_that_comes_twice_is_stopped,
        any_behaviour_is_judged_by_its_last_rounds,
        a_cycle_whose_results_change_is_left_alone,
        a_round_is_all_that_was_done_in_it,
        what_is_no_action_is_passed_over,
        check_stop_rule.honest_work_is_left_alone,
        check_stop_rule.odd_rounds_do_not_crash_it,
        check_stop_rule.an_old_turn_is_not_read_again,
    )
}


def check_cycle(make: Make) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(make)
