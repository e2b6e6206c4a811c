"""The charts of a report as the page takes them in."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from markupsafe import Markup

from trl_mentor.errors import ConfigError
from trl_mentor.report.course_charts import learning, outcomes
from trl_mentor.report.figure_records import Figures
from trl_mentor.report.proof_charts import recovery, reliance, transfer
from trl_mentor.report.work_charts import causes, drafts, spending, topics

CHARTS: Mapping[str, Callable[[Figures], str | None]] = {
    "outcomes": outcomes,
    "learning": learning,
    "recovery": recovery,
    "transfer": transfer,
    "reliance": reliance,
    "drafts": drafts,
    "causes": causes,
    "topics": topics,
    "spending": spending,
}
"""From the figures to SVG text, None where there is nothing to show; by their names in the page's template."""


def pictures(figures: Figures) -> Mapping[str, Markup | None] | None:
    """By the name of the chart, None where there is nothing to show; None in all if there is nothing to draw with."""
    try:
        drawn = {name: draw(figures) for name, draw in CHARTS.items()}
    except ConfigError:
        return None
    return {name: None if svg is None else Markup(svg) for name, svg in drawn.items()}
