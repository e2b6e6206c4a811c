"""A LoRA adapter in training: the re-roll comes from the adapted policy, and everything else from where it should."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import tiny
import torch
from peft import LoraConfig

HARD = [row for row in range(16) if row // 4 in (1, 3)]
"""Rows of groups 1 and 3, the ones that collapse in `tiny.dataset`."""


class Watched(tiny.Recorder):
    """The shipped trainer, keeping how the policy would go on with each row's prompt, with and without its adapter."""

    def __init__(self, *args: Any, init_lora_weights: bool = False, **kwargs: Any) -> None:
        lora = LoraConfig(r=8, lora_alpha=32, target_modules="all-linear", init_lora_weights=init_lora_weights)
        super().__init__(*args, peft_config=lora, **kwargs)
        self.adapted: list[tuple[int, ...]] = []
        self.base: list[tuple[int, ...]] = []
        self.base_logps = torch.empty(0)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        prompts = [prompt for prompt, _ in tiny.rows(output)]
        self.adapted = [greedy(self.model, prompt) for prompt in prompts]
        with self.model.disable_adapter():
            self.base = [greedy(self.model, prompt) for prompt in prompts]
            self.base_logps = completion_logps(self.model, output)
        return output


@torch.no_grad()
def greedy(model: Any, prompt: tuple[int, ...], tokens: int = 6) -> tuple[int, ...]:
    """The likeliest tokens after a prompt, up to and with the end of sequence."""
    ids = list(prompt)
    while len(ids) < len(prompt) + tokens and ids[-1] != 1:
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return tuple(ids[len(prompt) :])


@torch.no_grad()
def completion_logps(model: Any, batch: dict[str, Any]) -> torch.Tensor:
    """Log-probability of each completion token, shape (rows, completion length); 0 where there is none."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    logps = model(input_ids=ids, attention_mask=mask).logits[:, :-1].log_softmax(dim=-1)
    found = logps.gather(-1, ids[:, 1:, None]).squeeze(-1)[:, -batch["completion_ids"].shape[1] :]
    return found * batch["completion_mask"]


@pytest.fixture(scope="module")
def trainer(tmp_path_factory):
    """One step with an adapter that is far from doing nothing, a reference policy, and the likeliest tokens only."""
    return tiny.trained(tmp_path_factory.mktemp("lora"), cls=Watched, top_k=1, beta=0.1)


def test_rerolled_rows_come_from_the_adapted_policy_under_the_hinted_prompt(trainer):
    rows = tiny.rows(trainer.batches[0])
    hinted = tuple(tiny.tokenizer()(f"Hint: {tiny.HINT}\n\nOriginal question: w1 w1")["input_ids"])
    assert [rows[row][0] for row in range(4, 8)] == [hinted] * 4
    assert [completion for _, completion in rows] == trainer.adapted
    assert all(rows[row][1] != trainer.base[row] for row in HARD)


def test_reference_log_probabilities_of_rerolled_rows_come_from_the_base_under_the_hinted_prompt(trainer):
    (batch,) = trainer.batches
    found = batch["ref_per_token_logps"] * batch["completion_mask"]
    torch.testing.assert_close(found[HARD], trainer.base_logps[HARD], atol=1e-5, rtol=0)
    assert (found - completion_logps(trainer.model, batch))[HARD].abs().max() > 0.01


def test_the_adapter_learns_and_the_base_stays(tmp_path):
    trainer = tiny.trained(tmp_path, cls=functools.partial(Watched, init_lora_weights=True))
    assert trainer.mentor_totals.rescued == 2
    learned = {
        name.removeprefix("base_model.model.").replace(".base_layer", ""): value
        for name, value in trainer.model.state_dict().items()
    }
    assert all(torch.equal(learned[name], value) for name, value in tiny.model().state_dict().items())
    assert all(value.any() for name, value in learned.items() if "lora_B" in name)
