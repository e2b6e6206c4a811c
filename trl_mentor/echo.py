"""Quoted hints, cut out of completions that are trained as answers to the question alone.

A completion written under a hint may begin by repeating it. Trained under the question without the hint, such a row
teaches the policy to quote a hint that nobody gave.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from trl_mentor.records import Row

MIN_WORDS = 8
"""Words of the hint in a row, in the same order, that are a quotation wherever they stand."""
MIN_INTRODUCED = 3
"""Words that are one right after "hint:" or the like, if a clause ends there."""

_MARKS = "\"'*_\u201c\u201d\u2018\u2019"
_WORD = re.compile(r"\w+")
_INTRODUCTION = re.compile(
    r"(?:\b(?:according\s+to|as|using|following|from|by)\s+)?(?:\b(?:the|a|this|given)\s+)*\bhint\b"
    rf"(?:\s+(?:says|is|reads|states|was|that|given))*[\s:>.,`{_MARKS}-]*\Z",
    re.IGNORECASE,
)
_INTRODUCTION_CHARS = 60
_LINE_BEGINNING = re.compile(r"[ \t]*[>#]+")
_AFTER = re.compile(rf"[)\]{_MARKS}]*[.,;:!?]*[)\]{_MARKS}]*\s*")
_ANSWERS = re.compile(r"```.*?(?:```|\Z)|\\boxed\s*\{[^\n]*|####[^\n]*|<answer>.*?(?:</answer>|\Z)", re.DOTALL)
"""Where answers stand: programs in fences, boxes, the last line of GSM8K, tags."""
_CLAUSE_END = re.compile(rf"[)\]{_MARKS}]*(?:[.,;:!?]|[ \t]*[\r\n])|[)\]]")
_CLOSING_TAG = re.compile(r"</\w+>")

Decode = Callable[[Sequence[int]], str]
"""Text of these tokens, special ones included, without any clean-up of spaces."""


def echoes(text: str, hint: str, *, question: str = "") -> list[tuple[int, int]]:
    """Where the text quotes the hint: (start, end) in characters, ascending; with introduction, marks and spaces.

    A quotation is a run of `MIN_WORDS` words of the hint, or of `MIN_INTRODUCED` that end a clause right after an
    introduction such as "Hint:". A run of which the question has more than half is none, nor one that touches what may
    be the answer: a fenced program, a box, an `<answer>`, or whatever the text ends with, closing tags apart.
    """
    spans = [(match.start(), match.end()) for match in _WORD.finditer(text)]
    said, hinted, asked = words(text), words(hint), words(question)
    found: list[tuple[int, int]] = []
    position = 0
    last = len(_WORD.findall(_without_closing_tags(text)))
    while position < len(said):
        length = _longest_run(said, position, hinted)
        if length < 2:
            position += 1
            continue
        start, end = spans[position][0], spans[position + length - 1][1]
        introduction = _INTRODUCTION.search(text, max(start - _INTRODUCTION_CHARS, 0), start)
        enough = min(MIN_INTRODUCED, len(hinted)) if introduction else MIN_WORDS
        quoted = length >= enough and 2 * _longest(said[position : position + length], asked) <= length
        whole = length >= min(MIN_WORDS, len(hinted)) or _CLAUSE_END.match(text, end) is not None
        if quoted and whole and position + length < last:
            before = _without_marks(text[: introduction.start() if introduction else start])
            after = _AFTER.match(text, end)
            span = len(before), after.end() if after else end
            if not any(span[0] < answer.end() and answer.start() < span[1] for answer in _ANSWERS.finditer(text)):
                found.append(span)
        position += length if quoted else 1
    return found


def without_echo(row: Row, *, question: str, decode: Decode, special: Collection[int]) -> Row:
    """The row without the tokens in which it quotes its hint; the others stay as they were sampled.

    Whole tokens are cut, and only those that lie inside the quotation. `special` are the ids of special tokens, which
    are no words of an answer where the completion ends with them. `completion`, which was rewarded, stays.
    """
    if row.hint is None:
        return row
    ids = row.completion_ids
    while ids and ids[-1] in special:
        ids = ids[:-1]
    kept: list[int] = []
    position = 0
    for start, end in echoes(decode(ids), row.hint, question=question):
        first, last = _tokens_within(ids, start, end, decode)
        if position <= first < last:
            kept += range(position, first)
            position = last
    kept += range(position, len(row.completion_ids))
    if len(kept) == len(row.completion_ids):
        return row
    return replace(
        row,
        completion_ids=[row.completion_ids[i] for i in kept],
        logprobs=None if row.logprobs is None else [row.logprobs[i] for i in kept],
    )


def _tokens_within(ids: Sequence[int], start: int, end: int, decode: Decode) -> tuple[int, int]:
    """The tokens whose text lies inside these characters, by bisection: texts of prefixes grow with their tokens."""
    first = _bisect(len(ids), lambda count: len(decode(ids[:count])) >= start)
    last = _bisect(len(ids), lambda count: len(decode(ids[:count])) > end) - 1
    return first, last


def _bisect(size: int, reached: Callable[[int], bool]) -> int:
    """The smallest number of tokens for which `reached` holds; one more than there are if it never does."""
    low, high = 0, size + 1
    while low < high:
        middle = (low + high) // 2
        if middle > size or reached(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _without_closing_tags(text: str) -> str:
    """The text up to the closing tags at its end; a pattern would look for them from every space and tag before."""
    text = text.rstrip()
    while (start := text.rfind("</")) >= 0 and _CLOSING_TAG.fullmatch(text, start):
        text = text[:start].rstrip()
    return text


def _without_marks(text: str) -> str:
    """The text up to the marks before a quotation, and those that begin its line; line ends and tags stay."""
    text = text.rstrip(" \t([" + _MARKS)
    line = text.rfind("\n") + 1
    return text[:line] if _LINE_BEGINNING.fullmatch(text, line) else text


def _longest_run(said: Sequence[str], position: int, hinted: Sequence[str]) -> int:
    """Words from `position` on that stand in the same order somewhere in the hint."""
    best = 0
    if said[position] not in hinted:
        return best
    for start, word in enumerate(hinted):
        if word != said[position]:
            continue
        length = 0
        while (
            position + length < len(said)
            and start + length < len(hinted)
            and said[position + length] == hinted[start + length]
        ):
            length += 1
        best = max(best, length)
    return best


def _longest(said: Sequence[str], hinted: Sequence[str]) -> int:
    return max(_longest_run(said, position, hinted) for position in range(len(said)))


def words(text: str) -> list[str]:
    """The words of a text by which quotations are found, in order."""
    return [word.casefold() for word in _WORD.findall(text)]
