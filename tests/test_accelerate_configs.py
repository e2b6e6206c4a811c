"""The launch files are ones that `accelerate launch --config_file` understands."""

from __future__ import annotations

from pathlib import Path

import pytest
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import launch_command_parser
from accelerate.utils import DistributedType

CONFIGS = sorted((Path(__file__).parent.parent / "accelerate_configs").iterdir())


def test_there_is_a_launch_file_for_each_way_of_sharding():
    assert [path.name for path in CONFIGS] == ["multi_gpu.yaml", "zero2.yaml", "zero3.yaml"]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_accelerate_loads_the_file_and_it_starts_several_processes(path):
    config = load_config_from_file(str(path))
    # MULTI_CPU would load too, but starts a single process without a word.
    assert config.distributed_type in {DistributedType.MULTI_GPU, DistributedType.DEEPSPEED}
    assert config.num_processes > 1
    assert not config.use_cpu


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_deepspeed_key_is_an_option_of_accelerate_launch(path):
    known = {action.dest for action in launch_command_parser()._actions}
    assert set(load_config_from_file(str(path)).deepspeed_config) <= known


@pytest.mark.parametrize(("name", "stage"), [("zero2.yaml", 2), ("zero3.yaml", 3)])
def test_the_file_name_states_the_stage(name, stage):
    path = Path(__file__).parent.parent / "accelerate_configs" / name
    assert load_config_from_file(str(path)).deepspeed_config["zero_stage"] == stage
