"""Guards in random stacks: each keeps its promise whatever the others are, in whatever order they are nested.

The stacks are drawn from the guards of chapter 24, and so is the world: tools that fail in every way, a model
that says anything, a person who says anything, limits of any size. What is promised of every stack:

- the run ends within its limits, says why, and pairs each call with one result
- what must not happen twice happens once: a payment, and a question about a call
- nothing dangerous is done that a person has not approved
- a breaker is told once of each call that it let through
- the drivers agree, and a replay touches neither tools nor breakers
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import (
    Act,
    AgentLoop,
    Finish,
    Interrupt,
    Journal,
    Kind,
    Limits,
    LoopContext,
    Observation,
    Program,
    Result,
    Step,
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
from chapters.ch07_drivers import drive_async
from chapters.ch19_retry_with_backoff import Patience
from chapters.ch21_circuit_breaker import CircuitBreakers, Happening, Settings
from chapters.ch24_five_failure_modes import Place, Situation, guards
from fake_llm import FakeClock, FakeModel, typical_replies
from paradigms.prompt import whole_history
from paradigms.react import react

NAMES = {place: [guard.name for guard in guards() if guard.place is place] for place in Place}
GUARDS = {guard.name: guard for guard in guards()}
thoroughly = settings(deadline=None, database=None, max_examples=150)

# --- The world --------------------------------------------------------------------------------------

#: What one call of a tool may do: nothing and say so, something and say nothing, or what it should.
DEEDS = ("works", "down", "lost", "broken", "odd", "refused", "limited", "interrupted")


class Bank:
    """Tools that pay, and one that looks; each call does what the script says next, its last line for ever.

    ``paid`` are the payments made, by the id of their call; ``calls`` all that was asked of the tools.
    """

    def __init__(self, deeds: Sequence[str], answers: Sequence[Any]) -> None:
        self.deeds, self.answers = list(deeds), list(answers)
        self.paid: Counter[str] = Counter()
        self.deals: list[tuple[str, str, float]] = []
        self.calls: list[tuple[str, str]] = []
        self.clock, self.interrupt = FakeClock(), Interrupt()
        functions: dict[str, Callable[..., Any]] = {
            "pay": self.pay,
            "pay_by_card": self.pay_by_card,
            "pay_once": self.pay_once,
            "look": self.look,
            "peek": self.peek,
        }
        self.tools = Toolbox(functions, idempotent=["look", "peek", "pay_once"])
        self.breakers = CircuitBreakers(Settings(threshold=2, recovery=5.0), clock=self.clock.now)

    def pay(self, amount: float, call_id: str) -> Any:
        """Pay."""
        return self._pay("pay", amount, call_id)

    def pay_by_card(self, amount: float, call_id: str) -> Any:
        """Pay by card."""
        return self._pay("pay_by_card", amount, call_id)

    def pay_once(self, amount: float, call_id: str) -> Any:
        """Pay, unless this very call was paid here already: it may be repeated, and is not only reading."""
        if (call_id, "pay_once", amount) in self.deals:
            return self._do("pay_once", call_id, lambda: "paid")
        return self._pay("pay_once", amount, call_id)

    def look(self, call_id: str) -> Any:
        """Look."""
        return self._do("look", call_id, lambda: "26")

    def peek(self, call_id: str) -> Any:
        """Look elsewhere."""
        return self._do("peek", call_id, lambda: "27")

    def _pay(self, name: str, amount: float, call_id: str) -> Any:
        def deal() -> str:
            self.paid[call_id] += 1
            self.deals.append((call_id, name, amount))
            return "paid"

        return self._do(name, call_id, deal)

    def _do(self, name: str, call_id: str, work: Callable[[], str]) -> Any:
        self.calls.append((name, call_id))
        self.clock.advance(0.5)
        deed = self.deeds.pop(0) if len(self.deeds) > 1 else self.deeds[0]
        if deed == "down":
            raise Unavailable("closed", retry_after=1)
        if deed == "broken":
            raise PermissionError("no key")
        if deed == "refused":
            return Observation("not today", False, Kind.REFUSED)
        done = work()
        if deed == "lost":
            raise TimeoutError("no answer")
        if deed == "odd":
            return {"status": "error"}
        if deed == "limited":
            self.clock.advance(50.0)
        if deed == "interrupted":
            self.interrupt.set()
        return done

    def person(self, question: str) -> Any:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.clock.advance(100.0)
        if isinstance(answer, Exception):
            raise answer.with_traceback(None)
        return answer

    def world(self, model: Any = None) -> World:
        return World(model, self.tools, self.person, self.clock.sleep, self.clock.now, inline=True)

    @property
    def situation(self) -> Situation:
        return Situation(
            self.tools,
            self.breakers,
            goal=lambda context, answer: None if context.turns else "look first",
            facts=lambda answer: ["26"] if "26" in str(answer) else [],
            dangerous=lambda call: "spends money" if call.name.startswith("pay") else None,
            alternatives={"pay": "pay_by_card", "pay_once": "pay_by_card", "look": "peek"},
            only_reads=lambda name: name in ("look", "peek"),
            times=2,
            patience=Patience(3, 0.5, 2.0, 20.0, lambda: 0.5, lambda: 0.0),
            window=2000,
        )


# --- Stacks -------------------------------------------------------------------------------------------


class Stack(NamedTuple):
    """Which guards stand around each part of a loop, the innermost first."""

    act: tuple[str, ...]
    reason: tuple[str, ...] = ()
    accept: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    view: tuple[str, ...] = ()

    def around(self, plain: Any, names: Sequence[str], situation: Situation) -> Any:
        for name in names:
            plain = GUARDS[name].wrap(situation, plain)
        return plain


def some(place: Place, least: Sequence[str] = ()) -> st.SearchStrategy[tuple[str, ...]]:
    """Any of the guards of a place, in any order, ``least`` among them."""
    rest = [name for name in NAMES[place] if name not in least]
    chosen = st.lists(st.sampled_from(rest), unique=True) if rest else st.just([])
    return chosen.flatmap(lambda names: st.permutations([*least, *names])).map(tuple)


def stacks(*least: str) -> st.SearchStrategy[Stack]:
    return st.builds(
        Stack,
        some(Place.ACT, least),
        some(Place.REASON),
        some(Place.ACCEPT),
        some(Place.STOPS),
        some(Place.VIEW),
    )


def built(stack: Stack, bank: Bank, reason: Any, limits: Limits, steps: list[Step]) -> AgentLoop:
    """The loop with this stack around ``reason`` and a plain call."""
    situation = bank.situation
    checks = stack.around((), stack.accept, situation)

    def accept(context: LoopContext, answer: Any) -> Program[str | None]:
        for check in checks:
            objection: str | None = yield from settle(check(context, answer))
            if objection is not None:
                return objection
        return None

    return AgentLoop(
        stack.around(reason, stack.reason, situation),
        stack.around(call_tool, stack.act, situation),
        limits=limits,
        accept=accept,
        stops=stack.around((), stack.stops, situation),
        watch=steps.append,
    )


PAY, LOOK = ToolCall("pay", {"amount": 9}), ToolCall("look", {})
PAY_ONCE = ToolCall("pay_once", {"amount": 9})
WISHES = (PAY, PAY_ONCE, LOOK, ToolCall("pay", {"amount": "much"}), ToolCall("lok", {}), ToolCall("peek", {}))


def wishing(rounds: Sequence[Sequence[ToolCall]]) -> Callable[[LoopContext], Act | Finish]:
    """A reason that wants these calls, round after round, and then answers."""

    def reason(context: LoopContext) -> Act | Finish:
        number = len(context.turns)
        return Act(tuple(rounds[number])) if number < len(rounds) else Finish("26", "Confidence: 1")

    return reason


# What matters most is drawn most often: a payment, that is down at first, and a person who says yes.
wish = st.sampled_from([PAY, PAY_ONCE]) | st.sampled_from(WISHES)
wishes = st.lists(st.lists(wish, min_size=1, max_size=3), max_size=4)
deeds = st.lists(st.sampled_from(["down", "works"]) | st.sampled_from(DEEDS), min_size=1, max_size=8)
#: In the middle of a call, it is the driver's to say when an interrupt takes effect.
undisturbed = st.lists(st.sampled_from([deed for deed in DEEDS if deed != "interrupted"]), min_size=1)
said = st.sampled_from(["yes", "no", '{"amount": 1}', "", "yes, all", "stop", OSError("the line is dead")])
answers: st.SearchStrategy[list[Any]] = st.just(["yes"]) | st.lists(said, min_size=1, max_size=4)
limits = st.builds(
    Limits,
    rounds=st.integers(1, 8),
    model_calls=st.integers(1, 12),
    tool_calls=st.integers(1, 20),
    effects=st.integers(1, 80),
    failures=st.integers(1, 5),
    tokens=st.integers(200, 50_000),
    seconds=st.sampled_from([1.0, 10.0, 60.0, 300.0]),
    call_seconds=st.sampled_from([1.0, 30.0]),
)
GENEROUS = Limits(rounds=10, tool_calls=500, effects=5000, failures=10, seconds=5000.0)
wide = st.just(GENEROUS)


def run(
    stack: Stack,
    bank: Bank,
    rounds: Sequence[Sequence[ToolCall]],
    given_limits: Limits,
    journal: Journal | None = None,
) -> tuple[Result, list[Step]]:
    """One run of these wishes under the stack."""
    steps: list[Step] = []
    loop = built(stack, bank, wishing(rounds), given_limits, steps)
    return drive(loop.run("pay and look"), bank.world(), journal, bank.interrupt), steps


def holds(result: Result, steps: Sequence[Step], given_limits: Limits) -> None:
    """What is promised of every run, whatever its guards."""
    spent = result.control
    assert len(steps) <= worst_case_steps(given_limits)
    assert (result.answer is not None) == (result.stop is StopReason.FINAL_ANSWER)
    for name in ("rounds", "model_calls", "tool_calls", "effects"):
        assert getattr(spent, name) <= getattr(given_limits, name)
    for turn in result.turns:
        assert len(turn.calls) == len(turn.observations)
    ids = [call.id for turn in result.turns for call in turn.calls]
    assert len(ids) == len(set(ids))


# --- The promises -------------------------------------------------------------------------------------


@thoroughly
@given(stacks(), deeds, answers, wishes, limits)
def test_every_stack_ends_within_its_limits_honestly_and_pairs_calls_with_results(
    stack: Stack, deeds: list[str], answers: list[Any], rounds: list[list[ToolCall]], given_limits: Limits
) -> None:
    result, steps = run(stack, Bank(deeds, answers), rounds, given_limits)
    holds(result, steps, given_limits)


@thoroughly
@given(
    stacks(),
    st.lists(
        st.sampled_from([*typical_replies(), "Confidence: 0.1\nAction: look()", "Action: pay(amount=9)"]),
        min_size=1,
    ),
    deeds,
    answers,
    limits,
)
def test_every_stack_survives_a_model_that_says_anything(
    stack: Stack, replies: list[Any], deeds: list[str], answers: list[Any], given_limits: Limits
) -> None:
    bank, steps = Bank(deeds, answers), list[Step]()
    script = iter(replies * 100)
    view = stack.around(whole_history, stack.view, bank.situation)
    loop = built(stack, bank, react(bank.tools, view), given_limits, steps)
    model = FakeModel(lambda request: next(script))
    holds(drive(loop.run("pay and look"), bank.world(model), None, bank.interrupt), steps, given_limits)


@thoroughly
@given(stacks(), deeds, wishes, st.one_of(wide, limits))
def test_what_must_not_happen_twice_happens_once(
    stack: Stack, deeds: list[str], rounds: list[list[ToolCall]], given_limits: Limits
) -> None:
    bank = Bank(deeds, ["yes"])
    run(stack, bank, rounds, given_limits)
    assert [count for count in bank.paid.values() if count > 1] == []


def test_after_a_doubt_a_retry_lets_no_other_tool_be_asked() -> None:
    bank = Bank(["lost"], ["yes"])
    stack = Stack(("breaker", "fallback", "retry"), (), (), (), ())
    run(stack, bank, [[ToolCall("pay_once", {"amount": 9})]], GENEROUS)
    assert {tool for tool, _ in bank.calls} == {"pay_once"}
    assert list(bank.paid.values()) == [1]


@thoroughly
@given(stacks("approval"), deeds, answers, wishes, st.one_of(wide, limits))
def test_nothing_dangerous_is_done_that_was_not_approved_and_each_call_is_asked_for_once(
    stack: Stack, deeds: list[str], answers: list[Any], rounds: list[list[ToolCall]], given_limits: Limits
) -> None:
    bank, journal = Bank(deeds, answers), Journal()
    run(stack, bank, rounds, given_limits, journal)
    asked = [
        (text, outcome.value) for _, text, outcome in journal.outcomes if text.startswith("AskHuman about")
    ]
    assert len({text for text, _ in asked}) == len(asked), "the same question about the same call is put once"
    for call_id, name, amount in bank.deals:
        words = [said for text, said in asked if f" {call_id} " in text and f"\\n{name}(" in text]
        changed = [said for said in words if said == '{"amount": 1}']
        assert "yes" in words or (changed and amount == 1), f"{name}({amount}) was not approved: {words}"


@thoroughly
@given(stacks("breaker"), deeds, answers, wishes, st.one_of(wide, limits))
def test_a_breaker_is_told_once_of_each_call_that_it_let_through(
    stack: Stack, deeds: list[str], answers: list[Any], rounds: list[list[ToolCall]], given_limits: Limits
) -> None:
    bank, let_through = Bank(deeds, answers), []
    told: Counter[str] = Counter()

    class Noting(CircuitBreakers):
        def report(self, permit: str, outcome: Happening) -> None:
            self.states()  # what was told before is read by now
            if permit in self.store.permits:
                told[permit] += 1
            super().report(permit, outcome)

    bank.breakers = Noting(bank.breakers.settings, clock=bank.clock.now)

    def inside(act: Any) -> Callable[[ToolCall], Program[Observation]]:
        def noted(call: ToolCall) -> Program[Observation]:
            let_through.append(call)
            seen: Observation = yield from settle(act(call))
            return seen

        return noted

    place = stack.act.index("breaker")
    within, around = stack.act[:place], stack.act[place:]
    situation = bank.situation
    act = stack.around(inside(stack.around(call_tool, within, situation)), around, situation)
    loop = replace(built(stack, bank, wishing(rounds), given_limits, []), act=act)
    drive(loop.run("pay and look"), bank.world(), None, bank.interrupt)
    bank.breakers.states()
    assert bank.breakers.store.permits == {}, "every permit came back"
    assert next(bank.breakers.store.numbers) - 1 == len(let_through), "one permit for each call let through"
    assert set(told.values()) <= {1, 2}, "an outcome, and at most the note that the call is over"


@thoroughly
@given(stacks(), undisturbed, answers, wishes, limits)
def test_the_drivers_agree_about_every_stack(
    stack: Stack, deeds: list[str], answers: list[Any], rounds: list[list[ToolCall]], given_limits: Limits
) -> None:
    """Programs side by side arrive in an order of the driver's own, so here each call is made once."""
    stack = stack._replace(act=tuple(name for name in stack.act if name != "comparison"))
    blocking, waiting = Bank(deeds, answers), Bank(deeds, answers)
    result, _ = run(stack, blocking, rounds, given_limits)
    assert driven_async(stack, waiting, rounds, given_limits) == result
    assert (waiting.calls, waiting.deals) == (blocking.calls, blocking.deals)


@thoroughly
@given(
    stacks("comparison"), st.sampled_from(["works", "down", "lost", "broken", "odd", "refused"]), wishes, wide
)
def test_the_drivers_agree_side_by_side_where_no_limit_is_reached(
    stack: Stack, deed: str, rounds: list[list[ToolCall]], given_limits: Limits
) -> None:
    blocking, waiting = Bank([deed], ["yes"]), Bank([deed], ["yes"])
    result, _ = run(stack, blocking, rounds, given_limits)
    other = driven_async(stack, waiting, rounds, given_limits)
    assert (other.turns, other.answer, other.stop) == (result.turns, result.answer, result.stop)
    assert sorted(waiting.calls) == sorted(blocking.calls)


def driven_async(
    stack: Stack, bank: Bank, rounds: Sequence[Sequence[ToolCall]], given_limits: Limits
) -> Result:
    loop = built(stack, bank, wishing(rounds), given_limits, [])
    return asyncio.run(drive_async(loop.run("pay and look"), bank.world(), None, bank.interrupt))


@thoroughly
@given(stacks(), deeds, answers, wishes, limits)
def test_a_replay_comes_to_the_same_and_touches_nothing(
    stack: Stack, deeds: list[str], answers: list[Any], rounds: list[list[ToolCall]], given_limits: Limits
) -> None:
    first, again, journal = Bank(deeds, answers), Bank(["broken"], ["no"]), Journal()
    result, _ = run(stack, first, rounds, given_limits, journal)
    replayed, _ = run(stack, again, rounds, given_limits, Journal(journal.outcomes))
    assert replayed == result
    assert (again.calls, again.breakers.states()) == ([], {})
