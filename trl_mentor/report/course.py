"""What became of the groups of a run, in all and stretch by stretch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from trl_mentor.counters import Counters
from trl_mentor.records import Intervention, RerollOutcome
from trl_mentor.report.figure_records import Counts, Outcomes, Point
from trl_mentor.report.stretches import Stretch


def counts(records: Sequence[Intervention], totals: Counters | None) -> Counts:
    """The groups of a run; `totals` is None in a journal without bookings."""
    ended = outcomes_of("", Counter(item.outcome for item in records))
    if totals is None:
        return Counts(None, None, None, ended)
    return Counts(totals.groups, totals.all_correct, totals.collapsed, ended)


def point(stretch: Stretch) -> Point:
    """What was trained in a stretch and what it took."""
    own = stretch.counters
    rerolled = own.rescued + own.hint_saturated + own.still_collapsed
    return Point(
        step=stretch.step,
        groups=own.groups,
        all_correct=own.all_correct,
        mixed=own.groups - own.all_correct - own.unscorable - own.collapsed,
        rescued=own.rescued,
        hint_saturated=own.hint_saturated,
        still_collapsed=own.still_collapsed,
        not_rerolled=own.collapsed - rerolled,
        unscorable=own.unscorable,
        completions=own.completions,
        successes=own.successes,
        first_tokens=own.policy_tokens - own.reroll_tokens - own.probe_tokens,
        reroll_tokens=own.reroll_tokens,
        probe_tokens=own.probe_tokens,
        mentor_tokens=own.mentor_tokens,
        total_policy_tokens=stretch.totals.policy_tokens,
    )


def outcomes_of(name: str, found: Counter[RerollOutcome]) -> Outcomes:
    """Interventions of one kind by their outcomes; under the hint of a round before the last, none succeeded."""
    return Outcomes(
        name,
        groups=found.total(),
        rescued=found[RerollOutcome.RESCUED],
        hint_saturated=found[RerollOutcome.HINT_SATURATED],
        still_collapsed=found[RerollOutcome.STILL_COLLAPSED] + found[RerollOutcome.ANOTHER_ROUND],
        skipped=found[RerollOutcome.SKIPPED],
    )
