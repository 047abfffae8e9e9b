"""The toolbox: a model's mistake never enters a tool, and a tool's bug is never blamed on the model."""

from __future__ import annotations

import asyncio
import functools
import json
import math
import subprocess
import sys
import unicodedata
import warnings
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Optional, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import Kind, Observation, Toolbox, ToolCall, cut
from tests.check_toolbox import PROMISES, Entered, Place, Unspeakable, tool_taking


def accepting(annotation: Any, *default: Any) -> tuple[Toolbox, list[Any]]:
    """A toolbox of one tool whose one parameter is annotated so; and the list of what entered it."""
    tool, entered = tool_taking(annotation, *default)
    return Toolbox([tool]), entered


def call(tool: Any, **arguments: Any) -> ToolCall:
    return ToolCall(tool, arguments, "c1")


def kind_of(value: Any) -> str:
    """Name a test's parameter: some of the values here cannot be written."""
    return getattr(value, "__name__", type(value).__name__)


# --- Finding the tool -------------------------------------------------------------------------


def get_weather(city: str) -> str:
    """Look up today's weather."""
    return f"{city}: sunny"


def get_attraction(city: str, weather: str = "any") -> str:
    return f"{city}: the old town"


def test_names_keep_the_order_given_and_can_be_any_text() -> None:
    assert Toolbox([get_weather, get_attraction]).names == ("get_weather", "get_attraction")
    named = Toolbox({"kv.get-item": get_weather, "查询天气": get_weather})
    assert named.names == ("kv.get-item", "查询天气")
    assert named.execute(call("查询天气", city="北京")) == Observation("北京: sunny")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("get_wether", "did you mean get_weather"),
        ("teleport", "the tools are get_weather, get_attraction"),
        ("", "the tools are"),
        (None, "the tools are"),
        (["get_weather"], "the tools are"),
        ("get_weather" * 100_000, "no tool named"),
    ],
)
def test_an_unknown_name_is_told_what_there_is(wrong: Any, says: str) -> None:
    observation = Toolbox([get_weather, get_attraction]).execute(call(wrong, city="Lyon"))
    assert (observation.ok, observation.kind) == (False, Kind.UNKNOWN_TOOL)
    assert says in observation.text
    assert len(observation.text) < 500


def test_an_empty_toolbox_says_that_it_is_empty() -> None:
    assert "there are no tools" in Toolbox([]).execute(call("get_weather")).text
    assert Toolbox([]).describe() == ""
    assert Toolbox([]).schemas() == ()


# --- Building it ------------------------------------------------------------------------------


def positional_only(city: str, /) -> str:
    return city


def starred(*cities: str) -> str:
    return " ".join(cities)


def unreadable(city: NoSuchType) -> str:  # type: ignore[name-defined]  # noqa: F821
    return str(city)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Toolbox([get_weather, get_weather]), "two tools are named 'get_weather'"),
        (lambda: Toolbox([positional_only]), "drop the '/'"),
        (lambda: Toolbox([starred]), "take one list parameter instead"),
        (lambda: Toolbox([unreadable]), "NoSuchType"),
        (lambda: Toolbox([functools.partial(get_weather, city="Lyon")]), "has no name"),
        (lambda: Toolbox({"": get_weather}), "has no name"),
        (lambda: Toolbox([get_weather], idempotent=["get_whether"]), "the tools are get_weather"),
        (lambda: Toolbox([get_weather], max_characters=0), "at least 1"),
    ],
)
def test_a_toolbox_that_cannot_work_is_not_built(build: Callable[[], Toolbox], says: str) -> None:
    with pytest.raises(ValueError) as refused:
        build()
    assert says in str(refused.value)


def test_idempotent_tools_are_those_named() -> None:
    tools = Toolbox([get_weather, get_attraction], idempotent=["get_weather"])
    assert [tools.is_idempotent(name) for name in ("get_weather", "get_attraction", "no_such")] == [
        True,
        False,
        False,
    ]


def test_parameters_are_those_that_can_be_given_by_position() -> None:
    def search(query: str, limit: int = 3, *, exact: bool = False, **more: str) -> str:
        return query

    tools = Toolbox([search])
    assert tools.parameters("search") == ("query", "limit")
    with pytest.raises(KeyError):
        tools.parameters("no_such")


# --- Telling the model about it ---------------------------------------------------------------


def test_describe_is_a_line_for_each_tool() -> None:
    assert Toolbox([Entered().weather, get_attraction]).describe() == (
        "- weather(city: str, days: int = 1) -> str: Forecast the weather of a city.\n"
        "- get_attraction(city: str, weather: str = 'any') -> str"
    )


def test_a_schema_is_what_function_calling_wants() -> None:
    assert Toolbox([Entered().weather]).schemas() == (
        {
            "name": "weather",
            "description": "Forecast the weather of a city.\n\nFor as many days as asked.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    )


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (list, {"type": "array"}),
        (dict, {"type": "object"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (
            dict[str, list[float]],
            {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "number"}}},
        ),
        (dict[int, str], {"type": "object"}),
        (Optional[str], {"anyOf": [{"type": "string"}, {"type": "null"}]}),  # noqa: UP045
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Literal["C", "F"], {"enum": ["C", "F"]}),
        (Literal["C", b"F"], {}),
        (Annotated[int, "how many"], {"type": "integer"}),
        (Any, {}),
        (Place, {}),
        (tuple[int, int], {}),
        (["not", "a", "type"], {}),
        ("str", {"type": "string"}),
    ],
)
def test_annotations_become_json_schemas(annotation: Any, schema: dict[str, Any]) -> None:
    (written,) = accepting(annotation)[0].schemas()
    assert written["parameters"]["properties"] == {"value": schema}
    json.dumps(written, allow_nan=False)


@pytest.mark.parametrize("default", [None, math.inf, math.nan, object(), b"x"])
def test_a_default_that_json_cannot_write_is_left_out(default: Any) -> None:
    (written,) = accepting(Any, default)[0].schemas()
    assert written["parameters"]["properties"] == {"value": {}}
    assert written["parameters"]["required"] == []


def test_extra_arguments_are_allowed_where_the_tool_takes_them() -> None:
    tools = Toolbox([Entered().anything])
    assert tools.schemas()[0]["parameters"]["additionalProperties"] == {"type": "integer"}
    assert tools.execute(call("anything", a="1", b=2)).ok
    assert "b must be int" in tools.execute(call("anything", a=1, b="two")).text
    assert tools.execute(ToolCall("anything", {1: 1})).kind is Kind.BAD_ARGUMENTS  # type: ignore[dict-item]


def test_a_schema_belongs_to_whoever_asked_for_it() -> None:
    tools, _ = accepting(Literal["a", "b"])
    tools.schemas()[0]["parameters"]["properties"]["value"]["enum"].append("c")
    assert tools.schemas()[0]["parameters"]["properties"]["value"]["enum"] == ["a", "b"]


# --- Checking the arguments -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({}, ["missing argument 'city'"]),
        ({"city": "Lyon", "planet": "Mars"}, ["unexpected argument 'planet'"]),
        ({"city": "Lyon", "days": "three"}, ["days must be int, not 'three'"]),
        (
            {"town": "Lyon", "days": None},
            ["missing argument 'city'", "unexpected argument 'town'", "days must"],
        ),
        ('{"city": "Lyon"}', ["must be a mapping"]),
        (["Lyon"], ["must be a mapping"]),
        (None, ["must be a mapping"]),
        ({1: "Lyon"}, ["unexpected argument 1", "missing argument 'city'"]),
    ],
)
def test_T06_arguments_that_do_not_fit_are_named_and_the_tool_is_not_entered(
    arguments: Any, names: list[str]
) -> None:
    world = Entered()
    observation = Toolbox([world.weather]).execute(ToolCall("weather", arguments, "c1"))
    assert (observation.ok, observation.kind) == (False, Kind.BAD_ARGUMENTS)
    assert all(name in observation.text for name in names)
    assert "weather(city: str, days: int = 1) -> str" in observation.text
    assert world.calls == []


def test_T06_a_bug_inside_the_tool_is_not_called_an_argument_error() -> None:
    def broken(city: str) -> int:
        return len(5)  # type: ignore[arg-type]

    observation = Toolbox([broken]).execute(call("broken", city="Lyon"))
    assert (observation.ok, observation.kind) == (False, Kind.TOOL_ERROR)
    assert observation.text == "broken failed with TypeError: object of type 'int' has no len()"


@pytest.mark.parametrize(
    ("annotation", "given", "arrives"),
    [
        (int, "3", 3),
        (int, "-3", -3),
        (int, 3.0, 3),
        (float, 3, 3.0),
        (float, "3.50", 3.5),
        (float, math.inf, math.inf),
        (bool, "true", True),
        (bool, "False", False),
        (str, 3, "3"),
        (str, '{"looks": "like json"}', '{"looks": "like json"}'),
        (str, "\ud83c", "\ud83c"),
        (list[int], ["1", 2, 3.0], [1, 2, 3]),
        (list, (1, 2), [1, 2]),
        (dict[str, float], {"a": "1.5"}, {"a": 1.5}),
        (Optional[int], None, None),  # noqa: UP045
        (int | None, "3", 3),
        (int | str, "3", "3"),
        (str | float, 0, 0.0),
        (str | int, 3, 3),
        (list[int] | list[str], ["3"], ["3"]),
        (Literal[3, "4"], "3", 3),
        (Literal[3, "3"], "3", "3"),
        (Literal["4"], 4, "4"),
        (Literal[b"x"], "whatever", "whatever"),
        (Union[Place, None], {"city": "Lyon"}, {"city": "Lyon"}),  # noqa: UP007
        (Annotated[int, "how many"], "3", 3),
        (Place, "not checked", "not checked"),
        (object, [None], [None]),
    ],
)
def test_T02_values_are_converted_only_where_nothing_is_lost(
    annotation: Any, given: Any, arrives: Any
) -> None:
    tools, entered = accepting(annotation)
    assert tools.execute(call("tool", value=given)).text == "ok"
    assert entered == [arrives]
    assert repr(entered[0]) == repr(arrives)  # 3, 3.0 and True are equal, but not the same


@pytest.mark.parametrize(
    ("annotation", "given"),
    [
        (int, True),
        (int, 3.5),
        (int, math.inf),
        (int, math.nan),
        (int, "3.0"),
        (int, ""),
        (int, None),
        (int, "9" * 5000),
        (float, False),
        (float, "nan"),
        (float, "1e999"),
        (float, 2**53 + 1),
        (float, 10**400),
        (bool, 1),
        (bool, "yes"),
        (str, None),
        (str, 1.10),
        (str, True),
        (str, 10**5000),
        (str, {"a": 1}),
        (str, ["a"]),
        (str, b"a"),
        (list, "[1]"),
        (list, {"a": 1}),
        (dict, "{}"),
        (dict[str, int], {1: 1}),
        (Optional[int], "null"),  # noqa: UP045
        (Literal["C", "F"], "K"),
        (Literal[1], True),
        (Literal[True], 1),
    ],
    ids=kind_of,
)
def test_T06_values_that_would_lose_something_are_refused(annotation: Any, given: Any) -> None:
    tools, entered = accepting(annotation)
    observation = tools.execute(call("tool", value=given))
    assert observation.kind is Kind.BAD_ARGUMENTS
    assert "value must be" in observation.text
    assert entered == []


@pytest.mark.parametrize(
    ("annotation", "given", "place"),
    [
        (list[int], [1, "two"], "value[1] must be int, not 'two'"),
        (dict[str, list[int]], {"a": [1], "b": [2, None]}, "value['b'][1] must be int, not None"),
    ],
)
def test_the_element_that_does_not_fit_is_named(annotation: Any, given: Any, place: str) -> None:
    assert place in accepting(annotation)[0].execute(call("tool", value=given)).text


def test_a_default_of_none_means_that_none_may_be_given() -> None:
    tools, entered = accepting(int, None)
    assert tools.execute(call("tool", value=None)).ok
    assert tools.execute(call("tool", value="3")).ok
    assert entered == [None, 3]


def test_any_mapping_holds_arguments_and_stays_as_it_was() -> None:
    arguments = MappingProxyType({"city": "Lyon", "days": "2"})
    assert Toolbox([Entered().weather]).execute(ToolCall("weather", arguments)).text == "Lyon: sun for 2 days"
    assert arguments["days"] == "2"


def test_prepare_does_not_run_the_tool() -> None:
    world = Entered()
    ready = Toolbox([world.weather]).prepare(call("weather", city="Lyon", days="2"))
    assert world.calls == []
    assert not isinstance(ready, Observation)
    assert ready() == "Lyon: sun for 2 days"


# --- Running it -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ValueError("no such city"), "ValueError: no such city"),
        (SystemExit(3), "SystemExit: 3"),
        (StopIteration("early"), "StopIteration: early"),
        (ExceptionGroup("two", [ValueError("a")]), "ExceptionGroup: two"),
        (RecursionError(), "RecursionError"),
        (Unspeakable(), "Unspeakable"),
        (ValueError("x" * 50_000), "[cut: 10000 of"),
    ],
)
def test_EA55_whatever_a_tool_raises_is_an_observation_of_its_own(error: BaseException, says: str) -> None:
    def fails() -> str:
        raise error

    observation = Toolbox([fails]).execute(call("fails"))
    assert (observation.ok, observation.kind) == (False, Kind.TOOL_ERROR)
    assert observation.text.startswith("fails failed with ")
    assert says in observation.text


@pytest.mark.parametrize("signal", [KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
def test_what_is_meant_for_the_driver_goes_through(signal: type[BaseException]) -> None:
    def interrupted() -> str:
        raise signal

    with pytest.raises(signal):
        Toolbox([interrupted]).execute(call("interrupted"))


def test_EA54_a_tool_can_report_a_failure_by_value() -> None:
    refused = Observation("the account is closed", ok=False, kind=Kind.REFUSED)
    assert Toolbox({"pay": lambda: refused}).execute(call("pay")) == refused


def test_an_async_tool_needs_an_asyncio_driver_and_execute_says_so() -> None:
    entered = []

    async def fetch(url: str) -> str:
        entered.append(url)
        return "page"

    tools = Toolbox([fetch])
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        observation = tools.execute(call("fetch", url="a"))
    assert warned == []  # "coroutine was never awaited" would be one
    assert (observation.ok, observation.kind) == (False, Kind.TOOL_ERROR)
    assert "asyncio" in observation.text
    assert entered == []

    ready = tools.prepare(call("fetch", url="b"))
    assert not isinstance(ready, Observation)
    assert tools.observe(asyncio.run(ready())) == Observation("page")


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)
DEEP: list[Any] = []
for _ in range(100_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("as it is\n", "as it is\n"),
        ("", ""),
        ("\ud83c alone", "\ud83c alone"),
        (None, "done (nothing was returned)"),
        ({"城市": "北京"}, '{"城市": "北京"}'),
        ([1, True, None], "[1, true, null]"),
        (True, "true"),
        (2.50, "2.5"),
        ({("a", 1): 2}, "{('a', 1): 2}"),
        ([{1}], "[{1}]"),
        (CIRCLE, "[[...]]"),
        (b"caf\xc3\xa9 \xff", "café \ufffd"),
        (frozenset({1}), "frozenset({1})"),
        (Unspeakable(), "<Unspeakable that cannot be shown: RuntimeError>"),
        (10**5000, "<int that cannot be shown: ValueError>"),
        (DEEP, "<list that cannot be shown: RecursionError>"),
    ],
    ids=kind_of,
)
def test_U01_any_result_becomes_text(result: Any, text: str) -> None:
    assert Toolbox([]).observe(result) == Observation(text)


def test_a_long_result_is_cut_and_says_so() -> None:
    long = Toolbox([], max_characters=10)
    assert long.observe("x" * 10) == Observation("x" * 10)
    assert long.observe("x" * 11) == Observation("x" * 10 + "... [cut: 10 of 11 characters shown]")
    assert long.observe(list(range(100))).text.startswith("[0, 1, 2, ... [cut: 10 of ")
    assert Toolbox([]).observe("x" * 52_311).text.endswith("... [cut: 10000 of 52311 characters shown]")


# --- Cutting ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "one",
    [
        "e\u0301",  # a letter and its accent
        "\u2764\ufe0f",  # a heart and the selector that makes it red
        "👩\u200d🚀",  # an astronaut: two emoji and a joiner
        "👍🏽",  # a thumb and its skin tone
        "🇫🇷",  # a flag: two letters
        "1\ufe0f\u20e3",  # a key
        "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",  # England
    ],
    ids=ascii,
)
def test_a_cut_falls_before_what_is_one_character_to_a_reader(one: str) -> None:
    text = f"ab{one}"
    for limit in range(2, len(text)):
        assert cut(text, limit) == f"ab... [cut: 2 of {len(text)} characters shown]"
    assert cut(text, len(text)) == text


TEXTS = st.text(st.sampled_from("ab \n中\u0301\u200d\ufe0f👩🚀🏽🇫🇷\ud83c"), max_size=30)


@given(TEXTS, st.integers(-2, 30))
def test_a_cut_text_is_a_beginning_of_it_and_never_longer_than_the_limit(text: str, limit: int) -> None:
    shown, note, _ = cut(text, limit).partition("... [cut: ")
    assert text.startswith(shown)
    assert bool(note) == (len(text) > limit)
    assert len(shown) <= max(limit, 0)
    if note and shown:
        assert not unicodedata.category(text[len(shown)]).startswith("M")
        assert "\u200d" not in (shown[-1], text[len(shown)])


# --- Promises, and what is imported -----------------------------------------------------------


@pytest.mark.parametrize("promise", PROMISES)
def test_it_keeps_the_promise(promise: str) -> None:
    PROMISES[promise](Toolbox)


def test_the_slow_modules_are_imported_only_when_needed() -> None:
    program = "import sys, agentloop; print({'difflib', 'unicodedata', 'asyncio'} & set(sys.modules))"
    root = Path(__file__).resolve().parent.parent
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "set()"
