"""Hints that nobody gave: completions of plain questions that quote one nevertheless.

A policy that is trained on answers to hinted questions may learn to write the hint itself before it answers.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence

from trl_mentor.echo import MIN_WORDS, words

KEPT = 64
"""Hints that are looked for, the newest."""

_INTRODUCED = re.compile(
    r"(?:\s|</?\w+>|[>#*_\"'(\[\u201c\u2018])*"
    r"(?:(?:according\s+to|using|following)\s+(?:the|this|a|given|\s)*hint\b"
    r"|(?:(?:the|this|a|given)\s+)*hint\b[*_\"')\]\u201d\u2019]*\s*(?::|(?:says|reads|states|tells|suggests)\b))",
    re.IGNORECASE,
)
"""A beginning that introduces a hint. The bare word, as in "A hint of salt", does not."""

Shingle = tuple[str, ...]
"""`MIN_WORDS` words in a row."""


class UnhintedEchoes:
    """Counts completions that quote one of the newest hints, or begin as if they quoted some.

    Every rank keeps the same hints and looks at its own completions. The cost is linear in their words.
    """

    def __init__(self) -> None:
        self._kept: deque[tuple[tuple[str, str], frozenset[Shingle]]] = deque(maxlen=KEPT)
        self._wanted: frozenset[Shingle] = frozenset()

    @property
    def begun(self) -> bool:
        """Whether a hint was kept; before that nobody can quote one."""
        return bool(self._kept)

    def state(self) -> list[list[str]]:
        """What is kept as plain JSON: pairs of a hint and its question."""
        return [list(pair) for pair, _ in self._kept]

    def restore(self, saved: Iterable[Sequence[str]]) -> None:
        """Keep what `state` returned, and nothing else."""
        self._kept.clear()
        self.keep((hint, question) for hint, question in saved)

    def keep(self, hints: Iterable[tuple[str, str]]) -> None:
        """Look for these from now on: hints and the questions that they were given for, oldest first."""
        for hint, question in hints:
            if all(pair != (hint, question) for pair, _ in self._kept):
                shingles = _shingles(words(hint)) - _shingles(words(question))
                self._kept.append(((hint, question), shingles))
        self._wanted = frozenset().union(*(shingles for _, shingles in self._kept))

    def count(self, completions: Iterable[str], questions: Iterable[str]) -> int:
        """How many of the completions, of these questions, quote a hint. What a question says itself is no hint."""
        return sum(self._quotes(text, question) for text, question in zip(completions, questions, strict=True))

    def _quotes(self, text: str, question: str) -> bool:
        if _INTRODUCED.match(text) and "hint" not in words(question):
            return True
        if not self._wanted:
            return False
        said = words(text)
        found = {
            shingle for shingle in zip(*(said[i:] for i in range(MIN_WORDS)), strict=False) if shingle in self._wanted
        }
        return bool(found - _shingles(words(question))) if found else False


def _shingles(said: Sequence[str]) -> frozenset[Shingle]:
    return frozenset(zip(*(said[i:] for i in range(MIN_WORDS)), strict=False))
