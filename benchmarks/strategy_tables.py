"""The tables of the comparison of strategies, made of the results of its runs.

A run has a student and a seed of its own, so that runs are independent and a 95 % t-interval over them speaks of
students and seeds at once. Run i of each method begins with the same student and seed, and differences are taken
within pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from statistics import fmean
from typing import Any

from trl_mentor.comparison.intervals import Band, BandKind, Difference, band, band_kind, difference
from trl_mentor.comparison.tracks import interpolate

POINTS = 41
BASELINE = "none"
OURS = ("mentor", "mentor-robust")
"""The presets, which everything else is compared with."""

Result = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One method in one world at the common number of tokens."""

    world: str
    method: str
    runs: int
    final: Band
    """Accuracy without hints when the budget is spent."""
    height: Band
    """Its mean over the curve, which says how soon."""
    gain: Difference | None
    """Of `final` over `none`; None for that one itself and where it did not run."""
    behind: Mapping[str, Difference]
    """Of `final` of each of `OURS` over this method, where both ran."""
    mentor_tokens: float
    """Read and written by the mentor until the run ended, mean over runs."""
    curve: tuple[Band, ...]


def at(result: Result, tokens: float) -> float:
    """Accuracy after so many generated tokens, on straight lines between evaluations."""
    curve = result["curve"]
    return interpolate(tokens, [point["tokens"] for point in curve], [point["accuracy"] for point in curve])


def height(result: Result, points: Sequence[float]) -> float:
    """Mean accuracy over the curve, which says how soon a run got where it ends."""
    return _mean_height([at(result, point) for point in points])


def budget(results: Sequence[Result]) -> int:
    """The number of tokens that all runs were given; raises `ValueError` if they were given different ones."""
    given = {result["spec"]["size"]["tokens"] for result in results}
    if len(given) != 1:
        raise ValueError(f"the runs have budgets of {sorted(given)} tokens; compare runs of one size")
    return int(given.pop())


def grid(results: Sequence[Result]) -> list[float]:
    return [budget(results) * point / (POINTS - 1) for point in range(POINTS)]


def rows(results: Sequence[Result]) -> list[Row]:
    """A row for each method of each world, in the order of the results."""
    if not results:
        return []
    points = grid(results)
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result["spec"]["world"], result["spec"]["method"]), []).append(result)
    return [_row(world, method, runs, groups, points) for (world, method), runs in groups.items()]


def _row(
    world: str,
    method: str,
    runs: Sequence[Result],
    groups: Mapping[tuple[str, str], Sequence[Result]],
    points: Sequence[float],
) -> Row:
    curves = [[at(run, point) for point in points] for run in runs]
    finals = _finals(runs, points[-1])
    others = {
        name: _finals(groups[world, name], points[-1])
        for name in (BASELINE, *OURS)
        if name != method and (world, name) in groups
    }
    return Row(
        world=world,
        method=method,
        runs=len(runs),
        final=band([value for _, value in finals]),
        height=band([_mean_height(curve) for curve in curves]),
        gain=difference(finals, others[BASELINE]) if BASELINE in others else None,
        behind={name: difference(others[name], finals) for name in OURS if name in others},
        mentor_tokens=fmean(run["mentor_tokens"] for run in runs),
        curve=tuple(band(column) for column in zip(*curves, strict=True)),
    )


def _finals(runs: Sequence[Result], end: float) -> list[tuple[int, float]]:
    """Accuracy at the end, each with the seed that its student and its training share."""
    return [(run["spec"]["seed"], at(run, end)) for run in runs]


def _mean_height(curve: Sequence[float]) -> float:
    return fmean((left + right) / 2 for left, right in pairwise(curve))


def markdown(found: Sequence[Row]) -> str:
    """A table of some rows."""
    kinds = sorted({f"{row.runs} run{'s' * (row.runs > 1)}, {band_kind(row.runs)}" for row in found})
    lines = [
        f"Each: {'; '.join(kinds)}.",
        "",
        "| world | method | accuracy at the end | mean over the curve | end minus `none` | `mentor` minus it "
        "| `mentor-robust` minus it | mentor's tokens |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in found:
        differences = [_difference(row.gain), *(_difference(row.behind.get(name)) for name in OURS)]
        lines.append(
            f"| {row.world} | {row.method} | {_band(row.final)} | {_band(row.height)} | {' | '.join(differences)} "
            f"| {row.mentor_tokens:,.0f} |"
        )
    return "\n".join(lines) + "\n"


def verdicts(found: Sequence[Row], rivals: Sequence[str]) -> str:
    """Which rivals each preset of MENTOR is ahead of and behind, by intervals that do not overlap.

    First by `final`, then by `height`, which still tells methods apart that all end near 1. Nothing without intervals.
    """
    if any(band_kind(row.runs) is not BandKind.INTERVAL for row in found):
        return ""
    lines = []
    for world in dict.fromkeys(row.world for row in found):
        here = {row.method: row for row in found if row.world == world}
        theirs = [here[name] for name in rivals if name in here and name not in OURS]
        for ours in (here[name] for name in OURS if name in here):
            for measure, of in (("at the end", attrgetter("final")), ("mean over the curve", attrgetter("height"))):
                ahead = [row.method for row in theirs if of(row).high < of(ours).low]
                behind = [row.method for row in theirs if of(row).low > of(ours).high]
                open_ = [row.method for row in theirs if row.method not in (*ahead, *behind)]
                lines.append(
                    f"* {world}, `{ours.method}`, {measure}: ahead of {_listed(ahead)}; behind {_listed(behind)}; "
                    f"intervals overlap with {_listed(open_)}."
                )
    return "\n".join(lines) + "\n"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "nobody"


def _band(found: Band) -> str:
    return f"{found.mean:.3f}{_interval(found.low, found.high)}"


def _difference(found: Difference | None) -> str:
    return "" if found is None else f"{found.difference:+.3f}{_interval(found.low, found.high)}"


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None or low == high else f" [{low:.3f}, {high:.3f}]"
