"""A world in which letters say how each prompt of `tiny.dataset` is answered, by the kind of the roll and the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tiny

from trl_mentor import read_journal
from trl_mentor.records import Arm, RerollOutcome, Return, Row
from trl_mentor.trial import prompt_key

VALUES = {"c": (0.0, 0.0), "m": (0.0, 1.0), "a": (1.0, 1.0), "u": (None, None), "n": (None, 0.0)}
"""`c` every completion fails, `m` every second one succeeds, `a` all do, `u` none is scored, `n` half, which fail."""

FIRST, REROLL, PROBE = "first", "mentor/reroll", "mentor/probe"
ELSE = {FIRST: "a", REROLL: "m", PROBE: "a", "evaluation": "a"}
"""How a prompt is answered that nothing is said about."""

Rolls = dict[str, dict[str, str]]
"""Kind of a roll -> number of a prompt -> a letter for each optimizer step, of which the last goes on."""


class Letters:
    """The verifier of this world; keeps what it was shown."""

    def __init__(self, rolls: Rolls) -> None:
        self.__name__ = "verifier"
        self.rolls = rolls
        self.kind, self.step = FIRST, 0
        self.calls: list[dict[str, Any]] = []

    def __call__(
        self, prompts: list[Any], completions: list[Any], completion_ids: list[Any], answer: list[str], **kwargs: Any
    ) -> list[float | None]:
        call = {"kind": self.kind, "step": self.step, "prompts": prompts, "answer": answer}
        self.calls.append({**call, "tokens": sum(map(len, completion_ids))})
        kwargs["log_extra"]("seen", [f"{self.kind} {name}" for name in answer])
        kwargs["log_metric"]("rolls", 1.0)
        return [VALUES[self.letter(name)][place % 2] for place, name in enumerate(answer)]

    def letter(self, answer: str) -> str:
        letters = self.rolls.get(self.kind, {}).get(answer.removeprefix("answer-"), ELSE[self.kind])
        return letters[min(self.step, len(letters) - 1)]


class Announcer(tiny.Recorder):
    """The shipped trainer, which tells its verifier what kind of roll comes next."""

    verifier: Letters

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self.announce(FIRST if self.model.training else "evaluation")
        return super()._generate_and_score_completions(inputs)

    def _regenerate(self, requests: Sequence[Any], *, alone: bool = False, metrics: str = REROLL) -> list[Row]:
        before = self.verifier.kind
        self.announce(metrics)
        rows = super()._regenerate(requests, alone=alone, metrics=metrics)
        self.announce(before)
        return rows

    def announce(self, kind: str) -> None:
        self.verifier.kind, self.verifier.step = kind, self.state.global_step


def trained(output_dir: Any, rolls: Rolls, *, resume: Any = None, **options: Any) -> Any:
    """A trainer of this world after training; the steps of a run ask the same prompts over and over."""
    made = trainer(output_dir, rolls, **options)
    made.train(resume_from_checkpoint=resume)
    return made


def trainer(output_dir: Any, rolls: Rolls, *, rows: int = 4, cls: type = Announcer, **options: Any) -> Any:
    options.setdefault("data", tiny.dataset(rows))
    verifier = Letters(rolls)
    made = tiny.trainer(output_dir, reward=verifier, cls=cls, **options)
    made.verifier = verifier
    return made


def key(number: int, *, conversational: bool = False) -> str:
    """What a journal calls the prompt with this number."""
    return prompt_key(tiny.dataset(number + 1, conversational=conversational)[number]["prompt"])


def returned(
    step: int,
    number: int,
    since: int,
    outcome: RerollOutcome,
    successes: int,
    *,
    completions: int = 4,
    arm: Arm | None = None,
    **options: Any,
) -> Return:
    """A prompt that came round again in training."""
    return Return(step, key(number, **options), since, outcome, arm, successes, completions)


def probes(run: Any) -> dict[int, list[tuple[int, RerollOutcome, int]]]:
    """By step: number of the prompt, what its intervention brought, successes."""
    numbers = {key(number): number for number in range(16)}
    found: dict[int, list[tuple[int, RerollOutcome, int]]] = {}
    for item in read_journal(run).returns:
        if item.probe:
            found.setdefault(item.step, []).append((numbers[item.prompt_key], item.outcome, item.successes))
    return {step: sorted(items) for step, items in found.items()}
