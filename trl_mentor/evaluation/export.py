"""Completions as the files that other harnesses judge, for benchmarks whose tests the package does not run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from pathlib import Path

from trl_mentor.errors import ConfigError
from trl_mentor.evaluation.records import Sample
from trl_mentor.programs.fences import program_of

COMMANDS = {
    "bigcodebench": "bigcodebench.evaluate --split instruct --subset full --execution local --samples {path}",
}
"""Export of a task -> the command that judges its file, to be run where the harness is installed."""


def export_command(export: str, path: Path) -> str:
    """What judges the file. Raises `ConfigError` for an export that nobody writes."""
    if export not in COMMANDS:
        raise ConfigError(f"there is no export {export!r}; expected one of {', '.join(COMMANDS)}")
    return COMMANDS[export].format(path=shlex.quote(str(path)))


def write_samples(path: Path, samples: Iterable[Sample]) -> None:
    """One line for each sample, `{"task_id": ..., "solution": ...}`, as BigCodeBench reads it.

    The solution is the program as the rewards take it from a completion, empty where there is none: the harness wants
    a line for every problem. Several samples of a problem stand in the order of their index.
    """
    ordered = sorted(samples, key=lambda sample: sample.index)
    lines = [{"task_id": sample.problem, "solution": program_of(sample.completion) or ""} for sample in ordered]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_text(text, encoding="ascii")
