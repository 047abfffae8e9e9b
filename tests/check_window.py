"""What a view that fits a window promises: plain functions of ``window -> View``, used on ours and on others.

Whatever the window and whatever the history, the request fits; the latest turn is in it, cut if it must be;
what is missing is marked. ``check_window(view_of)`` raises ``BrokenPromise`` with the shortest story that
breaks a promise; ``PROMISES`` holds the same promises one by one. A view may ask the world first: it is told
"a summary", or that the model failed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import (
    CallModel,
    Kind,
    LoopContext,
    Message,
    Observation,
    Outcome,
    Reply,
    ToolCall,
    Turn,
    count_tokens,
)
from paradigms import function_calling, text_protocol
from paradigms.prompt import Block, Prompt, View, block
from paradigms.views import ContextOverflow, shortened
from tests import check_view
from tests.check_machine import BrokenPromise
from tests.check_toolbox import expect

ViewOf = Callable[[int], View]

#: Beyond what is sent in any case, and the latest turn cut to nothing, so many tokens are enough to go on.
ENOUGH = 60
#: How many effects a view may ask for before it has chosen.
PATIENCE = 3
#: The windows that are tried with what every view promises.
WINDOWS = (150, 300, 1_000, 10_000, 10**6)

SYSTEM, TASK = "You are a guide to 北京.", "北京哪里风景好？"
ANSWERS = (Reply("a summary"), Reply(""), Observation("503", False, Kind.MODEL_ERROR), Reply("长" * 5_000))

#: What the first, second, third request of a view is answered.
Answer = Callable[[int], Any]


def a_summary(number: int) -> Reply:
    """The same to every request."""
    return Reply("a summary")


#: Any text at all, with halves of emoji, joined emoji and flags in it, and some that is long.
texts = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=20),
    st.sampled_from(["\ud800" * 30, "\x00{task}", "a\u0301" * 50, "晴" * 400, "sunny " * 300]),
    st.sampled_from(["👩‍👩‍👧‍👦" * 20, "🇨🇳" * 40]),
)
names = st.sampled_from(["look", "", "write_note"])


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    """A turn of one to three calls, with any text and any argument."""
    values = st.one_of(texts, st.integers(), st.lists(st.integers(), max_size=200), st.none())
    arguments = st.dictionaries(texts, values, max_size=2)
    made = [ToolCall(draw(names), draw(arguments)) for _ in range(draw(st.integers(1, 3)))]
    return Turn(draw(texts), tuple(made), tuple(Observation(draw(texts)) for _ in made))


renders = st.sampled_from([text_protocol.render, function_calling.render])


class Round(NamedTuple):
    """What a view chose to show in one round; ``asked`` are the requests it made first."""

    prompt: Prompt
    window: int
    blocks: tuple[Block, ...]
    asked: tuple[CallModel, ...]

    @property
    def messages(self) -> list[Message]:
        return [message for each in self.blocks for message in each.messages]

    @property
    def tokens(self) -> int:
        """What the request takes, counted anew."""
        return self.prompt.taken + count_tokens(self.messages)

    @property
    def story(self) -> str:
        return f"{len(self.prompt.turns)} turns, {self.prompt.taken} tokens always sent, window {self.window}"


def rounds(
    view: View,
    window: int,
    history: Sequence[Turn],
    render: Callable[[Turn], tuple[Message, ...]] = function_calling.render,
    tools_tokens: int = 0,
    answer: Answer = a_summary,
) -> Iterator[Round]:
    """What the view shows, round by round, of a history that grows to this one."""
    context = LoopContext(TASK)
    prompt = Prompt(context, SYSTEM, tools_tokens)
    asked: list[CallModel] = []
    for place in range(len(history) + 1):
        prompt.refresh(render)
        before = len(asked)
        blocks = chosen(view, prompt, answer, asked)
        yield Round(prompt, window, blocks, tuple(asked[before:]))
        context.turns += [_named(turn, place + 1) for turn in history[place : place + 1]]


def _named(turn: Turn, number: int) -> Turn:
    """The turn with the ids that a loop gives its calls."""
    named = [call._replace(id=f"call_1_{number}_{place}") for place, call in enumerate(turn.calls, 1)]
    return turn._replace(calls=tuple(named))


def can_be_shown(
    turn: Turn, room: int, render: Callable[[Turn], tuple[Message, ...]] = function_calling.render
) -> bool:
    """Whether the turn fits into so many tokens, if it is cut."""
    return shortened(block(*render(_named(turn, 1))), room) is not None


def chosen(view: View, prompt: Prompt, answer: Answer, asked: list[CallModel]) -> tuple[Block, ...]:
    """The blocks that a view chose; what it asks the world first is added to ``asked``."""
    choice: Any = view(prompt)
    if not isinstance(choice, Generator):
        return tuple(choice)
    try:
        effect = next(choice)
        for _ in range(PATIENCE):
            asked.append(effect)
            effect = choice.send(Outcome(answer(len(asked)), 0.0))
    except StopIteration as ended:
        return tuple(ended.value)
    raise BrokenPromise(f"it asked the world {PATIENCE} times in one round and had not chosen yet")


def plain(number: int, tokens: int = 40) -> Turn:
    """A turn of about so many tokens, with its number in it."""
    return Turn(f"<thought {number}>", (ToolCall("look", {}),), (Observation("晴" * (tokens - 6)),))


# --- The promises -----------------------------------------------------------------------------


def every_promise_of_a_view(view_of: ViewOf) -> None:
    """It keeps what every view promises, whatever the window."""
    for window in WINDOWS:
        check_view.check_view(view_of(window))


def a_request_fits_the_window(view_of: ViewOf) -> None:
    """Whatever the history and the window, the whole request fits, with its head and its tools (X04)."""

    some = [plain(number, tokens) for number, tokens in enumerate((40, 90, 20, 60), 1)]
    for window in range(ENOUGH + 20, 300):
        for seen in rounds(view_of(window), window, some):
            expect(seen.tokens <= window, f"{seen.story}: the request takes {seen.tokens}")

    @settings(max_examples=30)
    @given(
        st.lists(turns(), max_size=5),
        st.integers(1, 900),
        renders,
        st.integers(0, 50),
        st.permutations(ANSWERS),
    )
    def fits(
        history: list[Turn], window: int, render: Any, tools_tokens: int, answers: Sequence[Any]
    ) -> None:
        answer = lambda number: answers[number % len(answers)]  # noqa: E731
        try:
            for seen in rounds(view_of(window), window, history, render, tools_tokens, answer):
                expect(seen.tokens <= window, f"{seen.story}: the request takes {seen.tokens}")
                for request in seen.asked:
                    size = count_tokens(request.messages)
                    expect(size <= window, f"{seen.story}: a request of its own takes {size}")
        except ContextOverflow:
            head = Prompt(LoopContext(TASK), SYSTEM, tools_tokens).taken
            room = window - head - ENOUGH
            small = all(can_be_shown(each, room, render) for each in history)
            told = f"a window of {window} has {window - head} tokens of room: enough for {history}, cut"
            expect(room < 0 or not small, told)

    fits()


def a_turn_that_cannot_be_shown_is_told(view_of: ViewOf) -> None:
    """Where the latest turn does not fit, not even cut, ContextOverflow says so: no model is asked blind."""
    many = Turn("", tuple(ToolCall("look", {}) for _ in range(200)), (Observation("晴" * 90),) * 200)
    for before in ([], [plain(number) for number in range(1, 20)]):
        try:
            *_, last = rounds(view_of(500), 500, [*before, many])
        except ContextOverflow as overflow:
            expect("500" in str(overflow), f"{overflow!r} does not name the window of 500")
            continue
        raise BrokenPromise(f"{last.story}: the latest turn cannot be shown, and nothing says so")


def a_head_that_is_too_large_is_told(view_of: ViewOf) -> None:
    """Where what is always sent is too large for the window by itself, ContextOverflow says so."""
    for window in (1, 10, count_tokens([Message("system", SYSTEM), Message("user", TASK)]) - 1):
        for history in ([], [plain(1)]):
            try:
                shown = [seen.tokens for seen in rounds(view_of(window), window, history)]
            except ContextOverflow as overflow:
                expect(str(window) in str(overflow), f"{overflow!r} does not name the window of {window}")
                continue
            raise BrokenPromise(f"a window of {window} is smaller than the head; it showed {shown} tokens")


def what_fits_is_shown_whole(view_of: ViewOf) -> None:
    """While everything fits into the window, everything is shown, and nobody is asked for anything."""
    for history in ([Turn("好", (ToolCall("", {}),), (Observation("好"),))], [plain(1), plain(2), plain(3)]):
        _all_is_shown(view_of, history)


def _all_is_shown(view_of: ViewOf, history: Sequence[Turn]) -> None:
    *_, whole = rounds(lambda prompt: prompt.turns, 0, history)
    try:
        for seen in rounds(view_of(whole.tokens), whole.tokens, history):
            all_of_it = tuple(seen.prompt.turns)
            expect(seen.blocks == all_of_it, f"{seen.story}, and all would fit: {seen.blocks}")
            expect(not seen.asked, f"{seen.story}, and all would fit: it asked for {seen.asked}")
    except ContextOverflow as overflow:
        raise BrokenPromise(f"a window of {whole.tokens} holds all of it, and: {overflow}") from None


def the_head_and_the_tools_take_room(view_of: ViewOf) -> None:
    """Working memory and tool definitions that grow leave less room for turns (EB11)."""
    window, context = 600, LoopContext(TASK)
    context.turns += [plain(number) for number in range(1, 20)]
    for tools_tokens in (0, 200, 400):
        for words in (0, 50, 100):
            context.working_memory["notes"] = "记" * words
            prompt = Prompt(context, SYSTEM, tools_tokens)
            prompt.refresh(function_calling.render)
            shown = chosen(view_of(window), prompt, a_summary, [])
            tokens = prompt.taken + sum(each.tokens for each in shown)
            expect(
                tokens <= window, f"tools of {tools_tokens}, notes of {words}: {tokens} of {window} tokens"
            )


def a_large_result_is_cut_and_marked(view_of: ViewOf) -> None:
    """A result too large for the window is shown cut, with its call, and a note says so (X04)."""
    for window in (150, 500, 5_000):
        seen, text = latest_of(view_of, window, ToolCall("look", {}), "晴" * 50_000)
        expect("晴" in text and "cut" in text, f"{seen.story}: of the large result it shows {text[:60]!r}")
        expect(seen.tokens > window * 0.7, f"{seen.story}: cut more than needed, to {seen.tokens}")


def latest_of(view_of: ViewOf, window: int, call: ToolCall, result: str) -> tuple[Round, str]:
    """What is shown after two small turns and one of this call and result; and what of the result is."""
    history = [plain(1), plain(2), Turn("看一看", (call,), (Observation(result),))]
    try:
        *_, seen = rounds(view_of(window), window, history)
    except ContextOverflow as overflow:
        raise BrokenPromise(f"a large turn would fit, if it were cut, and: {overflow}") from None
    results = [message.content for message in seen.messages if message.call_id == "call_1_3_1"]
    ids = [each.id for message in seen.messages for each in message.calls]
    expect(len(results) == 1 and "call_1_3_1" in ids, f"{seen.story}: the large turn is not shown")
    return seen, results[0]


def a_large_call_is_cut_and_marked(view_of: ViewOf) -> None:
    """A call whose arguments are too large for the window is shown with them cut, and with its result."""
    for value in ("晴" * 50_000, list(range(20_000))):
        seen, text = latest_of(view_of, 500, ToolCall("write_note", {"day": 1, "text": value}), "kept")
        expect(text == "kept", f"{seen.story}: the result was small, and is shown as {text!r}")
        (call,) = (call for message in seen.messages for call in message.calls if call.name == "write_note")
        expect(
            call.arguments["day"] == 1,
            f"{seen.story}: a small argument is shown as {call.arguments['day']!r}",
        )
        expect("cut" in str(call.arguments["text"]), f"{seen.story}: nothing says that the argument is cut")


def a_gap_is_marked(view_of: ViewOf) -> None:
    """Where turns are missing, something stands that says which: they are not silently gone (EB16)."""
    for seen in rounds(view_of(400), 400, [plain(number) for number in range(1, 30)]):
        shown = [int(each) for each in re.findall(r"<thought (\d+)>", repr(seen.messages))]
        missing = sorted(set(range(1, len(seen.prompt.turns) + 1)) - set(shown))
        if missing:
            words = " ".join(message.content for message in seen.messages if message.role != "tool")
            named = f"{missing[0]} to {missing[-1]}"
            expect(named in words, f"{seen.story}: turns {named} are missing, and nothing says so")


class Looked(list[Block]):
    """Turns that count how many of them are looked at."""

    looks = 0

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        self.looks += len(found) if isinstance(place, slice) else 1
        return found

    def __iter__(self) -> Iterator[Block]:
        self.looks += len(self)
        return super().__iter__()

    def __reversed__(self) -> Iterator[Block]:
        for place in range(len(self) - 1, -1, -1):
            yield self[place]


def a_round_costs_the_same_however_long_the_history(view_of: ViewOf) -> None:
    """It looks at no more turns in a long history than in a short one: a long run costs what it is long."""
    looked = []
    for length in (200, 2_000):
        context = LoopContext(TASK)
        view = view_of(1_000)
        prompt = Prompt(context, SYSTEM)
        most = 0
        for number in range(1, length + 1):
            context.turns.append(plain(number))
            prompt.refresh(function_calling.render)
            turns = prompt.turns = Looked(prompt.turns) if number > length - 50 else prompt.turns
            chosen(view, prompt, a_summary, [])
            most = max(most, getattr(turns, "looks", 0))
        looked.append(most)
    expect(looked[1] <= looked[0] + 1, f"of 200 turns it looked at {looked[0]}, of 2,000 at {looked[1]}")


def runs_share_nothing(view_of: ViewOf) -> None:
    """One view serves two runs in turn, and shows each what it would show it alone."""
    histories = [[plain(number, tokens) for number in range(1, 15)] for tokens in (40, 90)]
    alone = [[seen.blocks for seen in rounds(view_of(300), 300, history)] for history in histories]
    shared = view_of(300)
    pairs = zip(*(rounds(shared, 300, history) for history in histories), strict=True)
    together = [[seen.blocks for seen in run] for run in zip(*pairs, strict=True)]
    expect(together == alone, "two runs side by side are shown other turns than each by itself")


def a_window_of_nothing_is_refused(view_of: ViewOf) -> None:
    """A window below one token is a mistake of whoever wrote it, and is refused at once."""
    for window in (0, -1):
        try:
            view_of(window)
        except ValueError:
            continue
        raise BrokenPromise(f"a window of {window} tokens was accepted")


PROMISES: dict[str, Callable[[ViewOf], None]] = {
    promise.__name__: promise
    for promise in (
        every_promise_of_a_view,
        a_request_fits_the_window,
        a_turn_that_cannot_be_shown_is_told,
        a_head_that_is_too_large_is_told,
        what_fits_is_shown_whole,
        the_head_and_the_tools_take_room,
        a_large_result_is_cut_and_marked,
        a_large_call_is_cut_and_marked,
        a_gap_is_marked,
        a_round_costs_the_same_however_long_the_history,
        runs_share_nothing,
        a_window_of_nothing_is_refused,
    )
}


def check_window(view_of: ViewOf) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(view_of)
