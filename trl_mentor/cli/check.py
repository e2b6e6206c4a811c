"""`trl-mentor check`: what would go wrong with a recipe, before a GPU is rented."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict

from rich.console import Console

from trl_mentor.cli.check_batches import check_batches, check_budget, check_options, check_times
from trl_mentor.cli.check_data import check_columns, read_rows
from trl_mentor.cli.check_endpoint import check_endpoint, check_key, check_model
from trl_mentor.cli.check_estimate import check_estimate
from trl_mentor.cli.check_findings import Finding, Level, Options, Setup, fail, skipped
from trl_mentor.cli.check_hint import ask_for_hint, check_schema
from trl_mentor.cli.check_leaks import check_algebra, check_leak_rule, without_failed_rule
from trl_mentor.cli.check_policy import check_collapse
from trl_mentor.cli.check_process import UserProcess, user_process
from trl_mentor.cli.check_programs import check_programs
from trl_mentor.cli.check_recipe import read_setup
from trl_mentor.cli.check_rewards import check_rewards, load_rewards
from trl_mentor.cli.check_table import show_findings
from trl_mentor.cli.check_templates import check_context, check_templates
from trl_mentor.errors import ConfigError
from trl_mentor.mentor_pool import describe, outcome_of
from trl_mentor.plain import plain_json

DESCRIPTION = """\
Find what would go wrong with a training before a GPU is rented. Takes the recipe and the arguments of
`trl-mentor grpo`, loads no model and trains nothing: it reads the first rows, calls the reward functions on right and
wrong answers or programs, and asks the mentor's endpoint for one hint.
"""

EPILOG = """\
All other arguments are those of `trl-mentor grpo`.

exit codes:
  0  nothing that would stop or spoil the training (warnings are shown)
  1  at least one check failed; what to do is said at the end
  2  the command itself was used wrongly
"""

Say = Callable[[str], None]


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command's own flags; it leaves the others for the recipe."""
    parser = argparse.ArgumentParser(
        prog="trl-mentor check",
        usage="trl-mentor check --config RECIPE [flags] [arguments of trl-mentor grpo]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--rows", type=_positive, default=8, help="Rows of the data set to look at. Default: 8.")
    parser.add_argument("--world-size", type=_positive, help="Processes of the training. Default: the recipe's, or 1.")
    parser.add_argument("--policy-url", help="Endpoint that serves the policy, to estimate how many groups collapse.")
    parser.add_argument("--policy-model", help="Name of the policy there.")
    parser.add_argument("--policy-key-env", help="Name of the environment variable with that endpoint's key.")
    parser.add_argument("--collapse-share", type=_share, help="Share of groups that collapse, if you know it.")
    parser.add_argument(
        "--reward-timeout",
        type=_seconds,
        default=120.0,
        help="Seconds for a call of a reward function or for its import, before it counts as hung. Default: 120.",
    )
    parser.add_argument("--json", action="store_true", help="Print one JSON object instead of a table.")
    return parser


def main(argv: list[str]) -> int:
    """Check and report. Raises `ConfigError` or `OSError` for a command that cannot be carried out."""
    given, words = make_parser().parse_known_args(argv)
    if not words:
        raise ConfigError("no recipe: give --config RECIPE, or the arguments that trl-mentor grpo takes")
    if words[-1] == "--config":
        raise ConfigError("--config needs the path of a recipe")
    if (given.policy_url is None) != (given.policy_model is None):
        raise ConfigError("--policy-url and --policy-model go together")
    options = Options(
        rows=given.rows,
        world_size=given.world_size,
        policy_url=given.policy_url,
        policy_model=given.policy_model,
        policy_key_env=given.policy_key_env,
        collapse_share=given.collapse_share,
        reward_timeout=given.reward_timeout,
    )
    if "--config" in words:
        with open(words[words.index("--config") + 1], "rb"):
            pass  # a recipe that is not there is a wrong command
    findings: list[Finding] = []
    with _progress() as say, _quiet_output(), redirect_stdout(sys.stderr):
        crash = outcome_of(lambda: run_checks(words, options, findings, say))
    if isinstance(crash, Exception):
        fix = "look for the value of the recipe that it names, and please report it: every fault should have its check"
        findings.append(fail("check", f"check itself failed: {describe(crash)}", fix))
    failed = any(finding.level is Level.FAIL for finding in findings)
    if given.json:
        report = {"ok": not failed, "findings": [asdict(finding) for finding in findings]}
        print(json.dumps(plain_json(report), indent=2, allow_nan=False))
    else:
        show_findings(findings, Console())
    return int(failed)


def run_checks(words: Sequence[str], options: Options, findings: list[Finding], say: Say = lambda text: None) -> None:
    """Add what every check finds, in order; one that fails does not stop those that do not need what it looks at."""
    say("reading the recipe")
    found, setup = read_setup(words, options)
    findings += found
    if setup is not None:
        findings += [check(setup) for check in (check_batches, check_times, check_budget, check_options)]
        with user_process(options.reward_timeout) as process:
            _check_contents(setup, process, findings, say)


def _check_contents(setup: Setup, process: UserProcess, findings: list[Finding], say: Say) -> None:
    say("reading the first rows")
    found, setup = read_rows(setup)
    findings.append(found)
    say("trying the reward functions")
    found, setup = load_rewards(setup, process)
    findings.append(found)
    programs = check_programs(setup)
    findings += [check_columns(setup), programs]
    unjudged = programs.level is Level.FAIL
    findings.append(skipped("reward", "programs cannot be judged") if unjudged else check_rewards(setup))
    findings += [check_templates(setup), check_algebra(setup)]
    rule = check_leak_rule(setup)
    findings += [rule, check_context(setup)]
    findings += _ask(without_failed_rule(setup, rule), say)


def _ask(setup: Setup, say: Say) -> list[Finding]:
    """The checks that need the network."""
    say("looking for the mentor's endpoint")
    found, listings = check_endpoint(setup)
    findings = [check_key(setup), found]
    say("asking the mentor")
    model = check_model(setup, listings)
    asked = model.level is Level.OK
    if setup.options.policy_url is not None:
        say("sampling the policy")
    collapse, group = check_collapse(setup)
    say("asking the mentor for a hint")
    hint, guidance = ask_for_hint(setup, group, asked=asked)
    findings += [model, collapse, *hint, check_schema(setup, asked=asked)]
    return [*findings, check_estimate(setup, guidance, measured_share=collapse.figures.get("mentored_share"))]


@contextmanager
def _progress() -> Iterator[Say]:
    """Says on a terminal what is being done; standard output is left alone."""
    with Console(stderr=True).status("checking") as status:
        yield lambda text: status.update(text)


@contextmanager
def _quiet_output() -> Iterator[None]:
    """What a library writes to the descriptor of standard output goes to standard error: the report stands alone."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be more than 0 seconds, got {value:g}")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"must be from 0 to 1, got {value:g}")
    return value
