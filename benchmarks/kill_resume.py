"""Kills trainings at random moments, resumes them until they are done, and checks that nothing was lost or miscounted.

    python benchmarks/kill_resume.py --kills 20 --json benchmarks/results/kill_resume.json

Each kill comes after a random number of steps: half of them at any time then, half a moment after the next save, call
to the mentor, re-roll or first roll began. A third are SIGTERM to the launcher, the others SIGKILL to the launcher and
all ranks.
Exit code 1 when a check fails; the directory of that run is kept.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import version
from pathlib import Path

from trl_mentor import read_journal
from trl_mentor.checkpoints import last_complete_checkpoint, why_incomplete
from trl_mentor.counters import Counters
from trl_mentor.journal import JOURNAL_PATH, JournalRecords
from trl_mentor.plain import from_plain
from trl_mentor.records import Intervention, RerollOutcome

HERE = Path(__file__).parent
PHASES = ("save", "mentor", "re-roll", "roll")
PATIENCE = 300.0
"""Seconds after which a start that neither trains nor ends counts as hung."""


@dataclass(frozen=True)
class Kill:
    """One start of a training that did not live to its end."""

    signal: str
    phase: str
    step: int
    resumed_at: int
    seconds: float
    incomplete: dict[str, str]
    """Checkpoints that it left unfit for resuming, and why."""


@dataclass
class Run:
    """A training, killed and resumed until done."""

    processes: int
    schedule: str
    directory: Path
    kills: list[Kill] = field(default_factory=list)
    begun_at: list[int] = field(default_factory=list)
    """Optimizer steps of the checkpoint that each start was to resume."""
    report: dict[str, object] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class Start:
    """One start of the training of a run, in processes of its own."""

    def __init__(self, run: Run, steps: int) -> None:
        self.out, self.number = run.directory, len(run.begun_at)
        checkpoint = last_complete_checkpoint(self.out)
        run.begun_at.append(0 if checkpoint is None else int(checkpoint.name.partition("-")[2]))
        for path in (*self.out.glob("trail*"), *self.out.glob("pid-*")):
            path.unlink()
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={run.processes}"]
        script = [str(HERE / "kill_resume_run.py"), str(self.out), str(steps), run.schedule]
        paths = [str(HERE.parent / "tests"), str(HERE.parent), os.environ.get("PYTHONPATH", "")]
        with (self.out / f"output-{self.number}.txt").open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, *(launcher if run.processes > 1 else []), *script],
                env={
                    **os.environ,
                    "OMP_NUM_THREADS": "1",
                    "OMP_WAIT_POLICY": "PASSIVE",
                    "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                },
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def trail(self) -> list[str]:
        """What the main process has begun so far, oldest first."""
        path = self.out / "trail"
        return path.read_text().splitlines() if path.exists() else []

    def count(self, phase: str) -> int:
        """How often a kind of work has begun."""
        return sum(line.startswith(f"{phase} ") for line in self.trail())

    def wait(self, seconds: float) -> None:
        """For so long, or until the training ends."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)

    def wait_for(self, phase: str, times: int, seconds: float) -> bool:
        """Until a kind of work has begun so many times; False if the training ends first or `seconds` pass."""
        end = time.monotonic() + seconds
        while self.count(phase) < times:
            if self.process.poll() is not None or time.monotonic() > end:
                return False
            time.sleep(0.002)
        return True

    def kill(self, number: signal.Signals) -> None:
        """SIGKILL to the launcher and every rank, in any order; SIGTERM to the launcher, as schedulers send it."""
        pids = {self.process.pid}
        if number is signal.SIGKILL:
            pids |= {int(path.read_text()) for path in self.out.glob("pid-*")}
        for pid in random.sample(sorted(pids), len(pids)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        self.process.wait(PATIENCE)
        time.sleep(0.2)  # the ranks, which are no children of this process, have ended by then


def killed(run: Run, dice: random.Random, *, steps: int, reach: int) -> bool:
    """Start the training of a run and kill it; False if it came to its end before the kill."""
    start = Start(run, steps)
    if not start.wait_for("begin", 1, PATIENCE):
        return _ended(run, start)
    began = time.monotonic()
    start.wait_for("roll", dice.randint(1, reach), PATIENCE)
    if dice.random() < 0.5:
        start.wait(dice.uniform(0, 0.5))
    else:
        phase = dice.choice(PHASES)
        start.wait_for(phase, start.count(phase) + 1, PATIENCE)
        time.sleep(dice.uniform(0, 0.05))
    number = signal.SIGTERM if dice.random() < 1 / 3 else signal.SIGKILL
    phase, step = start.trail()[-1].split()
    if start.process.poll() is not None:
        return _ended(run, start)
    start.kill(number)
    seconds = time.monotonic() - began
    if (run.directory / "ending.json").exists():
        return _ended(run, start)
    problems = {path.name: why_incomplete(path) for path in sorted(run.directory.glob("checkpoint-*"))}
    incomplete = {name: why for name, why in problems.items() if why is not None}
    run.kills.append(Kill(number.name, phase, int(step), run.begun_at[-1], round(seconds, 2), incomplete))
    return True


def _ended(run: Run, start: Start) -> bool:
    """False; a problem of the run if a start ended other than by reaching the end or being killed."""
    code = start.process.poll()
    if code is None:
        start.kill(signal.SIGKILL)
    if code != 0 and not (run.directory / "ending.json").exists():
        output = (run.directory / f"output-{start.number}.txt").read_text(errors="replace")
        run.problems.append(f"start {start.number} ended with exit code {code}: {output[-1500:]}")
    return False


def finish(run: Run, *, steps: int) -> None:
    """Resume a run for the last time and let it come to its end."""
    start = Start(run, steps)
    try:
        start.process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        run.problems.append(f"start {start.number} hung for {PATIENCE:g} s")
    _ended(run, start)


def _lines(everything: JournalRecords) -> int:
    """How many lines hold what was read, superseded records too."""
    others = (everything.events, everything.bookings, everything.returns, everything.evaluations)
    return len(everything) + sum(map(len, others))


def _counts(totals: Counters) -> dict[str, object]:
    """All that is counted and not measured, with the calls of the mentor by role."""
    values = {item.name: getattr(totals, item.name) for item in fields(Counters)}
    calls = {role: spent.calls for role, spent in totals.mentor.roles.items()}
    return {**{name: value for name, value in values.items() if isinstance(value, int)}, **calls}


def check(run: Run, steps: int) -> None:
    """Fill in the report of a finished run and everything that is not as it should be."""
    if run.problems:
        return
    ending = json.loads((run.directory / "ending.json").read_text())
    totals = ending["totals"]
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        records, everything = read_journal(run.directory), read_journal(run.directory, superseded=True)
    raw = [line for line in (run.directory / JOURNAL_PATH).read_bytes().split(b"\n") if line.strip()]
    markers = _markers(raw)
    expected = {
        "processes": (ending["processes"], run.processes),
        "optimizer steps": (ending["steps"], steps),
        "logged steps": (ending["logged_steps"], list(range(1, steps + 1))),
        "batches counted": (totals["batches"], steps),
        "steps at which training began, by the journal": (markers, run.begun_at),
        "lines of the journal": (len(raw), _lines(everything) + len(markers) + records.skipped_lines),
        "what was booked": (_counts(records.totals), _counts(from_plain(Counters, totals))),
        **_journal_against_totals(records, totals, run.schedule, waiting=ending["waiting"]),
    }
    run.problems += [f"{name}: {got}, expected {want}" for name, (got, want) in expected.items() if got != want]
    run.report = {
        "steps": ending["steps"],
        "collapsed": totals["collapsed"],
        "records": len(records),
        "superseded": records.superseded,
        "torn_lines": records.skipped_lines,
        "lessons": totals["lessons"],
        "staleness": totals["staleness"],
        "outcomes": {outcome.value: totals[outcome.value] for outcome in RerollOutcome},
    }


def _journal_against_totals(
    records: list[Intervention], totals: dict[str, int], schedule: str, *, waiting: int
) -> dict[str, tuple[int, int]]:
    """What the journal holds and what it should; `waiting` groups are still queued for a lesson or a place."""
    outcomes = Counter(record.outcome for record in records)
    groups = Counter((_collapsed_at(record), record.group.index) for record in records)
    found = {f"records that are {item.value}": (outcomes[item], totals[item.value]) for item in RerollOutcome}
    found["groups with two records that count"] = (sum(count > 1 for count in groups.values()), 0)
    if schedule == "inline":
        found["records"] = (len(records), totals["collapsed"])
    else:
        rerolled = [record for record in records if record.outcome is not RerollOutcome.SKIPPED]
        staleness = sum(record.step - _collapsed_at(record) for record in rerolled)
        found["groups handed over"] = (totals["handed_over"], totals["collapsed"])
        found["records and groups that wait"] = (len(records) + waiting, totals["handed_over"])
        found["lessons re-rolled"] = (len(rerolled), totals["lessons"])
        found["staleness"] = (staleness, totals["staleness"])
    return found


def _collapsed_at(record: Intervention) -> int:
    return record.step if record.collapsed_at is None else record.collapsed_at


def _markers(raw: list[bytes]) -> list[int]:
    found = []
    for line in raw:
        try:
            found.append(json.loads(line)["train_begin"])
        except (ValueError, KeyError, TypeError):
            continue
    return found


def cell(processes: int, schedule: str, kills: int, args: argparse.Namespace, dice: random.Random) -> list[Run]:
    """Runs of one kind until `kills` of their starts have been killed."""
    runs: list[Run] = []
    while sum(len(run.kills) for run in runs) < kills and not any(run.problems for run in runs):
        left = kills - sum(len(run.kills) for run in runs)
        run = Run(processes, schedule, Path(tempfile.mkdtemp(prefix="kill_resume-")))
        runs.append(run)
        alive = all(
            killed(run, dice, steps=args.steps, reach=args.reach) for _ in range(min(left, args.kills_per_run))
        )
        if alive:
            finish(run, steps=args.steps)
        check(run, args.steps)
        print(row(run), flush=True)
        if not run.problems and not args.keep:
            shutil.rmtree(run.directory)
    return runs


def row(run: Run) -> str:
    """One run as a line, and its problems as further ones."""
    moments = ", ".join(f"{kill.signal[3:]} in {kill.phase} at {kill.step}" for kill in run.kills)
    passed_over = sum(len(kill.incomplete) for kill in run.kills)
    numbers = [run.report.get(name, "-") for name in ("steps", "records", "superseded", "torn_lines")]
    line = f"{run.processes:9} {run.schedule:8} " + " ".join(f"{value!s:>10}" for value in (*numbers, passed_over))
    problems = [f"  PROBLEM in {run.directory}: {problem}" for problem in run.problems]
    return "\n".join([f"{line}  {moments}", *problems])


def result(runs: list[Run], seed: int, seconds: float) -> dict[str, object]:
    """Everything about the runs, as plain JSON."""
    kills = [kill for run in runs for kill in run.kills]
    return {
        "versions": {name: version(name) for name in ("trl-mentor", "trl", "transformers", "torch")},
        "python": platform.python_version(),
        "seed": seed,
        "seconds": round(seconds, 1),
        "kills": len(kills),
        "by_phase": dict(sorted(Counter(kill.phase for kill in kills).items())),
        "by_signal": dict(sorted(Counter(kill.signal for kill in kills).items())),
        "incomplete_checkpoints": sum(len(kill.incomplete) for kill in kills),
        "failed_runs": sum(bool(run.problems) for run in runs),
        "runs": [
            {
                "processes": run.processes,
                "schedule": run.schedule,
                "kills": [asdict(kill) for kill in run.kills],
                "begun_at": run.begun_at,
                **run.report,
                "problems": run.problems,
            }
            for run in runs
        ],
    }


def main(argv: list[str] | None = None) -> int:
    """The exit code: 1 if a check failed."""
    parser = argparse.ArgumentParser(description="Kill trainings at random moments, resume them, and check them.")
    parser.add_argument("--kills", type=int, default=20, help="over all kinds of runs together")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--schedules", nargs="+", default=["inline", "ahead"])
    parser.add_argument("--kills-per-run", type=int, default=3)
    parser.add_argument("--steps", type=int, default=24, help="optimizer steps of a run")
    parser.add_argument("--reach", type=int, default=8, help="optimizer steps of a start before its kill, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where the result is written")
    parser.add_argument("--keep", action="store_true", help="keep the directories of the runs")
    args = parser.parse_args(argv)
    logging.getLogger("trl_mentor").setLevel(logging.ERROR)  # torn checkpoints are in the table
    dice, started = random.Random(args.seed), time.monotonic()
    cells = [(processes, schedule) for processes in args.processes for schedule in args.schedules]
    print("processes schedule      steps    records superseded torn lines incomplete  kills")
    runs: list[Run] = []
    for index, (processes, schedule) in enumerate(cells):
        share = (args.kills * (index + 1)) // len(cells) - (args.kills * index) // len(cells)
        runs += cell(processes, schedule, share, args, dice)
    kills = [kill for run in runs for kill in run.kills]
    failed = [run for run in runs if run.problems]
    print(f"{len(kills)} kills, {len(runs)} runs, {len(failed)} with a problem, {time.monotonic() - started:.0f} s")
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(result(runs, args.seed, time.monotonic() - started), indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
