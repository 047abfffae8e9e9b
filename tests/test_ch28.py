"""Chapter 28: what the window has no room for is kept where it can be asked for."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    AgentLoop,
    Interrupt,
    Journal,
    Limits,
    Result,
    StopReason,
    Toolbox,
    World,
    call_tool,
    drive,
)
from chapters.ch07_drivers import drive_async, drive_on_bus
from chapters.ch28_layered_memory import (
    BOOKLETS,
    PAGES,
    PRICE,
    TASK,
    WINDOW,
    Forgetful,
    ask_client,
    guide,
    librarian,
    pursued,
    read_guide,
    read_handbook,
    read_page,
    research,
    searcher,
)
from fake_llm import FakeClock, FakeModel, ScriptedModel
from paradigms.memory import (
    NOTES,
    Notebook,
    Results,
    SimilarMemory,
    delegating,
    likeness,
    memory_on,
    noting,
    shelved,
    terms,
)
from paradigms.prompt import last_turns
from paradigms.react import react
from paradigms.store import Store
from tests import check_memory, check_notebook, check_shelf, check_store, check_sub_agent
from tests.check_machine import BrokenPromise
from tests.strategies import limits as any_limits

#: Each check: its promises, and ours that keeps them.
CHECKS: dict[str, tuple[Any, Any]] = {
    "store": (check_store.PROMISES, Store),
    "memory": (check_memory.PROMISES, memory_on),
    "notebook": (check_notebook.PROMISES, Notebook),
    "shelf": (check_shelf.PROMISES, shelved),
    "sub_agent": (check_sub_agent.PROMISES, delegating),
}


# --- The promises -----------------------------------------------------------------------------


@pytest.mark.parametrize(("check", "name"), [(check, name) for check in CHECKS for name in CHECKS[check][0]])
def test_ours_keeps(check: str, name: str) -> None:
    promises, ours = CHECKS[check]
    promises[name](ours)


def broken_by(check: str, thing: Any) -> set[str]:
    def broken(promise: Callable[[Any], None]) -> bool:
        try:
            promise(thing)
        except BrokenPromise:
            return True
        return False

    return {name for name, promise in CHECKS[check][0].items() if broken(promise)}


def test_the_first_attempt_at_a_notebook_breaks_what_the_exercise_says() -> None:
    assert broken_by("notebook", Forgetful) == {
        "a_new_note_on_a_topic_replaces_the_old_one",
        "what_is_shown_fits_its_room",
        "a_later_run_finds_its_notes",
        "an_empty_note_is_refused",
    }


# --- Terms and likeness -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("去北京", ["去北", "北京"]),
        ("I go to 北京, 26 度", ["i", "go", "to", "北京", "26", "度"]),
        ("Café Москва", ["café", "москва"]),
        ("東京タワー", ["東京", "京タ", "タワ", "ワー"]),
        ("？！", ["？！"]),
        ("", [""]),
    ],
)
def test_terms(text: str, found: list[str]) -> None:
    assert sorted(terms(text).elements()) == sorted(found)


@given(st.text(max_size=20), st.lists(st.text(max_size=20), max_size=5))
def test_likeness_is_from_0_to_1_and_that_of_a_text_with_itself_is_1(asked: str, texts: list[str]) -> None:
    values = likeness(asked, [*texts, asked])
    assert len(values) == len(texts) + 1
    assert all(0 <= value <= 1 + 1e-9 for value in values)
    assert values[-1] == pytest.approx(1)


# --- Notes ------------------------------------------------------------------------------------


class Trip:
    """The chapter's window of two turns, with a notebook behind it."""

    def __init__(self, path: Path, model: Any = None) -> None:
        self.notebook = Notebook(Store(path), TASK)
        self.tools = Toolbox(
            [ask_client, read_guide, self.notebook.write_note, self.notebook.read_notes],
            idempotent=["write_note", "read_notes"],
        )
        self.model = model or FakeModel(guide)
        self.loop = AgentLoop(noting(react(self.tools, last_turns(2)), notebook=self.notebook))
        self.world = World(self.model, self.tools, clock=FakeClock().now, inline=True)


def test_without_notes_the_client_is_forgotten_and_with_them_not(tmp_path: Path) -> None:
    tools = Toolbox([ask_client, read_guide])
    forgetful = AgentLoop(react(tools, last_turns(2))).run(TASK)
    assert drive(forgetful, World(FakeModel(guide), tools, inline=True)).answer == "推荐长城"
    trip = Trip(tmp_path / "notes")
    assert drive(trip.loop.run(TASK), trip.world).answer == "推荐颐和园"


def test_EA16_a_note_is_in_every_later_prompt_though_its_turn_has_left_the_window(tmp_path: Path) -> None:
    trip = Trip(tmp_path / "notes")
    drive(trip.loop.run(TASK), trip.world)
    for prompt in trip.model.prompts[2:]:
        assert f"{NOTES}: \n客户的要求: 客户说：我膝盖不好，不爬山。" in prompt
    assert "ask_client()" not in trip.model.prompts[-1].partition("user:")[2]


def test_notes_that_cannot_be_read_are_told_of_and_the_run_goes_on(tmp_path: Path) -> None:
    trip = Trip(tmp_path / "notes", ScriptedModel(["Action: Finish[好]"]))
    (tmp_path / "notes").write_bytes(b"torn")
    assert drive(trip.loop.run(TASK), trip.world).answer == "好"
    assert re.search(r"notes \(笔记\): \(cannot be read now: .*BrokenStore", trip.model.prompts[0])


def test_a_note_that_cannot_be_taken_is_a_failed_observation(tmp_path: Path) -> None:
    script = ['Action: write_note(topic=" ", text="x")', "Action: Finish[好]"]
    trip = Trip(tmp_path / "notes", ScriptedModel(script))
    [seen] = drive(trip.loop.run(TASK), trip.world).turns[0].observations
    assert (seen.ok, "neither is empty" in seen.text) == (False, True)


# --- The sub-agent and the shelf, together and in any order -----------------------------------


def booklets(act: Any, model: Any) -> Result:
    tools = Toolbox([research])
    loop = AgentLoop(react(tools), act, limits=Limits(rounds=20, failures=1))
    return drive(loop.run(BOOKLETS), World(model, Toolbox([read_page, research]), inline=True))


def reading_agent() -> dict[str, AgentLoop]:
    return {"research": AgentLoop(react(Toolbox([read_page])))}


def test_B53_three_booklets_do_not_fit_into_one_window_and_fit_into_four() -> None:
    tools, limits = Toolbox([read_page]), Limits(rounds=20, failures=1)
    alone = AgentLoop(react(tools), limits=limits)
    failed = drive(alone.run(BOOKLETS), World(librarian(WINDOW), tools, inline=True))
    assert failed.stop is StopReason.TOO_MANY_FAILURES
    model = librarian(WINDOW)
    assert booklets(delegating(call_tool, agents=reading_agent()), model).answer is not None
    largest = max(request.tokens for request in model.requests if request.messages[1].content == BOOKLETS)
    assert largest < WINDOW / 3


@pytest.mark.parametrize("shelf_outside", [True, False])
def test_the_guards_nest_in_any_order(tmp_path: Path, shelf_outside: bool) -> None:
    results = Results(Store(tmp_path / "kept"), part=200)
    if shelf_outside:
        act = shelved(delegating(call_tool, agents=reading_agent()), results=results)
    else:
        act = delegating(shelved(call_tool, results=results), agents=reading_agent())
    assert booklets(act, librarian(WINDOW)).answer == "颐和园门票 30 元，故宫博物院门票 60 元，长城门票 40 元"


def handbook(results: Results, act: Any) -> tuple[Result, FakeModel]:
    tools = Toolbox([read_handbook, results.read_result], max_characters=100_000)
    model = FakeModel(searcher)
    return drive(AgentLoop(react(tools), act).run(PRICE), World(model, tools, inline=True)), model


def test_B41_a_long_result_ends_the_run_or_goes_onto_the_shelf(tmp_path: Path) -> None:
    results = Results(Store(tmp_path / "kept"), part=200)
    assert handbook(results, call_tool)[0].stop is StopReason.TOKEN_BUDGET
    result, model = handbook(results, shelved(call_tool, results=results))
    assert result.answer == "颐和园门票 30 元"
    assert max(request.tokens for request in model.requests) < 1000 < len(read_handbook())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"handle": "result_0"}, "nothing is kept under 'result_0'"),
        ({"start": -1}, "start must be from 0 to"),
        ({"start": 10**9}, "start must be from 0 to"),
        ({"find": "机票"}, "'机票' is not found in"),
    ],
)
def test_what_cannot_be_read_on_says_why(tmp_path: Path, arguments: dict[str, Any], problem: str) -> None:
    results = Results(Store(tmp_path / "kept"))
    handle = results.keep(read_handbook())
    with pytest.raises((LookupError, ValueError), match=re.escape(problem)):
        results.read_result(**{"handle": handle, **arguments})


def test_a_text_is_found_again_after_a_position(tmp_path: Path) -> None:
    results = Results(Store(tmp_path / "kept"))
    handle = results.keep(read_handbook())
    first = read_handbook().find("第 7 页")
    assert results.read_result(handle, find="第 7 页").startswith("第 7 页。")
    assert results.read_result(handle, first + 1, f"第 {PAGES} 页").startswith(f"第 {PAGES} 页。")


# --- Long-term memory and the outer loop ------------------------------------------------------


def test_A142_a_second_run_in_another_process_remembers(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    notebook = Notebook(Store(path), "first")
    tools = Toolbox([ask_client, read_guide, notebook.write_note])
    assert pursued("安排北京一天，先问客户", memory_on(path), tools)[1:] == ("-", "推荐颐和园")
    script = (
        "import sys; from chapters.ch28_layered_memory import *\n"
        "memory = memory_on(sys.argv[1])\n"
        "print(ascii(pursued('周末在北京玩，去哪里？', memory, Toolbox([read_guide]))))"
    )
    command = [sys.executable, "-B", "-X", "utf8", "-c", script, str(path)]
    root = Path(__file__).parent.parent
    done = subprocess.run(command, cwd=root, capture_output=True, encoding="utf-8", check=True)
    due = ("周末在北京玩，去哪里？", "客户说：我膝盖不好，不爬山。", "推荐颐和园")
    assert done.stdout.strip() == ascii(due)
    assert pursued("周末在北京玩，去哪里？", None, Toolbox([read_guide]))[2] == "推荐长城"


def test_a_memory_that_breaks_is_one_that_knows_nothing(tmp_path: Path) -> None:
    memory = memory_on(tmp_path / "memory")
    (tmp_path / "memory").write_bytes(b"torn")
    assert pursued("在北京玩", memory, Toolbox([read_guide]))[1:] == ("-", "推荐长城")


@pytest.mark.parametrize("make", [Store, SimilarMemory, Notebook, Results, delegating])
def test_numbers_that_make_no_sense_are_refused(make: Any, tmp_path: Path) -> None:
    store = Store(tmp_path / "kept")
    arguments: dict[Any, Any] = {
        Store: lambda number: Store(tmp_path / "other", capacity=number),
        SimilarMemory: lambda number: SimilarMemory(store, most=number),
        Notebook: lambda number: Notebook(store, "task", room=number),
        Results: lambda number: Results(store, part=number),
        delegating: lambda number: delegating(call_tool, agents={}, longest=number),
    }
    for number in (0, -1, True, 1.5, None):
        with pytest.raises(ValueError, match="must be a whole number of at least"):
            arguments[make](number)


def test_what_cannot_work_is_refused_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "kept")
    with pytest.raises(ValueError, match="wait must be a finite number of seconds above 0"):
        Store(tmp_path / "kept", wait=0)
    with pytest.raises(TypeError, match="name says in words"):
        Notebook(store, 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="agents maps names of tools to AgentLoops, and 'research' to 5"):
        delegating(call_tool, agents={"research": 5})  # type: ignore[dict-item]
    makes: tuple[Callable[[Any], Any], ...] = (
        lambda act: delegating(act, agents={}),
        lambda act: shelved(act, results=Results(store)),
        lambda reason: noting(reason, notebook=Notebook(store, "task")),
    )
    for make in makes:
        with pytest.raises(TypeError, match="must be a function, not 5"):
            make(5)


def test_a_notebook_may_have_any_name(tmp_path: Path) -> None:
    notebook = Notebook(Store(tmp_path / "kept"), "任务\ud800")
    notebook.write_note("客户", "不爬山")
    assert "不爬山" in notebook.shown()


def test_reading_a_result_reads_no_other(tmp_path: Path) -> None:
    read: list[int] = []

    class Noted(Store):
        def kept(self, shelf: str, name: str | None = None) -> list[tuple[str, str]]:
            found = super().kept(shelf, name)
            read.append(len(found))
            return found

    results = Results(Noted(tmp_path / "kept"))
    handles = [results.keep(f"{number}" * 1000) for number in range(10)]
    assert results.read_result(handles[3], 990) == "3" * 10
    assert read == [1]


# --- Drivers, replay, hostile worlds ----------------------------------------------------------


def test_the_same_under_every_driver(tmp_path: Path) -> None:
    trips = [Trip(tmp_path / f"notes {number}") for number in range(3)]
    due = drive(trips[0].loop.run(TASK), trips[0].world)
    assert asyncio.run(drive_async(trips[1].loop.run(TASK), trips[1].world)) == due
    assert asyncio.run(drive_on_bus(trips[2].loop.run(TASK), trips[2].world)) == due


def test_broken_off_anywhere_and_resumed_it_comes_to_the_same(tmp_path: Path) -> None:
    first, journal = Trip(tmp_path / "first"), Journal()
    due = drive(first.loop.run(TASK), first.world, journal)
    for count in range(len(journal.outcomes) + 1):
        again, done = Trip(tmp_path / f"after {count}"), journal.rewound(count)
        if any("write_note" in asked for _, asked, _ in done.outcomes):
            again.notebook.write_note("客户的要求", ask_client())  # was done in that world before the break
        assert drive(again.loop.run(TASK), again.world, done) == due


@given(any_limits, st.integers(0, 30))
def test_whatever_the_limits_and_whenever_a_person_stops_it_the_run_ends(limits: Limits, when: int) -> None:
    interrupt, asked = Interrupt(), 0

    def impatient(request: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked > when:
            interrupt.set()
        return librarian(WINDOW)(request)

    tools = Toolbox([research])
    loop = AgentLoop(react(tools), delegating(call_tool, agents=reading_agent()), limits=limits)
    world = World(impatient, Toolbox([read_page, research]), inline=True)
    result = drive(loop.run(BOOKLETS), world, interrupt=interrupt)
    assert (result.answer is not None) == (result.stop is StopReason.FINAL_ANSWER)
    assert all(len(turn.calls) == len(turn.observations) for turn in result.turns)
    assert {call.name for turn in result.turns for call in turn.calls if not call.problem} <= {"research"}
