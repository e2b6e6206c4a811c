"""How often the 95 % intervals of an evaluation hold the truth: simulated evaluations through the package's own code.

    python benchmarks/eval_coverage.py --json benchmarks/results/eval_coverage.json

A benchmark is a draw of problems from a world in which a base model solves a problem with a chance from a beta
distribution; the trained model closes a share `lift` of what the chance lacks to 1. The truth is the mean over the
world, not over the problems drawn. Where there is one benchmark of 30 problems, SciPy's percentile and BCa bootstraps
see the same data, for comparison; where they have no width or cannot be computed, the interval is the mean alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import product
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy.stats import bootstrap

from trl_mentor.evaluation.intervals import Estimate, estimate, gain

SIMULATIONS = 2_000
RESAMPLES = 400
SCIPY_UP_TO = 30

SIZES = (30, 164)
"""Problems of AIME and of HumanEval."""

RATES = ((0.03, 1.0), (0.1, 1.0), (0.3, 1.0), (0.5, 4.0), (0.9, 2.0), (0.97, 1.0))
"""Mean of the chances in a world, and the sum of the parameters of its beta distribution: small is all or nothing."""

SUITES = {
    "weak": ((30, 0.05, 1.0), (30, 0.03, 1.0), (164, 0.4, 1.0), (100, 0.2, 1.0)),
    "strong": ((30, 0.5, 1.0), (30, 0.4, 1.0), (164, 0.95, 1.0), (100, 0.6, 1.0)),
    "small": ((30, 0.9, 1.0),) * 6,
}
"""Benchmarks that are averaged: problems, mean and sum of each."""

Benchmark = tuple[int, float, float]


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of evaluation."""

    suite: str
    benchmarks: tuple[Benchmark, ...]
    completions: int
    lift: float


@dataclass(slots=True)
class Coverage:
    """What came of all intervals of a figure."""

    covered: int = 0
    above: int = 0
    below: int = 0
    none: int = 0
    """Relative gains over a base run that solved nothing."""
    widths: list[float] = field(default_factory=list)

    def see(self, found: Estimate | None, truth: float) -> None:
        """Count one interval."""
        if found is None:
            self.none += 1
            return
        self.above += found.low > truth + 1e-9
        self.below += found.high < truth - 1e-9
        self.covered += found.low - 1e-9 <= truth <= found.high + 1e-9
        self.widths.append(found.high - found.low)


def cover(cell: Cell, *, simulations: int = SIMULATIONS) -> dict[str, Coverage]:
    """Simulate the evaluations of a cell."""
    total = sum(size for size, _, _ in cell.benchmarks)
    base = sum(size * mean for size, mean, _ in cell.benchmarks) / total
    trained = base + cell.lift * (1 - base)
    names = ["pass@1"] if not cell.lift else ["pass@1", "difference", "relative gain"]
    compared = len(cell.benchmarks) == 1 and total <= SCIPY_UP_TO and not cell.lift
    found = {name: Coverage() for name in [*names, *(["scipy percentile", "scipy BCa"] if compared else [])]}
    for simulation in range(simulations):
        rng = np.random.default_rng([simulation, total, cell.completions, round(1000 * base)])
        runs = [_draw(rng, benchmark, cell) for benchmark in cell.benchmarks]
        found["pass@1"].see(estimate([ours for ours, _ in runs], resamples=RESAMPLES, seed=simulation), trained)
        if cell.lift:
            pairs = [list(zip(ours, theirs, strict=True)) for ours, theirs in runs]
            gained = gain(pairs, resamples=RESAMPLES, seed=simulation)
            found["difference"].see(gained.difference, trained - base)
            found["relative gain"].see(gained.relative, (trained - base) / base)
        if compared:
            for name in ("percentile", "BCa"):
                found[f"scipy {name}"].see(_scipy(runs[0][0], name, simulation), trained)
    return found


def _draw(rng: np.random.Generator, benchmark: Benchmark, cell: Cell) -> tuple[list[float], list[float]]:
    """The pass@1 of each problem, of the trained and of the base model."""
    size, mean, total = benchmark
    chances = rng.beta(total * mean, total * (1 - mean), size)
    theirs = rng.binomial(cell.completions, chances) / cell.completions
    ours = rng.binomial(cell.completions, chances + cell.lift * (1 - chances)) / cell.completions
    return ours.tolist(), theirs.tolist()


def _scipy(values: list[float], method: str, seed: int) -> Estimate:
    mean = float(np.mean(values))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of data that are all the same
        interval = bootstrap(
            (values,), np.mean, n_resamples=RESAMPLES, method=method, rng=np.random.default_rng(seed)
        ).confidence_interval
    low, high = float(interval.low), float(interval.high)
    return Estimate(mean, low, high) if isfinite(low + high) else Estimate(mean, mean, mean)


def cells() -> Iterator[Cell]:
    """One benchmark of each size, with and without a gain, and the suites."""
    for size, (mean, total), completions in product(SIZES, RATES, (1, 16)):
        yield Cell("one", ((size, mean, total),), completions, 0.0)
    for size, (mean, total), completions in product(SIZES, RATES[:5], (1, 16)):
        yield Cell("one", ((size, mean, total),), completions, 0.1)
    for name, suite in SUITES.items():
        yield Cell(name, suite, 4, 0.1)


def as_json(cell: Cell, name: str, found: Coverage, *, simulations: int) -> dict[str, Any]:
    """A figure of a cell with shares of the simulations that have an interval."""
    row = {"figure": name, **asdict(cell)}
    shares = {
        part: round(getattr(found, part) / (simulations - found.none), 4) for part in ("covered", "above", "below")
    }
    width = median(found.widths)
    return {
        **row,
        **shares,
        "median_width": round(width, 4) if isfinite(width) else None,
        "without_interval": found.none,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--simulations", type=int, default=SIMULATIONS)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for cell in cells():
        for name, found in cover(cell, simulations=arguments.simulations).items():
            rows.append(as_json(cell, name, found, simulations=arguments.simulations))
            print(rows[-1], flush=True)
    least: dict[str, float] = {}
    for row in rows:
        least[row["figure"]] = min(row["covered"], least.get(row["figure"], 1.0))
    print(f"least coverage: {least}")
    if arguments.json is not None:
        lines = ",\n  ".join(map(json.dumps, rows))
        head = json.dumps({"simulations": arguments.simulations, "resamples": RESAMPLES, "least_coverage": least})[
            1:-1
        ]
        arguments.json.write_text(f'{{{head}, "rows": [\n  {lines}\n]}}\n', encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
