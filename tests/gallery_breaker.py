"""Wrong circuit breakers: ours with one planted fault each, those of the article's own among them."""

from __future__ import annotations

from functools import partial

from tests.gallery import Fault

BreakersFault = partial(Fault, check="breaker", of="CircuitBreakers", module="chapters.ch21_circuit_breaker")
GuardFault = partial(Fault, check="breaker_guard", of="breaker", module="chapters.ch21_circuit_breaker")

_ALWAYS = "        if holds(before, event, settings):\n"
_BEFORE = "    for _, _, _, holds, target, becomes in"
_FINALLY = """\
        finally:
            for permit in held:
                breakers.report(permit, outcome)
"""

#: The breakers: what they count, when they change, whose they are.
BREAKER_FAULTS: tuple[Fault, ...] = (
    BreakersFault(
        "EA45, C01: half open lets every caller through",
        "seconds_left",
        old="breaker.state is CLOSED",
        new="breaker.state is not OPEN",
        caught_by="one_probe_at_a_time",
        passes=("it_opens_at_the_threshold", "a_good_probe_closes"),
    ),
    BreakersFault(
        "EA46: a failed probe leaves it half open, with its slot free",
        "step",
        old=_BEFORE,
        new="    if state is HALF_OPEN and event.kind is FAILED:\n"
        "        return before._replace(era=era + 1, until=event.at)\n" + _BEFORE,
        caught_by="a_failed_probe_opens_again",
        passes=("one_probe_at_a_time", "a_probe_that_says_nothing_frees_the_slot"),
    ),
    BreakersFault(
        "C01: a failed probe opens again with what was left of the old recovery time",
        "step",
        old=_BEFORE,
        new="    if state is HALF_OPEN and event.kind is FAILED:\n"
        "        return Breaker(OPEN, before.failures, era + 1, before.until)\n" + _BEFORE,
        caught_by="a_failed_probe_opens_again",
        passes=("one_probe_at_a_time",),
    ),
    BreakersFault(
        "a good probe closes, and the next failure opens again",
        "step",
        old=_BEFORE,
        new="    if state is HALF_OPEN and event.kind is SUCCEEDED:\n"
        "        return Breaker(CLOSED, before.failures - 1, era + 1)\n" + _BEFORE,
        caught_by="a_good_probe_closes",
        passes=("one_probe_at_a_time", "a_probe_that_says_nothing_frees_the_slot"),
    ),
    BreakersFault(
        "the probe's slot is lent for less than a recovery time",
        "step",
        old=_BEFORE,
        new="    if event.kind is ASKED and state is not CLOSED and not event.at < before.until:\n"
        "        return Breaker(HALF_OPEN, before.failures, era + 1, event.at + 0.75 * settings.recovery)\n"
        + _BEFORE,
        caught_by="it_follows_the_rows",
        passes=("one_probe_at_a_time", "a_lost_probe_blocks_nobody_for_ever"),
    ),
    BreakersFault(
        "EA47: a success clears every tool whose name begins alike",
        "CircuitBreakers._read_notes",
        old="            store.records[name] = after\n",
        new="            alike = [other for other in store.records if other.startswith(name)]\n"
        "            store.records.update(dict.fromkeys(alike if outcome is SUCCEEDED else [], after))\n"
        "            store.records[name] = after\n",
        caught_by="names_are_exact",
        passes=("a_success_clears_the_count", "a_good_probe_closes"),
    ),
    BreakersFault(
        "C07: what stands before a colon is taken for the name",
        "CircuitBreakers.admit",
        old="    store = self.store\n",
        new='    store, name = self.store, name.partition(":")[0]\n',
        caught_by="names_are_exact",
    ),
    BreakersFault(
        "C07: breakers made anew reset the store that they are given",
        "CircuitBreakers.__init__",
        old="store or Store()",
        new="Store()",
        caught_by="a_store_is_shared",
    ),
    BreakersFault(
        "EA48: it opens at one failure too many",
        "step",
        old=_ALWAYS,
        new="        if holds(before._replace(failures=before.failures - 1), event, settings):\n",
        caught_by="it_opens_at_the_threshold",
    ),
    BreakersFault(
        "a success does not clear the count",
        "step",
        old=_BEFORE,
        new="    if state is CLOSED and event.kind is SUCCEEDED:\n        return before\n" + _BEFORE,
        caught_by="a_success_clears_the_count",
        passes=("it_opens_at_the_threshold", "a_good_probe_closes"),
    ),
    BreakersFault(
        "what says nothing about the tool clears the count like a success",
        "step",
        old=_BEFORE,
        new="    if state is CLOSED and event.kind is RELEASED:\n        return before._replace(failures=0)\n"
        + _BEFORE,
        caught_by="what_says_nothing_counts_as_nothing",
        passes=("it_opens_at_the_threshold", "a_probe_that_says_nothing_frees_the_slot"),
    ),
    BreakersFault(
        "EA49: the interval is taken from the clock on the wall",
        "CircuitBreakers.admit",
        old="at, before = self.clock(),",
        new="at, before = time.time(),",
        caught_by="it_refuses_at_once_and_says_how_long",
        passes=("it_opens_at_the_threshold",),
    ),
    BreakersFault(
        "C02: a cancelled probe keeps its slot",
        "step",
        old=_BEFORE,
        new="    if event.kind is RELEASED:\n        return before\n" + _BEFORE,
        caught_by="a_probe_that_says_nothing_frees_the_slot",
        passes=("what_says_nothing_counts_as_nothing", "a_lost_probe_blocks_nobody_for_ever"),
    ),
    BreakersFault(
        "C02: a probe that is never heard of again keeps its slot for ever",
        "step",
        old=_BEFORE,
        new="    if event.kind is ASKED and state is not CLOSED and not event.at < before.until:\n"
        "        return Breaker(HALF_OPEN, before.failures, era + 1, 1e300)\n" + _BEFORE,
        caught_by="a_lost_probe_blocks_nobody_for_ever",
        passes=("one_probe_at_a_time", "a_probe_that_says_nothing_frees_the_slot"),
    ),
    BreakersFault(
        "C04: an outcome counts as often as it is told",
        "CircuitBreakers._read_notes",
        old="store.permits.pop(permit)",
        new="store.permits[permit]",
        caught_by="each_outcome_counts_once",
        passes=("it_opens_at_the_threshold", "a_late_outcome_changes_nothing"),
    ),
    BreakersFault(
        "a late success closes it",
        "step",
        old="        return before\n    for",
        new="        return Breaker(era=era + 1) if event.kind is SUCCEEDED else before\n    for",
        caught_by="a_late_outcome_changes_nothing",
        passes=("one_probe_at_a_time", "a_failed_probe_opens_again"),
    ),
    BreakersFault(
        "a late failure puts the recovery off",
        "step",
        old="        return before\n    for",
        new="        late = event.kind is FAILED and state is OPEN\n"
        "        return before._replace(until=event.at + settings.recovery) if late else before\n    for",
        caught_by="a_late_outcome_changes_nothing",
        passes=("it_opens_at_the_threshold",),
    ),
    BreakersFault(
        "a permit of another process is as good as one of ours",
        "Store.__init__",
        old="uuid.uuid4().hex",
        new='"permit"',
        caught_by="a_strange_permit_changes_nothing",
        passes=("each_outcome_counts_once",),
    ),
    BreakersFault(
        "every name that a model makes up is kept",
        "CircuitBreakers.admit",
        old="        if after is not before:\n",
        new="        if True:\n",
        caught_by="a_name_that_is_no_tool_leaves_no_trace",
        passes=("names_are_exact",),
    ),
    BreakersFault(
        "C06: nothing is locked, since the lock lets everybody in",
        "Store.__init__",
        old="threading.Lock()",
        new="threading.Semaphore(1000)",
        caught_by="no_failure_is_lost",
        passes=("it_opens_at_the_threshold", "names_are_exact"),
    ),
    BreakersFault(
        "C01: nothing is locked where calls are let through",
        "CircuitBreakers.admit",
        old="    with store.lock:\n",
        new="    if True:\n",
        caught_by="one_probe_whichever_thread_asks",
        passes=("one_probe_at_a_time",),
    ),
    BreakersFault(
        "C06: the lock is held while the call runs",
        "CircuitBreakers.admit",
        old="    with store.lock:\n",
        new="    store.lock.acquire()\n    if True:\n",
        caught_by="nobody_waits_during_a_call",
    ),
)

#: The guard: what it takes for a failure, and what it does at an end.
BREAKER_GUARD_FAULTS: tuple[Fault, ...] = (
    GuardFault(
        "EA44: timeouts never open it",
        "meaning",
        old="in NOT_THE_TOOLS_FAULT",
        new="in (*NOT_THE_TOOLS_FAULT, Kind.TIMEOUT)",
        caught_by="a_timeout_counts_once",
        passes=("a_replay_leaves_the_breaker_alone",),
    ),
    GuardFault(
        "EA51: only one kind of failure is counted",
        "meaning",
        old="RELEASED if observation.kind in NOT_THE_TOOLS_FAULT else FAILED",
        new="FAILED if observation.kind is Kind.TOOL_ERROR else RELEASED",
        caught_by="each_kind_counts_for_what_it_says",
        passes=("an_open_breaker_keeps_the_call_back",),
    ),
    GuardFault(
        "EA54: a failure that is told by value is a success",
        "meaning",
        old="if observation.ok:",
        new="if observation.ok or observation.kind is Kind.RESULT:",
        caught_by="each_kind_counts_for_what_it_says",
        passes=("a_timeout_counts_once",),
    ),
    GuardFault(
        "C04: the model's mistakes open it",
        "meaning",
        old="RELEASED if observation.kind in NOT_THE_TOOLS_FAULT else FAILED",
        new="FAILED",
        caught_by="each_kind_counts_for_what_it_says",
        passes=("a_timeout_counts_once",),
    ),
    GuardFault(
        "EA50, EA56: each loop has breakers of its own",
        "breaker",
        old="    def guarded(",
        new="    breakers = CircuitBreakers(breakers.settings, clock=breakers.clock)\n\n    def guarded(",
        caught_by="loops_share_what_they_learn",
        passes=("what_came_is_handed_on",),
    ),
    GuardFault(
        "EA47: all tools share one breaker",
        "breaker",
        old="breakers.admit(call.name)",
        new='breakers.admit("get_weather")',
        caught_by="each_call_asks_for_its_own_tool",
        passes=("loops_share_what_they_learn",),
    ),
    GuardFault(
        "C02: only an Exception gives the slot back, and cancellation is none",
        "breaker",
        old=_FINALLY,
        new=_FINALLY.replace("finally:", "except Exception:") + "            raise\n",
        caught_by="a_probe_that_is_broken_off_gives_its_slot_back",
        passes=("each_kind_counts_for_what_it_says",),
    ),
    GuardFault(
        "a call that is broken off counts as a failure",
        "breaker",
        old="outcome = RELEASED\n",
        new="outcome = FAILED\n",
        caught_by="a_probe_that_is_broken_off_gives_its_slot_back",
        passes=("each_kind_counts_for_what_it_says",),
    ),
    GuardFault(
        "a program that is closed waits for the lock",
        "breaker",
        old="                breakers.report(permit, outcome)",
        new="                with breakers.store.lock:\n                    breakers.report(permit, outcome)",
        caught_by="a_program_can_be_closed_while_the_lock_is_held",
        passes=("a_probe_that_is_broken_off_gives_its_slot_back",),
    ),
    GuardFault(
        "an observation is lost where its outcome cannot be told any more",
        "breaker",
        old="(LimitReached, Interrupted, EffectFailed):\n                pass",
        new="ZeroDivisionError:\n                pass",
        caught_by="what_was_observed_is_kept_at_the_end",
        passes=("a_probe_that_is_broken_off_gives_its_slot_back",),
    ),
    GuardFault(
        "a replay touches the breaker, with permits that it never gave",
        "breaker",
        old="            observation: Observation =",
        new="            held.append(admitted)\n            observation: Observation =",
        caught_by="a_replay_leaves_the_breaker_alone",
        passes=("a_probe_that_is_broken_off_gives_its_slot_back",),
    ),
    GuardFault(
        "the breaker is asked behind the journal's back",
        "breaker",
        old='(yield Do(f"ask the breaker of {call.name}", ask, repeatable=True)).value',
        new="ask()",
        caught_by="a_replay_leaves_the_breaker_alone",
        passes=("each_kind_counts_for_what_it_says",),
    ),
    GuardFault(
        "nobody is told how long to wait",
        "_refused",
        old="Kind.UNAVAILABLE, seconds)",
        new="Kind.UNAVAILABLE)",
        caught_by="an_open_breaker_keeps_the_call_back",
    ),
    GuardFault(
        "a store that fails ends the run",
        "breaker",
        old="except EffectFailed as failed:",
        new="except ZeroDivisionError as failed:",
        caught_by="breakers_that_break_are_no_bug_of_the_loop",
    ),
    GuardFault(
        "a wrapped function is taken for a program",
        "breaker",
        old="settle(act(call))",
        new="act(call)",
        caught_by="what_came_is_handed_on",
    ),
    GuardFault(
        "telling is put off until the end, where no journal sees it",
        "breaker",
        old='yield Do(f"tell the breaker of {call.name}: {outcome.name}", tell, repeatable=True)',
        new="tell()",
        caught_by="it_costs_two_effects_and_one_where_it_refuses",
        passes=("each_kind_counts_for_what_it_says",),
    ),
)
