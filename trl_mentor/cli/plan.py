"""`trl-mentor plan`: what a mentor adds to a step, and how large it has to be, before anything is rented."""

from __future__ import annotations

import argparse
import json
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

from trl_mentor.cli.plan_table import notes, show
from trl_mentor.cli.run_figures import read_run
from trl_mentor.errors import ConfigError
from trl_mentor.plain import plain_json
from trl_mentor.plan_records import Need, PlanInputs, Prediction
from trl_mentor.planning import needed, predict
from trl_mentor.settings import ScheduleKind

DESCRIPTION = """\
Predict the time of a step (one generation batch and the training on it) with a mentor, against plain GRPO, and the
mentor replicas that the run needs. Figures come from a run (--from-run), from flags, or from both: a flag wins.

A run that is planned for more GPUs than it had keeps its groups per GPU, as TRL does, unless --groups says otherwise.
"""

KINDS = {"int": int, "float": float, "float | None": float, "ScheduleKind": ScheduleKind}
FLAGS = tuple(figure for figure in fields(PlanInputs) if "help" in figure.metadata)


def add_input_flags(parser: argparse.ArgumentParser) -> None:
    """One flag for each figure of `FLAGS`; what is not given is None."""
    group = parser.add_argument_group("figures")
    for figure in FLAGS:
        shown = "" if figure.default is MISSING or figure.default is None else f" Default: {figure.default}."
        flag = f"--{figure.name.replace('_', '-')}"
        group.add_argument(flag, type=KINDS[str(figure.type)], help=figure.metadata["help"] + shown)


def given_inputs(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of `PlanInputs` that were given as flags."""
    given = {figure.name: getattr(args, figure.name) for figure in FLAGS}
    return {name: value for name, value in given.items() if value is not None}


def make_parser() -> argparse.ArgumentParser:
    """The parser of `trl-mentor plan`."""
    parser = argparse.ArgumentParser(
        prog="trl-mentor plan",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--from-run", type=Path, metavar="DIR", help="output_dir of a run, also of one that still goes."
    )
    parser.add_argument(
        "--max-wait-share",
        type=float,
        default=0.1,
        help="With inline: the wait that is allowed, as a share of a step.",
    )
    parser.add_argument("--json", action="store_true", help="Print JSON instead of tables.")
    add_input_flags(parser)
    return parser


def main(argv: list[str]) -> int:
    """Run the command. Raises `ConfigError` for wrong or missing figures."""
    args = make_parser().parse_args(argv)
    given = given_inputs(args)
    run: dict[str, Any] = {}
    if args.from_run is not None:
        run = read_run(args.from_run, policy_tokens_per_second=given.get("policy_tokens_per_second"))
    inputs = merge(run, given)
    prediction, need = predict(inputs), needed(inputs, args.max_wait_share)
    sources = dict.fromkeys(run, "run") | dict.fromkeys(given, "flag")
    if args.json:
        print(json.dumps(plain_json(as_json(inputs, prediction, need, sources=sources)), indent=2, allow_nan=False))
    else:
        show(inputs, prediction, need, max_wait_share=args.max_wait_share, sources=sources)
    return 0


def merge(run: dict[str, Any], given: dict[str, Any]) -> PlanInputs:
    """Figures of a run with flags over them; a run planned for other GPUs keeps its groups and training per GPU."""
    values = run | given
    if run and "groups" not in given:
        values["groups"] = max(round(run["groups"] * values["ranks"] / run["ranks"]), 1)
    if "training_seconds" in run and "training_seconds" not in given:
        values["training_seconds"] = run["training_seconds"] * _rows(values) / _rows(run)
    missing = [field.name for field in fields(PlanInputs) if field.default is MISSING and field.name not in values]
    if missing:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
        source = "the run does not tell them" if run else "or give a run with --from-run"
        raise ConfigError(f"figures are missing: {flags}; {source}")
    return PlanInputs(**values)


def as_json(
    inputs: PlanInputs, prediction: Prediction, need: Need | None, *, sources: dict[str, str]
) -> dict[str, Any]:
    """Everything that the tables show, as plain data."""
    derived = ("plain_step", "step", "overhead")
    return {
        "inputs": asdict(inputs),
        "sources": sources,
        "prediction": asdict(prediction) | {name: getattr(prediction, name) for name in derived},
        "needed": None if need is None else asdict(need),
        "notes": notes(inputs, prediction),
    }


def _rows(values: dict[str, Any]) -> float:
    return float(values["groups"] * values["num_generations"] / values["ranks"])
