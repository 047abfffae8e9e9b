"""Chapter 25: the oldest turns leave first, whole; the system prompt, the task and the latest never."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    AgentLoop,
    Journal,
    Limits,
    LoopContext,
    LoopError,
    Message,
    Observation,
    Result,
    StopReason,
    Toolbox,
    ToolCall,
    Turn,
    World,
    call_tool,
    count_tokens,
    cut,
    drive,
    estimate_tokens,
)
from chapters.ch07_drivers import drive_async, drive_on_bus
from chapters.ch25_truncation import (
    LIMITS,
    WINDOW,
    literally_truncated,
    oldest_messages_dropped,
    read_through,
    sizes,
    turn_sizes,
)
from fake_llm import FakeModel, ScriptedModel, calls
from fake_llm.reader import Guidebook, lost_in_the_middle, reader
from paradigms.function_calling import function_calling, render
from paradigms.outer_loop import compressed
from paradigms.prompt import Block, Prompt, View, block, whole_history
from paradigms.react import react
from paradigms.views import (
    ContextOverflow,
    keep_head_and_tail,
    keep_last,
    left_out,
    shortened,
    summarise,
)
from tests import check_window
from tests.check_machine import BrokenPromise
from tests.check_window import plain, rounds

VIEWS: dict[str, Callable[[int], View]] = {
    "keep_last": keep_last,
    "keep_head_and_tail(2, 3)": partial(keep_head_and_tail, 2, 3),
    "summarise": summarise,
    "compressed": compressed,
}

# --- The promises -----------------------------------------------------------------------------


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("promise", check_window.PROMISES)
def test_our_views_keep(promise: str, view: str) -> None:
    check_window.PROMISES[promise](VIEWS[view])


def test_views_that_count_no_tokens_break_the_promises() -> None:
    for view in (whole_history, lambda prompt: prompt.turns[-3:]):
        with pytest.raises(BrokenPromise):
            check_window.check_window(lambda window: view)  # noqa: B023


# --- EB16, X01, X04 ---------------------------------------------------------------------------


def test_EB16_to_the_letter_the_system_prompt_and_the_task_go_first() -> None:
    messages = [Message("system", "s" * 40), Message("user", "t" * 40), *[Message("user", "o" * 40)] * 3]
    assert oldest_messages_dropped(messages, 30) == messages[2:]
    book, model = Guidebook(pages=14), reader(window=WINDOW)
    result = read_through(book, literally_truncated(model, WINDOW), whole_history)
    assert result.answer is None
    assert model.requests[-1].messages[0].role != "system"
    assert book.task not in model.prompts[-1]


def test_EB16_ours_keeps_system_prompt_task_and_whole_turns() -> None:
    book, model = Guidebook(pages=14), reader(window=WINDOW)
    result = read_through(book, model, keep_last(WINDOW))
    assert result.stop is StopReason.FINAL_ANSWER
    assert book.answered(result.answer) == (False, True, True), "what left the window is not known any more"
    for request in model.requests:
        system, task, *_ = request.messages
        assert (system.role, task.content) == ("system", book.task)
        assert [message.content for message in request.messages].count(book.task) == 1
    assert len(result.turns) == 15, "history itself is never shortened"


def test_X01_every_budget_from_one_to_the_total() -> None:
    """Two calls in one turn, then one: no window shows a result without its call, or a call without one."""
    two = Turn("", (ToolCall("a", {}), ToolCall("b", {})), (Observation("晴" * 9), Observation("雨" * 9)))
    *_, whole = rounds(whole_history, 0, [two, plain(2, 20)])
    shown = set()
    for make in VIEWS.values():
        for window in range(1, whole.tokens + 1):
            try:
                *_, seen = rounds(make(window), window, [two, plain(2, 20)])
            except ContextOverflow:
                continue
            asked = [call.id for message in seen.messages for call in message.calls]
            answered = [message.call_id for message in seen.messages if message.role == "tool"]
            assert asked == answered and seen.tokens <= window
            shown.add(len(asked))
    assert shown == {1, 3}, "the latest turn; both turns: never a part of one, and never nothing"


def test_X04_a_result_of_50_000_characters_and_a_budget_of_500() -> None:
    large = Turn("", (ToolCall("read", {}),), (Observation("晴" * 50_000),))
    for make in VIEWS.values():
        *_, seen = rounds(make(500), 500, [large])
        assert len(seen.blocks) == 1 and 400 < seen.tokens <= 500
        assert seen.messages[-1].content.endswith("of 50000 characters shown]")


def test_a_head_that_is_too_large_ends_the_run_with_its_reason() -> None:
    tools = Toolbox([Guidebook(3).read_page])
    with pytest.raises(LoopError, match="a window of 100 has no room for turns") as caught:
        drive(AgentLoop(react(tools, keep_last(100))).run("天气"), World(reader(), tools, inline=True))
    assert isinstance(caught.value.__cause__, ContextOverflow)
    assert caught.value.result.stop is StopReason.ERROR


def test_EB11_the_tools_of_native_calls_count_in_the_window() -> None:
    book = Guidebook(pages=20)
    tools, model = Toolbox([book.read_page]), reader(window=WINDOW)
    loop = AgentLoop(function_calling(tools, view=keep_last(WINDOW)), limits=LIMITS)
    assert drive(loop.run(book.task), World(model, tools, inline=True)).answer is not None
    assert max(sizes(model)) <= WINDOW
    assert max(sizes(model)) - max(count_tokens(request.messages) for request in model.requests) > 0


# --- Cutting ----------------------------------------------------------------------------------


@given(check_window.texts, st.integers(0, 200))
def test_a_text_is_cut_between_characters_and_says_so(text: str, room: int) -> None:
    whole = block(Message("user", text))
    fitting = shortened(whole, room)
    if fitting is None:
        assert whole.tokens > room
    elif fitting != whole:
        limits = [limit for limit in range(len(text)) if cut(text, limit) == fitting.messages[0].content]
        assert limits and fitting.tokens <= room < whole.tokens
        longer = [cut(text, limit) for limit in range(limits[-1] + 8, len(text))]
        assert all(estimate_tokens(each) > room - 3 for each in longer), "it is not cut more than it must be"


@given(check_window.turns(), st.integers(0, 400))
def test_a_cut_turn_has_all_its_messages_calls_and_ids(turn: Turn, room: int) -> None:
    whole = block(*render(turn))
    fitting = shortened(whole, room)
    if fitting is not None:
        assert fitting.tokens == count_tokens(fitting.messages) <= room
        assert [_frame(message) for message in fitting.messages] == [_frame(each) for each in whole.messages]


def _frame(message: Message) -> Any:
    return (
        message.role,
        message.call_id,
        [(call.name, call.id, list(call.arguments)) for call in message.calls],
    )


def test_what_cannot_be_cut_is_shown_or_left_out_whole() -> None:
    named = Block((Message("assistant", "", (ToolCall("n" * 4_000, {}),)),), 1_001)
    assert shortened(named, 1_001) == named and shortened(named, 1_000) is None
    assert shortened(block(), 0) == block()
    strange = block(Message("assistant", "晴" * 500, (ToolCall("look", "no mapping"),)))  # type: ignore[arg-type]
    fitting = shortened(strange, 100)
    assert fitting is not None and fitting.messages[0].calls == strange.messages[0].calls


@pytest.mark.parametrize("view", VIEWS)
def test_a_turn_that_cannot_be_cut_so_far_is_told_with_the_numbers(view: str) -> None:
    many = Turn("", tuple(ToolCall("look", {}) for _ in range(200)), (Observation("晴" * 90),) * 200)
    told = r"take 15 tokens, and a window of 500 has no room for the latest turn of \d+ tokens, not even cut"
    with pytest.raises(ContextOverflow, match=told):
        list(rounds(VIEWS[view](500), 500, [plain(1), many]))


# --- The article's figures --------------------------------------------------------------------


def test_B46_a_turn_is_about_200_tokens_and_ten_are_about_2000() -> None:
    model = reader()
    read_through(Guidebook(pages=12), model, whole_history)
    turns = turn_sizes(model)
    assert all(190 <= each <= 210 for each in turns[:10])
    assert sum(turns[:10]) == pytest.approx(2_000, rel=0.05)


def test_B47_without_a_strategy_the_window_is_the_end() -> None:
    model = reader(window=WINDOW)
    result = read_through(Guidebook(pages=14), model, whole_history)
    assert result.stop is StopReason.TOO_MANY_FAILURES
    assert max(sizes(model)) > WINDOW


def test_B48_a_long_prompt_is_mostly_old_and_its_middle_is_overlooked() -> None:
    book = Guidebook(pages=500, asked=range(1, 501, 11))
    model = reader(recall=lost_in_the_middle)
    right = book.answered(read_through(book, model, whole_history).answer)
    third = len(right) // 3
    assert sizes(model)[-1] == pytest.approx(100_000, rel=0.05)
    assert sum(turn_sizes(model)[:-50]) == pytest.approx(0.9 * sizes(model)[-1], rel=0.02)
    assert sum(right[third:-third]) < min(sum(right[:third]), sum(right[-third:]))
    assert all(book.answered(read_through(book, reader(), whole_history).answer)), "it all stands there"


# --- In a loop --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("native", [False, True])
def test_every_view_is_one_argument_and_the_same_under_every_driver(name: str, native: bool) -> None:
    book = Guidebook(pages=14)
    tools, view = Toolbox([book.read_page]), VIEWS[name](WINDOW)
    hook = function_calling(tools, view=view) if native else react(tools, view)
    loop = AgentLoop(hook, call_tool, limits=LIMITS)

    def world(model: Any) -> World:
        return World(model, tools, inline=True)

    models = [reader(window=WINDOW) for _ in range(3)]
    journal = Journal()
    results: list[Result] = [
        drive(loop.run(book.task), world(models[0]), journal),
        asyncio.run(drive_async(loop.run(book.task), world(models[1]))),
        asyncio.run(drive_on_bus(loop.run(book.task), world(models[2]))),
    ]
    replayed = drive(loop.run(book.task), world(ScriptedModel([])), journal)
    assert all((each.answer, each.turns) == (results[0].answer, results[0].turns) for each in results)
    assert (replayed.answer, replayed.turns) == (results[0].answer, results[0].turns)
    assert len({tuple(model.prompts) for model in models}) == 1
    assert max(sizes(models[0])) <= WINDOW and results[0].answer is not None


@given(
    st.lists(check_window.texts, min_size=1, max_size=6),
    st.sampled_from(sorted(VIEWS)),
    st.integers(150, 600),
)
def test_any_text_comes_through_a_whole_run(texts: list[str], name: str, window: int) -> None:
    said = iter(texts)

    def echo(text: str) -> str:
        """Say something."""
        return next(said)

    tools = Toolbox([echo])
    replies = [calls(("echo", {"text": "x"})) for _ in texts]

    def respond(request: Any) -> Any:
        assert request.tokens <= window
        return "好了" if "Summarise" in request.messages[0].content or not replies else replies.pop()

    loop = AgentLoop(function_calling(tools, "", VIEWS[name](window)), limits=Limits(failures=10))
    result = drive(loop.run("说"), World(FakeModel(respond), tools, inline=True))
    assert (result.answer, len(result.turns)) == ("好了", len(texts) + 1)


def test_the_mark_says_which_turns() -> None:
    context = LoopContext("task")
    context.turns += [plain(number) for number in range(1, 11)]
    prompt = Prompt(context, "system")
    prompt.refresh(render)
    shown = list(keep_last(prompt.taken + 100)(prompt))
    assert shown == [left_out(1, 8), *prompt.turns[-2:]]
    assert left_out(1, 8).messages == (Message("user", "[Turns 1 to 8 are left out here.]"),)


@pytest.mark.parametrize(
    "text", ["你好世界" * 25, "北京 is 晴 today" * 10, "👩‍👩‍👧‍👦" * 20, "plain English " * 20]
)
def test_X06_a_window_is_full_when_it_is_and_not_three_times_later(text: str) -> None:
    """Counted as len/4, ten turns of Chinese would pass for what is really two and a half."""
    turn = Turn("", (ToolCall("look", {}),), (Observation(text),))
    *_, seen = rounds(keep_last(600), 600, [turn] * 30)
    shown = "".join(message.content for message in seen.messages)
    wide = [character for character in shown if not character.isascii()]
    assert seen.tokens <= 600 and len(wide) <= 600 and len(shown) <= 4 * 600
