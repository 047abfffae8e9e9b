"""Worlds for programs of plans: models that plan, act, judge or talk nonsense, tools that may fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from agentloop import (
    ACCOUNT_REASONS,
    AgentLoop,
    CallModel,
    Journal,
    Limits,
    Program,
    StopReason,
    Toolbox,
    World,
    drive,
)
from fake_llm import FakeClock, FakeModel, typical_replies
from paradigms.planning import PLANNING
from paradigms.react import react
from tests.check_toolbox import expect

TASK = "看天气，再选景点，再订票"

#: What a model may write where it is asked for a plan.
PLANS = (
    "1. 看天气\n2. 选景点\n3. 订票",
    "1. 看天气 (needs nothing)\n2. 选景点 (needs nothing)\n3. 订票 (needs 1)",
    '```json\n["看天气", "订票"]\n```',
    "- 看天气",
    "I will think about it.",
    "",
    "1. 看天气 (needs 7)",
    "\n".join(f"{number}. 看天气" for number in range(1, 30)),
    ConnectionError("503"),
)
#: What it may write where it is asked for a thought.
THOUGHTS = (
    "Thought: 够了。\nAction: Finish[好了]",
    "Thought: 不行。\nAction: Finish[FAILED: 没有票]",
    'Thought: 先看。\nAction: look(place="北京")',
    'Thought: 先看。\nAction: fail(place="北京")',
    "Thought: 我再想想。",
    "",
    *(answer for answer in typical_replies() if isinstance(answer, str | Exception)),
)
#: What it may write where it is asked to judge.
JUDGEMENTS = ("Score: 1", "Score: 0", "false", "not 9/10", "Score: 11/10", "", "yes!", TimeoutError())


class Luck(NamedTuple):
    """What the model says in turn, for each of the three things it is asked for, and what changes."""

    plans: tuple[Any, ...] = PLANS[:1]
    thoughts: tuple[Any, ...] = THOUGHTS[:1]
    judgements: tuple[Any, ...] = JUDGEMENTS[:1]
    news: tuple[Any, ...] = ()


def _some(choices: Sequence[Any], most: int = 4) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(st.sampled_from(choices), min_size=1, max_size=most).map(tuple)


lucks = st.builds(
    Luck,
    plans=_some(PLANS),
    thoughts=_some(THOUGHTS, 6),
    judgements=_some(JUDGEMENTS),
    news=st.lists(st.sampled_from([None, "", "下雨了", "闭馆了", OSError("no sensor")]), max_size=4).map(
        tuple
    ),
)
inner_limits = st.builds(
    Limits, rounds=st.integers(1, 3), model_calls=st.integers(1, 4), failures=st.integers(1, 3)
)
outer_limits = st.one_of(
    st.just(Limits(rounds=1)),
    st.builds(
        Limits, effects=st.integers(1, 40), model_calls=st.integers(1, 20), tokens=st.integers(1, 20_000)
    ),
)


def look(place: str) -> str:
    """Look at a place."""
    return f"{place}：晴"


def fail(place: str) -> str:
    """Look at a place that cannot be seen."""
    raise ConnectionError("503")


TOOLS = Toolbox([look, fail])


def loop(limits: Limits = Limits(rounds=3)) -> AgentLoop:  # noqa: B008
    """The inner loop of these worlds."""
    return AgentLoop(react(TOOLS), limits=limits)


class Played(NamedTuple):
    """What came of a program in a world: its value, what the model was asked, and what was done in order."""

    value: Any
    requests: list[CallModel]
    journal: Journal

    @property
    def effects(self) -> int:
        return len(self.journal.outcomes)


def model(luck: Luck) -> FakeModel:
    """A model that says what its luck tells it to, over and over."""
    said = {"plan": 0, "judge": 0, "think": 0}

    def respond(request: CallModel) -> Any:
        system = request.messages[0].content
        asked = "plan" if system[:15] == PLANNING[:15] else "judge" if system[:9] == "You judge" else "think"
        choices = {"plan": luck.plans, "judge": luck.judgements, "think": luck.thoughts}[asked]
        said[asked] += 1
        return choices[(said[asked] - 1) % len(choices)]

    return FakeModel(respond)


def news_of(luck: Luck) -> Callable[[], Any]:
    """What is new, told item by item; then nothing more."""
    left = iter(luck.news)

    def changed() -> Any:
        news = next(left, None)
        if isinstance(news, Exception):
            raise news
        return news

    return changed


def play(program: Program[Any], luck: Luck, journal: Journal | None = None) -> Played:
    """Run a program to its end in the world of that luck."""
    asked, journal, clock = model(luck), journal or Journal(), FakeClock()
    value = drive(program, World(asked, TOOLS, clock=clock.now, sleep=clock.sleep, inline=True), journal)
    return Played(value, asked.requests, journal)


def hold_an_honest_ending(value: Any) -> None:
    """An answer exactly at FINAL_ANSWER; else a reason that an account or the paradigm itself can have."""
    answered = value.stop is StopReason.FINAL_ANSWER
    expect(
        (value.answer is not None) == answered,
        f"it ended with {value.stop.name} and the answer {value.answer!r}",
    )
    expect(
        answered == (not value.problem), f"it ended with {value.stop.name} and the problem {value.problem!r}"
    )
    known = (StopReason.FINAL_ANSWER, StopReason.INVALID_TASK, *ACCOUNT_REASONS)
    expect(
        value.stop in known or not isinstance(value.stop, StopReason),
        f"nobody can have said {value.stop.name}",
    )


def hold_the_same_again(program: Callable[[], Program[Any]], luck: Luck) -> None:
    """Run twice, and once on the journal of the first run: nothing may differ."""
    first, second = play(program(), luck), play(program(), luck)
    expect(first.value == second.value, f"the second run differs from the first: {luck}")
    expect(first.requests == second.requests, f"the second run asked for something else: {luck}")
    replayed = play(program(), Luck((), (), ()), first.journal)
    expect(replayed.value == first.value, f"replayed, it ended otherwise: {luck}")
    expect(not replayed.requests, "replayed, it asked the model")
