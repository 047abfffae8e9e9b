"""A one-shot answer plans for a world it saw once; a loop acts, looks again, and plans anew.

Article A, 从"单次推理"到"循环交互" and OODA循环与冯·诺依曼架构; article B, 循环结构.
Covers A-1..A-11, B-1..B-6, B-60, B-62.

There is no chapter before this one: it begins with a language model by itself, which is one-shot
(单次推理): prompt in, completion out, end. In a loop the model perceives, thinks, acts and observes
(感知→推理→决策→行动→反馈), and what each action brought is in its next prompt. To think is to plan and to
select a tool (规划, 工具选择): the model below writes a plan, and for each of its steps the tool and the
arguments. ``CallTool`` is the actuator (执行器) that applies a step to the world.

Without the loop a plan is carried out blind. Where nothing moves that is enough. A house with a cat in
it has four properties that a loop is the answer to. It is only partly seen (部分可观察, so what was heard
must be remembered), sequential (序贯, no feeding without the fish, so results must be carried on), changes
by itself (动态), and by chance (随机, so no plan is sure). (The article counts four and names the first two;
the others are ours.) The one-shot robot and the looping one below are the same model, prompt and code with
other numbers: how many actions of a plan are carried out before the model is asked again, and how often it
may be asked.

The idea is older than language models. In cybernetics (控制论) it is feedback that keeps a system on its
course, and not a better plan.

- OODA (Boyd, 1976: observe, orient, decide, act): where the world moves, whoever goes round sooner wins.
  The last part of the demo counts it, and what it costs.
- Von Neumann (1945): state is kept apart from computation. An ``AgentLoop`` is frozen configuration, and
  all state is in its runs: each loop of the last part runs in a hundred houses and carries nothing over.
- StateGraph (LangGraph): nodes compute, edges move on, a cycle is reasoning that goes on. Ours is the
  table of chapter 02.

Departures: the article's ``while not done`` (A:23-27) never sets ``done``, keeps nothing but observations
and has no bound (EA19). It is run here as printed, and ``decide`` adds a tool ``finish`` that it lacks,
since an answer has to go somewhere; our loop has all three. The five words of its cycle
are six states in its own table, none of them for decision or feedback: a decision is what REASONING ends
with, feedback is what WAITING_FOR_OBSERVATION waits for.

Sources (参考): Hello-Agents, chapter 1, from which article B took its loop.

Exercises
---------
1. Add a robot to the last table that looks after two actions, and one that looks after three. Why do
   they differ so much: what can the second look of the loop tell, and what the third? Then write a
   ``plan`` with which the slower of them is in time more often, and see that every cat is still fed:
   ``python -m pytest --impl robot=my_robot.py:plan``
2. Give ``four_lines`` what it lacks: an end, its own thoughts, a bound. Then give it the signature of
   ``AgentLoop``, and find out what else a loop has to promise:
   ``python -m pytest --impl loop=my_first_loop.py:MyLoop``
3. Make the model forgetful: let your ``plan`` read the last message alone, and put it under the command
   of the first exercise. In which house does it lose the cat, why only where it looks after two actions,
   and which property of the world (任务环境的四个特性) is it that asks for a memory?
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from agentloop import (
    Act,
    AgentLoop,
    CallModel,
    CallTool,
    Finish,
    LimitReached,
    Limits,
    Message,
    Program,
    Reply,
    Result,
    Step,
    Toolbox,
    ToolCall,
    World,
    bounded,
    drive,
    on_one_line,
)
from chapters.telling import GREEN, RED, WIDTH, Telling
from fake_llm import CatHouse, FakeModel, calls, readable
from fake_llm.world import ROOMS
from paradigms.function_calling import read, render
from paradigms.prompt import think

SYSTEM = f"You steer a robot. The rooms form a ring: {', '.join(ROOMS)}. In 厨房 is a fish, somewhere a cat."
TASK = "喂猫 (feed the cat). You are in 客厅. You carry nothing."
EVERYTHING = 100  # more actions than any plan has

# --- The mechanism: how much of a plan is carried out before the next look ----------------------


def robot(actions: int, limits: Limits, watch: Callable[[Step], object] | None = None) -> AgentLoop:
    """A loop that carries out the first ``actions`` of each plan, then asks again with what they brought."""
    tools = Toolbox(CatHouse().tools)  # for their names and signatures, the same in every house

    def begin(reply: Reply) -> Act | Finish:
        decision = read(reply, tools)
        return decision if isinstance(decision, Finish) else Act(decision.calls[:actions], decision.thought)

    return AgentLoop(think(SYSTEM, begin, render, tools=tools.schemas()), limits=limits, watch=watch)


def run(loop: AgentLoop, house: CatHouse) -> Result:
    """Run the loop in a house, with the same model for all."""
    return drive(loop.run(TASK), World(FakeModel(plan), Toolbox(house.tools), inline=True))


def four_lines(task: str, tools: Toolbox) -> Program[None]:
    """The article's loop (A:23-27) line by line. The model's answer is one more action to it."""
    context, done = [Message("user", task)], False
    while not done:
        thought = (yield CallModel(tuple(context))).value
        action = decide(thought, tools)
        observation = (yield CallTool(action)).value
        context.append(Message("user", observation.text))


def decide(thought: Reply, tools: Toolbox) -> ToolCall:
    """The first action of a reply; an answer is taken for the call of a tool, for lack of an end."""
    decision = read(thought, tools)
    if isinstance(decision, Finish):
        return ToolCall("finish", {"answer": decision.answer})
    return decision.calls[0]


# --- The model: a plan for the rest, from all that it is shown ----------------------------------


def plan(request: CallModel) -> Reply | str:
    """Plan the rest of the task. Where the cat was last heard is the best there is to go by."""
    shown = readable(request.messages)
    if "purrs" in shown:
        return "猫喂好了 (the cat has been fed)."
    room, carries = latest(r"You are in (\w+)", shown), latest(r"You carry (a fish|nothing)", shown)
    cat = latest(r"meow from (\w+)", shown, otherwise="阳台")  # cats like the sun
    steps = []
    if carries == "nothing":
        steps, room = [*way(room, "厨房"), ("take_fish", {})], "厨房"
    elif "the cat" in latest(r"You see (.+?)\.", shown):
        cat = room
    elif cat == room:
        steps = [("look", {})]  # it was heard here, and has gone since
    steps += [*way(room, cat), ("feed_cat", {})]
    text = " -> ".join([" ".join([name, *arguments.values()]) for name, arguments in steps])
    return calls(*steps, text=f"Plan: {text}")


def latest(pattern: str, text: str, otherwise: str = "") -> str:
    """What the pattern last found in the text."""
    found = re.findall(pattern, text)
    return found[-1] if found else otherwise


def way(here: str, there: str) -> list[tuple[str, dict[str, Any]]]:
    """The moves that lead from one room to another, the shorter way round."""
    start = ROOMS.index(here)
    moves = (ROOMS.index(there) - start) % len(ROOMS)
    turn, moves = (1, moves) if moves <= len(ROOMS) // 2 else (-1, len(ROOMS) - moves)
    return [("move", {"room": ROOMS[(start + turn * step) % len(ROOMS)]}) for step in range(1, moves + 1)]


# --- The story ----------------------------------------------------------------------------------


def demo(tell: Telling) -> None:
    """Asked once, the robot misses the cat; the article's four lines never end; a loop does it."""
    tell.heading("One shot: asked once, and the plan carried out to its end")
    limits = Limits(rounds=1)
    house = CatHouse()
    run(robot(EVERYTHING, limits, tell.watch("one-shot", limits)), house)
    verdict(tell, house)

    tell.heading("The article's four lines: while not done (A:23-27)")
    house = CatHouse()
    without_an_end(tell, house, Limits(model_calls=12))
    verdict(tell, house)

    tell.heading("A loop: one action, and a look at what it brought")
    limits = Limits(rounds=12)
    house = CatHouse()
    tell.result(run(robot(1, limits, tell.watch("loop", limits)), house))
    verdict(tell, house)

    tell.heading("A hundred houses, and who looks how often (OODA)")
    tell.table([("carried out before it looks again", "fed", "in 4 minutes", "requests"), *hundred_houses()])


def verdict(tell: Telling, house: CatHouse) -> None:
    """What the house itself says of it: no robot is asked how well it did."""
    if house.goal_met:
        tell(f"The house, at minute {house.minute}: the cat has been fed.", GREEN)
    else:
        tell(f"The house, at minute {house.minute}: the cat is hungry.", RED)


def without_an_end(tell: Telling, house: CatHouse, limits: Limits) -> None:
    """Run the four lines until an account stops them, and show what they were up to at the end."""
    tools, model = Toolbox(house.tools), FakeModel(plan)
    try:
        drive(bounded(four_lines(TASK, tools), limits), World(model, tools, inline=True))
    except LimitReached as stopped:
        for message in model.requests[-1].messages[-3:]:
            tell(f"    sees  {on_one_line(message.content, WIDTH)}", RED)
        needless = sum("purrs" in prompt for prompt in model.prompts)
        tell(f"{len(model.requests)} requests, {needless} of them after the cat had eaten; {stopped}.", RED)


def hundred_houses() -> list[tuple[str, int, int, int]]:
    """For each habit of looking: how many cats of a hundred were fed, how many early, and the requests."""
    habits = (
        ("one action", robot(1, Limits(rounds=20))),
        ("the plan", robot(EVERYTHING, Limits(rounds=20))),
        ("the plan, and never looks again", robot(EVERYTHING, Limits(rounds=1))),
    )
    rows = []
    for name, loop in habits:
        houses = [CatHouse(seed) for seed in range(100)]
        requests = sum(run(loop, house).control.model_calls for house in houses)
        fed = [house for house in houses if house.goal_met]
        rows.append((name, len(fed), sum(house.minute <= 4 for house in fed), requests))
    return rows
