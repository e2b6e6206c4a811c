"""The figures of an evaluation on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trl_mentor.cli.show import visible
from trl_mentor.evaluation.results import Results


def show(results: Results) -> None:
    """Print the tables and what a reader has to know besides."""
    console = Console()
    for found in results.tables:
        table = Table(title=found.title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
        for place, name in enumerate(found.columns):
            widest = max(map(len, name.split()))
            table.add_column(Text(name), justify="right" if place else "left", no_wrap=not place, min_width=widest)
        for row in found.rows:
            table.add_row(*map(Text, row))
        console.print(table)
        console.print()
    for note in results.notes:
        console.print(Text(f"Note: {visible(note)}", style="yellow"), soft_wrap=True)
