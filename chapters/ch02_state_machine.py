"""Every move of an agent loop is a row of one table, and what is no row is refused.

Article A, 二、Loop的核心状态机设计 (Two: the core state machine). Covers A-19..A-45 and
A-48..A-50.

Unlike chapter 01, whose loop was any ``while`` that goes round, this one always knows where it stands
(``AgentState``, A-20..A-25), and moves only by a row whose guard holds (守卫条件, A-26..A-34). The
rows are data, so the machine, the table below, the diagram and the tests all read the same eight.
Without it, whoever assigns the state decides where the loop is: an observation that nobody asked for
is thought about, an empty answer ends the run, and a tool runs after the stop.

Where the article's listing went:

- ``AgentState`` (A-35) kept its name and its six states
- ``LoopContext`` (A-36, A-37): counters are in ``Control``, bounds in ``Limits``, text in ``LoopContext``
- ``AgentLoopFSM`` (A-38): ``advance`` is the machine, ``AgentLoop`` the loop that it governs
- ``_transition_map`` (A-39): ``TRANSITIONS``
- ``_can_transition`` (A-40): ``Transition.holds``, the guard of each row
- ``_is_goal_achieved`` (A-41): row 4, once a protocol has read the reply (chapter 05)
- ``_is_observation_timeout`` (A-42): row 7; the driver keeps the time
- ``transition_to`` (A-43): ``advance``; who wants a log gives the loop a watcher
- ``run_cycle`` (A-44): ``AgentLoop.run``
- 强制终止 (A-45): row 8, which ``advance`` takes by itself when a limit is reached
- ``_do_act``, ``_do_observe`` (A-48, A-49): the hook ``act``, and the turn that keeps what it saw
- ``_handle_exception`` (A-50): row 8 with the reason ERROR, and the exception reaches the caller

Departures: the forced stop is legal from every live state and names its reason (EA02, EA04, EA07,
EA11); a round is counted once, not once a state (EA03); a run starts from a fresh ``Control`` (EA05);
each of the eight guards is there and is asked (EA01, EA06, EA08, EA59); no state is assigned past the
table (EA24); a failing tool is an observation and no end (EA10, chapter 20); nothing in the core prints
(EA57).

Exercises
---------
1. Write ``advance`` without the table, as plain ``if`` statements, and see what you forget:
   ``python -m pytest --impl machine=my_machine.py:advance``
2. Turn the article's ``_can_transition`` (A:105-120) into an ``advance``, word for word, and put it under
   the same command. Which promise breaks first, and which erratum is that?
3. Let REASONING go back to PERCEIVING in a copy of ``TRANSITIONS`` and draw it with ``mermaid``. Why can
   no loop with that row be proved to end, unless ``rank`` counts one thing more? Build it, and let the
   same command tell you.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentloop import (
    LIVE,
    TRANSITIONS,
    Act,
    AgentLoop,
    AgentState,
    Control,
    Event,
    EventKind,
    Finish,
    IllegalTransition,
    Limits,
    LoopContext,
    Toolbox,
    ToolCall,
    Transition,
    World,
    advance,
    drive,
    row_taken,
)
from chapters.telling import GREEN, RED, Telling
from fake_llm import get_weather

# --- Reading the table ------------------------------------------------------------------------


def mermaid(rows: Sequence[Transition] = TRANSITIONS) -> str:
    """The machine as a Mermaid state diagram. A row with many sources is explained in a note."""
    lines = ["stateDiagram-v2", f"    [*] --> {AgentState.IDLE.name}"]
    for row in rows:
        guard = f" {_in_english(row.guard)}" if len(row.sources) == 1 else ""
        lines += [f"    {source.name} --> {row.target.name}: {row.row}{guard}" for source in row.sources]
        if not guard:
            lines += [f"    note right of {row.target.name}: {row.row} {_in_english(row.guard)}"]
    return "\n".join([*lines, f"    {AgentState.TERMINATED.name} --> [*]"])


def markdown(rows: Sequence[Transition] = TRANSITIONS) -> str:
    """The machine as a Markdown table."""
    lines = ["| row | from | to | guard |", "|---|---|---|---|"]
    lines += [f"| {row.row} | {_sources(row)} | {row.target.name} | {row.guard} |" for row in rows]
    return "\n".join(lines)


def _sources(row: Transition) -> str:
    return "any live state" if row.sources == LIVE else ", ".join(source.name for source in row.sources)


def _in_english(guard: str) -> str:
    return guard.partition(" (")[0]


# --- One run, event by event ------------------------------------------------------------------

#: What happens to one loop, in order. Four of these events come at a wrong time or bring too little.
RUN = (
    ("a task arrives: 北京今天天气怎么样？", Event(EventKind.TASK_ARRIVED)),
    ("the task has been read", Event(EventKind.PERCEIVED)),
    ("the model chooses get_weather(city='北京')", Event(EventKind.ACTION_CHOSEN, calls=1)),
    ("an observation turns up before anything was asked", Event(EventKind.OBSERVED, calls=1)),
    ("the call is handed over", Event(EventKind.SUBMITTED, calls=1)),
    ("an observation arrives that answers no call", Event(EventKind.OBSERVED, calls=0)),
    ("the observation arrives: Sunny, 26", Event(EventKind.OBSERVED, calls=1)),
    ("an answer comes with nothing in it", Event(EventKind.ANSWER_GIVEN, ok=False)),
    ("the final answer comes: 晴，26 度", Event(EventKind.ANSWER_GIVEN)),
    ("a late reply chooses one more action", Event(EventKind.ACTION_CHOSEN, calls=1)),
)


def believe(state: AgentState, event: Event) -> AgentState:
    """A machine without guards: it goes where the event says, like an assignment to ``self.state``."""
    return next((row.target for row in TRANSITIONS if event.kind in row.events), state)


def without_guards(tell: Telling) -> AgentState:
    """Tell the run to a machine that believes everything, and return where that leaves it."""
    state = AgentState.IDLE
    for words, event in RUN:
        before, state = state, believe(state, event)
        tell(f"{words}\n    {before.name} -> {state.name}")
    return state


def with_guards(tell: Telling, limits: Limits) -> list[Control]:
    """Tell the same run to ``advance``, and return each control that it went through."""
    controls = [Control()]
    for words, event in RUN:
        before = controls[-1]
        try:
            after = advance(before, event, limits)
        except IllegalTransition as refusal:
            tell(f"{words}\n    REFUSED: {refusal}", RED)
            continue
        row = row_taken(before, after)
        assert row is not None, "no event of this run only spends"
        tell(f"{words}\n    {before.state.name} -> {after.state.name} by row {row.row}: {row.guard}", GREEN)
        controls.append(after)
    return controls


def ask_for_the_weather(context: LoopContext) -> Act | Finish:
    """A stand-in for a model: look once, then answer with what was seen."""
    if not context.turns:
        return Act((ToolCall("get_weather", {"city": "北京"}),), "I need to see the weather first.")
    return Finish(context.turns[-1].observations[0].text, "Now I know.")


def demo(tell: Telling) -> None:
    """A run that is believed, the same run guarded, a loop that takes the same rows, and the rows."""
    tell.heading("Without guards: whatever happens is believed")
    state = without_guards(tell)
    tell(f"The answer was given, and the loop stands in {state.name}: it acts after its own end.", RED)

    tell.heading("With guards: the same ten events")
    controls = with_guards(tell, Limits())
    refused = len(RUN) - len(controls) + 1
    stands = controls[-1].state.name
    tell(f"The loop stands in {stands}: {refused} events were refused and changed nothing.", GREEN)

    tell.heading("A stop is legal from every live state, and always has a reason")
    reached = {control.state: control for control in controls}
    for state in LIVE:
        stopped = advance(reached[state], Event(EventKind.INTERRUPTED), Limits())
        tell(f"a person interrupts in {state.name}: {stopped.state.name}, {_reason(stopped)}")
    waiting = reached[AgentState.WAITING_FOR_OBSERVATION]
    limited = advance(waiting, Event(EventKind.OBSERVED, calls=1), Limits(rounds=1))
    tell(f"a second round is wanted where one is allowed: {limited.state.name}, {_reason(limited)}")

    tell.heading("A loop takes the same rows")
    loop = AgentLoop(ask_for_the_weather, watch=tell.watch("weather"))
    tell.result(drive(loop.run("北京今天天气怎么样？"), World(tools=Toolbox([get_weather]), inline=True)))

    tell.heading("The eight rows (状态转换条件与守卫)")
    for row in TRANSITIONS:
        tell(f"{row.row}. {_sources(row)} -> {row.target.name}\n   {row.guard}")

    tell.heading("The same rows as a Mermaid diagram")
    tell(mermaid())


def _reason(control: Control) -> str:
    return control.stop.name if control.stop else "not ended"
