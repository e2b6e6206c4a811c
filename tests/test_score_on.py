"""Rows scored under another prompt than they were sampled under: each log-probability is that of the scored prompt."""

from __future__ import annotations

import by_hand
import distributed_run
import engines
import pandas as pd
import pytest
import tiny
import torch

from trl_mentor import read_journal

NEW = range(4, 8)
"""The rows of a re-rolled group, under `replace`."""


@pytest.mark.parametrize("mode", ["sequence_mask", "token_truncate"])
def test_the_correction_of_the_sampler_is_1_for_these_rows_and_trls_own_for_all_others(tmp_path, mode):
    options = {"mentor_preset": "robust", "vllm_importance_sampling_mode": mode}
    trainer = tiny.trained(tmp_path, cls=engines.FromAnotherEngine, **options)
    (batch,) = trainer.batches
    mask = batch["completion_mask"]
    difference = (batch["old_per_token_logps"] + 1.0) * mask
    if mode == "sequence_mask":  # beyond the limit of 3, TRL leaves a row out
        own = difference.sum(dim=1, keepdim=True).exp()
        own = own.masked_fill(own > 3.0, 0.0)
    else:
        own = difference.exp().clamp(max=3.0)
    ratio, moved = batch["importance_sampling_ratio"], batch["sampling_per_token_logps"].isnan().any(dim=1)
    assert moved.sum() == trainer.mentor_totals.off_context_rows == 2
    assert torch.equal(ratio[moved], torch.ones_like(ratio[moved]))
    assert torch.allclose(ratio[~moved], own[~moved])
    assert not torch.allclose(own[moved], torch.ones_like(own[moved]), atol=0.01)
    assert all(torch.isfinite(parameter).all() for parameter in trainer.model.parameters())
    (log,) = [entry for entry in trainer.state.log_history if "loss" in entry]
    seen = (batch["old_per_token_logps"] + 1.0)[~moved].abs()[mask[~moved].bool()]
    assert log["sampling/sampling_logp_difference/max"] == pytest.approx(seen.max().item(), rel=1e-4)


def test_old_and_reference_log_probabilities_are_those_on_the_question(tmp_path):
    tiny.model().save_pretrained(tmp_path / "model")
    trainer = tiny.Recorder(
        str(tmp_path / "model"),
        reward_funcs=tiny.HardRowsFail(),
        args=tiny.config(tmp_path / "run", mentor_score_on="original", beta=0.1, num_iterations=2, max_steps=2),
        train_dataset=tiny.dataset(),
        processing_class=tiny.tokenizer(),
        mentor=tiny.mentor(),
    )
    trainer.train()
    batch, policy = trainer.batches[0], tiny.load(tmp_path / "model").eval()
    rows = tiny.rows(batch)
    assert all(len(rows[i][0]) == 2 for i in NEW)
    for i in NEW:
        expected = by_hand.mean_logp(policy, *rows[i])
        under_hint = by_hand.mean_logp(policy, by_hand.PREFIX + rows[i][0], rows[i][1])
        assert abs(expected - under_hint) > 1e-4
        for name in ("old_per_token_logps", "ref_per_token_logps"):
            mean = batch[name][i][: len(rows[i][1])].mean().item()
            assert mean == pytest.approx(expected, abs=1e-5)


def test_the_gradient_is_that_of_the_answer_to_the_question(tmp_path):
    # With everything else at advantage 0: one step of plain gradient descent on these rows, by hand.
    options = {"max_grad_norm": 0.0, "optim": "sgd", "loss_type": "grpo", "lr_scheduler_type": "constant"}
    reward = tiny.HardRowsFail(easy=(1.0,))
    trainer = tiny.trained(tmp_path, reward=reward, mentor_preset="robust", **options)
    (batch,) = trainer.batches
    by_hand_model = tiny.model()
    loss = torch.zeros(())
    for (prompt, completion), advantage in zip(tiny.rows(batch), batch["advantages"], strict=True):
        logits = by_hand_model(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1]
        chosen = logits.log_softmax(dim=-1)[range(len(completion)), list(completion)]
        loss = loss - advantage * chosen.mean() / 16
    loss.backward()
    for trained, before in zip(trainer.model.parameters(), by_hand_model.parameters(), strict=True):
        assert torch.allclose(trained, before - 1e-2 * before.grad, atol=1e-6)


def test_rewards_the_journal_and_the_table_show_what_was_sampled_and_no_reward_sees_a_hint(tmp_path):
    reward = tiny.HardRowsFail()
    trainer = tiny.trained(tmp_path, reward=reward, mentor_preset="robust", log_completions=True)
    assert all(tiny.HINT not in str(call["prompts"]) for call in reward.calls)
    records = read_journal(tmp_path)
    assert [record.successes for record in records] == [(1.0, 0.0, 1.0, 0.0)] * 2
    assert [len(record.completions) for record in records] == [4, 4]
    table = pd.read_parquet(tmp_path / "completions" / "completions_00001.parquet")
    rescued = [i for i, hint in enumerate(table["mentor/hint"]) if hint]
    assert [i // 4 for i in rescued] == [1, 3]
    assert table["verifier"][rescued].tolist() == [1.0, 1.0]
    assert table["seen"][rescued].tolist() == ["second answer-1", "second answer-3"]
    assert table["prompt"].tolist() == [f"w{i // 4} w{i // 4}" for i in range(16)]
    assert [table["completion"][i] in record.completions for i, record in zip(rescued, records, strict=True)] == [
        True
    ] * 2
    assert (trainer.mentor_totals.rescued, trainer.mentor_totals.hint_saturated) == (2, 0)


@pytest.mark.parametrize("strip", [True, False])
def test_a_quoted_hint_is_cut_from_rows_on_the_question_and_the_rest_stays_as_sampled(tmp_path, strip):
    options = {"mentor_score_on": "original", "mentor_strip_echo": strip}
    trainer = tiny.trained(tmp_path / "a", cls=engines.QuotesTheHint, **options)
    sampled = tiny.rows(tiny.trained(tmp_path / "b", cls=engines.QuotesTheHint).batches[0])
    rows, cut = tiny.rows(trainer.batches[0]), 5 if strip else 0
    for i in NEW:
        assert rows[i][1] == sampled[i][1][cut:]
    totals = trainer.mentor_totals
    assert (totals.echoes, totals.echo_tokens) == ((8, 40) if strip else (0, 0))
    assert all(record.completions[0].startswith(f"Hint : {tiny.HINT}") for record in read_journal(tmp_path / "a"))


def test_a_quoted_hint_stays_in_rows_that_are_scored_under_it(tmp_path):
    trainer = tiny.trained(tmp_path, cls=engines.QuotesTheHint, mentor_strip_echo=True)
    assert trainer.mentor_totals.echoes == 0
    assert {len(completion) for _, completion in tiny.rows(trainer.batches[0])[4:8]} == {11}


def test_a_success_that_is_an_original_failure_word_for_word_is_counted(tmp_path):
    class Repeats(tiny.Recorder):
        def _generate_single_turn(self, prompt_ids, *args, **kwargs):
            completions, *rest = super()._generate_single_turn(prompt_ids, *args, **kwargs)
            return [[12, 13]] * len(completions), *rest

    totals = tiny.trained(tmp_path, cls=Repeats).mentor_totals
    assert (totals.reroll_successes, totals.conflicts) == (4, 4)


def test_two_processes_with_uneven_collapse_train_the_same_construction(tmp_path):
    shape = {"num_generations": 4, "per_device_train_batch_size": 8, "max_steps": 2, "rows": 8}
    # Rank 0 has groups 0 and 1, rank 1 has 2 and 3. Re-rolled groups are in turn rescued, saturated, still collapsed.
    cases = {"robust": {**shape, "patterns": ["cccm", "mmmc"], "mentor_preset": "robust"}}
    ranks = distributed_run.launch(tmp_path, cases)["robust"]
    by_rank = [[rank["advantages"][0][start : start + 4] for start in (0, 4)] for rank in ranks]
    groups = [sorted(round(value, 2) for value in group) for rank in by_rank for group in rank]
    assert groups == [[-0.5, -0.5, -0.5, 1.5]] * 2 + [[0.0] * 4, [-0.87, -0.87, 0.87, 0.87]]
    last = ranks[1]["advantages"][1][4:]
    assert sorted(round(value, 2) for value in last) == [-0.5, -0.5, -0.5, 1.5]
    assert all(len(prompt) == 2 for rank in ranks for batch in rank["batches"] for prompt, _ in batch)
    assert [rank["totals"]["off_context_rows"] for rank in ranks] == [3, 3]
    assert [rank["steps"] for rank in ranks] == [2, 2]
