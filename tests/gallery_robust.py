"""Wrong versions of the robust loop: ours with one guard left out, made blunt or put to a wrong use."""

from __future__ import annotations

from functools import partial

from tests.gallery import Fault

RobustFault = partial(
    Fault, function="guards", check="robust", of="robust_loop", module="chapters.ch24_five_failure_modes"
)
RobustLoopFault = partial(RobustFault, function="robust_loop")

ROBUST_FAULTS: tuple[Fault, ...] = (
    RobustFault(
        "no call is tried again",
        old="retry(act, idempotent=s.tools.is_idempotent, patience=s.patience)",
        new="act",
        caught_by="what_flickers_is_tried_again",
        passes=("a_tool_that_is_down_is_replaced",),
    ),
    RobustFault(
        "the other tool is never asked",
        old="fallback(act, s.alternatives, only_reads=s.only_reads)",
        new="fallback(act, {}, only_reads=s.only_reads)",
        caught_by="a_tool_that_is_down_is_replaced",
        passes=("what_flickers_is_tried_again",),
    ),
    RobustFault(
        "each loop, and each call, has breakers of its own",
        old="breaker(act, s.breakers)",
        new="lambda call: breaker(act, CircuitBreakers())(call)",
        caught_by="a_tool_that_hangs_is_soon_left_alone",
        passes=("a_tool_that_is_down_is_replaced", "what_flickers_is_tried_again"),
    ),
    RobustFault(
        "the first result is believed",
        old="times=s.times, agree=s.agree",
        new="times=1",
        caught_by="results_that_differ_are_not_believed",
        passes=("a_tool_that_hangs_is_soon_left_alone",),
    ),
    RobustFault(
        "the whole history is shown",
        old="summarise(s.window, by=one_line_each)",
        new="whole_history",
        caught_by="a_huge_result_does_not_fill_the_context",
        passes=("results_that_differ_are_not_believed",),
    ),
    RobustFault(
        "an overloaded model costs a round each time",
        old="patient(reason, patience=s.patience)",
        new="reason",
        caught_by="a_model_that_cannot_be_had_is_waited_for",
        passes=("what_flickers_is_tried_again",),
    ),
    RobustFault(
        "who goes round is stopped without a word",
        old="warn_first(repeated_action(), 2), warn_first(repeated_cycle(), 2)",
        new="repeated_action(), repeated_cycle()",
        caught_by="who_goes_round_is_told_so_first",
        passes=("who_does_not_listen_is_stopped",),
    ),
    RobustFault(
        "only the same round over and over is noticed, not A-B-A-B",
        old="warn_first(repeated_action(), 2), warn_first(repeated_cycle(), 2)",
        new="warn_first(repeated_action(window=3), 2)",
        caught_by="who_goes_round_is_told_so_first",
        passes=("who_does_not_listen_is_stopped",),
    ),
    RobustFault(
        "who goes round is warned, and warned, and warned",
        old="warn_first(repeated_action(), 2)",
        new="warn_first(repeated_action(), 200)",
        caught_by="who_does_not_listen_is_stopped",
        passes=("who_goes_round_is_told_so_first",),
    ),
    RobustFault(
        "any answer will do as long as its facts were shown",
        old="(*checks, s.goal)",
        new="checks",
        caught_by="an_answer_needs_a_look",
        passes=("an_answer_needs_facts",),
    ),
    RobustLoopFault(
        "only the first check is asked",
        old="all_of(*checks) if checks",
        new="checks[0] if checks",
        caught_by="an_answer_needs_facts",
        passes=("an_answer_needs_a_look",),
    ),
    RobustFault(
        "what is made up is only refused, and the model believes in it",
        old="(*rules, corrective(3))",
        new="rules",
        caught_by="what_is_made_up_is_corrected",
        passes=("an_answer_needs_facts", "who_goes_round_is_told_so_first"),
    ),
    RobustFault(
        "corrections have no end",
        old="corrective(3)",
        new="corrective(1000)",
        caught_by="who_makes_up_more_and_more_is_stopped",
        passes=("what_is_made_up_is_corrected",),
    ),
    RobustFault(
        "a stated doubt is read by nobody",
        old="confident(reason, threshold=0.6, samples=3)",
        new="reason",
        caught_by="a_guess_is_not_acted_on",
        passes=("an_answer_needs_facts",),
    ),
    RobustFault(
        "who asks for approval asks about the tools with an alternative alone",
        old="approval(act, s.dangerous)",
        new="approval(act, lambda call: s.dangerous(call) if call.name in s.alternatives else None)",
        caught_by="nothing_dangerous_is_done_without_a_yes",
        passes=("an_answer_needs_a_look",),
    ),
    RobustLoopFault(
        "limits are ten times as wide, to be on the safe side",
        old="limits=guarded(Place.LIMITS, WIDE)",
        new="limits=replace(guarded(Place.LIMITS, WIDE), rounds=10 * situation.limits.rounds)",
        caught_by="it_ends_within_its_limits_and_says_why",
        passes=("who_does_not_listen_is_stopped",),
    ),
    RobustLoopFault(
        "a check that breaks down lets the answer pass, and a bug is never heard of",
        old="    checks = guarded(Place.ACCEPT, ())\n",
        new=(
            "    def quiet(check):\n"
            "        def asked(context, answer):\n"
            "            try:\n"
            "                objection = check(context, answer)\n"
            "                return (yield from objection) if hasattr(objection, 'send') else objection\n"
            "            except KeyError:\n"
            "                return None\n"
            "        return asked\n"
            "    checks = tuple(map(quiet, guarded(Place.ACCEPT, ())))\n"
        ),
        caught_by="a_bug_ends_the_run_with_what_there_is",
        passes=("an_answer_needs_a_look", "an_answer_needs_facts"),
    ),
    RobustLoopFault(
        "rounds are counted over all runs of a loop",
        old="        stops=guarded(Place.STOPS, ()),\n",
        new=(
            "        stops=(*guarded(Place.STOPS, ()), lambda control, context, seen=[]: (\n"
            "            seen.append(1) or (StopReason.STAGNATED if len(seen) > 14 else None))),\n"
        ),
        caught_by="runs_share_nothing",
        passes=("who_does_not_listen_is_stopped",),
    ),
)
