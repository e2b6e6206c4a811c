"""The launch files on two real CPU processes: with the policy whole on each, or sharded, the training is the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch

from trl_mentor.checkpoints import why_incomplete

HERE = Path(__file__).parent
PARAMETERS = sum(parameter.numel() for parameter in tiny.model().parameters())


def launch(out: Path, name: str, *flags: str, sharded: bool) -> list[dict[str, Any]]:
    """What each of two ranks saw of two steps, each with one collapsed group, under a launch file."""
    out.mkdir()
    config = HERE.parent / "accelerate_configs" / f"{name}.yaml"
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config), *flags]
    options = {
        "sharded": sharded,
        "hard": [1, 5],
        "per_device_train_batch_size": 8,
        "max_completion_length": 24,
        "max_steps": 2,
        "mentor_hint_reliance": True,
        "save_strategy": "steps",
        "save_steps": 1,
    }
    result = subprocess.run(
        [*command, str(HERE / "sharded_run.py"), str(out), json.dumps(options)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "DS_ACCELERATOR": "cpu"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return [json.loads((out / f"rank{rank}.json").read_text()) for rank in range(2)]


def launch_sharded(out: Path, name: str) -> list[dict[str, Any]]:
    """The same under a launch file for eight GPUs in bfloat16, brought down to two CPU processes."""
    flags = ("--num_processes", "2", "--mixed_precision", "no", "--main_process_port", "0")
    return launch(out, name, *flags, sharded=True)


def assert_trained_alike(ranks: list[dict[str, Any]], plain: list[dict[str, Any]]) -> None:
    """Same rows, re-rolled ones among them, the same reliance, and the same weights at the end, on every rank."""
    assert [rank["processes"] for rank in ranks] == [2, 2]
    assert [rank["rescued"] for rank in ranks] == [2, 2]
    assert [rank["rows"] for rank in ranks] == [rank["rows"] for rank in plain]
    for rank in ranks:
        assert rank["reliance"] == pytest.approx(plain[0]["reliance"], abs=1e-5)
        torch.testing.assert_close(torch.tensor(rank["weights"]), torch.tensor(plain[0]["weights"]))


def assert_generated_in_step(ranks: list[dict[str, Any]]) -> None:
    """Each rank generated equally often and equally many rows, though its completions ended at another length."""
    assert [rank["generated"] for rank in ranks] == [[8, 2, 8, 2]] * 2
    # Group 1 lives on rank 0; each rank re-rolled half of it, and a rank that stops earlier must not leave the other.
    lengths = [[len(completion) for _, completion in batch[4:8]] for batch in ranks[0]["rows"]]
    assert any(max(batch[:2]) != max(batch[2:]) for batch in lengths)


def assert_resumable(checkpoint: Path, *needed: str) -> None:
    """It is complete, and not without each of the files of its own layout."""
    assert why_incomplete(checkpoint) is None
    for name in needed:
        content = (checkpoint / name).read_bytes()
        (checkpoint / name).write_bytes(content[:-1])
        assert why_incomplete(checkpoint) == f"{name} is torn"
        (checkpoint / name).write_bytes(content)


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> list[dict[str, Any]]:
    return launch(tmp_path_factory.mktemp("launch") / "plain", "cpu_2proc", sharded=False)


def test_cpu_2proc_starts_two_processes_that_train_one_policy(plain):
    assert [(rank["processes"], rank["kind"]) for rank in plain] == [(2, "MULTI_CPU")] * 2
    assert [rank["held"] for rank in plain] == [PARAMETERS] * 2
    assert plain[0]["weights"] == plain[1]["weights"]
    start = torch.cat([parameter.flatten() for parameter in tiny.model().parameters()])
    assert not torch.equal(torch.tensor(plain[0]["weights"]), start)
    hinted = [[len(prompt) > 2 for prompt, _ in batch] for batch in plain[0]["rows"]]
    assert hinted == [[False] * 4 + [True] * 4] * 2
    assert_generated_in_step(plain)
    assert [rank["reliance"][1] for rank in plain] == [4, 4]  # successes of two re-rolls of four


def test_fsdp2_shards_the_policy_and_trains_the_same_rows_to_the_same_weights(tmp_path, plain):
    ranks = launch_sharded(tmp_path / "fsdp2", "fsdp2")
    assert [(rank["kind"], rank["fsdp_version"]) for rank in ranks] == [("FSDP", 2)] * 2
    assert sum(rank["held"] for rank in ranks) == PARAMETERS
    assert_trained_alike(ranks, plain)
    assert_generated_in_step(ranks)
    assert_resumable(tmp_path / "fsdp2" / "run" / "checkpoint-2", "pytorch_model_fsdp.bin", "optimizer.bin")
