"""Tutors of tunable quality, each the script of a `ScriptedBackend`: they play all four agents of the mentor."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum

from strategy_worlds import Domain, Exercise, Lesson, without_quote

from trl_mentor.demo.tutor import UNKNOWN_FAILURE, VAGUE_SHARE
from trl_mentor.records import Message, Quality, Role
from trl_mentor.templating import read_blocks

_REPEATED = re.compile(r"^\[(\d+) attempts were the same", re.MULTILINE)


class Tutoring(StrEnum):
    """What a tutor's hints are worth."""

    RIGHT = "right"  # about what most of the attempts have wrong
    GENERIC = "generic"  # good advice for any question
    SHUFFLED = "shuffled"  # the right hint for some other question, which fits by accident now and then
    MISLEADING = "misleading"  # about a concept that this question does not need, so that it never fits
    LEAKING = "leaking"  # the answer itself; the rules of the mentor are what stands in between


class QualityTutor:
    """Deterministic and without state: a function of role and messages.

    `problems` are those it knows, by question. Its judge refuses drafts that do not address the diagnosis, as the
    demo's does, and nothing else: a judge who saw through a bad diagnosis would hide what bad hints cost.
    """

    def __init__(self, domain: Domain, problems: Mapping[str, Exercise], tutoring: Tutoring) -> None:
        self._domain = domain
        self._problems = problems
        self._tutoring = tutoring
        self._needy = [problem for problem in problems.values() if problem.concepts]

    def __call__(self, role: Role, messages: Sequence[Message]) -> str:
        """The reply of one agent, whose messages are rendered from the templates of the package."""
        text = messages[-1]["content"]
        question = block(text, "question")
        match role:
            case Role.ATTRIBUTION:
                labels = [concept.label for concept in self.diagnose(question, attempts(text))]
                return json.dumps({"misconceptions": labels or [UNKNOWN_FAILURE]})
            case Role.GENERATION:
                return self._draft(question, self._diagnosed(text), random.Random(text))
            case Role.JUDGMENT:
                return self._judge(block(text, "draft"), self._diagnosed(text))
            case Role.REPAIR:
                return json.dumps({"hint": self._concrete(question, self._diagnosed(text), random.Random(text))})

    def diagnose(self, question: str, attempts: Sequence[str]) -> list[Lesson]:
        """The concepts that this tutor will talk about."""
        problem = self._problems.get(question)
        if problem is None or self._tutoring is Tutoring.GENERIC:
            return []
        if self._tutoring in (Tutoring.SHUFFLED, Tutoring.MISLEADING):
            return self.foreseen(question)
        votes = Counter(c for text in attempts for c in self._domain.missing(without_quote(text), problem))
        majority = [concept for concept in self._domain.concepts if 2 * votes[concept] > len(attempts)]
        return majority or [concept for concept, _ in votes.most_common(1)]

    def foreseen(self, question: str) -> list[Lesson]:
        """The concepts that this tutor would talk about if it saw the question and its answer alone."""
        problem, rng = self._problems[question], random.Random(question)
        match self._tutoring:
            case Tutoring.SHUFFLED:
                return list(rng.choice(self._needy).concepts)
            case Tutoring.MISLEADING:
                return [rng.choice([concept for concept in self._domain.concepts if concept not in problem.concepts])]
            case Tutoring.GENERIC:
                return []
        return list(problem.concepts)

    def static_hint(self, question: str) -> str:
        """A hint written before the run, which no mentor vets: a leaking tutor's is the answer."""
        return self._concrete(question, self.foreseen(question), random.Random(question))

    def ladder(self, question: str) -> list[str]:
        """Hints from weak to strong: general advice, then one concept more on each rung."""
        rng = random.Random(question)
        hints = [rng.choice(concept.hints) for concept in self.foreseen(question)]
        return [rng.choice(self._domain.generic_hints), *(" ".join(hints[: rung + 1]) for rung in range(len(hints)))]

    def _draft(self, question: str, concepts: Sequence[Lesson], rng: random.Random) -> str:
        vague = self._tutoring is not Tutoring.LEAKING and rng.random() < VAGUE_SHARE
        return rng.choice(self._domain.generic_hints) if vague else self._concrete(question, concepts, rng)

    def _concrete(self, question: str, concepts: Sequence[Lesson], rng: random.Random) -> str:
        if self._tutoring is Tutoring.LEAKING and question in self._problems:
            return self._problems[question].answer
        return " ".join(rng.choice(concept.hints) for concept in concepts) or rng.choice(self._domain.generic_hints)

    def _judge(self, draft: str, concepts: Sequence[Lesson]) -> str:
        unsaid = [concept.label for concept in concepts if not any(hint in draft for hint in concept.hints)]
        if unsaid and self._tutoring is not Tutoring.LEAKING:
            critique = f"Too vague, it fits any question. Address this: {'; '.join(unsaid)}."
            return json.dumps({"critique": critique, "verdict": Quality.LOW})
        return json.dumps({"critique": "It addresses the diagnosis.", "verdict": Quality.HIGH})

    def _diagnosed(self, text: str) -> list[Lesson]:
        labels = block(text, "diagnosis").splitlines()
        return [concept for concept in self._domain.concepts if concept.label in labels]


def fits(domain: Domain, hint: str, problem: Exercise) -> bool:
    """Whether a hint speaks of what the problem needs, all of it and nothing else."""
    said = {concept.name for concept in domain.concepts if any(text in hint for text in concept.hints)}
    return said == {concept.name for concept in problem.concepts}


def block(text: str, name: str) -> str:
    return next(iter(read_blocks(text, name)), "")


def attempts(text: str) -> list[str]:
    """The failed answers of the group, repeated as often as the student wrote them."""
    answers: list[str] = []
    for attempt in read_blocks(text, "attempt"):
        repeated = _REPEATED.search(attempt)
        answers += [attempt.partition("\n")[0]] * (int(repeated[1]) if repeated else 1)
    return answers
