"""DeepMath-103K (He et al. 2025): mathematical problems with a final answer, a topic and a difficulty."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from datasets import Dataset

from trl_mentor.tasks.fields import optional_number, optional_text, text
from trl_mentor.tasks.instructions import MATH
from trl_mentor.tasks.records import Kind, Problem, Source, Split, Task
from trl_mentor.tasks.splits import problem_key

TRAIN_PROBLEMS, VALIDATION_PROBLEMS = 10_000, 2_500

SOURCE = Source(
    "zwhe99/DeepMath-103K",
    "train",
    files=("data/train-*.parquet",),
    revision="5cf055d1fe3d7a2eb19719ac020211469736ae44",
)


def select(rows: Dataset, *, validation: bool) -> Dataset:
    """The first 10,000 (2,500) distinct problems on their side, by rank of their hash.

    One problem in five is on the side of validation, by its hash alone: it stays there whatever other rows there are,
    so that no revision or subset of the data trains on what another one validates on.
    """
    ranked: dict[str, tuple[str, int]] = {}
    for index, (question, answer) in enumerate(zip(rows["question"], rows["final_answer"], strict=True)):
        key = problem_key(str(question))
        # Of a problem that is there twice, always the same row.
        ranked[key] = min(ranked.get(key, (str(answer), index)), (str(answer), index))
    side = [key for key in sorted(ranked) if (int(key[-8:], 16) % 5 == 0) == validation]
    most = VALIDATION_PROBLEMS if validation else TRAIN_PROBLEMS
    return rows.select([ranked[key][1] for key in side[:most]])


def read(row: Mapping[str, Any]) -> Problem:
    """A row of the Hub's table; the three solutions by DeepSeek-R1 are not used."""
    question = text(row, "question")
    return Problem(
        id=problem_key(question)[:16],
        question=question,
        answer=text(row, "final_answer"),
        topic=optional_text(row, "topic"),
        difficulty=optional_number(row, "difficulty"),
    )


DEEPMATH = Task(
    name="deepmath-103k",
    kind=Kind.MATH,
    splits={
        "train": Split(SOURCE, partial(select, validation=False)),
        "validation": Split(SOURCE, partial(select, validation=True)),
        "full": Split(SOURCE),
    },
    read=read,
    instruction=MATH,
    citation="He et al. 2025, DeepMath-103K, arXiv:2504.11456, MIT licence",
    unchecked=(
        "which 10,000 and 2,500 problems MENTOR used (these are ours); that the pinned commit is later than the "
        "revision of 48 questions of May 2025; its number of rows (103,110 by its authors, 103,022 by others)"
    ),
)
