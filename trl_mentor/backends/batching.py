"""Concurrent calls collected into batches, for engines that do many requests at once but take one call at a time."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from trl_mentor.errors import BackendError
from trl_mentor.mentor_pool import describe, outcome_of

W = TypeVar("W")
R = TypeVar("R")

WINDOW = 0.01
"""Seconds that the first request of a batch waits for others: what is lost on a request that stays alone."""

_LONGEST_WAIT = 60.0

_LONGEST_END = 30.0
"""Seconds for which an interpreter that exits waits for what is under way."""


@dataclass(eq=False, slots=True)
class _Request(Generic[W, R]):
    work: W
    outcome: R | Exception | None = None


class Collector(Generic[W, R]):
    """Hands the requests of many threads to `run`, at most `size` at once and in the order in which they came.

    `run` gets a list of them and yields, in any order, an index into that list and a result or an exception. It is
    never called twice at once. What it raises fails the requests of that batch that have no outcome yet, and no later
    one. It runs in a daemon thread that lives as long as there are requests, so that a caller whose time is over can
    leave, and a request that nobody waits for keeps no finished program alive. But a thread that is inside of a
    library such as torch when the interpreter is gone aborts the process, so at exit it is told to stop and joined.
    """

    def __init__(self, run: Callable[[Sequence[W]], Iterable[tuple[int, R | Exception]]], *, size: int) -> None:
        self._run = run
        self._size = size
        self._waiting: list[_Request[W, R]] = []
        self._serving = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self.stopping = False
        """Whether the interpreter is about to exit; `run` should come to its end."""
        _LIVE.add(self)

    def stop(self) -> None:
        """Take no further request and let `run` know; without a lock, which a forked process may find taken."""
        self.stopping = True

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended, but at most `timeout` seconds."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(max(timeout, 0.0))

    def ask(self, work: W, *, timeout: float) -> R:
        """The result for one request, or its exception. Raises `BackendError` if there is none in `timeout` seconds.

        A request that has not begun by then never does; one that has begun runs on, and its result is dropped.
        """
        if self.stopping:
            raise BackendError("the local mentor is not asked any more: the program ends")
        if timeout <= 0:
            raise BackendError("the local mentor was out of time before it was asked")
        deadline = time.monotonic() + timeout
        request: _Request[W, R] = _Request(work)
        with self._changed:
            self._waiting.append(request)
            self._serve_or_notify()
            while request.outcome is None and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(min(left, _LONGEST_WAIT))
            if request.outcome is None and request in self._waiting:
                self._waiting.remove(request)
                raise BackendError(f"the local mentor was busy with other requests for {timeout:.1f} s")
        if request.outcome is None:
            raise BackendError(f"the local mentor ran out of time: no whole reply within {timeout:.1f} s")
        if isinstance(request.outcome, Exception):
            raise request.outcome
        return request.outcome

    def _serve_or_notify(self) -> None:
        if self._serving:
            self._changed.notify_all()
            return
        thread = threading.Thread(target=self._serve, name="mentor-batches", daemon=True)
        self._serving, self._thread = True, thread
        refused = outcome_of(thread.start)
        if isinstance(refused, Exception):
            self._serving, self._thread = False, None
            self._waiting.clear()
            raise BackendError(f"no thread for the local mentor: {describe(refused)}")

    def _serve(self) -> None:
        batch: list[_Request[W, R]] = []
        try:
            while batch := self._next_batch():
                failure = outcome_of(partial(self._work_on, batch))
                self._fail_the_rest(batch, failure)
        finally:  # without requests, unless the thread itself was ended
            if batch:
                with self._changed:
                    self._serving = False
                    batch, self._waiting = batch + self._waiting, []
                self._fail_the_rest(batch, BackendError("the thread of the local mentor ended"))

    def _next_batch(self) -> list[_Request[W, R]]:
        with self._changed:
            end = time.monotonic() + WINDOW
            while 0 < len(self._waiting) < self._size and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)
            if self.stopping:
                self._waiting.clear()
            batch, self._waiting = self._waiting[: self._size], self._waiting[self._size :]
            self._serving = bool(batch)
            return batch

    def _work_on(self, batch: Sequence[_Request[W, R]]) -> None:
        for index, outcome in self._run([request.work for request in batch]):
            with self._changed:
                batch[index].outcome = outcome
                self._changed.notify_all()

    def _fail_the_rest(self, batch: Sequence[_Request[W, R]], failure: Exception | None) -> None:
        known = isinstance(failure, BackendError)
        reason = str(failure) if known else f"the local mentor failed: {describe(failure)}"
        with self._changed:
            for request in batch:
                if request.outcome is None:
                    request.outcome = BackendError(reason)  # one each: raising one changes it
            self._changed.notify_all()


_LIVE: weakref.WeakSet[Collector[Any, Any]] = weakref.WeakSet()


def _stop_all() -> None:
    """Handlers of `atexit` run before daemon threads are stopped wherever they are."""
    collectors, end = list(_LIVE), time.monotonic() + _LONGEST_END
    for collector in collectors:
        collector.stop()
    for collector in collectors:
        collector.join(end - time.monotonic())


atexit.register(_stop_all)
