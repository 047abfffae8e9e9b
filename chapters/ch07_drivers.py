"""The loop only says what it wants; whether wishes wait for each other is decided by its driver.

Article A, 同步Loop vs 异步Event-Driven Loop (Synchronous and event-driven loops). Covers A-12..A-18.

The chapters before drove one loop at a time, and nothing in their worlds took long. Here the same
loops are driven in three ways (A-12, A-14), and not a line of them changes:

===================  ==============================================================================
``drive``            同步Loop, of the kernel: blocking, the simplest to follow and to debug
``drive_async``      tasks of an event loop: whoever waits holds up nobody else
``drive_on_bus``     事件总线: perception, reasoning and action as services with a queue each
===================  ==============================================================================

Without it, a loop of four lines (A-13: reason, decide, execute, append) waits inside of ``execute`` for
as long as that takes. A tool that hangs stops it for ever, and of two agents that need each other,
the first waits for the second, which waits for its turn: the demo shows them.

Every driver that keeps its promises is the kernel's ``Dispatcher`` with somebody to perform what it hands
out. ``drive`` has threads for that, or in an inline world the caller itself; ``Tasks`` has tasks of one
event loop, so nothing is locked; ``Conductor`` has the services on its bus. There, a person may stop the
run between a wish and its turn, another call break it, or its time run out: so a service asks once more
whether what is wanted ``begins``, and only then is the intent written down.

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
2. Replace the call of ``_on_a_thread`` by ``asyncio.to_thread`` in a copy of this file, and put its
   ``drive_async`` under the same command. Which promise breaks, and what is it waiting for?
3. Split the action service in two, one for ``get_weather`` and one for all other tools. What has to become
   a topic? Put your ``drive_on_bus`` under the same command: the promises still hold. That it is split,
   a log of the bus shows.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import io
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar, cast

from agentloop import (
    HANDLERS,
    AgentLoop,
    AskHuman,
    CallModel,
    CallTool,
    Dispatcher,
    Do,
    Effect,
    Interrupt,
    Job,
    Journal,
    Program,
    Result,
    Sleep,
    Stage,
    Start,
    Strand,
    Together,
    Toolbox,
    World,
    call_text,
    drive,
)
from chapters.telling import GREEN, RED, Telling
from fake_llm import FakeClock, FakeModel, get_attraction, get_weather
from paradigms.react import react

T = TypeVar("T")

# --- Performing one effect ----------------------------------------------------------------------


async def perform_async(effect: Effect, world: World) -> Any:
    """``perform`` for an event loop: the functions of the world may be ``async def``.

    A plain function is called right here in an inline world, and on a daemon thread elsewhere; what
    belongs to the event loop is for an ``async def`` to touch.
    """
    prepare, returned, raised, caught = HANDLERS[type(effect)]
    call = prepare(effect, world)
    if not callable(call):
        return call
    if type(effect) is Sleep and world.sleep is time.sleep:
        call = functools.partial(asyncio.sleep, effect.seconds)  # the blocking one would hold up everybody
    try:
        value = call() if world.inline or inspect.iscoroutinefunction(call) else await _on_a_thread(call)
        if hasattr(type(value), "__await__"):
            value = await value
        return returned(effect, world, value)
    except asyncio.CancelledError:
        if _times_cancelled(asyncio.current_task()):
            raise
        return cancelled(effect, world)  # its own doing
    except caught as error:
        return raised(effect, world, error)


def cancelled(effect: Effect, world: World) -> Any:
    """The outcome of a call that was cancelled, though nobody had stopped the run."""
    return HANDLERS[type(effect)].raised(effect, world, RuntimeError("the call was cancelled"))


def _times_cancelled(task: asyncio.Task[Any] | None) -> int:
    """How many times somebody wanted to end a task."""
    return 0 if task is None else task.cancelling()


class Answer(NamedTuple):
    """What a function returned, or what it raised."""

    value: Any = None
    error: BaseException | None = None


async def _on_a_thread(function: Callable[[], Any]) -> Any:
    """Call a plain function on a daemon thread, which is left behind together with a call that hangs.

    Not ``asyncio.to_thread``: its threads are waited for when the event loop ends (EA43).
    """
    answer: Future[Answer] = Future()
    answer.set_running_or_notify_cancel()  # from here on it can only be left, not be cancelled
    threading.Thread(target=lambda: answer.set_result(_answer(function)), daemon=True).start()
    came = await asyncio.wrap_future(answer)
    if came.error is not None:
        raise came.error
    return came.value


def _answer(function: Callable[[], Any]) -> Answer:
    try:
        return Answer(function())
    except BaseException as error:  # a Future refuses StopIteration, and takes CancelledError for its own end
        return Answer(error=error)


# --- The plainest driver ------------------------------------------------------------------------


async def one_by_one(program: Program[T], world: World) -> T:
    """The article's synchronous loop (A-13) as a driver: begin, wait until it is done, begin the next."""
    stage = Stage(program)
    waiting = deque(stage.waiting)
    while waiting:
        strand = waiting.popleft()
        waiting += stage.deliver(strand, await perform_async(strand.effect, world), 0.0)
    result: T = stage.result
    return result


# --- Side by side -------------------------------------------------------------------------------

#: After so many effects a task gives way, since none of them may have had to wait.
GIVES_WAY = 10


class Tasks(Dispatcher):
    """Performs effects in tasks of an event loop, as the blocking driver does on threads.

    All that happens (an outcome, a person's stop) comes in as a turn of the event loop, one after the
    other, so nothing is locked.
    """

    __slots__ = ("event_loop", "over", "alarm", "driver", "cancelled_before")
    most_at_once = sys.maxsize

    def __init__(self, world: World, interrupt: Interrupt | None) -> None:
        super().__init__(world, interrupt)
        self.event_loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self.event_loop.create_future()
        self.alarm: asyncio.TimerHandle | None = None
        self.driver = asyncio.current_task()
        self.cancelled_before = _times_cancelled(self.driver)

    async def run(self, program: Program[T], journal: Journal | None) -> T:
        """Go on until the program has ended. Cancelled, it lets the program end first, with HUMAN."""
        cancellation = None
        self.open(program, journal)
        self.interrupt.add_waker(self.notify_from_any_thread)
        try:
            self.notify()  # a turn later: if we are cancelled already, nothing begins
            while not self.stage.finished:
                try:
                    await self.over
                except asyncio.CancelledError as error:
                    cancellation = error
                    self.over = self.event_loop.create_future()  # the old one was cancelled with us
                    self.interrupt.set()
        finally:
            self.interrupt.remove_waker(self.notify_from_any_thread)
            self.dismiss()
        if cancellation is not None:
            raise cancellation from self.stage.error
        result: T = self.stage.result
        return result

    def may_begin(self) -> bool:
        if self.is_cancelled():
            self.interrupt.set()
        return super().may_begin()

    def is_cancelled(self) -> bool:
        """Whether somebody wants to end the driver, by Ctrl-C for one; it hears of that in a later turn."""
        return _times_cancelled(self.driver) > self.cancelled_before

    def dismiss(self) -> None:
        """Leave behind whatever is under way."""
        for job in tuple(self.begun.values()):
            self.leave_behind(job)
        if self.alarm:
            self.alarm.cancel()

    def look(self) -> None:
        """Look, and set the alarm for the next time. What breaks on the way ends the run."""
        try:
            super().look()
            if not self.stage.finished:
                self.watch()
        except BaseException as error:
            self.stage.fail(error)
        if self.stage.finished and not self.over.done():
            self.over.set_result(None)

    def watch(self) -> None:
        if self.alarm:
            self.alarm.cancel()
        self.alarm = None
        if self.watching_until < math.inf:
            seconds = self.watching_until - self.clock.latest
            self.alarm = self.event_loop.call_later(seconds, self.look)

    def notify(self) -> None:
        self.event_loop.call_soon(self.look)

    def notify_from_any_thread(self) -> None:
        try:
            self.event_loop.call_soon_threadsafe(self.look)
        except RuntimeError:
            pass  # the event loop has ended, and the run with it

    def start(self) -> None:
        # Not create_task: a factory of eager tasks would begin it in the middle of our own turn.
        task = asyncio.Task(self.work(), loop=self.event_loop)  # its job keeps it from the garbage collector
        task.add_done_callback(self.never_began)

    def never_began(self, task: asyncio.Task[None]) -> None:
        """Somebody cancelled a task before its first turn: another is to do what it was hired for."""
        self.starting -= 1
        self.notify()

    def leave_behind(self, job: Job) -> None:
        if job.task is not None:
            job.task.cancel()
        super().leave_behind(job)

    async def work(self) -> None:
        """A task's life: job after job, as long as there are any."""
        task = cast("asyncio.Task[None]", asyncio.current_task())
        task.remove_done_callback(self.never_began)
        self.starting -= 1
        performed = 0
        while job := self.next_job():
            job.task, effect = task, job.strand.effect
            try:
                job.value = await perform_async(effect, self.world)
            except BaseException as error:
                job.value, job.crash = self.came_of(error, effect, self.world)
            if not self.finish(job):
                return
            performed += 1
            if task.cancelling() or performed % GIVES_WAY == 0:
                await self.give_way(task)

    def came_of(self, error: BaseException, effect: Effect, world: World) -> tuple[Any, BaseException | None]:
        """The outcome of a call that was broken off, or what ends the run."""
        if not isinstance(error, asyncio.CancelledError):
            return None, error
        if self.is_cancelled():
            return None, KeyboardInterrupt()  # all tasks are, since the event loop ends
        return cancelled(effect, world), None  # its own doing, or it was left behind

    async def give_way(self, task: asyncio.Task[None]) -> None:
        """Let others have a turn, and forget that a call cancelled the task: the next did nothing."""
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            pass
        while task.cancelling():
            task.uncancel()


async def drive_async(
    program: Program[T], world: World, journal: Journal | None = None, interrupt: Interrupt | None = None
) -> T:
    """``drive`` for an event loop: the same promises, and the functions of the world may be ``async def``.

    Cancelling it, as Ctrl-C under ``asyncio.run`` does, ends the program with HUMAN; then the
    ``CancelledError`` goes on to the caller.
    """
    return await Tasks(world, interrupt).run(program, journal)


# --- On a bus -----------------------------------------------------------------------------------


class Wanted(NamedTuple):
    """An effect that a program waits for, under a number, on its way to whoever performs it."""

    number: int
    effect: Effect


class Came(NamedTuple):
    """What came of the effect of that number; a ``crash`` ends the whole run."""

    number: int
    value: Any = None
    crash: BaseException | None = None


class Bus:
    """Topics, and a queue for each subscriber: who publishes an event does not know who takes it.

    It carries one run at a time: the services of two would each perform what both want. Wishes are
    numbered on from run to run, so that no late word is taken for another's.
    """

    def __init__(self) -> None:
        self.wishes = 0
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


class Conductor(Tasks):
    """Asks for what is wanted on a bus, and hears there what came; it performs nothing itself."""

    most_at_once = 0

    def __init__(self, world: World, interrupt: Interrupt | None, bus: Bus) -> None:
        super().__init__(world, interrupt)
        self.bus = bus
        self.news: asyncio.Queue[Came] = bus.subscribe(Came)
        self.asked: dict[int, Strand] = {}  # who waits for a service to begin
        self.jobs: dict[int, Job] = {}

    def want(self, strands: Sequence[Strand]) -> None:
        for strand in strands:
            self.bus.wishes += 1
            self.asked[self.bus.wishes] = strand
            self.bus.publish(Wanted(self.bus.wishes, strand.effect))

    def take_one_waiting(self) -> Strand | None:
        return self.asked.popitem()[1] if self.asked else super().take_one_waiting()

    def waits_only_for_persons(self) -> bool:
        return not self.asked and super().waits_only_for_persons()

    def begins(self, number: int) -> bool:
        """Note that the present task begins what is wanted, if it still may: by now the run may be over."""
        self.hear()
        if number not in self.asked:
            return False
        self.ready.append(self.asked.pop(number))
        job = self.next_job()
        if job is not None:
            job.task = asyncio.current_task()
            self.jobs[number] = job
        return job is not None

    def waits_for(self, number: int) -> bool:
        """Whether what was wanted under that number has begun, and is waited for."""
        job = self.jobs.get(number)
        return job is not None and self.begun.get(job.strand) is job

    def look(self) -> None:
        self.hear()
        super().look()

    def hear(self) -> None:
        """Take in what waits in the queue: what was done before a person stopped the run counts."""
        while not self.news.empty():
            self.take(self.news.get_nowait())

    def take(self, came: Came) -> None:
        """Take in what came of an effect."""
        job = self.jobs.pop(came.number, None)
        if job is not None:
            job.task.cancel()  # it is done, unless another service answered
            job.value, job.crash = came.value, came.crash
            self.finish(job)

    def ask_again(self, wanted: Wanted, task: asyncio.Task[None]) -> None:
        """Put a wish on the bus once more, where the task that was to begin it has ended and never did."""
        if wanted.number in self.asked and not self.stage.finished:
            self.bus.publish(wanted)

    def miss(self, service: asyncio.Task[None]) -> None:
        """End the run where a service has ended: nobody else would notice."""
        if not self.is_cancelled():
            self.fail(RuntimeError("a service of the bus has ended"))

    async def listen(self) -> None:
        """Take in what comes."""
        while True:
            self.take(await self.news.get())


async def serve(wishes: asyncio.Queue[Wanted], world: World, conductor: Conductor) -> None:
    """Run a service: perform what is wanted, each in a task of its own."""
    while True:
        wanted = await wishes.get()
        task = asyncio.create_task(carry_out(wanted, world, conductor))
        task.add_done_callback(functools.partial(conductor.ask_again, wanted))


async def carry_out(wanted: Wanted, world: World, conductor: Conductor) -> None:
    """Perform an effect, if it still may begin, and say on the bus what came of it."""
    number, effect = wanted
    if not conductor.begins(number):
        return
    try:
        came = Came(number, await perform_async(effect, world))
    except BaseException as error:
        came = Came(number, *conductor.came_of(error, effect, world))
    if conductor.waits_for(number):
        conductor.bus.publish(came)


async def drive_on_bus(
    program: Program[T],
    world: World,
    journal: Journal | None = None,
    interrupt: Interrupt | None = None,
    bus: Bus | None = None,
) -> T:
    """``drive_async`` with services that know their queue, their part of the world, and whom to ask.

    ``bus`` is a new one; others may have subscribed to it, to listen in. Raises ``ValueError`` where it
    carries another run.
    """
    bus = bus or Bus()
    if bus.carries_a_run:
        raise ValueError("this bus carries a run already, whose services would perform this one's wishes too")
    conductor = Conductor(world, interrupt, bus)
    queues: list[asyncio.Queue[Any]] = [bus.subscribe(*service.topics) for service in SERVICES.values()]
    parts = [service.part_of(world) for service in SERVICES.values()]
    serving = [
        asyncio.create_task(each)
        for each in (
            conductor.listen(),
            *(serve(queue, part, conductor) for queue, part in zip(queues, parts, strict=True)),
        )
    ]
    for task in serving:
        task.add_done_callback(conductor.miss)
    bus.carries_a_run = True
    try:
        return await conductor.run(program, journal)
    finally:
        bus.carries_a_run = False
        for task in serving:
            task.remove_done_callback(conductor.miss)
            task.cancel()
        for queue in (conductor.news, *queues):
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
