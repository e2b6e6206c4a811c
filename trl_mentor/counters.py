"""Totals of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from trl_mentor.records import Cause, GroupState, Guidance, HintOrigin, RerollOutcome, Row
from trl_mentor.spending import Spending
from trl_mentor.tallies import Tallies


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
    another_round: int = 0
    """Re-rolls of collapsed groups that another re-roll followed: most failed again; with `dapo` all may succeed."""
    refilled: int = 0
    """Groups in whose place another question of the data set was sampled; as groups they count as skipped."""
    other_groups: int = 0
    """Groups that had not collapsed and got other rows from the strategy."""
    opened_rows: int = 0
    """Completions of first rolls that were sampled under another prompt than the data set's."""
    given_rows: int = 0
    """Completions that were given, as demonstrations are, and not sampled."""
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
    held_back: int = 0
    """Those of them that were left because of `mentor_start_step` or `mentor_decay`, whatever their cause."""
    held_back_causes: Tallies = Tallies()
    """The same by cause."""
    reward_errors: int = 0
    """Exceptions in reward functions that counted as not scored, over all processes."""
    skipped_steps: int = 0
    """Optimizer steps left out because no completion had a gradient (`mentor_skip_empty_steps`)."""
    seconds: float = 0.0
    """Wall-clock seconds of training."""
    mentor_seconds: float = 0.0
    """Those of them that training waited for the mentor."""
    policy_tokens: int = 0
    """Completion tokens that the policy generated in training: first rolls, re-rolls and probes."""
    reroll_tokens: int = 0
    """Those of them that re-rolls generated, all arms and padding rows included."""
    control_tokens: int = 0
    """Those of the re-rolls that went to groups whose hint was withheld, CONTROL and GENERIC."""
    padding_tokens: int = 0
    """Those of the re-rolls that were generated a second time, so that every process generates equally many rows."""
    probe_tokens: int = 0
    """Those that probes generated, padding rows included."""
    completions: int = 0
    """Completions of the first rolls, without any hint."""
    successes: int = 0
    """Those of them that succeed."""
    reroll_completions: int = 0
    reroll_successes: int = 0
    """Completions that succeeded on the re-roll."""
    off_context_rows: int = 0
    """Rows that were trained under another prompt than they were sampled under."""
    echoes: int = 0
    """Those of them out of which a quoted hint was cut."""
    echo_tokens: int = 0
    """Tokens that were cut."""
    conflicts: int = 0
    """Re-rolled successes that are, token by token, an original failure of their group."""
    reroll_seconds: float = 0.0
    """Wall-clock seconds of generating and scoring re-rolls."""
    reliance_sum: float = 0.0
    """Sum of `Reliance.mean` over the successes of re-rolls under a hint for which it was measured."""
    reliance_lowest_sum: float = 0.0
    """The same of `Reliance.lowest`."""
    reliance_total_sum: float = 0.0
    """The same of `Reliance.total`."""
    reliance_count: int = 0
    """Those successes."""
    hinted_entropy_sum: float = 0.0
    """Sum of the policy's entropy over the tokens of all completions for which it was measured, under their hints."""
    plain_entropy_sum: float = 0.0
    """The same without the hints."""
    entropy_tokens: int = 0
    """Those tokens."""
    unhinted_echoes: int = 0
    """Completions of the first rolls that quote a hint although their prompt has none; see `unhinted_echo`."""
    echo_checked: int = 0
    """Completions of the first rolls in which one was looked for."""
    mentor: Spending = Spending()
    """What the mentor took; on the main process alone."""
    recovery: Tallies = Tallies()
    """Groups of the trial that recovered, by `<arm>/<stratum>`; see `trial.recovery`. On the main process alone."""
    transfer: Tallies = Tallies()
    """Prompts that came round again in training and are solved without a hint; see `transfer.transfer`."""
    probed: Tallies = Tallies()
    """The same of probes. They count apart, as a prompt that was probed may come round in training as well."""

    @property
    def calls(self) -> int:
        """Requests to the mentor."""
        return self.mentor.total.calls

    @property
    def replayed(self) -> int:
        """Replies of the mentor that came from the cache on disk, for which there was no request."""
        return self.mentor.total.replayed

    @property
    def hidden_seconds(self) -> float:
        """Seconds in which the mentor worked and training did not wait for it."""
        return max(self.mentor.busy_seconds - self.mentor_seconds, 0.0)

    @property
    def mentor_tokens(self) -> int:
        """Prompt and completion tokens of the mentor."""
        return self.mentor.total.tokens

    def __add__(self, other: Counters) -> Counters:
        return Counters(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Counters)))

    def __sub__(self, other: Counters) -> Counters:
        return Counters(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(Counters)))


@dataclass(frozen=True, slots=True)
class Booking:
    """What was added to the totals of a run at one time: at the end of a generation batch, a checkpoint, a run."""

    step: int
    """Optimizer steps done."""
    counters: Counters


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
    found = {f"cause_{cause}": number for cause, number in Counter(causes).items()}
    return Counters(**found)  # type: ignore[arg-type]  # all of these are counts


def count_held_back(causes: Iterable[Cause]) -> Counters:
    """Counters of the groups that are held back, of which these are the causes."""
    by_cause = Tallies.count((str(cause), True) for cause in causes)
    return Counters(held_back=sum(tally.groups for tally in by_cause.cells.values()), held_back_causes=by_cause)


def count_outcomes(outcomes: Iterable[RerollOutcome]) -> Counters:
    """Counters of what the interventions of one batch brought."""
    found = Counter(outcomes)
    return Counters(
        rescued=found[RerollOutcome.RESCUED],
        hint_saturated=found[RerollOutcome.HINT_SATURATED],
        still_collapsed=found[RerollOutcome.STILL_COLLAPSED],
        skipped=found[RerollOutcome.SKIPPED],
        another_round=found[RerollOutcome.ANOTHER_ROUND],
    )


def count_guidances(guidances: Iterable[Guidance | None]) -> Counters:
    """Counters of what the mentor did for the interventions of one batch."""
    given = [guidance for guidance in guidances if guidance is not None]
    origins = Counter(guidance.origin for guidance in given)
    return Counters(
        accepted=origins[HintOrigin.ACCEPTED],
        fallback=origins[HintOrigin.FALLBACK],
        failed=origins[HintOrigin.FAILED],
        format=origins[HintOrigin.FORMAT],
        not_asked=origins[HintOrigin.NOT_ASKED],
        shortened=sum(guidance.shortened for guidance in given),
    )


def count_reliances(rows: Iterable[Row]) -> Counters:
    """Counters of what the re-rolled rows owe to their hints, of those for which it was measured."""
    measured = [(row.reliance, row.success) for row in rows if row.reliance is not None]
    of_successes = [found for found, success in measured if success]
    return Counters(
        reliance_sum=sum(found.mean for found in of_successes),
        reliance_lowest_sum=sum(found.lowest for found in of_successes),
        reliance_total_sum=sum(found.total for found in of_successes),
        reliance_count=len(of_successes),
        hinted_entropy_sum=sum(found.hinted_entropy for found, _ in measured),
        plain_entropy_sum=sum(found.plain_entropy for found, _ in measured),
        entropy_tokens=sum(found.tokens for found, _ in measured),
    )


def outcomes(totals: Counters) -> dict[str, int]:
    """What became of the groups of a run, in the order in which a reader wants to know."""
    refilled = {"places of groups that other questions were sampled in": totals.refilled} if totals.refilled else {}
    return {
        "groups of completions": totals.groups,
        "collapsed: every completion failed": totals.collapsed,
        "re-rolled, and some completions succeed: a gradient again": totals.rescued,
        "re-rolled, and all succeed": totals.hint_saturated,
        "re-rolled, and none succeeds": totals.still_collapsed,
        "not re-rolled": totals.skipped,
        **refilled,
    }
