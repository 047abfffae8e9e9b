"""A model remembers nothing: what it seems to know was put into its prompt again, this very round.

Article B, 每一轮都在重新组装输入; article A, 状态机核心实现 (its hooks) and 双循环的协同机制.
Covers B-7..B-10, A-46, A-47, A-51, A-53, A-68.

Unlike chapter 03, which saw to the machine and let no word of text in, this one looks at the text that
goes round in it. Nothing persists in the model (没有任何东西跨轮持久化): each round is a new request, put
together from four parts, the system prompt, the relevant history, the retrieved memory and the tool
definitions. What comes back is one of two things: an answer, which ends the loop, or an action, whose
result joins the history. The mechanism is ``paradigms/prompt.py``: ``think`` assembles the parts and asks,
and a *view* chooses how much of the history is shown.

Without it: the world is sequential (序贯) and the model is not, so a loop that does not put the observation
back asks the same question until a limit ends it. And what perception (感知) finds, but no prompt says,
might as well not have been found: it sends someone with a bad knee up the Great Wall.

Where the article's listing went:

===========================================  ========================================================
_do_perceive (A-46)                          ``remembering``, a ``perceive`` hook
_retrieve_relevant_memories, a stub (A-53)   ``recall``: the notes whose topic the task mentions
working_memory (A-68)                        ``LoopContext.working_memory``; ``think`` shows all of it
_do_reason (A-47), one request               ``think``
_build_reasoning_prompt, the format (A-51)   ``contract`` (paradigms/text_protocol.py)
===========================================  ========================================================

Working memory (工作记忆) is where the inner and the outer loop meet: what perception or a thought leaves
in it, the next thought is shown, as it then is.

Departures: retrieved memories and working memory reach the prompt, and long-term memory outlives a run
(EA16); history stands in the prompt once, as messages, not as the ``repr`` of a list and then again as
``context=`` (EA17); the tools are named, with their signatures (EA18); every model is asked in one way
(EA58). A prompt is sized before it is sent, and what is sent again is counted again (EB11, EB12). How a
reply is read, and when plain text is an answer, is for the protocol to say (EA15, EB14, chapters 05, 06).

Exercises
---------
1. Article B's sliding window (滑动窗口) keeps the first turns and the last ones. Write it as a view, and
   put it under the promises of all views: ``python -m pytest --impl view=my_view.py:first_and_last``
2. Write ``think`` the article's way, with the whole history in one f-string (A:223-229), and ask which
   promises that breaks: ``python -m pytest --impl think=my_think.py:think``
3. Write a ``recall`` that finds the note about the knee for the task "北京哪里风景好？" too, which has no
   旅游 in it, and see that it recalls nothing needless by that:
   ``python -m pytest --impl recall=my_memory.py:recall``
   What did you have to know that is not in the task?
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentloop import AgentLoop, CallModel, Do, Limits, Program, Toolbox, World, drive, estimate_tokens
from chapters.telling import GREEN, RED, Telling
from fake_llm import RuleModel, count_tokens, get_attraction, get_weather, readable
from paradigms.prompt import Block, Prompt
from paradigms.react import react

TASK = "查询今天北京的天气，然后根据天气推荐一个旅游景点"

# --- Perception: what goes into working memory --------------------------------------------------

#: Long-term memory: notes by topic. It outlives every run.
NOTES = {
    "旅游": "用户膝盖不好，不爬长城。",
    "天气": "用户习惯摄氏度。",
    "编程": "用户写 Python。",
}


def recall(task: str, notes: Mapping[str, str]) -> list[str]:
    """The notes whose topic the task mentions: the plainest retrieval there is."""
    return [note for topic, note in notes.items() if topic in task]


def remembering(
    notes: Mapping[str, str], look_round: Callable[[], str]
) -> Callable[[str], Program[Mapping[str, Any]]]:
    """Make a ``perceive`` hook: what is remembered of the task, and what the environment looks like.

    Both lie outside of the program, so they are effects, and a replay finds what was found the first time.
    """

    def perceive(task: str) -> Program[Mapping[str, Any]]:
        environment = (yield Do("look round", look_round, repeatable=True)).value
        memories = (yield Do("recall", lambda: recall(task, notes), repeatable=True)).value
        return {"environment": environment, "retrieved memories": " ".join(memories)}

    return perceive


# --- A view that puts nothing back --------------------------------------------------------------


def nothing(prompt: Prompt) -> Sequence[Block]:
    """The view of a runtime that takes the model for someone who remembers."""
    return ()


# --- What was sent, part by part ----------------------------------------------------------------

PARTS = ("system prompt", "tool definitions", "task", "working memory", "history")


def sizes(request: CallModel, tools: Toolbox) -> tuple[int, ...]:
    """The estimated tokens of each of the ``PARTS``; in the text protocol, the tools stand in the first."""
    system, task, *rest = request.messages
    perceived = [message for message in rest if message.content.startswith("Working memory")]
    described = estimate_tokens(tools.describe())
    return (
        count_tokens([system]) - described,
        described,
        count_tokens([task]),
        count_tokens(perceived),
        count_tokens(rest) - count_tokens(perceived),
    )


# --- The model: it acts on what it is shown, and has nothing else -------------------------------


def guide() -> RuleModel:
    """A model that asks for the weather, then for an attraction, and answers when it is shown one."""
    return RuleModel(
        [
            ("颐和园", answer),
            ("Sunny", "Thought: 已知晴天且温度适中，据此筛选。\n"
                      'Action: get_attraction(city="北京", weather="Sunny")'),
        ],
        otherwise='Thought: 先拿天气，再据此推荐景点。\nAction: get_weather(city="北京")',
    )  # fmt: skip


def answer(request: CallModel) -> str:
    """Recommend what was found, but for what the prompt speaks against."""
    found = request.messages[-1].content.removeprefix("Observation: ")
    if "不爬长城" in readable(request.messages):
        found = found.replace("、长城", "，不用爬长城")
    return f"Thought: 信息够了，可以作答。\nAction: Finish[北京今天晴，26 度，推荐：{found}]"


# --- The story ----------------------------------------------------------------------------------


def demo(tell: Telling) -> None:
    """A loop that puts nothing back, one that puts history back, and one that puts perception back too."""
    tools = Toolbox([get_weather, get_attraction])

    tell.heading("Nothing is put back")
    limits = Limits(rounds=3)
    model = guide()
    loop = AgentLoop(react(tools, view=nothing), limits=limits, watch=tell.watch("nothing back", limits))
    drive(loop.run(TASK), World(model, tools, inline=True))
    requests, different = len(model.requests), len(set(model.prompts))
    tell(f"{requests} requests, {different} prompt: the same thing was asked again and again.", RED)

    tell.heading("History is put back (相关历史)")
    model = guide()
    loop = AgentLoop(react(tools), watch=tell.watch("history"))
    tell.result(drive(loop.run(TASK), World(model, tools, inline=True)))
    tell("The user has a bad knee. A note says so, and no prompt did.", RED)

    tell.heading("What was perceived is put back too (检索到的记忆)")
    model = guide()
    perceive = remembering(NOTES, look_round=lambda: "今天是星期六。")
    loop = AgentLoop(react(tools), perceive=perceive, watch=tell.watch("perceiving"))
    result = drive(loop.run(TASK), World(model, tools, inline=True))
    tell.result(result)
    tell("The note was in the prompt, and the answer heeds it.", GREEN)

    tell.heading("All that the model knew when it answered")
    tell(model.prompts[-1])

    tell.heading("What each request was made of, in tokens")
    rows = [sizes(request, tools) for request in model.requests]
    tell.table([("round", *PARTS, "sum"), *((number, *row, sum(row)) for number, row in enumerate(rows, 1))])
    sent = sum(map(sum, rows))
    again = sent - sum(rows[-1])  # each request begins with the whole of the one before
    tell(f"{sent} tokens were sent, {again} of them sent before; {result.control.tokens - sent} came back.")
