"""Charts of the course of a run: what was trained, the tokens it took, and the policy without hints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trl_mentor.report.drawing import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, Drawing, label, svg
from trl_mentor.report.figure_records import Figures, Point
from trl_mentor.report.marks import areas, compact, key, step_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TRAINED = {
    "mixed": BLUE,
    "rescued": GREEN,
    "all correct": SKY,
    "hint saturated": ORANGE,
    "still collapsed": VERMILION,
    "not re-rolled": GREY,
    "unscorable": PURPLE,
}
TOKENS = {"first rolls": BLUE, "re-rolls": GREEN, "probes": GREY, "mentor": ORANGE}

_COLOURS = (GREEN, ORANGE, BLUE, VERMILION, SKY, PURPLE)


def outcomes(figures: Figures) -> str | None:
    """What the groups of each stretch of the run were trained as, and the tokens that they took."""
    points = figures.points
    if not points:
        return None

    def paint(figure: Figure) -> None:
        upper, lower = figure.subplots(2, sharex=True, height_ratios=(5, 2))
        edges = [0, *(point.step + 1 for point in points)]
        areas(upper, edges, {name: _shares(points, name) for name in TRAINED}, TRAINED)
        upper.set_ylim(0, 1)
        upper.set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"])
        key(upper, list(TRAINED), title="Groups by what was trained")
        layers = {name: [_tokens(point)[name] / max(point.groups, 1) for point in points] for name in TOKENS}
        areas(lower, edges, layers, TOKENS)
        lower.set_ylim(0)
        lower.yaxis.set_major_formatter(lambda value, _: compact(value))
        step_axis(lower, edges[-1])
        key(lower, list(TOKENS), title="Tokens per group")

    last = points[-1]
    said = f"{len(points)} stretches of {last.step + 1} steps, {compact(last.total_policy_tokens)} policy tokens."
    return svg(Drawing("What the groups were trained as, and their tokens", said, 4.6, paint))


def _shares(points: Sequence[Point], name: str) -> list[float]:
    field = name.replace(" ", "_").replace("-", "")
    return [getattr(point, field) / max(point.groups, 1) for point in points]


def _tokens(point: Point) -> dict[str, int]:
    return {
        "first rolls": point.first_tokens,
        "re-rolls": point.reroll_tokens,
        "probes": point.probe_tokens,
        "mentor": point.mentor_tokens,
    }


def learning(figures: Figures) -> str | None:
    """First rolls that succeed, and evaluations: the policy without hints."""
    rolled = [(point.step + 1, point.successes / point.completions) for point in figures.points if point.completions]
    curves = list({curve.points: curve for curve in reversed(figures.evaluations)}.values())[::-1][: len(_COLOURS)]
    if not rolled and not curves:
        return None
    steps = max(step for points in (rolled, *(curve.points for curve in curves)) for step, _ in points)
    names = [label(curve.name) for curve in curves]

    def paint(figure: Figure) -> None:
        panels: list[Axes] = list(figure.subplots(1, 1 + bool(curves and rolled), squeeze=False)[0])
        for axes in panels:
            step_axis(axes, steps)
        if rolled:
            panels[0].plot(*zip(*rolled, strict=True), color=BLUE, marker="o", markersize=3 if len(rolled) < 30 else 0)
            panels[0].set(ylim=(0, 1.02))
            panels[0].set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"])
            panels[0].set_title("First rolls that succeed, without a hint")
        for name, curve, colour in zip(names, curves, _COLOURS, strict=False):
            panels[-1].plot(*zip(*curve.points, strict=True), color=colour, marker="o", markersize=4, label=name)
        if curves:
            key(panels[-1], names, title="Evaluation, without a hint", columns=1)

    return svg(Drawing("The policy without hints", "Curves over optimizer steps.", 2.6, paint))
