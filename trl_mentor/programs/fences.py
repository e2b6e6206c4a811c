"""The program that a completion gives as its answer: its last fenced block."""

from __future__ import annotations

import re

_FENCE = re.compile(r"(?m)^[ \t]{0,12}(`{3,}|~{3,})([^\n]*)$")
_THOUGHT, _THINKS = "</think>", "<think>"


def program_of(completion: str) -> str | None:
    """The text of the last fenced block after the thinking; None if there is none or the thinking does not end.

    Fences are of backquotes or tildes, with or without a language; the last one may lack its end. Blank blocks are
    passed over, as a model that closes twice opens one. Lines are those of CR, LF or both.
    """
    text = completion.replace("\r\n", "\n").replace("\r", "\n")
    _, ended, after = text.rpartition(_THOUGHT)
    if not ended and _THINKS in text:
        return None
    found: str | None = None
    fence, begins, indent = "", 0, 0
    for match in _FENCE.finditer(after):
        mark, info = match[1], match[2].strip()
        if not fence:
            if "`" in info:  # code within a line, three backquotes on each side
                continue
            fence, begins, indent = mark, match.end() + 1, match.start(1) - match.start()
        elif mark[0] == fence[0] and len(mark) >= len(fence) and not info:
            block = after[begins : match.start()]
            found = _outdented(block, indent) if block.strip() else found
            fence = ""
    if fence and after[begins:].strip():
        found = _outdented(after[begins:], indent)
    return found


def _outdented(block: str, indent: int) -> str:
    """The block without the blanks by which its fence is set in, as in an item of a list."""
    return re.sub(rf"(?m)^[ \t]{{1,{indent}}}", "", block) if indent else block
