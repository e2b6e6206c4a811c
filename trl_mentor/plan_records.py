"""Records of `trl-mentor plan`: the figures that it starts from and what it finds. Standard library only."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields

from trl_mentor.errors import ConfigError
from trl_mentor.settings import ScheduleKind

_MOST_GROUPS = 100_000
_ABOVE_ZERO = (
    "policy_tokens_per_second",
    "mentor_tokens_per_second",
    "mentor_prompt_tokens_per_second",
    "calls_per_group",
    "mentor_deadline",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInputs:
    """What the arithmetic starts from. A wrong value raises `ConfigError`. A figure with `help` is a flag, too."""

    ranks: int = field(metadata={"help": "GPUs that train."})
    groups: int = field(metadata={"help": "Groups of one generation batch, over all GPUs."})
    num_generations: int = field(metadata={"help": "Completions of a group."})
    completion_tokens: float = field(metadata={"help": "Mean tokens of a completion of the policy."})
    policy_tokens_per_second: float = field(
        metadata={"help": "Completion tokens that the policy generates per second on one GPU, all its rows together."}
    )
    roll_seconds: float = 0.0
    """Seconds of a roll that do not depend on its number of rows: weight sync, prompts, the longest completion."""
    length_spread: float = field(
        default=0.0,
        metadata={
            "help": "Standard deviation of completion lengths as a share of their mean; 0 if the policy's rate holds "
            "the slowest GPU."
        },
    )
    training_seconds: float = field(
        metadata={"help": "Seconds of a step without rolls and mentor: log-probabilities, loss, gradients, optimizer."}
    )
    collapse_share: float = field(
        metadata={"help": "Mean share of groups that collapse, from 0 to 1; the number in a batch is binomial."}
    )
    collapsed_groups: int | None = None
    """If given, exactly this many groups collapse in every batch, whatever `collapse_share` says."""
    calls_per_group: float = field(
        default=4.0,
        metadata={"help": "Mean calls to the mentor for one group: 3 at best, 9 at worst without re-asks."},
    )
    prompt_tokens_per_call: float = field(
        default=1500.0, metadata={"help": "Mean tokens that the mentor reads in a call."}
    )
    completion_tokens_per_call: float = field(
        default=400.0, metadata={"help": "Mean tokens that the mentor writes in a call."}
    )
    call_seconds: float | None = field(
        default=None, metadata={"help": "Measured seconds of a call, instead of tokens and rates."}
    )
    mentor_tokens_per_second: float = field(
        default=2000.0, metadata={"help": "Tokens that one replica writes per second with all its slots busy."}
    )
    mentor_prompt_tokens_per_second: float = field(
        default=20_000.0, metadata={"help": "Tokens that one replica reads per second."}
    )
    mentor_slots: int = field(default=32, metadata={"help": "Calls that one replica works on at once."})
    group_spread: float = field(
        default=0.3,
        metadata={"help": "Standard deviation of the seconds of one group's calls, as a share of their mean."},
    )
    replicas: int = field(default=1, metadata={"help": "Replicas of the mentor."})
    gpus_per_replica: int = field(default=1, metadata={"help": "GPUs of one replica."})
    mentor_max_concurrency: int = field(default=8, metadata={"help": "Groups that the trainer has mentored at once."})
    mentor_deadline: float = field(default=300.0, metadata={"help": "Seconds for all hints of one batch."})
    schedule: ScheduleKind = field(
        default=ScheduleKind.INLINE,
        metadata={"help": "inline (a step waits for its hints) or ahead (nothing waits)."},
    )
    mentor_queue_size: int = field(
        default=64, metadata={"help": "With ahead: most groups that wait for a hint or a place."}
    )

    def __post_init__(self) -> None:
        for item in fields(self):
            name, value = item.name, getattr(self, item.name)
            if name == "schedule" or value is None:
                continue
            whole = str(item.type).startswith("int")
            if not math.isfinite(value) or value < 0 or (whole and value != int(value)):
                raise ConfigError(f"{name} must be a {'whole ' * whole}number of at least 0, got {value!r}")
            if value == 0 and (item.type == "int" or name in _ABOVE_ZERO):
                raise ConfigError(f"{name} must be above 0, got {value!r}")
        if self.groups > _MOST_GROUPS:
            raise ConfigError(f"groups is {self.groups}, more than the {_MOST_GROUPS} that can be planned for")
        if self.collapse_share > 1:
            raise ConfigError(f"collapse_share is a share from 0 to 1, got {self.collapse_share!r}")
        if self.collapsed_groups is not None and self.collapsed_groups > self.groups:
            raise ConfigError(f"collapsed_groups is {self.collapsed_groups}, more than the {self.groups} groups")

    @property
    def seconds_per_call(self) -> float:
        """As measured; else reading, which shares the replica, and writing, at the rate of one of all busy slots."""
        if self.call_seconds is not None:
            return self.call_seconds
        sharing = min(self.mentor_slots, math.ceil(self.workers / self.replicas))
        reading = sharing * self.prompt_tokens_per_call / self.mentor_prompt_tokens_per_second
        return reading + self.mentor_slots * self.completion_tokens_per_call / self.mentor_tokens_per_second

    @property
    def seconds_per_group(self) -> float:
        """The calls for one group follow each other."""
        return self.calls_per_group * self.seconds_per_call

    @property
    def workers(self) -> int:
        """Groups that are worked on at once: no more than trainer and endpoint allow and, `ahead`, the queue holds."""
        workers = min(self.mentor_max_concurrency, self.replicas * self.mentor_slots)
        return workers if self.schedule is ScheduleKind.INLINE else min(workers, self.mentor_queue_size)

    @property
    def collapsed(self) -> float:
        """Groups that collapse in a batch on average."""
        return self.collapse_share * self.groups if self.collapsed_groups is None else float(self.collapsed_groups)


@dataclass(frozen=True, slots=True)
class Prediction:
    """One step on average; seconds unless a name says otherwise."""

    first_roll: float
    mentor_wait: float
    reroll: float
    training: float
    collapsed: float
    """Groups that collapse."""
    rerolled: float
    """Groups that are re-rolled: those with a hint (`inline`), or places that a lesson takes (`ahead`)."""
    utilisation: float
    """Share of their time that the mentor's workers would be busy if every collapsed group were mentored."""
    staleness: float
    """Steps from the collapse of a group to its lesson's re-roll; 0 with `inline`."""
    outstanding: float
    """With `ahead`: groups that wait for a hint or a place at once, and so the least `mentor_queue_size`."""

    @property
    def plain_step(self) -> float:
        """The same step of plain GRPO."""
        return self.first_roll + self.training

    @property
    def step(self) -> float:
        return self.plain_step + self.mentor_wait + self.reroll

    @property
    def overhead(self) -> float:
        """What the mentor adds, as a share of the plain step."""
        return (self.mentor_wait + self.reroll) / self.plain_step if self.plain_step else math.inf


@dataclass(frozen=True, slots=True)
class Need:
    """The mentor that a target takes."""

    workers: int
    """Groups worked on at once: the least `mentor_max_concurrency`."""
    replicas: int
    gpus: int
