"""Reward functions whose exceptions count as "could not be scored" instead of ending the run."""

from __future__ import annotations

import asyncio
import functools
import logging
import traceback
from collections import Counter
from collections.abc import Collection
from typing import Any

from torch import nn

from trl_mentor.channel import VERIFIER_ERROR
from trl_mentor.mentor_pool import describe, outcome_of
from trl_mentor.rewards.callables import RewardFunction, is_async, name_of

logger = logging.getLogger(__name__)


class RewardGuard:
    """Wraps reward functions and counts what they raise on this process.

    A function that raises, or returns anything but a number or None for each completion, gives None for every
    completion of that call, and says why through the channel if its values decide success. Every process goes on to
    TRL's collectives as if it had returned.
    """

    def __init__(self, *, decisive: Collection[str] | None = None) -> None:
        """`decisive` names the functions without which a completion is not judged; None means all."""
        self._decisive = decisive
        self._count = 0
        self._logged: set[tuple[str, type]] = set()
        self._columns: dict[str, set[str]] = {}

    def take_count(self) -> int:
        """Exceptions since this was asked last."""
        count, self._count = self._count, 0
        return count

    def wrap(self, functions: Any) -> Any:
        """The reward functions of a trainer, one or a list: callables wrapped, models and their names as they are."""
        if isinstance(functions, list | tuple):
            return [self.wrap(function) for function in functions]
        if isinstance(functions, str | nn.Module) or not callable(functions):
            return functions
        name = name_of(functions)
        wrapped = self._wrap_async(functions, name) if is_async(functions) else self._wrap(functions, name)
        wrapped.__name__ = name
        return wrapped

    def _wrap(self, function: RewardFunction, name: str) -> RewardFunction:
        @functools.wraps(function)
        def scored(**given: Any) -> list[Any]:
            logged = self._watched(name, given)
            values = outcome_of(lambda: list(function(**given)))  # a generator may raise late
            return self._scored(name, values, given, logged)

        return scored

    def _wrap_async(self, function: RewardFunction, name: str) -> RewardFunction:
        @functools.wraps(function)
        async def scored(**given: Any) -> list[Any]:
            async def listed() -> list[Any]:
                return list(await function(**given))

            logged = self._watched(name, given)
            values: list[Any] | BaseException
            (values,) = await asyncio.gather(listed(), return_exceptions=True)
            if isinstance(values, BaseException) and not isinstance(values, Exception):
                raise values
            return self._scored(name, values, given, logged)

        return scored

    def _watched(self, name: str, given: dict[str, Any]) -> Counter[str]:
        """How many values this call logs for each column, counted as it logs them."""
        logged: Counter[str] = Counter()
        log_extra, known = given["log_extra"], self._columns.setdefault(name, set())

        def watched(column: str, values: list[Any]) -> None:
            logged[column] += len(values)
            known.add(column)
            log_extra(column, values)

        given["log_extra"] = watched
        return logged

    def _scored(
        self, name: str, outcome: list[Any] | Exception, given: dict[str, Any], logged: Counter[str]
    ) -> list[Any]:
        values = outcome if isinstance(outcome, Exception) else _numbers(outcome, len(given["completions"]))
        return self._unscored(name, values, given, logged) if isinstance(values, Exception) else values

    def _unscored(self, name: str, error: Exception, given: dict[str, Any], logged: Counter[str]) -> list[None]:
        self._count += 1
        rows = len(given["completions"])
        told = (
            f"{name} returned {error}" if isinstance(error, _WrongValuesError) else f"{name} raised {describe(error)}"
        )
        if (name, type(error)) not in self._logged:
            self._logged.add((name, type(error)))
            where = traceback.extract_tb(error.__traceback__)[-1:]
            at = f" at {where[0].filename}:{where[0].lineno}" if where else ""
            logger.warning(
                "trl-mentor: "
                "%s%s: its %d completions on this process count as not scored (mentor_reward_errors='unscorable'). "
                "More of this kind are counted in mentor/reward_errors and not logged.",
                told,
                at,
                rows,
            )
        for column in sorted(self._columns[name]):
            given["log_extra"](column, [None] * (rows - logged[column]))  # TRL's table needs a value for each row
        if self._decisive is None or name in self._decisive:
            given["log_extra"](VERIFIER_ERROR, [told] * rows)
        return [None] * rows


class _WrongValuesError(Exception):
    """What a reward function returned is not what it is to return."""


def _numbers(values: list[Any], rows: int) -> list[float | None] | _WrongValuesError:
    """The values as TRL reads them, or what is wrong with them."""
    if len(values) != rows:
        return _WrongValuesError(f"{len(values)} values for {rows} completions; expected one for each")
    numbers: list[float | None] = []
    for value in values:
        number = None if value is None else outcome_of(functools.partial(_number, value))
        if isinstance(number, Exception):
            return _WrongValuesError(f"a value of type {type(value).__name__}; expected a number or None")
        numbers.append(number)
    return numbers


def _number(value: Any) -> float:
    if isinstance(value, str | bytes | bytearray):
        raise TypeError("a text is no number")
    return float(value)
