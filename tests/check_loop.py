"""What a loop promises: plain functions of one ``make_loop``, used on ours, on wrong ones, on a reader's.

``make_loop(reason, act=..., limits=..., perceive=..., stops=..., accept=..., watch=...)`` makes a loop
as ``AgentLoop`` does; what it makes has ``run(task)``. ``check_loop(make_loop)`` raises ``BrokenPromise``
with the shortest story that breaks a promise. ``PROMISES`` holds the same promises one by one, under
the names the gallery uses.

How it works: a ``Script`` says what each hook does and what the world answers. ``play`` lets a loop play
it and writes down all that happens, as ``Moment``s. A promise looks through the moments of one play for
what is wrong. Promises that need more than one play come after those.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from agentloop import (
    ACCOUNT_REASONS,
    RULE_REASONS,
    STOPPED_BY_A_PERSON,
    Act,
    AskHuman,
    CallModel,
    CallTool,
    Control,
    Do,
    Effect,
    EventKind,
    Failure,
    Finish,
    IllegalTransition,
    Interrupted,
    Journal,
    Kind,
    LimitReached,
    Limits,
    LoopContext,
    LoopError,
    Message,
    Observation,
    Outcome,
    Program,
    Reply,
    Result,
    Sleep,
    Stage,
    Start,
    Step,
    StopReason,
    Together,
    ToolCall,
    Turn,
    Usage,
    advance,
    call_text,
    estimate_tokens,
    report,
    worst_case_steps,
)
from tests.check_machine import BrokenPromise

MakeLoop = Callable[..., Any]

# --- Scripts: a loop and its world, written down ----------------------------------------------

#: What one hook does, move by move; the last move that names a value is what it returns.
Moves = tuple[str, ...]

LOOSE = Limits(
    rounds=3, model_calls=9, tool_calls=9, effects=20, failures=3, tokens=1000, cost=100.0, seconds=1000.0
)
TOKENS_ANNOUNCED = 5  # what each request of a script is known to take
SLEEP = 2.0  # seconds
REPLY = "晴，24 度"


class Script(NamedTuple):
    """What the hooks of a loop do, and what the world answers.

    ``reason`` holds the moves of each round; its last is repeated. ``tools`` says for each tool call
    in turn whether it succeeds; the last is repeated. ``seconds`` is how long each effect takes.
    From effect number ``interrupted_at`` on (0 is the start) a person has stopped the run.
    """

    reason: tuple[Moves, ...] = (("one call",),)
    act: Moves = ("tool",)
    perceive: Moves = ()
    accept: Moves = ()
    stop: Moves = ()
    limits: Limits = LOOSE
    tools: tuple[bool, ...] = (True,)
    usage: Usage | None = Usage(10, 0.5)
    seconds: float = 1.0
    interrupted_at: int | None = None
    inner: Script | None = None  # what the move "loop" plays; None is a loop of one call
    task: Any = "今天北京适合去哪里玩？"

    def __str__(self) -> str:
        """Only what differs from the plainest script."""
        plain = Script()
        parts = [
            f"{name}={value!r}"
            for name, value, usual in zip(self._fields, self, plain, strict=True)
            if value != usual and name not in ("limits", "inner")
        ]
        limits = [
            f"{name}={value!r}"
            for name in Limits.__dataclass_fields__
            if (value := getattr(self.limits, name)) != getattr(LOOSE, name)
        ]
        if limits:
            parts.append(f"limits: {', '.join(limits)}")
        if self.inner is not None:
            parts.append(f"inner: ({self.inner})")
        return ", ".join(parts) or "one call of a tool, again and again"


EFFECTS: dict[str, Callable[[], Any]] = {
    "model": lambda: CallModel((Message("user", "北京"),), tokens=TOKENS_ANNOUNCED),
    "person": lambda: AskHuman("May I?"),
    "sleep": lambda: Sleep(SLEEP),
    "do": lambda: Do("draw", lambda: 4),
    "failing do": lambda: Do("draw", lambda: 1 // 0),
    "junk": lambda: "an effect? no, a text",
}
#: Moves that want something of the world; "tool" is for ``act`` alone.
WISHES = (*EFFECTS, "tool", "loop", "together")
ONE_CALL = Act((ToolCall("get_weather", {"city": "北京"}),), "先查天气")
TWO_CALLS = Act((ToolCall("get_weather", {"city": "北京"}), ToolCall("get_weather", {"city": "上海"})), "查")
UNREADABLE = Observation("Write Thought, then Action.", False, Kind.MALFORMED)
#: What a hook can be told to return.
VALUES: dict[str, Any] = {
    "one call": ONE_CALL,
    "two calls": TWO_CALLS,
    "report": report(UNREADABLE, "嗯"),
    "call and report": Act((*ONE_CALL.calls, *report(UNREADABLE).calls), "两个"),
    "answer": Finish("颐和园", "够了"),
    "empty answer": Finish(" \n"),
    "seen": Observation("晴"),
    "failed": Observation("503", False, Kind.TOOL_ERROR),
    "odd": 42,
    "nothing": None,
    "object": "Verify it first.",
    "warn": "Change direction.",
    "memories": {"retrieved_memories": "去年去过长城"},
    **{reason.name: reason for reason in StopReason},
}
INNER = Script(reason=(("model", "one call"), ("answer",)))


class Bug(Exception):
    """What a hook raises on the move "bug"."""


class Runaway(BaseException):
    """A play was cut off: it had long gone past every bound."""


# --- Moments: what happens in a play ----------------------------------------------------------


class Told(NamedTuple):
    """The watcher of a loop was told a step of its machine."""

    loop: int
    step: Step

    def __str__(self) -> str:
        before, event, after, _ = self.step
        stop = f" ({after.stop.name})" if after.stop else ""
        return f"the machine hears {event.kind.name}: {before.state.name} -> {after.state.name}{stop}"


class Performed(NamedTuple):
    """An effect reached the world; ``value`` is what came of it, ``at`` the time then."""

    effect: Any
    value: Any
    at: float

    def __str__(self) -> str:
        name = type(self.effect).__name__
        wish = call_text(self.effect.call) if isinstance(self.effect, CallTool) else ""
        if self.value is STOPPED_BY_A_PERSON:
            return f"{name} {wish}: a person stops the run instead"
        return f"the world performs {name} {wish}".rstrip()


class Forked(NamedTuple):
    """A hook wanted two programs side by side."""

    def __str__(self) -> str:
        return "two loops begin side by side"


class Entered(NamedTuple):
    """A hook was entered. ``what`` is its argument; for ``reason``, the finished turns."""

    loop: int
    hook: str
    what: Any

    def __str__(self) -> str:
        return f"{self.hook} is entered"


class Said(NamedTuple):
    """A hook returned."""

    loop: int
    hook: str
    value: Any

    def __str__(self) -> str:
        value = self.value
        if isinstance(value, Act):
            calls = "; ".join("a report" if call.problem else call_text(call) for call in value.calls)
            return f"{self.hook} decides to act: {calls}"
        if isinstance(value, Finish):
            return f"{self.hook} decides to finish with {value.answer!r}"
        return f"{self.hook} returns {value!r}"


class Refused(NamedTuple):
    """An exception was thrown into a hook, or its own bug; ``deaf`` ones carry on regardless."""

    loop: int
    hook: str
    error: BaseException
    deaf: bool

    def __str__(self) -> str:
        return f"{self.hook} gets {type(self.error).__name__}{', and carries on' if self.deaf else ''}"


class Ended(NamedTuple):
    """A run returned its ``Result``, or raised."""

    loop: int
    result: Any

    def __str__(self) -> str:
        if isinstance(self.result, Result):
            stop = self.result.control.stop
            return f"the run ends: {stop.name if stop else 'no reason'}, answer {self.result.answer!r}"
        return f"the run raises {type(self.result).__name__}: {self.result}"


Moment = Told | Performed | Forked | Entered | Said | Refused | Ended


# --- Playing a script -------------------------------------------------------------------------

#: No script here can come near this many moments under a loop that is bounded.
CUT_OFF = 1000


class Play:
    """One script played by one loop: all that happened, in ``moments``; loop 1 is the outermost."""

    def __init__(self, make_loop: MakeLoop, script: Script, journal: Journal | None = None) -> None:
        self.make_loop, self.script, self.journal = make_loop, script, journal
        self.moments: list[Moment] = []
        self.by_kind: defaultdict[type, list[tuple[int, Any]]] = defaultdict(list)
        self.limits: dict[int, Limits] = {}
        self.stopped: dict[int, int] = {}  # by loop: the moment at which its machine had its reason
        self.cut_off = False
        self.at = 0.0
        self.tool_calls = 0
        self.effects = 0

    def begin_anew(self) -> None:
        """Forget what happened, and set the world back to where it began."""
        self.moments, self.by_kind, self.stopped = [], defaultdict(list), {}
        self.limits = {number: limits for number, limits in self.limits.items() if number == 1}
        self.at, self.tool_calls, self.effects = 0.0, 0, 0

    def note(self, moment: Moment) -> None:
        if isinstance(moment, Told) and moment.step.after.stop is not None:
            self.stopped.setdefault(moment.loop, len(self.moments))
        self.by_kind[type(moment)].append((len(self.moments), moment))
        self.moments.append(moment)
        if len(self.moments) > CUT_OFF:
            self.cut_off = True
            raise Runaway(f"cut off after {CUT_OFF} moments")

    def loop(self, script: Script) -> tuple[int, Any]:
        """Make a loop of the script; returns its number here, and the loop."""
        number = len(self.limits) + 1
        self.limits[number] = script.limits
        hooks = Hooks(self, script, number)
        given: dict[str, Any] = {
            "act": hooks.act,
            "limits": script.limits,
            "watch": lambda step: self.note(Told(number, step)),
        }
        if script.perceive:
            given["perceive"] = hooks.perceive
        if script.accept:
            given["accept"] = hooks.accept
        if script.stop:
            given["stops"] = (hooks.stop,)
        return number, self.make_loop(hooks.reason, **given)

    def program(self, script: Script) -> Program[Any]:
        """The program of one run of a new loop, its end written down."""
        number, loop = self.loop(script)
        return self.noted(number, loop.run(script.task))

    def noted(self, number: int, program: Program[Any]) -> Program[Any]:
        try:
            result = yield from program
        except Exception as error:
            self.note(Ended(number, error))
            raise
        self.note(Ended(number, result))
        return result

    def run(self, program: Program[Any]) -> None:
        """Drive a program to its end. What it raises is in the last moment."""
        try:
            stage = Stage(program, self.journal)
            waiting = deque(stage.waiting)
            while waiting:
                strand = waiting.popleft()
                value = self.outcome(strand.effect)
                waiting += stage.deliver(strand, value, self.at)
            _ = stage.result
        except (Exception, Runaway):
            program.close() if not self.cut_off else None

    def outcome(self, effect: Effect) -> Any:
        """What the world answers. An effect counts as performed from here on."""
        number, self.effects = self.effects, self.effects + 1
        interrupted_at = self.script.interrupted_at
        interrupted = interrupted_at is not None and number >= interrupted_at
        self.at += 0.0 if interrupted else self.script.seconds
        value = STOPPED_BY_A_PERSON if interrupted else self.answer(effect)
        self.note(Performed(effect, value, self.at))
        return value

    def answer(self, effect: Effect) -> Any:
        if isinstance(effect, CallModel):
            return Reply(REPLY, usage=self.script.usage)
        if isinstance(effect, CallTool):
            self.tool_calls += 1
            ok = self.script.tools[min(self.tool_calls, len(self.script.tools)) - 1]
            return VALUES["seen"] if ok else VALUES["failed"]
        if isinstance(effect, Sleep):
            self.at += effect.seconds
        if isinstance(effect, Do):
            try:
                return effect.function()
            except Exception as error:
                return Failure(str(error))
        return "yes" if isinstance(effect, AskHuman) else None


class Hooks:
    """The hooks of one loop, each doing what the script says. They hold no state of a run."""

    def __init__(self, play: Play, script: Script, number: int) -> None:
        self.play, self.script, self.number = play, script, number

    def reason(self, context: LoopContext) -> Any:
        rounds = self.script.reason
        moves = rounds[min(len(context.turns), len(rounds) - 1)]
        return self.made("reason", tuple(context.turns), moves)

    def act(self, call: ToolCall) -> Any:
        return self.made("act", call, self.script.act)

    def perceive(self, task: Any) -> Any:
        return self.made("perceive", task, self.script.perceive)

    def accept(self, context: LoopContext, answer: Any) -> Any:
        return self.made("accept", answer, self.script.accept)

    def stop(self, control: Control, context: LoopContext) -> Any:
        return self.made("stop", control, self.script.stop)

    def made(self, hook: str, what: Any, moves: Moves) -> Any:
        """A hook that wants nothing of the world is a plain function, any other a program."""
        self.play.note(Entered(self.number, hook, what))
        program = self.moves(hook, what, moves)
        if set(moves).isdisjoint(WISHES):
            try:
                next(program)
            except StopIteration as finished:
                return finished.value
        return program

    def moves(self, hook: str, what: Any, moves: Moves) -> Program[Any]:
        deaf, for_ever = "deaf" in moves, "for ever" in moves and not set(moves).isdisjoint(WISHES)
        closings = 0
        value: Any = None
        while True:
            for move in moves:
                try:
                    came = yield from self.move(move, what)
                    value = came if came is not None else value
                except (Exception, GeneratorExit) as error:
                    if self.play.cut_off:
                        raise
                    self.play.note(Refused(self.number, hook, error, deaf))
                    closings += isinstance(error, GeneratorExit)
                    if not deaf or closings > 1:  # the second time it is the garbage collector who asks
                        raise
            if not for_ever:
                break
        for move in moves:
            value = VALUES.get(move, value)
        self.play.note(Said(self.number, hook, value))
        return value

    def move(self, move: str, what: Any) -> Program[Any]:
        """One move. Returns an observation where one came of it."""
        if move == "bug":
            raise Bug("a bug in a hook")
        if move == "tool":
            return (yield CallTool(what)).value
        if move == "loop":
            result = yield from self.play.program(self.script.inner or INNER)
            return Observation(result.summary)
        if move == "together":
            self.play.note(Forked())
            programs = tuple(self.play.program(self.script.inner or INNER) for _ in range(2))
            yield Together(programs)
        if move in EFFECTS:
            yield EFFECTS[move]()
        return None


def play(make_loop: MakeLoop, script: Script, journal: Journal | None = None) -> Play:
    """Let a loop play a script, to its end or until it is cut off."""
    played = Play(make_loop, script, journal)
    played.run(played.program(script))
    return played


# --- Promises of one play: where it goes wrong, and what is wrong there -----------------------

Wrong = tuple[int, str]  # the number of the moment, counted from 0, and what is wrong with it
Promise = Callable[[Play], Iterator[Wrong]]


def _of(played: Play, kind: type, loop: int | None = None) -> Iterator[tuple[int, Any]]:
    """The moments of a kind, of one loop or of all, each with its number."""
    for number, moment in played.by_kind[kind]:
        if loop is None or moment.loop == loop:
            yield number, moment


def _of_loop(played: Play, loop: int, *kinds: type) -> list[tuple[int, Any]]:
    """The moments of one loop that are of any of these kinds, in order."""
    return sorted((each for kind in kinds for each in _of(played, kind, loop)), key=lambda each: each[0])


def _results(played: Play) -> Iterator[tuple[int, int, Result]]:
    """Number of the moment, loop, result: also of runs that raised ``LoopError``."""
    for number, ended in _of(played, Ended):
        result = ended.result.result if isinstance(ended.result, LoopError) else ended.result
        if isinstance(result, Result):
            yield number, ended.loop, result


def _last(played: Play) -> int:
    return len(played.moments) - 1


def _forks(played: Play) -> bool:
    return bool(played.by_kind[Forked])


def _really(played: Play, kind: type | tuple[type, ...]) -> list[int]:
    """Where effects of a kind were performed, not stopped by a person."""
    return [
        number
        for number, performed in _of(played, Performed)
        if isinstance(performed.effect, kind) and performed.value is not STOPPED_BY_A_PERSON
    ]


def it_ends(played: Play) -> Iterator[Wrong]:
    """Every run ends, whatever its hooks and the world do."""
    if played.cut_off or not list(_of(played, Ended, 1)):
        yield _last(played), "the run goes on and on"


def it_ends_in_a_result(played: Play) -> Iterator[Wrong]:
    """A run ends with a Result; only a bug in a hook raises, and then it is a LoopError."""
    for number, ended in _of(played, Ended):
        if not isinstance(ended.result, Result | LoopError):
            yield number, f"the run came to {ended.result!r}"
        elif isinstance(ended.result, LoopError) and not isinstance(ended.result.result, Result):
            yield number, "the LoopError does not hold the result so far"


def it_ends_within_the_worst_case(played: Play) -> Iterator[Wrong]:
    """A run takes at most ``worst_case_steps`` of the machine."""
    for loop, limits in played.limits.items():
        told = [number for number, _ in _of(played, Told, loop)]
        worst = worst_case_steps(limits)
        if len(told) > worst:
            yield told[worst], f"the machine takes step {worst + 1}, and {worst} is the worst case"


def it_obeys_the_machine(played: Play) -> Iterator[Wrong]:
    """Each step is what ``advance`` makes of the one before, from the first control to the last."""
    for loop, limits in played.limits.items():
        control = Control()
        for number, told in _of(played, Told, loop):
            before, event, after, _ = told.step
            if before != control:
                yield number, f"the step begins at {before}, and the run stood at {control}"
            try:
                due = advance(before, event, limits)
            except IllegalTransition as refusal:
                yield number, f"the machine refuses this step: {refusal}"
                return
            if after != due:
                yield number, f"the step leads to {after}, and the machine leads to {due}"
            control = after
        for number, ended, result in _results(played):
            if ended == loop and result.control != control:
                yield number, f"the result says {result.control}, and the last step led to {control}"


def it_has_an_answer_exactly_when_final(played: Play) -> Iterator[Wrong]:
    """``answer is not None`` exactly when ``stop`` is FINAL_ANSWER, and it is the answer that was given."""
    for number, loop, result in _results(played):
        stop = result.control.stop
        if (result.answer is not None) is not (stop is StopReason.FINAL_ANSWER):
            yield number, f"the answer is {result.answer!r}, and the reason is {_name(stop)}"
        given = [said.value for _, said in _of(played, Said, loop) if isinstance(said.value, Finish)]
        if result.answer is not None and (not given or given[-1].answer != result.answer):
            yield number, f"the answer {result.answer!r} is not the one that reason gave"


def it_lets_an_answer_win(played: Play) -> Iterator[Wrong]:
    """A final answer in hand ends the run with FINAL_ANSWER, whatever limit is reached."""
    for loop in played.limits:
        for (number, said), (_, told) in pairwise(_of_loop(played, loop, Said, Entered, Told, Ended)):
            in_hand = isinstance(said, Said) and said.hook == "reason" and _is_an_answer(said.value)
            if not in_hand or not isinstance(told, Told) or _is_over(played, loop, number):
                continue  # where accept is entered next, it is not in hand yet
            stop = told.step.after.stop
            if stop is not StopReason.FINAL_ANSWER:
                yield number, f"the answer is in hand, and the machine goes to {_name(stop)}"


def _is_an_answer(value: Any) -> bool:
    return isinstance(value, Finish) and bool(str(value.answer).strip())


def _is_over(played: Play, loop: int, before: int) -> bool:
    """Whether a loop has its reason to stop before a moment."""
    return played.stopped.get(loop, before) < before


def it_refuses_an_empty_answer(played: Play) -> Iterator[Wrong]:
    """An answer of nothing but blanks is no answer: the model is told so, within the limits."""
    for number, _, result in _results(played):
        if result.answer is not None and not str(result.answer).strip():
            yield number, f"the run ends with the answer {result.answer!r}"


def it_tells_the_true_reason(played: Play) -> Iterator[Wrong]:
    """The reason named is true: recomputed from what the world and the hooks saw."""
    for number, loop, result in _results(played):
        stop = result.control.stop
        if stop is None:
            yield number, "the run ended without a reason"
        elif loop == 1 and not _is_true(played, stop, number):
            yield number, f"{stop.name} is named, and it is not so"


def _is_true(played: Play, stop: StopReason, number: int) -> bool:
    limits, script = played.limits[1], played.script
    tokens, cost = _spent(played)
    rounds = len([1 for _, entered in _of(played, Entered, 1) if entered.hook == "reason"])
    ruled = [said.value for _, said in _of(played, Said, 1) if isinstance(said.value, StopReason)]
    if stop in _LIMIT_REACHED:
        return _LIMIT_REACHED[stop](played, limits)
    if stop is StopReason.MAX_ITERATIONS:
        return rounds == limits.rounds
    if stop is StopReason.TOKEN_BUDGET:
        # Two loops side by side: the request of one is under way when the other wants to ask.
        at_once = 2 if "'together'" in repr(script) else 1
        return tokens + at_once * TOKENS_ANNOUNCED > limits.tokens
    if stop is StopReason.COST_BUDGET:
        return cost >= limits.cost
    if stop is StopReason.HUMAN and script.interrupted_at is not None:
        return True
    if stop is StopReason.INVALID_TASK and (not isinstance(script.task, str) or not script.task.strip()):
        return True
    if stop is StopReason.ERROR:
        return isinstance(played.moments[number].result, LoopError)  # type: ignore[union-attr]
    if stop is StopReason.FINAL_ANSWER:
        return any(_is_an_answer(said.value) for _, said in _of(played, Said, 1))
    return stop in ruled


def _spent(played: Play) -> tuple[int, float]:
    """Tokens and cost of the replies that came; an estimate where they say nothing."""
    replies = [moment.value for _, moment in _of(played, Performed) if isinstance(moment.value, Reply)]
    usages = [_usage(reply) for reply in replies]
    return sum(usage.tokens for usage in usages), sum(usage.cost for usage in usages)


def _usage(reply: Reply) -> Usage:
    return reply.usage or Usage(TOKENS_ANNOUNCED + estimate_tokens(reply.text))


def _began(played: Play) -> float:
    """When the outermost loop began: its time counts from there."""
    return next((performed.at for _, performed in _of(played, Performed)), 0.0)


def _fruitless_rounds(played: Play) -> int:
    """How many turns at the end of history hold nothing that succeeded."""
    turns: Sequence[Turn] = next((result.turns for _, loop, result in _results(played) if loop == 1), ())
    count = 0
    for turn in reversed(turns):
        if any(observation.ok for observation in turn.observations):
            break
        count += 1
    return count


def _effects(played: Play) -> int:
    """Effects of every kind, but for the outermost loop's own start."""
    return len(_of_all(played, object)) - 1 + len(played.by_kind[Forked])


_LIMIT_REACHED: dict[StopReason, Callable[[Play, Limits], bool]] = {
    StopReason.TOO_MANY_FAILURES: lambda played, limits: _fruitless_rounds(played) >= limits.failures,
    StopReason.MODEL_CALLS: lambda played, limits: len(_of_all(played, CallModel)) == limits.model_calls,
    StopReason.TOOL_CALLS: lambda played, limits: len(_of_all(played, CallTool)) == limits.tool_calls,
    StopReason.EFFECTS: lambda played, limits: _effects(played) + _junk(played) >= limits.effects,
    StopReason.WALL_CLOCK: lambda played, limits: played.at - _began(played) + SLEEP > limits.seconds,
}


def _junk(played: Play) -> int:
    """Wishes that were no effects: they are paid for, and never reach the world."""
    return len([1 for _, refused in _of(played, Refused) if isinstance(refused.error, TypeError)])


def it_keeps_every_limit(played: Play) -> Iterator[Wrong]:
    """What is allowed is never exceeded: rounds, calls, effects, by all the loops inside together."""
    limits = played.limits[1]
    rounds = [number for number, entered in _of(played, Entered, 1) if entered.hook == "reason"]
    for name, seen, allowed in (
        ("round", rounds, limits.rounds),
        ("model call", _really(played, CallModel), limits.model_calls),
        ("tool call", _really(played, CallTool), limits.tool_calls),
        ("effect", _really(played, object)[1:], limits.effects),
    ):
        if len(seen) > allowed:
            yield seen[allowed], f"{name} {allowed + 1} of {allowed} allowed"


def it_overshoots_by_one_reply_at_most(played: Play) -> Iterator[Wrong]:
    """No request is sent once the tokens, the cost or the time are used up, or would be by the prompt."""
    if _forks(played):
        return  # requests side by side are under way at the same time
    limits, tokens, cost, at = played.limits[1], 0, 0.0, 0.0
    began = _began(played)
    for number, performed in _of(played, Performed):
        if isinstance(performed.effect, CallModel) and performed.value is not STOPPED_BY_A_PERSON:
            if tokens + TOKENS_ANNOUNCED > limits.tokens:
                yield number, f"a request of {TOKENS_ANNOUNCED} tokens, {tokens} of {limits.tokens} are used"
            if cost >= limits.cost or at >= limits.seconds:
                yield number, f"a request, after {at} of {limits.seconds} s, at {cost} of {limits.cost}"
        if isinstance(performed.value, Reply):
            usage = _usage(performed.value)
            tokens, cost = tokens + usage.tokens, cost + usage.cost
        if performed.value is not STOPPED_BY_A_PERSON and not isinstance(performed.value, Failure):
            at = performed.at - began


def it_charges_before_it_passes_on(played: Play) -> Iterator[Wrong]:
    """Every effect is on the account of the outermost loop before the world sees it."""
    charged: Counter[EventKind] = Counter()
    for number, moment in enumerate(played.moments):
        if isinstance(moment, Told) and moment.loop == 1 and moment.step.after.stop is None:
            charged[moment.step.event.kind] += 1
        elif isinstance(moment, Performed) and number != _first_start(played):
            kind = _charge_of(moment.effect)
            charged[kind] -= 1
            if charged[kind] < 0:
                yield number, f"{type(moment.effect).__name__} reaches the world, and was never charged"


def _first_start(played: Play) -> int:
    return next((n for n, performed in _of(played, Performed) if isinstance(performed.effect, Start)), -1)


def _charge_of(effect: Any) -> EventKind:
    if isinstance(effect, CallModel):
        return EventKind.MODEL_CALL
    return EventKind.TOOL_CALL if isinstance(effect, CallTool) else EventKind.OTHER_EFFECT


def it_books_what_was_spent(played: Play) -> Iterator[Wrong]:
    """The result counts the calls, tokens and cost that the world saw, of all the loops inside too."""
    tokens, cost = _spent(played)
    for number, loop, result in _results(played):
        control = result.control
        booked: list[tuple[str, float, float]] = [
            ("model_calls", control.model_calls, len(_of_all(played, CallModel))),
            ("tool_calls", control.tool_calls, len(_of_all(played, CallTool))),
        ]
        if not _forks(played):  # what is still under way when an account ends can no longer be booked
            booked += [("tokens", control.tokens, tokens), ("cost", control.cost, cost)]
        for name, found, due in booked if loop == 1 else ():
            if found != due:
                yield number, f"the result counts {found} {name}, and the world saw {due}"


def _of_all(played: Play, kind: type) -> list[int]:
    """Where effects of a kind were asked of the world, answered or stopped."""
    return [number for number, performed in _of(played, Performed) if isinstance(performed.effect, kind)]


def it_does_nothing_after_the_stop(played: Play) -> Iterator[Wrong]:
    """Once a loop has its reason to stop, none of its hooks is entered; after the outermost, nothing runs.

    Programs side by side may finish what was under way, and paid for, when the account ended.
    """
    stopped: set[int] = set()
    for number, moment in enumerate(played.moments):
        if isinstance(moment, Told) and moment.step.after.stop is not None:
            if moment.loop in stopped:
                yield number, "the machine is told more after the stop"
            stopped.add(moment.loop)
        elif isinstance(moment, Entered) and moment.loop in stopped:
            yield number, f"{moment.hook} is entered after the stop"
        elif isinstance(moment, Performed) and 1 in stopped and not _forks(played):
            what = "a tool ran" if isinstance(moment.effect, CallTool) else "an effect was performed"
            yield number, f"{what} after the stop"


def it_gives_each_call_one_observation(played: Play) -> Iterator[Wrong]:
    """Each call has exactly one observation, in order, also where the run ends in the middle of a batch."""
    for number, loop, result in _results(played):
        came = _observed(played, loop)
        entered = {entered.what.id for _, entered in _of(played, Entered, loop) if entered.hook == "act"}
        for turn in result.turns:
            if len(turn.calls) != len(turn.observations):
                yield number, f"{len(turn.calls)} calls have {len(turn.observations)} observations"
            for call, observation in zip(turn.calls, turn.observations, strict=False):
                if type(observation) is not Observation:
                    yield number, f"the observation of {call.id} is {observation!r}"
                elif call.id in came and observation != came[call.id]:
                    yield number, f"{call.id} brought {came[call.id].text!r}, not {observation.text!r}"
                elif call.id not in came and call.problem is None and observation.ok:
                    yield number, f"{call.id} never came to an end, and its observation says that it did"
                elif call.id not in entered and call.problem is None and observation.kind is not Kind.NOT_RUN:
                    yield number, f"{call.id} was never begun, and its observation does not say so"


def _observed(played: Play, loop: int) -> dict[str, Observation]:
    """What ``act`` returned, by call id."""
    calls: list[str] = []
    came: dict[str, Observation] = {}
    for _, moment in _of_loop(played, loop, Entered, Said):
        if isinstance(moment, Entered) and moment.hook == "act":
            calls.append(moment.what.id)
        elif isinstance(moment, Said) and moment.hook == "act" and isinstance(moment.value, Observation):
            came[calls[-1]] = moment.value
    return came


def it_keeps_every_thought(played: Play) -> Iterator[Wrong]:
    """Each round that reached a decision is one turn of the result, in order, the last one too."""
    for number, loop, result in _results(played):
        decided = [
            said.value
            for _, said in _of(played, Said, loop)
            if said.hook == "reason" and isinstance(said.value, Act | Finish)
        ]
        entered = [entered.hook for _, entered in _of(played, Entered, loop)]
        judging = bool(entered) and entered[-1] == "accept"  # it never came to a verdict
        kept, due = [turn.thought for turn in result.turns], [decision.thought for decision in decided]
        if kept != due and not (judging and kept == due[:-1]):
            yield number, f"the thoughts were {due}, and the turns hold {kept}"


def it_only_adds_to_history(played: Play) -> Iterator[Wrong]:
    """History grows by whole turns: no turn that a round was shown is ever changed, moved or dropped."""
    for loop in played.limits:
        seen: tuple[Turn, ...] = ()
        shown = [
            (number, entered.what)
            for number, entered in _of(played, Entered, loop)
            if entered.hook == "reason"
        ]
        shown += [(number, result.turns) for number, ended, result in _results(played) if ended == loop]
        for number, turns in shown:
            if turns[: len(seen)] != seen:
                yield number, f"history held {len(seen)} turns, and they are no longer what they were"
            seen = tuple(turns)


def it_gives_every_call_its_own_id(played: Play) -> Iterator[Wrong]:
    """No two calls have the same id, in the whole program: loops inside loops, loops side by side."""
    seen: dict[str, tuple[int, int]] = {}
    for number, loop, result in _results(played):
        for turn in result.turns:
            for place, call in enumerate(turn.calls):
                if not call.id:
                    yield number, f"a call of loop {loop} has no id"
                owner = (loop, id(turn) * 100 + place)
                if seen.setdefault(call.id, owner) != owner:
                    yield number, f"two calls have the id {call.id}"


def it_never_acts_on_a_report(played: Play) -> Iterator[Wrong]:
    """A reply that nobody could read is told to the model; it never reaches ``act``."""
    for number, entered in _of(played, Entered):
        if entered.hook == "act" and entered.what.problem is not None:
            yield number, "act is entered with a report"
    for number, _, result in _results(played):
        for turn in result.turns:
            for call, seen in zip(turn.calls, turn.observations, strict=False):
                if call.problem not in (None, seen) and seen.kind is not Kind.NOT_RUN:
                    yield number, f"the report became {seen.text!r}"


def it_counts_a_round_by_all_it_brought(played: Play) -> Iterator[Wrong]:
    """A round succeeds if any of its observations does; a report, or nothing but failures, is a failure."""
    for number, told in _of(played, Told):
        turn = told.step.turn
        if told.step.event.kind is EventKind.OBSERVED and turn is not None:
            succeeded = any(observation.ok for observation in turn.observations)
            if told.step.event.ok is not succeeded:
                found = "success" if told.step.event.ok else "failure"
                oks = [observation.ok for observation in turn.observations]
                yield number, f"observations with ok={oks} were counted as a {found}"


def it_shows_warnings_to_the_next_round(played: Play) -> Iterator[Wrong]:
    """What a stop rule tells the model stands in the turn that the next round is shown."""
    for loop in played.limits:
        warning = None
        for number, moment in _of_loop(played, loop, Entered, Said):
            if isinstance(moment, Said) and moment.hook == "stop":
                warning = moment.value if isinstance(moment.value, str) else None
            elif isinstance(moment, Entered) and moment.hook == "reason":
                if warning and (not moment.what or warning not in moment.what[-1].warnings):
                    yield number, f"the warning {warning!r} is not in what reason is shown"
                warning = None


def it_tells_the_model_an_objection(played: Play) -> Iterator[Wrong]:
    """An answer that is not accepted costs a round, and the next one is shown the objection."""
    for loop in played.limits:
        objection = None
        for number, moment in _of_loop(played, loop, Entered, Said):
            if isinstance(moment, Said) and moment.hook == "accept":
                objection = moment.value if isinstance(moment.value, str) else None
            elif isinstance(moment, Entered) and moment.hook == "reason" and objection:
                told = [seen.text for turn in moment.what[-1:] for seen in turn.observations if not seen.ok]
                if objection not in told:
                    yield number, f"the objection {objection!r} is not in what reason is shown"
                objection = None


def it_reports_a_bug_as_its_cause(played: Play) -> Iterator[Wrong]:
    """A bug in a hook ends the run with ERROR and reaches the caller as the cause of a LoopError."""
    for number, refused in _of(played, Refused):
        if refused.deaf or isinstance(refused.error, LimitReached | Interrupted | GeneratorExit):
            continue
        if _is_over(played, refused.loop, number):
            continue
        ended = next((ended for _, ended in _of(played, Ended, refused.loop)), None)
        if ended is None:
            continue
        if not isinstance(ended.result, LoopError) or ended.result.__cause__ is not refused.error:
            yield number, f"{type(refused.error).__name__} is lost: the run came to {ended.result!r:.200}"
        elif ended.result.result.control.stop is not StopReason.ERROR:
            yield number, f"the run ended for {_name(ended.result.result.control.stop)}, not for ERROR"


def it_blames_only_bugs(played: Play) -> Iterator[Wrong]:
    """Only an exception in a hook, or a value that no hook may return, ends a run with ERROR."""
    for number, ended in _of(played, Ended):
        if not isinstance(ended.result, LoopError):
            continue
        raised = [m.error for _, m in _of(played, Refused, ended.loop) if not m.deaf]
        odd = [m for _, m in _of(played, Said, ended.loop) if _is_odd(m.hook, m.value)]
        if not odd and all(isinstance(error, LimitReached | Interrupted) for error in raised):
            yield number, f"no hook has a bug, and the run raised {ended.result.__cause__!r}"


#: What each hook may return.
_PROPER: dict[str, tuple[type, ...]] = {
    "reason": (Act, Finish),
    "act": (Observation,),
    "perceive": (dict, StopReason, type(None)),
    "accept": (str, type(None)),
    "stop": (StopReason, str, type(None)),
}


def _is_odd(hook: str, value: Any) -> bool:
    forbidden = isinstance(value, StopReason) and value not in RULE_REASONS
    return forbidden or not isinstance(value, _PROPER[hook])


def it_lets_no_rule_name_a_limit(played: Play) -> Iterator[Wrong]:
    """A stop rule, or a perception, that names a limit, an error or an answer is a bug, and no ending."""
    for number, said in _of(played, Said):
        if said.hook not in ("stop", "perceive") or not isinstance(said.value, StopReason):
            continue
        if said.value in RULE_REASONS or _is_over(played, said.loop, number):
            continue
        for _, ended in _of(played, Ended, said.loop):
            if not isinstance(ended.result, LoopError):
                yield number, f"the verdict {said.value.name} was let through"


def it_asks_in_order(played: Play) -> Iterator[Wrong]:
    """It perceives once, and first; it acts only on what was decided, and asks the stop rules after that."""
    allowed = {
        "": ("perceive", "reason"),
        "perceive": ("reason",),
        "reason": ("act", "accept", "stop", "reason"),
        "act": ("act", "stop", "reason"),
        "accept": ("stop", "reason"),
        "stop": ("reason",),
    }
    for loop in played.limits:
        before = ""
        for number, entered in _of(played, Entered, loop):
            if entered.hook not in allowed[before]:
                yield number, f"{entered.hook} is entered after {before or 'nothing'}"
            before = entered.hook


def it_gives_an_empty_account_to_nobody(played: Play) -> Iterator[Wrong]:
    """A loop inside of one that has ended does not begin: no hook is entered, and the reason is the same."""
    over: StopReason | None = None
    for number, moment in enumerate(played.moments if not _forks(played) else ()):
        if isinstance(moment, Told) and moment.loop == 1 and moment.step.after.stop is not None:
            over = over or moment.step.after.stop
        elif over in ACCOUNT_REASONS and isinstance(moment, Entered) and moment.loop != 1:
            yield number, f"a loop inside goes on, and the account has ended with {_name(over)}"
    if over not in ACCOUNT_REASONS:
        return
    for number, loop, result in _results(played):
        if result.control.stop not in (over, *_ended_before(played, loop, number)):
            yield number, f"the account ended with {_name(over)}, and a loop inside says otherwise"


def _ended_before(played: Play, loop: int, number: int) -> list[StopReason]:
    """The reason that a loop had of its own before the outermost ended."""
    first = played.stopped.get(1, number)
    return [t.step.after.stop for n, t in _of(played, Told, loop) if n < first and t.step.after.stop]


def _name(stop: StopReason | None) -> str:
    return stop.name if stop else "no reason"


#: Of one play each, in the order in which a story is best told.
OF_ONE_PLAY: tuple[Promise, ...] = (
    it_ends,
    it_ends_in_a_result,
    it_keeps_every_limit,
    it_ends_within_the_worst_case,
    it_has_an_answer_exactly_when_final,
    it_lets_an_answer_win,
    it_refuses_an_empty_answer,
    it_does_nothing_after_the_stop,
    it_charges_before_it_passes_on,
    it_books_what_was_spent,
    it_overshoots_by_one_reply_at_most,
    it_gives_an_empty_account_to_nobody,
    it_tells_the_true_reason,
    it_gives_each_call_one_observation,
    it_gives_every_call_its_own_id,
    it_never_acts_on_a_report,
    it_counts_a_round_by_all_it_brought,
    it_keeps_every_thought,
    it_only_adds_to_history,
    it_shows_warnings_to_the_next_round,
    it_tells_the_model_an_objection,
    it_reports_a_bug_as_its_cause,
    it_blames_only_bugs,
    it_lets_no_rule_name_a_limit,
    it_asks_in_order,
    it_obeys_the_machine,
)


# --- Promises that need more than one play ----------------------------------------------------


def _trace(played: Play) -> list[str]:
    return [f"{getattr(moment, 'loop', '')} {moment}" for moment in played.moments]


def _turns(played: Play) -> list[tuple[Turn, ...]]:
    return [result.turns for _, _, result in _results(played)]


def _compare(played: Play, first: Sequence[Any], second: Sequence[Any], story: str) -> Iterator[Wrong]:
    for number, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            yield min(number, _last(played)), f"{story}: {one} became {other}"
            return
    if len(first) != len(second):
        yield _last(played), f"{story}: {len(first)} moments became {len(second)}"


PromiseOfAScript = Callable[[MakeLoop, Script], Iterator[tuple[Play, Wrong]]]


def it_does_the_same_again(make_loop: MakeLoop, script: Script) -> Iterator[tuple[Play, Wrong]]:
    """The same script gives the same trace, event by event."""
    first, second = play(make_loop, script), play(make_loop, script)
    for wrong in _compare(second, _trace(first), _trace(second), "another loop of the same script differs"):
        yield second, wrong


def its_runs_share_nothing(make_loop: MakeLoop, script: Script) -> Iterator[tuple[Play, Wrong]]:
    """A second run of one loop is as its first, also beside a run that was left half-way."""
    played = Play(make_loop, script)
    number, loop = played.loop(script)
    traces = []
    for _ in range(2):
        played.begin_anew()
        half_way = loop.run(script.task)
        for strand in (stage := Stage(half_way)).waiting:
            stage.deliver(strand, None, 0.0)
        played.begin_anew()
        played.run(played.noted(number, loop.run(script.task)))
        traces.append(_trace(played))
        with suppress(LoopError):  # it may hold a deaf hook
            half_way.close()
    for wrong in _compare(played, traces[0], traces[1], "the second run of the same loop differs"):
        yield played, wrong


def it_replays_to_the_same(make_loop: MakeLoop, script: Script) -> Iterator[tuple[Play, Wrong]]:
    """On a recorded journal a run comes to the same turns, ids and all, without touching the world."""
    journal = Journal()
    first = play(make_loop, script, journal)
    again = play(make_loop, script, Journal(journal.outcomes))
    for number, _performed in _of(again, Performed):
        yield again, (number, "the replay touches the world")
    for wrong in _compare(again, _turns(first), _turns(again), "the replay comes to other turns"):
        yield again, wrong


def is_deaf(script: Script) -> bool:
    """Whether a hook of it, or of a loop inside, will not even hear that it is closed."""
    hooks = (*script.reason, script.act, script.perceive, script.accept, script.stop)
    return any("deaf" in moves for moves in hooks) or (script.inner is not None and is_deaf(script.inner))


def it_lets_go_when_closed(make_loop: MakeLoop, script: Script) -> Iterator[tuple[Play, Wrong]]:
    """A run that is closed half-way asks for nothing more, enters no hook, and does not raise."""
    if is_deaf(script):
        return
    for effects in range(1, 6):
        played = Play(make_loop, script)
        _, loop = played.loop(script)
        program = loop.run(script.task)
        try:
            effect = next(program)
            for _ in range(effects - 1):
                value = 1 if isinstance(effect, Start) else played.outcome(effect)
                effect = program.send(Outcome(value, played.at))
        except (StopIteration, Exception):
            return
        number = len(played.moments)
        try:
            program.close()
        except Exception as error:
            yield played, (number - 1, f"closing the run after {effects} effects raised {error!r}")
        for later, moment in enumerate(played.moments[number:], number):
            if isinstance(moment, Entered | Performed):
                yield played, (later, f"after the run was closed: {moment}")


#: Of a loop and a script, by their names.
OF_A_SCRIPT: tuple[PromiseOfAScript, ...] = (
    it_does_the_same_again,
    its_runs_share_nothing,
    it_replays_to_the_same,
    it_lets_go_when_closed,
)


# --- The scripts that are played, and the shortest story of what breaks -----------------------

WIDE = Limits(
    rounds=9, model_calls=9, tool_calls=9, effects=30, failures=9, tokens=10_000, cost=99.0, seconds=999.0
)

#: Limits of which one is small.
NARROW = (
    LOOSE,
    *(
        replace(WIDE, **{name: value})  # type: ignore[arg-type]
        for name, values in (
            ("rounds", (1, 2)),
            ("model_calls", (1, 2)),
            ("tool_calls", (1, 2)),
            ("effects", (1, 2, 5)),
            ("failures", (1, 2)),
            ("tokens", (4, 12, 25)),
            ("cost", (0.5, 0.7)),
            ("seconds", (1.0, 2.5, 4.0)),
        )
        for value in values
    ),
)

REASONS: tuple[tuple[Moves, ...], ...] = (
    (("answer",),),
    (("empty answer",),),
    (("report",),),
    (("one call",),),
    (("two calls",), ("answer",)),
    (("model", "one call"), ("model", "answer")),
    (("model", "two calls"),),
    (("model", "report"), ("call and report",), ("model", "answer")),
    (("model", "model", "sleep", "person", "do", "one call"),),
    (("one call",), ("bug",)),
    (("model", "one call"), ("odd",)),
    (("failing do", "answer"),),
    (("junk", "answer"),),
    (("model", "for ever"),),
    (("sleep", "for ever", "deaf"),),
    (("model", "for ever", "deaf"),),
    (("junk", "for ever", "deaf"),),
    (("loop", "one call"), ("loop", "answer")),
    (("loop", "for ever", "deaf"),),
    (("together", "one call"), ("model", "answer")),
    (("model", "deaf", "answer"),),
)
ACTS: tuple[Moves, ...] = (
    ("seen",),
    ("failed",),
    ("tool", "tool"),
    ("person", "tool"),
    ("bug",),
    ("odd",),
    ("loop",),
    ("tool", "bug"),
    ("tool", "for ever", "deaf"),
    ("sleep", "tool", "deaf", "failed"),
)
OTHERS: tuple[dict[str, Any], ...] = (
    {"perceive": ("memories",)},
    {"perceive": ("do", "model", "nothing")},
    {"perceive": ("INVALID_TASK",)},
    {"perceive": ("MAX_ITERATIONS",)},
    {"perceive": ("odd",)},
    {"perceive": ("bug",)},
    {"perceive": ("model", "for ever")},
    {"accept": ("nothing",)},
    {"accept": ("object",)},
    {"accept": ("model", "object")},
    {"accept": ("model", "nothing")},
    {"accept": ("odd",)},
    {"accept": ("bug",)},
    {"stop": ("nothing",)},
    {"stop": ("warn",)},
    {"stop": ("model", "warn")},
    {"stop": ("REPEATED_ACTION",)},
    {"stop": ("MAX_ITERATIONS",)},
    {"stop": ("FINAL_ANSWER",)},
    {"stop": ("odd",)},
    {"stop": ("bug",)},
    {"stop": ("sleep", "for ever", "deaf")},
)
LUCK = ((False,), (False, True), (True, False))
BATCH = (("model", "two calls"),)
ANSWERING = (("model", "one call"), ("model", "answer"))


def small_scripts() -> Iterator[list[Script]]:
    """Every kind of hook under every narrow limit, and interrupted at every early effect.

    They come in groups, the plainest first.
    """
    for limits in NARROW:
        yield [
            *(Script(reason, limits=limits) for reason in REASONS),
            *(Script(BATCH, act, limits=limits) for act in ACTS),
            *(Script(BATCH, tools=tools, limits=limits) for tools in LUCK),
            Script(ANSWERING, usage=None, limits=limits),
            Script(ANSWERING, seconds=0.0, limits=limits),
        ]
    yield [Script(task=task) for task in (None, "", " \n", 7)]
    for limits in NARROW[::2]:
        yield [Script(ANSWERING, limits=limits)._replace(**other) for other in OTHERS]
    for effect in range(6):
        yield [
            *(Script(reason, interrupted_at=effect) for reason in REASONS),
            *(Script(BATCH, act, interrupted_at=effect) for act in ACTS),
            *(Script(ANSWERING, interrupted_at=effect)._replace(**other) for other in OTHERS),
        ]
    for limits in NARROW:
        inner = Script(BATCH, tools=(False,), limits=limits)
        yield [
            Script((("loop", "one call"), ("loop", "answer")), inner=inner),
            Script((("together", "answer"),), inner=inner),
        ]


def few_scripts() -> Iterator[Script]:
    """Scripts for the promises that play each of them several times."""
    for reason in REASONS:
        yield Script(reason)
    for act in ACTS:
        yield Script(BATCH, act, limits=replace(LOOSE, tool_calls=3))
    for other in OTHERS:
        yield Script(ANSWERING)._replace(**other)
    for limits in NARROW:
        yield Script((("together", "two calls"), ("loop", "answer")), limits=limits)


class Break(NamedTuple):
    """How a promise was broken: in which play, up to which moment, and what is wrong there."""

    promise: Any
    played: Play
    number: int
    wrong: str

    def __str__(self) -> str:
        story = [
            f"loop {loop}: {moment}" if (loop := getattr(moment, "loop", 1)) != 1 else str(moment)
            for moment in self.played.moments[: self.number + 1]
        ]
        return "\n".join(
            [
                f"Broken promise: {' '.join(str(self.promise.__doc__).split())}",
                f"({self.played.script})",
                *_abridged(list(_numbered(story))),
                f"event {self.number + 1}: {self.wrong}",
            ]
        )


def _numbered(story: Iterable[str]) -> Iterator[str]:
    """The lines of a story with their numbers; what repeats itself is told once."""
    number = 1
    for line, same in groupby(story):
        count = len(list(same))
        numbers = str(number) if count == 1 else f"{number} to {number + count - 1}"
        yield f"  event {numbers}: {line}"
        number += count


def _abridged(lines: list[str]) -> list[str]:
    """A story that goes on and on is told by how it begins and how it ends."""
    return lines if len(lines) <= 60 else [*lines[:40], "  ... and so on ...", *lines[-10:]]


def breaks_of_a_play(played: Play, promises: Iterable[Promise]) -> Iterator[Break]:
    """Where a play first breaks each promise."""
    for promise in promises:
        for number, wrong in promise(played):
            yield Break(promise, played, number, wrong)
            break


def breaks_of_a_script(
    make_loop: MakeLoop, script: Script, promises: Iterable[PromiseOfAScript]
) -> Iterator[Break]:
    """Where several plays of a script first break each promise."""
    for promise in promises:
        for played, (number, wrong) in promise(make_loop, script):
            yield Break(promise, played, number, wrong)
            break


def check_promises(make_loop: MakeLoop, promises: Iterable[Any]) -> None:
    """Raise ``BrokenPromise`` with the shortest story that breaks any of these promises.

    The shortest among the first group of scripts that has any. A loop that does not end is played no
    further than the group in which that shows.
    """
    promises = tuple(promises)
    of_a_play = [promise for promise in promises if promise in OF_ONE_PLAY]
    of_a_script = [promise for promise in promises if promise in OF_A_SCRIPT]
    for scripts in small_scripts() if of_a_play else ():
        plays = [play(make_loop, script) for script in scripts]
        _tell_the_shortest([found for played in plays for found in breaks_of_a_play(played, of_a_play)])
        if any(played.cut_off for played in plays):
            break
    for script in few_scripts() if of_a_script else ():
        _tell_the_shortest(list(breaks_of_a_script(make_loop, script, of_a_script)))


def _tell_the_shortest(breaks: list[Break]) -> None:
    if breaks:
        raise BrokenPromise(str(min(breaks, key=_preference)))


def _preference(found: Break) -> tuple[int, int]:
    return found.number, ALL.index(found.promise)


ALL: tuple[Any, ...] = (*OF_ONE_PLAY, *OF_A_SCRIPT)


def check_loop(make_loop: MakeLoop) -> None:
    """Raise ``BrokenPromise`` with the shortest story that breaks any promise of a loop."""
    check_promises(make_loop, ALL)


#: The same promises one by one, each a check of a whole loop.
PROMISES: dict[str, Callable[[MakeLoop], None]] = {
    promise.__name__: partial(check_promises, promises=(promise,)) for promise in ALL
}
