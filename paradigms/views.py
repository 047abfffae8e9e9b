"""Views that fit a window: which turns are shown when not all of them can be (三种处理策略).

Article B names three ways to deal with a history that outgrows the context window; each is a view here,
named for what it keeps, since the articles' words for them disagree (EX01):

========================================  ===========================================================
``keep_last(window)``                     截断: the newest turns; the oldest leave first
``keep_head_and_tail(first, last, ...)``  article B's 滑动窗口: the first N turns and the last M
``summarise(window)``                     摘要: a summary of the old turns, then the newest ones
``last_turns(count)`` (prompt.py)         article A's 滑动窗口: the last N turns, whatever their size
========================================  ===========================================================

A ``window`` is what one request may hold, in tokens, and all that is sent counts: system prompt, task,
working memory, tool definitions, and the turns. All of these views show the latest turn, cut where it is
too large by itself, and put a mark where turns were left out. History itself is never touched. What does
not depend on the view cannot be made to fit by it: where that leaves no room for the latest turn, not even
for one that is cut, ``ContextOverflow``.

No view looks at more turns than it shows, so a round costs the same however long the history is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agentloop import (
    CallModel,
    Message,
    Observation,
    Program,
    ToolCall,
    Turn,
    call_text,
    cut,
    estimate_tokens,
    on_one_line,
    settle,
)
from paradigms.arguments import require, require_function
from paradigms.prompt import Block, Prompt, View, block


class ContextOverflow(ValueError):
    """The window has no room for the latest turn, not even cut, beside what is sent in any case."""


# --- Turns that are left out, and turns that are cut --------------------------------------------


def left_out(first: int, last: int, why: str = "") -> Block:
    """The mark for a gap: the turns from ``first`` to ``last``, counted from 1, are not shown."""
    because = f": {why}" if why else ""
    return block(Message("user", f"[Turns {first} to {last} are left out here{because}.]"))


def shortened(whole: Block, room: int) -> Block | None:
    """The block if it fits into ``room`` tokens, or else a copy of it whose texts are cut so that it does.

    Every message, call and id stays in its place; a cut text says that it is one. ``None`` where the block
    does not fit even with all of its texts cut to nothing.
    """
    if whole.tokens <= room:
        return whole
    fitting = None
    least, most = 0, max(map(_longest, whole.messages), default=0)
    while least < most:  # characters left of each text: the most with which it still fits
        limit = (least + most) // 2
        tried = block(*[_cut_message(message, limit) for message in whole.messages])
        if tried.tokens <= room:
            fitting, least = tried, limit + 1
        else:
            most = limit
    return fitting


def _longest(message: Message) -> int:
    """The characters of the longest text in a message."""
    arguments = [len(text) for call in message.calls for text in _texts(call).values()]
    return max(len(message.content), *arguments) if arguments else len(message.content)


def _texts(call: ToolCall) -> Mapping[Any, str]:
    """The arguments as texts, as far as they are named."""
    if not isinstance(call.arguments, Mapping):
        return {}
    return {name: value if isinstance(value, str) else repr(value) for name, value in call.arguments.items()}


def _cut_message(message: Message, limit: int) -> Message:
    calls = tuple(_cut_call(call, limit) for call in message.calls)
    return message._replace(content=_cut_text(message.content, limit), calls=calls)


def _cut_call(call: ToolCall, limit: int) -> ToolCall:
    """The call with the arguments that are too long cut; what is left of one that is no text is text."""
    short = {name: _cut_text(text, limit) for name, text in _texts(call).items() if len(text) > limit}
    return call._replace(arguments={**call.arguments, **short}) if short else call


def _cut_text(text: str, limit: int) -> str:
    """The text, cut if that makes it smaller: the note that says so takes room as well."""
    return min(text, cut(text, limit), key=estimate_tokens)


# --- Truncation, and the first and the last ------------------------------------------------------


def keep_last(window: int) -> View:
    """Make the view that shows the newest turns, as many as fit (截断): the oldest leave first.

    A whole request holds at most ``window`` tokens. Raises ``ValueError`` for a window below 1.
    """
    require("window", window, 1)
    return lambda prompt: _ends(prompt, window, 0, len(prompt.turns))


def keep_head_and_tail(first: int, last: int, window: int) -> View:
    """Make the view that shows the ``first`` turns and the ``last``, without the middle (滑动窗口).

    A whole request holds at most ``window`` tokens. Where these turns need more, the latest comes before the
    first ones, and they before the rest. Raises ``ValueError`` for a number below 1.
    """
    for name, number in (("first", first), ("last", last), ("window", window)):
        require(name, number, 1)
    return lambda prompt: _ends(prompt, window, first, last)


def _ends(
    prompt: Prompt, window: int, first: int, last: int, start: int = 0, told: int = 0
) -> Sequence[Block]:
    """The first and the last turns from ``start`` on, as far as they fit, and a mark between them.

    ``told`` tokens of the window are taken by what stands for the turns before that.
    """
    turns, room = prompt.turns, window - prompt.taken - told
    places = range(start, len(turns))
    all_fit = len(places) <= first + last and _fitting(turns, places[::-1], room) == len(places)
    if all_fit and room >= 0:
        return turns[start:]
    room -= left_out(len(turns), len(turns)).tokens
    if room < 0:
        raise _overflow(prompt, window)
    newest = places[-1]
    latest = shortened(turns[newest], room)
    if latest is None:
        raise _overflow(prompt, window)
    room -= latest.tokens
    head = start + _fitting(turns, places[:-1][:first], room)
    room -= sum([turns[place].tokens for place in range(start, head)])
    tail = newest - _fitting(turns, range(head, newest)[::-1][: last - 1], room)
    gap = (left_out(head + 1, tail),) if head < tail else ()
    return (*turns[start:head], *gap, *turns[tail:newest], latest)


def _overflow(prompt: Prompt, window: int) -> ContextOverflow:
    latest = (
        f"the latest turn of {prompt.turns[-1].tokens} tokens, not even cut," if prompt.turns else "turns"
    )
    return ContextOverflow(
        f"system prompt, task, working memory and tools take {prompt.taken} tokens, and a window of {window} "
        f"has no room for {latest} beside them: make it larger, or them smaller"
    )


def _fitting(turns: Sequence[Block], places: range, room: int) -> int:
    """How many of the turns at these places, one after the other, fit into the room."""
    for count, place in enumerate(places):
        room -= turns[place].tokens
        if room < 0:
            return count
    return len(places)


# --- A summary of the old turns ------------------------------------------------------------------


class Due(NamedTuple):
    """What is to be summarised: the turns of ``prompt`` at ``places``, and the summary of those before them.

    ``longest`` is how long the new summary may be, ``window`` how large the request for it, in tokens.
    """

    prompt: Prompt
    places: range
    known: str
    longest: int
    window: int


class Summary(NamedTuple):
    """What stands for the first ``turns`` turns of a history.

    ``lost`` of them are told of by no summary, since none could be had; ``problem`` says why, the last time.
    """

    text: str = ""
    turns: int = 0
    lost: int = 0
    problem: str = ""

    def shown(self) -> Block:
        """The block that the model is shown in the place of these turns."""
        if not self.text:
            return left_out(1, self.turns, f"no summary could be had, {self.problem}")
        missing = f"\n[{self.lost} of these turns are left out: {self.problem}]" if self.lost else ""
        return block(Message("user", f"Summary of turns 1 to {self.turns} (摘要):\n{self.text}{missing}"))


#: Writes a summary: returns its text, or an ``Observation`` that says why there is none; or is a program
#: of one of these, which asks the world first.
Summarise = Callable[[Due], Any]

#: What a model is told that is to write a summary.
SUMMARISING = """\
Summarise the work on a task so far, for whoever carries it on and sees nothing but your summary.
Keep what decides the next steps: facts, numbers and names that the task asks for or may need, what was
tried and failed, what is still to be done. Take over what the earlier summary says. Invent nothing.
Write at most {longest} tokens."""


def ask_the_model(due: Due) -> Program[str | Observation]:
    """Let the model write the summary from the one before and the turns since, cut where they are too large.

    The request is paid for from the run's account, as any other.
    """
    context, turns = due.prompt.context, due.prompt.turns
    known = [Message("user", f"Earlier summary:\n{due.known}")] if due.known else []
    opening = block(
        Message("system", SUMMARISING.format(longest=due.longest)), Message("user", f"Task: {context.task}")
    )
    told = block(*known, *[_in_words(turns[place]) for place in due.places])
    material = shortened(told, due.window - opening.tokens)
    if material is None:
        return Observation("the window is too small to ask for one", False)
    request = CallModel(opening.messages + material.messages, tokens=opening.tokens + material.tokens)
    reply = (yield request).value
    return reply if isinstance(reply, Observation) else reply.text


def _in_words(turn: Block) -> Message:
    """What a turn shows, as one text: calls and results are no messages of this request."""
    lines = []
    for message in turn.messages:
        lines += [f"{message.role}: {message.content}", *map(call_text, message.calls)]
    return Message("user", "\n".join(lines))


SHORT = 60  # characters of a call, and of what it brought


def one_line_each(due: Due) -> str:
    """A summary without a model: a line for each call and what came of it, the oldest left out first."""
    lines = [*due.known.splitlines(), *[_line(due.prompt.context.turns[place]) for place in due.places]]
    room, kept = due.longest, len(lines)
    while kept and room >= estimate_tokens(lines[kept - 1] + "\n"):
        kept -= 1
        room -= estimate_tokens(lines[kept] + "\n")
    return "\n".join(lines[kept:])


def _line(turn: Turn) -> str:
    pairs = zip(turn.calls, turn.observations, strict=True)
    return "; ".join(
        f"{on_one_line(call_text(call), SHORT)} -> {on_one_line(seen.text, SHORT)}" for call, seen in pairs
    )


def summarise(window: int, longest: int = 500, by: Summarise = ask_the_model) -> View:
    """Make the view that shows a summary of the old turns, then the newest ones whole (摘要).

    A whole request, also one for a summary, holds at most ``window`` tokens. When the turns outgrow it, the
    old ones go into the summary, of at most ``longest`` tokens, together with the summary before; so many
    that a quarter of the room is free again, so that it is asked for seldom. If it cannot be had, is empty
    or is longer than what it stands for, its turns are left out with a mark. Raises ``ValueError`` for a
    number below 1.
    """
    require("window", window, 1)
    require("longest", longest, 1)
    require_function("by", by)

    def view(prompt: Prompt) -> Program[Sequence[Block]]:
        room = window - prompt.taken
        summary, shown = prompt.context.private.get(view, (Summary(), NOTHING))
        since = range(summary.turns, len(prompt.turns))
        if _fitting(prompt.turns, since[::-1], room - shown.tokens) < len(since):
            limit = min(longest, room // 2)
            kept = max(_fitting(prompt.turns, since[::-1], (room - limit) // 2), 1)
            due = Due(prompt, since[:-kept], summary.text, limit, window)
            if due.places:
                # There must be room for the latest turn, if it is cut, and for two marks.
                if shortened(prompt.turns[-1], room - 2 * left_out(1, len(prompt.turns)).tokens) is None:
                    raise _overflow(prompt, window)
                summary = yield from _summarised(due, summary, by)
                shown = summary.shown()
                prompt.context.private[view] = summary, shown
        if summary.turns:
            told, mark = shortened(shown, room // 2), left_out(1, summary.turns)
            try:
                return (told or mark, *_after(prompt, window, summary.turns, told or mark))
            except ContextOverflow:  # the latest turn comes before the summary
                return (mark, *_after(prompt, window, summary.turns, mark))
        return _ends(prompt, window, 0, len(prompt.turns))

    return view


NOTHING = Block((), 0)


def _after(prompt: Prompt, window: int, start: int, told: Block) -> Sequence[Block]:
    """The newest turns from ``start`` on, as many as fit beside what is told of those before."""
    return _ends(prompt, window, 0, len(prompt.turns), start, told.tokens)


def _summarised(due: Due, before: Summary, by: Summarise) -> Program[Summary]:
    """The summary of all that is due, or the one before with what is lost now."""
    written: str | Observation = yield from settle(by(due))
    replaced = before.shown().tokens if before.turns else 0
    replaced += sum([due.prompt.turns[place].tokens for place in due.places])
    if isinstance(written, Observation):
        problem = on_one_line(written.text, SHORT).rstrip(".")
    elif not written.strip():
        problem = "it was empty"
    else:
        whole = before._replace(text=written.strip(), turns=due.places.stop)
        fitting = shortened(block(Message("user", whole.text)), due.longest)
        if fitting is not None and whole.shown().tokens < replaced:
            return whole._replace(text=fitting.messages[0].content)
        problem = "it was too long"
    return Summary(before.text, due.places.stop, before.lost + len(due.places), problem)
