"""No single limit stops every runaway, so a loop has several, each as wide as normal runs and no wider.

Article A, 循环终止条件设计, 安全终止; article B, 循环怎么停, 硬上限 and 五个失败模式, 成本静默爆炸.
Covers A-104..A-106, B-25, B-26, B-28..B-35, B-44.

Unlike chapter 15, where a loop ended because its work was done, this one is about those that will not end.
Article B wants three kinds of stop at once (B-26): normal convergence (chapter 15), hard limits (this
chapter), signals from outside (chapters 17 and 18). The kernel has the limits (``Limits``; chapter 03 walked
all of them); this chapter shows what each is for, how wide it should be, and what is left when it is reached:

====================  ==================================  ===============================================
limit                 what it catches, and others miss    how wide (``sized``)
====================  ==================================  ===============================================
rounds (A-104, B-28)  a loop that goes round, cheaply     5/3 of the hardest task: 3 -> 5, 15 -> 25
tokens (A-105, B-29)  few rounds that are very dear       10 times the mean of successful runs
seconds (A-106, B-30) a call that hangs                   3 times the 95th percentile
====================  ==================================  ===============================================

The book has one limit, of 5 rounds (B-25). With it alone a loop that reads large files, or one whose tool
hangs, is stopped by nothing; and a limit that ends in an exception throws away what was found until then.
Here a limit ends in a ``Result`` whose ``summary`` begins with the limit, what was used of it and what was
allowed, and lists what was found (优雅降级, B-33, B-35). Its ``control`` is the record of the session, with
rounds and tokens (B-44): from a log of them ``sized`` makes limits, and a person sees which limit to raise,
and which fault to mend. A limit is a safety net and no optimisation (B-32).

Departures: n rounds are exactly n, and the limit that was reached is named (EB09, B-34). Tokens are counted
over all requests, in and out: so 100 small calls do reach the budget where history is sent again, and 30
rounds cost 32 times what 3 cost, not 10 times (EB11; how many times depends on how large a round is beside
system prompt and task: in chapter 29 it is 78). A prompt is sized before it is sent, or the budget of
50k would be found exceeded by the request that exceeded it (EB12). A hanging call is cut off by its own
limit, from outside; a deadline that is looked at between rounds is looked at when the call is over (EB13).

In this chapter time is pretended: ``drive_in_pretend_time`` is a driver in which calls take as long as they
are told to, and nobody waits. Chapter 07 has the drivers that cut off calls in earnest.

Exercises
---------
1. Write ``sized`` so that it trusts the article to the letter, 10 times the mean and nothing else. Which
   successful run would it have stopped? ``python -m pytest --impl sized=my_limits.py:sized``
2. Let ``sized`` take failed runs into account. What happens to the limits when the loop gets worse?
   The same command has an opinion.
3. Mend ``bare_loop``: n rounds exactly, the name of the limit, and what was found until then. Then give it
   the signature of ``AgentLoop``, and ask what else an ending owes:
   ``python -m pytest --impl loop=my_bare_loop.py:MyLoop``
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from agentloop import (
    CODING,
    QUESTION_ANSWERING,
    RESEARCH,
    AgentLoop,
    CallModel,
    CallTool,
    Control,
    Effect,
    Finish,
    Limits,
    Message,
    Program,
    Reply,
    Result,
    Stage,
    Step,
    StopReason,
    Toolbox,
    Usage,
    World,
    drive,
    estimate_tokens,
    not_begun,
    perform,
    too_late,
)
from chapters.telling import GREEN, RED, Telling
from fake_llm import FakeClock, ScriptedModel, get_weather, huge_result
from paradigms.prompt import View, last_turns, think, whole_history
from paradigms.react import react
from paradigms.text_protocol import contract, parse, render

T = TypeVar("T")

# --- How wide: limits from measured runs ------------------------------------------------------------

#: The ends of runs that did what they should, and can tell what such a run needs.
SUCCESSES = (StopReason.FINAL_ANSWER, StopReason.EXTERNALLY_DONE)
#: What a control tells that has a limit.
MEASURED = ("rounds", "model_calls", "tool_calls", "effects", "tokens", "cost", "seconds")
TIMES_THE_MEAN = 10  # tokens and cost (article B: 5k -> 50k)
TIMES_THE_PERCENTILE = 3  # seconds (article B: 2 to 3)


def sized(runs: Iterable[Control], otherwise: Limits = QUESTION_ANSWERING) -> Limits:
    """Limits for the next run, from the controls of measured ones: ``sized(result.control for ...)``.

    Rounds, calls and effects: 5/3 of what the hardest run used (15 -> 25). Tokens and cost: 10 times the
    mean. Seconds: 3 times the 95th percentile, which is the slowest where there are fewer than 20 runs. None
    is ever less than 5/3 of what some run used: a run like one that was measured is never stopped.

    Failed runs are left out: what a runaway used says nothing about what is needed. What no run used at all
    (the cost, where the model tells none), and what a control does not tell (failures in a row, seconds a
    call), is as in ``otherwise``. Few runs make for poor limits: measure at least 20, hard ones among them.
    This is a safety net and no optimisation: a run that reaches these limits has a fault.

    Raises ``ValueError`` where no run succeeded, and ``TypeError`` for what is no ``Control``.
    """
    measured = list(runs)
    for run in measured:
        if not isinstance(run, Control):
            raise TypeError(f"sized takes controls, such as [result.control for ...], not {run!r}")
    done = [run for run in measured if run.stop in SUCCESSES]
    if not done:
        raise ValueError(f"none of the {len(measured)} runs succeeded: nothing tells what a run needs")
    hardest = {name: max(getattr(run, name) for run in done) for name in MEASURED}
    floors = {name: -(-5 * used // 3) for name, used in hardest.items()}  # rounded up
    floors["cost"], floors["seconds"] = 5 * hardest["cost"] / 3, 5 * hardest["seconds"] / 3
    wide = {
        "tokens": math.ceil(TIMES_THE_MEAN * sum(run.tokens for run in done) / len(done)),
        "cost": TIMES_THE_MEAN * math.fsum(run.cost for run in done) / len(done),
        "seconds": TIMES_THE_PERCENTILE * percentile_95([run.seconds for run in done]),
    }
    limits = {name: max(floor, wide.get(name, 0)) for name, floor in floors.items()}
    return replace(otherwise, **{name: limit for name, limit in limits.items() if limit > 0})


def percentile_95(values: list[float]) -> float:
    """The value that 95 of 100 do not exceed (nearest rank); of fewer than 20, the largest."""
    return sorted(values)[-(-95 * len(values) // 100) - 1]


# --- Time that nobody waits for ---------------------------------------------------------------------


def drive_in_pretend_time(
    program: Program[T],
    world: World,
    clock: FakeClock,
    takes: Callable[[Effect], float],
    cuts: bool = True,
) -> T:
    """Drive on a fake clock, on which each effect takes the seconds that ``takes(effect)`` says.

    One that would take longer than it is allowed is left behind at that moment, as the drivers of chapter 07
    do. Where ``cuts`` is false it is waited for: what a deadline comes to that is looked at between rounds.
    A ``Sleep`` moves the clock, too. Programs side by side take their turns, so that their times add up.
    A person's time is the run's, and one who is ``Away`` ends it at once, whatever waits beside.
    """
    stage, world = Stage(program), replace(world, sleep=clock.sleep)
    waiting = deque(stage.waiting)
    while not stage.finished:
        strand = waiting.popleft()
        waiting += stage.deliver(strand, _passed(strand.effect, world, clock, takes, cuts), clock.now())
    result: T = stage.result
    return result


def _passed(
    effect: Effect, world: World, clock: FakeClock, takes: Callable[[Effect], float], cuts: bool
) -> Any:
    """Let the time of an effect pass, and return what came of it."""
    if clock.now() >= effect.deadline:
        return not_begun(effect)
    seconds = takes(effect)
    if cuts and seconds > effect.allowed:
        clock.advance(effect.allowed)
        return too_late(effect)
    clock.advance(seconds)
    return perform(effect, world)


def taking(model: float, tool: float) -> Callable[[Effect], float]:
    """What effects take, in seconds, where only models and tools take any."""
    seconds = {CallModel: model, CallTool: tool}
    return lambda effect: seconds.get(type(effect), 0.0)


# --- Things that run away ---------------------------------------------------------------------------

#: Limits that nothing here reaches: ``replace(WIDE, rounds=25)`` is one limit alone.
WIDE = Limits(
    rounds=1000,
    model_calls=1000,
    tool_calls=1000,
    effects=10_000,
    failures=1000,
    tokens=10**8,
    cost=1e6,
    seconds=1e6,
    call_seconds=1e6,
)
#: The article's three (B:61-63), with the seconds of a loop whose p95 is 20 s.
ROUNDS, TOKENS, SECONDS = 25, 50_000, 60.0


def read_file(name: str) -> str:
    """Read a file."""
    return f"{name}: (nothing in it)"


class Runaway(NamedTuple):
    """A model that makes the same kind of call ``times`` times before it answers, and what a call takes."""

    name: str
    action: str
    times: int
    seconds: float = 0.1  # of one tool call
    view: View = whole_history


RUNAWAYS = (
    Runaway("3 files of 50,000 tokens", 'read_file(name="part_{}.log")', 3),
    Runaway("100 small quick calls, a window of 1", 'get_weather(city="北京")', 100, view=last_turns(1)),
    Runaway("100 small quick calls, whole history", 'get_weather(city="北京")', 100),
    Runaway("1 call that hangs for 10 minutes", 'get_weather(city="北京")', 1, seconds=600.0),
)


def let_run(
    runaway: Runaway, limits: Limits, cuts: bool = True, watch: Callable[[Step], object] | None = None
) -> Result:
    """Let it run under these limits, from the same script in the same world."""
    tools = Toolbox([get_weather, huge_result(read_file, 50_000)], max_characters=100_000)
    actions = [f"Action: {runaway.action.format(number)}" for number in range(1, runaway.times + 1)]
    world = World(ScriptedModel([*actions, "Action: Finish[好了]"]), tools)
    loop = AgentLoop(react(tools, runaway.view), limits=limits, watch=watch)

    takes = taking(model=0.2, tool=runaway.seconds)
    return drive_in_pretend_time(loop.run("好了吗？"), world, FakeClock(), takes, cuts)


# --- A search that is cut short ---------------------------------------------------------------------

PAPERS = (
    "Chain-of-Thought (Wei et al., 2022)",
    "Self-Consistency (Wang et al., 2022)",
    "ReAct (Yao et al., 2022)",
    "Reflexion (Shinn et al., 2023)",
    "Tree of Thoughts (Yao et al., 2023)",
    "Plan-and-Solve (Wang et al., 2023)",
    "Lost in the Middle (Liu et al., 2023)",
    "Toolformer (Schick et al., 2023)",
    "Voyager (Wang et al., 2023)",
    "Generative Agents (Park et al., 2023)",
)


def find_paper(number: int) -> str:
    """Find one paper on agent loops."""
    return PAPERS[number - 1]


SEARCH = [f"Action: find_paper(number={number})" for number in range(1, len(PAPERS) + 1)]


def bare_loop(task: str, tools: Toolbox, max_iterations: int) -> Program[str]:
    """The loop that many start from: its limit is an exception, and what was found is a local variable."""
    messages = [Message("system", contract(tools)), Message("user", task)]
    for _ in range(max_iterations):
        reply = (yield CallModel(tuple(messages))).value
        decision = parse(reply.text, tools)
        if isinstance(decision, Finish):
            return str(decision.answer)
        observation = (yield CallTool(decision.calls[0])).value
        messages += [Message("assistant", reply.text), Message("user", f"Observation: {observation.text}")]
    raise RuntimeError("Error: iteration limit exceeded")


# --- The silent explosion of cost (成本静默爆炸) -----------------------------------------------------

PRICE = 3e-6  # of one token
SYSTEM_TOKENS, TURN_TOKENS = 1000, 200  # of a system prompt with its tools, and of one round (B:106)


def session(rounds: int, limits: Limits = WIDE) -> Result:
    """A session of so many rounds, with a system prompt and turns of the article's sizes."""

    def search(topic: str) -> str:
        """Search the library."""
        return padded(f"{topic}: 未找到", TURN_TOKENS * 4 // 5)

    tools = Toolbox([search])
    thought = padded("Thought: 再查一次。", TURN_TOKENS // 5)
    script = [f'{thought}\nAction: search(topic="loop {number}")' for number in range(1, rounds)]
    model = ScriptedModel([*script, f"{thought}\nAction: Finish[找到了]"])

    def priced(request: CallModel) -> Reply:
        reply: Reply = model(request)
        tokens = request.tokens + estimate_tokens(reply.text)
        return reply._replace(usage=Usage(tokens, tokens * PRICE))

    hook = think(padded(contract(tools), SYSTEM_TOKENS), lambda reply: parse(reply.text, tools), render)
    program = AgentLoop(hook, limits=limits).run("找资料")
    return drive_in_pretend_time(program, World(priced, tools), FakeClock(), taking(model=1.5, tool=0.5))


def padded(text: str, tokens: int) -> str:
    """The text, made up to so many tokens."""
    return text + "\n" + "。" * (tokens - estimate_tokens(text) - 1)


# --- The story --------------------------------------------------------------------------------------


def demo(tell: Telling) -> None:
    """Four runaways under one limit at a time; what a limit leaves; and what a limit costs to lack."""
    alone = {
        f"rounds {ROUNDS}": replace(WIDE, rounds=ROUNDS),
        f"tokens {TOKENS:,}": replace(WIDE, tokens=TOKENS),
        f"seconds {SECONDS:g}": replace(WIDE, seconds=SECONDS),
    }
    tell.heading("One limit alone, and all others wide (三道缺一不可)")
    tell.table([("", *alone), *((each.name, *(caught(let_run(each, one)) for one in alone.values()))
                                for each in RUNAWAYS)])  # fmt: skip
    tell("Each column misses something. Article B says that small calls never reach the budget: with a")
    tell("window they do not; where the whole history is sent again, they do (EB11). In which round")
    tell("depends on how much a round brings, beside system prompt and task: in chapter 29 it is more.")

    tell.heading("All three at once")
    limits = replace(WIDE, rounds=ROUNDS, tokens=TOKENS, seconds=SECONDS)
    tell.table([("", "ended by", "rounds", "tokens", "seconds"),
                *((each.name, *figures(let_run(each, limits))) for each in RUNAWAYS)])  # fmt: skip

    too_large(tell)
    hanging(tell)
    cut_short(tell)
    explosion(tell)

    tell.heading("The presets, by kind of task (简单问答型、研究型、编码型)")
    presets = {"QUESTION_ANSWERING": QUESTION_ANSWERING, "RESEARCH": RESEARCH, "CODING": CODING}
    names = ("rounds", "tokens", "cost", "seconds", "call_seconds")
    tell.table([("", *names), *((name, *(f"{getattr(one, each):,}" for each in names))
                                for name, one in presets.items())])  # fmt: skip


def caught(result: Result) -> str:
    """In which round a run was stopped, if it was."""
    if result.stop is StopReason.FINAL_ANSWER:
        return "missed"
    return f"caught in round {result.control.rounds}"


def figures(result: Result) -> tuple[object, ...]:
    """How a run ended, and what it had used by then."""
    control = result.control
    return result.stop.name, control.rounds, f"{control.tokens:,}", f"{control.seconds:.1f}"


def too_large(tell: Telling) -> None:
    """The budget is asked before the request, or found exceeded after it."""
    tell.heading("A budget that is looked at afterwards, and one that sizes the prompt (EB12)")
    spent: list[int] = []

    def watch(step: Step) -> None:
        if step.turn is not None:
            spent.append(step.after.tokens)

    let_run(RUNAWAYS[0], WIDE, watch=watch)
    first = next(number for number, tokens in enumerate(spent, 1) if tokens > TOKENS)
    tell(f"Spent after each request: {', '.join(f'{tokens:,}' for tokens in spent)} tokens.")
    tell(f"Looked at afterwards: over {TOKENS:,} after request {first}, with {spent[first - 1]:,} paid.", RED)
    result = let_run(RUNAWAYS[0], replace(WIDE, tokens=TOKENS))
    used, requests = result.control.tokens, result.control.model_calls
    tell(
        f"Sized before it is sent: {used:,} tokens paid in {requests} request; the next was not sent.", GREEN
    )


def hanging(tell: Telling) -> None:
    """The same call under a deadline between rounds, a deadline from outside, and a limit of its own."""
    tell.heading("A call that hangs for 10 minutes, and three ways to look at the clock (EB13)")
    minute, short = replace(WIDE, seconds=SECONDS), replace(WIDE, seconds=SECONDS, call_seconds=30.0)
    ways = (
        ("the deadline is looked at between rounds", let_run(RUNAWAYS[-1], minute, cuts=False)),
        ("the call is given what is left of it", let_run(RUNAWAYS[-1], minute)),
        ("the call has a limit of its own, 30 s", let_run(RUNAWAYS[-1], short)),
    )
    tell.table(
        [("", "ended by", "rounds", "tokens", "seconds"), *((name, *figures(one)) for name, one in ways)]
    )
    tell(f"In the last, the model was told: {ways[-1][1].turns[0].observations[0].text}", GREEN)


def cut_short(tell: Telling) -> None:
    """Ten papers, and seven rounds to find them in."""
    tools, task, rounds = Toolbox([find_paper]), "找 10 篇关于 agent loop 的论文", 7
    tell.heading("The limit as an exception")
    try:
        drive(bare_loop(task, tools, rounds), World(ScriptedModel(SEARCH), tools, inline=True))
    except RuntimeError as error:
        tell(str(error), RED)
    tell.heading("The same script, and the limit as an ending (优雅降级)")
    loop = AgentLoop(react(tools), limits=Limits(rounds=rounds))
    tell.result(drive(loop.run(task), World(ScriptedModel(SEARCH), tools, inline=True)))


def explosion(tell: Telling) -> None:
    """Three rounds were expected, and thirty run."""
    tell.heading("3 rounds expected, 30 run (成本静默爆炸)")
    log = [session(rounds).control for rounds in (2, 3, 3, 3, 2, 3, 3, 3)]  # what was measured
    limits, usual = sized(log), session(3).control.tokens
    kinds: dict[str, Any] = {
        "nothing": WIDE,
        f"the rounds of RESEARCH, {RESEARCH.rounds}": replace(WIDE, rounds=RESEARCH.rounds),
        f"10 times the mean tokens, {limits.tokens:,}": replace(WIDE, tokens=limits.tokens),
        f"10 times the mean cost, {limits.cost:.3f}": replace(WIDE, cost=limits.cost),
        f"5/3 of the hardest, {limits.rounds} rounds": replace(WIDE, rounds=limits.rounds),
        "all that was sized": limits,
    }
    rows = []
    for name, each in kinds.items():
        result = session(30, each)
        rows.append((name, *figures(result), f"{result.control.tokens / usual:.1f}"))
    tell.table([("stopped by", "ended by", "rounds", "tokens", "seconds", "times 3 rounds"), *rows])
    tell(f"Sized from the log of {len(log)} sessions, of at most {max(run.rounds for run in log)} rounds.")
