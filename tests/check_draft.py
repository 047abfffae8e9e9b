"""How a model's text becomes a draft: promises of anything with the signature of ``draft_of(text, to)``.

``check_draft(read)`` raises ``BrokenPromise`` with a short story. ``PROMISES`` holds them one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from chapters.ch32_message_passing import MARKER
from tests.check_toolbox import expect

Read = Callable[[str, str], Any]

SENTENCES = (
    f"草稿写好之前不要写 {MARKER}。",
    f"do not write {MARKER} before the draft exists",
    f"好的\n我写完才会写 {MARKER}",
    f"{MARKER}: not yet",
    f'"{MARKER}"',
    MARKER.lower(),
    f"{MARKER}\n再想一想：还没有草稿。",
    f"说完了就写一行：\n```\n{MARKER}\n```",
)


def a_word_in_a_sentence_ends_nothing(read: Read) -> None:
    """Whoever mentions the marker, quotes it, or goes on after it, is not done (M01)."""
    for text in SENTENCES:
        draft = read(text, "审稿")
        expect(not draft.done, f"this was taken for the end: {text!r}")
        expect(draft.text == text, f"{text!r} says nothing to us, and was sent as {draft.text!r}")


def the_marker_alone_on_the_last_line_is_the_end(read: Read) -> None:
    """A text whose last line is the marker and nothing else is done, and the marker is no part of it."""
    for text, says in (
        (f"定稿：颐和园\n{MARKER}", "定稿：颐和园"),
        (f"一\n\n二\n  {MARKER} \n\n", "一\n\n二"),
        (f"一\r\n{MARKER}\r\n", "一"),
        (MARKER, ""),
    ):
        draft = read(text, "审稿")
        expect(draft.done is True, f"this was to end it, and does not: {text!r}")
        expect(draft.text == says, f"{text!r} should be sent as {says!r}, and is {draft.text!r}")


def the_first_line_may_name_the_receiver(read: Read) -> None:
    """A letter goes to whom it answers, unless its first line is ``To:`` and a name."""
    for text, to, says in (
        ("请过目", "审稿", "请过目"),
        ("To: 文案\n请重写", "文案", "请重写"),
        ("To:文案\n请重写", "文案", "请重写"),
        ("请转告\nTo: 文案", "审稿", "请转告\nTo: 文案"),
        ("To:\n请重写", "审稿", "请重写"),
    ):
        draft = read(text, "审稿")
        expect(
            (draft.to, draft.text) == (to, says), f"{text!r} was sent to {draft.to!r}, saying {draft.text!r}"
        )
        expect(not draft.done, f"this was taken for the end: {text!r}")


def any_text_is_a_draft(read: Read) -> None:
    """Whatever a model writes can be sent; what is no marker and no address is sent as it is."""

    @settings(max_examples=50, deadline=None, database=None)
    @given(st.text(max_size=20), st.sampled_from(["", f"\n{MARKER}"]))
    def sent(text: str, end: str) -> None:
        draft = read(text + end, "审稿")
        expect(isinstance(draft.text, str), f"{text!r} was sent as {draft.text!r}")
        if not text.strip().startswith("To:") and MARKER not in text:
            story = f"{text + end!r} was sent to {draft.to!r} as {draft.text!r}, done: {draft.done}"
            expect((draft.to, draft.text, draft.done) == ("审稿", text.strip(), bool(end)), story)

    sent()


PROMISES: dict[str, Callable[[Read], None]] = {
    promise.__name__: promise
    for promise in (
        a_word_in_a_sentence_ends_nothing,
        the_marker_alone_on_the_last_line_is_the_end,
        the_first_line_may_name_the_receiver,
        any_text_is_a_draft,
    )
}


def check_draft(read: Read) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(read)
