"""The seam with TRL, always through `trainer.train()` on a tiny real policy."""

from __future__ import annotations

import copy
import math
import threading
import time

import pandas as pd
import pytest
import said
import tiny
import torch
from datasets import Dataset
from transformers import ProcessorMixin
from trl import GRPOConfig, GRPOTrainer

from trl_mentor import Mentor, MentorGRPOTrainer, ScriptedBackend, read_journal
from trl_mentor.errors import ConfigError
from trl_mentor.records import HintOrigin, Lesson, Reply, RerollOutcome, Role, Usage
from trl_mentor.strategies.mentor import MentorStrategy
from trl_mentor.strategies.resample import ResampleStrategy

HARD = [row for row in range(16) if row // 4 in (1, 3)]
"""Rows of groups 1 and 3, the ones that collapse in `tiny.dataset`."""


def changed_rows(plain, mentored):
    pairs = zip(tiny.rows(plain.batches[0]), tiny.rows(mentored.batches[0]), strict=True)
    return [index for index, (before, after) in enumerate(pairs) if before != after]


@pytest.mark.parametrize("per_device", [16, 2])
def test_exactly_the_rows_of_collapsed_groups_change_prompt_and_completion(tmp_path, per_device):
    shape = {"per_device_train_batch_size": per_device, "gradient_accumulation_steps": 16 // per_device}
    plain = tiny.trained(tmp_path / "a", mentor_strategy="none", reward=tiny.HardRowsFail(rerolls=False), **shape)
    mentored = tiny.trained(tmp_path / "b", **shape)
    assert changed_rows(plain, mentored) == HARD
    hinted = tiny.tokenizer()(f"Hint: {tiny.HINT}\n\nOriginal question: w1 w1")["input_ids"]
    after = tiny.rows(mentored.batches[0])
    assert [after[row][0] for row in range(4, 8)] == [tuple(hinted)] * 4
    assert all(tiny.rows(plain.batches[0])[row][1] != after[row][1] for row in HARD)


def test_with_nothing_collapsed_rows_losses_and_keys_equal_plain_trl(tmp_path):
    def train(cls, name, **extra):
        trainer = cls(
            tiny.model(),
            reward_funcs=tiny.HardRowsFail(rerolls=False),
            args=tiny.config(tmp_path / name, max_steps=3, beta=0.0),
            train_dataset=tiny.dataset(hard=tiny.never),
            processing_class=tiny.tokenizer(),
            **extra,
        )
        trainer.train()
        return trainer

    plain, mentored = train(GRPOTrainer, "plain"), train(MentorGRPOTrainer, "mentor", mentor=tiny.mentor())
    timing = {"step_time", "train_runtime", "train_samples_per_second", "train_steps_per_second"}
    for before, after in zip(plain.state.log_history, mentored.state.log_history, strict=True):
        after = {key: value for key, value in after.items() if not key.startswith("mentor/")}
        assert after.keys() == before.keys()
        assert {k: v for k, v in after.items() if k not in timing} == {
            k: v for k, v in before.items() if k not in timing
        }
    pairs = zip(plain.model.parameters(), mentored.model.parameters(), strict=True)
    assert all(torch.equal(before, after) for before, after in pairs)


def test_each_completion_is_scored_once_and_rewards_see_the_original_prompt(tmp_path):
    reward = tiny.HardRowsFail()
    tiny.trained(tmp_path, reward=reward, max_steps=2)
    assert [call["roll"] for call in reward.calls] == ["first", "second"] * 2
    assert [len(call["completions"]) for call in reward.calls] == [16, 8, 16, 8]
    assert reward.calls[1]["prompts"] == ["w1 w1"] * 4 + ["w3 w3"] * 4
    assert reward.calls[1]["answer"] == ["answer-1"] * 4 + ["answer-3"] * 4


def test_inputs_and_data_set_are_untouched(tmp_path):
    data = tiny.dataset(conversational=True)
    before = copy.deepcopy(data.to_list())
    seen = []

    class Watcher(tiny.Recorder):
        def _generate_and_score_completions(self, inputs):
            kept = copy.deepcopy(inputs)
            output = super()._generate_and_score_completions(inputs)
            seen.append(kept == inputs)
            return output

    tiny.trained(tmp_path, data=data, cls=Watcher, max_steps=2)
    assert seen == [True, True]
    assert data.to_list() == before


def test_in_a_conversation_the_hint_enters_the_last_user_turn(tmp_path):
    reward = tiny.HardRowsFail()
    trainer = tiny.trained(tmp_path, reward=reward, data=tiny.dataset(conversational=True))
    expected = tiny.tokenizer().apply_chat_template(
        [
            {"role": "system", "content": "w20"},
            {"role": "user", "content": f"Hint: {tiny.HINT}\n\nOriginal question: w1 w1"},
        ],
        add_generation_prompt=True,
        return_dict=True,
    )["input_ids"]
    assert tiny.rows(trainer.batches[0])[4][0] == tuple(expected)
    assert reward.calls[1]["completions"][0][0]["role"] == "assistant"
    assert reward.calls[1]["prompts"][0][1]["content"] == "w1 w1"


def test_columns_of_reward_functions_and_the_hint_stand_beside_their_rows(tmp_path):
    tiny.trained(tmp_path, log_completions=True)
    table = pd.read_parquet(tmp_path / "completions" / "completions_00001.parquet")
    assert [bool(hint) for hint in table["mentor/hint"]] == [row in HARD for row in range(16)]
    assert set(table["mentor/hint"]) == {"", tiny.HINT}
    assert table["seen"].tolist() == [f"{'second' if row in HARD else 'first'} answer-{row // 4}" for row in range(16)]


def test_metrics_of_reward_functions_are_not_counted_twice(tmp_path):
    trainer = tiny.trained(tmp_path)
    assert trainer.state.log_history[0]["rolls"] == 1.0
    assert trainer.state.log_history[0]["mentor/reroll/rolls"] == 2.0


def test_trls_completion_metrics_describe_the_first_roll_and_its_token_count_includes_the_reroll(tmp_path):
    plain = tiny.trained(tmp_path / "a", mentor_strategy="none", reward=tiny.HardRowsFail(rerolls=False))
    mentored = tiny.trained(tmp_path / "b")
    before, after = plain.state.log_history[0], mentored.state.log_history[0]
    assert {k: v for k, v in after.items() if k.startswith("completions/")} == {
        k: v for k, v in before.items() if k.startswith("completions/")
    }
    hinted_prompt = 6 + 2  # template words and hint, then the question
    totals = mentored.mentor_totals
    assert after["num_tokens"] == before["num_tokens"] + 8 * hinted_prompt + totals.reroll_tokens
    assert totals.policy_tokens == plain.mentor_totals.policy_tokens + totals.reroll_tokens


@pytest.mark.parametrize(
    ("reroll", "outcome"),
    [
        ((0.0,), RerollOutcome.STILL_COLLAPSED),
        ((1.0,), RerollOutcome.HINT_SATURATED),
        ((None,), RerollOutcome.STILL_COLLAPSED),
    ],
)
def test_groups_that_stay_collapsed_or_are_saturated_have_no_advantage_and_are_counted_apart(
    tmp_path, reroll, outcome
):
    trainer = tiny.trained(tmp_path, reward=tiny.HardRowsFail(reroll))
    assert trainer.batches[0]["advantages"][HARD].tolist() == [0.0] * 8
    logged = trainer.state.log_history[0]
    assert logged[f"mentor/frac_{outcome}"] == 0.5
    assert logged["mentor/frac_rescued"] == 0.0
    assert [item.outcome for item in read_journal(tmp_path)] == [outcome, outcome]


def test_a_rescued_group_has_advantages_inside_the_new_group(tmp_path):
    trainer = tiny.trained(tmp_path, reward=tiny.HardRowsFail((1.0, 0.0, 0.0, 0.0)))
    values = trainer.batches[0]["advantages"][4:8].tolist()
    assert values == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-3)


def test_groups_without_a_hint_are_left_as_they_were_while_others_are_rescued(tmp_path):
    def one_question_fails(role, messages):
        if "w3 w3" in str(messages):
            raise ConnectionError("no route to mentor")
        return {Role.ATTRIBUTION: said.diagnosis("w1"), Role.GENERATION: tiny.HINT}.get(role, said.verdict("HIGH"))

    plain = tiny.trained(tmp_path / "a", mentor_strategy="none", reward=tiny.HardRowsFail(rerolls=False))
    mentored = tiny.trained(tmp_path / "b", mentor=Mentor(ScriptedBackend(one_question_fails)))
    assert changed_rows(plain, mentored) == [4, 5, 6, 7]
    first, second = read_journal(tmp_path / "b")
    assert (first.outcome, second.outcome) == (RerollOutcome.RESCUED, RerollOutcome.SKIPPED)
    assert second.guidance.origin is HintOrigin.FAILED
    assert "no route to mentor" in second.guidance.calls[0].error


def test_a_mentor_that_always_raises_never_stops_training(tmp_path):
    def down(role, messages):
        raise OSError("connection refused")

    trainer = tiny.trained(
        tmp_path,
        mentor=Mentor(ScriptedBackend(down), pause_after=99),
        reward=tiny.HardRowsFail(rerolls=False),
        max_steps=2,
    )
    assert trainer.state.global_step == 2
    assert {item.guidance.origin for item in read_journal(tmp_path)} == {HintOrigin.FAILED}
    assert trainer.mentor_totals.skipped == 4
    assert trainer.state.log_history[0]["mentor/frac_hint_failed"] == 0.5


def test_a_mentor_that_hangs_past_its_deadline_never_stops_training(tmp_path):
    release = threading.Event()

    def hang(role, messages):
        release.wait(60)
        return "too late"

    mentor = Mentor(ScriptedBackend(hang), deadline=0.3)
    trainer = tiny.trained(tmp_path, mentor=mentor, reward=tiny.HardRowsFail(rerolls=False), max_steps=2)
    release.set()
    assert trainer.state.global_step == 2
    journal = read_journal(tmp_path)
    assert {item.guidance.origin for item in journal} == {HintOrigin.FAILED}
    assert "deadline" in journal[0].guidance.reason


def test_a_mentor_that_answers_garbage_falls_back_to_the_safe_hint(tmp_path):
    trainer = tiny.trained(tmp_path, mentor=Mentor(ScriptedBackend(lambda role, messages: "%%% \x00 {{ }} <think>")))
    journal = read_journal(tmp_path)
    assert {item.guidance.origin for item in journal} == {HintOrigin.FALLBACK}
    assert trainer.mentor_totals.fallback == 2
    assert journal[0].completions


def test_evaluation_never_mentors(tmp_path):
    reward = tiny.HardRowsFail(rerolls=False)
    trainer = tiny.trainer(
        tmp_path, reward=reward, eval_dataset=tiny.dataset(4), per_device_eval_batch_size=16, log_completions=True
    )
    metrics = trainer.evaluate()
    assert [len(call["completions"]) for call in reward.calls] == [16]
    assert trainer.mentor_totals.batches == 0
    assert not any("mentor/" in key for key in metrics)
    assert list(read_journal(tmp_path)) == []


def test_continuous_batching_rerolls_in_training_and_never_in_evaluation(tmp_path):
    # It leaves the model in training mode when it has generated, so that mode does not tell an evaluation.
    reward = tiny.HardRowsFail()
    trainer = tiny.trained(
        tmp_path,
        reward=reward,
        eval_dataset=tiny.dataset(8),
        per_device_eval_batch_size=16,
        eval_strategy="steps",
        eval_steps=1,
        use_transformers_continuous_batching=True,
        transformers_continuous_batching_config={"num_blocks": 64, "max_batch_tokens": 64},
    )
    assert [len(call["completions"]) for call in reward.calls] == [16, 8, 16, 16]
    assert (trainer.mentor_totals.batches, trainer.mentor_totals.rescued) == (1, 2)
    assert [row for row, (prompt, _) in enumerate(tiny.rows(trainer.batches[0])) if len(prompt) > 2] == HARD
    assert len(read_journal(tmp_path)) == 2


def test_training_with_evaluation_in_between_keeps_the_hint_column_aligned(tmp_path):
    reward = tiny.HardRowsFail(reroll=(0.0,))  # whichever roll a call is, hard rows fail
    trainer = tiny.trained(
        tmp_path,
        reward=reward,
        max_steps=2,
        eval_dataset=tiny.dataset(4),
        per_device_eval_batch_size=16,
        eval_strategy="steps",
        eval_steps=1,
        log_completions=True,
    )
    assert trainer.mentor_totals.batches == 2
    table = pd.read_parquet(tmp_path / "completions" / "completions_00002.parquet")
    assert len(table["mentor/hint"]) == len(table["prompt"])


def test_the_mentor_works_once_per_generation_batch_however_often_it_is_reused(tmp_path):
    reward = tiny.HardRowsFail()
    trainer = tiny.trained(
        tmp_path, reward=reward, max_steps=4, per_device_train_batch_size=8, steps_per_generation=2, num_iterations=2
    )
    assert trainer.state.global_step == 4
    assert trainer.mentor_totals.batches == 1
    assert len(reward.calls) == 2


def test_the_last_checkpointed_config_may_be_a_plain_grpo_config(tmp_path):
    args = GRPOConfig(
        str(tmp_path),
        per_device_train_batch_size=16,
        num_generations=4,
        max_completion_length=6,
        max_steps=1,
        use_cpu=True,
        bf16=False,
        report_to="none",
    )
    trainer = MentorGRPOTrainer(
        tiny.model(),
        tiny.HardRowsFail(),
        args,
        tiny.dataset(),
        processing_class=tiny.tokenizer(),
        strategy=MentorStrategy(tiny.mentor(), routes=tiny.MENTOR_ANYWAY),
    )
    trainer.train()
    assert trainer.mentor_totals.rescued == 2


def test_resampling_rerolls_collapsed_groups_on_the_plain_question(tmp_path):
    plain = tiny.trained(tmp_path / "a", mentor_strategy="none", reward=tiny.HardRowsFail(rerolls=False))
    again = tiny.trained(tmp_path / "b", mentor_strategy="resample")
    before, after = tiny.rows(plain.batches[0]), tiny.rows(again.batches[0])
    assert [prompt for prompt, _ in before] == [prompt for prompt, _ in after]
    assert changed_rows(plain, again) == HARD
    assert [item.strategy for item in read_journal(tmp_path / "b")] == ["resample", "resample"]


def test_a_strategy_may_be_an_object_of_ones_own(tmp_path):
    class OnlyTheFirst(ResampleStrategy):
        name = "only_the_first"

        def select(self, states):
            return super().select(states)[:1]

    trainer = tiny.trained(tmp_path, strategy=OnlyTheFirst())
    assert trainer.mentor_totals.collapsed == 2
    assert [item.group.index for item in read_journal(tmp_path)] == [1]


def test_unscorable_groups_are_counted_and_left_alone(tmp_path):
    trainer = tiny.trained(tmp_path, reward=tiny.HardRowsFail(easy=(None,)))
    logged = trainer.state.log_history[0]
    assert (logged["mentor/frac_unscorable"], logged["mentor/frac_collapsed"]) == (0.5, 0.5)
    assert math.isfinite(logged["loss"])
    outcomes = {item.group.index: item.outcome for item in read_journal(tmp_path)}
    assert outcomes == dict.fromkeys((0, 2), RerollOutcome.SKIPPED) | dict.fromkeys((1, 3), RerollOutcome.RESCUED)


def test_a_named_verifier_decides_although_a_format_reward_is_positive(tmp_path):
    def tidy(completions, **kwargs):
        return [0.5] * len(completions)

    trainer = tiny.trained(
        tmp_path, reward=[tidy, tiny.HardRowsFail()], mentor_success_rewards=["verifier"], mentor_success_threshold=0.1
    )
    assert trainer.mentor_totals.rescued == 2
    assert read_journal(tmp_path)[0].rewards == {"tidy": (0.5,) * 4, "verifier": (1.0, 0.0, 1.0, 0.0)}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mentor_success_rewards": ["acuracy"]}, "'acuracy', which is not one of the reward functions"),
        ({"mentor_answer_column": "gold"}, "'gold', but the training data set has the columns"),
        ({"mentor_model": "m"}, "both mentor= and mentor_model,"),
        ({"mentor_deadline": 5.0}, "both mentor= and mentor_deadline,"),
        ({"mentor_extra_body": {"a": 1}}, "both mentor= and mentor_extra_body"),
        ({"mentor_hint_template": "Hint only: {hint}"}, "question"),
        ({"strategy": ResampleStrategy()}, "both mentor= and strategy="),
    ],
)
def test_wrong_settings_are_refused_at_construction(tmp_path, options, words):
    with pytest.raises(ConfigError, match=words):
        tiny.trainer(tmp_path, mentor=tiny.mentor(), **options)


@pytest.mark.parametrize("name", ["mentor_strategy", "mentor_hint_template", "mentor_model"])
def test_settings_that_a_strategy_object_makes_void_are_refused(tmp_path, name):
    value = {"mentor_strategy": "none", "mentor_hint_template": "{question}{hint}", "mentor_model": "m"}[name]
    with pytest.raises(ConfigError, match=f"both strategy= and {name}"):
        tiny.trainer(tmp_path, strategy=ResampleStrategy(), **{name: value})


def test_one_script_may_run_the_control_with_its_mentor_given(tmp_path):
    trainer = tiny.trained(tmp_path, mentor=tiny.mentor(), mentor_strategy="resample")
    assert trainer.mentor_totals.rescued == 2
    assert trainer.mentor_totals.calls == 0


def test_several_rewards_without_a_named_verifier_are_warned_about(tmp_path, caplog):
    def tidy(completions, **kwargs):
        return [0.5] * len(completions)

    tiny.trainer(tmp_path, reward=[tidy, tiny.HardRowsFail()])
    assert "mentor_success_rewards" in caplog.text
    caplog.clear()
    tiny.trainer(tmp_path, reward=[tidy, tiny.HardRowsFail()], mentor_success_rewards=["verifier"])
    assert "mentor_success_rewards" not in caplog.text


def test_a_data_set_without_an_answer_is_warned_about(tmp_path, caplog):
    tiny.trainer(tmp_path, data=tiny.dataset().rename_column("answer", "key"))
    assert "mentor_answer_column" in caplog.text


def test_multimodal_processors_are_refused_with_the_way_out(tmp_path):
    class TextAndImages(ProcessorMixin):
        def __init__(self, tokenizer):
            self.tokenizer = tokenizer

    model = tiny.model()
    model.config.image_token_id = 3
    with pytest.raises(NotImplementedError, match="AutoTokenizer"):
        MentorGRPOTrainer(
            model,
            tiny.HardRowsFail(),
            tiny.config(tmp_path),
            tiny.dataset(),
            processing_class=TextAndImages(tiny.tokenizer()),
            mentor=tiny.mentor(),
        )


def test_a_strategy_that_needs_a_mentor_says_how_to_give_it_one(tmp_path):
    with pytest.raises(ConfigError, match=r"mentor=Mentor\(backend\)"):
        MentorGRPOTrainer(
            tiny.model(),
            tiny.HardRowsFail(),
            tiny.config(tmp_path),
            tiny.dataset(),
            processing_class=tiny.tokenizer(),
        )


@pytest.mark.parametrize("wrong", [ScriptedBackend({}), "Qwen/Qwen3-32B"])
def test_a_mentor_of_another_type_is_refused_with_the_way_to_make_one(tmp_path, wrong):
    with pytest.raises(ConfigError, match=r"got (ScriptedBackend|str); wrap a backend: mentor=Mentor"):
        tiny.trainer(tmp_path, mentor=wrong)


def test_a_deadline_beyond_the_ddp_timeout_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="ddp_timeout=100"):
        tiny.config(tmp_path, ddp_timeout=100)
    with pytest.raises(ConfigError, match="ddp_timeout=1800"):
        tiny.trainer(tmp_path, mentor=tiny.mentor(deadline=1800.0))


@pytest.mark.parametrize("option", ["tools", "environment_factory", "rollout_func"])
def test_unsupported_options_are_refused_by_name(tmp_path, option):
    given = [print] if option == "tools" else print
    with pytest.raises(NotImplementedError, match=option):
        MentorGRPOTrainer(
            tiny.model(),
            tiny.HardRowsFail(),
            tiny.config(tmp_path),
            tiny.dataset(),
            mentor=tiny.mentor(),
            **{option: given},
        )


def test_image_columns_are_refused_by_name(tmp_path):
    data = tiny.dataset().add_column("images", [[] for _ in range(8)])
    with pytest.raises(NotImplementedError, match="images"):
        tiny.trainer(tmp_path, data=data)


def test_sampling_log_probabilities_travel_with_their_rows(tmp_path):
    class ReportsLogprobs(tiny.Recorder):
        """Generation that reports log-probabilities, as vLLM does; here each is the negated token id."""

        def _generate_single_turn(self, *args, **kwargs):
            completion_ids, _ = super()._generate_single_turn(*args, **kwargs)
            return completion_ids, [[-float(token) for token in ids] for ids in completion_ids]

    trainer = tiny.trained(tmp_path, cls=ReportsLogprobs)
    batch = trainer.batches[0]
    assert trainer.mentor_totals.rescued == 2
    assert torch.equal(-batch["sampling_per_token_logps"].long(), batch["completion_ids"] * batch["completion_mask"])


def test_old_and_reference_log_probabilities_are_those_under_the_hinted_prompt(tmp_path):
    tiny.model().save_pretrained(tmp_path / "model")  # TRL loads the reference model from where the policy came from
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    trainer = tiny.Recorder(
        str(tmp_path / "model"),
        reward_funcs=tiny.HardRowsFail(),
        args=tiny.config(tmp_path / "run", beta=0.1, num_iterations=2, gradient_accumulation_steps=1, max_steps=2),
        train_dataset=tiny.dataset(),
        mentor=tiny.mentor(),
    )
    trainer.train()
    batch = trainer.batches[0]
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    with torch.no_grad():
        logits = tiny.load(tmp_path / "model")(input_ids=ids, attention_mask=mask).logits
    start = batch["prompt_ids"].shape[1]
    expected = logits[:, start - 1 : -1].log_softmax(-1).gather(-1, batch["completion_ids"].unsqueeze(-1)).squeeze(-1)
    seen = batch["completion_mask"].bool()
    torch.testing.assert_close(batch["ref_per_token_logps"][seen], expected[seen], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("aggregation", ["sum_then_normalize", "normalize_then_sum"])
def test_unscorable_rows_keep_loss_and_advantages_finite_whatever_the_aggregation(tmp_path, aggregation):
    reward = tiny.HardRowsFail((1.0, None, 0.0, 0.0), easy=(None, 1.0, 0.0, 1.0))
    trainer = tiny.trained(tmp_path, reward=reward, multi_objective_aggregation=aggregation)
    assert trainer.mentor_totals.rescued == 2
    assert torch.isfinite(trainer.batches[0]["advantages"]).all()
    assert math.isfinite(trainer.state.log_history[0]["loss"])
    assert trainer.batches[0]["advantages"][5] == 0


def test_completions_that_could_not_be_scored_are_no_attempts_for_the_mentor(tmp_path):
    def verifier(prompts, hard, **kwargs):
        return [(None if i % 4 == 2 else 0.0) if is_hard else float(i % 2) for i, is_hard in enumerate(hard)]

    tiny.trained(tmp_path, reward=verifier)
    journal = read_journal(tmp_path)
    assert [[attempt.reward for attempt in item.group.attempts] for item in journal] == [[0.0] * 3] * 2
    assert journal[0].successes == (0.0, 0.0, None, 0.0)


def test_a_hint_that_makes_the_prompt_too_long_costs_its_group_and_not_the_run(tmp_path):
    def short_hint_for_the_first(role, messages):
        hint = "w30" if "w1 w1" in str(messages) else "w30 w31 w32 w33 w34 w35"
        return {Role.ATTRIBUTION: said.diagnosis("w1"), Role.GENERATION: hint}.get(role, said.verdict("HIGH"))

    model = tiny.model()
    model.config.max_position_embeddings = 14  # hint of one word: 6 tokens, of six words: 11; completion: 6
    trainer = tiny.Recorder(
        model,
        reward_funcs=tiny.HardRowsFail(),
        args=tiny.config(tmp_path),
        train_dataset=tiny.dataset(),
        processing_class=tiny.tokenizer(),
        mentor=Mentor(ScriptedBackend(short_hint_for_the_first)),
    )
    trainer.train()
    first, second = read_journal(tmp_path)
    assert first.outcome is RerollOutcome.RESCUED
    assert second.outcome is RerollOutcome.SKIPPED
    assert second.guidance.origin is HintOrigin.FAILED
    assert "too long" in second.guidance.reason


@pytest.mark.parametrize("limit", ["model", "tokenizer"])
def test_a_hint_that_makes_the_prompt_too_long_is_shortened_by_whole_sentences(tmp_path, limit):
    def three_sentences(role, messages):
        return {Role.ATTRIBUTION: said.diagnosis("w1"), Role.GENERATION: "w30 Hint. w32 Hint. w33 w34"}.get(
            role, said.verdict("HIGH")
        )

    model = tiny.model()
    words = tiny.tokenizer()
    if limit == "model":
        model.config.max_position_embeddings = 15  # without its last sentence the prompt has 9 tokens; completion: 6
    else:
        words.model_max_length = 15
    trainer = tiny.Recorder(
        model,
        reward_funcs=tiny.HardRowsFail(),
        args=tiny.config(tmp_path),
        train_dataset=tiny.dataset(),
        processing_class=words,
        mentor=Mentor(ScriptedBackend(three_sentences)),
    )
    trainer.train()
    records = read_journal(tmp_path)
    assert [record.outcome for record in records] == [RerollOutcome.RESCUED] * 2
    assert [record.guidance.hint for record in records] == ["w30 Hint. w32 Hint."] * 2
    assert all(record.guidance.shortened for record in records)
    assert records[0].guidance.drafts[0].text == "w30 Hint. w32 Hint. w33 w34"
    prompts = [trainer.processing_class.decode(prompt) for prompt, _ in tiny.rows(trainer.batches[0])]
    assert all("w33" not in prompt for prompt in prompts)
    assert all(prompt.endswith("w1 w1") for prompt in prompts[4:8])
    assert trainer.state.log_history[0]["mentor/shortened"] == 2.0


def test_a_strategy_that_never_gets_shorter_or_prepares_no_prompt_costs_its_groups(tmp_path):
    class SameAgain(ResampleStrategy):
        name = "same"

        def prepare(self, groups):
            return [Lesson(prompt=" ".join(["w30"] * 200)), Lesson(prompt="")]

        def shorten(self, group, lesson):
            return lesson

    trainer = tiny.trained(tmp_path, strategy=SameAgain(), reward=tiny.HardRowsFail(rerolls=False))
    assert [record.outcome for record in read_journal(tmp_path)] == [RerollOutcome.SKIPPED] * 2
    assert trainer.mentor_totals.skipped == 2


def test_a_strategy_that_lacks_a_method_is_refused_at_construction(tmp_path):
    class WithoutShorten:
        name = "old"

        def select(self, states):
            return []

        def prepare(self, groups):
            return []

        def merge(self, original, rerolled):
            return rerolled

    with pytest.raises(ConfigError, match="shorten"):
        tiny.trainer(tmp_path, strategy=WithoutShorten())


def test_a_column_that_only_first_rolls_log_is_empty_beside_rerolled_rows(tmp_path):
    def reward(completions, log_extra, **kwargs):
        if len(completions) == 16 and not reward.calls:
            log_extra("first", [f"row {i}" for i in range(16)])
        reward.calls += 1
        return [0.0] * len(completions)

    reward.calls = 0
    tiny.trained(tmp_path, reward=reward, data=tiny.dataset(hard=lambda i: True), log_completions=True)
    table = pd.read_parquet(tmp_path / "completions" / "completions_00001.parquet")
    assert all(table["mentor/hint"] == tiny.HINT)
    assert table["first"].isna().all()


def test_a_strategy_decides_which_rows_of_a_rerolled_group_are_trained(tmp_path):
    class OneNewRow(ResampleStrategy):
        name = "one_new_row"

        def merge(self, original, rerolled):
            return [*original[:-1], rerolled[-1]]

    plain = tiny.trained(tmp_path / "a", mentor_strategy="none", reward=tiny.HardRowsFail(rerolls=False))
    mixed = tiny.trained(tmp_path / "b", strategy=OneNewRow(), reward=tiny.HardRowsFail((1.0,)))
    assert changed_rows(plain, mixed) == [7, 15]
    assert mixed.batches[0]["advantages"][4:8].tolist() == pytest.approx([-0.5, -0.5, -0.5, 1.5], abs=1e-3)


def test_the_mentor_is_told_which_attempts_were_cut_off(tmp_path):
    class EveryOtherIsCutOff(tiny.Recorder):
        def _generate_single_turn(self, prompt_ids, *args, **kwargs):
            completions = [[12, 13, 14, 15, 16, 17] if i % 2 else [12, 13, 1] for i in range(len(prompt_ids))]
            return completions, None

    tiny.trained(tmp_path, cls=EveryOtherIsCutOff)
    attempts = read_journal(tmp_path)[0].group.attempts
    assert [attempt.truncated for attempt in attempts] == [False, True, False, True]


def test_steps_successes_and_seconds_are_counted(tmp_path):
    def slow(role, messages):
        time.sleep(0.05)
        return {Role.ATTRIBUTION: said.diagnosis("w1"), Role.GENERATION: tiny.HINT}.get(role, said.verdict("HIGH"))

    trainer = tiny.trained(tmp_path, mentor=Mentor(ScriptedBackend(slow)), max_steps=2)
    assert [item.step for item in read_journal(tmp_path)] == [0, 0, 1, 1]
    logged = trainer.state.log_history[0]
    assert (logged["mentor/reroll_completions"], logged["mentor/reroll_successes"]) == (8, 4)
    assert logged["mentor/calls"] == 6
    assert logged["mentor/seconds"] >= 0.15
    assert logged["mentor/reroll_seconds"] > 0


def test_a_reward_at_the_threshold_is_a_failure_also_in_single_precision(tmp_path):
    def tidy_only(completions, **kwargs):
        return [0.1] * len(completions)

    trainer = tiny.trained(tmp_path, reward=tidy_only, mentor_success_threshold=0.1)
    assert trainer.mentor_totals.collapsed == 4


def test_reward_functions_that_edit_what_they_are_shown_change_nothing_that_is_trained(tmp_path):
    class Edits(tiny.HardRowsFail):
        def __call__(self, prompts, completions, completion_ids, clue, **kwargs):
            values = super().__call__(prompts=list(prompts), completions=list(completions), **kwargs)
            for prompt, completion, ids, words in zip(prompts, completions, completion_ids, clue, strict=True):
                prompt.extend(completion)
                completion.clear()
                ids.pop()
                words.pop()
            completions.clear()
            return values

    data = tiny.dataset(conversational=True)
    data = data.add_column("clue", [["only one"]] * 8)
    honest = tiny.trained(tmp_path / "a", data=data)
    edited = tiny.trained(tmp_path / "b", data=data, reward=Edits())
    assert edited.mentor_totals.rescued == 2
    assert tiny.rows(edited.batches[0]) == tiny.rows(honest.batches[0])
    assert [i.group.question for i in read_journal(tmp_path / "b")] == ["w1 w1", "w3 w3"]
    assert edited.state.log_history[0]["loss"] == honest.state.log_history[0]["loss"]


def test_a_hint_with_a_special_token_of_the_policy_costs_its_group(tmp_path):
    def repeats_the_question(role, messages):
        hint = "w1 w1" if "w1 w1" in str(messages) else tiny.HINT
        verdict = "LOW" if hint == "w1 w1" else "HIGH"
        return {Role.ATTRIBUTION: said.diagnosis("w1"), Role.GENERATION: hint}.get(role, said.verdict(verdict))

    # The mentor's own hints do not get so far with such a token; the fallback hint of the user's is used as it is.
    mentor = Mentor(ScriptedBackend(repeats_the_question), fallback_hint="w30 <eos> w31", max_refine=1)
    tiny.trained(tmp_path, mentor=mentor)
    first, second = read_journal(tmp_path)
    assert (first.outcome, second.outcome) == (RerollOutcome.SKIPPED, RerollOutcome.RESCUED)
    assert "<eos>" in first.guidance.reason


@pytest.mark.parametrize("usage", [None, Usage(None, None), Usage("12", "3"), Usage(1.5, -2), Usage(10**400, True)])
def test_a_backend_that_counts_nonsense_is_taken_to_have_counted_nothing(tmp_path, usage):
    def reply(role, messages):
        text = {Role.ATTRIBUTION: said.diagnosis("w1"), Role.GENERATION: tiny.HINT}.get(role, said.verdict("HIGH"))
        return Reply(text, usage)

    trainer = tiny.trained(tmp_path, mentor=Mentor(ScriptedBackend(reply)))
    totals = trainer.mentor_totals
    assert (totals.rescued, totals.mentor_tokens) == (2, 0)
    assert read_journal(tmp_path).to_dataset()["mentor_prompt_tokens"][:] == [0, 0]


def test_image_columns_of_a_stream_are_refused_at_the_first_batch(tmp_path):
    stream = tiny.dataset().to_iterable_dataset().map(lambda row: {"images": []})
    trainer = tiny.trainer(tmp_path, data=stream)
    with pytest.raises(NotImplementedError, match="images"):
        trainer.train()


def test_a_row_without_one_answer_column_is_read_from_the_other(tmp_path):
    data = tiny.dataset().add_column("solution", [f"solution-{i}" for i in range(8)])
    data = data.map(lambda row: {"key": row["answer"], "answer": None})

    def verifier(prompts, hard, **kwargs):
        return [0.0 if is_hard else float(i % 2) for i, is_hard in enumerate(hard)]

    tiny.trained(tmp_path, data=data, reward=verifier)
    assert [item.group.answer for item in read_journal(tmp_path)] == ["solution-1", "solution-3"]


def test_a_misspelt_answer_column_of_a_stream_is_an_error_at_the_first_batch(tmp_path):
    stream = tiny.dataset().to_iterable_dataset().map(lambda row: row)
    trainer = tiny.trainer(tmp_path, data=stream, mentor_answer_column="anwser")
    with pytest.raises(ConfigError, match="anwser"):
        trainer.train()


def test_asynchronous_reward_functions_score_rerolls_too(tmp_path):
    inner = tiny.HardRowsFail()

    async def verifier(**kwargs):
        return inner(**kwargs)

    trainer = tiny.trained(tmp_path, reward=verifier)
    assert trainer.mentor_totals.rescued == 2
    assert [call["roll"] for call in inner.calls] == ["first", "second"]


@pytest.mark.parametrize("column", ["answer", "solution"])
def test_a_stream_of_prompts_is_mentored_with_its_answers(tmp_path, column):
    def verifier(prompts, hard, **kwargs):
        return [0.0 if is_hard else float(i % 2) for i, is_hard in enumerate(hard)]

    stream = tiny.dataset().rename_column("answer", "key").to_iterable_dataset()
    stream = stream.map(lambda row: {column: row["key"]})
    assert stream.column_names is None
    tiny.trained(tmp_path, data=stream, reward=verifier)
    assert [item.group.answer for item in read_journal(tmp_path)] == ["answer-1", "answer-3"]


@pytest.mark.parametrize("answer", [["137"], [["137"], ["12"]], {"value": 137}, 137])
def test_an_answer_of_any_shape_is_guarded_against_leaks(tmp_path, answer):
    data = tiny.dataset().remove_columns("answer").add_column("solution", [answer] * 8)

    def gives_it_away(role, messages):
        return {Role.ATTRIBUTION: said.diagnosis("w1"), Role.JUDGMENT: said.verdict("HIGH")}.get(role, "It is 137.")

    def verifier(prompts, hard, **kwargs):
        return [0.0 if is_hard else float(i % 2) for i, is_hard in enumerate(hard)]

    tiny.trained(tmp_path, data=data, reward=verifier, mentor=Mentor(ScriptedBackend(gives_it_away)))
    assert {item.guidance.origin for item in read_journal(tmp_path)} == {HintOrigin.FALLBACK}


def test_a_prompt_that_cannot_hold_a_hint_costs_its_group_and_not_the_run(tmp_path):
    data = tiny.dataset(conversational=True).to_list()
    data[1]["prompt"] = [{"role": "system", "content": "w1 w1"}]
    trainer = tiny.trained(tmp_path, data=Dataset.from_list(data))
    assert (trainer.mentor_totals.rescued, trainer.mentor_totals.skipped) == (1, 1)
    assert "no user turn" in read_journal(tmp_path)[0].guidance.reason
