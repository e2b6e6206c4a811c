"""What mentor calls took, by role: the ledger of a mentor and its entries. Standard library only."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

from trl_mentor.errors import BackendError
from trl_mentor.records import Reply, Role, Usage


@dataclass(frozen=True, slots=True)
class Outlay:
    """What one question to a backend took, whatever came of it."""

    requests: int = 0
    usage: Usage = field(default_factory=Usage)

    def __add__(self, other: Outlay) -> Outlay:
        tokens = (getattr(self.usage, f.name) + getattr(other.usage, f.name) for f in fields(Usage))
        return Outlay(self.requests + other.requests, Usage(*tokens))


def outlay_of(outcome: object) -> Outlay:
    """The requests and tokens that a reply or an error says it took; what is no count is none.

    They are a bill, not worth a training step. Whatever says nothing took one request.
    """
    if not isinstance(outcome, Reply | BackendError):
        return Outlay(1)
    tokens = (getattr(outcome.usage, f.name, 0) for f in fields(Usage))
    return Outlay(_count(outcome.requests, otherwise=1), Usage(*map(_count, tokens)))


def _count(value: object, *, otherwise: int = 0) -> int:
    return value if type(value) is int and 0 <= value < 2**40 else otherwise


@dataclass(frozen=True, slots=True)
class RoleSpending:
    """The calls of one role."""

    calls: int = 0
    """Requests to the mentor, each time that it was asked."""
    errors: int = 0
    """Those that failed or whose reply could not be read."""
    retries: int = 0
    """Those that repeat such a request."""
    replayed: int = 0
    """Replies from the cache on disk, for which there was no request."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """Those of the prompts that the endpoint had computed before."""
    thinking_tokens: int = 0
    """Those of the completions that were thinking."""
    seconds: float = 0.0
    """Sum over the calls, which overlap in time."""

    @property
    def tokens(self) -> int:
        """Read and written."""
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: RoleSpending) -> RoleSpending:
        return RoleSpending(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(RoleSpending)))

    def __sub__(self, other: RoleSpending) -> RoleSpending:
        return RoleSpending(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(RoleSpending)))


@dataclass(frozen=True, slots=True)
class Spending:
    """What a mentor took."""

    roles: Mapping[str, RoleSpending] = field(default_factory=dict)
    """By the value of `Role`."""
    busy_seconds: float = 0.0
    """Wall-clock seconds in which at least one call was under way."""
    cost: float = 0.0
    """At the mentor's prices; 0 without."""

    def __add__(self, other: Spending) -> Spending:
        names = [*self.roles, *(name for name in other.roles if name not in self.roles)]
        roles = {name: self.of(name) + other.of(name) for name in names}
        return Spending(roles, self.busy_seconds + other.busy_seconds, self.cost + other.cost)

    def __sub__(self, other: Spending) -> Spending:
        names = [*self.roles, *(name for name in other.roles if name not in self.roles)]
        roles = {name: self.of(name) - other.of(name) for name in names}
        kept = {name: spent for name, spent in roles.items() if spent != RoleSpending()}
        return Spending(kept, self.busy_seconds - other.busy_seconds, self.cost - other.cost)

    def of(self, role: Role | str) -> RoleSpending:
        """What one role took."""
        return self.roles.get(str(role), RoleSpending())

    @property
    def total(self) -> RoleSpending:
        """All roles together."""
        return sum(self.roles.values(), RoleSpending())


class Ledger:
    """Every call of a mentor, entered as it is made and as it ends; its threads share it.

    A call is in the ledger although nobody waits for it any more: its tokens are paid for.
    """

    def __init__(self, cost: Callable[[Usage], float] = lambda usage: 0.0) -> None:
        """`cost` is what these tokens cost."""
        self._cost = cost
        self._changed = threading.Condition()
        self._taken = Spending()
        self._under_way = 0
        self._busy_since = 0.0

    def begin(self, role: Role, *, retry: bool = False) -> None:
        """A request is made."""
        with self._changed:
            if not self._under_way:
                self._busy_since = time.monotonic()
            self._under_way += 1
            self._enter(role, RoleSpending(calls=1, retries=int(retry)))

    def end(self, role: Role, seconds: float, outlay: Outlay, *, answered: bool) -> None:
        """It ended after so many seconds; the outlay may be more requests than this one, or none after all."""
        usage, repeated = outlay.usage, max(outlay.requests - 1, 0)
        entry = RoleSpending(
            calls=outlay.requests - 1,
            errors=repeated + int(outlay.requests > 0 and not answered),
            retries=repeated,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cached_tokens=usage.cached_tokens,
            thinking_tokens=usage.thinking_tokens,
            seconds=seconds,
        )
        with self._changed:
            self._enter(role, entry, cost=self._cost(usage))
            self._under_way -= 1
            if not self._under_way:
                self._taken += Spending(busy_seconds=time.monotonic() - self._busy_since)
                self._changed.notify_all()

    def settle(self, timeout: float) -> int:
        """Wait until no request is under way, but at most so many seconds; returns how many still are."""
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way, timeout)
            return self._under_way

    def unreadable(self, role: Role) -> None:
        """The reply to a call that ended well could not be read."""
        with self._changed:
            self._enter(role, RoleSpending(errors=1))

    def replayed(self, role: Role) -> None:
        """A reply came from the cache on disk."""
        with self._changed:
            self._enter(role, RoleSpending(replayed=1))

    def take(self) -> Spending:
        """What was entered since the last time."""
        with self._changed:
            now = time.monotonic()
            if self._under_way:
                self._taken += Spending(busy_seconds=now - self._busy_since)
                self._busy_since = now
            taken, self._taken = self._taken, Spending()
            return taken

    def _enter(self, role: Role, entry: RoleSpending, cost: float = 0.0) -> None:
        self._taken += Spending({str(role): entry}, cost=cost)
