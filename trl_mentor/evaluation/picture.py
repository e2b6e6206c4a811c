"""The figures of an evaluation as a picture: one line for each benchmark and average."""

from __future__ import annotations

import io

from trl_mentor.evaluation.summary import Average, BenchmarkSummary, Summary
from trl_mentor.report.drawing import BLUE, GREY


def draw(summary: Summary) -> bytes | None:
    """pass@1 in percent with its 95 % interval, and the base run's beside it, as a PNG.

    None without matplotlib, which is optional, and where nothing was judged.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    lines: list[BenchmarkSummary | Average] = [*summary.benchmarks]
    lines += [average for average in summary.averages if len(average.benchmarks) > 1]
    if not lines:
        return None
    figure = Figure(figsize=(7, 1.2 + 0.32 * len(lines)), layout="constrained")
    axes = figure.subplots()
    for place, line in enumerate(lines):
        found = line.pass_at[1]
        if found is None:
            continue
        value, low, high = (100 * number for number in (found.value, found.low, found.high))
        axes.plot([low, high], [place, place], color=BLUE, linewidth=1.6)
        (this,) = axes.plot(value, place, "o", color=BLUE, label="this model")
        if line.gain is not None:
            (base,) = axes.plot(100 * line.gain.base, place, "D", color=GREY, fillstyle="none", label="base run")
    axes.set_yticks(range(len(lines)), [_name(line) for line in lines], parse_math=False)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_xlim(0, 100)
    axes.set_xlabel("right completions (pass@1) in percent, with 95 % intervals")
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if any(line.gain is not None for line in lines):
        figure.legend(handles=[this, base], loc="outside lower center", ncols=2, frameon=False)
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=150)
    return data.getvalue()


def _name(line: BenchmarkSummary | Average) -> str:
    return line.benchmark if isinstance(line, BenchmarkSummary) else f"{line.kind}, by problems"
