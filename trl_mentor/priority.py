"""Which collapsed groups to mentor first, when there may not be time or money for all. Standard library only.

What a hint will bring is not known beforehand. The order goes by what is known of the attempts, strongest sign first:

1. How many of them ended by themselves. Of one that was cut off nobody knows where it would have gone wrong, and under
   a hint it is cut off again.
2. Partial credit: some success reward is above the lowest, so that the policy is on its way.
3. How much they differ. A policy that always says the same is the least likely to say something else under a hint.
4. How much there is to read, which is what the prompts of a hint cost.

Groups that are alike in all of these keep their order in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

from trl_mentor.records import CollapsedGroup


def most_promising_first(groups: Sequence[CollapsedGroup], *, attempt_budget: int) -> list[int]:
    """Indices of the groups in the order in which to mentor them; `attempt_budget` is what is read, in characters."""
    return sorted(range(len(groups)), key=lambda index: _rank(groups[index], attempt_budget))


def _rank(group: CollapsedGroup, attempt_budget: int) -> tuple[float, bool, float, int]:
    """Less is better."""
    attempts = group.attempts
    count = max(len(attempts), 1)
    whole = sum(not attempt.truncated for attempt in attempts) / count
    rewards = [attempt.reward for attempt in attempts if attempt.reward is not None]
    partial_credit = bool(rewards) and max(rewards) > min(rewards)
    texts = [attempt.text for attempt in attempts]
    different = len(set(texts)) / count
    to_read = len(group.question) + min(sum(map(len, texts)), attempt_budget)
    return -whole, not partial_credit, -different, to_read
