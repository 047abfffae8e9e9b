"""Whatever hooks, models, tools, people and clocks do: a loop ends, and tells the truth about why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from agentloop import (
    Act,
    AgentLoop,
    AskHuman,
    CallModel,
    CallTool,
    Do,
    Finish,
    Interrupt,
    Kind,
    LimitReached,
    Limits,
    LoopContext,
    LoopError,
    Message,
    Program,
    Reply,
    Result,
    Sleep,
    Stage,
    Step,
    StopReason,
    Together,
    Toolbox,
    ToolCall,
    Usage,
    World,
    advance,
    bounded,
    drive,
    worst_case_steps,
)
from fake_llm import FakeClock, hanging_model
from paradigms.function_calling import function_calling
from paradigms.react import react
from tests.check_loop import (
    OF_A_SCRIPT,
    OF_ONE_PLAY,
    Play,
    Script,
    breaks_of_a_play,
    breaks_of_a_script,
    play,
)
from tests.check_machine import BrokenPromise
from tests.loop_strategies import answers, nested_scripts, prompt_limits, scripts, small_limits, tool_results

TASK = "今天北京适合去哪里玩？"


def examples(count: int) -> settings:
    """At least so many examples, and more under a profile that asks for more."""
    more = max(count, settings().max_examples)
    return settings(max_examples=more, suppress_health_check=[HealthCheck.too_slow])


def told(breaks: Any) -> None:
    for found in breaks:
        raise BrokenPromise(str(found))


# --- Any hooks --------------------------------------------------------------------------------


@given(scripts())
@examples(400)
def test_a_loop_of_any_hooks_keeps_every_promise(script: Script) -> None:
    told(breaks_of_a_play(play(AgentLoop, script), OF_ONE_PLAY))


@given(nested_scripts)
@examples(200)
def test_loops_inside_of_loops_keep_every_promise(script: Script) -> None:
    told(breaks_of_a_play(play(AgentLoop, script), OF_ONE_PLAY))


@given(nested_scripts)
@examples(80)
def test_any_loop_does_the_same_again_and_on_replay(script: Script) -> None:
    told(breaks_of_a_script(AgentLoop, script, OF_A_SCRIPT))


class Stubborn:
    """A hook that wants one thing for ever and hears nothing; it gives up where no loop should get to."""

    def __init__(self, effect: Any) -> None:
        self.effect, self.refused = effect, 0

    def __call__(self, _: Any, __: Any = None) -> Program[Any]:
        while True:
            try:
                yield self.effect
            except GeneratorExit:
                return None
            except Exception:
                self.refused += 1
                if self.refused > 2000:
                    raise SystemExit("the loop would never have ended") from None


ODD_EFFECTS: dict[str, Any] = {
    "a text": "CallTool",
    "nothing": None,
    "a class": Sleep,
    "a sleep of no number": Sleep("long"),  # type: ignore[arg-type]
    "a sleep back in time": Sleep(-1.0),
    "a sleep of NaN": Sleep(float("nan")),
    "a sleep for ever": Sleep(float("inf")),
    "a prompt of unknown size": CallModel((), tokens=None),  # type: ignore[arg-type]
    "a prompt of text size": CallModel((), tokens="many"),  # type: ignore[arg-type]
    "a prompt of negative size": CallModel((), tokens=-1000),
    "a prompt that is none": CallModel(None),  # type: ignore[arg-type]
    "a call without end": CallModel((), allowed="ever"),  # type: ignore[arg-type]
    "a call of nothing": CallTool(None),  # type: ignore[arg-type]
    "a deed that is none": Do("draw", 4),  # type: ignore[arg-type]
    "a deed that fails": Do("draw", lambda: 1 // 0),
    "programs that are none": Together((1, 2)),  # type: ignore[arg-type]
    "no programs": Together(()),
    "a number of programs": Together(3),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("hook", ["reason", "act", "perceive", "accept", "stops"])
@pytest.mark.parametrize("name", ODD_EFFECTS)
def test_a_hook_that_wants_odd_things_for_ever_and_hears_nothing(name: str, hook: str) -> None:
    stubborn = Stubborn(ODD_EFFECTS[name])
    hooks: dict[str, Any] = {"reason": lambda context: Act((ToolCall("get_weather", {}),)), hook: stubborn}
    if hook == "accept":
        hooks["reason"] = lambda context: Finish("颐和园")
    if hook == "stops":
        hooks["stops"] = (stubborn,)
    steps: list[Step] = []
    limits = Limits(effects=20)
    loop = AgentLoop(**hooks, limits=limits, watch=steps.append)
    world = World(model=lambda request: "嗯", tools=Toolbox([]), sleep=FakeClock().sleep, inline=True)
    result = drive(loop.run(TASK), world)
    assert result.stop in (StopReason.EFFECTS, StopReason.MODEL_CALLS, StopReason.WALL_CLOCK)
    assert len(steps) <= worst_case_steps(limits)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_hook_that_cannot_even_be_closed_is_left_behind() -> None:
    def reason(context: LoopContext) -> Program[Any]:
        for _ in range(10_000):  # enough that nobody waits for it
            try:
                yield Sleep(0)
            except (Exception, GeneratorExit):
                pass

    result = drive(AgentLoop(reason).run(TASK), World(sleep=FakeClock().sleep, inline=True))
    assert result.stop is StopReason.EFFECTS


# --- Any model, any tool ----------------------------------------------------------------------


class Hostile:
    """A world whose model and tool say what was drawn, whose clock jumps, and where a person may step in."""

    def __init__(self, draw: st.DataObject) -> None:
        self.draw, self.clock, self.interrupt = draw, FakeClock(), Interrupt()
        self.interrupted_at = draw.draw(st.one_of(st.none(), st.integers(1, 6)), "interrupted at effect")
        self.effects = 0
        self.model_calls = self.tool_calls = 0

    def something(self, strategy: Any, label: str) -> Any:
        self.effects += 1
        if self.effects == self.interrupted_at:
            self.interrupt.set()
        self.clock.advance(self.draw.draw(st.sampled_from([0.0, 0.0, 0.1, 40.0]), "seconds"))
        value = self.draw.draw(strategy, label)
        if isinstance(value, Exception):
            raise value
        return value

    def model(self, request: CallModel) -> Any:
        self.model_calls += 1
        return self.something(answers, "reply")

    def get_weather(self, city: str) -> Any:
        self.tool_calls += 1
        return self.something(tool_results, "result")

    def broken(self) -> None:
        self.tool_calls += 1
        raise ConnectionError("503")

    def time(self) -> float:
        """A clock that now and then jumps back: no driver may believe it."""
        return self.clock.now() - self.draw.draw(st.sampled_from([0.0, 0.0, 0.0, 5.0]), "jump back")

    def world(self, tools: Toolbox) -> World:
        return World(model=self.model, tools=tools, clock=self.time, sleep=self.clock.sleep, inline=True)


@pytest.mark.parametrize("paradigm", [react, function_calling])
@given(draw=st.data(), limits=prompt_limits)
@examples(150)
def test_a_paradigm_with_any_model_and_any_tools(
    paradigm: Callable[[Toolbox], Any], draw: st.DataObject, limits: Limits
) -> None:
    hostile = Hostile(draw)
    tools = Toolbox([hostile.get_weather, hostile.broken])
    steps: list[Step] = []
    loop = AgentLoop(paradigm(tools), limits=limits, watch=steps.append)
    result = drive(loop.run(TASK), hostile.world(tools), interrupt=hostile.interrupt)
    event(result.stop.name)
    assert len(steps) <= worst_case_steps(limits)
    assert (result.answer is not None) is (result.stop is StopReason.FINAL_ANSWER)
    assert hostile.model_calls <= limits.model_calls
    assert hostile.tool_calls <= limits.tool_calls
    assert all(len(turn.calls) == len(turn.observations) for turn in result.turns)
    ids = [call.id for turn in result.turns for call in turn.calls]
    assert all(ids) and len(set(ids)) == len(ids)
    for before, told_event, after, _ in steps:
        assert after == advance(before, told_event, limits)
    if result.stop is StopReason.MAX_ITERATIONS:
        assert result.control.rounds == limits.rounds
    if result.stop is StopReason.HUMAN:
        assert hostile.interrupt.raised


@pytest.mark.parametrize("paradigm", [react, function_calling])
@pytest.mark.parametrize(
    "reply", [Reply(None), Reply(None, None), Reply("", None), Reply(7), Reply(["text"])]
)  # type: ignore[arg-type]
@pytest.mark.parametrize("usage", [None, Usage(3)])
def test_a_reply_of_odd_parts_is_the_models_failure(paradigm: Any, reply: Reply, usage: Usage | None) -> None:
    """What the model does wrong comes back as an observation (design, decision 3), never as our error."""
    tools = Toolbox([])
    world = World(model=lambda request: reply._replace(usage=usage), tools=tools, inline=True)
    result = drive(AgentLoop(paradigm(tools)).run(TASK), world)
    assert result.stop in (StopReason.TOO_MANY_FAILURES, StopReason.FINAL_ANSWER)


def test_a_reply_without_text_and_usage_still_makes_its_calls() -> None:
    """Providers send no text beside native calls, and some send no usage."""
    tools = Toolbox({"get_weather": lambda city: "晴"})
    replies = iter([Reply(None, ({"name": "get_weather", "arguments": '{"city": "北京"}'},)), Reply("晴")])  # type: ignore[arg-type]
    result = drive(
        AgentLoop(function_calling(tools)).run(TASK),
        World(model=lambda request: next(replies), tools=tools, inline=True),
    )
    assert result.answer == "晴"


# --- Time -------------------------------------------------------------------------------------


@pytest.mark.parametrize("paradigm", [react, function_calling])
def test_a_model_that_hangs_is_a_failure_each_time(paradigm: Any) -> None:
    clock = FakeClock()
    tools = Toolbox([])
    world = World(model=hanging_model(lambda: clock.advance(60)), tools=tools, clock=clock.now, inline=True)
    result = drive(AgentLoop(paradigm(tools), limits=Limits(failures=3)).run(TASK), world)
    assert result.stop is StopReason.TOO_MANY_FAILURES
    kinds = [seen.kind for turn in result.turns for seen in turn.observations]
    assert kinds == [Kind.TIMEOUT] * 3


def test_time_counts_also_where_every_deed_fails() -> None:
    """A deed that fails after half a minute has taken half a minute."""
    clock = FakeClock()

    def slow() -> None:
        clock.advance(30)
        raise ConnectionError

    def reason(context: LoopContext) -> Program[Any]:
        while True:
            try:
                yield Do("test run", slow)
            except LimitReached:
                raise
            except Exception:
                pass

    world = World(clock=clock.now, inline=True)
    result = drive(AgentLoop(reason, limits=Limits(seconds=100)).run(TASK), world)
    assert result.stop is StopReason.WALL_CLOCK
    assert clock.now() <= 130


def test_a_person_who_thinks_long_takes_none_of_the_runs_time() -> None:
    clock = FakeClock()

    def human(question: str) -> str:
        clock.advance(10_000)
        return "yes"

    def reason(context: LoopContext) -> Program[Finish]:
        yield AskHuman("May I?")
        yield Sleep(1)
        return Finish("好")

    world = World(human=human, clock=clock.now, sleep=clock.sleep, inline=True)
    result = drive(AgentLoop(reason, limits=Limits(seconds=5)).run(TASK), world)
    assert (result.stop, result.control.seconds) == (StopReason.FINAL_ANSWER, 1.0)


# --- Programs of loops ------------------------------------------------------------------------


def one_question(context: LoopContext) -> Program[Finish]:
    reply = (yield CallModel((Message("user", "北京"),))).value
    return Finish(reply.text)


def answering(tokens: int = 1) -> World:
    return World(model=lambda request: Reply("晴", usage=Usage(tokens)), tools=Toolbox([]), inline=True)


@given(
    limits=small_limits,
    waves=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    interrupted_at=st.one_of(st.none(), st.integers(0, 10)),
)
@examples(100)
def test_loops_side_by_side_keep_within_one_account(
    limits: Limits, waves: list[int], interrupted_at: int | None
) -> None:
    asked = 0
    interrupt = Interrupt()

    def model(request: CallModel) -> Reply:
        nonlocal asked
        asked += 1
        if asked == interrupted_at:
            interrupt.set()
        return Reply("晴", usage=Usage(7))

    def program() -> Program[list[Any]]:
        results: list[Any] = []
        try:
            for wave in waves:
                loops = tuple(AgentLoop(one_question).run(TASK) for _ in range(wave))
                results += (yield Together(loops)).value
        except LimitReached as refusal:
            results.append(refusal.reason)
        return results

    world = World(model=model, inline=True)
    results = drive(bounded(program(), limits), world, interrupt=interrupt)
    assert asked <= min(limits.model_calls, limits.effects)
    for result in results:
        stop = result.stop if isinstance(result, Result) else result
        assert stop in (
            StopReason.FINAL_ANSWER,
            StopReason.HUMAN,
            StopReason.MODEL_CALLS,
            StopReason.EFFECTS,
            StopReason.TOKEN_BUDGET,
        )


def test_many_loops_side_by_side_each_come_to_a_result() -> None:
    """However many are refused, each may end in its own words, and the program keeps what it has."""

    def program() -> Program[list[Any]]:
        loops = tuple(AgentLoop(one_question).run(TASK) for _ in range(150))
        results: list[Any] = (yield Together(loops)).value
        try:
            yield Sleep(0)
        except LimitReached:
            results.append("kept")
        return results

    results = drive(bounded(program(), Limits(effects=160, model_calls=160)), answering())
    assert results[-1] == "kept"
    assert [type(result).__name__ for result in results[:-1]] == ["Result"] * 150


def test_a_person_stops_every_later_loop_of_a_program() -> None:
    interrupt = Interrupt()
    asked: list[str] = []

    def model(request: CallModel) -> str:
        asked.append("")
        interrupt.set()
        return "晴"

    def program() -> Program[list[Result]]:
        results = []
        for _ in range(3):
            results.append((yield from AgentLoop(one_question).run(TASK)))
        return results

    results = drive(program(), World(model=model, inline=True), interrupt=interrupt)
    assert [result.stop for result in results] == [
        StopReason.FINAL_ANSWER,
        StopReason.HUMAN,
        StopReason.HUMAN,
    ]
    assert len(asked) == 1


def test_a_loop_on_an_empty_account_does_not_begin() -> None:
    entered: list[str] = []

    def noting(context: LoopContext) -> Finish:
        entered.append(context.task)
        return Finish("好")

    def outer(context: LoopContext) -> Program[Finish]:
        first = yield from AgentLoop(one_question).run("一")
        second = yield from AgentLoop(noting, limits=Limits(effects=100)).run("二")
        return Finish((first.stop, second.stop))

    limits = Limits(effects=2)
    stops: list[Any] = []
    steps: list[Step] = []
    loop = AgentLoop(lambda context: _keeping(outer(context), stops), limits=limits, watch=steps.append)
    result = drive(loop.run(TASK), answering())
    assert result.stop is StopReason.EFFECTS
    assert stops == [(StopReason.FINAL_ANSWER, StopReason.EFFECTS)]
    assert entered == []


def _keeping(program: Program[Finish], kept: list[Any]) -> Program[Finish]:
    finish = yield from program
    kept.append(finish.answer)
    return finish


def test_rounds_and_failures_are_a_loops_own() -> None:
    def inner(context: LoopContext) -> Act | Finish:
        return Finish("好") if len(context.turns) == 4 else Act((ToolCall("gone", {}),))

    def outer(context: LoopContext) -> Program[Finish]:
        result = yield from AgentLoop(inner, limits=Limits(rounds=5, failures=5)).run(TASK)
        return Finish(result.answer)

    result = drive(AgentLoop(outer, limits=Limits(rounds=1, failures=1)).run(TASK), answering())
    assert (result.stop, result.control.rounds, result.control.failures) == (StopReason.FINAL_ANSWER, 1, 0)
    assert result.control.tool_calls == 4


def test_a_bug_in_a_branch_is_a_value_and_spares_the_others() -> None:
    def buggy(context: LoopContext) -> Finish:
        raise ZeroDivisionError

    def program() -> Program[list[Any]]:
        loops = (
            AgentLoop(one_question).run("一"),
            AgentLoop(buggy).run("二"),
            AgentLoop(one_question).run("三"),
        )
        return (yield Together(loops)).value  # type: ignore[no-any-return]

    first, second, third = drive(program(), answering())
    assert first.answer == third.answer == "晴"
    assert isinstance(second, LoopError)


# --- A driver that stops in the middle --------------------------------------------------------


@given(script=scripts(), effects=st.integers(1, 10))
@examples(60)
def test_a_driver_that_gives_up_leaves_nothing_running(script: Script, effects: int) -> None:
    played = Play(AgentLoop, script)
    _, loop = played.loop(script)
    program = loop.run(script.task)
    stage = Stage(program)
    waiting = list(stage.waiting)
    for _ in range(effects):
        if waiting:
            strand = waiting.pop(0)
            waiting += stage.deliver(strand, played.outcome(strand.effect), played.at)
    moments = len(played.moments)
    try:
        program.close()
    except LoopError:
        pass  # a deaf hook in it
    later = [str(moment) for moment in played.moments[moments:]]
    assert not [moment for moment in later if "is entered" in moment or "performs" in moment]
