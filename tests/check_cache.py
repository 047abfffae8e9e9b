"""What a cache promises whose entries are computed once: plain functions of a class ``make(patience=...)``.

It has ``get(key, compute)`` for threads and ``get_async(key, compute)`` for coroutines. ``check_cache(make)``
raises ``BrokenPromise`` with a short story; ``PROMISES`` holds the same promises one by one.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

from tests.check_machine import BrokenPromise
from tests.check_run_many import PATIENCE
from tests.check_toolbox import expect

Make = Callable[..., Any]
SHORT = 0.01  # seconds: how long one who waits has patience with a computation that hangs


class Key:
    """A key that knows how many threads have asked for it: whoever looks it up has to hash it."""

    def __init__(self, expected: int) -> None:
        self.asked: set[int] = set()
        self.expected = expected
        self.everybody = threading.Event()

    def __hash__(self) -> int:
        self.asked.add(threading.get_ident())
        if len(self.asked) >= self.expected:
            self.everybody.set()
        return 1

    def __eq__(self, other: object) -> bool:
        return self is other


class Work:
    """A computation that is counted, and is not done before everybody asks for it."""

    def __init__(self, key: Key, fails: int = 0) -> None:
        self.key, self.fails = key, fails
        self.lock, self.count = threading.Lock(), 0

    def __call__(self) -> str:
        with self.lock:
            self.count += 1
            fails = self.count <= self.fails
        self.key.everybody.wait(PATIENCE)
        if fails:
            raise ConnectionError("503")
        return "晴"


def outcomes(asks: list[Callable[[], Any]]) -> list[Any]:
    """What came of each, on a thread of its own; an exception is a value. One that hangs is missing."""
    found: dict[int, Any] = {}

    def work(place: int) -> None:
        try:
            found[place] = asks[place]()
        except Exception as error:
            found[place] = error

    threads = [threading.Thread(target=work, args=(place,), daemon=True) for place in range(len(asks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE)
    return [found.get(place, "hangs") for place in range(len(asks))]


# --- Threads ------------------------------------------------------------------------------------


def threads_compute_it_once(make: Make) -> None:
    """However many threads ask for an entry while it is computed, it is computed once, for all of them."""
    cache, key = make(), Key(5)
    work = Work(key)
    found = outcomes([lambda: cache.get(key, work)] * 5)
    expect(found == ["晴"] * 5, f"five threads asked, and got {found}")
    expect(work.count == 1, f"five threads asked at once, and it was computed {work.count} times")


def what_is_there_is_not_computed_again(make: Make) -> None:
    """An entry that is there is returned as it is, be it None, 0 or empty."""
    for value in ("晴", None, 0, "", False):
        cache, computed = make(), list[int]()

        def compute() -> Any:
            computed.append(1)  # noqa: B023
            return value  # noqa: B023

        found = [cache.get("北京", compute) for _ in range(3)]
        expect(found == [value] * 3, f"the entry is {value!r}, and it returned {found}")
        expect(len(computed) == 1, f"the entry is {value!r}, and it was computed {len(computed)} times")


def entries_do_not_wait_for_each_other(make: Make) -> None:
    """While one entry is computed, others are: another thread has its own before the first is done."""
    cache = make()
    other_done = threading.Event()

    def slow() -> bool:
        return other_done.wait(PATIENCE)

    def quick() -> str:
        cache.get("上海", lambda: "多云")
        other_done.set()
        return "多云"

    found = outcomes([lambda: cache.get("北京", slow), quick])
    expect(found == [True, "多云"], f"北京 takes long, and whoever asks for 上海 waits for it: {found}")


def a_failure_is_told_to_all_who_waited_and_not_kept(make: Make) -> None:
    """A computation that fails fails for all who waited for it; who asks later computes again."""
    cache, key = make(), Key(3)
    work = Work(key, fails=1)
    found = outcomes([lambda: cache.get(key, work)] * 3)
    failed = [isinstance(each, ConnectionError) for each in found]
    expect(all(failed), f"three waited for a 503 and got {found}")
    expect(work.count == 1, f"three asked at once, and it was computed {work.count} times")
    try:
        again = cache.get(key, work)
    except ConnectionError as error:
        raise BrokenPromise(f"the failure was kept: who asks later is told {error}") from error
    expect(again == "晴" and work.count == 2, f"who asks later got {again!r} at computation {work.count}")


def one_that_hangs_holds_up_nobody_for_ever(make: Make) -> None:
    """Whoever has waited for a hanging computation as long as the patience computes the entry anew."""
    cache = make(patience=SHORT)
    begun, released = threading.Event(), threading.Event()

    def hang() -> str:
        begun.set()
        released.wait(PATIENCE)
        return "too late"

    hanging = threading.Thread(target=cache.get, args=("北京", hang), daemon=True)
    hanging.start()
    begun.wait(PATIENCE)
    found = outcomes([lambda: cache.get("北京", lambda: "晴"), lambda: cache.get("北京", lambda: "晴")])
    released.set()
    hanging.join(PATIENCE)
    found.append(cache.get("北京", lambda: "again"))
    expect(found == ["晴"] * 3, f"a computation hangs, and those who ask after it got {found}")


# --- Coroutines ---------------------------------------------------------------------------------


def told(task: asyncio.Task[Any]) -> Any:
    """What came of a task, in a word."""
    if not task.done():
        return "hangs"
    return "cancelled" if task.cancelled() else task.exception() or task.result()


def coroutines_compute_it_once(make: Make) -> None:
    """However many coroutines ask for an entry while it is computed, it is computed once."""
    computed: list[int] = []

    async def compute() -> str:
        computed.append(1)
        for _ in range(10):
            await asyncio.sleep(0)
        return "晴"

    async def main() -> list[str]:
        cache = make()
        return list(await asyncio.gather(*[cache.get_async("北京", compute) for _ in range(100)]))

    found = asyncio.run(main())
    expect(found == ["晴"] * 100, f"a hundred coroutines asked, and got {sorted(set(found))}")
    expect(len(computed) == 1, f"a hundred asked at once, and it was computed {len(computed)} times")


def a_failure_in_a_coroutine_is_not_kept(make: Make) -> None:
    """A coroutine that fails fails for all who waited, no event loop complains, and the next computes."""
    complaints: list[Any] = []

    async def fail() -> str:
        await asyncio.sleep(0)
        raise ConnectionError("503")

    async def work() -> str:
        return "晴"

    async def main() -> list[Any]:
        asyncio.get_running_loop().set_exception_handler(lambda loop, told: complaints.append(told))
        cache = make()
        asks = [asyncio.create_task(cache.get_async("北京", fail)) for _ in range(3)]
        await asyncio.wait(asks)
        kinds = [type(told(each)) for each in asks]
        del asks
        gc.collect()  # an event loop complains when it sees that nobody can hear of a failure any more
        return [*kinds, await cache.get_async("北京", work)]

    found = asyncio.run(main())
    expect(found == [ConnectionError] * 3 + ["晴"], f"three waited for a 503, then one asked: {found}")
    expect(complaints == [], f"the event loop complains: {complaints}")


def who_is_cancelled_passes_its_turn_on(make: Make) -> None:
    """Where the one who computes is cancelled, the next of those who wait computes: nobody else is."""

    async def hang() -> str:
        await asyncio.Event().wait()
        return "never"

    async def work() -> str:
        return "晴"

    async def main() -> list[Any]:
        cache = make()
        first = asyncio.create_task(cache.get_async("北京", hang))
        await asyncio.sleep(0)
        others = [asyncio.create_task(cache.get_async("北京", work)) for _ in range(3)]
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first, *others], timeout=PATIENCE)
        return [told(each) for each in (first, *others)]

    found = asyncio.run(main())
    wanted = ["cancelled", "晴", "晴", "晴"]
    expect(found == wanted, f"the one who computed was cancelled, and what came to all four is {found}")


def a_turn_is_passed_on_any_number_of_times(make: Make) -> None:
    """Of many who wait, one after the other is cancelled when it computes; no stack grows with that."""
    depths: list[int] = []

    async def hang() -> str:
        depths.append(_depth())
        await asyncio.Event().wait()
        return "never"

    async def main() -> Any:
        cache = make()
        asks = [asyncio.create_task(cache.get_async("北京", hang)) for _ in range(50)]
        for ask in asks:
            computing = len(depths)
            while len(depths) == computing:
                await asyncio.sleep(0)
            ask.cancel()
        await asyncio.wait(asks)
        return [told(ask) for ask in asks]

    found = asyncio.run(main())
    expect(found == ["cancelled"] * 50, f"fifty were cancelled in turn, and what came of them is {found}")
    deep = max(depths) - min(depths)
    expect(deep < 10, f"the turn was passed on 49 times, and the last one computed {deep} calls deeper")


def _depth() -> int:
    """How many calls whoever asks is in."""
    frame, count = sys._getframe(), 0
    while frame.f_back is not None:
        frame, count = frame.f_back, count + 1
    return count


def who_stops_waiting_stops_nobody_else(make: Make) -> None:
    """Of those who wait for an entry, one is cancelled; the entry is computed, and the others have it."""

    async def main() -> list[Any]:
        cache, ready = make(), asyncio.Event()

        async def work() -> str:
            await ready.wait()
            return "晴"

        tasks = [asyncio.create_task(cache.get_async("北京", work)) for _ in range(3)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.sleep(0)
        ready.set()
        await asyncio.wait(tasks, timeout=PATIENCE)
        return [told(each) for each in tasks]

    found = asyncio.run(main())
    wanted = ["晴", "cancelled", "晴"]
    expect(found == wanted, f"the second of three stopped waiting, and what came is {found}")


def threads_and_coroutines_share_an_entry(make: Make) -> None:
    """An entry that a coroutine computes is waited for by a thread, and computed once."""

    async def main() -> tuple[list[Any], int]:
        cache, key, computed = make(), Key(2), list[int]()

        async def work() -> str:
            computed.append(1)
            await asyncio.to_thread(key.everybody.wait, PATIENCE)
            return "晴"

        def late() -> str:
            computed.append(1)
            return "late"

        asks = [cache.get_async(key, work), asyncio.to_thread(cache.get, key, late)]
        return list(await asyncio.gather(*asks)), len(computed)

    found, count = asyncio.run(main())
    expect(found == ["晴", "晴"], f"a coroutine computed, a thread waited for it, and they got {found}")
    expect(count == 1, f"a coroutine and a thread asked at once, and it was computed {count} times")


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        threads_compute_it_once,
        what_is_there_is_not_computed_again,
        entries_do_not_wait_for_each_other,
        a_failure_is_told_to_all_who_waited_and_not_kept,
        one_that_hangs_holds_up_nobody_for_ever,
        coroutines_compute_it_once,
        a_failure_in_a_coroutine_is_not_kept,
        who_is_cancelled_passes_its_turn_on,
        a_turn_is_passed_on_any_number_of_times,
        who_stops_waiting_stops_nobody_else,
        threads_and_coroutines_share_an_entry,
    )
}


def check_cache(make: Make) -> None:
    """Raise ``BrokenPromise`` for the first promise that it does not keep."""
    for promise in PROMISES.values():
        promise(make)
