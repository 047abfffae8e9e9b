"""What ``corrective(most, detect)`` promises: plain functions of anything that makes such a stop rule.

``PROMISES`` holds them one by one. A run is a row of letters, one a round: ``x`` makes a tool up, ``p`` its
parameters, ``a`` an answer, ``.`` is honest work, ``f`` a tool that fails; then it answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import (
    Act,
    AgentLoop,
    CallModel,
    Do,
    Finish,
    Kind,
    Limits,
    LoopContext,
    Message,
    Observation,
    Program,
    Reply,
    Result,
    StopReason,
    Toolbox,
    ToolCall,
    World,
    drive,
    report,
)
from chapters.ch22_hallucination import grounded, numbers_in
from tests.check_toolbox import expect

Make = Callable[..., Any]
MADE_UP = "xpa"


def look(city: str) -> str:
    """Look at a city."""
    return f"{city}：26 度"


def fail(city: str) -> str:
    """Look at a city that cannot be seen."""
    raise ConnectionError("503")


DECISIONS: dict[str, Act | Finish] = {
    "x": Act((ToolCall("lok", {"city": "北京"}),)),
    "p": Act((ToolCall("look", {"town": "北京"}),)),
    "a": Finish("31 度"),
    ".": Act((ToolCall("look", {"city": "北京"}),)),
    "f": Act((ToolCall("fail", {"city": "北京"}),)),
    "r": report(Observation("A person said no.", False, Kind.REFUSED)),
}


def run(make: Make, rounds: str, limits: Limits = Limits(rounds=25, failures=25), **options: Any) -> Result:  # noqa: B008
    """A run whose rounds go like this, under the rule; then it answers."""
    return play(
        AgentLoop(_reason, accept=grounded(numbers_in), stops=(make(**options),), limits=limits), rounds
    )


def play(loop: AgentLoop, rounds: str) -> Result:
    """Run a loop whose task are its rounds."""
    return drive(loop.run(rounds), World(lambda request: Reply("x"), Toolbox([look, fail]), inline=True))


def _reason(context: LoopContext) -> Any:
    yield CallModel((Message("user", "?"),), tokens=1)
    done = len(context.turns)
    return DECISIONS[context.task[done]] if done < len(context.task) else Finish("done")


def warnings(result: Result) -> list[int]:
    """The numbers of the rounds after which the model was warned."""
    return [number for number, turn in enumerate(result.turns, 1) if turn.warnings]


# --- The promises -----------------------------------------------------------------------------


def each_kind_is_noticed_and_honest_work_is_not(make: Make) -> None:
    """A made-up tool, its parameters and facts are warned of; work, failures and a person's no are not."""
    for letter in DECISIONS:
        found = warnings(run(make, letter))
        due = [1] if letter in MADE_UP else []
        expect(found == due, f"a round {letter!r}, and the warnings stand after rounds {found}, not {due}")


def the_model_is_asked_again_after_each_warning(make: Make) -> None:
    """After a warning comes REASONING: the model is asked anew, and its mended answer counts (EA52)."""
    for rounds in ("x", "a", "xa"):
        result = run(make, rounds, most=2)
        asked = result.control.model_calls
        expect(
            result.answer == "done", f"rounds {rounds!r}, then an answer: it ended with {result.stop.name}"
        )
        expect(
            asked == len(rounds) + 1, f"rounds {rounds!r}, then an answer: the model was asked {asked} times"
        )


def it_ends_after_so_many(make: Make) -> None:
    """A model that never mends is warned ``most`` times, and the next time the run ends, honestly."""
    for most in range(4):
        for letter in MADE_UP:
            result = run(make, letter * 20, most=most)
            story = f"rounds of {letter!r} and at most {most} corrections"
            expect(result.stop is StopReason.STAGNATED, f"{story}: it ended with {result.stop.name}")
            rounds = result.control.rounds
            expect(rounds == most + 1, f"{story}: it ended in round {rounds}, not {most + 1}")
            expect(result.answer is None, f"{story}: it has the answer {result.answer!r}")


def they_are_counted_over_the_whole_run(make: Make) -> None:
    """Honest work in between does not forgive: the limit is for the run, not for a row."""
    result = run(make, "a..a..a..a", most=2)
    expect(
        result.stop is StopReason.STAGNATED, f"three made-up answers of a run, two corrections: {result.stop}"
    )
    expect(
        result.control.rounds == 7,
        f"the third made-up answer is round 7, it ended in {result.control.rounds}",
    )


def runs_share_nothing(make: Make) -> None:
    """A rule serves many runs, and each starts with no corrections."""
    rule = make(most=1)
    loop = AgentLoop(_reason, accept=grounded(numbers_in), stops=(rule,))
    for number in (1, 2):
        result = play(loop, "x")
        expect(result.answer == "done", f"run {number} made up one tool, one is allowed: {result.stop.name}")


def detecting_may_ask_the_world(make: Make) -> None:
    """``detect`` may be a program, is told of each turn, and its words reach the model; it pays like all."""

    def detect(context: LoopContext) -> Program[str | None]:
        found: str | None = (
            yield Do("look it up", lambda: "nobody said 26" if len(context.turns) == 2 else None)
        ).value
        return found

    result = run(make, "...", detect=detect)
    expect(warnings(result) == [2], f"turn 2 was found out, and the warnings stand after {warnings(result)}")
    expect("nobody said 26" in result.turns[1].warnings[0], f"the words are lost: {result.turns[1].warnings}")
    result = run(make, "...", Limits(effects=5), detect=detect)
    expect(result.stop is StopReason.EFFECTS, f"detecting was not paid for: {result.stop.name}")


def a_number_that_is_none_is_refused(make: Make) -> None:
    """``most`` is a whole number of at least 0."""
    for wrong in (-1, 1.5, None, True, "2"):
        try:
            make(most=wrong)
        except ValueError:
            continue
        expect(False, f"most={wrong!r} was taken")


def whatever_happens_it_is_bounded(make: Make) -> None:
    """Whatever the rounds are: no more made-up ones than one over the limit, each told of but the last."""

    @settings(deadline=None, database=None, max_examples=60)
    @given(st.text("xpa.fr", max_size=12), st.integers(0, 3))
    def check(rounds: str, most: int) -> None:
        result = run(make, rounds, most=most)
        places = [number for number, letter in enumerate(rounds, 1) if letter in MADE_UP]
        story = f"rounds {rounds!r}, {most} corrections: it ended with {result.stop.name}"
        expect(warnings(result) == places[:most], f"{story}, warned after rounds {warnings(result)}")
        ended = len(places) > most
        expect((result.stop is StopReason.STAGNATED) == ended, story)
        expect(
            not ended or result.control.rounds == places[most], f"{story} in round {result.control.rounds}"
        )

    check()


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        each_kind_is_noticed_and_honest_work_is_not,
        the_model_is_asked_again_after_each_warning,
        it_ends_after_so_many,
        they_are_counted_over_the_whole_run,
        runs_share_nothing,
        detecting_may_ask_the_world,
        a_number_that_is_none_is_refused,
        whatever_happens_it_is_bounded,
    )
}
