"""Problems, their unit tests, and the split.

A problem asks, in words, for a Python expression over a list `xs` and a number `n`. Its *naive* program is what a
student with every misconception writes; repairing the concepts that the family needs turns it into the right one.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from types import CodeType

from trl_mentor.demo.concepts import Concept
from trl_mentor.demo.families import FAMILIES, write_specification
from trl_mentor.demo.sandbox import ProgramError, compile_program, run_program

TESTS_PER_PROBLEM = 4


@dataclass(frozen=True, slots=True)
class Case:
    """One unit test: the inputs and what the right program makes of them."""

    xs: tuple[int, ...]
    n: int
    expected: int | list[int]


@dataclass(frozen=True, slots=True)
class Problem:
    """A specification in words with its unit tests."""

    family: str
    question: str
    naive: str
    """The program of a student who has every concept of the family wrong."""
    tests: tuple[Case, ...]

    @property
    def concepts(self) -> tuple[Concept, ...]:
        """The concepts without which the answer fails."""
        return FAMILIES[self.family]

    @property
    def answer(self) -> str:
        """The right program."""
        return self.program(known=self.concepts)

    def program(self, *, known: Collection[Concept]) -> str:
        """What a student writes who has only the `known` concepts right."""
        return _program(self.family, self.naive, known)


def passed(program: str, problem: Problem) -> int:
    """How many of the unit tests a program passes; 0 for one that cannot be run."""
    try:
        code = compile_program(program)
    except ProgramError:
        return 0
    return sum(_passes_test(code, test) for test in problem.tests)


def passes(program: str, problem: Problem) -> bool:
    """Whether a program passes every unit test."""
    return passed(program, problem) == len(problem.tests)


def is_held_out(question: str) -> bool:
    """True for the fifth of all questions that neither the corpus nor training may use."""
    return hashlib.sha256(question.encode()).digest()[0] % 5 == 0


def sample_problems(rng: random.Random, per_family: int, *, held_out: bool) -> dict[str, Problem]:
    """Distinct problems of one side of the split by question, `per_family` of each family, in mixed order."""
    problems: list[Problem] = []
    for family in FAMILIES:
        source = _distinct(rng, family, held_out)
        problems += [next(source) for _ in range(per_family)]
    rng.shuffle(problems)
    return {problem.question: problem for problem in problems}


def _distinct(rng: random.Random, family: str, held_out: bool) -> Iterator[Problem]:
    seen: set[str] = set()
    for _ in range(100_000):
        question, naive = write_specification(rng, family)
        if question in seen or is_held_out(question) != held_out:
            continue
        seen.add(question)
        problem = _with_tests(family, question, naive)
        if problem is not None:
            yield problem
    raise ValueError(f"the family {family!r} does not have that many problems; ask for fewer per family")


def _program(family: str, naive: str, known: Collection[Concept]) -> str:
    program = naive
    for concept in FAMILIES[family]:
        if concept in known:
            program = concept.repair(program)
    return program


def _with_tests(family: str, question: str, naive: str) -> Problem | None:
    """The problem with unit tests that tell its misconceptions apart, or None if no such tests turn up.

    The tests depend on the question alone. A single needed concept that is still wrong fails the problem, and from the
    naive program a chain of repairs, each of which passes more tests, leads to the right one.
    """
    rng = random.Random(question)
    answer = compile_program(_program(family, naive, FAMILIES[family]))
    for _ in range(30):
        tests = tuple(test for test in (_test(rng, answer) for _ in range(TESTS_PER_PROBLEM)) if test is not None)
        problem = Problem(family, question, naive, tests)
        if len(tests) == TESTS_PER_PROBLEM and _misconceptions_show(problem):
            return problem
    return None


def _misconceptions_show(problem: Problem) -> bool:
    if not problem.concepts:
        return True
    partly = [
        passed(problem.program(known=[known for known in problem.concepts if known is not wrong]), problem)
        for wrong in problem.concepts
    ]
    if max(partly) == TESTS_PER_PROBLEM:
        return False
    return len(problem.concepts) == 1 or passed(problem.naive, problem) < max(partly)


def _test(rng: random.Random, answer: CodeType) -> Case | None:
    xs = tuple(rng.randint(1, 12) for _ in range(rng.randint(6, 8)))
    n = rng.randint(11, 16)
    try:
        return Case(xs, n, run_program(answer, xs=xs, n=n))
    except ProgramError:
        return None


def _passes_test(code: CodeType, test: Case) -> bool:
    try:
        return bool(run_program(code, xs=test.xs, n=test.n) == test.expected)
    except ProgramError:
        return False
