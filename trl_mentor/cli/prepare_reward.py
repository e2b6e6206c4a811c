"""The reward by which demonstrations are checked, called for one text at a time."""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from trl_mentor import rewards
from trl_mentor.cli.prepare_material import Judge
from trl_mentor.errors import ConfigError
from trl_mentor.mentor_pool import describe, outcome_of

NO_REWARD = "none"


def task_reward(task: str) -> str:
    """The name of the reward that judges a task's answers."""
    from trl_mentor.tasks import find_task  # with `datasets`, which a file does without

    kind = find_task(task).kind
    return f"{kind.value}_reward"


def make_judge(name: str, example: Mapping[str, Any]) -> Judge:
    """The judge by the reward of this name, tried on an empty solution of a row.

    Raises `ConfigError` if there is no such reward, or if it fails there: it would do so for every row.
    """
    call = _own(name) if name in rewards.__all__ else _foreign(name)
    tried = outcome_of(lambda: _value(call(example, "")))
    if isinstance(tried, Exception):
        wants = ""
        if isinstance(example.get("prompt"), str):
            wants = "a reward that reads completions as messages needs prompts that are lists of messages; "
        raise ConfigError(
            f"the reward {name} fails on an empty solution of the first row: {describe(tried)}; {wants}name another, "
            f"or --reward {NO_REWARD} to check none"
        )
    one_at_a_time = threading.Lock()

    def judge(row: Mapping[str, Any], solution: str) -> float | None:
        with one_at_a_time:
            value = outcome_of(lambda: _value(call(row, solution)))
        return None if isinstance(value, Exception) else value

    return judge


def _own(name: str) -> Callable[[Mapping[str, Any], str], Any]:
    reward = getattr(rewards, name)

    def call(row: Mapping[str, Any], solution: str) -> Any:
        columns = {column: [value] for column, value in row.items() if column not in ("prompt", "completions")}
        return reward(completions=[solution], **columns)

    return call


def _foreign(name: str) -> Callable[[Mapping[str, Any], str], Any]:
    from trl_mentor.cli.check_child import called, reward_arguments  # with torch and TRL, as its own rewards need
    from trl_mentor.cli.grpo import load_reward

    reward = load_reward(name)

    def call(row: Mapping[str, Any], solution: str) -> Any:
        return called(reward, reward_arguments([row], [solution], defaultdict(list)))

    return call


def _value(returned: Any) -> float | None:
    (value,) = returned
    number = math.nan if value is None else float(value)
    return None if math.isnan(number) else number
