"""Entry point of `trl-mentor`; each command is imported only when it is run."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from importlib import import_module
from importlib.metadata import version

from trl_mentor.errors import ConfigError

COMMANDS = {
    "check": ("trl_mentor.cli.check", "find what would go wrong with a recipe, before a GPU is rented"),
    "compare": ("trl_mentor.cli.compare", "learning curves of several runs at equal tokens and equal seconds"),
    "decontaminate": (
        "trl_mentor.cli.decontaminate",
        "find the benchmark problems among those that a model is trained on",
    ),
    "demo": (
        "trl_mentor.cli.demo",
        "see zero-reward groups turn into lessons: a small run on a CPU, no endpoint",
    ),
    "eval": ("trl_mentor.cli.eval", "evaluate a model on benchmarks, without hints, every completion kept"),
    "grpo": ("trl_mentor.cli.launch", "train: everything `trl grpo` takes, and every mentor_* setting"),
    "hint": ("trl_mentor.cli.hint", "ask your mentor endpoint for a hint on one failure and see all it did"),
    "plan": (
        "trl_mentor.cli.plan",
        "predict the time of a step with a mentor, and the mentor replicas that a run needs",
    ),
    "prepare": (
        "trl_mentor.cli.prepare",
        "write hints, ladders of hints or demonstrations into the data, for strategies that need them beforehand",
    ),
    "report": (
        "trl_mentor.cli.report",
        "see a run as one HTML page: did hints help, what did they cost, every intervention",
    ),
}
"""Command -> module with `main(argv) -> int`, and its line in the help."""


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code; wrong settings are one line on stderr and exit code 2."""
    argv = sys.argv[1:] if argv is None else argv
    parser = make_parser()
    command = parser.parse_args(argv[:1]).command
    if command is None:
        parser.print_help()
        return 2
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a model may write what the terminal has no character for
    if sys.stderr.isatty():
        print("loading ...", end="\r", file=sys.stderr)
    run = import_module(COMMANDS[command][0]).main
    if sys.stderr.isatty():
        print(" " * len("loading ..."), end="\r", file=sys.stderr)
    try:
        code: int = run(argv[1:])
        sys.stdout.flush()
    except ConfigError as error:
        print(f"trl-mentor {command}: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read the output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        print(f"trl-mentor {command}: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return code


def make_parser() -> argparse.ArgumentParser:
    """The parser of the first word; the commands parse the rest themselves."""
    parser = argparse.ArgumentParser(prog="trl-mentor", description="MENTOR for Hugging Face TRL.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"trl-mentor {version('trl-mentor')}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="command")
    for name, (_, text) in COMMANDS.items():
        commands.add_parser(name, help=text, add_help=False)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
