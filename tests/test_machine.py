"""The machine, row by row: its table, its guards, its limits, and the errata it answers."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
from hypothesis import given

from agentloop import (
    ACTING,
    CODING,
    IDLE,
    LIVE,
    PERCEIVING,
    QUESTION_ANSWERING,
    REASONING,
    RESEARCH,
    TERMINATED,
    TRANSITIONS,
    WAITING_FOR_OBSERVATION,
    AgentState,
    Control,
    Event,
    EventKind,
    IllegalTransition,
    Limits,
    StopReason,
    advance,
    rank,
    row_taken,
    worst_case_steps,
)
from chapters.ch03_it_must_stop import fault, forms, tell_machine
from tests import strategies
from tests.check_machine import check_machine

E = EventKind
ARRIVED, PERCEIVED = Event(E.TASK_ARRIVED), Event(E.PERCEIVED)
CHOSEN, SUBMITTED, OBSERVED = (Event(kind, calls=1) for kind in (E.ACTION_CHOSEN, E.SUBMITTED, E.OBSERVED))
ANSWERED, INTERRUPTED, FAILED = Event(E.ANSWER_GIVEN), Event(E.INTERRUPTED), Event(E.HOOK_FAILED)
ROUND = (CHOSEN, SUBMITTED, OBSERVED)
#: The shortest way to each state.
WAY = {
    IDLE: (),
    PERCEIVING: (ARRIVED,),
    REASONING: (ARRIVED, PERCEIVED),
    ACTING: (ARRIVED, PERCEIVED, CHOSEN),
    WAITING_FOR_OBSERVATION: (ARRIVED, PERCEIVED, CHOSEN, SUBMITTED),
    TERMINATED: (ARRIVED, PERCEIVED, ANSWERED),
}


def run(*events: Event, limits: Limits = QUESTION_ANSWERING) -> Control:
    """The control after these events."""
    control = Control()
    for event in events:
        control = advance(control, event, limits)
    return control


def at(state: AgentState) -> Control:
    return run(*WAY[state])


def test_ours_keeps_every_promise() -> None:
    check_machine(advance)


@given(strategies.runs, strategies.limits)
def test_no_run_breaks_the_table(run: list[Event], limits: Limits) -> None:
    control = Control()
    for event in run:
        tried = tell_machine(advance, control, event, limits)
        assert fault(tried, limits) is None
        if isinstance(tried.after, Control):
            control = tried.after


@given(strategies.runs, strategies.limits)
def test_no_run_is_longer_than_the_worst_case(run: list[Event], limits: Limits) -> None:
    control, accepted = Control(), 0
    for event in run:
        try:
            control = advance(control, event, limits)
        except IllegalTransition:
            continue
        accepted += 1
        assert accepted + rank(control, limits) <= worst_case_steps(limits)


# --- The table --------------------------------------------------------------------------------

EDGES = {
    (IDLE, PERCEIVING),
    (PERCEIVING, REASONING),
    (REASONING, ACTING),
    (REASONING, TERMINATED),
    (ACTING, WAITING_FOR_OBSERVATION),
    (WAITING_FOR_OBSERVATION, REASONING),
    (WAITING_FOR_OBSERVATION, TERMINATED),
    *((state, TERMINATED) for state in LIVE),
}


@pytest.mark.parametrize(("source", "target"), [*product(AgentState, AgentState)], ids=lambda s: s.name)
def test_each_of_the_36_pairs(source: AgentState, target: AgentState) -> None:
    """Some event leads from one state to another exactly where the article draws an edge."""
    welcome = [form for kind in EventKind for form in forms(kind) if kind not in SPENDS]
    reached = set()
    for event in welcome:
        try:
            reached.add(advance(at(source), event, QUESTION_ANSWERING).state)
        except IllegalTransition:
            pass
    assert (target in reached) is ((source, target) in EDGES)


SPENDS = (E.MODEL_CALL, E.TOOL_CALL, E.OTHER_EFFECT)


def closed(stop: StopReason | None) -> Event:
    state = TERMINATED if stop else REASONING
    return Event(E.ACCOUNT_CLOSED, closed=Control(state, stop=stop))


GUARDS: tuple[tuple[int, AgentState, Event, AgentState | None], ...] = (
    (1, IDLE, ARRIVED, PERCEIVING),
    (1, IDLE, Event(E.TASK_ARRIVED, ok=False), None),
    (2, PERCEIVING, PERCEIVED, REASONING),
    (2, PERCEIVING, Event(E.PERCEIVED, ok=False), None),
    (3, REASONING, CHOSEN, ACTING),
    (3, REASONING, Event(E.ACTION_CHOSEN, calls=3), ACTING),
    (3, REASONING, Event(E.ACTION_CHOSEN, calls=0), None),
    (3, REASONING, Event(E.ACTION_CHOSEN, calls=-1), None),
    (4, REASONING, ANSWERED, TERMINATED),
    (4, REASONING, Event(E.ANSWER_GIVEN, ok=False), None),
    (5, ACTING, SUBMITTED, WAITING_FOR_OBSERVATION),
    (5, ACTING, Event(E.SUBMITTED, calls=0), None),
    (5, ACTING, Event(E.SUBMITTED, calls=2), None),
    (6, WAITING_FOR_OBSERVATION, OBSERVED, REASONING),
    (6, WAITING_FOR_OBSERVATION, Event(E.OBSERVED, calls=0), None),
    (6, WAITING_FOR_OBSERVATION, Event(E.OBSERVED, calls=2), None),
    (7, WAITING_FOR_OBSERVATION, OBSERVED._replace(at=300.0), TERMINATED),
    (7, WAITING_FOR_OBSERVATION, Event(E.OBSERVED, calls=2, at=300.0), None),
    (8, REASONING, Event(E.STOP_RULED, stop=StopReason.CONVERGED), TERMINATED),
    (8, REASONING, Event(E.STOP_RULED), None),
    (8, REASONING, closed(StopReason.COST_BUDGET), TERMINATED),
    (8, REASONING, closed(StopReason.HUMAN), TERMINATED),
    (8, REASONING, closed(StopReason.FINAL_ANSWER), None),
    (8, REASONING, closed(None), None),
    (8, REASONING, Event(E.ACCOUNT_CLOSED), None),
    (8, IDLE, INTERRUPTED, TERMINATED),
    (8, ACTING, FAILED, TERMINATED),
)


@pytest.mark.parametrize(("row", "state", "event", "target"), GUARDS)
def test_each_guard_lets_through_and_refuses(
    row: int, state: AgentState, event: Event, target: AgentState | None
) -> None:
    before = at(state)
    if target is None:
        named = 6 if row == 7 else row  # they share their event and their guard, and 6 comes first
        with pytest.raises(IllegalTransition, match=f"guard of row {named}: "):
            advance(before, event, QUESTION_ANSWERING)
        return
    after = advance(before, event, QUESTION_ANSWERING)
    assert after.state is target
    taken = row_taken(before, after)
    assert taken is not None and taken.row == row


def test_spending_takes_no_row() -> None:
    before = at(REASONING)
    assert row_taken(before, advance(before, Event(E.MODEL_CALL), QUESTION_ANSWERING)) is None


def test_a_refusal_names_what_is_allowed() -> None:
    with pytest.raises(IllegalTransition, match="OBSERVED is not allowed in REASONING: allowed are ACTION"):
        advance(at(REASONING), OBSERVED, QUESTION_ANSWERING)
    with pytest.raises(IllegalTransition, match="the run has ended, and nothing follows an end"):
        advance(at(TERMINATED), OBSERVED, QUESTION_ANSWERING)


def test_rows_are_numbered_in_the_article_s_order() -> None:
    assert [row.row for row in TRANSITIONS] == [1, 2, 3, 4, 5, 6, 7, 8]


# --- Limits -----------------------------------------------------------------------------------

NO_LIMITS: tuple[Any, ...] = (0, -1, math.nan, math.inf, -math.inf, None, True, False, "3", [])


@pytest.mark.parametrize("name", Limits.__dataclass_fields__)
@pytest.mark.parametrize("value", NO_LIMITS, ids=repr)
def test_no_value_means_unlimited(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"Limits.{name} must be .* no value means unlimited"):
        Limits(**{name: value})


@pytest.mark.parametrize("name", ["rounds", "model_calls", "tool_calls", "effects", "failures", "tokens"])
def test_what_is_counted_is_whole(name: str) -> None:
    with pytest.raises(ValueError, match="must be a whole number of at least 1, not 2.5"):
        Limits(**{name: 2.5})  # type: ignore[arg-type]


def test_the_presets_follow_the_articles() -> None:
    assert (QUESTION_ANSWERING.rounds, RESEARCH.rounds, CODING.rounds) == (10, 25, 100)
    assert Limits() == QUESTION_ANSWERING
    assert (Limits().tokens, Limits().failures, Limits().call_seconds) == (50_000, 5, 30.0)


@pytest.mark.parametrize("limits", [Limits(), RESEARCH, CODING, Limits(rounds=1, effects=1)], ids=str)
def test_the_worst_case_is_a_closed_form_and_is_reached(limits: Limits) -> None:
    control, steps = run(ARRIVED, PERCEIVED, limits=limits), 2
    for _ in range(limits.effects):
        control, steps = advance(control, Event(E.OTHER_EFFECT), limits), steps + 1
    while control.stop is None:
        for event in ROUND:
            control, steps = advance(control, event, limits), steps + 1
    assert control.stop is StopReason.MAX_ITERATIONS
    assert steps == worst_case_steps(limits) == 2 + 3 * limits.rounds + limits.effects


def test_a_final_answer_wins_against_every_limit() -> None:
    rich = ANSWERED._replace(tokens=10**9, cost=1e9, at=1e9)
    assert advance(at(REASONING), rich, QUESTION_ANSWERING).stop is StopReason.FINAL_ANSWER


def test_a_need_that_would_cross_the_limit_is_not_sent_and_one_that_fits_is() -> None:
    limits = Limits(tokens=100, seconds=10.0)
    thinking = at(REASONING)
    assert advance(thinking, Event(E.MODEL_CALL, needs_tokens=100), limits).stop is None
    refused = advance(thinking, Event(E.MODEL_CALL, needs_tokens=101), limits)
    assert (refused.stop, refused.model_calls) == (StopReason.TOKEN_BUDGET, 0)
    assert advance(thinking, Event(E.OTHER_EFFECT, needs_seconds=10.0), limits).stop is None
    assert advance(thinking, Event(E.OTHER_EFFECT, needs_seconds=10.5), limits).stop is StopReason.WALL_CLOCK


# --- The errata, as far as they concern the machine -------------------------------------------


def test_EA01_an_answer_is_an_event_and_not_a_text_to_search() -> None:
    assert advance(at(REASONING), ANSWERED, QUESTION_ANSWERING).stop is StopReason.FINAL_ANSWER


@pytest.mark.parametrize("rounds", range(1, 11))
def test_EA02_the_forced_stop_is_refused_by_nothing(rounds: int) -> None:
    ended = run(ARRIVED, PERCEIVED, *(ROUND * rounds), limits=Limits(rounds=rounds))
    assert (ended.state, ended.stop) == (TERMINATED, StopReason.MAX_ITERATIONS)


@pytest.mark.parametrize("rounds", [1, 2, 10])
def test_EA03_a_limit_of_n_allows_n_rounds(rounds: int) -> None:
    limits = Limits(rounds=rounds)
    last = run(ARRIVED, PERCEIVED, *(ROUND * (rounds - 1)), limits=limits)
    assert (last.state, last.rounds) == (REASONING, rounds)
    ended = advance(run(ARRIVED, PERCEIVED, *(ROUND * rounds)[:-1], limits=limits), OBSERVED, limits)
    assert (ended.stop, ended.rounds) == (StopReason.MAX_ITERATIONS, rounds)


@pytest.mark.parametrize("state", LIVE, ids=lambda state: state.name)
def test_EA04_an_error_ends_the_run_from_every_live_state(state: AgentState) -> None:
    ended = advance(at(state), FAILED, QUESTION_ANSWERING)
    assert (ended.state, ended.stop) == (TERMINATED, StopReason.ERROR)


def test_EA05_a_refused_second_start_throws_nothing_away() -> None:
    ended = run(ARRIVED, PERCEIVED, *ROUND, ANSWERED)
    with pytest.raises(IllegalTransition, match="nothing follows an end") as refused:
        advance(ended, ARRIVED, QUESTION_ANSWERING)
    assert refused.value.control is ended
    assert ended.rounds == 2


def test_EA06_each_row_has_its_guard_and_both_its_outcomes_are_tested() -> None:
    for row in TRANSITIONS:
        outcomes = {target is None for number, _, _, target in GUARDS if number == row.row}
        assert outcomes == {True, False}, row.guard


@pytest.mark.parametrize("state", LIVE, ids=lambda state: state.name)
def test_EA07_a_person_can_stop_the_run_in_every_live_state(state: AgentState) -> None:
    assert advance(at(state), INTERRUPTED, QUESTION_ANSWERING).stop is StopReason.HUMAN


def test_EA08_and_EA59_time_that_is_up_while_waiting_is_the_table_s_own_edge() -> None:
    waiting = at(WAITING_FOR_OBSERVATION)
    ended = advance(waiting, OBSERVED._replace(at=300.0), QUESTION_ANSWERING)
    assert ended.stop is StopReason.WALL_CLOCK
    taken = row_taken(waiting, ended)
    assert taken is not None and taken.row == 7


def test_EA09_a_reply_without_an_action_does_not_go_acting() -> None:
    with pytest.raises(IllegalTransition, match="row 3"):
        advance(at(REASONING), Event(E.ACTION_CHOSEN, calls=0), QUESTION_ANSWERING)


def test_EA10_a_failed_action_costs_a_round_and_does_not_end_the_run() -> None:
    after = advance(at(WAITING_FOR_OBSERVATION), OBSERVED._replace(ok=False), QUESTION_ANSWERING)
    assert (after.state, after.failures, after.rounds) == (REASONING, 1, 2)


def test_EA10_failures_in_a_row_do_and_a_success_begins_again() -> None:
    limits = Limits(failures=2)
    failed = (CHOSEN, SUBMITTED, OBSERVED._replace(ok=False))
    assert run(ARRIVED, PERCEIVED, *failed, *ROUND, *failed, limits=limits).stop is None
    assert run(ARRIVED, PERCEIVED, *failed, *failed, limits=limits).stop is StopReason.TOO_MANY_FAILURES


def test_EA11_and_EA25_an_end_has_its_reason_in_its_control() -> None:
    for state in LIVE:
        assert at(state).stop is None
    ended = run(ARRIVED, PERCEIVED, *ROUND, limits=Limits(rounds=1))
    assert (ended.state, ended.stop) == (TERMINATED, StopReason.MAX_ITERATIONS)


def test_EA21_the_answer_path_is_open() -> None:
    ended = run(ARRIVED, PERCEIVED, *ROUND, ANSWERED)
    assert (ended.stop, ended.rounds) == (StopReason.FINAL_ANSWER, 2)


def test_EA20_and_EA22_the_second_round_is_entered_once_by_row_6() -> None:
    second = run(ARRIVED, PERCEIVED, *ROUND)
    assert (second.state, second.rounds) == (REASONING, 2)
    with pytest.raises(IllegalTransition, match="PERCEIVED is not allowed in REASONING"):
        advance(second, PERCEIVED, QUESTION_ANSWERING)


def test_EA23_thinking_on_without_an_action_is_no_way_from_acting_to_reasoning() -> None:
    with pytest.raises(IllegalTransition, match="OBSERVED is not allowed in ACTING"):
        advance(at(ACTING), OBSERVED, QUESTION_ANSWERING)


def test_EA24_each_run_begins_with_its_own_full_allowance() -> None:
    limits = Limits(rounds=2)
    first, second = (run(ARRIVED, PERCEIVED, *ROUND, limits=limits) for _ in range(2))
    assert first == second
    with pytest.raises(AttributeError):
        first.state = IDLE  # type: ignore[misc]


def test_EA57_every_field_is_declared_and_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AttributeError):
        Control().last_action_result = None  # type: ignore[attr-defined]
    run(*WAY[TERMINATED])
    assert capsys.readouterr() == ("", "")
