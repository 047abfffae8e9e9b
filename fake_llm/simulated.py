"""A model with simulated errors: it does the errands of ``errands.py``, and errs as models are known to.

What is simulated. The model reads a prompt, and nothing but the prompt: which form of reply it asks for (a
Thought and an Action, a plan, a judgement, a look back, or just an answer), what the task is, and what was
found so far. It cannot know who asks, or why. It then does the obvious thing, except that

- it knows no prices and no whereabouts, and where it has no tool to look, it makes them up
- it errs as ``Error`` says, each with the given chance
- as a judge it knows no more than it is shown, so it finds nothing wrong with an answer that reads well
  (models hardly mend their own answers without news from outside: Huang et al., 2024)
- a plan that it writes before it has looked names the places that it expects

What is not: language. It understands the sentences below and no others, it always keeps to the form that
is asked for, and the chances are chosen, not measured. So whatever is counted with it shows what follows
from these errors, not how often a real model makes them.

Whether an error happens is drawn from the seed and what is shown, never from a stream: the same request
has the same reply, whatever was asked before, and a request that shows something else draws anew.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from agentloop import CallModel
from fake_llm.models import FakeModel

SPAN = 2  # things held in mind at once without strain


class Error(Enum):
    """The ways to err, and how likely each is whenever there is occasion for it."""

    LOSES = 0.2, f"of the things in mind at once, each after the first {SPAN} is lost, or its sum is wrong"
    SLIPS = 0.01, "any other sum is wrong"
    WANDERS = 0.1, "deciding for itself where to go next, it goes somewhere else"
    MAKES_UP = 0.02, "before each step of a search, it stops and makes the answer up"
    OVERLOOKS = 0.4, "a condition that nobody names is overlooked, each time until somebody names it"
    VAGUE = 0.1, "looking back, it only finds that it should be more careful"

    def __init__(self, chance: float, words: str) -> None:
        self.chance, self.words = chance, words


def simulated_model(seed: int) -> FakeModel:
    """Make the model; each ``seed`` has its own good and bad luck."""
    return FakeModel(lambda request: _reply(_Luck(seed), _read(request)))


class _Luck(NamedTuple):
    """Draws that depend on the seed and on what they are about, and on nothing else."""

    seed: int

    def strikes(self, error: Error, *about: object) -> bool:
        return self._drawn(error.name, *about).random() < error.chance

    def pick(self, choices: Sequence[Any], *about: object) -> Any:
        return self._drawn(*about).choice(choices)

    def _drawn(self, *about: object) -> random.Random:
        return random.Random(repr((self.seed, *about)))


class _Shown(NamedTuple):
    """What a prompt shows: what is asked for, the task, and what is known or was seen since."""

    asked: str
    task: str
    seen: str


def _read(request: CallModel) -> _Shown:
    said = [message.content for message in request.messages if message.role == "system"]
    task, *seen = [message.content for message in request.messages if message.role != "system"] or [""]
    return _Shown("\n".join(said), task, "\n".join(seen))


def _reply(luck: _Luck, shown: _Shown) -> str:
    """Reply in the form that the prompt asks for."""
    for words, form in _FORMS.items():
        if words in shown.asked:
            return form(luck, shown)
    wanted = _next(luck, shown)
    return wanted if isinstance(wanted, str) else "我不知道。"


# --- A thought and an action, or just an answer -------------------------------------------------

#: Places it has heard of; of their prices and of what is lost there it knows nothing.
PLACES = ("颐和园", "北海", "景山", "鼓楼", "故宫", "天坛", "雍和宫")
#: What it knows by heart.
KNOWN = {"一年有几个月": "12", "水在摄氏几度结冰": "0", "中国的首都是哪里": "北京"}


class _Look(NamedTuple):
    """What it has to see before it can go on: a call."""

    call: str


def _thought(luck: _Luck, shown: _Shown) -> str:
    wanted = _next(luck, shown)
    if isinstance(wanted, _Look):
        return f"Thought: 还要去看一看。\nAction: {wanted.call}"
    return f"Thought: 可以作答。\nAction: Finish[{wanted}]"


def _next(luck: _Luck, shown: _Shown) -> _Look | str:
    """What to do next for the task: look at something, or answer."""
    for sentence, work in _WORK.items():
        found = re.search(sentence, shown.task)
        if found:
            return work(luck, shown, found)
    return "FAILED: 我不知道怎么做。"


def _search(luck: _Luck, shown: _Shown, found: re.Match[str]) -> _Look | str:
    """Follow a trail to its end, deciding before each step where to go."""
    thing, start = found.groups()
    made_up = f"{thing}在{luck.pick(PLACES, shown)}。"
    if "ask_at" not in shown.asked:
        return made_up
    place, arrived = _trail(shown.seen, thing)
    if arrived:
        return f"{thing}在{place}。"
    if luck.strikes(Error.MAKES_UP, shown):
        return made_up
    if luck.strikes(Error.WANDERS, shown):
        place = luck.pick(PLACES, shown)
    return _Look(f'ask_at(place="{place or start}", about="{thing}")')


def _trail(seen: str, thing: str) -> tuple[str, bool]:
    """The last place that is known of something, and whether it is there."""
    heard = re.findall(rf"(\w{{1,8}})的人说：{re.escape(thing)}(?:往(\w{{1,8}})去了|就在这里)", seen)
    place, onward = heard[-1] if heard else ("", "?")
    return onward.strip("?") or place, not onward


def _ask(luck: _Luck, shown: _Shown, found: re.Match[str]) -> _Look | str:
    """Ask at one place, which the task names."""
    place, thing = found.groups()
    heard = re.findall(rf"{place}的人说：.*", shown.seen)
    if heard or "ask_at" not in shown.asked:
        return heard[-1] if heard else f"{place}的人说：{thing}往{luck.pick(PLACES, shown)}去了。"
    return _Look(f'ask_at(place="{place}", about="{thing}")')


def _conclude(luck: _Luck, shown: _Shown, found: re.Match[str]) -> str:
    place, arrived = _trail(shown.seen, found[1])
    return f"{found[1]}在{place}。" if arrived else f"FAILED: 还没有找到{found[1]}。"


_ITEM = re.compile(r"(\w{1,8}) (\d{1,6}) 张")
_AND_BEFORE = "再加上前面的合计"


def _buy(luck: _Luck, shown: _Shown, found: re.Match[str]) -> _Look | str:
    """Look up each price that is in mind, then work out the sum in one go."""
    prices = dict(re.findall(r"(\w{1,8})门票 (\d{1,6}) 元一张", shown.seen))
    before = re.findall(r"合计 (\d{1,12}) 元", shown.seen) if _AND_BEFORE in shown.task else []
    total = int(before[-1]) if before else 0
    held = len(before[-1:])
    for place, count in _ITEM.findall(shown.task):
        held += 1
        if held > SPAN and luck.strikes(Error.LOSES, shown.task, place):
            continue
        if place not in prices:
            if "get_price" in shown.asked:
                return _Look(f'get_price(place="{place}")')
            prices[place] = luck.pick(("20", "35", "50"), shown.task, place)
        wrong = luck.strikes(Error.LOSES if held > SPAN else Error.SLIPS, shown, place)
        total += int(prices[place]) * int(count) + (10 if wrong else 0)
    return f"合计 {total} 元"


_PROGRAM = r"写一个函数 (\w+)\(([\w, ]*)\).*返回 (\w+)；否则返回 (\w+)"
#: What common sense would check of a day, once it thinks of it.
CONDITIONS = {
    "temperature": ("temperature > 0", "temperature < 35"),
    "wind": ("wind < 6",),
    "hour": ("hour < 16",),
}


def _conditions(luck: _Luck, shown: _Shown, found: re.Match[str]) -> list[str]:
    name, parameters = found[1], found[2].split(", ")
    sensible = [condition for each in parameters for condition in CONDITIONS.get(each, ())]
    return [
        condition
        for condition in sensible
        if condition in shown.seen or not luck.strikes(Error.OVERLOOKS, name, condition)
    ]


def _list_conditions(luck: _Luck, shown: _Shown, found: re.Match[str]) -> str:
    return "，".join(['weather == "Sunny"', *_conditions(luck, shown, found)])


def _write(luck: _Luck, shown: _Shown, found: re.Match[str]) -> str:
    """Write the program, with every condition that it thinks of or is told of."""
    name, parameters, outdoors, indoors = found.groups()
    test = " and ".join(['weather == "Sunny"', *_conditions(luck, shown, found)])
    return f'def {name}({parameters}):\n    return "{outdoors}" if {test} else "{indoors}"'


def _remember(luck: _Luck, shown: _Shown, found: re.Match[str]) -> str:
    return KNOWN[found[0]]


_LOST = r"(\w{1,8})不见了，最后有人在(\w{1,8})见过它"

#: The sentences that it understands, and what it does about each; the first that is found counts.
_WORK: dict[str, Callable[[_Luck, _Shown, re.Match[str]], _Look | str]] = {
    "|".join(KNOWN): _remember,
    _LOST: _search,
    r"在(\w{1,8})打听(\w{1,8})": _ask,
    r"说出(\w{1,8})在哪里": _conclude,
    _ITEM.pattern: _buy,
    rf"列出要检查的条件：{_PROGRAM}": _list_conditions,
    _PROGRAM: _write,
}


# --- A plan -------------------------------------------------------------------------------------


def _plan(luck: _Luck, shown: _Shown) -> str:
    """Write down the steps. Only what the prompt shows is known yet; the rest is expected."""
    task = shown.task.removeprefix("Task: ").partition("\n")[0]
    lost = re.search(_LOST, task)
    steps = [task]
    if lost:
        known = _trail(shown.task, lost[1])[0] or lost[2]
        expected = [luck.pick(PLACES, shown, number) for number in (1, 2)]
        steps = [f"在{place}打听{lost[1]}" for place in (known, *expected)] + [f"说出{lost[1]}在哪里"]
    elif _ITEM.search(task):
        first, *others = [f"{place} {count} 张多少元" for place, count in _ITEM.findall(task)]
        steps = [first, *(f"{other}，{_AND_BEFORE}" for other in others)]
    elif re.search(_PROGRAM, task):
        steps = [f"列出要检查的条件：{task}", task]
    return "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))


# --- A judgement, and a look back ---------------------------------------------------------------


def _judge(luck: _Luck, shown: _Shown) -> str:
    return "It reads well, and I see nothing that speaks against it.\nScore: 1"


def _look_back(luck: _Luck, shown: _Shown) -> str:
    """Say which condition was missing, where the reasons tell of a day on which one did not hold."""
    answer, _, reasons = shown.task.rpartition("Reasons: ")
    day = dict(re.findall(r"(\w+)=(-?\d{1,6})", reasons))
    missed = [condition for each in day for condition in CONDITIONS.get(each, ()) if condition not in answer]
    broken = [condition for condition in missed if not _holds(condition, day)]
    if not broken or luck.strikes(Error.VAGUE, shown):
        return "我意识到我太马虎了。我应该更仔细。"
    return f"我意识到我没有检查 {broken[0]}。我应该把它写进条件。"


def _holds(condition: str, day: dict[str, str]) -> bool:
    name, relation, bound = condition.split()
    return int(day[name]) < int(bound) if relation == "<" else int(day[name]) > int(bound)


#: The forms of reply, by the words with which a prompt asks for them.
_FORMS: dict[str, Callable[[_Luck, _Shown], str]] = {
    "You make plans": _plan,
    "You judge an answer": _judge,
    "You look back": _look_back,
    "pair of Thought and Action": _thought,
}
