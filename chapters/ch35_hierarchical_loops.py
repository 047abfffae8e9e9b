"""A slow loop says what is wanted, a fast one sees to it each second, and neither waits for the other.

Article A, 层级Loop：策略与执行的嵌套. Covers A-136..A-138.

In chapter 34 one loop was above the others, but all moved at the pace of a model's thoughts. A process that
is controlled does not wait for those: a door opens, and the room is cold before a model has answered. So the
loop is split, as control theory splits it, into two that run at their own pace:

=====================  ============================================================================
策略Loop (A-136)        every five minutes a model looks at the calendar and the last report, and
                       commands: which goal, within which constraint. It sees ahead, and is dear
执行Loop (A-137)        every second a rule reads the thermometer and sets the heater. It asks no model
                       (B-61: which decisions belong to rules?) and costs nothing
命令接口 (A-138)        the shared board of chapter 33: commands go down, reports come up
=====================  ============================================================================

Without it, one loop has to choose: asking the model every second costs a fortune in tokens, asking it every
five minutes leaves the room to itself in between. The demo shows all three, with their figures.

Either may die, so neither trusts the other for ever:

- a command rests on what was seen at a time, and is good for so long; the last one is held until then, and
  after that the execution falls back to a safe goal that needs nobody. It says so in its report
- a command that rests on an old version of the board is refused by the board: a strategy that slept and
  wakes up late cannot undo what was commanded since
- a strategy that hears no report for a while ends, and buys no more thoughts
- the heater itself goes out when nobody has set it for some seconds

The execution of a period is a run of its own: its history is at most a period long, and what it hands on is a
report of one line (状态生命周期短). Nothing grows with the hours, and at the horizon both end.

``drive_in_turn`` is a driver for worlds whose time is simulated: strands that sleep or think side by side do
so in the order in which they are done, as in any discrete-event simulation, and an hour takes no time.

Departures: the article prints no code. A plant, two loops and a driver make this chapter long.

Exercises
---------
1. ``credulous`` below holds the last command for ever. What does its promise say?
   ``python -m pytest --impl controlling=chapters/ch35_hierarchical_loops.py:credulous``
2. Let the execution wake the strategy before its time, when the deviation is large (异常), but not more
   often than once a minute: ``python -m pytest --impl two_layers=my_layers.py:two_layers``
3. Add a third layer that sets the calendar once a day. Who may write which key of the board?
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from agentloop import (
    STOPPED_BY_A_PERSON,
    Act,
    AgentLoop,
    AskHuman,
    Away,
    CallModel,
    Do,
    Effect,
    Finish,
    Interrupt,
    Journal,
    LimitReached,
    Limits,
    LoopContext,
    Message,
    Observation,
    Program,
    Reply,
    RunClock,
    Sleep,
    Stage,
    StopReason,
    Strand,
    Together,
    Toolbox,
    ToolCall,
    World,
    bounded,
    call_tool,
    not_begun,
    perform,
    report,
    settle,
    too_late,
)
from chapters.ch33_shared_state import REPLACE, Board, Conflict, Snapshot, read, write
from chapters.telling import GREEN, RED, Telling
from fake_llm import FakeClock, FakeModel, readable
from paradigms.arguments import is_number, require_seconds
from paradigms.orchestrator import object_in
from paradigms.prompt import block, think
from paradigms.text_protocol import render

T = TypeVar("T")
PERIOD = 300.0  # seconds: how often the strategy thinks
TICK = 1.0  # seconds: how often the execution acts
HORIZON = 2400.0  # seconds, of a shift

# --- Time that is simulated -------------------------------------------------------------------


def drive_in_turn(
    program: Program[T],
    world: World,
    clock: FakeClock,
    takes: Callable[[Effect], float] = lambda effect: 0.0,
    journal: Journal | None = None,
    interrupt: Interrupt | None = None,
) -> T:
    """Run a program in simulated time: of all that is under way, what is done first comes first.

    ``takes(effect)`` is how long an effect lasts, in seconds of ``clock``; a ``Sleep`` lasts as long as it
    says. What lasts longer than it may is left behind on time, and not done. A person's time is not the
    run's where nothing else is under way, and what goes on beside one who is ``Away`` goes on first.
    """
    stage = Stage(program, journal, world.may_repeat)
    time, order = RunClock(clock.now, stage.at), itertools.count()
    under_way: list[_UnderWay] = []
    unanswered: list[_UnderWay] = []
    waiting, away = stage.waiting, Away()
    while not stage.finished:
        for strand in waiting:
            since = time.now()
            seconds, what_comes = _begun(strand, stage, world, since, takes)
            begun = _UnderWay(clock.now() + seconds, next(order), since, strand, what_comes)
            heapq.heappush(under_way, begun)
        stopped = interrupt is not None and interrupt.raised
        if not under_way:
            if not stopped:
                raise away
            under_way, unanswered = unanswered, []
        done = heapq.heappop(under_way)
        clock.advance(max(done.done_at - clock.now(), 0.0))
        came: Any = None
        try:
            came = STOPPED_BY_A_PERSON if stopped else done.what_comes()
        except Away as nobody:
            away = nobody
            unanswered.append(done)
        if all(type(each.strand.effect) is AskHuman for each in (done, *under_way)):
            time.stood_still(max(done.since, stage.at))
        waiting = [] if done in unanswered else stage.deliver(done.strand, came, time.now())
    result: T = stage.result
    return result


class _UnderWay(NamedTuple):
    """An effect that was begun: until when, in time of the world, and since when, in the run's."""

    done_at: float
    number: int
    since: float
    strand: Strand
    what_comes: Callable[[], Any]


def _begun(
    strand: Strand, stage: Stage, world: World, now: float, takes: Callable[[Effect], float]
) -> tuple[float, Callable[[], Any]]:
    """How long a strand's effect lasts, and the function that says then what came of it."""
    effect = strand.effect
    if now >= effect.deadline:
        return 0.0, lambda: not_begun(effect)
    stage.begin(strand)
    if isinstance(effect, Sleep):
        return effect.seconds, lambda: None
    seconds = takes(effect)
    if seconds > effect.allowed:
        return effect.allowed, lambda: too_late(effect)
    return seconds, lambda: perform(effect, world)


# --- The interface of commands (命令接口) -------------------------------------------------------


class Command(NamedTuple):
    """What the strategy wants: a goal, and a constraint. ``at`` is the time at which it looked."""

    target: float  # degrees
    most_power: float  # from 0 to 1
    at: float = 0.0


class Report(NamedTuple):
    """What the execution says of a period: how far the room was from the target, in degrees.

    ``version`` is that of the last command that it saw, ``unled`` the seconds in which none was good.
    """

    at: float
    version: int
    mean: float
    worst: float
    unled: int

    def __str__(self) -> str:
        off = f"mean {self.mean:.2f}, worst {self.worst:.2f} degrees off"
        return f"until {self.at:.0f} s: {off}, {self.unled} s without a good command"


#: What needs no command: no frost, and not much power.
SAFE = Command(target=12.0, most_power=0.4)
GOOD_FOR = 2 * PERIOD


def interface() -> Board:
    """The memory that both layers share. Each writes its own key, and reads the other's."""
    return Board({"command": REPLACE, "report": REPLACE})


TARGETS, POWERS = (5.0, 30.0), (0.0, 1.0)


def command_in(text: str) -> Command:
    """Read the command that a model wrote. Raises ``ValueError`` that says what would be right."""
    written = object_in(text)
    values = []
    for name, (least, most) in (("target", TARGETS), ("most_power", POWERS)):
        value: Any = written.get(name)
        if not is_number(value) or not least <= value <= most:
            raise ValueError(f"{name} must be a number from {least:g} to {most:g}, not {value!r}.")
        values.append(float(value))
    return Command(*values)


# --- The execution: a rule, each second ---------------------------------------------------------

HOLD = 5.0  # seconds: so long the heater goes on by itself
Reason = Callable[[LoopContext], Program[Act | Finish]]


def controlling(
    sense: Callable[[], float], board: Board, period: float = PERIOD, good_for: float = GOOD_FOR
) -> Reason:
    """Make the ``reason`` hook of the execution: each second read, compare, set; after a period, report.

    No model is asked. A command is obeyed from the second in which it stands on the board, for as long
    as it is good; then the safe goal takes its place.
    """
    steps = _ticks(period)

    def reason(context: LoopContext) -> Program[Act | Finish]:
        look = Do("read thermometer and command", lambda: (sense(), board.entry("command")), repeatable=True)
        (inside, entry), now = yield look
        command = entry.value
        led = command is not None and 0 <= now - command.at < good_for
        goal = command if led else SAFE
        tally = context.private.setdefault(reason, [])
        if len(tally) == steps:
            missed = [deviation for deviation, _ in tally]
            unled = sum(not was_led for _, was_led in tally)
            return Finish(Report(now, entry.version, sum(missed) / steps, max(missed), unled))
        tally.append((abs(inside - goal.target), led))
        return Act((ToolCall("heat", {"power": thermostat(inside, goal), "seconds": HOLD}),))

    return reason


def _ticks(period: float) -> int:
    require_seconds("a period", period)
    steps = round(period / TICK)
    if steps < 1:
        raise ValueError(f"a period holds at least one tick of {TICK:g} s, not {period!r} s")
    return steps


def thermostat(inside: float, goal: Command) -> float:
    """The power that holds the target, and some more for each degree that is missing."""
    power = (goal.target - OUTSIDE) / FULL_POWER + 0.5 * (goal.target - inside)
    return round(min(max(power, 0.0), goal.most_power), 3)


def paced(
    seconds: float, act: Callable[[ToolCall], Any] = call_tool
) -> Callable[[ToolCall], Program[Observation]]:
    """Wrap ``act``: after each call, so many seconds pass. It gives a loop its pace."""

    def acted(call: ToolCall) -> Program[Observation]:
        seen: Observation = yield from settle(act(call))
        yield Sleep(seconds)
        return seen

    return acted


def execution_loop(reason: Reason, period: float = PERIOD) -> AgentLoop:
    """The loop of one period. Its limits are those of a period, and nothing of it is left afterwards."""
    steps = _ticks(period)
    limits = Limits(rounds=steps + 1, tool_calls=steps, effects=3 * steps + 10, seconds=2 * period)
    return AgentLoop(reason, paced(TICK), limits=limits)


# --- The strategy: a model, every five minutes --------------------------------------------------

STRATEGY = """\
You set the goal for the heating of a room; a thermostat holds it, second by second. You are asked every five
minutes. Look ahead: people want it warm when they come. Power is dear: for nobody allow half of it, and all
only where the last report shows that the goal was missed by more than a degree.

Answer with one JSON object: {"target": degrees, "most_power": 0 to 1}"""


def _objection(context: LoopContext, answer: Any) -> str | None:
    try:
        command_in(answer)
    except ValueError as wrong:
        return str(wrong)
    return None


def strategy_loop() -> AgentLoop:
    """The loop that thinks of one command: a model asked once, and again where it cannot be obeyed."""
    reason = think(STRATEGY, lambda reply: Finish(reply.text), render)
    return AgentLoop(reason, accept=_objection, limits=Limits(rounds=3))


# --- The two, side by side ----------------------------------------------------------------------


class End(Enum):
    """How a layer ended."""

    HORIZON = "it went on to the horizon"
    UNHEARD = "no report came any more"
    LIMIT = "an allowance ended"
    BROKE_DOWN = "it raised an exception"


class Shift(NamedTuple):
    """What two layers did: the commands that were written and the reports, in order, and how each ended.

    ``refused`` are commands that rested on an old version, ``problems`` the words of what went wrong.
    """

    strategy: End
    execution: End
    commands: tuple[Command, ...]
    reports: tuple[Report, ...]
    refused: tuple[Conflict, ...]
    problems: tuple[str, ...]


REMEMBERED = 6  # reports that the strategy keeps in mind


class _Log:
    """What both layers have done so far."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.reports: list[Report] = []
        self.refused: list[Conflict] = []


def enough_for(horizon: float, period: float = PERIOD) -> Limits:
    """The limits of a shift of that many seconds: a few effects each second, a few thoughts each period."""
    steps, thoughts = round((horizon + period) / TICK), 3 * round(horizon / period + 1)
    return Limits(
        model_calls=thoughts,
        tool_calls=steps,
        effects=4 * steps + 20 * thoughts,
        tokens=1000 * thoughts,
        seconds=horizon + 2 * period,
    )


def two_layers(
    strategy: AgentLoop,
    execution: AgentLoop,
    board: Board,
    situation: str = "",
    period: float = PERIOD,
    horizon: float = HORIZON,
    limits: Limits | None = None,
) -> Program[Shift]:
    """Run a strategy every ``period`` seconds and an execution all the time, until the ``horizon``.

    ``situation`` is what the strategy is told each time, beside the time and the last reports. Whatever
    becomes of one, the other goes on as long as it has reason to. All is on one account.
    """
    require_seconds("the horizon", horizon)
    if not 0 < period <= horizon:
        raise ValueError(f"a shift holds at least one period, not {horizon!r} s of periods of {period!r} s")
    log = _Log()
    strands = (
        _strategy(strategy, board, situation, period, horizon, log),
        _execution(execution, board, horizon, log),
    )
    try:
        ends = yield from bounded(_together(strands), limits or enough_for(horizon, period), "a shift")
    except LimitReached as ended:
        ends = [ended, ended]
    problems = tuple(f"{type(end).__name__}: {end}" for end in ends if isinstance(end, Exception))
    done = (tuple(log.commands), tuple(log.reports), tuple(log.refused))
    return Shift(_end(ends[0]), _end(ends[1]), *done, problems)


def _together(strands: tuple[Program[End], ...]) -> Program[list[Any]]:
    ends: list[Any] = (yield Together(strands)).value
    return ends


def _end(came_to: Any) -> End:
    if isinstance(came_to, End):
        return came_to
    return End.LIMIT if isinstance(came_to, LimitReached) else End.BROKE_DOWN


def _strategy(
    loop: AgentLoop, board: Board, situation: str, period: float, horizon: float, log: _Log
) -> Program[End]:
    """Look, think, command, sleep until the next period; end where nobody reports any more."""
    memory = deque[Report](maxlen=REMEMBERED)
    while True:
        seen, now = yield Do("look at the board", board.read, repeatable=True)
        heard = seen.value("report")
        if now >= horizon:
            return End.HORIZON
        if now - (heard.at if heard else 0.0) > 1.5 * period:
            return End.UNHEARD
        if heard and heard not in memory:
            memory.append(heard)
        told = {"time": f"{now:.0f} s", "situation": situation, "in force": seen.value("command")}
        told |= {"reports (长期记忆)": "".join(f"\n{each}" for each in memory)}
        yield from _commanded(loop.knowing(told), board, seen, now, log)
        now = (yield Sleep(0)).at
        if now >= horizon:  # it thought for so long: nobody waits for it, and its time is up
            return End.HORIZON
        yield Sleep(period - now % period + TICK)  # by then the report of the period is there


def _commanded(loop: AgentLoop, board: Board, seen: Snapshot, now: float, log: _Log) -> Program[None]:
    """One thought of the strategy. Where it brings no command, the last one stands while it is good."""
    result = yield from loop.run("Set the goal for the next period.")
    if result.stop is StopReason.HUMAN:
        raise LimitReached(result.control)
    if result.answer is None:
        return
    command = command_in(result.answer)._replace(at=now)
    written = yield from write(board, "strategy", {"command": command}, seen.version)
    if isinstance(written, Conflict):
        log.refused.append(written)
    else:
        log.commands.append(command)


def _execution(loop: AgentLoop, board: Board, horizon: float, log: _Log) -> Program[End]:
    """Period after period, each a run of its own that leaves nothing but its report."""
    now = (yield Sleep(0)).at
    while now < horizon:
        result = yield from loop.run("hold what is commanded")
        if result.answer is None:
            raise LimitReached(result.control)
        told: Report = result.answer
        log.reports.append(told)
        seen = yield from read(board)
        yield from write(board, "execution", {"report": told}, seen.version)
        now = told.at
    return End.HORIZON


# --- A first attempt, and what one loop does alone -----------------------------------------------


def credulous(sense: Callable[[], float], board: Board, period: float = PERIOD) -> Reason:
    """An execution that holds the last command for ever, whatever became of those who gave it."""
    return controlling(sense, board, period, good_for=1e9)


OPERATE = """\
You set the heater of a room, from 0 to 1. Look ahead: people want it warm when they come.

Answer with one JSON object: {"power": 0 to 1}"""


def asking(sense: Callable[[], float], situation: str, hold: float) -> Reason:
    """Make the ``reason`` hook of one loop for all: the model is asked for the power itself, each time."""

    def reason(context: LoopContext) -> Program[Act | Finish]:
        inside, now = yield Do("read the thermometer", sense, repeatable=True)
        shown = f"time: {now:.0f} s\nsituation: {situation}\ninside: {inside:.1f} degrees"
        asked = block(Message("system", OPERATE), Message("user", shown))
        reply = (yield CallModel(asked.messages, tokens=asked.tokens)).value
        if not isinstance(reply, Reply):
            return report(reply)
        power = object_in(reply.text).get("power")
        return Act((ToolCall("heat", {"power": power, "seconds": hold}),))

    return reason


# --- The plant: a room in winter, with a door ----------------------------------------------------

OUTSIDE = -5.0  # degrees
FULL_POWER = 80.0  # degrees above outside, that the heater reaches in the end
INERTIA = 900.0  # seconds
DOOR = 3.0  # how much more is lost through it, in walls
DOORS = ((930, 990), (1480, 1540))  # open from, and until
PEOPLE = (600, 1800)  # there from, and until
WARM, EMPTY = 21.0, 17.0
SITUATION = f"people are there from {PEOPLE[0]} s to {PEOPLE[1]} s and want {WARM:g}; else {EMPTY:g} will do"


class Room:
    """A room with a heater and a door, in winter; ``temperatures`` and ``powers`` hold one a second."""

    def __init__(
        self, clock: FakeClock, doors: Sequence[tuple[int, int]] = DOORS, breaks_at: float = math.inf
    ) -> None:
        self._clock, self._doors, self._breaks_at = clock, doors, breaks_at
        self._power, self._until = 0.0, 0.0
        self.temperatures = [EMPTY]
        self.powers: list[float] = []

    def pass_time(self) -> None:
        """Bring the room to the present, second by second."""
        for second in range(len(self.powers), int(self._clock.now())):
            power = self._power if second < self._until else 0.0
            inside = self.temperatures[-1]
            loss = inside - OUTSIDE
            open_door = any(since <= second < until for since, until in self._doors)
            change = (FULL_POWER * power - loss * (1 + DOOR * open_door)) / INERTIA
            self.powers.append(power)
            self.temperatures.append(inside + change)

    def sense(self) -> float:
        """The temperature now, in degrees. Raises ``OSError`` when the thermometer has broken."""
        if self._clock.now() >= self._breaks_at:
            raise OSError("no reading")
        self.pass_time()
        return self.temperatures[-1]

    def heat(self, power: float, seconds: float) -> str:
        """Set the heater, from 0 to 1; it goes out by itself after so many seconds."""
        if not 0 <= power <= 1:
            raise ValueError("the power is from 0 to 1")
        self.pass_time()
        self._power, self._until = power, self._clock.now() + seconds
        return "set"


THINKS = 4.0  # seconds, for one answer of the model


def thinking_takes_time(effect: Effect) -> float:
    """How long an effect lasts here, in seconds."""
    return THINKS if isinstance(effect, CallModel) else 0.0


class Building:
    """A room, and a model that dies at ``dead_from``; the thermometer breaks at ``breaks_at``."""

    def __init__(self, dead_from: float = HORIZON, breaks_at: float = math.inf) -> None:
        self.clock, self.dead_from = FakeClock(), dead_from
        self.room = Room(self.clock, breaks_at=breaks_at)
        self.model, self.board = FakeModel(self._respond), interface()
        self.world = World(self.model, Toolbox([self.room.heat]), clock=self.clock.now, inline=True)

    def _respond(self, request: CallModel) -> str | Exception:
        """What the model says: it looks a period ahead, and knows the thermostat's rule as well as we do."""
        now = self.clock.now()
        if now >= self.dead_from:
            return ConnectionError("503")
        target = WARM if PEOPLE[0] - PERIOD <= now < PEOPLE[1] else EMPTY
        shown = readable(request.messages)
        if request.messages[0].content == OPERATE:
            inside = float(shown.partition("inside: ")[2].partition(" ")[0])
            return f'{{"power": {thermostat(inside, Command(target, 1.0))}}}'
        missed = float(shown.rpartition("worst ")[2].partition(" ")[0]) if "worst " in shown else 0.0
        return f'{{"target": {target}, "most_power": {1.0 if target == WARM or missed > 1 else 0.5}}}'

    def drive(self, program: Program[T]) -> T:
        """Run a program in this building; then the rest of the shift passes."""
        came_to = drive_in_turn(program, self.world, self.clock, thinking_takes_time)
        self.clock.advance(max(HORIZON - self.clock.now(), 0.0))
        self.room.pass_time()
        return came_to

    @property
    def tokens(self) -> int:
        """What was sent to the model."""
        return sum(request.tokens for request in self.model.requests)

    def figures(self, name: str) -> tuple[str, ...]:
        """How it was while people were there, and what it took."""
        there = [inside - WARM for inside in self.room.temperatures[PEOPLE[0] : PEOPLE[1]]]
        mean = sum(map(abs, there)) / len(there)
        calls = len(self.model.requests)
        cold, warm = max(-min(there), 0.0), max(*there, 0.0)
        return name, f"{mean:.2f}", f"{cold:.1f}", f"{warm:.1f}", str(calls), str(self.tokens)


# --- The story ----------------------------------------------------------------------------------


def alone(tick: float, tokens: int = 10**6) -> Building:
    """A shift under one loop that asks the model for everything, each ``tick`` seconds."""
    building = Building()
    limits = Limits(
        rounds=4000, model_calls=4000, tool_calls=4000, effects=20_000, tokens=tokens, seconds=HORIZON
    )
    hook = asking(building.room.sense, SITUATION, hold=tick + 2 * THINKS)
    building.drive(AgentLoop(hook, paced(tick), limits=limits).run("keep the room as people want it"))
    return building


def layered(building: Building, controlling: Callable[..., Reason] = controlling) -> Shift:
    """A shift under two layers."""
    execution = execution_loop(controlling(building.room.sense, building.board))
    return building.drive(two_layers(strategy_loop(), execution, building.board, SITUATION))


def demo(tell: Telling) -> None:
    """One loop, too slow or too dear; two layers; and what becomes of each when the other dies."""
    tell(f"{SITUATION}; the door is open from {', '.join(f'{since} to {until} s' for since, until in DOORS)}")
    both = Building()
    shift = layered(both)
    tell.heading(f"{HORIZON / 60:g} minutes: one loop, and two layers (degrees off while people are there)")
    rows: list[tuple[str, ...]] = [("", "mean", "too cold", "too warm", "model calls", "tokens")]
    rows += [alone(PERIOD).figures("one loop, every five minutes")]
    rows += [alone(TICK).figures("one loop, every second")]
    rows += [alone(TICK, both.tokens).figures("the same, on the tokens of two layers")]
    rows += [both.figures("two layers")]
    tell.table(rows)

    tell.heading("What went down to the execution, and what came up")
    tell.table(_exchanged(shift))

    tell.heading(f"From {DEAD_FROM:g} s on the model cannot be reached; people leave at {PEOPLE[1]} s")
    for name, rule in (("the last command, for ever", credulous), (f"good for {GOOD_FOR:g} s", controlling)):
        building = Building(DEAD_FROM)
        shift = layered(building, rule)
        wasted = sum(building.room.powers[PEOPLE[1] :])
        unled = sum(each.unled for each in shift.reports)
        text = f"{name}: {wasted:.0f} s of full power for nobody, {unled} s under the safe goal"
        tell(text, RED if rule is credulous else GREEN)

    tell.heading("At 1000 s the thermometer breaks")
    building = Building(breaks_at=1000.0)
    shift = layered(building)
    last = max(second for second, power in enumerate(building.room.powers) if power)
    tell(f"execution: {shift.execution.name}, {shift.execution.value}\n    {shift.problems[0]}", RED)
    tell(
        f"strategy: {shift.strategy.name}, {shift.strategy.value}; it had thought {len(shift.commands)} times"
    )
    tell(f"the heater went out by itself after second {last}", GREEN)


DEAD_FROM = 1500.0


def _exchanged(shift: Shift) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("seen at", "target", "most power", "report: mean", "worst")]
    for command, told in zip(shift.commands, shift.reports, strict=False):
        seen = (f"{command.at:.0f} s", f"{command.target:g}", f"{command.most_power:g}")
        rows.append((*seen, f"{told.mean:.2f}", f"{told.worst:.2f}"))
    return rows
