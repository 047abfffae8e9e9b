"""A failed trial is put into words, and the words stand in the prompt of the next one.

Article A, 四、关键变体深度解析, Reflexion Loop：自我反思的元认知层. Covers A-81..A-93.

A loop of chapter 11 begins with nothing but its task, so it makes the mistake of its last run again.
Reflexion (Shinn et al., 2023) puts a layer above it (元认知层): an actor tries, an evaluator judges, a
self-reflector says in the first person what went wrong, and an episodic memory keeps that for the next
trial. No weight is changed (言语强化学习). The paper measured it on decisions in a simulated house, on
questions that take several look-ups, and on programs judged by unit tests (A-93); this demo is of the last
kind. There the model writes the tests itself; here they are given, and so they can be trusted.

The mechanism is ``paradigms/reflexion.py``, with its evaluators in ``paradigms/evaluators.py``. It does
nothing to the actor but ``replace(actor, perceive=...)``: the lessons go into working memory, which every
prompt shows. Without it: three trials that are all the same. Without a judge that looks at the answer, it
is worse: the first wrong answer is believed.

The programs are never run as Python: ``fake_llm/small_language.py`` reads them, walks through them step by
step, and refuses what it does not know. The tests are an effect (``Do``), since they are not a thought.

Where the article's listing went:

- ``run_reflexion_cycle`` (A-88): ``Reflexion.run``; 3 trials and a threshold of 0.8 as in the article
- ``_run_single_trial`` (A-92): ``actor.run(task)``; answer, steps and rounds are in its ``Result``
- ``_build_trial_context`` (A-89): ``informed``
- ``_evaluate_trajectory`` (A-90): ``judged_by_rules``, for you to see what it overlooks
- ``_generate_reflection`` (A-91): ``reflect_in_words``; steps are cut at 200 characters, the answer is not

Departures: the lessons reach the model (EA33); the first trial is kept whatever its score, and of equals
the earlier (EA34); the answer is judged, not how long it took (EA35), and failures are counted from
observations, not by searching for a word (EA36); the reflector sees the answer and the reasons (EA37);
memory belongs to one run of one task, is bounded, and keeps no lesson twice (EA38); without an answer the
answer is ``None`` (EA39); a trial is kept before it is judged or reflected upon (EA40); each trial is a
run of its own (EA41).

Exercises
---------
1. Let ``reflect`` do without a model: return ``trial.judgement.reasons``. The demo still ends well, since
   this model learns from raw test messages too. What does putting it into words add for a real one?
2. Give the demo ``capacity=1``. Which lesson is lost, and how does it end? Then change ``remember`` so that
   it merges lessons instead of dropping the oldest.
3. Write the article's cycle as a class of your own, with the fields of ``Reflexion``, and see what it has
   to promise: ``python -m pytest --impl reflexion=my_reflexion.py:Reflexion``
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from agentloop import AgentLoop, CallModel, Step, Toolbox, World, drive, on_one_line
from chapters.telling import BOLD, CYAN, DIM, GREEN, RED, WIDTH, Telling
from fake_llm import FakeModel, get_attraction, readable
from fake_llm.small_language import Refused, SmallFunction
from paradigms.evaluators import Evaluate, Judgement, judged_by_rules, judged_by_tests
from paradigms.react import react
from paradigms.reflexion import Reflect, Reflected, Reflexion, reflect_in_words

TASK = (
    "写一个函数 place(weather, temperature)，推荐北京的景点："
    "晴天（Sunny）而且不冷不热，去颐和园；否则去国家博物馆。函数体只有一个 return。"
)


class Case(NamedTuple):
    """One unit test: what the function is given, and what it has to return."""

    weather: str
    temperature: float
    place: str


CASES = (
    Case("Sunny", 26, "颐和园"),
    Case("Rainy", 26, "国家博物馆"),
    Case("Sunny", -8, "国家博物馆"),
    Case("Sunny", 38, "国家博物馆"),
)


def run_tests(program: str, cases: Sequence[Case] = CASES) -> Judgement:
    """Run every test on a program: the share that passed, and the first that did not, in words."""
    failed = [problem for case in cases if (problem := _problem(program, case))]
    return Judgement(1 - len(failed) / len(cases), failed[0] if failed else "all tests pass")


def _problem(program: str, case: Case) -> str:
    try:
        given = SmallFunction(program)(case.weather, case.temperature)
    except Refused as refusal:
        return f"the program was refused: {refusal}"
    called = f"place({case.weather!r}, {case.temperature})"
    return "" if given == case.place else f"{called} must return {case.place!r}, and returned {given!r}"


# --- A programmer that learns from what it is told --------------------------------------------

#: What it writes, by whether it knows that a day can be too cold, and too hot.
CONDITIONS = {
    (False, False): 'weather == "Sunny"',
    (True, False): 'weather == "Sunny" and temperature > 0',
    (False, True): 'weather == "Sunny" and temperature < 35',
    (True, True): 'weather == "Sunny" and 0 < temperature < 35',
}
TOO_COLD = "我意识到我只看了天气，没看气温：零下就太冷了。我应该检查气温的下限。"
TOO_HOT = "我意识到太热的晴天也不合适。我应该同时检查气温的上限。"
LOOK = 'Thought: 先看看晴天有哪些景点。\nAction: get_attraction(city="北京", weather="Sunny")'


def programmer(request: CallModel) -> str:
    """A model that programs what its prompt tells it to heed, and knows why a test has failed."""
    prompt = readable(request.messages)
    if "You look back" in prompt:
        return TOO_COLD if "-8" in prompt else TOO_HOT
    if "Observation:" not in prompt:
        return LOOK
    known = "-8" in prompt or "下限" in prompt, "38" in prompt or "上限" in prompt
    program = (
        f'def place(weather, temperature):\n    return "颐和园" if {CONDITIONS[known]} else "国家博物馆"'
    )
    return f"Thought: 可以写了。\nAction: Finish[{program}]"


# --- The story --------------------------------------------------------------------------------


def trials_of(
    tell: Telling,
    evaluate: Evaluate,
    reflect: Reflect | None,
    watch: Callable[[Step], object] | None = None,
) -> tuple[Reflected, FakeModel]:
    """Let the programmer try, tell of each trial, and return how it ended, with the model that was asked."""
    model, tools = FakeModel(programmer), Toolbox([get_attraction])
    program = Reflexion(AgentLoop(react(tools), watch=watch), evaluate, reflect).run(TASK)
    reflected = drive(program, World(model, tools, inline=True))
    for trial in reflected.trials:
        judgement = trial.judgement or Judgement(None)
        tell(f"trial {trial.number}: score {judgement.score}", BOLD)
        tell(f"    wrote   {on_one_line(str(trial.result.answer), WIDTH)}", CYAN)
        tell(f"    judged  {on_one_line(judgement.reasons, WIDTH)}")
        if trial.lesson:
            tell(f"    lesson  {on_one_line(trial.lesson, WIDTH)}", GREEN)
    tell(reflected.summary)
    return reflected, model


def demo(tell: Telling) -> None:
    """One programmer, three times: believed at once, tested and none the wiser, tested and learning."""
    tell(f"task: {TASK}")

    tell.heading("The article's score: short and without errors is good enough")
    believed, _ = trials_of(tell, judged_by_rules, reflect_in_words)
    tell(f"Nobody has run it. The tests say: {run_tests(believed.answer).reasons}", RED)

    tell.heading("Tests run it, but nothing is learned: three times the same")
    trials_of(tell, judged_by_tests(run_tests), reflect=None)

    tell.heading("Reflexion: the same model and tests, and each trial is told what the last one taught")
    learned, model = trials_of(tell, judged_by_tests(run_tests), reflect_in_words, tell.watch("trial"))
    tell(f"Its tests: {run_tests(learned.answer).reasons}", GREEN)
    tell("\nWhat the last trial was told before it began:", DIM)
    tell(model.requests[-1].messages[2].content, DIM)
