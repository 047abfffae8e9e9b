"""fake_llm/reader.py: what the reader tells stands in its prompt, and what is simulated is what it says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import CallModel, Message, Reply
from fake_llm.reader import Guidebook, lost_in_the_middle, reader, sees_all
from paradigms.views import SUMMARISING

SYSTEM = Message("system", "Read.")


def asked(book: Guidebook, *seen: str, system: Message = SYSTEM, tools: Any = ()) -> CallModel:
    """A request that shows these texts after the task."""
    return CallModel((system, Message("user", book.task), *(Message("user", text) for text in seen)), tools)


@given(st.integers(1, 300), st.integers(50, 500))
def test_a_page_is_as_long_as_it_is_told_and_the_task_names_the_pages(pages: int, tokens: int) -> None:
    book = Guidebook(pages, tokens=tokens)
    assert all(f"第{page}页" in book.task for page in book.asked)
    assert f"第{pages}页，共{pages}页" in book.read_page(pages)
    assert 0.6 * tokens - 30 <= len(book.read_page(1)) <= tokens + 30


def test_pages_that_are_not_there_are_refused() -> None:
    for pages, asked_for in ((0, None), (3, [4]), (3, [0])):
        with pytest.raises(ValueError):
            Guidebook(pages, asked_for)
    for page in (0, 4):
        with pytest.raises(ValueError, match="the pages 1 to 3"):
            Guidebook(3).read_page(page)


def test_it_reads_on_from_the_latest_page_that_it_is_shown() -> None:
    book, model = Guidebook(pages=3), reader()
    assert "read_page(page=1)" in model(asked(book)).text
    assert "read_page(page=2)" in model(asked(book, book.read_page(1))).text
    assert "read_page(page=3)" in model(asked(book, book.read_page(1), book.read_page(2), "Warning")).text
    assert model(asked(book, book.read_page(1), tools=({"name": "read_page"},))).tool_calls


@given(st.sets(st.integers(1, 6)))
def test_it_answers_what_it_is_shown_and_nothing_else(kept: set[int]) -> None:
    book = Guidebook(pages=6, asked=range(1, 7))
    pages = [book.read_page(page) for page in sorted(kept | {6})]
    answer = reader()(asked(book, *pages)).text
    assert book.answered(answer) == tuple(page in kept | {6} for page in range(1, 7))
    assert answer.count("不知道") == 6 - len(kept | {6})


@pytest.mark.parametrize("answer", [None, "", "第1页：1", "第1页：不知道", "8919"])
def test_what_is_not_told_is_not_counted(answer: str | None) -> None:
    assert Guidebook(1).answered(answer) == (False,)


def test_it_refuses_what_is_larger_than_its_window() -> None:
    request = asked(Guidebook(1))._replace(tokens=101)
    with pytest.raises(ValueError, match="101 tokens are more than the context window of 100"):
        reader(window=100)(request)
    assert isinstance(reader(window=101)(request), Reply)


def test_it_sees_the_ends_of_a_long_prompt_better_than_its_middle() -> None:
    assert (
        lost_in_the_middle(0.5, 900) == lost_in_the_middle(0.0, 10**6) == lost_in_the_middle(1.0, 10**6) == 1
    )
    assert lost_in_the_middle(0.5, 10_000) == pytest.approx(0.2)
    assert lost_in_the_middle(0.5, 10_000) < lost_in_the_middle(0.5, 5_000)
    assert lost_in_the_middle(0.2, 9_000) == pytest.approx(lost_in_the_middle(0.8, 9_000))
    assert sees_all(0.5, 10**6) == 1


def test_a_reader_of_the_views_summaries_keeps_what_the_task_asks_for_and_loses_by_chance() -> None:
    book = Guidebook(pages=9, asked=(2, 3))
    system = Message("system", SUMMARISING.format(longest=100))
    pages = [book.read_page(page) for page in range(1, 5)]
    told = reader()(asked(book, *pages, system=system)).text
    assert told.count("印章") == 2 and "读到第4页" in told
    seeds = [reader(loses=0.5, seed=seed)(asked(book, *pages, system=system)).text for seed in range(40)]
    assert 20 < sum(text.count("印章") for text in seeds) < 60
    assert reader(loses=1.0)(asked(book, system=system)).text.strip(), "an empty history has a summary too"


def test_the_same_request_has_the_same_reply() -> None:
    book = Guidebook(pages=40, asked=range(1, 41))
    request = asked(book, *[book.read_page(page) for page in range(1, 41)])
    replies = {reader(recall=lambda position, tokens: 0.5, seed=7)(request).text for _ in range(3)}
    assert len(replies) == 1
    assert reader(recall=lambda position, tokens: 0.5, seed=8)(request).text not in replies
