"""One generation batch with collapsed groups: a plan from the main process, an even re-roll, new rows.

Every rank runs this on equal input and comes out with equal rows; `Exchange` is its only way to the others and
`Policy` its only way to the policy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from trl_mentor.batch_outcome import outcome_of
from trl_mentor.batch_parts import Concerned, Means, Outcome, Round, RoundPlan, Subject
from trl_mentor.batch_plan import first_plan, next_plan, places_of
from trl_mentor.collapse import SuccessRule, group_states
from trl_mentor.counters import Counters
from trl_mentor.group_reader import Member, example_of
from trl_mentor.records import GroupState
from trl_mentor.rescue import PAPER
from trl_mentor.rolling import Place, roll


def intervene(members: Sequence[Member], concerned: Concerned, means: Means, *, step: int) -> Outcome:
    """Find causes and plan on the main process, re-roll the places that got a lesson, merge.

    While the strategy selects re-rolled groups again, another round follows, up to `max_rounds`. `members` are the
    rows of the gathered groups over all ranks, in order of their number.
    """
    size = len(members) // len(concerned.gathered)
    gathered = [members[start : start + size] for start in range(0, len(members), size)]
    originals = dict(zip(concerned.gathered, gathered, strict=True))
    subjects = [Subject(index, originals[index]) for index in concerned.selected]
    rounds = [_round(1, subjects, partial(first_plan, gathered, concerned, means, step=step), means, size=size)]
    while len(rounds) < means.max_rounds and (subjects := _again(rounds[-1], means)):
        number = len(rounds) + 1
        plan = partial(next_plan, number, subjects, concerned, means, step=step)
        rounds.append(_round(number, subjects, plan, means, size=size))
    return outcome_of(rounds, originals, concerned, means, step=step)


def _round(
    number: int, subjects: Sequence[Subject], plan: Callable[[], RoundPlan], means: Means, *, size: int
) -> Round:
    """Have the main process plan, and re-roll on all ranks."""
    made: list[RoundPlan] = []

    def places_of_plan() -> tuple[list[Place], Counters]:
        made.append(plan())
        construction = getattr(means.strategy, "construction", PAPER)
        return places_of(made[0], subjects, construction, size=size), made[0].counters

    started = time.monotonic()
    places, counters = means.exchange.from_main(places_of_plan)
    waits = len(subjects) > counters.held_back and means.asks_mentor
    counters += Counters(mentor_seconds=time.monotonic() - started if waits else 0.0)
    examples = [example_of(subjects[place.position].members) for place in places]
    rolled = roll(places, examples, means.exchange, means.policy, means.reader.rule, size=size)
    return Round(number, subjects, made[0] if made else None, places, rolled.rows, counters + rolled.counters)


def _again(done: Round, means: Means) -> list[Subject]:
    """The groups of a round that the strategy selects again, as it left them."""
    rule, places = means.reader.rule, done.places
    states = [_state([rule.value(row.rewards) for row in rows], rule) for rows in done.rows]
    return (
        [_left_as(done, number, places[number], means) for number in means.strategy.select(states)] if places else []
    )


def _state(values: Sequence[float], rule: SuccessRule) -> GroupState:
    return group_states(values, len(values), rule.threshold)[0]


def _left_as(done: Round, number: int, place: Place, means: Means) -> Subject:
    before = done.subjects[place.position]
    example = place.example or example_of(before.members)
    members = [
        Member(i, row, means.policy.is_truncated(row), None if i else example)
        for i, row in enumerate(done.rows[number])
    ]
    hints = dict.fromkeys([*before.hints, *(row.hint for row in done.rows[number] if row.hint is not None)])
    fresh = before.fresh or place.example is not None
    return Subject(before.index, members, tuple(hints), place.arm, fresh)
