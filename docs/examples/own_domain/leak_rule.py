"""The leak rule of the example domain: a hint for an SQL exercise holds no SQL."""

from __future__ import annotations

import re

from trl_mentor.records import CollapsedGroup

_SQL = re.compile(r"\b(?:SELECT|JOIN|GROUP BY|ORDER BY|HAVING)\b|\bselect [\w.*]+(?:, ?[\w.*()]+)* from\b")
_WORD = re.compile(r"\w+|[<>=!]+|\*")
_RUN = 4
"""Words and signs in a row that count as copied from the reference query."""


def no_sql(hint: str, group: CollapsedGroup) -> str | None:
    """Why the hint is refused, for the agent that repairs it, or None.

    The sentences are fixed: what they said about the reference query would reach an agent that must not know it.
    """
    if _SQL.search(hint):
        return "The hint holds SQL: describe the idea in everyday words."
    if _runs(hint) & (_runs(group.answer or "") - _runs(group.question)):
        return "The hint repeats a part of the reference query: describe the idea in everyday words."
    return None


def _runs(text: str) -> set[tuple[str, ...]]:
    words = [word.lower() for word in _WORD.findall(text)]
    return {tuple(words[at : at + _RUN]) for at in range(len(words) - _RUN + 1)}
