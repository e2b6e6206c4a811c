"""The tables of `trl-mentor compare`, as text that the terminal and the page share.

Labels and names of directories are untrusted: characters that could steer a terminal are written out as escapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from trl_mentor.bill import Bill
from trl_mentor.cli.show import visible
from trl_mentor.comparison.intervals import Band, BandKind, Difference
from trl_mentor.comparison.records import SHARES, Comparison, Race, Reach, Standing
from trl_mentor.comparison.tracks import Axis, Count

BANDS = (
    "Below each mean: the 95% t-interval over seeds where there are three or more, the smallest and largest of two, "
    "nothing of one."
)


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[int]
    """Columns that are aligned to the right."""


def runs_sheet(comparison: Comparison) -> Sheet:
    """Which runs are the seeds of which method."""
    rows = [
        (visible(standing.label) if place == 0 else "", str(run.seed), visible(run.run))
        for standing in comparison.races[0].standings
        for place, run in enumerate(standing.runs)
    ]
    return Sheet("Runs", ("method", "seed", "run"), tuple(rows), frozenset({1}))


def sheets(comparison: Comparison, race: Race) -> tuple[Sheet, Sheet, Sheet]:
    """Metric at shares of the budget, methods against the baseline, and what was spent."""
    return _metric_sheet(comparison, race), _difference_sheet(comparison, race), _bill_sheet(race, comparison.count)


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


def _metric_sheet(comparison: Comparison, race: Race) -> Sheet:
    columns = ("method", "seeds", *(f"{share:.0%}\n{amount(share * race.budget)}" for share in SHARES))
    rows = tuple(
        (
            visible(standing.label),
            str(len(standing.runs)),
            *("-" if found is None else _band(found, standing.kind) for found in standing.at),
        )
        for standing in race.standings
    )
    title = f"{visible(comparison.metric)} at equal {unit(race.axis, comparison.count)}"
    return Sheet(title, columns, rows, frozenset(range(1, len(columns))))


def _difference_sheet(comparison: Comparison, race: Race) -> Sheet:
    """Mean heights, the way to the threshold if there is one, and differences to the baseline."""
    reach = () if comparison.threshold is None else (f"to reach {number(comparison.threshold)}",)
    columns = ("method", "mean height", *reach, "minus baseline\nat 100%", "minus baseline\nof mean", "interval")
    rows = tuple(
        (
            visible(standing.label),
            _band(standing.mean, standing.kind),
            *([] if standing.reach is None else [_reach(standing.reach, standing)]),
            *(_difference(found) for found in (standing.final_difference, standing.mean_difference)),
            "baseline" if standing.final_difference is None else standing.final_difference.test,
        )
        for standing in race.standings
    )
    title = f"Against {visible(comparison.baseline)}, at equal {unit(race.axis, comparison.count)}"
    return Sheet(title, columns, rows, frozenset(range(1, len(columns) - 1)))


def _bill_sheet(race: Race, count: Count) -> Sheet:
    columns = ("method", "policy tokens", "of re-rolls", "mentor tokens", "cost", "seconds", "waited for\nthe mentor")
    title = f"The bill up to {amount(race.budget)} {unit(race.axis, count)}, mean of a run"
    rows = tuple((visible(standing.label), *_mean_bill(standing.bills)) for standing in race.standings)
    return Sheet(title, columns, rows, frozenset(range(1, len(columns))))


def _mean_bill(bills: Sequence[Bill]) -> tuple[str, ...]:
    rerolls = fmean(bill.reroll_tokens + bill.control_tokens + bill.padding_tokens for bill in bills)
    costs = [bill.cost for bill in bills if bill.cost is not None]
    return (
        amount(fmean(bill.policy_tokens for bill in bills)),
        amount(rerolls),
        amount(fmean(bill.mentor_tokens for bill in bills)),
        f"{fmean(costs):,.4g}" if len(costs) == len(bills) else "no prices",
        amount(fmean(bill.seconds for bill in bills)),
        amount(fmean(bill.waited_seconds for bill in bills)),
    )


def _band(found: Band, kind: BandKind) -> str:
    return number(found.mean) if kind is BandKind.NONE else f"{number(found.mean)}\n{_ends(found.low, found.high)}"


def _ends(low: float, high: float) -> str:
    return f"{number(low)}-{number(high)}" if low >= 0 else f"{number(low)} to {number(high)}"


def _difference(found: Difference | None) -> str:
    if found is None:
        return ""
    shown = f"{found.difference:+.3f}"
    return shown if found.low is None or found.high is None else f"{shown}\n{_ends(found.low, found.high)}"


def _reach(found: Reach, standing: Standing) -> str:
    if found.spent is None:
        return f"{found.seeds} of {len(standing.runs)} do"
    return amount(found.spent.mean) + (
        "" if standing.kind is BandKind.NONE else f"\n{amount(found.spent.low)}-{amount(found.spent.high)}"
    )
