"""Prompts that collapsed, remembered until they come round again: does the policy solve them without a hint now?"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from trl_mentor.collapse import SuccessRule
from trl_mentor.records import Arm, Prompt, RerollOutcome, Return
from trl_mentor.tallies import Tallies
from trl_mentor.trial import prompt_key

CAPACITY = 50_000
"""Prompts that are remembered; beyond, the oldest are forgotten. They are in every checkpoint, 80 bytes each."""

_PROMPT_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Past:
    """How the last intervention for a prompt ended."""

    step: int
    """Optimizer steps done then."""
    outcome: RerollOutcome
    arm: Arm | None = None


class Memory:
    """The collapsed prompts by their `question_key`, oldest first, equal on every rank."""

    def __init__(self) -> None:
        self._past: dict[str, Past] = {}

    def __len__(self) -> int:
        return len(self._past)

    def has(self, key: str, *, before: int) -> bool:
        """Whether a prompt is remembered from before this step: without a step in between nothing was learnt."""
        past = self._past.get(key)
        return past is not None and past.step < before

    def remember(self, key: str, past: Past) -> None:
        """Keep how the newest intervention for a prompt ended."""
        self._past.pop(key, None)
        self._past[key] = past
        if len(self._past) > CAPACITY:
            del self._past[next(iter(self._past))]

    def recall(self, key: str) -> Past | None:
        """How it ended, once: the next return of the prompt says nothing more about it."""
        return self._past.pop(key, None)

    def state(self) -> list[str]:
        """What is remembered, a line each: checkpoints sort the keys of objects, and give each value a line."""
        return [f"{key} {past.step} {past.outcome} {past.arm or '-'}" for key, past in self._past.items()]

    def restore(self, state: Iterable[str]) -> None:
        """Take over what `state` returned."""
        lines = [line.split() for line in state]
        self._past = {
            key: Past(int(step), RerollOutcome(outcome), None if arm == "-" else Arm(arm))
            for key, step, outcome, arm in lines
        }


def question_key(prompt: Prompt, answer: str | None) -> str:
    """`prompt_key` of the prompt and, where there is a reference answer, 8 digits for that.

    A data set may ask for several things in the same words.
    """
    digits = "" if answer is None else hashlib.sha256(answer.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return prompt_key(prompt) + digits


def answered(
    key: str, past: Past, values: Sequence[float], rule: SuccessRule, *, step: int, probe: bool = False
) -> Return:
    """How a remembered prompt was answered, by the success rewards; completions that were not scored do not count."""
    scored = [value for value in values if not math.isnan(value)]
    return Return(
        step=step,
        prompt_key=key[:_PROMPT_DIGITS],
        since=past.step,
        outcome=past.outcome,
        arm=past.arm,
        successes=sum(map(rule.succeeds, scored)),
        completions=len(scored),
        probe=probe,
    )


def returned(
    answers: Iterable[tuple[str, Sequence[float]]],
    recall: Callable[[str], Past | None],
    rule: SuccessRule,
    *,
    step: int,
) -> list[Return]:
    """How prompts that came round were answered, from their keys and the success rewards of their completions.

    Each prompt is recalled once; one of which no completion could be scored stays remembered.
    """
    found = []
    for key, values in answers:
        if all(map(math.isnan, values)) or (past := recall(key)) is None:
            continue  # not scored, or twice in one batch
        found.append(answered(key, past, values, rule, step=step))
    return found


def transfer(returns: Iterable[Return]) -> Tallies:
    """Which of the prompts that were answered again are solved, by what their intervention brought and by arm.

    Probes are not told apart by arm: they are chosen by what the intervention brought, which the arm has a part in.
    """
    return Tallies.count((name, item.solved) for item in returns for name in _cohorts(item))


def _cohorts(item: Return) -> Iterator[str]:
    yield str(item.outcome)
    if item.arm is not None and not item.probe:
        yield f"arm:{item.arm}"
