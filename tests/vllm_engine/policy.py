"""A tiny policy whose attention heads have a size that vLLM supports on a CPU. As a script, writes it to a folder."""

from __future__ import annotations

import sys
from pathlib import Path

import tiny
import torch
from transformers import LlamaConfig, LlamaForCausalLM


def saved(path: Path, *, tied: bool) -> LlamaForCausalLM:
    """The policy as an engine finds it, read from its folder; `tied`: its output head is its embedding."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tiny.tokenizer()),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=128,
        initializer_range=0.2,
        tie_word_embeddings=tied,
        eos_token_id=1,
        pad_token_id=0,
        bos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(path)
    tiny.tokenizer().save_pretrained(path)
    return LlamaForCausalLM.from_pretrained(path)


if __name__ == "__main__":
    saved(Path(sys.argv[1]), tied=True)
