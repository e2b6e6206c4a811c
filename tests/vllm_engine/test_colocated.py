"""vLLM in the trainer's own process, with TRL's sync replaced as `trl_mentor/vllm_cpu.py` does on a CPU."""

from __future__ import annotations

import checks
import launcher
import pytest
import strategies


@pytest.fixture(scope="module")
def mentored(tmp_path_factory):
    """A run in which two of the four groups collapse in each batch and are re-rolled, and further ones after it."""
    further = {"plain": {"mentor_strategy": "none"}, **strategies.CASES}
    return launcher.train(tmp_path_factory.mktemp("mentored"), further=further)[0]


@pytest.fixture
def plain(mentored):
    """A run in which collapsed groups are left as they are."""
    return mentored["further"]["plain"]


@pytest.fixture(params=strategies.CASES)
def case(request, mentored):
    """The name of a strategy or construction, and its run."""
    return request.param, mentored["further"][request.param]


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


def test_whatever_the_strategy_the_engine_holds_the_policys_weights_and_no_sync_is_added(case):
    _, run = case
    checks.assert_engine_holds_the_policys_weights(run)
    assert run["syncs"] == 4


def test_each_row_of_a_strategys_reroll_was_sampled_under_its_own_prompt(case):
    name, run = case
    if name not in ("QuestA", "luffy"):  # which sample nothing again
        strategies.assert_rerolls_were_sampled_under_their_own_prompts([run], run["engine_calls"])
    if name in ("mixed", "scaffold"):
        strategies.assert_prompts_differ_within_a_reroll(name, [run])


def test_rows_scored_on_the_question_have_a_ratio_of_1_and_every_other_row_has_trls_own(case):
    name, run = case
    strategies.assert_moved_rows_have_a_ratio_of_1_and_others_trls_own(name, [run])
    strategies.assert_trained_rows_are_what_the_strategy_wants(name, [run], run["engine_calls"])


def test_several_rounds_are_as_many_calls_to_the_engine_with_the_same_parameters(mentored):
    strategies.assert_rounds_are_calls(mentored["further"]["dapo"]["engine_calls"], rows=16)


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
