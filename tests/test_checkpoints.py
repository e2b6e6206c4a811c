"""Which checkpoints are complete: those that a kill left torn are not, and files of the user's own change nothing."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path

import pytest
import tiny
import torch
import torch.distributed.checkpoint as dcp
from peft import LoraConfig
from safetensors.torch import save_file

from trl_mentor.checkpoints import last_complete_checkpoint, was_saved, why_incomplete

SAVING = {"save_strategy": "steps", "save_steps": 1}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The directory of a run with the checkpoints 1, 2 and 3; tests work on copies."""
    out = tmp_path_factory.mktemp("finished")
    tiny.trained(out, max_steps=3, **SAVING)
    return out


@pytest.fixture
def run(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def damage(file: Path, how: str) -> None:
    if how == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2 if how == "cut in half" else 0])


def test_the_newest_complete_checkpoint_is_the_last_by_number_not_by_name(run):
    assert last_complete_checkpoint(run) == run / "checkpoint-3"
    (run / "checkpoint-3").rename(run / "checkpoint-10")
    (run / "checkpoint-final").mkdir()
    (run / "checkpoint-11").write_text("no directory")
    assert last_complete_checkpoint(run) == run / "checkpoint-10"


def test_where_there_is_no_checkpoint_there_is_none(tmp_path):
    assert last_complete_checkpoint(tmp_path) is None
    assert last_complete_checkpoint(tmp_path / "nowhere") is None


@pytest.mark.parametrize("how", ["missing", "cut in half", "empty"])
@pytest.mark.parametrize("name", ["trainer_state.json", "model.safetensors", "optimizer.pt", "scheduler.pt"])
def test_a_checkpoint_without_a_whole_file_that_resuming_reads_is_passed_over(run, name, how, caplog):
    damage(run / "checkpoint-3" / name, how)
    assert last_complete_checkpoint(run) == run / "checkpoint-2"
    (line,) = [record.message for record in caplog.records if record.name == "trl_mentor.checkpoints"]
    assert line.startswith(f"trl-mentor: passed over the checkpoint {run / 'checkpoint-3'}: ")
    named = {"model.safetensors": "weights", "optimizer.pt": "optimizer"}.get(name, name) if how == "missing" else name
    assert named in line


def test_one_byte_too_few_makes_a_tensor_file_torn(run):
    for name in ("model.safetensors", "optimizer.pt", "rng_state.pth"):
        file = run / "checkpoint-3" / name
        whole = file.read_bytes()
        file.write_bytes(whole[:-1])
        assert why_incomplete(file.parent).startswith(f"{name} is torn")
        file.write_bytes(whole)
    assert why_incomplete(run / "checkpoint-3") is None


def test_what_resuming_does_not_read_may_be_torn_and_random_states_may_be_missing(run):
    checkpoint = run / "checkpoint-3"
    for name in ("training_args.bin", "tokenizer.json", "generation_config.json"):
        damage(checkpoint / name, "cut in half")
    damage(checkpoint / "rng_state.pth", "missing")
    assert why_incomplete(checkpoint) is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("notes.pt", "of the user's own"),
        ("reward_model.bin", ""),
        ("tok/config.json", "{} // with a comment"),
        ("merged/model.safetensors", ""),
        ("merged/model.safetensors.index.json", '{"weight_map": {"a": "model-00001-of-00002.safetensors"}}'),
        ("model.safetensors.index.json", "left from a save in shards"),  # not read where model.safetensors is
    ],
)
def test_files_that_others_put_into_a_checkpoint_do_not_make_it_incomplete(run, name, content):
    file = run / "checkpoint-3" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(content)
    assert why_incomplete(run / "checkpoint-3") is None


def test_tensors_that_torch_saved_without_an_archive_are_whole(run):
    file = run / "checkpoint-3" / "optimizer.pt"
    torch.save(torch.load(file), file, _use_new_zipfile_serialization=False)
    assert why_incomplete(file.parent) is None


def test_an_adapter_is_weights_enough(tmp_path):
    adapted = functools.partial(tiny.Recorder, peft_config=LoraConfig(target_modules="all-linear"))
    tiny.trained(tmp_path, cls=adapted, **SAVING)
    checkpoint = tmp_path / "checkpoint-1"
    assert why_incomplete(checkpoint) is None
    content = (checkpoint / "adapter_model.safetensors").read_bytes()
    damage(checkpoint / "adapter_model.safetensors", "cut in half")
    assert why_incomplete(checkpoint) == "adapter_model.safetensors is torn"
    damage(checkpoint / "adapter_model.safetensors", "missing")
    assert why_incomplete(checkpoint) == "the weights are missing"
    (checkpoint / "second").mkdir()  # where an adapter with a name is saved
    (checkpoint / "second" / "adapter_model.safetensors").write_bytes(content)
    assert why_incomplete(checkpoint) is None


@pytest.mark.parametrize("rank", [0, 1])
def test_a_torn_random_state_of_any_rank_makes_a_checkpoint_incomplete(run, rank):
    (run / "checkpoint-3" / "rng_state.pth").rename(run / "checkpoint-3" / "rng_state_0.pth")
    shutil.copy(run / "checkpoint-3" / "rng_state_0.pth", run / "checkpoint-3" / "rng_state_1.pth")
    assert why_incomplete(run / "checkpoint-3") is None
    damage(run / "checkpoint-3" / f"rng_state_{rank}.pth", "empty")
    assert why_incomplete(run / "checkpoint-3") == f"rng_state_{rank}.pth is torn; deleted, it is not needed"


def layout(directory: Path, *names: str) -> Path:
    """A checkpoint with these files besides the trainer's state; tensor files are real ones."""
    for name in ("trainer_state.json", *names):
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".safetensors":
            save_file({"a": torch.ones(3)}, file)
        elif file.suffix in (".pt", ".bin"):
            torch.save({"a": torch.ones(3)}, file)
        else:
            file.write_text('{"global_step": 3}')
    return directory


@pytest.mark.parametrize(
    ("files", "needed"),
    [
        (("adapter_model.safetensors", "adapter_config.json", "optimizer.pt", "scheduler.pt"), (0, 2, 3)),
        (("pytorch_model_fsdp.bin", "optimizer.bin", "scheduler.pt"), (0, 1, 2)),
    ],
    ids=["PEFT", "FSDP"],
)
def test_checkpoints_of_other_layouts_are_complete_only_with_all_their_parts(tmp_path, files, needed):
    checkpoint = layout(tmp_path / "checkpoint-3", *files)
    assert why_incomplete(checkpoint) is None
    for index in needed:
        content = (checkpoint / files[index]).read_bytes()
        (checkpoint / files[index]).unlink()
        assert why_incomplete(checkpoint) is not None, files[index]
        (checkpoint / files[index]).write_bytes(content)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_checkpoint_in_shards_needs_what_says_where_its_tensors_are(tmp_path):
    checkpoint = layout(tmp_path / "checkpoint-3", "scheduler.pt")
    for name in ("pytorch_model_fsdp_0", "optimizer_0"):
        dcp.save({"a": torch.ones(3)}, checkpoint_id=checkpoint / name, no_dist=True)
        (checkpoint / name / "__1_0.distcp").touch()  # of a rank that holds nothing
    assert why_incomplete(checkpoint) is None
    for name in ("pytorch_model_fsdp_0", "optimizer_0"):
        (checkpoint / name / ".metadata").rename(tmp_path / "metadata")
        assert why_incomplete(checkpoint) == f"{name}/.metadata is missing"
        (tmp_path / "metadata").rename(checkpoint / name / ".metadata")


def test_every_shard_that_an_index_names_must_be_there(tmp_path):
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    checkpoint = layout(tmp_path / "checkpoint-3", *shards, "optimizer.pt", "scheduler.pt")
    assert why_incomplete(checkpoint) == "the weights are missing"
    index = checkpoint / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict(zip("ab", shards, strict=True))}))
    assert why_incomplete(checkpoint) is None
    damage(checkpoint / shards[1], "missing")
    assert why_incomplete(checkpoint) == f"{shards[1]}, which {index.name} names, is missing"
    index.write_text("[]")
    assert why_incomplete(checkpoint) == f"{index.name} is torn"


def test_a_deepspeed_checkpoint_needs_the_state_that_its_tag_names(tmp_path):
    states = ("global_step3/mp_rank_00_model_states.pt", "global_step3/zero_pp_rank_0_mp_rank_00_optim_states.pt")
    checkpoint = layout(tmp_path / "checkpoint-3", *states)
    (checkpoint / "latest").write_text("global_step3")
    assert why_incomplete(checkpoint) is None
    torch.save({"a": torch.ones(3)}, checkpoint / states[1], _use_new_zipfile_serialization=False)
    (checkpoint / "global_step2").mkdir()  # left from an earlier save, and not read
    (checkpoint / "global_step2" / "mp_rank_00_model_states.pt").touch()
    assert why_incomplete(checkpoint) is None
    damage(checkpoint / states[0], "cut in half")
    assert why_incomplete(checkpoint) == f"{states[0]} is torn"
    (checkpoint / "latest").write_text("global_step4")
    assert "'global_step4'" in why_incomplete(checkpoint)


def test_a_jit_checkpoint_that_was_cut_short_is_passed_over(run):
    (run / "checkpoint-3" / "checkpoint-is-incomplete.txt").write_text("in progress")
    assert last_complete_checkpoint(run) == run / "checkpoint-2"


def test_a_save_that_never_came_to_its_end_is_none_and_one_that_was_damaged_later_is_one(run, tmp_path):
    assert not was_saved(tmp_path / "nowhere")
    for step in (1, 2, 3):
        damage(run / f"checkpoint-{step}" / "trainer_state.json", "empty")
    assert last_complete_checkpoint(run) is None
    assert was_saved(run)
    for step in (1, 2, 3):
        damage(run / f"checkpoint-{step}" / "trainer_state.json", "missing")
    assert not was_saved(run)
