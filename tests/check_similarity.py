"""What a comparison of replies promises: for ``make(least)``, which makes an ``alike(first, second)``.

``check_similarity(make)`` raises ``BrokenPromise`` with the story of the first promise that is broken.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.check_machine import BrokenPromise
from tests.check_toolbox import expect, shown

Alike = Callable[[str, str], bool]
Make = Callable[..., Alike]

examples = settings(deadline=None, database=None, max_examples=60)
words = st.text(st.sampled_from("ab 北京天气") | st.characters(), max_size=40)

LONG = "我先查一下北京今天的天气，再根据天气推荐一个适合的景点。The weather decides where to go. " * 3
REWORDED = LONG.replace("再根据天气", "然后根据天气", 1)
UNLIKE = ("晴天适合去长城，雨天可以在故宫里慢慢走。", "def area(width, height): return width * height")


def _alike(alike: Alike, first: str, second: str, due: bool, why: str) -> None:
    try:
        came = alike(first, second)
    except Exception as error:
        raise BrokenPromise(f"{shown(first)} and {shown(second)} made it raise {shown(error)}") from error
    told = (
        f"{shown(first)} and {shown(second)} are {'alike' if due else 'not alike'}: {why}; it says {came!r}"
    )
    expect(bool(came) is due, told)


# --- The promises -----------------------------------------------------------------------------


def a_text_is_like_itself(make: Make) -> None:
    """Any text is like itself, at any threshold: empty, huge, with lone surrogates."""

    @examples
    @given(words, st.sampled_from([0.1, 0.9, 1.0]))
    def compare(text: str, least: float) -> None:
        _alike(make(least), text, text, True, f"they are the same, and the least is {least}")

    compare()
    for text in ("", "\ud800", "晴" * 100_000, LONG * 1000):
        _alike(make(1.0), text, text, True, "they are the same")


def a_small_change_is_alike_and_another_text_is_not(make: Make) -> None:
    """Long replies that differ in a word are alike; replies about other things are not."""
    alike = make(0.8)
    _alike(alike, LONG, REWORDED, True, "a word differs")
    _alike(alike, LONG, LONG + "!", True, "a sign differs")
    for text in (LONG, *UNLIKE):
        for other in (LONG, *UNLIKE, "", "x" * 50_000):
            if text != other:
                _alike(alike, text, other, False, "they have little in common")


def short_texts_and_both_ends_of_long_ones_count(make: Make) -> None:
    """A word of one letter is not like another; what begins alike, however long, may end otherwise."""
    alike = make(0.8)
    for first, second in (("是", "否"), ("ok", "no"), ("", "no")):
        _alike(alike, first, second, False, "they have nothing in common")
    beginning = "".join(f"{number} 北京 " for number in range(1000))
    ends = ["".join(f"{mark}{number}" for number in range(2000)) for mark in ("天气晴", "get")]
    _alike(alike, beginning + ends[0], beginning + ends[1], False, "half of each is another text")
    _alike(alike, ends[0] + beginning, ends[1] + beginning, False, "half of each is another text")


def the_same_letters_are_not_the_same_text(make: Make) -> None:
    """A text read backwards has the same letters and says something else (quick_ratio cannot tell)."""
    for text in (LONG, UNLIKE[1]):
        _alike(make(0.8), text, text[::-1], False, "one is the other backwards")


def frequent_letters_count_too(make: Make) -> None:
    """In a long text every letter is frequent, and it is still the same text but for a word (autojunk)."""
    text = "".join(f"{number:b}" for number in range(1, 65))
    _alike(make(0.6), "x" + text, "y" + text, True, f"one letter of {len(text) + 1} differs")


def a_higher_threshold_is_harder_to_reach(make: Make) -> None:
    """What is alike at a high threshold is alike at a low one."""

    @examples
    @given(words, words)
    @example("北京今天晴，去颐和园", "北京明天雨，去博物馆")
    def compare(first: str, second: str) -> None:
        verdicts = [bool(make(least)(first, second)) for least in (0.2, 0.5, 0.8, 1.0)]
        told = f"{shown(first)} and {shown(second)}, at 0.2, 0.5, 0.8 and 1: {verdicts}"
        expect(verdicts == sorted(verdicts, reverse=True), told)

    compare()


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        a_text_is_like_itself,
        a_small_change_is_alike_and_another_text_is_not,
        short_texts_and_both_ends_of_long_ones_count,
        the_same_letters_are_not_the_same_text,
        frequent_letters_count_too,
        a_higher_threshold_is_harder_to_reach,
    )
}


def check_similarity(make: Make) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(make)
