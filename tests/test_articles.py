"""The map from the articles: no idea or erratum is missing, each place is there, each id is explained."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
IDS = [f"A-{number}" for number in range(1, 147)] + [f"B-{number}" for number in range(1, 63)]
#: How many errata there are: of article A, of article B, of one against the other, of what is left out.
ERRATA = {"EA": 61, "EB": 17, "EX": 2, "EC": 1}
ERRATUM = r"(E[ABXC])(\d\d)"
CASE = r"[CKLMPRTUX]\d\d"


class Row(NamedTuple):
    """One idea of an article or one erratum, as ARTICLES.md lists it."""

    id: str
    words: str
    shown_in: str

    @property
    def files(self) -> list[str]:
        return re.findall(r"\]\(([^)]+)\)", self.shown_in)

    @property
    def pending(self) -> list[str]:
        return re.findall(r"pending \(chapter (\d\d)\)", self.shown_in)


def articles() -> str:
    return (ROOT / "ARTICLES.md").read_text(encoding="utf-8")


def rows() -> list[Row]:
    """The ideas."""
    return [Row(*found) for found in re.findall(r"(?m)^\| ([AB]-\d+) \| (.+ \| .+) \| (.+) \|$", articles())]


def errata() -> list[Row]:
    line = r"(?m)^\| (E[ABXC]\d\d) \| (.+ \| .+ \| .+) \| (.+) \|$"
    return [Row(*found) for found in re.findall(line, articles())]


def cases() -> list[str]:
    """The ids of the cases that are explained, in their order."""
    return re.findall(rf"(?m)^\| ({CASE}) \| .+ \|$", articles())


def ids_named(text: str) -> Iterator[str]:
    """Every id in ``text``, those inside a range such as A-19..A-45 too."""
    for letter, first, last in re.findall(r"\b([AB])-(\d+)(?:\.\.\1-(\d+))?", text):
        yield from (f"{letter}-{number}" for number in range(int(first), int(last or first) + 1))


def errata_named(text: str) -> Iterator[str]:
    """Every erratum in ``text``: alone, in a test's name, and inside a range such as EA26..EA29."""
    for kind, first, last in re.findall(rf"(?<![A-Za-z0-9]){ERRATUM}(?!\d)(?:(?:\.\.| to )\1(\d\d))?", text):
        yield from (f"{kind}{number:02}" for number in range(int(first), int(last or first) + 1))


def cases_named(text: str) -> list[str]:
    return re.findall(rf"(?<![A-Za-z0-9])({CASE})(?![A-Za-z0-9])", text)


def readable_files() -> list[Path]:
    """Every file in which a learner can meet an id: code, and what demos printed."""
    folders = ("chapters", "paradigms", "fake_llm", "benchmarks", "tests")
    inside = (path for folder in folders for path in sorted((ROOT / folder).rglob("*")))
    return [ROOT / "agentloop.py", ROOT / "README.md", *(p for p in inside if p.suffix in {".py", ".txt"})]


def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def test_every_idea_is_there_once_in_the_order_of_the_articles() -> None:
    assert len(IDS) == 146 + 62
    assert [row.id for row in rows()] == IDS


def test_every_erratum_is_there_once_in_order() -> None:
    ids = [f"{kind}{number:02}" for kind, count in ERRATA.items() for number in range(1, count + 1)]
    assert [row.id for row in errata()] == ids


def test_every_case_is_there_once_in_order() -> None:
    assert cases() == sorted(set(cases()))


def test_every_idea_and_erratum_has_a_place() -> None:
    place = re.compile(r"\[[^]]+\]\([^)]+\)|pending \(chapter \d\d\)")
    wrong = [row for row in rows() + errata() if not all(map(place.fullmatch, row.shown_in.split(", ")))]
    assert wrong == [], "a place is [chapter 02](chapters/ch02_state_machine.py) or: pending (chapter 08)"


def test_every_place_exists_and_names_what_it_shows() -> None:
    places = {file: [row.id for row in rows() if file in row.files] for row in rows() for file in row.files}
    assert [file for file in places if not (ROOT / file).exists()] == [], "these are not written yet"
    unnamed = {file: set(ids) - set(ids_named(docstring(ROOT / file))) for file, ids in places.items()}
    assert {file: sorted(ids) for file, ids in unnamed.items() if ids} == {}, "docstrings leave these out"


def test_every_place_of_an_erratum_exists_and_names_it() -> None:
    places = [(row.id, ROOT / file) for row in errata() for file in row.files]
    assert [path.name for _, path in places if not path.exists()] == [], "these are not written yet"
    unnamed = [
        f"{path.name} does not name {erratum}"
        for erratum, path in places
        if erratum not in errata_named(path.read_text(encoding="utf-8"))
    ]
    assert unnamed == [], "name the erratum in the file, or name another file in ARTICLES.md"


@pytest.mark.parametrize("path", readable_files(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_erratum_and_case_that_a_file_names_is_explained(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    explained = {row.id for row in errata()} | set(cases())
    unknown = {*errata_named(text), *cases_named(text)} - explained
    assert sorted(unknown) == [], "ARTICLES.md has no line for these: a case goes under Case ids"


def test_the_number_of_a_chapter_is_that_of_its_file() -> None:
    for row in rows() + errata():
        for number, file in re.findall(r"\[chapter (\d\d)\]\(chapters/ch(\d\d)", row.shown_in):
            assert number == file, row


def test_a_chapter_that_is_written_is_not_pending() -> None:
    written = {path.name[2:4] for path in (ROOT / "chapters").glob("ch[0-9][0-9]_*.py")}
    assert [row for row in rows() + errata() if written & set(row.pending)] == []


def test_what_is_still_pending() -> None:
    waiting = [f"{row.id} ({', '.join(row.pending)})" for row in rows() + errata() if row.pending]
    if waiting:
        pytest.skip(f"{len(waiting)} ideas and errata wait for these chapters: {', '.join(waiting)}")


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


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("def test_EA08_and_EA09_of_the_table():", ["EA08", "EA09"]),
        ("EA10..EA12, EB03 to EB05", ["EA10", "EA11", "EA12", "EB03", "EB04", "EB05"]),
        ("EX01, then EC01", ["EX01", "EC01"]),
        ("A-1, IDEA01 and EA011", []),
    ],
)
def test_errata_are_read_from_text(text: str, ids: list[str]) -> None:
    assert list(errata_named(text)) == ids


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("def test_EA11_L04_why():", ["L04"]),
        ("P01, EA30: invented; R02", ["P01", "R02"]),
        ("EX01, R012, U+1F600 and T07b", []),
    ],
)
def test_cases_are_read_from_text(text: str, ids: list[str]) -> None:
    assert cases_named(text) == ids
