"""The charts of a report as the page takes them in."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from trl_mentor.errors import ConfigError
from trl_mentor.report import charts
from trl_mentor.report.figure_records import Figures

_CHARTS = {name: getattr(charts, name) for name in charts.__all__ if name != "CSS"}


def pictures(figures: Figures) -> Mapping[str, Markup | None] | None:
    """By the name of the chart, None where there is nothing to show; None in all if there is nothing to draw with."""
    try:
        drawn = {name: draw(figures) for name, draw in _CHARTS.items()}
    except ConfigError:
        return None
    return {name: None if svg is None else Markup(svg) for name, svg in drawn.items()}
