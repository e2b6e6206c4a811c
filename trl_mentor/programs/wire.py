"""The outside's end of the pipes to a process in the sandbox: orders in, lines of JSON out, never later than asked.

What comes out was written by a program that may be hostile: it is bounded, parsed as JSON, and no more.
"""

from __future__ import annotations

import ast
import json
import marshal
import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from trl_mentor.errors import MentorError
from trl_mentor.sandbox import Limits, Running, Sandbox

AGENT = ("codec", "inside", "watch", "server", "agent")
TESTER = ("codec", "inside", "handles", "tester")
"""The modules of this package that run inside, the last of which has `main`."""

_START = """
import sys, marshal, posix
def read(size):
    data = b""
    while len(data) < size:
        data += posix.read(0, size - len(data)) or sys.exit(1)
    return data
for name, code in marshal.loads(read(int.from_bytes(read(8), "big"))):
    sys.modules[name] = module = type(sys)(name)
    exec(code, module.__dict__)
module.main()
"""
_CHUNK = 2**16
START_SECONDS = 60.0
"""That Python may take to start on a busy machine."""
MEMORY_MIB = 1024
"""Address space of each process inside."""


class WireError(MentorError):
    """The process inside says nothing that can be used. The message says why."""


class LateError(WireError):
    """It has not answered in time."""


class NoStartError(MentorError):
    """The sandbox does not start Python, whatever the program is."""


class GoneError(WireError):
    """It has ended, or closed its pipe."""


class Wire:
    """Talks to one process inside the sandbox."""

    def __init__(self, running: Running) -> None:
        self._input, self._output = running.stdin.fileno(), running.stdout.fileno()
        self._poll_in, self._poll_out = select.poll(), select.poll()
        self._poll_in.register(self._input, select.POLLOUT)
        self._poll_out.register(self._output, select.POLLIN)
        os.set_blocking(self._input, False)
        self._read = bytearray()

    def send(self, order: Any, end: float) -> None:
        """Send an order, by `end` on the monotonic clock. Raises `WireError`."""
        try:
            data = marshal.dumps(order)
        except ValueError as error:  # nested too deeply
            raise WireError(f"a value cannot be handed over: {error}") from None
        left = memoryview(len(data).to_bytes(8, "big") + data)
        while left:
            self._wait(self._poll_in, end)
            try:
                left = left[os.write(self._input, left[:_CHUNK]) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise GoneError("it has closed its pipe") from error

    def line(self, end: float, most: int) -> list[Any]:
        """The next line, a JSON list that begins with a text, of at most so many bytes. Raises `WireError`."""
        searched = 0
        while (found := self._read.find(b"\n", searched)) < 0:
            searched = len(self._read)
            if searched > most:
                raise WireError(f"it wrote a line of more than {most} bytes")
            self._wait(self._poll_out, end)
            part = os.read(self._output, _CHUNK)
            if not part:
                raise GoneError("it has ended")
            self._read += part
        line = bytes(self._read[:found])
        del self._read[: found + 1]
        return parsed(line)

    def _wait(self, poll: select.poll, end: float) -> None:
        left = end - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise LateError("it did not answer in time")


def parsed(line: bytes | str) -> list[Any]:
    """A JSON list that begins with a text. Raises `WireError`."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise WireError("it wrote something that is no JSON") from None
    if not (isinstance(value, list) and value and isinstance(value[0], str)):
        raise WireError("it wrote something that is no report")
    return value


@contextmanager
def start(
    sandbox: Sandbox, modules: tuple[str, ...], order: Any, *, seconds: float, file_mib: int = 16
) -> Iterator[Wire]:
    """A process inside that has its code and its first order; everything of it is gone after the block.

    It may run for so many seconds once it has started, which a busy machine may take its time for. Raises
    `NoStartError`, and what `Sandbox` raises.
    """
    end = time.monotonic() + START_SECONDS
    limits = Limits(seconds=START_SECONDS + seconds, memory_mib=MEMORY_MIB, file_mib=file_mib)
    argv = [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-W", "ignore", "-c", _START]
    with sandbox.start(argv, files={}, limits=limits) as running:
        wire = Wire(running)
        try:
            wire.send(_codes(modules), end)
            if wire.line(end, _CHUNK) != ["ready"]:
                raise WireError("it said something else")
            wire.send(order, end)
        except WireError as error:
            raise NoStartError(f"Python does not start in the sandbox ({error}): {' '.join(argv[:-2])}") from None
        yield wire


@lru_cache(maxsize=2)
def _codes(modules: tuple[str, ...]) -> list[tuple[str, Any]]:
    names = [f"trl_mentor.programs.{name}" for name in modules]
    return [(name, _code(name)) for name in names]


def _code(name: str) -> Any:
    """A module of this package, compiled without what only annotations need, whose import would take longest."""
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    tree.body = [
        node for node in tree.body if not (isinstance(node, ast.ImportFrom) and node.module in _FOR_ANNOTATIONS)
    ]
    return compile(tree, f"<{name}>", "exec", dont_inherit=True, optimize=2)


_FOR_ANNOTATIONS = ("typing", "collections.abc")
