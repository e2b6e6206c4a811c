"""`trl-mentor report`: a run as one HTML page."""

from __future__ import annotations

import argparse
from pathlib import Path

from trl_mentor.report.page import write_report

DESCRIPTION = """\
Write what a run did as one HTML page: whether hints helped, what they cost, and every intervention to read, filter and
search. The page needs no network. It is made from the journal alone, so that it can be made while the run goes on; run
the command again for a newer one.
"""


def main(argv: list[str]) -> int:
    """Run the command. Raises `OSError` if there is no journal or the page cannot be written."""
    parser = argparse.ArgumentParser(
        prog="trl-mentor report",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="output_dir of a run, or its journal file.")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="Default: RUN_DIR/report.html.")
    args = parser.parse_args(argv)
    print(write_report(args.run, args.output))
    return 0
