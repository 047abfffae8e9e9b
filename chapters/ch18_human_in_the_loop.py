"""What cannot be undone waits for a person's yes: however long that takes, and for exactly what was shown.

Article B, 外部信号, 人工审批检查点; article A, 异常处理 (人工介入) and the listing
_request_human_intervention. Covers A-124, B-36.

The rules of the chapters before end a run; this one holds up a single action. Before a file is deleted, a
configuration changed, a mail sent, a database touched or money spent (B-36), a person is shown the exact
call. ``approval(act, dangerous)`` steps whatever it wraps and looks at each ``CallTool`` that comes out
of it, not at the call that went in: what a guard inside changed, or fell back to, is asked for anew, and
what it merely repeats is not, since the same question about the same call is put once in a run (K02). What is
the same call, its id says; a call that a hook makes without one is asked for each time.

=====================  ====================================================================================
the person answers     what happens
=====================  ====================================================================================
``yes``                exactly what was shown is run
``{"path": "b.log"}``  the same tool with these arguments instead; the model is told what was run
``stop``               the whole run ends, with HUMAN, as with Ctrl-C at any other moment
anything else          nothing is run, and the words are the reason that the model is told (K07)
nobody is there        nothing is run (NO_HUMAN); or the run is left, and goes on when there is an answer
=====================  ====================================================================================

Left waiting (暂停等确认): a person who is ``Away`` leaves the run in its journal. ``DiskJournal`` keeps that
journal in an SQLite file, one row for each effect, written before it is begun and again when its outcome is
there; so another process, days later, goes on at the question, and no mail is sent twice.

Without it, the demo's model deletes the only copy of a report because its name sounds old.

``critical(act, tools)`` is the article's other person (A-124): where a critical tool has failed, somebody
decides, once: ``retry`` it once, or anything else to skip it. Nobody there: the run ends with an error. What
a person skipped is REFUSED, so that no guard outside tries it again or has another tool do it; a breaker
(chapter 21) that is to count the failure stands inside of ``critical``, next to the tool.

Departures: the article's approval changes nothing, so the same tool runs and the same question comes up in
each iteration; here the answer decides, and is given once (EA53). A person ends the run in any state, and
the turns say truly what was not run (EA07). A guard sees what its ``act`` asks for: what a hook of
another kind does, or a ``Do``, is not its business.

Exercises
---------
1. ``asked_at_the_door`` of this file looks at the call that it is given, as the first approval of many
   tutorials does. Which promises does it break?
   ``python -m pytest --impl approval=chapters/ch18_human_in_the_loop.py:asked_at_the_door``
2. Let a person approve for a while: after ``yes, all of them``, further calls of the same tool with the same
   folder are not asked for until the run ends. Which promise has to fall, and where can a guard keep such
   an answer so that a resumed run knows it too? ``python -m pytest --impl approval=my_approval.py:approval``
3. Write the journal as one JSON line for each intent and each outcome. What has to happen with half a line
   at its end? ``python -m pytest --impl disk_journal=my_journal.py:LineJournal``
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Self, TypeVar

from agentloop import (
    Address,
    AgentLoop,
    AskHuman,
    Away,
    CallModel,
    CallTool,
    Do,
    Effect,
    Failure,
    Interrupt,
    Journal,
    Kind,
    LimitReached,
    Observation,
    Outcome,
    Program,
    Reply,
    Together,
    Toolbox,
    ToolCall,
    Unavailable,
    Usage,
    World,
    call_tool,
    drive,
    on_one_line,
    settle,
)
from chapters.ch15_goal_detection import YES
from chapters.telling import BOLD, CYAN, GREEN, RED, Telling
from fake_llm import Cashier, FakeModel, calls, flaky_tool, readable
from paradigms.function_calling import function_calling

T = TypeVar("T")
Hook = Callable[[ToolCall], Any]

# --- Approval ---------------------------------------------------------------------------------

STOP = ("stop", "停止")
HOW_TO_ANSWER = (
    f"Answer yes ({', '.join(YES[1:])}), or a JSON object of other arguments, or stop ({STOP[1]}); "
    "all else is a no, and why."
)


def approval(act: Hook, dangerous: Callable[[ToolCall], str | None]) -> Hook:
    """Guard ``act``: what is dangerous in whatever it asks for is put to a person first.

    ``dangerous(call)`` says what the call does, such as "deletes a file", or ``None`` where it is harmless.
    Raises ``TypeError`` in the run for an answer that is no text. A journal holds such an answer like any
    other, and brings the same error: mend the human, and go on from ``journal.rewound(...)``.
    """
    if not callable(act) or not callable(dangerous):
        raise TypeError(f"approval(act, dangerous) takes two functions, not {act!r} and {dangerous!r}")

    def approved(call: ToolCall) -> Program[Any]:
        def gate(effect: Effect) -> Program[Outcome]:
            danger = dangerous(effect.call) if isinstance(effect, CallTool) else None
            if not isinstance(danger, str | None):
                raise TypeError(f"dangerous(call) says in words what the call does, or None, not {danger!r}")
            if danger and isinstance(effect, CallTool):
                return (yield from _once_approved(effect, danger, effect.call.id))
            return (yield effect)

        return (yield from through(settle(act(call)), gate))

    return approved


def through(program: Program[T], gate: Callable[[Effect], Program[Outcome]]) -> Program[T]:
    """Run a program with a gate before the world: ``gate(effect)`` brings the outcome of each effect.

    What runs side by side (``Together``) goes through the gate one by one.
    """
    step: Callable[[Any], Effect] = program.send
    given: Any = None
    while True:
        try:
            effect = step(given)
        except StopIteration as finished:
            value: T = finished.value
            return value
        try:
            if isinstance(effect, Together):
                programs = tuple(through(each, gate) for each in effect.programs)
                given = yield effect._replace(programs=programs)
            else:
                given = yield from gate(effect)
            step = program.send
        except GeneratorExit:
            program.close()
            raise
        except Exception as error:
            step, given = program.throw, error


def _once_approved(effect: CallTool, danger: str, about: str) -> Program[Outcome]:
    question = f"May this be done? It {danger}:\n{exactly(effect.call)}\n{HOW_TO_ANSWER}"
    answer, at = yield AskHuman(question, about)
    if word(answer) in STOP:
        yield STOP_THE_RUN
    decision = decide(effect.call, answer)
    if isinstance(decision, Observation):
        return Outcome(decision, at)
    seen, at = yield effect._replace(call=decision)
    if decision is not effect.call:
        seen = seen._replace(text=f"(A person changed the call to {exactly(decision)}.)\n{seen.text}")
    return Outcome(seen, at)


def exactly(call: ToolCall) -> str:
    """The call as a person must see it: nothing is cut, and no two calls look the same."""
    given = call.arguments.items() if isinstance(call.arguments, Mapping) else [("arguments", call.arguments)]
    return f"{_plain(call.name)}({', '.join(f'{_plain(name)}={value!r}' for name, value in given)})"


def _plain(name: object) -> str:
    return name if isinstance(name, str) and name.isidentifier() else repr(name)


def word(answer: object) -> str:
    """What a person said, if it is a single word: small, and without what stands around it.

    Raises ``TypeError`` for what no human of a ``World`` may return; nobody there is an ``Observation``.
    """
    if isinstance(answer, Observation):
        return ""
    if not isinstance(answer, str):
        raise TypeError(
            "the human of a World returns what a person said, as text such as 'yes', or raises Away where "
            f"nobody is there now; it returned {answer!r}"
        )
    return answer.strip(" \t\r\n.!。！").casefold()


def _press_ctrl_c() -> None:
    raise KeyboardInterrupt("a person stopped the run")


#: What a guard asks for after a person's stop: every driver ends the run with HUMAN, and a journal knows it.
STOP_THE_RUN = Do("stop the run, as a person said", _press_ctrl_c, repeatable=True)


def decide(call: ToolCall, answer: object) -> ToolCall | Observation:
    """What is to be run after this answer; or, where nothing is, the observation that says why."""
    if isinstance(answer, Observation):
        return Observation(f"Not run: it needs a person's approval. {answer.text}", False, Kind.NO_HUMAN)
    if word(answer) in YES:
        return call
    words = str(answer).strip()
    try:
        arguments = json.loads(words) if words.startswith("{") else None
    except (ValueError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):
        return call._replace(arguments=arguments)
    return Observation(f"Not run: a person refused it: {words or 'no reason given'}", False, Kind.REFUSED)


def asked_at_the_door(act: Hook, dangerous: Callable[[ToolCall], str | None]) -> Hook:
    """Ask about the call that comes in, and let pass whatever comes of it: not what this chapter does."""

    def approved(call: ToolCall) -> Program[Any]:
        answer = "yes"
        if danger := dangerous(call):
            answer = (yield AskHuman(f"May this be done? It {danger}: {exactly(call)}")).value
        decision = decide(call, answer)
        return decision if isinstance(decision, Observation) else (yield from settle(act(decision)))

    return approved


def person(answer: Callable[[str], str | None]) -> Callable[[str], str]:
    """Make the ``human`` of a ``World`` from what gives a person's answers, such as ``input``.

    Where it returns ``None``, nobody is there now, and the run is left (``Away``).
    """

    def human(question: str) -> str:
        said = answer(question)
        if said is None:
            raise Away(question)
        return said

    return human


# --- A critical tool that failed --------------------------------------------------------------

#: What a person can decide about. The rest is a mistake of the model's, or was a person's own decision.
FAILED = (Kind.UNAVAILABLE, Kind.TIMEOUT, Kind.UNCERTAIN, Kind.TOOL_ERROR)
#: After these nobody knows whether the call took effect.
IN_DOUBT = (Kind.TIMEOUT, Kind.UNCERTAIN)

IT_FAILED = "A critical tool failed:"
HOW_TO_DECIDE = f"Answer retry, or stop ({STOP[1]}); all else is to skip it, and why."


class CriticalToolFailure(Exception):
    """A critical tool has failed, and nobody was there to decide; ``observation`` is what came of it."""

    def __init__(self, call: ToolCall, observation: Observation) -> None:
        super().__init__(f"{exactly(call)}: {observation.kind.name}: {observation.text}")
        self.observation = observation


def critical(act: Hook, tools: Collection[str]) -> Hook:
    """Guard ``act``: where one of these tools fails, a person decides whether it is tried once more.

    Where a guard of this kind inside has asked already, that was the decision. Raises
    ``CriticalToolFailure`` where nobody is there to decide: it ends the run with ERROR; and ``TypeError``
    for an answer that is no text.
    """
    if isinstance(tools, str):
        raise TypeError(f"tools are the names of the critical ones, such as ({tools!r},), not {tools!r}")

    def guarded(call: ToolCall) -> Program[Any]:
        decided = False

        def gate(effect: Effect) -> Program[Outcome]:
            nonlocal decided
            if isinstance(effect, AskHuman) and effect.about == call.id:
                decided = decided or effect.question.startswith(IT_FAILED)
            return (yield effect)

        seen = yield from through(settle(act(call)), gate)
        if decided or call.name not in tools or seen.ok or seen.kind not in FAILED:
            return seen
        failure = f"{exactly(call)}\n{seen.kind.name}: {seen.text}"
        try:
            answer, _ = yield AskHuman(f"{IT_FAILED}\n{failure}\n{HOW_TO_DECIDE}", call.id)
            if word(answer) in STOP:
                yield STOP_THE_RUN
        except LimitReached:
            return seen
        if isinstance(answer, Observation):
            raise CriticalToolFailure(call, seen)
        if word(answer) == "retry":
            return (yield from _once_more(act, call, seen))
        told = f"{seen.text}\nA person decided: {str(answer).strip() or 'skip'}"
        return Observation(told, False, Kind.REFUSED)

    return guarded


def _once_more(act: Hook, call: ToolCall, failed: Observation) -> Program[Observation]:
    try:
        seen: Observation = yield from settle(act(call))
    except LimitReached as end:
        text = f"{failed.text}\nA person had it tried again; whether it was is not known: {end}"
        return failed._replace(text=text, kind=Kind.UNCERTAIN)
    return still_in_doubt(seen) if failed.kind in IN_DOUBT else seen


def still_in_doubt(seen: Observation) -> Observation:
    """The end of a call that was tried before, when it may have taken effect: no failure takes that back.

    So it is UNCERTAIN, and nobody has another tool do it. A refusal, which nobody goes round, stays one.
    """
    if seen.ok or seen.kind in IN_DOUBT:
        return seen
    kind = Kind.UNCERTAIN if seen.kind in FAILED else seen.kind
    return seen._replace(text=f"{seen.text} (An attempt at it may have taken effect.)", kind=kind)


# --- Outcomes as text -------------------------------------------------------------------------

#: What is written with its name, besides what JSON has words for.
VALUES: tuple[type, ...] = (Reply, Usage, ToolCall, Observation, Kind, Failure)

#: How deep an outcome may be nested, and how many digits a number may have: all that any Python reads again.
DEEPEST, LONGEST = 100, 4000
TOO_LARGE = 10**LONGEST


class Unwritable(TypeError):
    """An outcome holds something that cannot be written down; the message begins with the path to it."""


def encode(value: Any, types: Iterable[type] = VALUES, path: str = "", deeper: int = DEEPEST) -> Any:
    """Turn a value into what JSON has words for, so that ``decode`` brings back an equal one.

    An object holds one name, that of the type, and its parts. Raises ``Unwritable`` naming the path, such
    as ``tools[0].lock``, also for what is nested more than ``deeper`` times.
    """
    kind = type(value)
    if deeper < 0:
        raise Unwritable(f"{on_one_line(path, 80)} is nested more than {DEEPEST} deep")
    if kind is int and abs(value) >= TOO_LARGE:
        raise Unwritable(f"{path or 'the outcome'} is a number of more than {LONGEST} digits")
    if value is None or kind in (bool, int, float):
        return value
    if kind is str:
        return value if _is_text(value) else {"utf8": value.encode("utf-8", "surrogatepass").hex()}
    if kind is dict:
        named = [(key, _at(path, key)) for key in value]
        parts = [[encode(each, types, at, deeper - 1) for each in (key, value[key])] for key, at in named]
        return {"dict": parts}
    if kind is list or kind is tuple or (kind in types and isinstance(value, tuple)):
        names = getattr(value, "_fields", None)
        where = [_at(path, name) for name in names] if names else [f"{path}[{n}]" for n in range(len(value))]
        parts = [encode(each, types, place, deeper - 1) for each, place in zip(value, where, strict=True)]
        return parts if kind is list else {kind.__name__: parts}
    if kind in types and isinstance(value, Enum):
        return {kind.__name__: value.name}
    raise Unwritable(f"{path or 'the outcome'} is of type {kind.__name__}, which is not data{_named(kind)}")


def decode(data: Any, types: Iterable[type] = VALUES) -> Any:
    """Bring back what ``encode`` wrote. Raises ``ValueError`` for anything that it did not write."""
    if isinstance(data, list):
        return [decode(each, types) for each in data]
    if not isinstance(data, dict):
        return data
    try:
        [(name, parts)] = data.items()
        if name == "utf8":
            return bytes.fromhex(parts).decode("utf-8", "surrogatepass")
        if name == "dict":
            return {decode(key, types): decode(each, types) for key, each in parts}
        if name == "tuple":
            return tuple(decode(parts, types))
        kind: Any = {each.__name__: each for each in types}[name]
        return kind[parts] if issubclass(kind, Enum) else kind(*decode(parts, types))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not an outcome that was written here: {on_one_line(str(data), 80)}") from error


def _named(kind: type) -> str:
    """What has to be said of a type that could be written, had somebody named it."""
    can_be = issubclass(kind, Enum) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    return f" unless it is named: DiskJournal(path, types=({kind.__name__},))" if can_be else ""


def _at(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which a model may write, and no file can hold
        return False
    return True


# --- The journal on disk ----------------------------------------------------------------------

EFFECTS = """
CREATE TABLE IF NOT EXISTS effects (
    address TEXT PRIMARY KEY,  -- where it stands in the program: 3, or 4.0.1 for strands side by side
    asked   TEXT NOT NULL,     -- what was asked for, written before it is begun
    arrived INTEGER,           -- its place in the order of outcomes; NULL: nobody knows what came of it
    value   TEXT,              -- what came of it
    at      REAL               -- the run's time then, in seconds
) WITHOUT ROWID
"""


class NoRun(ValueError):
    """The file holds something else than a run of ours. It has not been changed."""


class DiskJournal(Journal):
    """A journal in an SQLite file, where it outlives its process; ``with DiskJournal(path) as journal:``.

    An effect is a row, on disk before it is begun and again before the program hears what came of it.
    ``types`` are NamedTuples and enumerations of your own that outcomes hold. Raises ``Unwritable`` for an
    outcome that cannot be written; all that was recorded before it stays. Raises ``NoRun`` for a file with
    other tables or that is no database, and ``FileNotFoundError`` where there is no such folder.
    """

    def __init__(self, path: str | Path, types: Iterable[type] = ()) -> None:
        super().__init__()
        self._types = (*VALUES, *types)
        folder = Path(path).parent
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no folder {folder} for the journal {Path(path).name}")
        if Path(path).is_dir():
            raise NoRun(f"this is a folder, and no run of ours: {path}")
        # Whichever thread steps the program writes, and only one at a time does.
        self.database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            self._open()
        except BaseException:
            self.database.close()
            raise

    def _open(self) -> None:
        try:
            self._refuse_others()
            self.database.execute(EFFECTS)
            self._read()
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
                raise  # it may be a run, and somebody else holds it
            raise NoRun(f"this file cannot be read as a run of ours: {error}") from error

    def _refuse_others(self) -> None:
        tables = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite%'"
        others = sorted({name for (name,) in self.database.execute(tables)} - {"effects"})
        if others:
            raise NoRun(f"this file holds other tables ({', '.join(others)}): it is no run of ours")

    def _read(self) -> None:
        rows = "SELECT address, asked, arrived, value, at FROM effects ORDER BY arrived, address"
        for address, asked, arrived, value, at in self.database.execute(rows):
            place, asked = tuple(map(int, address.split("."))), self._loaded(asked)
            if arrived is None:
                self.intents[place] = asked
            else:
                self.outcomes.append((place, asked, Outcome(self._loaded(value), at)))

    def intend(self, address: Address, asked: str) -> None:
        self._write(address, asked, None, None, None)
        super().intend(address, asked)

    def record(self, address: Address, asked: str, outcome: Outcome) -> None:
        self._write(address, asked, len(self.outcomes) + 1, self._dumped(outcome.value), outcome.at)
        super().record(address, asked, outcome)

    def close(self) -> None:
        """Let go of the file. Closing twice changes nothing."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _write(
        self, address: Address, asked: str, arrived: int | None, value: str | None, at: float | None
    ) -> None:
        row = (".".join(map(str, address)), self._dumped(asked), arrived, value, at)
        self.database.execute("INSERT OR REPLACE INTO effects VALUES (?, ?, ?, ?, ?)", row)

    def _dumped(self, value: Any) -> str:
        return json.dumps(encode(value, self._types), ensure_ascii=False, separators=(",", ":"))

    def _loaded(self, text: str) -> Any:
        return decode(json.loads(text), self._types)


# --- The story --------------------------------------------------------------------------------

TASK = "清理办公室的旧文件，然后写信告诉全体同事。"
FILES = {"缓存.tmp": "0101", "旧年度报告.docx": "唯一的一份", "通讯录.txt": "小王 小李"}
REFUSAL = "不行，旧年度报告只有这一份"
CORRECTED = '{"to": "全体同事", "text": "缓存已清理，年度报告保留。"}'

#: What needs a yes (article B, line 91: 删文件、改配置、发邮件、动数据库、计费).
DANGERS = {
    "delete_file": "deletes a file",
    "set_option": "changes the configuration",
    "send_mail": "sends a mail",
    "run_sql": "touches the database",
    "pay": "spends money",
}


def is_dangerous(call: ToolCall) -> str | None:
    """Say by its name what a tool of this office does that cannot be undone."""
    return DANGERS.get(call.name)


class Office:
    """A folder of files and an outbox, all on disk: what is done there stays done."""

    def __init__(self, folder: Path) -> None:
        self.files, self.outbox = folder / "files", folder / "outbox.txt"

    @property
    def tools(self) -> Toolbox:
        return Toolbox([self.list_files, self.delete_file, self.send_mail], idempotent=["list_files"])

    def list_files(self) -> str:
        """List the files."""
        return "、".join(sorted(file.name for file in self.files.iterdir()))

    def delete_file(self, name: str) -> str:
        """Delete a file for good."""
        if name not in FILES:
            raise LookupError(f"there is no file {name!r}")
        (self.files / name).unlink()
        return f"{name} 已删除"

    def send_mail(self, to: str, text: str) -> str:
        """Send a mail."""
        with open(self.outbox, "a", encoding="utf-8") as outbox:
            outbox.write(f"{to}：{text}\n")
        return f"已发送给{to}"

    def shown(self) -> str:
        """What there is now, in a line."""
        sent = self.outbox.read_text(encoding="utf-8").strip() if self.outbox.exists() else "nothing"
        return f"files: {self.list_files()}; sent: {sent}"


def cleaner(request: CallModel) -> Reply | str:
    """A model that tidies up by the names of the files, and hears what it is told."""
    made = [call.name for message in request.messages for call in message.calls]
    if "list_files" not in made:
        return calls(("list_files", {}), text="先看看有什么。")
    if "delete_file" not in made:
        deletions = [("delete_file", {"name": name}) for name in ("缓存.tmp", "旧年度报告.docx")]
        return calls(*deletions, text="名字里有“旧”和“缓存”的，都可以删。")
    if "send_mail" not in made:
        return calls(("send_mail", {"to": "全体同事", "text": "旧文件已全部删除。"}), text="告诉大家。")
    return "清理完毕，年度报告保留。" if REFUSAL in readable(request.messages) else "清理完毕。"


def careful(question: str) -> str | None:
    """A person who reads what is asked, and is out of the office when it comes to mails."""
    if "send_mail" in question:
        return None
    return REFUSAL if "年度报告" in question else "yes"


def payer(request: CallModel) -> Reply | str:
    """A model that pays a bill once and reports what came of it."""
    if not any(message.calls for message in request.messages):
        return calls(("pay", {"amount": 300}), text="付电费。")
    return "电费已付。" if "已支付" in readable(request.messages) else "电费没有付成。"


class Desk:
    """A person's desk: each question is told, and the answer; ``answers`` is what the person would say."""

    def __init__(self, tell: Telling, answers: Callable[[str], str | None]) -> None:
        self.tell, self.answers = tell, answers

    def answer(self, question: str) -> str | None:
        said = self.answers(question)
        asked, what = question.splitlines()[:2]
        self.tell(f"  {asked} {what}", CYAN)
        self.tell(f"  person: {said}" if said else "  (nobody is there)", BOLD)
        return said


def tidy(tell: Telling, name: str, folder: Path, act: Hook, answers: Callable[[str], str | None]) -> None:
    """One run in an office, with everything made anew but what is on disk there."""
    office = Office(folder)
    loop = AgentLoop(function_calling(office.tools), act, watch=tell.watch(name))
    world = World(FakeModel(cleaner), office.tools, person(Desk(tell, answers).answer), inline=True)
    try:
        with DiskJournal(folder / "journal.db") as journal:
            tell.result(drive(loop.run(TASK), world, journal))
    except Away as left:
        tell(f"The run is left, waiting for an answer to: {str(left).splitlines()[1]}", BOLD)
    tell(office.shown())


def demo(tell: Telling) -> None:
    """Files gone and files kept; a run left, and gone on with; a run stopped; a bill that is tried again."""
    tell(f"task: {TASK}")
    asking = approval(call_tool, is_dangerous)
    with tempfile.TemporaryDirectory() as here:
        unasked, asked, stopped, broken = (furnished(Path(here, str(number))) for number in range(4))

        tell.heading("Nobody is asked")
        tidy(tell, "unasked", unasked, call_tool, careful)
        tell(f"旧年度报告.docx was {FILES['旧年度报告.docx']}.", RED)

        tell.heading("The same model asks first: a yes, a no, and then the person has gone home")
        tidy(tell, "asked", asked, asking, careful)

        tell.heading("Days later, in another process: nothing is left but the files, and the answer comes")
        tidy(tell, "resumed", asked, asking, lambda question: CORRECTED)
        with DiskJournal(asked / "journal.db") as journal:
            kinds = Counter(line.split()[0] for _, line, _ in journal.outcomes)
        done = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        tell(f"Both processes together: {done}", GREEN)

        tell.heading("Whoever is asked may stop the whole run")
        tidy(tell, "stopped", stopped, asking, lambda question: "stop")

        tell.heading("And so may anybody at any other moment: here while the model thinks (人工中断)")
        break_in(tell, Office(broken))

    tell.heading("A critical tool fails, and the model alone has to live with it")
    tell_of_a_bill(tell, "alone", call_tool)
    tell.heading("The same, and a person decides, once")
    tell_of_a_bill(tell, "critical", critical(call_tool, ("pay",)))


def furnished(folder: Path) -> Path:
    """A folder with the files of an office in it."""
    (folder / "files").mkdir(parents=True)
    for name, text in FILES.items():
        (folder / "files" / name).write_text(text, encoding="utf-8")
    return folder


def break_in(tell: Telling, office: Office) -> None:
    """Stop a run from outside, in its second round."""
    interrupt = Interrupt()

    def model(request: CallModel) -> Reply | str:
        if any(message.calls for message in request.messages):
            interrupt.set()
        return cleaner(request)

    loop = AgentLoop(function_calling(office.tools), watch=tell.watch("broken into"))
    tell.result(drive(loop.run(TASK), World(model, office.tools, inline=True), interrupt=interrupt))
    tell(office.shown())


def tell_of_a_bill(tell: Telling, name: str, act: Hook) -> None:
    """A bill, and a bank that is closed the first time."""
    tools = Toolbox([flaky_tool(Cashier().pay, 1, Unavailable("the bank opens in a minute"))])
    loop = AgentLoop(function_calling(tools), act, watch=tell.watch(name))
    human = person(Desk(tell, lambda question: "retry").answer)
    tell.result(drive(loop.run("付 300 元电费。"), World(FakeModel(payer), tools, human, inline=True)))
