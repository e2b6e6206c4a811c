"""A tiny chat model made in this process, with a real tokenizer: for engines that need one, whatever it says.

As a script, writes it to a folder.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import trl_mentor

PAD, START, END = SPECIAL = ("<|pad|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
VOCABULARY = 2048
POSITIONS = 16_384


def tokenizer(texts: Iterable[str] = ()) -> PreTrainedTokenizerFast:
    """Byte-level pairs learnt from the package's prompts and `texts`; ChatML, with a switch for thinking."""
    prompts = [path.read_text(encoding="utf-8") for path in Path(trl_mentor.__file__).parent.glob("templates/*/*")]
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator([*prompts, *texts], trainer)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=made, pad_token=PAD, eos_token=END)
    wrapped.chat_template = TEMPLATE
    return wrapped


def save(folder: Path, texts: Iterable[str] = ()) -> None:
    """Write the model, its weights random, with heads of a size that vLLM supports on a CPU."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=POSITIONS,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer(texts).save_pretrained(folder)


if __name__ == "__main__":
    save(Path(sys.argv[1]))
