"""Rows of a data set, from the Hub at a pinned commit or from local files of the same format."""

from __future__ import annotations

import hashlib
import logging
import re
import zlib
from collections.abc import Sequence
from glob import escape
from pathlib import Path

from datasets import Dataset, load_dataset
from datasets.exceptions import DatasetsError
from huggingface_hub import snapshot_download

from trl_mentor.errors import ConfigError
from trl_mentor.tasks.records import Source

logger = logging.getLogger(__name__)

_BUILDERS = {".jsonl": "json", ".json": "json", ".parquet": "parquet", ".csv": "csv"}
"""What `datasets` reads a file with; any of them may be gzipped."""
_HOW_TO_NAME = "with files (task_files in a recipe, --files NAME=DIRECTORY of a command)"
_SHARD = re.compile(r"-of-(\d+)\.")


def read_source(
    source: Source, *, files: str | Path | None = None, revision: str | None = None
) -> tuple[Dataset, str]:
    """The rows as they are, and which ones they are: a revision of the Hub, or the SHA-256 of the local files.

    `files` is a directory with the data set's own files, or one such file. Raises `ConfigError`, which says how to
    fetch the data, where nothing can be read.
    """
    if files is not None:
        if revision is not None:
            raise ConfigError("got both files and revision; a revision is one of the Hub's, local files have none")
        return _from_disk(source, Path(files).expanduser())
    if "://" in source.repo:
        raise ConfigError(f"the data is not on the Hub; {_how_to_fetch(source, source.revision)}")
    return _from_hub(source, revision or source.revision)


def _from_disk(source: Source, place: Path) -> tuple[Dataset, str]:
    if not place.exists():
        raise ConfigError(f"there is no {place}; {_how_to_fetch(source, source.revision)}")
    found = [place] if place.is_file() else _find(source, place)
    return _read(found, str(place)), f"sha256 {_digest(found)}"


def _from_hub(source: Source, revision: str | None) -> tuple[Dataset, str]:
    name = source.repo if revision is None else f"{source.repo} at {revision}"
    try:
        if source.files:
            folder = Path(
                snapshot_download(
                    source.repo, repo_type="dataset", revision=revision, allow_patterns=list(source.files)
                )
            )
            return _read(_find(source, folder), name), f"revision {folder.name}"
        rows = load_dataset(source.repo, source.config, split=source.split, revision=revision)
    except ConfigError:
        raise
    except (OSError, ValueError, DatasetsError) as error:
        raise ConfigError(f"{name} cannot be read: {_reason(error)}; {_how_to_fetch(source, revision)}") from error
    return rows, f"revision {revision or 'main'}"


def _find(source: Source, folder: Path) -> list[Path]:
    """The source's files in a folder, with or without the sub-folders that they have on the Hub."""
    if not source.files:
        found = sorted(path for path in folder.rglob("*") if path.is_file() and _builder(path))
        if not found:
            raise ConfigError(f"{folder} holds no data file ({', '.join(_BUILDERS)}, or one of them gzipped)")
        return found
    matches = {
        pattern: sorted(folder.glob(pattern)) or sorted(folder.glob(Path(pattern).name)) for pattern in source.files
    }
    found = [path for paths in matches.values() for path in paths]
    missing = [lack for pattern, paths in matches.items() if (lack := _lack(pattern, paths))]
    if not found:
        raise ConfigError(
            f"{folder} holds none of {', '.join(missing)} (a file of another name has to be named itself); "
            f"{_how_to_fetch(source, source.revision)}"
        )
    if missing:
        logger.warning(
            "trl-mentor: %s lacks %s; the rows and splits are those of the files that are there",
            folder,
            ", ".join(missing),
        )
    return found


def _lack(pattern: str, paths: Sequence[Path]) -> str:
    """What of a pattern's files is not there; their names may say of how many each is one. Empty if nothing lacks."""
    if not paths:
        return pattern
    shard = _SHARD.search(paths[0].name)
    whole = int(shard[1]) if shard else len(paths)
    return f"{whole - len(paths)} of the {whole} files {pattern}" if len(paths) < whole else ""


def _builder(path: Path) -> str | None:
    suffixes = [suffix for suffix in path.suffixes if suffix != ".gz"]
    return _BUILDERS.get(suffixes[-1]) if suffixes else None


def _read(paths: Sequence[Path], name: str) -> Dataset:
    """All files as one table. Raises `ConfigError` for formats that differ or cannot be read."""
    builders = {_builder(path) for path in paths}
    if len(builders) != 1 or None in builders:
        shown = ", ".join(sorted({path.name for path in paths})[:5])
        raise ConfigError(f"{name} holds {shown}; expected files of one of the formats {', '.join(_BUILDERS)}")
    filled = [path for path in paths if path.stat().st_size]
    if not filled:
        raise ConfigError(f"{name} is empty")
    try:
        return load_dataset(builders.pop(), data_files=[escape(str(path)) for path in filled], split="train")
    except (OSError, EOFError, zlib.error, ValueError, DatasetsError) as error:
        raise ConfigError(f"{name} cannot be read: {_reason(error)}; is every file complete?") from error


def _reason(error: BaseException) -> str:
    """The first line of what went wrong underneath: `datasets` itself only says that something did."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]:.300}"


def _digest(paths: Sequence[Path]) -> str:
    """SHA-256 of one file; of several, that of their listing as `sha256sum` prints it, in order."""
    listing = []
    for path in paths:
        with path.open("rb") as file:
            listing.append((path.name, hashlib.file_digest(file, "sha256").hexdigest()))
    if len(listing) == 1:
        return listing[0][1]
    return hashlib.sha256("".join(f"{digest}  {name}\n" for name, digest in sorted(listing)).encode()).hexdigest()


def _how_to_fetch(source: Source, revision: str | None) -> str:
    names = " ".join(source.files)
    if "://" in source.repo:
        at = f" at commit {revision}" if revision else ""
        return f"fetch {names or 'its files'} of {source.repo}{at} and name their directory {_HOW_TO_NAME}"
    pin = f" --revision {revision}" if revision else ""
    return (
        f"fetch it where there is a network with `hf download --repo-type dataset {source.repo}{pin}"
        f"{''.join(f' --include {name!r}' for name in source.files)} --local-dir DIRECTORY` and name DIRECTORY "
        f"{_HOW_TO_NAME}, or copy the Hub cache here"
    )
