"""The learning rate of each method, chosen on seeds that the comparison itself does not use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from strategy_specs import Size, Spec
from strategy_tables import Result, grid, height

TUNING_SEEDS = (1000, 1001)


def tuning_specs(pairs: Iterable[tuple[str, str]], rates: Sequence[float], size: Size) -> list[Spec]:
    """The runs of the choice: the first student of each (world, method) by every rate and tuning seed."""
    return [
        Spec(world, method, 0, seed, rate, size) for world, method in pairs for rate in rates for seed in TUNING_SEEDS
    ]


def choose_rates(results: Sequence[Result]) -> dict[str, float]:
    """The rate of each method under which its curves are highest on average, all worlds together.

    One rate for all worlds: nobody who trains a model knows beforehand which of these worlds it is like. The mean
    height counts and not the end, so that a rate is no better for reaching the same end later. On a tie, the lower.
    """
    points = grid(results)
    heights: dict[str, dict[float, list[float]]] = {}
    for result in results:
        spec = result["spec"]
        heights.setdefault(spec["method"], {}).setdefault(spec["learning_rate"], []).append(height(result, points))
    return {method: max(sorted(by_rate), key=lambda rate: fmean(by_rate[rate])) for method, by_rate in heights.items()}
