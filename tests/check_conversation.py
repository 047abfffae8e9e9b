"""What a conversation of agents promises: plain functions of anything made and used like ``Conversation``.

``make(agents, messages=, limits=, carry=)`` returns one, and its ``run(task, sender, to)`` is a program that
comes to a ``Transcript``. ``check_conversation(make)`` raises ``BrokenPromise`` with a short story.
``PROMISES`` holds the same promises one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentloop import Do, Journal, LimitReached, Limits, Program, Sleep, StopReason, World, bounded, drive
from chapters.ch32_message_passing import Behaviour, BrokenOff, Draft, Letter
from fake_llm import FakeClock
from tests.check_toolbox import expect

Make = Callable[..., Any]

TASK = "你好"
ROOM = Limits(effects=3000, seconds=1e6)
FEW = Limits(effects=200, seconds=1e6)


def converse(
    make: Make,
    agents: Mapping[str, Behaviour],
    journal: Journal | None = None,
    to: str = "甲",
    sender: str = "乙",
    **options: Any,
) -> Any:
    """Run a conversation in a world whose clock moves when somebody sleeps; 乙 writes to 甲."""
    clock = FakeClock()
    world = World(clock=clock.now, sleep=clock.sleep, inline=True)
    conversation = make(agents, **{"limits": ROOM, **options})
    try:
        transcript = drive(conversation.run(TASK, sender, to), world, journal)
    except LimitReached as refused:
        story = f"it ended with nothing but {refused.reason.name}: there is no transcript"
        expect(False, story)
    honest = (transcript.answer is not None) == (transcript.stop is StopReason.FINAL_ANSWER)
    expect(honest, f"it ended with {transcript.stop.name}, and the answer is {transcript.answer!r}")
    return transcript


def thanks(letter: Letter, earlier: tuple[Letter, ...]) -> list[Draft]:
    """Thank for everything, thanks too."""
    return [Draft(letter.sender, "谢谢！")]


def silent(letter: Letter, earlier: tuple[Letter, ...]) -> list[Draft]:
    """Wait for something better."""
    return []


def said(transcript: Any) -> list[tuple[str, str, str]]:
    return [(each.sender, each.to, each.text) for each in transcript.letters]


# --- The promises -----------------------------------------------------------------------------


def a_letter_that_is_done_ends_it(make: Make) -> None:
    """The letter marked as done is the last one, and its text is the answer (M01)."""

    def done_after_three(letter: Letter, earlier: tuple[Letter, ...]) -> list[Draft]:
        return [Draft(letter.sender, f"{letter.number}", letter.number == 3), Draft(letter.sender, "还有")]

    transcript = converse(make, {"甲": thanks, "乙": done_after_three})
    came = (transcript.stop, transcript.answer)
    expect(
        came == (StopReason.FINAL_ANSWER, "3"), f"the letter that was done says '3', and it came to {came}"
    )
    expect(
        transcript.letters[-1].text == "3", f"after the letter that was done came {transcript.letters[-1]}"
    )

    def opening(letter: Letter, earlier: tuple[Letter, ...]) -> list[Draft]:
        return [Draft("丙", "慢慢来"), Draft("丁", "就这样？")]

    def slow(letter: Letter, earlier: tuple[Letter, ...]) -> Program[list[Draft]]:
        yield Sleep(9)
        return [Draft("甲", "还有")]

    def quick(letter: Letter, earlier: tuple[Letter, ...]) -> list[Draft]:
        return [Draft("甲", "就这样", True)]

    transcript = converse(make, {"甲": opening, "乙": silent, "丙": slow, "丁": quick})
    last = transcript.letters[-1].text
    expect(last == "就这样", f"one was done while another one was writing, and the last letter is {last!r}")


def a_letter_that_is_done_says_something(make: Make) -> None:
    """An empty letter that is done is no answer: its writer is told so, and may write it."""
    for nothing in ("", " \n"):
        told: list[str] = []

        def hasty(
            letter: Letter, earlier: tuple[Letter, ...], nothing: str = nothing, told: list[str] = told
        ) -> list[Draft]:
            told.append(letter.text)
            return [Draft("乙", nothing if letter.sender == "乙" else "定稿", True)]

        transcript = converse(make, {"甲": hasty, "乙": silent})
        came = (transcript.stop, transcript.answer)
        expect(came == (StopReason.FINAL_ANSWER, "定稿"), f"{nothing!r}, then '定稿', was done: {came}")
        expect(len(told) == 2 and "answer" in told[1], f"its writer was told {told[1:]}")

    def empty(letter: Letter, earlier: tuple[Letter, ...]) -> list[Draft]:
        return [Draft("乙", "", True)]

    reason = converse(make, {"甲": empty, "乙": silent}, messages=5).stop
    expect(reason is BrokenOff.MESSAGES, f"whoever only ever says nothing ended with {reason.name}")


def letters_without_end_are_enough_at_the_bound(make: Make) -> None:
    """A behaviour that would write for ever is asked for no more when all is over."""
    for done in (False, True):
        written = [0]

        def endless(
            letter: Letter, earlier: tuple[Letter, ...], done: bool = done, written: list[int] = written
        ) -> Iterable[Draft]:
            while written[0] < 1000:  # as good as for ever
                written[0] += 1
                yield Draft("乙", "还有", done and written[0] == 3)

        def writing(*given: Any, endless: Callable[..., Iterable[Draft]] = endless) -> Iterable[Draft]:
            return map(_itself, endless(*given))  # a generator would be taken for a program of effects

        transcript = converse(make, {"甲": writing, "乙": silent}, messages=9)
        due = 4 if done else 9
        sent = len(transcript.letters)
        expect(sent == due, f"{due} letters were to be sent, and {sent} were: {transcript.stop.name}")
        expect(written[0] <= due, f"of {due} letters that could be sent, {written[0]} were written")


def _itself(draft: Draft) -> Draft:
    return draft


def a_word_ends_nothing(make: Make) -> None:
    """What a letter says does not end a conversation, whatever words it holds (M01)."""
    for word in ("TERMINATE", "do not write TERMINATE before the draft exists", "[DONE]", "FINAL_ANSWER"):

        def mentions(letter: Letter, earlier: tuple[Letter, ...], word: str = word) -> list[Draft]:
            return [Draft(letter.sender, word)]

        transcript = converse(make, {"甲": mentions, "乙": thanks}, messages=8)
        sent = len(transcript.letters)
        expect(sent == 8, f"{word!r} stood in a letter, and of 8 letters {sent} were sent: {transcript.stop}")


def polite_agents_end_at_the_bound_on_messages(make: Make) -> None:
    """Two who thank each other send as many letters as are allowed, and the reason says so (M01)."""
    for messages in (1, 2, 7):
        transcript = converse(make, {"甲": thanks, "乙": thanks}, messages=messages)
        sent = len(transcript.letters)
        expect(sent == messages, f"{messages} letters were allowed, and {sent} were sent")
        reason = transcript.stop
        expect(reason is BrokenOff.MESSAGES, f"after {messages} letters of thanks it says {reason.name}")


def where_all_wait_it_is_over(make: Make) -> None:
    """Where everybody waits and nothing is under way, that is seen at once, and named."""
    crowds: tuple[dict[str, Behaviour], ...] = (
        {"甲": silent, "乙": silent},
        {"甲": silent},
        {"丙": thanks, "甲": silent, "乙": thanks},
    )
    for agents in crowds:
        transcript = converse(make, agents, sender="甲")
        reason = transcript.stop
        expect(reason is BrokenOff.DEADLOCK, f"{', '.join(agents)} wait, and it ended with {reason.name}")


def who_still_works_is_waited_for(make: Make) -> None:
    """As long as one agent works, or a letter is under way, the others waiting is no deadlock."""

    def thorough(letter: Letter, earlier: tuple[Letter, ...]) -> Program[list[Draft]]:
        for _ in range(30):
            yield Sleep(10)
        return [Draft("乙", "想好了", True)]

    transcript = converse(make, {"丙": silent, "乙": silent, "甲": thorough})
    expect(transcript.answer == "想好了", f"甲 thought for five minutes, and it ended {transcript.stop.name}")
    late = converse(make, {"甲": thanks, "乙": silent}, carry=lambda letter: (25,))
    sent = len(late.letters)
    expect(sent == 2, f"each letter was a long time under way: {sent} of 2 were sent before it ended")


def each_goes_at_its_own_pace(make: Make) -> None:
    """Two agents go on writing to each other while a third is busy."""

    def busy(letter: Letter, earlier: tuple[Letter, ...]) -> Program[list[Draft]]:
        for _ in range(100):
            yield Sleep(1)
        return [Draft("乙", "忙完了", True)]

    def chatty(letter: Letter, earlier: tuple[Letter, ...]) -> Program[list[Draft]]:
        yield Sleep(1)
        return [Draft("丙" if letter.to == "乙" else "乙", "谢谢！")]

    def opening(letter: Letter, earlier: tuple[Letter, ...]) -> list[Draft]:
        return [Draft("丁", "请慢慢来"), Draft("乙", "开始")]

    transcript = converse(make, {"甲": opening, "乙": chatty, "丙": chatty, "丁": busy}, messages=15)
    chat = [each for each in transcript.letters if {each.sender, each.to} == {"乙", "丙"}]
    expect(len(chat) > 5, f"while 丁 was busy, 乙 and 丙 sent each other {len(chat)} letters")


def a_letter_to_nobody_comes_back(make: Make) -> None:
    """Who writes to a name that there is not is told so, with the names that there are."""
    told: list[str] = []

    def astray(letter: Letter, earlier: tuple[Letter, ...]) -> list[Draft]:
        if letter.sender == "乙":
            return [Draft("bing", "在吗？")]
        told.append(letter.text)
        return [Draft(letter.sender, "谢谢提醒"), Draft("丙", "找到你了", True)]

    transcript = converse(make, {"甲": astray, "乙": silent, "丙": silent})
    expect(len(told) == 1, f"a letter went to nobody, and its writer was told {len(told)} times")
    for name in ("bing", "甲", "乙", "丙"):
        expect(name in told[0], f"what came back does not name {name}: {told[0]!r}")
    dead = [each.to for each in transcript.dead]
    expect(dead[:1] == ["bing"], f"the transcript names as dead letters: {dead}")
    expect(transcript.answer == "找到你了", f"after that it ended with {transcript.stop.name}")

    def polite(letter: Letter, earlier: tuple[Letter, ...]) -> list[Draft]:
        return [Draft("bing" if letter.sender == "乙" else letter.sender, "谢谢！")]

    reason = converse(make, {"甲": polite, "乙": silent}).stop
    expect(reason is BrokenOff.DEADLOCK, f"what came back was answered politely, and it ended {reason.name}")


def an_agent_knows_its_own_letters_alone(make: Make) -> None:
    """What an agent is shown is what it received and sent earlier, in order, and nothing of others."""
    shown: list[tuple[str, list[str]]] = []

    def noting(letter: Letter, earlier: tuple[Letter, ...]) -> list[Draft]:
        shown.append((letter.to, [each.text for each in earlier]))
        return {
            "甲": [Draft("丙", "秘密"), Draft("乙", "一")],
            "丙": [],
            "乙": [Draft("甲", "二", letter.text == "四")],
        }[letter.to]

    converse(make, {"甲": noting, "乙": noting, "丙": noting}, messages=8)
    knows: dict[str, list[list[str]]] = {"甲": [[], [TASK, "秘密", "一"]], "乙": [[TASK]], "丙": [[]]}
    for name, due in knows.items():
        first = [texts for each, texts in shown if each == name][: len(due)]
        expect(first == due, f"{name} was shown {first} of earlier letters, and {due} was due")


delays = st.lists(st.integers(0, 6), min_size=1, max_size=3)


def a_bad_post_changes_nothing_that_is_read(make: Make) -> None:
    """Letters that come late, twice or in another order are answered once each, in their sender's order."""

    @settings(max_examples=40, deadline=None, database=None)
    @given(st.lists(delays, min_size=1, max_size=5), st.integers(1, 4))
    @example([[0], [1]], 2)
    @example([[0, 5], [3]], 3)
    def answered_once(plan: list[list[int]], burst: int) -> None:
        read: list[tuple[str, int]] = []
        brought: Counter[str] = Counter()

        def carry(letter: Letter) -> Iterable[int]:
            brought[letter.to] += 1
            return plan[brought[letter.to] % len(plan)]

        def sends_many(letter: Letter, earlier: tuple[Letter, ...]) -> list[Draft]:
            read.append((letter.to, letter.number))
            return (
                [Draft("乙", f"{letter.number}.{each}") for each in range(burst)] if letter.number < 3 else []
            )

        def answers(letter: Letter, earlier: tuple[Letter, ...]) -> list[Draft]:
            read.append((letter.to, letter.number))
            return [Draft("甲", "收到")] if letter.number in (1, 1 + burst) else []

        transcript = converse(make, {"甲": sends_many, "乙": answers}, limits=FEW, carry=carry)
        for name in "甲乙":
            numbers = [number for each, number in read if each == name]
            due = [each.number for each in transcript.letters if each.to == name]
            expect(numbers == due, f"{name} was sent letters {due}, and answered {numbers} (post: {plan})")
        expect(transcript.stop is BrokenOff.DEADLOCK, f"all was read, and it ended {transcript.stop.name}")

    answered_once()


def a_lost_letter_is_named(make: Make) -> None:
    """Where a letter never comes, it ends all the same, and says which one is missing."""

    def twice(letter: Letter, earlier: tuple[Letter, ...]) -> list[Draft]:
        return [Draft("乙", "一"), Draft("乙", "二")]

    lossy = {"一": (), "二": (0,), TASK: (0,)}
    transcript = converse(make, {"甲": twice, "乙": silent}, carry=lambda letter: lossy[letter.text])
    named = all(part in transcript.problem for part in ("甲", "乙", "1"))
    story = f"letter 1 of 甲 to 乙 was lost, and it ended {transcript.stop.name}: {transcript.problem}"
    expect(transcript.stop is BrokenOff.DEADLOCK and named, story)


def a_bug_in_an_agent_reaches_the_caller(make: Make) -> None:
    """What a behaviour raises is raised by the conversation, and nobody waits for the one who is gone."""

    def broken(letter: Letter, earlier: tuple[Letter, ...]) -> list[Draft]:
        return [Draft("乙", str(1 / 0))]

    def forgetful(letter: Letter, earlier: tuple[Letter, ...]) -> Any:
        return None

    def wordless(letter: Letter, earlier: tuple[Letter, ...]) -> Any:
        return [Draft("乙", None, True)]  # type: ignore[arg-type]

    def to_many(letter: Letter, earlier: tuple[Letter, ...]) -> Any:
        return [Draft(["甲", "乙"], "你们好")]  # type: ignore[arg-type]

    wrong: tuple[tuple[Behaviour, type[Exception]], ...] = (
        (broken, ZeroDivisionError),
        (forgetful, TypeError),
        (wordless, TypeError),
        (to_many, TypeError),
    )
    for answer, error in wrong:
        try:
            transcript = converse(make, {"甲": answer, "乙": silent})
        except Exception as told:
            due = (
                error.__name__ if error is not TypeError else "TypeError: 甲 must answer with a list of Draft"
            )
            found = f"{type(told).__name__}: {told}"
            expect(found.startswith(due), f"what it raised is {found}, and {due} was due")
            continue
        expect(False, f"a behaviour was to raise {error.__name__}, and it ended with {transcript.stop.name}")


def the_account_ends_all_of_them(make: Make) -> None:
    """Agents that work without end and never write end with their account, and the reason is told."""

    def worker(letter: Letter, earlier: tuple[Letter, ...]) -> Program[list[Draft]]:
        while True:
            yield Do("work", lambda: None)

    for effects in (1, 2, 3, 20):
        transcript = converse(make, {"甲": worker, "乙": silent}, limits=Limits(effects=effects))
        reason = transcript.stop
        expect(reason is StopReason.EFFECTS, f"{effects} effects were allowed, and it says {reason.name}")
        expect(said(transcript) == [("乙", "甲", TASK)], f"what was written is lost: {said(transcript)}")

    def inside() -> Program[Any]:
        yield Do("spend the last effect", lambda: None)
        return (yield from make({"甲": worker, "乙": silent}).run(TASK, "乙", "甲"))

    try:
        transcript = drive(bounded(inside(), Limits(effects=1)), World(inline=True))
    except LimitReached:
        expect(False, "inside a program whose account is empty, it ended without a transcript")
    expect(transcript.stop is StopReason.EFFECTS, f"on an empty account it says {transcript.stop.name}")


def it_goes_on_from_wherever_it_was_broken_off(make: Make) -> None:
    """Resumed on any beginning of its journal, a conversation comes to the same letters and the same end."""

    def counting(letter: Letter, earlier: tuple[Letter, ...]) -> Program[list[Draft]]:
        number = (yield Do("look", lambda: 7)).value
        return [Draft(letter.sender, f"{number + len(earlier)}", len(earlier) > 5)]

    agents: dict[str, Behaviour] = {"甲": counting, "乙": counting}
    journal = Journal()
    due = converse(make, agents, journal, limits=FEW)
    for count in range(len(journal.outcomes) + 1):
        came = converse(make, agents, journal.rewound(count), limits=FEW)
        story = f"broken off after {count} outcomes it came to {said(came)}, and {said(due)} was due"
        expect((said(came), came.stop) == (said(due), due.stop), story)


def agents_that_never_want_to_stop_are_stopped(make: Make) -> None:
    """Whatever agents write to whom, and whatever the post does, it ends within its bounds."""
    names = st.sampled_from(["甲", "乙", "丙", "nobody", "post office", ""])
    writing = st.lists(
        st.builds(Draft, names, st.sampled_from(["谢谢", "TERMINATE", ""]), st.just(False)), max_size=4
    )
    post = st.lists(st.lists(st.integers(-1, 9), max_size=3), min_size=1, max_size=4)

    @settings(max_examples=60, deadline=None, database=None)
    @given(st.lists(writing, min_size=1, max_size=5), post, st.integers(1, 8), st.integers(1, 120))
    @example([[Draft("甲", "谢谢"), Draft("乙", "谢谢")]], [[0]], 3, 120)
    def stopped(scripts: list[list[Draft]], plan: list[list[int]], messages: int, effects: int) -> None:
        turns = [0]

        def endless(letter: Letter, earlier: tuple[Letter, ...]) -> Program[list[Draft]]:
            turns[0] += 1
            if turns[0] % 2:
                yield Sleep(turns[0])
            return scripts[turns[0] % len(scripts)]

        transcript = converse(
            make,
            dict.fromkeys("甲乙丙", endless),
            messages=messages,
            limits=Limits(effects=effects, seconds=1e6),
            carry=lambda letter: plan[letter.number % len(plan)],
        )
        sent, reason = len(transcript.letters), transcript.stop
        expect(sent <= messages, f"{messages} letters were allowed, and {sent} were sent")
        allowed = (BrokenOff.MESSAGES, BrokenOff.DEADLOCK, StopReason.EFFECTS)
        expect(reason in allowed, f"nobody was done, no person stopped it, and it ended with {reason.name}")
        full = reason is not BrokenOff.MESSAGES or sent == messages
        expect(full, f"no message is left, it says, and {sent} of {messages} were sent")

    stopped()


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        a_letter_that_is_done_ends_it,
        a_letter_that_is_done_says_something,
        letters_without_end_are_enough_at_the_bound,
        a_word_ends_nothing,
        polite_agents_end_at_the_bound_on_messages,
        where_all_wait_it_is_over,
        who_still_works_is_waited_for,
        each_goes_at_its_own_pace,
        a_letter_to_nobody_comes_back,
        an_agent_knows_its_own_letters_alone,
        a_bad_post_changes_nothing_that_is_read,
        a_lost_letter_is_named,
        a_bug_in_an_agent_reaches_the_caller,
        the_account_ends_all_of_them,
        it_goes_on_from_wherever_it_was_broken_off,
        agents_that_never_want_to_stop_are_stopped,
    )
}


def check_conversation(make: Make) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(make)
