"""When an endpoint that fails is left alone, and when it is tried again."""

from __future__ import annotations

import time
from collections.abc import Callable

LONGEST = 16
"""The pause doubles with every failed probe, up to this many times its first length."""

_GRACE = 10.0
"""Seconds beyond its time after which a probe that was never reported counts as lost."""


class Breaker:
    """Decides for one endpoint. Holds no lock: its owner does, around every method.

    It is closed until `pause_after` calls in a row have failed, then open for `pause_seconds`, in which no call is
    made. After that one call, the probe, is let through: if it succeeds, the breaker closes; if it fails, it stays
    open twice as long as before, or as long if that says little about the endpoint. What comes of calls that were
    begun before it last opened or closed does not count.
    """

    def __init__(self, *, pause_after: int, pause_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._pause_after = pause_after
        self._shortest = self._pause = pause_seconds
        self._clock = clock
        self._failures = 0
        self._open_until: float | None = None
        self._probe_out = False
        self._era = 0

    @property
    def probing(self) -> bool:
        """Whether a probe is out whose result is awaited."""
        return self._probe_out and self.seconds_left() > 0

    def seconds_left(self) -> float:
        """Seconds until the next call may be made; 0 if it may be made now."""
        return 0.0 if self._open_until is None else max(0.0, self._open_until - self._clock())

    def admit(self, lasts: float) -> int | None:
        """A ticket for a call of at most `lasts` seconds, to come back with its result; None if none may be made."""
        if self._open_until is not None:
            if self.seconds_left() > 0:
                return None
            self._era += 1
            self._probe_out, self._open_until = True, self._clock() + lasts + _GRACE
        return self._era

    def succeeded(self, ticket: int) -> bool:
        """A call was answered; whether that closes the breaker."""
        if ticket != self._era:
            return False
        self._failures = 0
        if self._open_until is None:
            return False
        self._era += 1
        self._probe_out, self._open_until, self._pause = False, None, self._shortest
        return True

    def failed(self, ticket: int, *, for_good: bool = False, says_little: bool = False) -> bool:
        """A call failed, `for_good` if further ones cannot but fail; whether that opens the closed breaker.

        A probe that `says_little` about the endpoint leaves the pause as long as it was.
        """
        if ticket != self._era:
            return False
        if self._open_until is not None:
            if not says_little:
                self._pause = min(2 * self._pause, LONGEST * self._shortest)
            self._open()
            return False
        self._failures += 1
        if self._failures < self._pause_after and not for_good:
            return False
        self._open()
        return True

    def _open(self) -> None:
        self._era += 1
        self._failures = 0
        self._probe_out, self._open_until = False, self._clock() + self._pause
