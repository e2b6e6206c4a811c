"""Records of an evaluation: one line per completion, and what is computed from them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion of one problem, as it is kept."""

    benchmark: str
    problem: str
    """Id of the problem within its benchmark."""
    index: int
    """Which of the problem's `num_samples` completions, from 0."""
    completion: str
    tokens: int
    truncated: bool
    """True when it ran into the token limit."""
    score: float | None
    """As in `Judgement`; None if it could not be judged, which counts as wrong."""
    answer: str | None = None
    """As in `Judgement`, for the vote of maj@k."""
    error: str | None = None
