"""The GPU check on a machine without a GPU: what needs one says so, the rest runs, and faults are found in records."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import gpu_check  # noqa: E402
from gpu_check_judges import (  # noqa: E402
    judge_ahead,
    judge_colocate,
    judge_server,
    judge_sleep,
    judge_sleep_plain,
    judge_transformers,
)
from gpu_check_run import RUNS  # noqa: E402

TRANSFORMERS = "transformers"


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    path = tmp_path_factory.mktemp("check") / "check.json"
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "gpu_check.py"), "--json", str(path)],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"},
        capture_output=True,
        text=True,
        timeout=590,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert json.loads(done.stdout) == json.loads(path.read_text(encoding="utf-8"))
    return json.loads(done.stdout)


def test_without_a_gpu_every_check_that_needs_one_says_so(result):
    skipped = {name: check["reason"] for name, check in result["checks"].items() if check["status"] == "skipped"}
    assert skipped == dict.fromkeys(set(gpu_check.CHECKS) - {TRANSFORMERS}, "no CUDA device")
    assert result["counts"] == {"ok": 1, "failed": 0, "skipped": len(gpu_check.CHECKS) - 1}


def test_without_a_gpu_training_that_generates_with_transformers_is_checked(result):
    check = result["checks"][TRANSFORMERS]
    assert check["status"] == "ok"
    assert check["device"] == "cpu"
    assert check["step_ratios"].keys() == {"no_collapse", "inline"}
    mentored = check["runs"]["mentored"]
    assert [step["rerolls"] for step in mentored["steps"]] == [1, 0, 1, 0]
    assert mentored["totals"]["rescued"] == mentored["totals"]["collapsed"] == 4


def test_the_report_names_the_versions_and_the_budget(result):
    assert result["machine"]["packages"].keys() == set(gpu_check.PACKAGES)
    assert result["machine"]["gpus"] == []
    assert 0 < result["seconds"] <= result["budget_seconds"] == 540


def test_every_run_of_a_check_exists_and_every_run_belongs_to_a_check():
    assert {run for check in gpu_check.CHECKS.values() for run in check.runs} == set(RUNS)


def test_a_run_that_fails_or_hangs_fails_its_check_with_the_reason_and_stops_no_other(tmp_path, monkeypatch, capsys):
    broken = gpu_check.Check(("no_such_run",), judge_transformers, needs=())
    slow = gpu_check.Check(("mentored",), judge_transformers, needs=(), seconds=0.5)
    monkeypatch.setattr(gpu_check, "CHECKS", {"broken": broken, "slow": slow, "sleep": gpu_check.CHECKS["sleep"]})
    monkeypatch.setattr(gpu_check, "LEAST_SECONDS", 0.0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    path = tmp_path / "check.json"
    assert gpu_check.main(["--json", str(path)]) == 1
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert [check["status"] for check in checks.values()] == ["failed", "failed", "skipped"]
    assert "run no_such_run ended with code 2" in checks["broken"]["reason"]
    assert "invalid choice: 'no_such_run'" in checks["broken"]["reason"]
    assert "did not end within 0 s" in checks["slow"]["reason"]


def test_a_check_that_the_budget_does_not_reach_is_skipped_and_not_called_a_failure(tmp_path):
    outcome = gpu_check.check("transformers", tmp_path, left=lambda: 10.0, cpu_engine=False)
    assert outcome == {"status": "skipped", "reason": "the budget leaves it 10 s"}


def record(*, sleep: bool = False, mentored: bool = True) -> dict:
    """What a run on a GPU would write if all is well: re-rolls in the first and the third of four steps."""
    steps = []
    for number in range(4):
        rerolls = int(mentored and number % 2 == 0)
        steps.append(
            {
                "first_gaps": [0.002],
                "reroll_gaps": [0.003] * rerolls,
                "stale_gaps": [0.07] * (rerolls if number else 0),
                "rerolls": rerolls,
                "syncs": 1 + sleep * rerolls,
                "sleeps": [2] * (1 + rerolls) * sleep,
                "seconds": 1.0 + rerolls,
                "memory_gib": 20.0,
            }
        )
    totals = {
        "groups": 32,
        "collapsed": 8,
        "rescued": 8,
        "handed_over": 8,
        "lessons": 4,
        "staleness": 8,
        "mentor_seconds": 0.01,
    }
    return {
        "steps": steps,
        "totals": totals if mentored else {},
        "losses": [0.1, -0.2, 0.0, 0.3],
        "finite": True,
        "moved": 0.01,
        "device": "cuda:0",
    }


PLAIN = record(mentored=False)
GOOD = {
    judge_transformers: {"plain": PLAIN, "mentored": record()},
    judge_colocate: {"vllm_plain": PLAIN, "vllm_mentored": record()},
    judge_sleep: {"vllm_sleep": record(sleep=True)},
    judge_sleep_plain: {"vllm_sleep_plain": record(sleep=True, mentored=False)},
    judge_ahead: {"vllm_ahead": record()},
    judge_server: {"vllm_server": record()},
}


@pytest.mark.parametrize("judge", GOOD, ids=lambda judge: judge.__name__)
def test_a_judge_finds_no_fault_where_all_is_well(judge):
    assert judge(GOOD[judge])[1] == []


def test_step_times_are_compared_with_those_of_trls_trainer_in_the_same_steps():
    ratios = judge_colocate(GOOD[judge_colocate])[0]["step_ratios"]
    assert ratios == {"no_collapse": 1.0, "inline": 2.0}


@pytest.mark.parametrize(
    ("judge", "path", "value", "fault"),
    [
        (judge_sleep, ("steps", 2, "reroll_gaps"), [0.07], "differ by 0.07 on a reroll roll"),
        (judge_sleep, ("steps", 2, "reroll_gaps"), [float("nan")], "differ by nan on a reroll roll"),
        (judge_sleep, ("steps", 2, "stale_gaps"), [0.003], "old weights would not show"),
        (judge_sleep, ("steps", 2, "syncs"), 1, "step 3: expected 2 weight syncs, got 1"),
        (judge_sleep, ("steps", 2, "sleeps"), [1, 2], "expected the engine to sleep at levels [2, 2], got [1, 2]"),
        (judge_sleep_plain, ("steps", 0, "syncs"), 2, "step 1: expected 1 weight syncs, got 2"),
        (judge_colocate, ("steps", 2, "syncs"), 2, "step 3: expected 1 weight syncs, got 2"),
        (judge_colocate, ("totals", "rescued"), 7, "expected all collapsed groups to be rescued, got 7 of 8"),
        (judge_colocate, ("finite",), False, "not finite"),
        (judge_server, ("moved",), 0.0, "no weight moved"),
        (judge_server, ("steps", 0, "first_gaps"), [0.5], "differ by 0.5 on a first roll"),
        (judge_transformers, ("losses",), [0.1, float("nan")], "not finite"),
        (judge_transformers, ("totals", "collapsed"), 0, "expected some groups to collapse"),
        (judge_ahead, ("totals", "lessons"), 0, "no lesson was used, of 8 groups handed over"),
        (judge_ahead, ("totals", "mentor_seconds"), 2.5, "training waited 2.5 s"),
    ],
)
def test_a_judge_finds_the_planted_fault(judge, path, value, fault):
    records = copy.deepcopy(GOOD[judge])
    place = list(records.values())[-1]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert fault in "; ".join(judge(records)[1])
