"""What leaves the window can leave its gist behind, if the model writes it down in time.

Article B, 三种处理策略 (摘要); article A, 当前局限：循环深度与上下文窗口的权衡. Covers A-140, A-143, B-50.

Unlike chapter 25, whose oldest turns left without a word, here the model is asked to summarise them first,
and the summary stands in their place (上下文压缩). The mechanism is ``summarise(window)`` in
``paradigms/views.py``. A summary costs a request of its own, paid for from the same account, so it is asked
for only when the turns outgrow the window, and then of so many that it will not be needed again soon. It is
incremental: the old summary and what came since go in, the new summary comes out, and each turn is read
once. It never grows: the article's 10,000 tokens become 500 (B-50), and so do the next.

Without it, or where it fails, is empty, or is longer than what it stands for, the turns leave as in chapter
25, with a mark that says why: a run does not die of a summary that could not be had.

A summary may lose what decides (摘要可能丢关键细节), and article A leaves it open how to keep that (A-143).
Two things are done about it here: the request names the task, so that the model knows what will matter; and
the loss is measured: facts are planted early, and asked for at the end. A fact is at risk anew each time that
it passes through a summary, so the early ones fare worst, as the last part of the demo shows.

Departures: article A names three ways to compress (A-140): the summary is here; pruning (剪枝) is
``one_line_each``, a line for each old call, which chapter 10's ``compressed`` uses; vectors are chapter 28.
The article's summary replaces the complete history (替换完整历史); here the newest turns stay whole, as in
its own drawing, and history itself loses nothing.

Exercises
---------
1. Write a ``summarise(window, longest)`` of your own, and put it under the promises of a view that
   summarises: ``python -m pytest --impl summary=my_summary.py:summarise``
2. Write a ``by`` that asks twice and keeps what stands in either summary, and measure with ``kept_facts``
   what that saves. What does it cost? Then: ``python -m pytest --impl summary=my_summary.py:asks_twice``
3. Let the summary be checked: a number that stands in the old summary and not in the new one is put back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agentloop import CallModel, Reply, StopReason, count_tokens
from chapters.ch25_truncation import known, outline, read_through, sizes
from chapters.telling import GREEN, RED, Telling
from fake_llm import FakeModel
from fake_llm.reader import Guidebook, reader
from paradigms.views import SUMMARISING, keep_last, summarise

WINDOW = 2_000  # tokens
LONGEST = 300  # tokens of a summary


def is_for_a_summary(request: CallModel) -> bool:
    """Whether a request asks for a summary."""
    return request.messages[0].content.startswith(SUMMARISING.partition("\n")[0])


def summary_in(request: CallModel) -> str:
    """What stands in a request in the place of its old turns."""
    return request.messages[2].content


def with_summaries(model: FakeModel, answer: str | Exception | Callable[[CallModel], str]) -> FakeModel:
    """The model as it is, but for the summaries that it writes."""

    def respond(request: CallModel) -> str | Exception | Reply | Callable[[CallModel], str]:
        return answer if is_for_a_summary(request) else model(request)

    return FakeModel(respond)


#: Ways for a summary to go wrong.
FAILURES: dict[str, str | Exception | Callable[[CallModel], str]] = {
    "the model fails": ConnectionError("503"),
    "it says nothing": " ",
    "it copies all it reads, and more": lambda request: "也就是说，" * request.tokens,
}


def kept_facts(pages: int, loses: float, seeds: Iterable[int]) -> list[tuple[int, float]]:
    """For each page asked for: its number, and in which share of the runs its stamp was told."""
    book = Guidebook(pages, asked=range(1, pages + 1, pages // 6))
    told = []
    for seed in seeds:
        result = read_through(book, reader(loses=loses, seed=seed), summarise(WINDOW, LONGEST))
        assert result.stop is StopReason.FINAL_ANSWER
        told.append(book.answered(result.answer))
    by_page = zip(*told, strict=True)
    return [(page, sum(right) / len(told)) for page, right in zip(book.asked, by_page, strict=True)]


def demo(tell: Telling) -> None:
    """A fact that left the window; one summed up; 10k to 500; summaries that fail; and what they lose."""
    book = Guidebook(pages=14)
    tell(f"task: {book.task}")

    tell.heading(f"keep_last({WINDOW}): what leaves is forgotten")
    result = read_through(book, reader(window=WINDOW), keep_last(WINDOW))
    tell(f"{known(book, result.answer)}", RED)

    tell.heading(f"summarise({WINDOW}, {LONGEST}): the same book, the same model")
    model = reader(window=WINDOW)
    result = read_through(book, model, summarise(WINDOW, LONGEST))
    summaries = [request for request in model.requests if is_for_a_summary(request)]
    tell(f"requests of {', '.join(map(str, sizes(model)))} tokens")
    tell(f"{len(model.requests)} requests for {result.control.rounds} rounds: {len(summaries)} for a summary")
    tell(f"\nwhat it was asked, when the window was full:\n{summaries[0].messages[0].content}\n...")
    tell(f"\nwhat stands in the place of the old turns from then on:\n{summary_in(model.requests[-1])}")
    tell(f"the last request: {outline(model.requests[-1])}")
    tell(f"{known(book, result.answer)}", GREEN)

    tell.heading("Article B's figures: 10,000 tokens become 500 at most (B-50)")
    long, model = Guidebook(pages=110), reader()
    result = read_through(long, model, summarise(20_000, 500))
    place = [is_for_a_summary(request) for request in model.requests].index(True)
    asked, after = model.requests[place : place + 2]
    tell(f"it was asked to read {asked.tokens:,} tokens, and wrote {count_tokens([after.messages[2]])}")
    tell(f"the request before it: {sizes(model)[place - 1]:,}; the one after it: {after.tokens:,}")
    tell(f"{known(long, result.answer)}", GREEN)

    tell.heading("A summary that cannot be had: the run goes on, and the model is told what is missing")
    for name, answer in FAILURES.items():
        model = with_summaries(reader(window=WINDOW), answer)
        result = read_through(book, model, summarise(WINDOW, LONGEST))
        tell(f"{name}: {summary_in(model.requests[-1])}")
        tell(f"    {known(book, result.answer)}", RED)

    tell.heading("What a summary loses (信息损失): a model that drops one fact in four, at every summary")
    kept = kept_facts(36, 1 / 4, range(40))
    rows = [(f"page {page}", f"{share:4.0%}", "#" * round(30 * share)) for page, share in kept]
    tell.table([("stamp of", "known", "at the end"), *rows])
    tell("The earlier a fact, the more summaries it has passed through.")
