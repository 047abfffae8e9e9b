"""What a driver promises: plain functions of one ``drive``, used on ours, on wrong ones and on a reader's.

``drive(program, world, journal=None, interrupt=None)`` drives a program to its end and returns what it
returns; it may be ``async def``. ``check_driver(drive)`` raises ``BrokenPromise`` with a story that breaks
a promise. ``PROMISES`` holds the same promises one by one.

How it works: a ``Story`` is a program and its world, made anew for each run. It is driven in an inline
world, where calls run one after another, and in a world where they may hang. In both a fake clock tells
the time, so nothing here waits but for a call that hangs, and then for ``PATIENCE``.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial, update_wrapper
from typing import Any, NamedTuple

import agentloop
from agentloop import (
    Act,
    AgentLoop,
    AskHuman,
    Away,
    CallModel,
    CallTool,
    Do,
    EffectFailed,
    Finish,
    Interrupt,
    Journal,
    Kind,
    LimitReached,
    Limits,
    LoopContext,
    Message,
    Observation,
    Outcome,
    Program,
    ProgramChanged,
    Result,
    Sleep,
    Start,
    StopReason,
    Together,
    Toolbox,
    ToolCall,
    World,
    bounded,
    call_text,
    describe,
)
from fake_llm import FakeClock
from tests.check_machine import BrokenPromise

Drive = Callable[..., Any]
Reason = Callable[[LoopContext], Any]

PATIENCE = 0.05  # seconds: what a call that hangs is allowed
LONG = 4.0  # seconds: a wait that only a broken driver lets run out, and once in a promise


def blocking(drive: Drive) -> Drive:
    """The driver as a plain function: one that is ``async def`` gets an event loop of its own."""
    if not inspect.iscoroutinefunction(drive):
        return drive
    return lambda *given, **named: asyncio.run(drive(*given, **named))


# --- Stories: a program and its world ---------------------------------------------------------


class Broken(BaseException):
    """What ends a run from outside: the power fails."""


class Office:
    """A world that writes down in ``touched`` what was asked of it, in the words of a journal."""

    def __init__(self, inline: bool) -> None:
        self.inline = inline
        self.clock = FakeClock()
        self.touched: list[str] = []
        self.power_fails = False
        self.lock = threading.Lock()

    @property
    def world(self) -> World:
        tools: list[Callable[..., str]] = [self.get_weather, self.pay, self.break_down, self.hang]
        return World(
            self.model,
            Toolbox(tools, idempotent=("get_weather",)),
            self.human,
            self.sleep,
            self.clock.now,
            self.inline,
        )

    def touch(self, what: str) -> None:
        with self.lock:
            self.touched.append(what)

    def model(self, request: CallModel) -> str:
        self.touch(describe(request))
        if "raise" in request.messages[0].content:
            raise ConnectionError("503")
        return f"好的：{request.messages[0].content}"

    def human(self, question: str) -> str:
        self.touch(describe(AskHuman(question)))
        self.clock.advance(1000)
        return "同意"

    def sleep(self, seconds: float) -> None:
        self.touch(describe(Sleep(seconds)))
        self.clock.advance(seconds)

    def get_weather(self, city: str) -> str:
        self.touch(call_text(ToolCall("get_weather", {"city": city})))
        if self.power_fails:
            raise Broken("the power fails")
        return f"{city}: Sunny"

    def pay(self, amount: int) -> str:
        self.touch(call_text(ToolCall("pay", {"amount": amount})))
        if self.power_fails:
            raise Broken("the power fails")
        return f"已支付 {amount} 元"

    def break_down(self) -> str:
        self.touch("break_down()")
        raise PermissionError("not allowed")

    def hang(self) -> str:
        """Time passes here; in a world that is not inline, the call itself is not held up by it."""
        self.touch("hang()")
        self.clock.advance(60)
        return "too late"


def act(*calls: tuple[str, dict[str, Any]]) -> Act:
    return Act(tuple(ToolCall(name, arguments) for name, arguments in calls), "想一想")


def script(name: str, *decisions: Act | Finish) -> Reason:
    """A ``reason`` that asks the model each round and decides by the script."""

    def reason(context: LoopContext) -> Program[Act | Finish]:
        number = len(context.turns)
        yield CallModel((Message("user", f"{name}, round {number + 1}"),))
        return decisions[number]

    return reason


def asking_first(call: ToolCall) -> Program[Observation]:
    """An ``act`` that lets a person approve each call."""
    said = (yield AskHuman(f"May I {call.name}?")).value
    if said != "同意":
        return Observation(f"refused: {said}", False, Kind.REFUSED)
    observation: Observation = (yield CallTool(call)).value
    return observation


WEATHER = act(("get_weather", {"city": "北京"}))
DONE = Finish("颐和园")


def plain() -> Program[Any]:
    """Three rounds and an answer."""
    twice = act(("get_weather", {"city": "北京"}), ("get_weather", {"city": "上海"}))
    return AgentLoop(script("plain", WEATHER, twice, act(("pay", {"amount": 3})), DONE)).run("去哪里玩？")


def failing() -> Program[Any]:
    """A tool that raises, one that is not there, arguments that do not fit."""
    wrong = act(("break_down", {}), ("get_wether", {"city": "北京"}), ("pay", {"amount": "much"}))
    return AgentLoop(script("failing", wrong, DONE)).run("去哪里玩？")


def approved() -> Program[Any]:
    """A person is asked before each call."""
    return AgentLoop(script("approved", act(("pay", {"amount": 9})), DONE), asking_first).run("付款")


def tried_again() -> Program[Any]:
    """Other effects: a wait, a draw, one that fails, a model that raises."""
    drawn = (yield Do("draw", lambda: 4)).value
    yield Sleep(2.5)
    try:
        yield Do("divide", lambda: 1 // 0)
        failure = "none"
    except EffectFailed as error:
        failure = str(error)
    reply = (yield CallModel((Message("user", "raise"),))).value
    value = (yield Do("an exception as a value", lambda: ValueError("only a value"))).value
    return drawn, failure, reply, repr(value)


def late() -> Program[Any]:
    """A call that takes a minute, where half of one is allowed."""
    return AgentLoop(script("late", act(("hang", {})), DONE)).run("慢")


def two() -> Program[Any]:
    """Two loops side by side."""
    return (yield Together((plain(), failing()))).value


def nested() -> Program[Any]:
    """Programs side by side in programs side by side; one of them raises, and one has nothing to do."""

    def breaks(number: int) -> Program[Any]:
        yield Do(f"count to {number}", lambda: number)
        raise LookupError(f"number {number} broke down")

    def nothing() -> Program[Any]:
        return "nothing to do"
        yield

    def inner() -> Program[Any]:
        values = (yield Together((breaks(1), plain(), together(), nothing()))).value
        return [*values[::-1], (yield CallTool(ToolCall("get_weather", {"city": "广州"}))).value]

    return (yield Together((inner(), breaks(2), two()))).value


def together(*programs: Program[Any]) -> Program[Any]:
    return (yield Together(programs)).value


class Story(NamedTuple):
    """A program to run, and in which worlds it comes to the same."""

    program: Callable[[], Program[Any]]
    worlds: tuple[bool, ...] = (True, False)  # inline, and not

    def __str__(self) -> str:
        return f"{self.program.__name__} ({(self.program.__doc__ or '').splitlines()[0].rstrip('.')})"


STORIES = tuple(Story(program) for program in (plain, failing, approved, tried_again, late, two, nested))


def told(value: Any) -> Any:
    """A result as it is compared: exceptions by their text, calls without the ids that depend on arrival."""
    if isinstance(value, Result):
        turns = [(turn.thought, [call[:2] for call in turn.calls], turn.observations) for turn in value.turns]
        return value.answer, value.stop, turns
    if isinstance(value, list):
        return [told(each) for each in value]
    return repr(value) if isinstance(value, BaseException) else value


def expect(condition: bool, *story: object) -> None:
    if not condition:
        raise BrokenPromise("\n".join(str(line) for line in story))


def each_run() -> list[tuple[Story, Office]]:
    return [(story, Office(inline)) for story in STORIES for inline in story.worlds]


def place(office: Office) -> str:
    return "in an inline world" if office.inline else "in a world where calls may hang"


# --- The promises -----------------------------------------------------------------------------


def it_comes_to_the_same(drive: Drive) -> None:
    """Whatever drives it, a program comes to the same turns and values."""
    for story, office in each_run():
        expected = told(agentloop.drive(story.program(), Office(inline=True).world))
        found = told(drive(story.program(), office.world))
        expect(
            found == expected,
            f"{story}, {place(office)}, came to",
            found,
            "and should have come to",
            expected,
        )


def it_hands_over_what_the_program_raises(drive: Drive) -> None:
    """What the program raises reaches the caller; a program that yields no effect is refused in words."""

    def raises() -> Program[Any]:
        yield Start("x")
        raise KeyError("mine")

    def yields_junk() -> Program[Any]:
        yield Start("x")
        yield "an effect? no, a text"  # type: ignore[misc]

    for inline in (True, False):
        for journal in (None, Journal()):
            for program, wanted in ((raises, KeyError), (yields_junk, TypeError)):
                try:
                    came = f"it returned {drive(program(), Office(inline).world, journal)!r}"
                except wanted:
                    continue
                except Exception as error:
                    came = f"it raised {error!r}"
                raise BrokenPromise(f"{program.__name__}, {wanted.__name__} was due, and {came}")


def it_hands_over_what_breaks_the_world(drive: Drive) -> None:
    """What is no Exception, such as a script that has ended, is nobody's observation: it ends the run."""
    for inline in (True, False):
        for in_a_tool in (True, False):
            opened, went_on = threading.Event(), threading.Event()
            if inline:
                opened.set()
            office = Office(inline)
            office.power_fails = True

            def breaks(in_a_tool: bool = in_a_tool) -> Program[Any]:
                yield Do("begin", lambda: None)
                if not in_a_tool:
                    raise Broken("the power fails")
                yield CallTool(ToolCall("get_weather", {"city": "北京"}))

            def beside(opened: threading.Event = opened, went_on: threading.Event = went_on) -> Program[Any]:
                yield Do("begin", lambda: None)
                yield Do("wait", lambda: opened.wait(LONG))
                yield Do("go on", went_on.set)

            try:
                drive(together(breaks(), beside()), office.world)
                came = "nothing"
            except BaseException as error:
                came = repr(error)
            opened.set()
            expect(
                came == repr(Broken("the power fails")),
                f"the power failed, {place(office)}, and it told",
                came,
            )
            expect(
                not went_on.wait(PATIENCE), f"the power failed, {place(office)}, and a program beside went on"
            )


def it_hands_over_what_breaks_the_clock(drive: Drive) -> None:
    """A clock that stops, whoever reads it and whenever, ends the run; nobody waits for ever."""
    for inline in (True, False):
        for count in range(100):
            interrupt, readings = Interrupt(), iter(range(count))

            def clock(readings: Iterator[int] = readings) -> float:
                for reading in readings:
                    return float(reading)
                raise Broken("the clock stops")

            rescue = threading.Timer(LONG, interrupt.set)
            rescue.daemon = True
            rescue.start()
            world = World(tools=Toolbox({"open": lambda: "opened"}), clock=clock, inline=inline)
            try:
                drive(_one_call(ToolCall("open", {})), world, None, interrupt)
                came = "nothing"
            except BaseException as error:
                came = repr(error)
            rescue.cancel()
            place = "in an inline world" if inline else "in a world where calls may hang"
            expect(not interrupt.raised, f"the clock stopped at reading {count}, {place}: the run hung")
            if came == "nothing":
                break
            due = repr(Broken("the clock stops"))
            expect(came == due, f"the clock stopped at reading {count}, {place}, and it told", came)


def it_works_side_by_side(drive: Drive) -> None:
    """Where calls may hang, programs side by side do not wait for each other, at the start or later."""

    def waits(opened: threading.Event) -> Program[bool]:
        came: bool = (yield Do("wait for the other", lambda: opened.wait(LONG))).value
        return came

    def opens(opened: threading.Event) -> Program[str]:
        yield Do("open", opened.set)
        return "opened"

    def later(programs: Program[Any]) -> Program[Any]:
        yield Do("begin", lambda: None)
        return (yield from programs)

    for start in (lambda programs: programs, later):
        opened = threading.Event()
        found = drive(start(together(waits(opened), opens(opened))), Office(inline=False).world)
        expect(
            found == [True, "opened"],
            "the first program waits for the second; they came to",
            found,
            "and should have come, in the order in which they were given, to",
            [True, "opened"],
        )


def it_leaves_a_hanging_call_behind(drive: Drive) -> None:
    """A call that hangs is a TIMEOUT when its time is up, and its late result is ignored."""
    release, returned, left_behind = threading.Event(), threading.Event(), []

    def hang() -> str:
        left_behind.append(release.wait(LONG))
        returned.set()
        return "too late"

    def let_go() -> str:
        release.set()
        return f"returned: {returned.wait(LONG)}"

    def program() -> Program[list[Observation]]:
        slow = (yield CallTool(ToolCall("hang", {}), allowed=PATIENCE)).value
        quick = (yield CallTool(ToolCall("let_go", {}))).value
        after = (yield CallTool(ToolCall("let_go", {}))).value
        return [slow, quick, after]

    journal = Journal()
    slow, quick, after = drive(program(), World(tools=Toolbox([hang, let_go])), journal)
    expect(slow.kind is Kind.TIMEOUT, "a tool hung, and what came of it was", slow)
    expect(left_behind == [True], "a tool hung, and the driver waited until it came back by itself")
    expect(
        quick == after == Observation("returned: True"),
        "the tool that hung returned late, and the calls after it came to",
        quick,
        after,
    )
    expect(len(journal.outcomes) == 3, "three calls were made, and the journal holds", *journal.outcomes)


def it_keeps_the_journal(drive: Drive) -> None:
    """What was asked and what came of it is recorded, and replayed without touching the world."""
    untouchable = World(
        model=_never, tools=Toolbox([_never_a_tool]), human=_never, sleep=_never, clock=FakeClock().now
    )
    for story, office in each_run():
        journal = Journal()
        first = told(drive(story.program(), office.world, journal))
        count = len(journal.outcomes)
        try:
            again = told(drive(story.program(), untouchable, journal))
        except Broken as error:
            raise BrokenPromise(f"{story}, {place(office)}, was to be replayed: {error}") from None
        expect(first == again, f"{story}, {place(office)}, came to", first, "and was replayed to", again)
        expect(len(journal.outcomes) == count, f"{story} was replayed, and its journal grew")


def _never(*_: object) -> Any:
    raise Broken("a replay touched the world")


def _never_a_tool() -> Any:
    raise Broken("a replay touched the world")


def it_resumes_anywhere(drive: Drive) -> None:
    """From any part of its journal a run comes to the same, and only the rest is performed."""
    for story, office in each_run():
        journal = Journal()
        whole = told(drive(story.program(), office.world, journal))
        for count in range(len(journal.outcomes) + 1):
            rest = Office(office.inline)
            found = told(drive(story.program(), rest.world, journal.rewound(count)))
            expect(
                found == whole,
                f"{story}, {place(office)}, resumed after outcome {count}, came to",
                found,
                "and the whole run to",
                whole,
            )
            asked = [without_id(asked) for _, asked, _ in journal.outcomes[count:]]
            due, done = sorted(each for each in asked if each in office.touched), sorted(rest.touched)
            expect(
                done == due,
                f"{story}, {place(office)}, resumed after outcome {count}, did",
                *done,
                "and the rest was",
                *due,
            )


def without_id(asked: str) -> str:
    """What a journal holds of a call, without the id of the call."""
    return asked.split(" ", 2)[2] if asked.startswith("CallTool") else asked


def it_hands_over_what_breaks_the_journal(drive: Drive) -> None:
    """A journal that cannot be written ends the run, and the caller hears of it."""

    class FullDisk(Journal):
        def record(self, address: tuple[int, ...], asked: str, outcome: Outcome) -> None:
            super().record(address, asked, outcome)
            if len(self.outcomes) == 3:
                raise OSError("no space left on device")

    for inline in (True, False):
        try:
            came = f"it returned {drive(plain(), Office(inline).world, FullDisk())}"
        except OSError:
            continue
        raise BrokenPromise(f"the journal could not be written, and {came}")


def it_refuses_a_changed_program(drive: Drive) -> None:
    """A journal of another program is refused, in words that name what was asked then and now."""

    def draws(label: str) -> Program[Any]:
        first = (yield Do("first", lambda: 1)).value
        return first + (yield Do(label, lambda: 2)).value

    for inline in (True, False):
        journal = Journal()
        drive(draws("a second time"), Office(inline).world, journal)
        try:
            drive(draws("differently"), Office(inline).world, journal)
            words = "nothing was refused"
        except ProgramChanged as error:
            words = str(error)
        expect(
            "a second time" in words and "differently" in words,
            "'a second time' was recorded, and the program now asks for 'differently':",
            words,
        )

        def stops_short() -> Program[Any]:
            return (yield Do("first", lambda: 1)).value

        try:
            drive(stops_short(), Office(inline).world, journal)
        except ProgramChanged:
            continue
        raise BrokenPromise("two things were recorded, the program now ends after one, and it was let be")


def it_never_repeats_what_may_have_happened(drive: Drive) -> None:
    """A call whose outcome nobody saw is repeated only if its tool is idempotent; else it is UNCERTAIN."""
    for inline in (True, False):
        for call, kind, times in (
            (ToolCall("pay", {"amount": 9}), Kind.UNCERTAIN, 1),
            (ToolCall("get_weather", {"city": "北京"}), Kind.RESULT, 2),
        ):
            office, journal = Office(inline), Journal()
            office.power_fails = True
            try:
                drive(_one_call(call), office.world, journal)
            except Broken:
                pass
            office.power_fails = False
            observation = drive(_one_call(call), office.world, journal)
            expect(
                observation.kind is kind and len(office.touched) == times,
                f"the power failed during {call.name}, and after the restart it came to",
                observation,
                f"it was made {len(office.touched)} times, and should have been made {times} times",
            )


def _one_call(call: ToolCall) -> Program[Observation]:
    observation: Observation = (yield CallTool(call)).value
    return observation


def a_person_stops_it(drive: Drive) -> None:
    """An interrupt ends the run with HUMAN: before it, during a call, twice; after it, nothing changes."""
    for inline in (True, False):
        interrupt = Interrupt()
        interrupt.set()
        office, journal = Office(inline), Journal()
        result = drive(plain(), office.world, journal, interrupt)
        expect(result.stop is StopReason.HUMAN, "stopped before it began, and it ended for", result.stop)
        expect(not office.touched, "stopped before it began, and it did", *office.touched)
        expect(told(drive(plain(), office.world, journal)) == told(result), "the stop is not in the journal")

        interrupt = Interrupt()
        result = drive(plain(), Office(inline).world, None, interrupt)
        interrupt.set()
        interrupt.set()
        expect(result.stop is StopReason.FINAL_ANSWER, "stopped after its end, and it ended for", result.stop)


def a_person_stops_it_from_another_thread(drive: Drive) -> None:
    """A call that hangs does not keep a person from stopping the run, nor any program beside it."""
    interrupt, hanging, release = Interrupt(), threading.Semaphore(0), threading.Event()
    came_back: list[str] = []

    def hang() -> str:
        hanging.release()
        release.wait(LONG)
        release.set()  # one long wait is enough to judge by
        came_back.append("too late")
        return "too late"

    def stop() -> None:
        hanging.acquire(timeout=LONG)
        hanging.acquire(timeout=LONG)
        interrupt.set()
        interrupt.set()

    def one() -> Program[Result]:
        return AgentLoop(script("hangs", act(("hang", {}), ("hang", {})), DONE)).run("等")

    threading.Thread(target=stop, daemon=True).start()
    journal, world = Journal(), World(lambda request: "好", Toolbox([hang]))
    results = drive(together(one(), one()), world, journal, interrupt)
    expect(not came_back, "the run was stopped, and the driver still waited for the calls that hang")
    release.set()
    expect(
        [result.stop for result in results] == [StopReason.HUMAN] * 2,
        "stopped in a call, and they ended for",
        *(result.stop for result in results),
    )
    for result in results:
        kinds = [observation.kind for observation in result.turns[0].observations]
        expect(
            kinds == [Kind.UNCERTAIN, Kind.NOT_RUN], "of two calls, the first was under way; they are", *kinds
        )
    expect(
        told(drive(together(one(), one()), world, journal)) == told(results), "the stop is not in the journal"
    )


def a_tool_may_stop_it(drive: Drive) -> None:
    """Ctrl-C that is raised inside a call ends the run with HUMAN, as does an interrupt."""
    for inline in (True, False):
        for interrupted in (False, True):
            interrupt = Interrupt()

            def stop(interrupt: Interrupt = interrupt, interrupted: bool = interrupted) -> str:
                if not interrupted:
                    raise KeyboardInterrupt
                interrupt.set()
                return "stopped"

            tools = Toolbox({"stop": lambda: stop()})
            loop = AgentLoop(script("stops", act(("stop", {})), DONE))
            try:
                result = drive(
                    loop.run("停"), World(lambda request: "好", tools, inline=inline), None, interrupt
                )
            except KeyboardInterrupt:
                raise BrokenPromise("Ctrl-C inside a tool tore the run down; no result is left") from None
            expect(result.stop is StopReason.HUMAN, "stopped inside a tool, and it ended for", result.stop)


def nothing_begins_after_the_end(drive: Drive) -> None:
    """Once a person has stopped the run, it has broken or its time is up, nothing that waits is begun."""
    for inline in (True, False):
        for what in ("a person stops the run", "the power fails", "the run's time is up"):
            for steps in range(6):
                nothing_begins_once_a_program_ends_it(drive, inline, what, steps)
    for what in ("a person stops the run", "Ctrl-C", "the power fails", "the run's time is up"):
        for count in (1, 5):
            nothing_begins_once_a_call_ends_it(drive, what, count)


def end_the_run(what: str, office: Office, interrupt: Interrupt) -> None:
    """Do what ends the run."""
    if what == "the run's time is up":
        office.clock.advance(1000)
    elif what == "a person stops the run":
        interrupt.set()
    else:
        raise KeyboardInterrupt if what == "Ctrl-C" else Broken(what)


def driven(drive: Drive, programs: Program[Any], office: Office, *others: Any) -> Any:
    """Drive programs that have half a minute; what breaks the run is what they come to."""
    try:
        return drive(bounded(programs, Limits(seconds=30)), office.world, *others)
    except BaseException as error:
        return error


def nothing_begins_once_a_program_ends_it(drive: Drive, inline: bool, what: str, steps: int) -> None:
    """The end comes between two effects, when calls beside may be on their way already."""
    office, interrupt, ended = Office(inline), Interrupt(), threading.Event()
    begun: list[str] = []  # as the journal has it
    entered: list[bool] = []  # each a call: whether it came after the end
    arrived = threading.Semaphore(0)

    class Noted(Journal):
        def intend(self, address: tuple[int, ...], asked: str) -> None:
            super().intend(address, asked)
            begun.extend([asked] if asked == "Do pay" else [])

    def pay() -> None:
        entered.append(ended.is_set())
        arrived.release()

    def pays() -> Program[Any]:
        yield Start("first")
        yield Do("pay", pay)

    def ends() -> Program[Any]:
        for step in range(steps):
            yield Start(f"step {step}")
        wait_for(len(begun))  # a call that has begun may be on its way still, on a thread
        ended.set()
        end_the_run(what, office, interrupt)
        yield Start("goes on")

    def wait_for(count: int) -> None:
        for _ in range(count):
            arrived.acquire(timeout=PATIENCE if inline else LONG)

    driven(drive, together(pays(), pays(), ends(), pays()), office, Noted(), interrupt)
    wait_for(len(begun) - len(entered))
    expect(ended.is_set(), f"{what}, {place(office)}: the run came to an end before that")
    expect(
        not any(entered),
        f"{what} after {steps} steps, {place(office)}; of three payments, {sum(entered)} began after that",
    )


def nothing_begins_once_a_call_ends_it(drive: Drive, what: str, count: int) -> None:
    """The end comes in the middle of a call: of all that wait their turn in an inline world, none begins."""
    office, interrupt = Office(inline=True), Interrupt()
    noted: list[str] = []  # as the journal has it
    begun: list[int] = []

    class Noted(Journal):
        def intend(self, address: tuple[int, ...], asked: str) -> None:
            super().intend(address, asked)
            noted.extend([asked] if asked.startswith("Do call") else [])

    def call(number: int) -> None:
        begun.append(number)
        if len(begun) == 1:
            end_the_run(what, office, interrupt)

    def calls(number: int) -> Program[Any]:
        yield Do(f"call {number}", partial(call, number))
        return "came back"

    came = driven(drive, together(*(calls(number) for number in range(count))), office, Noted(), interrupt)
    expect(
        len(begun) == 1,
        f"{what} in the middle of call {begun[0]}, {count - 1} calls wait their turn; begun were",
        *begun,
    )
    expect(
        len(noted) == 1,
        f"{what} in the middle of call {begun[0]}; the journal says of these, too, that they were begun:",
        *noted[1:],
    )
    if what == "a person stops the run":
        expect(
            came[begun[0]] == "came back",
            "a call stopped the run and returned; its program was told",
            came[begun[0]],
        )


def its_time_is_the_time_of_the_run(drive: Drive) -> None:
    """The run's time never goes back, survives a resume, and stands still while a person is waited for."""

    def moments() -> Program[list[float]]:
        outcomes: list[Outcome] = []
        for effect in (Sleep(1.0), AskHuman("May I?"), Sleep(2.0), Do("set the clock back", lambda: None)):
            outcomes.append((yield effect))
        return [outcome.at for outcome in outcomes]

    for inline in (True, False):
        office, journal = Office(inline), Journal()
        found = drive(moments(), office.world, journal)
        expect(
            found == [1.0, 1.0, 3.0, 3.0], "1 s asleep, a person asked, 2 s asleep; the run's time was", found
        )
        later = Office(inline)
        later.clock.advance(5000)
        found = drive(moments(), later.world, journal.rewound(2))
        expect(found == [1.0, 1.0, 3.0, 3.0], "resumed hours later, and the run's time was", found)

        readings = iter((9.0, 12.0, 5.0, 4.0, 13.0))
        backwards = World(clock=partial(next, readings, 13.5), sleep=lambda seconds: None, inline=inline)
        found = drive(moments(), backwards)
        expect(found == sorted(found), "the clock was set back, and the run's time was", found)
    its_time_stands_still_for_two_persons(drive)
    its_time_goes_on_beside_a_person(drive)


def its_time_stands_still_for_two_persons(drive: Drive) -> None:
    """Where nothing but persons is waited for, in two programs at once, the time stands still too."""
    office, both_asked = Office(inline=False), threading.Barrier(2)

    def human(question: str) -> str:
        both_asked.wait(LONG)
        return office.human(question)

    def asks(question: str) -> Program[Any]:
        return (yield AskHuman(question)).at

    world = replace(office.world, human=human)
    found = drive(together(asks("May I?"), asks("May I too?")), world)
    expect(found == [0.0, 0.0], "two persons were asked at once, and the run's time was", found)


def its_time_goes_on_beside_a_person(drive: Drive) -> None:
    """Where a person is waited for, and a call beside is under way, the time is that of the call."""
    office, at_work, answered = Office(inline=False), threading.Event(), threading.Event()

    def human(question: str) -> str:
        at_work.wait(LONG)
        return office.human(question)

    def work() -> None:
        at_work.set()
        answered.wait(LONG)

    def asks() -> Program[Any]:
        at = (yield AskHuman("May I?")).at
        yield Do("go on", answered.set)
        return at

    def works() -> Program[Any]:
        return (yield Do("work", work)).at

    found = drive(together(asks(), works()), replace(office.world, human=human))
    expect(
        found == [1000.0, 1000.0],
        "a person took 1000 s, a call was under way meanwhile, and the run's time was",
        found,
    )


def a_person_who_is_away_ends_nothing(drive: Drive) -> None:
    """Where nobody can answer now, the rest goes on, the run is left, and its journal takes it up again."""

    def asks() -> Program[Any]:
        return (yield AskHuman("May I?")).value

    def asks_first() -> Program[None]:
        yield AskHuman("May I?")

    def works(done: list[str]) -> Program[Any]:
        yield Sleep(1.0)
        return (yield Do("work", lambda: done.append("work"))).at

    for inline in (True, False):
        done: list[str] = []
        office, journal = Office(inline), Journal()

        def nobody(question: str) -> str:
            raise Away(question)

        for _ in range(2):
            try:
                drive(together(asks(), works(done)), replace(office.world, human=nobody), journal)
                raise BrokenPromise("the person was away, and the run came to an end all the same")
            except Away:
                expect(done == ["work"], "the person was away, and the program beside the question did", done)
        found = drive(together(asks(), works(done)), Office(inline).world, journal)
        expect(found[0] == "同意", "the run was left and driven again; the person now says", found[0])
        expect(done == ["work"], "the run was left twice and driven again, and the work was done", len(done))

        interrupt = Interrupt()

        def stops(interrupt: Interrupt = interrupt) -> Program[Any]:
            yield Sleep(1.0)
            return (yield Do("stop", interrupt.set)).at

        loop = AgentLoop(lambda context: Finish("好"), perceive=lambda task: asks_first())
        world = replace(office.world, human=nobody)
        try:
            stop = drive(together(loop.run("等"), stops()), world, None, interrupt)[0].stop
        except Away:
            raise BrokenPromise("one person was away, another stopped the run, and it was left") from None
        expect(stop is StopReason.HUMAN, "one person was away, another stopped the run; it ended for", stop)
    a_person_who_is_away_and_a_call_that_hangs(drive)


def a_person_who_is_away_and_a_call_that_hangs(drive: Drive) -> None:
    """When the last call beside the question is left behind, or may not begin any more, the run is left."""
    interrupt, release = Interrupt(), threading.Event()

    def nobody(question: str) -> str:
        raise Away(question)

    def asks() -> Program[Any]:
        return (yield AskHuman("May I?")).value

    def hangs() -> Program[Any]:
        return (yield CallTool(ToolCall("hang", {}), allowed=PATIENCE)).value.kind

    def has_no_time() -> Program[Any]:
        yield Do("hang", lambda: release.wait(PATIENCE))
        return (yield CallTool(ToolCall("hang", {}), deadline=0.0)).value.kind

    for beside in (hangs, has_no_time):
        rescue = threading.Timer(LONG, interrupt.set)
        rescue.daemon = True
        rescue.start()
        tools = Toolbox({"hang": lambda: release.wait(LONG)})
        try:
            came = drive(together(asks(), beside()), World(tools=tools, human=nobody), None, interrupt)
        except Away:
            came = "the run was left"
        except BaseException as error:
            came = repr(error)
        rescue.cancel()
        expect(
            came == "the run was left" and not interrupt.raised,
            f"the person was away, and a call beside {beside.__name__.replace('_', ' ')}; it came to",
            came,
        )
    release.set()


def it_asks_once_about_one_thing(drive: Drive) -> None:
    """The same question about the same thing is put once; about another, or about none, it is put again."""

    def asks() -> Program[list[Any]]:
        answers = []
        for question, about in (("May I?", "c1"), ("May I?", "c1"), ("And so?", "c1"), ("May I?", "c2")):
            answers.append((yield AskHuman(question, about)).value)
        for _ in range(2):
            answers.append((yield AskHuman("May I?")).value)
        return answers

    for inline in (True, False):
        asked: list[str] = []

        def human(question: str, asked: list[str] = asked) -> str:
            asked.append(question)
            return f"answer {len(asked)}"

        world, journal = World(human=human, inline=inline), Journal()
        found = drive(asks(), world, journal)
        expect(len(asked) == 5, "of six questions, one of them put twice about one thing, it put", len(asked))
        expect(found[0] == found[1], "one question about one thing, and two answers:", *found[:2])
        expect(len(set(found)) == 5, "each other question has an answer of its own; there were", *found)
        for count in range(len(journal.outcomes) + 1):
            drive(asks(), world, journal.rewound(count))
        expect(len(asked) == 5 + 15, "resumed at each of five answers, it put the questions", len(asked))

        def again(question: str = "May I?") -> Program[Any]:
            first = (yield AskHuman(question, "c1")).value
            return first, (yield AskHuman(question, "c1")).value

        for answers in (["yes"], [Observation("gone", False, Kind.NO_HUMAN), "yes"]):
            given = iter(answers)

            def next_answer(question: str, given: Iterator[Any] = given) -> Any:
                return next(given, "asked too often")

            journal = Journal()
            world = World(human=next_answer, inline=inline)
            found = drive(together(again(), again(), again()), world, journal)
            due = [(answers[0], answers[-1])] * 3
            expect(found == due, "three programs side by side asked the same, and heard", *found)
            expect(drive(together(again(), again(), again()), world, journal) == due, "replayed, not so")


def it_cannot_be_kept_going(drive: Drive) -> None:
    """A program that asks for ever, and will not hear of an end, ends on its account."""

    def for_ever() -> Program[Any]:
        while True:
            try:
                yield Sleep(0.0)
            except Exception:
                pass

    for inline in (True, False):
        for interrupted in (False, True):
            interrupt = Interrupt()
            if interrupted:
                interrupt.set()
            try:
                drive(bounded(for_ever(), Limits(effects=20)), Office(inline).world, None, interrupt)
                came = "an end without a reason"
            except LimitReached as error:
                came = error.reason.name if error.reason else "no reason"
            due = "HUMAN" if interrupted else "EFFECTS"
            expect(came == due, f"a program that asks for ever ended with {came}, and {due} was due")


def it_makes_nothing_of_no_world(drive: Drive) -> None:
    """Where there is no model, no tool and nobody to ask, that is what the program is told."""

    def asks() -> Program[list[Any]]:
        reply = (yield CallModel((Message("user", "北京"),))).value
        seen = (yield CallTool(ToolCall("get_weather", {}))).value
        said = (yield AskHuman("May I?")).value
        return [reply.kind, seen.kind, said.kind]

    for inline in (True, False):
        found = drive(asks(), World(inline=inline))
        due = [Kind.MODEL_ERROR, Kind.UNKNOWN_TOOL, Kind.NO_HUMAN]
        expect(found == due, "there is no model, no tool, nobody to ask; the program was told", *found)


def put_under(promise: Callable[[Drive], None]) -> Callable[[Drive], None]:
    """The promise for any driver, ``async def`` or not, with the words in which it says what it means."""

    def keep(drive: Drive) -> None:
        promise(blocking(drive))

    return update_wrapper(keep, promise)


#: The promises one by one, in the order in which a driver learns to keep them.
PROMISES: dict[str, Callable[[Drive], None]] = {
    promise.__name__: put_under(promise)
    for promise in (
        it_hands_over_what_the_program_raises,
        it_comes_to_the_same,
        it_makes_nothing_of_no_world,
        it_works_side_by_side,
        it_leaves_a_hanging_call_behind,
        its_time_is_the_time_of_the_run,
        it_keeps_the_journal,
        it_refuses_a_changed_program,
        it_resumes_anywhere,
        it_never_repeats_what_may_have_happened,
        it_hands_over_what_breaks_the_world,
        it_hands_over_what_breaks_the_clock,
        it_hands_over_what_breaks_the_journal,
        a_person_stops_it,
        a_person_stops_it_from_another_thread,
        a_tool_may_stop_it,
        nothing_begins_after_the_end,
        a_person_who_is_away_ends_nothing,
        it_asks_once_about_one_thing,
        it_cannot_be_kept_going,
    )
}


def check_driver(drive: Drive) -> None:
    """Put a driver under every promise. Raises ``BrokenPromise`` with the first story that breaks one."""
    for promise in PROMISES.values():
        promise(drive)
