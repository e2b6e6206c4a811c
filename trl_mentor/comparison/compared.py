"""Methods compared at equal tokens and equal seconds: from runs to the records of a comparison."""

from __future__ import annotations

from collections.abc import Sequence

from trl_mentor.comparison.intervals import difference
from trl_mentor.comparison.records import Comparison, Race
from trl_mentor.comparison.runs import Method
from trl_mentor.comparison.standings import Sampled, standing
from trl_mentor.comparison.tracks import SUCCESS_RATE, Axis, Count, Track, default_metric, meter, track
from trl_mentor.errors import ConfigError

POINTS = 100
"""Parts of equal length into which the common budget is cut; evaluations add points of their own."""

WINDOW = 0.1
"""Share of the common budget over which success rates are smoothed."""

LONGER = 1.1
"""A run that goes on so much further than the common budget is worth a word."""


def compare(
    methods: Sequence[Method],
    *,
    metric: str | None = None,
    count: Count = Count.POLICY,
    threshold: float | None = None,
    notes: Sequence[str] = (),
) -> Comparison:
    """Compare methods by a metric, by default one of evaluations that all runs share, else `SUCCESS_RATE`.

    The baseline is the method whose runs leave collapsed groups alone (strategy `none`), else the first. Raises
    `ConfigError` if a run does not have the metric, or if there is no budget at which all runs know it.
    """
    runs = [run for method in methods for run in method.runs]
    chosen = metric or default_metric(runs, [meter(axis, count) for axis in Axis])
    plain = [method for method in methods if method.runs[0].info.strategy == "none"]
    baseline = [*plain, *methods][0]
    races, said = [], list(notes)
    if metric is None and chosen == SUCCESS_RATE:
        said.append("the runs share no evaluation metric over a common budget")
    for axis in Axis:
        race, longer = _race(methods, methods.index(baseline), chosen, axis, count, threshold)
        races.append(race)
        said += longer
    if chosen == SUCCESS_RATE:
        said.append(
            f"{SUCCESS_RATE} is the share of first-roll completions, without any hint, that succeed: on training "
            f"prompts, smoothed over {WINDOW:.0%} of the budget; held-out evaluations (eval_strategy) say more"
        )
    return Comparison(chosen, count, threshold, baseline.label, tuple(races), tuple(said))


def _race(
    methods: Sequence[Method], baseline: int, metric: str, axis: Axis, count: Count, threshold: float | None
) -> tuple[Race, list[str]]:
    """All methods along one axis, and what to say about runs that go on."""
    spending = meter(axis, count)
    tracks = [[track(run, metric, spending) for run in method.runs] for method in methods]
    named = [
        (run.name, item)
        for method, items in zip(methods, tracks, strict=True)
        for run, item in zip(method.runs, items, strict=True)
    ]
    late, start = max(((name, item.start) for name, item in named), key=lambda pair: pair[1])
    early, budget = min(((name, item.end) for name, item in named), key=lambda pair: pair[1])
    if start > budget:
        raise ConfigError(
            f"the runs share no range of {axis}: {early} knows {metric} up to {budget:,.0f}, {late} from {start:,.0f} "
            f"on; let them run on, evaluate more often, or use --metric {SUCCESS_RATE}"
        )
    grid = _grid([item for _, item in named], start, budget)
    sampled = [
        Sampled(method, grid, [item.values(grid, WINDOW * budget) for item in items])
        for method, items in zip(methods, tracks, strict=True)
    ]
    base = sampled[baseline]
    standings = tuple(
        standing(
            item,
            spending,
            threshold=threshold,
            final_difference=None if item is base else difference(item.finals, base.finals),
            mean_difference=None if item is base else difference(item.heights, base.heights),
        )
        for item in sampled
    )
    longest = max(item.end for _, item in named)
    longer = [f"equal {axis}: up to {budget:,.0f}, where {early} ends; the longest run goes to {longest:,.0f}"]
    return Race(axis, start, budget, early, tuple(grid), standings), longer if longest > LONGER * budget else []


def _grid(tracks: Sequence[Track], start: float, budget: float) -> list[float]:
    """Even points and those at which tracks bend, so that areas under straight lines are exact."""
    even = {point for part in range(POINTS) if (point := budget * part / POINTS) >= start}
    return sorted({start, budget} | even | {knot for item in tracks for knot in item.knots if start < knot < budget})
