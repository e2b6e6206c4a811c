"""Totals of a run, and the metrics of one generation batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from trl_mentor.records import Cause, GroupState, Guidance, HintOrigin, RerollOutcome


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
    cause_cut_off: int = 0
    """Collapsed and unscorable groups by their cause, whatever was done about them."""
    cause_format: int = 0
    cause_duplicates: int = 0
    cause_unscorable: int = 0
    cause_verifier_error: int = 0
    cause_knowledge: int = 0
    accepted: int = 0
    fallback: int = 0
    failed: int = 0
    format: int = 0
    """Groups that got the fixed hint about the form of the answer."""
    not_asked: int = 0
    """Groups for which the mentor was not asked, and which got no hint."""
    calls: int = 0
    """Requests to the mentor."""
    call_errors: int = 0
    replayed: int = 0
    """Replies of the mentor that came from the cache on disk, for which there was no request."""
    reward_errors: int = 0
    """Exceptions in reward functions that counted as not scored, over all processes."""
    mentor_prompt_tokens: int = 0
    mentor_completion_tokens: int = 0
    mentor_cached_tokens: int = 0
    """Those of the prompts that the endpoint had computed before."""
    mentor_thinking_tokens: int = 0
    """Those of the completions that were thinking."""
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


def count_causes(causes: Iterable[Cause]) -> Counters:
    """Counters of why the collapsed and unscorable groups of one batch are so."""
    return Counters(**{f"cause_{cause}": number for cause, number in Counter(causes).items()})


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
    every = [call for guidance in given for call in guidance.calls]
    calls = [call for call in every if not call.replayed]
    return Counters(
        accepted=origins[HintOrigin.ACCEPTED],
        fallback=origins[HintOrigin.FALLBACK],
        failed=origins[HintOrigin.FAILED],
        format=origins[HintOrigin.FORMAT],
        not_asked=origins[HintOrigin.NOT_ASKED],
        shortened=sum(guidance.shortened for guidance in given),
        calls=len(calls),
        call_errors=sum(call.error is not None for call in calls),
        replayed=len(every) - len(calls),
        mentor_prompt_tokens=sum(call.usage.prompt_tokens for call in calls),
        mentor_completion_tokens=sum(call.usage.completion_tokens for call in calls),
        mentor_cached_tokens=sum(call.usage.cached_tokens for call in calls),
        mentor_thinking_tokens=sum(call.usage.thinking_tokens for call in calls),
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
    causes = {str(cause): getattr(batch, f"cause_{cause}") / groups for cause in Cause}
    origins = {
        name: getattr(batch, name) / groups for name in ("accepted", "fallback", "format", "not_asked", "failed")
    }
    totals = {
        "handed_over": batch.handed_over,
        "lessons": batch.lessons,
        "dropped": batch.dropped,
        "shortened": batch.shortened,
        "mentor_calls": batch.calls,
        "mentor_call_errors": batch.call_errors,
        "replayed": batch.replayed,
        "reward_errors": batch.reward_errors,
        "mentor_prompt_tokens": batch.mentor_prompt_tokens,
        "mentor_completion_tokens": batch.mentor_completion_tokens,
        "mentor_cached_tokens": batch.mentor_cached_tokens,
        "mentor_thinking_tokens": batch.mentor_thinking_tokens,
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
        **{f"mentor/frac_cause_{name}": share for name, share in causes.items()},
        **{f"mentor/frac_hint_{name}": share for name, share in origins.items()},
        **{f"mentor/{name.removeprefix('mentor_')}": float(total) for name, total in totals.items()},
    }
