"""Wrong versions of approval, of the critical guard and of the journal on disk: one planted fault each."""

from __future__ import annotations

from functools import partial

from tests.gallery import Fault

MODULE = "chapters.ch18_human_in_the_loop"
ApprovalFault = partial(Fault, check="approval", of="approval", module=MODULE)
CriticalFault = partial(Fault, check="critical", of="critical", module=MODULE)
DiskFault = partial(Fault, check="disk_journal", of="DiskJournal", module=MODULE)

APPROVAL_FAULTS: tuple[Fault, ...] = (
    ApprovalFault(
        "whatever begins with yes is a yes",
        "decide",
        old="word(answer) in YES",
        new="word(answer).startswith(YES)",
        caught_by="nothing_dangerous_is_done_without_a_clear_yes",
        passes=("after_a_yes_it_is_done_once", "a_refusal_is_the_result_of_that_call_alone"),
    ),
    ApprovalFault(
        "any answer that is not a text is a yes",
        "word",
        old="    if not isinstance(answer, str):\n",
        new="    if not isinstance(answer, str):\n        return 'yes'\n    if False:\n",
        caught_by="an_answer_that_is_no_text_is_told",
        passes=("nothing_dangerous_is_done_without_a_clear_yes",),
    ),
    ApprovalFault(
        "an answer that is no text is a silent no",
        "word",
        old="    if not isinstance(answer, str):\n",
        new="    if not isinstance(answer, str):\n        return ''\n    if False:\n",
        caught_by="an_answer_that_is_no_text_is_told",
        passes=("nothing_dangerous_is_done_without_a_clear_yes", "nobody_there_is_no_yes"),
    ),
    ApprovalFault(
        "the question promises a stop, and stop is one more no",
        "_once_approved",
        old="word(answer) in STOP",
        new="False",
        caught_by="a_stop_at_the_question_ends_the_run_at_once",
        passes=("nothing_dangerous_is_done_without_a_clear_yes",),
    ),
    ApprovalFault(
        "a yes with a full stop is none",
        "decide",
        old="word(answer) in YES",
        new="str(answer).strip().casefold() in YES",
        caught_by="after_a_yes_it_is_done_once",
        passes=("nothing_dangerous_is_done_without_a_clear_yes",),
    ),
    ApprovalFault(
        "nobody there is a yes",
        "decide",
        old="    if isinstance(answer, Observation):\n",
        new="    if isinstance(answer, Observation):\n        return call\n    if False:\n",
        caught_by="nobody_there_is_no_yes",
        passes=("nothing_dangerous_is_done_without_a_clear_yes",),
    ),
    ApprovalFault(
        "K07: a refused call runs anyway",
        "_once_approved",
        old="    if isinstance(decision, Observation):\n        return Outcome(decision, at)\n",
        new="    if isinstance(decision, Observation):\n        decision = effect.call\n",
        caught_by="a_refusal_is_the_result_of_that_call_alone",
    ),
    ApprovalFault(
        "K07: the reason of a refusal is lost",
        "decide",
        old="{words or 'no reason given'}",
        new="no reason given",
        caught_by="a_refusal_is_the_result_of_that_call_alone",
    ),
    ApprovalFault(
        "a long call is cut before it is shown",
        "exactly",
        old="{value!r}",
        new="{on_one_line(repr(value), 80)}",
        caught_by="the_exact_call_is_shown",
        passes=("after_a_yes_it_is_done_once",),
    ),
    ApprovalFault(
        "two different calls look the same",
        "_plain",
        old="name if isinstance(name, str) and name.isidentifier() else repr(name)",
        new="str(name)",
        caught_by="the_exact_call_is_shown",
    ),
    ApprovalFault(
        "edited arguments are shown, and the model's own are run",
        "decide",
        old="return call._replace(arguments=arguments)",
        new="return call._replace(arguments=dict(call.arguments))",
        caught_by="an_edit_is_run_as_it_was_written",
    ),
    ApprovalFault(
        "the model is not told of an edit",
        "_once_approved",
        old="if decision is not effect.call:",
        new="if False:",
        caught_by="an_edit_is_run_as_it_was_written",
    ),
    ApprovalFault(
        "a repeated call is asked for again",
        "_once_approved",
        old="yield AskHuman(question, about)",
        new="yield AskHuman(question)",
        caught_by="a_call_is_asked_for_once_however_it_is_wrapped",
        passes=("left_at_the_question_it_goes_on_there",),
    ),
    ApprovalFault(
        "a yes for one call is a yes for every call like it",
        "_once_approved",
        old="yield AskHuman(question, about)",
        new='yield AskHuman(question, "every call")',
        caught_by="a_yes_is_for_that_call_only",
    ),
    ApprovalFault(
        "a yes is for the name of the tool, not for what was shown",
        "_once_approved",
        old="{exactly(effect.call)}",
        new="{effect.call.name}",
        caught_by="the_exact_call_is_shown",
    ),
    ApprovalFault(
        "only the call that goes in is looked at",
        "approval",
        old="dangerous(effect.call) if isinstance(effect, CallTool)",
        new="dangerous(call) if isinstance(effect, CallTool)",
        caught_by="what_becomes_of_a_call_inside_is_asked_anew",
        passes=("a_refusal_is_the_result_of_that_call_alone",),
    ),
    ApprovalFault(
        "what runs side by side is not looked at",
        "through",
        old="isinstance(effect, Together)",
        new="False",
        caught_by="what_becomes_of_a_call_inside_is_asked_anew",
    ),
    ApprovalFault(
        "a hook's own calls without ids are taken for the call that it was given",
        "approval",
        old="_once_approved(effect, danger, effect.call.id)",
        new="_once_approved(effect, danger, effect.call.id or call.id)",
        caught_by="a_yes_is_for_that_call_only",
        passes=("what_becomes_of_a_call_inside_is_asked_anew",),
    ),
    ApprovalFault(
        "a call is made because nothing was left to ask with",
        "_once_approved",
        old="    answer, at = yield AskHuman(question, about)\n",
        new="    try:\n        answer, at = yield AskHuman(question, about)\n"
        "    except LimitReached as ended:\n"
        "        return Outcome(Observation('done'), ended.control.seconds)\n",
        caught_by="it_stays_within_its_account",
    ),
    ApprovalFault(
        "a bug is sent where it should be thrown",
        "through",
        old="step, given = program.throw, error",
        new="return Observation(str(error), False)",
        caught_by="bugs_go_through",
    ),
    ApprovalFault(
        "the call that comes in is asked for as well, whatever is made of it",
        "approval",
        old="        return (yield from through(settle(act(call)), gate))\n",
        new="        if danger := dangerous(call):\n"
        "            decided = decide(call, (yield AskHuman(f'It {danger}: {exactly(call)}')).value)\n"
        "            if isinstance(decided, Observation):\n"
        "                return decided\n"
        "        return (yield from through(settle(act(call)), gate))\n",
        caught_by="a_plain_function_can_be_wrapped",
        passes=("what_is_harmless_is_not_asked_for",),
    ),
    ApprovalFault(
        "a yes in capitals is none",
        "decide",
        old="word(answer) in YES",
        new='str(answer).strip(" .。\\n") in YES',
        caught_by="after_a_yes_it_is_done_once",
        passes=("nothing_dangerous_is_done_without_a_clear_yes",),
    ),
    ApprovalFault(
        "K02: answers are kept by the guard, not by the run",
        "_once_approved",
        old="yield AskHuman(question, about)",
        new="_once_approved.__dict__.get(about + question) or _once_approved.__dict__.setdefault("
        "about + question, (yield AskHuman(question, about)))",
        caught_by="left_at_the_question_it_goes_on_there",
    ),
    ApprovalFault(
        "a person is asked about every call",
        "approval",
        old="if danger and isinstance(effect, CallTool):",
        new="if isinstance(effect, CallTool):",
        caught_by="what_is_harmless_is_not_asked_for",
        passes=("after_a_yes_it_is_done_once", "nothing_dangerous_is_done_without_a_clear_yes"),
    ),
    ApprovalFault(
        "EA07: where a person stops the run at the question, the call is said to be refused",
        "_once_approved",
        old="    answer, at = yield AskHuman(question, about)\n",
        new="    try:\n"
        "        answer, at = yield AskHuman(question, about)\n"
        "    except LimitReached as ended:\n"
        "        refused = Observation('Not run: a person refused it.', False, Kind.REFUSED)\n"
        "        return Outcome(refused, ended.control.seconds)\n",
        caught_by="a_stop_at_the_question_ends_the_run_at_once",
        passes=("a_refusal_is_the_result_of_that_call_alone", "it_stays_within_its_account"),
    ),
)

CRITICAL_FAULTS: tuple[Fault, ...] = (
    CriticalFault(
        "EA53: the decision changes nothing",
        "critical",
        old="            return (yield from _once_more(act, call, seen))\n",
        new="            return seen\n",
        caught_by="retry_is_once",
        passes=("what_succeeds_disturbs_nobody", "anything_else_skips_it"),
    ),
    CriticalFault(
        "EA53: it is asked again after each try",
        "critical",
        old="            return (yield from _once_more(act, call, seen))\n",
        new="            return (yield from guarded(call._replace(id=call.id + '+')))\n",
        caught_by="retry_is_once",
    ),
    CriticalFault(
        "the decision is forgotten where a guard outside repeats",
        "critical",
        old='{HOW_TO_DECIDE}", call.id)',
        new='{HOW_TO_DECIDE}")',
        caught_by="it_asks_once_however_it_is_wrapped",
        passes=("retry_is_once",),
    ),
    CriticalFault(
        "what a person skipped may be tried again by others",
        "critical",
        old="False, Kind.REFUSED)",
        new="False, seen.kind)",
        caught_by="anything_else_skips_it",
    ),
    CriticalFault(
        "nobody there is like a skip",
        "critical",
        old="raise CriticalToolFailure(call, seen)",
        new="return seen",
        caught_by="nobody_there_ends_the_run",
    ),
    CriticalFault(
        "a person is asked about the model's mistakes",
        "critical",
        old="or seen.kind not in FAILED",
        new="",
        caught_by="a_mistake_of_the_model_is_nobodys_decision",
    ),
    CriticalFault(
        "what is in hand is lost where the run ends at the question",
        "critical",
        old="        except LimitReached:\n            return seen\n",
        new="        except LimitReached:\n            raise\n",
        caught_by="it_stays_within_its_account",
    ),
    CriticalFault(
        "a person decides without being told what went wrong",
        "critical",
        old="{IT_FAILED}\\n{failure}\\n",
        new="{IT_FAILED} {exactly(call)}\\n",
        caught_by="the_failure_is_shown",
        passes=("retry_is_once", "anything_else_skips_it"),
    ),
    CriticalFault(
        "what was known is lost where the second try is refused",
        "_once_more",
        old="    except LimitReached as end:\n",
        new="    except LimitReached as end:\n        raise\n",
        caught_by="it_stays_within_its_account",
        passes=("retry_is_once",),
    ),
    CriticalFault(
        "an answer that was given inside is used again outside",
        "critical",
        old="if decided or call.name",
        new="if call.name",
        caught_by="an_answer_is_used_once",
        passes=("retry_is_once", "it_asks_once_however_it_is_wrapped"),
    ),
    CriticalFault(
        "whatever a person was asked, it was the decision",
        "critical",
        old="effect.question.startswith(IT_FAILED)",
        new="True",
        caught_by="an_answer_is_used_once",
        passes=("retry_is_once",),
    ),
    CriticalFault(
        "C09: paid perhaps, then closed, is told as not paid",
        "_once_more",
        old="return still_in_doubt(seen) if failed.kind in IN_DOUBT else seen",
        new="return seen",
        caught_by="a_doubt_is_not_taken_back",
        passes=("retry_is_once",),
    ),
    CriticalFault(
        "the question about a failure promises a stop, and stop is a skip",
        "critical",
        old="word(answer) in STOP",
        new="False",
        caught_by="it_stays_within_its_account",
        passes=("retry_is_once", "anything_else_skips_it"),
    ),
    CriticalFault(
        "a decision that is no text is a silent skip",
        "word",
        old="    if not isinstance(answer, str):\n",
        new="    if not isinstance(answer, str):\n        return ''\n    if False:\n",
        caught_by="an_answer_that_is_no_text_is_told",
        passes=("retry_is_once", "anything_else_skips_it"),
    ),
    CriticalFault(
        "every tool is a critical one",
        "critical",
        old="call.name not in tools or ",
        new="",
        caught_by="what_succeeds_disturbs_nobody",
        passes=("retry_is_once", "nobody_there_ends_the_run"),
    ),
)

DISK_FAULTS: tuple[Fault, ...] = (
    DiskFault(
        "a table is added to whatever file it is given",
        "DiskJournal._open",
        old="        self._refuse_others()\n",
        new="",
        caught_by="another_file_is_left_as_it_is",
        passes=("what_was_recorded_is_read_again",),
    ),
    DiskFault(
        "K01: what is begun is not written down",
        "DiskJournal.intend",
        old="    self._write(address, asked, None, None, None)\n    super().intend(address, asked)\n",
        new="    Journal.intend(self, address, asked)\n",
        caught_by="an_intent_is_on_disk_before_it_is_begun",
        passes=("what_was_recorded_is_read_again",),
    ),
    DiskFault(
        "nothing is on disk until the file is closed",
        "DiskJournal._write",
        old="    row = (",
        new="    if not self.database.in_transaction:\n        self.database.execute('BEGIN')\n    row = (",
        caught_by="an_intent_is_on_disk_before_it_is_begun",
    ),
    DiskFault(
        "outcomes come back in the order of their addresses",
        "DiskJournal._read",
        old="ORDER BY arrived, address",
        new="ORDER BY address",
        caught_by="what_was_recorded_is_read_again",
    ),
    DiskFault(
        "what has no bottom brings it down",
        "encode",
        old="if deeper < 0:",
        new="if False:",
        caught_by="what_cannot_be_written_is_named",
        passes=("what_was_recorded_is_read_again",),
    ),
    DiskFault(
        "a number that nobody can write down brings it down",
        "encode",
        old="abs(value) >= TOO_LARGE",
        new="False",
        caught_by="what_cannot_be_written_is_named",
        passes=("what_was_recorded_is_read_again",),
    ),
    DiskFault(
        "a tuple comes back as a list",
        "encode",
        old="return parts if kind is list else",
        new="return parts if kind in (list, tuple) else",
        caught_by="what_was_recorded_is_read_again",
        passes=("an_intent_is_on_disk_before_it_is_begun",),
    ),
    DiskFault(
        "half a surrogate pair breaks the journal",
        "encode",
        old="return value if _is_text(value) else",
        new="return value if True else",
        caught_by="what_was_recorded_is_read_again",
    ),
    DiskFault(
        "K04: only the type of what cannot be written is named",
        "encode",
        old="{path or 'the outcome'} is of type",
        new="the outcome is of type",
        caught_by="what_cannot_be_written_is_named",
        passes=("what_was_recorded_is_read_again",),
    ),
    DiskFault(
        "K04: what cannot be written is written as it looks",
        "encode",
        old="    raise Unwritable(f\"{path or 'the outcome'} is of type",
        new="    return repr(f\"{path or 'the outcome'} is of type",
        caught_by="what_cannot_be_written_is_named",
    ),
    DiskFault(
        "K01: what was begun and has no outcome is left out when the file is read",
        "DiskJournal._read",
        old="self.intents[place] = asked",
        new="continue",
        caught_by="a_run_goes_on_wherever_its_power_failed",
        passes=("what_was_recorded_is_read_again",),
    ),
    DiskFault(
        "K02: a question that nobody has answered yet is not found again",
        "DiskJournal._read",
        old="        if arrived is None:\n",
        new="        if arrived is None and asked.startswith('AskHuman'):\n"
        "            continue\n"
        "        if arrived is None:\n",
        caught_by="a_run_that_was_left_goes_on",
        passes=("an_intent_is_on_disk_before_it_is_begun", "a_run_goes_on_wherever_its_power_failed"),
    ),
)
