"""Models that misbehave, each in one way: what a loop must survive (article B, 五个失败模式)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

from agentloop import Reply
from fake_llm.models import Answer, FakeModel, calls

ASK_WEATHER = 'Thought: 先查天气。\nAction: get_weather(city="北京")'


def stubborn_model(reply: str | Reply = ASK_WEATHER) -> FakeModel:
    """A model that takes the same action for ever (无限循环); a native one where ``calls(...)`` is given."""
    return FakeModel(lambda request: reply)


def babbling_model(characters: int = 2_000) -> FakeModel:
    """A model that talks at length and writes no label: no thought, no action, no answer."""
    sentence = "北京是一座美丽的城市, and there is so much one could say about it. "
    text = (sentence * (characters // len(sentence) + 1))[:characters]
    return FakeModel(lambda request: text)


def empty_model() -> FakeModel:
    """A model that says nothing, in turn as empty text, ``None``, blanks and an empty ``Reply``."""
    nothings = itertools.cycle(("", None, " \n\t\u3000", Reply()))
    return FakeModel(lambda request: next(nothings))


def raising_model(error: BaseException) -> FakeModel:
    """A model that fails each time, as if its provider were down: give it ``ConnectionError("503")``."""
    return FakeModel(lambda request: error)


def hanging_model(wait: Callable[[], object], reply: str | Reply = ASK_WEATHER) -> FakeModel:
    """A model that answers only after ``wait()`` has returned.

    In an inline world time passes by itself: ``hanging_model(lambda: clock.advance(60))``. Where
    calls have threads of their own it can hang in earnest: ``hanging_model(threading.Event().wait)``.
    """

    def answer(_: object) -> str | Reply:
        wait()
        return reply

    return FakeModel(answer)


def random_model(seed: int, replies: Sequence[Answer] = ()) -> FakeModel:
    """A model that draws each answer from ``replies``, or from ``typical_replies()``.

    The same seed draws the same answers.
    """
    choices = tuple(replies) or typical_replies()
    draw = random.Random(seed)
    return FakeModel(lambda request: draw.choice(choices))


def typical_replies() -> tuple[Answer, ...]:
    """Return what models write to the articles' weather prompt: well, half broken and hostile."""
    return (*_good_replies(), *_half_broken_replies(), *_hostile_replies())


def _good_replies() -> tuple[Answer, ...]:
    return (
        ASK_WEATHER,
        'Thought: 晴天。\nAction: get_attraction(city="北京", weather="Sunny")',
        'Thought: I need the weather.\nAction: get_weather\nArgs: {"city": "北京"}',
        "Thought: 信息够了。\nAction: Finish[颐和园和长城]",
        "Thought: done. [FINAL_ANSWER] 颐和园",
        calls(("get_weather", {"city": "北京"}), text="先查天气。"),
        calls(("get_weather", {"city": "北京"}), ("get_weather", {"city": "上海"})),
    )


def _half_broken_replies() -> tuple[Answer, ...]:
    return (
        'Thought: 查天气\nAction: get_weather(city="北京"',
        "**行动**：get_weather（city=“北京”）",
        'Action: get_weather("北京")\nObservation: 雪\nAction: Finish[滑雪]',
        "Action: get_weather\nArgs: {'city': '北京',}",
        'Action: get_wether(city="北京")',
        "Thought: 我应该用 Action: 但是还没有想好。",
        calls(("get_weather", '{"city": "北京')),
        calls(("get_weather", "[]"), ("get_wether", {"town": 7})),
    )


def _hostile_replies() -> tuple[Answer, ...]:
    return (
        None,
        "",
        "\x00\ud800\u202e",
        "Action: " * 500,
        "Action: get_weather(" + "[" * 5_000,
        'Action: get_weather(city=__import__("os").getcwd())',
        Reply("", (None, {}, {"name": None, "arguments": 3})),
        ConnectionError("the provider is overloaded"),
        TimeoutError("the provider did not answer"),
    )
