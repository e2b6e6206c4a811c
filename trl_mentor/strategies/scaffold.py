"""Scaf-GRPO (arXiv 2510.19807): a ladder of hints, of which the weakest that helps is used."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from trl_mentor.assembly import DEFAULT_HINT_TEMPLATE, add_hint, check_hint_template
from trl_mentor.collapse import find_collapsed
from trl_mentor.records import CollapsedGroup, GroupState, Lesson, Roll, Row
from trl_mentor.rescue import single
from trl_mentor.strategies.material import Material, a_text

MAX_RUNGS = 32
"""Longest ladder; the paper's has 12 rungs."""


class ScaffoldStrategy:
    r"""Scaf-GRPO (arXiv 2510.19807): G' = (G \ {a failure}) + {o*}, with o* the success under the weakest hint h*.

    A collapsed group is sampled once under each hint of its ladder. A = (r - mean r) / (std r + 1e-4) over G': for
    rewards of 0 and 1 (N - 1) / sqrt(N) for o* and -1 / sqrt(N) for each failure, up to the 1e-4. o* is scored under
    h* + q, its own prompt, and the N - 1 failures under q. Without a success the group stays as it was.

    Departures: all rungs are sampled at once, as in the authors' code; the paper stops at the first success, which
    chooses the same way and takes as many tokens or fewer. The failure is drawn by lot, as in the paper; the code
    takes the first. The data set says which hints there are, not knowledge, planning and solution hints of four levels
    each.
    """

    name = "scaffold"
    column_setting = "mentor_hint_column"
    start_step = 0.15
    """The exemption at the beginning of a run, which `mentor_start_step` overrides."""

    def __init__(self, column: str = "hints", *, hint_template: str = DEFAULT_HINT_TEMPLATE) -> None:
        """`column` holds a list of texts from weak to strong, or nothing, for each question.

        Each text is used as it stands: a rung that is to add to those before it, as the levels of one class do in the
        paper, repeats them.
        """
        check_hint_template(hint_template)
        self.columns = (column,)
        self.hint_template = hint_template
        self.material = Material(column, _rungs, expected=f"a list of at most {MAX_RUNGS} texts from weak to strong")

    def select(self, states: Sequence[GroupState]) -> list[int]:
        return find_collapsed(states)

    def prepare(self, groups: Sequence[CollapsedGroup]) -> list[Lesson]:
        return [self.material.lesson(group, partial(self._under, group)) for group in groups]

    def shorten(self, group: CollapsedGroup, lesson: Lesson) -> Lesson | None:
        return None  # a rung that does not fit falls out of the ladder

    def merge(self, original: Sequence[Row], rerolled: Sequence[Row]) -> list[Row]:
        weakest = next((row for row in rerolled if row.success), None)
        return list(original) if weakest is None else single(original, [weakest])

    def _under(self, group: CollapsedGroup, rungs: Sequence[str]) -> Lesson:
        rolls = tuple(Roll(add_hint(group.prompt, hint, self.hint_template), hint) for hint in rungs)
        return Lesson(rolls[0].prompt, hint=rolls[0].hint, rolls=rolls)


def _rungs(ladder: object) -> list[str] | None:
    """The different hints of a ladder that are no blanks; None if there is none, or of what is no ladder."""
    if not isinstance(ladder, list | tuple) or len(ladder) > MAX_RUNGS:
        return None
    if not all(hint is None or isinstance(hint, str) for hint in ladder):
        return None
    return list(dict.fromkeys(text for hint in ladder if (text := a_text(hint)) is not None)) or None
