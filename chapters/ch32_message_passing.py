"""Agents that share nothing send letters, and a conversation has an end that no word in a letter can fake.

Article A, 多Agent场景下的Loop同步, 消息传递. Covers A-133.

Chapter 31 took one run to another process; from here on, several loops work together. The first way is the
one of AutoGen, and before it of the actor model (Hewitt, 1973): every agent has a mailbox and a loop of its
own, knows what it has received and sent and nothing else, and is reached by messages alone. So agents are
loosely coupled (松耦合), and hard to time (时序控制困难), as the article says: who waits for whom, in which
order things come, and when it is over. That is what ``Conversation`` settles:

- **It ends.** By structure: a letter that is marked ``done``. ``draft_of`` marks one whose last line is
  ``TERMINATE`` and nothing else; the word in a sentence is a word in a sentence (M01). Or else by a bound on
  letters, or by the account. The reason is in the ``Transcript``.
- **Nobody waits for ever.** Where all wait and no letter is under way, that is a deadlock, and it is named.
- **The post may be bad.** Letters may come late, twice or in another order: they are numbered, and an
  ``Inbox`` hands out each one once, and those of one sender in the order in which they were sent. Between
  senders nothing is promised. A letter that is lost ends in a deadlock that names the gap.
- **Nobody writes into the void.** A letter to a name that there is not comes back with the names there are.

Without it, two polite agents thank each other until the budget is gone, or stop at the first sentence that
mentions the end. The demo shows both.

An agent is a behaviour: ``behave(letter, earlier)`` answers a letter with drafts, and may be a program.
``talking`` makes one from a whole ``AgentLoop``, run once for each letter. All agents are programs under one
``Together``, so each goes at its own pace; who has no letter sleeps, a little longer each time. The post
office belongs to the conversation's program and follows from what came back to it, hence no lock and no
``Do``, and a journal brings it back as it was; what is shared with other programs is chapter 33. (Letters, a
mailbox, the post and the lives of the agents are four parts, which makes this chapter longer than others.)

Departures: none; the article prints no code for it. M01's reason ``max_rounds`` is ``BrokenOff.MESSAGES``.

Exercises
---------
1. ``any_mention`` below is how many programs look for the end. Which promises does it break?
   ``python -m pytest --impl draft=chapters/ch32_message_passing.py:any_mention``
2. An ``Inbox`` waits for a lost letter as long as the conversation lasts. Write one that gives it up when ten
   later ones of its sender have come: ``python -m pytest --impl inbox=my_inbox.py:Inbox``
3. Let a behaviour hire a new agent (the actor model's third right, besides sending and changing), and see
   who has to know of it: ``python -m pytest --impl conversation=my_agents.py:Conversation``
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from agentloop import (
    RESEARCH,
    AgentLoop,
    CallModel,
    LimitReached,
    Limits,
    Program,
    Sleep,
    StopReason,
    Together,
    Toolbox,
    World,
    bounded,
    drive,
    on_one_line,
    settle,
)
from chapters.telling import BOLD, DIM, GREEN, RED, Telling
from fake_llm import FakeClock, FakeModel
from paradigms.arguments import require
from paradigms.function_calling import function_calling

# --- Letters ----------------------------------------------------------------------------------


class Draft(NamedTuple):
    """A letter as its writer leaves it: to whom, what it says, and whether all is done with it."""

    to: str
    text: str
    done: bool = False


class Letter(NamedTuple):
    """A letter under way. ``number`` counts its sender's letters to this receiver: 1, 2, 3, ..."""

    sender: str
    to: str
    number: int
    text: str
    done: bool = False


#: How an agent answers a letter, given those that it has received and sent earlier; it may be a program.
Behaviour = Callable[[Letter, tuple[Letter, ...]], Iterable[Draft] | Program[Iterable[Draft]]]

MARKER = "TERMINATE"  # AutoGen's word


def draft_of(text: str, to: str) -> Draft:
    """What a model wrote, as a draft: to ``to``, unless its first line is ``To:`` and another name.

    It is done where the marker stands alone on the last line.
    """
    lines = text.strip().split("\n")
    done = lines[-1].strip() == MARKER
    if done:
        lines.pop()
    if lines and lines[0].startswith("To:"):
        to = lines.pop(0).removeprefix("To:").strip() or to
    return Draft(to, "\n".join(lines).strip(), done)


class Inbox:
    """What has come for one agent: handed out once, and of each sender in the order in which it was sent."""

    def __init__(self) -> None:
        self._came: dict[tuple[str, int], Letter] = {}  # in the order of arrival; a double has no room
        self._taken: Counter[str] = Counter()  # of each sender, the number that was handed out last

    def put(self, letter: Letter) -> None:
        """A letter arrives, perhaps not for the first time."""
        if letter.number > self._taken[letter.sender]:
            self._came[letter.sender, letter.number] = letter

    def next(self) -> Letter | None:
        """The letter that ``take`` would hand out now: of those whose turn it is, the first to arrive."""
        turns = (each for each in self._came.values() if each.number == self._taken[each.sender] + 1)
        return next(turns, None)

    def take(self) -> Letter | None:
        """Hand out a letter; ``None`` where there is none whose turn it is."""
        letter = self.next()
        if letter is not None:
            self._taken[letter.sender] = letter.number
            del self._came[letter.sender, letter.number]
        return letter

    def gaps(self) -> list[tuple[str, int]]:
        """The sender and number of each letter that others wait for."""
        return sorted({(sender, self._taken[sender] + 1) for sender, _ in self._came} - self._came.keys())


# --- The post office --------------------------------------------------------------------------

#: How the post treats a letter: for each copy, how many visits to the post office later it arrives.
Carry = Callable[[Letter], Iterable[int]]

POST = "post office"
NO_ANSWER = "Not delivered: the letter that is done is the answer, and yours says nothing. Write the answer."


def at_once(letter: Letter) -> Iterable[int]:
    """The post at its best: one copy, there before the next look."""
    return (0,)


class BrokenOff(Enum):
    """Why a conversation ended without an answer, where no limit of the account ended it."""

    MESSAGES = "no message is left"
    DEADLOCK = "all wait, and no message is under way"


class PostOffice:
    """Takes letters and brings them, and sees when there is nothing more to come.

    ``ended`` is why the conversation is over: the letter that is done, a reason, or what an agent raised.
    """

    def __init__(self, names: Iterable[str], messages: int, carry: Carry) -> None:
        self.inboxes = {name: Inbox() for name in names}
        self.letters: list[Letter] = []
        self.dead: list[Letter] = []
        self.ended: Letter | BrokenOff | Exception | None = None
        self._messages, self._carry = messages, carry
        self._sent: Counter[tuple[str, str]] = Counter()
        self._under_way: list[tuple[int, Letter]] = []  # the visit at which it arrives
        self._visits = 0
        self._waiting: set[str] = set()

    def send(self, sender: str, draft: Draft) -> None:
        """Take a letter, unless it is all over; the one that is one too many ends it."""
        if self.ended is not None:
            return
        if len(self.letters) == self._messages:
            self.ended = BrokenOff.MESSAGES
            return
        to, text, done = draft
        if done and not text.strip():
            self.send(POST, Draft(sender, NO_ANSWER))
            return
        self._sent[sender, to] += 1
        letter = Letter(sender, to, self._sent[sender, to], text, done)
        self.letters.append(letter)
        if done:
            self.ended = letter
        elif to in self.inboxes:
            self._under_way += [(self._visits + delay, letter) for delay in self._carry(letter)]
        else:
            self.dead.append(letter)
            if to != POST:  # else a polite agent and the post would write to each other
                known = f"Nobody here is called {to!r}; here are {', '.join(self.inboxes)}."
                self.send(POST, Draft(sender, f"{known} Not delivered: {on_one_line(text)}"))

    def take(self, name: str) -> Letter | None:
        """The next letter for ``name``; ``None`` where it has to wait, or all is over."""
        self._visits += 1
        self._bring(self._visits)
        letter = self.inboxes[name].take()
        if letter is not None:
            self._waiting.discard(name)
            return letter
        self._waiting.add(name)
        something_comes = self._under_way or any(inbox.next() for inbox in self.inboxes.values())
        if len(self._waiting) == len(self.inboxes) and not something_comes:
            self.ended = self.ended or BrokenOff.DEADLOCK
        return None

    def _bring(self, visit: int) -> None:
        """Put what arrives by this visit into the inboxes."""
        for arrives, letter in self._under_way:
            if arrives < visit:
                self.inboxes[letter.to].put(letter)
        self._under_way = [each for each in self._under_way if each[0] >= visit]

    def gaps(self) -> str:
        """In words, which letters were sent and never came."""
        lost = [(name, *gap) for name, inbox in self.inboxes.items() for gap in inbox.gaps()]
        return "; ".join(f"letter {number} of {sender} to {name} never came" for name, sender, number in lost)


# --- The conversation -------------------------------------------------------------------------


class Transcript(NamedTuple):
    """How it ended: every letter in the order in which it was sent; ``dead`` are those to nobody.

    ``answer`` is the text of the letter that was done, and not ``None`` exactly when ``stop`` is
    FINAL_ANSWER. Otherwise ``stop`` is the reason of the account that ended, or ``BrokenOff``, and
    ``problem`` says more.
    """

    answer: str | None
    stop: StopReason | BrokenOff
    problem: str
    letters: tuple[Letter, ...]
    dead: tuple[Letter, ...]


SHORTEST, LONGEST = 0.05, 2.0  # seconds that an agent without a letter sleeps: twice as long each time


@dataclass(frozen=True)
class Conversation:
    """Agents by name, each with a mailbox. Frozen configuration; all that a run holds lives in its program.

    ``messages`` is how many letters may be sent in all; ``limits`` hold all agents to one account; ``carry``
    is how the post treats a letter. Raises ``ValueError`` for what makes no sense.
    """

    agents: Mapping[str, Behaviour]
    messages: int = 20
    limits: Limits = RESEARCH
    carry: Carry = at_once

    def __post_init__(self) -> None:
        require("messages", self.messages, 1)
        if not self.agents or POST in self.agents:
            raise ValueError(f"a conversation has agents, and none is called {POST!r}: {list(self.agents)}")

    def run(self, task: str, sender: str, to: str) -> Program[Transcript]:
        """The program of one run: ``sender`` writes ``task`` to ``to``, and the rest is theirs.

        Raises ``ValueError`` for a name that there is not, and what a behaviour raises.
        """
        for name in (sender, to):
            if name not in self.agents:
                raise ValueError(f"nobody is called {name!r}; the agents are {', '.join(self.agents)}")
        office = PostOffice(self.agents, self.messages, self.carry)
        if not isinstance(task, str) or not task.strip():
            return _transcript(office, StopReason.INVALID_TASK, "a task is a text that says something")
        office.send(sender, Draft(to, task))
        try:
            yield from bounded(self._together(office), self.limits, task)
        except LimitReached as refused:
            office.ended = office.ended or refused
        return _ending(office)

    def _together(self, office: PostOffice) -> Program[None]:
        yield Together(tuple(self._living(name, office) for name in self.agents))

    def _living(self, name: str, office: PostOffice) -> Program[None]:
        """The life of one agent: take a letter, answer it, and sleep where there is none.

        Who is in the middle of an answer when all is over finishes it, within its loop's limits.
        """
        earlier = [letter for letter in office.letters if letter.sender == name]  # the task, if it is its own
        pause = SHORTEST
        try:
            while office.ended is None:
                letter = office.take(name)
                if letter is not None:
                    earlier += yield from self._answered(name, letter, tuple(earlier), office)
                    pause = SHORTEST
                elif office.ended is None:
                    yield Sleep(pause)
                    pause = min(2 * pause, LONGEST)
        except Exception as error:  # the others must not wait for one who is gone
            office.ended = office.ended or error

    def _answered(
        self, name: str, letter: Letter, earlier: tuple[Letter, ...], office: PostOffice
    ) -> Program[list[Letter]]:
        """Let an agent answer, and return what it knows now besides: the letter, and those that it sent."""
        drafts = yield from settle(self.agents[name](letter, earlier))
        sent = len(office.letters)
        for draft in drafts if isinstance(drafts, Iterable) else [drafts]:
            if not _is_draft(draft):
                raise TypeError(f"{name} must answer with a list of Draft(to, text), not with {draft!r}")
            office.send(name, draft)
            if office.ended is not None:  # of drafts there may be no end
                break
        return [letter, *(each for each in office.letters[sent:] if each.sender == name)]


def _is_draft(value: object) -> bool:
    return isinstance(value, Draft) and all(isinstance(each, str) for each in (value.to, value.text))


def _ending(office: PostOffice) -> Transcript:
    ended = office.ended
    if isinstance(ended, Letter):
        return _transcript(office, StopReason.FINAL_ANSWER, "", ended.text)
    if isinstance(ended, LimitReached):
        return _transcript(office, ended.reason, ended.reason.value)
    if isinstance(ended, BrokenOff):
        return _transcript(office, ended, "; ".join(filter(None, (ended.value, office.gaps()))))
    assert ended is not None, "agents live until it has ended"
    raise ended


def _transcript(
    office: PostOffice, stop: StopReason | BrokenOff, problem: str, answer: str | None = None
) -> Transcript:
    return Transcript(answer, stop, problem, tuple(office.letters), tuple(office.dead))


def talking(loop: AgentLoop, read: Callable[[str, str], Draft] = draft_of) -> Behaviour:
    """An agent that runs ``loop`` on each letter and sends what it answers; ``read(text, to)`` drafts it.

    The loop is shown what was said before. Where it comes to no answer, the sender is told how it ended.
    """

    def answered(letter: Letter, earlier: tuple[Letter, ...]) -> Program[list[Draft]]:
        said = "\n".join(f"{each.sender} -> {each.to}: {each.text}" for each in earlier)
        known = {"from (来信)": letter.sender, "said before (对话)": said or "(nothing)"}
        result = yield from loop.knowing(known).run(letter.text)
        if result.account_closed or result.stop is StopReason.HUMAN:
            raise LimitReached(result.control)  # not this loop has ended, but all of them
        if result.answer is None:
            return [Draft(letter.sender, result.summary)]
        return [read(str(result.answer), letter.sender)]

    return answered


# --- The story --------------------------------------------------------------------------------

TASK = f"请写一句北京一日游的推荐。草稿写好之前不要写 {MARKER}。"

#: What each of the two says: to a letter that holds these words, or else the last, which is only polite.
SAYS = {
    "文案": (
        ("请写", f"好的！草稿写好之前，我不会写 {MARKER}。今天天气怎么样？"),
        ("气温", "草稿：今天北京晴，26 摄氏度，去颐和园看湖景吧。请过目。"),
        ("", "不客气，也谢谢您的夸奖！"),
    ),
    "审稿": (
        ("天气怎么样", "北京今天晴，气温 26 摄氏度。"),
        ("草稿：", f"写得好，谢谢！定稿：今天北京晴，26 摄氏度，去颐和园看湖景吧。\n{MARKER}"),
        ("", "谢谢您的谢谢！"),
    ),
}


def polite(request: CallModel) -> str:
    """A model that plays both agents, and never lets the other have the last word."""
    system, letter = request.messages[0].content, request.messages[1].content
    return next(says for words, says in SAYS[system] if words in letter)


def as_it_is(text: str, to: str) -> Draft:
    """Look for no end at all."""
    return Draft(to, text)


def any_mention(text: str, to: str) -> Draft:
    """Look for the end as a word, anywhere."""
    return Draft(to, text, MARKER in text)


def editors(read: Callable[[str, str], Draft]) -> dict[str, Behaviour]:
    """The two agents of the demo: each a loop, and how the end is read in what it writes."""
    return {name: talking(AgentLoop(function_calling(Toolbox([]), name)), read) for name in SAYS}


def misled(letter: Letter, earlier: tuple[Letter, ...]) -> list[Draft]:
    """Write to whoever is named, and wait for an answer."""
    return [Draft("丙", "票买好了。")] if letter.sender != POST else []


SHOWN = 8  # letters of one conversation
ARRIVING = (3, 1, 1, 2, 3, 2, 4)  # the numbers of letters, as a bad post brings them


def demo(tell: Telling) -> None:
    """Two polite agents: without end, ended by a word, ended as meant; and what else the post has to bear."""
    clock = FakeClock()
    world = World(FakeModel(polite), clock=clock.now, sleep=clock.sleep, inline=True)

    def told(conversation: Conversation, task: str = TASK) -> Transcript:
        first, second = conversation.agents
        transcript: Transcript = drive(conversation.run(task, second, first), world)
        for letter in transcript.letters[:SHOWN]:
            tell(f"{letter.sender} -> {letter.to}: {on_one_line(letter.text)}")
        if len(transcript.letters) > SHOWN:
            tell(f"... and {len(transcript.letters) - SHOWN} more", DIM)
        ending = f"{transcript.stop.name}: {transcript.problem or transcript.answer}"
        tell(on_one_line(ending), BOLD)
        return transcript

    tell.heading("Nobody looks for an end: the budget is spent on thanks")
    told(Conversation(editors(as_it_is), messages=1000))
    tell.heading("A bound on letters (M01): it ends, and says why")
    told(Conversation(editors(as_it_is), messages=7))
    tell.heading(f"{MARKER} as a word: it ends before there is a draft")
    told(Conversation(editors(any_mention)))
    tell.heading(f"{MARKER} alone on the last line: the same letters, and the end that was meant")
    told(Conversation(editors(draft_of)))

    tell.heading("A letter to nobody comes back; and where all wait for each other, that is seen")
    told(Conversation({"乙": misled, "甲": lambda letter, earlier: []}), "票买好了告诉丙，我等你的信。")

    tell.heading("The post is late and brings some twice: handed out is each once, in order")
    inbox = Inbox()
    handed: list[Letter] = []
    for number in ARRIVING:
        inbox.put(Letter("甲", "乙", number, f"第 {number} 站"))
        handed += iter(inbox.take, None)
    tell(f"came:        {', '.join(f'第 {number} 站' for number in ARRIVING)}", RED)
    tell(f"handed out:  {', '.join(letter.text for letter in handed)}", GREEN)
