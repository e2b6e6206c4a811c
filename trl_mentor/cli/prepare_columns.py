"""Which columns material may be written into: none that the data needs for something else."""

from __future__ import annotations

from collections.abc import Sequence

from trl_mentor.cli.prepare_material import Kind, Material
from trl_mentor.cli.prepare_rows import Item
from trl_mentor.errors import ConfigError
from trl_mentor.guards import TESTS_COLUMN, answer_candidates
from trl_mentor.settings import MentorArguments


def check_columns(materials: Sequence[Material], items: Sequence[Item], settings: MentorArguments) -> None:
    """Raises `ConfigError` for a column of prompts, answers, tests or values of another type than is written."""
    answers = answer_candidates(settings)
    for material in materials:
        setting = "mentor_demonstration_column" if material.kind is Kind.DEMONSTRATION else "mentor_hint_column"
        for number, item in enumerate(items):
            if problem := _problem(material, item, answers):
                raise ConfigError(
                    f"{material.kind} cannot be written into the column {material.column!r}: in row {number}, "
                    f"{problem}; name another with {setting}, or rename that of the data"
                )


def _problem(material: Material, item: Item, answers: Sequence[str]) -> str:
    column, value = material.column, item.row.get(material.column)
    if column in ("prompt", TESTS_COLUMN):
        return f"it holds the {column.removesuffix('s')}s"
    if column == next((name for name in answers if name == column or item.row.get(name) is not None), None):
        return "the reference answer is read from it"
    if value is not None and not material.fits(value):
        return f"it holds {type(value).__name__}, not {'a list of texts' if material.kind is Kind.HINTS else 'a text'}"
    return ""
