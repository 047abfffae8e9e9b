"""A model that says it is done has made a claim; a loop ends when the claim holds, or the world says so.

Article A, 五、工程实现, 循环终止条件设计: 多层次的终止策略 and 目标达成检测; article B, 五个失败模式,
过早退出. Covers A-100..A-103, B-42.

Unlike chapters 11 to 14, which chose how a loop thinks and believed its first answer, this one asks of
the answer itself. There is more than one way to be done, and each has a layer (A-100), the cheapest first:

=========================================  ===========================================================
显式标记 the marker, and nothing like it    ``parse`` (chapter 05): a token of the protocol
过早退出 a look at the world before it      ``verified``: a tool has brought a result
启发式规则 the form that was asked for      ``has_form``: complete JSON that fits a signature
外部验证 tests, an evaluator, a person      ``judged``, ``outside``, ``by_a_person``
=========================================  ===========================================================

Each is a *check*, which is what ``AgentLoop(accept=...)`` takes: it is shown the answer and says what is
wrong with it in words, or ``None``. What it says is the model's next observation, so the model can mend
it. ``all_of`` composes checks without their knowing each other: a later one, which costs more, is not asked
where an earlier one objects. ``ends_when`` makes a stop rule of a check on the world: then the run ends with
EXTERNALLY_DONE although the model does not know yet. And a model that will not be told must not be refused
for ever: ``refused_too_often`` ends the run with STAGNATED, and no answer: the answers are what did not
improve.

Without it, what is said with confidence is believed: a marker that was only mentioned, weather that nobody
looked up, a receipt for a payment that was never made. And a robot whose cat has long been fed goes on.

Departures: the marker counts as a token of the protocol, never as a word in a sentence (EA13). Article B's
own three rounds answer without the call to verify that its table of failures demands (EB17): here that call
is a guard, which may be left out. The table puts the demand into the system prompt; a prompt asks, a guard
insists. A check that fails, or does not know, has not said yes.

Exercises
---------
1. ``has_form`` wants JSON and nothing else. Write one that takes JSON in a ``` fence too, but no half of an
   object: ``python -m pytest --impl form=my_checks.py:has_form``
2. Write ``verified`` so that one batch of two calls counts twice, and ask what that breaks:
   ``python -m pytest --impl verified=my_checks.py:verified``
3. ``refused_too_often`` counts over the whole run. Count refusals in a row instead. What can a model do to
   be refused for ever? ``python -m pytest --impl refusals=my_checks.py:refused_too_often``
4. Write ``all_of`` so that it asks every check and tells the model all that is wrong at once. Which promise
   goes, and what does a person think of it? ``python -m pytest --impl all_of=my_checks.py:all_of``. And let
   ``ends_when`` look only in every third round: ``python -m pytest --impl ends_when=my_checks.py:ends_when``
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, TypeVar

from agentloop import (
    Act,
    AgentLoop,
    AskHuman,
    CallModel,
    Control,
    Do,
    EffectFailed,
    Event,
    EventKind,
    Finish,
    Kind,
    Limits,
    LoopContext,
    Observation,
    Program,
    Result,
    StopReason,
    Toolbox,
    ToolCall,
    World,
    advance,
    drive,
    report,
    settle,
)
from chapters.ch01_one_shot_vs_loop import TASK as FEED_THE_CAT
from chapters.ch01_one_shot_vs_loop import plan, robot
from chapters.ch05_thought_action_observation import article_a_react
from chapters.telling import GREEN, RED, Telling, ending
from fake_llm import Cashier, CatHouse, FakeModel, ScriptedModel, calls, get_attraction, get_weather
from fake_llm.tools import WEATHER
from paradigms.arguments import require, require_function, require_share
from paradigms.evaluators import Evaluate, Judgement, judged_by_tests, judgement_of
from paradigms.literals import Unreadable, must_end, read_json
from paradigms.prompt import think
from paradigms.react import react
from paradigms.text_protocol import contract, parse, render

#: What ``AgentLoop(accept=...)`` takes: an objection in words, ``None``, or a program that finds out.
Check = Callable[[LoopContext, Any], Any]
#: What ``AgentLoop(stops=(...))`` takes: a reason to stop, a warning for the model, ``None``, or a program.
Rule = Callable[[Control, LoopContext], Any]
T = TypeVar("T")


def all_of(*checks: Check) -> Check:
    """Make the check that asks each of ``checks`` in turn, and stops at the first objection.

    Put the cheapest first: those after an objection are not asked. Raises ``TypeError`` for none at all.
    """
    if not checks or not all(map(callable, checks)):
        raise TypeError(f"all_of takes checks, such as all_of(verified(), has_form(form)), not {checks!r}")

    def check(context: LoopContext, answer: Any) -> Program[str | None]:
        for each in checks:
            objection: str | None = yield from settle(each(context, answer))
            if objection is not None:
                return objection
        return None

    return check


# --- Before the answer: a look at the world (过早退出) --------------------------------------------


def verified(*tools: str, least: int = 1) -> Check:
    """Make the check that refuses an answer until ``least`` rounds have brought a result of one of ``tools``.

    Where no tool is named, any will do. Two calls of one batch are one look: neither can verify the other.
    Raises ``ValueError`` for a ``least`` below 1, and ``TypeError`` for names that are no text.
    """
    require("least", least, 1)
    if not all(isinstance(tool, str) for tool in tools):
        raise TypeError(f"verified takes names of tools, such as verified('get_weather'), not {tools!r}")

    def brought(call: ToolCall, observation: Observation) -> bool:
        return observation.ok and call.problem is None and (not tools or call.name in tools)

    def check(context: LoopContext, answer: Any) -> str | None:
        looks = sum(any(map(brought, turn.calls, turn.observations)) for turn in context.turns)
        if looks >= least:
            return None
        return (
            f"Verify with one more call of {' or '.join(tools) or 'a tool'} before you answer "
            "(回答前必须再用一次工具调用验证)."
        )

    return check


# --- The answer's form (启发式规则) ----------------------------------------------------------------


def has_form(form: Callable[..., Any]) -> Check:
    """Make the check that the answer is complete JSON and fits the signature of ``form``.

    ``form`` is a function or a dataclass. What its annotations cannot say, it says by raising. Raises
    ``ValueError`` for a signature that cannot be filled by name.
    """
    require_function("form", form)
    Toolbox([form])  # a form that no answer can have is found now

    def check(context: LoopContext, answer: Any) -> str | None:
        try:
            read_form(form, answer)
        except Exception as error:  # whatever the form raises is its objection
            return f"The answer has not the form asked for. {error or type(error).__name__}"
        return None

    return check


def read_form(form: Callable[..., T], answer: Any) -> T:
    """What ``form`` makes of an answer, one JSON object whose keys are its parameters.

    A value is converted where nothing is lost by it. Raises ``ValueError`` where the answer does not fit,
    and what ``form`` raises.
    """
    tools = Toolbox([form])
    ready = tools.prepare(ToolCall(tools.names[0], _fields(answer)))
    if isinstance(ready, Observation):
        raise ValueError(ready.text)
    value: T = ready()
    return value


def _fields(answer: Any) -> Mapping[str, Any]:
    try:
        text = str(answer).strip()
        fields, end = (answer, len(text)) if isinstance(answer, Mapping) else read_json(text)
        must_end(text, end)
    except Unreadable:
        fields = None
    if not isinstance(fields, Mapping):
        raise ValueError("It must be one complete JSON object, with nothing before it and nothing after it.")
    return fields


# --- What lies outside of the model (外部验证) -----------------------------------------------------


def outside(look: Callable[[], str | None], label: str = "look whether the goal is met") -> Check:
    """Make the check that looks at the world: ``look()`` says what is still missing, or ``None``.

    It is an effect, done once and kept in the journal, and may be repeated. Where looking fails, it is not
    known whether the goal is met, and what is not known is not met.
    """
    require_function("look", look)

    def check(context: LoopContext, answer: Any) -> Program[str | None]:
        try:
            missing = (yield Do(label, look, repeatable=True)).value
        except EffectFailed as failed:
            return f"Whether the goal is met could not be found out: {failed}"
        if missing is not None and not isinstance(missing, str):
            raise TypeError(f"look must say what is missing, or None where nothing is, not {missing!r}")
        return missing

    return check


def judged(evaluate: Evaluate, threshold: float = 0.8) -> Check:
    """Make the check that asks an evaluator (paradigms/evaluators.py) and wants a score of ``threshold``.

    A judge that fails, or whose own allowance has ended, does not know; and an unknown score is no pass.
    """
    require_function("evaluate", evaluate)
    require_share("threshold", threshold)

    def check(context: LoopContext, answer: Any) -> Program[str | None]:
        result = as_it_would_end(context, answer)
        judgement = yield from judgement_of(evaluate, context.task, result)
        if judgement.score is None:
            return f"Whether the answer is right could not be found out: {judgement.reasons}"
        if judgement.score >= threshold:
            return None
        return judgement.reasons or f"The answer was judged at {judgement.score:g} of 1: it is not right yet."

    return check


def as_it_would_end(context: LoopContext, answer: Any) -> Result:
    """The run as it would end with this answer, for an evaluator: the machine is told its rounds once more.

    What was spent is not in it: its effects, tokens and time are all 0.
    """
    enough = len(context.turns) + 1
    limits = Limits(rounds=enough, failures=enough)
    events = [Event(EventKind.TASK_ARRIVED), Event(EventKind.PERCEIVED)]
    for turn in context.turns:
        count, succeeded = len(turn.calls), any(observation.ok for observation in turn.observations)
        events += [Event(kind, calls=count) for kind in (EventKind.ACTION_CHOSEN, EventKind.SUBMITTED)]
        events += [Event(EventKind.OBSERVED, succeeded, count)]
    events += [Event(EventKind.ANSWER_GIVEN)]
    control = reduce(lambda before, event: advance(before, event, limits), events, Control())
    return Result(answer, control, limits, tuple(context.turns))


def by_a_person(context: LoopContext, answer: Any) -> Program[str | None]:
    """The check that asks a person. Only a clear yes passes; any other words are the objection.

    It asks each time, the same answer too: what was wrong with it may have been mended in between.
    """
    question = f"Task: {context.task}\nAnswer: {answer}\nIs this right? Say yes, or what is wrong with it."
    said = (yield AskHuman(question)).value
    if is_yes(said):
        return None
    if isinstance(said, Observation):
        return f"The answer needs a person's yes, and has none. {said.text}"
    return f"A person did not say yes to this answer, but: {said}"


YES = ("yes", "y", "ok", "right", "是", "是的", "对", "对的", "好", "好的", "可以", "同意", "批准")


def is_yes(said: Any) -> bool:
    """Whether a person said a clear yes, and nothing besides."""
    return said is True or (isinstance(said, str) and said.strip(" \t\r\n.!。！").casefold() in YES)


# --- The ends of a run -------------------------------------------------------------------------------


def ends_when(check: Check) -> Rule:
    """Make the stop rule that ends the run with EXTERNALLY_DONE when ``check`` has no objection.

    There is no answer then, and it is asked about ``None`` after each round: give it a check on the world.
    """
    require_function("check", check)

    def rule(control: Control, context: LoopContext) -> Program[StopReason | None]:
        objection = yield from settle(check(context, None))
        return StopReason.EXTERNALLY_DONE if objection is None else None

    return rule


def refused_too_often(most: int = 3) -> Rule:
    """Make the stop rule that puts up with ``most`` refused answers in a run, and ends it at the next one.

    It ends with STAGNATED: an answer that no check would have is no success. Raises ``ValueError`` for a
    ``most`` below 0. Refused calls are not counted, nor are decisions that a guard did not take
    (``not_taken``), nor replies that could not be read.
    """
    require("most", most, 0)

    def rule(control: Control, context: LoopContext) -> StopReason | None:
        seen, refused = context.private.get(rule, (0, 0))
        for turn in context.turns[seen:]:
            problems = [call.problem for call in turn.calls if call.problem is not None and not call.name]
            refused += sum(problem.kind is Kind.REFUSED for problem in problems)
        context.private[rule] = len(context.turns), refused
        return StopReason.STAGNATED if refused > most else None

    return rule


def not_taken(decision: Act | Finish, problem: Observation) -> Act:
    """What a guard of ``reason`` decides in the place of a decision that it does not take.

    Each call stands under its name, with the problem as its result. An answer is reported like one that
    ``accept`` refused.
    """
    if isinstance(decision, Finish):
        return report(problem, decision.thought)
    calls = [call._replace(problem=call.problem or problem) for call in decision.calls]
    return decision._replace(calls=tuple(calls))


# --- The story ---------------------------------------------------------------------------------------

TASK = "今天去北京哪里玩？用 JSON 回答：city, degrees, attraction"

MENTIONED = (
    'Thought: 还没有查到天气，不能输出 [FINAL_ANSWER]。\nAction: get_weather Args: {"city": "北京"}',
    "Thought: 查到了。\nAction: [FINAL_ANSWER] 北京今天晴，26 度。",
)
#: The first reply is as confident as the last. Between them it is told what was wrong with each.
REPLIES = (
    "Thought: 北京我很熟，不用查。\nAction: Finish[今天北京下雪，去颐和园滑冰吧！]",
    'Thought: 先查天气。\nAction: get_weather(city="北京")',
    'Thought: 晴天。\nAction: get_attraction(city="北京", weather="Sunny")',
    "Thought: 可以作答。\nAction: Finish[北京今天晴，去颐和园。]",
    'Thought: 查一下开不开门。\nAction: opening_hours(attraction="颐和园")',
    'Thought: 换一个。\nAction: opening_hours(attraction="长城")',
    "Thought: 长城开门。\nAction: Finish[北京今天晴，去长城。]",
    'Thought: 要用 JSON。\nAction: Finish[{"city": "北京", "attraction": "长城"}]',
    'Thought: 补上气温。\nAction: Finish[{"city": "北京", "degrees": 20, "attraction": "长城"}]',
    'Thought: 看错了。\nAction: Finish[{"city": "北京", "degrees": 26, "attraction": "长城"}]',
)


@dataclass(frozen=True)
class Outing:
    """Where to go, and how warm it is there, in degrees Celsius."""

    city: str
    degrees: int
    attraction: str


def opening_hours(attraction: str) -> str:
    """Tell when an attraction is open today."""
    hours = {"颐和园": "今天闭园检修", "长城": "今天 7:30-17:30"}
    return f"{attraction}：{hours[attraction]}"


def compared_with_the_thermometer(answer: str) -> Judgement:
    """Test an answer against the world."""
    outing = read_form(Outing, answer)
    _, degrees = WEATHER[outing.city]
    wrong = f"The thermometer in {outing.city} does not show {outing.degrees} degrees."
    return Judgement(1.0) if outing.degrees == degrees else Judgement(0.0, wrong)


def counted(name: str, check: Check, asked: dict[str, int]) -> Check:
    """The same check, with a note of how often it was asked."""
    asked[name] = 0

    def counting(context: LoopContext, answer: Any) -> Any:
        asked[name] += 1
        return check(context, answer)

    return counting


def believes_any_marker(text: str, tools: Toolbox) -> Act | Finish:
    """Read a reply in article A's order (A:324): the marker anywhere in it ends the run."""
    found = article_a_react(text)
    return Finish(found.answer, text) if isinstance(found, Finish) else parse(text, tools)


def doubtful(request: CallModel) -> Any:
    """The robot of chapter 01, but for this: it never believes that the cat has been fed, and looks again."""
    said = plan(request)
    return calls(("look", {}), text="Plan: look") if isinstance(said, str) else said


def demo(tell: Telling) -> None:
    """A marker in a sentence, an answer too early, a payment that never was, and a cat that is full."""
    tools = Toolbox([get_weather, get_attraction, opening_hours])

    tell.heading("The marker as a word: `in` finds it in the middle of a thought")
    hook = think(contract(tools), lambda reply: believes_any_marker(reply.text, tools), render)
    loop = AgentLoop(hook, watch=tell.watch("in"))
    tell.result(drive(loop.run("今天北京天气怎么样？"), World(ScriptedModel(MENTIONED), tools, inline=True)))

    tell.heading("The marker as a token of the protocol (显式标记)")
    loop = AgentLoop(react(tools), watch=tell.watch("token"))
    tell.result(drive(loop.run("今天北京天气怎么样？"), World(ScriptedModel(MENTIONED), tools, inline=True)))

    tell.heading("The first answer is believed (过早退出)")
    loop = AgentLoop(react(tools), watch=tell.watch("early"))
    tell.result(drive(loop.run(TASK), World(ScriptedModel(REPLIES), tools, inline=True)))
    tell(f"Nobody looked. {get_weather('北京')}; {opening_hours('颐和园')}", RED)

    tell.heading("The same replies, and four layers, the cheapest first (多层次终止)")
    layered(tell, tools)

    tell.heading("A claim that nothing stands behind")
    insisting(tell, "believed", {})
    insisting(tell, "checked", {"accept": verified("pay"), "stops": (refused_too_often(1),)})
    tell("What stopped improving are the answers: each of them was refused.")

    tell.heading("The goal is met, and the model does not know (外部验证)")
    fed(tell, "goes on", looks=False)
    fed(tell, "is told", looks=True)


def layered(tell: Telling, tools: Toolbox) -> None:
    """Run the replies under all four layers, and show how often each of them was asked."""
    asked: dict[str, int] = {}
    layers = all_of(
        counted("verified", verified("opening_hours"), asked),
        counted("has_form", has_form(Outing), asked),
        counted("judged", judged(judged_by_tests(compared_with_the_thermometer)), asked),
        counted("by_a_person", by_a_person, asked),
    )
    loop = AgentLoop(react(tools), accept=layers, stops=(refused_too_often(5),), watch=tell.watch("layers"))
    world = World(ScriptedModel(REPLIES), tools, human=lambda question: "是的。", inline=True)
    result = drive(loop.run(TASK), world)
    tell.result(result)
    tell(f"As data: {read_form(Outing, result.answer)}", GREEN)
    tell.table([("layer", "asked"), *asked.items()])


def insisting(tell: Telling, name: str, hooks: Mapping[str, Any]) -> None:
    """Run a model that claims to have paid, whatever it is told."""
    cashier = Cashier()
    tools = Toolbox([cashier.pay])
    model = FakeModel(lambda request: "Thought: done\nFinal Answer: I ran pay and the receipt is #77")
    loop = AgentLoop(react(tools), watch=tell.watch(name), **hooks)
    tell.result(drive(loop.run("付 77 元"), World(model, tools, inline=True)))
    tell(f"Paid: {sum(cashier.ledger):g} yuan", GREEN if hooks else RED)


def fed(tell: Telling, name: str, looks: bool) -> None:
    """Run the doubtful robot in a house, with and without a look at the cat from outside."""
    house, limits = CatHouse(), Limits(rounds=12)
    hungry = outside(lambda: None if house.goal_met else "the cat is hungry", "look at the cat")
    loop = replace(robot(1, limits), stops=(ends_when(hungry),) if looks else ())
    result = drive(loop.run(FEED_THE_CAT), World(FakeModel(doubtful), Toolbox(house.tools), inline=True))
    texts = [observation.text for turn in result.turns for observation in turn.observations]
    needless = len(texts) - 1 - next(number for number, text in enumerate(texts) if "purrs" in text)
    tell(f"[{name}] {ending(result.control)}")
    tell(f"rounds after the cat had eaten: {needless}", RED if needless else GREEN)
