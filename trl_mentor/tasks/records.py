"""Data sets as declarations: where the rows come from and how one becomes a problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datasets import Dataset


class Kind(StrEnum):
    """How answers are judged."""

    MATH = "math"  # a value or expression, compared with the reference
    CODE = "code"  # a program, run against tests
    CHOICE = "choice"  # the letter of one of several options


@dataclass(frozen=True, slots=True)
class Source:
    """Rows on the Hub; local files of the same names and formats do as well."""

    repo: str
    """Id of the data set on the Hub."""
    split: str
    """The Hub's own name of the split."""
    config: str | None = None
    files: Sequence[str] = ()
    """The data files to read where the Hub's copy is not one that `datasets` reads by itself, and all that a local
    directory needs to hold."""
    revision: str | None = None
    """The commit that the rows are those of; None where no commit is known, and then the Hub's newest is taken."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem, before it becomes a row of a `datasets.Dataset`."""

    id: str
    question: str
    """What the policy is asked, without instructions about the form of the answer."""
    answer: str | None = None
    """The reference answer; for CHOICE the letter of the right option."""
    tests: str | None = None
    """The tests of a program, as `trl_mentor.programs` writes them (JSON)."""
    topic: str | None = None
    difficulty: float | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """One split: its source, and the rows of it in a fixed order."""

    source: Source
    select: Callable[[Dataset], Dataset] | None = None
    """Which of the source's rows, and in which order; a pure function. None: all, as they come."""


@dataclass(frozen=True, slots=True)
class Task:
    """A data set or benchmark: adding one is a record like this."""

    name: str
    kind: Kind
    splits: Mapping[str, Split]
    read: Callable[[Mapping[str, Any]], Problem | None]
    """A row of the source as a problem; None for rows that are not problems of this task."""
    instruction: str
    """What the prompt says, after the question, about the form of the answer."""
    citation: str
    """Who made it, where, and under which licence, in one line."""
    unchecked: str = ""
    """What of this record could not be checked against the data itself; empty if all of it was."""
    export: str = ""
    """The file for another harness that an evaluation writes instead of judging, see `trl_mentor.evaluation.export`;
    empty where the package's verifiers judge."""
