"""Two real processes (gloo): the same groups, the same rows, the work shared evenly, and no rank left waiting."""

from __future__ import annotations

from typing import Any

import distributed_run
import pandas as pd
import pytest

from trl_mentor import read_journal

G = 4
SHAPES: dict[str, dict[str, Any]] = {
    "one collapsed group on each rank": {"hard": [1, 3], "per_device_train_batch_size": 8},
    "collapse on the second rank only": {"hard": [2, 3], "per_device_train_batch_size": 8},
    "fewer rows per device than a group has": {
        "hard": [1, 3],
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 4,
    },
}
CASES: dict[str, dict[str, Any]] = {
    **{f"{name}, plain": {**shape, "mentor_strategy": "none"} for name, shape in SHAPES.items()},
    **SHAPES,
    # 24 rows in groups of 8 on two ranks of 12: group 1 is half on each rank
    "straddling": {"hard": [1], "per_device_train_batch_size": 12, "num_generations": 8},
    "logging": {"hard": [2], "per_device_train_batch_size": 8},
    **{
        mentor: {"hard": [1, 3, 5, 7], "per_device_train_batch_size": 8, "max_steps": 2, "mentor": mentor}
        for mentor in ("hangs", "raises")
    },
    # Group 1 of 8 rows is half on each rank: what the rank without an error judged still counts.
    "a verifier that raises on one rank": {
        "hard": [0, 1, 2, 3, 4, 5],
        "per_device_train_batch_size": 12,
        "num_generations": 8,
        "max_steps": 2,
        "mentor_reward_errors": "unscorable",
    },
    "card and tracker": {
        **SHAPES["one collapsed group on each rank"],
        "report_to": ["tensorboard"],
        "save_strategy": "steps",
        "save_steps": 1,
    },
    # Three rows on two ranks: one of them is generated twice.
    "padded": {"hard": [1], "per_device_train_batch_size": 6, "num_generations": 3, "max_steps": 2},
    "broken strategy": {"hard": [1], "per_device_train_batch_size": 8, "strategy_raises": True},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("two_ranks")


@pytest.fixture(scope="module")
def seen(folder) -> dict[str, list[dict]]:
    """What each of two ranks saw of each case."""
    return distributed_run.launch(folder, CASES, processes=2)


def all_rows(ranks: list[dict], batch: int = 0) -> list:
    return [row for rank in ranks for row in rank["batches"][batch]]


@pytest.mark.parametrize("shape", SHAPES)
def test_exactly_the_rows_of_collapsed_groups_change(seen, shape):
    plain, ranks = all_rows(seen[f"{shape}, plain"]), seen[shape]
    after = all_rows(ranks)
    changed = [row for row in range(16) if plain[row] != after[row]]
    assert changed == [row for row in range(16) if row // G in SHAPES[shape]["hard"]]
    assert [rank["totals"]["rescued"] for rank in ranks] == [2, 2]
    shares = [[len(call["answer"]) for call in rank["calls"] if call["roll"] == "second"] for rank in ranks]
    assert shares == [[4], [4]]


@pytest.mark.parametrize("case", [case for case in CASES if case != "broken strategy"])
def test_the_bill_has_every_token_that_some_rank_generated(seen, case):
    ranks = seen[case]
    totals = ranks[0]["totals"]
    assert totals["policy_tokens"] == sum(rank["generated"] for rank in ranks) > 0
    assert (totals["padding_tokens"] > 0) == (case == "padded")
    assert [bool(rank["totals"]["mentor"]["roles"]) for rank in ranks[1:]] == [False]


def test_groups_that_straddle_ranks_are_rerolled_whole_and_logged_beside_their_rows(seen, folder):
    ranks, run = seen["straddling"], folder / "straddling" / "run"
    rows = all_rows(ranks)
    hinted = [row for row, (prompt, _) in enumerate(rows) if len(prompt) > 2]
    assert hinted == list(range(8, 16))
    assert [rank["totals"]["rescued"] for rank in ranks] == [1, 1]
    table = pd.read_parquet(run / "completions" / "completions_00001.parquet")
    expected = [f"{'second' if row in hinted else 'first'} answer-{row // 8}" for row in range(24)]
    assert table["seen"].tolist() == expected
    assert [bool(hint) for hint in table["mentor/hint"]] == [row in hinted for row in range(24)]
    (record,) = read_journal(run)
    assert len(record.group.attempts) == len(record.completions) == 8
    assert record.group.answer == "answer-1"


def test_metrics_of_reward_functions_are_averaged_over_first_rolls_only(seen):
    log = seen["logging"][0]["log"][0]
    assert log["rolls"] == 1.0
    assert log["mentor/reroll/rolls"] == 2.0


def test_only_the_main_process_writes_the_model_card_and_the_tables_of_a_tracker(seen, folder):
    run = folder / "card and tracker" / "run"
    card = (run / "README.md").read_text()
    assert card.count("## Mentoring") == 1
    assert "| Processes, seed | 2, 7 |" in card
    (events,) = (run / "runs").rglob("events.*")
    assert b"mentor/interventions" in events.read_bytes()


def test_a_bug_in_a_strategy_ends_every_rank_instead_of_leaving_one_waiting(seen):
    ranks = seen["broken strategy"]
    assert ranks[0]["error"] == "a bug in prepare"
    assert ranks[1]["error"] == "the main process failed: RuntimeError: a bug in prepare"


def test_a_verifier_that_raises_on_one_rank_costs_the_groups_of_that_rank_and_leaves_none_waiting(seen, folder):
    ranks, run = seen["a verifier that raises on one rank"], folder / "a verifier that raises on one rank" / "run"
    assert [(rank["error"], rank["steps"]) for rank in ranks] == [(None, 2)] * 2
    first, second, third, *later = read_journal(run)
    assert [len(item.group.attempts) for item in (first, second, third)] == [8, 4, 8]
    assert [item.completions != () for item in (first, second, third)] == [True, True, False]
    assert third.group.cause == "verifier_error"
    assert "OSError: no sandbox" in third.group.cause_detail
    assert all(item.completions for item in later)
    counted = [
        (rank["totals"]["cause_verifier_error"], rank["totals"]["reward_errors"], rank["totals"]["unscorable"])
        for rank in ranks
    ]
    assert counted == [(1, 1, 1)] * 2


@pytest.mark.parametrize("mentor", ["hangs", "raises"])
def test_a_mentor_that_hangs_or_raises_leaves_no_rank_waiting(seen, folder, mentor):
    ranks = seen[mentor]
    assert [rank["error"] for rank in ranks] == [None, None]
    assert [(rank["totals"]["batches"], rank["totals"]["skipped"]) for rank in ranks] == [(2, 4), (2, 4)]
    assert all(len(prompt) == 2 for prompt, _ in all_rows(ranks))
    assert len(read_journal(folder / mentor / "run")) == 4
