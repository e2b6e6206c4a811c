"""What a hint says to a reader who looks past its spelling: other texts to put to the rules besides its own.

`t-w-e-l-v-e`, `1\u200b2`, fullwidth and superscript digits, `B\u0430rcelona` with a Cyrillic letter, `minus three`,
`1.8 million`, `three quarters` and, where a rank is asked for, `thirteenth`. All work is linear.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

from trl_mentor.answer_forms import SUPERSCRIPTS

_DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
_LOOKALIKE = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u04bb\u03bf\u0131"
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0391\u0392\u0395\u039f\u03a1\u03a4\u03a7",
    "aeopcyxijsdhoi" + "ABEKMHOPCTXABEOPTX",
)
_FREE_RAISED = re.compile(rf"(?<![\w)\]}}{SUPERSCRIPTS}])[{SUPERSCRIPTS}]+")
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:[ _'\u2019]\d{3})+(?![\d_])|(?<![\w.])\d+(?:_\d+)+(?!\w)")
_SCALED = re.compile(r"(?<![\d.,])(\d{1,9}(?:\.\d{1,9})?)[ -](thousand|million|billion)\b", re.IGNORECASE)
_THOUSANDS = re.compile(r"(?<=[$\u20ac\u00a3])(\d{1,6}(?:\.\d{1,3})?)[kK](?![\w$])")
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9}
_NEGATIVE = re.compile(r"\b(?:minus|negative)\s(?=\w)", re.IGNORECASE)
_PARTS = ["half|halves", "third", "quarter|fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]
_COUNTED = "|".join(("a", *_DIGITS[1:], r"\d{1,3}"))
_PART = re.compile(
    rf"\b({_COUNTED})[ -](?:" + "|".join(f"({part})s?" for part in _PARTS) + r")\b(?!\s(?:one|term|time|place)\b)",
    re.IGNORECASE,
)
_RANK = re.compile(
    r"\b(?:which|what|whose)\s(?:\w+\s)?(?:place|position|rank|floor|row|day|month|year|century|term)\b", re.IGNORECASE
)
_ODD_ORDINALS = dict(
    zip(
        ["first", "second", "third", "fifth", "eighth", "ninth", "twelfth"],
        ["one", "two", "three", "five", "eight", "nine", "twelve"],
        strict=True,
    )
)
_ORDINAL = re.compile(
    rf"\b(?:(\d{{1,6}})(?:st|nd|rd|th)|({'|'.join(_ODD_ORDINALS)})|(\w{{2,9}})(ie)?th)\b", re.IGNORECASE
)
_SPELLS = re.compile(r"\b(?:digits?|spell\w*|letters?)\b", re.IGNORECASE)
_DIGIT_WORD = re.compile(rf"\b(?:{'|'.join(_DIGITS)})\b", re.IGNORECASE)
_SPELLED_OUT = re.compile(r"(?<!\w)\w([-._/*~:|\u00b7 ])\w(?:\1\w)+(?!\w)")
_BROKEN_WORD = re.compile(r"(?<=[^\W\d_]{2})[-*_.|\u00b7](?=[^\W\d_]{2})")
_DIGIT_LIST = re.compile(r"(?<!\w)\d(?:(?:, ?|-| )?(?:and |then |and then )?\d)+(?!\w)")
_READ = 4_000


def readings(text: str, question: str) -> Iterator[str]:
    """The text in plain letters, digits and signs and, if it spells something out, the same with that joined."""
    plain = folded(text[:_READ])
    if _RANK.search(question[:_READ]):
        plain = _ORDINAL.sub(_cardinal, plain)
    yield plain
    if _BROKEN_WORD.search(plain):
        yield _BROKEN_WORD.sub("", plain)
    joined = _SPELLED_OUT.sub(lambda run: run[0].replace(run[1], ""), plain)
    if _SPELLS.search(plain):
        in_digits = _DIGIT_WORD.sub(lambda word: str(_DIGITS.index(word[0].lower())), plain)
        yield _DIGIT_LIST.sub(lambda run: "".join(filter(str.isdigit, run[0])), in_digits)
    if joined != plain:
        yield joined


@lru_cache(maxsize=256)  # every rule asks for those of the same texts, which are bounded
def folded(text: str) -> str:
    """The text with one way of writing for letters, digits, groups of digits, scales, signs and parts."""
    if not text.isascii():
        text = _FREE_RAISED.sub(lambda raised: unicodedata.normalize("NFKC", raised[0]), text)
        seen = (c for c in text if unicodedata.category(c) not in ("Cf", "Mn"))
        text = "".join(c if c in SUPERSCRIPTS else unicodedata.normalize("NFKC", c) for c in seen)
        text = text.translate(_LOOKALIKE)
    text = _GROUPED.sub(lambda group: re.sub(r"\D", "", group[0]), text)
    text = _SCALED.sub(lambda found: _number(Fraction(found[1]) * _SCALES[found[2].lower()]), text)
    text = _THOUSANDS.sub(lambda found: _number(Fraction(found[1]) * 1000), text)
    text = _PART.sub(_part, text)
    return _NEGATIVE.sub("-", text)


def _number(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{float(value)}"


def _part(found: re.Match[str]) -> str:
    count = found[1].lower()
    top = count if count.isdigit() else str(_DIGITS.index(count) if count in _DIGITS else 1)
    bottom = next(number for number, part in enumerate(found.groups()[1:], 2) if part)
    return f"{top}/{bottom}"


def _cardinal(found: re.Match[str]) -> str:
    number, odd, stem, ie = found.groups()
    if number or odd:
        return number or _ODD_ORDINALS[odd.lower()]
    return f"{stem}y" if ie else str(stem)
