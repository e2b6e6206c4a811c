"""`trl-mentor decontaminate`: which problems of a training set are benchmark problems."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from trl_mentor.cli.benchmark_arguments import benchmark_names, named_folder
from trl_mentor.cli.show import visible
from trl_mentor.errors import ConfigError
from trl_mentor.plain import plain_json
from trl_mentor.tasks import find_task, load_task
from trl_mentor.tasks.decontamination import benchmark_passages, passages_of
from trl_mentor.tasks.overlap import GRAM_WORDS, MIN_SHARE, SHORTEST_GRAM, Overlap, Passage, find_overlaps

DESCRIPTION = """\
Look for benchmark problems among the problems that a model is trained on: shared runs of words, whatever their
punctuation, spacing and LaTeX. Problems that only share a phrase are not reported.

    trl-mentor decontaminate --task deepmath-103k --benchmarks math500,aime24,aime25 -o overlap.json
    trl-mentor decontaminate --task deepmath-103k --files deepmath-103k=data --benchmarks math500 --fail

Exit code 0, or 1 with --fail if a problem overlaps.
"""

SHOWN = 20
"""Pairs on the terminal; the report has all of them."""


def make_parser() -> argparse.ArgumentParser:
    """The parser of `trl-mentor decontaminate`."""
    parser = argparse.ArgumentParser(
        prog="trl-mentor decontaminate",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--task", required=True, metavar="NAME", help="The training set, such as deepmath-103k.")
    parser.add_argument("--split", default="train", help="Its split. Default: train.")
    parser.add_argument("--benchmarks", required=True, type=benchmark_names, metavar="NAME,NAME")
    parser.add_argument(
        "--files",
        type=named_folder,
        action="append",
        default=[],
        metavar="NAME=DIR",
        help="Read the task or benchmark NAME from local files of the format that it has on the Hub. May be repeated.",
    )
    parser.add_argument(
        "--gram-words",
        type=int,
        default=GRAM_WORDS,
        metavar="N",
        help=f"Words of a shared run. At least {SHORTEST_GRAM}, default: {GRAM_WORDS}.",
    )
    parser.add_argument(
        "--min-share",
        type=float,
        default=MIN_SHARE,
        metavar="SHARE",
        help=f"Part of a benchmark problem that shared runs cover; 0: one run is enough. Default: {MIN_SHARE}.",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.json", help="Write all that was found here.")
    parser.add_argument("--fail", action="store_true", help="Exit with code 1 if a problem overlaps.")
    return parser


def main(argv: list[str]) -> int:
    """Run the command. Raises `ConfigError` for data that cannot be had and settings that make no sense."""
    args = make_parser().parse_args(argv)
    if args.output is not None and args.output.suffix != ".json":
        raise ConfigError(f"-o must be a file that ends in .json, got {args.output}")
    if not args.benchmarks:
        raise ConfigError("--benchmarks names none; nothing would be looked for")
    files = dict(args.files)
    if unused := files.keys() - {args.task, *args.benchmarks}:
        raise ConfigError(f"--files names {', '.join(sorted(unused))}, which is neither the task nor a benchmark")
    find_task(args.task)  # a slip is told before the benchmarks are fetched
    benchmarks = {name: benchmark_passages(name, files.get(name)) for name in args.benchmarks}
    rows = passages_of(load_task(args.task, args.split, files=files.get(args.task)))
    with _progress(len(rows)) as progress:
        overlaps = find_overlaps(
            rows, benchmarks, gram_words=args.gram_words, min_share=args.min_share, progress=progress
        )
    report = {
        "task": args.task,
        "split": args.split,
        "rows": len(rows),
        "gram_words": args.gram_words,
        "min_share": args.min_share,
        **summary(benchmarks, overlaps),
    }
    _show(report, overlaps)
    if args.output is not None:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps(plain_json(report), indent=1, allow_nan=False), encoding="ascii")
        print(f"Written: {visible(str(args.output))}")
    return int(args.fail and bool(overlaps))


def summary(benchmarks: Mapping[str, Sequence[Passage]], overlaps: Sequence[Overlap]) -> dict[str, Any]:
    """The figures of each benchmark, the rows to leave out, and every pair."""
    found = {name: [overlap for overlap in overlaps if overlap.benchmark == name] for name in benchmarks}
    return {
        "benchmarks": {
            name: {
                "problems": len(benchmarks[name]),
                "overlapping": len({overlap.problem for overlap in pairs}),
                "rows": len({overlap.row for overlap in pairs}),
            }
            for name, pairs in found.items()
        },
        "overlapping_rows": list(dict.fromkeys(overlap.row for overlap in overlaps)),
        "pairs": [asdict(overlap) for overlap in overlaps],
    }


def _show(report: Mapping[str, Any], overlaps: Sequence[Overlap]) -> None:
    console = Console()
    title = f"{report['task']} {report['split']}: {report['rows']:,} problems"
    figures = _table(title, ["benchmark"], ["problems", "overlapping", "training problems"])
    for name, one in report["benchmarks"].items():
        figures.add_row(name, *(f"{one[key]:,}" for key in ("problems", "overlapping", "rows")))
    console.print(figures)
    if not overlaps:
        return
    pairs = _table("", ["training problem", "benchmark problem"], ["share"])
    pairs.add_column("longest shared text", overflow="fold")
    for overlap in overlaps[:SHOWN]:
        problem = f"{overlap.benchmark} {overlap.problem}"
        shown = map(visible, (overlap.row, problem, f"{overlap.share:.0%}", overlap.shared))
        pairs.add_row(*map(Text, shown))
    console.print(pairs)
    if len(overlaps) > SHOWN:
        console.print(Text(f"... and {len(overlaps) - SHOWN:,} more pairs: -o FILE.json writes all of them"))


def _table(title: str, texts: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(title=Text(title), title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for name in texts:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right")
    return table


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, if that is a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("comparing", total=total)
        yield lambda done: bar.update(task, completed=done)
