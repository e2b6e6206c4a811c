"""Weighed rows: one step of training beside the same objective worked out by autograd, without TRL."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import distributed_run
import engines
import pytest
import tiny
import torch

from trl_mentor.errors import ConfigError
from trl_mentor.grpo_trainer import MentorGRPOTrainer
from trl_mentor.records import Row, Weighting
from trl_mentor.rescue import scored_under, with_weighting
from trl_mentor.strategies.mentor import MentorStrategy
from trl_mentor.weighting import WEIGHTING, affinity, encoded, slope, weighed

GAMMA = 0.1
NONE, SHAPED, AFFINITY = Weighting.NONE, Weighting.SHAPED, Weighting.AFFINITY
DESCENT = {"max_grad_norm": 0.0, "optim": "sgd", "lr_scheduler_type": "constant", "learning_rate": 1.0}
LUFFY = {"mentor_preset": "robust", "mentor_rescue_shaping": "luffy"}
SHARED_EVENLY = ("dapo", "cispo", "vespo", "bnpo")
"""Losses in which each token of the batch counts equally, where a batch is one micro-batch."""


class Weighs(MentorStrategy):
    """Re-rolled groups are scored on the question and weighed in one way."""

    def __init__(self, weighting: Weighting, *, affinity: float = 1.0) -> None:
        super().__init__(tiny.mentor(), routes=tiny.MENTOR_ANYWAY)
        self.weighting = weighting
        self.affinity = affinity

    def merge(self, original: Sequence[Row], rerolled: Sequence[Row]) -> list[Row]:
        return with_weighting(scored_under(original, rerolled), self.weighting)


def weightings(batch: dict[str, Any]) -> list[Weighting]:
    return [list(Weighting)[code] for code in batch[WEIGHTING].tolist()]


def logps(model: Any, row: tuple[Sequence[int], Sequence[int]]) -> torch.Tensor:
    """Of the tokens of a completion under its prompt, shape (tokens,)."""
    prompt, completion = row
    logits = model(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(dim=-1)[range(len(completion)), list(completion)]


def drift_factor(log_ratios: list[float], epsilon: float) -> float:
    """HINT's Affinity as the formula says, token by token."""
    effective = [value for value in log_ratios if 1 - epsilon <= math.exp(value) <= 1 + epsilon]
    if not effective:
        return 0.0
    mean = sum(effective) / len(effective)
    spread = math.sqrt(sum((value - mean) ** 2 for value in effective) / len(effective))
    return len(effective) / len(log_ratios) * math.exp(-spread / (math.log(1 + epsilon) / 2))


def token_losses(
    kind: Weighting, advantage: float, new: torch.Tensor, old: torch.Tensor, epsilon: float, exponent: float
) -> torch.Tensor:
    """What is minimised for each token of a row, where ratios are clipped."""
    if kind is SHAPED:
        return -advantage * new.exp() / (new.exp() + GAMMA)
    ratio = (new - old).exp()
    if kind is AFFINITY:
        advantage *= drift_factor((new - old).tolist(), epsilon) ** exponent
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - epsilon, 1 + epsilon) * advantage)


def step(
    model: Any,
    rows: list[tuple[Any, Any]],
    advantages: list[float],
    kinds: list[Weighting],
    *,
    old: list[torch.Tensor] | None = None,
    reference: list[torch.Tensor] | None = None,
    correction: list[float] | None = None,
    loss_type: str = "dapo",
    epsilon: float = 0.2,
    exponent: float = 1.0,
    beta: float = 0.0,
    rate: float = 1.0,
) -> list[torch.Tensor]:
    """Take one step of plain gradient descent, in place; returns the gradients."""
    tokens, total = sum(len(completion) for _, completion in rows), torch.zeros(())
    for i, row in enumerate(rows):
        new = logps(model, row)
        before = new.detach() if old is None else old[i]
        each = token_losses(kinds[i], advantages[i], new, before, epsilon, exponent)
        each = each * (1.0 if correction is None else correction[i])
        if reference is not None:
            gap = (
                reference[i] - new
            )  # TRL weighs its estimate of the divergence by the ratio, which is 1 in shaped rows
            each = each + beta * (gap.exp() - gap - 1) * (new - (new.detach() if kinds[i] is SHAPED else before)).exp()
        parts = {
            "grpo": each.mean() / len(rows),
            "sapo": each.mean() / len(rows),
            "luspo": each.sum() / len(rows),
            "dr_grpo": each.sum() / (len(rows) * 6),
        }
        total = total + (each.sum() / tokens if loss_type in SHARED_EVENLY else parts[loss_type])
    model.zero_grad()
    total.backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    with torch.no_grad():
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter -= rate * gradient
    return gradients


def assert_trained_as(trainer: Any, expected: Any, start: Any, *, tolerance: float = 2e-5) -> None:
    moved = 0.0
    for found, wanted, before in zip(
        trainer.model.parameters(), expected.parameters(), start.parameters(), strict=True
    ):
        assert torch.allclose(found, wanted, atol=tolerance)
        moved = max(moved, (wanted - before).abs().max().item())
    assert moved > 100 * tolerance


def by_hand_from(trainer: Any, **options: Any) -> Any:
    """A model after one step on the trainer's first batch, worked out by hand."""
    batch, model = trainer.batches[0], tiny.model()
    step(model, tiny.rows(batch), batch["advantages"].tolist(), weightings(batch), **options)
    return model


def test_the_slope_is_that_of_p_over_p_plus_gamma_by_the_log_of_p():
    p = torch.tensor([0.1, 1.0, 0.9, 0.01])
    assert slope(p.log(), 0.1).tolist() == pytest.approx([0.25, 0.1 / 1.21, 0.09, 0.001 / 0.0121])
    logs = torch.linspace(-9.0, 0.0, 50, dtype=torch.float64, requires_grad=True)
    (logs.exp() / (logs.exp() + 0.3)).sum().backward()
    assert torch.allclose(slope(logs.detach(), 0.3), logs.grad)


def test_affinity_is_the_share_of_unclipped_tokens_times_what_their_spread_leaves():
    logs = torch.tensor([[0.0, 0.1, -0.1, 1.0, 5.0], [0.0] * 5, [1.0] * 5, [0.0] * 5])
    mask = torch.tensor([[1, 1, 1, 1, 0], [1] * 5, [1] * 5, [0] * 5])
    found = affinity(logs, mask, clip=(0.2, 0.2))
    spread = math.sqrt(0.02 / 3)
    assert found.shape == (4, 1)
    assert found.flatten().tolist() == pytest.approx([0.75 * math.exp(-spread / (math.log(1.2) / 2)), 1.0, 0.0, 0.0])
    assert affinity(torch.tensor([[0.25]]), torch.ones(1, 1), clip=(0.2, 0.28)) == 0.0
    assert affinity(torch.tensor([[0.24]]), torch.ones(1, 1), clip=(0.2, 0.28)) == 1.0


def test_rows_that_are_not_weighed_keep_advantage_and_old_log_probabilities_bit_for_bit():
    torch.manual_seed(0)
    new, old, advantages = -torch.rand(3, 5), -torch.rand(3, 5), torch.randn(3)
    batch = {
        WEIGHTING: encoded([NONE, SHAPED, AFFINITY], torch.device("cpu")),
        "advantages": advantages,
        "old_per_token_logps": old,
        "completion_mask": torch.ones(3, 5),
    }
    found = weighed(batch, new, gamma=0.1, exponent=2.0, clip=(0.2, 0.2))
    assert torch.equal(found["advantages"][0], advantages[0].expand(5))
    assert torch.equal(found["old_per_token_logps"], torch.stack([old[0], new[1], old[2]]))
    assert torch.equal(found["advantages"][1], advantages[1] * slope(new[1], 0.1))
    factor = affinity((new - old)[2:], torch.ones(1, 5), clip=(0.2, 0.2)) ** 2
    assert torch.allclose(found["advantages"][2], advantages[2] * factor)


@pytest.mark.parametrize(
    "options",
    [
        {"loss_type": "dapo"},
        {"loss_type": "dapo", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 4},
        {"loss_type": "grpo", "gradient_checkpointing": True},
        {"loss_type": "bnpo"},
        {"loss_type": "dr_grpo"},
        {"loss_type": "luspo"},
        {"loss_type": "cispo", "epsilon_high": 5.0},
        {"loss_type": "sapo"},
        {"loss_type": "vespo"},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_one_step_on_shaped_rows_is_one_on_advantage_times_p_over_p_plus_gamma(tmp_path, options):
    trainer = tiny.trained(tmp_path, **DESCENT, **LUFFY, **options)
    assert [kind is SHAPED for kind in weightings(trainer.batches[0])].count(True) == 2
    expected = by_hand_from(trainer, loss_type=options["loss_type"])
    assert_trained_as(trainer, expected, tiny.model())
    without = tiny.model()
    rows, advantages = tiny.rows(trainer.batches[0]), trainer.batches[0]["advantages"].tolist()
    step(without, rows, advantages, [NONE] * 16, loss_type=options["loss_type"])
    with pytest.raises(AssertionError):
        assert_trained_as(trainer, without, tiny.model())


def test_gamma_is_the_one_of_the_settings(tmp_path, monkeypatch):
    trainer = tiny.trained(tmp_path, **DESCENT, **LUFFY, mentor_shaping_gamma=0.02)
    monkeypatch.setitem(globals(), "GAMMA", 0.02)
    assert_trained_as(trainer, by_hand_from(trainer), tiny.model())


@pytest.mark.parametrize("kind", [SHAPED, AFFINITY])
@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_a_second_inner_step_has_no_ratio_in_shaped_rows_and_the_affinity_of_its_drift_in_the_others(
    tmp_path, kind, beta
):
    start = tiny.model()
    start.save_pretrained(tmp_path / "model")
    trainer = tiny.Recorder(
        str(tmp_path / "model"),
        reward_funcs=tiny.HardRowsFail(),
        args=tiny.config(
            tmp_path / "run", **DESCENT, num_iterations=2, max_steps=2, beta=beta, mentor_routes=None, epsilon=0.05
        ),
        train_dataset=tiny.dataset(),
        processing_class=tiny.tokenizer(),
        strategy=Weighs(kind, affinity=2.0),
    )
    trainer.train()
    (batch,) = trainer.batches
    rows, kinds, advantages = tiny.rows(batch), weightings(batch), batch["advantages"].tolist()
    assert kinds.count(kind) == 8
    model = tiny.load(tmp_path / "model")
    with torch.no_grad():
        old = [logps(model, row) for row in rows]
    options = {"old": old, "reference": old, "beta": beta, "epsilon": 0.05, "exponent": 2.0}
    step(model, rows, advantages, kinds, **options)
    with torch.no_grad():
        drifts = [(logps(model, row) - before).tolist() for row, before in zip(rows, old, strict=True)]
    factors = [drift_factor(drift, 0.05) for drift, of in zip(drifts, kinds, strict=True) if of is kind]
    assert min(factors) < 0.5  # the policy has moved so far that the weights matter
    step(model, rows, advantages, kinds, **options)
    assert_trained_as(trainer, model, start, tolerance=1e-4)


def test_with_old_log_probabilities_that_are_not_kept_affinity_changes_nothing(tmp_path):
    weighs = tiny.trained(tmp_path / "a", strategy=Weighs(AFFINITY), **DESCENT)
    plain = tiny.trained(tmp_path / "b", strategy=Weighs(NONE), **DESCENT)
    assert weightings(weighs.batches[0]).count(AFFINITY) == 8
    assert WEIGHTING not in plain.batches[0]
    for found, expected in zip(weighs.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(found, expected)


class DropsOut(tiny.Recorder):
    """The same policy with dropout in its attention, which falls otherwise in each forward pass."""

    def __init__(self, model: Any, **kwargs: Any) -> None:
        for layer in model.model.layers:
            layer.self_attn.attention_dropout = 0.5
        super().__init__(model, **kwargs)


@pytest.mark.parametrize("kind", [SHAPED, NONE])
def test_the_ratio_of_shaped_rows_is_exactly_1_also_with_dropout(tmp_path, kind):
    options = {"data": tiny.dataset(hard=lambda i: True), "epsilon": 1e-12, "num_iterations": 2, "max_steps": 2}
    trainer = tiny.trained(tmp_path, cls=DropsOut, strategy=Weighs(kind), **options)
    clipped = [log["clip_ratio/region_mean"] for log in trainer.state.log_history if "loss" in log]
    assert len(clipped) == 2
    assert all((share == 0.0) is (kind is SHAPED) for share in clipped)


class AlwaysKeyed(tiny.Recorder):
    """Marks every row of every batch as one that is not weighed."""

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        output.setdefault(WEIGHTING, encoded([NONE] * len(output["advantages"]), torch.device("cpu")))
        return output


@pytest.mark.parametrize("loss_type", ["dapo", "cispo", "vespo", "sapo"])
def test_where_no_row_is_weighed_the_loss_is_trls_own_bit_for_bit(tmp_path, loss_type):
    options = {"loss_type": loss_type, "num_iterations": 2, "max_steps": 2, "beta": 0.0}
    keyed = tiny.trained(tmp_path / "a", cls=AlwaysKeyed, **options)
    plain = tiny.trained(tmp_path / "b", **options)
    assert weightings(keyed.batches[0]) == [NONE] * 16
    for found, expected in zip(keyed.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(found, expected)
    losses = [[log["loss"] for log in run.state.log_history if "loss" in log] for run in (keyed, plain)]
    assert losses[0] == losses[1]


def test_a_run_that_has_nothing_to_weigh_is_the_run_without_shaping(tmp_path):
    fails = tiny.HardRowsFail(reroll=(0.0,))
    shaped = tiny.trained(tmp_path / "a", reward=fails, **LUFFY)
    plain = tiny.trained(tmp_path / "b", reward=tiny.HardRowsFail(reroll=(0.0,)), mentor_preset="robust")
    assert WEIGHTING not in shaped.batches[0]
    for found, expected in zip(shaped.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(found, expected)


class FarEngine(engines.FromAnotherEngine):
    """One that finds its own completions improbable, so that rows are corrected visibly."""

    logprob = -4.0


def test_the_correction_of_the_sampler_leaves_shaped_rows_alone(tmp_path):
    trainer = tiny.trained(tmp_path, cls=FarEngine, **DESCENT, **LUFFY)
    (batch,) = trainer.batches
    ratio = batch["importance_sampling_ratio"].flatten().tolist()
    assert {ratio[i] for i, kind in enumerate(weightings(batch)) if kind is SHAPED} == {1.0}
    assert any(value != 1.0 for value in ratio)
    assert_trained_as(trainer, by_hand_from(trainer, correction=ratio), tiny.model())


def test_evaluation_after_a_batch_with_shaped_rows_is_trls_own(tmp_path):
    class Keeps(tiny.Recorder):
        def _generate_and_score_completions(self, inputs):
            self.newest = super()._generate_and_score_completions(inputs)
            return self.newest

    trainer = tiny.trained(tmp_path, cls=Keeps, eval_dataset=tiny.dataset(4), **LUFFY)
    assert WEIGHTING in trainer.newest
    trainer.evaluate()
    assert WEIGHTING not in trainer.newest


def test_two_processes_of_which_one_has_shaped_rows_take_the_step_of_one_batch(tmp_path):
    case = {"hard": [1], "per_device_train_batch_size": 8, "max_steps": 2, **DESCENT, **LUFFY}
    ranks = distributed_run.launch(tmp_path, {"shaped": case})["shaped"]
    rows = [row for rank in ranks for row in rank["batches"][0]]
    advantages = [value for rank in ranks for value in rank["advantages"][0]]
    rescued = [i for i in range(4, 8) if advantages[i] > 1.0]
    assert len(rescued) == 1
    kinds = [SHAPED if i in rescued else NONE for i in range(16)]
    gradients, without = (step(tiny.model(), rows, advantages, of) for of in (kinds, [NONE] * 16))
    norm, other = (torch.cat([item.flatten() for item in found]).norm().item() for found in (gradients, without))
    assert ranks[0]["log"][0]["grad_norm"] == pytest.approx(norm, rel=1e-4)
    assert norm != pytest.approx(other, rel=1e-2)
    assert [rank["steps"] for rank in ranks] == [2, 2]


def refused(tmp_path, **options) -> str:
    """The message, of a run whose model is never looked for."""
    given = {name: options.pop(name) for name in ("strategy",) if name in options}
    with pytest.raises(ConfigError) as caught:
        MentorGRPOTrainer(
            "no/such/model",
            reward_funcs=tiny.HardRowsFail(),
            args=tiny.config(tmp_path, **options),
            train_dataset=tiny.dataset(),
            **given,
        )
    return str(caught.value)


@pytest.mark.parametrize(
    "options",
    [LUFFY, {"mentor_strategy": "luffy"}, {"mentor_strategy": "critique"}, {"mentor_strategy": "static_hint"}],
)
def test_one_ratio_per_row_is_refused_where_tokens_are_weighed(tmp_path, options):
    assert "importance_sampling_level is 'sequence'" in refused(
        tmp_path, importance_sampling_level="sequence", loss_type="grpo", **options
    )


@pytest.mark.parametrize("loss_type", ["cispo", "sapo", "vespo"])
def test_affinity_is_refused_where_nothing_is_clipped_by_epsilon(tmp_path, loss_type):
    assert f"loss_type={loss_type!r}" in refused(tmp_path, mentor_strategy="static_hint", loss_type=loss_type)
    strategy = Weighs(AFFINITY)
    assert "mentor_affinity 0" in refused(tmp_path, strategy=strategy, loss_type=loss_type, mentor_routes=None)
    assert "above 0, got 0.0" in refused(tmp_path, mentor_strategy="static_hint", epsilon=0.0)


def test_a_strategy_that_weighs_rows_unannounced_is_refused_when_it_does(tmp_path):
    strategy = Weighs(SHAPED, affinity=0.0)
    with pytest.raises(ConfigError, match="importance_sampling_level is 'sequence'"):
        tiny.trained(tmp_path, strategy=strategy, importance_sampling_level="sequence", loss_type="grpo")


def test_shaping_without_rows_on_the_question_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="mentor_score_on='original'"):
        tiny.config(tmp_path, mentor_rescue_shaping="luffy")
