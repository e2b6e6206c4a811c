"""Hint reliance: how much of the log-probability of a completion the policy owes to the hint above the question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from trl_mentor.records import Reliance, Row

Score = Callable[[torch.Tensor, torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]]
"""Log-probabilities of the last tokens and the policy's entropies there, each of shape (rows, tokens), of input ids
and attention mask and for so many tokens. Every rank calls it equally often."""


def with_reliance(rows: Sequence[Row], plain: Sequence[Sequence[int]], score: Score, *, pad: int) -> list[Row]:
    """These rows, each with its reliance if it was sampled under a hint; `plain` are their prompts without one.

    Rows without a hint go through `score` as well, so that the ranks, which have equally many rows, make equally many
    forward passes whatever hints they hold.
    """
    completions = [row.completion_ids for row in rows]
    under = _scored([row.prompt_ids for row in rows], completions, score, pad)
    alone = _scored(plain, completions, score, pad)
    return [
        replace(row, reliance=_reliance(hinted, without)) if row.hint is not None and row.completion_ids else row
        for row, hinted, without in zip(rows, under, alone, strict=True)
    ]


def _reliance(hinted: torch.Tensor, plain: torch.Tensor) -> Reliance:
    """Of two tensors of shape (2, tokens): log-probabilities and entropies under the hint and without it."""
    ratios, (_, hinted_entropy), (_, plain_entropy) = plain[0] - hinted[0], hinted, plain
    return Reliance(
        mean=ratios.mean().item(),
        lowest=ratios.min().item(),
        total=ratios.sum().item(),
        hinted_entropy=hinted_entropy.sum().item(),
        plain_entropy=plain_entropy.sum().item(),
        tokens=len(ratios),
    )


@torch.no_grad()
def _scored(
    prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], score: Score, pad: int
) -> list[torch.Tensor]:
    """Log-probabilities and entropies of each completion under its prompt, shape (2, tokens of the completion)."""
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
    found = torch.stack(score(torch.tensor(ids), torch.tensor(mask), after)).float().cpu()
    return [found[:, row, : len(completion)] for row, completion in enumerate(completions)]
