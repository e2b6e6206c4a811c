"""Hint reliance worked out by hand: one forward pass of the policy for each token."""

from __future__ import annotations

import pytest
import tiny
import torch

from trl_mentor import read_journal

PREFIX = tuple(tiny.tokenizer()(f"Hint: {tiny.HINT}\n\nOriginal question: ")["input_ids"])


@torch.no_grad()
def mean_logp(model, prompt, completion, temperature=1.0):
    """Of one completion under one prompt, token by token."""
    total = 0.0
    for position, token in enumerate(completion):
        logits = model(torch.tensor([[*prompt, *completion[:position]]])).logits[0, -1]
        total += (logits / temperature).log_softmax(dim=-1)[token].item()
    return total / len(completion)


def expected(model, rows, temperature=1.0):
    """Reliance of each hinted row, by what the policy is at the time; None for the others."""
    found = []
    for prompt, completion in rows:
        if prompt[: len(PREFIX)] != PREFIX:
            found.append(None)
            continue
        alone, hinted = (mean_logp(model, ids, completion, temperature) for ids in (prompt[len(PREFIX) :], prompt))
        found.append(alone - hinted)
    return found


def reliances(folder, step):
    return [value for item in read_journal(folder) if item.step == step for value in item.reliances]


def assert_close(found, by_hand):
    assert found == pytest.approx(by_hand, abs=1e-4)
    assert max(map(abs, by_hand)) > 1e-3  # the hint makes a difference that could be missed
