"""The lot of a trial applied to lessons: some hints are withheld, and a group keeps its arm for all its rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trl_mentor.batch_parts import Means
from trl_mentor.fitting import fitted
from trl_mentor.records import Arm, Assignment, Lesson, Prepared, Roll
from trl_mentor.schedules import Planned


def with_arms(planned: Planned, means: Means) -> Planned:
    """The same lessons, of which the lot has withheld some hints."""
    return replace(planned, places=[item if item is None else _drawn(item, means) for item in planned.places])


def in_arms(planned: Planned, arms: Mapping[int, Arm | None], means: Means) -> Planned:
    """The same lessons in the arms of the first round, which a group keeps whatever later rounds have for it."""

    def kept(item: Prepared) -> Prepared:
        return _in_arm(item, arms[item.assignment.group.index], _generic(item.assignment, means))

    unused = [
        Prepared(item.assignment, replace(item.lesson, arm=arms[item.assignment.group.index]))
        for item in planned.unused
    ]
    return replace(planned, places=[item and kept(item) for item in planned.places], unused=unused)


def _drawn(item: Prepared, means: Means) -> Prepared:
    """The same lesson, in the arm that the lot gives it; a lesson that not every arm could have stays out of it."""
    lesson, assignment = item.lesson, item.assignment
    if lesson.hint is None:
        return item
    generic = _generic(assignment, means)
    if means.trial.generic and (generic is None or generic.prompt is None):
        return item
    return _in_arm(item, means.trial.draw(assignment), generic)


def _in_arm(item: Prepared, arm: Arm | None, generic: Lesson | None) -> Prepared:
    """The same lesson as a group of this arm gets it."""
    lesson, assignment = item.lesson, item.assignment
    match arm:
        case Arm.CONTROL:
            plain = assignment.group.prompt
            given = Lesson(plain, guidance=lesson.guidance, arm=arm, rolls=(Roll(plain),) * len(lesson.rolls))
        case Arm.GENERIC if generic is not None:
            given = replace(generic, guidance=lesson.guidance, arm=arm)
        case _:
            given = replace(lesson, arm=arm)
    return Prepared(assignment, given)


def _generic(assignment: Assignment, means: Means) -> Lesson | None:
    """The lesson under the fixed hint, without a prompt if the policy cannot take it; None in a run without that."""
    if not means.trial.generic or means.generic is None:
        return None
    prepared = Prepared(assignment, means.generic(assignment.group))
    return fitted(prepared, means.strategy, means.policy.objection).lesson
