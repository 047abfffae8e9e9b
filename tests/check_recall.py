"""What retrieval promises: plain functions of one ``recall(task, notes)``, used on ours and on a reader's.

``check_recall(recall)`` raises ``BrokenPromise`` with the shortest story that breaks a promise.
``PROMISES`` holds the same promises one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from chapters.ch04_reassembling_the_input import NOTES
from tests.check_machine import BrokenPromise

Recall = Callable[[str, Mapping[str, str]], list[str]]

topics = st.sampled_from(("旅游", "天气", "编程", "饮食", "音乐", "weather"))
texts = st.text("今天北京怎么样？abc ", max_size=10)
memories = st.dictionaries(topics, st.text(min_size=1, max_size=10), max_size=6)


def note_of_each_topic_that_is_mentioned(recall: Recall) -> None:
    """A note is recalled where the task mentions its topic, whatever else stands there."""

    @settings(database=None)
    @given(memories, st.lists(topics | texts))
    def prove(notes: dict[str, str], words: list[str]) -> None:
        task = " ".join(words)
        recalled = recall(task, notes)
        for topic, note in notes.items():
            if topic in words and note not in recalled:
                story = f"for the task {task!r} it recalled {recalled}, and not {note!r} on {topic}"
                raise BrokenPromise(story)

    prove()


def nothing_but_notes(recall: Recall) -> None:
    """What is recalled stands in the notes, word for word, each note once."""

    @settings(database=None)
    @given(st.sets(topics), texts)
    def prove(mentioned: set[str], more: str) -> None:
        task = "".join(sorted(mentioned)) + more
        recalled = recall(task, NOTES)
        made_up = [text for text in recalled if text not in NOTES.values()]
        if made_up or len(set(recalled)) != len(recalled):
            known = [*NOTES.values()]
            raise BrokenPromise(f"for the task {task!r} it recalled {recalled}; the notes are {known}")

    prove()


def what_has_nothing_to_do_with_the_task_stays_where_it_is(recall: Recall) -> None:
    """A prompt has room for what matters: other notes are not shown (article B, 检索到的记忆)."""
    for task, others in (("", NOTES), ("今天天气怎么样？", ["编程"]), ("编程遇到了问题", ["旅游", "天气"])):
        recalled = recall(task, NOTES)
        for topic in others:
            if NOTES[topic] in recalled:
                raise BrokenPromise(f"for the task {task!r} it recalled the note on {topic}")


def the_notes_stay_as_they_are(recall: Recall) -> None:
    """To recall is to read: long-term memory outlives the run, and the same task finds the same again."""
    notes = dict(NOTES)
    task = "查询天气，推荐旅游景点"
    first, again = recall(task, notes), recall(task, notes)
    if notes != NOTES:
        raise BrokenPromise(f"after it had recalled {first} the notes were {notes}")
    if first != again:
        raise BrokenPromise(f"asked the same twice it recalled {first}, then {again}")


PROMISES: dict[str, Callable[[Recall], None]] = {
    promise.__name__: promise
    for promise in (
        note_of_each_topic_that_is_mentioned,
        nothing_but_notes,
        what_has_nothing_to_do_with_the_task_stays_where_it_is,
        the_notes_stay_as_they_are,
    )
}


def check_recall(recall: Recall) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(recall)
