"""What a program gave against what is expected, outside of the sandbox: linear in time, and nothing of it is built."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

_TOKEN = 1_000  # characters of a token that is read as a number


def same_output(got: str, expected: str) -> bool:
    """Whether a program printed what is expected, as LiveCodeBench compares it.

    Line by line without the blanks around; two lines of numbers are also equal if their exact values are: `1.0 2` is
    `1 2.00`.
    """
    one, two = _lines(got), _lines(expected)
    return len(one) == len(two) and all(map(_same_line, one, two))


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


def _same_line(got: str, expected: str) -> bool:
    if got == expected:
        return True
    one, two = got.split(), expected.split()
    if len(one) != len(two) or any(len(token) > _TOKEN for token in one):
        return False
    try:
        return list(map(Decimal, one)) == list(map(Decimal, two))
    except InvalidOperation:
        return False


def same_value(got: Any, expected: Any) -> bool:
    """Whether an encoded result (see `codec`) is the expected JSON value, as Python's `==` has it.

    Tuples count as lists at any depth, since JSON has nothing else; 1, 1.0 and true are equal; floats are compared
    exactly, as LiveCodeBench does. Raises `ValueError`, `TypeError` or `LookupError` for what is no encoded value.
    """
    if not isinstance(got, list):
        return not isinstance(expected, list | dict) and bool(got == expected)
    kind, items = got[0], got[1:]
    if kind in ("list", "tuple"):
        return isinstance(expected, list) and len(items) == len(expected) and all(map(same_value, items, expected))
    if kind == "dict":
        return isinstance(expected, dict) and len(items) == len(expected) and _same_items(items, expected)
    if kind == "int":
        return isinstance(expected, int | float) and int(items[0], 16) == expected
    if kind == "float":
        return isinstance(expected, float) and float(items[0]) == expected
    return False


def _same_items(items: list[Any], expected: dict[str, Any]) -> bool:
    return all(isinstance(key, str) and key in expected and same_value(item, expected[key]) for key, item in items)


def shown(data: Any, most: int) -> str:
    """An encoded value as Python writes it, cut to about so many characters."""
    text = "".join(_pieces(data, [most]))
    return text if len(text) <= most else f"{text[:most]}..."


_BRACKETS = {"list": "[]", "tuple": "()", "set": "{}", "dict": "{}", "frozenset": "{}"}


def _pieces(data: Any, room: list[int]) -> list[str]:
    if room[0] < 0:
        return []
    if not isinstance(data, list):
        text = repr(data[: room[0] + 1] if isinstance(data, str) else data)
        room[0] -= len(text)
        return [text]
    kind, items = data[0], data[1:]
    if kind not in _BRACKETS:
        room[0] -= 20
        if kind == "int" and len(items[0]) < 1_000:
            return [str(int(items[0], 16))]
        return [f"{kind}({', '.join(str(item)[:40] for item in items[:3])})"]
    pieces = [_BRACKETS[kind][0]]
    for item in items:
        if room[0] < 0:
            break
        room[0] -= 2
        if kind == "dict":
            pieces += [*_pieces(item[0], room), ": ", *_pieces(item[1], room), ", "]
        else:
            pieces += [*_pieces(item, room), ", "]
    if len(pieces) > 1 and not (kind == "tuple" and len(items) == 1):
        pieces.pop()
    return [*pieces, _BRACKETS[kind][1]]
