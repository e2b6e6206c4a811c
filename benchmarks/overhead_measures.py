"""The four measurements of the overhead benchmark, each a function from scale and directory to plain JSON."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any

from overhead_relay import Lap, Relay, time_by_function
from overhead_seam import seam
from overhead_world import (
    FULL,
    QUICK,
    Mentored,
    PlainWithReroll,
    Scale,
    Switched,
    scripted_mentor,
    trainer,
)

HERE = Path(__file__).parent
CALLS = 3
"""Calls to the mentor in the chain of one group: diagnosis, draft, verdict."""
PROFILED = 4
MORE_ROUNDS = 30
"""Rounds that are added where none re-rolled everything: on a busy machine `ahead` has lessons later."""
WIDE = replace(FULL, width=384, prompt=8, tokens=8, groups=64, rounds=12, warm_up=2)
"""So many rows that the time to generate them grows with their number: of few rows, half take more than half of it."""
Result = dict[str, Any]


def no_collapse(scale: Scale, out: Path) -> Result:
    """The shipped trainer beside itself with its overrides bypassed, in a world where no group collapses."""
    made = trainer(Switched, scale, [False] * scale.groups, out / "switched", mentor=scripted_mentor())
    with Relay({"switched": made}) as relay:

        def lap(*, plain: bool) -> Lap:
            made.plain = plain
            return relay.rounds(1)[0]["switched"]

        for number in range(2 * scale.warm_up):
            lap(plain=number % 2 == 0)
        rounds = [(lap(plain=True), lap(plain=False), lap(plain=True)) for _ in range(scale.rounds)]
        result = figure(
            [2 * mentored.seconds / (before.seconds + after.seconds) for before, mentored, after in rounds],
            target=1.02,
            what="a step of MentorGRPOTrainer / the mean of the steps before and after it, which the same trainer "
            "takes with GRPOTrainer's methods",
        )
        if not result["met"]:
            profiles = {}
            for name in ("plain", "mentored"):
                made.plain = name == "plain"
                profiles[name] = relay.profiled(PROFILED)["switched"]
            print(f"missed: {result['what']} is {result['value']:.3f}, target {result['target']}", file=sys.stderr)
            print(time_by_function(profiles, "mentored", "plain", steps=PROFILED), file=sys.stderr)
    plain_seconds = median((before.seconds + after.seconds) / 2 for before, _, after in rounds)
    return {
        **result,
        "control": spread([after.seconds / before.seconds for before, _, after in rounds]),
        "processor_time": spread([2 * mentored.cpu / (before.cpu + after.cpu) for before, mentored, after in rounds]),
        "plain_step_seconds": plain_seconds,
        "no_collapse_ms": 1000
        * median(mentored.seconds - (before.seconds + after.seconds) / 2 for before, mentored, after in rounds),
        "seam_ms": {
            "no_collapse": seam(out / "seam", half_collapsed=False),
            "half_collapsed": seam(out / "seam", half_collapsed=True),
        },
        "rows": rows_of({"switched": made}),
    }


def inline_vs_limit(scale: Scale, out: Path) -> Result:
    """Half of the groups collapse, and the step waits for a mentor that takes as long as a step."""
    return against_limit(
        scale,
        out,
        schedule="inline",
        waits=True,
        target=1.1,
        what="a step of MentorGRPOTrainer / (the same round's step of a plain GRPOTrainer that, told beforehand "
        "where, re-rolls as many hinted completions + the chain of three calls to the mentor)",
    )


def ahead(scale: Scale, out: Path) -> Result:
    """Half of the groups collapse, and a mentor that takes as long as a step works in the background."""
    return against_limit(
        scale,
        out,
        schedule="ahead",
        waits=False,
        target=1.03,
        what="a step of MentorGRPOTrainer with mentor_schedule=ahead / the same round's step of a plain GRPOTrainer "
        "that, told beforehand where, re-rolls as many hinted completions",
    )


def against_limit(scale: Scale, out: Path, *, schedule: str, waits: bool, target: float, what: str) -> Result:
    """Steps with collapsed groups over the least that they can take. Only steps with a full re-roll count.

    Done twice, with the trainers made in either order, because where their memory lies favours one of them.
    """
    expected = sum(hard_groups(scale)) * scale.group_size
    halves = [
        half_against_limit(scale, out / order[0], order, schedule=schedule, waits=waits, what=what, target=target)
        for order in (("limit", "mentored"), ("mentored", "limit"))
    ]
    pairs = [pair for half in halves for pair in half["pairs"]]
    result = figure([mentored / limit for mentored, limit in pairs], target=target, what=what)
    return {
        **result,
        "by_order": [median(mentored / limit for mentored, limit in half["pairs"]) for half in halves],
        "limit_seconds": median(limit for _, limit in pairs),
        "mentor_seconds": fmean(half["chain"] for half in halves),
        "added_ms": 1000 * median(mentored - limit for mentored, limit in pairs),
        "rerolled_completions_per_step": expected,
        "steps_with_fewer": sum(half["fewer"] for half in halves),
        "rows": {
            f"{name} {number}": rows for number, half in enumerate(halves) for name, rows in half["rows"].items()
        },
    }


def hard_groups(scale: Scale) -> list[bool]:
    return [i % 2 == 1 for i in range(scale.groups)]


def half_against_limit(
    scale: Scale, out: Path, order: Sequence[str], *, schedule: str, waits: bool, what: str, target: float
) -> Result:
    """Seconds of the measured step and of its limit, in pairs, with the trainers made in this order."""
    hard = hard_groups(scale)
    expected = sum(hard) * scale.group_size
    chain = 0.0
    mentor = scripted_mentor(lambda: relay.pause("mentored", chain / CALLS))
    make = {
        "limit": lambda: trainer(PlainWithReroll, scale, hard, out / "limit"),
        "mentored": lambda: trainer(Mentored, scale, hard, out / "mentored", mentor=mentor, mentor_schedule=schedule),
    }
    trainers = {name: make[name]() for name in order}
    with (relay := Relay(trainers)):
        relay.rounds(scale.warm_up // 2)
        chain = median(laps["limit"].seconds for laps in relay.rounds(scale.warm_up))
        relay.rounds(scale.warm_up)
        rounds = relay.rounds(math.ceil(scale.rounds / 2))
        most = len(rounds) + MORE_ROUNDS
        while not (full := [laps for laps in rounds if _is_full(laps, expected)]) and len(rounds) < most:
            rounds += relay.rounds(1)
        if not full:
            seen = [laps["mentored"].rerolled for laps in rounds]
            raise RuntimeError(f"no step re-rolled the {expected} completions of its collapsed groups, but {seen}")
        pairs = [(laps["mentored"].seconds, laps["limit"].seconds + waits * chain) for laps in full]
        explain(figure([a / b for a, b in pairs], target=target, what=what), relay, "mentored", "limit")
    return {"pairs": pairs, "chain": chain, "fewer": len(rounds) - len(full), "rows": rows_of(trainers)}


def _is_full(laps: dict[str, Lap], expected: int) -> bool:
    """Whether both trainings re-rolled as much in this round."""
    return laps["mentored"].rerolled == laps["limit"].rerolled == expected


def balance_w2(scale: Scale, out: Path) -> Result:
    """Two processes; every collapsed group lives on the first."""
    wide = scale if scale is QUICK else WIDE
    out.mkdir(parents=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    subprocess.run(
        [*command, str(HERE / "overhead_ranks.py"), str(out), json.dumps(asdict(wide))],
        env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"},
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=600,
    )
    ranks = [json.loads((out / f"rank{rank}.json").read_text()) for rank in range(2)]
    if [rank["processes"] for rank in ranks] != [2, 2]:
        raise RuntimeError(f"expected 2 processes, got {[rank['processes'] for rank in ranks]}")
    steps = list(zip(*(rank["steps"] for rank in ranks), strict=True))
    slowest, ideal = (
        {clock: [of([step[f"{what}_{clock}"] for step in pair]) for pair in steps] for clock in ("seconds", "cpu")}
        for of, what in ((max, "share"), (lambda seconds: fmean(seconds) / 2, "all"))
    )
    shares = [max(step["share_rows"] for step in pair) for pair in steps]
    result = figure(
        [mine / best for mine, best in zip(slowest["seconds"], ideal["seconds"], strict=True)],
        target=1.15,
        what="generating its share of the re-roll on the slower rank / half of what one rank needs for all of its "
        "rows, measured in the same step while the other rank does the same",
    )
    if not result["met"]:
        for rank, seen in enumerate(ranks):
            medians = {key: median(step[key] for step in seen["steps"]) for key in seen["steps"][0]}
            print(f"rank {rank}: {medians}", file=sys.stderr)
    return {
        **result,
        "processor_time": spread([mine / best for mine, best in zip(slowest["cpu"], ideal["cpu"], strict=True)]),
        "slowest_over_mean_share": spread(
            [max(x) / fmean(x) for x in ([step["share_seconds"] for step in pair] for pair in steps)]
        ),
        "largest_share_of_rows_over_half": median(
            share / (pair[0]["all_rows"] / 2) for share, pair in zip(shares, steps, strict=True)
        ),
        "slowest_seconds": median(slowest["seconds"]),
        "rows_per_rank": [rank["steps"][-1]["share_rows"] for rank in ranks],
        "rows": {f"rank{i}": (rank["scored"], rank["generated"]) for i, rank in enumerate(ranks)},
    }


def figure(values: Sequence[float], *, target: float, what: str) -> Result:
    """A figure with its target: the median of `values`, which must not exceed it."""
    found = spread(values)
    return {"what": what, "value": found["median"], "target": target, "met": found["median"] <= target, **found}


def spread(values: Sequence[float]) -> Result:
    """Median, quartiles and a distribution-free 95 % interval of the median."""
    ordered, half = sorted(values), 0.98 * math.sqrt(len(values))
    low, high = math.floor(len(ordered) / 2 - half), math.ceil(len(ordered) / 2 + half)
    return {
        "median": median(ordered),
        "quartiles": quantiles(ordered, n=4)[::2] if len(ordered) > 1 else [ordered[0]] * 2,
        "median_interval_95": [ordered[max(low - 1, 0)], ordered[min(high, len(ordered) - 1)]],
        "repetitions": len(ordered),
    }


def explain(result: Result, relay: Relay, measured: str, baseline: str) -> None:
    """If the target is missed, print where the extra time goes."""
    if not result["met"]:
        print(f"missed: {result['what']} is {result['value']:.3f}, target {result['target']}", file=sys.stderr)
        print(time_by_function(relay.profiled(PROFILED), measured, baseline, steps=PROFILED), file=sys.stderr)


def rows_of(trainers: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Rows scored and completions generated, by trainer."""
    return {name: (made.reward_funcs[0].scored, made.generated) for name, made in trainers.items()}
