"""`trl-mentor hint`: the four agents on one failure, against a real endpoint, to see what a mentor is worth."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from rich.console import Console

from trl_mentor.cli.show import show_guidance
from trl_mentor.errors import ConfigError
from trl_mentor.factory import build_mentor
from trl_mentor.plain import plain_json
from trl_mentor.records import Attempt, CollapsedGroup, HintOrigin
from trl_mentor.settings import MentorArguments

EXIT_CODES = {HintOrigin.ACCEPTED: 0, HintOrigin.FALLBACK: 3, HintOrigin.FAILED: 4, HintOrigin.NOT_ASKED: 4}

DESCRIPTION = """\
Ask the mentor for a hint on one question whose attempts all failed, and show everything it did: diagnosis, every
draft with its verdict and critique, the hint and how it came to be, calls with tokens and seconds.

The failure is given as JSON with --input (a file, or - for standard input):

  {"question": "...", "answer": "...", "attempts": ["...", {"text": "...", "reward": 0, "truncated": false}]}

or with --question, --answer and --attempt. The answer is optional.
"""

EPILOG = """\
exit codes:
  0  a hint was accepted
  2  the arguments or the input are wrong
  3  no draft was accepted: the fallback hint
  4  the mentor failed: no hint
"""

_FLAGS = (
    "model",
    "base_url",
    "api_key_env",
    "temperature",
    "max_tokens",
    "extra_body",
    "thinking",
    "domain",
    "templates_dir",
    "leak_rule",
    "max_retry",
    "max_refine",
    "ablation",
    "attempt_budget",
    "call_timeout",
    "deadline",
)
"""The `mentor_*` settings that also are flags here; their defaults and help texts are the settings' own."""


def make_parser() -> argparse.ArgumentParser:
    """The parser of `trl-mentor hint`."""
    parser = argparse.ArgumentParser(
        prog="trl-mentor hint",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    failure = parser.add_argument_group("the failure")
    failure.add_argument("--input", metavar="FILE", help="JSON file, or - for standard input.")
    failure.add_argument("--question", help="The question that the policy failed.")
    failure.add_argument("--answer", help="Its reference answer.")
    failure.add_argument("--attempt", action="append", help="A failed attempt; repeat for more.")
    mentor = parser.add_argument_group("the mentor")
    settings = {field.name: field for field in fields(MentorArguments)}
    for name in _FLAGS:
        setting = settings[f"mentor_{name}"]
        mentor.add_argument(
            f"--{name.replace('_', '-')}",
            type=str if setting.default is None else type(setting.default),
            default=setting.default,
            required=name == "model",
            help=setting.metadata["help"].replace("%", "%%"),
        )
    parser.add_argument("--json", action="store_true", help="Print JSON instead of text for reading.")
    return parser


def main(argv: list[str]) -> int:
    """Run the command; the exit code says how the hint came to be. Raises `ConfigError` for wrong input."""
    args = make_parser().parse_args(argv)
    settings = MentorArguments(**{f"mentor_{name}": getattr(args, name) for name in _FLAGS})
    group = read_group(_given(args))
    mentor = build_mentor(settings)
    (guidance,) = mentor.guide([group])
    if args.json:
        print(json.dumps(plain_json({"group": group, "guidance": guidance}), indent=2, allow_nan=False))
    else:
        show_guidance(group, guidance, Console())
    return EXIT_CODES[guidance.origin]


def read_group(data: Any) -> CollapsedGroup:
    """The collapsed group that a JSON object describes. Raises `ConfigError` saying which field is wrong."""
    if not isinstance(data, Mapping):
        raise ConfigError(f"the failure must be a JSON object with question, answer and attempts, got {_kind(data)}")
    unknown = sorted(set(data) - {"question", "answer", "attempts"})
    if unknown:
        raise ConfigError(f"unknown field(s) {unknown} in the failure; expected question, answer and attempts")
    question, answer, attempts = data.get("question"), data.get("answer"), data.get("attempts")
    if not isinstance(question, str) or not question.strip():
        raise ConfigError(f"question must be a text that is not empty, got {_kind(question)}")
    if answer is not None and not isinstance(answer, str):
        raise ConfigError(f"answer must be a text or absent, got {_kind(answer)}; put numbers in quotes")
    if not isinstance(attempts, list) or not attempts:
        raise ConfigError(f"attempts must be a list with at least one failed attempt, got {_kind(attempts)}")
    read = tuple(_read_attempt(number, attempt) for number, attempt in enumerate(attempts))
    return CollapsedGroup(question, read, answer, prompt=question)


def _read_attempt(number: int, attempt: Any) -> Attempt:
    if isinstance(attempt, str):
        return Attempt(attempt)
    where = f"attempts[{number}]"
    if not isinstance(attempt, Mapping) or not isinstance(attempt.get("text"), str):
        raise ConfigError(f'{where} must be a text or an object with "text", got {_kind(attempt)}')
    unknown = sorted(set(attempt) - {"text", "reward", "truncated"})
    if unknown:
        raise ConfigError(f"unknown field(s) {unknown} in {where}; expected text, reward and truncated")
    reward, truncated = attempt.get("reward"), attempt.get("truncated", False)
    if reward is not None and (isinstance(reward, bool) or not isinstance(reward, int | float) or abs(reward) > 1e9):
        raise ConfigError(f"{where}.reward must be a number of ordinary size or null, got {_kind(reward)}")
    if not isinstance(truncated, bool):
        raise ConfigError(f"{where}.truncated must be true or false, got {_kind(truncated)}")
    return Attempt(attempt["text"], reward, truncated)


def _given(args: argparse.Namespace) -> Any:
    """The failure as JSON data, from --input or from the flags."""
    flags = {"question": args.question, "answer": args.answer, "attempts": args.attempt}
    if args.input is None:
        if args.question is None or args.attempt is None:
            raise ConfigError("no failure given: use --input, or --question with at least one --attempt")
        return flags
    if any(value is not None for value in flags.values()):
        raise ConfigError("give the failure either with --input or with --question, --answer and --attempt, not both")
    name = "standard input" if args.input == "-" else args.input
    try:
        raw = sys.stdin.buffer.read() if args.input == "-" else Path(args.input).read_bytes()
        return json.loads(raw.decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"cannot read {name}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name} is not JSON in UTF-8: {error}") from error


def _kind(value: Any) -> str:
    """A value for an error message: its JSON type and, if short, itself."""
    text = repr(value)
    return text if len(text) <= 60 else f"{type(value).__name__} {text[:60]}..."
