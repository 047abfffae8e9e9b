"""What any stop rule promises that watches behaviour: for ``make_rule()``, which makes one that is ready.

``check_stop_rule(make_rule)`` raises ``BrokenPromise`` with the story of the first promise that is broken.
The rules of chapter 17 keep more, each its own: see ``check_repetition.py`` and the files beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from types import MappingProxyType
from typing import Any

from agentloop import RULE_REASONS, LoopContext, Observation, StopReason, ToolCall, Turn
from tests.check_toolbox import expect
from tests.stop_rule_worlds import Action, Rule, asked, doing, is_left_alone, run

Make = Callable[[], Rule]

STUCK = [doing(Action(result="service unavailable"), said="先查天气。")] * 40
_NEW = count(1)
WORK = [
    doing(Action("get_weather", {"city": city}, f"{city}: {sky}"), said=said)
    for city, sky, said in (
        ("北京", "晴", "先看北京。"),
        ("上海", "多云", "上海怎么样？"),
        ("广州", "雨", "那么南方呢，去广州看看。"),
        ("哈尔滨", "雪", "Now the far north."),
        ("厦门", "雾", "最后是海边的厦门。"),
    )
]


class Unwritable:
    """A value that nobody can write down, hash or compare."""

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise ValueError("no words for it")

    def __eq__(self, other: object) -> bool:
        raise ValueError("incomparable")


def odd_arguments() -> list[Any]:
    """Arguments such as a hook may hand over, however strange."""
    holds_itself: dict[str, Any] = {}
    holds_itself["me"] = holds_itself
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    return [
        {},
        holds_itself,
        {"deep": deep},
        {"it": Unwritable()},
        {"set": {1, 2}, "bytes": b"\xff", "none": None, "nan": float("nan")},
        {1: "one", "one": 1, None: [], (1, 2): {}},
        MappingProxyType({"b": 1, "a": [{"y": 1, "x": 2}]}),
        {"text": "\ud800\x00\u202e" * 3},
        {"text": "x" * 200_000},
    ]


# --- The promises -----------------------------------------------------------------------------


def honest_work_is_left_alone(make_rule: Make) -> None:
    """A model that does something new each round, and gets something new, is neither stopped nor warned."""
    is_left_alone(make_rule(), WORK, "each round asked for something new and got it")


def a_stuck_run_is_stopped(make_rule: Make) -> None:
    """A model that does the same for ever is stopped, for a reason that a stop rule may name."""
    end = run(make_rule(), STUCK)
    expect(end.after is not None, f"the same call had the same result {len(STUCK)} times, and nobody minded")
    expect(end.reason in RULE_REASONS, f"it was stopped with {end.reason.name}, which is no rule's to name")
    told = f"the same call had the same result {end.after} times before the rule stopped it"
    expect((end.after or 0) <= 10, told)


def runs_share_nothing(make_rule: Make) -> None:
    """A run is judged by what it did itself, whatever others did before or beside, under any rule so made."""
    # What nobody has done yet, in this promise or another: else "alone" would hold what a rule remembers.
    stuck_in = f"a place that is new {next(_NEW)}"
    stuck = [doing(Action(arguments={"city": stuck_in}, result=f"no way to {stuck_in}"), said=stuck_in)] * 40
    alone = run(make_rule(), stuck).after
    expect(alone != 1, "a run was stopped after its first round, for what others did: it repeated nothing")
    rule = make_rule()
    for under in ("another rule of this maker", "this rule, once", "this rule, twice"):
        again = run(rule, stuck).after
        told = f"the first run is stopped after round {alone}, one after others under {under} after {again}"
        expect(again == alone, told)
    is_left_alone(rule, WORK, "it did something new each round, and only others were stuck")
    sides = LoopContext("one"), LoopContext("two")
    for number, each in enumerate(run(make_rule(), stuck).result.turns, 1):
        for context in sides:
            verdict = asked(rule, context, each)
            due = number == alone
            told = f"alone a run is stopped after round {alone}; of two side by side one heard {verdict!r}"
            expect(isinstance(verdict, StopReason) == due, f"{told} after its round {number}")


def odd_rounds_do_not_crash_it(make_rule: Make) -> None:
    """Whatever a call holds and a result says, the rule comes to an answer."""
    rounds = [doing(Action("odd", each, "\ud800" if number % 2 else "x" * 100_000), said="\udfff" * number)
              for number, each in enumerate(odd_arguments())]  # fmt: skip
    unread = doing(Action("", {}, "no action was found"), said="I will look it up.")
    for behaviour in (rounds, [each for each in rounds for _ in range(2)], [unread, *rounds, unread]):
        run(make_rule(), behaviour)
    for each in rounds:
        run(make_rule(), [each] * 4)


class Counted(Mapping[str, Any]):
    """Arguments that count how often they are read."""

    def __init__(self, city: str) -> None:
        self._entries, self.reads = {"city": city}, 0

    def __getitem__(self, key: str) -> Any:
        return self._entries[key]

    def __iter__(self) -> Iterator[str]:
        self.reads += 1
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def an_old_turn_is_not_read_again(make_rule: Make) -> None:
    """A round costs the same however long the run is: the arguments of old turns are not read each time."""
    arguments = [Counted(f"city {number}") for number in range(60)]
    rule, context = make_rule(), LoopContext("a task")
    for number, each in enumerate(arguments, 1):
        call = ToolCall("get_weather", each, f"call_1_{number}_1")
        asked(rule, context, Turn(f"thought {number}", (call,), (Observation(f"result {number}"),)))
    most = max(each.reads for each in arguments)
    expect(
        most <= 12, f"in a run of {len(arguments)} rounds the arguments of one call were read {most} times"
    )


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        honest_work_is_left_alone,
        a_stuck_run_is_stopped,
        runs_share_nothing,
        odd_rounds_do_not_crash_it,
        an_old_turn_is_not_read_again,
    )
}


def check_stop_rule(make_rule: Make) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(make_rule)
