"""The list of interventions: what the page filters and sorts by, and what became of their prompts later."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from trl_mentor.collapse import exceeds
from trl_mentor.journal import JournalRecords
from trl_mentor.records import Intervention
from trl_mentor.trial import verdict_path

_MOST_TOPICS = 200
"""Topics to choose from; rarer ones are found by searching for them."""

_MOST_OTHERS = 10
"""Interventions for the same prompt that are named before and after one."""

_FACETS: dict[str, Callable[[Intervention], str | None]] = {
    "outcome": lambda record: str(record.outcome),
    "cause": lambda record: str(record.group.cause),
    "arm": lambda record: record.arm and str(record.arm),
    "verdict": lambda record: "no_mentor" if record.guidance is None else verdict_path(record.guidance),
    "topic": lambda record: record.group.topic,
}


class Listing:
    """The interventions of a page, numbered as they happened in the run, from 1."""

    def __init__(self, records: JournalRecords, first: int) -> None:
        """Listed are those from position `first` on."""
        self._records = records
        self._first = first
        self._numbers: defaultdict[str, list[int]] = defaultdict(list)
        self._last: dict[tuple[str, int], int] = {}
        for number, record in enumerate(records, 1):
            self._last[str(record.group.prompt), record.step] = number
            if number > first:
                self._numbers[str(record.group.prompt)].append(number)
        self._returns: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
        for item in records.returns:
            told = {"step": item.step, "successes": item.successes, "completions": item.completions}
            ended = self._last.get((item.prompt_key, item.since), 0)
            self._returns[ended].append(told | {"probe": item.probe})

    def later(self, number: int) -> dict[str, Any]:
        """What became of the prompt of one intervention: its returns, and the other interventions for it around it."""
        numbers = self._numbers[str(self._records[number - 1].group.prompt)]
        place = bisect_left(numbers, number)
        around = [*numbers[max(place - _MOST_OTHERS, 0) : place], *numbers[place + 1 : place + 1 + _MOST_OTHERS]]
        return {"returns": self._returns.get(number, [])[:_MOST_OTHERS], "others": around}

    def index(self) -> dict[str, Any]:
        """Columns with one entry for each listed intervention, and the names that the coded ones stand for."""
        listed = self._records[self._first :]
        threshold = self._records.run.success_threshold
        facets = {name: _coded([value(record) for record in listed]) for name, value in _FACETS.items()}
        return {
            "first": self._first + 1,
            "steps": [record.step for record in listed],
            "times": [time[:19] for time in self._records.times[self._first :]],
            "titles": [record.group.question for record in listed],
            "attempts": [len(record.group.attempts) for record in listed],
            "completions": [len(record.completions) for record in listed],
            "successes": [
                sum(success is not None and exceeds(success, threshold) for success in record.successes)
                for record in listed
            ],
            "returned": [self._returned(number) for number in range(self._first + 1, len(self._records) + 1)],
            "facets": facets,
        }

    def _returned(self, number: int) -> int:
        """2 if the prompt was solved without a hint later, 1 if it came back and was not, else 0."""
        returns = self._returns.get(number, [])
        return 2 if any(item["successes"] for item in returns) else int(bool(returns))


def _coded(values: Sequence[str | None]) -> dict[str, Any]:
    """Names, the most frequent first, and for each value the position of its name; -1 for what has none."""
    counts = Counter(value for value in values if value is not None)
    names = sorted(counts, key=lambda name: (-counts[name], name))[:_MOST_TOPICS]
    codes = {name: code for code, name in enumerate(names)}
    return {"names": names, "codes": [codes.get(value, -1) if value is not None else -1 for value in values]}
