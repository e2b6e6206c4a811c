r"""Texts as tokens that can be compared, and the token sequences that give an answer away.

`$\frac{1}{2}$`, `1/2` and `0.5` are the same token, and so are `seventy-two` and `72`.
All work is linear in the text, of which a bounded part is read.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

READ = 50_000
"""Characters that are read of a question and, from each end, of an answer."""

_GROUPS = 64  # that are worked on at once, each by a thread of its own
_DIGITS = 40  # longer numbers are compared as text
_SHORT = 1_000  # characters of texts whose tokens are kept: as many as a hint has
_SEVERAL = 16  # answers that are looked at one by one

_DIGIT_WORDS = "one two three four five six seven eight nine"
_UNITS = f"{_DIGIT_WORDS} ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORTH = dict(zip(f"{_UNITS} {_TENS}".split(), (*range(1, 20), *range(20, 100, 10)), strict=True))
_SCALES = {"dozen": 12, "hundred": 100, "thousand": 1000}
WORDS = {"zero": "0", "one": "1"}
"""Number words that stay words, because they often are no numbers ("one of them"), and the tokens of their values."""

_NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
_CJK = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_SMALL = f"(?:(?:{_TENS})(?:[-\\s](?:{_DIGIT_WORDS}))?|{_UNITS})".replace(" ", "|")
_HUNDREDS = rf"(?:(?:{_SMALL}|a)[-\s])?hundred(?:[-\s](?:and\s)?(?:{_SMALL}))?|{_SMALL}"
_SPELLED = (
    rf"(?:(?:{_SMALL}|a)[-\s])?dozen|(?:{_HUNDREDS}|a)[-\s]thousand(?:[-\s](?:and\s)?(?:{_HUNDREDS}))?|{_HUNDREDS}"
)
_TOKEN = re.compile(
    rf"\\[dtc]?frac\s?\{{\s?(?P<top>-?{_NUMBER})\s?\}}\s?\{{\s?(?P<bottom>{_NUMBER})\s?\}}"
    r"|\\[dtc]?frac\s?(?P<top_digit>\d)(?P<bottom_digit>\d)"
    rf"|(?P<number>{_NUMBER})(?:\s?/\s?(?P<over>{_NUMBER}))?"
    rf"|(?P<spelled>(?i:{_SPELLED}))(?![^\W\d_])"
    rf"|\\?[^\W\d_{_CJK}]+|\\\W|\*\*|\S"
)
_SPELLED_NUMBER = re.compile(rf"(?<![^\W\d_])(?i:zero|{_SPELLED})(?![^\W\d_])")
_LAYOUT = {"{", "}", "$", "**", "\\(", "\\)", "\\[", "\\]", "\\{", "\\}", "\\;", "\\:", "\\!", "\\$", "\\\\"}
_LAYOUT |= {"\\left", "\\right", "\\text", "\\textbf", "\\mathrm", "\\mathbf"}
_SAME = {"√": "sqrt", "π": "pi", "∞": "infty", "·": "*", "\u00d7": "*", "cdot": "*", "times": "*", "dfrac": "frac"}
_PLAIN = str.maketrans("\u2044\u2212\u2018\u2019\u201c\u201d", "/-''\"\"")
SUPERSCRIPTS = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
_RAISED = re.compile(f"[{SUPERSCRIPTS}]+")
_BOXED = re.compile(r"\\boxed\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*+\})*+\})*+)")
_UNIT = re.compile(r"[^\W\d_]{1,12}|[/^\u00b0]|-?[23]")
_VARIABLES = frozenset("abcdefijknpqrtuvwxyz") | {"pi", "sqrt", "ln", "log"}
_TERM_END = re.compile(r"[)\]]|[^\W\d_]|.*\d", re.DOTALL)


@lru_cache(maxsize=_GROUPS)  # every rule asks for those of the same answer
def answer_forms(answer: str) -> tuple[tuple[str, ...], ...]:
    """The token sequences that give an answer away: the whole, its final result, and other ways to write a number."""
    return tuple(dict.fromkeys(_forms(answer)))


@lru_cache(maxsize=2 * _GROUPS)  # as it stands, and with other spellings
def question_words(question: str) -> str:
    """The tokens of what is read of a question, for `spaced(part) in question_words(question)`."""
    return spaced(tokenize(question[:READ]))


def _forms(answer: str) -> Iterator[tuple[str, ...]]:
    text = _bounded(answer)
    parts = (part.strip(" \t\n*$\"'`").rstrip(" .,;:?") for part in (text, *final_results(answer)))
    for bare in dict.fromkeys(parts):
        tokens = tokenize(bare[1:-1] if bare[:1] + bare[-1:] in ("()", "[]") else bare)
        if not tokens:
            continue
        yield tokens
        value = _fraction(WORDS.get(tokens[0], tokens[0]))
        if value is not None and tokens[1:] in ((), ("%",)):
            percent = value if tokens[1:] else value * 100
            yield from ((str(percent), "%"), (str(percent / 100),))
        if value is not None and (_is_unit(tokens[1:]) or (len(tokens) <= 3 and "".join(tokens[1:]).isalpha())):
            yield (str(value),)
        yield from _one_number(tokens)


def final_results(answer: str) -> list[str]:
    """What an answer comes to: the box, what follows `####` or the last "=", each line of a list of numbers.

    An answer of several lines that all are numbers is several answers.
    """
    text = _bounded(answer)
    boxed = _BOXED.match(text, max(0, text.rfind("\\boxed{")))
    final = text.rpartition("####")[2].strip()
    lines = text.splitlines()[:_SEVERAL]
    several = lines if len(lines) > 1 and all(_fraction(line.strip()) is not None for line in lines) else ()
    after_equals = "" if "\n" in final else final.rpartition("=")[2]
    return [part for part in (boxed[1] if boxed else "", final, after_equals, *several) if part.strip()]


def _bounded(answer: str) -> str:
    return answer if len(answer) <= 2 * READ else f"{answer[:READ]}\n{answer[-READ:]}"


def _one_number(tokens: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The number of a short answer in words that holds just one, such as `after 25 hours`."""
    if not 1 < len(tokens) <= 6:
        return
    numbers = [token for token in tokens if _fraction(token) is not None]
    words = [token for token in tokens if token.isalpha() and len(token) > 1]
    if len(numbers) == 1 and len(words) == len(tokens) - 1 and _VARIABLES.isdisjoint(tokens):
        yield (str(_fraction(numbers[0])),)


def _is_unit(tokens: tuple[str, ...]) -> bool:
    """Whether the tokens after a number are a unit of several tokens, such as `km / h`, `m ^ 2` or `^ circ`."""
    if not 1 < len(tokens) <= 6 or not _VARIABLES.isdisjoint(tokens):
        return False
    return (tokens[0].isalpha() or tokens[:2] == ("^", "circ")) and all(map(_UNIT.fullmatch, tokens))


def tokenize(text: str) -> tuple[str, ...]:
    """Words, symbols, and numbers by value, without layout; words of two letters or more are casefolded."""
    return _tokens_again(text) if len(text) <= _SHORT else _tokens(text)


def _tokens(text: str) -> tuple[str, ...]:
    if not text.isascii():
        # Character by character: normalising a whole string takes quadratic time on runs of combining marks.
        lowered = _RAISED.sub(lambda raised: f"^{raised[0]}", text.translate(_PLAIN))
        visible = (c for c in lowered if unicodedata.category(c) != "Cf")
        text = "".join(unicodedata.normalize("NFKC", c) for c in visible).translate(_PLAIN)
    tokens: list[str] = []
    for match in _TOKEN.finditer(text.replace("{,}", ",").replace("\\,", "")):
        token = _canonical(match)
        if tokens[-1:] == ["-"] and _fraction(token) is not None and not _TERM_END.fullmatch("".join(tokens[-2:-1])):
            tokens[-1] = f"-{token}".removeprefix("--")
        elif token not in _LAYOUT:
            tokens.append(token)
    return tuple(tokens)


_tokens_again = lru_cache(maxsize=4 * _GROUPS)(_tokens)  # every rule asks for those of the same hint


def in_digits(text: str) -> str:
    """The text with its number words as digits."""
    return _SPELLED_NUMBER.sub(lambda found: WORDS.get(found[0].casefold(), str(_worth(found[0].casefold()))), text)


def spaced(tokens: tuple[str, ...]) -> str:
    """The tokens with blanks between and around them, so that `spaced(part) in spaced(whole)` finds whole tokens."""
    return f" {' '.join(tokens)} "


def _canonical(match: re.Match[str]) -> str:
    if match.lastgroup is None:
        name = match[0] if match[0] in _LAYOUT else match[0].removeprefix("\\")
        name = _SAME.get(name, name)
        return name if len(name) == 1 else name.casefold()
    if match["spelled"]:
        name = match[0].casefold()
        return name if name in WORDS else str(_worth(name))
    top = match["top"] or match["top_digit"] or match["number"]
    value = _fraction(top, match["bottom"] or match["bottom_digit"] or match["over"] or "1")
    return match[0].replace(" ", "") if value is None else str(value)


def _worth(spelled: str) -> int:
    """The value of number words below a million: 72 for `seventy-two`, 12 for `a dozen`."""
    thousands, value = 0, 0
    for word in re.split(r"[-\s]", spelled):
        value = max(value, 1) * _SCALES[word] if word in _SCALES else value + _WORTH.get(word, 0)
        if word == "thousand":
            thousands, value = value, 0
    return thousands + value


def _fraction(top: str, bottom: str = "1") -> Fraction | None:
    """The exact value, or None for what is no number, too long, or divided by zero."""
    if not top[-1:].isdigit() or len(top) + len(bottom) > _DIGITS:
        return None
    try:
        value = Fraction(top.replace(",", ""))
        return value if bottom == "1" else value / Fraction(bottom.replace(",", ""))
    except (ValueError, ZeroDivisionError):
        return None
