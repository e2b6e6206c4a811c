"""What happens in each step of a training of the GPU check: generations, weight syncs, sleeps, seconds, memory."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import TrainerCallback


@dataclass(slots=True)
class Step:
    """What happened in one optimizer step. Gaps are means of |engine's log-probability - policy's| over tokens."""

    first_gaps: list[float] = field(default_factory=list)
    reroll_gaps: list[float] = field(default_factory=list)
    stale_gaps: list[float] = field(default_factory=list)
    """The same for re-rolls, against the weights of the step before: what a forgotten sync would look like."""
    rerolls: int = 0
    syncs: int = 0
    sleeps: list[int] = field(default_factory=list)
    """Level of each time that the engine was put to sleep."""
    seconds: float = 0.0
    memory_gib: float = 0.0
    """Memory of the device in use at the end of the step, the engine's and other processes' included."""


class Watch(TrainerCallback):  # type: ignore[misc]
    """The steps of a run, filled from inside the trainer."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.rerolling = False
        self.current: dict[str, torch.Tensor] = {}
        self.previous: dict[str, torch.Tensor] = {}
        self._started = 0.0

    def on_step_begin(self, *_: Any, model: torch.nn.Module, **__: Any) -> None:
        self.steps.append(Step())
        self.previous, self.current = self.current, trainable(model)
        self._started = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        step = self.steps[-1]
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            free, total = torch.cuda.mem_get_info()
            step.memory_gib = (total - free) / 2**30
        step.seconds = time.perf_counter() - self._started

    def see(self, trainer: Any, prompts: list[list[int]], completions: list[list[int]], logprobs: Any) -> None:
        """Compare what the engine says of its tokens with what the policy says of them."""
        step = self.steps[-1]
        step.rerolls += self.rerolling
        if logprobs is None:
            return
        says: list[float] = [value for row in logprobs for value in row]
        (step.reroll_gaps if self.rerolling else step.first_gaps).append(gap(trainer, prompts, completions, says))
        if self.rerolling and self.previous:
            step.stale_gaps.append(gap(trainer, prompts, completions, says, self.previous))


class Watched:
    """A trainer whose generation is watched."""

    watch: Watch

    def _generate_single_turn(self, prompt_ids: list[list[int]], *args: Any, **kwargs: Any) -> Any:
        completions, logprobs = super()._generate_single_turn(prompt_ids, *args, **kwargs)  # type: ignore[misc]
        self.watch.see(self, prompt_ids, completions, logprobs)
        return completions, logprobs


def trainable(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in model.named_parameters() if weight.requires_grad}


@torch.no_grad()
def gap(
    trainer: Any, prompts: list[list[int]], completions: list[list[int]], says: list[float], weights: Any = None
) -> float:
    """Mean |engine's - policy's| log-probability of the tokens; `weights` take the place of the policy's own."""
    rows = [[*prompt, *completion] for prompt, completion in zip(prompts, completions, strict=True)]
    width = max(map(len, rows))
    device = trainer.accelerator.device
    inputs = {
        "input_ids": torch.tensor([row + [0] * (width - len(row)) for row in rows], device=device),
        "attention_mask": torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=device),
    }
    half = torch.autocast(device.type, torch.bfloat16) if trainer.args.bf16 else nullcontext()
    with half:
        output = torch.func.functional_call(trainer.model, weights or {}, (), inputs)
    known = torch.log_softmax(output.logits.float(), dim=-1)
    thinks = [
        known[i, len(prompt) + k - 1, token]
        for i, (prompt, completion) in enumerate(zip(prompts, completions, strict=True))
        for k, token in enumerate(completion)
    ]
    return (torch.stack(thinks).cpu() - torch.tensor(says)).abs().mean().item()


def watch_engine(trainer: Any) -> None:
    """Count the weight syncs and the sleeps of the trainer's vLLM engine."""
    engine, watch = trainer.vllm_generation, trainer.watch
    sync = engine.sync_weights

    def sync_weights() -> None:
        watch.steps[-1].syncs += 1
        sync()

    engine.sync_weights = sync_weights
    if trainer.vllm_mode == "colocate":
        sleep = engine.llm.sleep

        def put_to_sleep(level: int = 1, **options: Any) -> None:
            watch.steps[-1].sleeps.append(level)
            sleep(level=level, **options)

        engine.llm.sleep = put_to_sleep
