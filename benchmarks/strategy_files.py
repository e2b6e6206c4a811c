"""Results on disk: one small JSON file each, whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read_json(path: Path, expected: Mapping[str, Any]) -> dict[str, Any] | None:
    """The object in this file, or None if there is none, or not one with these values."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    whole = isinstance(found, dict) and all(found.get(key) == value for key, value in expected.items())
    return found if whole else None


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file that appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    lines = ",\n ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in content.items())
    fresh.write_text(f"{{{lines}}}\n", encoding="utf-8")
    os.replace(fresh, path)
