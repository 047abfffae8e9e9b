"""Wrong versions of the rules of chapter 17: ours with one planted fault each, the articles' among them."""

from __future__ import annotations

from functools import partial

from tests import check_cycle, check_stop_rule
from tests.gallery import Fault

_RuleFault = partial(Fault, module="chapters.ch17_repetition_and_convergence")
RepetitionFault = partial(_RuleFault, check="repetition", of="repeated_action")
CycleFault = partial(_RuleFault, check="cycle", of="repeated_cycle")
SimilarityFault = partial(_RuleFault, check="similarity", of="text_ratio")
StagnationFault = partial(_RuleFault, check="stagnation", of="stagnated")
WarningFault = partial(_RuleFault, check="warning", of="warn_first")

REPETITION_FAULTS: tuple[Fault, ...] = (
    RepetitionFault(
        "L01: the order of arguments counts",
        "_written",
        old="sorted(entries)",
        new="entries",
        caught_by="the_order_of_arguments_does_not_count",
        passes=("the_kth_repeat_stops_and_none_before", "polling_whose_results_change_is_left_alone"),
    ),
    RepetitionFault(
        "L01: only the arguments' own order is put right, not that inside of them",
        "_written",
        old="{_written(each)}",
        new="{each!r}",
        caught_by="the_order_of_arguments_does_not_count",
    ),
    RepetitionFault(
        "L01: a batch is counted by its first call",
        "_done",
        old="zip(turn.calls, turn.observations, strict=True)",
        new="zip(turn.calls[:1], turn.observations)",
        caught_by="a_batch_is_counted_call_by_call",
        passes=("the_kth_repeat_stops_and_none_before",),
    ),
    RepetitionFault(
        "a threshold is taken that no window can hold",
        "_require_window",
        old="window, times)",
        new="window, 1)",
        caught_by="a_threshold_it_takes_is_one_it_reaches",
        passes=("the_kth_repeat_stops_and_none_before",),
    ),
    RepetitionFault(
        "one repeat too many",
        "_Repetition.__call__",
        old=">= self._times",
        new="> self._times",
        caught_by="the_kth_repeat_stops_and_none_before",
    ),
    RepetitionFault(
        "one repeat too few",
        "_Repetition.__call__",
        old=">= self._times",
        new=">= self._times - 1",
        caught_by="the_kth_repeat_stops_and_none_before",
    ),
    RepetitionFault(
        "L03, EB15: the stricter rule under the other's name stops polling",
        "repeated_action",
        old="_with_result",
        new="_whatever_came",
        caught_by="polling_whose_results_change_is_left_alone",
        passes=("the_kth_repeat_stops_and_none_before", "a_batch_is_counted_call_by_call"),
    ),
    RepetitionFault(
        "EB15: only what follows directly is a repeat",
        "repeated_action",
        old="times, window))",
        new="times, 1))",
        caught_by="the_kth_repeat_stops_and_none_before",
    ),
    RepetitionFault(
        "nothing is ever forgotten",
        "_Repetition.__call__",
        old="len(self._rounds) > self._window",
        new="False",
        caught_by="what_is_long_past_is_forgotten",
        passes=("the_kth_repeat_stops_and_none_before", "coming_back_to_it_is_counted"),
    ),
    RepetitionFault(
        "a success and a failure that read the same are the same",
        "_with_result",
        old="seen.kind, ",
        new="",
        caught_by="what_differs_is_not_the_same",
    ),
    RepetitionFault(
        "values are compared by how they print",
        "_written",
        old="return repr(value)",
        new="return str(value)",
        caught_by="what_differs_is_not_the_same",
    ),
    RepetitionFault(
        "a reply that cannot be read is an action",
        "_done",
        old=" if call.problem is None",
        new="",
        caught_by="what_is_no_action_is_not_counted",
    ),
    RepetitionFault(
        "a round is stopped for what earlier ones did",
        "_Repetition.__call__",
        old="for mark in self._rounds[-1]",
        new="for mark in self._counts",
        caught_by="something_new_is_judged_anew",
        passes=("the_kth_repeat_stops_and_none_before", "coming_back_to_it_is_counted"),
    ),
    RepetitionFault(
        "all runs share one watcher",
        "_looking",
        old="    def rule(",
        new="    one = watcher()\n\n    def watcher() -> Look:\n        return one\n\n    def rule(",
        caught_by="runs_share_nothing",
    ),
    RepetitionFault(
        "a counter of the module counts for all rules",
        "_Repetition._count",
        old="step: int) -> None:\n",
        new="step: int, counts: Any = {}) -> None:\n    self._counts = counts\n",
        caught_by="runs_share_nothing",
    ),
    RepetitionFault(
        "what cannot be written brings the rule down",
        "canonical",
        old="except Exception:",
        new="except KeyError:",
        caught_by="odd_rounds_do_not_crash_it",
    ),
    RepetitionFault(
        "the whole history is read again each round",
        "_looking",
        old="context.private.get(rule) or (watcher(), 0, None)",
        new="(watcher(), 0, None)",
        caught_by="an_old_turn_is_not_read_again",
        passes=("the_kth_repeat_stops_and_none_before", "runs_share_nothing"),
    ),
    RepetitionFault(
        "EB15: whatever is done in between, the count begins anew",
        "_Repetition.__call__",
        old="    self._rounds.append(_done(turn, self._mark))\n",
        new="    done = _done(turn, self._mark)\n"
        "    if self._rounds and done != self._rounds[-1]:\n"
        "        self._rounds.clear()\n"
        "        self._counts.clear()\n"
        "    self._rounds.append(done)\n",
        caught_by="coming_back_to_it_is_counted",
        passes=("the_kth_repeat_stops_and_none_before", "what_is_long_past_is_forgotten"),
    ),
    RepetitionFault(
        "the same tool is the same action, whatever it is asked",
        "_with_result",
        old="return canonical(call), seen.kind, seen.text",
        new="return call.name",
        caught_by="honest_work_is_left_alone",
        passes=("the_kth_repeat_stops_and_none_before", "a_stuck_run_is_stopped"),
    ),
    RepetitionFault(
        "it gives a limit for its reason",
        "_Repetition.__call__",
        old="return StopReason.REPEATED_ACTION if",
        new="return StopReason.MAX_ITERATIONS if",
        caught_by="a_stuck_run_is_stopped",
        passes=("honest_work_is_left_alone",),
    ),
)

CYCLE_FAULTS: tuple[Fault, ...] = (
    CycleFault(
        "EB15: a cycle of two is all that is looked for",
        "_goes_round",
        old="    cycle =",
        new="    period = 2\n    cycle =",
        caught_by="a_cycle_that_comes_twice_is_stopped",
    ),
    CycleFault(
        "one round over and over is a cycle too",
        "_goes_round",
        old="len(set(cycle)) > 1 and ",
        new="",
        caught_by="any_behaviour_is_judged_by_its_last_rounds",
    ),
    CycleFault(
        "calls are compared without their results",
        "repeated_cycle",
        old="_with_result",
        new="_whatever_came",
        caught_by="a_cycle_whose_results_change_is_left_alone",
        passes=("any_behaviour_is_judged_by_its_last_rounds",),
    ),
    CycleFault(
        "the calls of a batch are rounds of their own",
        "repeated_cycle",
        old="rounds.append(done)",
        new="rounds.extend(done)",
        caught_by="a_round_is_all_that_was_done_in_it",
        passes=("any_behaviour_is_judged_by_its_last_rounds",),
    ),
    CycleFault(
        "a reply that cannot be read is a round of the cycle",
        "repeated_cycle",
        old="            if not done:\n                return None\n",
        new="",
        caught_by="what_is_no_action_is_passed_over",
        passes=("any_behaviour_is_judged_by_its_last_rounds",),
    ),
    CycleFault(
        "a cycle must come three times",
        "_goes_round",
        old="    cycle =",
        new="    times += 1\n    cycle =",
        caught_by="a_cycle_that_comes_twice_is_stopped",
    ),
    CycleFault(
        "a cycle that comes once is one",
        "_goes_round",
        old="    cycle =",
        new="    times = 1\n    cycle =",
        caught_by="honest_work_is_left_alone",
    ),
    *(  # what both rules share
        fault._replace(name=f"cycle: {fault.name}", check="cycle", of="repeated_cycle", passes=())
        for fault in REPETITION_FAULTS
        if fault.function in ("_looking", "canonical") and fault.caught_by in check_cycle.PROMISES
    ),
)

#: What any rule of the chapter promises, and the faults of one of them that break it.
STOP_RULE_FAULTS: tuple[Fault, ...] = tuple(
    fault._replace(name=f"any rule: {fault.name}", check="stop_rule", passes=())
    for fault in REPETITION_FAULTS
    if fault.caught_by in check_stop_rule.PROMISES
)

SIMILARITY_FAULTS: tuple[Fault, ...] = (
    SimilarityFault(
        "the upper bound is taken for the ratio",
        "text_ratio",
        old=" and matcher.ratio() >= least",
        new="",
        caught_by="the_same_letters_are_not_the_same_text",
        passes=("a_text_is_like_itself",),
    ),
    SimilarityFault(
        "what is frequent in a long text is left out",
        "text_ratio",
        old=", autojunk=False",
        new="",
        caught_by="frequent_letters_count_too",
        passes=("a_text_is_like_itself", "the_same_letters_are_not_the_same_text"),
    ),
    SimilarityFault(
        "any ratio will do",
        "text_ratio",
        old="matcher.ratio() >= least",
        new="matcher.ratio() > 0",
        caught_by="the_same_letters_are_not_the_same_text",
    ),
    SimilarityFault(
        "only the same text is alike",
        "text_ratio",
        old="    return alike",
        new="    return str.__eq__",
        caught_by="a_small_change_is_alike_and_another_text_is_not",
        passes=("a_text_is_like_itself", "a_higher_threshold_is_harder_to_reach"),
    ),
    SimilarityFault(
        "fingerprints of single letters",
        "_fingerprint",
        old="start : start + PIECE",
        new="start : start + 1",
        caught_by="the_same_letters_are_not_the_same_text",
        of="fingerprints",
    ),
    SimilarityFault(
        "only the beginning of a long text is compared",
        "_ends",
        old="text[: length // 2] + text[-length // 2 :]",
        new="text[:length]",
        caught_by="short_texts_and_both_ends_of_long_ones_count",
        passes=("a_text_is_like_itself", "a_small_change_is_alike_and_another_text_is_not"),
    ),
    SimilarityFault(
        "a text that is shorter than a piece has no fingerprint",
        "_fingerprint",
        old="max(1, len(part) - PIECE + 1)",
        new="len(part) - PIECE + 1",
        caught_by="short_texts_and_both_ends_of_long_ones_count",
        of="fingerprints",
    ),
    SimilarityFault(
        "a lone surrogate brings the hash down",
        "_hash",
        old='"utf-8", "surrogatepass"',
        new='"utf-8"',
        caught_by="a_text_is_like_itself",
        of="fingerprints",
    ),
    SimilarityFault(
        "the threshold is read as how much may differ",
        "text_ratio",
        old="matcher.quick_ratio() >= least and matcher.ratio() >= least",
        new="matcher.ratio() >= 1 - least",
        caught_by="a_higher_threshold_is_harder_to_reach",
        passes=("a_text_is_like_itself", "frequent_letters_count_too"),
    ),
)

STAGNATION_FAULTS: tuple[Fault, ...] = (
    StagnationFault(
        "a gain that is just large enough is none",
        "stagnated",
        old="found is not None and (best is None or (found > best and found - best >= least_gain))",
        new="found is not None and (best is None or not found - best <= least_gain)",
        caught_by="too_small_a_gain_is_none_and_small_gains_add_up",
    ),
    StagnationFault(
        "what is no number brings the rule down",
        "_judged",
        old="found if is_number(found) else None",
        new="found",
        caught_by="what_is_no_number_is_no_improvement",
        passes=("it_stops_when_its_patience_is_used_up",),
    ),
    StagnationFault(
        "a judge that fails brings the rule down",
        "_judged",
        old="except EffectFailed:",
        new="except KeyError:",
        caught_by="what_is_no_number_is_no_improvement",
        passes=("it_stops_when_its_patience_is_used_up",),
    ),
    StagnationFault(
        "each value is compared with the last one, not with the best",
        "stagnated",
        old="            else:\n                idle += 1\n",
        new="            else:\n                best, idle = found, idle + 1\n",
        caught_by="it_stops_when_its_patience_is_used_up",
    ),
    StagnationFault(
        "as good as the best is an improvement",
        "stagnated",
        old="found > best and ",
        new="",
        caught_by="it_stops_when_its_patience_is_used_up",
    ),
    StagnationFault(
        "one round of patience too many",
        "stagnated",
        old="idle >= patience",
        new="idle > patience",
        caught_by="it_stops_when_its_patience_is_used_up",
    ),
    StagnationFault(
        "the best is kept with the rule, for all runs",
        "stagnated",
        old="        best, idle, judged =",
        new="        context.private = vars(rule)\n        best, idle, judged =",
        caught_by="runs_share_nothing",
    ),
)

WARNING_FAULTS: tuple[Fault, ...] = (
    WarningFault(
        "EB15: a hit stops at once",
        "warn_first",
        old="warned > times",
        new="warned > 0",
        caught_by="it_warns_first_and_then_stops",
    ),
    WarningFault(
        "it warns for ever",
        "warn_first",
        old="verdict if warned > times else ",
        new="",
        caught_by="it_warns_first_and_then_stops",
    ),
    WarningFault(
        "nothing is forgiven",
        "warn_first",
        old="            context.private[warning] = 0\n",
        new="",
        caught_by="a_change_is_forgiven",
        passes=("it_warns_first_and_then_stops",),
    ),
    WarningFault(
        "what the rule says itself is lost",
        "warn_first",
        old="            return verdict\n",
        new="            return None\n",
        caught_by="any_rule_may_be_wrapped",
        passes=("it_warns_first_and_then_stops",),
    ),
    WarningFault(
        "a rule that is a program is not run",
        "warn_first",
        old="yield from settle(rule(control, context))",
        new="rule(control, context)\n        yield from ()",
        caught_by="any_rule_may_be_wrapped",
        passes=("it_warns_first_and_then_stops", "a_change_is_forgiven"),
    ),
    WarningFault(
        "the warnings of all runs are counted together",
        "warn_first",
        old="        warned = context.private[warning] = context.private.get(warning, 0) + 1\n",
        new="        warned = vars(warning)['n'] = vars(warning).get('n', 0) + 1\n",
        caught_by="runs_share_nothing",
    ),
    WarningFault(
        "a warning does not say why",
        "warn_first",
        old='advice.replace("{reason}", verdict.value)',
        new="advice",
        caught_by="the_warning_says_why",
    ),
)
