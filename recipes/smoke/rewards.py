"""The verifier of the smoke recipe."""

from __future__ import annotations

import re
from typing import Any

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def last_number_is_answer(completions: list[Any], answer: list[str], **kwargs: Any) -> list[float]:
    """1.0 for each completion whose last number equals the row's answer, else 0.0.

    reasoning-gym's own scorers give partial credit for wrong answers, so they cannot say whether an attempt failed.
    """
    return [
        float(last_number(text_of(given)) == float(wanted)) for given, wanted in zip(completions, answer, strict=True)
    ]


def last_number(text: str) -> float | None:
    """The last number in a text, thousands separators removed; None if there is none."""
    found = NUMBER.findall(text)
    return float(found[-1].replace(",", "")) if found else None


def text_of(completion: str | list[dict[str, str]]) -> str:
    """The text of a completion in either of the shapes that TRL uses."""
    return completion if isinstance(completion, str) else completion[-1]["content"]
