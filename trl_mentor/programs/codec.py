"""Python values as JSON text and back, by exact plain types: what crosses between a program and those who judge it.

The writing side runs inside the sandbox, so this module imports nothing but small C modules. What is not plain data
becomes a handle, a number that stands for an object which stays where it is. None, booleans, texts, floats and small
integers stand for themselves; everything else is a list that begins with its kind.
"""

from __future__ import annotations

import builtins
import sys
from _json import encode_basestring_ascii as _quoted
from collections.abc import Callable, Iterable
from typing import Any

MOST_ITEMS = 100_000
"""Items of an iterator that cross; it ends there for the other side."""

_EXACT = 2**53
_VIEWS = {type({}.keys()): "keys", type({}.values()): "values", type({}.items()): "items"}


class UnfitError(Exception):
    """A value has no plain form and may not stay where it is."""


class TooLargeError(Exception):
    """A value is too large to cross."""


def encode(value: Any, keep: Callable[[Any], int], room: list[int]) -> str:
    """The value as JSON text.

    `keep` numbers an object that is no plain data (or raises `UnfitError`), and `room` holds the characters that are
    left, which are used up: beyond them it raises `TooLargeError`. Values of subclasses become values of their base.
    """
    kind = type(value)
    if value is None:
        text = "null"
    elif kind is bool:
        text = "true" if value else "false"
    elif issubclass(kind, str):
        text = _quoted(str.__str__(value))
    elif issubclass(kind, int):
        number = int.__int__(value)
        text = int.__repr__(number) if -_EXACT < number < _EXACT else f'["int","{number:x}"]'
    elif issubclass(kind, float):
        text = float.__repr__(float.__float__(value))
        text = text if text.lstrip("-")[0].isdigit() else f'["float","{text}"]'
    else:
        return _compound(value, kind, keep, room)
    _use(room, len(text))
    return text


def _compound(value: Any, kind: type, keep: Callable[[Any], int], room: list[int]) -> str:
    for base, name, items in _CONTAINERS:
        if issubclass(kind, base):
            return _listed(name, items(value), keep, room)
    if issubclass(kind, dict):
        ordered = _is_of(kind, "collections", "OrderedDict")
        return _pairs("dict", value.items() if ordered else dict.items(value), keep, room)
    if kind in _VIEWS:
        name = _VIEWS[kind]
        return _pairs(name, value, keep, room) if name == "items" else _listed(name, value, keep, room)
    if issubclass(kind, bytes | bytearray):
        data = bytes.__getitem__(value, slice(None)) if issubclass(kind, bytes) else bytearray.copy(value)
        parts = ["bytes" if issubclass(kind, bytes) else "bytearray", data.hex()]
    elif kind is complex:
        parts = ["complex", repr(value.real), repr(value.imag)]
    elif kind is range:
        parts = ["range", *(f"{number:x}" for number in (value.start, value.stop, value.step))]
    elif _is_of(kind, "decimal", "Decimal") or _is_of(kind, "fractions", "Fraction"):
        parts = [kind.__name__, str(value)]
    elif hasattr(kind, "__next__"):
        return _listed("iterator", (item for item, _ in zip(value, range(MOST_ITEMS), strict=False)), keep, room)
    else:
        parts = ["handle", str(keep(value))]
    text = "[" + ",".join(map(_quoted, parts)) + "]"
    _use(room, len(text))
    return text


_CONTAINERS: tuple[tuple[type, str, Callable[[Any], Iterable[Any]]], ...] = (
    (list, "list", list.__iter__),
    (tuple, "tuple", tuple.__iter__),
    (set, "set", set.__iter__),
    (frozenset, "frozenset", frozenset.__iter__),
)


def _is_of(kind: type, module: str, name: str) -> bool:
    """Whether it is this type, without importing its module where nobody has."""
    return kind.__name__ == name and kind is getattr(sys.modules.get(module), name, None)


def _listed(name: str, items: Iterable[Any], keep: Callable[[Any], int], room: list[int]) -> str:
    _use(room, len(name) + 4)
    return f'["{name}"' + "".join([f",{encode(item, keep, room)}" for item in items]) + "]"


def _pairs(name: str, items: Iterable[tuple[Any, Any]], keep: Callable[[Any], int], room: list[int]) -> str:
    _use(room, len(name) + 4)
    return (
        f'["{name}"'
        + "".join([f",[{encode(key, keep, room)},{encode(item, keep, room)}]" for key, item in items])
        + "]"
    )


def _use(room: list[int], characters: int) -> None:
    room[0] -= characters + 1
    if room[0] < 0:
        raise TooLargeError("the value is too large to be handed over")


def decode(data: Any, handle: Callable[[int], Any]) -> Any:
    """The value of parsed JSON. Raises `ValueError`, `TypeError`, `LookupError` or so for what `encode` never writes.

    It builds sets and dicts, whose keys may be chosen to be slow: only inside the sandbox.
    """
    if not isinstance(data, list):
        return data
    kind, items = data[0], data[1:]
    if kind in ("dict", "items"):
        pairs = {decode(key, handle): decode(item, handle) for key, item in items}
        return pairs if kind == "dict" else pairs.items()
    if kind in ("int", "range"):
        numbers = [int(text, 16) for text in items]
        return numbers[0] if kind == "int" else range(*numbers)
    if kind in _TEXTUAL:
        return _TEXTUAL[kind](*items)
    if kind == "handle":
        return handle(int(items[0]))
    return _BUILT[kind]([decode(item, handle) for item in items])


def is_encoded(data: Any) -> bool:
    """Whether parsed JSON is something that `encode` writes. It builds nothing, and is for the outside.

    Raises `RecursionError` for what is nested too deeply.
    """
    if not isinstance(data, list):
        return True
    if not data or not isinstance(data[0], str):
        return False
    kind, items = data[0], data[1:]
    if kind in ("dict", "items"):
        return all(isinstance(one, list) and len(one) == 2 and all(map(is_encoded, one)) for one in items)
    if kind in _BUILT:
        return all(map(is_encoded, items))
    wanted = _PARTS.get(kind)
    return wanted == len(items) and all(isinstance(item, str) for item in items)


_PARTS = {"int": 1, "range": 3, "float": 1, "bytes": 1, "bytearray": 1, "complex": 2, "Decimal": 1, "Fraction": 1,
          "handle": 1}  # fmt: skip


def _imported(module: str, name: str, text: str) -> Any:
    return getattr(__import__(module), name)(text)


_TEXTUAL: dict[str, Callable[..., Any]] = {
    "float": float,
    "bytes": bytes.fromhex,
    "bytearray": bytearray.fromhex,
    "complex": lambda real, imaginary: complex(float(real), float(imaginary)),
    "Decimal": lambda text: _imported("decimal", "Decimal", text),
    "Fraction": lambda text: _imported("fractions", "Fraction", text),
}
_BUILT: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "iterator": iter,
    "keys": lambda items: dict.fromkeys(items).keys(),
    "values": lambda items: dict(enumerate(items)).values(),
}


def encode_error(error: BaseException) -> list[str]:
    """An exception as its nearest builtin type, its own type and its message."""
    kinds = [kind for kind in type(error).__mro__ if getattr(builtins, kind.__name__, None) is kind]
    try:
        message = str(error)
    except Exception:  # the program's own
        message = ""
    return [kinds[0].__name__, type(error).__name__, str.__str__(message)[:1000]]


def decode_error(kind: str, message: str) -> BaseException:
    """An exception of a builtin type with this message."""
    found = getattr(builtins, kind, None)
    if not (isinstance(found, type) and issubclass(found, BaseException)):
        found = Exception
    if issubclass(found, StopIteration | StopAsyncIteration | GeneratorExit):
        found = RuntimeError  # it would end a loop of the tests that it comes up in
    try:
        return found(message)
    except TypeError:  # such as UnicodeDecodeError, which takes five arguments
        return ValueError(message)


def texts(*parts: Any) -> str:
    """A JSON list of texts, numbers and None."""
    return "[" + ",".join("null" if part is None else _quoted(part) if isinstance(part, str) else str(part)
                          for part in parts) + "]"  # fmt: skip
