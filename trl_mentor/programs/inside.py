"""What both processes inside the sandbox need: orders come in as marshalled messages, reports go out as JSON lines.

Nothing here may trust the other process of the pair: a report is data to the one outside who reads it.
"""

from __future__ import annotations

import marshal
import os
import resource
import sys
from collections.abc import Iterator
from typing import Any

from trl_mentor.programs.codec import encode_error

PROGRAM, TESTS = "<program>", "<tests>"
"""Names of the two sources in tracebacks."""
SIGKILL, SIGXCPU = 9, 24
"""As Linux numbers them. The modules `signal`, `contextlib` and `typing` would take half of the time of a start."""


class suppress:  # noqa: N801
    """`contextlib.suppress`."""

    def __init__(self, *kinds: type[BaseException]) -> None:
        self.kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, self.kinds)


class Pipes:
    """The pipes to the outside, moved away from the descriptors 0 to 2, which lead nowhere from then on."""

    def __init__(self) -> None:
        self.orders, self.reports = os.dup(0), os.dup(1)
        null = os.open("/dev/null", os.O_RDWR)
        for standard in range(3):
            os.dup2(null, standard)
        os.close(null)
        self.report('["ready"]')

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
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))


def _place_of(error: BaseException, source: str) -> list[Any]:
    """The number and the text of the line of the program at which an exception came up; None and "" if unknown."""
    number: int | None = None
    if isinstance(error, SyntaxError) and error.filename == PROGRAM:
        number = error.lineno
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == PROGRAM:
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


def new_module(name: str, code: Any, common: dict[str, Any]) -> Any:
    """A new module that knows those of the commonly imported names that the code uses."""
    module = type(sys)(name)
    sys.modules[name] = module
    for used in {*names_in(code)} & common.keys():
        origin, attribute = common[used]
        imported = __import__(origin)
        setattr(module, used, getattr(imported, attribute) if attribute else imported)
    return module


def failure_of(error: BaseException, source: str) -> list[Any]:
    """What `verdict` says of an exception of the program: its types, its message, and where it came up."""
    return [*encode_error(error), *_place_of(error, source)]
