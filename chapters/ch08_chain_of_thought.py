"""Let it think before it acts: one thought after another, as deep as the task needs and you will pay for.

Article A, 三、Perception-Action循环的两种范式, 内循环. Covers A-58, A-59, A-61, A-62.

The chapters before had one model call a round: it was to know at once what to do. The inner loop (内循环,
A-58) is what may happen inside REASONING before anything is decided, without touching the world. Its
simplest form is the chain of thought (思考→思考→...→结论, A-59; Wei et al., 2022): each thought is put into
working memory and so into the prompt of the next. The mechanism is ``paradigms/chain_of_thought.py``; it
wraps a ``reason`` hook and is one, so a loop does not know that it thinks. A chain ends at a depth, at an
executable action, or at a confidence, whichever comes first (A-61), and the depth is a dial between
quality and cost (弹性深度, A-62).

Without it, a model that stops to think is told that it forgot its Action, and each such thought uses up a
round; and a model that may not stop answers in one breath, with what one breath can hold.

Departures: the article places the inner loop inside a single LLM call (EA60). So does the paper, but nobody
can end, count or pay for half a call: here a thought is a call, charged to the account of its loop. A
confidence is what the model says of itself, and words are not numbers: what cannot be read ends nothing.
The model of the dial is simulated: it works out one amount a reply, and believes it is done when it has
none left. That a real model gains by writing its steps down is the paper's finding, not this table's.

Exercises
---------
1. Write a chain that ends when two thoughts in a row say the same, and see whether it is still one:
   ``python -m pytest --impl chain=my_chain.py:chain_of_thought``
2. A chain that decides after its first thought, however unsure: which promises does it break?
   ``python -m pytest --impl chain=tests/test_ch08.py:boastful``
3. Let the depth follow from the task: a ``reason`` hook that picks one of two chains by the length of
   ``context.task``. The command of the first exercise takes it too, once it has the same parameters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentloop import AgentLoop, CallModel, Limits, Result, Toolbox, World, drive, on_one_line
from chapters.telling import GREEN, RED, WIDTH, Telling
from fake_llm import FakeModel, ScriptedModel, get_attraction, get_weather, readable
from paradigms.chain_of_thought import THINK, chain_of_thought
from paradigms.react import react

TASK = "查询今天北京的天气，然后根据天气推荐一个旅游景点"

#: Two of the five replies are thoughts and nothing else.
REPLIES = (
    "Thought: 景点要看天气：先得知道晴雨和气温。\nConfidence: 0.3",
    'Thought: 天气我不知道，要查。\nAction: get_weather(city="北京")',
    "Thought: 晴，26 摄氏度：户外可以，长走嫌热，最好有水有树荫。\nConfidence: 0.6",
    'Thought: 按晴天筛选景点。\nAction: get_attraction(city="北京", weather="Sunny")',
    "Thought: 颐和园有湖有树荫，合适。\nAction: Finish[北京今天晴，26 摄氏度，推荐颐和园。]",
)

MONEY = 500
SPENDING = (("颐和园门票", 60), ("午饭", 85), ("地铁", 12), ("茶", 28), ("书", 96), ("晚饭", 74))


def budget(length: int) -> str:
    """A task with so many steps: a day in 北京, and what is left of the money."""
    items = "，".join(f"{name} {price} 元" for name, price in SPENDING[:length])
    return f"带 {MONEY} 元去北京玩一天：{items}。还剩多少元？"


def left_over(length: int) -> int:
    """The right answer, worked out beside the model."""
    return MONEY - sum(price for _, price in SPENDING[:length])


def one_amount_at_a_time(request: CallModel) -> str:
    """A model that works out one amount a reply, from what its prompt shows of its thoughts so far."""
    shown = readable(request.messages)
    money, *prices = map(int, re.findall(r"(\d+) 元", request.messages[1].content))
    done = re.findall(r"= (\d+)", shown)
    before, to_do = int(done[-1]) if done else money, prices[len(done) :]
    after = before - to_do[0] if to_do else before
    working = f"{before} - {to_do[0]} = {after}" if to_do else f"还是 {after}"
    if THINK in shown:
        return f"Thought: {working}\nConfidence: {0.3 if to_do[1:] else 0.95}"
    return f"Thought: {working}\nAction: Finish[{after}]"


def run_budgets(depth: int, enough: float) -> Sequence[Result]:
    """All the tasks, from one step to six, with chains of that depth."""
    loop = AgentLoop(chain_of_thought(react(Toolbox(())), depth, enough))
    world = World(FakeModel(one_amount_at_a_time), inline=True)
    return [drive(loop.run(budget(length)), world) for length in range(1, len(SPENDING) + 1)]


def right(results: Sequence[Result]) -> int:
    """How many of the answers are right."""
    return sum(result.answer == str(left_over(length)) for length, result in enumerate(results, 1))


def spent(results: Sequence[Result]) -> tuple[int, int]:
    """The model calls and the tokens of all runs together."""
    return (
        sum(result.control.model_calls for result in results),
        sum(result.control.tokens for result in results),
    )


def demo(tell: Telling) -> None:
    """A thought that costs a round, a thought that costs a call, and the dial."""
    tools, limits = Toolbox([get_weather, get_attraction]), Limits(rounds=3)
    tell(f"task: {TASK}")

    tell.heading("Acting at once: whoever stops to think has forgotten the Action, and a round is gone")
    loop = AgentLoop(react(tools), limits=limits, watch=tell.watch("react", limits))
    tell.result(drive(loop.run(TASK), World(ScriptedModel(REPLIES), tools, inline=True)))

    tell.heading("A chain of thought: the same replies, and a thought goes into the next prompt")
    model = ScriptedModel(REPLIES)
    reason = chain_of_thought(react(tools), depth=3)
    loop = AgentLoop(reason, limits=limits, watch=tell.watch("chain", limits))
    tell.result(drive(loop.run(TASK), World(model, tools, inline=True)))
    tell("\nThe second request showed the first thought:")
    for line in model.requests[1].messages[2].content.splitlines():
        tell(f"    {on_one_line(line, WIDTH)}", GREEN)

    tell.heading("The dial: depth against cost (弹性深度)")
    tell(f"six tasks of one step to six; the last: {budget(len(SPENDING))}")
    in_one_breath = run_budgets(0, 0.9)[-1]
    tell(f"in one breath it says {in_one_breath.answer}, and {left_over(len(SPENDING))} are left\n", RED)
    rows: list[tuple[object, ...]] = [("depth", "right", "calls", "tokens", "calls if never sure", "tokens")]
    for depth in range(len(SPENDING) + 2):
        sure, never_sure = run_budgets(depth, 0.9), run_budgets(depth, 1.0)
        assert right(sure) == right(never_sure), "to think on when all is done changes nothing"
        quality = f"{right(sure)} of {len(SPENDING)}"
        rows.append((depth, quality, *spent(sure), *spent(never_sure)))
    tell.table(rows)
    tell("\nEach thought more solves one task more, until none is left. A chain that may end when it is")
    tell("sure then costs nothing more; one that must think on pays for every thought it does not need.")
