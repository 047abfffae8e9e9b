"""Each run has a state of its own and all share what is dear: so any number can run, on any workers.

Article A, 并发优化：多Loop实例的状态隔离与资源共享 (Isolation and sharing). Covers A-127..A-131.

The chapters before drove a few loops. Here there are a thousand at once, and three questions.

What must be a run's own (状态隔离, A-127)? Its history, its memory, its machine. ``AgentLoop`` is frozen, and
all that a run knows lives in the generator that ``run`` returns: there is no place where two could meet.
A history that stands on a shared instance is such a place, and the demo shows visitors who are told about
somebody else's city.

What must be shared (资源共享, A-128)? Whatever is dear to make: the model's engine, connections, what was
looked up before. They are made once and handed to each world (dependency injection, 依赖注入). What is shared
is safe for all at once: ``ConnectionPool`` lends each connection to one at a time; ``Cache`` computes each
entry once, however many ask while it is computed (single flight). Use both inside a tool, or through ``Do``:
then a journal has what came of it, and a replay touches neither.

Who runs them (A-129, A-130, A-131)? Whoever is asked: ``run_many`` takes any ``concurrent.futures.Executor``,
threads and processes of this machine or of a hundred others. What travels there is one importable function,
the caller's own ``office`` and the task, and what travels back is data: no generator, no lock, no exception.
``gather_many`` does the same on an event loop.

===========  ==================  ==============================================================
threads      for waiting         up to some dozens; they compute one at a time (GIL)
processes    for computing       one for each core; each has its own copy of all that is shared
asyncio      for light waiting   thousands; one that computes holds up all others
===========  ==================  ==============================================================

The article finds complex state machines hard to write as coroutines (A-131). Here the machine is no
coroutine: the loop is the same under every driver, and only the world's functions are ``async def``.

A worker that dies takes its run with it, and a pool of processes breaks then: what came before is kept, and
all others are told so in ``problem``. Nothing is run again unasked, since nobody knows what those runs have
done; whoever knows that it does no harm hands their tasks to a new executor. A tool that starts a process
may return its output as it is: bytes become text, whatever they are (U01). (Two shared things, a runner and
a schedule to compare workers by make this chapter longer than others.)

The demo computes how long each kind takes: one real run is driven on a fake clock, and a thousand like it
are scheduled. ``python -m benchmarks`` measures the same for real, and a loop's memory.

Departures: nothing of a run is on an instance, so no lesson of one task is shown to the next (EA38); what
loops share belongs to no loop and is reached inside the call that each paradigm makes (EA56).

Exercises
---------
1. Let ``run_many`` hand out tasks while results come in, so that a million tasks need not all be submitted
   first: ``python -m pytest --impl run_many=my_many.py:run_many``
2. Keep a failed computation for a few seconds, so that a sick service is not asked at once again. Which
   promise has to go? ``python -m pytest --impl cache=my_cache.py:Cache``
3. Roll a connection back instead of closing it when something failed. How do you know that it is still good?
   ``python -m pytest --impl pool=my_pool.py:ConnectionPool``
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import sqlite3
import tempfile
import threading
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, suppress
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple

from agentloop import (
    CREW,
    Act,
    AgentLoop,
    CallModel,
    Finish,
    LoopContext,
    LoopError,
    Program,
    Result,
    Together,
    Toolbox,
    Unavailable,
    World,
    drive,
)
from chapters.ch07_drivers import drive_async
from chapters.telling import GREEN, RED, Telling
from fake_llm import FakeClock, get_weather, hanging_tool
from fake_llm.tools import ATTRACTIONS, WEATHER
from paradigms.react import react

# --- Many runs, on whatever workers there are ---------------------------------------------------

#: Opens the office of one task: its program, whose result has an answer and a stop, and its world. It is
#: called where the task is run. For workers in other processes it stands at the top level of a module.
Office = Callable[[Any], tuple[Program[Any], World]]


class Ended(NamedTuple):
    """How one task ended. ``problem`` says what went wrong; then ``stop`` is ``None`` if no run has ended."""

    task: Any
    answer: Any = None
    stop: Enum | None = None
    problem: str = ""


def run_many(tasks: Iterable[Any], executor: Executor, office: Office) -> list[Ended]:
    """Run every task on the workers of any executor, and return how each ended, in the order of the tasks.

    Raises for no task, office or worker that fails. Ctrl-C withdraws the tasks that nobody has begun.
    """
    runs: list[tuple[Any, Future[Ended]]] = []
    try:
        for task in tasks:
            runs.append((task, _submitted(executor, office, task)))
        return [_came(task, future) for task, future in runs]
    except BaseException:
        for _, future in runs:
            future.cancel()
        raise


async def gather_many(tasks: Iterable[Any], office: Office) -> list[Ended]:
    """``run_many`` on this event loop, without a thread: the office's world has ``async def`` functions.

    Cancelled, it ends every run with HUMAN first.
    """

    async def run(task: Any) -> Ended:
        try:
            program, world = office(task)
            return ended(task, await drive_async(program, world))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():  # not only an office says so
                raise
            return went_wrong(task, error)

    offices = list(tasks)
    async with asyncio.TaskGroup() as group:  # whatever ends it, no run goes on behind it
        runs = [group.create_task(run(task)) for task in offices]
    return [each.result() for each in runs]


def _is_cancelled() -> bool:
    """Whether somebody has cancelled the task that asks."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def run_one(office: Office, task: Any) -> Ended:
    """What a worker does: open the office, drive the program, and tell of it in data that can travel."""
    try:
        program, world = office(task)
        return ended(task, drive(program, world))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # what is no Exception would take a process with it, and so the pool
        return went_wrong(task, error)


def ended(task: Any, result: Any) -> Ended:
    """The end of a run. Raises ``TypeError`` for an answer that is no plain data."""
    if not is_plain(result.answer):
        raise TypeError(f"the answer is a {type(result.answer).__name__}: only plain data can travel")
    return Ended(task, result.answer, result.stop)


def went_wrong(task: Any, error: BaseException) -> Ended:
    """An exception in words: the thing itself might not survive the way, and take a pool down with it."""
    stop = error.result.stop if isinstance(error, LoopError) else None
    try:
        problem = "".join(traceback.format_exception_only(error)).strip()
    except Exception:  # what an exception says of itself may be anything
        problem = type(error).__name__
    return Ended(task, None, stop, problem)


def is_plain(value: Any) -> bool:
    """Whether a value is text, numbers, and lists, tuples and dicts of them: what arrives as it was sent."""
    if type(value) in (list, tuple):
        return all(map(is_plain, value))
    if type(value) is dict:
        return all(map(is_plain, itertools.chain(value, value.values())))
    return type(value) in (str, bytes, int, float, bool, NoneType)


def _submitted(executor: Executor, office: Office, task: Any) -> Future[Ended]:
    try:
        if not is_plain(task):
            raise TypeError(f"the task is a {type(task).__name__}: only plain data can travel")
        return executor.submit(run_one, office, task)
    except Exception as error:
        refused: Future[Ended] = Future()
        refused.set_exception(error)
        return refused


def _came(task: Any, future: Future[Ended]) -> Ended:
    try:
        error = future.exception()  # returned, not raised: a KeyboardInterrupt raised here is our own
    except CancelledError as cancelled:
        error = cancelled
    return future.result() if error is None else went_wrong(task, error)


# --- What all of them share ---------------------------------------------------------------------


class ConnectionPool:
    """At most ``size`` connections, each lent to one borrower at a time, and taken back whatever happens.

    ``connect()`` opens one of any database (DB-API); SQLite's is told ``check_same_thread=False``, since
    the next borrower may be another thread. Raises ``ValueError`` for a size below 1.
    """

    def __init__(self, connect: Callable[[], Any], size: int, patience: float = 5.0) -> None:
        if size < 1:
            raise ValueError(f"a pool has at least 1 connection, not {size!r}")
        self._connect, self._size, self._patience = connect, size, patience
        self._free: list[Any] = [None] * size  # a place whose connection is not open yet is ``None``
        self._closed = False
        self._changed = threading.Condition()

    @contextmanager
    def lent(self) -> Iterator[Any]:
        """Borrow a connection: what was done is committed at the end, and undone where the block raises.

        Waits up to ``patience`` seconds for one, then raises ``Unavailable``: a tool has done nothing yet.
        Raises ``RuntimeError`` once the pool is closed.
        """
        connection = self._take()
        try:
            if connection is None:
                connection = self._connect()
            yield connection
            connection.commit()
        except BaseException:
            broken, connection = connection, None  # nobody else gets what may be broken
            if broken is not None:
                broken.close()
            raise
        finally:
            self._give_back(connection)

    def close(self) -> None:
        """Lend nothing from now on, and close all: what is lent, when it comes back. May be called twice.

        Waits up to ``patience`` seconds for the borrowers, then raises ``Unavailable``.
        """
        with self._changed:
            self._closed, idle = True, self._free
            self._free = []
            for connection in idle:
                self._give_back(connection)
            if not self._changed.wait_for(lambda: len(self._free) == self._size, self._patience):
                lent = self._size - len(self._free)
                raise Unavailable(
                    f"{lent} of {self._size} connections are lent, and closed when they come back"
                )

    def _take(self) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: self._free or self._closed, self._patience)
            if self._closed:
                raise RuntimeError("the pool is closed: nothing is lent any more")
            if not self._free:
                raise Unavailable(f"none of {self._size} connections came free in {self._patience:g} s")
            return self._free.pop()

    def _give_back(self, connection: Any) -> None:
        with self._changed:
            if self._closed and connection is not None:
                connection.close()
                connection = None
            self._free.append(connection)
            self._changed.notify_all()


class _Abandoned(Exception):
    """Whoever computed an entry was cancelled: it is somebody else's turn."""


class Cache:
    """Entries that are computed once, however many ask at the same time: threads, coroutines or both.

    Those who ask while an entry is computed wait for it, and share what came of it. A failure is raised
    to all of them and not kept: who asks later computes again. One that takes longer than ``patience``,
    in seconds, holds nobody up any more: the next one computes. Keep values that nobody changes.
    """

    def __init__(self, patience: float = 30.0) -> None:
        self._patience = patience
        self._lock = threading.Lock()  # held to look and to write, never to compute
        self._entries: dict[Hashable, Future[Any]] = {}

    def get(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """The entry, computed if need be. Blocks: on an event loop use ``get_async``."""
        while True:
            entry, is_ours = self._entry(key)
            if is_ours:
                with self._computing(key, entry):
                    entry.set_result(compute())
            elif not wait([entry], self._patience).done:
                self._forget(key, entry)
                continue
            with suppress(_Abandoned):
                return entry.result()

    async def get_async(self, key: Hashable, compute: Callable[[], Awaitable[Any]]) -> Any:
        """``get`` for coroutines: whoever waits holds up nobody else."""
        while True:
            entry, is_ours = self._entry(key)
            if is_ours:
                with self._computing(key, entry):
                    entry.set_result(await compute())
            elif not await _done(entry, self._patience):
                self._forget(key, entry)
                continue
            with suppress(_Abandoned):
                return entry.result()

    def _entry(self, key: Hashable) -> tuple[Future[Any], bool]:
        """The entry of a key, and whether it is new, and so for whoever asked to compute."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                return entry, False
            entry = self._entries[key] = Future()
            return entry, True

    @contextmanager
    def _computing(self, key: Hashable, entry: Future[Any]) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._forget(key, entry)
            entry.set_exception(error if isinstance(error, Exception) else _Abandoned())
            raise

    def _forget(self, key: Hashable, entry: Future[Any]) -> None:
        with self._lock:
            if self._entries.get(key) is entry:
                del self._entries[key]


async def _done(entry: Future[Any], seconds: float) -> bool:
    """Wait for an entry, on whichever thread it is computed, and say whether it is there."""
    if not entry.done():
        waiting = asyncio.wrap_future(entry)
        waiting.add_done_callback(asyncio.Future.exception)  # an event loop complains of one nobody asks for
        await asyncio.wait([waiting], timeout=seconds)  # who is cancelled here cancels nobody else
    return entry.done()


# --- Which kind of worker: a schedule -----------------------------------------------------------


class Piece(NamedTuple):
    """A part of a run, in seconds: it computes, and then it waits, when others can go on."""

    waits: float = 0.0
    computes: float = 0.0


class Workers(NamedTuple):
    """A kind of workers: how many runs they have under way at once, and how many of those compute."""

    name: str
    at_once: int
    computing: int


class Schedule(NamedTuple):
    """How long all runs took, in seconds, and which parts of it the places and the cores were taken."""

    took: float
    places: float
    cores: float


def schedule(runs: Sequence[Sequence[Piece]], workers: Workers) -> Schedule:
    """Work out when each piece is done: a run begins when a place is free, and goes on when a core is.

    Who asks first is served first, even who only begins to wait. Raises ``ValueError`` for runs that take
    no time at all.
    """
    ahead = iter([iter(run) for run in runs])
    cores = [0.0] * workers.computing  # until when each is taken
    order = itertools.count()
    coming = [(0.0, next(order), 0.0, run) for run in itertools.islice(ahead, workers.at_once)]
    now = taken = 0.0
    while coming:
        now, _, began, run = heapq.heappop(coming)
        piece = next(run, None)
        if piece is None:
            taken += now - began
            for following in itertools.islice(ahead, 1):
                heapq.heappush(coming, (now, next(order), now, following))
            continue
        now = max(now, cores[0]) + piece.computes
        heapq.heapreplace(cores, now)
        heapq.heappush(coming, (now + piece.waits, next(order), began, run))
    if not now:
        raise ValueError("a schedule is of runs that take time")
    computed = sum(piece.computes for run in runs for piece in run)
    return Schedule(now, taken / workers.at_once / now, computed / workers.computing / now)


# --- The story ----------------------------------------------------------------------------------


def asks_about(city: str) -> str:
    """The task of a visitor."""
    return f"{city}今天天气怎么样？有什么好去处？"


def guide(request: CallModel) -> str:
    """The model: one engine for all visitors. It knows nothing but what is in the request."""
    task = request.messages[1].content
    seen = [message.content for message in request.messages[2:] if message.role == "user"]
    city = next(city for city in WEATHER if city in task)
    if not seen:
        return f'Thought: 先查天气。\nAction: get_weather(city="{city}")'
    if len(seen) == 1:
        return f'Thought: 再找去处。\nAction: find_places(city="{city}")'
    return "Thought: 可以作答。\nAction: Finish[" + "；".join(_said(each) for each in seen) + "]"


def _said(observation: str) -> str:
    return observation.partition("Observation: ")[2].strip()


class Town:
    """What all visitors of a town share, and an office for each; ``counts`` is what had to be made for it."""

    def __init__(self, path: Path, counts: Counter[str] | None = None) -> None:
        self.path, self.counts = path, Counter() if counts is None else counts
        self.pool = ConnectionPool(self.connect, 4)
        self.cache = Cache()
        self.counts["engine loaded"] += 1

    def connect(self) -> sqlite3.Connection:
        self.counts["connection opened"] += 1
        return sqlite3.connect(self.path, check_same_thread=False)

    def look_up(self, city: str) -> str:
        self.counts["weather looked up"] += 1
        return get_weather(city)

    def get_weather(self, city: str) -> str:
        """Tell the present weather of a city."""
        text: str = self.cache.get(city, lambda: self.look_up(city))
        return text

    def find_places(self, city: str) -> str:
        """Say where to go in a city."""
        with self.pool.lent() as connection:
            found = connection.execute("SELECT place FROM places WHERE city = ?", [city]).fetchall()
        return "、".join(place for (place,) in found)

    def office(self, task: str) -> tuple[Program[Result], World]:
        """A loop and a world for one visitor. Raises ``LookupError`` for a city that is on no map."""
        if not any(city in task for city in WEATHER):
            raise LookupError(f"there is no map for {task}")
        tools = Toolbox([self.get_weather, self.find_places])
        return AgentLoop(react(tools)).run(task), World(guide, tools, inline=True)


def branch(path: str, task: str, counts: Counter[str] | None = None) -> tuple[Program[Result], World]:
    """An office that shares the file, and nothing else; ``functools.partial(branch, path)`` can be sent."""
    town = Town(Path(path), counts)
    program, world = town.office(task)

    def closed_after() -> Program[Result]:
        try:
            return (yield from program)
        finally:
            town.pool.close()

    return closed_after(), world


def built(path: Path) -> Path:
    """Write the database of a town, and return its path."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE places (city TEXT, place TEXT)")
        for city, (outdoors, _) in ATTRACTIONS.items():
            rows = [(city, place) for place in outdoors.split("、")]
            connection.executemany("INSERT INTO places VALUES (?, ?)", rows)
        connection.commit()
    return path


def on_one_notebook(reason: Callable[[LoopContext], Any]) -> Callable[[LoopContext], Program[Act | Finish]]:
    """What an instance does that keeps its history on itself (``self.history``): all runs write into one."""
    history: list[Any] = []

    def reasoned(context: LoopContext) -> Any:
        context.turns = history
        return reason(context)

    return reasoned


def side_by_side(tell: Telling, town: Town, wrap: Callable[[Any], Any], tasks: Sequence[str]) -> None:
    """A few visitors at once, and how many were told about a city that they did not ask about."""
    tools = Toolbox([town.get_weather, town.find_places])
    loop = AgentLoop(wrap(react(tools)))

    def together() -> Program[list[Result]]:
        return (yield Together(tuple(loop.run(task) for task in tasks))).value  # type: ignore[no-any-return]

    wrong = 0
    for task, result in zip(tasks, drive(together(), World(guide, tools, inline=True)), strict=True):
        others = [city for city in WEATHER if city in result.answer and city not in task]
        tell(f"{task}\n    {result.answer}", RED if others else GREEN)
        wrong += bool(others)
    tell(f"told about somebody else's city: {wrong} of {len(tasks)}", RED if wrong else GREEN)


def tell_sharing(tell: Telling, path: Path, tasks: Sequence[str]) -> None:
    """What it takes to serve all visitors, each with everything of its own, and with one town for all."""
    own, shared = Counter[str](), Counter[str]()
    everybody = Town(path, shared)
    each = asyncio.run(gather_many(tasks, lambda task: branch(str(path), task, own)))
    same = asyncio.run(gather_many(tasks, everybody.office))
    everybody.pool.close()
    tell.table([("", "each its own", "shared"), *((what, own[what], shared[what]) for what in own)])
    tell(f"the same answers: {'yes' if each == same else 'NO'}", GREEN)


def tell_failures(tell: Telling, town: Town, tasks: Sequence[str]) -> None:
    """One task that fails, with what ``Executor.map`` makes of it, and as data."""
    with ThreadPoolExecutor(4) as threads:
        kept: list[str] = []
        try:
            kept.extend(threads.map(lambda task: drive(*town.office(task)).answer, tasks))
        except LookupError as error:
            tell(f"executor.map: {len(kept)} of {len(tasks)} answers are left: LookupError: {error}", RED)
        outcomes = run_many(tasks, threads, town.office)
    rows = [(task, stop.name if stop else "", problem or answer) for task, answer, stop, problem in outcomes]
    tell.table(rows)
    answered = sum(not each.problem for each in outcomes)
    tell(f"run_many: {answered} of {len(tasks)} answers are left", GREEN)


#: The article's three kinds: as many threads as ``drive`` has, four cores, and an event loop.
MANY = 1000
KINDS = (Workers("threads", CREW, 1), Workers("processes", 4, 4), Workers("asyncio", MANY, 1))
#: What the two kinds of work ask of a run: of its model, of each tool.
KINDS_OF_WORK = {
    "I/O-bound: each model call waits 1 s, each tool call 0.5 s": (Piece(waits=1.0), Piece(waits=0.5)),
    "CPU-bound: each model call waits 0.1 s, each tool call computes 0.5 s": (
        Piece(waits=0.1),
        Piece(computes=0.5),
    ),
}


def pieces(model: Piece, tool: Piece, town: Town) -> list[Piece]:
    """What one run consists of: it is driven for real, and on a fake clock."""
    clock, passed = FakeClock(), list[Piece]()

    def passing(piece: Piece) -> None:
        passed.append(piece)
        clock.advance(sum(piece))

    def engine(request: CallModel) -> str:
        passing(model)
        return guide(request)

    slow = [hanging_tool(each, lambda: passing(tool)) for each in (town.get_weather, town.find_places)]
    tools = Toolbox(slow)
    drive(AgentLoop(react(tools)).run(asks_about("北京")), World(engine, tools, clock=clock.now, inline=True))
    return passed


def tell_kinds(tell: Telling, run: Sequence[Piece]) -> None:
    """How long each kind of workers takes for many such runs, which wins, and what the others lack."""
    found = {workers: schedule([run] * MANY, workers) for workers in KINDS}
    rows: list[tuple[object, ...]] = [("", "at once", "computing", "takes", "places taken", "cores taken")]
    for (name, at_once, computing), (took, places, cores) in found.items():
        rows.append((name, at_once, computing, f"{took:,.0f} s", f"{places:.0%}", f"{cores:.0%}"))
    tell.table(rows)
    winner = min(found, key=lambda workers: found[workers].took)
    for workers, result in found.items():
        if workers is not winner:
            times = result.took / found[winner].took
            tell(f"{workers.name}: {times:.0f} times as long as {winner.name}; {limit(workers, result)}", RED)
    tell(f"{winner.name} won; {limit(winner, found[winner])}", GREEN)


def limit(workers: Workers, result: Schedule) -> str:
    """What there was too little of, by the schedule's own figures."""
    if result.cores > 0.95:
        return f"what computes waits its turn: {workers.computing} at a time"
    if result.places > 0.95 and workers.at_once < MANY:
        return f"no more than {workers.at_once} are under way at once"
    return "nobody waits for anybody"


def demo(tell: Telling) -> None:
    """Visitors who share a notebook, and who do not; what is shared; what fails; which kind of workers."""
    tasks = [asks_about(city) for city in WEATHER]
    with tempfile.TemporaryDirectory() as folder:
        path = built(Path(folder, "town.db"))
        town = Town(path)

        tell.heading("One notebook for all: the history stands on the instance (self.history)")
        side_by_side(tell, town, on_one_notebook, tasks)
        tell.heading("Each run its own generator: the same visitors, model and tools (状态隔离)")
        side_by_side(tell, town, lambda reason: reason, tasks)

        visitors = tasks * 10
        tell.heading(f"{len(visitors)} visitors at once: what it takes to serve them (资源共享)")
        tell_sharing(tell, path, visitors)

        tell.heading("One of them asks for a city that is on no map")
        tell_failures(tell, town, [*tasks[:2], asks_about("巴黎"), *tasks[2:]])

        for work, (model, tool) in KINDS_OF_WORK.items():
            tell.heading(f"{MANY} visitors, {work}")
            tell_kinds(tell, pieces(model, tool, town))
        town.pool.close()
