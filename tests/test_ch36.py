"""Chapter 36: durable loops. Two workers, pauses, versions and lives; cases K01, K06, K09."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from agentloop import (
    AgentLoop,
    AskHuman,
    Away,
    CallTool,
    Do,
    Failure,
    Finish,
    Interrupt,
    Kind,
    LimitReached,
    Limits,
    Observation,
    Outcome,
    Program,
    ProgramChanged,
    StopReason,
    Together,
    Toolbox,
    ToolCall,
    World,
    call_tool,
    drive,
)
from chapters.ch07_drivers import drive_async, drive_on_bus
from chapters.ch31_checkpoints import AlreadyRunning, Checkpoints, IncompatibleCheckpoint
from chapters.ch36_durable_loops import (
    MORNINGS,
    SNOWFALL,
    DurableRun,
    Fence,
    HandedOn,
    LeaseLost,
    Life,
    StaleToken,
    inquiry,
    live,
    mornings,
    pause,
)
from fake_llm import FakeClock, ScriptedModel
from paradigms.function_calling import function_calling
from tests import check_disk_journal, check_inquiry, check_lease
from tests.check_approval import repeating
from tests.check_disk_journal import examples, folder
from tests.check_lease import ASKED, SECONDS, Shop, Worker, in_any_order, moves, shopping

ROOT = Path(__file__).parent.parent
DAY = 86_400.0


@pytest.fixture
def here() -> Iterator[Path]:
    with folder() as place:
        yield place


# --- The promises -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", check_lease.PROMISES)
def test_a_durable_run_keeps(name: str) -> None:
    check_lease.PROMISES[name](DurableRun)


@pytest.mark.parametrize("name", check_inquiry.PROMISES)
def test_an_inquiry_keeps(name: str) -> None:
    check_inquiry.PROMISES[name](inquiry)


@pytest.mark.parametrize("name", check_disk_journal.PROMISES)
def test_a_durable_run_is_a_journal_on_disk(name: str) -> None:
    clock = FakeClock()

    def opened_later(path: Path) -> DurableRun:
        clock.advance(SECONDS)
        return DurableRun(path, "somebody", seconds=SECONDS, clock=clock.now)

    check_disk_journal.PROMISES[name](opened_later)


# --- Lease, fence and inquiry together ----------------------------------------------------------


class Counter(Shop):
    """A shop with a fence, which knows its receipts; payments are asked about before they are repeated."""

    def __init__(self) -> None:
        super().__init__()
        self.fence, self.receipts = Fence(), dict[str, str]()

    def reached(self, token: int) -> World:
        def pay(amount: int, call_id: str) -> str:
            with self.fence.passed(token):
                self.deeds.append(f"pay {call_id}")
                self.receipts[call_id] = f"paid {amount}"
                return self.receipts[call_id]

        def find(purchase: str) -> str:
            with self.fence.passed(token):
                return self.receipts.get(purchase, "")

        return World(None, Toolbox([pay, find], idempotent=["find"]), clock=FakeClock().now, inline=True)

    def program(self, life: Life) -> Program[Any]:
        act = repeating(3)(inquiry(call_tool, receipt))
        call = ToolCall("pay", {"amount": life.number}, f"call_{life.number}")
        seen = [*(life.state or ()), (yield from act(call))]
        return HandedOn(seen) if life.number < 3 else seen


def receipt(call: ToolCall) -> Program[Observation | None]:
    found: Observation = (yield CallTool(ToolCall("find", {"purchase": call.id}))).value
    if not found.ok:
        return found._replace(kind=Kind.UNCERTAIN)
    return found if found.text else None


@examples
@given(moves)
def test_K01_K06_fenced_and_asked_about_what_is_told_is_what_was_done(order: list[str]) -> None:
    """Two workers in any order, stopped and dying: no doubt is left, and no payment is made twice."""
    with folder() as here:
        clock, path, shop = FakeClock(), here / "run.db", Counter()
        workers = {name: Worker(DurableRun, path, name, clock.now, shop) for name in "ab"}
        try:
            in_any_order(order, workers, clock)
            clock.advance(SECONDS)
            seen = check_lease.finished(DurableRun, path, shop, clock)
            for worker in workers.values():  # whoever was asleep wakes up, and tries to go on
                for _ in range(3):
                    with suppress(LeaseLost, AlreadyRunning):
                        worker.step()
        finally:
            for worker in workers.values():
                worker.close()
    for number, each in enumerate(seen, 1):
        paid = shop.deeds.count(f"pay call_{number}")
        assert each.kind in (Kind.RESULT, Kind.UNAVAILABLE), "nothing is in doubt"
        assert paid == (1 if each.ok else 0), f"told {each}, done {shop.deeds}"


def test_K01_without_the_fence_who_wakes_up_pays_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the fence is needed: the lease alone does not hold back what is on its way."""
    for is_fenced, paid in ((True, 1), (False, 2)):
        with folder() as here:
            clock, path, shop = FakeClock(), here / "run.db", Counter()
            if not is_fenced:
                reached = shop.reached
                monkeypatch.setattr(shop, "reached", lambda given, reached=reached: reached(0))
            sleeper = Worker(DurableRun, path, "sleeper", clock.now, shop)
            while sleeper._next != sleeper._perform or "pay" not in str(sleeper.strand.effect):
                sleeper.step()
            clock.advance(SECONDS)
            check_lease.finished(DurableRun, path, shop, clock)
            sleeper.step()
            with pytest.raises(LeaseLost):
                sleeper.step()
            sleeper.close()
        assert shop.deeds.count("pay call_1") == paid


def test_a_fence_lets_nobody_between_the_look_and_the_deed() -> None:
    fence, order = Fence(), list[str]()
    inside, asked = threading.Event(), threading.Event()

    def newer() -> None:
        inside.wait(10)
        asked.set()
        with fence.passed(2):
            order.append("newer")

    thread = threading.Thread(target=newer)
    thread.start()
    with fence.passed(1):
        inside.set()
        asked.wait(10)
        order.append("older")
    thread.join(10)
    assert order == ["older", "newer"]
    with pytest.raises(StaleToken, match="token 1 is stale: 2 was here"), fence.passed(1):
        order.append("stale")
    assert fence.turned_away == [1] and len(order) == 2


# --- Real processes -----------------------------------------------------------------------------

SLEEPER = '''
import sys
from pathlib import Path
from agentloop import AgentLoop, Toolbox, World, drive
from chapters.ch36_durable_loops import DurableRun, LeaseLost
from fake_llm import ScriptedModel, calls
from paradigms.function_calling import function_calling

here = Path(sys.argv[1])

def pay(amount: int) -> str:
    """Pay."""
    print("paying", flush=True)
    sys.stdin.readline()
    return "paid"

tools = Toolbox([pay])
model = ScriptedModel([calls(("pay", {"amount": 9})), "done"])
clock = lambda: float((here / "clock").read_text(encoding="utf-8"))
run = DurableRun(here / "run.db", "sleeper", clock=clock)
try:
    drive(AgentLoop(function_calling(tools)).run("pay"), World(model, tools, inline=True), run)
except LeaseLost as lost:
    print(lost)
'''


def test_K06_a_process_that_slept_is_told_by_the_file_alone(here: Path) -> None:
    clock, path = here / "clock", here / "run.db"

    def opened() -> DurableRun:
        return DurableRun(path, "awake", clock=lambda: float(clock.read_text(encoding="utf-8")))

    clock.write_text("0", encoding="utf-8")
    command = [sys.executable, "-B", "-c", SLEEPER, str(here)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, encoding="utf-8") as sleeper:
        assert sleeper.stdout is not None and sleeper.stdin is not None
        assert sleeper.stdout.readline() == "paying\n"
        with pytest.raises(AlreadyRunning, match="held by sleeper for 30 s more"):
            opened()
        clock.write_text("31", encoding="utf-8")
        tools = Toolbox([pay])
        with opened() as run:
            loop = AgentLoop(function_calling(tools))
            drive(loop.run("pay"), World(ScriptedModel(["I do not know."]), tools, inline=True), run)
            [uncertain] = [each for _, asked, each in run.outcomes if asked.startswith("CallTool")]
            assert uncertain.value.kind is Kind.UNCERTAIN
        before = path.read_bytes()
        told, _ = sleeper.communicate("wake up\n", timeout=60)
    assert told == "sleeper comes with token 1; awake has taken over with 2\n"
    assert path.read_bytes() == before


def pay(amount: int) -> str:
    """Pay."""
    raise AssertionError("it was begun already, and nobody knows what came of it")


KILLED = """
import os, signal, sys
from agentloop import World
from chapters.ch36_durable_loops import DurableRun, live
from tests.check_lease import Shop, shopping

class Killed(DurableRun):
    def _write(self, address, asked, arrived, value, at):
        super()._write(address, asked, arrived, value, at)
        if asked == "Start 'life 2'":
            os.kill(os.getpid(), signal.SIGKILL)  # before all of it is written

live(Killed(sys.argv[1], "killed", clock=lambda: 0.0), shopping(2), Shop().world)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system knows no SIGKILL")
def test_K01_killed_between_two_lives_a_run_is_whole(here: Path) -> None:
    command = [sys.executable, "-B", "-c", KILLED, str(here / "run.db")]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    shop = Shop()
    with DurableRun(here / "run.db", "next", clock=lambda: 31.0) as run:
        assert run.life.number == 1 and len(run.outcomes) == 6
        seen = live(run, shopping(2), shop.world)
        assert run.life.number == 2 and all(each.ok for each in seen)
    assert len(shop.deeds) == 2, "what the first life did is not done again"


# --- The lease while it works -------------------------------------------------------------------


def test_a_long_call_is_covered_by_a_heartbeat(here: Path) -> None:
    clock, beats, go_on = FakeClock(), list[float](), threading.Event()
    beaten = threading.Event()

    def wait(seconds: float) -> bool:
        beats.append(seconds)
        if len(beats) <= 6:
            clock.advance(seconds)
            return False
        beaten.set()
        return go_on.wait(10)

    with DurableRun(here / "run.db", "patient", seconds=9.0, clock=clock.now) as run:
        run.intend((1,), ASKED)
        with run.renewing(wait):
            assert beaten.wait(10), "the call takes two leases"
            with pytest.raises(AlreadyRunning):
                DurableRun(here / "run.db", "other", clock=clock.now)
            run.record((1,), ASKED, Outcome(None, 18.0))
            go_on.set()
        assert beats == [3.0] * 7


def test_a_heartbeat_that_comes_too_late_leaves_it_to_the_next_write(here: Path) -> None:
    clock = FakeClock()
    with DurableRun(here / "run.db", "late", clock=clock.now) as run:
        clock.advance(30)
        with DurableRun(here / "run.db", "other", clock=clock.now):
            with run.renewing(lambda seconds: False):
                pass
            with pytest.raises(LeaseLost, match="other has taken over with 2"):
                run.intend((1,), ASKED)


def test_a_heartbeat_ends_with_its_call(here: Path) -> None:
    with DurableRun(here / "run.db", "quick", clock=lambda: 0.0) as run:
        before = threading.active_count()
        with run.renewing():
            pass
        assert threading.active_count() == before


@pytest.mark.parametrize("driver", [drive, drive_async, drive_on_bus], ids=lambda each: each.__name__)
@pytest.mark.parametrize("inline", [True, False])
def test_whoever_loses_the_lease_ends_at_once_under_every_driver(
    driver: Callable[..., Any], inline: bool, here: Path
) -> None:
    clock, done = FakeClock(), list[str]()

    def nap() -> str:
        """Sleep through the lease."""
        clock.advance(60)
        DurableRun(here / "run.db", "awake", clock=clock.now).close()
        return "slept"

    def work() -> str:
        """Do what must not be done by one who has slept."""
        done.append("work")
        return "done"

    def program() -> Program[Any]:
        yield CallTool(ToolCall("nap", {}, "call_1"))
        yield CallTool(ToolCall("work", {}, "call_2"))

    world = World(tools=Toolbox([nap, work]), inline=inline)
    with (
        DurableRun(here / "run.db", "sleeper", clock=clock.now) as run,
        pytest.raises(LeaseLost, match="awake has taken over"),
    ):
        driven(driver, program(), world, run)
    assert done == []


def driven(driver: Callable[..., Any], program: Program[Any], world: World, journal: Any) -> Any:
    came = driver(program, world, journal)
    return asyncio.run(came) if asyncio.iscoroutine(came) else came


# --- Pauses -------------------------------------------------------------------------------------


@pytest.mark.parametrize("driver", [drive, drive_async, drive_on_bus], ids=lambda each: each.__name__)
@pytest.mark.parametrize("inline", [True, False])
def test_a_run_pauses_for_days_without_a_process(
    driver: Callable[..., Any], inline: bool, here: Path
) -> None:
    clock = FakeClock(1000.0)

    def program(life: Life) -> Program[Any]:
        date = yield from pause(3 * DAY, clock.now)
        answer = (yield AskHuman("茶好了吗？", "tea")).value
        return date, answer

    opened = 0
    came = None
    while came is None:
        opened += 1
        world = World(human=lambda question: "好了", clock=lambda: 0.0, inline=inline)
        with suppress(Away), DurableRun(here / "run.db", "daily", clock=clock.now) as run:
            came = live(run, program, world, driver=partial(driven, driver))
        clock.advance(DAY)
    assert came == (1000.0 + 3 * DAY, "好了") and opened == 4


def test_a_pause_that_is_resumed_keeps_its_date(here: Path) -> None:
    clock = FakeClock()
    for due in (False, False, True):
        with DurableRun(here / "run.db", "daily", clock=clock.now) as run:
            if due:
                assert live(run, lambda life: pause(2 * DAY, clock.now), World(inline=True)) == 2 * DAY
            else:
                with pytest.raises(Away, match="nothing is to be done until 172800"):
                    live(run, lambda life: pause(2 * DAY, clock.now), World(inline=True))
        clock.advance(DAY)


# --- Versions and lives -------------------------------------------------------------------------


def test_K09_a_patch_goes_on_as_the_version_that_began_it(here: Path) -> None:
    """An old journal does not fit the new program; told which version began it, the new one fits too."""

    def new(life: Life) -> Program[Any]:
        if life.version > 1:
            yield CallTool(ToolCall("look", {"at": "coffee"}))
        return (yield from shopping(1)(life))

    clock, shop = FakeClock(), Shop()
    with DurableRun(here / "run.db", "old", version=1, clock=clock.now) as run:
        due = live(run, shopping(1), shop.world)
    with DurableRun(here / "run.db", "new", version=2, carries_on=[1], clock=clock.now) as run:
        assert live(run, new, World(inline=True)) == due
        with pytest.raises(ProgramChanged, match="look"):
            live(run, lambda life: new(life._replace(version=2)), shop.world)
    with DurableRun(here / "other.db", "new", version=2, carries_on=[1], clock=clock.now) as run:
        live(run, new, shop.world)
    assert sum(deed.startswith("look") for deed in shop.deeds) == 3


def test_K09_files_of_other_chapters_are_told_apart(here: Path) -> None:
    Checkpoints(here / "run.db").close()
    before = (here / "run.db").read_bytes()
    with pytest.raises(IncompatibleCheckpoint, match="no such table: life"):
        DurableRun(here / "run.db", "one")
    assert (here / "run.db").read_bytes() == before
    DurableRun(here / "other.db", "one").close()
    with pytest.raises(IncompatibleCheckpoint):
        Checkpoints(here / "other.db")


def test_old_lives_lie_in_the_past(here: Path) -> None:
    with DurableRun(here / "run.db", "one", clock=lambda: 0.0) as run:
        live(run, shopping(3), Shop().world)
    database = sqlite3.connect(here / "run.db")
    rows = database.execute("SELECT life, COUNT(*) FROM past GROUP BY life ORDER BY life").fetchall()
    database.execute("DELETE FROM past")
    database.commit()
    database.close()
    assert rows == [(1, 6), (2, 6)]
    with DurableRun(here / "run.db", "two", clock=lambda: 0.0) as run:
        assert len(live(run, shopping(3), World(inline=True))) == 6, "nobody missed it"


@pytest.mark.parametrize("driver", [drive, drive_async, drive_on_bus], ids=lambda each: each.__name__)
@pytest.mark.parametrize("inline", [True, False])
def test_every_driver_lives_the_same_lives(driver: Callable[..., Any], inline: bool, here: Path) -> None:
    shop, clock = Shop(), FakeClock()
    world = World(shop.model, shop.world.tools, None, clock.sleep, clock.now, inline)
    with DurableRun(here / "run.db", "one", clock=lambda: 0.0) as run:
        seen = live(run, shopping(3), world, driver=partial(driven, driver))
        assert [each.text for each in seen] == [
            text for number in (1, 2, 3) for text in ("tea is there", f"paid {number}")
        ]
        assert run.life.spent.model_calls == 2 and run.life.number == 3
    with DurableRun(here / "run.db", "two", clock=lambda: 0.0) as run:
        assert live(run, shopping(3), World(inline=True)) == seen


def test_time_and_failures_of_a_run_are_those_of_all_its_lives(here: Path) -> None:
    """Two lives of one second each, and three seconds are allowed: the third is its last."""
    shop = Shop()
    with DurableRun(here / "run.db", "one", clock=lambda: 0.0) as run:
        with pytest.raises(LimitReached) as ended:
            live(run, shopping(9), shop.world, Limits(seconds=2.5))
        assert ended.value.reason is StopReason.WALL_CLOCK and run.life.number == 3


def test_a_program_out_of_allowance_keeps_what_it_has(here: Path) -> None:
    def program(life: Life) -> Program[Any]:
        seen = list(life.state or ())
        try:
            seen.append((yield CallTool(ToolCall("look", {"at": "tea"}))).value.text)
        except LimitReached as ended:
            return seen, ended.reason
        return HandedOn(seen)

    for effects, looked in ((4, 2), (6, 3)):
        path = here / f"{effects}.db"
        for _ in range(2):
            with DurableRun(path, "one", clock=lambda: 0.0) as run:
                came = live(run, program, Shop().world, Limits(effects=effects))
                assert came == (["tea is there"] * looked, StopReason.EFFECTS)


def test_where_no_allowance_is_left_for_handing_on_more_of_it_goes_on(here: Path) -> None:
    shop = Shop()
    for effects in (3, 3, 4, 5):  # a look and a handing on in each life
        with DurableRun(here / "run.db", "one", clock=lambda: 0.0) as run:
            with pytest.raises(LimitReached) as ended:
                live(run, looking, shop.world, Limits(effects=effects))
            assert (ended.value.reason, run.life.number) == (StopReason.EFFECTS, effects // 2 + 1)
    with DurableRun(here / "run.db", "one", clock=lambda: 0.0) as run:
        assert live(run, looking, shop.world) == 4
    assert len(shop.deeds) == 4


def looking(life: Life) -> Program[Any]:
    """One look in each of four lives."""
    yield CallTool(ToolCall("look", {"at": "tea"}))
    return HandedOn(None) if life.number < 4 else life.number


def test_a_life_that_hands_on_for_nothing_pays_for_it(here: Path) -> None:
    def idle(life: Life) -> Program[Any]:
        return HandedOn(life.state)
        yield

    with DurableRun(here / "run.db", "one", clock=lambda: 0.0) as run:
        with pytest.raises(LimitReached) as ended:
            live(run, idle, World(inline=True), Limits(effects=5))
        assert (ended.value.reason, run.life.number) == (StopReason.EFFECTS, 6)


def test_a_run_that_a_person_has_ended_is_not_handed_on(here: Path) -> None:
    interrupt = Interrupt()

    def child() -> Program[Any]:
        interrupt.set()
        return (yield from AgentLoop(lambda context: Finish("x")).run("a part"))

    def stopped(life: Life) -> Program[Any]:
        yield Do("something", lambda: 1)
        yield Together((child(),))
        return HandedOn("s")

    for _ in range(2):
        with DurableRun(here / "run.db", "one", clock=lambda: 0.0) as run:
            with pytest.raises(LimitReached) as ended:
                live(run, stopped, World(inline=True), driver=partial(drive, interrupt=interrupt))
            assert (ended.value.reason, run.life.number) == (StopReason.HUMAN, 1)


def test_a_loop_that_was_stopped_before_it_began_has_no_number(here: Path) -> None:
    with DurableRun(here / "run.db", "one", clock=lambda: 0.0) as run:
        run.record((1,), "Start 'life 1'", Outcome(1, 0.0))
        run.record((1, 0, 1), "Start 'a part'", Outcome(Failure("a person stopped the run", True), 1.0))
        run.begin_anew(HandedOn("s"))
        assert (run.life.number, run.outcomes[0][2]) == (2, Outcome(2, 1.0))


def test_a_person_stops_all_lives(here: Path) -> None:
    interrupt, shop = Interrupt(), Shop()

    def endless(life: Life) -> Program[Any]:
        if life.number == 3:
            interrupt.set()
        yield CallTool(ToolCall("look", {"at": "tea"}))
        return HandedOn(None)

    stoppable = partial(drive, interrupt=interrupt)
    for _ in range(2):
        with (
            DurableRun(here / "run.db", "one", clock=lambda: 0.0) as run,
            pytest.raises(LimitReached) as ended,
        ):
            live(run, endless, shop.world, driver=stoppable)
        assert ended.value.reason is StopReason.HUMAN and run.life.number == 3
    interrupt = Interrupt()
    with (
        DurableRun(here / "other.db", "one", clock=lambda: 0.0) as run,
        pytest.raises(LimitReached),
    ):
        interrupt.set()
        live(run, endless, shop.world, driver=partial(drive, interrupt=interrupt))


def test_a_run_that_was_stopped_before_it_began_stays_so(here: Path) -> None:
    interrupt = Interrupt()
    interrupt.set()
    for _ in range(2):
        with (
            DurableRun(here / "run.db", "one", clock=lambda: 0.0) as run,
            pytest.raises(LimitReached) as ended,
        ):
            live(run, shopping(2), Shop().world, driver=partial(drive, interrupt=interrupt))
        assert ended.value.reason is StopReason.HUMAN


# --- What it is given, and the story ------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0, -1.0, float("inf"), float("nan")])
def test_a_lease_ends(seconds: float, here: Path) -> None:
    with pytest.raises(ValueError, match="a lease lasts for a finite number of seconds above 0"):
        DurableRun(here / "run.db", "one", seconds=seconds)
    assert not (here / "run.db").exists()


@pytest.mark.parametrize("versions", [(0, ()), (True, ()), (1.0, ()), (2, (0,)), (2, ("1",))])
def test_versions_are_whole_numbers(versions: Any, here: Path) -> None:
    version, carries_on = versions
    with pytest.raises(ValueError, match="versions are whole numbers from 1 up"):
        DurableRun(here / "run.db", "one", version=version, carries_on=carries_on)


def test_an_inquiry_is_made_of_functions() -> None:
    with pytest.raises(TypeError, match="takes two functions"):
        inquiry(call_tool, "find_receipt")  # type: ignore[arg-type]


def test_mornings_in_lives_of_four_come_to_the_same_and_replay_less(here: Path) -> None:
    one, many = mornings(here / "one.db", MORNINGS), mornings(here / "many.db", 4)
    assert len(one) == len(many) == SNOWFALL
    assert "下雪了" in one[-1].ended.answer and "下雪了" in many[-1].ended.answer
    assert max(each.replayed for each in many) < 25 < 60 < max(each.replayed for each in one)
    assert {each.life.version for each in one} == {1}, "the only life there is was begun by version 1"
    assert many[-1].life.version == 2
