"""One engine per rank on two real processes (gloo)."""

from __future__ import annotations

import checks
import launcher
import pytest
import strategies


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """Two ranks of six rows: the second of three groups is half on each, and so is its re-roll."""
    shape = {"processes": 2, "per_device_train_batch_size": 6}
    return launcher.train(tmp_path_factory.mktemp("ranks"), **shape, further=strategies.CASES)


@pytest.fixture(params=strategies.CASES)
def case(request, ranks):
    """The name of a strategy or construction, what each rank saw of its run, and the calls to both engines."""
    found = [rank["further"][request.param] for rank in ranks]
    return request.param, found, [call for rank in found for call in rank["engine_calls"]]


def test_both_engines_hold_the_policys_weights_after_every_reroll(ranks):
    for rank in ranks:
        checks.assert_engine_holds_the_policys_weights(rank)


def test_rerolled_rows_of_both_ranks_carry_log_probabilities_under_their_hinted_prompt(ranks):
    for rank in ranks:
        checks.assert_rows_were_sampled_under_the_prompt_they_are_trained_on(rank)
        assert checks.hinted([rank])
    checks.assert_each_row_came_from_the_engine(ranks, [call for rank in ranks for call in rank["engine_calls"]])


def test_the_reroll_is_shared_evenly_and_sampled_like_the_first_roll(ranks):
    for rank in ranks:
        checks.assert_rolls_and_rerolls_alternate_with_the_same_parameters(rank["engine_calls"])
        assert [len(call["prompts"]) for call in rank["engine_calls"]] == [6, 2, 6, 4] * 2
        assert rank["scored"] == [6, 2, 6, 4] * 2
        assert rank["syncs"] == 4


def test_whatever_the_strategy_both_engines_hold_the_policys_weights_and_no_sync_is_added(case):
    _, ranks, _ = case
    for rank in ranks:
        checks.assert_engine_holds_the_policys_weights(rank)
        assert rank["syncs"] == 4


def test_rows_of_every_strategy_were_sampled_under_their_own_prompts_and_have_the_ratio_that_follows(case):
    name, ranks, calls = case
    if name not in ("QuestA", "luffy"):  # which sample nothing again
        strategies.assert_rerolls_were_sampled_under_their_own_prompts(ranks, calls)
    if name in ("mixed", "scaffold"):
        strategies.assert_prompts_differ_within_a_reroll(name, ranks)
    strategies.assert_moved_rows_have_a_ratio_of_1_and_others_trls_own(name, ranks)
    strategies.assert_trained_rows_are_what_the_strategy_wants(name, ranks, calls)
