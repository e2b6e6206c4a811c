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
    """Without the time of watching it."""
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
        self._watching = 0.0

    def on_step_begin(self, *_: Any, model: torch.nn.Module, **__: Any) -> None:
        self.steps.append(Step())
        self.previous, self.current = self.current, trainable(model)
        self._watching = 0.0
        self._started = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        step = self.steps[-1]
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            free, total = torch.cuda.mem_get_info()
            step.memory_gib = (total - free) / 2**30
        step.seconds = time.perf_counter() - self._started - self._watching

    def see(self, trainer: Any, prompts: list[list[int]], completions: list[list[int]], logprobs: Any) -> None:
        """Compare what the engine says of its tokens with what the policy says of them."""
        step = self.steps[-1]
        step.rerolls += self.rerolling
        if logprobs is None:
            return
        started = time.perf_counter()
        says: list[float] = [value for row in logprobs for value in row]
        (step.reroll_gaps if self.rerolling else step.first_gaps).append(gap(trainer, prompts, completions, says))
        if self.rerolling and self.previous:
            step.stale_gaps.append(gap(trainer, prompts, completions, says, self.previous))
        self._watching += time.perf_counter() - started


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
    pairs = list(zip(prompts, completions, strict=True))
    width = max(len(prompt) + len(completion) for prompt, completion in pairs)
    spare = [width - len(prompt) - len(completion) for prompt, completion in pairs]

    def tensor(rows: list[list[int]]) -> torch.Tensor:
        padded = [row + [0] * empty for row, empty in zip(rows, spare, strict=True)]
        return torch.tensor(padded, device=trainer.accelerator.device)

    ids = tensor([prompt + completion for prompt, completion in pairs])
    attended = tensor([[1] * (len(prompt) + len(completion)) for prompt, completion in pairs])
    sampled = tensor([[0] * len(prompt) + [1] * len(completion) for prompt, completion in pairs]).bool()
    half = torch.autocast(ids.device.type, torch.bfloat16) if trainer.args.bf16 else nullcontext()
    with half:
        inputs = {"input_ids": ids, "attention_mask": attended}
        logits = torch.func.functional_call(trainer.model, weights or {}, (), inputs).logits
    known = torch.log_softmax(logits[:, :-1].float(), dim=-1).gather(2, ids[:, 1:, None]).squeeze(2)
    return (known[sampled[:, 1:]].cpu() - torch.tensor(says)).abs().mean().item()


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
