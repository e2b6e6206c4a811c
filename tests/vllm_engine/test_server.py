"""vLLM as a server in processes of its own, started as `trl vllm-serve` starts it.

One thing differs from a run on GPUs and is test equipment: weights travel through a file instead of NCCL
(`engines.FileClient` and `server_worker.ReloadFromFile`).
"""

from __future__ import annotations

import checks
import launcher
import pytest
import strategies


@pytest.fixture(scope="module")
def served_by(tmp_path_factory):
    """The settings of a trainer that generates through a running server; its limit is not among them."""
    with launcher.server(tmp_path_factory.mktemp("server"), max_model_len=checks.LIMIT) as url:
        yield {"vllm_mode": "server", "vllm_server_base_url": url}


@pytest.fixture(scope="module")
def served(served_by, tmp_path_factory):
    """A run on one rank with questions that leave a hint no room in what the server takes, and further runs."""
    given = {"long": checks.LONG, "further": strategies.CASES, **served_by}
    return launcher.train(tmp_path_factory.mktemp("served"), **given)[0]


@pytest.fixture(scope="module")
def ranks(served_by, tmp_path_factory):
    """A LoRA adapter trained on two ranks of six rows: a group of four is half on each, and so is its re-roll."""
    shape = {"processes": 2, "lora": True, "per_device_train_batch_size": 6, "further": strategies.CASES}
    return launcher.train(tmp_path_factory.mktemp("ranks"), **shape, **served_by)


@pytest.fixture(params=strategies.CASES)
def case(request, run):
    """The name of a strategy or construction, and what each rank saw of its run."""
    return request.param, [rank["further"][request.param] for rank in run]


@pytest.fixture(params=["served", "ranks"])
def run(request):
    """What each rank saw of either run; the main one talks to the server."""
    seen = request.getfixturevalue(request.param)
    return seen if isinstance(seen, list) else [seen]


def test_the_server_holds_the_policys_weights_after_every_reroll(run):
    checks.assert_engine_holds_the_policys_weights(run[0])
    assert {rank["generation"] for rank in run} == {"VLLMGeneration"}


def test_rerolled_rows_carry_log_probabilities_under_their_hinted_prompt(run):
    for rank in run:
        checks.assert_rows_were_sampled_under_the_prompt_they_are_trained_on(rank)


def test_a_completion_belongs_to_the_prompt_that_it_was_sampled_for(run):
    checks.assert_each_row_came_from_the_engine(run, run[0]["engine_calls"])


def test_the_server_is_sent_whole_groups_and_samples_a_reroll_like_the_first_roll(run):
    calls = run[0]["engine_calls"]
    checks.assert_rolls_and_rerolls_alternate_with_the_same_parameters(calls)
    assert "'n': 4" in calls[1]["params"]
    assert "'temperature': 0.9" in calls[1]["params"]
    rows = [prompt for rank in run for prompt, _ in rank["batches"][0]]
    assert all(len({tuple(prompt) for prompt in group}) == 1 for group in checks.groups(rows))


def test_mentoring_adds_no_weight_sync_and_each_completion_is_scored_once(served, ranks):
    assert [rank["syncs"] for rank in (served, *ranks)] == [4, 4, 4]
    assert served["scored"] == [len(call["completions"]) for call in served["engine_calls"]]
    assert [rank["scored"] for rank in ranks] == [[6, 2, 6, 4] * 2] * 2


def test_a_hint_too_long_for_the_server_never_reaches_it_though_no_setting_names_the_limit(served):
    checks.assert_no_question_is_cut_and_no_prompt_too_long(served["engine_calls"])


def test_whatever_the_strategy_the_server_holds_the_policys_weights_and_no_sync_is_added(case):
    _, ranks = case
    checks.assert_engine_holds_the_policys_weights(ranks[0])
    assert {rank["syncs"] for rank in ranks} == {4}


def test_each_row_of_a_strategys_reroll_was_sampled_under_its_own_prompt(case):
    # Of whole groups TRL sends one prompt for `num_generations` completions; that must not happen to differing ones.
    name, ranks = case
    calls = ranks[0]["engine_calls"]
    if name not in ("QuestA", "luffy"):  # which sample nothing again
        strategies.assert_rerolls_were_sampled_under_their_own_prompts(ranks, calls)
        alone = name in ("mixed", "scaffold", "critique")
        assert ["'n': 4" in call["params"] for call in calls[:2]] == [True, not alone]
    if name in ("mixed", "scaffold"):
        strategies.assert_prompts_differ_within_a_reroll(name, ranks)


def test_rows_scored_on_the_question_have_a_ratio_of_1_and_every_other_row_has_trls_own(case):
    name, ranks = case
    strategies.assert_moved_rows_have_a_ratio_of_1_and_others_trls_own(name, ranks)
    strategies.assert_trained_rows_are_what_the_strategy_wants(name, ranks, ranks[0]["engine_calls"])


def test_several_rounds_are_as_many_calls_to_the_server_with_the_same_parameters(served, ranks):
    strategies.assert_rounds_are_calls(served["further"]["dapo"]["engine_calls"], rows=16)
    strategies.assert_rounds_are_calls(ranks[0]["further"]["dapo"]["engine_calls"], rows=12)
