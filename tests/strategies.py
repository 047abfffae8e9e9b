"""Hypothesis strategies for the machine: limits, events legal or not, and whole runs of them."""

from __future__ import annotations

from hypothesis import strategies as st

from agentloop import Control, Event, EventKind, Limits, StopReason
from chapters.ch03_it_must_stop import CLOSED

counts = st.integers(1, 5)
amounts = st.floats(0.1, 5.0)

limits = st.builds(
    Limits,
    rounds=counts,
    model_calls=counts,
    tool_calls=counts,
    effects=counts,
    failures=counts,
    tokens=st.integers(1, 50),
    cost=amounts,
    seconds=amounts,
)

#: Any event at all: most of them are refused in most states.
events = st.builds(
    Event,
    kind=st.sampled_from(EventKind),
    ok=st.booleans(),
    calls=st.integers(-1, 3),
    tokens=st.integers(-1, 20),
    cost=st.floats(-0.1, 2.0) | st.sampled_from([float("nan"), float("inf")]),
    at=st.floats(allow_nan=True),
    needs_tokens=st.integers(0, 60),
    needs_seconds=st.floats(0.0, 6.0),
    stop=st.none() | st.sampled_from(StopReason),
    closed=st.none() | st.sampled_from((Control(), *CLOSED)),
)

#: Events that bring little, so that runs grow long.
light_events = st.builds(
    Event,
    kind=st.sampled_from(EventKind),
    ok=st.booleans(),
    calls=st.integers(1, 2),
    tokens=st.integers(0, 1),
)

runs = st.lists(light_events | events, max_size=60)
