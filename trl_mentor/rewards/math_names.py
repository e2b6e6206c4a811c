"""A text for an answer that is the same for equal answers, so that votes can be counted."""

from __future__ import annotations

import re
from typing import Any

import sympy
from latex2sympy2_extended.logic import And
from sympy.core.function import AppliedUndef
from sympy.core.relational import Relational

from trl_mentor.rewards.reading import cleaned, normal_text
from trl_mentor.rewards.words import is_words

_ALGEBRA = (
    ArithmeticError,
    AttributeError,
    AssertionError,
    LookupError,
    MemoryError,
    NotImplementedError,
    RecursionError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What sympy raises at expressions that it cannot handle."""
_LISTED = re.compile(r"\b(?:and|or)\b")
_PLACES = 6
"""Decimal places within which math-verify takes numbers for equal."""


def name_of(read: list[Any], written: str) -> str:
    """The name of an answer that was read, or its text in a normal form. It does not depend on the reference."""
    text = normal_text(cleaned(written))
    if not read or (is_words(text) and not _LISTED.search(text)):
        return text
    try:
        return _name(read[0])
    except _ALGEBRA:
        return text


def _name(value: Any) -> str:
    if isinstance(value, And):
        return _name(value._unsorted_args[-1])
    if isinstance(value, sympy.Eq):
        return _equation_name(value)
    if isinstance(value, Relational):
        return str(value.canonical)
    if isinstance(value, sympy.FiniteSet):
        parts = sorted({_name(part) for part in value.args})
        return parts[0] if len(parts) == 1 else f"{{{', '.join(parts)}}}"
    if isinstance(value, sympy.Interval):
        left, right = "(" if value.left_open else "[", ")" if value.right_open else "]"
        return f"{left}{_name(value.start)}, {_name(value.end)}{right}"
    if isinstance(value, sympy.Union):
        return " U ".join(sorted(_name(part) for part in value.args))
    if isinstance(value, sympy.Tuple):
        return f"({', '.join(_name(part) for part in value.args)})"
    if isinstance(value, sympy.MatrixBase):
        return "; ".join(", ".join(_name(part) for part in row) for row in value.tolist())
    return _expression_name(value) if isinstance(value, sympy.Expr) else str(value)


def _equation_name(equation: Any) -> str:
    """The value of `x = 5`, `f(x) = 5` and `2 + 3 = 5`, as math-verify compares them; of others the difference."""
    left, right = equation.lhs, equation.rhs
    if isinstance(right, sympy.Symbol) and not left.free_symbols:
        return _name(left)
    named = isinstance(left, sympy.Symbol | AppliedUndef) or not isinstance(left, sympy.Expr)
    if named or not equation.free_symbols:
        return _name(right)
    difference = left - right
    return f"{min(_name(difference), _name(-difference))} = 0"


def _expression_name(value: Any) -> str:
    value = value.doit()
    imaginary = {symbol: sympy.I for symbol in value.free_symbols if symbol.name == "i"}
    value = value.subs(imaginary) if imaginary else value
    if value.is_Integer:
        return str(value)
    if not value.is_number or value.is_infinite:
        return str(sympy.expand(sympy.cancel(value)))
    real, imaginary_part = (_rounded(part) for part in value.evalf(20).as_real_imag())
    if imaginary_part == "0":
        return real
    if real == "0":
        return f"{imaginary_part}i"
    return f"{real} - {imaginary_part[1:]}i" if imaginary_part.startswith("-") else f"{real} + {imaginary_part}i"


def _rounded(number: Any) -> str:
    """Six decimals, or six digits of what is smaller."""
    value = float(number)
    if abs(value) >= 1e15:
        return f"{value:.12g}"
    text = f"{value:.{_PLACES}f}".rstrip("0").rstrip(".")
    return f"{value:.{_PLACES}g}" if text in ("0", "-0") else text
