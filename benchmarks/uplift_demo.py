"""What the control arm says of good hints and of useless ones, in the world of the demo.

    python benchmarks/uplift_demo.py --json benchmarks/results/uplift_demo.json

Trains the student of the demo on its full number of tokens with 30 % of the hints withheld by lot: with the tutor of
the demo, and with one that takes each question for another (`ShuffledTutor`). The exit status is 1 unless every
interval of the first lies above 0 and every one of the second includes 0 or lies below.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any

import torch
import transformers

from trl_mentor import read_journal
from trl_mentor.demo.report import ends
from trl_mentor.demo.student import mean_accuracy
from trl_mentor.demo.training import FULL, Budget, train
from trl_mentor.demo.tutor import ShuffledTutor, Tutor
from trl_mentor.demo.world import sample_problems
from trl_mentor.trial import recovery
from trl_mentor.uplift import UpliftRow, uplift_table

TUTORS = {"right": Tutor, "shuffled": ShuffledTutor}
CONTROL_FRACTION = 0.3
WORLD_SEED = 0


def one_run(tutor: str, seed: int, budget: Budget) -> dict[str, Any]:
    """A run with one of the tutors, and what its journal says of the hints."""
    problems = sample_problems(Random(WORLD_SEED), budget.train_per_family, held_out=False)
    held_out = list(sample_problems(Random(WORLD_SEED), budget.held_out_per_family, held_out=True).values())
    with tempfile.TemporaryDirectory() as folder:
        run = train(
            "MENTOR",
            seed=seed,
            budget=budget,
            problems=problems,
            held_out=held_out,
            output_dir=Path(folder),
            on_batch=lambda tokens, collapsed: None,
            control_fraction=CONTROL_FRACTION,
            tutor=TUTORS[tutor],
        )
        rows = uplift_table(recovery(read_journal(folder)))
    first, last = ends(run.collapsed)
    return {
        "tutor": tutor,
        "seed": seed,
        "tokens": run.totals.policy_tokens,
        "collapsed_start": first,
        "collapsed_end": last,
        "held_out_accuracy_after": mean_accuracy(run.accuracy),
        "uplift": [as_json(row) for row in rows],
    }


def as_json(row: UpliftRow) -> dict[str, Any]:
    """Groups that recovered of those in each arm, and the difference with its interval."""
    found: dict[str, Any] = {
        "stratum": f"{row.kind}:{row.name}" if row.name else row.kind,
        "hint": [row.hint.hits, row.hint.groups],
        "control": [row.control.hits, row.control.groups],
    }
    if row.comparison is not None:
        values = (row.comparison.difference, row.comparison.low, row.comparison.high)
        found |= dict(zip(("uplift", "low", "high"), (round(value, 4) for value in values), strict=True))
    return found


def as_expected(run: dict[str, Any]) -> bool:
    """Whether the interval over all groups excludes 0 for the right tutor and does not lie above it for the other."""
    return (run["uplift"][0]["low"] > 0) is (run["tutor"] == "right")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    logging.getLogger("trl_mentor").setLevel(logging.ERROR)
    warnings.simplefilter("ignore", FutureWarning)
    runs = []
    for tutor in TUTORS:
        for seed in range(arguments.seeds):
            runs.append(one_run(tutor, seed, FULL))
            print(tutor, seed, runs[-1]["uplift"][0], flush=True)
    met = all(map(as_expected, runs))
    result = {
        "control_fraction": CONTROL_FRACTION,
        "tokens": FULL.tokens,
        "versions": {name: version(name) for name in ("trl", "torch", "scipy")},
        "runs": runs,
        "met": met,
    }
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
