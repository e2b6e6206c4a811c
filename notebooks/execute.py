"""Runs notebooks from a clean kernel of this Python and writes their outputs into them.

    python notebooks/execute.py notebooks/*.ipynb

The times at which cells ran are not written; times that a cell prints are, and differ from run to run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import nbformat
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

SECONDS = 500
"""For one cell."""
PYTHON = {"display_name": "Python 3", "language": "python", "name": "python3"}


class ThisPython(AsyncKernelManager):
    """Starts kernels of this interpreter, whatever kernels are installed."""

    @property
    def kernel_spec(self) -> KernelSpec:
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name=PYTHON["display_name"], language=PYTHON["language"])


def execute(path: Path) -> None:
    """Run one notebook in its own folder and write it back. Raises `CellExecutionError` for a cell that fails."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        kernel_manager_class=ThisPython,
        timeout=SECONDS,
        record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute()
    notebook.metadata = {"kernelspec": PYTHON, "language_info": {"name": "python"}}
    nbformat.write(notebook, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", type=Path, nargs="+")
    for path in parser.parse_args().notebooks:
        execute(path)


if __name__ == "__main__":
    main()
