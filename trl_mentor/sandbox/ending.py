"""The end of a process and of all that it started."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from trl_mentor.sandbox.users import kill_user

_PATIENCE = 20.0
"""Seconds after which a process that the kernel does not let die is left to it."""


def exit_code(leader: int) -> int | None:
    """How a child ended, as `subprocess` has it, or None while it runs. Its number stays taken; others are reaped."""
    if not hasattr(os, "waitid"):
        pid, raw = os.waitpid(leader, os.WNOHANG)
        return os.waitstatus_to_exitcode(raw) if pid else None
    while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
        if ended.si_pid == leader:
            return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        os.waitpid(ended.si_pid, 0)
    return None


def end_tree(leader: int, user: int | None) -> None:
    """Kill and reap all that descends from this process: the leader, its group, its user's processes, and orphans.

    What has no user of its own is first stopped, so that it starts nothing while it is looked for.
    """
    end, pause = time.monotonic() + _PATIENCE, 0.0
    while time.monotonic() < end:
        for kill in (os.killpg, os.kill):
            with suppress(ProcessLookupError, PermissionError):
                kill(leader, signal.SIGKILL)
        if user is not None:
            kill_user(user)
        elif pause:
            _kill_descendants()
        time.sleep(pause)
        if _reap_all():
            return
        pause = min(0.05, 2 * pause + 0.0005)


def end_namespace(leader: int) -> None:
    """Kill the first process of a namespace, with which the kernel ends all others."""
    os.kill(leader, signal.SIGKILL)
    os.waitpid(leader, 0)


def _reap_all() -> bool:
    """Whether no child is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def _kill_descendants() -> None:
    stopped: set[int] = set()
    while new := _descendants() - stopped:
        _signal(new, signal.SIGSTOP)
        stopped |= new
    _signal(stopped, signal.SIGKILL)


def _signal(processes: set[int], number: int) -> None:
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)


def _descendants() -> set[int]:
    found: set[int] = set()
    pending = [os.getpid()]
    while pending:
        for task in Path(f"/proc/{pending.pop()}/task").glob("*/children"):
            with suppress(OSError):
                new = {int(pid) for pid in task.read_text("utf-8").split()} - found
                found |= new
                pending += new
    return found
