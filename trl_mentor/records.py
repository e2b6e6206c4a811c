"""Records of one intervention, in the order in which they come to be. Standard library only.

A *group* is the `num_generations` completions of one prompt. A *collapsed* group is one whose every scorable
completion failed (section 3.1 of the paper). Everything here is frozen and picklable, and becomes plain JSON in the
journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

Message = dict[str, Any]
"""One chat message: at least `role` and `content`."""

Prompt = str | list[Message]
"""A prompt as TRL holds it: plain text or a conversation."""

Completion = str | list[Message]
"""A completion as TRL hands it to reward functions: the same shape as its prompt."""

UNWRITTEN = "unwritten"
"""Key in the metadata of a field that `plain_json` leaves out."""


class GroupState(StrEnum):
    """What the success rewards say about a group; the four values are disjoint."""

    COLLAPSED = "collapsed"  # at least one scorable completion, none succeeded
    ALL_CORRECT = "all_correct"  # at least one scorable completion, all succeeded
    MIXED = "mixed"  # some succeeded, some failed: GRPO learns from it without help
    UNSCORABLE = "unscorable"  # no completion could be scored


class Cause(StrEnum):
    """Why every scorable attempt of a group failed, decided before a mentor is asked; the values are disjoint."""

    CUT_OFF = "cut_off"  # every completion ran into the length limit
    FORMAT = "format"  # the verifier found no answer to judge, or no completion keeps to the form asked for
    DUPLICATES = "duplicates"  # all completions are the same, word for word
    UNSCORABLE = "unscorable"  # the success reward is None for every completion
    VERIFIER_ERROR = "verifier_error"  # a reward function raised an exception or reported one
    KNOWLEDGE = "knowledge"  # none of these: there is something to learn


class Route(StrEnum):
    """What is done about a cause."""

    MENTOR = "mentor"  # diagnosis, hint and review
    FORMAT_HINT = "format_hint"  # a fixed hint about the form of the answer; no call to the mentor
    SKIP = "skip"  # nothing, and a warning that says what to change


class Role(StrEnum):
    """The four agents of section 3.2 of the paper."""

    ATTRIBUTION = "attribution"
    GENERATION = "generation"
    JUDGMENT = "judgment"
    REPAIR = "repair"


class Quality(StrEnum):
    """The judge's two grades."""

    HIGH = "HIGH"
    LOW = "LOW"


class VerdictSource(StrEnum):
    """Who graded a draft."""

    RULES = "rules"  # a formal rule refused it; the judge was not asked
    JUDGE = "judge"  # the judgment agent said so
    UNREADABLE = "unreadable"  # the judge's reply could not be read, which counts as LOW
    SKIPPED = "skipped"  # the ablation without a judge accepts what the rules let through


class HintOrigin(StrEnum):
    """How the hint of a group came to be."""

    ACCEPTED = "accepted"  # a draft was judged HIGH
    FALLBACK = "fallback"  # no draft was accepted: the fixed safe hint
    FORMAT = "format"  # the fixed hint about the form of the answer; the mentor was not asked
    NOT_ASKED = "not_asked"  # no hint: not one for this cause, a budget is spent, mentoring is paused or held back
    FAILED = "failed"  # no hint: the mentor could not be asked or was too slow, or the policy cannot take the hint
    DROPPED = "dropped"  # no hint: the group left the full queue of the `ahead` schedule before its turn


class RerollOutcome(StrEnum):
    """What the re-roll of a collapsed group brought; the values are disjoint, and all but the last end the group.

    With the construction `replace`, the success reward gives a gradient to rescued groups alone.
    """

    RESCUED = "rescued"  # some hinted completions succeed, some fail
    HINT_SATURATED = "hint_saturated"  # all succeed
    STILL_COLLAPSED = "still_collapsed"  # none succeeds
    SKIPPED = "skipped"  # not re-rolled
    ANOTHER_ROUND = "another_round"  # the strategy re-rolls it once more: a later record says how it ended


class Weighting(StrEnum):
    """How the loss weighs the tokens of a row beside its advantage; the formulas are in `weighting`."""

    NONE = "none"  # as TRL does
    SHAPED = "shaped"  # LUFFY's shaping, which favours tokens that the policy finds unlikely
    AFFINITY = "affinity"  # HINT's factor, which falls as the policy moves away from the one that generated


class Ablation(StrEnum):
    """The parts that the paper takes out in its ablations."""

    NO_ATTRIBUTION = "no_attribution"  # hints are written without a diagnosis
    NO_GENERATION = "no_generation"  # the keywords of the diagnosis are the first draft
    NO_JUDGE = "no_judge"  # what the formal rules let through is accepted


def calls_for_a_hint(ablation: Ablation | None) -> int:
    """How many calls a hint takes at least: diagnosis, draft and verdict, of which an ablation leaves two."""
    return 3 if ablation is None else 2


class Arm(StrEnum):
    """What a lot gave a group for which a hint was ready, in a run with a control; the three values are disjoint."""

    HINT = "hint"  # re-rolled under its hint
    CONTROL = "control"  # the hint was withheld: re-rolled on the plain question
    GENERIC = "generic"  # the hint was withheld: re-rolled under the fixed hint of the domain


class EventKind(StrEnum):
    """What can happen to the mentor as a whole."""

    PAUSED = "paused"  # an endpoint failed too often and is left alone for a while
    RESUMED = "resumed"  # it works again
    BUDGET_SHORT = "budget_short"  # a budget does not reach for every group of a batch
    BUDGET_SPENT = "budget_spent"  # a budget is used up


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to the mentor as a whole and not to one group."""

    kind: EventKind
    text: str
    """What happened and what to do about it, as it was logged."""
    step: int = 0
    """Optimizer steps done when the trainer heard of it."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one mentor call as the endpoint counted them; 0 where it did not."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """Those of the prompt that the endpoint had computed before (prefix caching)."""
    thinking_tokens: int = 0
    """Those of the completion that were thinking."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a backend returns for one chat request."""

    text: str
    usage: Usage = Usage()
    truncated: bool = False
    """True when the endpoint stopped at its token limit."""
    thinking: str = ""
    """The model's thinking where the endpoint returns it apart from the reply."""
    endpoint: str | None = None
    """Which of several endpoints answered."""
    requests: int = 1
    """Requests that it took: more than one where earlier ones failed. `usage` is that of all of them."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One failed completion as the mentor reads it (the paper's trajectory tau_j)."""

    text: str
    reward: float | None = None
    """The success reward; None if the completion could not be scored."""
    truncated: bool = False
    """True when the completion ran into `max_completion_length` and ended there."""
    feedback: str | None = None
    """What the verifier reported beyond the reward, such as the tests that failed; shown to attribution alone."""
    success: bool = field(default=False, metadata={UNWRITTEN: True})
    """True for one that succeeded, as none of a collapsed group has; strategies read other groups too."""


@dataclass(frozen=True, slots=True)
class CollapsedGroup:
    """A question whose every scorable attempt failed (the paper's q_i, a_i, {tau_j})."""

    question: str
    attempts: tuple[Attempt, ...]
    answer: str | None = None
    prompt: Prompt = ""
    """The prompt as the dataset holds it; `question` is what the mentor reads of it."""
    index: int = 0
    """Position of the group in the generation batch. Groups are keyed by position, never by text."""
    cause: Cause = Cause.KNOWLEDGE
    """Why it collapsed."""
    cause_detail: str = ""
    """What shows the cause, in one line; empty for KNOWLEDGE."""
    topic: str | None = None
    """What the question is about, as a column of the data set says."""
    earlier_hints: tuple[str, ...] = ()
    """The hints of earlier rounds of this batch, which did not help; oldest first."""
    round: int = field(default=1, metadata={UNWRITTEN: True})
    """Which re-roll in this batch a lesson is asked for; `Intervention.round` has it in the journal."""
    material: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False, metadata={UNWRITTEN: True})
    """Values of the columns that the strategy asks for (`columns`), such as demonstrations; not in the journal."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The grade of one draft and why."""

    quality: Quality
    critique: str
    source: VerdictSource


@dataclass(frozen=True, slots=True)
class Draft:
    """A candidate hint (the paper's h-hat) and its verdict; None if it was never judged and so never used."""

    text: str
    role: Role
    """GENERATION or REPAIR; ATTRIBUTION where the ablation without generation uses the keywords themselves."""
    attempt: int
    """Outer attempt it belongs to, from 1 to `max_retry`."""
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One question to the mentor, repeated or not: its tokens, seconds and, if there was no reply, the error."""

    role: Role
    seconds: float
    usage: Usage = Usage()
    error: str | None = None
    thinking_chars: int = 0
    """Characters of thinking that came with the reply and were taken out."""
    replayed: bool = False
    """True when the reply came from the cache on disk: no request was made and no tokens were spent."""
    endpoint: str | None = None
    """Which of several endpoints answered or failed."""


@dataclass(frozen=True, slots=True)
class Guidance:
    """Everything the mentor did for one collapsed group (section 3.2 of the paper)."""

    hint: str | None
    """The hint to use (the paper's h*); None when `origin` is FAILED, NOT_ASKED or DROPPED."""
    origin: HintOrigin
    diagnosis: tuple[str, ...] = ()
    """Keywords of the attribution agent (the paper's K_i)."""
    drafts: tuple[Draft, ...] = ()
    calls: tuple[Call, ...] = ()
    seconds: float = 0.0
    """Wall-clock seconds from start to result for this group."""
    reason: str = ""
    """Why there was a fallback or a failure; empty for an accepted hint."""
    shortened: bool = False
    """True when the hint lost sentences at its end, because the whole would not fit into the policy's context."""

    def without_hint(self, reason: str) -> Guidance:
        """The same work of the mentor, with a hint that cannot be used."""
        return replace(self, hint=None, origin=HintOrigin.FAILED, reason=reason, shortened=False)


@dataclass(frozen=True, slots=True)
class Roll:
    """What one row of a re-roll comes from."""

    prompt: Prompt
    """What it is sampled under."""
    hint: str | None = None
    """The hint in this prompt."""
    given: str | None = None
    """The completion where it is given, as a demonstration is, and not sampled; it is then scored under `prompt`."""
    attempt: str | None = None
    """The earlier completion that the prompt quotes, where it is to be refined."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a strategy wants done with one selected group: the prompt to re-roll it under, or None to leave it."""

    prompt: Prompt | None
    """With `rolls` that of the first of them."""
    hint: str | None = None
    guidance: Guidance | None = None
    arm: Arm | None = None
    """What the lot gave; None in a run without a control, and where there was no hint to withhold."""
    rolls: tuple[Roll, ...] = ()
    """One for each row of the re-roll, of which there may be any number; empty for as many rows as the group has, all
    under `prompt` and `hint`."""
    example: Mapping[str, Any] | None = None
    """The data set row of another question, which takes the place of the group; None for the group's own."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A collapsed group on its way to a lesson, with all that a later re-roll needs of it."""

    group: CollapsedGroup
    example: Mapping[str, Any]
    """The data set row, prompt and all, that the members of the group share; reward functions are shown it."""
    collapsed_at: int
    """Optimizer steps done when the group was generated."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """An assignment and the lesson that came of it; one without a prompt ends without a re-roll."""

    assignment: Assignment
    lesson: Lesson


@dataclass(frozen=True, slots=True)
class Reliance:
    """What the policy makes of a completion of T tokens without its hint (q) and under it (q'), in nats.

    The log-ratio of a token is log pi(token | q, before) - log pi(token | q', before): below 0 it owes to the hint.
    """

    mean: float
    """Of the log-ratios over the T tokens."""
    lowest: float
    """The lowest of them, that of the token that owes most to the hint."""
    total: float
    """Their sum."""
    hinted_entropy: float
    """Sum over the T tokens of the policy's entropy under q'."""
    plain_entropy: float
    """The same under q."""
    tokens: int
    """T."""


@dataclass(frozen=True, slots=True)
class Row:
    """One completion on its way into the loss, with the prompt that it is scored under."""

    prompt_ids: list[int]
    completion_ids: list[int]
    completion: Completion
    logprobs: list[float] | None
    """Sampling log-probabilities, shape (len(completion_ids),), NaN where they are not known under this prompt; None
    when the generator does not report them."""
    rewards: tuple[float, ...]
    """One value per reward function, NaN where it returned None."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Columns that reward functions logged for this row through `log_extra`."""
    hint: str | None = None
    """The hint that it was sampled under."""
    success: bool | None = None
    """Whether its success reward is above the threshold; None if it could not be scored."""
    score: float | None = None
    """Its success reward; None if it could not be scored."""
    off_context: bool = False
    """True when `prompt_ids` are not those that it was sampled under."""
    weighting: Weighting = Weighting.NONE
    reliance: Reliance | None = None
    """What it owes to `hint`; None where it was not measured."""


@dataclass(frozen=True, slots=True)
class Intervention:
    """Everything that happened to one collapsed group, from attempts to new rewards: one record of the journal."""

    step: int
    """Optimizer steps done when the intervention ended: 0 for the batch of the first step, which TRL logs as 1."""
    strategy: str
    group: CollapsedGroup
    guidance: Guidance | None
    """None for what strategies do that ask no mentor."""
    outcome: RerollOutcome
    completions: tuple[str, ...] = ()
    """Texts of the re-rolled completions; empty when the group was not re-rolled."""
    successes: tuple[float | None, ...] = ()
    """Success reward of each re-rolled completion; None if unscorable."""
    rewards: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """Every reward function's values for the re-rolled completions, by name."""
    reroll_tokens: int = 0
    """Completion tokens that the re-roll generated for this group."""
    collapsed_at: int | None = None
    """Optimizer steps done when the group collapsed: less than `step` if its lesson took a later group's place."""
    arm: Arm | None = None
    """What the lot gave in a run with a control; with CONTROL and GENERIC the hint of `guidance` was withheld."""
    round: int = 1
    """Which re-roll of the group in this batch it was."""
    hints: tuple[str | None, ...] = ()
    """The hint of each re-rolled completion, where no mentor wrote it; empty where `guidance` has it."""
    reliances: tuple[float | None, ...] = ()
    """Mean log-ratio of each re-rolled completion (`Reliance.mean`), where it was measured."""


@dataclass(frozen=True, slots=True)
class Return:
    """A prompt that collapsed before, answered again without a hint: does what was learnt carry over?"""

    step: int
    """Optimizer steps done when it came round again."""
    prompt_key: str
    """`prompt_key` of the prompt."""
    since: int
    """Optimizer steps done when its intervention ended."""
    outcome: RerollOutcome
    """What that intervention brought."""
    arm: Arm | None
    successes: int
    completions: int
    probe: bool = False
    """True when the completions were generated to find out, False when the prompt came round in training."""

    @property
    def solved(self) -> bool:
        """Whether some completion succeeded."""
        return self.successes > 0


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What one evaluation measured."""

    step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What a reader of a journal needs to know of its run; None and 0 where it is not known."""

    strategy: str = ""
    schedule: str = ""
    model: str = ""
    """The policy."""
    mentor: str = ""
    domain: str = ""
    """Of the mentor's templates and leak rules."""
    seed: int = 0
    num_generations: int = 0
    world_size: int = 0
    control_fraction: float = 0.0
    generic_fraction: float = 0.0
    success_threshold: float = 0.0
    """A success reward above it is a success."""
    rescue: str = ""
    """Which rows of a re-rolled group are trained, and under which prompt; empty where a strategy does not say."""
    dosage: str = ""
    """When in the run groups are mentored, as `Dosage` says it; empty for from the first step to the last."""
    priced: bool = False
    """Whether prices were given, so that `cost` means something."""
    version: str = ""
    """Of this package."""
