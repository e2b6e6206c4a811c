"""The launch files are ones that `accelerate launch --config_file` understands, field by field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from accelerate.commands.config.config_args import ClusterConfig, load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import DistributedType

FOLDER = Path(__file__).parent.parent / "accelerate_configs"
CONFIGS = sorted(FOLDER.iterdir())
SEVERAL = [path for path in CONFIGS if path.stem != "single_gpu"]
SECTIONS = ("deepspeed_config", "fsdp_config")


def launch_arguments(path: Path) -> Any:
    """What `accelerate launch --config_file` makes of a file."""
    parsed = launch_command_parser().parse_args(["--config_file", str(path), "script.py"])
    return _validate_launch_command(parsed)[0]


def unknown_fields(config: ClusterConfig) -> list[str]:
    """Fields of the sections, which accelerate copies to options of the same name and so never refuses."""
    known = {action.dest for action in launch_command_parser()._actions}
    return [name for section in SECTIONS for name in getattr(config, section) if name not in known]


def test_there_is_a_launch_file_for_each_way_to_run():
    names = ["cpu_2proc", "fsdp2", "multi_gpu", "multi_node", "single_gpu", "zero2", "zero3"]
    assert [path.name for path in CONFIGS] == [f"{name}.yaml" for name in names]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_accelerate_loads_the_file_and_knows_every_field(path):
    config = load_config_from_file(str(path))  # raises for a field it does not know
    assert unknown_fields(config) == []
    assert not config.use_cpu


def test_an_unknown_field_is_found_wherever_it_stands(tmp_path):
    text = (FOLDER / "fsdp2.yaml").read_text(encoding="utf-8")
    path = tmp_path / "wrong.yaml"
    path.write_text(f"{text}  fsdp_shards: 4\n", encoding="utf-8")
    assert unknown_fields(load_config_from_file(str(path))) == ["fsdp_shards"]
    path.write_text(f"gpus: 4\n{text}", encoding="utf-8")
    with pytest.raises(ValueError, match="gpus"):
        load_config_from_file(str(path))


@pytest.mark.parametrize("path", SEVERAL, ids=lambda path: path.stem)
def test_the_file_makes_accelerate_start_several_processes(path):
    arguments = launch_arguments(path)
    assert arguments.num_processes > 1
    # Any other kind, MULTI_CPU among them, loads too but starts a single process without a word.
    assert arguments.multi_gpu + arguments.use_deepspeed + arguments.use_fsdp == 1
    assert arguments.num_processes % arguments.num_machines == 0


def test_single_gpu_starts_one_process():
    arguments = launch_arguments(FOLDER / "single_gpu.yaml")
    assert arguments.num_processes == 1
    assert arguments.multi_gpu + arguments.use_deepspeed + arguments.use_fsdp == 0


@pytest.mark.parametrize(("name", "stage"), [("zero2", 2), ("zero3", 3)])
def test_the_file_name_states_the_stage(name, stage):
    config = load_config_from_file(str(FOLDER / f"{name}.yaml"))
    assert config.distributed_type == DistributedType.DEEPSPEED
    assert config.deepspeed_config["zero_stage"] == stage


def test_fsdp2_is_version_two_and_gathers_whole_weights_to_save():
    arguments = launch_arguments(FOLDER / "fsdp2.yaml")
    assert (arguments.use_fsdp, int(arguments.fsdp_version)) == (True, 2)
    assert arguments.fsdp_state_dict_type == "FULL_STATE_DICT"


def test_multi_node_counts_the_processes_of_all_machines():
    arguments = launch_arguments(FOLDER / "multi_node.yaml")
    assert (arguments.num_machines, arguments.num_processes) == (2, 16)
    assert arguments.main_process_ip is None  # has no sensible default: the command line must say it
    assert arguments.machine_rank == 0


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_files_for_gpus_compute_in_bfloat16_and_say_first_what_they_are_for(path):
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert yaml.safe_load(text)["mixed_precision"] == ("no" if path.stem == "cpu_2proc" else "bf16")
