"""The lines of the hidden file beside a prepared output, checked by type as they are read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trl_mentor.cli.prepare_material import Material, Outcome
from trl_mentor.plain import from_plain
from trl_mentor.spending import RoleSpending

_WITH_TEXT = (Outcome.WRITTEN, Outcome.PARTLY)


@dataclass(frozen=True, slots=True)
class Made:
    """What determines the texts; always the first line."""

    made: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of one text of one row; `value` is None where there is none to train on."""

    row: int
    key: str
    """Of the row's `Item`."""
    column: str
    outcome: Outcome
    value: Any = None
    tries: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Booked:
    """What was spent on a column, and how many seconds passed, since the line before that says so."""

    spent: RoleSpending
    column: str
    cost: float
    passed: float


def read_line(line: bytes, materials: Mapping[str, Material]) -> Made | Settled | Booked:
    """What a line says; `materials` by column. Raises `ValueError` that says what is wrong with it."""
    try:
        record = json.loads(line)
        if not isinstance(record, dict):
            raise TypeError(f"expected an object, got {type(record).__name__}")
        kind = Made if "made" in record else Booked if "spent" in record else Settled
        found: Made | Settled | Booked = from_plain(kind, record)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error!s:.200}") from error
    if problem := _problem(found, materials):
        raise ValueError(problem)
    return found


def _problem(found: Made | Settled | Booked, materials: Mapping[str, Material]) -> str:
    if isinstance(found, Made):
        return ""
    if found.column not in materials:
        return f"{found.column!r:.80} is no column of this output"
    if isinstance(found, Booked):
        return ""
    if any(type(number) is not int or number < 0 for number in (found.row, found.tries)):
        return f"row {found.row} or tries {found.tries} is no count"
    fits = materials[found.column].fits(found.value) if found.outcome in _WITH_TEXT else found.value is None
    if found.outcome is Outcome.KEPT or not fits:
        return f"the outcome {found.outcome.value!r} has a value of the type {type(found.value).__name__}"
    return ""
