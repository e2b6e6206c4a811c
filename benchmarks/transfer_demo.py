"""Does what is learnt under a hint carry over to the plain question, in the world of the demo?

    python benchmarks/transfer_demo.py --json benchmarks/results/transfer_demo.json
    python benchmarks/transfer_demo.py --method GRPO --json benchmarks/results/transfer_demo.json

Trains the student of the demo for several epochs on few problems, with half of the hints withheld by lot, probes and
hint reliance, and works out from the journals which of the prompts that collapsed are solved without a hint when they
come round again: of the rescued ones, of the others, and of either arm. A run by GRPO, without any hint, says how many
would have been. Nothing is asserted. The file keeps what it has of other methods.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Iterable
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import torch
import transformers

from trl_mentor import read_journal
from trl_mentor.demo.student import mean_accuracy
from trl_mentor.demo.training import METHODS, PROMPTS_PER_BATCH, Budget, train
from trl_mentor.demo.world import sample_problems
from trl_mentor.journal import JournalRecords
from trl_mentor.records import Return
from trl_mentor.tallies import Tally
from trl_mentor.transfer import transfer
from trl_mentor.trial import prompt_key
from trl_mentor.uplift import compare, rescued_and_others, transfer_uplift

SEVERAL_EPOCHS = Budget(tokens=60_000, train_per_family=16, held_out_per_family=30, samples=4)
CONTROL_FRACTION = 0.5
SETTINGS = {"mentor_probe_steps": 5, "mentor_probe_prompts": 8, "mentor_hint_reliance": True}
WORLD_SEED = 0


def journal_of_a_run(method: str, seed: int, budget: Budget) -> tuple[JournalRecords, dict[str, Any]]:
    """What one run wrote down, and some figures of it."""
    problems = sample_problems(Random(WORLD_SEED), budget.train_per_family, held_out=False)
    held_out = list(sample_problems(Random(WORLD_SEED), budget.held_out_per_family, held_out=True).values())
    with tempfile.TemporaryDirectory() as folder:
        run = train(
            method,
            seed=seed,
            budget=budget,
            problems=problems,
            held_out=held_out,
            output_dir=Path(folder),
            on_batch=lambda tokens, collapsed: None,
            control_fraction=CONTROL_FRACTION if method == "MENTOR" else 0.0,
            settings=SETTINGS,
        )
        journal = read_journal(folder)
    figures = {
        "seed": seed,
        "steps": run.steps,
        "epochs": round(run.steps * PROMPTS_PER_BATCH / len(problems), 1),
        "tokens": run.totals.policy_tokens,
        "probe_tokens": run.totals.probe_tokens,
        "held_out_accuracy_after": mean_accuracy(run.accuracy),
    }
    return journal, figures


def carried_over(returns: Iterable[Return]) -> dict[str, Any]:
    """Solved and all of each kind, and the two comparisons; a difference has its 95 % interval."""
    found = transfer(returns)
    rescued, others = rescued_and_others(found)
    comparisons = {"rescued - others": compare(rescued, others), "hint - control": transfer_uplift(found)}
    tallies = {
        "rescued": rescued,
        "others": others,
        **{name: found[name] for name in ("hint_saturated", "arm:hint", "arm:control")},
    }
    return {name: pair(tally) for name, tally in tallies.items() if tally.groups} | {
        name: [round(value, 3) for value in (item.difference, item.low, item.high)]
        for name, item in comparisons.items()
        if item is not None
    }


def by_family(journal: JournalRecords) -> dict[str, dict[str, list[int]]]:
    """Solved and all of the rescued and of the others among the prompts of a family that came round in training."""
    problems = sample_problems(Random(WORLD_SEED), SEVERAL_EPOCHS.train_per_family, held_out=False)
    topics = {prompt_key(question): problem.family for question, problem in problems.items()}
    returns = [item for item in journal.returns if not item.probe]
    families = sorted({topics[item.prompt_key] for item in returns})
    found = {name: transfer(item for item in returns if topics[item.prompt_key] == name) for name in families}
    pairs = {name: [pair(tally) for tally in rescued_and_others(found[name])] for name in families}
    return {name: {"rescued": rescued, "others": others} for name, (rescued, others) in pairs.items()}


def pair(tally: Tally) -> list[int]:
    return [tally.hits, tally.groups]


def reliance(journal: JournalRecords) -> dict[str, float]:
    """Mean reliance of hinted successes, in nats per token, in the first and in the second half of the run."""
    values = [
        (item.step, value)
        for item in journal
        for value, success in zip(item.reliances, item.successes, strict=False)
        if value is not None and success
    ]
    middle = max((step for step, _ in values), default=0) / 2
    halves = {
        "first half": [value for step, value in values if step < middle],
        "second half": [value for step, value in values if step >= middle],
    }
    return {name: round(fmean(half), 3) for name, half in halves.items() if half}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=METHODS, default="MENTOR")
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=SEVERAL_EPOCHS.tokens)
    given = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    logging.getLogger("trl_mentor").setLevel(logging.ERROR)
    warnings.simplefilter("ignore", FutureWarning)
    budget = replace(SEVERAL_EPOCHS, tokens=given.tokens)
    runs, everything = [], JournalRecords()
    for seed in range(given.seeds):
        journal, figures = journal_of_a_run(given.method, seed, budget)
        figures["training"] = carried_over(item for item in journal.returns if not item.probe)
        figures["probes"] = carried_over(item for item in journal.returns if item.probe)
        runs.append(figures | {"reliance": reliance(journal)})
        everything.extend(journal)
        everything.returns.extend(journal.returns)
        print(json.dumps(runs[-1]), flush=True)
    result = {
        "budget": asdict(budget),
        "control_fraction": CONTROL_FRACTION if given.method == "MENTOR" else 0.0,
        "settings": SETTINGS,
        "versions": {name: version(name) for name in ("trl", "torch", "scipy")},
        "runs": runs,
        "all seeds": {
            "training": carried_over(item for item in everything.returns if not item.probe),
            "probes": carried_over(item for item in everything.returns if item.probe),
            "by family": by_family(everything),
        },
    }
    print(json.dumps(result["all seeds"], indent=1), flush=True)
    if given.json is not None:
        others = json.loads(given.json.read_text(encoding="utf-8")) if given.json.exists() else {}
        given.json.write_text(json.dumps(others | {given.method: result}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
