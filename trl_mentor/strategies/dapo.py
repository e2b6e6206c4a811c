"""DAPO's dynamic sampling (arXiv 2503.14476): a group without an advantage gives its place to another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trl_mentor.records import CollapsedGroup, GroupState, Lesson, Row

MAX_ROUNDS = 10
"""The paper's limit of generation batches, `max_num_gen_batches`."""


class DapoStrategy:
    """Keeps the groups with 0 < successes < G (equation 8 of the paper) and samples until each place has such a group.

    The paper draws new batches and filters them until the batch is full, and throws the rest away. TRL's batch has
    fixed places, so each place is filled by itself: by a fresh question, drawn with `fresh`, or, without it, by its
    own prompt again; no group with an advantage is thrown away. After `mentor_max_rounds` re-rolls a group that still
    has no advantage is trained as it is, with none, where the paper's code ends the run. A group of which no
    completion could be scored is left alone, since a verifier that fails would fail on others as well.
    """

    name = "dapo"
    gives_hints = False
    max_rounds = MAX_ROUNDS

    def __init__(self, fresh: Callable[[CollapsedGroup], Mapping[str, Any]] | None = None) -> None:
        """`fresh` returns the data set row that takes the place of a group; see `refill.Refill`."""
        self.fresh = fresh

    def select(self, states: Sequence[GroupState]) -> list[int]:
        equal = (GroupState.COLLAPSED, GroupState.ALL_CORRECT)
        return [index for index, state in enumerate(states) if state in equal]

    def prepare(self, groups: Sequence[CollapsedGroup]) -> list[Lesson]:
        if self.fresh is None:
            return [Lesson(group.prompt) for group in groups]
        examples = [self.fresh(group) for group in groups]
        return [Lesson(example["prompt"], example=example) for example in examples]

    def shorten(self, group: CollapsedGroup, lesson: Lesson) -> Lesson | None:
        return None

    def merge(self, original: Sequence[Row], rerolled: Sequence[Row]) -> list[Row]:
        return list(rerolled)
