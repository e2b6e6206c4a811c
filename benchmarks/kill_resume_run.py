"""The training that kill_resume.py kills and resumes: one start of it, on every rank of a launch.

A small random policy, a mentor that takes its time, a checkpoint at every other step. Leaves in its directory what the
other side needs: the pids, a trail of what the main process is doing, and at the end what the run came to.
"""

from __future__ import annotations

import json
import logging
import os
import random
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tiny
import torch
from transformers import LlamaConfig, LlamaForCausalLM, TrainerCallback

from trl_mentor import Mentor, MentorGRPOTrainer, ScriptedBackend
from trl_mentor.records import Role


class Trail(TrainerCallback):
    """Appends a line whenever the main process begins something else."""

    def __init__(self, path: Path, *, save_steps: int) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._save_steps = save_steps
        self._step = 0

    def note(self, what: str) -> None:
        os.write(self._fd, f"{what} {self._step}\n".encode())

    def on_train_begin(self, args, state, control, **kwargs):
        self._step = state.global_step
        self.note("begin")

    def on_step_begin(self, args, state, control, **kwargs):
        self._step = state.global_step
        self.note("roll")

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        self.note("optimizer")

    def on_log(self, args, state, control, **kwargs):
        self.note("between" if state.global_step % self._save_steps else "save")

    def on_save(self, args, state, control, **kwargs):
        self.note("between")


def slow_mentor(trail: Trail, seconds: float, deadline: float) -> Mentor:
    """A mentor whose calls take up to `seconds`, and which fails now and then."""
    dice = random.Random()

    def reply(role: Role, messages: Any) -> str:
        trail.note("mentor")
        time.sleep(dice.uniform(0, seconds))
        trail.note("re-roll")  # unless another call follows
        if dice.random() < 0.05:
            raise ConnectionError("the mentor is away")
        if role is Role.JUDGMENT:
            return '{"critique": "fine", "verdict": "HIGH"}'
        return '{"misconceptions": ["confuses w1 with w2"]}' if role is Role.ATTRIBUTION else tiny.HINT

    return Mentor(ScriptedBackend(reply), deadline=deadline)


def lucky_last_word(prompts: list[Any], completions: list[str], hard: list[bool], **kwargs: Any) -> list[float]:
    """Right if the last word's number is a multiple of two, or of seven for a hard row."""
    numbers = [int(word[1:]) if (word := (text.split() or ["w1"])[-1])[1:].isdigit() else 1 for text in completions]
    return [float(number % (7 if is_hard else 2) == 0) for number, is_hard in zip(numbers, hard, strict=True)]


def policy() -> LlamaForCausalLM:
    """Large enough that a checkpoint takes a while to write: a few MB of weights, twice that of optimizer state."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tiny.tokenizer()), hidden_size=160, intermediate_size=640, num_hidden_layers=3,
        num_attention_heads=4, max_position_embeddings=128, eos_token_id=1, pad_token_id=0, bos_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def main(out: Path, steps: int, schedule: str) -> None:
    """Train to `steps`, from the newest complete checkpoint if there is one."""
    logging.basicConfig(level=logging.WARNING)
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    (out / f"pid-{rank}").write_text(str(os.getpid()))
    trail = Trail(out / ("trail" if rank == 0 else f"trail-{rank}"), save_steps=2)
    trainer = MentorGRPOTrainer(
        policy(),
        reward_funcs=lucky_last_word,
        args=tiny.config(
            out, max_steps=steps, learning_rate=1e-5, per_device_train_batch_size=16 // world, save_strategy="steps",
            save_steps=2, save_total_limit=2, mentor_schedule=schedule,
        ),
        train_dataset=tiny.dataset(),
        processing_class=tiny.tokenizer(),
        callbacks=[trail],
        mentor=slow_mentor(trail, 0.08, deadline=60.0),
    )  # fmt: skip
    trainer.train(resume_from_checkpoint="auto")
    if rank == 0:
        ending = {
            "processes": trainer.accelerator.num_processes,
            "steps": trainer.state.global_step,
            "logged_steps": [entry["step"] for entry in trainer.state.log_history if "loss" in entry],
            "totals": asdict(trainer.mentor_totals),
            "waiting": len(trainer.schedule.queue) if schedule == "ahead" else 0,
        }
        (out / "ending.json").write_text(json.dumps(ending))
    # A process that exits with its process group open is now and then aborted by the group's threads.
    trainer.accelerator.end_training()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
