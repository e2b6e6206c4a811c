"""The findings of `trl-mentor check` for reading: one line each, and what to do at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trl_mentor.cli.check_findings import Finding, Level
from trl_mentor.cli.show import visible

_MARKS = {
    Level.OK: ("ok", "green"),
    Level.WARN: ("WARN", "yellow"),
    Level.FAIL: ("FAIL", "bold red"),
    Level.SKIPPED: ("skipped", "dim"),
}


def show_findings(findings: Sequence[Finding], console: Console) -> None:
    """Print the table, then each warning and failure with its remedy, failures last."""
    table = Table(title="trl-mentor check", title_justify="left")
    table.add_column("check", no_wrap=True)
    table.add_column("result", no_wrap=True)
    table.add_column("found")
    for finding in findings:
        if finding.level is Level.SKIPPED:
            continue
        mark, style = _MARKS[finding.level]
        limit = 100 if finding.level in (Level.WARN, Level.FAIL) else 320
        table.add_row(finding.name, Text(mark, style=style), Text(visible(shortened(finding.found, limit))))
    console.print(table)
    if skipped := [f"{finding.name} ({finding.found})" for finding in findings if finding.level is Level.SKIPPED]:
        console.print(Text(f"skipped: {visible(shortened('; '.join(skipped), 600))}", style="dim"))
    for level in (Level.WARN, Level.FAIL):
        for finding in findings:
            if finding.level is level:
                _show_remedy(finding, console)
    console.print(Text(summary(findings), style="bold"))


def summary(findings: Sequence[Finding]) -> str:
    """The verdict in one line."""
    count = Counter(finding.level for finding in findings)
    parts = [f"{count[level]} {level.value}" for level in Level if count[level]]
    verdict = "ready"
    if count[Level.FAIL]:
        verdict = f"not ready, {_counted(count[Level.FAIL], 'failure')}"
    elif count[Level.WARN]:
        verdict = f"ready, but see {_counted(count[Level.WARN], 'warning')}"
    return f"{verdict}: {', '.join(parts)}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number > 1)}"


def shortened(text: str, limit: int) -> str:
    """One line of the table; for what went wrong the whole follows with its remedy."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[:limit]} ..."


def _show_remedy(finding: Finding, console: Console) -> None:
    mark, style = _MARKS[finding.level]
    console.print(Text.assemble((f"{mark} {finding.name}: ", style), visible(finding.found)))
    console.print(Text(f"     to do: {visible(finding.fix)}"))
