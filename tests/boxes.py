"""What the tests of the sandbox share: a folder of their own, a target for programs, and a look for survivors."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from trl_mentor.sandbox import Isolation, launcher, tiers

SYSTEM_PYTHON = "/usr/bin/python3"


@pytest.fixture(scope="module", autouse=True)
def folder():
    """A folder for what sandboxes put on disk, and nothing of those that other tests have begun."""
    path = tempfile.mkdtemp()
    os.chmod(path, 0o711)
    patch = pytest.MonkeyPatch()
    patch.setattr(tempfile, "tempdir", path)
    patch.setenv("SECRET_TOKEN", "not-for-programs")
    forget()
    yield Path(path)
    forget()
    patch.undo()
    shutil.rmtree(path)


def forget() -> None:
    for known in (tiers.launcher, tiers.problem_of, tiers.available):
        known.cache_clear()


@dataclass(frozen=True)
class Target:
    """What hostile programs are after: a folder with secrets, and sockets on which nobody may call."""

    folder: Path
    sockets: tuple[socket.socket, ...]

    @property
    def arguments(self) -> list[str]:
        port = str(self.sockets[0].getsockname()[1])
        return [port, str(self.folder), str(os.getpid()), os.path.expanduser("~")]

    def untouched(self) -> bool:
        for listener in self.sockets:
            with suppress(BlockingIOError):
                listener.recv(1) if listener.type == socket.SOCK_DGRAM else listener.accept()
                return False
        files = sorted(path.name for path in self.folder.rglob("*"))
        return files == ["open", "public", "secret", "socket"] and (self.folder / "secret").read_text() == "secret"


@pytest.fixture(scope="module")
def target():
    path = Path(tempfile.mkdtemp(dir="/var/tmp"))
    path.chmod(0o755)
    (path / "secret").write_text("secret")
    (path / "secret").chmod(0o600)
    (path / "open").write_text("secret")
    (path / "public").mkdir()
    (path / "public").chmod(0o777)
    tcp, udp, named, abstract = (
        socket.create_server(("127.0.0.1", 0)),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        socket.socket(socket.AF_UNIX),
        socket.socket(socket.AF_UNIX),
    )
    udp.bind(tcp.getsockname())
    named.bind(f"{path}/socket")
    (path / "socket").chmod(0o777)
    named.listen()
    abstract.bind(f"\0{path}")
    abstract.listen()
    sockets = (tcp, udp, named, abstract)
    for listener in sockets:
        listener.setblocking(False)
    yield Target(path, sockets)
    for listener in sockets:
        listener.close()
    shutil.rmtree(path)


def starter(tier: Isolation) -> tuple[launcher.Launcher, str]:
    """What runs programs in a tier, and a Python to run in it; skips where the machine lacks one of them.

    Without namespaces the programs of root cannot reach a Python in root's home; there the system's is run.
    """
    problem = tiers.problem_of(tier)
    if problem is None:
        return tiers.launcher(tier), sys.executable
    if tier is Isolation.LIMITS and "PermissionError" in problem and os.path.exists(SYSTEM_PYTHON):
        return tiers.launcher(tier), SYSTEM_PYTHON
    pytest.skip(f"no {tier.value} on this machine: {problem}")


def command(python: str, code: str, *arguments: str) -> list[str]:
    return [python, "-I", "-S", "-B", "-X", "utf8", "-c", code, *arguments]


def processes_with(marker: str) -> list[str]:
    """Processes with a text in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if marker.encode() in (line := path.read_bytes()):
                found.append(f"{path.parent.name}: {line!r}")
    return found


def survivors(marker: str, folder: Path) -> list[str]:
    """Processes with a text in their command line, files of sandboxes, and children of this process that wait."""
    waiting = []
    with suppress(ChildProcessError):
        if zombie := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            waiting.append(f"zombie {zombie.si_pid}")
    return processes_with(marker) + [str(path) for path in folder.iterdir()] + waiting
