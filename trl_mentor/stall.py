"""Whether training has stalled although hints help: what is learnt under a hint does not reach the plain question.

On small synthetic tasks whose hints are too good, groups then succeed completely under them, which with `replace`
leaves no gradient; the share of collapsed groups does not fall, and neither does what successes owe to their hints.
"""

from __future__ import annotations

from dataclasses import dataclass

from trl_mentor.counters import Counters
from trl_mentor.rescue import Construction, Rescue, ScoreOn

HALF_BATCHES = 16
"""Generation batches of each half of a window, at least."""
HALF_GROUPS = 16
"""Groups in each half in which a re-roll under a hint has brought a success, at least."""
SATURATED = 0.7
"""Share of those groups above which their hints leave nothing to learn."""
CLOSED_BY = 0.1
"""The gap between the log-probabilities on the question and under the hint is flat unless so much of it has gone."""


@dataclass(frozen=True, slots=True)
class Stall:
    """Two halves of a window in which training stood still."""

    saturated: float
    """Share of the groups with a success under their hint in which all succeed."""
    collapsed: tuple[float, float]
    """Share of collapsed groups in the older and in the newer half."""
    reliance: tuple[float, float] | None
    """Mean log-ratio of hinted successes in each half, in nats per token; None where it was not measured."""


def stalled(older: Counters, newer: Counters) -> Stall | None:
    """What speaks for it that training stood still in two halves of a window, or None if something speaks against it.

    Signs are: more than `SATURATED` of the groups with a success under their hint are saturated; the newer half has
    no smaller share of collapsed groups than the older; the log-ratio, where it was measured, is below 0 and as far.
    """
    both = older + newer
    successful = both.rescued + both.hint_saturated
    if not (successful and older.groups and newer.groups):
        return None
    share = both.hint_saturated / successful
    collapsed = older.collapsed / older.groups, newer.collapsed / newer.groups
    reliance = None
    if older.reliance_count and newer.reliance_count:
        before = older.reliance_sum / older.reliance_count
        reliance = before, newer.reliance_sum / newer.reliance_count
        if before >= 0 or reliance[1] > (1 - CLOSED_BY) * before:
            return None
    found = share > SATURATED and 0 < collapsed[0] <= collapsed[1]
    return Stall(share, collapsed, reliance) if found else None


def remedy(construction: Construction | None) -> tuple[str, bool] | None:
    """What to try when training has stalled, and whether that needs a measured log-ratio to be said.

    None where nothing better is known, or the construction is not known. Saturation alone is no reason where failures
    are trained beside the successes or the question is what is scored.
    """
    if construction is None or construction.rescue is Rescue.ADAPTIVE:
        return None
    beside_failures = construction.rescue in (Rescue.SINGLE, Rescue.UNION_SUCCESS)
    if construction.score_on is ScoreOn.ORIGINAL:
        return None if beside_failures else ("mentor_rescue: single, which keeps failures beside a success", True)
    if beside_failures:
        return "mentor_score_on: original, which trains the question without the hint", True
    return "mentor_preset: robust, or mentor_score_on: original, which train the question without the hint", False


class StallAlarm:
    """Compares each half of a window with the one before."""

    def __init__(self, construction: Construction | None) -> None:
        """`construction` builds the re-rolled groups; None if that is not known, in which case nothing is said."""
        self._remedy = remedy(construction)
        self._older: Counters | None = None
        self._newer = Counters()

    def check(self, counted: Counters) -> Stall | None:
        """The stall that shows after a further stretch of the run, if its end completes a half."""
        self._newer += counted
        if (
            self._newer.batches < HALF_BATCHES
            or self._newer.rescued + self._newer.hint_saturated < HALF_GROUPS
            or self._remedy is None
        ):
            return None
        older, newer = self._older, self._newer
        self._older, self._newer = newer, Counters()
        found = None if older is None else stalled(older, newer)
        return None if found is None or (self._remedy[1] and found.reliance is None) else found

    def advice(self, found: Stall) -> str:
        """The warning."""
        before, after = found.collapsed
        measured = ""
        if found.reliance is not None:
            first, last = found.reliance
            measured = (
                f", and hinted successes owe as much to their hints ({first:.2f}, then {last:.2f} nats per token)"
            )
        return (
            f"{found.saturated:.0%} of the groups that succeed under their hint succeed completely, the share of the "
            f"groups that collapse without one does not fall ({before:.0%}, then {after:.0%}){measured}: what is "
            f"learnt under hints may not reach the plain question. Try {self._remedy[0] if self._remedy else ''} "
            "(docs/rescue.md)."
        )
