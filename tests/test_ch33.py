"""Chapter 33: a shared board. No update is lost, whoever writes: programs, models, threads, many drivers."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    Act,
    AgentLoop,
    EffectFailed,
    Finish,
    Interrupt,
    Journal,
    Kind,
    LimitReached,
    Limits,
    LoopContext,
    Program,
    StopReason,
    Together,
    Toolbox,
    ToolCall,
    World,
    bounded,
    drive,
)
from chapters.ch07_drivers import drive_async, drive_on_bus
from chapters.ch31_checkpoints import Checkpoints
from chapters.ch33_shared_state import (
    APPEND,
    MAXIMUM,
    PRICES,
    PURSE,
    REPLACE,
    TOTAL,
    UNION,
    Board,
    Conflict,
    Entry,
    LastWriterWins,
    Rule,
    Snapshot,
    board_tools,
    read,
    sharing,
    side_by_side,
    spender,
    treasurer,
    update,
    write,
)
from fake_llm import FakeClock, FakeModel, ScriptedModel, calls, get_weather
from paradigms.function_calling import function_calling
from tests import check_board, check_update
from tests.check_update import ENOUGH, driven, one_more

RULES = {"count": REPLACE, "total": TOTAL, "log": APPEND}
INLINE = World(inline=True)

# --- The promises -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", check_board.PROMISES)
def test_a_board_keeps(name: str) -> None:
    check_board.PROMISES[name](Board)


@pytest.mark.parametrize("name", check_update.PROMISES)
def test_update_keeps(name: str) -> None:
    check_update.PROMISES[name](update)


def test_one_entry_is_what_a_snapshot_shows_of_it_and_a_copy() -> None:
    board = Board({"notes": APPEND, "balance": REPLACE})
    board.write("甲", {"notes": ["买票"]}, 0)
    for key in ("notes", "balance"):
        assert board.entry(key) == board.read().entries[key]
    board.entry("notes").value.append("划掉")
    assert board.entry("notes") == (["买票"], 1, "甲")
    with pytest.raises(KeyError):
        board.entry("weather")


def test_the_plain_dict_of_the_demo_loses_updates() -> None:
    broken = []
    for name, promise in check_board.PROMISES.items():
        try:
            promise(LastWriterWins)
        except AssertionError:
            broken.append(name)
    assert "what_is_newer_is_not_overwritten" in broken and "what_is_written_is_read" not in broken


# --- Merge rules ------------------------------------------------------------------------------

whole = st.integers(-5, 5)
lists = st.lists(st.sampled_from(["故宫", "长城", "颐和园"]), max_size=3)
VALUES: dict[str, tuple[Rule, Any]] = {
    "append": (APPEND, lists),
    "union": (UNION, lists),
    "maximum": (MAXIMUM, whole),
    "total": (TOTAL, whole),
}


def joined(rule: Rule, values: list[Any]) -> Any:
    assert rule.merge is not None
    result = rule.start
    for value in values:
        result = rule.merge(result, value)
    return result


@pytest.mark.parametrize("name", VALUES)
@given(data=st.data())
def test_a_merge_rule_is_associative(name: str, data: st.DataObject) -> None:
    rule, values = VALUES[name]
    one, two, three = (data.draw(values) for _ in range(3))
    assert rule.merge is not None
    both = rule.merge(joined(rule, [two]), three)
    assert joined(rule, [one, two, three]) == rule.merge(joined(rule, [one]), both)


@pytest.mark.parametrize("name", ["union", "maximum", "total"])
@given(data=st.data())
def test_where_order_is_free_any_order_comes_to_the_same(name: str, data: st.DataObject) -> None:
    rule, values = VALUES[name]
    came = data.draw(st.lists(values, max_size=5))
    assert joined(rule, data.draw(st.permutations(came))) == joined(rule, came)


@pytest.mark.parametrize("name", ["union", "maximum"])
@given(data=st.data())
def test_where_doubles_are_free_they_change_nothing(name: str, data: st.DataObject) -> None:
    rule, values = VALUES[name]
    came = data.draw(st.lists(values, min_size=1, max_size=5))
    assert joined(rule, [*came, data.draw(st.sampled_from(came))]) == joined(rule, came)


@pytest.mark.parametrize("rule", [APPEND, UNION, MAXIMUM, TOTAL])
@pytest.mark.parametrize("value", ["北京", None, float("nan"), float("inf"), True, {"a": 1}])
def test_what_a_rule_cannot_join_is_a_type_error(rule: Rule, value: Any) -> None:
    board = Board({"key": rule})
    with pytest.raises(TypeError, match="not"):
        board.write("甲", {"key": value}, 0)
    assert board.read() == Snapshot(0, {"key": Entry(rule.start)})


def test_a_union_is_of_texts_and_says_nothing_of_who_came_first() -> None:
    with pytest.raises(TypeError, match="lists of texts"):
        Board({"key": UNION}).write("甲", {"key": ["故宫", 7]}, 0)
    assert joined(UNION, [["乙", "甲"], ["甲"]]) == sorted(["甲", "乙"])


def test_a_rule_of_ones_own_is_a_start_and_a_function() -> None:
    board = Board({"votes": Rule({}, lambda stands, comes: {**stands, **comes})})
    for writer in ("甲", "乙"):
        board.write(writer, {"votes": {writer: "长城"}}, 0)
    assert board.read().value("votes") == {"甲": "长城", "乙": "长城"}
    with pytest.raises(KeyError):
        board.read().value("vote")


# --- Programs ---------------------------------------------------------------------------------


def counting(board: Board, name: str, times: int = 3) -> Program[list[int | Conflict]]:
    """Add 1 to one key by reading and writing, and to another by its rule."""
    came = []
    for _ in range(times):
        came.append((yield from update(board, name, one_more, tries=200)))
        yield from write(board, name, {"total": 1, "log": [name]}, 0)
    return came


def together(board: Board, names: str, times: int = 3) -> Program[list[list[int]]]:
    programs = tuple(counting(board, name, times) for name in names)
    return (yield Together(programs)).value  # type: ignore[no-any-return]


def held(board: Board) -> tuple[int, int, int]:
    snapshot = board.read()
    return snapshot.value("count"), snapshot.value("total"), len(snapshot.value("log"))


DRIVERS: dict[str, Callable[..., Any]] = {
    "drive": drive,
    "drive_async": lambda program, world: asyncio.run(drive_async(program, world)),
    "drive_on_bus": lambda program, world: asyncio.run(drive_on_bus(program, world)),
}


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "threads"])
@pytest.mark.parametrize("name", DRIVERS)
def test_programs_side_by_side_lose_nothing(name: str, inline: bool) -> None:
    board = Board(RULES)
    came = DRIVERS[name](bounded(together(board, "甲乙丙丁"), ENOUGH), World(inline=inline))
    assert held(board) == (12, 12, 12)
    versions = [version for each in came for version in each]
    assert len(set(versions)) == 12 and all(isinstance(version, int) for version in versions)
    log = board.read().value("log")
    assert all(log.count(who) == 3 for who in "甲乙丙丁")


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads that take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_several_drivers_in_threads_share_one_board(hasty_threads: None) -> None:
    board = Board(RULES)
    with ThreadPoolExecutor(4) as pool:
        programs = [bounded(together(board, names, 5), ENOUGH) for names in ("甲乙", "丙", "丁戊", "己")]
        list(pool.map(lambda program: drive(program, INLINE), programs))
    assert held(board) == (30, 30, 30)


def test_under_threads_the_counter_is_linearizable(hasty_threads: None) -> None:
    """Each operation takes effect at one moment between its beginning and its end, as its version says."""
    board, ticks, barrier = (
        Board({"count": REPLACE, "twice": REPLACE}),
        itertools.count(),
        threading.Barrier(4),
    )
    history: list[tuple[int, int, bool, int]] = []  # began, ended, whether it wrote, at which version

    def work(name: str) -> None:
        barrier.wait()
        for _ in range(40):
            began = next(ticks)
            snapshot = board.read()
            history.append((began, next(ticks), False, snapshot.version))
            value = snapshot.value("count") or 0
            assert (value, 2 * value) == (snapshot.version, snapshot.value("twice") or 0), "half a write"
            began = next(ticks)
            written = board.write(name, {"count": value + 1, "twice": 2 * value + 2}, snapshot.version)
            if isinstance(written, int):
                history.append((began, next(ticks), True, written))
            else:
                assert written.clashes["count"].version > snapshot.version

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, "甲乙丙丁"))
    writes = sorted(version for _, _, wrote, version in history if wrote)
    assert writes == list(range(1, board.read().version + 1)) and len(writes) >= 40
    for began, _, wrote, version in history:
        earlier = [v for _, ended, _, v in history if ended < began]
        latest = max(earlier, default=0)
        assert version > latest if wrote else version >= latest, "what had ended before was not seen"


def test_a_conflict_reaches_a_program_as_a_value() -> None:
    board = Board(RULES)
    board.write("乙", {"count": 7}, 0)
    conflict = driven(write(board, "甲", {"count": 1}, 0))
    assert conflict == Conflict("甲", 0, 1, {"count": Entry(7, 1, "乙")})
    assert str(conflict) == (
        "Nothing was written: since version 0, which 甲 saw, there came\n"
        "count = 7 (乙, version 1)\nThe board is at version 1."
    )
    assert driven(read(board)).version == 1


def test_what_makes_no_sense_fails_in_the_program_that_asked() -> None:
    for changes, seen in (({"cuont": 1}, 0), ({"count": 1}, 5), ({}, 0), ({3: 1}, 0)):
        with pytest.raises(EffectFailed, match="ValueError"):
            driven(write(Board(RULES), "甲", changes, seen))  # type: ignore[arg-type]


def test_broken_off_anywhere_and_resumed_nothing_is_written_twice() -> None:
    journal = Journal()
    due = driven(together(Board(RULES), "甲乙"), journal)
    for count in range(len(journal.outcomes) + 1):
        board, kept = Board(RULES), journal.rewound(count)
        _redo(board, kept)
        assert driven(together(board, "甲乙"), kept) == due
        assert held(board) == (6, 6, 6)


def _redo(board: Board, kept: Journal) -> None:
    """Bring a fresh board to where the journal's run had brought its own, which outlived it."""
    for _, asked, outcome in kept.outcomes:
        if " writes count" in asked and isinstance(outcome.value, int):
            board.write(
                asked.split()[1], {"count": (board.read().value("count") or 0) + 1}, outcome.value - 1
            )
        elif " writes total" in asked:
            board.write(asked.split()[1], {"total": 1, "log": [asked.split()[1]]}, 0)


def test_a_write_in_doubt_is_not_repeated() -> None:
    board, journal = Board(RULES), Journal()
    program = write(board, "甲", {"total": 60}, 0)
    board.write("甲", {"total": 60}, 0)  # it took effect, and the process died before it was recorded
    journal.intend((1,), "Do 甲 writes total, having seen version 0")
    with pytest.raises(EffectFailed, match="not known"):
        drive(program, INLINE, journal)
    assert board.read().value("total") == 60


def test_what_was_read_can_be_kept_on_disk(tmp_path: Path) -> None:
    types = (Snapshot, Entry, Conflict)

    def program() -> Program[Any]:
        snapshot = yield from read(board)
        conflict = yield from write(board, "甲", {"count": 1}, 0)
        return snapshot, conflict

    board = Board(RULES)
    board.write("乙", {"count": 7, "log": ["乙"]}, 0)
    with Checkpoints(tmp_path / "run.db", types) as kept:
        due = drive(program(), INLINE, kept)
    board = Board(RULES)
    with Checkpoints(tmp_path / "run.db", types) as kept:
        assert drive(program(), INLINE, kept) == due


@given(st.integers(1, 12))
def test_writers_that_never_want_to_stop_end_with_their_account(effects: int) -> None:
    board = Board({"count": REPLACE})

    def forever(name: str) -> Program[None]:
        while True:
            yield from update(board, name, one_more)

    def both() -> Program[Any]:
        return (yield Together((forever("甲"), forever("乙")))).value

    came = driven(both(), limits=Limits(effects=effects))
    if effects > 2:
        assert [type(each) for each in came] == [LimitReached, LimitReached]
        assert {each.reason for each in came} == {StopReason.EFFECTS}
    assert board.read().value("count") in (None, *range(effects))


# --- Models -----------------------------------------------------------------------------------


def purse(kind: type[Board] = Board) -> Board:
    board = kind({"balance": REPLACE, "spent": TOTAL})
    board.write("家里", {"balance": PURSE}, 0)
    return board


@pytest.mark.parametrize(
    ("kind", "model", "left"),
    [
        (LastWriterWins, treasurer, PURSE - PRICES["小王"]),
        (Board, treasurer, PURSE - sum(PRICES.values())),
        (Board, spender, PURSE - sum(PRICES.values())),
    ],
    ids=["the last writer wins", "versions", "a merge rule"],
)
def test_the_two_purchases_of_the_demo(kind: type[Board], model: Any, left: int) -> None:
    board = purse(kind)
    results = drive(side_by_side(board), World(FakeModel(model), inline=True))
    assert [result.stop for result in results] == [StopReason.FINAL_ANSWER] * 2
    assert board.read().value("balance") - board.read().value("spent") == left


@pytest.mark.parametrize("name", DRIVERS)
def test_two_models_on_one_board_pay_right_under_every_driver(name: str) -> None:
    board = purse()
    results = DRIVERS[name](side_by_side(board), World(FakeModel(treasurer)))
    assert all(result.stop is StopReason.FINAL_ANSWER for result in results)
    assert board.read().value("balance") == 10


def test_a_run_of_models_is_replayed_without_touching_the_board() -> None:
    board, journal = purse(), Journal()
    due = drive(side_by_side(board), World(FakeModel(treasurer), inline=True), journal)
    version = board.read().version
    assert drive(side_by_side(board), World(inline=True), journal) == due
    assert board.read().version == version


def test_a_model_is_told_of_a_conflict_and_may_look_again() -> None:
    board = purse()
    toolbox = Toolbox(board_tools(board, "小李"))
    board.write("小王", {"balance": 70}, 1)
    refused = toolbox.execute(ToolCall("write_board", {"key": "balance", "value": 40, "version": 1}))
    assert (refused.ok, refused.kind) == (False, Kind.REFUSED)
    assert "balance = 70 (小王, version 2)" in refused.text
    seen = toolbox.execute(ToolCall("read_board", {}))
    assert seen.text == (
        "The board is at version 2.\nbalance = 70 (小王, version 2)\nspent = 0 (not written yet)"
    )
    written = toolbox.execute(ToolCall("write_board", {"key": "balance", "value": 10, "version": "2"}))
    assert (written.ok, written.text) == (True, "Written in version 3.")


@pytest.mark.parametrize(
    ("arguments", "kind", "told"),
    [
        ({"key": "blance", "value": 1, "version": 1}, Kind.TOOL_ERROR, "the keys of this board are balance"),
        ({"key": "balance", "value": 1, "version": 9}, Kind.TOOL_ERROR, "nobody can have seen 9"),
        ({"key": "spent", "value": "much", "version": 1}, Kind.TOOL_ERROR, "a number is wanted"),
        ({"key": "balance", "value": 1}, Kind.BAD_ARGUMENTS, "missing argument 'version'"),
    ],
)
def test_a_models_mistake_is_an_observation(arguments: dict[str, Any], kind: Kind, told: str) -> None:
    board = purse()
    seen = Toolbox(board_tools(board, "小李")).execute(ToolCall("write_board", arguments))
    assert (seen.ok, seen.kind) == (False, kind) and told in seen.text
    assert board.read().version == 1


def test_each_loop_signs_what_it_writes_and_other_calls_pass() -> None:
    board = purse()
    model = ScriptedModel(
        [
            calls(
                ("get_weather", {"city": "北京"}),
                ("write_board", {"key": "spent", "value": 60, "version": 1}),
            ),
            "好了。",
        ]
    )
    tools = Toolbox([get_weather])
    loop = AgentLoop(function_calling(tools), sharing(board=board, writer="小李"))
    result = drive(loop.run("买票"), World(model, tools, inline=True))
    assert [seen.text for seen in result.turns[0].observations] == [
        get_weather("北京"),
        "Written in version 2.",
    ]
    assert result.control.tool_calls == 1
    assert board.read().entries["spent"] == Entry(60, 2, "小李")


def test_a_board_that_does_not_answer_leaves_it_uncertain() -> None:
    class Hanging(Board):
        def read(self) -> Snapshot:
            raise TimeoutError("no answer")

        def write(self, writer: str, changes: Any, seen: int) -> int | Conflict:
            clock.append(1)
            raise SystemExit

    clock: list[int] = []
    world = World(
        ScriptedModel([calls(("write_board", {"key": "k", "value": 1, "version": 0})), "x"]), inline=True
    )
    loop = AgentLoop(function_calling(Toolbox([])), sharing(board=Hanging({"k": REPLACE}), writer="甲"))
    journal = Journal()
    result = drive(loop.run("写"), world, journal)
    assert result.turns[0].observations[0].kind is Kind.TOOL_ERROR
    at = next(n for n, (_, asked, _) in enumerate(journal.outcomes) if asked.startswith("Do 甲"))
    address, asked, _ = journal.outcomes[at]
    broken = journal.rewound(at)
    broken.intend(address, asked)  # begun, and nobody knows its end
    again = World(ScriptedModel(["x"]), inline=True)
    seen = drive(loop.run("写"), again, broken).turns[0].observations[0]
    assert (seen.ok, seen.kind) == (False, Kind.UNCERTAIN) and "not known" in seen.text
    assert clock == [1]


def test_a_write_that_was_never_begun_is_not_in_doubt() -> None:
    board, clock = Board({"k": REPLACE}), FakeClock()

    def reason(context: LoopContext) -> Act:
        clock.advance(400)
        writing = ToolCall("write_board", {"key": "k", "value": 1, "version": 0})
        return Act((writing, ToolCall("read_board", {})))

    loop = AgentLoop(reason, sharing(board=board, writer="甲"), limits=Limits(seconds=300))
    result = drive(loop.run("写"), World(clock=clock.now, inline=True))
    assert [seen.kind for seen in result.turns[0].observations] == [Kind.NOT_RUN] * 2
    assert board.read().version == 0


def test_a_read_that_broke_off_is_done_again() -> None:
    board = Board({"k": REPLACE})
    model = ScriptedModel([calls(("read_board", {})), "x"])
    loop = AgentLoop(function_calling(Toolbox([])), sharing(board=board, writer="甲"))
    journal = Journal()
    result = drive(loop.run("读"), World(model, inline=True), journal)
    at = next(n for n, (_, asked, _) in enumerate(journal.outcomes) if asked.startswith("Do 甲"))
    address, asked, _ = journal.outcomes[at]
    broken = journal.rewound(at)
    broken.intend(address, asked)
    again = drive(loop.run("读"), World(ScriptedModel(["x"]), inline=True), broken)
    assert again.turns == result.turns


def test_a_person_stops_all_who_write() -> None:
    board, interrupt = purse(), Interrupt()

    def reason(context: LoopContext) -> Program[Finish]:
        yield from write(board, "甲", {"spent": 1}, 0)
        interrupt.set()
        yield from write(board, "甲", {"spent": 1}, 0)
        return Finish("done")

    result = drive(AgentLoop(reason).run("买票"), INLINE, interrupt=interrupt)
    assert (result.stop, board.read().value("spent")) == (StopReason.HUMAN, 1)
