"""What a mentor spends and may still spend, by generation batch and by run. Standard library only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from trl_mentor.budget_limits import Prices, read_limits, read_prices
from trl_mentor.errors import BudgetSpentError, ConfigError
from trl_mentor.records import EventKind, Usage
from trl_mentor.spending import Outlay, Spending


class _Limits:
    """What is spent and set aside under the limits of one scope. Guarded by the lock of its budget."""

    def __init__(self, scope: str, limits: Mapping[str, float]) -> None:
        known = {kind: limits.get(f"{scope}_{kind}") for kind in ("calls", "tokens", "cost")}
        self.scope = scope
        self.limits = {kind: limit for kind, limit in known.items() if limit is not None}
        self.spent: dict[str, float] = {"calls": 0, "tokens": 0, "cost": 0.0}
        self.reserved = 0
        """Calls that are set aside or under way, and not paid for yet."""
        self.begun = 0
        """Those of them that belong to groups which have begun."""

    def check(self, calls: int, *, beside: int, average: Mapping[str, float]) -> None:
        """Raise `BudgetSpentError` if so many calls beside others, each as large as the average, do not fit.

        The last one may go beyond a limit of tokens or costs.
        """
        for kind, limit in self.limits.items():
            if self.spent[kind] + (beside + calls - 1) * average[kind] >= limit:
                left = "is spent" if self.spent[kind] >= limit else f"does not reach for {calls} more calls"
                raise BudgetSpentError(f"the budget {self.scope}_{kind}={limit:g} {left}", f"{self.scope}_{kind}")


class Budget:
    """The limits of one mentor and what it spent; its threads share it.

    A group sets aside, before its first call, the calls that a hint takes at least, so that no two groups each spend
    half of what one hint needs. Limits of calls are exact unless a request has to be repeated. How often it was, and
    what a call takes of the other limits, is known only afterwards: no call is made once they are reached, so that
    they are passed by no more than the calls in flight, and a group begins only if a hint would fit whose calls are as
    large as the average so far.
    """

    def __init__(
        self,
        limits: Mapping[str, Any] | None = None,
        prices: Mapping[str, Any] | None = None,
        *,
        least_calls: int = 3,
        hear: Callable[[EventKind, str], None] = lambda kind, text: None,
    ) -> None:
        """`least_calls` is how many a hint takes at least; `hear` is told once in a run of each limit that is reached.

        Raises `ConfigError` for limits or prices that cannot be read, or that allow for less than a hint.
        """
        read = read_prices(prices)
        self.limits = read_limits(limits, read)
        self.least_calls = least_calls
        self.priced = read is not None
        """Whether prices were given."""
        self._prices = Prices() if read is None else read
        for name, limit in self.limits.items():
            if name.endswith("_calls") and limit < least_calls:
                raise ConfigError(
                    f"the budget {name}={limit:g} is below the {least_calls} calls that one hint takes at least; "
                    "raise it or leave it out"
                )
        self._lock = threading.Lock()
        self._run = _Limits("run", self.limits)
        self._batch = _Limits("batch", self.limits)
        self._average = {"calls": 1.0, "tokens": 0.0, "cost": 0.0}
        self._answered = 0
        self._hear = hear
        self._said: set[str] = set()

    def cost(self, usage: Usage) -> float:
        """What these tokens cost at the prices; 0 without."""
        return self._prices.cost(usage)

    def begin_run(self, spent: Spending = Spending()) -> None:
        """Begin a run in which so much was spent before, at the prices of that time: nothing if it is a new one."""
        total = spent.total
        with self._lock:
            self._run.spent = {"calls": total.calls, "tokens": total.tokens, "cost": spent.cost}
            self._said.clear()

    def shares(self, groups: int, *, same_batch: bool = False) -> list[Allowance]:
        """What the groups of one batch may draw, in their order: the first ones set their calls aside first.

        `same_batch`: they are groups of the batch before, in another round, and draw what that left.
        """
        batch = self._batch if same_batch else _Limits("batch", self.limits)
        self._batch = batch
        allowances = [Allowance(self, (self._run, batch)) for _ in range(groups)]
        for allowance in allowances:
            allowance.set_aside()
        return allowances

    def _refused(self, error: BudgetSpentError) -> None:
        if error.limit.startswith("run_"):
            self._say(error.limit, EventKind.BUDGET_SPENT, f"{error}; training goes on without hints")
        elif (hint := self._average[error.limit.removeprefix("batch_")] * self.least_calls) and (
            self.least_calls - 1
        ) * hint >= self.least_calls * self.limits[error.limit]:
            text = (
                f"the budget {error.limit}={self.limits[error.limit]:g} does not reach for one hint (about {hint:.2g} "
                "on average): no group gets one; raise it"
            )
            self._say(f"{error.limit} at all", EventKind.BUDGET_SHORT, text)
        else:
            what = "of batches that collapse further, only the most promising groups get a hint"
            self._say(error.limit, EventKind.BUDGET_SHORT, f"{error}; {what}")

    def _say(self, topic: str, kind: EventKind, text: str) -> None:
        if topic not in self._said:
            self._said.add(topic)
            self._hear(kind, text)

    def _count(self, outlay: Outlay, *, answered: bool) -> dict[str, float]:
        """The bill of one call, whose tokens and costs the average takes in if it was answered."""
        usage = outlay.usage
        tokens, cost = usage.prompt_tokens + usage.completion_tokens, self.cost(usage)
        bill = {"calls": outlay.requests, "tokens": tokens, "cost": cost}
        if answered:
            self._answered += 1
            for kind in ("tokens", "cost"):
                self._average[kind] += (bill[kind] - self._average[kind]) / self._answered
            blind = [name for name in self.limits if not name.endswith("_calls")]
            if blind and not bill["tokens"]:
                text = (
                    f"the endpoint does not count tokens, so that {' and '.join(blind)} cannot hold: limit the calls"
                )
                self._say("tokens", EventKind.BUDGET_SHORT, text)
        return bill


class Allowance:
    """What one group may draw from the budgets of its batch and of the run."""

    def __init__(self, budget: Budget, scopes: Sequence[_Limits]) -> None:
        self._budget = budget
        self._scopes = scopes
        self._begun = False
        self._set_aside = 0

    def set_aside(self) -> None:
        """Keep the calls of a hint for this group if there are enough. If not, `admit` tries once more."""
        with self._budget._lock, suppress(BudgetSpentError):
            self._reserve(self._budget.least_calls)

    def admit(self) -> None:
        """Before a call, which `settle` has to follow. Raises `BudgetSpentError` if there is nothing for it."""
        budget = self._budget
        with budget._lock:
            try:
                self._check()
            except BudgetSpentError as error:
                budget._refused(error)
                raise
            if not self._begun:
                self._begun = True
                for scope in self._scopes:
                    scope.begun += self._set_aside
            self._set_aside -= 1

    def settle(self, outlay: Outlay, *, answered: bool = True) -> None:
        """After a call: what it took, and whether there was a reply."""
        budget = self._budget
        with budget._lock:
            self._give_back(1)
            bill = budget._count(outlay, answered=answered)
            for scope in self._scopes:
                for kind, value in bill.items():
                    scope.spent[kind] += value

    def close(self) -> None:
        """Give back what was set aside and is not under way."""
        with self._budget._lock:
            self._give_back(self._set_aside)
            self._set_aside = 0

    def _check(self) -> None:
        if not self._set_aside:
            self._reserve(1 if self._begun else self._budget.least_calls)
            return
        for scope in self._scopes:  # the average may have grown since; groups that have begun come first
            calls, beside = (1, 0) if self._begun else (self._set_aside, scope.begun)
            scope.check(calls, beside=beside, average=self._budget._average)

    def _reserve(self, calls: int) -> None:
        for scope in self._scopes:
            scope.check(calls, beside=scope.reserved, average=self._budget._average)
        for scope in self._scopes:
            scope.reserved += calls
            scope.begun += calls * self._begun
        self._set_aside += calls

    def _give_back(self, calls: int) -> None:
        for scope in self._scopes:
            scope.reserved -= calls
            scope.begun -= calls * self._begun
