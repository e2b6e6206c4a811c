"""Benchmarks as an evaluation needs them: problems by id, and a digest that says whether they are still the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trl_mentor.errors import ConfigError
from trl_mentor.tasks import find_task, load_task
from trl_mentor.tasks.records import Kind

SPLITS = ("test", "validation")
"""What is evaluated: the first of these that a task has."""


@dataclass(frozen=True, slots=True)
class Item:
    """One problem with what it is judged by."""

    id: str
    messages: Sequence[dict[str, Any]]
    reference: str | None
    """The answer, or the tests of a program; None where another harness judges."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The problems of one benchmark, in its order."""

    name: str
    kind: Kind
    items: Sequence[Item]
    record: Mapping[str, Any]
    """Where they come from, as it stands in the settings of an evaluation."""
    export: str = ""
    """The file that is written for another harness, which judges; empty where the package's verifiers do."""


def load_benchmark(name: str, *, files: Path | None = None, limit: int | None = None) -> Benchmark:
    """The problems of a benchmark, the first `limit` of them. Raises `ConfigError` for an unknown name or bad rows."""
    task = find_task(name)
    split = next((split for split in SPLITS if split in task.splits), None)
    if split is None:
        raise ConfigError(f"{name} has no split to evaluate, only {', '.join(task.splits)}")
    rows = load_task(name, split=split, files=files)
    if limit is not None:
        rows = rows.select(range(min(limit, len(rows))))
    column = "tests" if task.kind is Kind.CODE else "answer"
    items = [Item(row["id"], row["prompt"], None if task.export else row[column]) for row in rows]
    if not items:
        raise ConfigError(f"{name} has no problems" + ("" if files is None else f" in {files}"))
    if len({item.id for item in items}) < len(items):
        raise ConfigError(f"{name} has two problems with one id; completions could not be told apart")
    record = {
        "split": split,
        "source": task.splits[split].source.repo,
        "revision": task.splits[split].source.revision if files is None else None,
        "local_files": files is not None,
        "problems": len(items),
        "digest": _digest(items),
        "export": task.export,
    }
    return Benchmark(name, task.kind, items, record, task.export)


def _digest(items: Sequence[Item]) -> str:
    text = json.dumps([[item.id, list(item.messages), item.reference] for item in items], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
