"""What reward functions report beyond rewards, through TRL's `log_extra`: one value per completion, or None.

The two columns of this package go to the mentor and the journal and never into TRL's table of completions.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from trl_mentor.mentor_pool import describe, outcome_of
from trl_mentor.quoting import clean_text

logger = logging.getLogger(__name__)

FEEDBACK = "mentor/feedback"
"""What failed, such as tests, exceptions and outputs, for the attribution agent to read."""

VERIFIER_ERROR = "mentor/verifier_error"
"""Why the verifier could not judge this completion: its reward, if there is one, says nothing."""

ANSWER_PARSED = "answer_parsed"
"""TRL's own column: what the verifier read as the answer."""

LIMITS = {FEEDBACK: 2_000, VERIFIER_ERROR: 400}
"""The columns of this package, and the characters that are kept of a value: its head and its end."""


def reports(
    logged: Mapping[str, Sequence[Any]], rows: int, said: set[str] | None = None
) -> dict[str, list[str | None]]:
    """The columns of this package with one value per row; one that does not fit the rows is left out.

    That is logged unless the column is among those that were `said` before, to which it is added. Several reward
    functions may report into one column; each adds a value for every row.
    """
    said = set() if said is None else said
    fitting: dict[str, list[str | None]] = {}
    for column, limit in LIMITS.items():
        values = logged.get(column, ())
        if len(values) % rows:
            if column not in said:
                said.add(column)
                logger.warning(
                    "trl-mentor: log_extra(%r, ...) got %s for %d completions, so this is left out: give a list with "
                    "one value per completion, None where there is nothing to say",
                    column,
                    _given(values),
                    rows,
                )
        elif values:
            fitting[column] = [_joined(values[row::rows], limit) for row in range(rows)]
    return fitting


def _given(values: Sequence[Any]) -> str:
    """TRL takes a text for the list of its characters."""
    if len(values) > 1 and all(isinstance(value, str) and len(value) == 1 for value in values):
        return "a text, not a list,"
    return f"{len(values)} values"


def _joined(values: Sequence[Any], limit: int) -> str | None:
    given = (_text(value) for value in values if value is not None)
    return _bounded("\n".join(clean_text(_bounded(text, limit)) for text in given), limit).strip() or None


def _text(value: Any) -> str:
    """The value as a text, also where it has none: what a reward function reports ends no training."""
    text = value if isinstance(value, str) else outcome_of(lambda: str(value))
    return f"a {type(value).__name__} that has no text: {describe(text)}" if isinstance(text, Exception) else text


def _bounded(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    tail = limit // 2
    return f"{text[: limit - tail]}\n[...]\n{text[-tail:]}"
