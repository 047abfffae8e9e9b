"""What a view promises: plain functions of one view, used on ours, on wrong ones and on a reader's.

A view may shorten, summarise and ask the world first. It may not tear a call from its result, hide
the latest turn, or touch what is not its own. ``check_view(view)`` raises ``BrokenPromise`` with the
shortest story that breaks a promise; ``PROMISES`` holds the same promises one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

from agentloop import LoopContext, Message, Observation, Outcome, Reply, ToolCall, Turn
from paradigms.function_calling import render
from paradigms.prompt import Block, Prompt, View, block
from tests.check_machine import BrokenPromise
from tests.check_think import SYSTEM, TASK
from tests.check_toolbox import expect

#: How long the history gets, in turns: longer than the window of any view.
LONGEST = 30
#: How many effects a view may ask for before it has chosen.
PATIENCE = 100


def turn(number: int) -> Turn:
    """A turn of one or two calls; every third brings a long result."""
    calls = tuple(
        ToolCall("get_weather", {"city": city}, f"call_1_{number}_{place}")
        for place, city in enumerate(("北京", "上海")[: 1 + number % 2], 1)
    )
    text = f"<result {number}>" + "晴" * (2_000 if number % 3 == 0 else 20)
    return Turn(f"<thought {number}>", calls, tuple(Observation(text) for _ in calls))


class Shown(NamedTuple):
    """What a view chose to show of a history of ``turns`` turns."""

    turns: int
    prompt: Prompt
    blocks: tuple[Block, ...]

    @property
    def messages(self) -> list[Message]:
        return [message for each in self.blocks for message in each.messages]

    @property
    def story(self) -> str:
        return f"after {self.turns} turns, of which it shows {self.numbers()}"

    @property
    def room(self) -> str:
        """How large the latest turn is, and how much stands beside it, in tokens."""
        latest, shown = self.prompt.turns[-1].tokens, sum(each.tokens for each in self.blocks)
        return f"it has {latest} tokens; {shown} are shown, and head and tools take {self.prompt.taken}"

    def numbers(self) -> list[int]:
        """The numbers of the turns whose calls are shown, in the order in which they are."""
        return [int(call.id.split("_")[2]) for call in self.calls() if call.id.endswith("_1")]

    def calls(self) -> list[ToolCall]:
        return [call for message in self.messages for call in message.calls]


def shown(view: View) -> Iterator[Shown]:
    """What the view shows round by round of one run, as in a real run."""
    context = LoopContext(TASK)
    context.working_memory["plan"] = "看天气"
    prompt = Prompt(context, SYSTEM)
    for length in range(LONGEST + 1):
        prompt.refresh(render)
        yield Shown(length, prompt, tuple(_settled(view(prompt), length)))
        context.turns.append(turn(length + 1))


def _settled(chosen: Any, length: int) -> Any:
    """The blocks that a view chose; where it asks the world first, it is told "a summary"."""
    if callable(chosen):
        raise BrokenPromise("it returned a function: give a finished view (keep_last(2000)), not its maker")
    if not isinstance(chosen, Generator):
        return chosen
    try:
        next(chosen)
        for _ in range(PATIENCE):
            chosen.send(Outcome(Reply("a summary"), 0.0))
    except StopIteration as ended:
        return ended.value
    raise BrokenPromise(f"after {length} turns it asked the world {PATIENCE} times and had not chosen yet")


# --- The promises -----------------------------------------------------------------------------


def it_shows_blocks(view: View) -> None:
    """A view returns blocks, from the first round on, in which there is no turn yet."""
    for seen in shown(view):
        strange = [each for each in seen.blocks if type(each) is not Block]
        expect(not strange, f"after {seen.turns} turns it returned {strange[:1]}, which is no Block")


def calls_and_results_stay_together(view: View) -> None:
    """Each result stands behind its call, and each call that is shown has its result (X01)."""
    for seen in shown(view):
        open_calls: list[str] = []
        for message in seen.messages:
            if message.role == "tool":
                answered = message.call_id
                expect(answered in open_calls, f"{seen.story}: result {answered} without its call")
                open_calls.remove(answered)
            else:
                expect(not open_calls, f"{seen.story}: call {open_calls[:1]} without its result")
                open_calls += [call.id for call in message.calls]
        expect(not open_calls, f"{seen.story}: call {open_calls[:1]} without its result")


def the_latest_turn_is_shown(view: View) -> None:
    """What the last action brought is in the next prompt, or the model asks for it again (B-10)."""
    for seen in shown(view):
        if seen.turns and seen.turns not in seen.numbers():
            raise BrokenPromise(f"{seen.story}: the latest is not among them, nor a part of it ({seen.room})")


def turns_keep_their_order(view: View) -> None:
    """Turns are shown in the order in which they happened, none of them twice."""
    for seen in shown(view):
        numbers = seen.numbers()
        expect(numbers == sorted(set(numbers)), f"{seen.story}: that is not the order in which they happened")


def history_and_head_are_not_touched(view: View) -> None:
    """A view chooses. It takes nothing from the history, and nothing of system prompt, task or memory."""
    for seen in shown(view):
        context = seen.prompt.context
        whole = [turn(number) for number in range(1, seen.turns + 1)]
        expect(context.turns == whole, f"{seen.story}: the turns of the run are no longer what they were")
        blocks = [block(*render(each)) for each in whole]
        expect(
            seen.prompt.turns == blocks, f"{seen.story}: the blocks of later rounds are no longer complete"
        )
        head = [message for each in seen.prompt.head for message in each.messages]
        opening = [Message("system", SYSTEM), Message("user", TASK)]
        expect(head[:2] == opening and len(head) == 3, f"{seen.story}: the head of the prompt is {head}")


def sizes_are_true(view: View) -> None:
    """A block that a view makes itself says how large it is, so that the budget is not deceived."""
    for seen in shown(view):
        for each in seen.blocks:
            due = block(*each.messages).tokens
            expect(
                each.tokens == due, f"{seen.story}: a block of {due} tokens says that it has {each.tokens}"
            )


PROMISES: dict[str, Callable[[View], None]] = {
    promise.__name__: promise
    for promise in (
        it_shows_blocks,
        the_latest_turn_is_shown,
        calls_and_results_stay_together,
        turns_keep_their_order,
        history_and_head_are_not_touched,
        sizes_are_true,
    )
}


def check_view(view: View) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(view)
