"""Chapter 08: chain of thought. Its promises, its planted faults, and thinking under any model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    AgentLoop,
    Finish,
    Journal,
    Kind,
    Limits,
    LoopContext,
    Step,
    StopReason,
    World,
    bounded,
    drive,
)
from chapters.ch07_drivers import drive_async, drive_on_bus
from chapters.ch08_chain_of_thought import (
    REPLIES,
    SPENDING,
    TASK,
    budget,
    left_over,
    one_amount_at_a_time,
    right,
    run_budgets,
    spent,
)
from fake_llm import FakeClock, FakeModel, ScriptedModel, typical_replies
from paradigms.chain_of_thought import (
    DECIDE,
    THINK,
    THOUGHTS,
    chain_of_thought,
    is_thought,
    read_confidence,
)
from paradigms.function_calling import function_calling
from paradigms.react import react
from paradigms.text_protocol import parse
from tests.check_chain_of_thought import ACTION, FINISH, PROMISES, TOOLS, run, thought

CONFIDENCES = ("Confidence: 0.2", "Confidence: 0.95", "Confidence: false", "置信度：100%", "")
replies = st.lists(
    st.one_of(
        st.sampled_from([ACTION, FINISH, *typical_replies()]),
        st.builds(thought, st.integers(0, 9), st.sampled_from(CONFIDENCES)),
        st.text(max_size=30),
    ),
    max_size=30,
)


def boastful(step: Any, depth: int = 5, enough: float = 0.9) -> Any:
    """A chain that decides after its first thought, as if that were always sure."""
    return chain_of_thought(step, min(depth, 1), enough)


def world_of(replies: list[Any]) -> World:
    """A world whose model says these replies, and then thinks for ever."""
    script = iter(replies)
    model = FakeModel(lambda request: next(script, thought(0)))
    return World(model, TOOLS, clock=FakeClock().now, inline=True)


# --- Promises and planted faults ---------------------------------------------------------------


@pytest.mark.parametrize("promise", PROMISES)
def test_a_chain_keeps(promise: str) -> None:
    PROMISES[promise](chain_of_thought)


def test_the_chain_of_the_exercise_is_caught() -> None:
    with pytest.raises(AssertionError, match="it was asked 2 times"):
        PROMISES["it_ends_at_its_depth"](boastful)


@pytest.mark.parametrize("depth", [-1, 2.5, float("inf"), None])
def test_a_depth_that_is_none_is_refused(depth: Any) -> None:
    with pytest.raises(ValueError, match="depth must be a whole number of at least 0"):
        chain_of_thought(react(TOOLS), depth)


@pytest.mark.parametrize("enough", [0, -0.5, 1.1, float("nan")])
def test_a_confidence_that_is_none_is_refused(enough: float) -> None:
    with pytest.raises(ValueError, match="enough must be a number above 0 and up to 1"):
        chain_of_thought(react(TOOLS), 3, enough)


# --- Reading -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "confidence"),
    [
        ("Confidence: 0.4", 0.4),
        ("Thought: x\n**Confidence:** 1.0.", 1.0),
        ("> confidence：0", 0.0),
        ("置信度：85 %", 0.85),
        ("Confidence: 7 / 10", 0.7),
        ("Confidence: 70/100\n", 0.7),
        ("- Confidence: `0.5`", 0.5),
        ("Confidence: 1.01", None),
        ("Confidence: 101%", None),
        ("Confidence: 3/4", None),
        ("Confidence: 0,9", None),
        ("Confidence: true", None),
        ("Confidence:", None),
        ("No Confidence: 1", None),
        ("Confidence: 1\nConfidence: 1", None),
        ("Confidence: " + "9" * 5_000, None),
        ("Confidence: ０.９", None),
    ],
)
def test_a_confidence_is_read(text: str, confidence: float | None) -> None:
    assert read_confidence(text) == confidence


@given(st.text() | st.from_regex(r"\AConfidence: .{0,20}\Z"))
def test_a_confidence_is_a_number_between_0_and_1_or_unknown(text: str) -> None:
    confidence = read_confidence(text)
    assert confidence is None or 0 <= confidence <= 1


def test_a_thought_is_what_has_words_and_no_instruction() -> None:
    assert is_thought(parse("Thought: hm", TOOLS)) and is_thought(parse("hm", TOOLS))
    assert is_thought(parse("Thought: hm\nObservation: made up\nAction: Finish[x]", TOOLS))
    for text in (
        "",
        ACTION,
        FINISH,
        "Action: ",
        "Action: None",
        'Action: get_weather(city="',
        "Action: Finish[]",
    ):
        assert not is_thought(parse(text, TOOLS)), text
    assert not is_thought(Finish("hm", "hm"))


# --- What the prompt says ----------------------------------------------------------------------


def test_A61_the_prompt_says_when_to_think_and_when_to_decide() -> None:
    made = run(chain_of_thought, [thought(1), thought(2), FINISH], depth=2)
    assert [(THINK in prompt, DECIDE in prompt) for prompt in made.prompts] == [
        (True, False),
        (True, False),
        (False, True),
    ]
    assert THOUGHTS not in made.prompts[0] and THOUGHTS in made.prompts[1]


def test_the_format_that_the_prompt_shows_is_the_one_that_is_read() -> None:
    assert "'Confidence: 0.4'" in THINK and read_confidence("Confidence: 0.4") == 0.4


def test_under_function_calling_a_plain_text_is_the_answer_and_ends_the_chain() -> None:
    loop = AgentLoop(chain_of_thought(function_calling(TOOLS)))
    result = drive(loop.run(TASK), world_of(["晴，适合。"]))
    assert (result.answer, result.control.model_calls) == ("晴，适合。", 1)


def test_a_bug_in_the_step_is_not_taken_for_an_ending() -> None:
    def buggy(context: LoopContext) -> Finish:
        raise ZeroDivisionError

    with pytest.raises(Exception, match="a hook raised ZeroDivisionError") as caught:
        drive(AgentLoop(chain_of_thought(buggy)).run(TASK), world_of([]))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


# --- Any model ---------------------------------------------------------------------------------


@given(replies, st.integers(0, 4), st.integers(1, 4), st.integers(1, 8), st.sampled_from([0.2, 0.9, 1.0]))
def test_EA60_whatever_the_model_says_calls_are_bounded_and_the_ending_is_honest(
    said: list[Any], depth: int, rounds: int, allowed: int, enough: float
) -> None:
    limits = Limits(rounds=rounds, model_calls=allowed, tokens=10**6)
    taken: list[Step] = []
    loop = AgentLoop(chain_of_thought(react(TOOLS), depth, enough), limits=limits, watch=taken.append)
    world = world_of(said)
    result = drive(loop.run(TASK), world)
    assert isinstance(world.model, FakeModel)
    assert len(world.model.requests) == result.control.model_calls <= min(allowed, rounds * (depth + 1))
    assert (result.answer is not None) == (result.stop is StopReason.FINAL_ANSWER)
    assert len(result.turns) <= result.control.rounds <= rounds
    for turn in result.turns:
        assert len(turn.calls) == len(turn.observations)
    again = drive(loop.run(TASK), world_of(said))
    assert again == result, "the same script gives the same run, and the first has left nothing behind"


@given(st.integers(0, 30), st.integers(0, 3))
def test_three_drivers_and_a_replay_come_to_the_same(seed: int, depth: int) -> None:
    loop = AgentLoop(chain_of_thought(react(TOOLS), depth), limits=Limits(rounds=3, tokens=10**6))
    choices = (ACTION, thought(1), FINISH, thought(2), thought(3, "Confidence: 1"))
    model = FakeModel(lambda request: choices[(seed + request.tokens) % len(choices)])
    world = World(model, TOOLS, clock=FakeClock().now, inline=True)
    journal = Journal()
    result = drive(loop.run(TASK), world, journal)
    assert asyncio.run(drive_async(loop.run(TASK), world)) == result
    assert asyncio.run(drive_on_bus(loop.run(TASK), world)) == result
    for count in range(len(journal.outcomes) + 1):
        assert drive(loop.run(TASK), world, journal.rewound(count)) == result


def test_a_chain_inside_another_program_is_paid_from_that_account() -> None:
    loop, world = AgentLoop(chain_of_thought(react(TOOLS), depth=5)), world_of([])
    result = drive(bounded(loop.run(TASK), Limits(model_calls=3)), world)
    assert isinstance(world.model, FakeModel) and len(world.model.requests) == 3
    assert (result.answer, result.stop) == (None, StopReason.MODEL_CALLS)
    assert result.turns[-1].thought.count("<thought 0>") == 3
    assert result.turns[-1].observations[0].kind is Kind.NOT_RUN


# --- What the demo shows -----------------------------------------------------------------------


def test_without_the_chain_the_thoughts_use_up_the_rounds() -> None:
    limits = Limits(rounds=3)
    plain = drive(
        AgentLoop(react(TOOLS), limits=limits).run(TASK), World(ScriptedModel(REPLIES), inline=True)
    )
    assert (plain.answer, plain.stop) == (None, StopReason.MAX_ITERATIONS)


def test_A62_each_thought_more_solves_one_task_more_until_none_is_left() -> None:
    qualities = [right(run_budgets(depth, 0.9)) for depth in range(8)]
    assert qualities == [1, 2, 3, 4, 5, 6, 6, 6]
    assert qualities == [right(run_budgets(depth, 1.0)) for depth in range(8)]


def test_A61_being_sure_saves_calls_and_costs_no_quality() -> None:
    calls = [(spent(run_budgets(depth, 0.9))[0], spent(run_budgets(depth, 1.0))[0]) for depth in range(8)]
    assert calls[6] == (27, 42) and calls[7][0] == 27, "when it is sure, a larger depth costs nothing more"
    assert [never_sure for _, never_sure in calls] == [6 * (depth + 1) for depth in range(8)]


def test_the_model_of_the_dial_works_the_right_answers_out() -> None:
    world = World(FakeModel(one_amount_at_a_time), inline=True)
    length = len(SPENDING)
    result = drive(AgentLoop(chain_of_thought(react(TOOLS), 9)).run(budget(length)), world)
    assert result.answer == str(left_over(length)) == "145"
