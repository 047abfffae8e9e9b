"""Wrong versions of the learners of chapter 37: ours with one planted fault each."""

from __future__ import annotations

from functools import partial

from tests.gallery import Fault

_Chapter = partial(Fault, module="chapters.ch37_learned_policy")
EvolutionFault = partial(_Chapter, check="evolution", of="evolve")
BanditFault = partial(_Chapter, check="bandit", of="bandit")
IntervalFault = partial(_Chapter, check="interval", of="interval")

LEARNED_FAULTS: tuple[Fault, ...] = (
    EvolutionFault(
        "a mutation may leave the limits",
        "mutated",
        old="max(least, min(each, most))",
        new="max(least, each)",
        caught_by="no_candidate_leaves_the_limits",
        passes=("the_best_of_each_generation_goes_on",),
    ),
    EvolutionFault(
        "a mutation may come to nothing",
        "mutated",
        old="max(least, min(each, most))",
        new="min(each, most)",
        caught_by="no_candidate_leaves_the_limits",
    ),
    EvolutionFault(
        "any start will do",
        "evolve",
        old="admitted(start, hard)",
        new="start",
        caught_by="a_start_beyond_the_limits_is_refused",
    ),
    EvolutionFault(
        "the worst goes on",
        "evolve",
        old="max(found",
        new="min(found",
        caught_by="the_best_of_each_generation_goes_on",
        passes=("no_candidate_leaves_the_limits",),
    ),
    EvolutionFault(
        "the parent dies with its generation",
        "evolve",
        old="[parent, *(mutated(parent, draw, hard) for _ in range(children))]",
        new="[mutated(parent, draw, hard) for _ in range(children)]",
        caught_by="the_best_of_each_generation_goes_on",
    ),
    EvolutionFault(
        "every generation starts from the start",
        "evolve",
        old="        parent = winners[-1].policy\n",
        new="",
        caught_by="what_pays_is_found",
    ),
    EvolutionFault(
        "what is no number wins",
        "evolve",
        old='each.worth if each.worth == each.worth else float("-inf")',
        new='each.worth if each.worth == each.worth else float("inf")',
        caught_by="what_is_no_number_never_wins",
    ),
    EvolutionFault(
        "one child too many",
        "evolve",
        old="for _ in range(children)",
        new="for _ in range(children + 9)",
        caught_by="it_costs_what_was_agreed",
    ),
    EvolutionFault(
        "evolution: it draws from nobody's seed",
        "evolve",
        old="random.Random(seed)",
        new="random.Random()",
        caught_by="the_seed_decides",
    ),
    BanditFault(
        "greedy: the best so far, and nothing else",
        "bandit",
        old="draw.betavariate(1 + arm.reward, 1 + arm.pulls - arm.reward)",
        new="arm.reward / arm.pulls if arm.pulls else 1.0",
        caught_by="one_bad_pull_is_no_verdict",
        passes=("what_it_says_is_what_happened",),
    ),
    BanditFault(
        "it never learns",
        "bandit",
        old="draw.betavariate(1 + arm.reward, 1 + arm.pulls - arm.reward)",
        new="draw.random() + 0 * len(arm)",
        caught_by="the_better_arm_is_chosen_most",
        passes=("what_it_says_is_what_happened",),
    ),
    BanditFault(
        "a pull is not booked",
        "bandit",
        old="before + 1",
        new="max(before, 1)",
        caught_by="what_it_says_is_what_happened",
    ),
    BanditFault(
        "any reward is booked",
        "bandit",
        old="if not 0 <= got <= 1:",
        new="if got < 0:",
        caught_by="what_is_no_reward_is_refused",
    ),
    BanditFault(
        "bandit: it draws from nobody's seed",
        "bandit",
        old="random.Random(seed)",
        new="random.Random()",
        caught_by="the_seed_decides",
    ),
    IntervalFault(
        "half of the resamples are cut off",
        "interval",
        old="resamples * 0.025",
        new="resamples * 0.25",
        caught_by="nothing_is_seldom_something",
        passes=("the_mean_lies_inside",),
    ),
    IntervalFault(
        "from the least to the most: nothing is ever found",
        "interval",
        old="means[cut_off], means[-1 - cut_off]",
        new="min(differences), max(differences)",
        caught_by="something_is_found",
        passes=("the_mean_lies_inside", "nothing_is_seldom_something"),
    ),
    IntervalFault(
        "resamples are too small",
        "interval",
        old="k=len(differences)",
        new="k=2",
        caught_by="more_is_surer",
    ),
    IntervalFault(
        "one difference is enough",
        "interval",
        old="len(differences) < 2",
        new="len(differences) < 1",
        caught_by="one_is_refused",
    ),
    IntervalFault(
        "interval: it draws from nobody's seed",
        "interval",
        old="random.Random(seed)",
        new="random.Random()",
        caught_by="the_seed_decides",
    ),
    IntervalFault(
        "the bounds lie a hair too high, and nothing at all lies below them",
        "interval",
        old="means[cut_off], means[-1 - cut_off]",
        new="means[cut_off] + 1e-12, means[-1 - cut_off] + 1e-12",
        caught_by="equal_is_not_different",
        passes=("the_mean_lies_inside", "something_is_found"),
    ),
    IntervalFault(
        "the middle resample is taken for the mean",
        "interval",
        old="Interval(fmean(differences),",
        new="Interval(means[resamples // 2],",
        caught_by="the_mean_lies_inside",
        passes=("nothing_is_seldom_something", "more_is_surer"),
    ),
)
