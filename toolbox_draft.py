"""Draft of the toolbox section of ``agentloop.py``: from here down it is pasted there as it is."""

from __future__ import annotations

import copy
import functools
import inspect
import json
import math
import operator
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from agentloop import Kind, Observation, ToolCall

# --- The toolbox ------------------------------------------------------------------------------
# Plain functions in, observations out. What an annotation accepts is worked out once, when the
# toolbox is built; a call is checked before its tool is entered, so that a mistake of the model
# and a bug of the tool are never taken for each other.


def cut(text: str, limit: int) -> str:
    """Return ``text``, or its first ``limit`` characters at most and a note that says so.

    The cut never falls inside what a reader sees as one character: a base and its accents, an
    emoji and what is joined to it, a flag. It then falls before it, so a little less is shown.
    """
    if len(text) <= limit:
        return text
    end = max(limit, 0)
    while end > 0 and _is_joined(text[end - 1], text[end]):
        end -= 1
    return f"{text[:end]}... [cut: {end} of {len(text)} characters shown]"


#: First and last of what continues a character, beside the marks: Hangul vowels and finals, (non-)joiners,
#: skin tones, tags.
_CONTINUING = (("\u1160", "\u11ff"), ("\u200c", "\u200d"), ("\U0001f3fb", "\U0001f3ff"), ("\U000e0020", "\U000e007f"))
_FLAG_LETTERS = ("\U0001f1e6", "\U0001f1ff")


def _is_joined(before: str, after: str) -> bool:
    import unicodedata  # only a text that is too long needs it

    if unicodedata.category(after).startswith("M") or before == "\u200d" or before + after == "\r\n":
        return True
    if any(first <= after <= last for first, last in _CONTINUING):
        return True
    first, last = _FLAG_LETTERS  # where a row of flags divides is not looked up: it is kept whole
    return first <= before <= last and first <= after <= last


def _written(value: object, write: Callable[[Any], str]) -> str:
    """Write a value; one that cannot be written (``str()`` raises, nested too deeply) says so instead."""
    try:
        return write(value)
    except Exception as error:
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"


def _shown(value: object) -> str:
    return cut(_written(value, repr), 80)


class _Misfit(Exception):
    """A value does not fit. ``place`` leads from the parameter to it: ``[2]['city']``."""

    def __init__(self, wanted: str, value: object, place: str = "") -> None:
        self.wanted, self.value, self.place = wanted, value, place

    def __str__(self) -> str:
        return f"{self.place} must be {self.wanted}, not {_shown(self.value)}"


class _Shape(NamedTuple):
    """What an annotation accepts: in words, as a JSON schema, and as a function.

    ``fit`` returns the value itself where it fits, or else what it was converted to without loss;
    it raises ``_Misfit``. Values of the types in ``exact`` fit as they are and need not ask it.
    """

    wanted: str
    schema: dict[str, Any]
    fit: Callable[[Any], Any]
    exact: tuple[type, ...] = ()


def _whole(number: float) -> int:
    if not number.is_integer():
        raise ValueError
    return int(number)


def _same_float(number: int) -> float:
    if float(number) != number:  # beyond 2**53 not every whole number has a float
        raise ValueError
    return float(number)


def _finite(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError
    return float(text)


_TRUTH = {"true": True, "True": True, "false": False, "False": False}

#: (wanted, given): every conversion there is, none of which loses anything. A float does not
#: become text, since 1.10 would arrive as "1.1"; and nothing here starts from a bool.
_CONVERSIONS: dict[tuple[type, type], Callable[[Any], Any]] = {
    (str, int): str,
    (int, str): int,
    (int, float): _whole,
    (float, int): _same_float,
    (float, str): _finite,
    (bool, str): _TRUTH.__getitem__,
    (list, tuple): list,
}


def _plain(wanted: type, json_type: str) -> _Shape:
    name = "None" if wanted is types.NoneType else wanted.__name__

    def fit(value: Any) -> Any:
        # Python counts True among the ints; a model that writes true does not mean 1.
        if isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool)):
            return value
        try:
            return _CONVERSIONS[wanted, type(value)](value)
        except (KeyError, ValueError, OverflowError):
            raise _Misfit(name, value) from None

    return _Shape(name, {"type": json_type}, fit, (wanted,))


_ANYTHING = _Shape("anything", {}, lambda value: value)
_PLAIN = {
    str: _plain(str, "string"),
    int: _plain(int, "integer"),
    float: _plain(float, "number"),
    bool: _plain(bool, "boolean"),
    list: _plain(list, "array"),
    dict: _plain(dict, "object"),
    types.NoneType: _plain(types.NoneType, "null"),
}


def _list_of(element: _Shape) -> _Shape:
    def fit(value: Any) -> Any:
        items = _PLAIN[list].fit(value)
        fitted = _fit_each(element, enumerate(items))
        return items if all(map(operator.is_, fitted, items)) else fitted

    return _Shape(f"list[{element.wanted}]", {"type": "array", "items": element.schema}, fit)


def _dict_of(element: _Shape) -> _Shape:
    name = f"dict[str, {element.wanted}]"

    def fit(value: Any) -> Any:
        items = _PLAIN[dict].fit(value)
        if not all(isinstance(key, str) for key in items):
            raise _Misfit(name, value)
        fitted = _fit_each(element, items.items())
        return items if all(map(operator.is_, fitted, items.values())) else dict(zip(items, fitted))

    return _Shape(name, {"type": "object", "additionalProperties": element.schema}, fit)


def _fit_each(element: _Shape, items: Iterable[tuple[Any, Any]]) -> list[Any]:
    fitted = []
    for key, item in items:
        try:
            fitted.append(element.fit(item))
        except _Misfit as misfit:
            raise _Misfit(misfit.wanted, misfit.value, f"[{_shown(key)}]{misfit.place}") from None
    return fitted


def _either(members: Collection[_Shape]) -> _Shape:
    """A value that fits one member as it is stays as it is; only then is converting tried, in order."""
    name = " | ".join(member.wanted for member in members)

    def fit(value: Any) -> Any:
        fitted = []
        for member in members:
            try:
                fitted.append(member.fit(value))
            except _Misfit:
                continue
        if not fitted:
            raise _Misfit(name, value)
        return value if any(candidate is value for candidate in fitted) else fitted[0]

    exact = tuple(kind for member in members for kind in member.exact)
    return _Shape(name, {"anyOf": [member.schema for member in members]}, fit, exact)


def _literal(choices: tuple[Any, ...]) -> _Shape:
    if not all(type(choice) in _PLAIN for choice in choices):
        return _ANYTHING  # bytes and enum members, which no model can write
    return _either([_choice(choice) for choice in choices])._replace(schema={"enum": list(choices)})


def _choice(choice: Any) -> _Shape:
    def fit(value: Any) -> Any:
        fitted = _PLAIN[type(choice)].fit(value)
        if fitted != choice:
            raise _Misfit(repr(choice), value)
        return fitted

    return _Shape(repr(choice), {}, fit)


def _shape(annotation: Any) -> _Shape:
    """What an annotation accepts; anything, where it is none of those known here."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _shape(inner[0])
    if origin is Literal:
        return _literal(inner)
    if origin is Union or origin is types.UnionType:
        return _either([_shape(member) for member in inner])
    if origin is list and inner:
        return _list_of(_shape(inner[0]))
    if origin is dict and inner[:1] == (str,):
        return _dict_of(_shape(inner[1]))
    plain = annotation if origin is None else origin
    return _PLAIN.get(plain, _ANYTHING) if isinstance(plain, type) else _ANYTHING


class _Tool(NamedTuple):
    """A function and what was read off it. ``extra`` is what ``**arguments`` accept, where it has them."""

    name: str
    function: Callable[..., Any]
    signature: inspect.Signature
    shapes: dict[str, _Shape]
    required: tuple[str, ...]
    extra: _Shape | None

    def written(self) -> str:
        return f"{self.name}{self.signature}"

    def documentation(self) -> str:
        return inspect.getdoc(self.function) or ""

    def schema(self) -> dict[str, Any]:
        properties = {name: dict(shape.schema) for name, shape in self.shapes.items()}
        for name, schema in properties.items():
            default = self.signature.parameters[name].default
            if name not in self.required and _is_json(default):
                schema["default"] = default
        parameters = {
            "type": "object",
            "properties": properties,
            "required": list(self.required),
            "additionalProperties": self.extra.schema or True if self.extra else False,
        }
        return {"name": self.name, "description": self.documentation(), "parameters": parameters}

    def prepare(self, arguments: object) -> Callable[[], Any] | Observation:
        if not isinstance(arguments, (dict, Mapping)):
            return self._refusal([f"its arguments must be a mapping, not {_shown(arguments)}"])
        fitted, problems = {}, []
        for name, value in arguments.items():
            shape = self.shapes.get(name) or (self.extra if isinstance(name, str) else None)
            if shape is None:
                problems.append(f"unexpected argument {_shown(name)}")
            elif type(value) in shape.exact:
                fitted[name] = value
            else:
                try:
                    fitted[name] = shape.fit(value)
                except _Misfit as misfit:
                    problems.append(f"{name}{misfit}")
        for name in self.required:
            if name not in arguments:
                problems.append(f"missing argument {name!r}")
        return self._refusal(problems) if problems else functools.partial(self.function, **fitted)

    def _refusal(self, problems: list[str]) -> Observation:
        text = f"{self.name} was not run: {'; '.join(problems)}. Write it as: {self.written()}"
        return Observation(text, ok=False, kind=Kind.BAD_ARGUMENTS)


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


_NOT_BY_NAME = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only, but a model names its arguments: remove the '/'",
    inspect.Parameter.VAR_POSITIONAL: "has no names for a model to use: take one list parameter instead",
}


def _read_tool(name: str, function: Callable[..., Any]) -> _Tool:
    """Read a function's signature. Raises ``ValueError`` where a model could not call it by names."""
    try:
        signature = inspect.signature(function, eval_str=True)
    except Exception as error:  # annotations may be any expression, and so fail in any way
        raise ValueError(f"the signature of tool {name!r} cannot be read: {error}") from error
    shapes, required, extra = {}, [], None
    for parameter in signature.parameters.values():
        if parameter.kind in _NOT_BY_NAME:
            raise ValueError(f"tool {name!r}: parameter {str(parameter)!r} {_NOT_BY_NAME[parameter.kind]}")
        shape = _shape(parameter.annotation)
        if parameter.kind is parameter.VAR_KEYWORD:
            extra = shape
            continue
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        elif parameter.default is None and shape is not _ANYTHING:
            shape = _either([shape, _PLAIN[types.NoneType]])  # `unit: str = None` means Optional[str]
        shapes[parameter.name] = shape
    return _Tool(name, function, signature, shapes, tuple(required), extra)


class Toolbox:
    """The tools that a model may call, made from plain functions (``async def`` too).

    ``tools`` are functions, known by their own names, or a mapping from names to functions.
    ``idempotent`` names those that may be repeated when it is not known whether a call took
    effect. A result is cut after ``max_characters``. Raises ``ValueError`` for a name used twice
    or not known, and for a function whose arguments cannot all be given by name.

    A tool reports a failure of its own by raising, or by returning an ``Observation`` with
    ``ok=False``: a dict that says ``{"status": "error"}`` is a result like any other.
    """

    def __init__(
        self,
        tools: Iterable[Callable[..., Any]] | Mapping[str, Callable[..., Any]],
        *,
        idempotent: Collection[str] = (),
        max_characters: int = 10_000,
    ) -> None:
        named = tools.items() if isinstance(tools, Mapping) else [(_name_of(tool), tool) for tool in tools]
        self._tools: dict[str, _Tool] = {}
        for name, function in named:
            if name in self._tools:
                raise ValueError(f"two tools are named {name!r}: give a mapping from names to functions")
            self._tools[name] = _read_tool(name, function)
        for name in idempotent:
            if name not in self._tools:
                raise ValueError(f"idempotent names {name!r}, which is no tool: {self._known()}")
        if max_characters < 1:
            raise ValueError(f"max_characters must be at least 1, not {max_characters!r}")
        self._idempotent = frozenset(idempotent)
        self._max_characters = max_characters

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tools, in the order given."""
        return tuple(self._tools)

    def parameters(self, name: str) -> tuple[str, ...]:
        """Return the parameters of a tool that may be given by position. Raises ``KeyError``."""
        parameters = self._tools[name].signature.parameters.values()
        return tuple(each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD)

    def is_idempotent(self, name: str) -> bool:
        """Say whether a call may be repeated when its outcome is unknown; ``False`` for an unknown name."""
        return name in self._idempotent

    def describe(self) -> str:
        """Return the tool list of a prompt: a line for each tool, its signature and what it does."""
        lines = []
        for tool in self._tools.values():
            purpose = tool.documentation().partition("\n")[0]
            lines.append(f"- {tool.written()}: {purpose}" if purpose else f"- {tool.written()}")
        return "\n".join(lines)

    def schemas(self) -> tuple[dict[str, Any], ...]:
        """Return each tool as function calling wants it, with a JSON schema; the caller's to keep."""
        return tuple(copy.deepcopy(tool.schema()) for tool in self._tools.values())

    def prepare(self, call: ToolCall) -> Callable[[], Any] | Observation:
        """Check a call without running it.

        Returns the call ready to be made, its arguments converted; or, where it cannot be made,
        the failed observation that says why and what would be right (UNKNOWN_TOOL, BAD_ARGUMENTS).
        What is returned may be called once, and may raise what the tool raises.
        """
        if call.problem is not None:
            return call.problem
        tool = self._tools.get(call.name) if isinstance(call.name, str) else None
        return self._unknown(call.name) if tool is None else tool.prepare(call.arguments)

    def execute(self, call: ToolCall) -> Observation:
        """Check a call, make it, and return what came of it in words.

        Never raises for what a model or a tool did wrong; a ``KeyboardInterrupt`` passes.
        """
        ready = self.prepare(call)
        if isinstance(ready, Observation):
            return ready
        try:
            return self.observe(ready())
        except (Exception, SystemExit) as error:
            return self.failure(call, error)

    def failure(self, call: ToolCall, error: BaseException) -> Observation:
        """Return the observation for an exception that came out of a tool (TOOL_ERROR)."""
        text = f"{call.name} failed with {type(error).__name__}: {_written(error, str)}"
        return Observation(cut(text, self._max_characters), ok=False, kind=Kind.TOOL_ERROR)

    def observe(self, result: object) -> Observation:
        """Return a tool's result as an observation: text as it is, data as JSON, the rest by ``str``.

        An ``Observation`` stays what it is. An awaitable is closed and reported (TOOL_ERROR).
        """
        if isinstance(result, str):
            # Asked here and not left to `cut`: this is the path of nearly every call.
            return Observation(result if len(result) <= self._max_characters else cut(result, self._max_characters))
        if isinstance(result, Observation):
            return result
        if inspect.isawaitable(result):
            return _not_awaited(result)
        return Observation(cut(_text_of(result), self._max_characters))

    def _unknown(self, name: object) -> Observation:
        import difflib  # only a wrong name needs it

        near = difflib.get_close_matches(str(name)[:100], self.names) if isinstance(name, str) else []
        known = f"did you mean {' or '.join(near)}?" if near else self._known()
        text = f"There is no tool named {_shown(name)}: {known}"
        return Observation(cut(text, self._max_characters), ok=False, kind=Kind.UNKNOWN_TOOL)

    def _known(self) -> str:
        return f"the tools are {', '.join(self._tools)}" if self._tools else "there are no tools"


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", None)
    if not isinstance(name, str):
        raise ValueError(f"{function!r} has no name: give a mapping from names to functions")
    return name


def _not_awaited(result: object) -> Observation:
    close = getattr(result, "close", None)  # a coroutine has it, a future does not
    if callable(close):
        close()
    return Observation(
        "This tool is asynchronous and its result was not awaited: it needs an asyncio driver.",
        ok=False,
        kind=Kind.TOOL_ERROR,
    )


def _text_of(result: object) -> str:
    if result is None:
        return "done (nothing was returned)"
    if isinstance(result, (bytes, bytearray)):
        return result.decode("utf-8", errors="replace")
    if isinstance(result, (dict, list, bool, int, float)):
        try:
            return json.dumps(result, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError):
            pass  # it holds something that JSON has no word for, or holds itself
    return _written(result, str)
