"""Whether a number in a hint counts what the question asks for."""

from __future__ import annotations

import re

from trl_mentor.answer_forms import spaced

_HOW_MANY = re.compile(
    r" how (?:many|long)(?: [a-z]{2,15})?? ([a-z]{2,15}s|people|children) | in ([a-z]{3,15}s) [?.] "
)
_ASKED = 10_000  # characters of a question in which it is looked for


def counts_asked(hint: tuple[str, ...], question: str, at: int, end: int) -> bool:
    """Whether `hint[at:end]` counts what the question asks for: "5 apples", "5 red apples" for "how many apples"."""
    nouns = {noun for asked in _HOW_MANY.findall(question[:_ASKED]) for noun in asked if noun}
    said = [noun for noun in hint[end : end + 2] if noun in nouns]
    return bool(said) and spaced((*hint[at:end], said[0])) not in question
