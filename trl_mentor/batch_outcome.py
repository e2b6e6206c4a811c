"""What the rounds of one generation batch brought: rows to train, records of the journal, counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trl_mentor.assembly import question_text
from trl_mentor.batch_parts import Concerned, Means, Outcome, Round
from trl_mentor.collapse import SuccessRule, reroll_outcome
from trl_mentor.counters import Counters, count_outcomes
from trl_mentor.group_reader import Member, example_of
from trl_mentor.interventions import interventions
from trl_mentor.merging import merged
from trl_mentor.records import Intervention, RerollOutcome, Row
from trl_mentor.rolling import Place
from trl_mentor.transfer import Past
from trl_mentor.trial import recovery


def outcome_of(
    rounds: Sequence[Round],
    originals: Mapping[int, Sequence[Member]],
    concerned: Concerned,
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
    plan, records = rounds[0].plan, _records(rounds, outcomes, means, step=step)
    return Outcome(
        interventions=records,
        details={group.cause: group.cause_detail for group in plan.failed} if plan is not None else {},
        rows={index: rows for index, (rows, _) in trained.items()},
        examples={index: place.example for index, (place, _) in last.items() if place.example is not None},
        hints=_hints(rounds, originals),
        ended=_ended(rounds, outcomes, originals, concerned, step=step),
        counters=counters + Counters(recovery=recovery(records, topics=False)),
    )


def _records(
    rounds: Sequence[Round], outcomes: Sequence[Sequence[RerollOutcome | None]], means: Means, *, step: int
) -> list[Intervention]:
    """What the journal is to have of each round; nothing on all ranks but the main process."""
    return [
        record
        for done, of_round in zip(rounds, outcomes, strict=True)
        if done.plan is not None
        for record in interventions(
            done.plan.planned,
            done.rows,
            of_round,
            step,
            means.strategy.name,
            rule=means.reader.rule,
            reward_names=means.reward_names,
            round=done.number,
        )
    ]


def _hints(rounds: Sequence[Round], originals: Mapping[int, Sequence[Member]]) -> list[tuple[str, str]]:
    found: dict[tuple[str, str], None] = {}
    for done in rounds:
        for index, place in zip(done.indices, done.places, strict=True):
            example = place.example or example_of(originals[index])
            hints = (item.hint for item in place.expanded(1) if item.hint is not None)
            found.update(dict.fromkeys((hint, question_text(example["prompt"])) for hint in hints))
    return list(found)


def _outcomes(rounds: Sequence[Round], concerned: Concerned, rule: SuccessRule) -> list[list[RerollOutcome | None]]:
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
    rounds: Sequence[Round],
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
    counters = Counters()
    if place.example is None:
        cut, prompt = means.policy.without_echo, example_of(original)["prompt"]
        strip = None if cut is None else lambda row: cut(row, prompt)
        rows, counters = merged([member.row for member in original], rows, means.strategy.merge, strip)
    if len(rows) != len(original):
        raise ValueError(
            f"strategy {means.strategy.name!r} made {len(rows)} rows of a group of {len(original)}: `merge` has to "
            "return as many as it is given, and a lesson for the place of another question cannot have `rolls`"
        )
    return rows, counters
