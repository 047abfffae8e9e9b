"""What ``evolve(worth, start, hard, seed, generations, children)`` promises: functions of such a search.

``PROMISES`` holds them one by one. ``Search`` notes every policy whose worth was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import astuple, fields, replace
from math import fsum
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import Limits
from chapters.ch37_learned_policy import GENES, HARD, Candidate, Policy, most_of
from tests.check_toolbox import expect

Evolve = Callable[..., Any]


class Search:
    """One search: who was asked for in which generation, and the winners."""

    def __init__(
        self,
        evolve: Evolve,
        worth: Callable[[Policy], float],
        seed: int = 1,
        start: Policy = Policy(),  # noqa: B008 - it is immutable
        hard: Limits = HARD,
        **options: int,
    ) -> None:
        self.asked: list[tuple[int, Policy]] = []

        def noted(policy: Policy, generation: int) -> float:
            self.asked.append((generation, policy))
            return worth(policy)

        self.winners: list[Candidate] = evolve(noted, start, hard, seed, **options)

    def in_generation(self, number: int) -> list[Policy]:
        return [policy for generation, policy in self.asked if generation == number]


SUMMIT = Policy(rounds=20, attempts=3, trials=4, window=6)


def nearness(policy: Policy) -> float:
    """A worth with one summit, where it is 0: the more of a number is missing, the less it is."""
    pairs = zip(astuple(policy), astuple(SUMMIT), strict=True)
    return -fsum(abs(value - best) / best for value, best in pairs)


def breach(policy: Policy, hard: Limits) -> str | None:
    """What about a policy does not keep within the limits."""
    for field in fields(policy):
        value = getattr(policy, field.name)
        if type(value) is not int or not GENES[field.name][0] <= value <= most_of(field.name, hard):
            return f"{field.name} is {value!r}"
    return None


# --- The promises -----------------------------------------------------------------------------

worths = st.sampled_from(
    [
        nearness,
        lambda policy: policy.rounds + policy.trials + policy.attempts + policy.window,
        lambda policy: -policy.rounds,
        lambda policy: float("nan"),
        lambda policy: float("inf") if policy.rounds % 2 else float("-inf"),
        lambda policy: 0.0,
    ]
)


def no_candidate_leaves_the_limits(evolve: Evolve) -> None:
    """Whatever pays, every policy that is tried keeps within the hard limits, and they stay as they are."""

    @settings(deadline=None, database=None, max_examples=60)
    @given(worths, st.integers(0, 99), st.integers(1, 30), st.integers(1, 25), st.integers(1, 6))
    def check(worth: Any, seed: int, rounds: int, generations: int, children: int) -> None:
        hard = replace(HARD, rounds=rounds)
        start = Policy(rounds=min(10, rounds), window=min(10, rounds))
        search = Search(evolve, worth, seed, start, hard, generations=generations, children=children)
        for _, policy in search.asked:
            wrong = breach(policy, hard)
            expect(
                wrong is None, f"at most {rounds} rounds are allowed, and a policy was tried whose {wrong}"
            )
        expect(hard == replace(HARD, rounds=rounds), "the limits are not what they were")

    check()


def a_start_beyond_the_limits_is_refused(evolve: Evolve) -> None:
    """A policy that does not keep within the limits is no place to start from, and nothing is no search."""
    for start in (Policy(rounds=26), Policy(trials=0), Policy(window=2.0), Policy(attempts=True)):  # type: ignore[arg-type]
        expect(_refuses(evolve, start=start), f"it started from {start}")
    for nothing in ({"generations": 0}, {"children": 0}, {"generations": -1}):
        expect(_refuses(evolve, **nothing), f"it searched with {nothing}")


def _refuses(evolve: Evolve, **options: Any) -> bool:
    try:
        Search(evolve, nearness, **options)
    except ValueError:
        return True
    return False


def the_best_of_each_generation_goes_on(evolve: Evolve) -> None:
    """The winner of a generation is the best that was asked for in it, and is in the next one again."""
    search = Search(evolve, nearness, generations=8, children=4)
    expect(len(search.winners) == 8, f"there were 8 generations, and {len(search.winners)} winners")
    for number, (policy, worth) in enumerate(search.winners):
        family = search.in_generation(number)
        best = max(map(nearness, family), default=math.nan)
        expect(
            worth == best == nearness(policy), f"generation {number}: the best is {best}, the winner {worth}"
        )
        if number + 1 < len(search.winners):
            again = policy in search.in_generation(number + 1)
            expect(again, f"the winner of generation {number} is not asked for in the next: it may be luck")


def what_pays_is_found(evolve: Evolve) -> None:
    """With time enough it comes close to the summit from the defaults, whatever the seed."""
    for seed in range(5):
        search = Search(evolve, nearness, seed, generations=60, children=6)
        reached = nearness(search.winners[-1].policy)
        story = f"seed {seed}: from {nearness(Policy()):.2f} it came to {reached:.2f}, and 0 is the summit"
        expect(reached > -0.4, story)


def what_is_no_number_never_wins(evolve: Evolve) -> None:
    """A worth of NaN does not beat any other, be it the parent's or a child's."""

    def worth(policy: Policy) -> float:
        return float("nan") if policy == Policy() or policy.trials > 1 else nearness(policy)

    for seed in range(5):
        winners = Search(evolve, worth, seed, generations=6, children=6).winners
        last = winners[-1]
        expect(last.worth == last.worth, f"{last.policy} won with a worth that is no number")


def it_costs_what_was_agreed(evolve: Evolve) -> None:
    """A generation asks for its parent and its children, and for nobody else."""
    for generations, children in ((1, 1), (5, 3), (9, 2)):
        search = Search(evolve, nearness, generations=generations, children=children)
        for number in range(generations):
            count = len(search.in_generation(number))
            expect(1 <= count <= children + 1, f"{children} children, and {count} were asked for at once")
        expect(
            len(search.asked) <= generations * (children + 1), f"{len(search.asked)} were asked for in all"
        )


def the_seed_decides(evolve: Evolve) -> None:
    """The same seed searches in the same way; others do not."""
    ways = [Search(evolve, nearness, seed).asked for seed in (1, 1, 2, 3)]
    expect(ways[0] == ways[1], "the same seed searched in two ways")
    expect(ways[0] != ways[2] or ways[0] != ways[3], "three seeds searched in the same way")


PROMISES: dict[str, Callable[[Evolve], None]] = {
    promise.__name__: promise
    for promise in (
        the_best_of_each_generation_goes_on,
        no_candidate_leaves_the_limits,
        a_start_beyond_the_limits_is_refused,
        what_pays_is_found,
        what_is_no_number_never_wins,
        it_costs_what_was_agreed,
        the_seed_decides,
    )
}
