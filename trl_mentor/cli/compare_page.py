"""The page of `trl-mentor compare`: one file for a browser, without scripts and without anything from the network."""

from __future__ import annotations

from base64 import b64encode
from importlib.resources import files

import jinja2

from trl_mentor.cli.compare_tables import BANDS, runs_sheet, sheets, unit
from trl_mentor.cli.show import visible
from trl_mentor.comparison.records import Comparison


def page(comparison: Comparison, picture: bytes | None) -> str:
    """The page as HTML; whatever comes from labels, names of directories and journals is escaped."""
    source = (files("trl_mentor.cli") / "compare.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(source).render(
        metric=visible(comparison.metric),
        picture=None if picture is None else b64encode(picture).decode("ascii"),
        axes=[unit(race.axis, comparison.count) for race in comparison.races],
        bands=BANDS,
        sheets=[sheet for race in comparison.races for sheet in sheets(comparison, race)],
        runs=runs_sheet(comparison),
        notes=[visible(note) for note in comparison.notes],
    )
