"""Checks of the recipe itself: can it be parsed, is every key known, is every value allowed."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml
from trl import DatasetMixtureConfig, GRPOConfig, ModelConfig, TrlParser

from trl_mentor.cli.check_findings import Finding, Options, Setup, fail, ok
from trl_mentor.cli.grpo import ARGUMENTS
from trl_mentor.cli.recipe import WordsParser, launch_arguments, parse_recipe
from trl_mentor.cli.script_arguments import ScriptArguments
from trl_mentor.config import MentorGRPOConfig, check_deadline
from trl_mentor.errors import ConfigError
from trl_mentor.settings import MentorArguments, ScheduleKind

_MAY_BE_NONE = ("steps_per_generation", "generation_batch_size")
_SIZES = ("num_generations", "per_device_train_batch_size", "gradient_accumulation_steps", *_MAY_BE_NONE)


class _Raising:
    """A parser that raises `ConfigError` where argparse would print its usage and leave."""

    def error(self, message: str) -> Any:
        raise ConfigError(message)


class _Words(_Raising, WordsParser):
    pass


class _Recipe(_Raising, TrlParser):  # type: ignore[misc]
    pass


def read_setup(argv: Sequence[str], options: Options) -> tuple[list[Finding], Setup | None]:
    """The recipe's arguments with what is wrong with them; no setup if they cannot be told apart at all."""
    try:
        (words,) = parse_recipe(_Words(ARGUMENTS), argv)
        problem, world_size, zero3 = _world(words, options)
        types = (ScriptArguments, _config_class(world_size), ModelConfig, DatasetMixtureConfig)
        script, training, model, data, _ = parse_recipe(_Recipe(types), argv)
    except ConfigError as error:
        return [fail("recipe", str(error), "correct this value or the recipe's YAML")], None
    setup = Setup(script, training, model, data, world_size, zero3 or training.found_zero3, options)
    if problem:
        fix = f"correct the spelling of the key, or remove it{_meant(problem, types)}"
        found = fail("recipe", problem, fix)
    else:
        found = ok("recipe", f"parsed, every key is known; {world_size} process{'es' * (world_size > 1)}")
    return [found, _settings(training)], setup


def _meant(problem: str, types: Sequence[Any]) -> str:
    """A question about each unknown argument that is nearly the name of a known one."""
    known = sorted({field.name for kind in types for field in fields(kind)})
    words = [word.removeprefix("--").partition("=")[0].replace("-", "_") for word in problem.split()]
    near = {word: difflib.get_close_matches(word, known, n=1, cutoff=0.8) for word in words if "_" in word}
    meant = [f"did you mean {names[0]}?" for word, names in near.items() if names and word != names[0]]
    return "".join(f"; {text}" for text in meant)


def _settings(training: Any) -> Finding:
    problems = training.settings_problems
    if problems:
        return fail("settings", "; ".join(problems), "correct these settings of the recipe")
    strategy, backend = training.mentor_strategy, training.mentor_backend
    return ok("settings", f"valid: strategy {strategy}, schedule {training.mentor_schedule}, backend {backend}")


def _config_class(processes: int) -> type[Any]:
    """`MentorGRPOConfig` for a world of `processes`, which notes each problem instead of raising the first.

    It looks for no accelerator: the machine that checks a recipe is not the one that trains.
    """

    @dataclass
    class RecipeConfig(MentorGRPOConfig):
        @property
        def world_size(self) -> int:
            return processes

        def __post_init__(self) -> None:
            self.found_zero3 = _zero_stage(vars(self)["deepspeed"]) == 3
            self.use_cpu, self.bf16, self.fp16, self.tf32 = True, False, False, None
            self.deepspeed: Any = None
            self.settings_problems = _wrong_settings(self)
            # Before TRL divides by them.
            self.batch_problems = _not_positive(self) or _problems(lambda: GRPOConfig.__post_init__(self))
            self.deadline_problems: list[str] = []
            if self.mentor_schedule == ScheduleKind.INLINE and not self.settings_problems:
                self.deadline_problems = _problems(lambda: check_deadline(self.mentor_deadline, self.ddp_timeout))

    return RecipeConfig


def _wrong_settings(training: MentorArguments) -> list[str]:
    """What is wrong with the mentor's settings: of each further one, as found with those before at their defaults."""
    problem = found = _problems(lambda: MentorArguments.__post_init__(training))
    defaults = vars(MentorArguments())
    settings = {name: getattr(training, name) for name in defaults}
    while problem:
        told = [name for name in re.findall(r"\bmentor_\w+", problem[0]) if name in settings]
        wrong = [name for name in told if settings[name] != defaults[name]]
        if not wrong:
            break
        settings[wrong[0]] = defaults[wrong[0]]
        problem = _problems(lambda: MentorArguments(**settings))
        found = list(dict.fromkeys([*found, *problem]))
    return found


def _not_positive(training: Any) -> list[str]:
    """Sizes that are no positive whole number, as problems; None leaves a size to TRL where it may."""
    sizes = {name: getattr(training, name) for name in _SIZES}
    return [
        f"{name} is {value!r}; it must be 1 or more"
        for name, value in sizes.items()
        if not (isinstance(value, int) and value > 0) and not (value is None and name in _MAY_BE_NONE)
    ]


def _problems(check: Callable[[], object]) -> list[str]:
    try:
        check()
    except (ValueError, NotImplementedError) as error:
        return [str(error)]
    return []


def _world(words: list[str], options: Options) -> tuple[str, int, bool]:
    """What is wrong with the words for the launcher; processes of the training; whether it runs under ZeRO-3."""
    try:
        launch = launch_arguments(words)
        file = _launch_file(launch.config_file)
    except ConfigError as error:
        return str(error), options.world_size or 1, False
    found = options.world_size or launch.num_processes or file.get("num_processes") or 1
    stage = launch.zero_stage or (file.get("deepspeed_config") or {}).get("zero_stage")
    return "", int(found), stage == 3


def _launch_file(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        read = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"the launch file {path} cannot be read: {error}") from error
    return read if isinstance(read, dict) else {}


def _zero_stage(deepspeed: Any) -> int | None:
    try:
        config = json.loads(Path(deepspeed).read_text(encoding="utf-8")) if isinstance(deepspeed, str) else deepspeed
        stage = (config or {}).get("zero_optimization", {}).get("stage")
    except (OSError, ValueError, AttributeError):
        return None
    return stage if isinstance(stage, int) else None
