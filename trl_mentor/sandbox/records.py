"""What a sandboxed program may use, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum

from trl_mentor.errors import ConfigError

_MOST = 2**40
"""Above it the kernel's own numbers end: bytes of a limit in MiB fit into 64 bits."""


class Isolation(StrEnum):
    """How a program is kept apart from the machine, best first."""

    BUBBLEWRAP = "bubblewrap"  # namespaces of its own for processes, network, users and files, by `bwrap`
    NAMESPACES = "namespaces"  # the same by the kernel's interface, without `bwrap`
    FILTER = (
        "filter"  # no namespaces to be had: a filter of system calls (no sockets, no way out of the process group)
    )
    LIMITS = "limits"  # resource limits and an empty environment alone


class Ending(StrEnum):
    """How a program ended."""

    EXITED = "exited"  # by itself; see the exit code
    TIMED_OUT = "timed_out"  # killed at its time limit
    TOO_MUCH_OUTPUT = "too_much_output"  # killed when it had written more than it may
    KILLED = "killed"  # ended by a signal, such as that for its CPU limit or for a broken memory access


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one sandbox; each is enforced by the kernel or by the end of every process in it."""

    seconds: float = 10.0
    """Wall-clock time of the whole."""
    memory_mib: int = 1024
    """Address space of each process."""
    processes: int = 16
    """Processes and threads at once."""
    file_mib: int = 16
    """Size of each file that is written."""
    output_bytes: int = 2**20
    """Of standard output and error each."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if not 0 < value < _MOST:
                raise ConfigError(f"got {one.name}={value} for a sandbox, expected a number above 0 and below {_MOST}")


@dataclass(frozen=True, slots=True)
class Result:
    """What a program wrote and how it ended."""

    ending: Ending
    exit_code: int | None
    """None unless EXITED."""
    stdout: bytes
    stderr: bytes
    seconds: float
