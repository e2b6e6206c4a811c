"""The `mentor/*` metrics of one generation batch. Standard library only."""

from __future__ import annotations

from trl_mentor.bill import Bill
from trl_mentor.counters import Counters
from trl_mentor.records import Cause, Role

_OUTCOMES = (
    "collapsed",
    "all_correct",
    "unscorable",
    "rescued",
    "hint_saturated",
    "still_collapsed",
    "skipped",
    "held_back",
)
_ORIGINS = ("accepted", "fallback", "format", "not_asked", "failed")
_COUNTS = (
    "handed_over",
    "lessons",
    "dropped",
    "shortened",
    "reward_errors",
    "reroll_completions",
    "reroll_successes",
    "reroll_tokens",
    "reroll_seconds",
    "off_context_rows",
    "echoes",
    "echo_tokens",
    "conflicts",
    "another_round",
    "refilled",
    "other_groups",
    "opened_rows",
    "given_rows",
    "policy_tokens",
    "control_tokens",
    "padding_tokens",
    "probe_tokens",
)


def batch_metrics(batch: Counters, *, priced: bool = False) -> dict[str, float]:
    """The `mentor/*` metrics of one generation batch: the same keys for every batch of a run.

    `frac_time_*` are shares of the seconds since the batch before, all other `frac_*` of the groups of the batch.
    Trackers warn about values that are not numbers, so what may not have happened is left out where it did not:
    `mentor/staleness`, in optimizer steps per lesson, and without prices `mentor/cost`.
    """
    bill, groups = Bill.of(batch, priced=priced), max(batch.groups, 1)
    found: dict[str, float] = {
        **{f"frac_{name}": getattr(batch, name) / groups for name in _OUTCOMES},
        **{f"frac_cause_{cause}": getattr(batch, f"cause_{cause}") / groups for cause in Cause},
        **{f"frac_hint_{name}": getattr(batch, name) / groups for name in _ORIGINS},
        **{name: float(getattr(batch, name)) for name in _COUNTS},
        **_mentor_metrics(bill),
        "seconds": bill.waited_seconds,
        "seconds_hidden": bill.hidden_seconds,
        "frac_time_mentor": bill.share(bill.waited_seconds),
        "frac_time_reroll": bill.share(bill.reroll_seconds),
    }
    if batch.lessons:
        found["staleness"] = batch.staleness / batch.lessons
    if bill.cost is not None:
        found["cost"] = bill.cost
    return {f"mentor/{name}": value for name, value in found.items()}


def _mentor_metrics(bill: Bill) -> dict[str, float]:
    """What the mentor took, and its tokens by role: a bounded number of names."""
    spent = bill.mentor
    by_role = {
        f"{role}_{kind}": float(getattr(bill.spending.of(role), kind))
        for role in Role
        for kind in ("prompt_tokens", "completion_tokens")
    }
    return {
        "calls": float(spent.calls),
        "call_errors": float(spent.errors),
        "retries": float(spent.retries),
        "replayed": float(spent.replayed),
        "prompt_tokens": float(spent.prompt_tokens),
        "completion_tokens": float(spent.completion_tokens),
        "cached_tokens": float(spent.cached_tokens),
        "thinking_tokens": float(spent.thinking_tokens),
        **by_role,
    }
