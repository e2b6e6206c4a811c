"""Removing folders that a hostile program has left."""

from __future__ import annotations

import os
import stat

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str) -> None:
    """Remove a folder, however deep it is and whatever its permissions. Nothing may write to it any more.

    One folder at a time is open, and the way back is `..`: no path gets long, and nothing recurses.
    """
    here = os.open(path, _FOLDER)
    names: list[str] = []
    left = [_empty(here)]
    try:
        while left:
            if left[-1]:
                names.append(left[-1].pop())
                here = _move(here, names[-1])
                left.append(_empty(here))
            else:
                left.pop()
                if names:
                    here = _move(here, "..")
                    os.rmdir(names.pop(), dir_fd=here)
    finally:
        os.close(here)
    os.rmdir(path)


def _move(here: int, name: str) -> int:
    there = os.open(name, _FOLDER, dir_fd=here)
    os.close(here)
    return there


def _empty(folder: int) -> list[str]:
    """Remove what is no folder; the names of the rest, which can be entered from now on."""
    rest = []
    for name in os.listdir(folder):
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.chmod(name, 0o700, dir_fd=folder)
            rest.append(name)
        else:
            os.unlink(name, dir_fd=folder)
    return rest
