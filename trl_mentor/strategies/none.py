"""Plain GRPO with this package's metrics."""

from __future__ import annotations

from collections.abc import Sequence

from trl_mentor.records import CollapsedGroup, GroupState, Lesson, Row


class NoneStrategy:
    """Select nothing: collapsed groups are counted and left to GRPO, where they have zero advantage."""

    name = "none"
    gives_hints = False

    def select(self, states: Sequence[GroupState]) -> list[int]:
        return []

    def prepare(self, groups: Sequence[CollapsedGroup]) -> list[Lesson]:
        return [Lesson(prompt=None) for _ in groups]

    def shorten(self, group: CollapsedGroup, lesson: Lesson) -> Lesson | None:
        return None

    def merge(self, original: Sequence[Row], rerolled: Sequence[Row]) -> list[Row]:
        return list(original)
