"""A language so small that a model's program can be run without fear.

A program is one Python function that returns one expression::

    def place(weather, temperature):
        return "颐和园" if weather == "Sunny" and temperature > 0 else "国家博物馆"

The text is only parsed (``ast``) and then walked; Python itself never runs it. What the walk does not
know, it refuses: there are numbers, texts, names of parameters, arithmetic on numbers, comparisons, ``and``,
``or``, ``not``, ``if``-``else``, and calls of ``abs``, ``max``, ``min`` and of the function itself. Steps are
counted and values kept small, so that every call ends, and soon.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from agentloop import cut

LONGEST = 2000  # characters of a program or of a text
LARGEST = 1e12  # of a number
STEPS = 200  # expressions that one call may work out


class Refused(Exception):
    """The program cannot be read, uses what the language does not have, or goes on too long."""


_OPERATIONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_KNOWN = frozenset(_OPERATIONS)
_FUNCTIONS: dict[str, Callable[..., Any]] = {"abs": abs, "max": max, "min": min}
#: The arguments of a call, by parameter.
Names = dict[str, Any]

_FORM = "a program is one function: def NAME(PARAMETERS): return EXPRESSION"


class SmallFunction:
    """A function of the small language: read once, called like a function. Raises ``Refused``."""

    def __init__(self, source: str) -> None:
        if not isinstance(source, str) or len(source) > LONGEST:
            raise Refused(f"a program is text of at most {LONGEST} characters")
        try:
            body = ast.parse(source.strip()).body
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            raise Refused(f"not readable as Python ({error}); {_FORM}") from None
        match body:
            case [ast.FunctionDef(body=[ast.Return(value=ast.expr() as value)]) as function]:
                self.name, self._parameters, self._value = function.name, _parameters(function), value
            case _:
                raise Refused(_FORM)

    def __call__(self, *arguments: Any) -> Any:
        """Work out the result. Raises ``Refused``, for wrong types and a division by 0 too."""
        try:
            return _Call(self.name, self._parameters, self._value).work_out(arguments)
        except (TypeError, ArithmeticError) as error:
            raise Refused(f"{type(error).__name__}: {error}") from None
        except RecursionError:
            raise Refused(f"{self.name} is nested too deeply") from None


def _parameters(function: ast.FunctionDef) -> list[str]:
    given = function.args
    more = given.posonlyargs or given.kwonlyargs or given.vararg or given.kwarg or given.defaults
    if more or function.decorator_list:
        raise Refused(f"parameters are plain names, and there are no decorators: {_FORM}")
    return [parameter.arg for parameter in given.args]


class _Call:
    """One call from outside, with the steps that it took."""

    def __init__(self, name: str, parameters: list[str], body: ast.expr) -> None:
        self.functions = _FUNCTIONS | {name: lambda *arguments: self.work_out(arguments)}
        self.name, self.parameters, self.body = name, parameters, body
        self.steps = 0

    def work_out(self, arguments: tuple[Any, ...]) -> Any:
        if len(arguments) != len(self.parameters):
            raise Refused(f"{self.name} takes {len(self.parameters)} arguments, not {len(arguments)}")
        return self.value(self.body, dict(zip(self.parameters, arguments, strict=True)))

    def value(self, node: ast.expr, names: Names) -> Any:
        """The value of an expression; ``names`` are the arguments."""
        self.steps += 1
        if self.steps > STEPS:
            raise Refused(f"{self.name} had not ended after {STEPS} steps")
        match node:
            case ast.Constant(value=value):
                return _small(value)
            case ast.Name(id=name) if name in names:
                return names[name]
            case ast.IfExp(test=test, body=body, orelse=otherwise):
                return self.value(body if self.value(test, names) else otherwise, names)
            case ast.BoolOp(op=op, values=operands):
                return self.joined(isinstance(op, ast.Or), operands, names)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self.value(operand, names)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -_number(self.value(operand, names))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
                a, b = self.value(left, names), self.value(right, names)
                return _small(_OPERATIONS[type(op)](_number(a), _number(b)))
            case ast.Compare(left=left, ops=ops, comparators=others) if _KNOWN.issuperset(map(type, ops)):
                return self.compared(self.value(left, names), ops, others, names)
            case ast.Call(func=ast.Name(id=name), args=given, keywords=[]) if name in self.functions:
                return self.functions[name](*[self.value(each, names) for each in given])
        raise Refused(f"not in this language: {ast.unparse(node)}")

    def joined(self, stops_at: bool, operands: list[ast.expr], names: Names) -> Any:
        """``or`` stops at the first value that is true, ``and`` at the first that is false."""
        value: Any = None
        for operand in operands:
            value = self.value(operand, names)
            if bool(value) is stops_at:
                break
        return value

    def compared(self, left: Any, ops: list[ast.cmpop], others: list[ast.expr], names: Names) -> bool:
        """A chain such as ``0 < temperature < 35``, up to the first link that does not hold."""
        for op, other in zip(ops, others, strict=True):
            right = self.value(other, names)
            if not _OPERATIONS[type(op)](left, right):
                return False
            left = right
        return True


def _number(value: Any) -> Any:
    if not isinstance(value, int | float):
        raise Refused(f"arithmetic is for numbers, not for {value!r}")
    return value


def _small(value: Any) -> Any:
    if isinstance(value, str) and len(value) <= LONGEST:
        return value
    if isinstance(value, int | float) and -LARGEST <= value <= LARGEST:
        return value
    raise Refused(f"values are texts, and numbers up to {LARGEST:g}, not {cut(repr(value), 80)}")
