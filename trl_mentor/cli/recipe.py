"""Which words of a command line are for the training, which for `accelerate launch`, and which for nobody."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import yaml
from accelerate.commands.launch import launch_command_parser
from trl import TrlParser
from trl.cli.accelerate_config import resolve_accelerate_config_argument

from trl_mentor.cli.recipe_text import check_yaml, read_recipe
from trl_mentor.errors import ConfigError

TRAINING_MODULE = "trl_mentor.cli.grpo"


class WordsParser(TrlParser):  # type: ignore[misc]
    """`TrlParser` that only tells words apart and constructs nothing.

    The launching process runs alone: a config made there would be checked against a world of one process.
    """

    def parse_args_into_dataclasses(
        self, args: Iterable[str] | None = None, return_remaining_strings: bool = True
    ) -> tuple[list[str]]:
        """The words that are no training argument, as the only element."""
        return (self.parse_known_args(args)[1],)


def parse_recipe(parser: TrlParser, argv: Sequence[str]) -> tuple[Any, ...]:
    """What the parser makes of the command line and its `--config`, and last the words it does not know.

    Raises `ConfigError` for values that the arguments refuse, and for a recipe that cannot be read.
    """
    if list(argv[-1:]) == ["--config"]:
        raise ConfigError("--config needs the path of a recipe")
    try:
        if "--config" in argv:
            check_yaml(read_recipe(argv[list(argv).index("--config") + 1]))
        parsed: tuple[Any, ...] = parser.parse_args_and_config(argv, return_remaining_strings=True)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(str(error)) from error
    return parsed


def launch_arguments(words: list[str], training_words: Sequence[str] = ()) -> Any:
    """Arguments of `accelerate launch` that run the training module with `training_words`.

    `words` are those that the training does not know; raises `ConfigError` if accelerate does not know one either.
    """
    try:
        words = resolve_accelerate_config_argument(words)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    parsed, unknown = launch_command_parser().parse_known_args([*words, "--module", TRAINING_MODULE])
    # The value of an unknown flag would pass for the script to run.
    if unknown or parsed.training_script != TRAINING_MODULE:
        named = " ".join(unknown or [parsed.training_script])
        raise ConfigError(f"unknown arguments: {named} (known neither to the training nor to accelerate launch)")
    parsed.training_script_args = list(training_words)
    return parsed
