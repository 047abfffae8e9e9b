"""Wrong versions of the views that fit a window: ours with one planted fault each."""

from __future__ import annotations

from functools import partial

from paradigms.prompt import View
from paradigms.views import ask_the_model, summarise
from tests.gallery import Fault

WindowFault = partial(Fault, check="window", of="keep_last", module="paradigms.views")
SummaryFault = partial(Fault, check="summary", of="summarise", module="paradigms.views")


def summarise_by_the_model(window: int, longest: int) -> View:
    """``summarise`` as it is by default, written so that a changed ``ask_the_model`` is used."""
    return summarise(window, longest, by=ask_the_model)


WINDOW_FAULTS: tuple[Fault, ...] = (
    WindowFault(
        "EB11: system prompt, task and tools take no room",
        "_ends",
        old="window - prompt.taken - told",
        new="window - told",
        caught_by="the_head_and_the_tools_take_room",
        passes=("every_promise_of_a_view",),
    ),
    WindowFault(
        "the mark of a gap takes no room",
        "_ends",
        old="    room -= left_out(len(turns), len(turns)).tokens\n",
        new="",
        caught_by="a_request_fits_the_window",
        passes=("every_promise_of_a_view", "a_gap_is_marked"),
    ),
    WindowFault(
        "X04: the latest is shown however large it is",
        "_ends",
        old="latest = shortened(turns[newest], room)",
        new="latest = turns[newest]",
        caught_by="a_request_fits_the_window",
        passes=("every_promise_of_a_view",),
    ),
    WindowFault(
        "X04: what is too large is left out, and nothing is left",
        "_ends",
        old="latest = shortened(turns[newest], room)",
        new="latest = turns[newest] if turns[newest].tokens <= room else None",
        caught_by="a_large_result_is_cut_and_marked",
    ),
    WindowFault(
        "a large result is cut to half of what would fit",
        "_ends",
        old="latest = shortened(turns[newest], room)",
        new="latest = shortened(turns[newest], room // 2)",
        caught_by="a_large_result_is_cut_and_marked",
    ),
    WindowFault(
        "a text is cut, and nothing says so",
        "_cut_text",
        old="cut(text, limit)",
        new="text[:limit]",
        caught_by="a_large_result_is_cut_and_marked",
        passes=("a_request_fits_the_window",),
    ),
    WindowFault(
        "the arguments of a call are never cut",
        "_cut_message",
        old="tuple(_cut_call(call, limit) for call in message.calls)",
        new="message.calls",
        caught_by="a_large_call_is_cut_and_marked",
        passes=("a_large_result_is_cut_and_marked",),
    ),
    WindowFault(
        "EB16: what left is gone without a mark",
        "_ends",
        old="if head < tail else ()",
        new="if False else ()",
        caught_by="a_gap_is_marked",
        passes=("a_request_fits_the_window",),
    ),
    WindowFault(
        "the mark counts from 0",
        "_ends",
        old="left_out(head + 1, tail)",
        new="left_out(head, tail - 1)",
        caught_by="a_gap_is_marked",
    ),
    WindowFault(
        "where the latest turn cannot be shown, the model is asked blind",
        "_ends",
        old="    if latest is None:\n        raise _overflow(prompt, window)\n",
        new="    if latest is None:\n        return (left_out(start + 1, newest + 1),)\n",
        caught_by="a_turn_that_cannot_be_shown_is_told",
        passes=("a_request_fits_the_window", "a_head_that_is_too_large_is_told"),
    ),
    WindowFault(
        "a window smaller than its head is not told of",
        "_ends",
        old="if all_fit and room >= 0:",
        new="if all_fit:",
        caught_by="a_head_that_is_too_large_is_told",
    ),
    WindowFault(
        "turns leave while there is room",
        "_ends",
        old="_fitting(turns, places[::-1], room)",
        new="_fitting(turns, places[::-1], room // 2)",
        caught_by="what_fits_is_shown_whole",
        passes=("a_request_fits_the_window",),
    ),
    WindowFault(
        "the whole history is added up in every round",
        "_fitting",
        old="    for count, place in",
        new="    sum(each.tokens for each in turns)\n    for count, place in",
        caught_by="a_round_costs_the_same_however_long_the_history",
        passes=("a_request_fits_the_window", "what_fits_is_shown_whole"),
    ),
    WindowFault(
        "the latest stands before the others",
        "_ends",
        old="*turns[tail:newest], latest)",
        new="latest, *turns[tail:newest])",
        caught_by="every_promise_of_a_view",
        passes=("a_request_fits_the_window",),
    ),
    WindowFault(
        "all runs share one summary",
        "summarise",
        old="    def view(prompt: Prompt) -> Program[Sequence[Block]]:\n",
        new="    shared: dict = {}\n\n"
        "    def view(prompt: Prompt) -> Program[Sequence[Block]]:\n"
        "        prompt.context.private = shared\n",
        caught_by="runs_share_nothing",
        of="summarise",
    ),
    WindowFault(
        "a window of nothing is accepted",
        "keep_last",
        old='    require("window", window, 1)\n',
        new="",
        caught_by="a_window_of_nothing_is_refused",
    ),
)

SUMMARY_FAULTS: tuple[Fault, ...] = (
    SummaryFault(
        "what is to be summarised is sent however large it is",
        "ask_the_model",
        of="tests.gallery_views:summarise_by_the_model",
        old="shortened(told, due.window - opening.tokens)",
        new="told",
        caught_by="the_request_for_it_fits_the_window",
        passes=("it_asks_seldom",),
    ),
    SummaryFault(
        "a summary is paid for before it is known that there is no room for it",
        "summarise",
        old="if shortened(prompt.turns[-1], room - 2 * left_out(1, len(prompt.turns)).tokens) is None:",
        new="if False:",
        caught_by="no_summary_is_paid_for_that_has_no_room",
        passes=("it_asks_seldom", "without_a_summary_it_goes_on_and_says_so"),
    ),
    SummaryFault(
        "the summary takes no room",
        "_after",
        old="start, told.tokens)",
        new="start, 0)",
        caught_by="every_promise_of_a_window",
        passes=("it_asks_seldom",),
    ),
    SummaryFault(
        "every round that is over half of the window asks for a summary",
        "summarise",
        old="< len(since):",
        new="<= len(since):",
        caught_by="it_asks_seldom",
    ),
    SummaryFault(
        "a summary that could not be had is asked for again in the next round, and the next",
        "_summarised",
        old="return Summary(before.text, due.places.stop, before.lost + len(due.places), problem)",
        new="return before",
        caught_by="it_asks_seldom",
    ),
    SummaryFault(
        "a summary of nothing is asked for",
        "summarise",
        old="if due.places:",
        new="if True:",
        caught_by="no_turn_is_summarised_twice_and_nothing_never",
        passes=("it_asks_seldom",),
    ),
    SummaryFault(
        "each summary is of the whole history again",
        "summarise",
        old="since[:-kept], summary.text",
        new="range(len(prompt.turns))[:-kept], summary.text",
        caught_by="no_turn_is_summarised_twice_and_nothing_never",
        passes=("it_asks_seldom",),
    ),
    SummaryFault(
        "the old summary is not part of the new one",
        "ask_the_model",
        of="tests.gallery_views:summarise_by_the_model",
        old="if due.known else []",
        new="if False else []",
        caught_by="the_summary_before_goes_into_the_next",
        passes=("what_left_is_in_the_summary",),
    ),
    SummaryFault(
        "a turn falls between the summary and the window",
        "summarise",
        old="since[:-kept], summary.text",
        new="since[1:-kept], summary.text",
        caught_by="what_left_is_in_the_summary",
    ),
    SummaryFault(
        "the summary does not say which turns it is of",
        "Summary.shown",
        old="Summary of turns 1 to {self.turns} (摘要)",
        new="Summary (摘要)",
        caught_by="what_left_is_in_the_summary",
    ),
    SummaryFault(
        "X03: whoever summarises is not told the task",
        "ask_the_model",
        of="tests.gallery_views:summarise_by_the_model",
        old='f"Task: {context.task}"',
        new='"Task: as before"',
        caught_by="the_request_names_the_task",
        passes=("what_left_is_in_the_summary",),
    ),
    SummaryFault(
        "the words of a failure are taken for a summary",
        "_summarised",
        old='problem = on_one_line(written.text, SHORT).rstrip(".")',
        new="return Summary(written.text, due.places.stop)",
        caught_by="without_a_summary_it_goes_on_and_says_so",
        passes=("it_asks_seldom",),
    ),
    SummaryFault(
        "a summary longer than what it stands for is taken",
        "_summarised",
        old=" and whole.shown().tokens < replaced",
        new="",
        caught_by="without_a_summary_it_goes_on_and_says_so",
        passes=("it_asks_seldom", "a_long_summary_is_cut"),
    ),
    SummaryFault(
        "an empty summary takes the place of the one before",
        "_summarised",
        old="elif not written.strip():",
        new="elif False:",
        caught_by="a_failure_keeps_the_summary_before",
        passes=("without_a_summary_it_goes_on_and_says_so",),
    ),
    SummaryFault(
        "a failure throws the summary before away",
        "_summarised",
        old="return Summary(before.text,",
        new="return Summary('',",
        caught_by="a_failure_keeps_the_summary_before",
        passes=("without_a_summary_it_goes_on_and_says_so",),
    ),
    SummaryFault(
        "what was lost is not told of, once there is a summary",
        "_summarised",
        old="before.lost + len(due.places)",
        new="before.lost",
        caught_by="a_failure_keeps_the_summary_before",
        passes=("without_a_summary_it_goes_on_and_says_so",),
    ),
    SummaryFault(
        "a long summary eats the window",
        "_summarised",
        old="due.longest)",
        new="due.window)",
        caught_by="a_long_summary_is_cut",
    ),
    SummaryFault(
        "a run that is over goes on without a summary",
        "_summarised",
        old="    written: str | Observation = yield from settle(by(due))\n",
        new="    try:\n        written = yield from settle(by(due))\n"
        "    except Exception:\n        written = ''\n",
        caught_by="what_ends_the_run_is_not_swallowed",
        passes=("it_asks_seldom",),
    ),
)
