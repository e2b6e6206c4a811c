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
    if "user" not in {turn.get("role") for turn in prompt}:
        return f"has the roles {[turn.get('role') for turn in prompt]} and no user turn"
    return "" if question_text(prompt).strip() else "is empty"
