"""Hypothesis strategies for the loop: scripts of any hooks, and whatever models and tools return."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from agentloop import Limits, Observation, Reply, StopReason, Usage
from fake_llm import calls, typical_replies
from tests.check_loop import EFFECTS, Moves, Script

small_limits = st.builds(
    Limits,
    rounds=st.integers(1, 4),
    model_calls=st.integers(1, 6),
    tool_calls=st.integers(1, 6),
    effects=st.integers(1, 15),
    failures=st.integers(1, 3),
    tokens=st.integers(1, 100),
    cost=st.sampled_from([0.1, 0.5, 1.0, 3.0]),
    seconds=st.sampled_from([0.5, 1.0, 3.0, 10.0, 50.0]),
    call_seconds=st.sampled_from([0.5, 5.0]),
)

#: The same, with room for a few prompts.
prompt_limits = small_limits.map(lambda limits: replace(limits, tokens=200 * limits.tokens, cost=9.0))

wishes = st.sampled_from([*EFFECTS, "loop", "together"])
attitudes = st.sampled_from([(), (), (), ("bug",), ("for ever",), ("deaf",), ("for ever", "deaf")])
reasons = [reason.name for reason in StopReason]


def moves(ends: list[str], wish: Any = wishes) -> st.SearchStrategy[Moves]:
    """What a hook wants, how it takes a refusal, and what it returns."""
    return st.builds(
        lambda wanted, attitude, end: (*wanted, *attitude, end),
        st.lists(wish, max_size=3),
        attitudes,
        st.sampled_from(ends),
    )


decisions = ["one call", "two calls", "call and report", "report", "answer", "empty answer", "odd", "nothing"]
acts = st.one_of(
    moves(["seen", "failed", "odd"], st.one_of(st.just("tool"), wishes)),
    st.sampled_from([("tool",), ("tool", "tool"), ("tool", "for ever", "deaf")]),
)


def scripts(inner: st.SearchStrategy[Script | None] = st.none()) -> st.SearchStrategy[Script]:  # noqa: B008
    """Any hooks, any limits, any luck with tools, any person; ``inner`` is what a hook's own loops play."""
    return st.builds(
        Script,
        reason=st.lists(moves(decisions), min_size=1, max_size=3).map(tuple),
        act=acts,
        perceive=st.one_of(st.just(()), moves(["memories", "nothing", "odd", *reasons])),
        accept=st.one_of(st.just(()), moves(["object", "nothing", "odd"])),
        stop=st.one_of(st.just(()), moves(["warn", "nothing", "odd", *reasons])),
        limits=small_limits,
        tools=st.lists(st.booleans(), min_size=1, max_size=4).map(tuple),
        usage=st.one_of(st.none(), st.builds(Usage, st.integers(0, 60), st.sampled_from([0.0, 0.3, 2.0]))),
        seconds=st.sampled_from([0.0, 0.7, 2.0]),
        interrupted_at=st.one_of(st.none(), st.integers(0, 8)),
        inner=inner,
        task=st.just(Script().task),
    )


nested_scripts = scripts(st.one_of(st.none(), scripts()))

# --- What models and tools return -------------------------------------------------------------

errors = st.sampled_from(
    [
        ValueError("bad"),
        KeyError("city"),
        StopIteration(1),
        TimeoutError(),
        RecursionError(),
        AssertionError(),
        OSError(),
    ]
)
junk = st.one_of(
    st.none(),
    st.integers(),
    st.floats(),
    st.binary(max_size=5),
    st.lists(st.text(max_size=3), max_size=3),
    st.just(object()),
)
usages = st.one_of(
    st.none(),
    st.builds(Usage, st.integers(0, 500), st.floats(0, 1)),
    st.sampled_from(
        [Usage(-5), Usage(0, -1.0), Usage(0, float("nan")), Usage(10**30), Usage(0, float("inf")), "free", 7]
    ),
)
native_calls = st.one_of(
    st.builds(
        lambda name, arguments: {"name": name, "arguments": arguments},
        st.sampled_from(["get_weather", "get_wether", "", "broken", None, 3]),
        st.sampled_from(['{"city": "北京"}', "{}", "", "[1", None, {"city": "北京"}, {"city": 7}, '"{}"']),
    ),
    junk,
)
texts = st.one_of(
    st.text(max_size=40),
    st.sampled_from([answer for answer in typical_replies() if isinstance(answer, str)]),
    st.lists(
        st.sampled_from(
            [
                "Thought: ",
                "Action: ",
                "get_weather",
                '(city="北京")',
                "Finish[",
                "颐和园",
                "]",
                "\n",
                "Observation: 雪",
                "Args: {",
            ]
        ),
        max_size=8,
    ).map("".join),
)
#: What a model may return, or raise.
answers = st.one_of(
    texts,
    junk,
    errors,
    st.builds(Reply, texts, st.lists(native_calls, max_size=3).map(tuple), usages),
    st.sampled_from(
        [calls(("get_weather", {"city": "北京"})), Reply(None), Reply(None, ({"name": "broken"},))]
    ),  # type: ignore[arg-type]
)
#: What a tool may return, or raise.
tool_results = st.one_of(junk, errors, st.text(max_size=10), st.just(Observation("503", False)))
