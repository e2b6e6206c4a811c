"""One call to the mentor: bounded in time, recorded, and every error turned into one kind."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trl_mentor.backends.base import Backend
from trl_mentor.budget import Allowance, Budget
from trl_mentor.errors import BackendError, NotAskedError
from trl_mentor.mentor_pool import Clock, describe, outcome_of
from trl_mentor.records import Call, Message, Reply, Role
from trl_mentor.reply_cache import ReplyCache, request_digest
from trl_mentor.spending import Ledger, outlay_of


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
        ledger: Ledger | None = None,
    ) -> None:
        self.clock = clock
        self.calls: list[Call] = []
        self._backend = backend
        self._call_timeout = call_timeout
        self._allowance = Budget().shares(1)[0] if allowance is None else allowance
        self._cache = cache
        self._ledger = Ledger() if ledger is None else ledger
        self._draws: Counter[str] = Counter()
        self._asking: tuple[Role, float] | None = None

    def ask(
        self, role: Role, messages: Sequence[Message], schema: Mapping[str, Any] | None, *, retry: bool = False
    ) -> Reply:
        """The reply, its call recorded. Raises `BackendError` if there is none, `NotAskedError` if nothing was asked.

        `retry` says that the request repeats one whose reply could not be read.

        Only replies count as draws: where a first request failed, a run that is replayed gets the reply to the second.
        """
        if self.clock.left() <= 0:
            raise BackendError("the deadline passed")
        identity = None if self._cache is None else getattr(self._backend, "identity", None)
        if self._cache is None or not isinstance(identity, str):
            return self._request(role, messages, schema, retry)
        digest = request_digest(identity, role, messages, schema)
        draw = self._draws[digest]
        reply = self._cache.get(digest, draw)
        if reply is None:
            reply = self._cache.put(digest, draw, self._request(role, messages, schema, retry))
        else:
            self.calls.append(Call(role, 0.0, replayed=True))
            self._ledger.replayed(role)
        self._draws[digest] += 1
        return reply

    def _request(
        self, role: Role, messages: Sequence[Message], schema: Mapping[str, Any] | None, retry: bool
    ) -> Reply:
        self._allowance.admit()
        timeout = min(self._call_timeout, self.clock.left())
        since = time.monotonic()
        self._ledger.begin(role, retry=retry)
        self._asking = (role, since)
        reply: object = None
        try:
            reply = outcome_of(lambda: self._backend.chat(messages, role=role, timeout=timeout, schema=schema))
        finally:
            outlay, answered = outlay_of(reply), isinstance(reply, Reply)
            self._allowance.settle(outlay, answered=answered)
            self._ledger.end(role, time.monotonic() - since, outlay, answered=answered)
        seconds, self._asking = time.monotonic() - since, None
        if isinstance(reply, NotAskedError):
            raise reply
        if not isinstance(reply, Reply):
            error, endpoint = describe(reply), getattr(reply, "endpoint", None)
            self.calls.append(Call(role, seconds, outlay.usage, error=error, endpoint=endpoint))
            raise BackendError(error) from (reply if isinstance(reply, Exception) else None)
        self.calls.append(Call(role, seconds, outlay.usage, endpoint=reply.endpoint))
        return reply

    def read(self, *, error: str | None, thinking_chars: int) -> None:
        """What came of reading the last reply."""
        if error is not None:
            self._ledger.unreadable(self.calls[-1].role)
        self.calls[-1] = replace(self.calls[-1], error=error, thinking_chars=thinking_chars)

    def abandoned(self, reason: str) -> None:
        """Record the call that is being waited for and never will be."""
        asking = self._asking  # read once: the thread may finish its call meanwhile
        if asking is not None:
            role, since = asking
            self.calls.append(Call(role, time.monotonic() - since, error=f"abandoned: {reason}"))
