"""What the window has no room for is kept where it can be asked for: notes, a store, another window.

Article A, 七、总结 (分层记忆); article B, 五个失败模式 (上下文爆炸), 三种处理策略. Covers A-142, B-41, B-53.

Chapters 25 to 27 chose what to show of the history, and what they left out was out of reach. Here nothing
has to be shown to be known: the inner loop has its working memory (工作记忆) alone, and behind it lie layers
that outlive the window, the run and the process (A-142). B-53 names three means for long tasks: compaction
is chapter 26, the other two, structured notes and sub-agents, are here; so is the external memory by which
B-41 keeps a verbose tool from filling the window. Each is a few lines of ``paradigms/memory.py``
(the store: ``paradigms/store.py``).

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
a bug in one of its hooks is a bug.

Exercises
---------
1. ``Forgetful`` below is a notebook as a first attempt writes it. Which promises does it break?
   ``python -m pytest --impl notebook=chapters/ch28_layered_memory.py:Forgetful``
2. Keep the term vectors in the file too, so that recalling reads only the lessons that share a term:
   ``python -m pytest --impl memory=my_memory.py:make``, where ``make(path)`` opens a memory on that file
3. Let the sub-agent keep its long results on the shelf of its parent, and hand over handles in its answer.
   What must the parent's prompt say? ``python -m pytest --impl sub_agent=my_delegating.py:delegating``
4. Show the end of a huge result beside its beginning: ``python -m pytest --impl shelf=my_shelf.py:shelved``.
   Then keep texts in files of their own instead of in SQLite:
   ``python -m pytest --impl store=my_store.py:Store``
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import cycle, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

from agentloop import (
    AgentLoop,
    CallModel,
    Limits,
    Result,
    Toolbox,
    World,
    call_text,
    call_tool,
    drive,
    on_one_line,
)
from chapters.telling import BOLD, GREEN, RED, Telling
from fake_llm import FakeModel, readable
from paradigms.memory import Notebook, Results, delegating, memory_on, noting, shelved
from paradigms.outer_loop import Attempt, Memory, OuterLoop
from paradigms.planning import model_planner
from paradigms.prompt import last_turns
from paradigms.react import react
from paradigms.store import Store

# --- A first attempt ------------------------------------------------------------------------


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
            ("first day", *pursued("安排北京一天，先问客户", memory_on(path), with_client)),
            ("later, without", *pursued(weekend, None, alone)),
            ("later, with it", *pursued(weekend, memory_on(path), alone)),
        ]
    )
    tell("\nWhat else brings it to mind, and what does not:")
    asked = ("膝盖疼，走路多不多？", "写一个排序函数", "腿脚不方便")
    tell.table((task, "，".join(memory_on(path).recall(task)) or "-") for task in asked)
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
