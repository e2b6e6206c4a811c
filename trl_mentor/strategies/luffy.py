"""LUFFY (arXiv 2504.14945): a demonstration joins every group."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from trl_mentor.records import CollapsedGroup, GroupState, Lesson, Roll, Row, Weighting
from trl_mentor.rescue import scored_under, with_weighting
from trl_mentor.strategies.material import Material, a_text


class LuffyStrategy:
    r"""LUFFY (arXiv 2504.14945): G' = {N - 1 completions of the policy} + {o*}, with o* a demonstration.

    The rewards of the task score o* like any completion, and A_j = r_j - mean r over G', which is TRL's
    `scale_rewards="none"`. A token of o* has the loss -A f(p) with f(p) = p / (p + gamma), p its probability under q
    and gamma = 0.1 (`Weighting.SHAPED`), whose gradient favours tokens that the policy finds unlikely.

    Departures: TRL has sampled N completions when o* comes, and the last of them gives way, whatever its reward, so
    that the others are N - 1 samples as in the paper. They keep TRL's clipping and its mean over tokens; the paper has
    no clipping and divides by the greatest length. A question without a demonstration, or with one that is too long
    for `max_completion_length` or cannot be scored, is left to GRPO, as is a group of which no completion could be.
    """

    name = "luffy"
    gives_hints = False
    column_setting = "mentor_demonstration_column"

    def __init__(self, column: str = "demonstration") -> None:
        """`column` holds a solution as the policy is to write it, or nothing, for each question."""
        self.columns = (column,)
        self.material = Material(column, a_text, expected="a text")

    def select(self, states: Sequence[GroupState]) -> list[int]:
        return [index for index, state in enumerate(states) if state is not GroupState.UNSCORABLE]

    def prepare(self, groups: Sequence[CollapsedGroup]) -> list[Lesson]:
        return [self.material.lesson(group, partial(_given, group)) for group in groups]

    def shorten(self, group: CollapsedGroup, lesson: Lesson) -> Lesson | None:
        return None

    def merge(self, original: Sequence[Row], rerolled: Sequence[Row]) -> list[Row]:
        scored = [row for row in rerolled if row.success is not None]
        if not scored:
            return list(original)
        return [*original[:-1], *with_weighting(scored_under(original, scored), Weighting.SHAPED)]


def _given(group: CollapsedGroup, demonstration: str) -> Lesson:
    return Lesson(group.prompt, rolls=(Roll(group.prompt, given=demonstration),))
