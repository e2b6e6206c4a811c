"""The training script behind `trl-mentor grpo`: `trl grpo` with a mentor.

Runs by itself under any launcher, for example `accelerate launch -m trl_mentor.cli.grpo --config recipe.yaml`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from datasets import load_dataset
from trl import DatasetMixtureConfig, ModelConfig, TrlParser, get_dataset, get_peft_config, get_quantization_config
from trl import rewards as trl_rewards

from trl_mentor import rewards
from trl_mentor.cli.recipe import launch_arguments, parse_recipe
from trl_mentor.cli.script_arguments import ScriptArguments, TaskSplits, check_data_choice, hub_name
from trl_mentor.config import MentorGRPOConfig
from trl_mentor.errors import ConfigError
from trl_mentor.grpo_trainer import MentorGRPOTrainer

ARGUMENTS = (ScriptArguments, MentorGRPOConfig, ModelConfig, DatasetMixtureConfig)


REWARDS: dict[str, Callable[[], Any]] = {
    "accuracy_reward": lambda: trl_rewards.accuracy_reward,
    "reasoning_accuracy_reward": lambda: trl_rewards.reasoning_accuracy_reward,
    "think_format_reward": lambda: trl_rewards.think_format_reward,
    "get_soft_overlong_punishment": lambda: trl_rewards.get_soft_overlong_punishment(
        max_completion_len=1280, soft_punish_cache=256
    ),
    **{name: partial(getattr, rewards, name) for name in rewards.__all__},
}
"""The names that `trl grpo` knows, with its settings, and those of this package."""


def main() -> int:
    """Parse, train, save; a wrong setting is one line on stderr and exit code 2."""
    try:
        train(*parse(sys.argv[1:]))
    except ConfigError as error:
        # On every rank: the first one to exit has the launcher stop the others, perhaps before they say why.
        print(f"trl-mentor grpo: error: {error}", file=sys.stderr)
        return 2
    return 0


def parse(argv: list[str]) -> tuple[Any, MentorGRPOConfig, Any, Any]:
    """The four argument objects of a training. Raises `ConfigError` for wrong values and unknown words."""
    *parsed, words = parse_recipe(TrlParser(ARGUMENTS, prog="trl-mentor grpo"), argv)
    launch_arguments(words)
    script, training, model, data = parsed
    return script, training, model, data


def train(script: Any, training: MentorGRPOConfig, model: Any, data: Any) -> None:
    """Train as `trl grpo` does, with `MentorGRPOTrainer`."""
    with training.main_process_first(desc="loading the data"):
        splits = load_splits(script, data)
        train_rows = pick_split(splits, script.dataset_train_split)
        eval_rows = pick_split(splits, script.dataset_test_split) if training.eval_strategy != "no" else None
    training.model_init_kwargs = {
        "revision": model.model_revision,
        "trust_remote_code": training.trust_remote_code,
        "attn_implementation": model.attn_implementation,
        "dtype": model.dtype,
        **(training.model_init_kwargs or {}),
    }
    trainer = MentorGRPOTrainer(
        model=model.model_name_or_path,
        reward_funcs=load_rewards(script),
        args=training,
        train_dataset=train_rows,
        eval_dataset=eval_rows,
        quantization_config=get_quantization_config(model),
        peft_config=get_peft_config(model),
    )
    if script.task:
        trainer.accelerator.print(f"Training on {train_rows.info.description}.")
    trainer.train(resume_from_checkpoint=resume_point(training.resume_from_checkpoint))
    trainer.save_model(training.output_dir)
    trainer.accelerator.print(f"Model saved to {training.output_dir}.")
    if training.push_to_hub:
        trainer.push_to_hub(dataset_name=hub_name(script))
    # transformers before 5.18 has no `end`: it closes trackers and process groups.
    if hasattr(trainer, "end"):
        trainer.end()


def resume_point(setting: str | bool | None) -> str | bool:
    """What `resume_from_checkpoint` asks of `train`: a path, "auto", True or False.

    A command line has only words for true and false.
    """
    words: dict[str, str | bool] = {"true": True, "false": False, "none": False, "auto": "auto"}
    return words.get(str(setting).lower(), setting or False)


def load_rewards(script: Any) -> list[Any]:
    """The reward functions by name or dotted path, after the reward model if there is one."""
    model = [script.reward_model_name_or_path] if script.reward_model_name_or_path else []
    found = model + [load_reward(name) for name in script.reward_funcs or ()]
    if not found:
        raise ConfigError(f"no rewards: set reward_funcs to some of {sorted(REWARDS)} or to dotted paths")
    return found


def load_reward(name: str) -> Any:
    """One reward function: a name that TRL knows, or `module.function`, importable from the working directory too."""
    if name in REWARDS:
        return REWARDS[name]()
    module, _, function = name.rpartition(".")
    if not module:
        raise ConfigError(f"unknown reward {name!r}; expected one of {sorted(REWARDS)} or a path like module.function")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return getattr(import_module(module), function)
    except ModuleNotFoundError as error:
        raise ConfigError(f"cannot import the reward {name!r}: {error}") from error
    except AttributeError as error:
        raise ConfigError(f"the module {module!r} has no reward function {function!r}") from error


def load_splits(script: Any, data: Any, *, limit: int | None = None) -> Any:
    """The data that a recipe names, by split. Raises `ConfigError` if it names none or two.

    With a `limit` a task is read only so far; the others can be streamed for that.
    """
    check_data_choice(script, data)
    if script.task:
        return TaskSplits(script, limit)
    if data.datasets:
        return get_dataset(data)
    return load_dataset(script.dataset_name, name=script.dataset_config, streaming=script.dataset_streaming)


def pick_split(splits: Any, name: str) -> Any:
    """One split. Raises `ConfigError` if the data set lacks it."""
    if name not in splits:
        raise ConfigError(f"the data set has no split {name!r}; it has {sorted(splits)}")
    return splits[name]


if __name__ == "__main__":
    raise SystemExit(main())
