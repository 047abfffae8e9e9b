"""The articles' toy tools, and tools that fail in each way that a guard must handle.

A tool that misbehaves is made from one that works. It keeps its name, signature and docstring, so
to a model the two look the same: ``Toolbox([flaky_tool(get_weather, times=2)])``.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any

#: What the sky and the thermometer say, in degrees Celsius.
WEATHER = {"北京": ("Sunny", 26), "上海": ("Cloudy", 22), "广州": ("Rainy", 30), "哈尔滨": ("Snowy", -12)}

#: Where to go in fair weather, and where in foul.
ATTRACTIONS = {
    "北京": ("颐和园（湖景 + 古建筑）、长城", "故宫博物院、国家博物馆"),
    "上海": ("外滩、豫园", "上海博物馆"),
    "广州": ("白云山、沙面岛", "陈家祠"),
    "哈尔滨": ("太阳岛、中央大街", "黑龙江省博物馆"),
}
FAIR = ("sunny", "cloudy", "晴", "多云")


def get_weather(city: str) -> str:
    """Tell the present weather of a city."""
    sky, degrees = WEATHER[_known(city, WEATHER)]
    return f"{city}当前天气：{sky}，气温 {degrees} 摄氏度"


def get_attraction(city: str, weather: str) -> str:
    """Recommend attractions of a city that suit the weather."""
    outdoors, indoors = ATTRACTIONS[_known(city, ATTRACTIONS)]
    return outdoors if any(sky in weather.lower() for sky in FAIR) else indoors


def _known(city: str, cities: dict[str, Any]) -> str:
    if city not in cities:
        raise LookupError(f"nothing is known about {city!r}; the cities known are {', '.join(cities)}")
    return city


# --- Tools that fail --------------------------------------------------------------------------


class SpoiledTool:
    """A tool that looks like ``tool`` and does what ``behave(number, run)`` says.

    ``number`` counts the calls from 1, and ``run()`` is what the real tool would have done.
    ``calls`` are the arguments of each call so far, by name.
    """

    __name__: str  # copied from the tool, as are its docstring and its signature

    def __init__(self, tool: Callable[..., Any], behave: Callable[[int, Callable[[], Any]], Any]) -> None:
        functools.update_wrapper(self, tool)
        self._tool, self._behave = tool, behave
        self.calls: list[dict[str, Any]] = []

    def __call__(self, *positional: Any, **named: Any) -> Any:
        given = inspect.signature(self._tool).bind(*positional, **named)
        self.calls.append(given.arguments)
        return self._behave(len(self.calls), lambda: self._tool(*given.args, **given.kwargs))


def flaky_tool(tool: Callable[..., Any], times: int, error: Exception | None = None) -> SpoiledTool:
    """A tool that fails ``times`` times and then works: a passing fault, such as a lost connection."""
    failure = error or ConnectionError("connection reset by peer")
    return SpoiledTool(tool, lambda number, run: _fail(failure) if number <= times else run())


def broken_tool(tool: Callable[..., Any], error: Exception) -> SpoiledTool:
    """A tool that always raises.

    ``ConnectionError`` and ``TimeoutError`` look as if trying again could help; after a
    ``PermissionError`` it is of no use.
    """
    return SpoiledTool(tool, lambda number, run: _fail(error))


def _fail(error: Exception) -> Any:
    raise error.with_traceback(None)  # an exception raised again and again keeps every old frame


def hanging_tool(tool: Callable[..., Any], wait: Callable[[], object]) -> SpoiledTool:
    """A tool that works, but only after ``wait()`` has returned: see ``hanging_model`` for what to give."""

    def behave(_: int, run: Callable[[], Any]) -> Any:
        wait()
        return run()

    return SpoiledTool(tool, behave)


def error_by_value(tool: Callable[..., Any], message: str = "service unavailable") -> SpoiledTool:
    """A tool that returns its failure like a result, where nobody who waits for an exception sees it."""
    return SpoiledTool(tool, lambda number, run: {"status": "error", "error": message})


def huge_result(tool: Callable[..., Any], characters: int = 50_000) -> SpoiledTool:
    """A tool whose result, of so many characters, fills the context on its own (上下文爆炸)."""
    return SpoiledTool(tool, lambda number, run: "晴" * characters)


def odd_results(tool: Callable[..., Any], results: Sequence[Any] = ()) -> SpoiledTool:
    """A tool that returns ``results`` in turn, or values of types that few people think of."""
    odd = itertools.cycle(results or (None, b"\xff\x00", {1, 2}, float("nan"), 2 + 1j, object(), [[]], ...))
    return SpoiledTool(tool, lambda number, run: next(odd))


# --- Tools with a memory ----------------------------------------------------------------------


class Cashier:
    """Takes payments. Paying is not idempotent: whoever repeats a call has paid twice.

    ``ledger`` are the amounts paid so far, in yuan, for a test to count.
    """

    def __init__(self) -> None:
        self.ledger: list[float] = []

    def pay(self, amount: float) -> str:
        """Pay an amount, in yuan. Each call is a payment of its own."""
        if not amount > 0:
            raise ValueError(f"an amount to pay is above 0, not {amount!r}")
        self.ledger.append(amount)
        return f"已支付 {amount:g} 元"


class JobQueue:
    """Jobs that take their time: asking again is not being stuck, since the result changes."""

    def __init__(self, progress: Sequence[str] = ("10%", "40%", "70%", "95%", "done")) -> None:
        if not progress:
            raise ValueError("a job needs at least one thing to report, such as 'done'")
        self._progress = tuple(progress)
        self._polls: dict[str, int] = {}

    def poll(self, job: str) -> str:
        """Tell how far a job is; once it is done, it stays done."""
        polls = self._polls.get(job, 0)
        self._polls[job] = polls + 1
        return self._progress[min(polls, len(self._progress) - 1)]
