"""What `trl-mentor grpo` takes besides TRL's script arguments: a task of this package as the data, and its rewards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from datasets import Dataset
from trl.scripts.grpo import GRPOScriptArguments

from trl_mentor.errors import ConfigError
from trl_mentor.tasks import find_task, load_task
from trl_mentor.tasks.records import Task


@dataclass
class ScriptArguments(GRPOScriptArguments):  # type: ignore[misc]
    """TRL's arguments of the script, and those of `load_task`."""

    reward_funcs: list[str] | None = field(
        default=None,
        metadata={
            "help": "Reward functions: math_reward, boxed_format_reward, code_reward, code_fraction_reward or "
            "choice_reward of this package; accuracy_reward, reasoning_accuracy_reward, think_format_reward or "
            "get_soft_overlong_punishment of TRL; or a dotted path to one of your own."
        },
    )
    task: str | None = field(
        default=None,
        metadata={"help": "Data set to train on by its name here, such as deepmath-103k; instead of dataset_name."},
    )
    task_files: str | None = field(
        default=None, metadata={"help": "Directory with the task's own files, to read instead of the Hub."}
    )
    task_revision: str | None = field(
        default=None, metadata={"help": "Commit, tag or branch of the Hub in place of the task's pinned one."}
    )
    task_min_difficulty: float | None = field(
        default=None, metadata={"help": "Leave out problems that are easier, on the data set's own scale."}
    )
    task_max_difficulty: float | None = field(default=None, metadata={"help": "Leave out problems that are harder."})
    task_max_prompt_chars: int | None = field(
        default=None, metadata={"help": "Leave out problems whose prompt has more characters."}
    )


class TaskSplits(Mapping[str, Dataset]):
    """The splits of the task that a recipe names, each loaded when it is asked for."""

    def __init__(self, script: ScriptArguments, limit: int | None = None) -> None:
        self.task: Task = find_task(str(script.task))
        self._options: dict[str, Any] = {
            item.name.removeprefix("task_"): getattr(script, item.name)
            for item in fields(script)
            if item.name.startswith("task_")
        }
        self._limit = limit

    def __getitem__(self, split: str) -> Dataset:
        return load_task(self.task.name, split, **self._options, limit=self._limit)

    def __iter__(self) -> Iterator[str]:
        return iter(self.task.splits)

    def __len__(self) -> int:
        return len(self.task.splits)

    def __contains__(self, split: object) -> bool:
        return split in self.task.splits  # Mapping's own would load it


def check_data_choice(script: Any, data: Any) -> None:
    """Raise `ConfigError` unless the recipe names its data in exactly one way."""
    named = {"task": script.task, "dataset_name": script.dataset_name, "datasets": data.datasets}
    given = [name for name, value in named.items() if value]
    if len(given) > 1:
        raise ConfigError(f"got both {' and '.join(given)}; keep one of them")
    if not given:
        raise ConfigError("no data: set task, dataset_name, or datasets for a mixture")
    if not script.task:
        names = [item.name for item in fields(script) if item.name.startswith("task_")]
        if unused := [name for name in names if getattr(script, name) is not None]:
            raise ConfigError(f"{', '.join(unused)} without task; name the task, or remove it")


def hub_name(script: Any) -> str | None:
    """The data set's id on the Hub, for the model card."""
    if not script.task:
        name: str | None = script.dataset_name
        return name
    return find_task(script.task).splits[script.dataset_train_split].source.repo
