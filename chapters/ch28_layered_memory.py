"""What the window has no room for is kept where it can be asked for: notes, a store, another window.

Article A, 七、总结 (分层记忆); article B, 五个失败模式 (上下文爆炸), 三种处理策略. Covers A-142, B-41, B-53.

Chapters 25 to 27 chose what to show of the history, and what they left out was out of reach. Here nothing
has to be shown to be known: the inner loop has its working memory (工作记忆) alone, and behind it lie layers
that outlive the window, the run and the process (A-142). B-53 names three means for long tasks: compaction
is chapter 26, the other two, structured notes and sub-agents, are below; so is the external memory by which
B-41 keeps a verbose tool from filling the window.

===================  ==============================================================================
``Store``            texts on disk, in SQLite: other threads, processes and later runs find them
``SimilarMemory``    long-term memory (长时记忆): what is most like the task at hand is recalled by the
                     outer loop (chapter 10), whose ``Memory`` it is
``Notebook``         structured notes (结构化笔记): the model writes them by a tool, and ``noting`` shows
                     them in working memory in every round, whatever the view leaves out
``Results``          external memory (外部记忆): of a huge result the model sees the beginning and a
                     handle, by which it reads on where it wants to
``delegating``       a sub-agent (子代理) reads with a context of its own; the parent sees its answer
===================  ==============================================================================

Without them, a run forgets what its user said five rounds ago; one tool result spends the whole budget; a
loop that must read much holds all of it at once; and tomorrow's run begins by asking again.

Departures: the article's vector database is a table and a cosine here, since a few hundred lessons need no
more. The terms are words and, where a script does not space them, pairs of neighbouring characters; so
what says the same in other words is not found: embeddings would, and ``likeness`` is where to put them.
Notes and lessons reach the prompt (EA16). A sub-agent that ends without an answer is a failed observation;
a bug in one of its hooks is a bug. Five small mechanisms in one file make it long.

Exercises
---------
1. ``Forgetful`` below is a notebook as a first attempt writes it. Which promises does it break?
   ``python -m pytest --impl notebook=chapters/ch28_layered_memory.py:Forgetful``
2. Keep the term vectors in the file too, so that recalling reads only the lessons that share a term:
   ``python -m pytest --impl memory=my_memory.py:make``, where ``make(path)`` opens a memory on that file
3. Let the sub-agent keep its long results on the shelf of its parent, and hand over handles in its answer.
   What must the parent's prompt say? ``python -m pytest --impl sub_agent=my_guard.py:delegating``
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from hashlib import blake2b
from itertools import cycle, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agentloop import (
    AgentLoop,
    CallModel,
    Do,
    EffectFailed,
    Kind,
    Limits,
    LoopContext,
    Observation,
    Program,
    Result,
    Toolbox,
    ToolCall,
    World,
    call_text,
    call_tool,
    cut,
    drive,
    estimate_tokens,
    on_one_line,
    settle,
)
from chapters.telling import BOLD, GREEN, RED, Telling
from fake_llm import FakeModel, readable
from paradigms.outer_loop import Attempt, Memory, OuterLoop
from paradigms.planning import model_planner, require
from paradigms.prompt import last_turns
from paradigms.react import react

# --- The store --------------------------------------------------------------------------------

APPLICATION, VERSION = 0x4C6F6F70, 1  # what SQLite keeps in a file's header for its program: "Loop"
WAIT = 10.0  # seconds, for another thread or process that is writing


class BrokenStore(Exception):
    """A file that cannot serve as a store; the text names it, and says what it is instead."""


class Store:
    """Texts under names, on shelves, in one SQLite file: of each shelf the newest ``capacity``.

    A connection for each call makes it safe for threads and processes. Any text comes back as it was, lone
    surrogates too. Raises ``BrokenStore`` for a file that is torn, foreign, of another version or out of
    reach, which is then left as it is.
    """

    def __init__(self, path: str | Path, capacity: int = 1000) -> None:
        require("capacity", capacity, 1)
        self._path, self._capacity = Path(path), capacity
        with self._opened() as database:
            [first, *_] = database.execute("PRAGMA quick_check").fetchall()
            if first != ("ok",):
                raise BrokenStore(f"{path} is torn: {on_one_line(first[0])}")

    def put(self, shelf: str, name: str, text: str, instead: bool = False) -> None:
        """Keep a text under a name, as the newest; ``instead`` of all others of this name."""
        with self._opened() as database:
            if instead:
                database.execute("DELETE FROM kept WHERE shelf = ? AND name = ?", (shelf, _bytes(name)))
            entry = (shelf, _bytes(name), _bytes(text))
            database.execute("INSERT OR REPLACE INTO kept (shelf, name, text) VALUES (?, ?, ?)", entry)
            newest = "SELECT rowid FROM kept WHERE shelf = ? ORDER BY rowid DESC LIMIT ?"
            forget = f"DELETE FROM kept WHERE shelf = ? AND rowid NOT IN ({newest})"
            database.execute(forget, (shelf, shelf, self._capacity))

    def kept(self, shelf: str) -> list[tuple[str, str]]:
        """All that stands on a shelf, as (name, text), the oldest first."""
        with self._opened() as database:
            found = database.execute("SELECT name, text FROM kept WHERE shelf = ? ORDER BY rowid", (shelf,))
            return [(_text(name), _text(text)) for name, text in found]

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """One transaction, which nobody else's comes between."""
        try:
            with closing(sqlite3.connect(self._path, WAIT, isolation_level=None)) as database:
                database.execute("BEGIN IMMEDIATE")
                _recognise(database, self._path)
                yield database
                database.execute("COMMIT")
        except sqlite3.Error as error:
            raise BrokenStore(f"{self._path} cannot be used as a store: {error}") from error


def _recognise(database: sqlite3.Connection, path: Path) -> None:
    """Make an empty file ours. Raises ``BrokenStore`` for one that is somebody else's."""
    [application], [version], [tables] = (
        database.execute(asked).fetchone()
        for asked in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_schema")
    )
    if (application, version, tables, path.stat().st_size) == (0, 0, 0, 0):
        columns = "shelf TEXT, name BLOB, text BLOB, UNIQUE (shelf, name, text)"
        database.execute(f"CREATE TABLE kept ({columns})")
        database.execute(f"PRAGMA application_id = {APPLICATION}")
        database.execute(f"PRAGMA user_version = {VERSION}")
    elif application != APPLICATION:
        raise BrokenStore(f"{path} is a file of another program: give the store a path of its own")
    elif version != VERSION:
        raise BrokenStore(f"{path} is a store of version {version}, and this code reads version {VERSION}")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogatepass")


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


NOTES = "notes (笔记)"
NOTE = 120  # characters of a note, as it is shown in passing


class Notebook:
    """Notes that a model keeps by itself, by topic. ``name`` is whose they are: a task's or a project's.

    ``write_note`` and ``read_notes`` are its tools; ``room`` is how much of the prompt the notes may
    take, in tokens.
    """

    def __init__(self, store: Store, name: str, room: int = 200) -> None:
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
        handle = f"result_{blake2b(_bytes(text), digest_size=6).hexdigest()}"
        self._store.put("results", handle, text)
        return handle

    def read_result(self, handle: str, start: int = 0, find: str = "") -> str:
        """Read on in a kept result: from a position, or from where a text is next found after it."""
        text = dict(self._store.kept("results")).get(handle)
        if text is None:
            raise LookupError(f"nothing is kept under {handle!r}: give a handle as it was shown")
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

    def acted(call: ToolCall) -> Program[Observation]:
        seen: Observation = yield from settle(act(call))
        text = seen.text
        if len(text) <= 2 * results.part:
            return seen
        try:
            handle = (yield Do("keep a result", lambda: results.keep(text), repeatable=True)).value
        except EffectFailed as failure:
            return seen._replace(text=f"{cut(text, results.part)}\nThe rest could not be kept: {failure}")
        return seen._replace(text=results.shown(handle, text))

    return acted


def delegating(
    act: Callable[[ToolCall], Any] = call_tool, *, agents: Mapping[str, AgentLoop], longest: int = 500
) -> Callable[[ToolCall], Program[Observation]]:
    """Wrap ``act``: what the tools named in ``agents`` return is a task, and the agent of that name does it.

    It spends from the account of whoever called it, and its turns stay its own: its answer is the
    observation, cut after ``longest`` characters, or else the reason why it has none.
    """
    require("longest", longest, 1)

    def acted(call: ToolCall) -> Program[Observation]:
        seen: Observation = yield from settle(act(call))
        if call.name not in agents or not seen.ok:
            return seen
        result = yield from agents[call.name].run(seen.text)
        if result.answer is None:
            return Observation(cut(result.summary, longest), False, Kind.TOOL_ERROR)
        return Observation(cut(str(result.answer), longest))

    return acted


class Forgetful:
    """A first attempt at a notebook: whoever opens it again finds it empty, and all of it is always shown."""

    def __init__(self, store: Store, name: str, room: int = 200) -> None:
        self._notes: list[str] = []

    def write_note(self, topic: str, text: str) -> str:
        """Write down what must not be forgotten."""
        self._notes.append(f"{topic}: {text}")
        return "noted"

    def read_notes(self, about: str) -> str:
        """Read the notes on something in full."""
        return "\n".join(note for note in self._notes if about in note)

    def shown(self) -> str:
        """The notes, a line each."""
        return "\n".join(self._notes)


# --- The world: a client with a bad knee, a guide to four sights, and books that are long -----------

SIGHTS = {
    "长城": "八达岭一段要爬一个半小时，登上北八楼可以看得很远。",
    "颐和园": "清代的皇家园林，平路多，昆明湖占了四分之三的面积。",
    "故宫博物院": "明清两代的皇宫，七十多座宫殿，九千多间房屋。",
    "国家博物馆": "一百四十多万件藏品，一天看不完。",
}
PRICES = {"颐和园": 30, "故宫博物院": 60, "长城": 40}  # yuan
PRICE_PAGE = 4  # of each booklet
PAGES = 400  # of the handbook, in which the price of 颐和园 stands on the last page


def ask_client() -> str:
    """Ask the client what matters to them."""
    return "客户说：我膝盖不好，不爬山。"


def read_guide(sight: str) -> str:
    """Read what the guide says of a sight."""
    return f"{sight}：{SIGHTS[sight]}"


def read_page(booklet: str, page: int) -> str:
    """Read a page of the booklet about a sight."""
    price = f"{booklet}门票 {PRICES[booklet]} 元。" if page == PRICE_PAGE else ""
    return f"《{booklet}》第 {page} 页。{price}{SIGHTS[booklet] * 6}"


def read_handbook() -> str:
    """Read the handbook of all sights."""
    pages = [f"第 {page} 页。{text * 6}" for page, text in zip(range(1, PAGES), cycle(SIGHTS.values()))]
    return "\n".join([*pages, f"第 {PAGES} 页。颐和园门票 {PRICES['颐和园']} 元。"])


def research(task: str) -> str:
    """Let a sub-agent read, with a context of its own: it gets the task in words, and you its answer."""
    return task


# --- The models: they act on what they are shown, and on nothing else -------------------------------


def guide(request: CallModel) -> str:
    """Ask the client, read of one sight after the other, and recommend the most famous that will do."""
    system, shown = request.messages[0].content, readable(request.messages[2:])
    told = request.messages[-1].content.removeprefix("Observation: ")
    if told.startswith("客户说") and "write_note(" in system:
        return f'Thought: 这一点不能忘。\nAction: write_note(topic="客户的要求", text="{told}")'
    read = [sight for sight in SIGHTS if f'read_guide(sight="{sight}")' in shown]
    if not read and "客户说" not in shown and "ask_client(" in system:
        return "Thought: 先问客户。\nAction: ask_client()"
    unread = [*SIGHTS, None][[*SIGHTS].index(read[-1]) + 1 if read else 0]
    if unread:
        return f'Thought: 看看{unread}。\nAction: read_guide(sight="{unread}")'
    choice = next(sight for sight in SIGHTS if sight != "长城" or "不爬山" not in shown)
    return f"Thought: 都看过了。\nAction: Finish[推荐{choice}]"


def librarian(window: int) -> FakeModel:
    """Make a model that looks up what tickets cost, page by page; it fails where its window is too small."""

    def look_up(request: CallModel) -> str | Exception:
        if request.tokens > window:
            return ValueError(f"{request.tokens} tokens are more than the context window of {window}")
        system, task, *seen = request.messages
        found = dict(re.findall(r"(\w+)门票 (\d+) 元", readable(seen)))
        wanted = [booklet for booklet in PRICES if f"《{booklet}》" in task.content]
        missing = [booklet for booklet in wanted if booklet not in found]
        if not missing:
            prices = "，".join(f"{booklet}门票 {found[booklet]} 元" for booklet in wanted)
            return f"Thought: 查到了。\nAction: Finish[{prices}]"
        if "research(" in system.content:
            return f'Thought: 交给助手。\nAction: research(task="《{missing[0]}》里，门票多少钱？")'
        page = readable(seen).count(f'read_page(booklet="{missing[0]}"') + 1
        return f'Thought: 翻下一页。\nAction: read_page(booklet="{missing[0]}", page={page})'

    return FakeModel(look_up)


def searcher(request: CallModel) -> str:
    """Look up one price in the handbook: read it whole, or search it where its handle says how."""
    told = request.messages[-1].content
    if price := re.search(r"颐和园门票 \d+ 元", told):
        return f"Thought: 查到了。\nAction: Finish[{price[0]}]"
    if handle := re.search(r'read_result\(handle="(\w+)"', told):
        return f'Thought: 太长，找门票。\nAction: read_result(handle="{handle[1]}", find="颐和园门票")'
    return "Thought: 查手册。\nAction: read_handbook()"


# --- The story ----------------------------------------------------------------------------------

TASK = "问清客户的要求，看完四个景点，推荐一个"
PRICE = "查手册：颐和园的门票多少钱？"
BOOKLETS = "《颐和园》《故宫博物院》《长城》三本小册子里，门票各多少钱？"


def demo(tell: Telling) -> None:
    """What the client said is forgotten, and noted; a result too long; three booklets; and the next day."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "memory.sqlite"
        _notes(tell, Store(path))
        _long_result(tell, Store(path))
        _sub_agents(tell)
        _next_day(tell, path)


def _notes(tell: Telling, store: Store) -> None:
    view, tools, model = last_turns(2), Toolbox([ask_client, read_guide]), FakeModel(guide)
    tell(f"task: {TASK}")
    tell.heading("A window of two turns, and nothing behind it")
    result = drive(AgentLoop(react(tools, view)).run(TASK), World(model, tools, inline=True))
    rounds(tell, result, model)
    tell("When the model decided, what the client had said was out of its window.", RED)

    tell.heading("The same window, and a notebook (结构化笔记)")
    notebook, model = Notebook(store, TASK), FakeModel(guide)
    tools = Toolbox([ask_client, read_guide, notebook.write_note, notebook.read_notes])
    loop = AgentLoop(noting(react(tools, view), notebook=notebook))
    result = drive(loop.run(TASK), World(model, tools, inline=True))
    rounds(tell, result, model)
    tell(
        "The note stood in working memory, where no view can drop it. The last prompt, after the task:", GREEN
    )
    tell(readable(model.requests[-1].messages[2:]))


def _long_result(tell: Telling, store: Store) -> None:
    results = Results(store, part=200)
    tools = Toolbox([read_handbook, results.read_result], max_characters=100_000)
    for title, act in (
        ("A handbook that goes into the prompt (上下文爆炸)", call_tool),
        ("The same handbook on a shelf (外部记忆)", shelved(call_tool, results=results)),
    ):
        tell.heading(title)
        model = FakeModel(searcher)
        result = drive(AgentLoop(react(tools), act).run(PRICE), World(model, tools, inline=True))
        rounds(tell, result, model)
    tell(f"\nWhat the model saw of the handbook, {len(read_handbook())} characters long:")
    tell(model.requests[1].messages[-1].content)


WINDOW = 1200  # tokens


def _sub_agents(tell: Telling) -> None:
    reading, asking, limits = Toolbox([read_page]), Toolbox([research]), Limits(rounds=20, failures=1)
    reader = AgentLoop(react(reading), limits=limits)
    tell.heading(f"Three booklets, and a window that holds {WINDOW} tokens")
    alone, roomy = librarian(WINDOW), librarian(limits.tokens)
    rounds(tell, drive(reader.run(BOOKLETS), World(alone, reading, inline=True)), alone)
    drive(reader.run(BOOKLETS), World(roomy, reading, inline=True))

    tell.heading("The same booklets, each read by a sub-agent with a window of its own (子代理)")
    act = delegating(call_tool, agents={"research": reader})
    loop = AgentLoop(react(asking), act, limits=limits, watch=tell.watch("parent", limits))
    model = librarian(WINDOW)
    drive(loop.run(BOOKLETS), World(model, Toolbox([read_page, research]), inline=True))
    parent = [request for request in model.requests if request.messages[1].content == BOOKLETS]
    agents = [request for request in model.requests if request.messages[1].content != BOOKLETS]
    tell.table(
        [
            ("tokens sent", "requests", "largest", "in all"),
            sent("alone, failed", alone.requests),
            sent("alone, in a window that is large enough", roomy.requests),
            sent("parent", parent),
            sent("its sub-agents", agents),
        ]
    )


def _next_day(tell: Telling, path: Path) -> None:
    tell.heading("Days later, with new objects on the same file (长时记忆)")
    notebook = Notebook(Store(path), "the first day")
    with_client = Toolbox([ask_client, read_guide, notebook.write_note])
    alone, weekend = Toolbox([read_guide]), "周末在北京玩，去哪里？"
    tell.table(
        [
            ("", "task", "recalled", "answer"),
            ("first day", *pursued("安排北京一天，先问客户", SimilarMemory(Store(path)), with_client)),
            ("later, without", *pursued(weekend, None, alone)),
            ("later, with it", *pursued(weekend, SimilarMemory(Store(path)), alone)),
        ]
    )
    tell("\nWhat else brings it to mind, and what does not:")
    asked = ("膝盖疼，走路多不多？", "写一个排序函数", "腿脚不方便")
    tell.table((task, "，".join(SimilarMemory(Store(path)).recall(task)) or "-") for task in asked)
    tell("The last one should have: no term is the same. Embeddings would have found it.", RED)


def pursued(task: str, memory: Memory | None, tools: Toolbox) -> tuple[str, str, str]:
    """Let the outer loop, which keeps long-term memory, run an inner loop that has working memory alone."""
    outer = OuterLoop(AgentLoop(react(tools)), model_planner(tools), memory=memory, learn=what_was_noted)
    pursuit = drive(outer.run(task), World(FakeModel(guide), tools, inline=True))
    return task, "，".join(pursuit.recalled) or "-", pursuit.answer


def what_was_noted(attempt: Attempt) -> str:
    """What a run leaves to later ones: the notes that its model took."""
    calls = [call for turn in attempt.result.turns for call in turn.calls if call.name == "write_note"]
    return "\n".join(call.arguments["text"] for call in calls)


def rounds(tell: Telling, result: Result, model: FakeModel) -> None:
    """A run in a line for each round: what was sent, in tokens, what was done, and what was seen."""
    lines = [("sent", "does", "sees")]
    for request, turn in zip_longest(model.requests, result.turns):
        does = ", ".join(call_text(call) for call in turn.calls if not call.problem)
        sees = "; ".join(on_one_line(seen.text, 50) for seen in turn.observations)
        lines.append((str(request.tokens) if request else "", on_one_line(does, 50), sees))
    tell.table(lines)
    if result.answer is None:
        tell(result.summary.partition("\n")[0], RED)
    else:
        tell(f"answer: {result.answer}", BOLD)


def sent(name: str, requests: Sequence[CallModel]) -> tuple[object, ...]:
    """A row of the table: how many requests there were, the largest, and all of them, in tokens."""
    sizes = [request.tokens for request in requests]
    return name, len(sizes), max(sizes), sum(sizes)
