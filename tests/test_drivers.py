"""The drivers: every promise under each of them, planted faults, and what only an event loop can do."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

import agentloop
from agentloop import (
    AgentLoop,
    AskHuman,
    Away,
    CallModel,
    CallTool,
    Control,
    Dispatcher,
    Do,
    Finish,
    Interrupt,
    Job,
    Journal,
    Kind,
    Limits,
    Message,
    Observation,
    Program,
    Reply,
    Result,
    Sleep,
    Start,
    Step,
    StopReason,
    Strand,
    Together,
    Toolbox,
    ToolCall,
    World,
    drive,
)
from chapters.ch07_drivers import Bus, Came, Conductor, Tasks, Wanted, drive_async, drive_on_bus, one_by_one
from fake_llm import FakeClock
from tests import check_driver
from tests.check_driver import DONE, LONG, PATIENCE, PROMISES, act, blocking, plain, script, together
from tests.gallery import Fault, wrong_version
from tests.workbench import CutOff, run_with_patience

ROOT = Path(__file__).parent.parent
DRIVERS = (drive, drive_async, drive_on_bus)
ASYNC = (drive_async, drive_on_bus)
MODULE = "chapters.ch07_drivers"

Driver = Callable[..., Any]


def named(driver: Driver) -> str:
    return driver.__name__


@pytest.fixture(params=ASYNC, ids=named)
def driver(request: pytest.FixtureRequest) -> Driver:
    """Each driver of the event loop."""
    found: Driver = request.param
    return found


# --- The promises -----------------------------------------------------------------------------


@pytest.mark.parametrize("promise", PROMISES)
@pytest.mark.parametrize("each", DRIVERS, ids=named)
def test_each_driver_keeps_each_promise(each: Driver, promise: str) -> None:
    run_with_patience(lambda: PROMISES[promise](each), 3 * LONG)


FAULTS = tuple(
    Fault(name, function, old, new, caught_by, check="driver", of="drive")
    for name, function, old, new, caught_by in (
        (
            "patient: it waits for a call however long it takes (EB13)",
            "Dispatcher.begin",
            "until = now + effect.allowed",
            "until = math.inf",
            "it_leaves_a_hanging_call_behind",
        ),
        (
            "lenient: what comes late has come",
            "Dispatcher.take_in",
            "at > job.until",
            "False",
            "it_comes_to_the_same",
        ),
        (
            "confused: what came of a call that was left behind is the outcome of the next",
            "Dispatcher.finish",
            "self.begun.get(job.strand) is not job",
            "job.strand not in self.begun",
            "it_leaves_a_hanging_call_behind",
        ),
        (
            "zealous: a person has stopped the run, and more is begun",
            "Dispatcher.next_job",
            "and self.may_begin()",
            "",
            "nothing_begins_after_the_end",
        ),
        (
            "unpunctual: whether there is time left is not asked when a call has its turn",
            "Dispatcher.begin",
            "now >= effect.deadline",
            "False",
            "nothing_begins_after_the_end",
        ),
        (
            "alone: whoever performs is the only one who does",
            "Dispatcher.next_job",
            "self.hire()",
            "pass",
            "it_works_side_by_side",
        ),
        (
            "taciturn: what breaks outside of a call is told to nobody, and everybody waits",
            "Dispatcher.next_job",
            "self.fail(error)",
            "pass",
            "it_hands_over_what_breaks_the_clock",
        ),
        (
            "hasty: nobody is there to answer, so the run is torn down",
            "Dispatcher.take_crash",
            "isinstance(crash, Away)",
            "False",
            "a_person_who_is_away_ends_nothing",
        ),
        (
            "absent-minded: a question that nobody answered is not among what a person stops",
            "Dispatcher.take_one_waiting",
            "if self.unanswered:",
            "if False:",
            "a_person_who_is_away_ends_nothing",
        ),
        (
            "stubborn: the last call beside a question that nobody answered is left behind, and nobody looks",
            "Dispatcher.deliver",
            "or (self.unanswered and not self.begun)",
            "",
            "a_person_who_is_away_ends_nothing",
        ),
        (
            "calm: a broken world is an outcome like any other",
            "Dispatcher.take_in",
            "job.crash is None",
            "not isinstance(job.crash, KeyboardInterrupt)",
            "it_hands_over_what_breaks_the_world",
        ),
        (
            "rude: Ctrl-C inside a call leaves no result",
            "Dispatcher.take_crash",
            "isinstance(crash, KeyboardInterrupt)",
            "False",
            "a_tool_may_stop_it",
        ),
        (
            "hurried: the time a person takes is the run's",
            "Dispatcher.without_the_person",
            "self.clock.stood_still(max(since, self.stage.at))",
            "self.clock.latest",
            "its_time_is_the_time_of_the_run",
        ),
        (
            "generous: while a person is waited for, nobody's time passes",
            "Dispatcher.without_the_person",
            "any(type(strand.effect) is not AskHuman for strand in self.begun)",
            "False",
            "its_time_is_the_time_of_the_run",
        ),
        (
            "forgetful: nothing is written down",
            "Dispatcher.open",
            "Stage(program, journal, self.world.may_repeat)",
            "Stage(program, None, self.world.may_repeat)",
            "it_keeps_the_journal",
        ),
        (
            "careless: a payment in doubt is made again",
            "Dispatcher.open",
            "Stage(program, journal, self.world.may_repeat)",
            "Stage(program, journal, lambda name: True)",
            "it_never_repeats_what_may_have_happened",
        ),
        (
            "timeless: after a resume, time starts again",
            "Dispatcher.open",
            "RunClock(self.world.clock, self.stage.at)",
            "RunClock(self.world.clock)",
            "its_time_is_the_time_of_the_run",
        ),
    )
) + tuple(
    Fault(name, function, old, new, caught_by, check="driver", of=of, module=MODULE)
    for name, function, old, new, caught_by, of in (
        (
            "sleepless: nobody looks when a call's time is up",
            "Tasks.watch",
            "self.watching_until < math.inf",
            "False",
            "it_leaves_a_hanging_call_behind",
            "drive_async",
        ),
        (
            "polite: it waits for threads that hang when it is done (EA43)",
            "perform_async",
            "_on_a_thread(call)",
            "asyncio.to_thread(call)",
            "a_person_stops_it_from_another_thread",
            "drive_async",
        ),
        (
            "trusting: a plain function is called on the event loop's own thread",
            "perform_async",
            "world.inline or inspect.iscoroutinefunction(call)",
            "True",
            "it_works_side_by_side",
            "drive_async",
        ),
        (
            "hard of hearing: a person is heard half a second later (EA07)",
            "Tasks.notify_from_any_thread",
            "call_soon_threadsafe(self.look)",
            "call_soon_threadsafe(self.event_loop.call_later, 0.5, self.look)",
            "a_person_stops_it_from_another_thread",
            "drive_async",
        ),
        (
            "secretive: what breaks a call is known to nobody but its task",
            "Tasks.work",
            "job.value, job.crash = self.came_of(error, effect, self.world)",
            "del error",
            "it_hands_over_what_breaks_the_world",
            "drive_async",
        ),
        (
            "eager: the run is over, and a service begins what it was asked for",
            "Conductor.begins",
            "self.next_job()",
            "self.begin(self.ready.popleft())",
            "nothing_begins_after_the_end",
            "drive_on_bus",
        ),
        (
            "backlogged: a service begins, and the news that the run has ended waits in the queue",
            "Conductor.begins",
            "self.hear()",
            "pass",
            "nothing_begins_after_the_end",
            "drive_on_bus",
        ),
        (
            "forgetful of the last word: what was done before a person stopped the run waits in the queue",
            "Conductor.hear",
            "not self.news.empty()",
            "False",
            "nothing_begins_after_the_end",
            "drive_on_bus",
        ),
    )
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.partition(":")[0])
def test_a_planted_fault_is_caught(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_driver, "LONG", 4 * PATIENCE)  # these do wait, and some of them for ever
    with pytest.raises((AssertionError, CutOff)) as caught:
        run_with_patience(lambda: PROMISES[fault.caught_by](wrong_version(fault)), LONG)
    assert caught.type is CutOff or str(caught.value).strip(), "a broken promise is told in words"


def test_one_by_one_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_driver, "LONG", 4 * PATIENCE)

    async def plainest(
        program: Program[Any],
        world: World,
        journal: Journal | None = None,
        interrupt: Interrupt | None = None,
    ) -> Any:
        return await one_by_one(program, world)

    broken = []
    for name, promise in PROMISES.items():
        try:
            promise(plainest)
        except AssertionError:
            broken.append(name)
    assert "it_works_side_by_side" in broken
    assert "it_keeps_the_journal" in broken
    assert "a_person_stops_it" in broken
    assert "it_hands_over_what_the_program_raises" not in broken, "that much it can"


# --- The blocking driver ----------------------------------------------------------------------


def test_no_more_calls_side_by_side_than_the_crew_has_members() -> None:
    lock, at_work, most = threading.Lock(), 0, 0
    everybody = threading.Barrier(agentloop.CREW)

    def work() -> None:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        everybody.wait(LONG)
        with lock:
            at_work -= 1

    def program() -> Program[Any]:
        yield Do("come", lambda: None)
        yield Do("work", work)

    programs = [program() for _ in range(10 * agentloop.CREW)]
    run_with_patience(lambda: drive(together(*programs), World()), 3 * LONG)
    assert most <= agentloop.CREW


# --- Functions of the world that are async def ------------------------------------------------


async def get_weather(city: str) -> str:
    """Tell the present weather of a city."""
    await asyncio.sleep(0)
    return f"{city}: Sunny"


@pytest.mark.parametrize("inline", [True, False])
def test_every_function_of_the_world_may_be_async(driver: Driver, inline: bool) -> None:
    async def model(request: CallModel) -> Reply:
        await asyncio.sleep(0)
        return Reply("好的")

    async def human(question: str) -> str:
        await asyncio.sleep(0)
        return "同意"

    async def draw() -> int:
        await asyncio.sleep(0)
        return 4

    async def fails() -> int:
        await asyncio.sleep(0)
        raise LookupError("nothing there")

    def program() -> Program[Any]:
        values = []
        for effect in (
            CallModel((Message("user", "北京"),)),
            CallTool(ToolCall("get_weather", {"city": "北京"})),
            CallTool(ToolCall("get_weather", {"town": "北京"})),
            AskHuman("May I?"),
            Do("draw", draw),
            Sleep(0.0),
        ):
            values.append((yield effect).value)
        try:
            yield Do("fails", fails)
        except agentloop.EffectFailed as error:
            values.append(str(error))
        return values

    world = World(model, Toolbox([get_weather]), human, inline=inline)
    *values, failure = asyncio.run(driver(program(), world))
    assert values[:2] == [Reply("好的"), Observation("北京: Sunny")]
    assert values[2].kind is Kind.BAD_ARGUMENTS
    assert values[3:] == ["同意", 4, None]
    assert failure == "Do fails failed: LookupError: nothing there"


class Unpleasant(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Unpleasant("no"), "Unpleasant: no"),
        (SystemExit(3), "SystemExit: 3"),
        (asyncio.CancelledError(), "RuntimeError: the call was cancelled"),
        (StopIteration(), "RuntimeError: coroutine raised StopIteration"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("inline", [True, False])
def test_what_an_async_tool_raises_is_an_observation(
    driver: Driver, inline: bool, error: BaseException, words: str
) -> None:
    async def tool() -> str:
        await asyncio.sleep(0)
        raise error

    seen = asyncio.run(driver(one_call("tool"), World(tools=Toolbox({"tool": tool}), inline=inline)))
    assert seen == Observation(f"tool failed with {words}", False, Kind.TOOL_ERROR)


@pytest.mark.parametrize("error", [SystemExit(3), StopIteration(7), asyncio.CancelledError()], ids=repr)
@pytest.mark.parametrize("inline", [True, False])
def test_what_a_plain_tool_raises_is_an_observation(
    driver: Driver, inline: bool, error: BaseException
) -> None:
    def tool() -> str:
        raise error

    seen = asyncio.run(driver(one_call("tool"), World(tools=Toolbox({"tool": tool}), inline=inline)))
    assert seen.kind is Kind.TOOL_ERROR


def one_call(name: str, allowed: float = LONG) -> Program[Any]:
    return (yield CallTool(ToolCall(name, {}), allowed)).value


@pytest.mark.parametrize("inline", [True, False])
def test_EB13_an_async_tool_that_hangs_is_cancelled_and_left_behind(driver: Driver, inline: bool) -> None:
    noticed = []

    async def hang() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            noticed.append("cancelled")
            raise
        return "never"

    seen = asyncio.run(driver(one_call("hang", PATIENCE), World(tools=Toolbox([hang]), inline=inline)))
    assert seen.kind is Kind.TIMEOUT
    assert noticed == ["cancelled"]


def test_a_tool_that_refuses_to_be_cancelled_is_left_behind_too(driver: Driver) -> None:
    async def main() -> Observation:
        released = asyncio.Event()

        async def hang() -> str:
            while not released.is_set():
                try:
                    await released.wait()
                except asyncio.CancelledError:
                    pass
            return "too late"

        seen: Observation = await driver(one_call("hang", PATIENCE), World(tools=Toolbox([hang])))
        released.set()
        return seen

    assert asyncio.run(main()).kind is Kind.TIMEOUT


def test_the_blocking_driver_says_what_an_async_tool_needs() -> None:
    def program() -> Program[Any]:
        return (yield CallTool(ToolCall("get_weather", {"city": "北京"}))).value

    assert "needs an asyncio driver" in drive(program(), World(tools=Toolbox([get_weather]))).text


def test_a_sleep_holds_up_nobody_and_a_fake_one_is_the_worlds_own(driver: Driver) -> None:
    clock = FakeClock()

    def program() -> Program[Any]:
        yield Sleep(3600.0)
        return (yield Sleep(60.0)).at

    world = World(clock=clock.now, sleep=clock.sleep, inline=True)
    assert asyncio.run(driver(program(), world)) == 3660.0
    assert clock.slept == [3600.0, 60.0]


@pytest.mark.parametrize("inline", [True, False])
def test_no_async_tool_begins_once_a_person_has_stopped_the_run(driver: Driver, inline: bool) -> None:
    interrupt, paid = Interrupt(), []

    async def pay() -> str:
        paid.append("paid")
        interrupt.set()
        await asyncio.sleep(0)
        return "a receipt"

    world = World(tools=Toolbox([pay]), inline=inline)
    asyncio.run(driver(together(*(one_call("pay") for _ in range(5))), world, None, interrupt))
    assert paid == ["paid"]


# --- Many at once -----------------------------------------------------------------------------


def test_a_thousand_loops_side_by_side(driver: Driver) -> None:
    """None of them ends before all have begun: each waits in its tool until the last has come."""

    async def main() -> list[Result]:
        begun, all_here = 0, asyncio.Event()

        async def meet() -> str:
            nonlocal begun
            begun += 1
            if begun == 1000:
                all_here.set()
            await all_here.wait()
            return "here"

        loop = AgentLoop(script("meets", act(("meet", {})), DONE))
        world = World(lambda request: "好", Toolbox([meet]), inline=True)
        results: list[Result] = await driver(together(*(loop.run("来") for _ in range(1000))), world)
        return results

    results = asyncio.run(main())
    assert len(results) == 1000
    assert {result.stop for result in results} == {StopReason.FINAL_ANSWER}
    assert len({result.turns[0].calls[0].id for result in results}) == 1000


def test_where_nothing_waits_a_task_performs_in_the_order_of_the_blocking_driver() -> None:
    """Programs side by side take turns, effect by effect: what they share comes to the same."""

    def steps(name: str, performed: list[str]) -> Program[Any]:
        for number in range(25):
            yield Do("step", partial(performed.append, f"{name}{number}"))
        return (yield from together(*(steps(name + each, performed) for each in "xy" if len(name) < 2)))

    orders = []
    for driver in (drive, drive_async):
        performed: list[str] = []
        programs = (steps(name, performed) for name in "abc")
        blocking(driver)(together(*programs), World(inline=True))
        orders.append(performed)
    assert orders[0] == orders[1]
    assert len(orders[0]) == 9 * 25


def test_two_runs_share_one_event_loop(driver: Driver) -> None:
    async def main() -> list[Any]:
        gate = asyncio.Event()

        async def open_gate() -> None:
            gate.set()

        world = World(tools=Toolbox({"wait": gate.wait, "open": open_gate}))
        return list(await asyncio.gather(driver(one_call("wait"), world), driver(one_call("open"), world)))

    assert [seen.text for seen in asyncio.run(main())] == ["true", "done (nothing was returned)"]


def test_nothing_is_left_running(driver: Driver) -> None:
    async def main() -> set[asyncio.Task[Any]]:
        async def hang() -> None:
            await asyncio.Event().wait()

        await driver(one_call("hang", PATIENCE), World(tools=Toolbox([hang])))
        for _ in range(5):
            await asyncio.sleep(0)
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(main()) == set()


class Watchable(World):
    """A world to which a weak reference can point."""


@pytest.mark.parametrize("end", ["an answer", "an error", "away", "a call that hangs", "a person's stop"])
def test_nothing_of_a_run_is_kept_in_memory_once_it_has_ended(driver: Driver, end: str) -> None:
    interrupt = Interrupt()

    def call() -> Any:
        if end == "a call that hangs":
            return asyncio.Event().wait()
        if end == "a person's stop":
            interrupt.set()
        return "called"

    def human(question: str) -> str:
        if end == "away":
            raise Away(question)
        return "好"

    def program() -> Program[Any]:
        yield AskHuman("May I?")
        yield Do("call", call, allowed=PATIENCE)
        if end == "an error":
            raise LookupError("nothing there")

    async def main() -> bool:
        world = Watchable(human=human, inline=True)
        kept = weakref.ref(world)
        try:
            await driver(program(), world, None, interrupt)
        except (Exception, Away):
            pass
        del world
        for _ in range(5):
            await asyncio.sleep(0)
        gc.collect()
        return kept() is None

    assert asyncio.run(main())


# --- Calls that cancel ------------------------------------------------------------------------


async def cancels_itself_and_goes_on() -> str:
    cast(asyncio.Task[Any], asyncio.current_task()).cancel()
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        pass
    return "went on"


async def cancels_itself_and_returns() -> str:
    cast(asyncio.Task[Any], asyncio.current_task()).cancel()
    return "returned"


async def cancels_itself() -> str:
    cast(asyncio.Task[Any], asyncio.current_task()).cancel()
    await asyncio.sleep(0)
    return "never"


async def waits_for_what_was_cancelled() -> str:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future
    return "never"


async def says_whether_it_is_cancelled() -> str:
    return f"cancelled {cast(asyncio.Task[Any], asyncio.current_task()).cancelling()} times"


async def waits_a_little() -> str:
    await asyncio.sleep(0.001)
    return "waited"


@pytest.mark.parametrize("inline", [True, False])
def test_what_a_call_does_to_its_own_task_is_not_told_of_the_next(driver: Driver, inline: bool) -> None:
    calls = (
        cancels_itself_and_goes_on,
        says_whether_it_is_cancelled,
        waits_a_little,
        waits_for_what_was_cancelled,
        cancels_itself_and_returns,
        waits_a_little,
        cancels_itself,
        waits_for_what_was_cancelled,
        waits_a_little,
    )

    def program() -> Program[Any]:
        seen = []
        for call in calls:
            observation: Observation = (yield CallTool(ToolCall(call.__name__, {}))).value
            seen.append(observation.text.rpartition(": ")[2])
        return seen

    found = asyncio.run(driver(program(), World(tools=Toolbox(set(calls)), inline=inline)))
    cancelled = "the call was cancelled"
    assert found == [
        *("went on", "cancelled 0 times"),
        *("waited", cancelled, "returned", "waited"),
        *(cancelled, cancelled, "waited"),
    ]


@pytest.mark.parametrize("another", [True, False])
def test_a_late_word_is_not_taken_for_another_runs(another: bool) -> None:
    """What a call of the first run returns long after its end is no outcome of the second."""

    async def main() -> Any:
        bus, release = Bus(), asyncio.Event()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

        async def stubborn() -> str:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    cast(asyncio.Task[Any], asyncio.current_task()).uncancel()
            return "of the first"

        async def second() -> str:
            release.set()
            await asyncio.sleep(PATIENCE)
            return "of the second"

        def calls(call: Callable[[], Any]) -> Program[Any]:
            return (yield Do("call", call, allowed=PATIENCE if call is stubborn else LONG)).value

        with pytest.raises(agentloop.EffectFailed):
            await drive_on_bus(calls(stubborn), World(), bus=bus)
        if another:
            return await drive_on_bus(calls(second), World(), bus=bus)
        result = await second()
        gc.collect()
        return result

    complaints: list[Any] = []
    assert asyncio.run(main()) == "of the second"
    assert complaints == [], "nor is it said to nobody"


def test_a_task_that_is_cancelled_before_its_first_turn_is_replaced() -> None:
    async def main() -> Any:
        me = asyncio.current_task()

        def cancel_the_others() -> None:
            for task in asyncio.all_tasks() - {me}:
                task.cancel()

        event_loop = asyncio.get_running_loop()
        event_loop.call_soon(lambda: event_loop.call_soon(cancel_the_others))
        return await drive_async(one_call("open"), World(tools=Toolbox({"open": lambda: "yes"}), inline=True))

    assert run_with_patience(lambda: asyncio.run(main()), 3 * LONG).text == "yes"


def cancel_the_others(*names: str) -> None:
    """Cancel the tasks of coroutines of these names, but the present one."""
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        if getattr(task.get_coro(), "__qualname__", "") in names:
            task.cancel()


def test_a_wish_whose_task_was_cancelled_before_its_first_turn_is_put_again() -> None:
    def calls(number: int) -> Program[Any]:
        return (yield Do("call", lambda: cancel_the_others("carry_out") or number)).value  # type: ignore[func-returns-value]

    def run() -> Any:
        return asyncio.run(drive_on_bus(together(*map(calls, range(3))), World(inline=True)))

    assert run_with_patience(run, 3 * LONG) == [0, 1, 2]


@pytest.mark.parametrize("name", ["serve", "Conductor.listen"])
def test_a_service_that_somebody_ended_is_missed(name: str) -> None:
    def calls() -> Program[Any]:
        yield Do("call", lambda: cancel_the_others(name))
        yield Do("one more", lambda: None)

    with pytest.raises(RuntimeError, match="a service of the bus has ended"):
        run_with_patience(lambda: asyncio.run(drive_on_bus(calls(), World(inline=True))), 3 * LONG)


@pytest.mark.parametrize("each", DRIVERS, ids=named)
def test_what_takes_a_generator_apart_is_told_like_any_other_crash(each: Driver) -> None:
    def leaves() -> None:
        raise GeneratorExit

    def program() -> Program[Any]:
        yield Do("leave", leaves)

    with pytest.raises(GeneratorExit):
        run_with_patience(lambda: blocking(each)(program(), World(inline=True)), 3 * LONG)


def test_nobody_looks_after_the_end(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call overran its time, and the driver is cancelled just as the run ends."""
    looks, look = [], Tasks.look

    def counted(tasks: Tasks) -> None:
        looks.append(tasks)
        look(tasks)

    monkeypatch.setattr(Tasks, "look", counted)
    for turns in range(8):
        clock = FakeClock()

        def program(clock: FakeClock = clock) -> Program[Any]:
            try:
                yield Do("slow", lambda: clock.advance(1.0), allowed=0.5)
            except agentloop.EffectFailed:
                pass

        async def main(turns: int = turns, clock: FakeClock = clock) -> int:
            driving = asyncio.create_task(driver(program(), World(clock=clock.now, inline=True)))
            for _ in range(turns):
                await asyncio.sleep(0)
            driving.cancel()
            await asyncio.wait([driving])
            before = len(looks)
            for _ in range(20):
                await asyncio.sleep(0)
            return len(looks) - before

        assert asyncio.run(main()) <= 2


def test_what_broke_while_a_task_was_hired_is_what_is_told() -> None:
    async def main() -> None:
        hired: list[str] = []

        class Full(Tasks):
            def start(self) -> None:
                hired.append("one")
                if len(hired) == 2:
                    raise MemoryError("no task")
                super().start()

        def program() -> Program[Any]:
            yield Do("first", lambda: None)
            yield from together(one_call("a"), one_call("b"), one_call("c"))

        await Full(World(inline=True), None).run(program(), None)

    with pytest.raises(MemoryError):
        run_with_patience(lambda: asyncio.run(main()), 3 * LONG)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
def test_eager_tasks_change_nothing(driver: Driver) -> None:
    async def main() -> Any:
        event_loop: Any = asyncio.get_running_loop()
        event_loop.set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009 - not in 3.11
        return await driver(together(*(one_call("get_weather") for _ in range(50))), World())

    assert len(run_with_patience(lambda: asyncio.run(main()), 3 * LONG)) == 50


# --- The first and the last word --------------------------------------------------------------


@pytest.mark.parametrize("each", DRIVERS, ids=named)
def test_a_call_that_stops_the_run_and_returns_has_returned_whichever_it_is(each: Driver) -> None:
    for last in range(1, 25):
        interrupt = Interrupt()
        told: list[Any] = []

        def program(
            last: int = last, interrupt: Interrupt = interrupt, told: list[Any] = told
        ) -> Program[Any]:
            for number in range(1, last + 1):
                done = interrupt.set if number == last else (lambda: None)
                told.append((yield Do(f"call {number}", done)).value)
            yield Do("one more", lambda: told.append("one more"))

        with pytest.raises(agentloop.Interrupted):
            blocking(each)(program(), World(inline=True), None, interrupt)
        assert told == [None] * last


@pytest.mark.parametrize("each", DRIVERS, ids=named)
@pytest.mark.parametrize("inline", [True, False])
def test_what_broke_a_run_first_is_what_is_told(each: Driver, inline: bool) -> None:
    """Neither somebody who is away, nor a program that breaks because the run ends, covers it."""

    def nobody(question: str) -> str:
        raise Away(question)

    def asks() -> Program[Any]:
        try:
            yield AskHuman("May I?")
        except agentloop.Interrupted:
            raise SystemError("second") from None

    class Full(Journal):
        def intend(self, address: tuple[int, ...], asked: str) -> None:
            if asked == "Do work":
                raise OSError("first")
            super().intend(address, asked)

    def works() -> Program[Any]:
        yield Do("work", lambda: None)

    with pytest.raises(OSError, match="first"):
        blocking(each)(together(asks(), works()), World(human=nobody, inline=inline), Full())

    class Worse(BaseException):
        pass

    def breaks() -> Program[Any]:
        try:
            yield AskHuman("May I too?")
        except agentloop.Interrupted:
            raise Worse("first") from None

    def stops() -> Program[Any]:
        yield Sleep(0.0)
        yield Do("stop", interrupt.set)

    interrupt = Interrupt()
    world = World(human=nobody, inline=inline)
    with pytest.raises(Worse):
        blocking(each)(together(breaks(), asks(), stops()), world, None, interrupt)


def test_no_program_is_stepped_after_the_run_has_broken(driver: Driver) -> None:
    """Two calls run out of time at once, and the first program that hears of it breaks the run."""

    class Broken(BaseException):
        pass

    heard: list[int] = []

    def program(number: int) -> Program[Any]:
        try:
            yield Do(f"hang {number}", asyncio.Event().wait, allowed=PATIENCE)
        except agentloop.EffectFailed:
            heard.append(number)
            raise Broken(number) from None

    with pytest.raises(Broken):
        asyncio.run(driver(together(program(1), program(2)), World()))
    assert len(heard) == 1


@pytest.mark.parametrize("inline", [True, False])
def test_nothing_begins_once_the_driver_is_cancelled(driver: Driver, inline: bool) -> None:
    paid: list[str] = []

    def pays(cancel: Callable[[], object]) -> Program[Any]:
        for number in range(3):
            yield Start(f"step {number}")
            cancel()
        for _ in range(20):
            yield Do("pay", partial(paid.append, "paid"))

    async def cancelled_before() -> None:
        cast(asyncio.Task[Any], asyncio.current_task()).cancel()
        await driver(pays(lambda: None), World(inline=inline))

    async def cancelled_by_a_step() -> None:
        driving: asyncio.Task[Any]
        driving = asyncio.create_task(driver(pays(lambda: driving.cancel()), World(inline=inline)))
        await driving

    for main in (cancelled_before, cancelled_by_a_step):
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(main())
        assert paid == []


def test_a_caller_that_swallowed_a_cancellation_may_drive_another_run(driver: Driver) -> None:
    async def main() -> Any:
        cast(asyncio.Task[Any], asyncio.current_task()).cancel()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            pass
        return await driver(one_call("open"), World(tools=Toolbox({"open": lambda: "yes"})))

    assert asyncio.run(main()).text == "yes"


def test_what_broke_while_a_cancellation_ended_the_run_is_its_cause(driver: Driver) -> None:
    class Full(Journal):
        def record(self, address: tuple[int, ...], asked: str, outcome: Any) -> None:
            raise OSError("no space left on device")

    async def main() -> None:
        hanging = asyncio.Event()

        async def hang() -> None:
            hanging.set()
            await asyncio.Event().wait()

        driving = asyncio.create_task(driver(one_call("hang"), World(tools=Toolbox([hang])), Full()))
        await hanging.wait()
        driving.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await driving
        assert isinstance(caught.value.__cause__, OSError)

    asyncio.run(main())


# --- Cancelling -------------------------------------------------------------------------------


class Watched:
    """A loop whose tool hangs, with what a watcher saw of it and what its journal holds."""

    def __init__(self) -> None:
        self.hanging = asyncio.Event()
        self.steps: list[Step] = []
        self.journal = Journal()
        self.loop = AgentLoop(script("hangs", act(("hang", {})), DONE), watch=self.steps.append)
        self.world = World(lambda request: "好", Toolbox([self.hang]))

    async def hang(self) -> str:
        self.hanging.set()
        await asyncio.Event().wait()
        return "never"

    def driving(self, driver: Driver) -> asyncio.Task[Result]:
        driving: Coroutine[Any, Any, Result] = driver(self.loop.run("等"), self.world, self.journal)
        return asyncio.create_task(driving)

    @property
    def end(self) -> Control:
        return self.steps[-1].after

    def replayed(self) -> Result:
        return drive(self.loop.run("等"), World(), self.journal)


def test_cancelling_ends_the_program_and_then_goes_on_to_the_caller(driver: Driver) -> None:
    async def main() -> Watched:
        watched = Watched()
        driving = watched.driving(driver)
        await watched.hanging.wait()
        driving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await driving
        assert driving.cancelled()
        return watched

    watched = asyncio.run(main())
    assert watched.end.stop is StopReason.HUMAN, "a watcher has seen the end"
    result = watched.replayed()
    assert result.stop is StopReason.HUMAN, "and the journal has it"
    assert [seen.kind for seen in result.turns[0].observations] == [Kind.UNCERTAIN]


def test_cancelling_twice_is_cancelling(driver: Driver) -> None:
    async def main() -> Control:
        watched = Watched()
        driving = watched.driving(driver)
        await watched.hanging.wait()
        driving.cancel()
        driving.cancel()
        await asyncio.wait([driving])
        assert driving.cancelled()
        return watched.end

    assert asyncio.run(main()).stop is StopReason.HUMAN


def test_a_time_limit_of_asyncio_is_a_cancellation_too(driver: Driver) -> None:
    async def main() -> Control:
        watched = Watched()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await driver(watched.loop.run("等"), watched.world)
        return watched.end

    assert asyncio.run(main()).stop is StopReason.HUMAN


def test_a_run_in_the_background_ends_with_its_event_loop(driver: Driver) -> None:
    async def main() -> Watched:
        watched = Watched()
        keep.append(watched.driving(driver))
        await watched.hanging.wait()
        return watched

    keep: list[asyncio.Task[Result]] = []
    watched = asyncio.run(main())
    assert watched.end.stop is StopReason.HUMAN
    assert keep[0].cancelled()


def test_an_interrupt_after_its_event_loop_has_closed_changes_nothing(driver: Driver) -> None:
    interrupt = Interrupt()
    world = World(lambda request: "好", inline=True)
    result = asyncio.run(driver(AgentLoop(lambda context: Finish("好")).run("题"), world, None, interrupt))
    interrupt.set()
    assert result.stop is StopReason.FINAL_ANSWER


def test_whoever_swallows_the_end_is_cut_off_when_cancelled(driver: Driver) -> None:
    def deaf() -> Program[Any]:
        while True:
            try:
                yield Do("wait", asyncio.Event().wait)
            except Exception:
                pass

    async def main() -> None:
        driving = asyncio.create_task(driver(agentloop.bounded(deaf(), Limits()), World()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        driving.cancel()
        await asyncio.wait([driving])
        assert driving.cancelled()

    asyncio.run(main())


# --- Whole processes: Ctrl-C, and a tool that hangs for a minute ------------------------------

START = """
import asyncio, os, signal, sys, threading
sys.path.insert(0, {root!r})
from agentloop import *
from chapters.ch07_drivers import drive_async, drive_on_bus

INLINE = {inline}

def reason(context):
    yield Sleep(0.0)
    if context.turns:
        return Finish("never")
    return Act((ToolCall({tool!r}, {{}}),), "")

def hang():
    threading.Event().wait(60)

def ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)
    if not INLINE:
        hang()
    return "sent"

async def ctrl_c_and_wait():
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(60)

seen = []
loop = AgentLoop(reason, watch=seen.append, limits=Limits(call_seconds={seconds}, seconds=1e6))
world = World(tools=Toolbox([hang, ctrl_c, ctrl_c_and_wait]), inline=INLINE)
program = loop.run("等")
try:
    result = {run}
    print("returned", end=" ")
except KeyboardInterrupt:
    print("KeyboardInterrupt", end=" ")
print(seen[-1].after.stop.name)
"""

RUN = {
    "drive": "drive(program, world)",
    "drive_async": "asyncio.run(drive_async(program, world))",
    "drive_on_bus": "asyncio.run(drive_on_bus(program, world))",
}


def in_a_process(driver: str, tool: str, inline: bool, seconds: float) -> str:
    """What a process says that drives one call of that tool; it has half of the tool's minute to end."""
    source = START.format(root=str(ROOT), run=RUN[driver], tool=tool, inline=inline, seconds=seconds)
    done = subprocess.run(
        [sys.executable, "-B", "-c", source],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        env={**os.environ, "PYTHONUTF8": "1"},
        timeout=30,
        check=False,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("each", RUN)
def test_EA43_L06_a_process_ends_although_a_tool_of_it_hangs_for_a_minute(each: str) -> None:
    assert in_a_process(each, "hang", inline=False, seconds=PATIENCE) == "returned FINAL_ANSWER"


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize(
    ("each", "tool", "words"),
    [
        ("drive", "ctrl_c", "returned HUMAN"),
        ("drive_async", "ctrl_c", "KeyboardInterrupt HUMAN"),
        ("drive_on_bus", "ctrl_c", "KeyboardInterrupt HUMAN"),
        ("drive_async", "ctrl_c_and_wait", "KeyboardInterrupt HUMAN"),
        ("drive_on_bus", "ctrl_c_and_wait", "KeyboardInterrupt HUMAN"),
    ],
)
def test_EA07_ctrl_c_ends_the_run_cleanly(each: str, tool: str, words: str, inline: bool) -> None:
    assert in_a_process(each, tool, inline, seconds=3600.0) == words


# --- The parts --------------------------------------------------------------------------------


def test_a_dispatcher_hands_out_nothing_once_the_run_has_broken_or_a_person_has_stopped_it() -> None:
    for broken in (True, False):
        dispatcher = Dispatcher(World())
        dispatcher.open(together(one_call("pay"), one_call("pay")), None)
        assert dispatcher.next_job() is not None
        if broken:
            dispatcher.fail(KeyError("broken"))
        else:
            dispatcher.interrupt.set()
        assert dispatcher.next_job() is None


def test_a_bus_carries_one_run_at_a_time_and_keeps_nothing_of_it() -> None:
    """The services of two runs would each make every call of both."""

    async def main() -> tuple[list[str], list[Any], Bus]:
        bus, paid = Bus(), []
        at_work, may_end = asyncio.Event(), asyncio.Event()

        async def pay(who: str) -> str:
            paid.append(who)
            at_work.set()
            await may_end.wait()
            return f"receipt of {who}"

        def pays(who: str) -> Program[Any]:
            return (yield CallTool(ToolCall("pay", {"who": who}))).value.text

        world = World(tools=Toolbox([pay]))
        first = asyncio.create_task(drive_on_bus(pays("A"), world, bus=bus))
        await at_work.wait()
        with pytest.raises(ValueError, match="this bus carries a run already"):
            await asyncio.wait_for(drive_on_bus(pays("B"), world, bus=bus), LONG)
        may_end.set()
        return paid, [await first, await drive_on_bus(pays("C"), world, bus=bus)], bus

    paid, receipts, bus = asyncio.run(main())
    assert paid == ["A", "C"]
    assert receipts == ["receipt of A", "receipt of C"]
    assert not bus.subscribers, "both runs have left"


def test_what_comes_after_the_end_of_a_run_is_not_taken_for_an_outcome_of_the_next() -> None:
    async def main() -> Any:
        bus, interrupt = Bus(), Interrupt()

        async def pay() -> str:
            interrupt.set()
            await asyncio.sleep(0)
            return "a receipt that comes too late"

        with pytest.raises(agentloop.Interrupted):
            await drive_on_bus(one_call("pay"), World(tools=Toolbox([pay])), None, interrupt, bus)
        return await drive_on_bus(one_call("open"), World(tools=Toolbox({"open": lambda: "yes"})), bus=bus)

    assert asyncio.run(main()).text == "yes"


def test_who_listens_in_hears_the_next_run_too() -> None:
    async def main() -> list[type]:
        bus = Bus()
        log = bus.subscribe(CallTool)
        for _ in range(2):
            await drive_on_bus(one_call("open"), World(tools=Toolbox({"open": lambda: "yes"})), bus=bus)
        return [type(log.get_nowait().effect) for _ in range(log.qsize())]

    assert asyncio.run(main()) == [CallTool, CallTool]


@pytest.mark.parametrize("each", DRIVERS, ids=named)
def test_arguments_that_cannot_be_read_end_the_run(each: Driver) -> None:
    """What breaks before a tool is entered belongs to no call, and still somebody hears of it."""

    class Unreadable(Mapping[str, Any]):
        def __getitem__(self, name: str) -> Any:
            raise RuntimeError("unreadable")

        def __iter__(self) -> Iterator[str]:
            raise RuntimeError("unreadable")

        def __len__(self) -> int:
            return 1

    def program() -> Program[Any]:
        return (yield CallTool(ToolCall("get_weather", Unreadable()))).value

    world = World(tools=Toolbox([get_weather]), inline=True)
    with pytest.raises(RuntimeError, match="unreadable"):
        run_with_patience(lambda: blocking(each)(program(), world), 3 * LONG)


def test_what_an_outcome_costs_does_not_grow_with_the_programs_beside_it() -> None:
    """Counted in looks at what else is under way, where none of it is a question."""

    class Counted(dict[Strand, Job]):
        looks = 0

        def __iter__(self) -> Iterator[Strand]:
            for strand in super().__iter__():
                self.looks += 1
                yield strand

    async def main() -> int:
        conductor = Conductor(World(), None, Bus())
        wishes = conductor.bus.subscribe(CallTool)
        running = asyncio.create_task(conductor.run(together(*(one_call("open") for _ in range(100))), None))
        await asyncio.sleep(0)
        wanted = [wishes.get_nowait().number for _ in range(wishes.qsize())]

        async def begin_all() -> bool:
            return all([conductor.begins(number) for number in wanted])

        assert await asyncio.create_task(begin_all())
        conductor.begun = looked_at = Counted(conductor.begun)
        for number in wanted:
            conductor.take(Came(number, Observation("opened")))
        await running
        return looked_at.looks

    assert asyncio.run(main()) <= 100


def test_a_wish_nobody_has_subscribed_to_is_refused() -> None:
    bus = Bus()
    bus.subscribe(CallTool)
    with pytest.raises(TypeError, match="nobody on the bus takes Sleep; what is taken: CallTool"):
        bus.publish(Wanted(1, Sleep(0)))


@pytest.mark.parametrize("each", DRIVERS, ids=named)
def test_what_is_no_effect_ends_its_program_in_words(each: Driver) -> None:
    def program() -> Program[Any]:
        yield 42  # type: ignore[misc]

    with pytest.raises(TypeError, match="a program yields effects .* not 42"):
        blocking(each)(program(), World())


def test_a_conductor_performs_nothing_itself() -> None:
    """It only asks: here nobody answers, and a person ends the wait."""

    async def main() -> tuple[list[Any], Result]:
        interrupt = Interrupt()
        conductor = Conductor(World(), interrupt, Bus())
        wishes = conductor.bus.subscribe(Start, CallModel, CallTool)
        running = asyncio.create_task(conductor.run(plain(), None))
        await asyncio.sleep(0)
        interrupt.set()
        result: Result = await running
        return [wishes.get_nowait().effect for _ in range(wishes.qsize())], result

    asked, result = asyncio.run(main())
    assert [type(effect).__name__ for effect in asked] == ["Start"]
    assert result.stop is StopReason.HUMAN


@pytest.mark.parametrize("each", DRIVERS, ids=named)
def test_what_cannot_be_called_fails_in_words(each: Driver) -> None:
    """Somebody wrote ``Do("pay", pay())``: it has been done by now, and what it returned is no function."""

    def program() -> Program[Any]:
        try:
            return (yield Do("pay", 5)).value  # type: ignore[arg-type]
        except agentloop.EffectFailed as failed:
            return str(failed)

    assert blocking(each)(program(), World()) == "Do pay failed: 5 is not a function"


def test_what_is_no_world_is_refused_and_leaves_nothing_on_the_bus() -> None:
    bus = Bus()
    for driving in (drive_async(plain(), None), drive_on_bus(plain(), None, bus=bus)):  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="a World, not None"):
            asyncio.run(driving)
    assert not bus.subscribers


def test_blocking_makes_a_plain_function_of_an_async_driver() -> None:
    def program() -> Program[Any]:
        return (yield Together(())).value

    assert [blocking(each)(program(), World()) for each in DRIVERS] == [[], [], []]
