"""`load_task`: a data set as rows that TRL trains on and the package's rewards judge."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, Value

from trl_mentor.errors import ConfigError
from trl_mentor.programs.store import FOLDER_VARIABLE
from trl_mentor.tasks.catalog import TASKS
from trl_mentor.tasks.filters import Filters
from trl_mentor.tasks.records import Problem, Task
from trl_mentor.tasks.sources import read_source

logger = logging.getLogger(__name__)

_FEATURES = {
    "id": Value("string"),
    "prompt": [{"role": Value("string"), "content": Value("string")}],
    "answer": Value("string"),
    "tests": Value("string"),
    "topic": Value("string"),
    "difficulty": Value("float64"),
}


def load_task(
    name: str,
    split: str = "train",
    *,
    files: str | Path | None = None,
    revision: str | None = None,
    min_difficulty: float | None = None,
    max_difficulty: float | None = None,
    max_prompt_chars: int | None = None,
    limit: int | None = None,
) -> Dataset:
    """One split of a task, the same rows in the same order every time.

    Columns: `id`, `prompt` (one user message: the question and how to give the answer), `answer` or `tests`, and
    `topic` and `difficulty` where the task has them. `info.description` says which rows of which commit these are.

    Args:
        name: One of `TASKS`.
        split: One of its splits.
        files: Read these instead of the Hub: a directory with the data set's own files, or one such file.
        revision: A commit, tag or branch of the Hub in place of the pinned one.
        min_difficulty: Leave out what is easier; the scale is the data set's own.
        max_difficulty: Leave out what is harder.
        max_prompt_chars: Leave out longer prompts.
        limit: Stop after so many problems, for a look at them.

    Raises `ConfigError` for an unknown task or split, data that cannot be had or read, and filters that leave nothing.
    """
    task = find_task(name)
    if split not in task.splits:
        raise ConfigError(f"the task {name!r} has no split {split!r}; it has {', '.join(sorted(task.splits))}")
    chosen = task.splits[split]
    rows, origin = read_source(chosen.source, files=files, revision=revision)
    if chosen.select is not None:
        rows = _selected(task, split, rows)
    filters = Filters(min_difficulty, max_difficulty, max_prompt_chars)
    kept = _read(task, rows, f"{name} {split}", filters, limit)
    made = _table(kept)
    place = chosen.source.repo if files is None else "local files"
    made.info.description = f"{name} {split}: {len(kept):,} problems of {place}, {origin}"
    logger.info("trl-mentor: %s", made.info.description)
    return made


def find_task(name: str) -> Task:
    """The record of a task. Raises `ConfigError` that lists all of them."""
    if name not in TASKS:
        raise ConfigError(f"unknown task {name!r}; expected one of {', '.join(sorted(TASKS))}")
    return TASKS[name]


def _selected(task: Task, split: str, rows: Dataset) -> Dataset:
    select = task.splits[split].select
    assert select is not None
    try:
        found = select(rows)
    except (LookupError, TypeError, ValueError) as error:
        columns = ", ".join(rows.column_names)
        raise ConfigError(
            f"the rows are not those of {task.name}: {_named(error)}; their columns are {columns}"
        ) from error
    if not len(found):
        raise ConfigError(
            f"{task.name} {split} is empty: the {len(rows):,} rows that are there fall into other splits"
        )
    return found


def _read(
    task: Task, rows: Iterable[Mapping[str, Any]], name: str, filters: Filters, limit: int | None
) -> list[tuple[Problem, str]]:
    """The problems that are kept, each with its prompt; rows that cannot be read are left out and told of once."""
    read: list[Problem] = []
    kept: list[tuple[Problem, str]] = []
    faults: Counter[str] = Counter()
    for row in _each(rows, name):
        try:
            problem = task.read(row)
        except (LookupError, RecursionError, TypeError, ValueError) as error:
            faults[_named(error)] += 1
            continue
        except OSError as error:
            raise ConfigError(
                f"the tests of {name} cannot be kept: {error}; set {FOLDER_VARIABLE} to a folder that can be written"
            ) from error
        if problem is None:
            continue
        read.append(problem)
        prompt = f"{problem.question}\n\n{task.instruction}"
        if filters.keep(problem, prompt):
            kept.append((problem, prompt))
            if len(kept) == limit:
                break
    _tell(faults, len(read), name)
    filters.check_left(len(kept), read, name)
    return kept


def _each(rows: Iterable[Mapping[str, Any]], name: str) -> Iterator[Mapping[str, Any]]:
    try:
        yield from rows
    except UnicodeDecodeError as error:  # `datasets` decodes a text when it is first looked at
        raise ConfigError(f"{name} holds text that is not UTF-8: {error}; convert its files") from error


def _tell(faults: Counter[str], read: int, name: str) -> None:
    if faults:
        reasons = "; ".join(f"{count:,}: {reason}" for reason, count in faults.most_common(3))
        told = f"{faults.total():,} rows of {name} cannot be read ({reasons})"
        if not read:
            raise ConfigError(f"all {told}; are these its files?")
        logger.warning("trl-mentor: %s; they are left out and %s are read", told, f"{read:,}")
    elif not read:
        raise ConfigError(f"{name} has no rows")


def _named(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__


def _table(problems: list[tuple[Problem, str]]) -> Dataset:
    columns: dict[str, list[Any]] = {
        "id": [problem.id for problem, _ in problems],
        "prompt": [[{"role": "user", "content": prompt}] for _, prompt in problems],
    }
    for name in ("answer", "tests", "topic", "difficulty"):
        values = [getattr(problem, name) for problem, _ in problems]
        if any(value is not None for value in values):
            columns[name] = values
    return Dataset.from_dict(columns, features=Features({name: _FEATURES[name] for name in columns}))
