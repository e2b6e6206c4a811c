"""Hits among groups, by name: for shares that are compared. Standard library only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Tally:
    """How many of some groups."""

    groups: int = 0
    hits: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.groups + other.groups, self.hits + other.hits)

    def __sub__(self, other: Tally) -> Tally:
        return Tally(self.groups - other.groups, self.hits - other.hits)


@dataclass(frozen=True, slots=True)
class Tallies:
    """Tallies by name; a name that nothing was counted under has an empty one."""

    cells: Mapping[str, Tally] = field(default_factory=dict)

    @classmethod
    def count(cls, named: Iterable[tuple[str, bool]]) -> Tallies:
        """One group for each pair of a name and whether it is a hit."""
        counts: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        for name, hit in named:
            cell = counts[name]
            cell[0] += 1
            cell[1] += hit
        return cls({name: Tally(*cell) for name, cell in counts.items()})

    def __getitem__(self, name: str) -> Tally:
        return self.cells.get(name, Tally())

    def __add__(self, other: Tallies) -> Tallies:
        return Tallies({name: self[name] + other[name] for name in {**self.cells, **other.cells}})

    def __sub__(self, other: Tallies) -> Tallies:
        left = {name: self[name] - other[name] for name in {**self.cells, **other.cells}}
        return Tallies({name: tally for name, tally in left.items() if tally != Tally()})
