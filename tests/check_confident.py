"""What ``confident(reason, threshold=..., samples=..., confidence=...)`` promises: functions of such a guard.

``PROMISES`` holds them one by one. A ``Draw`` is one sample: what is decided, and how sure it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import (
    Act,
    AgentLoop,
    CallModel,
    Finish,
    Kind,
    Limits,
    LoopContext,
    Message,
    Observation,
    Program,
    Reply,
    Result,
    StopReason,
    Together,
    ToolCall,
    World,
    drive,
    report,
    worst_case_steps,
)
from tests.check_toolbox import expect

Make = Callable[..., Any]
DOWN = Observation("The model failed: 503", False, Kind.UNAVAILABLE)


class Draw(NamedTuple):
    """One sample: an answer, a city to look at, or a failure (neither); and how sure it is."""

    answer: str = ""
    city: str = ""
    confidence: Any = None

    @property
    def decision(self) -> Act | Finish:
        if self.answer:
            return Finish(self.answer, f"<{self.answer}>")
        if self.city:
            return Act((ToolCall("look", {"city": self.city}),), f"<{self.city}>")
        return report(DOWN, "<down>")


class Play:
    """One run: the samples in turn, the last again and again; what the person was asked, and says."""

    def __init__(
        self,
        make: Make,
        *draws: Draw,
        says: Any = None,
        limits: Limits = Limits(rounds=1),  # noqa: B008
        **options: Any,
    ) -> None:
        self.draws, self.says = draws, says
        self.sampled: list[Draw] = []
        self.asked: list[str] = []
        options = {"confidence": self.confidence} | options
        loop = AgentLoop(make(self.reason, **options), self.act, limits=limits)
        human = None if says is None else self.human
        self.result: Result = drive(
            loop.run("北京多少度？"), World(lambda request: Reply("x"), human=human, inline=True)
        )

    def reason(self, context: LoopContext) -> Any:
        yield CallModel((Message("user", context.task),), tokens=1)
        draw = self.draws[min(len(self.sampled), len(self.draws) - 1)]
        self.sampled.append(draw)
        return draw.decision

    def confidence(self, decision: Act | Finish) -> Any:
        return next(draw.confidence for draw in self.draws if draw.decision == decision)

    def act(self, call: ToolCall) -> Observation:
        return Observation(f"{call.arguments['city']}：晴")

    def human(self, question: str) -> Any:
        self.asked.append(question)
        return self.says

    @property
    def seen(self) -> Observation:
        """What the first round brought, where it brought no answer."""
        return self.result.turns[0].observations[0]


# --- The promises -----------------------------------------------------------------------------


def a_sure_decision_passes_at_once(make: Make) -> None:
    """What is sure enough is neither sampled again nor asked about."""
    for draw in (Draw("26", confidence=0.9), Draw("26", confidence=0.7), Draw(city="北京", confidence=1)):
        play = Play(make, draw, says="no", threshold=0.7)
        expect(len(play.sampled) == 1, f"sure with {draw.confidence}, and sampled {len(play.sampled)} times")
        expect(not play.asked, f"sure with {draw.confidence}, and a person was asked {play.asked}")
        done = play.result.answer == "26" if draw.answer else play.seen.ok
        expect(done, f"sure with {draw.confidence}, and it was not done: {play.result}")


def nonsense_is_not_sure(make: Make) -> None:
    """A confidence that is unknown or no number from 0 to 1 is low."""
    for nonsense in (None, float("nan"), float("inf"), -1, 1.01, 95, "0.9", "high", True, [0.9], 0.69):
        play = Play(make, Draw("22", confidence=nonsense), Draw("28"), threshold=0.7)
        expect(play.result.answer is None, f"a confidence of {nonsense!r} was taken for sure")


def samples_that_agree_are_sure(make: Make) -> None:
    """A decision that another sample confirms is taken, and nobody is asked."""
    for first, second in (
        (Draw("26 度"), Draw(" 26  度 ")),
        (Draw(city="北京"), Draw(city="北京")),
    ):
        play = Play(make, first, second, says="no")
        done = play.result.answer == "26 度" if first.answer else play.seen.ok
        expect(done, f"two samples agree on {first}, and it was not done: {play.result}")
        expect(not play.asked, f"two samples agree on {first}, and a person was asked {play.asked}")
    play = Play(make, Draw("22"), Draw("26"), Draw("26"), samples=3, threshold=0.6)
    expect(play.result.answer == "26", f"two of three samples say 26, and it ended with {play.result.answer}")


def samples_that_differ_are_not(make: Make) -> None:
    """Where samples differ and nobody says yes, the decision is not taken, and the model is told."""
    for others in ((Draw("28"),), (Draw(city="北京"),), (Draw(),)):
        play = Play(make, Draw("22"), *others)
        expect(play.result.answer is None, f"samples differ ({others}), and 22 is the answer")
        expect(play.seen.kind is Kind.NO_HUMAN, f"nobody was there, and the model is told {play.seen}")
    play = Play(make, Draw("22"), Draw("28"), Draw("26"), samples=3, threshold=0.4)
    expect(
        play.result.answer is None, f"one of three is less than 0.4, and {play.result.answer} is the answer"
    )


def a_persons_clear_yes_decides(make: Make) -> None:
    """A person who says yes is believed; any other words go to the model, and nothing is done."""
    play = Play(make, Draw("22"), Draw("28"), says="yes")
    expect(play.result.answer == "22", f"a person said yes to 22, and it ended with {play.result.answer}")
    for words in ("no", "", "yes, but look first", "22?", "maybe", 0, ["yes"]):
        play = Play(make, Draw("22"), Draw("28"), says=words)
        expect(play.result.answer is None, f"a person said {words!r}, and 22 is the answer")
        told = play.seen
        expect(
            told.kind is Kind.REFUSED and str(words) in told.text, f"a person said {words!r}; told: {told}"
        )


def the_person_sees_all_of_it(make: Make) -> None:
    """What a person says yes to is shown whole, with the task, and with what the other samples say."""
    long = "北" * 3000 + "京"
    play = Play(make, Draw(long), Draw("28"), says="yes")
    expect(len(play.asked) == 1, f"a person was asked {len(play.asked)} times")
    for due in (long, "28", "北京多少度？"):
        expect(due in play.asked[0], f"the question does not show {due[:20]}: {play.asked[0][:200]}")


def a_failure_is_no_decision(make: Make) -> None:
    """A reply that reports a failure passes as it is; among the samples it confirms nothing."""
    play = Play(make, Draw(), says="yes")
    expect(play.seen == DOWN, f"the model failed with {DOWN}, and the loop sees {play.seen}")
    expect(len(play.sampled) == 1, f"the model failed, and it was asked {len(play.sampled)} times")
    play = Play(make, Draw("22"), Draw(), Draw(), samples=3, threshold=0.5)
    expect(play.result.answer is None, "two samples failed, and agree that 22 is the answer")


def a_broken_call_hides_no_other(make: Make) -> None:
    """Beside a call that could not be read stands one that can be: that is a decision, and has to be sure."""
    broken, right = report(DOWN).calls[0], ToolCall("look", {"city": "北京"})
    for calls in ((broken, right), (right, broken)):
        made, asked = decided(make, Act(calls), "no")
        expect(made == [], f"nobody was sure of {calls}, and {made} was done")
        expect(len(asked) == 1 and "look(city='北京')" in asked[0], f"a person said no after {asked}")


def a_yes_is_for_one_decision(make: Make) -> None:
    """Two loops of a program that come to the same decision are two decisions, and asked about each."""
    for side_by_side in (True, False):
        made, asked = decided(make, Act((ToolCall("look", {"city": "北京"}),)), "yes", 2, side_by_side)
        story = f"two loops, side by side: {side_by_side}; done was {made}"
        expect(len(asked) == 2, f"{story}, and a person was asked {len(asked)} times")


def decided(
    make: Make, decision: Act, says: str, loops: int = 1, side_by_side: bool = False
) -> tuple[list[ToolCall], list[str]]:
    """Loops of one program that decide this unsurely, in one round; what was done, and asked."""
    made: list[ToolCall] = []
    asked: list[str] = []

    def act(call: ToolCall) -> Observation:
        made.append(call)
        return Observation("晴")

    def human(question: str) -> str:
        asked.append(question)
        return says

    reason = make(lambda context: decision, samples=1, confidence=lambda decision: None)
    loop = AgentLoop(reason, act, limits=Limits(rounds=1))

    def program() -> Program[None]:
        if side_by_side:
            yield Together(tuple(loop.run("北京？") for _ in range(loops)))
            return
        for _ in range(loops):
            yield from loop.run("北京？")

    drive(program(), World(human=human, inline=True))
    return made, asked


def it_asks_so_often_and_no_more(make: Make) -> None:
    """A round asks for ``samples`` in all, and then for one person's word."""
    for samples in (1, 2, 5):
        draws = [Draw(f"{number}") for number in range(samples + 3)]
        play = Play(make, *draws, says="no", samples=samples)
        expect(
            len(play.sampled) == samples, f"{samples} samples are allowed, and {len(play.sampled)} were drawn"
        )
        expect(len(play.asked) == 1, f"after {samples} samples a person was asked {len(play.asked)} times")


def what_is_in_hand_is_kept(make: Make) -> None:
    """Where the allowance ends before a decision is sure, it is not taken, and its thought is kept."""
    for limits in (Limits(model_calls=1), Limits(effects=2)):
        play = Play(make, Draw("22"), Draw("28"), says="yes", limits=limits)
        result = play.result
        expect(
            result.answer is None,
            f"the allowance ended before 22 was sure, and {result.answer} is the answer",
        )
        thoughts = [turn.thought for turn in result.turns]
        expect(any("<22>" in thought for thought in thoughts), f"the thought of 22 is lost: {thoughts}")


def numbers_that_are_none_are_refused(make: Make) -> None:
    """``threshold`` is above 0 and up to 1, ``samples`` a whole number of at least 1."""
    wrong: list[dict[str, Any]] = [{"threshold": each} for each in (0, -1, 1.1, 70, None, "0.7", True)]
    wrong += [{"threshold": float("nan")}]
    wrong += [{"samples": each} for each in (0, -1, 1.5, None, True)]
    for options in wrong:
        try:
            make(lambda context: Finish("x"), **options)
        except ValueError:
            continue
        expect(False, f"{options} was taken")


def whatever_is_drawn_an_answer_was_confirmed(make: Make) -> None:
    """Whatever is drawn, an answer was sure, confirmed, or a person's, and the run ends in bounds."""
    draws = st.builds(
        Draw,
        answer=st.sampled_from(["", "22", "26"]),
        city=st.sampled_from(["", "北京"]),
        confidence=st.sampled_from([None, 0.2, 0.9, "high", float("nan")]),
    )

    @settings(deadline=None, database=None, max_examples=80)
    @given(
        st.lists(draws, min_size=1, max_size=8, unique_by=lambda draw: draw.decision.thought),
        st.integers(1, 3),
        st.sampled_from([None, "yes", "no"]),
        st.integers(1, 4),
        st.integers(1, 12),
    )
    def check(drawn: list[Draw], samples: int, says: Any, rounds: int, effects: int) -> None:
        limits = Limits(rounds=rounds, effects=effects)
        play = Play(make, *drawn, says=says, samples=samples, limits=limits)
        control = play.result.control
        story = f"{drawn}, {samples} samples, a person who says {says!r}"
        most = control.rounds * samples
        expect(control.model_calls <= most, f"{control.model_calls} model calls, {most} at most: {story}")
        steps = 3 * control.rounds + 2 + control.effects
        expect(steps <= worst_case_steps(limits), f"{steps} steps: {story}")
        expect((play.result.answer is not None) == (play.result.stop is StopReason.FINAL_ANSWER), story)
        if play.result.answer is not None:
            said = [draw for draw in play.sampled if draw.answer == play.result.answer]
            sure = any(draw.confidence == 0.9 for draw in said)
            expect(
                sure or len(said) > 1 or bool(play.asked), f"nothing confirms {play.result.answer}: {story}"
            )

    check()


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        a_sure_decision_passes_at_once,
        nonsense_is_not_sure,
        samples_that_agree_are_sure,
        samples_that_differ_are_not,
        a_persons_clear_yes_decides,
        the_person_sees_all_of_it,
        a_failure_is_no_decision,
        a_broken_call_hides_no_other,
        a_yes_is_for_one_decision,
        it_asks_so_often_and_no_more,
        what_is_in_hand_is_kept,
        numbers_that_are_none_are_refused,
        whatever_is_drawn_an_answer_was_confirmed,
    )
}
