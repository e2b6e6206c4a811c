"""Which checkpoint of a run to resume from: the newest that no kill left incomplete.

transformers writes a checkpoint file by file in its final place, with `trainer_state.json` last on the main process,
and resumes from the highest step whether the save came to its end or not. Without optimizer or scheduler it even
resumes silently, with new ones. What cannot be told to be torn counts as whole: to give up a good checkpoint costs
more than to fail on a torn one.
"""

from __future__ import annotations

import json
import logging
import os
import re
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trl_mentor.errors import ConfigError

logger = logging.getLogger(__name__)

_STATE = "trainer_state.json"
_UNFINISHED = "checkpoint-is-incomplete.txt"
_NAME = re.compile(r"checkpoint-(\d+)")
_READ_ON_RESUME = re.compile(
    r"(config|adapter_config|entropy_ctrl_state)\.json|(model|adapter_model)\.safetensors"
    r"|(pytorch_model|adapter_model|pytorch_model_fsdp.*|optimizer.*)\.bin"
    r"|(optimizer|scheduler|scaler)\.pt|rng_state(_\d+)?\.pth"
)
_SHARDED = re.compile(r"(pytorch_model_fsdp|optimizer)_\d+")
_WEIGHTS = re.compile(r"(adapter_model|model|pytorch_model)\.(safetensors|bin)(\.index\.json)?|pytorch_model_fsdp.*")
_ADAPTERS = ("adapter_model.safetensors", "adapter_model.bin")
_INDEX = {"model.safetensors": "model.safetensors.index.json", "pytorch_model.bin": "pytorch_model.bin.index.json"}


def last_complete_checkpoint(output_dir: str | os.PathLike[str]) -> Path | None:
    """The newest `checkpoint-<step>` of a run that can be resumed; None if there is none.

    Each newer one is passed over with a warning that says what is wrong with it. The answer depends on the files
    alone, so that all ranks on one file system get the same.
    """
    for checkpoint in _newest_first(Path(output_dir)):
        problem = why_incomplete(checkpoint)
        if problem is None:
            return checkpoint
        logger.warning("trl-mentor: passed over the checkpoint %s: %s", checkpoint, problem)
    return None


def was_saved(output_dir: str | os.PathLike[str]) -> bool:
    """Whether a save of a run ever came to its end, whatever has become of the checkpoint.

    Such a run is not begun anew in its place: the new one would soon delete the checkpoints that are left of it.
    Raises `OSError` if a folder cannot be read.
    """
    return any(_STATE in os.listdir(path) for path in _newest_first(Path(output_dir)))


def nothing_to_resume(output_dir: str | os.PathLike[str]) -> ConfigError:
    """The error for a run that was to resume from a checkpoint of `output_dir` and found no complete one."""
    problems = [f"{path.name}: {why_incomplete(path)}" for path in _newest_first(Path(output_dir))]
    advice = (
        "if one of these is sound, give its path; to begin anew, empty the folder or train without "
        "resume_from_checkpoint in another one"
    )
    found = "; ".join(problems) or "it has no checkpoint-<step>"
    return ConfigError(f"{output_dir} has no checkpoint to resume from: {found}; {advice}")


def why_incomplete(checkpoint: str | os.PathLike[str]) -> str | None:
    """What keeps a checkpoint from being resumed, in one line; None if nothing does.

    Reads headers, sizes and JSON, not tensors, of the files that `Trainer` reads. Files of random states may be
    missing, as they are after a change of the number of processes, but not torn.
    """
    try:
        return next(_problems(Path(checkpoint)), None)
    except OSError as error:
        return f"it cannot be read ({error})"


def _newest_first(output_dir: Path) -> list[Path]:
    try:
        found = list(output_dir.iterdir())
    except FileNotFoundError:
        return []
    steps = {path: match for path in found if (match := _NAME.fullmatch(path.name)) and path.is_dir()}
    return sorted(steps, key=lambda path: int(steps[path][1]), reverse=True)


def _problems(directory: Path) -> Iterator[str]:
    names = sorted(os.listdir(directory))
    if _UNFINISHED in names:
        yield f"{_UNFINISHED} says that a save on SIGTERM did not finish"
    if _STATE not in names:
        yield f"{_STATE}, which is written last, is missing: the save did not finish"
    state = _read_json(directory / _STATE)
    if not isinstance(state, dict) or not isinstance(state.get("global_step"), int):
        yield f"{_STATE} is torn"
    yield from _missing(directory, names)
    for path in _read_on_resume(directory, names):
        if not _is_whole(path):
            advice = "; deleted, it is not needed" if path.name.startswith("rng_state") else ""
            yield f"{path.relative_to(directory).as_posix()} is torn{advice}"


def _missing(directory: Path, names: list[str]) -> Iterator[str]:
    """What `Trainer` needs and does not find, in the layouts of one process, DDP, FSDP, DeepSpeed and PEFT."""
    for index in _indexes(names):
        shards = _shards(directory / index)
        if not shards:
            yield f"{index} is torn"
        missing = [name for name in shards if not (directory / name).exists()]
        yield from (f"{name}, which {index} names, is missing" for name in missing)
    for name in filter(_SHARDED.fullmatch, names):
        if list((directory / name).glob("*.distcp")) and not (directory / name / ".metadata").exists():
            yield f"{name}/.metadata is missing"
    tag = _tag(directory)
    if tag is not None:
        if not tag or not any((directory / tag).glob("*")):
            yield f"the DeepSpeed state {tag!r}, which `latest` names, is missing"
        return
    adapters = (directory / name / adapter for name in names for adapter in _ADAPTERS)
    if not any(map(_WEIGHTS.fullmatch, names)) and not any(path.exists() for path in adapters):
        yield "the weights are missing"
    if not any("optimizer" in name for name in names):
        yield "the state of the optimizer is missing (checkpoints of save_only_model cannot be resumed)"
    if "scheduler.pt" not in names:
        yield "scheduler.pt is missing"


def _read_on_resume(directory: Path, names: list[str]) -> Iterator[Path]:
    """The files that `Trainer` reads; a checkpoint may hold others of the user's."""
    yield from (directory / name for name in names if _READ_ON_RESUME.fullmatch(name))
    yield from (directory / shard for index in _indexes(names) for shard in _shards(directory / index))
    tag = _tag(directory)
    folders = [name for name in names if name == tag or _SHARDED.fullmatch(name)]
    yield from (path for name in folders for path in sorted((directory / name).rglob("*")) if path.is_file())


def _tag(directory: Path) -> str | None:
    """The folder of DeepSpeed's states; None for a checkpoint without DeepSpeed."""
    latest = directory / "latest"
    return latest.read_text(encoding="utf-8", errors="replace").strip() if latest.is_file() else None


def _indexes(names: list[str]) -> list[str]:
    """The index of weights in several files, which is read if they are not in one."""
    return [] if any(name in names for name in _INDEX) else [name for name in _INDEX.values() if name in names]


def _shards(index: Path) -> list[str]:
    """Files that an index names, from its own folder; empty if it is torn."""
    content = _read_json(index)
    shards = content.get("weight_map") if isinstance(content, dict) else None
    return sorted({str(name) for name in shards.values()}) if isinstance(shards, dict) else []


def _read_json(path: Path) -> Any:
    """What the file holds; None if it cannot be read."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def _is_whole(path: Path) -> bool:
    """Whether JSON parses, and a file of tensors has the length that its header or its closing directory says.

    A file in another format, such as what `torch.save` wrote before it wrote archives, is whole if it is not empty.
    """
    if path.suffix == ".json":
        return _read_json(path) is not None
    try:
        if path.suffix == ".safetensors":
            return path.stat().st_size == _size_in_header(path)
        with path.open("rb") as file:
            start = file.read(2)
        if start != b"PK":
            return bool(start) or path.suffix == ".distcp"  # of a rank that holds nothing
        with zipfile.ZipFile(path) as archive:
            return bool(archive.filelist)
    except NotImplementedError:  # an archive of a later version
        return True
    except (OSError, ValueError, TypeError, KeyError, AttributeError, struct.error, zipfile.BadZipFile):
        return False


def _size_in_header(path: Path) -> int:
    """Length of a safetensors file according to its header."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > path.stat().st_size:
            raise ValueError(f"a header of {length} bytes")
        header = json.loads(file.read(length))
    ends = [int(entry["data_offsets"][1]) for name, entry in header.items() if name != "__metadata__"]
    return 8 + int(length) + max(ends, default=0)
