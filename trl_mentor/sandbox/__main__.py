"""`python -m trl_mentor.sandbox`: which isolation this machine provides, and why not a better one."""

from __future__ import annotations

import argparse
import sys

from trl_mentor.errors import ConfigError
from trl_mentor.sandbox.records import Isolation
from trl_mentor.sandbox.tiers import available, problem_of


def main() -> int:
    """Print a line for each tier, best first, and which is used."""
    argparse.ArgumentParser(prog="python -m trl_mentor.sandbox", description=__doc__).parse_args()
    for isolation in Isolation:
        problem = problem_of(isolation)
        print(f"{isolation.value:<11} {'works' if problem is None else problem}")
    try:
        print(f"in use: {available().value}")
    except ConfigError as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
