"""The learning rate of each method in each main world, chosen on seeds that the comparison itself does not use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from strategy_methods import MAIN, METHODS
from strategy_specs import Size, Spec
from strategy_tables import Result, grid, height

TUNING_SEEDS = (1000, 1001)
DEFAULT_RATE = 5e-4
"""Where none was chosen."""

Rates = Mapping[str, Mapping[str, float]]
"""Learning rates by main world and method."""


def tuned(method: str) -> str:
    """The method whose rate this one is trained at."""
    return METHODS[method].rate_of or method


def chosen_in(world: str) -> str:
    """The main world whose rates a world takes: its own, or the one that it is a regime of."""
    return world if world in MAIN else MAIN[0]


def tuning_specs(trained: Iterable[tuple[str, str]], rates: Sequence[float], size: Size) -> list[Spec]:
    """The runs of the choice for these worlds and methods, by every rate and tuning seed, one student a seed.

    They have half the tokens of the runs that they choose for, and as many evaluations in them.
    """
    short = replace(
        size, tokens=size.tokens // 2, evaluations=max(size.evaluations // 2, 1), last_samples=size.samples
    )
    return [
        Spec(world, method, student, seed, rate, short)
        for world, method in dict.fromkeys((chosen_in(world), tuned(method)) for world, method in trained)
        for student, seed in enumerate(TUNING_SEEDS)
        for rate in rates
    ]


def choose_rates(results: Sequence[Result]) -> Rates:
    """By main world, the rate of each method under which its curves are highest on average.

    The mean height counts and not the end, so that a rate is no better for reaching the same end later. On a tie, the
    lower.
    """
    if not results:
        return {}
    points = grid(results)
    heights: dict[tuple[str, str], dict[float, list[float]]] = {}
    for result in results:
        spec = result["spec"]
        by_rate = heights.setdefault((spec["world"], spec["method"]), {})
        by_rate.setdefault(spec["learning_rate"], []).append(height(result, points))
    rates: dict[str, dict[str, float]] = {}
    for (world, method), by_rate in heights.items():
        rates.setdefault(world, {})[method] = max(sorted(by_rate), key=lambda rate: fmean(by_rate[rate]))
    return rates


def rate_for(world: str, method: str, chosen: Rates) -> float:
    """The rate of a method in a world."""
    return chosen.get(chosen_in(world), {}).get(tuned(method), DEFAULT_RATE)
