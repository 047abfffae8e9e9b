"""A loop that goes round in one place is told so, and then stopped, long before its rounds are used up.

Article A, 五、工程实现, 智能终止; article B, 外部信号 (重复动作检测) and 五个失败模式 (无限循环).
Covers A-107, A-108, B-38..B-40.

Unlike chapter 16, whose limits count, the rules of this one look: at what was done, what came of it, what
was said, and what it was worth. A rule is a stop rule of the loop, ``(control, context)``. It reads each
finished turn once and keeps what it must in ``context.private``, so a round costs the same however long
the run is, and two runs share nothing. Each is a policy of its own, and none sees what the others see:

- ``repeated_action`` (重复动作检测): the same call with the same result, so often within a window of rounds
- ``repeated_call`` (激进判据): the same call, whatever came of it; it stops polling too
- ``repeated_cycle``: rounds that come back in turn, A-B-A-B, which no count of rounds in a row can see
- ``converged`` (收敛检测): replies that are alike, by the ratio of their text or by hash fingerprints,
  and bring nothing new
- ``stagnated`` (价值停滞): a value of the caller's own that stops improving
- ``warn_first``: any of these, which then tells the model to change direction (换方向) before it stops it

Without them a stuck loop burns every round that it has, and says at the end that it needed more.

What they cannot know. A tool that says ``done`` whatever was done makes honest work look like standing
still: let it say what it did, or raise ``times``. A result that holds the time is never the same twice.
Replies that cannot be read and refused answers are no actions: the limit on failures counts those.

Departures: article B calls three detectors by one name, misses A-B-A-B with two of them and stops honest
polling with the third, and does not say whether a hit warns or stops (EB15): each is named here, looks at
a window, and ``warn_first`` says which.

Exercises
---------
1. An error text that holds the number of the request is new every time, and ``repeated_action`` sleeps
   through it. Write one that reads digits as equal, and see which promise speaks for polling:
   ``python -m pytest --impl repetition=my_rules.py:repeated_action``. Any rule that watches behaviour, of
   whatever kind, can be asked the rest: ``python -m pytest --impl stop_rule=my_rules.py:my_rule``
2. ``warn_first`` forgives at once. Write one that forgives only after two good rounds:
   ``python -m pytest --impl warning=my_rules.py:warn_first``. Which promise has to change, and why?
3. Write a simhash in the place of ``fingerprints``, and compare it on short replies and on long ones:
   ``python -m pytest --impl similarity=my_rules.py:simhash``
4. Find cycles of any length at once, by the place where the latest round was seen before:
   ``python -m pytest --impl cycle=my_rules.py:any_cycle``. And let ``stagnated`` forget a best value that is
   long past: ``python -m pytest --impl stagnation=my_rules.py:stagnated``. Which promise speaks against it?
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from agentloop import (
    AgentLoop,
    Control,
    EffectFailed,
    LoopContext,
    Observation,
    Program,
    Result,
    StopReason,
    Toolbox,
    ToolCall,
    Turn,
    World,
    drive,
    settle,
)
from chapters.ch05_thought_action_observation import get_forecast
from chapters.ch15_goal_detection import Rule
from chapters.telling import GREEN, RED, Telling, ending
from fake_llm import (
    FakeClock,
    FakeModel,
    JobQueue,
    RuleModel,
    ScriptedModel,
    calls,
    error_by_value,
    get_weather,
    stubborn_model,
)
from fake_llm.hostile import ASK_WEATHER
from paradigms.arguments import is_number, require, require_function, require_share
from paradigms.function_calling import function_calling
from paradigms.react import react

#: What a rule makes of one finished turn.
Look = Callable[[Turn], StopReason | None]


def _looking(watcher: Callable[[], Look]) -> Rule:
    """The rule that shows each finished turn, once, to a watcher which every run has for itself."""

    def rule(control: Control, context: LoopContext) -> StopReason | None:
        look, seen, verdict = context.private.get(rule) or (watcher(), 0, None)
        for turn in context.turns[seen:]:
            verdict = look(turn)
        context.private[rule] = look, len(context.turns), verdict
        return verdict

    return rule


# --- The same again (重复动作检测) ------------------------------------------------------------------


def canonical(call: ToolCall) -> str:
    """The call as text in which the order of arguments does not count, nor the order inside of them.

    Never raises: a call that cannot be written down is like no other.
    """
    try:
        return f"{call.name}({_written(call.arguments)})"
    except Exception:  # it holds itself, it is too deep, or its own repr raises
        return call.id


def _written(value: Any) -> str:
    if isinstance(value, Mapping):
        entries = [f"{_written(key)}: {_written(each)}" for key, each in value.items()]
        return f"{{{', '.join(sorted(entries))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_written, value))}]"
    return repr(value)


#: What two actions must have in common to be the same.
Mark = Callable[[ToolCall, Observation], Hashable]


def _with_result(call: ToolCall, seen: Observation) -> Hashable:
    return canonical(call), seen.kind, seen.text


def _whatever_came(call: ToolCall, seen: Observation) -> Hashable:
    return canonical(call)


def _done(turn: Turn, mark: Mark) -> tuple[Hashable, ...]:
    """A mark for each action of a turn. What only reports a problem is none."""
    pairs = zip(turn.calls, turn.observations, strict=True)
    return tuple([mark(call, seen) for call, seen in pairs if call.problem is None])


class _Repetition:
    """Counts marks over the last rounds, and tells whether the latest round brought one too often."""

    def __init__(self, mark: Mark, times: int, window: int) -> None:
        self._mark, self._times, self._window = mark, times, window
        self._rounds: deque[tuple[Hashable, ...]] = deque()
        self._counts: dict[Hashable, int] = {}

    def __call__(self, turn: Turn) -> StopReason | None:
        self._rounds.append(_done(turn, self._mark))
        if len(self._rounds) > self._window:
            self._count(self._rounds.popleft(), -1)
        self._count(self._rounds[-1], 1)
        hit = any(self._counts[mark] >= self._times for mark in self._rounds[-1])
        return StopReason.REPEATED_ACTION if hit else None

    def _count(self, marks: tuple[Hashable, ...], step: int) -> None:
        for mark in marks:
            self._counts[mark] = self._counts.get(mark, 0) + step
            if not self._counts[mark]:
                del self._counts[mark]


def repeated_action(times: int = 3, window: int = 10) -> Rule:
    """Make the rule that stops when the same call had the same result ``times`` times (B-38).

    Counted over the last ``window`` rounds, each call of a batch by itself. Polling whose results change
    is left alone. The reason is REPEATED_ACTION. Raises ``ValueError`` for numbers that make no sense, such
    as a window in which nothing comes ``times`` times.
    """
    _require_window(times, window)
    return _looking(lambda: _Repetition(_with_result, times, window))


def repeated_call(times: int = 5, window: int = 10) -> Rule:
    """Make the rule that stops when the same call was made ``times`` times, whatever came of it (B-39).

    For tools that nobody has reason to ask twice: it takes polling for a dead loop.
    """
    _require_window(times, window)
    return _looking(lambda: _Repetition(_whatever_came, times, window))


def _require_window(times: int, window: int) -> None:
    require("times", times, 2)
    require(f"window, in which something is to come {times} times,", window, times)


def repeated_cycle(periods: Sequence[int] = (2, 3), times: int = 2) -> Rule:
    """Make the rule that stops when the last rounds are the same few, in turn, ``times`` times over.

    A round is the same if its calls and results are; ``periods`` are how many rounds a cycle may have.
    One round over and over is no cycle: that is for ``repeated_action``.
    """
    require("times", times, 2)
    if not periods:
        raise ValueError("periods must name at least one length of a cycle, such as (2, 3)")
    for period in periods:
        require("a period", period, 2)

    def watcher() -> Look:
        rounds: deque[Hashable] = deque(maxlen=max(periods) * times)

        def look(turn: Turn) -> StopReason | None:
            done = _done(turn, _with_result)
            if not done:
                return None
            rounds.append(done)
            hit = any(_goes_round(list(rounds), period, times) for period in periods)
            return StopReason.REPEATED_ACTION if hit else None

        return look

    return _looking(watcher)


def _goes_round(rounds: list[Hashable], period: int, times: int) -> bool:
    cycle = rounds[-period:]
    return len(set(cycle)) > 1 and rounds[-period * times :] == cycle * times


# --- Nothing new is said (收敛检测) -----------------------------------------------------------------

#: How much of a text is compared, in characters: what is longer is judged by its beginning and its end,
#: since comparing takes time that grows with the cube of the length, in the worst case.
COMPARED = 300
#: The same for fingerprints, whose time grows with the length.
HASHED = 4000
PIECE = 3  # characters that are hashed together
PIECES = 64  # hashes that make a fingerprint

Alike = Callable[[str, str], bool]


def _ends(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length // 2] + text[-length // 2 :]


def text_ratio(least: float = 0.9) -> Alike:
    """Make the comparison by the share of text that two texts have in common, in order (文本相似度).

    ``least`` is the ratio of ``difflib.SequenceMatcher`` from which they are alike, above 0 and up to 1.
    """
    require_share("least", least)

    def alike(first: str, second: str) -> bool:
        if first == second:
            return True
        if 2 * min(len(first), len(second)) < least * (len(first) + len(second)):
            return False
        # autojunk would leave out whatever is frequent in a long text. quick_ratio only says what the
        # ratio cannot exceed: two texts of the same letters have a quick ratio of 1.
        matcher = SequenceMatcher(None, _ends(first, COMPARED), _ends(second, COMPARED), autojunk=False)
        return matcher.quick_ratio() >= least and matcher.ratio() >= least

    return alike


def fingerprints(least: float = 0.8) -> Alike:
    """Make the comparison by hash fingerprints (哈希指纹): the share of small pieces in common.

    A fingerprint is the smallest few of the hashes of all pieces of a text: of two texts, as large a
    share of it is common as of all their pieces (MinHash, Broder, 1997). Order hardly counts.
    """
    require_share("least", least)

    def alike(first: str, second: str) -> bool:
        one, other = _fingerprint(first), _fingerprint(second)
        smallest = sorted(one | other)[:PIECES]
        return sum(each in one and each in other for each in smallest) >= least * len(smallest)

    return alike


def _fingerprint(text: str) -> set[bytes]:
    part = _ends(text, HASHED)
    pieces = {part[start : start + PIECE] for start in range(max(1, len(part) - PIECE + 1))}
    return set(sorted(map(_hash, pieces))[:PIECES])


def _hash(piece: str) -> bytes:
    # Python's own hash of a text is another in each process, and a run must be the same when replayed.
    return hashlib.blake2b(piece.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def converged(alike: Alike, rounds: int = 3) -> Rule:
    """Make the rule that stops when so many rounds in a row said the same and brought the same (A-107).

    What was said is the thought with its calls, compared by ``alike`` with the first of these rounds, so
    that slow change is change. A round that brings another result is new whatever was said: polling is
    left alone. The reason is CONVERGED.
    """
    require_function("alike", alike)
    require("rounds", rounds, 2)

    def watcher() -> Look:
        first, brought, count = "", None, 0

        def look(turn: Turn) -> StopReason | None:
            nonlocal first, brought, count
            said = "\n".join((turn.thought, *map(canonical, turn.calls)))
            came = [(seen.kind, seen.text) for seen in turn.observations]
            if came == brought and alike(first, said):
                count += 1
            else:
                first, brought, count = said, came, 1
            return StopReason.CONVERGED if count >= rounds else None

        return look

    return _looking(watcher)


# --- Nothing is gained (价值停滞) -------------------------------------------------------------------


def stagnated(value: Callable[[LoopContext], Any], patience: int = 3, least_gain: float = 0.0) -> Rule:
    """Make the rule that stops when ``value(context)`` has not improved for ``patience`` rounds (A-108).

    ``value`` returns a number, the more the better, or is a program, such as a judge, that comes to one.
    An improvement is more than the best so far, by at least ``least_gain``. What is no finite number, and
    a judge that fails, is no improvement. The reason is STAGNATED.
    """
    require_function("value", value)
    require("patience", patience, 1)
    if not is_number(least_gain) or least_gain < 0:
        raise ValueError(f"least_gain must be a finite number of at least 0, not {least_gain!r}")

    def rule(control: Control, context: LoopContext) -> Program[StopReason | None]:
        best, idle, judged = context.private.get(rule, (None, 0, 0))
        if judged < len(context.turns):
            found = yield from _judged(value, context)
            if found is not None and (best is None or (found > best and found - best >= least_gain)):
                best, idle = found, 0
            else:
                idle += 1
            context.private[rule] = best, idle, len(context.turns)
        return StopReason.STAGNATED if idle >= patience else None

    return rule


def _judged(value: Callable[[LoopContext], Any], context: LoopContext) -> Program[float | None]:
    try:
        found = yield from settle(value(context))
    except EffectFailed:
        return None
    return found if is_number(found) else None


# --- First a word, then the end (中止并换方向) ------------------------------------------------------

ADVICE = (
    "You are going round in one place: {reason}.\n"
    "Change direction (换方向): use another tool or other arguments, or answer with what you have."
)


def warn_first(rule: Rule, times: int = 1, advice: str = ADVICE) -> Rule:
    """Make the rule that warns the model ``times`` times before it stops the run for ``rule``'s reason.

    ``advice`` is what the model is told after the round, with ``{reason}`` for the reason in words. As
    soon as ``rule`` is silent again, the behaviour has changed, and the earlier warnings are forgiven.
    """
    require_function("rule", rule)
    require("times", times, 1)

    def warning(control: Control, context: LoopContext) -> Program[Any]:
        verdict = yield from settle(rule(control, context))
        if not isinstance(verdict, StopReason):
            context.private[warning] = 0
            return verdict
        warned = context.private[warning] = context.private.get(warning, 0) + 1
        return verdict if warned > times else advice.replace("{reason}", verdict.value)

    return warning


# --- The story ----------------------------------------------------------------------------------

TASK = "查询今天北京的天气"


def stuck_model() -> RuleModel:
    """A model that asks for ever where it gets no weather, unless it is told to take another direction."""
    return RuleModel(
        [
            ("换方向", 'Thought: 换一个工具。\nAction: get_forecast(city="北京")'),
            ("北京未来 1 天", "Thought: 够了。\nAction: Finish[今天北京晴，约 26 摄氏度。]"),
        ],
        otherwise=ASK_WEATHER,
    )


def search(words: str) -> str:
    """Search for words."""
    return "nothing found"


def toolbox() -> Toolbox:
    """A weather station that is down and says so in a result, and tools that work, each in its way."""
    tools: dict[str, Callable[..., Any]] = {
        "get_weather": error_by_value(get_weather),
        "get_forecast": get_forecast,
        "search": search,
        "poll": JobQueue().poll,
        "poll_hanging": JobQueue(["40%"]).poll,
    }
    return Toolbox(tools)


def run(model: FakeModel, protocol: Callable[[Toolbox], Any] = react, **options: Any) -> Result:
    """One run with tools of its own."""
    tools = toolbox()
    loop = AgentLoop(protocol(tools), **options)
    return drive(loop.run(TASK), World(model, tools, clock=FakeClock().now, inline=True))


def different_results(context: LoopContext) -> int:
    """A value for ``stagnated``: how many different results there are so far."""
    return len({seen.text for turn in context.turns for seen in turn.observations})


def rules() -> dict[str, Rule]:
    """The rules of this chapter, each as it is made by default."""
    return {
        "repeated_action": repeated_action(),
        "repeated_call": repeated_call(),
        "repeated_cycle": repeated_cycle(),
        "text_ratio": converged(text_ratio()),
        "fingerprints": converged(fingerprints()),
        "stagnated": stagnated(different_results),
    }


Wanted = tuple[str, dict[str, Any]]


def weather(city: str) -> Wanted:
    """The call that asks the station, which is down."""
    return "get_weather", {"city": city}


#: What a model may do, as the calls of each round; after these it answers.
BEHAVIOURS: dict[str, list[tuple[Wanted, ...]]] = {
    "the same call": [(weather("北京"),)] * 6,
    "arguments turned round": [
        (("get_forecast", {"city": "北京", "days": 2}),),
        (("get_forecast", {"days": 2, "city": "北京"}),),
    ]
    * 3,
    "three at once": [(weather("北京"),) * 3] * 6,
    "A-B-A-B": [(weather("北京"),), (("get_forecast", {"city": "北京"}),)] * 3,
    "the same, reworded": [(("search", {"words": f"北京今天天气怎么样 {number}"}),) for number in range(6)],
    "polling, it gets on": [(("poll", {"job": "report"}),)] * 5,
    "polling, it hangs": [(("poll_hanging", {"job": "report"}),)] * 6,
    "honest work": [(("get_forecast", {"city": city}),) for city in ("北京", "上海", "广州", "哈尔滨")],
}


def stopped_after(rule: Rule, rounds: Sequence[tuple[Wanted, ...]]) -> int | None:
    """The round in which a rule ends this behaviour; ``None`` where the model gets to its answer."""
    script = ScriptedModel([*(calls(*each) for each in rounds), "可以作答。"])
    result = run(script, function_calling, stops=(rule,))
    return None if result.answer is not None else result.control.rounds


def demo(tell: Telling) -> None:
    """A stuck loop: to its limit, stopped by a rule, and warned; then who sees what."""
    tell(f"task: {TASK}")
    tell.heading("Only the limit: every round goes on one useless sentence")
    unguarded = run(stuck_model())
    tell.result(unguarded)
    tell("The station reports its failure as a result, so the limit on failures never saw one.", RED)

    tell.heading("The same model and tools under repeated_action()")
    stopped = run(stuck_model(), stops=(repeated_action(),), watch=tell.watch("stopped"))
    saved = unguarded.control.tokens - stopped.control.tokens
    tell(f"{saved} of {unguarded.control.tokens} tokens were not spent on going round.", GREEN)

    tell.heading("Warned first: the model hears of it, changes direction and finishes (换方向)")
    rule = warn_first(repeated_action())
    tell.result(run(stuck_model(), stops=(rule,), watch=tell.watch("warned")))

    tell.heading("A model that does not listen is warned once, and stopped in the next round")
    deaf = run(stubborn_model(), stops=(rule,))
    warned = [number for number, turn in enumerate(deaf.turns, 1) if turn.warnings]
    tell(f"{ending(deaf.control)}, warned after round {', '.join(map(str, warned))}")

    tell.heading("Who sees what: the round in which each rule stops each behaviour")
    rows: list[Sequence[object]] = [("", *rules())]
    for name, rounds in BEHAVIOURS.items():
        rows.append((name, *(stopped_after(each, rounds) or "-" for each in rules().values())))
    tell.table(rows)
    tell()
    tell("(- is a run that came to its answer.) Counting calls alone (激进判据) ends the job that gets on;")
    tell("counting results too leaves it alone. A-B-A-B is first seen as a cycle, other words only as alike.")
