"""The parent's side of the process that reads expressions (`math_worker`): one child, killed when it is late."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from trl_mentor.errors import MentorError

_START = 30.0
"""Seconds for the child's imports, about one on a local disk."""
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
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""All of the environment that the child gets: no keys."""
_CODE = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from trl_mentor.leaks.math_worker import main
main()
"""


class MathProcessError(MentorError):
    """The process that reads expressions cannot be used. The message says why."""


class MathProcess:
    """Asks one child, from any thread. It begins with the first question, and anew in a forked process.

    Answers are kept, and so is it that an expression got none: nothing is waited for twice.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: _Child | None = None
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
            answer = child.ask(text)
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

    def _running(self) -> _Child:
        if self._child is not None:
            if self._child.process.poll() is None and self._child.asked < _RENEWED:
                return self._child
            self._child.end()
            self._child = None
        if self._closed:
            raise MathProcessError("no expressions are compared while the interpreter exits")
        wait = self._paused_until - time.monotonic()
        if wait > 0:
            raise MathProcessError(f"no expressions are compared for {wait:.0f} s: {_ROW} times {self._reason}")
        try:
            self._child = _Child()
        except (MathProcessError, OSError) as error:
            self._lose(str(error))
            raise
        return self._child

    def _lose(self, reason: str) -> None:
        self._lost, self._reason = self._lost + 1, reason
        if self._lost >= _ROW:
            self._paused_until = time.monotonic() + _PAUSE


class _Child:
    """A started process that has said that it is ready."""

    def __init__(self) -> None:
        path = json.dumps([entry for entry in sys.path if isinstance(entry, str)])
        self.process = subprocess.Popen(
            [sys.executable or "python3", "-I", "-c", _CODE, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
            process_group=0,  # out of reach of a terminal's Ctrl-C
        )
        self.asked = 0
        ready: dict[str, Any] | None = None
        try:
            ready = self._line(_START)
        finally:
            if ready is None or "error" in ready:
                self.end()
        if ready is None:
            raise MathProcessError(
                f"the process that reads expressions did not start (exit status {self.process.returncode});"
                " does `python -c 'import math_verify'` work?"
            )
        if "error" in ready:
            raise MathProcessError(f"expressions cannot be read: {ready['error']}")

    def ask(self, text: str) -> dict[str, Any] | None:
        """The answer; None where the child is late, gone, or answers something else. Then it has to be ended."""
        self.asked += 1
        assert self.process.stdin is not None
        with suppress(OSError, ValueError):
            self.process.stdin.write(json.dumps({"id": self.asked, "text": text}).encode() + b"\n")
            answer = self._line(_LIMIT)
            return answer if answer is not None and answer.get("id") == self.asked else None
        return None

    def end(self) -> None:
        """Kill it and leave no zombie."""
        self.process.kill()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        self._close_pipes()

    def let_go(self) -> None:
        """Drop what a fork copied: the process is not this one's to wait for, and must see the end of its parent."""
        self.process.returncode = 0
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _line(self, seconds: float) -> dict[str, Any] | None:
        assert self.process.stdout is not None
        end, line, poll = time.monotonic() + seconds, b"", select.poll()
        poll.register(self.process.stdout, select.POLLIN)
        while not line.endswith(b"\n"):
            if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
                return None
            read = os.read(self.process.stdout.fileno(), 65536)
            if not read:
                return None
            line += read
        answer = json.loads(line)
        return answer if isinstance(answer, dict) else None
