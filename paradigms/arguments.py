"""What an argument must be, said once: where it is not, an error says what would have been right."""

from __future__ import annotations

from agentloop import LARGEST


def require_function(name: str, value: object) -> None:
    """Raises ``TypeError`` for what cannot be called."""
    if not callable(value):
        raise TypeError(f"{name} must be a function, not {value!r}")


def is_number(value: object) -> bool:
    """Whether it is a finite number; ``True`` is none, and neither is NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST


#: What the loop gives to rules and views. A maker that is given one in the place of a number was itself taken
#: for what it makes. By name, since the file of ``Prompt`` imports this one.
_GIVEN_TO_WHAT_IS_MADE = ("Control", "LoopContext", "Prompt")


def require(name: str, number: object, least: int) -> None:
    """Raises ``ValueError`` for what is not a whole number of at least ``least``; ``True`` is none."""
    kind = type(number).__name__
    if kind in _GIVEN_TO_WHAT_IS_MADE:
        told = f"{name} must be a whole number of at least {least}, not a {kind}"
        raise ValueError(f"{told}: did you forget () after the maker of a rule or a view?")
    if type(number) is not int or number < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {number!r}")


def require_share(name: str, value: float) -> None:
    """Raises ``ValueError`` for what is not a number above 0 and up to 1: a score, a confidence, a ratio."""
    if not is_number(value) or not 0 < value <= 1:
        raise ValueError(f"{name} must be a number above 0 and up to 1, not {value!r}")


def require_seconds(name: str, value: float) -> None:
    """Raises ``ValueError`` for what is not a finite number of seconds above 0."""
    if not is_number(value) or not value > 0:
        raise ValueError(f"{name} must be a finite number of seconds above 0, not {value!r}")
