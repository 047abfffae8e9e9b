"""What an inquiry promises: plain functions of a factory ``inquiry(act, became)``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agentloop import (
    AskHuman,
    Away,
    CallTool,
    Interrupt,
    Journal,
    Kind,
    LimitReached,
    Limits,
    Observation,
    Program,
    Toolbox,
    ToolCall,
    World,
    bounded,
    call_tool,
    drive,
    settle,
)
from fake_llm import FakeClock
from tests.check_approval import repeating
from tests.check_toolbox import expect

Make = Callable[..., Callable[[ToolCall], Any]]

PAY = ToolCall("pay", {"amount": 9}, "call_1_2_1")
PAID = Observation("receipt 77")
DOUBT = Observation("the line broke", False, Kind.UNCERTAIN)


class Bank:
    """Pays; the line breaks in the first ``breaks`` calls. ``asked`` are the questions that it put."""

    def __init__(self, breaks: int = 1, answers: Sequence[Any] = ()) -> None:
        self.breaks, self.answers = breaks, list(answers)
        self.came: list[str] = []  # the ids of the calls
        self.asked: list[str] = []

    @property
    def world(self) -> World:
        human = self.human if self.answers else None
        tools = Toolbox([self.pay, self.find], idempotent=["find"])
        return World(None, tools, human, clock=FakeClock().now, inline=True)

    def pay(self, amount: int, call_id: str) -> str:
        self.came.append(call_id)
        if len(self.came) <= self.breaks:
            raise ConnectionResetError("the line broke")
        return f"paid {amount}"

    def find(self, purchase: str) -> str:
        return ""

    def human(self, question: str) -> Any:
        self.asked.append(question)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer.with_traceback(None)
        return answer


def became(answer: Observation | None) -> Callable[[ToolCall], Program[Observation | None]]:
    """A hook that asks the bank, and comes to this."""

    def ask(call: ToolCall) -> Program[Observation | None]:
        yield CallTool(ToolCall("find", {"purchase": call.id}))
        return answer

    return ask


def seen(guard: Any, bank: Bank, limits: Limits | None = None, **more: Any) -> Observation:
    """What a guard makes of the payment."""
    program = settle(guard(PAY))
    came: Observation = drive(bounded(program, limits) if limits else program, bank.world, **more)
    return came


def what_is_known_is_not_asked_about(make: Make) -> None:
    """Only a call of unknown outcome is asked about: any other observation comes back as it is."""

    def nobody(call: ToolCall) -> None:
        expect(False, f"{call} was asked about, and its outcome is known")

    for kind in Kind:
        if kind is Kind.UNCERTAIN:
            continue
        due = Observation("so it is", kind is Kind.RESULT, kind)
        came = seen(make(lambda call, due=due: due, nobody), Bank())
        expect(came == due, f"the outcome was {due}, and it came back as {came}")


def what_took_effect_is_not_done_again(make: Make) -> None:
    """Where it is found out what came of the call, that is its outcome, and it is made once."""
    for hook in (became(PAID), lambda call: PAID):
        bank = Bank()
        came = seen(make(call_tool, hook), bank)
        expect(came == PAID, f"found was {PAID}, and told was {came}")
        expect(len(bank.came) == 1, f"it had taken effect, and it was called {len(bank.came)} times")


def what_was_not_done_may_be_done_again(make: Make) -> None:
    """Where nothing was done, that is told as what may pass; a retry makes the call again, under its id."""
    for hook in (became(None), lambda call: None):
        bank = Bank()
        came = seen(make(call_tool, hook), bank)
        expect(
            came.kind is Kind.UNAVAILABLE, f"nothing was done, and that may pass, but it is told as {came}"
        )
        expect(bank.came == [PAY.id], f"an inquiry makes no call by itself, and there were {bank.came}")
        for breaks in (1, 2, 9):
            bank = Bank(breaks)
            came = seen(repeating(4)(make(call_tool, hook)), bank)
            due = [PAY.id] * min(breaks + 1, 4)
            expect(bank.came == due, f"after {breaks} broken lines called were {bank.came}, not {due}")
            expect(came.ok == (breaks < 4), f"after {breaks} broken lines the model is told {came}")


def a_person_decides_where_nobody_knows(make: Make) -> None:
    """A person is shown the exact call and asked once; done, not done, and all else leaves it in doubt."""
    for answer, ok, calls in (
        ("done", True, 1),
        (" Not done ", True, 2),  # by the retry round it
        ("I think it was done", False, 1),
        ("", False, 1),
        (None, False, 1),
        (RuntimeError("no paper"), False, 1),
    ):
        bank = Bank(1, [answer])
        came = seen(repeating(2)(make(call_tool, became(DOUBT))), bank)
        story = f"a person said {answer!r}"
        expect(len(bank.asked) == 1 and "pay(amount=9)" in bank.asked[0], f"{story}, asked: {bank.asked}")
        expect(len(bank.came) == calls, f"{story}, and the tool was called {len(bank.came)} times")
        expect(came.ok is ok, f"{story}, and the model is told {came}")
        expect(ok or came.kind is Kind.UNCERTAIN, f"{story}, and it is no doubt any more: {came}")
    bank = Bank()
    came = seen(make(call_tool, became(DOUBT)), bank)
    expect(came.kind is Kind.UNCERTAIN and len(bank.came) == 1, f"nobody is there, and it came to {came}")


def the_question_is_about_the_call(make: Make) -> None:
    """The question is bound to the call, so that its answer is remembered; a person may be away."""
    program = settle(make(lambda call: DOUBT, lambda call: DOUBT)(PAY))
    asked = next(program)
    expect(isinstance(asked, AskHuman) and asked.about == PAY.id, f"what it asks is {asked}")
    program.close()
    bank, journal = Bank(1, [Away(), "done"]), Journal()
    guard = make(call_tool, became(DOUBT))
    try:
        seen(guard, bank, journal=journal)
    except Away:
        pass
    else:
        expect(False, "a person was away, and the run was not left")
    came = seen(guard, bank, journal=journal)
    expect(came.ok and len(bank.came) == 1, f"days later a person says done, and it comes to {came}")


def what_is_in_hand_is_kept(make: Make) -> None:
    """Out of allowance or interrupted at any point, the model is told what is known by then."""
    for effects in range(1, 8):
        bank = Bank(1, ["done"])
        try:
            came = seen(make(call_tool, became(DOUBT)), bank, Limits(effects=effects))
        except LimitReached:
            expect(not bank.came, f"with {effects} effects it kept nothing of {bank.came}")
        else:
            due = bool(bank.asked)
            expect(came.ok is due, f"with {effects} effects it asked {bank.asked}, and came to {came}")
            expect(came.ok or came.kind is Kind.UNCERTAIN, f"with {effects} effects it came to {came}")
    interrupt = Interrupt()

    def stopped(call: ToolCall) -> Program[Observation | None]:
        interrupt.set()
        yield CallTool(ToolCall("find", {"purchase": call.id}))
        return None

    bank = Bank()
    came = seen(make(call_tool, stopped), bank, Limits(), interrupt=interrupt)
    expect(came.kind is Kind.UNCERTAIN, f"a person stopped the run in the middle of it: {came}")
    expect(len(bank.came) == 1, "a person had stopped the run, and the call was made again")


def it_stands_beside_other_guards(make: Make) -> None:
    """Round a retry or inside of one, doubt is settled once, and the payment is made once."""
    for guard in (
        repeating(3)(make(repeating(3)(call_tool), became(None))),
        make(repeating(3)(make(call_tool, became(None))), became(DOUBT)),
        repeating(3)(make(make(call_tool, became(DOUBT)), became(None))),
    ):
        bank = Bank()
        came = seen(guard, bank)
        expect(came == Observation("paid 9") and len(bank.came) == 2, f"called {bank.came}, told {came}")


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        what_is_known_is_not_asked_about,
        what_took_effect_is_not_done_again,
        what_was_not_done_may_be_done_again,
        a_person_decides_where_nobody_knows,
        the_question_is_about_the_call,
        what_is_in_hand_is_kept,
        it_stands_beside_other_guards,
    )
}


def check_inquiry(make: Make) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(make)
