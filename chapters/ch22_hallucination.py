"""What no observation ever showed is no fact: refuse it in words, ask again, and only a few times.

Article A, 异常处理: 幻觉传播抑制, and the handler of HallucinationDetectedError; article B,
五个失败模式: 幻觉工具调用. Covers A-113..A-115, A-123, B-43.

Unlike chapters 19 to 21, whose failures announce themselves, a hallucination looks like a success: a fluent
answer, a confident call. There are four places to notice one, each a guard of its own that knows no other:

- a call (B-43): the toolbox checks name and arguments before anything runs, and says what would be right.
  Without it the run crashes; and a dispatcher that helps (``helpful``) runs what nobody asked for.
- an answer (自我验证, A-113): ``grounded`` refuses one whose numbers and names stand in no observation.
- a result (工具结果校验, A-114): ``consistent`` puts the same question to several tools, or several times,
  side by side, and passes on what most of them say. Only what is idempotent is ever repeated.
- a decision (置信度阈值, A-115): ``confident`` asks again where the model is not sure, since samples that
  agree are worth more than words (self-consistency, Wang et al., 2022), and then a person.

And then the correction (A-123): ``corrective`` warns the model after each hallucination, and ends the run
when that has not helped a few times. Without a limit of its own the run burns its whole budget in silence.

What cannot be promised: a name that a tool only repeats (``没见过小猫``) counts as shown, a sum that the
model worked out does not, and sources that share an error agree. Failed observations are no evidence,
because they quote what the model made up.

Departures: the article's handler appends a warning and changes nothing (EA52): while waiting, the same
observation fails again and again, and the model is not even asked. Here the warning belongs to the turn,
REASONING is next as after any observation, and the number of corrections is bounded.

Exercises
---------
1. ``any_text`` below compares facts as plain texts. Which numbers does it let through?
   ``python -m pytest --impl grounded=chapters/ch22_hallucination.py:any_text``
2. Write a ``consistent`` that asks a third source only where two disagree:
   ``python -m pytest --impl consistent=my_guards.py:consistent``. What does it save, and what does it cost?
3. Weigh samples by the confidence that they state, instead of counting them:
   ``python -m pytest --impl confident=my_guards.py:confident``
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeVar

from agentloop import (
    RESEARCH,
    Act,
    AgentLoop,
    AskHuman,
    Control,
    Finish,
    Interrupted,
    Kind,
    LimitReached,
    LoopContext,
    LoopError,
    Observation,
    Program,
    StopReason,
    Together,
    Toolbox,
    ToolCall,
    World,
    call_text,
    call_tool,
    cut,
    drive,
    on_one_line,
    settle,
)
from chapters.ch15_goal_detection import Check, Rule, is_yes, not_taken
from chapters.ch18_human_in_the_loop import IN_DOUBT
from chapters.telling import GREEN, RED, Telling
from fake_llm import RuleModel, ScriptedModel, get_attraction, get_weather
from paradigms.arguments import require, require_function, require_share
from paradigms.chain_of_thought import cut_short, read_confidence
from paradigms.evaluators import ask
from paradigms.react import react

Decision = Act | Finish
ReasonHook = Callable[[LoopContext], Any]
ActHook = Callable[[ToolCall], Any]
T = TypeVar("T")

# --- An answer: its facts must stand in an observation (自我验证) ----------------------------------

UNGROUNDED = "No observation shows"


def grounded(facts: Callable[[Any], Any]) -> Check:
    """Make the ``accept`` check that refuses an answer with a fact that nothing showed.

    ``facts(answer)`` returns the numbers and names that the answer claims, or is a program that does;
    ``None`` says that they could not be read, and what cannot be checked is refused. A fact is shown by
    the task or by an observation that succeeded. Its refusals are failed rounds; ``corrective`` bounds them.
    """
    require_function("facts", facts)

    def check(context: LoopContext, answer: Any) -> Program[str | None]:
        claimed = yield from settle(facts(answer))
        if claimed is None:
            return f"{UNGROUNDED} what this answer claims: its facts could not be read. Say it more plainly."
        if isinstance(claimed, str) or not isinstance(claimed, Iterable):
            raise TypeError(f"facts(answer) returns facts such as ['26', '颐和园'], or None, not {claimed!r}")
        missing = unshown(claimed, evidence(context))
        if not missing:
            return None
        return f"{UNGROUNDED}: {cut(', '.join(missing), 500)}. Look it up, or leave it out."

    return check


def evidence(context: LoopContext) -> list[str]:
    """What a fact may rest on: the task, and every observation that succeeded."""
    seen = [seen.text for turn in context.turns for seen in turn.observations if seen.ok]
    return [str(context.task), *seen]


def plain(fact: object) -> str:
    """A text as it is compared: full-width letters, capitals and gaps make no difference."""
    usual = "".join(each if _is_raised(each) else unicodedata.normalize("NFKC", each) for each in str(fact))
    return " ".join(unicodedata.normalize("NFC", usual).casefold().split())


def _is_raised(character: str) -> bool:
    """Whether it is a number but no digit, such as the ² of 10², which is not 102."""
    return unicodedata.category(character) == "No"


#: What no number begins after: not the 4 of "A4", nor the 5 of "v1.5".
_BEFORE = r"(?<![0-9a-z])(?<![0-9]\.)"
#: A number, with or without thousands commas; its sign may be a word. Not the -5 of "3-5".
_NUMBER = re.compile(
    _BEFORE + r"(零下 ?|负|-|−)?((?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|(?<!\.)\.[0-9]+)"
)


def numbers(text: str) -> set[Decimal]:
    """Every number in a plain text: 26 and 26.0 are the same, 6 is not in 26."""
    found = _NUMBER.findall(text)
    return {Decimal(f"{'-' if sign else ''}{number.replace(',', '')}") for sign, number in found}


def unshown(facts: Iterable[object], texts: Iterable[str]) -> list[str]:
    """The facts that none of the texts shows: a number by its value, a name as a whole word."""
    shown = [plain(text) for text in texts]
    values = set[Decimal]().union(*map(numbers, shown))
    missing = []
    for fact in map(plain, facts):
        by_value = _NUMBER.fullmatch(fact)
        if not (numbers(fact) <= values if by_value else fact and any(map(_whole(fact).search, shown))):
            missing.append(fact or "an empty fact")
    return missing


def _whole(name: str) -> re.Pattern[str]:
    """What finds a name, but not inside a longer one: Oslo is not in Oslofjord. Chinese has no such edges."""
    before = _BEFORE if re.match(r"\.?[0-9]", name) else "(?<![0-9a-z])" if re.match("[a-z]", name) else ""
    after = "(?![0-9a-z])" if re.search("[0-9a-z]$", name) else ""
    return re.compile(f"{before}{re.escape(name)}{after}")


def numbers_in(answer: Any) -> tuple[str, ...]:
    """The plainest ``facts``: every number that an answer claims."""
    return tuple(match[0] for match in _NUMBER.finditer(plain(answer)))


LIST_FACTS = (
    "You list the facts that an answer claims: each number, date and name, bare and without units, one on a "
    "line, exactly as it is written in the answer. If it claims none, write only: none"
)


def claimed_by_model(answer: Any) -> Program[tuple[str, ...] | None]:
    """The ``facts`` that a model finds in an answer; ``None`` where it says nothing."""
    text = yield from ask(LIST_FACTS, str(answer))
    lines = [line.strip(" \t-*•") for line in text.splitlines() if line.strip(" \t-*•")]
    if not lines:
        return None
    return () if [line.lower() for line in lines] == ["none"] else tuple(lines)


# --- After it: warned, asked again, and only a few times (注入纠正提示) ------------------------------

WARNING = "警告：检测到可能的幻觉输出，请基于已有事实重新推理。"
#: The mistakes of a model that wrote an interface it only half remembered as one that it knows.
HALF_REMEMBERED = {
    Kind.UNKNOWN_TOOL: "There is no such tool.",
    Kind.BAD_ARGUMENTS: "The tool takes no such arguments.",
}


def made_up(context: LoopContext) -> str | None:
    """What the latest turn made up, in words: a tool, its arguments, or the facts of an answer."""
    for seen in context.turns[-1].observations:
        if seen.kind in HALF_REMEMBERED:
            return HALF_REMEMBERED[seen.kind]
        if seen.kind is Kind.REFUSED and seen.text.startswith(UNGROUNDED):
            return "The answer says what nothing showed."
    return None


def corrective(most: int = 2, detect: Callable[[LoopContext], Any] = made_up) -> Rule:
    """Make the stop rule that corrects the model after a hallucination, ``most`` times a run (A-123).

    ``detect(context)`` says what was made up in the latest turn, or ``None``; it may be a program. Each
    time the turn gets a warning, and the model is asked again. One hallucination more, and the run ends
    with STAGNATED. Raises ``ValueError`` for a ``most`` that is no whole number of at least 0.
    """
    require("most", most, 0)
    require_function("detect", detect)

    def rule(control: Control, context: LoopContext) -> Program[StopReason | str | None]:
        found = yield from settle(detect(context))
        if not found:
            return None
        corrections = context.private[rule] = context.private.get(rule, 0) + 1
        if corrections > most:
            return StopReason.STAGNATED
        return f"{WARNING} {found} (correction {corrections} of {most})"

    return rule


# --- A result: what several sources agree on (工具结果校验) ----------------------------------------


def same_text(one: str, other: str) -> bool:
    """Whether two results say the same, but for capitals and gaps."""
    return plain(one) == plain(other)


def consistent(
    act: ActHook = call_tool,
    *,
    idempotent: Callable[[str], bool],
    times: int = 1,
    others: Mapping[str, Sequence[str]] | None = None,
    agree: Callable[[str, str], bool] = same_text,
) -> ActHook:
    """Make the ``act`` that asks several times, side by side, and passes on what most results say.

    A call of an idempotent tool (``Toolbox.is_idempotent``) is made ``times`` times, and once with each of
    the tools that ``others`` names for it, which take the same arguments; any other call once, as it is.
    Results that ``agree`` count as one; who says otherwise, or fails, is named, and not quoted. Without a
    majority of those that succeeded, what comes back is the disagreement (REFUSED), and where all fail, the
    first failure of which nobody knows whether it took effect, or else the first.
    Raises ``ValueError`` for a number of times that is none, and for others that are not idempotent.
    """
    require_function("act", act)
    require_function("idempotent (such as tools.is_idempotent)", idempotent)
    require_function("agree", agree)
    require("times", times, 1)
    more = {name: tuple(names) for name, names in (others or {}).items()}
    for other in (name for names in more.values() for name in names):
        if not idempotent(other):
            raise ValueError(f"others name {other!r}, which is not idempotent: to compare it would act again")

    def compared(call: ToolCall) -> Program[Observation]:
        asked = [call]
        if idempotent(call.name):
            asked = [call] * times + [call._replace(name=other) for other in more.get(call.name, ())]
        if len(asked) == 1:
            alone: Observation = yield from settle(act(call))
            return alone
        came = (yield Together(tuple(settle(act(each)) for each in asked))).value
        return _in_agreement(asked, came, agree)

    return compared


def _in_agreement(
    asked: Sequence[ToolCall], came: Sequence[Any], agree: Callable[[str, str], bool]
) -> Observation:
    """What most of the results say. A bug is raised; at the end of the allowance, what is in hand counts."""
    seen = [each for each in came if isinstance(each, Observation)]
    for error in came:
        if isinstance(error, Exception) and not (seen and isinstance(error, LimitReached | Interrupted)):
            raise error
    results = [each for each in seen if each.ok]
    if not results:
        return next((each for each in seen if each.kind in IN_DOUBT), seen[0])
    best, votes = most_agreed(results, lambda one, other: agree(one.text, other.text))
    pairs = list(zip(asked, came, strict=True))
    if votes * 2 <= len(results):
        said = [f"{call_text(call)}: {on_one_line(each.text)}" for call, each in pairs if each in results]
        told = "\n".join(["The results do not agree, so none is relied on:", *said])
        return Observation(told, False, Kind.REFUSED)
    unsaid = [
        call.name
        for call, each in pairs
        if each is not best and not (each in results and agree(best.text, each.text))
    ]
    return best._replace(text=f"{best.text}\n(Not confirmed by: {', '.join(unsaid)})") if unsaid else best


def most_agreed(values: Sequence[T], agree: Callable[[T, T], bool]) -> tuple[T, int]:
    """The value that most agree with, the earliest of equals; and how many they are, itself included."""
    votes = [sum(each is other or agree(each, other) for other in values) for each in values]
    return values[votes.index(max(votes))], max(votes)


# --- A decision: sure, confirmed, or a person's (置信度阈值) ----------------------------------------

CONFIDENCE = "confidence"
SAY_CONFIDENCE = "on a line of its own before the Action, write: Confidence: how sure you are of it, 0 to 1"


def stated(decision: Decision) -> float | None:
    """How sure the model says it is, from 0 to 1; ``None`` where nobody can tell."""
    return read_confidence(decision.thought)


def unstated(decision: Decision) -> None:
    """For models whose word about themselves means nothing: always look for agreement."""


def confident(
    reason: ReasonHook,
    *,
    threshold: float = 0.7,
    samples: int = 2,
    confidence: Callable[[Decision], float | None] = stated,
) -> ReasonHook:
    """Make the ``reason`` that does not let an unsure decision pass: another sample, then a person (A-115).

    Where ``confidence(decision)`` is unknown, no number, or below ``threshold`` (above 0, up to 1), the hook
    is asked again until there are ``samples`` in all. The share that agrees is the new estimate; if it is too
    low as well, a person is asked. Without a clear yes the decision is not taken, and the model is told. A
    reply that reports a failure is no decision, and passes as it is. Under native calls an answer is the
    whole text, so ``unstated`` fits better there. Raises ``ValueError`` for numbers that are none of these.
    """
    require_function("reason", reason)
    require_function("confidence", confidence)
    require_share("threshold", threshold)
    require("samples", samples, 1)

    def reasoned(context: LoopContext) -> Program[Decision]:
        context.working_memory[CONFIDENCE] = SAY_CONFIDENCE
        first: Decision = yield from settle(reason(context))
        if _is_report(first) or _is_enough(confidence(first), threshold):
            return first
        drawn = [first]
        try:
            while len(drawn) < samples:
                drawn.append((yield from settle(reason(context))))
            best, votes = most_agreed(drawn, same_decision)
            if len(drawn) > 1 and votes / len(drawn) >= threshold:
                return best
            return (yield from _a_persons(context, best, drawn))
        except LimitReached as ended:
            return cut_short(ended, [each.thought for each in drawn])

    return reasoned


def _is_report(decision: Decision) -> bool:
    return isinstance(decision, Act) and all(call.problem for call in decision.calls)


def _is_enough(confidence: object, threshold: float) -> bool:
    """Whether it is a number from the threshold to 1; nonsense is not, and neither is ``True``."""
    return type(confidence) in (int, float) and threshold <= confidence <= 1  # type: ignore[operator]


def same_decision(one: Decision, other: Decision) -> bool:
    """Whether two decisions come to the same: equal calls, or answers that say the same."""
    if isinstance(one, Finish) and isinstance(other, Finish):
        return same_text(one.answer, other.answer)
    if not isinstance(one, Act) or not isinstance(other, Act) or _is_report(one) or _is_report(other):
        return False
    return [call[:2] for call in one.calls] == [call[:2] for call in other.calls]


def _written(decision: Decision) -> str:
    if isinstance(decision, Finish):
        return f"answer: {decision.answer}"
    return ", ".join(call.problem.text if call.problem else call_text(call) for call in decision.calls)


def _a_persons(context: LoopContext, best: Decision, drawn: Sequence[Decision]) -> Program[Decision]:
    """The decision, if a person who is shown all of it says yes; else the report of what the person said."""
    doubts = [f"another sample: {_written(each)}" for each in drawn if not same_decision(best, each)]
    shown = [f"Task: {context.task}", f"Not sure enough of this: {_written(best)}", *doubts, "Go on? (yes)"]
    # Not about anything: another loop may come to the same decision about the same task, as one of its own.
    answer = (yield AskHuman("\n".join(shown))).value
    if is_yes(answer):
        return best
    kind, said = Kind.REFUSED, f"A person said: {answer}"
    if isinstance(answer, Observation):
        kind, said = answer.kind, answer.text
    told = f"Not done, not sure enough of {on_one_line(_written(best))}. {said}"
    return not_taken(best, Observation(told, False, kind))


# --- The story ----------------------------------------------------------------------------------

TASK = "查询今天北京的天气，然后根据天气推荐一个旅游景点"


def any_text(facts: Callable[[Any], Any]) -> Check:
    """A ``grounded`` that compares facts as texts, as one would write it first."""

    def check(context: LoopContext, answer: Any) -> Program[str | None]:
        claimed = yield from settle(facts(answer))
        shown = "\n".join(evidence(context))
        missing = [str(fact) for fact in claimed if str(fact) not in shown]
        return f"{UNGROUNDED}: {', '.join(missing)}" if missing else None

    return check


class TicketOffice:
    """Where tickets are held, and can be given back. ``held`` are the places they are for."""

    def __init__(self) -> None:
        self.held = ["故宫"]

    def list_tickets(self) -> str:
        """List the tickets that are held."""
        return f"持有的票：{'、'.join(self.held) or '无'}"

    def cancel_ticket(self, place: str) -> str:
        """Give the ticket for a place back."""
        self.held.remove(place)
        return f"已退订：{place}"


def dispatched(functions: Mapping[str, Callable[..., Any]]) -> ActHook:
    """Article B's lines 48 to 51: look the name up, and call what is there."""
    return lambda call: Observation(functions[call.name](**call.arguments))


def helpful(functions: Mapping[str, Callable[..., Any]]) -> ActHook:
    """The same, made to survive: an unknown name means the nearest one."""

    def act(call: ToolCall) -> Observation:
        name = difflib.get_close_matches(call.name, functions, n=1)[0]
        return Observation(functions[name](**call.arguments))

    return act


def half_remembering_model() -> RuleModel:
    """A model that invents a tool with a plausible name, and mends it when it is told."""
    return RuleModel(
        [
            ("there is no tool", "Thought: 没有这个工具，用 list_tickets。\nAction: list_tickets()"),
            ("已退订", "Thought: 看到了。\nAction: Finish[票已经退了。]"),
            ("持有的票", "Thought: 看到了。\nAction: Finish[您有一张故宫的票。]"),
        ],
        otherwise='Thought: 查一下故宫的票。\nAction: check_ticket(place="故宫")',
    )


PLACES = ("颐和园", "长城", "北海", "故宫")


def places_and_numbers(answer: str) -> list[str]:
    """The facts of an answer about a trip: each number, and each place that it names."""
    return [*numbers_in(answer), *(place for place in PLACES if place in answer)]


def embellishing_model(mends: bool) -> RuleModel:
    """A model that rounds its facts out, and mends its answer when it is told; or else it never does."""
    look = 'Thought: 先查天气。\nAction: get_weather(city="北京")'
    invented = "Thought: 可以作答。\nAction: Finish[北京今天晴，31 度，推荐颐和园和北海。]"
    mended = "Thought: 只说查到的。\nAction: Finish[北京今天晴，26 度，推荐颐和园和长城。]"
    return RuleModel(
        [
            (UNGROUNDED, mended if mends else look),
            ("颐和园（", invented),
            ("当前天气", 'Thought: 找景点。\nAction: get_attraction(city="北京", weather="Sunny")'),
        ],
        otherwise=look,
    )


def stuck(city: str) -> str:
    """Tell the present weather of a city."""
    return f"{city}当前天气：Snowy，气温 -8 摄氏度"


def weather_model() -> RuleModel:
    """A model that believes what a weather service says, and says what it could not find out."""
    observed = "Observation: 北京当前天气："
    return RuleModel(
        [
            ("do not agree", "Thought: 不可靠。\nAction: Finish[两个气象站说法不同，今天的天气查不到。]"),
            (f"{observed}Sunny", "Thought: 晴天。\nAction: Finish[晴，26 度，去颐和园。]"),
            (f"{observed}Snowy", "Thought: 下雪。\nAction: Finish[雪，零下 8 度，去滑雪。]"),
        ],
        otherwise='Thought: 先查天气。\nAction: get_weather(city="北京")',
    )


GUESSES = (
    "Thought: 这个季节大概 22 度。\nConfidence: 0.4\nAction: Finish[22 度]",
    "Thought: 也许是 28 度。\nConfidence: 0.5\nAction: Finish[28 度]",
    'Thought: 不猜了，去查。\nConfidence: 0.95\nAction: get_weather(city="北京")',
    "Thought: 查到了。\nConfidence: 0.95\nAction: Finish[26 度]",
)


def _half_remembered(tell: Telling) -> None:
    ways: tuple[tuple[str, str, Callable[[Any], ActHook] | None], ...] = (
        ("naive", "A tool that does not exist, looked up in a dictionary (幻觉工具调用)", dispatched),
        ("helpful", "The same, and an unknown name means the nearest one", helpful),
        ("toolbox", "The same, and the toolbox says what would be right", None),
    )
    for name, title, act_of in ways:
        tell.heading(title)
        office = TicketOffice()
        tools = Toolbox([office.list_tickets, office.cancel_ticket])
        functions = {"list_tickets": office.list_tickets, "cancel_ticket": office.cancel_ticket}
        loop = AgentLoop(react(tools), act_of(functions) if act_of else call_tool, watch=tell.watch(name))
        try:
            drive(loop.run("我订了哪些票？"), World(half_remembering_model(), tools, inline=True))
        except LoopError as error:
            tell(f"the run is over: {error}", RED)
        tell(f"tickets held afterwards: {'、'.join(office.held) or 'none'}", GREEN if office.held else RED)
        if name == "helpful":
            tell("0 tool calls: this hook runs functions by itself, and no account counts them.")
    tell("The same guess as above, as a question: a hint can be declined.")


def _embellished(tell: Telling) -> None:
    tools = Toolbox([get_weather, get_attraction])
    tell.heading("An answer with facts that nobody found")
    loop = AgentLoop(react(tools))
    believed = drive(loop.run(TASK), World(embellishing_model(mends=True), tools, inline=True))
    tell.result(believed)
    seen = [seen.text for turn in believed.turns for seen in turn.observations]
    tell(f"no tool ever said: {', '.join(unshown(places_and_numbers(believed.answer), seen))}", RED)

    tell.heading("The same, and its facts must stand in an observation (自我验证)")
    check, rule = grounded(places_and_numbers), corrective(most=2)
    loop = AgentLoop(react(tools), accept=check, stops=(rule,), watch=tell.watch("grounded"))
    tell.result(drive(loop.run(TASK), World(embellishing_model(mends=True), tools, inline=True)))

    tell.heading("A model that never mends: told again and again, and told twice")
    rows: list[tuple[object, ...]] = [("corrections", "rounds", "model calls", "tokens", "ended with")]
    for corrections, stops in (("no limit", ()), ("2 at most", (rule,))):
        loop = AgentLoop(react(tools), accept=check, stops=stops, limits=RESEARCH)
        result = drive(loop.run(TASK), World(embellishing_model(mends=False), tools, inline=True))
        spent = result.control
        rows.append((corrections, spent.rounds, spent.model_calls, spent.tokens, result.stop.name))
    tell.table(rows)
    tell()
    tell.result(result)


def _compared(tell: Telling) -> None:
    tools = Toolbox(
        {"get_weather": stuck, "get_forecast": get_weather, "ask_airport": get_weather},
        idempotent=["get_weather", "get_forecast", "ask_airport"],
    )
    for name, title, others in (
        ("believed", "A weather station with a stuck sensor, believed", ()),
        ("two", "The same, compared with one more (工具结果校验)", ("get_forecast",)),
        ("three", "The same, compared with two more", ("get_forecast", "ask_airport")),
    ):
        tell.heading(title)
        act = consistent(idempotent=tools.is_idempotent, others={"get_weather": others})
        loop = AgentLoop(react(tools), act, watch=tell.watch(name))
        drive(loop.run("今天北京去哪里玩？"), World(weather_model(), tools, inline=True))


def _unsure(tell: Telling) -> None:
    tools = Toolbox([get_weather])

    def person(question: str) -> str:
        tell(f"a person is asked:\n{question}\nand says: 不要猜，去查。", GREEN)
        return "不要猜，去查。"

    for name, title, reason in (
        ("guessing", "A guess, and a confidence that nobody reads", react(tools)),
        ("confident", "The same, and somebody reads it (置信度阈值)", confident(react(tools))),
    ):
        tell.heading(title)
        loop = AgentLoop(reason, watch=tell.watch(name))
        drive(loop.run("今天北京多少度？"), World(ScriptedModel(GUESSES), tools, person, inline=True))


def demo(tell: Telling) -> None:
    """Four hallucinations, each believed first: a call, an answer, a result, a decision."""
    _half_remembered(tell)
    _embellished(tell)
    _compared(tell)
    _unsure(tell)
