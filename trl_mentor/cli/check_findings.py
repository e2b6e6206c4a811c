"""What one check of `trl-mentor check` found, and what all of them look at."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from trl_mentor.config import mentor_arguments
from trl_mentor.group_reader import reference_answer
from trl_mentor.guards import answer_candidates
from trl_mentor.settings import MentorArguments


class Level(StrEnum):
    """How bad a finding is; only `FAIL` makes the command fail."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIPPED = "skipped"  # could not be looked at, for the reason that is given


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, for a person and as JSON."""

    name: str
    level: Level
    found: str
    fix: str = ""
    """What to do; empty only for what is fine or skipped."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """What was measured, for `--json` and for later checks."""


@dataclass(frozen=True, slots=True)
class Options:
    """The flags of the command itself."""

    rows: int = 8
    world_size: int | None = None
    policy_url: str | None = None
    policy_model: str | None = None
    policy_key_env: str | None = None
    collapse_share: float | None = None
    reward_timeout: float = 120.0
    """Seconds for loading a reward function or a leak rule, and for each call."""


@dataclass(frozen=True, slots=True)
class Setup:
    """A recipe as the training would see it, and the first rows of its data; empty where they could not be had."""

    script: Any
    training: Any
    """A `MentorGRPOConfig` for `world_size` processes; see `check_recipe.RecipeConfig`."""
    model: Any
    data: Any
    world_size: int
    zero3: bool
    options: Options
    rows: Sequence[Mapping[str, Any]] = ()
    rewards: Sequence[Any] = ()

    @property
    def settings(self) -> MentorArguments:
        """The `mentor_*` settings; they have been found valid when a check may ask for them."""
        return mentor_arguments(self.training)

    @property
    def columns(self) -> list[str]:
        return list(self.rows[0]) if self.rows else []

    @property
    def answer_columns(self) -> list[str]:
        """The columns that may hold the reference answer of a row, as the training would look for it."""
        return [name for name in answer_candidates(self.training) if name in self.columns]

    @property
    def usable_rows(self) -> list[Mapping[str, Any]]:
        """Rows whose prompt has a shape that can be read."""
        return [row for row in self.rows if _is_prompt(row.get("prompt"))]

    def answer(self, row: Mapping[str, Any]) -> str | None:
        """The reference answer of a row as text."""
        return reference_answer(row, self.answer_columns)


def _is_prompt(prompt: Any) -> bool:
    if isinstance(prompt, list):
        return any(isinstance(turn, Mapping) and turn.get("role") == "user" for turn in prompt)
    return isinstance(prompt, str) and bool(prompt.strip())


def ok(name: str, found: str, **figures: Any) -> Finding:
    return Finding(name, Level.OK, found, figures=figures)


def warn(name: str, found: str, fix: str, **figures: Any) -> Finding:
    return Finding(name, Level.WARN, found, fix, figures)


def fail(name: str, found: str, fix: str, **figures: Any) -> Finding:
    return Finding(name, Level.FAIL, found, fix, figures)


def skipped(name: str, why: str) -> Finding:
    return Finding(name, Level.SKIPPED, why)


@contextmanager
def captured_warnings(logger: str) -> Iterator[list[str]]:
    """What a module of this package warns about in the block, as texts and nowhere else."""
    texts: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(record.getMessage().removeprefix("trl-mentor: "))

    target, handler = logging.getLogger(logger), Keep(logging.WARNING)
    passed_on, target.propagate = target.propagate, False
    target.addHandler(handler)
    try:
        yield texts
    finally:
        target.removeHandler(handler)
        target.propagate = passed_on
