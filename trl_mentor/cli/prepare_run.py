"""The threads that ask the mentor for what is missing, until it is there or something ends them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from trl_mentor.backends.base import Backend
from trl_mentor.budget import Allowance, Budget
from trl_mentor.calls import Caller
from trl_mentor.cli.prepare_lines import Settled
from trl_mentor.cli.prepare_material import Material, Outcome
from trl_mentor.cli.prepare_rows import Item
from trl_mentor.cli.prepare_store import Store
from trl_mentor.errors import AccessDeniedError, BackendError, BudgetSpentError, EndpointPausedError
from trl_mentor.mentor_pool import Clock, MentorPool, describe, outcome_of
from trl_mentor.reask import ask_again, worth_asking_again
from trl_mentor.records import Message, Reply
from trl_mentor.replies import split_thinking
from trl_mentor.reply_cache import ReplyCache
from trl_mentor.spending import Ledger

_SETTLING = 5.0
"""Seconds after an interruption for what is under way to be booked."""
_LOOK_AGAIN = 0.5
"""Seconds between two looks at endpoints that are all left alone."""


class _StoppedError(Exception):
    """This thread asks nothing more."""


@dataclass(frozen=True, slots=True)
class Means:
    """How the mentor is asked; the words are those of `Mentor`."""

    backend: Backend
    budget: Budget
    cache: ReplyCache | None
    max_retry: int
    max_concurrency: int
    call_timeout: float
    deadline: float
    """Seconds for which endpoints that are all down are waited for."""


class Preparation:
    """Asks for all that a store misses."""

    def __init__(
        self,
        store: Store,
        items: Sequence[Item],
        materials: Sequence[Material],
        means: Means,
        report: Callable[[], None],
    ) -> None:
        """`report` is called after each text that is settled."""
        self._store, self._items, self._means, self._report = store, items, means, report
        self._materials = {material.column: material for material in materials}
        self._ledgers = {material.column: Ledger(means.budget.cost) for material in materials}
        self._clock = Clock(float("inf"))
        self._pool = MentorPool(means.max_concurrency)
        self._lock = threading.Lock()
        self._down_since: float | None = None
        self._booked = time.monotonic()
        self._stop = ""

    def run(self) -> str:
        """Why it ended before everything was asked for; empty if it did not.

        What a thread raises that is no fault of the mentor's, such as a full disk, ends all of them and is raised.
        An interruption ends the calls under way and is raised.
        """
        missing = iter(self._store.missing())
        self._means.budget.begin_run(self._store.spent)
        try:
            results = self._pool.run([lambda: self._work(missing)] * self._means.max_concurrency, self._clock)
        except KeyboardInterrupt:
            interrupt = getattr(self._means.backend, "interrupt", None)
            outcome_of(lambda: interrupt() if callable(interrupt) else None)
            raise
        finally:
            for column, ledger in self._ledgers.items():
                ledger.settle(_SETTLING)
                self._book(column)
        for result in results:
            if isinstance(result, Exception):
                raise result
        return self._stop

    def _work(self, missing: Iterator[tuple[int, str]]) -> None:
        try:
            while (place := self._next(missing)) is not None:
                settled = self._write(*place)
                if self._clock.cancelled:
                    return  # the call may have ended because all of them did
                self._store.settle(settled)
                self._report()
        except _StoppedError:
            return
        except BaseException:
            self._end("an error")
            raise

    def _next(self, missing: Iterator[tuple[int, str]]) -> tuple[int, str] | None:
        with self._lock:
            return None if self._stop else next(missing, None)

    def _write(self, row: int, column: str) -> Settled:
        allowance = self._means.budget.shares(1)[0]
        try:
            return self._ask_until_accepted(row, column, self._caller(column, allowance))
        finally:
            allowance.close()

    def _ask_until_accepted(self, row: int, column: str, caller: Caller) -> Settled:
        """One text, asked for `max_retry` times at most."""
        material, item = self._materials[column], self._items[row]
        schema, messages = material.agent.schema, material.messages(item)
        asked, best, outcome, reason, tries = messages, None, Outcome.FAILED, "", 0
        for tries in range(1, self._means.max_retry + 1):
            try:
                reply = self._ask(caller, material, asked, retry=tries > 1)
            except BackendError as error:
                outcome, reason = Outcome.FAILED, str(error)
                continue
            said = _read(caller, material, reply)
            if isinstance(said, Exception):
                outcome, reason = Outcome.UNREADABLE, describe(said)
                if not worth_asking_again(reply):
                    break
            else:
                review = material.review(said, item)
                if review.objection is None:
                    return Settled(row, item.key, column, Outcome.WRITTEN, review.value, tries)
                best = _better(best, review.value)
                outcome, reason = review.outcome, review.objection
                if review.final:
                    break
            asked = ask_again(messages, reply, reason, schema, wanted=material.wanted)
        outcome = outcome if best is None else Outcome.PARTLY
        return Settled(row, item.key, column, outcome, best, tries, reason)

    def _ask(self, caller: Caller, material: Material, messages: Sequence[Message], *, retry: bool) -> Reply:
        """The reply. Raises `BackendError` if there is none, `_StoppedError` if no other is to be asked for."""
        while True:
            try:
                reply = caller.ask(material.agent.role, messages, material.agent.schema, retry=retry)
            except BudgetSpentError as error:
                raise self._end(f"{error}: raise it, and the same command goes on") from None
            except EndpointPausedError as error:
                self._wait(str(error))
                continue
            except BackendError as error:
                if isinstance(error.__cause__, AccessDeniedError):
                    raise self._end(f"the mentor refuses the key: {error}") from None
                raise
            finally:
                self._book(material.column)
            self._down_since = None
            return reply

    def _caller(self, column: str, allowance: Allowance) -> Caller:
        means = self._means
        return Caller(
            means.backend,
            self._clock,
            call_timeout=means.call_timeout,
            allowance=allowance,
            cache=means.cache,
            ledger=self._ledgers[column],
        )

    def _wait(self, why: str) -> None:
        """Until endpoints that are all left alone may be looked at again. Raises `_StoppedError` after too long."""
        now = time.monotonic()
        self._down_since = self._down_since or now
        if self._stop or self._clock.cancelled:
            raise _StoppedError
        if now - self._down_since > self._means.deadline:
            raise self._end(f"the mentor did not work for {self._means.deadline:g} s: {why}")
        time.sleep(_LOOK_AGAIN)

    def _end(self, why: str) -> _StoppedError:
        with self._lock:
            self._stop = self._stop or why
        return _StoppedError()

    def _book(self, column: str) -> None:
        now = time.monotonic()
        with self._lock:
            seconds, self._booked = now - self._booked, now
            taken = self._ledgers[column].take()
        self._store.book(column, taken, seconds=seconds)


def _read(caller: Caller, material: Material, reply: Reply) -> object:
    """What the reply says, or the error, which its call then carries."""
    said = outcome_of(lambda: material.agent.read(reply))
    error = describe(said) if isinstance(said, Exception) else None
    thinking = split_thinking(reply.text)[1] if isinstance(reply.text, str) else ""
    caller.read(error=error, thinking_chars=len(thinking) + len(reply.thinking))
    return said


def _better(one: object, other: object) -> object:
    """The later text, or the longer of two ladders."""
    if isinstance(one, list) and isinstance(other, list):
        return max(one, other, key=len)
    return one if other is None else other
