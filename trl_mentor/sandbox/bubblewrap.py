"""Namespaces made by `bwrap`, which some machines allow where they allow no other program to make them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from trl_mentor.sandbox import inmate, seccomp, users
from trl_mentor.sandbox.ending import end_tree
from trl_mentor.sandbox.kernel import Kernel
from trl_mentor.sandbox.namespaces import BOX, folder_options
from trl_mentor.sandbox.orders import Order

_NOBODY = 1000
_HELPERS = 2
_BY_SIGNAL = 128


class Bubblewrap:
    """Starts and ends one program. Made in the process that looks after it."""

    def __init__(self, readable: Sequence[str], hidden: Sequence[str], base: int) -> None:
        self._readable, self._hidden = readable, hidden
        self._linux = Kernel()
        self._user = users.user_of(os.getpid(), base) if users.are_given() else None

    def launch(self, order: Order, file: BinaryIO, pipes: tuple[int, int, int], failure: int) -> int:
        """The number of the outer `bwrap`."""
        return inmate.fork(lambda: self._become(order, file, pipes, failure))

    def finish(self, leader: int) -> None:
        """End every process; with the outer `bwrap` goes the first process inside, and with that all others."""
        end_tree(leader, self._user)

    def status(self, code: int) -> int:
        """`bwrap` gives the end by signal N as code 128 + N; so a program's own code above 128 counts as a signal."""
        return _BY_SIGNAL - code if code > _BY_SIGNAL else code

    def _become(self, order: Order, file: BinaryIO, pipes: tuple[int, int, int], failure: int) -> None:
        try:
            os.setsid()
            inmate.first_to_go()
            os.nice(inmate.NICENESS)
            os.umask(0o022)
            arguments = ["bwrap", *self._view(), *self._box(order, file)]
            if seccomp.supported():
                arguments += ["--seccomp", str(_in_memory(seccomp.build_filter(namespaces=True)))]
            arguments += ["--", *self._limits(order), *order.argv]
            inmate.take_pipes(pipes)
            self._linux.die_with_parent()
        except OSError as error:
            inmate.report(failure, error)
            os._exit(127)
        inmate.execute(Order(arguments, order.limits, []), BOX, failure)

    def _view(self) -> list[str]:
        arguments = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
        if self._user is None:
            arguments += ["--unshare-user", "--uid", str(_NOBODY), "--gid", str(_NOBODY), "--cap-drop", "ALL"]
        else:
            arguments += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        arguments += ["--die-with-parent"]
        parents = {str(parent) for path in self._readable for parent in Path(path).parents} - {"/"}
        for path in sorted(parents - set(self._readable)):
            arguments += ["--perms", "0755", "--dir", path]
        for path in self._readable:
            arguments += ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind", path, path]
        for path in self._hidden:
            arguments += ["--tmpfs", path, "--remount-ro", path]
        return arguments

    def _box(self, order: Order, file: BinaryIO) -> list[str]:
        size = str(folder_options(order)[0])
        arguments = ["--proc", "/proc", "--dev", "/dev", "--size", size, "--perms", "1777", "--tmpfs", "/dev/shm"]
        arguments += ["--size", size, "--perms", "0755", "--tmpfs", BOX]
        for name in ("work", "home", "tmp"):
            arguments += ["--perms", "0777", "--dir", f"{BOX}/{name}"]
        if not any(path.startswith("/tmp/") for path in self._readable):
            arguments += ["--symlink", f"{BOX}/tmp", "/tmp"]
        for name, length in order.sizes:
            parts = name.split("/")
            for depth in range(1, len(parts)):
                arguments += ["--perms", "0777", "--dir", "/".join((BOX, "work", *parts[:depth]))]
            arguments += ["--perms", "0666", "--file", str(_in_memory(file.read(length))), f"{BOX}/work/{name}"]
        return [*arguments, "--chdir", f"{BOX}/work", "--remount-ro", "/"]

    def _limits(self, order: Order) -> list[str]:
        """Limits of processes count in the namespace of users, which is there only inside."""
        processes = order.limits.processes + (_HELPERS if self._user is None else 0)
        chain = inmate.limit_command(order.limits, processes)
        if self._user is not None:
            chain += ["setpriv", f"--reuid={self._user}", f"--regid={self._user}", "--clear-groups", "--inh-caps=-all"]
        return chain


def _in_memory(content: bytes) -> int:
    """A file without a name that the next program inherits, at its beginning."""
    file = os.memfd_create("file", 0)
    with open(file, "wb", closefd=False) as target:
        target.write(content)
    os.lseek(file, 0, os.SEEK_SET)
    return file
