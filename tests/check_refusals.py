"""What a bound on refusals promises: plain functions of one ``refused_too_often``, ours and a reader's.

``make(most)`` makes a stop rule ``(control, context)`` that puts up with ``most`` refused answers in a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from agentloop import (
    AgentLoop,
    Finish,
    Kind,
    Limits,
    LoopContext,
    Observation,
    Result,
    StopReason,
    World,
    drive,
)
from tests.check_toolbox import expect
from tests.goal_worlds import MOVES, TASK, TOOLS, WIDE, moves, played

Make = Callable[..., Any]


def never(context: LoopContext, answer: Any) -> str:
    """Refuse every answer."""
    return "not yet"


def expect_right(make: Make, most: int, made: Sequence[str], result: Result) -> None:
    """Hold a run, in which every answer was refused, against what is due."""
    sequence = [made[min(number, len(made) - 1)] for number in range(WIDE.rounds)]
    rounds = [number for number, move in enumerate(sequence, 1) if move == "answer"]
    due = StopReason.STAGNATED if len(rounds) > most else StopReason.MAX_ITERATIONS
    at = rounds[most] if len(rounds) > most else WIDE.rounds
    expect(
        (result.stop, result.control.rounds) == (due, at),
        f"{most} refusals are allowed, the moves are {', '.join(made)} (the last of them for ever), and each "
        f"answer is refused: due is {due.name} in round {at}, and it ended with {result.stop.name} in round "
        f"{result.control.rounds}",
    )


def it_allows_exactly_so_many(make: Make) -> None:
    """A run survives exactly ``most`` refusals; the next one ends it with STAGNATED."""
    for most in range(4):
        expect_right(make, most, ("answer",), played(("answer",), accept=never, stops=(make(most),)))


def it_counts_over_the_run(make: Make) -> None:
    """Refusals are counted in the whole run: a look in between forgives none."""
    made = ("answer", "look", "answer", "mumble", "answer", "look")
    expect_right(make, 2, made, played(made, accept=never, stops=(make(2),)))


def it_counts_nothing_else(make: Make) -> None:
    """Failed calls, calls that a guard held back, and replies that cannot be read are no refused answers."""
    for move in ("fail", "mumble", "invent a tool", "look twice", "be held back"):
        expect_right(make, 0, (move,), played((move,), accept=never, stops=(make(0),)))

    def refuse(call: Any) -> Observation:
        return Observation("not allowed", False, Kind.REFUSED)

    loop = AgentLoop(lambda context: MOVES["look"], refuse, stops=(make(0),), limits=WIDE)
    stop = drive(loop.run(TASK), World(inline=True)).stop
    expect(
        stop is StopReason.MAX_ITERATIONS,
        f"a guard refuses each call, no answer was refused, and it ended with {stop.name}",
    )


def an_accepted_answer_wins(make: Make) -> None:
    """An answer that is accepted ends the run as a success, also after the last refusal allowed."""

    def third_time(context: LoopContext, answer: Any) -> str | None:
        return "not yet" if len(context.turns) < 2 else None

    result = played(("answer",), accept=third_time, stops=(make(2),))
    expect(result.answer == "长城", f"the third answer is accepted, and it ended with {result.stop.name}")


def its_ending_is_no_success(make: Make) -> None:
    """Where it ends a run there is no answer, and each refusal stands in the turns."""
    result = played(("answer",), accept=never, stops=(make(1),))
    expect(result.answer is None, f"every answer was refused, and yet there is the answer {result.answer!r}")
    expect(len(result.turns) == 2, f"two answers were refused, and there are {len(result.turns)} turns")


def runs_share_nothing(make: Make) -> None:
    """One rule serves many runs, one after the other and side by side, and each counts for itself."""
    rule = make(1)
    for number in (1, 2):
        rounds = played(("answer",), accept=never, stops=(rule,)).control.rounds
        expect(rounds == 2, f"the second refusal ends a run, and run {number} took {rounds} rounds")
    loop = AgentLoop(lambda context: Finish("长城"), accept=never, stops=(rule,), limits=Limits(failures=9))
    waiting = loop.run(TASK)
    next(waiting)  # begun, and left standing
    rounds = drive(loop.run(TASK), World(tools=TOOLS, inline=True)).control.rounds
    expect(rounds == 2, f"beside another run, it took {rounds} rounds instead of 2")
    waiting.close()


def asked_twice_it_counts_once(make: Make) -> None:
    """A rule that is asked twice about the same turn (another rule holds it, too) counts it once."""
    rule = make(1)
    rounds = played(("answer",), accept=never, stops=(rule, rule)).control.rounds
    expect(
        rounds == 2, f"the second refusal ends a run; the rule is given twice, and it took {rounds} rounds"
    )


def it_counts_as_it_says(make: Make) -> None:
    """Whatever a model does, the run ends at the right refusal, or at another limit."""

    @given(moves.filter(bool), st.integers(0, 4))
    @example(["answer", "fail", "answer"], 1)
    def count(made: list[str], most: int) -> None:
        expect_right(make, most, made, played(made, accept=never, stops=(make(most),)))

    count()


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        it_allows_exactly_so_many,
        it_counts_over_the_run,
        it_counts_nothing_else,
        an_accepted_answer_wins,
        its_ending_is_no_success,
        runs_share_nothing,
        asked_twice_it_counts_once,
        it_counts_as_it_says,
    )
}
