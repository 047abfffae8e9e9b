"""What ``bandit(policies, reward, pulls, seed)`` promises: plain functions of anything that learns so.

``PROMISES`` holds them one by one. The arms are policies of one, two, three ... trials.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from chapters.ch37_learned_policy import Arm, Policy
from tests.check_toolbox import expect

Bandit = Callable[..., Any]

ONE, TWO, THREE = (Policy(trials=number) for number in (1, 2, 3))


class Play:
    """One game: what was pulled in which order, and what the bandit says of it."""

    def __init__(
        self,
        bandit: Bandit,
        reward: Callable[[Policy, int], float],
        pulls: int,
        seed: int = 1,
        arms: Sequence[Policy] = (ONE, TWO, THREE),
    ) -> None:
        self.pulled: list[tuple[Policy, int, float]] = []

        def noted(policy: Policy, pull: int) -> float:
            got = reward(policy, pull)
            self.pulled.append((policy, pull, got))
            return got

        self.arms: list[Arm] = bandit(arms, noted, pulls, seed)

    def count(self, policy: Policy) -> int:
        return sum(each == policy for each, _, _ in self.pulled)


def coin(chances: dict[Policy, float], seed: int) -> Callable[[Policy, int], float]:
    """Rewards of 1 or 0, with a chance for each arm."""
    draw = random.Random(seed)
    return lambda policy, pull: float(draw.random() < chances[policy])


# --- The promises -----------------------------------------------------------------------------


def what_it_says_is_what_happened(bandit: Bandit) -> None:
    """It pulls as often as it may, numbers the pulls, and its books are right, arm by arm, in order."""
    for pulls in (0, 1, 7, 40):
        play = Play(bandit, lambda policy, pull: policy.trials / 10, pulls)
        numbers = [pull for _, pull, _ in play.pulled]
        expect(numbers == list(range(pulls)), f"{pulls} pulls are allowed, and they were {numbers}")
        policies = [arm.policy for arm in play.arms]
        expect(policies == [ONE, TWO, THREE], f"its arms are {policies}")
        for policy, count, reward in play.arms:
            brought = sum(got for each, _, got in play.pulled if each == policy)
            right = count == play.count(policy) and abs(reward - brought) < 1e-9
            expect(
                right,
                f"{policy} was pulled {play.count(policy)} times for {brought}: it says {count}, {reward}",
            )


def the_better_arm_is_chosen_most(bandit: Bandit) -> None:
    """Where one arm is clearly better, it gets most of the pulls, whatever its place and the seed."""
    for better in (ONE, TWO, THREE):
        for seed in range(4):
            chances = {policy: 0.8 if policy == better else 0.2 for policy in (ONE, TWO, THREE)}
            play = Play(bandit, coin(chances, seed), 300, seed)
            count = play.count(better)
            expect(count > 180, f"{better} wins 4 times as often, and got {count} of 300 pulls (seed {seed})")


def one_bad_pull_is_no_verdict(bandit: Bandit) -> None:
    """An arm that fails once at first, and never again, is found out: promising ones are tried again."""
    for seed in range(4):
        failed: list[bool] = []

        def reward(policy: Policy, pull: int, failed: list[bool] = failed) -> float:
            if policy != THREE:
                return 0.3
            failed.append(True)
            return 0.0 if len(failed) == 1 else 1.0

        count = Play(bandit, reward, 300, seed).count(THREE)
        expect(
            count > 150, f"the best arm failed at its first pull only, and got {count} of 300 (seed {seed})"
        )


def what_is_no_reward_is_refused(bandit: Bandit) -> None:
    """A reward is from 0 to 1; without arms there is nothing to choose."""
    for wrong in (-0.1, 1.1, float("nan"), float("inf")):
        try:
            Play(bandit, lambda policy, pull, wrong=wrong: wrong, 3)  # type: ignore[misc]
        except ValueError:
            continue
        expect(False, f"a reward of {wrong} was taken")
    try:
        Play(bandit, lambda policy, pull: 0.5, 3, arms=())
    except ValueError:
        return
    expect(False, "it chose among no arms")


def the_seed_decides(bandit: Bandit) -> None:
    """The same seed and the same rewards give the same game."""
    games = [Play(bandit, lambda policy, pull: policy.trials / 4, 60, 5).pulled for _ in range(2)]
    expect(games[0] == games[1], "the same seed played two games")


PROMISES: dict[str, Callable[[Bandit], None]] = {
    promise.__name__: promise
    for promise in (
        what_it_says_is_what_happened,
        the_better_arm_is_chosen_most,
        one_bad_pull_is_no_verdict,
        what_is_no_reward_is_refused,
        the_seed_decides,
    )
}
