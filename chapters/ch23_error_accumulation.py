"""Small errors add up over the rounds, unless each round is checked and a bad one is done again.

Article B, 错误累积的算术. Covers B-55..B-57.

Unlike chapter 22, which caught single mistakes, this one counts what is left of a whole run when each call
errs a little. If errors are independent and nobody corrects them, n calls come out wrong with a chance of
``1 - (1 - p) ** n``. The article's 5 to 15 percent over ten rounds is 40 to 80 percent (B-55); near 100
percent takes 90 calls at 5 percent, or 29 at 15. The range itself is unverified (待验证, B-56): it comes from
a blog, tasks and models differ widely, and only the order of magnitude is of use. So nothing here is said of
real models. A simulated one errs by seed, a real loop runs it a hundred times, and what is counted stands
beside the formula with its confidence interval.

What helps is what surrounds the call (循环韧性, B-57). ``checked`` looks at each decision before it is acted
on: what a check objects to is not done but told to the model, and the next round decides anew. The voting is
chapter 22's ``confident``, which asks several times and takes what most samples say. Both have a price in
calls, and both live on luck that differs from call to call. Where a model makes the same mistake whenever
it is asked, three votes cost three times as much and buy nothing, and a check buys honesty instead of
success: the run ends without an answer where it would have ended with a wrong one.

Departures: ten rounds are not close to 100 percent (EB10).

Exercises
---------
1. Write a ``checked`` that asks again at once, in the same round, a few times at most. What does it save?
   ``python -m pytest --impl checked=my_checked.py:checked``
2. Give the check false alarms: let it object to a right sum in one of ten cases. What happens to the
   calls, and what to the answers? Which formula fits?
3. Write the ``plot`` of ``chapters/telling.py`` with a scale of powers of ten, and see which promise has to
   give way: ``python -m pytest --impl plot=my_plot.py:plot``
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from agentloop import (
    Act,
    AgentLoop,
    CallModel,
    EffectFailed,
    Finish,
    Kind,
    LimitReached,
    Limits,
    LoopContext,
    Message,
    Observation,
    Program,
    Result,
    Toolbox,
    ToolCall,
    World,
    drive,
    report,
    settle,
)
from chapters.ch15_goal_detection import not_taken
from chapters.ch22_hallucination import ReasonHook, confident, unstated
from chapters.telling import BOLD, DIM, GREEN, RED, Telling
from fake_llm import FakeClock
from paradigms.arguments import require_function
from paradigms.chain_of_thought import cut_short

# --- The arithmetic (错误累积的算术) ----------------------------------------------------------------


def chance_of_an_error(p: float, calls: int) -> float:
    """The chance that at least one of so many calls errs, each with chance ``p``, independently."""
    return 1 - (1 - p) ** calls


def calls_until(chance: float, p: float) -> int:
    """The fewest calls with which an error is at least so likely. Both chances are above 0 and below 1."""
    for name, value in (("chance", chance), ("p", p)):
        if not 0 < value < 1:
            raise ValueError(f"{name} must be above 0 and below 1, not {value!r}")
    calls = max(1, math.floor(math.log(1 - chance) / math.log(1 - p)))
    return calls if chance_of_an_error(p, calls) >= chance else calls + 1


def interval(hits: int, runs: int) -> tuple[float, float]:
    """The share that ``hits`` of ``runs`` speak for, with 95 percent confidence (Wilson, 1927)."""
    if not 0 <= hits <= runs or runs < 1:
        raise ValueError(f"hits are from 0 to runs, and runs at least 1, not {hits!r} of {runs!r}")
    z = 1.96  # standard deviations on either side
    middle = hits + z * z / 2
    reach = z * math.sqrt(hits * (runs - hits) / runs + z * z / 4)
    low, high = (middle - reach) / (runs + z * z), (middle + reach) / (runs + z * z)
    return low if hits else 0.0, high if hits < runs else 1.0


# --- The guard: a round that is checked and repeated ------------------------------------------------


def checked(reason: ReasonHook, check: Callable[[LoopContext, Act | Finish], Any]) -> ReasonHook:
    """Make the ``reason`` whose decisions are checked before they are acted on (B-57).

    ``check(context, decision)`` returns an objection in words or ``None``, or is a program that does. What
    it objects to is not done: the round reports the objection (REFUSED), and the next one decides anew. A
    check that fails has not passed. The number of repeats is bounded by the loop's rounds and failures in
    a row. Raises ``TypeError`` for an objection that is no text.
    """
    require_function("reason", reason)
    require_function("check", check)

    def guarded(context: LoopContext) -> Program[Act | Finish]:
        decision: Act | Finish = yield from settle(reason(context))
        if isinstance(decision, Act) and all(call.problem for call in decision.calls):
            return decision  # a report: nothing would be done
        try:
            objection = yield from settle(check(context, decision))
        except EffectFailed as failed:
            objection = f"This could not be checked, so it is not done: {failed}"
        except LimitReached as ended:
            return cut_short(ended, [decision.thought])
        if objection is None:
            return decision
        if not isinstance(objection, str):
            raise TypeError(f"a check returns an objection in words, or None, not {objection!r}")
        return not_taken(decision, Observation(objection, False, Kind.REFUSED))

    return guarded


# --- A clerk who adds up receipts, and slips --------------------------------------------------------

TASK = "把十张收据加起来"
RECEIPTS = (35, 28, 14, 50, 22, 19, 46, 31, 27, 18)  # in yuan
TOTALS = tuple(accumulate(RECEIPTS))
LIMITS = Limits(rounds=60, model_calls=200, tool_calls=60, effects=400)
DETECTION = 0.9  # the share of wrong sums that a second look finds


def clerk(context: LoopContext) -> Program[Act | Finish]:
    """One receipt a round: ask for one sum, and note it. A wrong one is carried to the end."""
    noted = [turn.calls[0].arguments["total"] for turn in context.turns if turn.observations[0].ok]
    if len(noted) == len(RECEIPTS):
        return Finish(noted[-1])
    sum_of_two = f"{noted[-1] if noted else 0} + {RECEIPTS[len(noted)]}"
    reply = (yield CallModel((Message("user", f"{sum_of_two} = ?"),))).value
    if isinstance(reply, Observation):
        return report(reply)
    return Act((ToolCall("note", {"total": int(reply.text)}),), f"{sum_of_two} = {reply.text}")


def second_look(context: LoopContext, decision: Act | Finish) -> Program[str | None]:
    """Ask the model whether its sum is right. It has no better memory than before, only another look."""
    if isinstance(decision, Finish):
        return None
    reply = (yield CallModel((Message("user", f"{decision.thought}: right or wrong?"),))).value
    right = not isinstance(reply, Observation) and reply.text == "right"
    return None if right else f"{decision.thought} does not seem right. Add it up again."


def note(total: int) -> str:
    """Note a sum."""
    return f"合计 {total} 元"


def slipping_model(seed: int, p: float, stubborn: bool = False) -> Callable[[CallModel], str]:
    """A model whose sums are ten short with chance ``p``, and which finds a wrong one with ``DETECTION``.

    Its luck is new with each request. A ``stubborn`` one makes the same mistake when it is asked the same.
    """
    luck = random.Random(seed)

    def respond(request: CallModel) -> str:
        asked = request.messages[0].content
        draw = (random.Random(f"{seed} {asked}") if stubborn else luck).random()
        first, second, *given = map(int, re.findall(r"\d+", asked))
        if given:
            return "wrong" if given != [first + second] and draw < DETECTION else "right"
        return str(first + second - (10 if draw < p else 0))

    return respond


# --- Counting ---------------------------------------------------------------------------------------


class Setting(NamedTuple):
    """How the clerk works: the chance of a slip, what surrounds the call, and the chance that follows."""

    name: str
    p: float
    guard: Callable[[ReasonHook], ReasonHook]
    formula: Callable[[int], float]  # from the number of sums to the chance of a wrong answer
    stubborn: bool = False

    def run(self, seed: int) -> Result:
        """One run of a real loop."""
        tools = Toolbox([note])
        world = World(slipping_model(seed, self.p, self.stubborn), tools, clock=FakeClock().now, inline=True)
        return drive(AgentLoop(self.guard(clerk), limits=LIMITS).run(TASK), world)


def alone(reason: ReasonHook) -> ReasonHook:
    """Nothing around the call."""
    return reason


def looked_at(reason: ReasonHook) -> ReasonHook:
    """A second look at each sum."""
    return checked(reason, second_look)


def voted(reason: ReasonHook) -> ReasonHook:
    """Three samples, and what two of them say (chapter 22)."""
    return confident(reason, threshold=0.5, samples=3, confidence=unstated)


def slips_through(p: float) -> float:
    """The chance that the sum which is accepted in the end is wrong: a wrong one may be looked at again."""
    return p * (1 - DETECTION) / (1 - p * DETECTION)


def outvoted(p: float) -> float:
    """The chance that two or three of three samples are wrong."""
    return 3 * p**2 * (1 - p) + p**3


def unseen(p: float, calls: int) -> float:
    """The chance that a stubborn model slips and is never found out; where it is, the run ends."""
    return (1 - p * DETECTION) ** calls - (1 - p) ** calls


def settings(p: float) -> tuple[Setting, ...]:
    """Everything that is compared at one chance of a slip."""
    return (
        Setting("the call alone", p, alone, lambda n: chance_of_an_error(p, n)),
        Setting("a second look", p, looked_at, lambda n: chance_of_an_error(slips_through(p), n)),
        Setting("three votes", p, voted, lambda n: chance_of_an_error(outvoted(p), n)),
        Setting("a second look, stubborn", p, looked_at, lambda n: unseen(p, n), stubborn=True),
        Setting("three votes, stubborn", p, voted, lambda n: chance_of_an_error(p, n), stubborn=True),
    )


class Tally(NamedTuple):
    """What many runs came to."""

    runs: int
    right: int
    wrong: int
    model_calls: int

    @property
    def without_an_answer(self) -> int:
        return self.runs - self.right - self.wrong


def tally(results: Sequence[Result]) -> Tally:
    """Count right and wrong answers, and the calls that they took."""
    answers = [result.answer for result in results if result.answer is not None]
    right = answers.count(TOTALS[-1])
    calls = sum(result.control.model_calls for result in results)
    return Tally(len(results), right, len(answers) - right, calls)


def wrong_so_far(results: Sequence[Result]) -> list[float]:
    """The share of runs whose sum was wrong in some round up to the first, the second, ..."""
    return [
        sum(not _right_until(result, n) for result in results) / len(results)
        for n in range(1, len(RECEIPTS) + 1)
    ]


def _right_until(result: Result, rounds: int) -> bool:
    noted = [turn.calls[0].arguments["total"] for turn in result.turns if turn.calls]
    return tuple(noted[:rounds]) == TOTALS[:rounds]


# --- The story --------------------------------------------------------------------------------------

LOW, HIGH = 0.05, 0.15  # the article's range, unverified
RUNS = range(1, 101)  # seeds


def percent(share: float) -> str:
    """A share as people say it."""
    return f"{share:.0%}"


def told(result: Result) -> list[Sequence[object]]:
    """A run as rows: what was said in each round, what came of it, and whether it is right."""
    rows: list[Sequence[object]] = []
    noted = 0
    for number, turn in enumerate(result.turns[:-1], 1):
        is_right = turn.thought.endswith(f"= {TOTALS[noted]}")
        seen = turn.observations[0]
        came = seen.text if seen.ok else seen.kind.name
        rows.append((number, turn.thought, came, "" if is_right else "<- not right"))
        noted += seen.ok
    return rows


def one_run(tell: Telling, bare: Setting, guarded: Setting) -> None:
    """The first seed whose luck the guard turns: the same run without it, and with it."""
    seed = next(
        seed
        for seed in RUNS
        if bare.run(seed).answer != TOTALS[-1] and guarded.run(seed).answer == TOTALS[-1]
    )
    tell.heading(f"One run at {percent(bare.p)} a call: a slip is carried to the end")
    lost = bare.run(seed)
    tell.table(told(lost))
    tell(f"answer: {lost.answer} 元. The receipts come to {TOTALS[-1]} 元.", RED)

    tell.heading("The same model and luck, and each sum is looked at before it is noted")
    saved = guarded.run(seed)
    tell.table(told(saved))
    calls, before = saved.control.model_calls, lost.control.model_calls
    tell(f"answer: {saved.answer} 元, with {calls} calls in place of {before}", GREEN)


def adding_up(tell: Telling, found: Mapping[float, Sequence[Result]]) -> None:
    """Formula and runs, side by side (EB10)."""
    tell.heading(f"How small errors add up: the formula, and {len(RUNS)} runs of ten rounds at each chance")
    sums = len(RECEIPTS)
    curves = {f"1 - (1 - {p}) ** n": [chance_of_an_error(p, n) for n in range(1, sums + 1)] for p in found}
    curves |= {f"runs at {percent(p)} a call": wrong_so_far(results) for p, results in found.items()}
    tell.plot(curves, form=percent)
    tell()
    rows: list[Sequence[object]] = [
        ("a call", f"{sums} rounds, formula", "runs", "95% interval", "99% takes")
    ]
    for p, results in found.items():
        low, high = interval(tally(results).wrong, len(results))
        row = percent(p), percent(chance_of_an_error(p, sums)), percent(tally(results).wrong / len(results))
        rows.append((*row, f"{percent(low)} to {percent(high)}", f"{calls_until(0.99, p)} calls"))
    tell.table(rows)
    needed = percent(1 - (1 - 0.99) ** (1 / sums))
    tell(
        f"For 99% in {sums} rounds {needed} of the calls would have to err: ten rounds at 5 to 15 percent are"
    )
    tell("not close to 100 percent, as the article says, and still too many to live with (EB10).")
    tell("The range itself is unverified (待验证): take the order of magnitude from it, and no more.", DIM)


def what_helps(tell: Telling, found: Mapping[Setting, Sequence[Result]], p: float) -> None:
    """Everything that may surround a call, at one chance of a slip."""
    tell.heading(f"What surrounds the call, at {percent(p)} a call: {len(RUNS)} runs of ten rounds each")
    sums = len(RECEIPTS)
    rows: list[Sequence[object]] = [
        ("", "right", "wrong", "no answer", "wrong, by formula", "95% interval", "calls a run")
    ]
    for setting, results in found.items():
        counted = tally(results)
        low, high = interval(counted.wrong, counted.runs)
        shares = (counted.right, counted.wrong, counted.without_an_answer)
        rows.append(
            (
                setting.name,
                *(percent(each / counted.runs) for each in shares),
                percent(setting.formula(sums)),
                f"{percent(low)} to {percent(high)}",
                f"{counted.model_calls / counted.runs:.1f}",
            )
        )
    tell.table(rows)
    tell()
    tell(
        f"A second look finds {percent(DETECTION)} of the wrong sums, and the round is repeated: fewer errors"
    )
    tell(
        "than three votes leave, for fewer calls. Both need luck that is new with each call. A stubborn model"
    )
    tell(
        "makes the same mistake each time: votes buy nothing then, and a look ends the run, not believing it."
    )


def demo(tell: Telling) -> None:
    """One slip in one run; how slips add up over many; and what a check and votes buy."""
    compared = settings(HIGH)
    found = {setting: [setting.run(seed) for seed in RUNS] for setting in compared}
    bare, guarded, *_ = compared
    low = settings(LOW)[0]
    one_run(tell, bare, guarded)
    adding_up(tell, {LOW: [low.run(seed) for seed in RUNS], HIGH: found[bare]})
    what_helps(tell, found, HIGH)

    tell.heading("The same formulas over more rounds: resilience is bought round by round (循环韧性)")
    rounds = range(1, 41)
    independent = [setting for setting in compared if not setting.stubborn]
    tell.plot({each.name: [each.formula(n) for n in rounds] for each in independent}, form=percent)
    tell("No call became better here. What is around it did.", BOLD)
