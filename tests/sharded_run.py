"""One training on two CPU processes under FSDP2, DeepSpeed or plain DDP; writes what this rank saw.

Started by test_sharded.py through `accelerate launch`. accelerate shards on GPUs only: on a machine without one it
trains plain data parallelism under an FSDP launch file, and one process under a DeepSpeed one, and says nothing of it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import tiny
import torch
from accelerate.state import PartialState
from accelerate.utils import DistributedType


def shard_on_cpu() -> None:
    """Let accelerate take the gloo processes for GPUs; sharding itself is PyTorch's and DeepSpeed's own."""
    os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
    PartialState._prepare_backend = lambda self, *args: ("gloo", DistributedType.MULTI_GPU)
    if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
        import deepspeed.ops

        # It speeds up CPU collectives, and would be compiled here for minutes.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


class Counted(tiny.Recorder):
    """Keeps how many rows each call of the generator got."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.shares = []

    def _generate_single_turn(self, prompt_ids, *args, **kwargs):
        self.shares.append(len(prompt_ids))
        return super()._generate_single_turn(prompt_ids, *args, **kwargs)


def whole(parameter: torch.nn.Parameter) -> torch.Tensor:
    """All of a parameter, whichever part of it this rank holds."""
    if hasattr(parameter, "full_tensor"):
        return parameter.full_tensor()
    if hasattr(parameter, "ds_id"):
        import deepspeed

        with deepspeed.zero.GatheredParameters([parameter]):
            return parameter.data.clone()
    return parameter.data


def held(parameter: torch.nn.Parameter) -> int:
    """Numbers of a parameter that this rank holds."""
    if hasattr(parameter, "to_local"):
        return parameter.to_local().numel()
    return parameter.ds_tensor.numel() if hasattr(parameter, "ds_tensor") else parameter.numel()


def main(out: Path, options: dict) -> None:
    hard = set(options.pop("hard"))
    sharded = options.pop("sharded")
    if sharded:
        shard_on_cpu()
    trainer = tiny.trainer(
        out / "run",
        cls=Counted,
        reward=tiny.HardRowsFail(rerolls=True),
        data=tiny.dataset(8, hard=lambda i: i in hard),
        use_cpu=not sharded,
        dataloader_pin_memory=False,
        **options,
    )
    trainer.train()
    parameters = list(trainer.model.parameters())
    seen = {
        "processes": trainer.accelerator.num_processes,
        "kind": trainer.accelerator.distributed_type.value,
        "zero_stage": trainer._dist.zero_stage,
        "fsdp_version": trainer._dist.fsdp_version,
        "held": sum(map(held, parameters)),
        "generated": trainer.shares,
        "rows": [tiny.rows(batch) for batch in trainer.batches],
        "rescued": trainer.mentor_totals.rescued,
        "reliance": [trainer.mentor_totals.reliance_sum, trainer.mentor_totals.reliance_count],
        "weights": torch.cat([whole(parameter).flatten() for parameter in parameters]).tolist(),
    }
    (out / f"rank{trainer.accelerator.process_index}.json").write_text(json.dumps(seen))
    trainer.accelerator.end_training()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
    if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
        # On a CPU, threads of DeepSpeed keep a process that has ended from going.
        os._exit(0)
