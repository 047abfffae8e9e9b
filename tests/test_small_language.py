"""The small language: what it works out, what it refuses, and that every call ends."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_llm.small_language import LARGEST, LONGEST, Refused, SmallFunction


def function(expression: str) -> SmallFunction:
    return SmallFunction(f"def f(n): return {expression}")


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ('"颐和园" if 0 < n < 35 else "国家博物馆"', "颐和园"),
        ("1 + 2 * n - 6 / 4 - 7 // 2 - 7 % 4", 7 - 1.5 - 3 - 3),
        ("-n + abs(-n) + max(n, 1) + min(n, 1)", 4),
        ("n == 3 and n != 4 and n >= 3 and n <= 3", True),
        ("n > 3 or not n", False),
        ('n > 3 or "none"', "none"),
        ("0 and 1 / 0", 0),
        ("1 if n < 2 else n * f(n - 1)", 6),
        ("True", True),
    ],
)
def test_it_works_out(expression: str, value: Any) -> None:
    assert function(expression)(3) == value


def test_annotations_are_passed_over_and_never_evaluated() -> None:
    assert SmallFunction("def f(n: no_such_thing()) -> nor_this(): return n")(3) == 3


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("def f(n): return f(n)", "had not ended after 200 steps|nested too deeply"),
        ("def f(n): return f(n) + f(n)", "had not ended after 200 steps|nested too deeply"),
        ("def f(n): return 1 if n < 2 else n * n * f(n - 1) * 999999999999", "numbers up to 1e"),
        ('def f(n): return n * "a"', "arithmetic is for numbers, not for 'a'"),
        ('def f(n): return "%1000000000d" % n', "arithmetic is for numbers"),
        ("def f(n): return __import__('os')", "not in this language: __import__"),
        ("def f(n): return n.__class__", "not in this language: n.__class__"),
        ("def f(n): return open", "not in this language: open"),
        ("def f(n): return [n for n in n]", "not in this language"),
        ("def f(n): return 9 ** 9 ** 9", "not in this language"),
        ("def f(n): return 1 / 0", "ZeroDivisionError"),
        ('def f(n): return n < "a"', "TypeError"),
        ("def f(n): return None", "values are texts, and numbers"),
        ("def f(n): return 1e999", "values are texts, and numbers"),
        ("def f(n): return 9999999999999", "values are texts, and numbers"),
        ("def f(n): return max(n)", "TypeError"),
        ("def f(): return 3", "f takes 0 arguments, not 1"),
        ("def f(n): return n(3)", "not in this language"),
    ],
)
def test_a_call_is_refused(program: str, why: str) -> None:
    with pytest.raises(Refused, match=why):
        SmallFunction(program)(3)


@pytest.mark.parametrize(
    "program",
    [
        "",
        "3",
        "def f(n): pass",
        "def f(n): return",
        "def f(n):\n    x = n\n    return x",
        "import os\ndef f(n): return n",
        "lambda n: n",
        "def f(n=__import__('os')): return n",
        "def f(*n): return 3",
        "def f(n, /): return n",
        "@f\ndef f(n): return n",
        "async def f(n): return n",
        "class f: return 3",
        "def f(n): return (" + "(" * 1000,
        "\x00",
        "\ud800",
        "def f(n): return " + "n + " * LONGEST,
        None,
        b"def f(n): return n",
    ],
)
def test_a_program_is_refused(program: Any) -> None:
    with pytest.raises(Refused):
        SmallFunction(program)


PIECES = [
    "n",
    "f(",
    "(",
    ")",
    " + ",
    " * ",
    " if ",
    " else ",
    "3",
    '"a"',
    "-",
    "not ",
    "==",
    " < ",
    "max(",
    ",",
]


@settings(deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join) | st.text(max_size=30))
def test_every_call_comes_to_a_small_value_or_is_refused(expression: str) -> None:
    try:
        value = function(expression)(3)
    except Refused:
        return
    assert isinstance(value, str) or abs(value) <= LARGEST


@pytest.mark.parametrize(
    "deep", ["-" * 1900 + "1", "not " * 480 + "1", "n+" * 900 + "1", "f(" * 600 + "n" + ")" * 600]
)
def test_nesting_ends(deep: str) -> None:
    with pytest.raises(Refused):
        function(deep)(3)
