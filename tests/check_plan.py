"""What a reader of plans promises: plain functions of one ``read_plan(text, longest)``.

It returns a ``Plan`` or raises ``UnreadablePlan``. ``check_plan(read)`` raises ``BrokenPromise`` with the
text, what it should have come to, and what it came to; ``PROMISES`` holds the same promises one by one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from paradigms.plan import Plan, UnreadablePlan
from tests.check_toolbox import expect

Read = Callable[[str, int], Plan]
LONGEST = 12

#: Case R01: what models write, and the goals that stand there; none where it is no plan.
R01: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Plan:\n  1. find\n  2. sum", ("find", "sum")),
    ("1) find\n2) sum", ("find", "sum")),
    ("- find\n- sum", ("find", "sum")),
    ("Step 1: find\nStep 2: sum", ("find", "sum")),
    ('```json\n["find","sum"]\n```', ("find", "sum")),
    ("1. find\n   the rows\n2. sum", ("find the rows", "sum")),
    ("I will think about it.", ()),
    ("", ()),
)

#: The same two steps in other layouts that are met.
LAYOUTS = (
    "1.find\n2.sum",
    "1、find\n2、sum",
    "（1）find\n（2）sum",
    "[1] find\n[2] sum",
    "1: find\n2: sum",
    "1. find\n1. sum",
    "0. find\n1. sum",
    "① find\n② sum",
    "一、find\n二、sum",
    "第一步：find\n第二步：sum",
    "步骤1：find\n步骤2：sum",
    "**Step 1:** find\n**Step 2:** sum",
    "### Step 1 - find\n\n### Step 2 - sum",
    "**1. find**\n**2. sum**",
    "* find\n* sum",
    "- [ ] find\n- [x] sum",
    "- Step 1: find\n- Step 2: sum",
    "```\n1. find\n2. sum\n```",
    "```yaml\nsteps:\n  - find\n  - sum\n```",
    "<think>1. guess\n2. hope\n3. pray</think>\n1. find\n2. sum",
    "Two notes:\n- be quick\n- be kind\n\nPlan:\n1. find\n2. sum\n\nI hope that this helps.",
    '{"plan": ["find", "sum"]}',
    "Plan: ['find', 'sum']",
    'Here it is:\n```json\n{"steps": [{"id": 1, "goal": "find"}, {"id": 2, "goal": "sum"}]}\n```\nGood luck!',
    '[{"step": 1, "description": "find"}, {"step": 2, "description": "sum", "depends_on": ["step 1"]}]',
    '[{"id": "s1", "task": "find"}, {"id": "s2", "task": "sum", "needs": ["s1"]}]',
)

#: Steps with more than one line to them, and lists that are none of the plan.
DETAILS = (
    ("1.\nfind\n2. sum", ("find", "sum")),
    ("1. find\nthe rows\n\nThat is all.", ("find the rows",)),
    ("* find\n  1. here\n  2. there\n* sum", ("find 1. here 2. there", "sum")),
    ("1. find\n   - here\n   - there\n2. sum", ("find - here - there", "sum")),
    ("1. find\n- here\n2. sum", ("find - here", "sum")),
    ("1. find\n\n   the rows\n\n2. sum\n\nNotes:\n- be quick", ("find the rows", "sum")),
    ("What matters:\n1. speed\n2. style\n\nPlan:\n1. find\n2. sum", ("find", "sum")),
)

#: What the steps of a list say that they need, and what that means.
NEEDS = (
    ("1. find\n1. sum\n1. go (needs 1, 2)", ((), (1,), (1, 2))),
    ("3. find\n7. sum\n8. go (needs 3)", ((), (1,), (1,))),
    ("- find\n- sum (needs nothing)\n- go (needs steps 1 and 2).", ((), (), (1, 2))),
    ("第一步：find\n第二步：sum（依赖第一步）\n第三步：go（需要：步骤一、步骤二）", ((), (1,), (1, 2))),
    ("1. find (needs a good idea)\n2. sum [depends on: 1]\n3. go (needs none)", ((), (1,), ())),
)

#: Texts that hold no plan that could be followed.
NO_PLANS = (
    "I will think about it.",
    "",
    " \n\t",
    "```json\n[]\n```",
    '{"plan": []}',
    '{"plan": null}',
    "[1, 2, 3]",
    '["find", "sum"',
    "1. \n2. sum",
    "<think>1. find\n2. sum",
    "1. find (needs 2)\n2. sum (needs nothing)",
    "1. find (needs 1)",
    "1. find\n2. sum (needs 7)",
    '[{"goal": "find", "needs": [9]}]',
    "\n".join(f"{number}. find" for number in range(1, LONGEST + 2)),
)


def _read(read: Read, text: str) -> Plan | None:
    """The plan, or ``None`` where the reader says that there is none."""
    try:
        return read(text, LONGEST)
    except UnreadablePlan as problem:
        expect(bool(str(problem).strip()), f"{text!r} is refused, and nobody is told why")
        return None


def _goals(plan: Plan | None) -> tuple[str, ...]:
    return tuple(step.goal for step in plan or ())


# --- The promises -----------------------------------------------------------------------------


def the_cases_come_out_right(read: Read) -> None:
    """Case R01: six layouts give two steps, two texts give a problem."""
    for text, goals in R01:
        plan = _read(read, text)
        due = f"the steps {goals}" if goals else "a problem"
        expect(_goals(plan) == goals and (plan is None) == (not goals), f"{text!r} is {due}, not {plan}")


def any_layout_is_read(read: Read) -> None:
    """Numbers in any style, bullets, fences, JSON, prose around it: always the same two steps."""
    for text in LAYOUTS:
        plan = _read(read, text)
        expect(_goals(plan) == ("find", "sum"), f"{text!r} has the steps 'find' and 'sum', not {plan}")
        needs = [step.needs for step in plan or ()]
        expect(needs == [(), (1,)], f"in {text!r} the second step needs the first: {needs}")


def details_stay_with_their_step(read: Read) -> None:
    """What is indented or stands right below belongs to the step above; other lists are no steps."""
    for text, goals in DETAILS:
        plan = _read(read, text)
        expect(_goals(plan) == goals, f"{text!r} has the steps {goals}, not {plan}")


def what_is_no_plan_is_a_problem(read: Read) -> None:
    """No plan is ever read as a plan without steps, nor one that cannot be followed as if it could."""
    for text in NO_PLANS:
        plan = _read(read, text)
        expect(plan is None, f"{text!r} holds no plan that could be followed, and was read as {plan}")


words = st.text(st.sampled_from("abcdef查天气"), min_size=1, max_size=8)
goals = st.lists(st.lists(words, min_size=1, max_size=3).map(" ".join), min_size=1, max_size=8)
markers = st.sampled_from(
    [
        "{0}. ",
        "{0}) ",
        "{0}、",
        "({0}) ",
        "- ",
        "* ",
        "• ",
        "Step {0}: ",
        "**Step {0}:** ",
        "第{0}步：",
        "步骤 {0}：",
    ]
)


def what_was_written_is_what_is_read(read: Read) -> None:
    """Every step of a list is read, whole and in order, whatever marks it and whatever stands around it."""

    @settings(deadline=None, database=None)
    @given(
        goals, markers, st.sampled_from(["", "  "]), st.sampled_from(["\n", "\n\n", "\r\n"]), st.booleans()
    )
    def check(goals: list[str], marker: str, indent: str, gap: str, fenced: bool) -> None:
        listed = gap.join(f"{indent}{marker.format(number)}{goal}" for number, goal in enumerate(goals, 1))
        text = f"Here you are.\n```\n{listed}\n```\nDone." if fenced else listed
        plan = _read(read, text)
        expect(_goals(plan) == tuple(goals), f"{text!r} has the steps {goals}, and was read as {plan}")

    check()


def needs_are_read(read: Read) -> None:
    """A step needs what it names, whether in words or as data; where it names nothing, the one before it."""
    needs = st.lists(st.none() | st.sets(st.integers(1, 6), max_size=3), min_size=1, max_size=6).map(
        lambda each: [
            wanted and {need for need in wanted if need < number} for number, wanted in enumerate(each, 1)
        ]
    )

    @settings(deadline=None, database=None)
    @given(needs, st.booleans())
    def check(needs: list[set[int] | None], as_data: bool) -> None:
        due = tuple(
            tuple(sorted(wanted)) if wanted is not None else (number - 1,) * (number > 1)
            for number, wanted in enumerate(needs, 1)
        )
        text = _data_with(needs) if as_data else _list_with(needs)
        plan = _read(read, text)
        found = tuple(step.needs for step in plan or ())
        expect(found == due, f"{text!r}: the steps need {due}, and were read as needing {found}")
        expect(
            _goals(plan) == ("do it",) * len(needs),
            f"{text!r}: what is needed is no part of the goal: {plan}",
        )

    for text, meant in NEEDS:
        plan = _read(read, text)
        expect(tuple(step.needs for step in plan or ()) == meant, f"{text!r}: needs {meant}, not {plan}")
    check()


def _list_with(needs: list[set[int] | None]) -> str:
    named = [
        "" if each is None else f" (needs {', '.join(map(str, sorted(each))) or 'nothing'})" for each in needs
    ]
    return "\n".join(f"{number}. do it{clause}" for number, clause in enumerate(named, 1))


def _data_with(needs: list[set[int] | None]) -> str:
    steps: list[dict[str, Any]] = [{"id": number, "goal": "do it"} for number in range(1, len(needs) + 1)]
    for step, each in zip(steps, needs, strict=True):
        step |= {} if each is None else {"needs": sorted(each)}
    return json.dumps({"steps": steps})


scraps = st.lists(
    st.sampled_from(
        [
            "1. ",
            "2) ",
            "- ",
            "Plan:",
            "\n",
            "  ",
            "find",
            "```",
            "[",
            "]",
            "{",
            '"',
            ",",
            "(needs ",
            ")",
            "1",
            "第",
            "步",
        ]
    )
    | st.text(max_size=4),
    max_size=20,
).map("".join)


def it_reads_or_refuses(read: Read) -> None:
    """Any text comes to a plan that can be followed, of no more steps than allowed, or to a clear problem."""

    @settings(deadline=None, database=None)
    @given(st.text(max_size=80) | scraps)
    def check(text: str) -> None:
        plan = _read(read, text)
        if plan is None:
            return
        numbers = [step.number for step in plan]
        expect(0 < len(plan) <= LONGEST, f"{text!r} came to {len(plan)} steps")
        expect(numbers == list(range(1, len(plan) + 1)), f"{text!r}: the steps have the numbers {numbers}")
        expect(all(step.goal.strip() for step in plan), f"{text!r}: a step says nothing: {plan}")
        backwards = all(0 < need < step.number for step in plan for need in step.needs)
        expect(backwards, f"{text!r}: a step needs one that does not come before it: {plan}")

    check()


PROMISES: dict[str, Callable[[Read], None]] = {
    promise.__name__: promise
    for promise in (
        the_cases_come_out_right,
        any_layout_is_read,
        details_stay_with_their_step,
        what_is_no_plan_is_a_problem,
        what_was_written_is_what_is_read,
        needs_are_read,
        it_reads_or_refuses,
    )
}


def check_plan(read: Read) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(read)
