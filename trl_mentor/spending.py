"""What mentor calls took, by role: the ledger of a mentor and its entries. Standard library only."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

from trl_mentor.records import Role, Usage


@dataclass(frozen=True, slots=True)
class RoleSpending:
    """The calls of one role."""

    calls: int = 0
    """Requests to the mentor."""
    errors: int = 0
    retries: int = 0
    """Those that repeat a request which failed or whose reply could not be read."""
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
        self._lock = threading.Lock()
        self._taken = Spending()
        self._under_way = 0
        self._busy_since = 0.0

    def begin(self, role: Role, *, retry: bool = False) -> None:
        """A request is made."""
        with self._lock:
            if not self._under_way:
                self._busy_since = time.monotonic()
            self._under_way += 1
            self._enter(role, RoleSpending(calls=1, retries=int(retry)))

    def end(self, role: Role, seconds: float, usage: Usage | None, *, made: bool = True) -> None:
        """It ended after so many seconds: with its usage, None if it failed, `made=False` if nothing was sent."""
        spent = usage or Usage()
        with self._lock:
            entry = RoleSpending(
                calls=0 if made else -1,
                errors=int(made and usage is None),
                prompt_tokens=spent.prompt_tokens,
                completion_tokens=spent.completion_tokens,
                cached_tokens=spent.cached_tokens,
                thinking_tokens=spent.thinking_tokens,
                seconds=seconds,
            )
            self._enter(role, entry, cost=self._cost(spent))
            self._under_way -= 1
            if not self._under_way:
                self._taken += Spending(busy_seconds=time.monotonic() - self._busy_since)

    def unreadable(self, role: Role) -> None:
        """The reply to a call that ended well could not be read."""
        with self._lock:
            self._enter(role, RoleSpending(errors=1))

    def replayed(self, role: Role) -> None:
        """A reply came from the cache on disk."""
        with self._lock:
            self._enter(role, RoleSpending(replayed=1))

    def take(self) -> Spending:
        """What was entered since the last time."""
        with self._lock:
            now = time.monotonic()
            if self._under_way:
                self._taken += Spending(busy_seconds=now - self._busy_since)
                self._busy_since = now
            taken, self._taken = self._taken, Spending()
            return taken

    def _enter(self, role: Role, entry: RoleSpending, cost: float = 0.0) -> None:
        self._taken += Spending({str(role): entry}, cost=cost)
