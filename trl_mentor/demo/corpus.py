"""The documents that the student was pretrained on: a question, at times under a hint, and what a student answers.

Without the right hint a concept is right with probability `P_UNHINTED`; with it, `FOLLOW`. Hints that are beside the
point, general or garbled change nothing. Hinted prompts have the very text that the trainer makes of them.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

from trl_mentor.assembly import add_hint
from trl_mentor.demo.concepts import CONCEPTS, GENERIC_HINTS, Concept
from trl_mentor.demo.world import Problem

P_UNHINTED = 1e-3
FOLLOW = 0.6
HINTED_SHARE = 0.5
RIGHT_SHARE = 0.6
"""Share of the hinted documents whose hint is about what the problem needs."""


def write_document(rng: random.Random, problem: Problem, garble_words: Sequence[str]) -> tuple[str, str]:
    """One document as (prompt, answer)."""
    if rng.random() >= HINTED_SHARE:
        return problem.question, _answer(rng, problem, hinted=())
    if problem.concepts and rng.random() < RIGHT_SHARE:
        # Now and then only one of two needed concepts is hinted at.
        hinted = problem.concepts if rng.random() < 0.7 else (rng.choice(problem.concepts),)
        hint = hint_for(rng, hinted)
    else:
        hinted = ()
        hint = _useless_hint(rng, problem, garble_words)
    prompt = add_hint(problem.question, hint)
    assert isinstance(prompt, str)
    return prompt, _answer(rng, problem, hinted=hinted)


def hint_for(rng: random.Random, concepts: Sequence[Concept]) -> str:
    """A hint that names these concepts, one sentence each, in random order and wording."""
    return " ".join(rng.choice(concept.hints) for concept in rng.sample(list(concepts), len(concepts)))


def _useless_hint(rng: random.Random, problem: Problem, garble_words: Sequence[str]) -> str:
    kind = rng.random()
    beside_the_point = [concept for concept in CONCEPTS if concept not in problem.concepts]
    if kind < 0.5:
        return hint_for(rng, rng.sample(beside_the_point, rng.choice((1, 1, 2))))
    if kind < 0.8:
        return " ".join(rng.sample(GENERIC_HINTS, rng.choice((1, 2))))
    return " ".join(rng.choices(garble_words, k=rng.randint(3, 20)))


def _answer(rng: random.Random, problem: Problem, *, hinted: Collection[Concept]) -> str:
    known = [concept for concept in problem.concepts if rng.random() < (FOLLOW if concept in hinted else P_UNHINTED)]
    return problem.program(known=known)
