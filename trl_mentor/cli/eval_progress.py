"""How far an evaluation is: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from trl_mentor.evaluation.run import Report, Standing

PAUSE = 30.0
"""Seconds between two lines where there is no terminal."""


@contextmanager
def progress() -> Iterator[Report]:
    """Shows each standing on standard error."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(console)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:
        yield _Bars(bars)


def figures(standing: Standing) -> str:
    """Tokens, the share that is right so far, and what could not be judged."""
    text = f"{standing.tokens:,} tokens"
    if standing.judged:
        text += f", {standing.right / standing.done:.1%} right"
    return text + (f", {standing.errors} not judged" if standing.errors else "")


class _Bars:
    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, standing: Standing) -> None:
        name, begun = standing.benchmark, standing.benchmark in self._tasks
        if not begun:
            self._tasks[name] = self._bars.add_task(name, total=standing.total, figures="")
        self._bars.update(self._tasks[name], completed=standing.done, figures=figures(standing))


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._said = float("-inf")
        self._benchmark = ""

    def __call__(self, standing: Standing) -> None:
        now, new = time.monotonic(), standing.benchmark != self._benchmark
        if new or standing.done == standing.total or now - self._said >= PAUSE:
            self._said, self._benchmark = now, standing.benchmark
            text = f"{standing.benchmark}: {standing.done}/{standing.total} completions, {figures(standing)}"
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)
