"""`trl-mentor compare`: learning curves of several runs at equal tokens and equal seconds."""

from __future__ import annotations

import argparse
import json
import math
import os
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trl_mentor.cli.compare_page import page
from trl_mentor.cli.compare_picture import draw
from trl_mentor.cli.compare_tables import BANDS, Sheet, runs_sheet, sheets
from trl_mentor.cli.show import visible
from trl_mentor.comparison.compared import compare
from trl_mentor.comparison.records import Comparison
from trl_mentor.comparison.runs import read_methods
from trl_mentor.comparison.tracks import SUCCESS_RATE, Count
from trl_mentor.errors import ConfigError
from trl_mentor.plain import plain_json

DESCRIPTION = f"""\
Compare runs at equal numbers of generated tokens and at equal seconds of training, from their journals alone, also
while they are still going. Each run is its output_dir or its journal. Runs with one label are the seeds of one method:

    trl-mentor compare plain=runs/plain-0 plain=runs/plain-1 hints=runs/mentor-0 hints=runs/mentor-1

Without labels, runs that their journals describe alike (strategy, schedule, models, shares of the lot) are one method.
Writes a picture and a page for a browser and prints the same tables; files that are there are replaced.

The metric is one of the evaluations that all runs share, else {SUCCESS_RATE}, which is on training prompts.
"""


def make_parser() -> argparse.ArgumentParser:
    """The parser of `trl-mentor compare`."""
    parser = argparse.ArgumentParser(
        prog="trl-mentor compare",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("runs", nargs="+", metavar="[LABEL=]RUN", help="A run: its output_dir or its journal.")
    parser.add_argument("--metric", metavar="NAME", help=f"A metric of evaluations, or {SUCCESS_RATE}.")
    parser.add_argument(
        "--count",
        type=Count,
        choices=list(Count),
        default=Count.POLICY,
        help="Tokens that make the budget: those that the policy generates, or also those of the mentor.",
    )
    parser.add_argument("--threshold", type=float, metavar="X", help="Say when each method first comes to this value.")
    parser.add_argument("-o", "--html", type=Path, default=Path("compare.html"), metavar="FILE.html")
    parser.add_argument(
        "--png", type=Path, metavar="FILE.png", help="Default: compare.png, if matplotlib is installed."
    )
    parser.add_argument("--json", type=Path, metavar="FILE.json", help="Also write every figure here.")
    return parser


def main(argv: list[str]) -> int:
    """Run the command. Raises `ConfigError` for runs that do not compare and for files of another kind."""
    args = make_parser().parse_args(argv)
    if args.threshold is not None and not math.isfinite(args.threshold):
        raise ConfigError(f"--threshold must be a number that a metric can reach, got {args.threshold}")
    for flag, path in (("-o", args.html), ("--png", args.png), ("--json", args.json)):
        _check_name(flag, path)
    methods, notes = read_methods(args.runs)
    comparison = compare(methods, metric=args.metric, count=args.count, threshold=args.threshold, notes=notes)
    written = _write(comparison, args)
    print_sheets([runs_sheet(comparison), *(sheet for race in comparison.races for sheet in sheets(comparison, race))])
    console = Console()
    console.print(Text(BANDS))
    for note in comparison.notes:
        console.print(Text(f"Note: {visible(note)}", style="yellow"))
    if len(written) == 1 or written[1] == args.json:
        console.print(Text("Note: no picture, as matplotlib is missing: pip install 'trl-mentor[report]'", "yellow"))
    print(f"Written: {', '.join(visible(str(path)) for path in written)}")
    return 0


def _write(comparison: Comparison, args: argparse.Namespace) -> list[Path]:
    """Write the files that were asked for, before anything is printed to a reader who may have enough."""
    try:
        picture = draw(comparison)
    except ConfigError:  # without matplotlib the tables are still worth having
        if args.png is not None:
            raise
        picture = None
    files = {args.html: page(comparison, picture).encode("utf-8", "backslashreplace")}
    if picture is not None:
        files[args.png or Path("compare.png")] = picture
    if args.json is not None:
        files[args.json] = json.dumps(plain_json(comparison), indent=1, allow_nan=False).encode("ascii")
    for path, data in files.items():
        _replace(path, data)
    return list(files)


def print_sheets(printed: list[Sheet]) -> None:
    """Tables of a comparison on the terminal."""
    console = Console()
    for sheet in printed:
        table = Table(
            title=Text(sheet.title), title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0)
        )
        for place, name in enumerate(sheet.columns):
            table.add_column(Text(name), justify="left" if place in sheet.texts else "right", overflow="fold")
        for row in sheet.rows:
            table.add_row(*map(Text, row))
        console.print(table)
        console.print()


def _check_name(flag: str, path: Path | None) -> None:
    """A slip of the command line must not replace a journal."""
    ending = {"-o": ".html", "--png": ".png", "--json": ".json"}[flag]
    if path is not None and path.suffix != ending:
        raise ConfigError(f"{flag} must be a file that ends in {ending}, got {path}")


def _replace(path: Path, data: bytes) -> None:
    """Write a file in one go, so that a reader sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_bytes(data)
    beside.replace(path)
