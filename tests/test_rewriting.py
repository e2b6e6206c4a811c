"""Words and signs for operations become LaTeX, and what most hints are, plain words, is read in a short way."""

from __future__ import annotations

import json
import random
import re
import string
from pathlib import Path

from trl_mentor.leaks import rewriting

PAIRS = Path(__file__).parent / "data" / "leak_pairs.jsonl"
LONG_WAY = [pair for pair in rewriting._SUBSTITUTES if pair not in rewriting._IN_WORDS]


def test_a_text_of_words_alone_holds_nothing_that_the_short_way_leaves_out():
    rows = [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    texts = [rewriting._NO_WORDS.sub("", text) for row in rows for text in (row["hint"], row["question"])]
    pieces = re.findall(r"[a-z]{3,}", " ".join(pattern.pattern for pattern, _ in LONG_WAY))
    dice = random.Random(1)
    signs = [sign for sign in string.punctuation + " \n" if not rewriting._NO_WORDS.match(sign)]
    texts += ["".join(dice.choice([*pieces, *signs, " ", " a "]) for _ in range(40)) for _ in range(2_000)]
    for text in texts:
        assert not [pattern.pattern for pattern, _ in LONG_WAY if pattern.search(text)], text


def test_words_alone_are_rewritten_too():
    assert rewriting.rewritten("Tom's age is a sum of sin and cos") == r"Tom is age is ~ sum of \sin and \cos"
    assert len(rewriting._IN_WORDS) == 3
