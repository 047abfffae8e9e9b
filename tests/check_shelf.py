"""What external memory promises: plain functions of a guard's factory ``shelved(act, results=...)``.

``results`` are chapter 28's ``Results`` on a store of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import (
    Control,
    Do,
    Interrupted,
    Journal,
    Kind,
    LimitReached,
    Observation,
    Outcome,
    Program,
    StopReason,
    Toolbox,
    ToolCall,
    World,
    call_tool,
    drive,
    settle,
)
from paradigms.memory import Results
from paradigms.store import Store
from tests.check_machine import BrokenPromise
from tests.check_store import a_path
from tests.check_toolbox import expect

Shelved = Callable[..., Callable[[ToolCall], Any]]
PART = 200
#: Long texts: Chinese, letters with accents that may not be parted, and halves of surrogate pairs.
long_texts = st.builds(
    lambda piece, times: piece * times,
    st.text("a 京\u0301\U0001f468\u200d\ud800\n", min_size=1, max_size=40),
    st.integers(20, 60),
)


@contextmanager
def some_results() -> Iterator[Results]:
    with a_path() as path:
        yield Results(Store(path), PART)


def seen(shelved: Shelved, results: Results, observation: Observation) -> Observation:
    """What the guard makes of a tool's observation."""

    def act(call: ToolCall) -> Program[Observation]:
        came: Observation = (yield Do("the tool", lambda: observation)).value
        return came

    guarded = settle(shelved(act, results=results)(ToolCall("read", {})))
    made: Observation = drive(guarded, World(inline=True))
    return made


def told(observation: Observation) -> tuple[str, int]:
    """The handle and the place at which an observation says that it goes on; none where it ends."""
    found = re.search(r'read_result\(handle="(\w+)", start=(\d+)\)', observation.text)
    return (found[1], int(found[2])) if found else ("", 0)


def what_is_short_is_left_as_it_is(shelved: Shelved) -> None:
    """A result that can be shown is shown, and nothing is stored."""
    with some_results() as results:
        for length in (0, 1, PART, 2 * PART):
            short = Observation("京" * length)
            came = seen(shelved, results, short)
            expect(came == short, f"a result of {length} characters became {came.text!r}")


def what_is_long_is_shown_in_part(shelved: Shelved) -> None:
    """Of a huge result the prompt holds the beginning and a handle: not more than could be shown anyway."""
    with some_results() as results:
        for length in (2 * PART + 1, 50_000):
            came = seen(shelved, results, Observation("京" * length))
            shown = len(came.text)
            expect(shown <= 2 * PART, f"of a result of {length} characters it shows {shown}")
            expect(came.text.startswith("京" * (PART // 2)), f"its beginning is not shown, but {came.text!r}")
            expect(bool(told(came)[0]), f"it does not say how to read on: {came.text!r}")
            expect(str(length) in came.text, f"it does not say that there are {length}: {came.text!r}")


def reading_on_brings_all_of_it(shelved: Shelved) -> None:
    """Read from part to part, a result comes back whole, to the last character."""
    with some_results() as results:

        @settings(database=None, max_examples=25, deadline=None)
        @given(long_texts.filter(lambda text: len(text) > 2 * PART))
        def prove(text: str) -> None:
            came = seen(shelved, results, Observation(text))
            read, shown = "", came.text
            for _ in range(len(text)):
                handle, place = told(Observation(shown))
                read += shown[: place - len(read)] if handle else shown
                if not handle:
                    break
                expect(place == len(read), f"after {len(read)} characters it says to read on at {place}")
                shown = results.read_result(handle, place)
            expect(read == text, f"read from part to part, {text!r} came back as {read!r}")

        prove()


def what_failed_is_still_a_failure(shelved: Shelved) -> None:
    """A long failure is cut like any result, and other guards still read what kind it is."""
    with some_results() as results:
        failed = Observation("错" * 1000, False, Kind.UNAVAILABLE, 7.0)
        came = seen(shelved, results, failed)
        right = came[1:] == failed[1:] and len(came.text) <= 2 * PART
        expect(right, f"a long failure (UNAVAILABLE, try again after 7 s) became {came}")


def a_part_is_not_stored_again(shelved: Shelved) -> None:
    """What ``read_result`` brings goes through the guard too, and comes as it is."""
    with some_results() as results:
        handle, place = told(seen(shelved, results, Observation("京" * 5000)))
        world = World(tools=Toolbox([results.read_result]), inline=True)
        call = ToolCall("read_result", {"handle": handle, "start": place})
        came = drive(settle(shelved(call_tool, results=results)(call)), world)
        due = results.read_result(handle, place)
        expect(came == Observation(due), f"a part that was read is {due!r}, and the guard made {came.text!r}")


def a_store_that_fails_fails_no_run(shelved: Shelved) -> None:
    """Where a result cannot be stored, the model still sees its beginning, and is told."""

    class Full(Results):
        def keep(self, text: str) -> str:
            raise OSError("the disk is full")

    with a_path() as path:
        came = seen(shelved, Full(Store(path), PART), Observation("京" * 5000))
        expect(came.ok, f"the disk is full, and a result that was there became a failure: {came.text!r}")
        right = came.text.startswith("京" * (PART // 2)) and "the disk is full" in came.text
        expect(right, f"the disk is full, and what the model sees is {came.text[:400]!r}")
        expect(len(came.text) < 1000, f"the disk is full, and {len(came.text)} characters go into the prompt")


def what_is_in_hand_outlives_the_run(shelved: Shelved) -> None:
    """Where the run ends before a result is kept, the result that was paid for is still shown in part."""
    refusals = (LimitReached(Control(stop=StopReason.EFFECTS)), Interrupted(1.0))
    with some_results() as results:
        for refusal in refusals:
            program: Any = settle(shelved(call_tool, results=results)(ToolCall("read_much", {})))
            next(program)
            try:
                program.send(Outcome(Observation(read_much()), 1.0))
                program.throw(refusal)
            except StopIteration as ended:
                came = ended.value
            except (LimitReached, Interrupted) as error:
                raise BrokenPromise(
                    f"keeping was refused ({error}), and the result in hand is lost"
                ) from error
            right = came.ok and came.text.startswith("京" * (PART // 2)) and len(came.text) < 1000
            expect(right, f"keeping was refused ({refusal}), and the model sees {came.text[:400]!r}")


def a_replay_touches_no_store(shelved: Shelved) -> None:
    """The store is reached by an effect: run again on its journal, the same comes without it."""
    with some_results() as results:
        tools = Toolbox([read_much], max_characters=10_000)
        journal = Journal()
        call = ToolCall("read_much", {}, "call_1_1_1")

        def run(results: Results, tools: Toolbox | None) -> Observation:
            program = settle(shelved(call_tool, results=results)(call))
            came: Observation = drive(program, World(tools=tools, inline=True), journal)
            return came

        due = run(results, tools)
        with some_results() as untouched:
            again = run(untouched, None)
            expect(again == due, f"on its journal it comes to {again}, and the first time to {due}")
            try:
                untouched.read_result(told(again)[0])
            except LookupError:
                return
            expect(False, "run again on its journal, it has stored the result a second time")


def read_much() -> str:
    """Read much."""
    return "京" * 5000


PROMISES: dict[str, Callable[[Shelved], None]] = {
    promise.__name__: promise
    for promise in (
        what_is_short_is_left_as_it_is,
        what_is_long_is_shown_in_part,
        reading_on_brings_all_of_it,
        what_failed_is_still_a_failure,
        a_part_is_not_stored_again,
        a_store_that_fails_fails_no_run,
        what_is_in_hand_outlives_the_run,
        a_replay_touches_no_store,
    )
}
