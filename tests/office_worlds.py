"""Worlds for teams: workers of every temper, and a model that plans, directs and works by a script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from agentloop import (
    Act,
    AgentLoop,
    CallModel,
    Finish,
    Interrupt,
    Journal,
    Limits,
    Program,
    StopReason,
    Toolbox,
    ToolCall,
    World,
    drive,
)
from fake_llm import FakeClock, FakeModel
from paradigms.orchestrator import DIRECTING, Assignment, Team, Worker
from paradigms.planning import PLANNING
from paradigms.react import react
from tests.plan_worlds import PLANS, THOUGHTS, TOOLS

TASK = "看天气，再选景点，再订票"
QUIET = Limits(rounds=3)

# --- Workers, one of each temper --------------------------------------------------------------


def answers(context: Any) -> Finish:
    return Finish(f"好了：{context.task}")


def has_a_bug(context: Any) -> Finish:
    raise ZeroDivisionError("a bug")


def hangs(context: Any) -> Act:
    return Act((ToolCall("hang", {}),))


def never_stops(context: Any) -> Act:
    return Act((ToolCall("look", {"place": "北京"}),))


def gives_up(context: Any) -> Finish:
    return Finish("FAILED: 没有票")


#: By the name of the worker: its hook, and what its report must say.
TEMPERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "good": (answers, "OK"),
    "buggy": (has_a_bug, "ERROR"),
    "hanging": (hangs, "TIMEOUT"),
    "restless": (never_stops, "ERROR"),
    "honest": (gives_up, "ERROR"),
}


class Crew:
    """A team with a worker of each temper, in an inline world where a hang takes a minute of fake time."""

    def __init__(self, make: Callable[..., Any] = Team) -> None:
        self.clock, self.looked = FakeClock(), 0
        late = Limits(rounds=3, seconds=30, call_seconds=30)
        patient = Limits(rounds=3, seconds=1e6)
        self.team = make(
            {
                name: Worker(AgentLoop(reason, limits=late if name == "hanging" else patient), name)
                for name, (reason, _) in TEMPERS.items()
            }
        )
        self.tools = Toolbox([self.look, self.hang])

    def look(self, place: str) -> str:
        """Look at a place."""
        self.looked += 1
        return place

    def hang(self) -> str:
        """Take a minute."""
        self.clock.advance(60)
        return "late"

    def drive(self, program: Program[Any], journal: Journal | None = None) -> Any:
        world = World(None, self.tools, sleep=self.clock.sleep, clock=self.clock.now, inline=True)
        return drive(program, world, journal)


def assignments(*names: str) -> list[Assignment]:
    """A sub-task for each worker, numbered from 1."""
    return [Assignment(str(number), name, f"任务{number}") for number, name in enumerate(names, 1)]


def statuses(reports: Sequence[Any]) -> list[str]:
    return [report.status.name for report in reports]


# --- A model that plays every part ------------------------------------------------------------


def ledger(worker: str = "Scout", task: str = "看天气", progress: str = "true", id: str = "1") -> str:
    """A progress ledger with one sub-task."""
    item = f'{{"id": "{id}", "worker": "{worker}", "task": "{task}"}}'
    return f'{{"done": false, "progress": {progress}, "next": [{item}]}}'


DONE = '{"done": true, "progress": true, "answer": "好了"}'
DOUBLE = (
    '{"done": false, "progress": true, "next": [{"id": "1", "worker": "Scout", "task": "看天气"}, '
    '{"id": "1", "worker": "Clerk", "task": "订票"}]}'
)
TWO = DOUBLE.replace('"id": "1", "worker": "Clerk"', '"id": "2", "worker": "Clerk"')
#: What cannot be acted on, each for a reason of its own.
UNREADABLE = (
    "I will think about it.",
    "",
    "{",
    "[]",
    "{}",
    '{"done": false}',
    '{"done": "no", "progress": true, "next": []}',
    '{"done": false, "progress": true}',
    '{"done": false, "progress": true, "next": []}',
    '{"done": false, "progress": true, "next": ["Scout"]}',
    '{"done": false, "progress": true, "next": [{"id": "1", "task": "看天气"}]}',
    '{"done": false, "progress": true, "next": [{"id": "1", "worker": "Scout", "task": " "}]}',
    '{"done": false, "progress": true, "next": [{"id": "1", "worker": null, "task": "看天气"}]}',
    '{"done": false, "progress": true, "next_speaker": "Scout"}',
    '{"done": true, "progress": true}',
    '{"next_speaker": "Clerk", ' + ledger()[1:],
    '{"done": true, "progress": true, "answer": 7}',
    ledger("nobody"),
    ledger("orchestrator"),
    DOUBLE,
)
READABLE = (
    DONE,
    ledger(),
    ledger("'clerk '", "订票"),
    ledger(progress="false"),
    f"```json\n{TWO}\n```",
    f"<think>{ledger('nobody')}</think>\n{ledger('Clerk')}",
)


class Script(NamedTuple):
    """What the model says in turn, over and over, for each of the three things that it is asked for."""

    ledgers: tuple[Any, ...] = (ledger(), DONE)
    thoughts: tuple[Any, ...] = THOUGHTS[:1]
    plans: tuple[Any, ...] = PLANS[:1]


def _some(choices: Sequence[Any], most: int) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(st.sampled_from(choices), min_size=1, max_size=most).map(tuple)


scripts = st.builds(
    Script, _some((*READABLE, *UNREADABLE, ConnectionError("503")), 5), _some(THOUGHTS, 6), _some(PLANS, 3)
)


def crew(limits: Limits = QUIET, stops: tuple[Any, ...] = ()) -> Team:
    """Two workers that think with the model."""
    loop = AgentLoop(react(TOOLS), limits=limits, stops=stops)
    return Team({"Scout": Worker(loop, "looks"), "Clerk": Worker(loop, "books")})


def part_of(request: CallModel) -> str:
    """Which part the model is asked to play: plan, direct or work."""
    system = request.messages[0].content
    parts = {PLANNING[:15]: "plan", DIRECTING[:15]: "direct"}
    return parts.get(system[:15], "work")


class Played(NamedTuple):
    """What came of a program, what the model was asked, and what was done in order."""

    value: Any
    requests: list[CallModel]
    journal: Journal

    def asked(self, part: str) -> list[CallModel]:
        return [request for request in self.requests if part_of(request) == part]


def play(
    program: Program[Any],
    script: Script,
    journal: Journal | None = None,
    interrupt: Interrupt | None = None,
) -> Played:
    """Run a program to its end in the world of that script."""
    said = {"plan": 0, "direct": 0, "work": 0}
    lines = {"plan": script.plans, "direct": script.ledgers, "work": script.thoughts}

    def respond(request: CallModel) -> Any:
        part = part_of(request)
        said[part] += 1
        return lines[part][(said[part] - 1) % len(lines[part])]

    model, journal, clock = FakeModel(respond), journal or Journal(), FakeClock()
    world = World(model, TOOLS, clock=clock.now, sleep=clock.sleep, inline=True)
    return Played(drive(program, world, journal, interrupt), model.requests, journal)


def a_person_stops(control: Any, context: Any) -> StopReason:
    """A stop rule that says HUMAN."""
    return StopReason.HUMAN
