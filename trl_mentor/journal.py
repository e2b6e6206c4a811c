"""The journal: every intervention of a run as one JSON line, written as it happens, read back as typed records.

What happens to the mentor as a whole, such as an endpoint that is down, is a line too.

A run may be killed at any moment. Each record is therefore a single appended write that ends with a newline, and a
line that is torn or cannot be read costs that record and no other. A resumed run repeats steps that the journal has
already; a marker line wherever training begins says which of the records before it no longer count.
"""

from __future__ import annotations

import json
import logging
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trl_mentor.bill import Bill
from trl_mentor.counters import Booking, Counters
from trl_mentor.errors import ConfigError
from trl_mentor.plain import from_plain, plain_json
from trl_mentor.records import Evaluation, Event, Intervention, Return, RunInfo

if TYPE_CHECKING:
    from datasets import Dataset

SCHEMA = 1
"""Version of the line format; raised only when an old reader would misunderstand a new line."""

JOURNAL_PATH = Path("mentor") / "journal.jsonl"
"""Where a run keeps its journal, relative to `output_dir`."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TrainBegin:
    """The marker: training begins here, so that earlier records of this and later steps no longer count."""

    train_begin: int
    """Optimizer steps that the checkpoint had done; 0 for a new run."""
    run: RunInfo = RunInfo()


@dataclass(frozen=True, slots=True)
class _EventLine:
    """A line of another kind than an intervention is told from it by its one field."""

    event: Event


@dataclass(frozen=True, slots=True)
class _BookingLine:
    booking: Booking


@dataclass(frozen=True, slots=True)
class _ReturnLine:
    returned: Return


@dataclass(frozen=True, slots=True)
class _EvaluationLine:
    evaluation: Evaluation


_Line = TrainBegin | _EventLine | _BookingLine | _ReturnLine | _EvaluationLine
_KINDS: dict[str, type[_Line]] = {
    "train_begin": TrainBegin,
    "event": _EventLine,
    "booking": _BookingLine,
    "returned": _ReturnLine,
    "evaluation": _EvaluationLine,
}


class Journal:
    """Appends interventions to a file; the directory is made, an existing journal is continued.

    Only opening it raises `OSError`. A disk that fills up later is logged once and counted in `lost`: an observer must
    not end the run that it observes.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.lost = 0
        self._torn = False
        self._fd: int | None = self._open()

    def append(self, intervention: Intervention) -> None:
        """Write one record; a journal that was closed is opened again."""
        self._write(intervention)

    def note(self, event: Event) -> None:
        """Write what happened to the mentor as a whole."""
        self._write(_EventLine(event))

    def book(self, booking: Booking) -> None:
        """Write what was added to the totals of the run."""
        self._write(_BookingLine(booking))

    def returned(self, item: Return) -> None:
        """Write how a prompt that collapsed before was answered without a hint."""
        self._write(_ReturnLine(item))

    def evaluated(self, evaluation: Evaluation) -> None:
        """Write what an evaluation measured; JSON has no NaN, so that what is not a number is left out."""
        numbers = {name: value for name, value in evaluation.metrics.items() if math.isfinite(value)}
        self._write(_EvaluationLine(Evaluation(evaluation.step, numbers)))

    def begin(self, step: int, run: RunInfo = RunInfo()) -> None:
        """Mark that training begins with `step` optimizer steps done: 0 for a new run, more for a resumed one."""
        self._write(TrainBegin(step, run))

    def has_bookings(self) -> bool:
        """Whether something was booked before, by this run or an earlier one in the same place."""
        with self.path.open("rb") as lines:
            return any(b'"booking": ' in line for line in lines)

    def sync(self) -> None:
        """Ask the operating system to put everything on disk; does nothing on a closed journal."""
        if self._fd is None:
            return
        try:
            os.fsync(self._fd)
        except OSError as error:
            logger.warning("trl-mentor: could not sync the journal %s: %s", self.path, error)

    def close(self) -> None:
        """Sync and close; closing twice is fine."""
        self.sync()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _write(self, entry: Intervention | _Line) -> None:
        head = {"schema": SCHEMA, "time": datetime.now(UTC).isoformat(timespec="milliseconds")}
        plain = plain_json(entry)
        if isinstance(entry, _BookingLine):
            plain["booking"]["counters"] = _without_zeros(plain["booking"]["counters"])
        line = json.dumps(head | plain, allow_nan=False) + "\n"
        try:
            if self._fd is None:
                self._fd = self._open()
            data = ("\n" * self._torn + line).encode("ascii")
            written = os.write(self._fd, data)
        except OSError as error:
            self._lose(str(error))
        else:
            self._torn = written < len(data)
            if self._torn:
                self._lose(f"only {written} of {len(data)} bytes were written")

    def _open(self) -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        size = os.fstat(fd).st_size
        self._torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        return fd

    def _lose(self, why: str) -> None:
        self.lost += 1
        if self.lost == 1:
            logger.warning("trl-mentor: the journal %s lost a record, training goes on without it: %s", self.path, why)


class JournalRecords(list[Intervention]):
    """The interventions of a journal in the order in which they were written."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[str] = []
        """When each record was written, ISO 8601 in UTC."""
        self.offsets: list[int] = []
        """Where in the file the line of each record begins; see `read_at`."""
        self.events: list[Event] = []
        """What happened to the mentor as a whole, in the order in which it was written."""
        self.bookings: list[Booking] = []
        """What was added to the totals, one booking for each generation batch and some between; see `totals`."""
        self.returns: list[Return] = []
        """How prompts that collapsed before were answered without a hint later."""
        self.evaluations: list[Evaluation] = []
        self.run = RunInfo()
        """What is known of the run."""
        self.repeated = Counters()
        """What was spent on steps that a resumed run did again; it is not in `totals`."""
        self.skipped_lines = 0
        """Lines that were torn or could not be read."""
        self.superseded = 0
        """Records left out because training began anew at their step or before it."""

    @property
    def totals(self) -> Counters:
        """What happened in the run, and what it took: `trainer.mentor_totals` on the main process."""
        return sum((booking.counters for booking in self.bookings), Counters())

    @property
    def bill(self) -> Bill:
        """What the run took, with its cost if there were prices."""
        return Bill.of(self.totals, priced=self.run.priced)

    def _begin(self, marker: TrainBegin) -> None:
        """Leave out the records of the step at which training begins and of later ones."""
        step = marker.train_begin
        again = sum((item.counters for item in self.bookings if item.step >= step), Counters())
        self.repeated = self.repeated + again if step > 0 else Counters()
        self.run = marker.run
        kept = [number for number, record in enumerate(self) if record.step < step]
        self.superseded += len(self) - len(kept)
        self[:] = [self[number] for number in kept]
        self.times = [self.times[number] for number in kept]
        self.offsets = [self.offsets[number] for number in kept]
        self.events = [event for event in self.events if event.step < step]
        self.bookings = [booking for booking in self.bookings if booking.step < step]
        self.returns = [item for item in self.returns if item.step < step]
        self.evaluations = [item for item in self.evaluations if item.step <= step] if step > 0 else []

    def _add(self, entry: Intervention | _Line | None, time: str, offset: int, *, superseded: bool) -> None:
        match entry:
            case Intervention():
                self.append(entry)
                self.times.append(time)
                self.offsets.append(offset)
            case _EventLine(event):
                self.events.append(event)
            case _BookingLine(booking):
                self.bookings.append(booking)
            case _ReturnLine(item):
                self.returns.append(item)
            case _EvaluationLine(evaluation):
                self.evaluations.append(evaluation)
            case TrainBegin():
                if superseded:
                    self.run = entry.run
                else:
                    self._begin(entry)
            case None:
                self.skipped_lines += 1

    def to_dataset(self) -> Dataset:
        """One row per intervention, for `datasets` and from there pandas.

        Scalars are columns; `attempts`, `drafts`, `calls` and `rewards` are lists of structs. `prompt` is the plain
        prompt or, of a conversation, its messages as JSON, so that a journal may mix the two. Characters that are not
        valid Unicode become `?`.
        """
        from trl_mentor.journal_table import to_dataset

        return to_dataset(self, self.times)


def read_journal(
    path: str | os.PathLike[str],
    *,
    superseded: bool = False,
    keep: Callable[[Intervention, int], Intervention] = lambda record, offset: record,
) -> JournalRecords:
    """Read a journal, given as the file or as the `output_dir` of a run: the records that count.

    Left out, and counted in `.superseded`, are steps that a resumed run did again and every run but the newest in the
    same place; `superseded=True` returns them too. What counts covers the same batches as `trainer.mentor_totals`.
    Unreadable lines are skipped, counted and warned about once. `keep` is given each intervention and where its line
    begins, and returns what to keep in its place: less, where the whole would not fit into memory. Raises
    `FileNotFoundError` if there is no journal, and `ConfigError` if a newer version of the package wrote it in a
    format that this one does not know.
    """
    file = journal_file(path)
    found, offset = JournalRecords(), 0
    with file.open("rb") as lines:
        for line in lines:
            if line.strip():
                entry, time = _read_line(line, file)
                if isinstance(entry, Intervention):
                    entry = keep(entry, offset)
                found._add(entry, time, offset, superseded=superseded)
            offset += len(line)
    if found.skipped_lines:
        warnings.warn(
            f"skipped {found.skipped_lines} unreadable line(s) of {file}, probably torn when a run was killed",
            UserWarning,
            stacklevel=2,
        )
    return found


def journal_file(path: str | os.PathLike[str]) -> Path:
    """The journal that `path` names, as the file or as the `output_dir` of a run. Raises `FileNotFoundError`."""
    file = Path(path) / JOURNAL_PATH if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise FileNotFoundError(
            f"no journal at {file}: give the journal file or the output_dir of a run. Every run keeps one, at "
            f"<output_dir>/{JOURNAL_PATH}"
        )
    return file


def read_at(path: str | os.PathLike[str], offsets: Iterable[int]) -> Iterator[Intervention | None]:
    """The interventions whose lines begin there, one by one; None where the file has changed and has none."""
    file = journal_file(path)
    with file.open("rb") as lines:
        for offset in offsets:
            lines.seek(offset)
            entry, _ = _read_line(lines.readline(), file)
            yield entry if isinstance(entry, Intervention) else None


def _read_line(line: bytes, file: Path) -> tuple[Intervention | _Line | None, str]:
    """What one line holds and when it was written; None if the line cannot be read."""
    try:
        data = json.loads(line.decode("utf-8"))
        schema, time = int(data["schema"]), str(data["time"])
        if schema <= SCHEMA:
            kind = next((kind for name, kind in _KINDS.items() if name in data), Intervention)
            return from_plain(kind, data), time
    except (ArithmeticError, ValueError, TypeError, KeyError, RecursionError):
        return None, ""
    raise ConfigError(
        f"{file} was written in journal format {schema}, this version of trl-mentor reads up to {SCHEMA}; "
        "install a newer trl-mentor to read it"
    )


def _without_zeros(plain: dict[str, Any]) -> dict[str, Any]:
    """Counters as plain JSON without what is zero or empty, which is what a reader takes for missing anyway."""
    inner = {key: _without_zeros(value) if isinstance(value, dict) else value for key, value in plain.items()}
    return {key: value for key, value in inner.items() if value}
