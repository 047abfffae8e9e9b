"""Chapter 30: each run has a state of its own, and what is dear is shared; and who runs many of them."""

from __future__ import annotations

import asyncio
import io
import multiprocessing
import selectors
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import (
    Act,
    AgentLoop,
    CallModel,
    CallTool,
    Do,
    Finish,
    Journal,
    Kind,
    Program,
    Result,
    StopReason,
    Together,
    Toolbox,
    ToolCall,
    World,
    drive,
)
from chapters.ch07_drivers import drive_async, drive_on_bus
from chapters.ch30_isolation_and_sharing import (
    KINDS,
    Cache,
    ConnectionPool,
    Ended,
    Piece,
    Town,
    Workers,
    asks_about,
    branch,
    built,
    demo,
    gather_many,
    guide,
    limit,
    on_one_notebook,
    run_many,
    schedule,
)
from chapters.telling import Telling
from fake_llm import FakeClock, ScriptedModel, get_weather
from fake_llm.tools import WEATHER
from paradigms.react import react
from tests import check_cache, check_pool, check_run_many
from tests.check_run_many import good, office
from tests.many_worlds import failing, mortal

cities = st.sampled_from(sorted(WEATHER))


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    """A town with its database."""
    town = Town(built(tmp_path / "town.db"))
    yield town
    town.pool.close()


def alone(town: Town, task: str) -> Result:
    """What comes of a visitor who is the only one."""
    program, world = town.office(task)
    return drive(program, world)


# --- The promises -------------------------------------------------------------------------------


@pytest.mark.parametrize("promise", check_run_many.PROMISES)
def test_run_many_keeps(promise: str) -> None:
    check_run_many.PROMISES[promise](run_many)


@pytest.mark.parametrize("promise", check_pool.PROMISES)
def test_our_pool_keeps(promise: str) -> None:
    check_pool.PROMISES[promise](ConnectionPool)


@pytest.mark.parametrize("promise", check_cache.PROMISES)
def test_our_cache_keeps(promise: str) -> None:
    check_cache.PROMISES[promise](Cache)


# --- A state of its own -------------------------------------------------------------------------


def side_by_side(loop: AgentLoop, tasks: list[str]) -> Program[list[Result]]:
    return (yield Together(tuple(loop.run(task) for task in tasks))).value  # type: ignore[no-any-return]


@pytest.mark.parametrize("driver", [drive, drive_async, drive_on_bus], ids=lambda driver: driver.__name__)
def test_A127_what_comes_of_a_run_does_not_depend_on_who_runs_beside_it(
    town: Town, driver: Callable[..., Any]
) -> None:
    tools = Toolbox([town.get_weather, town.find_places])
    loop, world = AgentLoop(react(tools)), World(guide, tools, inline=True)

    @settings(max_examples=15)
    @given(st.lists(cities.map(asks_about), max_size=6))
    def prove(tasks: list[str]) -> None:
        found = driver(side_by_side(loop, tasks), world)
        if asyncio.iscoroutine(found):
            found = asyncio.run(found)
        turns = [[(turn.thought, turn.observations) for turn in each.turns] for each in found]
        by_oneself = [alone(town, task) for task in tasks]
        assert turns == [[(turn.thought, turn.observations) for turn in each.turns] for each in by_oneself]
        assert [each.answer for each in found] == [each.answer for each in by_oneself]

    prove()


def test_EA38_a_history_on_the_instance_tells_one_visitor_about_the_city_of_another(town: Town) -> None:
    tools = Toolbox([town.get_weather, town.find_places])
    loop, world = AgentLoop(on_one_notebook(react(tools))), World(guide, tools, inline=True)
    first, second = drive(side_by_side(loop, [asks_about("北京"), asks_about("上海")]), world)
    assert "北京" in second.answer
    again = drive(loop.run(asks_about("广州")), world)
    assert "北京" in again.answer, "and the next task too, long after"


@settings(max_examples=10)
@given(st.lists(cities.map(asks_about), max_size=8), st.integers(1, 4))
def test_threads_and_an_event_loop_come_to_the_same(tasks: list[str], workers: int) -> None:
    def quiet(task: str) -> tuple[Program[Any], World]:
        tools = Toolbox({"get_weather": get_weather, "find_places": get_weather})
        return AgentLoop(react(tools)).run(task), World(guide, tools)

    with ThreadPoolExecutor(workers) as threads:
        found = run_many(tasks, threads, quiet)
    assert found == asyncio.run(gather_many(tasks, quiet))
    assert [each.stop for each in found] == [StopReason.FINAL_ANSWER] * len(tasks)


def test_a_thousand_visitors_on_threads_and_on_an_event_loop(town: Town) -> None:
    tasks = [asks_about(city) for city in WEATHER] * 250
    answers = {task: alone(town, task).answer for task in tasks[:4]}
    with ThreadPoolExecutor(16) as threads:
        by_threads = run_many(tasks, threads, town.office)
    assert by_threads == asyncio.run(gather_many(tasks, town.office))
    assert [each.answer for each in by_threads] == [answers[task] for task in tasks]
    assert town.counts["weather looked up"] == 4
    assert 1 <= town.counts["connection opened"] <= 4


def test_gather_many_tells_of_failures_as_run_many_does() -> None:
    tasks = ["北京", "raise", "bug", "never", "exit", "away", "unspeakable", "no exception", "odd", ""]
    with ThreadPoolExecutor(2) as threads:
        assert asyncio.run(gather_many(tasks, office)) == run_many(tasks, threads, office)


def test_gather_many_side_by_side_with_async_models() -> None:
    everybody = asyncio.Barrier(50)

    async def model(request: CallModel) -> str:
        await everybody.wait()
        return f"Thought: 好。\nAction: Finish[{request.messages[1].content}]"

    def waiting(task: str) -> tuple[Program[Any], World]:
        return AgentLoop(react(Toolbox([]))).run(task), World(model)

    tasks = [f"第 {number} 位" for number in range(50)]
    found = asyncio.run(gather_many(tasks, waiting))
    assert [each.answer for each in found] == tasks


def test_gather_many_leaves_no_run_behind_when_one_breaks() -> None:
    paid: list[str] = []

    async def pay(who: str) -> str:
        await asyncio.sleep(0)
        paid.append(who)
        return "ok"

    def paying(task: str) -> tuple[Program[Any], World]:
        if task == "too short":
            return AgentLoop(react(Toolbox([]))).run(task), World(ScriptedModel([]), inline=True)
        if task == "cancelled":
            raise asyncio.CancelledError
        call = Act((ToolCall("pay", {"who": task}),))
        loop = AgentLoop(lambda context: Finish("done") if context.turns else call)
        return loop.run(task), World(tools=Toolbox([pay]), inline=True)

    first, short, cancelled, last = asyncio.run(gather_many(["甲", "too short", "cancelled", "乙"], paying))
    assert [first.answer, last.answer] == ["done", "done"] and paid == ["甲", "乙"]
    assert "ScriptEnded" in short.problem and "CancelledError" in cancelled.problem


def test_cancelling_gather_many_ends_each_run() -> None:
    ended: list[StopReason | None] = []

    async def main() -> None:
        hanging = asyncio.Event()

        async def model(request: CallModel) -> str:
            hanging.set()
            await asyncio.Event().wait()
            return "never"

        def waiting(task: str) -> tuple[Program[Any], World]:
            loop = AgentLoop(react(Toolbox([])), watch=lambda step: ended.append(step.after.stop))
            return loop.run(task), World(model, inline=True)

        gathering = asyncio.create_task(gather_many(["一", "二", "三"], waiting))
        await hanging.wait()
        gathering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gathering
        assert [stop for stop in ended if stop] == [StopReason.HUMAN] * 3, "it waits for their end"

    asyncio.run(main())


# --- Processes, and other machines --------------------------------------------------------------


@pytest.fixture(scope="module")
def processes() -> Iterator[Callable[[int], ProcessPoolExecutor]]:
    """Makes pools of processes that share nothing with this one: each is started anew (spawn)."""
    pools: list[ProcessPoolExecutor] = []

    def make(workers: int) -> ProcessPoolExecutor:
        pools.append(ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")))
        return pools[-1]

    yield make
    for pool in pools:
        pool.shutdown(cancel_futures=True)


Processes = Callable[[int], ProcessPoolExecutor]


def test_A130_processes_come_to_the_same_and_report_what_fails(processes: Processes, town: Town) -> None:
    tasks = [asks_about(city) for city in (*WEATHER, "巴黎")]
    here = partial(branch, str(town.path))
    with ThreadPoolExecutor(2) as threads:
        expected = run_many(tasks, threads, here)
    pool = processes(1)
    assert run_many(tasks, pool, here) == expected
    (found,) = run_many(["北京"], pool, failing)
    assert found == Ended("北京", problem="tests.many_worlds.TwoParts: 北京 and more")
    local = run_many(["北京", "上海"], pool, lambda task: mortal(task))
    assert all("<lambda>" in each.problem for each in local), "an office that cannot be imported is a problem"
    assert run_many(["北京"], pool, mortal) == [Ended(*each) for each in good("北京")], "the pool still works"


def test_A130_a_worker_that_dies_takes_only_what_it_had_not_done(processes: Processes) -> None:
    first, died, last = run_many(["北京", "die", "上海"], processes(1), mortal)
    assert [first] == [Ended(*each) for each in good("北京")]
    assert [each[:3] for each in (died, last)] == [("die", None, None), ("上海", None, None)]
    assert all("BrokenProcessPool" in each.problem for each in (died, last))


def test_a_dask_cluster_runs_it_unchanged(town: Town) -> None:
    distributed = pytest.importorskip("distributed")
    tasks = [asks_about(city) for city in WEATHER] + [asks_about("巴黎"), asks_about("北京")]
    here = partial(branch, str(town.path))
    with ThreadPoolExecutor(2) as threads:
        expected = run_many(tasks, threads, here)
    on_loopback = {"host": "127.0.0.1", "dashboard_address": None, "n_workers": 2, "threads_per_worker": 1}
    with (
        distributed.LocalCluster(**on_loopback) as cluster,
        distributed.Client(cluster) as client,
        client.get_executor(pure=False) as executor,
    ):
        assert run_many(tasks, executor, here) == expected


@pytest.mark.parametrize("printed", [b"\xb1\xb1\xbe\xa9 26", "北京 26".encode(), b"\xff\x00", b""])
def test_U01_what_a_process_prints_becomes_text_whatever_it_is(printed: bytes) -> None:
    def report() -> bytes:
        code = f"import sys; sys.stdout.buffer.write({printed!r})"
        return subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, check=True).stdout

    def program() -> Program[Any]:
        return (yield CallTool(ToolCall("report", {}))).value

    seen = drive(program(), World(tools=Toolbox([report]), inline=True))
    assert seen.ok and seen.text == printed.decode("utf-8", errors="replace")


# --- What is shared -----------------------------------------------------------------------------


def test_EA56_what_is_shared_belongs_to_no_loop(town: Town) -> None:
    for city in (*WEATHER, *WEATHER):
        alone(town, asks_about(city))
    assert town.counts == {"engine loaded": 1, "weather looked up": 4, "connection opened": 1}


def test_a_replay_touches_nothing_that_is_shared(town: Town) -> None:
    cache = Cache()
    looked_up: list[str] = []

    def look_up() -> str:
        looked_up.append("北京")
        return "晴"

    def program() -> Program[Any]:
        first = (yield Do("weather", lambda: cache.get("北京", look_up))).value
        second = (yield CallTool(ToolCall("find_places", {"city": "北京"}))).value
        return first, second.text

    journal = Journal()
    world = World(tools=Toolbox([town.find_places]), inline=True)
    found = drive(program(), world, journal)
    before = Counter(town.counts)
    assert drive(program(), World(), journal) == found == ("晴", "颐和园（湖景 + 古建筑）、长城")
    assert town.counts == before and looked_up == ["北京"]


def test_a_pool_that_is_busy_is_an_observation_that_says_so(tmp_path: Path) -> None:
    town = Town(built(tmp_path / "town.db"))
    town.pool = ConnectionPool(town.connect, 1, patience=0.01)

    def program() -> Program[Any]:
        return (yield CallTool(ToolCall("find_places", {"city": "北京"}))).value

    world = World(tools=Toolbox([town.find_places]), inline=True)
    with town.pool.lent():
        seen = drive(program(), world)
    assert (seen.ok, seen.kind) == (False, Kind.UNAVAILABLE)
    assert drive(program(), world).ok
    town.pool.close()


def test_no_two_threads_have_the_same_connection_of_sqlite(town: Town) -> None:
    held: Counter[int] = Counter()
    doubled: list[int] = []
    lock = threading.Lock()

    def work() -> None:
        for _ in range(20):
            with town.pool.lent() as connection:
                with lock:
                    held[id(connection)] += 1
                    doubled.extend(number for number, count in held.items() if count > 1)
                connection.execute("PRAGMA synchronous = OFF")  # what is looked at is not the disk
                connection.execute("INSERT INTO places VALUES ('天津', '五大道')")
                with lock:
                    held[id(connection)] -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with town.pool.lent() as connection:
        (count,) = connection.execute("SELECT count(*) FROM places WHERE city = '天津'").fetchone()
    assert (doubled, count) == ([], 120)


# --- The schedule -------------------------------------------------------------------------------

piece = st.builds(Piece, waits=st.integers(0, 5).map(float), computes=st.integers(0, 5).map(float))
runs = st.lists(st.lists(piece, min_size=1, max_size=4), min_size=1, max_size=8)


@given(runs, st.integers(1, 8), st.integers(1, 4))
def test_a_schedule_lies_between_what_must_be_and_one_after_another(
    runs: list[list[Piece]], at_once: int, computing: int
) -> None:
    longest = max(sum(map(sum, run)) for run in runs)
    computed = sum(piece.computes for run in runs for piece in run)
    in_turn = sum(sum(map(sum, run)) for run in runs)
    if not in_turn:
        with pytest.raises(ValueError, match="take time"):
            schedule(runs, Workers("", at_once, computing))
        return
    found = schedule(runs, Workers("", at_once, computing))
    assert max(longest, computed / computing) <= found.took <= in_turn
    assert 0 < found.places <= 1 + 1e-9 and 0 <= found.cores <= 1 + 1e-9
    assert schedule(runs, Workers("", 1, computing)).took == in_turn


class Timeless(selectors.DefaultSelector):
    """Waits for nothing: the clock is moved on by as long as it would have waited."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock

    def select(self, timeout: float | None = None) -> Any:
        self.clock.advance(timeout or 0.0)
        return super().select(0)


@pytest.mark.parametrize("model", [Piece(waits=1.0), Piece(waits=0.1), Piece(0.2, 0.3)], ids=str)
@pytest.mark.parametrize("tool", [Piece(waits=0.5), Piece(computes=0.5)], ids=str)
@pytest.mark.parametrize("count", [1, 7])
def test_A131_a_real_event_loop_takes_as_long_as_the_schedule_says(
    model: Piece, tool: Piece, count: int
) -> None:
    clock = FakeClock()
    runs = [[model, tool, model, tool, model]] * count

    def timeless() -> asyncio.AbstractEventLoop:
        loop = asyncio.SelectorEventLoop(Timeless(clock))
        loop.time = clock.now  # type: ignore[method-assign]
        return loop

    async def work(piece: Piece) -> None:
        clock.advance(piece.computes)  # nobody else gets a turn
        await asyncio.sleep(piece.waits)

    def program(run: list[Piece]) -> Program[None]:
        for each in run:
            yield Do("piece", partial(work, each))

    async def main() -> None:
        world = World(clock=clock.now, inline=True)
        await asyncio.gather(*[drive_async(program(run), world) for run in runs])

    with asyncio.Runner(loop_factory=timeless) as runner:
        runner.run(main())
    assert clock.now() == pytest.approx(schedule(runs, Workers("asyncio", count, 1)).took)


def test_A129_A130_A131_each_kind_has_its_work() -> None:
    def winner(run: list[Piece]) -> str:
        return min(KINDS, key=lambda workers: schedule([run] * 1000, workers).took).name

    assert winner([Piece(waits=1.0)] * 3) == "asyncio"
    assert winner([Piece(computes=0.5)] * 3) == "processes"
    threads, processes, _ = KINDS
    assert "no more than 4" in limit(processes, schedule([[Piece(waits=1.0)]] * 1000, processes))
    assert "1 at a time" in limit(threads, schedule([[Piece(computes=1.0)]] * 1000, threads))


def test_the_demo_computes_what_it_claims() -> None:
    out = io.StringIO()
    demo(Telling(out))
    told = out.getvalue()
    assert "somebody else's city: 4 of 4" in told and "somebody else's city: 0 of 4" in told
    assert "the same answers: yes" in told
    assert told.index("2 of 5 answers are left") < told.index("4 of 5 answers are left")
    assert told.index("asyncio won") < told.index("processes won")
