"""Print each figure as a ratio, both sides measured in turn in one run: ``python -m benchmarks``.

A ratio holds on a slow or busy machine, where seconds mean little. Every pair of sides does the
same work: asks the same pretend model, reads the same reply, calls the same tool, keeps the same
history. The unguarded side is what one writes on an afternoon: a bare ``while`` loop.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from agentloop import (
    AgentLoop,
    AgentState,
    CallModel,
    Control,
    Event,
    EventKind,
    Limits,
    LoopContext,
    Message,
    Observation,
    Outcome,
    Reply,
    Toolbox,
    ToolCall,
    Turn,
    World,
    advance,
    drive,
)
from benchmarks import breaker, guards, journal, many, robust, views
from benchmarks.figures import TASK, USAGE, Figure, add, quickest, ratios, scripted, seconds, spread, wide
from fake_llm import calls
from paradigms.function_calling import function_calling, read, render
from paradigms.prompt import block, last_turns
from paradigms.react import react
from paradigms.text_protocol import parse

ROOT = Path(__file__).parent.parent
SHOWN = 4  # turns in the bounded view of both sides


# --- One round ---------------------------------------------------------------------------------


def never_stops(control: Control, context: LoopContext) -> None:
    """A stop rule that looks at the last turn and is content."""
    context.turns[-1]


NATIVE = (calls(("add", {"a": 1, "b": 2}), usage=USAGE), Reply("3", usage=USAGE))
WRITTEN = (
    Reply("Thought: the numbers are known.\nAction: add(a=1, b=2)", usage=USAGE),
    Reply("Thought: done.\nAction: Finish[3]", usage=USAGE),
)


def bare_function_calling(rounds: int) -> str:
    """The loop of many a first agent, with native calls and no guard at all."""
    model, tools = scripted(*NATIVE, rounds), {"add": add}
    messages = [Message("system", "You add numbers."), Message("user", TASK)]
    while True:
        reply = model(CallModel(messages[:2] + messages[2:][-2 * SHOWN :]))
        if not reply.tool_calls:
            return reply.text
        messages.append(Message("assistant", reply.text, reply.tool_calls))
        for call in reply.tool_calls:
            arguments = json.loads(call["arguments"])
            result = tools[call["name"]](**arguments)
            messages.append(Message("tool", str(result), call_id=call["id"]))


def bare_react(rounds: int) -> str:
    """The same over the text protocol, with the three regular expressions of article B."""
    model, tools = scripted(*WRITTEN, rounds), {"add": add}
    messages = [Message("system", "You add numbers."), Message("user", TASK)]
    while True:
        text = model(CallModel(messages[:2] + messages[2:][-2 * SHOWN :])).text
        finish = re.search(r"Finish\[(.*)\]", text)
        if finish:
            return finish.group(1)
        action = text.partition("Action:")[2]
        name = re.search(r"(\w+)\(", action)
        arguments = re.search(r"\((.*)\)", action)
        assert name and arguments
        named = re.findall(r"(\w+)=(\d+)", arguments.group(1))
        result = tools[name.group(1)](**{key: int(value) for key, value in named})
        messages.append(Message("assistant", text))
        messages.append(Message("user", f"Observation: {result}"))


def guarded(reason: Any, said: tuple[Reply, Reply], rounds: int, tools: Toolbox, inline: bool) -> str:
    """Our loop over the same replies, with its machine, limits, checks and a stop rule."""
    loop = AgentLoop(reason, limits=wide(rounds), stops=(never_stops,))
    answer: str = drive(loop.run(TASK), World(scripted(*said, rounds), tools, inline=inline)).answer
    return answer


def rounds_figures(scale: float) -> Iterable[Figure]:
    """What a whole guarded round costs, under three ways to run it, and how it grows."""
    rounds, pairs = max(int(1000 * scale), 10), max(int(15 * scale), 3)
    tools = Toolbox([add])
    native = function_calling(tools, "You add numbers.", last_turns(SHOWN))
    written = react(tools, last_turns(SHOWN))
    sides = (
        ("a round, function calling", native, NATIVE, bare_function_calling, True, 5.0),
        ("a round, ReAct's text protocol", written, WRITTEN, bare_react, True, 9.0),
        ("a round, every call time-limited", native, NATIVE, bare_function_calling, False, 20.0),
    )
    for name, reason, said, bare, inline, goal in sides:
        measured = ratios(
            lambda: guarded(reason, said, rounds, tools, inline),  # noqa: B023 - called before the next turn
            lambda: bare(rounds),  # noqa: B023
            pairs,
        )
        yield Figure(name, statistics.median(measured), goal, "x bare loop", spread(measured))
        growth = grown(lambda count: guarded(reason, said, count, tools, inline), scale)  # noqa: B023
        middle = statistics.median(growth)
        yield Figure("   of it at 10,000 rounds, over 10", middle, 1.2, "x", spread(growth))


def grown(run: Callable[[int], Any], scale: float) -> list[float]:
    """A round's cost in a long run over its cost in runs of ten, history kept in both."""
    long = max(int(10_000 * scale), 100)
    shares = []
    for _ in range(max(int(5 * scale), 2)):
        short = seconds(lambda: [run(10) for _ in range(long // 10)])
        shares.append(seconds(lambda: run(long)) / short)
    return shares


def where_it_goes(scale: float) -> Iterable[tuple[str, float]]:
    """The parts of a round under function calling, each measured alone, as shares of the whole."""
    rounds, tools = max(int(1000 * scale), 10), Toolbox([add])
    native = function_calling(tools, "You add numbers.", last_turns(SHOWN))
    request = CallModel((Message("system", "You add numbers."), Message("user", TASK)) * SHOWN)
    model = scripted(*NATIVE, 6 * rounds)
    call = ToolCall("add", {"a": 1, "b": 2}, "call_1_1_1")
    turn = Turn("", (call,), (Observation("3"),))
    control, event, limits = Control(AgentState.REASONING), Event(EventKind.MODEL_CALL), Limits()
    parts: dict[str, Callable[[], Any]] = {
        "the pretend model": lambda: model(request),
        "five events of the machine": lambda: [advance(control, event, limits) for _ in range(5)],
        "reading the reply (its JSON is half)": lambda: read(NATIVE[0], tools),
        "checking and calling the tool": lambda: tools.execute(call),
        "showing the turn, once, with its size": lambda: block(*render(turn)),
    }
    whole = quickest(lambda: guarded(native, NATIVE, rounds, tools, inline=True)) / rounds
    rest = 1.0
    for name, part in parts.items():
        share = quickest(lambda: [part() for _ in range(rounds)]) / rounds / whole  # noqa: B023
        rest -= share
        yield name, share
    yield "the loop, the account, the prompt, the stage and the driver", rest


# --- The machine alone -------------------------------------------------------------------------


def event_figure(scale: float) -> Iterable[Figure]:
    """One accepted event, over looking a state up in a table."""
    count = max(int(20_000 * scale), 100)
    control, event, limits = Control(AgentState.REASONING), Event(EventKind.MODEL_CALL), Limits()
    table = {(state, kind): state for state in AgentState for kind in EventKind}

    def accepted() -> None:
        for _ in range(count):
            advance(control, event, limits)

    def looked_up() -> None:
        state, kind = AgentState.REASONING, EventKind.MODEL_CALL
        for _ in range(count):
            state = table[state, kind]

    measured = ratios(accepted, looked_up, max(int(15 * scale), 3))
    middle = statistics.median(measured)
    yield Figure("one event of the machine", middle, 15.0, "x table[state, kind]", spread(measured))


# --- Reading a reply ---------------------------------------------------------------------------

#: Texts that, said over and over, make a parser go back to what it has already read.
REPEATED = ("Action: ", "Action: add(", "Finish[", '{"a":', "<think>", "\n", "`", "Thought: x\n", "Observ")


def parsing_figure(scale: float) -> Iterable[Figure]:
    """How reading grows with the text: four times as long takes four times as long, not sixteen."""
    tools = Toolbox([add])
    growth = []
    for piece in REPEATED:
        short, long = (piece * int(size * scale / len(piece)) for size in (20_000, 80_000))
        growth.append(quickest(lambda: parse(long, tools)) / quickest(lambda: parse(short, tools)))  # noqa: B023
    yield Figure("parsing four times the text, at worst", max(growth), 8.0, "x", f"of {len(growth)} shapes")


# --- Starting, and keeping many ----------------------------------------------------------------


def import_figure(scale: float) -> Iterable[Figure]:
    """Importing the module, over importing what any module of its kind needs; both beyond a bare start."""
    usual, ours = "import dataclasses, enum, typing, json, time", "import agentloop"
    measured = []
    with tempfile.TemporaryDirectory() as compiled:
        started(ours, compiled)  # so that its compiled form is there, as it is for every later start
        for _ in range(max(int(25 * scale), 2)):
            bare = started("pass", compiled)
            measured.append((started(ours, compiled) - bare) / (started(usual, compiled) - bare))
    middle = statistics.median(measured)
    yield Figure("import agentloop", middle, 1.5, "x the usual imports", spread(measured))


def started(code: str, compiled: str) -> float:
    """Seconds to run ``code`` in a new interpreter, without what its site packages bring along."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment |= {"PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": compiled}
    return seconds(lambda: subprocess.run([sys.executable, "-S", "-c", code], env=environment, check=True))


def memory_figure(scale: float) -> Iterable[Figure]:
    """What a loop holds while it waits in its first model call."""
    tools = Toolbox([add])
    loop = AgentLoop(function_calling(tools, "You add numbers.", last_turns(SHOWN)))
    count = max(int(1000 * scale), 10)
    tracemalloc.start()
    try:
        suspended = []
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(count):
            suspended.append(waiting_loop(loop))
        held = (tracemalloc.get_traced_memory()[0] - before) / count
    finally:
        tracemalloc.stop()
    yield Figure("a loop suspended in its first model call", held / 1024, 4.0, "KB", f"{count} loops at once")


def waiting_loop(loop: AgentLoop) -> Any:
    """A run that has been started and now waits for the model."""
    program = loop.run(TASK)
    next(program)
    effect = program.send(Outcome(1, 0.0))
    assert isinstance(effect, CallModel)
    return program


def demos_figure(scale: float) -> Iterable[Figure]:
    """All chapters' demos, as a whole process."""
    command = [sys.executable, "-m", "chapters", "all"]
    taken = seconds(lambda: subprocess.run(command, check=True, capture_output=True))
    yield Figure("all demos together", taken, 6.0, "s", "a whole process, python -m chapters all")


# --- The report --------------------------------------------------------------------------------

FIGURES = (
    *(rounds_figures, event_figure, parsing_figure, import_figure, memory_figure),
    *(figures for module in (breaker, guards, robust, views, journal, many) for figures in module.FIGURES),
    demos_figure,
)


def main(arguments: list[str] | None = None) -> int:
    """Print every figure with its goal."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="how much to measure (default 1.0)")
    scale = parser.parse_args(arguments).scale
    print(f"Python {sys.version.split()[0]}; medians, both sides of a ratio in turn")
    print("Where a round's time goes, function calling in an inline world:")
    for name, share in where_it_goes(scale):
        print(f"   {share:4.0%}  {name}")
    for figures in FIGURES:
        for figure in figures(scale):
            verdict = "ok" if figure.value <= figure.goal else "ABOVE ITS GOAL"
            value = f"{figure.value:6.2f} {figure.unit}"
            print(f"{figure.name:<42} {value:<28} goal {figure.goal:<5g} {verdict:<15} {figure.detail}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
