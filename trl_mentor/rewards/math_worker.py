"""The process that reads and compares answers with math-verify: `math_pool` starts it, kills it and bounds its time.

A completion is read as TRL's `accuracy_reward` reads it. What that cannot read gets a second reading, of the same
one answer: plain text, and formulas that are written sloppily. Nothing else imports this module.
"""

from __future__ import annotations

import functools
import json
import re
from typing import Any

import sympy
from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify

from trl_mentor.rewards.math_names import name_of
from trl_mentor.rewards.reading import (
    cleaned,
    is_misread,
    is_numbers_apart,
    normal_text,
    plain_answer,
    stated_reference,
    without_prose,
)
from trl_mentor.rewards.words import has_words, is_two_letters, is_words
from trl_mentor.workers import serve

_CPU_SECONDS = 2.0
_MEMORY = 1024**3
_STRICT = LatexExtractionConfig(
    normalization_config=NormalizationConfig(units=True), boxed_match_priority=0, try_extract_without_anchor=False
)
"""The settings of TRL's `accuracy_reward`: a box counts before all else, and the last one of several."""


def main() -> None:
    """Answer until the input ends; the first question builds the parser's tables."""
    judge = Judge()
    warm_up = {"reference": "\\frac{1}{2}", "text": "\\boxed{\\frac{1}{3}}"}
    serve(judge.answer, warm_up=lambda: judge.answer(warm_up), cpu_seconds=_CPU_SECONDS, memory=_MEMORY)


class Judge:
    """Answers questions, and names the answer that it judged last: a name that takes too long costs no verdict."""

    def __init__(self) -> None:
        self._read: list[Any] = []
        self._written: str | None = None

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """A verdict; without a text whether the reference is readable; without a reference the last answer's name."""
        if "reference" not in question:
            return {"name": None if self._written is None else name_of(self._read, self._written)}
        try:
            stated, gold = read_reference(json.dumps(question["reference"]))
        except ValueError as error:
            return {"unreadable": str(error)}
        if "text" not in question:
            return {"compared": _equal(gold, [sympy.Integer(7)])}
        texts, readings = read_completion(question["text"])
        self._written = texts[0] if texts else None
        self._read = next((read for read in reversed(readings) if _is_read(read)), [])
        same = normal_text(stated) in map(normal_text, texts)
        return {"right": same or any(_equal(gold, read) for read in readings), "written": self._written}


@functools.lru_cache(maxsize=64)
def read_reference(encoded: str) -> tuple[str, list[Any]]:
    """The reference, given as JSON, as a text and as math-verify's list. Raises `ValueError` if it cannot be read."""
    stated, is_formula = stated_reference(json.loads(encoded))
    gold = _formula(cleaned(stated)) if is_formula else _with_unit(parse(stated, parsing_timeout=None))
    if not _is_read(gold) and not (is_formula and is_words(stated)):
        raise ValueError(f"math-verify finds no answer in {stated[:200]!r}")
    return (stated if is_formula else str(gold[-1])), gold


def read_completion(text: str) -> tuple[list[str], list[list[Any]]]:
    """The one answer, bare and in its words, and what it reads as: TRL's reading, and another one if it differs.

    Both are empty where there is no answer.
    """
    found = parse(text, [_STRICT], extraction_mode="first_match", parsing_timeout=None)
    if found:
        found = _with_unit(found)
        written = str(found[-1])
        if is_misread(written):
            return [written], [_formula(cleaned(written))]
        if _is_read(found) and cleaned(written) == written:
            return [written], [found]
        return [written], [found] if has_words(cleaned(written)) else [found, _formula(cleaned(written))]
    plain = plain_answer(text)
    if plain is None:
        return [], []
    formula = without_prose(cleaned(plain))
    if formula is None:
        is_answer = is_words(plain) or is_two_letters(plain)
        return [plain] * (is_answer and len(plain.split()) <= 4), []
    return [formula, plain], [_formula(cleaned(formula))]


def _formula(formula: str) -> list[Any]:
    r"""One formula, and nothing that merely stands in it: the 2 of `2k + 1, k \in Z` is not its answer."""
    formula = re.sub(r"\\?\$", "", formula)
    if is_numbers_apart(formula):
        return []
    return _with_unit(parse(f"${formula}$", [LatexExtractionConfig()], parsing_timeout=None))


def _with_unit(found: list[Any]) -> list[Any]:
    """Also with i as the imaginary unit: math-verify reads that of `4i`, unlike that of `4 i`, as a variable."""
    if not _is_read(found):
        return found
    unit = {symbol: sympy.I for symbol in getattr(found[0], "free_symbols", ()) if symbol.name == "i"}
    return [found[0], found[0].subs(unit), *found[1:]] if unit else found


def _is_read(found: list[Any]) -> bool:
    """Whether the parser made an expression of it; what it could not read comes back as a text."""
    return bool(found) and not isinstance(found[0], str)


def _equal(gold: list[Any], read: list[Any]) -> bool:
    return bool(read) and bool(verify(gold, read, timeout_seconds=None))
