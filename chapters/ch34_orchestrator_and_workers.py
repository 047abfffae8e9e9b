"""One loop keeps the ledgers and hands out the work; no worker's failure is more than a line in them.

Article A, 多Agent场景下的Loop同步, 主从协调. Covers A-135.

In chapters 32 and 33 loops were equals, and nobody was in charge of the whole. Here one is: the orchestrator
(``paradigms/orchestrator.py``) keeps the main loop, splits the task, hands out sub-tasks, and takes what is
reported into its own state. The workers are plain ``AgentLoop``s that know nothing of each other. The form is
that of Magentic-One (Fourney et al., 2024), whose orchestrator keeps two ledgers, and of CrewAI's manager:

- the task ledger: what is known (only what workers reported) and the plan. It is made at the start, and anew
  when the work has stalled
- the progress ledger, each round: is it done, is there progress, who does what next? The model writes it as
  JSON, and ``read_ledger`` takes nothing in it on trust
- ``handed_out``: the sub-tasks of a round, side by side (``Together``), each worker within limits of its own.
  Whatever becomes of them there is one report for each, in the order in which they were handed out

Without the reports, one worker that breaks down takes with it what all others have brought (M04). Without
the reading, a fence, a missing field or a name in other quotes ends the run with a ``KeyError`` (M03, M06).
Without the count of stalls, a team that gets nowhere goes on until the money is gone.

Which judgements belong to whom: the model says whether there is progress, but a round that brought the same
reports as rounds before it is a stall, whatever the model says. And no answer is taken before any worker
has brought anything.

Departures: the article prints no code. In Magentic-One the model writes the facts too, with guesses among
them, and names one speaker a round; here facts are reports and nothing else, and a round may hand out several
sub-tasks. A ledger that cannot be read even when asked again is a stall. Planning, ledgers and workers draw
on one account; a person who stops one worker has stopped the work.

Exercises
---------
1. ``one_after_another`` below hands out work as a first attempt does. Which promises does it break?
   ``python -m pytest --impl handed_out=chapters/ch34_orchestrator_and_workers.py:one_after_another``
2. In Magentic-One progress takes one stall off the count, and does not clear it. Which teams does that end
   earlier? ``python -m pytest --impl orchestrator=my_orchestrator.py:Orchestrator``
3. Let ``find`` forgive a spelling mistake (``difflib``). When would the wrong worker get the work?
   ``python -m pytest --impl team=my_team.py:Team``
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentloop import (
    AgentLoop,
    CallModel,
    Limits,
    LoopContext,
    LoopError,
    Program,
    Toolbox,
    World,
    drive,
    on_one_line,
)
from chapters.telling import GREEN, RED, Telling
from fake_llm import FakeClock, FakeModel, get_attraction, get_weather, readable
from paradigms.orchestrator import (
    DIRECTING,
    Assignment,
    Orchestrator,
    Report,
    Status,
    Team,
    Worker,
    handed_out,
)
from paradigms.planning import PLANNING, model_planner
from paradigms.react import react

# --- A first attempt --------------------------------------------------------------------------


def one_after_another(
    assignments: Sequence[Assignment], team: Team, known: Mapping[str, str]
) -> Program[list[Report]]:
    """Hand out work as a first attempt does: whoever breaks down takes along what all have brought."""
    reports = []
    for each in assignments:
        result = yield from team.loop(each.worker).run(each.task)
        reports.append(Report(each, Status.OK, str(result.answer), result))
    return reports


# --- The world: a desk, a guide, an archive with a bug, and a station that does not answer ------------

TASK = "北京、上海、广州，今天哪个城市最暖和？给那里推荐一个景点。"
PLAN = "1. 查三地的气温 (needs nothing)\n2. 给最暖和的城市推荐一个景点"
CITIES = ("北京", "上海", "广州", "西安")
HANGS = 60.0  # seconds
PATIENCE = Limits(seconds=20, call_seconds=20)


def field_worker(request: CallModel) -> str:
    """What the model says to a worker: one call, and what came of it."""
    goal, latest = request.messages[1].content, request.messages[-1].content
    if latest.startswith("Observation"):
        return f"Thought: 可以汇报了。\nAction: Finish[{latest.removeprefix('Observation: ')}]"
    city = next(city for city in CITIES if city in goal)
    if "景点" in goal:
        return f'Thought: 找景点。\nAction: get_attraction(city="{city}", weather="Rainy")'
    tool = "ask_station" if city == "西安" else "get_weather"
    return f'Thought: 查{city}。\nAction: {tool}(city="{city}")'


def closed(city: str, weather: str) -> str:
    """Recommend a sight; today the office is closed."""
    raise LookupError("the office is closed")


class Office:
    """A team, the tools of all of it, and one model that plays every part; the ledgers come from a script."""

    def __init__(
        self,
        ledgers: Callable[[int], str],
        attractions: Callable[..., str] = get_attraction,
    ) -> None:
        self.clock, self.model = FakeClock(), FakeModel(self._respond)
        self._ledgers, self._asked = ledgers, 0
        self.tools = Toolbox(
            {"get_weather": get_weather, "get_attraction": attractions, "ask_station": self._ask_station}
        )
        loop = AgentLoop(react(self.tools), limits=Limits(failures=2))
        self.team = Team(
            {
                "Weather Desk": Worker(loop, "knows the weather of 北京, 上海, 广州"),
                "Travel Guide": Worker(loop, "recommends a sight for a city and its weather"),
                "Archive": Worker(AgentLoop(_buggy), "knows the weather of other years"),
                "Old Station": Worker(AgentLoop(react(self.tools), limits=PATIENCE), "knows 西安"),
            }
        )

    def _ask_station(self, city: str) -> str:
        """Ask a station that takes its time."""
        self.clock.advance(HANGS)
        return get_weather(city)

    def _respond(self, request: CallModel) -> str:
        system = request.messages[0].content
        if system.startswith(PLANNING[:15]):
            return PLAN
        if not system.startswith(DIRECTING[:15]):
            return field_worker(request)
        self._asked += 1
        return self._ledgers(self._asked - 1)

    def drive(self, program: Program[Any]) -> Any:
        return drive(program, World(self.model, self.tools, clock=self.clock.now, inline=True))

    @property
    def tokens(self) -> int:
        """What was sent to the model."""
        return sum(request.tokens for request in self.model.requests)

    def directed(self) -> list[CallModel]:
        """The requests for a progress ledger."""
        return [each for each in self.model.requests if each.messages[0].content.startswith(DIRECTING[:15])]


def _buggy(context: LoopContext) -> Any:
    return context.working_memory["years"]


# --- The story ----------------------------------------------------------------------------------

FIVE = (
    Assignment("1", "Weather Desk", "查北京今天的天气"),
    Assignment("2", "Archive", "查北京去年今天的天气"),
    Assignment("3", "Weather Desk", "查上海今天的天气"),
    Assignment("4", "Old Station", "查西安今天的天气"),
    Assignment("5", "Weather Desk", "查广州今天的天气"),
)

LEDGERS = (
    """\
```json
{"done": false, "progress": true, "next": [
  {"id": "1", "worker": "'weather desk '", "task": "查北京今天的天气"},
  {"id": "2", "worker": "['Weather Desk']", "task": "查上海今天的天气"},
  {"id": "3", "worker": "Weather Desk", "task": "查广州今天的天气"}]}
```""",
    '{"done": false, "progress": true}',
    '{"done": false, "progress": true, "next": [{"id": "1", "worker": "Wizard", "task": "推荐一个景点"}]}',
    """\
{"done": false, "progress": true, "next": [
  {"id": "1", "worker": "travel guide", "task": "广州最暖和，今天下雨：推荐一个景点"}]}""",
    '{"done": true, "progress": true, "answer": "广州最暖和（30 摄氏度），推荐陈家祠。"}',
)

HOPEFUL = """\
{"done": false, "progress": true, "next": [
  {"id": "1", "worker": "Travel Guide", "task": "广州今天下雨：推荐一个景点"}]}"""


def rows(reports: Sequence[Report], number: str = "") -> list[tuple[str, ...]]:
    """Each report in a line."""
    return [
        (f"{number}{assignment.id}", assignment.worker, status.name, on_one_line(text, 70))
        for assignment, status, text, _ in reports
    ]


def demo(tell: Telling) -> None:
    """Five sub-tasks, two of which go wrong; a whole task; and a team that gets nowhere."""
    tell(f"task: {TASK}")

    tell.heading("One after another: five sub-tasks, and the second worker has a bug")
    office = Office(LEDGERS.__getitem__)
    try:
        office.drive(one_after_another(FIVE, office.team, {}))
    except LoopError as error:
        tell(f"LoopError: {error}", RED)
    tell(f"reports: none, model calls: {len(office.model.requests)}, tokens: {office.tokens}", RED)

    tell.heading("Handed out: the same five, the same world; the fourth hangs and is left behind")
    office = Office(LEDGERS.__getitem__)
    reports = office.drive(handed_out(FIVE, office.team, {}))
    tell.table(rows(reports))
    tell(f"4 hung for {HANGS:g} s and had {PATIENCE.seconds:g}. This demo's driver looks at the clock when a")
    tell("call is over; the drivers of chapter 07 would have cut it off in time.")
    brought = sum(each.status is Status.OK for each in reports)
    tell(f"reports: {len(reports)}, of which {brought} hold an answer", GREEN)

    tell.heading("The whole task: ledgers with a fence, odd quotes, a field that is missing, and a wizard")
    office = Office(LEDGERS.__getitem__)
    team = Orchestrator(office.team, model_planner(office.tools))
    work = office.drive(team.run(TASK))
    for request, ledger in zip(office.directed(), LEDGERS, strict=True):
        if len(request.messages) > 2:
            tell(f"told    {request.messages[-1].content}", RED)
        tell("ledger  " + ledger.replace("\n", "\n" + " " * 8))
    tell()
    for number, each in enumerate(work.rounds, 1):
        tell.table(rows(each.reports, f"{number}."))
    tell(f"answer: {work.answer}", GREEN)
    tell("\nWhat the last ledger was made from:")
    tell(readable(office.directed()[-1].messages[1:2]))

    tell.heading("The guide's office is closed, and the model sees progress in every round")
    found = [("stalls counted", "ended", "plans", "rounds", "model calls", "tokens")]
    for name, stalls in (("no", 10**6), ("2 in a row", 2)):
        office = Office(lambda asked: HOPEFUL, attractions=closed)
        team = Orchestrator(office.team, model_planner(office.tools), max_stalls=stalls)
        work = office.drive(team.run(TASK))
        spent = (len(work.plans), len(work.rounds), len(office.model.requests), office.tokens)
        found.append((name, work.stop.name, *map(str, spent)))
    tell.table(found)
    tell(f"{work.stop.name}: {work.problem}", GREEN)
