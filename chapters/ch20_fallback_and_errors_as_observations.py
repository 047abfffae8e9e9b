"""A failure is something that was seen: ask another tool, or tell the model and let it choose.

Article A, 工具失败处理, 降级方案 and 错误传播; article B, 外部信号, 错误阈值. Covers A-111, A-112, B-37.

Patience (chapter 19) is no use when a tool stays down. Two ways lead on, and a bound keeps both short:

- fallback (降级): the runtime asks another tool in its place. ``fallback`` wraps ``act``; who really answered
  is said in the observation, and where all of them failed the model reads of every one. A result names who
  failed and quotes nobody: in arguments and failures stands what the model made up (chapter 22).
- errors as observations (错误传播): the model is told, in words, and takes another way itself. The loop does
  this without any guard: a failed ``Observation`` is its third thing to see, after a result and an objection.
- the threshold (错误阈值): a model that is told and knows no other way fails round after round, and
  ``Limits.failures`` ends the run. One success and the count begins anew.

Without the second, one exception in a tool ends the run, and the text of an action is returned as its answer
(EA10); or four lines that read a reply raise on whatever is malformed (EB07), which is a failure of the model
and is told to it in the same way.

When to fall back is decided by the kind of the failure, never by its words:

- UNAVAILABLE: nothing was done, so another tool may do it.
- TIMEOUT and UNCERTAIN: the first tool may have done it. Only where it just reads (``only_reads``) is
  another one asked. That a tool is idempotent is not enough here, unlike for a retry: the bank that refuses
  to take the same payment twice knows nothing of the other bank.
- TOOL_ERROR may be added (``kinds``), under the same condition: often it is a wrong argument, and all tools
  would be asked in vain.
- a refusal, a person who is not there, and the model's own mistakes: never. A person who said no to one tool
  has not said yes to another.

Wrapped round a retry, it asks another tool when patience has ended, and knows of every doubt on the way:
``fallback(retry(...), ...)``. Inside of one, the whole chain is tried again, and this guard knows only of the
attempt that it is in; so after an attempt in doubt the retry lets no other tool be asked.

Which number for the threshold? A breaker (chapter 21) counts too, and with the articles' figures both count
to five: the run is over in the round in which the breaker opens, and nobody reads that it did (EA50).
``rounds_to_change_course`` says how many rounds are left after it; there should be one or two.

Exercises
---------
1. ``after_any_failure`` of this file falls back whatever happened. Which promises does it break?
   ``python -m pytest --impl fallback=chapters/ch20_fallback_and_errors_as_observations.py:after_any_failure``
2. Let an alternative be a tuple of tools too, asked side by side (``Together``), and take the first that
   succeeded, in the order given. One alternative still works as it did if this says so:
   ``python -m pytest --impl fallback=my_fallback.py:fallback``
3. In the demo's third part, let the model read how many failures are left ("2 more, and the run ends").
   Write it as a stop rule that warns. When should it begin to?
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from agentloop import (
    AgentLoop,
    Kind,
    LimitReached,
    Limits,
    LoopError,
    Observation,
    Program,
    Toolbox,
    ToolCall,
    World,
    call_text,
    call_tool,
    drive,
    settle,
)
from chapters.ch18_human_in_the_loop import IN_DOUBT
from chapters.ch19_retry_with_backoff import GIVEN_UP, HARMLESS, nothing_is
from chapters.telling import GREEN, RED, Telling
from fake_llm import Cashier, RuleModel, SpoiledTool, broken_tool, get_weather
from paradigms.arguments import require, require_function
from paradigms.react import react

#: How to ask another tool: its name, if it takes the same arguments, or a function that writes the call.
Way = str | Callable[[ToolCall], ToolCall]

#: Kinds of failure after which another tool may be asked at all.
POSSIBLE = (*HARMLESS, *IN_DOUBT, Kind.TOOL_ERROR)


def fallback(
    act: Callable[[ToolCall], Any],
    alternatives: Mapping[str, Way],
    *,
    only_reads: Callable[[str], bool] = nothing_is,
    kinds: Collection[Kind] = (*HARMLESS, *IN_DOUBT),
) -> Callable[[ToolCall], Program[Observation]]:
    """Guard ``act``: where a tool is down, ask another in its place, under the same call's id.

    ``alternatives`` say for a tool, by its name, how to ask another; that one may have an alternative too,
    and no tool is asked twice for one call. ``only_reads`` says of a tool whether it changes nothing, so that
    another may be asked although it is not known what became of the first. Raises ``ValueError`` for
    ``kinds`` after which nobody may fall back, and ``TypeError`` for an alternative that is no such way.
    """
    require_function("act", act)
    require_function("only_reads", only_reads)
    _require_ways(alternatives)
    never = [kind.name for kind in kinds if kind not in POSSIBLE]
    if never:
        allowed = ", ".join(kind.name for kind in POSSIBLE)
        raise ValueError(f"nobody may fall back after {', '.join(never)}: kinds can be {allowed}")

    def is_settled(asked: ToolCall, seen: Observation) -> bool:
        return seen.kind in HARMLESS or only_reads(asked.name)

    def guarded(call: ToolCall) -> Program[Observation]:
        seen: Observation = yield from settle(act(call))
        asked, failures = call, [(call, seen)]
        while not seen.ok and seen.kind in kinds and is_settled(asked, seen):
            other = _other(asked, alternatives)
            if other is None or other.name in [each.name for each, _ in failures]:
                break
            asked = other
            try:
                seen = yield from settle(act(asked))
            except LimitReached as end:
                failures.append((asked, _broken_off(end)))
                break
            failures.append((asked, seen))
        if asked is call:
            return seen
        if seen.ok:
            return _found(asked, seen, failures[:-1])
        last = failures[-1][1].kind
        return _all_failed(failures, last in HARMLESS or (last in IN_DOUBT and only_reads(asked.name)))

    return guarded


def _require_ways(alternatives: object) -> None:
    ways = alternatives if isinstance(alternatives, Mapping) else {"alternatives": alternatives}
    for name, way in ways.items():
        if ways is not alternatives or not (isinstance(way, str) or callable(way)):
            raise TypeError(
                "alternatives give for the name of a tool another name, or a function that writes the call, "
                f"such as {{'get_weather': 'get_forecast'}}; not {name}: {way!r}"
            )


def _other(call: ToolCall, alternatives: Mapping[str, Way]) -> ToolCall | None:
    """The call of another tool that can stand for this one, under its id."""
    way = alternatives.get(call.name)
    if way is None:
        return None
    other = call._replace(name=way) if isinstance(way, str) else way(call)
    if not isinstance(other, ToolCall):
        raise TypeError(f"the alternative to {call.name} must be a name or return a ToolCall, not {other!r}")
    return other._replace(id=call.id)


def _broken_off(end: LimitReached) -> Observation:
    text = f"the run ended during this call ({end.reason.name}); whether it took effect is not known"
    return Observation(text, False, Kind.UNCERTAIN)


Failures = list[tuple[ToolCall, Observation]]


def _found(asked: ToolCall, seen: Observation, failures: Failures) -> Observation:
    """What another tool found, and that it was another one."""
    why = ", ".join(f"{call.name} failed: {seen.kind.name}" for call, seen in failures)
    return seen._replace(text=f"{seen.text}\n(From {asked.name}, since {why})")


def _all_failed(failures: Failures, may_pass: bool) -> Observation:
    """All the failures, as one: of the first, which the model wanted, and which may come back.

    Unless the last one would fail again, or may have taken effect: then it is what a guard around this one
    has to see, and nobody begins again with the first.
    """
    text = "\n".join(["Every tool that could be asked failed:", *_written(failures)])
    (_, first), (_, last) = failures[0], failures[-1]
    return first._replace(text=text) if may_pass else Observation(text, False, last.kind, GIVEN_UP)


def _written(failures: Failures) -> list[str]:
    return [f"{call_text(call)}: {seen.kind.name}: {seen.text}" for call, seen in failures]


def rounds_to_change_course(failures: int, threshold: int, attempts: int = 1) -> int:
    """How many failed rounds a run has left when a breaker opens: in them the model can choose another way.

    ``failures`` is that of ``Limits``, ``threshold`` the breaker's, and ``attempts`` how often the one call
    of a round is tried, where the breaker counts each attempt (a retry around it). 0 or less: the run ends
    first, and only the next one learns of it. Raises ``ValueError`` for a number below 1.
    """
    for name, number in (("failures", failures), ("threshold", threshold), ("attempts", attempts)):
        require(name, number, 1)
    return failures - -(-threshold // attempts)


# --- How it goes wrong ----------------------------------------------------------------------------


def raised_through(act: Callable[[ToolCall], Any] = call_tool) -> Callable[[ToolCall], Program[Observation]]:
    """Let a tool's failure fly through the loop, as article A's base class does (EA10)."""

    def guarded(call: ToolCall) -> Program[Observation]:
        seen: Observation = yield from settle(act(call))
        if not seen.ok:
            raise RuntimeError(seen.text)
        return seen

    return guarded


def after_any_failure(
    act: Callable[[ToolCall], Any],
    alternatives: Mapping[str, Way],
    *,
    only_reads: Callable[[str], bool] = nothing_is,
    kinds: Collection[Kind] = (*HARMLESS, *IN_DOUBT),
) -> Callable[[ToolCall], Program[Observation]]:
    """Ask the other tool whenever the first one failed, and pass on what it says."""

    def guarded(call: ToolCall) -> Program[Observation]:
        seen: Observation = yield from settle(act(call))
        other = None if seen.ok else _other(call, alternatives)
        return seen if other is None else (yield from settle(act(other)))

    return guarded


# --- The story ------------------------------------------------------------------------------------

TASK = "今天北京天气怎么样？"
DOWN = ConnectionRefusedError("the weather station is closed for repairs")


def get_forecast(place: str, days: int = 1) -> str:
    """Tell what another weather service says of a place."""
    return f"预报：{get_weather(place)}"


def as_forecast(call: ToolCall) -> ToolCall:
    """Ask the forecast what the station was asked: its place has another name."""
    return ToolCall("get_forecast", {"place": call.arguments.get("city", ""), "days": 1})


def asker(knows_another_way: bool) -> RuleModel:
    """A model that asks the station; told that it is down, it may know whom else to ask."""
    other = 'Thought: 气象站坏了，换一个工具。\nAction: get_forecast(place="北京")'
    return RuleModel(
        [
            ("北京当前天气", "Thought: 查到了。\nAction: Finish[今天北京晴，26 摄氏度。]"),
            *([("closed for repairs", other)] if knows_another_way else []),
        ],
        otherwise='Thought: 查天气。\nAction: get_weather(city="北京")',
    )


def pay_elsewhere(guard: Callable[..., Callable[[ToolCall], Any]]) -> tuple[Observation, list[float]]:
    """Pay 9 yuan at a bank that takes them and does not answer; there is another bank."""
    cashier = Cashier()

    def lost_answer(number: int, run: Callable[[], Any]) -> Any:
        run()
        raise TimeoutError("no answer from the bank")

    banks: dict[str, Callable[..., Any]] = {"pay": SpoiledTool(cashier.pay, lost_answer)}
    tools = Toolbox({**banks, "pay_by_card": cashier.pay})
    act = guard(call_tool, {"pay": "pay_by_card"})
    seen = drive(settle(act(ToolCall("pay", {"amount": 9}, "call_1_1_1"))), World(tools=tools, inline=True))
    return seen, cashier.ledger


def demo(tell: Telling) -> None:
    """A station is down: raised, told, replaced; a payment that must not be replaced; and the threshold."""
    tools = Toolbox([broken_tool(get_weather, DOWN), get_forecast])
    tell(f"task: {TASK}")

    tell.heading("Raised through the loop: one closed station ends everything")
    loop = AgentLoop(react(tools), act=raised_through(), watch=tell.watch("raised"))
    try:
        drive(loop.run(TASK), World(asker(knows_another_way=True), tools, inline=True))
    except LoopError as error:
        tell(f"{error}", RED)
        tell.result(error.result)

    tell.heading("The same, observed (错误传播): the model reads of it and chooses another tool")
    loop = AgentLoop(react(tools), watch=tell.watch("observed"))
    tell.result(drive(loop.run(TASK), World(asker(knows_another_way=True), tools, inline=True)))

    tell.heading("A model that knows no other way: after five rounds the threshold ends it (错误阈值)")
    loop = AgentLoop(react(tools))
    tell.result(drive(loop.run(TASK), World(asker(knows_another_way=False), tools, inline=True)))

    tell.heading("The same model, and the runtime knows another tool (降级)")
    act = fallback(call_tool, {"get_weather": as_forecast})
    loop = AgentLoop(react(tools), act=act, watch=tell.watch("fallback"))
    tell.result(drive(loop.run(TASK), World(asker(knows_another_way=False), tools, inline=True)))

    tell.heading("And when the other one is down too, it reads of both")
    closed = Toolbox([broken_tool(get_weather, DOWN), broken_tool(get_forecast, PermissionError("no key"))])
    seen = drive(act(ToolCall("get_weather", {"city": "北京"})), World(tools=closed, inline=True))
    tell(f"{seen.kind.name}: {seen.text}")

    tell.heading("What must not be done elsewhere: 9 yuan, paid, and the answer lost")
    for name, guard in (("after any failure", after_any_failure), ("ours", fallback)):
        seen, ledger = pay_elsewhere(guard)
        tell(f"{name}: paid {' + '.join(f'{amount:g}' for amount in ledger)} yuan, and the model reads")
        tell(f"    {seen.kind.name}: {seen.text}", GREEN if len(ledger) == 1 else RED)

    tell.heading("Which threshold? Failed rounds left to the model when a breaker of 5 has opened")
    thresholds = (3, Limits().failures, 7)
    tell.table(
        [("Limits.failures", *thresholds)]
        + [
            (f"a call tried {word}", *(rounds_to_change_course(each, 5, attempts) for each in thresholds))
            for word, attempts in (("once", 1), ("4 times", 4))
        ]
    )
    tell("0: the run ends in the round in which the breaker opens; -2: two rounds before it would have.")
    tell("In both cases its model never reads that the breaker is open.")
