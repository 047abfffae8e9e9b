"""Chapter 01: a plan made once is carried out blind; a loop looks, and plans anew."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    Act,
    CallModel,
    Finish,
    LimitReached,
    Limits,
    Message,
    Reply,
    StopReason,
    Toolbox,
    World,
    bounded,
    drive,
)
from chapters.ch01_one_shot_vs_loop import (
    EVERYTHING,
    TASK,
    decide,
    four_lines,
    hundred_houses,
    plan,
    robot,
    run,
    way,
)
from fake_llm import CatHouse, FakeModel, calls
from fake_llm.world import ROOMS
from paradigms.function_calling import read
from tests.check_robot import PROMISES, Plan

PLENTY = Limits(rounds=25)
ONCE = Limits(rounds=1)
seeds = st.integers(0, 10_000)
rooms = st.sampled_from(ROOMS)


def seen_by(limits: Limits, actions: int, seed: int = 0) -> list[CallModel]:
    """The requests of one run."""
    house, model = CatHouse(seed), FakeModel(plan)
    drive(robot(actions, limits).run(TASK), World(model, Toolbox(house.tools), inline=True))
    return model.requests


# --- One shot and loop ------------------------------------------------------------------------


def test_the_one_shot_fails_and_the_loop_succeeds_in_the_same_house() -> None:
    blind, looking = CatHouse(), CatHouse()
    assert run(robot(EVERYTHING, ONCE), blind).answer is None
    assert run(robot(1, PLENTY), looking).answer is not None
    assert (blind.goal_met, looking.goal_met) == (False, True)


def test_both_are_asked_the_same_at_first_and_plan_the_same() -> None:
    assert seen_by(ONCE, EVERYTHING)[0].messages == seen_by(PLENTY, 1)[0].messages


@given(seeds)
def test_the_loop_feeds_every_cat_and_says_so_only_when_it_is_true(seed: int) -> None:
    house = CatHouse(seed)
    result = run(robot(1, PLENTY), house)
    assert house.goal_met
    assert result.stop is StopReason.FINAL_ANSWER


@given(seeds, st.integers(1, 6), st.integers(1, 6))
def test_an_answer_is_given_only_where_the_house_agrees(seed: int, actions: int, rounds: int) -> None:
    house = CatHouse(seed)
    result = run(robot(actions, Limits(rounds=rounds)), house)
    assert result.answer is None or house.goal_met
    assert result.control.model_calls <= rounds


@given(seeds, st.integers(1, 6))
def test_no_more_of_a_plan_is_carried_out_than_was_allowed(seed: int, actions: int) -> None:
    result = run(robot(actions, PLENTY), CatHouse(seed))
    assert all(len(turn.calls) <= actions for turn in result.turns)


@given(seeds)
def test_a_one_shot_is_asked_once(seed: int) -> None:
    assert len(seen_by(ONCE, EVERYTHING, seed)) == 1


def test_what_each_action_brought_is_in_the_next_prompt() -> None:
    """A-5, B-6: feedback enters the next round, and stays."""
    requests = seen_by(PLENTY, 1)
    for earlier, later in zip(requests, requests[1:], strict=False):
        assert later.messages[: len(earlier.messages)] == earlier.messages
        said, seen = later.messages[len(earlier.messages) :]
        assert (said.role, seen.role) == ("assistant", "tool")


def test_whoever_looks_sooner_decides_sooner() -> None:
    """OODA (A-8): of the same cats, more are fed, and more of them early, for more requests."""
    rows = hundred_houses()
    for column in (1, 2, 3):
        numbers = [row[column] for row in rows]
        assert numbers == sorted(numbers, reverse=True)
    often, *_, never = rows
    assert often[1] == 100
    assert never[1] < often[2], "one shot feeds fewer cats in the end than the loop in four minutes"
    assert never[3] == 100, "a request a house"


@given(seeds)
def test_a_look_that_can_tell_nothing_new_costs_nothing_to_skip(seed: int) -> None:
    """Until it has the fish, the robot would do the same whatever it saw: it can as well do two things."""
    after_one, after_two = CatHouse(seed), CatHouse(seed)
    run(robot(1, PLENTY), after_one)
    run(robot(2, PLENTY), after_two)
    assert after_one.minute == after_two.minute


# --- State apart from computation -------------------------------------------------------------


@given(seeds, seeds)
def test_a_loop_is_configuration_and_carries_nothing_from_run_to_run(first: int, second: int) -> None:
    """Von Neumann (A-10): all state is in the run."""
    used = robot(1, PLENTY)
    run(used, CatHouse(first))
    assert run(used, CatHouse(second)).turns == run(robot(1, PLENTY), CatHouse(second)).turns


def test_a_loop_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        robot(1, PLENTY).limits = ONCE  # type: ignore[misc]


# --- The article's four lines -----------------------------------------------------------------


def unended(limits: Limits) -> tuple[CatHouse, list[CallModel], LimitReached]:
    """Run the four lines until they are stopped."""
    house, model = CatHouse(), FakeModel(plan)
    tools = Toolbox(house.tools)
    with pytest.raises(LimitReached) as stopped:
        drive(bounded(four_lines(TASK, tools), limits), World(model, tools, inline=True))
    return house, model.requests, stopped.value


@pytest.mark.parametrize("model_calls", [1, 7, 12, 40])
def test_EA19_the_four_lines_go_on_until_somebody_else_stops_them(model_calls: int) -> None:
    house, requests, stopped = unended(Limits(model_calls=model_calls))
    assert stopped.reason is StopReason.MODEL_CALLS
    assert len(requests) == model_calls
    assert house.goal_met is (model_calls >= 7), "the cat has been fed, and that is no reason to stop"


def test_EA19_the_four_lines_keep_only_observations() -> None:
    _, requests, _ = unended(Limits(model_calls=12))
    assert {message.role for message in requests[-1].messages} == {"user"}
    assert not any("Plan:" in message.content for message in requests[-1].messages)


def test_EA19_the_loop_keeps_thought_and_action_and_ends_by_itself() -> None:
    house = CatHouse()
    result = run(robot(1, PLENTY), house)
    assert all(turn.thought for turn in result.turns)
    assert all(len(turn.calls) == len(turn.observations) == 1 for turn in result.turns[:-1])
    assert result.stop is StopReason.FINAL_ANSWER
    assert result.control.rounds < PLENTY.rounds


@given(st.integers(1, 12))
def test_EA19_the_loop_is_bounded(rounds: int) -> None:
    restless = FakeModel(lambda request: calls(("look", {})))
    world = World(restless, Toolbox(CatHouse().tools), inline=True)
    result = drive(robot(1, Limits(rounds=rounds)).run(TASK), world)
    assert result.stop is StopReason.MAX_ITERATIONS
    assert len(restless.requests) == rounds


def test_an_answer_is_one_more_action_to_the_four_lines() -> None:
    call = decide(Reply("猫喂好了"), Toolbox(CatHouse().tools))
    assert (call.name, call.arguments) == ("finish", {"answer": "猫喂好了"})


# --- The model --------------------------------------------------------------------------------


@given(rooms, rooms)
def test_a_way_leads_through_doors_to_its_goal_and_is_the_shortest(here: str, there: str) -> None:
    passed = [here, *(arguments["room"] for _, arguments in way(here, there))]
    assert passed[-1] == there
    places = [ROOMS.index(room) for room in passed]
    assert all(abs(one - next_one) in (1, 4) for one, next_one in zip(places, places[1:], strict=False))
    assert len(places) <= 3, "no room is more than two doors away"


def planned(*seen: str) -> list[str]:
    """What the model plans after it was shown this, as names of tools and rooms."""
    messages = tuple(Message("user", text) for text in (TASK, *seen))
    reply = plan(CallModel(messages))
    decision = read(reply if isinstance(reply, Reply) else Reply(reply), Toolbox(CatHouse().tools))
    if isinstance(decision, Finish):
        return ["answer"]
    assert isinstance(decision, Act)
    return [" ".join([call.name, *call.arguments.values()]) for call in decision.calls]


FISH = "You see nobody. You carry a fish. You are in 客厅: doors lead to 卧室 and 厨房."


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ([], ["move 厨房", "take_fish", "move 阳台", "feed_cat"]),
        ([f"You hear a meow from 卧室. {FISH}"], ["move 卧室", "feed_cat"]),
        ([f"You hear a meow from 卧室. {FISH}", f"You hear nothing. {FISH}"], ["move 卧室", "feed_cat"]),
        ([f"You hear a meow from 客厅. {FISH}"], ["look", "feed_cat"]),
        ([f"You hear a meow from 卧室. {FISH}".replace("nobody", "the cat")], ["feed_cat"]),
        (["The cat eats the fish and purrs."], ["answer"]),
    ],
    ids=["nothing seen", "heard", "B-60: heard before", "heard here, and gone", "here", "fed"],
)
def test_the_model_acts_on_what_it_is_shown(seen: list[str], expected: list[str]) -> None:
    assert planned(*seen) == expected


def test_a_plan_is_told_in_words_and_made_of_calls() -> None:
    """B-3..B-5: planning, and the selection of a tool with its arguments, in one thought."""
    reply = plan(CallModel((Message("user", TASK),)))
    assert isinstance(reply, Reply)
    assert reply.text == "Plan: move 厨房 -> take_fish -> move 阳台 -> feed_cat"
    assert [call["name"] for call in reply.tool_calls] == ["move", "take_fish", "move", "feed_cat"]


@pytest.mark.parametrize("promise", PROMISES)
def test_the_model_keeps_its_promises(promise: str) -> None:
    PROMISES[promise](plan)


def forgetful(request: CallModel) -> Reply | str:
    """The third exercise: it reads the last message alone."""
    return plan(request._replace(messages=request.messages[-1:]))


def boastful(request: CallModel) -> Reply | str:
    return "猫喂好了 (the cat has been fed)." if len(request.messages) > 8 else plan(request)


def inventive(request: CallModel) -> Reply | str:
    reply = plan(request)
    return calls(("call_cat", {})) if isinstance(reply, str) else reply


def growing_tired() -> Plan:
    """A model that keeps count of what it was asked, wherever that was."""
    asked: list[CallModel] = []

    def tired(request: CallModel) -> Reply | str:
        asked.append(request)
        return plan(request) if len(asked) % 7 else calls(("look", {}))

    return tired


@pytest.mark.parametrize(
    ("wrong", "promise"),
    [
        (forgetful, "every_cat_is_fed"),
        (boastful, "it_says_so_only_when_it_is_true"),
        (inventive, "its_steps_can_be_made"),
        (growing_tired(), "it_knows_only_what_it_is_shown"),
    ],
    ids=["forgetful", "boastful", "inventive", "growing tired"],
)
def test_a_wrong_model_is_caught(wrong: Plan, promise: str) -> None:
    with pytest.raises(AssertionError):
        PROMISES[promise](wrong)


def test_what_the_forgetful_one_lacks_is_what_it_saw_one_action_before() -> None:
    """B-60: partly seen, so what was heard must be remembered."""
    for actions, loses in ((1, False), (2, True)):
        houses = [CatHouse(seed) for seed in range(100)]
        for house in houses:
            world = World(FakeModel(forgetful), Toolbox(house.tools), inline=True)
            drive(robot(actions, PLENTY).run(TASK), world)
        assert any(not house.goal_met for house in houses) is loses
