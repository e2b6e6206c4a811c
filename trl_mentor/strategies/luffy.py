"""LUFFY (arXiv 2504.14945): a demonstration joins every group."""

from __future__ import annotations

from collections.abc import Sequence

from trl_mentor.records import CollapsedGroup, GroupState, Lesson, Row


class LuffyStrategy:
    """One completion of each group is a demonstration, scored by the same rewards and weighed by p / (p + gamma)."""

    name = "luffy"

    def __init__(self, column: str = "demonstration") -> None:
        """`column` holds a solution, or nothing, for each question."""
        self.columns = (column,)

    def select(self, states: Sequence[GroupState]) -> list[int]:
        return list(range(len(states)))

    def prepare(self, groups: Sequence[CollapsedGroup]) -> list[Lesson]:
        raise NotImplementedError

    def shorten(self, group: CollapsedGroup, lesson: Lesson) -> Lesson | None:
        return None

    def merge(self, original: Sequence[Row], rerolled: Sequence[Row]) -> list[Row]:
        raise NotImplementedError
