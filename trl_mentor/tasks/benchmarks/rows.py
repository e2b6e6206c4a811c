"""What the rows of several benchmarks need to become problems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets import Dataset


def numbered(rows: Dataset) -> Dataset:
    """The rows with their place in the column `row`: the id of problems that have none of their own."""
    return rows.add_column("row", list(range(len(rows))))


def whole_number(row: Mapping[str, Any], name: str) -> str:
    """An integer, or a text of digits, as text. Raises `ValueError` for anything else."""
    value = row[name]
    shown = str(value).strip()
    if isinstance(value, bool) or not isinstance(value, int | str) or not shown.removeprefix("-").isdecimal():
        raise ValueError(f"{name} is {value!r:.40}, not a whole number")
    return shown


def texts(row: Mapping[str, Any], name: str) -> list[str]:
    """A list of texts. Raises `ValueError` for anything else."""
    values = row[name]
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name} is {values!r:.40}, not a list of texts")
    return values
