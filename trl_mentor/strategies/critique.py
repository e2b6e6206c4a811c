"""Critique-GRPO (arXiv 2506.03106): every completion is criticised and refined, and the best refinement is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trl_mentor.assembly import add_critique, check_critique_template
from trl_mentor.errors import ConfigError
from trl_mentor.mentor import Mentor
from trl_mentor.packing import shorten
from trl_mentor.records import Attempt, CollapsedGroup, GroupState, Guidance, Lesson, Roll, Row, Weighting
from trl_mentor.rescue import scored_under, with_weighting
from trl_mentor.strategies.material import left
from trl_mentor.strategy_settings import DEFAULT_CRITIQUE_TEMPLATE, CritiqueKind

MAX_CHARS = 12_000
"""Characters of an attempt, and of a reference answer, in a prompt: of longer ones head and tail."""


class CritiqueStrategy:
    r"""Critique-GRPO (arXiv 2506.03106): G' = (G \ {o_1}) + {o*}, with o* the best of N refinements.

    Each completion o_i is refined once, under question, o_i and a critique of it. o* is the first refinement with
    the highest success reward. It is scored under the question alone, takes the first place of its group, and
    A = (r - mean r) / (std r + 1e-4) over G'. A token of o* has the loss -A f(p) with f(p) = p / (p + gamma), p its
    probability under the question and gamma = 0.1 (`Weighting.SHAPED`).

    Departures: the other rows keep TRL's clipping and its mean over tokens, of which the paper has neither. Kind
    `TEXT` has the mentor write one hint from the failures of a group, as for a collapsed one, and that is the critique
    of each of them; the paper asks GPT-4o for a critique of every response. A response that is right is told so, and a
    group for which the mentor failed is left to GRPO. A completion that could not be judged is not refined, nor one
    with which the prompt would be too long for the policy.
    """

    name = "critique"

    def __init__(
        self,
        kind: CritiqueKind | str = CritiqueKind.SIMPLE_GT,
        *,
        template: str = DEFAULT_CRITIQUE_TEMPLATE,
        mentor: Mentor | None = None,
    ) -> None:
        """`mentor` writes the critiques of kind `TEXT`, and no other kind takes one."""
        check_critique_template(template)
        self.kind = _kind(kind)
        if (self.kind is CritiqueKind.TEXT) != (mentor is not None):
            raise ConfigError(
                f"critiques of kind {self.kind.value!r} and mentor={mentor!r:.60}: a mentor is needed for 'text', and "
                "no other kind asks one"
            )
        self.template = template
        self.mentor = mentor

    def select(self, states: Sequence[GroupState]) -> list[int]:
        return [index for index, state in enumerate(states) if state is not GroupState.UNSCORABLE]

    def prepare(self, groups: Sequence[CollapsedGroup]) -> list[Lesson]:
        guidances = self._guidances(groups)
        return [self._lesson(group, guidances.get(position)) for position, group in enumerate(groups)]

    def shorten(self, group: CollapsedGroup, lesson: Lesson) -> Lesson | None:
        return None  # a refinement that does not fit falls out

    def merge(self, original: Sequence[Row], rerolled: Sequence[Row]) -> list[Row]:
        scored = [(row.score, row) for row in rerolled if row.score is not None]
        if not scored:
            return list(original)
        _, best = max(scored, key=lambda pair: pair[0])  # the first of equal ones
        return [*with_weighting(scored_under(original, [best]), Weighting.SHAPED), *original[1:]]

    def _guidances(self, groups: Sequence[CollapsedGroup]) -> dict[int, Guidance]:
        """What the mentor says of each group with a failure, by position."""
        if self.mentor is None:
            return {}
        failed = {
            position: replace(group, attempts=failures)
            for position, group in enumerate(groups)
            if (failures := tuple(attempt for attempt in _judged(group) if not attempt.success))
        }
        return dict(zip(failed, self.mentor.guide(list(failed.values())), strict=True)) if failed else {}

    def _lesson(self, group: CollapsedGroup, guidance: Guidance | None) -> Lesson:
        if guidance is not None and guidance.hint is None:
            return Lesson(prompt=None, guidance=guidance)
        try:
            rolls = tuple(self._refinement(group, attempt, guidance) for attempt in _judged(group))
        except ConfigError as error:  # a prompt of the data set without a user turn costs its group, not the run
            return left(str(error)) if guidance is None else Lesson(None, guidance=guidance.without_hint(str(error)))
        if not rolls:
            return left("no completion of it could be judged")
        return Lesson(rolls[0].prompt, hint=rolls[0].hint, guidance=guidance, rolls=rolls)

    def _refinement(self, group: CollapsedGroup, attempt: Attempt, guidance: Guidance | None) -> Roll:
        critique = _critique(attempt, group.answer if self.kind is CritiqueKind.SIMPLE_GT else None)
        if guidance is not None and guidance.hint is not None and not attempt.success:
            critique = guidance.hint
        text = shorten(attempt.text, MAX_CHARS)
        prompt = add_critique(group.prompt, text, critique, self.template)
        return Roll(prompt, critique, attempt=text if "{attempt}" in self.template else None)


def _kind(kind: CritiqueKind | str) -> CritiqueKind:
    try:
        return CritiqueKind(kind)
    except ValueError:
        raise ConfigError(f"unknown kind of critique {kind!r}; choose {', '.join(CritiqueKind)}") from None


def _judged(group: CollapsedGroup) -> list[Attempt]:
    """The completions of which it is known whether they are right."""
    return [attempt for attempt in group.attempts if attempt.reward is not None]


def _critique(attempt: Attempt, answer: str | None) -> str:
    """Whether an attempt is right and, if it is known, the reference answer."""
    verdict = "This answer is correct." if attempt.success else "This answer is wrong."
    return verdict if answer is None else f"{verdict} The reference answer is: {shorten(answer, MAX_CHARS)}"
