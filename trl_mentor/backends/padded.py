"""One `generate` over conversations of different lengths, each with limits of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, PreTrainedModel, StoppingCriteria


@dataclass(frozen=True, slots=True)
class Row:
    """A conversation in tokens, and when its reply must end."""

    ids: tuple[int, ...]
    limit: int
    """Most tokens of its reply."""
    deadline: float
    """By `time.monotonic`."""


class End(Enum):
    """What ended a reply."""

    TOKEN = auto()
    LIMIT = auto()
    DEADLINE = auto()


def padded_tokens(rows: Sequence[Row]) -> int:
    """Tokens, padding included, that a batch of these rows may come to hold."""
    return len(rows) * (max(len(row.ids) for row in rows) + max(row.limit for row in rows))


def generate_padded(
    model: PreTrainedModel,
    rows: Sequence[Row],
    *,
    ends: set[int],
    padding: int,
    temperature: float,
    generator: torch.Generator,
    stopping: Callable[[], bool] = lambda: False,
) -> list[tuple[list[int], End]]:
    """The new tokens of each row, one of `ends` included if it came, and what ended them.

    Once `stopping` says yes, every deadline has passed.
    """
    width = max(len(row.ids) for row in rows)
    ids = torch.tensor([[padding] * (width - len(row.ids)) + list(row.ids) for row in rows], device=model.device)
    mask = torch.tensor([[0] * (width - len(row.ids)) + [1] * len(row.ids) for row in rows], device=model.device)
    # Whatever is not set here, `generate` takes from the model's own settings.
    config = GenerationConfig(
        max_new_tokens=max(row.limit for row in rows),
        do_sample=False,
        num_beams=1,
        temperature=1.0,
        top_p=1.0,
        top_k=50,
        eos_token_id=sorted(ends) or None,
        pad_token_id=padding,
    )
    limits = _OwnLimits(rows, ends, width, stopping)
    output = model.generate(
        ids,
        attention_mask=mask,
        generation_config=config,
        logits_processor=[_OwnSampling(temperature, generator)] if temperature > 0 else [],
        stopping_criteria=[limits],
    )
    replies = [limits.stops[index] for index in range(len(rows))]
    new = output[:, width:].tolist()
    return [(tokens[:length], end) for tokens, (length, end) in zip(new, replies, strict=True)]


class _OwnLimits(StoppingCriteria):  # type: ignore[misc]
    """Ends each row by itself, and remembers where and why."""

    def __init__(self, rows: Sequence[Row], ends: set[int], width: int, stopping: Callable[[], bool]) -> None:
        self.rows, self.ends, self.width, self.stopping = rows, ends, width, stopping
        self.stops: dict[int, tuple[int, End]] = {}

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        """A truth value per row of `input_ids`, shape (batch,)."""
        length = input_ids.shape[1] - self.width
        now = float("inf") if self.stopping() else time.monotonic()
        for index, (row, token) in enumerate(zip(self.rows, input_ids[:, -1].tolist(), strict=True)):
            if index in self.stops:
                continue
            if token in self.ends:
                self.stops[index] = length, End.TOKEN
            elif length >= row.limit:
                self.stops[index] = length, End.LIMIT
            elif now >= row.deadline:
                self.stops[index] = length, End.DEADLINE
        stopped = [index in self.stops for index in range(len(self.rows))]
        return torch.tensor(stopped, device=input_ids.device)


class _OwnSampling(LogitsProcessor):  # type: ignore[misc]
    """Adds Gumbel noise to the logits, so that their argmax is a sample at `temperature`.

    `generate` itself can only sample from the global random state.
    """

    def __init__(self, temperature: float, generator: torch.Generator) -> None:
        self.temperature = temperature
        self.generator = generator

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Logits plus noise; both have shape (batch, vocabulary)."""
        noise = torch.empty_like(scores, dtype=torch.float32).exponential_(generator=self.generator)
        return scores.float() / self.temperature - noise.log()
