"""A run is what was recorded of it: kept one outcome at a time, it is resumed, rewound and branched at will.

Article A, 并发优化, 检查点 (Checkpointing). Covers A-132.

Chapter 18 left a run in a file to wait for a person; here the file outlives any accident. The article
describes LangGraph's checkpoints: state is persisted after every transition, so that a run can be resumed
(中断恢复), looked at in its past (时间旅行) and taken another way (并行分支), and the loop itself becomes a
node that only computes. The kernel has that for nothing, since a loop's state follows from its outcomes:
``Checkpoints`` is the journal of chapter 18 in a file that can be trusted, with the machine's transitions
beside it. Each outcome is written once, and no prompt at all (a journal compares a digest), so a long run
costs as much for a step as a short one.

- **Resume** after ``kill -9`` at any point: what is recorded is replayed, and a call that was begun, of which
  nobody knows the end, is not made again unless its tool is idempotent (K01).
- **Time travel**: ``moment(number, make)`` shows machine and history as they stood at that transition.
- **Branch**: ``branch(number, path)`` begins another file with what was known then. It is a copy: the two
  share nothing.
- **Two resumers** (K06): opening the file claims it, by a lock that the operating system frees when its
  holder dies. The second one is told ``AlreadyRunning`` at once.
- **Other versions** (K09): an older file is brought up to date, with the defaults in ``UPGRADES``; one that
  is newer, torn or not ours is refused with ``IncompatibleCheckpoint``, and stays byte for byte as it was.

Without it: the naive checkpoint of this demo saves everything after each step, and pays twice.

One file is one run, so that a lock on the file is a lock on the run, and ``sqlite3 run.db`` shows all there
is: ``run`` (version, parent), ``effects`` (intents and outcomes), ``transitions``. Do not open it by other
means while a run holds it: closing any handle of a process on a file frees its locks (POSIX).

Departure: the article's listings hold no checkpoint (EC01). LangGraph persists the whole state after each
step; here it follows from what was recorded, so nothing can be saved that disagrees with it.

Exercises
---------
1. ``Snapshots`` of this file is the checkpoint that most loops begin with. Which promises does it break?
   ``python -m pytest --impl disk_journal=chapters/ch31_checkpoints.py:Snapshots``
2. Keep the runs of a day in one file, with a run's name in each row. What has to become of the claim, and of
   ``branch``? ``python -m pytest --impl checkpoints=my_checkpoints.py:Checkpoints``
3. Add a column with the date of each transition, and raise ``VERSION``. What does an old file get there, and
   which promise sees whether you thought of it? The same command knows.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from agentloop import (
    Address,
    AgentLoop,
    AgentState,
    CallModel,
    Control,
    Journal,
    Outcome,
    Program,
    ProgramChanged,
    Reply,
    Stage,
    Step,
    StopReason,
    Toolbox,
    Turn,
    World,
    call_text,
    drive,
    row_taken,
)
from chapters.ch18_human_in_the_loop import EFFECTS, DiskJournal, decode, encode
from chapters.telling import BOLD, GREEN, RED, Telling
from fake_llm import Cashier, calls, get_weather, readable
from paradigms.function_calling import function_calling

Watch = Callable[[Step], None]
#: Makes the program of a run; its loops are watched by ``watch(name)``.
Make = Callable[[Callable[[str], Watch]], Program[Any]]

VERSION = 2
#: What brings a file of each version to the next one. 1 knew no branches: its runs have no parent.
UPGRADES = {
    1: (
        "ALTER TABLE run ADD COLUMN parent TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE run ADD COLUMN branched INTEGER",
    )
}
RUN = """
CREATE TABLE run (
    version  INTEGER NOT NULL,  -- of this format
    parent   TEXT NOT NULL,     -- the file that this run is a branch of, or nothing
    branched INTEGER            -- the transition of the parent at which it parted
)
"""
TRANSITIONS = """
CREATE TABLE transitions (
    number      INTEGER PRIMARY KEY,
    loop        TEXT NOT NULL,     -- the name under which the loop is watched
    outcomes    INTEGER NOT NULL,  -- how many outcomes had arrived
    "row"       INTEGER NOT NULL,  -- the row of the machine's table that was taken
    state       TEXT NOT NULL,     -- and the machine as it stood then
    rounds      INTEGER, model_calls INTEGER, tool_calls INTEGER, effects INTEGER,
    failures    INTEGER, pending     INTEGER, tokens     INTEGER, cost    REAL, seconds REAL,
    stop        TEXT
)
"""


class IncompatibleCheckpoint(Exception):
    """The file is not a checkpoint that can be read here. It has not been changed."""


class AlreadyRunning(Exception):
    """Another process, or another object in this one, holds this run."""


def _refusal(path: Path, error: Exception) -> Exception:
    if getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
        return AlreadyRunning(f"{path} is a run that somebody else goes on with right now")
    return IncompatibleCheckpoint(f"{path} is torn, or no checkpoint: {error}")


class Transition(NamedTuple):
    """One row that the machine took: whose, after how many outcomes, and how it stood then."""

    loop: str
    outcomes: int
    row: int
    control: Control


class Moment(NamedTuple):
    """A loop as it stood at one of its transitions: the machine, and its history until then."""

    loop: str
    control: Control
    turns: tuple[Turn, ...]


class _Recorded(list[tuple[Address, str, Outcome]]):
    """Outcomes that know how many of them were handed over, while a run is brought back to where it stood."""

    handed = 0

    def __iter__(self) -> Iterator[tuple[Address, str, Outcome]]:
        for number, each in enumerate(super().__iter__(), 1):
            self.handed = number
            yield each

    def append(self, each: tuple[Address, str, Outcome]) -> None:
        super().append(each)
        self.handed = len(self)


class Checkpoints(DiskJournal):
    """A run in a file of its own: ``with Checkpoints(path) as kept: drive(make(kept.watch), world, kept)``.

    Raises ``AlreadyRunning`` where somebody else holds the run, ``IncompatibleCheckpoint`` for a file that it
    cannot read, and ``FileNotFoundError`` where there is no such folder. ``transitions`` are those in the
    file; ``parent`` is the name of the file that it is a branch of, and ``branched`` the transition there.
    """

    outcomes: _Recorded

    def __init__(self, path: str | Path, types: Iterable[type] = ()) -> None:
        self.path = Path(path)
        self.parent, self.branched = "", None
        self.transitions: list[Transition] = []
        self._taken: list[Transition] = []  # by this process, from the first on
        self._known = 0  # how many of these are in the file
        try:
            super().__init__(path, types)
        except (sqlite3.DatabaseError, ValueError, TypeError, KeyError) as error:
            raise _refusal(self.path, error) from error

    def _open(self) -> None:
        """Claim the file, look at what it is before anything is written to it, and read it."""
        self.database.execute("PRAGMA busy_timeout = 0")
        self.database.execute("PRAGMA locking_mode = EXCLUSIVE")  # until it is closed, or its process dies
        self.database.execute("BEGIN EXCLUSIVE")
        with self.database:  # what is written in here is taken back if anything is wrong
            if not self.path.stat().st_size:
                self._create()
            self._check()
            self._read()

    def _create(self) -> None:
        for table in (RUN, EFFECTS, TRANSITIONS):
            self.database.execute(table)
        self.database.execute("INSERT INTO run VALUES (?, '', NULL)", (VERSION,))

    def _check(self) -> None:
        [(sound,)] = self.database.execute("PRAGMA quick_check(1)")
        if sound != "ok":
            raise ValueError(sound)
        if not list(self.database.execute("SELECT * FROM sqlite_master WHERE name = 'run'")):
            raise IncompatibleCheckpoint(f"{self.path} names no version, and version {VERSION} is read here")
        [(version,)] = self.database.execute("SELECT version FROM run")
        if version not in range(1, VERSION + 1):
            raise IncompatibleCheckpoint(f"{self.path} is of version {version}, and {VERSION} is read here")
        for older in range(version, VERSION):
            for change in UPGRADES[older]:
                self.database.execute(change)
        self.database.execute("UPDATE run SET version = ? WHERE version < ?", (VERSION, VERSION))

    def _read(self) -> None:
        super()._read()
        self.outcomes = _Recorded(self.outcomes)
        [(self.parent, self.branched)] = self.database.execute("SELECT parent, branched FROM run")
        rows = self.database.execute("SELECT * FROM transitions ORDER BY number")
        for _, loop, outcomes, row, state, *counters, stop in rows:
            # As ``advance`` made it: this is no way to make another.
            control = Control._make([AgentState[state], *counters, StopReason[stop] if stop else None])
            self.transitions.append(Transition(loop, outcomes, row, control))

    def watch(self, name: str = "loop") -> Watch:
        """Make a watcher that keeps the transitions of a loop under this name."""

        def watcher(step: Step) -> None:
            row = row_taken(step.before, step.after)
            if row is not None:  # else only spending was booked
                self._take(Transition(name, self.outcomes.handed, row.row, step.after))

        return watcher

    def _take(self, transition: Transition) -> None:
        """Note a transition; on the way back to where the run stood, most are known already."""
        known = self._known
        if known == len(self._taken) and self.transitions[known : known + 1] == [transition]:
            self._known += 1
        self._taken.append(transition)

    def intend(self, address: Address, asked: str) -> None:
        self.database.execute("BEGIN")
        with self.database:  # both, or neither
            self._keep()
            super().intend(address, asked)

    def _keep(self) -> None:
        """Write down the transitions that are new, in the place of those that were not taken again."""
        new = self._taken[self._known :]
        if self._known < len(self.transitions):
            self.database.execute("DELETE FROM transitions WHERE number > ?", (self._known,))
        for number, (loop, outcomes, row, control) in enumerate(new, self._known + 1):
            stop = control.stop.name if control.stop else None
            values = (number, loop, outcomes, row, control.state.name, *control[1:-1], stop)
            self.database.execute(f"INSERT INTO transitions VALUES (?{', ?' * (len(values) - 1)})", values)
        self.transitions[self._known :] = new
        self._known = len(self._taken)

    def close(self) -> None:
        """Keep the last transitions, and let go of the run. Closing twice changes nothing."""
        self._keep_last()
        super().close()

    def _keep_last(self) -> None:
        """Keep what was taken after the last effect; only a run that goes on replaces what is there."""
        if len(self.transitions) == self._known < len(self._taken):
            self._keep()

    def moment(self, number: int, make: Make) -> Moment:
        """Return how machine and history stood at transition ``number``, 1 for the first, without the world.

        ``make(watch)`` makes the program that was recorded, or ``ProgramChanged`` is raised. Raises
        ``IndexError`` for a transition that is not there.
        """
        taken = self._transition(number)
        seen: list[Moment] = []

        def watch(name: str) -> Watch:
            turns: list[Turn] = []

            def watcher(step: Step) -> None:
                if step.before.state is AgentState.IDLE:
                    turns.clear()
                if step.turn is not None:
                    turns.append(step.turn)
                if row_taken(step.before, step.after) is not None:
                    seen.append(Moment(name, step.after, tuple(turns)))

            return watcher

        Stage(make(watch), self.rewound(taken.outcomes))
        if len(seen) < number or seen[number - 1].control != taken.control:
            raise ProgramChanged(f"transition {number} is another one in this program: {taken}")
        return seen[number - 1]

    def branch(self, number: int, path: str | Path) -> None:
        """Begin another run at transition ``number`` of this one, in a file that must not exist yet."""
        taken = self._transition(number)
        with open(path, "xb"):
            pass
        with Checkpoints(path, self._types) as other:
            for each in self.rewound(taken.outcomes).outcomes:
                other.record(*each)
            other._taken += self.transitions[:number]
            other.database.execute("UPDATE run SET parent = ?, branched = ?", (self.path.name, number))

    def _transition(self, number: int) -> Transition:
        if not 1 <= number <= len(self.transitions):
            raise IndexError(f"there are transitions 1 to {len(self.transitions)}, and no {number}")
        return self.transitions[number - 1]


# --- The story --------------------------------------------------------------------------------

TASK = "看看北京今天的天气，晴天就买故宫的门票（60 元）。"


class Snapshots(Journal):
    """The naive checkpoint: after each step, everything there is so far, over what the file held."""

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self.path = Path(path)
        if self.path.exists():
            rows = json.loads(self.path.read_text(encoding="utf-8"))
            self.outcomes = [
                (tuple(each), asked, Outcome(decode(value), at)) for each, asked, value, at in rows
            ]

    def record(self, address: Address, asked: str, outcome: Outcome) -> None:
        super().record(address, asked, outcome)
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump([(*each[:2], encode(each[2].value), each[2].at) for each in self.outcomes], file)

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> Snapshots:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class PowerFails(BaseException):
    """What ends a process from outside."""


class Bank:
    """A cashier elsewhere, who goes on whatever becomes of us; ``sky`` is what the weather is like there."""

    def __init__(self, sky: str = "") -> None:
        self.cashier, self.sky, self.fails = Cashier(), sky, True

    def get_weather(self, city: str) -> str:
        """Tell the present weather of a city."""
        return self.sky or get_weather(city)

    def pay(self, amount: float) -> str:
        """Pay an amount, in yuan."""
        done = self.cashier.pay(amount)
        if self.fails:  # the first time only, and when it is too late to take anything back
            self.fails = False
            raise PowerFails
        return done

    def list_payments(self) -> str:
        """List what has been paid today."""
        return f"今天付过：{self.cashier.ledger}"

    @property
    def tools(self) -> Toolbox:
        return Toolbox(
            [self.get_weather, self.pay, self.list_payments], idempotent=["get_weather", "list_payments"]
        )


def traveller(request: CallModel) -> Reply | str:
    """A model that buys a ticket on a sunny day, and looks into its account when it is not sure."""
    made = [call.name for message in request.messages for call in message.calls]
    told = readable(request.messages)
    if not made:
        return calls(("get_weather", {"city": "北京"}), text="先看天气。")
    if "Sunny" not in told:
        return "不是晴天，没有买票。"
    if "pay" not in made:
        return calls(("pay", {"amount": 60}), text="晴天，买票。")
    if "not known" in told and "list_payments" not in made:
        return calls(("list_payments", {}), text="不知道付成了没有，查一下。")
    return "门票买好了，付了 60 元。"


def ticket(bank: Bank, more: Callable[[str], Watch]) -> Make:
    """What makes the run of this story; ``more`` watches it as well."""

    def make(watch: Callable[[str], Watch]) -> Program[Any]:
        keep, show = watch("agent"), more("agent")

        def both(step: Step) -> None:
            keep(step)
            show(step)

        return AgentLoop(function_calling(bank.tools), watch=both).run(TASK)

    return make


def unwatched(name: str) -> Watch:
    """Watch nothing."""
    return lambda step: None


def buy(tell: Telling, bank: Bank, open_journal: Callable[[], Any]) -> None:
    """One process after another, until one of them comes to an end."""
    while True:
        with open_journal() as journal:
            try:
                watch = getattr(journal, "watch", unwatched)
                result = drive(
                    ticket(bank, tell.watch)(watch), World(traveller, bank.tools, inline=True), journal
                )
            except PowerFails:
                tell("The power fails while the payment is on its way. Another process takes over:", BOLD)
                continue
            tell.result(result)
        return


def demo(tell: Telling) -> None:
    """A ticket paid twice, and once; then the same run looked at, taken another way, and held by two."""
    tell(f"task: {TASK}")
    with tempfile.TemporaryDirectory() as folder:
        tell.heading("The naive checkpoint: everything is saved after each step")
        bank = Bank()
        buy(tell, bank, lambda: Snapshots(Path(folder, "run.json")))
        tell(f"paid: {bank.cashier.ledger}", RED)

        tell.heading("Checkpoints: what is begun is written down before it is begun")
        bank, path = Bank(), Path(folder, "run.db")
        buy(tell, bank, lambda: Checkpoints(path))
        tell(f"paid: {bank.cashier.ledger}", GREEN)

        with Checkpoints(path) as kept:
            look_back(tell, kept, Path(folder, "rain.db"))

            tell.heading("Somebody else wants to go on with a run that is held")
            try:
                Checkpoints(path)
            except AlreadyRunning as refused:
                tell(f"AlreadyRunning: {refused}".replace(str(path), path.name), GREEN)


def look_back(tell: Telling, kept: Checkpoints, path: Path) -> None:
    """Time travel, and a branch."""
    tell.heading("Time travel: every transition can be seen again (时间旅行)")
    rows: list[tuple[object, ...]] = [("no", "row", "state", "rounds", "effects", "outcomes")]
    for number, (_, outcomes, row, control) in enumerate(kept.transitions, 1):
        rows.append((number, row, control.state.name, control.rounds, control.effects, outcomes))
    tell.table(rows)
    make = ticket(Bank(), unwatched)
    number = len(kept.transitions) - 1
    moment = kept.moment(number, make)
    tell(f"\nAt transition {number} the history was:")
    for turn in moment.turns:
        for call, seen in zip(turn.calls, turn.observations, strict=True):
            tell(f"    {call_text(call)} -> {'' if seen.ok else seen.kind.name + ': '}{seen.text}")

    tell.heading("A branch: what if it had rained? (并行分支)")
    before = [each.control.state for each in kept.transitions].index(AgentState.WAITING_FOR_OBSERVATION) + 1
    kept.branch(before, path)
    bank = Bank("北京当前天气：Rainy，气温 12 摄氏度")
    with Checkpoints(path) as other:
        tell(f"{path.name} begins at transition {other.branched} of {other.parent}")
        world = World(traveller, bank.tools, inline=True)
        tell.result(drive(ticket(bank, tell.watch)(other.watch), world, other))
    tell(f"paid there: {bank.cashier.ledger}; {kept.path.name} still has {len(kept.transitions)} transitions")
