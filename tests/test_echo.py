"""Quoted hints in completions: what is one, and which tokens go."""

from __future__ import annotations

import math

import pytest

from trl_mentor.echo import echoes, without_echo
from trl_mentor.records import Row

HINT = "Write the number as a sum of two squares, then look at each term modulo four. Which remainders can occur?"
QUESTION = "How many odd primes below 50 are a sum of two squares?"


def stripped(text: str, hint: str, *, question: str = "") -> str:
    """The text without what it quotes of the hint; pieces that are left are joined by a space."""
    pieces, position = [], 0
    for start, end in echoes(text, hint, question=question):
        pieces.append(text[position:start])
        position = end
    return " ".join(piece for piece in (*pieces, text[position:]) if piece)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"Hint: {HINT}\n\nSquares leave 0 or 1, so 7 is out.", "Squares leave 0 or 1, so 7 is out."),
        (f'The hint says: "{HINT}" Squares leave 0 or 1.', "Squares leave 0 or 1."),
        (f"First, {HINT.lower()} Squares leave 0 or 1.", "First, Squares leave 0 or 1."),
        (
            "**Hint:** Write the number as a sum of two squares.\nSquares leave 0 or 1.",
            "Squares leave 0 or 1.",
        ),
        (
            "Fine. Hint: look at each term modulo four. So 7 is out. Hint: which remainders can occur? Two.",
            "Fine. So 7 is out. Two.",
        ),
        ("<think>\nHint: look at each term modulo four. So 7 is out.</think> 7", "<think>\n So 7 is out.</think> 7"),
        ("<reasoning>\nThe hint says: look at each term modulo four.\nSo 7.", "<reasoning>\n So 7."),
        ("Sure\n\nHint: look at each term modulo four.\n\nSo 7.", "Sure\n\n So 7."),
    ],
)
def test_a_quotation_goes_with_its_introduction(text, left):
    assert stripped(text, HINT) == left


@pytest.mark.parametrize(
    "text",
    [
        "Look at each term modulo four: squares leave 0 or 1.",  # six words that an answer may well use
        "The remainders can only be 0 and 1, as each square is one of them modulo four.",
        "I need no hint here: the number is 25.",
        f"The answer follows from this hint: {HINT}",  # nothing would be left of the answer
        HINT,
        "I answer <answer>Look at each term modulo four, which remainders can occur</answer>",
        f"<answer>{HINT} Seven.</answer>",
        "I don't need the hint. Look at each number in turn. So 7 is out.",
        "Hint: look at each term of the sum separately and add. So 7 is out.",
        f"```python\n# {HINT}\nprint(7)\n```\nDone.",
        f"So \\boxed{{{HINT}}} it is.",
        "",
    ],
)
def test_an_answer_that_merely_shares_words_or_would_be_touched_stays(text):
    assert stripped(text, HINT) == text


@pytest.mark.parametrize("filler", [" ", "\n", "</a>", " </a>", "(", "> "], ids=repr)
def test_long_runs_of_spaces_tags_and_marks_change_nothing(filler):
    run = filler * 50_000  # takes minutes where a pattern is tried from each of them
    text = f"So{run}Hint: {HINT} Squares leave 0 or 1.{run}"
    left = stripped(text, HINT)
    assert HINT not in left
    assert left.startswith("So")
    assert "Squares leave 0 or 1." in left


def test_what_the_question_says_itself_is_no_quotation_of_the_hint():
    hint = "How many odd primes below 50 are one more than a multiple of four?"
    text = "How many odd primes below 50 are a sum of two squares? Let us see: 5, 13, 17."
    assert stripped(text, "How many odd primes below 50 are a sum of odd squares?", question=QUESTION) == text
    assert stripped(text, hint, question=QUESTION) == text
    assert stripped(text, QUESTION) == "Let us see: 5, 13, 17."


def test_a_hint_of_one_word_is_never_quoted():
    assert stripped("Hint: squares. Then squares again.", "squares") == "Hint: squares. Then squares again."


PIECES = [
    "Sure",
    ".",
    "\n\n",
    "Hint",
    ":",
    " look",
    " at",
    " each",
    " term",
    " mod",
    "ulo",
    " four",
    ".\n\n",
    "So",
    " 7",
]
EOS = len(PIECES)


def decode(ids):
    return "".join([*PIECES, "<|im_end|>"][i] for i in ids)


def row(ids, hint=HINT):
    return Row([1], list(ids), decode(ids), [-float(i) for i in ids], (1.0,), hint=hint, success=True)


def test_whole_tokens_are_cut_and_the_others_keep_their_log_probabilities():
    given = row([*range(len(PIECES)), EOS])
    found = without_echo(given, question=QUESTION, decode=decode, special={EOS})
    assert found.completion_ids == [0, 1, 2, 13, 14, EOS]
    assert found.logprobs == [-0.0, -1.0, -2.0, -13.0, -14.0, -float(EOS)]
    assert found.completion == given.completion


def test_an_end_token_is_no_answer():
    given = row([*range(3, 12), EOS])
    assert without_echo(given, question=QUESTION, decode=decode, special={EOS}) is given


def test_a_token_that_only_begins_in_a_quotation_stays():
    glued = [*PIECES[:12], ".\n\nSo", " 7"]
    given = Row([1], list(range(14)), "".join(glued), [math.nan] * 14, (1.0,), hint=HINT)
    found = without_echo(
        given, question=QUESTION, decode=lambda ids: "".join(glued[i] for i in ids), special=frozenset()
    )
    assert found.completion_ids == [0, 1, 2, 12, 13]
    assert len(found.logprobs) == 5


def test_a_row_without_a_hint_or_a_quotation_is_the_same_object():
    for given in (row(range(15), hint=None), row([0, 1, 13, 14])):
        assert without_echo(given, question=QUESTION, decode=decode, special={EOS}) is given
