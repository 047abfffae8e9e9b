"""What an approval promises: plain functions of a factory ``approval(act, dangerous)``.

``check_approval(approval)`` raises ``BrokenPromise`` with the story of the first promise that is broken;
``PROMISES`` holds the same promises one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import (
    Act,
    AgentLoop,
    Away,
    CallTool,
    Finish,
    Interrupt,
    Journal,
    Kind,
    Limits,
    LoopContext,
    LoopError,
    Observation,
    Program,
    Result,
    StopReason,
    Together,
    Toolbox,
    ToolCall,
    Unavailable,
    World,
    call_tool,
    drive,
    settle,
)
from chapters.ch15_goal_detection import is_yes
from fake_llm import FakeClock
from tests.check_toolbox import expect

Hook = Callable[[ToolCall], Any]
Make = Callable[..., Hook]
Wrap = Callable[[Hook], Hook]

YES = "yes"
DANGERS = {"delete": "deletes a file", "pay": "spends money"}
DELETE, PAY, LOOK = (
    ToolCall("delete", {"name": "旧报告.docx"}),
    ToolCall("pay", {"amount": 9}),
    ToolCall("look", {"at": "茶"}),
)


def dangerous(call: ToolCall) -> str | None:
    """Say what these tools do."""
    return DANGERS.get(call.name)


class Office:
    """A world with two dangerous tools and a harmless one; it keeps ``deeds``, and the ``questions`` put."""

    def __init__(self, answers: Sequence[Any] = (YES,), fails: int = 0) -> None:
        self.answers, self.fails = list(answers), fails
        self.deeds: list[tuple[str, Any]] = []
        self.questions: list[str] = []

    @property
    def world(self) -> World:
        tools = Toolbox([self.delete, self.pay, self.look], idempotent=["look"])
        return World(None, tools, self.human, clock=FakeClock().now, inline=True)

    def human(self, question: str) -> Any:
        """Give the next answer, and the last one for ever; raise what is to be raised."""
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer.with_traceback(None)
        self.questions.append(question)
        return answer

    def delete(self, name: str) -> str:
        return self._do("delete", name)

    def pay(self, amount: float) -> str:
        return self._do("pay", amount)

    def look(self, at: str) -> str:
        return self._do("look", at)

    def _do(self, name: str, what: Any) -> str:
        if self.fails:
            self.fails -= 1
            raise Unavailable("closed for a minute")
        self.deeds.append((name, what))
        return f"{name} {what}: done"


# --- Guards that an approval may stand beside ---------------------------------------------------


def repeating(times: int) -> Wrap:
    """Try again what may pass, so many times."""

    def wrap(act: Hook) -> Hook:
        def guarded(call: ToolCall) -> Program[Any]:
            for _ in range(times):
                seen = yield from settle(act(call))
                if seen.kind is not Kind.UNAVAILABLE:
                    break
            return seen

        return guarded

    return wrap


def replacing(other: ToolCall) -> Wrap:
    """Call something else in the place of what was asked for."""

    def wrap(act: Hook) -> Hook:
        def guarded(call: ToolCall) -> Program[Any]:
            return (yield from settle(act(other._replace(id=other.id and call.id))))

        return guarded

    return wrap


def side_by_side(act: Hook) -> Hook:
    """Make the call twice at once, and believe the first."""

    def guarded(call: ToolCall) -> Program[Any]:
        both = (settle(act(call)), settle(act(call._replace(name="pay", arguments={"amount": 1}))))
        return (yield Together(both)).value[0]

    return guarded


def nested(act: Hook, wraps: Sequence[Wrap]) -> Hook:
    """Wrap ``act``, the first of ``wraps`` innermost."""
    for wrap in wraps:
        act = wrap(act)
    return act


# --- One run ------------------------------------------------------------------------------------


class Ran(NamedTuple):
    """What came of a run."""

    result: Result
    office: Office


def reason(calls: Sequence[ToolCall]) -> Callable[[LoopContext], Act | Finish]:
    """Make these calls in the first round, and answer in the second."""
    return lambda context: Finish("done") if context.turns else Act(tuple(calls))


def run(
    act: Hook,
    office: Office,
    *calls: ToolCall,
    limits: Limits = Limits(),  # noqa: B008
    **driving: Any,
) -> Ran:
    """One round of these calls with the guarded ``act``, and an answer."""
    loop = AgentLoop(reason(calls), act, limits=limits)
    return Ran(drive(loop.run("clean up"), office.world, **driving), office)


def seen(ran: Ran) -> tuple[Observation, ...]:
    """The observations of the first round."""
    return ran.result.turns[0].observations


examples = settings(deadline=None, database=None)

# --- The promises -------------------------------------------------------------------------------


def nothing_dangerous_is_done_without_a_clear_yes(make: Make) -> None:
    """Whatever a person says, the deed is done after a yes, and after nothing else."""
    for answer in ("", "yes?", "yes, but only the logs", "no", "n", "do not say yes", "[]", "{", "null"):
        ran = run(make(call_tool, dangerous), Office([answer]), DELETE)
        expect(ran.office.deeds == [], f"the answer was {answer!r}, and {ran.office.deeds} was done")
        expect(not seen(ran)[0].ok, f"the answer was {answer!r}, and the model is told {seen(ran)[0]}")

    @examples
    @given(st.text())
    def check(answer: str) -> None:
        ran = run(make(call_tool, dangerous), Office([answer]), DELETE)
        if not is_yes(answer):
            expect(ran.office.deeds == [], f"the answer was {answer!r}, and {ran.office.deeds} was done")

    check()


def an_answer_that_is_no_text_is_told(make: Make) -> None:
    """A human that returns no text is a mistake: nothing is done, and the caller reads what it returns."""
    for answer in (None, True, 1, {"name": "旧报告.docx"}, ["yes"]):
        office = Office([answer])
        try:
            ran = run(make(call_tool, dangerous), office, DELETE)
        except LoopError as error:
            told = f"a human returned {answer!r}, and the caller is told {error.__cause__!r}"
            expect(isinstance(error.__cause__, TypeError) and repr(answer) in str(error.__cause__), told)
        else:
            expect(False, f"a human returned {answer!r}, and the model is told {seen(ran)[0]}")
        expect(office.deeds == [], f"a human returned {answer!r}, and {office.deeds} was done")


def after_a_yes_it_is_done_once(make: Make) -> None:
    """Approved, in any of the words that the question lists, the call runs as it was, with its result."""
    for answer in ("yes", " YES\n", "Yes.", "ok", "是", "好。", "同意"):
        ran = run(make(call_tool, dangerous), Office([answer]), DELETE)
        expect(ran.office.deeds == [("delete", "旧报告.docx")], f"after {answer!r}: {ran.office.deeds}")
        expect(seen(ran)[0] == Observation("delete 旧报告.docx: done"), f"after {answer!r}: {seen(ran)[0]}")
        listed = answer.strip(" \n.。").casefold()
        expect(listed in ran.office.questions[0], f"{listed} is a yes, and the question does not list it")


def what_is_harmless_is_not_asked_for(make: Make) -> None:
    """A harmless call runs, and nobody is disturbed."""
    ran = run(make(call_tool, dangerous), Office(["no"]), LOOK)
    expect(ran.office.questions == [], f"about {LOOK.name} it asks {ran.office.questions}")
    expect(ran.office.deeds == [("look", "茶")], f"nobody said no, and {ran.office.deeds} was done")


def the_exact_call_is_shown(make: Make) -> None:
    """The question holds name and arguments whole, and other arguments make another question."""
    long = "很长的路径/" * 500 + "x"
    arguments: list[dict[str, Any]] = [
        {"name": long},
        {"name": long[:-1] + "y"},
        {"name": "a", "b": "c"},
        {"name='a', b": "c"},
        {"name": "a', b='c"},
        {"name": "\u202egnp.eurt"},
        {"name": 1},
        {"name": "1"},
    ]
    shown = []
    for each in arguments:
        office = Office(["no"])
        run(make(call_tool, dangerous), office, ToolCall("delete", each))
        expect(len(office.questions) == 1, f"about delete with {each} it asks {len(office.questions)} times")
        shown.append(office.questions[0])
    expect("delete" in shown[0] and long in shown[0], f"of a long name it shows {len(shown[0])} characters")
    expect(len(set(shown)) == len(shown), "two different calls look the same to the person who is asked")
    expect("\u202e" not in shown[5], "it shows a sign that turns the text round, in place of its number")


def a_refusal_is_the_result_of_that_call_alone(make: Make) -> None:
    """Refused with a reason: one result that holds it, the other calls run, the loop goes on (K07)."""
    office = Office(["太贵了", "yes"])
    ran = run(make(call_tool, dangerous), office, PAY, LOOK, DELETE)
    expect(ran.office.deeds == [("look", "茶"), ("delete", "旧报告.docx")], f"done was {ran.office.deeds}")
    kinds = [each.kind for each in seen(ran)]
    expect(kinds == [Kind.REFUSED, Kind.RESULT, Kind.RESULT], f"the results of the three calls are {kinds}")
    expect("太贵了" in seen(ran)[0].text, f"the model does not hear the reason: {seen(ran)[0].text}")
    expect(
        ran.result.stop is StopReason.FINAL_ANSWER, f"after a no the run ended with {ran.result.stop.name}"
    )


def an_edit_is_run_as_it_was_written(make: Make) -> None:
    """Edited arguments are what runs, checked like any others, and the model is told of it."""
    ran = run(make(call_tool, dangerous), Office(['{"name": "缓存.tmp"}']), DELETE)
    expect(ran.office.deeds == [("delete", "缓存.tmp")], f"缓存.tmp was written: {ran.office.deeds}")
    expect(len(ran.office.questions) == 1, "who wrote the arguments was asked about them again")
    text = seen(ran)[0].text
    expect("缓存.tmp" in text.splitlines()[0] and "person" in text, f"what was run is not told: {text}")
    ran = run(make(call_tool, dangerous), Office(['{"nmae": "缓存.tmp"}']), DELETE)
    expect(ran.office.deeds == [], f"there is no argument nmae, and {ran.office.deeds} was done")
    expect(seen(ran)[0].kind is Kind.BAD_ARGUMENTS, f"wrong arguments, and the result is {seen(ran)[0]}")


def nobody_there_is_no_yes(make: Make) -> None:
    """Where nobody can be asked, nothing is done, and NO_HUMAN says so."""
    for absent in (None, RuntimeError("the line is dead")):
        office = Office([absent])
        loop = AgentLoop(reason([DELETE, LOOK]), make(call_tool, dangerous))
        world = office.world
        if absent is None:
            world = World(None, world.tools, None, clock=world.clock, inline=True)
        ran = Ran(drive(loop.run("clean up"), world), office)
        expect(office.deeds == [("look", "茶")], f"nobody was there, and {office.deeds} was done")
        expect(seen(ran)[0].kind is Kind.NO_HUMAN, f"nobody was there, and the result is {seen(ran)[0]}")


def a_call_is_asked_for_once_however_it_is_wrapped(make: Make) -> None:
    """Guards inside and outside may repeat the call: the person is asked once, and the answer holds."""

    @examples
    @given(
        st.lists(st.integers(1, 3), max_size=2),
        st.lists(st.integers(1, 3), max_size=2),
        st.integers(0, 4),
        st.sampled_from([YES, "no", '{"name": "b"}']),
    )
    def check(inside: list[int], outside: list[int], fails: int, answer: str) -> None:
        wraps = [repeating(n) for n in inside] + [lambda act: make(act, dangerous)]
        act = nested(call_tool, wraps + [repeating(n) for n in outside])
        ran = run(act, Office([answer, "no"], fails), DELETE, DELETE)
        story = f"repeated {inside} inside and {outside} outside, failing {fails} times, answered {answer!r}:"
        asked = len(ran.office.questions)
        expect(asked == 2, f"{story} two calls, and {asked} questions")
        tries = 1
        for n in (*inside, *outside):
            tries *= n
        name = "b" if answer.startswith("{") else "旧报告.docx"
        due = [("delete", name)] if answer != "no" and fails < tries else []
        expect(ran.office.deeds == due, f"{story} done was {ran.office.deeds}, not {due}")

    check()


def what_becomes_of_a_call_inside_is_asked_anew(make: Make) -> None:
    """A yes is for what was shown: a guard inside that changes the call, or makes another, needs another."""
    other = ToolCall("delete", {"name": "全部.docx"}, "same")
    for name, asked_for, wrap, due in (
        ("changes the arguments", DELETE, replacing(other), "全部.docx"),
        ("changes a harmless call", LOOK, replacing(other), "全部.docx"),
        ("makes a call of its own, without an id", LOOK, replacing(other._replace(id="")), "全部.docx"),
        ("calls two side by side", LOOK, side_by_side, "1"),
    ):
        ran = run(make(wrap(call_tool), dangerous), Office(["no"]), asked_for)
        done = [deed for deed in ran.office.deeds if deed[0] != "look"]
        expect(done == [], f"a guard inside {name}, the person said no, and {done} was done")
        shown = [question for question in ran.office.questions if due in question]
        expect(len(shown) == 1, f"a guard inside {name}, and the person was asked {ran.office.questions}")
    act = make(repeating(2)(replacing(other)(call_tool)), dangerous)
    ran = run(act, Office(["yes"], fails=1), DELETE)
    expect(len(ran.office.questions) == 1, "the same changed call was repeated, and asked for twice")


def a_yes_is_for_that_call_only(make: Make) -> None:
    """The same thing wanted again, as a call of its own, is asked for again."""
    ran = run(make(call_tool, dangerous), Office(["yes", "no"]), PAY, PAY)
    expect(ran.office.deeds == [("pay", 9)], f"one payment was approved, and {ran.office.deeds} was done")

    def pays_twice(call: ToolCall) -> Program[Any]:
        yield CallTool(PAY)
        return (yield CallTool(PAY)).value

    ran = run(make(pays_twice, dangerous), Office(["yes", "no"]), LOOK)
    story = "a hook makes two payments of its own, without ids, and one was approved"
    expect(ran.office.deeds == [("pay", 9)], f"{story}: {ran.office.deeds} was done")


def a_stop_at_the_question_ends_the_run_at_once(make: Make) -> None:
    """Ctrl-C or "stop" where a question stands: HUMAN, no more is done, and each call says so."""
    for said in (KeyboardInterrupt(), "stop", "Stop.", "停止"):
        ran = run(make(call_tool, dangerous), Office([said]), DELETE, LOOK)
        story = f"the person answered {said!r}"
        expect(ran.result.stop is StopReason.HUMAN, f"{story}, and it ended: {ran.result.stop.name}")
        expect(ran.office.deeds == [], f"{story}, and then {ran.office.deeds} was done")
        kinds = [each.kind.name for each in seen(ran)]
        expect(kinds == ["NOT_RUN", "NOT_RUN"], f"{story}, nothing was run, and the turn says {kinds}")


def it_stays_within_its_account(make: Make) -> None:
    """Whatever ends the run, at whatever effect, nothing is done without a yes, and it ends honestly."""

    @examples
    @given(st.integers(1, 12), st.integers(0, 12), st.sampled_from([YES, "no", '{"name": "b"}', None]))
    def check(effects: int, until: int, answer: str | None) -> None:
        office, interrupt = Office([answer or YES]), Interrupt()
        pressed = iter(range(until))

        def ring(call: ToolCall) -> str | None:
            if next(pressed, None) is None:
                interrupt.set()
            return dangerous(call)

        act = repeating(2)(make(repeating(2)(call_tool), ring))
        ran = run(act, office, LOOK, DELETE, PAY, limits=Limits(effects=effects), interrupt=interrupt)
        honest = (StopReason.FINAL_ANSWER, StopReason.EFFECTS, StopReason.HUMAN)
        expect(ran.result.stop in honest, f"with {effects} effects it ended with {ran.result.stop.name}")
        for turn in ran.result.turns:
            for call, each in zip(turn.calls, turn.observations, strict=True):
                if call.name in DANGERS and each.ok:
                    shown = any(call.name in question for question in office.questions)
                    expect(shown, f"{call.name} was run, and nobody was asked")
                    expect(answer != "no", f"{call.name} was run, and the answer was no")

    check()


def bugs_go_through(make: Make) -> None:
    """An exception in what it wraps, or in ``dangerous``, ends the run and reaches the caller."""

    def broken(call: ToolCall) -> Program[Any]:
        yield CallTool(LOOK)
        raise ZeroDivisionError("a bug")

    def clueless(call: ToolCall) -> str | None:
        raise ZeroDivisionError("a bug")

    for act in (make(broken, dangerous), make(call_tool, clueless)):
        try:
            ran = run(act, Office(), DELETE)
        except LoopError as error:
            expect(isinstance(error.__cause__, ZeroDivisionError), f"the bug became {error.__cause__!r}")
        else:
            expect(False, f"there is a bug, and the run ended with {ran.result.stop.name}")


def a_plain_function_can_be_wrapped(make: Make) -> None:
    """What it wraps may return its observation at once; where no tool is called, nobody is asked."""
    ran = run(make(lambda call: Observation("at once"), dangerous), Office(["no"]), DELETE)
    expect(seen(ran) == (Observation("at once"),), f"the wrapped function returned at once: {seen(ran)}")


def left_at_the_question_it_goes_on_there(make: Make) -> None:
    """A person who is away leaves the run; driven again, it asks again, and does nothing twice (K02)."""
    for answers, asked in ((["yes"], 2), (["no"], 2), (['{"name": "b"}', "yes"], 2)):
        loop = AgentLoop(reason([LOOK, DELETE, PAY]), repeating(2)(make(call_tool, dangerous)))
        whole_office = Office(answers)
        whole = drive(loop.run("clean up"), whole_office.world)
        office, journal = Office([Away("later"), answers[0], Away("later"), answers[-1]]), Journal()
        for _ in range(2):
            try:
                drive(loop.run("clean up"), office.world, journal)
            except Away:
                continue
            expect(False, "the person was away, and the run went on")
        result = drive(loop.run("clean up"), office.world, journal)
        expect(result == whole, f"left twice, then answered {answers}, it came to {result}, not {whole}")
        twice = {deed: n for deed, n in Counter(office.deeds).items() if n > 1}
        expect(office.deeds == whole_office.deeds, f"left and driven again, done was {office.deeds} {twice}")
        expect(
            len(office.questions) == asked, f"{len(office.questions)} questions were answered, not {asked}"
        )
        again = drive(loop.run("clean up"), World(inline=True), journal)
        expect(again == whole, f"replayed without a world, it came to {again}")


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        an_answer_that_is_no_text_is_told,
        after_a_yes_it_is_done_once,
        nothing_dangerous_is_done_without_a_clear_yes,
        what_is_harmless_is_not_asked_for,
        the_exact_call_is_shown,
        a_refusal_is_the_result_of_that_call_alone,
        an_edit_is_run_as_it_was_written,
        nobody_there_is_no_yes,
        a_yes_is_for_that_call_only,
        a_call_is_asked_for_once_however_it_is_wrapped,
        what_becomes_of_a_call_inside_is_asked_anew,
        a_stop_at_the_question_ends_the_run_at_once,
        it_stays_within_its_account,
        bugs_go_through,
        a_plain_function_can_be_wrapped,
        left_at_the_question_it_goes_on_there,
    )
}


def check_approval(make: Make) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(make)
