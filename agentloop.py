"""The Agent Loop: a state machine that cannot run away, and the loop that it governs.

Theory of operation
-------------------
A model answers once. A loop asks it again and again, carrying what its last action brought into
its next thought: perceive, think, act, observe, until done (感知→推理→行动→观察). What makes a
loop safe is not the model, it is the control around it, and that control is kept apart here:

1. The machine is a pure function, ``advance(control, event, limits) -> Control``. Eight guarded
   rows (``TRANSITIONS``) say every move there is. What they do not allow raises
   ``IllegalTransition``. Each event it accepts makes ``rank`` smaller, so every run ends.
2. The loop is a program of effects. ``AgentLoop.run(task)`` is a generator that yields what it
   wants from the world and is sent what came of it. It does no I/O and reads no clock.
3. ``within`` stands between every program and its driver and charges each effect to an account
   before letting it pass. Nothing that a loop holds or a program contains escapes its account.
4. Only a driver touches the world: ``drive`` here, others in chapter 07.

Two rules keep the halves apart: nobody but ``advance`` makes a ``Control``, and the machine never
sees a word of text.

It is one file, and a long one, since a learner should have to open only one: a sixth of it each for the
machine and the toolbox, a third each for the loop with its vocabulary and for the drivers. Read the
first half; the rest can wait.

Glossary
--------
state        where the loop stands (``AgentState``): one of six, from IDLE to TERMINATED
round        one visit to REASONING: one thought, and what was done and seen because of it
turn         a finished round as history keeps it: the thought, its calls, one observation a call
event        what happened, told to the machine; spending is an event too
limit        a finite bound that ``advance`` enforces; there is no value that means "unlimited"
verdict      the reason by which a stop rule ends a run
account      one program's standing with the machine: its Control, and the Limits it is held to
effect       a wish of a program (ask the model, run a tool, ask a person, wait); data, not a deed
outcome      what came of an effect, and the run's time then, in seconds
hook         a function the loop is built from: reason, act, perceive, accept, a stop rule
guard        a hook wrapped round another: retry, approval, a breaker
view         what chooses, round by round, which finished turns the model is shown
program      a generator that yields effects and is sent outcomes; hooks may be programs
strand       one of the programs that run side by side
stage        what steps them from outcome to outcome, for whichever driver
journal      what a run asked for and what came of it; from it a run is replayed or resumed
world        what a driver can reach: the model, the tools, a person, a clock
job          an effect that has begun, in the hands of whoever performs it
dispatcher   what hands out jobs and takes in what came of them, the same for every driver
driver       the only code that performs effects
"""

from __future__ import annotations

import copy
import functools
import inspect
import json
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, fields, replace
from enum import Enum
from types import GeneratorType, NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, TypeVar, Union, get_args, get_origin

# --- The machine ------------------------------------------------------------------------------
# Everything about state lives in this half; it knows no model, no tool and no text.


class AgentState(Enum):
    """Where a loop stands (article A, 状态定义与语义)."""

    __hash__ = object.__hash__
    IDLE = "waiting for a task"
    PERCEIVING = "reading the task and the world"
    REASONING = "thinking about what to do next"
    ACTING = "handing an action over"
    WAITING_FOR_OBSERVATION = "waiting for what the action brings"
    TERMINATED = "ended, with a reason"


class StopReason(Enum):
    """Why a run ended. Where several limits are reached at once, the first in this order is named."""

    FINAL_ANSWER = "the model gave its final answer"
    HUMAN = "a person stopped the run"
    ERROR = "a hook raised an exception"
    TOO_MANY_FAILURES = "too many rounds in a row brought nothing but failures"
    MAX_ITERATIONS = "no round is left"
    MODEL_CALLS = "no model call is left"
    TOOL_CALLS = "no tool call is left"
    EFFECTS = "no effect of any kind is left"
    TOKEN_BUDGET = "the token budget has no room for more"
    COST_BUDGET = "the cost budget is used up"
    WALL_CLOCK = "the run's time is up"
    REPEATED_ACTION = "the same action kept bringing the same result"
    CONVERGED = "the replies stopped changing"
    STAGNATED = "the results stopped improving"
    EXTERNALLY_DONE = "an outside check found the goal met"
    INVALID_TASK = "the task cannot be worked on"


class EventKind(Enum):
    """What can happen to a loop."""

    __hash__ = object.__hash__
    TASK_ARRIVED = "a task arrived"
    PERCEIVED = "the perception is there"
    ACTION_CHOSEN = "the decision is an action"
    ANSWER_GIVEN = "the decision is a final answer"
    SUBMITTED = "the action was handed over"
    OBSERVED = "the observation arrived"
    STOP_RULED = "a stop rule fires"
    INTERRUPTED = "a person interrupts"
    HOOK_FAILED = "a hook raised"
    ACCOUNT_CLOSED = "an enclosing account refuses to pay"
    MODEL_CALL = "a model call is wanted"
    TOOL_CALL = "a tool call is wanted"
    OTHER_EFFECT = "another effect is wanted"


class Control(NamedTuple):
    """All that the machine knows of a run: a state and counters, never text or history.

    Only ``advance`` makes one, starting from ``Control()``.
    """

    state: AgentState = AgentState.IDLE
    rounds: int = 0  # visits to REASONING
    model_calls: int = 0
    tool_calls: int = 0
    effects: int = 0  # of every kind: model calls and tool calls are among them
    failures: int = 0  # rounds in a row in which nothing succeeded
    pending: int = 0  # calls chosen and not yet observed
    tokens: int = 0
    cost: float = 0.0  # in the currency of Limits.cost
    seconds: float = 0.0  # since the run began, as its last event told
    stop: StopReason | None = None


class Event(NamedTuple):
    """One thing that happened, with what it brings.

    ``tokens`` and ``cost`` were spent since the last event; ``at`` is the run's time now, in
    seconds; ``needs_tokens`` and ``needs_seconds`` are what the wanted effect is known to take.
    """

    kind: EventKind
    ok: bool = True  # a perception is complete, an answer is not empty, an action succeeded
    calls: int = 0  # how many calls were chosen, submitted or observed
    tokens: int = 0
    cost: float = 0.0
    at: float = 0.0
    needs_tokens: int = 0
    needs_seconds: float = 0.0
    stop: StopReason | None = None  # a stop rule's verdict
    closed: Control | None = None  # the ended Control of the enclosing account


LARGEST = 1e300  # beyond it a number is as good as infinite


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one run, all of them finite and positive (article B, 硬上限).

    Raises ``ValueError`` for zero, a negative number, NaN, infinity and ``None``: a loop without
    a bound cannot be asked for.
    """

    rounds: int = 10  # article A's max_iterations; article B's figure for simple questions
    model_calls: int = 50
    tool_calls: int = 50
    effects: int = 200  # of every kind, so that a program cannot wait or ask for ever either
    failures: int = 5  # rounds in a row
    tokens: int = 50_000  # in and out, over all requests
    cost: float = 1.0
    seconds: float = 300.0  # of the whole run; waiting for nobody but a person does not count
    call_seconds: float = 30.0  # of one call of a model or tool

    def __post_init__(self) -> None:
        for field in fields(self):
            value, whole = getattr(self, field.name), field.type == "int"
            numbers = int if whole else (int, float)
            if isinstance(value, bool) or not isinstance(value, numbers) or not 0 < value < LARGEST:
                wanted = "a whole number of at least 1" if whole else "a finite number above 0"
                raise ValueError(
                    f"Limits.{field.name} must be {wanted}, not {value!r}: "
                    "every loop is bounded, no value means unlimited"
                )


QUESTION_ANSWERING = Limits()
RESEARCH = Limits(
    rounds=25, model_calls=125, tool_calls=125, effects=500, tokens=250_000, cost=5.0, seconds=1800.0
)
CODING = Limits(
    rounds=100, model_calls=500, tool_calls=500, effects=2000, tokens=1_000_000, cost=20.0, seconds=7200.0
)

IDLE, PERCEIVING, REASONING, ACTING, WAITING_FOR_OBSERVATION, TERMINATED = AgentState
LIVE = (IDLE, PERCEIVING, REASONING, ACTING, WAITING_FOR_OBSERVATION)
WORKING = LIVE[1:]

#: What an account may refuse to pay for. A person's stop closes it like a limit does.
ACCOUNT_REASONS = (
    StopReason.HUMAN,
    StopReason.MODEL_CALLS,
    StopReason.TOOL_CALLS,
    StopReason.EFFECTS,
    StopReason.TOKEN_BUDGET,
    StopReason.COST_BUDGET,
    StopReason.WALL_CLOCK,
)
#: What a stop rule may name. Limits and final answers are the machine's own to name.
RULE_REASONS = (
    StopReason.HUMAN,
    StopReason.REPEATED_ACTION,
    StopReason.CONVERGED,
    StopReason.STAGNATED,
    StopReason.EXTERNALLY_DONE,
    StopReason.INVALID_TASK,
)


class Transition(NamedTuple):
    """One row of the table: from where, on what event, under which guard, to where."""

    row: int
    sources: tuple[AgentState, ...]
    target: AgentState
    events: tuple[EventKind, ...]
    guard: str
    holds: Callable[[Control, Event], bool]
    stops: tuple[StopReason, ...] = ()  # the reasons an ending by this row can have


class Spending(NamedTuple):
    """An effect that is wanted: it leaves the state as it is and uses up what it counts."""

    event: EventKind
    model_calls: int
    tool_calls: int
    effects: int = 1


def _is_ok(control: Control, event: Event) -> bool:
    return event.ok


def _has_an_action(control: Control, event: Event) -> bool:
    return event.calls >= 1


def _covers_each_call(control: Control, event: Event) -> bool:
    return event.calls == control.pending


def _has_grounds(control: Control, event: Event) -> bool:
    """A limit is found by ``advance`` itself; what comes from outside must be entitled to stop."""
    if event.kind is STOP_RULED:
        return event.stop is not None
    if event.kind is ACCOUNT_CLOSED:
        return event.closed is not None and event.closed.stop in ACCOUNT_REASONS
    return True


# fmt: off
(TASK_ARRIVED, PERCEIVED, ACTION_CHOSEN, ANSWER_GIVEN, SUBMITTED, OBSERVED, STOP_RULED, INTERRUPTED,
 HOOK_FAILED, ACCOUNT_CLOSED, MODEL_CALL, TOOL_CALL, OTHER_EFFECT) = EventKind
# fmt: on
_OUTSIDE = (STOP_RULED, INTERRUPTED, HOOK_FAILED, ACCOUNT_CLOSED)
_ANY_BUT_AN_ANSWER = tuple(reason for reason in StopReason if reason is not StopReason.FINAL_ANSWER)
_WAITED = (StopReason.TOO_MANY_FAILURES, StopReason.WALL_CLOCK)

# fmt: off
TRANSITIONS = (
    Transition(1, (IDLE,), PERCEIVING, (TASK_ARRIVED,),
               "a task arrived (新任务到达)", _is_ok),
    Transition(2, (PERCEIVING,), REASONING, (PERCEIVED,),
               "the perception is complete (感知数据完整)", _is_ok),
    Transition(3, (REASONING,), ACTING, (ACTION_CHOSEN,),
               "the decision holds an executable action (包含可执行动作)", _has_an_action),
    Transition(4, (REASONING,), TERMINATED, (ANSWER_GIVEN,),
               "the decision is a final answer (输出Final Answer)", _is_ok, (StopReason.FINAL_ANSWER,)),
    Transition(5, (ACTING,), WAITING_FOR_OBSERVATION, (SUBMITTED,),
               "the action was submitted (动作已提交)", _covers_each_call),
    Transition(6, (WAITING_FOR_OBSERVATION,), REASONING, (OBSERVED,),
               "an observation arrived and is valid, and another round is allowed (反馈到达且有效)",
               _covers_each_call),
    Transition(7, (WAITING_FOR_OBSERVATION,), TERMINATED, (OBSERVED,),
               "the run's time is up, or too many failures in a row (超时或连续失败)",
               _covers_each_call, _WAITED),
    Transition(8, LIVE, TERMINATED, _OUTSIDE,
               "a limit is reached, a stop rule fires, a person interrupts, or an error ends the run "
               "(达到上限或人工中断)", _has_grounds, _ANY_BUT_AN_ANSWER),
)
# fmt: on

SPENDING = (
    Spending(MODEL_CALL, model_calls=1, tool_calls=0),
    Spending(TOOL_CALL, model_calls=0, tool_calls=1),
    Spending(OTHER_EFFECT, model_calls=0, tool_calls=0),
)


class IllegalTransition(Exception):
    """The machine was told something that its table does not allow. Nothing has changed."""

    def __init__(self, control: Control, event: Event) -> None:
        super().__init__(control, event)
        self.control, self.event = control, event

    def __str__(self) -> str:
        return _why_illegal(self.control, self.event)


class _Move(NamedTuple):
    """What the tables say of one event in one state, laid out so that ``advance`` reads it at once."""

    target: AgentState
    holds: Callable[[Control, Event], bool] | None
    rounds: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    effects: int = 0


def _moves() -> dict[tuple[AgentState, EventKind], _Move]:
    moves: dict[tuple[AgentState, EventKind], _Move] = {}
    for transition in TRANSITIONS:
        rounds = 1 if transition.target is REASONING else 0
        for source in transition.sources:
            for event in transition.events:
                # Rows 6 and 7 share their event: 7 is what a limit makes of 6.
                moves.setdefault((source, event), _Move(transition.target, transition.holds, rounds))
    for event, model_calls, tool_calls, effects in SPENDING:
        for state in WORKING:
            moves[state, event] = _Move(state, None, 0, model_calls, tool_calls, effects)
    return moves


_MOVES = _moves()

#: Endings that no limit can overrule: an answer in hand wins, and a person or an error is not argued with.
_DECIDED = {
    ANSWER_GIVEN: StopReason.FINAL_ANSWER,
    INTERRUPTED: StopReason.HUMAN,
    HOOK_FAILED: StopReason.ERROR,
}
_RULED = (OBSERVED, STOP_RULED)  # the events that may bring a stop rule's verdict
_HUMAN = StopReason.HUMAN
_new = tuple.__new__  # what a NamedTuple's constructor calls, without the detour


def advance(control: Control, event: Event, limits: Limits) -> Control:
    """Return the control after ``event``; the one place where a state, counter or reason changes.

    Raises ``IllegalTransition`` for what ``TRANSITIONS`` and ``SPENDING`` do not allow. At a limit
    the new control is TERMINATED and names it; the wanted effect or round is then not counted.
    """
    state, rounds, model_calls, tool_calls, effects, failures, pending, tokens, cost, seconds, _ = control
    kind, ok, calls, new_tokens, new_cost, at, needs_tokens, needs_seconds, verdict, closed = event
    try:
        target, holds, round_, model_call, tool_call, effect = _MOVES[state, kind]
    except KeyError:
        raise IllegalTransition(control, event) from None
    if holds is not None and not holds(control, event):
        raise IllegalTransition(control, event)
    if verdict is not None and (kind not in _RULED or verdict not in RULE_REASONS):
        raise IllegalTransition(control, event)
    if new_tokens < 0 or new_cost < 0:
        raise IllegalTransition(control, event)

    # What is already spent is booked whatever comes next, and the run's time never goes back.
    tokens += new_tokens
    cost += new_cost
    if at > seconds:
        seconds = at

    # The first reason that applies, in the order of StopReason.
    stop = None
    if effect:
        if model_call and model_calls >= limits.model_calls:
            stop = StopReason.MODEL_CALLS
        elif tool_call and tool_calls >= limits.tool_calls:
            stop = StopReason.TOOL_CALLS
        elif effects >= limits.effects:
            stop = StopReason.EFFECTS
    elif kind is OBSERVED:
        pending = 0
        failures = 0 if ok else failures + 1
        if failures >= limits.failures:
            stop = StopReason.TOO_MANY_FAILURES
        elif rounds >= limits.rounds:
            stop = StopReason.MAX_ITERATIONS
    elif kind is ACTION_CHOSEN:
        pending = calls
    elif kind in _DECIDED:
        stop = _DECIDED[kind]
    elif kind is ACCOUNT_CLOSED and closed is not None:
        stop = closed.stop

    if verdict is _HUMAN:
        stop = verdict
    elif stop is None:  # `not a < b` and not `a >= b`, since no comparison with NaN is true
        if not tokens < limits.tokens or not tokens + needs_tokens <= limits.tokens:
            stop = StopReason.TOKEN_BUDGET
        elif not cost < limits.cost:
            stop = StopReason.COST_BUDGET
        elif not seconds < limits.seconds or not seconds + needs_seconds <= limits.seconds:
            stop = StopReason.WALL_CLOCK
        else:
            stop = verdict

    if stop is None:
        rounds += round_
        model_calls += model_call
        tool_calls += tool_call
        effects += effect
    else:
        target = TERMINATED
    return _new(
        Control,
        (target, rounds, model_calls, tool_calls, effects, failures, pending, tokens, cost, seconds, stop),
    )


def _why_illegal(control: Control, event: Event) -> str:
    """Why ``advance`` refused an event, and what would have been right."""
    state, kind = control.state, event.kind
    if state is TERMINATED:
        return f"{kind.name} is not allowed in TERMINATED: the run has ended, and nothing follows an end"
    move = _MOVES.get((state, kind))
    if move is None:
        allowed = ", ".join(allowed.name for source, allowed in _MOVES if source is state)
        return f"{kind.name} is not allowed in {state.name}: allowed are {allowed}"
    if move.holds is not None and not move.holds(control, event):
        row = next(row for row in TRANSITIONS if state in row.sources and kind in row.events)
        came = f"it came with ok={event.ok}, calls={event.calls}, stop={event.stop and event.stop.name}"
        return (
            f"{kind.name} in {state.name} is refused by the guard of row {row.row}: {row.guard}; "
            f"{came}, and {control.pending} calls are pending"
        )
    if event.stop is not None and (kind not in _RULED or event.stop not in RULE_REASONS):
        allowed = ", ".join(reason.name for reason in RULE_REASONS)
        return (
            f"{kind.name} cannot end a run with {event.stop.name}: a stop rule may name {allowed}, at the "
            "end of a round or before the first; all else is for the machine to name"
        )
    return f"{kind.name} brings a negative amount: tokens and cost already spent are at least 0"


def row_taken(before: Control, after: Control) -> Transition | None:
    """The row of the table that led from one control to the next; ``None`` where only spending was booked."""
    for row in TRANSITIONS:
        reached = before.state in row.sources and after.state is row.target
        if reached and (after.stop in row.stops if after.stop else not row.stops):
            return row
    return None


#: How many steps are still possible inside a round, at most, counted from each state.
_STEPS_LEFT = {IDLE: 2, PERCEIVING: 1, REASONING: 3, ACTING: 2, WAITING_FOR_OBSERVATION: 1}


def rank(control: Control, limits: Limits) -> int:
    """How many events can still be accepted, at most. Every accepted event makes it smaller."""
    if control.state is TERMINATED:
        return 0
    rounds_left, effects_left = limits.rounds - control.rounds, limits.effects - control.effects
    return 3 * rounds_left + _STEPS_LEFT[control.state] + effects_left


def worst_case_steps(limits: Limits) -> int:
    """The longest run there can be, in events: ``2 + 3 * rounds + effects``."""
    return rank(Control(), limits)


# --- The vocabulary of the loop ---------------------------------------------------------------
# Values, all immutable. Text begins here.


class Kind(Enum):
    """What an observation is, for guards to read: a closed list."""

    RESULT = "the tool's result"
    UNKNOWN_TOOL = "there is no tool of this name"
    BAD_ARGUMENTS = "the arguments do not fit; the tool was not run"
    TOOL_ERROR = "the tool raised an exception"
    TIMEOUT = "the call took too long and was left behind"
    UNCERTAIN = "whether the call took effect is not known"
    NOT_RUN = "the run ended before this call was made"
    REFUSED = "a person, a guard or a check said no"
    UNAVAILABLE = "it cannot be had at the moment, and nothing was done"
    MALFORMED = "the reply could not be read"
    EMPTY_REPLY = "the reply was empty"
    MODEL_ERROR = "the model failed"
    NO_HUMAN = "nobody was there to answer"


class Observation(NamedTuple):
    """What came of one call, in words for the model, and whether it succeeded.

    ``retry_after`` is what the other side said about when to try again: seconds, or an HTTP date.
    """

    text: str
    ok: bool = True
    kind: Kind = Kind.RESULT
    retry_after: float | str | None = None


class Unavailable(Exception):
    """What a tool or a model raises where nothing was done, and the same call may succeed later."""

    def __init__(self, text: str = "", retry_after: float | str | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class ToolCall(NamedTuple):
    """One action: which tool, with which arguments.

    The loop gives each call its ``id``, unique in the whole program and the same on replay, so
    that a tool can refuse to act twice. A call with a ``problem`` could not be read; the problem
    is its observation, and it is never run.
    """

    name: str
    arguments: Mapping[str, Any]
    id: str = ""
    problem: Observation | None = None


class Message(NamedTuple):
    """One message of a prompt. ``role`` is system, user, assistant or tool.

    Under native function calling an assistant's message holds its ``calls``, and a tool's message
    the ``call_id`` that it answers.
    """

    role: str
    content: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""


class Usage(NamedTuple):
    """What one model call used: tokens in and out together, and their cost."""

    tokens: int = 0
    cost: float = 0.0


class Reply(NamedTuple):
    """What a model answered. ``tool_calls`` are as the provider wrote them, for the protocol to read.

    Where ``usage`` is ``None`` the account charges an estimate instead of nothing.
    """

    text: str = ""
    tool_calls: tuple[Any, ...] = ()
    usage: Usage | None = None


class Act(NamedTuple):
    """A decision to act. ``thought`` is the model's text up to the end of its first instruction."""

    calls: tuple[ToolCall, ...]
    thought: str = ""


class Finish(NamedTuple):
    """A decision to end with an answer."""

    answer: Any
    thought: str = ""


class Turn(NamedTuple):
    """One finished round: the thought, the calls, one observation for each call, in order.

    ``warnings`` are what stop rules told the model after it ("change direction").
    """

    thought: str
    calls: tuple[ToolCall, ...] = ()
    observations: tuple[Observation, ...] = ()
    warnings: tuple[str, ...] = ()


def call_text(call: ToolCall) -> str:
    """The call as a person would write it: ``get_weather(city='北京')``."""
    if not isinstance(call.arguments, Mapping):
        return f"{call.name}({call.arguments!r})"
    return f"{call.name}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})"


def on_one_line(text: str, limit: int = 200) -> str:
    """The text on one line of at most ``limit`` characters; … says that there was more."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def report(problem: Observation, thought: str = "") -> Act:
    """The action that stands for a reply which holds none: it costs a round, and tells the model why."""
    return Act((ToolCall("", {}, problem=problem),), thought)


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of ``text``: one for four ASCII characters, one for every other character.

    Chinese text and emoji count in full, since len/4 is three to six times too low for them.
    """
    plain = len(text) if text.isascii() else len(text.encode("ascii", "ignore"))
    return -(-plain // 4) + len(text) - plain


def count_tokens(messages: Iterable[Message]) -> int:
    """Estimate the tokens of messages: what they say, and the calls that they hold."""
    tokens = 0
    for message in messages:
        tokens += estimate_tokens(message.content)
        for call in message.calls:
            tokens += estimate_tokens(f"{call.name}{call.arguments}")
    return tokens


# --- Effects: what a program may want from the world ------------------------------------------
# ``allowed`` is how long an effect may take once it is begun, in seconds, and ``deadline`` the run's
# time from which it is not begun any more. The account sets both.


class Start(NamedTuple):
    """A loop begins. Its outcome is the loop's number in the whole program: 1, 2, 3, ..."""

    task: Any
    allowed: float = math.inf
    deadline: float = math.inf


class CallModel(NamedTuple):
    """One request to the model. Its outcome is a ``Reply``, or a failed ``Observation``.

    ``tokens`` is the estimated size of the request; ``stop`` are texts at which the model should
    stop writing.
    """

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()
    stop: tuple[str, ...] = ()
    tokens: int = 0
    allowed: float = math.inf
    deadline: float = math.inf


class CallTool(NamedTuple):
    """One tool call. Its outcome is an ``Observation``."""

    call: ToolCall
    allowed: float = math.inf
    deadline: float = math.inf


class AskHuman(NamedTuple):
    """A question to a person. Its outcome is the answer, or a failed ``Observation``.

    Where it is ``about`` something with a name, such as a call's id, it is put once: the same question
    about the same thing has the same answer as long as the program runs.
    """

    question: str
    about: str = ""
    allowed: float = math.inf
    deadline: float = math.inf


class Sleep(NamedTuple):
    """Wait, in seconds. Its outcome is ``None``."""

    seconds: float
    allowed: float = math.inf
    deadline: float = math.inf


class Do(NamedTuple):
    """Anything else that is not a pure function of what came before: a draw, a store, a test run.

    The driver calls ``function`` once, and its value is the outcome. An exception in it reaches
    the program as ``EffectFailed``; so does a resume that cannot know what became of it, unless it
    is ``repeatable``: then it is done again.
    """

    label: str
    function: Callable[[], Any]
    allowed: float = math.inf
    deadline: float = math.inf
    repeatable: bool = False


class Together(NamedTuple):
    """Programs side by side. The outcome is a list of their values in this order; an exception is a value."""

    programs: tuple[Program[Any], ...]
    allowed: float = math.inf
    deadline: float = math.inf


Effect = Start | CallModel | CallTool | AskHuman | Sleep | Do | Together
_EFFECTS = frozenset(get_args(Effect))


def _is_deed(effect: Effect) -> bool:
    """Whether it may have changed the world."""
    return type(effect) is CallTool or (type(effect) is Do and not effect.repeatable)


def _no_effect(wanted: Any) -> str:
    names = ", ".join(kind.__name__ for kind in get_args(Effect))
    return f"a program yields effects ({names}) with sensible values, not {wanted!r}"


class Outcome(NamedTuple):
    """What came of an effect, and the run's time then, in seconds."""

    value: Any
    at: float


T = TypeVar("T")
Program = Generator[Effect, Outcome, T]


class LimitReached(Exception):
    """Thrown into a program whose account has ended; ``reason`` says why. It may tidy up and return."""

    def __init__(self, control: Control) -> None:
        if control.stop is None:
            raise ValueError("LimitReached tells of a control that has ended; this one has not")
        super().__init__(f"nothing more may be spent: {control.stop.name}")
        self.control = control
        self.reason: StopReason = control.stop


class Interrupted(Exception):
    """Thrown into a program by its driver when a person stops the run, at ``at`` seconds of it."""

    def __init__(self, at: float) -> None:
        super().__init__("a person stopped the run")
        self.at = at


class EffectFailed(Exception):
    """Thrown into a program when a ``Do`` or a ``Sleep`` failed, at ``at`` seconds of the run."""

    def __init__(self, text: str, at: float) -> None:
        super().__init__(text)
        self.at = at


# --- The account: one program's standing with the machine -------------------------------------


class Step(NamedTuple):
    """One accepted event, for those who watch. ``turn`` is there when a round ends."""

    before: Control
    event: Event
    after: Control
    turn: Turn | None = None


class Account:
    """Where a program stands: its ``control``, the ``limits`` it is held to, and who watches.

    The only mutable thing of a run that its parts share. Whatever is spent inside ``within`` is
    charged here first, and so to each account around it.
    """

    __slots__ = (
        *("limits", "control", "number", "made", "closed"),
        *("_watch", "_began", "_at", "_deadline", "_tokens", "_cost", "_reserved"),
    )

    def __init__(self, limits: Limits, watch: Callable[[Step], object] | None = None) -> None:
        self.limits = limits
        self.control = Control()
        self.number = 0
        self.made = 0  # effects that may have changed the world: calls and deeds, none refused on the way
        self.closed = False  # whether an account around this one has ended, and this one with it
        self._watch = watch
        self._began = self._at = 0.0
        self._deadline = limits.seconds
        self._tokens, self._cost = 0, 0.0  # spent, and not yet told to the machine
        self._reserved = 0  # tokens of the requests that are under way

    def open(self, task: Any) -> Program[None]:
        """Leave IDLE: ask the world for a number and the time, unless an enclosing account refuses."""
        try:
            self.number, self._began = yield Start(task)
            self._deadline = self._began + self.limits.seconds
        except (LimitReached, Interrupted) as refusal:
            raise self.refused(Start(task), refusal) from None
        self.post(TASK_ARRIVED)

    def post(
        self,
        kind: EventKind,
        ok: bool = True,
        calls: int = 0,
        needs_tokens: int = 0,
        needs_seconds: float = 0.0,
        stop: StopReason | None = None,
        closed: Control | None = None,
        turn: Turn | None = None,
    ) -> None:
        """Tell the machine what happened, with all that was spent since; an end raises ``LimitReached``."""
        before = self.control
        if before.stop is not None:
            raise LimitReached(before)
        tokens, cost, at = self._tokens, self._cost, self._at
        event = _new(Event, (kind, ok, calls, tokens, cost, at, needs_tokens, needs_seconds, stop, closed))
        after = self.control = advance(before, event, self.limits)
        if tokens or cost:
            self._tokens, self._cost = 0, 0.0
        if self._watch is not None:
            self._watch(Step(before, event, after, turn))
        if after.stop is not None and after.stop is not StopReason.FINAL_ANSWER:
            raise LimitReached(after)

    def stop(self, reason: StopReason) -> NoReturn:
        """End the run by a rule's verdict."""
        self.post(STOP_RULED, stop=reason)
        raise AssertionError("a verdict always ends a run")

    def check(self) -> None:
        """Raise ``LimitReached`` if the account has ended: a hook may have swallowed that it was told so."""
        if self.control.stop is not None:
            raise LimitReached(self.control)

    def end(self, kind: EventKind, closed: Control | None = None) -> None:
        """End the account for a reason that comes from outside, unless it has ended already."""
        if self.control.stop is None:
            try:
                self.post(kind, closed=closed)
            except Exception:
                pass  # the control was set before a watcher could fail: the end stands

    def charge(self, effect: Effect) -> Effect:
        """Book a wanted effect, or raise ``LimitReached``. The effect comes back with its time allowance.

        Raises ``TypeError`` for what no driver could perform, and counts it too: nothing is free.
        """
        before = self.control
        try:
            if isinstance(effect, CallModel):
                messages, tools, stop, tokens, allowed, deadline = effect
                size = tokens or count_tokens(messages)
                if isinstance(size, int) and size >= 0:
                    self.post(MODEL_CALL, True, 0, size + self._reserved)
                    self._reserved += size
                    allowed, deadline = self._in_time(allowed, deadline)
                    return _new(CallModel, (messages, tools, stop, size, allowed, deadline))
            elif isinstance(effect, CallTool):
                call, allowed, deadline = effect
                if isinstance(call, ToolCall):
                    self.post(TOOL_CALL)
                    allowed, deadline = self._in_time(allowed, deadline)
                    return _new(CallTool, (call if call.id else self._named(call), allowed, deadline))
            elif isinstance(effect, Sleep):
                if isinstance(effect.seconds, (int, float)) and effect.seconds >= 0:
                    self.post(OTHER_EFFECT, needs_seconds=effect.seconds)
                    return effect._replace(deadline=self._in_time(effect.allowed, effect.deadline)[1])
            elif isinstance(effect, Do):
                self.post(OTHER_EFFECT)
                allowed, deadline = self._in_time(effect.allowed, effect.deadline)
                return effect._replace(allowed=allowed, deadline=deadline)
            elif isinstance(effect, Together):
                self.post(OTHER_EFFECT)
                return Together(tuple(within(self, program) for program in effect.programs))
            elif isinstance(effect, AskHuman):
                if isinstance(effect.question, str) and isinstance(effect.about, str):
                    self.post(OTHER_EFFECT)
                    return effect
            elif isinstance(effect, Start):
                self.post(OTHER_EFFECT)
                return effect
            raise TypeError(_no_effect(effect))
        except LimitReached:
            raise
        except Exception:
            if self.control is before:
                self.post(OTHER_EFFECT)
            raise

    def book(self, effect: Effect, value: Any, at: float) -> None:
        """Note what came of an effect and what it cost; the next event tells the machine."""
        self._at = at - self._began
        if not isinstance(effect, CallModel):
            self.made += _is_deed(effect)
            return
        self._reserved -= effect.tokens
        if isinstance(value, Reply):
            usage = value.usage or _estimated(effect, value)
            self._tokens += usage.tokens
            self._cost += usage.cost

    def refused(self, effect: Effect, refusal: LimitReached | Interrupted) -> LimitReached:
        """Close the account for a refusal, and return what to throw into whoever still wants to spend."""
        if isinstance(refusal, Interrupted):
            self.made += _is_deed(effect)  # it may have been under way
            self.end(INTERRUPTED)
        elif self.control.stop is None:
            self.closed = True
            self.end(ACCOUNT_CLOSED, refusal.control)
        return LimitReached(self.control)

    def _named(self, call: ToolCall) -> ToolCall:
        """A hook's own call gets its id here, as a decision's calls get theirs from the loop."""
        return call._replace(id=f"call_{self.number}_effect_{self.control.effects}")

    def _in_time(self, allowed: float, deadline: float) -> tuple[float, float]:
        """How long one call may take, given its own limit and the run's; and when the run's time is up."""
        limits = self.limits
        left = limits.seconds - self.control.seconds
        longest = limits.call_seconds if limits.call_seconds < left else left
        ends = self._deadline
        return allowed if allowed < longest else longest, deadline if deadline < ends else ends


def _estimated(request: CallModel, reply: Reply) -> Usage:
    """What a reply may have used, where its model does not tell."""
    wanted = sum([estimate_tokens(_written(call, str)) for call in reply.tool_calls])
    return Usage(request.tokens + estimate_tokens(reply.text) + wanted)


#: How often a program may ask again after it was told that nothing is left, before it is abandoned.
LAST_WORDS = 100


def within(account: Account, program: Program[T]) -> Program[T]:
    """Run ``program`` on ``account``: the one thing that stands between programs and their driver.

    Each effect is charged before it is passed on; what is thrown or closed is passed in. Raises
    ``LimitReached`` for a program that will not end although nothing is left to spend.
    """
    step: Callable[[Any], Effect] = program.send
    given: Any = None
    refusals = 0
    while True:
        try:
            effect = step(given)
        except StopIteration as finished:
            result: T = finished.value
            return result
        try:
            if not account.closed:  # else the account around it refuses, and counts
                effect = account.charge(effect)
            given = yield effect
            value, at = given
            account.book(effect, value, at)
            step = program.send
        except GeneratorExit:
            _abandon(program)
            raise
        except (LimitReached, Interrupted) as refusal:
            step, given = program.throw, account.refused(effect, refusal)
            refusals += 1
            if refusals > LAST_WORDS:
                _abandon(program)
                raise given from None
        except EffectFailed as failed:
            account.book(effect, None, failed.at)
            step, given = program.throw, failed
        except Exception as error:
            step, given = program.throw, error


def _abandon(program: Program[Any]) -> None:
    try:
        program.close()
    except RuntimeError:
        pass  # it yields even then: it is left where it stands, and nothing will step it again


def settle(value: Program[T] | T) -> Program[T]:
    """The value of a hook, whether it returned one or is a program that asks the world first."""
    if isinstance(value, GeneratorType):
        value = yield from value
    return value  # type: ignore[return-value]


def bounded(program: Program[T], limits: Limits, task: Any = "") -> Program[T]:
    """Hold a program of loops to an account of its own, shared by all it contains.

    Raises ``LimitReached`` where the program does not catch it and keep what it has.
    """
    account = Account(limits)
    try:
        yield from account.open(task)
        account.post(PERCEIVED)
    except LimitReached:
        pass  # the program is told at its first effect, where it can still keep what it has
    value: T = yield from within(account, program)
    account.end(ANSWER_GIVEN)
    return value


# --- The loop ---------------------------------------------------------------------------------


class LoopContext:
    """The text side of one run: what hooks read, and what the machine never sees.

    ``turns`` only ever grows, by whole turns. ``working_memory`` (工作记忆) is what thinking and
    acting exchange, and is shown to the model; ``private`` is what a hook keeps to itself between
    rounds. ``answer`` is the final answer, once it is given.
    """

    __slots__ = ("task", "turns", "working_memory", "private", "answer")

    def __init__(self, task: Any) -> None:
        self.task = task
        self.turns: list[Turn] = []
        self.working_memory: dict[str, Any] = {}
        self.private: dict[Any, Any] = {}
        self.answer: Any = None


_LIMIT_OF = {
    StopReason.TOO_MANY_FAILURES: "failures",
    StopReason.MAX_ITERATIONS: "rounds",
    StopReason.MODEL_CALLS: "model_calls",
    StopReason.TOOL_CALLS: "tool_calls",
    StopReason.EFFECTS: "effects",
    StopReason.TOKEN_BUDGET: "tokens",
    StopReason.COST_BUDGET: "cost",
    StopReason.WALL_CLOCK: "seconds",
}


def _seen(call: ToolCall, observation: Observation) -> str:
    text = on_one_line(observation.text)
    return f"{on_one_line(call_text(call))}: {text}" if call.name else text


class Result(NamedTuple):
    """How a run ended. ``answer`` is not ``None`` exactly when ``stop`` is FINAL_ANSWER.

    ``account_closed`` says that an account around the loop ended it, not a limit of its own.
    """

    answer: Any
    control: Control
    limits: Limits
    turns: tuple[Turn, ...]
    account_closed: bool = False

    @property
    def stop(self) -> StopReason:
        assert self.control.stop is not None, "a Result is only made at an end"
        return self.control.stop

    @property
    def limit(self) -> tuple[str, float, float] | None:
        """Which limit ended the run, how much of it was used and allowed: ``("rounds", 10, 10)``."""
        name = None if self.account_closed else _LIMIT_OF.get(self.stop)
        return (name, getattr(self.control, name), getattr(self.limits, name)) if name else None

    @property
    def summary(self) -> str:
        """The ending in words and what was found so far, made from the turns without a model (优雅降级)."""
        seen = [
            (_seen(call, observation), observation.ok)
            for turn in self.turns
            for call, observation in zip(turn.calls, turn.observations, strict=True)
        ]
        lines = [self._ending()]
        found = [f"- {line}" for line, ok in seen if ok]
        if found:
            lines += ["Found so far:", *found]
        elif self.answer is None:
            lines += ["Nothing was found."]
        if self.answer is None and seen and not seen[-1][1]:
            lines += [f"The last failure: {seen[-1][0]}"]
        return "\n".join(lines)

    def _ending(self) -> str:
        ending = f"{self.stop.name}: {self.stop.value}"
        if self.stop not in _LIMIT_OF:
            return f"{ending}, in round {self.control.rounds}"
        if self.limit is None:
            return f"{ending} (on an account around this loop)"
        name, used, allowed = self.limit
        return f"{ending} ({used:g} of {allowed:g} {name} used)"


class LoopError(Exception):
    """A hook raised: ``__cause__`` is the original exception, ``result`` all there was until then."""

    def __init__(self, result: Result, error: Exception, state: AgentState) -> None:
        where = f"in {state.name}, turns kept: {len(result.turns)}"
        super().__init__(f"a hook raised {_told(error)} ({where})")
        self.result = result


def call_tool(call: ToolCall) -> Program[Observation]:
    """The plainest ``act``: run the tool and see what comes."""
    observation: Observation = (yield _new(CallTool, (call, math.inf, math.inf))).value
    return observation


_EMPTY_ANSWER = "The final answer is empty. Give the answer itself."
_NOT_RUN = Observation("Not run: the run ended before this call.", False, Kind.NOT_RUN)
_UNFINISHED = Observation(
    "The run ended during this call; whether it took effect is not known.", False, Kind.UNCERTAIN
)


def _is_empty(answer: Any) -> bool:
    return answer is None or (isinstance(answer, str) and not answer.strip())


@dataclass(frozen=True)
class AgentLoop:
    """The Agent Loop: perceive, then reason, act and observe until the machine says it is over.

    Frozen configuration; all state of a run lives in the generator that ``run`` returns. Each hook
    returns its value, or is a generator that asks the world first:

    ``reason(context)``          an ``Act`` or a ``Finish``: the inner loop (内循环)
    ``act(call)``                an ``Observation``: one action, with the guards around it
    ``perceive(task)``           what goes into working memory, or a ``StopReason``
    ``accept(context, answer)``  an objection in words, or ``None``
    ``stops``                    rules ``(control, context)``: a ``StopReason``, a warning, or ``None``
    ``watch(step)``              a plain function that is told every step
    """

    reason: Callable[[LoopContext], Any]
    act: Callable[[ToolCall], Any] = call_tool
    _: KW_ONLY
    limits: Limits = QUESTION_ANSWERING
    perceive: Callable[[Any], Any] | None = None
    stops: tuple[Callable[[Control, LoopContext], Any], ...] = ()
    accept: Callable[[LoopContext, Any], Any] | None = None
    watch: Callable[[Step], object] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.stops, tuple):
            raise TypeError(f"stops is a tuple of rules, such as (rule,), not {self.stops!r}")
        if not isinstance(self.limits, Limits):
            raise TypeError(f"limits are Limits(rounds=..., ...), not {self.limits!r}")
        optional = (self.perceive, self.accept, self.watch)
        for hook in (self.reason, self.act, *self.stops, *(each for each in optional if each is not None)):
            if not callable(hook):
                raise TypeError(f"a hook of AgentLoop is a function, not {hook!r}")

    def knowing(self, known: Mapping[str, Any]) -> AgentLoop:
        """This loop with ``known`` in the working memory of its runs, beside what it perceives itself."""

        def perceive(task: Any) -> Program[Any]:
            perceived = yield from settle(self.perceive(task) if self.perceive else None)
            merges = perceived is None or isinstance(perceived, Mapping)
            return {**known, **(perceived or {})} if merges else perceived

        return replace(self, perceive=perceive)

    def run(self, task: Any) -> Program[Result]:
        """The program of one run. Hand it to a driver, or to ``yield from`` inside another program.

        Raises ``LoopError`` when a hook raises; every other ending is told by the ``Result``.
        """
        account, context = Account(self.limits, self.watch), LoopContext(task)
        try:
            if not isinstance(task, str) or not task.strip():
                account.stop(StopReason.INVALID_TASK)
            yield from account.open(task)
            yield from within(account, self._rounds(account, context))
        except Exception as error:
            if not isinstance(error, LimitReached) or account.control.stop is None:
                state = account.control.state
                account.end(HOOK_FAILED)
                raise LoopError(self._result(account, context), error, state) from error
        finally:
            context.private = {}  # what hooks keep may hold the context: a circle, and slow to collect
        return self._result(account, context)

    def _result(self, account: Account, context: LoopContext) -> Result:
        answer = context.answer if account.control.stop is StopReason.FINAL_ANSWER else None
        return Result(answer, account.control, self.limits, tuple(context.turns), account.closed)

    def _rounds(self, account: Account, context: LoopContext) -> Program[None]:
        yield from self._perceived(account, context)
        while True:
            decision = self.reason(context)
            if isinstance(decision, GeneratorType):
                decision = yield from decision
            if type(decision) is Finish:
                decision = yield from self._accepted(account, context, decision)
            if type(decision) is Finish:
                context.turns.append(Turn(decision.thought))
                context.answer = decision.answer
                account.post(ANSWER_GIVEN, turn=context.turns[-1])
                return
            turn = yield from self._acted(account, context, decision)
            verdict = None
            if self.stops:
                verdict = yield from self._ruled(account, context)
                turn = context.turns[-1]
            succeeded = True in [observation.ok for observation in turn.observations]
            account.post(OBSERVED, succeeded, len(turn.calls), 0, 0.0, verdict, None, turn)

    def _perceived(self, account: Account, context: LoopContext) -> Program[None]:
        if self.perceive is not None:
            perceived = yield from settle(self.perceive(context.task))
            if isinstance(perceived, StopReason):
                account.stop(perceived)
            if not isinstance(perceived, Mapping | None):
                raise TypeError(f"perceive must return a mapping, a StopReason or None, not {perceived!r}")
            context.working_memory.update(perceived or {})
        account.post(PERCEIVED)

    def _accepted(self, account: Account, context: LoopContext, decision: Finish) -> Program[Finish | Act]:
        """The final answer, or the objection to it as an action that reports it to the model."""
        objection = _EMPTY_ANSWER if _is_empty(decision.answer) else None
        if objection is None and self.accept is not None and account.control.stop is None:
            try:
                objection = yield from settle(self.accept(context, decision.answer))
            except LimitReached:
                context.turns.append(Turn(decision.thought))  # not judged to the end, and not lost
                raise
        if objection is None:
            return decision
        if not isinstance(objection, str):
            raise TypeError(f"accept must return an objection in words, or None, not {objection!r}")
        return report(Observation(objection, False, Kind.REFUSED), decision.thought)

    def _acted(self, account: Account, context: LoopContext, decision: Act) -> Program[Turn]:
        """Run each call in order and add the turn, whole also where the run ends in the middle of it."""
        if type(decision) is not Act or not decision.calls:
            raise TypeError(f"reason must return an Act with calls, or a Finish, not {decision!r}")
        number, rounds = account.number, account.control.rounds
        try:
            calls = tuple(
                [
                    _new(ToolCall, (name, arguments, f"call_{number}_{rounds}_{place}", problem))
                    for place, (name, arguments, _, problem) in enumerate(decision.calls, 1)
                ]
            )
        except (TypeError, ValueError):
            raise TypeError(
                f"Act holds a tuple of ToolCall values, such as (call,), not {decision.calls!r}"
            ) from None
        observations: list[Observation] = []
        made = account.made
        try:
            account.post(ACTION_CHOSEN, True, len(calls))
            account.post(SUBMITTED, True, len(calls))
            for call in calls:
                made = account.made
                if observations:
                    account.check()
                observation = call.problem or self.act(call)
                if isinstance(observation, GeneratorType):
                    observation = yield from observation
                if type(observation) is not Observation:
                    raise TypeError(f"act must return an Observation, not {observation!r}")
                observations.append(observation)
            account.check()
        except BaseException:
            left = [call.problem or _NOT_RUN for call in calls[len(observations) :]]
            if left and account.made > made:
                left[0] = _UNFINISHED
            observations += left
            raise
        finally:
            turn = _new(Turn, (decision.thought, calls, tuple(observations), ()))
            context.turns.append(turn)
        return turn

    def _ruled(self, account: Account, context: LoopContext) -> Program[StopReason | None]:
        """Ask every stop rule: the first reason is the verdict, and words become the turn's warnings."""
        reason = None
        warnings = []
        for rule in self.stops:
            verdict = rule(account.control, context)
            if isinstance(verdict, GeneratorType):
                verdict = yield from verdict
            if isinstance(verdict, StopReason):
                reason = reason or verdict
            elif isinstance(verdict, str):
                warnings.append(verdict)
            elif verdict is not None:
                raise TypeError(f"a stop rule returns a StopReason, a warning or None, not {verdict!r}")
        if warnings:
            context.turns[-1] = context.turns[-1]._replace(warnings=tuple(warnings))
        return reason


# --- Driving ----------------------------------------------------------------------------------
# A stage steps programs and knows nothing of how effects are performed; a driver performs effects
# and knows nothing of programs. A dispatcher stands between the two, the same for every driver: who
# performs is the only difference.


class Away(BaseException):
    """What a ``World``'s human raises where nobody can answer now, or a ``Do`` where it is not yet time.

    The run is left, not ended: programs beside it go on as far as they can, then the driver raises
    this. Driven again on its journal, the run asks for the same again.
    """


class Failure(NamedTuple):
    """An outcome that is thrown into the program: as ``EffectFailed``, or as ``Interrupted``."""

    text: str
    interrupted: bool = False


STOPPED_BY_A_PERSON = Failure("a person stopped the run", interrupted=True)
_NO_ANSWER = (Failure, Observation)

Address = tuple[int, ...]


def describe(effect: Effect) -> str:
    """One line that says what was asked for, the same for the same request: what a journal compares."""
    if isinstance(effect, CallModel):
        import hashlib

        shown = repr((effect.messages, effect.tools, effect.stop)).encode("utf-8", "backslashreplace")
        digest = hashlib.blake2b(shown, digest_size=8).hexdigest()
        return f"CallModel {digest} {on_one_line(str(effect.messages[-1:]), 60)}"
    if isinstance(effect, CallTool):
        return f"CallTool {effect.call.id} {call_text(effect.call)}"
    if isinstance(effect, AskHuman) and effect.about:
        return f"AskHuman about {effect.about} {effect.question!r}"
    if isinstance(effect, Do):
        return f"Do {effect.label}"
    return f"{type(effect).__name__} {effect[0]!r}"


class ProgramChanged(Exception):
    """A program asked for something other than what its journal recorded."""


class Journal:
    """The memory of a run: what was begun, before it was done, and what came of it, in that order.

    Running the same program on it again brings the run back to where it stood. Outcomes are kept as
    they are, so a program must not change a value that it was sent.
    """

    def __init__(self, outcomes: Iterable[tuple[Address, str, Outcome]] = ()) -> None:
        self.outcomes = list(outcomes)
        self.intents: dict[Address, str] = {}  # begun, and no outcome yet

    def intend(self, address: Address, asked: str) -> None:
        self.intents[address] = asked

    def record(self, address: Address, asked: str, outcome: Outcome) -> None:
        self.intents.pop(address, None)
        self.outcomes.append((address, asked, outcome))

    def rewound(self, count: int) -> Journal:
        """A new journal of the first ``count`` outcomes: from there a run can take another way.

        At its end, what is in doubt stays so.
        """
        journal = Journal(self.outcomes[:count])
        if count >= len(self.outcomes):
            journal.intents.update(self.intents)
        return journal


class Strand:
    """One program on the stage, and the effect that it waits for."""

    __slots__ = ("program", "branch", "count", "effect", "parent", "place", "values", "missing")

    def __init__(self, program: Program[Any], branch: Address, parent: Strand | None, place: int) -> None:
        self.program, self.branch, self.parent, self.place = program, branch, parent, place
        self.count = 0
        self.effect: Effect = Sleep(0)
        self.values: list[Any] = []  # of the programs it waits for under Together
        self.missing = 0

    @property
    def address(self) -> Address:
        """Where its present effect stands in the whole program: the same on every run."""
        return (*self.branch, self.count)


_Next = tuple[Strand, Outcome | None]  # a step still to be taken


class Stage:
    """Steps one program, and under ``Together`` many, from outcome to outcome, and keeps the journal.

    ``waiting`` are the strands whose effects are to be performed first. A driver says ``begin``,
    performs, and hands the value to ``deliver``, which returns the strands that then wait for
    something new. A call that a journal saw begin and never end is repeated only if ``repeatable``
    says so of its tool; otherwise its outcome is that nobody knows.
    """

    __slots__ = (
        "finished",
        "at",
        "journal",
        "waiting",
        "_loops",
        "_answers",
        "_put",
        "_value",
        "error",
    )

    def __init__(
        self,
        program: Program[Any],
        journal: Journal | None = None,
        repeatable: Callable[[str], bool] = lambda name: False,
    ) -> None:
        self.finished = False
        self.at = 0.0
        self.journal = journal
        self._loops = 0
        self._answers: dict[tuple[str, str], Any] = {}  # by the question and what it is about
        self._put: dict[tuple[str, str], list[Strand]] = {}  # not answered yet, and who else waits for it
        self._value: Any = None
        self.error: BaseException | None = None
        self.waiting = self._step(Strand(program, (), None, 0), None)
        if journal is not None:
            self.waiting = self._resumed(journal, self._replayed(journal), repeatable)

    @property
    def result(self) -> Any:
        """What the program returned; what it raised is raised here."""
        if self.error is not None:
            raise self.error
        return self._value

    def deliver(self, strand: Strand, value: Any, at: float) -> list[Strand]:
        """Hand over what came of a strand's effect at ``at`` seconds of the run."""
        if type(strand.effect) is Start and type(value) is not Failure:
            value = self._loops = self._loops + 1
        outcome = _new(Outcome, (value, at))
        if self.journal is not None:
            self.journal.record(strand.address, describe(strand.effect), outcome)
        return self._step(strand, outcome)

    def begin(self, strand: Strand) -> None:
        """Say that a strand's effect is about to be performed: nobody may do it again unawares."""
        if self.journal is not None:
            self.journal.intend(strand.address, describe(strand.effect))

    def fail(self, error: BaseException) -> None:
        """End everything, unless it has ended: a driver could not go on."""
        if not self.finished:
            self.finished, self.error = True, error

    def _step(self, strand: Strand, outcome: Outcome | None) -> list[Strand]:
        """Send a strand its outcome, and take all the steps that this sets going."""
        waiting: list[Strand] = []
        steps: list[_Next] = [(strand, outcome)]
        if outcome is not None and type(strand.effect) is AskHuman:
            steps += self._answered(strand.effect, outcome)
        for strand, outcome in steps:  # grows while it is walked
            try:
                effect = self._sent(strand, outcome)
            except StopIteration as finished:
                steps += self._ended(strand, finished.value)
            except Exception as error:
                steps += self._ended(strand, error, error)
            except BaseException as error:
                self.fail(error)
                return []
            else:
                strand.effect = effect
                strand.count += 1
                if isinstance(effect, Together):
                    steps += self._forked(strand, effect.programs)
                elif type(effect) is AskHuman and effect.about:
                    steps += self._asked(strand, effect[:2], waiting)
                else:
                    waiting.append(strand)
        return waiting

    def _sent(self, strand: Strand, outcome: Outcome | None) -> Effect:
        """What the program wants next. Raises ``StopIteration`` at its end, and what it raises."""
        if outcome is None:
            effect = next(strand.program)
        else:
            value, self.at = outcome
            if type(value) is Failure:
                effect = strand.program.throw(_thrown(strand.effect, value, self.at))
            else:
                effect = strand.program.send(outcome)
        if type(effect) not in _EFFECTS:
            _abandon(strand.program)
            raise TypeError(_no_effect(effect))
        return effect

    def _asked(self, strand: Strand, question: tuple[str, str], waiting: list[Strand]) -> list[_Next]:
        """Put a question that is about something, unless it is answered, or put already."""
        if question in self._answers:
            return [(strand, Outcome(self._answers[question], self.at))]
        if question in self._put:
            self._put[question].append(strand)
        else:
            self._put[question] = []
            waiting.append(strand)
        return []

    def _answered(self, asked: AskHuman, outcome: Outcome) -> list[_Next]:
        """Keep an answer for whoever asks the same later; those who wait for it have the outcome too."""
        if not asked.about:
            return []
        if type(outcome.value) not in _NO_ANSWER:
            self._answers[asked[:2]] = outcome.value
        return [(strand, outcome) for strand in self._put.pop(asked[:2], ())]

    def _forked(self, parent: Strand, programs: Sequence[Program[Any]]) -> list[_Next]:
        if not programs:
            return [(parent, Outcome([], self.at))]
        parent.values, parent.missing = [None] * len(programs), len(programs)
        here = parent.address
        children = enumerate(programs)
        return [(Strand(program, (*here, place), parent, place), None) for place, program in children]

    def _ended(self, strand: Strand, value: Any, error: BaseException | None = None) -> list[_Next]:
        parent = strand.parent
        if parent is None:
            self.finished, self._value, self.error = True, value, error
            return []
        parent.values[strand.place] = value
        parent.missing -= 1
        return [] if parent.missing else [(parent, Outcome(parent.values, self.at))]

    def _replayed(self, journal: Journal) -> list[Strand]:
        """Hand over the recorded outcomes in the order in which they arrived."""
        waiting = {strand.address: strand for strand in self.waiting}
        for address, asked, outcome in journal.outcomes:
            strand = _unchanged(address, asked, waiting.pop(address, None))
            if isinstance(strand.effect, Start) and isinstance(outcome.value, int):
                self._loops = outcome.value
            waiting.update((asking.address, asking) for asking in self._step(strand, outcome))
        return list(waiting.values())

    def _resumed(
        self, journal: Journal, strands: list[Strand], repeatable: Callable[[str], bool]
    ) -> list[Strand]:
        waiting = []
        for strand in strands:
            effect, asked = strand.effect, journal.intents.get(strand.address)
            if asked is not None:
                _unchanged(strand.address, asked, strand)
            doubt = None if asked is None else _doubt(effect, repeatable)
            if doubt is None:
                waiting.append(strand)
            else:
                waiting += self.deliver(strand, doubt, self.at)
        return waiting


def _doubt(effect: Effect, repeatable: Callable[[str], bool]) -> Observation | Failure | None:
    """The outcome of an effect that was begun, with nothing known of its end; ``None`` to do it again."""
    text = "It was begun before the run broke off; whether it took effect is not known. It was not repeated."
    if isinstance(effect, CallTool) and not repeatable(effect.call.name):
        return Observation(text, False, Kind.UNCERTAIN)
    if isinstance(effect, Do) and not effect.repeatable:
        return Failure(text)
    return None


def _unchanged(address: Address, asked: str, strand: Strand | None) -> Strand:
    """The strand, if it asks for what the journal recorded at this address."""
    now = describe(strand.effect) if strand else "nothing more"
    if strand is None or now != asked:
        raise ProgramChanged(
            f"at {address} the journal recorded {asked!r}, and the program now asks for {now!r}: "
            "replay a journal with the program, the tools and the prompts that wrote it"
        )
    return strand


def _thrown(effect: Effect, failure: Failure, at: float) -> Exception:
    if failure.interrupted:
        return Interrupted(at)
    return EffectFailed(f"{describe(effect)} failed: {failure.text}", at)


class Interrupt:
    """A flag by which a person ends a run, from any thread; raising it twice changes nothing."""

    __slots__ = ("raised", "_wakers")

    def __init__(self) -> None:
        self.raised = False
        self._wakers: list[Callable[[], object]] = []

    def set(self) -> None:
        self.raised = True
        for wake in tuple(self._wakers):
            wake()

    def add_waker(self, wake: Callable[[], object]) -> None:
        """From now on, call ``wake`` when the flag is raised."""
        self._wakers.append(wake)

    def remove_waker(self, wake: Callable[[], object]) -> None:
        self._wakers.remove(wake)


class RunClock:
    """The run's time, in seconds: it never goes back, and goes on from ``already`` after a resume."""

    __slots__ = ("_clock", "_began", "latest")

    def __init__(self, clock: Callable[[], float], already: float = 0.0) -> None:
        self._clock = clock
        self._began = clock() - already
        self.latest = already

    def now(self) -> float:
        now = self._clock() - self._began
        if now > self.latest:
            self.latest = now
        return self.latest

    def stood_still(self, since: float) -> float:
        """Take out the time from ``since`` until now, when only a person was waited for; return ``since``."""
        self._began += self.now() - since
        self.latest = since
        return since


@dataclass(frozen=True, slots=True)
class World:
    """What a driver can reach.

    ``model(request)`` takes a ``CallModel`` and returns a ``Reply`` or plain text. In an ``inline``
    world nothing can hang, so calls run on the caller's thread; elsewhere each call is left behind
    when its time is up. ``clock`` is in seconds and monotonic.
    """

    model: Callable[[CallModel], Any] | None = None
    tools: Toolbox | None = None
    human: Callable[[str], Any] | None = None
    sleep: Callable[[float], Any] = time.sleep
    clock: Callable[[], float] = time.monotonic
    inline: bool = False

    def __post_init__(self) -> None:
        if self.tools is not None and not isinstance(self.tools, Toolbox):
            raise TypeError(f"World.tools is a Toolbox([...]), not {self.tools!r}")
        optional = (self.model, self.human)
        for each in (self.sleep, self.clock, *(each for each in optional if each is not None)):
            if not callable(each):
                raise TypeError(f"model, human, sleep and clock of a World are functions, not {each!r}")

    def may_repeat(self, name: str) -> bool:
        """Whether a tool may be called again when it is not known what became of its last call."""
        return self.tools is not None and self.tools.is_idempotent(name)


def _model_to_ask(effect: CallModel, world: World) -> Any:
    if world.model is None:
        return _model_error("is missing: this world has none")
    return functools.partial(world.model, effect)


def _model_returned(effect: CallModel, world: World, value: Any) -> Reply | Observation:
    return as_reply(value)


def _model_raised(effect: CallModel, world: World, error: BaseException) -> Observation:
    if not isinstance(error, (Unavailable, *PASSING)):
        return _model_error(f"failed: {_told(error)}")
    when = error.retry_after if isinstance(error, Unavailable) else None
    return Observation(f"The model failed: {_told(error)}.", False, Kind.UNAVAILABLE, when)


def as_reply(answer: Any) -> Reply | Observation:
    """What a model returned, as a ``Reply``; an impossible usage or anything else is the model's failure."""
    if isinstance(answer, str):
        return Reply(str.__str__(answer))
    if answer is None:
        return Reply()
    if not isinstance(answer, Reply):
        if inspect.isawaitable(answer):
            getattr(answer, "close", bool)()
            return _model_error("is asynchronous: it needs an asyncio driver")
        return _model_error(f"returned {type(answer).__name__}; a model returns a Reply or text")
    text, tool_calls, usage = answer
    if type(text) is str and type(tool_calls) is tuple and (usage is None or _is_plain(usage)):
        return answer
    if not isinstance(text, (str, NoneType)) or not isinstance(tool_calls, (tuple, list, NoneType)):
        return _model_error("returned a Reply that does not hold text and a tuple of calls")
    if usage is not None:
        usage = _sensible(usage)
        if usage is None:
            return _model_error(f"reported an impossible usage: {on_one_line(_written(answer.usage, repr))}")
    return _new(Reply, (str.__str__(text or ""), tuple(tool_calls or ()), usage))


#: What no model can have used, in tokens: a reply that claims it is taken for a failure.
MOST_TOKENS = 10**12


def _is_plain(usage: Usage) -> bool:
    if type(usage) is not Usage:
        return False
    tokens, cost = usage
    return type(tokens) is int and 0 <= tokens < MOST_TOKENS and type(cost) is float and 0 <= cost < math.inf


def _sensible(usage: Usage) -> Usage | None:
    """The usage in plain numbers; ``None`` for what cannot be true."""
    try:
        plain = Usage(int(usage.tokens), float(usage.cost))
    except (TypeError, ValueError, ArithmeticError, AttributeError):
        return None
    return plain if _is_plain(plain) else None


def _model_error(what: str) -> Observation:
    return Observation(f"The model {what}.", False, Kind.MODEL_ERROR)


def _told(error: BaseException) -> str:
    """An exception in words, whatever its own text does."""
    return f"{type(error).__name__}: {cut(_written(error, str), 2000)}"


def _tool_to_run(effect: CallTool, world: World) -> Any:
    if world.tools is None:
        return Observation("There are no tools in this world.", False, Kind.UNKNOWN_TOOL)
    return world.tools.prepare(effect.call)


def _tool_returned(effect: CallTool, world: World, value: Any) -> Observation:
    assert world.tools is not None, "it was one of these that returned"
    return world.tools.observe(value)


def _tool_raised(effect: CallTool, world: World, error: BaseException) -> Observation:
    assert world.tools is not None, "it was one of these that raised"
    return world.tools.failure(effect.call, error)


def _person_to_ask(effect: AskHuman, world: World) -> Any:
    if world.human is None:
        return Observation("Nobody is there to answer.", False, Kind.NO_HUMAN)
    return functools.partial(world.human, effect.question)


def _person_raised(effect: AskHuman, world: World, error: BaseException) -> Observation:
    return Observation(f"Asking failed: {_told(error)}", False, Kind.NO_HUMAN)


def _function_to_call(effect: Do, world: World) -> Any:
    if not callable(effect.function):
        return Failure(f"{effect.function!r} is not a function")
    return effect.function


def _sleep_to_take(effect: Sleep, world: World) -> Any:
    if not 0 <= effect.seconds < math.inf:
        return Failure(f"nobody can sleep for {effect.seconds!r} seconds")
    return functools.partial(world.sleep, effect.seconds)


def _nothing(effect: Effect, world: World, value: Any = None) -> None:
    return None


def _as_it_is(effect: Effect, world: World, value: Any) -> Any:
    return value


def _failed(effect: Effect, world: World, error: BaseException) -> Failure:
    return Failure(_told(error))


class Handler(NamedTuple):
    """How one kind of effect is performed: what is called for it, and what its outcome is then.

    What ``prepare`` returns is called, unless it cannot be: then it is the outcome itself. ``raised``
    makes an outcome of an exception that is ``caught``; any other ends the whole run.
    """

    prepare: Callable[[Any, World], Any]
    returned: Callable[[Any, World, Any], Any] = _as_it_is
    raised: Callable[[Any, World, Any], Any] = _failed
    caught: tuple[type[BaseException], ...] = (Exception,)


_OR_EXIT = (Exception, SystemExit)  # a library that exits the process is a failure like any other

#: How each kind of effect is performed, for every driver.
HANDLERS: Mapping[type, Handler] = {
    Start: Handler(_nothing),
    CallModel: Handler(_model_to_ask, _model_returned, _model_raised, _OR_EXIT),
    CallTool: Handler(_tool_to_run, _tool_returned, _tool_raised, _OR_EXIT),
    AskHuman: Handler(_person_to_ask, raised=_person_raised),
    Sleep: Handler(_sleep_to_take, _nothing),
    Do: Handler(_function_to_call),
}


def perform(effect: Effect, world: World) -> Any:
    """Do what a program wants and return what came of it. What fails outside comes back as a value."""
    prepare, returned, raised, caught = HANDLERS[type(effect)]
    call = prepare(effect, world)
    if not callable(call):
        return call
    try:
        return returned(effect, world, call())
    except caught as error:
        return raised(effect, world, error)


def too_late(effect: Effect) -> Any:
    """The outcome of a call that was left behind when its time was up; its late result is ignored."""
    doubt = "" if isinstance(effect, CallModel) else "; whether it took effect is not known"
    text = f"Timed out after {effect.allowed:g} s and was left behind{doubt}."
    return _without_result(effect, text, Kind.TIMEOUT)


def not_begun(effect: Effect) -> Any:
    """The outcome of an effect whose turn came when the run's time was up already."""
    return _without_result(effect, "Not begun: the run's time was up.", Kind.NOT_RUN)


def _without_result(effect: Effect, text: str, kind: Kind) -> Any:
    return Failure(text) if isinstance(effect, (Do, Sleep)) else Observation(text, False, kind)


def drive(
    program: Program[T],
    world: World,
    journal: Journal | None = None,
    interrupt: Interrupt | None = None,
) -> T:
    """Run a program to its end, blocking, and return what it returns.

    With a ``journal``, what it recorded is handed over first without touching the world, and all
    that follows is recorded. Ctrl-C and ``interrupt`` end the run with HUMAN. Raises what the
    program raises, and ``ProgramChanged`` where the journal is another program's.
    """
    inline = isinstance(world, World) and world.inline
    driving = (_Inline if inline else _Crew)(world, interrupt)
    with _ctrl_c(driving.on_ctrl_c):
        driving.open(program, journal)
        driving.run()
    result: T = driving.stage.result
    return result


class Job:
    """An effect that has begun: whose it is, since when, and until when it may take.

    Whoever performs it notes what came: a ``value``, or the ``crash`` that broke it off.
    """

    __slots__ = ("strand", "since", "until", "value", "crash", "task")

    def __init__(self, strand: Strand, since: float, until: float) -> None:
        self.strand, self.since, self.until = strand, since, until
        self.value: Any = None
        self.crash: BaseException | None = None
        self.task: Any = None  # what to cancel, where an event loop performs it


class Dispatcher:
    """All that a driver does besides performing: it hands out jobs, and takes in what came of them.

    Whoever performs takes the ``next_job`` and will ``finish`` it; ``look`` is for whoever keeps an eye
    on the time, and on the person who may stop the run. Drivers differ in who that is, so each kind says
    how many may perform ``most_at_once``, how one more is to ``start``, and how to ``notify`` the one who
    looks, or ``watch`` the time. One of them at a time comes in here: only ``_Crew`` has threads, and a lock.
    """

    __slots__ = (
        "world",
        "interrupt",
        "stage",
        "clock",
        "ready",
        "begun",
        "unanswered",
        "away",
        "starting",
        "watching_until",
    )
    most_at_once = 0  # it hires nobody
    stage: Stage
    clock: RunClock
    away: Away

    def __init__(self, world: World, interrupt: Interrupt | None = None) -> None:
        if not isinstance(world, World):
            raise TypeError(f"drive(loop.run(task), World(...)): a World, not {world!r}")
        self.world, self.interrupt = world, interrupt or Interrupt()
        self.ready: deque[Strand] = deque()
        self.begun: dict[Strand, Job] = {}
        self.unanswered: list[Strand] = []  # whose questions nobody could answer
        self.starting = 0  # who is on the way to a first job
        self.watching_until = math.inf

    def open(self, program: Program[Any], journal: Journal | None) -> None:
        """Put a program on the stage. Raises ``TypeError`` for what is no program or journal."""
        if not isinstance(program, GeneratorType):
            raise TypeError(f"drive(loop.run(task), World(...)): a program, not {program!r}")
        if not isinstance(journal, Journal | None):
            raise TypeError(f"a journal is a Journal(), or one of its kind, not {journal!r}")
        self.stage = Stage(program, journal, self.world.may_repeat)
        self.clock = RunClock(self.world.clock, self.stage.at)
        self.want(self.stage.waiting)

    def start(self) -> None:
        """Let one more perform jobs."""

    def notify(self) -> None:
        """Let somebody look, soon."""

    def watch(self) -> None:
        """See to it that somebody looks when the run's time is ``watching_until``."""
        self.notify()

    def next_job(self) -> Job | None:
        """Hand out an effect, which begins now; ``None`` if there is none, or none may begin any more.

        Whatever breaks here ends the run, as it does in ``finish``: nobody else would notice.
        """
        try:
            job = None
            while job is None and self.ready and self.may_begin():
                job = self.begin(self.ready.popleft())
            if self.ready:
                self.hire()
            return job
        except BaseException as error:
            self.fail(error)
            return None

    def may_begin(self) -> bool:
        """Whether anything may: not once the run is over, or a person has stopped it."""
        return not self.interrupt.raised and not self.stage.finished

    def finish(self, job: Job) -> bool:
        """Take in what came of a job. ``False`` if nobody waits: it was left behind, or the run is over."""
        if self.begun.get(job.strand) is not job or self.stage.finished:
            return False
        try:
            self.take_in(job)
            return True
        except BaseException as error:
            self.fail(error)
            return False

    def begin(self, strand: Strand) -> Job | None:
        """Note that an effect begins. If the run's time is up it does not, and that is the outcome."""
        effect, now = strand.effect, self.clock.now()
        if now >= effect.deadline:
            self.deliver(strand, not_begun(effect), now)
            return None
        self.stage.begin(strand)
        until = now + effect.allowed
        job = self.begun[strand] = Job(strand, now, until)
        if until < self.watching_until:
            self.watching_until = until
            self.watch()
        return job

    def hire(self) -> None:
        """Start one for each effect that nobody is on the way to."""
        for _ in range(min(len(self.ready), self.most_at_once - len(self.begun)) - self.starting):
            self.starting += 1
            self.start()

    def take_in(self, job: Job) -> None:
        strand = job.strand
        del self.begun[strand]
        effect, at = strand.effect, self.clock.now()
        value = too_late(effect) if at > job.until else job.value
        if type(effect) is AskHuman:
            at = self.without_the_person(job.since)
        if job.crash is None:
            self.deliver(strand, value, at)
        else:
            self.take_crash(strand, job.crash)

    def without_the_person(self, since: float) -> float:
        """The run's time; what a person took is taken out, if nothing but persons was waited for."""
        if any(type(strand.effect) is not AskHuman for strand in self.begun):
            return self.clock.latest
        return self.clock.stood_still(max(since, self.stage.at))

    def take_crash(self, strand: Strand, crash: BaseException) -> None:
        """Let what broke a job end the run; where it says that the person is away, wait."""
        if isinstance(crash, KeyboardInterrupt):
            self.interrupt.set()
            self.deliver(strand, STOPPED_BY_A_PERSON, self.clock.now())
        elif isinstance(crash, Away):
            self.unanswered.append(strand)
            self.away = crash
            self.notify()
        else:
            self.fail(crash)

    def look(self) -> None:
        """Do what no job tells: end what a person stopped or whose time is up, and hire.

        A run that waits for nothing but a person who is away is left.
        """
        while self.interrupt.raised and not self.stage.finished and (strand := self.take_one_waiting()):
            self.deliver(strand, STOPPED_BY_A_PERSON, self.clock.now())
        if self.stage.finished:
            return
        now = self.clock.now()
        for job in [job for job in self.begun.values() if job.until <= now]:
            self.leave_behind(job)
            self.deliver(job.strand, too_late(job.strand.effect), now)
            if self.stage.finished:
                return
        if self.waits_only_for_persons():
            self.fail(self.away)
        self.hire()
        self.watching_until = min((job.until for job in self.begun.values()), default=math.inf)

    def waits_only_for_persons(self) -> bool:
        """Whether all that is left are questions that nobody could answer."""
        return bool(self.unanswered) and not self.begun and not self.ready

    def take_one_waiting(self) -> Strand | None:
        """A strand that waits, taken from where it waits."""
        if self.ready:
            return self.ready.popleft()
        if self.unanswered:
            return self.unanswered.pop()
        if self.begun:
            job = next(iter(self.begun.values()))
            self.leave_behind(job)
            return job.strand
        return None

    def leave_behind(self, job: Job) -> None:
        """Wait for it no longer."""
        del self.begun[job.strand]

    def deliver(self, strand: Strand, value: Any, at: float) -> None:
        self.want(self.stage.deliver(strand, value, at))
        if self.stage.finished or (self.unanswered and not self.begun):
            self.notify()

    def want(self, strands: Sequence[Strand]) -> None:
        """Take in who waits for something new."""
        self.ready.extend(strands)

    def fail(self, error: BaseException) -> None:
        self.stage.fail(error)
        self.notify()


class _Inline(Dispatcher):
    """Performs effects one after another on the caller's thread."""

    performing = False

    def run(self) -> None:
        while not self.stage.finished:
            job = self.next_job()
            if job is None:
                self.look()
                continue
            try:
                self.performing = True
                job.value = perform(job.strand.effect, self.world)
                self.performing = False
            except BaseException as crash:
                self.performing = False  # before all else: from here on, Ctrl-C must not tear the run
                job.crash = crash
            self.finish(job)

    def on_ctrl_c(self) -> None:
        """Break off what is being performed; a program in the middle of a step only when asked twice."""
        if self.performing or self.interrupt.raised:
            raise KeyboardInterrupt
        self.interrupt.set()


#: How many effects a blocking driver performs side by side, at most.
CREW = 64


class _Crew(Dispatcher):
    """Performs effects on daemon threads, each abandoned together with the call that hangs in it.

    A thread that has performed an effect also steps the program and performs what it wants next, so
    an ordinary call costs no hand-over; more threads are hired when programs run side by side. The
    caller only looks: when a call's time is up it takes the strand back, and steps the program itself.
    """

    most_at_once = CREW

    def __init__(self, world: World, interrupt: Interrupt | None) -> None:
        import queue  # an inline world needs neither
        import threading

        super().__init__(world, interrupt)
        self.lock = threading.Lock()  # held to step the program, never during a call
        self.wake: queue.SimpleQueue[None] = queue.SimpleQueue()  # safe to fill from a signal handler

    def run(self) -> None:
        self.interrupt.add_waker(self.notify)
        try:
            while not self.stage.finished:
                self.look()
                self.wait()
        except BaseException as error:
            self.stage.fail(error)  # so that no thread goes on
            raise
        finally:
            self.interrupt.remove_waker(self.notify)

    def on_ctrl_c(self) -> None:
        """Stop the run; asked twice, stop whatever keeps it from stopping."""
        if self.interrupt.raised:
            raise KeyboardInterrupt
        self.interrupt.set()

    def look(self) -> None:
        with self.lock:
            super().look()

    def wait(self) -> None:
        """Wait until there is something to look at."""
        import queue
        import threading

        seconds = self.watching_until - self.clock.latest
        try:
            self.wake.get(timeout=min(max(seconds, 0.0), threading.TIMEOUT_MAX))
        except queue.Empty:
            pass

    def notify(self) -> None:
        self.wake.put(None)

    def start(self) -> None:
        import threading

        threading.Thread(target=self.work, daemon=True).start()

    def work(self) -> None:
        """A thread's life: job after job, as long as there are any."""
        job = None
        while job := self.turn(job):
            try:
                job.value = perform(job.strand.effect, self.world)
            except BaseException as crash:  # it must not be lost with the job in its hands
                job.crash = crash

    def turn(self, done: Job | None) -> Job | None:
        """Hand in a job, ``None`` in the first turn, and take the next, before another can."""
        with self.lock:
            if done is None:
                self.starting -= 1
            elif not self.finish(done):
                return None  # left behind: another has its place in the crew
            return self.next_job()


@contextmanager
def _ctrl_c(handler: Callable[[], object]) -> Iterator[None]:
    """Let Ctrl-C call ``handler`` instead of tearing a program in half; only the main thread can."""
    import signal

    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else somebody has other plans
    try:
        if ours:
            signal.signal(signal.SIGINT, lambda number, frame: handler())
    except ValueError:  # not the main thread
        ours = False
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


# --- The toolbox ------------------------------------------------------------------------------
# Plain functions in, observations out. A call is checked before its tool is entered, so that a
# mistake of the model and a bug of the tool are never taken for each other.


class Toolbox:
    """The tools that a model may call, made from plain functions (``async def`` too).

    ``tools`` are functions, known by their own names, or a mapping from names to functions.
    ``idempotent`` names those that may be repeated when it is not known whether a call took
    effect. A result is cut after ``max_characters``. Raises ``ValueError`` for a name that is
    used twice or not known, and for a function that cannot be called with named arguments.

    A tool reports a failure of its own by raising, or by returning an ``Observation`` with
    ``ok=False``: a dict that says ``{"status": "error"}`` is a result like any other.
    """

    def __init__(
        self,
        tools: Iterable[Callable[..., Any]] | Mapping[str, Callable[..., Any]],
        *,
        idempotent: Collection[str] = (),
        max_characters: int = 10_000,
    ) -> None:
        if not isinstance(tools, Iterable):
            raise ValueError(f"a toolbox takes a list of functions, such as Toolbox([search]), not {tools!r}")
        if type(max_characters) is not int or max_characters < 1:
            raise ValueError(f"max_characters must be a whole number of at least 1, not {max_characters!r}")
        pairs: Iterable[tuple[Any, Any]] = (
            tools.items() if isinstance(tools, Mapping) else ((getattr(f, "__name__", ""), f) for f in tools)
        )
        self._tools: dict[str, _Tool] = {}
        for name, function in pairs:
            if name in self._tools:
                raise ValueError(f"two tools are named {name!r}: give a mapping from names to functions")
            self._tools[name] = _read_tool(name, function)
        for name in idempotent:
            if name not in self._tools:
                raise ValueError(f"idempotent names {name!r}, which is no tool: {self._known()}")
        self._idempotent, self._max_characters = frozenset(idempotent), max_characters

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tools, in the order given."""
        return tuple(self._tools)

    def parameters(self, name: str) -> tuple[str, ...]:
        """Return the parameters of a tool that can be given by position. Raises ``KeyError``."""
        parameters = self._tools[name].signature.parameters.values()
        return tuple(each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD)

    def is_idempotent(self, name: str) -> bool:
        """Say whether a call may be repeated when its outcome is unknown; never for an unknown name."""
        return name in self._idempotent

    def describe(self) -> str:
        """Return the tool list for a prompt: a line for each tool, its signature and what it does."""
        lines = []
        for tool in self._tools.values():
            purpose = tool.documentation.partition("\n")[0]
            lines.append(f"- {tool.written}: {purpose}" if purpose else f"- {tool.written}")
        return "\n".join(lines)

    def schemas(self) -> tuple[dict[str, Any], ...]:
        """Return name, description and JSON schema of each tool, as function calling wants them."""
        return tuple(tool.schema() for tool in self._tools.values())

    def prepare(self, call: ToolCall) -> Callable[[], Any] | Observation:
        """Check a call without making it.

        Returns a function that makes the call, with its arguments converted, and may raise what
        the tool raises. Where the call cannot be made: the failed observation that says why, and
        what would be right (UNKNOWN_TOOL, BAD_ARGUMENTS, or the call's own ``problem``).
        """
        if call.problem is not None:
            return call.problem
        tool = self._tools.get(call.name) if isinstance(call.name, str) else None
        if tool is None:
            return self._unknown(call.name)
        fitted, problems = tool.check(call.arguments)
        if problems:
            text = f"{tool.name} was not run: {'; '.join(problems)}. Its signature: {tool.written}"
            return self._failed(Kind.BAD_ARGUMENTS, text)
        if tool.wants_id:
            fitted[CALL_ID] = call.id
        return functools.partial(tool.function, **fitted)

    def execute(self, call: ToolCall) -> Observation:
        """Check a call, make it, and return what came of it in words.

        Never raises for what a model or a tool did wrong. Ctrl-C goes through.
        """
        ready = self.prepare(call)
        if isinstance(ready, Observation):
            return ready
        try:
            return self.observe(ready())
        except (Exception, SystemExit) as error:
            return self.failure(call, error)

    def observe(self, result: object) -> Observation:
        """Return a result as an observation: text as it is, data as JSON, anything else by ``str``.

        An ``Observation`` stays what it is. An awaitable is not waited for but reported (TOOL_ERROR).
        """
        ok, kind, retry_after = True, Kind.RESULT, None
        if isinstance(result, Observation):
            result, ok, kind, retry_after = result
            if type(kind) is not Kind:
                return self._failed(Kind.TOOL_ERROR, f"it returned an Observation of kind {_shown(kind)}")
        elif hasattr(type(result), "__await__"):
            getattr(result, "close", bool)()  # a coroutine left open would warn; a future has no close
            return self._failed(Kind.TOOL_ERROR, "this tool is asynchronous: it needs an asyncio driver")
        text = result if type(result) is str else _text_of(result)
        return _new(Observation, (cut(text, self._max_characters), ok is True, kind, retry_after))

    def failure(self, call: ToolCall, error: BaseException) -> Observation:
        """Return the observation that tells of an exception raised inside a tool.

        Most are TOOL_ERROR, and would be raised again. UNAVAILABLE says that nothing was done. Where a
        connection broke, or an answer did not come in time, nobody knows: UNCERTAIN.
        """
        text = f"{call.name} failed with {type(error).__name__}: {_written(error, str)}"
        if isinstance(error, Unavailable):
            return self._failed(Kind.UNAVAILABLE, text, error.retry_after)
        if not isinstance(error, PASSING):
            return self._failed(Kind.TOOL_ERROR, text)
        if isinstance(error, ConnectionRefusedError):
            return self._failed(Kind.UNAVAILABLE, text)
        return self._failed(Kind.UNCERTAIN, f"{text}; whether it took effect is not known")

    def _failed(self, kind: Kind, text: str, retry_after: float | str | None = None) -> Observation:
        return Observation(cut(text, self._max_characters), False, kind, retry_after)

    def _unknown(self, name: object) -> Observation:
        import difflib  # only a wrong name needs it

        near = difflib.get_close_matches(name[:100], self.names) if isinstance(name, str) else []
        right = f"did you mean {' or '.join(near)}?" if near else self._known()
        return self._failed(Kind.UNKNOWN_TOOL, f"there is no tool named {_shown(name)}: {right}")

    def _known(self) -> str:
        return f"the tools are {', '.join(self._tools)}" if self._tools else "there are no tools"


#: What Python raises for faults that may pass; of a tool's, it may have taken effect all the same.
PASSING = (ConnectionError, TimeoutError)

#: A parameter of this name is not the model's to give: it is filled with the call's id, which is the
#: same whenever the call is made again, so that a tool can refuse to act twice.
CALL_ID = "call_id"


class _Parameter(NamedTuple):
    annotation: Any
    exact: tuple[type, ...]  # values of these types fit as they are


class _Tool(NamedTuple):
    """A function, and what was read off it. ``extra`` is its ``**parameter``, if it has one."""

    name: str
    function: Callable[..., Any]
    signature: inspect.Signature
    written: str
    documentation: str
    parameters: dict[str, _Parameter]
    required: tuple[str, ...]
    extra: _Parameter | None
    wants_id: bool

    def check(self, arguments: object) -> tuple[dict[str, Any], list[str]]:
        """Return the arguments as the function wants them, and what is wrong with them."""
        fitted: dict[str, Any] = {}
        problems: list[str] = []
        if not isinstance(arguments, (dict, Mapping)):  # dict first: it is answered much faster
            return fitted, [f"its arguments must be a mapping, not {_shown(arguments)}"]
        for name, value in arguments.items():
            parameter = self.parameters.get(name) or (self.extra if isinstance(name, str) else None)
            if parameter is None:
                problems.append(f"unexpected argument {_shown(name)}")
            elif type(value) in parameter.exact or parameter.annotation is Any:
                fitted[name] = value if type(value) in _UNCHANGING else _copied(value)
            else:
                try:
                    fitted[name] = _fit(value, parameter.annotation, name)
                except _Misfit as misfit:
                    problems.append(str(misfit))
        for name in self.required:
            if name not in arguments:
                problems.append(f"missing argument {name!r}")
        return fitted, problems

    def schema(self) -> dict[str, Any]:
        """Write the tool as function calling wants it."""
        properties = {name: _schema(parameter.annotation) for name, parameter in self.parameters.items()}
        for name, schema in properties.items():
            default = self.signature.parameters[name].default
            if isinstance(default, (str, int)) or (isinstance(default, float) and math.isfinite(default)):
                schema["default"] = default
        parameters = {
            "type": "object",
            "properties": properties,
            "required": list(self.required),
            "additionalProperties": (_schema(self.extra.annotation) or True) if self.extra else False,
        }
        return {"name": self.name, "description": self.documentation, "parameters": parameters}


_NOT_IN_NAMES = tuple(" \t\n()[]{}<>,:;=\"'`（）：，")
_NOT_BY_NAME = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only, but a model names its arguments: drop the '/'",
    inspect.Parameter.VAR_POSITIONAL: "gives a model no names to use: take one list parameter instead",
}


def _read_tool(name: Any, function: Callable[..., Any]) -> _Tool:
    """Read a tool off a function. Raises ``ValueError`` where a model could not call it by names."""
    if not isinstance(name, str) or not name or any(mark in name for mark in _NOT_IN_NAMES):
        raise ValueError(
            f"{function!r} has no name that a model can call it by ({name!r}): "
            "give a mapping from names, without spaces and brackets, to functions"
        )
    try:
        # The annotations are the tool's author's, who wrote the code anyway; never a model's text.
        signature = inspect.signature(function, eval_str=True)
    except Exception as error:  # an annotation can be any expression, and fail in any way
        raise ValueError(f"the signature of tool {name!r} cannot be read: {error}") from error
    wants_id = CALL_ID in signature.parameters
    given = [each for each in signature.parameters.values() if each.name != CALL_ID]
    signature = signature.replace(parameters=given)
    parameters: dict[str, _Parameter] = {}
    extra = None
    for each in signature.parameters.values():
        if each.kind in _NOT_BY_NAME:
            raise ValueError(f"tool {name!r}: parameter {str(each)!r} {_NOT_BY_NAME[each.kind]}")
        annotation = Any if _parts(each.annotation)[0] is Any else each.annotation
        if each.default is None and annotation is not Any:
            annotation = annotation | None  # `unit: str = None` means `unit: str | None = None`
        parameter = _Parameter(annotation, _exact(annotation))
        if each.kind is each.VAR_KEYWORD:
            extra = parameter
        else:
            parameters[each.name] = parameter
    required = tuple(
        key for key in parameters if signature.parameters[key].default is inspect.Parameter.empty
    )
    documentation = inspect.getdoc(function) or ""
    written = f"{name}{signature}"
    return _Tool(name, function, signature, written, documentation, parameters, required, extra, wants_id)


#: What an annotation can say here, and what JSON Schema calls it. Any other accepts anything.
_JSON_TYPES = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
    NoneType: "null",
}
_UNCHANGING = (str, int, float, bool, NoneType)
_UNDERSTOOD = (*_JSON_TYPES, Literal, Union)


def _parts(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """Take an annotation apart: ``list[int]`` is ``(list, (int,))``; ``(Any, ())`` if not understood."""
    origin, inner = get_origin(annotation) or annotation, get_args(annotation)
    if origin is Annotated:
        return _parts(inner[0])
    if origin is UnionType:
        return Union, inner
    if origin is dict and inner and inner[0] is not str:
        return dict, ()  # JSON has no other keys than text, so they are left as they come
    if origin is Literal and not all(type(choice) in _JSON_TYPES for choice in inner):
        return Any, ()
    return (origin, inner) if origin in _UNDERSTOOD else (Any, ())


def _schema(annotation: Any) -> dict[str, Any]:
    """Write an annotation as a JSON schema."""
    origin, inner = _parts(annotation)
    if origin is Any:
        return {}
    if origin is Union:
        return {"anyOf": [_schema(member) for member in inner]}
    if origin is Literal:
        return {"enum": list(inner)}
    if origin is list and inner:
        return {"type": "array", "items": _schema(inner[0])}
    if origin is dict and inner:
        return {"type": "object", "additionalProperties": _schema(inner[1])}
    return {"type": _JSON_TYPES[origin]}


def _exact(annotation: Any) -> tuple[type, ...]:
    """Return the types whose values fit as they are: nearly every argument is settled by this."""
    origin, inner = _parts(annotation)
    if origin is Union:
        return tuple(kind for member in inner for kind in _exact(member))
    return (origin,) if origin in _JSON_TYPES and not inner else ()


def _copied(value: Any) -> Any:
    """A copy for the tool, which may change what it is given: history is not its to change."""
    try:
        return copy.deepcopy(value)
    except Exception:  # whoever put something into a call that cannot be copied shares it knowingly
        return value


class _Misfit(Exception):
    """A value does not fit; the message says where, and what would."""

    def __init__(self, place: str, annotation: Any, value: object) -> None:
        super().__init__(f"{place} must be {inspect.formatannotation(annotation)}, not {_shown(value)}")


def _fit(value: Any, annotation: Any, place: str) -> Any:
    """Return ``value`` as the annotation wants it, converted only where nothing is lost.

    Raises ``_Misfit``. ``place`` is what it calls the value: ``days``, or ``cities[2]`` inside of it.
    """
    origin, inner = _parts(annotation)
    if origin is Any:
        return value
    if origin is Union or origin is Literal:
        candidates = list(_candidates(value, origin, inner))
        if not candidates:
            raise _Misfit(place, annotation, value)
        # What fits as it is stays as it is: for `int | str`, "3" is text; and for `str | float`, 0 is 0.0.
        equal = [each for each in candidates if each == value]
        return next((each for each in equal if type(each) is type(value)), (*equal, *candidates)[0])
    try:
        plain = _convert(value, origin)
    except (KeyError, ValueError, OverflowError):
        raise _Misfit(place, annotation, value) from None
    if origin is list and inner:
        return [_fit(item, inner[0], f"{place}[{index}]") for index, item in enumerate(plain)]
    if origin is dict and inner:
        if not all(isinstance(key, str) for key in plain):
            raise _Misfit(place, annotation, value)
        return {key: _fit(item, inner[1], f"{place}[{_shown(key)}]") for key, item in plain.items()}
    return plain


def _candidates(value: Any, origin: Any, members: tuple[Any, ...]) -> Iterator[Any]:
    """Yield what ``value`` becomes under each member of a union, or as each choice of a Literal."""
    for member in members:
        try:
            fitted = _fit(value, type(member) if origin is Literal else member, "")
        except _Misfit:
            continue
        if origin is Union or fitted == member:
            yield fitted


def _convert(value: Any, wanted: type) -> Any:
    # Python counts True among the ints, but a model that writes true does not mean 1.
    if isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool)):
        return value
    converted = _CONVERSIONS[wanted, type(value)](value)
    if isinstance(value, (int, float)) and type(value)(converted) != value:
        raise ValueError  # 3.5 is no int, and beyond 2**53 not every int is a float
    return converted


def _finite(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError
    return float(text)


#: Every conversion there is, as (wanted, given). A float does not become text, since 1.10 would
#: arrive as "1.1"; text is never decoded into a list or dict; nothing starts from a bool.
_CONVERSIONS: dict[tuple[type, type], Callable[[Any], Any]] = {
    (str, int): str,
    (int, str): int,
    (int, float): int,
    (float, int): float,
    (float, str): _finite,
    (bool, str): {"true": True, "True": True, "false": False, "False": False}.__getitem__,
    (list, tuple): list,
}


_to_json = json.JSONEncoder(ensure_ascii=False).encode


def _text_of(result: object) -> str:
    if isinstance(result, str):
        return str.__str__(result)  # of a class of its own, which no file would bring back
    if result is None:
        return "done (nothing was returned)"
    if type(result) is int:
        return _written(result, str)
    if isinstance(result, (bytes, bytearray)):
        return result.decode("utf-8", errors="replace")
    if isinstance(result, (dict, list, bool, int, float)):
        try:
            return _to_json(result)
        except (TypeError, ValueError, RecursionError):
            pass  # it holds what JSON has no word for, or holds itself
    return _written(result, str)


def _written(value: object, write: Callable[[Any], str]) -> str:
    """Write a value; one that cannot be written (its ``str`` raises, it is too deep) says so instead."""
    try:
        return write(value)
    except Exception as error:
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"


def _shown(value: object) -> str:
    return cut(_written(value, repr), 80)


def cut(text: str, limit: int) -> str:
    """Return ``text``, or its first ``limit`` characters and a note that says so.

    The cut never falls inside what a reader sees as one character (a letter and its accents, an
    emoji and what is joined to it, flags in a row) but before it, so a little less may be shown.
    """
    if len(text) <= limit:
        return text
    end = max(limit, 0)
    while end > 0 and _is_joined(text[end - 1], text[end]):
        end -= 1
    return f"{text[:end]}... [cut: {end} of {len(text)} characters shown]"


def _is_joined(before: str, after: str) -> bool:
    import unicodedata  # only a text that is too long needs it

    return (
        before == "\u200d"  # the zero-width joiner
        or unicodedata.category(after) in ("Mn", "Mc", "Me", "Cf")  # accents, variation selectors, joiners
        or "\U0001f3fb" <= after <= "\U0001f3ff"  # skin tones
        or ("\U0001f1e6" <= before <= "\U0001f1ff" and "\U0001f1e6" <= after <= "\U0001f1ff")  # flags
    )
