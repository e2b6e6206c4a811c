"""What a sandbox adds to the start and end of a program that does nothing, in each tier that this machine provides.

    python benchmarks/sandbox.py                # writes benchmarks/results/sandbox.json

`python -I -S -B -c pass` by itself and in each tier, one after the other, in rounds; the least and the median time. In
the tier `limits` it is the system's Python where this one is in a home that programs cannot reach.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from trl_mentor.sandbox import Isolation, Limits, tiers

ROUNDS = 60
RESULT = Path(__file__).parent / "results" / "sandbox.json"
NOTHING = ["-I", "-S", "-B", "-c", "pass"]


def programs() -> dict[str, Callable[[], object]]:
    """What is measured, by name."""
    found: dict[str, Callable[[], object]] = {"plain": lambda: subprocess.run([sys.executable, *NOTHING], check=True)}
    for isolation in Isolation:
        python = sys.executable if tiers.problem_of(isolation) is None else "/usr/bin/python3"
        start = tiers.launcher(isolation)
        try:
            start.run([python, *NOTHING], {}, b"", Limits())
        except (OSError, ValueError):
            continue
        found[isolation.value] = lambda start=start, python=python: start.run([python, *NOTHING], {}, b"", Limits())
    return found


def milliseconds(program: Callable[[], object]) -> float:
    began = time.perf_counter()
    program()
    return 1000 * (time.perf_counter() - began)


def main() -> None:
    measured = programs()
    times: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(ROUNDS):
        for name, program in measured.items():
            times[name].append(milliseconds(program))
    result = {
        "milliseconds": {
            name: {"least": round(min(taken), 1), "median": round(statistics.median(taken), 1)}
            for name, taken in times.items()
        },
        "rounds": ROUNDS,
        "processors": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
