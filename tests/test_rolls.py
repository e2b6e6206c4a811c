"""What the rows of a re-roll come from: prompts of their own, or given, through `trainer.train()`."""

from __future__ import annotations

from types import SimpleNamespace

import by_hand
import engines
import pytest
import tiny
from trl.generation.vllm_generation import VLLMGeneration

from trl_mentor import read_journal
from trl_mentor.collapse import find_collapsed
from trl_mentor.records import HintOrigin, Lesson, RerollOutcome, Roll

PREFIX = by_hand.PREFIX
"""The tokens of hint and template before the question of a hinted prompt."""
HARD = {1: range(4, 8), 3: range(12, 16)}
"""Rows of the groups that collapse, by their prompt."""


def tokens(text: str) -> list[int]:
    return tiny.tokenizer()(text).input_ids


def question(number: int) -> tuple[int, ...]:
    return tuple(tokens(f"w{number} w{number}"))


def hinted(number: int) -> tuple[int, ...]:
    return (*PREFIX, *question(number))


class Served(tiny.Recorder):
    """Generates through TRL's own client of a vLLM server, which keeps what it is sent."""

    def _generate_single_turn(self, prompt_ids, images, fields, num_generations, **kwargs):
        real = super()._generate_single_turn

        def generate(prompts, n, **options):
            sent = self.__dict__.setdefault("sent", [])
            sent.append((list(map(tuple, prompts)), n))
            ids, _ = real([prompt for prompt in prompts for _ in range(n)], None, fields, 1)
            return {"prompt_ids": prompts, "completion_ids": ids, "logprobs": [[[-1.0]] * len(row) for row in ids]}

        shape = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_completion_length", "logprobs")
        engine = SimpleNamespace(
            accelerator=self.accelerator,
            mode="server",
            vllm_client=SimpleNamespace(generate=generate),
            structured_outputs_regex=None,
            generation_kwargs={},
            enable_sleep_mode=False,
            **dict.fromkeys(shape),
        )
        _, ids, _, _ = VLLMGeneration.generate(engine, prompt_ids, None, num_generations)
        return ids, None


def test_a_mixed_re_roll_has_one_row_without_the_hint_and_advantages_among_them_all(tmp_path):
    reward = tiny.HardRowsFail((0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0))
    trainer = tiny.trained(tmp_path, reward=reward, mentor_rescue="mixed", log_completions=True)
    (batch,) = trainer.batches
    rows = [prompt for prompt, _ in tiny.rows(batch)]
    for number, places in HARD.items():
        assert [rows[i] for i in places] == [hinted(number)] * 3 + [question(number)]
    assert batch["advantages"][4:8].tolist() == pytest.approx([-0.866, 0.866] * 2, abs=1e-3)
    assert batch["advantages"][12:16].tolist() == pytest.approx([-0.5, -0.5, -0.5, 1.5], abs=1e-3)
    assert [item.outcome for item in read_journal(tmp_path)] == [RerollOutcome.RESCUED] * 2
    totals = trainer.mentor_totals
    assert (totals.reroll_completions, totals.off_context_rows, totals.rescued) == (8, 0, 2)
    assert totals.policy_tokens == trainer.generated
    assert trainer.reward_funcs[0].calls[1]["prompts"] == ["w1 w1"] * 4 + ["w3 w3"] * 4


def test_each_row_of_a_mixed_group_is_scored_under_its_own_prompt(tmp_path):
    tiny.model().save_pretrained(tmp_path / "model")
    trainer = tiny.trained(tmp_path, mentor_rescue="mixed", num_iterations=2, max_steps=2)
    policy, batch = tiny.load(tmp_path / "model").eval(), trainer.batches[0]
    rows = tiny.rows(batch)
    for i in HARD[1]:
        prompt = question(1) if i == 7 else hinted(1)
        mean = batch["old_per_token_logps"][i][: len(rows[i][1])].mean().item()
        assert mean == pytest.approx(by_hand.mean_logp(policy, prompt, rows[i][1]), abs=1e-5)


def test_scored_on_the_question_a_mixed_group_has_three_rows_off_context_and_one_that_knows_its_sampler(tmp_path):
    reward = tiny.HardRowsFail((1.0, 0.0, 0.0, 0.0))
    options = {"mentor_rescue": "mixed", "mentor_score_on": "original", "cls": engines.FromAnotherEngine}
    trainer = tiny.trained(tmp_path, reward=reward, **options)
    (batch,) = trainer.batches
    rows = [prompt for prompt, _ in tiny.rows(batch)]
    for number, places in HARD.items():
        assert [rows[i] for i in places] == [question(number)] * 4
        unknown = batch["sampling_per_token_logps"][places.start : places.stop].isnan().any(dim=1)
        assert unknown.tolist() == [True, True, True, False]
        assert batch["advantages"][places.start : places.stop].tolist() == pytest.approx(
            [1.5, -0.5, -0.5, -0.5], abs=1e-3
        )
    assert trainer.mentor_totals.off_context_rows == 6


def test_a_mixed_re_roll_sends_a_server_each_prompt_alone_and_any_other_one_prompt_a_group(tmp_path):
    mixed = tiny.trained(tmp_path / "mixed", cls=Served, mentor_rescue="mixed")
    first, second = mixed.sent
    assert first == ([question(number) for number in range(4)], 4)
    assert second == ([hinted(1)] * 3 + [question(1)] + [hinted(3)] * 3 + [question(3)], 1)
    assert mixed.num_generations == 4
    rows = [prompt for prompt, _ in tiny.rows(mixed.batches[0])]
    assert rows[4:8] == [hinted(1)] * 3 + [question(1)]
    plain = tiny.trained(tmp_path / "plain", cls=Served)
    assert plain.sent[1] == ([hinted(1), hinted(3)], 4)


def test_without_a_hint_there_is_nothing_to_mix(tmp_path):
    trainer = tiny.trained(tmp_path, mentor_strategy="resample", mentor_rescue="mixed", mentor_routes=None, cls=Served)
    assert trainer.sent[1] == ([question(1), question(3)], 4)


class Demonstrates:
    """The demonstration of the data set in place of the last row of a collapsed group."""

    name = "demonstrates"
    columns = ("demonstration",)

    def __init__(self, sampled: int = 0) -> None:
        """With so many new rows, which are sampled on the plain question, before it."""
        self.sampled = sampled

    def select(self, states):
        return find_collapsed(states)

    def prepare(self, groups):
        return [self._lesson(group) for group in groups]

    def _lesson(self, group):
        given = group.material.get("demonstration")
        if given is None:
            return Lesson(prompt=None)
        sampled = [Roll(group.prompt) for _ in range(self.sampled if group.index == 1 else 0)]
        return Lesson(group.prompt, rolls=(*sampled, Roll(group.prompt, given=given)))

    def shorten(self, group, lesson):
        return None

    def merge(self, original, rerolled):
        return [*original[len(rerolled) :], *rerolled]


class Demonstrated:
    """A verifier that takes what ends in `w6` for right and keeps what it is shown; easy rows alternate."""

    __name__ = "verifier"

    def __init__(self) -> None:
        self.calls = []

    def __call__(self, prompts, completions, hard, **kwargs):
        texts = [item if isinstance(item, str) else item[0]["content"] for item in completions]
        self.calls.append((prompts, completions, kwargs["completion_ids"]))
        kwargs["log_metric"]("seen", 1.0)
        pairs = zip(texts, hard, strict=True)
        return [float(text.endswith("w6") if is_hard else i % 2) for i, (text, is_hard) in enumerate(pairs)]


def demonstrated(folder, demonstrations, *, strategy=None, conversational=False, **options):
    data = tiny.dataset(4, conversational=conversational).add_column("demonstration", demonstrations)
    return tiny.trained(folder, strategy=strategy or Demonstrates(), reward=Demonstrated(), data=data, **options)


def test_a_given_completion_ends_like_one_of_the_policy_and_is_scored_by_the_same_rewards(tmp_path):
    trainer = demonstrated(tmp_path, [None, "w5 w6", None, None])
    (batch,) = trainer.batches
    rows, end = tiny.rows(batch), tiny.tokenizer().eos_token_id
    assert rows[7] == (question(1), (*tokens("w5 w6"), end))
    assert batch["advantages"][4:8].tolist() == pytest.approx([-0.5, -0.5, -0.5, 1.5], abs=1e-3)
    assert trainer.reward_funcs[0].calls[1] == (["w1 w1"], ["w5 w6"], [[*tokens("w5 w6"), end]])
    assert len(trainer.reward_funcs[0].calls) == 2
    (log,) = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert (log["mentor/given/seen"], log["seen"]) == (1.0, 1.0)


def test_a_given_completion_is_counted_apart_from_what_the_policy_generates(tmp_path):
    trainer = demonstrated(tmp_path, [None, "w5 w6", None, None])
    totals = trainer.mentor_totals
    assert (totals.given_rows, totals.off_context_rows) == (1, 1)
    assert (totals.reroll_completions, totals.reroll_tokens) == (0, 0)
    assert totals.policy_tokens == trainer.generated
    assert (totals.rescued, totals.skipped, totals.collapsed) == (1, 1, 2)
    shown, left = read_journal(tmp_path)
    assert (shown.outcome, shown.completions, shown.successes) == (RerollOutcome.RESCUED, ("w5 w6",), (1.0,))
    assert (left.outcome, left.completions) == (RerollOutcome.SKIPPED, ())


@pytest.mark.parametrize("cls", [tiny.Recorder, engines.FromAnotherEngine])
def test_how_likely_it_was_to_be_sampled_is_unknown_where_that_is_reported_at_all(tmp_path, cls):
    trainer = demonstrated(tmp_path, [None, "w5 w6", None, None], cls=cls)
    found = trainer.batches[0].get("sampling_per_token_logps")
    if cls is tiny.Recorder:
        assert found is None
    else:
        unknown = found.isnan().any(dim=1)
        assert unknown.nonzero().flatten().tolist() == [7]
        assert set(trainer.batches[0]["importance_sampling_ratio"][7].tolist()) == {1.0}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("w5 " * 6 + "w6", "the demonstration has 8 tokens with its end, more than the 6 of max_completion_length"),
        ("w5 <eos> w6", "the demonstration holds '<eos>', which is a special token to the policy"),
    ],
)
def test_one_that_the_policy_could_not_have_written_is_refused_with_a_reason(tmp_path, text, reason):
    trainer = demonstrated(tmp_path, [None, text, None, "w5 w6"])
    refused, shown = read_journal(tmp_path)
    assert (refused.outcome, refused.guidance.origin) == (RerollOutcome.SKIPPED, HintOrigin.NOT_ASKED)
    assert refused.guidance.reason == reason
    assert (shown.group.index, shown.outcome) == (3, RerollOutcome.RESCUED)
    assert trainer.mentor_totals.given_rows == 1
    assert [call[1] for call in trainer.reward_funcs[0].calls[1:]] == [["w5 w6"]]


def test_the_longest_that_fits_is_taken(tmp_path):
    trainer = demonstrated(tmp_path, [None, "w5 " * 4 + "w6", None, None])
    assert len(tiny.rows(trainer.batches[0])[7][1]) == 6


def test_groups_may_get_rows_of_differing_numbers_sampled_and_given(tmp_path):
    trainer = demonstrated(tmp_path, [None, "w5 w6", None, "w7 w6"], strategy=Demonstrates(sampled=2))
    rows, end = tiny.rows(trainer.batches[0]), tiny.tokenizer().eos_token_id
    assert rows[7] == (question(1), (*tokens("w5 w6"), end))
    assert rows[15] == (question(3), (*tokens("w7 w6"), end))
    totals = trainer.mentor_totals
    assert (totals.given_rows, totals.reroll_completions) == (2, 2)
    first, second = read_journal(tmp_path)
    assert [len(first.completions), len(second.completions)] == [3, 1]
    assert totals.policy_tokens == trainer.generated
    assert [tuple(rows[5][1]), tuple(rows[6][1])] == [tuple(ids) for ids in trainer.reward_funcs[0].calls[1][2][:2]]


def test_in_a_conversation_it_is_the_turn_of_the_assistant(tmp_path):
    trainer = demonstrated(tmp_path, [None, "w5 w6", None, None], conversational=True)
    assert trainer.reward_funcs[0].calls[1][1] == [[{"role": "assistant", "content": "w5 w6"}]]
    assert tiny.rows(trainer.batches[0])[7][1] == (*tokens("w5 w6"), tiny.tokenizer().eos_token_id)


class Forgets(Demonstrates):
    """Returns the new rows alone, which are fewer than a group has."""

    def merge(self, original, rerolled):
        return list(rerolled)


def test_a_strategy_that_makes_too_few_rows_of_a_group_ends_the_run_and_is_named(tmp_path):
    with pytest.raises(ValueError, match="strategy 'demonstrates' made 1 rows of a group of 4"):
        demonstrated(tmp_path, [None, "w5 w6", None, None], strategy=Forgets())


def test_a_lesson_with_rolls_is_refused_in_the_place_of_another_question(tmp_path):
    with pytest.raises(ValueError, match="a lesson for the place of another question cannot have `rolls`"):
        demonstrated(
            tmp_path, [None, "w5 w6", None, "w5 w6"], mentor_schedule="ahead", mentor_queue_size=4, max_steps=12
        )
