"""The folder of an evaluation: every completion, kept as soon as its batch is judged."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from trl_mentor.errors import ConfigError
from trl_mentor.evaluation.records import Sample

_FIELDS = {field.name for field in fields(Sample)}
_LONGEST_SHOWN = 80


class Folder:
    """`settings.json`, `samples/<benchmark>.jsonl` with a `Sample` per line, `results.json` and `results.md`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder and hold it alone; the lock goes with the process, however that ends.

        Raises `ConfigError` while another process holds it.
        """
        (self.path / "samples").mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("a", encoding="ascii") as file:
            try:
                # Not `flock`, which the processes of an engine would inherit and hold after this one is killed.
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                raise ConfigError(
                    f"{self.path} is in use by another evaluation; wait for its end or choose another folder"
                ) from None
            yield

    def settings(self) -> dict[str, Any]:
        """What `begin` wrote. Raises `ConfigError` if this is no folder of an evaluation."""
        path = self.path / "settings.json"
        try:
            found = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise ConfigError(f"{self.path} is not the folder of an evaluation: it has no settings.json") from None
        except ValueError as error:
            raise ConfigError(f"{path} is not JSON ({error}); choose another folder") from None
        if not isinstance(found, dict) or not {"settings", "benchmarks", "made_with"} <= found.keys():
            raise ConfigError(f"{path} was not written by an evaluation; choose another folder")
        return found

    def begin(
        self, settings: Mapping[str, Any], benchmarks: Mapping[str, Mapping[str, Any]], made_with: Mapping[str, Any]
    ) -> None:
        """Note how the samples of this folder are made; further benchmarks join those that are there.

        Raises `ConfigError` that names the difference where the folder has samples that were made in another way.
        """
        found: dict[str, Any] = {"settings": dict(settings), "benchmarks": {}, "made_with": []}
        begun = any(path.stat().st_size for path in (self.path / "samples").iterdir())
        if (self.path / "settings.json").exists():
            there = self.settings()
            if begun:
                self._refuse_difference("", there["settings"], settings)
                found = there
        elif begun:
            raise ConfigError(f"{self.path} has samples but no settings.json; choose another folder")
        for name, record in benchmarks.items():
            self._refuse_difference(f"{name}: ", found["benchmarks"].setdefault(name, dict(record)), record)
        if dict(made_with) not in found["made_with"]:
            found["made_with"].append(dict(made_with))
        self.write("settings.json", json.dumps(found, indent=1))

    def _refuse_difference(self, where: str, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
        for name in sorted(there.keys() | here.keys()):
            if there.get(name) != here.get(name):
                raise ConfigError(
                    f"{self.path} was made with {where}{name} = {_short(there.get(name))}, this run has "
                    f"{_short(here.get(name))}; choose another folder, or the same settings to go on with this one"
                )

    def samples(self, benchmark: str) -> list[Sample]:
        """The samples there are, in the order in which they came; a last line that was cut off is left out.

        Raises `ConfigError` for any other line that is not a sample of this benchmark, and for one that is repeated.
        """
        path = self._file(benchmark)
        seen: set[tuple[str, int]] = set()
        found: list[Sample] = []
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        for number, line in enumerate(lines, start=1):
            sample = _sample(line)
            if sample is None or sample.benchmark != benchmark:
                raise self._bad_line(path, number, "is not a sample of this benchmark")
            if (sample.problem, sample.index) in seen:
                raise self._bad_line(path, number, f"repeats sample {sample.index} of problem {sample.problem!r}")
            seen.add((sample.problem, sample.index))
            found.append(sample)
        return found

    @staticmethod
    def _bad_line(path: Path, number: int, what: str) -> ConfigError:
        return ConfigError(
            f"{path}, line {number}, {what}; delete the line, and the same command draws what is missing"
        )

    def drop_torn_line(self, benchmark: str) -> None:
        """Cut off what a killed process left without an end."""
        path = self._file(benchmark)
        if path.exists() and not (data := path.read_bytes()).endswith(b"\n"):
            os.truncate(path, data.rfind(b"\n") + 1)

    def append(self, benchmark: str, samples: Sequence[Sample]) -> None:
        """Add samples, and return once they are on the disk."""
        with self._file(benchmark).open("ab") as file:
            file.write(_lines(samples))
            file.flush()
            os.fsync(file.fileno())

    def replace(self, benchmark: str, samples: Sequence[Sample]) -> None:
        """Put these in the place of what there is, all at once."""
        self.write(f"samples/{benchmark}.jsonl", _lines(samples).decode("ascii"))

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file in one go, so that a reader sees the old one or the new one."""
        path = self.path / name
        beside = path.with_name(f".{path.name}.new")
        with beside.open("wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace"))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)

    def _file(self, benchmark: str) -> Path:
        return self.path / "samples" / f"{benchmark}.jsonl"


def _lines(samples: Sequence[Sample]) -> bytes:
    return b"".join(json.dumps(asdict(sample)).encode("ascii") + b"\n" for sample in samples)


def _sample(line: bytes) -> Sample | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return Sample(**found) if isinstance(found, dict) and found.keys() == _FIELDS else None


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
