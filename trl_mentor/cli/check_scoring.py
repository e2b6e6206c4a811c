"""Reward functions as TRL calls them, outside a training: every argument it passes, one value per completion."""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import TrainerState

from trl_mentor.channel import reports
from trl_mentor.collapse import SuccessRule
from trl_mentor.mentor_pool import outcome_of
from trl_mentor.records import Completion, Prompt

_ALREADY_GIVEN = ("prompt", "completion", "completion_ids")


@dataclass(frozen=True, slots=True)
class Scored:
    """What the reward functions say about some completions."""

    successes: list[float]
    """The success reward of each completion; NaN where it could not be scored."""
    seconds: float
    """Of the slowest function, for all of them."""
    slowest: str
    rewards: list[tuple[float, ...]]
    """What each function says, by completion."""
    reported: list[dict[str, Any]]
    """What the functions reported about each completion through `log_extra`."""


class RewardError(Exception):
    """A reward function raised, or returned something else than one number or None for each completion."""


def reward_name(reward: Any) -> str:
    """The name under which TRL logs a reward function."""
    return str(getattr(reward, "__name__", type(reward).__name__))


def success_rule(rewards: Sequence[Any], training: Any) -> SuccessRule:
    """The rule of the training. Raises `ConfigError` for `mentor_success_rewards` that are not among the rewards."""
    names = [reward_name(reward) for reward in rewards]
    weights = training.reward_weights or [1.0] * len(names)
    return SuccessRule.from_names(
        names,
        weights=weights,
        success_rewards=training.mentor_success_rewards or (),
        threshold=training.mentor_success_threshold,
    )


def score(
    rewards: Sequence[Any], rule: SuccessRule, rows: Sequence[Mapping[str, Any]], texts: Sequence[str]
) -> Scored:
    """Score one text for each row. Raises `RewardError`."""
    logged: defaultdict[str, list[Any]] = defaultdict(list)
    columns = [_values(reward, rows, texts, logged) for reward in rewards]
    values = list(zip(*(column for column, _ in columns), strict=True))
    seconds, name = max((seconds, reward_name(r)) for r, (_, seconds) in zip(rewards, columns, strict=True))
    return Scored([rule.value(row) for row in values], seconds, name, values, _by_row(logged, len(texts)))


def completion_for(prompt: Prompt, text: str) -> Completion:
    """A completion in the shape of its prompt."""
    return text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]


def _by_row(logged: Mapping[str, Sequence[Any]], rows: int) -> list[dict[str, Any]]:
    fitting: dict[str, Sequence[Any]] = {name: values for name, values in logged.items() if len(values) == rows}
    fitting |= reports(logged, rows)
    return [{name: values[row] for name, values in fitting.items()} for row in range(rows)]


def _values(
    reward: Any, rows: Sequence[Mapping[str, Any]], texts: Sequence[str], logged: defaultdict[str, list[Any]]
) -> tuple[list[float], float]:
    prompts = [row["prompt"] for row in rows]
    arguments = {
        "prompts": prompts,
        "completions": [completion_for(p, text) for p, text in zip(prompts, texts, strict=True)],
        # About four characters a token; no reward can expect to know the ids of a policy that is not loaded.
        "completion_ids": [list(range(len(text) // 4 + 1)) for text in texts],
        **{name: [row[name] for row in rows] for name in rows[0] if name not in _ALREADY_GIVEN},
        "trainer_state": TrainerState(),
        "log_extra": lambda column, values: logged[column].extend(values),
        "log_metric": lambda name, value: None,
    }
    started = time.monotonic()
    returned = outcome_of(lambda: _called(reward, arguments))
    seconds = time.monotonic() - started
    name = reward_name(reward)
    if isinstance(returned, Exception):
        raise RewardError(f"{name} raised {type(returned).__name__}: {returned}")
    values = outcome_of(lambda: [math.nan if value is None else float(value) for value in returned])
    if isinstance(values, Exception):
        raise RewardError(f"{name} returned {returned!r:.80}, not a list of numbers")
    if len(values) != len(texts):
        raise RewardError(f"{name} returned {len(values)} values for {len(texts)} completions")
    return values, seconds


def _called(reward: Any, arguments: Mapping[str, Any]) -> Any:
    returned = reward(**arguments)
    return asyncio.run(_awaited(returned)) if inspect.isawaitable(returned) else returned


async def _awaited(value: Any) -> Any:
    return await value
