"""The process of the user's own code in `trl-mentor check`: it may exit, hang or print, and the check goes on."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from typing import Any

from trl_mentor.cli.check_child import serve, told
from trl_mentor.mentor_pool import outcome_of

_MAX_BYTES = 256 * 2**20
_LOOK_SECONDS = 0.5
"""How often it is looked whether the process lives: one that it started may keep its pipe open."""

ENDED_FIX = (
    "have it return or raise an Exception: what exits, hangs or dies here does so in every process of the training; "
    "if it is only slow, raise --reward-timeout"
)


class UserCodeError(Exception):
    """The user's code ended its process, hung, or answered with what cannot be read; the text continues its name."""


class UserProcess:
    """A process that does what `UserCode` offers, one order at a time, each within `seconds`."""

    def __init__(self, seconds: float) -> None:
        context = multiprocessing.get_context("fork")  # the libraries are loaded; a fresh interpreter needs seconds
        self._pipe, theirs = context.Pipe()
        self._seconds = seconds
        self._process = context.Process(target=serve, args=(theirs, self._pipe), name="trl-mentor-check")
        with warnings.catch_warnings():
            # Only threads that show progress or read files are there, and none holds what the user's code needs.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process.start()
        theirs.close()

    def ask(self, order: str, *arguments: Any) -> dict[str, Any]:
        """The answer of one method of `UserCode`. Raises `UserCodeError`."""
        sent = outcome_of(lambda: self._pipe.send((order, arguments)))
        if isinstance(sent, OSError):
            raise UserCodeError("was not asked: the process of the user's code has ended")
        if isinstance(sent, Exception):
            raise UserCodeError(f"cannot be tried: its arguments do not go into another process ({told(sent)})")
        self._wait()
        answer = outcome_of(lambda: json.loads(self._pipe.recv_bytes(_MAX_BYTES)))
        if isinstance(answer, EOFError | OSError):
            raise UserCodeError(self._how_it_ended())
        if not isinstance(answer, dict):
            raise UserCodeError("answered with what cannot be read: does it write into pipes that it does not own?")
        if "ended" in answer:
            raise UserCodeError(answer["ended"])
        return answer

    def close(self) -> None:
        """End the process and all that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(int(self._process.pid or 0), signal.SIGKILL)
        self._process.kill()
        self._process.join()
        self._process.close()
        self._pipe.close()

    def _wait(self) -> None:
        end = time.monotonic() + self._seconds
        while (left := end - time.monotonic()) > 0:
            if wait([self._pipe, self._process.sentinel], min(left, _LOOK_SECONDS)):
                return
            if not self._process.is_alive():
                raise UserCodeError(self._how_it_ended())
        with suppress(ProcessLookupError):
            os.killpg(int(self._process.pid or 0), signal.SIGKILL)
        raise UserCodeError(f"has not returned after {self._seconds:g} s")

    def _how_it_ended(self) -> str:
        self._process.join(_LOOK_SECONDS)
        code = self._process.exitcode
        if code is None:
            return "closed the pipe over which the check asks it"
        return f"ended its process ({f'signal {-code}' if code < 0 else f'exit status {code}'})"


@contextmanager
def user_process(seconds: float) -> Iterator[UserProcess]:
    """A process for the user's code that is gone after the block."""
    process = UserProcess(seconds)
    try:
        yield process
    finally:
        process.close()
