"""A word-level tokenizer: every word, digit and operator of the world is one token, anything else is unknown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from trl_mentor.demo.concepts import CONCEPTS, GENERIC_HINTS

PAD, UNKNOWN, END = "<pad>", "<unk>", "<end>"

_PIECE = r"//|>=|==|[^\W\d]+|\d|[^\w\s]"
_QUESTION_WORDS = (
    "Hint : Original question : Spec : total largest smallest list of x over rounded down times plus minus for x in "
    "the first last of xs from to n with at least less than a multiple of ? ."
)
_PROGRAM_WORDS = "sum max min range for in if x xs n ( ) [ ] , : + - * / // % > >= < =="


def vocabulary() -> list[str]:
    """All tokens, special ones first, in a fixed order."""
    texts = [_QUESTION_WORDS, _PROGRAM_WORDS, "0123456789", *GENERIC_HINTS]
    return vocabulary_of([*texts, *(hint for concept in CONCEPTS for hint in concept.hints)])


def vocabulary_of(texts: Sequence[str]) -> list[str]:
    """The special tokens and what these texts are made of, in order of appearance."""
    words = dict.fromkeys(word for text in texts for word in re.findall(_PIECE, text))
    return [PAD, UNKNOWN, END, *words]


def build_tokenizer(tokens: Sequence[str] | None = None) -> PreTrainedTokenizerFast:
    """The tokenizer of the student, or of one with these tokens; decoding joins tokens by spaces."""
    words = {word: index for index, word in enumerate(tokens or vocabulary())}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(_PIECE), "isolated")]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token=UNKNOWN,
        pad_token=PAD,
        eos_token=END,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
