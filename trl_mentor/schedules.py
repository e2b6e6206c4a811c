"""When a collapsed group gets its hint: at once, or in the background for a later place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trl_mentor.counters import Counters
from trl_mentor.lesson_queue import LessonQueue
from trl_mentor.records import Assignment, CollapsedGroup, Lesson, Prepared
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

    A place takes the lesson whole: the prompt, the data set row and the hint of the group that it was written for. A
    lesson that takes no work is not queued: with a prompt it is used at once, in the place of its own group.
    """

    def __init__(
        self, queue: LessonQueue, *, at_once: Callable[[CollapsedGroup], Lesson | None] | None = None
    ) -> None:
        """`at_once` gives the lesson of a group for which there is no work to do, or None."""
        self.queue = queue
        self._at_once = at_once

    def plan(self, assignments: Sequence[Assignment], fit: Fit) -> Planned:
        lessons = [self._at_once(item.group) if self._at_once else None for item in assignments]
        queued = [item for item, lesson in zip(assignments, lessons, strict=True) if lesson is None]
        own = [
            None if lesson is None else fit(Prepared(item, lesson))
            for item, lesson in zip(assignments, lessons, strict=True)
        ]
        places = [item if item is not None and _usable(item) else None for item in own]
        unused = [item for item in own if item is not None and not _usable(item)]
        free = [position for position, item in enumerate(places) if item is None]
        ready: list[Prepared] = []
        while len(ready) < len(free) and (finished := self.queue.next_finished()) is not None:
            prepared = fit(_of_these_columns(finished, assignments[0]))
            (ready if _usable(prepared) else unused).append(prepared)
        for position, item in zip(free, ready, strict=False):
            places[position] = item
        dropped = self.queue.hand_over(queued)
        counters = Counters(
            handed_over=len(queued),
            lessons=len(ready),
            staleness=sum(assignments[0].collapsed_at - item.assignment.collapsed_at for item in ready),
            dropped=len(dropped),
        )
        return Planned(places, unused + dropped, counters)


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
