"""One generation batch with collapsed groups: a plan from the main process, an even re-roll, new rows.

Every rank runs this on equal input and comes out with equal rows; `Exchange` is its only way to the others and
`Policy` its only way to the policy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from trl_mentor.collapse import SuccessRule, find_collapsed, find_unscorable, reroll_outcome
from trl_mentor.counters import Counters, count_causes, count_guidances, count_outcomes
from trl_mentor.dosage import Dosage
from trl_mentor.exchange import Exchange
from trl_mentor.fitting import Objection, fitted
from trl_mentor.group_reader import GroupReader, Member, example_of
from trl_mentor.interventions import interventions, left_alone
from trl_mentor.merging import merged
from trl_mentor.records import (
    Arm,
    Assignment,
    Cause,
    CollapsedGroup,
    GroupState,
    Intervention,
    Lesson,
    Prepared,
    Prompt,
    RerollOutcome,
    Row,
)
from trl_mentor.reroll import plan_reroll
from trl_mentor.schedules import Planned, Schedule
from trl_mentor.strategies.base import Strategy
from trl_mentor.transfer import Past
from trl_mentor.trial import Trial, recovery

T = TypeVar("T")


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
    objection: Callable[[Lesson, Prompt], Objection | None]
    """What speaks against a lesson for this prompt, or None. Runs on the main process only."""
    with_reliance: Callable[[Sequence[Request], list[Row]], list[Row]] | None = None
    """Measure what the rows that came of the requests owe to their hints, as `regenerate` is called; None to not."""
    without_echo: Callable[[Row, Prompt], Row] | None = None
    """Cut what a row under this plain prompt quotes of its hint; None to leave it. Equal on every rank."""


@dataclass(frozen=True, slots=True)
class Means:
    """What interventions work with, the same for all batches of a run."""

    strategy: Strategy
    schedule: Schedule
    reader: GroupReader
    reward_names: Sequence[str]
    exchange: Exchange
    policy: Policy
    asks_mentor: bool = True
    """Whether planning waits for a mentor; if not, its time is no price of mentoring."""
    trial: Trial = Trial()
    generic: Callable[[CollapsedGroup], Lesson] | None = None
    """The lesson of the trial's second control, which runs on the main process only."""
    dosage: Dosage = field(default_factory=Dosage)


@dataclass(frozen=True, slots=True)
class Place:
    """What one collapsed group is re-rolled as: all that the other ranks need of a lesson."""

    position: int
    """Which of the selected groups."""
    prompt: Prompt
    hint: str | None
    example: Mapping[str, Any] | None
    """The data set row of another group, whose lesson takes this place; None for the group's own."""
    arm: Arm | None = None


@dataclass(frozen=True, slots=True)
class Concerned:
    """The groups of a batch that something is done or said about, by their index, each list ascending."""

    gathered: Sequence[int]
    """Those whose rows the ranks exchange: the others', and every collapsed one, for their causes."""
    selected: Sequence[int]
    """Those that the strategy acts on."""
    failed: Sequence[int] = ()
    """The collapsed and the unscorable ones, whose causes count."""
    recorded: Sequence[int] = ()
    """Those that nothing can be done about, which the journal is to tell of nevertheless."""
    collapsed: Sequence[int] = ()
    """Those whose prompts are remembered until they return."""

    @classmethod
    def among(cls, states: Sequence[GroupState], selected: Sequence[int]) -> Concerned:
        """Those of a batch in which the strategy selected some."""
        collapsed, unscorable = find_collapsed(states), find_unscorable(states)
        failed = sorted([*collapsed, *unscorable])
        return cls(
            gathered=sorted({*selected, *failed}),
            selected=selected,
            failed=failed,
            recorded=[index for index in unscorable if index not in selected],
            collapsed=collapsed,
        )

    def of(self, indices: Sequence[int], groups: Sequence[T]) -> list[T]:
        """The groups with these indices, of those gathered."""
        return [groups[self.gathered.index(index)] for index in indices]


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to happen with a batch, as the main process knows it; places and counters are for all."""

    planned: Planned
    failed: Sequence[CollapsedGroup]
    places: list[Place]
    counters: Counters


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of the concerned groups, equal on every rank but for the interventions and details."""

    interventions: list[Intervention]
    """For the journal; empty on all ranks but the main process."""
    details: dict[Cause, str]
    """What shows the newest of each cause; empty on all ranks but the main process."""
    rows: dict[int, list[Row]]
    """New rows of the re-rolled groups, by group index."""
    examples: dict[int, Mapping[str, Any]]
    """Data set rows that take the place of the batch's own, by group index."""
    ended: list[tuple[Mapping[str, Any], Past]]
    """Data set rows whose groups collapsed and how their interventions ended; one that waits counts as skipped."""
    counters: Counters


def intervene(members: Sequence[Member], concerned: Concerned, means: Means, *, step: int) -> Outcome:
    """Find causes and plan on the main process, re-roll the places that got a lesson, merge.

    `members` are the rows of the gathered groups over all ranks, in order of their number.
    """
    size, selected = len(members) // len(concerned.gathered), concerned.selected
    gathered = [members[start : start + size] for start in range(0, len(members), size)]
    originals = concerned.of(selected, gathered)
    plans: list[_Plan] = []  # one on the main process, which keeps it, and none on the others

    def plan() -> tuple[list[Place], Counters]:
        plans.append(_plan(gathered, concerned, means, step=step))
        return plans[0].places, plans[0].counters

    started = time.monotonic()
    places, counters = means.exchange.from_main(plan)
    waited = time.monotonic() - started if len(selected) > counters.held_back and means.asks_mentor else 0.0
    rerolled, work = _reroll(places, originals, means)
    trained = [
        _merged(place, originals[place.position], rows, means) for place, rows in zip(places, rerolled, strict=True)
    ]
    work += sum((more for _, more in trained), Counters())
    rule, name, reward_names = means.reader.rule, means.strategy.name, means.reward_names
    records = [
        item
        for made in plans
        for item in interventions(made.planned, rerolled, step, name, rule=rule, reward_names=reward_names)
    ]
    return Outcome(
        interventions=records,
        details={group.cause: group.cause_detail for made in plans for group in made.failed},
        rows={selected[place.position]: rows for place, (rows, _) in zip(places, trained, strict=True)},
        examples={selected[place.position]: place.example for place in places if place.example is not None},
        ended=_ended(concerned, gathered, places, rerolled, rule, step=step),
        counters=counters + work + Counters(mentor_seconds=waited, recovery=recovery(records, topics=False)),
    )


def _plan(gathered: Sequence[Sequence[Member]], concerned: Concerned, means: Means, *, step: int) -> _Plan:
    """Read the gathered groups, have the schedule plan for the selected ones, and end those that are left alone."""
    groups = list(map(means.reader.read, concerned.gathered, gathered))
    every = [Assignment(group, example_of(rows), step) for group, rows in zip(groups, gathered, strict=True)]
    assignments, failed = concerned.of(concerned.selected, every), concerned.of(concerned.failed, groups)
    planned = _planned(assignments, means)
    planned.unused.extend(map(left_alone, concerned.of(concerned.recorded, every)))
    counters = planned.counters + _count_work(planned) + count_causes(group.cause for group in failed)
    return _Plan(planned, failed, _places(planned, assignments), counters)


def _planned(assignments: Sequence[Assignment], means: Means) -> Planned:
    """What the schedule and the lot of the trial say of the selected groups, without those that are held back."""
    objections = list(map(means.dosage.objection, assignments))
    pairs = list(zip(assignments, objections, strict=True))
    held_back = [left_alone(item, reason) for item, reason in pairs if reason is not None]
    planned = Planned([], [])
    if len(held_back) < len(assignments):
        planned = means.schedule.plan(
            [item for item, reason in pairs if reason is None],
            lambda prepared: fitted(prepared, means.strategy, means.policy.objection),
        )
        planned = _with_arms(planned, means)
    places = iter(planned.places)
    return Planned(
        places=[next(places) if reason is None else None for reason in objections],
        unused=[*planned.unused, *held_back],
        counters=planned.counters + Counters(held_back=len(held_back)),
    )


def _with_arms(planned: Planned, means: Means) -> Planned:
    """The same lessons, of which the lot has withheld some hints."""
    return replace(planned, places=[item if item is None else _drawn(item, means) for item in planned.places])


def _drawn(item: Prepared, means: Means) -> Prepared:
    """The same lesson, in the arm that the lot gives it; a lesson that not every arm could have stays out of it."""
    lesson, assignment = item.lesson, item.assignment
    if lesson.hint is None:
        return item
    generic = _generic(assignment, means)
    if means.trial.generic and (generic is None or generic.prompt is None):
        return item
    match means.trial.draw(assignment):
        case Arm.CONTROL:
            drawn = Lesson(assignment.group.prompt, guidance=lesson.guidance, arm=Arm.CONTROL)
        case Arm.GENERIC if generic is not None:
            drawn = replace(generic, guidance=lesson.guidance, arm=Arm.GENERIC)
        case arm:
            drawn = replace(lesson, arm=arm)
    return Prepared(assignment, drawn)


def _generic(assignment: Assignment, means: Means) -> Lesson | None:
    """The lesson under the fixed hint, without a prompt if the policy cannot take it; None in a run without that."""
    if not means.trial.generic or means.generic is None:
        return None
    prepared = Prepared(assignment, means.generic(assignment.group))
    return fitted(prepared, means.strategy, means.policy.objection).lesson


def _places(planned: Planned, assignments: Sequence[Assignment]) -> list[Place]:
    return [
        Place(
            position=position,
            prompt=item.lesson.prompt,
            hint=item.lesson.hint,
            example=None if item.assignment is assignments[position] else item.assignment.example,
            arm=item.lesson.arm,
        )
        for position, item in enumerate(planned.places)
        if item is not None and item.lesson.prompt is not None
    ]


def _count_work(planned: Planned) -> Counters:
    """What the mentor did for the lessons that end with this batch, and how many end without a re-roll."""
    ended = [item for item in planned.places if item is not None] + planned.unused
    return count_guidances(item.lesson.guidance for item in ended) + Counters(skipped=len(planned.unused))


def _reroll(
    places: Sequence[Place], originals: Sequence[Sequence[Member]], means: Means
) -> tuple[list[list[Row]], Counters]:
    """New rows for each place, and what they brought and took on all ranks."""
    started = time.monotonic()
    rerolled, tokens = _regenerated(places, originals, means.exchange, means.policy) if places else ([], 0)
    rule = means.reader.rule
    values = [[rule.value(row.rewards) for row in rows] for rows in rerolled]
    lengths = [sum(len(row.completion_ids) for row in rows) for rows in rerolled]
    relied = [
        row.reliance
        for rows in rerolled
        for row in rows
        if row.reliance is not None and rule.succeeds(rule.value(row.rewards))
    ]
    counters = count_outcomes(reroll_outcome(group, rule.threshold) for group in values) + Counters(
        policy_tokens=tokens,
        reroll_tokens=tokens,
        padding_tokens=tokens - sum(lengths),
        control_tokens=sum(
            length for place, length in zip(places, lengths, strict=True) if place.arm in (Arm.CONTROL, Arm.GENERIC)
        ),
        reliance_sum=sum(relied),
        reliance_count=len(relied),
        reroll_completions=sum(map(len, values)),
        reroll_successes=sum(rule.succeeds(value) for group in values for value in group),
        reroll_seconds=time.monotonic() - started,
    )
    return rerolled, counters


def _regenerated(
    places: Sequence[Place], originals: Sequence[Sequence[Member]], exchange: Exchange, policy: Policy
) -> tuple[list[list[Row]], int]:
    """New rows for each place, of which there are some, and the tokens that all ranks generated."""
    size = len(originals[0])
    plan = plan_reroll(len(places), group_size=size, world_size=exchange.world_size)
    requests = []
    for number in plan.share(exchange.rank):
        place = places[number // size]
        example = example_of(originals[place.position]) if place.example is None else place.example
        requests.append(Request(sampled_under=place.prompt, example=example, hint=place.hint))
    mine = policy.regenerate(requests)
    if policy.with_reliance is not None and any(place.hint is not None for place in places):
        mine = policy.with_reliance(requests, mine)
    tokens = exchange.total(sum(len(row.completion_ids) for row in mine))
    everyone = exchange.gather(mine)[: plan.real]
    return [everyone[start : start + size] for start in range(0, plan.real, size)], tokens


def _ended(
    concerned: Concerned,
    gathered: Sequence[Sequence[Member]],
    places: Sequence[Place],
    rerolled: Sequence[Sequence[Row]],
    rule: SuccessRule,
    *,
    step: int,
) -> list[tuple[Mapping[str, Any], Past]]:
    """How each collapsed group and each lesson of another one ended, as every rank knows it."""
    own = {concerned.selected[place.position] for place in places if place.example is None}
    examples = dict(zip(concerned.gathered, map(example_of, gathered), strict=True))
    skipped = Past(step, RerollOutcome.SKIPPED)
    ended = [(examples[index], skipped) for index in concerned.collapsed if index not in own]
    for place, rows in zip(places, rerolled, strict=True):
        index = concerned.selected[place.position]
        outcome = reroll_outcome([rule.value(row.rewards) for row in rows], rule.threshold)
        if place.example is not None or index in concerned.collapsed:
            ended.append((place.example or examples[index], Past(step, outcome, place.arm)))
    return ended


def _merged(place: Place, original: Sequence[Member], rows: list[Row], means: Means) -> tuple[list[Row], Counters]:
    """The rows that are trained; those of another question cannot be mixed with those of the lesson's."""
    if place.example is not None:
        return rows, Counters()
    cut, prompt = means.policy.without_echo, example_of(original)["prompt"]
    strip = None if cut is None else lambda row: cut(row, prompt)
    return merged([member.row for member in original], rows, means.strategy.merge, strip)
