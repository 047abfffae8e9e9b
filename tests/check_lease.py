"""What a durable run promises: plain functions of a class ``make(path, holder, ...)`` such as ``DurableRun``.

It has what a journal on disk has (``check_disk_journal.py``), a ``life``, a ``token``, ``renew`` and
``begin_anew``, and can be held by one worker at a time.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from agentloop import (
    CODING,
    Act,
    AgentLoop,
    CallModel,
    CallTool,
    Do,
    Finish,
    Kind,
    LimitReached,
    Limits,
    LoopContext,
    Message,
    Observation,
    Outcome,
    Program,
    ProgramChanged,
    Reply,
    Sleep,
    Stage,
    Together,
    Toolbox,
    ToolCall,
    Usage,
    World,
    drive,
    perform,
)
from chapters.ch31_checkpoints import AlreadyRunning, IncompatibleCheckpoint
from chapters.ch36_durable_loops import HandedOn, LeaseLost, Life, live, one_life
from fake_llm import FakeClock
from tests.check_checkpoints import opened_at_once
from tests.check_disk_journal import examples, folder
from tests.check_toolbox import expect

Make = Callable[..., Any]

SECONDS = 10.0
ASKED = "CallTool call_1 pay(amount=9)"

# --- A run of several lives, and a world that counts -------------------------------------------


class Shop:
    """What was done, each deed with the id of its call; a payment is not idempotent, a look is."""

    def __init__(self) -> None:
        self.deeds: list[str] = []

    @property
    def world(self) -> World:
        return self.reached(0)

    def reached(self, token: int) -> World:
        """What a worker reaches with this token; this shop does not look at it."""
        tools = Toolbox([self.look, self.pay], idempotent=["look"])
        clock = FakeClock()
        return World(self.model, tools, None, clock.sleep, clock.now, inline=True)

    def program(self, life: Life) -> Program[Any]:
        """What a worker does here, in three lives."""
        return shopping(3)(life)

    def model(self, request: CallModel) -> Reply:
        return Reply("thought", usage=Usage(100, 0.125))

    def look(self, at: str, call_id: str) -> str:
        self.deeds.append(f"look {call_id}")
        return f"{at} is there"

    def pay(self, amount: int, call_id: str) -> str:
        self.deeds.append(f"pay {call_id}")
        return f"paid {amount}"


def called(name: str, **arguments: Any) -> Program[Observation]:
    """One call, named by the account that it is made on."""
    seen: Observation = (yield CallTool(ToolCall(name, arguments))).value
    return seen


def shopping(lives: int) -> Callable[[Life], Program[Any]]:
    """A program that thinks, pays and looks in each life, and comes to what it saw in all of them."""

    def make(life: Life) -> Program[Any]:
        seen = list(life.state or ())
        yield CallModel((Message("user", f"life {life.number}"),))
        yield Sleep(1.0)
        seen += (yield Together((called("look", at="tea"), called("pay", amount=life.number)))).value
        if life.number < lives:
            return HandedOn(seen)
        return seen

    return make


def finished(make: Make, path: Path, shop: Shop, clock: FakeClock) -> Any:
    """What the run comes to, when a worker goes on with it that nothing happens to."""
    with make(path, "the last", clock=clock.now, seconds=SECONDS) as run:
        return live(run, shop.program, shop.reached(run.token))


def hold_nothing_twice(shop: Shop, seen: list[Observation], story: str) -> None:
    """No payment was made twice, and what is said to be paid was."""
    for deed in set(shop.deeds):
        number = shop.deeds.count(deed)
        expect(number == 1 or deed.startswith("look"), f"{story}: {deed} was done {number} times")
    payments = [each for each in seen if "is there" not in each.text]
    expect(len(payments) == 3, f"{story}: three lives pay, and the run saw {seen}")
    paid = sum(deed.startswith("pay") for deed in shop.deeds)
    told = sum(each.ok for each in payments)
    doubted = sum(each.kind is Kind.UNCERTAIN for each in payments)
    expect(told + doubted == 3, f"{story}: a payment was neither made nor in doubt: {payments}")
    expect(told <= paid <= 3, f"{story}: {paid} payments were made, and the run was told of {told}")


# --- A worker that can be stopped between any two of its acts ----------------------------------


class Worker:
    """Goes on with a run by single steps: open it, begin an effect, perform it, record it, hand on."""

    def __init__(self, make: Make, path: Path, name: str, clock: Callable[[], float], shop: Shop) -> None:
        self.make, self.path, self.name, self.clock = make, path, name, clock
        self.shop = shop
        self.run: Any = None
        self.left: list[Any] = []  # runs that it died with
        self.came: Any = None
        self._next: Callable[[], Any] = self._open

    def step(self) -> None:
        """Take one step. Raises what the run raises, and then begins again with opening it."""
        try:
            self._next = self._next()
        except Exception:
            self.die()
            raise

    @property
    def writes(self) -> bool:
        """Whether its next step writes to the run."""
        return self._next in (self._begin, self._record, self._hand_on)

    def die(self) -> None:
        """End here, without a word to anybody."""
        if self.run is not None:
            self.left.append(self.run)
        self.run, self._next = None, self._open

    def close(self) -> None:
        """Let go of all that it ever opened."""
        for run in [*self.left, *([self.run] if self.run else [])]:
            run.close()

    def _open(self) -> Any:
        self.run = self.make(self.path, self.name, clock=self.clock, seconds=SECONDS)
        return self._set_out

    def _set_out(self) -> Any:
        self.world = self.shop.reached(self.run.token)
        program = one_life(self.run.life, self.shop.program, CODING)
        self.stage = Stage(program, self.run, self.world.may_repeat)
        return self._look()

    def _look(self) -> Any:
        if not self.stage.finished:
            self.strand = self.stage.waiting.pop(0)
            return self._begin
        came = self.stage.result
        if isinstance(came, HandedOn):
            return self._hand_on
        self.came = came
        return self._rest

    def _begin(self) -> Any:
        self.stage.begin(self.strand)
        return self._perform

    def _perform(self) -> Any:
        self.value = perform(self.strand.effect, self.world)
        return self._record

    def _record(self) -> Any:
        self.stage.waiting += self.stage.deliver(self.strand, self.value, 0.0)
        return self._look()

    def _hand_on(self) -> Any:
        self.run.begin_anew(self.stage.result)
        return self._set_out

    def _rest(self) -> Any:
        return self._rest


# --- The promises: the lease -------------------------------------------------------------------


def one_holds_it_and_others_are_told(make: Make) -> None:
    """Of many who open a run one holds it, and the others are told; closed, it is free (K06)."""
    with folder() as here:
        path = here / "run.db"
        came = opened_at_once(6, lambda name: make(path, name, clock=FakeClock().now))
        expect(came == ["held", *["told"] * 5], f"six opened a run at once: {came}")
        try:
            later = make(path, "later", clock=FakeClock().now)
            later.close()
            later.close()  # closing twice changes nothing
        except AlreadyRunning as error:
            expect(False, f"its holder has closed the run, and still: {error}")


def the_dead_are_succeeded_when_their_lease_has_expired(make: Make) -> None:
    """Whoever died with the run keeps others out as long as the lease lasts, and not longer (K06)."""
    with folder() as here:
        clock, path = FakeClock(), here / "run.db"
        dead = make(path, "dead", clock=clock.now, seconds=SECONDS)
        tokens = [dead.token]
        for passed in (0.0, SECONDS / 2, SECONDS / 2 - 1):
            clock.advance(passed)
            try:
                make(path, "too early", clock=clock.now, seconds=SECONDS).close()
            except AlreadyRunning as error:
                expect("dead" in str(error), f"who is told is not told who holds the run: {error}")
            else:
                expect(False, f"after {clock.now():g} of {SECONDS:g} s another one had the run")
        for name in ("next", "after"):
            clock.advance(1 if name == "next" else 0)
            try:
                with make(path, name, clock=clock.now, seconds=SECONDS) as run:
                    tokens.append(run.token)
            except AlreadyRunning as error:
                expect(False, f"the lease has expired, or was let go of, and still: {error}")
        expect(tokens == sorted(set(tokens)), f"each lease has a greater token than the last: {tokens}")
        dead.close()


def a_sleeper_can_write_nothing(make: Make) -> None:
    """Once another one holds the run, whoever held it writes nothing, and takes nothing from it."""
    acts: dict[str, Callable[[Any], object]] = {
        "begin a call": lambda run: run.intend((3,), "CallTool call_2 pay(amount=8)"),
        "record an outcome": lambda run: run.record((2,), ASKED, Outcome(Observation("slept"), 9.0)),
        "renew its lease": lambda run: run.renew(),
        "begin a new life": lambda run: run.begin_anew(HandedOn("asleep")),
    }
    for act, does in acts.items():
        for ended in (False, True):
            with folder() as here:
                clock, path = FakeClock(), here / "run.db"
                sleeper = make(path, "sleeper", clock=clock.now, seconds=SECONDS)
                sleeper.record((1,), "Start 'life 1'", Outcome(1, 0.0))
                sleeper.intend((2,), ASKED)
                clock.advance(SECONDS)
                awake = make(path, "awake", clock=clock.now, seconds=SECONDS)
                awake.record((2,), ASKED, Outcome(Observation("awake"), 1.0))
                if ended:
                    awake.close()
                story = f"a sleeper that was succeeded by {'one that has ended' if ended else 'another'}"
                before = path.read_bytes()
                try:
                    does(sleeper)
                except LeaseLost:
                    pass
                else:
                    expect(False, f"{story} could {act}")
                expect(path.read_bytes() == before, f"{story} tried to {act}, and the file has changed")
                sleeper.close()
                expect(path.read_bytes() == before, f"{story} was closed, and the file has changed")
                if not ended:
                    awake.intend((3,), "Sleep 1.0")
                    awake.close()


def what_has_expired_begins_nothing(make: Make) -> None:
    """With an expired lease nothing is begun and nothing renewed; an outcome in hand is not lost."""
    with folder() as here:
        clock, path = FakeClock(), here / "run.db"
        run = make(path, "late", clock=clock.now, seconds=SECONDS)
        run.intend((1,), ASKED)
        clock.advance(SECONDS)
        for act, does in (("renewed", run.renew), ("a call begun", lambda: run.intend((2,), ASKED))):
            try:
                does()
            except LeaseLost:
                continue
            expect(False, f"the lease had expired, and then {act} under it")
        try:
            run.record((1,), ASKED, Outcome(Observation("paid"), 1.0))
        except LeaseLost as error:
            expect(False, f"a call had ended, nobody else had come, and its outcome was lost: {error}")
        try:
            run.renew()
        except LeaseLost:
            pass
        else:
            expect(False, "an outcome that was recorded late renewed a lease that had expired")
        run.close()
        with make(path, "next", clock=clock.now, seconds=SECONDS) as run:
            expect(
                len(run.outcomes) == 1 and not run.intents, f"recorded late, and now there is {run.outcomes}"
            )


def work_renews_the_lease(make: Make) -> None:
    """Whoever works holds the run: each thing begun, recorded or renewed counts from then on."""
    with folder() as here:
        clock, path = FakeClock(), here / "run.db"
        run = make(path, "worker", clock=clock.now, seconds=SECONDS)
        for number in range(1, 5):
            for does in (
                lambda number=number: run.intend((number,), ASKED),
                lambda number=number: run.record((number,), ASKED, Outcome(None, 0.0)),
                run.renew,
            ):
                clock.advance(SECONDS - 1)
                try:
                    does()
                except LeaseLost as error:
                    expect(False, f"it worked every {SECONDS - 1:g} of {SECONDS:g} s, and then: {error}")
        clock.advance(SECONDS - 1)
        try:
            make(path, "other", clock=clock.now, seconds=SECONDS).close()
        except AlreadyRunning:
            pass
        else:
            expect(False, "it worked all the time, and another one took the run")
        run.close()


# --- The promises: nothing lost, nothing twice -------------------------------------------------


def wherever_it_broke_off_it_goes_on(make: Make) -> None:
    """A worker dies after any step, and another one ends the run: nothing is lost or done twice (K01)."""
    for steps in range(1, 100):
        with folder() as here:
            clock, path, shop = FakeClock(), here / "run.db", Shop()
            worker = Worker(make, path, "first", clock.now, shop)
            for _ in range(steps):
                worker.step()
            ended = worker.came is not None
            worker.die()
            clock.advance(SECONDS)
            seen = finished(make, path, shop, clock)
            worker.close()
            hold_nothing_twice(shop, seen, f"a worker died after {steps} steps")
            if ended:
                expect(all(each.ok for each in seen), f"nothing happened, and the run came to {seen}")
                return
    expect(False, "a worker was not at its end after 100 steps")


moves = st.lists(
    st.sampled_from(["a", "b"] * 4 + ["a dies", "b dies", "time passes", "much time passes"]), max_size=50
)


def two_workers_in_any_order_do_nothing_twice(make: Make) -> None:
    """Two workers, stopped, dying, and with wrong clocks: one writes at a time, and nothing is done twice."""

    @examples
    @given(moves, st.sampled_from([0.0, -25.0, 25.0]))
    @example(["a", "a", "much time passes", "b", "a"], 0.0)  # a slept, and writes
    @example(["b", "b", "a", "b"], -25.0)  # b was early, and is succeeded before it expects that
    def check(order: list[str], wrong: float) -> None:
        with folder() as here:
            clock, path, shop = FakeClock(100.0), here / "run.db", Shop()
            workers = {
                "a": Worker(make, path, "a", clock.now, shop),
                "b": Worker(make, path, "b", lambda: clock.now() + wrong, shop),
            }
            try:
                seen = in_any_order(order, workers, clock)
                clock.advance(SECONDS + abs(wrong))
                came = finished(make, path, shop, clock)
            finally:
                for worker in workers.values():
                    worker.close()
            story = f"in the order {order}, with clocks {wrong:g} s apart"
            hold_nothing_twice(shop, came, story)
            for outcome in seen:
                expect(outcome in came, f"{story}: {outcome} was recorded, and it is not in {came}")

    check()


def in_any_order(order: list[str], workers: dict[str, Worker], clock: FakeClock) -> list[Observation]:
    """Let the workers take their steps; returns what they saw and recorded."""
    newest, recorded = 0, []
    for move in order:
        name, _, dies = move.partition(" ")
        if name not in workers:
            clock.advance(SECONDS if "much" in move else 1.0)
        elif dies:
            workers[name].die()
        else:
            worker, writes, held = workers[name], workers[name].writes, workers[name].run
            try:
                worker.step()
            except (AlreadyRunning, LeaseLost):
                continue
            if held is None:
                expect(worker.run.token > newest, f"token {worker.run.token} was given after {newest}")
                newest = worker.run.token
            if writes:
                expect(held.token == newest, f"{name} wrote with token {held.token}, and {newest} was given")
                if worker.run.outcomes and isinstance(worker.run.outcomes[-1][2].value, Observation):
                    recorded.append(worker.run.outcomes[-1][2].value)
    return recorded


# --- The promises: versions --------------------------------------------------------------------


def another_version_is_refused_and_changes_nothing(make: Make) -> None:
    """A run of a version that is not carried on is refused, with both versions named, as it stands (K09)."""
    with folder() as here:
        clock, path = FakeClock(), here / "run.db"
        with make(path, "old", clock=clock.now, version=2) as run:
            run.intend((1,), ASKED)
        before = path.read_bytes()
        for version, carries_on in ((1, ()), (3, ()), (4, (1, 3))):
            try:
                make(path, "other", clock=clock.now, version=version, carries_on=carries_on).close()
            except ProgramChanged as error:
                told = str(error)
                expect("version 2" in told and f"version {version}" in told, f"it does not name both: {told}")
            else:
                expect(False, f"a run of version 2 was gone on with by version {version}")
            expect(path.read_bytes() == before, f"version {version} was refused, and the file has changed")
        make(path, "old", clock=clock.now, version=2).close()


def a_life_keeps_the_version_that_began_it(make: Make) -> None:
    """A version that carries on an older one is told so, until the next life, which is its own (K09)."""
    with folder() as here:
        clock, path = FakeClock(), here / "run.db"
        make(path, "old", clock=clock.now, version=1).close()
        for _ in range(2):
            with make(path, "new", clock=clock.now, version=3, carries_on=(1, 2)) as run:
                begun = run.life.version
                expect(begun == 1, f"version 1 began this life, and the program is told of version {begun}")
        with make(path, "new", clock=clock.now, version=3, carries_on=(1, 2)) as run:
            live(run, shopping(2), Shop().world)
            begun = run.life.version
            expect((run.life.number, begun) == (2, 3), f"version 3 began a life, and it is told of {begun}")
        with make(path, "new", clock=clock.now, version=3) as run:
            expect(run.life.version == 3, "the life that version 3 began is not known as its own any more")


def what_holds_no_run_is_refused_unchanged(make: Make) -> None:
    """Something else, a torn file, one of a newer format: a clear refusal, and it stays as it was."""
    with folder() as here:
        whole = here / "whole.db"
        make(whole, "one", clock=FakeClock().now).close()
        newer, stranger = here / "newer.db", here / "stranger.db"
        newer.write_bytes(whole.read_bytes())
        for path, statement in (
            (newer, "UPDATE life SET format = 99"),
            (stranger, "CREATE TABLE cats (name TEXT)"),
        ):
            database = sqlite3.connect(path)
            with database:
                database.execute(statement)
            database.close()
        (here / "torn.db").write_bytes(whole.read_bytes()[:1000])
        (here / "text.db").write_bytes("这不是数据库。".encode() * 40)
        for path in (newer, stranger, here / "torn.db", here / "text.db"):
            before = path.read_bytes()
            try:
                make(path, "one", clock=FakeClock().now).close()
            except IncompatibleCheckpoint:
                expect(path.read_bytes() == before, f"{path.name} was refused, and it has changed")
            else:
                expect(False, f"{path.name} was opened as a durable run")


# --- The promises: lives -----------------------------------------------------------------------


def lives_are_one_run(make: Make) -> None:
    """What is handed on arrives, ids are not used again, and the run's time goes on."""
    with folder() as here:
        clock, path, shop = FakeClock(), here / "run.db", Shop()
        with make(path, "one", clock=clock.now) as run:
            seen = live(run, shopping(3), shop.world)
            number = run.life.number
            expect(number == 3, f"the program hands on twice, and this is life {number}")
            at = run.outcomes[-1][2].at
        hold_nothing_twice(shop, seen, "nothing happened")
        expect(all(each.ok for each in seen), f"nothing happened, and the run came to {seen}")
        ids = [deed.split()[1] for deed in shop.deeds]
        expect(len(ids) == len(set(ids)) == 6, f"two calls of one run have the same id: {ids}")
        expect(at == 3.0, f"each of three lives slept for a second, and by the end {at} s have passed")
        with make(path, "two", clock=clock.now) as run:
            again = live(run, shopping(3), World(inline=True))
        expect(again == seen, f"gone on with after its end, the run came to {again}, not {seen}")


def numbering(life: Life) -> Program[Any]:
    """A program that has one loop begin in each life, and collects their numbers."""

    def reason(context: LoopContext) -> Act | Finish:
        return Finish("done") if context.turns else Act((ToolCall("pay", {"amount": 1}),))

    numbers = list(life.state or ())
    result = yield from AgentLoop(reason).run("pay")
    numbers += [call.id for turn in result.turns for call in turn.calls]
    return HandedOn(numbers) if life.number < 4 else numbers


def loops_of_later_lives_have_other_ids(make: Make) -> None:
    """A loop in a later life is another loop: no tool takes its calls for those of an earlier one."""
    with folder() as here:
        shop = Shop()
        with make(here / "run.db", "one", clock=FakeClock().now) as run:
            ids = live(run, numbering, shop.world)
        expect(len(set(ids)) == 4, f"four lives made a call each, and their ids are {ids}")
        due = [f"pay {each}" for each in ids]
        expect(shop.deeds == due, f"the tool was called as {shop.deeds}, not as {due}")


def limits_hold_over_all_lives(make: Make) -> None:
    """A program that never ends is stopped at its limits, however often it begins anew."""

    def endless(life: Life) -> Program[Any]:
        if life.number > 20:
            return "for ever"  # far beyond all limits; a version that forgets them must end here too
        yield CallModel((Message("user", "go on"),))
        yield CallTool(ToolCall("look", {"at": "tea"}))
        return HandedOn(None)

    def thinking(life: Life) -> Program[Any]:
        if life.number > 20:
            return "for ever"
        yield CallModel((Message("user", "go on"),))
        return HandedOn(None)  # the request before it is paid for, too

    for program, limits, spent in (
        (endless, Limits(model_calls=5), 5),
        (endless, Limits(tool_calls=5), 6),
        (endless, Limits(effects=16), 6),
        (endless, Limits(tokens=551), 6),
        (endless, Limits(cost=0.625), 5),
        (thinking, Limits(model_calls=5), 5),
        (thinking, Limits(effects=16), 8),
        (thinking, Limits(tokens=551), 6),
        (thinking, Limits(cost=0.625), 5),
    ):
        with folder() as here:
            asked, shop = [0], Shop()

            def model(request: CallModel, asked: list[int] = asked, shop: Shop = shop) -> Reply:
                asked[0] += 1
                return shop.model(request)

            for _ in range(2):  # the second time it goes on with what is there, and nothing is left
                try:
                    with make(here / "run.db", "one", clock=FakeClock().now) as run:
                        came = live(run, program, World(model, shop.world.tools, inline=True), limits)
                except LimitReached:
                    continue
                expect(False, f"{limits}: {asked[0]} requests were made, and it went on {came}")
            expect(asked[0] == spent, f"{limits}: {asked[0]} requests were made, not {spent}")


def only_one_life_is_replayed(make: Make) -> None:
    """What is read when a run is opened is the life it is in, however many there were."""
    with folder() as here:
        known = []
        for lives in (2, 9):
            path = here / f"{lives}.db"
            try:
                with make(path, "one", clock=FakeClock().now) as run:
                    live(run, shopping(lives), Shop().world)
            except ProgramChanged as error:
                expect(False, f"a new life was begun, and the old one is still replayed: {error}")
            with make(path, "one", clock=FakeClock().now) as run:
                known.append(len(run.outcomes))
        expect(known[0] == known[1], f"after two lives {known[0]} outcomes are read, after nine {known[1]}")


def what_cannot_be_handed_on_leaves_the_life_as_it_was(make: Make) -> None:
    """A state that cannot be written down: an error that names it, and the life it was in is whole."""
    with folder() as here:
        path, clock = here / "run.db", FakeClock()

        def bad(life: Life) -> Program[Any]:
            yield Do("something", lambda: 1)
            return HandedOn({"lock": threading.Lock()})

        for _ in range(2):
            try:
                with make(path, "one", clock=clock.now) as run:
                    live(run, bad, World(inline=True))
            except TypeError as error:
                expect("lock" in str(error), f"a lock cannot be handed on, and the error says: {error}")
            else:
                expect(False, "a lock was handed on")
            with make(path, "one", clock=clock.now) as run:
                known = (run.life.number, len(run.outcomes))
                expect(known == (1, 3), f"the first life has three outcomes, and there is {known}")


def a_journal_like_any_other(make: Make) -> None:
    """Without lives and other workers it is a journal: recorded, and replayed without the world."""

    def program() -> Program[Any]:
        return one_life(Life(1, 1), shopping(1), CODING)

    with folder() as here:
        with make(here / "run.db", "one", clock=FakeClock().now) as run:
            seen = drive(program(), Shop().world, run)
        nowhere = World(sleep=lambda seconds: None, inline=True)
        with make(here / "run.db", "two", clock=FakeClock().now) as run:
            expect(drive(program(), nowhere, run) == seen, "replayed, it came to something else")


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        a_journal_like_any_other,
        one_holds_it_and_others_are_told,
        the_dead_are_succeeded_when_their_lease_has_expired,
        a_sleeper_can_write_nothing,
        what_has_expired_begins_nothing,
        work_renews_the_lease,
        wherever_it_broke_off_it_goes_on,
        two_workers_in_any_order_do_nothing_twice,
        another_version_is_refused_and_changes_nothing,
        a_life_keeps_the_version_that_began_it,
        what_holds_no_run_is_refused_unchanged,
        lives_are_one_run,
        loops_of_later_lives_have_other_ids,
        limits_hold_over_all_lives,
        only_one_life_is_replayed,
        what_cannot_be_handed_on_leaves_the_life_as_it_was,
    )
}


def check_lease(make: Make) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(make)
