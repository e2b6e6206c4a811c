"""Folders of installed packages, which programs find empty: among packages lie benchmarks with their solutions."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

_PATTERNS = ("lib*/python3*/site-packages", "lib*/python3*/dist-packages")


def package_folders(readable: Sequence[str]) -> list[str]:
    """Those of this Python and of the system's, as far as they lie in `readable`."""
    shown = [Path(path) for path in readable]
    prefixes = {*shown, Path("/usr/local"), Path(os.path.dirname(os.path.dirname(sys.executable)))}
    found = {Path(os.path.realpath(folder)) for prefix in prefixes for one in _PATTERNS for folder in prefix.glob(one)}
    return sorted(str(folder) for folder in found if any(map(folder.is_relative_to, shown)))
