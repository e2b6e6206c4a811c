"""Step times of MENTOR from one GPU to 1,024, by replicas of the mentor and schedule, simulated event by event.

Every cluster keeps 8 groups per GPU unless --groups says otherwise, and sends the mentor as many groups at once as it
has slots. Beside each simulated mean stands what `trl-mentor plan` says to the same averages.

    python benchmarks/simulate_cluster.py --json benchmarks/results/simulate_cluster.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cluster_model import Scenario, simulate

from trl_mentor import read_journal
from trl_mentor.cli.plan import add_input_flags, given_inputs
from trl_mentor.plan_records import PlanInputs
from trl_mentor.settings import ScheduleKind

GROUPS_PER_RANK = 8
DEFAULTS: dict[str, Any] = {
    "num_generations": 8,
    "completion_tokens": 2000.0,
    "policy_tokens_per_second": 4000.0,
    "training_seconds": 40.0,
    "collapse_share": 0.3,
}
RANKS = (1, 4, 16, 64, 256, 1024)
REPLICAS = (1, 4, 16, 64)
COLUMNS = (
    ("ranks", "{:d}"),
    ("replicas", "{:d}"),
    ("schedule", "{}"),
    ("plain_step", "{:.1f}"),
    ("step", "{:.1f}"),
    ("step_p95", "{:.1f}"),
    ("wait", "{:.1f}"),
    ("reroll", "{:.1f}"),
    ("rerolled_share", "{:.2f}"),
    ("dropped_share", "{:.2f}"),
    ("staleness", "{:.2f}"),
    ("slots_busy", "{:.2f}"),
    ("planned_step", "{:.1f}"),
)


def scenarios(args: argparse.Namespace) -> Iterator[Scenario]:
    """One scenario for each combination of ranks, replicas and schedule."""
    given = DEFAULTS | given_inputs(args)
    recorded = [] if args.journal is None else recorded_calls(args.journal)
    for ranks in args.sweep_ranks:
        for replicas in args.sweep_replicas:
            for schedule in [given["schedule"]] if "schedule" in given else list(ScheduleKind):
                values = {"groups": GROUPS_PER_RANK * ranks} | given
                values |= {"ranks": ranks, "replicas": replicas, "schedule": schedule}
                slots = values.get("mentor_slots", PlanInputs.__dataclass_fields__["mentor_slots"].default)
                values.setdefault("mentor_max_concurrency", replicas * slots)
                values.setdefault("mentor_queue_size", 4 * values["groups"])
                yield Scenario(
                    PlanInputs(**values),
                    steps=args.steps,
                    seed=args.seed,
                    accept_rate=args.accept_rate,
                    call_spread=args.call_spread,
                    length_spread=values.get("length_spread", 0.6),
                    recorded=recorded,
                )


def recorded_calls(run: Path) -> list[list[float]]:
    """Seconds of the calls for each group of a journal."""
    guidances = [item.guidance for item in read_journal(run) if item.guidance is not None]
    return [[call.seconds for call in guidance.calls] for guidance in guidances if guidance.calls]


def line(values: Sequence[Any]) -> str:
    return " ".join(f"{value:>{max(len(name), 6)}}" for value, (name, _) in zip(values, COLUMNS, strict=True))


def draw(results: Sequence[dict[str, Any]], file: Path) -> None:
    """Step time and mentor wait by ranks, a line for each number of replicas."""
    from matplotlib.figure import Figure  # of the extra `benchmarks`, needed for nothing else

    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots(1, 2)
    plain = {row["ranks"]: row["plain_step"] for row in results}
    axes[0].plot(list(plain), list(plain.values()), ":", color="black", label="plain GRPO")
    for axis, name, label in ((axes[0], "step", "mean step, s"), (axes[1], "wait", "mean wait for the mentor, s")):
        for replicas in sorted({row["replicas"] for row in results}):
            for schedule, style in ((ScheduleKind.INLINE, "-"), (ScheduleKind.AHEAD, "--")):
                rows = [row for row in results if row["replicas"] == replicas and row["schedule"] == schedule]
                if rows and (name == "step" or schedule is ScheduleKind.INLINE):
                    where = [row["ranks"] for row in rows]
                    axis.plot(where, [row[name] for row in rows], style, marker=".", label=f"{schedule}, {replicas}")
        axis.set(xscale="log", xlabel="training GPUs", ylabel=label)
        axis.legend(title="schedule, replicas", fontsize="x-small")
    axes[0].set_yscale("log")
    figure.savefig(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweep-ranks", type=int, nargs="+", default=RANKS, help=f"Default: {RANKS}.")
    parser.add_argument("--sweep-replicas", type=int, nargs="+", default=REPLICAS, help=f"Default: {REPLICAS}.")
    parser.add_argument("--steps", type=int, default=200, help="Steps of each cluster. Default: 200.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--accept-rate", type=float, default=0.7, help="Share of drafts judged HIGH. Default: 0.7.")
    parser.add_argument(
        "--call-spread", type=float, default=0.5, help="Spread of the seconds of a call. Default: 0.5."
    )
    parser.add_argument("--journal", type=Path, help="Draw the calls of groups from the journal of a run instead.")
    parser.add_argument("--json", type=Path, help="Where to write the figures.")
    parser.add_argument("--plot", type=Path, help="Where to draw them; needs matplotlib.")
    add_input_flags(parser)
    args = parser.parse_args()
    print(line([name for name, _ in COLUMNS]))
    results = []
    began = time.monotonic()
    for scenario in scenarios(args):
        results.append(simulate(scenario))
        print(line([shape.format(results[-1][name]) for name, shape in COLUMNS]), flush=True)
    print(f"{len(results)} clusters of {args.steps} steps in {time.monotonic() - began:.0f} s")
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        first = asdict(next(scenarios(args)))
        first.pop("recorded")
        figures = {"first_scenario": first, "results": results}
        args.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    if args.plot is not None:
        draw(results, args.plot)


if __name__ == "__main__":
    main()
