"""From an original group and its re-roll to the rows that are trained, and what there is to count about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trl_mentor.counters import Counters
from trl_mentor.records import Row

Merge = Callable[[Sequence[Row], Sequence[Row]], list[Row]]
Strip = Callable[[Row], Row]
"""Cuts what a row quotes of its hint."""


def merged(
    original: Sequence[Row], rerolled: Sequence[Row], merge: Merge, strip: Strip | None
) -> tuple[list[Row], Counters]:
    """The rows that `merge` makes of two, of which those that are scored off context go through `strip`."""
    built = merge(original, rerolled)
    rows = [strip(row) if strip is not None and row.off_context else row for row in built]
    cut = [len(was.completion_ids) - len(row.completion_ids) for was, row in zip(built, rows, strict=True)]
    failures = {tuple(row.completion_ids) for row in original if row.success is False}
    return rows, Counters(
        off_context_rows=sum(row.off_context for row in rows),
        echoes=sum(tokens > 0 for tokens in cut),
        echo_tokens=sum(cut),
        conflicts=sum(row.success is True and tuple(row.completion_ids) in failures for row in rerolled),
    )
