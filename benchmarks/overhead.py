"""What mentoring costs besides the generation it asks for: ratios of step times, each with its target.

    python benchmarks/overhead.py --json [PATH] [--only NAME] [--quick]

prints one JSON object (and writes it to PATH). Every ratio is the median over paired steps, taken side by side, so
that a busy machine widens the spread more than it moves the value; `docs/overhead.md` says what is divided by what,
and why. Where a target is missed, a table that says where the time goes is printed to standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import trl
from overhead_measures import Result, ahead, balance_w2, inline_vs_limit, no_collapse
from overhead_world import FULL, QUICK, Scale

MEASURES: dict[str, Callable[[Scale, Path], Result]] = {
    "no_collapse": no_collapse,
    "inline_vs_limit": inline_vs_limit,
    "ahead": ahead,
    "balance_w2": balance_w2,
}


def report(names: list[str], scale: Scale) -> Result:
    """Everything that is measured, as plain JSON."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as out, contextlib.redirect_stdout(io.StringIO()):
        measured = {name: MEASURES[name](scale, Path(out) / name) for name in names}
    counts = {name: result.pop("rows") for name, result in measured.items()}
    paths = {f"{name}/{path}": count for name, paths in counts.items() for path, count in paths.items()}
    return {
        "machine": {
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
            "python": platform.python_version(),
            "torch": torch.__version__,
            "trl": trl.__version__,
        },
        "quick": scale is QUICK,
        "seconds": round(time.monotonic() - started, 1),
        **measured,
        "scored_once": {
            "what": "rows that reached the reward functions / completions generated, re-rolls and padding included",
            "value": sum(scored for scored, _ in paths.values()) / sum(generated for _, generated in paths.values()),
            "target": 1.0,
            "met": all(scored == generated for scored, generated in paths.values()),
            "paths": {path: scored / generated for path, (scored, generated) in paths.items()},
        },
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", nargs="?", const="", metavar="PATH", help="print JSON, and write it to PATH")
    parser.add_argument("--only", choices=MEASURES, help="one measurement instead of all")
    parser.add_argument("--quick", action="store_true", help="a tiny policy and few steps: a test, no measurement")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    result = report([given.only] if given.only else list(MEASURES), QUICK if given.quick else FULL)
    text = json.dumps(result, indent=2)
    if given.json:
        Path(given.json).write_text(text + "\n", encoding="utf-8")
    print(text if given.json is not None else table(result))


def table(result: Result) -> str:
    """One line per figure, for people."""
    lines = [f"{'figure':<16} {'value':>7} {'target':>7}"]
    for name in (*MEASURES, "scored_once"):
        if name in result:
            entry: dict[str, Any] = result[name]
            lines.append(
                f"{name:<16} {entry['value']:7.3f} {entry['target']:7.3f}{'' if entry['met'] else '  missed'}"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
