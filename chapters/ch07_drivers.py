"""The loop only says what it wants; whether wishes wait for each other is decided by its driver.

Article A, 同步Loop vs 异步Event-Driven Loop (Synchronous and event-driven loops). Covers A-12..A-18.

The chapters before drove one loop at a time, and nothing in their worlds took long. Here the same
loops are driven in three ways (A-12, A-14), and not a line of them changes:

===================  ==============================================================================
``drive``            同步Loop, of the kernel: blocking, the simplest to follow and to debug
``drive_async``      a task for every wish: whoever waits holds up nobody else
``drive_on_bus``     事件总线: perception, reasoning and action as services that share only a queue
===================  ==============================================================================

Without it, a loop of four lines (A-13: reason, decide, execute, append) waits inside of ``execute`` for
as long as that takes. A tool that hangs stops it for ever, and of two agents that need each other,
the first waits for the second, which waits for its turn: the demo shows them.

Every driver is a few lines around a ``Stage``, which steps the programs. ``Conductor`` has them: what is
wanted goes out, and all that happens (an outcome, a person's stop) comes in as a turn of the event loop, one
after the other, so nothing is locked. It performs nothing itself; who does is the only difference between
the two drivers below. Between a wish and its turn a person may stop the run, another call break it, or its
time run out: so whoever performs asks once more, ``may_begin``, and only then is the intent written down.
(Two whole drivers make this chapter longer than others.)

What triggers what (A-15): the task, and data of the world, are for perception; once they are there the
program wants a thought, which reasoning has subscribed to; a decision wants a tool, and action answers.
In the article each service triggers the next. Here the program stands between them, and that settles
what the article names as the price (A-16, 状态一致性): one program has the state, and each event must
take a row of its table. The gain is the article's: many runs at once, and services that can fail, be
replaced, or live elsewhere.

The same idea, elsewhere (A-17): in AutoGen every agent is an actor with a mailbox (Hewitt's actor model,
1973) and in CrewAI a Flow is methods that listen for each other's events.

Which to take (A-18): one task and short waits, ``drive``; many agents, long tasks, a person who must
approve, an asynchronous one. ``drive`` runs ``Together`` side by side as well, on up to 64 threads; a
thousand programs, or tools that are ``async def``, need an event loop.

Departures: a call is left behind when its time is up, and never joined, so neither ``with
ThreadPoolExecutor()`` nor asyncio's own executor is used (EA43); the limit is kept from outside the call
(EB13); a person stops a run in any state and from any thread (EA07).

Exercises
---------
1. Write ``drive`` yourself, in ten lines around a ``Stage`` as in ``one_by_one``, and let each promise that
   it breaks teach you another (one that waits out every hanging call is judged in about a quarter of a
   minute): ``python -m pytest --impl driver=my_driver.py:drive``
2. Replace ``_on_a_thread`` by ``asyncio.to_thread`` in a copy of this file and put its ``drive_async``
   under the same command. Which promise breaks, and what is it waiting for?
3. Split the action service in two, one for ``get_weather`` and one for all other tools. What has to become
   a topic? Put your ``drive_on_bus`` under the same command.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import io
import math
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from agentloop import (
    STOPPED_BY_A_PERSON,
    AgentLoop,
    AskHuman,
    Away,
    CallModel,
    CallTool,
    Do,
    Effect,
    Interrupt,
    Journal,
    Program,
    Result,
    RunClock,
    Sleep,
    Stage,
    Start,
    Strand,
    Together,
    Toolbox,
    World,
    as_reply,
    call_text,
    drive,
    not_begun,
    perform,
    too_late,
)
from chapters.telling import GREEN, RED, Telling
from fake_llm import FakeClock, FakeModel, get_attraction, get_weather
from paradigms.react import react

T = TypeVar("T")

# --- The plainest driver ----------------------------------------------------------------------


async def one_by_one(program: Program[T], world: World) -> T:
    """The article's synchronous loop (A-13) as a driver: begin, wait until it is done, begin the next."""
    stage = Stage(program)
    waiting = deque(stage.waiting)
    while waiting:
        strand = waiting.popleft()
        waiting += stage.deliver(strand, await perform_async(strand.effect, world), 0.0)
    result: T = stage.result
    return result


# --- Performing effects -------------------------------------------------------------------------


class Wanted(NamedTuple):
    """An effect that a program waits for, under a number, on its way to whoever performs it."""

    number: int
    effect: Effect


class Came(NamedTuple):
    """What came of the effect of that number; a ``crash`` ends the whole run."""

    number: int
    value: Any = None
    crash: BaseException | None = None


class Answer(NamedTuple):
    """What a function of the world returned, or what it raised."""

    value: Any = None
    error: BaseException | None = None


class UnderWay(NamedTuple):
    """A call that is waited for: since when, in the world's time, and until when, in the event loop's."""

    wanted: Wanted
    since: float
    until: float


class Performers:
    """Perform effects side by side, in a world whose functions may be ``async def``, and ``tell`` what came.

    A plain function is called right here in an inline world, and on a daemon thread elsewhere; what
    belongs to the event loop is for an ``async def`` to touch. A call has the time that is allowed, and
    is left behind with it: one alarm, set for the call that is due first, watches them all. Before an
    effect begins, ``may_begin`` is asked about its number.
    """

    def __init__(
        self,
        world: World,
        tell: Callable[[Came], object],
        may_begin: Callable[[int], bool] = lambda number: True,
    ) -> None:
        self.world, self.tell, self.may_begin = world, tell, may_begin
        self.loop = asyncio.get_running_loop()
        self.under_way: dict[asyncio.Task[Answer], UnderWay] = {}
        self.alarm: asyncio.TimerHandle | None = None
        self.dismissed = False

    def begin(self, wanted: Wanted) -> None:
        """Have an effect performed as soon as it is its turn."""
        self.loop.call_soon(self.start, wanted)

    def start(self, wanted: Wanted) -> None:
        """Begin an effect, if it still may; whatever breaks on the way is told: somebody waits for it."""
        try:
            if not self.dismissed and self.may_begin(wanted.number):
                self.carry_out(wanted)
        except BaseException as error:
            self.tell(Came(wanted.number, crash=error))

    def carry_out(self, wanted: Wanted) -> None:
        """Perform an effect; one that nobody has to wait for is finished here."""
        (_, effect), world = wanted, self.world
        function = _FUNCTIONS[type(effect)](effect, world) if type(effect) in _FUNCTIONS else None
        if not callable(function):
            self.tell(Came(wanted.number, perform(effect, world)))
            return
        since = world.clock()
        here = world.inline or inspect.iscoroutinefunction(function)
        answer = _answer(function if here else functools.partial(_on_a_thread, function))
        if answer.error is not None or not inspect.isawaitable(answer.value):
            self.finish(wanted, since, answer)
            return
        value = answer.value
        task = self.loop.create_task(self.if_it_still_may(wanted.number, value) if here else _awaited(value))
        until = self.loop.time() + effect.allowed
        self.under_way[task] = UnderWay(wanted, since, until)
        task.add_done_callback(self.done)
        self.watch(until)

    async def if_it_still_may(self, number: int, value: Awaitable[Any]) -> Answer:
        """Wait for a value. An ``async def`` that was called begins only here, a turn later: ask again."""
        if inspect.iscoroutine(value) and not self.may_begin(number):
            value.close()
            return Answer()
        return await _awaited(value)

    def done(self, task: asyncio.Task[Answer]) -> None:
        """Finish the effect of a task, unless it was left behind: then its late result is ignored."""
        if task in self.under_way:
            wanted, since, _ = self.under_way.pop(task)
            self.finish(
                wanted, since, _raised(asyncio.CancelledError()) if task.cancelled() else task.result()
            )

    def finish(self, wanted: Wanted, since: float, answer: Answer) -> None:
        number, effect = wanted
        try:
            late = self.world.clock() - since > effect.allowed
            came = Came(number, too_late(effect) if late else _outcome(effect, self.world, answer))
        except BaseException as error:
            came = Came(number, crash=error)
        self.tell(came)

    def watch(self, until: float) -> None:
        """See to it that somebody looks when that time has come."""
        if until < (self.alarm.when() if self.alarm else math.inf):
            if self.alarm:
                self.alarm.cancel()
            self.alarm = self.loop.call_at(until, self.look)

    def look(self) -> None:
        """Leave behind each call whose time is up."""
        self.alarm, now = None, self.loop.time()
        for task, (wanted, _, until) in tuple(self.under_way.items()):
            if until <= now:
                del self.under_way[task]
                task.cancel()
                self.tell(Came(wanted.number, too_late(wanted.effect)))
        if self.under_way:
            self.watch(min(until for _, _, until in self.under_way.values()))

    def dismiss(self) -> None:
        """Begin nothing more, and cancel what is left when the run is over."""
        self.dismissed = True
        if self.alarm:
            self.alarm.cancel()
        for task in self.under_way:
            task.cancel()
        self.under_way.clear()


async def perform_async(effect: Effect, world: World) -> Any:
    """``perform`` for an event loop: wait for one effect, and return what came of it."""
    arrived: asyncio.Future[Came] = asyncio.get_running_loop().create_future()
    performers = Performers(world, arrived.set_result)
    performers.begin(Wanted(1, effect))
    try:
        _, value, crash = await arrived
    finally:
        performers.dismiss()
    if crash is not None:
        raise crash
    return value


#: The function that an effect calls, with its arguments. Nothing to call: ``perform`` knows the outcome.
_FUNCTIONS: Mapping[type, Callable[[Any, World], Any]] = {
    CallModel: lambda effect, world: world.model and functools.partial(world.model, effect),
    CallTool: lambda effect, world: world.tools and world.tools.prepare(effect.call),
    AskHuman: lambda effect, world: world.human and functools.partial(world.human, effect.question),
    Sleep: lambda effect, world: functools.partial(_sleep_of(world), effect.seconds),
    Do: lambda effect, world: effect.function,
}


def _sleep_of(world: World) -> Callable[[float], Any]:
    """The world's own way to sleep; in place of the blocking default, the event loop's."""
    return asyncio.sleep if world.sleep is time.sleep else world.sleep


def _outcome(effect: Effect, world: World, answer: Answer) -> Any:
    """What came of an effect, word for word as under the blocking driver; raises what ends the run."""
    value, error = answer
    if error is not None:
        return _failed(effect, world, error)
    if isinstance(effect, CallModel):
        return as_reply(value)
    if isinstance(effect, CallTool) and world.tools is not None:
        return world.tools.observe(value)
    return None if isinstance(effect, Sleep) else value


def _failed(effect: Effect, world: World, error: BaseException) -> Any:
    """Let ``perform`` say it, in a world that raises the error at once."""

    def raises(*_: object) -> Any:
        raise error

    if isinstance(effect, Do):
        return perform(Do(effect.label, raises), world)
    if isinstance(effect, CallTool) and world.tools is not None and isinstance(error, Exception | SystemExit):
        return world.tools.failure(effect.call, error)
    if isinstance(effect, CallTool):
        raise error
    return perform(effect, World(model=raises, human=raises, sleep=raises))


def _answer(function: Callable[[], Any]) -> Answer:
    try:
        return Answer(function())
    except BaseException as error:
        return _raised(error)


def _raised(error: BaseException) -> Answer:
    """An error as an answer. To be cancelled was the call's own doing: where it was ours, nobody asks."""
    cancelled = isinstance(error, asyncio.CancelledError)
    return Answer(error=RuntimeError("the call was cancelled") if cancelled else error)


async def _awaited(value: Awaitable[Any]) -> Answer:
    try:
        return Answer(await value)
    except BaseException as error:  # Ctrl-C too: raised inside of a task, it would tear down the event loop
        return _raised(error)


def _on_a_thread(function: Callable[[], Any]) -> Awaitable[Any]:
    """Call a plain function on a daemon thread, which is left behind together with a call that hangs.

    It begins at once: a task would begin it a turn later, when it may be too late. Not
    ``asyncio.to_thread``: its threads are waited for when the event loop ends (EA43).
    """
    landed: Future[Any] = Future()
    landed.set_running_or_notify_cancel()  # from here on it can only be left, not be cancelled
    threading.Thread(target=lambda: landed.set_result(_answer(function)), daemon=True).start()
    return _landed(landed)


async def _landed(landed: Future[Any]) -> Any:
    value, error = await asyncio.wrap_future(landed)
    if error is not None:
        raise error
    return await value if inspect.isawaitable(value) else value


# --- Asking for effects, and taking in what happens -------------------------------------------


class Conductor:
    """All that a driver does besides performing: it asks for what is wanted, and takes in what came."""

    def __init__(
        self, program: Program[Any], world: World, journal: Journal | None, interrupt: Interrupt | None
    ) -> None:
        self.stage = Stage(program, journal, world.may_repeat)
        self.clock = RunClock(world.clock, self.stage.at)
        self.interrupt = interrupt or Interrupt()
        self.ask: Callable[[Wanted], object]
        self.news: Callable[[], Iterable[Came]] = tuple  # what has come, and waits in a queue
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.asked: dict[int, Strand] = {}  # whoever waits
        self.since: dict[int, float] = {}  # what of it has begun, and when
        self.unanswered: list[Strand] = []  # questions, while the person is away
        self.away = Away()
        self.number = 0

    async def run(self, ask: Callable[[Wanted], object]) -> Any:
        """Go on until the program has ended. Cancelled, it lets the program end first, with HUMAN."""
        cancellation, self.ask = None, ask
        with self.interrupt.waking(_from_any_thread(self.hear)):
            self.go_on(lambda: self.stage.waiting)
            while not self.stage.finished:
                try:
                    await self.over
                except asyncio.CancelledError as cancelled:
                    cancellation = cancelled
                    self.over = asyncio.get_running_loop().create_future()
                    self.interrupt.set()
        del self.ask  # whoever performs knows us: a circle, that would keep all of the run in memory
        if cancellation is not None:
            raise cancellation
        return self.stage.result

    def take(self, came: Came) -> None:
        """Take in what came of an effect, and go on from there."""
        self.go_on(lambda: self.delivered(came))

    def hear(self) -> None:
        """Take in what has happened by now: that a person has stopped the run, or what came in the queue."""
        self.go_on(lambda: ())

    def may_begin(self, number: int) -> bool:
        """Say whether an effect may begin, or go on, now that it is its turn: by now the run may be over."""
        self.hear()
        if number in self.asked and number not in self.since:
            self.go_on(lambda: self.begun(number))
        return number in self.since

    def go_on(self, strands: Callable[[], Iterable[Strand]]) -> None:
        """Let these strands want something; when nothing is under way any more, the run is over."""
        try:
            self.begin(strands())
            for came in self.news():  # what was done before a person stopped the run counts
                self.begin(self.delivered(came))
            if self.interrupt.raised:
                self.begin(self.stopped())
        except BaseException as error:
            self.stage.fail(error)
        if not self.asked and not self.stage.finished:
            self.stage.fail(self.away)
        if self.stage.finished:
            self.asked, self.since = {}, {}
            if not self.over.done():
                self.over.set_result(None)

    def stopped(self) -> list[Strand]:
        """End the wait for everything, and return who waited."""
        strands = [*self.asked.values(), *self.unanswered]
        self.asked, self.since, self.unanswered = {}, {}, []
        return strands

    def begin(self, strands: Iterable[Strand]) -> None:
        """Ask for what each strand waits for; once a person has stopped the run, that is the outcome."""
        waiting = deque(strands)
        while waiting and not self.stage.finished:
            strand = waiting.popleft()
            if self.interrupt.raised:
                waiting += self.stage.deliver(strand, STOPPED_BY_A_PERSON, self.clock.now())
                continue
            self.number += 1
            self.asked[self.number] = strand
            self.ask(Wanted(self.number, strand.effect))

    def begun(self, number: int) -> list[Strand]:
        """Note that an effect begins. If its time is up already it does not, and that is the outcome."""
        strand, now = self.asked[number], self.clock.now()
        if now >= strand.effect.deadline:
            del self.asked[number]
            return self.stage.deliver(strand, not_begun(strand.effect), now)
        self.stage.begin(strand)
        self.since[number] = now
        return []

    def delivered(self, came: Came) -> list[Strand]:
        """Hand an outcome to its strand, and return the strands that now wait for something new."""
        if came.number not in self.asked or self.stage.finished:
            return []  # too late: it was left behind, or the run has broken
        strand, since = self.asked.pop(came.number), self.since.pop(came.number)
        value = came.value
        if isinstance(came.crash, KeyboardInterrupt):
            self.interrupt.set()
            value = STOPPED_BY_A_PERSON
        elif isinstance(came.crash, Away):
            self.unanswered.append(strand)
            self.away = came.crash
            self.stand_still(strand, since)
            return []
        elif came.crash is not None:
            self.stage.fail(came.crash)
            return []
        self.stand_still(strand, since)
        return self.stage.deliver(strand, value, self.clock.now())

    def stand_still(self, strand: Strand, since: float) -> None:
        """Take out the time since a question was put, if nothing but persons was waited for meanwhile."""
        if type(strand.effect) is AskHuman and all(
            type(self.asked[number].effect) is AskHuman for number in self.since
        ):
            self.clock.stood_still(max(since, self.stage.at))


def _from_any_thread(news: Callable[[], object]) -> Callable[[], None]:
    """Make a function that lets this event loop hear the news, whichever thread calls it."""
    loop = asyncio.get_running_loop()

    def tell() -> None:
        try:
            loop.call_soon_threadsafe(news)
        except RuntimeError:
            pass  # the event loop has ended, and the run with it

    return tell


# --- Two drivers ------------------------------------------------------------------------------


async def drive_async(
    program: Program[T], world: World, journal: Journal | None = None, interrupt: Interrupt | None = None
) -> T:
    """``drive`` for an event loop: the same promises, and the functions of the world may be ``async def``.

    Cancelling it, as Ctrl-C under ``asyncio.run`` does, ends the program with HUMAN; then the
    ``CancelledError`` goes on to the caller.
    """
    conductor = Conductor(program, world, journal, interrupt)
    performers = Performers(world, conductor.take, conductor.may_begin)
    try:
        result: T = await conductor.run(performers.begin)
        return result
    finally:
        performers.dismiss()


class Bus:
    """Topics, and a queue for each subscriber: who publishes an event does not know who takes it.

    It carries one run at a time: the services of two would each perform what both want.
    """

    def __init__(self) -> None:
        self.subscribers: dict[type, list[asyncio.Queue[Any]]] = {}
        self.carries_a_run = False

    def subscribe(self, *topics: type) -> asyncio.Queue[Any]:
        """Return a queue of all that will be published on these topics."""
        queue: asyncio.Queue[Any] = asyncio.Queue()
        for topic in topics:
            self.subscribers.setdefault(topic, []).append(queue)
        return queue

    def unsubscribe(self, queue: asyncio.Queue[Any]) -> None:
        """Put nothing more into this queue."""
        for topic, queues in tuple(self.subscribers.items()):
            self.subscribers[topic] = [each for each in queues if each is not queue]
            if not self.subscribers[topic]:
                del self.subscribers[topic]

    def publish(self, event: Wanted | Came) -> None:
        """Put an event into each queue of its topic. Raises ``TypeError`` where nobody has subscribed."""
        topic = type(event.effect) if isinstance(event, Wanted) else Came
        if topic not in self.subscribers:
            taken = ", ".join(topic.__name__ for topic in self.subscribers)
            raise TypeError(f"nobody on the bus takes {topic.__name__}; what is taken: {taken}")
        for queue in self.subscribers[topic]:
            queue.put_nowait(event)


class Service(NamedTuple):
    """What a service subscribes to, and what it needs of the world."""

    topics: tuple[type, ...]
    needs: tuple[str, ...] = ()

    def part_of(self, world: World) -> World:
        """What a service sees of the world."""
        return World(**{name: getattr(world, name) for name in (*self.needs, "clock", "inline")})


SERVICES: Mapping[str, Service] = {
    "perception (感知)": Service((Start, Do)),
    "reasoning (推理)": Service((CallModel,), ("model",)),
    "action (行动)": Service((CallTool,), ("tools",)),
    "person (人工审批)": Service((AskHuman,), ("human",)),
    "timer (定时)": Service((Sleep,), ("sleep",)),
}


async def serve(events: asyncio.Queue[Any], take: Callable[[Any], object]) -> None:
    """Run a service: take its events as they arrive."""
    while True:
        take(await events.get())


def taken_from(events: asyncio.Queue[Came]) -> Iterator[Came]:
    """What is in a queue now."""
    while not events.empty():
        yield events.get_nowait()


async def drive_on_bus(
    program: Program[T],
    world: World,
    journal: Journal | None = None,
    interrupt: Interrupt | None = None,
    bus: Bus | None = None,
) -> T:
    """``drive_async`` with services that know nothing but their queue and their part of the world.

    ``bus`` is a new one; others may have subscribed to it, to listen in. Raises ``ValueError`` where it
    carries another run.
    """
    bus = bus or Bus()
    if bus.carries_a_run:
        raise ValueError("this bus carries a run already, whose services would perform this one's wishes too")
    conductor = Conductor(program, world, journal, interrupt)
    performers = [
        Performers(service.part_of(world), bus.publish, conductor.may_begin) for service in SERVICES.values()
    ]
    queues = [bus.subscribe(Came), *(bus.subscribe(*service.topics) for service in SERVICES.values())]
    conductor.news = functools.partial(taken_from, queues[0])
    takers: list[Callable[[Any], object]] = [conductor.take, *(each.begin for each in performers)]
    serving = [asyncio.create_task(serve(queue, take)) for queue, take in zip(queues, takers, strict=True)]
    bus.carries_a_run = True
    try:
        result: T = await conductor.run(bus.publish)
        return result
    finally:
        bus.carries_a_run = False
        for each in performers:
            each.dismiss()
        for task in serving:
            task.cancel()
        for queue in queues:
            bus.unsubscribe(queue)


# --- The story --------------------------------------------------------------------------------

GUIDE = "导游：北京今天去哪里玩？等观测员的报告。"
SCOUT = "观测员：把北京的天气写到公告板上。"
VISITOR = "根据北京今天的天气，推荐一个旅游景点。"
#: What the model says in each round of each task.
SCRIPTS: Mapping[str, tuple[str, ...]] = {
    GUIDE: (
        'Thought: 先看公告板。\nAction: read_board(city="北京")',
        "Thought: 天气好，去户外。\nAction: Finish[颐和园和长城]",
    ),
    SCOUT: (
        'Thought: 先看天气。\nAction: get_weather(city="北京")',
        'Thought: 写上去。\nAction: write_board(city="北京", report="Sunny，26 摄氏度")',
        "Thought: 写好了。\nAction: Finish[报告已写]",
    ),
    VISITOR: (
        'Thought: 先看天气。\nAction: get_weather(city="北京")',
        'Thought: 晴天。\nAction: get_attraction(city="北京", weather="Sunny")',
        "Thought: 信息够了。\nAction: Finish[北京晴，去颐和园和长城]",
    ),
}


def script(request: CallModel) -> str:
    """The next line of the task's script: one model for every agent, whoever asks first."""
    spoken = sum(message.role == "assistant" for message in request.messages)
    return SCRIPTS[request.messages[1].content][spoken]


class Board:
    """A notice board (公告板): who reads it waits until the report is there."""

    def __init__(self) -> None:
        self.reports: dict[str, str] = {}
        self.written = asyncio.Event()

    async def read_board(self, city: str) -> str:
        """Wait for the report on a city, and read it."""
        await self.written.wait()
        return self.reports[city]

    async def write_board(self, city: str, report: str) -> str:
        """Put up the report on a city."""
        self.reports[city] = report
        self.written.set()
        return f"{city}的报告已贴出"


def office(tell: Telling) -> tuple[Program[list[Result]], World]:
    """Two agents who need each other, and their world: the same for every driver."""
    board = Board()
    tools = Toolbox([get_weather, board.read_board, board.write_board])
    guide = AgentLoop(react(tools), watch=tell.watch("guide"))
    scout = AgentLoop(react(tools), watch=tell.watch("scout"))
    return both(guide.run(GUIDE), scout.run(SCOUT)), pretend_world(tools)


def both(*programs: Program[Result]) -> Program[list[Result]]:
    """Programs side by side."""
    results: list[Result] = (yield Together(programs)).value
    return results


def pretend_world(tools: Toolbox) -> World:
    """A world in which no time passes."""
    return World(FakeModel(script), tools, clock=FakeClock().now, inline=True)


async def comes_to_an_end(driving: Coroutine[Any, Any, Any]) -> bool:
    """Whether it does, when every task may go on a thousand times; nothing in this world takes time."""
    task = asyncio.create_task(driving)
    for _ in range(1000):
        await asyncio.sleep(0)
    return task.done() or not task.cancel()


async def the_two(tell: Telling) -> None:
    """Two agents who need each other, first one by one and then side by side."""
    tell.heading("One by one: whoever waits holds up everybody (同步)")
    if not await comes_to_an_end(one_by_one(*office(tell))):
        tell("Nothing moves. The guide waits for the report, and the driver for the guide:", RED)
        tell("the scout, who would write the report, never gets its turn.", RED)

    tell.heading("Side by side: whoever waits holds up nobody (异步)")
    results = await drive_async(*office(tell))

    tell.heading("On a bus: the same two, event by event (事件总线)")
    taken_by = {topic: name for name, service in SERVICES.items() for topic in service.topics}
    bus = Bus()
    log = bus.subscribe(*taken_by, Came)
    again = await drive_on_bus(*office(Telling(io.StringIO())), bus=bus)
    tell.table(_event(log.get_nowait(), taken_by) for _ in range(log.qsize()))
    tell(f"The same turns as side by side: {_yes(again == results)}", GREEN)


def _event(event: Wanted | Came, taken_by: Mapping[type, str]) -> tuple[object, ...]:
    if isinstance(event, Came):
        return event.number, "came", "", "the program"
    effect = event.effect
    shown = call_text(effect.call) if isinstance(effect, CallTool) else ""
    return event.number, "wanted", f"{type(effect).__name__} {shown}", taken_by[type(effect)]


def _yes(value: bool) -> str:
    return "yes" if value else "NO"


def demo(tell: Telling) -> None:
    """Two agents who wait for each other; then one loop under every driver."""
    asyncio.run(the_two(tell))

    tell.heading("One loop, three drivers")
    tools = Toolbox([get_weather, get_attraction])
    world = pretend_world(tools)
    loop = AgentLoop(react(tools), watch=tell.watch("visitor"))
    expected = drive(loop.run(VISITOR), world)
    quiet = replace(loop, watch=None)
    for driver in (drive_async, drive_on_bus):
        result = asyncio.run(driver(quiet.run(VISITOR), world))
        tell(f"{driver.__name__}: the same turns, answer and counts: {_yes(result == expected)}", GREEN)

    tell.heading("Which to take (架构选型)")
    tell.table(
        [
            ("one task, short waits, easy to debug", "drive"),
            ("many agents, long tasks, tools that are async", "drive_async"),
            ("services that are to be replaced, watched or moved elsewhere", "drive_on_bus"),
        ]
    )
