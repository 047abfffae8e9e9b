"""Chapter 21: a breaker is a machine of its own, shared by loops, and held back from nobody for ever."""

from __future__ import annotations

import asyncio
import gc
import inspect
import io
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from agentloop import (
    Act,
    AgentLoop,
    AskHuman,
    Away,
    Finish,
    Interrupt,
    Journal,
    Kind,
    Limits,
    LoopContext,
    Observation,
    Program,
    Result,
    StopReason,
    Toolbox,
    ToolCall,
    Unavailable,
    World,
    call_tool,
    drive,
)
from benchmarks import breaker as benchmark
from chapters import ch21_circuit_breaker as chapter
from chapters.ch07_drivers import drive_async, drive_on_bus
from chapters.ch21_circuit_breaker import (
    ASKED,
    CLOSED,
    FAILED,
    HALF_OPEN,
    OPEN,
    RELEASED,
    ROWS,
    SUCCEEDED,
    Breaker,
    CircuitBreakers,
    Event,
    Happening,
    Row,
    Settings,
    breaker,
    demo,
    meaning,
    mermaid,
    seconds_left,
    side_by_side,
    step,
)
from chapters.telling import Telling
from fake_llm import FakeClock, ScriptedModel, broken_tool, error_by_value, get_weather
from paradigms.react import react
from tests import check_breaker, check_breaker_guard

DRIVERS = (drive, drive_async, drive_on_bus)
PROMISES: dict[str, Any] = {
    "breaker": check_breaker.PROMISES,
    "breaker_guard": check_breaker_guard.PROMISES,
}
CALL = ToolCall("get_weather", {"city": "北京"})


# --- The promises -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", check_breaker.PROMISES)
def test_our_breakers_keep(name: str) -> None:
    check_breaker.PROMISES[name](CircuitBreakers)


@pytest.mark.parametrize("name", check_breaker_guard.PROMISES)
def test_our_guard_keeps(name: str) -> None:
    check_breaker_guard.PROMISES[name](breaker)


# --- The machine, walked everywhere -----------------------------------------------------------

SMALL = Settings(threshold=3, recovery=10.0)
NOW = 100.0
OUTCOMES = (SUCCEEDED, FAILED, RELEASED)


def seen_from_now(breaker: Breaker) -> Breaker:
    """A breaker as far as the rows can tell: whether its time has come, and in which era an outcome is."""
    waits = breaker.state is not CLOSED and breaker.until > NOW
    return breaker._replace(era=1, until=NOW + 1 if waits else NOW)


def offers(before: Breaker) -> list[Event]:
    """Every event: asking, and each outcome of a call of this era, and of one before."""
    return [Event(ASKED, NOW)] + [
        Event(kind, NOW, era) for kind in OUTCOMES for era in (before.era, before.era - 1)
    ]


def walk() -> dict[Breaker, dict[Event, Breaker | None]]:
    """Every reachable breaker, as seen from now, and where each event leads from it; ``None``: refused."""
    waiting, found = [seen_from_now(Breaker())], {}
    while waiting:
        before = waiting.pop()
        if before in found:
            continue
        moves: dict[Event, Breaker | None] = {}
        for event in offers(before):
            try:
                moves[event] = step(before, event, SMALL)
            except ValueError:
                moves[event] = None
        found[before] = moves
        waiting += [seen_from_now(after) for after in moves.values() if after is not None]
        waiting.append(before._replace(until=NOW))  # time passes
    return found


FOUND = walk()


def test_the_reachable_breakers_are_these_seven() -> None:
    closed = [Breaker(CLOSED, failures, 1, NOW) for failures in (0, 1, 2)]
    waiting = [Breaker(state, 3, 1, until) for state in (OPEN, HALF_OPEN) for until in (NOW, NOW + 1)]
    assert set(FOUND) == {*closed, *waiting}


def rows_that_hold(before: Breaker, event: Event) -> list[Row]:
    return [
        row
        for row in ROWS
        if (row.source, row.event) == (before.state, event.kind) and row.holds(before, event, SMALL)
    ]


def test_each_event_takes_one_row_a_late_one_none_and_every_row_is_taken() -> None:
    taken: list[Row] = []
    for before, moves in FOUND.items():
        for event, after in moves.items():
            rows = rows_that_hold(before, event)
            if event.kind is not ASKED and event.era < before.era:
                assert after == before, "a late outcome changes nothing"
            elif before.state is OPEN and event.kind is not ASKED:
                assert after is None and not rows, "nobody was let through while it was open"
            else:
                assert len(rows) == 1 and after is not None and after.state is rows[0].target
                taken += rows
    assert set(taken) == set(ROWS)


def test_a_call_is_let_through_exactly_where_closed_or_where_a_new_era_begins_with_it() -> None:
    for before, moves in FOUND.items():
        after = moves[Event(ASKED, NOW)]
        assert after is not None
        assert (seconds_left(before, NOW) == 0) == (before.state is CLOSED or after.era > before.era)
        assert (after.state is HALF_OPEN and after.until == NOW + 10) or after == before


def test_from_everywhere_a_good_probe_leads_back_to_closed() -> None:
    for before in FOUND:
        asked = step(before, Event(ASKED, NOW + 1), SMALL)
        assert step(asked, Event(SUCCEEDED, NOW + 1, asked.era), SMALL).state is CLOSED


def test_a_change_of_state_ends_the_era() -> None:
    for before, moves in FOUND.items():
        for after in moves.values():
            assert after is None or after.state is before.state or after.era == before.era + 1


@given(st.sampled_from(list(FOUND)), st.integers(0, 6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_only_distances_in_time_and_era_matter(before: Breaker, place: int, eras: int, seconds: int) -> None:
    """Why a walk seen from now, in one era, is a walk through all there is."""
    event = offers(before)[place]
    moved = before._replace(era=before.era + eras, until=before.until + seconds)
    shifted = event._replace(at=event.at + seconds, era=event.era + eras)
    right = FOUND[before][event]
    if right is None:
        with pytest.raises(ValueError, match="no call of era"):
            step(moved, shifted, SMALL)
        return
    after = step(moved, shifted, SMALL)
    assert (after.state, after.failures, after.era) == (right.state, right.failures, right.era + eras)
    assert after.state is CLOSED or after.until == right.until + seconds


def test_the_diagram_has_the_edges_of_the_rows() -> None:
    lines = mermaid().splitlines()
    assert lines[:2] == ["stateDiagram-v2", "    [*] --> CLOSED"]
    assert [line.split(":")[0].split() for line in lines[2:]] == [
        [row.source.name, "-->", row.target.name] for row in ROWS
    ]


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True, None, "5"])
def test_a_threshold_is_a_whole_number(wrong: Any) -> None:
    with pytest.raises(ValueError, match="threshold must be a whole number of at least 1"):
        Settings(threshold=wrong)


@pytest.mark.parametrize("wrong", [0, -1.0, float("inf"), float("nan"), None, True])
def test_a_recovery_time_is_finite(wrong: Any) -> None:
    with pytest.raises(ValueError, match="recovery must be a finite number of seconds above 0"):
        Settings(recovery=wrong)


def test_what_is_no_act_and_what_are_no_breakers_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="act must be a function"):
        breaker(5, CircuitBreakers())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes breakers, such as CircuitBreakers"):
        breaker(call_tool, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes breakers, such as CircuitBreakers"):
        breaker(call_tool, CircuitBreakers)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"settings": 5}, r"settings are Settings, such as Settings\(threshold=5\), not 5"),
        ({"settings": Settings}, "settings are Settings"),
        ({"clock": 0.0}, "clock must be a function"),
        ({"store": {}}, "store is a Store"),
    ],
)
def test_breakers_made_of_something_else_are_refused_and_not_left_closed(given: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        CircuitBreakers(**given)


def test_the_articles_numbers() -> None:
    assert (Settings().threshold, Settings().recovery, Limits().call_seconds) == (5, 60.0, 30.0)


def test_asking_is_no_outcome() -> None:
    with pytest.raises(ValueError, match="an outcome is SUCCEEDED, FAILED or RELEASED"):
        CircuitBreakers().report("permit", ASKED)


# --- Stateful: any order of deeds, against a plain model ---------------------------------------


class AnyOrder(RuleBasedStateMachine):
    """Two tools, any order of calls and outcomes; beside them, what a person would note on paper."""

    permits = Bundle("permits")

    @initialize(threshold=st.integers(1, 3))
    def begin(self, threshold: int) -> None:
        self.clock, self.threshold = FakeClock(), threshold
        self.breakers = CircuitBreakers(Settings(threshold, 10.0), clock=self.clock.now)
        self.failures = {"search": 0, "search_web": 0}  # in a row, while closed
        self.opened: dict[str, float] = {}  # when the next probe is due
        self.valid: dict[str, set[str]] = {"search": set(), "search_web": set()}  # permits that still count

    @rule(target=permits, name=st.sampled_from(["search", "search_web"]))
    def ask(self, name: str) -> tuple[str, str]:
        admitted, due = self.breakers.admit(name), self.opened.get(name)
        if due is not None and self.clock.now() < due:
            assert admitted == due - self.clock.now()
            return name, ""
        assert isinstance(admitted, str)
        if due is not None:  # a probe, and the only one
            self.opened[name] = self.clock.now() + 10
            self.valid[name].clear()
        self.valid[name].add(admitted)
        return name, admitted

    @rule(permit=consumes(permits), outcome=st.sampled_from(OUTCOMES), times=st.integers(1, 2))
    def report(self, permit: tuple[str, str], outcome: Happening, times: int) -> None:
        name, text = permit
        for _ in range(times):
            self.breakers.report(text, outcome)
        if text not in self.valid[name]:
            return
        self.valid[name].discard(text)
        probing = name in self.opened
        if outcome is SUCCEEDED:
            self.failures[name] = 0
            if probing:
                del self.opened[name]
        elif outcome is FAILED:
            self.failures[name] += 1
            if probing or self.failures[name] >= self.threshold:
                self.opened[name] = self.clock.now() + 10
                self.valid[name].clear()
        elif probing:
            self.opened[name] = self.clock.now()

    @rule(seconds=st.sampled_from([1, 5, 10]))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @invariant()
    def closed_where_it_should_be(self) -> None:
        if hasattr(self, "breakers"):
            closed = {name for name, state in self.breakers.states().items() if state is CLOSED}
            assert not closed & set(self.opened)
            assert set(self.opened) <= set(self.breakers.states())


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=30)


# --- Threads ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_what_threads_do_is_one_history_of_the_pure_machine(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step begins where the last one ended, and the last one is where the breaker stands."""
    history: list[tuple[Breaker, Event, Breaker]] = []

    def recorded(before: Breaker, event: Event, given: Settings) -> Breaker:
        after = step(before, event, given)
        history.append((before, event, after))
        return after

    monkeypatch.setattr(chapter, "step", recorded)
    clock = FakeClock()
    breakers = CircuitBreakers(Settings(3, 5.0), clock=clock.now)
    draw = random.Random(seed)

    def work() -> None:
        for _ in range(60):
            admitted = breakers.admit("search")
            outcome = draw.choice(OUTCOMES)
            if isinstance(admitted, str):
                breakers.report(admitted, outcome)
            elif draw.random() < 0.3:
                clock.advance(1)

    check_breaker.together(6, work)
    states = breakers.states()
    last = Breaker()
    for before, event, after in history:
        assert before == last and step(before, event, breakers.settings) == after
        last = after
    assert states["search"] is last.state
    outcomes = [event for _, event, _ in history if event.kind is not ASKED]
    let_through = [
        before for before, event, after in history if event.kind is ASKED and is_through(before, after)
    ]
    assert len(outcomes) == len(let_through), "each call that was let through was counted once"


def is_through(before: Breaker, after: Breaker) -> bool:
    return before.state is CLOSED or after.era > before.era


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.__name__)
def test_C01_eight_loops_side_by_side_make_one_probe(driver: Callable[..., Any]) -> None:
    clock = FakeClock()
    breakers = CircuitBreakers(clock=clock.now)
    trip(breakers)
    clock.advance(60)
    everybody_asked = threading.Event()

    class Crowd(CircuitBreakers):
        asked = 0

        def admit(self, name: str) -> str | float:
            admitted = super().admit(name)
            self.asked += 1
            if self.asked == 8:
                everybody_asked.set()
            return admitted

    def slow(city: str) -> str:
        everybody_asked.wait(5)
        reached.append(city)
        return get_weather(city)

    reached: list[str] = []
    crowd = Crowd(clock=clock.now, store=breakers.store)
    loop = AgentLoop(look_once, breaker(call_tool, crowd))
    world = World(tools=Toolbox({"get_weather": slow}))
    results: list[Result] = driven(driver, side_by_side(loop, 8), world)
    kinds = sorted(kind_of(result).name for result in results)
    assert kinds == ["RESULT"] + ["UNAVAILABLE"] * 7 and reached == ["北京"]
    assert breakers.states() == {"get_weather": CLOSED}


# --- Loops ------------------------------------------------------------------------------------


def look_once(context: LoopContext) -> Act | Finish:
    return Finish("done") if context.turns else Act((CALL,))


def look_always(context: LoopContext) -> Act:
    return Act((CALL,))


def kind_of(result: Result) -> Kind:
    return result.turns[0].observations[0].kind


def trip(breakers: CircuitBreakers, name: str = "get_weather") -> None:
    for _ in range(breakers.settings.threshold):
        breakers.report(str(breakers.admit(name)), FAILED)


def driven(driver: Callable[..., Any], program: Program[Any], world: World, *more: Any) -> Any:
    ended = driver(program, world, *more)
    return asyncio.run(ended) if inspect.iscoroutine(ended) else ended


def run(
    breakers: CircuitBreakers,
    tool: Callable[..., Any],
    reason: Any = look_once,
    limits: Limits = Limits(),  # noqa: B008
) -> Result:
    loop = AgentLoop(reason, breaker(call_tool, breakers), limits=limits)
    return drive(
        loop.run("天气？"), World(tools=Toolbox({"get_weather": tool}), clock=breakers.clock, inline=True)
    )


def test_EA42_EA51_whatever_a_tool_raises_is_observed_counted_and_ends_no_run() -> None:
    for error in (
        ValueError("no"),
        ConnectionError("503"),
        PermissionError("no"),
        SystemExit(1),
        Unavailable("busy"),
    ):
        breakers = CircuitBreakers(Settings(threshold=1))

        def raises(city: str) -> str:
            raise error  # noqa: B023 - called before the next turn

        result = run(breakers, raises)
        assert (result.answer, breakers.states()) == ("done", {"get_weather": OPEN}), repr(error)


def test_EA44_EA55_a_wait_that_is_over_and_the_tools_own_TimeoutError_both_count() -> None:
    clock = FakeClock()
    breakers = CircuitBreakers(Settings(threshold=2), clock=clock.now)

    def hangs(city: str) -> str:
        clock.advance(31)
        return "too late"

    assert kind_of(run(breakers, hangs)) is Kind.TIMEOUT
    assert kind_of(run(breakers, broken_tool(get_weather, TimeoutError("socket")))) is Kind.UNCERTAIN
    assert breakers.states() == {"get_weather": OPEN}


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.__name__)
def test_C04_a_call_that_really_hangs_is_counted_once_and_its_late_result_not_at_all(
    driver: Callable[..., Any],
) -> None:
    breakers, release, ended = CircuitBreakers(Settings(threshold=2)), threading.Event(), threading.Event()

    def hangs(city: str) -> str:
        release.wait(5)
        ended.set()
        return "too late"

    loop = AgentLoop(look_once, breaker(call_tool, breakers), limits=Limits(call_seconds=0.05))
    result = driven(driver, loop.run("天气？"), World(tools=Toolbox({"get_weather": hangs})))
    assert kind_of(result) is Kind.TIMEOUT and breakers.states() == {"get_weather": CLOSED}
    release.set()
    assert ended.wait(5)
    assert breakers.states() == {"get_weather": CLOSED}, "one timeout of two"
    trip(CircuitBreakers(Settings(threshold=1), store=breakers.store))
    assert breakers.states() == {"get_weather": OPEN}, "the second failure"


def test_C04_ten_bad_arguments_leave_it_closed() -> None:
    breakers = CircuitBreakers(Settings(threshold=3))

    def wrong(context: LoopContext) -> Act | Finish:
        if len(context.turns) == 10:
            return Finish("done")
        name, argument = ("get_weather", "town") if len(context.turns) % 2 else ("get_wether", "city")
        return Act((ToolCall(name, {argument: "北京"}),))

    result = run(breakers, get_weather, wrong, Limits(rounds=20, failures=20))
    kinds = {turn.observations[0].kind for turn in result.turns[:10]}
    assert kinds == {Kind.BAD_ARGUMENTS, Kind.UNKNOWN_TOOL} and breakers.states() == {}


def test_EA50_the_breaker_outlives_the_run_that_opened_it() -> None:
    """The fifth failure opens it and ends the run (five failed rounds are its limit): the next run gains."""
    breakers = CircuitBreakers()
    broken = broken_tool(get_weather, ConnectionError("503"))
    first = run(breakers, broken, look_always)
    assert (first.stop, first.control.rounds) == (StopReason.TOO_MANY_FAILURES, 5)
    assert breakers.states() == {"get_weather": OPEN}
    second = run(breakers, broken)
    assert kind_of(second) is Kind.UNAVAILABLE and len(broken.calls) == 5
    assert second.control.tool_calls == 0


def test_EA54_a_failure_that_is_told_by_value_is_told_as_an_observation() -> None:
    """A dict that says error is a result like any other to the toolbox: a tool says ok=False."""
    assert meaning(Observation("503", ok=False)) is FAILED
    breakers = CircuitBreakers(Settings(threshold=1))
    run(breakers, error_by_value(get_weather))
    assert breakers.states() == {"get_weather": CLOSED}
    run(breakers, lambda city: Observation("service unavailable", ok=False))
    assert breakers.states() == {"get_weather": OPEN}


def test_the_model_is_told_in_the_articles_words_and_for_how_long() -> None:
    clock = FakeClock()
    breakers = CircuitBreakers(clock=clock.now)
    trip(breakers)
    clock.advance(18.5)
    seen = run(breakers, get_weather).turns[0].observations[0]
    assert seen.retry_after == 41.5 and "工具 get_weather 当前不可用（熔断中）" in seen.text


# --- What ends in the middle ------------------------------------------------------------------


def due(**more: Any) -> CircuitBreakers:
    """Breakers whose recovery time is over."""
    clock = FakeClock()
    breakers = CircuitBreakers(Settings(**more), clock=clock.now)
    trip(breakers)
    clock.advance(breakers.settings.recovery)
    return breakers


def test_C02_a_cancelled_task_gives_the_probe_back_and_the_cancellation_goes_through() -> None:
    breakers = due()

    async def story() -> None:
        entered = asyncio.Event()

        async def get_weather(city: str) -> str:
            entered.set()
            await asyncio.Event().wait()
            return city

        loop = AgentLoop(look_once, breaker(call_tool, breakers))
        task = asyncio.create_task(drive_async(loop.run("天气？"), World(tools=Toolbox([get_weather]))))
        await entered.wait()
        assert breakers.states() == {"get_weather": HALF_OPEN}
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())
    assert breakers.states() == {"get_weather": HALF_OPEN}
    assert kind_of(run(breakers, get_weather)) is Kind.RESULT
    assert breakers.states() == {"get_weather": CLOSED}


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.__name__)
def test_C02_a_person_stops_the_run_in_the_middle_of_the_probe(driver: Callable[..., Any]) -> None:
    breakers, interrupt, forever = due(), Interrupt(), threading.Event()

    def hangs(city: str) -> str:
        interrupt.set()
        forever.wait(5)
        return city

    loop = AgentLoop(look_once, breaker(call_tool, breakers))
    result = driven(driver, loop.run("天气？"), World(tools=Toolbox({"get_weather": hangs})), None, interrupt)
    forever.set()
    assert result.stop is StopReason.HUMAN
    assert breakers.states() == {"get_weather": HALF_OPEN} and isinstance(breakers.admit("get_weather"), str)


@pytest.mark.parametrize("effects", range(1, 8))
def test_C02_an_account_run_dry_anywhere_leaks_no_slot_and_loses_nothing_seen(effects: int) -> None:
    breakers = due()
    result = run(breakers, get_weather, limits=Limits(effects=effects))
    seen = [observation for turn in result.turns for observation in turn.observations]
    if Kind.RESULT in [observation.kind for observation in seen]:
        assert breakers.states() == {"get_weather": CLOSED}, "a success that was seen is counted"
    else:
        assert isinstance(breakers.admit("get_weather"), str), "nobody holds the slot"


def test_C02_a_run_that_waits_for_a_person_gives_its_probe_back_and_goes_on_later() -> None:
    breakers, journal = due(), Journal()

    def approved(call: ToolCall) -> Program[Observation]:
        yield AskHuman(f"May I {call.name}?", about=call.id)
        return (yield from call_tool(call))

    def away(question: str) -> str:
        raise Away

    loop, tools = AgentLoop(look_once, breaker(approved, breakers)), Toolbox([get_weather])
    with pytest.raises(Away):
        drive(loop.run("天气？"), World(tools=tools, human=away, inline=True), journal)
    gc.collect()
    probe = breakers.admit("get_weather")
    assert isinstance(probe, str), "the run was left, and its slot is free"
    world = World(tools=tools, human=lambda question: "yes", inline=True)
    assert drive(loop.run("天气？"), world, journal).answer == "done"
    assert breakers.states() == {"get_weather": HALF_OPEN}, "its permit was given back, and counts no more"
    breakers.report(probe, SUCCEEDED)
    assert breakers.states() == {"get_weather": CLOSED}


def test_C02_a_probe_whose_process_died_counts_nowhere_else() -> None:
    """Its call goes on in another process, where another probe is under way: that one alone counts."""
    for outcome, state in ((SUCCEEDED, CLOSED), (FAILED, OPEN)):
        journal, died, here = Journal(), due(), due()
        loop = AgentLoop(look_once, breaker(call_tool, died))
        world = World(tools=Toolbox([get_weather]), inline=True)
        drive(loop.run("天气？"), world, journal)
        probe = str(here.admit("get_weather"))
        asked = next(
            place for place, (_, what, _) in enumerate(journal.outcomes) if what.startswith("Do ask")
        )
        again = AgentLoop(look_once, breaker(call_tool, here))
        assert drive(again.run("天气？"), world, journal.rewound(asked + 1)).answer == "done"
        assert here.states() == {"get_weather": HALF_OPEN}
        here.report(probe, outcome)
        assert here.states() == {"get_weather": state}


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.__name__)
def test_the_same_under_each_driver_and_from_any_point_of_a_journal(driver: Callable[..., Any]) -> None:
    def tried(context: LoopContext) -> Act | Finish:
        return Finish("done") if len(context.turns) == 4 else Act((CALL, CALL))

    def session(journal: Journal | None = None, driver: Callable[..., Any] = drive) -> Result:
        clock = FakeClock()
        breakers = CircuitBreakers(Settings(threshold=3), clock=clock.now)
        loop = AgentLoop(tried, breaker(call_tool, breakers))
        broken = Toolbox([broken_tool(get_weather, ConnectionError("503"))])
        world = World(tools=broken, clock=clock.now, inline=True)
        result: Result = driven(driver, loop.run("天气？"), world, journal)
        return result

    first = session()
    kinds = [observation.kind for turn in first.turns for observation in turn.observations]
    assert kinds == [Kind.UNCERTAIN] * 3 + [Kind.UNAVAILABLE] * 5
    journal = Journal()
    assert session(journal, driver) == first
    for count in range(len(journal.outcomes) + 1):
        assert len(session(journal.rewound(count), driver).turns) == len(first.turns)
    loop = AgentLoop(tried, breaker(call_tool, nobody()))
    assert driven(driver, loop.run("天气？"), World(), Journal(journal.outcomes)) == first


def nobody() -> CircuitBreakers:
    """Breakers that must not be reached: what a replay is given."""

    class Nobody(CircuitBreakers):
        def admit(self, name: str) -> str | float:
            raise AssertionError("a replay asked the breaker")

        def report(self, permit: str, outcome: Happening) -> None:
            raise AssertionError("a replay told the breaker")

    return Nobody()


OBSERVED = st.sampled_from([Observation("", ok, kind) for kind in Kind for ok in (True, False)])


@given(st.lists(st.tuples(OBSERVED, st.sampled_from([0.0, 5.0, 10.0])), max_size=12), st.integers(1, 60))
def test_whatever_is_observed_each_call_counts_once_and_no_slot_is_lost(
    world: list[tuple[Observation, float]], effects: int
) -> None:
    clock, script = FakeClock(), list(world)
    breakers = CircuitBreakers(Settings(2, 10.0), clock=clock.now)

    def act(call: ToolCall) -> Observation:
        observation, passes = script.pop(0)
        clock.advance(passes)
        return observation

    def reason(context: LoopContext) -> Act | Finish:
        clock.advance(3)
        return Act((CALL,)) if script and len(context.turns) < 12 else Finish("done")

    limits = Limits(rounds=20, failures=20, effects=effects)
    drive(AgentLoop(reason, breaker(act, breakers), limits=limits).run("?"), World(inline=True))
    breakers.states()
    assert not breakers.store.permits, "every permit has come back"
    clock.advance(10)
    assert isinstance(breakers.admit("get_weather"), str)


# --- The demo and the benchmark ---------------------------------------------------------------


def test_the_demo_computes_what_it_says() -> None:
    out = io.StringIO()
    demo(Telling(out))
    assert "calls that hung in the sick service: 15, for 465 s in all" in out.getvalue()
    assert "calls that hung in the sick service: 9, for 279 s in all" in out.getvalue()
    assert "RESULT: 1, UNAVAILABLE: 7" in out.getvalue()


def test_the_benchmark_measures_the_same_work_and_one_probe() -> None:
    figures = list(benchmark.breaker_figures(0.01))
    assert len(figures) == 2 and all(figure.value > 0 and figure.goal > 0 for figure in figures)
    assert benchmark.probes_let_through() == 1


def test_a_scripted_model_is_told_and_chooses_another_way() -> None:
    breakers = CircuitBreakers()
    trip(breakers)
    model = ScriptedModel(['Action: get_weather(city="北京")', "Action: Finish[稍后再查]"])
    tools = Toolbox([get_weather])
    loop = AgentLoop(react(tools), breaker(call_tool, breakers))
    result = drive(loop.run("天气？"), World(model, tools, inline=True))
    assert result.answer == "稍后再查" and "熔断中" in model.prompts[1]
