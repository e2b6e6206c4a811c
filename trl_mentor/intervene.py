"""One generation batch with collapsed groups: a plan from the main process, an even re-roll, new rows.

Every rank runs this on equal input and comes out with equal rows; `Exchange` is its only way to the others and
`Policy` its only way to the policy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from trl_mentor.assembly import question_text
from trl_mentor.collapse import SuccessRule, find_collapsed, find_unscorable, group_states, reroll_outcome
from trl_mentor.counters import Counters, count_causes, count_guidances, count_held_back, count_outcomes
from trl_mentor.dosage import Dosage
from trl_mentor.exchange import Exchange
from trl_mentor.fitting import fitted
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
    RerollOutcome,
    Roll,
    Row,
)
from trl_mentor.rescue import PAPER, Construction
from trl_mentor.rolling import Place, Policy, roll
from trl_mentor.schedules import Planned, Schedule
from trl_mentor.strategies.base import Strategy
from trl_mentor.transfer import Past
from trl_mentor.trial import Trial, recovery

T = TypeVar("T")


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
    max_rounds: int = 1
    """Most re-rolls of one group."""


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
    hints: list[tuple[str, str]]
    """Hints that completions were sampled under, and the questions that they were given for."""
    ended: list[tuple[Mapping[str, Any], Past]]
    """Data set rows whose groups collapsed and how their interventions ended; one that waits counts as skipped."""
    counters: Counters


@dataclass(frozen=True, slots=True)
class _Subject:
    """One group as a round finds it."""

    index: int
    """Of the group in the batch."""
    members: Sequence[Member]
    """Its newest rows, the first of which carries the data set row."""
    hints: tuple[str, ...] = ()
    """Those of earlier rounds."""
    arm: Arm | None = None
    """What the lot gave it in the first round."""
    fresh: bool = False
    """Whether its rows are those of another question than the batch's own."""


@dataclass(frozen=True, slots=True)
class _Round:
    """One re-roll of some groups, equal on every rank but for `planned`."""

    number: int
    subjects: Sequence[_Subject]
    planned: list[Planned]
    """One on the main process, none on the others."""
    places: list[Place]
    rows: list[list[Row]]
    counters: Counters

    @property
    def indices(self) -> list[int]:
        """The group of each place."""
        return [self.subjects[place.position].index for place in self.places]


def intervene(members: Sequence[Member], concerned: Concerned, means: Means, *, step: int) -> Outcome:
    """Find causes and plan on the main process, re-roll the places that got a lesson, merge.

    While the strategy selects re-rolled groups again, another round follows, up to `max_rounds`. `members` are the
    rows of the gathered groups over all ranks, in order of their number.
    """
    size = len(members) // len(concerned.gathered)
    gathered = [members[start : start + size] for start in range(0, len(members), size)]
    originals = dict(zip(concerned.gathered, gathered, strict=True))
    failed: list[CollapsedGroup] = []
    subjects = [_Subject(index, originals[index]) for index in concerned.selected]
    rounds: list[_Round] = []
    while not rounds or (subjects and len(rounds) < means.max_rounds):
        first = not rounds
        if first:
            plan = _first_plan(gathered, concerned, failed, means, step=step)
        else:
            plan = _next_plan(len(rounds) + 1, subjects, concerned, means, step=step)
        rounds.append(_round(len(rounds) + 1, subjects, plan, means, size=size))
        subjects = _again(rounds[-1], means)
    return _outcome(rounds, originals, concerned, failed, means, step=step)


def _round(
    number: int,
    subjects: Sequence[_Subject],
    plan: Callable[[], tuple[Planned, Sequence[Assignment], Counters]],
    means: Means,
    *,
    size: int,
) -> _Round:
    """Have the main process plan, and re-roll on all ranks."""
    planned: list[Planned] = []

    def places_of_plan() -> tuple[list[Place], Counters]:
        found, assignments, counters = plan()
        planned.append(found)
        construction = getattr(means.strategy, "construction", PAPER)
        return _places(found, assignments, subjects, construction, size=size), counters + _count_work(found, number)

    started = time.monotonic()
    places, counters = means.exchange.from_main(places_of_plan)
    waits = len(subjects) > counters.held_back and means.asks_mentor
    counters += Counters(mentor_seconds=time.monotonic() - started if waits else 0.0)
    examples = [example_of(subjects[place.position].members) for place in places]
    rolled = roll(places, examples, means.exchange, means.policy, means.reader.rule, size=size)
    return _Round(number, subjects, planned, places, rolled.rows, counters + rolled.counters)


def _first_plan(
    gathered: Sequence[Sequence[Member]],
    concerned: Concerned,
    failed: list[CollapsedGroup],
    means: Means,
    *,
    step: int,
) -> Callable[[], tuple[Planned, Sequence[Assignment], Counters]]:
    """Read the gathered groups, have the schedule plan for the selected ones, and end those that are left alone."""

    def plan() -> tuple[Planned, Sequence[Assignment], Counters]:
        groups = list(map(means.reader.read, concerned.gathered, gathered))
        every = [Assignment(group, example_of(rows), step) for group, rows in zip(groups, gathered, strict=True)]
        assignments = concerned.of(concerned.selected, every)
        failed.extend(concerned.of(concerned.failed, groups))
        planned = _without_others(_planned(assignments, concerned, means), assignments, concerned)
        planned.unused.extend(map(left_alone, concerned.of(concerned.recorded, every)))
        return planned, assignments, planned.counters + count_causes(group.cause for group in failed)

    return plan


def _next_plan(
    number: int, subjects: Sequence[_Subject], concerned: Concerned, means: Means, *, step: int
) -> Callable[[], tuple[Planned, Sequence[Assignment], Counters]]:
    """Read groups as the round before left them, and plan for them again."""

    def plan() -> tuple[Planned, Sequence[Assignment], Counters]:
        read = [means.reader.read(item.index, item.members, item.hints) for item in subjects]
        groups = [replace(group, round=number) for group in read]
        assignments = [
            Assignment(group, example_of(item.members), step) for group, item in zip(groups, subjects, strict=True)
        ]
        arms = {item.index: item.arm for item in subjects}
        told = [item.index for item in subjects if item.fresh]
        planned = _without_others(_scheduled(assignments, means, arms), assignments, concerned, told)
        return planned, assignments, planned.counters

    return plan


def _without_others(
    planned: Planned, assignments: Sequence[Assignment], concerned: Concerned, told: Sequence[int] = ()
) -> Planned:
    """Without the lessons that came to nothing of groups that had not collapsed, neither counted nor told of, and of
    those that are told of already."""
    others = [item for item in assignments if item.group.index not in concerned.failed or item.group.index in told]
    dropped = [item for item in planned.unused if any(item.assignment is other for other in others)]
    return Planned(
        places=planned.places,
        unused=[item for item in planned.unused if not any(item is other for other in dropped)],
        counters=planned.counters + count_guidances(item.lesson.guidance for item in dropped),
    )


def _again(done: _Round, means: Means) -> list[_Subject]:
    """The groups of a round that the strategy selects again, as it left them."""
    rule, places = means.reader.rule, done.places
    states = [_state([rule.value(row.rewards) for row in rows], rule) for rows in done.rows]
    return (
        [_left_as(done, number, places[number], means) for number in means.strategy.select(states)] if places else []
    )


def _state(values: Sequence[float], rule: SuccessRule) -> GroupState:
    return group_states(values, len(values), rule.threshold)[0]


def _left_as(done: _Round, number: int, place: Place, means: Means) -> _Subject:
    before = done.subjects[place.position]
    example = place.example or example_of(before.members)
    members = [
        Member(i, row, means.policy.is_truncated(row), None if i else example)
        for i, row in enumerate(done.rows[number])
    ]
    hints = dict.fromkeys([*before.hints, *(row.hint for row in done.rows[number] if row.hint is not None)])
    fresh = before.fresh or place.example is not None
    return _Subject(before.index, members, tuple(hints), place.arm, fresh)


def _planned(assignments: Sequence[Assignment], concerned: Concerned, means: Means) -> Planned:
    """What the schedule and the lot of the trial say of the selected groups, without those that are held back.

    Of these the failed ones are counted and told of.
    """
    objections = list(map(means.dosage.objection, assignments))
    pairs = list(zip(assignments, objections, strict=True))
    held_back = [left_alone(item, reason) for item, reason in pairs if reason is not None]
    planned = Planned([], [])
    if len(held_back) < len(assignments):
        planned = _scheduled([item for item, reason in pairs if reason is None], means)
    places = iter(planned.places)
    held_back = [item for item in held_back if item.assignment.group.index in concerned.failed]
    return Planned(
        places=[next(places) if reason is None else None for reason in objections],
        unused=[*planned.unused, *held_back],
        counters=planned.counters + count_held_back(item.assignment.group.cause for item in held_back),
    )


def _scheduled(
    assignments: Sequence[Assignment], means: Means, arms: Mapping[int, Arm | None] | None = None
) -> Planned:
    """What the schedule and the lot of the trial say of these groups; `arms` by group if the lot was drawn before."""
    planned = means.schedule.plan(
        assignments, lambda prepared: fitted(prepared, means.strategy, means.policy.objection)
    )
    return _with_arms(planned, means) if arms is None else _in_arms(planned, arms, means)


def _with_arms(planned: Planned, means: Means) -> Planned:
    """The same lessons, of which the lot has withheld some hints."""
    return replace(planned, places=[item if item is None else _drawn(item, means) for item in planned.places])


def _in_arms(planned: Planned, arms: Mapping[int, Arm | None], means: Means) -> Planned:
    """The same lessons in the arms of the first round, which a group keeps whatever later rounds have for it."""

    def kept(item: Prepared) -> Prepared:
        return _in_arm(item, arms[item.assignment.group.index], _generic(item.assignment, means))

    unused = [
        Prepared(item.assignment, replace(item.lesson, arm=arms[item.assignment.group.index]))
        for item in planned.unused
    ]
    return replace(planned, places=[item and kept(item) for item in planned.places], unused=unused)


def _drawn(item: Prepared, means: Means) -> Prepared:
    """The same lesson, in the arm that the lot gives it; a lesson that not every arm could have stays out of it."""
    lesson, assignment = item.lesson, item.assignment
    if lesson.hint is None:
        return item
    generic = _generic(assignment, means)
    if means.trial.generic and (generic is None or generic.prompt is None):
        return item
    return _in_arm(item, means.trial.draw(assignment), generic)


def _in_arm(item: Prepared, arm: Arm | None, generic: Lesson | None) -> Prepared:
    """The same lesson as a group of this arm gets it."""
    lesson, assignment = item.lesson, item.assignment
    match arm:
        case Arm.CONTROL:
            plain = assignment.group.prompt
            given = Lesson(plain, guidance=lesson.guidance, arm=arm, rolls=(Roll(plain),) * len(lesson.rolls))
        case Arm.GENERIC if generic is not None:
            given = replace(generic, guidance=lesson.guidance, arm=arm)
        case _:
            given = replace(lesson, arm=arm)
    return Prepared(assignment, given)


def _generic(assignment: Assignment, means: Means) -> Lesson | None:
    """The lesson under the fixed hint, without a prompt if the policy cannot take it; None in a run without that."""
    if not means.trial.generic or means.generic is None:
        return None
    prepared = Prepared(assignment, means.generic(assignment.group))
    return fitted(prepared, means.strategy, means.policy.objection).lesson


def _places(
    planned: Planned,
    assignments: Sequence[Assignment],
    subjects: Sequence[_Subject],
    construction: Construction,
    *,
    size: int,
) -> list[Place]:
    return [
        _place(position, item, assignments[position], subjects[position], construction, size=size)
        for position, item in enumerate(planned.places)
        if item is not None and item.lesson.prompt is not None
    ]


def _place(
    position: int, item: Prepared, own: Assignment, subject: _Subject, construction: Construction, *, size: int
) -> Place:
    lesson, rolls = item.lesson, item.lesson.rolls
    fresh = lesson.example is not None or subject.fresh
    if lesson.hint is not None and not rolls:
        rolls = construction.rolls(lesson.prompt, lesson.hint, item.assignment.group.prompt, size)  # type: ignore[arg-type]  # it has a prompt
    return Place(
        position=position,
        prompt=lesson.prompt,  # type: ignore[arg-type]  # as above
        hint=lesson.hint,
        example=lesson.example or (item.assignment.example if fresh or item.assignment is not own else None),
        arm=lesson.arm,
        rolls=rolls,
        refill=fresh,
    )


def _count_work(planned: Planned, round: int) -> Counters:
    """What the mentor did for the lessons that end with this round, and how many end without a re-roll."""
    ended = [item for item in planned.places if item is not None] + planned.unused
    return count_guidances(item.lesson.guidance for item in ended) + Counters(
        skipped=len(planned.unused) if round == 1 else 0,
        still_collapsed=len(planned.unused) if round > 1 else 0,
    )


def _outcome(
    rounds: Sequence[_Round],
    originals: Mapping[int, Sequence[Member]],
    concerned: Concerned,
    failed: Sequence[CollapsedGroup],
    means: Means,
    *,
    step: int,
) -> Outcome:
    """What all rounds together brought; the rows of a group are those of its last round."""
    outcomes = _outcomes(rounds, concerned, means.reader.rule)
    last = {
        index: (place, rows)
        for done in rounds
        for index, place, rows in zip(done.indices, done.places, done.rows, strict=True)
    }
    trained = {index: _merged(place, originals[index], rows, means) for index, (place, rows) in last.items()}
    found = [outcome for of_round in outcomes for outcome in of_round]
    counters = sum((done.counters for done in rounds), count_outcomes(item for item in found if item is not None))
    counters += sum((more for _, more in trained.values()), Counters())
    counters += Counters(
        refilled=sum(place.refill for place, _ in last.values()),
        other_groups=sum(index not in concerned.failed for index in last),
    )
    records = [
        record
        for done, of_round in zip(rounds, outcomes, strict=True)
        for planned in done.planned
        for record in interventions(
            planned,
            done.rows,
            of_round,
            step,
            means.strategy.name,
            rule=means.reader.rule,
            reward_names=means.reward_names,
            round=done.number,
        )
    ]
    return Outcome(
        interventions=records,
        details={group.cause: group.cause_detail for group in failed},
        rows={index: rows for index, (rows, _) in trained.items()},
        examples={index: place.example for index, (place, _) in last.items() if place.example is not None},
        hints=_hints(rounds, originals),
        ended=_ended(rounds, outcomes, originals, concerned, step=step),
        counters=counters + Counters(recovery=recovery(records, topics=False)),
    )


def _hints(rounds: Sequence[_Round], originals: Mapping[int, Sequence[Member]]) -> list[tuple[str, str]]:
    found: dict[tuple[str, str], None] = {}
    for done in rounds:
        for index, place in zip(done.indices, done.places, strict=True):
            example = place.example or example_of(originals[index])
            hints = (item.hint for item in place.expanded(1) if item.hint is not None)
            found.update(dict.fromkeys((hint, question_text(example["prompt"])) for hint in hints))
    return list(found)


def _outcomes(rounds: Sequence[_Round], concerned: Concerned, rule: SuccessRule) -> list[list[RerollOutcome | None]]:
    """What each place of each round brought; None for a group that had not collapsed or had lost its place before."""
    found: list[list[RerollOutcome | None]] = []
    for number, done in enumerate(rounds):
        going_on = [item.index for item in rounds[number + 1].subjects] if number + 1 < len(rounds) else []
        untold = {item.index for item in done.subjects if item.index in concerned.failed and not item.fresh}
        found.append(
            [
                _place_outcome(place, rows, rule, goes_on=index in going_on) if index in untold else None
                for index, place, rows in zip(done.indices, done.places, done.rows, strict=True)
            ]
        )
    return found


def _place_outcome(place: Place, rows: Sequence[Row], rule: SuccessRule, *, goes_on: bool) -> RerollOutcome:
    if place.refill:
        return RerollOutcome.SKIPPED
    if goes_on:
        return RerollOutcome.ANOTHER_ROUND
    outcome = reroll_outcome([rule.value(row.rewards) for row in rows], rule.threshold)
    given = any(item.given is not None for item in place.rolls)
    return RerollOutcome.RESCUED if given and outcome is RerollOutcome.HINT_SATURATED else outcome


def _ended(
    rounds: Sequence[_Round],
    outcomes: Sequence[Sequence[RerollOutcome | None]],
    originals: Mapping[int, Sequence[Member]],
    concerned: Concerned,
    *,
    step: int,
) -> list[tuple[Mapping[str, Any], Past]]:
    """How each collapsed group and each lesson of another one ended, as every rank knows it."""
    pasts = {index: Past(step, RerollOutcome.SKIPPED) for index in concerned.collapsed}
    others: list[tuple[Mapping[str, Any], Past]] = []
    for done, of_round in zip(rounds, outcomes, strict=True):
        for index, place, outcome in zip(done.indices, done.places, of_round, strict=True):
            if place.example is not None and not place.refill and outcome is not None:
                others.append((place.example, Past(step, outcome, place.arm)))
            elif index in pasts and outcome is not None:
                ended = RerollOutcome.STILL_COLLAPSED if outcome is RerollOutcome.ANOTHER_ROUND else outcome
                pasts[index] = Past(step, ended, place.arm)
    return [*((example_of(originals[index]), past) for index, past in pasts.items()), *others]


def _merged(place: Place, original: Sequence[Member], rows: list[Row], means: Means) -> tuple[list[Row], Counters]:
    """The rows that are trained; those of another question cannot be mixed with those of the lesson's."""
    if place.example is not None:
        return rows, Counters()
    cut, prompt = means.policy.without_echo, example_of(original)["prompt"]
    strip = None if cut is None else lambda row: cut(row, prompt)
    return merged([member.row for member in original], rows, means.strategy.merge, strip)
