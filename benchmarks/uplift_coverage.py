"""How often the 95 % interval of the uplift holds the truth: synthetic runs through the package's own lot and tally.

    python benchmarks/uplift_coverage.py --json benchmarks/results/uplift_coverage.json

A synthetic run has some collapsed groups, each with a chance to recover under its hint and one without. Those are the
same for all groups (`steady`), belong to prompts that come round four times (`repeated`), drift while the policy
learns (`drifting`), or rise for a prompt with each time that it recovers, whatever its arm (`feedback`). The truth of
a run is the mean over its groups of the difference of their two chances. Where prompts come round, `beyond` says how
often the interval holds the mean over all prompts that there might be.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from trl_mentor.records import Arm, Assignment, CollapsedGroup, Intervention, RerollOutcome
from trl_mentor.trial import Trial, recovery
from trl_mentor.uplift import uplift

RUNS = 2_000
GROUPS_PER_STEP = 8
VISITS = 4
"""How often a prompt comes round where prompts do."""

SHAPES = ((0.1, 30), (0.1, 100), (0.1, 300), (0.3, 30), (0.3, 100), (0.3, 300), (0.5, 30), (0.5, 100))
"""Fractions of hints withheld, and groups of a run."""

RATES = ((0.5, 0.5), (0.6, 0.1), (0.9, 0.3), (0.3, 0.02), (0.95, 0.05), (0.05, 0.02))
"""Chances to recover with a hint and without."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of run."""

    world: str
    fraction: float
    """Of the hints that are withheld."""
    groups: int
    hint: float
    plain: float


@dataclass(slots=True)
class Coverage:
    """What came of all runs of a cell."""

    covered: int = 0
    above: int = 0
    """Intervals that lie above the truth: these flatter the hints."""
    below: int = 0
    none: int = 0
    """Runs with an empty arm, which have no interval."""
    beyond: int = 0

    def see(self, low: float, high: float, *, truth: float, population: float) -> None:
        """Count one interval."""
        self.above += low > truth + 1e-12
        self.below += high < truth - 1e-12
        self.covered += low - 1e-12 <= truth <= high + 1e-12
        self.beyond += low <= population <= high


Chances = Callable[[int], tuple[float, float]]
"""The two chances of the group with this number, asked in order; with a hint and without."""


def cover(cell: Cell, *, runs: int = RUNS) -> Coverage:
    """Simulate the runs of a cell."""
    found = Coverage()
    for seed in range(runs):
        rng = np.random.default_rng([seed, cell.groups, round(1000 * cell.fraction)])
        chances, recovered = WORLDS[cell.world](cell, rng)
        records, differences = [], []
        lots = _lots(seed, cell.fraction, cell.groups)
        for number, (arm, luck) in enumerate(zip(lots, rng.random(cell.groups).tolist(), strict=True)):
            hint, plain = chances(number)
            hit = luck < (hint if arm is Arm.HINT else plain)
            recovered(number, hit)
            records.append(_RECORDS[arm, hit])
            differences.append(hint - plain)
        comparison = uplift(recovery(records, topics=False))
        if comparison is None:
            found.none += 1
        else:
            truth = fmean(differences)
            found.see(comparison.low, comparison.high, truth=truth, population=cell.hint - cell.plain)
    return found


@cache
def _lots(seed: int, fraction: float, groups: int) -> list[Arm]:
    """The arm of each group of a run."""
    trial, lots = Trial(seed, control=fraction), []
    for number in range(groups):
        prompt = f"question {_prompt(number, groups)}"
        group = CollapsedGroup(prompt, (), prompt=prompt, index=number % GROUPS_PER_STEP)
        arm = trial.draw(Assignment(group, {}, number // GROUPS_PER_STEP))
        assert arm is not None
        lots.append(arm)
    return lots


def _prompt(number: int, groups: int) -> int:
    return number % max(groups // VISITS, 1)


_RECORDS = {
    (arm, hit): Intervention(
        0,
        "mentor",
        CollapsedGroup("", ()),
        None,
        RerollOutcome.RESCUED if hit else RerollOutcome.STILL_COLLAPSED,
        arm=arm,
    )
    for arm, hit in product((Arm.HINT, Arm.CONTROL), (True, False))
}


def _nothing(number: int, hit: bool) -> None:
    """What a recovery changes in most worlds."""


def _steady(cell: Cell, rng: np.random.Generator) -> tuple[Chances, Callable[[int, bool], None]]:
    return lambda number: (cell.hint, cell.plain), _nothing


def _repeated(cell: Cell, rng: np.random.Generator) -> tuple[Chances, Callable[[int, bool], None]]:
    """Each prompt has chances of its own, which its visits share: correlation 1/3 between them."""
    prompts = max(cell.groups // VISITS, 1)
    own = [rng.beta(2 * mean, 2 * (1 - mean), prompts).tolist() for mean in (cell.hint, cell.plain)]

    def chances(number: int) -> tuple[float, float]:
        prompt = _prompt(number, cell.groups)
        return own[0][prompt], own[1][prompt]

    return chances, _nothing


def _drifting(cell: Cell, rng: np.random.Generator) -> tuple[Chances, Callable[[int, bool], None]]:
    """The chances grow in a straight line, by the mean of the run: from nothing to twice, as far as 1 lets them."""

    def chances(number: int) -> tuple[float, float]:
        done = 2 * (number + 0.5) / cell.groups
        hint, plain = (mean + (done - 1) * min(mean, 1 - mean) for mean in (cell.hint, cell.plain))
        return hint, plain

    return chances, _nothing


def _feedback(cell: Cell, rng: np.random.Generator) -> tuple[Chances, Callable[[int, bool], None]]:
    """A prompt that recovers has half of what its chances lack to 1 the next time."""
    lacks = [1.0] * max(cell.groups // VISITS, 1)

    def recovered(number: int, hit: bool) -> None:
        lacks[_prompt(number, cell.groups)] *= 0.5 if hit else 1

    def chances(number: int) -> tuple[float, float]:
        left = lacks[_prompt(number, cell.groups)]
        return 1 - left * (1 - cell.hint), 1 - left * (1 - cell.plain)

    return chances, recovered


WORLDS = {"steady": _steady, "repeated": _repeated, "drifting": _drifting, "feedback": _feedback}


def cells() -> Iterator[Cell]:
    """Every combination in the steady world, and a few of each other one."""
    for shape, rates in product(SHAPES, RATES):
        yield Cell("steady", *shape, *rates)
    for world, groups, rates in product(("repeated", "drifting", "feedback"), (30, 100), RATES[:4]):
        yield Cell(world, 0.3, groups, *rates)


def as_json(cell: Cell, found: Coverage, *, runs: int) -> dict[str, Any]:
    """A cell with shares of its runs that have an interval."""
    names = ("covered", "above", "below", *(["beyond"] if cell.world == "repeated" else []))
    shares = {name: round(getattr(found, name) / (runs - found.none), 4) for name in names}
    return {**asdict(cell), **shares, "without_interval": found.none}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--runs", type=int, default=RUNS)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for cell in cells():
        rows.append(as_json(cell, cover(cell, runs=arguments.runs), runs=arguments.runs))
        print(rows[-1], flush=True)
    inside = sum(0.93 <= row["covered"] <= 0.97 for row in rows)
    print(f"{inside} of {len(rows)} cells between 93 % and 97 %")
    if arguments.json is not None:
        lines = ",\n  ".join(map(json.dumps, rows))
        head = json.dumps({"runs": arguments.runs, "between_93_and_97": inside, "cells": len(rows)})[1:-1]
        arguments.json.write_text(f'{{{head}, "rows": [\n  {lines}\n]}}\n', encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
