"""One call to the mentor: bounded in time, recorded, and every error turned into one kind."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from trl_mentor.backends.base import Backend
from trl_mentor.budget import Allowance, Budget
from trl_mentor.errors import BackendError, NotAskedError
from trl_mentor.mentor_pool import Clock, describe, outcome_of
from trl_mentor.records import Call, Message, Reply, Role, Usage
from trl_mentor.reply_cache import ReplyCache, request_digest


class Caller:
    """Makes the calls of one group: from the cache where it can, else within the budget.

    Runs in the group's thread; `abandoned` may be called from outside meanwhile.
    """

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        *,
        call_timeout: float,
        allowance: Allowance | None = None,
        cache: ReplyCache | None = None,
    ) -> None:
        self.clock = clock
        self.calls: list[Call] = []
        self._backend = backend
        self._call_timeout = call_timeout
        self._allowance = Budget().shares(1)[0] if allowance is None else allowance
        self._cache = cache
        self._draws: Counter[str] = Counter()
        self._asking: tuple[Role, float] | None = None

    def ask(self, role: Role, messages: Sequence[Message], schema: Mapping[str, Any] | None) -> Reply:
        """The reply, its call recorded. Raises `BackendError` if there is none, `NotAskedError` if nothing was asked.

        Only replies count as draws: where a first request failed, a run that is replayed gets the reply to the second.
        """
        if self.clock.left() <= 0:
            raise BackendError("the deadline passed")
        identity = None if self._cache is None else getattr(self._backend, "identity", None)
        if self._cache is None or not isinstance(identity, str):
            return self._request(role, messages, schema)
        digest = request_digest(identity, role, messages, schema)
        draw = self._draws[digest]
        reply = self._cache.get(digest, draw)
        if reply is None:
            reply = self._cache.put(digest, draw, self._request(role, messages, schema))
        else:
            self.calls.append(Call(role, 0.0, replayed=True))
        self._draws[digest] += 1
        return reply

    def _request(self, role: Role, messages: Sequence[Message], schema: Mapping[str, Any] | None) -> Reply:
        self._allowance.admit()
        timeout = min(self._call_timeout, self.clock.left())
        since = time.monotonic()
        self._asking = (role, since)
        reply: object = None
        try:
            reply = outcome_of(lambda: self._backend.chat(messages, role=role, timeout=timeout, schema=schema))
        finally:
            usage = _usage(reply) if isinstance(reply, Reply) else None
            self._allowance.settle(usage, made=not isinstance(reply, NotAskedError))
        seconds, self._asking = time.monotonic() - since, None
        if isinstance(reply, NotAskedError):
            raise reply
        if usage is None or not isinstance(reply, Reply):
            error = describe(reply)
            self.calls.append(Call(role, seconds, error=error, endpoint=getattr(reply, "endpoint", None)))
            raise BackendError(error)
        self.calls.append(Call(role, seconds, usage, endpoint=reply.endpoint))
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
