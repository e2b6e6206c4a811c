"""The lot that decides which hints are withheld, so that a run shows what its hints do beyond a second roll.

A group enters when each arm could have it: its own hint is ready and fits, and so does the fixed one if that is an
arm. Only then is the lot drawn, and nothing after it can make a group leave: whatever made the mentor write, refuse,
fall back or fail is the same in all arms.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trl_mentor.plain import plain_json
from trl_mentor.records import Arm, Assignment, Guidance, HintOrigin, Intervention, Prompt, RerollOutcome, Role
from trl_mentor.rounds import by_group
from trl_mentor.tallies import Tallies

RECOVERED = (RerollOutcome.RESCUED, RerollOutcome.HINT_SATURATED)
"""The outcomes of a group in which some completion of the re-roll succeeds."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Draws arms by a hash of seed, step, place and prompt: the same on every rank and in a run that is resumed."""

    seed: int = 0
    control: float = 0.0
    """Share of the groups with a hint that are re-rolled on the plain question."""
    generic: float = 0.0
    """Share of them that are re-rolled under the fixed hint."""

    def draw(self, assignment: Assignment) -> Arm | None:
        """The arm of a group for which a hint is ready; None if there is no trial."""
        if not self.control + self.generic:
            return None
        group = assignment.group
        number = unit_interval(self.seed, assignment.collapsed_at, group.index, prompt_key(group.prompt))
        if number < self.control:
            return Arm.CONTROL
        return Arm.GENERIC if number < self.control + self.generic else Arm.HINT


def prompt_key(prompt: Prompt) -> str:
    """16 hexadecimal digits that stand for a prompt."""
    text = json.dumps(plain_json(prompt), sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


def unit_interval(*parts: object) -> float:
    """A number of [0, 1) that looks drawn at random and depends on the parts alone."""
    digest = hashlib.sha256("\n".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:7], "big") / 2**56


def recovery(records: Iterable[Intervention], *, topics: bool = True) -> Tallies:
    """Which groups of the trial recovered, by arm and by what was known before the lot was drawn, in the first round.

    A data set may have a topic for each question, so that totals, which every checkpoint holds, leave topics out; the
    journal has them.
    """
    return Tallies.count(
        (f"{group[0].arm}/{stratum}", group[-1].outcome in RECOVERED)
        for group in by_group(records)
        if group[0].arm is not None and group[-1].outcome is not RerollOutcome.ANOTHER_ROUND
        for stratum in _strata(group[0], topics=topics)
    )


def _strata(record: Intervention, *, topics: bool) -> Iterator[str]:
    yield "all"
    yield f"cause:{record.group.cause}"
    if record.guidance is not None:
        yield f"verdict:{verdict_path(record.guidance)}"
    if topics and record.group.topic is not None:
        yield f"topic:{record.group.topic}"


def verdict_path(guidance: Guidance) -> str:
    """How a hint came through its reviews: `first_draft`, `repaired`, `retried`, else the origin of the hint."""
    if guidance.origin is not HintOrigin.ACCEPTED or not guidance.drafts:
        return str(guidance.origin)
    last = guidance.drafts[-1]
    if last.attempt > 1:
        return "retried"
    return "repaired" if last.role is Role.REPAIR else "first_draft"
