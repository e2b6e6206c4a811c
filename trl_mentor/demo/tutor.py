"""A rule-based mentor for the student: it plays all four agents from nothing but the prompts that the agents get.

Its diagnosis comes from the failed programs themselves: which one-edit repair makes more unit tests pass? It knows the
unit tests, as a tutor of programming does, and its hints hold neither code nor any part of the answer.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from trl_mentor.demo.concepts import CONCEPTS, GENERIC_HINTS, Concept
from trl_mentor.demo.world import Problem, passed
from trl_mentor.records import Message, Quality, Role
from trl_mentor.templating import read_blocks

UNKNOWN_FAILURE = "no single misconception explains the failures"
"""The diagnosis where no repair helps."""

VAGUE_SHARE = 1 / 3
"""Share of the first drafts that are too vague, so that there is something to judge and to repair."""

_REPEATED = re.compile(r"^\[(\d+) attempts were the same", re.MULTILINE)


class Tutor:
    """The script of a `ScriptedBackend`: a function of role and messages, deterministic and without state.

    `problems` are the problems it knows, by question. To a question that it does not know it gives general advice.
    """

    def __init__(self, problems: Mapping[str, Problem]) -> None:
        self._problems = problems

    def __call__(self, role: Role, messages: Sequence[Message]) -> str:
        """The reply of one agent; its messages are rendered from the templates of the domain `code`."""
        text = messages[-1]["content"]
        match role:
            case Role.ATTRIBUTION:
                concepts = self.diagnose(_block(text, "question"), _programs(text))
                labels = [concept.label for concept in concepts] or [UNKNOWN_FAILURE]
                return json.dumps({"misconceptions": labels})
            case Role.GENERATION:
                return _draft(_diagnosed(text), random.Random(text))
            case Role.JUDGMENT:
                return _judge(_block(text, "draft"), _diagnosed(text))
            case Role.REPAIR:
                return json.dumps({"hint": _concrete(_diagnosed(text), random.Random(text))})

    def diagnose(self, question: str, programs: Sequence[str]) -> list[Concept]:
        """The concepts that most of the failed programs lack, else the one that most of them have in common."""
        problem = self._problems.get(question)
        if problem is None:
            return []
        votes = Counter(concept for program in programs for concept in missing_concepts(program, problem))
        majority = [concept for concept in CONCEPTS if 2 * votes[concept] > len(programs)]
        return majority or [concept for concept, _ in votes.most_common(1)]


class ShuffledTutor(Tutor):
    """A tutor that takes each question for another one, so that its hints are sound and meant for other prompts.

    Which one depends on the question alone, and it shares no concept with it: after a plain shuffle about a quarter of
    the hints would fit by accident.
    """

    def diagnose(self, question: str, programs: Sequence[str]) -> list[Concept]:
        """The concepts that some other question needs."""
        problem = self._problems.get(question)
        needed = set() if problem is None else set(problem.concepts)
        others = [other for other in self._problems.values() if other.concepts and needed.isdisjoint(other.concepts)]
        return list(random.Random(question).choice(others).concepts) if others else []


def missing_concepts(program: str, problem: Problem) -> list[Concept]:
    """The repairs, one edit at a time, each of which makes this program pass more of the unit tests."""
    found: list[Concept] = []
    score = passed(program, problem)
    while True:
        repaired = {concept: concept.repair(program) for concept in CONCEPTS if concept not in found}
        scores = {concept: passed(text, problem) for concept, text in repaired.items()}
        best = max(scores, key=scores.__getitem__, default=None)
        if best is None or scores[best] <= score:
            return found
        found.append(best)
        program, score = repaired[best], scores[best]


def _block(text: str, name: str) -> str:
    return next(iter(read_blocks(text, name)), "")


def _programs(text: str) -> list[str]:
    """The failed programs of the group, repeated as often as the student wrote them."""
    programs = []
    for attempt in read_blocks(text, "attempt"):
        repeated = _REPEATED.search(attempt)
        programs += [attempt.partition("\n")[0]] * (int(repeated[1]) if repeated else 1)
    return programs


def _diagnosed(text: str) -> list[Concept]:
    labels = _block(text, "diagnosis").splitlines()
    return [concept for concept in CONCEPTS if concept.label in labels]


def _draft(concepts: Sequence[Concept], rng: random.Random) -> str:
    return rng.choice(GENERIC_HINTS) if rng.random() < VAGUE_SHARE else _concrete(concepts, rng)


def _concrete(concepts: Iterable[Concept], rng: random.Random) -> str:
    return " ".join(rng.choice(concept.hints) for concept in concepts) or rng.choice(GENERIC_HINTS)


def _judge(draft: str, concepts: Sequence[Concept]) -> str:
    unmentioned = [concept.label for concept in concepts if not any(hint in draft for hint in concept.hints)]
    if unmentioned:
        critique = f"Too vague, it fits any question. Address this: {'; '.join(unmentioned)}."
        return json.dumps({"critique": critique, "verdict": Quality.LOW})
    critique = "It addresses the diagnosis and leaves the program to the student."
    return json.dumps({"critique": critique, "verdict": Quality.HIGH})
