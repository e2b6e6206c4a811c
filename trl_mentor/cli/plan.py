"""`trl-mentor plan`: what a mentor adds to a step, and how large it has to be, before anything is rented."""

from __future__ import annotations

import argparse
import json
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trl_mentor.cli.run_figures import read_run
from trl_mentor.errors import ConfigError
from trl_mentor.planning import TARGET_UTILISATION, Need, PlanInputs, Prediction, needed, predict
from trl_mentor.settings import ScheduleKind

DESCRIPTION = """\
Predict the time of a step (one generation batch and the training on it) with a mentor, against plain GRPO, and the
mentor replicas that the run needs. Figures come from a run (--from-run), from flags, or from both: a flag wins.

A run that is planned for more GPUs than it had keeps its groups per GPU, as TRL does, unless --groups says otherwise.
"""

FLAGS = {
    "ranks": (int, "GPUs that train."),
    "groups": (int, "Groups of one generation batch, over all GPUs."),
    "num_generations": (int, "Completions of a group."),
    "completion_tokens": (float, "Mean tokens of a completion of the policy."),
    "policy_tokens_per_second": (float, "Completion tokens that one training GPU generates per second."),
    "roll_seconds": (float, "Seconds of a roll that do not depend on its number of rows."),
    "length_spread": (
        float,
        "Standard deviation of completion lengths as a share of their mean: the slowest GPU decides.",
    ),
    "training_seconds": (float, "Seconds of a step outside of rolls and mentor."),
    "collapse_share": (float, "Mean share of groups that collapse, from 0 to 1."),
    "collapsed_groups": (int, "Exactly this many groups collapse in each batch, instead of a random number."),
    "calls_per_group": (float, "Mean calls to the mentor for one group: 3 at best, 9 at worst by default."),
    "prompt_tokens_per_call": (float, "Mean tokens that the mentor reads in a call."),
    "completion_tokens_per_call": (float, "Mean tokens that the mentor writes in a call."),
    "call_seconds": (float, "Measured seconds of a call, instead of tokens and rates."),
    "mentor_tokens_per_second": (float, "Tokens that one replica writes per second with all slots busy."),
    "mentor_prompt_tokens_per_second": (float, "Tokens that one replica reads per second."),
    "mentor_slots": (int, "Calls that one replica works on at once."),
    "group_spread": (float, "Standard deviation of the seconds of a group's calls, as a share of their mean."),
    "replicas": (int, "Replicas of the mentor."),
    "gpus_per_replica": (int, "GPUs of one replica."),
    "mentor_max_concurrency": (int, "Groups that the trainer has mentored at once."),
    "mentor_deadline": (float, "Seconds for all hints of one batch."),
    "schedule": (ScheduleKind, "inline (a step waits for its hints) or ahead (nothing waits)."),
    "mentor_queue_size": (int, "With ahead: groups that wait at once."),
}
"""Field of `PlanInputs` -> type and help of its flag."""


def add_input_flags(parser: argparse.ArgumentParser) -> None:
    """One flag for each field of `PlanInputs`; what is not given is None."""
    group = parser.add_argument_group("figures")
    defaults = {field.name: field.default for field in fields(PlanInputs)}
    for name, (kind, text) in FLAGS.items():
        default = defaults[name]
        shown = "" if default is MISSING or default is None else f" Default: {default}."
        group.add_argument(f"--{name.replace('_', '-')}", type=kind, help=text + shown)


def given_inputs(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of `PlanInputs` that were given as flags."""
    return {name: getattr(args, name) for name in FLAGS if getattr(args, name) is not None}


def make_parser() -> argparse.ArgumentParser:
    """The parser of `trl-mentor plan`."""
    parser = argparse.ArgumentParser(
        prog="trl-mentor plan",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--from-run", type=Path, metavar="DIR", help="output_dir of a run with a checkpoint.")
    parser.add_argument("--run-ranks", type=int, help="GPUs of that run, if its checkpoint does not tell.")
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
        rate = given.get("policy_tokens_per_second")
        run = read_run(args.from_run, ranks=args.run_ranks, policy_tokens_per_second=rate)
    inputs = merge(run, given)
    prediction, need = predict(inputs), needed(inputs, args.max_wait_share)
    if args.json:
        print(json.dumps(as_json(inputs, prediction, need, sources=_sources(run, given)), indent=2, allow_nan=False))
    else:
        show(inputs, prediction, need, max_wait_share=args.max_wait_share, sources=_sources(run, given))
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


def show(
    inputs: PlanInputs, prediction: Prediction, need: Need | None, *, max_wait_share: float, sources: dict[str, str]
) -> None:
    """Print figures, step and need, each with where it comes from."""
    console = Console()
    table = Table(title="Figures", title_justify="left")
    for name in ("figure", "value", "from"):
        table.add_column(name, justify="right" if name == "value" else "left")
    for name, value in asdict(inputs).items():
        if value is not None:
            table.add_row(name, _number(value), sources.get(name, "default"))
    console.print(table)
    table = Table(title="A step (one generation batch and the training on it)", title_justify="left")
    for name in ("part", "value", "arithmetic"):
        table.add_column(name, justify="right" if name == "value" else "left", no_wrap=name == "value")
    for part, value, arithmetic in steps(inputs, prediction):
        table.add_row(part, value, Text(arithmetic))
    console.print(table)
    console.print(Text(answer(inputs, need, max_wait_share)))
    for note in notes(inputs, prediction):
        console.print(Text(f"Note: {note}", style="yellow"))


def steps(inputs: PlanInputs, found: Prediction) -> list[tuple[str, str, str]]:
    """The parts of a step with their values and how they come about."""
    rate, tokens = inputs.policy_tokens_per_second, inputs.completion_tokens
    fixed = f"{_number(inputs.roll_seconds)} s + " if inputs.roll_seconds else ""
    speed = f"({inputs.ranks} GPUs x {_number(rate)} tokens/s)"
    roll = f"x {inputs.num_generations} completions x {_number(tokens)} tokens / {speed}"
    per_group = f"{_number(inputs.calls_per_group)} calls x {_number(inputs.seconds_per_call)} s"
    if inputs.schedule is ScheduleKind.INLINE:
        wait = f"{_number(found.collapsed)} groups x ({per_group}), {inputs.workers} at once, until the last is done"
    else:
        wait = "nothing waits"
    return [
        ("first roll", _seconds(found.first_roll), f"{fixed}{inputs.groups} groups {roll}"),
        ("mentor wait", _seconds(found.mentor_wait), wait),
        ("re-roll", _seconds(found.reroll), f"{fixed}{_number(found.rerolled)} groups {roll}, padded to equal shares"),
        ("training", _seconds(found.training), "log-probabilities, loss, gradients, optimizer"),
        ("step", _seconds(found.step), "the sum"),
        ("plain GRPO", _seconds(found.plain_step), "first roll + training"),
        ("overhead", f"{found.overhead:+.1%}", "step / plain GRPO - 1"),
        *_mentor_lines(inputs, found, per_group),
    ]


def _mentor_lines(inputs: PlanInputs, found: Prediction, per_group: str) -> list[tuple[str, str, str]]:
    workers = f"the lower of {inputs.mentor_max_concurrency} and {inputs.replicas} x {inputs.mentor_slots} slots"
    busy = f"{_number(found.collapsed)} groups x ({per_group}) / ({inputs.workers} workers x {_seconds(found.step)})"
    read, written = (
        found.collapsed * inputs.calls_per_group * tokens
        for tokens in (inputs.prompt_tokens_per_call, inputs.completion_tokens_per_call)
    )
    lines = [
        ("mentor workers", str(inputs.workers), workers),
        ("workers busy", f"{found.utilisation:.0%}", busy),
        ("mentor tokens", f"{_number(read)} + {_number(written)}", "read and written in a step"),
    ]
    if inputs.schedule is ScheduleKind.AHEAD:
        lines += [
            ("lessons used", _number(found.rerolled), f"of {_number(found.collapsed)} collapsed groups in a step"),
            ("staleness", f"{_number(found.staleness)} steps", "collapse to lesson, rounded up to whole steps"),
            ("queue", _number(found.outstanding), f"groups at once, room for {inputs.mentor_queue_size}"),
        ]
    return lines


def answer(inputs: PlanInputs, need: Need | None, max_wait_share: float) -> str:
    """In one sentence: the mentor that the run needs."""
    if inputs.schedule is ScheduleKind.AHEAD:
        target = f"keep up with collapse at {TARGET_UTILISATION:.0%} load"
    else:
        target = f"keep the wait below {max_wait_share:.0%} of the step"
    if need is None:
        alone = _seconds(inputs.seconds_per_group)
        return f"No mentor can {target}: one group alone takes {alone}. Use --schedule ahead."
    return (
        f"To {target}: {need.workers} groups at once (mentor_max_concurrency), {need.replicas} replicas with "
        f"{inputs.mentor_slots} slots each, {need.gpus} GPUs."
    )


def notes(inputs: PlanInputs, found: Prediction) -> list[str]:
    """What a reader of the figures should know about them."""
    said = []
    if inputs.schedule is ScheduleKind.INLINE and found.rerolled < 0.99 * found.collapsed:
        said.append(f"the deadline of {_seconds(inputs.mentor_deadline)} leaves groups without a hint")
    if inputs.schedule is ScheduleKind.AHEAD and found.utilisation > 1:
        said.append("lessons do not keep up with collapse: the queue fills, groups are dropped, lessons get stale")
    elif found.outstanding > inputs.mentor_queue_size:
        said.append(f"mentor_queue_size is too small: about {_number(found.outstanding)} groups wait at once")
    if inputs.mentor_max_concurrency < inputs.replicas * inputs.mentor_slots:
        said.append("mentor_max_concurrency leaves slots of the mentor idle")
    return said


def _sources(run: dict[str, Any], given: dict[str, Any]) -> dict[str, str]:
    return dict.fromkeys(run, "run") | dict.fromkeys(given, "flag")


def _rows(values: dict[str, Any]) -> float:
    return float(values["groups"] * values["num_generations"] / values["ranks"])


def _number(value: Any) -> str:
    if not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def _seconds(value: float) -> str:
    return f"{value:,.1f} s" if value >= 100 else f"{value:.3g} s"
