"""Users without rights for programs that root starts."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from trl_mentor.sandbox.inmate import fork

_FIRST, _BITS = 64, 22
"""User numbers begin at 64 << 22, above all that is handed out by habit; a process number has 22 bits."""

_SPARE = 1 << 31
_ENOUGH = 65536
"""Users of a container whose root can give programs another one. Often it has but one, which is its root."""


def are_given() -> bool:
    """Whether programs get users of their own, which takes root and others for it to become."""
    return os.geteuid() == 0 and _users() >= _ENOUGH


def pick_base() -> int:
    """A number for one starting process; with a process number in its low bits it is a user of one sandbox."""
    return (_FIRST + int.from_bytes(os.urandom(2)) % 384) << _BITS


def user_of(keeper: int, base: int) -> int:
    """The user for the sandbox that process `keeper` looks after, which no other one has while that lives.

    In a container whose users are few two could meet, whose process numbers are tens of thousands apart.
    """
    few = _users()
    return base | keeper if few > base | keeper else 32768 + keeper % max(1, few - 32768 - 2)


def kill_user(user: int) -> None:
    """End every process of a user, at one moment, so that none of them can start another.

    Who does it has that user's rights and, where there are enough users, is another one, whom they cannot kill first.
    """

    def kill() -> None:
        if sys.platform == "linux" and user >= _FIRST << _BITS:
            os.setresuid(user + _SPARE, user, user + _SPARE)
        else:
            os.setuid(user)
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)

    with suppress(ChildProcessError):
        os.waitpid(fork(kill), 0)


def count_threads(user: int) -> int:
    """Processes and threads that a user has."""
    found = 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):
                if entry.stat().st_uid == user:
                    found += os.stat(f"/proc/{entry.name}/task").st_nlink - 2
    return found


def _users() -> int:
    """How many users there are, from 0 on without a gap."""
    with suppress(OSError, ValueError):
        lines = Path("/proc/self/uid_map").read_text(encoding="utf-8").splitlines()
        end = 0
        for inside, _, length in sorted(tuple(map(int, line.split())) for line in lines):
            end = inside + length if inside <= end else end
        return end
    return _ENOUGH
