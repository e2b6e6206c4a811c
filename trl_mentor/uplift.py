"""What the trial and the returns show, as rates with intervals: did the hints help, and does it carry over?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from trl_mentor.counters import Counters
from trl_mentor.records import Arm, RerollOutcome
from trl_mentor.tallies import Tallies, Tally

CONFIDENCE = 0.95

_KINDS = ("all", "cause", "verdict", "topic")
_LOGGED = ("cause", "verdict")


@dataclass(frozen=True, slots=True)
class Rate:
    """A share of groups and its 95 % interval (Wilson 1927)."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The difference between two shares and its 95 % interval (Newcombe 1998, method 10)."""

    treated: Rate
    control: Rate
    difference: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class UpliftRow:
    """What hints did in one stratum of the groups."""

    kind: str
    """`all`, `cause`, `verdict` or `topic`."""
    name: str
    """Which cause, verdict or topic, as the data set has it; empty for all groups."""
    hint: Tally
    """Groups re-rolled under their hints, and those of them that recovered."""
    control: Tally
    """Those whose hint was withheld."""
    comparison: Comparison | None
    """Rates, uplift and interval; None if one of the arms has no group here."""


@lru_cache(maxsize=4096)  # of the same few cells at every log, and a millisecond each
def rate(tally: Tally) -> Rate | None:
    """The share of hits; None if nothing was counted."""
    if not tally.groups:
        return None
    from scipy.stats import binomtest  # 1.5 s to load, which runs without a control are spared

    interval = binomtest(tally.hits, tally.groups).proportion_ci(CONFIDENCE, method="wilson")
    return Rate(tally.hits / tally.groups, float(interval.low), float(interval.high))


def compare(treated: Tally, control: Tally) -> Comparison | None:
    """The difference treated - control; None if one of them is empty."""
    first, second = rate(treated), rate(control)
    if first is None or second is None:
        return None
    difference = first.value - second.value
    below = ((first.value - first.low) ** 2 + (second.high - second.value) ** 2) ** 0.5
    above = ((first.high - first.value) ** 2 + (second.value - second.low) ** 2) ** 0.5
    return Comparison(first, second, difference, difference - below, difference + above)


def uplift(recovery: Tallies, stratum: str = "all", *, against: Arm = Arm.CONTROL) -> Comparison | None:
    """How much more often groups recover under their hints than in the arm `against`."""
    return compare(recovery[f"{Arm.HINT}/{stratum}"], recovery[f"{against}/{stratum}"])


def difference_text(comparison: Comparison) -> str:
    """A difference in percentage points with its interval, such as `+54.1 points [+40.2, +66.0]`."""
    difference, low, high = (100 * value for value in (comparison.difference, comparison.low, comparison.high))
    return f"{difference:+.1f} points [{low:+.1f}, {high:+.1f}]"


def rate_text(found: Rate) -> str:
    """A share with its interval, such as `57.1% [45.5%, 68.1%]`."""
    return f"{found.value:.1%} [{found.low:.1%}, {found.high:.1%}]"


def uplift_table(recovery: Tallies, *, against: Arm = Arm.CONTROL) -> list[UpliftRow]:
    """One row for each stratum: all groups, then causes, verdicts and topics, each kind by its number of groups.

    Empty in a run without this arm.
    """
    suffixes = {name.partition("/")[2] for name in recovery.cells if name.partition("/")[0] in (Arm.HINT, against)}
    rows = [_row(recovery, suffix, against) for suffix in sorted(suffixes)]
    rows.sort(key=lambda row: (_KINDS.index(row.kind), -(row.hint.groups + row.control.groups)))
    return rows if any(row.control.groups for row in rows) else []


def _row(recovery: Tallies, stratum: str, against: Arm) -> UpliftRow:
    kind, _, name = stratum.partition(":")
    hint, control = recovery[f"{Arm.HINT}/{stratum}"], recovery[f"{against}/{stratum}"]
    return UpliftRow(kind, name, hint, control, compare(hint, control))


def rescued_and_others(transfer: Tallies) -> tuple[Tally, Tally]:
    """Returns of prompts that were rescued, and of those that collapsed and were not: the baseline."""
    baseline = transfer[RerollOutcome.STILL_COLLAPSED] + transfer[RerollOutcome.SKIPPED]
    return transfer[RerollOutcome.RESCUED], baseline


def transfer_uplift(transfer: Tallies, *, against: Arm = Arm.CONTROL) -> Comparison | None:
    """How much more often prompts are solved without a hint later if their hint was given than in the arm `against`.

    The lot decided between the two, so that, unlike rescued prompts and others, they are alike but for the hint.
    """
    return compare(transfer[f"arm:{Arm.HINT}"], transfer[f"arm:{against}"])


def run_metrics(window: Counters, totals: Counters) -> dict[str, float]:
    """The `mentor/*` metrics of one log window and, as `mentor/total/*`, of the run so far.

    A rate of what did not happen is left out. The totals also say what hints did by cause and by verdict.
    """
    return _rates(window, "mentor/") | _rates(totals, "mentor/total/") | _by_stratum(totals.recovery)


def _rates(counters: Counters, prefix: str) -> dict[str, float]:
    found: dict[str, float] = {}
    if (comparison := uplift(counters.recovery)) is not None:
        found["recovery_hint"], found["recovery_control"] = comparison.treated.value, comparison.control.value
        found |= _with_interval("uplift", comparison)
    if (generic := uplift(counters.recovery, against=Arm.GENERIC)) is not None:
        found["recovery_generic"] = generic.control.value
        found |= _with_interval("uplift_over_generic", generic)
    found |= _carried_over(counters.transfer, "transfer") | _carried_over(counters.probed, "probe")
    if counters.reliance_count:
        found["hint_reliance"] = counters.reliance_sum / counters.reliance_count
        found["hint_reliance_token_min"] = counters.reliance_lowest_sum / counters.reliance_count
        found["hint_reliance_row_sum"] = counters.reliance_total_sum / counters.reliance_count
    if counters.entropy_tokens:
        found["reroll_entropy_hinted"] = counters.hinted_entropy_sum / counters.entropy_tokens
        found["reroll_entropy_plain"] = counters.plain_entropy_sum / counters.entropy_tokens
    if counters.echo_checked:
        found["unhinted_echo_rate"] = counters.unhinted_echoes / counters.echo_checked
    if counters.skipped_steps:
        found["skipped_steps"] = float(counters.skipped_steps)
    return {prefix + name: value for name, value in found.items()}


def _by_stratum(recovery: Tallies) -> dict[str, float]:
    """Such as `mentor/total/cause_knowledge/uplift`: a bounded number of names.

    None is another's with `/` and more after it, which would be a file and a folder of one name for some trackers.
    """
    return {
        f"mentor/total/{row.kind}_{row.name}/{name}": value
        for row in uplift_table(recovery)
        if row.comparison is not None and row.kind in _LOGGED
        for name, value in _with_interval("uplift", row.comparison).items()
    }


def _with_interval(name: str, comparison: Comparison) -> dict[str, float]:
    return {name: comparison.difference, f"{name}_low": comparison.low, f"{name}_high": comparison.high}


def _carried_over(answered: Tallies, name: str) -> dict[str, float]:
    rescued, others = rescued_and_others(answered)
    kinds = {"": rescued, "_unrescued": others, "_saturated": answered[RerollOutcome.HINT_SATURATED]}
    found = {f"{name}_rate{kind}": tally.hits / tally.groups for kind, tally in kinds.items() if tally.groups}
    if (comparison := transfer_uplift(answered)) is not None:
        found |= _with_interval(f"{name}_uplift", comparison)
    return found
