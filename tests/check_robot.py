"""What a robot's ``plan(request)`` promises (chapter 01): plain functions, used on ours and on a reader's.

``check_robot(plan)`` raises ``BrokenPromise`` with the shortest story that breaks a promise.
``PROMISES`` holds the same promises one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentloop import CallModel, Kind, Limits, Result, Toolbox, World, drive
from chapters.ch01_one_shot_vs_loop import EVERYTHING, TASK, robot
from fake_llm import CatHouse, FakeModel
from tests.check_machine import BrokenPromise

Plan = Callable[[CallModel], Any]

HOUSES = range(20)  # by their seeds
ROUNDS = 25
HABITS = (1, 2, 3, EVERYTHING)  # actions of a plan that are carried out before the next look


def run(plan: Plan, seed: int, actions: int, rounds: int = ROUNDS) -> tuple[Result, CatHouse]:
    """One run of a robot with this plan in one house."""
    house = CatHouse(seed)
    world = World(FakeModel(plan), Toolbox(house.tools), inline=True)
    return drive(robot(actions, Limits(rounds=rounds)).run(TASK), world), house


def told(seed: int, actions: int, result: Result) -> str:
    """Where a run stood and how it ended."""
    looks = {1: "action", EVERYTHING: "whole plan"}.get(actions, f"{actions} actions")
    seen = [observation.text for turn in result.turns for observation in turn.observations]
    last = f" The last that was seen: {seen[-1]}" if seen else ""
    rounds = result.control.rounds
    return f"in house {seed}, with a look after every {looks}, when {rounds} rounds are over.{last}"


# --- The promises -----------------------------------------------------------------------------


def every_cat_is_fed(plan: Plan) -> None:
    """The cat is fed in every house, however much of a plan is carried out before the next look."""
    for actions in HABITS:
        for seed in HOUSES:
            result, house = run(plan, seed, actions)
            if not house.goal_met:
                raise BrokenPromise(f"the cat is hungry {told(seed, actions, result)}")


def it_says_so_only_when_it_is_true(plan: Plan) -> None:
    """It answers that the cat is fed only where the house agrees."""
    for rounds in range(1, 8):
        for seed in HOUSES:
            result, house = run(plan, seed, 1, rounds)
            if result.answer is not None and not house.goal_met:
                story = f"it answers {result.answer!r}, and the cat is hungry {told(seed, 1, result)}"
                raise BrokenPromise(story)


def its_steps_can_be_made(plan: Plan) -> None:
    """Each step is the call of a tool that there is, with arguments that fit."""
    for seed in HOUSES:
        result, _ = run(plan, seed, EVERYTHING)
        for seen in (observation for turn in result.turns for observation in turn.observations):
            if seen.kind in (Kind.UNKNOWN_TOOL, Kind.BAD_ARGUMENTS, Kind.MALFORMED):
                raise BrokenPromise(f"in house {seed} a step could not be made: {seen.text}")


def it_knows_only_what_it_is_shown(plan: Plan) -> None:
    """Nothing persists in the model (没有任何东西跨轮持久化): what it did elsewhere changes nothing here."""
    for seed in HOUSES:
        first, _ = run(plan, seed, 1)
        run(plan, seed + 1, 1)
        again, _ = run(plan, seed, 1)
        if again.turns != first.turns:
            raise BrokenPromise(f"in house {seed} it went another way after it had been in house {seed + 1}")


PROMISES: dict[str, Callable[[Plan], None]] = {
    promise.__name__: promise
    for promise in (
        its_steps_can_be_made,
        it_says_so_only_when_it_is_true,
        it_knows_only_what_it_is_shown,
        every_cat_is_fed,
    )
}


def check_robot(plan: Plan) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(plan)
