"""QuestA (see docs/strategies.md): every prompt is shown with the beginning of its solution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trl_mentor.records import CollapsedGroup, GroupState, Lesson, Prompt, Row


class PrefixStrategy:
    """Sampled, scored and trained under x_p = q + the first p of the solution's characters; p falls during the run."""

    name = "static_hint"
    in_evaluation = False

    def __init__(self, column: str = "demonstration", *, shares: Sequence[float] = (0.5, 0.25)) -> None:
        """`column` holds a solution, or nothing, for each question."""
        self.column = column
        self.shares = tuple(shares)

    def first_prompt(self, prompt: Prompt, example: Mapping[str, Any], *, progress: float) -> Prompt:
        raise NotImplementedError

    def select(self, states: Sequence[GroupState]) -> list[int]:
        return []

    def prepare(self, groups: Sequence[CollapsedGroup]) -> list[Lesson]:
        return [Lesson(prompt=None) for _ in groups]

    def shorten(self, group: CollapsedGroup, lesson: Lesson) -> Lesson | None:
        return None

    def merge(self, original: Sequence[Row], rerolled: Sequence[Row]) -> list[Row]:
        return list(original)
