"""Each launch file starts the training: the command that accelerate builds, and real launches that print its help."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from accelerate.commands.launch import _validate_launch_command
from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env, prepare_simple_launcher_cmd_env

from trl_mentor.cli.recipe import TRAINING_MODULE, launch_arguments

FOLDER = Path(__file__).parents[1] / "accelerate_configs"
LAUNCHER = [sys.executable, "-m", "accelerate.commands.launch"]
BUILT = {
    "cpu_2proc": {"nproc_per_node": "2", "ACCELERATE_MIXED_PRECISION": "no"},
    "fsdp2": {"nproc_per_node": "8", "ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"},
    "multi_gpu": {"nproc_per_node": "8", "ACCELERATE_MIXED_PRECISION": "bf16"},
    "multi_node": {"nproc_per_node": "8", "nnodes": "2", "rdzv_endpoint": "10.0.0.1:29500"},
    "single_gpu": {"ACCELERATE_MIXED_PRECISION": "bf16"},
    "zero2": {"nproc_per_node": "8", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "2"},
    "zero3": {"nproc_per_node": "8", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"},
}
"""What each file comes to: arguments of `torchrun`, and variables that the training reads."""


def built(name: str, *words: str) -> tuple[Any, dict[str, str]]:
    """The arguments and the environment with which accelerate would start the training module, its help asked for."""
    given = launch_arguments(["--config_file", str(FOLDER / f"{name}.yaml"), *words], ["--help"])
    arguments, defaults, _ = _validate_launch_command(given)
    if arguments.use_deepspeed:
        arguments.deepspeed_fields_from_accelerate_config = ",".join(defaults.deepspeed_config)
        return arguments, prepare_deepspeed_cmd_env(arguments)[1]
    if arguments.multi_gpu or arguments.use_fsdp:
        return arguments, prepare_multi_gpu_env(arguments)
    command, environment = prepare_simple_launcher_cmd_env(arguments)
    assert command == [sys.executable, "-m", TRAINING_MODULE, "--help"]
    return arguments, environment


@pytest.mark.parametrize("name", [path.stem for path in sorted(FOLDER.iterdir())])
def test_accelerate_builds_the_command_that_the_launch_file_is_for(name):
    machine = ("--machine_rank", "1", "--main_process_ip", "10.0.0.1") if name == "multi_node" else ()
    arguments, environment = built(name, *machine)
    assert (arguments.module, arguments.training_script) == (True, TRAINING_MODULE)
    assert arguments.training_script_args == ["--help"]
    assert {key: environment.get(key, getattr(arguments, key, None)) for key in BUILT[name]} == BUILT[name]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def assert_helps(folder: Path, launches: list[list[str]]) -> None:
    """Start the launches together, each printing to a file: machines wait for each other, and nobody reads a pipe."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "DS_ACCELERATOR": "cpu"}
    running = []
    for number, (name, *words) in enumerate(launches):
        command = [*LAUNCHER, "--config_file", str(FOLDER / f"{name}.yaml"), *words, "-m", TRAINING_MODULE, "--help"]
        with (folder / f"{number}.txt").open("w") as output:
            running.append(subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT))
    codes = [launch.wait(timeout=300) for launch in running]
    printed = [(folder / f"{number}.txt").read_text(encoding="utf-8") for number in range(len(launches))]
    assert codes == [0] * len(launches), printed
    for text in printed:
        assert "usage: trl-mentor grpo" in text
        assert "--mentor_max_refine" in text


def test_one_process_and_two_machines_start_the_training_for_real(tmp_path):
    machines = ("--num_processes", "2", "--main_process_ip", "127.0.0.1", "--main_process_port", str(free_port()))
    ranks = [["multi_node", *machines, "--machine_rank", str(rank)] for rank in (0, 1)]
    assert_helps(tmp_path, [["single_gpu"], *ranks])


@pytest.mark.skipif(find_spec("deepspeed") is None, reason="needs DeepSpeed, as accelerate says when it is not there")
def test_deepspeed_starts_the_training_for_real(tmp_path):
    assert_helps(tmp_path, [["zero3", "--num_processes", "1", "--main_process_port", "0"]])
