"""MENTOR (arXiv 2610.13594): re-roll every collapsed group on hint + question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from trl_mentor.assembly import DEFAULT_HINT_TEMPLATE, add_hint, check_hint_template, shorter_hint
from trl_mentor.causes import check_routes
from trl_mentor.collapse import find_collapsed
from trl_mentor.errors import ConfigError
from trl_mentor.mentor import Mentor
from trl_mentor.records import CollapsedGroup, GroupState, Guidance, HintOrigin, Lesson, Route, Row
from trl_mentor.rescue import PAPER, Construction
from trl_mentor.strategies.base import Strategy
from trl_mentor.strategies.material import left


class MentorStrategy:
    """q' = h* + q for each collapsed (q, a); the new group replaces the old one (sections 3.2 and 3.3),
    or whatever `construction` says instead.

    The cause of the collapse decides whether the mentor is asked: `routes` overrides `causes.DEFAULT_ROUTES`. A group
    whose cause is skipped, or for which the mentor failed, is left as it was.
    """

    name = "mentor"

    def __init__(
        self,
        mentor: Mentor,
        *,
        hint_template: str = DEFAULT_HINT_TEMPLATE,
        routes: Mapping[str, str] | None = None,
        construction: Construction = PAPER,
    ) -> None:
        check_hint_template(hint_template)
        self.mentor = mentor
        self.hint_template = hint_template
        self.routes = check_routes(routes)
        self.construction = construction

    def select(self, states: Sequence[GroupState]) -> list[int]:
        return find_collapsed(states)

    def prepare(self, groups: Sequence[CollapsedGroup]) -> list[Lesson]:
        lessons = [self.unasked(group) for group in groups]
        asked = [group for group, lesson in zip(groups, lessons, strict=True) if lesson is None]
        guidances = iter(self.mentor.guide(asked) if asked else ())
        return [
            self._lesson(group, next(guidances)) if lesson is None else lesson
            for group, lesson in zip(groups, lessons, strict=True)
        ]

    def unasked(self, group: CollapsedGroup) -> Lesson | None:
        """The lesson of a group for whose cause the mentor is not asked, at once; None if it is to be asked."""
        match self.routes[group.cause]:
            case Route.MENTOR:
                return None
            case Route.FORMAT_HINT:
                hint = self.mentor.plan.templates.format_hint
                return self._lesson(group, Guidance(hint, HintOrigin.FORMAT, reason=group.cause_detail))
            case Route.SKIP:
                reason = f"{group.cause}: {group.cause_detail}" if group.cause_detail else str(group.cause)
                return left(reason)

    def generic(self, group: CollapsedGroup) -> Lesson:
        """The lesson of a group under the fixed hint of the domain, as a control for the mentor's own."""
        return self._lesson(group, Guidance(self.mentor.plan.fallback_hint, HintOrigin.FALLBACK))

    def shorten(self, group: CollapsedGroup, lesson: Lesson) -> Lesson | None:
        shorter = None if lesson.hint is None else shorter_hint(lesson.hint)
        if shorter is None or lesson.guidance is None:
            return None
        return self._lesson(group, replace(lesson.guidance, hint=shorter, shortened=True))

    def merge(self, original: Sequence[Row], rerolled: Sequence[Row]) -> list[Row]:
        return self.construction.rows(original, rerolled)

    def _lesson(self, group: CollapsedGroup, guidance: Guidance) -> Lesson:
        if guidance.hint is None:
            return Lesson(prompt=None, guidance=guidance)
        accepted = guidance.origin is HintOrigin.ACCEPTED
        if accepted and guidance.shortened and self.mentor.plan.gate.objection(guidance.hint, group):
            # What was accepted has lost sentences since. A whole hint is as it was when the mentor checked it.
            return Lesson(prompt=None, guidance=guidance.without_hint("the rules refuse the hint as it would be used"))
        try:
            hinted = add_hint(group.prompt, guidance.hint, self.hint_template)
        except ConfigError as error:  # a prompt of the data set that cannot hold a hint costs its group, not the run
            return Lesson(prompt=None, guidance=guidance.without_hint(str(error)))
        return Lesson(prompt=hinted, hint=guidance.hint, guidance=guidance)


def mentor_of(strategy: Strategy) -> Mentor | None:
    """The mentor that a strategy asks, if it asks one."""
    mentor = getattr(strategy, "mentor", None)
    return mentor if isinstance(mentor, Mentor) else None
