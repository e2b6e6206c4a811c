"""MENTOR (arXiv 2610.13594): re-roll every collapsed group on hint + question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trl_mentor import rescue
from trl_mentor.assembly import DEFAULT_HINT_TEMPLATE, add_hint, check_hint_template, shorter_hint
from trl_mentor.collapse import find_collapsed
from trl_mentor.errors import ConfigError
from trl_mentor.mentor import Mentor
from trl_mentor.records import CollapsedGroup, GroupState, Guidance, Lesson, Row


class MentorStrategy:
    """q' = h* + q for each collapsed (q, a); the new group replaces the old one (sections 3.2 and 3.3).

    A group for which the mentor failed is left as it was.
    """

    name = "mentor"

    def __init__(self, mentor: Mentor, *, hint_template: str = DEFAULT_HINT_TEMPLATE) -> None:
        check_hint_template(hint_template)
        self.mentor = mentor
        self.hint_template = hint_template

    def select(self, states: Sequence[GroupState]) -> list[int]:
        return find_collapsed(states)

    def prepare(self, groups: Sequence[CollapsedGroup]) -> list[Lesson]:
        return [
            self._lesson(group, guidance) for group, guidance in zip(groups, self.mentor.guide(groups), strict=True)
        ]

    def shorten(self, group: CollapsedGroup, lesson: Lesson) -> Lesson | None:
        shorter = None if lesson.hint is None else shorter_hint(lesson.hint)
        if shorter is None or lesson.guidance is None:
            return None
        return self._lesson(group, replace(lesson.guidance, hint=shorter, shortened=True))

    def merge(self, original: Sequence[Row], rerolled: Sequence[Row]) -> list[Row]:
        return rescue.replace(original, rerolled)

    def _lesson(self, group: CollapsedGroup, guidance: Guidance) -> Lesson:
        if guidance.hint is None:
            return Lesson(prompt=None, guidance=guidance)
        try:
            hinted = add_hint(group.prompt, guidance.hint, self.hint_template)
        except ConfigError as error:  # a prompt of the data set that cannot hold a hint costs its group, not the run
            return Lesson(prompt=None, guidance=guidance.without_hint(str(error)))
        return Lesson(prompt=hinted, hint=guidance.hint, guidance=guidance)
