"""The map from the articles: no idea is missing, and each place that it names is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
IDS = [f"A-{number}" for number in range(1, 147)] + [f"B-{number}" for number in range(1, 63)]


class Row(NamedTuple):
    """One idea of an article, as ARTICLES.md lists it."""

    id: str
    chinese: str
    english: str
    shown_in: str

    @property
    def files(self) -> list[str]:
        return re.findall(r"\]\(([^)]+)\)", self.shown_in)

    @property
    def pending(self) -> list[str]:
        return re.findall(r"pending \(chapter (\d\d)\)", self.shown_in)


def rows() -> list[Row]:
    text = (ROOT / "ARTICLES.md").read_text(encoding="utf-8")
    return [Row(*found) for found in re.findall(r"(?m)^\| ([AB]-\d+) \| (.+) \| (.+) \| (.+) \|$", text)]


def ids_named(text: str) -> Iterator[str]:
    """Every id in ``text``, those inside a range such as A-19..A-45 too."""
    for letter, first, last in re.findall(r"\b([AB])-(\d+)(?:\.\.\1-(\d+))?", text):
        yield from (f"{letter}-{number}" for number in range(int(first), int(last or first) + 1))


def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def test_every_idea_is_there_once_in_the_order_of_the_articles() -> None:
    assert len(IDS) == 146 + 62
    assert [row.id for row in rows()] == IDS


def test_every_idea_has_a_place() -> None:
    place = re.compile(r"\[[^]]+\]\([^)]+\)|pending \(chapter \d\d\)")
    wrong = [row for row in rows() if not all(map(place.fullmatch, row.shown_in.split(", ")))]
    assert wrong == [], "a place is [chapter 02](chapters/ch02_state_machine.py) or: pending (chapter 08)"


def test_every_place_exists_and_names_what_it_shows() -> None:
    places = {file: [row.id for row in rows() if file in row.files] for row in rows() for file in row.files}
    assert [file for file in places if not (ROOT / file).exists()] == [], "these are not written yet"
    unnamed = {file: set(ids) - set(ids_named(docstring(ROOT / file))) for file, ids in places.items()}
    assert {file: sorted(ids) for file, ids in unnamed.items() if ids} == {}, "docstrings leave these out"


def test_the_number_of_a_chapter_is_that_of_its_file() -> None:
    for row in rows():
        for number, file in re.findall(r"\[chapter (\d\d)\]\(chapters/ch(\d\d)", row.shown_in):
            assert number == file, row


def test_a_chapter_that_is_written_is_not_pending() -> None:
    written = {path.name[2:4] for path in (ROOT / "chapters").glob("ch[0-9][0-9]_*.py")}
    assert [row for row in rows() if written & set(row.pending)] == []


def test_what_is_still_pending() -> None:
    waiting = [f"{row.id} ({', '.join(row.pending)})" for row in rows() if row.pending]
    if waiting:
        pytest.skip(f"{len(waiting)} ideas wait for these chapters: {', '.join(waiting)}")


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("Covers A-19..A-22 and B-3.", ["A-19", "A-20", "A-21", "A-22", "B-3"]),
        ("EA02, EB10 and A-1", ["A-1"]),
        ("nothing", []),
    ],
)
def test_ids_are_read_from_text(text: str, ids: list[str]) -> None:
    assert list(ids_named(text)) == ids
