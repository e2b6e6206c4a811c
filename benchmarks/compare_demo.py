"""Learning curves of four ways to treat collapsed groups, in the world of the demo; see docs/compare.md.

    python benchmarks/compare_demo.py --json benchmarks/results/compare_demo.json --png docs/images/compare.png

Trains the student of the demo with each seed by plain GRPO, by a second roll without hints, and by MENTOR with the
tutor of the demo and with one that takes each question for another (`ShuffledTutor`). Held-out problems, no hints,
are evaluated as the runs go; everything else is read off their journals by the code of `trl-mentor compare`. The
journals stay in `outputs/compare_demo`. Two runs go at a time, so that seconds depend on what else the machine does;
tokens do not. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import datasets
import torch
import transformers

from trl_mentor.cli.compare import print_sheets
from trl_mentor.cli.compare_picture import draw
from trl_mentor.cli.compare_tables import sheets
from trl_mentor.comparison.compared import compare
from trl_mentor.comparison.runs import Method, read_methods
from trl_mentor.demo.student import mean_accuracy
from trl_mentor.demo.training import Budget, train
from trl_mentor.demo.tutor import ShuffledTutor, Tutor
from trl_mentor.demo.world import sample_problems
from trl_mentor.plain import plain_json

BUDGET = Budget(tokens=30_000, train_per_family=120, held_out_per_family=10, samples=4)
EVALUATION = {"eval_strategy": "steps", "eval_on_start": True, "eval_steps": 5, "per_device_eval_batch_size": 360}
METRIC = "eval_reward"
"""The share of answers to held-out problems that pass all unit tests."""

THRESHOLD = 0.5
WORLD_SEED = 0
FOLDER = Path("outputs", "compare_demo")

METHODS: dict[str, tuple[str, type[Tutor]]] = {
    "plain GRPO": ("GRPO", Tutor),
    "second roll, no hints": ("RESAMPLE", Tutor),
    "MENTOR": ("MENTOR", Tutor),
    "MENTOR, hints shuffled": ("MENTOR", ShuffledTutor),
}


def one_run(label: str, seed: int, budget: Budget) -> tuple[str, dict[str, Any]]:
    """Train once; the argument by which the comparison finds the run, and what came of it."""
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    logging.getLogger("trl_mentor").setLevel(logging.ERROR)
    warnings.simplefilter("ignore", FutureWarning)
    method, tutor = METHODS[label]
    held_out = sample_problems(Random(WORLD_SEED), budget.held_out_per_family, held_out=True)
    folder = FOLDER / f"{label.lower().replace(',', '').replace(' ', '_')}-{seed}"
    run = train(
        method,
        seed=seed,
        budget=budget,
        problems=sample_problems(Random(WORLD_SEED), budget.train_per_family, held_out=False),
        held_out=list(held_out.values()),
        output_dir=folder,
        on_batch=lambda tokens, collapsed: None,
        tutor=tutor,
        settings=EVALUATION,
        evaluated=held_out,
    )
    figures = {
        "method": label,
        "seed": seed,
        "steps": run.steps,
        "tokens": run.totals.policy_tokens,
        "held_out_accuracy_after": mean_accuracy(run.accuracy),
    }
    return f"{label}={folder}", figures


def trained(seeds: int, budget: Budget) -> tuple[list[Method], list[dict[str, Any]]]:
    """The runs of all methods and seeds, and what came of each."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(one_run, label, seed, budget) for seed in range(seeds) for label in METHODS]
        arguments, runs = [], []
        for job in jobs:
            argument, figures = job.result()
            arguments.append(argument)
            runs.append(figures)
            print(json.dumps(figures), flush=True)
    methods, _ = read_methods(arguments)
    return methods, runs


def without_curves(plain: Any) -> Any:
    """A comparison as JSON without its grids, of which the picture is drawn; the evaluations are kept as they are."""
    if isinstance(plain, dict):
        return {name: without_curves(value) for name, value in plain.items() if name not in ("grid", "curve", "runs")}
    return [without_curves(value) for value in plain] if isinstance(plain, list) else plain


def evaluations(methods: list[Method]) -> dict[str, list[tuple[int, float]]]:
    """Optimizer steps and accuracy of each evaluation, by method and seed."""
    return {
        f"{method.label}, seed {run.info.seed}": [(item.step, item.metrics[METRIC]) for item in run.evaluations]
        for method in methods
        for run in method.runs
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--png", type=Path, default=None)
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    started = time.monotonic()
    methods, runs = trained(given.seeds, BUDGET)
    comparison = compare(methods, metric=METRIC, threshold=THRESHOLD)
    print_sheets([sheet for race in comparison.races for sheet in sheets(comparison, race)])
    if given.png is not None:
        given.png.write_bytes(draw(comparison))
    if given.json is not None:
        result = {
            "budget": asdict(BUDGET),
            "evaluation": EVALUATION,
            "versions": {name: version(name) for name in ("trl", "torch", "scipy")},
            "seconds": round(time.monotonic() - started),
            "runs": runs,
            "evaluations": evaluations(methods),
            "comparison": without_curves(plain_json(comparison)),
        }
        given.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
