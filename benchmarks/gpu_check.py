"""Check on one GPU what only a GPU can show: colocated vLLM, its sleep mode, LoRA, paged generation, `ahead`.

    python benchmarks/gpu_check.py [--json PATH] [--budget-seconds 540] [--only NAME ...]

prints one JSON object. Each training runs in a process of its own with a time limit, so that one that fails or hangs
stops no other. A check is "ok", "failed" or "skipped", the last two with a reason; the exit code is 1 if one failed.
On a machine without a GPU the checks that need none run, in a small form; `--cpu-engine` also runs there what vLLM's
CPU engine can do.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from gpu_check_judges import (
    Judge,
    judge_ahead,
    judge_alone,
    judge_colocate,
    judge_server,
    judge_sleep,
    judge_sleep_plain,
    judge_transformers,
)

PACKAGES = ("trl-mentor", "trl", "transformers", "accelerate", "torch", "vllm", "peft", "datasets")
HERE = Path(__file__).parent
LEAST_SECONDS = 45.0
"""With less than this left, a run is not started."""
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "WANDB_MODE": "disabled"}


@dataclass(frozen=True, slots=True)
class Check:
    """Runs of `gpu_check_run.py`, what must hold of them, and what the machine must have for them."""

    runs: tuple[str, ...]
    judge: Judge
    needs: tuple[str, ...] = ("cuda",)
    seconds: float = 150.0
    """Limit of each run."""


CHECKS = {
    "sleep": Check(("vllm_sleep",), judge_sleep, needs=("cuda", "vllm")),
    "transformers": Check(("plain", "mentored"), judge_transformers, needs=()),
    "colocate": Check(("vllm_mentored", "vllm_plain"), judge_colocate, needs=("engine", "vllm")),
    "lora_sleep": Check(("vllm_sleep_lora",), judge_sleep, needs=("cuda", "vllm", "peft")),
    "ahead": Check(("vllm_ahead",), judge_ahead, needs=("engine", "vllm")),
    "continuous_batching": Check(("paged",), judge_alone),
    "server": Check(("vllm_server",), judge_server, needs=("cuda", "vllm", "second_gpu"), seconds=240.0),
    "sleep_plain": Check(("vllm_sleep_plain",), judge_sleep_plain, needs=("cuda", "vllm")),
}
"""In order of weight: what the budget does not reach is skipped."""


def missing(need: str, *, cpu_engine: bool) -> str | None:
    """Why the machine lacks something that a check needs, or None."""
    reasons: dict[str, Callable[[], str | None]] = {
        "cuda": lambda: None if torch.cuda.is_available() else "no CUDA device",
        "engine": lambda: None if torch.cuda.is_available() or cpu_engine else "no CUDA device",
        "vllm": lambda: None if find_spec("vllm") else "vllm is not installed",
        "peft": lambda: None if find_spec("peft") else "peft is not installed",
        "second_gpu": lambda: (
            None if torch.cuda.device_count() > 1 else f"needs 2 GPUs, found {torch.cuda.device_count()}"
        ),
    }
    return reasons[need]()


def run_apart(name: str, folder: Path, *, seconds: float) -> dict[str, Any]:
    """The record of a run in its own process. Raises `RuntimeError` with the end of its output if it gives none."""
    folder.mkdir()
    record, log = folder / "record.json", folder / "log.txt"
    gpus = visible_gpus()
    command = [sys.executable, str(HERE / "gpu_check_run.py"), name, str(folder), "--server-device", gpus[-1]]
    # Of several GPUs a trainer that is not launched on all would make one data parallel model.
    environment = {**os.environ, **OFFLINE, "CUDA_VISIBLE_DEVICES": gpus[0]}
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            stop(process)
    if code == 0 and record.exists():
        result: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
        return result
    happened = f"did not end within {seconds:.0f} s" if code is None else f"ended with code {code}"
    raise RuntimeError(f"run {name} {happened}; its output ends with: {log.read_text(errors='replace')[-3000:]}")


def stop(process: subprocess.Popen[Any]) -> None:
    """End a process and all that it started, engine processes and servers among them."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def visible_gpus() -> list[str]:
    """The GPUs that may be used, by the names that CUDA_VISIBLE_DEVICES takes; one empty name if there is none."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(torch.cuda.device_count())))
    return chosen.split(",")


def check(name: str, folder: Path, *, left: Callable[[], float], cpu_engine: bool) -> dict[str, Any]:
    """What came of one check, within the seconds that are `left`."""
    chosen = CHECKS[name]
    reasons = [reason for need in chosen.needs if (reason := missing(need, cpu_engine=cpu_engine))]
    if reasons:
        return {"status": "skipped", "reason": reasons[0]}
    started = time.monotonic()
    records = {}
    for run in chosen.runs:
        seconds = min(chosen.seconds, left())
        if seconds < LEAST_SECONDS:
            return {"status": "skipped", "reason": f"the budget leaves it {max(seconds, 0.0):.0f} s"}
        try:
            records[run] = run_apart(run, folder / run, seconds=seconds)
        except RuntimeError as error:
            return {"status": "failed", "reason": str(error), "seconds": round(time.monotonic() - started, 1)}
    figures, faults = chosen.judge(records)
    outcome = {"status": "failed", "reason": "; ".join(faults)} if faults else {"status": "ok"}
    return {**outcome, "seconds": round(time.monotonic() - started, 1), **figures, "runs": records}


def machine() -> dict[str, Any]:
    """What was checked, on what."""
    versions: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {"packages": versions, "python": platform.python_version(), "cuda": torch.version.cuda, "gpus": gpus}


def report(names: list[str], *, budget: float, cpu_engine: bool) -> dict[str, Any]:
    """Everything that was checked, as plain JSON."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        checks = {
            name: check(
                name,
                Path(folder),
                left=lambda: budget - (time.monotonic() - started),
                cpu_engine=cpu_engine,
            )
            for name in names
        }
    statuses = [item["status"] for item in checks.values()]
    return {
        "machine": machine(),
        "budget_seconds": budget,
        "seconds": round(time.monotonic() - started, 1),
        "counts": {status: statuses.count(status) for status in ("ok", "failed", "skipped")},
        "checks": checks,
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", metavar="PATH", help="write the JSON object here as well")
    parser.add_argument("--budget-seconds", type=float, default=540.0, help="for all checks together")
    parser.add_argument("--only", nargs="+", choices=CHECKS, default=list(CHECKS), help="these checks instead of all")
    parser.add_argument("--cpu-engine", action="store_true", help="without a GPU, use vLLM's CPU engine where it can")
    given = parser.parse_args(arguments)
    result = report(given.only, budget=given.budget_seconds, cpu_engine=given.cpu_engine)
    text = json.dumps(result, indent=2)
    if given.json:
        Path(given.json).write_text(text + "\n", encoding="utf-8")
    print(text)
    return 1 if result["counts"]["failed"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
