"""Chapter 27: both ends are kept, the middle goes with a mark; and the words for it are told apart."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import AgentLoop, Limits, StopReason, Toolbox, World, drive
from chapters.ch25_truncation import WINDOW, outline, read_through, sizes
from chapters.ch27_sliding_window import WINDOWS, first_and_last_messages, strict
from fake_llm.reader import Guidebook, reader
from paradigms.function_calling import function_calling
from paradigms.prompt import View, last_turns
from paradigms.views import keep_head_and_tail, keep_last
from tests import check_view
from tests.check_machine import BrokenPromise
from tests.check_window import plain, rounds

# --- X01: calls and results -------------------------------------------------------------------


def natively(pages: int, view: View) -> Any:
    """Read a book with native calls, at a provider that refuses a result without its call."""
    book, model = Guidebook(pages), reader()
    tools = Toolbox([book.read_page])
    loop = AgentLoop(function_calling(tools, view=view), limits=Limits(rounds=50, failures=1))
    return drive(loop.run(book.task), World(strict(model), tools, inline=True))


def test_X01_EB16_a_window_in_messages_parts_calls_from_results_and_a_provider_refuses() -> None:
    with pytest.raises(BrokenPromise, match="without its"):
        check_view.PROMISES["calls_and_results_stay_together"](first_and_last_messages)
    result = natively(8, first_and_last_messages)
    assert result.stop is StopReason.TOO_MANY_FAILURES
    assert "no call before the result" in result.turns[-1].observations[0].text


@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 5))
def test_X01_whole_turns_are_never_refused(pages: int, first: int, last: int) -> None:
    assert natively(pages, keep_head_and_tail(first, last, WINDOW)).stop is StopReason.FINAL_ANSWER


# --- EX01: three views, one word --------------------------------------------------------------


def test_EX01_each_view_keeps_what_its_name_says() -> None:
    book = Guidebook(pages=14)
    outlines = []
    for view in WINDOWS.values():
        model = reader(window=WINDOW)
        read_through(book, model, view())
        outlines.append(outline(model.requests[-1]))
    assert outlines == [
        "[SYS][11][12][13][14]",
        "[SYS][ ][6][7][8][9][10][11][12][13][14]",
        "[SYS][1][2][ ][11][12][13][14]",
    ]


def test_B51_the_articles_drawing() -> None:
    book, model = Guidebook(pages=12), reader()
    read_through(book, model, keep_head_and_tail(2, 2, 10_000))
    assert outline(model.requests[-1]) == "[SYS][1][2][ ][11][12]"


def test_A141_a_window_in_turns_has_no_bound_and_one_in_tokens_has() -> None:
    peaks = {}
    for name, view in {"turns": last_turns(4), "both": keep_head_and_tail(2, 4, WINDOW)}.items():
        model = reader()
        read_through(Guidebook(pages=14, tokens=2_000), model, view)
        peaks[name] = max(sizes(model))
    assert peaks["turns"] > 4 * WINDOW - 500 and peaks["both"] <= WINDOW


# --- What is kept -----------------------------------------------------------------------------


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 15))
def test_where_there_is_room_the_first_and_the_last_are_shown(first: int, last: int, length: int) -> None:
    history = [plain(number) for number in range(1, length + 1)]
    *_, seen = rounds(keep_head_and_tail(first, last, 10_000), 10_000, history)
    turns = seen.prompt.turns
    if length <= first + last:
        assert list(seen.blocks) == turns
    else:
        head, (mark,), tail = seen.blocks[:first], seen.blocks[first:-last], seen.blocks[-last:]
        assert ([*head], [*tail]) == (turns[:first], turns[-last:])
        assert mark.messages[0].content == f"[Turns {first + 1} to {length - last} are left out here.]"


@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.lists(st.integers(10, 200), min_size=1, max_size=12),
    st.integers(100, 900),
)
def test_where_there_is_not_the_latest_comes_first_then_the_beginning_then_the_rest(
    first: int, last: int, lengths: list[int], window: int
) -> None:
    history = [plain(number, tokens) for number, tokens in enumerate(lengths, 1)]
    *_, seen = rounds(keep_head_and_tail(first, last, window), window, history)
    count = len(history)
    shown = [int(number) for number in re.findall(r"<thought (\d+)>", repr(seen.messages))]
    assert shown[-1] == count and seen.tokens <= window
    tail = len([number for number in shown if number > max(set(range(count + 1)) - set(shown))])
    head = len(shown) - tail
    assert shown == [*range(1, head + 1), *range(count - tail + 1, count + 1)]
    if len(shown) < min(count, first + last):  # something left for want of room
        missing = seen.prompt.turns[head] if head < first else seen.prompt.turns[count - tail - 1]
        assert seen.tokens + missing.tokens > window - 15, "there was room for one more"
        rest = sum(each.tokens for each in seen.prompt.turns[count - tail : -1])
        assert head == first or seen.tokens - rest + missing.tokens > window - 15, "the beginning comes first"


def test_a_head_larger_than_the_window_gives_way_to_the_latest() -> None:
    *_, seen = rounds(keep_head_and_tail(2, 2, 300), 300, [plain(1, 5_000), plain(2), plain(3), plain(4)])
    assert seen.blocks[1:] == tuple(seen.prompt.turns[2:])
    assert "Turns 1 to 2" in seen.messages[0].content


@pytest.mark.parametrize("wrong", [(0, 1, 9), (1, 0, 9), (1, 1, 0), (1, 1.0, 9), (True, 1, 9)])
def test_numbers_that_make_no_sense_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="must be a whole number of at least 1"):
        keep_head_and_tail(*wrong)


def test_keep_last_is_what_is_left_without_a_head() -> None:
    history = [plain(number) for number in range(1, 20)]
    *_, last = rounds(keep_last(500), 500, history)
    *_, both = rounds(keep_head_and_tail(1, 100, 500), 500, history)
    assert both.blocks[0] == both.prompt.turns[0] and both.blocks[2:] == last.blocks[2:]


def test_a_broken_promise_tells_of_a_makers_mistake_and_of_the_room() -> None:
    makes_one: Any = lambda prompt: lambda again: again.turns  # noqa: E731
    with pytest.raises(AssertionError, match="give a finished view"):
        check_view.PROMISES["it_shows_blocks"](makes_one)
    with pytest.raises(AssertionError, match=r"it has \d+ tokens; \d+ are shown, and head and tools take"):
        check_view.PROMISES["the_latest_turn_is_shown"](lambda prompt: prompt.turns[:-1])
