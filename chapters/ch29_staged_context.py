"""Show everything while the plan is made, and to each step of it only what that step needs.

Article B, 三种处理策略 (循环的第 N 轮不是免费的, 分阶段策略) and 增长的量级. Covers B-52, B-54.

Chapters 25 to 28 bounded what is shown by one rule for the whole run. But a run has stages: whoever plans
must know all that was said, and whoever books the third ticket needs the plan, and what the second booking
brought. ``staged`` is a view that knows the difference (分阶段策略): all turns until a plan is written, and
from then on the plan and the last turns. Like every view it is one argument of any loop. Chapter 13 takes
the same road to its end: there, each step of the plan has a loop, and so a history, of its own.

Without it there is a choice of two evils. A short view from the start makes a plan that forgets what was
said first. The whole history in every round is paid for in every round: the N-th round is not free (B-52),
and the sum grows with the square of N. Nor is it only paid for: a model attends to the beginning and the end
of a long prompt, and overlooks what lies in its middle (lost in the middle; Liu et al., 2023). That is shown
with a simulated reader, whose recall depends on the position: the shape is theirs, the figures are chosen.

Departures: article B counts what ten turns add, 2,000 tokens, and compares that with a window of 100K; what
is paid is the sum of all requests, which all begin with the whole history (EB11). So "100 small calls" do
reach a budget of 50,000 tokens, in round 20 or so (later in chapter 16, where a round brings less); and the
request that would cross it is not sent (EB12).

Exercises
---------
1. ``planned_once`` below is a view of two stages as a first attempt writes it. What does it break?
   ``python -m pytest --impl staged=chapters/ch29_staged_context.py:planned_once``
2. A step that brings much needs more room than one that brings little. Let the executing stage show as many
   turns as fit into a window, by ``keep_last``: ``python -m pytest --impl staged=my_view.py:staged``,
   and put one of its views under the promises of all views: ``--impl view=my_view.py:view``
3. Add a strategy of your own to ``STRATEGIES``, and see which of the three stamps it keeps at 1,000 turns, at
   which price. Its view has to keep its promises first: ``python -m pytest --impl view=my_view.py:view``
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from agentloop import RESEARCH, AgentLoop, CallModel, Limits, LoopContext, Result, Toolbox, World, drive
from chapters.telling import RED, Telling, ending
from fake_llm import FakeModel, readable
from fake_llm.reader import Guidebook, lost_in_the_middle, reader
from paradigms.arguments import require
from paradigms.memory import Notebook, noting
from paradigms.prompt import Block, Prompt, View, last_turns, whole_history
from paradigms.react import react
from paradigms.store import Store
from paradigms.views import keep_head_and_tail, keep_last, left_out, summarise

# --- The view -----------------------------------------------------------------------------------


def staged(plan: str, last: int = 2) -> View:
    """Make the view of two stages (分阶段策略): ``plan`` is the tool by which the model writes its plan.

    Until a call of it has succeeded, every turn is shown; then the turn of the latest plan, and the ``last``
    turns after it. Raises ``ValueError`` for a number below 1.
    """
    require("last", last, 1)

    def view(prompt: Prompt) -> Sequence[Block]:
        planned = _latest_plan(prompt, view, plan)
        if planned is None:
            return prompt.turns
        first = max(planned + 1, len(prompt.turns) - last)
        before = (left_out(1, planned),) if planned else ()
        between = (left_out(planned + 2, first),) if first > planned + 1 else ()
        return (*before, prompt.turns[planned], *between, *prompt.turns[first:])

    return view


def _latest_plan(prompt: Prompt, view: View, plan: str) -> int | None:
    """The place of the turn that made the plan; each turn is looked at once in a run."""
    turns = prompt.context.turns
    seen: int
    planned: int | None
    seen, planned = prompt.context.private.get(view, (0, None))
    for place in range(seen, len(turns)):
        pairs = zip(turns[place].calls, turns[place].observations, strict=True)
        if any(call.name == plan and observation.ok for call, observation in pairs):
            planned = place
    prompt.context.private[view] = len(turns), planned
    return planned


def planned_once(plan: str, last: int = 2) -> View:
    """A first attempt: it is content with the first plan that was called for, and marks no gap."""

    def view(prompt: Prompt) -> Sequence[Block]:
        for place, turn in enumerate(prompt.context.turns):
            if any(call.name == plan for call in turn.calls):
                return (prompt.turns[place], *prompt.turns[place + 1 :][-last:])
        return prompt.turns

    return view


# --- The arithmetic of growth ---------------------------------------------------------------------


def sent_in_all(rounds: int, head: int, turn: int) -> int:
    """The tokens of all requests of so many rounds, if all history is shown and each turn adds ``turn``."""
    return rounds * head + turn * rounds * (rounds - 1) // 2


# --- The world: letters of a family, and a ticket office ------------------------------------------

LETTERS = 12
WISHES = {1: "颐和园", 6: "国家博物馆", 12: "动物园"}  # by the letter that tells of it
CHAT = "这边一切都好，天气也不错，院子里的石榴开花了，邻居家的猫又来过两回。" * 5


class Office:
    """Holds the letters, checks what is open, and sells tickets. ``tickets`` are those sold."""

    def __init__(self) -> None:
        self.tickets: list[str] = []
        self.tools = Toolbox([self.read_letter, self.write_plan, self.check_open, self.book_ticket])

    def read_letter(self, number: int) -> str:
        """Read one of the family's letters."""
        wish = f"这次来北京，想去{WISHES[number]}。" if number in WISHES else ""
        return f"第 {number} 封，共 {LETTERS} 封：{CHAT}{wish}"

    def write_plan(self, steps: list[str]) -> str:
        """Write down the plan: the places to go to, in order."""
        return f"plan of {len(steps)} steps"

    def check_open(self, place: str) -> str:
        """Check when a place is open."""
        return f"{place}开放：9:00 到 17:00"

    def book_ticket(self, place: str) -> str:
        """Book tickets for a place."""
        self.tickets.append(place)
        return f"已出票：{place}"


def secretary(request: CallModel) -> str:
    """Read the letters, plan for all wishes that are in the prompt, and carry the plan out, step by step."""
    shown, latest = readable(request.messages[2:]), request.messages[-1].content
    plan = re.findall(r"write_plan\(steps=\[(.*?)\]\)", shown)
    if plan:
        return _next_step(re.findall(r'"(.+?)"', plan[-1]), latest)
    read = re.findall(r"第 (\d+) 封，共", latest)
    number = int(read[0]) + 1 if read else 1
    if number <= LETTERS:
        return f"Thought: 看下一封信。\nAction: read_letter(number={number})"
    steps = ", ".join(f'"{wish}"' for wish in dict.fromkeys(re.findall(r"想去(\w+)。", shown)))
    return f"Thought: 信都看过了。\nAction: write_plan(steps=[{steps}])"


def _next_step(steps: Sequence[str], latest: str) -> str:
    if opened := re.search(r"Observation: (\w+)开放", latest):
        return f'Thought: 开放，订票。\nAction: book_ticket(place="{opened[1]}")'
    booked = re.search(r"已出票：(\w+)", latest)
    left = steps[steps.index(booked[1]) + 1 :] if booked else steps
    if left:
        return f'Thought: 下一站。\nAction: check_open(place="{left[0]}")'
    return f"Thought: 都订好了。\nAction: Finish[订好了：{'、'.join(steps)}]"


# --- The strategies of five chapters, in one run each ---------------------------------------------


class Strategy(NamedTuple):
    """What is shown of the history, and whether the model keeps notes (chapter 28) besides."""

    name: str
    view: View
    notes: bool = False


class Measured(NamedTuple):
    """What came of one run: each request, and which of the stamps asked for were answered."""

    requests: Sequence[CallModel]
    answered: tuple[bool, ...]
    result: Result

    @property
    def sizes(self) -> list[int]:
        return [request.tokens for request in self.requests]


WINDOW = 2_000  # tokens, of the views that are held to one

STRATEGIES = (
    Strategy("none", whole_history),
    Strategy("last_turns(5)", last_turns(5)),
    Strategy(f"keep_last({WINDOW})", keep_last(WINDOW)),
    Strategy(f"keep_head_and_tail(2, 5, {WINDOW})", keep_head_and_tail(2, 5, WINDOW)),
    Strategy(f"summarise({WINDOW})", summarise(WINDOW)),
    Strategy("last_turns(5), and notes", last_turns(5), notes=True),
)


def measured(book: Guidebook, strategy: Strategy, store: Store, limits: Limits | None = None) -> Measured:
    """Read a book from beginning to end, then answer; with limits that such a run can reach its end in."""
    notebook = Notebook(store, f"{strategy.name}, {book.task}")
    noted = (notebook.write_note, notebook.read_notes) if strategy.notes else ()
    tools, model = Toolbox([book.read_page, *noted]), reader(recall=lost_in_the_middle)
    reason: Callable[[LoopContext], Any] = react(tools, strategy.view)
    if strategy.notes:
        reason, model = noting(reason, notebook=notebook), note_taking(model)
    loop = AgentLoop(reason, limits=limits or enough_for(book.pages))
    result = drive(loop.run(book.task), World(model, tools, inline=True))
    return Measured(model.requests, book.answered(result.answer), result)


def enough_for(pages: int) -> Limits:
    """Limits for a run of so many pages: finite, as all are, and out of the way of the measurement."""
    rounds = 2 * pages + 10
    return Limits(rounds, 2 * rounds, rounds, 5 * rounds, tokens=10**9)


def note_taking(model: FakeModel) -> FakeModel:
    """The same model with one habit more: it notes a stamp that the task asks for as soon as it sees it."""

    def respond(request: CallModel) -> Any:
        seen = re.search(r"Observation: .*(第(\d+)页)的印章是\d+", request.messages[-1].content)
        if seen and seen[1] in request.messages[1].content.partition("报出")[2]:
            stamp = seen[0][seen.start(1) - seen.start() :]
            return f'Thought: 要记住。\nAction: write_note(topic="{seen[1]}", text="{stamp}")'
        return model(request)

    return FakeModel(respond)


# --- The story ------------------------------------------------------------------------------------

TASK = "看完家里的来信，把他们想去的地方都订好票"
READERS, FEW = 50, 10
LENGTHS = (10, 100, 1000)  # of runs, in turns


def demo(tell: Telling) -> None:
    """What ten rounds cost; a plan and its steps under three views; what is overlooked; every strategy."""
    with TemporaryDirectory() as folder:
        store = Store(Path(folder) / "notes.sqlite")
        _growth(tell, store)
        _stages(tell)
        _lost_in_the_middle(tell, store)
        _every_strategy(tell, store)


def _growth(tell: Telling, store: Store) -> None:
    tell.heading("Round N is not free: tokens sent in each of ten rounds, if all history is shown")
    none = STRATEGIES[0]
    runs = {rounds: measured(Guidebook(rounds - 1), none, store) for rounds in (3, 10, 30, 100)}
    sizes = runs[10].sizes
    tell.plot({"tokens sent": sizes})
    head, turn = sizes[0], (sizes[-1] - sizes[0]) // (len(sizes) - 1)
    tell(f"\nSystem prompt and task take {head} tokens, and a turn adds {turn}. In all:")
    rows = [
        (rounds, run.sizes[-1], sum(run.sizes), sent_in_all(rounds, head, turn))
        for rounds, run in runs.items()
    ]
    tell.table([("rounds", "last request", "all requests", "n * head + n * (n - 1) / 2 * turn"), *rows])
    times = sum(runs[30].sizes) / sum(runs[3].sizes)
    tell(f"30 rounds cost {times:.0f} times what 3 rounds do, not 10 times.", RED)
    tell("(In chapter 16 it is fewer times: beside its system prompt and task, a round is smaller.)")
    run = measured(Guidebook(99), none, store, Limits(rounds=100, model_calls=100, tool_calls=100))
    control = run.result.control
    tell(f"100 small calls under the default budget: {ending(control)}", RED)
    tell(f"{control.tokens} tokens were spent; the request that would have crossed the budget was not sent.")


def _stages(tell: Telling) -> None:
    tell.heading("A plan and its steps: the same model, the same letters, three views (分阶段策略)")
    tell(f"task: {TASK}")
    rows: list[tuple[object, ...]] = [
        ("view", "to plan", "for each step", "in all", "ended with", "tickets sold")
    ]
    curves: dict[str, Sequence[int]] = {}
    for name, view in (
        ("last_turns(2)", last_turns(2)),
        ("whole_history", whole_history),
        ('staged("write_plan", 2)', staged("write_plan", 2)),
    ):
        office, model = Office(), FakeModel(secretary)
        loop = AgentLoop(react(office.tools, view), limits=RESEARCH)
        result = drive(loop.run(TASK), World(model, office.tools, inline=True))
        curves[name] = sizes = [request.tokens for request in model.requests]
        steps, sold = sizes[LETTERS + 1 :], "、".join(office.tickets)
        rows.append(
            (name, sizes[LETTERS], f"{min(steps)} to {max(steps)}", sum(sizes), result.stop.name, sold)
        )
    tell.table(rows)
    tell("Under the first, two wishes are forgotten, then the plan too: it reads the letters again.", RED)
    tell("\nTokens sent in each round:")
    tell.plot({name: curves[name] for name in [*curves][1:]})
    tell("\nWhat the model is shown in the last round of the last run, after the task:")
    tell(readable(model.requests[-1].messages[2:]))


def _lost_in_the_middle(tell: Telling, store: Store) -> None:
    tell.heading("Lost in the middle: a simulated reader, whose recall depends on the position")
    book = Guidebook(41, asked=range(1, 42, 5))
    columns = []
    for strategy in (
        Strategy("whole history", whole_history),
        Strategy("and notes at its head", whole_history, notes=True),
        Strategy("5 last turns, and notes", last_turns(5), notes=True),
    ):
        request = measured(book, strategy, store).requests[-1]
        bars = (f"{number:3}  {'#' * (number // 2)}" for number in recalled(book, request, READERS))
        columns.append((f"{strategy.name} ({request.tokens})", *bars))
    tell(f"How many of {READERS} such readers tell the stamp of a page, from a prompt of so many tokens:")
    tell.table(zip(("page", *book.asked), *columns, strict=True))


def recalled(book: Guidebook, request: CallModel, readers: int) -> list[int]:
    """The same prompt, read by so many readers: for each stamp that is asked for, how many tell it."""
    each = [reader(recall=lost_in_the_middle, seed=seed) for seed in range(readers)]
    answers = [book.answered(one(request).text) for one in each]
    return [sum(told) for told in zip(*answers, strict=True)]


def _every_strategy(tell: Telling, store: Store) -> None:
    tell.heading("Every strategy, in a run of so many turns: what was sent, and which stamps were answered")
    tell(f"Of {FEW} such readers of the last request, so many tell the stamp of an early, middle, late page:")
    rows: list[tuple[str, ...]] = [
        ("turns", "strategy", "tokens sent", "largest request", "early", "middle", "late")
    ]
    in_all: list[int] = []
    for pages in LENGTHS:
        for strategy in STRATEGIES:
            book = Guidebook(pages)
            run = measured(book, strategy, store)
            told = map(str, recalled(book, run.requests[-1], FEW))
            in_all.append(sum(run.sizes))
            rows.append((f"{pages:,}", strategy.name, f"{in_all[-1]:,}", f"{max(run.sizes):,}", *told))
        rows.append(("",) * len(rows[0]))
    tell.table(rows[:-1])
    none, *_, notes = in_all[-len(STRATEGIES) :]
    times = none / notes
    tell(f"\nAt {LENGTHS[-1]} turns the whole history costs {times:.0f} times what notes do, and tells less.")
    tell("But summary and notes knew from the task what would be asked: what nobody asks for, they lose.")
