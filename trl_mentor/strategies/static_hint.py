"""HINT (arXiv 2510.09388): a collapsed group is re-rolled under a hint of the data set."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from trl_mentor.assembly import DEFAULT_HINT_TEMPLATE, add_hint, check_hint_template, shorter_hint
from trl_mentor.collapse import find_collapsed
from trl_mentor.records import CollapsedGroup, GroupState, Lesson, Row, Weighting
from trl_mentor.rescue import scored_under, with_weighting
from trl_mentor.strategies.material import Material, a_text

MAX_CHARS = 10_000
"""Longest hint: one that does not fit the context is shortened sentence by sentence, which takes seconds for more."""


class StaticHintStrategy:
    """HINT (arXiv 2510.09388): G rows of a collapsed group are sampled again under q' = hint + q and scored under q.

    They replace the group whether they succeed or not: A_j = (r_j - mean r) / (std r + 1e-4) over the new rows, and
    their loss is multiplied by Affinity^lambda (`weighting.affinity`), old log-probabilities being those under q.

    Departures: a group has collapsed by its success rewards, not by the sum of all; the hint stands where
    `hint_template` puts it. A group without a hint is left alone.
    """

    name = "static_hint"
    column_setting = "mentor_hint_column"

    def __init__(
        self, column: str = "hint", *, hint_template: str = DEFAULT_HINT_TEMPLATE, affinity: float = 1.0
    ) -> None:
        """`column` holds a hint, or nothing, for each question; `affinity` is lambda, 0 for none."""
        check_hint_template(hint_template)
        self.columns = (column,)
        self.hint_template = hint_template
        self.affinity = affinity
        self.material = Material(column, _a_hint, expected=f"a text of at most {MAX_CHARS:,} characters")

    def select(self, states: Sequence[GroupState]) -> list[int]:
        return find_collapsed(states)

    def prepare(self, groups: Sequence[CollapsedGroup]) -> list[Lesson]:
        return [self.material.lesson(group, partial(self._under, group)) for group in groups]

    def shorten(self, group: CollapsedGroup, lesson: Lesson) -> Lesson | None:
        hint = None if lesson.hint is None else shorter_hint(lesson.hint)
        return None if hint is None else self._under(group, hint)

    def merge(self, original: Sequence[Row], rerolled: Sequence[Row]) -> list[Row]:
        rows = scored_under(original, rerolled)
        return with_weighting(rows, Weighting.AFFINITY) if self.affinity else rows

    def _under(self, group: CollapsedGroup, hint: str) -> Lesson:
        return Lesson(add_hint(group.prompt, hint, self.hint_template), hint=hint)


def _a_hint(value: object) -> str | None:
    text = a_text(value)
    return None if text is None or len(text) > MAX_CHARS else text
