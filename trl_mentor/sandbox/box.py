"""The sandbox: one program in a folder of its own, under limits, and dead with all that it started at the end."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from trl_mentor.errors import ConfigError
from trl_mentor.sandbox.launcher import Running
from trl_mentor.sandbox.records import Isolation, Limits, Result
from trl_mentor.sandbox.tiers import available, launcher, problem_of

VARIABLE = "TRL_MENTOR_ISOLATION"
"""Names the isolation of all programs whose caller insists on none."""


class Sandbox:
    """Runs programs that nobody vouches for, each by itself, from any thread.

    `isolation`: None takes that of the environment variable, or else the best that the machine provides, and warns
    once where that is less than namespaces. Any other is a `ConfigError` where the machine does not provide it.
    """

    def __init__(self, isolation: Isolation | None = None) -> None:
        wanted = isolation or os.environ.get(VARIABLE)
        try:
            self.isolation = Isolation(wanted) if wanted else available()
        except ValueError:
            named = VARIABLE if isolation is None else "isolation"
            raise ConfigError(
                f"{named} is {wanted!r}, expected one of {', '.join(map(str, Isolation))}, or nothing"
            ) from None
        if problem := problem_of(self.isolation):
            raise ConfigError(
                f"got isolation={self.isolation.value!r}, which this machine does not provide: {problem};"
                " leave it out to take the best that it does, and see docs/sandbox.md for what to allow"
            )

    def run(
        self, argv: Sequence[str], *, files: Mapping[str, bytes], stdin: bytes = b"", limits: Limits = Limits()
    ) -> Result:
        """Run a program to its end, or to the first limit that it meets, and give what it wrote.

        `files` lie in its current folder by their relative paths. What it started ends with it, and what it wrote is
        gone. Raises `ConfigError` for a program that cannot be started, `OSError` where the machine starts nothing.
        """
        return launcher(self.isolation).run(argv, files, stdin, limits)

    @contextmanager
    def start(
        self, argv: Sequence[str], *, files: Mapping[str, bytes], limits: Limits = Limits()
    ) -> Iterator[Running]:
        """A program to talk to; its standard error is dropped and its output is the caller's to bound.

        It, all that it started and its folder are gone after the block.
        """
        with launcher(self.isolation).start(argv, files, limits) as running:
            yield running
