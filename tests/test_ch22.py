"""Chapter 22: a made-up call, fact, result or decision is noticed, told of, and does not burn the budget."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import (
    RESEARCH,
    Act,
    AgentLoop,
    Away,
    CallModel,
    Finish,
    Interrupt,
    Journal,
    Kind,
    Limits,
    LoopContext,
    LoopError,
    Message,
    Observation,
    Program,
    Result,
    StopReason,
    Toolbox,
    ToolCall,
    Unavailable,
    World,
    call_tool,
    drive,
    settle,
    worst_case_steps,
)
from chapters.ch07_drivers import drive_async, drive_on_bus
from chapters.ch15_goal_detection import all_of, refused_too_often, verified
from chapters.ch18_human_in_the_loop import approval
from chapters.ch19_retry_with_backoff import patient, retry
from chapters.ch20_fallback_and_errors_as_observations import fallback
from chapters.ch22_hallucination import (
    GUESSES,
    LIST_FACTS,
    TASK,
    UNGROUNDED,
    WARNING,
    TicketOffice,
    any_text,
    claimed_by_model,
    confident,
    consistent,
    corrective,
    dispatched,
    embellishing_model,
    grounded,
    half_remembering_model,
    helpful,
    numbers_in,
    places_and_numbers,
    stated,
    stuck,
    unshown,
    unstated,
    weather_model,
)
from fake_llm import (
    Cashier,
    FakeClock,
    FakeModel,
    ScriptedModel,
    flaky_tool,
    get_attraction,
    get_weather,
    typical_replies,
)
from paradigms.chain_of_thought import chain_of_thought
from paradigms.react import react
from tests import check_confident, check_consistent, check_corrective, check_grounded
from tests.check_machine import BrokenPromise

PROMISES: dict[str, Any] = {
    "grounded": (check_grounded.PROMISES, grounded),
    "corrective": (check_corrective.PROMISES, corrective),
    "consistent": (check_consistent.PROMISES, consistent),
    "confident": (check_confident.PROMISES, confident),
}


@pytest.mark.parametrize(
    ("check", "name"), [(check, name) for check in PROMISES for name in PROMISES[check][0]]
)
def test_ours_keeps(check: str, name: str) -> None:
    promises, ours = PROMISES[check]
    promises[name](ours)


def test_facts_as_plain_text_break_the_promises() -> None:
    with pytest.raises(BrokenPromise, match="'6' is not shown"):
        check_grounded.the_cases_come_out_right(any_text)


# --- The chapter's story ----------------------------------------------------------------------


def asked_for_tickets(act_of: Callable[[Any], Any] | None) -> tuple[TicketOffice, Result]:
    office = TicketOffice()
    tools = Toolbox([office.list_tickets, office.cancel_ticket])
    functions = {"list_tickets": office.list_tickets, "cancel_ticket": office.cancel_ticket}
    loop = AgentLoop(react(tools), act_of(functions) if act_of else call_tool)
    return office, drive(loop.run("我订了哪些票？"), World(half_remembering_model(), tools, inline=True))


def test_B43_a_tool_that_does_not_exist_crashes_a_plain_dispatcher() -> None:
    with pytest.raises(LoopError) as caught:
        asked_for_tickets(dispatched)
    assert isinstance(caught.value.__cause__, KeyError)


def test_B43_a_dispatcher_that_helps_does_what_nobody_asked_for() -> None:
    office, result = asked_for_tickets(helpful)
    assert office.held == [] and result.answer == "票已经退了。"


def test_B43_a_structured_error_lets_the_model_mend_it() -> None:
    office, result = asked_for_tickets(None)
    assert office.held == ["故宫"] and result.answer == "您有一张故宫的票。"
    assert [seen.kind for turn in result.turns for seen in turn.observations] == [
        Kind.UNKNOWN_TOOL,
        Kind.RESULT,
    ]


def test_B43_arguments_of_another_shape_are_not_run_and_told_the_right_shape() -> None:
    model = ScriptedModel(
        ['Action: get_weather(town="北京")', 'Action: get_weather(city="北京")', "Action: Finish[晴]"]
    )
    tools = Toolbox([get_weather])
    result = drive(AgentLoop(react(tools), stops=(corrective(),)).run(TASK), World(model, tools, inline=True))
    first = result.turns[0]
    assert (
        first.observations[0].kind is Kind.BAD_ARGUMENTS
        and "(city: str) -> str" in first.observations[0].text
    )
    assert first.warnings == (f"{WARNING} The tool takes no such arguments. (correction 1 of 2)",)
    assert result.answer == "晴"


def embellished(mends: bool, limits: Limits = RESEARCH, **options: Any) -> Result:
    tools = Toolbox([get_weather, get_attraction])
    loop = AgentLoop(react(tools), limits=limits, **options)
    return drive(loop.run(TASK), World(embellishing_model(mends), tools, inline=True))


def test_A113_what_nobody_found_is_believed_without_the_check_and_mended_with_it() -> None:
    believed = embellished(mends=True)
    seen = [seen.text for turn in believed.turns for seen in turn.observations]
    assert unshown(places_and_numbers(believed.answer), seen) == ["31", "北海"]
    mended = embellished(mends=True, accept=grounded(places_and_numbers))
    assert mended.answer == "北京今天晴，26 度，推荐颐和园和长城。"


def test_EA52_the_model_hears_the_warning_and_is_asked_again_a_few_times() -> None:
    tools, model = Toolbox([get_weather, get_attraction]), embellishing_model(mends=False)
    loop = AgentLoop(
        react(tools), accept=grounded(places_and_numbers), stops=(corrective(2),), limits=RESEARCH
    )
    result = drive(loop.run(TASK), World(model, tools, inline=True))
    assert (result.answer, result.stop) == (None, StopReason.STAGNATED)
    told = [turn for turn in result.turns if turn.warnings]
    assert len(told) == 2 and len(model.requests) == result.control.rounds == 9
    assert WARNING in model.prompts[3] and WARNING not in model.prompts[2]
    assert "26 摄氏度" in result.summary, "what was found is kept"


def test_A123_without_a_limit_of_its_own_the_whole_budget_burns() -> None:
    check = grounded(places_and_numbers)
    without, bounded = (
        embellished(False, accept=check),
        embellished(False, accept=check, stops=(corrective(),)),
    )
    assert without.stop is StopReason.MAX_ITERATIONS
    assert without.control.tokens > 4 * bounded.control.tokens


def test_A113_what_a_fallback_adds_to_a_result_is_no_evidence() -> None:
    def search(query: str) -> str:
        raise Unavailable(f"nothing can be found for {query}")

    def search_elsewhere(query: str) -> str:
        return "nothing found"

    made_up = "颐和园门票 77 元"
    model = ScriptedModel([f'Action: search(query="{made_up}")', f"Action: Finish[{made_up}]"] * 2)
    tools = Toolbox([search, search_elsewhere])
    act = fallback(call_tool, {"search": "search_elsewhere"})
    loop = AgentLoop(react(tools), act, accept=grounded(numbers_in), limits=Limits(rounds=2))
    result = drive(loop.run("门票多少钱？"), World(model, tools, inline=True))
    assert result.turns[0].observations[0].ok and result.answer is None


@pytest.mark.parametrize(
    ("others", "answer"),
    [
        ((), "雪，零下 8 度，去滑雪。"),
        (("get_forecast",), "两个气象站说法不同，今天的天气查不到。"),
        (("get_forecast", "ask_airport"), "晴，26 度，去颐和园。"),
    ],
)
def test_A114_a_stuck_station_is_believed_then_doubted_then_outvoted(
    others: tuple[str, ...], answer: str
) -> None:
    stations: dict[str, Callable[..., Any]] = {
        "get_weather": stuck,
        "get_forecast": get_weather,
        "ask_airport": get_weather,
    }
    tools = Toolbox(stations, idempotent=stations)
    act = consistent(idempotent=tools.is_idempotent, others={"get_weather": others})
    result = drive(AgentLoop(react(tools), act).run(TASK), World(weather_model(), tools, inline=True))
    assert result.answer == answer and result.control.tool_calls == 1 + len(others)


def test_A115_a_guess_is_believed_and_then_looked_up() -> None:
    tools, asked = Toolbox([get_weather]), []

    def person(question: str) -> str:
        asked.append(question)
        return "去查"

    def answer(reason: Any) -> Any:
        return drive(
            AgentLoop(reason).run("多少度？"), World(ScriptedModel(GUESSES), tools, person, inline=True)
        ).answer

    assert answer(react(tools)) == "22 度" and asked == []
    assert answer(confident(react(tools))) == "26 度"
    assert len(asked) == 1 and "answer: 22 度\nanother sample: answer: 28 度" in asked[0]


# --- What the guards use ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("北京 26 度，零下 8 度，1,234 元，2.5 折", ("26", "零下 8", "1,234", "2.5")),
        ("没有数字", ()),
        (26, ("26",)),
        (None, ()),
        ("A4 3-5 ３％", ("3", "5", "3")),
        ("1" * 5000, ("1" * 5000,)),
        ("10² m²，.5 倍，1.50 元，v1.5，½，等等...7", ("10", ".5", "1.50", "7")),
    ],
)
def test_numbers_of_an_answer(answer: Any, found: tuple[str, ...]) -> None:
    assert numbers_in(answer) == found


@given(st.text())
@settings(deadline=None, database=None)
def test_the_numbers_of_any_text_stand_in_that_text(text: str) -> None:
    assert unshown(numbers_in(text), [text]) == []


@pytest.mark.parametrize(
    ("says", "facts"),
    [
        ("26\n- 颐和园\n", ("26", "颐和园")),
        ("None", ()),
        ("", None),
        (" \n - \n", None),
        (ConnectionError("503"), None),
    ],
)
def test_A113_facts_that_a_model_finds_and_silence_is_unknown(says: Any, facts: Any) -> None:
    model = ScriptedModel([says])
    assert drive(claimed_by_model("北京 26 度"), World(model, inline=True)) == facts
    assert model.requests[0].messages[0].content == LIST_FACTS


def test_A113_the_model_that_lists_facts_is_paid_from_the_account() -> None:
    script = [
        "Action: Finish[26 度]",
        "26",
        'Action: get_weather(city="北京")',
        "Action: Finish[26 度]",
        "26",
    ]
    tools, model = Toolbox([get_weather]), ScriptedModel(script)
    loop = AgentLoop(react(tools), accept=grounded(claimed_by_model))
    result = drive(loop.run("北京多少度？"), World(model, tools, inline=True))
    assert (result.answer, result.control.model_calls) == ("26 度", 5)


@pytest.mark.parametrize(
    ("thought", "confidence"),
    [
        ("Confidence: 0.4", 0.4),
        ("置信度：90%", 0.9),
        ("Confidence: high", None),
        ("", None),
        ("Confidence: 7", None),
    ],
)
def test_what_a_model_states(thought: str, confidence: float | None) -> None:
    assert stated(Finish("x", thought)) == confidence


def test_a_model_is_told_to_say_how_sure_it_is() -> None:
    model = ScriptedModel(["Confidence: 0.9\nAction: Finish[晴]"])
    drive(AgentLoop(confident(react(Toolbox([])))).run("晴吗？"), World(model, inline=True))
    assert "write: Confidence: how sure you are of it, 0 to 1" in model.prompts[0]


def test_two_that_are_never_sure_ask_the_person_once_a_round() -> None:
    asked: list[str] = []

    def person(question: str) -> str:
        asked.append(question)
        return "no"

    hook = confident(
        confident(lambda context: Finish("22"), confidence=unstated, samples=1), confidence=unstated
    )
    drive(AgentLoop(hook, limits=Limits(rounds=2)).run("?"), World(human=person, inline=True))
    assert len(asked) == 2 == len(set(asked)) + 1, "once in each of two rounds, in the same words"


# --- Every driver, any break, a person who comes later -------------------------------------------


def guarded_run() -> tuple[Program[Result], World]:
    """All four at once, on models and tools of this chapter."""
    stations: dict[str, Callable[..., Any]] = {
        "get_weather": stuck,
        "get_forecast": get_weather,
        "ask_airport": get_weather,
    }
    tools = Toolbox({**stations, "get_attraction": get_attraction}, idempotent=stations)
    loop = AgentLoop(
        confident(react(tools)),
        consistent(idempotent=tools.is_idempotent, others={"get_weather": ["get_forecast", "ask_airport"]}),
        accept=grounded(places_and_numbers),
        stops=(corrective(2),),
        limits=RESEARCH,
    )
    world = World(embellishing_model(True), tools, lambda question: "yes", clock=FakeClock().now, inline=True)
    return loop.run(TASK), world


@pytest.mark.parametrize("driver", [drive_async, drive_on_bus], ids=["drive_async", "drive_on_bus"])
def test_every_driver_comes_to_the_same(driver: Callable[..., Any]) -> None:
    due = drive(*guarded_run())
    assert due.answer == "北京今天晴，26 度，推荐颐和园和长城。"
    assert asyncio.run(driver(*guarded_run())).turns == due.turns


def test_broken_off_anywhere_and_resumed_it_comes_to_the_same() -> None:
    journal = Journal()
    due = drive(*guarded_run(), journal=journal)
    for count in range(len(journal.outcomes) + 1):
        assert drive(*guarded_run(), journal=journal.rewound(count)) == due


def test_a_person_stops_the_run_in_the_middle_of_comparing_and_of_sampling() -> None:
    interrupt = Interrupt()

    def act(call: ToolCall) -> Program[Observation]:
        seen = yield from call_tool(call)
        interrupt.set()
        return seen

    def call(context: LoopContext) -> Act:
        return Act((ToolCall("get_weather", {"city": "北京"}),), "look")

    world, asked = World(tools=Toolbox([get_weather]), inline=True), FakeModel(lambda request: GUESSES[0])
    loop = AgentLoop(call, consistent(act, idempotent=lambda name: True, times=3))
    result = drive(loop.run("?"), world, interrupt=interrupt)
    assert result.stop is StopReason.HUMAN and result.control.tool_calls == 3
    assert result.turns[0].observations[0].text.startswith(get_weather("北京"))

    def reason(context: LoopContext) -> Program[Any]:
        yield CallModel((Message("user", "?"),))
        interrupt.set()
        return Finish("22 度", "a guess")

    interrupt = Interrupt()
    result = drive(AgentLoop(confident(reason)).run("?"), World(asked, inline=True), interrupt=interrupt)
    assert (result.answer, result.stop) == (None, StopReason.HUMAN) and len(asked.requests) == 1
    assert [turn.thought for turn in result.turns] == ["a guess"]


def test_a_person_who_is_away_leaves_the_decision_open() -> None:
    def away(question: str) -> str:
        raise Away(question)

    tools, journal = Toolbox([get_weather]), Journal()
    loop = AgentLoop(confident(react(tools)))
    with pytest.raises(Away):
        drive(loop.run("?"), World(ScriptedModel(GUESSES[:2]), tools, away, inline=True), journal)
    later = World(ScriptedModel(()), tools, lambda question: "yes", inline=True)
    assert drive(loop.run("?"), later, journal).answer == "22 度"


# --- In any stack ------------------------------------------------------------------------------

THOUGHTS = (
    *GUESSES,
    "Confidence: 0.9\nAction: Finish[26 度]",
    "Confidence: 0.9\nAction: pay(amount=9)",
    "Confidence: 0.9\nAction: get_wether(town=3)",
    *(answer for answer in typical_replies() if isinstance(answer, str | Exception)),
)
ACTS = ("consistent", "retry", "approval")
REASONS = ("confident", "patient", "chain")


@settings(deadline=None, database=None, max_examples=60)
@given(
    st.lists(st.sampled_from(THOUGHTS), min_size=1, max_size=10),
    st.permutations(ACTS),
    st.permutations(REASONS),
    st.sampled_from([None, "yes", "no"]),
    st.integers(0, 3),
    st.builds(Limits, rounds=st.integers(1, 5), effects=st.integers(1, 40), tool_calls=st.integers(1, 9)),
)
def test_in_any_order_with_other_guards_it_ends_and_nothing_acts_twice(
    thoughts: list[Any], acts: list[str], reasons: list[str], says: Any, failures: int, limits: Limits
) -> None:
    cashier, clock, said = Cashier(), FakeClock(), [0]
    tools = Toolbox(
        [flaky_tool(get_weather, failures), cashier.pay, get_attraction], idempotent=["get_weather"]
    )

    def respond(request: CallModel) -> Any:
        said[0] += 1
        return thoughts[said[0] % len(thoughts)]

    around_act: dict[str, Callable[[Any], Any]] = {
        "consistent": lambda act: consistent(act, idempotent=tools.is_idempotent, times=2),
        "retry": lambda act: retry(act, idempotent=tools.is_idempotent),
        "approval": lambda act: approval(act, lambda call: "pays" if call.name == "pay" else None),
    }
    around_reason: dict[str, Callable[[Any], Any]] = {
        "confident": confident,
        "patient": patient,
        "chain": lambda reason: chain_of_thought(reason, depth=1),
    }
    act: Any = call_tool
    for name in acts:
        act = around_act[name](act)
    reason: Any = react(tools)
    for name in reasons:
        reason = around_reason[name](reason)
    loop = AgentLoop(
        reason,
        act,
        limits=limits,
        accept=all_of(verified(), grounded(numbers_in)),
        stops=(corrective(1), refused_too_often(2)),
    )
    human = None if says is None else lambda question: says
    world = World(FakeModel(respond), tools, human, clock.sleep, clock.now, inline=True)
    result = drive(loop.run(TASK), world)
    control = result.control
    assert 2 + 3 * control.rounds + control.effects <= worst_case_steps(limits)
    assert (result.answer is not None) == (result.stop is StopReason.FINAL_ANSWER)
    for turn in result.turns:
        assert len(turn.calls) == len(turn.observations)
    wanted = sum(call.name == "pay" for turn in result.turns for call in turn.calls)
    assert len(cashier.ledger) <= wanted and (says == "yes" or not cashier.ledger)


def test_no_hook_remembers_another_run() -> None:
    act = consistent(idempotent=lambda name: True, times=2)
    loop = AgentLoop(
        confident(lambda context: Act((ToolCall("get_weather", {"city": "北京"}),), "Confidence: 0.9")),
        act,
        stops=(corrective(),),
        limits=Limits(rounds=2),
    )
    world = World(tools=Toolbox([get_weather]), clock=FakeClock().now, inline=True)
    assert drive(loop.run("?"), world) == drive(loop.run("?"), world)


@pytest.mark.parametrize(
    "make",
    [
        lambda: consistent(idempotent=["get_weather"]),  # type: ignore[arg-type]
        lambda: consistent(idempotent=bool, agree=0.5),  # type: ignore[arg-type]
        lambda: confident(0.7),  # type: ignore[arg-type]
        lambda: grounded(["26"]),  # type: ignore[arg-type]
        lambda: corrective(detect="made up"),  # type: ignore[arg-type]
    ],
)
def test_a_guard_made_wrongly_says_what_would_be_right(make: Callable[[], Any]) -> None:
    with pytest.raises(TypeError, match="must be a function"):
        make()


def test_a_check_and_a_rule_are_programs_that_settle() -> None:
    context = LoopContext("26 度")
    assert drive(settle(grounded(numbers_in)(context, "26")), World(inline=True)) is None
    said = drive(settle(grounded(numbers_in)(context, "27")), World(inline=True))
    assert said == f"{UNGROUNDED}: 27. Look it up, or leave it out."


def test_a_result_from_beside_a_failed_one_says_so() -> None:
    stations: dict[str, Callable[..., Any]] = {"get_weather": get_weather, "far": flaky_tool(get_weather, 9)}
    tools = Toolbox(stations, idempotent=stations)
    act = consistent(idempotent=tools.is_idempotent, others={"get_weather": ["far"]})
    seen = drive(settle(act(ToolCall("get_weather", {"city": "北京"}))), World(tools=tools, inline=True))
    assert seen == Observation(f"{get_weather('北京')}\n(Not confirmed by: far)")
