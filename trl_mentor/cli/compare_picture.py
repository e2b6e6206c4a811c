"""The picture of `trl-mentor compare`: a metric over tokens and over seconds, one line and band for each method."""

from __future__ import annotations

import io
import warnings
from itertools import cycle
from typing import TYPE_CHECKING

from trl_mentor.cli.compare_tables import unit
from trl_mentor.cli.show import visible
from trl_mentor.comparison.intervals import BandKind
from trl_mentor.comparison.records import Comparison, Race, Standing
from trl_mentor.comparison.tracks import SUCCESS_RATE
from trl_mentor.errors import ConfigError
from trl_mentor.report.drawing import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = (BLUE, VERMILION, GREEN, PURPLE, SKY, ORANGE, "#000000")

DASHES = ("-", "--", "-.", ":")
"""As many as no two methods share both colour and dashes before the 29th."""

LONGEST_LABEL = 60


def draw(comparison: Comparison) -> bytes:
    """The picture as a PNG. Raises `ConfigError` if matplotlib, which is optional, is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(
            "trl-mentor compare draws with matplotlib, which is not installed: pip install 'trl-mentor[report]'"
        ) from error
    figure = Figure(figsize=(10, 4.8), layout="constrained")
    panels = figure.subplots(1, len(comparison.races), sharey=True)
    for panel, race in zip(panels, comparison.races, strict=True):
        _draw_race(panel, race)
        panel.set_xlabel(unit(race.axis, comparison.count))
        if comparison.threshold is not None:
            panel.axhline(comparison.threshold, color="#777777", linewidth=0.8, linestyle=(0, (2, 3)))
    what = f"{SUCCESS_RATE} of first rolls, no hints" if comparison.metric == SUCCESS_RATE else comparison.metric
    panels[0].set_ylabel(_short(what), parse_math=False)
    standings = comparison.races[0].standings
    legend = figure.legend(
        panels[0].get_lines()[: len(standings)],
        [_entry(standing) for standing in standings],
        loc="outside lower center",
        ncols=min(len(standings), 2),
        frameon=False,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    data = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        figure.savefig(data, format="png", dpi=150)
    return data.getvalue()


def _draw_race(panel: Axes, race: Race) -> None:
    """The means come first, so that the legend finds them by their place; a thin line is one run."""
    looks = list(zip(race.standings, cycle(COLOURS), cycle(DASHES), strict=False))
    marker = "o" if len(race.grid) == 1 else ""
    for standing, colour, dashes in looks:
        means = [point.mean for point in standing.curve]
        panel.plot(race.grid, means, color=colour, linestyle=dashes, linewidth=1.8, marker=marker)
    for standing, colour, _ in looks:
        if standing.kind is not BandKind.NONE:
            low, high = zip(*((point.low, point.high) for point in standing.curve), strict=True)
            panel.fill_between(race.grid, low, high, color=colour, alpha=0.15, linewidth=0)
            for run in standing.runs:
                panel.plot(race.grid, run.values, color=colour, linewidth=0.6, alpha=0.6, marker=marker, markersize=2)
    panel.set_xlim(0, race.budget)
    panel.xaxis.set_major_formatter(_engineering)
    panel.grid(color="#DDDDDD", linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)


def _engineering(value: float, position: float) -> str:
    """120000 as 120k."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _entry(standing: Standing) -> str:
    seeds = len(standing.runs)
    return f"{_short(standing.label)} ({seeds} seed{'s' * (seeds > 1)}, {standing.kind})"


def _short(text: str) -> str:
    """Text of a user on one line of the picture."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= LONGEST_LABEL else line[: LONGEST_LABEL - 3] + "..."
