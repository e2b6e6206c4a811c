"""What to do with a collapsed group: select, prepare, merge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from trl_mentor.records import CollapsedGroup, GroupState, Lesson, Row


@runtime_checkable
class Strategy(Protocol):
    """A named answer to "what do we do with a collapsed group". One small file each."""

    name: str

    def select(self, states: Sequence[GroupState]) -> list[int]:
        """Indices of the groups to act on, ascending. Runs on every rank on equal input and must be deterministic."""
        ...

    def prepare(self, groups: Sequence[CollapsedGroup]) -> list[Lesson]:
        """One lesson per selected group, in order. Runs on the main process only; may be slow, must be bounded."""
        ...

    def shorten(self, group: CollapsedGroup, lesson: Lesson) -> Lesson | None:
        """The same lesson in fewer tokens, or None if there is none; asked when a lesson exceeds the context."""
        ...

    def merge(self, original: Sequence[Row], rerolled: Sequence[Row]) -> list[Row]:
        """The rows to train on, as many as `original`, for one re-rolled group. Pure; runs on every rank."""
        ...
