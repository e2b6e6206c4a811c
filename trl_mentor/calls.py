"""One call to the mentor: bounded in time, recorded, and every error turned into one kind."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from trl_mentor.backends.base import Backend
from trl_mentor.errors import BackendError
from trl_mentor.mentor_pool import Clock, describe, outcome_of
from trl_mentor.records import Call, Message, Reply, Role, Usage


class Caller:
    """Makes the calls of one group. Runs in the group's thread; `abandoned` may be called from outside meanwhile."""

    def __init__(self, backend: Backend, clock: Clock, *, call_timeout: float) -> None:
        self._backend = backend
        self._clock = clock
        self._call_timeout = call_timeout
        self.calls: list[Call] = []
        self._asking: tuple[Role, float] | None = None

    def ask(self, role: Role, messages: Sequence[Message], schema: Mapping[str, Any] | None) -> Reply:
        """The reply, its call recorded. Raises `BackendError` if there is none."""
        left = self._clock.left()
        if left <= 0:
            raise BackendError("the deadline passed")
        timeout = min(self._call_timeout, left)
        since = time.monotonic()
        self._asking = (role, since)
        reply = outcome_of(lambda: self._backend.chat(messages, role=role, timeout=timeout, schema=schema))
        seconds, self._asking = time.monotonic() - since, None
        if not isinstance(reply, Reply):
            error = describe(reply)
            self.calls.append(Call(role, seconds, error=error))
            raise BackendError(error)
        self.calls.append(Call(role, seconds, _usage(reply)))
        return reply

    def abandoned(self, reason: str) -> None:
        """Record the call that is being waited for and never will be."""
        asking = self._asking  # read once: the thread may finish its call meanwhile
        if asking is not None:
            role, since = asking
            self.calls.append(Call(role, time.monotonic() - since, error=f"abandoned: {reason}"))


def _usage(reply: Reply) -> Usage:
    """The tokens that the endpoint counted, 0 for what is no count: they are a bill, not worth a training step."""
    names = ("prompt_tokens", "completion_tokens", "cached_tokens", "thinking_tokens")
    counts = [getattr(reply.usage, name, None) for name in names]
    return Usage(*(count if type(count) is int and 0 <= count < 2**40 else 0 for count in counts))
