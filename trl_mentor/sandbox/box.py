"""One program in a temporary folder of its own, under limits, and dead with all that it started at the end."""

from __future__ import annotations

import os
import resource
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from trl_mentor.sandbox.records import Ending, Isolation, Limits, Result

_CHUNK = 65536


class Running:
    """A program that runs: its raw pipes, and its end on demand."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self.stdin: IO[bytes] = process.stdin
        self.stdout: IO[bytes] = process.stdout
        self.stderr: IO[bytes] = process.stderr

    def kill(self) -> None:
        """End every process of it now."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Its exit status as `subprocess` has it: negative for a signal."""
        return self._process.wait()


class Sandbox:
    """Runs programs, each by itself, from any thread."""

    def __init__(self, isolation: Isolation | None = None) -> None:
        self.isolation = isolation or available()

    def run(
        self, argv: Sequence[str], *, files: Mapping[str, bytes], stdin: bytes = b"", limits: Limits = Limits()
    ) -> Result:
        """Run a program to its end, or to the first limit that it meets, and give what it wrote."""
        began = time.monotonic()
        with self.start(argv, files=files, limits=limits) as running:
            ending, stdout, stderr = _talk(running, stdin, limits, began + limits.seconds)
            code = None
            if ending is Ending.EXITED:
                try:
                    code = running._process.wait(max(0.0, began + limits.seconds - time.monotonic()))
                except subprocess.TimeoutExpired:
                    ending = Ending.TIMED_OUT
                if code is not None and code < 0:
                    ending, code = Ending.KILLED, None
        return Result(ending, code, stdout, stderr, time.monotonic() - began)

    @contextmanager
    def start(
        self, argv: Sequence[str], *, files: Mapping[str, bytes], limits: Limits = Limits()
    ) -> Iterator[Running]:
        """A program to talk to. It, all that it started and its folder are gone after the block."""
        folder = tempfile.mkdtemp(prefix="trl-mentor-")
        try:
            for name, content in files.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            process = subprocess.Popen(
                list(argv),
                cwd=folder,
                env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": folder, "TMPDIR": folder, "LC_ALL": "C.UTF-8"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                preexec_fn=lambda: _limit(limits),
            )
            running = Running(process)
            try:
                yield running
            finally:
                running.kill()
                process.wait()
                for pipe in (running.stdin, running.stdout, running.stderr):
                    with suppress(OSError):
                        pipe.close()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def available() -> Isolation:
    """The best isolation that this machine provides."""
    return Isolation.LIMITS


def _limit(limits: Limits) -> None:
    for what, bound in (
        (resource.RLIMIT_AS, limits.memory_mib * 2**20),
        (resource.RLIMIT_CPU, int(limits.seconds) + 1),
        (resource.RLIMIT_FSIZE, limits.file_mib * 2**20),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (bound, bound))


def _talk(running: Running, stdin: bytes, limits: Limits, end: float) -> tuple[Ending, bytes, bytes]:
    written, taken = 0, {running.stdout: bytearray(), running.stderr: bytearray()}
    out, err = taken.values()
    with selectors.DefaultSelector() as selector:
        os.set_blocking(running.stdin.fileno(), False)
        selector.register(running.stdin, selectors.EVENT_WRITE)
        for pipe in taken:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            left = end - time.monotonic()
            if left <= 0:
                return Ending.TIMED_OUT, bytes(out), bytes(err)
            for key, _ in selector.select(left):
                if key.fileobj is running.stdin:
                    with suppress(BrokenPipeError):
                        written += os.write(key.fd, stdin[written : written + _CHUNK])
                        if written < len(stdin):
                            continue
                    selector.unregister(running.stdin)
                    running.stdin.close()
                    continue
                read = os.read(key.fd, _CHUNK)
                if not read:
                    selector.unregister(key.fileobj)
                    continue
                buffer = out if key.fileobj is running.stdout else err
                buffer += read
                if len(buffer) > limits.output_bytes:
                    del buffer[limits.output_bytes :]
                    return Ending.TOO_MUCH_OUTPUT, bytes(out), bytes(err)
    return Ending.EXITED, bytes(out), bytes(err)
