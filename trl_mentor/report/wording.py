"""Figures of a report in words, as filters of its template."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from trl_mentor.report.drawing import label
from trl_mentor.tallies import Tally
from trl_mentor.uplift import Comparison, Rate, difference_text, rate, rate_text

NOTHING = "\u2013"
"""Stands for what was not counted."""


def count(value: float | None) -> str:
    """A whole number; `NOTHING` for what was not counted."""
    return NOTHING if value is None else f"{value:,.0f}"


def percent(value: float) -> str:
    """A share."""
    return f"{value:.0%}" if value in (0, 1) or 0.1 <= value < 0.995 else f"{value:.1%}"


def interval(found: Rate | None) -> str:
    """A share with its 95 % interval."""
    return NOTHING if found is None else rate_text(found)


def tally(found: Tally) -> str:
    """Hits of groups, and their share with its interval."""
    return NOTHING if not found.groups else f"{found.hits:,} of {found.groups:,} · {interval(rate(found))}"


def points(found: Comparison | None) -> str:
    """A difference of two shares in percentage points with its 95 % interval."""
    return NOTHING if found is None else difference_text(found)


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def moment(time: datetime) -> str:
    """To the minute."""
    return f"{time:%Y-%m-%d %H:%M} UTC"


def words(name: str) -> str:
    """The name of a member of a closed set."""
    return name.replace("_", " ")


def model(name: str) -> str:
    """A model without the folder that it lies in on somebody's machine."""
    return label(name.rstrip("/").rpartition("/")[2] if name.startswith(("/", "./", "../", "~")) else name, 80)


FILTERS: dict[str, Callable[..., Any]] = {
    "rate": rate,
    "count": count,
    "percent": percent,
    "interval": interval,
    "tally": tally,
    "points": points,
    "duration": duration,
    "moment": moment,
    "words": words,
    "model": model,
    "label": label,
}
