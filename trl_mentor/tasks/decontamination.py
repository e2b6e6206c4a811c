"""A training set against benchmarks: which of its rows are benchmark problems, and the set without them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from datasets import Dataset

from trl_mentor.assembly import question_text
from trl_mentor.errors import ConfigError
from trl_mentor.records import Prompt
from trl_mentor.tasks.catalog import TASKS
from trl_mentor.tasks.loading import load_task
from trl_mentor.tasks.overlap import GRAM_WORDS, MIN_SHARE, Overlap, Passage, find_overlaps


def benchmark_overlaps(
    rows: Dataset,
    benchmarks: Sequence[str],
    *,
    files: Mapping[str, str | Path] | None = None,
    gram_words: int = GRAM_WORDS,
    min_share: float = MIN_SHARE,
) -> list[Overlap]:
    """Every pair of a row and a benchmark problem that overlap, in the order of the rows.

    Args:
        rows: Any data set with a column `prompt`; a row without a column `id` is named by its place.
        benchmarks: Names of tasks with the split `test`.
        files: For a benchmark that is not to be read from the Hub, its directory or file, as in `load_task`.
        gram_words: Words of an n-gram, at least 8.
        min_share: The part of a benchmark problem that has to be shared; 0 reports each shared n-gram.

    Raises `ConfigError` for an unknown benchmark, data that cannot be had, and rows without a prompt.
    """
    passages = {name: benchmark_passages(name, (files or {}).get(name)) for name in benchmarks}
    return find_overlaps(passages_of(rows), passages, gram_words=gram_words, min_share=min_share)


def without_overlaps(rows: Dataset, overlaps: Collection[Overlap]) -> Dataset:
    """The rows that overlap with nothing, in their order."""
    hit = {overlap.row for overlap in overlaps}
    return rows.select([place for place, passage in enumerate(passages_of(rows)) if passage.id not in hit])


def benchmark_passages(name: str, files: str | Path | None = None) -> list[Passage]:
    """The questions of a benchmark."""
    known = sorted(task.name for task in TASKS.values() if "test" in task.splits)
    if name not in known:
        raise ConfigError(f"there is no benchmark {name!r}; choose from {', '.join(known)}")
    return passages_of(load_task(name, "test", files=files))


def passages_of(rows: Dataset) -> list[Passage]:
    """The questions of the prompts, without what the prompts of this package's tasks say about the answer's form."""
    if "prompt" not in rows.column_names:
        raise ConfigError(f"the rows have no column prompt, only {', '.join(rows.column_names)}")
    ids = rows["id"] if "id" in rows.column_names else range(len(rows))
    return [Passage(str(name), _question(prompt)) for name, prompt in zip(ids, rows["prompt"], strict=True)]


def _question(prompt: Prompt) -> str:
    question = question_text(prompt)
    for task in TASKS.values():
        question = question.removesuffix(task.instruction)
    return question
