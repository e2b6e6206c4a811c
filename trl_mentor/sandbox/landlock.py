"""Landlock: which files a process and all that it starts may touch, without privilege (Linux 5.13 and later).

Rights are those of include/uapi/linux/landlock.h. What a process may not see by them it cannot look for in other
processes either: /proc/<pid>/environ of a process outside is refused.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

from trl_mentor.sandbox.kernel import Kernel

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_ASK_VERSION, _BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_FOLDER, _REFER, _TRUNCATE, _DEVICE = 1, 2, 4, 8, 1 << 13, 1 << 14, 1 << 15
_FIRST_RIGHTS = (1 << 13) - 1
_READ = _EXECUTE | _READ_FILE | _READ_FOLDER
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _DEVICE
_NETWORK, _SCOPED = 3, 3
"""Binding and connecting of TCP; abstract sockets and signals of processes outside."""
SCOPED_SIGNALS = 6
"""The version since which signals to processes outside are refused."""
BOUNDS_TRUNCATION = 3
"""The version since which files outside cannot be cut."""


def version(kernel: Kernel) -> int:
    """What the kernel's Landlock can do, as its number; 0 where there is none."""
    try:
        return kernel.system_call(_CREATE, 0, 0, _ASK_VERSION)
    except OSError:
        return 0


def restrict(kernel: Kernel, *, readable: Iterable[str], writable: Iterable[str]) -> None:
    """Leave this process no files but these, with all that lies in them. Needs `renounce` first."""
    known = version(kernel)
    handled = _FIRST_RIGHTS
    for since, right in ((2, _REFER), (BOUNDS_TRUNCATION, _TRUNCATE), (5, _DEVICE)):
        handled |= right if known >= since else 0
    size = 24 if known >= SCOPED_SIGNALS else 16 if known >= 4 else 8
    attributes = struct.pack("=QQQ", handled, _NETWORK, _SCOPED)[:size]
    rules = kernel.system_call(_CREATE, ctypes.c_char_p(attributes), len(attributes), 0)
    for paths, rights in ((readable, _READ), (writable, handled)):
        for path in paths:
            _allow(kernel, rules, path, rights & handled)
    kernel.system_call(_RESTRICT, rules, 0)
    os.close(rules)


def _allow(kernel: Kernel, rules: int, path: str, rights: int) -> None:
    try:
        file = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not stat.S_ISDIR(os.fstat(file).st_mode):
        rights &= _OF_FILES
    kernel.system_call(_ADD, rules, _BENEATH, ctypes.c_char_p(struct.pack("=Qi", rights, file)), 0)
    os.close(file)
