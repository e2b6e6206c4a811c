"""The tables of `trl-mentor plan`: figures, the parts of a step with their arithmetic, and what is needed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trl_mentor.plan_records import Need, PlanInputs, Prediction
from trl_mentor.planning import TARGET_UTILISATION
from trl_mentor.settings import ScheduleKind


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
    workers = f"the least of {inputs.mentor_max_concurrency} and {inputs.replicas} x {inputs.mentor_slots} slots"
    if inputs.schedule is ScheduleKind.AHEAD:
        workers += f" and mentor_queue_size {inputs.mentor_queue_size}"
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
        return (
            f"No mentor can {target}: a batch ends with the slowest of its groups, each of which takes {alone} on "
            "average. Use --schedule ahead."
        )
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
        said.append("lessons do not keep up with collapse: the queue fills and groups are dropped")
    elif found.outstanding > inputs.mentor_queue_size:
        said.append(f"mentor_queue_size is too small: about {_number(found.outstanding)} groups wait at once")
    if inputs.mentor_max_concurrency < inputs.replicas * inputs.mentor_slots:
        said.append("mentor_max_concurrency leaves slots of the mentor idle")
    return said


def _number(value: Any) -> str:
    if not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def _seconds(value: float) -> str:
    return f"{value:,.1f} s" if value >= 100 else f"{value:.3g} s"
