"""Whether what was learnt under hints carries over to the plain question."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean, quantiles

from trl_mentor.collapse import exceeds
from trl_mentor.records import Arm, Intervention, RerollOutcome, Return
from trl_mentor.report.figure_records import Reliance, Share, Transfer, TransferRow
from trl_mentor.tallies import Tallies
from trl_mentor.transfer import transfer as cohorts
from trl_mentor.uplift import compare, rescued_and_others

BINS = 24


def transfer(returns: Sequence[Return]) -> Transfer:
    """How the prompts that came round again were answered."""
    found = cohorts(returns)
    training, probes = ([item for item in returns if item.probe is probe] for probe in (False, True))
    rows = [_row("all", found)]
    if training and probes:
        rows += [_row("training", cohorts(training)), _row("probe", cohorts(probes))]
    hint, control, generic = (found[f"arm:{arm}"] for arm in Arm)
    return Transfer(
        returns=len(returns),
        rows=tuple(rows) if returns else (),
        hint=Share.of(hint),
        control=Share.of(control),
        generic=Share.of(generic),
        comparison=compare(hint, control),
    )


def _row(name: str, found: Tallies) -> TransferRow:
    rescued, others = rescued_and_others(found)
    saturated = Share.of(found[RerollOutcome.HINT_SATURATED])
    return TransferRow(name, Share.of(rescued), Share.of(others), saturated, compare(rescued, others))


def reliance(records: Iterable[Intervention], threshold: float) -> Reliance | None:
    """How the policy's hinted successes lean on their hints; None if it was not measured."""
    values = [
        value
        for record in records
        for value, success in zip(record.reliances, record.successes, strict=False)
        if value is not None and success is not None and exceeds(success, threshold)
    ]
    if not values:
        return None
    lower, median, upper = quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    edges = _edges(min(values), max(values))
    bins = Counter(min(bisect_right(edges, value) - 1, BINS - 1) for value in values)
    return Reliance(
        len(values), fmean(values), median, lower, upper, tuple(edges), tuple(bins[number] for number in range(BINS))
    )


def _edges(low: float, high: float) -> list[float]:
    """Of equal bins from the lowest value to the highest; values that are all alike are in the middle."""
    if low == high:
        low, high = low - 0.5, high + 0.5
    return [low + (high - low) * number / BINS for number in range(BINS)] + [high]
