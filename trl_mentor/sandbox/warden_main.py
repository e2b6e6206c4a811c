"""The process that starts programs: small, without threads, so that a fork of it is quick and safe.

For each request it forks a keeper, which starts one program, ends it with all that it started, and says how it ended.
A request is one byte with five files: the program's standard input, output and error, a socket that lives as long as
somebody wants the program to run, and the order. Both end when the process that asked is gone.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any, BinaryIO, NoReturn, Protocol

from trl_mentor.sandbox import inmate, namespaces, users
from trl_mentor.sandbox.bubblewrap import Bubblewrap
from trl_mentor.sandbox.ending import exit_code
from trl_mentor.sandbox.kernel import Kernel
from trl_mentor.sandbox.orders import Order, read_order
from trl_mentor.sandbox.packages import package_folders
from trl_mentor.sandbox.plain import Plain
from trl_mentor.sandbox.records import Isolation

_FILES = 5
_PAUSE = 3600.0
"""Seconds to wait at once: the kernel's own limit is 24 days."""


class Tier(Protocol):
    """One way to start and end a program."""

    def launch(self, order: Order, file: BinaryIO, pipes: tuple[int, int, int], failure: int) -> int: ...
    def finish(self, leader: int) -> None: ...
    def status(self, code: int) -> int: ...


def main(setting: dict[str, Any], control: int, parent: int) -> None:
    """Serve requests on socket `control` until process `parent` or the socket's other end is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.umask(0o022)
    base, isolation = users.pick_base(), Isolation(setting["isolation"])
    setting["hidden"] = package_folders(setting["readable"])
    asked = socket.socket(fileno=control)
    poll = select.poll()
    poll.register(asked, select.POLLIN)
    watched = _watch(parent)
    if watched is not None:
        poll.register(watched, select.POLLIN)
    if isolation is Isolation.NAMESPACES:
        namespaces.prepare(setting["readable"], setting["hidden"], setting["temporary"])
    gc.disable()  # a collection in a forked process would touch, and so copy, all that it shares with this one
    asked.send(b"r")
    while True:
        if any(file == watched for file, _ in poll.poll()):
            return
        said, files, _, _ = socket.recv_fds(asked, 1, _FILES)
        if not said:
            return
        with suppress(OSError):  # no more processes: whoever asked finds the socket closed
            if len(files) == _FILES and not os.fork():
                asked.close()
                _keep(setting, isolation, base, files, watched)
        for file in files:
            os.close(file)


def _watch(process: int) -> int | None:
    """A file that can be read from when a process has ended, where the system has such files."""
    try:
        return os.pidfd_open(process) if sys.platform == "linux" else None
    except OSError:
        return None


def _keep(setting: dict[str, Any], isolation: Isolation, base: int, files: list[int], asker: int | None) -> NoReturn:
    inmate.leave_after(lambda: _look_after(setting, isolation, base, files, asker))


def _look_after(setting: dict[str, Any], isolation: Isolation, base: int, files: list[int], asker: int | None) -> None:
    for file in files:
        os.set_inheritable(file, False)
    pipes, answer = (files[0], files[1], files[2]), socket.socket(fileno=files[3])
    try:
        report = _run(_tier(setting, isolation, base), pipes, answer, files[4], asker)
    except (OSError, ValueError) as error:
        report = {"error": f"{type(error).__name__}: {error}"}
    with suppress(OSError):
        answer.sendall(json.dumps(report).encode())


def _tier(setting: dict[str, Any], isolation: Isolation, base: int) -> Tier:
    if isolation is Isolation.NAMESPACES:
        return namespaces.Namespaces(base)
    if isolation is Isolation.BUBBLEWRAP:
        return Bubblewrap(setting["readable"], setting["hidden"], base)
    filters = isolation is Isolation.FILTER
    return Plain(setting["readable"], setting["temporary"], base, filters=filters)


def _run(
    tier: Tier, pipes: tuple[int, int, int], answer: socket.socket, order_file: int, asker: int | None
) -> dict[str, Any]:
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker)
    if sys.platform == "linux":
        Kernel().adopt_orphans()
    failed, failure = os.pipe()
    with open(order_file, "rb") as file:
        order = read_order(file)
        began = time.monotonic()
        leader = tier.launch(order, file, pipes, failure)
    for pipe in (*pipes, failure):
        os.close(pipe)
    try:
        code = _wait(
            leader, wake, [answer.fileno(), *([] if asker is None else [asker])], began + order.limits.seconds
        )
        seconds = time.monotonic() - began
    finally:
        tier.finish(leader)
    error = os.read(failed, 4096)
    return {
        "error": json.loads(error) if error else None,
        "status": None if code is None else tier.status(code),
        "seconds": seconds,
        "late": code is None and seconds >= order.limits.seconds,
    }


def _wait(leader: int, wake: int, unwanted: list[int], end: float) -> int | None:
    """The leader's exit code; None where its time is up, or one of `unwanted` says that nobody waits for it."""
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    for file in unwanted:
        poll.register(file, select.POLLIN)
    while (left := end - time.monotonic()) > 0:
        ready = {file for file, _ in poll.poll(min(left, _PAUSE) * 1000 + 1)}
        if wake in ready:
            with suppress(BlockingIOError):
                os.read(wake, 4096)
        if (code := exit_code(leader)) is not None:
            return code
        if ready.intersection(unwanted):
            return None
    return exit_code(leader)
