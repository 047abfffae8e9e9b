"""What the execution promises: plain functions of a factory like chapter 35's ``controlling``.

``make(sense, board, period)`` is a ``reason`` hook. ``PROMISES`` holds the promises by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import Journal, Result, Toolbox, World, drive
from chapters.ch35_hierarchical_loops import (
    GOOD_FOR,
    HOLD,
    POWERS,
    SAFE,
    TARGETS,
    Command,
    execution_loop,
    interface,
    thermostat,
)
from fake_llm import FakeClock
from tests.check_toolbox import expect

Make = Callable[..., Any]


class Bench:
    """An execution on its own for a period: a thermometer by a script, a heater that notes what is set."""

    def __init__(
        self, temperatures: Sequence[float] = (15.0,), given: dict[int, Command] | None = None
    ) -> None:
        self.clock, self.board = FakeClock(), interface()
        self.temperatures, self.given = temperatures, given or {}
        self.read: list[float] = []
        self.set: list[tuple[float, float, float]] = []  # when, power, for how long

    def sense(self) -> float:
        command = self.given.get(len(self.read))
        if command:
            self.board.write("strategy", {"command": command}, self.board.read().version)
        self.read.append(self.temperatures[len(self.read) % len(self.temperatures)])
        return self.read[-1]

    def heat(self, power: float, seconds: float) -> str:
        self.set.append((self.clock.now(), power, seconds))
        return "set"

    def run(self, make: Make, period: float, journal: Journal | None = None) -> Result:
        tools = Toolbox([self.heat])
        world = World(None, tools, sleep=self.clock.sleep, clock=self.clock.now, inline=True)
        loop = execution_loop(make(self.sense, self.board, period), period)
        return drive(loop.run("hold what is commanded"), world, journal)


commands = st.builds(Command, st.floats(*TARGETS), st.floats(*POWERS), st.just(0.0))


def it_acts_every_second_and_asks_no_model(make: Make) -> None:
    """One setting a second, for a whole period, without a model; the report is the answer."""
    bench = Bench(given={0: Command(20, 1)})
    result = bench.run(make, 30)
    times = [at for at, _, _ in bench.set]
    expect(times == [float(second) for second in range(30)], f"in 30 s the heater was set at {times}")
    expect(result.control.model_calls == 0, f"a model was asked {result.control.model_calls} times")
    expect(result.answer is not None, f"the period is over, and there is no report: {result.summary}")
    holds = {seconds for _, _, seconds in bench.set}
    expect(holds == {HOLD}, f"the heater must go out by itself after {HOLD:g} s; it was set for {holds}")


def a_command_is_obeyed_at_once(make: Make) -> None:
    """From the second in which a command stands on the board the heater is set by it, and by no older one."""
    first, second = Command(20, 1.0), Command(8, 0.5)
    bench = Bench((14.0, 15.0), {0: first, 10: second})
    bench.run(make, 20)
    for number, (at, power, _) in enumerate(bench.set):
        command = first if number < 10 else second
        due = thermostat(bench.read[number], command)
        told = f"at {at:g} s and {bench.read[number]} degrees the command is {command}"
        expect(power == due, f"{told}: the power was {power}, not {due}")


def without_a_good_command_the_safe_goal_holds(make: Make) -> None:
    """Before the first command, and when the last is too old, the heater is set by what needs no command."""
    bench = Bench((10.0,))
    report = bench.run(make, 10).answer
    due = thermostat(10.0, SAFE)
    powers = {power for _, power, _ in bench.set}
    expect(powers == {due}, f"nobody has commanded anything, and the power was {powers}, not {due}")
    expect(report.unled == 10, f"nobody has commanded anything in 10 s; the report says {report.unled}")

    command, period = Command(25, 1.0, at=0.0), GOOD_FOR + 50
    bench = Bench((10.0,), {0: command})
    report = bench.run(make, period).answer
    for at, power, _ in bench.set:
        goal = command if at < GOOD_FOR else SAFE
        due = thermostat(10.0, goal)
        expect(power == due, f"the command is {at:g} s old, and the power is {power}, not {due}")
    expect(report.unled == 50, f"for 50 s the command was too old; the report says {report.unled}")

    bench = Bench((10.0,), {0: command._replace(at=5000.0)})
    report = bench.run(make, 10).answer
    expect(report.unled == 10, f"the command is of a time to come, of another clock: {report}")


def the_constraint_holds(make: Make) -> None:
    """Whatever the thermometer says, the power is never above what is allowed, and never below nothing."""

    def check(command: Command, temperatures: list[float]) -> None:
        bench = Bench(temperatures, {0: command})
        bench.run(make, 5)
        powers = [power for _, power, _ in bench.set]
        right = all(0 <= power <= command.most_power + 0.0005 for power in powers)
        expect(right and len(powers) == 5, f"{command}, and the power was {powers} at {temperatures}")

    check(Command(20.0, 0.1), [-60.0, 90.0])
    settings(deadline=None, database=None)(
        given(commands, st.lists(st.floats(-60, 90), min_size=1, max_size=5))(check)
    )()


def its_report_is_true(make: Make) -> None:
    """The report says how far the room was from what was wanted, when, and by which command."""

    def check(command: Command, temperatures: list[float]) -> None:
        bench = Bench(temperatures, {0: command})
        report = bench.run(make, 6).answer
        off = [abs(inside - command.target) for inside in bench.read[:6]]
        told = f"{command} at {temperatures} is reported as {report}"
        expect(abs(report.mean - sum(off) / 6) < 1e-9 and report.worst == max(off), f"{told}: off by {off}")
        expect(report.at == 6.0 and report.unled == 0 and report.version == 1, told)

    check(Command(20.0, 1.0), [15.0, 24.0])
    settings(deadline=None, database=None)(
        given(commands, st.lists(st.floats(5, 30), min_size=1, max_size=6))(check)
    )()


def a_period_leaves_nothing_to_the_next(make: Make) -> None:
    """A period's history is as long as the period, and the next run begins with none of it."""
    bench = Bench(given={0: Command(20, 1)})
    tools = Toolbox([bench.heat])
    world = World(None, tools, sleep=bench.clock.sleep, clock=FakeClock().now, inline=True)
    loop = execution_loop(make(bench.sense, bench.board, 10), 10)
    for number in (1, 2, 3):
        result = drive(loop.run("hold what is commanded"), world)
        rounds, turns = result.control.rounds, len(result.turns)
        expect(rounds == turns == 11, f"period {number} has 10 s, and took {rounds} rounds, {turns} turns")


def a_journal_gives_it_again(make: Make) -> None:
    """On its journal a period is the same without thermometer, board and heater."""
    bench, journal = Bench((14.0, 16.0), {0: Command(20, 1)}), Journal()
    due = bench.run(make, 10, journal)
    empty = Bench()
    found = empty.run(make, 10, journal)
    expect(found == due, f"replayed, the period came to {found.answer}, not {due.answer}")
    expect(not empty.set and not empty.read, "replayed, it touched the world")


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        it_acts_every_second_and_asks_no_model,
        a_command_is_obeyed_at_once,
        without_a_good_command_the_safe_goal_holds,
        the_constraint_holds,
        its_report_is_true,
        a_period_leaves_nothing_to_the_next,
        a_journal_gives_it_again,
    )
}
