"""The journal of a run for its report: what is counted stays in memory, long texts stay in the file."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from tqdm import tqdm

from trl_mentor.journal import JournalRecords, journal_file, read_journal
from trl_mentor.records import Attempt, Call, Draft, Guidance, Intervention, Quality, Role, Verdict, VerdictSource
from trl_mentor.report.texts import LIMITS, lengths
from trl_mentor.trial import prompt_key

LIST_LIMIT = 50_000
"""Interventions that the page lists, the newest of a longer run; its figures count all of them."""

TEXT_BUDGET = 150_000_000
"""Characters of the listed interventions that a page may hold; they take about a fifth of it in the file."""

_NAMED = 300
"""Characters that are kept of a question, by which the list names it."""

_HINT = 4_000
"""Characters that are kept of a hint, by which hints are told apart."""

_ASKED = (Call(Role.ATTRIBUTION, 0.0),)
"""In place of all calls of an intervention in which the mentor was asked."""


class SlimJournal:
    """The records that count, without their long texts, and where the whole ones lie.

    The texts of attempts, drafts and completions are empty; question and hint are cut; the prompt is its `prompt_key`;
    of the calls one is left; rewards other than success are gone.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.file = journal_file(path)
        self._sizes: dict[int, tuple[int, ...]] = {}
        total = self.file.stat().st_size
        with (
            tqdm(total=total, desc="reading", unit="B", unit_scale=True, disable=None, leave=False) as self._bar,
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore", UserWarning)  # the page says how many lines could not be read
            self.records: JournalRecords = read_journal(self.file, keep=self._keep)
        self.first = max(0, len(self.records) - LIST_LIMIT)
        """The first intervention that is listed, counted from 0."""
        sizes = [self._sizes[offset] for offset in self.records.offsets[self.first :]]
        totals = [sum(column) for column in zip(*sizes, strict=True)] or [0]
        fitting = (limit for limit, total in zip(LIMITS, totals, strict=False) if total <= TEXT_BUDGET)
        self.text_limit = next(fitting, LIMITS[-1])
        """Characters of each text that the page has room for."""

    def _keep(self, record: Intervention, offset: int) -> Intervention:
        self._bar.update(offset - self._bar.n)
        self._sizes[offset] = lengths(texts_of(record))
        return slim(record)


def texts_of(record: Intervention) -> Iterator[str]:
    """Every text of an intervention that a report shows."""
    group, guidance = record.group, record.guidance
    yield from (group.question, group.answer or "", *record.completions)
    for attempt in group.attempts:
        yield from (attempt.text, attempt.feedback or "")
    if guidance is not None:
        yield from (guidance.hint or "", *guidance.diagnosis)
        for draft in guidance.drafts:
            yield from (draft.text, draft.verdict.critique if draft.verdict else "")


def slim(record: Intervention) -> Intervention:
    """The record without its long texts; what records have in common is shared between them."""
    group = record.group
    return replace(
        record,
        group=replace(
            group,
            question=group.question[:_NAMED],
            answer=None,
            attempts=tuple(_attempt(item.reward, item.truncated) for item in group.attempts),
            prompt=prompt_key(group.prompt),
            cause_detail="",
        ),
        guidance=None if record.guidance is None else _slim_guidance(record.guidance),
        completions=("",) * len(record.completions),
        rewards={},
    )


def _slim_guidance(guidance: Guidance) -> Guidance:
    return replace(
        guidance,
        hint=None if guidance.hint is None else guidance.hint[:_HINT],
        diagnosis=(),
        drafts=tuple(_slim_draft(draft) for draft in guidance.drafts),
        calls=_ASKED if guidance.calls else (),
        reason="",
    )


def _slim_draft(draft: Draft) -> Draft:
    verdict = draft.verdict
    return _draft(draft.role, draft.attempt, verdict and verdict.quality, verdict and verdict.source)


@lru_cache(maxsize=4096)
def _attempt(reward: float | None, truncated: bool) -> Attempt:
    return Attempt("", reward, truncated)


@lru_cache(maxsize=4096)
def _draft(role: Role, attempt: int, quality: Quality | None, source: VerdictSource | None) -> Draft:
    return Draft("", role, attempt, Verdict(quality, "", source) if quality and source else None)
