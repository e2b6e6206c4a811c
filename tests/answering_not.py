"""A child for `test_workers` that lacks a library."""

from __future__ import annotations

from trl_mentor.workers import serve


def main() -> None:
    serve(lambda question: question, warm_up=lambda: __import__("no_such_library"), cpu_seconds=1, memory=1024**3)
