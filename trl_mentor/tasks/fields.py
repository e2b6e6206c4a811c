"""Fields of a row from outside: each is there and of its type, or the row is refused with a reason."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def text(row: Mapping[str, Any], name: str) -> str:
    """A text that is not blank, without the space around it. Raises `ValueError` for anything else."""
    value = row.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} is {type(value).__name__}, not a text")
    if not value.strip():
        raise ValueError(f"{name} is empty")
    return value.strip()


def optional_text(row: Mapping[str, Any], name: str) -> str | None:
    """A text, or None where there is none or a blank one. Raises `ValueError` for another type."""
    value = row.get(name)
    return None if value is None or (isinstance(value, str) and not value.strip()) else text(row, name)


def optional_number(row: Mapping[str, Any], name: str) -> float | None:
    """A finite number, or None. Raises `ValueError` for anything else."""
    value = row.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r:.40}, not a number")
    return float(value)
