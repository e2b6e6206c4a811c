"""Fresh questions of the data set for the places of groups without an advantage, as DAPO samples them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from trl_mentor.errors import ConfigError
from trl_mentor.records import CollapsedGroup, Prompt
from trl_mentor.trial import prompt_key

_TRIES = 100
"""Rows that are looked at for one draw, until one's prompt is not in the batch."""


class Refill:
    """Draws rows of a data set by a hash of seed, step, place, prompt of the place and number of the draw.

    So the same rows are drawn on any number of ranks and in a run that is resumed. Called on the main process only.
    """

    def __init__(self, rows: Any, *, seed: int) -> None:
        """`rows` is a data set with a length and a place for each row. Raises `ConfigError` for a stream."""
        if not (hasattr(rows, "__len__") and hasattr(rows, "__getitem__")):
            raise ConfigError(
                f"mentor_strategy='dapo' draws fresh questions from the training data set, but a {type(rows).__name__}"
                " is a stream, of which no row can be drawn; load the data set whole, or set mentor_dapo_refill=false "
                "to sample a group's own prompt again"
            )
        self._rows = rows
        self._seed = seed
        self._step = 0
        self._in_batch: set[str] = set()
        self._draws: Counter[int] = Counter()

    def begin(self, prompts: Iterable[Prompt], *, step: int) -> None:
        """A batch of these prompts is generated, with `step` optimizer steps done."""
        self._step = step
        self._in_batch = set(map(prompt_key, prompts))
        self._draws.clear()

    def __call__(self, group: CollapsedGroup) -> Mapping[str, Any]:
        """The row that takes the place of a group: one whose prompt the batch has not had, if one is found."""
        own = prompt_key(group.prompt)
        lot = random.Random(f"{self._seed} {self._step} {group.index} {own} {self._draws[group.index]}")
        self._draws[group.index] += 1
        for _ in range(_TRIES):
            row: Mapping[str, Any] = self._rows[lot.randrange(len(self._rows))]
            key = prompt_key(row["prompt"])
            if key not in self._in_batch:
                break
        self._in_batch.add(key)
        return row
