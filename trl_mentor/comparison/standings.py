"""One method along one axis: what its runs come to at the points that all runs share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from trl_mentor.bill import Bill
from trl_mentor.comparison.intervals import Band, Difference, Seeded, band, band_kind
from trl_mentor.comparison.records import SHARES, Reach, RunCurve, Standing
from trl_mentor.comparison.runs import Method, Run
from trl_mentor.comparison.tracks import Meter, interpolate
from trl_mentor.counters import Counters


@dataclass(frozen=True, slots=True)
class Sampled:
    """The metric of each run of a method at each point of the grid, the last of which is the common budget."""

    method: Method
    grid: Sequence[float]
    values: Sequence[Sequence[float]]

    @property
    def finals(self) -> Seeded:
        """At the common budget."""
        return self._by_seed([values[-1] for values in self.values])

    @property
    def heights(self) -> Seeded:
        """Mean heights over the grid."""
        return self._by_seed([_mean_height(self.grid, values) for values in self.values])

    def _by_seed(self, values: Sequence[float]) -> Seeded:
        return [(run.info.seed, value) for run, value in zip(self.method.runs, values, strict=True)]


def standing(
    sampled: Sampled,
    spending: Meter,
    *,
    threshold: float | None,
    final_difference: Difference | None,
    mean_difference: Difference | None,
) -> Standing:
    """All that is said of a method along the axis that `spending` measures."""
    method, grid, values = sampled.method, sampled.grid, sampled.values
    return Standing(
        label=method.label,
        kind=band_kind(len(values)),
        runs=tuple(
            RunCurve(run.name, run.info.seed, tuple(row)) for run, row in zip(method.runs, values, strict=True)
        ),
        curve=tuple(band(column) for column in zip(*values, strict=True)),
        at=tuple(_at(sampled, share * grid[-1]) for share in SHARES),
        mean=band([height for _, height in sampled.heights]),
        reach=None if threshold is None else _reach(sampled, threshold),
        bills=tuple(Bill.of(_until(run, spending, grid[-1]), priced=run.info.priced) for run in method.runs),
        final_difference=final_difference,
        mean_difference=mean_difference,
    )


def _at(sampled: Sampled, point: float) -> Band | None:
    if point < sampled.grid[0]:
        return None
    return band([interpolate(point, sampled.grid, row) for row in sampled.values])


def _mean_height(grid: Sequence[float], values: Sequence[float]) -> float:
    if len(grid) == 1:
        return values[0]
    areas = (
        (right - left) * (low + high) / 2 for (left, low), (right, high) in pairwise(zip(grid, values, strict=True))
    )
    return sum(areas) / (grid[-1] - grid[0])


def _reach(sampled: Sampled, threshold: float) -> Reach:
    found = [_first_at(sampled.grid, row, threshold) for row in sampled.values]
    reached = [point for point in found if point is not None]
    return Reach(len(reached), band(reached) if len(reached) == len(found) else None)


def _first_at(grid: Sequence[float], values: Sequence[float], threshold: float) -> float | None:
    """Where the line through the values first comes to the threshold."""
    if values[0] >= threshold:
        return grid[0]
    for (left, low), (right, high) in pairwise(zip(grid, values, strict=True)):
        if high >= threshold:
            return left + (right - left) * (threshold - low) / (high - low)
    return None


def _until(run: Run, spending: Meter, budget: float) -> Counters:
    """What the run did in its first batches, up to the one that spends the last of the budget."""
    counters, spent = Counters(), 0.0
    for booking in run.bookings:
        if spent >= budget:
            break
        counters += booking.counters
        spent += spending(booking.counters)
    return counters
