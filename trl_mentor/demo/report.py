"""What the demo prints: a table, two curves, and one intervention to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trl_mentor.demo.student import mean_accuracy
from trl_mentor.demo.training import Run
from trl_mentor.records import Arm, Draft, Intervention, RerollOutcome, Role
from trl_mentor.uplift import difference_text, uplift

DISCLAIMER = (
    "This world is synthetic: a student of 0.17 million parameters, pretrained on misconceptions that were planted. "
    "It shows the mechanism and says nothing about how much MENTOR helps an LLM."
)

LEGEND = (
    "collapsed: share of the groups of 4 in which every program fails, first and last tenth of the run, before any "
    "re-roll. rescued, still, saturated: groups in which some, none, or all programs of the re-roll pass; only "
    "rescued ones give a gradient. accuracy: held-out problems, no hints, mean over the families, before and after."
)

_BARS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
_WIDTH = 60


def print_plan(console: Console, methods: Sequence[str], *, seeds: int, tokens: int) -> None:
    """What is about to happen."""
    console.print(
        "A tiny student with planted misconceptions writes one-line programs, in a synthetic world made for this demo."
        f" {' and '.join(methods)} each train it from the same start on {tokens:,} generated tokens, with {seeds} "
        f"seed{'s' * (seeds > 1)}. On two CPU cores that takes under a minute for each run."
    )


def print_report(
    console: Console, runs: Sequence[Run], before: Mapping[str, float], example: Intervention | None
) -> None:
    """Everything, in reading order."""
    if example is not None:
        print_intervention(console, example)
    print_curves(console, runs)
    console.print(runs_table(runs, mean_accuracy(before)))
    console.print(f"[bold]{verdict(runs)}[/bold]")
    for line in uplift_lines(runs):
        console.print(line, highlight=False)
    console.print(LEGEND, style="dim")
    console.print(f"\n[yellow]{DISCLAIMER}[/yellow]")


def runs_table(runs: Sequence[Run], accuracy_before: float) -> Table:
    """One row per run: what collapsed, what became of it, and what the student can do without hints."""
    table = Table(title="Same student, same number of generated tokens", box=None, padding=(0, 1))
    for name in ("seed", "method", "tokens", "collapsed", "rescued", "still", "saturated", "accuracy"):
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    for run in runs:
        first, last = ends(run.collapsed)
        outcomes = (run.totals.rescued, run.totals.still_collapsed, run.totals.hint_saturated)
        table.add_row(
            str(run.seed),
            run.method,
            f"{run.totals.policy_tokens:,}",
            f"{first:.0%} -> {last:.0%}",
            *(str(count) if run.totals.reroll_completions else "-" for count in outcomes),
            f"{accuracy_before:.3f} -> {mean_accuracy(run.accuracy):.3f}",
        )
    return table


def verdict(runs: Sequence[Run]) -> str:
    """Who can do how much without hints at the end, the best first."""
    methods = {run.method for run in runs}
    mean = {name: fmean(mean_accuracy(run.accuracy) for run in runs if run.method == name) for name in methods}
    ranking = ", ".join(f"{name} {mean[name]:.3f}" for name in sorted(mean, key=mean.__getitem__, reverse=True))
    return f"Held-out accuracy without hints, same tokens: {ranking}."


def uplift_lines(runs: Sequence[Run]) -> list[str]:
    """What the hints of each run did, for runs in which some were withheld by lot."""
    lines = []
    for run in runs:
        comparison = uplift(run.totals.recovery)
        if comparison is not None:
            lines.append(
                f"seed {run.seed} {run.method}: under its hint a collapsed group recovers in "
                f"{comparison.treated.value:.0%}, with the hint withheld by lot in {comparison.control.value:.0%} of "
                f"all cases: uplift {difference_text(comparison)}. The table counts both kinds."
            )
    return lines


def ends(shares: Sequence[float]) -> tuple[float, float]:
    """Mean of the first and of the last tenth of a curve, at least one batch each."""
    tenth = max(1, len(shares) // 10)
    return fmean(shares[:tenth]), fmean(shares[-tenth:])


def print_curves(console: Console, runs: Sequence[Run]) -> None:
    """The collapsed share of each run over the tokens that it generated, first batch on the left."""
    console.print("\n[bold]Share of collapsed groups[/bold] (full block: all; left to right: tokens generated)")
    for run in runs:
        console.print(f"seed {run.seed} {run.method:>8} {sparkline(run.tokens, run.collapsed)}")
    console.print()


def sparkline(tokens: Sequence[int], shares: Sequence[float]) -> str:
    """At most 60 blocks, evenly spaced over the tokens; each is the mean of the batches that end in its part.

    A part in which no batch ends repeats the one before it.
    """
    width = min(_WIDTH, len(shares))
    blocks, share = "", shares[0]
    for part in range(width):
        start, end = tokens[-1] * part / width, tokens[-1] * (part + 1) / width
        inside = [value for at, value in zip(tokens, shares, strict=True) if start < at <= end]
        share = fmean(inside) if inside else share
        blocks += _BARS[round(share * (len(_BARS) - 1))]
    return blocks


def choose_example(interventions: Sequence[Intervention]) -> Intervention | None:
    """The first group that a repaired hint rescued, else that a hint rescued, else the first."""
    rescued = [item for item in interventions if item.outcome is RerollOutcome.RESCUED and item.arm is not Arm.CONTROL]
    repaired = [item for item in rescued if any(draft.role is Role.REPAIR for draft in _drafts(item))]
    return next(iter([*repaired, *rescued, *interventions]), None)


def print_intervention(console: Console, item: Intervention) -> None:
    """From the failed attempts to the new rewards."""
    console.rule(f"One intervention, at step {item.step}")
    console.print(f"[bold]Question[/bold]   {escape(item.group.question)}")
    for attempt in item.group.attempts:
        console.print(f"[red]attempt[/red]    {escape(attempt.text)}   {_reward(attempt.reward)}")
    if item.guidance is not None:
        for keyword in item.guidance.diagnosis:
            console.print(f"[bold]diagnosis[/bold]  {escape(keyword)}")
        for draft in item.guidance.drafts:
            console.print(f"[bold]{draft.role.value:<10}[/bold] {escape(draft.text)}")
            if draft.verdict is not None:
                console.print(f"  {draft.verdict.quality.value:<8} {escape(draft.verdict.critique)}")
        console.print(f"[bold]hint[/bold]       {escape(item.guidance.hint or 'none')}")
    for completion, success in zip(item.completions, item.successes, strict=True):
        color = "green" if success else "red"
        console.print(f"[{color}]re-roll[/{color}]    {escape(completion)}   {_reward(success)}")
    console.print(f"[bold]outcome[/bold]    {item.outcome.value}")
    console.rule()


def _reward(value: float | None) -> str:
    return "no reward" if value is None else f"reward {value:g}"


def _drafts(item: Intervention) -> Sequence[Draft]:
    return () if item.guidance is None else item.guidance.drafts
