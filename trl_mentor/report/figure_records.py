"""The figures of a report as records: plain numbers and strings, None where something was not measured."""

from __future__ import annotations

from dataclasses import dataclass

from trl_mentor.bill import Bill
from trl_mentor.records import Event, RunInfo
from trl_mentor.tallies import Tally
from trl_mentor.uplift import Comparison, UpliftRow


@dataclass(frozen=True, slots=True)
class Outcomes:
    """How the interventions of one kind ended; the four parts add up to `groups`."""

    name: str
    groups: int = 0
    rescued: int = 0
    hint_saturated: int = 0
    still_collapsed: int = 0
    skipped: int = 0

    @property
    def rerolled(self) -> int:
        return self.groups - self.skipped

    @property
    def recovered(self) -> Tally:
        """The re-rolled groups in which some completion succeeded."""
        return Tally(self.rerolled, self.rescued + self.hint_saturated)


@dataclass(frozen=True, slots=True)
class Counts:
    """Groups of the run by what became of them. What only bookings tell is None in a journal without any."""

    groups: int | None
    all_correct: int | None
    collapsed: int | None
    ended: Outcomes
    """The interventions, which are those of the collapsed groups and of the unscorable ones."""


@dataclass(frozen=True, slots=True)
class Point:
    """A stretch of the run: the groups of its batches by what was trained, and what it took.

    The first seven counts add up to `groups`. With `ahead` the lesson in a place may be another group's.
    """

    step: int
    """Optimizer steps done at its last batch."""
    groups: int
    all_correct: int
    mixed: int
    rescued: int
    hint_saturated: int
    still_collapsed: int
    not_rerolled: int
    """Collapsed and trained as it was."""
    unscorable: int
    completions: int
    successes: int
    """Completions of first rolls that succeed, without any hint."""
    first_tokens: int
    """Of first rolls."""
    reroll_tokens: int
    probe_tokens: int
    mentor_tokens: int
    """Prompts and completions of the mentor."""
    total_policy_tokens: int
    """Since the run began."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """How often re-rolled groups recovered, and what the hints did to it."""

    hinted: Tally
    """Groups that were re-rolled under a hint, the fixed ones included."""
    plain: Tally
    """Those that were re-rolled on the plain question."""
    uplift: tuple[UpliftRow, ...]
    """Hint against control, the row of all groups first; empty in a run without that lot."""
    uplift_over_generic: tuple[UpliftRow, ...]
    """Hint against the fixed hint; `control` of these rows is that arm."""


@dataclass(frozen=True, slots=True)
class CauseRow:
    """Why groups collapsed or were not scored, and what was done about it."""

    groups: int | None
    """Groups with this cause, whatever was done about them; None in a journal without bookings."""
    asked: int
    """Interventions in which the mentor was called."""
    outcomes: Outcomes
    """Its name is the cause."""


@dataclass(frozen=True, slots=True)
class Review:
    """The drafts that came to the same review of their group, the first, second, third..."""

    number: int
    high: int
    low: int
    unjudged: int
    """Never judged and so never used."""


@dataclass(frozen=True, slots=True)
class Grader:
    """The verdicts from one source."""

    source: str
    high: int
    low: int


@dataclass(frozen=True, slots=True)
class Drafts:
    """How drafts fare in review."""

    reviews: tuple[Review, ...]
    graders: tuple[Grader, ...]


@dataclass(frozen=True, slots=True)
class UsedHint:
    """A hint that groups were re-rolled under."""

    text: str
    outcomes: Outcomes


@dataclass(frozen=True, slots=True)
class Topics:
    """Interventions by topic. The journal holds collapsed groups alone: counts, not shares of a topic's questions."""

    rows: tuple[Outcomes, ...]
    """Those with the most interventions first; at most `figures.MOST`."""
    distinct: int


@dataclass(frozen=True, slots=True)
class Occasion:
    """Collapsed prompts that were answered again without a hint on one occasion, and how many were solved."""

    name: str
    """`training`, where a prompt came round again, or `probe`."""
    rescued: Tally
    """By what the re-roll had brought."""
    hint_saturated: Tally
    others: Tally
    """Still collapsed or not re-rolled."""
    comparison: Comparison | None
    """Rescued against others, whose prompts may be harder to begin with."""
    hint: Tally
    """By arm, whatever the re-roll had brought; empty for probes, whose prompts no lot has chosen."""
    control: Tally
    generic: Tally
    uplift: Comparison | None
    """Hint against control: a lot decided, so that the prompts are alike."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Whether what was learnt carries over to the plain question."""

    returns: int
    """On all occasions; the same prompt may come round in training and be probed."""
    rows: tuple[Occasion, ...]
    """By occasion, training first; those that there were."""


@dataclass(frozen=True, slots=True)
class Reliance:
    """`Row.reliance` of the successes under a hint, in nats per token: below 0 means that the policy leans on it."""

    count: int
    mean: float
    median: float
    lower: float
    """First quartile."""
    upper: float
    """Third quartile."""
    edges: tuple[float, ...]
    """Of the bins of a histogram, one more than there are bins."""
    bins: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Curve:
    """One metric of the evaluations."""

    name: str
    points: tuple[tuple[int, float], ...]
    """Steps and values."""


@dataclass(frozen=True, slots=True)
class Figures:
    """All that a report says about a run, but for the interventions one by one."""

    run: RunInfo
    step: int | None
    """Optimizer steps done at the newest line; None if nothing was written."""
    counts: Counts
    points: tuple[Point, ...]
    """The run in at most 100 stretches; empty without bookings."""
    recovery: Recovery
    causes: tuple[CauseRow, ...]
    verdict_paths: tuple[Outcomes, ...]
    """By `trial.verdict_path`."""
    drafts: Drafts
    hints: tuple[UsedHint, ...]
    """Those used most often, of which groups without their text are left out; at most `figures.MOST`."""
    topics: Topics
    bill: Bill | None
    """None without bookings."""
    repeated: Bill | None
    """What was spent on steps that a resumed run did again, which is not in `bill`; None if nothing was."""
    transfer: Transfer
    reliance: Reliance | None
    evaluations: tuple[Curve, ...]
    """The rewards: other metrics are left out."""
    events: tuple[Event, ...]
    skipped_lines: int
    superseded: int
