"""What TRL makes of a reward function: its name and whether it is awaited."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

RewardFunction = Callable[..., Any]


def is_async(function: RewardFunction) -> bool:
    """Whether calling it gives something to await."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def name_of(function: RewardFunction) -> str:
    """The name under which TRL logs it."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))
