"""The figures of a folder, computed from its samples alone, and the files that they are written to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trl_mentor.errors import ConfigError
from trl_mentor.evaluation.export import export_command, write_samples
from trl_mentor.evaluation.picture import draw
from trl_mentor.evaluation.records import Sample
from trl_mentor.evaluation.store import Folder
from trl_mentor.evaluation.summary import Summary, summarize
from trl_mentor.evaluation.table import Table, figures, gains
from trl_mentor.markdown import literal, table
from trl_mentor.tasks import TASKS

THE_MODEL = {"model", "revision", "adapter", "weights"}
"""What a run and its base run may differ in without a note."""


@dataclass(frozen=True, slots=True)
class Results:
    """What an evaluation found."""

    summary: Summary
    tables: tuple[Table, ...]
    notes: tuple[str, ...]
    """What a reader of the tables has to know besides."""


def write_results(folder: Folder, *, base: Folder | None = None) -> Results:
    """Compute and write results.json, results.md, results.png where matplotlib is, and files for other harnesses.

    Raises `ConfigError` for a base run on other problems of the same name.
    """
    made = folder.settings()
    samples = {name: folder.samples(name) for name in made["benchmarks"]}
    notes = [f"{name}: {note}" for name, note in _incomplete(made, samples).items()]
    notes += _exported(folder, made, samples)
    judged = {name: TASKS[name].kind for name, record in made["benchmarks"].items() if not record["export"]}
    compared: list[Sample] = []
    if base is not None:
        notes += _differences(folder, base)
        compared = [sample for name in judged for sample in base.samples(name)]
    num_samples = made["settings"]["num_samples"]
    summary = summarize(
        (sample for name in judged for sample in samples[name]), judged, ks=_ks(num_samples), base=compared
    )
    tables = [figures(summary, num_samples)] if summary.benchmarks else []
    if (against := gains(summary)) is not None:
        tables.append(against)
    results = Results(summary, tuple(tables), tuple(notes))
    where = None if base is None else str(base.path)
    record = {"model": made["settings"]["model"], "base": where, "notes": notes, **summary.to_json()}
    folder.write("results.json", json.dumps(record, indent=1))
    picture = draw(summary)
    if picture is not None:
        folder.write("results.png", picture)
    folder.write("results.md", _markdown(made["settings"], results, drawn=picture is not None))
    return results


def _ks(num_samples: int) -> list[int]:
    """Powers of two up to the number of completions, and that number."""
    return [*(2**power for power in range(num_samples.bit_length()) if 2**power < num_samples), num_samples]


def _incomplete(made: Mapping[str, Any], samples: Mapping[str, list[Sample]]) -> dict[str, str]:
    counts = {
        name: (len(samples[name]), record["problems"] * made["settings"]["num_samples"])
        for name, record in made["benchmarks"].items()
    }
    return {
        name: f"only {there:,} of {all_of_them:,} completions are there"
        for name, (there, all_of_them) in counts.items()
        if there < all_of_them
    }


def _exported(folder: Folder, made: Mapping[str, Any], samples: Mapping[str, list[Sample]]) -> list[str]:
    """Write what other harnesses judge, and say how they are asked."""
    notes = []
    for name, record in made["benchmarks"].items():
        if record["export"]:
            path = folder.path / f"{name}.jsonl"
            write_samples(path, samples[name])
            notes.append(f"{name} is judged by its own harness: {export_command(record['export'], path)}")
    return notes


def _differences(folder: Folder, base: Folder) -> list[str]:
    """Settings other than the model in which the base run differs, as the gain may be theirs."""
    ours, theirs = folder.settings(), base.settings()
    for name in ours["benchmarks"].keys() & theirs["benchmarks"].keys():
        mine, other = ours["benchmarks"][name], theirs["benchmarks"][name]
        if mine["problems"] == other["problems"] and mine["digest"] != other["digest"]:
            raise ConfigError(f"the problems of {name} in {base.path} are not those of {folder.path}; compare others")
    return [
        f"the base run differs in {key}: {json.dumps(theirs['settings'].get(key))} there, {json.dumps(value)} here"
        for key, value in ours["settings"].items()
        if key not in THE_MODEL and theirs["settings"].get(key) != value
    ]


def _markdown(settings: Mapping[str, Any], results: Results, *, drawn: bool) -> str:
    parts = [f"# {literal(settings['model'])}\n", _how_drawn(settings) + "\n"]
    parts += ["![pass@1 of each benchmark with its interval](results.png)\n"] if drawn else []
    parts += [f"{found.title}:\n\n{table(found.columns, found.rows)}" for found in results.tables]
    parts += [f"* {literal(note)}\n" for note in results.notes]
    return "\n".join(parts)


def _how_drawn(settings: Mapping[str, Any]) -> str:
    """What a reader of the page alone has to know of the settings."""
    completions = f"{settings['num_samples']} completion{'s' if settings['num_samples'] > 1 else ''}"
    text = (
        f"{completions} per problem at temperature {settings['temperature']:g} and top-p "
        f"{settings['top_p']:g}, at most {settings['max_new_tokens']:,} tokens each, seed {settings['seed']}, "
        f"engine {settings['engine']}."
    )
    limit = settings["limit"]
    return text if limit is None else f"{text} Only the first {limit:,} problems of each benchmark."
