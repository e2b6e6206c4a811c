"""Inside the sandbox: the end of a child that may be late, too talkative, or gone."""

from __future__ import annotations

import os
import select
import time

from trl_mentor.programs.inside import SIGKILL, SIGXCPU, suppress


class Watch:
    """Reads what a child writes until it ends, is late or writes too much; then ends its process group."""

    def __init__(self, child: int, output: int, said: int, most: int) -> None:
        self.child, self.most = child, most
        self.data = {output: bytearray(), said: bytearray()}
        self.status: int | None = None

    def until(self, end: float) -> str:
        """How it ended: `exited`, `timed_out`, `output` or `killed`."""
        ending = self._read(end)
        while not ending and self._runs():  # it has closed its pipes
            time.sleep(0.005)
            ending = "timed_out" if time.monotonic() > end else ""
        with suppress(OSError):
            os.killpg(self.child, SIGKILL)
        if self.status is None:
            with suppress(ChildProcessError):
                self.status = os.waitpid(self.child, 0)[1]
        for pipe in self.data:
            os.close(pipe)
        if ending or self.status is None or not os.WIFSIGNALED(self.status):
            return ending or "exited"
        return "timed_out" if os.WTERMSIG(self.status) == SIGXCPU else "killed"

    def text(self, pipe: int) -> str:
        """What came through a pipe."""
        return bytes(self.data[pipe]).decode("utf-8", "replace")

    def _read(self, end: float) -> str:
        poll, left = select.poll(), set(self.data)
        for pipe in self.data:
            poll.register(pipe, select.POLLIN)
        while left:
            wait = end - time.monotonic()
            if wait <= 0:
                return "timed_out"
            ended = not self._runs()
            ready = poll.poll(0 if ended else min(wait, 0.05) * 1000)
            for pipe, _ in ready:
                part = os.read(pipe, 65536)
                self.data[pipe] += part
                if len(self.data[pipe]) > self.most:
                    return "output"
                if not part:
                    poll.unregister(pipe)
                    left.discard(pipe)
            if ended and not ready:  # what it started holds the pipes
                break
        return ""

    def _runs(self) -> bool:
        if self.status is None:
            try:
                found, status = os.waitpid(self.child, os.WNOHANG)
            except ChildProcessError:
                return False
            self.status = status if found else None
        return self.status is None
