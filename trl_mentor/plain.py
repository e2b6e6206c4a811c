"""Records as plain JSON and back, for what a run writes to disk."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from trl_mentor.records import UNWRITTEN


def plain_json(value: Any) -> Any:
    """`value` as plain JSON: NaN and infinity become null, records objects, unknown things their `str`."""
    if is_dataclass(value) and not isinstance(value, type):
        written = [f.name for f in fields(value) if not f.metadata.get(UNWRITTEN)]
        return {name: plain_json(getattr(value, name)) for name in written}
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
    return _reader(kind)(value)


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """`from_plain` for one type, which is looked into once and not for every value."""
    if kind is Any:
        return lambda value: value
    if isinstance(kind, type) and is_dataclass(kind):
        return _record_reader(kind)
    origin, args = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return _union_reader(args)
    if origin in (tuple, list):
        read = _reader(args[0])
        return lambda value: origin([read(item) for item in _checked(value, list)])
    if origin in (Mapping, dict):
        read = _reader(args[1])
        return lambda value: {key: read(item) for key, item in _checked(value, dict).items()}
    if issubclass(kind, Enum):
        return lambda value: kind(value)
    if kind is float:
        return _finite
    return lambda value: _checked(value, kind)


def _record_reader(kind: Any) -> Callable[[Any], Any]:
    readers = [(name, _reader(hint)) for name, hint in get_type_hints(kind).items()]
    return lambda value: kind(**{name: read(value[name]) for name, read in readers if name in value})


def _union_reader(kinds: tuple[Any, ...]) -> Callable[[Any], Any]:
    """The first of the types that fits."""
    readers = [_reader(kind) for kind in kinds if kind is not NoneType]

    def read(value: Any) -> Any:
        if value is None and NoneType in kinds:
            return None
        for reader in readers:
            try:
                return reader(value)
            except (TypeError, ValueError, KeyError):
                continue
        raise TypeError(f"expected one of {kinds}, got {type(value).__name__}")

    return read


def _finite(value: Any) -> float:
    number = float(_checked(value, int | float))
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number, got {number}")
    return number


def _checked(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind}, got {type(value).__name__}")
    return value
