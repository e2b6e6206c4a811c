r"""Answers that are several values (sets, intervals, points, lists, ratios) and the same values in a hint.

`(-3,5)`, `-3 < x < 5` and "between -3 and 5" have the same two values; whether an end belongs to an interval is not
compared, as the values alone are what a student needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_READ = 4_000
_MOST = 24
_PARTS = 24
_NUMBER = r"\d{1,15}(?:\.\d{1,15})?"
_VALUE = (
    rf"(?<![\w.])(?:(?:[+-]\s?)?(?:\\infty|(?:{_NUMBER})?\\sqrt\s?\{{\d{{1,9}}\}}|(?:{_NUMBER})?\\pi|"
    rf"\\frac\s?\{{[+-]?\d{{1,9}}\}}\s?\{{\d{{1,9}}\}}|{_NUMBER}(?:/\d{{1,9}})?))(?![\w.]\w|\d|/|\s?[-+*^]\s?[\w\\(])"
)
_NAMED = rf"(?:[A-Za-z](?:_\{{?\d\}}?)?\s?=\s?)?{_VALUE}"
_JOIN = r"\s?(?:[,;](?: ?(?:and|or)(?![a-z]))?|and|or|\\cup|\\text\{\s?(?:and|or)\s?\})\s?"
_LIST = re.compile(rf"(?<![\w.\\]){_NAMED}(?>{_JOIN}{_NAMED}){{1,{_PARTS}}}+")
_BETWEEN = re.compile(rf"\b(?:between|from|lies in|starts at)\s({_VALUE})\s(?:and|to|up to)\s({_VALUE})")
_CHAIN = re.compile(
    rf"({_VALUE})\s?(?:<|\\leq?(?![a-z])|\\lt(?![a-z])|\u2264|>|\\geq?(?![a-z])|\\gt(?![a-z])|\u2265)=?\s?[A-Za-z]\s?"
    rf"(?:<|\\leq?(?![a-z])|\\lt(?![a-z])|\u2264|>|\\geq?(?![a-z])|\\gt(?![a-z])|\u2265)=?\s?({_VALUE})"
)
_BELOW = r"(?:<=?|\\leq?(?![a-z])|\\lt(?![a-z])|\u2264|is at most|is less than)"
_ABOVE = r"(?:>=?|\\geq?(?![a-z])|\\gt(?![a-z])|\u2265|is at least|is greater than|is more than)"
_TWO_SIDES = re.compile(
    rf"[A-Za-z]\s?(?:{_BELOW}\s?({_VALUE})\s?(?:or|,|and|\\cup)\s?[A-Za-z]\s?{_ABOVE}\s?({_VALUE})"
    rf"|{_ABOVE}\s?({_VALUE})\s?(?:or|,|and|\\cup)\s?[A-Za-z]\s?{_BELOW}\s?({_VALUE}))"
)
_RATIO = re.compile(rf"(?<![\w.])({_NUMBER})\s?(?::|to|\\colon)\s?({_NUMBER})(?!\w|\.\d)")
_PLUS_MINUS = re.compile(rf"\\pm\s?({_VALUE})")
_BRACKETS = str.maketrans({"(": " ", ")": " ", "[": " ", "]": " ", "$": " "})


@dataclass(frozen=True, slots=True)
class Values:
    """Several values that stand together in a text."""

    parts: tuple[str, ...]
    ordered: bool
    text: str = ""
    """As they stand in the text."""


def answer_values(answer: str) -> Values | None:
    """The values of an answer that is nothing but several values; None for any other answer."""
    text = _plain(answer).strip(" .")
    text = re.sub(r"^[A-Za-z]\s?(?:\\in(?![a-z])|=)\s?", "", text)
    if sides := _PLUS_MINUS.fullmatch(text):
        return Values((f"-{sides[1]}", sides[1]), ordered=False)
    if ratio := _RATIO.fullmatch(text):
        return Values((ratio[1], ratio[2]), ordered=True)
    if (ends := _TWO_SIDES.fullmatch(text)) or (ends := _CHAIN.fullmatch(text)):
        return Values(tuple(filter(None, ends.groups())), ordered=False)
    if "\\cup" in text or (("(" in text or "[" in text) and "infty" in text):
        return Values(_finite(re.findall(_VALUE, text.translate(_BRACKETS))), ordered=False)
    ordered = text[:1] in "([" and text[-1:] in ")]"
    bare = re.sub(r"\\[{}]", " ", text).translate(_BRACKETS).strip()
    if not _LIST.fullmatch(bare):
        return None
    return Values(tuple(re.findall(_VALUE, bare)), ordered=ordered)


def values_in(text: str) -> Iterator[Values]:
    """Every group of values in a text, at most a bounded number of them."""
    plain = _plain(text[:_READ])
    count = 0
    for pattern in (_CHAIN, _TWO_SIDES, _BETWEEN, _RATIO):
        for found in pattern.finditer(plain):
            yield Values(_finite(filter(None, found.groups())), ordered=True, text=found[0])
            if (count := count + 1) > _MOST:
                return
    for found in _PLUS_MINUS.finditer(plain):
        yield Values((f"-{found[1]}", found[1]), ordered=False, text=found[0])
        if (count := count + 1) > _MOST:
            return
    open_text = re.sub(r"\\[{}]", " ", plain).translate(_BRACKETS)
    for found in _LIST.finditer(" ".join(open_text.split())):
        yield Values(_finite(re.findall(_VALUE, found[0])), ordered=True, text=found[0])
        if (count := count + 1) > _MOST:
            return


def _finite(parts: object) -> tuple[str, ...]:
    return tuple(part for part in parts if "infty" not in part)  # type: ignore[attr-defined]


def _plain(text: str) -> str:
    text = re.sub(r"\\(?:text|mathrm)\s?\{\s?(and|or|to)\s?\}", r" \1 ", text)
    text = re.sub(r"\\left(?![a-z])|\\right(?![a-z])|\\[!,;: ]|\$|\\\(|\\\)", "", text.replace("\\dfrac", "\\frac"))
    text = (
        text.replace("\u2212", "-").replace("\u221e", "\\infty").replace("\u222a", "\\cup").replace("\u00b1", "\\pm ")
    )
    text = re.sub(r"\b(?:both|either)\s", "", text)
    return re.sub(r"\s{1,8}", " ", text)
