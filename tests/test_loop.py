"""The loop keeps each promise of ``check_loop``, and ends for each reason exactly at its limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentloop import (
    CODING,
    QUESTION_ANSWERING,
    RESEARCH,
    RULE_REASONS,
    Act,
    AgentLoop,
    AskHuman,
    CallModel,
    CallTool,
    Control,
    Do,
    EffectFailed,
    Finish,
    Interrupt,
    Kind,
    LimitReached,
    Limits,
    LoopContext,
    LoopError,
    Message,
    Observation,
    Outcome,
    Program,
    Reply,
    Result,
    Sleep,
    Step,
    StopReason,
    Toolbox,
    ToolCall,
    Usage,
    World,
    call_text,
    drive,
    report,
    worst_case_steps,
)
from fake_llm import FakeClock
from tests.check_loop import (
    OF_A_SCRIPT,
    OF_ONE_PLAY,
    PROMISES,
    Play,
    Promise,
    PromiseOfAScript,
    breaks_of_a_play,
    check_loop,
    play,
    small_scripts,
)
from tests.check_machine import BrokenPromise
from tests.gallery import wrong_version
from tests.gallery_loop import LOOP_FAULTS

ASK = (Message("user", "北京今天适合去哪里玩？"),)
WEATHER = ToolCall("get_weather", {"city": "北京"})
BROKEN = ToolCall("broken", {})
AMPLE = Limits(
    rounds=50, model_calls=50, tool_calls=50, effects=200, failures=50, tokens=10**6, cost=1e6, seconds=1e6
)


class Weather:
    """A world of one good and one broken tool, a model that charges, and a clock that stands still."""

    def __init__(self, tokens: int = 10, cost: float = 0.5) -> None:
        self.clock = FakeClock()
        self.asked = 0
        self.ran: list[str] = []
        self.usage = Usage(tokens, cost)

    def model(self, request: CallModel) -> Reply:
        self.asked += 1
        return Reply("想想", usage=self.usage)

    def get_weather(self, city: str) -> str:
        self.ran.append(city)
        return f"{city}: 晴"

    def broken(self) -> str:
        self.ran.append("broken")
        raise ConnectionError("503")

    @property
    def world(self) -> World:
        return World(
            model=self.model,
            tools=Toolbox([self.get_weather, self.broken]),
            human=lambda question: "yes",
            sleep=self.clock.sleep,
            clock=self.clock.now,
            inline=True,
        )


def thinking(*calls: ToolCall, tokens: int = 0, models: int = 1) -> Any:
    """A reason hook that asks the model some times, and then always takes the same calls."""

    def reason(context: LoopContext) -> Program[Act]:
        for _ in range(models):
            yield CallModel(ASK, tokens=tokens)
        return Act(calls or (WEATHER,), "查一查")

    return reason


def run(loop: AgentLoop, weather: Weather | None = None, **driving: Any) -> Result:
    return drive(loop.run("今天北京适合去哪里玩？"), (weather or Weather()).world, **driving)


# --- Every promise ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plays() -> list[Play]:
    return [play(AgentLoop, script) for scripts in small_scripts() for script in scripts]


@pytest.mark.parametrize("promise", OF_ONE_PLAY, ids=lambda promise: promise.__name__)
def test_the_loop_keeps_the_promise(promise: Promise, plays: list[Play]) -> None:
    for played in plays:
        for found in breaks_of_a_play(played, [promise]):
            raise BrokenPromise(str(found))


@pytest.mark.parametrize("promise", OF_A_SCRIPT, ids=lambda promise: promise.__name__)
def test_the_loop_keeps_the_promise_of_several_plays(promise: PromiseOfAScript) -> None:
    PROMISES[promise.__name__](AgentLoop)


def test_a_broken_promise_is_told_as_a_story() -> None:
    fault = next(fault for fault in LOOP_FAULTS if "charged after" in fault.name)
    with pytest.raises(BrokenPromise) as caught:
        check_loop(wrong_version(fault))
    story = str(caught.value).splitlines()
    assert story[0].startswith("Broken promise: ")
    assert story[2].startswith("  event 1: ")
    assert story[-1].startswith("event ")


def test_what_is_no_loop_at_all_is_told_as_a_story_too() -> None:
    class Idle:
        def __init__(self, reason: Any, **hooks: Any) -> None:
            pass

        def run(self, task: Any) -> Program[None]:
            yield Sleep(1)

    with pytest.raises(BrokenPromise, match="Broken promise: "):
        check_loop(Idle)


# --- Every reason, by a whole loop under drive ------------------------------------------------


def test_FINAL_ANSWER() -> None:
    result = run(AgentLoop(lambda context: Finish("颐和园")))
    assert (result.stop, result.answer) == (StopReason.FINAL_ANSWER, "颐和园")


def test_HUMAN() -> None:
    interrupt = Interrupt()
    weather = Weather()

    def reason(context: LoopContext) -> Act:
        if len(context.turns) == 2:
            interrupt.set()
        return Act((WEATHER,))

    result = run(AgentLoop(reason), weather, interrupt=interrupt)
    assert (result.stop, result.answer) == (StopReason.HUMAN, None)
    assert weather.ran == ["北京"] * 2, "the third call was stopped"
    kinds = [turn.observations[0].kind for turn in result.turns]
    assert kinds == [Kind.RESULT, Kind.RESULT, Kind.UNCERTAIN]


def test_ERROR() -> None:
    def reason(context: LoopContext) -> Act:
        if context.turns:
            raise ZeroDivisionError("a bug")
        return Act((WEATHER,))

    with pytest.raises(LoopError) as caught:
        run(AgentLoop(reason))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.result.stop is StopReason.ERROR
    assert caught.value.result.answer is None
    assert len(caught.value.result.turns) == 1, "the result so far is attached"


@pytest.mark.parametrize("failures", [1, 2, 5])
def test_TOO_MANY_FAILURES(failures: int) -> None:
    weather = Weather()
    result = run(AgentLoop(thinking(BROKEN), limits=replace(AMPLE, failures=failures)), weather)
    assert result.stop is StopReason.TOO_MANY_FAILURES
    assert weather.ran == ["broken"] * failures


def test_a_success_between_failures_starts_the_count_anew() -> None:
    def reason(context: LoopContext) -> Act:
        return Act((WEATHER if len(context.turns) == 1 else BROKEN,))

    weather = Weather()
    result = run(AgentLoop(reason, limits=replace(AMPLE, failures=2)), weather)
    assert result.stop is StopReason.TOO_MANY_FAILURES
    assert weather.ran == ["broken", "北京", "broken", "broken"]


@pytest.mark.parametrize("rounds", [1, 2, 10])
def test_MAX_ITERATIONS(rounds: int) -> None:
    weather = Weather()
    result = run(AgentLoop(thinking(), limits=replace(AMPLE, rounds=rounds)), weather)
    assert result.stop is StopReason.MAX_ITERATIONS
    assert (weather.asked, len(weather.ran), len(result.turns)) == (rounds, rounds, rounds)


@pytest.mark.parametrize("calls", [1, 2, 7])
def test_MODEL_CALLS(calls: int) -> None:
    weather = Weather()
    result = run(AgentLoop(thinking(models=3), limits=replace(AMPLE, model_calls=calls)), weather)
    assert (result.stop, weather.asked) == (StopReason.MODEL_CALLS, calls)


@pytest.mark.parametrize("calls", [1, 2, 7])
def test_TOOL_CALLS(calls: int) -> None:
    weather = Weather()
    loop = AgentLoop(thinking(WEATHER, WEATHER, WEATHER), limits=replace(AMPLE, tool_calls=calls))
    result = run(loop, weather)
    assert (result.stop, len(weather.ran)) == (StopReason.TOOL_CALLS, calls)
    kinds = [seen.kind for turn in result.turns for seen in turn.observations]
    assert kinds == [Kind.RESULT] * calls + [Kind.NOT_RUN] * (-calls % 3)


@pytest.mark.parametrize("effects", [1, 6])
@pytest.mark.parametrize("effect", [Sleep(0), AskHuman("May I?"), Do("draw", lambda: 4)], ids=str)
def test_EFFECTS(effect: Any, effects: int) -> None:
    seen: list[Any] = []

    def reason(context: LoopContext) -> Program[Any]:
        while True:
            seen.append((yield effect))

    result = run(AgentLoop(reason, limits=replace(AMPLE, effects=effects)))
    assert (result.stop, len(seen)) == (StopReason.EFFECTS, effects)


def test_TOKEN_BUDGET() -> None:
    weather = Weather(tokens=1000)
    result = run(AgentLoop(thinking(), limits=replace(AMPLE, tokens=3000)), weather)
    assert (result.stop, weather.asked, result.control.tokens) == (StopReason.TOKEN_BUDGET, 3, 3000)
    weather = Weather(tokens=1000)
    result = run(AgentLoop(thinking(), limits=replace(AMPLE, tokens=3500)), weather)
    assert (result.stop, weather.asked, result.control.tokens) == (StopReason.TOKEN_BUDGET, 4, 4000)


def test_COST_BUDGET() -> None:
    weather = Weather(cost=0.5)
    result = run(AgentLoop(thinking(), limits=replace(AMPLE, cost=1.0)), weather)
    assert (result.stop, weather.asked) == (StopReason.COST_BUDGET, 2)
    weather = Weather(cost=0.5)
    result = run(AgentLoop(thinking(), limits=replace(AMPLE, cost=1.25)), weather)
    assert (result.stop, weather.asked) == (StopReason.COST_BUDGET, 3)


def test_WALL_CLOCK() -> None:
    def reason(context: LoopContext) -> Program[Act]:
        yield Sleep(2)
        return Act((WEATHER,))

    weather = Weather()
    result = run(AgentLoop(reason, limits=replace(AMPLE, seconds=6)), weather)
    assert result.stop is StopReason.WALL_CLOCK
    assert weather.clock.slept == [2, 2, 2], "a sleep that just fits is slept, and then the time is up"
    weather = Weather()
    result = run(AgentLoop(reason, limits=replace(AMPLE, seconds=5)), weather)
    assert result.stop is StopReason.WALL_CLOCK
    assert weather.clock.slept == [2, 2], "a sleep that would cross the limit is not slept"


@pytest.mark.parametrize("reason", RULE_REASONS)
def test_what_a_stop_rule_may_name(reason: StopReason) -> None:
    def rule(control: Control, context: LoopContext) -> StopReason | None:
        return reason if control.rounds == 2 else None

    weather = Weather()
    result = run(AgentLoop(thinking(), limits=AMPLE, stops=(rule,)), weather)
    assert (result.stop, result.answer, weather.asked) == (reason, None, 2)


@pytest.mark.parametrize("task", [None, "", "  \n", 7, ["查天气"]])
def test_INVALID_TASK(task: Any) -> None:
    weather = Weather()
    result = drive(AgentLoop(thinking()).run(task), weather.world)
    assert (result.stop, weather.asked, result.turns) == (StopReason.INVALID_TASK, 0, ())


def test_INVALID_TASK_from_perception() -> None:
    weather = Weather()
    loop = AgentLoop(thinking(), perceive=lambda task: StopReason.INVALID_TASK)
    assert run(loop, weather).stop is StopReason.INVALID_TASK
    assert weather.asked == 0


def test_every_reason_is_reached_by_a_test_of_its_name() -> None:
    ruled = ("REPEATED_ACTION", "CONVERGED", "STAGNATED", "EXTERNALLY_DONE")
    named = [reason.name for reason in StopReason if f"test_{reason.name}" in globals()]
    assert sorted([*named, *ruled]) == sorted(reason.name for reason in StopReason)


# --- How near to the worst case ---------------------------------------------------------------


@pytest.mark.parametrize(("rounds", "each"), [(1, 0), (1, 5), (3, 2), (10, 20)])
def test_a_real_loop_reaches_the_worst_case(rounds: int, each: int) -> None:
    """The gap is none: a round costs three steps, each effect one, and the start two.

    What is left over stays unused: a loop takes ``2 + 3 * rounds`` steps and one for each effect, so it
    falls short of the worst case by the effects that it does not want.
    """

    def reason(context: LoopContext) -> Program[Act]:
        for _ in range(each):
            yield Sleep(0)
        return report(Observation("Write Thought, then Action.", False, Kind.MALFORMED))

    limits = replace(AMPLE, rounds=rounds, effects=max(rounds * each, 1))
    steps: list[Step] = []
    result = run(AgentLoop(reason, limits=limits, watch=steps.append))
    unused = limits.effects - rounds * each
    assert result.stop is StopReason.MAX_ITERATIONS
    assert len(steps) == worst_case_steps(limits) - unused == 2 + 3 * rounds + rounds * each


@pytest.mark.parametrize("limits", [QUESTION_ANSWERING, RESEARCH, CODING], ids=lambda preset: preset.rounds)
def test_the_presets_end_for_a_model_that_never_does(limits: Limits) -> None:
    weather = Weather(tokens=1, cost=0.0)
    steps: list[Step] = []
    result = run(AgentLoop(thinking(), limits=limits, watch=steps.append), weather)
    assert (result.stop, weather.asked) == (StopReason.MAX_ITERATIONS, limits.rounds)
    assert len(steps) <= worst_case_steps(limits)


# --- Hooks ------------------------------------------------------------------------------------


def test_a_hook_may_be_a_function_or_a_program() -> None:
    def asking(context: LoopContext) -> Program[Finish]:
        reply = (yield CallModel(ASK)).value
        return Finish(reply.text)

    assert run(AgentLoop(lambda context: Finish("想想"))).answer == run(AgentLoop(asking)).answer


def test_what_perception_found_is_in_working_memory() -> None:
    found: dict[str, Any] = {}

    def reason(context: LoopContext) -> Finish:
        found.update(context.working_memory)
        return Finish("好")

    run(AgentLoop(reason, perceive=lambda task: {"retrieved_memories": ["去过长城"]}))
    assert found == {"retrieved_memories": ["去过长城"]}


@pytest.mark.parametrize(
    ("hooks", "right"),
    [
        ({"reason": lambda context: "Action: x"}, "reason must return an Act with calls, or a Finish"),
        ({"reason": lambda context: Act(())}, "reason must return an Act with calls, or a Finish"),
        ({"act": lambda call: "晴"}, "act must return an Observation"),
        ({"perceive": lambda task: "晴"}, "perceive must return a mapping, a StopReason or None"),
        ({"accept": lambda context, answer: False}, "accept must return an objection in words, or None"),
        ({"stops": (lambda control, context: True,)}, "a stop rule returns a StopReason, a warning or None"),
    ],
)
def test_a_hook_that_returns_something_odd_is_told_what_is_right(hooks: dict[str, Any], right: str) -> None:
    def reason(context: LoopContext) -> Act | Finish:
        return Finish("好") if context.turns else Act((WEATHER,))

    with pytest.raises(LoopError) as caught:
        run(AgentLoop(**{"reason": reason, **hooks}))
    assert isinstance(caught.value.__cause__, TypeError)
    assert right in str(caught.value.__cause__)


@pytest.mark.parametrize("limit", [reason for reason in StopReason if reason not in RULE_REASONS])
def test_a_stop_rule_cannot_name_a_limit(limit: StopReason) -> None:
    with pytest.raises(LoopError) as caught:
        run(AgentLoop(thinking(), stops=(lambda control, context: limit,)))
    assert f"cannot end a run with {limit.name}: a stop rule may name HUMAN" in str(caught.value.__cause__)


def test_of_several_rules_the_first_reason_counts_and_every_warning_is_told() -> None:
    rules = (
        lambda control, context: "Change direction.",
        lambda control, context: StopReason.CONVERGED if control.rounds == 2 else None,
        lambda control, context: StopReason.STAGNATED if control.rounds == 2 else "Be brief.",
    )
    result = run(AgentLoop(thinking(), limits=AMPLE, stops=rules))
    assert result.stop is StopReason.CONVERGED
    first, second = result.turns
    assert first.warnings == ("Change direction.", "Be brief.")
    assert second.warnings == ("Change direction.",)


def test_a_watcher_is_told_each_step_and_the_turn_at_the_end_of_a_round() -> None:
    steps: list[Step] = []

    def reason(context: LoopContext) -> Act | Finish:
        return Finish("颐和园", "够了") if context.turns else Act((WEATHER,), "先查天气")

    result = run(AgentLoop(reason, watch=steps.append))
    assert tuple(step.turn for step in steps if step.turn is not None) == result.turns
    assert [step.before for step in steps] == [Control(), *(step.after for step in steps[:-1])]


def test_a_watcher_that_raises_ends_the_run_as_any_hook_does() -> None:
    def watch(step: Step) -> None:
        raise OSError("the disk is full")

    with pytest.raises(LoopError) as caught:
        run(AgentLoop(thinking(), watch=watch))
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.result.stop is StopReason.ERROR


@pytest.mark.parametrize("at", [StopReason.FINAL_ANSWER, StopReason.MAX_ITERATIONS])
def test_a_watcher_that_raises_at_the_end_leaves_an_honest_result(at: StopReason) -> None:
    def watch(step: Step) -> None:
        if step.after.stop is at:
            raise OSError("the disk is full")

    def reason(context: LoopContext) -> Act | Finish:
        return Finish("颐和园") if at is StopReason.FINAL_ANSWER else Act((WEATHER,))

    with pytest.raises(LoopError) as caught:
        run(AgentLoop(reason, watch=watch))
    result = caught.value.result
    assert (result.answer is not None) is (result.stop is StopReason.FINAL_ANSWER)


def test_a_do_that_fails_can_be_caught() -> None:
    def reason(context: LoopContext) -> Program[Finish]:
        try:
            yield Do("draw", lambda: 1 // 0)
        except EffectFailed as failure:
            return Finish(str(failure))
        return Finish("it did not fail")

    answer = run(AgentLoop(reason)).answer
    assert "Do draw failed: ZeroDivisionError" in answer


def test_an_answer_may_be_anything_but_nothing() -> None:
    answers: tuple[Any, ...] = (0, False, [], {"place": "颐和园"})
    for answer in answers:
        result = run(AgentLoop(lambda context, answer=answer: Finish(answer)))  # type: ignore[misc]
        assert (result.stop, result.answer) == (StopReason.FINAL_ANSWER, answer)
    for nothing in (None, "", " \t\n\u3000"):
        result = run(AgentLoop(lambda context, nothing=nothing: Finish(nothing)))  # type: ignore[misc]
        assert result.stop is StopReason.TOO_MANY_FAILURES
        assert "The final answer is empty" in result.turns[0].observations[0].text


def test_an_objection_is_an_observation_and_a_better_answer_ends_the_run() -> None:
    def reason(context: LoopContext) -> Finish:
        return Finish("故宫（已核实）" if context.turns else "故宫", "想好了")

    def accept(context: LoopContext, answer: str) -> str | None:
        return None if "核实" in answer else "Verify that it is open today."

    result = run(AgentLoop(reason, accept=accept))
    assert result.answer == "故宫（已核实）"
    assert [turn.thought for turn in result.turns] == ["想好了", "想好了"]
    assert result.turns[0].observations == (
        Observation("Verify that it is open today.", False, Kind.REFUSED),
    )


# --- What a result says -----------------------------------------------------------------------


def test_the_summary_names_the_limit_and_what_was_found() -> None:
    result = run(AgentLoop(thinking(WEATHER, BROKEN), limits=replace(AMPLE, rounds=1)))
    assert result.summary.splitlines() == [
        "MAX_ITERATIONS: no round is left (1 of 1 rounds used)",
        "Found so far:",
        "- get_weather(city='北京'): 北京: 晴",
        "The last failure: " + told(result),
    ]


def told(result: Result) -> str:
    """The last observation as a summary tells it."""
    turn = result.turns[-1]
    return f"{call_text(turn.calls[-1])}: {turn.observations[-1].text}"


def test_the_summary_of_nothing_says_so() -> None:
    assert "Nothing was found." in run(AgentLoop(thinking(BROKEN))).summary


def test_the_summary_of_a_loop_inside_does_not_claim_a_limit_of_its_own() -> None:
    """A loop inside that ended for the account's sake has a limit of its own that it never reached."""
    inner = AgentLoop(thinking(), limits=replace(AMPLE, model_calls=50))
    summaries: list[str] = []

    def reason(context: LoopContext) -> Program[Finish]:
        result = yield from inner.run("查天气")
        summaries.append(result.summary)
        return Finish("好")

    run(AgentLoop(reason, limits=replace(AMPLE, model_calls=2)))
    assert "of 50 model_calls used" not in summaries[0]


def test_a_call_that_an_enclosing_account_refused_is_not_uncertain() -> None:
    weather = Weather()
    inner = AgentLoop(thinking(WEATHER, WEATHER, WEATHER), limits=AMPLE)
    results: list[Result] = []

    def reason(context: LoopContext) -> Program[Finish]:
        results.append((yield from inner.run("查天气")))
        return Finish("好")

    run(AgentLoop(reason, limits=replace(AMPLE, tool_calls=1)), weather)
    kinds = [seen.kind for seen in results[0].turns[0].observations]
    assert weather.ran == ["北京"]
    assert kinds == [Kind.RESULT, Kind.NOT_RUN, Kind.NOT_RUN]


def test_a_call_that_the_run_ended_in_the_middle_of_is_uncertain_and_the_next_is_not() -> None:
    def act(call: ToolCall) -> Program[Observation]:
        yield CallTool(call)
        raise ZeroDivisionError("after the tool had run")

    with pytest.raises(LoopError) as caught:
        run(AgentLoop(thinking(WEATHER, WEATHER), act=act))
    kinds = [seen.kind for seen in caught.value.result.turns[0].observations]
    assert kinds == [Kind.UNCERTAIN, Kind.NOT_RUN]


@pytest.mark.parametrize(
    "effect",
    [AskHuman("May I?"), Sleep(1), CallModel((Message("user", "题"),))],
    ids=lambda each: str(each[0]),
)
@pytest.mark.parametrize("interrupted", [True, False])
def test_a_call_that_was_only_spoken_of_is_not_uncertain(effect: Any, interrupted: bool) -> None:
    interrupt = Interrupt()

    def act(call: ToolCall) -> Program[Observation]:
        if interrupted:
            interrupt.set()
        yield effect
        raise ZeroDivisionError("before the tool was run")

    try:
        result = run(AgentLoop(thinking(WEATHER), act=act), interrupt=interrupt)
    except LoopError as error:
        result = error.result
    assert [seen.kind for seen in result.turns[0].observations] == [Kind.NOT_RUN]


def test_a_run_can_be_closed_half_way() -> None:
    program = AgentLoop(thinking()).run("查天气")
    next(program)
    program.close()
    with pytest.raises(StopIteration):
        next(program)


def test_a_limit_that_a_hook_has_of_its_own_is_a_bug_of_the_hook() -> None:
    def reason(context: LoopContext) -> Any:
        raise LimitReached(Control(stop=StopReason.EFFECTS))

    with pytest.raises(LoopError) as caught:
        run(AgentLoop(reason))
    assert isinstance(caught.value.__cause__, LimitReached)


def test_a_call_tool_is_all_that_the_plainest_act_does() -> None:
    program = AgentLoop(lambda context: Act((WEATHER,))).run("查天气")
    next(program)
    effect = program.send(Outcome(1, 0.0))
    assert isinstance(effect, CallTool)
    assert effect.call == WEATHER._replace(id="call_1_1_1")
