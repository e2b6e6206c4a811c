"""What must be true of a finished soak: between its ranks, and between the journal and the counters."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from trl_mentor.journal import JournalRecords
from trl_mentor.records import Cause

OWN = ("seconds", "mentor_seconds", "reroll_seconds", "calls", "mentor", "recovery")
"""Totals that each rank measures for itself, or the main process alone."""
MUST_HAPPEN = (
    "collapsed",
    "all_correct",
    "unscorable",
    "rescued",
    "hint_saturated",
    "still_collapsed",
    "skipped",
    "accepted",
    "fallback",
    "failed",
    "shortened",
)
MOST_THREADS = 4
"""Threads that may hang in calls of the mentor when training ends: a pool of two, and two workers of `ahead`."""
LONG_ENOUGH = 300
"""Steps after which everything that can happen should have happened."""


def check(ranks: Sequence[dict[str, Any]], journal: JournalRecords, options: dict[str, Any]) -> list[str]:
    """What is wrong with a run, in words; nothing if all is well."""
    wrong = [*check_ranks(ranks, options), *check_scores(ranks, options), *check_journal(ranks[0], journal, options)]
    if options["steps"] >= LONG_ENOUGH:
        totals = ranks[0]["totals"]
        wrong += [
            f"{name} is 0 after {options['steps']} steps: not tested" for name in MUST_HAPPEN if not totals[name]
        ]
    return wrong


def check_ranks(ranks: Sequence[dict[str, Any]], options: dict[str, Any]) -> list[str]:
    """Whether the ranks agree and came to the end."""
    wrong = []
    if {rank["world"] for rank in ranks} != {len(ranks)}:
        wrong.append(f"expected {len(ranks)} processes, got {[rank['world'] for rank in ranks]}")
    if {rank["steps"] for rank in ranks} != {options["steps"]}:
        wrong.append(f"expected {options['steps']} steps, got {[rank['steps'] for rank in ranks]}")
    for position, names in enumerate(zip_longest(*(rank["collectives"] for rank in ranks))):
        if len(set(names)) > 1:
            wrong.append(f"the ranks part at their collective {position}: {names}")
            break
    if (most := max(rank["threads"] for rank in ranks)) > MOST_THREADS:
        wrong.append(f"{most} threads of the mentor are left, expected at most {MOST_THREADS}")
    if len({rank["weights"] for rank in ranks}) > 1:
        wrong.append("the weights differ between ranks")
    if not all(math.isfinite(loss) for rank in ranks for loss in rank["losses"]):
        wrong.append("a loss is not finite")
    if len(ranks[0]["losses"]) != options["steps"]:
        wrong.append(f"{len(ranks[0]['losses'])} losses were logged in {options['steps']} steps")
    totals = [{name: n for name, n in rank["totals"].items() if name not in OWN} for rank in ranks]
    if any(other != totals[0] for other in totals):
        wrong.append(f"the totals differ between ranks: {totals}")
    return wrong


def check_scores(ranks: Sequence[dict[str, Any]], options: dict[str, Any]) -> list[str]:
    """Whether each completion that was generated was scored once, evaluation included."""
    totals = ranks[0]["totals"]
    rows, tokens = (
        {roll: sum(rank[name][roll] for rank in ranks) for roll in ranks[0][name]} for name in ("rows", "tokens")
    )
    expected = {
        "rows of first rolls": (rows["first"], options["rows"] * options["steps"]),
        "rows of evaluations": (rows["evaluation"], options["rows"] * ranks[0]["evaluations"]),
        "tokens of training": (tokens["first"] + tokens["second"], totals["policy_tokens"]),
        "tokens of re-rolls": (tokens["second"], totals["reroll_tokens"]),
        "batches": (totals["batches"], options["steps"]),
    }
    wrong = [
        f"{name}: scored or counted {got}, expected {right}" for name, (got, right) in expected.items() if got != right
    ]
    if rows["second"] < totals["reroll_completions"]:
        wrong.append(f"{rows['second']} rows of re-rolls were scored, {totals['reroll_completions']} counted")
    return wrong


def check_journal(rank: dict[str, Any], journal: JournalRecords, options: dict[str, Any]) -> list[str]:
    """Whether the journal and the counters of the trainer say the same, and every collapsed group ends there."""
    totals = rank["totals"]
    outcomes = Counter(str(item.outcome) for item in journal)
    origins = Counter(str(item.guidance.origin) for item in journal if item.guidance is not None)
    used = [item for item in journal if item.completions]
    unscorable = sum(item.group.cause is Cause.UNSCORABLE for item in journal)
    ended = len(journal) - unscorable + rank["waiting"]
    counted = {
        **{name: outcomes[name] for name in ("rescued", "hint_saturated", "still_collapsed", "skipped")},
        **{name: origins[name] for name in ("accepted", "fallback", "failed")},
        "reroll_completions": sum(len(item.completions) for item in journal),
        "collapsed": ended,
        "unscorable": unscorable,
    }
    if options["schedule"] == "ahead":
        counted["handed_over"] = ended
        counted["lessons"] = len(used)
        counted["staleness"] = sum(item.step - item.collapsed_at for item in used)
    wrong = [
        f"{name}: the trainer counted {totals[name]}, the journal says {number}"
        for name, number in counted.items()
        if totals[name] != number
    ]
    calls = sum(len(item.guidance.calls) for item in journal if item.guidance is not None)
    if totals["calls"] < calls:  # a call may be several requests, and those of groups that wait are counted too
        wrong.append(f"calls: the trainer counted {totals['calls']} requests for {calls} calls of the journal")
    return wrong + [f"{journal.skipped_lines} lines of the journal cannot be read"] * bool(journal.skipped_lines)
