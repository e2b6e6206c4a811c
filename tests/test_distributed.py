"""Two real processes (gloo): the same groups, the same rows, the work shared evenly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from trl_mentor import read_journal

HERE = Path(__file__).parent
G = 4


def launch(out: Path, *, processes: int = 2, **options) -> list[dict]:
    """What each rank saw of a run with four groups of four in its generation batch."""
    out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    result = subprocess.run(
        [*command, str(HERE / "distributed_run.py"), str(out), json.dumps(options)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    ranks = [json.loads((out / f"rank{rank}.json").read_text()) for rank in range(processes)]
    assert [rank["processes"] for rank in ranks] == [processes] * processes
    return ranks


def all_rows(ranks: list[dict], batch: int = 0) -> list:
    return [row for rank in ranks for row in rank["batches"][batch]]


@pytest.mark.parametrize(
    ("hard", "per_device", "accumulation"),
    [
        ([1, 3], 8, 1),  # one collapsed group on each rank
        ([2, 3], 8, 1),  # collapse on the second rank only
        ([1, 3], 2, 4),  # fewer rows per device than a group has
    ],
)
def test_exactly_the_rows_of_collapsed_groups_change(tmp_path, hard, per_device, accumulation):
    shape = {"hard": hard, "per_device_train_batch_size": per_device, "gradient_accumulation_steps": accumulation}
    plain = all_rows(launch(tmp_path / "plain", mentor_strategy="none", **shape))
    ranks = launch(tmp_path / "mentor", **shape)
    after = all_rows(ranks)
    changed = [row for row in range(16) if plain[row] != after[row]]
    assert changed == [row for row in range(16) if row // G in hard]
    assert [rank["totals"]["rescued"] for rank in ranks] == [2, 2]
    shares = [[len(call["answer"]) for call in rank["calls"] if call["roll"] == "second"] for rank in ranks]
    assert shares == [[4], [4]]


def test_groups_that_straddle_ranks_are_rerolled_whole_and_logged_beside_their_rows(tmp_path):
    # 24 rows in groups of 8 on two ranks of 12: group 1 is half on each rank
    ranks = launch(tmp_path, hard=[1], per_device_train_batch_size=12, num_generations=8)
    rows = all_rows(ranks)
    hinted = [row for row, (prompt, _) in enumerate(rows) if len(prompt) > 2]
    assert hinted == list(range(8, 16))
    assert [rank["totals"]["rescued"] for rank in ranks] == [1, 1]
    table = pd.read_parquet(tmp_path / "run" / "completions" / "completions_00001.parquet")
    expected = [f"{'second' if row in hinted else 'first'} answer-{row // 8}" for row in range(24)]
    assert table["seen"].tolist() == expected
    assert [bool(hint) for hint in table["mentor/hint"]] == [row in hinted for row in range(24)]
    (record,) = read_journal(tmp_path / "run")
    assert len(record.group.attempts) == len(record.completions) == 8
    assert record.group.answer == "answer-1"


def test_metrics_of_reward_functions_are_averaged_over_first_rolls_only(tmp_path):
    ranks = launch(tmp_path, hard=[2], per_device_train_batch_size=8)
    log = ranks[0]["log"][0]
    assert log["rolls"] == 1.0
    assert log["mentor/reroll/rolls"] == 2.0


def test_three_ranks_share_two_groups_with_padding_that_is_dropped(tmp_path):
    ranks = launch(tmp_path, processes=3, hard=[0, 4], per_device_train_batch_size=8)
    shares = [len(call["answer"]) for rank in ranks for call in rank["calls"] if call["roll"] == "second"]
    assert shares == [4, 4, 4]
    assert [rank["totals"]["reroll_completions"] for rank in ranks] == [8, 8, 8]
    assert [row for row, (prompt, _) in enumerate(all_rows(ranks)) if len(prompt) > 2] == [0, 1, 2, 3, 16, 17, 18, 19]


def test_a_bug_in_a_strategy_ends_every_rank_instead_of_leaving_one_waiting(tmp_path):
    ranks = launch(tmp_path, hard=[1], per_device_train_batch_size=8, strategy_raises=True)
    assert ranks[0]["error"] == "a bug in prepare"
    assert ranks[1]["error"] == "the main process failed: RuntimeError: a bug in prepare"


@pytest.mark.parametrize("mentor", ["hangs", "raises"])
def test_a_mentor_that_hangs_or_raises_leaves_no_rank_waiting(tmp_path, mentor):
    ranks = launch(tmp_path, hard=[1, 3, 5, 7], per_device_train_batch_size=8, max_steps=2, mentor=mentor)
    assert [rank["error"] for rank in ranks] == [None, None]
    assert [(rank["totals"]["batches"], rank["totals"]["skipped"]) for rank in ranks] == [(2, 4), (2, 4)]
    assert all(len(prompt) == 2 for prompt, _ in all_rows(ranks))
    assert len(read_journal(tmp_path / "run")) == 4
