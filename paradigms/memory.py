"""Layers of memory behind the window (分层记忆, chapter 28): recalled lessons, notes, a shelf, a sub-agent.

What is shown of the history is a view's to say (``views.py``); what stands here can be asked for instead.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from agentloop import (
    AgentLoop,
    Do,
    EffectFailed,
    Interrupted,
    Kind,
    LimitReached,
    LoopContext,
    Observation,
    Program,
    ToolCall,
    call_tool,
    cut,
    estimate_tokens,
    on_one_line,
    settle,
)
from paradigms.arguments import require, require_function
from paradigms.store import Store, as_bytes

# --- Likeness ---------------------------------------------------------------------------------

_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # scripts without spaces
_RUN = re.compile(rf"[{_UNSPACED}]+|[^\W{_UNSPACED}]+")


def terms(text: str) -> Counter[str]:
    """The terms of a text, and how often each occurs: words, and pairs of neighbouring Chinese characters."""
    found: Counter[str] = Counter()
    for run in _RUN.findall(text.lower()):
        pairs = [run[place : place + 2] for place in range(len(run) - 1)]
        found.update(pairs if pairs and re.match(f"[{_UNSPACED}]", run) else [run])
    return found or Counter([text])  # a text without words is a term itself


def likeness(asked: str, texts: Sequence[str]) -> list[float]:
    """How like each text is to what is asked, from 0 to 1: the cosine of their term vectors.

    A term weighs the more the fewer texts hold it (inverse document frequency).
    """
    counts = [terms(text) for text in texts]
    holding = Counter(term for found in counts for term in found)

    def weighed(found: Counter[str]) -> dict[str, float]:
        vector = {
            term: count * (math.log((1 + len(texts)) / (1 + holding[term])) + 1)
            for term, count in found.items()
        }
        length = math.hypot(*vector.values())
        return {term: weight / length for term, weight in vector.items()}

    question = weighed(terms(asked))
    vectors = map(weighed, counts)
    return [sum(weight * vector.get(term, 0.0) for term, weight in question.items()) for vector in vectors]


LEAST = 0.05  # likeness; below it a text is taken to be about something else


def most_like(asked: str, named: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Of texts under names, those whose name or text is like what is asked: the best first.

    A name counts for as much as its text, however long that is; of equals the last comes first.
    """
    values = likeness(asked, [name for name, _ in named] + [text for _, text in named])
    best = [max(values[place], values[place + len(named)]) for place in range(len(named))]
    ranked = sorted(range(len(named)), key=lambda place: (-best[place], -place))
    return [named[place] for place in ranked if best[place] >= LEAST]


# --- The layers -------------------------------------------------------------------------------


class SimilarMemory:
    """A long-term memory on a store: the lessons most like a task, wherever their words stand."""

    def __init__(self, store: Store, most: int = 5) -> None:
        require("most", most, 1)
        self._store, self._most = store, most

    def keep(self, task: str, lesson: str) -> None:
        """Keep a lesson; one that is known already becomes the newest."""
        self._store.put("lessons", task, lesson)

    def recall(self, task: str) -> list[str]:
        """The lessons that are most like this task, or were taught by one like it; none twice."""
        found = [lesson for _, lesson in most_like(task, self._store.kept("lessons"))]
        return list(dict.fromkeys(found))[: self._most]


def memory_on(path: str | Path) -> SimilarMemory:
    """Open the long-term memory in a file, which a later run or another process opens again."""
    return SimilarMemory(Store(path))


NOTES = "notes (笔记)"
NOTE = 120  # characters of a note, as it is shown in passing


class Notebook:
    """Notes that a model keeps by itself, by topic. ``name`` is whose they are: a task's or a project's.

    ``write_note`` and ``read_notes`` are its tools; ``room`` is how much of the prompt the notes may
    take, in tokens.
    """

    def __init__(self, store: Store, name: str, room: int = 200) -> None:
        if not isinstance(name, str):
            raise TypeError(f"name says in words whose notes these are, not {name!r}")
        require("room", room, 200)
        self._store, self._shelf, self._room = store, f"notes of {name}", room

    def write_note(self, topic: str, text: str) -> str:
        """Write down what must not be forgotten; it replaces the note on the same topic."""
        if not topic.strip() or not text.strip():
            raise ValueError("a note has a topic and a text, and neither is empty")
        self._store.put(self._shelf, topic, text, instead=True)
        return f"noted: {on_one_line(topic, NOTE)}"

    def read_notes(self, about: str) -> str:
        """Read the notes on something in full."""
        found = most_like(about, self._store.kept(self._shelf))[:3]
        return "\n".join(f"{topic}: {text}" for topic, text in found) or "there is no note on this"

    def shown(self) -> str:
        """The notes in short, a line each: the newest, as many as there is room for, and how many more."""
        lines: list[str] = []
        notes = self._store.kept(self._shelf)
        for topic, text in reversed(notes):
            line = on_one_line(f"{topic}: {text}", NOTE)
            if estimate_tokens("\n".join([line, *lines])) > self._room - 20:  # of room for the line below
                break
            lines.insert(0, line)
        left = len(notes) - len(lines)
        return "\n".join(["", *([f"({left} more: read_notes finds them)"] if left else []), *lines])


def noting(
    reason: Callable[[LoopContext], Any], *, notebook: Notebook
) -> Callable[[LoopContext], Program[Any]]:
    """Wrap a ``reason`` hook: what is noted now stands in working memory, which no view can drop."""
    require_function("reason", reason)

    def reasoned(context: LoopContext) -> Program[Any]:
        try:
            notes = (yield Do("look at the notes", notebook.shown, repeatable=True)).value
        except EffectFailed as failure:
            notes = f"(cannot be read now: {failure})"
        context.working_memory[NOTES] = notes or "(none)"
        return (yield from settle(reason(context)))

    return reasoned


class Results:
    """Results too long to be shown. One is kept under a handle made from its text, so nothing stands twice.

    ``part`` is how many characters are shown at once; a result of up to two parts is shown whole.
    """

    def __init__(self, store: Store, part: int = 500) -> None:
        require("part", part, 200)
        self._store, self.part = store, part

    def keep(self, text: str) -> str:
        """Put a result on the shelf, and return its handle."""
        handle = f"result_{blake2b(as_bytes(text), digest_size=6).hexdigest()}"
        self._store.put("results", handle, text)
        return handle

    def read_result(self, handle: str, start: int = 0, find: str = "") -> str:
        """Read on in a kept result: from a position, or from where a text is next found after it."""
        kept = self._store.kept("results", handle)
        if not kept:
            raise LookupError(f"nothing is kept under {handle!r}: give a handle as it was shown")
        _, text = kept[-1]
        if not 0 <= start <= len(text):
            raise ValueError(f"start must be from 0 to {len(text)}, the length of {handle}, not {start}")
        place = text.find(find, start)
        if place < 0:
            raise LookupError(f"{on_one_line(find, 50)!r} is not found in {handle} after {start}")
        return self.shown(handle, text, place)

    def shown(self, handle: str, text: str, start: int = 0) -> str:
        """A part of a result, and where it goes on."""
        rest = text[start:]
        if len(rest) <= self.part:
            return rest
        shown = cut(rest, self.part).rpartition("... [cut: ")[0] or rest[: self.part]
        end = start + len(shown)
        more = f'read_result(handle="{handle}", start={end}) reads on, find="..." looks for a text'
        return f"{shown}... [{start} to {end} of {len(text)} characters; {more}]"


def shelved(
    act: Callable[[ToolCall], Any] = call_tool, *, results: Results
) -> Callable[[ToolCall], Program[Observation]]:
    """Wrap ``act``: of a result longer than two parts the model is shown one, and a handle (外部记忆).

    The toolbox must let long results through: ``Toolbox(..., max_characters=...)``.
    """
    require_function("act", act)

    def acted(call: ToolCall) -> Program[Observation]:
        seen: Observation = yield from settle(act(call))
        text = seen.text
        if len(text) <= 2 * results.part:
            return seen
        try:
            handle = (yield Do("keep a result", lambda: results.keep(text), repeatable=True)).value
        except (EffectFailed, LimitReached, Interrupted) as failure:
            return seen._replace(text=f"{cut(text, results.part)}\nThe rest could not be kept: {failure}")
        return seen._replace(text=results.shown(handle, text))

    return acted


def delegating(
    act: Callable[[ToolCall], Any] = call_tool, *, agents: Mapping[str, AgentLoop], longest: int = 500
) -> Callable[[ToolCall], Program[Observation]]:
    """Wrap ``act``: what the tools named in ``agents`` return is a task, and the agent of that name does it.

    It spends from the account of whoever called it, and its turns stay its own: its answer is the
    observation, cut after ``longest`` characters, or else the reason why it has none. The agents are those
    that ``agents`` holds now: none can be given itself, and they go as deep as they are written. Raises
    ``TypeError`` for what is no agent.
    """
    require_function("act", act)
    require("longest", longest, 1)
    agents = dict(agents)
    for name, agent in agents.items():
        if not isinstance(agent, AgentLoop):
            raise TypeError(f"agents maps names of tools to AgentLoops, and {name!r} to {agent!r}")

    def acted(call: ToolCall) -> Program[Observation]:
        seen: Observation = yield from settle(act(call))
        if call.name not in agents or not seen.ok:
            return seen
        result = yield from agents[call.name].run(seen.text)
        if result.answer is None:
            return Observation(cut(result.summary, longest), False, Kind.TOOL_ERROR)
        return Observation(cut(str(result.answer), longest))

    return acted
