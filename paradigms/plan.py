"""A plan, read out of whatever a model wrote: numbers in any style, bullets, fences, JSON.

How it is read, in three steps:

1. Drop what a reasoning model thought before it spoke. If JSON stands there, fenced or not, it is the plan.
2. Otherwise the plan is a list: lines that begin with a number, ``Step 1:``, 第一步 or a bullet, of which
   the outermost count; what is indented or stands right below belongs to the step above it.
3. A step needs the one before it, unless it names others: ``(needs 1, 2)``, ``(needs nothing)``.

A text that holds no plan is never an empty plan: ``UnreadablePlan`` says why. The same goes for a plan
that could not be followed, because a step is empty, or needs a step that does not come before it. The
tables of all the ways in which plans are numbered make this file long.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any, NamedTuple

from paradigms.literals import Unreadable, read_items, read_object


class PlanStep(NamedTuple):
    """One step: its number in the plan, from 1, what is to be reached, and which steps it needs first."""

    number: int
    goal: str
    needs: tuple[int, ...] = ()


Plan = tuple[PlanStep, ...]


class UnreadablePlan(Exception):
    """A text holds no plan that could be followed; the message says why."""


def spoken(text: str) -> str:
    """What a reasoning model said, without what it thought before it spoke."""
    return text.rpartition("</think>")[2].partition("<think>")[0]


def read_plan(text: str, longest: int = 12) -> Plan:
    """Read a plan of at most ``longest`` steps in any layout. Raises ``UnreadablePlan``."""
    said = spoken(text)
    if "\n" not in said:
        said = said.replace("\\n", "\n")  # some models write the escape instead of the line break
    written = _read_data(said) or _read_list(said)
    if not written:
        raise UnreadablePlan("There are no steps in it.")
    if len(written) > longest:
        raise UnreadablePlan(f"It has {len(written)} steps, and a plan may have {longest} at most.")
    return _linked(written)


class _Written(NamedTuple):
    """A step as the model wrote it: its own name for it, the goal, the names of what it needs."""

    label: str
    goal: str
    needs: tuple[str, ...] | None  # None where it says nothing of that


def _linked(written: list[_Written]) -> Plan:
    """Number the steps from 1, and let needs mean these numbers."""
    labels = [each.label for each in written]
    if len(set(labels)) < len(labels) or "" in labels:
        labels = [str(number) for number in range(1, len(written) + 1)]
    plan: list[PlanStep] = []
    before: dict[str, int] = {}
    for number, (_, goal, names) in enumerate(written, 1):
        if not goal:
            raise UnreadablePlan(f"Step {number} does not say what to do.")
        unknown = [name for name in names or () if name not in before]
        if unknown:
            raise UnreadablePlan(f"Step {number} needs {unknown[0][:40]!r}, which is no step before it.")
        default = (number - 1,) if number > 1 else ()
        needs = default if names is None else tuple(sorted({before[name] for name in names}))
        plan.append(PlanStep(number, goal, needs))
        before[labels[number - 1]] = number
    return tuple(plan)


# --- A plan as data ---------------------------------------------------------------------------

_FLAGS = re.IGNORECASE | re.MULTILINE
_DATA = re.compile(r"^[^\S\n]*+(?:[\"']?(?:plan|steps|计划|步骤)[\"']?\s*+[:：=]\s*+)?(?=[\[{])", _FLAGS)
_GOAL_KEYS = ("goal", "description", "task", "action", "step", "title", "目标", "步骤")
_LABEL_KEYS = ("id", "number", "step", "index")
_NEEDS_KEYS = ("needs", "depends_on", "dependencies", "requires", "依赖")
_LIST_KEYS = ("plan", "steps", "subgoals", "goals", "计划", "步骤")


def _read_data(text: str) -> list[_Written]:
    """Read the first JSON that is a plan; nothing, where there is none."""
    for start in _DATA.finditer(text):
        try:
            if text[start.end()] == "{":
                value: Any = read_object(text, start.end())[0]
            else:
                value = read_items(text, start.end())[0]
        except Unreadable:
            continue
        if isinstance(value, dict):
            value = _first(value, _LIST_KEYS, list)
        steps = [_read_item(item) for item in value or ()]
        if steps and None not in steps:
            return [step for step in steps if step is not None]
    return []


def _read_item(item: Any) -> _Written | None:
    if isinstance(item, str):
        return _read_step("", item)
    if not isinstance(item, dict) or (goal := _first(item, _GOAL_KEYS, str)) is None:
        return None
    label, needs = _first(item, _LABEL_KEYS, int | str), _first(item, _NEEDS_KEYS, list | int | str)
    step = _read_step("" if label is None else " ".join(_names(str(label))), goal)
    if needs is None:
        return step
    each = needs if isinstance(needs, list) else [needs]
    return step._replace(needs=tuple(name for need in each for name in _names(str(need))))


def _first(item: dict[str, Any], keys: tuple[str, ...], kind: Any) -> Any:
    return next((item[key] for key in keys if isinstance(item.get(key), kind)), None)


# --- A plan as a list -------------------------------------------------------------------------

_CHINESE = "[一二三四五六七八九十]{1,3}"
_MARK = re.compile(
    rf"""(?P<indent>[^\S\n]*+)(?:\#++[ ]*+)?
    (?P<bullet>[-*+•·–—●▪◦][^\S\n]++(?:\[[ xX✓]\][ ]*+)?)?(?:\*\*|__)?
    (?:
      (?:step|phase|步骤|阶段)[ ]*+\#?(?P<step>\d{{1,3}}|{_CHINESE})(?!\w)[*_ ]*+[.)、:：．–—-]?
    | 第[ ]?(?P<nth>\d{{1,3}}|{_CHINESE})步[*_ ]*+[,，、:：]?
    | [(（\[【]?(?P<number>\d{{1,3}})[*_ ]*+[.)）\]】、:：．]++(?!\d)
    | [(（]?(?P<chinese>{_CHINESE})[)）、.．]
    | (?P<circled>[①-⑳])
    )?+(?:\*\*|__)?[ ]*+[:：]?""",
    re.VERBOSE | re.IGNORECASE,
)
_LABELS = ("step", "nth", "number", "chinese", "circled")
_HEADING = re.compile(r"^[^\w\n]*+(?:(?:the |my )?plan|(?:the )?steps|计划|规划|步骤)[^\w\n]*+$", _FLAGS)
_NEEDS = re.compile(
    r"[(（\[【]\s*+(?:needs?|depends on|requires|依赖|需要)(?![a-z])"
    r"(?P<names>[^()（）\[\]【】]*+)[)）\]】]\W*+$",
    _FLAGS,
)
_BETWEEN = re.compile(r"[\s:：,，、;；&#]+|steps?\b|步骤?|第|and\b|和|与|及", _FLAGS)
_NOTHING = (["nothing"], ["none"], ["无"])


def _read_list(text: str) -> list[_Written]:
    headings = list(_HEADING.finditer(text))
    lines = (text[headings[-1].end() :] if headings else text).splitlines()
    starts = _starts(lines)
    written: list[tuple[str, list[str]]] = []
    touching = False  # the line before belongs to the last step
    for place, line in enumerate(lines):
        if place in starts:
            mark = starts[place]
            written.append((_label(mark), [line[mark.end() :]]))
            touching = True
        elif not line.strip() or line.lstrip().startswith("```"):
            touching = False
        elif written and (touching or line[0].isspace()):
            written[-1][1].append(line)
        else:
            touching = False
    return [_read_step(label, " ".join(goal)) for label, goal in written]


def _starts(lines: list[str]) -> dict[int, re.Match[str]]:
    """The outermost lines that begin a step; numbers go before bullets, which then are details."""
    marks = {place: mark for place, line in enumerate(lines) if (mark := _MARK.match(line))}
    marks = {place: mark for place, mark in marks.items() if mark["bullet"] or _label(mark)}
    outermost = min((len(mark["indent"]) for mark in marks.values()), default=0)
    marks = {place: mark for place, mark in marks.items() if len(mark["indent"]) <= outermost + 1}
    numbered = {place: mark for place, mark in marks.items() if _label(mark)}
    return numbered or marks


def _label(mark: re.Match[str]) -> str:
    return _numeral(next((mark[name] for name in _LABELS if mark[name]), ""))


def _numeral(text: str) -> str:
    """A number in plain digits: 3 for 03, 三 and ③. What is no number stays as it is."""
    if text.isdecimal():
        return str(int(text[-9:]))
    return f"{unicodedata.numeric(text, 0):g}" if len(text) == 1 and text.isnumeric() else text


def _names(text: str) -> tuple[str, ...]:
    """The steps that a text names: ``1`` and ``2`` for "step 1 and 步骤二"."""
    return tuple(_numeral(name) for name in _BETWEEN.sub(" ", text).split())


def _read_step(label: str, text: str) -> _Written:
    """Take what a step says it needs off its end."""
    goal = " ".join(text.replace("**", "").split())
    found = _NEEDS.search(goal)
    names = _names(found["names"]) if found else ()
    nothing = [name.casefold() for name in names] in _NOTHING
    if found is None or not (nothing or all(name.isdecimal() for name in names)):
        return _Written(label, goal, None)
    return _Written(label, goal[: found.start()].rstrip(), () if nothing else names)
