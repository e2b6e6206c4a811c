"""LiveCodeBench (Jain et al. 2024): contest problems with their tests, release v6 of May 2023 to April 2025."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

from datasets import Dataset

from trl_mentor.tasks.fields import optional_text, text
from trl_mentor.tasks.instructions import PROGRAM
from trl_mentor.tasks.lcb_tests import read_tests
from trl_mentor.tasks.records import Kind, Problem, Source, Split, Task
from trl_mentor.tasks.splits import problem_key

DIFFICULTIES = {"easy": 1.0, "medium": 2.0, "hard": 3.0}

SOURCE = Source(
    "livecodebench/code_generation_lite",
    "test",
    files=("test.jsonl", "test2.jsonl", "test3.jsonl", "test4.jsonl", "test5.jsonl", "test6.jsonl"),
    revision="0fe84c3912ea0c4d4a78037083943e8f0c4dd505",
)
"""The files of a release are those of all releases up to it; the sixth adds `test6.jsonl`."""


def select(rows: Dataset, *, validation: bool, by_date: bool) -> Dataset:
    """Five sixths of the problems, or the other one: by rank of their hash, or the newest contests to validate on.

    A problem that is there twice is on one side only.
    """
    keys = [problem_key(str(content)) for content in rows["question_content"]]
    dates = [_date(value) for value in rows["contest_date"]] if by_date else [""] * len(keys)
    ids = [str(value) for value in rows["question_id"]]
    newest: dict[str, str] = {}
    for key, date in zip(keys, dates, strict=True):
        newest[key] = max(newest.get(key, ""), date)
    ranked = sorted(newest, key=lambda key: (newest[key], key))
    held_out = set(ranked[len(ranked) - round(len(ranked) / 6) :])
    chosen = [index for index, key in enumerate(keys) if (key in held_out) == validation]
    return rows.select(sorted(chosen, key=lambda index: (dates[index], keys[index], ids[index])))


def read(row: Mapping[str, Any]) -> Problem:
    """A line of the data set's files."""
    question = text(row, "question_content")
    starter = optional_text(row, "starter_code")
    if starter is not None:
        question += f"\n\nStarter code:\n```python\n{starter}\n```"
    level = text(row, "difficulty").lower()
    if level not in DIFFICULTIES:
        raise ValueError(f"difficulty is {level!r:.20}, expected one of {', '.join(DIFFICULTIES)}")
    return Problem(
        id=text(row, "question_id"),
        question=question,
        tests=read_tests(row),
        topic=optional_text(row, "platform"),
        difficulty=DIFFICULTIES[level],
    )


def _date(value: Any) -> str:
    """A contest's date as text that sorts; `datasets` reads it as a date."""
    return value.isoformat() if isinstance(value, datetime) else str(value)


LIVECODEBENCH = Task(
    name="livecodebench",
    kind=Kind.CODE,
    splits={
        "train": Split(SOURCE, partial(select, validation=False, by_date=False)),
        "validation": Split(SOURCE, partial(select, validation=True, by_date=False)),
        "train_by_date": Split(SOURCE, partial(select, validation=False, by_date=True)),
        "validation_by_date": Split(SOURCE, partial(select, validation=True, by_date=True)),
        "full": Split(SOURCE),
    },
    read=read,
    instruction=PROGRAM,
    citation=(
        "Jain et al. 2024, LiveCodeBench, arXiv:2403.07974, code_generation_lite release v6: problems of LeetCode, "
        "AtCoder and Codeforces, licence 'cc' without saying which"
    ),
    unchecked="how MENTOR drew its 5:1 split (these are ours); which licence of Creative Commons 'cc' means",
)
