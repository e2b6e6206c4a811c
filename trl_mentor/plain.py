"""Records as plain JSON and back, for what a run writes to disk."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

_annotations = cache(get_type_hints)


def plain_json(value: Any) -> Any:
    """`value` as plain JSON: records become objects, NaN and infinity null, anything unknown its `str`."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    return str(value)


def survives_json(value: Any) -> bool:
    """Whether a value comes back from JSON as it is."""
    try:
        return bool(json.loads(json.dumps(value, allow_nan=False)) == value)
    except (TypeError, ValueError, RecursionError):
        return False


def from_plain(kind: Any, value: Any) -> Any:
    """A value of the annotated type `kind` from its plain JSON. Raises `TypeError`, `ValueError` or `KeyError`."""
    if kind is Any:
        return value
    if isinstance(kind, type) and is_dataclass(kind):
        hints = _annotations(kind)
        return kind(**{name: from_plain(hint, value[name]) for name, hint in hints.items() if name in value})
    origin, args = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return _first_that_fits(args, value)
    if origin is tuple:
        return tuple(from_plain(args[0], item) for item in _checked(value, list))
    if origin is list:
        return [from_plain(args[0], item) for item in _checked(value, list)]
    if origin in (Mapping, dict):
        return {key: from_plain(args[1], item) for key, item in _checked(value, dict).items()}
    if issubclass(kind, Enum):
        return kind(value)
    return float(_checked(value, int | float)) if kind is float else _checked(value, kind)


def _first_that_fits(kinds: tuple[Any, ...], value: Any) -> Any:
    if value is None and NoneType in kinds:
        return None
    for kind in kinds:
        try:
            return from_plain(kind, value)
        except (TypeError, ValueError, KeyError):
            continue
    raise TypeError(f"expected one of {kinds}, got {type(value).__name__}")


def _checked(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind}, got {type(value).__name__}")
    return value
