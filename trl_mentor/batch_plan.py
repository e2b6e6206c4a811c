"""What is to happen with the groups of one round: decided on the main process, from lessons to places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from trl_mentor.arms import in_arms, with_arms
from trl_mentor.batch_parts import Concerned, Means, RoundPlan, Subject
from trl_mentor.counters import Counters, count_causes, count_guidances, count_held_back
from trl_mentor.fitting import fitted
from trl_mentor.group_reader import Member, example_of
from trl_mentor.interventions import left_alone
from trl_mentor.records import Arm, Assignment, Prepared
from trl_mentor.rescue import Construction
from trl_mentor.rolling import Place
from trl_mentor.schedules import Planned


def first_plan(gathered: Sequence[Sequence[Member]], concerned: Concerned, means: Means, *, step: int) -> RoundPlan:
    """Read the gathered groups, have the schedule plan for the selected ones, and end those that are left alone."""
    groups = list(map(means.reader.read, concerned.gathered, gathered))
    every = [Assignment(group, example_of(rows), step) for group, rows in zip(groups, gathered, strict=True)]
    assignments = concerned.of(concerned.selected, every)
    failed = concerned.of(concerned.failed, groups)
    planned = _without_others(_planned(assignments, concerned, means), assignments, concerned)
    planned.unused.extend(map(left_alone, concerned.of(concerned.recorded, every)))
    counters = planned.counters + count_causes(group.cause for group in failed)
    return RoundPlan(planned, assignments, counters + _count_work(planned, 1), failed)


def next_plan(number: int, subjects: Sequence[Subject], concerned: Concerned, means: Means, *, step: int) -> RoundPlan:
    """Read groups as the round before left them, and plan for them again."""
    read = [means.reader.read(item.index, item.members, item.hints) for item in subjects]
    groups = [replace(group, round=number) for group in read]
    assignments = [
        Assignment(group, example_of(item.members), step) for group, item in zip(groups, subjects, strict=True)
    ]
    arms = {item.index: item.arm for item in subjects}
    told = [item.index for item in subjects if item.fresh]
    planned = _without_others(_scheduled(assignments, means, arms), assignments, concerned, told)
    return RoundPlan(planned, assignments, planned.counters + _count_work(planned, number))


def places_of(plan: RoundPlan, subjects: Sequence[Subject], construction: Construction, *, size: int) -> list[Place]:
    """What of a plan the other ranks need."""
    return [
        _place(position, item, plan.assignments[position], subjects[position], construction, size=size)
        for position, item in enumerate(plan.planned.places)
        if item is not None and item.lesson.prompt is not None
    ]


def _without_others(
    planned: Planned, assignments: Sequence[Assignment], concerned: Concerned, told: Sequence[int] = ()
) -> Planned:
    """Without the lessons that came to nothing of groups that had not collapsed, and of those that are told of
    already: none is skipped or told of, and what the mentor did for them counts here."""
    others = [item for item in assignments if item.group.index not in concerned.failed or item.group.index in told]
    dropped = [item for item in planned.unused if any(item.assignment is other for other in others)]
    return Planned(
        places=planned.places,
        unused=[item for item in planned.unused if not any(item is other for other in dropped)],
        counters=planned.counters + count_guidances(item.lesson.guidance for item in dropped),
    )


def _planned(assignments: Sequence[Assignment], concerned: Concerned, means: Means) -> Planned:
    """What the schedule and the lot of the trial say of the selected groups, without those that are held back.

    Of these the failed ones are counted and told of.
    """
    objections = list(map(means.dosage.objection, assignments))
    pairs = list(zip(assignments, objections, strict=True))
    held_back = [left_alone(item, reason) for item, reason in pairs if reason is not None]
    planned = Planned([], [])
    if len(held_back) < len(assignments):
        planned = _scheduled([item for item, reason in pairs if reason is None], means)
    places = iter(planned.places)
    held_back = [item for item in held_back if item.assignment.group.index in concerned.failed]
    return Planned(
        places=[next(places) if reason is None else None for reason in objections],
        unused=[*planned.unused, *held_back],
        counters=planned.counters + count_held_back(item.assignment.group.cause for item in held_back),
    )


def _scheduled(
    assignments: Sequence[Assignment], means: Means, arms: Mapping[int, Arm | None] | None = None
) -> Planned:
    """What the schedule and the lot of the trial say of these groups; `arms` by group if the lot was drawn before."""
    planned = means.schedule.plan(
        assignments, lambda prepared: fitted(prepared, means.strategy, means.policy.objection)
    )
    return with_arms(planned, means) if arms is None else in_arms(planned, arms, means)


def _place(
    position: int, item: Prepared, own: Assignment, subject: Subject, construction: Construction, *, size: int
) -> Place:
    lesson, rolls = item.lesson, item.lesson.rolls
    fresh = lesson.example is not None or subject.fresh
    if lesson.hint is not None and not rolls:
        rolls = construction.rolls(lesson.prompt, lesson.hint, item.assignment.group.prompt, size)  # type: ignore[arg-type]  # it has a prompt
    return Place(
        position=position,
        prompt=lesson.prompt,  # type: ignore[arg-type]  # as above
        hint=lesson.hint,
        example=lesson.example or (item.assignment.example if fresh or item.assignment is not own else None),
        arm=lesson.arm,
        rolls=rolls,
        refill=fresh,
    )


def _count_work(planned: Planned, round: int) -> Counters:
    """What the mentor did for the lessons that end with this round, and how many end without a re-roll."""
    ended = [item for item in planned.places if item is not None] + planned.unused
    return count_guidances(item.lesson.guidance for item in ended) + Counters(
        skipped=len(planned.unused) if round == 1 else 0,
        still_collapsed=len(planned.unused) if round > 1 else 0,
    )
