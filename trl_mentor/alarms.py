"""Warnings that a person can act on, computed from what a run counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trl_mentor.counters import Counters

WORSE_BY = 0.2
"""A warning is repeated only when its share has grown by this much since."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """One condition: a share of groups that should stay below a threshold, and what to do when it does not."""

    part: Callable[[Counters], int]
    whole: Callable[[Counters], int]
    above: float
    """The share above which to warn."""
    window: int
    """The share is judged each time this many more groups of the whole have been seen."""
    advice: str
    """Text of the warning; `{share}` and `{failure}`, the newest reason of the mentor, are filled in."""


def _guided(seen: Counters) -> int:
    return seen.accepted + seen.fallback + seen.failed


def _rerolled_under_hints(seen: Counters) -> int:
    return seen.rescued + seen.hint_saturated + seen.still_collapsed if _guided(seen) else 0


ALARMS = (
    Alarm(
        part=lambda seen: seen.failed,
        whole=_guided,
        above=0.3,
        window=4,
        advice="the mentor failed for {share} of the groups it was asked about; they are trained on as they were. The "
        "last time: {failure}. If that does not say what to do, check that the endpoint is up and that the mentor's "
        "deadline and call timeout suit it.",
    ),
    Alarm(
        part=lambda seen: seen.dropped,
        whole=lambda seen: seen.handed_over,
        above=0.3,
        window=32,
        advice="{share} of the collapsed groups left the full queue before the mentor came to them. Set "
        "mentor_queue_size to at least the groups of a generation batch; if that does not help, groups collapse "
        "faster than lessons are written: raise mentor_max_concurrency or add mentor replicas.",
    ),
    Alarm(
        part=lambda seen: seen.fallback,
        whole=_guided,
        above=0.5,
        window=16,
        advice="{share} of the hints are the fallback hint, because no draft was accepted. The last time: {failure}. "
        "Replies that were cut off need a higher token limit or a mentor that does not think; for drafts judged LOW, "
        "read the critiques, and try a stronger mentor.",
    ),
    Alarm(
        part=lambda seen: seen.hint_saturated,
        whole=_rerolled_under_hints,
        above=0.7,
        window=16,
        advice="{share} of the re-rolled groups succeed completely under their hint, so their success gives no "
        "advantage. The hints may give too much away: read them in the journal.",
    ),
    Alarm(
        part=lambda seen: seen.still_collapsed,
        whole=_rerolled_under_hints,
        above=0.95,
        window=32,
        advice="{share} of the re-rolled groups fail again under their hint. The questions may be out of reach, the "
        "hints of no use, or the success reward too strict: compare completions and answers in the journal.",
    ),
    Alarm(
        part=lambda seen: seen.all_correct,
        whole=lambda seen: seen.groups,
        above=0.95,
        window=64,
        advice="{share} of the groups count as all correct. If that is too good to be true, wrong completions get a "
        "success reward above mentor_success_threshold: raise the threshold, or no group ever collapses.",
    ),
    Alarm(
        part=lambda seen: seen.unscorable,
        whole=lambda seen: seen.groups,
        above=0.05,
        window=32,
        advice="{share} of the groups could not be scored: the success reward is None or NaN for every completion. "
        "Such groups are never mentored; check the reward function.",
    ),
)


class Alarms:
    """Decides when to warn: each condition on windows of its own, once per run unless it gets clearly worse."""

    def __init__(self) -> None:
        self._seen = [Counters() for _ in ALARMS]
        self._warned = [-WORSE_BY for _ in ALARMS]

    def check(self, counted: Counters, *, failure: str = "") -> list[str]:
        """The warnings that are due after a further stretch of the run."""
        self._seen = [seen + counted for seen in self._seen]
        return list(self._due(failure or "no reason was given"))

    def _due(self, failure: str) -> Iterator[str]:
        for number, (alarm, seen) in enumerate(zip(ALARMS, self._seen, strict=True)):
            if alarm.whole(seen) < alarm.window:
                continue
            self._seen[number] = Counters()
            share = alarm.part(seen) / alarm.whole(seen)
            if share > alarm.above and share >= self._warned[number] + WORSE_BY:
                self._warned[number] = share
                yield alarm.advice.format(share=f"{share:.0%}", failure=failure)
