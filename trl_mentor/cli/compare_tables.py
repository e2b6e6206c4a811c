"""The tables of `trl-mentor compare`, as text that the terminal and the page share.

Labels and names of directories are untrusted: characters that could steer a terminal are written out as escapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from trl_mentor.bill import Bill
from trl_mentor.cli.show import visible
from trl_mentor.comparison.intervals import Band, BandKind, Difference
from trl_mentor.comparison.records import SHARES, Comparison, Race
from trl_mentor.comparison.tracks import Axis, Count

BANDS = (
    "Below each mean: the 95% t-interval over seeds where there are three or more, the smallest and largest of two, "
    "nothing of one. Of differences: within seeds (paired) where both methods ran with the same ones, else Welch's."
)


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: frozenset[int] = frozenset({0})
    """Columns of words, which are aligned to the left; the others hold numbers."""


def runs_sheet(comparison: Comparison) -> Sheet:
    """Which runs are the seeds of which method."""
    rows = [
        (visible(standing.label) if place == 0 else "", str(run.seed), visible(run.run))
        for standing in comparison.races[0].standings
        for place, run in enumerate(standing.runs)
    ]
    return Sheet("Runs", ("method", "seed", "run"), tuple(rows), frozenset({0, 2}))


def sheets(comparison: Comparison, race: Race) -> list[Sheet]:
    """Metric at shares of the budget, methods against the baseline, the way to the threshold, the bill."""
    along = f"equal {unit(race.axis, comparison.count)}"
    reach = [] if comparison.threshold is None else [_reach_sheet(comparison, race, comparison.threshold)]
    return [
        _metric_sheet(f"{visible(comparison.metric)} at {along}", race),
        _difference_sheet(f"Against {visible(comparison.baseline)}, at {along}", race),
        *reach,
        _bill_sheet(race, comparison.count),
    ]


def unit(axis: Axis, count: Count) -> str:
    """What a budget is counted in."""
    if axis is Axis.SECONDS:
        return "seconds of training"
    return "policy tokens" if count is Count.POLICY else "policy and mentor tokens"


def number(value: float) -> str:
    """A value of the metric."""
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.1f}"


def amount(value: float) -> str:
    """Tokens or seconds."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def _metric_sheet(title: str, race: Race) -> Sheet:
    columns = ("method", "seeds", *(f"{share:.0%}\n{amount(share * race.budget)}" for share in SHARES))
    rows = tuple(
        (
            visible(standing.label),
            str(len(standing.runs)),
            *("-" if found is None else _band(found, standing.kind) for found in standing.at),
        )
        for standing in race.standings
    )
    return Sheet(title, columns, rows)


def _difference_sheet(title: str, race: Race) -> Sheet:
    columns = ("method", "mean height", "at 100%,\nminus baseline", "mean height,\nminus baseline", "interval")
    rows = tuple(
        (
            visible(standing.label),
            _band(standing.mean, standing.kind),
            *(_difference(found) for found in (standing.final_difference, standing.mean_difference)),
            "" if standing.final_difference is None else standing.final_difference.test.replace(", ", "\n"),
        )
        for standing in race.standings
    )
    return Sheet(title, columns, rows)


def _reach_sheet(comparison: Comparison, race: Race, threshold: float) -> Sheet:
    columns = ("method", "seeds that do", "first at")
    rows = []
    for standing in race.standings:
        if standing.reach is not None:
            spent = standing.reach.spent
            first = "-" if spent is None else _band(spent, standing.kind, amount)
            rows.append((visible(standing.label), f"{standing.reach.seeds} of {len(standing.runs)}", first))
    title = f"{unit(race.axis, comparison.count).capitalize()} to reach {threshold:g}"
    return Sheet(title, columns, tuple(rows))


def _bill_sheet(race: Race, count: Count) -> Sheet:
    """One column for each method; parts, which are indented, are left out if no run has them."""
    title = f"The bill up to the batch that reaches {amount(race.budget)} {unit(race.axis, count)}, mean of a run"
    lines = zip(*(_mean_bill(standing.bills) for standing in race.standings), strict=True)
    rows = [(line[0][0], *(value for _, value in line)) for line in lines]
    kept = tuple(row for row in rows if not row[0].startswith(" ") or any(value != "0" for value in row[1:]))
    return Sheet(title, ("", *(visible(standing.label) for standing in race.standings)), kept)


def _mean_bill(bills: Sequence[Bill]) -> list[tuple[str, str]]:
    """Names and figures, the same names for all bills."""
    costs = [bill.cost for bill in bills if bill.cost is not None]
    return [
        ("policy tokens", _mean([bill.policy_tokens for bill in bills])),
        *_mean_parts([bill.policy_parts() for bill in bills]),
        ("mentor tokens", _mean([bill.mentor_tokens for bill in bills])),
        ("seconds", _mean([bill.seconds for bill in bills])),
        *_mean_parts([bill.seconds_parts() for bill in bills]),
        ("cost of the mentor", f"{fmean(costs):,.4g}" if len(costs) == len(bills) else "no prices"),
    ]


def _mean_parts(parts: Sequence[Mapping[str, float]]) -> list[tuple[str, str]]:
    return [(f"  {name}", _mean([part[name] for part in parts])) for name in parts[0]]


def _mean(figures: Sequence[float]) -> str:
    return amount(fmean(figures))


def _band(found: Band, kind: BandKind, text: Callable[[float], str] = number) -> str:
    if kind is BandKind.NONE:
        return text(found.mean)
    return f"{text(found.mean)}\n{_ends(text(found.low), text(found.high))}"


def _ends(low: str, high: str) -> str:
    return f"{low} to {high}" if low.startswith("-") else f"{low}-{high}"


def _difference(found: Difference | None) -> str:
    if found is None:
        return "baseline"
    shown = f"{found.difference:+.3f}"
    if found.low is None or found.high is None:
        return shown
    return f"{shown}\n{_ends(number(found.low), number(found.high))}"
