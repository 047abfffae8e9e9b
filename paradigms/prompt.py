"""Every round reassembles the input (每一轮都在重新组装输入, article B).

Nothing persists inside the model: each round is a new request, and whatever the model seems to
remember was put back by the runtime. The four parts of the article are put together here, anew
each round: the system prompt, the relevant history, the retrieved memory, the tool definitions.

A *view* decides which of the finished turns are shown. It picks whole blocks, one to a turn, so it
cannot tear a call from its result; and the system prompt and the task are not its to drop.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import GeneratorType
from typing import Any, NamedTuple

from agentloop import (
    Act,
    CallModel,
    Finish,
    LoopContext,
    Message,
    Observation,
    Program,
    Reply,
    Turn,
    count_tokens,
    estimate_tokens,
    report,
)
from paradigms.arguments import require


class Block(NamedTuple):
    """Messages that are shown together or not at all, and their estimated size in tokens."""

    messages: tuple[Message, ...]
    tokens: int


def block(*messages: Message) -> Block:
    """Make a block, counting its tokens once."""
    return Block(messages, count_tokens(messages))


class Prompt:
    """What a view may choose from: ``turns``, a block for each finished turn, the oldest first.

    ``head`` (the system prompt with the task, then the working memory) is shown before them,
    whatever the view chooses. ``context.private`` is where a view keeps what it must remember.
    ``tools_tokens`` is the size of the tool definitions, which are sent beside the messages.
    """

    __slots__ = ("context", "opening", "head", "turns", "tools_tokens")

    def __init__(self, context: LoopContext, system: str, tools_tokens: int = 0) -> None:
        self.context = context
        self.tools_tokens = tools_tokens
        self.opening = block(Message("system", system), Message("user", context.task))
        self.head: tuple[Block, ...] = (self.opening,)
        self.turns: list[Block] = []

    def refresh(self, render: Callable[[Turn], tuple[Message, ...]]) -> None:
        """Take in what is new since the last round: finished turns, and the working memory."""
        for turn in self.context.turns[len(self.turns) :]:
            self.turns.append(block(*render(turn)))
        memory = self.context.working_memory
        self.head = (self.opening, _memory_block(memory)) if memory else (self.opening,)

    @property
    def taken(self) -> int:
        """The tokens that are sent whatever the view chooses: of the head, and of the tool definitions."""
        return self.tools_tokens + sum([each.tokens for each in self.head])


def _memory_block(memory: Mapping[str, Any]) -> Block:
    lines = [f"{name}: {value}" for name, value in memory.items()]
    return block(Message("user", "\n".join(["Working memory (工作记忆):", *lines])))


#: Picks the blocks to show after the head; may be a program that asks the world first.
View = Callable[[Prompt], Sequence[Block] | Program[Sequence[Block]]]


def whole_history(prompt: Prompt) -> Sequence[Block]:
    """The view that shows every turn. Honest, simple, and larger each round."""
    return prompt.turns


def last_turns(count: int) -> View:
    """The view that shows the last ``count`` turns, however large (article A's 滑动窗口).

    Raises ``ValueError`` for a count below 1.
    """
    require("count", count, 1)
    return lambda prompt: prompt.turns[-count:]


def think(
    system: str,
    read: Callable[[Reply], Act | Finish],
    render: Callable[[Turn], tuple[Message, ...]],
    view: View = whole_history,
    tools: Sequence[Mapping[str, Any]] = (),
    stop: tuple[str, ...] = (),
) -> Callable[[LoopContext], Program[Act | Finish]]:
    """Make the ``reason`` hook that is one model request: assemble, ask, read the reply.

    ``system`` is the system prompt; ``read`` turns a reply into a decision; ``render`` turns a
    finished turn into the messages that the model is shown of it; ``tools`` are the schemas of
    native function calling; ``stop`` are texts at which the model should stop writing.
    """

    # Tool definitions are sent with every request, so they count in every request.
    tools_tokens = sum(estimate_tokens(json.dumps(schema, ensure_ascii=False)) for schema in tools)

    def reason(context: LoopContext) -> Program[Act | Finish]:
        prompt = context.private.get(reason)
        if prompt is None:
            prompt = context.private[reason] = Prompt(context, system, tools_tokens)
        prompt.refresh(render)
        shown = view(prompt)
        if isinstance(shown, GeneratorType):
            shown = yield from shown
        messages: list[Message] = []
        tokens = tools_tokens
        for block_messages, block_tokens in (*prompt.head, *shown):
            messages += block_messages
            tokens += block_tokens
        reply = (yield CallModel(tuple(messages), tools, stop, tokens)).value
        # A model that failed is told of like any other failure; the loop counts it.
        return report(reply) if isinstance(reply, Observation) else read(reply)

    return reason
