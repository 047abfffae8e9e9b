"""The README says nothing that does not hold: its listings run, and print what it shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from agentloop import Limits, worst_case_steps
from chapters.__main__ import find_chapters
from chapters.ch02_state_machine import markdown, mermaid
from tests.workbench import CHECKS

ROOT = Path(__file__).parent.parent
CHAPTERS = find_chapters()
README = (ROOT / "README.md").read_text(encoding="utf-8")


class Block(NamedTuple):
    """A fenced block: its language, its text, and the last line before it."""

    language: str
    text: str
    before: str


def blocks() -> list[Block]:
    fenced = re.finditer(r"(?:^([^\n]*)\n)?^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    return [Block(found[2], found[3], found[1] or "") for found in fenced]


def commands() -> list[tuple[str, str]]:
    """Each command that the README shows, with the output that it shows after it."""
    shown = [block.text for block in blocks() if block.language == "console"]
    parts = [part for text in shown for part in re.split(r"^\$ ", text, flags=re.MULTILINE) if part]
    return [(command, output) for command, _, output in (part.partition("\n") for part in parts)]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with the README's listings in it, as a reader would have it."""
    folder = tmp_path_factory.mktemp("readme") / "project"
    leave_out = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis")
    shutil.copytree(ROOT, folder, ignore=leave_out)
    for block in blocks():
        if block.language == "python":
            name = re.match(r"# file: (\w+\.py)\n", block.text)
            assert name, "a listing says which file it is in its first line"
            (folder / name[1]).write_text(block.text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(("command", "output"), commands(), ids=[command for command, _ in commands()])
def test_each_command_prints_what_the_readme_shows(clone: Path, command: str, output: str) -> None:
    python, *arguments = command.split()
    assert python in ("python3", ".venv/bin/python"), "the README uses what its first two commands set up"
    environment = {**os.environ, "PYTHONUTF8": "1", "NO_COLOR": "1", "COLUMNS": "80"}
    ran = subprocess.run(
        [sys.executable, *arguments],
        cwd=clone,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert untimed(ran.stdout) == untimed(output), ran.stderr


def untimed(text: str) -> str:
    """How long pytest took differs each time."""
    return re.sub(r" in \d+\.\d+s( \([\d:]+\))?", "", text).rstrip()


def test_every_listing_is_run_by_a_command() -> None:
    named = {name for block in blocks() for name in re.findall(r"# file: (\w+\.py)", block.text)}
    ran = {name for command, _ in commands() for name in re.findall(r"(\w+\.py)", command)}
    assert named == ran


def part(marker: str) -> str:
    """What stands between a marker and the next heading or marker."""
    after = README.split(f"<!-- {marker} -->\n", 1)[1]
    return re.split(r"^(?:<!-- |#|Both are)", after, maxsplit=1, flags=re.MULTILINE)[0].strip()


def test_the_table_is_drawn_from_the_transitions() -> None:
    assert part("table") == markdown().strip()


def test_the_diagram_is_drawn_from_the_transitions() -> None:
    assert part("diagram") == f"```mermaid\n{mermaid().strip()}\n```"


def test_the_chapter_table_lists_every_chapter() -> None:
    shown = part("chapters").split("\n\n")[0]
    link = "| {0.number} | [{0.name}](chapters/{0.module}.py) | {0.idea} |"
    rows = [link.format(each) for each in CHAPTERS]
    assert shown.splitlines()[2:] == rows


def test_the_worst_case_is_the_machines() -> None:
    assert "2 + 3 * rounds + effects" in README
    limits = Limits(rounds=7, effects=11)
    assert worst_case_steps(limits) == 2 + 3 * limits.rounds + limits.effects


def test_what_the_workbench_takes_is_listed() -> None:
    named = re.findall(r"`(\w+)`", part("checks"))
    assert sorted(named) == sorted(CHECKS)


def test_every_file_that_the_readme_names_is_there() -> None:
    named = re.findall(r"`((?:tests|chapters|paradigms|fake_llm|benchmarks)/[\w./]*|\w+\.py)`", README)
    missing = [name for name in named if not (ROOT / name).exists()]
    assert named and not missing
