"""What a finished or running training says about its own times, for `trl-mentor plan --from-run`.

All of it is in the journal: calls of the mentor in its interventions, seconds, tokens and collapse in its bookings.
Everything is a dict of `PlanInputs` fields; what a run does not tell is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import StatisticsError, fmean, linear_regression, median, pstdev
from typing import Any

from trl_mentor.counters import Booking, Counters
from trl_mentor.errors import ConfigError
from trl_mentor.journal import read_journal
from trl_mentor.plan_records import PlanInputs
from trl_mentor.planning import first_roll_seconds
from trl_mentor.records import Call, Cause, HintOrigin, Intervention
from trl_mentor.rounds import by_group
from trl_mentor.settings import ScheduleKind


def read_run(run: Path, *, policy_tokens_per_second: float | None = None) -> dict[str, Any]:
    """Fields of `PlanInputs` as this run had them; the policy's rate may be given if the run does not tell.

    Raises `FileNotFoundError` without a journal and `ConfigError` if it has no finished generation batch.
    """
    records = read_journal(run)
    totals, info = records.totals, records.run
    if not totals.groups or not info.world_size:
        raise ConfigError(
            f"the journal of {run} has no totals of a generation batch: no batch is finished yet, or an older version "
            "of trl-mentor wrote it; wait, or give every figure as a flag"
        )
    found = _mentor_figures([calls for group in by_group(records) if (calls := _calls(group))])
    found |= {
        "ranks": info.world_size,
        "groups": round(totals.groups / totals.batches),
        "num_generations": info.num_generations,
        "completion_tokens": (totals.policy_tokens - totals.reroll_tokens - totals.probe_tokens)
        / (totals.groups * info.num_generations),
        "collapse_share": max(totals.collapsed - _skipped(records), 0) / totals.groups,
        "schedule": ScheduleKind(info.schedule),
    }
    batches = _batches(records.bookings)
    return found | _policy_figures(batches[1:] or batches, found, policy_tokens_per_second)


def _batches(bookings: Iterable[Booking]) -> list[Counters]:
    """What each generation batch took, from the end of one to that of the next; the first has no training in it."""
    found, between = [], Counters()
    for booking in bookings:
        between += booking.counters
        if booking.counters.batches:
            found.append(between)
            between = Counters()
    return found


def _skipped(records: Sequence[Intervention]) -> int:
    """Collapsed groups that cost neither calls nor a re-roll, because of their cause."""
    return sum(
        item.guidance is not None
        and item.guidance.origin is HintOrigin.NOT_ASKED
        and item.round == 1
        and item.group.cause is not Cause.KNOWLEDGE
        and any(attempt.reward is not None for attempt in item.group.attempts)
        for item in records
    )


def _calls(group: Sequence[Intervention]) -> list[Call]:
    """The calls for one group in all its rounds."""
    return [call for item in group if item.guidance is not None for call in item.guidance.calls]


def _mentor_figures(groups: Sequence[Sequence[Call]]) -> dict[str, Any]:
    calls = [call for group in groups for call in group]
    if not calls:
        return {}
    seconds = [sum(call.seconds for call in group) for group in groups]
    mean = fmean(seconds)
    return {
        "calls_per_group": len(calls) / len(groups),
        "call_seconds": fmean(call.seconds for call in calls),
        "prompt_tokens_per_call": fmean(call.usage.prompt_tokens for call in calls),
        "completion_tokens_per_call": fmean(call.usage.completion_tokens for call in calls),
        "group_spread": pstdev(seconds) / mean if mean else 0.0,
    }


def _policy_figures(batches: Sequence[Counters], found: Mapping[str, Any], rate: float | None) -> dict[str, float]:
    """Rates of the policy from its re-rolls; training is what is left of a step without mentor, re-roll and roll."""
    plain = median(batch.seconds - batch.mentor_seconds - batch.reroll_seconds for batch in batches)
    fixed = 0.0
    if rate is None:
        rolls = [(batch.reroll_completions / found["ranks"], batch.reroll_seconds) for batch in batches]
        fixed, per_row = _reroll_line(rolls)
        if per_row <= 0:
            return {}
        rate = found["completion_tokens"] / per_row
    shape = {name: found[name] for name in ("ranks", "groups", "num_generations", "completion_tokens")}
    first = first_roll_seconds(
        PlanInputs(
            **shape, policy_tokens_per_second=rate, roll_seconds=fixed, training_seconds=0.0, collapse_share=0.0
        )
    )
    scale = min(1.0, max(plain, 0.0) / first)  # a roll takes no longer than the step that it is part of
    if scale == 0:
        return {}
    return {
        "policy_tokens_per_second": rate / scale,
        "roll_seconds": fixed * scale,
        "training_seconds": max(plain - first * scale, 0.0),
    }


def _reroll_line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Fixed seconds and seconds per row of a re-roll: the line through what was measured, or else through 0."""
    rolls = [(rows, seconds) for rows, seconds in points if rows > 0]
    if not rolls:
        return 0.0, 0.0
    try:
        slope, intercept = linear_regression(*zip(*rolls, strict=True))
    except StatisticsError:  # too few points, or all re-rolls of one size
        slope, intercept = 0.0, 0.0
    if slope > 0 and intercept > 0:
        return intercept, slope
    return 0.0, sum(seconds for _, seconds in rolls) / sum(rows for rows, _ in rolls)
