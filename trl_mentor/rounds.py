"""Interventions put together by group, of which one that failed under its hint may have several. Standard library."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from trl_mentor.records import Intervention, RerollOutcome


def by_group(records: Iterable[Intervention]) -> list[list[Intervention]]:
    """The records of each group in the order of their rounds, from a journal, which has a batch round by round."""
    going_on: dict[int, list[Intervention]] = {}
    groups = []
    for record in records:
        group = going_on.pop(record.group.index, None) if record.round > 1 else None
        if group is None:
            group = []
            groups.append(group)
        group.append(record)
        if record.outcome is RerollOutcome.ANOTHER_ROUND:
            going_on[record.group.index] = group
    return groups


def ended(records: Iterable[Intervention]) -> list[Intervention]:
    """How each group ended: its last record, under the cause for which it collapsed in the first roll.

    One whose next round the journal does not have is left out, as it has not ended there.
    """
    groups = by_group(records)
    last = [(group[-1], group[0].group.cause) for group in groups]
    return [
        record if record.group.cause is cause else replace(record, group=replace(record.group, cause=cause))
        for record, cause in last
        if record.outcome is not RerollOutcome.ANOTHER_ROUND
    ]
