"""Which checkpoint of a run to resume from: the newest that no kill left incomplete.

transformers writes a checkpoint file by file in its final place, with `trainer_state.json` last on the main process,
and resumes from the highest step whether the save came to its end or not. Without optimizer or scheduler it even
resumes silently, with new ones.
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
    r"(adapter_)?config\.json|.*\.index\.json|entropy_ctrl_state\.json|.*\.safetensors"
    r"|.*(model|optim|scheduler|scaler|rng_state).*\.(bin|pt|pth)"
)
_WEIGHTS = re.compile(
    r"(.+/)?(adapter_model|model|pytorch_model)\.(safetensors|bin)(\.index\.json)?|pytorch_model_fsdp.*"
)


def last_complete_checkpoint(output_dir: str | os.PathLike[str]) -> Path | None:
    """The newest `checkpoint-<step>` of a run that can be resumed; None if there is none.

    Each newer one is passed over with a warning that says what is wrong with it. The answer depends on the files
    alone, so that all ranks on one file system get the same.
    """
    for checkpoint in _newest_first(Path(output_dir)):
        problem = why_incomplete(checkpoint)
        if problem is None:
            return checkpoint
        logger.warning("passed over the checkpoint %s: %s", checkpoint, problem)
    return None


def nothing_to_resume(output_dir: str | os.PathLike[str]) -> ConfigError:
    """The error for a run that was to resume from a checkpoint of `output_dir` and found no complete one."""
    problems = [f"{path.name}: {why_incomplete(path)}" for path in _newest_first(Path(output_dir))]
    advice = "give the path of a checkpoint, or train without resume_from_checkpoint"
    return ConfigError(f"{output_dir} has no checkpoint to resume from; {advice}. {'; '.join(problems)}".rstrip())


def why_incomplete(checkpoint: str | os.PathLike[str]) -> str | None:
    """What keeps a checkpoint from being resumed, in one line; None if nothing does.

    Reads headers, sizes and JSON, not tensors. Files of random states may be missing, as they are after a change of
    the number of processes, but not torn.
    """
    return next(_problems(Path(checkpoint)), None)


def _newest_first(output_dir: Path) -> list[Path]:
    found = output_dir.iterdir() if output_dir.is_dir() else ()
    steps = {path: match for path in found if (match := _NAME.fullmatch(path.name)) and path.is_dir()}
    return sorted(steps, key=lambda path: int(steps[path][1]), reverse=True)


def _problems(directory: Path) -> Iterator[str]:
    if (directory / _UNFINISHED).exists():
        yield f"{_UNFINISHED} says that a save on SIGTERM did not finish"
    if not (directory / _STATE).is_file():
        yield f"{_STATE}, which is written last, is missing: the save did not finish"
    state = _read_json(directory / _STATE)
    if not isinstance(state, dict) or not isinstance(state.get("global_step"), int):
        yield f"{_STATE} is torn"
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    yield from _missing(directory, {path.relative_to(directory).as_posix() for path in files})
    for path in files:
        if _READ_ON_RESUME.fullmatch(path.name) and not _is_whole(path):
            advice = "; deleted, it is not needed" if path.name.startswith("rng_state") else ""
            yield f"{path.relative_to(directory).as_posix()} is torn{advice}"


def _missing(directory: Path, files: set[str]) -> Iterator[str]:
    """What `Trainer` needs and does not find, in the layouts of one process, DDP, FSDP, DeepSpeed and PEFT."""
    for index in sorted(name for name in files if name.endswith(".index.json")):
        content = _read_json(directory / index)
        shards = content.get("weight_map") if isinstance(content, dict) else None
        if not isinstance(shards, dict):
            yield f"{index} is torn"
        else:
            missing = sorted({*map(str, shards.values())} - files)
            yield from (f"{name}, which {index} names, is missing" for name in missing)
    sharded = {name.rpartition("/")[0] for name in files if name.endswith(".distcp")}
    yield from (f"{name}/.metadata is missing" for name in sorted(sharded) if f"{name}/.metadata" not in files)
    if "latest" in files:
        tag = (directory / "latest").read_text(encoding="utf-8", errors="replace").strip()
        if not any(name.startswith(f"{tag}/") for name in files):
            yield f"the DeepSpeed state {tag!r}, which `latest` names, is missing"
        return
    if not any(_WEIGHTS.fullmatch(name) for name in files):
        yield "the weights are missing"
    if not any("optimizer" in name for name in files):
        yield "the state of the optimizer is missing (checkpoints of save_only_model cannot be resumed)"
    if "scheduler.pt" not in files:
        yield "scheduler.pt is missing"


def _read_json(path: Path) -> Any:
    """What the file holds; None if it cannot be read."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def _is_whole(path: Path) -> bool:
    """Whether JSON parses, and a file of tensors has the length that its header or its closing directory says."""
    if path.suffix == ".json":
        return _read_json(path) is not None
    try:
        if path.suffix == ".safetensors":
            return path.stat().st_size == _size_in_header(path)
        with zipfile.ZipFile(path) as archive:
            return bool(archive.filelist)
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
