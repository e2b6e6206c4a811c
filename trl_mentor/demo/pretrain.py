"""Makes the checkpoint that ships with the demo: `python -m trl_mentor.demo.pretrain --seed 0 --out DIRECTORY`."""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable
from pathlib import Path

import torch
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from trl_mentor.demo.corpus import write_document
from trl_mentor.demo.tokenizer import UNKNOWN, build_tokenizer, vocabulary
from trl_mentor.demo.world import sample_problems

PROBLEMS_PER_FAMILY = 300
BATCH_SIZE = 64
LEARNING_RATE = 3e-3
WARMUP_STEPS = 100


def build_model(tokenizer: PreTrainedTokenizerFast, *, seed: int) -> LlamaForCausalLM:
    """A fresh student of about 0.166 million parameters."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)


def pretrain(
    *, seed: int, steps: int, problems_per_family: int = PROBLEMS_PER_FAMILY
) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Train a student on generated documents."""
    rng = random.Random(seed)
    problems = list(sample_problems(rng, problems_per_family, held_out=False).values())
    tokenizer = build_tokenizer()
    words = garble_words(vocabulary())

    def write() -> tuple[str, str]:
        return write_document(rng, rng.choice(problems), words)

    return fit(build_model(tokenizer, seed=seed), tokenizer, write, steps=steps), tokenizer


def garble_words(tokens: list[str]) -> list[str]:
    """What garbled hints are made of: the words of a vocabulary, and the unknown one more often than any other."""
    return [UNKNOWN, UNKNOWN, *tokens[3:]]


def fit(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    write: Callable[[], tuple[str, str]],
    *,
    steps: int,
) -> LlamaForCausalLM:
    """Train a model on documents (prompt, answer) as they are written; the loss is on the answers."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _learning_rate_factor(step, steps))
    progress = tqdm(range(steps), desc="pretraining")
    for step in progress:
        batch = _batch(write, tokenizer)
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            progress.set_postfix(loss=f"{loss.item():.3f}")
    return model.eval()


def _learning_rate_factor(step: int, steps: int) -> float:
    if step < WARMUP_STEPS:
        return (step + 1) / WARMUP_STEPS
    return 0.02 + 0.49 * (1 + math.cos(math.pi * step / steps))


def _batch(write: Callable[[], tuple[str, str]], tokenizer: PreTrainedTokenizerFast) -> dict[str, torch.Tensor]:
    """Left-padded documents with shape (BATCH_SIZE, length); labels are -100 on padding and prompt."""
    documents = [write() for _ in range(BATCH_SIZE)]
    prompts = tokenizer([prompt for prompt, _ in documents]).input_ids
    answers = tokenizer([answer for _, answer in documents]).input_ids
    rows = [(prompt, [*answer, tokenizer.eos_token_id]) for prompt, answer in zip(prompts, answers, strict=True)]
    width = max(len(prompt) + len(answer) for prompt, answer in rows)
    padding = [width - len(prompt) - len(answer) for prompt, answer in rows]
    pad = tokenizer.pad_token_id
    filled = [[pad] * p + prompt + answer for p, (prompt, answer) in zip(padding, rows, strict=True)]
    return {
        "input_ids": torch.tensor(filled),
        "attention_mask": torch.tensor([[0] * p + [1] * (width - p) for p in padding]),
        "labels": torch.tensor([[-100] * (width - len(answer)) + answer for _, answer in rows]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "checkpoint")
    arguments = parser.parse_args()
    model, tokenizer = pretrain(seed=arguments.seed, steps=arguments.steps)
    model.save_pretrained(arguments.out)
    tokenizer.save_pretrained(arguments.out)


if __name__ == "__main__":
    main()
