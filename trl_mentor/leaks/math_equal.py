r"""Whether two expressions are equal, as read by math-verify: `2\sqrt{2}` and `\sqrt{8}`, `1 + x^2` and `x^2 + 1`.

Only its parser is used: its comparison simplifies, which is bounded by nothing but a signal, and signals work in no
thread but the main one. Here both sides are evaluated at fixed points instead. Callers bound the input
(`math_candidates.is_cheap`). The import takes about a second and happens with the first comparison.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

_POINTS = ("0.7316", "1.2894", "2.1743", "0.3921", "1.8062", "2.9317")
_SAME = 1e-9
_LOCK = threading.Lock()  # neither sympy nor the parser promises to work in several threads
_PATIENCE = 10.0
"""Seconds to wait for comparisons of other threads, which are over in milliseconds unless one never ends."""
_OURS = threading.local()


def are_equal(left: str, right: str) -> bool:
    """Whether two LaTeX expressions or equations have the same value wherever they are looked at.

    Raises `TimeoutError` where a comparison of another thread does not end, so that no more than one is lost to it.
    """
    with _alone():
        one, two = _parsed(_without_percent(left)), _parsed(_without_percent(right))
        if one is None or two is None:
            return False
        if one.equation != two.equation or set(one.names) != set(two.names):
            return False
        pairs = list(zip(one.values, two.values, strict=True))
    if one.equation:
        return _proportional(pairs)
    return all(_close(a, b) for a, b in pairs)


def value_of(expression: str) -> complex | None:
    """The value of an expression without variables, None for any other."""
    with _alone():
        parsed = _parsed(expression)
    return parsed.values[0] if parsed is not None and not parsed.names and not parsed.equation else None


@contextmanager
def _alone() -> Iterator[None]:
    if not _LOCK.acquire(timeout=_PATIENCE):
        raise TimeoutError(f"another thread has compared expressions for more than {_PATIENCE:g} s")
    try:
        yield
    finally:
        _LOCK.release()


def _without_percent(text: str) -> str:
    """A bare percent sign begins a comment in LaTeX."""
    return text.replace("\\%", "%").replace("%", "/100")


class _Parsed:
    """An expression by its values: equal objects of a computer algebra system are not needed after that."""

    __slots__ = ("equation", "names", "values")

    def __init__(self, names: Sequence[str], values: Sequence[complex], equation: bool) -> None:
        self.names, self.values, self.equation = tuple(names), tuple(values), equation


@lru_cache(maxsize=4096)
def _parsed(text: str) -> _Parsed | None:
    """None for what is no expression, or has no finite value."""
    import sympy
    from math_verify import LatexExtractionConfig, parse

    for name in ("math_verify.parser", "math_verify.utils"):
        logger = logging.getLogger(name)
        if _quiet not in logger.filters:
            logger.addFilter(_quiet)
    _OURS.quiet = True
    try:
        found = parse(f"${text}$", [LatexExtractionConfig()], fallback_mode="no_fallback", parsing_timeout=None)
    finally:
        _OURS.quiet = False
    expression: Any = found[0] if found else None
    if isinstance(expression, sympy.Eq):
        equation, expression = True, expression.lhs - expression.rhs
    else:
        equation = False
    if not isinstance(expression, sympy.Expr):
        return None
    free = {symbol.name: symbol for symbol in expression.free_symbols}
    constants = {"i": sympy.I, "e": sympy.E}
    expression = expression.subs({free[name]: value for name, value in constants.items() if name in free})
    names = sorted(free.keys() - constants.keys())
    if len(names) > 4:
        return None
    values = []
    for shift in range(3 if names else 1):
        at = {free[name]: sympy.Rational(_POINTS[(index + shift) % len(_POINTS)]) for index, name in enumerate(names)}
        try:
            values.append(complex(expression.subs(at).evalf(20)))
        except (TypeError, ValueError, ArithmeticError):
            return None
    return _Parsed(names, values, equation) if all(value == value and abs(value) < 1e300 for value in values) else None


def _quiet(_: logging.LogRecord) -> bool:
    """Keep the parser's warnings about our calls, and only those, out of the log."""
    return not getattr(_OURS, "quiet", False)


def _close(one: complex, two: complex) -> bool:
    return abs(one - two) <= _SAME * max(1.0, abs(one), abs(two))


def _proportional(pairs: Sequence[tuple[complex, complex]]) -> bool:
    """Whether one equation is a multiple of the other."""
    if any(abs(two) < _SAME for _, two in pairs):
        return all(_close(one, two) for one, two in pairs)
    ratio = pairs[0][0] / pairs[0][1]
    return abs(ratio) > _SAME and all(_close(one, ratio * two) for one, two in pairs)
