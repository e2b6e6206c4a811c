"""The figure of the comparison of strategies."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from strategy_tables import Row

from trl_mentor.cli.compare_picture import COLOURS, DASHES


def figure(found: Sequence[Row], points: Sequence[float]) -> bytes:
    """Accuracy without hints over generated tokens as a PNG: one panel a world, one line and band a method."""
    worlds = list(dict.fromkeys(row.world for row in found))
    methods = list(dict.fromkeys(row.method for row in found))
    looks = dict(zip(methods, zip(cycle(COLOURS), cycle(DASHES), strict=False), strict=False))
    columns = min(len(worlds), 3)
    lines = -(-len(worlds) // columns)
    picture = Figure(figsize=(1.5 + 3.5 * columns, 1 + 3 * lines), layout="constrained")
    panels = list(picture.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).flat)
    for panel, world in zip(panels, worlds, strict=False):
        for row in found:
            if row.world == world:
                _draw(panel, row, points, looks[row.method])
        panel.set_title(world)
        panel.set_xlim(0, points[-1])
        panel.set_ylim(-0.02, 1.02)
        panel.set(xlabel="tokens of the policy", ylabel="accuracy, no hints")  # those of a figure touch its legend
        panel.grid(color="#DDDDDD", linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    for panel in panels[len(worlds) :]:
        panel.set_visible(False)
    named = {line.get_label(): line for panel in picture.axes for line in panel.get_lines()}
    lines_of_methods = [named[name] for name in methods]
    picture.legend(lines_of_methods, methods, loc="outside lower center", ncols=min(2 * columns, 5), frameon=False)
    data = io.BytesIO()
    picture.savefig(data, format="png", dpi=150)
    return data.getvalue()


def _draw(panel: Axes, row: Row, points: Sequence[float], look: tuple[str, str]) -> None:
    colour, dashes = look
    panel.plot(points, [point.mean for point in row.curve], color=colour, linestyle=dashes, label=row.method)
    lows, highs = [point.low for point in row.curve], [point.high for point in row.curve]
    panel.fill_between(points, lows, highs, color=colour, alpha=0.15, linewidth=0)
