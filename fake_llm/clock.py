"""A clock that stands still until it is told to move, so that no test and no demo ever waits."""

from __future__ import annotations

import math


class FakeClock:
    """Time as a plain number of seconds: ``World(clock=clock.now, sleep=clock.sleep)``.

    ``slept`` lists what was slept, in seconds, in order: the waits of a retry can be read there.
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self.slept: list[float] = []

    def now(self) -> float:
        """Return the time, in seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass. Raises ``ValueError`` for a step that is negative or not finite."""
        if not 0 <= seconds < math.inf:  # written so that NaN is refused too
            raise ValueError(f"a clock advances by a finite number of seconds from 0 up, not {seconds!r}")
        self._now += seconds

    def sleep(self, seconds: float) -> None:
        """Pass for ``time.sleep``: time moves, and nobody waits."""
        self.advance(seconds)
        self.slept.append(seconds)
