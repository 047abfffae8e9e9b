"""No paradigm is the best at everything: what a task is like decides which one is worth its price.

Article A, 四、关键变体深度解析, its last paragraph (三种范式的选择). Covers A-70, A-98.

Chapters 11 to 13 each showed a task that their paradigm is made for. The article closes with a rule: ReAct
for exploring and gathering, Reflexion for what has to be refined, Plan-and-Solve for what is structured and
predictable. Here the same twelve tasks are put to each of the three, and to a single request without any
loop, so that the rule is not believed but counted. The mechanism is one dictionary, ``CHOICE``. Without it,
one paradigm does everything: it pays for what a task does not need, or lacks what it does.

What can be learned from the table, and what cannot. The model is simulated (``fake_llm/simulated.py``): it
reads its prompt, does not know who asks, and errs in ways that are known of real models, with chances that
are made up. Each run has the same allowance, on one account. The seeds 1 to 10 (``TUNED_ON``) were looked
at while the errors were written; those of the table (``HELD_OUT``) were not. So the table shows how each
paradigm meets each kind of error, and not how often a real model makes it: for that, put in a real one.

Each paradigm gets what belongs to it, and that is not the same for all, so the rule has its edges:

- Reflexion's evaluator runs the tests where a task has some; those of the check are more. For the other
  tasks a model judges, and finds no fault with any answer: then the first trial, ReAct's run, is the last.
  Whoever gives ReAct the tests as a tool takes some of Reflexion's lead away.
- ReAct is the best at exploring as long as it has rounds enough to get there. With 8 rounds in place of 25
  it sometimes ends without an answer, which needs no judge, and the second trial is worth its price.
- With six replans in place of two Plan-and-Solve finds more of what is lost, at five times ReAct's tokens.

Departures: the article states its rule without figures. It has no row for a task that needs no loop at
all; here there is one, since a loop costs most where it is not needed. The chapter is longer than most:
it runs four paradigms, measures them and ranks them.

Exercises
---------
1. Write a model with errors of your own, and see whether it is a fair one (it may not peek at who asks):
   ``python -m pytest --impl simulated=my_model.py:simulated_model``
   Then put it into ``run``. Which lines of the conclusion still hold?
2. Lower the chance of ``Error.LOSES``, step by step. Where does a plan stop being worth its tokens? Give
   the actor ``Limits(rounds=8)``. Who is the best at exploring then?
3. Add a tool that runs the tests, and let the model use it before it answers; the command of the first
   exercise checks what you made of the model. What is left of Reflexion's lead?
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from agentloop import (
    RESEARCH,
    Account,
    Act,
    AgentLoop,
    CallModel,
    EventKind,
    Finish,
    Limits,
    LoopContext,
    Message,
    Observation,
    Program,
    Result,
    StopReason,
    Toolbox,
    World,
    drive,
    on_one_line,
    report,
    within,
)
from chapters.telling import BOLD, DIM, GREEN, RED, Telling
from fake_llm.errands import Errand, ErrandKind, ask_at, errands, get_price, problems
from fake_llm.simulated import Error, simulated_model
from paradigms.evaluators import Judgement, judged_by_model, judged_by_tests
from paradigms.plan_and_solve import PlanAndSolve, Solution
from paradigms.planning import GaveUp, model_planner
from paradigms.prompt import block
from paradigms.react import react
from paradigms.reflexion import Reflected, Reflexion, reflect_in_words

TUNED_ON = range(1, 11)
HELD_OUT = range(101, 106)
ALLOWANCE = RESEARCH

# --- The paradigms, and the choice --------------------------------------------------------------


def toolbox() -> Toolbox:
    """The tools, the same for all."""
    return Toolbox([ask_at, get_price])


def at_once(context: LoopContext) -> Program[Act | Finish]:
    """No paradigm: ask once, and take what comes."""
    asked = block(Message("user", context.task))
    reply = (yield CallModel(asked.messages, tokens=asked.tokens)).value
    return report(reply) if isinstance(reply, Observation) else Finish(reply.text, reply.text)


def one_shot(errand: Errand) -> Program[Result]:
    """A single request."""
    return AgentLoop(at_once, limits=Limits(rounds=1)).run(errand.text)


def actor() -> AgentLoop:
    """The loop of ReAct, which is also Reflexion's actor and Plan-and-Solve's executor."""
    return AgentLoop(react(toolbox()), limits=ALLOWANCE)


def with_react(errand: Errand) -> Program[Result]:
    """Thought, action, observation, until it answers."""
    return actor().run(errand.text)


def with_reflexion(errand: Errand) -> Program[Reflected]:
    """Trials, each with the lessons of those before; a trial passes or fails, as in the paper."""
    evaluate = judged_by_tests(tests_of(errand)) if errand.tests else judged_by_model()
    return Reflexion(actor(), evaluate, reflect_in_words, ALLOWANCE, threshold=1.0).run(errand.text)


def tests_of(errand: Errand) -> Callable[[Any], Judgement]:
    """What an answer's tests say: the share that passed, and the first that did not."""

    def run_tests(answer: Any) -> Judgement:
        failed = problems(answer, errand.tests)
        return Judgement(1 - len(failed) / len(errand.tests), failed[0] if failed else "all tests pass")

    return run_tests


def with_plan(errand: Errand) -> Program[Solution]:
    """A plan, and a small loop for each step."""
    return PlanAndSolve(actor(), model_planner(toolbox()), limits=ALLOWANCE).run(errand.text)


PARADIGMS: dict[str, Callable[[Errand], Program[Any]]] = {
    "one shot": one_shot,
    "ReAct": with_react,
    "Reflexion": with_reflexion,
    "Plan-and-Solve": with_plan,
}

#: The article's rule, and one shot for what it does not mention.
CHOICE = {
    ErrandKind.PLAIN: "one shot",
    ErrandKind.EXPLORATORY: "ReAct",
    ErrandKind.ITERATIVE: "Reflexion",
    ErrandKind.STRUCTURED: "Plan-and-Solve",
}

# --- Counting -----------------------------------------------------------------------------------


class Run(NamedTuple):
    """What came of one task, and what it took."""

    errand: Errand
    answer: Any
    stop: StopReason | GaveUp
    rounds: int
    model_calls: int
    tokens: int

    @property
    def solved(self) -> bool:
        return self.answer is not None and self.errand.is_right(self.answer)


def measured(paradigm: str, errand: Errand, limits: Limits = ALLOWANCE) -> Program[Run]:
    """Run a paradigm on an account, and see afterwards what was spent on it, by whatever part."""
    account = Account(limits)
    yield from account.open(errand.text)
    account.post(EventKind.PERCEIVED)
    ended = yield from within(account, PARADIGMS[paradigm](errand))
    account.end(EventKind.ANSWER_GIVEN)
    spent = account.control
    return Run(errand, ended.answer, ended.stop, rounds(ended), spent.model_calls, spent.tokens)


def rounds(ended: Result | Reflected | Solution) -> int:
    """The rounds of all the loops that were run."""
    match ended:
        case Reflected():
            results = [trial.result for trial in ended.trials]
        case Solution():
            results = [step.result for step in ended.steps if step.result is not None]
        case _:
            results = [ended]
    return sum(result.control.rounds for result in results)


def run(paradigm: str, errand: Errand, seed: int) -> Run:
    """Let the model of this seed do the task."""
    return drive(measured(paradigm, errand), World(simulated_model(seed), toolbox(), inline=True))


Outcomes = dict[tuple[ErrandKind, str], list[Run]]


def outcomes(seeds: Iterable[int]) -> Outcomes:
    """Every task under every paradigm, once for each seed, by kind and paradigm."""
    found: Outcomes = {(kind, paradigm): [] for kind in ErrandKind for paradigm in PARADIGMS}
    for seed in seeds:
        for errand in errands():
            for paradigm in PARADIGMS:
                found[errand.kind, paradigm].append(run(paradigm, errand, seed))
    return found


class Tally(NamedTuple):
    """What many runs came to, together."""

    solved: int
    of: int
    rounds: int
    model_calls: int
    tokens: int

    @property
    def worth(self) -> tuple[int, int]:
        """What to choose by: the most solved, and of equals the fewest tokens."""
        return self.solved, -self.tokens

    @property
    def cells(self) -> tuple[object, ...]:
        return f"{self.solved} of {self.of}", self.rounds, self.model_calls, self.tokens


def tally(runs: Sequence[Run]) -> Tally:
    """Add up what many runs brought and took."""
    return Tally(
        sum(each.solved for each in runs),
        len(runs),
        sum(each.rounds for each in runs),
        sum(each.model_calls for each in runs),
        sum(each.tokens for each in runs),
    )


def ranking(found: Outcomes, kind: ErrandKind) -> list[str]:
    """The paradigms, the best for this kind of task first."""
    return sorted(PARADIGMS, key=lambda name: tally(found[kind, name]).worth, reverse=True)


# --- The story ----------------------------------------------------------------------------------

COLUMNS = ("solved", "rounds", "model calls", "tokens")


def by_kind(tell: Telling, found: Outcomes, choice: dict[ErrandKind, str]) -> Tally:
    """Print what a choice of paradigms came to for each kind of task, and return it for all."""
    everything = tally([each for kind in ErrandKind for each in found[kind, choice[kind]]])
    rows = [(kind.value, choice[kind], *tally(found[kind, choice[kind]]).cells) for kind in ErrandKind]
    tell.table([("tasks", "paradigm", *COLUMNS), *rows, ("all", "", *everything.cells)])
    return everything


def failures(tell: Telling, found: Outcomes, paradigm: str) -> None:
    """Print the first task of each kind that was not solved, and the answer."""
    for kind in ErrandKind:
        failed = [each for each in found[kind, paradigm] if not each.solved]
        for each in failed[:1]:
            answer = each.stop.name if each.answer is None else str(each.answer)
            tell(f"    {on_one_line(each.errand.text, 80)}\n    -> {on_one_line(answer, 95)}", RED)


def times(ratio: float) -> str:
    """A ratio as it is said aloud: ``2.5 times``, and what is less than one as ``10% of``."""
    return f"{ratio:.1f} times" if ratio >= 1 else f"{ratio:.0%} of"


def conclusion(tell: Telling, found: Outcomes) -> None:
    """Say what the table says: the best of each kind, the next best, and whether the rule had it right."""
    for kind in ErrandKind:
        best, second = ranking(found, kind)[:2]
        first, other = tally(found[kind, best]), tally(found[kind, second])
        tell(
            f"{kind.value}: {best} solves {first.solved} of {first.of}; runner-up: {second} "
            f"({other.solved} of {other.of}, {times(other.tokens / first.tokens)} the tokens)",
            GREEN if best == CHOICE[kind] else RED,
        )
    right = sum(ranking(found, kind)[0] == CHOICE[kind] for kind in ErrandKind)
    tell(f"The rule had named the best paradigm for {right} of {len(ErrandKind)} kinds.", BOLD)


def demo(tell: Telling) -> None:
    """ReAct for everything, a choice by kind, and the table that the choice can be judged by."""
    found = outcomes(HELD_OUT)
    tell(f"{len(errands())} tasks, each with {len(HELD_OUT)} seeds of a simulated model. The last of each:")
    last = {errand.kind: errand.text for errand in errands()}
    tell.table((kind.value, on_one_line(text, 70)) for kind, text in last.items())

    tell.heading("One paradigm for everything: ReAct")
    one = by_kind(tell, found, dict.fromkeys(ErrandKind, "ReAct"))
    tell("\nWhat went wrong, for example:")
    failures(tell, found, "ReAct")

    tell.heading("The same model, tasks and seeds, and a paradigm for each kind of task")
    chosen = by_kind(tell, found, CHOICE)
    tell(f"\n{chosen.solved - one.solved:+} solved, {chosen.tokens / one.tokens:.1f} times the tokens", BOLD)

    tell.heading("When each is worth it: every kind of task under every paradigm")
    rows: list[Sequence[object]] = [("tasks", "paradigm", *COLUMNS, "")]
    for kind in ErrandKind:
        for paradigm in PARADIGMS:
            mark = "<- best" if paradigm == ranking(found, kind)[0] else ""
            rows.append((kind.value, paradigm, *tally(found[kind, paradigm]).cells, mark))
    tell.table(rows)
    tell()
    conclusion(tell, found)

    tell.heading("What was simulated")
    tell("The model: it reads the prompt, does the obvious thing, and errs by seed, with these chances:")
    tell.table((f"{error.chance:.0%}", error.words) for error in Error)
    tell("It knows no price and no place until a tool shows it, and makes up what it cannot look up. As a")
    tell("judge it finds no fault. A plan that it makes before it has looked names places that it guesses.")
    tell("All chances are made up: the table shows what follows from them, not how real models fare.", DIM)
