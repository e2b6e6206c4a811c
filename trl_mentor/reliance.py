"""Hint reliance: how much of the log-probability of a completion the policy owes to the hint above the question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from trl_mentor.records import Row

Score = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]
"""Log-probabilities of the last tokens, shape (rows, tokens), of input ids and attention mask and for so many tokens.
Every rank calls it equally often."""


def with_reliance(rows: Sequence[Row], plain: Sequence[Sequence[int]], score: Score, *, pad: int) -> list[Row]:
    """These rows, each with its reliance if it was sampled under a hint; `plain` are their prompts without one.

    Rows without a hint go through `score` as well, so that the ranks, which have equally many rows, make equally many
    forward passes whatever hints they hold.
    """
    completions = [row.completion_ids for row in rows]
    hinted = _mean_log_probabilities([row.prompt_ids for row in rows], completions, score, pad)
    alone = _mean_log_probabilities(plain, completions, score, pad)
    return [
        replace(row, reliance=without - under) if row.hint is not None and row.completion_ids else row
        for row, under, without in zip(rows, hinted, alone, strict=True)
    ]


@torch.no_grad()
def _mean_log_probabilities(
    prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], score: Score, pad: int
) -> list[float]:
    """Of each completion under its prompt, in nats per token; 0 for an empty completion."""
    before, after = max(map(len, prompts)), max(1, *map(len, completions))
    pairs = list(zip(prompts, completions, strict=True))
    ids = [
        [pad] * (before - len(prompt)) + [*prompt, *completion] + [pad] * (after - len(completion))
        for prompt, completion in pairs
    ]
    mask = [
        [0] * (before - len(prompt)) + [1] * (len(prompt) + len(completion)) + [0] * (after - len(completion))
        for prompt, completion in pairs
    ]
    attended = torch.tensor(mask)
    found = score(torch.tensor(ids), attended, after).float().cpu() * attended[:, -after:]
    lengths = torch.tensor([max(1, len(completion)) for completion in completions])
    return (found.sum(dim=1) / lengths).tolist()
