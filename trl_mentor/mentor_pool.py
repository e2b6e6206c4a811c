"""Daemon threads that do a batch of jobs under one deadline. Standard library only.

`concurrent.futures` joins its threads when the interpreter exits, so one hung request would keep a finished run alive.
Daemon threads do not. A thread whose call hangs past the deadline is abandoned: it keeps its slot until the call
returns, and its result is dropped.
"""

from __future__ import annotations

import re
import threading
import time
import unicodedata
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from trl_mentor.errors import BackendError
from trl_mentor.quoting import clean_text

T = TypeVar("T")

_LONGEST_WAIT = 60.0
_MAX_ERROR_CHARS = 400
_CREDENTIAL = re.compile(r"(?<=bearer )\S+|\bsk-[\w-]{6,}|(?<=://)[^/@\s]{1,200}(?=@)", re.IGNORECASE)


class Clock:
    """The seconds that a batch has left; none once it is cancelled."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds
        self.cancelled = False

    def left(self) -> float:
        return 0.0 if self.cancelled else max(0.0, self._end - time.monotonic())


@dataclass
class _Batch(Generic[T]):
    clock: Clock
    waiting: deque[tuple[int, Callable[[], T]]]
    results: dict[int, T | Exception] = field(default_factory=dict)
    running: int = 0


class MentorPool:
    """At most `size` jobs at once, over all batches; safe to use from several threads."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._busy = 0
        self._abandoned = 0
        self._changed = threading.Condition()

    def run(self, jobs: Sequence[Callable[[], T]], clock: Clock) -> list[T | Exception | None]:
        """For each job its result, the exception it raised, or None if the clock ran out first.

        If abandoned jobs of earlier batches hold every slot, jobs that have not started get a `BackendError` at once.
        """
        batch: _Batch[T] = _Batch(clock, deque(enumerate(jobs)))
        with self._changed:
            try:
                while self._start_waiting(batch) and (left := clock.left()) > 0:
                    self._changed.wait(min(left, _LONGEST_WAIT))
            finally:
                clock.cancelled = True
                self._abandoned += batch.running
            return [batch.results.get(index) for index in range(len(jobs))]

    def wake(self) -> None:
        """Let every `run` look at its clock, which somebody has cancelled."""
        with self._changed:
            self._changed.notify_all()

    def _start_waiting(self, batch: _Batch[T]) -> bool:
        """Start what there are slots for; whether there is anything left to wait for."""
        while batch.waiting and self._busy < self._size and batch.clock.left() > 0:
            index, job = batch.waiting.popleft()
            thread = threading.Thread(target=self._work, args=(batch, index, job), name="trl-mentor", daemon=True)
            refused = outcome_of(thread.start)
            if isinstance(refused, Exception):
                batch.results[index] = refused
                continue
            self._busy += 1
            batch.running += 1
        if batch.waiting and not batch.running and self._abandoned >= self._size:
            error = BackendError(f"all {self._size} slots are held by calls of earlier batches that never returned")
            batch.results.update((index, error) for index, _ in batch.waiting)
            batch.waiting.clear()
        return bool(batch.waiting or batch.running)

    def _work(self, batch: _Batch[T], index: int, job: Callable[[], T]) -> None:
        outcome: T | Exception = BackendError("the thread ended without a result")
        try:
            outcome = outcome_of(job)
        finally:
            with self._changed:
                self._busy -= 1
                batch.running -= 1
                if batch.clock.cancelled:
                    self._abandoned -= 1
                else:
                    batch.results[index] = outcome
                self._changed.notify_all()


def outcome_of(job: Callable[[], T]) -> T | Exception:
    """What the job returns or raises: the one place where the errors of a mentor end."""
    try:
        return job()
    except Exception as error:
        return error


def describe(outcome: object) -> str:
    """Type and message of an error, as `one_line`."""
    if not isinstance(outcome, Exception):
        return f"the backend returned {type(outcome).__name__} where a Reply was expected"
    message = outcome_of(lambda: str(outcome)[: 10 * _MAX_ERROR_CHARS])
    text = f"{type(outcome).__name__}: {message if isinstance(message, str) else 'no readable message'}"
    return one_line(text, _MAX_ERROR_CHARS)


def one_line(text: str, limit: int) -> str:
    """The beginning of a foreign text in one bounded line, with what looks like a credential taken out.

    Characters that would steer a terminal or turn the direction of its text are left out: an endpoint may send them.
    """
    line = " ".join(clean_text(text[: 20 * limit]).split())
    seen = "".join(char for char in line if unicodedata.category(char) not in ("Cc", "Cf"))
    return _CREDENTIAL.sub("[removed]", seen)[:limit]
