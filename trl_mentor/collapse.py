"""Which groups collapsed (section 3.1 of the paper): decided on success rewards, never on advantages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trl_mentor.errors import ConfigError
from trl_mentor.records import GroupState, RerollOutcome


@dataclass(frozen=True, slots=True)
class SuccessRule:
    """Says whether a completion succeeded, from the values of all reward functions.

    With `chosen` columns, a completion succeeds if each of these rewards that could be scored exceeds `threshold`,
    which is in the units of the reward itself. Without, the weighted sum of all rewards must exceed it, as TRL sums
    them. A completion that no relevant reward could score is unscorable, which is not a failure.
    """

    weights: tuple[float, ...]
    """Of the first so many rewards, which are all that count."""
    chosen: tuple[int, ...] = ()
    """Columns of the success rewards; empty means the weighted sum of all."""
    threshold: float = 0.0

    @classmethod
    def from_names(
        cls,
        names: Sequence[str],
        *,
        weights: Sequence[float],
        success_rewards: Sequence[str] = (),
        threshold: float = 0.0,
    ) -> SuccessRule:
        """Resolve reward names to columns; raises `ConfigError` for a name that is unknown or not unique."""
        for name in success_rewards:
            if names.count(name) != 1:
                found = "is not one of" if name not in names else "is not unique among"
                raise ConfigError(
                    f"mentor_success_rewards names {name!r}, which {found} the reward functions {list(names)}; "
                    "use the names under which TRL logs them (rewards/<name>/mean), each of them unique"
                )
        if math.isnan(threshold):
            raise ConfigError("mentor_success_threshold must be a number, got NaN")
        chosen = tuple(names.index(name) for name in success_rewards)
        return cls(weights=tuple(weights), chosen=chosen, threshold=threshold)

    def value(self, rewards: Sequence[float]) -> float:
        """The success reward of one completion; NaN if it is unscorable. `rewards` holds one value per function."""
        scored = [part for part in self.parts(rewards) if not math.isnan(part)]
        if not scored:
            return math.nan
        if self.chosen:
            return min(scored)
        return math.fsum(scored) if all(map(math.isfinite, scored)) else sum(scored)  # fsum raises for inf - inf

    def parts(self, rewards: Sequence[float]) -> list[float]:
        """What `value` is made of: the success rewards, or all of them with their weights; NaN if not scored."""
        if self.chosen:
            return [rewards[column] for column in self.chosen]
        return [weight * reward for weight, reward in zip(self.weights, rewards, strict=False)]

    def succeeds(self, value: float) -> bool:
        """Whether a success reward exceeds the threshold; NaN does not."""
        return exceeds(value, self.threshold)

    def succeeded(self, rewards: Sequence[float]) -> bool | None:
        """Whether one completion succeeded; None if it is unscorable. `rewards` holds one value per function."""
        value = self.value(rewards)
        return None if math.isnan(value) else self.succeeds(value)


def exceeds(value: float, threshold: float) -> bool:
    """Whether a success reward is above the threshold by more than its rounding.

    TRL holds rewards in single precision, where a reward of 0.1 is slightly more than a threshold of 0.1 and rewards
    that cancel do not sum to 0.
    """
    return value > threshold and not math.isclose(value, threshold, rel_tol=1e-6, abs_tol=1e-7)


def group_states(successes: Sequence[float], group_size: int, threshold: float = 0.0) -> list[GroupState]:
    """State of each group, in order.

    `successes` holds one success reward per completion, NaN where unscorable, in whole groups of `group_size`.
    """
    if group_size < 1 or len(successes) % group_size:
        raise ValueError(f"{len(successes)} success rewards are not a whole number of groups of {group_size}")
    return [
        _group_state(successes[start : start + group_size], threshold)
        for start in range(0, len(successes), group_size)
    ]


def find_collapsed(states: Sequence[GroupState]) -> list[int]:
    """Indices of the groups in which every scorable completion failed (the paper's set C)."""
    return [index for index, state in enumerate(states) if state is GroupState.COLLAPSED]


def find_unscorable(states: Sequence[GroupState]) -> list[int]:
    """Indices of the groups of which no completion could be scored."""
    return [index for index, state in enumerate(states) if state is GroupState.UNSCORABLE]


def reroll_outcome(successes: Sequence[float], threshold: float = 0.0) -> RerollOutcome:
    """What the re-roll of one collapsed group brought. A group that could not be scored is still collapsed."""
    match _group_state(successes, threshold):
        case GroupState.MIXED:
            return RerollOutcome.RESCUED
        case GroupState.ALL_CORRECT:
            return RerollOutcome.HINT_SATURATED
        case _:
            return RerollOutcome.STILL_COLLAPSED


def _group_state(successes: Sequence[float], threshold: float) -> GroupState:
    scorable = [exceeds(value, threshold) for value in successes if not math.isnan(value)]
    if not scorable:
        return GroupState.UNSCORABLE
    if not any(scorable):
        return GroupState.COLLAPSED
    return GroupState.ALL_CORRECT if all(scorable) else GroupState.MIXED
