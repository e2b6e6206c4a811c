"""The figures of an evaluation as cells of text, for the terminal and for results.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from trl_mentor.evaluation.intervals import Estimate, Gain
from trl_mentor.evaluation.summary import Average, BenchmarkSummary, Summary


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows of text, none of it foreign; the first column is a name of ours, the others are figures."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def figures(summary: Summary, num_samples: int) -> Table:
    """pass@1, which is avg@k too, and of several completions pass@k and maj@k; of benchmarks and of their kinds."""
    votes = any(found.maj_at for found in summary.benchmarks)
    extra = (f"pass@{num_samples}", *([f"maj@{num_samples}"] if votes else [])) if num_samples > 1 else ()
    rows = []
    for found in summary.benchmarks:
        rows.append((found.benchmark, f"{found.problems:,}", *_shares(found, num_samples, votes), *_counts(found)))
    for average in summary.averages:
        if len(average.benchmarks) > 1:
            blank = ("",) * 3
            rows.append(
                (
                    f"{average.kind}, by problems",
                    f"{average.problems:,}",
                    *_shares(average, num_samples, votes),
                    *blank,
                )
            )
            rows.append((f"{average.kind}, by benchmarks", "", _percent(average.macro), *("",) * len(extra), *blank))
    columns = ("benchmark", "problems", "pass@1", *extra, "cut off", "not judged", "tokens")
    return Table("Right answers in percent, with 95 % intervals", columns, tuple(rows))


def gains(summary: Summary) -> Table | None:
    """pass@1 against the base run on the problems of both; None without one."""
    rows = [(found.benchmark, found.gain) for found in summary.benchmarks]
    rows += [(f"{found.kind}, by problems", found.gain) for found in summary.averages if len(found.benchmarks) > 1]
    cells = tuple((name, *_gain(gain)) for name, gain in rows if gain is not None)
    columns = ("benchmark", "common problems", "base", "this", "difference", "relative gain")
    return Table("pass@1 in percent against the base run, with 95 % intervals", columns, cells) if cells else None


def _shares(found: BenchmarkSummary | Average, num_samples: int, votes: bool) -> tuple[str, ...]:
    asked: list[Mapping[int, Estimate | None]] = [found.pass_at, *([found.maj_at] if votes else [])]
    more = [_estimate(figures.get(num_samples)) for figures in asked] if num_samples > 1 else []
    return (_estimate(found.pass_at[1]), *more)


def _counts(found: BenchmarkSummary) -> tuple[str, str, str]:
    return _percent(found.truncated), f"{found.unjudged:,}", f"{found.mean_tokens:,.0f}"


def _estimate(found: Estimate | None) -> str:
    return "" if found is None else f"{_percent(found.value)} [{_percent(found.low)}, {_percent(found.high)}]"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _gain(gain: Gain) -> tuple[str, ...]:
    change = gain.difference
    difference = f"{100 * change.value:+.1f} [{100 * change.low:+.1f}, {100 * change.high:+.1f}]"
    relative = "none: the base is 0"
    if gain.relative is not None:
        high = f"{100 * gain.relative.high:+.1f}" if isfinite(gain.relative.high) else "inf"
        relative = f"{100 * gain.relative.value:+.1f} [{100 * gain.relative.low:+.1f}, {high}]"
    return f"{gain.problems:,}", _percent(gain.base), _percent(gain.value), difference, relative
