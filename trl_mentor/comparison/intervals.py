"""Bands over the seeds of a method and differences between methods, with 95 % intervals where seeds allow them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import sqrt
from statistics import fmean, variance

from scipy.stats import t

CONFIDENCE = 0.95

Seeded = Sequence[tuple[int, float]]
"""The seed and the value of each run of a method."""


class BandKind(StrEnum):
    """What a band is; it depends on the number of seeds alone."""

    INTERVAL = "95% t-interval"  # three seeds or more
    RANGE = "min to max"  # two
    NONE = "no band"  # one


@dataclass(frozen=True, slots=True)
class Band:
    """The mean over seeds and what surrounds it; both ends are the mean where there is one seed."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Difference:
    """A method minus the baseline and, with two seeds or more of each, the 95 % interval of that."""

    difference: float
    low: float | None
    high: float | None
    test: str
    """How the interval was made, `paired` within seeds or `Welch`, and from how many seeds of the two."""


def band_kind(seeds: int) -> BandKind:
    return BandKind.INTERVAL if seeds > 2 else BandKind.RANGE if seeds == 2 else BandKind.NONE


def band(values: Sequence[float]) -> Band:
    """The band of one value per seed. A t-interval of two values is 13 times as wide as they are apart."""
    mean = fmean(values)
    if band_kind(len(values)) is not BandKind.INTERVAL:
        return Band(mean, min(values), max(values))
    half = _half(variance(values) / len(values), len(values) - 1)
    return Band(mean, mean - half, mean + half)


def difference(method: Seeded, baseline: Seeded) -> Difference:
    """The mean of a method minus that of the baseline.

    Where both ran with the same seeds, what a seed decides (order of prompts, first samples) is the same in both, so
    the interval is that of the differences within seeds, which holds whether or not the seeds matter. Otherwise it is
    Welch's, which lets the methods vary differently.
    """
    ours, theirs = ([value for _, value in pairs] for pairs in (method, baseline))
    found = fmean(ours) - fmean(theirs)
    sizes = f"n={len(ours)} and {len(theirs)}"
    if min(len(ours), len(theirs)) < 2:
        return Difference(found, None, None, f"none, {sizes}")
    if _matched(method, baseline):
        within = [ours - theirs for (_, ours), (_, theirs) in zip(sorted(method), sorted(baseline), strict=True)]
        half = _half(variance(within) / len(within), len(within) - 1)
        return Difference(found, found - half, found + half, f"paired, n={len(within)}")
    parts = [variance(values) / len(values) for values in (ours, theirs)]
    spread = sum(parts)
    degrees = (
        spread**2 / sum(part**2 / (len(values) - 1) for part, values in zip(parts, (ours, theirs), strict=True))
        if spread
        else 1.0
    )
    half = _half(spread, degrees)
    return Difference(found, found - half, found + half, f"Welch, {sizes}")


def _matched(method: Seeded, baseline: Seeded) -> bool:
    ours, theirs = (sorted(seed for seed, _ in pairs) for pairs in (method, baseline))
    return ours == theirs and len(ours) == len(set(ours))


def _half(squared_error: float, degrees: float) -> float:
    """Half of an interval around a mean with this squared standard error."""
    return float(t.ppf((1 + CONFIDENCE) / 2, degrees)) * sqrt(squared_error)
