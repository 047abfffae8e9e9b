"""What ``grounded(facts)`` promises: plain functions of anything that makes a check of an answer's facts.

``PROMISES`` holds them one by one. A check is put to contexts whose turns have seen something, and its
objection is compared with what a careful reader would say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import (
    Act,
    AgentLoop,
    Do,
    Finish,
    Kind,
    LoopContext,
    Observation,
    Program,
    ToolCall,
    Turn,
    World,
    drive,
    settle,
)
from tests.check_toolbox import expect

Make = Callable[..., Any]

TASK = "查一下 9 月 30 日的北京"
SEEN = "北京当前天气：Sunny，气温 26 摄氏度"
#: A fact, what was seen, and whether that shows it.
CASES: tuple[tuple[object, str, bool], ...] = (
    ("26", SEEN, True),
    ("6", SEEN, False),
    (26, SEEN, True),
    (26.0, SEEN, True),
    ("26.0", SEEN, True),
    ("２６", SEEN, True),
    ("31", SEEN, False),
    ("2", SEEN, False),
    ("26.5", SEEN, False),
    ("5", "共 2.5 元", False),
    ("2.5", "共 2.50 元", True),
    ("1234", "一共 1,234 元", True),
    ("1,234", "一共 1234 元", True),
    ("234", "一共 1,234 元", False),
    ("零下 8", "气温 -8 摄氏度", True),
    ("-8", "气温零下 8 摄氏度", True),
    ("8", "气温 -8 摄氏度", False),
    ("5", "开放 3-5 号", True),
    ("-5", "开放 3-5 号", False),
    ("4", "A4 出口", False),
    ("北京", SEEN, True),
    ("上海", SEEN, False),
    ("sunny", SEEN, True),
    ("Sun", SEEN, False),
    ("Oslo", "the Oslofjord", False),
    ("New  York", "in new york today", True),
    ("颐和园", "推荐去颐和园吧", True),
    ("(.*)", SEEN, False),
    ("\ud800", SEEN, False),
    ("", SEEN, False),
    (" ", SEEN, False),
    ("10²", "102 元", False),
    ("10²", "共 10² 种", True),
    (".5", "共 1.5 元", False),
    (".5", "共 0.5 元", True),
    ("0.5", "共 .5 元", True),
    ("5", "第 v1.5 版", False),
    ("5", "等一等...5 度", True),
    ("5kg", "重 2.5kg", False),
    (".5kg", "重 2.5kg", False),
    ("Oslo", "2.Oslo", True),
)


def saw(*observations: Observation) -> LoopContext:
    """The context of a run that has seen this, a turn each."""
    context = LoopContext(TASK)
    context.turns += [Turn("", (ToolCall("look", {}),), (seen,)) for seen in observations]
    return context


def objection(make: Make, claimed: Any, *seen: Observation) -> Any:
    """What the check says to an answer that claims so much, after that was seen."""
    check = make(lambda answer: claimed)
    return drive(settle(check(saw(*seen), "an answer")), World(inline=True))


def is_refused(said: Any) -> bool:
    return isinstance(said, str) and bool(said.strip())


# --- The promises -----------------------------------------------------------------------------


def the_cases_come_out_right(make: Make) -> None:
    """A number is shown by its value, a name as a whole, and neither by a part of another."""
    for fact, text, shown in CASES:
        said = objection(make, [fact], Observation(text))
        due = "shown" if shown else "not shown"
        expect(
            is_refused(said) != shown, f"the fact {fact!r} is {due} by {text!r}, and the check says {said!r}"
        )


def what_nothing_showed_is_refused_by_name(make: Make) -> None:
    """The objection names every fact that is missing, so that the model can look it up, and no other."""
    said = objection(make, ["26", "31", "北京", "北海"], Observation(SEEN))
    expect(is_refused(said), f"31 and 北海 were never seen, and the check says {said!r}")
    for fact, missing in (("31", True), ("北海", True), ("26", False), ("北京", False)):
        expect(
            (fact in said) == missing, f"{fact} is {'' if missing else 'not '}missing, and it says {said!r}"
        )


def a_failure_is_no_evidence(make: Make) -> None:
    """A failed observation shows nothing: it quotes what the model made up."""
    failed = Observation("nothing is known about '大观园'", False, Kind.TOOL_ERROR)
    said = objection(make, ["大观园"], failed)
    expect(is_refused(said), f"a tool failed with {failed.text!r}, and 大观园 is taken for shown")


def the_task_is_evidence(make: Make) -> None:
    """What the user said need not be looked up."""
    said = objection(make, ["9", "北京"])
    expect(said is None, f"the task is {TASK!r}, and an answer with its 9 and its 北京 is refused: {said!r}")


def what_cannot_be_read_is_refused(make: Make) -> None:
    """Facts that could not be read are unknown, and unknown is no pass; no facts at all are fine."""
    said = objection(make, None, Observation(SEEN))
    expect(is_refused(said), f"facts came to None, so that nothing could be checked, and it says {said!r}")
    said = objection(make, [], Observation(SEEN))
    expect(said is None, f"an answer that claims nothing is refused: {said!r}")


def facts_may_ask_the_world(make: Make) -> None:
    """``facts`` may be a program, such as one that asks a model."""

    def facts(answer: Any) -> Program[Any]:
        return (yield Do("read the answer", lambda: [answer])).value

    for answer, shown in (("26", True), ("31", False)):
        said = drive(settle(make(facts)(saw(Observation(SEEN)), answer)), World(inline=True))
        expect(is_refused(said) != shown, f"a program says that {answer} is claimed, and the check: {said!r}")


def a_single_text_is_a_mistake(make: Make) -> None:
    """Facts that are one text, not several, are refused with a ``TypeError``: their letters are no facts."""
    for wrong in ("26", 26, True):
        try:
            said = objection(make, wrong, Observation(SEEN))
        except TypeError:
            continue
        expect(False, f"facts returned {wrong!r}, which is no collection, and the check says {said!r}")


def an_answer_with_a_made_up_number_never_ends_a_run(make: Make) -> None:
    """Whatever is seen and claimed, an answer passes exactly if each of its numbers was seen."""

    @settings(deadline=None, database=None, max_examples=40)
    @given(
        st.lists(st.integers(-200, 99_999), max_size=4),
        st.lists(st.lists(st.integers(-200, 99_999), max_size=3), min_size=1, max_size=3),
        st.booleans(),
    )
    def check(seen: list[int], answers: list[list[int]], honest_at_last: bool) -> None:
        claims = [*answers, seen[:2]] if honest_at_last else answers
        loop = AgentLoop(_answering(claims, seen), accept=make(lambda answer: answer), act=_telling)
        result = drive(loop.run("看看"), World(inline=True))
        right = next((claim for claim in claims if set(claim) <= set(seen)), None)
        story = f"{seen} was seen, and the answers were {claims}"
        expect(result.answer == right, f"{story}: {right} was due, and it ended with {result.answer}")

    check()


def _answering(claims: Sequence[list[int]], seen: list[int]) -> Callable[[LoopContext], Any]:
    """A hook that looks once, and then gives one answer after the other; the last again and again."""

    def reason(context: LoopContext) -> Any:
        if not context.turns:
            return Act((ToolCall("look", {"seen": seen}),))
        return Finish(claims[min(len(context.turns), len(claims)) - 1])

    return reason


def _telling(call: ToolCall) -> Observation:
    return Observation("，".join(f"气温 {number} 摄氏度" for number in call.arguments["seen"]))


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        the_cases_come_out_right,
        what_nothing_showed_is_refused_by_name,
        a_failure_is_no_evidence,
        the_task_is_evidence,
        what_cannot_be_read_is_refused,
        facts_may_ask_the_world,
        a_single_text_is_a_mistake,
        an_answer_with_a_made_up_number_never_ends_a_run,
    )
}
