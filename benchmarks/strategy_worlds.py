"""The worlds of the comparison of strategies: a domain, the habits its student is pretrained on, and its claims.

All worlds are synthetic: their misconceptions are planted, so that figures from them show mechanisms and say nothing
about LLMs. A world states what its student must be like at the start (`Claims`); `strategy_students.py` measures it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from strategy_arithmetic import GENERIC_HINTS as ARITHMETIC_HINTS
from strategy_arithmetic import RULES, missing_rules, sample_sums, solves

from trl_mentor.demo.concepts import CONCEPTS, GENERIC_HINTS
from trl_mentor.demo.corpus import Habits, Topic
from trl_mentor.demo.tokenizer import vocabulary, vocabulary_of
from trl_mentor.demo.tutor import missing_concepts
from trl_mentor.demo.world import passes, sample_problems


class Lesson(Topic, Protocol):
    """A concept as a tutor knows it."""

    @property
    def name(self) -> str: ...

    @property
    def label(self) -> str: ...


class Exercise(Protocol):
    """A problem of any domain."""

    @property
    def family(self) -> str: ...

    @property
    def question(self) -> str: ...

    @property
    def answer(self) -> str: ...

    @property
    def concepts(self) -> Sequence[Any]: ...

    def program(self, *, known: Collection[Any]) -> str: ...


def _remembered(function: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    """The same function of an answer and its problem, which computes nothing twice in a process."""
    known: dict[tuple[str, str], Any] = {}

    def remembering(text: str, problem: Exercise) -> Any:
        key = (text, problem.question)
        if key not in known:
            known[key] = function(text, problem)
        return known[key]

    return remembering


@dataclass(frozen=True, slots=True)
class Domain:
    """What problems are about: how they come about, how answers are checked and what students have wrong."""

    name: str
    templates: str
    """The domain of the mentor's prompts."""
    concepts: tuple[Lesson, ...]
    generic_hints: tuple[str, ...]
    tokens: Sequence[str]
    """The vocabulary of the student."""
    sample: Callable[..., Mapping[str, Exercise]]
    """(rng, per_family, *, held_out) -> problems by question."""
    correct: Callable[[str, Any], bool]
    """Remembered, as `missing` is: a policy that has collapsed gives the same answers over and over."""
    missing: Callable[[str, Any], Sequence[Lesson]]
    """The concepts that a failed answer shows to be wrong."""
    pretraining_problems: int
    """Of each family, for the corpus."""


_ARITHMETIC_WORDS = "Hint : Original question : Compute : ? . 0 1 2 3 4 5 6 7 8 9 + - * ^ % ( ) = ;"

CODE = Domain(
    name="code",
    templates="code",
    concepts=CONCEPTS,
    generic_hints=GENERIC_HINTS,
    tokens=tuple(vocabulary()),
    sample=sample_problems,
    correct=_remembered(passes),
    missing=_remembered(missing_concepts),
    pretraining_problems=300,
)
ARITHMETIC = Domain(
    name="arithmetic",
    templates="math",
    concepts=RULES,
    generic_hints=ARITHMETIC_HINTS,
    tokens=tuple(
        vocabulary_of([_ARITHMETIC_WORDS, *ARITHMETIC_HINTS, *(hint for rule in RULES for hint in rule.hints)])
    ),
    sample=sample_sums,
    correct=_remembered(solves),
    missing=_remembered(missing_rules),
    pretraining_problems=120,
)
DOMAINS = {domain.name: domain for domain in (CODE, ARITHMETIC)}


@dataclass(frozen=True, slots=True)
class Claims:
    """What the student of a world is like at the start: lowest and highest value of each figure of `Start`."""

    unhinted: tuple[float, float]
    """Probability of the right answer without a hint, median over problems of one concept."""
    hinted: tuple[float, float]
    """Share of sampled answers that are right under the right hint, problems of one or two concepts."""
    quoted: tuple[float, float] = (0.0, 0.1)
    """Share of answers under a hint that quote it."""
    collapsed: tuple[float, float] = (0.75, 1.0)
    """Share of groups of four without any right answer, all families."""


@dataclass(frozen=True, slots=True)
class World:
    """One setting of the comparison."""

    name: str
    domain: Domain
    habits: Habits
    claims: Claims
    max_tokens: int = 40
    """Of one answer."""
    pretraining_steps: int = 1500
    """Of its students; with as many, all worlds are what they claim."""

    def problems(self, per_family: int, *, seed: int, held_out: bool) -> Mapping[str, Exercise]:
        """Problems by question; the same ones for every run with this seed."""
        return _problems(self.domain.name, per_family, seed, held_out)

    def correct(self, text: str, problem: Exercise) -> bool:
        """Whether an answer is right; a hint that it quotes first does not count."""
        return self.domain.correct(without_quote(text), problem)


def without_quote(text: str) -> str:
    """An answer without the sentences before it; no answer of these worlds has a full stop."""
    return text.rpartition(".")[2].strip()


_FOLLOWS = (0.25, 0.75)

WORLDS = {
    world.name: world
    for world in (
        World("code", CODE, Habits(), Claims((1e-4, 1e-2), _FOLLOWS)),
        World(
            "arithmetic",
            ARITHMETIC,
            Habits(),
            Claims((1e-7, 1e-2), (0.1, 0.75)),
            pretraining_steps=2500,  # after 1,200 right hints bring .175, after these .345
        ),
        World("deep", CODE, Habits(unhinted=1e-4), Claims((0, 1e-3), _FOLLOWS)),
        World(
            "strong",
            CODE,
            Habits(follow=0.98),
            Claims((1e-4, 1e-2), (0.8, 1)),
            pretraining_steps=2500,
        ),
        World("shallow", CODE, Habits(unhinted=1e-2), Claims((3e-3, 0.05), _FOLLOWS)),
        World(
            "echo",
            CODE,
            Habits(quotes=True),
            Claims((1e-4, 1e-2), _FOLLOWS, quoted=(0.9, 1)),
            max_tokens=64,
        ),
    )
}


@cache
def _problems(domain: str, per_family: int, seed: int, held_out: bool) -> Mapping[str, Exercise]:
    """Once in a process for all its runs: to find unit tests takes longer than to answer the problems."""
    return DOMAINS[domain].sample(random.Random(seed), per_family, held_out=held_out)
