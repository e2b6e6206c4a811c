"""One generation batch with collapsed groups: lessons from the main process, an even re-roll, new rows.

Every rank runs this on equal input and comes out with equal results; `Exchange` is its only way to the others and
`Policy` its only way to the policy.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trl_mentor.assembly import completion_text, question_text
from trl_mentor.collapse import SuccessRule, reroll_outcome
from trl_mentor.counters import Counters, count_interventions
from trl_mentor.exchange import Exchange
from trl_mentor.records import Attempt, CollapsedGroup, Intervention, Lesson, Prompt, RerollOutcome, Row
from trl_mentor.reroll import plan_reroll
from trl_mentor.strategies.base import Strategy


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
class Request:
    """One completion to generate: under which prompt, and the data set row that its reward functions are to see."""

    sampled_under: Prompt
    example: Mapping[str, Any]
    hint: str | None


@dataclass(frozen=True, slots=True)
class Policy:
    """What this module needs of the policy in training."""

    regenerate: Callable[[Sequence[Request]], list[Row]]
    """Generate and score this rank's share. Every rank calls it equally often with equally many requests."""
    objection: Callable[[Lesson, Prompt], str | None]
    """Why the policy cannot be re-rolled under a lesson for this prompt, or None. Runs on the main process only."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of the selected groups, equal on every rank."""

    interventions: list[Intervention]
    rows: dict[int, list[Row]]
    """New rows of the re-rolled groups, by group index."""
    counters: Counters


@dataclass(frozen=True, slots=True)
class GroupReader:
    """Turns the rows of a selected group into what a mentor reads."""

    rule: SuccessRule
    answer_columns: Sequence[str]
    """Columns that may hold the reference answer; the first that is not empty in the data set row is taken."""

    def read(self, index: int, members: Sequence[Member]) -> CollapsedGroup:
        example = _example(members)
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
            reward=_none_if_nan(self.rule.value(member.row.rewards)),
            truncated=member.truncated,
        )


def intervene(
    members: Sequence[Member],
    selected: Sequence[int],
    *,
    step: int,
    strategy: Strategy,
    reader: GroupReader,
    reward_names: Sequence[str],
    exchange: Exchange,
    policy: Policy,
) -> Outcome:
    """Prepare lessons, re-roll the groups that have one, merge.

    `members` are the rows of the `selected` groups over all ranks, in order of their number.
    """
    size = len(members) // len(selected)
    originals = [members[start : start + size] for start in range(0, len(members), size)]
    groups = [reader.read(index, group) for index, group in zip(selected, originals, strict=True)]
    started = time.monotonic()
    lessons = exchange.from_main(
        lambda: [_possible(lesson, group, policy) for lesson, group in _paired(strategy, groups)]
    )
    waited = time.monotonic() - started

    started = time.monotonic()
    rerolled, tokens = _reroll(originals, lessons, exchange, policy)
    interventions = [
        _record(group, lesson, rows, step=step, strategy=strategy.name, rule=reader.rule, reward_names=reward_names)
        for group, lesson, rows in zip(groups, lessons, rerolled, strict=True)
    ]
    merged = {
        group.index: strategy.merge([member.row for member in original], rows)
        for group, original, rows in zip(groups, originals, rerolled, strict=True)
        if rows
    }
    values = [value for item in interventions for value in item.successes]
    counters = count_interventions(interventions) + Counters(
        mentor_seconds=waited,
        policy_tokens=tokens,
        reroll_tokens=tokens,
        reroll_completions=len(values),
        reroll_successes=sum(value is not None and reader.rule.succeeds(value) for value in values),
        reroll_seconds=time.monotonic() - started,
    )
    return Outcome(interventions=interventions, rows=merged, counters=counters)


def _reroll(
    originals: Sequence[Sequence[Member]], lessons: Sequence[Lesson], exchange: Exchange, policy: Policy
) -> tuple[list[list[Row]], int]:
    """New rows per selected group (none where the lesson leaves it), and the tokens that all ranks generated."""
    taught = [
        (position, lesson.prompt, lesson.hint) for position, lesson in enumerate(lessons) if lesson.prompt is not None
    ]
    new: list[list[Row]] = [[] for _ in lessons]
    if not taught:
        return new, 0
    size = len(originals[0])
    plan = plan_reroll(len(taught), group_size=size, world_size=exchange.world_size)
    requests = []
    for number in plan.share(exchange.rank):
        position, prompt, hint = taught[number // size]
        requests.append(Request(sampled_under=prompt, example=_example(originals[position]), hint=hint))
    mine = policy.regenerate(requests)
    tokens = exchange.total(sum(len(row.completion_ids) for row in mine))
    everyone = exchange.gather(mine)[: plan.real]
    for number, row in enumerate(everyone):
        new[taught[number // size][0]].append(row)
    return new, tokens


def _record(
    group: CollapsedGroup,
    lesson: Lesson,
    rows: Sequence[Row],
    *,
    step: int,
    strategy: str,
    rule: SuccessRule,
    reward_names: Sequence[str],
) -> Intervention:
    values = [rule.value(row.rewards) for row in rows]
    return Intervention(
        step=step,
        strategy=strategy,
        group=group,
        guidance=lesson.guidance,
        outcome=reroll_outcome(values, rule.threshold) if rows else RerollOutcome.SKIPPED,
        completions=tuple(completion_text(row.completion) for row in rows),
        successes=tuple(_none_if_nan(value) for value in values),
        rewards={
            name: tuple(_none_if_nan(row.rewards[column]) for row in rows)
            for column, name in enumerate(reward_names)
            if rows
        },
        reroll_tokens=sum(len(row.completion_ids) for row in rows),
    )


def _paired(strategy: Strategy, groups: Sequence[CollapsedGroup]) -> list[tuple[Lesson, CollapsedGroup]]:
    lessons = strategy.prepare(groups)
    if len(lessons) != len(groups):
        raise ValueError(f"strategy {strategy.name!r} prepared {len(lessons)} lessons for {len(groups)} groups")
    return list(zip(lessons, groups, strict=True))


def _answer_text(answer: Any) -> str | None:
    """The reference answer as text; of nested lists and mappings each value on a line of its own."""
    if isinstance(answer, Mapping):
        answer = list(answer.values())
    if isinstance(answer, list | tuple):
        parts = [text for text in map(_answer_text, answer) if text is not None]
        return "\n".join(parts) or None
    return None if answer is None else str(answer)


def _possible(lesson: Lesson, group: CollapsedGroup, policy: Policy) -> Lesson:
    """The lesson, or one that leaves the group as it is if the policy cannot be re-rolled under it."""
    objection = None if lesson.prompt is None else policy.objection(lesson, group.prompt)
    if objection is None:
        return lesson
    return Lesson(prompt=None, guidance=lesson.guidance and lesson.guidance.without_hint(objection))


def _example(members: Sequence[Member]) -> Mapping[str, Any]:
    example = members[0].example
    if example is None:
        raise ValueError("the first member of a group carries the data set row of the group")
    return example


def _none_if_nan(value: float) -> float | None:
    return None if math.isnan(value) else value
