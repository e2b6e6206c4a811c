"""Every strategy in two real processes (gloo), with collapse on one rank, both or none: no rank is left waiting."""

from __future__ import annotations

from typing import Any

import distributed_run
import pytest

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


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> dict[str, list[dict]]:
    """What each of two ranks saw of each case."""
    shape = {"per_device_train_batch_size": 8, "max_steps": STEPS, "material": True}
    cases = {}
    for name, options in CASES.items():
        chosen = dict(options)
        reroll = chosen.pop("reroll", "m")
        rolls = {"first": FIRST, "mentor/reroll": {str(number): reroll for number in range(4)}}
        cases[name] = {"rolls": rolls, **shape, **chosen}
    return distributed_run.launch(tmp_path_factory.mktemp("strategies"), cases, processes=2)


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


@pytest.mark.parametrize("case", [name for name in CASES if name not in ("none", "QuestA", "srpo")][:-1])
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
    selected = dict.fromkeys(("luffy", "critique", "critique, text"), GROUPS)
    selected |= dict.fromkeys(("dapo", "dapo, its own prompt"), COLLAPSED + ALL_RIGHT)
    assert total(ranks, "other_groups") == selected.get(case, COLLAPSED) - COLLAPSED
