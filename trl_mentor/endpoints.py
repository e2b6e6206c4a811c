"""Backends asked as one: the least busy answers, another stands in for it, and one that is down is left alone."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from trl_mentor.backends.base import Backend
from trl_mentor.breaker import Breaker
from trl_mentor.errors import AccessDeniedError, BackendError, EndpointPausedError, RequestRefusedError
from trl_mentor.events import Events
from trl_mentor.mentor_pool import describe, outcome_of
from trl_mentor.records import EventKind, Message, Reply, Role
from trl_mentor.spending import Outlay, outlay_of

logger = logging.getLogger(__name__)

_ALL_ITS_TIME = 0.9
"""A call that failed after this share of its timeout ran out of time."""


@dataclass(eq=False)
class _Endpoint:
    backend: Backend
    name: str
    breaker: Breaker
    busy: int = 0
    last_failure: str = ""
    down_since: float = 0.0


class Endpoints:
    """A backend made of backends. `Mentor` asks through one, also where there is only one endpoint.

    After `pause_after` failures in a row an endpoint is left alone for `pause_seconds`, longer each time that it still
    does not work; a key that is refused pauses it at once. Every exception is a failure except `RequestRefusedError`,
    and except running out of time in less than `patience` seconds, which says little about the endpoint: the call that
    tries a paused one then leaves it paused for as long as before, not longer.

    Raises `EndpointPausedError`, without waiting, if all are paused; while one of them is being tried again, calls
    wait for what comes of it.
    """

    def __init__(
        self,
        backends: Sequence[Backend],
        *,
        pause_after: int = 5,
        pause_seconds: float = 30.0,
        patience: float = 0.0,
        events: Events | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        names = _names(backends)
        self._endpoints = [
            _Endpoint(backend, name, Breaker(pause_after=pause_after, pause_seconds=pause_seconds, clock=clock))
            for backend, name in zip(backends, names, strict=True)
        ]
        self._little = patience if len(names) == 1 else _ALL_ITS_TIME * patience  # the first of two gets about this
        self._events = Events() if events is None else events
        self._clock = clock
        self._changed = threading.Condition()

    @property
    def identity(self) -> str | None:
        """Everything that determines a reply; None if a backend does not say."""
        found = [getattr(endpoint.backend, "identity", None) for endpoint in self._endpoints]
        known = sorted({identity for identity in found if isinstance(identity, str)})
        if len(known) == 0 or not all(isinstance(identity, str) for identity in found):
            return None
        return known[0] if len(known) == 1 else json.dumps(known)

    @property
    def models(self) -> list[str]:
        """What answers, each once: the name of a backend's model or, where it has none, the kind of backend."""
        return list(dict.fromkeys(_model(endpoint.backend) for endpoint in self._endpoints))

    def chat(
        self, messages: Sequence[Message], *, role: Role, timeout: float, schema: Mapping[str, Any] | None = None
    ) -> Reply:
        """Ask the least busy endpoint; if it fails, another, until `timeout` seconds have passed or none is left.

        While another one may be asked, a try gets half of the time left: an endpoint that hangs must not use up all.
        """
        end, left = self._clock() + timeout, timeout
        untried = list(self._endpoints)
        failure: Exception | None = None
        spent = Outlay()
        while untried and (chosen := self._choose(untried, left, end)):
            endpoint, ticket, left = chosen
            untried.remove(endpoint)
            timeout = self._share(left, untried)
            job = partial(endpoint.backend.chat, messages, role=role, timeout=timeout, schema=schema)
            outcome = self._ask(endpoint, ticket, timeout, job)
            spent += outlay_of(outcome)
            if not isinstance(outcome, Exception):
                whole = isinstance(outcome, Reply)
                return replace(outcome, requests=spent.requests, usage=spent.usage) if whole else outcome
            failure, left = outcome, end - self._clock()
            if isinstance(failure, RequestRefusedError):
                break
        raise self._paused(end) if failure is None else _charged(failure, spent)

    def interrupt(self) -> None:
        """End the calls under way where a backend can: those that have a method of this name."""
        for endpoint in self._endpoints:
            end = getattr(endpoint.backend, "interrupt", None)
            if end is not None:
                outcome_of(end)

    def _choose(self, untried: Sequence[_Endpoint], left: float, end: float) -> tuple[_Endpoint, int, float] | None:
        """The least busy endpoint that may be asked, its ticket and the time left; waits while one is tried again."""
        with self._changed:
            while left > 0:
                for endpoint in sorted(untried, key=lambda endpoint: endpoint.busy):
                    ticket = endpoint.breaker.admit(left)
                    if ticket is not None:
                        endpoint.busy += 1
                        return endpoint, ticket, left
                if not any(endpoint.breaker.probing for endpoint in untried):
                    return None
                self._changed.wait(left)
                left = end - self._clock()
        return None

    def _share(self, left: float, others: Sequence[_Endpoint]) -> float:
        with self._changed:
            return left / 2 if any(other.breaker.seconds_left() == 0 for other in others) else left

    def _ask(self, endpoint: _Endpoint, ticket: int, timeout: float, job: Callable[[], Reply]) -> Reply | Exception:
        began = self._clock()
        outcome: Reply | Exception = BackendError("the thread ended without a result")
        try:
            outcome = outcome_of(job)
        finally:
            ran_out = self._clock() - began >= _ALL_ITS_TIME * timeout and timeout < self._little
            self._report(endpoint, ticket, outcome, ran_out=ran_out)
        if len(self._endpoints) > 1:
            if isinstance(outcome, BackendError):
                outcome.endpoint = endpoint.name
            elif isinstance(outcome, Reply):
                outcome = replace(outcome, endpoint=endpoint.name)
        return outcome

    def _report(self, endpoint: _Endpoint, ticket: int, outcome: Reply | Exception, *, ran_out: bool) -> None:
        breaker, opened, closed, still_down = endpoint.breaker, False, False, False
        with self._changed:
            endpoint.busy -= 1
            if not isinstance(outcome, Exception) or isinstance(outcome, RequestRefusedError):
                closed = breaker.succeeded(ticket)
            elif not ran_out or breaker.probing:
                was_probing = breaker.probing
                for_good = isinstance(outcome, AccessDeniedError)
                opened = breaker.failed(ticket, for_good=for_good, says_little=ran_out)
                still_down = was_probing and not breaker.probing
                endpoint.last_failure = describe(outcome)
                if opened:
                    endpoint.down_since = self._clock()
            others = any(other.breaker.seconds_left() == 0 for other in self._endpoints if other is not endpoint)
            pause, down = breaker.seconds_left(), self._clock() - endpoint.down_since
            self._changed.notify_all()
        if opened:
            meanwhile = "the other endpoints stand in" if others else "what is asked meanwhile gets no reply"
            self._events.add(
                EventKind.PAUSED,
                f"the mentor at {endpoint.name} is left alone for {pause:.3g} s and then tried again; {meanwhile}. "
                f"The last failure: {endpoint.last_failure}",
            )
        if still_down:
            logger.warning(
                "trl-mentor: the mentor at %s still does not work after %.3g s and is left alone for %.3g s more: %s",
                endpoint.name,
                down,
                pause,
                endpoint.last_failure,
            )
        if closed:
            self._events.add(EventKind.RESUMED, f"the mentor at {endpoint.name} works again after {down:.3g} s")

    def _paused(self, end: float) -> BackendError:
        if self._clock() >= end:
            return BackendError("no time was left to ask an endpoint")
        with self._changed:
            endpoint = min(self._endpoints, key=lambda endpoint: endpoint.breaker.seconds_left())
            left = endpoint.breaker.seconds_left()
        return EndpointPausedError(
            f"mentoring is paused: {endpoint.name} is left alone and tried again in {left:.3g} s; "
            f"the last failure: {endpoint.last_failure}"
        )


def _charged(failure: Exception, spent: Outlay) -> Exception:
    """The failure of the last endpoint, with what all of them took."""
    if not isinstance(failure, BackendError):
        if spent == outlay_of(failure):
            return failure
        failure = BackendError(describe(failure))
    failure.requests, failure.usage = spent.requests, spent.usage
    return failure


def _model(backend: Backend) -> str:
    model = getattr(backend, "model", None)
    name = getattr(model, "name_or_path", model)
    return name if isinstance(name, str) and name else type(backend).__name__


def _names(backends: Sequence[Backend]) -> list[str]:
    """What to call each in logs and records: its address or its type, numbered where that is not unique."""
    names = [str(getattr(backend, "endpoint", "")) or type(backend).__name__ for backend in backends]
    return [f"{name} ({number})" if names.count(name) > 1 else name for number, name in enumerate(names, 1)]
