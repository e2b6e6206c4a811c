"""Formulas in words and signs as LaTeX: "divide 120 by 5", "square of 32", superscripts, `lcm(3, 4)`, `(5 - 1)!`."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from math import gcd, lcm

from trl_mentor.answer_forms import SUPERSCRIPTS, in_digits
from trl_mentor.leaks.readings import folded

_READ = 4_000
_N = r"\$?(\d{1,12}(?:[./]\d{1,9})?)(?: (?!and )[a-z]{1,12}(?= (?:to|and|from|by|with) ))?"


def _factorial_of_sum(found: re.Match[str]) -> str:
    one, two = int(found[1]), int(found[3])
    return f"{max(0, one + two if found[2] == '+' else one - two)}!"


def _common(found: re.Match[str]) -> str:
    numbers = map(int, found[2].split(","))
    return str(lcm(*numbers) if found[1].lower() == "lcm" else gcd(*numbers))


_IS, _FUNCTION, _ARTICLE = (
    r"(?<=[a-z])['\u2019]s\b",
    r"(?<![\\\w])(sin|cos|tan|ln|log|pi|exp)(?![a-z])",
    r"(?<=[\s.])(?:a|i)(?= [a-z\d\\$])",
)
_SUBSTITUTES: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile(pattern, re.IGNORECASE), by)
    for pattern, by in (
        (r"\\(?:text|mathrm|textbf|mathbf|mbox|operatorname)\s?\{[^{}]{0,40}\}(?:\s?\^\{?[23]\}?)?", " "),
        (r"\\left(?![a-z])|\\right(?![a-z])|\\displaystyle|\\[!,;: ]|\\\$", ""),
        (r"\\[dt]frac(?![a-z])", r"\\frac"),
        (r"\\[dt]binom(?![a-z])", r"\\binom"),
        (r"\\(?:approx|equiv|implies|Rightarrow|iff|to)(?![a-z])|[\u2248\u2261\u21d2\u2192]", "="),
        (f"[{SUPERSCRIPTS}]{{1,4}}", lambda raised: f"^{{{unicodedata.normalize('NFKC', raised[0])}}}"),
        (r"\b(\d+) (?:choose|over) (\d+)\b(?! of)", r"\\binom{\1}{\2}"),
        (r"\b(?:the )?square root of (\d+)\b|(?<![\\\w])sqrt\s?\(?(\d+)\)?", r"\\sqrt{\1\2}"),
        (r"\bhalf (?:of )?(?=\d)", "1/2*"),
        (r"\b(?:twice|double) (?=\d)", "2*"),
        (r"\b(\d+/\d+) of (?:the )?(?=\d)", r"(\1)*"),
        (r"(\d)\s?(?:per ?cent|(?:per|in a|out of a|out of one|out of) (?:hundred|100))\b", r"\1%"),
        (r"(\d)\\?% of (?=\d)", r"\1/100*"),
        (r"\b(\d+) (?:out of|of every|in every) (?:the )?(\d+)\b", r"\1/\2"),
        (r"\bproduct of (\d+) and (\d+)\b", r"\1*\2"),
        (r"\bsum of (\d+) and (\d+)\b", r"\1+\2"),
        (r"\b(?:difference (?:of|between)) (\d+) and (\d+)\b", r"\1-\2"),
        (_IS, " is"),
        (r"\b1 in (\d{1,9})\b(?! (?:sec|min|hour|day|week|month|year))", r"1/\1"),
        (rf"\badd {_N} (?:to|and) {_N}", r"compute \1+\2"),
        (rf"\bsubtract {_N} from {_N}", r"compute \2-\1"),
        (rf"\bdivide {_N} by {_N}", r"compute \1/\2"),
        (rf"\bmultiply {_N} (?:by|with|and) {_N}", r"compute \1*\2"),
        (r"(?<=\d)(?:,| and|, and)(?: then)? (?:multiply )?by (?=\d)", "*"),
        (r"\b(\d{1,9}) more than (?=\d)", r"\1+"),
        (r"\b(\d{1,9}) (?:less|fewer) than (\d{1,9})\b", r"\2-\1"),
        (r"\bsquare of (\d{1,9})\b", r"\1^2"),
        (r"(\d) factorial\b", r"\1!"),
        (r"(\d) (?:times|multiplied by) (?=\d)", r"\1*"),
        (r"(\d) divided by (?=\d)", r"\1/"),
        (r"(\d) plus (?=\d)", r"\1+"),
        (r"(\d) squared\b", r"\1^2"),
        (r"(\d) cubed\b", r"\1^3"),
        (r"(\d) to the (?:power (?:of )?)?(?=\d)", r"\1^"),
        (r"\\times(?![a-z])|\\cdot(?![a-z])|\*(?!\*)|[\u00d7\u00b7\u22c5]", r"\\cdot "),
        (r"\*\*", "^"),
        (r"\\div(?![a-z])|\u00f7", "/"),
        (r"\u221a\s?(\d+)", r"\\sqrt{\1}"),
        (r"\u221a", r"\\sqrt"),
        (r"\u03c0", r"\\pi "),
        (r"\u221e", r"\\infty "),
        (r"\u00b1", r"\\pm "),
        (r"\u2212", "-"),
        (r"\((\d{1,2}) ?([-+]) ?(\d{1,2})\) ?!", _factorial_of_sum),
        (r"\\?\b(lcm|gcd) ?\((\d{1,6}(?:, ?\d{1,6}){1,5})\)", _common),
        (r"\^\{?\\circ\}?|\u00b0|\\degree\b", ""),
        (_FUNCTION, r"\\\1"),
        (_ARTICLE, "~"),
    )
]
_IN_WORDS = [(pattern, by) for pattern, by in _SUBSTITUTES if pattern.pattern in (_IS, _FUNCTION, _ARTICLE)]
"""All that can change a text of nothing but words, as most hints are: the others need what `_NO_WORDS` finds."""
_NO_WORDS = re.compile(r"[\d\\*]|[^\x00-\x7f]")


def rewritten(text: str) -> str:
    """The text with number words as digits, and words and signs for operations as LaTeX."""
    return _rewritten(text[:_READ])


@lru_cache(maxsize=256)  # an answer is read for every hint, and a hint several times
def _rewritten(text: str) -> str:
    text = in_digits(folded(text))
    for pattern, by in _SUBSTITUTES if _NO_WORDS.search(text) else _IN_WORDS:
        text = pattern.sub(by, text)
    return text
