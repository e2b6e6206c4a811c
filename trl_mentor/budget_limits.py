"""What a mentor may spend, as a user writes it down: limits and prices, read and checked. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trl_mentor.errors import ConfigError
from trl_mentor.records import Usage
from trl_mentor.setting_checks import is_number

LIMITS = ("batch_calls", "batch_tokens", "batch_cost", "run_calls", "run_tokens", "run_cost")
PRICES = ("prompt", "completion", "cached")
_MILLION = 1_000_000
_POSITIVE = "above 0"


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices per million tokens, in the currency in which the costs of the budget are given."""

    prompt: float = 0.0
    completion: float = 0.0
    cached: float = 0.0

    def cost(self, usage: Usage) -> float:
        """What a call with this usage costs; thinking is part of the completion."""
        cached = min(usage.cached_tokens, usage.prompt_tokens)
        prompt = (usage.prompt_tokens - cached) * self.prompt + cached * self.cached
        return (prompt + usage.completion_tokens * self.completion) / _MILLION


def read_prices(given: Mapping[str, Any] | None, name: str = "prices") -> Prices | None:
    """The prices of a mapping, or None. Raises `ConfigError` with the names that are known."""
    if given is None:
        return None
    _check_numbers(name, given, PRICES, least="at least 0")
    missing = [key for key in ("prompt", "completion") if key not in given]
    if missing:
        raise ConfigError(f"{name} lacks {' and '.join(missing)}; give both, per million tokens, got {dict(given)!r}")
    return Prices(given["prompt"], given["completion"], given.get("cached", given["prompt"]))


def read_limits(
    given: Mapping[str, Any] | None, prices: Prices | None, *, name: str = "budget", prices_name: str = "prices"
) -> dict[str, float]:
    """The limits of a mapping. Raises `ConfigError` with the names that are known."""
    limits = {} if given is None else given
    _check_numbers(name, limits, LIMITS, least=_POSITIVE)
    broken = [key for key, value in limits.items() if not key.endswith("_cost") and not isinstance(value, int)]
    if broken:
        raise ConfigError(f"{name}[{broken[0]!r}] is {limits[broken[0]]!r}; expected a whole number")
    costs = [key for key in limits if key.endswith("_cost")]
    if costs and prices is None:
        raise ConfigError(
            f"{name} limits {' and '.join(costs)}, which needs {prices_name}: an object with prompt, completion and, "
            "if they are cheaper, cached, per million tokens"
        )
    return dict(limits)


def refuse_batch_limits(limits: Mapping[str, Any] | None, name: str = "budget") -> None:
    """Raise `ConfigError` for limits by batch where hints are written ahead, group by group, and no batch waits."""
    found = [key for key in limits or () if key.startswith("batch_")]
    if found:
        raise ConfigError(
            f"{name} limits {' and '.join(found)}, but with mentor_schedule='ahead' hints are written group by group "
            f"and belong to no batch; use {' and '.join(key.replace('batch', 'run', 1) for key in found)} instead"
        )


def _check_numbers(name: str, given: Any, known: Sequence[str], *, least: str) -> None:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{name} is {given!r}; expected an object with some of {', '.join(known)}")
    unknown = [key for key in given if key not in known]
    if unknown:
        raise ConfigError(f"{name} has the unknown entry {unknown[0]!r}; known are {', '.join(known)}")
    for key, value in given.items():
        if not is_number(value) or value < 0 or (value == 0 and least == _POSITIVE):
            raise ConfigError(f"{name}[{key!r}] is {value!r}; expected a number {least}")
