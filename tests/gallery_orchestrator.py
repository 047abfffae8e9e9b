"""Wrong versions of the orchestrator, its team, and loops in layers: ours with one planted fault each."""

from __future__ import annotations

from functools import partial

from tests.gallery import Fault

Orchestration = partial(Fault, module="paradigms.orchestrator")
TeamFault = partial(Orchestration, check="team", of="Team")
HandedOutFault = partial(Orchestration, check="handed_out", of="handed_out")
OrchestratorFault = partial(Orchestration, check="orchestrator", of="Orchestrator")
Chapter35 = partial(Fault, module="chapters.ch35_hierarchical_loops")
InTurnFault = partial(Chapter35, check="in_turn", of="drive_in_turn")
ControllingFault = partial(Chapter35, check="controlling", of="controlling")
TwoLayersFault = partial(Chapter35, check="two_layers", of="two_layers")

TEAM_FAULTS: tuple[Fault, ...] = (
    TeamFault(
        "M03: a name in other case or quotes is nobody's",
        "_plain",
        old='" ".join(re.findall(r"[^\\W_]+", str(name).casefold()))',
        new="str(name)",
        caught_by="a_name_in_any_writing_reaches_its_worker",
        passes=("an_unknown_name_is_answered_with_those_that_are_accepted",),
    ),
    TeamFault(
        "M03: a name is found although a part of it alone is right",
        "Team.find",
        old="name = self._names.get(_plain(wanted))",
        new="name = next((self._names[each] for each in self._names if each in _plain(wanted)), None)",
        caught_by="an_unknown_name_is_answered_with_those_that_are_accepted",
        passes=("a_name_in_any_writing_reaches_its_worker",),
    ),
    TeamFault(
        "M03: the names on offer are not those that are accepted",
        "Team.find",
        old='", ".join(map(repr, self._workers))',
        new="repr(ORCHESTRATOR)",
        caught_by="an_unknown_name_is_answered_with_those_that_are_accepted",
    ),
    TeamFault(
        "M03: the orchestrator may hand work to itself",
        "Team.__init__",
        old='{"", ORCHESTRATOR}',
        new='{""}',
        caught_by="the_orchestrator_is_no_worker",
        passes=("names_that_are_too_much_alike_make_no_team",),
    ),
    TeamFault(
        "of two workers whose names differ in case alone the second gets all the work",
        "Team.__init__",
        old="len(self._names) < len(workers)",
        new="False",
        caught_by="names_that_are_too_much_alike_make_no_team",
        passes=("the_orchestrator_is_no_worker",),
    ),
    TeamFault(
        "the team is shown without what each is for",
        "Team.describe",
        old="{worker.duty}",
        new="a worker",
        caught_by="its_workers_are_shown_with_their_duties",
    ),
)

HANDED_OUT_FAULTS: tuple[Fault, ...] = (
    HandedOutFault(
        "M04: one worker's bug is everybody's",
        "_report",
        old="    if isinstance(value, Report):\n",
        new="    if isinstance(value, Exception):\n        raise value\n    if isinstance(value, Report):\n",
        caught_by="five_reports_in_the_order_of_the_sub_tasks",
        passes=("they_work_side_by_side", "a_hang_holds_up_nobody"),
    ),
    HandedOutFault(
        "M04: reports of what went wrong are left out",
        "handed_out",
        old="for each, value in zip(assignments, came_to, strict=True)]",
        new="for each, value in zip(assignments, came_to, strict=True) if isinstance(value, Report)]",
        caught_by="whatever_workers_do_there_is_a_report_for_each",
    ),
    HandedOutFault(
        "a hang is told like any other failure",
        "_ran_late",
        old="result.answer is None and (",
        new="result.answer == 0 and (",
        caught_by="a_hang_holds_up_nobody",
        passes=("they_work_side_by_side",),
    ),
    HandedOutFault(
        "M04: doubles are seen when the work is done",
        "handed_out",
        old="    _must_differ(assignments)\n",
        new="",
        caught_by="what_cannot_be_handed_out_is_refused_before_any_work",
        passes=("five_reports_in_the_order_of_the_sub_tasks",),
    ),
    HandedOutFault(
        "sub-tasks wait for each other",
        "handed_out",
        old="came_to = (yield Together(programs)).value",
        new="came_to = []\n    for each in programs:\n        came_to += (yield Together((each,))).value",
        caught_by="they_work_side_by_side",
        passes=("five_reports_in_the_order_of_the_sub_tasks",),
    ),
    HandedOutFault(
        "a worker that a person stopped is told as one that failed",
        "_worked",
        old="    except LimitReached as ended:\n        return Report(assignment, Status.STOPPED,",
        new="    except LimitReached as ended:\n        return Report(assignment, Status.ERROR,",
        caught_by="a_person_stops_all_of_them",
    ),
    HandedOutFault(
        "workers are told nothing but their sub-task",
        "_worked",
        old="attempt(loop, assignment.task, known)",
        new="attempt(loop, assignment.task, {})",
        caught_by="what_is_known_reaches_each_worker",
        passes=("it_does_the_same_again",),
    ),
    HandedOutFault(
        "who comes first changes from run to run",
        "handed_out",
        old="programs = tuple(",
        new="""runs = handed_out.__dict__
    runs["odd"] = not runs.get("odd")
    assignments = assignments if runs["odd"] else assignments[::-1]
    programs = tuple(""",
        caught_by="it_does_the_same_again",
        passes=("they_work_side_by_side",),
    ),
)

ORCHESTRATOR_FAULTS: tuple[Fault, ...] = (
    OrchestratorFault(
        "M06: a fence round the ledger is too much for it",
        "object_in",
        old='start = said.find("{")',
        new='start = said.find("{") if said.lstrip().startswith("{") else -1',
        caught_by="a_task_is_split_done_and_answered",
        passes=("a_stall_is_seen_planned_anew_and_then_reported",),
    ),
    OrchestratorFault(
        "M06: a missing field is a KeyError",
        "_field",
        old="value = written.get(name)",
        new="value = written[name]",
        caught_by="a_ledger_that_cannot_be_used_is_asked_for_again",
        passes=("a_task_is_split_done_and_answered",),
    ),
    OrchestratorFault(
        "M06: a field that nobody knows is overlooked",
        "read_ledger",
        old="    if unknown:\n",
        new="    if False:\n",
        caught_by="a_ledger_that_is_never_readable_is_a_stall",
        passes=("a_task_is_split_done_and_answered",),
    ),
    OrchestratorFault(
        "M03: an unknown worker is a mistake without words",
        "asked_until",
        old="problem = str(error)",
        new='problem = "Try again."',
        module="paradigms.planning",
        of="paradigms.orchestrator:Orchestrator",
        caught_by="an_unknown_name_is_answered_with_the_known_ones",
        passes=("a_ledger_that_is_never_readable_is_a_stall",),
    ),
    OrchestratorFault(
        "M04: two sub-tasks share an id, and the ledger passes",
        "read_ledger",
        old="    _must_differ(assignments)\n",
        new="    assignments = tuple(dict((each.id, each) for each in assignments).values())\n",
        caught_by="doubles_are_refused_before_any_work",
        passes=("its_ending_is_honest",),
    ),
    OrchestratorFault(
        "M06: planning anew without end",
        "Orchestrator._directed",
        old="range(1 + self.max_replans)",
        new="range(10**9)",
        caught_by="a_stall_is_seen_planned_anew_and_then_reported",
    ),
    OrchestratorFault(
        "one stall too many",
        "Orchestrator._worked_off",
        old="while stalls < self.max_stalls:",
        new="while stalls <= self.max_stalls:",
        caught_by="a_stall_is_seen_planned_anew_and_then_reported",
    ),
    OrchestratorFault(
        "stalls are never forgiven",
        "Orchestrator._worked_off",
        old='(0, "") if moved',
        new='(stalls, "") if moved',
        caught_by="progress_clears_the_count",
        passes=("a_stall_is_seen_planned_anew_and_then_reported",),
    ),
    OrchestratorFault(
        "the model is believed when it sees progress",
        "_State.has_moved",
        old="ledger.progress and not last <= set().union(*before)",
        new="ledger.progress",
        caught_by="the_models_word_alone_is_no_progress",
        passes=("a_stall_is_seen_planned_anew_and_then_reported",),
    ),
    OrchestratorFault(
        "M06: an unreadable ledger costs nothing and is asked for until the money is gone",
        "Orchestrator._worked_off",
        old='stalls, trouble = stalls + 1, f"no ledger',
        new='stalls, trouble = stalls, f"no ledger',
        caught_by="a_ledger_that_is_never_readable_is_a_stall",
        passes=("a_stall_is_seen_planned_anew_and_then_reported",),
    ),
    OrchestratorFault(
        "an answer from nothing is taken",
        "Orchestrator._judged",
        old="ledger.done and not",
        new="False and not",
        caught_by="nothing_is_answered_before_anything_was_brought",
        passes=("a_task_is_split_done_and_answered",),
    ),
    OrchestratorFault(
        "without a plan the work begins all the same",
        "Orchestrator._directed",
        old="return state.ended(None, Unfinished.NO_PLAN, str(unreadable))",
        new="plan = ()",
        caught_by="no_plan_is_told",
    ),
    OrchestratorFault(
        "a new plan is made from nothing",
        "Orchestrator._directed",
        old='"facts": state.facts()',
        new='"facts": "none"',
        caught_by="a_new_plan_is_told_what_is_known",
        passes=("a_stall_is_seen_planned_anew_and_then_reported",),
    ),
    OrchestratorFault(
        "what was reported is lost where the allowance ends",
        "Orchestrator.run",
        old="return state.ended(None, ended.reason, ended.reason.value)",
        new="return Teamwork(None, ended.reason, ended.reason.value)",
        caught_by="nothing_in_hand_is_lost",
        passes=("its_ending_is_honest",),
    ),
    OrchestratorFault(
        "a person's stop is overruled by handing the work out again",
        "Orchestrator._handed_out",
        old="report.result is not None and",
        new="False and",
        caught_by="a_person_who_stops_one_stops_the_work",
        passes=("nothing_in_hand_is_lost",),
    ),
    OrchestratorFault(
        "a stalled team has an answer",
        "Orchestrator._directed",
        old="return state.ended(None, Unfinished.STALLED, trouble)",
        new="return state.ended(trouble, Unfinished.STALLED, trouble)",
        caught_by="its_ending_is_honest",
    ),
    OrchestratorFault(
        "the team pays from a pocket of its own",
        "Orchestrator.run",
        old="bounded(self._directed(state), self.limits, task)",
        new="bounded(self._directed(state), RESEARCH, task)",
        caught_by="all_of_it_is_on_one_account",
        passes=("a_stall_is_seen_planned_anew_and_then_reported",),
    ),
    OrchestratorFault(
        "a run goes on in the ledger of the one before",
        "Orchestrator.run",
        old="state = _State(task)",
        new="state = self.__dict__.setdefault('state', _State(task))",
        caught_by="it_does_the_same_again",
    ),
)

IN_TURN_FAULTS: tuple[Fault, ...] = (
    InTurnFault(
        "who sleeps first wakes first, however long",
        "drive_in_turn",
        old="(clock.now() + seconds, next(order),",
        new="(next(order), clock.now() + seconds,",
        caught_by="what_is_done_first_comes_first",
    ),
    InTurnFault(
        "everybody waits while one thinks",
        "drive_in_turn",
        old="seconds, what_comes = _begun(strand, stage, world, since, takes)",
        new="seconds, what_comes = _begun(strand, stage, world, since, takes)\n"
        "            clock.advance(seconds if seconds == 7.5 else 0)",
        caught_by="who_thinks_holds_up_nobody",
        passes=("what_is_done_first_comes_first",),
    ),
    InTurnFault(
        "what was left behind is done all the same",
        "_begun",
        old="return effect.allowed, lambda: too_late(effect)",
        new="return effect.allowed, lambda: (perform(effect, world), too_late(effect))[1]",
        caught_by="what_lasts_too_long_is_left_behind_and_not_done",
        passes=("who_thinks_holds_up_nobody",),
    ),
    InTurnFault(
        "nobody listens to a person",
        "drive_in_turn",
        old="interrupt is not None and interrupt.raised",
        new="False",
        caught_by="a_person_stops_it",
        passes=("what_is_done_first_comes_first",),
    ),
    InTurnFault(
        "all leave with the one who is away",
        "drive_in_turn",
        old="except Away as nobody:",
        new="except ZeroDivisionError as nobody:",
        caught_by="who_is_away_holds_up_nobody",
        passes=("what_is_done_first_comes_first", "a_person_stops_it"),
    ),
    InTurnFault(
        "a person's time is the run's",
        "drive_in_turn",
        old="time.stood_still(max(done.since, stage.at))",
        new="pass",
        caught_by="a_persons_time_is_not_the_runs",
        passes=("who_is_away_holds_up_nobody", "what_is_done_first_comes_first"),
    ),
    InTurnFault(
        "a resumed run begins at nought",
        "drive_in_turn",
        old="RunClock(clock.now, stage.at)",
        new="RunClock(clock.now)",
        caught_by="a_journal_gives_it_again",
        passes=("who_thinks_holds_up_nobody",),
    ),
)

CONTROLLING_FAULTS: tuple[Fault, ...] = (
    ControllingFault(
        "the heater is set for as long as the period lasts",
        "controlling",
        old='"seconds": HOLD',
        new='"seconds": period',
        caught_by="it_acts_every_second_and_asks_no_model",
        passes=("a_command_is_obeyed_at_once",),
    ),
    ControllingFault(
        "commands are read when a period begins",
        "controlling",
        old="        command = entry.value\n",
        new='        entry = context.private.setdefault("entry", entry)\n        command = entry.value\n',
        caught_by="a_command_is_obeyed_at_once",
        passes=("it_acts_every_second_and_asks_no_model",),
    ),
    ControllingFault(
        "the last command is believed for ever",
        "controlling",
        old="0 <= now - command.at < good_for",
        new="now >= command.at",
        caught_by="without_a_good_command_the_safe_goal_holds",
        passes=("a_command_is_obeyed_at_once", "its_report_is_true"),
    ),
    ControllingFault(
        "a command of another clock is good until that time comes",
        "controlling",
        old="0 <= now - command.at < good_for",
        new="now - command.at < good_for",
        caught_by="without_a_good_command_the_safe_goal_holds",
        passes=("a_command_is_obeyed_at_once",),
    ),
    ControllingFault(
        "a constraint is good advice",
        "thermostat",
        old="goal.most_power",
        new="1.0",
        caught_by="the_constraint_holds",
        passes=("it_acts_every_second_and_asks_no_model",),
    ),
    ControllingFault(
        "too warm makes up for too cold in the report",
        "controlling",
        old="abs(inside - goal.target)",
        new="(inside - goal.target)",
        caught_by="its_report_is_true",
        passes=("a_command_is_obeyed_at_once",),
    ),
    ControllingFault(
        "a period begins with what the one before has counted",
        "controlling",
        old="context.private.setdefault(reason, [])",
        new="reason.__dict__.setdefault('tally', [])",
        caught_by="a_period_leaves_nothing_to_the_next",
        passes=("a_command_is_obeyed_at_once",),
    ),
    ControllingFault(
        "the thermometer is read behind the journal's back",
        "controlling",
        old="command = entry.value",
        new="inside, command = sense() if entry.version else inside, entry.value",
        caught_by="a_journal_gives_it_again",
    ),
)

TWO_LAYERS_FAULTS: tuple[Fault, ...] = (
    TwoLayersFault(
        "the strategy sleeps a period after each thought, and falls behind",
        "_strategy",
        old="Sleep(period - now % period + TICK)",
        new="Sleep(period)",
        caught_by="the_strategy_thinks_each_period_and_the_execution_acts_each_second",
        passes=("the_execution_waits_for_no_thought",),
    ),
    TwoLayersFault(
        "first the one layer, then the other",
        "_together",
        old="ends: list[Any] = (yield Together(strands)).value",
        new="ends = []\n    for each in strands:\n        ends += (yield Together((each,))).value",
        caught_by="the_execution_waits_for_no_thought",
    ),
    TwoLayersFault(
        "the strategy commands without having heard",
        "_strategy",
        old="memory.append(heard)",
        new="pass",
        caught_by="reports_reach_the_strategy",
        passes=("the_execution_waits_for_no_thought",),
    ),
    TwoLayersFault(
        "when one layer breaks down, all does",
        "_end",
        old="    if isinstance(came_to, End):\n",
        new="    if isinstance(came_to, Exception) and not isinstance(came_to, LimitReached):\n"
        "        raise came_to\n    if isinstance(came_to, End):\n",
        caught_by="where_the_strategy_dies_the_execution_goes_on",
        passes=("the_execution_waits_for_no_thought",),
    ),
    TwoLayersFault(
        "a strategy whose model failed has ended",
        "_commanded",
        old="    if result.stop is StopReason.HUMAN:\n",
        new="    if result.answer is None:\n",
        caught_by="where_the_strategy_dies_the_execution_goes_on",
        passes=("where_the_execution_dies_the_strategy_ends",),
    ),
    TwoLayersFault(
        "the strategy goes on thinking for nobody",
        "_strategy",
        old="> 1.5 * period",
        new="> 1e9",
        caught_by="where_the_execution_dies_the_strategy_ends",
        passes=("the_execution_waits_for_no_thought",),
    ),
    TwoLayersFault(
        "whoever wakes up late commands over what was commanded since",
        "_commanded",
        old='{"command": command}, seen.version)',
        new='{"command": command}, board.read().version)',
        caught_by="a_command_that_rests_on_an_old_board_is_refused",
        passes=("reports_reach_the_strategy",),
    ),
    TwoLayersFault(
        "a strategy that a person stopped thinks again next time",
        "_commanded",
        old="result.stop is StopReason.HUMAN",
        new="False",
        caught_by="a_person_stops_both",
        passes=("where_the_strategy_dies_the_execution_goes_on",),
    ),
    TwoLayersFault(
        "there is no horizon",
        "_execution",
        old="while now < horizon:",
        new="while True:",
        caught_by="it_ends_at_its_horizon",
    ),
    TwoLayersFault(
        "a replay commands the board once more",
        "_commanded",
        old="written = yield from write(board,",
        new='board.write("strategy", {"command": command}, seen.version)\n'
        "    written = yield from write(board,",
        caught_by="a_journal_gives_it_again",
    ),
    TwoLayersFault(
        "the execution carries all of its reports with it",
        "_execution",
        old="loop.run(",
        new="loop.knowing({'before': list(log.reports)}).run(",
        caught_by="what_the_execution_carries_does_not_grow",
        passes=("the_execution_waits_for_no_thought",),
    ),
)
