"""Chapter 37: a loop's numbers are learned, judged on other seeds, and never get at the hard limits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import astuple, fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chapters.ch37_learned_policy as chapter
from agentloop import CallModel, CallTool, Effect, Journal, Limits, Program, Result, Toolbox, World, drive
from chapters.ch07_drivers import drive_async, drive_on_bus
from chapters.ch18_human_in_the_loop import through
from chapters.ch37_learned_policy import (
    GENES,
    HARD,
    HELD_OUT,
    KINDS,
    TUNED_ON,
    Interval,
    Policy,
    Run,
    admitted,
    bandit,
    evolve,
    evolved,
    favourite,
    for_all,
    gain,
    interval,
    most_of,
    mutated,
    runs,
    simulate,
    solving,
    tasks,
    too_sure,
    tried,
)
from fake_llm import FakeClock, FakeModel, random_model, stubborn_model
from fake_llm.errands import ErrandKind, ask_at, get_price
from fake_llm.simulated import simulated_model
from paradigms.reflexion import Reflected
from tests import check_bandit, check_evolution, check_interval
from tests.check_machine import BrokenPromise

PROMISES: dict[str, Any] = {
    "evolution": (check_evolution.PROMISES, evolve),
    "bandit": (check_bandit.PROMISES, bandit),
    "interval": (check_interval.PROMISES, interval),
}


@pytest.mark.parametrize(
    ("check", "name"), [(check, name) for check in PROMISES for name in PROMISES[check][0]]
)
def test_ours_keeps(check: str, name: str) -> None:
    promises, ours = PROMISES[check]
    promises[name](ours)


def test_the_mean_alone_announces_what_is_not_there() -> None:
    with pytest.raises(BrokenPromise, match="nothing to find, and in 100%"):
        check_interval.nothing_is_seldom_something(too_sure)


# --- Nothing that is learned gets at the hard limits ---------------------------------------------

genomes = st.builds(
    Policy,
    rounds=st.integers(-1, 40),
    attempts=st.integers(0, 9),
    trials=st.integers(0, 9),
    window=st.integers(0, 40),
)
tight = st.builds(
    Limits,
    rounds=st.integers(1, 12),
    model_calls=st.integers(1, 20),
    tool_calls=st.integers(1, 20),
    effects=st.integers(1, 60),
    tokens=st.integers(50, 8_000),
    seconds=st.sampled_from([1.0, 20.0, 300.0]),
)


def busy_tool(name: str) -> Callable[[str], str]:
    def tool(place: str) -> str:
        raise ConnectionError("busy")

    tool.__name__ = name
    return tool


MODELS: dict[str, Callable[[], FakeModel]] = {
    "simulated": lambda: simulated_model(3),
    "stubborn": lambda: stubborn_model('Thought: 问。\nAction: ask_at(place="北海", about="小猫")'),
    "random": lambda: random_model(5),
}


@settings(deadline=None, database=None, max_examples=80)
@given(genomes, tight, st.sampled_from(list(MODELS)), st.integers(0, 5), st.booleans())
def test_whatever_a_policy_says_the_account_holds(
    policy: Policy, hard: Limits, model: str, place: int, all_busy: bool
) -> None:
    before, clock, asked = astuple(hard), FakeClock(), MODELS[model]()
    tools = Toolbox(
        [busy_tool("ask_at"), get_price] if all_busy else [ask_at, get_price], idempotent=["get_price"]
    )
    world = World(asked, tools, sleep=clock.sleep, clock=clock.now, inline=True)
    made: list[Effect] = []

    def gate(effect: Effect) -> Program[Any]:
        made.append(effect)
        return (yield effect)

    try:
        program = solving(policy, tasks()[place], tools, hard, random.Random(1))
    except ValueError as refusal:
        assert any(name in str(refusal) for name in GENES)
        wrong = [name for name in GENES if not GENES[name][0] <= getattr(policy, name) <= most_of(name, hard)]
        assert wrong and refusal.args[0].startswith(wrong[0])
        return
    ended = drive(through(program, gate), world)
    assert isinstance(ended, Result | Reflected)
    assert len(asked.requests) <= hard.model_calls
    assert sum(isinstance(effect, CallTool) for effect in made) <= hard.tool_calls
    assert len(made) <= hard.effects + 1, "each effect is one, and the account's own start"
    sent = sum(effect.tokens for effect in made if isinstance(effect, CallModel))
    assert sent <= hard.tokens and clock.now() <= hard.seconds
    assert astuple(hard) == before


def test_of_the_limits_only_the_rounds_of_a_loop_are_a_gene() -> None:
    assert {field.name for field in fields(Policy)} == set(GENES)
    assert set(GENES) & {field.name for field in fields(Limits)} == {"rounds"}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (Policy(rounds=26), "rounds may be 1 to 25 here, and the policy asks for 26"),
        (Policy(window=26), "window may be 1 to 25 here"),
        (Policy(attempts=0), "attempts may be 1 to 8 here"),
        (Policy(trials=9), "trials may be 1 to 8"),
        (Policy(trials=True), "and the policy asks for True"),
        (Policy(rounds=float("inf")), "asks for inf"),  # type: ignore[arg-type]
        (Policy(rounds=None), "asks for None"),  # type: ignore[arg-type]
    ],
)
def test_a_policy_that_does_not_fit_is_refused_in_words(wrong: Policy, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        admitted(wrong, HARD)


@settings(deadline=None, database=None)
@given(st.integers(), st.integers(1, 30), st.integers(1, 50))
def test_however_often_a_policy_mutates_it_stays_within_and_moves_each_time(
    seed: int, rounds: int, times: int
) -> None:
    hard, draw = replace(HARD, rounds=rounds), random.Random(seed)
    policy = Policy(rounds=1, window=1)
    for _ in range(times):
        child = mutated(policy, draw, hard)
        changed = [name for name in GENES if getattr(child, name) != getattr(policy, name)]
        assert admitted(child, hard) == child and len(changed) == 1
        policy = child


# --- The simulator is a fair one -----------------------------------------------------------------


def test_the_same_luck_is_the_same_run_and_other_luck_is_not() -> None:
    first, again, other = (runs(for_all(Policy(trials=3)), range(begin, begin + 4)) for begin in (1, 1, 30))
    assert first == again != other


def test_what_is_learned_on_is_not_judged_by() -> None:
    assert not set(TUNED_ON) & set(HELD_OUT)
    assert [errand.kind for errand in tasks()] == [kind for kind in KINDS for _ in range(2)]


def test_worth_is_what_was_solved_less_what_it_took() -> None:
    assert Run(True, 0, 0.0).worth == 1 and Run(False, 10_000, 0.0).worth == -0.5
    assert Run(True, 0, 300.0).worth == 0


@pytest.mark.parametrize("driver", [drive_async, drive_on_bus], ids=["drive_async", "drive_on_bus"])
def test_every_driver_and_a_journal_come_to_the_same(driver: Callable[..., Any]) -> None:
    def run() -> tuple[Program[Any], World]:
        clock = FakeClock()
        tools = Toolbox([ask_at, get_price], idempotent=["ask_at", "get_price"])
        program = solving(Policy(trials=3, attempts=2), tasks()[3], tools, HARD, random.Random(1))
        return program, World(simulated_model(1), tools, sleep=clock.sleep, clock=clock.now, inline=True)

    journal = Journal()
    due = drive(*run(), journal=journal)
    assert due.answer is not None and asyncio.run(driver(*run())) == due
    assert drive(*run(), journal=journal.rewound(len(journal.outcomes) // 2)) == due


# --- What is learned -------------------------------------------------------------------------------


def gain_by_reflecting(kind: ErrandKind) -> Interval:
    plain, reflecting = (runs({kind: policy}, HELD_OUT) for policy in chapter.REFLECT_OR_NOT)
    return gain(reflecting, plain)


def test_A145_reflection_pays_for_what_has_to_be_refined_and_costs_a_little_elsewhere() -> None:
    assert gain_by_reflecting(ErrandKind.ITERATIVE).low > 0.1
    found = gain_by_reflecting(ErrandKind.STRUCTURED)
    assert -0.02 < found.low <= found.high < 0, "a judge who finds no fault is paid all the same"


def test_A145_bandits_find_out_when_to_reflect_whatever_their_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(1, 6):
        monkeypatch.setattr(chapter, "META_SEED", seed)
        assert favourite(tried(ErrandKind.ITERATIVE)).trials == 3


def test_A145_a_search_so_small_may_find_next_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    by_hand = runs(for_all(Policy()), HELD_OUT)
    assert gain(runs(for_all(evolved()[-1].policy), HELD_OUT), by_hand).low > 0.0
    monkeypatch.setattr(chapter, "META_SEED", 3)
    unlucky = evolved()[-1].policy
    assert unlucky.trials == 1
    assert abs(gain(runs(for_all(unlucky), HELD_OUT), by_hand).mean) < 0.02


def test_a_difference_is_significant_where_zero_lies_outside() -> None:
    assert Interval(0.2, 0.1, 0.3).significant and Interval(-0.2, -0.3, -0.1).significant
    assert not Interval(0.2, -0.1, 0.3).significant and not Interval(0.0, 0.0, 0.0).significant


def test_one_run_under_the_hard_limits_is_simulated_there_too() -> None:
    greedy = Policy(rounds=25, attempts=8, trials=8, window=1)
    assert simulate(greedy, tasks()[-1], 1, replace(HARD, tokens=2_000)).tokens <= 2_000
    assert simulate(greedy, tasks()[-1], 1).tokens > 2_000
