"""Between what TRL generates for a rank, column by column, and the rows that travel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch

from trl_mentor.collapse import SuccessRule
from trl_mentor.contract import Generated
from trl_mentor.group_reader import none_if_nan
from trl_mentor.records import Row


def rows_of(
    generated: Generated,
    rewards: torch.Tensor,
    logs: Mapping[str, Sequence[Any]],
    *,
    hints: Sequence[str | None],
    rule: SuccessRule,
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
            success=rule.succeeded(values),
            score=none_if_nan(rule.value(values)),
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


def taken_over(new: Mapping[int, Sequence[Row]], rows: list[Row], rewards: torch.Tensor, *, rank: int) -> torch.Tensor:
    """Put what was re-rolled, by group, in its places among this rank's `rows`; returns everybody's new rewards.

    `rewards` has shape (rows of all ranks, reward functions), and the ranks have equally many rows.
    """
    start, rewards = rank * len(rows), rewards.clone()
    for index, members in new.items():
        first = index * len(members)
        rewards[first : first + len(members)] = torch.tensor([row.rewards for row in members])
        for local, row in enumerate(members, first - start):
            if 0 <= local < len(rows):
                rows[local] = row
    return rewards


def show_prompts(examples: Mapping[int, Mapping[str, Any]], prompts: list[Any], *, size: int, rank: int) -> None:
    """Put the prompts of these data set rows, by group, among this rank's, a list that TRL logs."""
    start = rank * len(prompts)
    for index, example in examples.items():
        for local in range(max(index * size - start, 0), min((index + 1) * size - start, len(prompts))):
            prompts[local] = deepcopy(example["prompt"])
