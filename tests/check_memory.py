"""What a long-term memory promises: plain functions of ``make(path)``, which opens one on a file.

A memory has ``keep(task, lesson)`` and ``recall(task)``, as the outer loop wants them (chapter 10).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from paradigms.outer_loop import Memory
from tests.check_store import a_path, texts
from tests.check_toolbox import expect

MakeMemory = Callable[[Path], Memory]

#: What was kept: on which task, and what it taught.
KNOWN = (
    ("安排北京一天，先问客户", "客户说：我膝盖不好，不爬山。"),
    ("订一家广州的餐馆", "客户不吃辣，也不吃海鲜。"),
    ("给函数写单元测试", "先写断言，再写代码。"),
    ("plan a weekend in London", "The client wants to see old churches."),
)


def filled(make: MakeMemory, path: Path) -> Memory:
    memory = make(path)
    for task, lesson in KNOWN:
        memory.keep(task, lesson)
    return memory


def a_later_run_remembers(make: MakeMemory) -> None:
    """A new memory on the same file knows what the old one was taught."""
    with a_path() as path:
        filled(make, path)
        task, lesson = KNOWN[0]
        found = list(make(path).recall(task))
        expect(lesson in found, f"a new memory on the same file, asked for {task!r}, recalls {found}")


def what_was_kept_on_a_task_is_recalled_on_it(make: MakeMemory) -> None:
    """The same task brings its lesson back, whatever text the two are."""

    @settings(database=None, max_examples=20)
    @given(st.lists(st.tuples(texts, texts), min_size=1, max_size=3))
    def prove(pairs: list[tuple[str, str]]) -> None:
        with a_path() as path:
            memory = make(path)
            for task, lesson in pairs:
                memory.keep(task, lesson)
            for task, lesson in pairs:
                found = list(memory.recall(task))
                expect(lesson in found, f"taught {pairs!r}: for {task!r} it recalls {found!r}")

    prove()


def a_task_in_other_words_recalls_it(make: MakeMemory) -> None:
    """A task that shares some words with what was kept, wherever they stand, recalls it before all else."""
    with a_path() as path:
        memory = filled(make, path)
        for task, place in (
            ("周末在北京玩，去哪里？", 0),
            ("爬山去！膝盖受得了吗？", 0),
            ("在广州吃什么", 1),
            ("这个单元要不要写测试", 2),
            ("LONDON!", 3),
        ):
            found = list(memory.recall(task))
            expect(found[:1] == [KNOWN[place][1]], f"for {task!r} it recalls {found}")


def what_has_nothing_in_common_stays_where_it_is(make: MakeMemory) -> None:
    """A prompt has room for what matters: a lesson that shares nothing with a task is not recalled."""
    with a_path() as path:
        memory = filled(make, path)
        for task in ("写一首诗", "42 + 17", "？！", "weekday"):
            found = list(memory.recall(task))
            expect(not found, f"for {task!r} it recalls {found}")


def what_few_lessons_say_weighs_more(make: MakeMemory) -> None:
    """A word that stands in every lesson tells nothing; the rare one decides (inverse document frequency)."""
    with a_path() as path:
        memory = make(path)
        lessons = ("故宫闭馆", "长城预约", "天坛预约", "北海预约")
        for lesson in lessons:
            memory.keep("问讯", lesson)
        task = "预约故宫"
        found = list(memory.recall(task))[:1]
        expect(found == ["故宫闭馆"], f"of the lessons {lessons}, for {task!r} it recalls {found} first")


def a_lesson_is_recalled_once(make: MakeMemory) -> None:
    """What was taught twice, by one task or by two, is said once."""
    with a_path() as path:
        memory = make(path)
        for task in ("北京一日游", "北京一日游", "北京两日游"):
            memory.keep(task, "客户不爬山")
        found = list(memory.recall("北京一日游"))
        expect(found == ["客户不爬山"], f"the same lesson was taught three times, and it recalls {found}")


def two_loops_may_use_it_at_once(make: MakeMemory) -> None:
    """Loops side by side keep and recall at the same time, and no lesson is lost."""
    with a_path() as path:
        shared, errors = make(path), list[BaseException]()

        def learn(number: int) -> None:
            try:
                for each in range(4):
                    shared.keep(f"任务{number}", f"教训{number}.{each}")
                    list(shared.recall(f"任务{number}"))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=learn, args=(number,), daemon=True) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expect(not errors, f"four loops used one memory at once, and one of them was told {errors[:1]}")
        for number in range(4):
            missing = {f"教训{number}.{each}" for each in range(4)} - set(shared.recall(f"任务{number}"))
            expect(not missing, f"four loops learned at once, and {missing} is lost")


PROMISES: dict[str, Callable[[MakeMemory], None]] = {
    promise.__name__: promise
    for promise in (
        a_later_run_remembers,
        what_was_kept_on_a_task_is_recalled_on_it,
        a_task_in_other_words_recalls_it,
        what_has_nothing_in_common_stays_where_it_is,
        what_few_lessons_say_weighs_more,
        a_lesson_is_recalled_once,
        two_loops_may_use_it_at_once,
    )
}
