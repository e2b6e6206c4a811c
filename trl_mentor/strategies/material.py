"""What strategies read of the data set's own columns, whose values are untrusted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from trl_mentor.errors import ConfigError
from trl_mentor.quoting import clean_text
from trl_mentor.records import CollapsedGroup, Guidance, HintOrigin, Lesson

FIRST = 16
"""So many questions are looked at before it is said that the column is empty for most of them."""

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Material(Generic[T]):
    """A column that may hold something for each question; a wrong value costs its own group and no other.

    Warns once of a value that is neither what is expected nor empty, and once if more than half of the first questions
    have nothing.
    """

    def __init__(self, column: str, read: Callable[[object], T | None], *, expected: str) -> None:
        """`read` makes something of a value, or None; `expected` says what it takes, for messages."""
        self.column = column
        self.expected = expected
        self._read = read
        self._warned = False
        self._seen = self._found = 0

    def read(self, value: object, *, again: bool = False) -> T | None:
        """What is made of a value, or None, which may be warned about; `again` if its question was counted already."""
        found = self._read(value)
        if not again:
            self._count(found is not None)
        if found is None and not _is_empty(value) and not self._warned:
            self._warned = True
            logger.warning(
                "trl-mentor: %s. Questions like this one are left to GRPO; correct the column of the data set.",
                self._wrong(value),
            )
        return found

    def lesson(self, group: CollapsedGroup, make: Callable[[T], Lesson]) -> Lesson:
        """The lesson that `make` builds of the group's value, or one that leaves the group as it is.

        A `ConfigError` of `make` is about a prompt of the data set that cannot hold what is added to it; it costs its
        group, not the run.
        """
        value = group.material.get(self.column)
        found = self.read(value)
        if found is None:
            nothing = f"the column {self.column!r} has nothing for this question"
            return left(nothing if _is_empty(value) else self._wrong(value))
        try:
            return make(found)
        except ConfigError as error:
            return left(str(error))

    def holds(self, value: object) -> bool:
        """Whether something can be made of a value; nothing is counted or warned about."""
        return self._read(value) is not None

    def _wrong(self, value: object) -> str:
        kind = type(value).__name__
        return f"the column {self.column!r} holds {value!r:.60} ({kind}); expected {self.expected}, or nothing"

    def _count(self, found: bool) -> None:
        self._seen += 1
        self._found += found
        if self._seen == FIRST and self._found < FIRST / 2:
            logger.warning(
                "trl-mentor: the column %r has nothing to use for %d of the first %d questions that the strategy came "
                "to; they are left to GRPO. Fill it, for example with `trl-mentor prepare`, or name another column.",
                self.column,
                FIRST - self._found,
                FIRST,
            )


def a_text(value: object) -> str | None:
    """A text that is not blank, as tokenizers can read it."""
    return clean_text(value) if isinstance(value, str) and value.strip() else None


def left(reason: str) -> Lesson:
    """A lesson that leaves its group as it is, and says why in the journal."""
    return Lesson(prompt=None, guidance=Guidance(None, HintOrigin.NOT_ASKED, reason=reason))


def _is_empty(value: object) -> bool:
    return all(map(_is_blank, value)) if isinstance(value, list | tuple) else _is_blank(value)


def _is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())
