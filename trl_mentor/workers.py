"""A child process that answers questions, one JSON object per line, and can be killed where an answer is late.

What never ends in the parser of a library ends with the child: no signals and no threads of the parent are needed,
so that a question may be asked from any thread. `Worker` is the parent's side, `serve` the child's, and
`share_of_cores` how many of them to have.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from trl_mentor.errors import MentorError

_START = 30.0
"""Seconds for the child's imports, about one on a local disk."""
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""All of the environment that the child gets: no keys."""
_CODE = """
import importlib, json, sys
sys.path[:] = json.loads(sys.argv[1])
importlib.import_module(sys.argv[2]).main()
"""


def share_of_cores() -> int:
    """How many processes this one may keep busy: the cores it may use, divided among the ranks of the machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, cores // max(1, int(ranks) if ranks.isdigit() else 1))


class WorkerError(MentorError):
    """A child that answers questions cannot be started. The message says why."""


class Worker:
    """A started process that has said that it is ready. For one thread at a time."""

    def __init__(self, module: str) -> None:
        """Start `module.main()`, which is to call `serve`. Raises `WorkerError`; `OSError` without an interpreter."""
        path = json.dumps([entry for entry in sys.path if isinstance(entry, str)])
        self.process = subprocess.Popen(
            [sys.executable or "python3", "-I", "-c", _CODE, path, module],
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
            assert self.process.stdin is not None
            os.set_blocking(self.process.stdin.fileno(), False)
            ready = self._line(time.monotonic() + _START)
        finally:
            if ready is None or "error" in ready:
                self.end()
        if ready is None:
            raise WorkerError(f"the process of {module} did not start (exit status {self.process.returncode})")
        if "error" in ready:
            raise WorkerError(ready["error"])

    @property
    def alive(self) -> bool:
        """Whether the process is there to be asked."""
        return self.process.poll() is None

    def ask(self, question: Mapping[str, Any], seconds: float) -> dict[str, Any] | None:
        """The answer; None where the child is late, gone, or answers something else. Then it has to be ended."""
        self.asked += 1
        end = time.monotonic() + seconds
        with suppress(OSError, ValueError):
            if self._send(json.dumps({"id": self.asked, **question}).encode() + b"\n", end):
                answer = self._line(end)
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

    def _send(self, data: bytes, end: float) -> bool:
        """Whether all of it was taken in time; a pipe holds but 64 KB for a child that does not read."""
        assert self.process.stdin is not None
        descriptor, poll = self.process.stdin.fileno(), select.poll()
        poll.register(descriptor, select.POLLOUT)
        while data:
            if not poll.poll(_milliseconds_until(end)):
                return False
            data = data[os.write(descriptor, data) :]
        return True

    def _line(self, end: float) -> dict[str, Any] | None:
        assert self.process.stdout is not None
        line, poll = b"", select.poll()
        poll.register(self.process.stdout, select.POLLIN)
        while not line.endswith(b"\n"):
            if not poll.poll(_milliseconds_until(end)):
                return None
            read = os.read(self.process.stdout.fileno(), 65536)
            if not read:
                return None
            line += read
        answer = json.loads(line)
        return answer if isinstance(answer, dict) else None


def serve(
    answer: Callable[[dict[str, Any]], dict[str, Any]],
    *,
    warm_up: Callable[[], object],
    cpu_seconds: float,
    memory: int,
) -> None:
    """Answer until the input ends, which it does with the parent.

    A question that needs more than `cpu_seconds` of CPU ends the process, with a parent or without; `memory` (bytes)
    bounds its address space. `warm_up` does the imports; an `ImportError` there is told to the parent.
    """
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever a library prints is no answer
    _limit(memory)
    try:
        warm_up()
    except ImportError as error:
        out.write(_encoded({"error": f"{type(error).__name__}: {error}"}))
        return
    out.write(_encoded({"ready": True}))
    for line in sys.stdin.buffer:
        question = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        out.write(_encoded({**answer(question), "id": question["id"]}))
        signal.setitimer(signal.ITIMER_PROF, 0)


def _limit(memory: int) -> None:
    """Little memory, low priority, no messages, deaf to Ctrl-C, which is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    logging.disable(logging.CRITICAL)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    with suppress(OSError, ValueError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (memory if most == resource.RLIM_INFINITY else min(memory, most), most))
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with suppress(OSError):
        os.nice(5)


def _milliseconds_until(end: float) -> float:
    return max(0.0, end - time.monotonic()) * 1000


def _encoded(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"
