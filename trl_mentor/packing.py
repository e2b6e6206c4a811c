"""Which part of the failed attempts the mentor reads when they do not all fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from trl_mentor.errors import ConfigError
from trl_mentor.records import Attempt

MIN_BUDGET = 400
"""Characters below which a shortened attempt, with its notes, says too little to be worth reading."""

MAX_FEEDBACK_CHARS = 1_000
"""Characters of what was reported on one attempt."""

_LEFT_OUT_ROOM = 80

Item = tuple[str, str, str]
"""A distinct attempt: its text, the notes at its end, and what was reported on it."""


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
    items = _shown(attempts, budget)
    packed: list[str] = []
    left = budget
    for position, (text, notes, _) in enumerate(items):
        later = items[position + 1 :]
        room = left - sum(map(_floor, later))
        if _size(items[position]) > room:
            room = left // (len(later) + 1)
        packed.append(shorten(text, room - len(notes)) + notes)
        left -= len(packed[-1])
    return packed


def pack_feedback(attempts: Sequence[Attempt], budget: int) -> list[str]:
    """What was reported on each of the packed attempts, in their order: at most `MAX_FEEDBACK_CHARS`, "" for nothing.

    It is no part of their texts, because only attribution reads it and all roles share the texts.
    """
    return [shorten(feedback, MAX_FEEDBACK_CHARS) for _, _, feedback in _shown(attempts, budget)]


def _shown(attempts: Sequence[Attempt], budget: int) -> list[Item]:
    check_budget(budget)
    counts: Counter[tuple[str, bool]] = Counter()
    feedback: dict[tuple[str, bool], str] = {}
    for attempt in attempts:
        key = attempt.text.strip(), attempt.truncated
        counts[key] += 1
        feedback[key] = feedback.get(key) or (attempt.feedback or "").strip()
    items = [
        (text or "[empty completion]", _notes(cut, times), feedback[text, cut])
        for (text, cut), times in counts.items()
    ]
    return _drop_longest(sorted(items, key=_size), budget)


def _notes(truncated: bool, times: int) -> str:
    cut = "\n[cut off here: this attempt ran into the length limit]" if truncated else ""
    repeated = f"\n[{times} attempts were the same, word for word]" if times > 1 else ""
    return cut + repeated


def _size(item: Item) -> int:
    return len(item[0]) + len(item[1])


def _floor(item: Item) -> int:
    return min(_size(item), MIN_BUDGET)


def _drop_longest(items: list[Item], budget: int) -> list[Item]:
    """The shortest attempts, as many as get their minimum; the last one says how many others there are."""
    needed = list(accumulate(map(_floor, items)))
    if not items or needed[-1] <= budget:
        return items
    kept = max(1, sum(need <= budget - _LEFT_OUT_ROOM for need in needed))
    text, notes, feedback = items[kept - 1]
    others = f"\n[not shown: longer attempts, {len(items) - kept} of them]"
    return [*items[: kept - 1], (text, notes + others, feedback)]


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
