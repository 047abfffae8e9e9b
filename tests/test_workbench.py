"""The workbench: what a reader is told about a version of their own."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.workbench import CHECKS, CutOff, Implementation, load, promises, run_with_patience, verdict

ROOT = Path(__file__).parent.parent
#: A machine of one's own that begins with ours.
LIFTED = "from agentloop import EventKind, TERMINATED, advance as ours\n"


def write(folder: Path, source: str) -> None:
    (folder / "mine.py").write_text(source, encoding="utf-8")


def put_on_workbench(folder: Path, check: str, source: str) -> Implementation:
    """What ``source`` defines under the name ``mine``, as ``--impl`` finds it."""
    write(folder, source)
    return load(f"{check}=mine.py:mine", folder)


# --- As a reader uses it: ``pytest --impl`` in a process of its own -----------------------------


def pytest_impl(*asked: str) -> SimpleNamespace:
    """Run ``pytest --impl`` for each thing asked: the exit code, and what was printed."""
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no"]
    for one in asked:
        command += ["--impl", one]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    return SimpleNamespace(code=done.returncode, text=done.stdout + done.stderr)


def test_each_promise_is_a_test_and_nothing_but_stories_is_printed(tmp_path: Path) -> None:
    write(
        tmp_path,
        "from agentloop import Finish\n"
        "def all_is_an_answer(reply, tools):\n"
        "    return Finish(reply.text, reply.text)\n"
        "def all_but_the_latest(prompt):\n"
        "    return prompt.turns[:-1]\n",
    )
    found = pytest_impl(
        f"view={tmp_path}/mine.py:all_but_the_latest",
        f"reader={tmp_path}/mine.py:all_is_an_answer",
        "view=paradigms/prompt.py:whole_history",
    )
    assert found.code == pytest.ExitCode.TESTS_FAILED
    views, readers = len(promises("view")), len(promises("reader"))
    assert f"{1 + readers} failed, {2 * views - 1} passed" in found.text, "each promise, and nothing else"
    assert "mine.py: the_latest_turn_is_shown __" in found.text
    assert "after 1 turns, of which it shows []: the latest is not among them" in found.text
    for ours in ("Traceback", "check_view.py", "ExceptionGroup", "Failing test case", "Explanation"):
        assert ours not in found.text


def test_what_cannot_be_found_is_said_in_a_line(tmp_path: Path) -> None:
    found = pytest_impl(f"machine={tmp_path}/gone.py:advance")
    assert found.code == pytest.ExitCode.USAGE_ERROR
    assert f"ERROR: --impl machine={tmp_path}/gone.py:advance: there is no file" in found.text
    assert "Traceback" not in found.text


# --- Finding what was asked for -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("machine=gone.py:advance", "there is no file"),
        ("machine=mine.py:advanced", "mine.py has no 'advanced'; it has advance, number"),
        ("machine=mine.py:number", "number is 3, and what is checked must be callable"),
        ("engine=mine.py:advance", "there is no check named 'engine'; there are "),
        ("machine=mine.py", "it does not have the form --impl NAME=PATH:ATTRIBUTE, for example"),
        ("mine.py:advance", "it does not have the form"),
        ("machine=mine.py:a-b", "it does not have the form"),
    ],
)
def test_what_cannot_be_found_is_a_usage_error(tmp_path: Path, asked: str, says: str) -> None:
    write(tmp_path, "def advance(*all): pass\nnumber = 3\n")
    with pytest.raises(pytest.UsageError, match=re.escape(f"--impl {asked}: ") + ".*" + re.escape(says)):
        load(asked, tmp_path)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def advance(:\n", "mine.py cannot be imported: SyntaxError"),
        ("import no_such_module\n", "mine.py cannot be imported: ModuleNotFoundError"),
        ("raise SystemExit(3)\n", "mine.py cannot be imported: SystemExit: 3"),
    ],
)
def test_a_file_that_cannot_be_imported_is_a_usage_error(tmp_path: Path, source: str, says: str) -> None:
    write(tmp_path, source)
    with pytest.raises(pytest.UsageError, match=says):
        load("machine=mine.py:advance", tmp_path)


def test_a_file_whose_import_never_ends_is_cut_off(tmp_path: Path) -> None:
    write(tmp_path, "import threading\nthreading.Event().wait()\n")
    with pytest.raises(pytest.UsageError, match="importing mine.py had not ended after 0.01 s"):
        load("machine=mine.py:advance", tmp_path, patience=0.01)


def test_a_file_of_ours_is_not_imported_twice() -> None:
    from agentloop import advance

    assert load("machine=agentloop.py:advance", ROOT).thing is advance


# --- The stories --------------------------------------------------------------------------------


def test_what_is_kept_has_no_story() -> None:
    ours = load("view=paradigms/prompt.py:whole_history", ROOT)
    assert [verdict(ours, promise) for promise in promises("view")] == [None] * len(promises("view"))


def test_a_machine_that_forgets_is_told_the_shortest_story(tmp_path: Path) -> None:
    forgetful = put_on_workbench(
        tmp_path,
        "machine",
        LIFTED + "def mine(control, event, limits):\n"
        "    after = ours(control, event, limits)\n"
        "    observed = event.kind is EventKind.OBSERVED and not after.stop\n"
        "    return after._replace(rounds=1) if observed else after\n",
    )
    story = verdict(forgetful, "rank_falls")
    assert story is not None and story.startswith("Broken promise: Every accepted event")
    assert story.splitlines()[2:] == [
        "  event 1: TASK_ARRIVED: IDLE -> PERCEIVING",
        "  event 2: PERCEIVED: PERCEIVING -> REASONING",
        "  event 3: ACTION_CHOSEN (calls=1): REASONING -> ACTING",
        "  event 4: SUBMITTED (calls=1): ACTING -> WAITING_FOR_OBSERVATION",
        "  event 5: OBSERVED (calls=1): WAITING_FOR_OBSERVATION -> REASONING",
        "event 5: 8 steps were left before OBSERVED, 10 after it: a run may go on for ever",
    ]


@pytest.mark.parametrize(
    ("source", "promise", "says"),
    [
        (
            LIFTED + "def mine(control, event, limits):\n"
            "    if control.state is TERMINATED and event.kind is EventKind.MODEL_CALL:\n"
            "        return control\n"
            "    return ours(control, event, limits)\n",
            "termination_absorbs",
            "MODEL_CALL accepted after the run had ended",
        ),
        (
            "def mine(control, event, limits):\n    return {}['state']\n",
            "it_answers_or_refuses",
            "event 1: the machine broke down with KeyError: 'state'",
        ),
        (
            "def mine(*all): pass\n",
            "it_answers_or_refuses",
            "it returned None, and a machine returns a Control",
        ),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(tmp_path: Path, source: str, promise: str, says: str) -> None:
    story = verdict(put_on_workbench(tmp_path, "machine", source), promise)
    assert story is not None and says in story


def test_an_exception_is_told_with_what_was_given_and_the_line_it_came_from(tmp_path: Path) -> None:
    view = put_on_workbench(
        tmp_path,
        "view",
        "def mine(prompt, count=3):\n"
        "    return chosen(prompt)\n"
        "def chosen(prompt):\n"
        "    return prompt.turn[-3:]\n",
    )
    story = verdict(view, "the_latest_turn_is_shown")
    assert story is not None
    assert story.splitlines()[1:] == [
        "mine.py broke down with AttributeError: 'Prompt' object has no attribute 'turn'",
        "  in mine(prompt=<paradigms.prompt.Prompt>, count=3)",
        "  mine.py, line 4: return prompt.turn[-3:]",
    ]


def test_an_assertion_of_the_readers_own_is_told_as_theirs(tmp_path: Path) -> None:
    view = put_on_workbench(tmp_path, "view", "def mine(prompt):\n    assert prompt.turns, 'no turns'\n")
    story = verdict(view, "it_shows_blocks")
    assert story is not None
    assert story.splitlines()[1] == "mine.py broke down with AssertionError: no turns"
    assert story.splitlines()[-1] == "  mine.py, line 2: assert prompt.turns, 'no turns'"


def test_an_exception_that_a_promise_tells_of_comes_with_its_line_too(tmp_path: Path) -> None:
    parser = put_on_workbench(tmp_path, "parser", "def mine(text, tools):\n    return text.index('Action')\n")
    story = verdict(parser, "it_never_breaks_down")
    assert story is not None
    assert story.splitlines()[1:] == [
        "for the reply",
        "",
        "    ''",
        "",
        "expected a decision",
        "got      an exception, ValueError: substring not found",
        "  mine.py, line 2: return text.index('Action')",
    ]


def test_what_does_not_fit_is_told_with_what_the_promise_does(tmp_path: Path) -> None:
    view = put_on_workbench(tmp_path, "view", "def mine(): pass\n")
    story = verdict(view, "it_shows_blocks")
    assert story is not None
    assert story.splitlines()[1:] == [
        "mine.py does not fit: TypeError: mine() takes 0 positional arguments but 1 was given",
        "  where the promise says: yield Shown(length, prompt, tuple(_settled(view(prompt), length)))",
    ]


def test_what_does_not_do_the_same_again_is_told_so(tmp_path: Path) -> None:
    moody = put_on_workbench(
        tmp_path,
        "parser",
        "from paradigms.text_protocol import parse\n"
        "calls = []\n"
        "def mine(text, tools):\n"
        "    calls.append(text)\n"
        "    if len(calls) == 7:\n"
        "        raise ValueError('not today')\n"
        "    return parse(text, tools)\n",
    )
    story = verdict(moody, "it_never_breaks_down")
    assert story is not None
    assert "mine.py does not do the same again when it is given the same. The first time:" in story
    assert "got      an exception, ValueError: not today" in story


def test_a_long_story_is_cut(tmp_path: Path) -> None:
    source = "def mine(text, tools):\n    raise ValueError('x' * 10_000 + '\\n' * 100)\n"
    story = verdict(put_on_workbench(tmp_path, "parser", source), "long_replies_are_read")
    assert story is not None and len(story) < 2_000 and len(story.splitlines()) <= 40


def test_code_that_never_returns_is_cut_off_where_it_stands(tmp_path: Path) -> None:
    view = put_on_workbench(
        tmp_path, "view", "import threading\ndef mine(prompt):\n    threading.Event().wait()\n"
    )
    story = verdict(view, "it_shows_blocks", patience=0.01)
    assert story is not None and view.hangs, "it is waited for once, and not once a promise"
    assert "CUT OFF: view=mine.py:mine had not returned after 0.01 s" in story
    assert story.endswith("  mine.py, line 3: threading.Event().wait()")


def test_each_promise_of_a_driver_says_what_it_means() -> None:
    for name, promise in promises("driver").items():
        assert promise.__doc__ and promise.__doc__ != type(promise).__doc__, name


# --- Its own parts ------------------------------------------------------------------------------


def test_patience_hands_over_what_the_work_came_to() -> None:
    assert run_with_patience(lambda: 26, 60) == 26
    with pytest.raises(ZeroDivisionError):
        run_with_patience(lambda: 1 / 0, 60)


def test_patience_ends() -> None:
    with pytest.raises(CutOff):
        run_with_patience(threading.Event().wait, 0.0)


@pytest.mark.parametrize("check", CHECKS)
def test_each_check_has_named_promises(check: str) -> None:
    assert promises(check) and all(callable(promise) for promise in promises(check).values())


#: What the exercises of the chapters put on the workbench, such as ``loop=my_loop.py:MyLoop``.
EXERCISES = {
    asked
    for path in (ROOT / "chapters").glob("ch*.py")
    for asked in re.findall(r"--impl (\w+=[\w./]+:\w+)", path.read_text(encoding="utf-8"))
}


@pytest.mark.parametrize("asked", sorted(EXERCISES))
def test_what_an_exercise_asks_for_can_be_put_on_the_workbench(asked: str) -> None:
    check, path = re.split("[=:]", asked)[:2]
    assert check in CHECKS
    if path.startswith(("chapters/", "tests/")):  # any other is the reader's, there or not
        assert load(asked, ROOT)
