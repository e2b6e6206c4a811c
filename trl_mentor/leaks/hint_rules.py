r"""Formal rules for hints: cheap and deterministic, asked before the judgment agent (section 3.2 of the paper).

They see verbatim answers, equal numbers in digits or words, and copied passages; paraphrases and equivalent formulas
are for the judge. Critiques are fixed sentences, so none can carry the answer to the repair agent. All work is linear
in bounded text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from trl_mentor.answer_forms import READ, WORDS, answer_forms, question_words, spaced, tokenize
from trl_mentor.errors import ConfigError
from trl_mentor.leaks.asked import counts_asked
from trl_mentor.leaks.plain_text import declines, is_plain

EMPTY = "The hint is empty: write one or two sentences that point to the missing concept."
NOT_TEXT = "The hint holds control characters or chat markup: write plain text only."
DECLINES = "The hint declines to help: say in one or two sentences what idea is missing or what to try first."
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
    "= ≈ ≡ approx equiv is be equals equal becomes gives yields get obtain answer result boxed option choice choose"
    " pick leaves leaving makes comes works turns simplifies reduces leads total totals totaling sums amounts"
    " evaluates 是 为"
)
_HAS = _words("has have")
_MEASURES = _words("length size value remainder sum total area probability degree")  # "has length 4"
_IT_IS = {("it", "'", "s"), ("that", "'", "s"), ("answer", "'", "s")}
_BETWEEN = _words(": ( [ \" ' ` * _ to as exactly simply just therefore thus")
_ENDS = _words("left end ends ended finish wind")
_SO = _words("so hence thus therefore")
_SUMS_UP = _words("left altogether total")  # "8 left", but not "8 to the left"
_PLACE = _words("the to on from its")
_LABELS = _words(
    "step case part equation theorem lemma figure exercise problem section page base mod pmod modulo year"
)
_FACTOR = _words("/ ^ ! nd rd st th b i k n p q r t u x y z pi sqrt")
_GOES_ON = _FACTOR | _words("+ - * _ ( a more less fewer hundred thousand million")
_COMMON_WORDS = _words("yes no true false none a") | WORDS.keys()

_WORD_FOR: dict[tuple[str, ...], str] = {(digit,): word for word, digit in WORDS.items()}

_BOX = re.compile(r"\\f?box|####")
_RESULT = re.compile(
    r" (?:answer|solution|final result) (?:[=:]|(?:(?:to|of|for|in) "
    r"(?:(?!(?:if|that|when|where|whether|which|whose|once|=) )[^ .;]+ ){1,16}?)?"
    r"(?:is|equals|(?:must|should|will) be)) "
    r"(?:(?:[-+:=*\"'`(]|equal|to|exactly|simply|just|therefore|thus|approximately|about) ){0,4}"
    r"(?:-?\d|frac |sqrt |[B-H] |(?:zero|one|yes|no|true|false) (?:[.,;!] |$))"
)
_STEP = re.compile(r"(?:^|\n)[ \t]{0,8}(?:\d{1,2}[.)]|[-*\u2022])[ \t]|\bstep\s{1,4}\d", re.IGNORECASE)
_BOUNDS = re.compile(r"_\{[^{}=]{0,20}=[^{}]{0,20}\}")
_ETC = r"\s?(?:\.\.|\u2026|\\[lc]?dots)"
_DEFINITION = r"[A-Za-z]\w{0,3}(?:_\{?\w{1,3}\}?)?\s?=\s?[^=,$.;\n]{1,40}+"
_DEFINITIONS = re.compile(
    rf"\b(?:let|write|set|put|define|denote|substitute)\s\$?{_DEFINITION}(?:,\s?(?:\.\.\.,?\s?)?{_DEFINITION}){{1,8}}+(?!=)",
    re.IGNORECASE,
)
_RELATION = re.compile(rf"(?<![<>!=:])=(?!=|{_ETC})|" r"\\(?:implies|Rightarrow|iff)\b|[\u21d2\u27f9]")
_CODE_LINE = re.compile(
    r"(?m)^[ \t]*+(?:def \w+\(|class \w+[(:]|import \w|from \w+ import|#include|(?:for|while|if|elif|else)\b.*[:{]$"
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
    start = hint[: min(limits.max_words * _DENSITY, READ)]
    said, forms = tokenize(start), answer_forms(answer or "")
    copied = _passages(said) & {passage for form in forms for passage in _passages(form)}
    relations = _RELATION.findall(_DEFINITIONS.sub("=", _BOUNDS.sub("", start)))
    steps = max(len(_STEP.findall(start)), len(relations))
    broken = {
        TOO_LONG: len(start) < len(hint) or len(hint.split()) > limits.max_words,
        NOT_TEXT: not is_plain(start),
        DECLINES: declines(start),
        GIVES_ANSWER: _gives_any(said, question, forms),
        COPIES_SOLUTION: any(spaced(passage) not in question_words(question) for passage in copied),
        ANNOUNCES_RESULT: _BOX.search(start) or _RESULT.search(spaced(said)),
        WORKED_OUT: steps > limits.max_steps,
        CODE: "```" in start or len(_CODE_LINE.findall(start)) > 1,
    }
    return " ".join(critique for critique, found in broken.items() if found) or None


def says_answer(text: str, *, question: str, answer: str | None) -> bool:
    """Whether the text holds the answer, in any of its forms, where that is a leak."""
    return _gives_any(tokenize(text[:READ]), question, answer_forms(answer or ""))


def gives_away(text: str, *, question: str, answer: str | None) -> bool:
    """Whether a phrase of a diagnosis is the answer, holds it, copies the solution or announces a result."""
    critique = check_hint(text, question=question, answer=answer, limits=HintLimits()) or ""
    leaks = any(rule in critique for rule in (GIVES_ANSWER, COPIES_SOLUTION, ANNOUNCES_RESULT))
    return leaks or tokenize(text[:READ]) in set(answer_forms(answer or ""))


def _gives_any(hint: tuple[str, ...], question: str, forms: Iterable[tuple[str, ...]]) -> bool:
    """Whether one of the forms is given away; the question is read only if the hint holds one, which few hints do."""
    held = [(form, places) for form in forms if len(form) < _PASSAGE and (places := _places(hint, form))]
    return any(_gives(hint, question_words(question), form, places) for form, places in held)


def _places(hint: tuple[str, ...], form: tuple[str, ...]) -> list[int]:
    size, word = len(form), _WORD_FOR.get(form)
    if form[0] not in hint and word not in hint:
        return []
    return [at for at in range(len(hint)) if hint[at : at + size] == form or hint[at] == word]


def _gives(hint: tuple[str, ...], question: str, form: tuple[str, ...], places: list[int]) -> bool:
    """Short answers and those that stand in the question count only where the hint states them as a result.

    Short are single digits, texts of up to two characters and common words. A longer number that the question lacks
    counts wherever it is a number of its own, even as a known fact ("the 12 months of a year").
    """
    size, text = len(form), "".join(form)
    short = len(text) <= (1 if text.isdecimal() else 2) or form[0] in _COMMON_WORDS
    if not short and spaced(form) not in question:
        number = size == 1 and text[-1].isdecimal()
        return not all(number and _belongs(hint, at) for at in places)
    return any(_states(hint, question, at, at + size) for at in places)


def _belongs(hint: tuple[str, ...], at: int) -> bool:
    """Whether the number is an exponent, index, ordinal, label ("step 12") or factor ("12x", "12!")."""
    before, following = hint[max(0, at - 2) : at], "".join(hint[at + 1 : at + 2])
    last = "".join(before[-2:-1] if before[-1:] in (("(",), ("#",)) else before[-1:])
    return following in _FACTOR or last in _LABELS or last == "^" or (last == "_" != following)


def _states(hint: tuple[str, ...], question: str, at: int, end: int) -> bool:
    """Whether `hint[at:end]` follows "=", "is", "answer:" and the like, in words that the question does not use."""
    following = hint[end : end + 1]
    confirmed = hint[end : end + 1] == ("is",) and not {"answer", "correct"}.isdisjoint(hint[end + 1 : end + 4])
    if confirmed:
        return True
    if counts_asked(hint, question, at, end):
        return True
    goes_on = following and following[0] in _GOES_ON and hint[end : end + 2] != ("(", "mod")
    if goes_on or (following and hint[at] in _COMMON_WORDS and _is_word(following[0])):
        return False
    verb = at - 1
    while verb > max(0, at - 7) and hint[verb] in _BETWEEN:
        verb -= 1
    verb -= hint[max(0, verb - 1) : verb + 1] == ("total", "of") or hint[verb] == "out"
    measures = hint[max(0, verb)] in _MEASURES and hint[max(0, verb - 1)] in _SAYS | _HAS
    contracted = hint[max(0, verb - 2) : verb + 1] in _IT_IS
    counts = hint[max(0, verb) : at] == ("are", "exactly")
    remains = hint[max(0, verb)] == "with" and not _ENDS.isdisjoint(hint[max(0, verb - 2) : verb])
    concludes = following in ((), (".",), ("!",)) and not _SO.isdisjoint(hint[max(0, at - 2) : at])
    if verb < 0 or not (hint[verb] in _SAYS or measures or contracted or counts or remains or concludes):
        return _sums_up(hint, question, at, end)
    left = max(0, verb - 1)
    while left > max(0, verb - 6) and not _is_word(hint[left - 1]):
        left -= 1
    return spaced(hint[left:end]) not in question


def _sums_up(hint: tuple[str, ...], question: str, at: int, end: int) -> bool:
    """Whether `hint[at:end]` goes on, in words that the question does not use, with "left", "in total" or the like."""
    marks = [mark for mark in range(end, min(end + 3, len(hint))) if hint[mark] in _SUMS_UP]
    return any(hint[mark - 1] not in _PLACE and spaced(hint[at : mark + 1]) not in question for mark in marks)


def _passages(tokens: tuple[str, ...]) -> set[tuple[str, ...]]:
    return {tokens[at : at + _PASSAGE] for at in range(len(tokens) - _PASSAGE + 1)}


def _is_word(token: str) -> bool:
    return len(token) > 1 and token.isalpha()
