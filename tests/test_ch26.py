"""Chapter 26: what leaves the window leaves a summary, seldom asked for, paid for, and never relied upon."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agentloop import (
    AgentLoop,
    CallModel,
    Interrupt,
    Journal,
    Limits,
    LoopContext,
    LoopError,
    Message,
    Reply,
    StopReason,
    Toolbox,
    Usage,
    World,
    count_tokens,
    drive,
)
from chapters.ch25_truncation import LIMITS, read_through, sizes
from chapters.ch26_summarisation import (
    FAILURES,
    LONGEST,
    WINDOW,
    is_for_a_summary,
    kept_facts,
    summary_in,
    with_summaries,
)
from fake_llm import FakeModel, ScriptedModel
from fake_llm.reader import Guidebook, reader
from paradigms.prompt import Prompt, View
from paradigms.react import react
from paradigms.views import SUMMARISING, Due, Summary, keep_last, one_line_each, summarise
from tests import check_summary, check_window
from tests.check_machine import BrokenPromise
from tests.check_summary import rounds
from tests.check_window import plain

# --- The promises -----------------------------------------------------------------------------


@pytest.mark.parametrize("promise", check_summary.PROMISES)
def test_summarise_keeps(promise: str) -> None:
    check_summary.PROMISES[promise](summarise)


def test_a_view_that_never_asks_breaks_the_promises() -> None:
    with pytest.raises(BrokenPromise, match="it never asks"):
        check_summary.check_summary(lambda window, longest: keep_last(window))


# --- Paid for, in time ------------------------------------------------------------------------


def summaries(model: FakeModel) -> list[CallModel]:
    return [request for request in model.requests if is_for_a_summary(request)]


def test_summaries_are_paid_from_the_account() -> None:
    book, model = Guidebook(pages=40), reader(window=WINDOW)
    result = read_through(book, model, summarise(WINDOW, LONGEST))
    assert book.answered(result.answer) == (True, True, True)
    assert result.control.model_calls == len(model.requests) == 41 + len(summaries(model))
    assert result.control.tokens > sum(sizes(model)), "what was read, and what was written"
    assert max(sizes(model)) <= WINDOW


@pytest.mark.parametrize("limit", ["model_calls", "tokens"])
def test_a_summary_that_nobody_pays_for_ends_the_run_with_its_reason(limit: str) -> None:
    book, asked = Guidebook(pages=14), reader()

    def model(request: CallModel) -> Reply:
        reply: Reply = asked(request)
        return reply._replace(usage=Usage(request.tokens + 20))

    tools = Toolbox([book.read_page])
    loop = AgentLoop(react(tools, summarise(WINDOW, LONGEST)), limits=LIMITS)
    whole = drive(loop.run(book.task), World(model, tools, inline=True))
    before = [each.tokens + 20 for each in asked.requests[: asked.requests.index(summaries(asked)[0])]]
    left = {"model_calls": len(before), "tokens": sum(before) + 100}
    limits = Limits(**{"rounds": 99, "failures": 9, "tokens": 10**6, limit: left[limit]})
    asked.requests.clear()
    short = drive(AgentLoop(loop.reason, limits=limits).run(book.task), World(model, tools, inline=True))
    reasons = {"model_calls": "MODEL_CALLS", "tokens": "TOKEN_BUDGET"}
    assert (short.answer, short.stop) == (None, StopReason[reasons[limit]])
    assert not summaries(asked) and short.turns == whole.turns[: len(short.turns)]


def test_a_person_stops_a_run_while_it_summarises() -> None:
    book, asked, interrupt = Guidebook(pages=14), reader(), Interrupt()

    def model(request: CallModel) -> Any:
        if is_for_a_summary(request):
            interrupt.set()
        return asked(request)

    tools = Toolbox([book.read_page])
    loop = AgentLoop(react(tools, summarise(WINDOW, LONGEST)), limits=LIMITS)
    result = drive(loop.run(book.task), World(model, tools, inline=True), interrupt=interrupt)
    assert result.stop is StopReason.HUMAN and is_for_a_summary(asked.requests[-1])


def test_a_resumed_run_does_not_ask_for_its_summaries_again() -> None:
    book, tools = Guidebook(pages=14), Toolbox([Guidebook(pages=14).read_page])
    model, journal = reader(), Journal()
    loop = AgentLoop(react(tools, summarise(WINDOW, LONGEST)), limits=LIMITS)
    result = drive(loop.run(book.task), World(model, tools, inline=True), journal)
    assert len(summaries(model)) == 1
    assert drive(loop.run(book.task), World(ScriptedModel([]), tools, inline=True), journal) == result


def test_B50_ten_thousand_tokens_become_five_hundred_at_most() -> None:
    model = with_summaries(reader(), lambda request: "长" * 900)
    read_through(Guidebook(pages=110), model, summarise(20_000, 500))
    place = model.requests.index(summaries(model)[0])
    asked, after = model.requests[place : place + 2]
    assert asked.tokens == pytest.approx(10_000, rel=0.1)
    assert count_tokens([after.messages[2]]) < 520


# --- X03, and summaries that fail -------------------------------------------------------------


def test_X03_the_task_is_there_verbatim_and_once_and_the_summary_covers_all_that_left() -> None:
    book, model = Guidebook(pages=30), reader(window=WINDOW)
    result = read_through(book, model, summarise(WINDOW, LONGEST))
    assert book.answered(result.answer) == (True, True, True)
    for request in model.requests:
        assert sum(book.task in message.content for message in request.messages) == 1
    for request in summaries(model):
        assert request.messages[0].content == SUMMARISING.format(longest=LONGEST)
    last = model.requests[-1]
    covered = int(summary_in(last).partition("1 to ")[2].partition(" ")[0])
    assert f"read_page(page={covered + 1})" in last.messages[3].content, (
        "the first turn that is shown is the next"
    )


@pytest.mark.parametrize("name", FAILURES)
def test_a_run_does_not_die_of_a_summary_that_could_not_be_had(name: str) -> None:
    book, model = Guidebook(pages=40), with_summaries(reader(window=WINDOW), FAILURES[name])
    result = read_through(book, model, summarise(WINDOW, LONGEST))
    assert book.answered(result.answer) == (False, False, True)
    assert summary_in(model.requests[-1]).startswith("[Turns 1 to ")
    assert len(summaries(model)) < 12


def test_a_window_too_small_to_ask_in_does_without() -> None:
    window = Prompt(LoopContext(check_window.TASK), check_window.SYSTEM).taken + 60
    history = [plain(number, 20) for number in range(1, 20)]
    seen = [*check_window.rounds(summarise(window, 20), window, history)]
    assert not any(each.asked for each in seen), "what is asked there would not fit"
    assert "too small to ask" in seen[-1].messages[0].content


def test_A143_a_fact_is_at_risk_at_each_summary_that_it_passes_through() -> None:
    kept = dict(kept_facts(36, 1 / 4, range(40)))
    assert all(share == 1 for _, share in kept_facts(36, 0, range(2)))
    assert all(share == 0 for page, share in kept_facts(36, 1, range(2)) if page < 25)
    pages = sorted(kept)
    assert sum(kept[page] for page in pages[:3]) < sum(kept[page] for page in pages[3:]) - 0.3


# --- Writing summaries ------------------------------------------------------------------------


def test_a_summary_of_ones_own_need_not_ask_anybody() -> None:
    def shout(due: Due) -> str:
        return f"{len(due.places)} more, {due.known}"

    *_, seen = check_window.rounds(
        summarise(400, 50, by=shout), 400, [plain(number) for number in range(1, 15)]
    )
    assert seen.messages[0].content.startswith("Summary of turns 1 to ")


def test_a_bug_in_a_summary_of_ones_own_reaches_the_caller() -> None:
    book = Guidebook(pages=14)
    tools = Toolbox([book.read_page])
    loop = AgentLoop(react(tools, summarise(WINDOW, by=lambda due: 1 / 0)), limits=LIMITS)
    with pytest.raises(LoopError, match="ZeroDivisionError"):
        drive(loop.run(book.task), World(reader(), tools, inline=True))


@pytest.mark.parametrize(("window", "longest"), [(0, 10), (100, 0), (100, 1.5)])
def test_sizes_that_make_no_sense_are_refused(window: Any, longest: Any) -> None:
    with pytest.raises(ValueError, match="must be a whole number of at least 1"):
        summarise(window, longest)
    with pytest.raises(TypeError, match="by must be a function"):
        summarise(100, 10, by=None)  # type: ignore[arg-type]


def test_what_a_summary_says_of_itself() -> None:
    good = Summary("北京晴。", 7)
    assert good.shown().messages == (Message("user", "Summary of turns 1 to 7 (摘要):\n北京晴。"),)
    partly = good._replace(turns=9, lost=2, problem="it was empty").shown().messages[0].content
    assert (
        partly == "Summary of turns 1 to 9 (摘要):\n北京晴。\n[2 of these turns are left out: it was empty]"
    )


@settings(max_examples=50)
@given(
    st.lists(check_window.turns(), min_size=1, max_size=8),
    st.integers(200, 800),
    st.integers(1, 300),
    st.sampled_from([summarise, lambda window, longest: summarise(window, longest, by=one_line_each)]),
)
def test_any_history_is_summarised_within_the_window(
    history: list[Any], window: int, longest: int, make: Any
) -> None:
    assume(all(check_window.can_be_shown(turn, window - 100) for turn in history))
    view: View = make(window, longest)
    for seen in check_window.rounds(view, window, history, answer=lambda number: Reply("要" * (number * 90))):
        assert seen.tokens <= window and len(seen.asked) <= 1
        assert all(count_tokens(request.messages) <= window for request in seen.asked)


def test_the_strangest_useful_summary_is_shown_as_it_is() -> None:
    *_, seen = rounds(summarise, lambda number: Reply("\ud800 {task} 👩‍👩‍👧‍👦"))
    assert "\ud800 {task} 👩‍👩‍👧‍👦" in seen.messages[0].content
