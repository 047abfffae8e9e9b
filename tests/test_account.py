"""The account and ``within``: each wish is paid for before it is passed on, by every account around it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    LAST_WORDS,
    Account,
    AgentLoop,
    AskHuman,
    CallModel,
    CallTool,
    Control,
    Do,
    Effect,
    EventKind,
    Failure,
    Finish,
    Interrupted,
    LimitReached,
    Limits,
    LoopContext,
    Message,
    Outcome,
    Program,
    Reply,
    Result,
    Sleep,
    Start,
    StopReason,
    Together,
    ToolCall,
    Usage,
    World,
    bounded,
    drive,
    estimate_tokens,
    settle,
    within,
)
from fake_llm import FakeClock

AMPLE = Limits(
    rounds=50, model_calls=50, tool_calls=50, effects=200, failures=50, tokens=1000, cost=100.0, seconds=100.0
)
ASK = CallModel((Message("user", "北京"),), tokens=20)
LOOK = CallTool(ToolCall("get_weather", {"city": "北京"}))


def working(limits: Limits = AMPLE) -> Account:
    """An account in its first round."""
    account = Account(limits)
    account.post(EventKind.TASK_ARRIVED)
    account.post(EventKind.PERCEIVED)
    return account


def wanting(*effects: Effect) -> Program[list[Any]]:
    """A program that wants these effects, one after another, and returns what came of them."""
    came = []
    for effect in effects:
        came.append((yield effect).value)
    return came


def passed_on(account: Account, *effects: Effect, value: Any = None, at: float = 0.0) -> list[Any]:
    """The effects as they come out of ``within``; what it raises ends the list."""
    program = within(account, wanting(*effects))
    seen: list[Any] = []
    try:
        seen.append(next(program))
        while True:
            seen.append(program.send(Outcome(value, at)))
    except StopIteration:
        return seen
    except LimitReached as refusal:
        return [*seen, refusal.reason]


# --- Charging ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("effect", "charged"),
    [
        (ASK, Control(model_calls=1, effects=1)),
        (LOOK, Control(tool_calls=1, effects=1)),
        (AskHuman("May I?"), Control(effects=1)),
        (Sleep(1), Control(effects=1)),
        (Do("draw", int), Control(effects=1)),
        (Start("查天气"), Control(effects=1)),
        (Together(()), Control(effects=1)),
    ],
    ids=lambda part: type(part).__name__,
)
def test_each_effect_is_charged_before_it_is_passed_on(effect: Effect, charged: Control) -> None:
    account = working()
    program = within(account, wanting(effect))
    next(program)
    control = account.control
    assert (control.model_calls, control.tool_calls, control.effects) == charged[2:5]


def test_an_effect_passes_through_every_account_around_it() -> None:
    outer, inner = working(), working()
    program = within(outer, within(inner, wanting(ASK, LOOK)))
    next(program)
    program.send(Outcome(Reply("晴", usage=Usage(30, 0.5)), 1.0))
    for account in (outer, inner):
        control = account.control
        assert (control.model_calls, control.tool_calls, control.tokens, control.cost) == (1, 1, 30, 0.5)


def test_what_programs_side_by_side_want_is_charged_too() -> None:
    account = working()
    together = passed_on(account, Together((wanting(ASK), wanting(LOOK, LOOK))))[0]
    assert account.control.effects == 1
    for program in together.programs:
        next(program)
    assert (account.control.model_calls, account.control.tool_calls, account.control.effects) == (1, 1, 3)


@given(depth=st.integers(1, 6), calls=st.integers(1, 5))
def test_the_smallest_account_around_decides(depth: int, calls: int) -> None:
    accounts = [working(replace(AMPLE, model_calls=calls + abs(place - 2))) for place in range(depth)]
    program: Program[Any] = wanting(*[ASK] * 20)
    for account in accounts:
        program = within(account, program)
    count = 0
    with pytest.raises(LimitReached) as caught:
        next(program)
        while True:
            count += 1
            program.send(Outcome(Reply("晴", usage=Usage(1)), 0.0))
    assert caught.value.reason is StopReason.MODEL_CALLS
    assert count == min(account.limits.model_calls for account in accounts)


def test_junk_is_paid_for_and_told_what_would_be_right() -> None:
    account = working()
    with pytest.raises(TypeError, match="a program yields effects \\(Start, CallModel, .*, not 'look'"):
        next(within(account, wanting("look")))  # type: ignore[arg-type]
    assert account.control.effects == 1


# --- Booking ----------------------------------------------------------------------------------


def test_a_reply_that_tells_no_usage_is_charged_an_estimate() -> None:
    account = working()
    text = "北京今天晴，最高 24 度"
    passed_on(account, ASK, LOOK, value=Reply(text))
    assert account.control.tokens == ASK.tokens + estimate_tokens(text) > ASK.tokens


def test_an_estimate_counts_the_calls_of_a_reply_too() -> None:
    """A native reply may be nothing but calls, and these are tokens as well."""
    account = working()
    arguments = '{"city": "' + "北京" * 50 + '"}'
    passed_on(account, ASK, LOOK, value=Reply("", ({"name": "get_weather", "arguments": arguments},)))
    assert account.control.tokens > ASK.tokens + 50


def test_a_prompt_without_an_announced_size_is_not_free() -> None:
    account = working()
    passed_on(account, CallModel((Message("user", "北京" * 100),)), LOOK, value=Reply("晴"))
    assert account.control.tokens >= 200


def test_only_a_model_is_paid_for_its_tokens() -> None:
    account = working()
    passed_on(account, Do("quote", int), LOOK, value=Reply("晴", usage=Usage(500)))
    assert account.control.tokens == 0


def test_a_prompt_that_exceeds_what_is_left_is_not_sent() -> None:
    account = working(replace(AMPLE, tokens=50))
    seen = passed_on(account, ASK, ASK, ASK, value=Reply("晴", usage=Usage(30)))
    assert [type(effect) for effect in seen[:-1]] == [CallModel, CallModel], "30 and 20 are just allowed"
    assert seen[-1] is StopReason.TOKEN_BUDGET
    account = working(replace(AMPLE, tokens=49))
    assert passed_on(account, ASK, ASK, value=Reply("晴", usage=Usage(30)))[1:] == [StopReason.TOKEN_BUDGET]


@given(budget=st.integers(1, 200), replies=st.lists(st.integers(0, 90), min_size=1, max_size=12))
def test_tokens_overshoot_by_one_reply_at_most(budget: int, replies: list[int]) -> None:
    account = working(replace(AMPLE, tokens=budget))
    program = within(account, wanting(*[CallModel((), tokens=1)] * (len(replies) + 1)))
    try:
        next(program)
        for tokens in replies:
            program.send(Outcome(Reply("晴", usage=Usage(tokens)), 0.0))
    except (LimitReached, StopIteration):
        pass
    assert account.control.tokens < budget + max(replies)


def test_what_was_spent_last_is_in_the_result() -> None:
    def reason(context: LoopContext) -> Program[Finish]:
        yield ASK
        return Finish("晴")

    world = World(model=lambda request: Reply("晴", usage=Usage(700, 3.0)), inline=True)
    control = drive(AgentLoop(reason, limits=replace(AMPLE, tokens=100)).run("查"), world).control
    assert (control.tokens, control.cost, control.stop) == (700, 3.0, StopReason.FINAL_ANSWER)


# --- Time -------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", [ASK, LOOK, Do("draw", int)], ids=lambda effect: type(effect).__name__)
@pytest.mark.parametrize(
    ("at", "asked", "allowed"),
    [(0.0, math.inf, 30.0), (80.0, math.inf, 20.0), (0.0, 5.0, 5.0), (98.0, 5.0, 2.0)],
)
def test_a_call_is_allowed_the_smallest_of_three_times(
    effect: Any, at: float, asked: float, allowed: float
) -> None:
    """EB13: each call gets its own limit, enforced from outside the call, or what is left of the run."""
    account = working()
    seen = passed_on(account, Sleep(0), effect._replace(allowed=asked), at=at)
    assert seen[1].allowed == allowed


def test_a_sleep_that_would_cross_the_limit_is_not_begun() -> None:
    account = working()
    assert passed_on(account, Sleep(60), Sleep(40), at=60.0)[1]._replace(deadline=math.inf) == Sleep(40)
    account = working()
    assert passed_on(account, Sleep(60), Sleep(41), at=60.0)[1] is StopReason.WALL_CLOCK


def test_time_counts_from_the_start_of_each_loop() -> None:
    clock = FakeClock()
    results: list[Result] = []

    def inner(context: LoopContext) -> Program[Finish]:
        yield Sleep(3)
        return Finish("好")

    def outer(context: LoopContext) -> Program[Finish]:
        yield Sleep(5)
        results.append((yield from AgentLoop(inner, limits=replace(AMPLE, seconds=3.5)).run("查")))
        return Finish("好")

    world = World(clock=clock.now, sleep=clock.sleep, inline=True)
    result = drive(AgentLoop(outer, limits=AMPLE).run("查"), world)
    assert (result.control.seconds, results[0].control.seconds) == (8.0, 3.0)
    assert results[0].stop is StopReason.FINAL_ANSWER


def test_what_is_left_of_an_outer_account_bounds_the_calls_inside() -> None:
    outer, inner = working(replace(AMPLE, seconds=7.0)), working()
    effect: Any = next(within(outer, within(inner, wanting(LOOK))))
    assert effect.allowed == 7.0


# --- Refusals ---------------------------------------------------------------------------------


def counting(refusals: list[BaseException]) -> Program[str]:
    """A program that wants more for ever, and writes down each time it is refused."""
    while True:
        try:
            yield LOOK
        except Exception as error:
            refusals.append(error)


def test_a_program_is_told_and_may_return_what_it_has() -> None:
    def program() -> Program[str]:
        found = 0
        try:
            while True:
                yield LOOK
                found += 1
        except LimitReached as refusal:
            return f"{found} found, {refusal.reason.name if refusal.reason else 'no reason'}"

    result = drive(bounded(program(), replace(AMPLE, tool_calls=3)), World(inline=True))
    assert result == "3 found, TOOL_CALLS"


def test_a_program_that_does_not_catch_it_raises_it() -> None:
    with pytest.raises(LimitReached, match="nothing more may be spent: TOOL_CALLS"):
        drive(bounded(wanting(*[LOOK] * 4), replace(AMPLE, tool_calls=3)), World(inline=True))


def test_a_program_that_will_not_listen_is_left_after_its_last_words() -> None:
    refusals: list[BaseException] = []
    with pytest.raises(LimitReached):
        drive(bounded(counting(refusals), replace(AMPLE, tool_calls=3)), World(inline=True))
    assert len(refusals) == LAST_WORDS
    assert {type(refusal) for refusal in refusals} == {LimitReached}


def test_a_program_that_returns_within_its_limits_has_ended_well() -> None:
    assert drive(bounded(wanting(LOOK), AMPLE), World(inline=True))[0].ok is False


def test_an_interrupt_reaches_every_account_and_the_program_hears_of_a_limit() -> None:
    outer, inner = working(), working()
    heard: list[Any] = []

    def program() -> Program[None]:
        try:
            yield LOOK
        except LimitReached as refusal:
            heard.append(refusal.reason)

    stepped = within(outer, within(inner, program()))
    next(stepped)
    with pytest.raises(StopIteration):
        stepped.throw(Interrupted("a person stopped the run"))
    assert heard == [StopReason.HUMAN]
    assert outer.control.stop is inner.control.stop is StopReason.HUMAN


def test_ending_twice_changes_nothing() -> None:
    account = working()
    account.end(EventKind.INTERRUPTED)
    ended = account.control
    account.end(EventKind.INTERRUPTED)
    account.end(EventKind.HOOK_FAILED)
    assert account.control is ended
    with pytest.raises(LimitReached, match="HUMAN"):
        account.post(EventKind.PERCEIVED)
    with pytest.raises(LimitReached, match="HUMAN"):
        account.charge(LOOK)


def test_a_failed_deed_is_told_to_the_program_inside() -> None:
    def program() -> Program[str]:
        try:
            yield Do("draw", lambda: 1 // 0)
        except Exception as error:
            return type(error).__name__
        return "nothing"

    assert drive(bounded(program(), AMPLE), World(inline=True)) == "EffectFailed"


def test_what_is_closed_is_closed_inside() -> None:
    closed: list[str] = []

    def program() -> Program[None]:
        try:
            yield LOOK
        finally:
            closed.append("inside")

    held = program()  # so that it is not closed merely because nobody needs it any more
    stepped = within(working(), within(working(), held))
    next(stepped)
    stepped.close()
    assert closed == ["inside"]


# --- Starts -----------------------------------------------------------------------------------


def test_loops_are_numbered_through_the_whole_program() -> None:
    def acting(context: LoopContext) -> Program[Finish]:
        yield LOOK
        return Finish("好")

    seen: list[int] = []

    def numbered() -> Program[None]:
        account = Account(AMPLE)
        yield from account.open("查天气")
        seen.append(account.number)

    def program() -> Program[None]:
        yield from AgentLoop(acting).run("一")
        yield from numbered()
        yield Together((AgentLoop(acting).run("三"), numbered(), AgentLoop(acting).run("五")))
        yield from numbered()

    drive(program(), World(inline=True))
    assert seen == [2, 4, 6]


def test_a_loop_that_is_interrupted_before_it_starts_was_never_numbered() -> None:
    account = Account(AMPLE)
    opening = account.open("查天气")
    assert next(opening) == Start("查天气")
    with pytest.raises(LimitReached):
        opening.throw(Interrupted(0.0))
    assert (account.number, account.control.stop) == (0, StopReason.HUMAN)


def test_an_account_that_is_refused_its_start_has_the_reason_of_the_one_around_it() -> None:
    full = working(replace(AMPLE, cost=1.0))
    passed_on(full, ASK, LOOK, value=Reply("晴", usage=Usage(1, 1.0)))
    account = Account(AMPLE)
    with pytest.raises(LimitReached) as caught:
        next(within(full, account.open("查天气")))
    assert caught.value.reason is account.control.stop is StopReason.COST_BUDGET


# --- Small things -----------------------------------------------------------------------------


def test_settle_takes_a_value_or_a_program() -> None:
    assert drive(settle(7), World(inline=True)) == 7
    assert drive(settle(wanting(Do("draw", lambda: 4))), World(inline=True)) == [4]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("北京", 2), ("北京 24 度", 4), ("🙂", 1)],
)
def test_an_estimate(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


@given(st.text())
def test_an_estimate_grows_with_the_text(text: str) -> None:
    assert 0 <= estimate_tokens(text) <= estimate_tokens(text + "北") <= len(text) + 1


def test_a_failure_is_no_outcome_to_book() -> None:
    account = working()
    account.book(ASK, Failure("down"), 3.0)
    account.post(EventKind.TOOL_CALL)
    assert (account.control.tokens, account.control.seconds) == (0, 3.0)
