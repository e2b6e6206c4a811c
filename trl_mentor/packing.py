"""Which part of the failed attempts the mentor reads when they do not all fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from trl_mentor.errors import ConfigError
from trl_mentor.records import Attempt

MIN_BUDGET = 400
"""Characters below which a shortened attempt, with its notes, says too little to be worth reading."""

_LEFT_OUT_ROOM = 80


def check_budget(budget: int) -> None:
    """Raise `ConfigError` if `budget` characters cannot hold even one shortened attempt."""
    if budget < MIN_BUDGET:
        raise ConfigError(
            f"the budget for attempts is {budget} characters; expected at least {MIN_BUDGET}: raise it, or the mentor "
            "sees too little of what went wrong"
        )


def pack_attempts(attempts: Sequence[Attempt], budget: int) -> list[str]:
    """Texts of the distinct attempts, shortest first, of at most `budget` characters in total.

    As many as possible are whole, as long as each longer one still gets `MIN_BUDGET` characters; those keep head and
    tail. What was shortened, cut off, repeated or left out is said in square brackets. Raises `ConfigError` as
    `check_budget` does.
    """
    check_budget(budget)
    counts = Counter((attempt.text.strip(), attempt.truncated) for attempt in attempts)
    items = [(text or "[empty completion]", _notes(cut, times)) for (text, cut), times in counts.items()]
    items = _drop_longest(sorted(items, key=_size), budget)
    packed: list[str] = []
    left = budget
    for position, (text, notes) in enumerate(items):
        later = items[position + 1 :]
        room = left - sum(map(_floor, later))
        if _size((text, notes)) > room:
            room = left // (len(later) + 1)
        packed.append(shorten(text, room - len(notes)) + notes)
        left -= len(packed[-1])
    return packed


def _notes(truncated: bool, times: int) -> str:
    cut = "\n[cut off here: this attempt ran into the length limit]" if truncated else ""
    repeated = f"\n[{times} attempts were the same, word for word]" if times > 1 else ""
    return cut + repeated


def _size(item: tuple[str, str]) -> int:
    return len(item[0]) + len(item[1])


def _floor(item: tuple[str, str]) -> int:
    return min(_size(item), MIN_BUDGET)


def _drop_longest(items: list[tuple[str, str]], budget: int) -> list[tuple[str, str]]:
    """The shortest attempts, as many as get their minimum; the last one says how many others there are."""
    needed = list(accumulate(map(_floor, items)))
    if not items or needed[-1] <= budget:
        return items
    kept = max(1, sum(need <= budget - _LEFT_OUT_ROOM for need in needed))
    text, notes = items[kept - 1]
    return [*items[: kept - 1], (text, f"{notes}\n[not shown: longer attempts, {len(items) - kept} of them]")]


def shorten(text: str, room: int) -> str:
    """The text in at most `room` characters: whole, or its head and tail with a mark between them."""
    if len(text) <= room:
        return text
    keep = room - len(_mark(len(text)))
    head = keep - keep // 2
    tail = keep // 2
    return text[:head] + _mark(len(text) - keep) + text[len(text) - tail :]


def _mark(omitted: int) -> str:
    return f"\n[... {omitted} characters left out ...]\n"
