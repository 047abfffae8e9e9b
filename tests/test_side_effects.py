"""Side effects have names: a call has one id, the same on replay, and a tool can ask for it."""

from __future__ import annotations

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
    Limits,
    LoopContext,
    Message,
    Observation,
    Outcome,
    Program,
    Stage,
    StopReason,
    Strand,
    Toolbox,
    ToolCall,
    World,
    drive,
)


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


def broken_off(program: Program[Any]) -> tuple[Journal, Strand]:
    """A journal that knows of an effect's beginning, and not of its end."""
    journal = Journal()
    stage = Stage(program, journal)
    return journal, stage.waiting[0]


def note(repeatable: bool) -> Program[Any]:
    done: list[str] = []
    try:
        value = (yield Do("write it down", lambda: done.append("again"), repeatable=repeatable)).value
    except EffectFailed as failed:
        return str(failed)
    return done or value


def test_what_was_begun_is_done_again_only_where_that_is_harmless() -> None:
    journal, _ = broken_off(note(repeatable=False))
    assert "whether it took effect is not known" in drive(note(repeatable=False), World(inline=True), journal)
    journal, _ = broken_off(note(repeatable=True))
    assert drive(note(repeatable=True), World(inline=True), journal) == ["again"]


def test_an_intent_of_another_program_is_refused() -> None:
    from agentloop import ProgramChanged

    journal, _ = broken_off(note(repeatable=True))

    def other() -> Program[Any]:
        yield Do("burn it", lambda: None)

    with pytest.raises(ProgramChanged, match="'Do write it down'.*'Do burn it'"):
        drive(other(), World(inline=True), journal)


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


def test_a_clock_that_breaks_ends_the_run_and_hangs_nobody() -> None:
    readings = iter([0.0, 0.0, 0.0])

    def clock() -> float:
        return next(readings)

    def one_wait() -> Program[Outcome]:
        return (yield Do("x", lambda: None))

    with pytest.raises((StopIteration, RuntimeError)):
        drive(one_wait(), World(clock=clock))
