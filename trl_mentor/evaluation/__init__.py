"""Evaluation without hints: generate, judge, keep every completion, and say how sure the figures are."""

from __future__ import annotations

from pathlib import Path

from trl_mentor.errors import ConfigError


def module_path(name: str) -> str:
    """Where the `evaluate` module of this name is, for `evaluate.load`. Raises `ConfigError` if there is none."""
    folder = Path(__file__).parent / "modules"
    names = sorted(path.stem for path in folder.glob("[!_]*.py"))
    if name not in names:
        raise ConfigError(f"there is no evaluate module {name!r}; choose from {', '.join(names)}")
    return str(folder / f"{name}.py")
