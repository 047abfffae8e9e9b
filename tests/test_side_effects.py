"""Side effects have names: a call has one id, the same on replay, and a tool can ask for it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from agentloop import (
    Act,
    AgentLoop,
    CallModel,
    CallTool,
    Do,
    EffectFailed,
    Finish,
    Journal,
    Kind,
    LimitReached,
    Limits,
    LoopContext,
    LoopError,
    Message,
    Observation,
    Outcome,
    Program,
    ProgramChanged,
    Reply,
    Sleep,
    Stage,
    StopReason,
    Together,
    Toolbox,
    ToolCall,
    Usage,
    World,
    bounded,
    drive,
    report,
)
from fake_llm import FakeClock


class Till:
    """A tool that refuses to take the same payment twice."""

    def __init__(self) -> None:
        self.paid: dict[str, int] = {}

    def pay(self, amount: int, call_id: str) -> str:
        """Pay an amount."""
        if call_id in self.paid:
            return "this was paid before"
        self.paid[call_id] = amount
        return f"paid {amount}"


def twice(call: ToolCall) -> Program[Observation]:
    """An act that makes its call again, as a retry does."""
    yield CallTool(call)
    observation: Observation = (yield CallTool(call)).value
    return observation


def pay_once(context: LoopContext) -> Act | Finish:
    return Finish("done") if context.turns else Act((ToolCall("pay", {"amount": 9}),))


def test_a_tool_can_refuse_to_act_twice() -> None:
    till = Till()
    result = drive(AgentLoop(pay_once, twice).run("pay"), World(tools=Toolbox([till.pay]), inline=True))
    assert till.paid == {"call_1_1_1": 9}
    assert result.turns[0].observations[0].text == "this was paid before"


def test_the_id_is_not_the_models_to_give() -> None:
    tools = Toolbox([Till().pay])
    assert tools.parameters("pay") == ("amount",)
    assert tools.describe() == "- pay(amount: int) -> str: Pay an amount."
    assert list(tools.schemas()[0]["parameters"]["properties"]) == ["amount"]
    observation = tools.execute(ToolCall("pay", {"amount": 9, "call_id": "mine"}))
    assert observation.kind is Kind.BAD_ARGUMENTS


def hand_made(context: LoopContext) -> Program[Act | Finish]:
    """A hook that calls tools itself, with calls that nobody has named."""
    for _ in range(2):
        yield CallTool(ToolCall("pay", {"amount": 9}))
    return Finish("done")


def test_a_hooks_own_calls_have_ids_too_and_keep_them_on_replay() -> None:
    till, journal = Till(), Journal()
    drive(AgentLoop(hand_made).run("pay"), World(tools=Toolbox([till.pay]), inline=True), journal)
    assert till.paid == {"call_1_effect_1": 9, "call_1_effect_2": 9}
    again = drive(AgentLoop(hand_made).run("pay"), World(), journal.rewound(len(journal.outcomes)))
    assert again.answer == "done"


def test_EB12_a_prompt_whose_size_nobody_told_is_sized_and_not_sent_where_it_exceeds_what_is_left() -> None:
    asked: list[CallModel] = []

    def long_question(context: LoopContext) -> Program[Finish]:
        yield CallModel((Message("user", "晴" * 1001),))
        return Finish("done")

    loop = AgentLoop(long_question, limits=Limits(tokens=1000))
    result = drive(loop.run("x"), World(model=lambda request: asked.append(request) or "ok", inline=True))
    assert (result.stop, asked) == (StopReason.TOKEN_BUDGET, [])


# --- What was begun before a run broke off ----------------------------------------------------


def broken_off(program: Program[Any]) -> Journal:
    """A journal that knows of an effect's beginning, and not of its end."""
    journal = Journal()
    stage = Stage(program, journal)
    stage.begin(stage.waiting[0])
    return journal


def note(repeatable: bool) -> Program[Any]:
    done: list[str] = []
    try:
        value = (yield Do("write it down", lambda: done.append("again"), repeatable=repeatable)).value
    except EffectFailed as failed:
        return str(failed)
    return done or value


def test_what_was_begun_is_done_again_only_where_that_is_harmless() -> None:
    journal = broken_off(note(repeatable=False))
    assert "whether it took effect is not known" in drive(note(repeatable=False), World(inline=True), journal)
    journal = broken_off(note(repeatable=True))
    assert drive(note(repeatable=True), World(inline=True), journal) == ["again"]


def test_an_intent_of_another_program_is_refused() -> None:
    journal = broken_off(note(repeatable=True))

    def other() -> Program[Any]:
        yield Do("burn it", lambda: None)

    with pytest.raises(ProgramChanged, match="'Do write it down'.*'Do burn it'"):
        drive(other(), World(inline=True), journal)


def test_what_was_wanted_and_not_begun_is_simply_done() -> None:
    """A power failure in the first of three payments leaves the other two to be made."""
    paid: list[str] = []

    def pay(name: str) -> Program[str]:
        yield Do(f"pay {name}", lambda: paid.append(name))
        return name

    def all_three() -> Program[Any]:
        return (yield Together((pay("a"), pay("b"), pay("c")))).value

    journal = Journal()
    stage = Stage(all_three(), journal)
    stage.begin(stage.waiting[0])
    first, *others = drive(all_three(), World(inline=True), journal)
    assert isinstance(first, EffectFailed)
    assert (others, paid) == (["b", "c"], ["b", "c"])


# --- Side by side -----------------------------------------------------------------------------


def asks(size: int) -> Program[str]:
    return str((yield CallModel((Message("user", "x"),), tokens=size)).value.text)


@pytest.mark.parametrize("inline", [True, False])
def test_side_by_side_requests_are_counted_before_their_replies_are_there(inline: bool) -> None:
    """Together they may exceed the budget by what their replies add, and not by their prompts."""
    asked: list[CallModel] = []

    def model(request: CallModel) -> Reply:
        asked.append(request)
        return Reply("ok", usage=Usage(900))

    def many() -> Program[Any]:
        return (yield Together(tuple(asks(900) for _ in range(100)))).value

    drive(bounded(many(), Limits(tokens=2000, model_calls=500)), World(model, inline=inline))
    assert len(asked) == 2


def test_what_waits_for_its_turn_is_not_begun_after_the_time_is_up() -> None:
    clock = FakeClock()
    made: list[float] = []

    def slow() -> None:
        made.append(clock.now())
        clock.advance(4)

    def one() -> Program[Any]:
        return (yield Do("slow", slow)).value

    def many() -> Program[Any]:
        return (yield Together(tuple(one() for _ in range(40)))).value

    drive(bounded(many(), Limits(seconds=10)), World(clock=clock.now, sleep=clock.sleep, inline=True))
    assert made == [0.0, 4.0, 8.0]


# --- Programs that will not listen ------------------------------------------------------------


def stubborn(depth: int, steps: list[int]) -> Program[Any]:
    while True:
        try:
            steps.append(depth)
            if depth == 0:
                yield Sleep(0)
            else:
                yield from bounded(stubborn(depth - 1, steps), Limits(effects=1))
        except Exception:
            pass


def test_nesting_does_not_multiply_the_patience_with_a_program_that_will_not_listen() -> None:
    counts = []
    for depth in (1, 2, 3):
        steps: list[int] = []
        loop = AgentLoop(
            lambda context, depth=depth, steps=steps: stubborn(depth, steps), limits=Limits(effects=5)
        )
        assert drive(loop.run("x"), World(inline=True)).stop is StopReason.EFFECTS
        counts.append(len(steps))
    assert max(counts) < 2000


@pytest.mark.parametrize("impossible", [Sleep(10**400), CallModel((), tokens=10**400)])
def test_an_effect_that_cannot_be_charged_is_counted_all_the_same(impossible: Any) -> None:
    def swallows(context: LoopContext) -> Program[Finish]:
        while True:
            try:
                yield impossible
            except LimitReached:
                raise
            except Exception:
                pass

    result = drive(AgentLoop(swallows, limits=Limits(effects=5)).run("x"), World(inline=True))
    assert result.stop in (StopReason.EFFECTS, StopReason.TOKEN_BUDGET)


# --- Words at the boundary --------------------------------------------------------------------


def test_a_model_that_leaves_the_interpreter_has_failed() -> None:
    def leaves(request: CallModel) -> str:
        raise SystemExit(3)

    def ask(context: LoopContext) -> Program[Finish]:
        seen = (yield CallModel((Message("user", "?"),))).value
        return Finish(seen.text)

    result = drive(AgentLoop(ask).run("x"), World(leaves, inline=True))
    assert result.answer == "The model failed: SystemExit: 3."


def test_one_rule_without_its_tuple_is_told_of_at_once() -> None:
    with pytest.raises(TypeError, match=r"stops is a tuple of rules, such as \(rule,\)"):
        AgentLoop(pay_once, stops=lambda control, context: None)  # type: ignore[arg-type]


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


def test_an_exception_without_words_is_told_of_all_the_same() -> None:
    def model(request: CallModel) -> str:
        raise Unspeakable

    def ask(context: LoopContext) -> Program[Finish]:
        return Finish((yield CallModel((Message("user", "?"),))).value.text)

    assert "Unspeakable" in drive(AgentLoop(ask).run("x"), World(model, inline=True)).answer


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        (Usage(1, Decimal("0.1")), "ok"),  # type: ignore[arg-type]
        (Usage(1, 10**400), "The model reported an impossible usage"),
        (Usage(10**400), "The model reported an impossible usage"),
        (Usage(-1), "The model reported an impossible usage"),
        (Usage(1, float("nan")), "The model reported an impossible usage"),
    ],
)
def test_a_usage_is_taken_as_plain_numbers_or_not_at_all(usage: Usage, told: str) -> None:
    def ask(context: LoopContext) -> Program[Finish]:
        return Finish((yield CallModel((Message("user", "?"),))).value.text)

    world = World(lambda request: Reply("ok", usage=usage), inline=True)
    assert drive(AgentLoop(ask).run("x"), world).answer.startswith(told)


def test_a_tool_cannot_change_what_the_model_wrote() -> None:
    def sort(values: list[int]) -> str:
        """Sort numbers."""
        values.sort()
        return str(values)

    def reason(context: LoopContext) -> Act | Finish:
        return Finish("done") if context.turns else Act((ToolCall("sort", {"values": [3, 1, 2]}),))

    result = drive(AgentLoop(reason).run("x"), World(tools=Toolbox([sort]), inline=True))
    assert result.turns[0].observations[0].text == "[1, 2, 3]"
    assert result.turns[0].calls[0].arguments == {"values": [3, 1, 2]}


def test_an_observation_of_a_tools_own_is_made_sensible() -> None:
    def odd() -> Any:
        """Return an observation that is none."""
        return Observation({"a": 1}, "yes")  # type: ignore[arg-type]

    seen = Toolbox([odd]).execute(ToolCall("odd", {}))
    assert seen == Observation('{"a": 1}', False)


def test_a_sleep_that_fails_is_told_to_the_program() -> None:
    def broken(seconds: float) -> None:
        raise OSError("no bed")

    def rests() -> Program[str]:
        try:
            yield Sleep(1)
        except EffectFailed as failed:
            return str(failed)
        return "slept"

    assert "OSError: no bed" in drive(rests(), World(sleep=broken, inline=True))


WRONG: dict[str, tuple[Any, str]] = {
    "a loop whose reason is text": (
        lambda: AgentLoop("react"),
        "a hook of AgentLoop is a function, not 'react'",
    ),
    "limits as a number": (lambda: AgentLoop(pay_once, limits=5), "limits are Limits"),
    "tools as a list": (lambda: World(tools=[print]), r"World.tools is a Toolbox\(\[...\]\)"),
    "a model that is text": (lambda: World("gpt"), "model, human, sleep and clock of a World are functions"),
    "a loop in place of its run": (
        lambda: drive(AgentLoop(pay_once), World()),
        r"drive\(loop.run\(task\), World\(...\)\): a program, not AgentLoop",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_at_once_with_what_would_be_right(name: str) -> None:
    make, words = WRONG[name]
    with pytest.raises(TypeError, match=words):
        make()


@pytest.mark.parametrize("calls", [ToolCall("pay", {}), [("pay", {})]])
def test_an_act_that_holds_no_calls_is_told_what_it_should_hold(calls: Any) -> None:
    with pytest.raises(LoopError, match=r"Act holds a tuple of ToolCall values"):
        drive(AgentLoop(lambda context: Act(calls)).run("x"), World(inline=True))


@pytest.mark.parametrize("name", ["<lambda>", "a b", "f(x)", ""])
def test_a_name_that_no_model_could_write_is_refused(name: str) -> None:
    with pytest.raises(
        ValueError, match="give a mapping from names, without spaces and brackets, to functions"
    ):
        Toolbox({name: print})


def test_an_asynchronous_model_needs_an_asyncio_driver_and_is_told_so() -> None:
    async def model(request: CallModel) -> str:
        return "ok"

    def ask(context: LoopContext) -> Program[Finish]:
        return Finish((yield CallModel((Message("user", "?"),))).value.text)

    answer = drive(AgentLoop(ask).run("x"), World(model, inline=True)).answer
    assert answer == "The model is asynchronous: it needs an asyncio driver."


def test_a_result_without_an_answer_says_what_failed_last() -> None:
    def ask(context: LoopContext) -> Program[Any]:
        reply = (yield CallModel((Message("user", "?"),))).value
        return report(reply) if isinstance(reply, Observation) else Finish(reply.text)

    def gone(request: CallModel) -> str:
        raise ConnectionError("no route to host")

    result = drive(AgentLoop(ask).run("x"), World(gone, inline=True))
    assert result.summary.splitlines()[1:] == [
        "Nothing was found.",
        "The last failure: The model failed: ConnectionError: no route to host.",
    ]


def test_a_clock_that_breaks_ends_the_run_and_hangs_nobody() -> None:
    readings = iter([0.0, 0.0, 0.0])

    def clock() -> float:
        return next(readings)

    def one_wait() -> Program[Outcome]:
        return (yield Do("x", lambda: None))

    with pytest.raises((StopIteration, RuntimeError)):
        drive(one_wait(), World(clock=clock))
