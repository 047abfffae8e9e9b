"""What a simulated model promises, so that it can compare paradigms fairly: ours, wrong ones, a reader's.

``make(seed)`` makes a model: a callable from a ``CallModel`` to text or a ``Reply``.
``check_simulated(make)`` raises ``BrokenPromise`` with the story of a promise that is broken. Which errors
it makes, and how often, is its own affair.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import Act, CallModel, Finish, Message, Reply, World, as_reply, drive
from chapters.ch14_choosing_a_paradigm import PARADIGMS, measured, toolbox
from fake_llm import FakeModel
from fake_llm.errands import errands
from paradigms.evaluators import read_score
from paradigms.plan import UnreadablePlan, read_plan
from paradigms.text_protocol import contract, parse
from tests.check_machine import BrokenPromise
from tests.check_toolbox import expect

Make = Callable[[int], Callable[[CallModel], Any]]

SEEDS = range(1, 9)


def requests(make: Make, seed: int = 1) -> list[CallModel]:
    """What the model of this seed is asked in a run of each task under each paradigm."""
    asked: list[CallModel] = []
    for errand in errands()[::2]:
        for paradigm in PARADIGMS:
            model = FakeModel(make(seed))
            drive(measured(paradigm, errand), World(model, toolbox(), inline=True))
            asked += model.requests
    return asked


def said(make: Make, seed: int, request: CallModel) -> str:
    """The text that a new model of this seed replies with."""
    return text(make(seed), request)


def text(model: Callable[[CallModel], Any], request: CallModel) -> str:
    try:
        reply = as_reply(model(request))
    except Exception as error:
        raise BrokenPromise(f"asked {_end(request)}, it raised {type(error).__name__}: {error}") from error
    expect(isinstance(reply, Reply), f"asked {_end(request)}, it returned no text: {reply}")
    return str(reply.text)


def _end(request: CallModel) -> str:
    return repr(request.messages[-1].content[-60:]) if request.messages else "nothing"


# --- The promises -----------------------------------------------------------------------------


def the_same_request_has_the_same_reply(make: Make) -> None:
    """Whatever was asked before: once in order, once backwards, and once of a model that is new each time."""
    asked = requests(make)
    forwards, backwards = make(1), make(1)
    first = [text(forwards, request) for request in asked]
    second = [text(backwards, request) for request in reversed(asked)][::-1]
    for request, one, other in zip(asked, first, second, strict=True):
        story = f"asked {_end(request)} it says {one!r}, and asked in another order {other!r}"
        expect(one == other == said(make, 1, request), story)


def only_what_is_shown_counts(make: Make) -> None:
    """The size of a request, its stop texts and the time that it may take tell who asks: it must not look."""
    for request in requests(make):
        other = request._replace(tokens=request.tokens + 1, allowed=1.0, stop=())
        one, two = said(make, 1, request), said(make, 1, other)
        expect(one == two, f"the same messages, {_end(request)}, had the replies {one!r} and {two!r}")


def seeds_differ(make: Make) -> None:
    """Among a few seeds there are different replies to the same request."""
    asked = requests(make)
    differing = any(len({said(make, seed, request) for seed in SEEDS}) > 1 for request in asked)
    expect(differing, f"the seeds {SEEDS[0]} to {SEEDS[-1]} say the same to each of {len(asked)} requests")


def any_prompt_has_a_reply(make: Make) -> None:
    """It never raises, whatever it is shown."""
    tasks = st.sampled_from([errand.text for errand in errands()]) | st.text(max_size=30)
    others = ("You make plans", "You judge an answer", "You look back")
    forms = st.sampled_from(["", contract(toolbox()), *others])
    pieces = ("Reasons: ", "x=99", "9" * 5000 + " 张", "的人说：", "合计 ", "\ud800", "写一个函数 f(", "**")
    texts = st.lists(st.sampled_from(pieces) | tasks, max_size=4).map("".join)
    roles = st.sampled_from(["user", "assistant", "tool"])
    messages = st.lists(st.tuples(roles, texts).map(lambda pair: Message(*pair)), max_size=4)

    @settings(deadline=None, max_examples=100, database=None)
    @given(st.integers(0, 10**6), forms, messages)
    def holds(seed: int, form: str, rest: list[Message]) -> None:
        said(make, seed, CallModel((Message("system", form), *rest) if form else tuple(rest)))

    holds()


def it_keeps_to_the_form_that_is_asked_for(make: Make) -> None:
    """A thought with an action, a plan, a score: each can be read."""
    for request in requests(make):
        asked, reply = request.messages[0].content, said(make, 1, request)
        if "pair of Thought and Action" in asked:
            decision = parse(reply, toolbox())
            good = isinstance(decision, Finish) or decision.calls[0].problem is None
        elif "You make plans" in asked:
            good = _is_plan(reply)
        else:
            good = read_score(reply) is not None if "You judge" in asked else bool(reply.strip())
        expect(good, f"asked in the words {asked[:60]!r}, it replied {reply!r}, which cannot be read as that")


def _is_plan(reply: str) -> bool:
    try:
        return bool(read_plan(reply))
    except UnreadablePlan:
        return False


def it_knows_no_fact_before_it_is_shown(make: Make) -> None:
    """In a world with other prices it asks first, and its sum follows what it was told."""
    task = "买门票：故宫 3 张。一共多少元？"
    asked = CallModel((Message("system", contract(toolbox())), Message("user", task)))
    sums = []
    for seed in SEEDS:
        act = parse(said(make, seed, asked), toolbox())
        looked = isinstance(act, Act) and act.calls[0].name == "get_price"
        expect(looked, f"no price was shown, and with seed {seed} it did not ask for one: {act}")
        for price in (7, 11):
            shown = Message("user", f"Observation: 故宫门票 {price} 元一张")
            told = asked._replace(messages=(*asked.messages, Message("assistant", act.thought), shown))
            answer = parse(said(make, seed, told), toolbox())
            sum_told = str(answer.answer) if isinstance(answer, Finish) else ""
            sums.append(re.findall(r"\d+", sum_told)[-1:] == [str(3 * price)])
    story = f"shown the price of one ticket, its sum for three was right in {sum(sums)} of {len(sums)} cases"
    expect(sum(sums) > len(sums) / 2, story)


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        any_prompt_has_a_reply,
        the_same_request_has_the_same_reply,
        only_what_is_shown_counts,
        seeds_differ,
        it_keeps_to_the_form_that_is_asked_for,
        it_knows_no_fact_before_it_is_shown,
    )
}


def check_simulated(make: Make) -> None:
    """Raise ``BrokenPromise`` with the story of the first promise that is broken."""
    for promise in PROMISES.values():
        promise(make)
