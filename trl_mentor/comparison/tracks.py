"""A metric of one run over what the run spent: interpolated, so that runs compare at equal budgets."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import Protocol

from trl_mentor.comparison.runs import Run
from trl_mentor.counters import Counters
from trl_mentor.errors import ConfigError

SUCCESS_RATE = "success_rate"
"""The metric that every run has: the share of first-roll completions, without any hint, that succeed."""

_PREFERRED = ("_accuracy", "_reward", "/mean")
"""Ends of the names of evaluation metrics that say how well the policy does, the plainest first."""


class Axis(StrEnum):
    """What budgets are counted in."""

    TOKENS = "tokens"
    SECONDS = "seconds"


class Count(StrEnum):
    """Whose tokens count."""

    POLICY = "policy"  # those that the policy generated
    ALL = "all"  # and those that the mentor read and wrote


Meter = Callable[[Counters], float]


def meter(axis: Axis, count: Count) -> Meter:
    """How much of a budget some counters spend."""
    if axis is Axis.SECONDS:
        return lambda counters: counters.seconds
    if count is Count.POLICY:
        return lambda counters: counters.policy_tokens
    return lambda counters: counters.policy_tokens + counters.mentor_tokens


class Track(Protocol):
    """A metric of one run, known where the run had spent between `start` and `end`."""

    @property
    def start(self) -> float: ...

    @property
    def end(self) -> float: ...

    @property
    def knots(self) -> Sequence[float]:
        """Where the track bends."""

    def values(self, grid: Sequence[float], window: float) -> list[float]:
        """The metric at each point of the grid, all of them between `start` and `end`."""


@dataclass(frozen=True, slots=True)
class EvaluationTrack:
    """What evaluations measured, joined by straight lines."""

    knots: tuple[float, ...]
    measured: tuple[float, ...]

    @property
    def start(self) -> float:
        return self.knots[0]

    @property
    def end(self) -> float:
        return self.knots[-1]

    def values(self, grid: Sequence[float], window: float) -> list[float]:
        """Evaluations are not smoothed: `window` does not matter."""
        return [interpolate(point, self.knots, self.measured) for point in grid]


@dataclass(frozen=True, slots=True)
class SuccessTrack:
    """Sums of completions and successes by what had been spent, from zero on."""

    spent: tuple[float, ...]
    completions: tuple[int, ...]
    successes: tuple[int, ...]
    start: float = 0.0
    knots: tuple[float, ...] = ()

    @property
    def end(self) -> float:
        return self.spent[-1]

    def values(self, grid: Sequence[float], window: float) -> list[float]:
        """The share of successes among what was sampled within half a window of each point and within the grid."""
        shares = []
        for point in grid:
            ends = max(point - window / 2, 0.0), min(point + window / 2, grid[-1])
            sampled, succeeded = (
                interpolate(ends[1], self.spent, sums) - interpolate(ends[0], self.spent, sums)
                for sums in (self.completions, self.successes)
            )
            shares.append(succeeded / sampled)
        return shares


def interpolate(point: float, knots: Sequence[float], values: Sequence[float]) -> float:
    """The height at a point, between the first and the last knot, of the straight lines through `values`."""
    right = bisect_left(knots, point)
    if knots[right] == point:
        return values[right]
    share = (point - knots[right - 1]) / (knots[right] - knots[right - 1])
    return values[right - 1] + share * (values[right] - values[right - 1])


def track(run: Run, metric: str, spending: Meter) -> Track:
    """The metric of a run. Raises `ConfigError`, naming the metrics there are, if the run does not have it."""
    return _success_track(run, spending) if metric == SUCCESS_RATE else _evaluation_track(run, metric, spending)


def default_metric(runs: Sequence[Run], meters: Sequence[Meter]) -> str:
    """A metric of evaluations that all runs measured over a common budget, else `SUCCESS_RATE`."""
    names = [name for name in measured(runs[0]) if all(name in measured(run) for run in runs)]
    for ending in _PREFERRED:
        for name in names:
            if name.endswith(ending) and all(_overlap([track(run, name, m) for run in runs]) for m in meters):
                return name
    return SUCCESS_RATE


def measured(run: Run) -> list[str]:
    """The evaluation metrics of a run that are numbers, in the order in which they came."""
    return list(
        dict.fromkeys(name for item in run.evaluations for name, value in item.metrics.items() if math.isfinite(value))
    )


def _overlap(tracks: Sequence[Track]) -> bool:
    return max(item.start for item in tracks) < min(item.end for item in tracks)


def _evaluation_track(run: Run, metric: str, spending: Meter) -> EvaluationTrack:
    """An evaluation after n optimizer steps comes after the batches booked at steps below n."""
    bookings = sorted(run.bookings, key=lambda booking: booking.step)
    steps = [booking.step for booking in bookings]
    sums = [0.0, *accumulate(spending(booking.counters) for booking in bookings)]
    points: dict[float, float] = {}
    for item in sorted(run.evaluations, key=lambda item: item.step):
        value = item.metrics.get(metric, math.nan)
        if math.isfinite(value):
            points[float(sums[bisect_left(steps, item.step)])] = value
    if not points:
        others = ", ".join([SUCCESS_RATE, *measured(run)])
        raise ConfigError(f"{run.name} has no metric {metric!r}; it has: {others}")
    knots = sorted(points)
    return EvaluationTrack(tuple(knots), tuple(points[knot] for knot in knots))


def _success_track(run: Run, spending: Meter) -> SuccessTrack:
    """What is spent between two batches belongs to the later one."""
    spent = accumulate(spending(booking.counters) for booking in run.bookings)
    completions = accumulate(booking.counters.completions for booking in run.bookings)
    successes = accumulate(booking.counters.successes for booking in run.bookings)
    sums: dict[float, tuple[int, int]] = {0.0: (0, 0)}
    seen = 0
    for position, sampled, succeeded in zip(spent, completions, successes, strict=True):
        if sampled > seen:
            sums[position], seen = (sampled, succeeded), sampled
    if not seen or list(sums) == [0.0]:
        raise ConfigError(f"{run.name} has booked no completions, so that it has no {SUCCESS_RATE} yet")
    return SuccessTrack(tuple(sums), tuple(pair[0] for pair in sums.values()), tuple(p[1] for p in sums.values()))
