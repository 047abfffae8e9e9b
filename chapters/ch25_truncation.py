"""The window is finite and the loop is not: the oldest turns leave first, the task and the latest never.

Article B, 增长的量级 and 三种处理策略 (截断); article A, 当前局限：循环深度与上下文窗口的权衡.
Covers A-139, B-46..B-49.

Unlike chapter 04, which put the whole history back into each request, this one lets go of some of it. A turn
of thought, action and observation (三元组, B-46) takes about 200 tokens, ten of them 2,000, and the system
prompt and the tool definitions come on top: sooner or later a request outgrows the window (核心矛盾, A-139).
Without a strategy the provider refuses it, and the run is over with all its work (B-47). A larger window is
no way out (B-48): every round pays for all of it again, nearly all of it is old, and what stands in the
middle of a long prompt is overlooked.

The mechanism is ``keep_last(window)`` in ``paradigms/views.py``: the newest turns, as many as fit. It counts
tokens, not messages, and of all that is sent; it leaves out whole turns, so no result loses its call; it
marks the gap; and what a view cannot choose, system prompt and task, it cannot drop. A result that is too
large even by itself is shown cut, and says so. What it costs is what the article says: what an early turn
brought is gone from the model's sight, though it was needed (会忘掉仍然相关的早期工具结果, B-49). History
itself stays whole, for a later chapter to make more of.

Departures: read to the letter, dropping the oldest messages drops the system prompt and the task first
(EB16); ``oldest_messages_dropped`` below does so. The article's 2,000 tokens are the turns of one request;
here a window holds all of a request, and the account all of the requests (EB11).

Exercises
---------
1. Write ``keep_last`` for a window of your own, and put it under the promises of all views that fit one:
   ``python -m pytest --impl window=my_view.py:keep_last`` (called with the window, it returns a view)
2. Write a view that leaves out the largest old results first, whatever their age, and put a mark in the place
   of each: ``python -m pytest --impl view=my_view.py:without_large_results``. Which facts survive longer now?
3. ``keep_last`` moves the gap in every round, so no two requests begin alike, and a provider's cache of
   prompts is of no use. Let it drop several turns at once, and then none for a while.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentloop import (
    AgentLoop,
    CallModel,
    Limits,
    Message,
    Reply,
    Result,
    Toolbox,
    World,
    count_tokens,
    drive,
    on_one_line,
)
from chapters.telling import GREEN, RED, Telling
from fake_llm import FakeModel
from fake_llm.reader import Guidebook, lost_in_the_middle, reader
from paradigms.prompt import View, whole_history
from paradigms.react import react
from paradigms.views import keep_last

WINDOW = 2_000  # tokens: ten turns by article B's figure
LIMITS = Limits(rounds=600, model_calls=1_200, tool_calls=600, effects=2_000, tokens=10**8, failures=2)


def oldest_messages_dropped(messages: Iterable[Message], window: int) -> list[Message]:
    """Truncate as article B's table reads to the letter: while it is too much, drop the oldest message."""
    left = list(messages)
    while count_tokens(left) > window:
        left.pop(0)
    return left


def literally_truncated(model: FakeModel, window: int) -> FakeModel:
    """The model behind a runtime that drops the oldest messages of each request."""

    def respond(request: CallModel) -> Reply:
        left = oldest_messages_dropped(request.messages, window)
        reply: Reply = model(request._replace(messages=left, tokens=count_tokens(left)))
        return reply

    return FakeModel(respond)


def read_through(
    book: Guidebook, model: FakeModel, view: View, tell: Telling | None = None, name: str = ""
) -> Result:
    """Let the model read the book and answer; a telling hears of every step."""
    tools = Toolbox([book.read_page])
    watch = tell.watch(name, LIMITS) if tell else None
    loop = AgentLoop(react(tools, view), limits=LIMITS, watch=watch)
    result: Result = drive(loop.run(book.task), World(model, tools, inline=True))
    return result


def sizes(model: FakeModel) -> list[int]:
    """The tokens of each request, in order."""
    return [request.tokens for request in model.requests]


def known(book: Guidebook, answer: str | None) -> str:
    """Which of the stamps that were asked for the answer tells, by page."""
    pages = [(str(page), told) for page, told in zip(book.asked, book.answered(answer), strict=True)]
    right, missed = ([page for page, told in pages if told is wanted] for wanted in (True, False))
    return f"stamps told: {', '.join(right) or 'none'}; missed: {', '.join(missed) or 'none'}"


def turn_sizes(model: FakeModel) -> list[int]:
    """The tokens that each turn added to the requests of a model that is shown the whole history."""
    requests = sizes(model)
    return [after - before for before, after in zip(requests, requests[1:], strict=False)]


def failure(result: Result) -> str:
    """Why a run failed, and what it met last."""
    return on_one_line(f"{result.stop.name}: {result.turns[-1].observations[0].text}", 90)


def demo(tell: Telling) -> None:
    """A book that outgrows the window; the letter of the article; truncation; a huge page; a huge window."""
    book = Guidebook(pages=14)
    tell(f"task: {book.task}")

    tell.heading(f"Everything is shown, and the model's window holds {WINDOW} tokens")
    model = reader(window=WINDOW)
    result = read_through(book, model, whole_history)
    tell(f"requests of {', '.join(map(str, sizes(model)))} tokens")
    ten = sum(turn_sizes(model)[:10])
    tell(f"a turn adds {ten / 10:.0f} tokens, ten of them {ten}, to the {sizes(model)[0]} of the head")
    tell(failure(result), RED)

    tell.heading("The oldest messages are dropped, as the article reads to the letter (EB16)")
    model = reader(window=WINDOW)
    result = read_through(book, literally_truncated(model, WINDOW), whole_history)
    cut_requests = [request for request in model.requests if request.messages[0].role != "system"]
    first = cut_requests[0].messages[0]
    tell(f"the first to be cut begins with {first.role}: {first.content[:40]}...")
    tell(f"{len(cut_requests)} requests without a system prompt, the later ones without the task too")
    tell(failure(result), RED)

    tell.heading(f"keep_last({WINDOW}): whole turns leave, the oldest first (截断)")
    model = reader(window=WINDOW)
    result = read_through(book, model, keep_last(WINDOW))
    tell(f"requests of {', '.join(map(str, sizes(model)))} tokens")
    tell(f"the last one: {outline(model.requests[-1])}")
    tell(f"answer: {result.answer}", GREEN)
    tell(f"{known(book, result.answer)}. What left the window was still needed.", RED)

    tell.heading("One result larger than the whole window (X04)")
    huge = Guidebook(pages=2, tokens=50_000)
    model = reader(window=500)
    result = read_through(huge, model, keep_last(500), tell, "huge pages")
    tell(f"requests of {', '.join(map(str, sizes(model)))} tokens")
    tell(f"the page ended with {model.requests[-1].messages[-1].content[-60:]!r}")

    tell.heading("A larger window (a simulated reader that minds beginning and end)")
    long = Guidebook(pages=500, asked=range(1, 501, 55))
    model = reader(recall=lost_in_the_middle)
    result = read_through(long, model, whole_history)
    old = sum(turn_sizes(model)[:-50])
    last, total = sizes(model)[-1], sum(sizes(model))
    tell(f"the last request: {last:,} tokens, {old / last:.0%} of it older than the last 50 rounds")
    tell(f"sent in all: {total:,} tokens")
    tell(f"{known(long, result.answer)}: lost in the middle", RED)


def outline(request: CallModel) -> str:
    """A request as the article draws it: [SYS] for the head, then turns, gaps and a summary."""
    parts = []
    for message in request.messages[2:]:
        if message.role == "assistant":
            page = message.content.rpartition("page=")[2].partition(")")[0]
            parts.append(f"[{page}]")
        elif message.content.startswith("[Turns"):
            parts.append("[ ]")
        elif message.content.startswith("Summary"):
            parts.append("[摘要]")
    return "[SYS]" + "".join(parts)
