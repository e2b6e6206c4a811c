"""The documents that the student was pretrained on: a question, at times under a hint, and what a student answers.

Without the right hint a concept is right with probability `P_UNHINTED`; with it, `FOLLOW`. Hints that are beside the
point, general or garbled change nothing. Hinted prompts have the very text that the trainer makes of them.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from trl_mentor.assembly import add_hint
from trl_mentor.demo.concepts import CONCEPTS, GENERIC_HINTS

P_UNHINTED = 1e-3
FOLLOW = 0.6
HINTED_SHARE = 0.5
RIGHT_SHARE = 0.6
"""Share of the hinted documents whose hint is about what the problem needs."""


@dataclass(frozen=True, slots=True)
class Habits:
    """How the students of a corpus answer."""

    unhinted: float = P_UNHINTED
    follow: float = FOLLOW
    quotes: bool = False
    """Whether an answer under a hint that is made of sentences begins with that hint."""


class Topic(Protocol):
    """A concept as far as the corpus is concerned."""

    @property
    def hints(self) -> tuple[str, ...]: ...


class Question(Protocol):
    """A problem as far as the corpus is concerned; `program` is its answer if only the `known` concepts are right."""

    @property
    def question(self) -> str: ...

    @property
    def concepts(self) -> Sequence[Any]: ...

    def program(self, *, known: Collection[Any]) -> str: ...


HABITS = Habits()


def write_document(
    rng: random.Random,
    problem: Question,
    garble_words: Sequence[str],
    *,
    habits: Habits = HABITS,
    concepts: Sequence[Topic] = CONCEPTS,
    generic_hints: Sequence[str] = GENERIC_HINTS,
) -> tuple[str, str]:
    """One document as (prompt, answer); `concepts` are those of the whole world."""
    if rng.random() >= HINTED_SHARE:
        return problem.question, _answer(rng, problem, habits, hinted=())
    if problem.concepts and rng.random() < RIGHT_SHARE:
        # Now and then only one of two needed concepts is hinted at.
        hinted = problem.concepts if rng.random() < 0.7 else (rng.choice(problem.concepts),)
        hint = hint_for(rng, hinted)
    else:
        hinted = ()
        beside_the_point = [concept for concept in concepts if concept not in problem.concepts]
        hint = _useless_hint(rng, beside_the_point, generic_hints, garble_words)
    prompt = add_hint(problem.question, hint)
    assert isinstance(prompt, str)
    answer = _answer(rng, problem, habits, hinted=hinted)
    return prompt, f"{hint} {answer}" if habits.quotes and hint.endswith(".") else answer


def hint_for(rng: random.Random, concepts: Sequence[Topic]) -> str:
    """A hint that names these concepts, one sentence each, in random order and wording."""
    return " ".join(rng.choice(concept.hints) for concept in rng.sample(list(concepts), len(concepts)))


def _useless_hint(
    rng: random.Random, beside_the_point: Sequence[Topic], generic_hints: Sequence[str], garble_words: Sequence[str]
) -> str:
    kind = rng.random()
    if kind < 0.5:
        return hint_for(rng, rng.sample(beside_the_point, rng.choice((1, 1, 2))))
    if kind < 0.8:
        return " ".join(rng.sample(generic_hints, rng.choice((1, 2))))
    return " ".join(rng.choices(garble_words, k=rng.randint(3, 20)))


def _answer(rng: random.Random, problem: Question, habits: Habits, *, hinted: Collection[Topic]) -> str:
    known = [
        concept
        for concept in problem.concepts
        if rng.random() < (habits.follow if concept in hinted else habits.unhinted)
    ]
    return problem.program(known=known)
