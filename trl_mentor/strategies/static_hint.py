"""HINT (see docs/strategies.md): a collapsed group is re-rolled under a hint of the data set."""

from __future__ import annotations

from collections.abc import Sequence

from trl_mentor.assembly import DEFAULT_HINT_TEMPLATE, add_hint, check_hint_template, shorter_hint
from trl_mentor.collapse import find_collapsed
from trl_mentor.records import CollapsedGroup, GroupState, Lesson, Row, Weighting
from trl_mentor.rescue import scored_under, with_weighting


class StaticHintStrategy:
    """All G rows of a collapsed group are sampled again under q' = hint + q and scored under q, with success or not.

    Their loss is multiplied by Affinity^lambda (`weighting.affinity`).
    """

    name = "static_hint"

    def __init__(
        self, column: str = "hint", *, hint_template: str = DEFAULT_HINT_TEMPLATE, affinity: float = 1.0
    ) -> None:
        """`column` holds a hint, or nothing, for each question; `affinity` is lambda, 0 for none."""
        check_hint_template(hint_template)
        self.columns = (column,)
        self.hint_template = hint_template
        self.affinity = affinity

    def select(self, states: Sequence[GroupState]) -> list[int]:
        return find_collapsed(states)

    def prepare(self, groups: Sequence[CollapsedGroup]) -> list[Lesson]:
        return [self._lesson(group, group.material.get(self.columns[0])) for group in groups]

    def shorten(self, group: CollapsedGroup, lesson: Lesson) -> Lesson | None:
        return self._lesson(group, None if lesson.hint is None else shorter_hint(lesson.hint))

    def merge(self, original: Sequence[Row], rerolled: Sequence[Row]) -> list[Row]:
        rows = scored_under(original, rerolled)
        return with_weighting(rows, Weighting.AFFINITY) if self.affinity else rows

    def _lesson(self, group: CollapsedGroup, hint: object) -> Lesson:
        if not isinstance(hint, str) or not hint.strip():
            return Lesson(prompt=None)
        return Lesson(add_hint(group.prompt, hint, self.hint_template), hint=hint)
