"""What a run says at its end, as text for a terminal: what it took and, after a trial, whether hints helped."""

from __future__ import annotations

import io
import shutil

from rich.box import ASCII
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trl_mentor.bill import Bill
from trl_mentor.counters import Counters
from trl_mentor.tallies import Tallies, Tally
from trl_mentor.uplift import difference_text, uplift_table


def closing_text(totals: Counters, *, priced: bool) -> str:
    """The bill as a table and, where hints were withheld by lot, one of what they did."""
    text = io.StringIO()
    # A notebook says that it shows colours and pages, which this text must not hold.
    console = Console(file=text, width=shutil.get_terminal_size().columns, force_terminal=False, force_jupyter=False)
    console.print(_table(Bill.of(totals, priced=priced)))
    if uplift_table(totals.recovery):
        console.print(_trial(totals.recovery))
    return text.getvalue().rstrip("\n")


def _table(bill: Bill) -> Table:
    table = Table(title="What the run took", title_justify="left", box=ASCII, show_header=False)
    for name, value in bill.rows():
        table.add_row(Text(name), Text(value))
    return table


def _trial(recovery: Tallies) -> Table:
    table = Table(title="Groups that recovered", title_justify="left", box=ASCII)
    for name in ("", "with hint", "hint withheld", "uplift [95 %]"):
        table.add_column(name)
    for row in uplift_table(recovery):
        name = " ".join(filter(None, (row.kind, row.name)))
        difference = "" if row.comparison is None else difference_text(row.comparison)
        table.add_row(*map(Text, (name, _of(row.hint), _of(row.control), difference)))
    return table


def _of(tally: Tally) -> str:
    return f"{tally.hits} of {tally.groups}"
