r"""Formal rules for hints: cheap and deterministic, asked before the judgment agent (section 3.2 of the paper).

They see verbatim answers, equal numbers and copied passages; paraphrases and equivalent formulas are for the judge.
Critiques are fixed sentences, so none can carry the answer to the repair agent. All work is linear in bounded text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trl_mentor.answer_forms import READ, SPELLED, answer_forms, spaced, tokenize
from trl_mentor.errors import ConfigError

EMPTY = "The hint is empty: write one or two sentences that point to the missing concept."
NOT_TEXT = "The hint holds control characters or chat markup: write plain text only."
TOO_LONG = "The hint is too long: keep the one idea that matters most and drop the rest."
GIVES_ANSWER = "The hint gives the final answer away: name the idea or the first move, and no result."
COPIES_SOLUTION = "The hint repeats a passage of the reference solution: describe the idea in other words."
ANNOUNCES_RESULT = "The hint boxes or announces a result: stop before any result."
WORKED_OUT = "The hint works the solution out: keep only the first idea and leave the steps to the student."
CODE = "The hint contains code: describe the approach in prose."


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PASSAGE = 10  # tokens in a row that count as copied
_DENSITY = 12  # characters per allowed word above which a hint is long even without blanks

_SAYS = _words(
    "= ≈ approx equiv is be equals equal becomes gives yields get obtain answer result boxed option choice"
) | {"choose", "pick", "是", "为"}
_BETWEEN = _words(": ( [ \" ' ` * _ to exactly simply just")
_GOES_ON = _words("+ - * / ^ ! _ ( nd rd st th a b i k n p q r t u x y z")
_COMMON_WORDS = _words("yes no true false none a") | SPELLED.keys()

_MARKUP = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]|<\|[^|<>\n]{1,40}\|>|</?(?:think|s)>")
_RESULT = re.compile(
    r"\\f?box|####|(?i:\banswer\s{0,2}(?:is|=|:|equals|(?:must|should|will)\sbe))[\s:*$\"'(]{0,4}"
    r"(?:[-+.]?\d|\\d?frac|\\sqrt|[B-H]\b|(?i:yes|no|true|false)\s?(?:[.,;!]|$))"
)
_STEP = re.compile(r"(?:^|\n)[ \t]{0,8}(?:\d{1,2}[.)]|[-*\u2022])[ \t]|\bstep\s{1,4}\d", re.IGNORECASE)
_BOUNDS = re.compile(r"_\{[^{}=]{0,20}=[^{}]{0,20}\}")
_RELATION = re.compile(r"(?<![<>!=:])=(?!=)|\\(?:implies|Rightarrow|iff)\b|[\u21d2\u27f9]")
_CODE_LINE = re.compile(
    r"(?m)^[ \t]*(?:def \w+\(|class \w+[(:]|import \w|from \w+ import|#include|(?:for|while|if|elif|else)\b.*[:{]$"
    r"|.*[;{]$|return\b.*[\[(;]|[\w.\[\]]+ ?[-+*/]?= ?\S)"
)


@dataclass(frozen=True, slots=True)
class HintLimits:
    """How much a hint may hold. Raises `ConfigError` for a limit below 1."""

    max_words: int = 80
    max_steps: int = 3
    """Numbered or bulleted steps, and likewise equations, that a hint may hold."""

    def __post_init__(self) -> None:
        for name, value in (("max_words", self.max_words), ("max_steps", self.max_steps)):
            if value < 1:
                raise ConfigError(f"{name} of a hint is {value}; expected at least 1: raise it")


def check_hint(hint: str, *, question: str, answer: str | None, limits: HintLimits) -> str | None:
    """What the formal rules hold against a hint, in sentences for the repair agent; None if nothing.

    `answer` may be a bare answer, a worked solution that ends in `#### 42` or `\\boxed{42}`, code, or None. What the
    question itself says is no leak, unless the hint states it as the result.
    """
    if not any(map(str.isalnum, hint)):
        return EMPTY
    start = hint[: limits.max_words * _DENSITY]
    said, known = tokenize(start), spaced(tokenize(question[:READ]))
    forms = list(answer_forms(answer or ""))
    fresh = {passage for passage in _passages(said) if spaced(passage) not in known}
    steps = max(len(_STEP.findall(start)), len(_RELATION.findall(_BOUNDS.sub("", start))))
    broken = {
        TOO_LONG: len(start) < len(hint) or len(hint.split()) > limits.max_words,
        NOT_TEXT: _MARKUP.search(start),
        GIVES_ANSWER: any(_gives(said, known, form) for form in forms if len(form) < _PASSAGE),
        COPIES_SOLUTION: any(fresh & _passages(form) for form in forms),
        ANNOUNCES_RESULT: _RESULT.search(start),
        WORKED_OUT: steps > limits.max_steps,
        CODE: "```" in start or len(_CODE_LINE.findall(start)) > 1,
    }
    return " ".join(critique for critique, found in broken.items() if found) or None


def _gives(hint: tuple[str, ...], question: str, form: tuple[str, ...]) -> bool:
    """Short answers and those that stand in the question count only where the hint states them as a result."""
    size = len(form)
    places = [at for at in range(len(hint)) if hint[at : at + size] == form or (SPELLED.get(hint[at]),) == form]
    if len("".join(form)) <= 2 or form[0] in _COMMON_WORDS or spaced(form) in question:
        return any(_states(hint, question, at, at + size) for at in places)
    return bool(places)


def _states(hint: tuple[str, ...], question: str, at: int, end: int) -> bool:
    """Whether `hint[at:end]` follows "=", "is", "answer:" and the like, in words that the question does not use."""
    following = hint[end : end + 1]
    if following and (following[0] in _GOES_ON or (hint[at] in _COMMON_WORDS and _is_word(following[0]))):
        return False
    verb = at - 1
    while verb > max(0, at - 7) and hint[verb] in _BETWEEN:
        verb -= 1
    if verb < 0 or hint[verb] not in _SAYS:
        return following == ("is",) and not {"answer", "correct"}.isdisjoint(hint[end + 1 : end + 4])
    left = max(0, verb - 1)
    while left > max(0, verb - 6) and not _is_word(hint[left - 1]):
        left -= 1
    return spaced(hint[left:end]) not in question


def _passages(tokens: tuple[str, ...]) -> set[tuple[str, ...]]:
    return {tokens[at : at + _PASSAGE] for at in range(len(tokens) - _PASSAGE + 1)}


def _is_word(token: str) -> bool:
    return len(token) > 1 and token.isalpha()
