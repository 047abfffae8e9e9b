"""Pretend models: a script or a set of rules answers in place of an LLM.

A real model is slow, costs money and never says the same thing twice. A script has none of these
faults, so a loop can be watched and tested with it: the same run, every time (the pattern is a
test double; mini-swe-agent ships one like it).
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agentloop import CallModel, Message, Reply, Usage, call_text, on_one_line

#: What a model may be told to say: text, a whole ``Reply``, nothing, an exception to raise, or a
#: function from the request to one of these.
Answer = str | Reply | None | BaseException | Callable[[CallModel], Any]


def calls(*wanted: tuple[str, Mapping[str, Any] | str], text: str = "", usage: Usage | None = None) -> Reply:
    """Write a reply with native function calls: ``calls(("get_weather", {"city": "北京"}))``.

    Arguments become JSON text, as providers send them; arguments given as text stay as they are,
    so that broken JSON can be written too.
    """
    return Reply(
        text,
        tuple(
            {"id": f"call_{number}", "name": name, "arguments": _json(arguments)}
            for number, (name, arguments) in enumerate(wanted, 1)
        ),
        usage,
    )


def _json(arguments: Mapping[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(dict(arguments), ensure_ascii=False)


def readable(messages: Iterable[Message]) -> str:
    """Return a prompt as a person would read it: each message under the name of its role."""
    return "\n\n".join(_readable(message) for message in messages)


def _readable(message: Message) -> str:
    speaker = f"{message.role} ({message.call_id})" if message.call_id else message.role
    return "\n".join([f"{speaker}: {message.content}", *(f"-> {call_text(call)}" for call in message.calls)])


def snapshot(request: CallModel) -> CallModel:
    """Return the request as it is now: whoever asked may go on adding to its lists."""
    messages, tools, stop = tuple(request.messages), tuple(request.tools), tuple(request.stop)
    return request._replace(messages=messages, tools=tools, stop=stop)


class FakeModel:
    """A model that says what ``respond(request)`` tells it, and remembers what it was asked.

    ``requests`` are the requests it saw, as they were at that time. An exception that it is told to
    say, it raises. Its replies tell no usage unless they are told to, and the account estimates it.
    """

    def __init__(self, respond: Callable[[CallModel], Answer]) -> None:
        self._respond = respond
        self.requests: list[CallModel] = []

    @property
    def prompts(self) -> list[str]:
        """The prompts it saw, each as readable text."""
        return [readable(request.messages) for request in self.requests]

    def __call__(self, request: CallModel) -> Any:
        """Answer a request with a ``Reply``, or with whatever else it was told to return."""
        seen = snapshot(request)
        self.requests.append(seen)
        answer = self._respond(seen)
        return _said(answer(seen) if callable(answer) else answer)


def _said(answer: Any) -> Any:
    if isinstance(answer, BaseException):
        raise answer.with_traceback(None)  # an exception raised again and again keeps every old frame
    return Reply(answer) if isinstance(answer, str) else answer


class ScriptEnded(BaseException):
    """A model was asked once more than its script has replies.

    Not an ``Exception``: a loop takes those for a model that fails, and carries on; a script that
    is too short is a mistake of whoever wrote it, and must reach them.
    """

    def __init__(self, replies: int, request: CallModel) -> None:
        super().__init__(replies, request)  # with which it is made again where it travels to another process

    def __str__(self) -> str:
        replies, request = self.args
        return (
            f"the script has ended: it holds {replies} replies, and the model was asked once more. "
            f"The last message was {on_one_line(_latest(request))!r}"
        )


def _latest(request: CallModel) -> str:
    return request.messages[-1].content if request.messages else ""


class ScriptedModel(FakeModel):
    """A model that gives the replies of a script, one for each request, in order.

    Raises ``ScriptEnded`` when it is asked once more, and ``TypeError`` for a script that is a
    single text.
    """

    def __init__(self, replies: Iterable[Answer]) -> None:
        if isinstance(replies, (str, Reply)):
            raise TypeError(f"a script is a list of replies, even of a single one: [{replies!r}]")
        super().__init__(self._next)
        self._script = deque(replies)
        self._length = len(self._script)

    @property
    def remaining(self) -> tuple[Answer, ...]:
        """The replies that nobody has asked for yet."""
        return tuple(self._script)

    def _next(self, request: CallModel) -> Answer:
        if not self._script:
            raise ScriptEnded(self._length, request)
        return self._script.popleft()


#: Words to look for in the latest message, or a test of the whole request; and what to say then.
Rule = tuple[str | Callable[[CallModel], bool], Answer]


class RuleModel(FakeModel):
    """A model that reacts to what it is shown: the first rule that applies says what it answers.

    A rule's words apply where the latest message contains them. Where no rule applies the model
    says ``otherwise``.
    """

    def __init__(self, rules: Sequence[Rule], otherwise: Answer) -> None:
        super().__init__(self._choose)
        self._rules, self._otherwise = tuple(rules), otherwise

    def _choose(self, request: CallModel) -> Answer:
        latest = _latest(request)
        for applies, answer in self._rules:
            if applies in latest if isinstance(applies, str) else applies(request):
                return answer
        return self._otherwise
