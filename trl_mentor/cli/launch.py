"""`trl-mentor grpo`: the training script through `accelerate launch`, as `trl grpo` does it."""

from __future__ import annotations

import subprocess

from accelerate.commands.launch import launch_command
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from trl_mentor.cli.grpo import ARGUMENTS
from trl_mentor.cli.recipe import WordsParser, launch_arguments, parse_recipe


def main(argv: list[str]) -> int:
    """Launch the training and return its exit code. Raises `ConfigError` for unknown words and missing files.

    The training is handed the whole command line: it leaves the words for `accelerate launch` alone.
    """
    (words,) = parse_recipe(WordsParser(ARGUMENTS, prog="trl-mentor grpo"), argv)
    arguments = launch_arguments(words, argv)
    try:
        launch_command(arguments)
    except subprocess.CalledProcessError as error:
        return error.returncode
    except ChildFailedError as error:
        return int(error.get_first_failure()[1].exitcode)
    return 0
