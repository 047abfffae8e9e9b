"""The orchestrator: one loop keeps the ledgers, and hands out work to others (主从协调, article A).

The form is that of Magentic-One (Fourney et al., 2024) and of CrewAI's manager. The task ledger is the plan
and what workers reported; the progress ledger is a judgement, which a model writes each round: is it done, is
there progress, who does what next? Nothing in it is taken on trust (``read_ledger``), and whatever becomes of
a sub-task, there is one report for it (``handed_out``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from agentloop import (
    RESEARCH,
    AgentLoop,
    Kind,
    LimitReached,
    Limits,
    LoopError,
    Message,
    Program,
    Result,
    StopReason,
    Together,
    bounded,
    cut,
    on_one_line,
)
from paradigms.arguments import require
from paradigms.literals import Unreadable, read_object
from paradigms.plan import Plan, UnreadablePlan, spoken
from paradigms.planning import CHARACTERS, GaveUp, Planner, asked_until, attempt, deviation, made

# --- The team ---------------------------------------------------------------------------------

ORCHESTRATOR = "orchestrator"


class UnreadableLedger(ValueError):
    """What a model wrote cannot be acted on; the message says why, and what would be right."""


class Worker(NamedTuple):
    """A loop that takes sub-tasks, with limits of its own, and what it is for, in words for a prompt."""

    loop: AgentLoop
    duty: str


class Team:
    """The workers by name. Raises ``ValueError`` for none, and for names that are too much alike."""

    def __init__(self, workers: Mapping[str, Worker]) -> None:
        self._workers = dict(workers)
        self._names = {_plain(name): name for name in workers}
        if not workers or len(self._names) < len(workers) or {"", ORCHESTRATOR} & set(self._names):
            raise ValueError(
                "a team has workers whose names differ in more than case and signs, and "
                f"none of them is the {ORCHESTRATOR}, not {list(workers)}"
            )

    def find(self, wanted: Any) -> str:
        """The name that is meant, whatever its case, quotes and brackets. Raises ``UnreadableLedger``."""
        name = self._names.get(_plain(wanted))
        if name is None:
            known = ", ".join(map(repr, self._workers))
            raise UnreadableLedger(f"There is no worker {cut(str(wanted), 60)!r}: the workers are {known}.")
        return name

    def loop(self, name: str) -> AgentLoop:
        """The loop of a worker. Raises ``UnreadableLedger`` for a name that nobody has."""
        return self._workers[self.find(name)].loop

    def describe(self) -> str:
        """Each worker and its duty, as a prompt shows them."""
        return "\n".join(f"- {name}: {worker.duty}" for name, worker in self._workers.items())


def _plain(name: Any) -> str:
    return " ".join(re.findall(r"[^\W_]+", str(name).casefold()))


# --- Handing out ------------------------------------------------------------------------------


class Assignment(NamedTuple):
    """A sub-task for a worker, under an id that no other of its round has."""

    id: str
    worker: str
    task: str


class Status(Enum):
    """What became of a sub-task."""

    OK = "the worker answered"
    ERROR = "the worker ended without an answer that counts, or broke down"
    TIMEOUT = "the worker's time was up"
    STOPPED = "the whole run ended while it worked"


class Report(NamedTuple):
    """What became of one sub-task: ``text`` is the answer, or why there is none."""

    assignment: Assignment
    status: Status
    text: str
    result: Result | None = None


def handed_out(
    assignments: Sequence[Assignment], team: Team, known: Mapping[str, str]
) -> Program[list[Report]]:
    """Let workers do sub-tasks side by side: one report for each, in this order, whatever becomes of them.

    ``known`` stands in every worker's working memory. Raises ``UnreadableLedger``, before any work starts,
    where two have the same id or a worker is not in the team.
    """
    _must_differ(assignments)
    programs = tuple(_worked(team.loop(each.worker), each, known) for each in assignments)
    came_to = (yield Together(programs)).value
    return [_report(each, value) for each, value in zip(assignments, came_to, strict=True)]


def _must_differ(assignments: Sequence[Assignment]) -> None:
    ids = [each.id for each in assignments]
    doubles = sorted({each for each in ids if ids.count(each) > 1})
    if doubles:
        raise UnreadableLedger(f"Several sub-tasks have the id {doubles[0]!r}: give each an id of its own.")


def _worked(loop: AgentLoop, assignment: Assignment, known: Mapping[str, str]) -> Program[Report]:
    result = None
    try:
        result = yield from attempt(loop, assignment.task, known)
        problem = yield from deviation(assignment.task, result, None, 1.0)
    except LimitReached as ended:
        return Report(assignment, Status.STOPPED, ended.reason.value, result)
    if not problem:
        return Report(assignment, Status.OK, cut(str(result.answer), CHARACTERS), result)
    return Report(assignment, Status.TIMEOUT if _ran_late(result) else Status.ERROR, problem, result)


def _ran_late(result: Result) -> bool:
    """Whether it was time that ended a run without an answer: its own, or that of its last call."""
    last = [observation.kind for turn in result.turns[-1:] for observation in turn.observations]
    return result.answer is None and (result.stop is StopReason.WALL_CLOCK or Kind.TIMEOUT in last)


def _report(assignment: Assignment, value: Any) -> Report:
    """The report of a worker; where it broke down, ``Together`` has handed over its exception as a value."""
    if isinstance(value, Report):
        return value
    result = value.result if isinstance(value, LoopError) else None
    return Report(assignment, Status.ERROR, cut(f"{type(value).__name__}: {value}", CHARACTERS), result)


# --- The progress ledger ----------------------------------------------------------------------

DIRECTING = """\
You direct a team and do none of the work yourself. Your team:

{team}

Each round you are shown the plan and what was reported. Judge it, and answer with one JSON object:

{{"done": false, "progress": true, "next": [{{"id": "1", "worker": "a name", "task": "what to do"}}]}}

done: whether the task is fulfilled. progress: whether the last round brought it nearer. next: the sub-tasks
to hand out now; they are done side by side, so none may need another's result, and each must say all that
its worker has to know. When done is true, write the answer to the task instead of next: "answer": "..."."""
AGAIN = "This ledger cannot be used. {problem} Write all of it again."

FIELDS = ("done", "progress", "next", "answer")


class Ledger(NamedTuple):
    """The progress ledger of one round, as it was read: an ``answer`` where it is done, else ``next``."""

    done: bool
    progress: bool
    next: tuple[Assignment, ...] = ()
    answer: str = ""


def read_ledger(text: str, team: Team) -> Ledger:
    """Read a progress ledger, fenced or not. Raises ``UnreadableLedger`` for anything it cannot act on."""
    written = object_in(text)
    unknown = [name for name in written if name not in FIELDS]
    if unknown:
        raise UnreadableLedger(f"It has a field {unknown[0]!r}; its fields are {', '.join(FIELDS)}.")
    done, progress = _field(written, "done", bool), _field(written, "progress", bool)
    if done:
        return Ledger(done, progress, answer=_field(written, "answer", str))
    assignments = tuple(_assignment(item, team) for item in _field(written, "next", list))
    _must_differ(assignments)
    return Ledger(done, progress, assignments)


def object_in(text: str) -> dict[str, Any]:
    """The first JSON object that a model said, fenced or not. Raises ``UnreadableLedger`` for none."""
    said = spoken(text)
    start = said.find("{")
    try:
        written = read_object(said, start)[0] if start >= 0 else None
    except Unreadable as problem:
        raise UnreadableLedger(str(problem)) from None
    if not isinstance(written, dict):
        raise UnreadableLedger("There is no JSON object in it.")
    return written


_WANTED = {bool: "true or false", list: "a list with something in it", str: "a text that says something"}


def _field(written: Mapping[str, Any], name: str, kind: type) -> Any:
    value = written.get(name)
    empty = not value.strip() if isinstance(value, str) else value == []
    if type(value) is not kind or empty:
        found = cut(repr(value), 60) if name in written else "missing"
        raise UnreadableLedger(f"The field {name!r} must be {_WANTED[kind]}, and it is {found}.")
    return value


def _assignment(item: Any, team: Team) -> Assignment:
    if not isinstance(item, dict):
        raise UnreadableLedger(f"'next' holds objects with id, worker and task, not {cut(repr(item), 60)}.")
    if "worker" not in item:
        raise UnreadableLedger(f"A sub-task names no worker: {cut(repr(item), 60)}.")
    return Assignment(str(item.get("id", "")), team.find(item["worker"]), _field(item, "task", str))


# --- The orchestrator -------------------------------------------------------------------------


class Unfinished(Enum):
    """Why the work was given up, where no limit ended it."""

    NO_PLAN = GaveUp.NO_PLAN.value
    STALLED = "round after round brought no progress, and no replan is left"


class Round(NamedTuple):
    """One round: the number of the plan it belongs to (1, 2, ...), what was judged, what was reported."""

    plan: int
    ledger: Ledger
    reports: tuple[Report, ...]


class Teamwork(NamedTuple):
    """How it ended: every plan and every round in which work was handed out.

    ``answer`` is not ``None`` exactly when ``stop`` is FINAL_ANSWER. Otherwise ``stop`` is the reason of
    the account that ended, or ``Unfinished``, and ``problem`` says more.
    """

    answer: Any
    stop: StopReason | Unfinished
    problem: str
    plans: tuple[Plan, ...] = ()
    rounds: tuple[Round, ...] = ()


@dataclass
class _State:
    """The task ledger, while it is kept: the plan, and what is known."""

    task: str
    plans: list[Plan] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)

    def facts(self) -> str:
        """Every report so far, a line each: ``2.1`` is sub-task 1 of round 2."""
        lines = [
            f"{number}.{at.id} {at.worker}, {at.task} [{status.name.lower()}] {on_one_line(text, CHARACTERS)}"
            for number, each in enumerate(self.rounds, 1)
            for at, status, text, _ in each.reports
        ]
        return "\n".join(lines) or "nothing yet"

    def has_something(self) -> bool:
        return any(report.status is Status.OK for each in self.rounds for report in each.reports)

    def has_moved(self, ledger: Ledger) -> bool:
        """Whether the last round was no stall: by the model's word, and not against the reports."""
        if not self.rounds or self.rounds[-1].plan < len(self.plans):
            return True  # of this plan nothing was handed out yet
        *before, last = [{_brought(report) for report in each.reports} for each in self.rounds]
        return ledger.progress and not last <= set().union(*before)

    def ended(self, answer: Any, stop: StopReason | Unfinished, problem: str = "") -> Teamwork:
        return Teamwork(answer, stop, problem, tuple(self.plans), tuple(self.rounds))


def _brought(report: Report) -> tuple[str, str, str]:
    return report.assignment.worker, report.assignment.task, report.text


@dataclass(frozen=True)
class Orchestrator:
    """A main loop that hands out work to a team (主从协调). Frozen configuration.

    ``max_stalls`` is how many rounds in a row may bring no progress before a new plan is made,
    ``max_replans`` how many plans may be made after the first, ``asks`` how often one ledger is asked
    for. ``limits`` hold all of it to one account. Raises ``ValueError`` for numbers that make no sense.
    """

    team: Team
    planner: Planner
    limits: Limits = RESEARCH
    max_stalls: int = 2
    max_replans: int = 2
    asks: int = 3

    def __post_init__(self) -> None:
        require("max_stalls", self.max_stalls, 1)
        require("max_replans", self.max_replans, 0)
        require("asks", self.asks, 1)

    def run(self, task: Any) -> Program[Teamwork]:
        """The program of one run. Every ending is told by the ``Teamwork``."""
        if not isinstance(task, str) or not task.strip():
            return Teamwork(None, StopReason.INVALID_TASK, "a task is a text that says something")
        state = _State(task)  # outside of the account, so that nothing is lost when it ends
        try:
            return (yield from bounded(self._directed(state), self.limits, task))
        except LimitReached as ended:
            return state.ended(None, ended.reason, ended.reason.value)

    def _directed(self, state: _State) -> Program[Teamwork]:
        """Plan, and let the team work on the plan until it is done or stalls; then plan anew."""
        trouble = ""
        for _ in range(1 + self.max_replans):
            told = {"team": self.team.describe(), "facts": state.facts()}
            told |= {"why a new plan is needed": trouble} if trouble else {}
            try:
                plan = yield from made(self.planner, state.task, told)
            except UnreadablePlan as unreadable:
                return state.ended(None, Unfinished.NO_PLAN, str(unreadable))
            state.plans.append(plan)
            answer, trouble = yield from self._worked_off(state)
            if answer:
                return state.ended(answer, StopReason.FINAL_ANSWER)
        return state.ended(None, Unfinished.STALLED, trouble)

    def _worked_off(self, state: _State) -> Program[tuple[str, str]]:
        """Round after round on one plan: the answer, or else why there is none."""
        stalls, trouble = 0, ""
        while stalls < self.max_stalls:
            try:
                ledger = yield from self._judged(state)
            except UnreadableLedger as unreadable:
                stalls, trouble = stalls + 1, f"no ledger could be read: {unreadable}"
                continue
            if ledger.done:
                return ledger.answer, ""
            moved = state.has_moved(ledger)
            stalls, trouble = (0, "") if moved else (stalls + 1, f"no progress in round {len(state.rounds)}")
            if stalls < self.max_stalls:
                yield from self._handed_out(state, ledger)
        return "", trouble

    def _handed_out(self, state: _State, ledger: Ledger) -> Program[None]:
        reports = yield from handed_out(ledger.next, self.team, {"the whole task": state.task})
        state.rounds.append(Round(len(state.plans), ledger, tuple(reports)))
        for report in reports:
            if report.result is not None and report.result.stop is StopReason.HUMAN:
                raise LimitReached(report.result.control)  # a person who stops one has stopped the work

    def _judged(self, state: _State) -> Program[Ledger]:
        """Ask for the progress ledger until it can be read. Raises ``UnreadableLedger`` at last."""
        plan = "\n".join(f"{step.number}. {step.goal}" for step in state.plans[-1])
        shown = f"Task: {state.task}\n\nPlan:\n{plan}\n\nReported so far:\n{state.facts()}"
        system = DIRECTING.format(team=self.team.describe())
        opening = (Message("system", system), Message("user", shown))

        def read(text: str) -> Ledger:
            ledger = read_ledger(text, self.team)
            if ledger.done and not state.has_something():
                raise UnreadableLedger("'done' is true, and no worker has brought anything yet.")
            return ledger

        return (yield from asked_until(read, UnreadableLedger, opening, self.asks, AGAIN))
