"""vLLM in the trainer's own process, with TRL's sync replaced as `trl_mentor/vllm_cpu.py` does on a CPU."""

from __future__ import annotations

import math

import checks
import launcher
import pytest


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run in which collapsed groups are left as they are."""
    return launcher.train(tmp_path_factory.mktemp("plain"), mentor_strategy="none")[0]


@pytest.fixture(scope="module")
def mentored(tmp_path_factory):
    """A run in which two of the four groups collapse in each batch and are re-rolled."""
    return launcher.train(tmp_path_factory.mktemp("mentored"))[0]


@pytest.fixture(scope="module")
def robust(tmp_path_factory):
    """A run in which one success of a re-rolled group takes the place of a failure and is scored on the question."""
    return launcher.train(tmp_path_factory.mktemp("robust"), mentor_preset="robust")[0]


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    """A run that trains a LoRA adapter, with questions that leave a hint no room in the engine's context."""
    out = tmp_path_factory.mktemp("adapted")
    return launcher.train(out, tied=False, lora=True, long=checks.LONG, vllm_max_model_length=checks.LIMIT)[0]


@pytest.mark.parametrize("name", ["plain", "mentored", "adapted"])
def test_the_engine_holds_the_policys_weights_after_every_reroll(name, request):
    checks.assert_engine_holds_the_policys_weights(request.getfixturevalue(name))


@pytest.mark.parametrize("name", ["mentored", "adapted"])
def test_rerolled_rows_carry_log_probabilities_under_their_hinted_prompt(name, request):
    run = request.getfixturevalue(name)
    checks.assert_rows_were_sampled_under_the_prompt_they_are_trained_on(run)
    checks.assert_each_row_came_from_the_engine([run], run["engine_calls"])


def test_rows_scored_on_the_question_have_a_ratio_of_1_and_every_other_row_has_trls_own(robust):
    ratios = [ratio for batch in robust["ratios"] for ratio in batch]
    moved = [ratio["found"] for ratio in ratios if math.isnan(ratio["own"])]
    assert moved == [1.0] * robust["off_context_rows"] == [1.0] * 8
    others = [ratio for ratio in ratios if not math.isnan(ratio["own"])]
    assert [ratio["found"] for ratio in others] == pytest.approx([ratio["own"] for ratio in others], rel=1e-6)
    assert any(ratio["found"] != 1.0 for ratio in others)
    prompts = [prompt for batch in robust["batches"] for prompt, _ in batch]
    assert {len(prompt) for prompt in prompts} == {2}
    assert max(entry["sampling/sampling_logp_difference/max"] for entry in robust["log"][:4]) < checks.CLOSE


@pytest.mark.parametrize("name", ["mentored", "adapted"])
def test_a_reroll_is_sampled_like_the_first_roll(name, request):
    calls = request.getfixturevalue(name)["engine_calls"]
    checks.assert_rolls_and_rerolls_alternate_with_the_same_parameters(calls)
    assert "temperature=0.9" in calls[1]["params"]


def test_a_mentor_on_an_engine_of_its_own_is_refused_beside_the_trainers(mentored):
    assert "holds a vLLM engine already" in mentored["refusal"]


def test_mentoring_adds_no_weight_sync(plain, mentored, adapted):
    assert plain["syncs"] == 4
    assert mentored["syncs"] <= plain["syncs"]
    assert adapted["syncs"] <= plain["syncs"]


def test_each_completion_is_scored_once(plain, mentored):
    assert plain["scored"] == [16] * 4
    assert mentored["scored"] == [16, 8] * 4
    assert mentored["scored"] == [len(call["completions"]) for call in mentored["engine_calls"]]
    assert mentored["rescued"] == 8


def test_a_hint_too_long_for_the_engine_never_cuts_the_question(adapted):
    checks.assert_no_question_is_cut_and_no_prompt_too_long(adapted["engine_calls"])


def test_the_engine_still_packs_its_weights(mentored):
    # If this fails, see whether TRL's own sync works on a CPU again and `trl_mentor/vllm_cpu.py` can go.
    assert mentored["generation"] == "CPUGeneration"
    assert min(mentored["packed"]) > 0


def test_sleep_mode_is_refused_by_vllm_on_a_cpu(tmp_path):
    code, output = launcher.attempt(tmp_path, vllm_enable_sleep_mode=True)
    assert code != 0
    assert "Sleep mode is not supported on current platform" in output
