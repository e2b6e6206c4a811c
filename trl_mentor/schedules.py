"""When a collapsed group gets its hint: at once, or in the background for a later place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trl_mentor.counters import Counters
from trl_mentor.lesson_queue import LessonQueue
from trl_mentor.records import Assignment, Lesson, Prepared
from trl_mentor.strategies.base import Strategy

Fit = Callable[[Prepared], Prepared]
"""Makes a lesson one that the policy can be re-rolled under: shortened if need be, without a prompt if it cannot."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What is to happen with the collapsed groups of one generation batch."""

    places: list[Prepared | None]
    """For each collapsed group the lesson that is re-rolled in its place, or None to leave it; all have a prompt."""
    unused: list[Prepared]
    """Lessons that end without a re-roll."""
    counters: Counters = field(default_factory=Counters)


class Schedule(Protocol):
    """Decides which lesson takes the place of which collapsed group. Lives on the main process only."""

    def plan(self, assignments: Sequence[Assignment], fit: Fit) -> Planned:
        """What to do with these collapsed groups, now."""
        ...


class Inline:
    """Each group gets its own lesson and the step waits for it (the paper)."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy

    def plan(self, assignments: Sequence[Assignment], fit: Fit) -> Planned:
        lessons = self._strategy.prepare([assignment.group for assignment in assignments])
        if len(lessons) != len(assignments):
            raise ValueError(
                f"strategy {self._strategy.name!r} prepared {len(lessons)} lessons for {len(assignments)} groups"
            )
        prepared = [fit(Prepared(*pair)) for pair in zip(assignments, lessons, strict=True)]
        return Planned(
            places=[item if _usable(item) else None for item in prepared],
            unused=[item for item in prepared if not _usable(item)],
        )


class Ahead:
    """Groups are handed to the background; lessons that are ready by now take their places. Nothing waits.

    A place takes the lesson whole: the prompt, the data set row and the hint of the group that it was written for.
    """

    def __init__(self, queue: LessonQueue) -> None:
        self.queue = queue

    def plan(self, assignments: Sequence[Assignment], fit: Fit) -> Planned:
        places: list[Prepared | None] = []
        unused: list[Prepared] = []
        while len(places) < len(assignments) and (finished := self.queue.next_finished()) is not None:
            prepared = fit(_of_these_columns(finished, assignments[0]))
            (places if _usable(prepared) else unused).append(prepared)
        now = assignments[0].collapsed_at
        used = Counters(
            handed_over=len(assignments),
            lessons=len(places),
            staleness=sum(now - item.assignment.collapsed_at for item in places if item is not None),
        )
        dropped = self.queue.hand_over(assignments)
        places += [None] * (len(assignments) - len(places))
        return Planned(places, unused + dropped, used + Counters(dropped=len(dropped)))


def _of_these_columns(prepared: Prepared, current: Assignment) -> Prepared:
    """The lesson, without its prompt if its row is of another shape than the data set's now, as after a resume."""
    if _shape(prepared.assignment) == _shape(current):
        return prepared
    lesson = prepared.lesson
    reason = (
        "the data set has other columns or prompts now, so that its reward functions cannot score the lesson's row"
    )
    return Prepared(
        prepared.assignment, Lesson(None, guidance=lesson.guidance and lesson.guidance.without_hint(reason))
    )


def _shape(assignment: Assignment) -> tuple[frozenset[str], type]:
    return frozenset(assignment.example), type(assignment.example["prompt"])


def _usable(prepared: Prepared) -> bool:
    return prepared.lesson.prompt is not None
