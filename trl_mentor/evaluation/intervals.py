"""How sure a figure is: 95 % bootstrap intervals over problems, of one run and of the gain over another.

Problems are resampled and keep their completions, so the interval says what another set of such problems would give.
Each benchmark keeps its number of problems. Two runs are compared within problems, which are resampled in pairs.

A bootstrap cannot see what no problem showed: with none of 30 right its interval has no width, and with few right or
wrong it is too narrow. So the problems that are drawn from include imaginary ones that weigh as much as two: one
right and one wrong, as in Agresti and Coull (1998), and for two runs half a problem of each of right/right,
right/wrong, wrong/right and wrong/wrong, as in Agresti and Min (2005). `benchmarks/eval_coverage.py` measures it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trl_mentor.evaluation.estimators import relative_gain, weighted_average

CONFIDENCE = 0.95
RESAMPLES = 4_000
"""The end of an interval then moves with the seed by a twentieth of the standard error."""
_BATCH = 2**20
"""Problems drawn at once: some 30 MB."""
_ONE_RUN = ((1.0,), (0.0,))
_TWO_RUNS = ((1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its 95 % interval."""

    value: float
    low: float
    high: float
    """Infinite for a relative gain over a base run that may well have solved nothing."""


@dataclass(frozen=True, slots=True)
class Gain:
    """A run against a base run on the problems that both have; differences are this run minus the base."""

    problems: int
    value: float
    base: float
    difference: Estimate
    relative: Estimate | None
    """The difference as a share of the base; None if the base is 0."""


def estimate(benchmarks: Sequence[Sequence[float]], *, resamples: int = RESAMPLES, seed: int = 0) -> Estimate:
    """The mean over all problems of one or more benchmarks: for several, their sample-weighted average.

    A benchmark is one number of [0, 1] for each problem: its pass@1, its pass@k, its maj@k.
    """
    rows = [np.asarray(values, dtype=float)[:, None] for values in benchmarks]
    means = _resampled(rows, _ONE_RUN, resamples, seed)
    value = weighted_average([float(values.mean()) for values in rows], [len(values) for values in rows])
    return _estimate(value, means[:, 0])


def gain(benchmarks: Sequence[Sequence[tuple[float, float]]], *, resamples: int = RESAMPLES, seed: int = 0) -> Gain:
    """What a run gained over a base run. A benchmark is one pair for each problem: this run's number, the base's."""
    rows = [np.asarray(pairs, dtype=float) for pairs in benchmarks]
    problems = np.concatenate(rows)
    value, base = map(float, problems.mean(axis=0))
    ours, theirs = _resampled(rows, _TWO_RUNS, resamples, seed).T
    difference = _estimate(value - base, ours - theirs)
    if (relative := relative_gain(value, base)) is None:
        return Gain(len(problems), value, base, difference, None)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = (ours - theirs) / theirs
    ratios = ratios[~np.isnan(ratios)]  # 0 / 0 says nothing of the ratio
    return Gain(len(problems), value, base, difference, _estimate(relative, ratios))


def _estimate(value: float, resampled: NDArray[np.float64]) -> Estimate:
    """The percentile interval, its ends rounded outwards to values that occurred: no arithmetic with infinities."""
    tail = (1 - CONFIDENCE) / 2
    low = np.quantile(resampled, tail, method="lower")
    return Estimate(value, float(low), float(np.quantile(resampled, 1 - tail, method="higher")))


def _resampled(
    benchmarks: Sequence[NDArray[np.float64]], imaginary: Sequence[Sequence[float]], resamples: int, seed: int
) -> NDArray[np.float64]:
    """Means over all problems, one row per resample and one column per run.

    The imaginary problems belong to the benchmarks in proportion to their sizes.
    """
    rng = np.random.default_rng(seed)
    total = sum(map(len, benchmarks))
    sums = np.zeros((resamples, len(imaginary[0])))
    for rows in benchmarks:
        weight = 2 / len(imaginary) * len(rows) / total
        columns = np.concatenate([rows, np.asarray(imaginary)]).T.copy()
        for part in _batches(resamples, len(rows)):
            places = rng.random((part.stop - part.start, len(rows))) * (len(rows) + 2 * len(rows) / total)
            drawn = places.astype(np.intp)
            late = places >= len(rows)
            drawn[late] = len(rows) + ((places[late] - len(rows)) / weight).clip(0, len(imaginary) - 1)
            sums[part] += np.stack([column[drawn].sum(axis=1) for column in columns], axis=1)
    return sums / total


def _batches(resamples: int, problems: int) -> Iterator[slice]:
    step = max(1, _BATCH // problems)
    return (slice(start, min(start + step, resamples)) for start in range(0, resamples, step))
