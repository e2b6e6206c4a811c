"""The report as one HTML file that needs nothing else: no network, no fonts, no libraries."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from tqdm import tqdm

from trl_mentor.journal import read_at
from trl_mentor.report import formulas, wording
from trl_mentor.report.details import Details
from trl_mentor.report.drawing import CSS
from trl_mentor.report.figures import report_figures
from trl_mentor.report.listing import Listing
from trl_mentor.report.pictures import pictures
from trl_mentor.report.reading import SlimJournal

HERE = Path(__file__).parent

CHUNK_BYTES = 300_000
"""Of JSON. Details are packed in chunks of about this size, and the page unpacks one when it is needed."""


class Chunk(NamedTuple):
    """The details of some interventions."""

    first: int
    """Position of the first of them in the index."""
    packed: str


def write_report(run: str | os.PathLike[str], out: Path | None = None) -> Path:
    """Write the report of a run, given as its `output_dir` or its journal, and return where it is.

    The file is there as a whole or not at all, `<run>/report.html` unless told otherwise. Raises `FileNotFoundError`
    if there is no journal, another `OSError` if the file cannot be written, and `ConfigError` if a newer version wrote
    the journal.
    """
    journal = SlimJournal(run)
    out = out or (Path(run) if Path(run).is_dir() else Path(run).parent) / "report.html"
    unfinished = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        with unfinished.open("w", encoding="utf-8", errors="replace", newline="\n") as file:
            file.writelines(_page(journal))
        unfinished.replace(out)
    finally:
        unfinished.unlink(missing_ok=True)
    return out


def _page(journal: SlimJournal) -> Iterator[str]:
    """The text of the page in pieces, so that it is never in memory as a whole."""
    records = journal.records
    listing = Listing(records, journal.first)
    details = Details(journal.text_limit, records.run.success_threshold)
    figures = report_figures(records)
    style = (HERE / "page.css").read_text(encoding="utf-8") + CSS
    script = (HERE / "page.js").read_text(encoding="utf-8")
    allowed = {"tags": sorted(formulas.TAGS), "attributes": sorted(formulas.ATTRIBUTES)}
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= wording.FILTERS
    return environment.get_template("page.html.jinja").generate(
        name=journal.file.resolve().parent.parent.name,
        figures=figures,
        pictures=pictures(figures),
        journal=journal,
        details=details,
        made=datetime.now(UTC),
        written=datetime.fromtimestamp(journal.file.stat().st_mtime, UTC),
        mathml=formulas.AVAILABLE,
        style=Markup(style),
        script=Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
        index=_packed(json.dumps(listing.index() | {"mathml": allowed})),
        chunks=_chunks(journal, listing, details),
    )


def _chunks(journal: SlimJournal, listing: Listing, details: Details) -> Iterator[Chunk]:
    """The details of every listed intervention, in order."""
    offsets = journal.records.offsets[journal.first :]
    waiting: list[str] = []
    first = size = 0
    bar = tqdm(read_at(journal.file, offsets), total=len(offsets), desc="writing", disable=None, leave=False)
    for position, record in enumerate(bar):
        if record is None:
            raise OSError(f"{journal.file} changed while its report was made; run the command again")
        number = journal.first + position + 1
        waiting.append(json.dumps(details.of(record) | {"later": listing.later(number)}))
        size += len(waiting[-1])
        if size >= CHUNK_BYTES or position == len(offsets) - 1:
            formulas_used = json.dumps(details.take_formulas())
            yield Chunk(first, _packed(f'{{"items": [{",".join(waiting)}], "formulas": {formulas_used}}}'))
            waiting, first, size = [], position + 1, 0


def _packed(text: str) -> str:
    """Compressed, and in letters that mean nothing in HTML."""
    return base64.b64encode(gzip.compress(text.encode("ascii"), mtime=0)).decode("ascii")


def _hash(text: str) -> str:
    """By which the page's policy allows one style sheet or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
