"""How the re-roll is spread over ranks: equal, padded shares, whole groups in rank-major order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RerollPlan:
    """Which row each rank generates.

    Rows are numbered through the selected groups: row `i` belongs to the `i // group_size`-th of them. Padding repeats
    whole groups from the start, so that the concatenation over ranks is always whole groups (generators that send one
    prompt per group to an engine rely on it), and every rank has the same number of rows (collectives rely on that).
    """

    rows: tuple[int, ...]
    """Row numbers over all ranks, rank-major; the first `real` of them are the rows themselves, in order."""
    real: int
    per_rank: int

    def share(self, rank: int) -> tuple[int, ...]:
        """Row numbers that `rank` generates."""
        return self.rows[rank * self.per_rank : (rank + 1) * self.per_rank]


def rows_per_rank(groups: int, *, group_size: int, world_size: int) -> int:
    """Rows of each rank, padding included: rows / world_size, rounded up until the total is whole groups."""
    unit = group_size // math.gcd(group_size, world_size)
    return math.ceil(groups * group_size / (world_size * unit)) * unit


def plan_reroll(groups: int, *, group_size: int, world_size: int) -> RerollPlan:
    """Spread `groups` x `group_size` rows evenly over `world_size` ranks, `rows_per_rank` each."""
    if groups < 1 or group_size < 1 or world_size < 1:
        raise ValueError(f"need positive numbers, got {groups=}, {group_size=}, {world_size=}")
    real = groups * group_size
    per_rank = rows_per_rank(groups, group_size=group_size, world_size=world_size)
    rows = tuple(index % real for index in range(per_rank * world_size))
    return RerollPlan(rows=rows, real=real, per_rank=per_rank)


def local_rows(
    group_indices: Sequence[int], *, group_size: int, rank: int, rows_per_rank: int
) -> list[tuple[int, int]]:
    """Which rows of the given groups live on `rank`.

    Pairs of (local row, row number through the given groups), ascending. Groups may straddle ranks: the generation
    batch is rank-major, `rows_per_rank` rows each.
    """
    start = rank * rows_per_rank
    pairs = [
        (index * group_size + member - start, position * group_size + member)
        for position, index in enumerate(group_indices)
        for member in range(group_size)
    ]
    return [(local, number) for local, number in pairs if 0 <= local < rows_per_rank]
