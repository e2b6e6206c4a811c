"""Measured step times of real trainings on 1 and 2 ranks against what `trl-mentor plan` and the simulation predict.

The predictions know nothing of the trainings that they are held against: the policy's figures come from plain GRPO and
from re-rolls without a mentor (strategy `resample`) of 2 and of all 8 groups, the mentor's from the distribution that
its seconds are drawn from. Ends with 1 if a prediction is off by more than 15 %. Wants a quiet machine.

    python benchmarks/measure_steps.py --json benchmarks/results/measure_steps.json
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from cluster_model import Scenario, averages, simulate
from measure_steps_run import GROUP_SIZE, GROUPS, SCALE, Setup

from trl_mentor.plan_records import PlanInputs
from trl_mentor.planning import first_roll_seconds, predict
from trl_mentor.reroll import rows_per_rank
from trl_mentor.settings import ScheduleKind

RUN = Path(__file__).with_name("measure_steps_run.py")
TOLERANCE = 0.15
RANKS = (1, 2)
SMALL, LARGE = 2, GROUPS
CALIBRATION = (
    Setup("plain", strategy="none", steps=8),
    Setup("re-roll, small", strategy="resample", collapsed=SMALL, steps=8),
    Setup("re-roll, large", strategy="resample", collapsed=LARGE, steps=8),
)
AHEAD = Setup("", schedule="ahead", steps=10, warm_up=5)
VALIDATION = (
    Setup("a quarter, a worker each", collapsed=2, call_seconds=0.4),
    Setup("half, two workers", collapsed=4, call_seconds=0.2, max_concurrency=2),
    Setup("half, with repairs", collapsed=4, call_seconds=0.2, accept_rate=0.5, max_concurrency=4, steps=12),
    Setup("all, three slots", collapsed=8, call_seconds=0.2, slots=3),
    Setup("all, deadline", collapsed=8, call_seconds=0.3, max_concurrency=2, deadline=2.0, steps=3),
    replace(AHEAD, name="a quarter, ahead", collapsed=2, call_seconds=0.2),
    replace(AHEAD, name="half, ahead, too slow", collapsed=4, call_seconds=0.4, max_concurrency=1),
)


def launch(setups: Sequence[Setup], ranks: int, seed: int) -> dict[str, list[dict[str, float]]]:
    """Train the set-ups one after the other in one launch: what each counted step logged, by name."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "steps.json"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
        words = [str(RUN), json.dumps([asdict(setup) for setup in setups]), str(out), str(seed)]
        done = subprocess.run(
            [*command, *words],
            env={"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", **os.environ},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode or not out.is_file():
            raise SystemExit(f"the launch with {ranks} ranks failed:\n{done.stderr[-4000:]}")
        found: dict[str, list[dict[str, float]]] = json.loads(out.read_text(encoding="utf-8"))
    return found


def measure(setups: Sequence[Setup], repetitions: int) -> dict[int, dict[str, list[dict[str, float]]]]:
    """All steps by ranks and name; set-ups and numbers of ranks take turns, in another order in each repetition."""
    found: dict[int, dict[str, list[dict[str, float]]]] = {
        ranks: {setup.name: [] for setup in setups} for ranks in RANKS
    }
    for repetition in range(repetitions):
        order = random.Random(repetition).sample(list(setups), len(setups))
        for ranks in RANKS:
            for name, steps in launch(order, ranks, seed=1000 * repetition + 100 * ranks).items():
                found[ranks][name] += steps
    return found


def typical(steps: Sequence[Mapping[str, float]], name: str) -> float:
    """The median; with `ahead` steps with and without a re-roll alternate, so there the mean without both extremes."""
    values = sorted(step[name] for step in steps)
    if len({step["mentor/reroll_completions"] for step in steps}) == 1:
        return median(values)
    cut = len(values) // 10
    return fmean(values[cut : len(values) - cut])


def calibrated(steps: Mapping[str, Sequence[Mapping[str, float]]], ranks: int) -> PlanInputs:
    """The policy's side of a plan: a step of plain GRPO, and the line through the two re-rolls without a mentor."""
    plain, small, large = (typical(steps[setup.name], "step_time") for setup in CALIBRATION)
    rows = [rows_per_rank(count, group_size=GROUP_SIZE, world_size=ranks) for count in (SMALL, LARGE)]
    per_row = max((large - small) / (rows[1] - rows[0]), 1e-6)
    fixed = max(small - plain - per_row * rows[0], 0.0)
    inputs = PlanInputs(
        ranks=ranks,
        groups=GROUPS,
        num_generations=GROUP_SIZE,
        completion_tokens=SCALE.tokens,
        policy_tokens_per_second=SCALE.tokens / per_row,
        roll_seconds=fixed,
        training_seconds=0.0,
        collapse_share=0.0,
    )
    return replace(inputs, training_seconds=max(plain - first_roll_seconds(inputs), 0.0))


def scenario(setup: Setup, base: PlanInputs) -> Scenario:
    """A set-up as a simulation: its mentor as it was told to be, its policy as calibrated."""
    inputs = replace(
        base,
        collapsed_groups=setup.collapsed,
        call_seconds=setup.call_seconds,
        mentor_slots=setup.slots,
        mentor_max_concurrency=setup.max_concurrency,
        mentor_deadline=setup.deadline,
        mentor_queue_size=1000,
        schedule=ScheduleKind(setup.schedule),
    )
    return Scenario(inputs, accept_rate=setup.accept_rate, call_spread=setup.call_spread, length_spread=0.0)


def compared(setup: Setup, ranks: int, steps: Sequence[Mapping[str, float]], base: PlanInputs) -> dict[str, Any]:
    """Measured and predicted seconds of one set-up."""
    case = scenario(setup, base)
    planned, simulated = predict(averages(case)), simulate(case)
    measured = typical(steps, "step_time")
    return {
        "ranks": ranks,
        "setup": setup.name,
        "steps": len(steps),
        "measured": measured,
        "planned": planned.step,
        "simulated": simulated["step"],
        "planned_error": planned.step / measured - 1,
        "simulated_error": simulated["step"] / measured - 1,
        "measured_wait": typical(steps, "mentor/seconds"),
        "planned_wait": planned.mentor_wait,
        "simulated_wait": simulated["wait"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="Where to write the figures.")
    parser.add_argument("--quick", action="store_true", help="One repetition of fewer steps, to see that it works.")
    args = parser.parse_args()
    setups = [*CALIBRATION, *VALIDATION]
    if args.quick:
        setups = [replace(setup, steps=(setup.steps + 1) // 2) for setup in setups]
    began = time.monotonic()
    steps = measure(setups, repetitions=1 if args.quick else 2)
    bases = {ranks: calibrated(steps[ranks], ranks) for ranks in RANKS}
    results = [
        compared(setup, ranks, steps[ranks][setup.name], bases[ranks]) for setup in VALIDATION for ranks in RANKS
    ]
    off = [max(abs(row["planned_error"]), abs(row["simulated_error"])) for row in results]
    print(f"{'set-up':28} ranks  measured   planned          simulated        wait measured, planned, simulated")
    for row in results:
        print(
            f"{row['setup']:28} {row['ranks']:5} {row['measured']:9.3f} "
            f"{row['planned']:9.3f} {row['planned_error']:+7.1%} "
            f"{row['simulated']:9.3f} {row['simulated_error']:+7.1%}   "
            f"{row['measured_wait']:.3f} {row['planned_wait']:.3f} {row['simulated_wait']:.3f}"
        )
    print(f"largest error {max(off):.1%}, allowed {TOLERANCE:.0%}; {time.monotonic() - began:.0f} s")
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        figures = {
            "largest_error": max(off),
            "tolerance": TOLERANCE,
            "cores": os.cpu_count(),
            "calibration": {str(ranks): asdict(base) for ranks, base in bases.items()},
            "setups": [asdict(setup) for setup in setups],
            "results": results,
        }
        args.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return int(max(off) > TOLERANCE)


if __name__ == "__main__":
    raise SystemExit(main())
