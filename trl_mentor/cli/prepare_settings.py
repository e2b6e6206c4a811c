"""What `trl-mentor prepare` is told: flags, and the recipe of the training."""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from trl_mentor.cli.prepare_material import Kind
from trl_mentor.cli.prepare_reward import NO_REWARD, task_reward
from trl_mentor.cli.prepare_rows import DataChoice
from trl_mentor.cli.recipe_text import check_yaml, read_recipe
from trl_mentor.errors import ConfigError
from trl_mentor.factory import MENTOR_SETTINGS
from trl_mentor.setting_checks import json_object
from trl_mentor.settings import MentorArguments, StrategyKind
from trl_mentor.strategy_settings import StaticHint

DESCRIPTION = """\
Write with the mentor, once and before a training, what some strategies need as columns of the data:

  hint           one hint a question, from question and reference answer alone (static_hint)
  hints          a ladder of hints from weak to strong (scaffold)
  demonstration  a worked solution (luffy, and static_hint with mentor_static_hint: prefix)

    trl-mentor prepare --config recipe.yaml -o prepared/train.jsonl
    trl-mentor prepare --task deepmath-103k --columns hint,hints -o prepared/train.jsonl \\
        --mentor_model Qwen/Qwen3-32B --mentor_base_url http://localhost:8000/v1

The recipe is that of the training. Run the same command again to go on after a kill: what is settled is not asked for
again, and what had failed is.
"""

EPILOG = """\
exit codes:
  0  every text is settled: written, or refused as often as it may be asked for
  2  arguments, recipe or data are wrong
  3  some are missing: the mentor failed, or a budget is spent
  130  interrupted; the same command goes on
"""

_LEFT_OUT = ("mentor_max_refine", "mentor_ablation", "mentor_attempt_budget")
_SETTINGS = (
    *(name for name in MENTOR_SETTINGS if name not in _LEFT_OUT),
    "mentor_answer_column",
    "mentor_hint_column",
    "mentor_demonstration_column",
    "mentor_success_threshold",
)
"""The settings that are flags here too; a recipe may have all others."""
_TASK_OPTIONS = {
    "files": str,
    "revision": str,
    "min_difficulty": float,
    "max_difficulty": float,
    "max_prompt_chars": int,
}
_DATA = ("task", "dataset_name", "dataset_config", "dataset_train_split", *(f"task_{name}" for name in _TASK_OPTIONS))
_MADE_WITH = (
    "backend", "model", "temperature", "max_tokens", "thinking", "domain", "templates_dir", "leak_rule",
    "success_threshold",
)  # fmt: skip


def make_parser() -> argparse.ArgumentParser:
    """The parser of `trl-mentor prepare`; what is not given is not in its namespace."""
    parser = argparse.ArgumentParser(
        prog="trl-mentor prepare",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", help="The recipe of the training; flags go before what it says.")
    parser.add_argument(
        "--columns", metavar="NAME,NAME", help=f"Some of {', '.join(Kind)}. Default: what the recipe's strategy needs."
    )
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="FILE.jsonl")
    parser.add_argument("--limit", type=int, metavar="N", help="Only the first N rows, to see what it will cost.")
    parser.add_argument(
        "--reward",
        metavar="NAME",
        help="What judges demonstrations: a reward of this package or of TRL, or module.function. Default: the only "
        f"one of the recipe, or that of the task; `{NO_REWARD}` for none.",
    )
    data = parser.add_argument_group("the questions")
    data.add_argument("--task", metavar="NAME", help="Such as deepmath-103k.")
    data.add_argument(
        "--dataset_name",
        "--dataset-name",
        "--data",
        metavar="NAME",
        help="On the Hub, a folder, or a JSON Lines file.",
    )
    data.add_argument("--dataset_config", "--dataset-config", metavar="NAME")
    data.add_argument("--dataset_train_split", "--dataset-train-split", metavar="NAME", help="Default: train.")
    for name, kind in _TASK_OPTIONS.items():
        data.add_argument(f"--task_{name}", f"--task-{name.replace('_', '-')}", type=kind, metavar="VALUE")
    mentor = parser.add_argument_group("the mentor, as in training")
    settings = {field.name: field for field in fields(MentorArguments)}
    for name in _SETTINGS:
        default = settings[name].default
        mentor.add_argument(
            f"--{name}",
            f"--{name.replace('_', '-')}",
            type=type(default) if isinstance(default, int | float) else str,
            metavar="VALUE",
            help=settings[name].metadata["help"].replace("%", "%%"),
        )
    return parser


def read_given(recipe: str | None) -> dict[str, Any]:
    """What a recipe says that this command reads; its `env` is set as a training does. Raises `ConfigError`."""
    if recipe is None:
        return {}
    try:
        text = read_recipe(recipe)
        check_yaml(text)
        read = yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        raise error if isinstance(error, ConfigError) else ConfigError(f"{recipe}: {error}") from error
    if not isinstance(read, dict):
        raise ConfigError(f"{recipe} is no recipe: expected names with values, got {type(read).__name__}")
    if read.get("datasets"):
        raise ConfigError(f"{recipe} mixes several data sets; prepare each by itself with --dataset_name")
    known = [field.name for field in fields(MentorArguments)]
    for name in read:
        if name.startswith("mentor_") and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise ConfigError(f"{recipe} has the unknown setting {name}" + (f"; did you mean {near[0]}?" * bool(near)))
    variables = read.get("env") or {}
    if isinstance(variables, dict):
        os.environ.update({str(name): str(value) for name, value in variables.items()})
    return {name: value for name, value in read.items() if name in (*known, *_DATA, "reward_funcs")}


def choose_columns(given: str | None, settings: MentorArguments) -> dict[Kind, str]:
    """What to write, and into which column. Raises `ConfigError` if neither flag nor strategy says it."""
    prefix = settings.mentor_static_hint == StaticHint.PREFIX
    needs = {
        StrategyKind.STATIC_HINT: Kind.DEMONSTRATION if prefix else Kind.HINT,
        StrategyKind.SCAFFOLD: Kind.HINTS,
        StrategyKind.LUFFY: Kind.DEMONSTRATION,
    }
    if given is None and settings.mentor_strategy not in needs:
        raise ConfigError(
            f"nothing to write: mentor_strategy={settings.mentor_strategy!r} needs no column; give --columns with "
            f"some of {', '.join(Kind)}"
        )
    names = [needs[StrategyKind(settings.mentor_strategy)]] if given is None else given.split(",")
    if unknown := [name for name in names if name.strip() not in list(Kind)]:
        raise ConfigError(f"--columns names {unknown[0]!r}; expected some of {', '.join(Kind)}")
    kinds = list(dict.fromkeys(Kind(name.strip()) for name in names))
    if settings.mentor_hint_column and {Kind.HINT, Kind.HINTS} <= set(kinds):
        raise ConfigError("mentor_hint_column names one column, but hint and hints are two; leave it out")
    hint_column = settings.mentor_hint_column
    own = {Kind.HINT: hint_column, Kind.HINTS: hint_column, Kind.DEMONSTRATION: settings.mentor_demonstration_column}
    columns = {kind: own[kind] or kind.value for kind in kinds}
    if len(set(columns.values())) < len(columns):
        raise ConfigError(f"{' and '.join(kinds)} would be written into one column; give each a name of its own")
    return columns


def data_choice(given: Mapping[str, Any]) -> DataChoice:
    """The data that flags and recipe name."""
    limit = given.get("limit")
    if limit is not None and limit < 1:
        raise ConfigError(f"--limit is {limit}; expected at least 1")
    options = {name: given[f"task_{name}"] for name in _TASK_OPTIONS if given.get(f"task_{name}") is not None}
    split = given.get("dataset_train_split") or "train"
    named = (given.get("task"), given.get("dataset_name"), given.get("dataset_config"))
    return DataChoice(*named, split, options, limit)


def reward_name(given: Mapping[str, Any]) -> str:
    """The name of the reward that judges demonstrations."""
    if "reward" in given:
        return str(given["reward"])
    of_recipe = given.get("reward_funcs") or []
    of_recipe = of_recipe if isinstance(of_recipe, list) else [of_recipe]
    if len(of_recipe) == 1:
        return str(of_recipe[0])
    return task_reward(given["task"]) if given.get("task") else NO_REWARD


def made_with(settings: MentorArguments) -> dict[str, Any]:
    """What determines the texts; what is sent along with requests goes as a digest, for it may hold anything."""
    body = json.dumps(json_object("mentor_extra_body", settings.mentor_extra_body), sort_keys=True)
    found = {f"mentor_{name}": getattr(settings, f"mentor_{name}") for name in _MADE_WITH}
    found["mentor_thinking"] = json_object("mentor_thinking", settings.mentor_thinking)
    return {**found, "mentor_extra_body": hashlib.sha256(body.encode()).hexdigest()[:16]}
