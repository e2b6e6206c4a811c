"""The control that every claim about hints needs: a second roll on the plain question."""

from __future__ import annotations

from collections.abc import Sequence

from trl_mentor.collapse import find_collapsed
from trl_mentor.records import CollapsedGroup, GroupState, Lesson, Row
from trl_mentor.rescue import PAPER, Construction


class ResampleStrategy:
    """Re-roll every collapsed group once on its own prompt: MENTOR's extra sampling without its hint."""

    name = "resample"
    gives_hints = False

    def __init__(self, construction: Construction = PAPER) -> None:
        """`construction` says which rows are trained."""
        self.construction = construction

    def select(self, states: Sequence[GroupState]) -> list[int]:
        return find_collapsed(states)

    def prepare(self, groups: Sequence[CollapsedGroup]) -> list[Lesson]:
        return [Lesson(prompt=group.prompt) for group in groups]

    def shorten(self, group: CollapsedGroup, lesson: Lesson) -> Lesson | None:
        return None

    def merge(self, original: Sequence[Row], rerolled: Sequence[Row]) -> list[Row]:
        return self.construction.rows(original, rerolled)
