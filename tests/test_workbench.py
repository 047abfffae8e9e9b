"""The workbench, used as a reader would: ``pytest --impl`` in a process of its own."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.workbench import CHECKS, CutOff, load, run_with_patience

ROOT = Path(__file__).parent.parent
#: A machine of one's own that begins with ours.
LIFTED = "from agentloop import EventKind, TERMINATED, advance as ours\n"


def put_on_workbench(folder: Path, source: str, asked: str, *more: str) -> SimpleNamespace:
    """Write ``source`` to a file and run ``pytest --impl`` on it: the exit code, and what was printed."""
    path = folder / "mine.py"
    path.write_text(source, encoding="utf-8")
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no"]
    done = subprocess.run(
        [*command, "--impl", asked.format(path=path), *more],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    return SimpleNamespace(code=done.returncode, text=done.stdout + done.stderr)


def test_a_machine_that_forgets_is_told_the_shortest_story_and_no_traceback(tmp_path: Path) -> None:
    source = LIFTED + (
        "def advance(control, event, limits):\n"
        "    after = ours(control, event, limits)\n"
        "    observed = event.kind is EventKind.OBSERVED and not after.stop\n"
        "    return after._replace(rounds=1) if observed else after\n"
    )
    found = put_on_workbench(tmp_path, source, "machine={path}:advance")
    assert found.code == pytest.ExitCode.TESTS_FAILED
    story = found.text[found.text.index("Broken promise: Every accepted event") :]
    assert story.splitlines()[2:8] == [
        "  event 1: TASK_ARRIVED: IDLE -> PERCEIVING",
        "  event 2: PERCEIVED: PERCEIVING -> REASONING",
        "  event 3: ACTION_CHOSEN (calls=1): REASONING -> ACTING",
        "  event 4: SUBMITTED (calls=1): ACTING -> WAITING_FOR_OBSERVATION",
        "  event 5: OBSERVED (calls=1): WAITING_FOR_OBSERVATION -> REASONING",
        "event 5: 5 steps were left before OBSERVED, 7 after it: a run may go on for ever",
    ]
    assert "Traceback" not in found.text and "check_machine.py" not in found.text
    assert "2 failed, 16 passed" in found.text, "each promise is a test of its own, and nothing else is run"


def test_an_end_that_does_not_hold_is_told_in_one_sentence(tmp_path: Path) -> None:
    source = LIFTED + (
        "def advance(control, event, limits):\n"
        "    if control.state is TERMINATED and event.kind is EventKind.MODEL_CALL:\n"
        "        return control\n"
        "    return ours(control, event, limits)\n"
    )
    found = put_on_workbench(tmp_path, source, "machine={path}:advance", "-x")
    assert "MODEL_CALL accepted after the run had ended" in found.text


def test_a_machine_that_breaks_down_is_told_so(tmp_path: Path) -> None:
    source = "def advance(control, event, limits):\n    return {}['state']\n"
    found = put_on_workbench(tmp_path, source, "machine={path}:advance", "-x")
    assert found.code == pytest.ExitCode.TESTS_FAILED
    assert "event 1: the machine broke down with KeyError: 'state'" in found.text


def test_what_is_no_control_is_told_so(tmp_path: Path) -> None:
    found = put_on_workbench(tmp_path, "def advance(*all): pass\n", "machine={path}:advance", "-x")
    assert "it returned None, and a machine returns a Control" in found.text


def test_code_that_never_returns_is_cut_off(tmp_path: Path) -> None:
    source = "import threading\ndef advance(*all):\n    threading.Event().wait()\n"
    found = put_on_workbench(tmp_path, source, "machine={path}:advance", "--impl-seconds", "0.01")
    assert found.code == pytest.ExitCode.TESTS_FAILED
    assert "CUT OFF: machine=" in found.text and "had not returned after 0.01 s" in found.text
    assert "1 failed, 17 skipped" in found.text, "it is waited for once, not once a promise"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("machine=gone.py:advance", "there is no file"),
        ("machine={path}:advanced", "mine.py has no 'advanced'; it has advance, number"),
        ("machine={path}:number", "number is 3, and what is checked must be callable"),
        ("engine={path}:advance", "there is no check named 'engine'; there are "),
        ("machine={path}", "it does not have the form --impl NAME=PATH:ATTRIBUTE, for example"),
        ("{path}:advance", "it does not have the form"),
        ("machine={path}:a-b", "it does not have the form"),
    ],
)
def test_what_cannot_be_found_is_a_usage_error(tmp_path: Path, asked: str, says: str) -> None:
    found = put_on_workbench(tmp_path, "def advance(*all): pass\nnumber = 3\n", asked)
    assert found.code == pytest.ExitCode.USAGE_ERROR
    assert says in found.text
    assert "Traceback" not in found.text


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def advance(:\n", "mine.py cannot be imported: SyntaxError"),
        ("import no_such_module\n", "mine.py cannot be imported: ModuleNotFoundError"),
        ("raise SystemExit(3)\n", "mine.py cannot be imported: SystemExit: 3"),
    ],
)
def test_a_file_that_cannot_be_imported_is_a_usage_error(tmp_path: Path, source: str, says: str) -> None:
    found = put_on_workbench(tmp_path, source, "machine={path}:advance")
    assert found.code == pytest.ExitCode.USAGE_ERROR
    assert says in found.text
    assert "Traceback" not in found.text


def test_a_file_whose_import_never_ends_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import threading\nthreading.Event().wait()\n", encoding="utf-8")
    with pytest.raises(pytest.UsageError, match="importing mine.py had not ended after 0.01 s"):
        load("machine=mine.py:advance", tmp_path, patience=0.01)


def test_ours_can_be_put_there_too(tmp_path: Path) -> None:
    found = put_on_workbench(tmp_path, "", f"machine={ROOT / 'agentloop.py'}:advance")
    assert found.code == pytest.ExitCode.OK, found.text


def test_patience_hands_over_what_the_work_came_to() -> None:
    assert run_with_patience(lambda: 26, 60) == 26
    with pytest.raises(ZeroDivisionError):
        run_with_patience(lambda: 1 / 0, 60)


def test_patience_ends() -> None:
    with pytest.raises(CutOff):
        run_with_patience(threading.Event().wait, 0.0)


@pytest.mark.parametrize("check", CHECKS)
def test_each_check_has_named_promises(check: str) -> None:
    promises = importlib.import_module(CHECKS[check]).PROMISES
    assert promises and all(callable(promise) for promise in promises.values())
