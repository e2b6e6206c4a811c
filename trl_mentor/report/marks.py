"""The marks that the charts of a report consist of: bars, intervals, areas and lines on axes of matplotlib."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trl_mentor.report.drawing import GREY, INK, PAGE, label
from trl_mentor.uplift import Rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW = 0.3
"""Inches of a row."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One row of stacked parts."""

    name: str
    parts: Mapping[str, float]
    """By the names of their colours; those that are 0 or missing are not drawn."""
    note: str = ""
    """What stands behind the bar."""

    @property
    def total(self) -> float:
        return sum(self.parts.values())


@dataclass(frozen=True, slots=True)
class Row:
    """Values with their intervals, one below the other, under one name."""

    name: str
    spans: Mapping[str, Rate]
    """Shares, or differences of shares, by the names of their colours."""
    note: str = ""
    """What stands after the name."""


def bars(axes: Axes, rows: Sequence[Bar], colours: Mapping[str, str], *, title: str = "") -> None:
    """Horizontal bars from top to bottom, with a key of the colours that occur."""
    longest = max((row.total for row in rows), default=0) or 1
    for place, row in enumerate(rows):
        left = 0.0
        for name, colour in colours.items():
            if width := row.parts.get(name, 0):
                axes.barh(place, width, left=left, height=0.7, color=colour, edgecolor=PAGE, linewidth=0.8, label=name)
                left += width
        axes.text(left + longest * 0.012, place, row.note, va="center", fontsize=10)
    _rows(axes, [label(row.name) for row in rows])
    axes.set_xlim(0, longest * 1.2)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    key(axes, list(colours), title=title)


def intervals(axes: Axes, rows: Sequence[Row], colours: Mapping[str, str]) -> None:
    """Points with their intervals, a row for each name from top to bottom."""
    for place, row in enumerate(rows):
        if place:
            axes.axhline(place - 0.5, color=GREY, linewidth=0.3)
        names = [name for name in colours if name in row.spans]
        for number, name in enumerate(names):
            height, span, colour = place + 0.3 * (number - (len(names) - 1) / 2), row.spans[name], colours[name]
            axes.plot([span.low, span.high], [height, height], color=colour, linewidth=2.2, solid_capstyle="round")
            axes.plot([span.value], [height], "o", markersize=7, color=colour, markeredgecolor=PAGE, label=name)
    _rows(axes, [f"{label(row.name, 32)}  {row.note}" for row in rows])


def percent_axis(axes: Axes, low: float = 0.0, *, signed: bool = False) -> None:
    """The horizontal axis in per cent up to 100, with a line at every 25, or 50 where it is `signed`: differences."""
    parts = 2 if signed else 4
    ticks = [tick / parts for tick in range(math.floor(low * parts), parts + 1)]
    axes.set_xlim(min(low, ticks[0]) - 0.03, 1.03)
    names = [f"{100 * tick:+.0f}" if signed and tick else f"{100 * tick:.0f}" for tick in ticks]
    axes.set_xticks(ticks, [name.replace("-", "\u2212") for name in names])
    for tick in ticks:
        zero = signed and not tick
        axes.axvline(tick, color=INK if zero else GREY, linewidth=0.8 if zero else 0.3, zorder=0)
    axes.spines["bottom"].set_visible(False)


def areas(
    axes: Axes, edges: Sequence[float], layers: Mapping[str, Sequence[float]], colours: Mapping[str, str]
) -> None:
    """Layers on top of each other, each value between two edges."""
    base = [0.0] * (len(edges) - 1)
    for name, values in layers.items():
        if not any(values):
            continue
        top = [low + value for low, value in zip(base, values, strict=True)]
        low, high = [*base, base[-1]], [*top, top[-1]]
        axes.fill_between(edges, low, high, step="post", color=colours[name], linewidth=0, label=name)
        base = top


def key(axes: Axes, order: Sequence[str], *, title: str = "", columns: int = 5) -> None:
    """A title, and under it what the colours mean, above the axes; a colour that does not occur is left out."""
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    names = [name for name in order if name in handles]
    if names:
        axes.legend(
            [handles[name] for name in names],
            names,
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=math.ceil(len(names) / math.ceil(len(names) / columns)),
            borderaxespad=0.2,
            borderpad=0,
            columnspacing=1.0,
            title=title or None,
            alignment="left",
        )
    elif title:
        axes.set_title(title)


def step_axis(axes: Axes, steps: int) -> None:
    """The horizontal axis of optimizer steps, from none to so many."""
    axes.set_xlim(0, max(steps, 1))
    axes.locator_params(axis="x", integer=True)
    axes.set_xlabel("optimizer steps")


def compact(number: float) -> str:
    """A number in at most four characters or so: 950, 12 k, 3.4 M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"


def _rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.spines["left"].set_visible(False)
