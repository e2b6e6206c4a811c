r"""Formulas between `$..$`, `$$..$$`, `\(..\)` or `\[..\]` as MathML, through latex2mathml.

The LaTeX was written by a model, so the converter is not trusted with it: the length of a formula bounds its time and
depth, what defines macros is refused, any error of it shows the source instead, and of its MathML only elements and
attributes that draw mathematics are taken. Text comes out as text, whatever it looks like.
"""

from __future__ import annotations

import html
import re
from functools import lru_cache
from typing import Any
from xml.etree.ElementTree import Element

try:
    from latex2mathml.converter import Converter
except ImportError:  # the extra `report`; without it the source is shown
    Converter = None  # type: ignore[assignment,misc]

Node = list[Any]
"""An element as `[tag, attributes, *children]`; a child is a node or a string."""

AVAILABLE = Converter is not None

MAX_LENGTH = 500
"""Characters of a formula. The slowest of this length that were found take 0.07 s; time grows with the square."""

MAX_DEPTH = 60
"""Elements inside each other."""

_FORMULA = re.compile(
    r"\$\$(?P<dollars>[^$]{1,500}?)\$\$"
    r"|\\\[(?P<brackets>.{1,500}?)\\\]"
    r"|\\\((?P<parentheses>.{1,500}?)\\\)"
    r"|(?<![\\$\w])\$(?P<dollar>(?=\S)[^$\n]{0,499}?[^$\s\\])\$(?!\d)",
    re.DOTALL,
)
"""A single dollar opens before and closes after something, so that prices are no formulas."""

_REFUSED = re.compile(
    r"\\(?:re|provide)?newcommand|\\def(?![a-z])|\\(?:re)?newenvironment|\\DeclareMathOperator"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""What defines macros, whose expansion has no bound, and characters that a reader has to see written out."""

TAGS = set(
    """
    math mrow mi mn mo mtext ms mspace mfrac msqrt mroot mstyle mpadded mphantom msub msup msubsup munder mover
    munderover mmultiscripts mprescripts none mtable mtr mtd menclose
    """.split()  # noqa: SIM905 - reads better than a column of quotes
)
ATTRIBUTES = set(
    """
    display displaystyle scriptlevel mathvariant stretchy symmetric fence separator form largeop movablelimits accent
    accentunder linethickness lspace rspace minsize maxsize width columnalign rowspacing columnspacing
    """.split()  # noqa: SIM905
)
_VALUE = re.compile(r"[\w.% +-]{1,40}")


class Formulas:
    """Finds formulas in texts and converts each once, until so many characters of LaTeX have been converted."""

    def __init__(self, budget: int, used: dict[str, Node]) -> None:
        """`used` gets the MathML of each formula that is found, by its source with its delimiters."""
        self._left = budget if AVAILABLE else 0
        self._used = used
        self._done: dict[tuple[str, bool], Node | None] = {}
        self.unconverted = 0
        """Formulas whose source is shown because there is no converter or its budget is spent."""

    def parts(self, text: str) -> list[str | dict[str, Any]]:
        """The text and its formulas in turn; a formula that cannot be converted stays text."""
        if "$" not in text and "\\" not in text:
            return [text]
        found: list[str | dict[str, Any]] = []
        begin = 0
        for match in _FORMULA.finditer(text):
            block = match.lastgroup in ("dollars", "brackets")
            node = self._convert(match[match.lastgroup or 0], block)
            if node is not None:
                found += [text[begin : match.start()], {"tex": match[0]}]
                self._used[match[0]] = node
                begin = match.end()
        return [part for part in (*found, text[begin:]) if part != ""] or [""]

    def _convert(self, tex: str, block: bool) -> Node | None:
        if (tex, block) not in self._done:
            if len(tex) > self._left:
                self.unconverted += 1
                return None
            self._left -= len(tex)
            self._done[tex, block] = mathml(tex, block=block)
        return self._done[tex, block]


def mathml(tex: str, *, block: bool = False) -> Node | None:
    """The formula as a tree of allowed MathML; None if it is refused or cannot be converted."""
    if Converter is None or len(tex) > MAX_LENGTH or _REFUSED.search(tex):
        return None
    try:
        return _node(Converter(display="block" if block else "inline").convert_to_element(tex), MAX_DEPTH)
    except Exception:  # latex2mathml raises whatever comes up, from StopIteration to KeyError, on what is no LaTeX
        return None


def _node(element: Element, depth: int) -> Node:
    """An element with what is allowed of it; one that is not allowed is a row of its children."""
    if not depth:
        raise RecursionError(f"more than {MAX_DEPTH} elements inside each other")
    given = element.attrib.items()
    attributes = {name: value for name, value in given if name in ATTRIBUTES and _VALUE.fullmatch(value)}
    text = [_unescaped(element.text)] if element.text else []
    tag = element.tag if element.tag in TAGS else "mrow"
    return [tag, attributes, *text, *(_node(child, depth - 1) for child in element)]


@lru_cache(maxsize=4096)
def _unescaped(text: str) -> str:
    """latex2mathml writes characters as references such as `&#x0002B;` and leaves them so in its tree."""
    return html.unescape(text)
