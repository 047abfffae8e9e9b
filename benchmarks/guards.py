"""What a retry costs where nothing fails: the call that succeeds at once, which is nearly every call."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from agentloop import call_tool
from benchmarks.breaker import CALL, bare, driven
from benchmarks.figures import Figure, ratios, spread
from chapters.ch19_retry_with_backoff import retry


def retry_figures(scale: float) -> Iterable[Figure]:
    """A call under a retry, with driver and account, over the call alone; and over the same without one."""
    count, pairs = max(int(5000 * scale), 50), max(int(15 * scale), 3)
    guard = retry()

    def bare_calls() -> str:
        text = ""
        for _ in range(count):
            text = bare(CALL).text
        return text

    measured = ratios(lambda: driven(guard, count), bare_calls, pairs)
    middle = statistics.median(measured)
    yield Figure("a retried call that succeeds at once", middle, 40.0, "x a bare call", spread(measured))

    measured = ratios(lambda: driven(guard, count), lambda: driven(call_tool, count), pairs)
    middle = statistics.median(measured)
    yield Figure("an act with a retry around it", middle, 1.5, "x call_tool", spread(measured))


FIGURES = (retry_figures,)
