"""From the rows of a collapsed group to what a mentor reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trl_mentor.assembly import completion_text, question_text
from trl_mentor.causes import Sign, find_cause
from trl_mentor.channel import ANSWER_PARSED, FEEDBACK, VERIFIER_ERROR
from trl_mentor.collapse import SuccessRule
from trl_mentor.quoting import clean_text
from trl_mentor.records import Attempt, CollapsedGroup, Row
from trl_mentor.reroll import local_rows

_TOPIC_CHARS = 100


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
    """Turns the rows of a group into what a mentor reads."""

    rule: SuccessRule
    answer_columns: Sequence[str]
    """Columns that may hold the reference answer; the first that is not empty in the data set row is taken."""
    format_columns: Sequence[int] = ()
    """Which of the rewards pay for form."""
    topic_columns: Sequence[str] = ()
    """Columns that may say what a question is about; the first that is not empty in the data set row is taken."""
    material_columns: Sequence[str] = ()
    """Columns whose values the strategy asks for."""

    def read(self, index: int, members: Sequence[Member], earlier_hints: Sequence[str] = ()) -> CollapsedGroup:
        example = example_of(members)
        answer = self.answer(example)
        signs = [self._sign(member) for member in members]
        found = find_cause(signs, answer)
        attempts = [_attempt(sign, member) for sign, member in zip(signs, members, strict=True)]
        # A completion that could not be judged may be right, so the mentor is not told that it failed.
        judged = [attempt for sign, attempt in zip(signs, attempts, strict=True) if sign.judged]
        return CollapsedGroup(
            question=question_text(example["prompt"]),
            attempts=tuple(judged or attempts),
            answer=answer,
            prompt=example["prompt"],
            index=index,
            cause=found.cause,
            cause_detail=found.detail,
            topic=_topic(example, self.topic_columns),
            earlier_hints=tuple(earlier_hints),
            material={name: example[name] for name in self.material_columns if name in example},
        )

    def answer(self, example: Mapping[str, Any]) -> str | None:
        """The reference answer in a data set row, as text; None if there is none."""
        return reference_answer(example, self.answer_columns)

    def _sign(self, member: Member) -> Sign:
        row = member.row
        parsed = row.extra.get(ANSWER_PARSED)
        return Sign(
            text=completion_text(row.completion),
            success=self.rule.value(row.rewards),
            divided=not all(part <= 0 for part in self.rule.parts(row.rewards)),
            truncated=member.truncated,
            formats=tuple(row.rewards[column] for column in self.format_columns),
            parsed=parsed if isinstance(parsed, str) else None,
            verifier_error=row.extra.get(VERIFIER_ERROR),
        )


def reference_answer(example: Mapping[str, Any], columns: Sequence[str]) -> str | None:
    """What the first of these columns that is not empty holds, as text; None if all are."""
    return _answer_text(_first(example, columns))


def _first(example: Mapping[str, Any], columns: Sequence[str]) -> Any:
    values = (_plain_value(example.get(name)) for name in columns)
    return next((value for value in values if not _is_empty(value)), None)


def _plain_value(value: Any) -> Any:
    """A value of a data set in whatever format, such as an array of NumPy, as Python's own types."""
    return value.tolist() if hasattr(value, "tolist") else value


def _is_empty(value: Any) -> bool:
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, list | tuple):
        return not value
    return value is None or (isinstance(value, float) and math.isnan(value))


def _attempt(sign: Sign, member: Member) -> Attempt:
    notes = [member.row.extra.get(FEEDBACK)]
    notes += [f"could not be judged: {sign.verifier_error}"] if sign.verifier_error else []
    return Attempt(
        text=sign.text,
        reward=none_if_nan(sign.success) if sign.judged else None,
        truncated=sign.truncated,
        feedback="\n".join(note for note in notes if note) or None,
        success=sign.judged and member.row.success is True,
    )


def _topic(example: Mapping[str, Any], columns: Sequence[str]) -> str | None:
    found = _first(example, columns)
    if isinstance(found, list | tuple):
        found = found[0]
    return None if found is None else str(found)[:_TOPIC_CHARS]


def members_of(
    rows: Sequence[Row],
    groups: Sequence[int],
    examples: Mapping[int, Mapping[str, Any]],
    is_truncated: Callable[[Row], bool],
    *,
    size: int,
    rank: int,
) -> list[Member]:
    """This rank's `rows` of the groups with these indices; `examples` are the first rows of groups, by their place."""
    return [
        Member(
            number=number,
            row=rows[i],
            truncated=is_truncated(rows[i]),
            example=examples[i] if number % size == 0 else None,
        )
        for i, number in local_rows(groups, group_size=size, rank=rank, rows_per_rank=len(rows))
    ]


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
    return None if answer is None else clean_text(str(answer))
