"""Critique-GRPO (arXiv 2506.03106): every completion is criticised and refined, and the best refinement is trained."""

from __future__ import annotations

from collections.abc import Sequence

from trl_mentor.mentor import Mentor
from trl_mentor.records import CollapsedGroup, GroupState, Lesson, Row
from trl_mentor.strategy_settings import DEFAULT_CRITIQUE_TEMPLATE, CritiqueKind


class CritiqueStrategy:
    """Each completion is refined once on question, completion and critique; the best refinement joins the group."""

    name = "critique"

    def __init__(
        self,
        kind: CritiqueKind = CritiqueKind.SIMPLE_GT,
        *,
        template: str = DEFAULT_CRITIQUE_TEMPLATE,
        mentor: Mentor | None = None,
    ) -> None:
        """`mentor` writes the critiques of kind `TEXT`."""
        self.kind = kind
        self.template = template
        self.mentor = mentor

    def select(self, states: Sequence[GroupState]) -> list[int]:
        return list(range(len(states)))

    def prepare(self, groups: Sequence[CollapsedGroup]) -> list[Lesson]:
        raise NotImplementedError

    def shorten(self, group: CollapsedGroup, lesson: Lesson) -> Lesson | None:
        return None

    def merge(self, original: Sequence[Row], rerolled: Sequence[Row]) -> list[Row]:
        raise NotImplementedError
