"""The table and the figure of the comparison of strategies, made of the results of its runs."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from trl_mentor.cli.compare_picture import COLOURS, DASHES
from trl_mentor.comparison.intervals import Band, Difference, band, band_kind, difference
from trl_mentor.comparison.tracks import interpolate

POINTS = 41
BASELINE = "none"
FEWEST_STUDENTS = 3
"""From so many on, intervals are over students, each the mean of its runs; below that, over runs."""

Result = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One method in one world at the common number of tokens."""

    world: str
    method: str
    runs: int
    over: str
    """What the intervals are over, and of which kind they are."""
    final: Band
    """Accuracy without hints when the budget is spent."""
    height: Band
    """Its mean over the curve, which says how soon."""
    gain: Difference | None
    """Of `final` over `none`; None for that one itself and where it did not run."""
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
    points = grid(results)
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result["spec"]["world"], result["spec"]["method"]), []).append(result)
    return [
        _row(world, method, runs, groups.get((world, BASELINE)), points) for (world, method), runs in groups.items()
    ]


def _row(
    world: str, method: str, runs: Sequence[Result], baseline: Sequence[Result] | None, points: Sequence[float]
) -> Row:
    units = _units(runs)
    curves = [[fmean(at(run, point) for run in unit) for point in points] for unit in units.values()]
    finals = {key: curve[-1] for key, curve in zip(units, curves, strict=True)}
    gain = None
    if baseline is not None and method != BASELINE:
        theirs = {key: fmean(at(run, points[-1]) for run in unit) for key, unit in _units(baseline).items()}
        gain = difference(list(finals.items()), list(theirs.items()))
    students = len({run["spec"]["pretraining_seed"] for run in runs})
    over = f"{students} students" if students >= FEWEST_STUDENTS else f"{len(runs)} runs"
    return Row(
        world=world,
        method=method,
        runs=len(runs),
        over=f"{over}, {band_kind(len(units))}",
        final=band(list(finals.values())),
        height=band([_mean_height(curve) for curve in curves]),
        gain=gain,
        mentor_tokens=fmean(run["mentor_tokens"] for run in runs),
        curve=tuple(band(column) for column in zip(*curves, strict=True)),
    )


def _units(runs: Sequence[Result]) -> dict[int, list[Result]]:
    """What counts as one observation: runs of the same student are not independent."""
    students = {run["spec"]["pretraining_seed"] for run in runs}
    units: dict[int, list[Result]] = {}
    for run in runs:
        spec = run["spec"]
        student = spec["pretraining_seed"]
        key = student if len(students) >= FEWEST_STUDENTS else 1_000_000 * student + spec["seed"]
        units.setdefault(key, []).append(run)
    return units


def _mean_height(curve: Sequence[float]) -> float:
    return fmean((left + right) / 2 for left, right in pairwise(curve))


def markdown(found: Sequence[Row]) -> str:
    """The table."""
    lines = [
        "| world | method | runs | accuracy at the end | mean over the curve | end minus `none` | mentor's tokens |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found:
        gain = "" if row.gain is None else f"{row.gain.difference:+.3f}{_interval(row.gain.low, row.gain.high)}"
        lines.append(
            f"| {row.world} | {row.method} | {row.runs} ({row.over}) | {_band(row.final)} | {_band(row.height)} "
            f"| {gain} | {row.mentor_tokens:,.0f} |"
        )
    return "\n".join(lines) + "\n"


def _band(found: Band) -> str:
    return f"{found.mean:.3f}{_interval(found.low, found.high)}"


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None or low == high else f" [{low:.3f}, {high:.3f}]"


def figure(found: Sequence[Row], points: Sequence[float]) -> bytes:
    """Accuracy without hints over generated tokens as a PNG: one panel a world, one line and band a method."""
    worlds = list(dict.fromkeys(row.world for row in found))
    methods = list(dict.fromkeys(row.method for row in found))
    looks = dict(zip(methods, zip(cycle(COLOURS), cycle(DASHES), strict=False), strict=False))
    columns = min(len(worlds), 3)
    lines = -(-len(worlds) // columns)
    picture = Figure(figsize=(1.5 + 3.5 * columns, 1 + 3 * lines), layout="constrained")
    panels = picture.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).flat
    for panel, world in zip(panels, worlds, strict=False):
        for row in found:
            if row.world == world:
                _draw(panel, row, points, looks[row.method])
        panel.set_title(world)
        panel.set_xlim(0, points[-1])
        panel.set_ylim(0, 1)
        panel.grid(color="#DDDDDD", linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    for panel in list(panels):
        panel.set_visible(False)
    picture.supxlabel("tokens generated by the policy, second rolls included")
    picture.supylabel("accuracy on held-out problems, no hints")
    named = {line.get_label(): line for panel in picture.axes for line in panel.get_lines()}
    picture.legend([named[name] for name in methods], methods, loc="outside lower center", ncols=4, frameon=False)
    data = io.BytesIO()
    picture.savefig(data, format="png", dpi=150)
    return data.getvalue()


def _draw(panel: Axes, row: Row, points: Sequence[float], look: tuple[str, str]) -> None:
    colour, dashes = look
    panel.plot(points, [point.mean for point in row.curve], color=colour, linestyle=dashes, label=row.method)
    lows, highs = [point.low for point in row.curve], [point.high for point in row.curve]
    panel.fill_between(points, lows, highs, color=colour, alpha=0.15, linewidth=0)
