"""What a rule against repeated actions promises: for ``make(times=k)``, which makes one.

``check_repetition(make)`` raises ``BrokenPromise`` with the story of the first promise that is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentloop import LoopContext, Observation, StopReason, ToolCall, Turn
from tests import check_stop_rule
from tests.check_toolbox import expect
from tests.stop_rule_worlds import Action, Rule, asked, doing, is_left_alone, is_stopped, polled

Make = Callable[..., Rule]

REPEATED = StopReason.REPEATED_ACTION

plain = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3)
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
)
some_arguments = st.dictionaries(st.text(min_size=1, max_size=3), values, max_size=4)
examples = settings(deadline=None, database=None, max_examples=40)


def turned_round(value: Any) -> Any:
    """The same value, with the entries of each mapping in it the other way round."""
    if isinstance(value, Mapping):
        return {key: turned_round(each) for key, each in reversed(list(value.items()))}
    return [turned_round(each) for each in value] if isinstance(value, list) else value


# --- The promises -----------------------------------------------------------------------------


def the_kth_repeat_stops_and_none_before(make: Make) -> None:
    """With a threshold of k, the k-th same call with the same result stops the run, and k - 1 do not."""

    @examples
    @given(st.integers(2, 5), some_arguments, st.text(max_size=5), st.booleans())
    def compare(times: int, arguments: dict[str, Any], result: str, ok: bool) -> None:
        again = [doing(Action("lookup", arguments, result, ok))] * times
        is_stopped(make(times=times), again + again, times, REPEATED, f"times={times}")
        is_left_alone(make(times=times), again[1:], f"times={times}, and it was one time fewer")

    compare()


def a_threshold_it_takes_is_one_it_reaches(make: Make) -> None:
    """However often is too often: the rule fires then, or says at once that it never would."""
    for times in (2, 9, 10, 11, 12, 30):
        again = [doing(Action("lookup", {"topic": "tea"}, "no result"))] * (times + 2)
        try:
            rule = make(times=times)
        except ValueError:
            continue
        is_stopped(rule, again, times, REPEATED, f"times={times}")


def the_order_of_arguments_does_not_count(make: Make) -> None:
    """The same arguments in another order, also inside of them, are the same arguments."""

    @examples
    @example({"filters": [{"place": "北京", "limit": 1}], "page": {"size": 2, "number": 1}})
    @given(some_arguments)
    def compare(arguments: dict[str, Any]) -> None:
        given_so, given_thus = Action("lookup", arguments), Action("lookup", turned_round(arguments))
        rounds = [doing(given_so), doing(given_thus), doing(given_so)]
        is_stopped(make(times=3), rounds, 3, REPEATED, "only the order of the arguments differs")

    compare()


def a_batch_is_counted_call_by_call(make: Make) -> None:
    """Three identical calls in one reply are three, and they add to those of other rounds."""
    call = Action("lookup", {"topic": "tea", "limit": 1}, "no result")
    other = Action("lookup", {"topic": "cake"}, "a recipe")
    is_stopped(make(times=3), [doing(call, call, call)] * 2, 1, REPEATED, "three in one reply")
    is_stopped(
        make(times=3), [doing(call, other, call), doing(other, call)], 2, REPEATED, "two, and one more"
    )
    is_left_alone(make(times=3), [doing(call, other, call), doing(other)], "two in one reply, none after")


def polling_whose_results_change_is_left_alone(make: Make) -> None:
    """The same call again and again is no loop while its results change; it is one when they do not."""
    is_left_alone(make(times=3), polled(("10%", "40%", "70%", "95%", "done")), "the job got on each time")
    is_left_alone(make(times=3), polled(f"{number}%" for number in range(60)), "the job got on each time")
    is_stopped(make(times=5), polled(["40%"] * 6), 5, REPEATED, "the job had stopped getting on")


def what_differs_is_not_the_same(make: Make) -> None:
    """Another tool, another value, a text in the place of a number, another result: none is a repeat."""
    differing = [
        Action("lookup", {"limit": 1}),
        Action("search", {"limit": 1}),
        Action("lookup", {"limit": "1"}),
        Action("lookup", {"limit": True}),
        Action("lookup", {"limit": 2}),
        Action("lookup", {"limits": 1}),
        Action("lookup", {"limit": [1]}),
        Action("lookup", {"limit": 1}, "another result"),
        Action("lookup", {"limit": 1}, ok=False),
        Action("lookup", {}),
    ]
    is_left_alone(make(times=2), [doing(each) for each in differing], "no two of these are the same")


def coming_back_to_it_is_counted(make: Make) -> None:
    """Repeats need not follow each other: A, something else, A, something else, A is A three times."""
    again = doing(Action("lookup", {"topic": "tea"}))
    others = [doing(Action("lookup", {"topic": f"cake {number}"}, f"recipe {number}")) for number in range(3)]
    rounds = [again, others[0], again, others[1], again, others[2]]
    is_stopped(make(times=3), rounds, 5, REPEATED, "it was the third time")


def what_is_long_past_is_forgotten(make: Make) -> None:
    """What was done long ago is no repeat: a long run may come back to a thing now and then."""
    again = doing(Action("lookup", {"topic": "tea"}))
    others = [
        doing(Action("lookup", {"topic": f"cake {number}"}, f"recipe {number}")) for number in range(60)
    ]
    is_left_alone(make(times=2), [again, *others, again], "there were 60 other rounds between the two")
    is_left_alone(
        make(times=3), [again, again, *others, again], "there were 60 other rounds before the third"
    )


def what_is_no_action_is_not_counted(make: Make) -> None:
    """A reply that could not be read is not an action: the limit on failures in a row is for those."""
    unread = doing(Action("", {}, "no action was found"), said="Let me see.")
    is_left_alone(make(times=2), [unread] * 5, "nothing was done in it")


def something_new_is_judged_anew(make: Make) -> None:
    """After a hit, a round that does something else is none: who was warned and turned away is forgiven."""
    rule, context = make(times=2), LoopContext("a task")
    said = []
    for number in range(4):
        call = ToolCall("search", {"words": f"words {number // 3}"}, f"call_1_{number}_1")
        said.append(asked(rule, context, Turn("", (call,), (Observation("nothing found"),))))
    due = [None, REPEATED, REPEATED, None]
    expect(said == due, f"after a search, the same, the same again and another, it said {said}, not {due}")


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        the_kth_repeat_stops_and_none_before,
        a_threshold_it_takes_is_one_it_reaches,
        the_order_of_arguments_does_not_count,
        a_batch_is_counted_call_by_call,
        polling_whose_results_change_is_left_alone,
        what_differs_is_not_the_same,
        coming_back_to_it_is_counted,
        what_is_long_past_is_forgotten,
        what_is_no_action_is_not_counted,
        something_new_is_judged_anew,
    )
} | check_stop_rule.PROMISES


def check_repetition(make: Make) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(make)
