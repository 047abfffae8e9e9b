"""What Reflexion promises: plain functions of one class, used on ours, on wrong ones and on a reader's.

``make(actor, evaluate, reflect, limits=..., trials=..., threshold=..., capacity=...)`` makes what
``Reflexion`` makes: its ``run(task)`` is a program whose result has ``answer``, ``stop``, ``best`` and
``trials``. ``check_reflexion(make)`` raises ``BrokenPromise`` with the story of a promise that is broken.

How it works: a ``Story`` says what the actor does in each trial, how that is judged and what is learned
from it. ``play`` lets it happen in a pretend world and notes what each trial was shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

from agentloop import (
    RESEARCH,
    AgentLoop,
    CallModel,
    Do,
    Finish,
    Journal,
    Limits,
    LoopContext,
    LoopError,
    Message,
    Observation,
    Result,
    StopReason,
    World,
    drive,
    report,
)
from paradigms.evaluators import Judgement
from tests.check_machine import BrokenPromise

Make = Callable[..., Any]

TASK = "推荐一个北京的景点"
ROUNDS = 2  # of the actor, in each trial


class Story(NamedTuple):
    """What happens in each trial; the last entry of each is repeated.

    The actor gives an ``answer``, comes to ``nothing``, or its hook has a bug: ``crash``. A score of ``None``
    is unknown. A lesson is words, ``None``, or ``failing``: then the reflector's effect fails.
    """

    tries: tuple[str, ...] = ("answer",)
    scores: tuple[float | None, ...] = (0.1,)
    lessons: tuple[str | None, ...] = ("<lesson 1>", "<lesson 2>", "<lesson 3>", "<lesson 4>", "<lesson 5>")
    trials: int = 3
    threshold: float = 0.8
    capacity: int = 3
    limits: Limits = RESEARCH

    def of(self, entries: tuple[Any, ...], trial: int) -> Any:
        return entries[min(trial, len(entries)) - 1]

    def __str__(self) -> str:
        """Only what differs from the plainest story."""
        mine = self._asdict() | _bounds(self.limits)
        usual = Story()._asdict() | _bounds(RESEARCH)
        told = [f"{name}={mine[name]!r}" for name in mine if name != "limits" and mine[name] != usual[name]]
        return ", ".join(told) or "the plainest"


def _bounds(limits: Limits) -> dict[str, Any]:
    return {f"limits.{name}": getattr(limits, name) for name in Limits.__dataclass_fields__}


class Play:
    """One run of a story: how it ended, what each trial was shown, and each effect that was asked for."""

    def __init__(self, make: Make, story: Story, task: str = TASK, journal: Journal | None = None) -> None:
        self.story = story
        self.shown: list[list[str]] = []  # for each trial, what the actor was shown
        self.reflections: list[int] = []  # after which trials it was reflected
        self.answers = 0  # how many the actor came to give
        self.journal = Journal() if journal is None else journal
        actor = AgentLoop(self.reason, limits=Limits(rounds=ROUNDS), perceive=lambda task: {"known": "<26>"})
        self.program = make(
            actor,
            self.evaluate,
            self.reflect,
            limits=story.limits,
            trials=story.trials,
            threshold=story.threshold,
            capacity=story.capacity,
        )
        self.run(task)

    def run(self, task: str) -> None:
        self.error: Exception | None = None
        try:
            world = World(lambda request: "yes", clock=lambda: 0.0, inline=True)
            self.result = drive(self.program.run(task), world, self.journal)
        except Exception as error:
            self.error = error

    def reason(self, context: LoopContext) -> Any:
        if not context.turns:
            self.shown.append([])
        shown = "\n".join(f"{name}: {value}" for name, value in context.working_memory.items())
        self.shown[-1].append(shown)
        yield CallModel((Message("user", context.task), Message("user", shown)), tokens=1)
        number = len(self.shown)
        did = self.story.of(self.story.tries, number)
        if did == "crash":
            raise ZeroDivisionError(f"a bug in trial {number}")
        if did == "nothing":
            return report(Observation("no action", False))
        self.answers += 1
        return Finish(f"answer {number}")

    def evaluate(self, task: Any, result: Result) -> Any:
        score = self.story.of(self.story.scores, len(self.shown))
        yield Do("judge", lambda: None)
        return Judgement(score, "<reasons>")

    def reflect(self, task: Any, trial: Any, lessons: Any) -> Any:
        number = len(self.shown)
        self.reflections.append(number)
        lesson = self.story.of(self.story.lessons, number)
        yield Do("reflect", (lambda: 1 // 0) if lesson == "failing" else lambda: None)
        return lesson

    @property
    def effects(self) -> int:
        return len(self.journal.outcomes)

    def __str__(self) -> str:
        return f"in a story ({self.story}) "


class Due(NamedTuple):
    """How a story has to end: after how many trials, why, and with which trial's answer (0: with none)."""

    trials: int
    stop: StopReason
    best: int


def due(story: Story) -> Due:
    best, worth = 0, -2.0
    for number in range(1, story.trials + 1):
        did = story.of(story.tries, number)
        if did == "crash":
            return Due(number, StopReason.ERROR, best)
        score = story.of(story.scores, number)
        if did == "answer" and (value := -1.0 if score is None else score) > worth:
            best, worth = number, value
        if did == "answer" and score is not None and score >= story.threshold:
            return Due(number, StopReason.FINAL_ANSWER, number)
    return Due(story.trials, StopReason.MAX_ITERATIONS, best)


def _hold(kept: bool, play: Play, told: str) -> None:
    if not kept:
        raise BrokenPromise(f"{play}{told}")


def played(make: Make, story: Story, task: str = TASK) -> Play:
    """One run that must come to a result."""
    play = Play(make, story, task)
    _hold(play.error is None, play, f"it raised {play.error!r}, and was to return what it has")
    return play


def _small(effects: int) -> Limits:
    return replace(RESEARCH, effects=effects, model_calls=1 + effects // 3)


#: What can become of a trial: what the actor does, and how it is judged.
FATES = (("answer", 0.5), ("answer", 0.0), ("answer", None), ("answer", 0.8), ("nothing", 1.0))


def stories(fates: Sequence[tuple[str, float | None]], **more: Any) -> Iterator[Story]:
    """Every story of up to three trials, the shortest first: what it breaks is told at its shortest."""
    for trials in (1, 2, 3):
        for fate in product(fates, repeat=trials):
            tries, scores = zip(*fate, strict=True)
            yield Story(tries, scores, trials=trials, **more)


STORIES = tuple(stories(FATES))
CRASHING = tuple(stories((*FATES[:2], FATES[4], ("crash", None))))
NARROW = tuple(story for effects in (2, 5, 9) for story in stories(FATES, limits=_small(effects)))


def _in_every(stories: Sequence[Story]) -> Callable[[Callable[[Make, Story], None]], Callable[[Make], None]]:
    """Turn what holds in one story into a promise about all of them."""

    def promise_of(holds: Callable[[Make, Story], None]) -> Callable[[Make], None]:
        def promise(make: Make) -> None:
            for story in stories:
                holds(make, story)

        promise.__name__, promise.__doc__ = holds.__name__, holds.__doc__
        return promise

    return promise_of


# --- The promises -----------------------------------------------------------------------------


def lessons_reach_the_next_prompts(make: Make) -> None:
    """What a trial taught is shown in all prompts of those after it, and never before (EA33)."""
    play = played(make, Story(tries=("nothing",)))
    for number, prompts in enumerate(play.shown, 1):
        for shown in prompts:
            for lesson in (1, 2, 3):
                there, right = f"<lesson {lesson}>" in shown, lesson < number
                _hold(there == right, play, f"trial {number} was shown {shown!r}")
            _hold("<26>" in shown, play, f"what the actor itself perceives is lost in trial {number}")


@_in_every(STORIES)
def it_stops_when_an_answer_passes_or_no_trial_is_left(make: Make, story: Story) -> None:
    """The first answer that reaches the threshold ends it; so does the last trial, and each says so."""
    play = played(make, story)
    right = due(story)
    made = len(play.result.trials), len(play.shown)
    _hold(made == (right.trials,) * 2, play, f"it made {made} trials, not {right.trials}")
    _hold(play.result.stop is right.stop, play, f"it ended with {play.result.stop}, not {right.stop}")


@_in_every(STORIES)
def the_best_answer_is_kept(make: Make, story: Story) -> None:
    """The best score wins, also a score of 0, and the earlier of equals (EA34, R04)."""
    play = played(make, story)
    right = due(story)
    answer = f"answer {right.best}" if right.best else None
    _hold(play.result.answer == answer, play, f"it returned {play.result.answer!r}, not {answer!r}")
    if right.best:
        number = play.result.best.number
        _hold(number == right.best, play, f"it says that trial {number} is the best, not {right.best}")


def an_unknown_score_is_no_pass(make: Make) -> None:
    """Where the evaluator does not know, or returns what is no score, nothing has passed (EA35)."""
    play = played(make, Story(scores=(None,)))
    _hold(play.result.stop is StopReason.MAX_ITERATIONS, play, f"it ended with {play.result.stop}")
    for score in (True, float("nan"), 9.0, "false", -0.1):
        play = Play(make, Story(scores=(score,)))  # type: ignore[arg-type]
        passed = play.error is None and play.result.stop is StopReason.FINAL_ANSWER
        _hold(not passed, play, f"the score {score!r} was taken for a pass")


def no_answer_is_no_pass(make: Make) -> None:
    """A trial without an answer cannot pass, whatever its score, and failure is no text (EA39)."""
    play = played(make, Story(tries=("nothing",), scores=(1.0,)))
    _hold(play.result.answer is None, play, f"nobody answered, and it returned {play.result.answer!r}")
    _hold(play.result.stop is not StopReason.FINAL_ANSWER, play, "it ended with FINAL_ANSWER")


def an_account_run_dry_loses_nothing(make: Make) -> None:
    """Wherever the allowance ends, what the actor has answered is there, with the reason (EA40)."""
    for story in (Story(scores=(0.3, 0.1)), Story(tries=("answer", "nothing"))):
        enough = played(make, story).effects - 1  # its own start is for whoever contains it to pay
        for effects in range(1, enough):
            play = played(make, story._replace(limits=replace(RESEARCH, effects=effects)))
            kept = sum(trial.result.answer is not None for trial in play.result.trials)
            _hold(kept == play.answers, play, f"{play.answers} answers were given, {kept} were kept")
            answer = "answer 1" if play.answers else None
            _hold(play.result.answer == answer, play, f"it returned {play.result.answer!r}, not {answer!r}")
            _hold(play.result.stop is StopReason.EFFECTS, play, f"it ended with {play.result.stop}")


@_in_every(CRASHING)
def a_crash_loses_nothing(make: Make, story: Story) -> None:
    """A bug in a later trial returns the best answer before it, with ERROR; with none, it is raised (R04)."""
    right = due(story)
    if right.stop is not StopReason.ERROR or right.best:
        play = played(make, story)
        _hold(play.result.stop is right.stop, play, f"it ended with {play.result.stop}")
        answer = f"answer {right.best}" if right.best else None
        _hold(play.result.answer == answer, play, f"it returned {play.result.answer!r}, not {answer!r}")
    else:
        play = Play(make, story)
        _hold(isinstance(play.error, LoopError), play, "there is no answer, and the bug is hidden")


@_in_every(STORIES)
def it_reflects_only_where_a_trial_follows(make: Make, story: Story) -> None:
    """Each failed trial is reflected upon once, but not the last one, and not one that passed (A-88)."""
    play = played(make, story)
    right = list(range(1, len(play.shown)))
    _hold(play.reflections == right, play, f"it reflected after the trials {play.reflections}, not {right}")


def a_failing_reflector_loses_nothing(make: Make) -> None:
    """A reflection that fails is no reflection: the trials go on, and the best is kept (EA40)."""
    for lesson in ("failing", None, "  "):
        play = played(make, Story(lessons=(lesson,), scores=(0.5, 0.4)))
        _hold(len(play.shown) == 3, play, f"there were {len(play.shown)} trials, not 3")
        _hold(play.result.answer == "answer 1", play, f"it returned {play.result.answer!r}")
        _hold(play.shown[0] == play.shown[1], play, f"no lesson was drawn, and trial 2 saw {play.shown[1]}")


def memory_is_bounded_and_without_repeats(make: Make) -> None:
    """The newest lessons are kept, up to the capacity, and what is learned again stands once (EA38)."""
    play = played(make, Story(trials=5, capacity=2))
    last = play.shown[-1][0]
    kept = [number for number in (1, 2, 3, 4) if f"<lesson {number}>" in last]
    _hold(kept == [3, 4], play, f"with room for 2, trial 5 was shown the lessons of {kept}")
    play = played(make, Story(trials=5, lessons=("<Look again.>", " <look  AGAIN.>\n")))
    said = play.shown[-1][0].casefold().split().count("again.>")
    _hold(said == 1, play, f"one lesson was learned over and over, and is said {said} times")


def memory_is_of_one_task(make: Make) -> None:
    """A second run of the same object is told nothing of the first (EA38, EA41)."""
    play = played(make, Story())
    first = play.shown
    play.shown, play.journal = [], Journal()
    play.run("推荐一个上海的景点")
    _hold(play.error is None, play, f"the second run raised {play.error!r}")
    _hold(play.shown == first, play, f"its first run was shown {first}, and its second {play.shown}")


@_in_every(STORIES)
def the_same_story_is_told_the_same(make: Make, story: Story) -> None:
    """The same script gives the same trace, and a journal brings a run back without the world."""
    play, again = played(make, story), played(make, story)
    _hold(play.journal.outcomes == again.journal.outcomes, play, "a second telling asked for other things")
    half = play.journal.rewound(play.effects // 2)
    resumed = Play(make, story, journal=half)
    _hold(resumed.error is None, play, f"half of its journal cannot be resumed: {resumed.error!r}")
    same = (resumed.result.answer, resumed.result.stop) == (play.result.answer, play.result.stop)
    _hold(same, play, f"resumed half-way it came to {resumed.result!r}")


@_in_every(NARROW)
def effects_stay_within_the_bound(make: Make, story: Story) -> None:
    """All that is asked for is paid from one allowance, and bounded by the caps besides (A-86)."""
    play = played(make, story)
    a_trial = 1 + ROUNDS + 2 + 3  # start, rounds, judge and reflect; and asking whether the account is open
    bound = 1 + min(story.limits.effects, story.trials * a_trial)  # its own start comes before
    _hold(play.effects <= bound, play, f"it asked for {play.effects} effects; the bound is {bound}")
    models = sum(asked.startswith("CallModel") for _, asked, _ in play.journal.outcomes)
    _hold(models <= story.limits.model_calls, play, f"it made {models} model calls")


def _promises() -> Iterator[Callable[[Make], None]]:
    yield lessons_reach_the_next_prompts
    yield it_stops_when_an_answer_passes_or_no_trial_is_left
    yield the_best_answer_is_kept
    yield an_unknown_score_is_no_pass
    yield no_answer_is_no_pass
    yield an_account_run_dry_loses_nothing
    yield a_crash_loses_nothing
    yield it_reflects_only_where_a_trial_follows
    yield a_failing_reflector_loses_nothing
    yield memory_is_bounded_and_without_repeats
    yield memory_is_of_one_task
    yield the_same_story_is_told_the_same
    yield effects_stay_within_the_bound


PROMISES: dict[str, Callable[[Make], None]] = {promise.__name__: promise for promise in _promises()}


def check_reflexion(make: Make) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(make)
