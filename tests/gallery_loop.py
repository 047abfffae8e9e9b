"""Wrong loops for the gallery: ours with one planted fault each in ``within``, ``Account``, ``AgentLoop``."""

from __future__ import annotations

from functools import partial

from tests.gallery import Fault

LoopFault = partial(Fault, check="loop", of="AgentLoop")

LOOP_FAULTS: tuple[Fault, ...] = (
    LoopFault(
        "an effect is charged after it is passed on",
        "within",
        old="            effect = account.charge(effect)\n            given = yield effect\n",
        new="            given = yield effect\n            account.charge(effect)\n",
        caught_by="it_charges_before_it_passes_on",
    ),
    LoopFault(
        "a refusal is told once, and then the effect is passed on all the same",
        "within",
        old="            effect = account.charge(effect)\n",
        new="            effect = account.charge(effect) if account.control.stop is None else effect\n",
        caught_by="it_does_nothing_after_the_stop",
    ),
    LoopFault(
        "a program that will not listen is told so for ever",
        "within",
        old="refusals > LAST_WORDS",
        new="refusals > 10**9",
        caught_by="it_ends",
    ),
    LoopFault(
        "only a hook's own calls are charged, and what it starts side by side is free",
        "Account.charge",
        old="within(self, program) for program",
        new="program for program",
        caught_by="it_charges_before_it_passes_on",
        passes=("it_ends",),
    ),
    LoopFault(
        "what replies cost is not booked",
        "Account.book",
        old="self._cost += usage.cost",
        new="pass",
        caught_by="it_books_what_was_spent",
        passes=("it_ends_within_the_worst_case",),
    ),
    LoopFault(
        "a reply that tells no usage is free",
        "Account.book",
        old="value.usage or _estimated(effect, value)",
        new="value.usage or Usage()",
        caught_by="it_books_what_was_spent",
    ),
    LoopFault(
        "a person's stop ends the loop and not the account",
        "Account.refused",
        old="self.end(INTERRUPTED)",
        new="return LimitReached(self.control)",
        caught_by="it_blames_only_bugs",
    ),
    LoopFault(
        "the rest of a batch is dropped where the run ends",
        "AgentLoop._acted",
        old="observations += left\n",
        new="observations += left[:1]\n",
        caught_by="it_gives_each_call_one_observation",
        passes=("it_obeys_the_machine",),
    ),
    LoopFault(
        "a round is judged by its last observation alone",
        "AgentLoop._rounds",
        old="True in [observation.ok for observation in turn.observations]",
        new="turn.observations[-1].ok",
        caught_by="it_counts_a_round_by_all_it_brought",
    ),
    LoopFault(
        "the turns are cleared when the run stops",
        "AgentLoop.run",
        old="except Exception as error:\n",
        new="except Exception as error:\n        context.turns.clear()\n",
        caught_by="it_keeps_every_thought",
    ),
    LoopFault(
        "EA11: at a forced stop the last thing said is returned as the answer",
        "AgentLoop._result",
        old="context.answer if account.control.stop is StopReason.FINAL_ANSWER else None",
        new="context.answer or (context.turns[-1].thought if context.turns else None)",
        caught_by="it_has_an_answer_exactly_when_final",
        passes=("it_keeps_every_thought",),
    ),
    LoopFault(
        "EA21: the final thought is not recorded",
        "AgentLoop._rounds",
        old="context.turns.append(Turn(decision.thought))",
        new="context.answer = decision.answer; context.turns.append(Turn(''))",
        caught_by="it_keeps_every_thought",
        passes=("it_has_an_answer_exactly_when_final",),
    ),
    LoopFault(
        "the answer in hand is dropped at a limit",
        "AgentLoop._rounds",
        old="account.post(ANSWER_GIVEN,",
        new="account.post(OTHER_EFFECT); account.post(ANSWER_GIVEN,",
        caught_by="it_lets_an_answer_win",
    ),
    LoopFault(
        "EA05, EA24: the history is kept on the loop between runs",
        "AgentLoop.run",
        old="LoopContext(task)",
        new="self.__dict__.setdefault('context', LoopContext(task))",
        caught_by="its_runs_share_nothing",
        passes=("it_does_the_same_again",),
    ),
    LoopFault(
        "an objection costs no round, so they have no bound",
        "AgentLoop._rounds",
        old="decision = yield from self._accepted(account, context, decision)",
        new="decision = yield from self._accepted(account, context, decision)\n"
        "            if type(decision) is not Finish:\n                continue",
        caught_by="it_ends",
    ),
    LoopFault(
        "a bug in a hook is taken for the end at a limit",
        "AgentLoop.run",
        old="not isinstance(error, LimitReached) or account.control.stop is None",
        new="False",
        caught_by="it_reports_a_bug_as_its_cause",
    ),
    LoopFault(
        "a call that was never begun is said to be uncertain",
        "AgentLoop._acted",
        old="if left and account.made > made:",
        new="if left:",
        caught_by="it_gives_each_call_one_observation",
    ),
    LoopFault(
        "EA09: a reply that nobody could read is acted on",
        "AgentLoop._acted",
        old="call.problem or self.act(call)",
        new="self.act(call)",
        caught_by="it_never_acts_on_a_report",
    ),
    LoopFault(
        "the model's own ids are kept, and two calls share one",
        "AgentLoop._acted",
        old='f"call_{number}_{rounds}_{place}"',
        new='"call_1"',
        caught_by="it_gives_every_call_its_own_id",
    ),
    LoopFault(
        "ids repeat in the loops inside",
        "AgentLoop._acted",
        old='f"call_{number}_{rounds}_{place}"',
        new='f"call_{rounds}_{place}"',
        caught_by="it_gives_every_call_its_own_id",
        passes=("it_replays_to_the_same",),
    ),
    LoopFault(
        "what a stop rule tells the model is lost",
        "AgentLoop._ruled",
        old="context.turns[-1] = context.turns[-1]._replace(warnings=tuple(warnings))",
        new="pass",
        caught_by="it_shows_warnings_to_the_next_round",
    ),
    LoopFault(
        "a compaction drops the oldest turn",
        "AgentLoop._acted",
        old="context.turns.append(turn)",
        new="context.turns[:] = [*context.turns, turn][-2:]",
        caught_by="it_only_adds_to_history",
        passes=("it_has_an_answer_exactly_when_final",),
    ),
    LoopFault(
        "an answer of nothing is accepted",
        "AgentLoop._accepted",
        old="_EMPTY_ANSWER if _is_empty(decision.answer) else None",
        new="None",
        caught_by="it_refuses_an_empty_answer",
    ),
    LoopFault(
        "an effect that cannot be charged is free",
        "Account.charge",
        old="if self.control is before:",
        new="if False:",
        caught_by="it_ends",
    ),
)
