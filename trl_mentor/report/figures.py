"""The figures of a report, computed from a journal alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from trl_mentor.bill import Bill
from trl_mentor.counters import Booking, Counters
from trl_mentor.journal import JournalRecords
from trl_mentor.records import Arm, Cause, Evaluation, Intervention, RerollOutcome
from trl_mentor.report.course import counts, outcomes_of, point
from trl_mentor.report.drafts import drafts
from trl_mentor.report.figure_records import CauseRow, Curve, Figures, Outcomes, Recovery, Topics, UsedHint
from trl_mentor.report.learnt import reliance, transfer
from trl_mentor.report.stretches import stretches
from trl_mentor.rounds import ended
from trl_mentor.tallies import Tallies
from trl_mentor.trial import RECOVERED, recovery, verdict_path
from trl_mentor.uplift import uplift_table

MOST = 20
"""Topics and hints that are named; the tail of a long list says little."""


def report_figures(records: JournalRecords) -> Figures:
    """What the journal of a run says about it, also while the run goes on."""
    bookings = [Booking(item.step, _without_tallies(item.counters)) for item in records.bookings]
    course = stretches(bookings)
    totals = course[-1].totals if course else None
    groups = ended(records)
    found, repeated, run = _topics(groups), _without_tallies(records.repeated), records.run
    steps = [item.step for group in (records, bookings, records.returns, records.evaluations) for item in group]
    return Figures(
        run=run,
        step=max(steps, default=None),
        counts=counts(groups, totals),
        points=tuple(map(point, course)) if totals and totals.batches else (),
        recovery=_recovery(records, {row.name for row in found.rows}),
        causes=tuple(_causes(groups, totals)),
        verdict_paths=_by(records, lambda item: None if item.guidance is None else verdict_path(item.guidance)),
        drafts=drafts(records),
        hints=_hints(records),
        topics=found,
        bill=Bill.of(totals, priced=run.priced) if totals else None,
        repeated=Bill.of(repeated, priced=run.priced) if repeated != Counters() else None,
        transfer=transfer(records.returns),
        reliance=reliance(records, run.success_threshold),
        evaluations=_evaluations(records.evaluations),
        events=tuple(records.events),
        skipped_lines=records.skipped_lines,
        superseded=records.superseded,
    )


def _without_tallies(counters: Counters) -> Counters:
    """The counters alone: the tallies, with a name for each topic, say nothing that the interventions do not."""
    return replace(counters, recovery=Tallies(), transfer=Tallies(), probed=Tallies())


def _by(records: Iterable[Intervention], name: Callable[[Intervention], str | None]) -> tuple[Outcomes, ...]:
    """Outcomes by name, the most frequent name first; a record without a name is left out."""
    found: defaultdict[str, Counter[RerollOutcome]] = defaultdict(Counter)
    for record in records:
        if (called := name(record)) is not None:
            found[called][record.outcome] += 1
    rows = [outcomes_of(called, outcomes) for called, outcomes in found.items()]
    return tuple(sorted(rows, key=lambda row: (-row.groups, row.name)))


def _hint(record: Intervention) -> str | None:
    """The mentor's hint under which the group was re-rolled."""
    if record.guidance is None or record.arm not in (None, Arm.HINT) or record.outcome is RerollOutcome.SKIPPED:
        return None
    return record.guidance.hint


def _recovery(records: Sequence[Intervention], topics: set[str]) -> Recovery:
    rerolled = [record for record in ended(records) if record.outcome is not RerollOutcome.SKIPPED]
    found = Tallies.count(
        (
            "hinted" if record.arm is Arm.GENERIC or _hint(record) or record.group.earlier_hints else "plain",
            record.outcome in RECOVERED,
        )
        for record in rerolled
    )
    tallies = _named(recovery(records), topics)
    return Recovery(
        hinted=found["hinted"],
        plain=found["plain"],
        uplift=tuple(uplift_table(tallies)),
        uplift_over_generic=tuple(uplift_table(tallies, against=Arm.GENERIC)),
    )


def _named(tallies: Tallies, topics: set[str]) -> Tallies:
    """The tallies without those of other topics, of which there may be as many as groups."""
    parts = {cell: cell.partition("/")[2].partition(":") for cell in tallies.cells}
    return Tallies(
        {cell: tallies[cell] for cell, (kind, _, name) in parts.items() if kind != "topic" or name in topics}
    )


def _causes(records: Sequence[Intervention], totals: Counters | None) -> Iterable[CauseRow]:
    """The causes that occurred, the most frequent first."""
    ended = {row.name: row for row in _by(records, lambda item: str(item.group.cause))}
    asked = Counter(str(item.group.cause) for item in records if item.guidance is not None and item.guidance.calls)
    rows = [
        CauseRow(
            groups=None if totals is None else getattr(totals, f"cause_{cause}"),
            asked=asked[cause],
            outcomes=ended.get(cause, Outcomes(cause)),
        )
        for cause in map(str, Cause)
    ]
    there = [row for row in rows if row.groups or row.outcomes.groups]
    return sorted(there, key=lambda row: -(row.groups or row.outcomes.groups))


def _hints(records: Sequence[Intervention]) -> tuple[UsedHint, ...]:
    found = [row for row in _by(records, _hint) if row.name]
    return tuple(UsedHint(row.name, replace(row, name="")) for row in found[:MOST])


def _topics(records: Sequence[Intervention]) -> Topics:
    found = _by(records, lambda item: item.group.topic)
    return Topics(found[:MOST], len(found))


def _evaluations(evaluations: Sequence[Evaluation]) -> tuple[Curve, ...]:
    found: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    for item in evaluations:
        for name, value in item.metrics.items():
            if name.endswith("reward") or ("rewards/" in name and name.endswith("/mean")):
                found[name].append((item.step, value))
    return tuple(Curve(name, tuple(points)) for name, points in sorted(found.items()))
