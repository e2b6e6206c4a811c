"""Every strategy in two real processes (gloo), with collapse on one rank, both or none: no rank is left waiting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import distributed_run
import letters
import pytest
import tiny
import torch
from safetensors.torch import load_file

FIRST = {"0": "mcmc", "1": "mcam", "2": "ccmm", "3": "mcma"}
"""Prompts 0 and 1 live on rank 0, 2 and 3 on rank 1: step 0 collapses on rank 1 alone, step 1 everywhere, step 2
nowhere, step 3 on rank 0 alone."""
COLLAPSED = 1 + 4 + 0 + 1
ALL_RIGHT = 0 + 0 + 1 + 1
STEPS, GROUPS, G = 4, 16, 4

CASES: dict[str, dict[str, Any]] = {
    "none": {"mentor_strategy": "none"},
    "resample": {"mentor_strategy": "resample"},
    "paper": {},
    "robust": {"mentor_preset": "robust"},
    "robust, shaped": {"mentor_preset": "robust", "mentor_rescue_shaping": "luffy"},
    "mixed": {"mentor_rescue": "mixed"},
    "union of failures and successes": {"mentor_rescue": "union_success", "mentor_score_on": "original"},
    "adaptive": {"mentor_rescue": "adaptive"},
    "rounds": {"mentor_max_rounds": 3, "reroll": "c"},
    "dapo": {"mentor_strategy": "dapo", "mentor_max_rounds": 3},
    "dapo, its own prompt": {"mentor_strategy": "dapo", "mentor_dapo_refill": False, "mentor_max_rounds": 3},
    "HINT": {"mentor_strategy": "static_hint"},
    "QuestA": {
        "mentor_strategy": "static_hint",
        "mentor_static_hint": "prefix",
        "mentor_prefix_shares": [0.9, 0.8],  # a demonstration of fifteen characters shows nothing of less
    },
    "scaffold": {"mentor_strategy": "scaffold", "mentor_start_step": 0.0},
    "luffy": {"mentor_strategy": "luffy", "scale_rewards": "none"},
    "critique": {"mentor_strategy": "critique"},
    "critique, text": {"mentor_strategy": "critique", "mentor_critique": "text"},
    "srpo": {"mentor_strategy": "srpo"},
    "steps without gradient left out": {"mentor_strategy": "none", "mentor_skip_empty_steps": True},
}


ONE_BATCH = {"per_device_train_batch_size": 8, "mentor_routes": None}
SINGLE: dict[str, dict[str, Any]] = {
    "demonstrations": {
        **ONE_BATCH,
        "rolls": {"first": {"0": "c", "1": "m", "2": "a", "3": "c"}},
        "mentor_strategy": "luffy",
        "scale_rewards": "none",
        "mentor_demonstration_column": "prompt",  # so that the data set needs no further column
    },
    "refinements": {
        **ONE_BATCH,
        "rolls": {
            "first": {"0": "c", "1": "m", "2": "a", "3": "u"},
            "mentor/reroll": {"0": "m", "1": "m", "2": "c"},
        },
        "mentor_strategy": "critique",
    },
    "three places": {
        **ONE_BATCH,
        "rolls": {
            "first": {"0": "c", "1": "a", "2": "m", "3": "c"},
            "mentor/reroll": {str(number): "cam"[number % 3] for number in range(16)},
        },
        "mentor_strategy": "dapo",
        "rows": 16,
    },
    "signal on one rank": {
        **ONE_BATCH,
        "rolls": {"first": {"0": "mcc", "1": "mcc", "2": "mmc", "3": "mmc"}},
        "mentor_strategy": "none",
        "mentor_skip_empty_steps": True,
        "weight_decay": 0.1,
        "max_steps": 3,
        "save_strategy": "steps",
        "save_steps": 1,
    },
}
"""Cases with tests of their own, in the same launch, for to start two processes takes longer than they do."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where the runs are."""
    return tmp_path_factory.mktemp("strategies")


@pytest.fixture(scope="module")
def seen(folder) -> dict[str, list[dict]]:
    """What each of two ranks saw of each case."""
    shape = {"per_device_train_batch_size": 8, "max_steps": STEPS, "material": True}
    cases = {}
    for name, options in CASES.items():
        chosen = dict(options)
        reroll = chosen.pop("reroll", "m")
        rolls = {"first": FIRST, "mentor/reroll": {str(number): reroll for number in range(4)}}
        cases[name] = {"rolls": rolls, **shape, **chosen}
    return distributed_run.launch(folder, cases | SINGLE, processes=2)


@pytest.mark.parametrize("case", CASES)
def test_every_strategy_finishes_with_equal_totals_and_every_token_booked(seen, case):
    first, second = seen[case]
    if case == "QuestA":
        assert first["totals"]["opened_rows"] == GROUPS * G
    assert [first["steps"], second["steps"]] == [STEPS, STEPS]
    assert first["totals"]["groups"] == GROUPS
    assert first["totals"]["collapsed"] == COLLAPSED
    alike = {name for name in first["totals"] if name not in MAIN_ALONE}
    assert {name: first["totals"][name] for name in alike} == {name: second["totals"][name] for name in alike}
    assert first["totals"]["policy_tokens"] == first["generated"] + second["generated"]
    assert [len(batch) for batch in first["batches"]] == [len(batch) for batch in second["batches"]] == [8] * STEPS


MAIN_ALONE = {"mentor", "recovery", "seconds", "mentor_seconds", "reroll_seconds"}


def total(ranks: list[dict], name: str) -> int:
    return ranks[0]["totals"][name]


LEAVE_GROUPS_ALONE = {"none", "QuestA", "srpo", "steps without gradient left out"}


@pytest.mark.parametrize("case", [name for name in CASES if name not in LEAVE_GROUPS_ALONE])
def test_it_did_something_about_the_groups_that_it_selects(seen, case):
    ranks = seen[case]
    if case == "rounds":
        assert (total(ranks, "another_round"), total(ranks, "still_collapsed")) == (2 * COLLAPSED, COLLAPSED)
    elif case == "dapo":
        assert (total(ranks, "refilled"), total(ranks, "skipped")) == (COLLAPSED + ALL_RIGHT, COLLAPSED)
    elif case == "luffy":
        assert total(ranks, "given_rows") == GROUPS
    else:
        assert total(ranks, "rescued") == COLLAPSED
        own = case == "dapo, its own prompt"  # which fills the places of groups that are all right, too
        assert with_gradient(ranks) == (GROUPS if own else GROUPS - ALL_RIGHT)
    selected = dict.fromkeys(("luffy", "critique", "critique, text"), GROUPS)
    selected |= dict.fromkeys(("dapo", "dapo, its own prompt"), COLLAPSED + ALL_RIGHT)
    assert total(ranks, "other_groups") == selected.get(case, COLLAPSED) - COLLAPSED


def with_gradient(ranks: list[dict]) -> int:
    """In how many places of a group the rows that are trained have advantages."""
    batches = [torch.tensor(batch) for rank in ranks for batch in rank["advantages"]]
    return sum(int(group.any()) for batch in batches for group in batch.split(G))


def test_groups_that_are_left_alone_have_no_gradient(seen):
    assert with_gradient(seen["none"]) == GROUPS - ALL_RIGHT - COLLAPSED


def test_demonstrations_are_placed_as_one_process_does_it(seen):
    ranks = seen["demonstrations"]
    rows = [tuple(map(tuple, row)) for rank in ranks for row in rank["batches"][0]]
    for group in range(4):
        prompt = rows[4 * group][0]
        assert rows[4 * group + 3] == (prompt, (*prompt, 1))
    assert total(ranks, "given_rows") == 4
    assert total(ranks, "policy_tokens") == sum(rank["generated"] for rank in ranks)


def test_refinements_are_shared_evenly(seen):
    ranks = seen["refinements"]
    calls = [[call for call in rank["calls"] if call["kind"] == "mentor/reroll"] for rank in ranks]
    assert [[len(call["answer"]) for call in mine] for mine in calls] == [[6], [6]]
    answers = [name for mine in calls for call in mine for name in call["answer"]]
    assert answers == [f"answer-{row // 4}" for row in range(12)]
    advantages = [value for rank in ranks for value in rank["advantages"][0]]
    assert advantages[:4] == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-3)
    assert advantages[4:8] == pytest.approx([0.5, 0.5, -1.5, 0.5], abs=1e-3)  # 1 | 1 0 1
    assert (total(ranks, "rescued"), total(ranks, "other_groups"), total(ranks, "unscorable")) == (1, 2, 1)


def test_three_places_are_filled_as_one_process_does_it(seen, tmp_path):
    ranks, case = seen["three places"], dict(SINGLE["three places"])
    case.pop("per_device_train_batch_size")
    alone = letters.trained(tmp_path, case.pop("rolls"), **case)
    both = [tuple(rank["batches"][0][row][0]) for rank in ranks for row in (0, 4)]
    assert both == [prompt for prompt, _ in tiny.rows(alone.batches[0])[::4]]
    assert all(any(rank["advantages"][0][row : row + 4]) for rank in ranks for row in (0, 4))
    assert (total(ranks, "refilled"), total(ranks, "other_groups"), total(ranks, "skipped")) == (3, 1, 2)
    first, second = ([call["answer"] for call in rank["calls"]] for rank in ranks)
    assert list(map(len, first)) == list(map(len, second))  # each rank generates as much


def test_all_ranks_step_where_one_alone_has_a_signal(seen, folder):
    # The first rank has the prompts 0 and 1, the second 2 and 3.
    assert [rank["totals"]["skipped_steps"] for rank in seen["signal on one rank"]] == [1, 1]
    run = folder / "signal on one rank" / "run"
    first, second, third = (load_file(run / f"checkpoint-{step}" / "model.safetensors") for step in (1, 2, 3))
    assert any(not torch.equal(first[name], second[name]) for name in first)
    assert all(torch.equal(second[name], third[name]) for name in second)
