"""Hands a program to the process that starts programs, and its output to the caller."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Any

from trl_mentor.errors import ConfigError
from trl_mentor.sandbox.orders import write_order
from trl_mentor.sandbox.records import Ending, Isolation, Limits, Result
from trl_mentor.sandbox.talk import Talk
from trl_mentor.sandbox.warden import Warden

_PATIENCE = 60.0
"""Seconds beyond its time limit for the end of a program and the removal of what it left."""
_CHUNK = 65536


class Running:
    """A program that runs: its raw pipes, and its end on demand."""

    def __init__(self, stdin: IO[bytes], stdout: IO[bytes], answer: socket.socket) -> None:
        self.stdin, self.stdout = stdin, stdout
        self._answer = answer

    def kill(self) -> None:
        """End every process of it now."""
        with suppress(OSError):
            self._answer.shutdown(socket.SHUT_WR)


class Launcher:
    """Starts programs in one tier, whether or not the machine should; thread-safe."""

    def __init__(self, isolation: Isolation) -> None:
        self._warden = Warden(isolation)

    def run(self, argv: Sequence[str], files: Mapping[str, bytes], stdin: bytes, limits: Limits) -> Result:
        """See `Sandbox.run`. Raises `OSError` where nothing can be started."""
        with ExitStack() as stack:
            (feed, out, err), answer = self._start(stack, argv, files, limits, ("in", "out", "out"))
            talk = Talk(feed, (out, err), answer, stdin, limits.output_bytes)
            report = b""
            try:
                report = talk.until_the_end(limits.seconds + _PATIENCE)
            finally:
                if not report:  # Ctrl-C, or late beyond all patience
                    _dismiss(answer)
        return _result(_read_report(report), talk, argv, limits)

    @contextmanager
    def start(self, argv: Sequence[str], files: Mapping[str, bytes], limits: Limits) -> Iterator[Running]:
        """See `Sandbox.start`. Raises `OSError` where nothing can be started."""
        with ExitStack() as stack:
            (feed, out, _), answer = self._start(stack, argv, files, limits, ("in", "out", "none"))
            running = Running(feed, out, answer)
            try:
                yield running
            finally:
                _check_started(_read_report(_dismiss(answer)), argv)

    def close(self) -> None:
        self._warden.close()

    def _start(
        self,
        stack: ExitStack,
        argv: Sequence[str],
        files: Mapping[str, bytes],
        limits: Limits,
        pipes: tuple[str, str, str],
    ) -> tuple[list[IO[bytes]], socket.socket]:
        ours: list[IO[bytes]] = []
        answer, theirs = socket.socketpair()
        stack.enter_context(_closed_quietly(answer))
        with ExitStack() as handed:
            handed.enter_context(theirs)
            order = handed.enter_context(tempfile.TemporaryFile())
            write_order(order, argv, files, limits)
            numbers = []
            for direction in pipes:
                mine, other = _pipe(direction)
                ours.append(stack.enter_context(_closed_quietly(mine)))
                numbers.append(handed.enter_context(other).fileno())
            self._warden.ask([*numbers, theirs.fileno(), order.fileno()])
        return ours, answer


def _dismiss(answer: socket.socket) -> bytes:
    """End a program and wait until nothing of it is left; what is said of it."""
    report = b""
    with suppress(OSError):
        answer.shutdown(socket.SHUT_WR)
        answer.settimeout(_PATIENCE)
        while part := answer.recv(_CHUNK):
            report += part
    return report


def _read_report(data: bytes) -> dict[str, Any]:
    """What the process that looked after a program says of it. Raises `OSError` where it says nothing."""
    try:
        report: dict[str, Any] = json.loads(data)
    except ValueError:
        raise OSError("the process that looked after a program is gone; does the machine run out of memory?") from None
    return report


def _check_started(report: dict[str, Any], argv: Sequence[str]) -> None:
    error = report["error"]
    if error is None:
        return
    if error.startswith(("FileNotFoundError", "PermissionError", "NotADirectoryError")) and repr(argv[0]) in error:
        raise ConfigError(
            f"cannot start {argv[0]!r} in a sandbox ({error}); programs of root run as a user without rights,"
            " so it has to be outside of root's home, or namespaces allowed (docs/sandbox.md)"
        )
    raise OSError(f"cannot start a sandbox: {error}")


def _result(report: dict[str, Any], talk: Talk, argv: Sequence[str], limits: Limits) -> Result:
    _check_started(report, argv)
    code, ending = report["status"], Ending.EXITED
    if talk.too_much:
        ending = Ending.TOO_MUCH_OUTPUT
    elif report["late"]:
        ending = Ending.TIMED_OUT
    elif code is None or code < 0:
        ending = Ending.KILLED
    out, err = (bytes(data[: limits.output_bytes]) for data in talk.outputs)
    return Result(ending, code if ending is Ending.EXITED else None, out, err, report["seconds"])


def _pipe(direction: str) -> tuple[IO[bytes], IO[bytes]]:
    """The caller's end and the program's, unbuffered."""
    if direction == "none":
        return open(os.devnull, "rb", buffering=0), open(os.devnull, "wb", buffering=0)
    reader, writer = os.pipe()
    readable, writable = os.fdopen(reader, "rb", 0), os.fdopen(writer, "wb", 0)
    return (writable, readable) if direction == "in" else (readable, writable)


@contextmanager
def _closed_quietly(file: Any) -> Iterator[Any]:
    try:
        yield file
    finally:
        with suppress(OSError):
            file.close()
