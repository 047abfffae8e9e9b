"""Arguments are data: read the values of a call out of a model's text, without running any of it.

JSON is read by ``json`` (``read_json``, for both protocols). What a model writes besides (``city="北京",
days=3``, single quotes, ``True``, full-width signs “ ” （ ） ， ＝, a trailing comma, text that runs over
lines) is read here token by token. The tokens are all there is: a name that is not a constant, an
operator, a comment or anything else is an error. In both, so is a key that is given twice, and brackets
more than ``DEEPEST`` deep. Nothing is skipped, so that no tool ever runs with half of what the model
wrote. ``eval`` (article A, line 393) runs whatever code it is given; a regular expression (article B,
line 50) drops whatever it does not match. That two grammars are read, and refused for the same reasons,
makes this file longer than a paradigm should be.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

Arguments = dict[str, Any]

_TOKEN = re.compile(
    r"""\s*+(?: (?P<close>[)\]}）］｝])
    | (?P<name>[^\W\d]\w*+)\s*+[=＝:：]
    | (?P<open>[\[{［｛])
    | (?P<number>[-+]?(?:0|[1-9][0-9_]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?(?!\w))
    | (?P<word>[^\W\d]\w*+)
    | (?P<quote>\"""|'''|"|')(?P<string>(?:\\.|(?!(?P=quote))[^\\])*+)(?P=quote)
    | “(?P<wide>[^”]*+)” | ‘(?P<single>[^’]*+)’ )""",
    re.VERBOSE | re.DOTALL,
)
_SEPARATOR = re.compile(r"\s*+(?:[,，]|(?P<colon>[:：])|(?=[)\]}）］｝]))")
_CLOSING = {"(": ")）", "（": ")）", "[": "]］", "［": "]］", "{": "}｝", "｛": "}｝"}
_CONSTANTS = {"true": True, "false": False, "null": None, "none": None}
_HEX = "[0-9a-fA-F]"
_ESCAPE = re.compile(rf"\\(?:x({_HEX}{{2}})|u({_HEX}{{4}})|U(00(?:0{_HEX}|10){_HEX}{{4}})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0"}
_ESCAPES |= {sign: sign for sign in "\"'\\/"}  # a backslash before anything else is a backslash
DEEPEST = 50  # brackets within brackets; Python may have no stack left, later, for what is nested very deep
_TOO_DEEP = f"The arguments are nested more than {DEEPEST} deep."
_TOO_LONG = "A number is too long: it has thousands of digits."  # int() refuses it, for the time it takes
_TWICE = "The argument {!r} is given twice."


class Unreadable(Exception):
    """What a model wrote cannot be read; the message says why."""


def read_items(text: str, position: int, depth: int = 1) -> tuple[list[Any], Arguments, int]:
    """Read from the opening bracket at ``position`` to its closing one.

    Returns the values without a name, those with one (``name=value`` or ``"name": value``), and
    where they end. Raises ``Unreadable``.
    """
    closing = _CLOSING[text[position]]
    values: list[Any] = []
    named: Arguments = {}
    name: str | None = None
    position += 1
    while True:
        token = _TOKEN.match(text, position)
        if token is None:
            raise _stuck(text, position)
        if token["close"]:
            if name is not None or token["close"] not in closing:
                raise _stuck(text, position)
            return values, named, token.end()
        if token["name"] and name is None:
            name, position = token["name"], token.end()
            continue
        value, position = _value(text, token, depth)
        separator = _SEPARATOR.match(text, position)
        if separator is None or (separator["colon"] and not (name is None and isinstance(value, str))):
            raise _stuck(text, position)
        position = separator.end()
        if separator["colon"]:
            name = value
        elif name is None:
            values.append(value)
        elif name in named:
            raise Unreadable(_TWICE.format(name))
        else:
            named[name] = value
            name = None


def read_object(text: str, position: int) -> tuple[Arguments, int]:
    """Read the object at ``position``, as JSON or else as Python, and say where it ends.

    Raises ``Unreadable``.
    """
    try:
        return read_json(text, position)
    except Unreadable:
        return _nested(text, position, 1)


def read_json(text: str, position: int = 0) -> tuple[Any, int]:
    """Read the JSON value that begins at ``position``, and say where it ends.

    Raises ``Unreadable``, also for a key that is given twice (``json`` would keep the last one) and
    for brackets more than ``DEEPEST`` deep.
    """
    try:
        value, end = _JSON.raw_decode(text, position)
    except json.JSONDecodeError as error:
        raise Unreadable(f"The arguments are not valid JSON: {error}.") from None
    except ValueError:
        raise Unreadable(_TOO_LONG) from None
    except RecursionError:
        raise Unreadable(_TOO_DEEP) from None
    if end - position > 2 * DEEPEST and _is_deep(value):
        raise Unreadable(_TOO_DEEP)
    return value, end


def must_end(text: str, end: int) -> None:
    """Raise ``Unreadable`` where the text goes on after ``end``: half of it is no call."""
    if end < len(text):
        raise Unreadable(f"The arguments are over, and this is left: {text[end : end + 20]!r}.")


def must_be_plain(value: Any) -> None:
    """Raise ``Unreadable`` for arguments that came as data and that nobody could write down again."""
    if _is_deep(value):
        raise Unreadable(_TOO_DEEP)
    try:
        repr(value)
    except Exception as error:
        raise Unreadable(f"The arguments cannot be written down: {type(error).__name__}.") from None


def _distinct(pairs: list[tuple[str, Any]]) -> Arguments:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise Unreadable(_TWICE.format(twice))
    return found


_JSON = json.JSONDecoder(object_pairs_hook=_distinct)


def _is_deep(value: Any) -> bool:
    """Whether anything inside of ``DEEPEST`` brackets opens one more."""
    layer = [value]
    for _ in range(DEEPEST):
        layer = [inner for each in layer for inner in _inside(each)]
    return any(isinstance(each, (dict, list)) for each in layer)


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _value(text: str, token: re.Match[str], depth: int) -> tuple[Any, int]:
    """Return the value that a token is, or begins, and where it ends."""
    kind = str(token.lastgroup)
    written, end = token[kind], token.end()
    if kind == "open":
        return _nested(text, token.start(kind), depth + 1)
    if kind == "string":
        return _unescaped(written) if "\\" in written else written, end
    if kind in ("wide", "single"):
        return written, end
    if kind == "number":
        return _number(written.replace("_", "")), end
    if written.casefold() in _CONSTANTS:
        return _CONSTANTS[written.casefold()], end
    raise Unreadable(f"{written[:40]!r} is not a value: text must stand in quotes.")


def _number(digits: str) -> int | float:
    try:
        return int(digits) if digits.lstrip("+-").isdigit() else float(digits)
    except ValueError:
        raise Unreadable(_TOO_LONG) from None


def _nested(text: str, position: int, depth: int) -> tuple[Any, int]:
    if depth > DEEPEST:
        raise Unreadable(_TOO_DEEP)
    values, named, end = read_items(text, position, depth)
    is_object = text[position] in "{｛"
    if values if is_object else named:
        raise _stuck(text, position)
    return named if is_object else values, end


def _unescaped(written: str) -> str:
    """Resolve the escapes of a quoted text; two halves of an emoji (``\\ud83d\\ude00``) become one."""
    text = _ESCAPE.sub(_character, written)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _character(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    return chr(int(code, 16)) if code else _ESCAPES.get(escape[4], escape[0])


def _stuck(text: str, position: int) -> Unreadable:
    return Unreadable(f"The arguments cannot be read at {text[position : position + 20] or 'the end'!r}.")
