"""What a robust loop promises: plain functions of one ``robust_loop(situation) -> AgentLoop``.

``situation`` is the ``Situation`` of chapter 24, and the model speaks ReAct's text protocol. Most promises
are put to the storm of ``fake_llm/storm.py``, one trouble at a time. ``check_robust(robust_loop)`` raises
``BrokenPromise`` with the story of the first promise that is broken; ``PROMISES`` holds them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import (
    AgentLoop,
    CallModel,
    Limits,
    LoopError,
    Program,
    Result,
    Step,
    StopReason,
    Together,
    Toolbox,
    World,
    drive,
    worst_case_steps,
)
from chapters.ch15_goal_detection import is_yes
from chapters.ch16_hard_limits import drive_in_pretend_time
from chapters.ch21_circuit_breaker import CircuitBreakers
from chapters.ch24_five_failure_modes import Fate, Situation, fate, robust_loop, situation
from fake_llm import FakeClock, FakeModel, flaky_tool, get_weather, stubborn_model
from fake_llm.storm import Storm, Trouble
from tests.check_machine import BrokenPromise
from tests.check_toolbox import expect

Make = Callable[[Situation], AgentLoop]

examples = settings(deadline=None, database=None, max_examples=30)
limits = st.builds(
    Limits,
    rounds=st.integers(1, 8),
    model_calls=st.integers(1, 12),
    tool_calls=st.integers(1, 30),
    effects=st.integers(1, 100),
    failures=st.integers(1, 5),
    tokens=st.integers(500, 20_000),
    seconds=st.floats(5.0, 300.0),
    call_seconds=st.floats(1.0, 30.0),
)
brews = st.lists(st.sampled_from(Trouble), max_size=5, unique=True)


# --- One run --------------------------------------------------------------------------------------


def weathered(make: Make, storm: Storm, **changes: Any) -> Result:
    """Run a storm's errand on the fake clock; ``changes`` are to its situation."""
    loop = make(replace(situation(storm), **changes))
    return drive_in_pretend_time(loop.run(storm.errand.text), storm.world, storm.clock, storm.takes)


def survived(make: Make, troubles: Iterable[Trouble], seeds: Iterable[int] = range(6)) -> None:
    """Each of these troubles, alone, is got over with a right answer."""
    for trouble in troubles:
        for seed in seeds:
            storm = Storm(seed, [trouble])
            result = weathered(make, storm)
            came_to = fate(storm, result)
            if came_to is not Fate.RIGHT:
                told = f"storm {seed}, in which {trouble.value}, came to {came_to.value}"
                raise BrokenPromise(f"{told}:\n{came_of(storm, result, seed)}")


def came_of(storm: Storm, result: Result, seed: int) -> str:
    """What a run came to; beside an answer, the one that the same errand has where nothing strikes."""
    if result.answer is None:
        return f"{storm.errand.text}\n{result.summary}"
    calm = Storm(seed, [])
    right = drive(robust_loop(situation(calm)).run(calm.errand.text), calm.world).answer
    return f"{storm.errand.text}\n{result.answer!r} was answered, and {right!r} would have been right"


def small(tools: Toolbox, clock: FakeClock, **changes: Any) -> Situation:
    """A situation with nothing dangerous, no other tool, and no goal but an answer."""
    plain = Situation(
        tools,
        CircuitBreakers(clock=clock.now),
        goal=lambda context, answer: None,
        facts=lambda answer: (),
        dangerous=lambda call: None,
        alternatives={},
        only_reads=tools.is_idempotent,
        times=1,
    )
    return replace(plain, **changes)


def asked(make: Make, model: FakeModel, tools: Toolbox, **changes: Any) -> Result:
    """Ask for the weather in a small world."""
    clock = FakeClock()
    world = World(model, tools, clock=clock.now, sleep=clock.sleep, inline=True)
    return drive(make(small(tools, clock, **changes)).run("今天北京天气怎么样？"), world)


def reporter() -> FakeModel:
    """A model that looks once, and tells what it saw."""

    def respond(request: CallModel) -> str:
        said = request.messages[-1].content
        look = 'Confidence: 1\nAction: get_weather(city="北京")'
        return f"Confidence: 1\nAction: Finish[{said}]" if "当前天气" in said else look

    return FakeModel(respond)


# --- The promises: tools -----------------------------------------------------------------------------


def what_flickers_is_tried_again(make: Make) -> None:
    """A tool that fails once is called again, and the model never hears of it."""
    tools = Toolbox([flaky_tool(get_weather, 1)], idempotent=["get_weather"])
    result = asked(make, reporter(), tools)
    told = [seen.text for turn in result.turns for seen in turn.observations]
    expect(
        told == [get_weather("北京")], f"the tool failed once and then worked, and the model was told {told}"
    )


def a_tool_that_is_down_is_replaced(make: Make) -> None:
    """Where a tool is down for good, another one is asked in its place."""
    survived(make, [Trouble.IS_DOWN])


def a_tool_that_hangs_is_soon_left_alone(make: Make) -> None:
    """A tool that does not come back costs a few waits, and not the whole run."""
    survived(make, [Trouble.HANGS])


def results_that_differ_are_not_believed(make: Make) -> None:
    """A value that is not so, or no value at all, is found out by asking again."""
    survived(make, [Trouble.DIFFERS, Trouble.NONSENSE], range(20))


def a_huge_result_does_not_fill_the_context(make: Make) -> None:
    """However large results are, requests stay small, and what was found is not lost."""
    survived(make, [Trouble.HUGE], range(12))


# --- The promises: the model -------------------------------------------------------------------------


def a_model_that_cannot_be_had_is_waited_for(make: Make) -> None:
    """A request that failed is sent again before it counts as a failed round."""
    model = reporter()
    failures = iter(["503"] * 2)

    def overloaded(request: CallModel) -> Any:
        for text in failures:
            raise ConnectionError(text)
        return model(request)

    result = asked(make, FakeModel(overloaded), Toolbox([get_weather]))
    rounds = result.control.rounds
    expect(
        rounds == 2, f"the model could not be had twice, then looked and answered: in {rounds} rounds, not 2"
    )
    survived(make, [Trouble.OVERLOADED, Trouble.STALLS])


def who_goes_round_is_told_so_first(make: Make) -> None:
    """A model that repeats itself is told to change direction, and goes on when it does."""
    survived(make, [Trouble.LOOPS, Trouble.CIRCLES])


def who_does_not_listen_is_stopped(make: Make) -> None:
    """A model that goes round for ever is stopped well before its rounds are used up."""
    result = asked(make, stubborn_model(), Toolbox([get_weather]), limits=Limits(rounds=50), window=20_000)
    expect(
        result.stop is StopReason.REPEATED_ACTION and result.control.rounds <= 12,
        f"the same call with the same result for ever: ended with {result.summary}",
    )


def an_answer_needs_a_look(make: Make) -> None:
    """An answer that is given before anybody has looked is not the end."""
    survived(make, [Trouble.EARLY])


def an_answer_needs_facts(make: Make) -> None:
    """What nothing has shown does not stand in an answer."""
    survived(make, [Trouble.EMBROIDERS])


def what_is_made_up_is_corrected(make: Make) -> None:
    """A model that invents tools or arguments is corrected in words that it heeds."""
    survived(make, [Trouble.INVENTS_TOOL, Trouble.INVENTS_ARGUMENTS])


def who_makes_up_more_and_more_is_stopped(make: Make) -> None:
    """Corrections have an end, even if a success stands between any two of them."""
    turns = iter(range(1000))

    def respond(request: CallModel) -> str:
        number = next(turns)
        action = (
            f'get_weather(city="{("北京", "上海", "广州")[number % 3]}")'
            if number % 2
            else f"look_{number}()"
        )
        return f"Confidence: 1\nAction: {action}"

    result = asked(make, FakeModel(respond), Toolbox([get_weather]), limits=Limits(rounds=50), window=20_000)
    expect(
        result.stop is StopReason.STAGNATED and result.control.rounds <= 20,
        f"every other round called a tool that does not exist: ended with {result.summary}",
    )


def a_guess_is_not_acted_on(make: Make) -> None:
    """What the model says it is not sure of is thought over again."""
    survived(make, [Trouble.GUESSES], range(20))
    said = []

    def person(question: str) -> str:
        said.append(question)
        return "no"

    model = FakeModel(lambda request: f"Confidence: 0.1\nAction: Finish[{len(request.messages)} {next(odd)}]")
    odd = iter(range(1000))
    tools, clock = Toolbox([get_weather]), FakeClock()
    world = World(model, tools, person, clock=clock.now, sleep=clock.sleep, inline=True)
    result = drive(make(small(tools, clock)).run("今天北京天气怎么样？"), world)
    expect(
        result.answer is None,
        f"it was never sure, a person always said no, and {result.answer!r} was answered",
    )
    expect(bool(said), "it was never sure, and no person was asked")


# --- The promises: the whole -------------------------------------------------------------------------


def nothing_dangerous_is_done_without_a_yes(make: Make) -> None:
    """Money is spent after a person's clear yes, and after no other word; and that is asked once."""

    @examples
    @given(st.text(max_size=20) | st.sampled_from(["yes", "no", "YES ", "yes?", "是", '{"amount": 5}', ""]))
    def check(answer: str) -> None:
        storm = Storm(3, [Trouble.WANTS_TO_PAY, Trouble.FLICKERS])
        questions = []

        def person(question: str) -> str:
            questions.append(question)
            return answer

        loop = make(situation(storm))
        world = replace(storm.world, human=person)
        drive_in_pretend_time(loop.run(storm.errand.text), world, storm.clock, storm.takes)
        pays = storm.struck[Trouble.WANTS_TO_PAY]
        asked_for = [question for question in questions if "pay(" in question]
        expect(len(asked_for) == pays, f"{pays} payment wanted, asked for {len(asked_for)} times")
        allowed = is_yes(answer) or answer.strip().startswith("{")
        expect(allowed or not storm.ledger, f"the answer was {answer!r}, and {storm.ledger} was paid")

    check()


def it_ends_within_its_limits_and_says_why(make: Make) -> None:
    """Whatever strikes, the run ends within the limits it was given, honestly, each call with one result."""

    @examples
    @given(st.integers(0, 1000), brews, limits)
    def check(seed: int, brewing: list[Trouble], given_limits: Limits) -> None:
        storm, steps = Storm(seed, brewing), list[Step]()
        loop = make(replace(situation(storm), limits=given_limits))
        expect(loop.limits == given_limits, f"its limits are {loop.limits}, and it was given {given_limits}")
        program = replace(loop, watch=steps.append).run(storm.errand.text)
        result = drive_in_pretend_time(program, storm.world, storm.clock, storm.takes)
        spent = result.control
        expect(
            len(steps) <= worst_case_steps(given_limits), f"it took {len(steps)} steps under {given_limits}"
        )
        expect(spent.rounds <= given_limits.rounds, f"{spent.rounds} rounds under {given_limits}")
        expect(spent.effects <= given_limits.effects, f"{spent.effects} effects under {given_limits}")
        final = result.stop is StopReason.FINAL_ANSWER
        expect(
            final == (result.answer is not None), f"it ended with {result.stop.name} and {result.answer!r}"
        )
        came_to = fate(storm, result)
        expect(
            came_to in (Fate.RIGHT, Fate.HONEST),
            f"it came to {came_to.value}: {result.answer!r}, {storm.ledger}",
        )
        pairs = [(len(turn.calls), len(turn.observations)) for turn in result.turns]
        expect(all(calls == seen for calls, seen in pairs), f"calls and results by turn: {pairs}")

    check()


def a_bug_ends_the_run_with_what_there_is(make: Make) -> None:
    """An exception in a hook reaches the caller as ERROR, with its cause, the turns so far and no answer."""

    def bug(*given: Any) -> Any:
        raise KeyError("a bug")

    for hook in ("goal", "facts", "dangerous"):
        storm = Storm(1, [])
        try:
            result = weathered(make, storm, **{hook: bug})
        except LoopError as error:
            expect(
                isinstance(error.__cause__, KeyError), f"{hook} raised KeyError, told was {error.__cause__!r}"
            )
            expect(
                error.result.stop is StopReason.ERROR,
                f"{hook} raised, and the run ended with {error.result.stop}",
            )
            expect(bool(error.result.turns), f"{hook} raised, and what was found before is gone")
        else:
            raise BrokenPromise(f"{hook} raised KeyError, and the run ended with {result.summary}")


def runs_share_nothing(make: Make) -> None:
    """A loop may run again, and beside itself: each run comes to what it would come to alone."""
    tools, clock = Toolbox([get_weather], idempotent=["get_weather"]), FakeClock()
    loop = make(small(tools, clock, limits=Limits(rounds=20)))
    tasks = [f"{city}天气怎么样？" for city in ("北京", "上海", "广州")]

    def respond(request: CallModel) -> str:
        task, turns = request.messages[1].content, len(request.messages)
        said = request.messages[-1].content
        if turns < 12:
            action = f'get_weather(city="{task[:2]}")' if turns % 4 < 2 else f"find_{turns % 5}()"
        else:
            action = f"Finish[{task[:2]}: {turns} {said}]"
        return f"Confidence: 1\nAction: {action}"

    def together() -> Program[list[Result]]:
        results: list[Result] = (yield Together(tuple(loop.run(task) for task in tasks))).value
        return results

    world = World(FakeModel(respond), tools, clock=clock.now, sleep=clock.sleep, inline=True)
    alone = [told(drive(make(small(tools, clock)).run(task), world)) for task in tasks]
    again = [told(drive(loop.run(task), world)) for task in tasks]
    beside = [told(result) for result in drive(together(), world)]
    expect(
        again == alone, f"a loop run one time after another came to {again}, a new one each time to {alone}"
    )
    expect(beside == alone, f"side by side they came to {beside}, alone to {alone}")


def told(result: Result) -> tuple[Any, ...]:
    """What a run came to, but for its time and the ids of its calls."""
    return result.answer, result.stop, [(turn.thought, turn.warnings) for turn in result.turns]


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        what_flickers_is_tried_again,
        a_tool_that_is_down_is_replaced,
        a_tool_that_hangs_is_soon_left_alone,
        results_that_differ_are_not_believed,
        a_huge_result_does_not_fill_the_context,
        a_model_that_cannot_be_had_is_waited_for,
        who_goes_round_is_told_so_first,
        who_does_not_listen_is_stopped,
        an_answer_needs_a_look,
        an_answer_needs_facts,
        what_is_made_up_is_corrected,
        who_makes_up_more_and_more_is_stopped,
        a_guess_is_not_acted_on,
        nothing_dangerous_is_done_without_a_yes,
        it_ends_within_its_limits_and_says_why,
        a_bug_ends_the_run_with_what_there_is,
        runs_share_nothing,
    )
}


def check_robust(make: Make) -> None:
    """Check one robust loop. Raises ``BrokenPromise`` with the story of the first promise broken."""
    for promise in PROMISES.values():
        promise(make)
