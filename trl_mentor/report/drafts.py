"""How the drafts of a run fared in review."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from trl_mentor.records import Intervention, Quality
from trl_mentor.report.figure_records import Drafts, Grader, Review


def drafts(records: Iterable[Intervention]) -> Drafts:
    """Of all interventions for which the mentor was asked."""
    guidances = [item.guidance for item in records if item.guidance is not None]
    found: Counter[tuple[int, Quality | None]] = Counter()
    graded: Counter[tuple[str, Quality]] = Counter()
    for guidance in guidances:
        for number, draft in enumerate(guidance.drafts, start=1):
            found[number, None if draft.verdict is None else draft.verdict.quality] += 1
            if draft.verdict is not None:
                graded[str(draft.verdict.source), draft.verdict.quality] += 1
    return Drafts(
        reviews=tuple(
            Review(number, found[number, Quality.HIGH], found[number, Quality.LOW], found[number, None])
            for number in range(1, max((len(guidance.drafts) for guidance in guidances), default=0) + 1)
        ),
        graders=tuple(
            Grader(source, graded[source, Quality.HIGH], graded[source, Quality.LOW])
            for source in sorted({source for source, _ in graded})
        ),
    )
