"""Collapsed groups that become lessons in the background, in order of arrival. Standard library only."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trl_mentor.mentor_pool import describe, outcome_of
from trl_mentor.plain import from_plain, plain_json, survives_json
from trl_mentor.records import Assignment, CollapsedGroup, Guidance, HintOrigin, Lesson, Prepared

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class _Entry:
    assignment: Assignment
    lesson: Lesson | None = None
    started: bool = False
    storable: bool | None = None
    """Whether JSON can hold the data set row; None before anybody asked."""


class LessonQueue:
    """Bounded and never waited for: what `prepare` does happens in daemon threads, at most `workers` at once.

    Whatever `prepare` raises becomes a lesson without a prompt that says why. When the queue holds `size` groups, the
    oldest that still waits for its turn makes room. Were groups dropped that are being worked on, a mentor slower than
    collapse would never finish a lesson.
    """

    def __init__(
        self, prepare: Callable[[Sequence[CollapsedGroup]], list[Lesson]], *, size: int, workers: int = 1
    ) -> None:
        self._prepare = prepare
        self._size = size
        self._workers = workers
        self._entries: list[_Entry] = []
        self._busy: set[threading.Thread] = set()
        self._paused = False
        self._warned = False
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def hand_over(self, assignments: Sequence[Assignment]) -> list[Prepared]:
        """Queue these groups; returns the ones that had to leave for them, none of which has a prompt."""
        with self._lock:
            self._paused = False
            self._entries += map(_Entry, assignments)
            self._start_threads()
            left = self._idle()[: max(len(self._entries) - self._size, 0)]
            self._entries = [entry for entry in self._entries if entry not in left]
        reason = f"more than {self._size} groups waited for a lesson or a place (mentor_queue_size)"
        lesson = Lesson(prompt=None, guidance=Guidance(None, HintOrigin.DROPPED, reason=reason))
        return [Prepared(entry.assignment, lesson) for entry in left]

    def next_finished(self) -> Prepared | None:
        """Take out the oldest group whose lesson is written, or None; a lesson may have no prompt."""
        with self._lock:
            for position, entry in enumerate(self._entries):
                if entry.lesson is not None:
                    del self._entries[position]
                    return Prepared(entry.assignment, entry.lesson)
        return None

    def pause(self) -> None:
        """Begin no further group until the next one is handed over; what is queued stays."""
        with self._lock:
            self._paused = True

    def state(self) -> list[dict[str, Any]]:
        """What is queued, as plain JSON. A group whose data set row is not plain JSON is left out and logged once."""
        with self._lock:
            entries = [(entry, entry.lesson) for entry in self._entries]
        kept = [
            {"assignment": plain_json(entry.assignment), "lesson": plain_json(lesson)}
            for entry, lesson in entries
            if _is_storable(entry)
        ]
        if len(kept) < len(entries) and not self._warned:
            self._warned = True
            logger.warning(
                "trl-mentor: "
                "%d of %d queued lessons are not kept in the checkpoint: their data set rows hold values that JSON "
                "cannot (dates, bytes, NaN); training is not affected",
                len(entries) - len(kept),
                len(entries),
            )
        return kept

    def guidances(self) -> list[Guidance]:
        """What the mentor did for the lessons that are written and wait for a place."""
        with self._lock:
            lessons = [entry.lesson for entry in self._entries]
        return [lesson.guidance for lesson in lessons if lesson is not None and lesson.guidance is not None]

    def restore(self, saved: Any, *, with_lessons: bool = True) -> None:
        """Queue what `state` returned instead of what is queued; entries that cannot be read are logged.

        Without their lessons, the groups get new ones. None is begun before `go_on` or the next hand-over.
        """
        entries = []
        for item in saved if isinstance(saved, list) else ():
            try:
                assignment = from_plain(Assignment, item["assignment"])
                entries.append(_Entry(assignment, from_plain(Lesson | None, item["lesson"]) if with_lessons else None))
            except (KeyError, TypeError, ValueError) as error:
                logger.warning(
                    "trl-mentor: a lesson of the checkpoint cannot be read and is lost: %s", describe(error)
                )
        with self._lock:
            self._entries = entries  # more than the size, if it was lowered, leave with the next hand-over
            self._busy = set()  # threads of an earlier run end by themselves and hold no place in this one

    def go_on(self) -> None:
        """Begin with what is queued."""
        with self._lock:
            self._paused = False
            self._start_threads()

    def _start_threads(self) -> None:
        for entry in self._idle()[: self._workers - len(self._busy)]:
            thread = threading.Thread(target=self._work, args=(entry,), name="trl-mentor-ahead", daemon=True)
            if isinstance(outcome_of(thread.start), Exception):
                return  # no thread to be had now; the next hand-over tries again
            entry.started = True
            self._busy.add(thread)

    def _idle(self) -> list[_Entry]:
        """What waits for its turn, oldest first."""
        return [entry for entry in self._entries if not entry.started and entry.lesson is None]

    def _work(self, entry: _Entry | None) -> None:
        try:
            while entry is not None:
                entry = self._finish(entry, self._lesson(entry.assignment.group))
        finally:  # with an entry in hand if something like SystemExit ends the thread
            if entry is not None:
                self._finish(entry, _failed("the thread that worked on it was ended"), ends=True)

    def _lesson(self, group: CollapsedGroup) -> Lesson:
        lessons = outcome_of(lambda: self._prepare([group]))
        if isinstance(lessons, Exception):
            return _failed(describe(lessons))
        if not isinstance(lessons, list) or len(lessons) != 1 or not isinstance(lessons[0], Lesson):
            return _failed("the strategy's prepare did not return a list of one Lesson for one group")
        return lessons[0]

    def _finish(self, entry: _Entry, lesson: Lesson, *, ends: bool = False) -> _Entry | None:
        """Keep a lesson; returns what this thread is to do next, or None if it is to end."""
        with self._lock:
            entry.lesson = lesson
            goes_on = threading.current_thread() in self._busy and not (self._paused or ends)
            following = next(iter(self._idle()), None) if goes_on else None
            if following is None:
                self._busy.discard(threading.current_thread())
            else:
                following.started = True
            return following


def _failed(reason: str) -> Lesson:
    return Lesson(prompt=None, guidance=Guidance(None, HintOrigin.FAILED, reason=reason))


def _is_storable(entry: _Entry) -> bool:
    """Whether the data set row comes back from JSON as it is."""
    if entry.storable is None:
        entry.storable = survives_json(dict(entry.assignment.example))
    return entry.storable
