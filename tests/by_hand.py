"""Hint reliance worked out by hand: one forward pass of the policy for each token."""

from __future__ import annotations

import statistics

import pytest
import tiny
import torch

from trl_mentor import read_journal

PREFIX = tuple(tiny.tokenizer()(f"Hint: {tiny.HINT}\n\nOriginal question: ")["input_ids"])


@torch.no_grad()
def token_by_token(model, prompt, completion, temperature=1.0):
    """Log-probabilities of one completion under one prompt, and the policy's entropies there."""
    found = []
    for position, token in enumerate(completion):
        logits = model(torch.tensor([[*prompt, *completion[:position]]])).logits[0, -1]
        logps = (logits / temperature).log_softmax(dim=-1)
        found.append((logps[token].item(), -(logps.exp() * logps).sum().item()))
    return [list(values) for values in zip(*found, strict=True)]


def mean_logp(model, prompt, completion, temperature=1.0):
    """Of one completion under one prompt."""
    return statistics.fmean(token_by_token(model, prompt, completion, temperature)[0])


def measured(model, rows, temperature=1.0):
    """Of each hinted row, by what the policy is at the time: log-ratios and entropies under the hint and without it.

    None for the others.
    """
    found = []
    for prompt, completion in rows:
        if prompt[: len(PREFIX)] != PREFIX:
            found.append(None)
            continue
        under, hinted = token_by_token(model, prompt, completion, temperature)
        alone, plain = token_by_token(model, prompt[len(PREFIX) :], completion, temperature)
        found.append(([without - given for without, given in zip(alone, under, strict=True)], hinted, plain))
    return found


def expected(model, rows, temperature=1.0):
    """Mean log-ratio of each hinted row; None for the others."""
    return [None if row is None else statistics.fmean(row[0]) for row in measured(model, rows, temperature)]


def reliances(folder, step):
    return [value for item in read_journal(folder) if item.step == step for value in item.reliances]


def assert_close(found, by_hand):
    assert found == pytest.approx(by_hand, abs=1e-4)
    assert max(map(abs, by_hand)) > 1e-3  # the hint makes a difference that could be missed
