"""Hundreds of steps with random collapse and a mentor that fails in every way known, on several ranks.

    python benchmarks/soak.py --processes 2 4 --schedules inline ahead --steps 500 --json benchmarks/results/soak.json

Each combination is one launch. A run that makes no progress for `--stall` seconds is stopped, and where each rank
stands is printed. What the ranks of a finished run saw is then checked against each other and against the journal; the
exit status is 1 if anything is wrong, and then the directory of the run is kept.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from soak_checks import check
from tqdm import tqdm

from trl_mentor import read_journal

HERE = Path(__file__).resolve().parent
SHOWN = ("collapsed", "rescued", "skipped")


class StalledError(RuntimeError):
    """A run made no progress; the message says where each rank stands."""


def watch(command: Sequence[str], folder: Path, *, steps: int, stall: float, title: str) -> int:
    """Run a launch and show its progress; returns the exit status.

    Progress is what changes in `folder/rank*.step`. Raises `StalledError` if nothing does for `stall` seconds.
    """
    environment = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", **os.environ}
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parent / "tests"), os.environ.get("PYTHONPATH", "")])
    with (folder / "log.txt").open("w") as log, tqdm(total=steps, desc=title, unit="step") as bar:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        seen: list[str] = []
        since = time.monotonic()
        try:
            while process.poll() is None:
                now = [path.read_text() for path in sorted(folder.glob("rank*.step"))]
                if now != seen:
                    seen, since = now, time.monotonic()
                    bar.update(min(int(step or bar.n) for step in now) - bar.n)
                if time.monotonic() - since > stall:
                    signal_ranks(folder, signal.SIGUSR1)
                    time.sleep(1.0)
                    stacks = (f"{path.stem}:\n{path.read_text()}" for path in sorted(folder.glob("rank*.stack")))
                    raise StalledError("\n".join([f"no progress for {stall:g} s", *stacks]))
                time.sleep(0.1)
        finally:
            if process.poll() is None:
                signal_ranks(folder, signal.SIGKILL)
                process.kill()
                process.wait()
    return process.returncode


def signal_ranks(folder: Path, number: signal.Signals) -> None:
    """The ranks run in sessions of their own, so the launcher's end would not be theirs."""
    for path in folder.glob("rank*.pid"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(path.read_text()), number)


def soak(processes: int, schedule: str, args: argparse.Namespace) -> dict[str, Any]:
    """One launch and what came of it; `problems` is empty if all is well."""
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    options = {"schedule": schedule, "steps": args.steps, "seed": args.seed, "rows": 12}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    command += [str(HERE / "soak_run.py"), str(folder), json.dumps(options)]
    result: dict[str, Any] = {"processes": processes, "schedule": schedule, "problems": []}
    started = time.monotonic()
    try:
        status = watch(command, folder, steps=args.steps, stall=args.stall, title=f"{processes} processes, {schedule}")
    except StalledError as stalled:
        result["problems"].append(str(stalled))
    else:
        if status != 0:
            result["problems"].append(f"exit status {status}: {(folder / 'log.txt').read_text()[-2000:]}")
    result["seconds"] = round(time.monotonic() - started, 1)
    if not result["problems"]:
        ranks = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(processes)]
        result["problems"] = check(ranks, read_journal(folder / "run"), options)
        result |= {name: ranks[0][name] for name in ("totals", "waiting", "megabytes", "evaluations")}
    if result["problems"]:
        print(f"kept for a look: {folder}", file=sys.stderr)
    else:
        shutil.rmtree(folder)
    return result


def show(results: Sequence[dict[str, Any]]) -> None:
    table = Table(title="Soak", box=SIMPLE, pad_edge=False)
    for column in ("ranks", "schedule", "seconds", *SHOWN, "MB", "result"):
        table.add_column(column, no_wrap=True)
    for result in results:
        totals, megabytes = result.get("totals", {}), result.get("megabytes", ["", ""])
        table.add_row(
            *(str(result[name]) for name in ("processes", "schedule", "seconds")),
            *(str(totals.get(name, "")) for name in SHOWN),
            f"{megabytes[0]}-{megabytes[-1]}",
            "FAILED" if result["problems"] else "ok",
        )
    console = Console()
    console.print(table)
    for result in results:
        for problem in result["problems"]:
            console.print(f"{result['processes']} processes, {result['schedule']}: {problem}", markup=False)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Train long on several ranks with a mentor that fails in every way.")
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--schedules", nargs="+", default=["inline", "ahead"], choices=["inline", "ahead"])
    parser.add_argument("--steps", type=int, default=500, help="optimizer steps of each run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--stall", type=float, default=120.0, help="seconds without progress after which a run is stopped"
    )
    parser.add_argument("--json", type=Path, help="file for the results")
    args = parser.parse_args(argv)
    results = [soak(processes, schedule, args) for processes in args.processes for schedule in args.schedules]
    show(results)
    if args.json is not None:
        settings = {"steps": args.steps, "seed": args.seed}
        args.json.write_text(json.dumps({"settings": settings, "runs": results}, indent=2) + "\n")
    return int(any(result["problems"] for result in results))


if __name__ == "__main__":
    sys.exit(main())
