"""What a composition of checks promises: plain functions of one ``all_of``, used on ours and on a reader's.

``make(*checks)`` makes a check ``(context, answer)``: an objection in words, ``None``, or a program of these.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

from agentloop import Do, Journal, Limits, LoopContext, Program, StopReason
from tests.check_toolbox import expect
from tests.goal_worlds import objection, played

Make = Callable[..., Any]


def check(name: str, verdict: str, asked: list[str]) -> Callable[[LoopContext, Any], Any]:
    """A check that notes that it was asked; it is a program where the verdict says so."""

    def plain(context: LoopContext, answer: Any) -> str | None:
        asked.append(name)
        return f"{name} objects" if "objects" in verdict else None

    def program(context: LoopContext, answer: Any) -> Program[str | None]:
        yield Do(f"look for {name}", lambda: None)
        return plain(context, answer)

    return program if "program" in verdict else plain


VERDICTS = ("", "objects", "program", "program objects")


def the_first_objection_wins(make: Make) -> None:
    """Checks are asked in order up to the first that objects, and what it says is what is said."""
    for verdicts in (story for count in (1, 2, 3) for story in product(VERDICTS, repeat=count)):
        asked: list[str] = []
        names = "abc"[: len(verdicts)]
        said = objection(make(*(check(*each, asked) for each in zip(names, verdicts, strict=True))))
        first = next((name for name, each in zip(names, verdicts, strict=True) if "objects" in each), None)
        story = f"the checks are {verdicts}"
        due = f"{first} objects" if first else None
        expect(said == due, f"{story}: due is {due!r}, and it said {said!r}")
        upto = names[: names.index(first) + 1] if first else names
        expect("".join(asked) == upto, f"{story}: asked were {asked}, and {list(upto)} should have been")


def an_empty_objection_is_one(make: Make) -> None:
    """Only ``None`` is no objection: empty words are words."""
    said = objection(make(lambda context, answer: "", lambda context, answer: None))
    expect(said == "", f"the first check objects with empty words, and it said {said!r}")


def a_later_check_is_not_paid_for(make: Make) -> None:
    """What a check after an objection would have cost is not charged to the run."""
    both = make(check("a", "objects", []), check("b", "program", []))
    journal = Journal()
    result = played(("answer",), accept=both, limits=Limits(rounds=3), journal=journal)
    labels = [asked for _, asked, _ in journal.outcomes if asked.startswith("Do")]
    expect(not labels, f"the first check objects each time, and the second has still done {labels}")
    expect(result.stop is StopReason.MAX_ITERATIONS, f"it ended with {result.stop.name}")


def it_hands_on_context_and_answer(make: Make) -> None:
    """Each check is shown the run and the answer as they are."""
    seen: list[Any] = []

    def note(context: LoopContext, answer: Any) -> None:
        seen.append((len(context.turns), answer))

    objection(make(note, make(note)), {"city": "北京"}, ("look", "answer"))
    expect(seen == [(2, {"city": "北京"})] * 2, f"after two turns the checks were shown {seen}")


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        the_first_objection_wins,
        an_empty_objection_is_one,
        a_later_check_is_not_paid_for,
        it_hands_on_context_and_answer,
    )
}
