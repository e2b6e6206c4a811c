"""QuestA (arXiv 2507.13266): every prompt is shown with the beginning of its solution."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from trl_mentor.assembly import add_hint
from trl_mentor.errors import ConfigError
from trl_mentor.records import Prompt
from trl_mentor.strategies.material import Material, a_text
from trl_mentor.strategies.none import NoneStrategy

MIN_CHARS = 10
"""Shortest beginning of a solution that is shown."""

_THINKING_END = "</think>"
_TEMPLATE = "{question}\n\n## How a solution begins\n\n{hint}"


class PrefixStrategy(NoneStrategy):
    """QuestA (arXiv 2507.13266): x_p = q + a heading + the first p of the characters of the solution.

    Every prompt is sampled, scored by the loss and given advantages under x_p; nothing is re-rolled, rewards are shown
    q, and evaluation asks q. What stands before `</think>` is not of the solution. p falls during the run: `shares`
    each for an equal part of its optimizer steps.

    Departures: the paper trains each p until it no longer gains, and its recipe keeps groups with 5 % to 95 % of
    successes alone; the heading is our own. It leaves out questions whose solution lacks the answer or has a beginning
    of under `MIN_CHARS` characters, which a trainer cannot: the former are trained like all others, so filter the data
    set, and the latter are asked plainly, as is a question without a solution.
    """

    name = "prefix"
    column_setting = "mentor_demonstration_column"
    in_evaluation = False

    def __init__(self, column: str = "demonstration", *, shares: Sequence[float] = (0.5, 0.25)) -> None:
        """`column` holds a solution, or nothing, for each question."""
        self.columns = (column,)
        self.shares = tuple(shares)
        self._asked: Prompt | None = None
        """The prompt of the row before, whose group this one may be of."""
        shortest = math.ceil(MIN_CHARS / max(self.shares))
        self.material = Material(column, self._readable, expected=f"a solution of at least {shortest} characters")

    def first_prompt(self, prompt: Prompt, example: Mapping[str, Any], *, progress: float) -> Prompt:
        value, again = example.get(self.columns[0]), prompt == self._asked
        self._asked = prompt
        solution = self.material.read(value, again=again)
        if solution is None or len(beginning := beginning_of(solution, self.share(progress))) < MIN_CHARS:
            return prompt
        try:
            return add_hint(prompt, beginning, _TEMPLATE)
        except ConfigError:  # a conversation without a user turn
            return prompt

    def _readable(self, value: object) -> str | None:
        text = a_text(value)
        return None if text is None or len(beginning_of(text, max(self.shares))) < MIN_CHARS else text

    def share(self, progress: float) -> float:
        """p, when this share of the optimizer steps is done."""
        part = int(progress * len(self.shares) + 1e-9)  # 0.29 * 100 is a little less than 29
        return self.shares[min(part, len(self.shares) - 1)]


def beginning_of(solution: str, share: float) -> str:
    """The first `share` of the characters of a solution without its thinking, rounded down."""
    text = solution.rpartition(_THINKING_END)[2].strip()
    return text[: int(share * len(text) + 1e-9)].rstrip()
