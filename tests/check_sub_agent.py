"""What a sub-agent promises: plain functions of a guard's factory, as chapter 28's ``delegating`` is one.

``PROMISES`` holds the promises by name; a ``Story`` is one parent and one sub-agent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentloop import (
    CODING,
    Act,
    AgentLoop,
    Interrupt,
    Kind,
    Limits,
    LoopContext,
    LoopError,
    Observation,
    Result,
    StopReason,
    Toolbox,
    ToolCall,
    World,
    call_tool,
    cut,
    drive,
)
from chapters.ch28_layered_memory import research
from fake_llm import FakeModel, calls, get_weather, readable
from paradigms.function_calling import function_calling
from tests.check_machine import BrokenPromise
from tests.check_toolbox import expect

Delegating = Callable[..., Callable[[ToolCall], Any]]
TASK = "北京和上海，哪里暖和？"
SECRET = "<what the sub-agent looked at>"


class Story:
    """A parent that delegates once and answers with what it was told, and a child that calls and answers.

    ``answer`` is what the child answers, once it has called as often as ``works`` says.
    """

    def __init__(
        self,
        delegating: Delegating,
        answer: Any = "上海",
        works: int = 1,
        handed: dict[str, Any] | None = None,
        child: Limits = Limits(),  # noqa: B008
        **options: Any,
    ) -> None:
        self.answer, self.works = answer, works
        self.handed = {"task": "查两地的气温"} if handed is None else handed
        self.model = FakeModel(self._respond)
        self.looked = 0
        tools = Toolbox([self.look])
        self.agents = {"research": AgentLoop(function_calling(tools), limits=child)}
        self.act = delegating(call_tool, agents=self.agents, **options)
        self.world = World(self.model, Toolbox([self.look, research, get_weather]), inline=True)

    def look(self) -> str:
        """Look at something."""
        self.looked += 1
        return SECRET

    def _respond(self, request: Any) -> Any:
        if request.messages[1].content == TASK:
            told = [message.content for message in request.messages if message.role == "tool"]
            return told[-1] if told else calls(("research", self.handed))
        done = sum(message.role == "tool" for message in request.messages)
        return calls(("look", {})) if done < self.works else self.answer

    def run(self, limits: Limits = Limits(), interrupt: Interrupt | None = None) -> Result:  # noqa: B008
        loop = AgentLoop(function_calling(Toolbox([research])), self.act, limits=limits)
        try:
            return drive(loop.run(TASK), self.world, interrupt=interrupt)
        except LoopError as error:
            raise BrokenPromise(f"its parent broke down: {error}") from error

    def seen(self) -> Observation:
        """What the parent observes of its sub-agent."""
        return self.run().turns[0].observations[0]


def its_answer_is_what_the_parent_observes(delegating: Delegating) -> None:
    """The sub-agent works on the task that it was handed, and its answer is the result of the call."""
    story = Story(delegating)
    seen = story.seen()
    expect(seen == Observation("上海"), f"the sub-agent answered 上海, and the parent observed {seen}")
    tasks = [request.messages[1].content for request in story.model.requests]
    right = story.handed["task"] in tasks and story.looked == 1
    expect(right, f"it was handed {story.handed['task']!r}, and the tasks of all requests are {tasks}")


def its_turns_stay_its_own(delegating: Delegating) -> None:
    """Nothing that the sub-agent saw or thought is in a prompt of the parent, and the other way round."""
    story = Story(delegating, works=3)
    result = story.run()
    for request in story.model.requests:
        text = readable(request.messages)
        theirs = SECRET if request.messages[1].content == TASK else TASK
        expect(theirs not in text, f"{theirs!r} belongs to the other one, and stands in this prompt:\n{text}")
    own = [call.name for turn in result.turns for call in turn.calls]
    expect(own == ["research"], f"the parent called research, and its turns hold {own}")


def its_failure_is_an_observation(delegating: Delegating) -> None:
    """A sub-agent that ends without an answer has failed, and the parent is told why, and goes on."""
    story = Story(delegating, works=99, child=Limits(rounds=2))
    result = story.run()
    seen = result.turns[0].observations[0]
    expect(not seen.ok, f"the sub-agent ended at its limit of 2 rounds, and the parent observed {seen}")
    expect("MAX_ITERATIONS" in seen.text, f"the parent is not told why its sub-agent ended: {seen.text!r}")
    stop = result.stop
    expect(stop is StopReason.FINAL_ANSWER, f"its sub-agent failed, and the parent ended with {stop.name}")


def it_spends_from_the_account_of_its_parent(delegating: Delegating) -> None:
    """What a sub-agent spends its parent has spent: no budget is escaped by delegating."""
    story = Story(delegating, works=3)
    result = story.run()
    made = len(story.model.requests)
    booked = result.control.model_calls
    expect(booked == made, f"{made} requests were made in all, and the parent's account says {booked}")
    for limits, due in (
        (Limits(model_calls=3), StopReason.MODEL_CALLS),
        (Limits(tool_calls=2), StopReason.TOOL_CALLS),
        (Limits(effects=6), StopReason.EFFECTS),
    ):
        story = Story(delegating, works=20)
        result = story.run(limits)
        stop = result.stop
        expect(stop is due, f"a sub-agent ran into its parent's {due.name}, and that ended with {stop.name}")
        kept = [call.name for turn in result.turns for call in turn.calls]
        expect(kept == ["research"], f"the account ended inside the sub-agent, and the turns hold {kept}")


def a_long_answer_is_cut(delegating: Delegating) -> None:
    """A sub-agent returns a summary: what is longer is cut, and says so."""
    for answer in ("京" * 5000, "京" * 41):
        seen = Story(delegating, answer=answer, longest=40).seen()
        right = seen.ok and seen.text.startswith("京" * 40) and len(seen.text) < 120
        expect(right, f"an answer of {len(answer)} characters, where 40 are allowed, became {seen.text!r}")
    seen = Story(delegating, works=99, child=Limits(rounds=8), longest=40).seen()
    expect(len(seen.text) < 120, f"a failure, where 40 characters are allowed, has {len(seen.text)}")


def a_call_that_cannot_be_made_is_not_delegated(delegating: Delegating) -> None:
    """Arguments that do not fit are reported like those of any tool, and no sub-agent starts."""
    for handed in ({}, {"task": ["查"]}, {"question": "查"}):
        story = Story(delegating, handed=handed)
        seen = story.seen()
        right = seen.kind is Kind.BAD_ARGUMENTS and story.looked == 0
        expect(right, f"handed {handed} to the sub-agent, and the parent observed {seen}")


def an_empty_task_is_not_worked_on(delegating: Delegating) -> None:
    """A sub-agent that is handed nothing has failed, and has spent nothing."""
    story = Story(delegating, handed={"task": "  "})
    seen = story.seen()
    right = not seen.ok and story.looked == 0
    expect(right, f"an empty task was handed to the sub-agent, and the parent observed {seen}")


def other_calls_are_none_of_its_business(delegating: Delegating) -> None:
    """A call of any other tool goes through to the wrapped act, and comes back as it is."""
    story = Story(delegating)
    for call in (ToolCall("get_weather", {"city": "北京"}), ToolCall("get_wether", {}), ToolCall("look", {})):
        came = drive(_settled(story.act(call)), story.world)
        due = drive(_settled(call_tool(call)), story.world)
        expect(came == due, f"{call.name} without the guard brings {due}, and with it {came}")


def no_agent_can_be_given_itself(delegating: Delegating) -> None:
    """The agents are those that were there when the guard was made, so that no chain of them is endless."""

    def asking(context: LoopContext) -> Act:
        return Act((ToolCall("research", {"task": "do it"}),))

    agents: dict[str, AgentLoop] = {}
    agent = AgentLoop(asking, delegating(call_tool, agents=agents), limits=CODING)
    agents["research"] = agent
    try:
        result = drive(agent.run(TASK), World(tools=Toolbox([research]), inline=True))
    except LoopError as error:
        raise BrokenPromise(
            f"an agent was given itself, and it ended with: {cut(str(error), 200)}"
        ) from error
    used = result.control.tool_calls
    expect(
        used == result.control.rounds, f"an agent was given itself: {used} calls in {result.control.rounds}"
    )


def a_bug_in_it_is_a_bug(delegating: Delegating) -> None:
    """An exception in a hook of the sub-agent is no observation: it reaches the caller."""
    story = Story(delegating)

    def reason(context: Any) -> Any:
        raise ZeroDivisionError("a bug")

    story.agents["research"] = AgentLoop(reason)
    story.act = delegating(call_tool, agents=story.agents)
    try:
        result = story.run()
    except BrokenPromise:
        return
    raise BrokenPromise(f"a hook of the sub-agent has a bug, and the parent ended with {result}")


def a_person_stops_both(delegating: Delegating) -> None:
    """An interrupt while the sub-agent works ends the parent too, with HUMAN, and its turn is kept."""
    story, interrupt = Story(delegating, works=20), Interrupt()
    look = story.look

    def look_and_stop() -> str:
        """Look at something."""
        if story.looked == 2:
            interrupt.set()
        return look()

    both: dict[str, Callable[..., str]] = {"look": look_and_stop, "research": research}
    tools = Toolbox(both)
    story.world = World(story.model, tools, inline=True)
    result = story.run(interrupt=interrupt)
    right = result.stop is StopReason.HUMAN and story.looked == 3 and len(result.turns) == 1
    expect(right, f"a person stopped the run inside the sub-agent: {result.stop.name}, {result.turns}")


def _settled(value: Any) -> Any:
    return (yield from value)


PROMISES: dict[str, Callable[[Delegating], None]] = {
    promise.__name__: promise
    for promise in (
        its_answer_is_what_the_parent_observes,
        its_turns_stay_its_own,
        its_failure_is_an_observation,
        it_spends_from_the_account_of_its_parent,
        a_long_answer_is_cut,
        a_call_that_cannot_be_made_is_not_delegated,
        an_empty_task_is_not_worked_on,
        other_calls_are_none_of_its_business,
        no_agent_can_be_given_itself,
        a_bug_in_it_is_a_bug,
        a_person_stops_both,
    )
}
