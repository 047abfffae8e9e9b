"""What ``think`` promises: plain functions of anything with its signature, used on ours and on a reader's.

``check_think(think)`` raises ``BrokenPromise`` with the shortest story that breaks a promise.
``PROMISES`` holds the same promises one by one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agentloop import (
    Act,
    CallModel,
    Finish,
    Kind,
    LoopContext,
    Message,
    Observation,
    Outcome,
    Reply,
    ToolCall,
    Turn,
    estimate_tokens,
)
from paradigms.prompt import Block, Prompt
from tests.check_machine import BrokenPromise
from tests.check_toolbox import expect

Think = Callable[..., Callable[[LoopContext], Any]]

SYSTEM = "You answer questions about the weather. {braces} and \ud800 are text too."
TASK = "北京今天天气怎么样？"
TOOLS = ({"name": "get_weather", "description": "天气", "parameters": {"type": "object", "properties": {}}},)
STOP = ("\nObservation:",)
REPLY = Reply("Thought: 先查天气。")


def read(reply: Reply) -> Act | Finish:
    """Stands for a protocol: any text is an answer."""
    return Finish(reply.text, reply.text)


def render(turn: Turn) -> tuple[Message, ...]:
    """Two messages for each turn: what was said and called, and what came of it."""
    call, observation = turn.calls[0], turn.observations[0]
    return (Message("assistant", turn.thought, (call,)), Message("tool", observation.text, (), call.id))


def turn(number: int) -> Turn:
    """The turn of that number, unlike any other."""
    call = ToolCall("get_weather", {"city": "北京", "day": number}, f"call_1_{number}_1")
    return Turn(f"<thought {number}>", (call,), (Observation(f"<result {number}>"),))


def rounds(
    think: Think, count: int = 4, memories: Iterable[Mapping[str, Any]] = (), **options: Any
) -> list[CallModel]:
    """The requests of so many rounds of one run; before each, its working memory is what ``memories`` say."""
    reason = think(SYSTEM, read, render, **options)
    context = LoopContext(TASK)
    memory = list(memories)
    requests = []
    for number in range(1, count + 1):
        if memory:
            context.working_memory.clear()
            context.working_memory.update(memory.pop(0))
        request, _ = ask(reason, context, number)
        requests.append(request)
        context.turns.append(turn(number))
    return requests


def ask(
    reason: Callable[[LoopContext], Any], context: LoopContext, number: int = 1, reply: Any = REPLY
) -> tuple[CallModel, Any]:
    """One round: the request that it makes, and the decision that it comes to."""
    program = reason(context)
    expect(
        hasattr(program, "send"), f"in round {number} the hook is no generator, so it cannot ask the model"
    )
    request = next(program)
    asked = type(request).__name__
    expect(asked == "CallModel", f"in round {number} it asked for {asked}, not CallModel")
    try:
        program.send(Outcome(reply, 0.0))
    except StopIteration as ended:
        return request, ended.value
    raise BrokenPromise(f"in round {number} it asked a second time: think is one model request")


def _said(messages: Iterable[Message], text: str) -> int:
    """How often a text stands in a prompt."""
    return sum(message.content.count(text) for message in messages)


# --- The promises -----------------------------------------------------------------------------


def system_prompt_and_task_come_first_and_once(think: Think) -> None:
    """Each request begins with the system prompt and the task, and neither is said again."""
    for number, request in enumerate(rounds(think), 1):
        opening = tuple(request.messages[:2])
        expect(
            opening == (Message("system", SYSTEM), Message("user", TASK)),
            f"request {number} begins with {opening}, not with the system prompt and the task",
        )
        for name, text in (("system prompt", SYSTEM), ("task", TASK)):
            said = _said(request.messages, text)
            expect(said == 1, f"request {number} says the {name} {said} times")


def history_stands_once_whole_and_in_order(think: Think) -> None:
    """Each finished turn is in the prompt once, with its result behind it, the oldest first (EA17)."""
    for number, request in enumerate(rounds(think), 1):
        due = [message for each in range(1, number) for message in render(turn(each))]
        for message in due:
            said = _said(request.messages, message.content)
            expect(said == 1, f"request {number} says {message.content} {said} times")
        shown = [message for message in request.messages if message.role in ("assistant", "tool")]
        expect(shown == due, f"request {number} shows the history as {shown}, and it is {due}")


def working_memory_is_shown_as_it_is_now(think: Think) -> None:
    """What is in working memory reaches the prompt, and what has left it does not (EA16)."""
    memories: list[dict[str, Any]] = [{"plan": "<go>"}, {"plan": "<stay>", "seen": 26}, {}, {"seen": 22}]
    requests = rounds(think, len(memories), memories)
    for number, (memory, request) in enumerate(zip(memories, requests, strict=True), 1):
        for text in ("plan", "seen", "<go>", "<stay>", "26", "22"):
            due = int(text in memory or text in map(str, memory.values()))
            said = _said(request.messages, text)
            expect(said == due, f"request {number} says {text!r} {said} times; working memory is {memory}")


def tools_and_stop_texts_are_sent_along(think: Think) -> None:
    """Each request names the tools, and the texts to stop at (EA18)."""
    for number, request in enumerate(rounds(think, tools=TOOLS, stop=STOP), 1):
        expect(tuple(request.tools) == TOOLS, f"request {number} names the tools {request.tools}")
        expect(tuple(request.stop) == STOP, f"request {number} stops at {request.stop}, not at {STOP}")


def announced_is_what_is_sent(think: Think) -> None:
    """The size that is announced is that of all that is sent: the budget is asked before, not after."""
    for tools in ((), TOOLS):
        defined = sum(estimate_tokens(json.dumps(tool, ensure_ascii=False)) for tool in tools)
        for number, request in enumerate(rounds(think, memories=({"plan": "看天气"},), tools=tools), 1):
            due = defined + tokens_of(request.messages)
            told = request.tokens
            expect(told == due, f"request {number} announces {told} tokens, and sends {due}")


def tokens_of(messages: Iterable[Message]) -> int:
    """The estimate for what is sent: contents, and the names and arguments of calls."""
    texts = [message.content for message in messages]
    texts += [f"{call.name}{call.arguments}" for each in messages for call in each.calls]
    return sum(map(estimate_tokens, texts))


def the_view_chooses_among_turns_alone(think: Think) -> None:
    """The view decides which turns are shown; system prompt, task and working memory are not its to drop."""

    def latest(prompt: Prompt) -> list[Block]:
        return prompt.turns[-1:]

    for number, request in enumerate(rounds(think, memories=[{"plan": "<go>"}], view=latest), 1):
        for text in (SYSTEM, TASK, "<go>"):
            said = _said(request.messages, text)
            expect(said == 1, f"with a view, request {number} says {text!r} {said} times")
        for each in range(1, number):
            said, due = _said(request.messages, f"<result {each}>"), int(each == number - 1)
            story = f"request {number} was to show the latest turn, and has turn {each} {said} times"
            expect(said == due, story)


def the_reply_is_read_and_a_failure_is_reported(think: Think) -> None:
    """A reply becomes the decision that ``read`` makes of it; a model that failed is reported, not read."""
    reason = think(SYSTEM, read, render)
    decision = ask(reason, LoopContext(TASK))[1]
    expect(decision == read(REPLY), f"a reply that was read as {read(REPLY)} became {decision}")
    down = Observation("The model failed: 503", False, Kind.MODEL_ERROR)
    decision = ask(reason, LoopContext(TASK), reply=down)[1]
    told = isinstance(decision, Act) and [call.problem for call in decision.calls] == [down]
    expect(told, f"the model failed, and the decision is {decision}: the next round does not hear of it")


def runs_share_nothing(think: Think) -> None:
    """One hook serves many runs, and no run sees what another did."""
    reason = think(SYSTEM, read, render)
    first = LoopContext(TASK)
    ask(reason, first)
    first.turns.append(turn(1))
    first.working_memory["plan"] = "<go>"
    before = ask(reason, first, 2)[0].messages
    other = ask(reason, LoopContext(TASK))[0].messages
    for text in ("<thought 1>", "<result 1>", "<go>"):
        expect(_said(other, text) == 0, f"the second run is told {text}, which belongs to the first")
    after = ask(reason, first, 2)[0].messages
    expect(after == before, "after the second run, the first one's prompt is another")


def a_turn_is_rendered_once(think: Think) -> None:
    """A finished turn does not change, so it is rendered once, however long the run."""
    rendered: list[str] = []

    def noting(finished: Turn) -> tuple[Message, ...]:
        rendered.append(finished.thought)
        return render(finished)

    reason, context = think(SYSTEM, read, noting), LoopContext(TASK)
    for number in range(1, 9):
        ask(reason, context, number)
        finished, made = len(context.turns), len(rendered)
        expect(made == finished, f"{finished} turns were finished, and turns were rendered {made} times")
        context.turns.append(turn(number))


PROMISES: dict[str, Callable[[Think], None]] = {
    promise.__name__: promise
    for promise in (
        the_reply_is_read_and_a_failure_is_reported,
        system_prompt_and_task_come_first_and_once,
        history_stands_once_whole_and_in_order,
        working_memory_is_shown_as_it_is_now,
        the_view_chooses_among_turns_alone,
        tools_and_stop_texts_are_sent_along,
        announced_is_what_is_sent,
        runs_share_nothing,
        a_turn_is_rendered_once,
    )
}


def check_think(think: Think) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(think)
