"""What strategies read of the data set's own columns, whose values are untrusted."""

from __future__ import annotations

import logging

from trl_mentor.records import Guidance, HintOrigin, Lesson

logger = logging.getLogger(__name__)


class Material:
    """A column that may hold something for each question; a wrong value costs its own group and no other."""

    def __init__(self, column: str, *, expected: str) -> None:
        """`expected` says what the column is to hold, for messages."""
        self.column = column
        self.expected = expected
        self._warned = False

    def objection(self, value: object) -> str:
        """Why nothing can be made of this value. The first that is not merely empty is warned about."""
        if all(map(_is_blank, value)) if isinstance(value, list | tuple) else _is_blank(value):
            return f"the column {self.column!r} has nothing for this question"
        reason = (
            f"the column {self.column!r} holds {value!r:.60} ({type(value).__name__}); expected {self.expected}, or "
            "nothing"
        )
        if not self._warned:
            self._warned = True
            logger.warning(
                "trl-mentor: %s. Questions like this one are left to GRPO; correct the column of the data set.", reason
            )
        return reason


def _is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def left(reason: str) -> Lesson:
    """A lesson that leaves its group as it is, and says why in the journal."""
    return Lesson(prompt=None, guidance=Guidance(None, HintOrigin.NOT_ASKED, reason=reason))
