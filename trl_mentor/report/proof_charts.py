"""Charts of what hints did: recovery with and without them, transfer to the plain question, reliance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trl_mentor.report.drawing import BLUE, GREEN, ORANGE, Drawing, svg
from trl_mentor.report.figure_records import Figures, Recovery
from trl_mentor.report.marks import ROW, Row, intervals, key, percent_axis
from trl_mentor.tallies import Tally
from trl_mentor.uplift import Comparison, Rate, UpliftRow, difference_text, rate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ARMS = {"hint": GREEN, "fixed hint": ORANGE, "plain question": BLUE}


MOST_TOPICS = 8


def recovery(figures: Figures) -> str | None:
    """How often re-rolled groups recover with their hint and without, by what was known before, and the difference."""
    found = figures.recovery
    strata = [row for kind in ("all", "cause", "verdict", "topic") for row in _strata(found, kind)]
    if not strata:
        return _recovery_without_lot(found)
    other = "plain question" if found.uplift else "fixed hint"
    rates, uplifts = [_rates(found, row) for row in strata], [_uplift(row.comparison) for row in strata]

    def paint(figure: Figure) -> None:
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=(5, 4))
        intervals(right, uplifts, {"uplift": GREEN})
        percent_axis(right, min((row.comparison.low for row in strata if row.comparison), default=0.0), signed=True)
        right.set_title(f"Hint minus {other}")
        intervals(left, rates, ARMS)
        percent_axis(left)
        key(left, list(ARMS), title="Groups that recover, in %", columns=2)

    first = strata[0].comparison
    said = "Points with their 95 % intervals: Wilson for rates, Newcombe for differences."
    if first is not None:
        said += f" All groups: {difference_text(first)}."
    return svg(Drawing("Recovery with and without the hint", said, 1.0 + 0.45 * len(strata), paint))


def _strata(found: Recovery, kind: str) -> Sequence[UpliftRow]:
    rows = found.uplift or found.uplift_over_generic
    compared = [row for row in rows if row.kind == kind and (row.comparison is not None or kind == "all")]
    return compared[:MOST_TOPICS]


def _rates(found: Recovery, row: UpliftRow) -> Row:
    """The rates of each arm in one stratum."""
    tallies = {"hint": row.hint}
    for arm, rows in (("fixed hint", found.uplift_over_generic), ("plain question", found.uplift)):
        for same in rows:
            if (same.kind, same.name) == (row.kind, row.name):
                tallies[arm] = same.control
    counts = "/".join(str(tally.groups) for tally in tallies.values())
    name = row.name if row.kind == "topic" else row.name.replace("_", " ")
    called = "all groups" if row.kind == "all" else f"{row.kind}: {name}"
    spans = {arm: value for arm, tally in tallies.items() if (value := rate(tally))}
    return Row(called, spans, f"n={counts}")


def _uplift(comparison: Comparison | None) -> Row:
    if comparison is None:
        return Row("", {})
    return Row("", {"uplift": Rate(comparison.difference, comparison.low, comparison.high)})


def _recovery_without_lot(found: Recovery) -> str | None:
    shares = {"hint": found.hinted, "plain question": found.plain}
    rows = [row for name, share in shares.items() for row in _counted(f"re-rolled: {name}", share, name)]
    if not rows:
        return None

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        intervals(axes, rows, ARMS)
        percent_axis(axes)
        axes.set_title("Groups that recover, in %")

    said = "No hint was withheld by lot, so that this does not say what hints did beyond a second roll."
    return svg(Drawing("Recovery of re-rolled groups", said, 0.9 + 0.4 * len(rows), paint))


def transfer(figures: Figures) -> str | None:
    """How often collapsed prompts are solved without a hint when they come round again."""
    rows: list[Row] = []
    for found in figures.transfer.rows:
        outcomes = {"rescued": found.rescued, "hint saturated": found.hint_saturated, "not rescued": found.others}
        arms = {"hint": found.hint, "fixed hint": found.generic, "plain question": found.control}
        for name, share in outcomes.items():
            rows += _counted(f"{found.name}: {name}", share, "outcome")
        for name, share in arms.items():
            rows += _counted(f"{found.name}: {name}, by lot", share, "lot")
    if not rows:
        return None

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        intervals(axes, rows, {"outcome": BLUE, "lot": GREEN})
        percent_axis(axes)
        axes.set_title("Solved without a hint when asked again, in %")

    return svg(Drawing("Transfer", "Shares with their 95 % Wilson intervals.", 0.9 + ROW * len(rows), paint))


def _counted(name: str, share: Tally, colour: str) -> list[Row]:
    """A row; none if nothing was counted."""
    value = rate(share)
    return [] if value is None else [Row(name, {colour: value}, f"{share.hits} of {share.groups}")]


def reliance(figures: Figures) -> str | None:
    """How the policy's hinted successes lean on their hints."""
    found = figures.reliance
    if found is None:
        return None

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        widths = [high - low for low, high in zip(found.edges, found.edges[1:], strict=False)]
        axes.bar(found.edges[:-1], found.bins, width=widths, align="edge", color=GREEN, linewidth=0)
        axes.axvline(0, linewidth=0.6)
        axes.set_xlabel("log-probability without the hint minus with it, nats per token")
        axes.locator_params(axis="y", integer=True)
        axes.set_title(f"Successes under a hint: {found.count}, mean {found.mean:+.2f}")

    said = f"Mean {found.mean:.3f}, quartiles {found.lower:.3f}, {found.median:.3f}, {found.upper:.3f} nats per token."
    return svg(Drawing("Hint reliance", said, 2.2, paint))
