"""The first turns say what it is about and the last ones where it stands; the middle can go, with a mark.

Article B, 三种处理策略 (滑动窗口); article A, 当前局限：循环深度与上下文窗口的权衡. Covers A-141, B-51.

Unlike chapter 25, which let go of the beginning, and chapter 26, which paid for a summary of it, this view
keeps both ends: the first N turns and the last M, and a mark in the place of the middle. It asks nobody and
never grows. It fits work whose first turns set everything up, such as the reading of an order or a manual;
a fact from the middle is lost in it for certain.

The two articles mean different things by the word 滑动窗口 (EX01), so no view here is named by it; each is
named for what it keeps:

==========================  ===================================  =================================
what is kept                the articles' word                   here
==========================  ===================================  =================================
the last N turns            A: 滑动窗口 (A-141)                  ``last_turns(n)``
the newest that fit         B: 截断 (B-49)                       ``keep_last(window)``
the first N, the last M     B: 滑动窗口 (B-51)                   ``keep_head_and_tail(n, m, w)``
==========================  ===================================  =================================

A window that is counted in turns bounds nothing: one large result fills it. So ``keep_head_and_tail``
counts tokens as well: the latest turn comes first, then the beginning, then what else fits.

Without whole turns: N and M are messages in article B (前 N 条), and a window cut between messages shows a
result without its call. Providers refuse such a request, and the run dies of its own strategy (EB16, X01).

Departures: turns, not messages (EB16); names by what is kept (EX01); and the system prompt and the task do
not count among the first N, since no view can drop them.

Exercises
---------
1. Write a view that keeps both ends and lets the middle leave turn by turn, the shortest results last:
   ``python -m pytest --impl view=my_view.py:shrinking_middle``
2. Mend ``first_and_last_messages`` so that it never parts a call from its result, still counting messages:
   ``python -m pytest --impl view=chapters/ch27_sliding_window.py:first_and_last_messages``
3. Which N and M answer most for a book of 14 pages and a window of 2,000 tokens? What does it depend on?
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentloop import AgentLoop, CallModel, Limits, Reply, Result, Toolbox, World, drive
from chapters.ch25_truncation import WINDOW, failure, known, outline, read_through, sizes
from chapters.telling import GREEN, RED, Telling
from fake_llm import FakeModel
from fake_llm.reader import Guidebook, reader
from paradigms.function_calling import function_calling
from paradigms.prompt import Block, Prompt, View, block, last_turns
from paradigms.views import keep_head_and_tail, keep_last

FIRST, LAST = 2, 4  # turns
MESSAGES = 2, 3  # the first and the last messages, of those that are no system prompt and no task


def first_and_last_messages(prompt: Prompt) -> Sequence[Block]:
    """Article B's sliding window to the letter: the first messages and the last, wherever that cuts."""
    messages = [message for each in prompt.turns for message in each.messages]
    first, last = MESSAGES
    if len(messages) <= first + last:
        return prompt.turns
    return [block(message) for message in (*messages[:first], *messages[-last:])]


def strict(model: FakeModel) -> FakeModel:
    """The model behind a provider that refuses a result without its call, as they do."""

    def respond(request: CallModel) -> Reply:
        open_calls: set[str] = set()
        for message in request.messages:
            open_calls |= {call.id for call in message.calls}
            if message.role == "tool" and message.call_id not in open_calls:
                raise ValueError(f"400: no call before the result of {message.call_id}")
            open_calls.discard(message.call_id)
        reply: Reply = model(request)
        return reply

    return FakeModel(respond)


def read_natively(book: Guidebook, model: FakeModel, view: View, tell: Telling, name: str) -> Result:
    """Let a model with native calls read the book and answer; what a provider refuses is the end."""
    tools, limits = Toolbox([book.read_page]), Limits(failures=1)
    loop = AgentLoop(function_calling(tools, view=view), limits=limits, watch=tell.watch(name, limits))
    result: Result = drive(loop.run(book.task), World(strict(model), tools, inline=True))
    return result


#: The three views that a "sliding window" may mean, and how they are made.
WINDOWS: dict[str, Callable[[], View]] = {
    f"last_turns({LAST})": lambda: last_turns(LAST),
    f"keep_last({WINDOW})": lambda: keep_last(WINDOW),
    f"keep_head_and_tail({FIRST}, {LAST}, {WINDOW})": lambda: keep_head_and_tail(FIRST, LAST, WINDOW),
}


def demo(tell: Telling) -> None:
    """The letter of the article and a strict provider; whole turns; three windows; one of them bursts."""
    short = Guidebook(pages=4, tokens=80)
    tell(f"task: {short.task}")
    tell.heading("The first {} messages and the last {}, by the letter of the article".format(*MESSAGES))
    model = reader()
    read_natively(short, model, first_and_last_messages, tell, "messages")
    roles = [message.role for message in model.requests[-1].messages]
    tell(f"the last request that was accepted: {', '.join(roles)}")
    tell("the one that was refused began its second half with a tool's result, and its call was cut off", RED)

    tell.heading(f"The first and the last turns: keep_head_and_tail(1, 2, {WINDOW})")
    result = read_natively(short, reader(), keep_head_and_tail(1, 2, WINDOW), tell, "turns")
    tell(known(short, result.answer), GREEN)

    book = Guidebook(pages=14)
    tell.heading("Three windows for a book of 14 pages: what the last request shows")
    for name, view in WINDOWS.items():
        model = reader(window=WINDOW)
        result = read_through(book, model, view())
        tell(f"{name:<30} {outline(model.requests[-1])}")
        tell(f"{'':<30} at most {max(sizes(model))} tokens; {known(book, result.answer)}")
    tell("Only the last one knows how it began. The middle fell out of it first of all.", RED)

    tell.heading("Longer pages: a window in turns is no bound")
    book = Guidebook(pages=14, asked=(1, 7, 13), tokens=600)
    for name, view in WINDOWS.items():
        model = reader(window=WINDOW)
        result = read_through(book, model, view())
        tell(f"{name:<30} at most {max(sizes(model))} tokens")
        told = known(book, result.answer) if result.answer else failure(result)
        tell(f"{'':<30} {told}", GREEN if result.answer else RED)
