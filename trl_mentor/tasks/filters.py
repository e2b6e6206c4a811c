"""Which problems of a split are kept: by difficulty and by the length of the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trl_mentor.errors import ConfigError
from trl_mentor.tasks.records import Problem


@dataclass(frozen=True, slots=True)
class Filters:
    """Bounds, both ends included; None is no bound. A problem without a difficulty passes no bound on it."""

    min_difficulty: float | None = None
    max_difficulty: float | None = None
    max_prompt_chars: int | None = None

    def keep(self, problem: Problem, prompt: str) -> bool:
        """Whether a problem with this prompt stays."""
        if self.max_prompt_chars is not None and len(prompt) > self.max_prompt_chars:
            return False
        low, high = self.min_difficulty, self.max_difficulty
        if low is None and high is None:
            return True
        value = problem.difficulty
        return value is not None and (low is None or value >= low) and (high is None or value <= high)

    def check_left(self, kept: int, read: Sequence[Problem], name: str) -> None:
        """Raise `ConfigError` if nothing is left of what was read."""
        if kept or not read:
            return
        known = [problem.difficulty for problem in read if problem.difficulty is not None]
        span = f"difficulties from {min(known):g} to {max(known):g}" if known else "no difficulties"
        bounds = ", ".join(
            f"{field}={value}"
            for field in ("min_difficulty", "max_difficulty", "max_prompt_chars")
            if (value := getattr(self, field)) is not None
        )
        raise ConfigError(f"{bounds} leaves none of the {len(read):,} problems of {name}, which has {span}; relax it")
