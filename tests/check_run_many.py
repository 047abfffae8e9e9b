"""What ``run_many`` promises: plain functions of anything with its signature, used on ours and on a reader's.

``run_many(tasks, executor, office)`` returns a tuple ``(task, answer, stop, problem)`` for each task.
``check_run_many(run_many)`` raises ``BrokenPromise`` with a short story. ``PROMISES`` holds the same
promises one by one. No executor here needs another process: ``Abroad`` looks at all that would travel there.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from enum import Enum
from functools import partial
from types import FunctionType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentloop import Act, AgentLoop, Away, Finish, Limits, LoopContext, Program, StopReason, ToolCall, World
from chapters.ch30_isolation_and_sharing import is_plain
from tests.check_machine import BrokenPromise
from tests.check_toolbox import expect

RunMany = Callable[..., Any]

SHORT = 0.01  # seconds: a wait of ours
PATIENCE = 1.0  # seconds: what only a broken version waits out


# --- Offices ------------------------------------------------------------------------------------


class Unspeakable(Exception):
    """An exception that cannot be told, and could not be made again elsewhere."""

    def __init__(self, one: object, two: object) -> None:
        super().__init__()

    def __str__(self) -> str:
        raise RuntimeError("no words")


class NoException(BaseException):
    """What is no ``Exception``, and could not be made again elsewhere."""

    def __init__(self, *, need: str) -> None:
        super().__init__()


def answering(task: str, answer: Any) -> tuple[Program[Any], World]:
    """An office whose loop answers at once."""
    return AgentLoop(lambda context: Finish(answer)).run(task), World(inline=True)


def office(task: str) -> tuple[Program[Any], World]:
    """An office that answers, or does what the task says."""
    if task == "raise":
        raise LookupError("no such city")
    if task == "exit":
        raise SystemExit(3)
    if task == "away":
        raise Away()
    if task == "unspeakable":
        raise Unspeakable(1, 2)
    if task == "no exception":
        raise NoException(need="a name")
    if task == "cancelled":
        raise asyncio.CancelledError
    if task == "odd":
        odd = SyntaxError("odd", ("a file", 1, 2, "a line"))
        odd.text = 17  # type: ignore[assignment]
        raise odd
    if task == "never":
        loop = AgentLoop(lambda context: Act((ToolCall("look", {}),)), limits=Limits(rounds=2))
        return loop.run(task), World(inline=True)
    if task == "bug":
        return AgentLoop(_bug).run(task), World(inline=True)
    return answering(task, f"{task}: 晴")


def _bug(context: LoopContext) -> Any:
    raise ZeroDivisionError("a bug in a hook")


ANSWERED = StopReason.FINAL_ANSWER


def good(*tasks: str) -> list[tuple[Any, ...]]:
    """What comes of tasks that are answered."""
    return [(task, f"{task}: 晴", ANSWERED, "") for task in tasks]


def came(run_many: RunMany, tasks: Any, executor: Executor, how: Callable[..., Any] = office) -> list[Any]:
    """What ``run_many`` returns, as plain tuples."""
    try:
        return [tuple(each) for each in run_many(tasks, executor, how)]
    except BaseException as error:
        story = f"for the tasks {tasks!r} it raised {type(error).__name__}, and all results are lost"
        raise BrokenPromise(story) from error


# --- Executors ----------------------------------------------------------------------------------


class Here(Executor):
    """Runs what is submitted at once; ``submitted`` is what there was."""

    def __init__(self) -> None:
        self.submitted: list[tuple[Any, ...]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.submitted.append((fn, *args, *kwargs.values()))
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


class Abroad(Here):
    """Looks at all that goes out and comes back; ``complaints`` is what could not travel."""

    def __init__(self) -> None:
        super().__init__()
        self.complaints: list[str] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if not _is_importable(fn):
            self.complaints.append(f"{fn!r} is submitted: another process cannot import that")
        for each in (*args, *kwargs.values()):
            if not _is_importable(each) and not is_plain(each):
                self.complaints.append(f"{type(each).__name__} is submitted as an argument: it cannot travel")
        future = super().submit(fn, *args, **kwargs)
        error = future.exception()
        if error is not None:
            self.complaints.append(f"{type(error).__name__} travels as an exception: it is not data")
        elif not _is_data(future.result()):
            self.complaints.append(f"{future.result()!r} comes back: it is not data")
        return future


def _is_importable(thing: Any) -> bool:
    if isinstance(thing, partial):
        return _is_importable(thing.func) and all(map(is_plain, (*thing.args, *thing.keywords.values())))
    return isinstance(thing, FunctionType) and thing.__qualname__.isidentifier()


def _is_data(thing: Any) -> bool:
    return isinstance(thing, tuple) and all(is_plain(each) or isinstance(each, Enum) for each in thing)


class Mortal(Here):
    """A pool of processes, one of which dies: at the task of that number, and the pool with it."""

    def __init__(self, dies_at: int, waiting: int = 0) -> None:
        super().__init__()
        self.dies_at, self.waiting = dies_at, waiting  # how many tasks are already waiting when it dies

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        number = len(self.submitted)
        if number > self.dies_at + self.waiting:
            raise BrokenProcessPool("the pool is broken")
        if number < self.dies_at:
            return super().submit(fn, *args, **kwargs)
        self.submitted.append((fn, *args))
        lost: Future[Any] = Future()
        lost.set_exception(BrokenProcessPool("a process died"))
        return lost


class Held(Here):
    """Begins nothing; what is waited for first is broken off by Ctrl-C."""

    def __init__(self) -> None:
        super().__init__()
        self.futures: list[Future[Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.futures.append(_BrokenOff())
        return self.futures[-1]


class _BrokenOff(Future[Any]):
    def exception(self, timeout: float | None = None) -> BaseException | None:
        raise KeyboardInterrupt

    def result(self, timeout: float | None = None) -> Any:
        raise KeyboardInterrupt


# --- The promises -------------------------------------------------------------------------------


def it_tells_of_each_task_in_order(run_many: RunMany) -> None:
    """It tells of every task in the order of the tasks, of a task that is given twice too."""

    @given(st.lists(st.sampled_from(["北京", "上海", "广州"]), max_size=6))
    def prove(tasks: list[str]) -> None:
        found = came(run_many, iter(tasks), Here())
        expect(found == good(*tasks), f"for the tasks {tasks} it returned {found}")

    prove()


def the_order_is_not_that_of_arrival(run_many: RunMany) -> None:
    """Tasks that are done in the opposite order are told of in the order in which they were given."""
    tasks = ("一", "二", "三")
    done = {task: threading.Event() for task in tasks}

    def late(task: str) -> tuple[Program[Any], World]:
        for following in tasks[tasks.index(task) + 1 :]:
            done[following].wait(PATIENCE)
        done["never"].wait(SHORT)  # so that whoever waits for the first to arrive is waiting by now
        return office(task)

    class Noting(ThreadPoolExecutor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            future = super().submit(fn, *args, **kwargs)
            for task in set(_tasks([args])) & done.keys():
                future.add_done_callback(lambda _: done[task].set())  # noqa: B023 - there is one
            return future

    done["never"] = threading.Event()
    with Noting(len(tasks)) as threads:
        found = came(run_many, tasks, threads, late)
    expect(found == good(*tasks), f"{tasks} were done in the opposite order, and it returned {found}")


def it_works_side_by_side(run_many: RunMany) -> None:
    """All tasks are handed out before the first result is waited for."""
    everybody = threading.Barrier(3)

    def meeting(task: str) -> tuple[Program[Any], World]:
        everybody.wait(PATIENCE)
        return office(task)

    with ThreadPoolExecutor(3) as threads:
        found = came(run_many, ["甲", "乙", "丙"], threads, meeting)
    expect(found == good("甲", "乙", "丙"), f"three tasks on three threads never met: {found}")


def a_failing_task_loses_nothing(run_many: RunMany) -> None:
    """A task whose office fails has a problem that says why, and the others have their answers."""
    for task, words in (
        ("raise", "no such city"),
        ("exit", "SystemExit"),
        ("away", "Away"),
        ("unspeakable", "Unspeakable"),
        ("no exception", "NoException"),
        ("cancelled", "CancelledError"),
        ("odd", "SyntaxError"),
    ):
        first, wrong, last = came(run_many, ["北京", task, "上海"], Here())
        expect([first, last] == good("北京", "上海"), f"beside {task!r} there came {first} and {last}")
        told = wrong[:3] == (task, None, None) and words in str(wrong[3])
        expect(told, f"the task {task!r} fails, and what is told of it is {wrong}")


def a_bug_ends_its_run_with_an_error(run_many: RunMany) -> None:
    """A run that ends by a bug in a hook has ended: with ERROR, and a problem that names the bug."""
    (found,) = came(run_many, ["bug"], Here())
    told = found[:3] == ("bug", None, StopReason.ERROR) and "a bug in a hook" in str(found[3])
    expect(told, f"a hook raised, and what is told of it is {found}")


def an_honest_ending_is_no_problem(run_many: RunMany) -> None:
    """A run that ends at a limit has no answer and a stop that says so; nothing went wrong."""
    found = came(run_many, ["never", ""], Here())
    wanted = [("never", None, StopReason.MAX_ITERATIONS, ""), ("", None, StopReason.INVALID_TASK, "")]
    expect(found == wanted, f"a run out of rounds and an empty task, and what is told of them is {found}")


def what_is_sent_can_travel(run_many: RunMany) -> None:
    """What is submitted is a function that another process can import, with plain arguments."""
    abroad = Abroad()
    found = came(run_many, ["北京"], abroad)
    expect(found == good("北京") and not abroad.complaints, "; ".join(abroad.complaints) or f"got {found}")


def what_comes_back_can_travel(run_many: RunMany) -> None:
    """What comes back is data, whatever went wrong: an exception may not survive the way."""
    abroad = Abroad()
    tasks = ["raise", "bug", "never", "unspeakable", "exit", "no exception", "cancelled", "odd"]
    came(run_many, tasks, abroad)
    expect(not abroad.complaints, "; ".join(abroad.complaints))


def an_answer_that_cannot_travel_is_a_problem(run_many: RunMany) -> None:
    """An answer that is no plain data is a problem of its task, on every executor the same."""
    for answer in (threading.Lock(), [object()], {"city": {1, 2}}, "晴", {"city": [1, 2.5, None, True]}):
        (found,) = came(run_many, ["北京"], Here(), lambda task: answering(task, answer))  # noqa: B023
        if is_plain(answer):
            expect(found == ("北京", answer, ANSWERED, ""), f"the answer {answer!r} came back as {found}")
        else:
            problem = found[:3] == ("北京", None, None) and type(answer).__name__ in str(found[3])
            expect(problem, f"the answer is {answer!r}, and what is told of it is {found}")


def a_task_that_cannot_travel_is_a_problem(run_many: RunMany) -> None:
    """A task that is no plain data is not submitted, and the others are."""
    here, odd = Here(), threading.Lock()
    first, wrong, last = came(run_many, ["北京", odd, "上海"], here)
    expect([first, last] == good("北京", "上海"), f"beside a lock for a task there came {first} and {last}")
    expect(wrong[0] is odd and bool(wrong[3]), f"the task is a lock, and what is told of it is {wrong}")
    expect(len(here.submitted) == 2, f"of two tasks and a lock, {len(here.submitted)} were submitted")


def a_worker_that_dies_takes_nothing_that_was_done(run_many: RunMany) -> None:
    """Where a worker dies, what came before is kept, and each other task is told why it has nothing."""
    tasks = ["一", "二", "三", "四", "五"]
    for dies_at in range(len(tasks)):
        found = came(run_many, tasks, Mortal(dies_at, waiting=1))
        before, after = found[:dies_at], found[dies_at:]
        story = f"a worker died at task {dies_at + 1} of 5, and what is told is {found}"
        expect(before == good(*tasks[:dies_at]), story)
        expect([each[0] for each in after] == tasks[dies_at:], story)
        expect(all(each[1:3] == (None, None) and "BrokenProcessPool" in each[3] for each in after), story)


def a_task_that_is_refused_is_a_problem(run_many: RunMany) -> None:
    """An executor that takes nothing any more makes a problem of each task, not an exception."""
    closed = ThreadPoolExecutor(1)
    closed.shutdown()
    found = came(run_many, ["北京", "上海"], closed)
    told = all(each[1:3] == (None, None) and "shutdown" in str(each[3]) for each in found)
    expect(len(found) == 2 and told, f"the executor had been shut down, and what is told is {found}")


def a_task_that_is_withdrawn_is_a_problem(run_many: RunMany) -> None:
    """A task that somebody cancels is told as cancelled."""

    class Cancelling(Here):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            withdrawn: Future[Any] = Future()
            withdrawn.cancel()
            return withdrawn

    (found,) = came(run_many, ["北京"], Cancelling())
    told = found[:3] == ("北京", None, None) and "Cancelled" in str(found[3])
    expect(told, f"the task was cancelled, and what is told of it is {found}")


def nothing_is_run_twice(run_many: RunMany) -> None:
    """Each task is submitted once, and never again by itself: nobody knows what a lost run has done."""
    for executor in (Here(), Mortal(1), Mortal(2, waiting=2)):
        came(run_many, ["一", "二", "三", "四", "五"], executor)
        tasks = _tasks(executor.submitted)
        expect(len(tasks) == len(set(tasks)), f"submitted were {tasks}")


def _tasks(submitted: Sequence[tuple[Any, ...]]) -> list[str]:
    return [each for args in submitted for each in args if isinstance(each, str)]


def ctrl_c_withdraws_what_nobody_has_begun(run_many: RunMany) -> None:
    """Ctrl-C goes through, and tasks that nobody has begun are cancelled first."""
    held = Held()
    try:
        run_many(["一", "二", "三"], held, office)
    except KeyboardInterrupt:
        left = sum(not future.cancelled() for future in held.futures)
        expect(left == 0, f"Ctrl-C came, and {left} of 3 tasks are still waiting to be run")
    else:
        raise BrokenPromise("Ctrl-C came while it waited, and was swallowed")


PROMISES: dict[str, Callable[[RunMany], None]] = {
    promise.__name__: promise
    for promise in (
        it_tells_of_each_task_in_order,
        the_order_is_not_that_of_arrival,
        it_works_side_by_side,
        a_failing_task_loses_nothing,
        a_bug_ends_its_run_with_an_error,
        an_honest_ending_is_no_problem,
        what_is_sent_can_travel,
        what_comes_back_can_travel,
        an_answer_that_cannot_travel_is_a_problem,
        a_task_that_cannot_travel_is_a_problem,
        a_worker_that_dies_takes_nothing_that_was_done,
        a_task_that_is_refused_is_a_problem,
        a_task_that_is_withdrawn_is_a_problem,
        nothing_is_run_twice,
        ctrl_c_withdraws_what_nobody_has_begun,
    )
}


def check_run_many(run_many: RunMany) -> None:
    """Raise ``BrokenPromise`` for the first promise that ``run_many`` does not keep."""
    for promise in PROMISES.values():
        promise(run_many)
