"""The last steps of a process before it becomes a program that nobody vouches for."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from trl_mentor.sandbox.orders import Order
from trl_mentor.sandbox.records import Limits

NICENESS = 10
FAILED = 125
"""Exit code of a process that met a fault of this package."""
_OPEN_FILES = 256
_PASSED_BY_PYTHON = (signal.SIGPIPE, signal.SIGINT, signal.SIGCHLD)


def fork(child: Callable[[], None]) -> int:
    """The number of a new process, which does `child` and ends."""
    pid = os.fork()
    if not pid:
        leave_after(child)
    return pid


def leave_after(child: Callable[[], None]) -> NoReturn:
    """Do `child` and end this process, without what an interpreter does at its end."""
    code = FAILED
    try:
        child()
        code = 0
    finally:
        os._exit(code)


def take_pipes(pipes: tuple[int, int, int]) -> None:
    """Make these files 0, 1 and 2. All others close by themselves when the program starts."""
    for number, pipe in enumerate([os.dup(pipe) if pipe < 3 else pipe for pipe in pipes]):
        os.dup2(pipe, number)


def limit_command(limits: Limits, processes: int) -> list[str]:
    """The beginning of a command line that does what `bound` does, by util-linux's `prlimit`."""
    bounds = {
        "cpu": math.ceil(limits.seconds) + 1,
        "fsize": limits.file_mib * 2**20,
        "nofile": _OPEN_FILES,
        "core": 0,
        "as": limits.memory_mib * 2**20,
        "memlock": 2**16,
        "nproc": processes,
    }
    options = [
        f"--{name}={_allowed(getattr(resource, f'RLIMIT_{name.upper()}'), value)}" for name, value in bounds.items()
    ]
    return ["prlimit", *options, "--"]


def bound(limits: Limits, processes: int | None) -> None:
    """Put the limits on this process and what it starts. `processes` counts those of its user."""
    bounds = [
        (resource.RLIMIT_CPU, math.ceil(limits.seconds) + 1),
        (resource.RLIMIT_FSIZE, limits.file_mib * 2**20),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    ]
    if sys.platform == "linux":
        bounds += [(resource.RLIMIT_AS, limits.memory_mib * 2**20), (resource.RLIMIT_MSGQUEUE, 0)]
        bounds += [(resource.RLIMIT_MEMLOCK, 2**16), (resource.RLIMIT_SIGPENDING, 256)]
    if processes is not None:
        bounds.append((resource.RLIMIT_NPROC, processes))
    for what, value in bounds:
        value = _allowed(what, value)
        resource.setrlimit(what, (value, value))


def _allowed(what: int, value: int) -> int:
    """A limit, or the lower one that this process has already and may not raise."""
    hard = resource.getrlimit(what)[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


def first_to_go() -> None:
    """Where memory runs out, the kernel takes this process before the training."""
    with suppress(OSError):
        write_process_file("oom_score_adj", "1000")


def write_process_file(name: str, text: str) -> None:
    """Write a setting of this process. In a new namespace of users a file in /proc cannot be truncated."""
    file = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def execute(order: Order, folder: str, failure: int) -> None:
    """Become the program, with nothing of this process but its number. Says on `failure` why it could not."""
    for number in _PASSED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.execvpe(order.argv[0], order.argv, order.environment(folder))
    except (OSError, ValueError) as error:
        report(failure, error)
        os._exit(127)


def report(failure: int, error: Exception) -> None:
    """Say why no program was started."""
    with suppress(OSError):
        os.write(failure, json.dumps(f"{type(error).__name__}: {error}").encode())
