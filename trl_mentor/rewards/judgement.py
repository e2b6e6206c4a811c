"""What a verifier says about one completion; rewards and evaluation are made from it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Judgement:
    """One completion against its reference."""

    score: float | None
    """1.0 right, 0.0 wrong, for programs the share of the tests that pass; None if it could not be judged."""
    answer: str | None = None
    """What was read as the answer, equal for equal answers, so that votes can be counted; None if there is none."""
    feedback: str | None = None
    """What failed and how, for the mentor alone: it may quote hidden tests."""
    error: str | None = None
    """Why it could not be judged; None where there is a score."""

    @property
    def right(self) -> bool:
        """Whether it is wholly right: every test passes."""
        return self.score == 1.0
