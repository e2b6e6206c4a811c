"""Totals of a run, and the metrics of one generation batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from trl_mentor.records import GroupState, Guidance, HintOrigin, Intervention, RerollOutcome


@dataclass(frozen=True, slots=True)
class Counters:
    """What happened in one generation batch or, summed, in a run. Counts of groups unless a name says otherwise."""

    batches: int = 0
    groups: int = 0
    collapsed: int = 0
    all_correct: int = 0
    unscorable: int = 0
    rescued: int = 0
    hint_saturated: int = 0
    still_collapsed: int = 0
    skipped: int = 0
    accepted: int = 0
    fallback: int = 0
    failed: int = 0
    calls: int = 0
    """Requests to the mentor."""
    call_errors: int = 0
    mentor_prompt_tokens: int = 0
    mentor_completion_tokens: int = 0
    mentor_seconds: float = 0.0
    """Wall-clock seconds that training waited for the mentor."""
    policy_tokens: int = 0
    """Completion tokens that the policy generated in training: first rolls and re-rolls."""
    reroll_tokens: int = 0
    """Those of them that re-rolls generated, padding rows included."""
    reroll_completions: int = 0
    reroll_successes: int = 0
    """Completions that succeeded on the re-roll."""
    reroll_seconds: float = 0.0
    """Wall-clock seconds of generating and scoring re-rolls."""

    def __add__(self, other: Counters) -> Counters:
        return Counters(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Counters)))

    def __sub__(self, other: Counters) -> Counters:
        return Counters(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(Counters)))


def count_states(states: Sequence[GroupState]) -> Counters:
    """Counters of a first roll."""
    found = Counter(states)
    return Counters(
        batches=1,
        groups=len(states),
        collapsed=found[GroupState.COLLAPSED],
        all_correct=found[GroupState.ALL_CORRECT],
        unscorable=found[GroupState.UNSCORABLE],
    )


def count_interventions(interventions: Sequence[Intervention]) -> Counters:
    """Counters of the interventions of one batch, without what is measured for the batch as a whole."""
    outcomes = Counter(item.outcome for item in interventions)
    guidances = [item.guidance for item in interventions if item.guidance is not None]
    return Counters(
        rescued=outcomes[RerollOutcome.RESCUED],
        hint_saturated=outcomes[RerollOutcome.HINT_SATURATED],
        still_collapsed=outcomes[RerollOutcome.STILL_COLLAPSED],
        skipped=outcomes[RerollOutcome.SKIPPED],
    ) + _count_guidances(guidances)


def _count_guidances(guidances: Iterable[Guidance]) -> Counters:
    guidances = list(guidances)
    origins = Counter(guidance.origin for guidance in guidances)
    calls = [call for guidance in guidances for call in guidance.calls]
    return Counters(
        accepted=origins[HintOrigin.ACCEPTED],
        fallback=origins[HintOrigin.FALLBACK],
        failed=origins[HintOrigin.FAILED],
        calls=len(calls),
        call_errors=sum(call.error is not None for call in calls),
        mentor_prompt_tokens=sum(call.usage.prompt_tokens for call in calls),
        mentor_completion_tokens=sum(call.usage.completion_tokens for call in calls),
    )


def batch_metrics(batch: Counters) -> dict[str, float]:
    """The `mentor/*` metrics of one generation batch: always the same keys.

    `frac_*` are shares of all groups of the batch. Trackers warn about values that are not numbers, so nothing here is
    a rate of what may not have happened.
    """
    groups = max(batch.groups, 1)
    shares = {
        name: getattr(batch, name) / groups
        for name in (
            "collapsed",
            "all_correct",
            "unscorable",
            "rescued",
            "hint_saturated",
            "still_collapsed",
            "skipped",
        )
    }
    origins = {name: getattr(batch, name) / groups for name in ("accepted", "fallback", "failed")}
    totals = {
        "mentor_calls": batch.calls,
        "mentor_call_errors": batch.call_errors,
        "mentor_prompt_tokens": batch.mentor_prompt_tokens,
        "mentor_completion_tokens": batch.mentor_completion_tokens,
        "mentor_seconds": batch.mentor_seconds,
        "reroll_completions": batch.reroll_completions,
        "reroll_successes": batch.reroll_successes,
        "reroll_tokens": batch.reroll_tokens,
        "reroll_seconds": batch.reroll_seconds,
    }
    return {
        **{f"mentor/frac_{name}": share for name, share in shares.items()},
        **{f"mentor/frac_hint_{name}": share for name, share in origins.items()},
        **{f"mentor/{name.removeprefix('mentor_')}": float(total) for name, total in totals.items()},
    }
