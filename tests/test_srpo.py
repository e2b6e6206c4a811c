"""SRPO: the reflection form is asked for, paid beside the user's rewards, and hides no collapse."""

from __future__ import annotations

import asyncio
import math
import re

import pytest
import tiny
from transformers import AutoModelForSequenceClassification, LlamaConfig

from trl_mentor.assembly import completion_text
from trl_mentor.errors import ConfigError
from trl_mentor.records import Cause
from trl_mentor.rewards.reflection import first_part, reward_of
from trl_mentor.strategies.srpo import INSTRUCTION, SrpoStrategy

SRPO = {"mentor_strategy": "srpo", "mentor_routes": None, "max_completion_length": 32, "log_completions": True}
TAGS = [f"<{slash}{name}>" for name in ("think", "answer", "reflection") for slash in ("", "/")]


def written(first: str, second: str) -> str:
    """A completion in form: its first part has 41 characters, the whole 41 + 1 + 29 + 1 + 41 = 113."""
    half = "<think> w1 </think> <answer> {} </answer>"
    return f"{half.format(first)} <reflection> w2 </reflection> {half.format(second)}"


FOUR = (written("w5", "w5"), written("w5", "w4"), written("w4", "w5"), written("w4", "w4"))
LENGTH = 0.1 * math.exp(-(((113 - 82) / (102.5 - 82)) ** 2))


def is_right(text: str) -> float:
    return float(text.split("<answer>")[-1].split()[0] == "w5")


class Verifier:
    """Right is a completion whose last answer is w5; keeps what it was shown."""

    __name__ = "verifier"

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.prompts: list[list[object]] = []

    def __call__(self, prompts, completions, answer, **kwargs):
        self.calls.append([completion_text(completion) for completion in completions])
        self.prompts.append(prompts)
        assert len(prompts) == len(completions) == len(answer)
        kwargs["log_extra"]("seen", self.calls[-1])
        kwargs["log_metric"]("calls", float(len(self.calls)))
        return [is_right(text) for text in self.calls[-1]]


class Scripted(tiny.Recorder):
    """The shipped trainer with a policy that writes these texts, in turn."""

    texts = FOUR

    def _generate_single_turn(self, prompt_ids, *args, **kwargs):
        _, *rest = super()._generate_single_turn(prompt_ids, *args, **kwargs)
        self.under = [self.processing_class.decode(ids) for ids in prompt_ids]
        ids = [[*self.processing_class(text).input_ids, 1] for text in self.texts]
        return [ids[i % len(ids)] for i in range(len(prompt_ids))], *rest


def trainer(out, *, reward=None, texts=FOUR, data=None, strategy=None, eval_dataset=None, args=None, **options):
    words, policy = tiny.tokenizer(), tiny.model()
    words.add_tokens(TAGS)
    policy.resize_token_embeddings(len(words), mean_resizing=False)
    made = Scripted(
        policy,
        reward_funcs=Verifier() if reward is None else reward,
        args=tiny.config(out, **{**SRPO, **options}) if args is None else args,
        train_dataset=tiny.dataset(4) if data is None else data,
        eval_dataset=eval_dataset,
        processing_class=words,
        strategy=strategy,
    )
    made.texts = texts
    return made


def trained(out, **options):
    made = trainer(out, **options)
    made.train()
    return made


def paid(made):
    return list(made._logs["rewards"]["reflection"])


def test_what_reflection_made_of_the_first_answer_is_paid_beside_the_users_reward(tmp_path):
    verifier = Verifier()
    made = trained(tmp_path, reward=verifier)
    assert made.reward_func_names == ["verifier", "reflection"]
    assert pytest.approx(0.010159, abs=1e-6) == LENGTH
    expected = [0.5 + 0.25 + LENGTH, 0.5 - 0.25 + LENGTH, 0.5 + 0.5 + LENGTH, 0.5 + 0.0 + LENGTH]
    assert paid(made) == pytest.approx(expected * 4)
    assert list(made._logs["rewards"]["verifier"]) == [1.0, 0.0, 1.0, 0.0] * 4
    # TRL's call on the whole completions, and one on the first answers, which logs nothing.
    assert verifier.calls == [list(FOUR) * 4, [text[:41] for text in FOUR] * 4]
    assert list(made._logs["extra"]["seen"]) == list(FOUR) * 4
    (logged,) = [entry for entry in made.state.log_history if "rewards/reflection/mean" in entry]
    assert logged["rewards/reflection/mean"] == pytest.approx(sum(expected) / 4)
    assert logged["calls"] == 1
    assert logged["reward"] == pytest.approx(sum(expected) / 4 + 0.5)
    advantages = made.batches[0]["advantages"][:4]
    assert advantages.argmax() == 2  # wrong, then right: 1 + .5 + .5 + length


@pytest.mark.parametrize("conversational", [False, True])
def test_the_form_is_asked_for_in_training_and_evaluation_and_rewards_see_the_plain_prompt(tmp_path, conversational):
    verifier, data = Verifier(), tiny.dataset(4, conversational=conversational)
    made = trainer(tmp_path, reward=verifier, data=data, eval_dataset=data, per_device_eval_batch_size=4)
    made.train()
    words = made.processing_class
    ending = words.decode(words(INSTRUCTION).input_ids)
    ending += " <eos> <assistant>" if conversational else ""
    for under in (words.decode(made.batches[0]["prompt_ids"][0]), *made.under):
        assert under.endswith(ending)
        assert "w0 w0" in under or "w1 w1" in under or "w2 w2" in under or "w3 w3" in under
    made.evaluate()
    assert all(under.endswith(ending) for under in made.under)
    assert {str(prompt) for prompts in verifier.prompts for prompt in prompts} == set(map(str, data["prompt"]))
    assert paid(made)[:1] == pytest.approx([0.75 + LENGTH])


def test_the_reward_for_form_hides_no_collapse(tmp_path):
    made = trained(tmp_path, texts=[written("w4", "w4"), "w1", written("w4", "w3"), "w2"])
    assert paid(made)[:4] == pytest.approx([0.5 + LENGTH, 0, 0.5 + LENGTH, 0])
    totals = made.mentor_totals
    assert (totals.groups, totals.collapsed, totals.reroll_completions, totals.successes) == (4, 4, 0, 0)
    assert made.batches[0]["advantages"].abs().sum() > 0  # form alone gives a gradient, as in the paper


def test_only_completions_in_form_are_judged_again(tmp_path):
    verifier = Verifier()
    made = trained(tmp_path, reward=verifier, texts=["<answer> w5", written("w4", "w5"), "<answer> w4"])
    assert verifier.calls[1] == [written("w4", "w5")[:41]] * 5
    assert paid(made)[:3] == pytest.approx([0, 1.0 + LENGTH, 0])
    plain = Verifier()
    trained(tmp_path / "plain", reward=plain, texts=["<answer> w5", "<answer> w4"])
    assert len(plain.calls) == 1


def test_the_weights_of_the_user_stay_and_the_new_reward_has_one(tmp_path):
    args = tiny.config(tmp_path, **SRPO, reward_weights=[2.0], mentor_success_rewards=["verifier"])
    rewards = [Verifier()]
    made = trainer(tmp_path, reward=rewards, args=args)
    made.train()
    assert made.reward_weights.tolist() == [2.0, 1.0]
    assert args.reward_weights == [2.0]
    assert len(rewards) == 1
    assert made.success_rule.chosen == (0,)
    assert paid(made)[:4] == pytest.approx([0.75 + LENGTH, 0.25 + LENGTH, 1.0 + LENGTH, 0.5 + LENGTH])


def test_only_the_success_rewards_judge_and_a_sum_is_weighed(tmp_path):
    def polite(completions, **kwargs):
        return [1.0] * len(completions)

    options = {"reward": [polite, Verifier()], "reward_weights": [0.5, 1.0]}
    # Without a name the sum decides: .5 alone is above 0, so that every answer counts as right.
    assert paid(trained(tmp_path / "sum", **options)) == pytest.approx([0.75 + LENGTH] * 16)
    named = trained(tmp_path / "named", **options, mentor_success_rewards=["verifier"])
    assert paid(named)[:2] == pytest.approx([0.75 + LENGTH, 0.25 + LENGTH])
    assert named.mentor_totals.successes == 8


def test_rewards_that_are_awaited_judge_as_well(tmp_path):
    calls = []

    async def verifier(completions, **kwargs):
        await asyncio.sleep(0.01)
        calls.append(len(completions))
        return [is_right(completion_text(completion)) for completion in completions]

    for errors in ("raise", "unscorable"):
        made = trained(tmp_path / errors, reward=verifier, mentor_reward_errors=errors)
        assert paid(made)[:4] == pytest.approx([0.75 + LENGTH, 0.25 + LENGTH, 1.0 + LENGTH, 0.5 + LENGTH])
        assert made.reward_func_names == ["verifier", "reflection"]
    assert calls == [16] * 4


def test_a_verifier_that_breaks_on_whole_completions_leaves_form_and_length(tmp_path):
    def verifier(completions, **kwargs):
        if any("reflection" in completion_text(completion) for completion in completions):
            raise OSError("no sandbox")
        return [is_right(completion_text(completion)) for completion in completions]

    made = trained(tmp_path, reward=verifier, mentor_reward_errors="unscorable")
    assert paid(made) == pytest.approx([0.5 + LENGTH] * 16)
    assert (made.mentor_totals.unscorable, made.mentor_totals.reward_errors) == (4, 1)
    assert made.mentor_totals.cause_verifier_error == 4
    with pytest.raises(OSError, match="no sandbox"):
        trained(tmp_path / "raises", reward=verifier)


def test_a_verifier_that_breaks_on_first_answers_is_counted_and_success_still_seen(tmp_path):
    def verifier(completions, **kwargs):
        if all("reflection" not in completion_text(completion) for completion in completions):
            raise OSError("no sandbox")
        return [is_right(completion_text(completion)) for completion in completions]

    made = trained(tmp_path, reward=verifier, mentor_reward_errors="unscorable")
    assert all(math.isnan(value) for value in paid(made))
    totals = made.mentor_totals
    assert (totals.reward_errors, totals.successes, totals.collapsed) == (1, 8, 0)
    assert getattr(totals, f"cause_{Cause.VERIFIER_ERROR}") == 0


def test_a_strategy_object_is_paid_for_as_well(tmp_path):
    made = trained(tmp_path, strategy=SrpoStrategy(), mentor_strategy="mentor")
    assert made.reward_func_names == ["verifier", "reflection"]
    assert paid(made)[:1] == pytest.approx([0.75 + LENGTH])


def reflection(completions, **kwargs):
    return [0.0] * len(completions)


def test_what_cannot_judge_first_answers_is_refused_with_the_way_out(tmp_path):
    def form(completions, **kwargs):
        return [0.0] * len(completions)

    with pytest.raises(ConfigError, match="'tiny-rm' is a reward model; name reward functions in mentor_success"):
        trainer(tmp_path, reward=[form, "nobody/tiny-rm"])
    config = LlamaConfig(
        hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, num_labels=1, vocab_size=64
    )
    model = AutoModelForSequenceClassification.from_config(config)
    with pytest.raises(ConfigError, match="is a reward model"):
        trainer(tmp_path, reward=model)
    with pytest.raises(ConfigError, match="is called 'reflection', as the one that mentor_strategy='srpo' adds"):
        trainer(tmp_path, reward=reflection)
    with pytest.raises(ConfigError, match=re.escape("reward_weights has 2 numbers for the 1 reward functions")):
        trainer(tmp_path, reward=form, reward_weights=[1.0, 2.0])
    with pytest.raises(ConfigError, match=re.escape("is not one of the reward functions ['form']")):
        trainer(tmp_path, reward=form, mentor_success_rewards=["reflection"])


def test_a_conversation_without_a_user_turn_is_asked_plainly():
    prompt = [{"role": "system", "content": "w20"}]
    assert SrpoStrategy().first_prompt(prompt, {}, progress=0.0) == prompt


WHOLE = written("w5", "w4")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (WHOLE, WHOLE[:41]),
        (f" {WHOLE}\n", f" {WHOLE[:41]}"),
        (WHOLE.removeprefix("<think>"), WHOLE[:41]),  # opened by the chat template
        (WHOLE.replace("w2", "a < b > c"), WHOLE[:41]),
        (f"{WHOLE} and more", None),
        (f"So: {WHOLE}", None),
        (WHOLE.replace("</answer> <reflection>", "</answer> so <reflection>"), None),
        (WHOLE.replace(" w2 ", "  "), None),  # an empty reflection
        (WHOLE[:41], None),
        (WHOLE.replace("</reflection>", ""), None),
        (WHOLE.replace("w2", "<answer> w5 </answer>"), None),
        (WHOLE + WHOLE, None),
        ("", None),
        ("<think>" * 50_000, None),
    ],
)
def test_the_form_is_five_parts_with_something_in_each_and_nothing_outside(text, expected):
    assert first_part(text) == expected


def test_the_length_is_paid_most_at_twice_the_first_part():
    def length_of(total):
        return reward_of(False, False, length=total, first_length=100) - 0.5

    assert length_of(200) == pytest.approx(0.1)
    assert length_of(250) == length_of(150) == pytest.approx(0.1 * math.exp(-1))
    assert length_of(300) == pytest.approx(0.1 * math.exp(-4))
    assert reward_of(None, True, length=200, first_length=100) == pytest.approx(0.6)
