"""Linux namespaces, made here: processes, network and mounts of its own for each program.

They all see the same system, read-only. That view is made once, by the process that starts the programs; each program
adds a /proc and a folder in memory.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from trl_mentor.sandbox import inmate, kernel, seccomp, users
from trl_mentor.sandbox.ending import end_namespace
from trl_mentor.sandbox.kernel import Kernel
from trl_mentor.sandbox.orders import Order, unpack

BOX = "/box"
_PER_PROGRAM = kernel.NAMESPACES & ~kernel.NEW_USER
_INSIDE = 1000
"""The user inside where an ordinary user starts the programs; it is that user outside."""
_HELPERS = 2
"""Processes of that user in the namespace besides the program's."""
_DEVICES = ("null", "zero", "full", "random", "urandom")
_QUIET = kernel.NO_SUID | kernel.NO_DEVICES


def folder_options(order: Order) -> tuple[int, int]:
    """Bytes and files of the folder in memory: four of the largest files, beside those that are put in."""
    size = 4 * order.limits.file_mib * 2**20 + sum(size for _, size in order.sizes)
    return max(size, 2**24), 16384 + 2 * len(order.sizes)


def prepare(readable: Sequence[str], hidden: Sequence[str], temporary: str) -> None:
    """Leave this process no other files than these, all read-only, without those folders in them. For good."""
    own, group, linux = os.geteuid(), os.getegid(), Kernel()
    if not users.are_given():
        linux.unshare(kernel.NEW_USER)
        _map_user(own, group)
    elif not linux.has(kernel.SYS_ADMIN):
        _enter_same_users(linux)
    linux.unshare(kernel.NEW_MOUNTS)
    linux.mount("none", "/", "", kernel.PRIVATE | kernel.RECURSIVE)
    sources = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in readable if not os.path.islink(path)]
    devices = [(name, os.open(f"/dev/{name}", os.O_PATH | os.O_CLOEXEC)) for name in _DEVICES]
    process_files = os.open("/proc", os.O_PATH | os.O_CLOEXEC)
    links = [(path, os.readlink(path)) for path in readable if os.path.islink(path)]
    linux.mount("tmpfs", temporary, "tmpfs", _QUIET, "mode=0755,size=1m")
    root = temporary.rstrip("/")
    for path, source in sources:
        _bind(linux, source, root + path)
        linux.make_read_only(root + path)
    for path in hidden:
        linux.mount("tmpfs", root + path, "tmpfs", _QUIET | kernel.READ_ONLY, "size=4k")
    for path, target in links:
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        if not os.path.lexists(root + path):
            os.symlink(target, root + path)
    for name, source in devices:
        _bind(linux, source, f"{root}/dev/{name}")
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(target, f"{root}/dev/{name}")
    os.makedirs(root + "/dev/shm")
    os.makedirs(root + BOX)
    _bind(linux, process_files, root + "/proc")
    if not os.path.lexists(root + "/tmp"):
        os.symlink(f"{BOX}/tmp", root + "/tmp")
    for _, source in [*sources, *devices, ("", process_files)]:
        os.close(source)
    os.chdir(temporary)
    linux.change_root()
    linux.make_read_only("/", alone=True)


class Namespaces:
    """Starts and ends one program. Made in the process that looks after it, after `prepare`."""

    def __init__(self, base: int) -> None:
        self._linux = Kernel()
        self._user = users.user_of(os.getpid(), base) if users.are_given() else None
        self._said, self._say = os.pipe()

    def launch(self, order: Order, file: BinaryIO, pipes: tuple[int, int, int], failure: int) -> int:
        """The number of the first process in the namespaces, which waits for the program."""
        if self._user is None:
            user, group = os.geteuid(), os.getegid()
            self._linux.unshare(_PER_PROGRAM | kernel.NEW_USER)
            _map_user(user, group)
        else:
            self._linux.unshare(_PER_PROGRAM)
        pid = inmate.fork(lambda: self._wait_for_program(order, file, pipes, failure))
        os.close(self._say)
        return pid

    def finish(self, leader: int) -> None:
        """End every process; with the last one the mounts go."""
        end_namespace(leader)

    def status(self, code: int) -> int:
        """The program's status as `subprocess` has it; -9 where the kernel took the process that waited for it."""
        said = os.read(self._said, 4)
        return os.waitstatus_to_exitcode(struct.unpack("=i", said)[0]) if len(said) == 4 else -9

    def _wait_for_program(self, order: Order, file: BinaryIO, pipes: tuple[int, int, int], failure: int) -> None:
        try:
            self._linux.die_with_parent()
            inmate.first_to_go()
            self._linux.hide()
            self._mount(order)
            program = inmate.fork(lambda: self._become(order, file, pipes, failure))
        except OSError as error:
            inmate.report(failure, error)
            return
        for pipe in (*pipes, failure):
            os.close(pipe)
        while True:
            pid, raw = os.wait()
            if pid == program:
                os.write(self._say, struct.pack("=i", raw))
                return

    def _mount(self, order: Order) -> None:
        size, files = folder_options(order)
        self._linux.mount("tmpfs", BOX, "tmpfs", _QUIET, f"mode=0755,size={size},nr_inodes={files}")
        for name in ("work", "home", "tmp", "shm"):
            os.mkdir(f"{BOX}/{name}", 0o700)
            if self._user is not None:
                os.chown(f"{BOX}/{name}", self._user, self._user)
        self._linux.mount(f"{BOX}/shm", "/dev/shm", "", kernel.BIND)
        try:
            self._linux.mount("proc", "/proc", "proc", _QUIET | kernel.NO_EXEC)
        except OSError:  # a container that hides parts of its own /proc gets no other one
            self._linux.mount("tmpfs", "/proc", "tmpfs", _QUIET | kernel.READ_ONLY, "size=4k")

    def _become(self, order: Order, file: BinaryIO, pipes: tuple[int, int, int], failure: int) -> None:
        try:
            os.setsid()
            os.chdir(f"{BOX}/work")
            os.nice(inmate.NICENESS)
            os.umask(0o077)
            if self._user is not None:
                self._linux.become(self._user)
            unpack(order, file)
            inmate.take_pipes(pipes)
            inmate.bound(order.limits, order.limits.processes + (_HELPERS if self._user is None else 0))
            self._linux.renounce()
            if seccomp.supported():
                self._linux.filter(seccomp.build_filter(namespaces=True))
        except OSError as error:
            inmate.report(failure, error)
            os._exit(127)
        inmate.execute(order, BOX, failure)


def _map_user(user: int, group: int) -> None:
    """Say which user of the outside this process's user in a new namespace is."""
    inside = user if user == _INSIDE else _INSIDE
    for name, text in (("setgroups", "deny"), ("uid_map", f"{inside} {user} 1"), ("gid_map", f"{inside} {group} 1")):
        inmate.write_process_file(name, text)


def _enter_same_users(linux: Kernel) -> None:
    """Let root of a container, which may make no other namespaces, be root of one that has the same users."""
    process, (ready, start) = os.getpid(), os.pipe()

    def map_users() -> None:
        os.close(start)
        if not os.read(ready, 1):
            return
        for name in ("uid_map", "gid_map"):
            ranges = [line.split() for line in Path("/proc/self", name).read_text("utf-8").splitlines()]
            text = "".join(f"{inside} {inside} {length}\n" for inside, _, length in ranges)
            file = os.open(f"/proc/{process}/{name}", os.O_WRONLY | os.O_CLOEXEC)
            os.write(file, text.encode())

    helper = inmate.fork(map_users)
    try:
        linux.unshare(kernel.NEW_USER)
        os.write(start, b"x")
    finally:  # the helper ends where there is nothing to map
        os.close(start)
        os.close(ready)
        with suppress(ChildProcessError):
            os.waitpid(helper, 0)


def _bind(linux: Kernel, source: int, target: str) -> None:
    """Show an opened file or folder in another place, which is made."""
    if stat.S_ISDIR(os.fstat(source).st_mode):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    linux.mount(f"/proc/self/fd/{source}", target, "", kernel.BIND | kernel.RECURSIVE)
