"""Try again what may pass, later each time and not for ever; never what may already have happened.

Article A, 工具失败处理, 重试策略 (指数退避重试). Covers A-110.

Chapters 15 to 18 said when a run has to stop; this one lets it go on where a moment's patience is enough.
Without it, a model that is told that nobody answers asks again at once, and again: five rounds and five
prompts later the run ends, and not a second has passed. And a retry that does not ask what failed is worse:
it pays three times (C09), or burns its attempts on a key that was wrong the first time.

``retry`` wraps ``act``. What it does depends on the kind of an observation, never on its words:

- UNAVAILABLE (暂时性错误): nothing was done. It is tried again.
- TIMEOUT and UNCERTAIN: it may have taken effect. It is tried again only if the tool is idempotent, and else
  the observation says that nobody knows, and that it was not repeated. No later failure takes the doubt back:
  lost once, then unavailable, is UNCERTAIN, and nobody around pays elsewhere.
- all else (永久性错误: denied, wrong arguments, refused by a person): tried once, and passed on as it came.

A success is passed on word for word. A failure says how often it was tried. Each attempt keeps the call's
id, so a tool can tell it from a new call; a hook that makes a call of its own should give it one.

Waiting is exponential with full jitter (Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog,
2015): from 0 to ``first``, then twice as much, up to ``longest``. The draw is a ``Do``, so that a journal
holds it and a replay waits for nobody. What the other side asked for (Retry-After, RFC 9110) comes before
it. A wait that the allowance does not cover is not begun, and the model is told at once; one for which the
run has no time left is refused by the account, and the failure in hand is kept.

Patience does not multiply. Three attempts around four are twelve if nobody says anything, and a service
that is down gets twelve times its load. Who gives up therefore says so where whoever wraps it looks, in
``retry_after`` (``GIVEN_UP``), and a retry around it passes the failure on. So the innermost one decides, and
wrapping twice changes no count. The kind stays what it was: a fallback (chapter 20) has to see it.

``patient`` is the same for a model's request.

Departures: the article describes retrying and prints no code. Its listing has one kind of failure, which
nothing raises (EA51), so it could not tell what may pass; and a call whose time is up is left behind, so that
a wait is a wait (EA43).

Exercises
---------
1. ``retry_everything`` of this file is the retry of many tutorials. Mend it, one promise after the other:
   ``python -m pytest --impl retry=chapters/ch19_retry_with_backoff.py:retry_everything``
2. Replace full jitter by a wait that grows without a draw. Every promise but one is kept, and the demo's
   picture shows what that one is for: ``python -m pytest --impl retry=my_retry.py:retry``
3. A retry budget: let a tool be tried again only while its retries are few beside its calls, counted by an
   object that all loops share and reach by ``Do``. With a large budget the same command still passes, but
   for ``a_success_is_passed_on_as_it_is``: a call that is counted costs an effect, also where it succeeds at
   once. Can you count so that this promise is kept too?
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

from agentloop import (
    LARGEST,
    Act,
    AgentLoop,
    CallTool,
    Do,
    Effect,
    EffectFailed,
    Finish,
    Kind,
    LimitReached,
    LoopContext,
    Observation,
    Outcome,
    Program,
    Sleep,
    Step,
    Toolbox,
    ToolCall,
    Unavailable,
    World,
    call_tool,
    drive,
    report,
    settle,
)
from chapters.ch18_human_in_the_loop import IN_DOUBT, still_in_doubt, through
from chapters.telling import GREEN, RED, Telling
from fake_llm import Cashier, FakeClock, FakeModel, RuleModel, SpoiledTool, get_weather
from paradigms.arguments import require, require_function, require_seconds
from paradigms.react import react

HARMLESS = (Kind.UNAVAILABLE,)  # nothing was done, so repeating it does no harm

#: What ``retry_after`` says of a failure that was tried as long as patience allows: not again.
GIVEN_UP = LARGEST


@dataclass(frozen=True)
class Patience:
    """How long to keep trying. Times are in seconds; everything is finite and above 0.

    ``attempts`` is how often in all, ``first`` the longest that the first wait can be, ``longest`` the same
    of any wait, and ``allowance`` what there is for all that follows the first failure. ``draw`` gives a
    number from 0 to 1; ``wall_clock`` the seconds since 1970, to read dates by. Raises ``ValueError``, and
    ``TypeError`` where these two are no functions.
    """

    attempts: int = 4
    first: float = 1.0
    longest: float = 20.0
    allowance: float = 60.0
    draw: Callable[[], float] = random.random
    wall_clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        require("Patience.attempts", self.attempts, 1)
        for name in ("first", "longest", "allowance"):
            require_seconds(f"Patience.{name}", getattr(self, name))
        require_function("Patience.draw", self.draw)
        require_function("Patience.wall_clock", self.wall_clock)


def require_patience(patience: object) -> None:
    """Raises ``TypeError`` for what has no attempts and draws no waits."""
    if isinstance(patience, type) or not callable(getattr(patience, "draw", None)):
        raise TypeError(f"patience must be a Patience, such as Patience(attempts=3), not {patience!r}")


def pause(patience: Patience, tried: int, retry_after: float | str | None = None) -> float:
    """Draw the wait after so many failed attempts, in seconds: what was asked for, and the jitter on top.

    On top, so that a crowd that was told the same second does not come in the same second.
    """
    most = min(patience.first * 2.0 ** min(tried - 1, 1000), patience.longest)
    return seconds_asked(retry_after, patience.wall_clock) + patience.draw() * most


def seconds_asked(retry_after: float | str | None, wall_clock: Callable[[], float]) -> float:
    """How many seconds from now the other side asked for: 0 where it asked for nothing, or makes no sense."""
    if not isinstance(retry_after, (int, float, str)):
        return 0.0
    try:
        seconds = float(retry_after)
    except OverflowError:
        return math.inf
    except ValueError:
        seconds = _until(str(retry_after), wall_clock)
    return seconds if seconds > 0 else 0.0  # neither NaN nor the past is above 0


def _until(date: str, wall_clock: Callable[[], float]) -> float:
    try:
        when = parsedate_to_datetime(date)
    except (TypeError, ValueError, IndexError, OverflowError):  # all that it raises for what is no date
        return 0.0
    aware = when if when.tzinfo else when.replace(tzinfo=UTC)  # a date of HTTP is never a local one
    return aware.timestamp() - wall_clock()


# --- The two guards -----------------------------------------------------------------------------


def nothing_is(name: str) -> bool:
    """Say that no tool is idempotent: what is assumed of tools of which nothing is known."""
    return False


def retry(
    act: Callable[[ToolCall], Any] = call_tool,
    *,
    idempotent: Callable[[str], bool] = nothing_is,
    patience: Patience = Patience(),  # noqa: B008 - it is immutable
) -> Callable[[ToolCall], Program[Observation]]:
    """Guard ``act``: try a call again as long as its failure may pass.

    ``idempotent`` says of a tool, by its name, whether it may be called again when it is not known whether it
    took effect: ``tools.is_idempotent``. Raises ``TypeError`` for what is no hook, function or patience.
    """
    require_function("act", act)
    require_function("idempotent (such as tools.is_idempotent)", idempotent)
    require_patience(patience)

    def guarded(call: ToolCall) -> Program[Observation]:
        seen: Observation = yield from settle(act(call))
        if seen.ok:
            return seen
        in_doubt = seen.kind in IN_DOUBT

        def attempt() -> Program[Observation]:
            nonlocal in_doubt
            before, in_doubt = in_doubt, True  # as long as it is under way, and where the run ends in it
            again = settle(act(call))
            came: Observation = yield from _by_itself(again, call.name) if before else again
            in_doubt = before or came.kind in IN_DOUBT
            return came

        seen = yield from _again(seen, attempt, idempotent(call.name), patience)
        return still_in_doubt(seen) if in_doubt else seen

    return guarded


def _by_itself(program: Program[Observation], name: str) -> Program[Observation]:
    """An attempt after one in doubt: what a guard inside would ask another tool for may have been done."""
    at = 0.0

    def gate(effect: Effect) -> Program[Outcome]:
        nonlocal at
        if isinstance(effect, CallTool) and effect.call.name != name:
            text = f"{effect.call.name} was not asked: {name} may have done it already."
            return Outcome(Observation(text, False, Kind.UNAVAILABLE), at)
        outcome: Outcome = yield effect
        at = outcome.at
        return outcome

    return through(program, gate)


def patient(
    reason: Callable[[LoopContext], Any],
    *,
    patience: Patience = Patience(),  # noqa: B008
) -> Callable[[LoopContext], Program[Act | Finish]]:
    """Guard ``reason``: think again where the model could not be had, instead of spending a round on it.

    A request changes nothing in the world, so one that timed out may be sent again too; it may be paid twice.
    """
    require_function("reason", reason)
    require_patience(patience)

    def reasoned(context: LoopContext) -> Program[Act | Finish]:
        decision: Act | Finish = yield from settle(reason(context))
        failure = _failed_request(decision)
        if failure is None:
            return decision

        def think_again() -> Program[Observation]:
            nonlocal decision
            decision = yield from settle(reason(context))
            return _failed_request(decision) or Observation("the model answered")

        seen = yield from _again(failure, think_again, True, patience)
        return decision if seen.ok else report(seen, decision.thought)

    return reasoned


def _failed_request(decision: Act | Finish) -> Observation | None:
    """The failure that a decision reports, where it says nothing but that the model could not be had."""
    problem = decision.calls[0].problem if type(decision) is Act and len(decision.calls) == 1 else None
    return problem if problem is not None and problem.kind in HARMLESS + IN_DOUBT else None


def _again(
    seen: Observation, attempt: Callable[[], Any], idempotent: bool, patience: Patience
) -> Program[Observation]:
    """Try again after the failure ``seen``, and return what came of it in the end."""
    began: float | None = None
    tried = 1
    while True:
        if seen.ok or seen.kind not in HARMLESS + IN_DOUBT:
            return seen if seen.ok or tried == 1 else _told(seen, tried)
        if seen.retry_after == GIVEN_UP:
            return seen
        if seen.kind in IN_DOUBT and not idempotent:
            return _told(seen, tried, "and not again, since it may have taken effect")
        if tried == patience.attempts:
            return _told(seen, tried, "and given up")
        try:
            draw = partial(pause, patience, tried, seen.retry_after)
            seconds, at = yield Do(f"how long to wait after attempt {tried}", draw, repeatable=True)
            began = at if began is None else began
            left = began + patience.allowance - at
            if seconds > left:
                lasts = f"{max(left, 0):.4g} s are left"
                return _told(seen, tried, f"the next attempt would be {seconds:.4g} s away, and {lasts}")
            yield Sleep(seconds)
        except (LimitReached, EffectFailed) as end:
            return _told(seen, tried, f"and could not wait to try again: {end}")
        try:
            seen = yield from settle(attempt())
        except LimitReached as end:
            ended = f"then the run ended, and of attempt {tried + 1} nothing is known: {end}"
            return _told(seen, tried, ended)
        tried += 1


def _told(seen: Observation, tried: int, more: str = "") -> Observation:
    """The failure, and how often it was tried; no retry around this one tries it again."""
    times = "once" if tried == 1 else f"{tried} times"
    text = f"{seen.text} (tried {times}{more and ', '}{more})"
    return seen._replace(text=text, retry_after=GIVEN_UP)


# --- The retry of many tutorials ------------------------------------------------------------------


def retry_everything(
    act: Callable[[ToolCall], Any] = call_tool,
    *,
    idempotent: Callable[[str], bool] = nothing_is,
    patience: Patience = Patience(),  # noqa: B008
) -> Callable[[ToolCall], Program[Observation]]:
    """Try whatever fails again, at once (C09)."""

    def guarded(call: ToolCall) -> Program[Observation]:
        for _ in range(patience.attempts):
            seen: Observation = yield from settle(act(call))
            if seen.ok:
                break
        return seen

    return guarded


# --- The story ------------------------------------------------------------------------------------

TASK = "今天北京天气怎么样？"
NOW = "Sun, 06 Nov 1994 08:49:30 GMT"
DOWN = 4.0  # seconds, from the beginning of each story


def asker() -> RuleModel:
    """A model that answers once it has seen the weather, and asks for it until then."""
    return RuleModel(
        [("北京当前天气", "Thought: 查到了。\nAction: Finish[今天北京晴，26 摄氏度。]")],
        otherwise='Thought: 查天气。\nAction: get_weather(city="北京")',
    )


class Outage:
    """Something that is down until the clock shows ``until`` seconds; ``at`` is when it was asked."""

    def __init__(self, clock: FakeClock, until: float, error: Exception) -> None:
        self._clock, self._until, self._error = clock, until, error
        self.at: list[float] = []

    def __call__(self, work: Callable[[], Any]) -> Any:
        """Do the work, or raise the error."""
        self.at.append(self._clock.now())
        if self._clock.now() < self._until:
            raise self._error
        return work()

    def __str__(self) -> str:
        return ", ".join(f"{at:.1f} s" for at in self.at)


def seeded() -> Patience:
    """The default patience, with draws that are the same on every run, on a day that does not pass."""
    now = parsedate_to_datetime(NOW).timestamp()
    return Patience(draw=random.Random(19).random, wall_clock=lambda: now)


def first_and_last(watch: Callable[[Step], None]) -> Callable[[Step], None]:
    """Watch the first round of a run and its end: those between are like the first."""
    return lambda step: watch(step) if step.before.rounds <= 1 or step.after.stop else None


def station(tell: Telling, name: str, guard: Callable[[Toolbox], Callable[[ToolCall], Any]]) -> None:
    """Ask for the weather while the station is down for the first seconds."""
    clock = FakeClock()
    outage = Outage(clock, DOWN, ConnectionRefusedError("nobody answers at the station"))
    tools = Toolbox([SpoiledTool(get_weather, lambda number, run: outage(run))], idempotent=["get_weather"])
    loop = AgentLoop(react(tools), act=guard(tools), watch=first_and_last(tell.watch(name)))
    tell.result(drive(loop.run(TASK), World(asker(), tools, clock=clock.now, sleep=clock.sleep, inline=True)))
    tell(f"the station was asked at {outage}")


def provider(tell: Telling, name: str, guard: Callable[..., Any]) -> None:
    """Ask for the weather while the model is down for the first seconds."""
    clock, model = FakeClock(), asker()
    outage = Outage(clock, DOWN, ConnectionError("503 overloaded"))
    tools = Toolbox([get_weather])
    loop = AgentLoop(guard(react(tools)), watch=first_and_last(tell.watch(name)))
    asked = FakeModel(lambda request: outage(lambda: model(request)))
    tell.result(drive(loop.run(TASK), World(asked, tools, clock=clock.now, sleep=clock.sleep, inline=True)))
    tell(f"the model was asked at {outage}")


def pay(guard: Callable[..., Callable[[ToolCall], Any]]) -> tuple[Observation, list[float]]:
    """Pay 9 yuan by a call whose answer is lost on the way back, after the money has gone."""
    cashier, clock = Cashier(), FakeClock()

    def lost_answer(number: int, run: Callable[[], Any]) -> Any:
        run()
        raise TimeoutError("no answer from the bank")

    tools = Toolbox([SpoiledTool(cashier.pay, lost_answer)])
    act = guard(call_tool, idempotent=tools.is_idempotent, patience=seeded())
    program = settle(act(ToolCall("pay", {"amount": 9}, "call_1_1_1")))
    return drive(program, World(tools=tools, clock=clock.now, sleep=clock.sleep, inline=True)), cashier.ledger


def asked_for(retry_after: float | str | None) -> tuple[list[float], Observation]:
    """The waits, and what came of a call to a server that says when to come back, once."""
    clock = FakeClock()
    outage = Outage(clock, 0.1, Unavailable("503", retry_after))
    tools = Toolbox([SpoiledTool(get_weather, lambda number, run: outage(run))])
    program = retry(patience=seeded())(ToolCall("get_weather", {"city": "北京"}, "call_1_1_1"))
    world = World(tools=tools, clock=clock.now, sleep=clock.sleep, inline=True)
    return clock.slept, drive(program, world)


def crowd(patience: Patience, clients: int = 60) -> Counter[float]:
    """How many requests arrive in each quarter of a second, of clients who all failed together at 0."""
    arrivals: Counter[float] = Counter()
    for _ in range(clients):
        at = 0.0
        for tried in range(1, patience.attempts):
            at += pause(patience, tried)
            arrivals[at // 0.25 * 0.25] += 1
    return arrivals


def demo(tell: Telling) -> None:
    """A station that is down; a crowd; a payment; a server's word; a model that is down."""
    tell(f"task: {TASK}")
    tell.heading("Asking again at once: five rounds, all like the first, and the station is no better")
    station(tell, "at once", lambda tools: call_tool)
    tell.heading("The same station and the same model, with patience: one round")
    station(tell, "patient", lambda tools: retry(idempotent=tools.is_idempotent, patience=seeded()))

    tell.heading("Why a draw: 60 clients failed in the same instant, and each tries again, three times")
    jitter, none = crowd(seeded()), crowd(replace(seeded(), draw=lambda: 1.0))
    tell.table(
        [("at", "without jitter", "with full jitter")]
        + [(f"{at:.2f} s", "#" * none[at], "#" * jitter[at]) for at in (n / 4 for n in range(14))]
    )
    tell(f"The busiest quarter of a second: {max(none.values())} requests, and {max(jitter.values())}.")

    tell.heading("What must not be tried again: 9 yuan, paid, and the answer lost")
    for name, guard in (("everything is tried again", retry_everything), ("ours", retry)):
        seen, ledger = pay(guard)
        tell(f"{name}: paid {' + '.join(f'{amount:g}' for amount in ledger)} yuan, and the model reads")
        tell(f"    {seen.kind.name}: {seen.text}", GREEN if len(ledger) == 1 else RED)

    tell.heading(f"A server that says when to come back; it is {NOW}")
    tell.table(
        [("Retry-After", "waited", "came of it")]
        + [
            (word, " ".join(f"{wait:.1f} s" for wait in waits) or "-", seen.text)
            for word in (None, 5, "Sun, 06 Nov 1994 08:49:37 GMT", "soon", -5, "nan", 3600)
            for waits, seen in [asked_for(word)]
        ]
    )

    tell.heading("The model is down: each failure costs a round, and all are like the first")
    provider(tell, "at once", lambda reason: reason)
    tell.heading("The same model, with patience: none")
    provider(tell, "patient", lambda reason: patient(reason, patience=seeded()))
