"""What a notebook promises: plain functions of a class ``notebook(store, name, room=...)``.

It has ``write_note``, ``read_notes`` and ``shown``, as chapter 28's ``Notebook`` has.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import estimate_tokens
from paradigms.store import Store
from tests.check_store import a_path
from tests.check_toolbox import expect

MakeNotebook = Callable[..., Any]
pieces = st.text("a 京膝\U0001f600\ud800\n。", min_size=1, max_size=9).filter(str.strip)
words = st.builds(lambda piece, times: piece * times, pieces, st.integers(1, 40))
a_note, rooms = st.tuples(pieces, words), st.integers(200, 400)


def a_note_is_shown_and_can_be_read(notebook: MakeNotebook) -> None:
    """What was noted stands in what is shown, and is read in full by what it is about."""
    with a_path() as path:
        book = notebook(Store(path), "task")
        book.write_note("客户的要求", "膝盖不好，不爬山")
        book.write_note("车次", "G101" + "，很长的一段话" * 60 + "，七点发车")
        shown = book.shown()
        expect("膝盖不好，不爬山" in shown, f"a short note was taken, and what is shown is {shown!r}")
        read = book.read_notes("车次")
        expect("七点发车" in read, f"a long note was taken, and what is read of it is {read!r}")
        expect("膝盖" not in read, f"asked for 车次, it read out {read!r}")


def a_new_note_on_a_topic_replaces_the_old_one(notebook: MakeNotebook) -> None:
    """Notes are structured: one to a topic, the latest."""
    with a_path() as path:
        book = notebook(Store(path), "task")
        book.write_note("预算", "60 元")
        book.write_note("预算", "90 元")
        for where, text in (("shown", book.shown()), ("read", book.read_notes("预算"))):
            right = "90" in text and "60" not in text
            expect(right, f"60 was noted, then 90 on the same topic, and {where} is {text!r}")


def what_is_shown_fits_its_room(notebook: MakeNotebook) -> None:
    """However many notes there are, and however long, they take no more of the prompt than their room."""
    with a_path() as path:
        names = iter(range(10**6))
        store = Store(path)

        def fits(notes: list[tuple[str, str]], room: int) -> None:
            book = notebook(store, f"task {next(names)}", room=room)
            for topic, text in notes:
                book.write_note(topic, text)
            _fits(book.shown(), notes, room)

        fits([("日程", "上午\n下午")], 200)
        fits([(f"第{number}天", "去很多地方，" * 30) for number in range(9)], 300)
        settings(database=None, max_examples=15)(
            given(st.lists(a_note, min_size=1, max_size=8), rooms)(fits)
        )()


def _fits(shown: str, notes: list[tuple[str, str]], room: int) -> None:
    taken = estimate_tokens(shown)
    expect(taken <= room, f"{len(notes)} notes take {taken} tokens of a room of {room}: {shown!r}")
    newest = " ".join(notes[-1][0].split())
    expect(newest in shown, f"the newest note is on {newest!r}, and shown is {shown!r}")
    more = re.match(r"\n\((\d+) more", shown)
    topics = len({topic for topic, _ in notes})
    told = len(shown.splitlines()) - 1 + (int(more[1]) - 1 if more else 0)
    expect(told == topics, f"there are {topics} notes, and what is shown tells of {told}: {shown!r}")


def a_notebook_belongs_to_its_task(notebook: MakeNotebook) -> None:
    """What was noted for one task is not shown to another (EA38)."""
    with a_path() as path:
        notebook(Store(path), "北京").write_note("客户", "不爬山")
        other = notebook(Store(path), "上海")
        shown, read = other.shown(), other.read_notes("客户")
        expect("不爬山" not in shown + read, f"noted for 北京, and for 上海 it shows {shown!r}, {read!r}")


def a_later_run_finds_its_notes(notebook: MakeNotebook) -> None:
    """A new notebook of the same name on the same store holds what was written."""
    with a_path() as path:
        notebook(Store(path), "task").write_note("客户", "不爬山")
        shown = notebook(Store(path), "task").shown()
        expect("不爬山" in shown, f"a note was taken; opened again, the notebook shows {shown!r}")


def an_empty_note_is_refused(notebook: MakeNotebook) -> None:
    """A note without a topic or a text is a mistake, and the model is told of it."""
    with a_path() as path:
        book = notebook(Store(path), "task")
        for topic, text in (("", "text"), (" ", "text"), ("topic", "\n")):
            try:
                came = book.write_note(topic, text)
            except ValueError:
                continue
            expect(False, f"a note {text!r} on {topic!r} was taken, and answered with {came!r}")


PROMISES: dict[str, Callable[[MakeNotebook], None]] = {
    promise.__name__: promise
    for promise in (
        a_note_is_shown_and_can_be_read,
        a_new_note_on_a_topic_replaces_the_old_one,
        what_is_shown_fits_its_room,
        a_notebook_belongs_to_its_task,
        a_later_run_finds_its_notes,
        an_empty_note_is_refused,
    )
}
