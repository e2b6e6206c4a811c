"""What an engine is to an evaluation: requests in, completions out, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from trl_mentor.evaluation.settings import Sampling


@dataclass(frozen=True, slots=True)
class Request:
    """One completion to draw."""

    messages: Sequence[dict[str, Any]]
    seed: int


@dataclass(frozen=True, slots=True)
class Generation:
    """What a model wrote."""

    text: str
    tokens: int
    """All that were generated, the one that ends it included."""
    truncated: bool
    error: str | None = None
    """Why there is no completion: the question does not fit the model."""


class Engine(Protocol):
    """Generates completions."""

    batch_size: int
    """How many requests to hand over at once."""

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """One completion for each request, in order."""
        ...


def room(prompt_tokens: int, context: int | None, sampling: Sampling) -> int:
    """Most tokens that a completion may have; 0 or less if the prompt alone is too long."""
    return sampling.max_new_tokens if context is None else min(sampling.max_new_tokens, context - prompt_tokens)


def no_room(prompt_tokens: int, context: int | None) -> Generation:
    """What stands for a completion where the question does not fit: it counts as wrong."""
    return Generation("", 0, True, error=f"the question has {prompt_tokens} tokens; the model takes {context} in all")
