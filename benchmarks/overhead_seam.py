"""The time of this package alone in one generation batch, with what TRL does taken out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from overhead_world import QUICK, trainer
from trl import GRPOTrainer

from trl_mentor import MentorGRPOTrainer

ROWS = (16, 64, 128, 512)


class Instant(GRPOTrainer):
    """TRL's trainer whose generation and rewards are there at once: what remains is the time of a subclass."""

    known: Sequence[Any] = ()

    def _generate(self, prompts: list[Any]) -> Any:
        return tuple(column[: len(prompts)] if isinstance(column, list) else column for column in self.known)

    def _calculate_rewards(self, inputs: list[dict[str, Any]], *_: Any) -> torch.Tensor:
        return torch.tensor([[0.0 if row["hard"] else float(i % 2)] for i, row in enumerate(inputs)])

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> Any:
        prompts = [row["prompt"] for row in inputs]
        generated = self._generate(prompts)
        return self._calculate_rewards(inputs, prompts, generated[3], generated[1])


class MentoredInstant(MentorGRPOTrainer, Instant):
    """The shipped trainer on top of it."""


def seam(out: Path, *, half_collapsed: bool) -> dict[str, float]:
    """Milliseconds of processor time of this package alone in one generation batch, by its rows; 1000 tokens each.

    TRL's generation and rewards are replaced by ones that are there at once. The re-roll is the one of `resample`.
    """
    hard = [half_collapsed and i % 2 == 1 for i in range(QUICK.groups)]
    made = trainer(MentoredInstant, QUICK, hard, out / str(half_collapsed), mentor_strategy="resample")
    made.model.train()
    result = {}
    for rows in ROWS:
        made.known, inputs = known_batch(rows, tokens=1000, hard=hard, group_size=QUICK.group_size)
        times = []
        for _ in range(7):
            started = time.thread_time()
            made._generate_and_score_completions(inputs)
            times.append(time.thread_time() - started)
        result[str(rows)] = 1000 * median(times)
    return result


def known_batch(
    rows: int, *, tokens: int, hard: list[bool], group_size: int
) -> tuple[tuple[Any, ...], list[dict[str, Any]]]:
    """What `_generate` is to return for so many rows, and the data set rows that they belong to."""
    prompt = "w1 " * 16
    ids = [[300 + i % 50] * tokens for i in range(rows)]
    texts = [" ".join(["w12"] * tokens) for _ in range(rows)]
    inputs = [{"prompt": prompt, "hard": hard[i // group_size % len(hard)], "answer": "12"} for i in range(rows)]
    return ([[1] * 16] * rows, ids, None, texts, None, {}, None, []), inputs
