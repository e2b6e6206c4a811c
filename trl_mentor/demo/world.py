"""Task families, problems and their unit tests.

A problem asks, in words, for a Python expression over a list `xs` and a number `n`. The *naive* program is what a student
with every misconception writes; repairing the concepts that the family needs turns it into the right one.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from types import CodeType

from trl_mentor.demo.concepts import AT_LEAST, LAST, MULTIPLE, RANGE, ROUND_DOWN, Concept
from trl_mentor.demo.sandbox import ProgramError, compile_program, run_program

FAMILIES: dict[str, tuple[Concept, ...]] = {
    "easy": (),
    "range": (RANGE,),
    "at_least": (AT_LEAST,),
    "last": (LAST,),
    "round_down": (ROUND_DOWN,),
    "multiple": (MULTIPLE,),
    "range+multiple": (RANGE, MULTIPLE),
    "last+at_least": (LAST, AT_LEAST),
    "at_least+round_down": (AT_LEAST, ROUND_DOWN),
}
"""Family name -> the concepts that its problems need."""

TESTS_PER_PROBLEM = 4

_REDUCTIONS = {
    "total": "sum ( {} )",
    "largest": "max ( {} )",
    "smallest": "min ( {} )",
    "list": "[ {} ]",
}


@dataclass(frozen=True, slots=True)
class Test:
    """One unit test: the inputs and what the right program makes of them."""

    __test__ = False  # not a test case for pytest

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
    tests: tuple[Test, ...]

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
        question, naive = _specification(rng, family)
        if question in seen or is_held_out(question) != held_out:
            continue
        seen.add(question)
        problem = _with_tests(family, question, naive)
        if problem is not None:
            yield problem
    raise ValueError(f"the family {family!r} does not have that many problems; ask for fewer per family")


def _specification(rng: random.Random, family: str) -> tuple[str, str]:
    """A random question of a family and its naive program."""
    needed = FAMILIES[family]
    words, code = _element(rng, needed)
    number = rng.randint(2, 9)
    few = rng.randint(2, 5)
    if RANGE in needed:
        words, code = f"{words} for x from {number} to n", f"{code} for x in range ( {number} , n )"
    elif LAST in needed:
        words, code = f"{words} for x in the last {few} of xs", f"{code} for x in xs [ {few} : ]"
    elif not needed and rng.random() < 0.5:
        words, code = f"{words} for x in the first {few} of xs", f"{code} for x in xs [ : {few} ]"
    else:
        words, code = f"{words} for x in xs", f"{code} for x in xs"
    number = rng.randint(2, 9)
    if AT_LEAST in needed:
        words, code = f"{words} with x at least {number}", f"{code} if x > {number}"
    elif MULTIPLE in needed:
        words, code = f"{words} with x a multiple of {number}", f"{code} if x % {number}"
    elif not needed and rng.random() < 0.5:
        words, code = f"{words} with x more than {number}", f"{code} if x > {number}"
    reduction = rng.choice(sorted(_REDUCTIONS))
    return f"Spec: {reduction} of {words}?", _REDUCTIONS[reduction].format(code)


def _element(rng: random.Random, needed: Collection[Concept]) -> tuple[str, str]:
    """What is done to each `x`, in words and in code: divided, multiplied, then shifted, each of them optional."""
    words, code = "x", "x"
    if ROUND_DOWN in needed:
        divisor = rng.randint(2, 9)
        words, code = f"x over {divisor} rounded down", f"x / {divisor}"
    if rng.random() < 0.5:
        factor = rng.randint(2, 9)
        words, code = f"{words} times {factor}", f"{code} * {factor}"
    if rng.random() < 0.8:
        shift = rng.randint(2, 9)
        name, sign = rng.choice((("plus", "+"), ("minus", "-")))
        words, code = f"{words} {name} {shift}", f"{code} {sign} {shift}"
    return words, code


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
    answer = _program(family, naive, FAMILIES[family])
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


def _test(rng: random.Random, answer: str) -> Test | None:
    xs = tuple(rng.randint(1, 12) for _ in range(rng.randint(6, 8)))
    n = rng.randint(11, 16)
    try:
        return Test(xs, n, run_program(compile_program(answer), xs=xs, n=n))
    except ProgramError:
        return None


def _passes_test(code: CodeType, test: Test) -> bool:
    try:
        return bool(run_program(code, xs=test.xs, n=test.n) == test.expected)
    except ProgramError:
        return False
