"""A thousand interventions through an endpoint that does whatever endpoints do when they do not answer.

    python benchmarks/chaos.py --json benchmarks/results/chaos.json

prints `exceptions` that reached the caller or ended a thread, `bad_hints_used` and `unjournaled`, which must be 0, and
what happened otherwise. `--plant` puts a fault into the mentor, the run or the journal, which the checks have to see:
the exit status is 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from chaos_checks import Wrong, bad_hints, unjournaled
from chaos_world import Exercise, exercise
from stub_server import fetch, spawned
from tqdm import tqdm

from trl_mentor import Mentor, OpenAIBackend, read_journal
from trl_mentor.journal import Journal
from trl_mentor.leaks.gate import LeakGate
from trl_mentor.records import CollapsedGroup, Event, Guidance, HintOrigin, Intervention, RerollOutcome
from trl_mentor.templating import PromptTemplates

HERE = Path(__file__).resolve().parent
BATCH = 48
CONCURRENCY = 24
CALL_TIMEOUT = 2.0
DEADLINE = 30.0
PAUSE_AFTER = 5
PAUSE_SECONDS = 0.05
BETWEEN = 0.3
"""Seconds between two batches, as a training step would take them: a pause may end meanwhile."""
MUST_BE_ZERO = ("exceptions", "bad_hints_used", "unjournaled")
PLANTS = ("gate", "exception", "thread", "journal")


@dataclass
class Run:
    """What is kept of a run while it goes on."""

    journal: Journal
    plant: str | None = None
    guidances: dict[int, Guidance] = field(default_factory=dict)
    exceptions: list[str] = field(default_factory=list)
    wrong: list[Wrong] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def batch(self, mentor: Mentor, numbers: Sequence[int], exercises: dict[int, Exercise]) -> None:
        """One call of the mentor, as a training step makes it, and its lines of the journal."""
        groups = [exercises[number].group(number) for number in numbers]
        try:
            if self.plant == "exception" and not self.exceptions:
                raise RuntimeError("planted")
            guidances = mentor.guide(groups)
        except Exception:  # what this run is there to find
            self.exceptions.append(traceback.format_exc())
            return
        for number, group, guidance in zip(numbers, groups, guidances, strict=True):
            self.guidances[number] = guidance
            if self.plant != "journal" or number % 20:
                self.journal.append(Intervention(number, "mentor", group, guidance, RerollOutcome.SKIPPED))
        self.events += mentor.take_events()


@contextmanager
def caught(exceptions: list[str]) -> Iterator[None]:
    """Also what ends a thread, a finalizer or a task of an event loop counts as an exception."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            exceptions.append(self.format(record))

    handler, hooks = Handler(logging.ERROR), (threading.excepthook, sys.unraisablehook)
    logging.getLogger("asyncio").addHandler(handler)
    threading.excepthook = sys.unraisablehook = lambda arguments: exceptions.append(repr(arguments))
    try:
        yield
    finally:
        threading.excepthook, sys.unraisablehook = hooks
        logging.getLogger("asyncio").removeHandler(handler)


class OpenGate(LeakGate):
    """Lets everything pass."""

    def objection(self, hint: str, group: CollapsedGroup) -> None:
        """No rule speaks against any hint."""

    def gives_away(self, text: str, group: CollapsedGroup) -> bool:
        return False


def chaos(interventions: int, seed: int, *, plant: str | None = None) -> dict[str, Any]:
    """One run and what came of it."""
    exercises = {number: exercise(number) for number in range(interventions)}
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        spawned("--seed", str(seed), script=HERE / "chaos_faults.py") as url,
        closing(Journal(Path(folder) / "journal.jsonl")) as journal,
    ):
        run = Run(journal, plant)
        with caught(run.exceptions):
            if plant == "thread":
                ends = threading.Thread(target=lambda: 1 / 0)
                ends.start()
                ends.join()
            for domain in ("math", "code"):
                _one_domain(run, domain, exercises, url)
        log = fetch(url, "log")
        fallbacks = {domain: PromptTemplates(domain).fallback for domain in ("math", "code")}
        missing = unjournaled(run.guidances, read_journal(journal.path))
    bad = []
    for domain, fallback in fallbacks.items():
        mine = {n: guidance for n, guidance in run.guidances.items() if exercises[n].domain == domain}
        bad += bad_hints(mine, exercises, log, fallback)
    return {
        "interventions": len(run.guidances),
        "exceptions": len(run.exceptions),
        "bad_hints_used": len(bad),
        "unjournaled": len(missing),
        "origins": dict(Counter(str(guidance.origin) for guidance in run.guidances.values()).most_common()),
        "events": dict(Counter(str(event.kind) for event in run.events).most_common()),
        "requests": len(log),
        "answered_with": dict(Counter(entry["kind"] for entry in log).most_common()),
        "failed_calls": _failed_calls(run.guidances),
        "seconds": round(time.monotonic() - started, 1),
        "settings": {"interventions": interventions, "seed": seed, "plant": plant},
        "wrong": [f"exercise {one.exercise}: {one.what}" for one in [*bad, *missing]] + run.exceptions,
    }


def _one_domain(run: Run, domain: str, exercises: dict[int, Exercise], url: str) -> None:
    numbers = [number for number, one in exercises.items() if one.domain == domain]
    with closing(OpenAIBackend("stub", base_url=url)) as backend:
        mentor = Mentor(
            backend,
            domain=domain,
            max_concurrency=CONCURRENCY,
            call_timeout=CALL_TIMEOUT,
            deadline=DEADLINE,
            pause_after=PAUSE_AFTER,
            pause_seconds=PAUSE_SECONDS,
        )
        if run.plant == "gate":
            mentor.plan = replace(mentor.plan, gate=OpenGate())
        for start in tqdm(range(0, len(numbers), BATCH), desc=domain):
            run.batch(mentor, numbers[start : start + BATCH], exercises)
            time.sleep(BETWEEN)


def _failed_calls(guidances: dict[int, Guidance]) -> dict[str, int]:
    """How many calls failed, by the type of the error."""
    errors = [call.error for guidance in guidances.values() for call in guidance.calls if call.error]
    return dict(Counter(error.partition(":")[0] for error in errors).most_common())


def problems(result: dict[str, Any]) -> list[str]:
    """What is wrong with a run, in words. One in which next to no hint is accepted has not tested much."""
    found = [f"{name} is {result[name]}, must be 0" for name in MUST_BE_ZERO if result[name]]
    if result["interventions"] != result["settings"]["interventions"]:
        found.append(f"{result['interventions']} of {result['settings']['interventions']} interventions ended")
    if result["origins"].get(HintOrigin.ACCEPTED, 0) < result["interventions"] / 4:
        found.append("fewer than a quarter of the hints were accepted: the checks had little to look at")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Mentor through an endpoint that fails in every way known.")
    parser.add_argument("--interventions", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plant", choices=PLANTS, help="a fault that the checks have to see")
    parser.add_argument(
        "--json", type=Path, nargs="?", const=Path("-"), help="print the result as JSON, and to a file"
    )
    args = parser.parse_args(argv)
    result = chaos(args.interventions, args.seed, plant=args.plant)
    text = json.dumps(result, indent=2)
    print(text if args.json else "\n".join(f"{name:16} {value}" for name, value in result.items() if name != "wrong"))
    if args.json and args.json != Path("-"):
        args.json.write_text(text + "\n")
    for problem in [*problems(result), *result["wrong"][:20]]:
        print(problem, file=sys.stderr)
    return int(bool(problems(result)))


if __name__ == "__main__":
    sys.exit(main())
