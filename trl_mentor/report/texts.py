"""Texts of a journal on their way into the page: cut where they are too long, with their formulas as MathML.

A shown text is a string or, where it has parts, a list of strings, formulas `{"tex"}` and gaps `{"gap"}` with the
number of characters that were left out. The page makes DOM nodes of these parts and never parses a text as markup.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trl_mentor.report.formulas import Formulas

LIMITS = (16_000, 8_000, 4_000, 2_000, 1_000, 500, 200)
"""What a text may be cut to; a run gets the first at which all its texts fit into the page."""

Shown = str | list[str | dict[str, Any]]


def lengths(texts: Iterable[str]) -> tuple[int, ...]:
    """Characters of the texts under each of `LIMITS`."""
    found = [len(text) for text in texts]
    return tuple(sum(min(length, limit) for length in found) for limit in LIMITS)


def shown(text: str, limit: int, formulas: Formulas) -> Shown:
    """A text as the page gets it, with a gap before its last third if it is longer than `limit`."""
    if len(text) <= limit:
        parts = formulas.parts(text)
    else:
        tail = limit // 3
        gap = {"gap": len(text) - limit}
        parts = [*formulas.parts(text[: limit - tail]), gap, *formulas.parts(text[len(text) - tail :])]
    return parts[0] if len(parts) == 1 and isinstance(parts[0], str) else parts
