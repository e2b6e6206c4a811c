"""Scaf-GRPO (arXiv 2510.19807): a ladder of hints, of which the weakest that helps is used."""

from __future__ import annotations

from collections.abc import Sequence

from trl_mentor.assembly import DEFAULT_HINT_TEMPLATE, check_hint_template
from trl_mentor.collapse import find_collapsed
from trl_mentor.records import CollapsedGroup, GroupState, Lesson, Row


class ScaffoldStrategy:
    """One completion under each rung of the ladder; the success under the weakest hint replaces a failure."""

    name = "scaffold"

    def __init__(self, column: str = "hints", *, hint_template: str = DEFAULT_HINT_TEMPLATE) -> None:
        """`column` holds a list of hints from weak to strong, or nothing, for each question."""
        check_hint_template(hint_template)
        self.columns = (column,)
        self.hint_template = hint_template

    def select(self, states: Sequence[GroupState]) -> list[int]:
        return find_collapsed(states)

    def prepare(self, groups: Sequence[CollapsedGroup]) -> list[Lesson]:
        raise NotImplementedError

    def shorten(self, group: CollapsedGroup, lesson: Lesson) -> Lesson | None:
        return None

    def merge(self, original: Sequence[Row], rerolled: Sequence[Row]) -> list[Row]:
        raise NotImplementedError
