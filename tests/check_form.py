"""What a check of the form promises: plain functions of one ``has_form``, used on ours and on a reader's.

``make(form)`` makes a check ``(context, answer)``: an objection in words, or ``None``. ``form`` is a function
or a dataclass; the answer is a JSON object whose keys are its parameters.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import example, given
from hypothesis import strategies as st

from tests.check_toolbox import expect
from tests.goal_worlds import objection

Make = Callable[..., Any]


@dataclass(frozen=True)
class Outing:
    """Where to go."""

    city: str
    degrees: int
    attractions: list[str]
    sky: Literal["Sunny", "Cloudy"] = "Sunny"


def by_train(city: str, price: float) -> None:
    """A train ride that costs something."""
    if price <= 0:
        raise ValueError("the price must be above 0")


def strange(city: str) -> None:
    """A form that raises without a word."""
    raise LookupError


GOOD = {"city": "北京", "degrees": 26, "attractions": ["长城"]}

#: Answers without the form, each with what the objection must name ("" where words are enough).
WRONG: tuple[tuple[Any, str], ...] = (
    ("今天去长城。", ""),
    ("", ""),
    ("null", ""),
    ("26", ""),
    ('"长城"', ""),
    ('["长城"]', ""),
    ('{"city": "北京"', ""),
    ("{'city': '北京', 'degrees': 26, 'attractions': []}", ""),
    (json.dumps(GOOD) + " 祝您玩得开心！", ""),
    ("好的：" + json.dumps(GOOD), ""),
    (json.dumps(GOOD) + json.dumps(GOOD), ""),
    ('{"city": "北京", "city": "上海", "degrees": 26, "attractions": []}', ""),
    ("{}", "city"),
    ('{"city": "北京", "attractions": []}', "degrees"),
    ('{"city": "北京", "degrees": "warm", "attractions": []}', "degrees"),
    ('{"city": "北京", "degrees": 26.5, "attractions": []}', "degrees"),
    ('{"city": "北京", "degrees": true, "attractions": []}', "degrees"),
    ('{"city": null, "degrees": 26, "attractions": []}', "city"),
    ('{"city": "北京", "degrees": 26, "attractions": "长城"}', "attractions"),
    ('{"city": "北京", "degrees": 26, "attractions": ["长城", {}]}', "attractions"),
    ('{"city": "北京", "degrees": 26, "attractions": [], "sky": "Foggy"}', "sky"),
    ('{"city": "北京", "degrees": 26, "attractions": [], "mood": "good"}', "mood"),
    ("[" * 5000, ""),
    ('{"city": ' + "9" * 5000 + "}", ""),
    ("\ud800", ""),
    (None, ""),
    (26, ""),
)


def expect_refused(make: Make, form: Any, answer: Any, named: str = "") -> None:
    said = objection(make(form), answer)
    story = f"the form is {form.__name__}, the answer {str(answer)[:80]!r}"
    expect(
        isinstance(said, str) and bool(said.strip()),
        f"{story}, and it is not refused in words but by {said!r}",
    )
    expect(named in said, f"{story}: what is wrong is {named!r}, and the objection does not name it: {said}")


def what_fits_passes(make: Make) -> None:
    """Complete JSON that fits is no matter for an objection, however it is laid out."""
    texts = [
        json.dumps(GOOD, indent=indent, ensure_ascii=ascii) for indent in (None, 2) for ascii in (True, False)
    ]
    for answer in (*texts, f"\n {texts[0]}\n", json.dumps(GOOD | {"sky": "Cloudy"})):
        said = objection(make(Outing), answer)
        expect(said is None, f"the answer {answer!r} has the form, and it is refused: {said}")


def what_does_not_fit_is_refused(make: Make) -> None:
    """Prose, half an object, a wrong or missing field: refused in words that name it."""
    for answer, named in WRONG:
        expect_refused(make, Outing, answer, named)


def no_half_of_an_object_passes(make: Make) -> None:
    """An answer that was cut off anywhere is not complete."""
    whole = json.dumps(GOOD, ensure_ascii=False)
    for end in range(len(whole)):
        expect_refused(make, Outing, whole[:end])


def what_the_form_raises_is_an_objection(make: Make) -> None:
    """A form may refuse what its annotations cannot say; the run does not break down at it."""
    expect_refused(make, by_train, '{"city": "北京", "price": -5}', "the price must be above 0")
    expect_refused(make, strange, '{"city": "北京"}')
    said = objection(make(by_train), '{"city": "北京", "price": 5}')
    expect(said is None, f"the form has nothing against this price, and it is refused: {said}")


def it_says_something_of_everything(make: Make) -> None:
    """Whatever the answer is, it is refused in words, or it is JSON with the fields of the form."""
    fields = {
        "city": st.text(),
        "degrees": st.integers(),
        "attractions": st.lists(st.text(max_size=3), max_size=3),
    }
    any_json = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    )
    answers = st.text() | any_json.map(json.dumps) | st.fixed_dictionaries(fields).map(json.dumps)

    @given(answers)
    @example('{"a": NaN}')
    @example("-0")
    def say(answer: str) -> None:
        said = objection(make(Outing), answer)
        if said is None:
            given = json.loads(answer)
            expect(set(fields) <= set(given), f"{answer!r} passed, and lacks {set(fields) - set(given)}")
        else:
            expect(
                isinstance(said, str) and bool(said), f"{answer!r} is refused by {said!r}, which is no words"
            )

    say()


def any_answer_that_fits_passes(make: Make) -> None:
    """Whatever stands in its fields, an answer that has the form passes."""
    drawn = st.builds(
        lambda city, degrees, attractions: {"city": city, "degrees": degrees, "attractions": attractions},
        st.text(),
        st.integers(-(10**9), 10**9),
        st.lists(st.text(max_size=3), max_size=3),
    )

    @given(drawn)
    def fit(fields: dict[str, Any]) -> None:
        said = objection(make(Outing), json.dumps(fields))
        expect(said is None, f"{json.dumps(fields)} has the form, and it is refused: {said}")

    fit()


PROMISES: dict[str, Callable[[Make], None]] = {
    promise.__name__: promise
    for promise in (
        what_fits_passes,
        what_does_not_fit_is_refused,
        no_half_of_an_object_passes,
        what_the_form_raises_is_an_objection,
        it_says_something_of_everything,
        any_answer_that_fits_passes,
    )
}
