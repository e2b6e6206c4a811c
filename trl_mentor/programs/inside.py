"""What both processes inside the sandbox need: orders come in as marshalled messages, reports go out as JSON lines.

Nothing here may trust the other process of the pair: a report is data to the one outside who reads it.
"""

from __future__ import annotations

import marshal
import os
import resource
import signal
from collections.abc import Iterator
from typing import Any

PROGRAM, TESTS = "<program>", "<tests>"
"""Names of the two sources in tracebacks."""


class Pipes:
    """The pipes to the outside, moved away from the descriptors 0 to 2, which lead nowhere from then on."""

    def __init__(self) -> None:
        self.orders, self.reports = os.dup(0), os.dup(1)
        null = os.open("/dev/null", os.O_RDWR)
        for standard in range(3):
            os.dup2(null, standard)
        os.close(null)

    def receive(self) -> Any:
        """The next order. The process ends where there is none any more."""
        size = int.from_bytes(self._read(8), "big")
        return marshal.loads(self._read(size))

    def report(self, text: str) -> None:
        """Send one line of JSON."""
        data = memoryview(text.encode("ascii") + b"\n")
        while data:
            data = data[os.write(self.reports, data) :]

    def close(self) -> None:
        """In a child that has no business with the outside."""
        os.close(self.orders)
        os.close(self.reports)

    def _read(self, size: int) -> bytes:
        parts = []
        while size > 0:
            part = os.read(self.orders, min(size, 2**20))
            if not part:
                os._exit(0)
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def limit_cpu(seconds: int) -> None:
    """Let the kernel end this process after so many seconds of CPU."""
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))


def place_of(error: BaseException, source: str, file: str) -> list[Any]:
    """The number and the text of the line of a source at which an exception came up; None and "" if unknown."""
    number: int | None = None
    if isinstance(error, SyntaxError) and error.filename == file:
        number = error.lineno
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            number = trace.tb_lineno
        trace = trace.tb_next
    lines = source.split("\n")
    if number is None or not 0 < number <= len(lines):
        return [number, ""]
    return [number, lines[number - 1].strip()[:200]]


def names_in(code: Any) -> Iterator[str]:
    """Every name that code and the functions in it use, attributes among them."""
    yield from code.co_names
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            yield from names_in(constant)
