"""With the whole plan in view before the first step, no step is forgotten, and none runs on a failed one.

Article A, 四、关键变体深度解析, Plan-and-Solve Loop：先规划后执行的解耦模式. Covers A-94..A-97.

Unlike ReAct (chapter 11), which thinks of the next step alone, and Reflexion (chapter 12), which learns
from a whole failed run, this loop thinks of all steps first. Wang et al. (2023) found that models asked to
think step by step leave steps out (missing-step errors), and cured it with one sentence in the prompt:
understand the problem, devise a plan, then carry it out. That is ``zero_shot``: one call, and no tools.
The article's form has two parts that know nothing of each other (解耦, A-94); it is a later reading.

- the planner (规划阶段, A-95) writes the steps and what each of them needs; ``paradigms/plan.py`` reads
  them in any layout, and asks again, a few times, for what holds no plan
- the executor (执行阶段, A-96) is an ``AgentLoop`` for each step: a small ReAct loop meets the surprises
- the planner is asked anew (重规划触发, A-97) when a step failed or the world changed, a few times

Without the first, a loop that keeps two things in mind at once compares two cities of three. Without
the last, the steps after a failed one run on nothing, and the model invents what they need.

Departures: the article describes this loop and prints no code. Here steps that need a failed one are not
run, and are reported with its number (R02); a plan that cannot be read is a problem that is told, and never
a success with no steps (R01); planning, steps and judging draw on one account. A step is done when its
answer rests on something: one whose calls all failed is failed, whatever it says.

Exercises
---------
1. ``only_numbers`` below reads plans as many tutorials do. Which promises does it break, and what would a
   loop make of it? ``python -m pytest --impl plan=chapters/ch13_plan_and_solve.py:only_numbers``
2. Let the executor run each step as soon as what it needs is done, those side by side that need nothing of
   each other (``Together``): ``python -m pytest --impl plan_and_solve=my_plan.py:PlanAndSolve``
3. A step that calls nothing is believed: the fourth has nothing to call. Let ``clerk`` make up the weather of
   上海 without a call, and write an ``evaluate`` for ``PlanAndSolve`` that notices. What must it look at?
"""

from __future__ import annotations

import re
from collections.abc import Callable

from agentloop import AgentLoop, CallModel, Result, Toolbox, World, drive, on_one_line
from chapters.telling import GREEN, RED, Telling
from fake_llm import FakeModel, get_attraction, get_weather, readable
from paradigms.plan import Plan, PlanStep
from paradigms.plan_and_solve import TRIGGER, PlanAndSolve, Solution, zero_shot
from paradigms.planning import PLANNING, model_planner
from paradigms.react import react

TASK = "北京、上海、广州，今天哪个城市最暖和？给那里推荐一个景点。"

PLAN = """\
Plan:
1. 查北京今天的天气 (needs nothing)
2. 查上海今天的天气 (needs nothing)
3. 查广州今天的天气 (needs nothing)
4. 从三地的气温里选出最暖和的城市 (needs 1, 2, 3)
5. 给最暖和的城市推荐一个景点 (needs 4)"""

#: Another source for what could not be had.
SECOND_PLAN = """\
1. 用 get_forecast 查广州今天的天气 (needs nothing)
2. 从三地的气温里选出最暖和的城市
3. 给最暖和的城市推荐一个景点"""

#: The world has changed: nobody goes to 广州 today.
PLAN_WITHOUT_GUANGZHOU = """\
1. 从北京和上海的气温里选出最暖和的城市
2. 给北京和上海里最暖和的城市推荐一个景点"""

ONE_REPLY = """\
计划：1. 查三地天气 2. 比较 3. 推荐景点。
执行：北京 24 度，上海 27 度，广州 25 度。上海最暖和，推荐外滩。"""


def only_numbers(text: str, longest: int = 12) -> Plan:
    """Read a plan with one regular expression: what it does not match is a plan with no steps (R01)."""
    goals = re.findall(r"(?m)^\d+\. (.*)$", text)
    return tuple(PlanStep(number, goal) for number, goal in enumerate(goals, 1))


# --- The world ----------------------------------------------------------------------------------


def get_forecast(city: str) -> str:
    """Tell what another weather service says of a city."""
    return get_weather(city)


def station_down(city: str) -> str:
    """Tell the present weather of a city."""
    if city == "广州":
        raise ConnectionError("the station in 广州 does not answer")
    return get_weather(city)


TOOLS: dict[str, Callable[..., str]] = {
    "get_weather": get_weather,
    "get_forecast": get_forecast,
    "get_attraction": get_attraction,
}

# --- The model: it keeps two things in mind, and never says that it does not know -------------------

SPAN = 2
CITIES = ("北京", "上海", "广州")
SEEN = re.compile(r"(\w\w)当前天气：(\w+)，气温 (-?\d+) 摄氏度")


def clerk(request: CallModel) -> str:
    """Plan, or take the next step, from what the prompt shows; of several cities it minds the first two."""
    shown = readable(request.messages)
    if TRIGGER in shown:
        return ONE_REPLY
    if shown.startswith(f"system: {PLANNING[:15]}"):
        changed = {"预警": PLAN_WITHOUT_GUANGZHOU, "does not answer": SECOND_PLAN}
        return next((plan for news, plan in changed.items() if news in shown), PLAN)
    goal, latest = request.messages[1].content, request.messages[-1].content
    if latest.startswith("Observation") and "does not answer" in latest:
        return "Thought: 广州应该也是晴天。\nAction: Finish[广州当前天气：Sunny，气温 20 摄氏度]"
    named = [city for city in CITIES if city in goal]
    seen = {city: (int(degrees), sky) for city, sky, degrees in SEEN.findall(shown)}
    unseen = [city for city in named[:SPAN] if city not in seen]
    found = latest.removeprefix("Observation: ")
    if unseen:
        tool = "get_forecast" if "get_forecast" in goal else "get_weather"
        return f'Thought: 查{unseen[0]}。\nAction: {tool}(city="{unseen[0]}")'
    if len(named) == 1:
        return f"Thought: 查到了。\nAction: Finish[{found}]"
    warmest = max((city for city in named or CITIES if city in seen), key=lambda city: seen[city])
    if "景点" not in goal:
        return f"Thought: 比较气温。\nAction: Finish[{warmest}最暖和，{seen[warmest][0]} 摄氏度]"
    if "get_attraction" in readable(request.messages[2:]):
        return f"Thought: 可以作答。\nAction: Finish[{warmest}最暖和，推荐{found}]"
    return f'Thought: 找景点。\nAction: get_attraction(city="{warmest}", weather="{seen[warmest][1]}")'


# --- The story ----------------------------------------------------------------------------------


def solve(
    tools: Toolbox,
    replans: int = 0,
    changed: Callable[[], str | None] | None = None,
) -> tuple[Solution, FakeModel]:
    """Run the chapter's task with these tools, and return the model too, with all it was asked."""
    model = FakeModel(clerk)
    loop = PlanAndSolve(AgentLoop(react(tools)), model_planner(tools), changed=changed, replans=replans)
    return drive(loop.run(TASK), World(model, tools, inline=True)), model


def calls_of(result: Result | None) -> str:
    """The calls that a step's loop made."""
    return ", ".join(call.name for turn in (result.turns if result else ()) for call in turn.calls)


def told(tell: Telling, solution: Solution) -> None:
    """Each step of each plan, what became of it, and how it ended."""
    tell.table(
        (
            f"{plan}.{step.number}",
            step.goal,
            status.name,
            calls_of(result) or "-",
            on_one_line(problem or str(result.answer if result else ""), 60),
        )
        for plan, step, status, result, problem, _ in solution.steps
    )
    if solution.answer is None:
        tell(f"{solution.stop.name}: {solution.stop.value}", RED)
    else:
        tell(f"answer: {solution.answer}", GREEN)


def demo(tell: Telling) -> None:
    """A city forgotten; the paper's sentence; a plan carried out; a step that fails; a changed world."""
    tools, down = Toolbox(TOOLS), Toolbox({**TOOLS, "get_weather": station_down})
    tell(f"task: {TASK}")

    tell.heading("No plan: the loop keeps two cities in mind, and there are three (漏步)")
    model = FakeModel(clerk)
    loop = AgentLoop(react(tools), watch=tell.watch("react"))
    tell.result(drive(loop.run(TASK), World(model, tools, inline=True)))
    tell(f"Nobody asked for 广州. {get_weather('广州')}", RED)

    tell.heading("The paper: one sentence in the prompt, plan and solution in one reply")
    result = drive(AgentLoop(zero_shot).run(TASK), World(model, inline=True))
    tell(model.prompts[-1])
    tell(f"assistant: {result.answer}")
    tell("No step is missing now. But nobody asked the world: the temperatures are made up.", RED)

    tell.heading("Planner and executor: the same model, a plan, and a small ReAct loop for each step")
    solution, model = solve(tools)
    told(tell, solution)
    tell("\nWhat the fourth step was shown:")
    shown = [request.messages for request in model.requests if "选出" in request.messages[1].content]
    tell(shown[0][2].content)

    tell.heading("A step fails: what needs it is not run, and its invented answer is not believed")
    told(tell, solve(down)[0])

    tell.heading("The same, and one replan allowed")
    told(tell, solve(down, replans=1)[0])

    tell.heading("The world changes on the way: before the fourth step there is a warning")
    bulletins = iter([None, None, "广州发布台风红色预警，景点关闭"])
    told(tell, solve(tools, replans=1, changed=lambda: next(bulletins, None))[0])
