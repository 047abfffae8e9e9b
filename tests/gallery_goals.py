"""Wrong versions of what ends a run (chapters 15 and 16): ours with one planted fault each."""

from __future__ import annotations

from functools import partial

from tests.gallery import Fault

_Goal = partial(Fault, module="chapters.ch15_goal_detection")
FormFault = partial(_Goal, check="form", of="has_form")
VerifiedFault = partial(_Goal, function="verified", check="verified", of="verified")
RefusalFault = partial(_Goal, function="refused_too_often", check="refusals", of="refused_too_often")
AllFault = partial(_Goal, function="all_of", check="all_of", of="all_of")
EndFault = partial(_Goal, function="ends_when", check="ends_when", of="ends_when")
SizedFault = partial(Fault, function="sized", check="sized", of="sized", module="chapters.ch16_hard_limits")

GOAL_FAULTS: tuple[Fault, ...] = (
    FormFault(
        "JSON anywhere in the answer is taken for the answer",
        function="_fields",
        old="read_json(text)",
        new='read_json(text, max(text.find("{"), 0))',
        caught_by="what_does_not_fit_is_refused",
        passes=("what_fits_passes", "any_answer_that_fits_passes"),
    ),
    FormFault(
        "what stands after the object is not looked at",
        function="_fields",
        old="        must_end(text, end)\n",
        new="",
        caught_by="what_does_not_fit_is_refused",
        passes=("no_half_of_an_object_passes",),
    ),
    FormFault(
        "half an object is completed",
        function="_fields",
        old="else read_json(text)",
        new='else read_json(text if text[-1:] == "}" else text + "]}")',
        caught_by="no_half_of_an_object_passes",
        passes=("any_answer_that_fits_passes",),
    ),
    FormFault(
        "complete JSON of any kind will do",
        function="has_form",
        old="read_form(form, answer)",
        new="_fields(answer)",
        caught_by="what_does_not_fit_is_refused",
        passes=("what_fits_passes", "no_half_of_an_object_passes"),
    ),
    FormFault(
        "the form itself is never asked",
        function="read_form",
        old="    value: T = ready()\n    return value\n",
        new="",
        caught_by="what_the_form_raises_is_an_objection",
        passes=("what_does_not_fit_is_refused",),
    ),
    FormFault(
        "what a form raises ends the run",
        function="has_form",
        old="except Exception as error:",
        new="except ValueError as error:",
        caught_by="what_the_form_raises_is_an_objection",
        passes=("what_does_not_fit_is_refused",),
    ),
    FormFault(
        "only JSON on one line is read",
        function="_fields",
        old="str(answer).strip()",
        new='str(answer).partition("\\n")[0]',
        caught_by="what_fits_passes",
        passes=("no_half_of_an_object_passes",),
    ),
    VerifiedFault(
        "a failed call is a look, too",
        old="return observation.ok and",
        new="return",
        caught_by="no_answer_before_a_result",
        passes=("a_result_is_enough",),
    ),
    VerifiedFault(
        "a batch of two calls verifies itself",
        old="sum(any(map(brought, turn.calls, turn.observations)) for turn in context.turns)",
        new="sum(sum(map(brought, turn.calls, turn.observations)) for turn in context.turns)",
        caught_by="one_batch_is_one_look",
        passes=("only_the_named_tools_count", "a_claim_without_a_call_is_no_success"),
    ),
    VerifiedFault(
        "whatever the tool, a call is a call",
        old="(not tools or call.name in tools)",
        new="True",
        caught_by="only_the_named_tools_count",
        passes=("no_answer_before_a_result", "one_batch_is_one_look"),
    ),
    VerifiedFault(
        "the second answer is let through",
        old="if looks >= least:",
        new="if looks >= least or context.turns:",
        caught_by="no_answer_before_a_result",
    ),
    VerifiedFault(
        "L08: an answer that insists is believed",
        old="if looks >= least:",
        new="if looks >= least or sum(not any(map(brought, turn.calls, turn.observations))"
        " for turn in context.turns) > 5:",
        caught_by="a_claim_without_a_call_is_no_success",
        passes=("no_answer_before_a_result", "a_result_is_enough"),
    ),
    VerifiedFault(
        "the model is not told what to call",
        old="{' or '.join(tools) or 'a tool'}",
        new="something",
        caught_by="it_says_which_tool_is_missing",
        passes=("it_counts_as_it_says",),
    ),
    VerifiedFault(
        "the last turn alone counts",
        old="for turn in context.turns)",
        new="for turn in context.turns[-1:])",
        caught_by="a_result_is_enough",
        passes=("no_answer_before_a_result",),
    ),
    VerifiedFault(
        "one look more is wanted from the third look on",
        old="if looks >= least:",
        new="if looks >= least + (least > 2):",
        caught_by="it_counts_as_it_says",
        passes=("a_result_is_enough", "only_the_named_tools_count", "one_batch_is_one_look"),
    ),
    RefusalFault(
        "one refusal too many",
        old="if refused > most",
        new="if refused > most + 1",
        caught_by="it_allows_exactly_so_many",
        passes=("an_accepted_answer_wins",),
    ),
    RefusalFault(
        "only refusals in a row are counted",
        old="            refused += sum(problem.kind is Kind.REFUSED for problem in problems)\n",
        new="            now = sum(problem.kind is Kind.REFUSED for problem in problems)\n"
        "            refused = refused + now if now else 0\n",
        caught_by="it_counts_over_the_run",
        passes=("it_allows_exactly_so_many", "its_ending_is_no_success"),
    ),
    RefusalFault(
        "a reply that cannot be read is taken for a refused answer",
        old="problem.kind is Kind.REFUSED for problem in problems",
        new="True for problem in problems",
        caught_by="it_counts_nothing_else",
        passes=("it_allows_exactly_so_many",),
    ),
    RefusalFault(
        "a refused call is taken for a refused answer",
        old="problems = [call.problem for call in turn.calls if call.problem is not None and not call.name]",
        new="problems = [seen for seen in turn.observations]",
        caught_by="it_counts_nothing_else",
        passes=("it_counts_over_the_run",),
    ),
    RefusalFault(
        "a decision that a guard did not take is taken for a refused answer",
        old=" and not call.name",
        new="",
        caught_by="it_counts_nothing_else",
        passes=("it_allows_exactly_so_many", "it_counts_over_the_run"),
    ),
    RefusalFault(
        "the rule counts for all runs together",
        old="    def rule(control: Control, context: LoopContext) -> StopReason | None:\n",
        new="    shared = {}\n\n    def rule(control, context):\n        context.private = shared\n",
        caught_by="runs_share_nothing",
        passes=("it_counts_over_the_run", "asked_twice_it_counts_once"),
    ),
    RefusalFault(
        "asked twice, it counts twice",
        old="for turn in context.turns[seen:]:",
        new="for turn in context.turns[-1:]:",
        caught_by="asked_twice_it_counts_once",
        passes=("it_allows_exactly_so_many", "it_counts_over_the_run"),
    ),
    RefusalFault(
        "the end is called a success of the outside world",
        old="StopReason.STAGNATED if",
        new="StopReason.EXTERNALLY_DONE if",
        caught_by="it_allows_exactly_so_many",
        passes=("runs_share_nothing",),
    ),
    AllFault(
        "the last objection wins",
        old="for each in checks:",
        new="for each in reversed(checks):",
        caught_by="the_first_objection_wins",
        passes=("it_hands_on_context_and_answer",),
    ),
    AllFault(
        "every check is asked, and paid for, before the first objection is looked for",
        old="        for each in checks:\n"
        "            objection: str | None = yield from settle(each(context, answer))\n",
        new="        said = []\n"
        "        for each in checks:\n"
        "            said.append((yield from settle(each(context, answer))))\n"
        "        for objection in said:\n",
        caught_by="a_later_check_is_not_paid_for",
        passes=("it_hands_on_context_and_answer", "an_empty_objection_is_one"),
    ),
    AllFault(
        "any check that agrees is enough",
        old="if objection is not None:\n                return objection\n        return None",
        new="if objection is None:\n                return None\n        return objection",
        caught_by="the_first_objection_wins",
    ),
    AllFault(
        "empty words are taken for no objection",
        old="if objection is not None:",
        new="if objection:",
        caught_by="an_empty_objection_is_one",
        passes=("the_first_objection_wins",),
    ),
    EndFault(
        "an objection ends the run",
        old="if objection is None else None",
        new="if objection else None",
        caught_by="it_ends_the_run_at_once",
    ),
    EndFault(
        "what is missing is told to the model as a warning",
        old="if objection is None else None",
        new="if objection is None else objection",
        caught_by="what_is_missing_is_no_warning",
        passes=("it_ends_the_run_at_once",),
    ),
    EndFault(
        "a look that is a program is taken for an objection",
        old="yield from settle(check(context, None))",
        new="check(context, None)\n        yield from ()",
        caught_by="it_ends_the_run_at_once",
    ),
    EndFault(
        "the latest observation is taken for an answer",
        old="check(context, None)",
        new="check(context, context.turns[-1].observations[-1].text)",
        caught_by="it_is_asked_about_no_answer",
        passes=("it_ends_the_run_at_once",),
    ),
    FormFault(
        "a field that is empty counts as missing",
        function="_fields",
        old="    if not isinstance(fields, Mapping):\n",
        new="    if isinstance(fields, Mapping):\n"
        "        fields = {name: value for name, value in fields.items() if value}\n"
        "    if not isinstance(fields, Mapping):\n",
        caught_by="any_answer_that_fits_passes",
        passes=("what_fits_passes", "what_does_not_fit_is_refused"),
    ),
    FormFault(
        "of a list each answer is looked at, and so of an empty one nothing",
        function="has_form",
        old="            read_form(form, answer)\n",
        new="            listed = answer.startswith('[')\n"
        "            for each in read_json(answer)[0] if listed else [answer]:\n"
        "                read_form(form, each)\n",
        caught_by="it_says_something_of_everything",
        passes=("what_does_not_fit_is_refused", "what_the_form_raises_is_an_objection"),
    ),
    RefusalFault(
        "one refusal too few",
        old="if refused > most",
        new="if refused >= most",
        caught_by="an_accepted_answer_wins",
    ),
    RefusalFault(
        "a call that fails forgives the answers that were refused before it",
        old="            refused += sum(problem.kind is Kind.REFUSED for problem in problems)\n",
        new="            refused += sum(problem.kind is Kind.REFUSED for problem in problems)\n"
        "            if not problems and not all(seen.ok for seen in turn.observations):\n"
        "                refused = 0\n",
        caught_by="it_counts_as_it_says",
        passes=("it_allows_exactly_so_many", "it_counts_over_the_run", "it_counts_nothing_else"),
    ),
    RefusalFault(
        "the refusal that ends the run is taken out of its turns",
        old="        return StopReason.STAGNATED if",
        new="        if refused > most > 0:\n            context.turns.pop()\n"
        "        return StopReason.STAGNATED if",
        caught_by="its_ending_is_no_success",
        passes=("it_allows_exactly_so_many",),
    ),
    AllFault(
        "each check is shown the answer as a text",
        old="each(context, answer)",
        new="each(context, str(answer))",
        caught_by="it_hands_on_context_and_answer",
        passes=("the_first_objection_wins", "a_later_check_is_not_paid_for"),
    ),
    EndFault(
        "it looks a second time before it believes it",
        old="        return StopReason",
        new="        if objection is None:\n"
        "            objection = yield from settle(check(context, None))\n"
        "        return StopReason",
        caught_by="a_replay_looks_at_nothing",
        passes=("it_ends_the_run_at_once", "it_pays_for_its_looks"),
    ),
    EndFault(
        "the rule looks by itself, past the account and the journal",
        old="objection = yield from settle(check(context, None))",
        new="objection = drive(settle(check(context, None)), World(inline=True))\n        yield from ()",
        caught_by="it_pays_for_its_looks",
        passes=("it_ends_the_run_at_once", "it_is_asked_about_no_answer"),
    ),
    EndFault(
        "the news that the goal is met takes the place of what was seen",
        old="        return StopReason",
        new="        if objection is None:\n"
        "            context.turns[-1] = context.turns[-1]._replace(observations=(Observation('met'),))\n"
        "        return StopReason",
        caught_by="it_gives_no_answer",
        passes=("it_ends_the_run_at_once",),
    ),
)

LIMIT_FAULTS: tuple[Fault, ...] = (
    SizedFault(
        "failed runs are measured, too",
        old="if run.stop in SUCCESSES]",
        new="]",
        caught_by="failed_runs_are_left_out",
        passes=("the_articles_figures_come_out", "what_succeeded_fits_again"),
    ),
    SizedFault(
        "a run that an outside check ended counts as failed",
        old="if run.stop in SUCCESSES]",
        new="if run.stop is StopReason.FINAL_ANSWER]",
        caught_by="failed_runs_are_left_out",
        passes=("the_articles_figures_come_out",),
    ),
    SizedFault(
        "the article to the letter: 10 times the mean stops a hard run",
        old="max(floor, wide.get(name, 0))",
        new="wide.get(name, floor)",
        caught_by="what_succeeded_fits_again",
        passes=("the_articles_figures_come_out", "a_measured_loop_runs_again"),
    ),
    SizedFault(
        "the hardest task has no room to spare, and one round is rounded away",
        old="-(-5 * used // 3)",
        new="4 * used // 3",
        caught_by="the_articles_figures_come_out",
        passes=("failed_runs_are_left_out",),
    ),
    SizedFault(
        "10 times the hardest run, not 10 times the mean",
        old="sum(run.tokens for run in done) / len(done)",
        new="max(run.tokens for run in done)",
        caught_by="no_limit_is_wider_than_it_says",
        passes=("the_articles_figures_come_out", "what_succeeded_fits_again"),
    ),
    SizedFault(
        "three times the slowest, not the 95th percentile",
        old="percentile_95([run.seconds for run in done])",
        new="max(run.seconds for run in done)",
        caught_by="one_slow_run_in_twenty_moves_little",
        passes=("the_articles_figures_come_out", "what_succeeded_fits_again"),
    ),
    SizedFault(
        "the middle run is taken for the 95th percentile",
        function="percentile_95",
        old="-95 * len(values) // 100",
        new="-50 * len(values) // 100",
        caught_by="one_slow_run_in_twenty_moves_little",
        passes=("the_articles_figures_come_out",),
    ),
    SizedFault(
        "what was not measured is allowed nothing",
        old="if limit > 0",
        new="if True",
        caught_by="what_was_not_measured_stays",
        passes=("the_articles_figures_come_out",),
    ),
    SizedFault(
        "the presets are kept where they are wider",
        old="max(floor, wide.get(name, 0))",
        new="max(floor, wide.get(name, 0), getattr(otherwise, name))",
        caught_by="no_limit_is_wider_than_it_says",
        passes=("what_succeeded_fits_again",),
    ),
    SizedFault(
        "where nothing succeeded, the presets are taken for measured",
        old="    if not done:\n",
        new="    if not done:\n        return otherwise\n    if not done:\n",
        caught_by="nothing_is_made_of_nothing",
        passes=("what_succeeded_fits_again",),
    ),
    SizedFault(
        "the latest run alone says how long one takes",
        old="percentile_95([run.seconds for run in done])",
        new="done[-1].seconds",
        caught_by="any_order_and_any_iterable_will_do",
        passes=("the_articles_figures_come_out",),
    ),
    SizedFault(
        "rounds are limited, and what they cost is not (成本静默爆炸)",
        old='"tokens": math.ceil(TIMES_THE_MEAN *',
        new='"tokens": math.ceil(1000 *',
        caught_by="the_articles_figures_come_out",
        passes=("what_succeeded_fits_again", "a_measured_loop_runs_again"),
    ),
    SizedFault(
        "three fifths of what the hardest run used, not five thirds",
        old="-(-5 * used // 3)",
        new="-(-3 * used // 5)",
        caught_by="a_measured_loop_runs_again",
        passes=("failed_runs_are_left_out",),
    ),
)
