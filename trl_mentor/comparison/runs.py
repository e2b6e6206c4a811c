"""The runs of a comparison: read from their journals, and put together as the seeds of methods."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trl_mentor.counters import Booking, Counters
from trl_mentor.errors import ConfigError
from trl_mentor.journal import journal_file, read_journal
from trl_mentor.records import CollapsedGroup, Evaluation, Intervention, RunInfo

IDENTITY = {
    "strategy": "strategy",
    "schedule": "schedule",
    "model": "model",
    "mentor": "mentor",
    "domain": "domain",
    "num_generations": "num_generations",
    "control_fraction": "control",
    "generic_fraction": "generic",
    "rescue": "rescue",
    "dosage": "dosage",
}
"""What makes two runs the same method, and how a label calls it; the seed and the number of processes do not count."""


@dataclass(frozen=True, slots=True)
class Run:
    """What a comparison needs of one run."""

    name: str
    """The directory or file it was read from, as it was given."""
    info: RunInfo
    bookings: tuple[Booking, ...]
    evaluations: tuple[Evaluation, ...]
    repeated: Counters
    """What was spent on steps that a resumed run did again; it is not in the bookings."""


@dataclass(frozen=True, slots=True)
class Method:
    """Runs that differ in nothing but chance."""

    label: str
    runs: tuple[Run, ...]


def read_run(path: str) -> Run:
    """The run of an output_dir or a journal file; without bookings if no batch is finished yet.

    Raises `FileNotFoundError` if there is no journal, `ConfigError` if it has interventions and no bookings.
    """
    records = read_journal(path, keep=_without_texts)
    if not records.bookings and (len(records) or records.superseded):
        raise ConfigError(
            f"{path} holds interventions and no totals: the run was written by a version of trl-mentor that did not "
            "book tokens and seconds in the journal; train it again to compare it"
        )
    return Run(path, records.run, tuple(records.bookings), tuple(records.evaluations), records.repeated)


def _without_texts(record: Intervention, offset: int) -> Intervention:
    """A comparison counts interventions and reads none; those of some long runs would not fit into memory."""
    return Intervention(record.step, record.strategy, CollapsedGroup("", ()), None, record.outcome)


def split_label(argument: str) -> tuple[str | None, str]:
    """`LABEL=RUN` as label and run; a run that exists under the whole name has no label."""
    label, sign, path = argument.partition("=")
    if not sign or not label.strip() or os.path.exists(argument):  # which is False for a name that is too long
        return None, argument
    return label.strip(), path


def read_methods(arguments: Sequence[str]) -> tuple[list[Method], list[str]]:
    """The methods of `[LABEL=]RUN` arguments in the order given, and what a reader should know of how they came about.

    Raises `ConfigError` if a run is given twice or if none has finished a batch.
    """
    given = [split_label(argument) for argument in arguments]
    for place, times in Counter(_place(path) for _, path in given).items():
        if times > 1:
            raise ConfigError(f"the run {place} is given {times} times; give every run once")
    read = [(label, read_run(path)) for label, path in given]
    notes = [f"{run.name} has not finished a batch yet and is left out" for _, run in read if not run.bookings]
    begun = [(label, run) for label, run in read if run.bookings]
    if not begun:
        raise ConfigError("none of the runs has finished a generation batch: " + "; ".join(notes))
    labels, said = _labels(begun)
    methods: dict[str, list[Run]] = {}
    for label, (_, run) in zip(labels, begun, strict=True):
        methods.setdefault(label, []).append(run)
    made = [Method(label, tuple(runs)) for label, runs in methods.items()]
    return made, [*notes, *said, *_within(made), *_between(made), *_repeated(made)]


def _place(path: str) -> Path:
    """The journal that a path names, so that a directory and the file in it are the same run."""
    return journal_file(path).resolve()


def _labels(begun: Sequence[tuple[str | None, Run]]) -> tuple[list[str], list[str]]:
    """A label for each run, made from what is known of it where none was given, and what to say about that."""
    bare = [run for label, run in begun if label is None]
    seeds: dict[RunInfo, list[int]] = {}
    for run in bare:
        seeds.setdefault(_identity(run), []).append(run.info.seed)
    labels, unlike = [], []
    for label, run in begun:
        if label is None:
            label = _made_label(run, bare)
            if len(seeds[_identity(run)]) > len(set(seeds[_identity(run)])):
                label = f"{label} ({run.name})"
                unlike.append(run.name)
        labels.append(label)
    if not unlike:
        return labels, []
    return labels, [
        f"{', '.join(unlike)}: their journals say the same of these runs, seed included, so they stand alone; "
        "write LABEL=RUN to say which of them are seeds of one method"
    ]


def _identity(run: Run) -> RunInfo:
    return RunInfo(**{name: getattr(run.info, name) for name in IDENTITY})


def _made_label(run: Run, others: Sequence[Run]) -> str:
    """The strategy of a run, and what tells it from other runs of the same strategy."""
    alike = [other for other in others if other.info.strategy == run.info.strategy]
    differ = [name for name in IDENTITY if len({getattr(other.info, name) for other in alike}) > 1]
    details = ", ".join(f"{IDENTITY[name]} {getattr(run.info, name) or 'none'}" for name in differ)
    return f"{run.info.strategy or 'unknown'}, {details}" if details else run.info.strategy or "unknown"


def _within(methods: Sequence[Method]) -> list[str]:
    """Doubts about runs that share a label."""
    notes = []
    for method in methods:
        infos = [run.info for run in method.runs]
        differ = [name for name in IDENTITY if len({getattr(info, name) for info in infos}) > 1]
        notes += [
            f"the runs of {method.label!r} differ in {name}: "
            f"{', '.join(sorted({str(getattr(info, name)) for info in infos}))}; they are no seeds of one method"
            for name in differ
        ]
        twice = sorted(seed for seed, times in Counter(info.seed for info in infos).items() if times > 1)
        if twice:
            notes.append(
                f"{method.label!r} has runs with the same seed ({', '.join(map(str, twice))}): its band may be too "
                "narrow"
            )
    return notes


def _between(methods: Sequence[Method]) -> list[str]:
    """What methods differ in although a comparison of methods should not."""
    infos = [run.info for method in methods for run in method.runs]
    notes = [
        f"the runs differ in {name}: {', '.join(sorted({str(getattr(info, name)) for info in infos}))}; this compares "
        "more than methods"
        for name in ("model", "num_generations")
        if len({getattr(info, name) for info in infos}) > 1
    ]
    sizes = sorted({info.world_size for info in infos})
    if len(sizes) > 1:
        notes.append(f"the runs had {', '.join(map(str, sizes))} processes: their seconds do not compare")
    return notes


def _repeated(methods: Sequence[Method]) -> list[str]:
    return [
        f"{run.name} was resumed: {run.repeated.policy_tokens:,} policy tokens and {run.repeated.seconds:,.0f} s of "
        "steps done again are not counted"
        for method in methods
        for run in method.runs
        if run.repeated.batches
    ]
