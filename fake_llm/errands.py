"""Errands in 北京: small tasks of four kinds, the tools for them, and a check of each answer.

The checks look at an answer alone and know the world; whoever solves a task has only the two tools, and
for the programs some of the tests. Programs are never run as Python: see ``small_language.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

from fake_llm.small_language import Refused, SmallFunction

# --- The world ----------------------------------------------------------------------------------

#: Where what was lost has been seen: the first place is known, each tells of the next, it is at the last.
TRAILS = {
    "小猫": ("颐和园", "北海", "景山", "鼓楼"),
    "雨伞": ("故宫", "天坛", "北海", "雍和宫", "鼓楼"),
    "风筝": ("景山", "颐和园", "雍和宫", "天坛", "北海", "故宫"),
}
#: What a ticket costs, in yuan.
PRICES = {"颐和园": 30, "北海": 10, "景山": 2, "鼓楼": 20, "故宫": 60, "天坛": 15, "雍和宫": 25}


def ask_at(place: str, about: str) -> str:
    """Ask the people at a place about something that was lost."""
    trail = TRAILS.get(about, ())
    if place not in trail:
        return f"{place}的人说：没见过{about}。"
    following = trail[trail.index(place) + 1 :]
    return f"{place}的人说：{about}" + (f"往{following[0]}去了。" if following else "就在这里。")


def get_price(place: str) -> str:
    """Tell what a ticket for a place costs."""
    if place not in PRICES:
        raise LookupError(f"nothing is known about {place!r}; the places known are {', '.join(PRICES)}")
    return f"{place}门票 {PRICES[place]} 元一张"


# --- The tasks ----------------------------------------------------------------------------------


class ErrandKind(Enum):
    """What a task is like (article A, 三种范式的选择), and what one kind is like that needs no loop."""

    PLAIN = "known by heart"
    EXPLORATORY = "exploratory (探索性、信息收集)"
    ITERATIVE = "to be refined (需要迭代精进)"
    STRUCTURED = "structured (结构化、可预测)"


class Case(NamedTuple):
    """One test of a program: what it is given, and what it has to return."""

    given: dict[str, Any]
    wanted: str


class Errand(NamedTuple):
    """A task, the check of its answer, and the tests that may be run before it is handed in."""

    kind: ErrandKind
    text: str
    is_right: Callable[[str], bool]
    tests: tuple[Case, ...] = ()


def problems(program: str, cases: tuple[Case, ...]) -> list[str]:
    """What each test that a program does not pass has to say; one that cannot be run passes none."""
    found = []
    for given, wanted in cases:
        called = f"called with {', '.join(f'{name}={value}' for name, value in given.items())}"
        try:
            returned = SmallFunction(program)(*given.values())
        except Refused as refusal:
            found.append(f"{called}: the program was refused: {refusal}")
            continue
        if returned != wanted:
            found.append(f"{called}: it must return {wanted}, and returned {returned}")
    return found


def errands() -> tuple[Errand, ...]:
    """All of them, three of each kind."""
    return (
        _known("一年有几个月？", "12"),
        _known("水在摄氏几度结冰？", "0"),
        _known("中国的首都是哪里？", "北京"),
        *(_lost(thing) for thing in TRAILS),
        _program("place", ("颐和园", "国家博物馆"), {"temperature": (-8, 38)}),
        _program("boat", ("北海划船", "老舍茶馆"), {"temperature": (-3, 40), "wind": (7,)}),
        _program("climb", ("爬长城", "看展览"), {"temperature": (-15, 36), "wind": (9,), "hour": (17,)}),
        _tickets({"故宫": 3, "天坛": 2, "颐和园": 4, "北海": 5}),
        _tickets({"雍和宫": 2, "景山": 7, "故宫": 4, "鼓楼": 3, "天坛": 6}),
        _tickets({"鼓楼": 5, "颐和园": 2, "北海": 3, "故宫": 2, "雍和宫": 4, "景山": 8}),
    )


def _known(question: str, right: str) -> Errand:
    return Errand(ErrandKind.PLAIN, question, lambda answer: answer.strip("。 ") == right)


def _lost(thing: str) -> Errand:
    start, *_, end = TRAILS[thing]
    text = f"{thing}不见了，最后有人在{start}见过它。它现在在哪里？"
    says_so = partial(re.fullmatch, rf"(({thing}|它)?(现在)?(就?在)?{end}(这里|那里)?[。.!！]?)")
    return Errand(ErrandKind.EXPLORATORY, text, lambda answer: says_so(answer.strip()) is not None)


def _tickets(counts: dict[str, int]) -> Errand:
    wanted = "、".join(f"{place} {count} 张" for place, count in counts.items())
    total = sum(PRICES[place] * count for place, count in counts.items())
    text = f"买门票：{wanted}。一共多少元？"
    return Errand(ErrandKind.STRUCTURED, text, lambda answer: re.findall(r"\d+", answer) == [str(total)])


#: A day on which nothing is against going out.
_FINE = {"weather": "Sunny", "temperature": 20, "wind": 2, "hour": 10}


def _program(name: str, places: tuple[str, str], against: dict[str, tuple[int, ...]]) -> Errand:
    """A program that sends people out on fine days; ``against`` are values that make a day another."""
    outdoors, indoors = places
    fine = {parameter: _FINE[parameter] for parameter in ("weather", *against)}
    tests = (
        Case(fine, outdoors),
        Case({**fine, "weather": "Rainy"}, indoors),
        *(Case({**fine, each: value}, indoors) for each, values in against.items() for value in values),
    )
    # Days that no test shows: still fine, or unfit in a way that a test of another value has shown.
    more = (Case({**fine, "temperature": 26}, outdoors), Case({**fine, "temperature": -20}, indoors))
    text = (
        f"写一个函数 {name}({', '.join(fine)})：晴天（Sunny）而且适合出门，返回 {outdoors}；"
        f"否则返回 {indoors}。函数体只有一个 return。"
    )
    return Errand(ErrandKind.ITERATIVE, text, lambda answer: not problems(answer, tests + more), tests)
