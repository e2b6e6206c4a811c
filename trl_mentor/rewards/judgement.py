"""What a verifier says about one completion; rewards and evaluation are made from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

from trl_mentor.causes import NOTHING_PARSED
from trl_mentor.channel import ANSWER_PARSED, FEEDBACK, VERIFIER_ERROR
from trl_mentor.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Judgement:
    """One completion against its reference."""

    score: float | None
    """1.0 right, 0.0 wrong, or the share of the tests where that is asked for; None if it could not be judged."""
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


def check_rows(caller: str, **columns: Any) -> None:
    """Refuses columns that are not lists of one length, with a value for each row of the first.

    A text would be taken for a list of its characters. Raises `ConfigError`.
    """
    first, rows = next(iter(columns.items()))
    for name, column in columns.items():
        if isinstance(column, str | bytes | Mapping) or not isinstance(column, Sized):
            raise ConfigError(
                f"{caller} got {type(column).__name__} {str(column)[:80]!r} as `{name}`; expected a list with one "
                f"value for each completion, such as {name}=[...]"
            )
        if len(column) != len(rows):
            said = f"{len(rows)} {first} and {len(column)} values of `{name}`"
            raise ConfigError(f"{caller} got {said}; expected one for each")


def told(judged: Sequence[Judgement], log_extra: Callable[[str, list[Any]], None] | None) -> list[float | None]:
    """The scores, after what was read and what failed is told to TRL's table of completions and to the mentor."""
    if log_extra is not None:
        found = [one.answer or NOTHING_PARSED[0] if one.error is None else "[skipped]" for one in judged]
        log_extra(ANSWER_PARSED, found)
        log_extra(VERIFIER_ERROR, [one.error for one in judged])
        log_extra(FEEDBACK, [one.feedback for one in judged])
    return [one.score for one in judged]
