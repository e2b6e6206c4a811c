"""The training that soak.py watches: one rank of a run with random collapse and an unreliable mentor.

Leaves in its directory, for each rank, a heartbeat, where it stood when it was asked with SIGUSR1, and at the end what
the rank saw. Started by soak.py under `torch.distributed.run`.
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import Any

import psutil
import tiny
import torch
from datasets import Dataset
from soak_world import CONCURRENCY, DEADLINE, GROUP, LONG, ROWS, RandomCollapse, UnreliableMentor
from transformers import TrainerCallback

from trl_mentor import Mentor, MentorGRPOTrainer
from trl_mentor.exchange import Exchange
from trl_mentor.leaks.hint_rules import HintLimits

COLLECTIVES = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "barrier",
    "broadcast",
    "broadcast_object_list",
)


class Heartbeat(TrainerCallback):
    """Leaves the number of the step in a file, and keeps how much memory the process used early and late."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.megabytes: list[int] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._path.write_text(str(state.global_step))
        if state.global_step % max(1, state.max_steps // 4) == 0:
            self.megabytes.append(psutil.Process().memory_info().rss >> 20)


def record_collectives() -> list[str]:
    """What this rank asks of the others from now on, in order: calls of `Exchange`, and collectives with shapes."""
    calls: list[str] = []

    def recorded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            shapes = [str(tuple(arg.shape)) for arg in (*args, *kwargs.values()) if isinstance(arg, torch.Tensor)]
            calls.append(" ".join([name, *shapes]))
            return function(*args, **kwargs)

        return call

    for name in ("gather", "total", "from_main"):
        setattr(Exchange, name, recorded(f"Exchange.{name}", getattr(Exchange, name)))
    for name in COLLECTIVES:
        setattr(torch.distributed, name, recorded(name, getattr(torch.distributed, name)))
    return calls


def prompts(rows: int, *, evaluation: bool) -> Dataset:
    return Dataset.from_dict(
        {
            "prompt": [f"w{i} w{i}" for i in range(rows)],
            "answer": [f"answer-{i}" for i in range(rows)],
            "evaluation": [evaluation] * rows,
        }
    )


def train(folder: Path, options: dict[str, Any]) -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    calls, reward = record_collectives(), RandomCollapse(options["seed"], rank)
    heartbeat = Heartbeat(folder / f"rank{rank}.step")
    every = max(1, options["steps"] // 5)
    args = tiny.config(
        folder / "run",
        mentor_schedule=options["schedule"],
        mentor_queue_size=8,
        max_steps=options["steps"],
        per_device_train_batch_size=ROWS // world,
        per_device_eval_batch_size=ROWS // world,
        num_generations=GROUP,
        shuffle_dataset=True,
        eval_strategy="steps",
        eval_steps=every,
        save_strategy="steps",
        save_steps=every,
        save_total_limit=1,
    )
    trainer = MentorGRPOTrainer(
        tiny.model(),
        reward,
        args,
        prompts(29, evaluation=False),
        eval_dataset=prompts(ROWS // GROUP, evaluation=True),
        processing_class=tiny.tokenizer(),
        mentor=Mentor(
            UnreliableMentor(options["seed"]),
            deadline=DEADLINE,
            max_concurrency=CONCURRENCY,
            limits=HintLimits(max_words=1 + len(LONG.split())),
        ),
        callbacks=[heartbeat],
    )
    trainer.train()
    weights = hashlib.sha256(b"".join(value.numpy().tobytes() for value in trainer.model.state_dict().values()))
    queue = getattr(trainer.schedule, "queue", ())
    seen = {
        "world": trainer.accelerator.num_processes,
        "steps": trainer.state.global_step,
        "collectives": calls,
        "weights": weights.hexdigest(),
        "losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
        "evaluations": sum("eval_reward" in entry for entry in trainer.state.log_history),
        "totals": asdict(trainer.mentor_totals) | {"calls": trainer.mentor_totals.calls},
        "rows": reward.rows,
        "tokens": reward.tokens,
        "waiting": len(queue),
        "threads": sum(thread.name.startswith("trl-mentor") for thread in threading.enumerate()),
        "megabytes": heartbeat.megabytes,
    }
    (folder / f"rank{rank}.json").write_text(json.dumps(seen))
    trainer.accelerator.end_training()


def main() -> None:
    folder, options = Path(sys.argv[1]), json.loads(sys.argv[2])
    rank = os.environ["RANK"]
    with (folder / f"rank{rank}.stack").open("w") as stack:
        faulthandler.register(signal.SIGUSR1, file=stack)
        (folder / f"rank{rank}.pid").write_text(str(os.getpid()))
        train(folder, options)


if __name__ == "__main__":
    main()
