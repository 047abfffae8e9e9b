"""What two layers promise: plain functions of a program like chapter 35's ``two_layers``.

``PROMISES`` holds the promises by name. Periods are short here, and the seconds are those of a fake clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import (
    AgentLoop,
    CallModel,
    Effect,
    Interrupt,
    Journal,
    Limits,
    LoopContext,
    StopReason,
    Toolbox,
    World,
)
from chapters.ch35_hierarchical_loops import (
    PERIOD,
    Command,
    End,
    Shift,
    controlling,
    drive_in_turn,
    execution_loop,
    interface,
    strategy_loop,
)
from fake_llm import FakeClock, FakeModel, readable
from tests.check_machine import BrokenPromise
from tests.check_toolbox import expect

TwoLayers = Callable[..., Any]
SHORT, LONG = 20.0, 100.0
GOAL = '{"target": 20, "most_power": 0.8}'
#: What a model may say in place of a command.
SAID = (
    GOAL,
    f"```json\n{GOAL}\n```",
    '{"target": 2000, "most_power": 0.8}',
    '{"target": 20}',
    "Warmer, please.",
    "",
    ConnectionError("503"),
)


class Plant:
    """A heater that notes when it is set, and a strategy that says what it is told in ``thinks`` seconds."""

    def __init__(self, *said: Any, thinks: float = 2.0, period: float = SHORT, fails_at: float = 1e9) -> None:
        self.said, self.thinks, self.period, self.fails_at = said or (GOAL,), thinks, period, fails_at
        self.clock, self.board, self.journal = FakeClock(), interface(), Journal()
        self.model = FakeModel(self._respond)
        self.asked: list[float] = []
        self.set: list[float] = []
        self.most = 0  # turns, and characters of working memory, that a run of the execution ever had
        self.strategy, self.execution = strategy_loop(), execution_loop(self._watched(), period)

    def _respond(self, request: CallModel) -> Any:
        self.asked.append(self.clock.now() - self.thinks)
        return self.said[(len(self.asked) - 1) % len(self.said)]

    def sense(self) -> float:
        if self.clock.now() >= self.fails_at:
            raise OSError("the thermometer is broken")
        return 18.0

    def heat(self, power: float, seconds: float) -> str:
        self.set.append(self.clock.now())
        return "set"

    def _watched(self) -> Any:
        reason = controlling(self.sense, self.board, self.period)

        def watched(context: LoopContext) -> Any:
            carried = len(context.turns) + len("".join(map(str, context.working_memory.values())))
            self.most = max(self.most, carried)
            return (yield from reason(context))

        return watched

    def takes(self, effect: Effect) -> float:
        return self.thinks if isinstance(effect, CallModel) else 0.0

    def run(
        self,
        two_layers: TwoLayers,
        horizon: float = LONG,
        limits: Limits | None = None,
        interrupt: Interrupt | None = None,
    ) -> Shift:
        world = World(self.model, Toolbox([self.heat]), clock=self.clock.now, inline=True)
        program = two_layers(
            self.strategy, self.execution, self.board, "a room", self.period, horizon, limits
        )
        try:
            shift: Shift = drive_in_turn(program, world, self.clock, self.takes, self.journal, interrupt)
        except Exception as error:
            raise BrokenPromise(f"it raised {type(error).__name__}: {error}") from error
        return shift


def the_strategy_thinks_each_period_and_the_execution_acts_each_second(two_layers: TwoLayers) -> None:
    """Five periods of twenty seconds: five thoughts, a hundred settings, five commands, five reports."""
    plant = Plant()
    shift = plant.run(two_layers)
    thought = [0.0, 21.0, 41.0, 61.0, 81.0]
    expect(plant.asked == thought, f"the strategy thought at {plant.asked}, not {thought}")
    seconds = [float(second) for second in range(100)]
    expect(plant.set == seconds, f"the heater was set {len(plant.set)} times: {plant.set[:5]} ...")
    expect(len(shift.commands) == len(shift.reports) == 5, f"{len(shift.commands)} commands: {shift}")
    expect(shift.strategy is shift.execution is End.HORIZON, f"at the horizon it ended with {shift}")
    held = plant.board.read().value("command")
    expect(held == shift.commands[-1] and held.at == 81.0, f"the board holds {held}")


def the_execution_waits_for_no_thought(two_layers: TwoLayers) -> None:
    """However long the strategy thinks, or hangs, the heater is set each second."""
    for thinks in (0.0, 15.0, 29.0, 1e6):
        plant = Plant(thinks=thinks)
        plant.run(two_layers)
        gaps = {later - sooner for sooner, later in zip(plant.set, plant.set[1:], strict=False)}
        story = f"the strategy thinks for {thinks:g} s, and the heater"
        expect(
            len(plant.set) == 100 and gaps == {1.0}, f"{story} was set {len(plant.set)} times, {gaps} s apart"
        )


def reports_reach_the_strategy(two_layers: TwoLayers) -> None:
    """The strategy is shown the time, the situation, and what the execution reported."""
    plant = Plant()
    plant.run(two_layers)
    shown = readable(plant.model.requests[-1].messages)
    for due in ("81 s", "a room", "until 80 s: mean 2.00, worst 2.00", "until 60 s"):
        expect(due in shown, f"the last thought of the strategy is not shown {due!r}: {shown}")


def where_the_strategy_dies_the_execution_goes_on(two_layers: TwoLayers) -> None:
    """Whatever becomes of the strategy, the last command is held, then the safe goal, until the horizon."""

    def broken(context: LoopContext) -> Any:
        raise ZeroDivisionError("a bug")

    silent, buggy = Plant(ConnectionError("503")), Plant()
    buggy.strategy = AgentLoop(broken)
    for plant, due in ((silent, End.HORIZON), (buggy, End.BROKE_DOWN)):
        shift = plant.run(two_layers)
        expect(shift.strategy is due, f"the strategy is dead, and it ended with {shift.strategy.name}")
        told = bool(shift.problems) == (due is End.BROKE_DOWN)
        expect(told, f"the strategy ended with {due.name}, and the problems are {shift.problems}")
        expect(shift.execution is End.HORIZON, f"the strategy is dead: execution {shift.execution.name}")
        unled = [report.unled for report in shift.reports]
        expect(unled == [20] * 5, f"there never was a command, and the reports say {unled}")
    plant = Plant(GOAL, *[ConnectionError("503")] * 99, period=PERIOD)
    shift = plant.run(two_layers, horizon=4 * PERIOD)
    unled = [report.unled for report in shift.reports]
    expect(unled[:1] == [2] and unled[1:] == [0, 300, 300], f"one command at 0 s, then none: {unled}")


def where_the_execution_dies_the_strategy_ends(two_layers: TwoLayers) -> None:
    """When no report comes for a while, the strategy buys no more thoughts, and says why it ended."""
    plant = Plant(fails_at=25.0)
    shift = plant.run(two_layers, horizon=10 * LONG)
    expect(shift.execution is End.BROKE_DOWN, f"the thermometer broke: {shift.execution.name}")
    expect("thermometer" in " ".join(shift.problems), f"what broke is not told: {shift.problems}")
    expect(shift.strategy is End.UNHEARD, f"no report came any more: {shift.strategy.name}")
    expect(len(plant.asked) <= 4, f"the execution died at 25 s, and there were thoughts at {plant.asked}")


def a_command_that_rests_on_an_old_board_is_refused(two_layers: TwoLayers) -> None:
    """Who commanded while the strategy thought is not overruled by what it saw before."""
    plant, other = Plant(thinks=5.0), Command(9.0, 0.1, at=3.0)
    sense = plant.sense

    def sense_and_write() -> float:
        if plant.clock.now() == 3.0:
            plant.board.write("somebody else", {"command": other}, plant.board.read().version)
        return sense()

    plant.execution = execution_loop(controlling(sense_and_write, plant.board, SHORT), SHORT)
    shift = plant.run(two_layers, horizon=SHORT)
    held = plant.board.read().value("command")
    expect(held == other, f"it commanded what rests on an older board: {held}")
    expect(len(shift.refused) == 1 and not shift.commands, f"the refusal is not told: {shift}")
    plant = Plant(thinks=5.0)
    plant.execution = execution_loop(controlling(sense_and_write, plant.board, SHORT), SHORT)
    plant.run(two_layers)
    expect(plant.board.read().entries["command"].writer == "strategy", "later commands stand again")


def what_the_execution_carries_does_not_grow(two_layers: TwoLayers) -> None:
    """Over any number of periods, it never has more in its hands than the turns of one of them."""
    plant = Plant()
    plant.run(two_layers, horizon=10 * LONG)
    expect(plant.most <= SHORT, f"fifty periods of 20 s, and it carried {plant.most} turns and characters")


def it_ends_at_its_horizon(two_layers: TwoLayers) -> None:
    """Whatever the model says and however long it takes, it ends, within its limits and on time."""

    def check(said: list[Any], thinks: float, horizon: float, limits: Limits | None) -> None:
        plant = Plant(*said, thinks=thinks, period=10.0)
        shift = plant.run(two_layers, max(10.0, horizon), limits)
        story = f"said {said}, each in {thinks} s, horizon {horizon} s, {limits}: "
        late = plant.clock.now() - max(10.0, horizon)
        expect(late <= 3 * 30 + 10, f"{story}it ended {late} s late")
        if limits is None:
            expect(shift.execution is End.HORIZON, f"{story}the execution ended with {shift.execution.name}")
        else:
            effects = len(plant.journal.outcomes)
            expect(effects <= 1 + limits.effects, f"{story}{effects} effects")
        ends = (shift.strategy, shift.execution)
        expect(End.BROKE_DOWN not in ends, f"{story}{ends}, {shift.problems}")

    check([GOAL], 0.0, 60, None)
    for thinks, horizon in ((19.0, 35), (19.0, 30.5), (19.0, 40.5), (3.3, 20.9)):
        check([GOAL], thinks, horizon, None)
    examples = settings(deadline=None, database=None, max_examples=50)
    hostile = given(
        st.lists(st.sampled_from(SAID), min_size=1, max_size=4),
        st.sampled_from([0.0, 1.0, 7.0, 19.0, 40.0, 1e6]),
        st.integers(1, 60),
        st.none() | st.builds(Limits, effects=st.integers(1, 300), model_calls=st.integers(1, 20)),
    )
    examples(hostile(check))()


def a_person_stops_both(two_layers: TwoLayers) -> None:
    """An interrupt ends both layers at once, and the heater is set no more."""
    plant, interrupt = Plant(), Interrupt()
    sense = plant.sense

    def sense_and_stop() -> float:
        if plant.clock.now() == 33.0:
            interrupt.set()
        return sense()

    plant.execution = execution_loop(controlling(sense_and_stop, plant.board, SHORT), SHORT)
    shift = plant.run(two_layers, interrupt=interrupt)
    ends = (shift.strategy.name, shift.execution.name)
    expect(ends == ("LIMIT", "LIMIT"), f"a person stopped it, and the layers ended with {ends}")
    expect(max(plant.set) <= 33.0, f"stopped at 33 s, and the heater was set at {max(plant.set)} s")
    plant = Plant()
    plant.strategy = AgentLoop(plant.strategy.reason, perceive=lambda task: StopReason.HUMAN)
    shift = plant.run(two_layers)
    ends = (shift.strategy.name, shift.execution.name)
    expect(ends == ("LIMIT", "HORIZON"), f"a person stopped the strategy, and they ended with {ends}")


def a_journal_gives_it_again(two_layers: TwoLayers) -> None:
    """On its journal a shift is the same without model, board and heater."""
    plant = Plant(*SAID)
    due = plant.run(two_layers)
    again = Plant()
    again.journal = plant.journal
    found = again.run(two_layers)
    expect(found == due, f"replayed, it came to {found}, not {due}")
    touched = len(again.asked) + len(again.set) + again.board.read().version
    expect(not touched, f"replayed, it touched the world {touched} times")


PROMISES: dict[str, Callable[[TwoLayers], None]] = {
    promise.__name__: promise
    for promise in (
        the_strategy_thinks_each_period_and_the_execution_acts_each_second,
        the_execution_waits_for_no_thought,
        reports_reach_the_strategy,
        where_the_strategy_dies_the_execution_goes_on,
        where_the_execution_dies_the_strategy_ends,
        a_command_that_rests_on_an_old_board_is_refused,
        what_the_execution_carries_does_not_grow,
        a_person_stops_both,
        it_ends_at_its_horizon,
        a_journal_gives_it_again,
    )
}
