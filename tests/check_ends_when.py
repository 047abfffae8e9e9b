"""What an outside end promises: plain functions of one ``ends_when``, used on ours and on a reader's.

``make(check)`` makes a stop rule ``(control, context)`` that ends the run when the check has no objection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentloop import Do, Journal, Limits, LoopContext, Program, StopReason, World
from tests.check_toolbox import expect
from tests.goal_worlds import played

Make = Callable[..., Any]


def met_after(rounds: int, asked: list[Any], program: bool = True) -> Callable[[LoopContext, Any], Any]:
    """A check of a goal that is met when so many rounds are over; it notes what it was asked about."""

    def plain(context: LoopContext, answer: Any) -> str | None:
        asked.append(answer)
        return None if len(context.turns) >= rounds else "<still missing>"

    def looking(context: LoopContext, answer: Any) -> Program[str | None]:
        yield Do("look", lambda: None, repeatable=True)
        return plain(context, answer)

    return looking if program else plain


def it_ends_the_run_at_once(make: Make) -> None:
    """The run ends after the first round in which the goal is met, with EXTERNALLY_DONE, and not before."""
    for rounds in (1, 2, 5):
        for program in (False, True):
            result = played(("look",), stops=(make(met_after(rounds, [], program)),))
            expect(
                (result.stop, result.control.rounds) == (StopReason.EXTERNALLY_DONE, rounds),
                f"the goal is met after round {rounds}, and it ended with {result.stop.name} "
                f"in round {result.control.rounds}",
            )


def it_gives_no_answer(make: Make) -> None:
    """There is no answer then: nobody gave one, and what was seen stands in the turns."""
    result = played(("look",), stops=(make(met_after(1, [])),))
    expect(result.answer is None, f"nobody answered, and yet there is the answer {result.answer!r}")
    expect("北京：晴" in result.summary, f"what was seen is not in the summary: {result.summary}")


def what_is_missing_is_no_warning(make: Make) -> None:
    """Until then the run goes on as if nobody had looked: the model is not told what is missing."""
    result = played(("look", "look", "answer"), stops=(make(met_after(9, [])),))
    expect(result.answer == "长城", f"the goal was not met, and it ended with {result.stop.name}")
    told = [warning for turn in result.turns for warning in turn.warnings]
    expect(not told, f"the model was told {told}")


def it_is_asked_about_no_answer(make: Make) -> None:
    """The check looks at the world: there is no answer yet that it could be shown."""
    asked: list[Any] = []
    played(("look",), stops=(make(met_after(3, asked)),))
    expect(asked == [None] * 3, f"three rounds, and it was asked about {asked}")


def a_replay_looks_at_nothing(make: Make) -> None:
    """What was seen is in the journal: the run is brought back without looking again."""
    looks: list[int] = []

    def check(context: LoopContext, answer: Any) -> Program[str | None]:
        yield Do("look", lambda: looks.append(len(looks)))
        return None if len(context.turns) >= 2 else "<still missing>"

    journal = Journal()
    first = played(("look",), stops=(make(check),), journal=journal)
    again = played(
        ("look",), stops=(make(check),), journal=Journal(journal.outcomes), world=World(inline=True)
    )
    expect(len(looks) == 2, f"the world was looked at {len(looks)} times, and twice would have done")
    expect(first == again, f"replayed, it ended with {again.stop.name}, and before with {first.stop.name}")


def it_pays_for_its_looks(make: Make) -> None:
    """Looking is charged to the run's account, and ends with it."""
    result = played(("look",), stops=(make(met_after(99, [])),), limits=Limits(effects=5))
    expect(
        (result.stop, len(result.turns)) == (StopReason.EFFECTS, 3),
        "five effects are allowed, a call and a look a round: it ended with "
        f"{result.stop.name} in round {len(result.turns)}, not 3",
    )


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        it_ends_the_run_at_once,
        it_gives_no_answer,
        what_is_missing_is_no_warning,
        it_is_asked_about_no_answer,
        a_replay_looks_at_nothing,
        it_pays_for_its_looks,
    )
}
