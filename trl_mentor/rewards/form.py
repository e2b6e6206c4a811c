"""The form of an answer, apart from whether it is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trl_mentor.assembly import completion_text
from trl_mentor.records import Completion
from trl_mentor.rewards.judgement import check_rows
from trl_mentor.rewards.reading import boxes, final_text


def boxed_format_reward(completions: Sequence[Completion], **kwargs: Any) -> list[float]:
    r"""1.0 for a completion with exactly one complete, non-empty `\boxed{}` after any `</think>`, else 0.0."""
    check_rows("boxed_format_reward", completions=completions)
    return [1.0 if _has_one_box(completion_text(completion)) else 0.0 for completion in completions]


def _has_one_box(text: str) -> bool:
    contents = boxes(final_text(text))
    return len(contents) == 1 and contents[0] is not None and contents[0].strip() != ""
