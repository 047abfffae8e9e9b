"""Chapter 18: a person's yes, a journal on disk, a critical tool; EA07, EA53, cases K01, K02, K04, K07."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agentloop import (
    AgentLoop,
    AskHuman,
    Away,
    CallModel,
    CallTool,
    Interrupt,
    Journal,
    Kind,
    Limits,
    LoopError,
    Observation,
    Outcome,
    Program,
    ProgramChanged,
    Result,
    StopReason,
    Toolbox,
    ToolCall,
    Unavailable,
    World,
    call_tool,
    drive,
)
from chapters.ch07_drivers import drive_async, drive_on_bus
from chapters.ch18_human_in_the_loop import (
    CriticalToolFailure,
    DiskJournal,
    NoRun,
    Unwritable,
    approval,
    asked_at_the_door,
    critical,
    decode,
    encode,
    exactly,
    person,
)
from chapters.ch20_fallback_and_errors_as_observations import fallback
from chapters.ch21_circuit_breaker import BreakerState, CircuitBreakers, Settings, breaker
from fake_llm import FakeClock, FakeModel, ScriptedModel, calls
from paradigms.evaluators import Judgement
from paradigms.function_calling import function_calling
from tests import check_approval, check_critical, check_disk_journal
from tests.check_approval import DELETE, LOOK, PAY, Office, dangerous, reason, repeating, run, seen
from tests.check_machine import BrokenPromise

PROMISES: dict[str, dict[str, Callable[[Any], None]]] = {
    "approval": check_approval.PROMISES,
    "critical": check_critical.PROMISES,
    "disk_journal": check_disk_journal.PROMISES,
}
OURS = {"approval": approval, "critical": critical, "disk_journal": DiskJournal}
DRIVERS = pytest.mark.parametrize(
    "driver", [drive, drive_async, drive_on_bus], ids=lambda each: each.__name__
)


def driven(driver: Callable[..., Any], *given: Any, **named: Any) -> Any:
    came = driver(*given, **named)
    return asyncio.run(came) if asyncio.iscoroutine(came) else came


# --- The promises -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "name"), [(check, name) for check, promises in PROMISES.items() for name in promises]
)
def test_ours_keeps(check: str, name: str) -> None:
    PROMISES[check][name](OURS[check])


@pytest.mark.parametrize(
    "promise",
    [
        "what_becomes_of_a_call_inside_is_asked_anew",
        "a_call_is_asked_for_once_however_it_is_wrapped",
        "an_edit_is_run_as_it_was_written",
    ],
)
def test_asking_at_the_door_is_not_enough(promise: str) -> None:
    with pytest.raises(BrokenPromise):
        check_approval.PROMISES[promise](asked_at_the_door)


def test_all_promises_at_once() -> None:
    check_approval.check_approval(approval)


# --- Errata and cases -------------------------------------------------------------------------


def test_K07_a_rejected_call_of_a_batch_does_not_run_and_has_its_one_result() -> None:
    office = Office(["太贵了，too expensive"])
    ran = run(approval(call_tool, dangerous), office, PAY, LOOK)
    assert office.deeds == [("look", "茶")] and ran.result.answer == "done"
    assert [each.ok for each in seen(ran)] == [False, True] and "too expensive" in seen(ran)[0].text


def send_ask_write(call: ToolCall) -> Program[Observation]:
    """Case K02 in one action: a mail, two questions, a file."""
    yield CallTool(ToolCall("look", {"at": "mail"}, f"{call.id}_mail"))
    first = (yield AskHuman("Which folder?", f"{call.id}_folder")).value
    second = (yield AskHuman("Which name?", f"{call.id}_name")).value
    yield CallTool(ToolCall("look", {"at": "file"}, f"{call.id}_file"))
    return Observation(f"{first}/{second}")


def test_K02_a_step_that_is_left_at_each_question_does_nothing_twice(tmp_path: Path) -> None:
    office = Office([Away(), "报告", Away(), "一月"])
    loop = AgentLoop(reason([LOOK]), approval(send_ask_write, dangerous))
    for _ in range(2):
        with pytest.raises(Away), DiskJournal(tmp_path / "journal") as journal:
            drive(loop.run("file it"), office.world, journal)
    with DiskJournal(tmp_path / "journal") as journal:
        result = drive(loop.run("file it"), office.world, journal)
    assert result.turns[0].observations == (Observation("报告/一月"),)
    assert office.questions == ["Which folder?", "Which name?"]
    assert office.deeds == [("look", "mail"), ("look", "file")]


def test_K01_a_payment_that_was_begun_is_not_made_again(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    loop, office = AgentLoop(reason([PAY]), approval(call_tool, dangerous)), Office()

    def pay(amount: float) -> str:
        office.deeds.append(("pay", amount))
        raise check_disk_journal.PowerFails

    world = World(None, Toolbox([pay]), office.human, inline=True)
    with pytest.raises(check_disk_journal.PowerFails), DiskJournal(path) as journal:
        drive(loop.run("pay"), world, journal)
    with DiskJournal(path) as journal:
        result = drive(loop.run("pay"), world, journal)
    assert office.deeds == [("pay", 9)] and len(office.questions) == 1
    assert result.turns[0].observations[0].kind is Kind.UNCERTAIN


def test_K04_a_lock_in_an_outcome_is_named_by_its_path() -> None:
    with pytest.raises(Unwritable, match=r"^tools\[0\]\.lock is of type lock, which is not data$"):
        encode({"tools": [{"lock": threading.Lock()}]})
    with pytest.raises(Unwritable, match="^the outcome is of type set"):
        encode({1, 2})
    with pytest.raises(Unwritable, match="^tool_calls.0. is of type bytes"):
        encode(calls(("f", {}))._replace(tool_calls=(b"",)))


@DRIVERS
def test_EA07_a_person_stops_the_run_at_the_question_under_every_driver(driver: Callable[..., Any]) -> None:
    for inline in (True, False):
        office = Office()
        human = person(lambda question: "Stop")
        world = World(None, office.world.tools, human, inline=inline)
        loop = AgentLoop(reason([LOOK, DELETE, PAY]), approval(call_tool, dangerous))
        result = driven(driver, loop.run("clean up"), world)
        assert result.stop is StopReason.HUMAN and office.deeds == [("look", "茶")]
        kinds = [each.kind for each in result.turns[0].observations]
        assert kinds == [Kind.RESULT, Kind.NOT_RUN, Kind.NOT_RUN]


@pytest.mark.parametrize("effect", range(1, 9))
def test_EA07_interrupted_at_any_effect_it_ends_with_HUMAN(effect: int, tmp_path: Path) -> None:
    """Whatever the run is doing, and stopping twice is like stopping once."""
    interrupt, office, begun = Interrupt(), Office(), []

    class Watching(DiskJournal):
        def intend(self, address: tuple[int, ...], asked: str) -> None:
            super().intend(address, asked)
            begun.append(asked)
            if len(begun) == effect:
                interrupt.set()
                interrupt.set()

    loop = AgentLoop(reason([LOOK, DELETE, PAY]), approval(call_tool, dangerous))
    with Watching(tmp_path / "journal") as journal:
        result = drive(loop.run("clean up"), office.world, journal, interrupt)
    if effect > len(begun):
        assert result.stop is StopReason.FINAL_ANSWER
    elif effect < 6:  # after the last one nothing is left to be stopped
        assert result.stop is StopReason.HUMAN and len(begun) == effect
    with DiskJournal(tmp_path / "journal") as again:
        assert drive(loop.run("clean up"), World(inline=True), again) == result


def test_EA53_the_decision_about_a_failed_tool_is_asked_for_once_and_holds() -> None:
    """The article's approval left everything as it was: the tool failed, and the question came, each time."""
    office = Office(["retry"], fails=1)
    ran = run(critical(call_tool, ["pay"]), office, PAY)
    assert office.deeds == [("pay", 9)] and len(office.questions) == 1 and seen(ran)[0].ok


def test_A124_nobody_decides_and_the_run_ends_with_what_failed() -> None:
    world = World(None, Office(fails=1).world.tools, inline=True)
    with pytest.raises(LoopError) as ended:
        drive(AgentLoop(reason([PAY]), critical(call_tool, ["pay"])).run("pay"), world)
    cause = ended.value.__cause__
    assert isinstance(cause, CriticalToolFailure) and cause.observation.kind is Kind.UNAVAILABLE
    assert str(cause).startswith("pay(amount=9): UNAVAILABLE: pay failed with Unavailable")


# --- Beside other guards ----------------------------------------------------------------------


class Bank:
    """Two tools that pay: the first has its troubles; each takes the same payment once."""

    def __init__(self, *troubles: Exception) -> None:
        self.troubles, self.paid = list(troubles), set[str]()

    def pay(self, amount: float, call_id: str) -> str:
        trouble = self.troubles.pop(0)
        if isinstance(trouble, TimeoutError):
            self.paid.add("pay")
        raise trouble

    def pay_by_card(self, amount: float, call_id: str) -> str:
        self.paid.add("pay_by_card")
        return "paid"


LOST, CLOSED = TimeoutError("no answer"), Unavailable("closed")


@pytest.mark.parametrize(
    ("answer", "troubles", "paid"),
    [
        ("retry", (LOST, CLOSED), {"pay"}),
        ("retry", (CLOSED, LOST), {"pay"}),
        ("retry", (CLOSED, CLOSED), {"pay_by_card"}),
        ("skip", (CLOSED,), set()),
        ("skip", (LOST,), {"pay"}),
    ],
)
def test_C09_nothing_is_paid_elsewhere_after_a_doubt_or_a_persons_no(
    answer: str, troubles: tuple[Exception, ...], paid: set[str]
) -> None:
    bank = Bank(*troubles)
    act = fallback(critical(call_tool, ["pay"]), {"pay": "pay_by_card"})
    world = World(None, Toolbox([bank.pay, bank.pay_by_card]), lambda question: answer, inline=True)
    drive(AgentLoop(reason([PAY]), act).run("pay"), world)
    assert bank.paid == paid


def test_a_breaker_inside_counts_what_a_person_skips() -> None:
    bank, breakers = Bank(CLOSED), CircuitBreakers(Settings(threshold=1))
    world = World(None, Toolbox([bank.pay]), lambda question: "skip", inline=True)
    drive(AgentLoop(reason([PAY]), critical(breaker(call_tool, breakers), ["pay"])).run("pay"), world)
    assert breakers.states() == {"pay": BreakerState.OPEN}


# --- Both guards, and every driver ------------------------------------------------------------


@pytest.mark.parametrize("outermost", ["approval", "critical"])
def test_both_guards_in_either_order_ask_each_question_once(outermost: str) -> None:
    office = Office(["yes", "retry"], fails=1)
    act: Callable[[ToolCall], Any] = call_tool
    for wrap in ("critical", "approval") if outermost == "approval" else ("approval", "critical"):
        act = critical(act, ["pay"]) if wrap == "critical" else approval(act, dangerous)
    ran = run(repeating(2)(act), office, PAY)
    assert office.deeds == [("pay", 9)] and len(office.questions) == 2 and seen(ran)[0].ok


@DRIVERS
def test_every_driver_comes_to_the_same_and_so_does_the_journal(
    driver: Callable[..., Any], tmp_path: Path
) -> None:
    def guarded() -> Program[Result]:
        act = repeating(2)(critical(approval(repeating(2)(call_tool), dangerous), ["pay"]))
        return AgentLoop(reason([LOOK, DELETE, PAY, DELETE]), act).run("clean up")

    def office() -> Office:
        return Office(['{"name": "b"}', "yes", "no"], fails=1)

    due, ours = drive(guarded(), office().world), office()
    with DiskJournal(tmp_path / "journal") as journal:
        result = driven(driver, guarded(), ours.world, journal)
    assert result.turns == due.turns and ours.deeds == [("look", "茶"), ("delete", "b"), ("pay", 9)]
    with DiskJournal(tmp_path / "journal") as journal:
        for count in range(len(journal.outcomes) + 1):
            again = drive(guarded(), office().world, journal.rewound(count))
            assert count < len(journal.outcomes) or again == result
        assert drive(guarded(), World(inline=True), journal) == result


@DRIVERS
def test_left_under_one_driver_and_answered_under_another(driver: Callable[..., Any], tmp_path: Path) -> None:
    office, loop = Office(["yes"]), AgentLoop(reason([DELETE]), approval(call_tool, dangerous))
    away = World(None, office.world.tools, person(lambda question: None))
    with DiskJournal(tmp_path / "journal") as journal, pytest.raises(Away, match="delete"):
        driven(driver, loop.run("clean up"), away, journal)
    with DiskJournal(tmp_path / "journal") as journal:
        assert drive(loop.run("clean up"), office.world, journal).answer == "done"
    assert office.deeds == [("delete", "旧报告.docx")]


def test_waiting_for_a_person_for_days_takes_no_time_of_the_run(tmp_path: Path) -> None:
    office, clock = Office(), FakeClock(start=1_000_000.0)
    loop = AgentLoop(reason([DELETE]), approval(call_tool, dangerous), limits=Limits(seconds=10))
    world = World(None, office.world.tools, person(lambda question: None), clock=clock.now, inline=True)
    with DiskJournal(tmp_path / "journal") as journal, pytest.raises(Away):
        drive(loop.run("clean up"), world, journal)
    clock.advance(3 * 86_400)

    def slow(question: str) -> str:
        clock.advance(3_600)
        return "yes"

    with DiskJournal(tmp_path / "journal") as journal:
        result = drive(
            loop.run("clean up"), World(None, world.tools, slow, clock=clock.now, inline=True), journal
        )
    assert result.stop is StopReason.FINAL_ANSWER and result.control.seconds == 0.0


def test_another_program_on_the_same_file_is_refused(tmp_path: Path) -> None:
    office = Office()
    with DiskJournal(tmp_path / "journal") as journal:
        drive(AgentLoop(reason([LOOK])).run("look"), office.world, journal)
    with DiskJournal(tmp_path / "journal") as journal, pytest.raises(ProgramChanged):
        drive(AgentLoop(reason([PAY])).run("look"), office.world, journal)
    assert office.deeds == [("look", "茶")]


# --- Small things -----------------------------------------------------------------------------


def test_the_model_decides_on_what_it_is_told() -> None:
    """A whole loop: refused, the model does something else, and says so."""
    model = ScriptedModel([calls(("pay", {"amount": 9})), calls(("look", {"at": "茶"})), "too dear, looked"])
    office, tools = Office(["太贵了"]), Toolbox([Office().pay, Office().look])
    loop = AgentLoop(function_calling(tools), approval(call_tool, dangerous))
    result = drive(loop.run("buy tea"), World(model, tools, office.human, inline=True))
    assert result.answer == "too dear, looked" and result.control.tool_calls == 1
    assert "太贵了" in model.prompts[1]


def test_a_loop_inside_of_an_action_is_looked_at_as_well() -> None:
    def delegate(call: ToolCall) -> Program[Any]:
        result = yield from AgentLoop(reason([DELETE])).run("clean up for me")
        return result.turns[0].observations[0]

    ran = run(approval(delegate, dangerous), Office(["no"]), LOOK)
    assert ran.office.deeds == [] and "delete" in ran.office.questions[0]
    assert seen(ran)[0].kind is Kind.REFUSED


class Weather(Enum):
    SUNNY = "sunny"


class Forecast(NamedTuple):
    city: str
    weather: Weather


def test_types_of_ones_own_are_written_when_they_are_named(tmp_path: Path) -> None:
    outcome = Outcome((Forecast("北京", Weather.SUNNY), Judgement(0.5, "ok")), 1.0)
    with DiskJournal(tmp_path / "journal") as journal, pytest.raises(Unwritable, match="Forecast"):
        journal.record((1,), "Do look", outcome)
    with pytest.raises(Unwritable, match=r"^the outcome is of type Judgement, .*types=\(Judgement,\)\)$"):
        encode(Judgement(0.5, "ok"))
    types = (Forecast, Weather, Judgement)
    with DiskJournal(tmp_path / "journal", types) as journal:
        journal.record((1,), "Do look", outcome)
    with DiskJournal(tmp_path / "journal", types) as journal:
        assert journal.outcomes == [((1,), "Do look", outcome)]


@pytest.mark.parametrize(
    "data", [{"set": [1]}, {"a": 1, "b": 2}, {}, {"Kind": "NO_SUCH"}, {"Usage": [1, 2, 3]}]
)
def test_what_was_not_written_here_is_not_read(data: Any) -> None:
    with pytest.raises(ValueError, match="not an outcome that was written here"):
        decode(data)


def test_the_file_is_plain_enough_for_the_sqlite3_shell(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with DiskJournal(path) as journal:
        drive(AgentLoop(reason([LOOK])).run("look"), Office().world, journal)
        journal.close()
    database = sqlite3.connect(path)
    rows = list(database.execute("SELECT address, asked, arrived, value FROM effects ORDER BY arrived"))
    database.close()
    assert rows == [
        ("1", "\"Start 'look'\"", 1, "1"),
        (
            "2",
            "\"CallTool call_1_1_1 look(at='茶')\"",
            2,
            '{"Observation":["look 茶: done",true,{"Kind":"RESULT"},null]}',
        ),
    ]


def test_a_call_is_shown_exactly() -> None:
    assert exactly(ToolCall("kv.get-item", {"key": "a\nb"})) == "'kv.get-item'(key='a\\nb')"
    assert exactly(ToolCall("delete", ["all"])) == "delete(arguments=['all'])"  # type: ignore[arg-type]
    assert exactly(ToolCall("f", {1: 2})) == "f(1=2)"  # type: ignore[dict-item]


@DRIVERS
@pytest.mark.parametrize("inline", [True, False])
def test_any_human_may_stop_the_run_at_either_question(
    driver: Callable[..., Any], inline: bool, tmp_path: Path
) -> None:
    for name, act, fails in (
        ("approval", approval(call_tool, dangerous), 0),
        ("critical", critical(call_tool, ["pay"]), 1),
    ):
        office = Office(["stop"], fails)
        world = World(None, office.world.tools, office.human, inline=inline)
        loop = AgentLoop(reason([PAY]), act)
        with DiskJournal(tmp_path / name) as journal:
            result = driven(driver, loop.run("pay"), world, journal)
        assert result.stop is StopReason.HUMAN and office.deeds == []
        with DiskJournal(tmp_path / name) as journal:
            assert drive(loop.run("pay"), World(inline=True), journal) == result


def test_an_answer_that_is_no_text_stands_in_the_journal_and_can_be_taken_back() -> None:
    loop, journal = AgentLoop(reason([DELETE]), approval(call_tool, dangerous)), Journal()
    for world in (Office([None]).world, World(inline=True)):
        with pytest.raises(LoopError, match=r"returns what a person said, as text .* it returned None"):
            drive(loop.run("clean up"), world, journal)
    office = Office(["yes"])
    before = journal.rewound(len(journal.outcomes) - 1)
    assert drive(loop.run("clean up"), office.world, before).answer == "done"
    assert office.deeds == [("delete", "旧报告.docx")]


def test_a_file_that_is_no_run_of_ours_is_told_as_such(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "users")
    database.executescript("CREATE TABLE users (name TEXT); CREATE VIEW names AS SELECT name FROM users")
    database.close()
    database = sqlite3.connect(tmp_path / "other effects")
    database.execute("CREATE TABLE effects (cause TEXT)")
    database.close()
    (tmp_path / "letter").write_text("no database " * 100, encoding="utf-8")
    for name, told in (
        ("users", r"this file holds other tables \(names, users\): it is no run of ours"),
        ("other effects", "cannot be read as a run of ours: no such column"),
        ("letter", "cannot be read as a run of ours: file is not a database"),
        (".", "this is a folder, and no run of ours"),
    ):
        with pytest.raises(NoRun, match=told):
            DiskJournal(tmp_path / name)
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere for the journal run\.db"):
        DiskJournal(tmp_path / "nowhere" / "run.db")


@pytest.mark.parametrize(
    "make",
    [
        lambda: approval(call_tool, ["delete"]),  # type: ignore[arg-type]
        lambda: approval(None, dangerous),  # type: ignore[arg-type]
        lambda: critical(call_tool, "pay"),
    ],
)
def test_a_guard_made_wrongly_says_what_would_be_right(make: Callable[[], Any]) -> None:
    with pytest.raises(TypeError, match="such as|two functions"):
        make()


def test_a_danger_is_told_in_words() -> None:
    with pytest.raises(LoopError) as ended:
        run(approval(call_tool, lambda call: True), Office(), DELETE)  # type: ignore[arg-type, return-value]
    assert "says in words" in str(ended.value.__cause__)


def test_a_model_is_not_asked_again_for_what_the_journal_knows(tmp_path: Path) -> None:
    def answers(request: CallModel) -> str:
        return "好的"

    model = FakeModel(answers)
    with DiskJournal(tmp_path / "journal") as journal:
        first = drive(AgentLoop(function_calling(Toolbox([]))).run("hi"), World(model, inline=True), journal)
    with DiskJournal(tmp_path / "journal") as journal:
        assert drive(AgentLoop(function_calling(Toolbox([]))).run("hi"), World(inline=True), journal) == first
        assert isinstance(journal, Journal) and len(model.requests) == 1
