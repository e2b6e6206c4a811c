"""The processes that read answers, as many as this rank's share of the machine's cores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from trl_mentor.workers import Worker, WorkerError, share_of_cores

_MODULE = "trl_mentor.rewards.math_worker"
_MOST = 16
_RENEWED = 5_000
"""Questions after which a process is replaced: its tables grow by some ten KB with each."""


class MathPool:
    """Lends each process to one thread at a time. They start when needed, and anew in a forked process."""

    def __init__(self) -> None:
        self.size = min(_MOST, share_of_cores())
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._places, self._lock = threading.Semaphore(self.size), threading.Lock()
        self._idle: list[Worker] = []
        self._lent: set[Worker] = set()

    @property
    def pids(self) -> list[int]:
        """The numbers of the processes that wait for questions."""
        return [worker.process.pid for worker in self._idle]

    @contextmanager
    def lent(self) -> Iterator[Worker]:
        """A process for these lines, which end it if it is late. Waits while all are at work.

        Raises `WorkerError` or `OSError` where none can be started.
        """
        with self._places:
            worker, fine = self._taken() or self._started(), False
            try:
                yield worker
                fine = worker.alive
            finally:
                with self._lock:
                    self._lent.discard(worker)
                    fine = fine and not self._closed and worker.asked < _RENEWED
                    if fine:
                        self._idle.append(worker)
                if not fine:  # also on Ctrl-C: the answer to that question must not be taken for the next one's
                    worker.end()

    def _taken(self) -> Worker | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                worker = self._idle.pop()
                if worker.alive:
                    self._lent.add(worker)
                    return worker
            worker.end()

    def _started(self) -> Worker:
        if self._closed:
            raise WorkerError("no answers are read while the interpreter exits")
        worker = Worker(_MODULE)
        with self._lock:
            self._lent.add(worker)
        return worker

    def close(self) -> None:
        """End the processes; nothing more can be asked."""
        self._closed = True
        self.restart()

    def restart(self) -> None:
        """End the processes that wait for questions; the next question starts another."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.end()

    def forked(self) -> None:
        """Called in a forked process: processes, and threads that may hold the locks, are its parent's."""
        for worker in (*self._idle, *self._lent):
            worker.let_go()
        self._begin()
