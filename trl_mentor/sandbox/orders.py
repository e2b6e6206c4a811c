"""What a program is started with; it travels to the process that starts it as one line, then files."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from trl_mentor.errors import ConfigError
from trl_mentor.sandbox.records import Limits

_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Numerical libraries would start a thread per core, more than a program may have."""

_MOST_FILES = 100


@dataclass(frozen=True, slots=True)
class Order:
    """A program to start."""

    argv: list[str]
    limits: Limits
    sizes: list[tuple[str, int]]
    """Names of files and their lengths; their content follows in this order."""

    def environment(self, folder: str) -> dict[str, str]:
        """All of the environment that a program gets whose folders lie in `folder`."""
        return {
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": f"{folder}/home",
            "TMPDIR": f"{folder}/tmp",
            "LC_ALL": "C.UTF-8",
            **library_path(),
            **dict.fromkeys(_ONE_THREAD, "1"),
        }


def library_path() -> dict[str, str]:
    """The variable by which a Python of environment modules finds its libraries, where it is set."""
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if os.environ.get(name)}


def write_order(file: BinaryIO, argv: Sequence[str], files: Mapping[str, bytes], limits: Limits) -> None:
    """Raises `ConfigError` for a file that would lie outside the program's folder, and for a command that is none."""
    if isinstance(argv, str) or not argv or any("\0" in argument for argument in argv):
        raise ConfigError(f"got {argv!r} to run, expected a list of a program and its arguments, without NULs")
    if len(files) > _MOST_FILES:
        raise ConfigError(f"got {len(files)} files for a sandbox, expected at most {_MOST_FILES}")
    for name in files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
            raise ConfigError(f"got {name!r} as a file for a sandbox, expected a relative path inside its folder")
    head = {
        "argv": list(argv),
        "limits": asdict(limits),
        "sizes": [(name, len(content)) for name, content in files.items()],
    }
    file.write(json.dumps(head).encode() + b"\n")
    for content in files.values():
        file.write(content)
    file.flush()
    file.seek(0)


def read_order(file: BinaryIO) -> Order:
    """What `write_order` wrote; `file` is then at the first file's content."""
    head = json.loads(file.readline())
    return Order(head["argv"], Limits(**head["limits"]), [(name, size) for name, size in head["sizes"]])


def unpack(order: Order, file: BinaryIO) -> None:
    """Write the files into the current folder."""
    for name, size in order.sizes:
        folder = os.path.dirname(name)
        if folder:
            os.makedirs(folder, exist_ok=True)
        with open(name, "wb") as target:
            target.write(file.read(size))
