"""What a toolbox promises: plain functions of one ``make_toolbox``: of ours, of wrong ones, of a reader's.

``make_toolbox(tools, idempotent=..., max_characters=...)`` makes a toolbox as ``Toolbox`` does; used here
are its ``execute`` and ``schemas``. ``check_toolbox(make_toolbox)`` raises ``BrokenPromise``
with a story in plain words: the tool, the call, what came of it. ``PROMISES`` holds the same promises one
by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any, Literal, NamedTuple, TypedDict

from hypothesis import given
from hypothesis import strategies as st

from agentloop import Kind, Observation, ToolCall, Unavailable, cut
from tests.check_machine import BrokenPromise
from tests.check_parser import QUICK

MakeToolbox = Callable[..., Any]


class Entered:
    """Tools that write down each time they are entered, and with what."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def weather(self, city: str, days: int = 1) -> str:
        """Forecast the weather of a city.

        For as many days as asked.
        """
        self.calls.append({"city": city, "days": days})
        return f"{city}: sun for {days} days"

    def anything(self, **values: int) -> str:
        self.calls.append(values)
        return "kept"


def tool_taking(annotation: Any, *default: Any) -> tuple[Callable[..., str], list[Any]]:
    """A tool whose one parameter is annotated so; and the list of what entered it."""
    entered: list[Any] = []

    def tool(value: Any) -> str:
        entered.append(value)
        return "ok"

    tool.__annotations__ = {"value": annotation}
    tool.__defaults__ = default or None
    return tool, entered


class Unspeakable(Exception):
    """What cannot be written: its ``str`` raises, and its ``repr`` too."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Place(TypedDict):
    city: str


# --- What a model may send, and what a tool may want ------------------------------------------

WHOLE = st.integers(-(2**53), 2**53)  # as far as every whole number is a float, too
SCALARS = (
    st.none() | st.booleans() | WHOLE | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
)
JSON = st.recursive(
    SCALARS | st.sampled_from(["1", "2.5", "true", "a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
ODD = st.binary(max_size=3) | st.floats() | st.integers() | st.builds(Unspeakable) | st.tuples(st.integers())
PARAMETERS = st.sampled_from(["city", "days", "town"]) | st.text(max_size=3) | st.integers()
ARGUMENTS = st.dictionaries(PARAMETERS, JSON | ODD, max_size=3) | JSON | ODD
ODD_ARGUMENTS: tuple[Any, ...] = (
    {},
    {"days": 3},
    {"town": "Lyon"},
    {"city": "Lyon", "town": "Paris"},
    {"city": "Lyon", "days": "three"},
    {"city": "Lyon", "days": True},
    {"city": "Lyon", "days": None},
    {"city": None},
    {1: "Lyon"},
    ["Lyon"],
    "Lyon",
    None,
)
NEAR = ("wether", "Weather", "weather ", "weather()", "anythin", "")


#: Values that are easily taken for one another.
ALIKE: tuple[Any, ...] = (
    1,
    True,
    1.0,
    "1",
    "true",
    "True",
    0,
    False,
    None,
    "null",
    "",
    [],
    "[]",
    {},
    "{}",
    "a",
    "b",
)


class Wanted(NamedTuple):
    """An annotation, and the JSON schema of what fits it, written down here and not by a toolbox."""

    annotation: Any
    schema: Mapping[str, Any]


PLAIN = (
    Wanted(str, {"type": "string"}),
    Wanted(int, {"type": "integer"}),
    Wanted(float, {"type": "number"}),
    Wanted(bool, {"type": "boolean"}),
    Wanted(list, {"type": "array"}),
    Wanted(dict, {"type": "object"}),
    Wanted(Literal["a", 1, True], {"enum": ["a", 1, True]}),
    Wanted(Place, {}),
    Wanted(Any, {}),
)
WANTED = st.recursive(
    st.sampled_from(PLAIN),
    lambda inner: st.one_of(
        inner.map(lambda each: Wanted(list[each.annotation], {"type": "array", "items": each.schema})),  # type: ignore[name-defined]
        inner.map(
            lambda each: Wanted(
                dict[str, each.annotation],  # type: ignore[name-defined]
                {"type": "object", "additionalProperties": each.schema},
            )
        ),
        inner.map(lambda each: Wanted(each.annotation | None, {"anyOf": [each.schema, {"type": "null"}]})),
        st.tuples(inner, inner).map(
            lambda two: Wanted(
                two[0].annotation | two[1].annotation, {"anyOf": [two[0].schema, two[1].schema]}
            )
        ),
    ),
    max_leaves=3,
)


def conforms(value: Any, schema: Mapping[str, Any]) -> bool:
    """Validate a value against the part of JSON Schema that is used here; independent of any toolbox."""
    if "anyOf" in schema:
        return any(conforms(value, each) for each in schema["anyOf"])
    if "enum" in schema:
        return any(type(each) is type(value) and each == value for each in schema["enum"])
    if "type" not in schema:
        return True
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    checks: dict[str, Callable[[], bool]] = {
        "string": lambda: isinstance(value, str),
        "integer": lambda: number and value == int(value),
        "number": lambda: number,
        "boolean": lambda: isinstance(value, bool),
        "null": lambda: value is None,
        "array": lambda: (
            isinstance(value, list) and all(conforms(each, schema.get("items", {})) for each in value)
        ),
        "object": lambda: (
            isinstance(value, dict)
            and all(conforms(each, schema.get("additionalProperties", {})) for each in value.values())
        ),
    }
    return checks[schema["type"]]()


# --- Telling ----------------------------------------------------------------------------------


def shown(value: object) -> str:
    """A value in one short line, whatever it is."""
    try:
        return cut(repr(value), 200)
    except Exception:
        return f"<{type(value).__name__} that cannot be written>"


def told(call: ToolCall) -> str:
    name = call.name if isinstance(call.name, str) and call.name.isidentifier() else shown(call.name)
    return f"the call of {name} with {shown(call.arguments)}"


def expect(kept: bool, story: str) -> None:
    if not kept:
        raise BrokenPromise(story)


def executed(tools: Any, call: ToolCall) -> Observation:
    """What a toolbox made of a call: an observation in words. Raises with a story for anything else."""
    try:
        observation = tools.execute(call)
    except (Exception, SystemExit) as error:
        raise BrokenPromise(f"for {told(call)}: it has to answer, and raised {shown(error)}") from error
    right = isinstance(observation, Observation) and isinstance(observation.text, str)
    expect(right, f"for {told(call)}: an Observation with text was due, and it came to {shown(observation)}")
    return observation  # type: ignore[no-any-return]


# --- The promises -----------------------------------------------------------------------------


def it_answers_any_call(make_toolbox: MakeToolbox) -> None:
    """It never raises. Any name, with anything for arguments, is answered: by a result, or by a failure."""

    @QUICK
    @given(st.sampled_from(["weather", "anything"]) | st.text(max_size=5) | JSON, ARGUMENTS)
    def prove(name: Any, arguments: Any) -> None:
        world = Entered()
        call = ToolCall(name, arguments)
        observation = executed(make_toolbox([world.weather, world.anything]), call)
        right = observation.ok == (observation.kind is Kind.RESULT)
        expect(
            right, f"for {told(call)}: a success is a RESULT, a failure is none, and it came to {observation}"
        )

    prove()


def an_unknown_name_runs_nothing(make_toolbox: MakeToolbox) -> None:
    """A name that no tool has is answered with a failure that says so, and nothing is run."""

    @QUICK
    @given(st.sampled_from(NEAR) | st.text(max_size=5) | JSON, st.sampled_from(({"city": "Lyon"}, {})))
    def prove(name: Any, arguments: dict[str, Any]) -> None:
        if name in ("weather", "anything"):
            return
        world = Entered()
        call = ToolCall(name, arguments)
        observation = executed(make_toolbox([world.weather, world.anything]), call)
        which = f"{told(call)}, where the tools are weather and anything"
        expect(not world.calls, f"for {which}: a tool was run with {world.calls}")
        failed = not observation.ok and observation.kind is Kind.UNKNOWN_TOOL
        expect(failed, f"for {which}: due is a failure, UNKNOWN_TOOL, and it came to {observation}")

    prove()


def a_call_that_could_not_be_read_runs_nothing(make_toolbox: MakeToolbox) -> None:
    """A call with a problem is answered with that problem; its tool is not run, even if it could be."""
    world = Entered()
    problem = Observation("write it as JSON", ok=False, kind=Kind.MALFORMED)
    call = ToolCall("weather", {"city": "Lyon"}, problem=problem)
    observation = executed(make_toolbox([world.weather]), call)
    expect(not world.calls, f"the call has a problem, {problem.text!r}, and its tool was run all the same")
    expect(observation == problem, f"the call has a problem, {problem}, and it came to {observation}")


def it_enters_no_tool_with_what_does_not_fit(make_toolbox: MakeToolbox) -> None:
    """Arguments that do not fit are told to the model as such, and the tool is not entered."""

    def prove(name: str, arguments: Any) -> None:
        world = Entered()
        call = ToolCall(name, arguments)
        observation = executed(make_toolbox([world.weather, world.anything]), call)
        entered_once_or_refused(world.calls, observation, f"for {told(call)}")
        for arrived in world.calls:
            wanted = {"city": str, "days": int} if name == "weather" else {}
            types = all(type(value) is wanted.get(key, int) for key, value in arrived.items())
            known = name == "anything" or "city" in arguments and wanted.keys() >= set(arguments)
            expect(types and known, f"for {told(call)}: the tool was entered with {shown(arrived)}")

    def prove_one(wanted: Wanted, value: Any) -> None:
        tool, entered = tool_taking(wanted.annotation)
        observation = executed(make_toolbox([tool]), ToolCall("tool", {"value": value}))
        which = f"{wants(wanted)}, was given {shown(value)}"
        entered_once_or_refused(entered, observation, which)
        for arrived in entered:
            expect(conforms(arrived, wanted.schema), f"{which}, and entered with {shown(arrived)}")

    for arguments in ODD_ARGUMENTS:
        prove("weather", arguments)
    for wanted, value in product(PLAIN, ALIKE):
        prove_one(wanted, value)
    QUICK(given(st.sampled_from(["weather", "anything"]), ARGUMENTS)(prove))()
    QUICK(given(WANTED, JSON)(prove_one))()


def entered_once_or_refused(entered: list[Any], observation: Observation, which: str) -> None:
    due = (True, Kind.RESULT) if len(entered) == 1 else (False, Kind.BAD_ARGUMENTS)
    right = len(entered) <= 1 and (observation.ok, observation.kind) == due
    expect(right, f"{which}: the tool was entered {len(entered)} times, and it came to {observation}")


def wants(wanted: Wanted) -> str:
    return f"a tool that takes {getattr(wanted.annotation, '__name__', wanted.annotation)}"


def what_a_schema_promises_is_accepted(make_toolbox: MakeToolbox) -> None:
    """A value that fits the schema which the model was shown enters the tool, as it was given."""

    def prove(wanted: Wanted, value: Any) -> None:
        tool, entered = tool_taking(wanted.annotation)
        tools = make_toolbox([tool])
        schema = tools.schemas()[0]["parameters"]["properties"]["value"]
        if not conforms(value, schema):
            return
        observation = executed(tools, ToolCall("tool", {"value": value}))
        which = f"{wants(wanted)}, shown to the model as {schema}, was given {shown(value)}"
        expect(observation.ok, f"{which}, and it was refused: {observation.text}")
        expect(entered == [value], f"{which}, and entered with {shown(entered)}")

    for wanted, value in product(PLAIN, ALIKE):
        prove(wanted, value)
    QUICK(given(WANTED, JSON)(prove))()


def a_text_is_never_altered(make_toolbox: MakeToolbox) -> None:
    """A text for a parameter that takes text arrives as it is, whatever it looks like."""
    looks = st.sampled_from(["1", "1.10", "true", "null", '{"looks": "like json"}', "[1]", " ", "\ud83c"])

    @QUICK
    @given(looks | st.text(), WANTED)
    def prove(text: str, wanted: Wanted) -> None:
        for annotation in (str, str | None, wanted.annotation | str):
            tool, entered = tool_taking(annotation)
            observation = executed(make_toolbox([tool]), ToolCall("tool", {"value": text}))
            which = f"{wants(Wanted(annotation, {}))}, was given {shown(text)}"
            expect(observation.ok, f"{which}, and it was refused: {observation.text}")
            right = entered == [text] and type(entered[0]) is str
            expect(right, f"{which}, and entered with {shown(entered)}")

    prove()


#: What a tool may raise: what looks like a bad call or a way out is its own all the same.
BUGS: tuple[BaseException, ...] = (
    TypeError("missing 1 required positional argument: 'city'"),
    ValueError("no such city"),
    KeyError("city"),
    StopIteration("early"),
    RecursionError(),
    SystemExit(3),
    ExceptionGroup("two", [ValueError("a")]),
    Unspeakable(),
)


def raising(bug: BaseException) -> Callable[[str], str]:
    def broken(city: str) -> str:
        raise bug

    return broken


def a_bug_of_the_tool_is_not_blamed_on_the_model(make_toolbox: MakeToolbox) -> None:
    """Whatever a tool raises is answered with a failure of the tool's, TOOL_ERROR: the call was right."""
    for bug in BUGS:
        observation = executed(make_toolbox([raising(bug)]), ToolCall("broken", {"city": "Lyon"}))
        due = (observation.ok, observation.kind) == (False, Kind.TOOL_ERROR)
        expect(due, f"a tool raised {shown(bug)}, TOOL_ERROR was due, and it came to {observation}")


#: What a tool may raise for a fault that may pass, and what that is: nothing was done, or nobody knows.
PASSING: tuple[tuple[Exception, Kind], ...] = (
    (Unavailable("503", 30), Kind.UNAVAILABLE),
    (ConnectionRefusedError("nobody listens"), Kind.UNAVAILABLE),
    (ConnectionResetError("cut off"), Kind.UNCERTAIN),
    (TimeoutError("socket"), Kind.UNCERTAIN),
)


def a_fault_that_may_pass_says_whether_to_try_again(make_toolbox: MakeToolbox) -> None:
    """It is UNAVAILABLE where nothing was done, else UNCERTAIN, whatever the tool; a server's word stays."""
    for error, due in PASSING:
        for idempotent in (("broken",), ()):
            tools = make_toolbox([raising(error)], idempotent=idempotent)
            observation = executed(tools, ToolCall("broken", {"city": "Lyon"}))
            after = getattr(error, "retry_after", None)
            right = (observation.ok, observation.kind, observation.retry_after) == (False, due, after)
            which = f"an idempotent tool raised {error!r}" if idempotent else f"a tool raised {error!r}"
            expect(right, f"{which}, {due.name} was due, and it came to {observation}")


def results_become_text(make_toolbox: MakeToolbox) -> None:
    """Whatever a tool returns becomes an observation in words; a text stays as it is."""

    @QUICK
    @given(JSON | ODD)
    def prove(result: Any) -> None:
        tools = make_toolbox({"give": lambda: result})
        observation = executed(tools, ToolCall("give", {}))
        expect(observation.ok, f"a tool returned {shown(result)}, and it came to {observation}")
        same = observation.text == result or not isinstance(result, str)
        expect(same, f"a tool returned {shown(result)}, and the model is shown {shown(observation.text)}")

    prove()

    long = make_toolbox({"give": lambda: "晴" * 1000}, max_characters=10)
    text = executed(long, ToolCall("give", {})).text
    due = text.startswith("晴" * 10) and "晴" * 11 not in text and text != "晴" * 10
    expect(due, f"a result of 1,000 characters, cut after 10, has to say that it was cut: {shown(text)}")


PROMISES: dict[str, Callable[[MakeToolbox], None]] = {
    promise.__name__: promise
    for promise in (
        it_answers_any_call,
        an_unknown_name_runs_nothing,
        a_call_that_could_not_be_read_runs_nothing,
        it_enters_no_tool_with_what_does_not_fit,
        what_a_schema_promises_is_accepted,
        a_text_is_never_altered,
        a_bug_of_the_tool_is_not_blamed_on_the_model,
        a_fault_that_may_pass_says_whether_to_try_again,
        results_become_text,
    )
}


def check_toolbox(make_toolbox: MakeToolbox) -> None:
    """Put a toolbox under every promise. Raises ``BrokenPromise`` with the first story that breaks one."""
    for promise in PROMISES.values():
        promise(make_toolbox)
