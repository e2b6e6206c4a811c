r"""Whether two expressions are equal, as read by math-verify: `2\sqrt{2}` and `\sqrt{8}`, `1 + x^2` and `x^2 + 1`.

Only its parser is used: its comparison simplifies, which is bounded by nothing but a signal, and signals work in no
thread but the main one. Here both sides are evaluated at fixed points instead, in a process that can be killed.
Callers bound the input (`math_candidates.is_cheap`), which saves most of that.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence

from trl_mentor.leaks.math_process import MathProcess

PROCESS = MathProcess()
"""The one of this process; ended with it, and left to its parent in a forked one."""
atexit.register(PROCESS.close)
os.register_at_fork(after_in_child=PROCESS.forked)

_SAME = 1e-9


def are_equal(left: str, right: str) -> bool:
    """Whether two LaTeX expressions or equations have the same value wherever they are looked at.

    Raises what `MathProcess.ask` raises where nobody can tell.
    """
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
    """The value of an expression without variables, None for any other. Raises as `are_equal` does."""
    parsed = _parsed(expression)
    return parsed.values[0] if parsed is not None and not parsed.names and not parsed.equation else None


def _without_percent(text: str) -> str:
    """A bare percent sign begins a comment in LaTeX."""
    return text.replace("\\%", "%").replace("%", "/100")


class _Parsed:
    """An expression by its values."""

    __slots__ = ("equation", "names", "values")

    def __init__(self, names: Sequence[str], values: Sequence[Sequence[float]], equation: bool) -> None:
        self.names, self.values, self.equation = tuple(names), tuple(complex(*value) for value in values), equation


def _parsed(text: str) -> _Parsed | None:
    """None for what is no expression, or has no finite value."""
    read = PROCESS.ask(text)
    return None if read is None else _Parsed(**read)


def _close(one: complex, two: complex) -> bool:
    return abs(one - two) <= _SAME * max(1.0, abs(one), abs(two))


def _proportional(pairs: Sequence[tuple[complex, complex]]) -> bool:
    """Whether one equation is a multiple of the other."""
    if any(abs(two) < _SAME for _, two in pairs):
        return all(_close(one, two) for one, two in pairs)
    ratio = pairs[0][0] / pairs[0][1]
    return abs(ratio) > _SAME and all(_close(one, ratio * two) for one, two in pairs)
