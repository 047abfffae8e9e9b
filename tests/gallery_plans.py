"""Wrong versions of plans, Plan-and-Solve and the outer loop: ours with one planted fault each."""

from __future__ import annotations

from functools import partial

from tests.gallery import Fault

PlanFault = partial(Fault, check="plan", of="read_plan", module="paradigms.plan")
SolveFault = partial(Fault, check="plan_and_solve", of="PlanAndSolve", module="paradigms.plan_and_solve")
OuterFault = partial(Fault, check="outer_loop", of="OuterLoop", module="paradigms.outer_loop")
#: In what both share, found by the promises of one of them.
SharedFault = partial(Fault, module="paradigms.planning")
SolveSharedFault = partial(SharedFault, check="plan_and_solve", of="paradigms.plan_and_solve:PlanAndSolve")
OuterSharedFault = partial(SharedFault, check="outer_loop", of="paradigms.outer_loop:OuterLoop")

PLAN_FAULTS: tuple[Fault, ...] = (
    PlanFault(
        "R01: what holds no steps is a plan without steps",
        "read_plan",
        old="    if not written:\n",
        new="    if not written:\n        return ()\n    if not written:\n",
        caught_by="the_cases_come_out_right",
        passes=("any_layout_is_read",),
    ),
    PlanFault(
        "R01: the second line of a step is lost",
        "_read_list",
        old="written[-1][1].append(line)",
        new="pass",
        caught_by="the_cases_come_out_right",
    ),
    PlanFault(
        "JSON is not read",
        "read_plan",
        old="_read_data(said) or ",
        new="",
        caught_by="the_cases_come_out_right",
        passes=("what_was_written_is_what_is_read",),
    ),
    PlanFault(
        "a step may need one that comes later",
        "_linked",
        old="before: dict[str, int] = {}",
        new="before = {label: number for number, label in enumerate(labels, 1)}",
        caught_by="what_is_no_plan_is_a_problem",
        passes=("the_cases_come_out_right",),
    ),
    PlanFault(
        "a plan that is too long loses its end",
        "read_plan",
        old="    if len(written) > longest:\n",
        new="    written = written[:longest]\n    if len(written) > longest:\n",
        caught_by="what_is_no_plan_is_a_problem",
        passes=("it_reads_or_refuses",),
    ),
    PlanFault(
        "what a model thought is taken for what it said",
        "read_plan",
        old="spoken(text)",
        new="text",
        caught_by="any_layout_is_read",
    ),
    PlanFault(
        "a step that names no need needs nothing",
        "_linked",
        old="(number - 1,) if number > 1 else ()",
        new="()",
        caught_by="any_layout_is_read",
        passes=("the_cases_come_out_right",),
    ),
    PlanFault(
        "what a step needs stays in its goal",
        "_read_step",
        old="goal[: found.start()].rstrip()",
        new="goal",
        caught_by="needs_are_read",
    ),
    PlanFault(
        "a list inside of a step is taken for the plan",
        "_starts",
        old='{place: mark for place, mark in marks.items() if len(mark["indent"]) <= outermost + 1}',
        new="marks",
        caught_by="details_stay_with_their_step",
        passes=("the_cases_come_out_right", "any_layout_is_read"),
    ),
    PlanFault(
        "the steps are counted from 0",
        "_linked",
        old="PlanStep(number, goal, needs)",
        new="PlanStep(number - 1, goal, needs)",
        caught_by="it_reads_or_refuses",
        passes=("any_layout_is_read", "needs_are_read"),
    ),
    PlanFault(
        "what is to be done twice is planned once",
        "_read_list",
        old="    return [_read_step(",
        new="    written = list({tuple(goal): (label, goal) for label, goal in written}.values())\n"
        "    return [_read_step(",
        caught_by="what_was_written_is_what_is_read",
        passes=("the_cases_come_out_right", "any_layout_is_read", "details_stay_with_their_step"),
    ),
)

SOLVE_FAULTS: tuple[Fault, ...] = (
    SolveFault(
        "R02: steps run although what they need has failed",
        "_failed_need",
        old="needed.status is not Status.DONE",
        new="needed.status is Status.NOT_RUN",
        caught_by="no_step_runs_on_a_failed_one",
        passes=("it_ends_within_its_bound",),
    ),
    SolveFault(
        "R02: a skipped step names the one before it, not the one that failed",
        "_failed_need",
        old="return needed.step.number if needed.failed is None else needed.failed",
        new="return needed.step.number",
        caught_by="no_step_runs_on_a_failed_one",
        passes=("its_ending_is_honest",),
    ),
    SolveFault(
        "R02: replanning without end",
        "PlanAndSolve._plans",
        old="range(1, self.replans + 2)",
        new="range(1, 10**9)",
        caught_by="replans_are_capped",
    ),
    SolveFault(
        "one replan too many",
        "PlanAndSolve._plans",
        old="range(1, self.replans + 2)",
        new="range(1, self.replans + 3)",
        caught_by="replans_are_capped",
    ),
    SolveFault(
        "R01: no plan is a success with no steps",
        "PlanAndSolve._plans",
        old="return Solution(None, GaveUp.NO_PLAN, str(unreadable), tuple(steps))",
        new='return Solution("done", StopReason.FINAL_ANSWER, "", tuple(steps))',
        caught_by="no_plan_is_no_success",
    ),
    SolveFault(
        "the planner is not told why a new plan is needed",
        "PlanAndSolve._plans",
        old='known = {"what was done": written(steps), "why a new plan is needed": trouble}',
        new="pass",
        caught_by="a_new_plan_is_told_why",
        passes=("its_ending_is_honest",),
    ),
    SolveFault(
        "nobody looks whether the world has changed",
        "PlanAndSolve._carried_out",
        old="if news and news not in heard:",
        new="if False:",
        caught_by="a_changed_world_is_planned_for",
    ),
    SolveFault(
        "the same news makes a new plan again and again",
        "PlanAndSolve._carried_out",
        old="if news and news not in heard:",
        new="if news:",
        caught_by="a_changed_world_is_planned_for",
        passes=("it_ends_within_its_bound",),
    ),
    SolveFault(
        "what was done is lost where the allowance ends",
        "PlanAndSolve.run",
        old="refused.reason.value, tuple(steps))",
        new="refused.reason.value, ())",
        caught_by="nothing_in_hand_is_lost",
        passes=("its_ending_is_honest",),
    ),
    SolveFault(
        "a run counts the steps of the one before",
        "PlanAndSolve.run",
        old="steps: list[StepReport] = []",
        new="steps = self.__dict__.setdefault('steps', [])",
        caught_by="it_does_the_same_again",
    ),
    SolveSharedFault(
        "an admitted failure is taken for an answer",
        "deviation",
        old="    if admitted:",
        new="    if admitted and False:",
        caught_by="no_step_runs_on_a_failed_one",
    ),
    SolveSharedFault(
        "an answer is believed although each of its calls failed",
        "deviation",
        old="if seen and not",
        new="if False and not",
        caught_by="an_answer_rests_on_something",
    ),
    SolveSharedFault(
        "a step that used up its own allowance ends the run",
        "deviation",
        old="or result.account_closed",
        new="or result.stop is StopReason.MODEL_CALLS",
        caught_by="its_own_limit_fails_a_step_alone",
    ),
    SolveFault(
        "nobody holds the plans to their common allowance",
        "PlanAndSolve.run",
        old="bounded(self._plans(task, steps), self.limits, task)",
        new="self._plans(task, steps)",
        caught_by="it_ends_within_its_bound",
        passes=("replans_are_capped", "a_new_plan_is_told_why"),
    ),
    SolveFault(
        "what a failed step came to is not kept",
        "PlanAndSolve._carried_out",
        old="_replace(status=status, problem=problem)",
        new="_replace(status=status, problem=problem, result=None if problem else result)",
        caught_by="its_ending_is_honest",
        passes=("no_step_runs_on_a_failed_one", "replans_are_capped", "nothing_in_hand_is_lost"),
    ),
)

OUTER_FAULTS: tuple[Fault, ...] = (
    OuterFault(
        "replanning without end",
        "OuterLoop._pursued",
        old="elif replans == self.replans:",
        new="elif False:",
        caught_by="replans_are_capped",
    ),
    OuterFault(
        "sub-goals in the wrong order",
        "OuterLoop._replanned",
        old="reversed(plan)",
        new="plan",
        caught_by="what_was_missed_gets_sub_goals",
        passes=("its_ending_is_honest",),
    ),
    OuterFault(
        "when its sub-goals are done, a goal counts as reached",
        "OuterLoop._replanned",
        old="    goal = state.stack[-1]\n",
        new="    goal = state.stack.pop()\n",
        caught_by="what_was_missed_gets_sub_goals",
    ),
    OuterFault(
        "goals pile up without end",
        "OuterLoop._replanned",
        old="while state.stack[-1].depth == self.depth:",
        new="while False:",
        caught_by="what_lies_too_deep_is_handed_up",
    ),
    OuterFault(
        "EA16: what is remembered never reaches the prompt",
        "_State.known",
        old='"\\n".join(self.recalled)',
        new='""',
        caught_by="working_memory_reaches_the_prompt",
        passes=("what_was_learned_outlives_the_run",),
    ),
    OuterFault(
        "EA16: only what was reached is remembered",
        "OuterLoop._pursued",
        old="        yield from self._remembered(task, state)\n        if made_it:\n",
        new="        if made_it:\n            yield from self._remembered(task, state)\n",
        caught_by="what_was_learned_outlives_the_run",
        passes=("working_memory_reaches_the_prompt",),
    ),
    OuterFault(
        "a full disk ends the run",
        "OuterLoop._remembered",
        old="    except EffectFailed:\n",
        new="    except ZeroDivisionError:\n",
        caught_by="a_broken_memory_loses_nothing",
    ),
    OuterFault(
        "an attempt is lost where the run ends before it is judged",
        "OuterLoop._attempted",
        old="    state.attempts.append(Attempt(goal, result, UNJUDGED))\n",
        new="    if result.answer:\n        state.attempts.append(Attempt(goal, result, UNJUDGED))\n",
        caught_by="nothing_in_hand_is_lost",
    ),
    OuterSharedFault(
        "a judge that does not know is taken for a yes",
        "deviation",
        old="judgement.score is not None and judgement.score >= threshold",
        new="judgement.score is None or judgement.score >= threshold",
        caught_by="unclear_is_not_reached",
    ),
    OuterSharedFault(
        "a goal is reached although each call failed",
        "deviation",
        old="if seen and not",
        new="if False and not",
        caught_by="failed_calls_reach_nothing",
    ),
    OuterFault(
        "where no sub-goals can be read, the goal is tried again all the same",
        "OuterLoop._pursued",
        old="return state.ended(None, GaveUp.NO_PLAN, str(unreadable))",
        new="str(unreadable)",
        caught_by="no_plan_is_no_success",
        passes=("replans_are_capped", "what_was_missed_gets_sub_goals"),
    ),
    OuterFault(
        "the goal that was given up is not told as open",
        "OuterLoop._pursued",
        old="        elif replans == self.replans:\n",
        new="        elif replans == self.replans:\n            state.stack.pop()\n",
        caught_by="its_ending_is_honest",
        passes=("replans_are_capped", "nothing_in_hand_is_lost"),
    ),
    OuterFault(
        "where no replan is left, the goal is tried once more",
        "OuterLoop._pursued",
        old="        elif replans == self.replans:\n",
        new="        elif replans == self.replans:\n            yield from self._attempted(state)\n",
        caught_by="it_ends_within_its_bound",
        passes=("replans_are_capped", "what_was_missed_gets_sub_goals"),
    ),
    OuterFault(
        "a run goes on with the attempts of the one before",
        "OuterLoop.run",
        old="    state = _State([Goal(task)])",
        new="    state = _State([Goal(task)], self.__dict__.setdefault('attempts', []))",
        caught_by="it_does_the_same_again",
        passes=("what_was_missed_gets_sub_goals",),
    ),
)
