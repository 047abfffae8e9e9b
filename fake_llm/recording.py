"""Recordings: what a model was asked and what it answered, kept in a file and played back as a model.

Record one run with a real model, and its demo and its test run offline ever after (the pattern is
known as record and replay). The file is JSON Lines, an exchange a line, in UTF-8.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from enum import Enum
from os.path import commonprefix
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from agentloop import PASSING, CallModel, Limits, Message, Reply, ToolCall, Unavailable, Usage, as_reply
from fake_llm.models import ScriptEnded, snapshot

T = TypeVar("T")


class Raised(NamedTuple):
    """An exception that a model raised, as far as a file can keep it; ``passing`` if it may pass."""

    name: str
    message: str
    passing: bool = False
    retry_after: float | str | None = None

    def error(self) -> Exception:
        """Return an exception that reads the same, name and message, and may pass if that one might."""
        error: Exception = type(self.name, (Unavailable if self.passing else Exception,), {})(self.message)
        if isinstance(error, Unavailable):
            error.retry_after = self.retry_after
        return error


def _raised(error: Exception) -> Raised:
    when = error.retry_after if isinstance(error, Unavailable) else None
    return Raised(type(error).__name__, str(error), isinstance(error, (Unavailable, *PASSING)), when)


class Exchange(NamedTuple):
    """One request, and what came of it."""

    request: CallModel
    outcome: Reply | Raised


class Recording:
    """A model that passes each request on to another ``model`` and keeps what came of it in ``exchanges``."""

    def __init__(self, model: Callable[[CallModel], Any]) -> None:
        self._model = model
        self.exchanges: list[Exchange] = []

    def __call__(self, request: CallModel) -> Reply:
        """Return the model's ``Reply``.

        Raises what the model raises, and ``TypeError`` where it returns something else.
        """
        asked = snapshot(request)
        try:
            reply = as_reply(self._model(request))
            if not isinstance(reply, Reply):
                raise TypeError(reply.text)
        except Exception as error:
            self.exchanges.append(Exchange(asked, _raised(error)))
            raise
        self.exchanges.append(Exchange(asked, reply))
        return reply

    def save(self, path: str | Path) -> None:
        """Write the exchanges to a file, over what it held.

        What JSON has no word for is written as its ``repr``.
        """
        lines = [_written(exchange) for exchange in self.exchanges]
        # UTF-8 has no lone surrogates, but JSON has an escape for them, and this is how it looks.
        with open(path, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.writelines(line + "\n" for line in lines)

    @classmethod
    def load(cls, path: str | Path) -> Recording:
        """Read a recording back, to be played; it has no model, and answers nothing itself.

        Raises ``ValueError`` naming file and line where that line is not a whole exchange.
        """
        recording = cls(_no_model)
        for number, line in enumerate(Path(path).read_bytes().splitlines(), 1):
            try:
                recording.exchanges.append(_exchange(json.loads(line.decode("utf-8"))))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                raise ValueError(
                    f"{path}, line {number}: not an exchange of a recording, but torn or foreign "
                    f"({type(error).__name__}: {error}); record it anew"
                ) from error
        return recording


def _no_model(request: CallModel) -> Reply:
    raise LookupError("a loaded recording has no model to pass a request on to: use PlaybackModel(recording)")


class RequestDiffers(BaseException):
    """A playback was asked for something other than what was recorded.

    Not an ``Exception``, for the reason that ``ScriptEnded`` gives.
    """

    def __init__(self, number: int, recorded: str, asked: str) -> None:
        same = len(commonprefix([recorded, asked]))
        start = max(same - 30, 0)
        super().__init__(
            f"request {number} is not the one recorded: after {same} equal characters "
            f"the recording has ...{recorded[start : same + 60]!r}, "
            f"and it was asked ...{asked[start : same + 60]!r}. Play a recording back to the program and "
            "the prompts that it was made with, or record it anew"
        )


class PlaybackModel:
    """A model that answers the requests of a ``recording``, in order, with what was recorded.

    Messages, tools and stop texts must be the same; the time allowed may differ. Raises
    ``RequestDiffers`` for any other request, and ``ScriptEnded`` after the last one.
    """

    def __init__(self, recording: Recording) -> None:
        self._length = len(recording.exchanges)
        self._exchanges = deque(recording.exchanges)

    @property
    def remaining(self) -> tuple[Exchange, ...]:
        """The exchanges that nobody has asked for yet."""
        return tuple(self._exchanges)

    def __call__(self, request: CallModel) -> Reply:
        """Return the recorded reply, or raise what was raised."""
        if not self._exchanges:
            raise ScriptEnded(self._length, request)
        recorded, outcome = self._exchanges[0]
        if _key(recorded) != _key(request):
            number = self._length - len(self._exchanges) + 1
            raise RequestDiffers(number, _written(recorded), _written(request))
        self._exchanges.popleft()
        if isinstance(outcome, Raised):
            raise outcome.error()
        return outcome


# --- Values as JSON ---------------------------------------------------------------------------

#: What depends on the time left, and what is never shown to a model.
_NOT_KEPT = ("allowed", "deadline", "problem")


def as_data(value: Any, without: Collection[str] = ()) -> Any:
    """Turn a value of the loop into what JSON has words for.

    An enumeration becomes its name; a NamedTuple and ``Limits`` an object of their fields, but for those
    named in ``without``; anything that JSON has no word for becomes its ``repr``.
    """
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Limits):
        value = asdict(value)
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = {name: inner for name, inner in value._asdict().items() if name not in without}
    if isinstance(value, Mapping):
        return {_as_key(key): as_data(inner, without) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_data(inner, without) for inner in value]
    return value if value is None or isinstance(value, (str, int, float)) else repr(value)


def _as_key(key: object) -> str:
    return key if isinstance(key, str) else repr(key)


def _key(request: CallModel) -> str:
    # Escaped, a character is the same as the surrogate pair that stands for it: JSON cannot tell them apart.
    return json.dumps(as_data(request._replace(tokens=0), _NOT_KEPT))


def _written(value: Exchange | CallModel) -> str:
    return json.dumps(as_data(value, _NOT_KEPT), ensure_ascii=False)


def _exchange(data: Any) -> Exchange:
    request, outcome = data["request"], data["outcome"]
    messages = tuple(_message(message) for message in _of(list, request["messages"]))
    stop = tuple(_of(str, text) for text in _of(list, request["stop"]))
    asked = CallModel(messages, tuple(_of(list, request["tools"])), stop, _of(int, request["tokens"]))
    return Exchange(asked, _raised_before(outcome) if "name" in outcome else _reply(outcome))


def _message(data: Any) -> Message:
    calls = tuple(
        ToolCall(_of(str, call["name"]), call["arguments"], _of(str, call["id"])) for call in data["calls"]
    )
    return Message(_of(str, data["role"]), _of(str, data["content"]), calls, _of(str, data["call_id"]))


def _raised_before(data: Any) -> Raised:
    if not data["name"].isidentifier():
        raise ValueError(f"{data['name']!r} is no name of an exception")
    passing = _of(bool, data.get("passing", False))
    return Raised(data["name"], _of(str, data["message"]), passing, data.get("retry_after"))


def _reply(data: Any) -> Reply:
    usage = None if data["usage"] is None else Usage(**data["usage"])
    reply = as_reply(Reply(_of(str, data["text"]), tuple(_of(list, data["tool_calls"])), usage))
    if not isinstance(reply, Reply):
        raise ValueError(reply.text)
    return reply


def _of(kind: type[T], value: Any) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"{kind.__name__} was expected, not {value!r}")
    return value
