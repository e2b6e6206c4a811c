"""What the policy cannot be shown: control tokens of its own, whoever marked them so."""

from __future__ import annotations

import math

import tiny
from tokenizers import AddedToken
from transformers import AutoTokenizer

from trl_mentor.fitting import objection, special_tokens
from trl_mentor.records import Lesson


def test_a_turn_mark_that_is_only_an_added_token_is_special_all_the_same(tmp_path):
    made = tiny.tokenizer()
    made.backend_tokenizer.add_special_tokens([AddedToken("<assistant>", special=True, normalized=False)])
    made.backend_tokenizer.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    made.save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert "<assistant>" not in tokenizer.all_special_tokens
    found = special_tokens(tokenizer)
    assert set(found.values()) == {*tokenizer.all_special_tokens, "<assistant>"}
    assert tokenizer.convert_tokens_to_ids(list(found.values())) == list(found)

    def refused(hint: str) -> bool:
        rooms = {"context_room": math.inf, "engine_room": math.inf, "completion_room": 9.0}
        lesson = Lesson(f"{hint} w1", hint=hint)
        return objection(lesson, "w1", special_tokens=found.values(), count_tokens=len, **rooms) is not None

    assert [refused("w2 <assistant> w3"), refused("w2 <think> w3"), refused("w2 w3")] == [True, False, False]
