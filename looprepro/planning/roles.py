"""Symbolic values: what a row or column means at every scale, as "d/2", "T_max" or "3T_max/2" (spelling is free of spaces)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

SYMBOLS: Mapping[str, str] = {
    "d": "model.width",
    "n": "task.length",
    "T_max": "model.recurrence.maximum",
    "cap": "evaluation.cap",
}
"""Symbol -> the configuration key it stands for."""

_EXPRESSION = re.compile(r"(\d*)\*?(T_max|cap|d|n)(?:/(\d+))?")


def is_symbolic(value: Any) -> bool:
    """Whether ``value`` is text such as "d/2" or "3T_max/4"."""
    return isinstance(value, str) and _EXPRESSION.fullmatch(value.replace(" ", "")) is not None


def canonical(role: str | int) -> str:
    """One spelling per role: no spaces in a symbolic value, everything else as it is.

    >>> canonical("3 T_max / 2"), canonical(64), canonical("G=2")
    ('3T_max/2', '64', 'G=2')
    """
    return role.replace(" ", "") if isinstance(role, str) and is_symbolic(role) else str(role)


def resolve(value: Any, symbols: Mapping[str, Any]) -> Any:
    """The number that ``value`` stands for; values that are not symbolic come back unchanged.

    An exact division gives an int, any other a float (so "d/3" of 64 is refused where an integer is needed).
    Raises ``ValueError`` where the symbol has no value.

    >>> resolve("3T_max/2", {"T_max": 32}), resolve("3T_max/4", {"T_max": 2}), resolve("A5", {})
    (48, 1.5, 'A5')
    """
    if not isinstance(value, str):
        return value
    match = _EXPRESSION.fullmatch(value.replace(" ", ""))
    if match is None:
        return value
    factor, symbol, divisor = int(match[1] or 1), match[2], int(match[3] or 1)
    number = symbols.get(symbol)
    if isinstance(number, bool) or not isinstance(number, int):
        raise ValueError(f"'{value}' needs {SYMBOLS[symbol]} to be a whole number, and it is {number!r}")
    if divisor == 0:
        raise ValueError(f"'{value}' divides by zero")
    whole, rest = divmod(factor * number, divisor)
    return whole if rest == 0 else factor * number / divisor
