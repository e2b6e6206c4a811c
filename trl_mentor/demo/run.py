"""GRPO and MENTOR on a student with planted misconceptions, at the same number of generated tokens, on a CPU."""

from __future__ import annotations

import argparse
import json
import logging
import platform
import shutil
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any

import datasets
import torch
import transformers
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from trl_mentor.demo.report import DISCLAIMER, choose_example, ends, print_plan, print_report
from trl_mentor.demo.student import accuracy_by_family, load_student, mean_accuracy
from trl_mentor.demo.training import (
    FULL,
    LEARNING_RATE,
    METHODS,
    NUM_GENERATIONS,
    PROMPTS_PER_BATCH,
    SHORT,
    Budget,
    Run,
    train,
)
from trl_mentor.demo.world import sample_problems
from trl_mentor.errors import ConfigError
from trl_mentor.journal import JOURNAL_PATH, Journal, read_journal
from trl_mentor.records import Evaluation

WORLD_SEED = 0
"""Seed of the problems, the same for every run, so that runs differ in training alone."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `trl-mentor demo`."""
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="number of training seeds (default: 1)")
    parser.add_argument(
        "--resample",
        action="store_true",
        help="train also by RESAMPLE: a second roll of collapsed groups without a hint",
    )
    parser.add_argument(
        "--control-fraction",
        type=float,
        default=0.0,
        metavar="F",
        help="with MENTOR, withhold this share of the hints by lot, and say what the others brought (default: 0)",
    )
    parser.add_argument("--short", action="store_true", help="a tenth of the tokens: a smoke test, not a comparison")
    parser.add_argument(
        "--output-dir",
        type=Path,
        default=None,
        help="where the journals go (default: a new directory in outputs/demo)",
    )
    parser.add_argument("--json", type=Path, default=None, metavar="PATH", help="also write the figures to this file")


def run(args: argparse.Namespace) -> int:
    """Run the demo as the flags say; returns the exit status."""
    if args.seeds < 1:
        raise ConfigError(f"--seeds is {args.seeds}; expected at least 1")
    torch.set_num_threads(1)  # more threads only get in each other's way on a model of this size
    output_dir = args.output_dir or Path("outputs", "demo", datetime.now().strftime("%Y%m%d-%H%M%S"))
    _silence_libraries()
    result = run_demo(
        range(args.seeds),
        short=args.short,
        resample=args.resample,
        control_fraction=args.control_fraction,
        output_dir=output_dir,
    )
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


def run_demo(
    seeds: Sequence[int],
    *,
    short: bool,
    output_dir: Path,
    resample: bool = False,
    control_fraction: float = 0.0,
    budget: Budget | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Train by GRPO and by MENTOR with each seed, print the comparison, and return it as plain JSON.

    With `resample`, also by RESAMPLE. MENTOR withholds `control_fraction` of its hints. `budget` replaces the one that
    `short` chooses. Raises `ConfigError` if `output_dir` already holds the journal of an earlier demo, which would mix
    with the new one.
    """
    console = console or Console()
    budget = budget or (SHORT if short else FULL)
    directories = {seed: Path(output_dir) / f"seed{seed}" for seed in seeds}
    _refuse_old_journals(directories.values())
    methods = [method for method in METHODS if resample or method != "RESAMPLE"]
    print_plan(console, methods, seeds=len(seeds), tokens=budget.tokens)
    with warnings.catch_warnings(), _progress(console) as progress:
        # TRL and transformers still use names that transformers deprecates.
        warnings.simplefilter("ignore", FutureWarning)
        task = progress.add_task("problems and their unit tests", total=None, note="")
        problems = sample_problems(Random(WORLD_SEED), budget.train_per_family, held_out=False)
        held_out = list(sample_problems(Random(WORLD_SEED), budget.held_out_per_family, held_out=True).values())
        progress.update(task, description="the student before training")
        before = accuracy_by_family(*load_student(), held_out, samples=budget.samples, seed=WORLD_SEED)
        progress.remove_task(task)
        train_one = partial(
            train, budget=budget, problems=problems, held_out=held_out, control_fraction=control_fraction
        )
        runs = [
            _watched(
                progress,
                f"seed {seed} {method}",
                budget.tokens,
                partial(train_one, method, seed=seed, output_dir=directories[seed] / method),
            )
            for seed in seeds
            for method in methods
        ]
    for run in runs:
        _journal_accuracy(directories[run.seed] / run.method, run, mean_accuracy(before))
    mentored = directories[seeds[0]] / "MENTOR"
    print_report(console, runs, before, choose_example(read_journal(mentored)))
    program = f"{sys.executable} -m trl_mentor.cli.main" if shutil.which("trl-mentor") is None else "trl-mentor"
    places = " ".join(str(directories[run.seed] / run.method) for run in runs)
    console.print("\nTo look at every intervention, and to compare the runs:")
    console.print(f"  {program} report {mentored}\n  {program} compare {places}", soft_wrap=True)
    return _result(runs, before, budget, short=short, control_fraction=control_fraction)


def _journal_accuracy(directory: Path, run: Run, before: float) -> None:
    """Add what was measured outside the trainer to the journal, for the report and for comparisons."""
    journal = Journal(directory / JOURNAL_PATH)
    for step, accuracy in ((0, before), (run.steps, mean_accuracy(run.accuracy))):
        journal.evaluated(Evaluation(step, {"eval_accuracy": accuracy}))
    journal.close()


def _watched(progress: Progress, name: str, tokens: int, train: Callable[..., Run]) -> Run:
    """What `train` returns, with a bar that fills up to that many tokens."""
    task = progress.add_task(name, total=tokens, note="")

    def on_batch(generated: int, collapsed: float) -> None:
        progress.update(task, completed=min(generated, tokens), note=f"{collapsed:.0%} collapsed")

    return train(on_batch=on_batch)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:<30}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
    )


def _refuse_old_journals(directories: Iterable[Path]) -> None:
    for directory in directories:
        if (directory / "MENTOR" / JOURNAL_PATH).exists():
            raise ConfigError(f"{directory} holds the journal of an earlier demo; delete it or choose another place")


def _silence_libraries() -> None:
    """For the rest of the process, print only what the demo itself prints."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    datasets.utils.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    for name in ("trl", "accelerate", "trl_mentor"):
        logging.getLogger(name).setLevel(logging.ERROR)


def _result(
    runs: Sequence[Run], before: Mapping[str, float], budget: Budget, *, short: bool, control_fraction: float
) -> dict[str, Any]:
    return {
        "world": DISCLAIMER,
        "short": short,
        "budget": asdict(budget),
        "settings": {
            "num_generations": NUM_GENERATIONS,
            "prompts": PROMPTS_PER_BATCH,
            "learning_rate": LEARNING_RATE,
            "control_fraction": control_fraction,
        },
        "held_out_accuracy_before": {"mean": mean_accuracy(before), **before},
        "runs": [_run_as_json(run) for run in runs],
        "seeds": sorted({run.seed for run in runs}),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("trl-mentor", "trl", "transformers", "torch")},
        },
    }


def _run_as_json(run: Run) -> dict[str, Any]:
    first, last = ends(run.collapsed)
    return {
        "method": run.method,
        "seed": run.seed,
        "steps": run.steps,
        "tokens": run.totals.policy_tokens,
        "seconds": round(run.seconds, 1),
        "collapsed_start": first,
        "collapsed_end": last,
        "held_out_accuracy_after": {"mean": mean_accuracy(run.accuracy), **run.accuracy},
        "totals": asdict(run.totals),
        "collapsed_over_time": {"tokens": list(run.tokens), "share": list(run.collapsed)},
    }
