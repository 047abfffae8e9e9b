"""A loop does what it is asked; the loop around it keeps asking whether the goal was reached.

Article A, 三、Perception-Action循环的两种范式, 外循环 and 双循环的协同机制. Covers A-57, A-63..A-69.

The article nests two loops, as control theory nests controllers (级联控制, A-57): a fast inner one that
thinks, and a slow outer one that meets the world and keeps the goal. Chapters 08 and 09 were the inner
one. The round of the outer one, think, act, observe (A-63), is a round of ``AgentLoop``; what the article
asks of it besides is ``paradigms/outer_loop.py``, around whole loops, with one duty in each part:

=================  ================================================================================
目标追踪 (A-64)     a stack of goals; whether the topmost was reached is asked of the world
计划修正 (A-65)     what came out otherwise gets sub-goals, and is tried again when they are done
记忆更新 (A-66)     what an attempt taught is kept at once, and recalled when the next run begins
上下文压缩 (A-67)   when the history outgrows the window, one line stands for each older turn
=================  ================================================================================

They exchange what they know by working memory (工作记忆, A-68): the outer loop puts the goals and what was
found into it, every thought of the inner one is shown it, and the answer comes back. So each can be
improved without the other (关注点分离, A-69): the inner loop below is the plain ReAct loop, in all parts.

Unlike chapter 09, which searched in its head for the best thought, this chapter assumes that the thought
was wrong. Without the outer loop, a loop that missed its goal and says otherwise has ended well; it makes
the same mistake next Monday; and a long run drowns in its own history.

Departures: what is remembered reaches the prompt, long-term memory outlives the run, and it is written to
after each attempt (EA16). One step of the goal stack is a whole loop of rounds, not one round: only an
answer can be held against a goal. An outer loop is judged by what it did: failed calls alone carry no
answer, and a judge that says nothing clear has not said yes.

Exercises
---------
1. ``compressed`` forgets what does not fit. Write a view that keeps the first turn whole as well, and put it
   under the promises of all views: ``python -m pytest --impl view=my_view.py:first_and_compressed``
2. Take ``_remembered`` out of the loop's round, write all lessons when the run ends, and ask what that loses:
   ``python -m pytest --impl outer_loop=my_outer_loop.py:OuterLoop``
3. Replace the look into the ticket office by ``judged_by_model()`` (paradigms/evaluators.py), and let the
   traveller judge itself. What does it say of its first attempt?
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from agentloop import (
    AgentLoop,
    CallModel,
    Do,
    Limits,
    Program,
    Result,
    Step,
    Toolbox,
    World,
    drive,
    on_one_line,
)
from chapters.telling import GREEN, RED, Telling
from fake_llm import FakeModel, readable
from paradigms.evaluators import Judgement
from paradigms.outer_loop import LongTermMemory, OuterLoop, Pursuit, compressed
from paradigms.planning import PLANNING, model_planner
from paradigms.prompt import whole_history
from paradigms.react import react

TASK = "今天（星期一）在北京玩一天：订好一张景点门票"

# --- The world: a ticket office, where one thing is not as expected ---------------------------------

GUIDE = {
    "故宫博物院": "明清两代的皇宫，七十多座宫殿，九千多间房屋。",
    "颐和园": "清代的皇家园林，昆明湖占了四分之三的面积。",
    "长城": "八达岭一段，登上北八楼可以看得很远。",
    "国家博物馆": "一百四十多万件藏品，一天看不完。",
}


class TicketOffice:
    """Sells tickets on a Monday, when 故宫博物院 is closed. ``tickets`` are those sold."""

    def __init__(self) -> None:
        self.tickets: list[str] = []

    def book_ticket(self, attraction: str) -> str:
        """Book a ticket for today."""
        if attraction == "故宫博物院":
            return "没有出票：故宫博物院星期一闭馆"
        self.tickets.append(attraction)
        return f"已出票：{attraction}"

    def list_open(self) -> str:
        """List the attractions that are open today."""
        return "今天开放：颐和园、长城"

    def read_guide(self, attraction: str) -> str:
        """Read what the guidebook says, at length."""
        return f"{attraction}：" + GUIDE[attraction] * 8

    def judge(self, goal: str, result: Result) -> Program[Judgement]:
        """An evaluator that does not ask the loop: a ticket was sold, or it was not."""
        look = Do("look into the ticket office", lambda: list(self.tickets), repeatable=True)
        tickets = (yield look).value
        if "门票" not in goal or tickets:
            return Judgement(1.0)
        seen = [observation.text for turn in result.turns for observation in turn.observations]
        return Judgement(0.0, seen[-1] if seen else "没有出票")


# --- The model: it goes for the best known sight, and calls the day arranged whatever happens -------


def traveller(request: CallModel) -> str:
    """Act on what the prompt shows, and on nothing else."""
    shown, latest = readable(request.messages), request.messages[-1].content
    if PLANNING[:15] in shown:
        return "1. 查今天开放的景点\n2. 在开放的景点里选一个，订好门票"
    if latest.startswith("Observation: "):
        return _answer(latest.removeprefix("Observation: "))
    if "reached (已达成)" in shown and (booked := re.search("已订好(.+)的门票", shown)):
        return f"Thought: 门票有了。\nAction: Finish[今天去{booked[1]}，门票已订好。]"
    if "查今天开放" in request.messages[1].content:
        return "Thought: 先看哪些开放。\nAction: list_open()"
    choice = re.search("今天开放：(.+?)、", shown) or re.search("达成：已订好(.+)的门票", shown)
    attraction = choice[1] if choice else "故宫博物院"
    return f'Thought: 去{attraction}。\nAction: book_ticket(attraction="{attraction}")'


def _answer(observation: str) -> str:
    kind, _, what = observation.partition("：")
    answers = {"没有出票": "今天去故宫博物院，都安排好了。", "已出票": f"已订好{what}的门票。"}
    return f"Thought: 可以作答。\nAction: Finish[{answers.get(kind, observation)}]"


WINDOW = 900  # tokens, of the reader's context window


def reader(request: CallModel) -> str | Exception:
    """Read up on one sight after another; a request that is larger than the window fails."""
    if request.tokens > WINDOW:
        return ValueError(f"{request.tokens} tokens are more than the context window of {WINDOW}")
    unread = [name for name in GUIDE if f"read_guide(attraction='{name}')" not in _history(request)]
    if not unread:
        return f"Thought: 都看过了。\nAction: Finish[看了{len(GUIDE)}个景点的介绍。]"
    return f'Thought: 再看一个。\nAction: read_guide(attraction="{unread[0]}")'


def _history(request: CallModel) -> str:
    return readable(request.messages[2:]).replace('"', "'")


# --- The story ----------------------------------------------------------------------------------


NAME = 16  # characters, of a goal where it names a run
#: Makes a watcher of the name that it is to show.
Watch = Callable[[str], Callable[[Step], object]]


@dataclass(frozen=True)
class NamedByGoal(AgentLoop):
    """A loop in all parts, but for the name under which each of its runs is watched: the goal of that run."""

    watch_as: Watch | None = None

    def run(self, task: Any) -> Program[Result]:
        watch = self.watch_as(on_one_line(str(task), NAME)) if self.watch_as else None
        return AgentLoop.run(replace(self, watch=watch), task)


class Monday:
    """One Monday: an office that has sold nothing, the same model, and the inner loop."""

    def __init__(self, watch: Watch | None = None) -> None:
        self.office, self.model = TicketOffice(), FakeModel(traveller)
        self.tools = Toolbox([self.office.book_ticket, self.office.list_open])
        self.inner = NamedByGoal(react(self.tools), watch_as=watch)
        self.world = World(self.model, self.tools, inline=True)

    def pursue(self, memory: LongTermMemory | None) -> Pursuit:
        """Run the outer loop around the inner one; ``memory`` comes from outside and outlives the day."""
        outer = OuterLoop(self.inner, model_planner(self.tools), self.office.judge, memory)
        return drive(outer.run(TASK), self.world)


def rows(pursuit: Pursuit) -> list[tuple[str, ...]]:
    """Each attempt, indented by the depth of its goal."""
    return [
        (f"{'  ' * (goal.depth - 1)}{goal.text}", f"偏离：{missed}" if missed else f"达成：{result.answer}")
        for goal, result, missed in pursuit.attempts
    ]


def ending(pursuit: Pursuit) -> str:
    """How many attempts there were, and what was called."""
    turns = [turn for attempt in pursuit.attempts for turn in attempt.result.turns]
    calls = [call.name for turn in turns for call in turn.calls]
    return f"attempts: {len(pursuit.attempts)}, calls: {', '.join(calls)}"


def sold(office: TicketOffice) -> tuple[str, str]:
    """What the office says at the end of the day, and the colour to say it in."""
    return f"tickets sold: {'、'.join(office.tickets) or 'none'}", GREEN if office.tickets else RED


def demo(tell: Telling) -> None:
    """A loop that believes itself; the loop around it; what it knows next Monday; and a small window."""
    tell(f"task: {TASK}")

    tell.heading("The inner loop alone: it says that the goal is reached")
    day = Monday(tell.watch)
    tell.result(drive(day.inner.run(TASK), day.world))
    tell(*sold(day.office))

    tell.heading("The outer loop around it: the goal stack (目标栈), and what the world says")
    day, memory = Monday(tell.watch), LongTermMemory()
    pursuit = day.pursue(memory)
    tell("")
    tell.table(rows(pursuit))
    tell(*sold(day.office))
    third = pursuit.attempts[2].goal.text
    tell(f"\nWhat the attempt at {third} was shown:")
    tell(next(each.messages[2].content for each in day.model.requests if each.messages[1].content == third))

    tell.heading("Next Monday (记忆更新)")
    for name, remembered in (("with what was learned", memory), ("without", None)):
        day = Monday()
        pursuit = day.pursue(remembered)
        tell(f"{name}: {ending(pursuit)}", GREEN if remembered else RED)
        for recalled in pursuit.recalled:
            tell(f"    remembers  {recalled}")

    tell.heading(f"A model whose window holds {WINDOW} tokens (上下文压缩)")
    guide = Toolbox([TicketOffice().read_guide])
    for name, view in (("whole history", whole_history), ("compressed", compressed(700))):
        model = FakeModel(reader)
        loop = AgentLoop(react(guide, view), limits=Limits(failures=1))
        result = drive(loop.run("读完四个景点的介绍"), World(model, guide, inline=True))
        tell(f"{name}: requests of {', '.join(str(request.tokens) for request in model.requests)} tokens")
        failed = [observation.text for turn in result.turns for observation in turn.observations]
        tell(f"    {result.answer or failed[-1]}", GREEN if result.answer else RED)
    tell(f"\n{model.requests[-1].messages[2].content}")
