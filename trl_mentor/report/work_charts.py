"""Charts of the work on collapsed groups: causes, drafts, topics, and what it took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trl_mentor.bill import Bill
from trl_mentor.report.drawing import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, Drawing, label, svg
from trl_mentor.report.figure_records import CauseRow, Figures, Outcomes
from trl_mentor.report.marks import ROW, Bar, bars, compact

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OUTCOMES = {
    "rescued": GREEN,
    "hint saturated": ORANGE,
    "still collapsed": VERMILION,
    "skipped": GREY,
    "no intervention": PURPLE,
}
VERDICTS = {"HIGH": GREEN, "LOW": VERMILION, "never judged": GREY}
POLICY = (BLUE, GREEN, SKY, GREY, PURPLE)
MENTOR = {"prompts": SKY, "prompts, cached": GREY, "completions": ORANGE}
SECONDS = (BLUE, ORANGE, GREEN, GREY)

MOST_TOPICS = 12


def causes(figures: Figures) -> str | None:
    """Why groups collapsed or were not scored, and what the interventions for them brought."""
    rows = [_cause(row) for row in figures.causes]
    return _stacked("Causes of collapse", [_Panel("Groups by cause, and what became of them", rows, OUTCOMES)])


def _cause(row: CauseRow) -> Bar:
    left = max((row.groups or 0) - row.outcomes.groups, 0)
    note = f"{row.groups or row.outcomes.groups}, mentor asked about {row.asked}"
    return Bar(row.outcomes.name.replace("_", " "), _parts(row.outcomes) | {"no intervention": left}, note)


def _parts(row: Outcomes) -> dict[str, float]:
    return {
        "rescued": row.rescued,
        "hint saturated": row.hint_saturated,
        "still collapsed": row.still_collapsed,
        "skipped": row.skipped,
    }


@dataclass(frozen=True, slots=True)
class _Panel:
    title: str
    rows: Sequence[Bar]
    colours: Mapping[str, str]


def _stacked(title: str, panels: Sequence[_Panel]) -> str | None:
    """Panels with bars, one below the other; those without a row are left out."""
    shown = [panel for panel in panels if panel.rows]
    if not shown:
        return None
    heights = [0.75 + ROW * len(panel.rows) for panel in shown]

    def paint(figure: Figure) -> None:
        rows = figure.subplots(len(shown), squeeze=False, height_ratios=heights)
        for panel, (axes,) in zip(shown, rows, strict=True):
            bars(axes, panel.rows, panel.colours, title=panel.title)

    said = "; ".join(f"{label(row.name)}: {row.note}" for panel in shown for row in panel.rows)
    return svg(Drawing(title, said, sum(heights), paint))


def topics(figures: Figures) -> str | None:
    """The topics with the most interventions and what these brought."""
    found = figures.topics
    rows = [Bar(row.name, _parts(row), str(row.groups)) for row in found.rows[:MOST_TOPICS]]
    more = f", the first {len(rows)} of {found.distinct}" if found.distinct > len(rows) else ""
    panel = _Panel(f"Interventions by topic{more}, and what they brought", rows, OUTCOMES)
    return _stacked("Topics with the most collapse", [panel])


def drafts(figures: Figures) -> str | None:
    """How drafts fare from review to review and before whom, and how hints came to be."""
    reviews = [
        Bar(f"review {row.number}", {"HIGH": row.high, "LOW": row.low, "never judged": row.unjudged})
        for row in figures.drafts.reviews
    ]
    graders = [Bar(f"by {row.source}", {"HIGH": row.high, "LOW": row.low}) for row in figures.drafts.graders]
    paths = [Bar(row.name.replace("_", " "), _parts(row), str(row.groups)) for row in figures.verdict_paths]
    counted = [replace(row, note=_high(row)) for row in [*reviews, *graders]]
    panels = [
        _Panel("Drafts by review, and all of them by who graded", counted, VERDICTS),
        _Panel("Groups by how their hint came to be, and what it brought", paths, OUTCOMES),
    ]
    return _stacked("Drafts in review", panels)


def _high(row: Bar) -> str:
    judged = row.parts["HIGH"] + row.parts["LOW"]
    share = f", {row.parts['HIGH'] / judged:.0%} HIGH" if judged else ""
    return f"{row.total:.0f}{share}"


def spending(figures: Figures) -> str | None:
    """Where the tokens of the policy, those of the mentor and the seconds went."""
    bill = figures.bill
    if bill is None:
        return None
    policy = bill.policy_parts()
    rest = bill.seconds - bill.waited_seconds - bill.reroll_seconds
    seconds = {"the rest of training": max(rest, 0.0)} | bill.seconds_parts()
    cost = "" if bill.cost is None else f", which cost {compact(bill.cost)}"
    panels = [
        _Panel(
            f"{compact(bill.policy_tokens)} tokens that the policy generated",
            _rows(policy),
            dict(zip(policy, POLICY, strict=True)),
        ),
        _Panel(f"{compact(bill.mentor_tokens)} tokens of the mentor{cost}", _roles(bill), MENTOR),
        _Panel(
            f"{compact(bill.seconds)} seconds of training",
            _rows(seconds, bill.seconds),
            dict(zip(seconds, SECONDS, strict=True)),
        ),
    ]
    return _stacked("Where tokens and seconds went", panels)


def _rows(parts: Mapping[str, float], whole: float = 0.0) -> list[Bar]:
    """One row for each part that can be seen, with its share of the whole, which is their sum unless given."""
    whole = whole or sum(parts.values())
    seen = {name: part for name, part in parts.items() if part > whole / 1000}
    return [Bar(name, {name: part}, f"{compact(part)}, {part / whole:.0%}") for name, part in seen.items()]


def _roles(bill: Bill) -> list[Bar]:
    return [
        Bar(
            name,
            {
                "prompts": spent.prompt_tokens - spent.cached_tokens,
                "prompts, cached": spent.cached_tokens,
                "completions": spent.completion_tokens,
            },
            f"{compact(spent.tokens)} in {spent.calls} calls",
        )
        for name, spent in bill.roles.items()
    ]
