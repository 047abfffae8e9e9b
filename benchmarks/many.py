"""What a thousand loops at once cost, in time and memory; and which kind of workers wins, for real."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

from agentloop import CREW, AgentLoop, CallModel, Message, Program, Reply, Toolbox, World
from benchmarks.figures import TASK, USAGE, Figure, add, ratios, seconds, spread, wide
from chapters.ch07_drivers import drive_async, one_by_one
from chapters.ch30_isolation_and_sharing import gather_many, run_many
from fake_llm import calls
from paradigms.function_calling import function_calling
from paradigms.prompt import last_turns

ROUNDS = 10  # of each loop
AWAITED = 0.001  # seconds: what each model call takes
SHOWN = 4  # turns in the bounded view of both sides
SYSTEM = "You add numbers."
ACTION, ANSWER = calls(("add", {"a": 1, "b": 2}), usage=USAGE), Reply("3", usage=USAGE)

# --- A thousand on one event loop ---------------------------------------------------------------


class AsyncModel:
    """Says the same until its last reply, each time after the wait."""

    def __init__(self, seconds: float = AWAITED) -> None:
        self.left, self.seconds = ROUNDS, seconds

    async def __call__(self, request: CallModel) -> Reply:
        await asyncio.sleep(self.seconds)
        self.left -= 1
        return ACTION if self.left >= 0 else ANSWER


async def bare_loop() -> str:
    """The loop of many a first agent as a coroutine, with no guard at all."""
    model, tools = AsyncModel(), {"add": add}
    messages = [Message("system", SYSTEM), Message("user", TASK)]
    while True:
        reply = await model(CallModel(messages[:2] + messages[2:][-2 * SHOWN :]))
        if not reply.tool_calls:
            return reply.text
        messages.append(Message("assistant", reply.text, reply.tool_calls))
        for call in reply.tool_calls:
            result = tools[call["name"]](**json.loads(call["arguments"]))
            messages.append(Message("tool", str(result), call_id=call["id"]))


def guarded_loop(
    seconds: float = AWAITED, driver: Callable[[Program[Any], World], Awaitable[Any]] = drive_async
) -> Callable[[], Awaitable[str]]:
    """Our loop over the same replies; its configuration is one for all, its run and its model are new."""
    tools = Toolbox([add])
    loop = AgentLoop(function_calling(tools, SYSTEM, last_turns(SHOWN)), limits=wide(ROUNDS))

    async def run() -> str:
        result = await driver(loop.run(TASK), World(AsyncModel(seconds), tools, inline=True))
        answer: str = result.answer
        return answer

    return run


def at_once(run: Callable[[], Awaitable[str]], count: int) -> list[str]:
    """Run so many side by side on an event loop of their own."""

    async def main() -> list[str]:
        return await asyncio.gather(*[run() for _ in range(count)])

    return asyncio.run(main())


def thousand_figures(scale: float) -> Iterable[Figure]:
    """A thousand concurrent loops of ten rounds: their time over bare coroutines, and the most they hold.

    The plainest driver keeps no promise: what is left of the ratio under it is the loops' own.
    """
    count, pairs = max(int(1000 * scale), 10), max(int(9 * scale), 3)
    guarded, plainest = guarded_loop(), guarded_loop(driver=one_by_one)
    for name, run in ((f"{count} loops at once, asyncio", guarded), ("   by the plainest driver", plainest)):
        measured = ratios(lambda: at_once(run, count), lambda: at_once(bare_loop, count), pairs)  # noqa: B023
        yield Figure(name, statistics.median(measured), 3.0, "x bare coroutines", spread(measured))
    waiting = levels(guarded_loop(seconds=3600.0), count, looks=20)[-1] / count
    yield Figure("   each in its first model call", waiting / 1024, 9.0, "KB", f"{count} at once")
    most, bare = (max(levels(run, count, looks=100_000)) / count / 1024 for run in (guarded, bare_loop))
    detail = f"in {ROUNDS} rounds; bare coroutines {bare:.2f} KB"
    yield Figure("   each at most, with its history", most, 9.0, "KB", detail)


def levels(run: Callable[[], Awaitable[str]], count: int, looks: int) -> list[int]:
    """Bytes that so many runs hold together, turn by turn, until they are done, or for so many turns."""

    async def main() -> list[int]:
        before = tracemalloc.get_traced_memory()[0]
        runs = asyncio.gather(*[run() for _ in range(count)], return_exceptions=True)
        found: list[int] = []
        while not runs.done() and len(found) < looks:
            await asyncio.sleep(0)
            found.append(tracemalloc.get_traced_memory()[0] - before)
        runs.cancel()
        await asyncio.gather(runs, return_exceptions=True)
        return found

    tracemalloc.start()
    try:
        return asyncio.run(main())
    finally:
        tracemalloc.stop()


# --- Which kind of workers ----------------------------------------------------------------------

WAIT = 0.01  # seconds: of each model call, where the work is to wait
COMPUTE = 60_000  # additions: of each tool call, where the work is to compute
CALLS = 3  # rounds with a tool call in each run


def rounds_of(task: str) -> Callable[[CallModel], Reply]:
    """A model that wants so many tool calls, and then answers."""

    def model(request: CallModel) -> Reply:
        done = sum(message.role == "tool" for message in request.messages)
        return calls((task, {}), usage=USAGE) if done < CALLS else Reply("done", usage=USAGE)

    return model


def look() -> str:
    """Look at something that is there."""
    return "seen"


def compute() -> int:
    """Add up numbers."""
    return sum(range(COMPUTE))


def waiting_office(task: str) -> tuple[Program[Any], World]:
    """I/O-bound: each model call waits, and holds its thread meanwhile."""
    model, tools = rounds_of("look"), Toolbox([look])

    def waits(request: CallModel) -> Reply:
        time.sleep(WAIT)
        return model(request)

    return AgentLoop(function_calling(tools)).run(task), World(waits, tools, inline=True)


def awaiting_office(task: str) -> tuple[Program[Any], World]:
    """I/O-bound on an event loop: each model call is awaited."""
    model, tools = rounds_of("look"), Toolbox([look])

    async def awaits(request: CallModel) -> Reply:
        await asyncio.sleep(WAIT)
        return model(request)

    return AgentLoop(function_calling(tools)).run(task), World(awaits, tools, inline=True)


def computing_office(task: str) -> tuple[Program[Any], World]:
    """CPU-bound: each tool call computes."""
    tools = Toolbox([compute])
    return AgentLoop(function_calling(tools)).run(task), World(rounds_of("compute"), tools, inline=True)


#: Each kind of work, the kind of workers that the article names for it, and its offices.
KINDS_OF_WORK = (
    ("I/O-bound", "asyncio", waiting_office, awaiting_office, 100),
    ("CPU-bound", "processes", computing_office, computing_office, 100),
)


def kinds_figures(scale: float) -> Iterable[Figure]:
    """Real runs by threads, by processes and on an event loop: the article's choice over the best other.

    The workers have been started before, and the processes are as many as there are cores.
    """
    times = max(int(5 * scale), 1)
    with ThreadPoolExecutor(CREW) as threads, ProcessPoolExecutor(os.cpu_count()) as processes:
        run_many(["warm up"] * 2 * CREW, threads, waiting_office)
        run_many(["warm up"] * 8, processes, waiting_office)
        for work, choice, office, async_office, most in KINDS_OF_WORK:
            tasks = [f"task {number}" for number in range(max(int(most * scale), 4))]
            ways: dict[str, Callable[[], Any]] = {
                "threads": lambda: run_many(tasks, threads, office),  # noqa: B023 - called in this turn
                "processes": lambda: run_many(tasks, processes, office),  # noqa: B023
                "asyncio": lambda: asyncio.run(gather_many(tasks, async_office)),  # noqa: B023
            }
            took = {name: statistics.median(seconds(way) for _ in range(times)) for name, way in ways.items()}
            winner = min(took, key=lambda name: took[name])
            best_other = min(took[name] for name in took if name != choice)
            shown = ", ".join(f"{name} {taken * 1000:.0f} ms" for name, taken in took.items())
            detail = f"{winner} won: {shown}; {len(tasks)} loops, {os.cpu_count()} cores"
            yield Figure(f"{work}, {choice}", took[choice] / best_other, 1.0, "x the best other", detail)


FIGURES = (thousand_figures, kinds_figures)
