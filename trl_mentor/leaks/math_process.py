"""The parent's side of the process that reads expressions (`math_worker`): one child, killed when it is late."""

from __future__ import annotations

import threading
import time
from typing import Any

from trl_mentor.errors import MentorError
from trl_mentor.workers import Worker, WorkerError

_LIMIT = 10.0
"""Seconds for an answer. The child ends itself after one second of CPU; only a starved or stopped one is so late."""
_PATIENCE = 35.0
"""Seconds to wait for other threads' requests, which are over in milliseconds but for the first and the lost ones."""
_ROW, _PAUSE = 3, 30.0
"""After so many lost children in a row none is started for so many seconds."""
_RENEWED = 10_000
"""Questions after which a child is replaced: its tables grow by some ten KB with each."""
_MOST = 4096
_LONGEST = 1000


class MathProcessError(MentorError):
    """The process that reads expressions cannot be used. The message says why."""


class MathProcess:
    """Asks one child, from any thread. It begins with the first question, and anew in a forked process.

    Answers are kept, and so is it that an expression got none: nothing is waited for twice.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: Worker | None = None
        self._answers: dict[str, dict[str, Any]] = {}
        self._lost, self._reason = 0, ""
        self._paused_until = 0.0
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The child's number, if there is one."""
        child = self._child
        return None if child is None else child.process.pid

    def ask(self, text: str) -> dict[str, Any] | None:
        """What `math_worker.read` returns. Raises `TimeoutError` where an expression or the others' do not end.

        Raises `MathProcessError` or `OSError` where there is no child to ask, `ValueError` for what cannot be read.
        """
        if len(text) > _LONGEST:
            raise ValueError(f"got an expression of {len(text)} characters, expected at most {_LONGEST}")
        answer = self._answers.get(text)
        if answer is None:
            if not self._lock.acquire(timeout=_PATIENCE):
                raise TimeoutError(f"other threads have compared expressions for more than {_PATIENCE:g} s")
            try:
                answer = self._answers.get(text) or self._new_answer(text)
            finally:
                self._lock.release()
        if "lost" in answer:
            raise TimeoutError(answer["lost"])
        if "error" in answer:
            raise ValueError(answer["error"])
        read: dict[str, Any] | None = answer["read"]
        return read

    def close(self) -> None:
        """End the child; nothing more can be asked."""
        self._closed = True
        self.restart()

    def restart(self) -> None:
        """End the child and forget the answers; the next question starts another."""
        child, self._child = self._child, None
        self._answers, self._lost, self._paused_until = {}, 0, 0.0
        if child is not None:
            child.end()

    def forked(self) -> None:
        """Called in a forked process: the child and the threads that may hold the lock are its parent's."""
        child, self._child, self._lock = self._child, None, threading.Lock()
        if child is not None:
            child.let_go()

    def _new_answer(self, text: str) -> dict[str, Any]:
        child, answer = self._running(), None
        try:
            answer = child.ask({"text": text}, _LIMIT)
        finally:
            if answer is None:  # also on Ctrl-C: the answer to this question must not be taken for the next one's
                self._child = None
                child.end()
        if answer is None:
            self._lose("an expression took too long")
            answer = {"lost": "an expression takes too long to read, or ended the process that reads it"}
        else:
            self._lost = 0
        while len(self._answers) >= _MOST:
            del self._answers[next(iter(self._answers))]
        self._answers[text] = answer
        return answer

    def _running(self) -> Worker:
        if self._child is not None:
            if self._child.alive and self._child.asked < _RENEWED:
                return self._child
            self._child.end()
            self._child = None
        if self._closed:
            raise MathProcessError("no expressions are compared while the interpreter exits")
        wait = self._paused_until - time.monotonic()
        if wait > 0:
            raise MathProcessError(f"no expressions are compared for {wait:.0f} s: {_ROW} times {self._reason}")
        try:
            self._child = Worker("trl_mentor.leaks.math_worker")
        except OSError as error:
            self._lose(str(error))
            raise
        except WorkerError as error:
            self._lose(str(error))
            raise MathProcessError(
                f"expressions cannot be read: {error}; does `python -c 'import math_verify'` work?"
            ) from error
        return self._child

    def _lose(self, reason: str) -> None:
        self._lost, self._reason = self._lost + 1, reason
        if self._lost >= _ROW:
            self._paused_until = time.monotonic() + _PAUSE
