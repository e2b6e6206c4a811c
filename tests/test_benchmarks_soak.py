"""The soak script: a short one that passes, and what it says when a run stalls or its ranks disagree."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest

from trl_mentor.journal import JournalRecords
from trl_mentor.records import Attempt, CollapsedGroup, Guidance, HintOrigin, Intervention, RerollOutcome

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import soak  # noqa: E402
from soak_checks import check  # noqa: E402


@pytest.mark.parametrize("schedule", ["inline", "ahead"])
def test_a_short_soak_on_two_ranks_finds_nothing_wrong(tmp_path, schedule):
    command = [sys.executable, str(BENCHMARKS / "soak.py"), "--processes", "2", "--steps", "20"]
    out = tmp_path / "soak.json"
    done = subprocess.run(
        [*command, "--schedules", schedule, "--json", str(out)],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    (run,) = json.loads(out.read_text())["runs"]
    assert (run["processes"], run["schedule"], run["problems"]) == (2, schedule, [])
    assert run["totals"]["batches"] == 20
    assert run["totals"]["collapsed"] > 0
    assert run["evaluations"] > 0


def test_a_run_without_progress_is_stopped_and_says_where_it_stands(tmp_path):
    script = """
import faulthandler, os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
faulthandler.register(signal.SIGUSR1, file=open(folder / "rank0.stack", "w"))
(folder / "rank0.pid").write_text(str(os.getpid()))
(folder / "rank0.step").write_text("3")
def waits_for_ever():
    time.sleep(600)
waits_for_ever()
"""
    with pytest.raises(soak.StalledError, match=r"no progress for 2 s\n(.|\n)*in waits_for_ever"):
        soak.watch([sys.executable, "-c", script, str(tmp_path)], tmp_path, steps=9, stall=2, title="stalls")


OPTIONS = {"schedule": "inline", "steps": 2, "rows": 12}


def finished() -> tuple[list[dict], JournalRecords]:
    """What two ranks saw of a run of two steps in which one group collapsed and was rescued."""
    totals = dict.fromkeys(("hint_saturated", "still_collapsed", "skipped", "fallback", "failed", "calls"), 0)
    totals |= {"batches": 2, "collapsed": 1, "unscorable": 0, "rescued": 1, "accepted": 1, "reroll_completions": 4}
    totals |= {"policy_tokens": 56, "reroll_tokens": 8, "mentor_seconds": 0.1}
    rank = {
        "world": 2,
        "steps": 2,
        "collectives": ["total", "total", "gather", "from_main", "total", "gather"],
        "weights": "ab",
        "losses": [0.1, 0.2],
        "evaluations": 1,
        "totals": totals,
        "rows": {"first": 12, "second": 2, "evaluation": 6},
        "tokens": {"first": 24, "second": 4, "evaluation": 12},
        "waiting": 0,
        "threads": 1,
    }
    group = CollapsedGroup("w1", (Attempt("w2", 0.0),))
    record = Intervention(
        step=1,
        strategy="mentor",
        group=group,
        guidance=Guidance("w3", HintOrigin.ACCEPTED),
        outcome=RerollOutcome.RESCUED,
        completions=("w1",) * 4,
    )
    journal = JournalRecords()
    journal.append(record)
    return [rank, copy.deepcopy(rank)], journal


def test_a_run_whose_ranks_agree_passes():
    assert check(*finished(), OPTIONS) == []


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("steps",), 1, "expected 2 steps, got [2, 1]"),
        (("world",), 1, "expected 2 processes"),
        (("collectives",), ["total", "total", "gather", "total"], "part at their collective 3"),
        (("collectives",), ["total"], "part at their collective 1"),
        (("weights",), "cd", "weights differ"),
        (("threads",), 40, "40 threads of the mentor are left"),
        (("losses",), [float("nan"), 0.1], "not finite"),
        (("totals", "rescued"), 2, "totals differ"),
        (("rows", "first"), 18, "rows of first rolls: scored or counted 30, expected 24"),
        (("rows", "evaluation"), 0, "rows of evaluations"),
        (("tokens", "second"), 8, "tokens of re-rolls"),
    ],
)
def test_ranks_that_disagree_are_reported(path, value, words):
    ranks, journal = finished()
    place = ranks[1]
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    assert any(words in problem for problem in check(ranks, journal, OPTIONS))


def test_a_journal_without_a_record_of_a_counted_group_is_reported():
    ranks, journal = finished()
    journal.clear()
    problems = check(ranks, journal, OPTIONS)
    assert "rescued: the trainer counted 1, the journal says 0" in problems
    assert "collapsed: the trainer counted 1, the journal says 0" in problems


def test_a_long_run_in_which_something_never_happened_is_reported():
    ranks, journal = finished()
    for rank in ranks:
        rank["totals"] |= {"all_correct": 0, "unscorable": 0, "shortened": 0}
    problems = check(ranks, journal, {**OPTIONS, "steps": 300})
    assert "fallback is 0 after 300 steps: not tested" in problems
