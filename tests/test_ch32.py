"""Chapter 32: agents that send each other letters. Case M01; any post, any driver, any break."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    AgentLoop,
    Finish,
    Interrupt,
    Journal,
    Kind,
    Limits,
    LoopContext,
    LoopError,
    Observation,
    Program,
    Sleep,
    StopReason,
    Toolbox,
    World,
    bounded,
    drive,
)
from chapters.ch07_drivers import drive_async, drive_on_bus
from chapters.ch32_message_passing import (
    MARKER,
    POST,
    SAYS,
    TASK,
    BrokenOff,
    Conversation,
    Draft,
    Inbox,
    Letter,
    Transcript,
    any_mention,
    as_it_is,
    draft_of,
    editors,
    polite,
    talking,
)
from fake_llm import (
    FakeClock,
    FakeModel,
    babbling_model,
    empty_model,
    get_weather,
    raising_model,
    random_model,
    stubborn_model,
)
from paradigms.function_calling import function_calling
from paradigms.react import react
from tests import check_conversation, check_draft, check_inbox
from tests.check_conversation import silent, thanks

LONG = Limits(effects=10**7, seconds=1e6)  # who waits looks as often as there is time for


def world(model: Any = None, tools: Toolbox | None = None, inline: bool = True) -> World:
    """A world in which nobody waits; where calls have threads of their own, its time stands still."""
    clock = FakeClock()
    sleep = clock.sleep if inline else (lambda seconds: None)
    return World(model, tools, clock=clock.now, sleep=sleep, inline=inline)


def edited(read: Callable[[str, str], Draft], **options: Any) -> Transcript:
    """The conversation of the demo."""
    conversation = Conversation(editors(read), **options)
    return drive(conversation.run(TASK, "审稿", "文案"), world(FakeModel(polite)))


# --- The promises -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", check_draft.PROMISES)
def test_draft_of_keeps(name: str) -> None:
    check_draft.PROMISES[name](draft_of)


@pytest.mark.parametrize("name", check_inbox.PROMISES)
def test_an_inbox_keeps(name: str) -> None:
    check_inbox.PROMISES[name](Inbox)


@pytest.mark.parametrize("name", check_conversation.PROMISES)
def test_a_conversation_keeps(name: str) -> None:
    check_conversation.PROMISES[name](Conversation)


@pytest.mark.parametrize("read", [any_mention, as_it_is])
def test_M01_the_naive_readings_of_the_demo_are_caught(read: Callable[[str, str], Draft]) -> None:
    with pytest.raises(AssertionError, match="this was"):
        check_draft.check_draft(read)


# --- M01 --------------------------------------------------------------------------------------


def test_M01_polite_ping_pong_ends_at_the_bound_with_the_reason() -> None:
    transcript = edited(as_it_is, messages=9)
    assert (transcript.stop, transcript.answer, len(transcript.letters)) == (BrokenOff.MESSAGES, None, 9)
    assert transcript.problem == "no message is left"


def test_M01_without_a_bound_that_bites_the_account_ends_it() -> None:
    transcript = edited(as_it_is, messages=10_000, limits=Limits(model_calls=12))
    assert (transcript.stop, transcript.answer) == (StopReason.MODEL_CALLS, None)
    assert len(transcript.letters) == 13, "each letter but the first is one model call"


def test_M01_the_sentence_does_not_stop_it_and_the_line_does() -> None:
    naive, ours = edited(any_mention), edited(draft_of)
    assert naive.answer is not None and "草稿：" not in naive.answer and len(naive.letters) == 2
    assert (ours.stop, ours.letters[-1].done) == (StopReason.FINAL_ANSWER, True)
    assert ours.answer is not None and "颐和园" in ours.answer and MARKER not in ours.answer
    assert sum(MARKER in letter.text for letter in ours.letters) == 2, "two mention it, and neither ends it"


# --- Agents that are loops --------------------------------------------------------------------


def test_a_loop_is_shown_the_letter_and_what_was_said_before() -> None:
    model = FakeModel(polite)
    drive(Conversation(editors(draft_of)).run(TASK, "审稿", "文案"), world(model))
    last = model.prompts[-1]
    assert f"审稿 -> 文案: {TASK}" in last and "文案 -> 审稿: 好的！" in last
    assert "system: 审稿" in last and "user: 草稿：" in last
    assert "(nothing)" in model.prompts[0]


def test_a_loop_without_an_answer_tells_the_sender_how_it_ended() -> None:
    agents = {
        "甲": talking(AgentLoop(function_calling(Toolbox([])), limits=Limits(failures=2))),
        "乙": silent,
    }
    transcript = drive(Conversation(agents).run("在吗？", "乙", "甲"), world(empty_model()))
    assert transcript.stop is BrokenOff.DEADLOCK
    assert transcript.letters[1].text.startswith("TOO_MANY_FAILURES")


def test_a_loop_may_write_to_whom_it_likes() -> None:
    says = {"找人": "To: 丁\n在吗？", "在吗？": f"在。\n{MARKER}"}  # and to what comes back:
    model = FakeModel(lambda request: says.get(request.messages[1].content, "To: 丙\n在吗？"))
    agents = {name: talking(AgentLoop(function_calling(Toolbox([])))) for name in "甲乙丙"}
    transcript = drive(Conversation(agents).run("找人", "乙", "甲"), world(model))
    assert [(each.sender, each.to) for each in transcript.letters] == [
        ("乙", "甲"),
        ("甲", "丁"),
        (POST, "甲"),
        ("甲", "丙"),
        ("丙", "甲"),
    ]
    assert [each.to for each in transcript.dead] == ["丁"] and transcript.answer == "在。"
    assert (
        transcript.letters[2].text == "Nobody here is called '丁'; here are 甲, 乙, 丙. Not delivered: 在吗？"
    )


@pytest.mark.parametrize(
    "model",
    [
        stubborn_model(),
        babbling_model(),
        empty_model(),
        raising_model(ConnectionError("503")),
        *(random_model(seed) for seed in range(5)),
    ],
    ids=lambda model: "",
)
@pytest.mark.parametrize("protocol", [react, function_calling])
def test_hostile_models_end_within_the_bounds(model: Any, protocol: Any) -> None:
    tools = Toolbox([get_weather])
    agents = {name: talking(AgentLoop(protocol(tools))) for name in "甲乙丙"}
    conversation = Conversation(agents, messages=6, limits=Limits(effects=150, tokens=10**6, seconds=1e6))
    transcript = drive(conversation.run("北京天气怎么样？", "乙", "甲"), world(model, tools))
    assert 1 <= len(transcript.letters) <= 6
    assert (transcript.answer is not None) == (transcript.stop is StopReason.FINAL_ANSWER)


# --- Drivers, accounts, people, bugs ----------------------------------------------------------

DRIVERS: dict[str, Callable[..., Any]] = {
    "drive": drive,
    "drive_async": lambda program, world: asyncio.run(drive_async(program, world)),
    "drive_on_bus": lambda program, world: asyncio.run(drive_on_bus(program, world)),
}


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "threads"])
@pytest.mark.parametrize("name", DRIVERS)
def test_every_driver_comes_to_the_same(name: str, inline: bool) -> None:
    due = edited(draft_of)
    conversation = Conversation(editors(draft_of), limits=LONG)
    came = DRIVERS[name](conversation.run(TASK, "审稿", "文案"), world(FakeModel(polite), inline=inline))
    assert came == due


@pytest.mark.parametrize("name", DRIVERS)
def test_a_crowd_of_agents_ends_under_every_driver(name: str) -> None:
    def passing_on(letter: Letter, earlier: tuple[Letter, ...]) -> Program[list[Draft]]:
        yield Sleep(0)
        number = int(letter.to.removeprefix("agent "))
        return [Draft(f"agent {(number + step) % 20}", "谢谢！") for step in (1, 7)]

    agents = {f"agent {number}": passing_on for number in range(20)}
    conversation = Conversation(agents, messages=100, limits=LONG)
    transcript = DRIVERS[name](conversation.run("开始", "agent 0", "agent 1"), world(inline=False))
    assert (transcript.stop, len(transcript.letters)) == (BrokenOff.MESSAGES, 100)


def test_broken_off_anywhere_a_conversation_of_loops_is_resumed() -> None:
    journal, program = Journal(), Conversation(editors(draft_of))
    due = drive(program.run(TASK, "审稿", "文案"), world(FakeModel(polite)), journal)
    for count in range(len(journal.outcomes) + 1):
        model = FakeModel(polite)
        assert drive(program.run(TASK, "审稿", "文案"), world(model), journal.rewound(count)) == due
        asked = sum(asked.startswith("CallModel") for _, asked, _ in journal.outcomes[:count])
        assert len(model.requests) == 4 - asked, "what was answered is not asked again"


def test_two_runs_of_one_conversation_share_nothing() -> None:
    conversation = Conversation(editors(draft_of))
    first, second = (
        drive(conversation.run(TASK, "审稿", "文案"), world(FakeModel(polite))) for _ in range(2)
    )
    assert first == second and first.letters[0].number == 1


def test_a_person_stops_all_of_it() -> None:
    interrupt, asked = Interrupt(), FakeModel(polite)

    def model(request: Any) -> Any:
        if len(asked.requests) == 2:
            interrupt.set()
        return asked(request)

    program = Conversation(editors(as_it_is), messages=1000).run(TASK, "审稿", "文案")
    transcript = drive(program, world(model), interrupt=interrupt)
    assert (transcript.stop, transcript.answer) == (StopReason.HUMAN, None)
    assert len(transcript.letters) == 4, "the third call was under way: its answer is in hand, and kept"
    assert len(asked.requests) == 3


def test_a_persons_stop_inside_one_loop_is_a_stop_of_all() -> None:
    def decided(control: Any, context: LoopContext) -> StopReason:
        return StopReason.HUMAN

    stubborn = AgentLoop(react(Toolbox([get_weather])), stops=(decided,))
    conversation = Conversation({"甲": talking(stubborn), "乙": thanks})
    tools = Toolbox([get_weather])
    transcript = drive(conversation.run("天气？", "乙", "甲"), world(stubborn_model(), tools))
    assert transcript.stop is StopReason.HUMAN and len(transcript.letters) == 1


@given(st.integers(1, 40))
def test_on_any_account_what_was_written_is_kept(effects: int) -> None:
    transcript = edited(as_it_is, messages=1000, limits=Limits(effects=effects))
    assert transcript.stop is StopReason.EFFECTS and transcript.letters[0].text == TASK
    spoken = {TASK} | {says for lines in SAYS.values() for _, says in lines}
    assert {each.text for each in transcript.letters} <= spoken, "an ending is not sent as a letter"


def test_inside_a_program_whose_account_runs_dry_it_says_so() -> None:
    program = bounded(Conversation(editors(as_it_is)).run(TASK, "审稿", "文案"), Limits(model_calls=3))
    transcript = drive(program, world(FakeModel(polite)))
    assert (transcript.stop, len(transcript.letters)) == (StopReason.MODEL_CALLS, 4)


def test_a_bug_in_a_hook_of_one_loop_ends_the_conversation() -> None:
    agents = {"甲": talking(AgentLoop(lambda context: Finish(1 / 0))), "乙": silent}
    with pytest.raises(LoopError, match="ZeroDivisionError"):
        drive(Conversation(agents).run("算", "乙", "甲"), world())


@pytest.mark.parametrize("answer", [None, "谢谢", ["谢谢"], Draft("乙", "谢谢"), 7])
def test_what_is_no_draft_is_refused_in_words(answer: Any) -> None:
    agents = {"甲": lambda letter, earlier: answer, "乙": silent}
    with pytest.raises(TypeError, match="甲 must answer with a list of Draft"):
        drive(Conversation(agents).run("说", "乙", "甲"), world())


@pytest.mark.parametrize("task", ["", " \n", None, 7])
def test_what_is_no_task_is_not_sent(task: Any) -> None:
    transcript = drive(Conversation({"甲": thanks}).run(task, "甲", "甲"), world())
    assert (transcript.stop, transcript.letters) == (StopReason.INVALID_TASK, ())


def test_what_makes_no_sense_is_refused() -> None:
    for messages in (0, -1, True, 1.5):
        with pytest.raises(ValueError, match="messages must be a whole number of at least 1"):
            Conversation({"甲": thanks}, messages=messages)  # type: ignore[arg-type]
    for agents in ({}, {POST: thanks}):
        with pytest.raises(ValueError, match="a conversation has agents"):
            Conversation(agents)
    for sender, to in (("丙", "甲"), ("甲", "丙")):
        with pytest.raises(ValueError, match="nobody is called '丙'; the agents are 甲"):
            drive(Conversation({"甲": thanks}).run("说", sender, to), world())


def test_who_waits_sleeps_longer_each_time() -> None:
    def slow(letter: Letter, earlier: tuple[Letter, ...]) -> Program[list[Draft]]:
        for _ in range(12):
            yield Sleep(0)
        return [Draft("乙", "好", True)]

    clock = FakeClock()
    waiting = World(clock=clock.now, sleep=clock.sleep, inline=True)
    assert drive(Conversation({"乙": silent, "甲": slow}).run("等", "乙", "甲"), waiting).answer == "好"
    pauses = [pause for pause in clock.slept if pause]
    assert pauses[:7] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0] and max(pauses) == 2.0


def test_a_model_that_is_down_is_told_of_in_words() -> None:
    agents = {"甲": talking(AgentLoop(function_calling(Toolbox([])))), "乙": silent}
    down = FakeModel(lambda request: ConnectionError("503"))
    transcript = drive(Conversation(agents).run("在吗？", "乙", "甲"), world(down))
    seen = Observation("The model failed: ConnectionError: 503.", False, Kind.UNAVAILABLE)
    assert seen.text in transcript.letters[1].text
