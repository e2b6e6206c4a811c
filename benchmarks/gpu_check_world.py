"""The policy, the prompts and the trainers of the GPU check.

Every second generation batch collapses in each second group; the others do not, so that one run shows steps with and
without a re-roll. Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from gpu_check_watch import Watch, Watched, trainable, watch_engine
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOTrainer

from trl_mentor import Mentor, MentorGRPOConfig, MentorGRPOTrainer, ScriptedBackend
from trl_mentor.records import Role
from trl_mentor.vllm_cpu import use_cpu_engine

WORDS = 500
HINT = "w1 w2 w3 w4"
REPLIES = {
    Role.ATTRIBUTION: '{"misconceptions": ["confuses w1 with w2"]}',
    Role.GENERATION: HINT,
    Role.JUDGMENT: '{"critique": "fine", "verdict": "HIGH"}',
}


@dataclass(frozen=True, slots=True)
class Size:
    """How big a run is."""

    steps: int = 10
    groups: int = 8
    group_size: int = 8
    tokens: int = 64

    @property
    def rows(self) -> int:
        return self.groups * self.group_size


ON_GPU = Size()
ON_CPU = Size(steps=4, groups=4, group_size=4, tokens=16)


class Plain(Watched, GRPOTrainer):  # type: ignore[misc]
    """TRL's own trainer."""


class Mentored(Watched, MentorGRPOTrainer):
    """The shipped trainer."""

    def _regenerate(self, *args: Any, **kwargs: Any) -> Any:
        self.watch.rerolling = True
        try:
            return super()._regenerate(*args, **kwargs)
        finally:
            self.watch.rerolling = False


def tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {word: i for i, word in enumerate(["<pad>", "<eos>", "<unk>", *(f"w{i}" for i in range(WORDS))])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )


def save_policy(folder: Path) -> None:
    """A Llama of about two million weights, with heads of 64 as attention kernels want them, and its tokenizer."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        eos_token_id=1,
        pad_token_id=0,
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer().save_pretrained(folder)


def dataset(size: Size) -> Dataset:
    """One batch of prompts for each step; `hard` says which of its groups collapse."""
    prompts = [" ".join(f"w{(7 * i + k) % WORDS}" for k in range(8)) for i in range(size.steps * size.groups)]
    hard = [i // size.groups % 2 == 0 and i % 2 == 1 for i in range(len(prompts))]
    return Dataset.from_dict({"prompt": prompts, "hard": hard, "answer": ["w9"] * len(prompts)})


def reward_function(watch: Watch) -> Callable[..., list[float]]:
    """0 for hard prompts on their first roll; all else fails and succeeds by turns."""

    def verifier(completions: list[Any], hard: list[bool], **_: Any) -> list[float]:
        return [0.0 if is_hard and not watch.rerolling else float(i % 2) for i, is_hard in enumerate(hard)]

    return verifier


def train(policy: Path, out: Path, *, mentored: bool, lora: bool = False, **options: Any) -> dict[str, Any]:
    """Train a saved policy, with fields of the config in `options`, and say what happened, as plain JSON."""
    cuda = torch.cuda.is_available()
    size = ON_GPU if cuda else ON_CPU
    args = MentorGRPOConfig(
        str(out),
        **{
            "per_device_train_batch_size": size.rows,
            "num_generations": size.group_size,
            "max_completion_length": size.tokens,
            "max_steps": size.steps,
            "learning_rate": 2e-3,
            "lr_scheduler_type": "constant",
            "logging_steps": 1,
            "use_cpu": not cuda,
            "bf16": cuda,
            "report_to": "none",
            "save_strategy": "no",
            "shuffle_dataset": False,
            "gradient_checkpointing": False,
            "disable_tqdm": True,
            "mentor_hint_template": "{hint} {question}",
            "mentor_routes": {"cut_off": "mentor", "duplicates": "mentor"},
            "vllm_max_model_length": 256,
            "vllm_gpu_memory_utilization": 0.2,
            "seed": 7,
            **options,
        },
    )
    watch = Watch()
    given: dict[str, Any] = {"mentor": Mentor(ScriptedBackend(REPLIES))} if mentored else {}
    if lora:
        from peft import LoraConfig

        given["peft_config"] = LoraConfig(r=8, lora_alpha=32, target_modules="all-linear")
    trainer = (Mentored if mentored else Plain)(
        str(policy),
        reward_funcs=reward_function(watch),
        args=args,
        train_dataset=dataset(size),
        callbacks=[watch],
        **given,
    )
    trainer.watch = watch
    if args.use_vllm:
        use_cpu_engine(trainer)  # does nothing to an engine on a GPU
        watch_engine(trainer)
    start = trainable(trainer.model)
    trainer.train()
    return record(trainer, start)


def record(trainer: Any, start: dict[str, torch.Tensor]) -> dict[str, Any]:
    """What a run came to, as plain JSON."""
    end = trainable(trainer.model)
    moved = max((end[name].float() - weight.float()).abs().max().item() for name, weight in start.items())
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    differences = [
        entry["sampling/sampling_logp_difference/mean"]
        for entry in trainer.state.log_history
        if "sampling/sampling_logp_difference/mean" in entry
    ]
    return {
        "steps": [asdict(step) for step in trainer.watch.steps],
        "totals": asdict(trainer.mentor_totals) if isinstance(trainer, Mentored) else {},
        "losses": losses,
        "sampling_logp_difference": differences,
        "finite": all(bool(torch.isfinite(weight).all()) for weight in end.values()),
        "moved": moved,
        "device": str(trainer.accelerator.device),
        "autocast": str(torch.bfloat16) if trainer.args.bf16 else None,
    }
