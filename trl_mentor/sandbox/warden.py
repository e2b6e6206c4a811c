"""This process's side of the process that starts programs (`warden_main`)."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from contextlib import suppress
from pathlib import Path

from trl_mentor.sandbox.orders import library_path
from trl_mentor.sandbox.records import Isolation

_PATIENCE = 60.0
"""Seconds for the start of a small Python, and for it to take a request."""
_CODE = """
import json, sys
setting = json.loads(sys.argv[1])
sys.path.insert(0, setting["package"])
from trl_mentor.sandbox.warden_main import main
main(setting, int(sys.argv[2]), int(sys.argv[3]))
"""
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
_SETTINGS = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "nsswitch.conf")


class Warden:
    """Starts the process with the first request, in a forked process another one, and hands requests to it."""

    def __init__(self, isolation: Isolation) -> None:
        self._isolation = isolation
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        forget = weakref.WeakMethod(self._forget)
        os.register_at_fork(after_in_child=lambda: (method := forget()) and method())

    def ask(self, files: list[int]) -> None:
        """Hand over the files of a request. Raises `OSError` where there is no process to take it."""
        with self._lock:
            for attempt in range(2):
                control = self._control or self._start()
                try:
                    socket.send_fds(control, [b"x"], files)
                    return
                except OSError:
                    self._end()
                    if attempt:
                        raise

    def close(self) -> None:
        """Let the process go; programs that run are still seen to."""
        with self._lock:
            self._end()

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        setting = {
            "isolation": self._isolation,
            "package": str(Path(__file__).parents[2]),
            "readable": readable_paths(),
            "temporary": os.path.realpath(tempfile.gettempdir()),
        }
        with theirs:
            arguments = [json.dumps(setting), str(theirs.fileno()), str(os.getpid())]
            self._process = subprocess.Popen(
                [sys.executable or "python3", "-I", "-S", "-B", "-c", _CODE, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", **library_path()},
                cwd="/",
                start_new_session=True,
            )
        self._control = ours
        ours.settimeout(_PATIENCE)
        assert self._process.stderr is not None
        with suppress(OSError):
            if ours.recv(1):
                self._process.stderr.close()
                return ours
        self._process.kill()
        said = self._process.stderr.read().decode(errors="replace").strip().splitlines()
        self._end()
        raise OSError(said[-1] if said else "the process that starts programs did not start")

    def _end(self) -> None:
        process, control, self._process, self._control = self._process, self._control, None, None
        if control is not None:
            control.close()
        if process is not None:
            assert process.stderr is not None
            process.stderr.close()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _forget(self) -> None:
        """In a forked process: what was copied is its parent's, and must not outlive that."""
        process, control, self._process, self._control = self._process, self._control, None, None
        self._lock = threading.Lock()
        if control is not None:
            control.close()
        if process is not None:
            process.returncode = 0
            assert process.stderr is not None
            process.stderr.close()

    def __del__(self) -> None:
        with suppress(Exception):
            self._end()


def readable_paths() -> list[str]:
    """What a program may read of this machine: the system's programs and libraries, and this Python with its packages.

    All else does not exist for it where there are namespaces: homes, /tmp, /run, mounted disks, the training's output.
    """
    homes = [Path(home) for home in (os.path.expanduser("~"), "/root", "/home")]
    python = [Path(path) for path in (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)]
    python += [Path(folder) for value in library_path().values() for folder in value.split(":") if folder]
    python = [path for path in python if path.is_absolute() and not any(home.is_relative_to(path) for home in homes)]
    paths = [*map(Path, _SYSTEM), *(Path("/etc", name) for name in _SETTINGS), *python]
    found: list[str] = []
    for path in paths:
        inside = any(path.is_relative_to(other) for other in found)
        if path.exists() and not inside and str(path) not in found:
            found.append(str(path))
    return found
