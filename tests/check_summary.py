"""What a view that summarises promises: plain functions of ``(window, longest) -> View``, ours and others.

It asks a ``CallModel`` for a summary when the turns outgrow the window, seldom, and gets by without one.
``check_summary(summarise)`` raises ``BrokenPromise`` with the shortest story that breaks a promise;
``PROMISES`` holds the same promises one by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from agentloop import (
    CallModel,
    Control,
    Kind,
    LimitReached,
    LoopContext,
    Observation,
    Reply,
    StopReason,
    count_tokens,
    estimate_tokens,
)
from paradigms.function_calling import render
from paradigms.prompt import Prompt, View
from paradigms.views import ContextOverflow
from tests import check_window
from tests.check_machine import BrokenPromise
from tests.check_toolbox import expect
from tests.check_window import SYSTEM, TASK, Answer, Round, plain

SummaryOf = Callable[[int, int], View]

WINDOW, LONGEST, TURNS = 900, 150, 80

#: Replies that are no summary of anything.
USELESS: dict[str, Any] = {
    "a failure": Observation("503", False, Kind.MODEL_ERROR),
    "nothing": Reply(""),
    "blanks": Reply(" \n\t"),
    "more than it stands for": Reply("废话" * WINDOW),
}


def rounds(summary_of: SummaryOf, answer: Answer) -> Iterator[Round]:
    """Round by round of one run; ``answer`` says what its requests for summaries are answered."""
    history = [plain(number) for number in range(1, TURNS + 1)]
    return check_window.rounds(summary_of(WINDOW, LONGEST), WINDOW, history, answer=answer)


def useful(number: int) -> Reply:
    """A summary that is told from any other."""
    return Reply(f"<summary {number}>")


def told(request: CallModel) -> str:
    return "\n".join(message.content for message in request.messages)


def thoughts(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"<thought (\d+)>", text)]


def shown(seen: Round) -> str:
    return "\n".join(message.content for message in seen.messages)


# --- The promises -----------------------------------------------------------------------------


def every_promise_of_a_window(summary_of: SummaryOf) -> None:
    """It keeps what every view that fits a window promises."""
    check_window.check_window(lambda window: summary_of(window, LONGEST))


def it_asks_seldom(summary_of: SummaryOf) -> None:
    """At most one request a round, and none for some rounds after it: not every round summarises."""
    for name, answer in {
        "a summary": useful,
        **{name: _always(each) for name, each in USELESS.items()},
    }.items():
        asked = [len(seen.asked) for seen in rounds(summary_of, answer)]
        expect(max(asked) <= 1, f"answered with {name}, it asks {max(asked)} times in one round")
        places = [number for number, each in enumerate(asked) if each]
        expect(bool(places), f"{TURNS} turns outgrow a window of {WINDOW} tokens, and it never asks")
        pauses = [after - before for before, after in zip(places, places[1:], strict=False)]
        close = [pause for pause in pauses if pause < 4]
        expect(not close, f"answered with {name}, it asks in the rounds {places}: too soon again")


def _always(answer: Any) -> Answer:
    return lambda number: answer


def no_turn_is_summarised_twice_and_nothing_never(summary_of: SummaryOf) -> None:
    """Each request brings turns that no earlier one did, and those alone: the summary is incremental."""
    for seen in check_window.rounds(summary_of(WINDOW, LONGEST), WINDOW, [plain(1, 2 * WINDOW)]):
        expect(not seen.asked, f"{seen.story}: one large turn, which is shown: there is nothing to summarise")
    read: list[int] = []
    for seen in rounds(summary_of, useful):
        for request in seen.asked:
            new = thoughts(told(request))
            expect(bool(new), f"{seen.story}: a summary of no turns is asked for")
            again = sorted(set(new) & set(read))
            expect(not again, f"{seen.story}: the turns {again} were summarised before")
            read += new


def the_summary_before_goes_into_the_next(summary_of: SummaryOf) -> None:
    """What was summarised once must not be lost with the next summary: the old one is part of the request."""
    number = 0
    for seen in rounds(summary_of, useful):
        for request in seen.asked:
            known = not number or f"<summary {number}>" in told(request)
            expect(known, f"{seen.story}: the request for a summary does not hold the one before")
            number += 1


def what_left_is_in_the_summary(summary_of: SummaryOf) -> None:
    """Each turn is shown, or went into the summary that stands first and says which it is of (X03)."""
    read: set[int] = set()
    number = 0
    for seen in rounds(summary_of, useful):
        for request in seen.asked:
            read |= set(thoughts(told(request)))
            number += 1
        left = set(range(1, len(seen.prompt.turns) + 1)) - set(thoughts(shown(seen)))
        expect(
            left <= read, f"{seen.story}: the turns {sorted(left - read)} are neither shown nor summarised"
        )
        if number:
            first = seen.messages[0].content
            expect(
                f"<summary {number}>" in first, f"{seen.story}: first stands {first!r}, not summary {number}"
            )
            expect(
                f"1 to {max(left)}" in first, f"{seen.story}: the summary does not say that it is of {left}"
            )


def the_request_names_the_task(summary_of: SummaryOf) -> None:
    """Whoever summarises must know what for: the task is in the request, and no tools are (X03)."""
    for seen in rounds(summary_of, useful):
        for request in seen.asked:
            expect(TASK in told(request), f"{seen.story}: the request for a summary does not name the task")
            expect(not request.tools, f"{seen.story}: it offers tools to whoever is to write a summary")
            size = count_tokens(request.messages)
            expect(
                request.tokens in (0, size), f"{seen.story}: it announces {request.tokens} tokens, not {size}"
            )


def the_request_for_it_fits_the_window(summary_of: SummaryOf) -> None:
    """What is sent for a summary fits too, also where a turn that is due is larger than the window."""
    for large in (WINDOW // 2, 3 * WINDOW, 50_000):
        history = [plain(1), plain(2, large), *(plain(number) for number in range(3, 30))]
        for seen in check_window.rounds(summary_of(WINDOW, LONGEST), WINDOW, history):
            for request in seen.asked:
                size = count_tokens(request.messages)
                expect(size <= WINDOW, f"{seen.story}: a turn of {large}, and the request takes {size}")


def without_a_summary_it_goes_on_and_says_so(summary_of: SummaryOf) -> None:
    """Where none can be had, the turns leave with a mark, and the useless reply is not shown."""
    for name, answer in USELESS.items():
        for seen in rounds(summary_of, _always(answer)):
            expect(seen.tokens <= WINDOW, f"{seen.story}, answered with {name}: {seen.tokens} tokens")
            left = set(range(1, len(seen.prompt.turns) + 1)) - set(thoughts(shown(seen)))
            if left:
                first = seen.messages[0].content
                marked = f"1 to {max(left)}" in first and "left out" in first
                expect(
                    marked, f"{seen.story}, answered with {name}: {sorted(left)} left, first stands {first!r}"
                )
                expect("废话" not in first, f"{seen.story}: the useless reply is shown")


def no_summary_is_paid_for_that_has_no_room(summary_of: SummaryOf) -> None:
    """Where the window cannot hold a summary beside the rest, it says so before it asks for one."""
    for words in range(0, 400, 5):
        context = LoopContext(TASK)
        context.turns += [plain(number) for number in range(1, 20)]
        context.working_memory["notes"] = "word " * words
        prompt, asked = Prompt(context, SYSTEM), list[CallModel]()
        prompt.refresh(render)
        try:
            check_window.chosen(summary_of(400, LONGEST), prompt, useful, asked)
        except ContextOverflow:
            told = f"with {prompt.taken} tokens always sent, of a window of 400, it asked {len(asked)} times"
            expect(not asked, f"{told}, and then said that there is no room")


def a_failure_keeps_the_summary_before(summary_of: SummaryOf) -> None:
    """One failure costs the turns that were due, not the summary there was; and it is told."""
    for name, useless in USELESS.items():
        made = 0
        for seen in rounds(summary_of, lambda number: useful(1) if number == 1 else useless):  # noqa: B023
            made += len(seen.asked)
            first = shown(seen)
            expect(made < 1 or "<summary 1>" in first, f"{seen.story}, then {name}: the summary is gone")
            expect(made < 2 or "left out" in first, f"{seen.story}, then {name}: nothing tells of the loss")


def a_long_summary_is_cut(summary_of: SummaryOf) -> None:
    """A summary stays within its length, whatever the model writes: it does not eat the window."""
    long = Reply("长" * (2 * LONGEST))
    seen = [each for each in rounds(summary_of, _always(long))][-1]
    size = estimate_tokens(seen.messages[0].content)
    expect(size <= LONGEST + 40, f"{seen.story}: a summary of at most {LONGEST} tokens takes {size}")
    expect("长" in shown(seen), f"{seen.story}: a summary that is only a little too long is thrown away")


def what_ends_the_run_is_not_swallowed(summary_of: SummaryOf) -> None:
    """Where the account refuses to pay for the summary, the refusal goes through, and the run ends."""
    context = LoopContext(TASK)
    context.turns += [plain(number) for number in range(1, TURNS)]
    prompt = Prompt(context, SYSTEM)
    prompt.refresh(render)
    program: Any = summary_of(WINDOW, LONGEST)(prompt)
    effect = next(program)
    expect(isinstance(effect, CallModel), f"it does not ask the model, but for {effect!r}")
    try:
        program.throw(LimitReached(Control(stop=StopReason.TOKEN_BUDGET)))
    except LimitReached:
        return
    except StopIteration:
        pass
    raise BrokenPromise("it was told that nothing is left to spend, and went on")


PROMISES: dict[str, Callable[[SummaryOf], None]] = {
    promise.__name__: promise
    for promise in (
        every_promise_of_a_window,
        it_asks_seldom,
        no_turn_is_summarised_twice_and_nothing_never,
        the_summary_before_goes_into_the_next,
        what_left_is_in_the_summary,
        the_request_names_the_task,
        the_request_for_it_fits_the_window,
        without_a_summary_it_goes_on_and_says_so,
        no_summary_is_paid_for_that_has_no_room,
        a_failure_keeps_the_summary_before,
        a_long_summary_is_cut,
        what_ends_the_run_is_not_swallowed,
    )
}


def check_summary(summary_of: SummaryOf) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(summary_of)
