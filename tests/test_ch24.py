"""Chapter 24: the five failure modes, the robust loop, its storm, and the chart of its guards."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agentloop import (
    Act,
    AgentLoop,
    Control,
    Finish,
    Kind,
    Limits,
    LoopContext,
    LoopError,
    Observation,
    StopReason,
    Toolbox,
    ToolCall,
    World,
    call_tool,
    drive,
    report,
    settle,
)
from chapters.ch16_hard_limits import drive_in_pretend_time
from chapters.ch17_repetition_and_convergence import repeated_action, warn_first
from chapters.ch21_circuit_breaker import BreakerState
from chapters.ch22_hallucination import UNGROUNDED, corrective
from chapters.ch24_five_failure_modes import (
    ALLOWED,
    BARE,
    CLOSE_UP,
    MODES,
    NEEDED,
    Fate,
    Node,
    Place,
    Weathered,
    broken,
    edges,
    fate,
    flow_chart,
    guards,
    robust_loop,
    situation,
    weather,
)
from chapters.telling import Telling
from fake_llm import FakeClock
from fake_llm import storm as storm_module
from fake_llm.errands import TRAILS, ErrandKind, errands
from fake_llm.storm import HANG, Storm, Trouble
from tests.check_robust import PROMISES, check_robust, small, told

GUARDS = {guard.name: guard for guard in guards()}


@pytest.mark.parametrize("name", PROMISES)
def test_robust_loop_keeps(name: str) -> None:
    PROMISES[name](robust_loop)


def test_a_loop_with_its_limits_alone_breaks_them() -> None:
    with pytest.raises(AssertionError, match="."):
        check_robust(lambda each: robust_loop(each, BARE))


# --- The five failure modes -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_each_failure_mode_happens_and_is_caught(mode: str) -> None:
    _, play = MODES[mode]
    without, with_it = play(False), play(True)
    assert without.ending != "right"
    if mode == "成本静默爆炸":
        assert without.ending.endswith("the budget")
        assert StopReason[with_it.ending] and with_it.tokens * 10 < without.tokens
    else:
        assert with_it.right and with_it.ending == "right"


# --- The storm --------------------------------------------------------------------------------------

THOUSAND = range(1000)


@pytest.fixture(scope="module")
def storms() -> list[Weathered]:
    return [weather(seed) for seed in THOUSAND]


def test_in_a_thousand_storms_every_trouble_strikes_in_at_least_fifty(storms: list[Weathered]) -> None:
    seeds = Counter(trouble for each in storms for trouble in Trouble if each.storm.struck[trouble])
    assert {trouble.name: seeds[trouble] for trouble in Trouble if seeds[trouble] < 50} == {}


def test_in_a_thousand_storms_nine_in_ten_answers_are_right_and_the_rest_ends_honestly(
    storms: list[Weathered],
) -> None:
    fates = Counter(each.fate for each in storms)
    assert fates[Fate.RIGHT] >= 900
    assert fates[Fate.RIGHT] + fates[Fate.HONEST] == len(storms), f"wrong, harmful or dear: {fates}"


def test_an_errand_that_failed_says_why_and_what_was_found(storms: list[Weathered]) -> None:
    failed = [each.result for each in storms if each.fate is Fate.HONEST]
    assert failed
    for result in failed:
        assert result.answer is None and result.summary.startswith(f"{result.stop.name}: ")


def test_a_right_answer_is_confirmed_by_the_errands_own_check(storms: list[Weathered]) -> None:
    right = [each for each in storms if each.fate is Fate.RIGHT]
    assert all(each.storm.errand.is_right(each.result.answer) and not each.storm.ledger for each in right)


def test_only_what_is_brewing_strikes(storms: list[Weathered]) -> None:
    assert all(+each.storm.struck <= Counter(dict.fromkeys(each.storm.brewing, 10**6)) for each in storms)


def test_a_value_that_does_not_differ_has_not_struck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Storm, "_otherwise", lambda self, result: result)
    monkeypatch.setattr(storm_module, "_guess", lambda action, number: action)
    for trouble in (Trouble.DIFFERS, Trouble.GUESSES):
        for seed in range(10):
            storm = Storm(seed, [trouble])
            loop = robust_loop(situation(storm))
            drive_in_pretend_time(loop.run(storm.errand.text), storm.world, storm.clock, storm.takes)
            assert not storm.struck[trouble]


def test_what_was_made_up_about_a_lost_thing_is_wrong() -> None:
    for errand in (each for each in errands() if each.kind is ErrandKind.EXPLORATORY):
        thing, end = next((thing, trail[-1]) for thing, trail in TRAILS.items() if thing in errand.text)
        for right in (f"{thing}在{end}。", f" 它现在就在{end}", end, f"{thing}在{end}这里！"):
            assert errand.is_right(right)
        for added in ("出门向右走 4711 米。", "出门向右走。", "，大概。"):
            assert not errand.is_right(f"{thing}在{end}。{added}")
        assert not errand.is_right(f"{thing}不在{end}。")


def test_with_limits_alone_less_than_half_is_right() -> None:
    fates = Counter(weather(seed, BARE).fate for seed in range(100))
    assert fates[Fate.RIGHT] < 50
    assert fates[Fate.WRONG] and fates[Fate.HARMFUL]


def test_a_calm_world_is_no_trouble() -> None:
    for seed in range(10):
        storm = Storm(seed, [])
        result = drive(robust_loop(situation(storm)).run(storm.errand.text), storm.world)
        assert fate(storm, result) is Fate.RIGHT
        assert not any(storm.struck.values())


def test_a_seed_is_the_same_storm_again() -> None:
    once, again = weather(CLOSE_UP), weather(CLOSE_UP)
    assert told(once.result) == told(again.result)
    assert (once.result.control, once.storm.struck) == (again.result.control, again.storm.struck)


# --- Each guard is needed --------------------------------------------------------------------------


def test_there_is_a_seed_for_each_guard() -> None:
    assert set(NEEDED) == set(GUARDS)


@pytest.mark.parametrize("name", GUARDS)
def test_a_seed_fails_without_this_guard(name: str) -> None:
    """The seeds were found by running; they pass with all guards, and fail if this one is taken out."""
    assert weather(NEEDED[name]).fate is Fate.RIGHT
    assert weather(NEEDED[name], [name]).fate is not Fate.RIGHT


def test_EC01_every_mechanism_of_the_list_stands_in_the_loop() -> None:
    assert {guard.chapter for guard in guards()} == {15, 16, 17, 18, 19, 20, 21, 22, 26}
    assert {guard.place for guard in guards()} == set(Place)


def test_an_unknown_guard_cannot_be_left_out() -> None:
    with pytest.raises(ValueError, match="there is no guard .*retries"):
        robust_loop(situation(Storm(1)), ["retries"])


def test_the_hang_of_a_storm_is_longer_than_a_call_may_take() -> None:
    assert ALLOWED.call_seconds < HANG


# --- What nobody foresaw (A-125) -------------------------------------------------------------------


def test_an_unknown_exception_ends_the_run_with_its_cause_and_what_was_found() -> None:
    storm = Storm(1, [])

    def dangerous(call: ToolCall) -> str | None:
        if call.name == "look_for":
            raise ZeroDivisionError("a bug")
        return None

    with pytest.raises(LoopError, match="ZeroDivisionError: a bug") as raised:
        drive(robust_loop(replace(situation(storm), dangerous=dangerous)).run(storm.errand.text), storm.world)
    result = raised.value.result
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert (result.stop, result.answer) == (StopReason.ERROR, None)
    assert fate(storm, result) is Fate.CRASHED, "an ending that nobody chose is not an honest one"
    assert "ask_at(" in result.summary
    assert result.turns[-1].observations[-1].kind is not Kind.RESULT, "the call it happened in is not lost"


def test_the_story_tells_of_it() -> None:
    said = io.StringIO()
    broken(Telling(said))
    assert all(words in said.getvalue() for words in ("a hook raised KeyError", "ERROR: ", "Found so far:"))


def test_a_text_in_the_place_of_names_is_told_as_such() -> None:
    with pytest.raises(TypeError, match=r"such as \('breaker',\), not one text"):
        robust_loop(situation(Storm(1)), without="breaker")


@pytest.mark.parametrize("rule", [repeated_action, corrective])
def test_a_rules_maker_given_as_a_rule_is_told_so(rule: Any) -> None:
    with pytest.raises(ValueError, match=r"not a Control: did you forget \(\)"):
        drive(settle(warn_first(rule)(Control(rounds=1), LoopContext("a task"))), World())


def test_a_wrong_answer_is_shown_beside_the_right_one() -> None:
    with pytest.raises(AssertionError, match=r"was answered, and '.+' would have been right"):
        PROMISES["an_answer_needs_a_look"](lambda each: robust_loop(each, ("goal check", "facts")))


# --- The chart (A-109) ----------------------------------------------------------------------------

NODE = re.compile(r"(\w+)(\(\[[^]]+\]\)|\{[^}]+\}|\[[^]]+\]|\(\(\([^)]+\)\)\))")
EDGE = re.compile(r'(\w+) -->(?:\|"([^"]+)"\|)? (\w+)')


def test_the_chart_is_mermaid_in_which_every_arrow_joins_what_is_declared() -> None:
    first, *lines = [line.strip() for line in flow_chart().splitlines()]
    assert first == "flowchart TD"
    declared = [found[1] for line in lines if (found := NODE.fullmatch(line))]
    arrows = [found for line in lines if (found := EDGE.fullmatch(line))]
    assert len(declared) + len(arrows) + 1 == len(lines), "every line but the styles is a node or an arrow"
    assert len(set(declared)) == len(declared)
    assert {end for arrow in arrows for end in (arrow[1], arrow[3])} == set(declared)


def test_the_abnormal_paths_are_red_and_no_others() -> None:
    red = re.fullmatch(r"linkStyle ([\d,]+) stroke:red,color:red", flow_chart().splitlines()[-1].strip())
    assert red is not None
    assert [int(number) for number in red[1].split(",")] == [
        number for number, edge in enumerate(edges()) if edge.abnormal
    ]
    assert all(edge.label for edge in edges() if edge.abnormal), "what leads off the way is said"


def test_the_normal_way_goes_through_every_guard() -> None:
    on_the_way = {end for edge in edges() if not edge.abnormal for end in (edge.source, edge.target)}
    assert set(GUARDS) <= on_the_way


def test_every_guard_has_a_way_off_and_the_end_is_left_by_none() -> None:
    assert all(guard.paths for guard in guards())
    assert Node.END.name not in {edge.source for edge in edges()}


# --- The kinds in the chart are those that the guards act on ------------------------------------------

ASKED = ToolCall("ask", {}, "call_1_1_1")


def kinds_of(name: str) -> set[Kind]:
    return {kind for path in GUARDS[name].paths for kind in path.kinds}


def failing(kind: Kind) -> Callable[..., Observation]:
    def ask() -> Observation:
        """Ask."""
        return Observation(UNGROUNDED, False, kind)

    return ask


class Failing:
    """A situation whose tools all fail with one kind, and notes who was asked."""

    def __init__(self, kind: Kind) -> None:
        self.asked: list[str] = []
        self.clock = FakeClock()
        fail = failing(kind)

        def noting(name: str) -> Callable[[], Observation]:
            def ask() -> Observation:
                self.asked.append(name)
                return fail()

            return ask

        tools = Toolbox({name: noting(name) for name in ("ask", "other")}, idempotent=["ask", "other"])
        self.situation = small(tools, self.clock, alternatives={"ask": "other"})

    def act(self, name: str) -> Observation:
        guarded = GUARDS[name].wrap(self.situation, call_tool)
        world = World(tools=self.situation.tools, clock=self.clock.now, sleep=self.clock.sleep, inline=True)
        seen: Observation = drive(settle(guarded(ASKED)), world)
        return seen


@pytest.mark.parametrize("kind", Kind)
def test_retry_tries_the_kinds_of_its_path(kind: Kind) -> None:
    world = Failing(kind)
    world.act("retry")
    assert (len(world.asked) > 1) == (kind in kinds_of("retry"))


@pytest.mark.parametrize("kind", Kind)
def test_fallback_asks_elsewhere_after_the_kinds_of_its_path(kind: Kind) -> None:
    world = Failing(kind)
    world.act("fallback")
    assert ("other" in world.asked) == (kind in kinds_of("fallback"))


@pytest.mark.parametrize("kind", Kind)
def test_the_breaker_counts_the_kinds_of_its_path(kind: Kind) -> None:
    world = Failing(kind)
    for _ in range(5):
        world.act("breaker")
    is_open = world.situation.breakers.states().get("ask") is BreakerState.OPEN
    assert is_open == (kind in kinds_of("breaker"))


@pytest.mark.parametrize("kind", Kind)
def test_patience_asks_the_model_again_after_the_kinds_of_its_path(kind: Kind) -> None:
    world = Failing(kind)
    asked: list[int] = []

    def reason(context: LoopContext) -> Act | Finish:
        asked.append(len(asked))
        return report(Observation("the model failed", False, kind))

    guarded = GUARDS["patience"].wrap(world.situation, reason)
    sleeping = World(clock=world.clock.now, sleep=world.clock.sleep, inline=True)
    drive(settle(guarded(LoopContext("a task"))), sleeping)
    assert (len(asked) > 1) == (kind in kinds_of("patience"))


@pytest.mark.parametrize("kind", Kind)
def test_the_correction_speaks_after_the_kinds_of_its_path(kind: Kind) -> None:
    (rule,) = GUARDS["correction"].wrap(Failing(kind).situation, ())
    loop = AgentLoop(
        lambda context: Act((ToolCall("ask", {}),)),
        lambda call: failing(kind)(),
        stops=(rule,),
        limits=Limits(rounds=1),
    )
    result = drive(loop.run("ask"), World(inline=True))
    assert bool(result.turns[0].warnings) == (kind in kinds_of("correction"))
