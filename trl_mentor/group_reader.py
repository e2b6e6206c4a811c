"""From the rows of a collapsed group to what a mentor reads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trl_mentor.assembly import completion_text, question_text
from trl_mentor.collapse import SuccessRule
from trl_mentor.records import Attempt, CollapsedGroup, Row


@dataclass(frozen=True, slots=True)
class Member:
    """One row of a selected group, as it travels between ranks."""

    number: int
    """Row number through the selected groups: member `number % group_size` of group `number // group_size`."""
    row: Row
    truncated: bool
    example: Mapping[str, Any] | None
    """The data set row, prompt and all, which the members of a group share: only the first of them carries it."""


@dataclass(frozen=True, slots=True)
class GroupReader:
    """Turns the rows of a selected group into what a mentor reads."""

    rule: SuccessRule
    answer_columns: Sequence[str]
    """Columns that may hold the reference answer; the first that is not empty in the data set row is taken."""

    def read(self, index: int, members: Sequence[Member]) -> CollapsedGroup:
        example = example_of(members)
        answer = next((example[name] for name in self.answer_columns if example.get(name) is not None), None)
        attempts = [self._attempt(member) for member in members]
        return CollapsedGroup(
            question=question_text(example["prompt"]),
            # A completion that could not be scored may be right, so the mentor is not told that it failed.
            attempts=tuple(attempt for attempt in attempts if attempt.reward is not None),
            answer=_answer_text(answer),
            prompt=example["prompt"],
            index=index,
        )

    def _attempt(self, member: Member) -> Attempt:
        return Attempt(
            text=completion_text(member.row.completion),
            reward=none_if_nan(self.rule.value(member.row.rewards)),
            truncated=member.truncated,
        )


def example_of(members: Sequence[Member]) -> Mapping[str, Any]:
    """The data set row of a group."""
    example = members[0].example
    if example is None:
        raise ValueError("the first member of a group carries the data set row of the group")
    return example


def none_if_nan(value: float) -> float | None:
    """The value as the journal holds it."""
    return None if math.isnan(value) else value


def _answer_text(answer: Any) -> str | None:
    """The reference answer as text; of nested lists and mappings each value on a line of its own."""
    if isinstance(answer, Mapping):
        answer = list(answer.values())
    if isinstance(answer, list | tuple):
        parts = [text for text in map(_answer_text, answer) if text is not None]
        return "\n".join(parts) or None
    return None if answer is None else str(answer)
