"""How often to try, retry and reflect may be learned; the hard limits that hold every run may not.

Article A, 未来方向: 学习增强的循环策略, and its closing words. Covers A-145, A-146.

In every chapter until now a person wrote the numbers: ten rounds, so many retries, reflection or none, so
many turns shown. The article expects a meta-agent (元Agent) that learns them, by evolution or by
reinforcement. Here both are done, each in a few lines, with a worth to be made as large as it goes:

- ``evolve``: change one number at random, keep what does better (an evolution strategy; Rechenberg, 1973)
- ``bandit``: try a few policies in turn, the promising ones more often (Thompson sampling, 1933), the
  smallest form of reinforcement learning: it learns while it works
- ``interval``: judge what was learned on seeds that it was not learned on, against the defaults, and say
  how sure that is (a paired bootstrap, Efron, 1979)

Without learning, the defaults treat every task alike. Without held-out seeds, the best of many candidates
looks good because it was lucky. And without hard limits that are no gene, a learner that is paid for
answers buys them with your budget: so a policy moves inside ``HARD``, each candidate that does not fit is
refused, and each run is held to the account whatever its policy says. What a learner cannot reach, it
cannot learn away.

What is learned here holds for the simulated model and its made-up chances (``fake_llm/simulated.py``), not
for a real one; and what a solved task is worth, in tokens and seconds, is a person's choice. So small a
search depends on its seed: with ``META_SEED = 3`` it never comes to reflect. And a difference may be sure
and yet too small to matter: the interval says both.

Departures: the article prints no code. Its closing words (A-146) say what the search is a small case of:
an agent is no store of what was once learned, it goes on perceiving, acting, and adapting.

Exercises
---------
1. Choose the arm by an upper confidence bound (UCB1, Auer et al., 2002) instead of by a draw:
   ``python -m pytest --impl bandit=my_learner.py:bandit``
2. Let a child have two parents, and take each number from one of them:
   ``python -m pytest --impl evolution=my_learner.py:evolve``. Does it learn faster on the same budget?
3. ``too_sure`` below judges by the mean alone. Which promise does it break, and how often would it have
   announced an improvement where there is none?
   ``python -m pytest --impl interval=chapters/ch37_learned_policy.py:too_sure``
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from statistics import fmean
from typing import NamedTuple, ParamSpec

from agentloop import AgentLoop, Limits, Program, Result, Toolbox, World, bounded, drive
from chapters.ch14_choosing_a_paradigm import tests_of
from chapters.ch19_retry_with_backoff import Patience, retry
from chapters.telling import BOLD, GREEN, RED, Telling
from fake_llm import FakeClock
from fake_llm.errands import Errand, ErrandKind, ask_at, errands, get_price
from fake_llm.simulated import simulated_model
from paradigms.evaluators import judged_by_model, judged_by_tests
from paradigms.prompt import last_turns
from paradigms.react import react
from paradigms.reflexion import Reflected, Reflexion, reflect_in_words

P = ParamSpec("P")

# --- What may be learned, and what may not ------------------------------------------------------

#: Of every run, whatever its policy. No learner is given a way to change it.
HARD = Limits(rounds=25, model_calls=60, tool_calls=60, effects=300, tokens=60_000)


@dataclass(frozen=True)
class Policy:
    """The numbers of a loop that may be tuned (循环参数). The defaults are what a person would write."""

    rounds: int = 10  # of one trial
    attempts: int = 1  # of one call: 1 is no retry
    trials: int = 1  # 1 is no reflection
    window: int = 10  # finished turns that the model is shown

    def __str__(self) -> str:
        return ", ".join(f"{name} {getattr(self, name)}" for name in GENES)


#: Between which values each number may move; ``HARD`` may leave less room.
GENES = {"rounds": (1, 100), "attempts": (1, 8), "trials": (1, 8), "window": (1, 100)}


def most_of(name: str, hard: Limits) -> int:
    """The largest value of a number under these limits: a round that is not allowed is not asked for."""
    return min(GENES[name][1], hard.rounds) if name in ("rounds", "window") else GENES[name][1]


def admitted(policy: Policy, hard: Limits) -> Policy:
    """The policy, if it keeps within the limits. Raises ``ValueError`` that names what does not."""
    for field in fields(policy):
        value, least, most = getattr(policy, field.name), GENES[field.name][0], most_of(field.name, hard)
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"{field.name} may be {least} to {most} here, and the policy asks for {value!r}")
    return policy


def mutated(policy: Policy, draw: random.Random, hard: Limits) -> Policy:
    """The policy with one of its numbers a little larger or smaller, doubled or halved, within the limits."""
    moves: dict[str, set[int]] = {}
    for name, (least, _) in GENES.items():
        now, most = getattr(policy, name), most_of(name, hard)
        moved = (now - 1, now + 1, now // 2, now * 2)
        moves[name] = {max(least, min(each, most)) for each in moved} - {now}
    name = draw.choice([name for name in moves if moves[name]])
    return replace(policy, **{name: draw.choice(sorted(moves[name]))})


# --- The simulator: real loops, a simulated model, and tools that are busy at times ----------------

BUSY = 0.3  # how often a tool cannot be reached, each time
TOKENS_WORTH = 20_000  # what a solved task may cost at most
SECONDS_WORTH = 300.0


class Run(NamedTuple):
    """What one task came to under one policy."""

    solved: bool
    tokens: int  # sent to the model, in all
    seconds: float  # waited for tools

    @property
    def worth(self) -> float:
        """A solved task counts 1, less what it took; a failed one costs, too."""
        return self.solved - self.tokens / TOKENS_WORTH - self.seconds / SECONDS_WORTH


def solving(
    policy: Policy, errand: Errand, tools: Toolbox, hard: Limits, draw: random.Random
) -> Program[Result | Reflected]:
    """The program that does a task as the policy says, on an account that knows nothing of policies."""
    admitted(policy, hard)
    patience = Patience(policy.attempts, draw=draw.random)
    act = retry(idempotent=tools.is_idempotent, patience=patience)
    limits = replace(hard, rounds=policy.rounds)
    actor = AgentLoop(react(tools, last_turns(policy.window)), act, limits=limits)
    if policy.trials == 1:
        return bounded(actor.run(errand.text), hard, errand.text)
    evaluate = judged_by_tests(tests_of(errand)) if errand.tests else judged_by_model()
    return Reflexion(actor, evaluate, reflect_in_words, hard, policy.trials, 1.0).run(errand.text)


def simulate(policy: Policy, errand: Errand, seed: int, hard: Limits = HARD) -> Run:
    """One task under one policy, with the luck of a seed: the same each time it is asked for."""
    draw, clock, model = random.Random(seed), FakeClock(), simulated_model(seed)
    tools = Toolbox([busy(ask_at, draw), busy(get_price, draw)], idempotent=["ask_at", "get_price"])
    world = World(model, tools, sleep=clock.sleep, clock=clock.now, inline=True)
    answer = drive(solving(policy, errand, tools, hard, draw), world).answer
    sent = sum(request.tokens for request in model.requests)
    return Run(answer is not None and errand.is_right(answer), sent, clock.now())


def busy(tool: Callable[P, str], draw: random.Random) -> Callable[P, str]:
    """A tool that cannot be reached at times, by the luck of its seed."""

    @functools.wraps(tool)
    def called(*given: P.args, **named: P.kwargs) -> str:
        if draw.random() < BUSY:
            raise ConnectionRefusedError("busy")
        return tool(*given, **named)

    return called


#: The kinds of task that need a loop.
KINDS = tuple(kind for kind in ErrandKind if kind is not ErrandKind.PLAIN)


def tasks(kinds: Collection[ErrandKind] = KINDS) -> list[Errand]:
    """Two tasks of each kind."""
    return [each for kind in kinds for each in [one for one in errands() if one.kind is kind][:2]]


#: Which policy is for which kind of task.
Choice = Mapping[ErrandKind, Policy]


def for_all(policy: Policy) -> Choice:
    """The same policy for every kind."""
    return dict.fromkeys(KINDS, policy)


def runs(choice: Choice, seeds: Iterable[int]) -> list[Run]:
    """Every task with every seed, each under the policy for its kind."""
    return [simulate(choice[errand.kind], errand, seed) for errand in tasks(choice) for seed in seeds]


# --- Evolution (进化算法) ------------------------------------------------------------------------


class Candidate(NamedTuple):
    """A policy, and what it was found to be worth."""

    policy: Policy
    worth: float


def evolve(
    worth: Callable[[Policy, int], float],
    start: Policy,
    hard: Limits,
    seed: int,
    generations: int = 5,
    children: int = 3,
) -> list[Candidate]:
    """Let a policy mutate and be selected; the winner of each generation, the last one being the result.

    ``worth(policy, generation)`` is asked for the parent anew in each generation, beside its children: so a
    parent that was only lucky does not stay. A worth that is no number never wins. All draws come from the
    seed. Raises ``ValueError`` where ``start`` does not keep within the limits, or there is nothing to do.
    """
    parent, draw = admitted(start, hard), random.Random(seed)
    if generations < 1 or children < 1:
        raise ValueError(f"evolution takes a generation and a child at least, not {generations}, {children}")
    winners = []
    for generation in range(generations):
        family = dict.fromkeys([parent, *(mutated(parent, draw, hard) for _ in range(children))])
        found = [Candidate(policy, worth(policy, generation)) for policy in family]
        winners.append(max(found, key=lambda each: each.worth if each.worth == each.worth else float("-inf")))
        parent = winners[-1].policy
    return winners


# --- A bandit (强化学习, in its smallest form) ---------------------------------------------------


class Arm(NamedTuple):
    """A policy to choose, how often it was chosen, and the reward that it brought in all."""

    policy: Policy
    pulls: int = 0
    reward: float = 0.0


def bandit(
    policies: Sequence[Policy], reward: Callable[[Policy, int], float], pulls: int, seed: int
) -> list[Arm]:
    """Choose ``pulls`` times among the policies, each time the one that a draw from what is known favours.

    ``reward(policy, pull)`` is from 0 to 1. What is known of an arm is a Beta distribution: wide after few
    pulls, so that it is tried, narrow after many. Raises ``ValueError`` for what is no reward, or no arms.
    """
    if not policies:
        raise ValueError("a bandit needs at least one policy to choose")
    arms, draw = [Arm(policy) for policy in policies], random.Random(seed)
    for pull in range(pulls):
        drawn = [draw.betavariate(1 + arm.reward, 1 + arm.pulls - arm.reward) for arm in arms]
        chosen = drawn.index(max(drawn))
        policy, before, total = arms[chosen]
        got = reward(policy, pull)
        if not 0 <= got <= 1:
            raise ValueError(f"a reward is from 0 to 1, not {got!r}")
        arms[chosen] = Arm(policy, before + 1, total + got)
    return arms


# --- Judging ------------------------------------------------------------------------------------


class Interval(NamedTuple):
    """How much better, on the average, and between which bounds that lies with the given confidence."""

    mean: float
    low: float
    high: float

    @property
    def significant(self) -> bool:
        """Whether no difference at all lies outside."""
        return self.low > 0 or self.high < 0


def interval(differences: Sequence[float], seed: int, resamples: int = 500) -> Interval:
    """The mean of paired differences with its 95 % interval, by resampling them (a percentile bootstrap).

    Raises ``ValueError`` for fewer than two: one difference says nothing of how much they vary.
    """
    if len(differences) < 2:
        raise ValueError(f"an interval needs at least two differences, not {len(differences)}")
    draw = random.Random(seed)
    means = sorted(fmean(draw.choices(differences, k=len(differences))) for _ in range(resamples))
    cut_off = round(resamples * 0.025)
    return Interval(fmean(differences), means[cut_off], means[-1 - cut_off])


def too_sure(differences: Sequence[float], seed: int, resamples: int = 500) -> Interval:
    """Believe the mean as it is."""
    mean = fmean(differences)
    return Interval(mean, mean, mean)


# --- The story ----------------------------------------------------------------------------------

TUNED_ON = range(1, 13)
HELD_OUT = range(101, 106)
META_SEED = 1
REFLECT_OR_NOT = (Policy(), Policy(trials=3))


def average_worth(policy: Policy, number: int) -> float:
    """What a policy is worth on the average of all tasks, with the seed of that number."""
    return fmean(run.worth for run in runs(for_all(policy), TUNED_ON[number : number + 1]))


def evolved() -> list[Candidate]:
    """One policy for all, by evolution."""
    return evolve(average_worth, Policy(), HARD, META_SEED)


def tried(kind: ErrandKind) -> list[Arm]:
    """Whether to reflect on one kind of task, by a bandit: each pull is one of its tasks, with a new seed."""

    def reward(policy: Policy, pull: int) -> float:
        errand = tasks((kind,))[pull % 2]
        return max(0.0, simulate(policy, errand, TUNED_ON[pull]).worth)

    return bandit(REFLECT_OR_NOT, reward, len(TUNED_ON), META_SEED)


def favourite(arms: Sequence[Arm]) -> Policy:
    """The policy that was chosen most often."""
    return max(arms, key=lambda arm: arm.pulls).policy


def gain(ours: Sequence[Run], theirs: Sequence[Run]) -> Interval:
    """How much more ours came to, task by task and seed by seed."""
    pairs = zip(ours, theirs, strict=True)
    return interval([one.worth - other.worth for one, other in pairs], META_SEED)


def row(name: str, found: Sequence[Run]) -> tuple[object, ...]:
    """A line of the table: what a choice of policies came to."""
    solved = f"{sum(run.solved for run in found)} of {len(found)}"
    tokens, seconds = fmean(run.tokens for run in found), fmean(run.seconds for run in found)
    return name, solved, f"{tokens:.0f}", f"{seconds:.1f}", f"{fmean(run.worth for run in found):+.3f}"


COLUMNS = ("numbers", "solved", "tokens a task", "seconds", "worth")


def verdict(tell: Telling, name: str, found: Interval) -> None:
    """Say a difference, and whether it can be told from none."""
    said = "significant" if found.significant else "NOT significant: it may be luck"
    style = GREEN if found.significant else RED
    tell(f"{name}: {found.mean:+.3f}, 95 % between {found.low:+.3f} and {found.high:+.3f}: {said}", style)


def demo(tell: Telling) -> None:
    """Numbers by hand, numbers by evolution, numbers by a bandit; judged; and what none of them may touch."""
    tell(f"{len(tasks())} tasks, a simulated model, and tools that are busy {BUSY:.0%} of the time.")
    tell(f"A solved task is worth 1; {TOKENS_WORTH} tokens cost 1, and so do {SECONDS_WORTH:g} s of waiting.")

    tell.heading("Numbers written by hand, the same for every task (硬编码规则)")
    by_hand = runs(for_all(Policy()), HELD_OUT)
    tell(f"{Policy()}")
    tell.table([COLUMNS, row("by hand", by_hand)])

    tell.heading("Evolution: one number changes, and what does better stays (进化算法)")
    winners = evolved()
    tell.table(
        [("generation", *GENES, "worth on its seed")]
        + [(number, *astuple(each.policy), f"{each.worth:+.3f}") for number, each in enumerate(winners, 1)]
    )

    tell.heading("A bandit for each kind of task: reflect or not? What pays is chosen more often (强化学习)")
    arms = {kind: tried(kind) for kind in KINDS}
    tell.table(
        [("tasks", "trials", "chosen", "mean reward")]
        + [
            (kind.value, arm.policy.trials, arm.pulls, f"{arm.reward / max(1, arm.pulls):.3f}")
            for kind in KINDS
            for arm in arms[kind]
        ]
    )

    tell.heading("Judged on seeds that nobody has learned on")
    of_evolution = runs(for_all(winners[-1].policy), HELD_OUT)
    of_bandits = runs({kind: favourite(arms[kind]) for kind in KINDS}, HELD_OUT)
    found = {"by hand": by_hand, "evolution": of_evolution, "bandits": of_bandits}
    tell.table([COLUMNS, *(row(name, each) for name, each in found.items())])
    tell()
    verdict(tell, "evolution against by hand", gain(of_evolution, by_hand))
    verdict(tell, "bandits against by hand", gain(of_bandits, by_hand))
    verdict(tell, "evolution against bandits", gain(of_evolution, of_bandits))

    tell.heading("What no learner moves: the hard limits")
    try:
        admitted(replace(winners[-1].policy, rounds=1000), HARD)
    except ValueError as refusal:
        tell(f"a greedy policy is refused: {refusal}", GREEN)
    greedy, tight = Policy(rounds=25, attempts=8, trials=8, window=1), replace(HARD, tokens=2_000)
    free, held = (simulate(greedy, tasks()[-1], 1, limits).tokens for limits in (HARD, tight))
    tell(f"one that just fits sends {free} tokens, and {held} on an account that holds {tight.tokens}", GREEN)

    tell("\nWhat was learned is what worked yesterday, on these tasks. An agent is no store of knowledge: it")
    tell(
        "goes on perceiving, acting and adapting (持续的感知-行动-适应过程), and so must whoever tunes it.",
        BOLD,
    )
