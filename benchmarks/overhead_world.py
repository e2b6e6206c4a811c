"""The policy, the prompts and the trainers of the overhead benchmark: nothing of it is learned, only timed.

Each completion has exactly `tokens` tokens, as the end token is held back, so that all trainers generate alike. A hard
prompt fails whatever is sampled, hinted or not: its group collapses each time it is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOTrainer

from trl_mentor import Mentor, MentorGRPOConfig, MentorGRPOTrainer, ScriptedBackend
from trl_mentor.assembly import add_hint
from trl_mentor.records import Message, Role

HINT = "w1 w2 w3 w4"
TEMPLATE = "{hint} {question}"
MANY_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class Scale:
    """How big a step is, and how many are measured."""

    width: int = 192
    layers: int = 3
    words: int = 1000
    prompt: int = 16
    tokens: int = 48
    groups: int = 8
    group_size: int = 4
    rounds: int = 40
    warm_up: int = 6

    @property
    def rows(self) -> int:
        return self.groups * self.group_size


FULL = Scale()
QUICK = replace(FULL, width=16, layers=1, words=50, tokens=6, rounds=3, warm_up=2)


class Reward:
    """0 for hard prompts, and 0 and 1 by turns for the others. Counts what it is shown."""

    __name__ = "verifier"

    def __init__(self) -> None:
        self.scored = 0

    def __call__(self, completions: list[Any], hard: list[bool], **_: Any) -> list[float]:
        self.scored += len(completions)
        return [0.0 if is_hard else float(i % 2) for i, is_hard in enumerate(hard)]


class Counted:
    """Counts the completions that a trainer generates."""

    generated = 0
    first_rolls = 0

    @property
    def rerolled(self) -> int:
        return self.generated - self.first_rolls

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self.first_rolls += len(inputs)
        return super()._generate_and_score_completions(inputs)

    def _generate_single_turn(self, prompt_ids: list[list[int]], *args: Any, **kwargs: Any) -> Any:
        self.generated += len(prompt_ids)
        return super()._generate_single_turn(prompt_ids, *args, **kwargs)


class Plain(Counted, GRPOTrainer):
    """TRL's own trainer."""


class PlainWithReroll(Plain):
    """TRL's own trainer that generates, scores and trains on hinted completions where prompts are hard.

    The least that a re-roll can cost: no group is looked for, no mentor asked, and what the first roll of a hard
    prompt brought is overwritten unseen.
    """

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self._hard_rows = {i: row for i, row in enumerate(inputs) if row["hard"]}
        return super()._generate_and_score_completions(inputs)

    def _generate(self, prompts: list[Any]) -> Any:
        first = super()._generate(prompts)
        rows = list(self._hard_rows.values())
        plain = [row["prompt"] for row in rows]
        second = super()._generate([add_hint(prompt, HINT, TEMPLATE) for prompt in plain])
        super()._calculate_rewards(rows, plain, second[3], second[1])
        for column in (0, 1, 3):  # prompt ids, completion ids, completions
            for i, value in zip(self._hard_rows, second[column], strict=True):
                first[column][i] = value
        return first


class Mentored(Counted, MentorGRPOTrainer):
    """The shipped trainer."""


class Switched(Mentored):
    """The shipped trainer, which takes its steps as TRL's own trainer does while `plain` is set.

    Two trainers of one kind differ by some percent for as long as they live, by where their memory lies; this one
    compares with itself.
    """

    plain = False

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        if not self.plain:
            return super()._generate_and_score_completions(inputs)
        self.first_rolls += len(inputs)
        return GRPOTrainer._generate_and_score_completions(self, inputs)

    def _generate(self, prompts: list[Any]) -> Any:
        return GRPOTrainer._generate(self, prompts) if self.plain else super()._generate(prompts)

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Any:
        if self.plain:
            return GRPOTrainer._calculate_rewards(self, *args, **kwargs)
        return super()._calculate_rewards(*args, **kwargs)


def scripted_mentor(pause: Callable[[], None] = lambda: None) -> Mentor:
    """A mentor that needs a chain of three calls for each group, with a `pause` in each."""
    replies = {
        Role.ATTRIBUTION: '{"misconceptions": ["confuses w1 with w2"]}',
        Role.GENERATION: HINT,
        Role.JUDGMENT: '{"critique": "fine", "verdict": "HIGH"}',
    }

    def answer(role: Role, messages: Sequence[Message]) -> str:
        pause()
        return replies[role]

    return Mentor(ScriptedBackend(answer), max_concurrency=64)


def tokenizer(words: int) -> PreTrainedTokenizerFast:
    vocabulary = {word: i for i, word in enumerate(["<pad>", "<eos>", "<unk>", *(f"w{i}" for i in range(words))])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )


def policy(scale: Scale) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=scale.words + 3,
        hidden_size=scale.width,
        intermediate_size=2 * scale.width,
        num_hidden_layers=scale.layers,
        num_attention_heads=max(scale.width // 64, 1),
        max_position_embeddings=4 * (scale.prompt + scale.tokens),
        eos_token_id=1,
        pad_token_id=0,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config)


def dataset(scale: Scale, hard: list[bool]) -> Dataset:
    """Prompts for one generation batch, which comes again and again; `hard` says which of its groups collapse."""
    prompts = [
        " ".join(f"w{5 + (7 * i + k) % (scale.words - 5)}" for k in range(scale.prompt)) for i in range(len(hard))
    ]
    return Dataset.from_dict({"prompt": prompts, "hard": hard, "answer": ["12"] * len(hard)})


def trainer(kind: type, scale: Scale, hard: list[bool], out: Path, *, mentor: Any = None, **options: Any) -> Any:
    """A trainer of a fresh copy of the policy; `options` are config fields."""
    mentor_options = {} if mentor is None else {"mentor_hint_template": TEMPLATE}
    args = MentorGRPOConfig(
        str(out),
        **{
            "per_device_train_batch_size": scale.rows,
            "num_generations": scale.group_size,
            "max_completion_length": scale.tokens,
            "generation_kwargs": {"min_new_tokens": scale.tokens},
            "max_steps": MANY_STEPS,
            "learning_rate": 1e-6,
            "logging_steps": 1,
            "use_cpu": True,
            "bf16": False,
            "report_to": "none",
            "save_strategy": "no",
            "shuffle_dataset": False,
            "gradient_checkpointing": False,
            "mentor_routes": {"cut_off": "mentor", "duplicates": "mentor"},
            "disable_tqdm": True,
            "seed": 7,
            **mentor_options,
            **options,
        },
    )
    given = {} if mentor is None else {"mentor": mentor}
    return kind(
        policy(scale),
        reward_funcs=Reward(),
        args=args,
        train_dataset=dataset(scale, hard),
        processing_class=tokenizer(scale.words),
        **given,
    )
