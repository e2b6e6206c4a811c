"""Whether what was learnt under hints carries over to the plain question."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean, quantiles

from trl_mentor.collapse import exceeds
from trl_mentor.records import Arm, Intervention, RerollOutcome, Return
from trl_mentor.report.figure_records import Occasion, Reliance, Transfer
from trl_mentor.transfer import transfer as cohorts
from trl_mentor.uplift import compare, rescued_and_others, transfer_uplift

BINS = 24

_OCCASIONS = {"training": False, "probe": True}


def transfer(returns: Sequence[Return]) -> Transfer:
    """How the prompts that had collapsed were answered later, apart for training and for probes."""
    apart = [(name, [item for item in returns if item.probe is probe]) for name, probe in _OCCASIONS.items()]
    return Transfer(len(returns), tuple(_occasion(name, items) for name, items in apart if items))


def _occasion(name: str, returns: Sequence[Return]) -> Occasion:
    found = cohorts(returns)
    rescued, others = rescued_and_others(found)
    return Occasion(
        name,
        rescued=rescued,
        hint_saturated=found[RerollOutcome.HINT_SATURATED],
        others=others,
        comparison=compare(rescued, others),
        hint=found[f"arm:{Arm.HINT}"],
        control=found[f"arm:{Arm.CONTROL}"],
        generic=found[f"arm:{Arm.GENERIC}"],
        uplift=transfer_uplift(found),
    )


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
