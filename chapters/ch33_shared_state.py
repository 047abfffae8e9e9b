"""Who writes to a shared board says which version it has seen, and nothing newer is overwritten unseen.

Article A, 多Agent场景下的Loop同步, 共享状态. Covers A-134.

In chapter 32 agents shared nothing and told each other what they knew. Here several loops read and write one
State object, as LangGraph's SharedState has it: simpler to look at, and open to race conditions (竞态条件).
Between reading and writing lies a whole round of thinking; who writes what follows from an old reading
wipes out what came in between, and nobody is told. The means against it are old ones of databases:

- **Versions** (optimistic concurrency). A write names the version that its writer has seen. If one of its
  keys was written since, nothing at all is changed, and the ``Conflict`` names who wrote what in which
  version: to a program it is a value, to a model an observation, and either can look again.
- **Merge rules** (LangGraph's reducers). Where two writes can be joined there is nothing to fight over: each
  key is declared with its rule, and all but ``REPLACE`` join what stands with what comes.
- **Snapshots.** The board is one value that is never changed, only followed by the next. So a reader sees
  all of a write or nothing of it, without waiting for anybody.

=========== ====================================== ==========================
rule        joins                                  the order of writes
=========== ====================================== ==========================
``REPLACE`` nothing: only who saw the latest       is that of the versions
``APPEND``  two lists, one behind the other        is kept
``UNION``   two lists of texts, each text once     is free, and doubles too
``MAXIMUM`` two numbers, the larger one            is free, and doubles too
``TOTAL``   two numbers, their sum                 is free
=========== ====================================== ==========================

A program reaches the board by ``Do``, so a replay looks at what was read and writes nothing again. A write
whose end nobody knows (``EffectFailed``) is not repeated: a total would count it twice. (Rules, board, the
way in for programs and the one for models are four parts; each is short, and together they are long.)

What it does not promise: two writers who each read what the other writes, and write different keys, do not
clash (databases call it write skew). Let them write one key that both have read as well.

Departures: none; the article prints no code for it.

Exercises
---------
1. ``LastWriterWins`` below is a plain dict with a lock around it. Which promises does that leave broken?
   ``python -m pytest --impl board=chapters/ch33_shared_state.py:LastWriterWins``
2. Give each key a version of its own instead of one for the board. What does a snapshot's version mean then?
   ``python -m pytest --impl board=my_board.py:Board``
3. ``update`` tries again at once. Let it wait a little longer after each conflict, and less in step with
   the others (chapter 19): ``python -m pytest --impl update=my_update.py:update``
"""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from agentloop import (
    AgentLoop,
    CallModel,
    Do,
    EffectFailed,
    Journal,
    Kind,
    Observation,
    Program,
    Reply,
    Result,
    Together,
    Toolbox,
    ToolCall,
    World,
    call_text,
    call_tool,
    drive,
    not_begun,
    on_one_line,
    settle,
)
from chapters.telling import BOLD, DIM, GREEN, RED, Telling
from fake_llm import FakeModel, calls
from paradigms.arguments import is_number, require
from paradigms.function_calling import function_calling

# --- Merge rules ------------------------------------------------------------------------------


class Rule(NamedTuple):
    """How a key is written: what it holds at first, and how what stands is joined with what comes.

    Without ``merge`` what comes replaces what stands. ``merge(stands, comes)`` is quick, computes and does
    nothing else, and raises ``TypeError`` for what it cannot join.
    """

    start: Any = None
    merge: Callable[[Any, Any], Any] | None = None


def append(stands: list[Any], comes: list[Any]) -> list[Any]:
    """Both lists, what comes behind what stands."""
    if not isinstance(comes, list):
        raise TypeError(f"what is appended is a list, such as [{comes!r}], not {comes!r}")
    return [*stands, *comes]


def union(stands: list[str], comes: list[str]) -> list[str]:
    """The texts of both lists, each once, sorted so that their order says nothing of who came first."""
    if not isinstance(comes, list) or not all(isinstance(text, str) for text in comes):
        raise TypeError(f"a union is made of lists of texts, not of {comes!r}")
    return sorted({*stands, *comes})


def maximum(stands: float | None, comes: float) -> float:
    """The larger number; the first one, where there was none."""
    return _number(comes) if stands is None else max(stands, _number(comes))


def total(stands: float, comes: float) -> float:
    """The sum: what is written is how much is added."""
    return stands + _number(comes)


def _number(value: Any) -> float:
    if not is_number(value):
        raise TypeError(f"a number is wanted, not {value!r}")
    return value  # type: ignore[no-any-return]


REPLACE = Rule()
APPEND = Rule([], append)
UNION = Rule([], union)
MAXIMUM = Rule(None, maximum)
TOTAL = Rule(0, total)

# --- The board --------------------------------------------------------------------------------


class Entry(NamedTuple):
    """What a key holds, and the write that made it so: its version, its writer; 0 and nobody at first."""

    value: Any
    version: int = 0
    writer: str = ""


class Snapshot(NamedTuple):
    """The whole board at one moment. ``version`` counts the writes until then."""

    version: int
    entries: dict[str, Entry]

    def value(self, key: str) -> Any:
        """What a key holds. Raises ``KeyError`` for one that the board does not have."""
        return self.entries[key].value


class Conflict(NamedTuple):
    """A write that changed nothing: its writer had seen version ``seen``, and ``clashes`` were written since.

    ``version`` is that of the board now.
    """

    writer: str
    seen: int
    version: int
    clashes: dict[str, Entry]

    def __str__(self) -> str:
        newer = "\n".join(shown(key, entry) for key, entry in self.clashes.items())
        return (
            f"Nothing was written: since version {self.seen}, which {self.writer} saw, there came\n{newer}\n"
            f"The board is at version {self.version}."
        )


def shown(key: str, entry: Entry) -> str:
    """One key of the board in words: what it holds, who wrote it, and in which version."""
    by = f"{entry.writer}, version {entry.version}" if entry.version else "not written yet"
    return f"{key} = {on_one_line(repr(entry.value))} ({by})"


class Board:
    """The state that loops share (共享状态): keys with their rules, written in whole steps, one by one.

    Safe under threads. Values are plain data, copied on their way in and out.
    """

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        self._rules = dict(rules)
        self._writing = threading.Lock()
        entries = {key: Entry(rule.start) for key, rule in self._rules.items()}
        self._now = Snapshot(0, entries)  # never changed, only followed by another

    def read(self) -> Snapshot:
        """The whole board as it is now."""
        return copy.deepcopy(self._now)

    def entry(self, key: str) -> Entry:
        """What one key holds now. Raises ``KeyError`` for one that the board does not have."""
        return copy.deepcopy(self._now.entries[key])

    def write(self, writer: str, changes: Mapping[str, Any], seen: int) -> int | Conflict:
        """Write all of ``changes``, or nothing of them. Return the new version, or the ``Conflict``.

        ``seen`` is the version of the snapshot that they follow from. Raises ``ValueError`` for no changes,
        for a key that there is not and for a version that is still to come, ``TypeError`` for what
        cannot be joined; nothing is changed then either.
        """
        self._check(changes)
        comes = copy.deepcopy(dict(changes))
        with self._writing:
            version, entries = self._now
            if type(seen) is not int or not 0 <= seen <= version:
                raise ValueError(f"the board is at version {version}, and nobody can have seen {seen!r}")
            clashes = {key: entries[key] for key in comes if self._clashes(key, seen)}
            if clashes:
                return copy.deepcopy(Conflict(writer, seen, version, clashes))
            written = {
                key: Entry(self._joined(key, value), version + 1, writer) for key, value in comes.items()
            }
            self._now = Snapshot(version + 1, {**entries, **written})
            return version + 1

    def _check(self, changes: Mapping[str, Any]) -> None:
        unknown = [key for key in changes if key not in self._rules]
        if unknown or not changes:
            wanted = f"{unknown[0]!r} is no key" if unknown else "a write changes at least one key"
            raise ValueError(f"{wanted}: the keys of this board are {', '.join(self._rules)}")

    def _clashes(self, key: str, seen: int) -> bool:
        return self._rules[key].merge is None and self._now.entries[key].version > seen

    def _joined(self, key: str, comes: Any) -> Any:
        merge = self._rules[key].merge
        # A copy, since the present snapshot must stay as it is whatever a rule does to what it is given.
        return comes if merge is None else merge(copy.deepcopy(self._now.value(key)), comes)


# --- For programs and for models --------------------------------------------------------------


def read(board: Board) -> Program[Snapshot]:
    """The whole board, as a program sees it."""
    snapshot: Snapshot = (yield Do("read the board", board.read, repeatable=True)).value
    return snapshot


def write(board: Board, writer: str, changes: Mapping[str, Any], seen: int) -> Program[int | Conflict]:
    """``board.write``, once: a replay does not write again."""
    label = f"{writer} writes {', '.join(map(str, changes))}, having seen version {seen}"
    written: int | Conflict = (yield Do(label, lambda: board.write(writer, changes, seen))).value
    return written


def update(
    board: Board, writer: str, change: Callable[[Snapshot], Mapping[str, Any]], tries: int = 10
) -> Program[int | Conflict]:
    """Write what ``change(snapshot)`` makes of the board; after a conflict of what it is by then.

    Each conflict means that somebody else got on, so one of many always does. Returns the last conflict
    after ``tries`` of them; ``ValueError`` for fewer than 1.
    """
    require("tries", tries, 1)
    for _ in range(tries):
        snapshot = yield from read(board)
        written = yield from write(board, writer, change(snapshot), snapshot.version)
        if isinstance(written, int):
            break
    return written


def board_tools(board: Board, writer: str) -> list[Callable[..., Any]]:
    """The tools by which a model reads and writes the board, under the name of ``writer``."""

    def read_board() -> str:
        """Show the board: its version, and what each key holds."""
        snapshot = board.read()
        lines = [shown(key, entry) for key, entry in snapshot.entries.items()]
        return "\n".join([f"The board is at version {snapshot.version}.", *lines])

    def write_board(key: str, value: Any, version: int) -> str | Observation:
        """Write a key; version is that of the board as you have seen it."""
        written = board.write(writer, {key: value}, version)
        if isinstance(written, Conflict):
            return Observation(str(written), False, Kind.REFUSED)
        return f"Written in version {written}."

    return [read_board, write_board]


def sharing(
    act: Callable[[ToolCall], Any] = call_tool, *, board: Board, writer: str
) -> Callable[[ToolCall], Program[Observation]]:
    """Guard ``act``: calls of the board's tools are answered here, in the name of this loop.

    So loops that share a world, and its one toolbox, each sign what they write. It is an effect like
    any other, and no tool call: no tool of the world is asked.
    """
    tools = Toolbox(board_tools(board, writer), idempotent=["read_board"])

    def shared(call: ToolCall) -> Program[Observation]:
        if call.name not in tools.names:
            seen: Observation = yield from settle(act(call))
            return seen
        only_reads = tools.is_idempotent(call.name)
        asked = Do(f"{writer}: {call_text(call)}", lambda: tools.execute(call), repeatable=only_reads)
        try:
            seen = (yield asked).value
        except EffectFailed as failure:
            return _without_end(asked, str(failure))
        return seen

    return shared


def _without_end(asked: Do, text: str) -> Observation:
    """What is to be told of a call of the board whose end nobody saw."""
    if text.endswith(not_begun(asked).text):
        return Observation(text, False, Kind.NOT_RUN)
    if asked.repeatable:
        return Observation(text, False, Kind.UNAVAILABLE)
    return Observation(f"{text}; whether it was written is not known", False, Kind.UNCERTAIN)


# --- The story --------------------------------------------------------------------------------

PURSE = 100  # yuan
PRICES = {"小李": 60, "小王": 30}  # of the ticket that each of them buys: 故宫, 颐和园


class LastWriterWins(Board):
    """The shared dict that most programs begin with: whoever writes is taken to have seen everything."""

    def write(self, writer: str, changes: Mapping[str, Any], seen: int) -> int | Conflict:
        return super().write(writer, changes, self.read().version)


def treasurer(request: CallModel) -> Reply | str:
    """A model that pays for a ticket: it looks at the balance, subtracts the price, writes what is left."""
    task, latest = request.messages[1].content, request.messages[-1].content
    if "Written" in latest:
        return "门票买好了。"
    price, balance = re.search(r"(\d+) 元", task), re.search(r"balance = (\d+)", latest)
    version = re.search(r"is at version (\d+)", latest)
    if not (price and balance and version):
        return calls(("read_board", {}))
    left = int(balance[1]) - int(price[1])
    return calls(("write_board", {"key": "balance", "value": left, "version": int(version[1])}))


def spender(request: CallModel) -> Reply | str:
    """A model that knows the key ``spent`` to be a total: it writes what it adds, and need not look first."""
    price = re.search(r"(\d+) 元", request.messages[1].content)
    if len(request.messages) > 2 or not price:
        return "门票买好了。"
    return calls(("write_board", {"key": "spent", "value": int(price[1]), "version": 0}))


def demo(tell: Telling) -> None:
    """Two people pay from one purse: a payment is lost, then it is not, then there is nothing to lose."""
    tickets = " and ".join(f"{name} for {price}" for name, price in PRICES.items())
    tell(f"Two loops buy tickets, {tickets} yuan, and pay from one purse of {PURSE}.")

    tell.heading("The last writer wins: what the other one paid is gone")
    go_and_pay(tell, LastWriterWins, treasurer)

    tell.heading("Versions: the same loops, the same model, and nothing is overwritten unseen")
    journal = Journal()
    board = go_and_pay(tell, Board, treasurer, journal)
    drive(side_by_side(board), World(inline=True), journal)
    tell(f"driven again on its journal: nothing is written twice, the version is {board.read().version}", DIM)

    tell.heading("A merge rule: written is what is added, so nobody has to look first")
    go_and_pay(tell, Board, spender)


def go_and_pay(
    tell: Telling,
    kind: type[Board],
    model: Callable[[CallModel], Reply | str],
    journal: Journal | None = None,
) -> Board:
    """Both visits side by side, on a purse that holds 100 yuan; and what the board says in the end."""
    board = kind({"balance": REPLACE, "spent": TOTAL})
    board.write("家里", {"balance": PURSE}, 0)
    drive(side_by_side(board, tell), World(FakeModel(model), inline=True), journal)
    entries = board.read().entries
    tell("the board: " + ", ".join(shown(key, entry) for key, entry in entries.items()), BOLD)
    left, due = entries["balance"].value - entries["spent"].value, PURSE - sum(PRICES.values())
    tell(f"{due} yuan are in the purse, and the board says {left}", GREEN if left == due else RED)
    return board


def side_by_side(board: Board, tell: Telling | None = None) -> Program[list[Result]]:
    """One loop for each visitor, all on one board."""
    programs = []
    for name, price in PRICES.items():
        reason = function_calling(Toolbox(board_tools(board, name)))
        act = sharing(board=board, writer=name)
        loop = AgentLoop(reason, act, watch=tell.watch(name) if tell else None)
        programs.append(loop.run(f"买一张门票，{price} 元"))
    results: list[Result] = (yield Together(tuple(programs))).value
    return results
