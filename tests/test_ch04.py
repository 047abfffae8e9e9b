"""Chapter 04: what the model knows is what was put into its prompt, this very round."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    AgentLoop,
    Journal,
    Limits,
    Result,
    StopReason,
    Toolbox,
    World,
    drive,
    estimate_tokens,
)
from chapters.ch04_reassembling_the_input import (
    NOTES,
    PARTS,
    TASK,
    guide,
    nothing,
    recall,
    remembering,
    sizes,
)
from fake_llm import FakeModel, RuleModel, ScriptedModel, get_attraction, get_weather
from paradigms.prompt import last_turns, whole_history
from paradigms.react import react
from tests.check_machine import BrokenPromise
from tests.check_recall import PROMISES, Recall
from tests.check_view import check_view

TOOLS = Toolbox([get_weather, get_attraction])
PERCEIVE = remembering(NOTES, lambda: "今天是星期六。")


def run(loop: AgentLoop, model: FakeModel | None = None) -> tuple[Result, FakeModel]:
    """Run the chapter's task, and return the model too, with all it was asked."""
    model = model or guide()
    return drive(loop.run(TASK), World(model, TOOLS, inline=True)), model


# --- History ----------------------------------------------------------------------------------


@given(st.integers(1, 9))
def test_a_loop_that_puts_nothing_back_asks_the_same_until_its_limit(rounds: int) -> None:
    result, model = run(AgentLoop(react(TOOLS, nothing), limits=Limits(rounds=rounds)))
    assert result.stop is StopReason.MAX_ITERATIONS
    assert len(model.prompts) == rounds
    assert len(set(model.prompts)) == 1


@pytest.mark.parametrize("view", [whole_history, last_turns(1)], ids=["whole_history", "last_turns(1)"])
def test_a_loop_that_puts_the_observation_back_comes_to_its_answer(view: object) -> None:
    result, model = run(AgentLoop(react(TOOLS, view)))  # type: ignore[arg-type]
    assert result.answer == "北京今天晴，26 度，推荐：颐和园（湖景 + 古建筑）、长城"
    assert [call.name for turn in result.turns for call in turn.calls] == ["get_weather", "get_attraction"]
    assert len(set(model.prompts)) == 3


def test_the_view_of_nothing_breaks_the_promise_of_a_view() -> None:
    with pytest.raises(BrokenPromise, match="the latest is not among them"):
        check_view(nothing)


def test_the_model_itself_remembers_nothing() -> None:
    """B-9: asked the same again, it says the same again, whatever was asked in between."""
    model = guide()
    run(AgentLoop(react(TOOLS)), model)
    first, second, _ = model.requests
    assert model(first) == model(first)
    assert model(second) != model(first)


def test_EA17_history_stands_in_the_prompt_once_and_as_text() -> None:
    result, model = run(AgentLoop(react(TOOLS), perceive=PERCEIVE))
    for number, prompt in enumerate(model.prompts):
        for turn in result.turns[:number]:
            assert prompt.count(turn.thought) == 1
            assert prompt.count(f"Observation: {turn.observations[0].text}") == 1
        assert not any(trace in prompt for trace in ("Turn(", "Message(", "[{", "{'role'")), "a list's repr"


def test_EA18_the_prompt_names_each_tool_with_its_parameters() -> None:
    _, model = run(AgentLoop(react(TOOLS)))
    for prompt in model.prompts:
        for name in TOOLS.names:
            parameters = ", ".join(f"{parameter}: str" for parameter in TOOLS.parameters(name))
            assert f"{name}({parameters})" in prompt


def test_EA18_a_model_that_must_guess_a_name_learns_it_from_the_prompt() -> None:
    """Told of no tool, a model has to invent one; here the name that it uses is one it was shown."""
    asks_for_what_it_sees = RuleModel(
        [(lambda request: "get_weather(" in request.messages[0].content, 'Action: get_weather(city="北京")')],
        otherwise='Action: weather_lookup(place="北京")',
    )
    result, _ = run(AgentLoop(react(TOOLS), limits=Limits(rounds=1)), asks_for_what_it_sees)
    assert result.turns[0].observations[0].ok


def test_the_format_of_article_a_is_read_too() -> None:
    """A-51: ``Action: [工具名] Args: [参数]`` and ``[FINAL_ANSWER]``."""
    action = 'Thought: 查天气\nAction: get_weather Args: {"city": "北京"}'
    model = ScriptedModel([action, "[FINAL_ANSWER] 晴"])
    result, _ = run(AgentLoop(react(TOOLS)), model)
    assert result.answer == "晴"
    assert result.turns[0].observations[0].ok


# --- Perception and memory --------------------------------------------------------------------


def test_EA16_what_was_perceived_reaches_every_prompt() -> None:
    _, model = run(AgentLoop(react(TOOLS), perceive=PERCEIVE))
    for prompt in model.prompts:
        assert prompt.count(NOTES["旅游"]) == 1
        assert prompt.count("今天是星期六。") == 1
        assert NOTES["编程"] not in prompt, "what has nothing to do with the task stays where it is"


def test_EA16_the_answer_heeds_what_was_remembered() -> None:
    without, _ = run(AgentLoop(react(TOOLS)))
    remembered, _ = run(AgentLoop(react(TOOLS), perceive=PERCEIVE))
    assert "、长城" in without.answer
    assert "不用爬长城" in remembered.answer
    assert [turn.calls for turn in without.turns] == [turn.calls for turn in remembered.turns]


def test_EA16_long_term_memory_outlives_a_run() -> None:
    notes = dict(NOTES)
    loop = AgentLoop(react(TOOLS), perceive=remembering(notes, lambda: ""))
    run(loop)
    assert notes == NOTES
    notes["旅游"] = "用户想去长城。"
    result, model = run(loop)
    assert "用户想去长城。" in model.prompts[0]
    assert "、长城" in result.answer


def test_memory_and_environment_are_read_once_and_a_replay_finds_what_was_found() -> None:
    notes, weekday = dict(NOTES), ["今天是星期六。"]
    loop = AgentLoop(react(TOOLS), perceive=remembering(notes, weekday.pop))
    journal = Journal()
    first = drive(loop.run(TASK), World(guide(), TOOLS, inline=True), journal)
    notes.clear()
    again = drive(loop.run(TASK), World(None, TOOLS, inline=True), Journal(journal.outcomes))
    assert again == first


@pytest.mark.parametrize(
    ("task", "topics"),
    [(TASK, ["旅游", "天气"]), ("编程", ["编程"]), ("", []), ("北京哪里风景好？", [])],
)
def test_notes_are_recalled_whose_topic_the_task_mentions(task: str, topics: list[str]) -> None:
    assert recall(task, NOTES) == [NOTES[topic] for topic in topics]


@pytest.mark.parametrize("promise", PROMISES)
def test_recall_keeps_its_promises(promise: str) -> None:
    PROMISES[promise](recall)


def recall_knowing_words(task: str, notes: Mapping[str, str]) -> list[str]:
    """The third exercise: one who knows that 风景 has to do with 旅游."""
    return recall(task.replace("风景", "旅游"), notes)


def test_a_recall_that_knows_more_words_keeps_them_too() -> None:
    assert recall_knowing_words("北京哪里风景好？", NOTES) == [NOTES["旅游"]]
    for promise in PROMISES.values():
        promise(recall_knowing_words)


def first_note_alone(task: str, notes: Mapping[str, str]) -> list[str]:
    return recall(task, notes)[:1]


def with_its_topic(task: str, notes: Mapping[str, str]) -> list[str]:
    return [f"{topic}: {note}" for topic, note in notes.items() if topic in task] + recall(task, notes)


def everything(task: str, notes: Mapping[str, str]) -> list[str]:
    return list(dict.fromkeys(notes.values()))


def used_up(task: str, notes: dict[str, str]) -> list[str]:
    return [notes.pop(topic) for topic in list(notes) if topic in task]


@pytest.mark.parametrize(
    ("wrong", "promise"),
    [
        (first_note_alone, "note_of_each_topic_that_is_mentioned"),
        (with_its_topic, "nothing_but_notes"),
        (everything, "what_has_nothing_to_do_with_the_task_stays_where_it_is"),
        (used_up, "the_notes_stay_as_they_are"),
    ],
)
def test_a_wrong_recall_is_caught(wrong: Recall, promise: str) -> None:
    with pytest.raises(AssertionError):
        PROMISES[promise](wrong)


# --- Sizes ------------------------------------------------------------------------------------


def test_EB11_what_is_sent_again_is_counted_again() -> None:
    result, model = run(AgentLoop(react(TOOLS), perceive=PERCEIVE))
    rows = [sizes(request, TOOLS) for request in model.requests]
    came_back = sum(estimate_tokens(turn.thought) for turn in result.turns)
    assert result.control.tokens == sum(map(sum, rows)) + came_back
    *constant, history = zip(*rows, strict=True)
    assert all(len(set(part)) == 1 for part in constant)
    assert list(history) == sorted(set(history)) and history[0] == 0


def test_EB12_the_parts_sum_to_what_was_announced() -> None:
    _, model = run(AgentLoop(react(TOOLS), perceive=PERCEIVE))
    for request in model.requests:
        parts = sizes(request, TOOLS)
        assert len(parts) == len(PARTS)
        assert sum(parts) == request.tokens
        assert all(part >= 0 for part in parts)


@given(st.integers(1, 1_500))
def test_EB12_a_budget_is_asked_before_a_prompt_is_sent(tokens: int) -> None:
    result, model = run(AgentLoop(react(TOOLS), limits=Limits(tokens=tokens)))
    sent = sum(request.tokens for request in model.requests)
    assert sent <= tokens
    assert result.stop in (StopReason.FINAL_ANSWER, StopReason.TOKEN_BUDGET)
