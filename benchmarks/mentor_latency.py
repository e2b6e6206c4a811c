"""How close the mentor comes to the time of its calls alone, and whether it grows: a server with a fixed latency.

    python benchmarks/mentor_latency.py --json benchmarks/results/mentor_latency.json

Every group needs three calls, one after the other. `c64_vs_chain` is the time for 64 groups at concurrency 64 over
that of one chain, `c16_vs_ideal` the time at concurrency 16 over that of four chains in a row: medians over the
repetitions. `rss_growth_mb` is what the process grew by from its 200th to its 2,000th intervention, each with a line
in the journal. The server runs in a process of its own. The exit status is 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from stub_server import fetch, spawned
from tqdm import tqdm

from trl_mentor import Mentor, OpenAIBackend
from trl_mentor.journal import Journal
from trl_mentor.records import Attempt, CollapsedGroup, Guidance, HintOrigin, Intervention, RerollOutcome

TARGETS = {"c64_vs_chain": 1.3, "c16_vs_ideal": 1.3, "rss_growth_mb": 20.0}
CALLS = 3
GROUPS = 64
WORDS = "rows seats price before after each total twice minus average left over the then so we get because"


def group(number: int) -> CollapsedGroup:
    """A question with eight failed attempts of 1,200 characters, all of them its own."""
    dice = random.Random(number)
    attempts = [
        " ".join(dice.choices(WORDS.split(), k=200)) + f", which makes {dice.randrange(10**5)}" for _ in range(8)
    ]
    question = f"{' '.join(dice.choices(WORDS.split(), k=60))}: how many are there in case {number}?"
    return CollapsedGroup(
        question, tuple(Attempt(text, 0.0) for text in attempts), answer=str(dice.randrange(10**5, 10**6))
    )


def check(guidances: Sequence[Guidance]) -> None:
    """A group that took another way than the shortest one has no place in the figures."""
    for guidance in guidances:
        if guidance.origin is not HintOrigin.ACCEPTED or len(guidance.calls) != CALLS:
            raise SystemExit(f"a group did not go the way of {CALLS} calls: {guidance}")


def walls(url: str, concurrency: int, *, repetitions: int, groups: int = GROUPS) -> list[float]:
    """Seconds that `groups` groups took, for each repetition; a batch before them opens the connections."""
    measured = []
    with closing(OpenAIBackend("stub", base_url=url)) as backend:
        mentor = Mentor(backend, max_concurrency=concurrency)
        for repetition in tqdm(range(repetitions + 1), desc=f"concurrency {concurrency}"):
            batch = [group(groups * repetition + number) for number in range(groups)]
            gc.collect()
            started = time.perf_counter()
            guidances = mentor.guide(batch)
            measured.append(time.perf_counter() - started)
            check(guidances)
    return measured[1:]


def memory(url: str, interventions: int) -> dict[str, float]:
    """Megabytes of this process after a tenth of the interventions and after all."""
    seen = {}
    with closing(OpenAIBackend("stub", base_url=url)) as backend, tempfile.TemporaryDirectory() as folder:
        mentor, journal = Mentor(backend, max_concurrency=16), Journal(Path(folder) / "journal.jsonl")
        size = min(20, interventions // 10)
        for start in tqdm(range(0, interventions, size), desc="memory"):
            batch = [group(start + number) for number in range(size)]
            guidances = mentor.guide(batch)
            check(guidances)
            for one, guidance in zip(batch, guidances, strict=True):
                journal.append(Intervention(start, "mentor", one, guidance, RerollOutcome.SKIPPED))
            if start + size in (interventions // 10, interventions):
                seen[start + size] = resident_mb()
        journal.close()
    first, last = seen[interventions // 10], seen[interventions]
    return {"rss_mb_after_a_tenth": first, "rss_mb": last, "rss_growth_mb": round(last - first, 2)}


def resident_mb() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 2)


def measure(*, latency: float, repetitions: int, interventions: int) -> dict[str, Any]:
    load = os.getloadavg()[0]
    with spawned("--latency", str(latency)) as url:
        wide = walls(url, GROUPS, repetitions=repetitions)
        most_busy = fetch(url, "stats")["most_busy"]
        narrow = walls(url, 16, repetitions=repetitions)
    chain = CALLS * latency
    with spawned("--latency", "0.005") as url:
        grown = memory(url, interventions)
    return {
        "c64_vs_chain": round(statistics.median(wide) / chain, 3),
        "c16_vs_ideal": round(statistics.median(narrow) / (chain * GROUPS / 16), 3),
        **grown,
        "c64_seconds": [round(wall, 3) for wall in wide],
        "c16_seconds": [round(wall, 3) for wall in narrow],
        "most_requests_at_once": most_busy,
        "settings": {
            "latency": latency,
            "calls": CALLS,
            "groups": GROUPS,
            "repetitions": repetitions,
            "interventions": interventions,
        },
        "machine": {"cpus": os.cpu_count(), "load_before": round(load, 2), "load_after": round(os.getloadavg()[0], 2)},
    }


def missed(result: dict[str, Any]) -> list[str]:
    """The targets that a result misses, in words."""
    return [f"{name} is {result[name]}, the target is {most}" for name, most in TARGETS.items() if result[name] > most]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure the mentor's own time and memory against a stub server.")
    parser.add_argument("--latency", type=float, default=0.2, help="seconds that the server takes for each call")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--interventions", type=int, default=2000, help="of the measurement of memory")
    parser.add_argument(
        "--json", type=Path, nargs="?", const=Path("-"), help="print the result as JSON, and to a file"
    )
    args = parser.parse_args(argv)
    result = measure(latency=args.latency, repetitions=args.repetitions, interventions=args.interventions)
    text = json.dumps(result, indent=2)
    print(text if args.json else "\n".join(f"{name:16} {result[name]}" for name in TARGETS))
    if args.json and args.json != Path("-"):
        args.json.write_text(text + "\n")
    for problem in missed(result):
        print(problem, file=sys.stderr)
    return int(bool(missed(result)))


if __name__ == "__main__":
    sys.exit(main())
