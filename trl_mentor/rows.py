"""Between what TRL generates for a rank, column by column, and the rows that travel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from trl_mentor.contract import Generated
from trl_mentor.records import Row


def rows_of(
    generated: Generated, rewards: torch.Tensor, logs: Mapping[str, Sequence[Any]], *, hints: Sequence[str | None]
) -> list[Row]:
    """The rows of one rank. `rewards` has shape (rows, reward functions); `logs` are columns of as many values."""
    return [
        Row(
            prompt_ids=generated.prompt_ids[i],
            completion_ids=generated.completion_ids[i],
            completion=generated.completions[i],
            logprobs=None if generated.logprobs is None else generated.logprobs[i],
            rewards=tuple(values),
            extra={column: column_values[i] for column, column_values in logs.items()},
            hint=hints[i],
        )
        for i, values in enumerate(rewards.tolist())
    ]


def aligned(logs: Mapping[str, list[Any]], rows: int) -> dict[str, list[Any]]:
    """The logged columns that have one value per row; others cannot be told apart by row and stay as they are."""
    return {column: values for column, values in logs.items() if len(values) == rows}


def spliced(first: Generated, rows: Sequence[Row]) -> Generated:
    """`first` with these rows in place of its own."""
    return first._replace(
        prompt_ids=[row.prompt_ids for row in rows],
        completion_ids=[row.completion_ids for row in rows],
        completions=[row.completion for row in rows],
        logprobs=None if first.logprobs is None else [row.logprobs or [] for row in rows],
    )
