"""The overhead benchmark in its quick form: it runs, pairs its steps and counts every row; the times mean nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "overhead.py"
FIGURES = {"no_collapse": 1.02, "inline_vs_limit": 1.1, "ahead": 1.03, "balance_w2": 1.15}


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    path = tmp_path_factory.mktemp("overhead") / "overhead.json"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--quick", "--json", str(path)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout) == json.loads(path.read_text(encoding="utf-8"))
    return json.loads(done.stdout)


def test_every_figure_has_its_target_its_spread_and_a_statement(result):
    assert {name: result[name]["target"] for name in FIGURES} == FIGURES
    for name in FIGURES:
        figure = result[name]
        low, high = figure["quartiles"]
        assert 0 < low <= figure["value"] <= high
        assert figure["met"] == (figure["value"] <= figure["target"])
        assert figure["repetitions"] > 0
        assert " / " in figure["what"]


def test_every_completion_is_scored_once_in_all_paths(result):
    paths = result["scored_once"]["paths"]
    assert set(paths.values()) == {1.0}
    assert {path.split("/")[0] for path in paths} == set(FIGURES)


def test_steps_with_collapsed_groups_re_roll_as_much_as_the_limit_that_they_are_held_against(result):
    for name in ("inline_vs_limit", "ahead"):
        assert result[name]["rerolled_completions_per_step"] == 16
        assert result[name]["mentor_seconds"] > 0


def test_the_rows_of_one_ranks_collapsed_groups_are_shared_evenly(result):
    balance = result["balance_w2"]
    assert balance["rows_per_rank"] == [16, 16]
    assert balance["largest_share_of_rows_over_half"] == 1.0


def test_the_packages_own_time_is_given_by_rows(result):
    for path in ("no_collapse", "half_collapsed"):
        times = result["no_collapse"]["seam_ms"][path]
        assert list(times) == ["16", "64", "128", "512"]
        assert 0 < times["16"] < times["512"]
