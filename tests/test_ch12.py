"""Chapter 12: Reflexion. Its promises, wrong versions, errata EA33 to EA41, case R04, and hostile worlds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import (
    RESEARCH,
    AgentLoop,
    CallModel,
    Do,
    Finish,
    Interrupt,
    Journal,
    Limits,
    LoopContext,
    LoopError,
    Message,
    Program,
    Reply,
    Result,
    StopReason,
    Toolbox,
    World,
    bounded,
    drive,
)
from chapters.ch07_drivers import drive_async, drive_on_bus
from chapters.ch12_reflexion import CASES, CONDITIONS, TASK, TOO_COLD, TOO_HOT, programmer, run_tests
from fake_llm import (
    FakeClock,
    FakeModel,
    ScriptedModel,
    broken_tool,
    get_attraction,
    random_model,
    typical_replies,
)
from paradigms.evaluators import Judgement, judged_by_model, judged_by_rules, judged_by_tests, read_score
from paradigms.react import react
from paradigms.reflexion import (
    LESSONS,
    Lesson,
    Reflexion,
    Trial,
    best_of,
    reflect_in_words,
    remember,
    trajectory,
)
from tests.check_reflexion import PROMISES

TOOLS = Toolbox([get_attraction])
ACTOR = AgentLoop(react(TOOLS))
TESTED = judged_by_tests(run_tests)


def world(model: Callable[[CallModel], Any], tools: Toolbox = TOOLS) -> World:
    return World(model, tools, clock=FakeClock().now, inline=True)


def program_with(condition: str) -> str:
    return f'def place(weather, temperature): return "颐和园" if {condition} else "国家博物馆"'


def finishes(answer: str) -> str:
    return f"Thought: 可以作答。\nAction: Finish[{answer}]"


def scored(*scores: float | None) -> Callable[[Any, Result], Judgement]:
    """An evaluator that gives these scores one after the other; a reply is the number of its trial."""
    return lambda task, result: Judgement(scores[int(result.answer) - 1], "reasons")


def numbered(count: int = 9) -> ScriptedModel:
    """A model whose answer is the number of the trial."""
    return ScriptedModel([finishes(str(number)) for number in range(1, count + 1)])


# --- Promises, and the wrong versions that they catch -----------------------------------------


@pytest.mark.parametrize("name", PROMISES)
def test_ours_keeps_its_promises(name: str) -> None:
    PROMISES[name](Reflexion)


# --- The demo ---------------------------------------------------------------------------------


def test_EA33_taking_the_reflections_out_changes_how_it_ends() -> None:
    without = drive(Reflexion(ACTOR, TESTED, None).run(TASK), world(FakeModel(programmer)))
    learning = drive(Reflexion(ACTOR, TESTED, reflect_in_words).run(TASK), world(FakeModel(programmer)))
    assert [trial.score for trial in without.trials] == [0.5, 0.5, 0.5]
    assert (without.stop, without.best) == (StopReason.MAX_ITERATIONS, without.trials[0])
    assert [trial.score for trial in learning.trials] == [0.5, 0.75, 1.0]
    assert (learning.stop, learning.best) == (StopReason.FINAL_ANSWER, learning.trials[2])
    assert run_tests(learning.answer).score == 1.0


def test_EA33_A89_the_lessons_stand_in_every_later_prompt() -> None:
    model = FakeModel(programmer)
    drive(Reflexion(ACTOR, TESTED, reflect_in_words).run(TASK), world(model))
    told = [(TOO_COLD in prompt, TOO_HOT in prompt) for prompt in model.prompts if LESSONS in prompt]
    assert told == [(True, False)] * 2 + [(True, True)] * 2, "two rounds of each later trial"
    assert not any(LESSONS in prompt for prompt in model.prompts[:3]), "the first trial, and its reflection"


def test_the_exercises_say_what_is_so() -> None:
    raw = Reflexion(ACTOR, TESTED, lambda task, trial, lessons: trial.judgement.reasons)
    assert drive(raw.run(TASK), world(FakeModel(programmer))).stop is StopReason.FINAL_ANSWER
    forgetful = Reflexion(ACTOR, TESTED, reflect_in_words, capacity=1)
    ended = drive(forgetful.run(TASK), world(FakeModel(programmer)))
    assert (ended.stop, [trial.score for trial in ended.trials]) == (
        StopReason.MAX_ITERATIONS,
        [0.5, 0.75, 0.75],
    )


def test_the_tests_run_what_the_model_wrote() -> None:
    right = program_with(CONDITIONS[True, True])
    assert run_tests(right) == Judgement(1.0, "all tests pass")
    assert run_tests(right.replace("国家博物馆", "长城")).score == 1 / len(CASES)
    for wrong in ("", "pass", "import os", "def place(w, t): return place(w, t)", "def place(): return 1"):
        judged = run_tests(wrong)
        assert judged.score == 0.0 and "refused" in judged.reasons


# --- The listing of article A, erratum by erratum ---------------------------------------------


def test_EA34_an_answer_is_kept_though_every_trial_scores_zero() -> None:
    ended = drive(Reflexion(ACTOR, scored(0.0, 0.0, 0.0), None).run(TASK), world(numbered()))
    assert (ended.answer, ended.best.score) == ("1", 0.0)


@pytest.mark.parametrize(
    ("answer", "rounds", "failed", "score"),
    [("a wrong answer", 1, 0, 0.95), ("a right answer", 5, 0, 0.75), ("a right answer", 2, 1, 0.6)],
)
def test_EA35_A90_the_formula_punishes_length_and_recovered_errors_and_not_wrongness(
    answer: str, rounds: int, failed: int, score: float
) -> None:
    tries = ['Action: get_attraction(city="Peking", weather="Sunny")'] * failed
    tries += ['Action: get_attraction(city="北京", weather="Sunny")'] * (rounds - failed - 1)
    result = drive(ACTOR.run(TASK), world(ScriptedModel([*tries, finishes(answer)])))
    judged = judged_by_rules(TASK, result)
    assert judged.score == pytest.approx(score)
    assert (judged.score >= 0.8) == ("wrong" in answer), "the formula passes the wrong one alone"


def test_EA35_the_first_program_passes_by_the_formula_and_fails_when_it_is_run() -> None:
    ended = drive(Reflexion(ACTOR, judged_by_rules, reflect_in_words).run(TASK), world(FakeModel(programmer)))
    assert ended.stop is StopReason.FINAL_ANSWER and len(ended.trials) == 1
    assert run_tests(ended.answer).score == 0.5


def test_A90_without_an_answer_and_never_below_zero() -> None:
    stubborn = FakeModel(lambda request: 'Action: get_attraction(city="Peking", weather="Sunny")')
    for rounds, score in ((1, 1.0 - 0.3 - 0.05 - 0.5), (3, 0.0)):
        result = drive(replace(ACTOR, limits=Limits(rounds=rounds)).run(TASK), world(stubborn))
        assert judged_by_rules(TASK, result).score == pytest.approx(score)


def test_EA36_failures_are_counted_from_observations_not_by_a_word() -> None:
    def get_log(city: str) -> str:
        """Read the log of a city."""
        return "Error: Error: Error: 昨天的日志"

    logged, broken = Toolbox([get_log]), Toolbox([broken_tool(get_log, OSError("磁盘坏了"))])
    scores = []
    for tools in (logged, broken):
        model = ScriptedModel(
            ['Thought: Error: 先看日志。\nAction: get_log(city="北京")', finishes("看过了")]
        )
        result = drive(AgentLoop(react(tools)).run(TASK), world(model, tools))
        scores.append(judged_by_rules(TASK, result).score)
    assert scores == [pytest.approx(0.9), pytest.approx(0.6)]


def test_EA37_A91_the_reflector_sees_task_answer_score_reasons_and_the_last_thought() -> None:
    model = FakeModel(programmer)
    drive(Reflexion(ACTOR, TESTED, reflect_in_words).run(TASK), world(model))
    asked = next(prompt for prompt in model.prompts if "look back" in prompt)
    wrote = program_with(CONDITIONS[False, False]).replace(": return", ":\n    return")
    for text in (TASK, wrote, "Score: 0.50", run_tests(wrote).reasons, "Thought: 可以写了。", "颐和园（湖景"):
        assert text in asked
    assert "first person" in asked and "我意识到" in asked and "我应该" in asked


def test_EA37_each_step_is_cut_at_200_characters_and_the_answer_is_not() -> None:
    long = "长" * 500
    result = drive(ACTOR.run(TASK), world(ScriptedModel([finishes(long)])))
    assert "长" * 150 in trajectory(result) and "长" * 200 not in trajectory(result)
    model = ScriptedModel(["我应该写短一点。"])
    drive(reflect_in_words(TASK, Trial(1, result, Judgement(0.1)), ()), world(model))
    assert f"Answer:\n{long}\n" in model.prompts[0]


def test_EA38_memory_keeps_the_newest_without_repeats() -> None:
    lessons: tuple[Lesson, ...] = ()
    for number, text in enumerate(("a", "b", "A ", "c", "d"), 1):
        lessons = remember(lessons, Lesson(number, text), 3)
    assert lessons == (Lesson(3, "A "), Lesson(4, "c"), Lesson(5, "d"))


def test_EA38_a_lesson_is_of_a_bounded_length() -> None:
    model = ScriptedModel([finishes("1"), "长" * 5_000, finishes("2")])
    drive(Reflexion(ACTOR, scored(0.1, 0.9), reflect_in_words).run(TASK), world(model))
    assert 900 < model.prompts[-1].count("长") < 1_100


def test_EA39_failure_is_no_text() -> None:
    model = FakeModel(lambda request: "我不知道。")
    ended = drive(Reflexion(ACTOR, judged_by_rules, None).run(TASK), world(model))
    assert (ended.answer, ended.stop) == (None, StopReason.MAX_ITERATIONS)
    assert ended.summary == "MAX_ITERATIONS after 3 trials, without an answer"


@pytest.mark.parametrize("reflection", [ConnectionError("503"), None, "", "  \n", Reply(""), 7])
def test_EA40_a_model_that_fails_while_reflecting_loses_nothing(reflection: Any) -> None:
    model = ScriptedModel([finishes("1"), reflection, finishes("2"), reflection, finishes("3")])
    ended = drive(Reflexion(ACTOR, scored(0.5, 0.4, 0.3), reflect_in_words).run(TASK), world(model))
    assert (ended.answer, ended.stop) == ("1", StopReason.MAX_ITERATIONS)
    assert [trial.lesson for trial in ended.trials] == [None] * 3


def test_EA41_each_trial_is_a_run_of_its_own() -> None:
    model = FakeModel(programmer)
    ended = drive(Reflexion(ACTOR, TESTED, None).run(TASK), world(model))
    assert [trial.result.control.rounds for trial in ended.trials] == [2, 2, 2]
    assert model.prompts[2] == model.prompts[0], "without lessons a trial begins as the first one did"


@pytest.mark.parametrize(
    ("scores", "best"),
    [((0.4, 0.9, 0.2), 2), ((0.4, 0.4, 0.4), 1), ((0.2, 0.5, 0.5), 2), ((0.1, 0.2, 0.3), 3)],
)
def test_R04_the_best_trial_is_returned_and_named(scores: tuple[float, ...], best: int) -> None:
    ended = drive(Reflexion(ACTOR, scored(*scores), None, threshold=0.95).run(TASK), world(numbered()))
    assert (ended.answer, ended.best.number) == (str(best), best)
    assert f"the best is trial {best} with a score of {max(scores):.2f}" in ended.summary


def test_R04_a_crash_in_trial_3_still_returns_trial_2() -> None:
    def reason(context: LoopContext) -> Any:
        number = (yield CallModel((Message("user", "?"),))).value.text
        return Finish(str(int(number)))

    model = ScriptedModel(["1", "2", "three"])
    ended = drive(Reflexion(AgentLoop(reason), scored(0.4, 0.7), None).run(TASK), world(model))
    assert (ended.answer, ended.stop, ended.best.number) == ("2", StopReason.ERROR, 2)
    assert isinstance(ended.error, LoopError) and isinstance(ended.error.__cause__, ValueError)
    assert ended.trials[2].result.stop is StopReason.ERROR, "the broken trial is told too"


def test_a_bug_in_the_evaluator_keeps_the_answer_and_is_told() -> None:
    ended = drive(Reflexion(ACTOR, lambda task, result: 0.9, None).run(TASK), world(numbered()))
    assert (ended.answer, ended.stop) == ("1", StopReason.ERROR)
    assert "evaluate must return a Judgement with a score from 0 to 1 or None, not 0.9" in str(ended.error)


# --- Judges -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("It is right.\nScore: 0.8", 0.8),
        ("**Score:** 0.8.", 0.8),
        ("`score = 9/10`", 0.9),
        ("得分：8 / 10。", 0.8),
        ("评分: 80%", 0.8),
        ("0.25", 0.25),
        ("1", 1.0),
        ("Score: 0.5\nOn second thought nothing changes.\nScore: 50%", 0.5),
        ("false", None),
        ("Score: false", None),
        ("True", None),
        ("not 9/10", None),
        ("Score: not 9/10", None),
        ("Score: 9/10 would be too much", None),
        ("It passes 1\nof 4 tests", None),
        ("Score: 0.2\nScore: 0.9", None),
        ("Score: 11/10", None),
        ("Score: 8", None),
        ("Score: -0.9", None),
        ("Score: 1/0", None),
        ("Score: nan", None),
        ("Score: " + "9" * 400 + "/" + "9" * 400, None),
        ("0.9\n0.9", None),
        ("", None),
        ("Score:", None),
    ],
)
def test_EA35_a_score_is_read_or_unknown(text: str, score: float | None) -> None:
    assert read_score(text) == score


@given(st.text(alphabet="Score: 0.9/1%\n得分：false* ", max_size=40) | st.text(max_size=40))
def test_any_text_is_a_score_from_0_to_1_or_unknown(text: str) -> None:
    score = read_score(text)
    assert score is None or 0 <= score <= 1


def test_a_long_reply_is_read_at_once() -> None:
    assert read_score("Score:" + " " * 100_000 + "x") is None
    assert read_score("Score: 1" + "0" * 100_000 + "!") is None


@pytest.mark.parametrize(
    "nonsense", ["false", "not 9/10", "很好！", "", None, ConnectionError("503"), Reply(""), 7]
)
def test_EA35_a_judge_that_answers_nonsense_is_unknown_and_no_pass(nonsense: Any) -> None:
    model = ScriptedModel([finishes("1"), nonsense, finishes("2"), nonsense, finishes("3"), nonsense])
    ended = drive(Reflexion(ACTOR, judged_by_model(), None).run(TASK), world(model))
    assert (ended.answer, ended.stop) == ("1", StopReason.MAX_ITERATIONS)
    assert [trial.score for trial in ended.trials] == [None] * 3
    assert "an unknown score" in ended.summary


def test_a_judge_sees_task_answer_and_criteria_and_its_score_counts() -> None:
    model = ScriptedModel([finishes("颐和园"), "Fine.\nScore: 0.8"])
    ended = drive(Reflexion(ACTOR, judged_by_model("It names one place."), None).run(TASK), world(model))
    assert (ended.answer, ended.stop) == ("颐和园", StopReason.FINAL_ANSWER)
    assert all(text in model.prompts[1] for text in (TASK, "颐和园", "It names one place."))


def test_nobody_is_asked_to_judge_a_trial_without_an_answer() -> None:
    result = drive(replace(ACTOR, limits=Limits(rounds=1)).run(TASK), world(ScriptedModel(["我不知道。"])))
    for evaluate in (judged_by_model(), TESTED):
        asked = list(evaluate(TASK, result))  # type: ignore[arg-type]
        assert asked == []


def test_tests_that_break_or_hang_are_unknown() -> None:
    clock = FakeClock()

    def hang(answer: str) -> Judgement:
        clock.advance(60)
        return Judgement(1.0)

    def raises(answer: str) -> Judgement:
        raise OSError("no disk")

    for run, told in ((hang, "Timed out after 30 s"), (raises, "OSError: no disk")):
        ended = drive(
            Reflexion(ACTOR, judged_by_tests(run), None, trials=1).run(TASK),
            World(numbered(), TOOLS, clock=clock.now, inline=True),
        )
        assert (ended.answer, ended.stop) == ("1", StopReason.MAX_ITERATIONS)
        judgement = ended.trials[0].judgement
        assert judgement is not None and judgement.score is None and told in judgement.reasons


# --- Allowances, persons, and other programs --------------------------------------------------


@pytest.mark.parametrize("number", range(1, 12))
def test_an_account_run_dry_anywhere_keeps_the_best_so_far(number: int) -> None:
    limits = replace(RESEARCH, effects=number)
    program = Reflexion(ACTOR, TESTED, reflect_in_words, limits, threshold=1.0).run(TASK)
    model = FakeModel(programmer)
    ended = drive(program, world(model))
    answered = [trial for trial in ended.trials if trial.result.answer is not None]
    assert ended.stop is StopReason.EFFECTS
    assert ended.best is best_of(ended.trials) and (ended.answer is None) == (not answered)


def test_the_actors_own_limit_ends_a_trial_and_not_the_whole() -> None:
    actor = replace(ACTOR, limits=Limits(model_calls=1))
    ended = drive(Reflexion(actor, TESTED, None).run(TASK), world(FakeModel(programmer)))
    assert [trial.result.stop for trial in ended.trials] == [StopReason.MODEL_CALLS] * 3
    assert (ended.answer, ended.stop) == (None, StopReason.MAX_ITERATIONS)


def test_an_evaluator_whose_own_allowance_is_spent_is_unknown() -> None:
    def several_judges() -> Program[Judgement]:
        while True:
            yield Do("one more", lambda: None)

    def evaluate(task: Any, result: Result) -> Program[Judgement]:
        return bounded(several_judges(), Limits(effects=3))

    ended = drive(Reflexion(ACTOR, evaluate, None).run(TASK), world(numbered()))
    assert (ended.answer, ended.stop, len(ended.trials)) == ("1", StopReason.MAX_ITERATIONS, 3)


def test_the_whole_pays_from_one_account_inside_another_program() -> None:
    program = Reflexion(ACTOR, TESTED, reflect_in_words, threshold=1.0).run(TASK)
    ended = drive(bounded(program, Limits(model_calls=4)), world(FakeModel(programmer)))
    assert ended.stop is StopReason.MODEL_CALLS
    assert ended.trials[0].score == 0.5 and ended.answer == ended.trials[0].result.answer


def test_a_person_ends_it_with_what_there_is() -> None:
    interrupt, model = Interrupt(), FakeModel(programmer)

    def run(answer: str) -> Judgement:
        interrupt.set()
        return run_tests(answer)

    program = Reflexion(ACTOR, judged_by_tests(run), reflect_in_words).run(TASK)
    ended = drive(program, world(model), interrupt=interrupt)
    assert ended.stop is StopReason.HUMAN and ended.answer is not None and len(ended.trials) == 1


def test_what_no_lesson_mends_is_not_tried_again() -> None:
    model = numbered()
    ended = drive(Reflexion(ACTOR, TESTED, reflect_in_words).run("  "), world(model))
    assert (ended.stop, len(ended.trials), model.requests) == (StopReason.INVALID_TASK, 1, [])
    refusing = replace(ACTOR, perceive=lambda task: StopReason.HUMAN)
    ended = drive(Reflexion(refusing, TESTED, reflect_in_words).run(TASK), world(model))
    assert (ended.stop, len(ended.trials), model.requests) == (StopReason.HUMAN, 1, [])


@pytest.mark.parametrize(
    "wrong",
    [
        {"trials": 0},
        {"trials": 2.0},
        {"capacity": 0},
        {"capacity": True},
        {"threshold": 0},
        {"threshold": 1.1},
    ],
)
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Reflexion(ACTOR, TESTED, None, **wrong)


# --- Hostile worlds, and the three drivers ----------------------------------------------------

DRIVERS = (drive, drive_async, drive_on_bus)
JUDGES = ("Score: 1", "Score: 0.3", "false", "not 9/10", "Score: 8", "Score: 0.1\nScore: 0.9")
REPLIES = (*typical_replies(), *JUDGES, finishes("颐和园"), Reply(None), 7)  # type: ignore[arg-type]


def driven(
    driver: Callable[..., Any], program: Program[Any], world: World, journal: Journal | None = None
) -> Any:
    ended = driver(program, world, journal)
    return asyncio.run(ended) if asyncio.iscoroutine(ended) else ended


def hostile(seed: int, effects: int = 500) -> Reflexion:
    actor = replace(ACTOR, limits=Limits(rounds=3, failures=2))
    return Reflexion(actor, judged_by_model(), reflect_in_words, replace(RESEARCH, effects=effects))


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 10**6), st.integers(1, 40))
def test_whatever_the_model_does_it_ends_within_its_bound_and_tells_the_truth(
    seed: int, effects: int
) -> None:
    journal = Journal()
    ended = drive(hostile(seed, effects).run(TASK), world(random_model(seed, REPLIES)), journal)
    trial = 1 + 2 * 3 + 2 + 3  # its start, rounds, judge and reflection; and whether the account is open
    assert len(journal.outcomes) <= 1 + min(effects, 3 * trial)
    passed = [each for each in ended.trials if each.score is not None and each.score >= 0.8]
    assert (ended.stop is StopReason.FINAL_ANSWER) == bool(passed)
    assert (ended.answer is None) == all(each.result.answer is None for each in ended.trials)
    assert 1 <= len(ended.trials) <= 3


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 40))
def test_the_same_under_the_three_drivers_and_from_its_journal(seed: int, effects: int) -> None:
    journal = Journal()
    results = [
        driven(driver, hostile(seed, effects).run(TASK), world(random_model(seed, REPLIES)), journal)
        for driver, journal in zip(DRIVERS, (journal, None, None), strict=True)
    ]
    assert results[0] == results[1] == results[2]
    nobody = World(ScriptedModel([]), TOOLS, clock=FakeClock().now, inline=True)
    assert drive(hostile(seed, effects).run(TASK), nobody, Journal(journal.outcomes)) == results[0]


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.__name__)
def test_the_demo_is_the_same_under_each_driver_and_from_any_point_of_its_journal(
    driver: Callable[..., Any],
) -> None:
    reflexion, journal = Reflexion(ACTOR, TESTED, reflect_in_words), Journal()
    first = driven(driver, reflexion.run(TASK), world(FakeModel(programmer)), journal)
    assert first == drive(reflexion.run(TASK), world(FakeModel(programmer)))
    for count in range(len(journal.outcomes)):
        again = driven(driver, reflexion.run(TASK), world(FakeModel(programmer)), journal.rewound(count))
        assert again == first
