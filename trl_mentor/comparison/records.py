"""What a comparison finds: frozen records of numbers and strings, which become plain JSON as they are."""

from __future__ import annotations

from dataclasses import dataclass

from trl_mentor.bill import Bill
from trl_mentor.comparison.intervals import Band, BandKind, Difference
from trl_mentor.comparison.tracks import Axis, Count

SHARES = (0.25, 0.5, 0.75, 1.0)
"""Shares of the common budget at which tables show the metric."""


@dataclass(frozen=True, slots=True)
class RunCurve:
    """The metric of one run at each point of the grid."""

    run: str
    seed: int
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Reach:
    """When the runs of a method first came to the threshold within the common budget."""

    seeds: int
    """How many did."""
    spent: Band | None
    """What they had spent by then; None unless all did, since a mean over the quick ones would flatter."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One method along one axis."""

    label: str
    kind: BandKind
    """What its bands are."""
    runs: tuple[RunCurve, ...]
    curve: tuple[Band, ...]
    """Over its runs, at each point of the grid."""
    at: tuple[Band | None, ...]
    """At `SHARES` of the common budget; None where some run was not evaluated yet."""
    mean: Band
    """Mean height of the curve, which is the area under it divided by its width."""
    reach: Reach | None
    """None without a threshold."""
    bills: tuple[Bill, ...]
    """Of each run until the common budget was spent, in whole generation batches."""
    final_difference: Difference | None
    """At the end of the common budget, to the baseline; None for the baseline itself."""
    mean_difference: Difference | None
    """Of the mean heights."""


@dataclass(frozen=True, slots=True)
class Race:
    """All methods along one axis."""

    axis: Axis
    start: float
    """From where on all runs know the metric."""
    budget: float
    """The smallest budget at which some run last knows the metric; nothing beyond it counts."""
    ended_by: str
    """That run."""
    grid: tuple[float, ...]
    standings: tuple[Standing, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Methods at equal tokens and at equal seconds."""

    metric: str
    count: Count
    threshold: float | None
    baseline: str
    races: tuple[Race, ...]
    notes: tuple[str, ...]
    """What a reader of the figures should know about them."""
