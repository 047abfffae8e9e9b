"""Native function calling: the model answers with calls as data, and no text has to be parsed.

The model's side of the loop stays the same (article B, 更可靠的做法是 Function Calling): it decides,
the runtime acts. What differs is the shape. Each provider writes a call in its own way, and small
models get the details wrong, so ``read`` accepts the shapes in use and describes what it cannot
read. Arguments are never replaced by ``{}``: an empty text means no arguments, a broken one is a
problem that the model is told of, while the other calls of its batch still run.

A plain text without calls is the final answer (正常收敛): the opposite of the text protocol, where
it is a mistake. The protocol decides which it is; the loop does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agentloop import (
    Act,
    Finish,
    Kind,
    LoopContext,
    Message,
    Observation,
    Program,
    Reply,
    Toolbox,
    ToolCall,
    Turn,
    report,
)
from paradigms.literals import Unreadable, must_be_plain, must_end, read_json
from paradigms.prompt import View, think, whole_history

_WRAPPERS = ("function", "toolUse", "functionCall")  # the key under which a provider wraps name and arguments
_ARGUMENTS = ("arguments", "input", "args", "parameters")  # the key that holds the arguments
_RIGHT = "A call has a name, and its arguments are one JSON object."


def read(reply: Reply, tools: Toolbox) -> Act | Finish:
    """Read a reply: the calls it makes, or else its text as the final answer.

    Each element of ``reply.tool_calls`` becomes one ``ToolCall`` in its place; what cannot be read
    becomes one with a ``problem``. Never raises. Whether the tools exist and the arguments fit is
    for the toolbox to say; the ids are given by the loop, since providers repeat or omit theirs.
    """
    if reply.tool_calls:
        return Act(tuple([_call(raw, tools) for raw in reply.tool_calls]), reply.text or "")
    text = (reply.text or "").strip()
    if text:
        return Finish(text, text)
    problem = "The reply was empty. Call a tool, or give the final answer as plain text."
    return report(Observation(problem, False, Kind.EMPTY_REPLY))


def _call(raw: Any, tools: Toolbox) -> ToolCall:
    if isinstance(raw, ToolCall):
        return raw
    name = ""
    try:
        shape = _unwrapped(raw)
        name = _name(shape)
        return ToolCall(name, _arguments(shape, name, tools))
    except Unreadable as problem:
        return ToolCall(name, {}, problem=Observation(f"{problem} {_RIGHT}", False, Kind.MALFORMED))


def _unwrapped(raw: Any) -> Mapping[str, Any]:
    if not isinstance(raw, (dict, Mapping)):  # dict is asked for first: it is the fast case
        raise Unreadable(f"A call must be an object, not {type(raw).__name__}.")
    if "name" in raw:
        return raw
    for key in _WRAPPERS:
        inner = raw.get(key)
        if isinstance(inner, (dict, Mapping)):
            return inner
    return raw


def _name(shape: Mapping[str, Any]) -> str:
    name = shape.get("name")
    if isinstance(name, str) and (name := name.strip()):
        return name
    raise Unreadable(f"A call names no tool; its keys are {_listed(shape)}.")


def _arguments(shape: Mapping[str, Any], name: str, tools: Toolbox) -> Mapping[str, Any]:
    for key in _ARGUMENTS:
        if key in shape:
            return _decoded(shape[key])
    if name in tools.names and not tools.parameters(name):
        return {}  # nothing can be missing
    raise Unreadable(f"The call of {name} holds no arguments; its keys are {_listed(shape)}.")


def _decoded(arguments: Any) -> Mapping[str, Any]:
    """Return the arguments as a mapping. JSON text is decoded, twice if it was encoded twice.

    Only the whole is decoded: a value that looks like JSON stays the text that it is.
    """
    if isinstance(arguments, str):
        arguments = _from_json(arguments)
        if isinstance(arguments, str):
            arguments = _from_json(arguments)
    else:
        must_be_plain(arguments)
    if arguments is None:
        return {}
    if isinstance(arguments, (dict, Mapping)):
        return arguments
    raise Unreadable(f"The arguments are of type {type(arguments).__name__}, not an object.")


def _from_json(text: str) -> Any:
    """Read a text that holds one JSON value and nothing else; an empty one means no arguments."""
    text = text.strip()
    if not text:
        return {}
    value, end = read_json(text)
    must_end(text, end)
    return value


def _listed(shape: Mapping[str, Any]) -> str:
    return ", ".join(repr(key)[:40] for key in list(shape)[:10]) or "none"


def render(turn: Turn) -> tuple[Message, ...]:
    """Show a turn to the model: what it said and called, then a tool message for each result.

    A call without a name cannot be sent back to a provider. Its observation is shown as a user's
    message, and so are the warnings.
    """
    results: list[Message] = []
    reports: list[Message] = []
    for call, observation in zip(turn.calls, turn.observations, strict=True):
        if call.name:
            results.append(Message("tool", observation.text, (), call.id))
        else:
            reports.append(Message("user", f"Observation: {observation.text}"))
    for warning in turn.warnings:
        reports.append(Message("user", f"Warning: {warning}"))
    if turn.thought or results:
        calls = tuple([call for call in turn.calls if call.name]) if reports else turn.calls
        results.insert(0, Message("assistant", turn.thought, calls))
    return (*results, *reports)


#: What the model is told in words; the tools go out beside it, as schemas.
SYSTEM = """You solve a task step by step.

Call tools for what you do not know; you are then shown the result of each call.
When you know enough, or no tool can help, answer in plain text, without a call."""


def function_calling(
    tools: Toolbox, system: str = SYSTEM, view: View = whole_history
) -> Callable[[LoopContext], Program[Act | Finish]]:
    """Make the ``reason`` hook of a loop with native calls: ``AgentLoop(function_calling(tools))``.

    ``system`` is the system prompt; ``view`` chooses which finished turns the model is shown. No
    stop text is needed: a provider ends the reply after the calls.
    """
    return think(system, lambda reply: read(reply, tools), render, view, tools=tools.schemas())
