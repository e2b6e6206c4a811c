"""How commands are told of benchmarks: their names, and where local files of them are."""

from __future__ import annotations

import argparse
from pathlib import Path


def benchmark_names(text: str) -> list[str]:
    """The names of a list with commas, each once."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def named_folder(text: str) -> tuple[str, Path]:
    """A name and its folder from NAME=DIR."""
    name, found, folder = text.partition("=")
    if not found or not name or not folder:
        raise argparse.ArgumentTypeError(f"expected NAME=DIR, got {text!r}")
    return name, Path(folder)
