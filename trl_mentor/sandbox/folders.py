"""Removing folders that a hostile program has left."""

from __future__ import annotations

import os
from contextlib import suppress

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str) -> None:
    """Remove a folder, however deep it is and whatever its permissions. Nothing may write to it any more.

    Each folder in it is moved to the top before it is emptied, so that no path gets long and nothing recurses.
    """
    top = os.open(path, _FOLDER)
    try:
        token, moved = os.urandom(8).hex(), 0
        while names := os.listdir(top):
            for name in names:
                moved = _remove(top, name, token, moved)
    finally:
        os.close(top)
    os.rmdir(path)


def _remove(top: int, name: str, token: str, moved: int) -> int:
    if _unlink(name, top):
        return moved
    folder = os.open(name, _FOLDER, dir_fd=top)
    try:
        for entry in os.listdir(folder):
            if not _unlink(entry, folder):
                moved += 1
                os.rename(entry, f"{token}-{moved}", src_dir_fd=folder, dst_dir_fd=top)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=top)
    return moved


def _unlink(name: str, folder: int) -> bool:
    """Whether it is gone; a folder is not, but can be entered and moved from now on."""
    with suppress(IsADirectoryError, PermissionError):
        os.unlink(name, dir_fd=folder)
        return True
    os.chmod(name, 0o700, dir_fd=folder)
    return False
