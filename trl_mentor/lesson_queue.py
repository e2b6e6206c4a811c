"""Collapsed groups that become lessons in the background, in order of arrival. Standard library only."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trl_mentor.mentor_pool import describe, outcome_of
from trl_mentor.plain import from_plain, plain_json
from trl_mentor.records import Assignment, CollapsedGroup, Guidance, HintOrigin, Lesson, Prepared

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class _Entry:
    assignment: Assignment
    lesson: Lesson | None = None
    started: bool = False


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
        self._threads = 0
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
            left = self._idle()[: max(len(self._entries) - self._size, 0)]
            self._entries = [entry for entry in self._entries if entry not in left]
            self._start_threads()
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
            entries = [(entry.assignment, entry.lesson) for entry in self._entries]
        kept = [{"assignment": plain_json(a), "lesson": plain_json(lesson)} for a, lesson in entries if _is_plain(a)]
        if len(kept) < len(entries) and not self._warned:
            self._warned = True
            logger.warning(
                "%d of %d queued lessons are not kept in the checkpoint: their data set rows hold values that JSON "
                "cannot (dates, bytes, tensors); training is not affected",
                len(entries) - len(kept),
                len(entries),
            )
        return kept

    def restore(self, saved: Sequence[Any]) -> None:
        """Queue what `state` returned instead of what is queued, and go on; entries that cannot be read are logged."""
        entries = []
        for item in saved:
            try:
                entries.append(
                    _Entry(from_plain(Assignment, item["assignment"]), from_plain(Lesson | None, item["lesson"]))
                )
            except (KeyError, TypeError, ValueError) as error:
                logger.warning("a lesson of the checkpoint cannot be read and is lost: %s", describe(error))
        with self._lock:
            self._paused = False
            self._entries = entries  # more than the size, if it was lowered, leave with the next hand-over
            self._start_threads()

    def _start_threads(self) -> None:
        for entry in self._idle()[: self._workers - self._threads]:
            thread = threading.Thread(target=self._work, args=(entry,), name="trl-mentor-ahead", daemon=True)
            if isinstance(outcome_of(thread.start), Exception):
                return  # no thread to be had now; the next hand-over tries again
            entry.started = True
            self._threads += 1

    def _idle(self) -> list[_Entry]:
        """What waits for its turn, oldest first."""
        return [entry for entry in self._entries if not entry.started and entry.lesson is None]

    def _work(self, entry: _Entry | None) -> None:
        while entry is not None:
            outcome = outcome_of(lambda group=entry.assignment.group: self._prepare([group])[0])  # type: ignore[misc]
            if not isinstance(outcome, Lesson):
                outcome = Lesson(prompt=None, guidance=Guidance(None, HintOrigin.FAILED, reason=describe(outcome)))
            with self._lock:
                entry.lesson = outcome
                entry = None if self._paused else next(iter(self._idle()), None)
                if entry is None:
                    self._threads -= 1
                else:
                    entry.started = True


def _is_plain(assignment: Assignment) -> bool:
    """Whether the data set row comes back from JSON as it is."""
    example = dict(assignment.example)
    back = outcome_of(lambda: json.loads(json.dumps(example, allow_nan=False)))
    return bool(back == example)
