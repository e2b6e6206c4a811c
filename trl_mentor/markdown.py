"""Foreign text in Markdown, which the page that shows it is not to read as Markdown, HTML or mathematics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trl_mentor.quoting import clean_text

_LITERAL = {ord(mark): f"&#{ord(mark)};" for mark in "&<>|[]()!*_`#\\~$"}
"""Character references, which stand for the characters themselves wherever they are."""


def literal(text: str) -> str:
    """The text in one line, for a cell of a table or a sentence; line breaks become `<br>`."""
    lines = clean_text(text).splitlines()
    return "<br>".join(" ".join(line.split()).translate(_LITERAL) for line in lines)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose cells are Markdown already."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
