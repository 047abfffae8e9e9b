"""Every chapter's demo: offline, the same each time, on any console; and the command that runs them."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import subprocess
import sys
import types
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest

from agentloop import (
    LIVE,
    TRANSITIONS,
    AgentLoop,
    AgentState,
    Control,
    Event,
    EventKind,
    Kind,
    Limits,
    LoopError,
    Observation,
    Step,
    StopReason,
    ToolCall,
    Turn,
    World,
    advance,
    drive,
    on_one_line,
    row_taken,
)
from chapters.__main__ import Chapter, _main, find, find_chapters, main
from chapters.ch02_state_machine import markdown, mermaid
from chapters.telling import Pace, Telling, columns, steps_written_to, trace

ROOT = Path(__file__).parent.parent
RECORDED = Path(__file__).parent / "recorded"
CHAPTERS = find_chapters()
each_chapter = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.module)
#: To step through a demo is to run it once more: those of the first part have every shape there is.
stepped = pytest.mark.parametrize("chapter", CHAPTERS[:14], ids=lambda chapter: chapter.module)


class Terminal(io.StringIO):
    """A console that a person sits at."""

    def isatty(self) -> bool:
        return True


class Keyboard(io.StringIO):
    """Counts how often Enter was waited for."""

    asked = 0

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        self.asked += 1
        return super().readline(size)


def refuse(*arguments: object, **options: object) -> NoReturn:
    raise AssertionError("a demo runs offline, and this one reached for the network")


class Unconnected(socket.socket):
    """A socket that reaches nobody: an event loop may still wake itself with a pair of them."""

    connect = connect_ex = bind = sendto = refuse


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", Unconnected)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@cache
def said(*arguments: str) -> str:
    """What the command prints for these arguments, which must end well. Nobody is at the keyboard."""
    out = io.StringIO()
    assert main(arguments, out, io.StringIO()) == 0
    return out.getvalue()


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the traces that ``shown`` writes."""
    return tmp_path_factory.mktemp("traces")


def shown(chapter: Chapter, traces: Path) -> str:
    """What a demo prints. It runs once, and its trace is written beside."""
    return said(chapter.number, "--trace", str(traces / chapter.number))


# --- Each demo --------------------------------------------------------------------------------


@each_chapter
def test_a_demo_prints_what_was_recorded(chapter: Chapter, traces: Path) -> None:
    recorded = RECORDED / f"ch{chapter.number}.txt"
    command = f"PYTHONUTF8=1 python -m chapters {chapter.number} > tests/recorded/{recorded.name}"
    again = f"read what it prints now, and if that is right, record it: {command}"
    assert recorded.exists(), f"nothing is recorded yet; {again}"
    assert shown(chapter, traces) == recorded.read_text(encoding="utf-8"), again


def test_every_recording_has_its_chapter() -> None:
    assert {path.stem for path in RECORDED.iterdir()} == {f"ch{chapter.number}" for chapter in CHAPTERS}


@each_chapter
def test_a_trace_can_be_replayed(chapter: Chapter, traces: Path) -> None:
    shown(chapter, traces)
    for line in (traces / chapter.number).read_text(encoding="utf-8").splitlines():
        step = json.loads(line)
        before, after = control(step["before"]), control(step["after"])
        row = row_taken(before, after)
        again = advance(before, event(step["event"]), Limits(**step["limits"]))
        assert again == after, "the limits given to tell.watch are not those of the loop"
        assert step["row"] == (row.row if row else None)
        assert step["chapter"] == chapter.module


def control(data: dict[str, Any]) -> Control:
    stop = StopReason[data["stop"]] if data["stop"] else None
    return Control(**data | {"state": AgentState[data["state"]], "stop": stop})


def event(data: dict[str, Any]) -> Event:
    stop = StopReason[data["stop"]] if data["stop"] else None
    closed = control(data["closed"]) if data["closed"] else None
    return Event(**data | {"kind": EventKind[data["kind"]], "stop": stop, "closed": closed})


@stepped
def test_stepped_by_nobody_it_tells_the_same_story(chapter: Chapter, traces: Path) -> None:
    lines = said(chapter.number, "--step").splitlines()
    assert [line for line in lines if not _about_enter(line)] == shown(chapter, traces).splitlines()


@stepped
def test_stepped_by_somebody_it_shows_the_same_and_the_rows_in_place_of_the_rounds(
    chapter: Chapter, traces: Path
) -> None:
    out = io.StringIO()
    assert main([chapter.number, "--step"], out, Keyboard("\n" * 1000)) == 0
    lines = [line for line in out.getvalue().splitlines() if not _about_enter(line)]
    story = [line for line in shown(chapter, traces).splitlines() if not _of_a_round(line)]
    assert sorted(lines) == sorted(story)


def _of_a_round(line: str) -> bool:
    return bool(re.match(r"\[.+\] (round \d+: )?[A-Z_]+ -> [A-Z_> -]+( \([\d,]+ tokens so far\))?$", line))


def _about_enter(line: str) -> bool:
    return line.endswith(" [Enter]") or line.endswith("going on without waiting)")


# --- The command ------------------------------------------------------------------------------


def test_the_list_has_every_chapter_in_order_with_its_idea() -> None:
    lines = said().splitlines()[: len(CHAPTERS)]
    assert [line.split()[:2] for line in lines] == [[chapter.number, chapter.name] for chapter in CHAPTERS]
    assert all(line.endswith(chapter.idea) for line, chapter in zip(lines, CHAPTERS, strict=True))
    assert [chapter.number for chapter in CHAPTERS] == sorted(chapter.number for chapter in CHAPTERS)


def test_listing_imports_no_chapter() -> None:
    script = (
        "import sys; from chapters.__main__ import main; main([]);"
        "print([name for name in sys.modules if name.startswith('chapters.ch')], file=sys.stderr)"
    )
    assert python("-c", script).stderr.splitlines()[-1] == "[]"


def test_a_demo_that_reaches_for_the_network_is_caught() -> None:
    for reach in (("localhost", 9), ("::1", 9)):
        with pytest.raises(AssertionError, match="offline"):
            socket.create_connection(reach)
    with pytest.raises(AssertionError, match="offline"):
        socket.socket().connect(("127.0.0.1", 9))


THREE = [Chapter("02", "state_machine", ""), Chapter("09", "state", ""), Chapter("11", "react", "")]


@pytest.mark.parametrize(
    ("wanted", "number"),
    [
        *((wanted, "02") for wanted in ("2", "02", "ch02", "ch02_state_machine", "State-Machine", "machin")),
        *((wanted, "09") for wanted in ("9", "state", "ch09_state.py")),
        *((wanted, "11") for wanted in ("11", "ReAct", "eac")),
    ],
)
def test_a_chapter_is_found_by(wanted: str, number: str) -> None:
    assert find(wanted, THREE).number == number


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ("stat_machin", "there is no chapter 'stat_machin': did you mean state_machine"),
        ("99", "there is no chapter '99': they are 02 to 11, and python -m chapters lists them"),
        ("日本", "there is no chapter '日本': they are 02 to 11"),
        ("stat", "'stat' could be ch02_state_machine or ch09_state: say more of it"),
        ("0", "there is no chapter '0': they are 02 to 11"),
        ("", "could be"),
    ],
)
def test_an_unknown_chapter_is_answered_with_what_is_there(wanted: str, told: str) -> None:
    with pytest.raises(LookupError) as nothing:
        find(wanted, THREE)
    assert told in str(nothing.value)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["stat_machin"], "did you mean state_machine"),
        (["2", "--trace", str(Path(__file__).parent)], "tests"),  # a folder is no file
        (["--step"], "--trace and --step need a chapter to run, or all"),
    ],
)
def test_a_wish_that_cannot_be_granted(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ending:
        main(arguments, io.StringIO())
    assert ending.value.code == 2
    assert told in capsys.readouterr().err


def test_all_shows_every_demo_says_how_each_ended_and_its_trace_names_each_chapter(tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    done = python("-m", "chapters", "all", "--trace", str(file), PYTHONIOENCODING="gbk")
    assert done.returncode == 0 and "北京" in done.stdout
    endings = done.stdout.rpartition("How each ended")[2].splitlines()[2:]
    traced = [json.loads(line)["chapter"] for line in file.read_text(encoding="utf-8").splitlines()]
    assert traced == sorted(traced) and "ch02_state_machine" in traced
    assert [line.split(maxsplit=2) for line in endings] == [
        [chapter.number, chapter.name, "ended well"] for chapter in CHAPTERS
    ]


def test_all_goes_on_when_a_demo_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(tell: Telling) -> None:
        raise ValueError("two\nlines")

    stubs = [("ch98_fails", fails), ("ch99_works", lambda tell: tell("still here"))]
    for name, demo in stubs:
        module = types.ModuleType(name)
        module.demo = demo  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, f"chapters.{name}", module)
    chapters = [Chapter("98", "fails", "It fails."), Chapter("99", "works", "It works.")]
    monkeypatch.setattr("chapters.__main__.find_chapters", lambda: chapters)
    out = io.StringIO()
    assert main(["all"], out) == 1
    assert "still here" in out.getvalue()
    endings = out.getvalue().splitlines()[-2:]
    assert endings == ["98  fails  raised ValueError: two lines", "99  works  ended well"]


def test_enter_is_waited_for_at_each_transition() -> None:
    keys, out = Keyboard("\n" * 100), io.StringIO()
    assert main(["state_machine", "--step"], out, keys) == 0
    assert keys.asked == out.getvalue().count("[Enter]") == 6
    assert f"row 3: REASONING -> ACTING, {TRANSITIONS[2].guard} [Enter]" in out.getvalue()


def test_each_row_is_shown_with_what_it_brought_before_enter_is_waited_for() -> None:
    out = io.StringIO()
    assert main(["react", "--step"], out, Keyboard("\n" * 100)) == 0
    lines = [line for line in out.getvalue().split("Reasoning without")[1].splitlines() if line]
    words = [line.split()[0] if line.startswith("    ") else line for line in lines]
    start = next(place for place, word in enumerate(words) if word.startswith("[react] row 2"))
    assert [re.sub(r": .*", "", word) for word in words[start : start + 8]] == [
        "[react] row 2",
        "says",
        "Action:",
        "does",
        "[react] row 3",
        "[react] row 5",
        "sees",
        "[react] row 6",
    ]


@pytest.mark.parametrize("wish", [["--step"], ["--trace", os.devnull]])
def test_a_chapter_that_watches_no_loop_says_so(wish: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["3", *wish], io.StringIO(), io.StringIO()) == 0
    assert capsys.readouterr().err == "ch03_it_must_stop watches no loop: nothing to step through or trace\n"
    assert main(["2", *wish], io.StringIO(), io.StringIO()) == 0
    assert not capsys.readouterr().err


def test_nobody_at_the_keyboard_is_said_once() -> None:
    keys, out = Keyboard("\n"), io.StringIO()
    assert main(["state_machine", "--step"], out, keys) == 0
    assert keys.asked == 2
    assert out.getvalue().count("going on without waiting") == 1


# --- Consoles ---------------------------------------------------------------------------------


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    encoding = environment.setdefault("PYTHONIOENCODING", "utf-8")
    return subprocess.run(
        [sys.executable, "-B", *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding=encoding,
        check=False,
    )


@pytest.mark.parametrize("encoding", ["gbk", "cp1252", "ascii"])
def test_U01_any_console_shows_a_demo(encoding: str) -> None:
    done = python("-m", "chapters", "react", PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("北京" in done.stdout) == (encoding == "gbk")


@pytest.mark.parametrize("wish", [["all"], ["8"], ["10"], ["12", "--step"], ["all", "--step"]])
def test_a_reader_may_stop_reading(wish: list[str]) -> None:
    """As in ``python -m chapters all | head -1``, and where the first words are those of a watched loop."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-B", "-m", "chapters", *wish]
    done = subprocess.run(command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert done.stderr == b""


class Pipe(io.StringIO):
    """Breaks when ``text`` would be written."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def write(self, text: str, /) -> int:
        if self.text in text:
            raise BrokenPipeError(32, "Broken pipe")
        return super().write(text)


@pytest.mark.parametrize("chapter", ["8", "10", "all"])  # chapter 10 has a loop inside of a loop
def test_a_pipe_that_breaks_inside_a_watched_step_ends_quietly(
    chapter: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pipe, elsewhere = Pipe(" round 1: "), os.open(os.devnull, os.O_WRONLY)
    monkeypatch.setattr(pipe, "fileno", lambda: elsewhere)
    monkeypatch.setattr(sys, "stdout", pipe)
    monkeypatch.setattr(sys, "argv", ["chapters", chapter])
    assert _main() == 1
    os.close(elsewhere)
    assert " round 1: " not in pipe.getvalue() and "How each ended" not in pipe.getvalue()
    assert capfd.readouterr().err == ""


def test_a_hook_that_fails_for_another_reason_is_not_hushed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks() -> int:
        loop = AgentLoop(lambda context: 1 // 0)
        drive(loop.run("北京"), World(inline=True))
        return 0

    monkeypatch.setattr("chapters.__main__.main", breaks)
    with pytest.raises(LoopError):
        _main()


def test_only_a_terminal_is_shown_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    plain, coloured = io.StringIO(), Terminal()
    main(["2"], plain)
    main(["2"], coloured)
    assert "\x1b" not in plain.getvalue()
    assert "\x1b" in coloured.getvalue()
    assert re.sub(r"\x1b\[\d+m", "", coloured.getvalue()) == plain.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    respectful = Terminal()
    main(["2"], respectful)
    assert respectful.getvalue() == plain.getvalue()


# --- What is drawn from the table -------------------------------------------------------------


def test_the_diagram_has_the_edges_of_the_table_and_no_others() -> None:
    assert said("--mermaid") == mermaid() + "\n"
    drawn = re.findall(r"(?m)^    (\w+) --> (\w+): (\d)", mermaid())
    assert drawn == [
        (source.name, row.target.name, str(row.row)) for row in TRANSITIONS for source in row.sources
    ]


def test_the_printed_table_has_eight_rows_with_the_words_of_the_guards() -> None:
    lines = markdown().splitlines()[2:]
    assert len(lines) == 8
    assert all(row.guard in line for row, line in zip(TRANSITIONS, lines, strict=True))


# --- The trace --------------------------------------------------------------------------------


def lines(step: Step) -> list[str]:
    return [line for _, line in trace("name", step)]


def test_a_trace_says_what_was_said_done_and_seen() -> None:
    before = Control(AgentState.WAITING_FOR_OBSERVATION, rounds=2, pending=3)
    unreadable = Observation("Write Action: name(...)", False, Kind.MALFORMED)
    turn = Turn(
        "Thought: two\n\nAction: both",
        (ToolCall("look", {"at": "北京"}), ToolCall("fail", {}), ToolCall("", {}, problem=unreadable)),
        (Observation("Sunny"), Observation("30 s", False, Kind.TIMEOUT), unreadable),
        ("change direction",),
    )
    after = Control(AgentState.REASONING, rounds=3, tokens=1234)
    assert lines(Step(before, Event(EventKind.OBSERVED, calls=3), after, turn)) == [
        "[name] round 2: REASONING -> ACTING -> WAITING_FOR_OBSERVATION -> REASONING (1,234 tokens so far)",
        "    says  Thought: two",
        "          Action: both",
        "    does  look(at='北京')",
        "    sees  Sunny",
        "    does  fail()",
        "    sees  TIMEOUT: 30 s",
        "    sees  MALFORMED: Write Action: name(...)",
        "    told  change direction",
    ]


@pytest.mark.parametrize("state", LIVE)
def test_a_trace_says_how_a_run_ended_wherever_it_stood(state: AgentState) -> None:
    before = Control(state, rounds=1, model_calls=1)
    after = advance(before, Event(EventKind.INTERRUPTED), Limits())
    assert lines(Step(before, Event(EventKind.INTERRUPTED), after)) == [
        f"[name] round 1: {state.name} -> TERMINATED",
        "[name] HUMAN: a person stopped the run (1 round, 1 model call, 0 tool calls)",
    ]


def test_a_babbling_model_does_not_fill_the_screen() -> None:
    turn = Turn("word " * 1000 + "\nline" * 1000)
    after = Control(AgentState.TERMINATED, rounds=1, stop=StopReason.FINAL_ANSWER)
    shown = lines(Step(Control(AgentState.REASONING, rounds=1), Event(EventKind.ANSWER_GIVEN), after, turn))
    assert len(shown) < 15 and all(len(line) <= 110 for line in shown)
    assert any("more lines" in line for line in shown)


def test_any_text_can_be_traced(tmp_path: Path) -> None:
    """Half a surrogate pair, a value of no JSON type: a model may write anything."""
    call = ToolCall("look", {"half": "\ud83d", "set": {1}, "deep": [{"a": None}]})
    turn = Turn("\udfff", (call,))
    step = Step(Control(), Event(EventKind.TASK_ARRIVED), Control(AgentState.PERCEIVING), turn)
    path = tmp_path / "trace.jsonl"
    with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
        steps_written_to(file, "ch00")("name", Limits(), step)
    read = json.loads(path.read_text(encoding="utf-8"))["turn"]
    assert read["thought"] == "\udfff"
    assert read["calls"][0]["arguments"] == {"half": "\ud83d", "set": "{1}", "deep": [{"a": None}]}


def test_enter_without_a_keyboard_goes_on() -> None:
    out, keys = io.StringIO(), Keyboard()
    tell = Telling(out, pace=Pace(keys))
    watch = tell.watch("name")
    step = Step(Control(), Event(EventKind.TASK_ARRIVED), Control(AgentState.PERCEIVING))
    watch(step)
    watch(step)
    assert keys.asked == 1 and len(out.getvalue().splitlines()) == 2


def test_a_round_that_is_broken_off_shows_its_rows_too() -> None:
    out = io.StringIO()
    watch = Telling(out, pace=Pace(io.StringIO("\n" * 9))).watch("name")
    control = Control(AgentState.REASONING, rounds=1)
    for kind in (EventKind.ACTION_CHOSEN, EventKind.SUBMITTED, EventKind.INTERRUPTED):
        happened = Event(kind, calls=1)
        before, control = control, advance(control, happened, Limits())
        watch(Step(before, happened, control))
    shown = out.getvalue().splitlines()
    assert [line[:12] for line in shown] == ["[name] row 3", "[name] row 5", "[name] HUMAN", "[name] row 8"]


def test_columns_stand_straight_for_chinese_too() -> None:
    assert columns([("城市", "weather"), ("a", 1)]) == ["城市  weather", "a     1"]
    assert columns([]) == []


@pytest.mark.parametrize(
    ("text", "shown"), [("a\n b", "a b"), ("x" * 10, "x" * 10), ("x" * 11, "x" * 9 + "…"), ("", "")]
)
def test_a_text_is_told_on_one_line(text: str, shown: str) -> None:
    assert on_one_line(text, 10) == shown
