"""What a run says at its end, as text for a terminal: what it took and, after a trial, whether hints helped."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterable, Iterator

from rich.box import ASCII
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trl_mentor.bill import Bill
from trl_mentor.counters import Counters, outcomes
from trl_mentor.tallies import Tallies, Tally
from trl_mentor.uplift import difference_text, rate, rate_text, rescued_and_others, transfer_uplift, uplift_table


def closing_text(totals: Counters, *, priced: bool) -> str:
    """Outcomes and bill as tables, what hints did where some were withheld by lot, and whether it carried over."""
    text = io.StringIO()
    # A notebook says that it shows colours and pages, which this text must not hold.
    console = Console(file=text, width=shutil.get_terminal_size().columns, force_terminal=False, force_jupyter=False)
    console.print(_table("What became of the groups", [(name, f"{n:,}") for name, n in outcomes(totals).items()]))
    console.print(_table("What the run took", Bill.of(totals, priced=priced).rows()))
    if uplift_table(totals.recovery):
        console.print(_trial(totals.recovery))
    for sentence in carried_over(totals.transfer):
        console.print(Text(sentence))
    if totals.reliance_count:
        console.print(Text(f"Hint reliance: {totals.reliance_sum / totals.reliance_count:+.2f} nats per token."))
    return text.getvalue().rstrip("\n")


def carried_over(transfer: Tallies) -> Iterator[str]:
    """Whether prompts are solved without a hint later; a prompt counts each time that it comes round again."""
    rescued, others = rescued_and_others(transfer)
    for which, answered in (("rescued", rescued), ("collapsed and not rescued", others)):
        if (share := rate(answered)) is not None:
            times = f"Of {answered.groups:,} times that a prompt came round again which had been {which}, "
            yield f"{times}it was solved without a hint in {rate_text(share)}."
    if later := transfer_uplift(transfer):
        yield f"Solved later where the hint was given over where it was withheld: {difference_text(later)}."


def _table(title: str, rows: Iterable[tuple[str, str]]) -> Table:
    table = Table(title=title, title_justify="left", box=ASCII, show_header=False)
    for name, value in rows:
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
