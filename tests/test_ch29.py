"""Chapter 29: planning sees everything, a step little; and what each strategy costs and keeps."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import RESEARCH, AgentLoop, Journal, Limits, Result, StopReason, World, drive
from chapters.ch07_drivers import drive_async, drive_on_bus
from chapters.ch29_staged_context import (
    LETTERS,
    STRATEGIES,
    TASK,
    WINDOW,
    WISHES,
    Office,
    measured,
    planned_once,
    recalled,
    secretary,
    sent_in_all,
    staged,
)
from fake_llm import FakeClock, FakeModel, random_model
from fake_llm.reader import Guidebook
from paradigms.prompt import View, last_turns, whole_history
from paradigms.react import react
from paradigms.store import Store
from tests import check_staged
from tests.check_machine import BrokenPromise
from tests.strategies import limits as any_limits

# --- The promises -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", check_staged.PROMISES)
def test_staged_keeps(name: str) -> None:
    check_staged.PROMISES[name](staged)


def test_the_first_attempt_breaks_what_the_exercise_says() -> None:
    broken = set()
    for name, promise in check_staged.PROMISES.items():
        try:
            promise(planned_once)
        except BrokenPromise:
            broken.add(name)
    assert broken == {
        "the_latest_plan_is_the_plan",
        "a_plan_that_failed_is_none",
        "any_run_is_shown_as_it_stands",
        "what_is_left_out_is_marked",
    }


def test_a_view_that_remembers_across_runs_is_caught() -> None:
    kept: dict[Any, Any] = {}

    def staged_for_all(plan: str, last: int = 2) -> View:
        view = staged(plan, last)

        def shown(prompt: Any) -> Any:
            prompt.context.private = kept  # one memory, whichever run it is
            return view(prompt)

        return shown

    with pytest.raises(BrokenPromise, match="beside one that has a plan"):
        check_staged.PROMISES["one_view_serves_many_runs"](staged_for_all)


@pytest.mark.parametrize("last", [0, -1, True, 1.5])
def test_a_number_of_turns_that_makes_no_sense_is_refused(last: Any) -> None:
    with pytest.raises(ValueError, match="last must be a whole number of at least 1"):
        staged("write_plan", last)


# --- The stages, in a run ---------------------------------------------------------------------


class Booking:
    """One office, one secretary, one view."""

    def __init__(self, view: View, model: Any = None) -> None:
        self.office, self.model = Office(), model or FakeModel(secretary)
        self.loop = AgentLoop(react(self.office.tools, view), limits=RESEARCH)
        self.world = World(self.model, self.office.tools, clock=FakeClock().now, inline=True)

    def run(self, journal: Journal | None = None) -> Result:
        return drive(self.loop.run(TASK), self.world, journal)

    @property
    def steps(self) -> list[int]:
        """The tokens of the requests after the plan was made."""
        return [request.tokens for request in self.model.requests[LETTERS + 1 :]]


def test_B54_the_plan_is_as_good_as_with_everything_and_a_step_costs_an_eighth() -> None:
    short, whole, both = Booking(last_turns(2)), Booking(whole_history), Booking(staged("write_plan"))
    assert short.run().stop is StopReason.MAX_ITERATIONS
    assert whole.run().answer == both.run().answer is not None
    assert whole.office.tickets == both.office.tickets == [*WISHES.values()]
    assert whole.model.requests[: LETTERS + 1] == both.model.requests[: LETTERS + 1], "planning sees the same"
    assert max(both.steps) < min(whole.steps) / 7
    assert set(short.office.tickets) < set(WISHES.values())


def test_the_same_under_every_driver_and_on_a_replayed_journal() -> None:
    journal = Journal()
    bookings = [Booking(staged("write_plan")) for _ in range(4)]
    due = bookings[0].run(journal)
    assert asyncio.run(drive_async(bookings[1].loop.run(TASK), bookings[1].world)) == due
    assert asyncio.run(drive_on_bus(bookings[2].loop.run(TASK), bookings[2].world)) == due
    assert bookings[3].run(journal) == due and not bookings[3].model.requests


def test_broken_off_anywhere_and_resumed_it_comes_to_the_same() -> None:
    journal = Journal()
    due = Booking(staged("write_plan")).run(journal)
    for count in range(0, len(journal.outcomes) + 1, 3):
        assert Booking(staged("write_plan")).run(journal.rewound(count)) == due


@given(st.integers(0, 10**6), any_limits)
def test_whatever_a_model_says_the_run_ends_and_tells_the_truth(seed: int, limits: Limits) -> None:
    office = Office()
    view = staged("write_plan")
    loop = AgentLoop(react(office.tools, view), limits=limits)
    result = drive(loop.run(TASK), World(random_model(seed), office.tools, inline=True))
    assert (result.answer is not None) == (result.stop is StopReason.FINAL_ANSWER)


# --- What a round costs -----------------------------------------------------------------------


@given(st.integers(1, 200), st.integers(0, 3000), st.integers(0, 1000))
def test_EB11_the_sum_of_all_requests_is_quadratic(rounds: int, head: int, turn: int) -> None:
    assert sent_in_all(rounds, head, turn) == sum(head + turn * before for before in range(rounds))


def test_EB11_B52_ten_times_the_rounds_cost_far_more_than_ten_times_as_much(tmp_path: Path) -> None:
    store = Store(tmp_path / "notes")
    sizes = {pages: measured(Guidebook(pages), STRATEGIES[0], store).sizes for pages in (2, 9, 29)}
    head, turn = sizes[9][0], (sizes[9][-1] - sizes[9][0]) // 9
    assert 180 <= turn <= 220, "article B: a turn is about 200 tokens"
    for each in sizes.values():
        assert sum(each) == pytest.approx(sent_in_all(len(each), head, turn), rel=0.03)
    assert sum(sizes[29]) > 50 * sum(sizes[2])


def test_EB12_a_hundred_small_calls_reach_the_budget_and_do_not_cross_it(tmp_path: Path) -> None:
    limits = Limits(rounds=100, model_calls=100, tool_calls=100)
    run = measured(Guidebook(99), STRATEGIES[0], Store(tmp_path / "notes"), limits)
    assert run.result.stop is StopReason.TOKEN_BUDGET
    assert run.result.control.rounds < 30
    assert sum(run.sizes) <= run.result.control.tokens <= limits.tokens


# --- What each strategy keeps -----------------------------------------------------------------

#: Whether the stamp of an early, a middle and a late page stands in the last prompt, for 100 pages.
KEEPS = {
    "none": (True, True, True),
    "last_turns(5)": (False, False, True),
    f"keep_last({WINDOW})": (False, False, True),
    f"keep_head_and_tail(2, 5, {WINDOW})": (True, False, True),
    f"summarise({WINDOW})": (True, True, True),
    "last_turns(5), and notes": (True, True, True),
}


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_the_last_table_tells_what_stands_in_the_last_prompt(strategy: Any, tmp_path: Path) -> None:
    book = Guidebook(100)
    run = measured(book, strategy, Store(tmp_path / "notes"))
    text = "\n".join(message.content for message in run.requests[-1].messages)
    stamps = [book.read_page(page).rpartition("印章是")[2].strip("。") for page in book.asked]
    assert tuple(stamp in text for stamp in stamps) == KEEPS[strategy.name]
    assert run.result.stop is StopReason.FINAL_ANSWER
    if "none" not in strategy.name:
        assert max(run.sizes) <= WINDOW


def test_what_lies_in_the_middle_is_overlooked_and_noted_it_is_not(tmp_path: Path) -> None:
    book, store = Guidebook(41, asked=range(1, 42, 5)), Store(tmp_path / "notes")
    none, noted = STRATEGIES[0], STRATEGIES[-1]
    whole = recalled(book, measured(book, none, store).requests[-1], 50)
    assert whole[4] == min(whole) < 25 and min(whole[0], whole[-1]) >= 40
    assert min(recalled(book, measured(book, noted, store).requests[-1], 50)) >= 48


def test_every_length_of_every_strategy_is_linear_but_for_none(tmp_path: Path) -> None:
    store = Store(tmp_path / "notes")
    for strategy in STRATEGIES:
        small, large = (sum(measured(Guidebook(pages), strategy, store).sizes) / pages for pages in (50, 300))
        assert (large > 4 * small) if strategy.name == "none" else (large < 1.3 * small), strategy.name
