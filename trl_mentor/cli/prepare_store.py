"""Where prepared material is kept: every text and call at once in a hidden file, and the output that follows from it.

`.NAME.work` beside the output has a line for each text that is settled and for what was spent since the last line, in
the order in which they came. The output has the rows in the order of the data, as far as all before them are settled.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from trl_mentor.cli.prepare_bill import PreparationBill
from trl_mentor.cli.prepare_lines import Booked, Made, Settled, read_line
from trl_mentor.cli.prepare_material import Material, Outcome
from trl_mentor.cli.prepare_rows import Item
from trl_mentor.errors import ConfigError
from trl_mentor.spending import RoleSpending, Spending

FORMAT = 1
"""Version of the hidden file."""


class Store:
    """The output and its hidden file. Safe to use from several threads once it is open."""

    _work: BinaryIO
    _out: BinaryIO

    def __init__(
        self,
        output: Path,
        items: Sequence[Item],
        materials: Sequence[Material],
        made: Mapping[str, Any],
        *,
        priced: bool,
    ) -> None:
        """`made` is what determines the texts: they are not joined with some that were made in another way."""
        self.output = output
        self.bill_path = output.with_suffix(".bill")
        """Not `.json`: `datasets` would take it for rows of a folder that it loads."""
        self.work_path = output.with_name(f".{output.name}.work")
        self._items, self._materials = items, {material.column: material for material in materials}
        self._columns = list(self._materials)
        self._made = json.loads(json.dumps({"format": FORMAT, **made}))
        self.bill = PreparationBill(self._columns, priced=priced)
        self._settled: dict[tuple[int, str], tuple[Outcome, int | None]] = {}
        self._to_retry: set[tuple[int, str]] = set()
        """What failed in an earlier run."""
        self._lock = threading.Lock()
        self._next = 0
        for row, item in enumerate(items):
            for material in materials:
                if material.is_there(item.row):
                    self._settled[row, material.column] = Outcome.KEPT, None
                    self.bill.columns[material.column].outcomes[Outcome.KEPT] += 1

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the files alone, read what is there and write the output anew as far as it goes.

        Raises `ConfigError` where the output was not begun by this command, or with other settings or rows, and while
        another process holds it.
        """
        self.output.parent.mkdir(parents=True, exist_ok=True)
        if self.output.exists() and not self.work_path.exists():
            raise self._not_ours("is missing")
        if self.bill_path.exists() and not self.work_path.exists():
            raise ConfigError(
                f"{self.bill_path} is there and is not of this command, which would put the bill of {self.output} "
                "in its place; choose another output, or move it away"
            )
        with self.work_path.open("a+b") as self._work:
            try:
                fcntl.lockf(self._work, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                raise ConfigError(f"{self.output} is being written by another process; wait for its end") from None
            self._read_work()
            self._to_retry = {place for place, found in self._settled.items() if found[0] is Outcome.FAILED}
            with self.output.open("wb") as self._out:
                self._write_ready()
                yield
                self._write_ready(with_failed=True)
                os.fsync(self._work.fileno())
            self.bill.write(self.bill_path, rows=len(self._items), written=self._next)

    @property
    def spent(self) -> Spending:
        """All that was spent on this output."""
        return Spending({"generation": self.bill.total}, cost=self.bill.cost)

    @property
    def rows_written(self) -> int:
        """Rows of the output."""
        return self._next

    def missing(self) -> list[tuple[int, str]]:
        """Row and column of what is to be asked for, in the order of the rows; what had failed is tried again."""
        every = ((row, column) for row in range(len(self._items)) for column in self._columns)
        return [place for place in every if not self._is_final(place)]

    def settle(self, settled: Settled) -> None:
        """Keep what became of a text."""
        with self._lock:
            offset = self._append(asdict(settled))
            self._take(settled, offset)
            self._to_retry.discard((settled.row, settled.column))
            self._write_ready()

    def book(self, column: str, spending: Spending, *, seconds: float) -> None:
        """Keep what was spent on a column, and how many seconds passed since the last time."""
        spent, cost = spending.total, spending.cost
        if spent == RoleSpending() and not seconds:
            return
        with self._lock:
            figures = {name: value for name, value in asdict(spent).items() if value}
            self._append({"spent": figures, "column": column, "cost": cost, "passed": seconds})
            self._enter(column, spent, cost, seconds)

    def _is_final(self, place: tuple[int, str]) -> bool:
        found = self._settled.get(place)
        return found is not None and found[0] is not Outcome.FAILED

    def _append(self, record: Mapping[str, Any]) -> int:
        """Add a line, and return where it begins."""
        offset = self._work.seek(0, os.SEEK_END)
        self._work.write(json.dumps(record).encode("ascii") + b"\n")
        self._work.flush()
        return offset

    def _take(self, settled: Settled, offset: int) -> None:
        place, column = (settled.row, settled.column), self.bill.columns[settled.column]
        if (before := self._settled.get(place)) is not None:
            column.outcomes[before[0]] -= 1
        self._settled[place] = settled.outcome, None if settled.value is None else offset
        column.outcomes[settled.outcome] += 1
        column.asked_again += max(settled.tries - 1, 0)

    def _enter(self, column: str, spent: RoleSpending, cost: float, seconds: float) -> None:
        bill = self.bill.columns[column]
        bill.spent += spent
        bill.cost += cost
        self.bill.seconds += seconds

    def _not_ours(self, state: str) -> ConfigError:
        return ConfigError(
            f"{self.output} is there and was not begun by this command ({self.work_path.name} beside it {state}); "
            "choose another output, with this one as --data if its texts are to be kept, or move it away"
        )

    def _read_work(self) -> None:
        self._work.seek(0)
        offset = 0
        for number, line in enumerate(iter(self._work.readline, b""), start=1):
            if not line.endswith(b"\n"):
                break  # a process was killed while it wrote this line
            try:
                found = read_line(line, self._materials)
            except ValueError as error:
                if number == 1:
                    raise self._no_settings("in place of that line") from error
                raise ConfigError(
                    f"{self.work_path}, line {number}, cannot be read ({error}); delete the line, and what is missing "
                    "is asked for again"
                ) from error
            if number == 1 and not isinstance(found, Made):
                raise self._no_settings("before that line")
            self._take_line(found, offset)
            offset += len(line)
        if not offset and self.output.is_file() and self.output.stat().st_size:
            raise self._not_ours("has no whole line")
        os.truncate(self._work.fileno(), offset)
        if not offset:
            self._append({"made": self._made})

    def _no_settings(self, where: str) -> ConfigError:
        return ConfigError(
            f"{self.work_path}, line 1, does not say what the texts were made with, and the texts below it are kept "
            f"only with that. If it was with the settings of this run, write {where}: "
            f"{json.dumps({'made': self._made})} ; or choose another output"
        )

    def _take_line(self, found: Made | Settled | Booked, offset: int) -> None:
        if isinstance(found, Made):
            self._refuse_difference(found.made)
        elif isinstance(found, Booked):
            self._enter(found.column, found.spent, found.cost, found.passed)
        else:
            if found.row < len(self._items) and self._items[found.row].key != found.key:
                raise ConfigError(
                    f"row {found.row} of the data is not the one that {self.output} was begun with; choose another "
                    f"output, or delete {self.work_path} to begin anew"
                )
            if not self._is_final((found.row, found.column)):
                self._take(found, offset)

    def _refuse_difference(self, there: Mapping[str, Any]) -> None:
        for name in sorted(there.keys() | self._made.keys()):
            if there.get(name) != self._made.get(name):
                raise ConfigError(
                    f"{self.output} was begun with {name} = {there.get(name)!r:.80}, this run has "
                    f"{self._made.get(name)!r:.80}; choose another output, or the same settings to go on with this one"
                )

    def _write_ready(self, *, with_failed: bool = False) -> None:
        """Add the rows whose texts, and those of all rows before, are settled."""
        at = self._next
        while self._next < len(self._items):
            places = [(self._next, column) for column in self._columns]
            if not all(place in self._settled and (with_failed or place not in self._to_retry) for place in places):
                break
            row = {**self._items[self._next].row, **{place[1]: self._value(place) for place in places}}
            self._out.write(json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")
            self._next += 1
        if self._next > at:
            self._out.flush()

    def _value(self, place: tuple[int, str]) -> Any:
        outcome, offset = self._settled[place]
        if outcome is Outcome.KEPT:
            return self._items[place[0]].row[place[1]]
        if offset is None:
            return None
        self._work.seek(offset)
        return json.loads(self._work.readline())["value"]
