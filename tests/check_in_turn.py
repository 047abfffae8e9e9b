"""What a driver for simulated time promises: plain functions of one like chapter 35's ``drive_in_turn``.

``PROMISES`` holds the promises by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import (
    AskHuman,
    Away,
    CallModel,
    Do,
    Effect,
    Interrupt,
    Journal,
    Limits,
    Message,
    Observation,
    Program,
    Sleep,
    Together,
    World,
    bounded,
)
from fake_llm import FakeClock, FakeModel
from tests.check_toolbox import expect

DriveInTurn = Callable[..., Any]
ASK = CallModel((Message("user", "?"),))
WORLD = World(FakeModel(lambda request: "!"), inline=True)


def asleep(name: str, seconds: float, times: int, woken: list[tuple[str, float]]) -> Program[float]:
    """Sleep again and again, and note when."""
    at = 0.0
    for _ in range(times):
        at = (yield Sleep(seconds)).at
        woken.append((name, at))
    return at


def side_by_side(*programs: Program[Any]) -> Program[list[Any]]:
    return (yield Together(programs)).value  # type: ignore[no-any-return]


def what_is_done_first_comes_first(drive_in_turn: DriveInTurn) -> None:
    """Programs side by side sleep side by side: all wake in the order of their times, none is late."""

    @settings(deadline=None, database=None)
    @given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5)), min_size=1, max_size=4))
    def check(sleepers: list[tuple[int, int]]) -> None:
        woken: list[tuple[str, float]] = []
        clock = FakeClock()
        programs = [asleep(str(number), *each, woken) for number, each in enumerate(sleepers)]
        ends = drive_in_turn(side_by_side(*programs), WORLD, clock)
        times = [at for _, at in woken]
        expect(times == sorted(times), f"sleeping {sleepers} (seconds, times), they woke at {times}")
        due = [float(seconds * times) for seconds, times in sleepers]
        expect(ends == due, f"sleeping {sleepers} (seconds, times), they ended at {ends}, not {due}")
        expect(clock.now() == max(due), f"sleeping {sleepers}, it took {clock.now()} s, not {max(due)}")

    check()


def who_thinks_holds_up_nobody(drive_in_turn: DriveInTurn) -> None:
    """While a model takes its time for one, the other acts; the answer comes when it is due."""
    woken: list[tuple[str, float]] = []

    def thinking() -> Program[tuple[Any, float]]:
        reply, at = yield ASK
        return reply.text, at

    program = side_by_side(thinking(), asleep("quick", 1, 10, woken))
    ends = drive_in_turn(program, WORLD, FakeClock(), lambda effect: 7.5 * isinstance(effect, CallModel))
    expect(ends == [("!", 7.5), 10.0], f"a thought of 7.5 s beside ten sleeps of 1 s came to {ends}")
    due = [("quick", float(second)) for second in range(1, 11)]
    expect(woken == due, f"while the other thought, it woke at {woken}")


def what_lasts_too_long_is_left_behind_and_not_done(drive_in_turn: DriveInTurn) -> None:
    """A call longer than its allowance is a failed observation at that time; it has no effect."""
    done: list[str] = []
    clock = FakeClock()

    def respond(request: CallModel) -> str:
        done.append("asked")
        return "!"

    def asking() -> Program[tuple[Any, float]]:
        reply, at = yield ASK
        return reply, at

    def takes(effect: Effect) -> float:
        return float("inf") if isinstance(effect, CallModel) else 0.0

    limits = Limits(call_seconds=20)
    reply, at = drive_in_turn(bounded(asking(), limits), World(FakeModel(respond), inline=True), clock, takes)
    late = isinstance(reply, Observation) and at == 20.0
    expect(late, f"a call that never ends, where 20 s are allowed, came to {reply} at {at} s")
    expect(done == [], "the call was left behind, and was made all the same")


def a_person_stops_it(drive_in_turn: DriveInTurn) -> None:
    """An interrupt is the outcome of whatever is under way, and the program ends."""
    interrupt = Interrupt()

    def stopping() -> Program[None]:
        yield Sleep(3)
        yield Do("stop", interrupt.set)

    woken: list[tuple[str, float]] = []
    program = side_by_side(stopping(), asleep("sleeper", 2, 50, woken))
    ends = drive_in_turn(program, WORLD, FakeClock(), interrupt=interrupt)
    expect(len(woken) <= 1, f"stopped after 3 s, it went on to wake at {woken}")
    expect(isinstance(ends[1], Exception), f"stopped by a person, the sleeper came to {ends[1]}")


def who_is_away_holds_up_nobody(drive_in_turn: DriveInTurn) -> None:
    """Where a person is away, what goes on beside goes on; then the run is left, or ended by a person."""

    def away(question: str) -> str:
        raise Away("later")

    def asking() -> Program[str]:
        return str((yield AskHuman("May I?")).value)

    for stops in (False, True):
        woken, interrupt = list[tuple[str, float]](), Interrupt()

        def beside(stops: bool = stops, interrupt: Interrupt = interrupt) -> Program[None]:
            yield Sleep(30)
            yield Do("stop, or not", interrupt.set if stops else int)

        program = side_by_side(asking(), asleep("beside", 5, 4, woken), beside())
        try:
            ends = drive_in_turn(program, World(human=away, inline=True), FakeClock(), interrupt=interrupt)
        except Away:
            expect(not stops, "a person was away, another one stopped the run, and it was left")
        else:
            expect(stops, f"nobody has answered, and the run ended with {ends}")
        expect(len(woken) == 4, f"a person is away, and who sleeps beside woke {len(woken)} times, not 4")


def a_persons_time_is_not_the_runs(drive_in_turn: DriveInTurn) -> None:
    """While nothing but a person is waited for, the run's time stands still; beside others it goes on."""
    clock = FakeClock()

    def slow(question: str) -> str:
        clock.advance(1000)
        return "yes"

    def asking() -> Program[float]:
        yield AskHuman("May I?")
        return (yield Sleep(1)).at

    def takes(effect: Effect) -> float:
        return 500.0 * isinstance(effect, AskHuman)

    world = World(human=slow, inline=True)
    at = drive_in_turn(bounded(asking(), Limits(seconds=1e6)), world, clock, takes)
    expect(at == 1.0, f"a person took their time, then it slept for 1 s, and the run's time is {at} s")
    ends = drive_in_turn(side_by_side(asking(), asleep("beside", 2000, 1, [])), world, FakeClock(), takes)
    expect(ends[1] == 2000.0, f"beside a question it slept for 2000 s, and woke at {ends[1]} s")


def a_journal_gives_it_again(drive_in_turn: DriveInTurn) -> None:
    """Broken off anywhere and driven again on its journal, it comes to the same at the same time."""
    journal = Journal()

    def program() -> Program[list[Any]]:
        return side_by_side(asleep("a", 2, 4, []), asleep("b", 3, 3, []))

    due = drive_in_turn(program(), WORLD, FakeClock(), journal=journal)
    for count in range(len(journal.outcomes) + 1):
        ends = drive_in_turn(program(), WORLD, FakeClock(), journal=journal.rewound(count))
        late = [end - begun for end, begun in zip(ends, due, strict=True)]
        # What was under way when it broke off is begun anew.
        expect(all(0 <= each <= 3 for each in late), f"resumed after {count} outcomes, it ended at {ends}")
    expect(ends == due, f"replayed to the end, it came to {ends}, not {due}")


PROMISES: dict[str, Callable[[DriveInTurn], None]] = {
    promise.__name__: promise
    for promise in (
        what_is_done_first_comes_first,
        who_thinks_holds_up_nobody,
        what_lasts_too_long_is_left_behind_and_not_done,
        a_person_stops_it,
        who_is_away_holds_up_nobody,
        a_persons_time_is_not_the_runs,
        a_journal_gives_it_again,
    )
}
