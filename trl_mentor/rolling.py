"""New rows for the places of a batch: sampled or given, spread evenly over the ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from trl_mentor.collapse import SuccessRule
from trl_mentor.counters import Counters, count_reliances
from trl_mentor.exchange import Exchange
from trl_mentor.fitting import Objection
from trl_mentor.records import Arm, Lesson, Prompt, Roll, Row
from trl_mentor.reroll import plan_reroll


@dataclass(frozen=True, slots=True)
class Request:
    """One completion to make: under which prompt, and the data set row that its reward functions are to see."""

    sampled_under: Prompt
    example: Mapping[str, Any]
    hint: str | None
    given: str | None = None
    """The completion itself where it is not to be sampled."""


class Regenerate(Protocol):
    """Generates and scores this rank's share. Every rank calls it equally often with equally many requests."""

    def __call__(self, requests: Sequence[Request], *, alone: bool = False) -> list[Row]:
        """`alone`: prompts may differ from row to row; if not, they come in whole groups, rank-major."""
        ...


@dataclass(frozen=True, slots=True)
class Policy:
    """What interventions need of the policy in training."""

    regenerate: Regenerate
    objection: Callable[[Lesson, Prompt], Objection | None]
    """What speaks against a lesson for this prompt, or None. Runs on the main process only."""
    present: Callable[[Sequence[Request]], list[Row]]
    """Score this rank's share of given completions; called as `regenerate` is."""
    is_truncated: Callable[[Row], bool]
    """Whether a completion ran into the length limit."""
    with_reliance: Callable[[Sequence[Request], list[Row]], list[Row]] | None = None
    """Measure what the rows that came of the requests owe to their hints, as `regenerate` is called; None to not."""
    without_echo: Callable[[Row, Prompt], Row] | None = None
    """Cut what a row under this plain prompt quotes of its hint; None to leave it. Equal on every rank."""


@dataclass(frozen=True, slots=True)
class Place:
    """What one group is re-rolled as: all that the other ranks need of a lesson."""

    position: int
    """Which of the selected groups."""
    prompt: Prompt
    hint: str | None
    example: Mapping[str, Any] | None
    """The data set row of another question, which takes this place; None for the group's own."""
    arm: Arm | None = None
    rolls: tuple[Roll, ...] = ()
    """`Lesson.rolls`."""
    refill: bool = False
    """True when `example` is a fresh question and not that of a lesson which waited for a place."""

    def expanded(self, size: int) -> tuple[Roll, ...]:
        """What each of its rows comes from, in a run with groups of `size`."""
        return self.rolls or (Roll(self.prompt, self.hint),) * size


@dataclass(frozen=True, slots=True)
class Rolled:
    """What came of some places, equal on every rank."""

    rows: list[list[Row]]
    """Of each place, in the order of its rolls."""
    counters: Counters


def roll(
    places: Sequence[Place],
    examples: Sequence[Mapping[str, Any]],
    exchange: Exchange,
    policy: Policy,
    rule: SuccessRule,
    *,
    size: int,
) -> Rolled:
    """New rows for each place; `examples` are the data set rows of the places' own questions."""
    started = time.monotonic()
    if not places:
        return Rolled([], Counters())
    expanded = [place.expanded(size) for place in places]
    requests = [
        Request(item.prompt, place.example or example, item.hint, item.given)
        for place, example, items in zip(places, examples, expanded, strict=True)
        for item in items
    ]
    sampled = [request for request in requests if request.given is None]
    given = [request for request in requests if request.given is not None]
    alone = any(place.rolls for place in places)
    new, tokens = _sampled(sampled, exchange, policy, size=1 if alone else size, alone=alone) if sampled else ([], 0)
    shown = _shared(given, exchange, policy.present, size=1) if given else []
    sources = iter(new), iter(shown)
    flat = iter([next(sources[request.given is not None]) for request in requests])
    rows = [[next(flat) for _ in items] for items in expanded]
    return Rolled(rows, _counted(places, rows, new, given, rule, tokens, time.monotonic() - started))


def _sampled(
    requests: Sequence[Request], exchange: Exchange, policy: Policy, *, size: int, alone: bool
) -> tuple[list[Row], int]:
    """One row for each request, and the tokens that all ranks generated."""

    def produce(mine: Sequence[Request]) -> list[Row]:
        rows = policy.regenerate(mine, alone=alone)
        if policy.with_reliance is not None and any(request.hint is not None for request in requests):
            rows = policy.with_reliance(mine, rows)
        made.extend(rows)
        return rows

    made: list[Row] = []
    rows = _shared(requests, exchange, produce, size=size)
    return rows, exchange.total(sum(len(row.completion_ids) for row in made))


def _shared(
    requests: Sequence[Request], exchange: Exchange, produce: Callable[[Sequence[Request]], list[Row]], *, size: int
) -> list[Row]:
    """One row for each request, each made by one of the ranks, which make equally many."""
    plan = plan_reroll(len(requests) // size, group_size=size, world_size=exchange.world_size)
    mine = produce([requests[number] for number in plan.share(exchange.rank)])
    return exchange.gather(mine)[: plan.real]


def _counted(
    places: Sequence[Place],
    rows: Sequence[Sequence[Row]],
    sampled: Sequence[Row],
    given: Sequence[Request],
    rule: SuccessRule,
    tokens: int,
    seconds: float,
) -> Counters:
    """What the rows brought and took on all ranks."""
    return count_reliances(sampled) + Counters(
        policy_tokens=tokens,
        reroll_tokens=tokens,
        padding_tokens=tokens - sum(len(row.completion_ids) for row in sampled),
        control_tokens=sum(
            len(row.completion_ids)
            for place, group in zip(places, rows, strict=True)
            if place.arm in (Arm.CONTROL, Arm.GENERIC)
            for row in group
        ),
        reroll_completions=len(sampled),
        reroll_successes=sum(rule.succeeds(rule.value(row.rewards)) for row in sampled),
        given_rows=len(given),
        reroll_seconds=seconds,
    )
