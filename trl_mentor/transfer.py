"""Prompts that collapsed, remembered until they come round again: does the policy solve them without a hint now?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trl_mentor.records import Arm, RerollOutcome, Return
from trl_mentor.tallies import Tallies

CAPACITY = 50_000
"""Prompts that are remembered; beyond, the oldest are forgotten. They are in every checkpoint, 50 bytes each."""


@dataclass(frozen=True, slots=True)
class Past:
    """How the last intervention for a prompt ended."""

    step: int
    outcome: RerollOutcome
    arm: Arm | None = None


class Memory:
    """The collapsed prompts by their key, equal on every rank."""

    def __init__(self) -> None:
        self._past: dict[str, Past] = {}

    def __len__(self) -> int:
        return len(self._past)

    def __contains__(self, key: str) -> bool:
        return key in self._past

    def remember(self, key: str, past: Past) -> None:
        """Keep how the newest intervention for a prompt ended."""
        self._past.pop(key, None)
        self._past[key] = past
        if len(self._past) > CAPACITY:
            del self._past[next(iter(self._past))]

    def recall(self, key: str) -> Past | None:
        """How it ended, once: the next return of the prompt says nothing more about it."""
        return self._past.pop(key, None)

    def state(self) -> dict[str, list[Any]]:
        """What is remembered, as plain JSON."""
        return {key: [past.step, str(past.outcome), past.arm and str(past.arm)] for key, past in self._past.items()}

    def restore(self, state: Mapping[str, list[Any]]) -> None:
        """Take over what `state` returned."""
        self._past = {
            key: Past(int(step), RerollOutcome(outcome), None if arm is None else Arm(arm))
            for key, (step, outcome, arm) in state.items()
        }


def transfer(returns: Iterable[Return]) -> Tallies:
    """Which of the prompts that came round again are solved, by what their intervention brought and by arm."""
    return Tallies.count((name, item.solved) for item in returns for name in _cohorts(item))


def _cohorts(item: Return) -> Iterator[str]:
    yield str(item.outcome)
    if item.arm is not None:
        yield f"arm:{item.arm}"
