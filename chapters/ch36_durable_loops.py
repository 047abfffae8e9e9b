"""A run belongs to no process: who holds its newest token goes on with it, for days, and nobody else can.

Article A, 未来方向, 持久化Loop. Covers A-144.

Chapter 31 kept a run in a file that outlives any accident, and one process at a time held that file. The
article wants loops that pause for days and go on elsewhere, and names what is hard about it: writing state
down (chapter 18: outcomes as text), version compatibility (版本兼容), and distributed locks (分布式锁).

- **A lease**, since a lock that dies with its process does not help where the process only sleeps, behind
  a closed lid. Whoever opens a ``DurableRun`` holds it for some seconds, and renews that with all it writes,
  or by a heartbeat during a long call (``renewing``). Another one is told ``AlreadyRunning`` until the lease
  has expired, and then goes on (K06).
- **A fencing token**, since a sleeper does not know that it slept. Each lease has a greater number than the
  last; each write looks, in the same transaction, whether its own is still the newest, or is ``LeaseLost``.
  So clocks may be wrong: they decide when somebody may take over, and never who may write. What is on its
  way already no journal can hold back: a resource takes the token along with the call, and its ``Fence``
  keeps out what is older.
- **Doubt is settled** before a loop goes on (K01): ``inquiry(act, became)`` asks what became of a call, by
  its id, and then a person. Asked with a newer token, the resource's "nothing" is final, and the ``retry``
  of chapter 19 may make the call.
- **Pauses** need no process: ``pause(seconds, clock)`` notes the date and leaves the run (``Away``).
- **Versions** (K09): a run knows which version of its program began it. One that the program does not
  carry on is refused with ``ProgramChanged``, and the file stays as it was. In one that it does carry on it
  does as that version did: ``if life.version == 1: ...``.
- **Lives**, since a run of months would be replayed from its first day. A journal cannot be cut: the program
  that is replayed needs each outcome. So the program ends, at a point of its own choosing, with ``return
  HandedOn(state)``, and begins again from that state with an empty journal; the old one lies in the table
  ``past``. Ids go on where they were, so that no tool takes a new call for an old one; what was
  spent stays spent, so that limits hold over all lives; and the new life is begun by the version of today,
  so that what was done for an old one can be deleted some day.

Without it, the laptop of this demo wakes up and buys the second ticket. (A lock, its other half at the
resource, versions, lives and two stories make this chapter longer than others.)

On paper: the same program in a durable engine, such as Temporal, Restate or DBOS

========================  ========================  =======================================================
here                      there                     what the engine then does for you
========================  ========================  =======================================================
a program                 a workflow                steps it on any worker of a cluster, and replays it
CallModel, CallTool       an activity               queues, retries, time limits, heartbeats of long ones
its Outcome               the activity's result     keeps it in a replicated history, not in one file
a call's id               an idempotency key        hands it to the activity
Do                        a side effect             records its value
AskHuman and Away         a signal                  wakes the workflow when it comes; no process waits
Sleep, pause              a timer                   wakes it after days, without anybody who looks
Together                  activities side by side   runs them on many workers
lease and token           the task queue            takes one completion of each task, refuses late ones
version, life.version     patched, versioning       routes old runs to old workers too
HandedOn                  continue-as-new           begins the new run under the same name
ProgramChanged            a non-determinism error   finds it in tests too, by replaying old histories
========================  ========================  =======================================================

Not promised: one file serves one machine, and one stopped in the very middle of a write keeps it locked
until it dies. A tool without a fence, whose call is on its way when its worker falls asleep, may act late,
once: its successor reports the call as UNCERTAIN. An answer of a person is known in the life in which it
was given; whoever needs it later hands it on.

Departure: the article has one sentence on this and no code; the patterns are those of the engines above,
the token that of Kleppmann, "How to do distributed locking" (2016).

Exercises
---------
1. Take the look at the token out of ``_hold``, and say which promise will fall; then the look at the clock.
   ``python -m pytest --impl durable_run=my_run.py:DurableRun``
2. Keep the runs of a day in one file. What becomes of the lease, and of a ``Fence`` that serves many runs?
   The same command knows.
3. Let a person's answer end the doubt for all later calls of the same tool in this life. Who asks whom, and
   in which order? ``python -m pytest --impl inquiry=my_inquiry.py:inquiry``
"""

from __future__ import annotations

import math
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

from agentloop import (
    CODING,
    PERCEIVED,
    Account,
    Address,
    AgentLoop,
    AgentState,
    AskHuman,
    Away,
    CallModel,
    CallTool,
    Control,
    Do,
    EventKind,
    Journal,
    Kind,
    LimitReached,
    Limits,
    Observation,
    Outcome,
    Program,
    ProgramChanged,
    Reply,
    Start,
    StopReason,
    Toolbox,
    ToolCall,
    World,
    call_tool,
    describe,
    drive,
    on_one_line,
    settle,
    within,
)
from chapters.ch18_human_in_the_loop import EFFECTS, DiskJournal, Hook, exactly
from chapters.ch19_retry_with_backoff import Patience, retry
from chapters.ch31_checkpoints import AlreadyRunning, IncompatibleCheckpoint
from chapters.telling import BOLD, CYAN, GREEN, RED, Telling
from fake_llm import Cashier, FakeClock, calls, get_weather, readable
from paradigms.function_calling import function_calling

FORMAT = 1
LIFE = """
CREATE TABLE life (
    format  INTEGER NOT NULL,  -- of this file
    number  INTEGER NOT NULL,  -- of the life that is lived now: 1 for the first
    version INTEGER NOT NULL,  -- of the program that began it
    state   TEXT NOT NULL,     -- what the life before handed on
    spent   TEXT NOT NULL,     -- and the account as it stood then
    token   INTEGER NOT NULL,  -- of the newest lease
    holder  TEXT NOT NULL,     -- who has it
    expires REAL               -- until when, in seconds of the clock; NULL: it was let go of
)
"""
PAST = """
CREATE TABLE past (life INTEGER, address TEXT, asked TEXT, arrived INTEGER, value TEXT, at REAL)
"""


class LeaseLost(Exception):
    """Who writes does not hold the run any more. Nothing was written."""


class Life(NamedTuple):
    """Where a life begins: its number, the version of the program that began it, what was handed on.

    ``spent`` is the account as the life before left it.
    """

    number: int
    version: int
    state: Any = None
    spent: Control = Control()


class HandedOn(NamedTuple):
    """What a life ends with where another one follows, at a point where all that matters is in ``state``.

    Only the outermost program hands on. ``spent`` is filled in when the account has paid for it.
    """

    state: Any
    spent: Control = Control()


#: Makes the program of a life.
Make = Callable[[Life], Program[Any]]


class DurableRun(DiskJournal):
    """A run in a file, held by lease: ``with DurableRun(path, "worker A") as run: live(run, make, world)``.

    The lease lasts for ``seconds`` of ``clock``, a time that all workers share. ``version`` is that of the
    program, and ``carries_on`` are older ones whose runs it can go on with. Raises ``AlreadyRunning`` where
    another one holds the run, ``ProgramChanged`` for a run of a version that is not carried on, and
    ``IncompatibleCheckpoint`` for a file that holds none. Each write of one that lost its lease raises
    ``LeaseLost``.
    """

    life: Life
    token: int

    def __init__(
        self,
        path: str | Path,
        holder: str,
        *,
        seconds: float = 30.0,
        clock: Callable[[], float] = time.time,
        version: int = 1,
        carries_on: Collection[int] = (),
        types: Iterable[type] = (),
    ) -> None:
        if not 0 < seconds < math.inf:
            raise ValueError(f"a lease lasts for a finite number of seconds above 0, not {seconds!r}")
        if not all(type(each) is int and each > 0 for each in (version, *carries_on)):
            raise ValueError(f"versions are whole numbers from 1 up, not {version!r} and {carries_on!r}")
        self.path, self.holder, self.seconds, self.clock = Path(path), holder, seconds, clock
        self.version, self.carries_on = version, carries_on
        self._lock = threading.Lock()  # one transaction at a time, of whichever thread
        super().__init__(path, (*types, Control, AgentState, StopReason))

    # --- The lease

    def _open(self) -> None:
        """Take the lease and read the run, or change nothing."""
        try:
            self.database.execute("BEGIN IMMEDIATE")
            with self.database:
                if not self.path.stat().st_size:
                    self._create()
                self._check()
                self._take()
                self._read()
        except (sqlite3.DatabaseError, ValueError) as error:
            busy = getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY")
            refused = AlreadyRunning if busy else IncompatibleCheckpoint
            raise refused(f"{self.path} cannot be read as a durable run: {error}") from error

    def _create(self) -> None:
        for table in (LIFE, EFFECTS, PAST):
            self.database.execute(table)
        nothing = (self._dumped(None), self._dumped(Control()))
        values = (FORMAT, self.version, *nothing)
        self.database.execute("INSERT INTO life VALUES (?, 1, ?, ?, ?, 0, '', NULL)", values)

    def _check(self) -> None:
        [(found, version)] = self.database.execute("SELECT format, version FROM life")
        if found != FORMAT:
            raise IncompatibleCheckpoint(f"{self.path} is of format {found}, and {FORMAT} is read here")
        if version not in (self.version, *self.carries_on):
            known = f" and carries on {sorted(self.carries_on)}" if self.carries_on else ""
            raise ProgramChanged(
                f"{self.path} was begun by version {version} of its program; this is version "
                f"{self.version}{known}"
            )

    def _take(self) -> None:
        token, holder, expires = self._lease()
        now = self.clock()
        if expires is not None and now < expires:
            raise AlreadyRunning(f"{self.path} is held by {holder} for {expires - now:g} s more")
        self.token = token + 1
        values = (self.token, self.holder, now + self.seconds)
        self.database.execute("UPDATE life SET token = ?, holder = ?, expires = ?", values)

    def _lease(self) -> tuple[int, str, float | None]:
        lease: tuple[int, str, float | None]
        [lease] = self.database.execute("SELECT token, holder, expires FROM life")
        return lease

    @contextmanager
    def _hold(self, in_hand: bool = False) -> Iterator[None]:
        """A transaction of whoever has the newest token; it renews the lease, unless that has expired.

        With an expired one only what is ``in_hand`` may be written: an outcome is not lost as long as
        nobody has taken over. Raises ``LeaseLost``.
        """
        with self._lock:
            self.database.execute("BEGIN IMMEDIATE")
            with self.database:
                token, holder, expires = self._lease()
                now = self.clock()
                if token != self.token:
                    raise LeaseLost(
                        f"{self.holder} comes with token {self.token}; {holder} has taken over with {token}"
                    )
                if expires is not None and now < expires:
                    self.database.execute("UPDATE life SET expires = ?", (now + self.seconds,))
                elif not in_hand:
                    raise LeaseLost(f"the lease of {self.holder} has expired: open the run anew")
                yield

    def renew(self) -> None:
        """Hold the run for another ``seconds`` from now on. Raises ``LeaseLost`` where that is too late."""
        with self._hold():
            pass

    @contextmanager
    def renewing(self, wait: Callable[[float], bool] | None = None) -> Iterator[None]:
        """Renew the lease in the background, for calls that may take longer than it lasts.

        ``wait(seconds)`` waits so long between two renewals, and returns whether it is over.
        """
        over = threading.Event()
        wait = wait or over.wait

        def beat() -> None:
            with suppress(LeaseLost):  # the next write tells whoever works
                while not wait(self.seconds / 3) and not over.is_set():
                    self.renew()

        heart = threading.Thread(target=beat, daemon=True)
        heart.start()
        try:
            yield
        finally:
            over.set()
            heart.join()

    def close(self) -> None:
        """Let go of the run, where it is still held. Closing twice changes nothing."""
        try:
            with self._lock, suppress(sqlite3.ProgrammingError):  # which says that it was closed before
                self.database.execute("UPDATE life SET expires = NULL WHERE token = ?", (self.token,))
        finally:
            self.database.close()

    # --- What is written under it

    def _read(self) -> None:
        super()._read()
        [(number, version, state, spent)] = self.database.execute(
            "SELECT number, version, state, spent FROM life"
        )
        self.life = Life(number, version, self._loaded(state), self._loaded(spent))

    def intend(self, address: Address, asked: str) -> None:
        with self._hold():
            super().intend(address, asked)

    def record(self, address: Address, asked: str, outcome: Outcome) -> None:
        with self._hold(in_hand=True):
            super().record(address, asked, outcome)

    def begin_anew(self, handed: HandedOn) -> None:
        """Put this life into the past, and begin the next one from what was handed on, whole or not at all.

        Its journal begins with one outcome: the number at which loops go on, and the run's time.
        """
        state, spent = self._dumped(handed.state), self._dumped(handed.spent)
        begun = [each.value for _, asked, each in self.outcomes if asked.startswith("Start ")]
        loops = [number for number in begun if type(number) is int]  # the others were stopped by a person
        _, _, last = self.outcomes[-1]
        with self._hold(in_hand=True):
            self.database.execute("INSERT INTO past SELECT life.number, effects.* FROM life, effects")
            self.database.execute("DELETE FROM effects")
            values = (self.version, state, spent)
            self.database.execute(
                "UPDATE life SET number = number + 1, version = ?, state = ?, spent = ?", values
            )
            self.outcomes.clear()
            begins = describe(Start(_name(self.life.number + 1)))
            self._write((1,), begins, 1, self._dumped(max(loops) + 1), last.at)
            self.outcomes.clear()
            self._read()


# --- Lives ------------------------------------------------------------------------------------


def live(
    run: DurableRun,
    make: Make,
    world: World,
    limits: Limits = CODING,
    driver: Callable[[Program[Any], World, Journal], Any] = drive,
) -> Any:
    """Drive a run from life to life, and return what its last one does; ``limits`` hold over all of them.

    Raises what the driver raises, ``Away`` and ``LeaseLost`` among it.
    """
    while True:
        came = driver(one_life(run.life, make, limits), world, run)
        if not isinstance(came, HandedOn):
            return came
        run.begin_anew(came)


def one_life(life: Life, make: Make, limits: Limits) -> Program[Any]:
    """The program of one life, on the account of the whole run; see ``bounded`` for what it raises."""
    account = Account(limits)
    if life.number == 1:
        with suppress(LimitReached):  # the program is told at its first effect
            yield from account.open(_name(1))
            account.post(PERCEIVED)
    else:
        account.number, _ = yield Start(_name(life.number))
        account.control = life.spent  # as ``advance`` made it: this is no way to make another
    came = yield from within(account, make(life))
    if not isinstance(came, HandedOn):
        account.end(EventKind.ANSWER_GIVEN)
        return came
    yield from within(account, _handing_on())
    return came._replace(spent=account.control)


def _handing_on() -> Program[None]:
    """An effect like any other: lives are bounded too, and an account that has ended begins no other."""
    yield Do("hand on", lambda: None, repeatable=True)


def _name(number: int) -> str:
    return f"life {number}"


def pause(seconds: float, clock: Callable[[], float]) -> Program[float]:
    """Wait, in seconds of a clock that all workers share, and return the date then.

    Nobody waits meanwhile: until it is time, whoever drives the run is sent ``Away``.
    """
    began = (yield Do("the date", clock, repeatable=True)).value
    due = began + seconds

    def awaited() -> float:
        if clock() < due:
            raise Away(f"nothing is to be done until {due:g}")
        return clock()

    date: float = (yield Do(f"wait until {due!r}", awaited, repeatable=True)).value
    return date


# --- Doubt ------------------------------------------------------------------------------------


class StaleToken(Exception):
    """A resource was asked by somebody whose lease is older than one that it has seen."""


class Fence:
    """The other half of the lock, at a resource: it lets the newest token in, and none that is older.

    A resource keeps one for each run that it serves. ``turned_away`` are the tokens that it kept out.
    """

    def __init__(self) -> None:
        self._newest, self._lock = 0, threading.Lock()
        self.turned_away: list[int] = []

    @contextmanager
    def passed(self, token: int) -> Iterator[None]:
        """Be let in, and be alone in there: nobody newer comes between the look at the token and the deed."""
        with self._lock:
            if token < self._newest:
                self.turned_away.append(token)
                raise StaleToken(f"token {token} is stale: {self._newest} was here")
            self._newest = token
            yield


HOW_TO_SETTLE = "Answer done, or not done; all else leaves it in doubt."
NOTHING_DONE = Observation("Nothing was done, and it may be called again.", False, Kind.UNAVAILABLE)


def inquiry(act: Hook, became: Callable[[ToolCall], Any]) -> Hook:
    """Guard ``act``: where nobody knows whether a call took effect, that is asked before the loop goes on.

    ``became(call)`` is a hook. It returns the observation that the call would have had; or ``None`` where
    nothing was done and nothing will be: that is UNAVAILABLE, and a ``retry`` round this guard makes the call
    again; or one that is UNCERTAIN too, and then a person is asked. A TIMEOUT is left alone: the call may
    still be under way.
    """
    if not callable(act) or not callable(became):
        raise TypeError(f"inquiry(act, became) takes two functions, not {act!r} and {became!r}")

    def guarded(call: ToolCall) -> Program[Any]:
        seen = yield from settle(act(call))
        if seen.kind is not Kind.UNCERTAIN:
            return seen
        try:
            told = yield from settle(became(call))
            if told is not None and told.kind is Kind.UNCERTAIN:
                told = yield from _decided(call, seen)
        except LimitReached:
            return seen
        return NOTHING_DONE if told is None else told

    return guarded


def _decided(call: ToolCall, seen: Observation) -> Program[Observation | None]:
    question = f"Did this take effect? Nobody else knows:\n{exactly(call)}\n{seen.text}\n{HOW_TO_SETTLE}"
    answer, _ = yield AskHuman(question, call.id)
    words = answer.strip().casefold() if isinstance(answer, str) else ""
    if words == "not done":
        return None
    return Observation("Done: a person looked.") if words == "done" else seen


# --- The story --------------------------------------------------------------------------------

TASK = "看看北京今天的天气，晴天就买故宫的门票（60 元）。"
DAY = 86_400.0


class TicketOffice:
    """Sells tickets, whoever asks and however often, and knows the receipts by the ids of the calls."""

    def __init__(self, tell: Telling) -> None:
        self.tell, self.cashier, self.fence = tell, Cashier(), Fence()
        self.receipts: dict[str, str] = {}

    def tools(self, token: int | None, on_the_way: Callable[[], None]) -> Toolbox:
        """What a worker reaches the office with; a purchase that is ``on_the_way`` may take its time."""

        def door() -> Any:
            return nullcontext() if token is None else self.fence.passed(token)

        def buy_ticket(amount: float, call_id: str) -> str:
            """Buy a ticket, in yuan."""
            on_the_way()
            with door():
                self.receipts[call_id] = self.cashier.pay(amount)
            return self.receipts[call_id]

        def find_receipt(purchase: str) -> str:
            """Find the receipt of a purchase; an empty text is final for those with an older token."""
            with door():
                found = self.receipts.get(purchase, "")
            self.tell(f"The office is asked for the receipt of {purchase}: {found or 'there is none'}", CYAN)
            return found

        return Toolbox([get_weather, buy_ticket, find_receipt], idempotent=["get_weather", "find_receipt"])


def receipt(call: ToolCall) -> Program[Observation | None]:
    """Ask the office what became of a purchase."""
    found: Observation = (yield CallTool(ToolCall("find_receipt", {"purchase": call.id}))).value
    if found.ok:
        return found if found.text else None
    return found._replace(kind=Kind.UNCERTAIN)


def buyer(request: CallModel) -> Reply | str:
    """A model that buys one ticket on a sunny day."""
    made = [call.name for message in request.messages for call in message.calls]
    if not made:
        return calls(("get_weather", {"city": "北京"}), text="先看天气。")
    if "buy_ticket" not in made:
        return calls(("buy_ticket", {"amount": 60}), text="晴天，买票。")
    return "门票买好了。" if "已支付" in readable(request.messages) else "没有买成。"


class InFairWeather(DurableRun):
    """A run whose writes do not wait for the disk: no power fails in this story."""

    def _open(self) -> None:
        self.database.execute("PRAGMA synchronous = OFF")
        super()._open()


#: Opens the journal of one worker.
Open = Callable[[str], DiskJournal]


def send(
    office: TicketOffice, name: str, open_journal: Open, clock: FakeClock, on_the_way: Callable[[], None]
) -> bool:
    """One worker goes on with the run, as far as it can; returns whether it got hold of it."""
    tell = office.tell
    try:
        with open_journal(name) as journal:
            tools = office.tools(getattr(journal, "token", None), on_the_way)
            act = retry(inquiry(call_tool, receipt), patience=Patience(draw=lambda: 0.5))
            loop = AgentLoop(function_calling(tools), act, watch=tell.watch(name))
            world = World(buyer, tools, None, clock.sleep, clock.now, inline=True)
            tell.result(drive(loop.run(TASK), world, journal))
    except AlreadyRunning as refused:
        tell(f"[{name}] AlreadyRunning: the run is {str(refused).partition(' is ')[2]}")
        return False
    except LeaseLost as lost:
        tell(f"[{name}] LeaseLost: {lost}", GREEN)
    return True


def tell_of_a_sleeper(tell: Telling, clock: FakeClock, open_journal: Open) -> None:
    """A closes its lid in the middle of a purchase; B tries to take over, and A wakes up."""
    office = TicketOffice(tell)

    def lid_closed() -> None:
        tell("A's laptop is closed while its purchase is on the way. B looks whether it may go on:", BOLD)
        while not send(office, "B", open_journal, clock, lambda: None):
            clock.advance(60)
            tell("A minute later:", BOLD)
        tell("A's laptop is opened, and goes on as if nothing had happened:", BOLD)

    send(office, "A", open_journal, clock, lid_closed)
    for token in office.fence.turned_away:
        tell(f"The ticket office turned away who came with token {token}.", GREEN)
    tell(f"paid: {office.cashier.ledger}", RED if len(office.cashier.ledger) > 1 else GREEN)


def demo(tell: Telling) -> None:
    """A worker that slept buys a second ticket, and cannot; then a run of many mornings."""
    tell(f"task: {TASK}")
    with tempfile.TemporaryDirectory() as folder:
        tell.heading("A journal on disk, and two workers: nobody knows who holds it")
        clock, path = FakeClock(), Path(folder, "run.db")
        tell_of_a_sleeper(tell, clock, lambda name: DiskJournal(path))

        tell.heading("A lease, and a token that everything takes along (租约与令牌)")
        leased = Path(folder, "leased.db")
        tell_of_a_sleeper(tell, clock, lambda name: InFairWeather(leased, name, clock=clock.now))

        tell_of_mornings(tell, Path(folder))


# --- A process each morning --------------------------------------------------------------------------

MORNINGS = 14
SNOWFALL = 12  # the morning on which there is snow
UPDATE = 6  # and that on which version 2 of the program is installed


def sky(clock: FakeClock) -> Toolbox:
    """The weather, morning by morning."""

    def look_at_sky(city: str) -> str:
        """Tell the present weather of a city."""
        return f"{city}当前天气：{'Snowy' if clock.now() // DAY + 1 == SNOWFALL else 'Sunny'}"

    return Toolbox([look_at_sky], idempotent=["look_at_sky"])


def watcher(request: CallModel) -> Reply | str:
    """A model that looks at the sky once, and says what it saw."""
    if not any(message.calls for message in request.messages):
        return calls(("look_at_sky", {"city": "北京"}))
    told = readable(request.messages)
    saw = "下雪了，去故宫拍照！" if "Snowy" in told else "没有下雪。"
    return saw + "出门多穿点。" if "穿什么" in told else saw


#: What version 1 of the program asked each morning, and what version 2 asks.
QUESTIONS = {1: "北京下雪了吗？", 2: "北京下雪了吗？出门穿什么？"}


def waiting_for_snow(clock: FakeClock, mornings_a_life: int) -> Make:
    """A program that looks each morning, until there is snow, and lives for so many mornings at a time."""

    def make(life: Life) -> Program[Any]:
        first = life.state or 1
        loop = AgentLoop(function_calling(sky(clock)))
        for morning in range(first, first + mornings_a_life):
            if morning > 1:
                yield from pause(DAY, clock.now)
            asked = QUESTIONS[life.version]  # a life goes on as the version that began it
            result = yield from loop.run(f"第 {morning} 天：{asked}")
            if result.answer is None or "下雪了" in result.answer:
                return result
        return HandedOn(first + mornings_a_life)

    return make


class Morning(NamedTuple):
    """What a worker found and left: how much it had to replay, in which life, and how the run ended."""

    replayed: int
    life: Life
    question: str
    ended: Any


def one_morning(path: Path, clock: FakeClock, version: int, mornings_a_life: int, limits: Limits) -> Morning:
    """A process that goes on with the run until there is nothing to be done today."""
    ended, world = None, World(watcher, sky(clock), inline=True)
    with InFairWeather(
        path, f"worker {clock.now() / DAY:g}", version=version, carries_on=range(1, version), clock=clock.now
    ) as run:
        replayed, life = len(run.outcomes), run.life
        with suppress(Away):
            ended = live(run, waiting_for_snow(clock, mornings_a_life), world, limits)
        return Morning(replayed, life, QUESTIONS[life.version], ended)


def mornings(path: Path, mornings_a_life: int, limits: Limits = CODING) -> list[Morning]:
    """A process each morning, until there is snow or the run ends."""
    clock, lived = FakeClock(), list[Morning]()
    for number in range(1, MORNINGS + 1):
        lived.append(one_morning(path, clock, 1 if number < UPDATE else 2, mornings_a_life, limits))
        if lived[-1].ended is not None:
            break
        clock.advance(DAY)
    return lived


def tell_of_mornings(tell: Telling, folder: Path) -> None:
    """The same mornings in one life, and in lives of four; then under limits, and with an old program."""
    tell.heading("A process each morning, until there is snow, in one life or in lives of four (跨会话恢复)")
    one, many = mornings(folder / "one.db", MORNINGS), mornings(folder / "many.db", 4)
    rows: list[tuple[object, ...]] = [
        ("morning", "replayed in one life", "in lives of four", "life", "begun by", "asked")
    ]
    for number, (whole, (replayed, life, question, ended)) in enumerate(zip(one, many, strict=True), 1):
        if number in (1, 2, 4, 5, UPDATE, 8, 9) or ended:
            rows.append((number, whole.replayed, replayed, life.number, f"version {life.version}", question))
    tell.table(rows)
    tell(f"answer on morning {len(many)}: {many[-1].ended.answer}", BOLD)

    tell.heading("Limits hold over all lives")
    limits = Limits(model_calls=15)
    few = mornings(folder / "few.db", 4, limits)
    tell(
        f"With {limits.model_calls} model calls it ends on morning {len(few)}, in life {few[-1].life.number}:"
    )
    tell.result(few[-1].ended)

    tell.heading("A program that does not carry on what version 2 began")
    try:
        DurableRun(folder / "many.db", "an old worker", version=1)
    except ProgramChanged as refused:
        tell(f"ProgramChanged: {on_one_line(str(refused))}".replace(f"{folder}/", ""), GREEN)
