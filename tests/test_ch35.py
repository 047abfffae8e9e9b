"""Chapter 35: a strategy that thinks every five minutes, and an execution that acts every second."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import pytest

from agentloop import (
    AgentLoop,
    Do,
    Interrupt,
    Limits,
    Program,
    StopReason,
    Toolbox,
    World,
    bounded,
    drive,
)
from chapters.ch07_drivers import drive_async, drive_on_bus
from chapters.ch35_hierarchical_loops import (
    DEAD_FROM,
    HORIZON,
    PEOPLE,
    PERIOD,
    TICK,
    Building,
    Command,
    End,
    Room,
    Shift,
    alone,
    command_in,
    controlling,
    credulous,
    drive_in_turn,
    execution_loop,
    interface,
    layered,
    paced,
    strategy_loop,
    two_layers,
)
from fake_llm import FakeClock, FakeModel
from tests import check_controlling, check_in_turn, check_two_layers
from tests.check_controlling import Bench
from tests.check_machine import BrokenPromise
from tests.check_two_layers import GOAL, LONG, SHORT, Plant


@pytest.mark.parametrize("name", check_in_turn.PROMISES)
def test_the_driver_in_turn_keeps(name: str) -> None:
    check_in_turn.PROMISES[name](drive_in_turn)


@pytest.mark.parametrize("name", check_controlling.PROMISES)
def test_our_execution_keeps(name: str) -> None:
    check_controlling.PROMISES[name](controlling)


@pytest.mark.parametrize("name", check_two_layers.PROMISES)
def test_our_layers_keep(name: str) -> None:
    check_two_layers.PROMISES[name](two_layers)


def test_credulous_breaks_the_promise_that_it_is_there_to_break() -> None:
    with pytest.raises(BrokenPromise, match="the command is 600 s old"):
        check_controlling.without_a_good_command_the_safe_goal_holds(credulous)


# --- The chapter's figures --------------------------------------------------------------------


def figures(building: Building) -> dict[str, float]:
    """The figures of a shift, by the titles of the demo's columns."""
    titles = ("mean", "cold", "warm", "calls", "tokens")
    return dict(zip(titles, map(float, building.figures("")[1:]), strict=True))


@functools.cache
def a_shift() -> tuple[Building, Shift]:
    """A shift under two layers."""
    building = Building()
    return building, layered(building)


def test_A136_two_layers_hold_what_one_loop_does_not_at_a_fraction_of_the_tokens() -> None:
    both, shift = a_shift()
    two, slow, dear = figures(both), figures(alone(PERIOD)), figures(alone(TICK))
    assert two["mean"] < dear["mean"] < slow["mean"] / 10
    assert two["calls"] == HORIZON / PERIOD and dear["calls"] > 50 * two["calls"]
    assert dear["tokens"] > 15 * two["tokens"]
    assert two["warm"] < 0.5 < slow["warm"]
    assert len(shift.commands) == len(shift.reports) == HORIZON / PERIOD


def test_on_the_tokens_of_two_layers_one_loop_ends_in_the_cold() -> None:
    both, _ = a_shift()
    poor = alone(TICK, both.tokens)
    assert poor.tokens <= both.tokens + 200 and figures(poor)["mean"] > 15


def test_A137_the_execution_asks_no_model_and_a_period_is_a_run() -> None:
    bench = Bench(given={0: Command(20, 1)})
    result = bench.run(controlling, PERIOD)
    assert result.control.model_calls == result.control.tokens == 0
    assert (result.control.rounds, result.control.tool_calls) == (PERIOD + 1, PERIOD)


def test_A138_goals_and_constraints_go_down_and_reports_come_up_by_the_board() -> None:
    building, _ = a_shift()
    entries = building.board.read().entries
    assert (entries["command"].writer, entries["report"].writer) == ("strategy", "execution")
    assert entries["report"].value.version < entries["command"].version + 1
    assert (entries["command"].value.target, entries["report"].value.at) == (17.0, HORIZON)


def test_a_stale_command_heats_nobodys_room() -> None:
    wasted = {}
    for rule in (credulous, controlling):
        building = Building(DEAD_FROM)
        shift = layered(building, rule)
        wasted[rule] = sum(building.room.powers[PEOPLE[1] :])
        assert shift.execution is End.HORIZON
    assert wasted[controlling] < wasted[credulous] / 2


def test_the_heater_goes_out_by_itself() -> None:
    clock = FakeClock()
    room = Room(clock, doors=())
    room.heat(1.0, seconds=5)
    clock.advance(100)
    room.pass_time()
    assert room.powers == [1.0] * 5 + [0.0] * 95


# --- Commands ---------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [GOAL, f"```json\n{GOAL}\n```", f"<think>{{}}</think> {GOAL}"])
def test_a_command_is_read(text: str) -> None:
    assert command_in(text) == Command(20.0, 0.8)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Warmer, please.", "There is no JSON object"),
        ('{"target": 20}', "most_power must be a number from 0 to 1, not None"),
        ('{"target": 200, "most_power": 1}', "target must be a number from 5 to 30, not 200"),
        ('{"target": "20", "most_power": 1}', "target must be"),
        ('{"target": true, "most_power": 1}', "target must be"),
        ('{"target": NaN, "most_power": 1}', "target must be"),
    ],
)
def test_what_is_no_command_is_told_and_asked_for_again(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        command_in(text)
    model = FakeModel(lambda request: text if len(request.messages) < 3 else GOAL)
    result = drive(strategy_loop().run("Set the goal."), World(model, inline=True))
    assert result.answer == GOAL and told in model.prompts[1]


def test_a_strategy_that_never_commands_ends_and_the_board_stays_as_it_was() -> None:
    plant = Plant("Warmer, please.")
    shift = plant.run(two_layers)
    assert shift.commands == () and plant.board.read().value("command") is None
    assert len(plant.asked) <= 3 * LONG / SHORT and shift.strategy is End.HORIZON


def test_a_command_of_an_hour_ago_is_not_obeyed_after_a_restart() -> None:
    plant = Plant(ConnectionError("503"))
    plant.board.write("strategy", {"command": Command(25, 1.0, at=5000.0)}, 0)
    assert [report.unled for report in plant.run(two_layers).reports] == [20] * 5


# --- Accounts, arguments, drivers ---------------------------------------------------------------


@pytest.mark.parametrize("limits", [Limits(effects=60), Limits(tool_calls=33), Limits(seconds=50)])
def test_both_layers_pay_from_one_account(limits: Limits) -> None:
    plant = Plant()
    shift = plant.run(two_layers, limits=limits)
    assert (shift.strategy, shift.execution) == (End.LIMIT, End.LIMIT)
    assert len(plant.journal.outcomes) <= 1 + limits.effects and len(plant.set) <= limits.tool_calls


def test_inside_a_program_whose_account_is_dry_it_says_so() -> None:
    plant = Plant()

    def outer() -> Program[Any]:
        yield Do("the last effect", lambda: None)
        return (yield from two_layers(plant.strategy, plant.execution, plant.board, period=20, horizon=100))

    shift = drive_in_turn(bounded(outer(), Limits(effects=1)), World(inline=True), FakeClock())
    assert (shift.strategy, shift.execution, shift.commands) == (End.LIMIT, End.LIMIT, ())


def test_a_broken_heater_ends_the_execution_after_a_few_failures() -> None:
    def heat(power: float, seconds: float) -> str:
        raise OSError("a fuse")

    plant = Plant()
    world = World(plant.model, Toolbox([heat]), clock=plant.clock.now, inline=True)
    program = two_layers(plant.strategy, plant.execution, plant.board, period=20, horizon=200)
    shift = drive_in_turn(program, world, plant.clock)
    assert (shift.strategy, shift.execution) == (End.UNHEARD, End.LIMIT)
    assert "TOO_MANY_FAILURES" in shift.problems[0]


@pytest.mark.parametrize(("period", "horizon"), [(0, 100), (-1, 100), (100, 20), (float("nan"), 100)])
def test_a_shift_holds_a_period(period: float, horizon: float) -> None:
    plant = Plant()
    with pytest.raises(ValueError, match="a shift holds at least one period"):
        program = two_layers(plant.strategy, plant.execution, plant.board, period=period, horizon=horizon)
        drive_in_turn(program, World(inline=True), plant.clock)
    with pytest.raises(ValueError, match="a period holds at least one tick"):
        controlling(plant.sense, plant.board, 0.2)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 0, -5])
def test_periods_and_horizons_are_finite(seconds: float) -> None:
    plant = Plant()
    with pytest.raises(ValueError, match="a finite number of seconds above 0"):
        next(two_layers(plant.strategy, plant.execution, plant.board, period=20, horizon=seconds))
    with pytest.raises(ValueError, match="a finite number of seconds above 0"):
        controlling(plant.sense, plant.board, seconds)
    with pytest.raises(ValueError, match="a finite number of seconds above 0"):
        execution_loop(plant.execution.reason, seconds)


def test_a_pace_is_a_guard_like_any_other() -> None:
    clock = FakeClock()
    world = World(None, Toolbox({"beat": lambda: "beat"}), sleep=clock.sleep, clock=clock.now, inline=True)
    inner = execution_loop(controlling(lambda: 20.0, interface(), 10), 10)
    drive(AgentLoop(inner.reason, paced(2, paced(3)), limits=Limits(rounds=3)).run("beat"), world)
    assert clock.slept == [3, 2] * 3


@pytest.mark.parametrize("driver", [drive_async, drive_on_bus], ids=["drive_async", "drive_on_bus"])
def test_every_driver_comes_to_the_same_period(driver: Callable[..., Any]) -> None:
    bench, found = Bench((14.0, 16.0), {5: Command(20, 1)}), Bench((14.0, 16.0), {5: Command(20, 1)})
    due = bench.run(controlling, 20)
    world = World(None, Toolbox([found.heat]), sleep=found.clock.sleep, clock=found.clock.now, inline=True)
    loop = execution_loop(controlling(found.sense, found.board, 20), 20)
    assert asyncio.run(driver(loop.run("hold what is commanded"), world)) == due
    assert found.set == bench.set


def test_a_whole_shift_is_replayed_by_the_plain_driver() -> None:
    plant, again = Plant(), Plant()
    due = plant.run(two_layers)
    program = two_layers(again.strategy, again.execution, again.board, "a room", SHORT, LONG)
    assert drive(program, World(inline=True), plant.journal) == due


def test_broken_off_and_resumed_a_shift_goes_on_to_its_horizon() -> None:
    plant = Plant()
    plant.run(two_layers)
    for count in range(0, len(plant.journal.outcomes), 37):
        again = Plant()
        again.journal = plant.journal.rewound(count)
        shift = again.run(two_layers)
        assert shift.execution is End.HORIZON and len(shift.reports) == LONG / SHORT


def test_a_person_stops_a_shift_under_the_plain_driver_as_well() -> None:
    interrupt, plant = Interrupt(), Plant()
    interrupt.set()
    program = two_layers(plant.strategy, plant.execution, plant.board, period=SHORT, horizon=LONG)
    shift = drive(program, World(inline=True), interrupt=interrupt)
    assert (shift.strategy, shift.execution, plant.set) == (End.LIMIT, End.LIMIT, [])
    assert StopReason.HUMAN.name in shift.problems[0]


def test_the_journal_names_every_look_and_every_setting() -> None:
    plant = Plant()
    plant.run(two_layers, horizon=SHORT)
    asked = [asked.split(" ")[0] for _, asked, _ in plant.journal.outcomes]
    assert asked.count("CallTool") == SHORT and asked.count("CallModel") == 1
