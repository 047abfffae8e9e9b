"""What an inbox promises, whatever the post does: promises of anything made and used like ``Inbox``.

``make()`` returns an inbox with ``put`` and ``take``. ``check_inbox(make)`` raises ``BrokenPromise`` with a
short story. ``PROMISES`` holds the same promises one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from chapters.ch32_message_passing import Letter
from tests.check_toolbox import expect

Make = Callable[[], Any]

Arrival = tuple[str, int]  # the sender and the number of a letter


def letter(arrival: Arrival) -> Letter:
    sender, number = arrival
    return Letter(sender, "乙", number, f"{sender} {number}")


def handed_out(inbox: Any, most: int = 50) -> list[Arrival]:
    """All that can be taken now."""
    taken: list[Arrival] = []
    while (each := inbox.take()) is not None:
        taken.append((each.sender, each.number))
        story = f"{each} was handed out, and never came so"
        expect(each == letter(taken[-1]), story)
        expect(len(taken) < most, f"it hands out more and more: {taken[:8]}")
    return taken


def through(make: Make, arrivals: Iterable[Arrival], eager: bool = True) -> list[Arrival]:
    """What an inbox hands out: after each arrival, or at the end."""
    inbox = make()
    taken = []
    for arrival in arrivals:
        inbox.put(letter(arrival))
        if eager:
            taken += handed_out(inbox)
    return taken + handed_out(inbox)


# --- The promises -----------------------------------------------------------------------------


def what_comes_in_order_is_handed_out_as_it_came(make: Make) -> None:
    """A good post changes nothing: each letter once, first come, first served."""
    for eager in (True, False):
        came = [("甲", 1), ("丙", 1), ("甲", 2), ("丙", 2), ("甲", 3)]
        taken = through(make, came, eager)
        expect(taken == came, f"{came} came, and {taken} was handed out")
    expect(make().take() is None, "nothing had come, and something was handed out")


def a_double_is_handed_out_once(make: Make) -> None:
    """A letter that comes twice, before or after it was read, is handed out once."""
    for eager in (True, False):
        taken = through(make, [("甲", 1), ("甲", 1), ("甲", 2), ("甲", 1), ("甲", 2)], eager)
        expect(taken == [("甲", 1), ("甲", 2)], f"two letters came, some of them twice: handed out {taken}")


def a_senders_letters_come_in_the_order_they_were_sent(make: Make) -> None:
    """A letter that overtook another waits for it."""
    inbox = make()
    for number, due in ((2, []), (3, []), (1, [1, 2, 3])):
        inbox.put(letter(("甲", number)))
        taken = [each for _, each in handed_out(inbox)]
        expect(taken == due, f"when letter {number} of 3 had come, {taken} was handed out and not {due}")


def one_senders_gap_holds_up_nobody_else(make: Make) -> None:
    """Where a letter of one sender is missing, the others are read all the same."""
    taken = through(make, [("甲", 2), ("丙", 1), ("甲", 3), ("丙", 2)])
    expect(taken == [("丙", 1), ("丙", 2)], f"甲's letter 1 is lost, and of 丙's two was handed out: {taken}")


def whatever_the_post_does_each_is_read_once_in_order(make: Make) -> None:
    """Late, twice, in any order: of each sender what has no gap before it is handed out, once, in order."""
    numbered = st.tuples(st.sampled_from("甲丙"), st.integers(1, 4))

    @settings(max_examples=80, deadline=None, database=None)
    @given(st.lists(numbered, max_size=14), st.booleans())
    @example([("甲", 1), ("丙", 2)], True)
    def read_once(came: list[Arrival], eager: bool) -> None:
        taken = through(make, came, eager)
        for sender in "甲丙":
            numbers = {number for each, number in came if each == sender}
            unbroken = next(number for number in range(1, 6) if number not in numbers)
            due = list(range(1, unbroken))
            handed = [number for each, number in taken if each == sender]
            expect(handed == due, f"of {sender} came {came}, and {handed} was handed out: {due} was due")

    read_once()


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        what_comes_in_order_is_handed_out_as_it_came,
        a_double_is_handed_out_once,
        a_senders_letters_come_in_the_order_they_were_sent,
        one_senders_gap_holds_up_nobody_else,
        whatever_the_post_does_each_is_read_once_in_order,
    )
}


def check_inbox(make: Make) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(make)
