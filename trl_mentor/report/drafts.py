"""How the drafts of a run fared in review."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from trl_mentor.records import HintOrigin, Intervention, Quality
from trl_mentor.report.figure_records import Drafts, Grader, Review, Share
from trl_mentor.tallies import Tally


def drafts(records: Iterable[Intervention]) -> Drafts:
    """Of all interventions for which the mentor was asked."""
    guidances = [item.guidance for item in records if item.guidance is not None]
    origins = Counter(guidance.origin for guidance in guidances if guidance.origin is not HintOrigin.NOT_ASKED)
    found: Counter[tuple[int, Quality | None]] = Counter()
    graded: Counter[tuple[str, Quality]] = Counter()
    for guidance in guidances:
        for number, draft in enumerate(guidance.drafts, start=1):
            found[number, None if draft.verdict is None else draft.verdict.quality] += 1
            if draft.verdict is not None:
                graded[str(draft.verdict.source), draft.verdict.quality] += 1
    lengths = Counter(len(guidance.drafts) for guidance in guidances if guidance.drafts)
    accepted, fallback, failed = (
        origins[kind] for kind in (HintOrigin.ACCEPTED, HintOrigin.FALLBACK, HintOrigin.FAILED)
    )
    return Drafts(
        per_group=tuple(sorted(lengths.items())),
        reviews=tuple(
            Review(number, found[number, Quality.HIGH], found[number, Quality.LOW], found[number, None])
            for number in range(1, max(lengths, default=0) + 1)
        ),
        graders=tuple(
            Grader(source, graded[source, Quality.HIGH], graded[source, Quality.LOW])
            for source in sorted({source for source, _ in graded})
        ),
        fallback=Share.of(Tally(accepted + fallback, fallback)),
        failed=Share.of(Tally(accepted + fallback + failed, failed)),
    )
