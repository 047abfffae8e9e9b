"""Wrong ways to run many loops and to share what is dear: ours with one planted fault each."""

from __future__ import annotations

from functools import partial

from tests.gallery import Fault

MODULE = "chapters.ch30_isolation_and_sharing"
ManyFault = partial(Fault, check="run_many", of="run_many", module=MODULE)
PoolFault = partial(Fault, check="pool", of="ConnectionPool", module=MODULE)
CacheFault = partial(Fault, check="cache", of="Cache", module=MODULE)

MANY_FAULTS: tuple[Fault, ...] = (
    ManyFault(
        "a task that stands there twice is run once",
        "run_many",
        old="for task in tasks:",
        new="for task in dict.fromkeys(tasks):",
        caught_by="it_tells_of_each_task_in_order",
        passes=("it_works_side_by_side", "nothing_is_run_twice"),
    ),
    ManyFault(
        "results are told in the order in which they arrive",
        "run_many",
        old="        return [_came(task, future) for task, future in runs]\n",
        new="        from concurrent.futures import as_completed\n"
        "        tasks = {future: task for task, future in runs}\n"
        "        return [_came(tasks[future], future) for future in as_completed(tasks)]\n",
        caught_by="the_order_is_not_that_of_arrival",
        passes=("what_is_sent_can_travel", "nothing_is_run_twice"),
    ),
    ManyFault(
        "each task is waited for before the next is handed out",
        "_submitted",
        old="return executor.submit(run_one, office, task)",
        new="future = executor.submit(run_one, office, task)\n        wait([future])\n        return future",
        caught_by="it_works_side_by_side",
        passes=("it_tells_of_each_task_in_order", "a_failing_task_loses_nothing"),
    ),
    ManyFault(
        "an exception that cannot be told is another one",
        "went_wrong",
        old="except Exception:",
        new="except KeyError:",
        caught_by="a_failing_task_loses_nothing",
        passes=("a_bug_ends_its_run_with_an_error",),
    ),
    ManyFault(
        "what is no Exception takes its worker with it",
        "run_one",
        old="except BaseException as error:",
        new="except Exception as error:",
        caught_by="what_comes_back_can_travel",
        passes=("a_bug_ends_its_run_with_an_error", "a_worker_that_dies_takes_nothing_that_was_done"),
    ),
    ManyFault(
        "a bug in a hook has no ending",
        "went_wrong",
        old="error.result.stop if isinstance(error, LoopError) else None",
        new="None",
        caught_by="a_bug_ends_its_run_with_an_error",
        passes=("a_failing_task_loses_nothing",),
    ),
    ManyFault(
        "no answer is a problem",
        "ended",
        old="return Ended(task, result.answer, result.stop)",
        new="return Ended(task, result.answer, result.stop, '' if result.answer else 'no answer')",
        caught_by="an_honest_ending_is_no_problem",
        passes=("a_bug_ends_its_run_with_an_error",),
    ),
    ManyFault(
        "what is submitted is a closure",
        "_submitted",
        old="executor.submit(run_one, office, task)",
        new="executor.submit(lambda: run_one(office, task))",
        caught_by="what_is_sent_can_travel",
        passes=("it_works_side_by_side", "a_failing_task_loses_nothing"),
    ),
    ManyFault(
        "the loop is made here and sent",
        "_submitted",
        old="return executor.submit(run_one, office, task)",
        new="return executor.submit(drive, *office(task))",
        caught_by="what_is_sent_can_travel",
        passes=("a_task_that_is_refused_is_a_problem", "a_task_that_is_withdrawn_is_a_problem"),
    ),
    ManyFault(
        "an exception goes back as it is",
        "run_one",
        old="return went_wrong(task, error)",
        new="raise",
        caught_by="what_comes_back_can_travel",
        passes=("what_is_sent_can_travel", "a_failing_task_loses_nothing"),
    ),
    ManyFault(
        "any answer is sent",
        "ended",
        old="if not is_plain(result.answer):",
        new="if False:",
        caught_by="an_answer_that_cannot_travel_is_a_problem",
        passes=("what_comes_back_can_travel",),
    ),
    ManyFault(
        "any task is sent",
        "_submitted",
        old="if not is_plain(task):",
        new="if False:",
        caught_by="a_task_that_cannot_travel_is_a_problem",
        passes=("what_is_sent_can_travel",),
    ),
    ManyFault(
        "a lost result is raised, and all others are lost with it",
        "_came",
        old="return future.result() if error is None else went_wrong(task, error)",
        new="return future.result()",
        caught_by="a_worker_that_dies_takes_nothing_that_was_done",
        passes=("a_failing_task_loses_nothing", "it_works_side_by_side"),
    ),
    ManyFault(
        "an executor that refuses ends it all",
        "_submitted",
        old="except Exception as error:",
        new="except TypeError as error:",
        caught_by="a_task_that_is_refused_is_a_problem",
        passes=("a_task_that_cannot_travel_is_a_problem", "a_task_that_is_withdrawn_is_a_problem"),
    ),
    ManyFault(
        "a task that was cancelled cancels the whole",
        "_came",
        old="error = cancelled",
        new="raise",
        caught_by="a_task_that_is_withdrawn_is_a_problem",
        passes=("a_worker_that_dies_takes_nothing_that_was_done", "a_task_that_is_refused_is_a_problem"),
    ),
    ManyFault(
        "a run that was lost is run again",
        "_submitted",
        old="return executor.submit(run_one, office, task)",
        new="future = executor.submit(run_one, office, task)\n"
        "        if future.done() and future.exception():\n"
        "            future = executor.submit(run_one, office, task)\n"
        "        return future",
        caught_by="nothing_is_run_twice",
        passes=("it_works_side_by_side", "a_task_that_is_refused_is_a_problem"),
    ),
    ManyFault(
        "Ctrl-C leaves a thousand tasks to be run",
        "run_many",
        old="future.cancel()",
        new="future.done()",
        caught_by="ctrl_c_withdraws_what_nobody_has_begun",
        passes=("a_task_that_is_withdrawn_is_a_problem",),
    ),
)

_GIVEN_BACK = """\
    except BaseException:
        broken, connection = connection, None  # nobody else gets what may be broken
        if broken is not None:
            broken.close()
        raise
    finally:
        self._give_back(connection)
"""
_YIELDED = "        yield connection\n        connection.commit()\n"

POOL_FAULTS: tuple[Fault, ...] = (
    PoolFault(
        "every borrower has a new connection",
        "ConnectionPool.lent",
        old="if connection is None:",
        new="if True:",
        caught_by="it_opens_one_when_it_is_needed",
        passes=("no_more_than_the_size_are_lent", "it_is_taken_back_after_a_failure"),
    ),
    PoolFault(
        "it is back in the pool while it is still used",
        "ConnectionPool.lent",
        old=_YIELDED + _GIVEN_BACK,
        new="        self._give_back(connection)\n" + _YIELDED + "    finally:\n        pass\n",
        caught_by="no_more_than_the_size_are_lent",
        passes=("it_opens_one_when_it_is_needed",),
    ),
    PoolFault(
        "closed after a failure, and lent again",
        "ConnectionPool.lent",
        old="broken, connection = connection, None",
        new="broken = connection",
        caught_by="each_is_lent_to_one_at_a_time",
        passes=("it_opens_one_when_it_is_needed", "no_more_than_the_size_are_lent"),
    ),
    PoolFault(
        "it is taken back where nothing failed",
        "ConnectionPool.lent",
        old=_GIVEN_BACK,
        new="        self._give_back(connection)\n    finally:\n        pass\n",
        caught_by="it_is_taken_back_after_a_failure",
        passes=("it_opens_one_when_it_is_needed", "no_more_than_the_size_are_lent"),
    ),
    PoolFault(
        "it is opened before anybody watches over its place",
        "ConnectionPool.lent",
        old="    try:\n        if connection is None:\n            connection = self._connect()\n",
        new="    if connection is None:\n        connection = self._connect()\n    try:\n",
        caught_by="a_failed_connect_takes_no_place",
        passes=("it_is_taken_back_after_a_failure", "no_more_than_the_size_are_lent"),
    ),
    PoolFault(
        "what failed is rolled back, and lent again broken",
        "ConnectionPool.lent",
        old=_GIVEN_BACK,
        new="    except BaseException:\n"
        "        try:\n"
        "            connection and connection.rollback()\n"
        "        except Exception:\n"
        "            pass\n"
        "        raise\n"
        "    finally:\n"
        "        self._give_back(connection)\n",
        caught_by="a_broken_one_is_not_lent_again",
        passes=("what_was_done_is_kept_and_what_failed_is_undone", "it_is_taken_back_after_a_failure"),
    ),
    PoolFault(
        "half of what failed is committed",
        "ConnectionPool.lent",
        old="            broken.close()\n",
        new="            broken.commit()\n            broken.close()\n",
        caught_by="what_was_done_is_kept_and_what_failed_is_undone",
        passes=("it_is_taken_back_after_a_failure",),
    ),
    PoolFault(
        "closed without waiting for borrowers",
        "ConnectionPool.close",
        old="if not self._changed.wait_for(lambda: len(self._free) == self._size, self._patience):",
        new="if False:",
        caught_by="closing_waits_for_borrowers_and_closes_all",
        passes=("what_was_done_is_kept_and_what_failed_is_undone",),
    ),
    PoolFault(
        "who comes to a closed pool waits in vain",
        "ConnectionPool._take",
        old="if self._closed:",
        new="if False:",
        caught_by="a_closed_pool_says_so_at_once",
        passes=("closing_waits_for_borrowers_and_closes_all",),
    ),
    PoolFault(
        "what comes back late is kept for the next",
        "ConnectionPool._give_back",
        old="if self._closed and connection is not None:",
        new="if self._closed and connection is not None and len(self._free) < self._size - 1:",
        caught_by="what_comes_back_late_is_closed",
        passes=("a_closed_pool_says_so_at_once",),
    ),
    PoolFault(
        "a pool of nothing, for which everybody waits",
        "ConnectionPool.__init__",
        old="if size < 1:",
        new="if size < -1:",
        caught_by="a_size_below_one_is_refused",
        passes=("it_opens_one_when_it_is_needed",),
    ),
)

_KEPT = """\
            with self._computing(key, entry):
                entry.set_result(compute())
"""

CACHE_FAULTS: tuple[Fault, ...] = (
    CacheFault(
        "look first, and compute where nothing is there (check-then-act)",
        "Cache.get",
        old="    while True:\n",
        new="    if key not in self._entries or not self._entries[key].done():\n"
        "        value, entry = compute(), Future()\n"
        "        entry.set_result(value)\n"
        "        self._entries[key] = entry\n"
        "    while True:\n",
        caught_by="threads_compute_it_once",
        passes=("what_is_there_is_not_computed_again", "entries_do_not_wait_for_each_other"),
    ),
    CacheFault(
        "what is false is not there",
        "Cache._entry",
        old="        if entry is not None:\n",
        new="        if entry is not None and (not entry.done() or entry.exception() or entry.result()):\n",
        caught_by="what_is_there_is_not_computed_again",
        passes=("threads_compute_it_once", "coroutines_compute_it_once"),
    ),
    CacheFault(
        "one computes at a time, whatever the key",
        "Cache.get",
        old=_KEPT,
        new="            with self._lock:\n"
        "                value = compute()\n"
        "            entry.set_result(value)\n",
        caught_by="entries_do_not_wait_for_each_other",
        passes=("what_is_there_is_not_computed_again",),
    ),
    CacheFault(
        "a failure is kept",
        "Cache._computing",
        old="        self._forget(key, entry)\n",
        new="",
        caught_by="a_failure_is_told_to_all_who_waited_and_not_kept",
        passes=("threads_compute_it_once", "coroutines_compute_it_once"),
    ),
    CacheFault(
        "whoever waits waits for ever",
        "Cache.get",
        old="wait([entry], self._patience)",
        new="wait([entry])",
        caught_by="one_that_hangs_holds_up_nobody_for_ever",
        passes=("threads_compute_it_once", "a_failure_is_told_to_all_who_waited_and_not_kept"),
    ),
    CacheFault(
        "coroutines look first, and compute where nothing is there",
        "Cache.get_async",
        old="    while True:\n",
        new="    if key not in self._entries or not self._entries[key].done():\n"
        "        value, entry = await compute(), Future()\n"
        "        entry.set_result(value)\n"
        "        self._entries[key] = entry\n"
        "    while True:\n",
        caught_by="coroutines_compute_it_once",
        passes=("threads_compute_it_once", "what_is_there_is_not_computed_again"),
    ),
    CacheFault(
        "nobody hears the exception that all were told",
        "_done",
        old="        waiting.add_done_callback(asyncio.Future.exception)",
        new="        waiting",
        caught_by="a_failure_in_a_coroutine_is_not_kept",
        passes=("coroutines_compute_it_once", "who_is_cancelled_passes_its_turn_on"),
    ),
    CacheFault(
        "one is cancelled, and all are",
        "Cache._computing",
        old="error if isinstance(error, Exception) else _Abandoned()",
        new="error",
        caught_by="who_is_cancelled_passes_its_turn_on",
        passes=("a_failure_in_a_coroutine_is_not_kept", "coroutines_compute_it_once"),
    ),
    CacheFault(
        "each turn that is passed on is a call deeper",
        "Cache.get_async",
        old="with suppress(_Abandoned):\n            return entry.result()",
        new="try:\n            return entry.result()\n        except _Abandoned:\n"
        "            return await self.get_async(key, compute)",
        caught_by="a_turn_is_passed_on_any_number_of_times",
        passes=("who_is_cancelled_passes_its_turn_on",),
    ),
    CacheFault(
        "who stops waiting cancels the entry",
        "_done",
        old="asyncio.wait([waiting], timeout=seconds)",
        new="asyncio.wait_for(waiting, seconds)",
        caught_by="who_stops_waiting_stops_nobody_else",
        passes=("coroutines_compute_it_once", "threads_and_coroutines_share_an_entry"),
    ),
    CacheFault(
        "coroutines have entries of their own",
        "Cache.get_async",
        old="    while True:\n",
        new="    key = ('async', key)\n    while True:\n",
        caught_by="threads_and_coroutines_share_an_entry",
        passes=("coroutines_compute_it_once", "threads_compute_it_once"),
    ),
)
