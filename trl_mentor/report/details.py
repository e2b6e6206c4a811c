"""One intervention as the page shows it when it is opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trl_mentor.collapse import exceeds
from trl_mentor.records import Call, CollapsedGroup, Guidance, Intervention
from trl_mentor.report.formulas import Formulas, Node
from trl_mentor.report.texts import Shown, shown

FORMULA_BUDGET = 500_000
"""Characters of LaTeX that are converted for what the mentor reads and writes, and as many for the policy's texts."""


class Details:
    """Makes the details of the interventions of a page, each text cut to `limit` characters."""

    def __init__(self, limit: int, threshold: float) -> None:
        """`threshold` is the success reward above which a completion succeeds."""
        self._limit = limit
        self._threshold = threshold
        self._used: dict[str, Node] = {}
        self._taught, self._sampled = Formulas(FORMULA_BUDGET, self._used), Formulas(FORMULA_BUDGET, self._used)

    @property
    def unconverted(self) -> int:
        """Formulas that are shown as LaTeX, because there is no converter or there are too many."""
        return self._taught.unconverted + self._sampled.unconverted

    def take_formulas(self) -> dict[str, Node]:
        """The MathML of the formulas in the details that were made since the last time, by their source."""
        taken = dict(self._used)
        self._used.clear()
        return taken

    def of(self, record: Intervention) -> dict[str, Any]:
        """As plain JSON, with every text as it is shown."""
        guidance = None if record.guidance is None else self._guidance(record.guidance)
        return {
            "collapsed_at": record.collapsed_at,
            "place": record.group.index,
            **self._group(record.group),
            "guidance": guidance,
            "tokens": record.reroll_tokens,
            "completions": self._completions(record),
        }

    def _group(self, group: CollapsedGroup) -> dict[str, Any]:
        text = self._text(self._sampled)
        return {
            "question": self._text(self._taught)(group.question),
            "answer": None if group.answer is None else self._text(self._taught)(group.answer),
            "topic": group.topic,
            "why": text(group.cause_detail) if group.cause_detail else None,
            "attempts": [
                {
                    "text": text(attempt.text),
                    "success": attempt.reward,
                    "truncated": attempt.truncated,
                    "feedback": text(attempt.feedback) if attempt.feedback else None,
                }
                for attempt in group.attempts
            ],
        }

    def _guidance(self, guidance: Guidance) -> dict[str, Any]:
        text = self._text(self._taught)
        return {
            "origin": str(guidance.origin),
            "hint": None if guidance.hint is None else text(guidance.hint),
            "reason": text(guidance.reason) if guidance.reason else None,
            "shortened": guidance.shortened,
            "seconds": guidance.seconds,
            "diagnosis": [text(keyword) for keyword in guidance.diagnosis],
            "drafts": [
                {
                    "text": text(draft.text),
                    "role": str(draft.role),
                    "attempt": draft.attempt,
                    "quality": draft.verdict and str(draft.verdict.quality),
                    "source": draft.verdict and str(draft.verdict.source),
                    "critique": text(draft.verdict.critique) if draft.verdict else None,
                }
                for draft in guidance.drafts
            ],
            "calls": [self._call(call) for call in guidance.calls],
        }

    def _call(self, call: Call) -> dict[str, Any]:
        return {
            "role": str(call.role),
            "seconds": call.seconds,
            "prompt_tokens": call.usage.prompt_tokens,
            "completion_tokens": call.usage.completion_tokens,
            "cached_tokens": call.usage.cached_tokens,
            "replayed": call.replayed,
            "error": None if call.error is None else self._text(self._taught)(call.error),
        }

    def _completions(self, record: Intervention) -> list[dict[str, Any]]:
        text = self._text(self._sampled)
        found = []
        for number, completion in enumerate(record.completions):
            success = record.successes[number] if number < len(record.successes) else None
            rewards = {name: values[number] for name, values in record.rewards.items() if number < len(values)}
            found.append(
                {
                    "text": text(completion),
                    "success": success,
                    "succeeds": success is not None and exceeds(success, self._threshold),
                    "rewards": rewards,
                    "reliance": record.reliances[number] if number < len(record.reliances) else None,
                }
            )
        return found

    def _text(self, formulas: Formulas) -> Callable[[str], Shown]:
        return lambda text: shown(text, self._limit, formulas)
