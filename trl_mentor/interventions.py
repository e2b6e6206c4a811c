"""From the lessons that end with a round to the records of the journal."""

from __future__ import annotations

from collections.abc import Sequence

from trl_mentor.assembly import completion_text
from trl_mentor.collapse import SuccessRule
from trl_mentor.group_reader import none_if_nan
from trl_mentor.records import (
    Assignment,
    Guidance,
    HintOrigin,
    Intervention,
    Lesson,
    Prepared,
    RerollOutcome,
    Row,
)
from trl_mentor.schedules import Planned


def left_alone(assignment: Assignment, reason: str | None = None) -> Prepared:
    """The end of a group that no strategy is asked about, for this reason or for its cause."""
    cause = f"{assignment.group.cause}: {assignment.group.cause_detail}"
    guidance = Guidance(None, HintOrigin.NOT_ASKED, reason=cause if reason is None else reason)
    return Prepared(assignment, Lesson(prompt=None, guidance=guidance))


def interventions(
    planned: Planned,
    rerolled: Sequence[Sequence[Row]],
    outcomes: Sequence[RerollOutcome | None],
    step: int,
    strategy: str,
    *,
    rule: SuccessRule,
    reward_names: Sequence[str],
    round: int = 1,
) -> list[Intervention]:
    """One record for each lesson that ends with this round, oldest first.

    `rerolled` and `outcomes` are those of the places that have a lesson, in order; None for a group that had not
    collapsed, of which the journal does not tell. A group that an earlier round did not help and that this one has no
    lesson for is still collapsed.
    """
    used = [item for item in planned.places if item is not None]
    unused = RerollOutcome.SKIPPED if round == 1 else RerollOutcome.STILL_COLLAPSED
    ended = [
        (item, () if outcome is RerollOutcome.SKIPPED else rows, outcome)
        for item, rows, outcome in zip(used, rerolled, outcomes, strict=True)
        if outcome is not None
    ]
    ended += [(item, (), unused) for item in planned.unused]
    ended.sort(key=lambda entry: (entry[0].assignment.collapsed_at, entry[0].assignment.group.index))
    return [
        _record(item, rows, outcome, step, strategy, rule=rule, reward_names=reward_names, round=round)
        for item, rows, outcome in ended
    ]


def _record(
    prepared: Prepared,
    rows: Sequence[Row],
    outcome: RerollOutcome,
    step: int,
    strategy: str,
    *,
    rule: SuccessRule,
    reward_names: Sequence[str],
    round: int,
) -> Intervention:
    values = [rule.value(row.rewards) for row in rows]
    return Intervention(
        step=step,
        strategy=strategy,
        group=prepared.assignment.group,
        guidance=prepared.lesson.guidance,
        outcome=outcome,
        completions=tuple(completion_text(row.completion) for row in rows),
        successes=tuple(none_if_nan(value) for value in values),
        rewards={
            name: tuple(none_if_nan(row.rewards[column]) for row in rows)
            for column, name in enumerate(reward_names)
            if rows
        },
        reroll_tokens=sum(len(row.completion_ids) for row in _sampled(rows, prepared.lesson)),
        collapsed_at=prepared.assignment.collapsed_at,
        arm=prepared.lesson.arm,
        round=round,
        hints=() if prepared.lesson.guidance is not None else _hints(rows),
        reliances=_reliances(rows),
    )


def _sampled(rows: Sequence[Row], lesson: Lesson) -> Sequence[Row]:
    """The rows of a lesson that the policy generated."""
    given = [item.given is not None for item in lesson.rolls]
    return [row for row, was_given in zip(rows, given, strict=True) if not was_given] if any(given) else rows


def _hints(rows: Sequence[Row]) -> tuple[str | None, ...]:
    hints = tuple(row.hint for row in rows)
    return hints if any(hint is not None for hint in hints) else ()


def _reliances(rows: Sequence[Row]) -> tuple[float | None, ...]:
    measured = tuple(None if row.reliance is None else row.reliance.mean for row in rows)
    return measured if any(value is not None for value in measured) else ()
