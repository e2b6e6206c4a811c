"""How far preparing is: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from trl_mentor.cli.prepare_bill import PreparationBill
from trl_mentor.cli.prepare_material import Outcome

PAUSE = 30.0
"""Seconds between two lines where there is no terminal."""

_NONE = (Outcome.REFUSED, Outcome.WRONG, Outcome.UNJUDGED, Outcome.UNREADABLE)


@contextmanager
def progress(bill: PreparationBill, *, texts: int) -> Iterator[Callable[[], None]]:
    """Shows on standard error, whenever it is called, how many of so many texts are settled, and the bill."""
    console = Console(stderr=True)
    if not console.is_terminal:
        said = time.monotonic()

        def line() -> None:
            nonlocal said
            if time.monotonic() - said >= PAUSE:
                said = time.monotonic()
                say()

        def say() -> None:
            text = f"{settled(bill)}/{texts} texts, {figures(bill)}"
            console.print(text, markup=False, highlight=False, soft_wrap=True)

        yield line
        say()
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[figures]}"), TimeRemainingColumn())
    with Progress(*columns, console=console) as bars:
        task = bars.add_task("", total=texts, completed=settled(bill), figures=figures(bill))
        yield lambda: bars.update(task, completed=settled(bill), figures=figures(bill))


def settled(bill: PreparationBill) -> int:
    """Texts that are there, or of which it is known that they will not be."""
    counts = [column.outcomes for column in bill.columns.values()]
    return sum(count.total() - count[Outcome.FAILED] for count in counts)


def figures(bill: PreparationBill) -> str:
    """What is left without a text, and what was spent."""
    counts = [column.outcomes for column in bill.columns.values()]
    none, failed = sum(count[kind] for count in counts for kind in _NONE), sum(c[Outcome.FAILED] for c in counts)
    parts = [
        f"{none:,} without" if none else "",
        f"{failed:,} failed" if failed else "",
        f"{bill.total.tokens:,} tokens",
    ]
    return ", ".join(part for part in (*parts, f"cost {bill.cost:,.4g}" if bill.priced else "") if part)
