"""Each guard answers one way to fail; around one loop, all of them survive a storm that none would alone.

Article A, 五、工程实现: 异常处理, 分层防御, and the flow chart that it asks for and does not draw; article B,
五个失败模式, and its closing question, Rule 与 LLM 的边界.
Covers A-99, A-109, A-125, A-126, B-40..B-44, B-61.

Chapters 15 to 23 had one guard each, in a world made for it. Real failures come together, so here all guards
stand around one loop, ``robust_loop``. That they can is what their form is for: a guard wraps the hook that
it is given, and knows no other. ``guards()`` is the list, and everything is read off it: the loop is built
from it, the chart is drawn from it, and the tests take one after another out of it.

Without them, article B's five failure modes: the loop goes round (B-40), the context explodes (B-41), the
first answer is believed (B-42), an invented tool ends the run (B-43), and the bill is a surprise (B-44).

How they are nested, from the inside outwards (分层防御, A-126):

- ``breaker`` next to the tool, since it must see every attempt; ``retry`` around it, so that an open breaker
  ends the patience at once; ``consistent``, so that it compares results, not first attempts; ``fallback``,
  when all that has failed; ``approval`` around everything, looking at what really goes to the tools.
- ``confident`` around ``patient``: a request that failed is no sample. Of the checks, the cheap one first.

They compose in any order, and each keeps its promise (tests/test_guard_stacks.py); the order decides what
they cost. And they add up: comparing asks three times, so a breaker counts three failures for one call, and
opens sooner than the failures of chapter 20 were counted (EA50).

Which decisions belong to rules (B-61)? Those that take no understanding, since a kind, a count, a clock or a
signature decides them, and that must hold when the model is wrong. What a failure means for the task, and
what to do instead, is the model's: a rule tells it, in words. What cannot be undone is a person's. Each path
of ``guards()`` says to whom it leads, and the demo counts how often each was asked.

What nobody foresaw (A-125): an exception in a hook ends the run with ERROR, and reaches the caller with the
result so far, which is no answer.

The demo runs a few of the storm's seeds. A test runs a thousand, in which every trouble strikes in fifty or
more: at least nine in ten answers are right, and none is wrong. Another takes each guard out. Their figures:
``python -c "import sys; from chapters.ch24_five_failure_modes import *; storms(Telling(sys.stdout))"``

What the storm cannot show: its model is simulated, so its figures say what follows from its troubles, not how
often a real model has them. ``verified`` and ``grounded`` know where an answer's facts come from, not whether
they are true: where all sources err alike, a wrong answer stays wrong. Left out of the list are ``critical``
(chapter 18), since this loop has another tool where a person would be asked, and ``checked`` (chapter 23).

Departures: the articles promise these mechanisms in prose, and their listings leave most of them out (EC01);
where article A has three exceptions and one handler for all, here are kinds of observations, and wrappers.

Exercises
---------
1. Turn the order of the guards around ``act`` upside down in a copy. Which promises hold all the same, and
   what does it cost? ``python -m pytest --impl robust=my_robust.py:robust_loop``
2. Add ``critical`` or ``refused_too_often`` to the list. Which trouble would the storm need, so that one of
   its seeds fails without it? The same command tells whether what was survived still is.
3. Let the guards only count, and take the words out of their warnings and objections. Which promises are
   broken, and what does that say about the boundary between rules and models? Again, the same command.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
from typing import Any, NamedTuple

from agentloop import (
    AgentLoop,
    Effect,
    Kind,
    Limits,
    LoopError,
    Observation,
    Result,
    Step,
    StopReason,
    Toolbox,
    ToolCall,
    World,
    call_tool,
    drive,
)
from chapters.ch15_goal_detection import Check, all_of, verified
from chapters.ch16_hard_limits import WIDE, drive_in_pretend_time, session, sized
from chapters.ch17_repetition_and_convergence import repeated_action, repeated_cycle, stuck_model, warn_first
from chapters.ch17_repetition_and_convergence import run as run_at_the_station
from chapters.ch18_human_in_the_loop import IN_DOUBT, approval
from chapters.ch19_retry_with_backoff import HARMLESS, Patience, patient, retry
from chapters.ch20_fallback_and_errors_as_observations import Way, fallback
from chapters.ch21_circuit_breaker import FAILED, CircuitBreakers, breaker, meaning
from chapters.ch22_hallucination import (
    HALF_REMEMBERED,
    TicketOffice,
    confident,
    consistent,
    corrective,
    dispatched,
    grounded,
    half_remembering_model,
    numbers_in,
    same_text,
)
from chapters.telling import BOLD, GREEN, RED, Telling
from fake_llm import RuleModel, get_weather
from fake_llm.errands import PRICES
from fake_llm.reader import Guidebook, reader
from fake_llm.storm import Storm, Trouble
from paradigms.prompt import whole_history
from paradigms.react import react
from paradigms.views import one_line_each, summarise

# --- The guards, as a list ----------------------------------------------------------------------


@dataclass(frozen=True)
class Situation:
    """What the guards have to know of the world they stand in; the rest they know themselves.

    ``goal`` is a check on answers (chapter 15), ``facts`` the numbers and names an answer claims (22),
    ``dangerous`` says what a call does that needs a yes (18), ``alternatives`` who stands in for a tool (20),
    ``only_reads`` which tools change nothing, and may be asked ``times`` times to compare what they say.
    ``breakers`` are shared by all loops on these tools (21). ``window`` is in tokens.
    """

    tools: Toolbox
    breakers: CircuitBreakers
    goal: Check
    facts: Callable[[Any], Any]
    dangerous: Callable[[ToolCall], str | None]
    alternatives: Mapping[str, Way]
    only_reads: Callable[[str], bool]
    times: int = 3
    agree: Callable[[str, str], bool] = same_text
    patience: Patience = Patience()
    limits: Limits = Limits()
    window: int = 4000


class Place(Enum):
    """Which part of a loop a guard wraps."""

    VIEW = "what is shown"
    REASON = "the decision"
    ACT = "the call"
    ACCEPT = "the answer"
    STOPS = "the end of a round"
    LIMITS = "the whole run"


class Node(Enum):
    """Where a path can lead: its shape in the chart, and who decides there."""

    MODEL = "[the model]", "a rule, by itself"
    TOOL = "[the tool]", "a rule, by itself"
    OTHER_TOOL = "[another tool]", "a rule, by itself"
    END = "(((the run ends: its reason, and what was found)))", "a rule, by itself"
    OBSERVATION = "[the model reads of it]", "the model, told in words"
    WARNING = "[the model is warned]", "the model, told in words"
    PERSON = "[/a person/]", "a person"

    def __init__(self, shape: str, decider: str) -> None:
        self.shape, self.decider = shape, decider


class Path(NamedTuple):
    """A way off the normal one: what happens then, to where, and after which kinds of failure, if any."""

    what: str
    leads_to: Node
    kinds: tuple[Kind, ...] = ()

    def __str__(self) -> str:
        return f"{', '.join(kind.name for kind in self.kinds)}: {self.what}" if self.kinds else self.what


class Guard(NamedTuple):
    """One guard: its chapter, what it wraps, and how; and the paths on which it leads away."""

    name: str
    chapter: int
    place: Place
    wrap: Callable[[Situation, Any], Any]
    paths: tuple[Path, ...]


PASSING = HARMLESS + IN_DOUBT
COUNTED = tuple(kind for kind in Kind if meaning(Observation("", False, kind)) is FAILED)
MADE_UP = (*HALF_REMEMBERED, Kind.REFUSED)


def guards() -> tuple[Guard, ...]:
    """All of them; of those that wrap the same part, the first is the innermost."""
    # fmt: off
    return (
        Guard("limits", 16, Place.LIMITS, lambda s, _: s.limits, (Path("a limit is reached", Node.END),)),
        Guard(
            "bounded view", 26, Place.VIEW,
            lambda s, _: summarise(s.window, by=one_line_each),
            (Path("too much to show: old turns in a line each", Node.MODEL),),
        ),
        Guard(
            "patience", 19, Place.REASON,
            lambda s, reason: patient(reason, patience=s.patience),
            (Path("asked again, later", Node.MODEL, PASSING),),
        ),
        Guard(
            "confidence", 22, Place.REASON,
            lambda s, reason: confident(reason, threshold=0.6, samples=3),  # two of three agree
            (Path("not sure", Node.MODEL), Path("samples do not agree", Node.PERSON)),
        ),
        Guard(
            "breaker", 21, Place.ACT,
            lambda s, act: breaker(act, s.breakers),
            (Path("too many in a row: refused at once", Node.OBSERVATION, COUNTED),),
        ),
        Guard(
            "retry", 19, Place.ACT,
            lambda s, act: retry(act, idempotent=s.tools.is_idempotent, patience=s.patience),
            (Path("called again, later", Node.TOOL, PASSING),),
        ),
        Guard(
            "comparison", 22, Place.ACT,
            lambda s, act: consistent(act, idempotent=s.only_reads, times=s.times, agree=s.agree),
            (Path("results do not agree", Node.OBSERVATION),),
        ),
        Guard(
            "fallback", 20, Place.ACT,
            lambda s, act: fallback(act, s.alternatives, only_reads=s.only_reads),
            (Path("asked elsewhere", Node.OTHER_TOOL, PASSING),),
        ),
        Guard(
            "approval", 18, Place.ACT,
            lambda s, act: approval(act, s.dangerous),
            (Path("it cannot be undone", Node.PERSON),),
        ),
        Guard(
            "goal check", 15, Place.ACCEPT,
            lambda s, checks: (*checks, s.goal),
            (Path("the goal is not met", Node.OBSERVATION),),
        ),
        Guard(
            "facts", 22, Place.ACCEPT,
            lambda s, checks: (*checks, grounded(s.facts)),
            (Path("no observation shows it", Node.OBSERVATION),),
        ),
        Guard(
            "repetition", 17, Place.STOPS,
            lambda s, rules: (*rules, warn_first(repeated_action(), 2), warn_first(repeated_cycle(), 2)),
            (Path("it goes round", Node.WARNING), Path("it goes on going round", Node.END)),
        ),
        Guard(
            "correction", 22, Place.STOPS,
            lambda s, rules: (*rules, corrective(3)),
            (Path("made up", Node.WARNING, MADE_UP), Path("made up too often", Node.END)),
        ),
    )
    # fmt: on


# --- The loop -----------------------------------------------------------------------------------


def robust_loop(situation: Situation, without: Collection[str] = ()) -> AgentLoop:
    """Build the loop that has all guards, but for those named in ``without``.

    It holds no state: run it as often as you like, also side by side. Raises ``ValueError`` for a name that
    is no guard's, and ``TypeError`` for a text in the place of names.
    """
    if isinstance(without, str):
        raise TypeError(f"without must be a collection of names, such as ({without!r},), not one text")
    chosen = tuple(guard for guard in guards() if guard.name not in without)
    unknown = set(without) - {guard.name for guard in guards()}
    if unknown:
        raise ValueError(f"there is no guard {unknown}: there are {', '.join(g.name for g in guards())}")

    def guarded(place: Place, plain: Any) -> Any:
        for guard in chosen:
            if guard.place is place:
                plain = guard.wrap(situation, plain)
        return plain

    view = guarded(Place.VIEW, whole_history)
    checks = guarded(Place.ACCEPT, ())
    return AgentLoop(
        guarded(Place.REASON, react(situation.tools, view)),
        guarded(Place.ACT, call_tool),
        limits=guarded(Place.LIMITS, WIDE),
        accept=all_of(*checks) if checks else None,
        stops=guarded(Place.STOPS, ()),
    )


# --- The flow chart that the article does not draw (A-109) ----------------------------------------


class Edge(NamedTuple):
    """An arrow of the chart."""

    source: str
    target: str
    label: str = ""
    abnormal: bool = True


def edges() -> list[Edge]:
    """The normal way round, through the guards as they are nested, and then each path that leads away."""

    def names(place: Place) -> list[str]:
        return [guard.name for guard in guards() if guard.place is place]

    thinking = ["task", *names(Place.VIEW), Node.MODEL.name, *names(Place.REASON), "decision"]
    acting = ["decision", *names(Place.ACT)[::-1], Node.TOOL.name, Node.OBSERVATION.name]
    again = [Node.OBSERVATION.name, *names(Place.STOPS), *names(Place.LIMITS), thinking[1]]
    answering = ["decision", *names(Place.ACCEPT), "answer"]
    normal = [
        Edge(*pair, "", False) for way in (thinking, acting, again, answering) for pair in pairwise(way)
    ]
    return [
        *normal,
        *(Edge(guard.name, path.leads_to.name, str(path)) for guard in guards() for path in guard.paths),
        Edge(Node.OTHER_TOOL.name, Node.OBSERVATION.name, "what it found, and that it was another"),
        Edge(Node.WARNING.name, thinking[1], "换方向"),
        Edge(Node.PERSON.name, Node.TOOL.name, "yes"),
        Edge(Node.PERSON.name, Node.OBSERVATION.name, f"{Kind.REFUSED.name}, {Kind.NO_HUMAN.name}"),
        Edge(Node.PERSON.name, Node.END.name, StopReason.HUMAN.name),
        Edge("decision", Node.END.name, f"a hook raises: {StopReason.ERROR.name}"),
    ]


def flow_chart() -> str:
    """The chart in Mermaid, its abnormal paths in red."""
    drawn = edges()
    red = ",".join(str(number) for number, edge in enumerate(drawn) if edge.abnormal)
    lines = [
        "flowchart TD",
        "task([a task])",
        "decision{a call, or an answer?}",
        "answer([the answer])",
        *(f"{node.name}{node.shape}" for node in Node),
        *(f'{_key(guard.name)}["{guard.name} ({guard.chapter})"]' for guard in guards()),
        *(f"{_key(edge.source)} -->{_label(edge)} {_key(edge.target)}" for edge in drawn),
        f"linkStyle {red} stroke:red,color:red",
    ]
    return "\n    ".join(lines)


def _key(name: str) -> str:
    return name.replace(" ", "_")


def _label(edge: Edge) -> str:
    return f'|"{edge.label}"|' if edge.label else ""


# --- Article B's five failure modes ---------------------------------------------------------------


class Played(NamedTuple):
    """What came of a run: how it ended, whether its answer is right, and what it took."""

    ending: str
    right: bool
    rounds: int
    tokens: int


def played(result: Result, is_right: Callable[[Any], bool], budget: int | None = None) -> Played:
    """Look at a result from outside; with a ``budget``, in tokens, an answer may also be too dear."""
    spent = result.control
    right = result.answer is not None and is_right(result.answer)
    ending = "right" if right else result.stop.name if result.answer is None else "a wrong answer"
    if right and budget and spent.tokens > budget:
        ending = f"right, for {spent.tokens / budget:.0f} x the budget"
    return Played(ending, right, spent.rounds, spent.tokens)


def endless(guarded: bool) -> Played:
    """The same call for ever, on an error that comes as a result."""
    stops = (warn_first(repeated_action()),) if guarded else ()
    return played(run_at_the_station(stuck_model(), stops=stops), lambda answer: "26" in answer)


PAGES, READERS_WINDOW = 20, 4000  # tokens: what the reader's provider takes


def explosion(guarded: bool) -> Played:
    """Twenty verbose results, and a model whose window they outgrow."""
    book = Guidebook(PAGES, tokens=400)
    tools = Toolbox([book.read_page])
    view = summarise(READERS_WINDOW) if guarded else whole_history
    loop = AgentLoop(react(tools, view), limits=replace(WIDE, rounds=2 * PAGES, failures=5))
    result = drive(loop.run(book.task), World(reader(window=READERS_WINDOW), tools, inline=True))
    return played(result, lambda answer: all(book.answered(answer)))


def early(guarded: bool) -> Played:
    """A confident answer in the first round."""
    tools = Toolbox([get_weather])
    look = 'Thought: 那就查一下。\nAction: get_weather(city="北京")'
    rules = [("当前天气", "Thought: 查到了。\nAction: Finish[今天北京晴。]"), ("Verify", look)]
    model = RuleModel(rules, otherwise="Thought: 北京我很熟。\nAction: Finish[今天北京下雪。]")
    loop = AgentLoop(react(tools), accept=verified("get_weather") if guarded else None)
    result = drive(loop.run("今天北京天气怎么样？"), World(model, tools, inline=True))
    return played(result, lambda answer: "晴" in answer)


def invented(guarded: bool) -> Played:
    """A tool that does not exist: looked up in a dictionary, or refused in words by the toolbox."""
    office = TicketOffice()
    tools = Toolbox([office.list_tickets, office.cancel_ticket])
    act = call_tool if guarded else dispatched({"list_tickets": office.list_tickets})
    loop = AgentLoop(react(tools), act, stops=(corrective(),) if guarded else ())
    try:
        result = drive(loop.run("我订了哪些票？"), World(half_remembering_model(), tools, inline=True))
    except LoopError as error:
        return played(error.result, bool)._replace(
            ending=f"{type(error.__cause__).__name__}: {error.__cause__}"
        )
    return played(result, lambda answer: "故宫" in answer and office.held == ["故宫"])


def silent_cost(guarded: bool) -> Played:
    """Three rounds were expected, thirty run; the limits are ten times what was measured."""
    limits = sized([session(rounds).control for rounds in (2, 3, 3)])
    return played(session(30, limits if guarded else WIDE), lambda answer: answer == "找到了", limits.tokens)


#: Each mode with the guard that catches it: the same world and script without it, and with it.
MODES: dict[str, tuple[str, Callable[[bool], Played]]] = {
    "无限循环": ("repetition, with a warning", endless),
    "上下文爆炸": ("a bounded view", explosion),
    "过早退出": ("a goal check", early),
    "幻觉工具调用": ("structured errors", invented),
    "成本静默爆炸": ("limits from a log", silent_cost),
}

# --- The storm ------------------------------------------------------------------------------------


class Fate(Enum):
    """What became of an errand."""

    RIGHT = "a right answer"
    HONEST = "no answer, and said so"
    CRASHED = "a hook raised an exception"
    WRONG = "a wrong answer"
    HARMFUL = "money spent that nobody allowed"
    DEAR = "more than twice what is allowed"


class Weathered(NamedTuple):
    """One errand in one storm; ``effects`` counts what was asked of the world."""

    storm: Storm
    result: Result
    fate: Fate
    effects: Counter[str]


ALLOWED = Limits(rounds=25, model_calls=75, tool_calls=200, effects=1000, seconds=600.0)
#: A look at the storm: each of these seeds fails if this one guard is taken out. Found by running.
NEEDED = {
    "limits": 139,
    "bounded view": 244,
    "patience": 349,
    "confidence": 37,
    "breaker": 187,
    "retry": 119,
    "comparison": 147,
    "fallback": 208,
    "approval": 40,
    "goal check": 13,
    "facts": 12,
    "repetition": 86,
    "correction": 221,
}


def facts_of(answer: str) -> list[str]:
    """What an answer to an errand claims: its numbers, and the places that it names."""
    return [*numbers_in(answer), *(place for place in PRICES if place in answer)]


def spends(call: ToolCall) -> str | None:
    """Say of the one tool that cannot be undone what it does."""
    return "spends money" if call.name == "pay" else None


def on_the_first_line(one: str, other: str) -> bool:
    """Whether two results say the same before whatever else they say."""
    return same_text(one.partition("\n")[0], other.partition("\n")[0])


def situation(storm: Storm) -> Situation:
    """What the guards must know of a storm's tools: nothing of its troubles."""
    return Situation(
        storm.tools,
        CircuitBreakers(clock=storm.clock.now),
        goal=verified("look_for", "add_up"),
        facts=facts_of,
        dangerous=spends,
        alternatives={"ask_at": "ask_by_phone", "get_price": "price_by_phone"},
        only_reads=lambda name: spends(ToolCall(name, {})) is None,
        agree=on_the_first_line,
        patience=Patience(3, 1.0, 4.0, 15.0, random.Random(24).random, lambda: 0.0),
        limits=ALLOWED,
        window=2000,
    )


def weather(
    seed: int, without: Collection[str] = (), watch: Callable[[Step], object] | None = None
) -> Weathered:
    """Run the errand of one seed, through all the troubles that its storm has."""
    storm, effects = Storm(seed), Counter[str]()
    loop = replace(robust_loop(situation(storm), without), watch=watch)

    def takes(effect: Effect) -> float:
        effects[type(effect).__name__] += 1
        return storm.takes(effect)

    try:
        result = drive_in_pretend_time(loop.run(storm.errand.text), storm.world, storm.clock, takes)
    except LoopError as error:
        result = error.result
    return Weathered(storm, result, fate(storm, result), effects)


def fate(storm: Storm, result: Result) -> Fate:
    """Judge a run from outside: by the errand's own check, the money, and what was spent."""
    if storm.ledger:
        return Fate.HARMFUL
    if result.stop is StopReason.ERROR:
        return Fate.CRASHED
    if result.answer is not None and not storm.errand.is_right(result.answer):
        return Fate.WRONG
    spent = result.control
    if spent.seconds > 2 * ALLOWED.seconds or spent.tokens > 2 * ALLOWED.tokens:
        return Fate.DEAR
    return Fate.HONEST if result.answer is None else Fate.RIGHT


#: A loop with its limits and nothing else.
BARE = tuple(guard.name for guard in guards() if guard.place is not Place.LIMITS)

# --- The story ------------------------------------------------------------------------------------

SEEDS = range(50)
CLOSE_UP = 1239  # a seed with five troubles


def demo(tell: Telling) -> None:
    """Five failure modes, then all at once; each guard missed; who decides what; the chart; and a bug."""
    tell.heading(
        "The five failure modes (五个失败模式): each on the same script, without its guard and with it"
    )
    tell.table(
        [("", "without", "rounds", "tokens", "guard", "with it", "rounds", "tokens"), *map(told, MODES)]
    )

    storm = Storm(CLOSE_UP)
    tell.heading(f"One storm from nearby. The errand: {storm.errand.text}")
    close_up(tell, "only limits", BARE)
    close_up(tell, "all guards", ())

    runs = storms(tell, SEEDS)
    tell.heading("One guard missing, all others there: a seed that each is needed for")
    tell.table([("missing", "in a storm where", "with all guards", "without it"), *map(missed, NEEDED)])

    who_decides(tell, runs)
    tell.heading("What nobody foresaw: a bug in a hook, in the middle of an errand (未知异常)")
    broken(tell)
    tell.heading("The way round, and every way off it (流程图), drawn from the list of guards")
    off = sum(edge.abnormal for edge in edges())
    tell(f"{len(edges())} arrows, {off} of them off the normal way, red. What Mermaid draws is printed by:")
    tell('python -c "from chapters.ch24_five_failure_modes import *; print(flow_chart())"')


def told(mode: str) -> tuple[object, ...]:
    """A line of the table: a failure mode without its guard, and with it."""
    guard, play = MODES[mode]
    without, with_it = play(False), play(True)
    return (mode, without.ending, *without[2:], guard, with_it.ending, *with_it[2:])


def close_up(tell: Telling, name: str, without: Collection[str]) -> None:
    """Watch one run in a storm, and say what it met and what became of it."""
    run = weather(CLOSE_UP, without, tell.watch(name, ALLOWED))
    tell("It met:")
    tell.table(("  -", trouble.value) for trouble in Trouble if run.storm.struck[trouble])
    tell(f"and came to {run.fate.value}: {run.result.answer}", GREEN if run.fate is Fate.RIGHT else RED)


def storms(tell: Telling, seeds: Sequence[int] = range(1000)) -> list[Weathered]:
    """What became of all these errands, under limits alone and under all guards; returns the latter runs."""
    bare, robust = [weather(seed, BARE) for seed in seeds], [weather(seed) for seed in seeds]
    tell.heading(f"A storm: {len(seeds)} seeds, each an errand with troubles of its own; what became of it")
    fates = [counted("only limits", bare), counted("all guards", robust)]
    tell.table([("", *(each.value for each in Fate)), *fates])
    tell()
    tell("What struck, and how many of the seeds in which it did came to a right answer all the same:")
    rows = [struck(each, bare, robust) for each in Trouble]
    tell.table([("", "only limits", "all guards"), *rows])
    told_wrong = sum(each.fate is Fate.WRONG for each in robust)
    tell(f"Wrong answers told as right: {told_wrong}", RED if told_wrong else GREEN)
    return robust


def counted(name: str, runs: Iterable[Weathered]) -> tuple[object, ...]:
    """A line of the table: how many runs had each fate."""
    fates = Counter(each.fate for each in runs)
    return (name, *(fates[each] for each in Fate))


def struck(trouble: Trouble, bare: list[Weathered], robust: list[Weathered]) -> tuple[object, ...]:
    """A line of the table: of the seeds in which a trouble struck, how many were right."""

    def right(runs: list[Weathered]) -> str:
        hit = [each for each in runs if each.storm.struck[trouble]]
        return f"{sum(each.fate is Fate.RIGHT for each in hit)} of {len(hit)}"

    return trouble.value, right(bare), right(robust)


def missed(name: str) -> tuple[object, ...]:
    """A line of the table: a seed with all guards, and without this one."""
    seed = NEEDED[name]
    whole, lacking = weather(seed), weather(seed, (name,))
    troubles = ", ".join(trouble.name for trouble in Trouble if whole.storm.struck[trouble])
    ended = lacking.fate.value if lacking.fate is not Fate.HONEST else lacking.result.stop.name
    return name, f"{troubles} ({seed})", whole.fate.value, ended


def who_decides(tell: Telling, runs: Iterable[Weathered]) -> None:
    """The paths by whom they lead to, and how often each was asked in the storm."""
    tell.heading("Which decisions belong to rules? (Rule 与 LLM 的边界)")
    rows: list[tuple[object, ...]] = [("decided by", "noticed by", "when")]
    paths = [(path, guard) for guard in guards() for path in guard.paths]
    for node in Node:
        rows += [(node.decider, guard.name, path) for path, guard in paths if path.leads_to is node]
    tell.table(rows)
    asked = sum((each.effects for each in runs), Counter[str]())
    rules = asked["Do"] + asked["Sleep"]
    tell(
        f"In this storm the model decided {asked['CallModel']} times, rules asked a breaker, drew or waited",
        BOLD,
    )
    tell(f"{rules} times, and a person was asked {asked['AskHuman']} times.", BOLD)


def broken(tell: Telling) -> None:
    """A hook with a bug, of the kind that no guard is made for."""
    storm = Storm(1, brewing=())

    def dangerous(call: ToolCall) -> str | None:
        return {"ask_at": None, "get_price": None}[call.name]  # it knows two tools, and there are more

    loop = robust_loop(replace(situation(storm), dangerous=dangerous))
    try:
        drive(loop.run(storm.errand.text), storm.world)
    except LoopError as error:
        tell(str(error), RED)
        tell.result(error.result)
