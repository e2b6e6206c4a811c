"""A tutor whose four agents err, as often as `Noise` says, so that each part of the mentor's loop has work to do.

The rates are assumptions, of the order that makes the loop matter, and not measured on any LLM: what the comparison
shows is how far hints of the quality that they lead to carry over to accuracy. What follows from them alone, before
any training, is in the table of `strategy_hints.py`.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strategy_tutors import QualityTutor, Tutoring, attempts, block
from strategy_worlds import Domain, Exercise, Lesson

from trl_mentor.demo.tutor import UNKNOWN_FAILURE
from trl_mentor.records import Message, Quality, Role


@dataclass(frozen=True, slots=True)
class Noise:
    """Probabilities."""

    diagnosis: float = 0.15
    """Of a diagnosis: it names a concept that the question does not need."""
    unfocused: float = 0.5
    """Of a draft or a repair without any diagnosis: its author takes another concept for the one that is missing."""
    vague: float = 0.25
    """Of a draft: it fits any question."""
    astray: float = 0.2
    """Of a draft: it speaks of a concept that was not diagnosed."""
    leaking: float = 0.1
    """Of a draft: it is the answer, which the mentor's own rules refuse."""
    repair: float = 0.25
    """Of a repair: it is vague or astray, equally often."""
    judge: float = 0.15
    """Of a verdict: it is the opposite of what it should be."""


class NoisyTutor:
    """The script of a `ScriptedBackend`. The same questions in the same order get the same replies.

    Whether an agent errs is a hash of seed, role, prompt and how often this prompt was asked before, so that a second
    draft differs from the first. The judge should accept a hint that speaks of every diagnosed concept and of no
    other, be it in the keywords of the diagnosis; without a diagnosis, one that speaks of any concept. So it refuses
    what is vague or astray, and does not see through a wrong diagnosis. Students do not understand keywords.
    """

    def __init__(
        self, domain: Domain, problems: Mapping[str, Exercise], *, seed: int = 0, noise: Noise = Noise()
    ) -> None:
        self._domain, self._problems, self._seed, self._noise = domain, problems, seed, noise
        self._right = QualityTutor(domain, problems, Tutoring.RIGHT)
        self._asked: Counter[tuple[Role, str]] = Counter()
        self._lock = threading.Lock()

    def __call__(self, role: Role, messages: Sequence[Message]) -> str:
        text = messages[-1]["content"]
        with self._lock:
            self._asked[role, text] += 1
            time = self._asked[role, text]
        rng = random.Random(f"{self._seed} {role} {time} {text}")
        question = block(text, "question")
        match role:
            case Role.ATTRIBUTION:
                labels = [concept.label for concept in self._diagnosis(rng, question, text)]
                return json.dumps({"misconceptions": labels or [UNKNOWN_FAILURE]})
            case Role.GENERATION:
                return self._draft(rng, question, text)
            case Role.JUDGMENT:
                good = self._is_good(block(text, "draft"), text) != (rng.random() < self._noise.judge)
                critique = "It speaks of the concept." if good else "It does not speak of the concept."
                return json.dumps({"critique": critique, "verdict": Quality.HIGH if good else Quality.LOW})
            case Role.REPAIR:
                kind = rng.random() / self._noise.repair if self._noise.repair else 1.0
                return json.dumps({"hint": self._hint(rng, text, vague=kind < 0.5, astray=0.5 <= kind < 1)})

    def _diagnosis(self, rng: random.Random, question: str, text: str) -> list[Lesson]:
        if rng.random() < self._noise.diagnosis:
            return [rng.choice(self._others(self._needed(question)))]
        return self._right.diagnose(question, attempts(text))

    def _draft(self, rng: random.Random, question: str, text: str) -> str:
        noise, kind = self._noise, rng.random()
        if kind < noise.leaking and question in self._problems:
            return self._problems[question].answer
        kind -= noise.leaking
        return self._hint(rng, text, vague=kind < noise.vague, astray=noise.vague <= kind < noise.vague + noise.astray)

    def _hint(self, rng: random.Random, text: str, *, vague: bool, astray: bool) -> str:
        """What an agent writes that means to speak of the diagnosed concepts, or of those that it thinks missing."""
        concepts = self._diagnosed(text)
        if not block(text, "diagnosis"):
            needed = self._needed(block(text, "question"))
            concepts = [rng.choice(self._others(needed))] if rng.random() < self._noise.unfocused else needed
        if astray:
            concepts = [rng.choice(self._others(concepts))]
        if vague or not concepts:
            return rng.choice(self._domain.generic_hints)
        return " ".join(rng.choice(concept.hints) for concept in concepts)

    def _is_good(self, draft: str, text: str) -> bool:
        said = [c for c in self._domain.concepts if c.label in draft or any(hint in draft for hint in c.hints)]
        return said == self._diagnosed(text) if block(text, "diagnosis") else bool(said)

    def _needed(self, question: str) -> list[Lesson]:
        problem = self._problems.get(question)
        return [concept for concept in self._domain.concepts if problem and concept in problem.concepts]

    def _others(self, concepts: Sequence[Lesson]) -> list[Lesson]:
        return [concept for concept in self._domain.concepts if concept not in concepts]

    def _diagnosed(self, text: str) -> list[Lesson]:
        labels = block(text, "diagnosis").splitlines()
        return [concept for concept in self._domain.concepts if concept.label in labels]
