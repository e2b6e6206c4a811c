"""The tiers without namespaces: a folder on disk, a user of its own where root starts it, and filters."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from trl_mentor.sandbox import inmate, landlock, seccomp, users
from trl_mentor.sandbox.ending import end_tree
from trl_mentor.sandbox.folders import remove_tree
from trl_mentor.sandbox.kernel import DAC_OVERRIDE, DAC_READ_SEARCH, Kernel
from trl_mentor.sandbox.orders import Order, unpack

_HEADROOM = 512
"""Processes and threads above those that a user has already, where a program has no user of its own."""
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full")
_RANDOM = ("/dev/urandom", "/dev/random")


class Plain:
    """Starts and ends one program. Made in the process that looks after it."""

    def __init__(self, readable: Sequence[str], temporary: str, base: int, *, filters: bool) -> None:
        self._readable, self._filters = readable, filters
        self._kernel = Kernel() if sys.platform == "linux" else None
        self._user = users.user_of(os.getpid(), base) if users.are_given() else None
        self._landlock = landlock.version(self._kernel) if filters and self._kernel else 0
        self._capability = self._needed_capability()
        self._folder = f"{temporary}/trl-mentor-{os.urandom(8).hex()}"

    def launch(self, order: Order, file: BinaryIO, pipes: tuple[int, int, int], failure: int) -> int:
        """The number of the process that becomes the program, and leads its process group."""
        os.mkdir(self._folder, 0o711)
        try:
            for name in ("work", "home", "tmp"):
                os.mkdir(f"{self._folder}/{name}", 0o700)
                if self._user is not None:
                    os.chown(f"{self._folder}/{name}", self._user, self._user)
        except OSError:
            remove_tree(self._folder)
            raise
        return inmate.fork(lambda: self._become(order, file, pipes, failure))

    def finish(self, leader: int) -> None:
        """End every process and remove the folder."""
        end_tree(leader, self._user)
        remove_tree(self._folder)
        if self._user is not None and self._shared_memory():
            _remove_shared_memory(self._user)

    def status(self, code: int) -> int:
        """The program's status as `subprocess` has it, from that of the leader."""
        return code

    def _become(self, order: Order, file: BinaryIO, pipes: tuple[int, int, int], failure: int) -> None:
        try:
            os.setsid()
            os.chdir(f"{self._folder}/work")
            inmate.first_to_go()
            os.nice(inmate.NICENESS)
            os.umask(0o077)
            if self._user is not None and self._kernel:
                self._kernel.become(self._user, self._capability)
            elif self._user is not None:
                os.setgroups([])
                os.setgid(self._user)
                os.setuid(self._user)
            elif self._kernel and os.geteuid() == 0:
                self._kernel.drop_capabilities()
            unpack(order, file)
            inmate.take_pipes(pipes)
            inmate.bound(order.limits, self._process_limit(order.limits.processes))
            self._confine()
        except OSError as error:
            inmate.report(failure, error)
            os._exit(127)
        inmate.execute(order, self._folder, failure)

    def _confine(self) -> None:
        if self._kernel is None:
            return
        self._kernel.die_with_parent()
        self._kernel.renounce()
        if self._landlock:
            writable = [f"{self._folder}/{name}" for name in ("work", "home", "tmp")] + list(_DEVICES)
            writable += ["/dev/shm"] if self._shared_memory() else []
            readable = [*self._readable, *_RANDOM, f"/proc/{os.getpid()}"]
            landlock.restrict(self._kernel, readable=readable, writable=writable)
        if self._filters:
            own_user = self._user is not None
            bounded = own_user or self._landlock >= landlock.SCOPED_SIGNALS
            self._kernel.filter(
                seccomp.build_filter(
                    namespaces=False,
                    own_user=own_user,
                    keep_times=self._capability is not None,
                    first_process=None if bounded else os.getpid(),
                )
            )

    def _process_limit(self, processes: int) -> int | None:
        if self._user is not None:
            return processes
        return users.count_threads(os.geteuid()) + max(processes, _HEADROOM) if self._kernel else None

    def _needed_capability(self) -> int | None:
        """What lets a program of another user reach an interpreter in root's home, where Landlock bounds its use."""
        if self._user is None or not self._landlock or all(map(_open_to_all, self._readable)):
            return None
        assert self._kernel is not None
        if self._kernel.has(DAC_READ_SEARCH):
            return DAC_READ_SEARCH
        bounded = self._landlock >= landlock.BOUNDS_TRUNCATION and self._kernel.has(DAC_OVERRIDE)
        return DAC_OVERRIDE if bounded else None

    def _shared_memory(self) -> bool:
        """Whether a program may make semaphores in /dev/shm: what is there must not be open to it."""
        return self._user is not None and self._capability is None


def _open_to_all(path: str) -> bool:
    return all(folder.stat().st_mode & 1 for folder in (Path(path), *Path(path).parents) if folder.is_dir())


def _remove_shared_memory(user: int) -> None:
    with suppress(OSError):
        for entry in os.scandir("/dev/shm"):
            if entry.stat(follow_symlinks=False).st_uid == user:
                remove_tree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
