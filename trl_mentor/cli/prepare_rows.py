"""The rows that material is written for: a task, JSON Lines, or whatever `datasets` loads, each looked at first."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from trl_mentor.assembly import question_text
from trl_mentor.cli.prompts import prompt_problem
from trl_mentor.errors import ConfigError
from trl_mentor.group_reader import reference_answer
from trl_mentor.guards import answer_columns
from trl_mentor.mentor_pool import describe
from trl_mentor.quoting import clean_text
from trl_mentor.records import CollapsedGroup
from trl_mentor.settings import MentorArguments

_SYSTEM_ROLES = ("system", "developer")


@dataclass(frozen=True, slots=True)
class DataChoice:
    """Where the rows are, in the words of a recipe; `options` are those of `load_task`."""

    task: str | None = None
    dataset_name: str | None = None
    config: str | None = None
    split: str = "train"
    options: Mapping[str, Any] | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One row, as the mentor reads it."""

    row: Mapping[str, Any]
    group: CollapsedGroup
    """Its question and reference answer, without attempts: what the leak gate asks for."""
    told: str
    """All that the policy is told: the question after the system turns, which may say how to give the answer."""
    key: str
    """A digest of question and answer, by which the row is known again when the command is repeated."""


def load_items(choice: DataChoice, settings: MentorArguments) -> list[Item]:
    """The rows of the choice. Raises `ConfigError` for what cannot be read, or is no row to write material for."""
    rows = _load_rows(choice)[: choice.limit]
    name = choice.task or choice.dataset_name
    if not rows:
        raise ConfigError(f"{name} has no rows; there is nothing to write for")
    columns = list(dict.fromkeys(column for row in rows for column in row))
    if "prompt" not in columns:
        raise ConfigError(f"{name} has no column 'prompt', it has {columns}; rename the column with the questions")
    answers = answer_columns(settings, columns, writes=True)
    return [_item(number, row, answers) for number, row in enumerate(rows)]


def refuse_output_in_data(choice: DataChoice, output: Path) -> None:
    """Raises `ConfigError` for an output that the next run would read as the data, half-written as it may be."""
    ends = (Path(os.path.realpath(output)), Path(os.path.realpath(output.parent), output.name))
    for name in (choice.dataset_name, (choice.options or {}).get("files")):
        if name and any(end.is_relative_to(os.path.realpath(os.path.expanduser(name))) for end in ends):
            raise ConfigError(
                f"the output {output} is part of {name}, from which rows are read, and would be read as rows itself; "
                f"write into a folder beside it, such as prepared/{output.name}, and train with dataset_name: prepared"
            )


def _item(number: int, row: Mapping[str, Any], answers: Sequence[str]) -> Item:
    if problem := prompt_problem(row.get("prompt")):
        raise ConfigError(
            f"the prompt of row {number} {problem}; make every prompt a text, or a list of messages with role and "
            "content and at least one user turn"
        )
    try:
        row = {column: _plain(value, f"row {number}, column {column!r}") for column, value in row.items()}
    except RecursionError:
        raise ConfigError(f"row {number} holds values within values, too deep to be written; remove them") from None
    prompt, answer = row["prompt"], reference_answer(row, answers)
    question = clean_text(question_text(prompt))
    system = [] if isinstance(prompt, str) else [turn for turn in prompt if turn.get("role") in _SYSTEM_ROLES]
    told = "\n\n".join([*(question_text([{**turn, "role": "user"}]) for turn in system), question])
    key = hashlib.sha256(json.dumps([told, answer]).encode()).hexdigest()[:16]
    return Item(row, CollapsedGroup(question, (), answer, prompt=prompt), told, key)


def _plain(value: Any, where: str) -> Any:
    """The value as JSON has it. Raises `ConfigError` for what JSON has not, such as an image."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        if value != value.encode(errors="replace").decode():
            raise ConfigError(f"{where} holds half of a surrogate pair, which no reader of the output takes; mend it")
        return value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None  # NaN, which JSON lacks, is none either
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(name): _plain(part, where) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part, where) for part in value]
    raise ConfigError(f"{where}: {type(value).__name__} cannot be written as JSON; remove the column")


def _load_rows(choice: DataChoice) -> list[Mapping[str, Any]]:
    if bool(choice.task) == bool(choice.dataset_name):
        raise ConfigError("name the questions once: task, or dataset_name (a name on the Hub, a folder or a file)")
    if choice.task:
        from trl_mentor.tasks import load_task  # with `datasets`, which a file does without

        return list(load_task(choice.task, choice.split, **(choice.options or {}), limit=choice.limit))
    if choice.options:
        raise ConfigError(f"{', '.join(f'task_{name}' for name in choice.options)} without task; remove it")
    path = Path(str(choice.dataset_name))
    if path.suffix in (".jsonl", ".json") and not path.exists():
        raise ConfigError(f"there is no file {path}")  # which `datasets` would ask the Hub for, again and again
    return _read_lines(path) if path.is_file() else _read_dataset(path, choice)


def _read_lines(path: Path) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = []
    for number, line in enumerate(path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path}, line {number}, is not JSON ({error}); give one object a line") from None
        if not isinstance(row, dict):
            raise ConfigError(f"{path}, line {number}, is {type(row).__name__}; give one JSON object a line")
        rows.append(row)
    return rows


def _read_dataset(path: Path, choice: DataChoice) -> list[Mapping[str, Any]]:
    import datasets  # which a file does without

    saved = any((path / name).is_file() for name in ("state.json", "dataset_dict.json"))
    try:
        found = datasets.load_from_disk(path) if saved else datasets.load_dataset(str(path), name=choice.config)
    except Exception as error:  # of many libraries, about data from anywhere
        raise ConfigError(
            f"{path} cannot be read ({describe(error)}); give a name on the Hub, a folder with data files or one made "
            "by save_to_disk, or a file of JSON Lines"
        ) from error
    if isinstance(found, Mapping):
        if choice.split not in found:
            raise ConfigError(f"{path} has no split {choice.split!r}; it has {sorted(found)}")
        found = found[choice.split]
    rows: Sequence[Mapping[str, Any]] = list(found)
    return list(rows)
