"""Warnings that a person can act on, computed from what a run counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from trl_mentor.causes import DEFAULT_ROUTES
from trl_mentor.counters import Counters
from trl_mentor.records import Cause, Route
from trl_mentor.rescue import Construction
from trl_mentor.stall import StallAlarm

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
    """Text of the warning; `{share}`, `{failure}`, the newest reason of the mentor, and `{detail}`, what showed the
    newest of the cause, are filled in."""
    cause: Cause | None = None
    """The cause of collapse that it is about: no warning where the mentor is asked about it."""


def _guided(seen: Counters) -> int:
    return seen.accepted + seen.fallback + seen.failed


def _rerolled_under_hints(seen: Counters) -> int:
    return seen.rescued + seen.hint_saturated + seen.still_collapsed if _guided(seen) + seen.format else 0


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
        advice="{share} of the re-rolled groups succeed completely under their hint, and so have an advantage only "
        "beside original failures (mentor_rescue). The hints may give too much away: read them in the journal.",
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
        part=lambda seen: seen.cause_verifier_error,
        whole=lambda seen: seen.groups,
        above=0.0,
        window=1,
        advice="the verifier could not judge {share} of the groups; they are left as they are and never mentored. The "
        "last time, {detail}",
        cause=Cause.VERIFIER_ERROR,
    ),
    Alarm(
        part=lambda seen: seen.cause_unscorable,
        whole=lambda seen: seen.groups,
        above=0.05,
        window=32,
        advice="{share} of the groups could not be scored: the success reward is None or NaN for every completion. "
        "Such groups are never mentored; check the reward function.",
        cause=Cause.UNSCORABLE,
    ),
    Alarm(
        part=lambda seen: seen.cause_cut_off,
        whole=lambda seen: seen.groups,
        above=0.1,
        window=16,
        advice="in {share} of the groups every completion failed and ran into the length limit; no hint helps an "
        "answer that ends too early, so they are not mentored. Raise max_completion_length, or set "
        'mentor_routes={{"cut_off": "mentor"}} if the mentor is to read them nevertheless.',
        cause=Cause.CUT_OFF,
    ),
    Alarm(
        part=lambda seen: seen.cause_duplicates,
        whole=lambda seen: seen.groups,
        above=0.1,
        window=16,
        advice="in {share} of the groups every completion failed and all are the same, word for word, so they are not "
        "mentored. The last time, {detail}. Raise temperature or top_p, and check that the generator does not use one "
        'seed for all; if answers are so short that this is natural, set mentor_routes={{"duplicates": "mentor"}}.',
        cause=Cause.DUPLICATES,
    ),
    Alarm(
        part=lambda seen: seen.cause_format,
        whole=lambda seen: seen.groups,
        above=0.3,
        window=16,
        advice="{share} of the groups failed by their form, and the mentor is not asked about them. The last time, "
        "{detail}. Say in the prompts how an answer is to be written, or let the verifier read more forms; "
        'mentor_routes={{"format": "mentor"}} asks the mentor nevertheless.',
        cause=Cause.FORMAT,
    ),
)


class Alarms:
    """Decides when to warn: each condition on windows of its own, once per run unless it gets clearly worse.

    A resumed run begins with empty windows.
    """

    def __init__(
        self, routes: Mapping[Cause, Route] = DEFAULT_ROUTES, construction: Construction | None = None
    ) -> None:
        """`routes` says what is done about each cause, `construction` how groups re-rolled under hints are trained."""
        self._alarms = [alarm for alarm in ALARMS if alarm.cause is None or routes[alarm.cause] is not Route.MENTOR]
        self._seen = [Counters() for _ in self._alarms]
        self._warned = [-WORSE_BY for _ in self._alarms]
        self._stall, self._stalled_at = StallAlarm(construction), -WORSE_BY

    def check(self, counted: Counters, *, failure: str = "", details: Mapping[Cause, str] | None = None) -> list[str]:
        """The warnings that are due after a further stretch of the run; `details` say what showed each cause last."""
        self._seen = [seen + counted for seen in self._seen]
        return [*self._due(failure or "no reason was given", details or {}), *self._stalled(counted)]

    def forget_failures(self) -> None:
        """Begin the windows of the mentor's failures anew: what stopped it is over, and has been said."""
        for number, alarm in enumerate(self._alarms):
            if alarm.part(Counters(failed=1)):
                self._seen[number] = Counters()

    def _stalled(self, counted: Counters) -> Iterator[str]:
        found = self._stall.check(counted)
        if found is not None and found.collapsed[1] >= self._stalled_at + WORSE_BY:
            self._stalled_at = found.collapsed[1]
            yield self._stall.advice(found)

    def _due(self, failure: str, details: Mapping[Cause, str]) -> Iterator[str]:
        for number, (alarm, seen) in enumerate(zip(self._alarms, self._seen, strict=True)):
            if alarm.whole(seen) < alarm.window:
                continue
            self._seen[number] = Counters()
            share = alarm.part(seen) / alarm.whole(seen)
            if share > alarm.above and share >= self._warned[number] + WORSE_BY:
                self._warned[number] = share
                detail = "" if alarm.cause is None else details.get(alarm.cause, "nothing was said")
                yield alarm.advice.format(share=f"{share:.0%}", failure=failure, detail=detail)
