"""Totals of a run, and the metrics of one generation batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from trl_mentor.records import GroupState, Guidance, HintOrigin, RerollOutcome


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
    handed_over: int = 0
    """Collapsed groups given to background mentoring."""
    dropped: int = 0
    """Those that left the full queue before they were of use."""
    lessons: int = 0
    """Lessons from the background that took the place of a collapsed group."""
    staleness: int = 0
    """Sum over these lessons of the optimizer steps since their own group collapsed."""
    shortened: int = 0
    """Hints that lost sentences to fit into the policy's context."""
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


def count_outcomes(outcomes: Iterable[RerollOutcome]) -> Counters:
    """Counters of what the interventions of one batch brought."""
    found = Counter(outcomes)
    return Counters(
        rescued=found[RerollOutcome.RESCUED],
        hint_saturated=found[RerollOutcome.HINT_SATURATED],
        still_collapsed=found[RerollOutcome.STILL_COLLAPSED],
        skipped=found[RerollOutcome.SKIPPED],
    )


def count_guidances(guidances: Iterable[Guidance | None]) -> Counters:
    """Counters of what the mentor did for the interventions of one batch."""
    given = [guidance for guidance in guidances if guidance is not None]
    origins = Counter(guidance.origin for guidance in given)
    calls = [call for guidance in given for call in guidance.calls]
    return Counters(
        accepted=origins[HintOrigin.ACCEPTED],
        fallback=origins[HintOrigin.FALLBACK],
        failed=origins[HintOrigin.FAILED],
        shortened=sum(guidance.shortened for guidance in given),
        calls=len(calls),
        call_errors=sum(call.error is not None for call in calls),
        mentor_prompt_tokens=sum(call.usage.prompt_tokens for call in calls),
        mentor_completion_tokens=sum(call.usage.completion_tokens for call in calls),
    )


def batch_metrics(batch: Counters) -> dict[str, float]:
    """The `mentor/*` metrics of one generation batch: the same keys for every batch.

    `frac_*` are shares of all groups of the batch. Trackers warn about values that are not numbers, so a rate of what
    may not have happened is left out where it did not: `mentor/staleness`, in optimizer steps per lesson.
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
        "handed_over": batch.handed_over,
        "lessons": batch.lessons,
        "dropped": batch.dropped,
        "shortened": batch.shortened,
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
    staleness = {"mentor/staleness": batch.staleness / batch.lessons} if batch.lessons else {}
    return {
        **staleness,
        **{f"mentor/frac_{name}": share for name, share in shares.items()},
        **{f"mentor/frac_hint_{name}": share for name, share in origins.items()},
        **{f"mentor/{name.removeprefix('mentor_')}": float(total) for name, total in totals.items()},
    }
