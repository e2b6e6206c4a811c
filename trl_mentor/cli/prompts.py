"""What a prompt of a data set has to be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trl_mentor.assembly import question_text


def prompt_problem(prompt: Any) -> str:
    """What is wrong with a prompt, as the end of a sentence about it; empty for one that can be used."""
    if isinstance(prompt, str):
        return "" if prompt.strip() else "is empty"
    if not isinstance(prompt, list) or not all(isinstance(turn, Mapping) for turn in prompt):
        return f"is {type(prompt).__name__}"
    if not all(map(_has_text, prompt)):
        return "has a turn whose content is no text and no list of parts"
    if not any(turn.get("role") == "user" for turn in prompt):
        return f"has the roles {[turn.get('role') for turn in prompt]} and no user turn"
    return "" if question_text(prompt).strip() else "is empty"


def _has_text(turn: Mapping[str, Any]) -> bool:
    """Whether the content is a text, parts with types (of which those of text have one), or none, as of tool calls."""
    content = turn.get("content")
    if not isinstance(content, list):
        return content is None or isinstance(content, str)
    return all(
        isinstance(part, Mapping) and (part.get("type") != "text" or isinstance(part.get("text"), str))
        for part in content
    )
