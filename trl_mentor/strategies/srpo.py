"""SRPO (arXiv 2506.01713): the policy answers, reflects and answers again, and is paid for what reflection changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trl_mentor.records import CollapsedGroup, GroupState, Lesson, Prompt, Row


class SrpoStrategy:
    """GRPO on a reflection format, with a reward for it beside the task's own; no group is re-rolled."""

    name = "srpo"
    in_evaluation = True

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
