"""What preparing took and brought, by column, over all runs of the command."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from trl_mentor.cli.prepare_material import Outcome
from trl_mentor.spending import RoleSpending

SHOWN = {
    Outcome.WRITTEN: "written",
    Outcome.PARTLY: "written in part: some entries were refused",
    Outcome.KEPT: "there before",
    Outcome.REFUSED: "none: refused by the leak gate or as no plain text",
    Outcome.WRONG: "none: judged wrong",
    Outcome.UNJUDGED: "none: could not be judged",
    Outcome.UNREADABLE: "none: no reply could be read",
    Outcome.FAILED: "not yet: the mentor failed",
}


@dataclass
class ColumnBill:
    """One column: how many rows came to which end, and what was spent on it."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    asked_again: int = 0
    """Questions that were asked once more: something of the reply was not accepted, or there was none to read."""
    spent: RoleSpending = field(default_factory=RoleSpending)
    cost: float = 0.0


class PreparationBill:
    """The bill of one output."""

    def __init__(self, columns: Iterable[str], *, priced: bool) -> None:
        self.columns = {column: ColumnBill() for column in columns}
        self.priced = priced
        self.seconds = 0.0
        """Of all runs of the command, while they asked."""

    @property
    def total(self) -> RoleSpending:
        """All columns together."""
        return sum((column.spent for column in self.columns.values()), RoleSpending())

    @property
    def cost(self) -> float:
        """At the prices of the time; 0 without."""
        return sum(column.cost for column in self.columns.values())

    def write(self, path: Path, *, rows: int, written: int) -> None:
        """As JSON: `rows` of the data, of which `written` are in the output."""
        path.write_text(json.dumps(self._plain(rows, written), indent=1) + "\n", encoding="utf-8")

    def _plain(self, rows: int, written: int) -> dict[str, Any]:
        return {
            "rows": rows,
            "rows_in_output": written,
            "seconds": round(self.seconds, 3),
            **self._taken(self.total, self.cost),
            "columns": {
                name: {
                    **{outcome.value: column.outcomes[outcome] for outcome in Outcome},
                    "asked_again": column.asked_again,
                    **self._taken(column.spent, column.cost),
                }
                for name, column in self.columns.items()
            },
        }

    def _taken(self, spent: RoleSpending, cost: float) -> Mapping[str, Any]:
        figures = asdict(spent)
        figures.pop("seconds")
        return {**figures, "cost": cost if self.priced else None}

    def table(self) -> Table:
        """For reading."""
        table = Table(box=None, padding=(0, 2, 0, 0))
        table.add_column("", overflow="fold")
        for name in (*self.columns, "all"):
            table.add_column(name, justify="right")
        everything = [*self.columns.values()]
        for outcome, text in SHOWN.items():
            counts = [column.outcomes[outcome] for column in everything]
            if any(counts):
                table.add_row(text, *map(_number, counts), "")
        spent = [*(column.spent for column in everything), self.total]
        asked_again = [column.asked_again for column in everything]
        table.add_row("asked again", *map(_number, [*asked_again, sum(asked_again)]))
        table.add_row("calls", *(_number(one.calls) for one in spent))
        table.add_row("  failed", *(_number(one.errors) for one in spent))
        table.add_row("tokens in", *(_number(one.prompt_tokens) for one in spent))
        table.add_row("tokens out", *(_number(one.completion_tokens) for one in spent))
        if self.priced:
            table.add_row("cost", *(f"{cost:,.4g}" for cost in (*(column.cost for column in everything), self.cost)))
        return table


def _number(value: int) -> str:
    return f"{value:,}"
