"""`trl-mentor demo`: the demo package on the command line."""

from __future__ import annotations

import argparse

from trl_mentor.demo import run as demo


def main(argv: list[str]) -> int:
    """Run the demo."""
    parser = argparse.ArgumentParser(prog="trl-mentor demo", description=demo.__doc__, allow_abbrev=False)
    demo.add_arguments(parser)
    return demo.run(parser.parse_args(argv))
