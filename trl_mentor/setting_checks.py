"""Checks of single settings; each raises `ConfigError` with the setting's name, what it must be and what it was."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeGuard

from trl_mentor.errors import ConfigError


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a finite number, and no bool."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value is a whole number, and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def check(holds: bool, name: str, wanted: str, value: object) -> None:
    """Raise unless a value is what is wanted of it."""
    if not holds:
        raise ConfigError(f"{name} must be {wanted}, got {value!r}")


def check_choice(name: str, value: object, kinds: type[StrEnum], advice: str = "") -> None:
    """A setting that names one of several kinds."""
    allowed = [kind.value for kind in kinds]
    if value not in allowed:
        raise ConfigError(f"{name} must be one of {allowed}, got {value!r}{advice}")


def check_flag(name: str, value: object) -> None:
    """A switch."""
    check(isinstance(value, bool), name, "true or false", value)


def check_text(name: str, value: object, wanted: str) -> None:
    """A text that may be left out, but is not empty."""
    check(value is None or (isinstance(value, str) and value != ""), name, wanted, value)


def check_template(name: str, value: object, check_it: Callable[[str], None]) -> None:
    """A user's template, on which `check_it` raises `ConfigError` for what is wrong in its text."""
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be a text, got {value!r}")
    try:
        check_it(value)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None


def json_object(name: str, value: Any) -> dict[str, Any] | None:
    """A JSON object, given as one or, on a command line, as its text."""
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ConfigError(f"{name} must be a JSON object, got {value!r}: {error}") from error
    if parsed is not None and not isinstance(parsed, dict):
        raise ConfigError(f"{name} must be a JSON object, got {value!r}")
    return parsed
