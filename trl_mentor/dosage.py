"""When in a run collapsed groups are mentored: not before a first step, and with a decay ever fewer of them.

Scaf-GRPO (arXiv 2510.19807) exempts the first 15 % of the steps, so that the policy solves first what it can solve by
itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trl_mentor.errors import ConfigError
from trl_mentor.records import Assignment
from trl_mentor.setting_checks import is_number
from trl_mentor.trial import prompt_key, unit_interval


class Decay(StrEnum):
    """How the share of the collapsed groups that are mentored goes on after the first step."""

    NONE = "none"  # all of them
    LINEAR = "linear"  # from all at the first step to none at the end of the run


@dataclass(frozen=True, slots=True)
class Dosage:
    """Which collapsed groups are mentored, by optimizer steps done, of `total`, and a lot: w(t) of them.

    w(t) = 0 before the first step s; then 1, or with `LINEAR` (total - t) / (total - s). The lot is a hash of seed,
    step, place and prompt: the same on every rank and in a run that is resumed, and another than that of a `Trial`.
    """

    seed: int = 0
    start: float = 0.0
    """The first step; below 1 a share of `total`, rounded to whole steps."""
    decay: Decay = Decay.NONE
    total: int = 0

    def __str__(self) -> str:
        """What is not the default, in words; empty if all is."""
        start = f"from {self.start:.0%} of the steps on" if self.start < 1 else f"from step {self.start:g} on"
        parts = [start if self.start else "", f"{self.decay} decay" if self.decay is not Decay.NONE else ""]
        return ", ".join(filter(None, parts))

    @property
    def first_step(self) -> int:
        """The optimizer steps that are done before a group is mentored."""
        return round(self.start * self.total) if self.start < 1 else int(self.start)

    def share(self, step: int) -> float:
        """The share of the groups of a batch that are mentored, so many optimizer steps done."""
        if step < self.first_step:
            return 0.0
        if self.decay is Decay.NONE:
            return 1.0
        return (self.total - step) / (self.total - self.first_step) if step < self.total else 0.0

    def objection(self, assignment: Assignment) -> str | None:
        """Why a group is not mentored, or None if it is."""
        group, step = assignment.group, assignment.collapsed_at
        if step < self.first_step:
            return f"mentor_start_step: no group is mentored before step {self.first_step}, and {step} are done"
        share = self.share(step)
        if share < 1 and unit_interval("dosage", self.seed, step, group.index, prompt_key(group.prompt)) >= share:
            return f"mentor_decay: the lot leaves {1 - share:.0%} of the groups after {step} of {self.total} steps"
        return None

    def warning(self) -> str | None:
        """What to tell the user of a run in which no group can be mentored, or None."""
        if not self.total or self.first_step < self.total:
            return None
        what = f"mentor_start_step={self.start:g}"
        if self.start < 1:
            return f"{what} is, rounded, all {self.total} steps of this run, so that no group is mentored; lower it"
        return (
            f"{what} is not reached in the {self.total} steps of this run, so that no group is mentored; lower it, or "
            "give it as a share of the steps, below 1"
        )


def check_start(value: object) -> None:
    """Raise `ConfigError` unless this is a whole number of steps or a share of them."""
    number = value if is_number(value) else -1
    if not (0 <= number < 1 or (number >= 1 and number == number // 1)):
        raise ConfigError(
            "mentor_start_step must be a whole number of optimizer steps, or a share of the run's steps of at least 0 "
            f"and less than 1, got {value!r}"
        )
