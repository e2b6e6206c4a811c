"""What the handling of one generation batch with collapsed groups is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from trl_mentor.collapse import find_collapsed, find_unscorable
from trl_mentor.counters import Counters
from trl_mentor.dosage import Dosage
from trl_mentor.exchange import Exchange
from trl_mentor.group_reader import GroupReader, Member
from trl_mentor.records import Arm, Assignment, Cause, CollapsedGroup, GroupState, Intervention, Lesson, Row
from trl_mentor.rolling import Place, Policy
from trl_mentor.schedules import Planned, Schedule
from trl_mentor.strategies.base import Strategy
from trl_mentor.transfer import Past
from trl_mentor.trial import Trial

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
class Subject:
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
class RoundPlan:
    """What the main process decided for one round."""

    planned: Planned
    assignments: Sequence[Assignment]
    """Of the subjects, in order."""
    counters: Counters
    failed: Sequence[CollapsedGroup] = ()
    """In the first round the collapsed and the unscorable groups of the batch."""


@dataclass(frozen=True, slots=True)
class Round:
    """One re-roll of some groups, equal on every rank but for `plan`."""

    number: int
    subjects: Sequence[Subject]
    plan: RoundPlan | None
    """None on all ranks but the main process."""
    places: list[Place]
    rows: list[list[Row]]
    counters: Counters

    @property
    def indices(self) -> list[int]:
        """The group of each place."""
        return [self.subjects[place.position].index for place in self.places]


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
